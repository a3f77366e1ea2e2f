/* walk.c - a part as terms and store records.
 *
 * Loops are walked once, with their variable free. What a register carries from one iteration to the next is a
 * hole in the terms of the body; behind the loop it is a run of the step that fills the hole. The stores of
 * the body get the variable as one more dimension: right if no iteration sees or overwrites what another one
 * stores, which is checked when the loop closes (stores against stores, and reads that took a store from
 * before the loop against the stores of the body). Where that fails the loop carries memory: the part is
 * walked again with states for what is carried (walk_state.c), or with that loop unrolled. */
#include "core/judge/walk.h"

#include <string.h>

static void walk_items(sx_walk *w, uint32_t first, uint32_t end);

/* What the table of instructions says about registers, once for all walks. */
static void read_table(sx_walk *w)
{
    for (uint32_t op = 0; op < SX_LOP_COUNT; op++) {
        const sx_lop_info *info = sx_lop_info_of((sx_lop)op);
        sx_walk_op *o = &w->op[op];
        *o = (sx_walk_op){.result = info->result, .memory = info->operands[0] == 'A'};
        for (const char *p = info->operands; *p != '\0'; p++) {
            if (*p == 'v' || *p == 'm' || *p == 's') {
                SX_ASSERT(o->reads < SX_COUNT(o->class));
                o->class[o->reads++] = *p == 'v' ? 0 : *p == 'm' ? 1 : 2;
            }
        }
    }
}

/* Which registers an instruction reads: class (0 vector, 1 mask, 2 integer) << 28 | number. */
static uint32_t reads_of(const sx_walk *w, const sx_item *item, uint32_t reg[4])
{
    const sx_walk_op *o = &w->op[item->op];
    uint32_t n = o->reads;
    for (uint32_t k = 0; k < n; k++) {
        reg[k] = (uint32_t)o->class[k] << 28 | item->src[k];
    }
    if (o->memory && w->part->addr[item->addr].index_reg != SX_NO_REG) {
        reg[n++] = 2u << 28 | w->part->addr[item->addr].index_reg;
    }
    return n;
}

static void carry(sx_walk *w, uint32_t reg)
{
    void *array = w->carried;
    if (sx_grow(w->g->cx, &array, &w->carried_capacity, w->carried_count + 1, sizeof(sx_carried)) !=
        SX_OK) {
        (void)sx_refuse(w->g, "out of memory");
        return;
    }
    w->carried = array;
    w->carried[w->carried_count++] = (sx_carried){.reg = reg};
}

/* What find_carried knows of the loops that are open, and of the registers. */
typedef struct {
    uint32_t start[SX_LOOP_VARS_MAX]; /* items of the open loops, outermost first */
    uint32_t first[SX_LOOP_VARS_MAX]; /* of their reads in `read` */
    uint32_t open;
    uint32_t count; /* of `read` */
} carried_scan;

static bool put_read(sx_walk *w, carried_scan *scan, uint32_t loop, uint32_t reg)
{
    void *array = w->read;
    if (!sx_walk_room(w, &array, &w->read_capacity, scan->count + 1, sizeof(sx_loop_read))) {
        return false;
    }
    w->read = array;
    w->read[scan->count++] = (sx_loop_read){loop, reg};
    return true;
}

/* A register that is read at item `at`: not yet written in the innermost loops, so it comes from before them. Where
 * it was read before in a loop, that loop and those around it know. */
static void scan_read(sx_walk *w, carried_scan *scan, uint32_t at, uint32_t reg)
{
    sx_reg_scan *seen = &w->seen[reg >> 28][reg & 0xFFFFFFFu];
    for (uint32_t k = scan->open; k-- > 0;) {
        if (seen->written > scan->start[k] || seen->read > scan->start[k] ||
            !put_read(w, scan, k, reg)) {
            break;
        }
    }
    seen->read = at;
}

/* The innermost loop ends: of its reads those are kept that it writes as well. */
static void scan_end(sx_walk *w, carried_scan *scan)
{
    uint32_t loop = --scan->open;
    uint32_t start = scan->start[loop];
    uint32_t kept = scan->first[loop];
    sx_loop_carries *carries = &w->carries[start];
    carries->first = w->carried_reg_count;
    for (uint32_t k = scan->first[loop]; k < scan->count; k++) {
        const sx_loop_read read = w->read[k];
        void *array = w->carried_reg;
        if (read.loop != loop) {
            w->read[kept++] = read;
        } else if (w->seen[read.reg >> 28][read.reg & 0xFFFFFFFu].written > start &&
                   sx_walk_room(w, &array, &w->carried_reg_capacity, w->carried_reg_count + 1,
                                sizeof(uint32_t))) {
            w->carried_reg = array;
            w->carried_reg[w->carried_reg_count++] = read.reg;
        }
    }
    carries->count = w->carried_reg_count - carries->first;
    scan->count = kept;
}

/* Of each loop, the registers that its body reads before it writes them, and writes. One pass over the part. */
static void find_carried(sx_walk *w)
{
    carried_scan scan = {.open = 0};
    w->carried_reg_count = 0;
    for (uint32_t i = 0; i < w->part->item_count && !w->g->refused; i++) {
        const sx_item *item = &w->part->item[i];
        uint32_t reg[4];
        if (item->kind == SX_ITEM_LOOP) {
            SX_ASSERT(scan.open < SX_LOOP_VARS_MAX);
            scan.start[scan.open] = i;
            scan.first[scan.open++] = scan.count;
        } else if (item->kind == SX_ITEM_END) {
            scan_end(w, &scan);
        } else if (scan.open > 0) {
            uint32_t n = reads_of(w, item, reg);
            for (uint32_t k = 0; k < n; k++) {
                if (reg[k] >> 28 < 2) {
                    scan_read(w, &scan, i, reg[k]);
                }
            }
            char result = w->op[item->op].result;
            if (result == 'v' || result == 'm') {
                w->seen[result == 'm'][item->dst].written = i;
            }
        }
    }
}

static uint32_t *reg_of(sx_walk *w, uint32_t reg)
{
    return &w->reg[reg >> 28][reg & 0xFFFFFFFu];
}

static void forget_written(sx_walk *w, uint32_t first, uint32_t end)
{
    for (uint32_t i = first; i < end; i++) {
        const sx_item *item = &w->part->item[i];
        char result = item->kind == SX_ITEM_OP ? w->op[item->op].result : '-';
        if (result == 's') {
            w->integer[item->dst] = 0;
        } else if (result != '-') {
            w->reg[result == 'm'][item->dst] = 0;
        }
    }
}

/* Behind the loop, a carried register holds the run of its step, piece by piece of lanes. */
static uint32_t close_register(sx_walk *w, const sx_carried *c, uint32_t last, uint32_t var,
                               int64_t trip)
{
    sx_algebra *g = w->g;
    sx_lanes before, after, out;
    sx_subst s;
    if (c->before == 0 || last == 0) {
        return 0;
    }
    sx_walk_get(w, c->before, &before);
    sx_walk_get(w, last, &after);
    out.count = 0;
    uint32_t i = 0;
    uint32_t j = 0;
    for (uint32_t start = 0; start < w->lanes && !g->refused;) {
        uint32_t end = before.end[i] < after.end[j] ? before.end[i] : after.end[j];
        bool one = end == start + 1;
        uint32_t first = one ? sx_walk_at(w, before.term[i], start) : before.term[i];
        uint32_t step = one ? sx_walk_at(w, after.term[j], start) : after.term[j];
        uint32_t lane = one ? sx_form_constant(g, start) : sx_form_var(g, SX_VAR_LANE, 1, 0);
        if (g->term[step].holes) {
            uint32_t hole = sx_term_hole(g, c->hole, lane);
            out.term[out.count] = sx_term_close(g, first, hole, step, var, trip);
        } else {
            sx_subst_begin(g, &s);
            sx_subst_var(&s, var, sx_form_constant(g, trip - 1));
            out.term[out.count] = sx_term_subst(g, step, &s);
        }
        out.end[out.count++] = (uint8_t)end;
        i += before.end[i] == end && end < w->lanes;
        j += after.end[j] == end && end < w->lanes;
        start = end;
    }
    return g->refused ? 0 : sx_walk_put(w, &out);
}

/* ---- memory across iterations ---- */
static bool stores_agree(sx_walk *w, const sx_record *x, const sx_record *y, uint32_t var,
                         int64_t trip)
{
    sx_algebra *g = w->g;
    uint64_t bit = SX_VAR_BIT(var);
    bool x_moves = (g->form[x->address].vars & bit) != 0;
    bool y_moves = (g->form[y->address].vars & bit) != 0;
    if (!x_moves && !y_moves) {
        return true; /* both are stored anew by every iteration: the last one stays, in order */
    }
    return sx_records_apart(g, x, y, var, trip, SX_VAR_FREE) ||
           (sx_records_apart(g, x, y, var, trip, SX_VAR_LARGER) &&
            sx_records_apart(g, x, y, var, trip, SX_VAR_SMALLER));
}

static bool carries_memory(sx_walk *w, const sx_walk_loop *loop)
{
    for (uint32_t i = loop->first_record; i < w->stores.count; i++) {
        for (uint32_t j = loop->first_record; j < i; j++) {
            if (!stores_agree(w, &w->stores.record[j], &w->stores.record[i], loop->var,
                              loop->trip)) {
                return true;
            }
        }
    }
    for (uint32_t k = loop->first_read; k < w->reads.count; k++) {
        const sx_record *read = &w->reads.record[k];
        for (uint32_t i = loop->first_record;
             read->from < loop->first_record && i < w->stores.count; i++) {
            /* what the iteration itself stores behind the read, and later ones, it does not see */
            const sx_record *store = &w->stores.record[i];
            if (!sx_records_apart(w->g, read, store, loop->var, loop->trip, SX_VAR_FREE) &&
                !sx_records_apart(w->g, read, store, loop->var, loop->trip, SX_VAR_SMALLER)) {
                return true;
            }
        }
    }
    return false;
}

/* The part is walked once more, with this loop in another way. */
static void walk_again(sx_walk *w, const sx_walk_loop *loop, sx_walk_mode mode)
{
    SX_ASSERT(mode > w->mode[loop->item]);
    w->again = true;
    w->mode[loop->item] = (uint8_t)mode;
    if (mode == SX_WALK_UNROLLED && loop->trip > SX_UNROLL_MAX) {
        (void)sx_refuse(w->g, "item %u: a loop of %lld iterations carries memory in no known way",
                        loop->item, (long long)loop->trip);
    }
}

/* Behind the loop nobody knows what a term over its states is. */
static void forget_states(sx_walk *w, sx_record *r)
{
    if (r->value != 0 && w->g->term[r->value].state) {
        r->value = sx_term_hole(w->g, UINT32_MAX - 1, 0);
    }
}

/* Does each iteration leave something of its states in places of its own? */
static bool leaves_states(const sx_walk *w, const sx_walk_loop *loop)
{
    const sx_algebra *g = w->g;
    bool found = false;
    for (uint32_t k = loop->first_record; k < w->stores.count; k++) {
        const sx_record *r = &w->stores.record[k];
        bool moves = (g->form[r->address].vars & SX_VAR_BIT(loop->var)) != 0;
        found = found || (moves && r->value != 0 && g->term[r->value].state);
    }
    return found;
}

static void close_memory(sx_walk *w, const sx_walk_loop *loop, uint32_t outer_first)
{
    sx_algebra *g = w->g;
    bool states = w->mode[loop->item] == SX_WALK_STATES;
    uint32_t tables = loop->end_table - loop->first_table;
    if (carries_memory(w, loop)) {
        uint32_t before = w->places_count;
        if (!states) {
            sx_walk_find_places(w, loop);
        }
        walk_again(w, loop, w->places_count > before ? SX_WALK_STATES : SX_WALK_UNROLLED);
        return;
    }
    if (states && (leaves_states(w, loop) || !sx_walk_close_states(w, loop))) {
        walk_again(w, loop, SX_WALK_UNROLLED);
        return;
    }
    uint32_t end = w->stores.count;
    w->stores.count = loop->first_record;
    for (uint32_t k = loop->first_record + tables; k < end && !g->refused; k++) {
        sx_record r = w->stores.record[k];
        if (states) {
            forget_states(w, &r);
        }
        if (!sx_record_close(g, &r, loop->var, loop->trip)) {
            (void)sx_refuse(g, "item %u: iterations store to the same place", loop->item);
            return;
        }
        sx_records_put(g, &w->stores, outer_first, &r);
    }
    sx_walk_leave_states(w, loop, outer_first);
    end = w->reads.count;
    w->reads.count = loop->first_read;
    for (uint32_t k = loop->first_read; k < end && !g->refused; k++) {
        sx_record r = w->reads.record[k];
        sx_subst s;
        if ((g->form[r.address].vars & SX_VAR_BIT(loop->var)) != 0) {
            if (r.dims >= SX_STORE_DIMS) {
                (void)sx_refuse(g, "a read of more than %u dimensions", SX_STORE_DIMS);
                return;
            }
            sx_subst_begin(g, &s);
            sx_subst_var(&s, loop->var, sx_form_var(g, SX_VAR_STORE + r.dims, 1, 0));
            r.address = sx_form_subst(g, r.address, &s);
            r.count[r.dims++] = loop->trip;
        }
        w->reads.record[w->reads.count++] = r;
    }
}

/* ---- loops ---- */
static bool has_states(sx_walk *w, uint32_t value)
{
    sx_lanes lanes;
    bool found = false;
    lanes.count = 0;
    if (value != 0) {
        sx_walk_get(w, value, &lanes);
    }
    for (uint32_t k = 0; k < lanes.count; k++) {
        found = found || w->g->term[lanes.term[k]].state;
    }
    return found;
}

/* At the start of an iteration, carried registers hold what nobody knows: holes. Integers are not carried. */
static void open_registers(sx_walk *w, uint32_t at, uint32_t end)
{
    sx_algebra *g = w->g;
    const sx_loop_carries *carries = &w->carries[at];
    for (uint32_t i = at + 1; w->part->scalar_count > 0 && i < end; i++) {
        const sx_item *inside = &w->part->item[i];
        if (inside->kind == SX_ITEM_OP && w->op[inside->op].result == 's') {
            w->integer[inside->dst] = 0;
        }
    }
    for (uint32_t k = 0; k < carries->count; k++) {
        carry(w, w->carried_reg[carries->first + k]);
        if (g->refused) {
            return;
        }
        sx_carried *c = &w->carried[w->carried_count - 1];
        c->before = *reg_of(w, c->reg);
        c->hole = w->hole_count++;
        uint32_t lane = sx_form_var(g, SX_VAR_LANE, 1, 0);
        *reg_of(w, c->reg) = c->before == 0 ? 0 : sx_term_hole(g, c->hole, lane);
    }
}

static void walk_loop(sx_walk *w, uint32_t at)
{
    sx_algebra *g = w->g;
    const sx_item *item = &w->part->item[at];
    uint32_t end = w->end_of[at];
    uint32_t var = item->dst;
    if (item->trip == 1 || w->mode[at] == SX_WALK_UNROLLED) {
        for (int64_t i = 0; i < item->trip && !g->refused && !w->again; i++) {
            w->known[var] = true;
            w->value[var] = i;
            walk_items(w, at + 1, end);
        }
        return;
    }
    sx_walk_loop loop = {.item = at,
                         .var = var,
                         .trip = item->trip,
                         .first_record = w->stores.count,
                         .first_table = w->table_count,
                         .end_table = w->table_count};
    if (w->mode[at] == SX_WALK_STATES && !sx_walk_open_states(w, &loop)) {
        walk_again(w, &loop, SX_WALK_UNROLLED);
        return;
    }
    loop.first_read = w->reads.count;
    uint32_t first_carried = w->carried_count;
    uint32_t outer_first = w->loop_first;
    uint32_t outer_read = w->read_first;
    uint32_t outer_inner = w->inner;
    w->known[var] = false;
    w->loop_of[var] = at;
    g->low[var] = 0;
    g->high[var] = item->trip - 1;
    open_registers(w, at, end);
    uint32_t end_carried = w->carried_count;
    w->loop_first = w->stores.count;
    w->read_first = w->reads.count;
    w->open++;
    w->inner = at;
    walk_items(w, at + 1, end);
    w->inner = outer_inner;
    w->open--;
    w->loop_first = outer_first;
    w->read_first = outer_read;
    if (g->refused || w->again) {
        return;
    }
    close_memory(w, &loop, outer_first);
    if (g->refused || w->again) {
        return;
    }
    for (uint32_t k = first_carried; k < end_carried; k++) { /* all before any is forgotten */
        sx_carried *c = &w->carried[k];
        uint32_t last = *reg_of(w, c->reg);
        bool gone =
            (w->mode[at] == SX_WALK_STATES && has_states(w, last)) || sx_walk_is_named(w, last);
        last = gone ? 0 : last;
        c->before = close_register(w, c, last, var, item->trip);
    }
    forget_written(w, at + 1, end);
    for (uint32_t k = first_carried; k < end_carried; k++) {
        *reg_of(w, w->carried[k].reg) = w->carried[k].before;
    }
    w->carried_count = first_carried;
}

/* ---- instructions ---- */
static void walk_integer(sx_walk *w, const sx_item *item)
{
    sx_algebra *g = w->g;
    uint32_t x = item->op == SX_LOP_SVAR ? 0 : w->integer[item->src[0]];
    if (item->op == SX_LOP_SVAR) {
        uint32_t form = w->known[item->imm] ? sx_form_constant(g, w->value[item->imm])
                                            : sx_form_var(g, item->imm, 1, 0);
        w->integer[item->dst] = sx_term_scalar(g, form);
        return;
    }
    if (x == 0) {
        (void)sx_refuse(g, "item %u: an integer register of a closed loop", w->at);
        return;
    }
    uint32_t y = item->op == SX_LOP_SADD ? w->integer[item->src[1]] : x;
    if (y == 0) {
        (void)sx_refuse(g, "item %u: an integer register of a closed loop", w->at);
        return;
    }
    if (item->op == SX_LOP_S2V) {
        w->reg[0][item->dst] = sx_term_op(g, SX_LOP_S2V, 0, x, 0, 0);
    } else if (item->op == SX_LOP_SADD) {
        w->integer[item->dst] = sx_term_op(g, SX_LOP_SADD, 0, x, y, 0);
    } else {
        w->integer[item->dst] = sx_term_op_imm2(g, item->op, item->imm2, x);
    }
}

static void walk_op(sx_walk *w, const sx_item *item)
{
    sx_algebra *g = w->g;
    const sx_walk_op *info = &w->op[item->op];
    if (item->op == SX_LOP_PREFETCH) {
        return;
    }
    if (info->memory) {
        sx_walk_memory(w, item);
        return;
    }
    if (item->op >= SX_LOP_SVAR && item->op <= SX_LOP_S2V) {
        walk_integer(w, item);
        return;
    }
    if (item->op == SX_LOP_SET) {
        w->reg[0][item->dst] = sx_term_constant(g, sx_item_bits(item));
        return;
    }
    if (item->op == SX_LOP_IOTA) {
        uint32_t form = sx_form_var(g, SX_VAR_LANE, 1, (int32_t)item->imm);
        w->reg[0][item->dst] = sx_term_int(g, form);
        return;
    }
    uint32_t operand[3] = {0, 0, 0};
    uint32_t reg[4];
    uint32_t n = reads_of(w, item, reg);
    for (uint32_t k = 0; k < n; k++) {
        operand[k] = *reg_of(w, reg[k]);
        if (operand[k] == 0) {
            (void)sx_refuse(g, "item %u: a register of a closed loop", w->at);
            return;
        }
    }
    uint32_t *dst = &w->reg[info->result == 'm'][item->dst];
    sx_lanes lanes;
    switch ((int)item->op) {
    case SX_LOP_SWAP: *dst = sx_walk_swap(w, operand[0], item->imm); break;
    case SX_LOP_BCAST0:
        sx_walk_get(w, operand[0], &lanes);
        *dst = sx_walk_at(w, lanes.term[0], 0);
        break;
    default: *dst = sx_walk_elementwise(w, item->op, item->imm, operand); break;
    }
}

static void walk_items(sx_walk *w, uint32_t first, uint32_t end)
{
    for (uint32_t i = first; i < end && !w->g->refused && !w->again; i++) {
        const sx_item *item = &w->part->item[i];
        w->at = i;
        if (item->kind == SX_ITEM_LOOP) {
            walk_loop(w, i);
            i = w->end_of[i];
        } else if (item->kind == SX_ITEM_OP) {
            walk_op(w, item);
        }
    }
}

/* ---- a part ---- */
bool sx_walk_room(sx_walk *w, void **array, uint32_t *capacity, uint32_t need, size_t size)
{
    if (need > *capacity && sx_grow(w->g->cx, array, capacity, need, size) != SX_OK) {
        (void)sx_refuse(w->g, "out of memory");
        return false;
    }
    return true;
}

static bool prepare(sx_walk *w)
{
    const sx_part *part = w->part;
    if (w->op[SX_LOP_SET].result == 0) {
        read_table(w);
    }
    const uint32_t count[2] = {part->vector_count + 1, part->mask_count + 1};
    for (uint32_t c = 0; c < 2; c++) {
        void *reg = w->reg[c];
        void *seen = w->seen[c];
        if (!sx_walk_room(w, &reg, &w->reg_capacity[c], count[c], sizeof(uint32_t)) ||
            !sx_walk_room(w, &seen, &w->seen_capacity[c], count[c], sizeof(sx_reg_scan))) {
            return false;
        }
        w->reg[c] = reg;
        w->seen[c] = seen;
        memset(w->seen[c], 0, count[c] * sizeof(sx_reg_scan));
    }
    void *integer = w->integer;
    void *ends = w->end_of;
    void *mode = w->mode;
    void *carries = w->carries;
    if (!sx_walk_room(w, &integer, &w->integer_capacity, part->scalar_count + 1,
                      sizeof(uint32_t)) ||
        !sx_walk_room(w, &ends, &w->item_capacity, part->item_count + 1, sizeof(uint32_t)) ||
        !sx_walk_room(w, &mode, &w->mode_capacity, part->item_count + 1, sizeof(uint8_t)) ||
        !sx_walk_room(w, &carries, &w->carries_capacity, part->item_count + 1,
                      sizeof(sx_loop_carries))) {
        return false;
    }
    w->integer = integer;
    w->end_of = ends;
    w->mode = mode;
    w->carries = carries;
    w->places_count = 0;
    uint32_t open[SX_LOOP_VARS_MAX];
    uint32_t depth = 0;
    for (uint32_t i = 0; i < part->item_count; i++) {
        if (part->item[i].kind == SX_ITEM_LOOP) {
            w->mode[i] = SX_WALK_ONCE;
            open[depth++] = i;
        } else if (part->item[i].kind == SX_ITEM_END) {
            w->end_of[open[--depth]] = i;
        }
    }
    find_carried(w);
    return !w->g->refused;
}

void sx_walk_part(sx_walk *w, sx_algebra *g, const sx_kernel *kernel, const sx_part *part)
{
    w->g = g;
    w->kernel = kernel;
    w->part = part;
    w->lanes = kernel->lanes;
    if (!prepare(w)) {
        return;
    }
    sx_subst_begin(g, &w->whole);
    sx_subst_var(&w->whole, SX_VAR_LANE, sx_form_var(g, SX_VAR_STORE, 1, 0));
    sx_subst_share(g, &w->whole);
    do {
        w->again = false;
        w->stores.count = w->reads.count = w->carried_count = w->many_count = 0;
        w->open = w->loop_first = w->read_first = w->hole_count = w->table_count = 0;
        w->named_count = w->serial = 0;
        w->inner = UINT32_MAX;
        memset(w->reg[0], 0, (part->vector_count + 1) * sizeof(uint32_t));
        memset(w->reg[1], 0, (part->mask_count + 1) * sizeof(uint32_t));
        memset(w->integer, 0, (part->scalar_count + 1) * sizeof(uint32_t));
        for (uint32_t v = 0; v < SX_LOOP_VARS_MAX; v++) {
            w->known[v] = v >= 3 || part->grid[v] == 1;
            w->loop_of[v] = UINT32_MAX;
            w->value[v] = 0;
            g->low[v] = 0;
            g->high[v] = v < 3 ? part->grid[v] - 1 : 0;
        }
        walk_items(w, 0, part->item_count);
    } while (w->again && !g->refused);
}
