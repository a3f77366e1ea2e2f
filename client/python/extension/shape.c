/* shape.c - shapes of tensors whose extents follow symbols: as text, and what the shapes of arguments tell. */
#include "client/python/extension/callable.h"

static const char *name_of(const sxp_module *module, size_t symbol)
{
    return symbol == SYMPLEX_NO_TENSOR ? NULL : module->symbol[symbol].name;
}

/* A term as text that stands behind others, "2 * batch * seq" or " - 1"; takes `text`, what stands before. */
static PyObject *with_term(const sxp_module *module, PyObject *text, const symplex_axis *term)
{
    bool first = PyUnicode_GetLength(text) == 0;
    long long scale = term->scale < 0 && !first ? -term->scale : term->scale;
    const char *between = first ? "" : term->scale < 0 ? " - " : " + ";
    const char *name = name_of(module, term->symbol), *other = name_of(module, term->other);
    const char *times = other != NULL ? " * " : "";
    other = other != NULL ? other : "";
    PyObject *made =
        name == NULL ? PyUnicode_FromFormat("%U%s%lld", text, between, scale)
        : scale == 1
            ? PyUnicode_FromFormat("%U%s%s%s%s", text, between, name, times, other)
            : PyUnicode_FromFormat("%U%s%lld * %s%s%s", text, between, scale, name, times, other);
    Py_DECREF(text);
    return made;
}

static PyObject *extent_text(const sxp_module *module, const sxp_axis *axis, int64_t extent)
{
    if (axis->count == 0) {
        return PyLong_FromLongLong(extent);
    }
    PyObject *text = PyUnicode_FromString("");
    for (size_t i = 0; text != NULL && i < axis->count; i++) {
        text = with_term(module, text, &module->term[axis->first + i]);
    }
    return text;
}

PyObject *sxp_shape_text(const sxp_module *module, const sxp_tensor *tensor)
{
    PyObject *tuple = PyTuple_New((Py_ssize_t)tensor->rank);
    for (uint32_t d = 0; tuple != NULL && d < tensor->rank; d++) {
        PyObject *text = extent_text(module, &tensor->axis[d], tensor->shape[d]);
        if (text == NULL || PyTuple_SetItem(tuple, (Py_ssize_t)d, text) != 0) {
            Py_CLEAR(tuple);
        }
    }
    return tuple;
}

static bool has_symbol(const symplex_axis *term, size_t symbol)
{
    return term->symbol == symbol || term->other == symbol;
}

/* ", where past = 2 (argument 'x')" and so on for the symbols of an extent that have values. */
static PyObject *values_text(const sxp_module *module, const sxp_axis *axis, const sxp_value *value)
{
    PyObject *text = PyUnicode_FromString("");
    const char *between = ", where ";
    for (size_t s = 0; text != NULL && s < module->symbol_count; s++) {
        size_t i = 0;
        while (i < axis->count && !has_symbol(&module->term[axis->first + i], s)) {
            i++;
        }
        if (i == axis->count || value[s].value == 0) {
            continue;
        }
        const char *told = value[s].told;
        PyObject *more = PyUnicode_FromFormat(
            "%U%s%s = %lld%s%s%s", text, between, module->symbol[s].name, (long long)value[s].value,
            told != NULL ? " (argument '" : "", told != NULL ? told : "", told != NULL ? "')" : "");
        Py_DECREF(text);
        text = more;
        between = ", ";
    }
    return text;
}

static bool refuse_shape(const sxp_module *module, const sxp_tensor *tensor, const sxp_array *array,
                         const sxp_what *what, const sxp_value *value, const sxp_axis *axis)
{
    static const sxp_axis none = {0, 0, false};
    PyObject *given = PyTuple_New((Py_ssize_t)array->rank);
    for (uint32_t d = 0; given != NULL && d < array->rank; d++) {
        (void)PyTuple_SetItem(given, (Py_ssize_t)d, PyLong_FromLongLong(array->shape[d]));
    }
    PyObject *wanted = sxp_shape_text(module, tensor);
    PyObject *values = values_text(module, axis != NULL ? axis : &none, value);
    if (given != NULL && wanted != NULL && values != NULL) {
        PyErr_Format(module->state->shape_error, SXP_WHAT ": its shape is %R, needed is %R%U",
                     what->kind, what->name, given, wanted, values);
    }
    Py_XDECREF(given);
    Py_XDECREF(wanted);
    Py_XDECREF(values);
    return false;
}

/* An extent as far as the values of its symbols are known. */
typedef struct {
    int64_t sum; /* of the terms whose symbols have values; INT64_MAX: no extent is so large */
    /* The symbol without a value in the others, SYMPLEX_NO_TENSOR if there is none, and what each unit of it adds. */
    size_t open;
    int64_t each;
    bool several; /* there are more of these, or one twice in a term */
} known;

static bool add_to(int64_t *sum, int64_t product)
{
    return !__builtin_add_overflow(*sum, product, sum);
}

static known known_part(const sxp_module *module, const sxp_axis *axis, const sxp_value *value)
{
    known k = {.open = SYMPLEX_NO_TENSOR};
    bool fits = true;
    for (size_t i = 0; i < axis->count; i++) {
        const symplex_axis *term = &module->term[axis->first + i];
        const size_t symbol[] = {term->symbol, term->other};
        int64_t product = term->scale;
        size_t its = SYMPLEX_NO_TENSOR;
        for (size_t f = 0; f < 2; f++) {
            if (symbol[f] == SYMPLEX_NO_TENSOR) {
                continue;
            }
            if (value[symbol[f]].value != 0) {
                fits = fits && !__builtin_mul_overflow(product, value[symbol[f]].value, &product);
                continue;
            }
            k.several = k.several || its != SYMPLEX_NO_TENSOR ||
                        (k.open != SYMPLEX_NO_TENSOR && k.open != symbol[f]);
            k.open = its = symbol[f];
        }
        fits = fits && add_to(its != SYMPLEX_NO_TENSOR ? &k.each : &k.sum, product);
    }
    return fits ? k : (known){.sum = INT64_MAX, .open = k.open, .each = 1};
}

int64_t sxp_extent_of(const sxp_module *module, const sxp_tensor *tensor, uint32_t dimension,
                      const sxp_value *value)
{
    const sxp_axis *axis = &tensor->axis[dimension];
    return axis->count == 0 ? tensor->shape[dimension] : known_part(module, axis, value).sum;
}

/* An extent with at most one open symbol fits, or tells its value. */
static bool settle(const sxp_module *module, const sxp_axis *axis, int64_t extent,
                   const char *argument, sxp_value *value, bool *learned)
{
    const known k = known_part(module, axis, value);
    int64_t rest = extent - k.sum;
    if (k.open == SYMPLEX_NO_TENSOR) {
        return rest == 0;
    }
    if (!k.several && rest % k.each == 0 && rest / k.each > 0) {
        value[k.open] = (sxp_value){rest / k.each, argument};
        *learned = true;
    }
    return k.several || *learned;
}

bool sxp_shape_check(const sxp_module *module, const sxp_tensor *tensor, const sxp_array *array,
                     const sxp_what *what, sxp_value *value)
{
    if (array->rank != tensor->rank) {
        return refuse_shape(module, tensor, array, what, value, NULL);
    }
    for (uint32_t d = 0; d < tensor->rank; d++) {
        const sxp_axis *axis = &tensor->axis[d];
        bool learned = false;
        if (axis->count == 0 ? array->shape[d] != tensor->shape[d]
                             : !axis->sum && !settle(module, axis, array->shape[d], what->name,
                                                     value, &learned)) {
            return refuse_shape(module, tensor, array, what, value, axis);
        }
    }
    return true;
}

bool sxp_sums_check(const sxp_module *module, const sxp_tensor *tensor, const sxp_array *array,
                    const sxp_what *what, sxp_value *value, bool *learned)
{
    for (uint32_t d = 0; d < tensor->rank; d++) {
        bool now = false;
        if (tensor->axis[d].sum &&
            !settle(module, &tensor->axis[d], array->shape[d], what->name, value, &now)) {
            return refuse_shape(module, tensor, array, what, value, &tensor->axis[d]);
        }
        *learned = *learned || now;
    }
    return true;
}
