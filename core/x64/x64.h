/* x64.h - x86-64 machine code: assembler, decoder, printer and verifier, all from the one table ops.def.
 *
 * Written for generated tensor kernels: about 200 mnemonics in 400 forms (general registers, AVX2 + FMA +
 * F16C, AVX-512 F/VL/BW/DQ). Operands stand in Intel order. A text has one encoding (the first row of the
 * table that fits); the decoder accepts only that encoding, so decode(encode(x)) = x and encode(decode(bytes))
 * = bytes. GNU as is the oracle of the tests. Sources: Intel SDM volume 2 (VEX, EVEX, disp8*N); System V x86-64 ABI.
 */
#ifndef SX_CORE_X64_X64_H
#define SX_CORE_X64_X64_H
#include "core/base/base.h"
#include "core/base/buf.h"

typedef enum {
#define SX_X64_OP(op, ...) SX_X64_##op,
#define SX_X64_FORM(...)
#include "core/x64/ops.def"
#undef SX_X64_OP
#undef SX_X64_FORM
    SX_X64_OP_COUNT
} sx_x64_op;

/* What the processor must have. AVX2 means AVX2, FMA and F16C (x86-64-v3); AVX-512 adds F, VL, BW and DQ
 * (x86-64-v4). */
typedef enum { SX_X64_AVX2, SX_X64_AVX512 } sx_x64_level;

typedef enum {
    SX_X64_NONE,
    SX_X64_R64,
    SX_X64_R32,
    SX_X64_XMM,
    SX_X64_YMM,
    SX_X64_ZMM,
    SX_X64_K,
    SX_X64_MEM,
    SX_X64_IMM,
    SX_X64_LABEL
} sx_x64_kind;

/* clang-format off */
enum { SX_RAX, SX_RCX, SX_RDX, SX_RBX, SX_RSP, SX_RBP, SX_RSI, SX_RDI,
       SX_R8, SX_R9, SX_R10, SX_R11, SX_R12, SX_R13, SX_R14, SX_R15 };
/* clang-format on */
#define SX_X64_NO_REG 255 /* no index */
#define SX_X64_RIP 254    /* base: address relative to the end of the instruction */
#define SX_X64_NO_LABEL UINT32_MAX

/* One operand. Memory: [base + index * scale + disp], or [rip + disp], or the address of a label plus disp. */
typedef struct {
    uint8_t kind;   /* sx_x64_kind */
    uint8_t reg;    /* register number; MEM: base 0..15 or SX_X64_RIP */
    uint8_t index;  /* MEM: 0..15 but not rsp, or SX_X64_NO_REG */
    uint8_t scale;  /* MEM: 1, 2, 4, 8 */
    uint8_t mask;   /* operand 0: k1..k7; 0 none */
    bool zero;      /* operand 0: lanes out of the mask become zero instead of staying */
    bool broadcast; /* MEM: one element for all lanes */
    /* LABEL, MEM with rip: label of the assembler, or NO_LABEL: disp counts from the instruction's
     * end */
    uint32_t label;
    int32_t disp; /* MEM and LABEL */
    int64_t imm;
} sx_x64_arg;

#define SX_X64_ARG_MAX 4
static inline sx_x64_arg sx_x64_reg(sx_x64_kind kind, uint32_t number)
{
    return (sx_x64_arg){.kind = (uint8_t)kind, .reg = (uint8_t)number};
}
static inline sx_x64_arg sx_x64_r64(uint32_t number)
{
    return sx_x64_reg(SX_X64_R64, number);
}
static inline sx_x64_arg sx_x64_r32(uint32_t number)
{
    return sx_x64_reg(SX_X64_R32, number);
}
static inline sx_x64_arg sx_x64_k(uint32_t number)
{
    return sx_x64_reg(SX_X64_K, number);
}
static inline sx_x64_arg sx_x64_imm(int64_t value)
{
    return (sx_x64_arg){.kind = SX_X64_IMM, .imm = value};
}
static inline sx_x64_arg sx_x64_mem(uint32_t base, int32_t disp)
{
    return (sx_x64_arg){.kind = SX_X64_MEM,
                        .reg = (uint8_t)base,
                        .index = SX_X64_NO_REG,
                        .scale = 1,
                        .label = SX_X64_NO_LABEL,
                        .disp = disp};
}
static inline sx_x64_arg sx_x64_mem_index(uint32_t base, uint32_t index, uint32_t scale,
                                          int32_t disp)
{
    sx_x64_arg arg = sx_x64_mem(base, disp);
    arg.index = (uint8_t)index;
    arg.scale = (uint8_t)scale;
    return arg;
}
static inline sx_x64_arg sx_x64_at(uint32_t label) /* memory at a label */
{
    sx_x64_arg arg = sx_x64_mem(SX_X64_RIP, 0);
    arg.label = label;
    return arg;
}
static inline sx_x64_arg sx_x64_to(uint32_t label) /* branch target */
{
    return (sx_x64_arg){.kind = SX_X64_LABEL, .label = label};
}
static inline sx_x64_arg sx_x64_broadcast(sx_x64_arg mem)
{
    mem.broadcast = true;
    return mem;
}
static inline sx_x64_arg sx_x64_masked(sx_x64_arg arg, uint32_t k, bool zero)
{
    arg.mask = (uint8_t)k;
    arg.zero = zero;
    return arg;
}

/* ---- one instruction ---- */
#define SX_X64_BYTES_MAX 15
typedef struct {
    sx_x64_op op;
    uint16_t form;   /* row of the table (form.h) */
    uint8_t len;     /* bytes */
    uint8_t disp_at; /* offset of a rip displacement or branch distance; 0 none */
    uint8_t arg_count;
    sx_x64_arg arg[SX_X64_ARG_MAX];
    uint8_t byte[SX_X64_BYTES_MAX];
} sx_x64_insn;

const char *sx_x64_op_text(sx_x64_op op);

/* Fills in form, len and byte from op, arg_count and arg. Labels count as distance 0. False: no row of the
 * table fits. */
bool sx_x64_encode(sx_x64_insn *insn);

/* Index of the table for decoding; plain data, about 4 KB, for the stack. */
typedef struct {
    uint16_t head[3 * 256 * 4]; /* row + 1 by encoding, map and opcode */
    uint16_t next[512];
} sx_x64_decoder;
void sx_x64_decoder_init(sx_x64_decoder *decoder);
/* The instruction at the start of `bytes`. False: not one of the listed forms in its canonical encoding, or
 * truncated. */
bool sx_x64_decode(const sx_x64_decoder *decoder, sx_span bytes, sx_x64_insn *insn);
/* Intel syntax as GNU as reads it after ".intel_syntax noprefix". */
void sx_x64_print(sx_buf *text, const sx_x64_insn *insn);
/* One line per instruction from `offset` up to the first byte that is none: "offset: bytes text". Ends at `size`. */
void sx_x64_print_code(sx_buf *text, sx_span blob, uint32_t offset, uint32_t size);

/* ---- assembler ----
 * Appends to a blob. The first failure sticks (code, text in cx->error); sx_x64_finish returns it. Labels and
 * constants live in cx's arena. Offsets and alignment count from the start of `out`, which the loader maps at
 * a page boundary.
 */
typedef struct {
    uint32_t at;  /* offset of the rel32 field in the blob */
    uint32_t end; /* offset that the distance counts from */
    uint32_t label;
    int32_t addend;
} sx_x64_fixup;

typedef struct {
    uint32_t label;
    uint32_t align; /* power of two, at most 64 */
    uint32_t size;
    const uint8_t *bytes;
} sx_x64_const;

typedef struct {
    sx_ctx *cx;
    sx_buf *out;
    sx_x64_level level;
    sx_code code;
    uint32_t *label; /* offset in the blob; SX_X64_NO_LABEL while not bound */
    uint32_t label_count, label_capacity;
    sx_x64_fixup *fixup;
    uint32_t fixup_count, fixup_capacity;
    sx_x64_const *constant;
    uint32_t constant_count, constant_capacity;
} sx_x64_asm;

#define SX_X64_LABEL_MAX 65536
#define SX_X64_CONST_MAX 4096
#define SX_X64_BLOB_MAX ((size_t)1 << 28) /* rel32 always reaches */

void sx_x64_asm_init(sx_x64_asm *as, sx_ctx *cx, sx_x64_level level, SX_KEEP sx_buf *out);
uint32_t sx_x64_offset(const sx_x64_asm *as); /* of the next instruction */
uint32_t sx_x64_label_make(sx_x64_asm *as);
void sx_x64_label_put(sx_x64_asm *as, uint32_t label); /* binds it here; once */
/* Label of a constant of `size` bytes (4..64, copied), placed behind the code by sx_x64_finish; equal ones are
 * shared. */
uint32_t sx_x64_const_put(sx_x64_asm *as, const void *bytes, uint32_t size, uint32_t align);
void sx_x64_align(sx_x64_asm *as, uint32_t align); /* fills with nops: code falls through */
void sx_x64_put(sx_x64_asm *as, sx_x64_op op, const sx_x64_arg *arg, uint32_t arg_count);
#define SX_X64_PUT0(as, op) sx_x64_put((as), SX_X64_##op, NULL, 0)
#define SX_X64_PUT(as, op, ...)                                      \
    sx_x64_put((as), SX_X64_##op, (const sx_x64_arg[]){__VA_ARGS__}, \
               (uint32_t)SX_COUNT(((const sx_x64_arg[]){__VA_ARGS__})))
/* Places the constants (64-byte aligned, behind the code) and resolves all labels.
 *   errors   SX_INTERNAL an operand combination without a row, a label never bound; SX_UNIMPLEMENTED an
 *            AVX-512 form at level AVX2; SX_LIMIT blob, labels or constants; SX_NOMEM */
sx_code sx_x64_finish(sx_x64_asm *as);

/* ---- verifier ----
 * Walks the blob from every entry. Accepted: only listed forms of `level`; memory off any general register or,
 * rip-relative and then load only, inside the blob; direct jumps to starts of instructions; a stack that is
 * back at its entry depth at every ret and that only push, pop, add and sub rsp with constants move; stores
 * off rsp stay in the frame. Refused with SX_INPUT and the offset: everything else, in particular indirect or
 * far jumps, calls, system instructions, code that runs off the blob. It is a check of forms, not a proof that
 * other addresses stay in their buffers.
 *   entry    offsets in the blob
 *   memory   cx's arena: 9 bytes per byte of blob
 *   errors   SX_INPUT what is refused; SX_LIMIT blob size; SX_NOMEM */
sx_code sx_x64_check(sx_ctx *cx, sx_span blob, sx_x64_level level, const uint32_t *entry,
                     uint32_t entry_count);
#endif
