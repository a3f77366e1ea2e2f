/* walk_op.c - single instructions of the walk: elementwise ones piece by piece of lanes, loads, stores. */
#include "core/judge/walk.h"

#include <string.h>

/* Known in every lane by itself: constants and integers of the lane alone. */
static bool is_pattern(const sx_algebra *g, uint32_t term)
{
    const sx_term *t = &g->term[term];
    return term == 0 || t->kind == SX_TERM_CONST ||
           (t->kind == SX_TERM_INT && (t->vars & ~SX_VAR_BIT(SX_VAR_LANE)) == 0);
}

static bool folds_by_lane(sx_lop op)
{
    switch ((int)op) {
    case SX_LOP_AND:
    case SX_LOP_OR:
    case SX_LOP_XOR:
    case SX_LOP_SHR:
    case SX_LOP_ICMP: return true;
    default: return false;
    }
}

static void put_piece(sx_lanes *lanes, uint32_t end, uint32_t term)
{
    lanes->end[lanes->count] = (uint8_t)end;
    lanes->term[lanes->count++] = term;
}

/* The operation on lanes start .. end - 1; of a known choice the operand that is chosen. */
static uint32_t piece(sx_walk *w, sx_lop op, uint32_t imm, uint32_t x[3], uint32_t start,
                      uint32_t end)
{
    sx_algebra *g = w->g;
    bool one = end == start + 1;
    if (op == SX_LOP_BLEND && g->term[x[0]].kind == SX_TERM_CONST) {
        uint32_t chosen = g->term[x[0]].imm != 0 ? x[1] : x[2];
        return one ? sx_walk_at(w, chosen, start) : chosen;
    }
    for (uint32_t k = 0; one && k < 3; k++) {
        x[k] = sx_walk_at(w, x[k], start);
    }
    return sx_term_op(g, op, imm, x[0], x[1], x[2]);
}

uint32_t sx_walk_elementwise(sx_walk *w, sx_lop op, uint32_t imm, const uint32_t operand[3])
{
    sx_algebra *g = w->g;
    sx_lanes one[3], out;
    const sx_lanes *in[3];
    uint32_t at[3] = {0};
    out.count = 0;
    bool plain = ((operand[0] | operand[1] | operand[2]) & SX_MANY) == 0;
    bool by_lane = folds_by_lane(op);
    if (plain && !(by_lane && is_pattern(g, operand[0]) && is_pattern(g, operand[1]))) {
        return sx_term_op(g, op, imm, operand[0], operand[1], operand[2]);
    }
    if (op == SX_LOP_BLEND) {
        uint32_t chosen = sx_walk_choose(w, operand[0], operand[1], operand[2]);
        if (chosen != 0 || g->refused) {
            return chosen;
        }
    }
    out.count = 0;
    for (uint32_t k = 0; k < 3; k++) {
        in[k] = sx_walk_view(w, operand[k], &one[k]);
    }
    for (uint32_t start = 0; start < w->lanes && !g->refused;) {
        uint32_t end = w->lanes;
        uint32_t x[3];
        for (uint32_t k = 0; k < 3; k++) {
            end = in[k]->end[at[k]] < end ? in[k]->end[at[k]] : end;
            x[k] = in[k]->term[at[k]];
        }
        if (by_lane && is_pattern(g, x[0]) && is_pattern(g, x[1])) {
            for (uint32_t i = start; i < end; i++) {
                uint32_t right = sx_walk_at(w, x[1], i);
                uint32_t left = sx_walk_at(w, x[0], i);
                put_piece(&out, i + 1, sx_term_op(g, op, imm, left, right, 0));
            }
        } else {
            put_piece(&out, end, piece(w, op, imm, x, start, end));
        }
        for (uint32_t k = 0; k < 3; k++) {
            at[k] += in[k]->end[at[k]] == end && end < w->lanes;
        }
        start = end;
    }
    return g->refused ? 0 : sx_walk_put(w, &out);
}

/* ---- memory ---- */
static uint32_t *vector(sx_walk *w, uint32_t number)
{
    return &w->reg[0][number];
}

/* The address of an item with `stride` bytes from lane to lane. */
static uint32_t address_form(sx_walk *w, const sx_addr *a, int64_t stride, uint32_t *index)
{
    sx_algebra *g = w->g;
    sx_lin lin;
    sx_lin_init(&lin, a->offset);
    *index = 0;
    for (uint32_t v = 0; v < SX_LOOP_VARS_MAX; v++) {
        int64_t product = 0;
        if (a->coef[v] == 0) {
            continue;
        }
        if (!w->known[v]) { /* each variable once */
            lin.coef[v] = a->coef[v];
            lin.vars |= SX_VAR_BIT(v);
        } else if (sx_mul_i64(a->coef[v], w->value[v], &product)) {
            sx_lin_add_constant(g, &lin, product);
        } else {
            (void)sx_refuse(g, "an address overflows");
        }
    }
    if (stride != 0) {
        sx_lin_add(g, &lin, SX_VAR_LANE, stride);
    }
    if (a->index_reg != SX_NO_REG) {
        *index = w->integer[a->index_reg];
        const sx_term *t = &g->term[*index];
        if (*index == 0) {
            (void)sx_refuse(g, "item %u: an integer register of a closed loop", w->at);
        } else if (t->kind == SX_TERM_INT) {
            sx_lin more;
            sx_lin_get(g, t->form, &more);
            sx_lin_add_lin(g, &lin, &more, 1);
            *index = 0;
        }
    }
    return sx_form_put(g, &lin);
}

static uint32_t fixed(sx_walk *w, uint32_t form, uint32_t lane)
{
    sx_subst s;
    sx_subst_begin(w->g, &s);
    sx_subst_var(&s, SX_VAR_LANE, sx_form_constant(w->g, lane));
    return sx_form_subst(w->g, form, &s);
}

/* Notes a read that a loop around it may have to answer for. */
static void note_read(sx_walk *w, uint32_t buffer, uint32_t width, uint32_t form, uint32_t first,
                      uint32_t end, uint32_t from)
{
    sx_algebra *g = w->g;
    sx_record read = {.buffer = buffer, .width = width, .address = form, .from = from};
    if (w->open == 0) {
        return;
    }
    if ((g->form[form].vars & SX_VAR_BIT(SX_VAR_LANE)) != 0) {
        sx_subst s;
        sx_subst_begin(g, &s);
        sx_subst_var(&s, SX_VAR_LANE, sx_form_var(g, SX_VAR_STORE, 1, first));
        read.address = sx_form_subst(g, form, &s);
        read.dims = 1;
        read.count[0] = (int64_t)end - first;
    }
    uint32_t n = w->reads.count;
    for (uint32_t k = n;
         k-- > w->read_first && k + 8 > n;) { /* of this loop: it answers for its own */
        const sx_record *r = &w->reads.record[k];
        if (r->address == read.address && r->buffer == buffer && r->from == from &&
            r->width == width && r->dims == read.dims && r->count[0] == read.count[0]) {
            return;
        }
    }
    sx_records_push(g, &w->reads, &read);
}

/* Lanes first .. end - 1 of a read of what the part itself wrote; false: no one record answers. */
static bool answer(sx_walk *w, uint32_t buffer, uint32_t width, uint32_t form, uint32_t first,
                   uint32_t end, uint32_t *value)
{
    sx_algebra *g = w->g;
    g->low[SX_VAR_LANE] = first;
    g->high[SX_VAR_LANE] = end - 1;
    int64_t low_byte, end_byte;
    sx_bytes_reached(g, form, width, 0, NULL, &low_byte, &end_byte);
    for (uint32_t k = w->stores.count; k-- > 0 && !g->refused;) {
        const sx_record *record = &w->stores.record[k];
        if (record->buffer != buffer || record->end <= low_byte || end_byte <= record->low) {
            continue;
        }
        switch (sx_record_read(g, record, form, width, value)) {
        case SX_READ_COVERED:
            if (record->mem != SX_MEM_LANE) {
                return false; /* what comes back is not the lane that went */
            }
            note_read(w, buffer, width, form, first, end, k);
            return true;
        case SX_READ_APART: break;
        case SX_READ_UNKNOWN: return false;
        }
    }
    return false;
}

/* The lanes from `start` on that one record answers: up to the end, or where the last read was cut, or as many
 * as there are. */
static uint32_t longest(sx_walk *w, uint32_t buffer, uint32_t width, uint32_t form, uint32_t start,
                        uint32_t lanes, uint32_t *value)
{
    uint32_t whole = lanes == start + 1 ? fixed(w, form, start) : form;
    if (answer(w, buffer, width, whole, start, lanes, value)) {
        return lanes;
    }
    if ((w->g->form[form].vars & SX_VAR_BIT(SX_VAR_LANE)) == 0) {
        return start;
    }
    uint32_t cut = w->last_cut;
    if (cut > start + 1 && cut < lanes && answer(w, buffer, width, form, start, cut, value)) {
        return cut;
    }
    for (uint32_t end = lanes - 1; end > start && !w->g->refused; end--) {
        uint32_t part = end == start + 1 ? fixed(w, form, start) : form;
        if (answer(w, buffer, width, part, start, end, value)) {
            w->last_cut = end;
            return end;
        }
    }
    return start;
}

/* Iterations of a loop may read stores that have no common form, of which one is known for each iteration alone:
 * the part is walked again with the shortest loop of this address unrolled. False: there is none. */
static bool unroll_for(sx_walk *w, uint32_t form)
{
    int64_t shortest = SX_UNROLL_MAX + 1;
    uint32_t item = 0;
    for (uint32_t var = 0; var < SX_LOOP_VARS_MAX; var++) {
        uint32_t at = w->loop_of[var];
        bool free = (w->g->form[form].vars & SX_VAR_BIT(var)) != 0 && !w->known[var];
        if (free && at != UINT32_MAX && w->part->item[at].trip < shortest) {
            shortest = w->part->item[at].trip;
            item = at;
        }
    }
    if (shortest > SX_UNROLL_MAX) {
        return false;
    }
    SX_ASSERT(w->mode[item] != SX_WALK_UNROLLED);
    w->mode[item] = SX_WALK_UNROLLED;
    w->again = true;
    return true;
}

/* `count` lanes from memory, the others 0; stride 0: all lanes alike. */
static uint32_t load(sx_walk *w, const sx_addr *a, sx_mem mem, int64_t stride, uint32_t count)
{
    sx_algebra *g = w->g;
    uint32_t width = sx_mem_bytes(mem, w->kernel->lane_bytes);
    uint32_t index;
    uint32_t form = address_form(w, a, stride, &index);
    sx_lanes out;
    out.count = 0;
    uint32_t lanes = stride == 0 ? w->lanes : count;
    if (w->kernel->buffer[a->buffer].role == SX_BUFFER_IN) {
        put_piece(&out, lanes, sx_term_element(g, a->buffer, (uint8_t)mem, form, index));
    } else if (mem != SX_MEM_LANE) {
        return sx_refuse(g, "item %u: a read that is narrower than a lane", w->at);
    } else {
        uint32_t value = 0;
        if (index != 0) {
            put_piece(&out, lanes, sx_walk_named_load(w, form, index));
        }
        for (uint32_t start = index != 0 ? lanes : 0; start < lanes && !g->refused;) {
            uint32_t end = longest(w, a->buffer, width, form, start, lanes, &value);
            if (end == start && !g->refused && unroll_for(w, form)) {
                return 0;
            }
            if (end == start) {
                return sx_refuse(g, "item %u: no store before it is known to be what it reads",
                                 w->at);
            }
            put_piece(&out, end, value);
            start = end;
        }
    }
    if (lanes < w->lanes) {
        put_piece(&out, w->lanes, sx_term_constant(g, 0));
    }
    return g->refused ? 0 : sx_walk_put(w, &out);
}

static void store(sx_walk *w, const sx_item *item, int64_t stride)
{
    sx_algebra *g = w->g;
    uint32_t width = sx_mem_bytes(item->mem, w->kernel->lane_bytes);
    const sx_addr *a = &w->part->addr[item->addr];
    uint32_t index;
    uint32_t form = address_form(w, a, stride, &index);
    uint32_t value = *vector(w, item->src[0]);
    sx_lanes lanes;
    uint32_t count = item->imm;
    if (value == 0) {
        (void)sx_refuse(g, "item %u: a store of a value of a closed loop", w->at);
        return;
    }
    if (index == 0 && sx_walk_is_named(w, value)) {
        (void)sx_refuse(g, "item %u: a store to a place of what another one holds", w->at);
        return;
    }
    sx_walk_get_joined(w, value, count, &lanes);
    uint32_t start = 0;
    for (uint32_t k = 0; k < lanes.count && start < count && !g->refused; k++) {
        uint32_t end = lanes.end[k] < count ? lanes.end[k] : count;
        sx_record r = {
            .buffer = a->buffer, .mem = item->mem, .width = width, .value = lanes.term[k]};
        bool several = end > start + 1;
        sx_subst one;
        const sx_subst *s = &w->whole; /* what was found for the stores before holds for this one */
        if (start > 0 || !several) {
            sx_subst_begin(g, &one);
            sx_subst_var(&one, SX_VAR_LANE,
                         several ? sx_form_var(g, SX_VAR_STORE, 1, start)
                                 : sx_form_constant(g, start));
            sx_subst_share(g, &one);
            s = &one;
        }
        r.dims = several;
        r.count[0] = (int64_t)end - start;
        if (index != 0) {
            sx_walk_named_store(w, &r, form, index, lanes.term[k], s);
            start = end;
            continue;
        }
        r.address = sx_form_subst(g, form, s);
        r.value = sx_term_subst(g, r.value, s);
        if (g->term[r.value].holes) {
            (void)sx_refuse(g, "item %u: a store of a value that a loop carries", w->at);
        }
        if (!g->refused) {
            sx_records_put(g, &w->stores, w->loop_first, &r);
        }
        start = end;
    }
    w->serial++;
}

static void put_loaded(sx_walk *w, const sx_item *item, int64_t stride, uint32_t lanes)
{
    uint32_t loaded = load(w, &w->part->addr[item->addr], item->mem, stride, lanes);
    *vector(w, item->dst) = loaded;
}

void sx_walk_memory(sx_walk *w, const sx_item *item)
{
    sx_algebra *g = w->g;
    int64_t size = sx_mem_bytes(item->mem, w->kernel->lane_bytes);
    switch (item->op) {
    case SX_LOP_LOAD: put_loaded(w, item, size, item->imm); break;
    case SX_LOP_LOADB: put_loaded(w, item, 0, w->lanes); break;
    case SX_LOP_LOADS:
        if (item->imm2 == 0 && item->imm < w->lanes) {
            (void)sx_refuse(g, "item %u: lanes of stride 0", w->at);
            break;
        }
        put_loaded(w, item, item->imm2, item->imm);
        break;
    case SX_LOP_STORE: store(w, item, size); break;
    case SX_LOP_STORES: store(w, item, item->imm2); break;
    case SX_LOP_SLOAD32:
    case SX_LOP_SLOAD64: {
        uint32_t index;
        const sx_addr *a = &w->part->addr[item->addr];
        uint32_t form = address_form(w, a, 0, &index);
        if (w->kernel->buffer[a->buffer].role != SX_BUFFER_IN || index != 0) {
            (void)sx_refuse(g, "item %u: an integer that the part wrote itself", w->at);
            break;
        }
        uint8_t width = SX_WIDTH_SIGNED + (item->op == SX_LOP_SLOAD32 ? 32 : 64);
        w->integer[item->dst] = sx_term_element(g, a->buffer, width, form, 0);
        break;
    }
    default: break;
    }
}
