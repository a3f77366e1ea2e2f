/* reference.h - a fused body as terms at a point of its space: what a kernel must compute. Internal to core/judge.
 *
 * It is derived from the attribute and the types alone, by code of this folder: strides, what varies along what,
 * which argument is packed. Nothing of the analysis that the lowerings use is read (core/kernel). */
#ifndef SX_CORE_JUDGE_REFERENCE_H
#define SX_CORE_JUDGE_REFERENCE_H
#include "core/judge/judge.h"
#include "core/judge/record.h"

/* Dimensions of the space with more than one point; neighbours that are kept, and that every argument and the
 * result walk as one, are one. */
typedef struct {
    uint32_t rank;
    int64_t extent[SX_RANK_MAX];
    /* Strides and offsets are in elements. */
    int64_t stride[SX_FUSED_ARGS_MAX][SX_RANK_MAX];
    int64_t offset[SX_FUSED_ARGS_MAX];
    /* 0 along dimensions that the result does not have. */
    int64_t out_stride[SX_RANK_MAX];
    /* `inner`: reduced inside the scores of an online sum, or inside a contraction of contractions. */
    bool reduced[SX_RANK_MAX], inner[SX_RANK_MAX];
    /* For each dimension of the attribute the dimension of this space; UINT32_MAX where it has one point. */
    uint32_t of[SX_RANK_MAX];
    /* Of rows: the last dimension (of those that are kept, or reduced over several points) is reduced. */
    bool along;
} sx_body_space;

/* Running reductions of an online sum, behind its last block. */
typedef struct {
    /* Terms: the maximum of the scores, the sum of the weights, the weighted sum of the values. */
    uint32_t max, sum, value;
    /* The number of the point at which they are so. */
    uint32_t point;
} sx_online_state;

/* One sequence of instructions that core/loop/math.c or typed.c makes, for lanes of one width: an operation, the
 * reading of an element, or the storing of one. */
typedef enum { SX_SEQUENCE_STEP, SX_SEQUENCE_DECODE, SX_SEQUENCE_ENCODE } sx_sequence_kind;
typedef struct {
    sx_sequence_kind kind;
    /* The operation; of DECODE and ENCODE only its `from` is used, the type of the element. */
    sx_loop_step step;
    /* Its items in the scratch kernel are first .. end - 1; `result` is the register that it leaves. */
    uint32_t first, end, result;
    /* There is no such sequence: the operation is not implemented. */
    bool failed;
} sx_sequence;
#define SX_SEQUENCES_MAX 512u
/* The sequences that were recorded so far. They are written one behind the other into a kernel that is never run. */
typedef struct {
    sx_kernel *scratch;
    sx_loop_builder builder;
    /* Registers that stand for the three operands: vectors, and masks. */
    uint32_t operand[2][3];
    sx_sequence *sequence;
    uint32_t count, capacity;
} sx_sequences;

typedef struct {
    sx_algebra *g;
    const sx_attr *fused;
    const sx_body *body;
    const sx_type *input;
    uint32_t input_count;
    sx_dtype result_dtype;
    int64_t result_bytes;
    sx_judge_facts facts;
    sx_body_space space;
    /* The dimensions of `space` along which the value of each instruction varies, a set of 1 << dimension. */
    uint32_t varies[SX_FUSED_INSTRS_MAX];
    /* The dimensions of `space` that are reduced, a set of 1 << dimension. */
    uint32_t reduced;
    /* The dimension of the columns of a contraction, or SX_RANK_MAX. */
    uint32_t columns;
    /* The argument that comes in panels, or UINT32_MAX. */
    uint32_t packed;
    /* Where the body is evaluated: a form for each dimension of `space`. */
    uint32_t position[SX_RANK_MAX];
    /* The value of each instruction, which holds while `memo_epoch` is the number of the position: `point`, or, of an
     * instruction that varies along reduced dimensions, `step`. Each move takes the next number from `epoch`. */
    uint32_t memo[SX_FUSED_INSTRS_MAX];
    uint32_t memo_epoch[SX_FUSED_INSTRS_MAX];
    uint32_t epoch, point, step;
    /* How many holes were made. */
    uint32_t holes;
    sx_online_state online;
    /* The kernel is an online sum. */
    bool online_kind;
    /* For lanes of 4 and of 8 bytes. What is recorded stays from kernel to kernel. */
    sx_sequences recorded[2];
    /* While a sequence is read back: the terms of its vector and mask registers. */
    uint32_t *value[2];
    uint32_t value_capacity[2];
} sx_reference;

sx_code sx_reference_make(sx_ctx *cx, sx_reference *r); /* once */
/* Takes a node; SX_INPUT and SX_LIMIT as sx_fused_infer. */
sx_code sx_reference_begin(sx_ctx *cx, sx_reference *r, sx_algebra *g, const sx_attr *fused,
                           const sx_type *input, uint32_t input_count, const sx_judge_facts *facts);
/* The dimensions of the space that a sum goes over: inside an online sum or a contraction of contractions those of a
 * contraction of arguments are the inner ones, and of what is around it the others. A set of 1 << dimension. */
uint32_t sx_reference_summed(const sx_reference *r, const sx_instr *in);
void sx_reference_move(sx_reference *r); /* the position has changed */
/* What the result holds at the position. */
uint32_t sx_reference_result(sx_reference *r);
uint32_t sx_reference_value(sx_reference *r, uint32_t instr);
uint32_t sx_reference_apply(sx_reference *r, const sx_instr *in, const uint32_t operand[3]);
/* An operation on types, the value of an element in memory, and what is stored for a value: the sequences of
 * core/loop/typed.c, read back. */
uint32_t sx_reference_typed(sx_reference *r, const sx_loop_step *step, const uint32_t operand[3]);
uint32_t sx_reference_decode(sx_reference *r, sx_dtype dtype, uint32_t raw);
uint32_t sx_reference_encode(sx_reference *r, sx_dtype dtype, uint32_t value);
uint32_t sx_reference_constant(sx_reference *r, sx_dtype dtype, double value);
uint32_t sx_reference_reduce(sx_reference *r, const sx_instr *in);
/* An accumulator x with y; and what was accumulated, in a lane's own type, as a value of another: rounded, wrapped, or
 * another number than 0. */
uint32_t sx_reference_combine(sx_reference *r, sx_reducer reducer, sx_dtype dtype, uint32_t x,
                              uint32_t y);
uint32_t sx_reference_closed(sx_reference *r, sx_dtype dtype, uint32_t sum);
uint32_t sx_reference_online(sx_reference *r, const sx_instr *in); /* REDUCE beside it, too */
uint32_t sx_reference_dot(sx_reference *r, const sx_instr *in);
/* Byte of the element of argument `a` at the position. */
uint32_t sx_reference_address(sx_reference *r, uint32_t a);
/* Strides of the panels (elements): of each dimension (of `columns`: of whole panels), width times extents of
 * the reduced ones. False: overflow. */
bool sx_panel_strides(const sx_reference *r, int64_t stride[SX_RANK_MAX], int64_t *size);
/* The step `next` of a chain from `first` over the dimensions of the set, innermost last; the positions are
 * loop variables. */
uint32_t sx_reference_loops(sx_reference *r, uint32_t first, uint32_t hole, uint32_t next,
                            uint32_t dims);
uint32_t sx_reference_hole(sx_reference *r);
#endif
