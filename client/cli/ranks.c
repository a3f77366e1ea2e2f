#include "client/cli/ranks.h"

#include <string.h>

#include "client/cli/npy.h"

/* NAME[@RANK]=FILE[,AXIS:DIMENSION...] */
typedef struct {
    sx_span name, file, cuts;
    bool one; /* for one rank alone */
    int64_t rank;
} given;

/* The place of the last `letter`, or len. */
static size_t last_of(sx_span text, char letter)
{
    size_t at = text.len;
    while (at > 0 && text.ptr[at - 1] != (uint8_t)letter) {
        at--;
    }
    return at > 0 ? at - 1 : text.len;
}

static sx_span cut_span(sx_span text, size_t first, size_t last)
{
    SX_ASSERT(first <= last && last <= text.len);
    return (sx_span){text.ptr + first, last - first};
}

/* "dp:0" */
static bool is_cut(sx_span text, sx_span *axis, int64_t *dimension)
{
    size_t colon = last_of(text, ':');
    bool digit = colon + 2 == text.len && text.ptr[colon + 1] >= '0' && text.ptr[colon + 1] <= '7';
    if (colon == 0 || !digit) {
        return false;
    }
    *axis = cut_span(text, 0, colon);
    *dimension = text.ptr[colon + 1] - '0';
    return true;
}

static bool read_value(const char *value, given *g)
{
    sx_span text = sx_span_of(value), axis;
    const uint8_t *equals = memchr(text.ptr, '=', text.len);
    int64_t dimension;
    *g = (given){.one = false};
    if (equals == NULL) {
        return false;
    }
    size_t at = (size_t)(equals - text.ptr);
    g->name = cut_span(text, 0, at);
    g->file = cut_span(text, at + 1, text.len);
    size_t sign = last_of(g->name, '@');
    bool digits = sign + 1 < g->name.len && g->name.len - sign <= 8;
    for (size_t i = sign + 1; i < g->name.len && digits; i++) {
        digits = g->name.ptr[i] >= '0' && g->name.ptr[i] <= '9';
        g->rank = 10 * g->rank + (g->name.ptr[i] - '0');
    }
    g->one = digits;
    g->name.len = digits ? sign : g->name.len;
    for (size_t comma; (comma = last_of(g->file, ',')) < g->file.len;) {
        if (!is_cut(cut_span(g->file, comma + 1, g->file.len), &axis, &dimension)) {
            break;
        }
        g->file.len = comma;
    }
    g->cuts = cut_span(text, at + 1 + g->file.len, text.len);
    return g->file.len > 0;
}

static uint32_t axis_of(const sx_module *module, sx_span name)
{
    uint32_t a = 0;
    while (a < module->axis_count &&
           !sx_span_equal(sx_module_string(module, module->axis[a].name), name)) {
        a++;
    }
    return a;
}

/* One more cut: each piece is cut into as many as the axis has ranks. */
static sx_code add_cut(sx_ctx *cx, const sx_module *module, sx_span axis, int64_t dimension,
                       uint32_t tensor, uint32_t rank, sxc_source_of_rank *source)
{
    uint32_t a = axis_of(module, axis);
    if (a == module->axis_count) {
        return SX_FAIL(cx, SX_USAGE, "%.40s: the mesh has no axis %.*s", source->path,
                       (int)sx_min_i64((int64_t)axis.len, 40), (const char *)axis.ptr);
    }
    if (dimension >= (int64_t)module->tensor[tensor].rank) {
        return SX_FAIL(cx, SX_USAGE, "%.40s: dimension %lld of a tensor of rank %u", source->path,
                       (long long)dimension, module->tensor[tensor].rank);
    }
    int64_t size = (int64_t)module->axis[a].size;
    int64_t at = rank / sx_module_axis_stride(module, a) % size;
    source->pieces[dimension] *= size;
    source->place[dimension] = source->place[dimension] * size + at;
    return SX_OK;
}

static sx_code read_cuts(sx_ctx *cx, const sx_module *module, sx_span cuts, uint32_t tensor,
                         uint32_t rank, sxc_source_of_rank *source)
{
    uint32_t seen = 0;
    while (cuts.len > 0) {
        const uint8_t *end = memchr(cuts.ptr + 1, ',', cuts.len - 1);
        size_t len = end != NULL ? (size_t)(end - cuts.ptr) : cuts.len;
        sx_span axis;
        int64_t dimension;
        bool is = is_cut(cut_span(cuts, 1, len), &axis, &dimension);
        SX_ASSERT(is); /* read_value has seen it */
        uint32_t bit = 1u << axis_of(module, axis);
        if ((seen & bit) != 0) {
            return SX_FAIL(cx, SX_USAGE, "%.40s: cut along %.*s twice", source->path,
                           (int)sx_min_i64((int64_t)axis.len, 40), (const char *)axis.ptr);
        }
        seen |= bit;
        SX_TRY(add_cut(cx, module, axis, dimension, tensor, rank, source));
        cuts = cut_span(cuts, len, cuts.len);
    }
    return SX_OK;
}

sx_code sxc_rank_source(sx_ctx *cx, const sx_module *module, const sxc_values *values,
                        uint32_t tensor, uint32_t rank, bool *found, sxc_source_of_rank *source)
{
    sx_span name = sx_module_string(module, module->tensor[tensor].name);
    given best = {.one = false};
    *found = false;
    for (uint32_t i = 0; i < values->count; i++) {
        given g;
        bool its = read_value(values->value[i], &g) && sx_span_equal(g.name, name) &&
                   (!g.one || g.rank == (int64_t)rank);
        if (its && (g.one || !best.one)) { /* what is for one rank goes before what is for all */
            best = g;
            *found = true;
        }
    }
    if (!*found) {
        return SX_OK;
    }
    *source = (sxc_source_of_rank){.path = sx_alloc_text(cx, best.file)};
    for (uint32_t d = 0; d < SX_MODULE_RANK_MAX; d++) {
        source->pieces[d] = 1;
    }
    return source->path != NULL ? read_cuts(cx, module, best.cuts, tensor, rank, source)
                                : cx->error.code;
}

sx_code sxc_rank_names(sx_ctx *cx, const sxr_program *program, const char *option,
                       const sxc_values *values, sx_module_place place)
{
    uint32_t ranks = sx_module_ranks(sxr_module(program));
    for (uint32_t i = 0; i < values->count; i++) {
        given g;
        const char *wrong = NULL;
        if (!read_value(values->value[i], &g)) {
            wrong = "not of the form NAME=FILE.npy";
        } else if (sxr_find(program, place, g.name) == UINT32_MAX) {
            wrong = "the module has none of that name";
        } else if (g.one && g.rank >= (int64_t)ranks) {
            wrong = "the mesh has no rank of that number";
        }
        if (wrong != NULL) {
            return SX_FAIL(cx, SX_USAGE, "--%s %.80s: %s", option, values->value[i], wrong);
        }
    }
    return SX_OK;
}

/* ---- reading ---- */

/* Copies the piece of the whole array, row by row of the last dimension. */
static void take_piece(const sx_type *piece, const sxc_source_of_rank *source, const uint8_t *whole,
                       uint8_t *to)
{
    size_t element = sx_dtype_bytes(piece->dtype);
    uint32_t rank = piece->rank;
    int64_t row = rank > 0 ? piece->dim[rank - 1].scale : 1;
    int64_t rows = row > 0 ? sx_tensor_elements(piece) / row : 0;
    for (int64_t r = 0; r < rows; r++) {
        int64_t rest = r, at = 0, stride = 1;
        for (uint32_t d = rank; d-- > 0;) {
            int64_t extent = piece->dim[d].scale;
            int64_t index = d + 1 == rank ? 0 : rest % extent;
            rest = d + 1 == rank ? rest : rest / extent;
            at += (source->place[d] * extent + index) * stride;
            stride *= extent * source->pieces[d];
        }
        memcpy(to + (size_t)(r * row) * element, whole + (size_t)at * element,
               (size_t)row * element);
    }
}

sx_code sxc_rank_load(sx_ctx *cx, const sxr_program *program, uint32_t tensor,
                      const sxc_source_of_rank *source, void *memory)
{
    const sx_module_tensor *record = &sxr_module(program)->tensor[tensor];
    sx_type piece = {.dtype = (sx_dtype)record->dtype, .rank = record->rank}, whole;
    sxc_npy array;
    for (uint32_t d = 0; d < record->rank; d++) {
        piece.dim[d] = sx_dim_of(sxr_shape(program, tensor)[d]);
    }
    whole = piece;
    for (uint32_t d = 0; d < record->rank; d++) {
        whole.dim[d].scale *= source->pieces[d];
    }
    SX_TRY(sxc_npy_read(cx, source->path, &array));
    SX_TRY(sxc_npy_as(cx, source->path, piece.dtype, &array));
    if (!sx_type_equal(&array.type, &whole)) {
        sx_buf text;
        sx_span name = sx_module_string(sxr_module(program), record->name);
        sx_buf_init(&text, 4096);
        sx_type_print(&array.type, NULL, 0, &text);
        sx_buf_put_text(&text, ", expected ");
        sx_type_print(&whole, NULL, 0, &text);
        sx_code code =
            SX_FAIL(cx, SX_INPUT, "tensor %.*s: %s is %.*s", (int)name.len, (const char *)name.ptr,
                    source->path, (int)text.len, (const char *)text.ptr);
        sx_buf_fini(&text);
        return code;
    }
    take_piece(&piece, source, array.bytes.ptr, memory);
    return SX_OK;
}
