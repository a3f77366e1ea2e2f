/* live.c - analysis of a part before code is made: loops, address patterns, constants, loads that become
 * memory operands, and the live interval of everything that wants a register. */
#include "core/x64/gen.h"

#include <stdlib.h>
#include <string.h>

static uint32_t position(uint32_t item)
{
    return 2 * item + 1;
}

/* ---- loops ---- */
static sx_code find_loops(sx_gen *g)
{
    const sx_part *part = g->part;
    g->item_loop = SX_NEW_ARRAY(g->cx, uint32_t, (size_t)part->item_count + 1);
    g->loop = SX_NEW_ARRAY(g->cx, sx_gen_loop, (size_t)part->item_count / 2 + 1);
    g->item_slot = SX_NEW_ARRAY(g->cx, uint32_t, (size_t)part->item_count + 1);
    if (g->item_loop == NULL || g->loop == NULL || g->item_slot == NULL) {
        return g->cx->error.code;
    }
    uint32_t open = SX_GEN_NONE;
    for (uint32_t i = 0; i < part->item_count; i++) {
        const sx_item *item = &part->item[i];
        if (item->kind == SX_ITEM_LOOP) {
            uint32_t depth = open == SX_GEN_NONE ? 1 : g->loop[open].depth + 1;
            if (open != SX_GEN_NONE) {
                g->loop[open].innermost = false;
            }
            g->loop[g->loop_count] = (sx_gen_loop){.start = i,
                                                   .parent = open,
                                                   .depth = depth,
                                                   .variable = item->dst,
                                                   .trip = item->trip,
                                                   .any_trip = item->any_trip,
                                                   .first_step = SX_GEN_NONE,
                                                   .innermost = true};
            open = g->loop_count++;
        }
        g->item_loop[i] = open;
        if (item->kind == SX_ITEM_END) {
            g->loop[open].end = i;
            open = g->loop[open].parent;
        }
    }
    SX_ASSERT(open == SX_GEN_NONE);
    for (uint32_t k = 0; k < part->comes_count; k++) {
        const sx_comes *comes = &part->comes[k];
        if (comes->kind == SX_COMES_TRIP) {
            const sx_item *item = &part->item[comes->at];
            SX_ASSERT(item->kind == SX_ITEM_LOOP && (item->trip > 1 || item->any_trip));
            g->loop[g->item_loop[comes->at]].trip_slot = 1 + comes->slot;
        } else if (comes->kind == SX_COMES_NUMBER) {
            SX_ASSERT(sx_lop_has_number(part->item[comes->at].op));
            g->item_slot[comes->at] = 1 + comes->slot;
        }
    }
    return SX_OK;
}

/* ---- constants and folded loads ---- */
static sx_code find_constant(sx_gen *g, const sx_item *item, uint32_t *index)
{
    SX_TRY(sx_spend(g->cx, g->constant_count / 16 + 1));
    bool set = item->op == SX_LOP_SET;
    sx_constant wanted = {set ? SX_CONSTANT_SET : SX_CONSTANT_IOTA,
                          set ? sx_item_bits(item) : item->imm};
    for (uint32_t i = 0; i < g->constant_count; i++) {
        if (g->constant[i].kind == wanted.kind && g->constant[i].bits == wanted.bits) {
            *index = i;
            return SX_OK;
        }
    }
    if (g->constant_count == SX_GEN_CONSTANTS_MAX) {
        return SX_FAIL(g->cx, SX_LIMIT, "kernel %s: part %u: more than %u constants",
                       g->kernel->name, g->part_index, SX_GEN_CONSTANTS_MAX);
    }
    void *constants = g->constant;
    SX_TRY(sx_grow(g->cx, &constants, &g->constant_capacity, g->constant_count + 1,
                   sizeof(sx_constant)));
    g->constant = constants;
    g->constant[g->constant_count] = wanted;
    *index = g->constant_count++;
    return SX_OK;
}

/* Vector registers of an item that are read, as a list; masks and integers are left out. */
static uint32_t vector_reads(const sx_item *item, uint32_t reads[3])
{
    uint32_t count = 0;
    uint32_t operand = 0;
    for (const char *p = sx_lop_info_of(item->op)->operands; *p != '\0'; p++) {
        if (*p == 'v') {
            reads[count++] = item->src[operand];
        }
        operand += *p == 'v' || *p == 'm' || *p == 's';
    }
    return count;
}

/* May the vector operand `which` of this instruction be a memory operand? */
static bool takes_memory(const sx_item *item, uint32_t which)
{
    switch (item->op) {
    case SX_LOP_ADD:
    case SX_LOP_MUL:
    case SX_LOP_AND:
    case SX_LOP_OR:
    case SX_LOP_XOR:
    case SX_LOP_IADD:
    case SX_LOP_IMUL:
    case SX_LOP_FMA:
    case SX_LOP_FNMA: return true;
    case SX_LOP_SUB:
    case SX_LOP_DIV:
    case SX_LOP_MAX:
    case SX_LOP_MIN:
    case SX_LOP_ISUB:
    case SX_LOP_SHLV:
    case SX_LOP_SHRV:
    case SX_LOP_SARV: return which == 1;
    case SX_LOP_CMP: return which == 1;
    case SX_LOP_SQRT:
    case SX_LOP_I2F:
    case SX_LOP_F2I: return true;
    default: return false;
    }
}

typedef struct {
    uint32_t *defs, *uses; /* by vector register */
    uint32_t *reader;      /* the last item that reads it */
    uint32_t *operand;     /* and as which vector operand */
} counts;

static void count_uses(const sx_gen *g, counts *c)
{
    for (uint32_t i = 0; i < g->part->item_count; i++) {
        const sx_item *item = &g->part->item[i];
        if (item->kind != SX_ITEM_OP) {
            continue;
        }
        uint32_t reads[3];
        uint32_t n = vector_reads(item, reads);
        for (uint32_t k = 0; k < n; k++) {
            c->uses[reads[k]]++;
            c->reader[reads[k]] = i;
            c->operand[reads[k]] = k;
        }
        if (sx_lop_info_of(item->op)->result == 'v') {
            c->defs[item->dst]++;
        }
    }
}

/* Nothing between the load and its reader may change memory or the index register, and both are in one block. */
static bool may_move(const sx_gen *g, uint32_t from, uint32_t to)
{
    uint32_t index_reg = g->part->addr[g->part->item[from].addr].index_reg;
    if (to <= from || to - from > 64) {
        return false;
    }
    for (uint32_t i = from + 1; i < to; i++) {
        const sx_item *item = &g->part->item[i];
        if (item->kind != SX_ITEM_OP || sx_lop_info_of(item->op)->result == '-') {
            return false;
        }
        if (index_reg != SX_NO_REG && sx_lop_info_of(item->op)->result == 's' &&
            item->dst == index_reg) {
            return false;
        }
    }
    return true;
}

static sx_code find_constants_and_folds(sx_gen *g)
{
    size_t n = (size_t)g->part->vector_count + 1;
    counts c = {SX_NEW_ARRAY(g->cx, uint32_t, n), SX_NEW_ARRAY(g->cx, uint32_t, n),
                SX_NEW_ARRAY(g->cx, uint32_t, n), SX_NEW_ARRAY(g->cx, uint32_t, n)};
    g->constant_of = SX_NEW_ARRAY(g->cx, uint32_t, n);
    g->fold_of = SX_NEW_ARRAY(g->cx, uint32_t, n);
    uint32_t *folded = SX_NEW_ARRAY(g->cx, uint32_t, (size_t)g->part->item_count + 1);
    if (g->cx->error.code != SX_OK) {
        return g->cx->error.code;
    }
    count_uses(g, &c);
    memset(g->constant_of, 0xFF, n * sizeof(uint32_t));
    memset(g->fold_of, 0xFF, n * sizeof(uint32_t));
    for (uint32_t i = 0; i < g->part->item_count; i++) {
        const sx_item *item = &g->part->item[i];
        if (item->kind != SX_ITEM_OP) {
            continue;
        }
        bool load =
            item->mem == SX_MEM_LANE && ((item->op == SX_LOP_LOAD && item->imm == g->lanes) ||
                                         (item->op == SX_LOP_LOADB && g->zmm));
        if ((item->op == SX_LOP_SET || item->op == SX_LOP_IOTA) && c.defs[item->dst] == 1) {
            SX_TRY(find_constant(g, item, &g->constant_of[item->dst]));
        } else if (load && c.defs[item->dst] == 1 && c.uses[item->dst] == 1) {
            uint32_t reader = c.reader[item->dst];
            if (folded[reader] == 0 && may_move(g, i, reader) &&
                takes_memory(&g->part->item[reader], c.operand[item->dst])) {
                g->fold_of[item->dst] = i;
                folded[reader] = 1; /* one memory operand per instruction */
            }
        }
    }
    return SX_OK;
}

/* ---- streams ---- */
static sx_code find_stream(sx_gen *g, const sx_stream *wanted, uint32_t *index)
{
    SX_TRY(sx_spend(g->cx, g->stream_count / 16 + 1));
    for (uint32_t i = 0; i < g->stream_count; i++) {
        if (memcmp(&g->stream[i], wanted, sizeof(*wanted)) == 0) {
            *index = i;
            return SX_OK;
        }
    }
    if (g->stream_count == SX_GEN_STREAMS_MAX) {
        return SX_FAIL(g->cx, SX_LIMIT, "kernel %s: part %u: more than %u address patterns",
                       g->kernel->name, g->part_index, SX_GEN_STREAMS_MAX);
    }
    void *streams = g->stream;
    SX_TRY(sx_grow(g->cx, &streams, &g->stream_capacity, g->stream_count + 1, sizeof(sx_stream)));
    g->stream = streams;
    g->stream[g->stream_count] = *wanted;
    *index = g->stream_count++;
    return SX_OK;
}

/* The multiple of 2^30 that brings an offset into the range of a displacement. */
static int64_t far_part(int64_t offset)
{
    int64_t half = INT64_C(1) << 29;
    return (offset + half) & ~(2 * half - 1);
}

/* Which numbers of an address come at run time. */
static void find_slots(const sx_gen *g, uint32_t addr, sx_stream *stream)
{
    for (uint32_t k = 0; k < g->part->comes_count; k++) {
        const sx_comes *comes = &g->part->comes[k];
        bool item = comes->kind == SX_COMES_TRIP || comes->kind == SX_COMES_NUMBER;
        if (item || comes->at != addr) {
            continue;
        }
        SX_ASSERT(comes->slot < g->part->slot_count && comes->variable < SX_LOOP_VARS_MAX);
        if (comes->kind == SX_COMES_OFFSET) {
            stream->base_slot = 1 + comes->slot;
        } else {
            SX_ASSERT(stream->coef[comes->variable] != 0);
            stream->coef_slot[comes->variable] = 1 + comes->slot;
        }
    }
}

static sx_code find_streams(sx_gen *g)
{
    g->item_stream = SX_NEW_ARRAY(g->cx, uint32_t, (size_t)g->part->item_count + 1);
    if (g->item_stream == NULL) {
        return g->cx->error.code;
    }
    for (uint32_t i = 0; i < g->part->item_count; i++) {
        const sx_item *item = &g->part->item[i];
        g->item_stream[i] = SX_GEN_NONE;
        if (item->kind != SX_ITEM_OP) {
            continue;
        }
        sx_stream wanted;
        memset(&wanted, 0, sizeof(wanted));
        if (item->op == SX_LOP_SVAR) {
            wanted.buffer = SX_STREAM_VALUE;
            wanted.coef[item->imm] = 1;
        } else if (sx_lop_info_of(item->op)->operands[0] == 'A') {
            const sx_addr *addr = &g->part->addr[item->addr];
            wanted.buffer = addr->buffer;
            wanted.base = far_part(addr->offset);
            memcpy(wanted.coef, addr->coef, sizeof(wanted.coef));
            SX_TRY(sx_spend(g->cx, g->part->comes_count / 16));
            find_slots(g, item->addr, &wanted);
        } else {
            continue;
        }
        SX_TRY(find_stream(g, &wanted, &g->item_stream[i]));
    }
    return SX_OK;
}

/* Every loop around `item` whose variable moves the stream advances it. */
static sx_code add_steps(sx_gen *g, uint32_t stream, uint32_t item)
{
    for (uint32_t l = g->item_loop[item]; l != SX_GEN_NONE; l = g->loop[l].parent) {
        if (g->stream[stream].coef[g->loop[l].variable] == 0 || !sx_gen_is_loop(&g->loop[l])) {
            continue;
        }
        uint32_t s = g->loop[l].first_step;
        while (s != SX_GEN_NONE && g->step[s].stream != stream) {
            s = g->step[s].next;
        }
        if (s != SX_GEN_NONE) {
            continue;
        }
        void *steps = g->step;
        SX_TRY(sx_grow(g->cx, &steps, &g->step_capacity, g->step_count + 1, sizeof(sx_step)));
        g->step = steps;
        g->step[g->step_count] = (sx_step){stream, g->loop[l].first_step};
        g->loop[l].first_step = g->step_count++;
    }
    return SX_OK;
}

/* ---- live intervals ---- */
static uint64_t use_weight(const sx_gen *g, uint32_t item)
{
    uint32_t l = g->item_loop[item];
    uint32_t depth = l == SX_GEN_NONE ? 0 : g->loop[l].depth;
    return UINT64_C(1) << (3 * (depth < 12 ? depth : 12));
}

static void stretch(sx_live *live, uint32_t at)
{
    live->end = live->end < at ? at : live->end;
}

static void note_write(const sx_gen *g, sx_live *live, uint32_t item)
{
    if (live->start == SX_GEN_NONE) {
        live->start = position(item);
    }
    stretch(live, position(item));
    live->weight += use_weight(g, item);
    live->last = item;
}

/* A value that comes from before a loop must survive all of its iterations. */
static void note_read(const sx_gen *g, sx_live *live, uint32_t item)
{
    for (uint32_t l = g->item_loop[item]; l != SX_GEN_NONE && live->last < g->loop[l].start;
         l = g->loop[l].parent) {
        stretch(live, position(g->loop[l].end));
    }
    stretch(live, position(item));
    live->weight += use_weight(g, item);
    live->last = item;
}

/* Set up once before the outermost loop around `item`, alive to its end. */
static void note_hoisted(const sx_gen *g, sx_live *live, uint32_t item)
{
    uint32_t start = 2 * item;
    uint32_t end = position(item);
    for (uint32_t l = g->item_loop[item]; l != SX_GEN_NONE; l = g->loop[l].parent) {
        start = 2 * g->loop[l].start;
        end = position(g->loop[l].end);
    }
    live->start = start < live->start ? start : live->start;
    stretch(live, end);
    live->weight += use_weight(g, item);
}

static sx_code init_set(sx_gen *g, sx_live_set *set, uint32_t count, uint32_t allowed)
{
    set->live = SX_NEW_ARRAY(g->cx, sx_live, (size_t)count + 1);
    if (set->live == NULL) {
        return g->cx->error.code;
    }
    set->count = count;
    set->allowed = allowed;
    for (uint32_t i = 0; i < count; i++) {
        set->live[i] = (sx_live){.start = SX_GEN_NONE,
                                 .hint = {SX_GEN_NONE, SX_GEN_NONE, SX_GEN_NONE},
                                 .want = SX_GEN_NONE};
    }
    return SX_OK;
}

static sx_code init_sets(sx_gen *g)
{
    bool wide = g->zmm;
    g->first_mask = g->part->vector_count;
    g->first_constant = g->first_mask + (wide ? 0 : g->part->mask_count);
    SX_TRY(
        init_set(g, &g->vector, g->first_constant + g->constant_count, wide ? UINT32_MAX : 0xFFFF));
    g->first_tail = g->part->mask_count;
    SX_TRY(init_set(g, &g->mask, wide ? g->first_tail + 17 : 0, 0xFE));
    g->first_stream = SX_ARG_COUNT;
    g->first_counter = g->first_stream + g->stream_count;
    g->first_scalar = g->first_counter + g->loop_count;
    uint32_t allowed = 0xFFFF & ~(1U << SX_RSP | 1U << SX_RAX_SCRATCH | 1U << SX_RCX_SCRATCH);
    SX_TRY(init_set(g, &g->general, g->first_scalar + g->part->scalar_count, allowed));
    for (uint32_t i = 0; i < g->vector.count; i++) {
        g->vector.live[i].spillable = g->spills || i >= g->first_constant;
    }
    for (uint32_t i = 0; i < g->mask.count; i++) {
        g->mask.live[i].spillable = g->spills || i >= g->first_tail;
    }
    static const uint32_t argument[SX_ARG_COUNT] = {SX_RDI, SX_RSI, SX_RDX};
    for (uint32_t i = 0; i < g->general.count; i++) {
        g->general.live[i].spillable = true;
        g->general.live[i].want = i < SX_ARG_COUNT ? argument[i] : SX_GEN_NONE;
    }
    return SX_OK;
}

static sx_code note_address(sx_gen *g, uint32_t load, uint32_t at)
{
    uint32_t stream = g->item_stream[load];
    note_hoisted(g, &g->general.live[g->first_stream + stream], at);
    SX_TRY(add_steps(g, stream, at));
    const sx_item *item = &g->part->item[load];
    if (item->op != SX_LOP_SVAR && g->part->addr[item->addr].index_reg != SX_NO_REG) {
        uint32_t reg = g->part->addr[item->addr].index_reg;
        note_read(g, &g->general.live[g->first_scalar + reg], at);
    }
    return SX_OK;
}

static sx_code note_vector_read(sx_gen *g, uint32_t reg, uint32_t at)
{
    if (g->constant_of[reg] != SX_GEN_NONE) {
        note_hoisted(g, &g->vector.live[g->first_constant + g->constant_of[reg]], at);
        return SX_OK;
    }
    if (g->fold_of[reg] != SX_GEN_NONE) {
        return note_address(g, g->fold_of[reg], at);
    }
    note_read(g, &g->vector.live[reg], at);
    return SX_OK;
}

static sx_live *mask_live(const sx_gen *g, uint32_t reg)
{
    return g->zmm ? &g->mask.live[reg] : &g->vector.live[g->first_mask + reg];
}

/* Whole vectors, and of whole lanes 1, 2, 4 and 8, have plain moves. */
bool sx_gen_needs_tail(const sx_gen *g, const sx_item *item)
{
    uint32_t n = item->imm;
    bool plain = n == g->lanes || (item->mem == SX_MEM_LANE && (n & (n - 1)) == 0);
    return g->zmm && (item->op == SX_LOP_LOAD || item->op == SX_LOP_STORE) && !plain;
}

static sx_code note_reads(sx_gen *g, const sx_item *item, uint32_t i)
{
    uint32_t operand = 0;
    for (const char *p = sx_lop_info_of(item->op)->operands; *p != '\0'; p++) {
        switch (*p) {
        case 'v': SX_TRY(note_vector_read(g, item->src[operand++], i)); break;
        case 'm': note_read(g, mask_live(g, item->src[operand++]), i); break;
        case 's': note_read(g, &g->general.live[g->first_scalar + item->src[operand++]], i); break;
        case 'A': SX_TRY(note_address(g, i, i)); break;
        default: break;
        }
    }
    if (item->op == SX_LOP_SVAR) {
        SX_TRY(note_address(g, i, i));
    }
    if (sx_gen_needs_tail(g, item)) {
        note_hoisted(g, &g->mask.live[g->first_tail + item->imm], i);
    }
    return SX_OK;
}

static void note_result(sx_gen *g, const sx_item *item, uint32_t i)
{
    switch (sx_lop_info_of(item->op)->result) {
    case 'v': {
        sx_live *live = &g->vector.live[item->dst];
        bool fresh = live->start == SX_GEN_NONE;
        note_write(g, live, i);
        if (fresh && (item->op == SX_LOP_FMA || item->op == SX_LOP_FNMA)) {
            live->hint[0] = item->src[2];
            live->hint[1] = item->src[0];
            live->hint[2] = item->src[1];
        } else if (fresh && item->op == SX_LOP_MOV) {
            live->hint[0] = item->src[0];
        }
        break;
    }
    case 'm': note_write(g, mask_live(g, item->dst), i); break;
    case 's': note_write(g, &g->general.live[g->first_scalar + item->dst], i); break;
    default: break;
    }
}

static bool emits_nothing(const sx_gen *g, const sx_item *item, uint32_t i)
{
    if (item->kind != SX_ITEM_OP || sx_lop_info_of(item->op)->result != 'v') {
        return false;
    }
    return g->constant_of[item->dst] != SX_GEN_NONE || g->fold_of[item->dst] == i;
}

/* The index is needed at the item, and so to the end of the loops around it. */
static void note_index(const sx_gen *g, uint32_t loop, uint32_t item)
{
    sx_live *live = &g->general.live[SX_ARG_INDEX];
    live->start = 0;
    live->weight += use_weight(g, item);
    stretch(live, position(item) + 1);
    for (uint32_t k = loop; k != SX_GEN_NONE; k = g->loop[k].parent) {
        stretch(live, position(g->loop[k].end) + 1);
    }
}

/* The index is needed to the end of a loop whose numbers come with it, and so to the end of those around it. */
static void note_slots(const sx_gen *g, uint32_t loop)
{
    const sx_gen_loop *l = &g->loop[loop];
    bool comes = l->trip_slot != 0;
    for (uint32_t s = l->first_step; s != SX_GEN_NONE; s = g->step[s].next) {
        comes = comes || g->stream[g->step[s].stream].coef_slot[l->variable] != 0;
    }
    if (comes) {
        note_index(g, loop, l->end);
    }
}

static sx_code find_intervals(sx_gen *g)
{
    for (uint32_t i = 0; i < g->part->item_count; i++) {
        const sx_item *item = &g->part->item[i];
        if (item->kind != SX_ITEM_OP || emits_nothing(g, item, i)) {
            continue;
        }
        SX_TRY(note_reads(g, item, i));
        note_result(g, item, i);
    }
    for (uint32_t i = 0; i < g->first_constant && g->spills; i++) {
        g->vector.live[i].weight *= 4; /* constants cost nothing in memory: they go first */
    }
    for (uint32_t l = 0; l < g->loop_count; l++) {
        if (sx_gen_is_loop(&g->loop[l])) {
            sx_live *live = &g->general.live[g->first_counter + l];
            live->start = 2 * g->loop[l].start;
            live->end = position(g->loop[l].end);
            live->weight = 2 * use_weight(g, g->loop[l].start);
        }
    }
    /* The arguments are needed as long as streams are set up from them. */
    for (uint32_t s = 0; s < g->stream_count; s++) {
        const sx_stream *stream = &g->stream[s];
        uint32_t at = g->general.live[g->first_stream + s].start;
        if (at == SX_GEN_NONE) {
            continue;
        }
        bool value = stream->buffer == SX_STREAM_VALUE;
        bool work = !value && g->kernel->buffer[stream->buffer].role == SX_BUFFER_WORKSPACE;
        bool grid = stream->coef[0] != 0 || stream->coef[1] != 0 || stream->coef[2] != 0 ||
                    stream->base_slot != 0;
        bool needs[SX_ARG_COUNT] = {!value && !work, grid, work};
        for (uint32_t a = 0; a < SX_ARG_COUNT; a++) {
            if (needs[a]) {
                g->general.live[a].start = 0;
                stretch(&g->general.live[a], at + 1);
                g->general.live[a].weight++;
            }
        }
    }
    for (uint32_t l = 0; l < g->loop_count; l++) {
        note_slots(g, l);
    }
    for (uint32_t i = 0; i < g->part->item_count; i++) {
        if (g->item_slot[i] != 0) {
            note_index(g, g->item_loop[i], i);
        }
    }
    return SX_OK;
}

static int compare_setups(const void *a, const void *b)
{
    const sx_setup *x = a;
    const sx_setup *y = b;
    if (x->position != y->position) {
        return x->position < y->position ? -1 : 1;
    }
    if (x->kind != y->kind) {
        return x->kind < y->kind ? -1 : 1;
    }
    return x->index < y->index ? -1 : x->index > y->index;
}

static void list_setups(sx_gen *g, const sx_live_set *set, uint32_t first, uint32_t count,
                        sx_setup_kind kind)
{
    for (uint32_t i = 0; i < count; i++) {
        if (set->live[first + i].start != SX_GEN_NONE) {
            g->setup[g->setup_count++] = (sx_setup){set->live[first + i].start, kind, i};
        }
    }
}

sx_code sx_gen_analyse(sx_gen *g)
{
    SX_TRY(sx_spend(g->cx, (uint64_t)g->part->item_count * 16 + 64));
    SX_TRY(find_loops(g));
    SX_TRY(find_constants_and_folds(g));
    SX_TRY(find_streams(g));
    SX_TRY(init_sets(g));
    SX_TRY(find_intervals(g));
    g->setup = SX_NEW_ARRAY(g->cx, sx_setup, (size_t)g->constant_count + g->stream_count + 17);
    if (g->setup == NULL) {
        return g->cx->error.code;
    }
    list_setups(g, &g->vector, g->first_constant, g->constant_count, SX_SETUP_CONSTANT);
    list_setups(g, &g->mask, g->first_tail, g->zmm ? 17 : 0, SX_SETUP_TAIL);
    list_setups(g, &g->general, g->first_stream, g->stream_count, SX_SETUP_STREAM);
    qsort(g->setup, g->setup_count, sizeof(*g->setup), compare_setups);
    return SX_OK;
}
