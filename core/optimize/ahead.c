#include "core/optimize/ahead.h"

#include "core/ir/extent.h"

sx_code sx_ahead_detach(sx_ctx *cx, const sx_graph *program, sx_graph **out)
{
    sx_graph *alone;
    SX_ASSERT(program->output_count > 0);
    SX_TRY(sx_graph_make(cx, program->name, NULL, &alone));
    SX_TRY(sx_graph_copy_symbols(cx, program->symbol, program->symbol_count, alone));
    SX_TRY(sx_graph_adopt(cx, program, alone, out));
    return sx_sharding_copy(cx, program, NULL, *out);
}

static sx_code work(const sx_ahead *ahead, sx_ahead_part *part)
{
    sx_graph *alone;
    part->report = SX_NEW(&part->cx, sx_optimize_report);
    if (part->report == NULL) {
        return part->cx.error.code;
    }
    SX_TRY(sx_ahead_detach(&part->cx, part->program, &alone));
    return sx_optimize_whole(&part->cx, alone, ahead->device, &part->options, &part->better,
                             part->report);
}

static void run_task(void *of, uint32_t index)
{
    const sx_ahead *ahead = of;
    sx_ahead_part *part = &ahead->part[ahead->order[index]];
    part->options.snapshot = part->keeps ? &part->snapshot : NULL;
    part->code = work(ahead, part);
}

/* How long a part takes, in a unit of no meaning. */
static double length_of(const sx_ahead_part *part)
{
    return part->options.effort * part->program->node_count;
}

static void order_parts(sx_ahead *ahead)
{
    for (uint32_t i = 0; i < ahead->count; i++) {
        uint32_t at = i;
        for (; at > 0; at--) {
            uint32_t before = ahead->order[at - 1];
            if (length_of(&ahead->part[before]) >= length_of(&ahead->part[i])) {
                break;
            }
            ahead->order[at] = before;
        }
        ahead->order[at] = i;
    }
}

void sx_ahead_init(sx_ahead *ahead, const sx_ctx *cx, const sx_device *device)
{
    SX_ASSERT(device != NULL);
    *ahead = (sx_ahead){.device = device};
    sx_ctx_init_task(&ahead->cx, cx);
}

sx_code sx_ahead_add(sx_ahead *ahead, sx_ahead_part **part)
{
    SX_ASSERT(ahead->order == NULL); /* nothing has run */
    SX_TRY(sx_grow(&ahead->cx, (void **)&ahead->part, &ahead->capacity, ahead->count + 1,
                   sizeof(*ahead->part)));
    *part = &ahead->part[ahead->count++];
    (*part)->code = SX_INTERNAL; /* until it has run */
    return SX_OK;
}

void sx_ahead_run(sx_ahead *ahead, const sx_ctx *cx)
{
    SX_ASSERT(cx->team != NULL);
    ahead->order = SX_NEW_ARRAY(&ahead->cx, uint32_t, (size_t)ahead->count + 1);
    if (ahead->order == NULL) {
        return;
    }
    order_parts(ahead);
    for (uint32_t i = 0; i < ahead->count; i++) {
        sx_ahead_part *part = &ahead->part[i];
        sx_ctx_init_task(&part->cx, cx);
        part->fuel = part->cx.fuel;
        sx_buf_init(&part->snapshot, part->keeps ? part->options.keeper->bytes_max : 0);
    }
    cx->team->run(cx->team->self, run_task, ahead, ahead->count);
}

/* Would less have done as well? The limit was never met where more is left than was used. */
static bool fits(uint64_t used, uint64_t given, uint64_t left)
{
    return left == given || used < left;
}

static bool holds(const sx_ctx *cx, const sx_ahead_part *part, const sx_eg_limits *left)
{
    const sx_eg_limits *given = &part->options.limits;
    const sx_optimize_report *report = part->report;
    size_t bytes = sx_arena_peak(&part->cx.arena);
    uint64_t fuel = part->fuel - part->cx.fuel;
    return part->code == SX_OK && report->stop != SX_STOP_CANCELLED &&
           fits(report->all_nodes, given->nodes, left->nodes) &&
           fits(report->fuel, given->fuel, left->fuel) && fits(bytes, given->bytes, left->bytes) &&
           fuel < cx->fuel && bytes < cx->arena.limit_bytes - cx->arena.used_bytes;
}

const sx_ahead_part *sx_ahead_take(sx_ctx *cx, sx_ahead *ahead, uint32_t piece,
                                   const sx_eg_limits *left)
{
    SX_ASSERT(ahead->count <= ahead->capacity);
    for (uint32_t i = 0; i < ahead->count; i++) {
        sx_ahead_part *part = &ahead->part[i];
        if (part->piece == piece && holds(cx, part, left)) {
            cx->fuel -= part->fuel - part->cx.fuel;
            sx_arena_adopt(&cx->arena, &part->cx.arena);
            return part;
        }
    }
    return NULL;
}

void sx_ahead_fini(sx_ahead *ahead)
{
    for (uint32_t i = 0; i < ahead->count; i++) {
        sx_buf_fini(&ahead->part[i].snapshot);
        sx_ctx_fini(&ahead->part[i].cx);
    }
    ahead->count = 0;
    sx_ctx_fini(&ahead->cx);
}
