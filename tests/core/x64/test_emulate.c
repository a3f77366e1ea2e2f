/* The emulator against the processor: every form of ops.def alone, on random operands and special values; then
 * wrong meanings, which the same comparison must find; then whole kernels against the interpreter of core/loop. */
#include "tests/core/x64/machine.h"

#include <stdio.h>

#include "core/base/rng.h"
#include "core/x64/emulate.h"

#define STATES 16   /* register files that one piece of code is run with */
#define OPERANDS 16 /* choices of operands for a row at a vector length */
#define DATA 4096U

/* Everything that code can see, as harness code loads and stores it. */
typedef struct {
    uint64_t general[16]; /* rsp is not ours; rbx points into the data */
    uint64_t mask[8];
    uint64_t condition[8]; /* out: which conditions hold */
    uint8_t vector[32][64];
} state;
_Static_assert(offsetof(state, mask) == 128 && offsetof(state, vector) == 256, "harness");

typedef struct {
    sx_buf blob;
    sx_x64_op op;
    const sx_x64_form *form;
    uint32_t at;          /* byte of the data that rbx points to */
    uint64_t lanes;       /* masks are cut to these: the others lie outside the data */
    uint32_t vector_mask; /* vector register that is a mask, or 32 */
    state in[STATES], out[STATES];
    uint8_t data_in[STATES][DATA], data_out[STATES][DATA];
} piece;

typedef struct {
    sx_rng rng;
    sx_x64_level level;
    uint32_t *row_cases;
    uint64_t runs;
    guarded code; /* executable memory, made again for each piece */
    guarded data;
} bench;

static uint32_t below(bench *b, uint32_t n)
{
    return (uint32_t)sx_rng_below(&b->rng, n);
}

/* ---- operands ---- */

static sx_x64_arg random_register(bench *b, const sx_x64_form *form, sx_x64_kind kind)
{
    if (kind == SX_X64_K) {
        return sx_x64_k(below(b, 8));
    }
    if (kind == SX_X64_R64 || kind == SX_X64_R32) {
        static const uint8_t free_registers[] = {0, 1, 2, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
        return sx_x64_reg(kind, free_registers[below(b, SX_COUNT(free_registers))]);
    }
    return sx_x64_reg(kind, below(b, form->encoding == SX_ENC_EVEX ? 32 : 16));
}

static bool is_aligned(const sx_x64_form *form)
{
    return sx_x64_meanings[form->op].variant == SX_VARIANT_ALIGNED;
}

static sx_x64_arg random_memory(bench *b, const sx_x64_form *form)
{
    sx_x64_arg mem = sx_x64_mem(SX_RBX, (int32_t)below(b, 3) * 64 - 64);
    if (below(b, 2) == 0) {
        int32_t disp = is_aligned(form) ? 64 : (int32_t)below(b, 256) - 128;
        mem = sx_x64_mem_index(SX_RBX, SX_RBP, 1U << below(b, 4), disp);
    }
    mem.broadcast = sx_x64_form_broadcast(form) != 0 && below(b, 2) == 0;
    return mem;
}

static sx_x64_arg random_arg(bench *b, const sx_x64_form *form, uint32_t index, uint32_t length)
{
    const sx_x64_spec *spec = sx_x64_form_spec(form, index);
    static const int64_t wide[] = {0, 1, -1, 100000, INT32_MIN, INT32_MAX};
    if (spec->place == SX_PLACE_IMM) {
        switch ((sx_x64_imm_kind)spec->imm) {
        case SX_IMM_ONE: return sx_x64_imm(1);
        case SX_IMM_S8: return sx_x64_imm((int64_t)below(b, 256) - 128);
        case SX_IMM_U8: return sx_x64_imm((int64_t)below(b, below(b, 2) == 0 ? 256 : 33));
        case SX_IMM_PREDICATE: return sx_x64_imm((int64_t)below(b, 32));
        case SX_IMM_U32: return sx_x64_imm((int64_t)(sx_rng_next(&b->rng) & UINT32_MAX));
        case SX_IMM_64: return sx_x64_imm((int64_t)sx_rng_next(&b->rng));
        default: return sx_x64_imm(wide[below(b, SX_COUNT(wide))]);
        }
    }
    if (spec->place == SX_PLACE_RAX) {
        return sx_x64_r64(SX_RAX);
    }
    if (spec->mem != 0 && (spec->reg == SX_X64_NONE || below(b, 2) == 0)) {
        return random_memory(b, form);
    }
    return random_register(b, form, sx_x64_spec_reg(spec, length));
}

/* Random operands whose encoding comes from this very row. */
static bool random_insn(bench *b, const sx_x64_form *form, uint32_t length, sx_x64_insn *insn)
{
    for (uint32_t attempt = 0; attempt < 3000; attempt++) {
        *insn = (sx_x64_insn){.op = (sx_x64_op)form->op,
                              .arg_count = (uint8_t)sx_x64_form_arg_count(form)};
        for (uint32_t i = 0; i < insn->arg_count; i++) {
            insn->arg[i] = random_arg(b, form, i, length);
        }
        if ((form->flags & SX_FLAG_MASK) != 0 && below(b, 3) != 0) {
            insn->arg[0].mask = (uint8_t)(1 + below(b, 7));
            insn->arg[0].zero = (form->flags & SX_FLAG_ZERO) != 0 && below(b, 2) == 0;
        }
        if (sx_x64_encode(insn) && &sx_x64_forms[insn->form] == form) {
            return true;
        }
    }
    return false;
}

/* ---- values ---- */

static uint32_t random_word(bench *b)
{
    static const uint32_t special[] = {
        0,          0x80000000, 0x7F800000, 0xFF800000, 0x7FC00001, 0xFFC12345, 0x7F800001,
        0xFFA00000, 0x00000001, 0x807FFFFF, 0x00800000, 0x007FFFFF, 0x7F7FFFFF, 0xFF7FFFFF,
        0x3F800000, 0xBF800000, 0x3F800001, 0x3F7FFFFF, 0x3F000000, 0xBF000000, 0x3FC00000,
        0x40200000, 0xC0200000, 0x4B000001, 0x4AFFFFFF, 0x4F000000, 0xCF000000, 0x4EFFFFFF,
        0xCF000001, 0x477FF000, 0x477FEFFF, 0x38800000, 0x387FC000, 0x33000000, 0x33000001,
        0xFFFFFFFF, 0x7FFFFFFF, 0x00000020, 0x0000001F, 0x7C017C00, 0x03FF0001, 0xFE00FC00};
    float value;
    uint32_t word = (uint32_t)sx_rng_next(&b->rng);
    switch (below(b, 5)) {
    case 0:
    case 1: return special[below(b, SX_COUNT(special))];
    case 2: value = (float)((int32_t)below(b, 64) - 32) * 0.25f; break; /* halfway cases */
    case 3: value = sx_rng_f32(&b->rng) * 16; break;
    default: return word;
    }
    memcpy(&word, &value, 4);
    return word;
}

static uint64_t random_quad(bench *b)
{
    static const uint64_t special[] = {0,
                                       0x8000000000000000,
                                       0x7FF0000000000000,
                                       0xFFF0000000000000,
                                       0x7FF8000000000001,
                                       0xFFF8123456789ABC,
                                       0x7FF0000000000001,
                                       0x7FEFFFFFFFFFFFFF,
                                       0x0000000000000001,
                                       0x800FFFFFFFFFFFFF,
                                       0x0010000000000000,
                                       0x41DFFFFFFFC00000,
                                       0x41DFFFFFFFE00000,
                                       0xC1E0000000000000,
                                       0xC1E0000000100000,
                                       0xC1E0000000200000,
                                       0x47EFFFFFE0000000,
                                       0x47EFFFFFF0000000,
                                       0x3690000000000000,
                                       0x36A0000000000001,
                                       0x3FE0000000000000,
                                       0x3FF0000010000000,
                                       0x3FF0000030000000,
                                       0x4330000000000001};
    double value = (double)((int32_t)below(b, 64) - 32) * 0.25;
    uint64_t quad;
    memcpy(&quad, &value, 8);
    switch (below(b, 6)) {
    case 0:
    case 1: return special[below(b, SX_COUNT(special))];
    case 2: return quad;
    case 3: return sx_rng_next(&b->rng);
    case 4: return below(b, 70); /* counts of shifts */
    default: return (uint64_t)random_word(b) << 32 | random_word(b);
    }
}

static void random_bytes(bench *b, uint8_t *to, size_t size)
{
    bool wide = below(b, 2) == 0;
    for (size_t i = 0; i < size; i += 8) {
        uint64_t quad = wide ? random_quad(b) : (uint64_t)random_word(b) << 32 | random_word(b);
        memcpy(to + i, &quad, 8);
    }
}

static void random_state(bench *b, const piece *p, state *s)
{
    random_bytes(b, (uint8_t *)s, sizeof(*s));
    s->general[SX_RBP] = below(b, 3) * 64;
    s->general[SX_RBX] = p->at;
    s->general[9] = below(b, 4) == 0 ? s->general[8] : s->general[9]; /* compared before: equal */
    for (uint32_t i = 0; i < 16 && p->vector_mask < 32; i++) {
        s->vector[p->vector_mask][4 * i + 3] &= (p->lanes >> i & 1) != 0 ? 0xFF : 0x7F;
    }
    for (uint32_t i = 0; i < 8; i++) {
        s->mask[i] = below(b, 4) == 0 ? 0xFFFF : sx_rng_next(&b->rng) & 0xFFFF;
        s->mask[i] &= p->lanes;
    }
}

/* ---- code ---- */

static const sx_x64_op conditions[8] = {SX_X64_CMOVE, SX_X64_CMOVNE, SX_X64_CMOVB,  SX_X64_CMOVAE,
                                        SX_X64_CMOVL, SX_X64_CMOVGE, SX_X64_CMOVLE, SX_X64_CMOVG};

/* How many of them read flags that are defined behind the instruction. */
static uint32_t defined_conditions(const sx_x64_insn *insn, uint32_t *first)
{
    *first = 0;
    switch (insn->op) {
    case SX_X64_IMUL: *first = 2; return 4;
    case SX_X64_SHL:
    case SX_X64_SHR:
    case SX_X64_SAR: return (insn->arg[1].imm & 63) > 1 ? 4 : 8;
    default: return 8;
    }
}

static sx_x64_arg whole_vector(const bench *b, uint32_t number)
{
    return sx_x64_reg(b->level == SX_X64_AVX512 ? SX_X64_ZMM : SX_X64_YMM, number);
}

#define AT(base, field, index) \
    sx_x64_mem(base, (int32_t)(offsetof(state, field) + sizeof(((state *)0)->field[0]) * (index)))

static void put_entry(const bench *b, sx_x64_asm *as)
{
    static const uint8_t keep[] = {SX_RBX, SX_RBP, SX_R12, SX_R13, SX_R14, SX_R15};
    for (uint32_t i = 0; i < SX_COUNT(keep); i++) {
        SX_X64_PUT(as, PUSH, sx_x64_r64(keep[i]));
    }
    SX_X64_PUT(as, MOV, sx_x64_r64(SX_RAX), sx_x64_mem(SX_RDI, 0));
    SX_X64_PUT(as, MOV, sx_x64_r64(SX_RCX), sx_x64_mem(SX_RDI, 8));
    SX_X64_PUT(as, MOV, sx_x64_r64(SX_RBX), sx_x64_mem(SX_RDI, 16));
    SX_X64_PUT(as, ADD, sx_x64_r64(SX_RBX), AT(SX_RAX, general, SX_RBX));
    SX_X64_PUT(as, PUSH, sx_x64_r64(SX_RCX)); /* where the state goes */
    for (uint32_t i = 0; i < (b->level == SX_X64_AVX512 ? 32U : 16U); i++) {
        SX_X64_PUT(as, VMOVUPS, whole_vector(b, i), AT(SX_RAX, vector, i));
    }
    for (uint32_t i = 0; i < 8 && b->level == SX_X64_AVX512; i++) {
        SX_X64_PUT(as, MOV, sx_x64_r32(SX_RCX), AT(SX_RAX, mask, i));
        SX_X64_PUT(as, KMOVW, sx_x64_k(i), sx_x64_r32(SX_RCX));
    }
    SX_X64_PUT(as, MOV, sx_x64_r64(SX_R8), AT(SX_RAX, general, 8));
    SX_X64_PUT(as, CMP, sx_x64_r64(SX_R8), AT(SX_RAX, general, 9)); /* flags */
    for (uint32_t i = 1; i < 16; i++) {
        if (i != SX_RSP && i != SX_RBX) {
            SX_X64_PUT(as, MOV, sx_x64_r64(i), AT(SX_RAX, general, i));
        }
    }
    SX_X64_PUT(as, MOV, sx_x64_r64(SX_RAX), AT(SX_RAX, general, 0));
}

static void put_exit(const bench *b, sx_x64_asm *as, uint32_t first, uint32_t count)
{
    SX_X64_PUT(as, PUSH, sx_x64_r64(SX_RAX));
    SX_X64_PUT(as, MOV, sx_x64_r64(SX_RAX), sx_x64_mem(SX_RSP, 8));
    for (uint32_t i = 1; i < 16; i++) {
        if (i != SX_RSP) {
            SX_X64_PUT(as, MOV, AT(SX_RAX, general, i), sx_x64_r64(i));
        }
    }
    for (uint32_t i = 0; i < (b->level == SX_X64_AVX512 ? 32U : 16U); i++) {
        SX_X64_PUT(as, VMOVUPS, AT(SX_RAX, vector, i), whole_vector(b, i));
    }
    for (uint32_t i = 0; i < 8 && b->level == SX_X64_AVX512; i++) {
        SX_X64_PUT(as, KMOVW, sx_x64_r32(SX_RCX), sx_x64_k(i));
        SX_X64_PUT(as, MOV, AT(SX_RAX, mask, i), sx_x64_r64(SX_RCX));
    }
    for (uint32_t i = first; i < count; i++) {
        SX_X64_PUT(as, MOV, sx_x64_r64(SX_RCX), sx_x64_imm(0));
        SX_X64_PUT(as, MOV, sx_x64_r64(SX_RDX), sx_x64_imm(1));
        sx_x64_put(as, conditions[i], (const sx_x64_arg[]){sx_x64_r64(SX_RCX), sx_x64_r64(SX_RDX)},
                   2);
        SX_X64_PUT(as, MOV, AT(SX_RAX, condition, i), sx_x64_r64(SX_RCX));
    }
    SX_X64_PUT(as, POP, sx_x64_r64(SX_RCX));
    SX_X64_PUT(as, MOV, AT(SX_RAX, general, 0), sx_x64_r64(SX_RCX));
    SX_X64_PUT(as, POP, sx_x64_r64(SX_RCX));
    static const uint8_t keep[] = {SX_R15, SX_R14, SX_R13, SX_R12, SX_RBP, SX_RBX};
    for (uint32_t i = 0; i < SX_COUNT(keep); i++) {
        SX_X64_PUT(as, POP, sx_x64_r64(keep[i]));
    }
    SX_X64_PUT0(as, VZEROUPPER);
    SX_X64_PUT0(as, RET);
}

/* The instruction itself; jumps skip an addition, push and pop come with the other. */
static void put_middle(sx_x64_asm *as, const sx_x64_insn *insn)
{
    if (insn->arg_count == 1 && insn->arg[0].kind == SX_X64_LABEL) {
        uint32_t label = sx_x64_label_make(as);
        sx_x64_arg to = sx_x64_to(label);
        sx_x64_put(as, insn->op, &to, 1);
        SX_X64_PUT(as, LEA, sx_x64_r64(SX_R11), sx_x64_mem(SX_R11, 1));
        sx_x64_label_put(as, label);
    } else if (insn->op == SX_X64_PUSH) {
        sx_x64_put(as, insn->op, insn->arg, insn->arg_count);
        SX_X64_PUT(as, POP, sx_x64_r64(SX_R11));
    } else if (insn->op == SX_X64_POP) {
        SX_X64_PUT(as, PUSH, sx_x64_r64(SX_R11));
        sx_x64_put(as, insn->op, insn->arg, insn->arg_count);
    } else if (insn->op != SX_X64_RET) { /* that one ends every piece */
        sx_x64_put(as, insn->op, insn->arg, insn->arg_count);
    }
}

static void assemble(const bench *b, const sx_x64_insn *insn, sx_buf *blob)
{
    sx_ctx cx;
    sx_ctx_init(&cx, (size_t)1 << 24);
    sx_x64_asm as;
    sx_x64_asm_init(&as, &cx, b->level, blob);
    uint32_t first;
    uint32_t count = defined_conditions(insn, &first);
    put_entry(b, &as);
    put_middle(&as, insn);
    put_exit(b, &as, first, count);
    ck_sx_ok(&cx, sx_x64_finish(&as));
    uint32_t entry = 0;
    ck_sx_ok(&cx, sx_x64_check(&cx, sx_buf_span(blob), b->level, &entry, 1));
    sx_ctx_fini(&cx);
}

/* ---- running ---- */

/* Addresses lie elsewhere in the emulator: they count from what rbx points to. */
static void addresses_from_data(const piece *p, uint32_t k, state *out)
{
    uint64_t base = out->general[SX_RBX];
    for (uint32_t i = 0; i < 16; i++) {
        bool changed = out->general[i] != p->in[k].general[i];
        out->general[i] -= i == SX_RBX || (p->op == SX_X64_LEA && changed) ? base : 0;
    }
}

static void run_processor(bench *b, piece *p)
{
    ck_assert_int_eq(mprotect(b->code.map, b->code.map_size, PROT_READ | PROT_WRITE), 0);
    ck_assert_uint_le(p->blob.len, b->code.map_size);
    memcpy(b->code.map, p->blob.ptr, p->blob.len);
    ck_assert_int_eq(mprotect(b->code.map, b->code.map_size, PROT_READ | PROT_EXEC), 0);
    for (uint32_t k = 0; k < STATES; k++) {
        void *pointers[3] = {&p->in[k], &p->out[k], b->data.ptr};
        memcpy(b->data.ptr, p->data_in[k], DATA);
        machine_entry entry;
        memcpy(&entry, &b->code.map, sizeof(entry));
        const int64_t index[3] = {0};
        entry(pointers, index, NULL);
        memcpy(p->data_out[k], b->data.ptr, DATA);
        addresses_from_data(p, k, &p->out[k]);
        b->runs++;
    }
}

static sx_code run_emulator(const piece *p, sx_ctx *cx, sx_x64_emulator *e, uint32_t k, state *out,
                            uint8_t *data)
{
    state in = p->in[k];
    memcpy(out, &p->in[k], sizeof(*out)); /* what the harness does not store is as before */
    memcpy(data, p->data_in[k], DATA);
    sx_region buffer[3] = {{"the state before", (uint8_t *)&in, sizeof(in), false, NULL},
                           {"the state behind", (uint8_t *)out, sizeof(*out), true, NULL},
                           {"the data", data, DATA, true, NULL}};
    const int64_t index[3] = {0};
    sx_code code = sx_x64_emulate(cx, e, 0, buffer, 3, index, NULL);
    addresses_from_data(p, k, out);
    return code;
}

/* Equal bits, or where a fused multiply-add chooses among NaNs, both NaN. */
static bool same_vectors(const piece *p, const state *a, const state *b)
{
    if (p->form->nan != SX_NAN_FMA) {
        return memcmp(a->vector, b->vector, sizeof(a->vector)) == 0;
    }
    bool wide = sx_x64_meanings[p->op].element == SX_ELEMENT_F64;
    for (uint32_t i = 0; i < sizeof(a->vector); i += wide ? 8 : 4) {
        const uint8_t *x = &a->vector[0][0] + i;
        const uint8_t *y = &b->vector[0][0] + i;
        float f, g;
        double d, h;
        memcpy(&f, x, 4);
        memcpy(&g, y, 4);
        memcpy(&d, x, wide ? 8 : 4);
        memcpy(&h, y, wide ? 8 : 4);
        bool nans = wide ? isnan(d) && isnan(h) : isnan(f) && isnan(g);
        if (!nans && memcmp(x, y, wide ? 8 : 4) != 0) {
            return false;
        }
    }
    return true;
}

static bool same_state(const piece *p, uint32_t k, const state *out, const uint8_t *data)
{
    const state *want = &p->out[k];
    return memcmp(want->general, out->general, sizeof(want->general)) == 0 &&
           memcmp(want->mask, out->mask, sizeof(want->mask)) == 0 &&
           memcmp(want->condition, out->condition, sizeof(want->condition)) == 0 &&
           same_vectors(p, want, out) && memcmp(p->data_out[k], data, DATA) == 0;
}

static void show_difference(const piece *p, uint32_t k, const state *out, const uint8_t *data)
{
    const state *want = &p->out[k];
    for (uint32_t i = 0; i < 16; i++) {
        if (want->general[i] != out->general[i]) {
            printf("general register %u: %llx, the processor has %llx\n", i,
                   (unsigned long long)out->general[i], (unsigned long long)want->general[i]);
        }
    }
    for (uint32_t i = 0; i < 8; i++) {
        if (want->mask[i] != out->mask[i] || want->condition[i] != out->condition[i]) {
            printf("mask, condition %u: %llx %llu, the processor has %llx %llu\n", i,
                   (unsigned long long)out->mask[i], (unsigned long long)out->condition[i],
                   (unsigned long long)want->mask[i], (unsigned long long)want->condition[i]);
        }
    }
    for (uint32_t i = 0; i < 32 * 16; i++) {
        const uint32_t *got = (const uint32_t *)(const void *)out->vector;
        const uint32_t *wanted = (const uint32_t *)(const void *)want->vector;
        const uint32_t *before = (const uint32_t *)(const void *)p->in[k].vector;
        if (got[i] != wanted[i]) {
            printf("vector %u word %u: %08x, the processor has %08x, before %08x\n", i / 16, i % 16,
                   got[i], wanted[i], before[i]);
        }
    }
    for (uint32_t i = 0; i < DATA; i++) {
        if (data[i] != p->data_out[k][i]) {
            printf("data byte %u: %02x, the processor has %02x\n", i, data[i], p->data_out[k][i]);
        }
    }
    printf("rbx at byte %u of %u\n", p->at, DATA);
}

/* Runs the piece with a table of meanings; how many states agree with the processor. */
static uint32_t count_same(const piece *p, const sx_x64_meaning *meaning, bool show)
{
    sx_ctx cx;
    sx_ctx_init(&cx, (size_t)1 << 24);
    uint32_t entry = 0;
    uint32_t same = 0;
    sx_x64_emulator *e;
    sx_code code = sx_x64_emulator_make(&cx, sx_buf_span(&p->blob), &entry, 1, meaning, &e);
    for (uint32_t k = 0; k < STATES && code == SX_OK; k++) {
        state out;
        uint8_t data[DATA];
        code = run_emulator(p, &cx, e, k, &out, data);
        bool equal = code == SX_OK && same_state(p, k, &out, data);
        same += equal;
        if (show && !equal && code == SX_OK) {
            show_difference(p, k, &out, data);
            break;
        }
    }
    if (show && code != SX_OK) {
        printf("%s\n", cx.error.text);
    }
    sx_ctx_fini(&cx);
    return same;
}

/* Lanes beyond the first few, masked off, lie outside the data. */
static void put_at_edge(bench *b, piece *p, sx_x64_insn *insn, uint32_t length)
{
    sx_x64_meaning m = sx_x64_meanings[p->op];
    bool moves = m.micro == SX_MICRO_MASKMOVE;
    bool permutes = m.micro == SX_MICRO_PICK || m.micro == SX_MICRO_LOOK;
    for (uint32_t i = 0; i < insn->arg_count; i++) {
        sx_x64_arg *arg = &insn->arg[i];
        bool masked = insn->arg[0].mask != 0 && !permutes; /* those access all of it */
        if (arg->kind != SX_X64_MEM || arg->broadcast || !(masked || moves) || below(b, 3) != 0) {
            continue;
        }
        uint32_t bytes = sx_x64_spec_mem(sx_x64_form_spec(p->form, i), length);
        uint32_t lanes = bytes / 4;
        switch (m.micro) {
        case SX_MICRO_FROM_F16:
        case SX_MICRO_FROM_I16:
        case SX_MICRO_FROM_U16: lanes = bytes / 2; break;
        case SX_MICRO_FROM_I8:
        case SX_MICRO_FROM_U8: lanes = bytes; break;
        case SX_MICRO_FROM_F32:
        case SX_MICRO_FROM_I32:
            lanes = i != 0 ? bytes / 4 : m.element == SX_ELEMENT_U8 ? bytes : bytes / 2;
            break;
        default:
            lanes = m.element == SX_ELEMENT_F64 || m.element == SX_ELEMENT_I64 ||
                            m.element == SX_ELEMENT_U64
                        ? bytes / 8
                        : lanes;
        }
        lanes = lanes == 0 ? 1 : lanes;
        if (is_aligned(p->form)) {
            continue; /* an aligned operand that ends outside begins outside */
        }
        uint32_t inside = below(b, lanes + 1);
        uint8_t mask = arg->mask;
        bool zero = arg->zero;
        *arg = sx_x64_masked(sx_x64_mem(SX_RBX, 0), mask, zero);
        p->at = DATA - inside * (bytes / lanes);
        p->lanes = (UINT64_C(1) << inside) - 1;
        p->vector_mask = moves ? insn->arg[1].reg : 32;
        ck_assert(sx_x64_encode(insn));
    }
}

static void make_piece(bench *b, const sx_x64_form *form, uint32_t length, piece *p)
{
    sx_x64_insn insn;
    p->op = (sx_x64_op)form->op;
    p->form = form;
    p->at = 1024;
    p->lanes = UINT64_MAX;
    p->vector_mask = 32;
    bool jumps = sx_x64_form_spec(form, 0)->place == SX_PLACE_BRANCH;
    if (jumps) {
        insn = (sx_x64_insn){.op = p->op, .arg_count = 1};
        insn.arg[0] = sx_x64_to(SX_X64_NO_LABEL);
    } else if (!random_insn(b, form, length, &insn)) {
        ck_abort_msg("no operands found for row %u (%s)", (uint32_t)(form - sx_x64_forms),
                     sx_x64_op_text(p->op));
    }
    put_at_edge(b, p, &insn, length);
    sx_buf_clear(&p->blob);
    assemble(b, &insn, &p->blob);
    for (uint32_t k = 0; k < STATES; k++) {
        random_state(b, p, &p->in[k]);
        p->out[k] = p->in[k];
        random_bytes(b, p->data_in[k], DATA);
    }
    run_processor(b, p);
}

static void bench_init(bench *b, sx_x64_level level)
{
    *b = (bench){.rng = {sx_test_seed()}, .level = level};
    b->row_cases = calloc(sx_x64_form_count, sizeof(*b->row_cases));
    sx_buf page;
    sx_buf_init(&page, 16 * (size_t)PAGE);
    for (uint32_t i = 0; i < 2 * PAGE; i++) {
        sx_buf_put(&page, "\xC3", 1);
    }
    b->code = code_make(&page);
    b->data = guard_make(DATA, true);
    sx_buf_fini(&page);
}

static void bench_fini(bench *b)
{
    free(b->row_cases);
    guard_free(&b->data);
    (void)munmap(b->code.map, b->code.map_size);
}

static bool in_set(const bench *b, const sx_x64_form *form)
{
    return sx_x64_form_level(form) <= b->level;
}

static bool has_length(const sx_x64_form *form, uint32_t length)
{
    return form->lengths == SX_LEN_L0 ? length == 0 : (form->lengths >> length & 1) != 0;
}

static void compare_row(bench *b, uint32_t row, piece *p)
{
    const sx_x64_form *form = &sx_x64_forms[row];
    for (uint32_t length = 0; length < 3; length++) {
        for (uint32_t n = 0; n < OPERANDS && has_length(form, length); n++) {
            make_piece(b, form, length, p);
            uint32_t same = count_same(p, sx_x64_meanings, false);
            b->row_cases[row] += same;
            if (same != STATES) {
                (void)count_same(p, sx_x64_meanings, true);
                sx_buf text;
                sx_buf_init(&text, (size_t)1 << 20);
                sx_x64_print_code(&text, sx_buf_span(&p->blob), 0, (uint32_t)p->blob.len);
                printf("%.*s", (int)text.len, (const char *)text.ptr);
                (void)fflush(stdout);
                ck_abort_msg("row %u, %s: the emulator differs from the processor", row,
                             sx_x64_op_text(p->op));
            }
        }
    }
}

static void all_forms(sx_x64_level level)
{
    if (!machine_has(level)) {
        return;
    }
    bench b;
    bench_init(&b, level);
    piece *p = calloc(1, sizeof(*p));
    sx_buf_init(&p->blob, (size_t)1 << 20);
    uint32_t rows = 0;
    for (uint32_t row = 0; row < sx_x64_form_count; row++) {
        if (in_set(&b, &sx_x64_forms[row])) {
            compare_row(&b, row, p);
            ck_assert_msg(b.row_cases[row] >= STATES * OPERANDS, "row %u (%s) was not compared",
                          row, sx_x64_op_text((sx_x64_op)sx_x64_forms[row].op));
            rows++;
        }
    }
    printf("%u forms, %llu comparisons\n", rows, (unsigned long long)b.runs);
    ck_assert_uint_eq(rows, level == SX_X64_AVX512 ? sx_x64_form_count : rows);
    sx_buf_fini(&p->blob);
    free(p);
    bench_fini(&b);
}

/* ---- wrong meanings: the comparison must find each ---- */

typedef enum { GENERAL, JUMP, STACK, VECTOR, MASKMOVE, MASK, NOTHING } step_kind;
static const step_kind step_of[SX_MICRO_COUNT] = {
#define SX_X64_MICRO(name, step, ...) step,
#include "core/x64/micro.def"
#undef SX_X64_MICRO
};
static const char *const micro_name[SX_MICRO_COUNT] = {
#define SX_X64_MICRO(name, ...) #name,
#include "core/x64/micro.def"
#undef SX_X64_MICRO
};

#define PIECES 32 /* choices of operands for a wrong meaning */
typedef struct {
    piece *piece;
    uint32_t count;
    uint32_t tried, survived;
    bool found[SX_MICRO_COUNT]; /* a wrong meaning in place of this one was found */
    bool seen[SX_MICRO_COUNT];
} hunt;

/* Tries one wrong meaning of the op that all pieces hold. */
static void try_meaning(hunt *h, sx_x64_meaning wrong, bool must)
{
    sx_x64_op op = h->piece[0].op;
    static sx_x64_meaning table[SX_X64_OP_COUNT];
    memcpy(table, sx_x64_meanings, sizeof(table));
    table[op] = wrong;
    bool possible = false;
    bool found = false;
    for (uint32_t i = 0; i < h->count && !found; i++) {
        sx_ctx cx;
        sx_ctx_init(&cx, (size_t)1 << 24);
        uint32_t entry = 0;
        sx_x64_emulator *e;
        sx_span blob = sx_buf_span(&h->piece[i].blob);
        possible = sx_x64_emulator_make(&cx, blob, &entry, 1, table, &e) == SX_OK || possible;
        for (uint32_t k = 0; k < STATES && cx.error.code == SX_OK && !found; k++) {
            state out;
            uint8_t data[DATA];
            found = run_emulator(&h->piece[i], &cx, e, k, &out, data) != SX_OK ||
                    !same_state(&h->piece[i], k, &out, data);
        }
        sx_ctx_fini(&cx);
    }
    sx_x64_micro micro = (sx_x64_micro)sx_x64_meanings[op].micro;
    h->tried += possible;
    h->survived += possible && !found;
    h->found[micro] = h->found[micro] || found;
    if (possible && !found && must) {
        ck_abort_msg("%s as %s, element %u, variant %u: not found", sx_x64_op_text(op),
                     micro_name[wrong.micro], wrong.element, wrong.variant);
    }
}

static bool between(uint32_t value, sx_x64_variant first, sx_x64_variant last)
{
    return value >= (uint32_t)first && value <= (uint32_t)last;
}

/* Variants that the micro-operation tells apart. */
static bool same_family(uint32_t a, uint32_t b)
{
    static const sx_x64_variant family[][2] = {
        {SX_VARIANT_ALL, SX_VARIANT_ONE},          {SX_VARIANT_NEAREST, SX_VARIANT_TOWARD_ZERO},
        {SX_VARIANT_O132, SX_VARIANT_O231},        {SX_VARIANT_ONE_132, SX_VARIANT_ONE_231},
        {SX_VARIANT_ALWAYS, SX_VARIANT_G},         {SX_VARIANT_FIRST, SX_VARIANT_INSERT_ZERO},
        {SX_VARIANT_WITHIN, SX_VARIANT_TWO_TABLES}};
    for (uint32_t i = 0; i < SX_COUNT(family); i++) {
        if (between(a, family[i][0], family[i][1])) {
            return between(b, family[i][0], family[i][1]);
        }
    }
    return false;
}

/* A selection without a condition is a copy, and so is an extension by zeros of what comes from memory. */
static bool same_copy(sx_x64_meaning right, uint32_t micro)
{
    bool extends = right.micro == SX_MICRO_GEXTEND &&
                   (right.element == SX_ELEMENT_U8 || right.element == SX_ELEMENT_U16);
    return (micro == SX_MICRO_GSELECT && right.variant == SX_VARIANT_NO) ||
           (micro == SX_MICRO_GMOV && extends);
}

static void wrong_meanings_of(hunt *h)
{
    sx_x64_meaning right = sx_x64_meanings[h->piece[0].op];
    h->seen[right.micro] = true;
    for (uint32_t micro = 0; micro < SX_MICRO_COUNT; micro++) {
        if (micro != right.micro && step_of[micro] == step_of[right.micro] &&
            !same_copy(right, micro)) {
            sx_x64_meaning wrong = right;
            wrong.micro = (uint8_t)micro;
            try_meaning(h, wrong, true);
        }
    }
    for (uint32_t variant = 0; variant < SX_VARIANT_COUNT; variant++) {
        sx_x64_meaning wrong = right;
        wrong.variant = (uint8_t)variant;
        bool first = right.variant == SX_VARIANT_FIRST; /* so do others without an immediate */
        if (variant != right.variant && same_family(right.variant, variant)) {
            try_meaning(h, wrong, right.variant >= SX_VARIANT_NEAREST && !first);
        }
    }
    for (uint32_t element = 0; element < SX_ELEMENT_COUNT; element++) {
        sx_x64_meaning wrong = right;
        wrong.element = (uint8_t)element;
        if (element != right.element && step_of[right.micro] == VECTOR) {
            try_meaning(h, wrong, false); /* copies of equal size are equal */
        }
    }
}

static void find_wrong_meanings(sx_x64_level level)
{
    if (!machine_has(level)) {
        return;
    }
    bench b;
    bench_init(&b, level);
    hunt h = {.piece = calloc(PIECES, sizeof(piece))};
    for (uint32_t i = 0; i < PIECES; i++) {
        sx_buf_init(&h.piece[i].blob, (size_t)1 << 20);
    }
    for (uint32_t op = 0; op < SX_X64_OP_COUNT; op++) {
        h.count = 0;
        uint32_t first = sx_x64_form_first((sx_x64_op)op);
        uint32_t rows = sx_x64_form_first((sx_x64_op)(op + 1)) - first;
        for (uint32_t n = 0; n < 3 * rows * PIECES && h.count < PIECES; n++) {
            const sx_x64_form *form = &sx_x64_forms[first + n % rows];
            if (in_set(&b, form) && has_length(form, n / rows % 3)) {
                make_piece(&b, form, n / rows % 3, &h.piece[h.count++]);
            }
        }
        if (h.count > 0) {
            wrong_meanings_of(&h);
        }
    }
    printf("%u wrong meanings, %u of them mean the same\n", h.tried, h.survived);
    for (uint32_t micro = 0; micro < SX_MICRO_COUNT; micro++) {
        bool alone = step_of[micro] == MASKMOVE || step_of[micro] == NOTHING;
        ck_assert_msg(h.found[micro] || !h.seen[micro] || alone, "no wrong %s is found",
                      micro_name[micro]);
    }
    ck_assert_uint_gt(h.tried, 1000);
    for (uint32_t i = 0; i < PIECES; i++) {
        sx_buf_fini(&h.piece[i].blob);
    }
    free(h.piece);
    bench_fini(&b);
}

START_TEST(wrong_meanings_are_found_avx2)
{
    find_wrong_meanings(SX_X64_AVX2);
}
END_TEST

START_TEST(wrong_meanings_are_found_avx512)
{
    find_wrong_meanings(SX_X64_AVX512);
}
END_TEST

START_TEST(forms_agree_with_the_processor_avx2)
{
    all_forms(SX_X64_AVX2);
}
END_TEST

START_TEST(forms_agree_with_the_processor_avx512)
{
    all_forms(SX_X64_AVX512);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("x64.emulate");
    TCase *tcase = tcase_create("emulate");
    tcase_set_timeout(tcase, 240);
    tcase_add_test(tcase, forms_agree_with_the_processor_avx2);
    tcase_add_test(tcase, forms_agree_with_the_processor_avx512);
    if (!SX_SANITIZED) { /* thousands of emulators, which differ in numbers and not in memory */
        tcase_add_test(tcase, wrong_meanings_are_found_avx2);
        tcase_add_test(tcase, wrong_meanings_are_found_avx512);
    }
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
