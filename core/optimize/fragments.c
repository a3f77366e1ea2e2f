#include "core/optimize/fragments.h"

#include "core/store/wiring.h"

typedef struct {
    sx_ctx *cx;
    const sx_optimize_options *options;
    const sx_stored_part *stored;
    uint32_t stored_count;
    sx_fragments *found;
    bool *done; /* [pieces.count] */
    bool enabled[SX_RULE_COUNT];
} finder;

static sx_code refuse(finder *f, uint32_t which)
{
    sx_ctx *cx = f->cx;
    const sx_error error = cx->error;
    sx_ctx_reset_error(cx);
    char *why = sx_alloc_text(cx, sx_span_of(error.text));
    f->found->refused |= UINT64_C(1) << which;
    f->found->why = sx_span_of(why);
    return why != NULL ? SX_OK : cx->error.code;
}

/* A piece that is not cut, in one stored graph. */
static sx_code meet_leaf(finder *f, uint32_t number, sx_span bytes, sx_fragment *fragment)
{
    sx_ctx *cx = f->cx;
    const sx_meet_options options = {f->enabled, f->options->with_certificate, number == 0};
    sx_library_graph *graph = SX_NEW(cx, sx_library_graph);
    if (graph == NULL || sx_wiring_is(bytes)) {
        return cx->error.code;
    }
    const sx_graph *program = f->found->pieces.piece[number].program;
    SX_TRY(sx_library_load(cx, bytes, &f->options->snapshot_rules,
                           sx_meet_kernels(program, options.certified), graph));
    fragment->program = graph->info.program;
    SX_TRY(sx_meet(cx, graph, program, &options, fragment->meeting));
    fragment->met = fragment->meeting->met;
    f->found->inserted += fragment->meeting->inserted;
    return SX_OK;
}

/* A piece that is cut, all of whose own pieces have met, against one stored wiring. */
static sx_code meet_wired(finder *f, uint32_t number, sx_span bytes, sx_fragment *fragment)
{
    sx_ctx *cx = f->cx;
    const sx_piece *piece = &f->found->pieces.piece[number];
    sx_wired_part *part = SX_NEW_ARRAY(cx, sx_wired_part, (size_t)piece->roll->part_count + 1);
    sx_wiring wiring;
    if (part == NULL || !sx_wiring_is(bytes)) {
        return cx->error.code;
    }
    SX_TRY(sx_wiring_open(cx, bytes, &f->options->snapshot_rules, &wiring));
    for (uint32_t p = 0; p < piece->roll->part_count; p++) {
        const sx_fragment *inner = &f->found->of[piece->inner[p]];
        part[p].as.program = inner->program;
        part[p].parameter_of = inner->meeting->parameter_of;
        part[p].output_of = inner->meeting->output_of;
    }
    fragment->program = wiring.header.info.program;
    SX_TRY(sx_wiring_alike(cx, &wiring, piece->roll, part, fragment->meeting, &fragment->met));
    for (uint32_t p = 0; p < piece->roll->part_count && fragment->met; p++) {
        const sx_meeting *inner = f->found->of[piece->inner[p]].meeting;
        fragment->meeting->inserted += inner->inserted;
        for (uint32_t r = 0; r < SX_RULE_COUNT; r++) {
            fragment->meeting->used[r] = fragment->meeting->used[r] || inner->used[r];
        }
    }
    fragment->meeting->met = fragment->met;
    return fragment->met ? sx_meeting_name_rules(cx, fragment->meeting) : SX_OK;
}

static sx_code try_all(finder *f, uint32_t number)
{
    const sx_piece *piece = &f->found->pieces.piece[number];
    sx_fragment *fragment = &f->found->of[number];
    for (uint32_t i = 0; i < f->stored_count && !fragment->met; i++) {
        if (!sx_key_equal(&f->stored[i].part, &piece->key)) {
            continue;
        }
        fragment->which = i;
        fragment->meeting = SX_NEW(f->cx, sx_meeting);
        if (fragment->meeting == NULL) {
            return f->cx->error.code;
        }
        sx_code code = piece->roll != NULL ? meet_wired(f, number, f->stored[i].bytes, fragment)
                                           : meet_leaf(f, number, f->stored[i].bytes, fragment);
        if (code != SX_OK && code != SX_NOMEM && code != SX_CANCELLED) {
            fragment->met =
                false; /* whatever is wrong with it, the program can be optimised without it */
            code = refuse(f, i);
        }
        SX_TRY(code);
    }
    return SX_OK;
}

/* Depth is bounded by SX_PIECES_DEPTH_MAX. */
static sx_code find(finder *f, uint32_t number)
{
    const sx_piece *piece = &f->found->pieces.piece[number];
    bool whole = true; /* all that it is made of has met */
    if (f->done[number]) {
        return SX_OK;
    }
    f->done[number] = true;
    for (uint32_t p = 0; piece->roll != NULL && p < piece->roll->part_count; p++) {
        SX_TRY(find(f, piece->inner[p]));
        whole = whole && f->found->of[piece->inner[p]].met;
    }
    SX_TRY(whole ? try_all(f, number) : SX_OK);
    f->found->left_count += piece->roll == NULL && !f->found->of[number].met ? 1 : 0;
    return SX_OK;
}

sx_code sx_fragments_find(sx_ctx *cx, const sx_graph *graph, const sx_optimize_options *options,
                          const sx_stored_part *stored, uint32_t stored_count,
                          sx_fragments *fragments)
{
    finder f = {.cx = cx,
                .options = options,
                .stored = stored,
                .stored_count = stored_count,
                .found = fragments};
    SX_ASSERT(stored_count <= SX_FRAGMENTS_STORED_MAX);
    *fragments = (sx_fragments){0};
    SX_TRY(sx_optimize_rules(cx, options, f.enabled));
    SX_TRY(sx_pieces_find(cx, graph, &fragments->pieces));
    fragments->of = SX_NEW_ARRAY(cx, sx_fragment, (size_t)fragments->pieces.count + 1);
    f.done = SX_NEW_ARRAY(cx, bool, (size_t)fragments->pieces.count + 1);
    if (fragments->of == NULL || f.done == NULL) {
        return cx->error.code;
    }
    return find(&f, 0);
}
