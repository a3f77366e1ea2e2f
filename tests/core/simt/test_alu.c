/* What PTX instructions compute from integers and bits: every form has its function, and results are those of the
 * manual's formulas, written here with wider integers or bit by bit. */
#include "tests/core/simt/alu_insn.h"
#include "tests/core/ptx/forms.h"

__extension__ typedef __int128 s128;
__extension__ typedef unsigned __int128 u128;

static sx_ctx cx;

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)1 << 28);
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

/* ---- all forms ---- */
/* Those that need memory, control or other threads. */
static bool of_others(sx_ptx_handler handler)
{
    static const sx_ptx_handler list[] = {
        SX_PTX_RUN_CVTA,
        SX_PTX_RUN_LD,
        SX_PTX_RUN_ST,
        SX_PTX_RUN_PREFETCH,
        SX_PTX_RUN_ATOM,
        SX_PTX_RUN_FENCE,
        SX_PTX_RUN_SHFL,
        SX_PTX_RUN_VOTE,
        SX_PTX_RUN_REDUX,
        SX_PTX_RUN_BAR,
        SX_PTX_RUN_ACTIVEMASK,
        SX_PTX_RUN_BAR_WARP,
        SX_PTX_RUN_CP_ASYNC,
        SX_PTX_RUN_BRA,
        SX_PTX_RUN_CP_COMMIT,
        SX_PTX_RUN_CP_WAIT,
        SX_PTX_RUN_LDMATRIX,
        SX_PTX_RUN_EXIT,
        SX_PTX_RUN_STMATRIX,
        SX_PTX_RUN_TRAP,
        SX_PTX_RUN_MBARRIER,
        SX_PTX_RUN_FENCE_MBARRIER,
        SX_PTX_RUN_FENCE_PROXY,
        SX_PTX_RUN_ELECT,
        SX_PTX_RUN_BULK,
        SX_PTX_RUN_BULK_GROUP,
        SX_PTX_RUN_POLICY,
        SX_PTX_RUN_PREFETCH_MAP,
        SX_PTX_RUN_WGMMA,
        SX_PTX_RUN_WGMMA_GROUP,
        SX_PTX_RUN_SETMAXNREG,
        SX_PTX_RUN_MAPA,
        SX_PTX_RUN_CLUSTER_BARRIER,
        SX_PTX_RUN_GRID,
    };
    for (uint32_t i = 0; i < SX_COUNT(list); i++) {
        if (list[i] == handler) {
            return true;
        }
    }
    return false;
}

/* Every form of the table is prepared and runs, or is none that computes from registers. Operands and inactive lanes
 * stay as they are. */
START_TEST(test_every_form_is_prepared)
{
    sx_ptx_module *module;
    sx_forms f = {.turn = 0};
    sx_rng rng = {sx_test_seed()};
    ck_sx_ok(&cx, sx_ptx_module_make(&cx, 90, 'a', &module));
    sx_ptx_begin(&f.b, &cx, module, "forms");
    (void)sx_ptx_parameter(&f.b, "data", SX_PTX_TYPE_U64);
    f.shared = sx_ptx_shared(&f.b, "tile", 128, 1024);
    f.pointer = sx_ptx_register(&f.b, SX_PTX_B64);
    f.label = sx_ptx_label(&f.b);
    sx_ptx_place(&f.b, f.label);
    for (uint32_t op = 0; op < SX_PTX_OP_COUNT; op++) {
        forms_sweep(&f, (sx_ptx_op)op);
    }
    ck_sx_ok(&cx, f.b.code);
    const sx_ptx_kernel *kernel = f.b.kernel;
    ck_assert_uint_gt(kernel->insn_count, 500);
    for (uint32_t i = 0; i < kernel->insn_count; i++) {
        const sx_ptx_insn *insn = &kernel->insn[i];
        const sx_ptx_row *row = sx_ptx_row_of((sx_ptx_op)insn->op);
        sx_ptx_alu alu;
        bool is = sx_ptx_alu_of(kernel, insn, &alu);
        ck_assert_msg(is != of_others((sx_ptx_handler)row->handler), "%s", row->text);
        if (!is) {
            continue;
        }
        alu_words w;
        for (uint32_t k = 0; k < ALU_WORDS_MAX; k++) {
            for (uint32_t lane = 0; lane < SX_PTX_LANES; lane++) {
                w.operand[k].lane[lane] = sx_rng_next(&rng) & 1;
                w.result[k].lane[lane] = 0x5A;
            }
        }
        alu_words before = w;
        alu_run(&alu, &w, 0xFF00FF00);
        ck_assert_mem_eq(w.operand, before.operand, sizeof(w.operand));
        for (uint32_t lane = 0; lane < SX_PTX_LANES; lane++) {
            if ((0xFF00FF00 >> lane & 1) == 0) {
                ck_assert_uint_eq(w.result[0].lane[lane], 0x5A);
            }
        }
        for (uint32_t k = alu.result_count; k < ALU_WORDS_MAX; k++) {
            ck_assert_mem_eq(&w.result[k], &before.result[k], sizeof(w.result[k]));
        }
    }
}
END_TEST

/* ---- integers ---- */
typedef struct {
    uint32_t bits;
    bool is_signed;
} kind;

static s128 value_of(kind t, uint64_t x)
{
    s128 value = (s128)(t.bits == 64 ? x : x & ((UINT64_C(1) << t.bits) - 1));
    return t.is_signed && value >= (s128)1 << (t.bits - 1) ? value - ((s128)1 << t.bits) : value;
}

static uint64_t cut(uint32_t bits, s128 value)
{
    return bits >= 64 ? (uint64_t)(u128)value : (uint64_t)(u128)value & ((UINT64_C(1) << bits) - 1);
}

static s128 clamp(s128 value, s128 least, s128 most)
{
    return value < least ? least : value > most ? most : value;
}

typedef enum {
    ADD,
    ADD_SAT,
    SUB,
    SUB_SAT,
    MUL_LO,
    MUL_HI,
    MUL_WIDE,
    MAD_LO,
    MAD_HI,
    MAD_WIDE,
    DIV,
    REM,
    ABS,
    NEG,
    MIN,
    MAX,
    SHR,
    POPC,
    CLZ,
    BFIND,
    BFIND_SHIFT,
    BREV,
    BFE,
    BFI,
    AND,
    OR,
    XOR,
    NOT,
    SHL,
    CASES
} integer_case;

static const struct {
    const char *text; /* %t is the type, without its dot */
    const char *types;
} integer_row[CASES] = {
    [ADD] = {"add.%t %0, %1, %2", "u16 s16 u32 s32 u64 s64"},
    [ADD_SAT] = {"add.sat.%t %0, %1, %2", "s32"},
    [SUB] = {"sub.%t %0, %1, %2", "u16 s16 u32 s32 u64 s64"},
    [SUB_SAT] = {"sub.sat.%t %0, %1, %2", "s32"},
    [MUL_LO] = {"mul.lo.%t %0, %1, %2", "u16 s16 u32 s32 u64 s64"},
    [MUL_HI] = {"mul.hi.%t %0, %1, %2", "u16 s16 u32 s32 u64 s64"},
    [MUL_WIDE] = {"mul.wide.%t %w, %1, %2", "u16 s16 u32 s32"},
    [MAD_LO] = {"mad.lo.%t %0, %1, %2, %3", "u16 s16 u32 s32 u64 s64"},
    [MAD_HI] = {"mad.hi.%t %0, %1, %2, %3", "u16 s16 u32 s32 u64 s64"},
    [MAD_WIDE] = {"mad.wide.%t %w, %1, %2, %w", "u16 s16 u32 s32"},
    [DIV] = {"div.%t %0, %1, %2", "u16 s16 u32 s32 u64 s64"},
    [REM] = {"rem.%t %0, %1, %2", "u16 s16 u32 s32 u64 s64"},
    [ABS] = {"abs.%t %0, %1", "s16 s32 s64"},
    [NEG] = {"neg.%t %0, %1", "s16 s32 s64"},
    [MIN] = {"min.%t %0, %1, %2", "u16 s16 u32 s32 u64 s64"},
    [MAX] = {"max.%t %0, %1, %2", "u16 s16 u32 s32 u64 s64"},
    [SHR] = {"shr.%t %0, %1, %r2", "b16 b32 b64 u16 s16 u32 s32 u64 s64"},
    [POPC] = {"popc.%t %r0, %1", "b32 b64"},
    [CLZ] = {"clz.%t %r0, %1", "b32 b64"},
    [BFIND] = {"bfind.%t %r0, %1", "u32 s32 u64 s64"},
    [BFIND_SHIFT] = {"bfind.shiftamt.%t %r0, %1", "u32 s32 u64 s64"},
    [BREV] = {"brev.%t %0, %1", "b32 b64"},
    [BFE] = {"bfe.%t %0, %1, %r2, %r3", "u32 s32 u64 s64"},
    [BFI] = {"bfi.%t %0, %1, %2, %r3, %r4", "b32 b64"},
    [AND] = {"and.%t %0, %1, %2", "b16 b32 b64"},
    [OR] = {"or.%t %0, %1, %2", "b16 b32 b64"},
    [XOR] = {"xor.%t %0, %1, %2", "b16 b32 b64"},
    [NOT] = {"not.%t %0, %1", "b16 b32 b64"},
    [SHL] = {"shl.%t %0, %1, %r2", "b16 b32 b64"},
};

/* The text of a case for a type: %0 is a register of its size, %w one of twice that. */
static void write_insn(char out[128], const char *text, kind t, const char *type)
{
    const char *name = t.bits == 16 ? "h" : t.bits == 32 ? "r" : "d";
    const char *wide = t.bits == 16 ? "r" : "d";
    uint32_t n = 0;
    for (const char *p = text; *p != 0; p++) {
        if (*p != '%') {
            out[n++] = *p;
        } else if (p[1] == 't') {
            n += (uint32_t)snprintf(&out[n], 128 - n, "%s", type);
            p++;
        } else if (p[1] == 'w') {
            n += (uint32_t)snprintf(&out[n], 128 - n, "%%%s7", wide);
            p++;
        } else if (p[1] == 'r') {
            out[n++] = *p;
        } else {
            n += (uint32_t)snprintf(&out[n], 128 - n, "%%%s", name);
        }
    }
    out[n] = 0;
}

static bool bit(uint64_t x, uint64_t place)
{
    return place < 64 && (x >> place & 1) != 0;
}

/* Bit by bit, as the manual has it. */
static uint64_t expected_bits(integer_case c, kind t, const uint64_t in[5])
{
    uint64_t x = in[0], out = 0;
    uint32_t msb = t.bits - 1;
    uint64_t position = (c == BFI ? in[2] : in[1]) & 0xFF,
             length = (c == BFI ? in[3] : in[2]) & 0xFF;
    bool sign = t.is_signed && length > 0 &&
                bit(x, position + length - 1 < msb ? position + length - 1 : msb);
    out = c == BFI ? in[1] : c == BFIND || c == BFIND_SHIFT ? UINT32_MAX : c == CLZ ? t.bits : 0;
    for (uint32_t i = 0; i <= msb; i++) {
        uint64_t place = UINT64_C(1) << i;
        bool flipped = t.is_signed && bit(x, msb) ? !bit(x, i) : bit(x, i);
        switch ((int)c) {
        case POPC: out += bit(x, i) ? 1 : 0; break;
        case CLZ: out = bit(x, i) ? msb - i : out; break;
        case BFIND: out = flipped ? i : out; break;
        case BFIND_SHIFT: out = flipped ? msb - i : out; break;
        case BREV: out |= bit(x, msb - i) ? place : 0; break;
        case BFE:
            out |= (i < length && position + i <= msb ? bit(x, position + i) : sign) ? place : 0;
            break;
        case BFI:
            if (i < length && position + i <= msb) {
                uint64_t to = UINT64_C(1) << (position + i);
                out = bit(x, i) ? out | to : out & ~to;
            }
            break;
        case AND: out |= bit(x, i) && bit(in[1], i) ? place : 0; break;
        case OR: out |= bit(x, i) || bit(in[1], i) ? place : 0; break;
        case XOR: out |= bit(x, i) != bit(in[1], i) ? place : 0; break;
        case NOT: out |= bit(x, i) ? 0 : place; break;
        case SHL: out |= in[1] <= i && bit(x, i - in[1]) ? place : 0; break;
        default: ck_abort();
        }
    }
    return out;
}

static uint64_t expected(integer_case c, kind t, const uint64_t in[5])
{
    s128 x = value_of(t, in[0]), y = value_of(t, in[1]), z = value_of(t, in[2]);
    s128 wide = value_of((kind){t.bits < 64 ? 2 * t.bits : 64, t.is_signed}, in[2]);
    s128 limit = (s128)1 << (t.bits - 1);
    u128 unsigned_product = (u128)x * (u128)y;
    s128 upper = t.bits == 64 && !t.is_signed ? (s128)(unsigned_product >> 64) : (x * y) >> t.bits;
    uint64_t by = in[1] < t.bits ? in[1] : t.bits;
    switch (c) {
    case ADD: return cut(t.bits, x + y);
    case ADD_SAT: return cut(t.bits, clamp(x + y, -limit, limit - 1));
    case SUB: return cut(t.bits, x - y);
    case SUB_SAT: return cut(t.bits, clamp(x - y, -limit, limit - 1));
    case MUL_LO: return cut(t.bits, (s128)unsigned_product);
    case MUL_HI: return cut(t.bits, upper);
    case MUL_WIDE: return cut(2 * t.bits, x * y);
    case MAD_LO: return cut(t.bits, (s128)(unsigned_product + (u128)z));
    case MAD_HI: return cut(t.bits, upper + z);
    case MAD_WIDE: return cut(2 * t.bits, x * y + wide);
    case DIV: return cut(t.bits, y == 0 ? -1 : x / y);
    case REM: return cut(t.bits, y == 0 ? -1 : x % y);
    case ABS: return cut(t.bits, x < 0 ? -x : x);
    case NEG: return cut(t.bits, -x);
    case MIN: return cut(t.bits, x < y ? x : y);
    case MAX: return cut(t.bits, x > y ? x : y);
    case SHR: return cut(t.bits, x >> by);
    default: return expected_bits(c, t, in);
    }
}

/* Values at which meanings differ, and random ones of random lengths. */
static uint64_t operand(sx_rng *rng, uint32_t bits)
{
    uint64_t low = bits == 64 ? UINT64_MAX : (UINT64_C(1) << bits) - 1;
    const uint64_t edge[] = {
        0,  1,   2,   low, low - 1, low >> 1, (low >> 1) + 1, (low >> 1) + 2, 31, 32, 33, 63, 64,
        65, 255, 256, 15,  16,      17};
    uint64_t pick = sx_rng_below(rng, 2 * SX_COUNT(edge));
    return (pick < SX_COUNT(edge) ? edge[pick] : sx_rng_next(rng) >> sx_rng_below(rng, 64)) & low;
}

static void check_integers(integer_case c, kind t, const char *type, sx_rng *rng)
{
    char insn[128];
    write_insn(insn, integer_row[c].text, t, type);
    sx_ptx_alu alu = alu_insn(&cx, insn);
    bool counts = c == SHR || c == SHL;
    for (uint32_t i = 0; i < sx_test_trials(120); i++) {
        alu_words w;
        memset(&w, 0, sizeof(w));
        for (uint32_t lane = 0; lane < SX_PTX_LANES; lane++) {
            for (uint32_t k = 0; k < alu.operand_count; k++) {
                bool short_one = k > 0 && (counts || c == BFE || (c == BFI && k > 1));
                uint32_t bits = short_one ? 32 : c == MAD_WIDE && k == 2 ? 2 * t.bits : t.bits;
                w.operand[k].lane[lane] = operand(rng, bits);
            }
        }
        alu_run(&alu, &w, UINT32_MAX);
        for (uint32_t lane = 0; lane < SX_PTX_LANES; lane++) {
            uint64_t in[5];
            for (uint32_t k = 0; k < 5; k++) {
                in[k] = w.operand[k].lane[lane];
            }
            uint64_t want = expected(c, t, in);
            ck_assert_msg(w.result[0].lane[lane] == want,
                          "%s of %#llx %#llx %#llx %#llx: %#llx, not %#llx", insn,
                          (unsigned long long)in[0], (unsigned long long)in[1],
                          (unsigned long long)in[2], (unsigned long long)in[3],
                          (unsigned long long)w.result[0].lane[lane], (unsigned long long)want);
        }
    }
}

START_TEST(test_integers)
{
    sx_rng rng = {sx_test_seed()};
    const char *p = integer_row[_i].types;
    while (*p != 0) {
        char type[4] = {p[0], p[1], p[2], 0};
        kind t = {p[1] == '1' ? 16 : p[1] == '3' ? 32 : 64, p[0] == 's'};
        check_integers((integer_case)_i, t, type, &rng);
        p += p[3] == ' ' ? 4 : 3;
    }
}
END_TEST

/* ---- single formulas ---- */
/* shf by its sentence: the pair y:x is shifted as a number of 64 bits. */
static uint64_t funnel(bool left, bool clamped, uint64_t x, uint64_t y, uint64_t z)
{
    uint64_t n = clamped ? (z > 32 ? 32 : z) : z % 32;
    uint64_t out = 0;
    for (uint64_t i = 0; i < 32; i++) {
        uint64_t from = left ? 32 + i - n : i + n;
        out |= (uint64_t)(from < 32 ? bit(x, from) : bit(y, from - 32)) << i;
    }
    return out;
}

START_TEST(test_shf_lop3_prmt_dp4a)
{
    sx_rng rng = {sx_test_seed()};
    static const char *const shf[] = {
        "shf.r.wrap.b32 %r0, %r1, %r2, %r3", "shf.r.clamp.b32 %r0, %r1, %r2, %r3",
        "shf.l.wrap.b32 %r0, %r1, %r2, %r3", "shf.l.clamp.b32 %r0, %r1, %r2, %r3"};
    static const char *const dot[] = {
        "dp4a.u32.u32 %r0, %r1, %r2, %r3", "dp4a.u32.s32 %r0, %r1, %r2, %r3",
        "dp4a.s32.u32 %r0, %r1, %r2, %r3", "dp4a.s32.s32 %r0, %r1, %r2, %r3"};
    sx_ptx_alu lop3 = alu_insn(&cx, "lop3.b32 %r0, %r1, %r2, %r3, 0");
    sx_ptx_alu prmt = alu_insn(&cx, "prmt.b32 %r0, %r1, %r2, %r3");
    for (uint32_t i = 0; i < sx_test_trials(4000); i++) {
        uint64_t in[4] = {operand(&rng, 32), operand(&rng, 32), operand(&rng, 32),
                          sx_rng_below(&rng, 256)};
        for (uint32_t k = 0; k < 4; k++) {
            sx_ptx_alu alu = alu_insn(&cx, shf[k]);
            ck_assert_uint_eq(alu_one(&alu, in), funnel(k >= 2, k % 2 == 1, in[0], in[1], in[2]));
            alu = alu_insn(&cx, dot[k]);
            int64_t sum = (int64_t)in[2];
            for (uint32_t b = 0; b < 32; b += 8) {
                int64_t x = (int64_t)(in[0] >> b & 0xFF), y = (int64_t)(in[1] >> b & 0xFF);
                sum += (k >= 2 && x > 127 ? x - 256 : x) * (k % 2 == 1 && y > 127 ? y - 256 : y);
            }
            ck_assert_uint_eq(alu_one(&alu, in), (uint32_t)sum);
        }
        uint64_t logic = 0, bytes = 0;
        for (uint32_t b = 0; b < 32; b++) {
            uint64_t index = (bit(in[0], b) ? 4U : 0) + (bit(in[1], b) ? 2U : 0) + bit(in[2], b);
            logic |= (uint64_t)bit(in[3], index) << b;
        }
        for (uint32_t b = 0; b < 4; b++) {
            uint64_t select = in[2] >> (4 * b) & 15;
            uint64_t from = (select & 7) < 4 ? in[0] : in[1];
            uint64_t byte = from >> (8 * (select % 4)) & 0xFF;
            bytes |= (select < 8 ? byte : byte >= 128 ? 255 : 0) << (8 * b);
        }
        ck_assert_uint_eq(alu_one(&lop3, in), logic);
        ck_assert_uint_eq(alu_one(&prmt, in), bytes);
        if (i % 200 == 0) {
            sx_ctx_fini(&cx);
            sx_ctx_init(&cx, (size_t)1 << 28);
        }
    }
}
END_TEST

/* Results may be operands; the parts of packed registers begin at the lowest. */
START_TEST(test_moves)
{
    const uint64_t parts[] = {0x1111, 0x2222, 0x3333, 0x4444};
    sx_ptx_alu pack = alu_insn(&cx, "mov.b64 %d0, {%h1, %h2, %h3, %h4}");
    ck_assert_uint_eq(alu_one(&pack, parts), UINT64_C(0x4444333322221111));
    pack = alu_insn(&cx, "mov.b32 %r0, {%h1, %h2}");
    ck_assert_uint_eq(alu_one(&pack, parts), 0x22221111);
    pack = alu_insn(&cx, "mov.b64 %d0, {%r1, %r2}");
    ck_assert_uint_eq(alu_one(&pack, parts), UINT64_C(0x0000222200001111));

    sx_ptx_alu unpack = alu_insn(&cx, "mov.b64 {%r1, %r2}, %d0");
    sx_ptx_word word = {{UINT64_C(0x8877665544332211)}}, upper = {{5, 6}};
    sx_ptx_word *result[2] = {&word, &upper};
    const sx_ptx_word *in[1] = {&word};
    unpack.run(&unpack, result, in, 1);
    ck_assert_uint_eq(word.lane[0], 0x44332211);
    ck_assert_uint_eq(upper.lane[0], 0x88776655);
    ck_assert_uint_eq(upper.lane[1], 6);

    const uint64_t choice[] = {7, 9, 1}, other[] = {7, 9, 0};
    sx_ptx_alu selp = alu_insn(&cx, "selp.b32 %r0, %r1, %r2, %p0");
    ck_assert_uint_eq(alu_one(&selp, choice), 7);
    ck_assert_uint_eq(alu_one(&selp, other), 9);
    sx_ptx_alu not = alu_insn(&cx, "not.pred %p0, %p1");
    ck_assert_uint_eq(alu_one(&not, &other[2]), 1);
    ck_assert_uint_eq(alu_one(&not, &choice[2]), 0);
}
END_TEST

/* ---- comparisons ---- */
START_TEST(test_setp_of_integers)
{
    sx_rng rng = {sx_test_seed()};
    static const char *const compare[] = {"eq", "ne", "lt", "le", "gt",
                                          "ge", "lo", "ls", "hi", "hs"};
    static const char *const join[] = {"", ".and", ".or", ".xor"};
    for (uint32_t c = 0; c < SX_COUNT(compare); c++) {
        for (uint32_t j = 0; j < 8; j++) {
            char insn[128];
            bool is_signed = c >= 2 && c < 6, negated = j >= 4 && j % 4 != 0;
            (void)snprintf(insn, sizeof(insn), "setp.%s%s.%s %%p0|%%p1, %%r1, %%r2%s", compare[c],
                           join[j % 4], is_signed ? "s32" : "u32",
                           j % 4 == 0 ? ""
                           : negated  ? ", !%p2"
                                      : ", %p2");
            sx_ptx_alu alu = alu_insn(&cx, insn);
            for (uint32_t i = 0; i < 300; i++) {
                alu_words w;
                memset(&w, 0, sizeof(w));
                w.operand[0].lane[0] = operand(&rng, 32);
                w.operand[1].lane[0] = i % 4 == 0 ? w.operand[0].lane[0] : operand(&rng, 32);
                w.operand[2].lane[0] = i % 2;
                s128 x = value_of((kind){32, is_signed}, w.operand[0].lane[0]);
                s128 y = value_of((kind){32, is_signed}, w.operand[1].lane[0]);
                const bool truth[] = {x == y, x != y, x<y, x <= y, x> y, x >= y, x<y, x <= y, x> y,
                                      x >= y};
                uint32_t t = truth[c], third = negated ? 1 - i % 2 : i % 2;
                const uint32_t p[] = {t, t & third, t | third, t ^ third};
                const uint32_t q[] = {1 - t, (1 - t) & third, (1 - t) | third, (1 - t) ^ third};
                alu_run(&alu, &w, 1);
                ck_assert_msg(w.result[0].lane[0] == p[j % 4] && w.result[1].lane[0] == q[j % 4],
                              "%s", insn);
            }
        }
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("alu");
    TCase *tcase = tcase_create("alu");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, test_every_form_is_prepared);
    tcase_add_loop_test(tcase, test_integers, 0, CASES);
    tcase_add_test(tcase, test_shf_lop3_prmt_dp4a);
    tcase_add_test(tcase, test_moves);
    tcase_add_test(tcase, test_setp_of_integers);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
