/* emit_c.c - a kernel as C with GNU vector extensions: second opinion on the machine back ends, used by the tests.
 *
 * No headers. Every vector value is a variable of a 32- or 64-byte vector type; masks are integer vectors of 0
 * and -1. FMA is a named instruction where the compiler has it, else fmaf lane by lane: never contraction, so
 * compile with -ffp-contract=off. */
#include "core/loop/loop.h"

/* REAL, INT and UINT are the types of a lane, HALF_TYPE that of the float of half its width. */
static const char prologue[] =
    "typedef unsigned char u8;\n"
    "typedef unsigned int u32;\n"
    "typedef long long i64;\n"
    "typedef REAL vf __attribute__((vector_size(sizeof(REAL) * LANES)));\n"
    "typedef INT vi __attribute__((vector_size(sizeof(INT) * LANES)));\n"
    "typedef UINT vu __attribute__((vector_size(sizeof(UINT) * LANES)));\n"
    "#define INLINE static inline __attribute__((always_inline, unused))\n"
    "#define EACH(type, expression) type d; for (int i = 0; i < LANES; i++) "
    "d[i] = (expression); return d\n"
    "INLINE vf splat(UINT u) { vu d = (vu){} + u; return (vf)d; }\n"
    "INLINE UINT bits_of(REAL x) { UINT u; __builtin_memcpy(&u, &x, sizeof(u)); return u; }\n"
    "#define ELEMENT(name, type, expression) \\\n"
    "INLINE UINT get_##name(const u8 *p) { type u; __builtin_memcpy(&u, p, sizeof(u)); "
    "return expression; } \\\n"
    "INLINE vf load_##name(const u8 *p, u32 n) { vu d = {}; for (u32 i = 0; i < n; i++) "
    "d[i] = get_##name(p + i * sizeof(type)); return (vf)d; } \\\n"
    "INLINE vf loadb_##name(const u8 *p) { return splat(get_##name(p)); } \\\n"
    "INLINE vf loads_##name(const u8 *p, u32 n, i64 stride) { vu d = {}; "
    "for (u32 i = 0; i < n; i++) d[i] = get_##name(p + i * stride); return (vf)d; } \\\n"
    "INLINE void store_##name(u8 *p, vf a, u32 n) { for (u32 i = 0; i < n; i++) "
    "{ type u = put_##name(((vu)a)[i]); __builtin_memcpy(p + i * sizeof(type), &u, sizeof(u)); } "
    "} \\\n"
    "INLINE void stores_##name(u8 *p, vf a, u32 n, i64 stride) { for (u32 i = 0; i < n; i++) "
    "{ type u = put_##name(((vu)a)[i]); __builtin_memcpy(p + i * stride, &u, sizeof(u)); } }\n"
    "#define put_lane(u) (u)\n"
    "#define put_i32(u) (int)(u)\n"
    "#define put_i16(u) (short)(u)\n"
    "#define put_u16(u) (unsigned short)(u)\n"
    "#define put_i8(u) (signed char)(u)\n"
    "#define put_u8(u) (u8)(u)\n"
    "INLINE HALF_TYPE put_half(UINT u) { REAL x; __builtin_memcpy(&x, &u, sizeof(x)); "
    "return (HALF_TYPE)x; }\n"
    "ELEMENT(lane, UINT, u)\n"
    "ELEMENT(i32, int, (UINT)(INT)u)\n"
    "ELEMENT(i16, short, (UINT)(INT)u)\n"
    "ELEMENT(u16, unsigned short, u)\n"
    "ELEMENT(i8, signed char, (UINT)(INT)u)\n"
    "ELEMENT(u8, u8, u)\n"
    "ELEMENT(half, HALF_TYPE, bits_of((REAL)u))\n"
    "INLINE vf pick(vi m, vf a, vf b) { return (vf)((m & (vi)a) | (~m & (vi)b)); }\n"
    "INLINE vf vmax(vf a, vf b) { return pick(a > b, a, b); }\n"
    "INLINE vf vmin(vf a, vf b) { return pick(a < b, a, b); }\n"
    "#if WIDE\n"
    "INLINE vf vfma(vf a, vf b, vf c) { EACH(vf, __builtin_fma(a[i], b[i], c[i])); }\n"
    "#elif LANES == 16 && defined(__AVX512F__)\n"
    "INLINE vf vfma(vf a, vf b, vf c) "
    "{ return (vf)__builtin_ia32_vfmaddps512_mask(a, b, c, (unsigned short)-1, 4); }\n"
    "#elif LANES == 8 && defined(__FMA__)\n"
    "INLINE vf vfma(vf a, vf b, vf c) { return (vf)__builtin_ia32_vfmaddps256(a, b, c); }\n"
    "#else\n"
    "INLINE vf vfma(vf a, vf b, vf c) { EACH(vf, __builtin_fmaf(a[i], b[i], c[i])); }\n"
    "#endif\n"
    "INLINE vf vfnma(vf a, vf b, vf c) { return vfma(-a, b, c); }\n"
    "INLINE vf vsqrt(vf a) { EACH(vf, FUNCTION(sqrt)(a[i])); }\n"
    "INLINE vf vround0(vf a) { EACH(vf, FUNCTION(rint)(a[i])); }\n"
    "INLINE vf vround1(vf a) { EACH(vf, FUNCTION(floor)(a[i])); }\n"
    "INLINE vf vround2(vf a) { EACH(vf, FUNCTION(ceil)(a[i])); }\n"
    "INLINE vf vround3(vf a) { EACH(vf, FUNCTION(trunc)(a[i])); }\n"
    "INLINE vf halve(vf a) { EACH(vf, (REAL)(HALF_TYPE)a[i]); }\n"
    "#define PLACES (8 * sizeof(UINT))\n"
    "#define SHIFT(made, far) vu x = (vu)a, n = (vu)b, d; for (int i = 0; i < LANES; i++) "
    "d[i] = n[i] < PLACES ? (made) : (far); return (vf)d\n"
    "INLINE vf shlv(vf a, vf b) { SHIFT(x[i] << n[i], 0); }\n"
    "INLINE vf shrv(vf a, vf b) { SHIFT(x[i] >> n[i], 0); }\n"
    "INLINE vf sarv(vf a, vf b) { SHIFT((UINT)(((vi)x)[i] >> n[i]), (UINT)(((vi)x)[i] >> 31)); }\n"
    "INLINE vf f2i(vf a) { vi d; for (int i = 0; i < LANES; i++) d[i] = a[i] >= -2147483648.0f && "
    "a[i] < 2147483648.0f ? (int)a[i] : -2147483647 - 1; return (vf)d; }\n"
    "INLINE vf i2f(vf a) { EACH(vf, (float)((vi)a)[i]); }\n"
    "INLINE vf swap(vf a, int n) { EACH(vf, a[i ^ n]); }\n"
    "INLINE vf iota(u32 n) { vu d; for (u32 i = 0; i < LANES; i++) d[i] = (UINT)i + n; "
    "return (vf)d; }\n"
    "INLINE i64 sload32(const u8 *p) { int v; __builtin_memcpy(&v, p, 4); return v; }\n"
    "INLINE i64 sload64(const u8 *p) { i64 v; __builtin_memcpy(&v, p, 8); return v; }\n"
    "INLINE i64 sclamp(i64 s, i64 n) { return s < 0 ? 0 : s > n - 1 ? n - 1 : s; }\n";

/* How each instruction is written: %a %b %c vector, mask or integer operands, %p address, %m type in memory,
 * %n and %N immediates, %k constant. */
static const char *const pattern[SX_LOP_COUNT] = {
    [SX_LOP_SET] = "splat(%k)",
    [SX_LOP_MOV] = "%a",
    [SX_LOP_LOAD] = "load_%m(%p, %n)",
    [SX_LOP_LOADB] = "loadb_%m(%p)",
    [SX_LOP_LOADS] = "loads_%m(%p, %n, %N)",
    [SX_LOP_STORE] = "store_%m(%p, %a, %n)",
    [SX_LOP_STORES] = "stores_%m(%p, %a, %n, %N)",
    [SX_LOP_PREFETCH] = "__builtin_prefetch(%p)",
    [SX_LOP_ADD] = "%a + %b",
    [SX_LOP_SUB] = "%a - %b",
    [SX_LOP_MUL] = "%a * %b",
    [SX_LOP_DIV] = "%a / %b",
    [SX_LOP_MAX] = "vmax(%a, %b)",
    [SX_LOP_MIN] = "vmin(%a, %b)",
    [SX_LOP_SQRT] = "vsqrt(%a)",
    [SX_LOP_FMA] = "vfma(%a, %b, %c)",
    [SX_LOP_FNMA] = "vfnma(%a, %b, %c)",
    [SX_LOP_ROUND] = "vround%n(%a)",
    [SX_LOP_AND] = "(vf)((vi)%a & (vi)%b)",
    [SX_LOP_OR] = "(vf)((vi)%a | (vi)%b)",
    [SX_LOP_XOR] = "(vf)((vi)%a ^ (vi)%b)",
    [SX_LOP_IADD] = "(vf)((vu)%a + (vu)%b)",
    [SX_LOP_ISUB] = "(vf)((vu)%a - (vu)%b)",
    [SX_LOP_IMUL] = "(vf)(((vu)%a & 0xffffffffu) * ((vu)%b & 0xffffffffu))",
    [SX_LOP_HALVE] = "halve(%a)",
    [SX_LOP_SHL] = "(vf)((vu)%a << %n)",
    [SX_LOP_SHR] = "(vf)((vu)%a >> %n)",
    [SX_LOP_SAR] = "(vf)((vi)%a >> %n)",
    [SX_LOP_SHLV] = "shlv(%a, %b)",
    [SX_LOP_SHRV] = "shrv(%a, %b)",
    [SX_LOP_SARV] = "sarv(%a, %b)",
    [SX_LOP_F2I] = "f2i(%a)",
    [SX_LOP_I2F] = "i2f(%a)",
    [SX_LOP_CMP] = "(vi)(%a %o %b)",
    [SX_LOP_ICMP] = "(vi)((vi)%a %o (vi)%b)",
    [SX_LOP_MAND] = "%a & %b",
    [SX_LOP_MOR] = "%a | %b",
    [SX_LOP_MXOR] = "%a ^ %b",
    [SX_LOP_MNOT] = "~%a",
    [SX_LOP_BLEND] = "pick(%a, %b, %c)",
    [SX_LOP_SWAP] = "swap(%a, %n)",
    [SX_LOP_BCAST0] = "splat(((vu)%a)[0])",
    [SX_LOP_IOTA] = "iota(%nu)",
    [SX_LOP_SLOAD32] = "sload32(%p)",
    [SX_LOP_SLOAD64] = "sload64(%p)",
    [SX_LOP_SVAR] = "v%n",
    [SX_LOP_SWRAP] = "%a < 0 ? %a + %N : %a",
    [SX_LOP_SCLAMP] = "sclamp(%a, %N)",
    [SX_LOP_SADD] = "(i64)((unsigned long long)%a + (unsigned long long)%b)",
    [SX_LOP_SOFF] = "(i64)((unsigned long long)%a + (unsigned long long)%N)",
    [SX_LOP_SMUL] = "(i64)((unsigned long long)%a * (unsigned long long)%N)",
    [SX_LOP_S2V] = "splat((UINT)%a)",
};

static void emit_address(sx_buf *text, const sx_addr *addr)
{
    sx_buf_print(text, "b%u + (%lldLL", addr->buffer, (long long)addr->offset);
    for (uint32_t v = 0; v < SX_LOOP_VARS_MAX; v++) {
        if (addr->coef[v] != 0) {
            sx_buf_print(text, " + %lldLL * v%u", (long long)addr->coef[v], v);
        }
    }
    if (addr->index_reg != SX_NO_REG) {
        sx_buf_print(text, " + s%u", addr->index_reg);
    }
    sx_buf_put_text(text, ")");
}

/* The register operand number `which` with its class letter. */
static void emit_operand(sx_buf *text, const sx_item *item, uint32_t which)
{
    uint32_t seen = 0;
    for (const char *p = sx_lop_info_of(item->op)->operands; *p != '\0'; p++) {
        if ((*p == 'v' || *p == 'm' || *p == 's') && seen++ == which) {
            sx_buf_print(text, "%c%u", *p == 'v' ? 'x' : *p, item->src[which]);
            return;
        }
    }
    SX_UNREACHABLE();
}

static void emit_op(sx_buf *text, const sx_part *part, const sx_item *item)
{
    static const char *const direction[SX_DIRECTION_COUNT] = {"==", "!=", "<", "<=", ">", ">="};
    const sx_lop_info *info = sx_lop_info_of(item->op);
    if (info->result != '-') {
        sx_buf_print(text, "%c%u = ", info->result == 'v' ? 'x' : info->result, item->dst);
    }
    for (const char *p = pattern[item->op]; *p != '\0'; p++) {
        if (*p != '%') {
            sx_buf_put_u8(text, (uint8_t)*p);
            continue;
        }
        switch (*++p) {
        case 'p': emit_address(text, &part->addr[item->addr]); break;
        case 'n': sx_buf_print(text, "%u", item->imm); break;
        case 'N': sx_buf_print(text, "%lldLL", (long long)item->imm2); break;
        case 'm': sx_buf_put_text(text, sx_mem_name(item->mem)); break;
        case 'k': sx_buf_print(text, "%lluu", (unsigned long long)sx_item_bits(item)); break;
        case 'o': sx_buf_put_text(text, direction[item->imm]); break;
        default: emit_operand(text, item, (uint32_t)(*p - 'a')); break;
        }
    }
    sx_buf_put_text(text, ";\n");
}

static void emit_registers(sx_buf *text, const char *type, char letter, uint32_t count)
{
    for (uint32_t r = 0; r < count; r++) {
        sx_buf_print(text, "    %s %c%u;\n", type, letter, r);
    }
}

static void emit_part(sx_buf *text, const sx_kernel *kernel, uint32_t p)
{
    const sx_part *part = &kernel->part[p];
    sx_buf_print(text,
                 "void %s_p%u(void *const *buffer, const i64 *index, void *workspace)\n{\n"
                 "    (void)buffer; (void)index; (void)workspace;\n",
                 kernel->name, p);
    for (uint32_t k = 0; k < kernel->buffer_count; k++) {
        bool workspace = kernel->buffer[k].role == SX_BUFFER_WORKSPACE;
        sx_buf_print(text, "    u8 *b%u = (u8 *)", k);
        sx_buf_print(text, workspace ? "workspace;\n" : "buffer[%u];\n", k);
        sx_buf_print(text, "    (void)b%u;\n", k);
    }
    for (uint32_t g = 0; g < 3; g++) {
        sx_buf_print(text, "    const i64 v%u = index[%u]; (void)v%u;\n", g, g, g);
    }
    emit_registers(text, "vf", 'x', part->vector_count);
    emit_registers(text, "vi", 'm', part->mask_count);
    emit_registers(text, "i64", 's', part->scalar_count);
    for (uint32_t i = 0; i < part->item_count; i++) {
        const sx_item *item = &part->item[i];
        switch (item->kind) {
        case SX_ITEM_OP:
            sx_buf_put_text(text, "    ");
            emit_op(text, part, item);
            break;
        case SX_ITEM_LOOP:
            sx_buf_print(text, "    for (i64 v%u = 0; v%u < %lldLL; v%u++) {\n", item->dst,
                         item->dst, (long long)item->trip, item->dst);
            break;
        case SX_ITEM_END: sx_buf_put_text(text, "    }\n"); break;
        }
    }
    sx_buf_put_text(text, "}\n");
}

/* The name becomes part of a C identifier. */
static sx_code check_name(sx_ctx *cx, const sx_kernel *kernel)
{
    for (const char *p = kernel->name; *p != '\0'; p++) {
        bool letter = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || *p == '_';
        if (!letter && (p == kernel->name || *p < '0' || *p > '9')) {
            return SX_FAIL(cx, SX_INPUT, "kernel name '%s' is not a C identifier", kernel->name);
        }
    }
    return kernel->name[0] != '\0' ? SX_OK : SX_FAIL(cx, SX_INPUT, "kernel has an empty name");
}

sx_code sx_kernel_emit_c(sx_ctx *cx, const sx_kernel *kernel, sx_buf *text)
{
    SX_TRY(sx_kernel_check(cx, kernel));
    SX_TRY(check_name(cx, kernel));
    sx_buf_print(text, "/* %s: compile with -O2 -ffp-contract=off -fno-strict-aliasing */\n",
                 kernel->name);
    bool wide = kernel->lane_bytes == 8;
    sx_buf_print(text, "#define LANES %u\n#define WIDE %d\n", kernel->lanes, wide);
    sx_buf_put_text(text, wide ? "#define REAL double\n#define INT long long\n"
                                 "#define UINT unsigned long long\n#define HALF_TYPE float\n"
                                 "#define FUNCTION(name) __builtin_##name\n"
                               : "#define REAL float\n#define INT int\n#define UINT unsigned int\n"
                                 "#define HALF_TYPE _Float16\n"
                                 "#define FUNCTION(name) __builtin_##name##f\n");
    sx_buf_put_text(text, prologue);
    for (uint32_t p = 0; p < kernel->part_count; p++) {
        emit_part(text, kernel, p);
    }
    return sx_buf_check(cx, text, "kernel in C");
}
