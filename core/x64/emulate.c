#include "core/x64/emulate.h"

#include <string.h>

#include "core/x64/uop.h"

#define STACK_MAX ((size_t)1 << 20)       /* what the verifier lets an entry use */
#define STACK_ABOVE 4096U                 /* of the caller */
#define REGION_SHIFT 48                   /* one region in each 2^48 bytes of addresses */
#define REGION_MIDDLE (UINT64_C(1) << 47) /* where it begins */
#define SLICE 4096U                       /* instructions between two looks at the fuel */
#define RETURN_ADDRESS UINT64_C(0x5EA1ED0000000001)
#define NO_UOP UINT32_MAX

/* Regions of every call, in front of the buffers. */
enum {
    REGION_CODE = 1,
    REGION_STACK,
    REGION_POINTERS,
    REGION_INDEX,
    REGION_WORKSPACE,
    REGION_BUFFERS
};

typedef enum {
    STEP_GENERAL,
    STEP_JUMP,
    STEP_STACK,
    STEP_VECTOR,
    STEP_MASKMOVE,
    STEP_MASK,
    STEP_NOTHING
} step_kind;

static const struct {
    uint8_t step, sources, from;
} micros[SX_MICRO_COUNT] = {
#define SX_X64_MICRO(name, step, sources, from, meaning) {STEP_##step, sources, SX_ELEMENT_##from},
#include "core/x64/micro.def"
#undef SX_X64_MICRO
};

struct sx_x64_emulator {
    sx_span blob;
    sx_x64_uop *uop;
    uint32_t uop_count, uop_capacity;
    uint32_t *at; /* by offset in the blob: micro-operation that begins there + 1, 0 none */
    uint8_t *stack;
    size_t stack_bytes;
    sx_x64_work work;
    const int64_t *number; /* behind the index */
    uint32_t number_count;
};

typedef struct {
    sx_ctx *cx;
    sx_x64_emulator *e;
    const sx_x64_uop *u; /* that runs: for errors */
    sx_x64_vector vector[32];
    uint64_t mask[8];
    uint64_t general[16];
    sx_x64_flags flags;
    bool returned;
    bool failed;
    uint32_t region_count;
    sx_region region[REGION_BUFFERS + SX_REGIONS_MAX];
} machine;

/* ---- decoding ---- */

static uint64_t region_address(uint32_t region)
{
    return ((uint64_t)region << REGION_SHIFT) + REGION_MIDDLE;
}

static sx_x64_place_of place_of(const sx_x64_form *form, uint32_t index, uint32_t length,
                                const sx_x64_insn *insn, uint32_t offset)
{
    const sx_x64_arg *arg = &insn->arg[index];
    sx_x64_place_of p = {.kind = arg->kind, .reg = arg->reg, .index = SX_X64_NO_REG};
    if (arg->kind == SX_X64_IMM) {
        p.disp = (uint64_t)arg->imm;
    } else if (arg->kind == SX_X64_MEM) {
        uint32_t bytes = sx_x64_spec_mem(sx_x64_form_spec(form, index), length);
        p.broadcast = arg->broadcast;
        p.bytes = (uint8_t)(arg->broadcast ? sx_x64_form_broadcast(form) : bytes);
        p.disp = (uint64_t)(int64_t)arg->disp;
        if (arg->reg == SX_X64_RIP) {
            p.disp += region_address(REGION_CODE) + offset + insn->len;
        } else {
            p.based = true;
            p.index = arg->index;
            p.shift = (uint8_t)__builtin_ctz(arg->scale);
        }
    }
    return p;
}

static bool reads_result(const sx_x64_uop *u)
{
    return u->micro == SX_MICRO_FMADD || u->micro == SX_MICRO_FMSUB ||
           u->micro == SX_MICRO_FNMADD || u->micro == SX_MICRO_TERNARY ||
           u->variant == SX_VARIANT_TWO_TABLES;
}

static bool is_one(const sx_x64_uop *u)
{
    return u->variant == SX_VARIANT_ONE || u->variant == SX_VARIANT_ONE_132 ||
           u->variant == SX_VARIANT_ONE_213 || u->variant == SX_VARIANT_ONE_231;
}

/* Vector sources that a row must have for its meaning to make sense. */
static uint32_t needed_sources(const sx_x64_uop *u)
{
    bool one = u->variant == SX_VARIANT_BY_IMMEDIATE || u->micro == SX_MICRO_PICK;
    bool two = u->micro == SX_MICRO_LOOK && u->variant != SX_VARIANT_TWO_TABLES;
    return one ? 1 : two ? 2 : micros[u->micro].sources;
}

/* Which sources are a, b, c: in order, from the one that the micro-operation begins with; the multiply-adds
 * say it themselves. */
static void order_sources(sx_x64_uop *u)
{
    uint32_t wanted = micros[u->micro].sources;
    uint32_t first = u->source_count > wanted ? u->source_count - wanted : 0;
    for (uint32_t j = 0; j < 3; j++) {
        u->order[j] = (uint8_t)(first + j < u->source_count ? first + j : 0);
    }
    if (u->micro == SX_MICRO_PICK) {
        u->order[1] = (uint8_t)(u->source_count - 1);
    }
    static const uint8_t order[3][3] = {{0, 2, 1}, {1, 0, 2}, {1, 2, 0}};
    for (uint32_t k = 0; k < 3 && u->source_count == 3; k++) {
        if (u->variant == SX_VARIANT_O132 + k || u->variant == SX_VARIANT_ONE_132 + k) {
            memcpy(u->order, order[k], sizeof(u->order));
        }
    }
}

static uint32_t result_bytes(const sx_x64_place_of *p)
{
    return p->kind == SX_X64_MEM                            ? p->bytes
           : p->kind >= SX_X64_XMM && p->kind <= SX_X64_ZMM ? 16U << (p->kind - SX_X64_XMM)
                                                            : 16U;
}

/* Lanes, sources and places of a vector micro-operation; false when lanes.def has no formula for it. */
static bool resolve_vector(sx_x64_uop *u, uint32_t length)
{
    sx_x64_element from = (sx_x64_element)micros[u->micro].from;
    from = from == SX_ELEMENT_NO ? (sx_x64_element)u->element : from;
    u->size = (uint8_t)sx_x64_element_bytes((sx_x64_element)u->element);
    u->from_size = (uint8_t)sx_x64_element_bytes(from);
    uint32_t first = reads_result(u) ? 0 : 1;
    for (uint32_t i = first; i < u->arg_count; i++) {
        if (u->arg[i].kind == SX_X64_IMM) {
            u->imm = (uint8_t)u->arg[i].disp;
        } else if (u->source_count < SX_COUNT(u->source)) {
            u->source[u->source_count++] = (uint8_t)i;
        }
    }
    bool fixed = u->arg[u->arg_count - 1].kind == SX_X64_IMM;
    if (u->micro == SX_MICRO_LOOK && u->variant == SX_VARIANT_WITHIN &&
        fixed) { /* the places stand in the immediate */
        u->micro = SX_MICRO_PICK;
    }
    u->lane = sx_x64_lane_of((sx_x64_micro)u->micro, (sx_x64_element)u->element);
    bool places = (u->variant >= SX_VARIANT_FIRST && u->variant <= SX_VARIANT_INSERT_ZERO) ||
                  u->variant == SX_VARIANT_WITHIN;
    bool looks = u->element == SX_ELEMENT_U8
                     ? u->variant == SX_VARIANT_WITHIN
                     : u->variant >= SX_VARIANT_WITHIN && u->variant <= SX_VARIANT_TWO_TABLES;
    if ((u->micro == SX_MICRO_PICK && !places) || (u->micro == SX_MICRO_LOOK && !looks)) {
        return false;
    }
    if (u->size == 0 || u->lane == NULL || u->source_count < needed_sources(u)) {
        return false;
    }
    uint32_t widest = u->size > u->from_size ? u->size : u->from_size;
    u->lanes = (uint8_t)(is_one(u) ? 1U : (16U << length) / widest);
    order_sources(u);
    if (u->micro == SX_MICRO_PICK) {
        u->lanes = (uint8_t)(result_bytes(&u->arg[0]) / u->size);
        if (u->lanes < 2 && u->variant != SX_VARIANT_FIRST && u->variant != SX_VARIANT_EXTRACT_1) {
            return false;
        }
        u->from_size = (uint8_t)result_bytes(&u->arg[u->source[0]]);
        sx_x64_pick_places(u, u->lanes, u->arg[u->source[u->source_count - 1]].kind == SX_X64_MEM);
        u->whole = true;
    }
    u->whole = u->whole || u->micro == SX_MICRO_LOOK;
    return true;
}

static bool resolve(sx_x64_uop *u, const sx_x64_meaning *meaning, const sx_x64_insn *insn)
{
    const sx_x64_form *form = &sx_x64_forms[insn->form];
    uint32_t length = 0;
    if (!sx_x64_form_match(form, insn, &length)) {
        return false;
    }
    u->micro = meaning->micro;
    u->element = meaning->element;
    u->variant = meaning->variant;
    u->arg_count = insn->arg_count;
    u->mask = insn->arg_count > 0 ? insn->arg[0].mask : 0;
    u->zero = insn->arg_count > 0 && insn->arg[0].zero;
    for (uint32_t i = 0; i < insn->arg_count; i++) {
        u->arg[i] = place_of(form, i, length, insn, u->offset);
    }
    u->general = sx_x64_general_of((sx_x64_micro)u->micro);
    switch ((step_kind)micros[u->micro].step) {
    case STEP_VECTOR:
    case STEP_MASKMOVE: return u->arg_count > 1 && resolve_vector(u, length);
    case STEP_GENERAL: return u->general != NULL && u->arg_count > 0;
    case STEP_JUMP:
    case STEP_STACK:
    case STEP_MASK:
    case STEP_NOTHING: return true;
    }
    return false;
}

typedef struct {
    sx_ctx *cx;
    sx_x64_emulator *e;
    const sx_x64_meaning *meaning;
    uint32_t *work; /* offsets still to be decoded */
    uint32_t work_count;
    uint64_t stack; /* bytes that all instructions together take */
    sx_x64_decoder decoder;
} decoding;

static uint32_t slot_for(decoding *d, uint64_t offset)
{
    sx_x64_emulator *e = d->e;
    if (e->at[offset] == 0) {
        e->at[offset] = ++e->uop_count;
        d->work[d->work_count++] = (uint32_t)offset; // an offset is queued once: room for all
    }
    return e->at[offset] - 1;
}

/* Bytes that an instruction moves rsp down. Loops are back at their depth, so that the sum over all is enough
 * for any path. */
static uint64_t stack_taken(const sx_x64_insn *insn)
{
    bool moves = (insn->op == SX_X64_SUB || insn->op == SX_X64_ADD) &&
                 insn->arg[0].kind == SX_X64_R64 && insn->arg[0].reg == SX_RSP &&
                 insn->arg[1].kind == SX_X64_IMM;
    int64_t imm = moves ? insn->arg[1].imm : 0;
    int64_t down = insn->op == SX_X64_PUSH ? 8 : insn->op == SX_X64_SUB ? imm : -imm;
    return (uint64_t)sx_min_i64(sx_max_i64(down, 0), (int64_t)STACK_MAX);
}

static sx_code decode_at(decoding *d, uint32_t offset)
{
    sx_x64_emulator *e = d->e;
    sx_x64_uop u = {.offset = offset, .next = NO_UOP, .target = NO_UOP};
    sx_x64_insn insn;
    sx_span rest = {e->blob.ptr + offset, e->blob.len - offset};
    if (!sx_x64_decode(&d->decoder, rest, &insn)) {
        return SX_FAIL(d->cx, SX_INPUT, "machine code at offset %u: no listed instruction", offset);
    }
    if (!resolve(&u, &d->meaning[insn.op], &insn)) {
        return SX_FAIL(d->cx, SX_INPUT, "machine code at offset %u: %s has no meaning", offset,
                       sx_x64_op_text(insn.op));
    }
    uint64_t next = (uint64_t)offset + insn.len;
    bool jumps = insn.arg_count == 1 && insn.arg[0].kind == SX_X64_LABEL;
    uint64_t target = next + (uint64_t)(int64_t)insn.arg[0].disp;
    bool falls = insn.op != SX_X64_RET && insn.op != SX_X64_JMP;
    if ((falls && next >= e->blob.len) || (jumps && target >= e->blob.len)) {
        return SX_FAIL(d->cx, SX_INPUT, "machine code at offset %u: control leaves the code",
                       offset);
    }
    d->stack += stack_taken(&insn);
    uint32_t slot = e->at[offset] - 1;
    u.next = falls ? slot_for(d, next) : NO_UOP;
    u.target = jumps ? slot_for(d, target) : NO_UOP;
    SX_TRY(
        sx_region_grow(d->cx, (void **)&e->uop, &e->uop_capacity, e->uop_count, sizeof(*e->uop)));
    e->uop[slot] = u;
    return SX_OK;
}

sx_code sx_x64_emulator_make(sx_ctx *cx, sx_span blob, const uint32_t *entry, uint32_t entry_count,
                             const sx_x64_meaning *meaning, sx_x64_emulator **emulator)
{
    if (blob.len > SX_X64_BLOB_MAX) {
        return SX_FAIL(cx, SX_LIMIT, "machine code: %zu bytes, at most %zu", blob.len,
                       SX_X64_BLOB_MAX);
    }
    decoding *d = SX_NEW(cx, decoding);
    sx_x64_emulator *e = SX_NEW(cx, sx_x64_emulator);
    if (d == NULL || e == NULL) {
        return cx->error.code;
    }
    *d = (decoding){.cx = cx, .e = e, .meaning = meaning};
    e->blob = blob;
    e->at = SX_NEW_ARRAY(cx, uint32_t, blob.len + 1);
    d->work = SX_NEW_ARRAY(cx, uint32_t, blob.len + 1);
    if (e->at == NULL || d->work == NULL) {
        return cx->error.code;
    }
    sx_x64_decoder_init(&d->decoder);
    for (uint32_t i = 0; i < entry_count; i++) {
        if (entry[i] >= blob.len) {
            return SX_FAIL(cx, SX_INPUT, "machine code: entry %u of %zu bytes", entry[i], blob.len);
        }
        (void)slot_for(d, entry[i]);
        while (d->work_count > 0) {
            SX_TRY(decode_at(d, d->work[--d->work_count]));
        }
    }
    e->stack_bytes = (size_t)(d->stack < STACK_MAX ? d->stack : STACK_MAX) + 2 * STACK_ABOVE;
    e->stack_bytes = (e->stack_bytes + 63) & ~(size_t)63;
    e->stack = SX_NEW_ARRAY(cx, uint8_t, e->stack_bytes);
    *emulator = e;
    return e->stack != NULL ? SX_OK : cx->error.code;
}

/* ---- memory ---- */

static void fail(machine *m, const char *what)
{
    if (!m->failed) {
        m->failed = true;
        (void)SX_FAIL(m->cx, SX_INPUT, "machine code at offset %u: %s", m->u->offset, what);
    }
}

/* Where `bytes` bytes at an address lie, or NULL: the access is refused. */
static uint8_t *reach(machine *m, uint64_t address, uint32_t bytes, bool store)
{
    uint64_t number = address >> REGION_SHIFT;
    int64_t at = (int64_t)(address & ((UINT64_C(1) << REGION_SHIFT) - 1)) - (int64_t)REGION_MIDDLE;
    const sx_region *r = number < m->region_count ? &m->region[number] : NULL;
    if (r != NULL && at >= 0 && (uint64_t)at + bytes <= r->size && (!store || r->writable)) {
        if (store && r->touched != NULL) {
            memset(r->touched + at, 1, bytes);
        }
        return r->memory + at;
    }
    if (!m->failed) {
        m->failed = true;
        const char *verb = store ? "store" : "load";
        if (r == NULL || r->name == NULL) {
            (void)SX_FAIL(m->cx, SX_INPUT,
                          "machine code at offset %u: %s of %u bytes at address %#llx, which is in "
                          "no region",
                          m->u->offset, verb, bytes, (unsigned long long)address);
        } else {
            (void)SX_FAIL(m->cx, SX_INPUT,
                          "machine code at offset %u: %s of %u bytes at byte %lld of %s, which has "
                          "%llu%s",
                          m->u->offset, verb, bytes, (long long)at, r->name,
                          (unsigned long long)r->size, r->writable ? "" : " and is read only");
        }
    }
    return NULL;
}

static uint64_t address_of(const machine *m, const sx_x64_place_of *p)
{
    uint64_t address = p->disp + (p->based ? m->general[p->reg] : 0);
    return p->index == SX_X64_NO_REG ? address : address + (m->general[p->index] << p->shift);
}

static void load(machine *m, uint64_t address, void *to, uint32_t bytes)
{
    const uint8_t *p = reach(m, address, bytes, false);
    if (p != NULL) {
        memcpy(to, p, bytes);
    }
}

static void store(machine *m, uint64_t address, const void *from, uint32_t bytes)
{
    uint8_t *p = reach(m, address, bytes, true);
    if (p != NULL) {
        memcpy(p, from, bytes);
    }
}

/* ---- general registers ---- */

static uint32_t bits_of(const sx_x64_place_of *p)
{
    return p->kind == SX_X64_R32 ? 32 : p->kind == SX_X64_MEM ? p->bytes * 8U : 64;
}

static uint64_t get_general(machine *m, const sx_x64_place_of *p)
{
    uint64_t value = 0;
    switch ((sx_x64_kind)p->kind) {
    case SX_X64_R64: return m->general[p->reg];
    case SX_X64_R32: return m->general[p->reg] & UINT32_MAX;
    case SX_X64_IMM: return p->disp;
    case SX_X64_K: return m->mask[p->reg];
    case SX_X64_MEM: load(m, address_of(m, p), &value, p->bytes); return value;
    default: return 0;
    }
}

static void put_general(machine *m, const sx_x64_place_of *p, uint64_t value)
{
    if (p->kind == SX_X64_MEM) {
        store(m, address_of(m, p), &value, p->bytes);
    } else if (p->kind == SX_X64_K) {
        m->mask[p->reg] = value;
    } else {
        m->general[p->reg] = p->kind == SX_X64_R32 ? value & UINT32_MAX : value;
    }
}

static bool holds(machine *m, const sx_x64_uop *u)
{
    bool defined;
    bool result = sx_x64_condition(&m->flags, (sx_x64_variant)u->variant, &defined);
    if (!defined) {
        fail(m, "reads a flag that is not defined");
    }
    return result;
}

static void step_general(machine *m, const sx_x64_uop *u)
{
    const sx_x64_place_of *to = &u->arg[0];
    uint32_t last = u->arg_count - 1U;
    bool address = u->micro == SX_MICRO_GADDRESS;
    uint64_t b = address ? address_of(m, &u->arg[last]) : get_general(m, &u->arg[last]);
    bool copies = last == 1 &&
                  (u->general == sx_x64_general_of(SX_MICRO_GMOV) || u->micro == SX_MICRO_GEXTEND);
    uint64_t a = copies ? 0 : last == 0 ? b : get_general(m, &u->arg[last - 1]);
    if (m->failed) {
        return;
    }
    if (u->micro == SX_MICRO_GSELECT && !holds(m, u)) {
        b = get_general(m, to);
    }
    uint32_t bits = bits_of(to);
    b = bits == 32 ? b & UINT32_MAX : b;
    uint64_t result = u->general(u, &m->flags, a, b, bits);
    if (u->micro != SX_MICRO_GCMP && u->micro != SX_MICRO_GTEST) {
        put_general(m, to, result);
    }
}

static void step_stack(machine *m, const sx_x64_uop *u)
{
    uint64_t value = 0;
    uint64_t *rsp = &m->general[SX_RSP];
    if (u->micro == SX_MICRO_GPUSH) {
        value = get_general(m, &u->arg[0]);
        *rsp -= 8;
        store(m, *rsp, &value, sizeof(value));
        return;
    }
    load(m, *rsp, &value, sizeof(value));
    *rsp += 8;
    if (u->micro == SX_MICRO_GPOP) {
        put_general(m, &u->arg[0], value);
    } else if (value != RETURN_ADDRESS) {
        fail(m, "returns to an address that is not the caller's");
    } else {
        m->returned = true;
    }
}

/* Zero upper: bits from 128 on; the others of this kind do nothing. */
static void step_nothing(machine *m, const sx_x64_uop *u)
{
    for (uint32_t i = 0; i < 16 && u->micro == SX_MICRO_ZEROUPPER; i++) {
        memset(&m->vector[i].u8[16], 0, sizeof(sx_x64_vector) - 16);
    }
}

static void step_mask(machine *m, const sx_x64_uop *u)
{
    uint64_t b = get_general(m, &u->arg[u->arg_count - 1]) & UINT16_MAX;
    uint64_t a = get_general(m, &u->arg[u->arg_count - 2]) & UINT16_MAX;
    uint64_t r = b;
    switch (u->micro) {
    case SX_MICRO_KAND: r = a & b; break;
    case SX_MICRO_KANDN: r = ~a & b; break;
    case SX_MICRO_KOR: r = a | b; break;
    case SX_MICRO_KXOR: r = a ^ b; break;
    case SX_MICRO_KXNOR: r = ~(a ^ b); break;
    case SX_MICRO_KNOT: r = ~b; break;
    default: break;
    }
    put_general(m, &u->arg[0], r & UINT16_MAX);
}

/* ---- vectors ---- */

static void repeat(sx_x64_vector *v, uint32_t bytes)
{
    for (uint32_t at = bytes; at < sizeof(*v); at += bytes) {
        memcpy(&v->u8[at], v->u8, bytes);
    }
}

static void load_lanes(machine *m, uint64_t address, sx_x64_vector *to, uint32_t size,
                       uint32_t lanes, uint64_t active)
{
    for (uint32_t i = 0; i < lanes; i++) {
        if ((active >> i & 1) != 0) {
            load(m, address + (uint64_t)i * size, &to->u8[i * size], size);
        }
    }
}

/* Source j: the register itself, or `room` filled from memory or a general register. */
static const sx_x64_vector *source(machine *m, const sx_x64_uop *u, uint32_t j, uint64_t active,
                                   sx_x64_vector *room)
{
    const sx_x64_place_of *p = &u->arg[u->source[j]];
    if (p->kind >= SX_X64_XMM && p->kind <= SX_X64_ZMM) {
        return &m->vector[p->reg];
    }
    memset(room, 0, sizeof(*room));
    if (p->kind != SX_X64_MEM) {
        room->u64[0] = get_general(m, p);
        return room;
    }
    uint64_t address = address_of(m, p);
    if (u->variant == SX_VARIANT_ALIGNED && address % p->bytes != 0) {
        fail(m, "aligned access to an address that is not");
    }
    bool single = p->broadcast || u->variant == SX_VARIANT_FIRST;
    if (single && active != 0) {
        load(m, address, room, p->bytes);
        if (p->broadcast) {
            repeat(room, p->bytes);
        }
    } else if (!single && (u->whole || u->mask == 0)) {
        load(m, address, room, p->bytes);
    } else if (!single) {
        load_lanes(m, address, room, u->from_size, u->lanes, active);
    }
    return room;
}

static void store_lanes(machine *m, const sx_x64_uop *u, const sx_x64_place_of *to,
                        const sx_x64_vector *result, uint64_t active)
{
    uint64_t address = address_of(m, to);
    if (u->variant == SX_VARIANT_ALIGNED && address % to->bytes != 0) {
        fail(m, "aligned access to an address that is not");
        return;
    }
    uint64_t all = u->lanes == 64 ? UINT64_MAX : (UINT64_C(1) << u->lanes) - 1;
    if ((active & all) == all) {
        store(m, address, result, (uint32_t)u->lanes * u->size);
        return;
    }
    if (u->whole && reach(m, address, (uint32_t)u->lanes * u->size, true) == NULL) {
        return;
    }
    for (uint32_t i = 0; i < u->lanes; i++) {
        if ((active >> i & 1) != 0) {
            store(m, address + (uint64_t)i * u->size, &result->u8[i * u->size], u->size);
        }
    }
}

static uint64_t lane_bits(const sx_x64_uop *u, const sx_x64_vector *v)
{
    uint64_t bits = 0;
    for (uint32_t i = 0; i < u->lanes; i++) {
        bits |= (uint64_t)(v->u8[(i + 1) * u->size - 1] >> 7) << i;
    }
    return bits;
}

/* The result into its register, where lanes out of the mask stay (or come from `stay`) or become zero, or into
 * memory. */
static void put_result(machine *m, const sx_x64_uop *u, sx_x64_vector *result,
                       const sx_x64_vector *stay, uint64_t active)
{
    const sx_x64_place_of *to = &u->arg[0];
    if (to->kind == SX_X64_MEM) {
        store_lanes(m, u, to, result, active);
    } else if (to->kind == SX_X64_K) {
        m->mask[to->reg] = lane_bits(u, result) & active;
    } else if (to->kind == SX_X64_R32 || to->kind == SX_X64_R64) {
        put_general(m, to, result->u64[0]);
    } else {
        for (uint32_t i = 0; i < u->lanes && u->mask != 0; i++) {
            if ((active >> i & 1) != 0) {
                continue;
            }
            if (u->zero) {
                memset(&result->u8[i * u->size], 0, u->size);
            } else {
                memcpy(&result->u8[i * u->size], &stay->u8[i * u->size], u->size);
            }
        }
        m->vector[to->reg] = *result;
    }
}

static void step_vector(machine *m, const sx_x64_uop *u)
{
    sx_x64_vector room[3];
    sx_x64_vector result;
    const sx_x64_vector *s[3] = {NULL};
    uint64_t active = u->mask != 0 ? m->mask[u->mask] : UINT64_MAX;
    active = u->lanes < 64 ? active & ((UINT64_C(1) << u->lanes) - 1) : active;
    for (uint32_t j = 0; j < u->source_count; j++) {
        s[j] = source(m, u, j, active, &room[j]);
    }
    if (m->failed) {
        return;
    }
    memset(&result, 0, sizeof(result));
    if (is_one(u) && u->source_count > 1) {
        memcpy(&result, s[0], 16);
    }
    u->lane(u, &result, s[u->order[0]], s[u->order[1]], s[u->order[2]]);
    m->e->work.lanes += u->lanes;
    bool over = u->variant == SX_VARIANT_OVER;
    put_result(m, u, &result, over ? s[0] : &m->vector[u->arg[0].reg & 31], active);
}

/* vmaskmovps: the mask is a vector; lanes out of it become zero in a register and stay in memory. */
static void step_maskmove(machine *m, const sx_x64_uop *u)
{
    uint64_t active = lane_bits(u, &m->vector[u->arg[1].reg]);
    sx_x64_vector result = {{0}};
    if (u->arg[0].kind == SX_X64_MEM) {
        store_lanes(m, u, &u->arg[0], &m->vector[u->arg[2].reg], active);
        return;
    }
    load_lanes(m, address_of(m, &u->arg[2]), &result, u->size, u->lanes, active);
    m->vector[u->arg[0].reg] = result;
}

/* ---- running ---- */

static void run_slice(machine *m, uint32_t *at, uint32_t count)
{
    const sx_x64_uop *code = m->e->uop;
    for (uint32_t k = 0; k < count && !m->returned && !m->failed; k++) {
        const sx_x64_uop *u = m->u = &code[*at];
        *at = u->next;
        switch ((step_kind)micros[u->micro].step) {
        case STEP_VECTOR: step_vector(m, u); break;
        case STEP_GENERAL: step_general(m, u); break;
        case STEP_JUMP: *at = holds(m, u) ? u->target : u->next; break;
        case STEP_STACK: step_stack(m, u); break;
        case STEP_MASKMOVE: step_maskmove(m, u); break;
        case STEP_MASK: step_mask(m, u); break;
        case STEP_NOTHING: step_nothing(m, u); break;
        }
        m->e->work.instructions++;
        if (*at == NO_UOP && !m->returned) {
            fail(m, "control leaves the code");
        }
    }
}

static const uint8_t kept[] = {SX_RBX, SX_RBP, SX_R12, SX_R13, SX_R14, SX_R15};

static uint64_t pattern(uint32_t reg)
{
    return UINT64_C(0xA7A7000000000000) + UINT64_C(0x1111111111) * (reg + 1);
}

static sx_code check_return(machine *m, uint64_t rsp)
{
    for (uint32_t i = 0; i < SX_COUNT(kept); i++) {
        if (m->general[kept[i]] != pattern(kept[i])) {
            return SX_FAIL(m->cx, SX_INPUT,
                           "machine code at offset %u: returns with register %u of the caller lost",
                           m->u->offset, kept[i]);
        }
    }
    if (m->general[SX_RSP] != rsp + 8) {
        return SX_FAIL(m->cx, SX_INPUT, "machine code at offset %u: returns with another rsp",
                       m->u->offset);
    }
    return SX_OK;
}

/* The state that a caller leaves: pointers and index in memory, patterns everywhere else. */
static uint64_t enter(machine *m, uint64_t *pointers, int64_t *index, uint32_t buffer_count,
                      bool workspace)
{
    sx_x64_emulator *e = m->e;
    union { /* the blob is only read: its region says so */
        const uint8_t *in;
        uint8_t *out;
    } blob = {e->blob.ptr};
    m->region[REGION_CODE] = (sx_region){"the code", blob.out, e->blob.len, false, NULL};
    m->region[REGION_STACK] = (sx_region){"the stack", e->stack, e->stack_bytes, true, NULL};
    m->region[REGION_POINTERS] = (sx_region){"the table of buffers", (uint8_t *)pointers,
                                             buffer_count * sizeof(*pointers), false, NULL};
    m->region[REGION_INDEX] = (sx_region){"the index", (uint8_t *)index,
                                          (3 + e->number_count) * sizeof(*index), false, NULL};
    memset(m->vector, 0xA7, sizeof(m->vector));
    memset(m->mask, 0xA7, sizeof(m->mask));
    for (uint32_t i = 0; i < 16; i++) {
        m->general[i] = pattern(i);
    }
    uint64_t rsp = region_address(REGION_STACK) + e->stack_bytes - STACK_ABOVE - 8;
    SX_ASSERT(rsp % 16 == 8); /* as after a call */
    uint64_t home = RETURN_ADDRESS;
    memcpy(e->stack + (rsp - region_address(REGION_STACK)), &home, sizeof(home));
    m->general[SX_RSP] = rsp;
    m->general[SX_RDI] = region_address(REGION_POINTERS);
    m->general[SX_RSI] = region_address(REGION_INDEX);
    m->general[SX_RDX] = workspace ? region_address(REGION_WORKSPACE) : 0;
    return rsp;
}

sx_code sx_x64_emulate(sx_ctx *cx, sx_x64_emulator *e, uint32_t entry, const sx_region *buffer,
                       uint32_t buffer_count, const int64_t index[3], const sx_region *workspace)
{
    SX_ASSERT(entry < e->blob.len && e->at[entry] != 0);
    SX_ASSERT(buffer_count <= SX_REGIONS_MAX);
    machine m;
    m.cx = cx;
    m.e = e;
    m.flags = (sx_x64_flags){0};
    m.returned = m.failed = false;
    m.region_count = REGION_BUFFERS + buffer_count;
    m.region[0] = m.region[REGION_WORKSPACE] = (sx_region){0};
    uint64_t pointers[SX_REGIONS_MAX];
    for (uint32_t k = 0; k < buffer_count; k++) {
        m.region[REGION_BUFFERS + k] = buffer[k];
        pointers[k] = region_address(REGION_BUFFERS + k);
    }
    if (workspace != NULL) {
        m.region[REGION_WORKSPACE] = *workspace;
    }
    int64_t position[3 + SX_EMULATION_NUMBERS_MAX] = {index[0], index[1], index[2]};
    for (uint32_t k = 0; k < e->number_count; k++) {
        position[3 + k] = e->number[k];
    }
    uint64_t rsp = enter(&m, pointers, position, buffer_count, workspace != NULL);
    uint32_t at = e->at[entry] - 1;
    while (!m.returned && !m.failed) {
        uint64_t before = e->work.instructions;
        run_slice(&m, &at, SLICE);
        SX_TRY(sx_spend(cx, e->work.instructions - before));
    }
    return m.failed ? cx->error.code : check_return(&m, rsp);
}

void sx_x64_emulator_take(sx_x64_emulator *emulator, const int64_t *number, uint32_t count)
{
    SX_ASSERT(count <= SX_EMULATION_NUMBERS_MAX && (number != NULL || count == 0));
    emulator->number = number;
    emulator->number_count = count;
}

sx_x64_work sx_x64_emulated(const sx_x64_emulator *emulator)
{
    return emulator->work;
}
