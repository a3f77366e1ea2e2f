/* reference.h - a fused body as terms at a point of its space: what a kernel must compute. Internal to core/judge.
 *
 * Derived from the attribute and the types alone, by code of this folder: strides, what varies along what,
 * which argument is packed. */
#ifndef SX_CORE_JUDGE_REFERENCE_H
#define SX_CORE_JUDGE_REFERENCE_H
#include "core/judge/judge.h"
#include "core/judge/record.h"

/* Dimensions of the space with more than one point; neighbours that are kept, and that every argument and the
 * result walk as one, are one. */
typedef struct {
    uint32_t rank;
    int64_t extent[SX_RANK_MAX];
    int64_t stride[SX_FUSED_ARGS_MAX][SX_RANK_MAX]; /* elements */
    int64_t out_stride[SX_RANK_MAX];                /* elements; 0: not in the result */
    bool reduced[SX_RANK_MAX], inner[SX_RANK_MAX];
    uint32_t of[SX_RANK_MAX]; /* of each dimension of the attribute; UINT32_MAX: one point */
    int64_t offset[SX_FUSED_ARGS_MAX];
    /* rows: the last dimension (one that is kept, or reduced over several) is reduced */
    bool along;
} sx_body_space;

/* Running reductions of an online sum, behind its last block. */
typedef struct {
    uint32_t max, sum, value;
    uint32_t point; /* of which they are */
} sx_online_state;

/* One sequence of instructions that core/loop/math.c or typed.c makes, for lanes of one width. */
typedef enum { SX_SEQUENCE_STEP, SX_SEQUENCE_DECODE, SX_SEQUENCE_ENCODE } sx_sequence_kind;
typedef struct {
    sx_sequence_kind kind;
    sx_loop_step step; /* coding: the type is `from` */
    uint32_t first, end, result;
    bool failed;
} sx_sequence;
#define SX_SEQUENCES_MAX 512u
typedef struct {
    sx_kernel *scratch;
    sx_loop_builder builder;
    uint32_t operand[2][3]; /* registers that stand for the operands: vectors, masks */
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
    uint32_t varies[SX_FUSED_INSTRS_MAX]; /* sets of dimensions of `space` */
    uint32_t reduced;                     /* set of dimensions */
    uint32_t columns;               /* dimension of the columns of a contraction, or SX_RANK_MAX */
    uint32_t packed;                /* argument in panels, or UINT32_MAX */
    uint32_t position[SX_RANK_MAX]; /* forms */
    uint32_t memo[SX_FUSED_INSTRS_MAX];
    uint32_t memo_epoch[SX_FUSED_INSTRS_MAX];
    uint32_t epoch, point, step; /* of the point, of the position along the reduced dimensions */
    uint32_t holes;
    sx_online_state online;
    bool online_kind;
    sx_sequences recorded[2]; /* once: lanes of 4 and of 8 bytes */
    uint32_t *value[2];
    uint32_t value_capacity[2];
} sx_reference;

sx_code sx_reference_make(sx_ctx *cx, sx_reference *r); /* once */
/* Takes a node; SX_INPUT and SX_LIMIT as sx_fused_infer. */
sx_code sx_reference_begin(sx_ctx *cx, sx_reference *r, sx_algebra *g, const sx_attr *fused,
                           const sx_type *input, uint32_t input_count, const sx_judge_facts *facts);
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
