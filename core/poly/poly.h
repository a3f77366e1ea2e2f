/* poly.h - the polyhedral guardrail: is this order of this kernel's statements legal? isl is used here and
 * nowhere else.
 *
 * Statements have integer domains and affine accesses; dependences (RAW, WAR, WAW) are computed by isl
 * dataflow analysis; a candidate schedule is legal iff no dependence source is executed at or after its sink,
 * and a loop run by unsynchronised threads carries no dependence. Reordering a reduction is a separate
 * licence, given only where the numerics plan allows it: strict legality is determinism. An operation quota
 * decides (never a clock), so the verdict is the same on every machine; out of quota means not proven, which
 * is not legal.
 *
 * isl allocates outside the arena and aborts when memory is short: call this from worker processes only.
 * Papers: Feautrier 1991 (dataflow), Bondhugula 2008 (legality of tiling); isl manual, section dependence analysis.
 */
#ifndef SX_CORE_POLY_POLY_H
#define SX_CORE_POLY_POLY_H
#include "core/loop/loop.h"

#define SX_POLY_OPERATIONS_MAX \
    100000u /* isl operations per step: RAW, WAW, WAR and each legality test are one */
#define SX_POLY_STATEMENTS_MAX 32u
#define SX_POLY_ACCESSES_MAX 28u
#define SX_POLY_TIME_DIMS_MAX 24u

/* An affine form over the iteration variables of a statement: constant + sum of coef[d] * i[d]; with `div` > 1
 * the floor of the form divided by it (a tile number). */
typedef struct {
    int64_t constant;
    int64_t coef[SX_RANK_MAX];
    int64_t div; /* 0 or 1: none */
} sx_affine;
typedef struct {
    uint32_t array; /* arrays are numbers */
    bool write;
    /* element [i[d] for d in dims]: cheap for isl; else the one-dimensional element `index` */
    bool by_dims;
    uint32_t dims; /* set of 1 << dimension */
    sx_affine index;
} sx_poly_access;
typedef struct {
    char name[16];
    uint32_t rank;
    int64_t extent[SX_RANK_MAX];
    sx_poly_access access[SX_POLY_ACCESSES_MAX];
    uint32_t access_count;
    /* its self-dependence through `access[0]` may be reordered if the licence is given */
    bool reduction;
    sx_affine order[SX_POLY_TIME_DIMS_MAX];    /* original execution order: time vector */
    sx_affine schedule[SX_POLY_TIME_DIMS_MAX]; /* candidate */
} sx_poly_statement;
typedef struct {
    sx_poly_statement statement[SX_POLY_STATEMENTS_MAX];
    uint32_t statement_count;
    uint32_t order_dims;     /* length of every `order` */
    uint32_t schedule_dims;  /* length of every `schedule` */
    uint32_t parallel;       /* set of 1 << schedule dimension run by unsynchronised threads */
    bool may_reassociate;    /* licence to reorder reductions; not to run one on several threads */
    uint32_t operations_max; /* isl operations per step; 0: SX_POLY_OPERATIONS_MAX */
} sx_poly_program;
typedef struct {
    bool legal;
    char text[240]; /* what was proven, or the violated dependence with its distance */
} sx_poly_verdict;

/* SX_OK with a verdict, also if not proven; SX_INPUT for a program beyond the limits above or one whose
 * reduction has no dependence at all (then the accesses are wrong). */
sx_code sx_poly_legal(sx_ctx *cx, const sx_poly_program *program, sx_poly_verdict *verdict);
/* The statements of a kernel in their original order (one statement per instruction that defines a value of
 * the iteration, reductions as initialisation and update), and the order in which its lowering walks them
 * under `schedule`. */
sx_code sx_poly_of_fused(sx_ctx *cx, const sx_analysis *analysis, const sx_schedule *schedule,
                         sx_poly_program *program);
/* Both together. */
sx_code sx_poly_check_fused(sx_ctx *cx, const sx_analysis *analysis, const sx_schedule *schedule,
                            sx_poly_verdict *verdict);
#endif
