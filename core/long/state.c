#include "core/long/long.h"

#include <math.h>
#include <string.h>

/* Build, rules, request, lane; the text too, since names that the key of a program does not know are in the state. */
static sx_code key_of(sx_ctx *cx, const sx_core_step *step, sx_key *key)
{
    sx_key request;
    sx_span part[SX_PART_COUNT];
    SX_TRY(sx_core_key(cx, step->request, &request, part));
    const sx_span parts[] = {{request.byte, sizeof(request.byte)},
                             step->request->ir,
                             {(const uint8_t *)&step->lane, sizeof(step->lane)}};
    *key = sx_key_of("lane", parts, SX_COUNT(parts));
    return SX_OK;
}

static uint64_t digest_of(const sx_long_state *head, sx_span rest)
{
    sx_long_state copy = *head;
    copy.digest = 0;
    return sx_hash64(rest, sx_hash64((sx_span){(const uint8_t *)&copy, sizeof(copy)}, 0));
}

static sx_code check(sx_ctx *cx, const sx_core_step *step, const sx_key *key,
                     const sx_long_state *s)
{
    if (memcmp(s->magic, SX_LONG_MAGIC, sizeof(s->magic)) != 0) {
        return SX_FAIL(cx, SX_CORRUPT, "state: not of a lane");
    }
    if (s->order != SX_LONG_ORDER || s->version != SX_LONG_VERSION) {
        return SX_FAIL(cx, SX_ABSENT, "state: version %u, not %u, or another order of bytes",
                       s->version, SX_LONG_VERSION);
    }
    if (s->size != step->state.len || s->digest != digest_of(s, sx_long_state_rest(step->state))) {
        return SX_FAIL(cx, SX_CORRUPT, "state of %zu bytes: cut short or altered", step->state.len);
    }
    if (!sx_key_equal(&s->key, key) || s->lane != step->lane) {
        return SX_FAIL(cx, SX_ABSENT, "state of lane %u: of another build, request or lane, not %u",
                       s->lane, step->lane);
    }
    if (s->step == 0 || s->step == UINT32_MAX || s->level > SX_LONG_LEVELS ||
        !isfinite(s->objective) || !isfinite(s->bound) || !isfinite(s->time_ns) ||
        !isfinite(s->goal)) {
        return SX_FAIL(cx, SX_CORRUPT, "state: step %u, level %u, at most %u", s->step, s->level,
                       SX_LONG_LEVELS);
    }
    return SX_OK;
}

sx_code sx_long_state_read(sx_ctx *cx, const sx_core_step *step, sx_long_state *state)
{
    SX_ASSERT(step->state.ptr != NULL || step->state.len == 0);
    sx_key key;
    SX_TRY(key_of(cx, step, &key));
    if (step->state.len == 0) {
        *state = (sx_long_state){
            .order = SX_LONG_ORDER, .version = SX_LONG_VERSION, .key = key, .lane = step->lane};
        memcpy(state->magic, SX_LONG_MAGIC, sizeof(state->magic));
        return SX_OK;
    }
    if (step->state.len < sizeof(*state)) {
        return SX_FAIL(cx, SX_CORRUPT, "state of %zu bytes, at least %zu", step->state.len,
                       sizeof(*state));
    }
    memcpy(state, step->state.ptr, sizeof(*state));
    return check(cx, step, &key, state);
}

sx_span sx_long_state_rest(sx_span state)
{
    return state.len < SX_LONG_STATE_BYTES
               ? (sx_span){NULL, 0}
               : (sx_span){state.ptr + SX_LONG_STATE_BYTES, state.len - SX_LONG_STATE_BYTES};
}

sx_code sx_long_state_begin(sx_ctx *cx, sx_buf *bytes)
{
    SX_ASSERT(bytes->len == 0);
    (void)sx_buf_room(bytes, SX_LONG_STATE_BYTES);
    return sx_buf_check(cx, bytes, "state");
}

sx_code sx_long_state_end(sx_ctx *cx, sx_long_state *state, sx_buf *bytes)
{
    SX_TRY(sx_buf_check(cx, bytes, "state"));
    SX_ASSERT(bytes->len >= sizeof(*state));
    state->size = bytes->len;
    state->digest = digest_of(state, sx_long_state_rest(sx_buf_span(bytes)));
    memcpy(bytes->ptr, state, sizeof(*state));
    return SX_OK;
}
