/* shape.c - shapes of tensors whose extents follow symbols: as text, and what the shapes of arguments tell. */
#include "client/python/extension/callable.h"

/* A term as text that stands behind others, "2 * batch" or " - 1"; takes `text`, what stands before. */
static PyObject *with_term(const sxp_module *module, PyObject *text, const symplex_axis *term)
{
    bool first = PyUnicode_GetLength(text) == 0;
    long long scale = term->scale < 0 && !first ? -term->scale : term->scale;
    const char *between = first ? "" : term->scale < 0 ? " - " : " + ";
    const char *name = term->symbol == SYMPLEX_NO_TENSOR ? NULL : module->symbol[term->symbol].name;
    PyObject *made = name == NULL ? PyUnicode_FromFormat("%U%s%lld", text, between, scale)
                     : scale == 1
                         ? PyUnicode_FromFormat("%U%s%s", text, between, name)
                         : PyUnicode_FromFormat("%U%s%lld * %s", text, between, scale, name);
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

/* ", where past = 2 (argument 'x')" and so on for the symbols of an extent that have values. */
static PyObject *values_text(const sxp_module *module, const sxp_axis *axis, const sxp_value *value)
{
    PyObject *text = PyUnicode_FromString("");
    const char *between = ", where ";
    for (size_t i = 0; text != NULL && i < axis->count; i++) {
        size_t s = module->term[axis->first + i].symbol;
        if (s == SYMPLEX_NO_TENSOR || value[s].value == 0) {
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
    static const sxp_axis none = {0, 0};
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

/* The sum of the terms whose symbols have values, up to INT64_MAX. *open is the last one that has none, and *count says
 * how many there are. */
static int64_t known_part(const sxp_module *module, const sxp_axis *axis, const sxp_value *value,
                          const symplex_axis **open, size_t *count)
{
    int64_t sum = 0, product;
    *count = 0;
    for (const symplex_axis *t = module->term + axis->first;
         t < module->term + axis->first + axis->count; t++) {
        int64_t its = t->symbol == SYMPLEX_NO_TENSOR ? 1 : value[t->symbol].value;
        if (its == 0) {
            *open = t;
            ++*count;
        }
        if (__builtin_mul_overflow(t->scale, its, &product) ||
            __builtin_add_overflow(sum, product, &sum)) {
            return INT64_MAX;
        }
    }
    return sum;
}

int64_t sxp_extent_of(const sxp_module *module, const sxp_tensor *tensor, uint32_t dimension,
                      const sxp_value *value)
{
    const sxp_axis *axis = &tensor->axis[dimension];
    const symplex_axis *open;
    size_t count;
    return axis->count == 0 ? tensor->shape[dimension]
                            : known_part(module, axis, value, &open, &count);
}

/* An extent with at most one open term fits, or tells its value. */
static bool settle(const sxp_module *module, const sxp_axis *axis, int64_t extent,
                   const char *argument, sxp_value *value, bool *learned)
{
    const symplex_axis *open = NULL;
    size_t count;
    int64_t rest = extent - known_part(module, axis, value, &open, &count);
    if (count == 0) {
        return rest == 0;
    }
    if (count == 1 && rest % open->scale == 0 && rest / open->scale > 0) {
        value[open->symbol] = (sxp_value){rest / open->scale, argument};
        *learned = true;
    }
    return count > 1 || *learned;
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
                             : axis->count == 1 && !settle(module, axis, array->shape[d],
                                                           what->name, value, &learned)) {
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
        if (tensor->axis[d].count > 1 &&
            !settle(module, &tensor->axis[d], array->shape[d], what->name, value, &now)) {
            return refuse_shape(module, tensor, array, what, value, &tensor->axis[d]);
        }
        *learned = *learned || now;
    }
    return true;
}
