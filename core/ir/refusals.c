#include "core/ir/refusals.h"

#include <string.h>

#define NAMES_SHOWN 3u /* of a group; the others are counted */

sx_code sx_refusals_add(sx_ctx *cx, sx_refusals *all, const sx_origin *origin)
{
    SX_ASSERT(cx->error.code != SX_OK);
    char *reason = sx_alloc_text(cx, sx_span_of(cx->error.text));
    if (reason == NULL) {
        return SX_NOMEM;
    }
    sx_ctx_reset_error(cx);
    for (uint32_t i = 0; i < all->count; i++) {
        if (sx_span_equal(all->refusal[i].origin.name, origin->name) &&
            sx_span_equal(all->refusal[i].origin.op, origin->op) &&
            sx_span_is(all->refusal[i].reason, reason)) {
            return SX_OK;
        }
    }
    void *rows = all->refusal;
    SX_TRY(sx_grow(cx, &rows, &all->capacity, all->count + 1, sizeof(*all->refusal)));
    all->refusal = rows;
    all->refusal[all->count++] = (sx_refusal){*origin, sx_span_of(reason)};
    return SX_OK;
}

static bool same_group(const sx_refusal *a, const sx_refusal *b)
{
    return sx_span_equal(a->origin.op, b->origin.op) && sx_span_equal(a->reason, b->reason);
}

static void put_opset(sx_buf *text, const char *before, const sx_origin *origin)
{
    if (origin->opset > 0) { /* programs of our own have none */
        sx_buf_print(text, "%sopset %lld", before, (long long)origin->opset);
    }
}

static void put_span(sx_buf *text, sx_span span, size_t most)
{
    sx_buf_put(text, span.ptr, span.len < most ? span.len : most);
}

/* The group that begins with row `first`: false if an earlier row began it. */
static bool put_group(const sx_refusals *all, uint32_t first, sx_buf *text)
{
    const sx_refusal *head = &all->refusal[first];
    uint32_t count = 0;
    for (uint32_t i = 0; i < all->count; i++) {
        bool same = same_group(head, &all->refusal[i]);
        if (same && i < first) {
            return false;
        }
        count += same ? 1 : 0;
    }
    put_span(text, head->origin.op, 40);
    sx_buf_print(text, " (%u", count);
    uint32_t shown = 0;
    for (uint32_t i = first; i < all->count && shown < NAMES_SHOWN; i++) {
        if (same_group(head, &all->refusal[i])) {
            sx_buf_put_text(text, shown++ == 0 ? ": '" : ", '");
            put_span(text, all->refusal[i].origin.name, 60);
            sx_buf_put_u8(text, '\'');
        }
    }
    if (count > shown) {
        sx_buf_print(text, " and %u more", count - shown);
    }
    sx_buf_put_text(text, "): ");
    sx_buf_put_span(text, head->reason);
    return true;
}

static sx_code fail_one(sx_ctx *cx, const sx_refusal *only)
{
    sx_buf text;
    sx_buf_init(&text, 4096);
    sx_buf_put_text(&text, "node '");
    put_span(&text, only->origin.name, 120);
    sx_buf_put_text(&text, "' (");
    put_span(&text, only->origin.op, 40);
    put_opset(&text, ", ", &only->origin);
    sx_buf_put_text(&text, "): ");
    sx_buf_put_span(&text, only->reason);
    sx_code code = SX_FAIL(cx, SX_UNIMPLEMENTED, "%.*s", (int)text.len, (const char *)text.ptr);
    sx_buf_fini(&text);
    return code;
}

sx_code sx_refusals_end(sx_ctx *cx, const sx_refusals *all)
{
    if (all->count <= 1) {
        return all->count == 0 ? SX_OK : fail_one(cx, &all->refusal[0]);
    }
    sx_buf text;
    sx_buf_init(&text, SX_TEXT_BYTES_MAX);
    sx_buf_print(&text, "%u nodes are not supported", all->count);
    put_opset(&text, " at ", &all->refusal[0].origin); /* a model has one */
    sx_buf_put_text(&text, ": ");
    for (uint32_t i = 0; i < all->count; i++) {
        size_t before = text.len;
        sx_buf_put_text(&text, i > 0 ? "; " : "");
        if (!put_group(all, i, &text)) {
            text.len = before;
        }
    }
    size_t most = SX_ERROR_TEXT_MAX - 4;
    bool cut = text.len > most;
    sx_code code = SX_FAIL(cx, SX_UNIMPLEMENTED, "%.*s%s", (int)(cut ? most : text.len),
                           (const char *)text.ptr, cut ? "..." : "");
    sx_buf_fini(&text);
    return code;
}
