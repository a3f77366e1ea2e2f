/* build.c - words, extents and nodes, for all operations. */
#include "client/operation/build.h"

#include <string.h>

/* ---- words ---- */

bool sxc_word_next(sx_span *rest, sx_span *word)
{
    if (rest->ptr == NULL) {
        return false;
    }
    const uint8_t *comma = rest->len > 0 ? memchr(rest->ptr, ',', rest->len) : NULL;
    *word = *rest;
    *rest = (sx_span){NULL, 0};
    if (comma != NULL) {
        size_t length = (size_t)(comma - word->ptr);
        *rest = (sx_span){comma + 1, word->len - length - 1};
        word->len = length;
    }
    return true;
}

bool sxc_word_value(sx_span word, const char *name, sx_span *value)
{
    size_t length = strlen(name);
    if (word.len <= length || memcmp(word.ptr, name, length) != 0 || word.ptr[length] != '=') {
        return false;
    }
    *value = (sx_span){word.ptr + length + 1, word.len - length - 1};
    return true;
}

/* ---- extents ---- */

static bool is_digit(uint8_t c)
{
    return c >= '0' && c <= '9';
}

static bool is_name(sx_span text)
{
    bool name = text.len > 0 && text.len <= 32 && !is_digit(text.ptr[0]);
    for (size_t i = 0; i < text.len; i++) {
        uint8_t c = text.ptr[i];
        name =
            name && (is_digit(c) || c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'));
    }
    return name;
}

static sx_code not_an_extent(sxc_build *b, sx_span text)
{
    return SXC_BUILD_FAIL(b,
                          "'%.*s' is no extent: a number from 1 to %lld, or a name of letters "
                          "(but x), digits and _, behind which :HIGH may stand",
                          (int)sx_min_i64((int64_t)text.len, 40), (const char *)text.ptr,
                          (long long)SX_EXTENT_MAX);
}

/* A number from 1 to SX_EXTENT_MAX. */
static bool read_number(sx_span text, int64_t *number)
{
    bool digits = text.len > 0;
    *number = 0;
    for (size_t i = 0; i < text.len && digits; i++) {
        digits = is_digit(text.ptr[i]) && *number <= SX_EXTENT_MAX;
        *number = digits ? *number * 10 + (text.ptr[i] - '0') : 0;
    }
    return digits && *number >= 1 && *number <= SX_EXTENT_MAX;
}

/* `high` 0: it is not said. */
static sx_code find_symbol(sxc_build *b, sx_span name, int64_t high, uint32_t *symbol)
{
    for (uint32_t i = 0; i < b->graph->symbol_count; i++) {
        const sx_symbol *known = &b->graph->symbol[i];
        if (!sx_span_equal(known->name, name)) {
            continue;
        }
        if (high != 0 && high != known->high) {
            return SXC_BUILD_FAIL(b, "%.*s is at most %lld in one place, %lld in another",
                                  (int)name.len, (const char *)name.ptr, (long long)known->high,
                                  (long long)high);
        }
        *symbol = i;
        return SX_OK;
    }
    return sx_graph_add_symbol(b->cx, b->graph, name, 1,
                               high != 0 ? high : SXC_OPERATION_SYMBOL_HIGH, symbol);
}

sx_code sxc_build_extent(sxc_build *b, sx_span text, sx_dim *dim)
{
    const uint8_t *colon = text.len > 0 ? memchr(text.ptr, ':', text.len) : NULL;
    sx_span name = {text.ptr, colon != NULL ? (size_t)(colon - text.ptr) : text.len};
    int64_t high = 0;
    *dim = sx_dim_of(1);
    if (colon == NULL && read_number(text, &dim->scale)) {
        return SX_OK;
    }
    dim->scale = 1;
    if (!is_name(name) ||
        (colon != NULL && !read_number((sx_span){colon + 1, text.len - name.len - 1}, &high))) {
        return not_an_extent(b, text);
    }
    return find_symbol(b, name, high, &dim->symbol);
}

sx_code sxc_build_extents(sxc_build *b, sx_span text, uint32_t fewest, uint32_t most,
                          const char *form, sx_type *type)
{
    SX_ASSERT(fewest >= 1 && fewest <= most && most <= SX_RANK_MAX);
    *type = (sx_type){.dtype = b->input};
    uint32_t count = 1;
    for (size_t i = 0; i < text.len; i++) {
        count += text.ptr[i] == 'x' ? 1 : 0;
    }
    if (count < fewest || count > most) {
        return SXC_BUILD_FAIL(b, "%u extent%s; %s wanted", count, count == 1 ? "" : "s", form);
    }
    for (size_t start = 0, i = 0; i <= text.len; i++) {
        if (i == text.len || text.ptr[i] == 'x') {
            sx_span one = {text.ptr + start, i - start};
            SX_TRY(sxc_build_extent(b, one, &type->dim[type->rank++]));
            start = i + 1;
        }
    }
    SX_ASSERT(type->rank == count);
    return SX_OK;
}

/* ---- nodes ---- */

sx_code sxc_build_convert(sxc_build *b, sx_dtype dtype, sx_node_id *id)
{
    sx_attr attr = {.present = SX_A(type), .type = sx_graph_node(b->graph, *id)->type};
    if (attr.type.dtype == dtype) {
        return SX_OK;
    }
    attr.type.dtype = dtype;
    sx_node_id from = *id;
    return sx_graph_add(b->cx, b->graph, SX_OP_CONVERT, &attr, &from, 1, id);
}

sx_code sxc_build_input(sxc_build *b, const char *name, bool weight, sx_dtype dtype,
                        const sx_type *shape, sx_node_id *id)
{
    sx_type type = *shape;
    type.dtype = dtype;
    if (sx_build_parameter(b->cx, b->graph, name, weight, &type, id) != SX_OK) {
        return sx_fail_in(b->cx, "--%s %.60s: %s", b->name, b->asked->shape, name);
    }
    return sxc_build_convert(b, b->compute, id);
}
