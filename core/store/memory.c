#include "core/store/memory.h"

#include <string.h>

static size_t padding(size_t at)
{
    return (SX_MEMORY_ALIGN - at % SX_MEMORY_ALIGN) % SX_MEMORY_ALIGN;
}

/* The next `size` bytes, and the zeros behind them; false where there are fewer. */
static bool take(sx_span *rest, size_t size, sx_span *bytes)
{
    if (size > rest->len) {
        return false;
    }
    size_t all = size + padding(size);
    *bytes = (sx_span){rest->ptr, size};
    all = all < rest->len ? all : rest->len;
    *rest = (sx_span){rest->ptr + all, rest->len - all};
    return true;
}

static bool take_part(sx_span *rest, sx_memory_part *part)
{
    sx_span head, snapshot;
    if (rest->len < sizeof(part->record)) {
        return false;
    }
    memcpy(&part->record, rest->ptr, sizeof(part->record));
    if (part->record.size > rest->len ||
        !take(rest,
              sizeof(part->record) + (size_t)part->record.node_count * sizeof(uint32_t) +
                  (size_t)part->record.run_count * sizeof(sx_memory_run),
              &head) ||
        !take(rest, (size_t)part->record.size, &snapshot)) {
        return false;
    }
    part->node = (const uint32_t *)(const void *)(head.ptr + sizeof(part->record));
    part->run = (const sx_memory_run *)(const void *)(part->node + part->record.node_count);
    part->snapshot = snapshot;
    return true;
}

sx_code sx_memory_open(sx_ctx *cx, sx_span before, const sx_key *rules, sx_buf *after,
                       sx_memory *memory)
{
    SX_ASSERT(after->len % SX_MEMORY_ALIGN == 0 && (before.ptr != NULL || before.len == 0));
    void *array = NULL;
    uint32_t capacity = 0;
    *memory = (sx_memory){.rules = *rules, .after = after};
    if ((uintptr_t)before.ptr % SX_MEMORY_ALIGN != 0) {
        return SX_FAIL(cx, SX_CORRUPT, "memory of a search: not aligned to %u", SX_MEMORY_ALIGN);
    }
    while (before.len > 0) {
        sx_memory_part part;
        if (memory->part_count >= SX_MEMORY_PARTS_MAX || !take_part(&before, &part)) {
            return SX_FAIL(cx, SX_CORRUPT, "memory of a search: record %u: cut short, or over %u",
                           memory->part_count, SX_MEMORY_PARTS_MAX);
        }
        SX_TRY(sx_grow(cx, &array, &capacity, memory->part_count + 1, sizeof(part)));
        ((sx_memory_part *)array)[memory->part_count++] = part;
        memory->part = array;
    }
    return SX_OK;
}

/* Each node of the part where it is said to be, as it was inserted. */
static sx_code check_nodes(sx_ctx *cx, const sx_memory_graph *g)
{
    const sx_eg *eg = &g->graph.t.eg;
    for (uint32_t i = 0; i < g->program->node_count; i++) {
        const sx_node *node = &g->program->node[i];
        uint32_t n = g->node[i];
        bool same = n < eg->node_count && eg->node[n].op == node->op &&
                    eg->node[n].attr == node->attr.i && eg->node[n].arity == node->input_count;
        for (uint32_t k = 0; same && k < node->input_count; k++) {
            sx_node_id input = sx_graph_input(g->program, node, k);
            same = sx_eg_find(eg, g->node[input.i]) == sx_eg_child(eg, n, k);
        }
        if (!same) {
            return SX_FAIL(cx, SX_CORRUPT,
                           "memory of a search: node %u of the part is not e-node %u", i, n);
        }
    }
    return SX_OK;
}

static sx_code check_runs(sx_ctx *cx, const sx_memory_graph *g)
{
    for (uint32_t i = 0; i < g->run_count; i++) {
        if (g->run_count > SX_MEMORY_RUNS_MAX || g->run[i].first > g->run[i].end ||
            g->run[i].end > g->graph.t.eg.node_count) {
            return SX_FAIL(cx, SX_CORRUPT,
                           "memory of a search: kernels from %u to %u of %u e-nodes",
                           g->run[i].first, g->run[i].end, g->graph.t.eg.node_count);
        }
    }
    return SX_OK;
}

static const sx_memory_part *find_part(const sx_memory *memory, const sx_key *key)
{
    for (uint32_t i = 0; i < memory->part_count; i++) {
        if (sx_key_equal(&memory->part[i].record.program, key)) {
            return &memory->part[i];
        }
    }
    return NULL;
}

sx_code sx_memory_find(sx_ctx *cx, const sx_memory *memory, const sx_graph *program,
                       sx_memory_graph **found)
{
    sx_key key;
    *found = NULL;
    SX_TRY(sx_graph_key(cx, program, &key));
    const sx_memory_part *part = find_part(memory, &key);
    if (part == NULL) {
        return SX_OK;
    }
    sx_memory_graph *g = SX_NEW(cx, sx_memory_graph);
    uint32_t *node = SX_NEW_ARRAY(cx, uint32_t, (size_t)program->node_count + 1);
    if (g == NULL || node == NULL) {
        return cx->error.code;
    }
    if (part->record.node_count != program->node_count) {
        return SX_FAIL(cx, SX_CORRUPT, "memory of a search: of %u nodes, the part has %u",
                       part->record.node_count, program->node_count);
    }
    memcpy(node, part->node, program->node_count * sizeof(uint32_t));
    g->node = node;
    SX_TRY(sx_library_load(cx, part->snapshot, &memory->rules, SX_LIBRARY_ALL, &g->graph));
    if (g->graph.interface->symbol_count != program->symbol_count) {
        return SX_FAIL(cx, SX_CORRUPT, "memory of a search: %u symbols, the part has %u",
                       g->graph.interface->symbol_count, program->symbol_count);
    }
    SX_TRY(sx_graph_adopt(cx, program, g->graph.interface, &g->program));
    SX_TRY(check_nodes(cx, g));
    g->run = part->run;
    g->run_count = part->record.run_count;
    g->node_count = g->graph.t.eg.node_count;
    SX_TRY(check_runs(cx, g));
    *found = g;
    return SX_OK;
}

static sx_code put_part(sx_ctx *cx, sx_memory *memory, const sx_memory_record *record,
                        const sx_memory_source *source, sx_span snapshot)
{
    sx_buf *after = memory->after;
    sx_buf_put(after, record, sizeof(*record));
    sx_buf_put(after, source->node, record->node_count * sizeof(uint32_t));
    sx_buf_put(after, source->run, record->run_count * sizeof(sx_memory_run));
    sx_buf_pad(after, SX_MEMORY_ALIGN);
    sx_buf_put_span(after, snapshot);
    sx_buf_pad(after, SX_MEMORY_ALIGN);
    if (after->code == SX_LIMIT) {
        memory->full = true;
        sx_buf_clear(after);
        return SX_OK;
    }
    return sx_buf_check(cx, after, "memory of a search");
}

sx_code sx_memory_put(sx_ctx *cx, sx_memory *memory, const sx_memory_source *source)
{
    SX_ASSERT(memory->after->len <= memory->after->limit && source->program->node_count > 0);
    sx_memory_record record = {.node_count = source->program->node_count,
                               .run_count = source->run_count};
    sx_library_info info = {0};
    sx_buf snapshot;
    SX_TRY(sx_graph_key(cx, source->program, &record.program));
    info.program = record.program;
    if (memory->full) {
        return SX_OK;
    }
    sx_buf_init(&snapshot, memory->after->limit - memory->after->len);
    sx_code code = sx_library_store(cx, source->t, source->set, source->program, source->node,
                                    source->choice, source->stop, &info, &memory->rules, &snapshot);
    record.size = snapshot.len;
    if (code == SX_LIMIT) {
        sx_ctx_reset_error(cx);
        memory->full = true;
        sx_buf_clear(memory->after);
        code = SX_OK;
    } else if (code == SX_OK) {
        code = put_part(cx, memory, &record, source, sx_buf_span(&snapshot));
    }
    sx_buf_fini(&snapshot);
    return code;
}
