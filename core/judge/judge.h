/* judge.h - is the emitted program of a kernel the one that was asked for?
 *
 * The program (core/loop) is walked once with its loop, grid and lane variables free. What comes out - which
 * bytes it stores, and for each the term over elements of the inputs - is compared with the fused body: every
 * element of the result has exactly one final store, in bounds, from one grid point; every read sees the store
 * that the term names, of the same grid point; every contribution is there once and in the order of the
 * numerics plan; so grid points may run in any order, on any threads. README.md has the method, and what is
 * trusted. Nothing of the schedule is read but the facts below, nothing of the lowering but its output.
 *
 * Pure: limits are counts, the same verdict on every machine. "Not proven" is not "wrong", but such a kernel
 * is not used. */
#ifndef SX_CORE_JUDGE_JUDGE_H
#define SX_CORE_JUDGE_JUDGE_H
#include "core/base/buf.h"
#include "core/loop/loop.h"

/* Tables that are used again from kernel to kernel. They lie in the arena of the ctx it was made with. */
typedef struct sx_judge sx_judge;
/* What of a schedule belongs to the meaning of the kernel: the program alone does not say how its right argument is
 * packed, nor which blocks its numerics plan names. */
typedef struct {
    /* Of a contraction: how many columns a panel of the packed right argument has; 0: it is read where it lies. */
    int64_t panel;
    /* The number of the argument that comes in panels. */
    uint32_t argument;
    /* Of an online sum: how many keys a block has. Of it and of a nested contraction: are weights, which are what is
     * multiplied by the values, rounded to the type of the values? */
    int64_t keys;
    bool rounds;
    /* It is the second result of a sum of pieces: weights that no values meet are rounded, too. */
    bool statistic;
} sx_judge_facts;
typedef struct {
    bool proven;
    /* Proven, and each element of the result is stored one time in all: there are no earlier stores that later ones
     * hide. Then the result may lie over an argument of which the value of each element reads that element alone: it
     * is read before it is stored, because what is stored is made of it, and nobody else stores it. */
    bool once;
    /* What was proven, or what could not be shown and where; ends with a NUL. */
    char text[240];
} sx_verdict;

/* Of the schedule of a contraction or an online sum; of other kernels nothing. */
sx_judge_facts sx_judge_facts_of(const sx_schedule *schedule, sx_kernel_kind kind);
sx_code sx_judge_make(sx_ctx *cx, sx_judge **judge);
/* The kernel of a static fused node: buffers are the arguments in order, the result, the workspace. SX_OK with
 * a verdict, also if not proven; an error where the kernel fails sx_kernel_check or the node is not valid. */
sx_code sx_judge_kernel(sx_judge *judge, const sx_attr *fused, const sx_type *input,
                        uint32_t input_count, const sx_judge_facts *facts, const sx_kernel *kernel,
                        sx_verdict *verdict);
/* A kernel with several results: buffers are the arguments in order, the results, the workspace. Each result is the
 * value of a static fused node over these arguments; the verdict is for all of them. */
sx_code sx_judge_results(sx_judge *judge, const sx_attr *const *fused, uint32_t count,
                         const sx_type *input, uint32_t input_count, const sx_kernel *kernel,
                         sx_verdict *verdict);
/* An online sum of pieces of keys (core/kernel/online_pieces.h), whose second result is the value of `statistic`, a
 * node over the same arguments. */
sx_code sx_judge_pieces(sx_judge *judge, const sx_attr *fused, const sx_attr *statistic,
                        const sx_type *input, uint32_t input_count, const sx_judge_facts *facts,
                        const sx_kernel *kernel, sx_verdict *verdict);
/* Is each element of the argument read, by whatever result is made of it, before the same element of the result is
 * stored? `argument` and `result` are buffers of the kernel of which sx_judge_results has said `once`, with elements of
 * one size. Then the result may lie over the argument, also where other results are made of it (over.c). */
bool sx_judge_reads_first(const sx_kernel *kernel, uint32_t argument, uint32_t result);
/* The kernel that packs the right argument of a contraction: buffers are the argument and the panels. */
sx_code sx_judge_pack(sx_judge *judge, const sx_attr *fused, const sx_type *input,
                      uint32_t input_count, const sx_judge_facts *facts, const sx_kernel *kernel,
                      sx_verdict *verdict);
/* The kernel of a move: concatenate, gather, reverse, pad, scatter, sort, dynamic_slice or
 * dynamic_update_slice. Buffers are
 * the inputs in order and the result. */
sx_code sx_judge_move(sx_judge *judge, sx_op op, const sx_attr *attr, const sx_type *input,
                      uint32_t input_count, const sx_type *result, const sx_kernel *kernel,
                      sx_verdict *verdict);
/* The sets of stores of the last kernel, as far as they were found; for looking into a refusal. */
void sx_judge_print(const sx_judge *judge, sx_buf *text);
#endif
