/* alu.h - what instructions compute from registers alone, for the 32 threads of a warp at once.
 *
 * The interpreter prepares an instruction once and then runs it as often as it is met. Memory, control and what
 * threads tell each other are not here: they need the state of a block.
 *
 * Results are those of the PTX ISA, version 9.0. Where it leaves them open, one is chosen for all machines:
 *     x / 0, x % 0            all ones; the lowest integer / -1 is itself, % -1 is 0; remainders have the sign
 *                             of the dividend
 *     NaN                     0x7fffffff, 0x7fff in f16 and bf16, CUDART_NAN (0xfff8000000000000) in f64, also
 *                             from conversions; abs, neg and copysign change the sign bit of a NaN and no other
 *     .sat and .relu of -0    +0
 *     .ftz                    a result counts as subnormal after it is rounded
 *     .approx, .full          the exact result rounded to nearest even; of a GPU the manual bounds the error only
 *     tf32 operands           their 13 low bits are ignored
 *     mma of floats           the products and the accumulator are summed exactly and rounded once, to nearest
 *                             even. GPUs round differently and do not say how; where all partial sums are
 *                             exact, as for small integers, every machine gives these bits.
 */
#ifndef SX_CORE_SIMT_ALU_H
#define SX_CORE_SIMT_ALU_H
#include "core/ptx/ptx.h"

#define SX_PTX_LANES 32

/* One register of the threads of a warp: the bits of its class, those above them zero; a predicate is 0 or 1. */
typedef struct {
    uint64_t lane[SX_PTX_LANES];
} sx_ptx_word;

/* How two values compare; sx_ptx_alu.relation is a set of these. */
enum {
    SX_PTX_LESS = 1 << 0,
    SX_PTX_EQUAL = 1 << 1,
    SX_PTX_GREATER = 1 << 2,
    SX_PTX_UNORDERED = 1 << 3,
};

/* A prepared instruction. */
typedef struct sx_ptx_alu sx_ptx_alu;
struct sx_ptx_alu {
    /* Writes the lanes of `active` in the results, whose other lanes stay as they are. Results and operands
     * stand in the order of the text, elements of vectors one by one, the predicate of d|p behind its d. They
     * may be the same words. An operand !p is given as it is and negated here. Operands that are immediates,
     * special registers or addresses are words with their values. Matrix instructions are executed by all 32
     * threads. */
    void (*run)(const sx_ptx_alu *alu, sx_ptx_word *const *result,
                const sx_ptx_word *const *operand, uint32_t active);
    sx_ptx_modifier type, type2,
        type3; /* element types in the order of the text, 0 where there is none */
    sx_ptx_modifier round, half, compare, join, shape; /* of their classes, 0 where there is none */
    bool ftz, saturate, nan, relu, negated; /* .ftz .sat .NaN .relu, and !p of the last operand */
    bool pair;                              /* there is a d|p */
    uint8_t result_count, operand_count;
    /* Of the handlers alone. */
    uint8_t handler;    /* sx_ptx_handler */
    uint8_t bits;       /* of the first type; a predicate has 1 */
    uint8_t relation;   /* comparisons: the set of SX_PTX_LESS and its like that are true */
    bool left, clamp;   /* shf.l, .clamp */
    bool shift_amount;  /* bfind.shiftamt */
    bool is_signed;     /* the first type */
    uint64_t mask;      /* the low `bits` */
    uint64_t sign;      /* the sign bit of a signed type, else 0 */
    uint64_t wide_mask; /* the bits of the result register */
};

/* Prepares an instruction that has passed the check; false: it is none that computes from registers alone. */
bool sx_ptx_alu_of(const sx_ptx_kernel *kernel, const sx_ptx_insn *insn, sx_ptx_alu *alu);

/* ---- products of matrices by a warpgroup ---- */
/* Elements of an operand: of A row by row, of B eight columns at a time. */
#define SX_PTX_LINE_ELEMENTS (256 * 32)
#define SX_PTX_LINE_GROUPS 256
typedef struct {
    double number[SX_PTX_LINE_ELEMENTS];
    int32_t integer[SX_PTX_LINE_ELEMENTS];
    /* Of each group of 2^group_shift numbers: all are multiples of 2^low below 2^high. */
    uint32_t group_shift;
    int32_t low[SX_PTX_LINE_GROUPS], high[SX_PTX_LINE_GROUPS];
} sx_ptx_lines;
/* Nothing is put yet; a group is a row of A (32), or eight columns of B (256). */
void sx_ptx_lines_begin(sx_ptx_lines *lines, uint32_t group);
/* Puts elements that lie one behind the other in memory at the indices first, first + step, ... Element (row, k) of A
 * has the index 32 row + k, element (k, n) of B 256 (n / 8) + 8 k + n mod 8. */
typedef struct {
    sx_ptx_lines *to;
    uint32_t first, step, count;
} sx_ptx_line_run;
void sx_ptx_line_put(const sx_ptx_line_run *put, sx_ptx_modifier type, const uint8_t *bytes,
                     bool negated);
/* Columns `first` to `first` + 7 of the row. */
typedef struct {
    const sx_ptx_lines *a, *b;
    uint32_t depth;
    bool integers, saturates;
} sx_ptx_line_product;
void sx_ptx_line_multiply(const sx_ptx_line_product *p, uint32_t row, uint32_t first,
                          const uint64_t c[8], uint64_t d[8]);
#endif
