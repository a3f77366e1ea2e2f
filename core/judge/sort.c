/* sort.c - a sort of rows by a network of comparisons.
 *
 * The program is run, once, for one row whose elements are not known. Its addresses and counts depend on no element, so
 * that run is that of all rows. A lane holds the key or the tag of a *wire*: what is at a place of the row once so many
 * stages of the network are done. Where two wires meet that are partners in their next stage, the smaller pair is the
 * lower wire behind it, and the larger one the upper. So the program is shown to be the network, however it walks it.
 *
 * That the network sorts is not shown here but a theorem: mirrored partners make of two sorted runs two bitonic
 * sequences of which none of the first is larger than one of the second; partners at half of the length make the same
 * of a bitonic sequence; a sequence of one is sorted (Batcher 1968; Knuth, volume 3, 5.3.4). A row that ends early is
 * one that is filled up with pairs behind all others: the upper partner is never smaller, so they stay where they are.
 * Of two runs of K, the K smallest of both are in the first one once mirrored partners have met.
 *
 * Pairs are all different, because tags are. What makes a pair of an element, and an element of a pair, is that of
 * core/loop/sort_order.c: recorded and compared instruction for instruction. */
#include "core/ir/sort.h"

#include <stdio.h>
#include <string.h>

#include "core/judge/prove.h"

enum { KEY, TAG };

/* ---- the network ---- */
typedef enum { MIRROR, STRAIGHT, PRUNE, CLEAN } stage_kind;
typedef struct {
    stage_kind kind;
    /* Of MIRROR the run that it makes, of STRAIGHT and CLEAN how far partners are apart. */
    int64_t length;
    /* Of PRUNE and CLEAN how far runs are apart. */
    int64_t apart;
} stage;
#define STAGES_MAX 512u

/* ---- what is in registers ---- */
typedef enum {
    NOTHING, /* not known, or not of any use */
    NUMBERS, /* the same in all rows */
    ENTERS,  /* a step on the way from elements to pairs */
    WIRES,
    LEAVES /* a step on the way back */
} content;
typedef struct {
    content kind;
    /* Of steps the node of the record, of WIRES whether they are keys or tags. */
    uint32_t node;
    /* Of WIRES: how many stages are done, and lane l has the wire at place base + (l ^ flip). */
    uint32_t level, flip;
    int64_t base;
    /* So many lanes have one. */
    uint32_t valid;
} value;

typedef enum { NO_MASK, BITS, STEP, KEY_LARGER, KEY_EQUAL, TAG_LARGER, TIE, LARGER } mask_content;
typedef struct {
    mask_content kind;
    /* Of BITS the lanes; of LARGER those in which it says the opposite. */
    uint64_t bits;
    /* What was compared. Of STEP the node is in x. */
    value x, y;
} mask;

/* ---- a sequence of instructions, to compare others with ---- */
typedef struct {
    sx_item item;
    uint32_t source[3];
    bool number; /* it has the same lanes in all rows, which are: */
    uint64_t lane[SX_LOOP_LANES_MAX];
} step_node;
#define STEPS_MAX 128u
typedef struct {
    step_node node[STEPS_MAX]; /* the first two are what it starts from */
    uint32_t count;
    uint32_t result[2];
} record;

typedef struct {
    sx_judge *j;
    sx_algebra *g;
    const sx_kernel *kernel;
    const sx_part *part;
    sx_dtype dtype;
    bool falls, places;
    int64_t lanes, elements, padded, count, run, outer, inner;
    stage stage[STAGES_MAX];
    uint32_t stage_count;
    record enters, leaves;
    /* Of registers; the lanes of vectors that are numbers. */
    value *vector;
    uint64_t (*number)[SX_LOOP_LANES_MAX];
    mask *mask;
    int64_t *scalar;
    int64_t at[SX_LOOP_VARS_MAX];
    /* One more than the stages that a vector of keys, or of tags, in the workspace has behind it. */
    uint16_t *held[2];
    /* Of each element of the result how much is stored: of an i64 in lanes of 4 bytes both halves. */
    uint8_t *done;
} sorting;

static bool is_network(const sorting *s, int64_t run)
{
    return run <= s->run && run / 2 < s->padded;
}

static void put_stage(sorting *s, stage_kind kind, int64_t length, int64_t apart)
{
    SX_ASSERT(s->stage_count < STAGES_MAX);
    s->stage[s->stage_count++] = (stage){kind, length, apart};
}

static void make_network(sorting *s)
{
    for (int64_t run = 2; is_network(s, run); run *= 2) {
        put_stage(s, MIRROR, run, 0);
        for (int64_t apart = run / 4; apart > 0; apart /= 2) {
            put_stage(s, STRAIGHT, apart, 0);
        }
    }
    for (int64_t apart = s->run; apart < s->padded; apart *= 2) {
        put_stage(s, PRUNE, 0, apart);
        for (int64_t near = s->run / 2; near > 0; near /= 2) {
            put_stage(s, CLEAN, near, apart);
        }
    }
}

/* The vector that has the partners of that at `base` in a stage: that of place base + m is *base + (m ^ *flip). */
static bool partner_of(const sorting *s, uint32_t level, int64_t from, int64_t *base,
                       uint32_t *flip)
{
    const stage *g = &s->stage[level];
    const int64_t v = s->lanes;
    const bool inside = g->length < v || (g->kind == MIRROR && g->length == v);
    int64_t start = 0;
    *flip = g->kind == MIRROR || g->kind == PRUNE ? (uint32_t)v - 1 : 0;
    switch (g->kind) {
    case MIRROR:
        start = from / g->length * g->length;
        *base = 2 * start + g->length - v - from;
        break;
    case STRAIGHT: *base = from ^ g->length; break;
    case PRUNE:
        start = from / (2 * g->apart) * (2 * g->apart);
        *base = 2 * start + g->apart + s->run - v - from;
        if ((from - start) % g->apart >= s->run) {
            return false;
        }
        break;
    case CLEAN:
        start = from / (2 * g->apart) * (2 * g->apart);
        *base = from ^ g->length;
        if (from - start >= s->run || start + g->apart >= s->padded) {
            return false;
        }
        break;
    }
    if (g->kind != PRUNE && inside) {
        *base = from;
        *flip = (uint32_t)(g->kind == MIRROR ? g->length - 1 : g->length);
    }
    return *base < s->padded;
}

/* Who has no partner is behind the stage, too. */
static value risen(const sorting *s, value x)
{
    int64_t base;
    uint32_t flip;
    const int64_t from = x.base - x.base % s->lanes;
    while (x.level < s->stage_count && !partner_of(s, x.level, from, &base, &flip)) {
        x.level++;
    }
    return x;
}

/* ---- numbers ---- */
static uint64_t cut(const sorting *s, uint64_t bits)
{
    return s->kernel->lane_bytes == 8 ? bits : bits & UINT32_MAX;
}

static int64_t signed_of(const sorting *s, uint64_t bits)
{
    return s->kernel->lane_bytes == 8 ? (int64_t)bits : (int32_t)(uint32_t)bits;
}

/* A lane of an instruction on numbers. False: it is not one that is known here. */
static bool compute(const sorting *s, const sx_item *item, uint32_t lane, uint64_t x, uint64_t y,
                    uint64_t *result)
{
    switch ((int)item->op) {
    case SX_LOP_SET: *result = sx_item_bits(item); break;
    case SX_LOP_IOTA: *result = lane + item->imm; break;
    case SX_LOP_AND: *result = x & y; break;
    case SX_LOP_OR: *result = x | y; break;
    case SX_LOP_XOR: *result = x ^ y; break;
    case SX_LOP_IADD: *result = x + y; break;
    case SX_LOP_SHL: *result = x << item->imm; break;
    case SX_LOP_SHR: *result = x >> item->imm; break;
    case SX_LOP_MOV: *result = x; break;
    default: return false;
    }
    *result = cut(s, *result);
    return true;
}

/* ---- records ---- */
static void begin_record(sorting *s, sx_loop_builder *b, sx_kernel **scratch, uint32_t start[2])
{
    sx_ctx *cx = s->j->cx;
    if (sx_kernel_make(cx, "order", s->kernel->lanes, s->kernel->lane_bytes, scratch) != SX_OK) {
        (void)sx_refuse(s->g, "out of memory");
        return;
    }
    sx_loop_begin_part(b, cx, *scratch, 1, 1, 1);
    start[0] = sx_loop_vector(b);
    start[1] = sx_loop_vector(b);
}

/* The instructions with the nodes that they read. */
static void take_record(sorting *s, const sx_loop_builder *b, record *r, uint32_t first,
                        uint32_t second)
{
    uint32_t vector[STEPS_MAX + 2] = {0, 1}, masks[STEPS_MAX];
    if (s->g->refused || b->code != SX_OK || b->part->item_count > STEPS_MAX - 2) {
        (void)sx_refuse(s->g, "the order of elements is not written down");
        return;
    }
    r->count = 2;
    for (uint32_t i = 0; i < b->part->item_count; i++) {
        step_node *n = &r->node[r->count];
        *n = (step_node){.item = b->part->item[i]};
        const sx_lop_info *info = sx_lop_info_of(n->item.op);
        for (uint32_t k = 0, at = 0; info->operands[k] != '\0'; k++) {
            if (info->operands[k] == 'v' || info->operands[k] == 'm') {
                uint32_t reg = n->item.src[at];
                n->source[at++] = info->operands[k] == 'v' ? vector[reg] : masks[reg];
            }
        }
        (info->result == 'm' ? masks : vector)[n->item.dst] = r->count++;
    }
    r->result[KEY] = vector[first];
    r->result[TAG] = vector[second];
}

static void make_records(sorting *s)
{
    sx_loop_builder b;
    sx_kernel *scratch = NULL;
    uint32_t start[2];
    begin_record(s, &b, &scratch, start);
    if (s->g->refused) {
        return;
    }
    sx_loop_pair pair = sx_loop_sort_enter(&b, s->dtype, s->falls, start[0], start[1]);
    take_record(s, &b, &s->enters, pair.key, pair.tag);
    begin_record(s, &b, &scratch, start);
    if (s->g->refused) {
        return;
    }
    pair = (sx_loop_pair){start[0], start[1]};
    uint32_t out = s->places ? sx_loop_sort_place(&b, s->dtype, pair)
                             : sx_loop_sort_value(&b, s->dtype, s->falls, pair);
    take_record(s, &b, &s->leaves, out, out);
}

static uint32_t sources_of(const sx_item *item)
{
    uint32_t count = 0;
    for (const char *p = sx_lop_info_of(item->op)->operands; *p != '\0'; p++) {
        count += *p == 'v' || *p == 'm';
    }
    return count;
}

/* Which nodes are numbers, with the places of a row from `base` on. */
static void number_record(const sorting *s, record *r, int64_t base)
{
    r->node[1].number = base >= 0;
    for (uint32_t l = 0; l < s->lanes; l++) {
        r->node[1].lane[l] = cut(s, (uint64_t)base + l);
    }
    for (uint32_t i = 2; i < r->count; i++) {
        step_node *n = &r->node[i];
        const uint32_t count = sources_of(&n->item);
        n->number = count < 3 && sx_lop_info_of(n->item.op)->result == 'v';
        for (uint32_t k = 0; k < count; k++) {
            n->number = n->number && r->node[n->source[k]].number;
        }
        for (uint32_t l = 0; l < s->lanes && n->number; l++) {
            uint64_t x = count > 0 ? r->node[n->source[0]].lane[l] : 0;
            uint64_t y = count > 1 ? r->node[n->source[1]].lane[l] : 0;
            n->number = compute(s, &n->item, l, x, y, &n->lane[l]);
        }
    }
}

/* ---- values as what is wanted ---- */
static bool same_lanes(const sorting *s, const uint64_t *x, const uint64_t *y)
{
    return memcmp(x, y, (size_t)s->lanes * sizeof(*x)) == 0;
}

/* A register as keys or as tags: they may have just been made. */
static bool as_wires(const sorting *s, uint32_t reg, uint32_t what, value *wires)
{
    const value *x = &s->vector[reg];
    const uint32_t made = s->enters.result[what];
    *wires = *x;
    if (x->kind == WIRES) {
        *wires = risen(s, *x);
        return x->node == what && x->valid == s->lanes;
    }
    *wires = (value){.kind = WIRES, .node = what, .base = x->base, .valid = (uint32_t)s->lanes};
    if (x->kind == NUMBERS && what == TAG && made == 1) { /* a tag that is the place */
        const uint64_t *lane = s->number[reg];
        wires->base = (int64_t)lane[0];
        for (uint32_t l = 0; l < s->lanes; l++) {
            if (lane[l] != lane[0] + l) {
                return false;
            }
        }
    } else if (x->kind != ENTERS || x->node != made || (what == KEY && x->valid < s->lanes)) {
        return false;
    }
    bool fits = wires->base % s->lanes == 0 && wires->base < s->padded;
    *wires = fits ? risen(s, *wires) : *wires;
    return fits;
}

static bool same_wires(const value *x, const value *y)
{
    return x->level == y->level && x->base == y->base && x->flip == y->flip;
}

/* ---- instructions ---- */
static void refuse_item(sorting *s, const sx_item *item, const char *why)
{
    (void)sx_refuse(s->g, "%s: %s", sx_lop_info_of(item->op)->name, why);
}

/* Operand k of an instruction is node `node` of a record. *base: the place of its first lane, or -1. */
static bool fits_node(const sorting *s, const record *r, const sx_item *item, uint32_t k,
                      bool is_mask, uint32_t node, int64_t *base, uint32_t *valid)
{
    value x = {0};
    const content kind = r == &s->enters ? ENTERS : LEAVES;
    if (is_mask) {
        const mask *m = &s->mask[item->src[k]];
        x = m->kind == STEP ? m->x : x;
    } else {
        x = s->vector[item->src[k]];
        if (x.kind == NUMBERS) {
            return r->node[node].number &&
                   same_lanes(s, r->node[node].lane, s->number[item->src[k]]);
        }
        if (x.kind == WIRES && kind == LEAVES) { /* sorted, and in the order of lanes */
            x = risen(s, x);
            bool sorted = x.level == s->stage_count && x.flip == 0;
            x.kind = sorted ? LEAVES : NOTHING;
        }
    }
    if (x.kind != kind || x.node != node || (*base >= 0 && *base != x.base)) {
        return false;
    }
    *base = x.base;
    *valid = x.valid;
    return true;
}

/* An instruction that is a step of a record. */
static bool is_step(sorting *s, record *r, const sx_item *item, value *result)
{
    const char *operands = sx_lop_info_of(item->op)->operands;
    if (r ==
        &s->enters) { /* numbers among its operands are those of the place that the others name */
        for (uint32_t k = 0; k < sources_of(item); k++) {
            const value *x =
                operands[k] == 'v' ? &s->vector[item->src[k]] : &s->mask[item->src[k]].x;
            if (x->kind == ENTERS) {
                number_record(s, r, x->base);
            }
        }
    }
    for (uint32_t i = 2; i < r->count; i++) {
        const step_node *n = &r->node[i];
        int64_t base = -1;
        uint32_t valid = 0;
        bool fits = n->item.op == item->op && n->item.imm == item->imm &&
                    n->item.imm2 == item->imm2 && !n->number;
        for (uint32_t k = 0; k < sources_of(item) && fits; k++) {
            fits = fits_node(s, r, item, k, operands[k] == 'm', n->source[k], &base, &valid);
        }
        if (fits && base >= 0) {
            content kind = r == &s->enters ? ENTERS : LEAVES;
            *result = (value){.kind = kind, .node = i, .base = base, .valid = valid};
            return true;
        }
    }
    return false;
}

/* Keys or tags of two vectors compared. */
static bool compare(sorting *s, const sx_item *item, mask *result)
{
    for (uint32_t what = KEY; what <= TAG && item->op == SX_LOP_ICMP; what++) {
        mask m = {.kind = what == TAG ? TAG_LARGER : item->imm == SX_EQ ? KEY_EQUAL : KEY_LARGER};
        if (as_wires(s, item->src[0], what, &m.x) && as_wires(s, item->src[1], what, &m.y) &&
            (what == KEY || item->imm == SX_GT)) {
            *result = m;
            return true;
        }
    }
    return false;
}

/* Both were compared where they are partners. */
static bool are_partners(const sorting *s, const mask *m)
{
    int64_t base;
    uint32_t flip;
    return m->x.level == m->y.level && m->x.level < s->stage_count &&
           partner_of(s, m->x.level, m->x.base, &base, &flip) && base == m->y.base &&
           (m->x.flip ^ m->y.flip) == flip;
}

static void join_masks(sorting *s, const sx_item *item)
{
    const mask *x = &s->mask[item->src[0]], *y = &s->mask[item->src[1]];
    mask *result = &s->mask[item->dst];
    const bool same = same_wires(&x->x, &y->x) && same_wires(&x->y, &y->y);
    if (item->op == SX_LOP_MAND && x->kind == KEY_EQUAL && y->kind == TAG_LARGER && same) {
        mask m = *x;
        m.kind = TIE;
        *result = m;
    } else if (item->op == SX_LOP_MOR && x->kind == KEY_LARGER && y->kind == TIE && same &&
               are_partners(s, x)) {
        mask m = *x;
        m.kind = LARGER;
        *result = m;
    } else if (item->op == SX_LOP_MXOR && x->kind == LARGER && y->kind == BITS) {
        mask m = *x;
        m.bits ^= y->bits;
        *result = m;
    } else {
        refuse_item(s, item, "no comparison of partners");
    }
}

static uint64_t all_lanes(const sorting *s)
{
    return (UINT64_C(1) << s->lanes) - 1;
}

/* The lanes whose number has the highest bit of `flip`. */
static uint64_t upper_lanes(const sorting *s, uint32_t flip)
{
    uint64_t bits = 0;
    for (uint32_t l = 0; l < s->lanes; l++) {
        bits |= (uint64_t)((l ^ flip) < l) << l;
    }
    return bits;
}

/* A choice between partners is what one of their wires becomes. */
static bool choose(sorting *s, const sx_item *item, value *result)
{
    const mask *m = &s->mask[item->src[0]];
    value x, y;
    for (uint32_t what = KEY; what <= TAG && m->kind == LARGER; what++) {
        if (!as_wires(s, item->src[1], what, &x) || !as_wires(s, item->src[2], what, &y)) {
            continue;
        }
        const bool least = same_wires(&x, &m->y) && same_wires(&y, &m->x);
        const bool most = same_wires(&x, &m->x) && same_wires(&y, &m->y);
        if (!least && !most) {
            return false;
        }
        const uint64_t larger = m->bits ^ (least ? 0 : all_lanes(s));
        value r = m->x;
        if (m->x.base != m->y.base) {
            const bool upper = larger == all_lanes(s);
            if (!upper && larger != 0) {
                return false;
            }
            r = (m->x.base > m->y.base) == upper ? m->x : m->y;
        } else {
            const uint32_t flip = m->x.flip ^ m->y.flip;
            uint64_t upper = upper_lanes(s, flip);
            upper ^= (m->x.flip ^ flip) < m->x.flip ? all_lanes(s) : 0;
            if (larger != upper) {
                return false;
            }
        }
        r.node = what;
        r.level++;
        *result = r;
        return true;
    }
    return false;
}

/* Behind the end of the row: the key that nothing is behind. */
static bool fill(sorting *s, const sx_item *item, value *result)
{
    const mask *m = &s->mask[item->src[0]];
    const value *x = &s->vector[item->src[1]], *last = &s->vector[item->src[2]];
    const uint64_t most = s->kernel->lane_bytes == 8 ? INT64_MAX : INT32_MAX;
    bool ok = m->kind == BITS && x->kind == ENTERS && x->node == s->enters.result[KEY] &&
              last->kind == NUMBERS && m->bits == (UINT64_C(1) << x->valid) - 1 &&
              x->base + s->lanes == s->padded;
    for (uint32_t l = 0; l < s->lanes && ok; l++) {
        ok = s->number[item->src[2]][l] == most;
    }
    *result = (value){.kind = WIRES, .node = KEY, .base = x->base, .valid = (uint32_t)s->lanes};
    return ok;
}

static bool all_numbers(const sorting *s, const sx_item *item)
{
    const char *operands = sx_lop_info_of(item->op)->operands;
    for (uint32_t k = 0, at = 0; operands[k] != '\0'; k++) {
        if (operands[k] == 'm' ||
            (operands[k] == 'v' && s->vector[item->src[at++]].kind != NUMBERS)) {
            return false;
        }
    }
    return true;
}

static bool numbers(sorting *s, const sx_item *item)
{
    uint64_t lane[SX_LOOP_LANES_MAX] = {0}, bits = 0;
    const uint32_t count = sources_of(item);
    for (uint32_t l = 0; l < s->lanes; l++) {
        uint64_t x = count > 0 ? s->number[item->src[0]][l] : 0;
        uint64_t y = count > 1 ? s->number[item->src[1]][l] : 0;
        if (item->op == SX_LOP_ICMP) {
            bool yes = item->imm == SX_EQ ? x == y : signed_of(s, x) > signed_of(s, y);
            bits |= (uint64_t)yes << l;
        } else if (!compute(s, item, l, x, y, &lane[l])) {
            return false;
        }
    }
    if (item->op == SX_LOP_ICMP) {
        s->mask[item->dst] = (mask){.kind = BITS, .bits = bits};
    } else {
        memcpy(s->number[item->dst], lane, sizeof(lane));
        s->vector[item->dst] = (value){.kind = NUMBERS};
    }
    return true;
}

/* The row begins at the first grid point; others are further on by its own length. */
static bool address_of(sorting *s, const sx_addr *a, const int64_t grid[3], int64_t *byte)
{
    bool ok = a->index_reg == SX_NO_REG;
    *byte = a->offset;
    for (uint32_t v = 0; v < SX_LOOP_VARS_MAX && ok; v++) {
        int64_t by;
        ok = v < 3 ? s->part->grid[v] == 1 || a->coef[v] == grid[v]
                   : sx_mul_i64(a->coef[v], s->at[v], &by) && sx_add_i64(*byte, by, byte);
    }
    if (!ok) {
        (void)sx_refuse(s->g, "an address that is not that of a row");
    }
    return ok;
}

/* Lanes of an element each, `step` bytes apart. */
static bool fits_row(const sx_item *item, int64_t step, uint32_t bytes)
{
    bool strided = item->op == SX_LOP_LOADS || item->op == SX_LOP_STORES;
    return strided ? item->imm2 == step : step == bytes;
}

static void load_elements(sorting *s, const sx_item *item, const sx_addr *a)
{
    const uint32_t bytes = sx_dtype_bytes(s->dtype);
    const int64_t step = s->inner * bytes, grid[3] = {s->elements * step, bytes, 0};
    int64_t byte;
    if (!address_of(s, a, grid, &byte)) {
        return;
    }
    int64_t base = byte / step;
    bool ok = byte % step == 0 && base >= 0 && base % s->lanes == 0 && base < s->elements &&
              item->imm == sx_min_i64(s->lanes, s->elements - base) &&
              fits_row(item, step, bytes) && item->op != SX_LOP_LOADB &&
              item->mem == sx_loop_mem(s->dtype, s->kernel->lane_bytes);
    s->vector[item->dst] = (value){.kind = ENTERS, .node = 0, .base = base, .valid = item->imm};
    if (!ok) {
        refuse_item(s, item, "these are no elements of the row");
    }
}

/* The place of the keys or tags from a byte of the workspace on: a vector, or a single one that is loaded. */
static bool place_of(sorting *s, const sx_item *item, const sx_addr *a, uint32_t *what,
                     int64_t *place)
{
    static const int64_t still[3] = {0};
    const int64_t size = s->kernel->lane_bytes;
    int64_t byte;
    if (!address_of(s, a, still, &byte)) {
        return false;
    }
    *place = byte / size;
    *what = *place >= s->padded ? TAG : KEY;
    *place -= *what == TAG ? s->padded : 0;
    bool vector = item->imm == s->lanes && *place % s->lanes == 0;
    bool plain =
        item->op == SX_LOP_STORE ? vector : item->op == SX_LOP_LOAD && (vector || item->imm == 1);
    if (!plain || byte < 0 || byte % size != 0 || *place >= s->padded || item->mem != SX_MEM_LANE) {
        refuse_item(s, item, "no vector of pairs");
        return false;
    }
    return true;
}

static void load_pairs(sorting *s, const sx_item *item, const sx_addr *a)
{
    uint32_t what;
    int64_t place;
    if (!place_of(s, item, a, &what, &place)) {
        return;
    }
    const uint32_t held = s->held[what][place / s->lanes];
    if (held == 0) {
        refuse_item(s, item, "a pair that is not there yet");
        return;
    }
    s->vector[item->dst] =
        (value){.kind = WIRES, .node = what, .level = held - 1, .base = place, .valid = item->imm};
}

static void store_pairs(sorting *s, const sx_item *item, const sx_addr *a)
{
    uint32_t what;
    int64_t place;
    value x;
    if (!place_of(s, item, a, &what, &place)) {
        return;
    }
    if (!as_wires(s, item->src[0], what, &x) || x.base != place || x.flip != 0) {
        refuse_item(s, item, "a wire at the place of another one");
        return;
    }
    s->held[what][place / s->lanes] = (uint16_t)(x.level + 1);
}

static void store_result(sorting *s, const sx_item *item, const sx_addr *a)
{
    const uint32_t bytes = s->places ? 8 : sx_dtype_bytes(s->dtype);
    const int64_t step = s->inner * bytes, grid[3] = {s->count * step, bytes, 0};
    const bool halves = s->places && s->kernel->lane_bytes == 4;
    int64_t byte;
    if (!address_of(s, a, grid, &byte)) {
        return;
    }
    const bool upper = halves && byte % step == 4;
    byte -= upper ? 4 : 0;
    const int64_t base = byte / step, rest = s->count - base;
    const bool vector = base % s->lanes == 0 && item->imm == sx_min_i64(s->lanes, rest);
    sx_mem mem = s->places ? SX_MEM_LANE : sx_loop_mem(s->dtype, s->kernel->lane_bytes);
    bool ok = byte >= 0 && byte % step == 0 && rest > 0 && (vector || item->imm == 1) &&
              item->mem == mem && (item->imm == 1 || fits_row(item, step, halves ? 4 : bytes));
    int64_t found = base;
    uint32_t valid = 0, node = s->leaves.result[KEY];
    if (upper) {
        ok = ok && s->vector[item->src[0]].kind == NUMBERS;
        for (uint32_t l = 0; l < s->lanes && ok; l++) {
            ok = s->number[item->src[0]][l] == 0;
        }
    } else {
        ok = ok && fits_node(s, &s->leaves, item, 0, false, node, &found, &valid) &&
             item->imm <= valid;
    }
    if (!ok) {
        refuse_item(s, item, "not what belongs in the result");
        return;
    }
    for (int64_t k = base; k < base + item->imm; k++) {
        s->done[k] |= upper ? 2 : 1;
    }
}

static void access(sorting *s, const sx_item *item)
{
    const sx_addr *a = &s->part->addr[item->addr];
    const bool stores = sx_lop_info_of(item->op)->result == '-';
    if (a->buffer == 0 && !stores) {
        load_elements(s, item, a);
    } else if (a->buffer == 1 && stores) {
        store_result(s, item, a);
    } else if (a->buffer == 2) {
        (stores ? store_pairs : load_pairs)(s, item, a);
    } else {
        refuse_item(s, item, "no access of a sort");
    }
}

/* Integers that loops count. */
static bool scalars(sorting *s, const sx_item *item)
{
    int64_t x = 0, y = 0, *result = &s->scalar[item->dst];
    const char *operands = sx_lop_info_of(item->op)->operands;
    x = operands[0] == 's' ? s->scalar[item->src[0]] : 0;
    y = operands[0] == 's' && operands[1] == 's' ? s->scalar[item->src[1]] : 0;
    switch ((int)item->op) {
    case SX_LOP_SVAR: *result = s->at[item->imm]; return item->imm >= 3;
    case SX_LOP_SMUL: return sx_mul_i64(x, item->imm2, result);
    case SX_LOP_SOFF: return sx_add_i64(x, item->imm2, result);
    case SX_LOP_SADD: return sx_add_i64(x, y, result);
    }
    return false;
}

static void execute(sorting *s, const sx_item *item)
{
    const sx_lop_info *info = sx_lop_info_of(item->op);
    value made = {0};
    mask compared = {0};
    if (item->op == SX_LOP_PREFETCH) {
        return;
    }
    if (info->operands[0] == 'A') {
        access(s, item);
    } else if (info->result == 's') {
        if (!scalars(s, item)) {
            refuse_item(s, item, "an integer that no loop counts");
        }
    } else if (item->op == SX_LOP_S2V) {
        for (uint32_t l = 0; l < s->lanes; l++) {
            s->number[item->dst][l] = cut(s, (uint64_t)s->scalar[item->src[0]]);
        }
        s->vector[item->dst] = (value){.kind = NUMBERS};
    } else if (item->op == SX_LOP_MAND || item->op == SX_LOP_MOR || item->op == SX_LOP_MXOR) {
        join_masks(s, item);
    } else if (item->op == SX_LOP_SWAP) {
        value x;
        bool ok = as_wires(s, item->src[0], KEY, &x) || as_wires(s, item->src[0], TAG, &x);
        x.flip ^= item->imm;
        s->vector[item->dst] = x;
        if (!ok) {
            refuse_item(s, item, "no pairs");
        }
    } else if (all_numbers(s, item) && numbers(s, item)) {
        return;
    } else if (item->op == SX_LOP_ICMP && compare(s, item, &compared)) {
        s->mask[item->dst] = compared;
    } else if (item->op == SX_LOP_BLEND && choose(s, item, &made)) {
        s->vector[item->dst] = made;
    } else if (is_step(s, &s->enters, item, &made) || is_step(s, &s->leaves, item, &made)) {
        if (info->result == 'm') {
            s->mask[item->dst] = (mask){.kind = STEP, .x = made};
        } else {
            s->vector[item->dst] = made;
        }
    } else if (item->op == SX_LOP_BLEND && fill(s, item, &made)) {
        s->vector[item->dst] = made;
    } else {
        refuse_item(s, item, "no step of a sort");
    }
}

/* More steps than the network has comparisons for. */
static int64_t steps_max(const sorting *s)
{
    return 1000 + 100 * (s->padded / s->lanes) * (s->stage_count + 8);
}

static void run(sorting *s)
{
    const sx_part *part = s->part;
    uint32_t open[SX_LOOP_VARS_MAX] = {0}, depth = 0;
    int64_t left = steps_max(s);
    for (uint32_t i = 0; i < part->item_count && !s->g->refused; i++) {
        const sx_item *item = &part->item[i];
        if (left-- == 0 || (item->kind == SX_ITEM_LOOP && item->any_trip)) {
            (void)sx_refuse(s->g, "more steps than a sort has");
        } else if (item->kind == SX_ITEM_LOOP) {
            open[depth++] = i;
            s->at[item->dst] = 0;
        } else if (item->kind == SX_ITEM_OP) {
            execute(s, item);
        } else if (++s->at[item->dst] < part->item[open[depth - 1]].trip) {
            i = open[depth - 1];
        } else {
            s->at[item->dst] = 0;
            depth--;
        }
    }
    const uint8_t all = s->places && s->kernel->lane_bytes == 4 ? 3 : 1;
    for (int64_t k = 0; k < s->count && !s->g->refused; k++) {
        if (s->done[k] != all) {
            (void)sx_refuse(s->g, "place %lld is not stored", (long long)k);
        }
    }
}

static bool make_tables(sorting *s)
{
    sx_ctx *cx = s->j->cx;
    const size_t vectors = (size_t)s->part->vector_count, slots = (size_t)(s->padded / s->lanes);
    s->vector = SX_NEW_ARRAY(cx, value, vectors + 1);
    s->number = sx_alloc(cx, (vectors + 1) * sizeof(*s->number));
    s->mask = SX_NEW_ARRAY(cx, mask, (size_t)s->part->mask_count + 1);
    s->scalar = SX_NEW_ARRAY(cx, int64_t, (size_t)s->part->scalar_count + 1);
    s->held[KEY] = SX_NEW_ARRAY(cx, uint16_t, slots);
    s->held[TAG] = SX_NEW_ARRAY(cx, uint16_t, slots);
    s->done = SX_NEW_ARRAY(cx, uint8_t, (size_t)s->count);
    return cx->error.code == SX_OK;
}

static void describe(sorting *s, sx_judge *j, const sx_attr *attr, const sx_type *x,
                     const sx_type *result, const sx_kernel *kernel)
{
    s->j = j;
    s->g = &j->algebra;
    s->kernel = kernel;
    s->part = &kernel->part[0];
    s->dtype = x->dtype;
    s->falls = attr->direction == SX_GT;
    s->places = attr->result == 1;
    s->lanes = kernel->lanes;
    s->elements = x->dim[attr->axis].scale;
    s->count = result->dim[attr->axis].scale;
    s->padded = (s->elements + s->lanes - 1) / s->lanes * s->lanes;
    s->outer = s->inner = s->run = 1;
    for (uint32_t d = 0; d < x->rank; d++) {
        s->outer *= (int64_t)d < attr->axis ? x->dim[d].scale : 1;
        s->inner *= (int64_t)d > attr->axis ? x->dim[d].scale : 1;
    }
    while (s->run < s->count || s->run < s->lanes) {
        s->run *= 2;
    }
}

sx_code sx_judge_sort(sx_judge *j, const sx_attr *attr, const sx_type *input, const sx_type *result,
                      const sx_kernel *kernel, sx_verdict *verdict)
{
    sorting *s = SX_NEW(j->cx, sorting);
    if (s == NULL) {
        return j->cx->error.code;
    }
    SX_TRY(sx_prove_begin(j, kernel, verdict));
    if (!sx_type_is_static(input) || kernel->part_count != 1 || kernel->part[0].tile != NULL ||
        input->dim[attr->axis].scale > SX_SORT_NETWORK_MAX) {
        return SX_FAIL(j->cx, SX_INPUT, "sort: shape is symbolic or too large");
    }
    describe(s, j, attr, input, result, kernel);
    const int64_t size[] = {sx_tensor_elements(input) * sx_dtype_bytes(input->dtype),
                            sx_tensor_elements(result) * sx_dtype_bytes(result->dtype)};
    const int64_t *grid = s->part->grid;
    bool ok = sx_prove_buffers(s->g, kernel, 1, 1, size);
    if (ok && (grid[0] != s->outer || grid[1] != s->inner || grid[2] != 1)) {
        (void)sx_refuse(s->g, "grid points are not the rows");
    }
    make_network(s);
    make_records(s);
    if (!s->g->refused) {
        number_record(s, &s->leaves, -1);
        if (!make_tables(s)) {
            return j->cx->error.code;
        }
        run(s);
    }
    if (j->cx->error.code != SX_OK) {
        return j->cx->error.code;
    }
    verdict->proven = !s->g->refused;
    if (s->g->refused) {
        (void)snprintf(verdict->text, sizeof(verdict->text), "not proven: %s", s->g->why);
        return SX_OK;
    }
    (void)snprintf(verdict->text, sizeof(verdict->text),
                   "program proven: a sorting network of %u stages on pairs that are all "
                   "different, each place of the result once, grid points independent",
                   s->stage_count);
    return SX_OK;
}
