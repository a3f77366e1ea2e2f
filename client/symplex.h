/* symplex.h - the C library of symplexd: compile tensor programs, load modules, run them. C99 and C++11.
 *
 *     symplex_client *client;                     compile, from the daemon's cache or in a process of its own
 *     symplex_open(NULL, &client, &error);
 *     symplex_dim batch = {"batch", 4};
 *     symplex_program program = {.path = "mlp.onnx", .dims = &batch, .dim_count = 1};
 *     symplex_compile(client, &program, &bytes, &size, NULL, &error);
 *
 *     symplex_module *module;                     load, bind memory, run
 *     symplex_module_open(bytes, size, 0, &module, &error);
 *     symplex_module_bind(module, symplex_module_find(module, SYMPLEX_INPUT_TENSOR, "x"), x, sizeof(x), &error);
 *     symplex_module_bind(module, symplex_module_find(module, SYMPLEX_OUTPUT_TENSOR, "y"), y, sizeof(y), &error);
 *     symplex_module_run(module, &error);
 *
 *     symplex_dim dims[] = {{"batch", 1}, {"batch", 4}, {"batch", 16}};     one module for several batch sizes:
 *     ...                                                                   after loading, before binding,
 *     symplex_module_choose(module, &dims[1], 1, &error);                   it is told which one runs
 *
 * Every function that can fail returns SYMPLEX_OK or a code and fills in *error; `error` may be NULL. The
 * library prints nothing, has no global state and starts threads only to run modules. A handle is used by one
 * thread at a time; different handles are independent. Text is NUL-terminated UTF-8. Structures that are given
 * are filled with zeros first: a zero field means its default.
 */
#ifndef SYMPLEX_H
#define SYMPLEX_H
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SYMPLEX_VERSION_MAJOR 0
#define SYMPLEX_VERSION_MINOR 1
#define SYMPLEX_VERSION_PATCH 0
#define SYMPLEX_API __attribute__((visibility("default")))

/* How a call can end; the numbers are those of the wire (docs/PROTOCOL.md). */
typedef enum {
    SYMPLEX_OK = 0,
    SYMPLEX_CANCELLED = 1,
    SYMPLEX_INPUT = 3,          /* program, module or tensor is not valid; the text says where */
    SYMPLEX_TIMEOUT = 4,        /* may be tried again */
    SYMPLEX_ABSENT = 5,         /* not found */
    SYMPLEX_DENIED = 7,         /* not permitted */
    SYMPLEX_LIMIT = 8,          /* a limit is exceeded; the text names it */
    SYMPLEX_UNIMPLEMENTED = 12, /* operator, target or processor that is not supported, named */
    SYMPLEX_INTERNAL = 13,      /* a defect of this software */
    SYMPLEX_BUSY = 14,          /* may be tried again */
    SYMPLEX_CORRUPT = 15,       /* a module that is truncated or altered */
    SYMPLEX_USAGE = 16,         /* the call is wrong */
    SYMPLEX_COMPILE = 100,      /* the program cannot be compiled */
    SYMPLEX_WORKER = 101,       /* the compile process died; may be tried again */
    SYMPLEX_NOMEM = 102,        /* may be tried again */
    SYMPLEX_QUOTA = 103,        /* the budget is used up */
    SYMPLEX_QUARANTINED = 104,  /* the program killed compile processes before */
    SYMPLEX_NODAEMON = 105,     /* no daemon answers; may be tried again */
    SYMPLEX_MISMATCH = 106,     /* results differ from the interpreter */
    SYMPLEX_SYSTEM = 107        /* a system call failed */
} symplex_code;

typedef struct {
    symplex_code code;
    const char *name; /* "INPUT", ...; static storage */
    /* One line: object, value, limit. What is longer ends in "..."; symplex_client_error has all of it. */
    char text[480];
    /* Advice; it may be empty. */
    char hint[480];
} symplex_error;

/* "0.1.0": of the library in use; the macros above are of the header. Static storage. */
SYMPLEX_API const char *symplex_version(void);
/* "symplexd 0.1.0 DIGEST": the same with a digest of the sources of its compiler, as it is part of each key. Who keeps
 * modules by keys of his own has it in them, or runs the code of an older compiler. Static storage. */
SYMPLEX_API const char *symplex_toolchain(void);
/* Frees what symplex_compile and symplex_optimize gave; NULL is allowed. */
SYMPLEX_API void symplex_free(void *bytes);

/* ---- client: compiling ---- */

typedef struct symplex_client symplex_client;

typedef enum {
    SYMPLEX_DAEMON_AUTO, /* the daemon if one answers within 50 ms, else a process of our own */
    SYMPLEX_DAEMON_ONLY, /* SYMPLEX_NODAEMON if none answers, SYMPLEX_DENIED if it is a stranger's */
    SYMPLEX_DAEMON_NEVER /* a process of our own: `symplex-client worker` is started */
} symplex_daemon;

typedef struct {
    /* NULL: $SYMPLEX_SOCKET, else $XDG_RUNTIME_DIR/symplex/d.sock, else /tmp/symplex-UID/d.sock */
    const char *socket;
    symplex_daemon daemon;
    /* Called during a compilation, on the calling thread; may be NULL. `text`: one line, said once for each
     * compilation, such as "no daemon at ...; compiling in process". `total` is 0 where it is not known. */
    void (*message)(void *self, const char *text);
    void (*progress)(void *self, const char *stage, uint64_t done, uint64_t total);
    /* Called while a call with this client works or waits, on the calling thread, about every 20 ms; may be NULL. Other
     * than 0: the call ends with SYMPLEX_CANCELLED; the daemon stops what nobody else waits for, a process of our own
     * is killed. */
    int (*stop)(void *self);
    void *self;
} symplex_options;

/* NULL is allowed. */
SYMPLEX_API void symplex_close(symplex_client *client);
/* The whole text of the last call with this client, if that call failed, else "": symplex_error.text ends after 479
 * bytes, and a model with many operators that are not supported is refused with all of their names. The text belongs
 * to the client and lives until the next call with it. NULL is allowed and gives "". */
SYMPLEX_API const char *symplex_client_error(const symplex_client *client);
/* *client is yours (symplex_close). `options` NULL: defaults; its text is copied. Connections are made by each
 * call and last as long as it does, so a client survives restarts of the daemon. Nothing is taken from a
 * process of another user than the caller, root and $SYMPLEX_TRUST_UID, nor through a folder that others may
 * change: such a daemon counts as none, and `message` says why.
 *   errors   SYMPLEX_USAGE a socket path too long; with SYMPLEX_DAEMON_ONLY, SYMPLEX_NODAEMON none answers,
 *            SYMPLEX_DENIED a stranger */
SYMPLEX_API symplex_code symplex_open(const symplex_options *options, symplex_client **client,
                                      symplex_error *error);

typedef struct {
    char version[32];
    char build[128];  /* compiler build that enters every key */
    char boot_id[64]; /* changes with every start */
    int64_t pid;
} symplex_server;
/* Who answers on the socket, within a second. `server` may be NULL.
 *   errors   SYMPLEX_NODAEMON nobody, or something else; SYMPLEX_DENIED a stranger; SYMPLEX_TIMEOUT */
SYMPLEX_API symplex_code symplex_ping(symplex_client *client, symplex_server *server,
                                      symplex_error *error);

/* The value of a symbolic dimension: at least 1. A program is compiled for several values of a dimension if its name
 * stands there several times: the module has a variant for each value, or for each combination of several such
 * dimensions, and symplex_module_choose says which one runs. */
typedef struct {
    const char *name;
    int64_t value;
} symplex_dim;

/* In place of values all from `low` to `high`, inside of what the program declares: one module serves each of them, and
 * symplex_module_choose says which one it is. */
typedef struct {
    const char *name;
    int64_t low, high;
} symplex_interval;

#define SYMPLEX_EXACT 1u       /* only rewrites that keep every bit */
#define SYMPLEX_APPROXIMATE 2u /* also rewrites with an error bound */
#define SYMPLEX_REFRESH 4u     /* compile again and replace what is stored */
#define SYMPLEX_NO_WEIGHTS \
    8u /* leave the weights out of the module: they are bound after loading */
/* also rewrites under which a value in between may overflow or vanish where it did not before */
#define SYMPLEX_RANGE_ANY 16u
/* What is computed for a row has the same bits in every batch: rewrites are chosen without its size. Rows are what the
 * first result counts in its first dimension, such as the images of a batch. A program that has a number there is
 * compiled as the one with a symbol, "rows", of which the module serves one value (symplex_module_symbol). Where it
 * cannot be written so, `message` says why, and it is compiled as with SYMPLEX_EXACT. */
#define SYMPLEX_BATCH_INVARIANT 32u

typedef struct {
    const char *path;  /* an ONNX model or a program as text (docs/IR.md), told apart by content */
    const void *bytes; /* or, with `path` NULL, such a file in memory; borrowed for the call */
    size_t size;       /* of `bytes` */
    /* NULL: "native"; else "x86-64-v3", "x86-64-v4", ..., or several with commas between them: the module then has code
     * for each, and symplex_module_open takes the best that the processor executes. */
    const char *target;
    const symplex_dim *dims;
    size_t dim_count;
    uint32_t flags;                    /* SYMPLEX_EXACT | ... */
    const char *disabled_rules;        /* names of rewrite rules separated by commas; NULL: none */
    const symplex_interval *intervals; /* of dimensions that have no value in `dims` */
    size_t interval_count;
    /* What is made small: "time" (NULL: this), "memory" of a run at its peak, or "energy". */
    const char *objective;
} symplex_program;

typedef struct {
    char key[65]; /* hex: program, target, extents, options, compiler; not the weights */
    /* "ram", "disk", "session" (as pinned): a hit; "none": compiled by the daemon; "process": compiled here */
    char tier[16];
    int hit;           /* 1: from the cache */
    uint64_t cost_us;  /* what compiling took, then or now */
    uint64_t total_us; /* what this call took */
} symplex_compiled;

/* A program to a module. *bytes (of *size bytes, symplex_free) is the module file, with the weights of an ONNX
 * model unless SYMPLEX_NO_WEIGHTS. `info` may be NULL.
 *   errors   SYMPLEX_INPUT no such file, malformed, wrong extents; SYMPLEX_UNIMPLEMENTED operator or target;
 *            SYMPLEX_USAGE; SYMPLEX_NODAEMON (ONLY); those of the compiler. On failure *bytes is NULL. */
SYMPLEX_API symplex_code symplex_compile(symplex_client *client, const symplex_program *program,
                                         void **bytes, size_t *size, symplex_compiled *info,
                                         symplex_error *error);
/* The same into a file: written under another name first, so that no half file is left. Also SYMPLEX_SYSTEM. */
SYMPLEX_API symplex_code symplex_compile_file(symplex_client *client,
                                              const symplex_program *program, const char *path,
                                              symplex_compiled *info, symplex_error *error);
/* The program that equality saturation extracts, as text (symplex_free; *size without the NUL behind it). */
SYMPLEX_API symplex_code symplex_optimize(symplex_client *client, const symplex_program *program,
                                          char **text, size_t *size, symplex_error *error);

/* ---- module: running ---- */

typedef struct symplex_module symplex_module;

#define SYMPLEX_RANK_MAX 8
typedef enum {
    SYMPLEX_INPUT_TENSOR,  /* read at each run */
    SYMPLEX_OUTPUT_TENSOR, /* written at each run */
    SYMPLEX_WEIGHT_TENSOR, /* read at the first run after it was bound; bound already if the module carries it */
    SYMPLEX_STATE_TENSOR /* kept by the module from run to run, which may change it; never bound */
} symplex_role;
typedef enum {
    SYMPLEX_F64 = 0,
    SYMPLEX_F32 = 1,
    SYMPLEX_BF16 = 2,
    SYMPLEX_F16 = 3,
    SYMPLEX_F8E4M3 = 4,
    SYMPLEX_F8E5M2 = 5,
    SYMPLEX_I64 = 6,
    SYMPLEX_I32 = 7,
    SYMPLEX_I8 = 8,
    SYMPLEX_U8 = 9,
    SYMPLEX_BOOL = 10, /* one byte, 0 or 1 */
    SYMPLEX_I16 = 11
} symplex_dtype;

typedef struct {
    const char *name; /* lives as long as the module */
    symplex_role role;
    symplex_dtype dtype;
    const char *dtype_name; /* "f32", ...; static storage */
    uint32_t rank;
    /* [rank] extents; elements lie in row-major order without gaps */
    int64_t shape[SYMPLEX_RANK_MAX];
    size_t size; /* bytes */
    int bound;   /* 1: has memory */
    /* Of an output that lies in the memory of an input, which a run therefore overwrites: the number of that input.
     * Binding the input binds this output. Else SYMPLEX_NO_TENSOR. */
    size_t alias;
} symplex_tensor;
#define SYMPLEX_NO_TENSOR SIZE_MAX

typedef struct {
    char key[65];    /* as in symplex_compiled */
    char target[32]; /* "x86-64-v3", "x86-64-v3,x86-64-v4", ... */
    uint32_t threads;
    /* The next three are of the variant that runs; while none is chosen, of the first one. */
    double flops;       /* useful floating point operations of one run */
    double estimate_ns; /* of one run, by the compiler's model of the target */
    double floor_ns;    /* roofline floor of the same */
    uint32_t variant_count;
    /* The name of the variant that runs, "batch=4" or "batch=4 x86-64-v4"; empty while none is chosen, and where there
     * is only one. */
    char variant[64];
    /* The GPU that runs the module: its number, as CUDA counts them here, and its name. -1 and "": the processor. */
    int gpu;
    char gpu_name[128];
} symplex_module_info;

/* NULL is allowed. Memory that was bound stays the caller's. */
SYMPLEX_API void symplex_module_close(symplex_module *module);
/* *module is yours (symplex_module_close). `threads` 0: as many as the process may use; at most 256, the
 * caller's included. The bytes are copied; the file is mapped and must not be changed while the module is open
 * (writing a new one and renaming it is fine).
 *   errors   SYMPLEX_INPUT no such file; SYMPLEX_CORRUPT not a module, truncated, altered;
 *            SYMPLEX_UNIMPLEMENTED this processor lacks its instructions; SYMPLEX_NOMEM; SYMPLEX_SYSTEM no
 *            memory for code */
SYMPLEX_API symplex_code symplex_module_open(const void *bytes, size_t size, uint32_t threads,
                                             symplex_module **module, symplex_error *error);
SYMPLEX_API symplex_code symplex_module_open_file(const char *path, uint32_t threads,
                                                  symplex_module **module, symplex_error *error);
/* symplex_compile and symplex_module_open in one: the same module, without a file of it in between. Weights of an ONNX
 * model are copied once, from where they lie to the module; the model may be changed afterwards. `info` may be NULL.
 * Where a model in a file has one variant, with values for all dimensions, the work on weights is done by this call,
 * and weights that nothing else reads are not copied. The file stays open. If that work has to be done again, as
 * another weight was bound that it reads, or the module is checked, they are read from there; if it was changed, that
 * run or check is SYMPLEX_INPUT, and binding all weights helps.
 *   errors   those of the two; on failure *module is NULL */
SYMPLEX_API symplex_code symplex_compile_open(symplex_client *client,
                                              const symplex_program *program, uint32_t threads,
                                              symplex_module **module, symplex_compiled *info,
                                              symplex_error *error);

SYMPLEX_API void symplex_module_describe(const symplex_module *module, symplex_module_info *info);
/* Tensors of the interface, numbered from 0: inputs, weights, outputs and state in the order of the module. */
SYMPLEX_API size_t symplex_module_tensor_count(const symplex_module *module);
/* Shape and size are those for the values of the symbols; while a symbol has no value, the largest that they can
 * become.
 *   errors   SYMPLEX_USAGE no tensor of that number */
SYMPLEX_API symplex_code symplex_module_tensor(const symplex_module *module, size_t index,
                                               symplex_tensor *tensor, symplex_error *error);
/* The number of the tensor with this role and name, or SYMPLEX_NO_TENSOR (which bind refuses with SYMPLEX_USAGE). */
SYMPLEX_API size_t symplex_module_find(const symplex_module *module, symplex_role role,
                                       const char *name);

/* The values low, low + step, ..., high. */
typedef struct {
    int64_t low, high, step;
} symplex_range;
/* A symbolic dimension of the program, such as batch, and the values that the module serves. */
typedef struct {
    const char *name; /* lives as long as the module */
    /* [range_count] which ascend and lie apart, at least one; they live as long as the module */
    const symplex_range *range;
    size_t range_count;
    /* The value that was chosen; 0: none yet. Where only one is served it is chosen from the start. */
    int64_t value;
} symplex_symbol;
/* Symbols are numbered from 0. */
SYMPLEX_API size_t symplex_module_symbol_count(const symplex_module *module);
/* SYMPLEX_USAGE: no symbol of that number. */
SYMPLEX_API symplex_code symplex_module_symbol(const symplex_module *module, size_t index,
                                               symplex_symbol *symbol, symplex_error *error);
/* How an extent of an input or output follows symbols: it is `scale` times the value of one, or times the product of
 * two, such as batch * seq. A sum, such as past + 1, has the first of its symbols, and 0 as `scale`:
 * symplex_module_terms has what is added. */
typedef struct {
    size_t symbol; /* its number; SYMPLEX_NO_TENSOR: the extent is always the same */
    int64_t scale; /* 0 where there is no symbol, and of a sum */
    size_t other;  /* the second factor, maybe the same symbol; SYMPLEX_NO_TENSOR: none */
} symplex_axis;
/* Dimension `axis`, from 0, of a tensor. Whoever has an input at hand learns the values of the symbols from its shape.
 *   errors   SYMPLEX_USAGE no tensor of that number, or no dimension */
SYMPLEX_API symplex_code symplex_module_axis(const symplex_module *module, size_t index,
                                             uint32_t axis, symplex_axis *result,
                                             symplex_error *error);
/* What adds up to the extent of dimension `axis`, from 0, of a tensor: multiples of symbols and of products of two,
 * and at most one number (symbol SYMPLEX_NO_TENSOR; it may be below 0), which is the last one. past + seq - 1 has
 * three. Returns how many there are, 0 where the extent is always the same or there is no such dimension, and writes
 * the first `count` of them to `terms`, which may be NULL if `count` is 0. */
SYMPLEX_API size_t symplex_module_terms(const symplex_module *module, size_t index, uint32_t axis,
                                        symplex_axis *terms, size_t count);
/* Gives symbols their values: all of `dims`, or none of them if one is refused. A module runs when every symbol has a
 * value; shapes and sizes of inputs and outputs follow. Those whose shape depends on a symbol that gets another value
 * lose their memory and are bound again; the others, weights and state stay as they are. It may be called as often as
 * one likes: what the first run with a variant does with the weights is kept.
 *   errors   SYMPLEX_USAGE a dimension without a name, or given twice; SYMPLEX_INPUT no symbol of that name, or a value
 *            that the module does not serve, with those that it does */
SYMPLEX_API symplex_code symplex_module_choose(symplex_module *module, const symplex_dim *dims,
                                               size_t dim_count, symplex_error *error);

/* Gives memory to a tensor: borrowed until it is bound again or the module is closed. `size` is that of the
 * tensor. Alignment is free. Memory of an output overlaps no other's; a run looks at that where an output lies in the
 * place of an input, whose memory no other tensor may share.
 *   errors   SYMPLEX_USAGE no tensor of that number, or it is state; SYMPLEX_INPUT another size, with both; a symbol
 *            that its shape depends on has no value; other memory for an output than that of the input it lies in */
SYMPLEX_API symplex_code symplex_module_bind(symplex_module *module, size_t index, void *memory,
                                             size_t size, symplex_error *error);

/* ---- module: weights ----
 *
 * A program says which of its parameters are weights: what is made of them alone (other layouts, products of constants)
 * is made by the first run after they were bound and kept. So runs see a weight that such work reads
 * (symplex_module_weight_packed) as it was then: whoever changes its bytes binds it again. Weights that no such work
 * reads, as tables of which runs take rows, are read where they lie.
 *
 * What is bound belongs to a handle. A program that serves several models has a handle for each:
 *
 *     symplex_module_share(module, &other, &error);
 *     symplex_module_bind_weights(module, weights_of_one, count, NULL, &error);
 *     symplex_module_bind_weights(other, weights_of_the_other, count, NULL, &error);
 */

/* Another handle on the module, *another, which is yours (symplex_module_close): code, threads and weights that the
 * file carries are shared and last as long as one of the handles; memory that is bound, what is made of weights, values
 * of symbols, state and the communicator are its own, as when a module was opened. Different threads may run them at
 * the same time, and one may be shared while it runs: a launch has all threads, or, while another handle's launch has
 * them, that of its caller.
 *   errors   SYMPLEX_USAGE no module, or no place; SYMPLEX_NOMEM; on a GPU also those of symplex_module_open */
SYMPLEX_API symplex_code symplex_module_share(const symplex_module *module,
                                              symplex_module **another, symplex_error *error);

typedef struct {
    size_t index; /* of a tensor that is a weight */
    const void *memory;
    size_t size; /* bytes */
    /* A number of the caller's that becomes another one when the bytes change. */
    uint64_t version;
} symplex_weight;
/* Binds weights, all or, where one is refused, none of them. The memory is borrowed until it is bound again or the
 * handle is closed, and only read. One that this function bound to the same memory with the same version is left as it
 * is, so that it costs little to call this before each run; for any other the next run does the work on weights alone
 * again. *changed, which may be NULL, is how many were bound.
 *   errors   SYMPLEX_USAGE no tensor of that number, or it is no weight; SYMPLEX_INPUT another size, or no memory, with
 *            the name of the tensor */
SYMPLEX_API symplex_code symplex_module_bind_weights(symplex_module *module,
                                                     const symplex_weight *weights, size_t count,
                                                     size_t *changed, symplex_error *error);
/* 1: work on weights alone reads tensor `index`; 0: it does not, or there is no such tensor. */
SYMPLEX_API int symplex_module_weight_packed(const symplex_module *module, size_t index);

/* ---- module: a run ---- */

/* Runs once; returns when the outputs are written. Work on weights alone is done by the first run.
 *   errors   SYMPLEX_INPUT a tensor has no memory or a symbol no value, named; memory of an input that an output
 *            replaces overlaps another tensor's, both named */
SYMPLEX_API symplex_code symplex_module_run(symplex_module *module, symplex_error *error);

/* Runs with loops and whiles may take long. Between their rounds, about every 20 ms, `stop` is called on the thread of
 * the run; NULL, as at first: it is not. Other than 0: the run ends with SYMPLEX_CANCELLED; what its outputs and states
 * hold then is not defined. `self` is handed on. It holds for runs by symplex_module_run, _call and _run_timed of this
 * module, not of those that share with it. */
SYMPLEX_API void symplex_module_watch(symplex_module *module, int (*stop)(void *self), void *self);

/* Memory of a tensor, as symplex_module_bind takes it. */
typedef struct {
    size_t index;
    void *memory;
    size_t size; /* bytes */
} symplex_memory;
/* A run in one call: symplex_module_choose where there are `dims`, symplex_module_bind for each of `memory`, and
 * symplex_module_run. For one run after the other with other memory this is the way: calls of their own for each
 * tensor can take longer than a small module runs. Everything stays as those calls leave it: what was bound by a call
 * stays bound, also where a later part of it is refused.
 *   errors   those of the three; SYMPLEX_USAGE `dims` or `memory` is NULL though their number is not 0 */
SYMPLEX_API symplex_code symplex_module_call(symplex_module *module, const symplex_dim *dims,
                                             size_t dim_count, const symplex_memory *memory,
                                             size_t memory_count, symplex_error *error);

/* ---- module: what the compiler did, and what a run takes ---- */

/* The report that the module carries, as a JSON object (symplex_free; *size without the NUL behind it), whose fields
 * are those of `symplex-client explain --json`: "schema" is "report/1"; "search", how the e-graph was searched;
 * "rules", what each rewrite rule did; "sharding", on a mesh; "stages", what each part of the compiler went through and
 * why it ended; "rewrites", the chain from the program that was sent to the one that runs.
 *   errors   SYMPLEX_NOMEM; SYMPLEX_LIMIT a report of more than 256 MiB. On failure *json is NULL. */
SYMPLEX_API symplex_code symplex_module_report(const symplex_module *module, char **json,
                                               size_t *size, symplex_error *error);

/* One of the things that a run does one after the other. */
typedef struct {
    /* Name of the kernel, "..." at the end where it is cut; empty for what is no kernel. */
    char kernel[128];
    const char *kind; /* of the kernel, or "copy", "loop", ...; static storage */
    /* 1: work on weights alone, which the first run after they were bound does, or symplex_compile_open, whose time
     * counts for the first run. */
    int once;
    double flops; /* of a kernel, as are the next three; else 0 */
    double bytes;
    double estimate_ns; /* by the compiler's model of the target */
    double floor_ns;    /* roofline floor */
} symplex_launch;
/* Launches of the variant that runs, numbered from 0; none while no variant is chosen. */
SYMPLEX_API size_t symplex_module_launch_count(const symplex_module *module);
/* SYMPLEX_USAGE: no launch of that number. */
SYMPLEX_API symplex_code symplex_module_launch(const symplex_module *module, size_t index,
                                               symplex_launch *launch, symplex_error *error);
/* As symplex_module_run, and ns[i] becomes what launch i took: 0 for one that was not run this time, for a loop the sum
 * of its rounds. `count` is symplex_module_launch_count.
 *   errors   those of symplex_module_run; SYMPLEX_USAGE another count, or no place for the times */
SYMPLEX_API symplex_code symplex_module_run_timed(symplex_module *module, uint64_t *ns,
                                                  size_t count, symplex_error *error);

/* ---- module: with other ranks ----
 *
 * A program with collectives makes a module that several ranks run together, each with a module of its own opened from
 * the same bytes: threads of a process, or processes. A rank reaches the others through a communicator, functions that
 * the caller has over whatever engine moves the bytes. symplex_module_run calls them in the order of the module, which
 * is the same on all ranks. */

typedef enum {
    SYMPLEX_ALL_REDUCE, /* to: the tensors of all, combined element by element */
    SYMPLEX_ALL_GATHER, /* to: `count` pieces, what each has in `from` */
    SYMPLEX_REDUCE_SCATTER, /* from: `count` pieces; to: the pieces of number `place` of all, combined */
    SYMPLEX_ALL_TO_ALL, /* from: `count` pieces; to: the pieces of number `place` of all */
    SYMPLEX_PERMUTE /* to: what the source of the pair has whose target is `place`; zeros where there is none */
} symplex_collective;
typedef enum { SYMPLEX_SUM, SYMPLEX_PRODUCT, SYMPLEX_MAX, SYMPLEX_MIN } symplex_combine;
#define SYMPLEX_NO_LAUNCH UINT32_MAX
typedef struct {
    uint32_t source, target; /* places */
} symplex_pair;
/* One collective of one rank. The ranks first, first + stride, ... take part, `count` of them; this is that of number
 * `place`. Pieces are of equal size and lie one behind the other. */
typedef struct {
    symplex_collective kind;
    const char *axis; /* of the mesh, "dp"; "": of all ranks, what the library itself asks */
    uint32_t first, stride, count, place;
    /* Its number in the module, for messages; SYMPLEX_NO_LAUNCH where the library itself asks. */
    uint32_t launch;
    symplex_dtype dtype;
    symplex_combine combine;
    const symplex_pair *pair; /* [pair_count] sources ascend */
    uint32_t pair_count;
    const void *from;
    size_t from_size; /* bytes */
    void *to;
    size_t to_size;
} symplex_exchange;
/* Each function returns when `to` is written and `from` is not read any more, or fails the run: it fills in code and
 * text of *error. It is called on the thread that runs the module. Elements are combined from number 0 up, in f32 where
 * they are narrower; whoever combines in another order gets other bits than other engines do. symplex_exchange_run
 * combines so. `abort` (may be NULL) is called where the run of this rank failed: nobody shall wait for it. */
typedef symplex_code (*symplex_exchanger)(void *self, const symplex_exchange *exchange,
                                          symplex_error *error);
typedef struct {
    void *self;
    uint32_t rank, rank_count;
    symplex_exchanger all_reduce, all_gather, reduce_scatter, all_to_all, permute;
    void (*abort)(void *self, const symplex_error *error);
} symplex_communicator;

/* How many ranks run the module together; 1: it needs no communicator. */
SYMPLEX_API uint32_t symplex_module_ranks(const symplex_module *module);
/* Which rank this module is, and how it reaches the others. The structure is copied; what `self` points to is used
 * until the module is closed. Before the first collective after it, the ranks compare which program and which module
 * they run, in an all-gather of 64 bytes from all ranks: the run fails with SYMPLEX_MISMATCH, which names rank and key,
 * where they differ. So all ranks join before any of them runs again.
 *   errors   SYMPLEX_INPUT another number of ranks than the module has, with both; SYMPLEX_USAGE a function is NULL */
SYMPLEX_API symplex_code symplex_module_join(symplex_module *module,
                                             const symplex_communicator *communicator,
                                             symplex_error *error);
/* Writes `to` of an exchange, where what all that take part have is at hand: from[k] is `from` of number k. */
SYMPLEX_API void symplex_exchange_run(const symplex_exchange *exchange, const void *const *from);

/* ---- module: on a GPU, with memory and streams of the caller ----
 *
 * A module for GPUs is opened on the first one that is enough; symplex_module_describe says which. Everything
 * happens in its primary context, which frameworks use, too. symplex_module_bind and symplex_module_run copy from
 * and to the host and wait. Without that:
 *
 *     symplex_module_bind_device(module, x, address, size, &error);    inputs and outputs where they lie on the GPU
 *     symplex_module_bind_device(module, y, other, size, &error);
 *     symplex_module_prepare(module, &error);                          once: code, weights, work on weights alone
 *     symplex_module_enqueue(module, stream, &error);                  each run: launches on the caller's stream
 *
 * The stream may be one that is being captured into a CUDA graph. Such a graph uses the addresses that are bound at
 * that time, and temporaries and state of the module: it must not be launched after the module is closed, prepared
 * again with other weights, or given other extents. The runs of a module must not overlap, on whatever streams they
 * are; each reads and changes its temporaries and state. */

/* Gives a tensor memory of the GPU that runs the module, by its address there (a CUdeviceptr): borrowed until it is
 * bound again or the module is closed, and used where it lies. Inputs and weights are only read, and outputs
 * written, by runs; a weight also by symplex_module_prepare, after which its bytes must not change. `size` is that
 * of the tensor, and all of it lies in one allocation. The address is a multiple of 64: what lies in the middle of
 * an allocation, such as a slice, may have to be copied first. Binding an input binds the output that lies in it.
 *   errors   SYMPLEX_USAGE no tensor of that number, or it is state; the processor runs the module;
 *            SYMPLEX_INPUT another size, with both; an address that is not aligned, not memory of a GPU, or of another
 *            one, with the name of the tensor; and those of symplex_module_bind */
SYMPLEX_API symplex_code symplex_module_bind_device(symplex_module *module, size_t index,
                                                    uint64_t address, size_t size,
                                                    symplex_error *error);
/* All that is done once and not in each run: code is loaded, weights are copied from the host, state gets its values,
 * and the work on weights alone is done. It waits for the GPU. Writes of the caller to weights on the GPU must be
 * finished. It is needed again after another weight was bound, a symbol got another value, or state was reset.
 *   errors   SYMPLEX_USAGE the processor runs the module; SYMPLEX_INPUT a weight has no memory or a symbol no value;
 *            SYMPLEX_NOMEM; SYMPLEX_UNIMPLEMENTED the driver is too old for the code; SYMPLEX_SYSTEM the GPU fails */
SYMPLEX_API symplex_code symplex_module_prepare(symplex_module *module, symplex_error *error);
/* Puts a run on `stream`, a CUstream or cudaStream_t of that context (NULL: its default stream), and returns. Nothing
 * is allocated, nothing is copied from or to the host, and nothing is waited for. The outputs are there when the stream
 * has come so far; a kernel that fails is told by whatever waits for it.
 *   errors   SYMPLEX_USAGE the processor runs the module, or it is not prepared, and what is missing; SYMPLEX_INPUT an
 *            input or output is not in memory of the GPU; SYMPLEX_SYSTEM. What was launched before stays launched. */
SYMPLEX_API symplex_code symplex_module_enqueue(symplex_module *module, void *stream,
                                                symplex_error *error);

/* ---- GPUs for callers without a CUDA library ----
 *
 * Who has one, as PyTorch, has memory and streams from there. Others get them here: a binding for a language that takes
 * arrays of several libraries, for instance. */

typedef struct {
    int gpu;             /* its number, as CUDA counts them here */
    char name[128];      /* as the driver has it: "NVIDIA H100 80GB HBM3" */
    uint32_t capability; /* 90: compute capability 9.0 */
    /* The row of `symplex-client targets` that it is, for symplex_program.target: "h100". Empty: none. */
    char target[32];
} symplex_gpu_info;
/* What GPU a number is.
 *   errors   SYMPLEX_ABSENT no driver, no GPU, or none of this number; SYMPLEX_UNIMPLEMENTED the driver lacks a
 *            function; SYMPLEX_DENIED the driver's file is not trusted; SYMPLEX_SYSTEM */
SYMPLEX_API symplex_code symplex_gpu_describe(int gpu, symplex_gpu_info *info,
                                              symplex_error *error);

/* Memory of the GPU that runs the module, aligned to 256 bytes, which is yours until symplex_module_device_free of the
 * same module or of one that shares it; the module is closed after that. Freeing waits for all work on the GPU, as
 * cuMemFree does; an address of 0 is allowed there.
 *   errors   SYMPLEX_USAGE the processor runs the module; SYMPLEX_NOMEM with what was wanted and what is free;
 *            SYMPLEX_SYSTEM */
SYMPLEX_API symplex_code symplex_module_device_alloc(symplex_module *module, size_t size,
                                                     uint64_t *address, symplex_error *error);
SYMPLEX_API symplex_code symplex_module_device_free(symplex_module *module, uint64_t address,
                                                    symplex_error *error);
/* Copies memory of that GPU to the host, after what symplex_module_mark remembers, and waits.
 *   errors   SYMPLEX_USAGE the processor runs the module, or no memory; SYMPLEX_INPUT not memory of this GPU;
 *            SYMPLEX_SYSTEM */
SYMPLEX_API symplex_code symplex_module_device_read(symplex_module *module, uint64_t address,
                                                    void *memory, size_t size,
                                                    symplex_error *error);

/* Streams in order, without waiting on the host. The module remembers how far a stream has come (mark, behind a run
 * that was enqueued there); later work on another stream waits for the last mark (follow), as do
 * symplex_module_prepare, symplex_module_run, what is done with state, and symplex_module_close by themselves. A stream
 * that is being captured
 * is not marked and follows nothing: whoever launches the graph has it in order. symplex_module_order: what is put on
 * `then` later waits for what is on `first` now.
 *   errors   SYMPLEX_USAGE the processor runs the module; SYMPLEX_SYSTEM */
SYMPLEX_API symplex_code symplex_module_mark(symplex_module *module, void *stream,
                                             symplex_error *error);
SYMPLEX_API symplex_code symplex_module_follow(symplex_module *module, void *stream,
                                               symplex_error *error);
SYMPLEX_API symplex_code symplex_module_order(symplex_module *module, void *first, void *then,
                                              symplex_error *error);

typedef struct {
    int passed;
    uint64_t elements; /* compared */
    double error;      /* largest, relative to the largest magnitude of the reference */
    double tolerance;
} symplex_check;
/* The outputs as they are now against the reference interpreter on the inputs and weights as they are now:
 * slow, in a process of our own (symplex-client). `check` may be NULL.
 *   errors   SYMPLEX_MISMATCH beyond the tolerance, with output, element and both values; SYMPLEX_INPUT a
 *            tensor has no memory of the host */
SYMPLEX_API symplex_code symplex_module_check(symplex_module *module, symplex_check *check,
                                              symplex_error *error);

/* State: tensors that a module keeps from run to run, the same for all variants. Runs that were enqueued on a GPU must
 * have ended before it is read, written or reset. They begin with the values that the
 * module holds for them. `index` is the number of a tensor with the role SYMPLEX_STATE_TENSOR, `size` its bytes; the
 * memory is the caller's and only used during the call.
 *   errors   SYMPLEX_USAGE no tensor of that number, or it is not state; no memory; SYMPLEX_INPUT another size, with
 *            both */
SYMPLEX_API symplex_code symplex_module_state_read(const symplex_module *module, size_t index,
                                                   void *memory, size_t size, symplex_error *error);
SYMPLEX_API symplex_code symplex_module_state_write(symplex_module *module, size_t index,
                                                    const void *memory, size_t size,
                                                    symplex_error *error);
/* All state gets its first values, as when the module was opened.
 *   errors   SYMPLEX_USAGE no module */
SYMPLEX_API symplex_code symplex_module_state_reset(symplex_module *module, symplex_error *error);

/* ---- session: the ranks of a job use the same modules ----
 *
 * Ranks that compile the same program may get different modules: one finds it in a cache, another compiles after the
 * cache has changed. With other rounding, or another order of collectives, the job is then wrong, or hangs. In a
 * session the first module that a rank of the job got for a key is pinned, and all others get that one; a check
 * compares what all ranks used, before the first collective:
 *
 *     symplex_session_open(NULL, "job-17", rank, world, &session, &error);
 *     symplex_client_join(client, session, &error);
 *     symplex_compile(client, ...);
 *     symplex_session_check(session, 60000, &error);       SYMPLEX_MISMATCH names rank and key
 *
 * The ranks are processes of one user that reach the same daemon. Those of several machines compare
 * symplex_session_digest by means of their own. A session and the clients that joined it are used by one thread at a
 * time. */
typedef struct symplex_session symplex_session;

/* Comes to the session of the job, which the first rank makes. `job` is 1 to 256 bytes, `world` the number of ranks, at
 * most 4096, and `rank` from 0. The connection lasts as long as the session; if it ends, or the daemon is started
 * again, the next call comes back, and what this rank used is still known. Of the options `socket`, `stop` and `self`
 * count.
 *   errors   SYMPLEX_NODAEMON; SYMPLEX_DENIED a stranger; SYMPLEX_INPUT another number of ranks than others say, or a
 *            rank that another process has; SYMPLEX_BUSY too many sessions */
SYMPLEX_API symplex_code symplex_session_open(const symplex_options *options, const char *job,
                                              uint32_t rank, uint32_t world,
                                              symplex_session **session, symplex_error *error);
/* Leaves the job; the session ends when all ranks have left, or nobody comes back for long. NULL is allowed. */
SYMPLEX_API void symplex_session_close(symplex_session *session);
/* Modules that the client compiles are pinned to those of the session from now on, also where the client compiles in a
 * process of its own. NULL: no more. The session is closed after the client, or leaves it first. A compilation may then
 * also end with the errors of symplex_session_open, and with SYMPLEX_MISMATCH if another module is pinned whose bytes
 * the daemon does not keep any more. */
SYMPLEX_API symplex_code symplex_client_join(symplex_client *client, symplex_session *session,
                                             symplex_error *error);
/* Something else that must be the same for all ranks: it is compared by the next checks. The same name again replaces
 * it. */
SYMPLEX_API symplex_code symplex_session_note(symplex_session *session, const char *name,
                                              const void *bytes, size_t size, symplex_error *error);
/* Waits until all ranks have come to the check, and compares what they used. All hear the same.
 *   errors   SYMPLEX_MISMATCH with rank, key or name, and both digests; SYMPLEX_TIMEOUT ranks did not come within
 *            `timeout_ms`, named; SYMPLEX_ABSENT a rank left, or died (it lost its connection for 5 s), named;
 *            SYMPLEX_CANCELLED by `stop`; SYMPLEX_NODAEMON */
SYMPLEX_API symplex_code symplex_session_check(symplex_session *session, uint64_t timeout_ms,
                                               symplex_error *error);
/* A digest of all that this rank used so far, equal where ranks used the same, and how much that was. `count` may be
 * NULL. */
SYMPLEX_API symplex_code symplex_session_digest(symplex_session *session, uint8_t digest[32],
                                                size_t *count, symplex_error *error);

/* ---- store: bytes that the daemon keeps for other caches ----
 *
 * A framework that compiles on its own keeps what it made with the daemon, by the name of its cache and a name within
 * it: shared by all processes of the user and by restarts, checked, with a limit in size. With a lease one process
 * makes what is missing while the others wait:
 *
 *     code = symplex_store_get(store, "mine", key, size, 600000, 300000, &bytes, &length, &found, &error);
 *     if (code == SYMPLEX_ABSENT) {
 *         ... make it ...
 *         symplex_store_put(store, "mine", key, size, made, length, cost_us, &error);      or symplex_store_release
 *     }
 *
 * What comes out is what any process of the user put in: believe it as you believe them. */
typedef struct symplex_store symplex_store;

/* A connection that lasts as long as the store, to which its leases belong; the daemon passes them on when it is
 * closed, or the process ends. When the daemon was started again, the next call connects again. In a child after fork
 * a store has no leases and makes a connection of its own. Of the options `socket`, `stop` and `self` count, and
 * `stop` ends a get that waits.
 *   errors   SYMPLEX_NODAEMON nobody, or something else; SYMPLEX_DENIED a stranger, as in symplex_open */
SYMPLEX_API symplex_code symplex_store_open(const symplex_options *options, symplex_store **store,
                                            symplex_error *error);
SYMPLEX_API void symplex_store_close(symplex_store *store); /* NULL is allowed */

typedef struct {
    /* It is absent, and the caller is to make it: the number of the lease; 0: no lease. */
    uint64_t lease;
    int held;           /* 1: it is absent, and another process is still making it */
    uint64_t waited_ms; /* for the process that makes it */
    uint64_t cost_us;   /* what making it took */
} symplex_found;
/* The bytes of an artefact: *bytes of *size (symplex_free). `cache` is 1 to 32 of a-z, 0-9, '.', '_' and '-'; `name` 1
 * to 4096 bytes. `claim_ms` other than 0, at most an hour: if it is absent and nobody makes it, the caller gets a lease
 * for so long. `wait_ms`: how long to wait if another process has the lease; a lease that ends without a value goes to
 * one that waits. No wait closes a circle of processes. `found` may be NULL, if `claim_ms` is 0.
 *   errors   SYMPLEX_ABSENT not there, see `found`; SYMPLEX_CANCELLED by `stop`; SYMPLEX_NODAEMON; SYMPLEX_DENIED;
 *            SYMPLEX_INPUT, SYMPLEX_LIMIT a name or a time; SYMPLEX_UNIMPLEMENTED an older daemon */
SYMPLEX_API symplex_code symplex_store_get(symplex_store *store, const char *cache,
                                           const void *name, size_t name_size, uint64_t claim_ms,
                                           uint64_t wait_ms, void **bytes, size_t *size,
                                           symplex_found *found, symplex_error *error);
/* Keeps the bytes, in place of what was there; who waits for them gets them, and the lease ends. `cost_us` is what
 * making them took: of two artefacts alike the dearer one is kept longer. At most 64 MiB less 64 KiB.
 *   errors   as above; SYMPLEX_LIMIT too many bytes */
SYMPLEX_API symplex_code symplex_store_put(symplex_store *store, const char *cache,
                                           const void *name, size_t name_size, const void *bytes,
                                           size_t size, uint64_t cost_us, symplex_error *error);
/* Gives a lease back without a value: one that waits makes it instead. Not an error if it had ended. */
SYMPLEX_API symplex_code symplex_store_release(symplex_store *store, uint64_t lease,
                                               symplex_error *error);

#ifdef __cplusplus
}
#endif
#endif
