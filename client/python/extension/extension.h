/* extension.h - what the files of the Python extension symplex._c share.
 *
 * One shared object for CPython 3.11 and later: the limited API (abi3), the public C library, and nothing of NumPy's
 * C interface. Python makes and checks what happens once; what happens at each call is here.
 */
#ifndef SX_CLIENT_PYTHON_EXTENSION_H
#define SX_CLIENT_PYTHON_EXTENSION_H
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include <stdbool.h>
#include <stdint.h>

#include "client/symplex.h"

#define SXP_EXCHANGE_COUNT 4

/* Objects that the module keeps. */
typedef struct {
    PyObject *by_code;                   /* dict: symplex_code -> class of errors */
    PyObject *error;                     /* the class of all others */
    PyObject *dtype_error, *shape_error; /* an argument of a wrong element type, of a wrong shape */
    PyObject *layout_error;              /* with gaps, read-only, on a GPU, overlapping */
    PyObject *empty, *asarray, *dtype_of; /* numpy's functions; NULL until they are needed */
    PyObject *session;                    /* of compilations; NULL: none */
    PyObject *before_run;   /* is called before each run of a module; NULL: nothing is */
    PyObject *memory_type;  /* DeviceMemory */
    PyObject *device_class; /* symplex.DeviceArray; NULL until it is needed */
    PyObject *version_word; /* "_version", where PyTorch counts the changes of a tensor */
    /* Classes of arrays with DLPack's table of C functions, and that table; the latest one takes the place of the
     * oldest. */
    PyObject *exchange_class[SXP_EXCHANGE_COUNT];
    const void *exchange[SXP_EXCHANGE_COUNT];
    uint32_t exchange_next;
} sxp_state;

/* Raises the class of the code, with text, hint and number. `text` NULL: that of the error. */
void sxp_raise(const sxp_state *state, const symplex_error *error, const char *text);
/* The state of symplex._c; NULL with an exception. */
sxp_state *sxp_state_get(void);
/* numpy's functions are there; false with an exception that says what needs them. */
bool sxp_need_numpy(sxp_state *state);

/* ---- arrays of others ---- */

typedef struct {
    const char *name; /* as NumPy calls it */
    /* The type of the same size that has a buffer format; `name` where it has one itself. */
    const char *store;
    char class; /* 'f' real, 'i' and 'u' whole numbers, '?' bool; 0: no format */
    uint8_t bytes;
    uint8_t dlpack; /* code of DLPack */
    uint8_t xla;    /* number of XLA's interface for custom calls */
} sxp_dtype;
extern const sxp_dtype sxp_dtypes[];
#define SXP_DTYPE_COUNT 12

/* Memory that lies in an object of Python, which it keeps until sxp_array_release. */
typedef struct {
    void *data;
    bool read_only;
    uint32_t rank;
    int64_t shape[SYMPLEX_RANK_MAX];
    Py_buffer view;  /* view.obj NULL: none */
    PyObject *extra; /* an object that was made on the way; NULL: none */
    void *managed;   /* of DLPack; NULL: none */
    bool versioned;  /* which kind of it */
    /* On a GPU: the stream whose work writes it, which has to come first. */
    void *behind;
    bool has_behind;
} sxp_array;

/* What an array is given for, in messages: "argument 'x'". */
typedef struct {
    const char *kind, *name;
} sxp_what;
#define SXP_WHAT "%s '%.200s'"

/* Reads an array without gaps, of this element type, from the buffer protocol, DLPack or the array interface; nothing
 * is copied. False with an exception; nothing is to be released then. */
bool sxp_array_take(sxp_state *state, PyObject *object, symplex_dtype dtype, bool writable,
                    const sxp_what *what, sxp_array *array);
void sxp_array_release(sxp_array *array); /* also of a zero struct */
/* Where the elements of a tensor lie that has DLPack's table or a method `data_ptr`, and of the first kind its strides;
 * NULL and zeros of any other object. False with an exception. */
bool sxp_array_place(sxp_state *state, PyObject *object, const void **address,
                     int64_t stride[SYMPLEX_RANK_MAX]);

/* ---- the type symplex._c.Module ---- */

extern PyType_Spec sxp_module_spec;

/* ---- the type symplex._c.Store ---- */

extern PyType_Spec sxp_store_spec;

/* ---- the type symplex._c.Session ---- */

extern PyType_Spec sxp_session_spec;
PyObject *sxp_set_session(PyObject *module, PyObject *session);
PyObject *sxp_set_before_run(PyObject *module, PyObject *function);
/* Without the interpreter's lock: its session, for one thread at a time; NULL: it is closed. It is to be unlocked in
 * both cases. */
symplex_session *sxp_session_lock(PyObject *self);
void sxp_session_unlock(PyObject *self);

/* ---- compiling ---- */

/* (what, path, text, target, [(name, value)], [(name, low, high)], flags, rules, objective, daemon, socket, message,
 * progress, output, threads), as client/python/symplex/_compile.py gives them. */
PyObject *sxp_compile(PyObject *self, PyObject *args);
/* The module in a capsule that sxp_compile gave, yours now; NULL without an exception: it is not one, or was taken. */
#define SXP_OPENED "symplex.opened"
symplex_module *sxp_opened_take(PyObject *capsule);
PyObject *sxp_ping(PyObject *self, PyObject *args);

/* ---- the short way of traced functions ---- */

/* (args, keywords, names): the key of a call and its arrays as they come, or None: the long way is needed. `names` are
 * numpy's array type, a set of its scalar types and the words "dtype" and "shape". */
PyObject *sxp_short_key(PyObject *self, PyObject *const *args, Py_ssize_t count);
/* (table, args, keywords, names): the results, where the table has a row (module, order of the arrays, structure) for
 * the key; (structure, results) where there is a structure. NotImplemented: the long way is needed. */
PyObject *sxp_short_call(PyObject *self, PyObject *const *args, Py_ssize_t count);

/* ---- custom calls of XLA ---- */

/* The number by which an executable calls a module of this process, which stays open. */
PyObject *sxp_xla_register(PyObject *self, PyObject *object);
/* The handler of such calls, for jax.ffi.register_ffi_target: its attribute "module" is the number. */
PyObject *sxp_xla_handler(PyObject *self, PyObject *nothing);
#endif
