/* kernels.h - what kernels.c and probes.c share about the node that is compiled. Internal to core/. */
#ifndef SX_CORE_KERNELS_H
#define SX_CORE_KERNELS_H
#include "core/fuse/fuse.h"
#include "core/kernel/online_pieces.h"
#include "core/pipeline.h"
#include "core/search/search.h"

/* Machine code of a kernel. */
typedef struct {
    sx_target_code entries;
    uint64_t offset, size; /* in CODE, with its constants */
    /* What an assembler made of it, and what its entries need; empty: nothing. */
    sx_span machine_code;
    sx_target_record record[SX_PARTS_MAX];
} sx_pipe_emitted;

/* How the bits of a node come about: by the numerics plan of its first candidate for which there is code. Whether an
 * assembler then takes that code depends on the machine that compiles, and no bit may; so what it refuses is made by
 * another schedule of the same plan, or not at all. */
typedef struct {
    bool known;
    uint64_t numerics;
    uint32_t refused; /* how many candidates an assembler did not take */
} sx_pipe_plan;

/* A node that is compiled. */
typedef struct sx_pipe_subject sx_pipe_subject;
struct sx_pipe_subject {
    const sx_analysis *analysis; /* of a fused node */
    /* The same node for each probe of a variant that serves an interval; NULL: it serves none. `single` is then what a
     * kernel for one value is made of, where rows are in no groups. */
    const sx_pipe_subject *probe;
    const sx_analysis *single;
    /* It is an operation that moves elements: its attributes and result at a probe, and there is no analysis. */
    bool moves;
    /* What is meant is the kernel that packs the right argument of its contraction. */
    bool packs;
    const sx_attr *attr;
    const sx_type *result;
    /* Nodes that share the kernel, whose program `analysis` is of; NULL: one node. */
    const sx_join *join;
    const sx_type *type; /* of the inputs */
    uint32_t *tensor;    /* of the inputs, and room for those of the results behind them */
    uint32_t count;
    char name[64];
    uint32_t node;
    uint32_t other[SX_MODULE_RESULTS_MAX - 1]; /* of further results */
    sx_module_kernel_kind kind;
    sx_pipe_made *made; /* what is learnt here is noted there; NULL: nobody asks */
};

/* The candidate that is taken, and what it was chosen from. */
typedef struct {
    bool rhs_constant;
    sx_search_result search;
    sx_pipe_plan plan;
    sx_verdict verdict;
    bool proven;      /* some candidate was */
    char slower[240]; /* why a cheaper candidate is not taken; empty: there was none */
    const sx_search_candidate *candidate;
    bool corrected; /* the first candidate is the first by a correction of prices */
    const sx_measured_row *measured; /* why the first candidate is the first; NULL: by the model */
    sx_kernel *kernel;
    sx_pipe_follows follows; /* of a subject with probes, */
    sx_pipe_cases cases;     /* or these */
    /* Of the kernel that packs the right argument, where each run does so, for all values; packing NULL: the one that
     * the schedule gives. */
    sx_kernel *packing;
    sx_pipe_cases packing_cases;
    sx_pipe_emitted code;
} sx_pipe_choice;

/* kernels.c: is the emitted program the node's, and that of the kernel that packs for it? */
sx_code sx_pipe_judge(sx_ctx *cx, sx_pipe *pipe, const sx_pipe_subject *s,
                      const sx_schedule *schedule, const sx_kernel *kernel, sx_verdict *verdict);
/* Looks for a schedule of an analysed subject that is proven and can be had, and emits its code.
 *   errors   SX_COMPILE there is none */
sx_code sx_pipe_choose(sx_ctx *cx, sx_pipe *pipe, const sx_pipe_subject *s, sx_pipe_choice *choice);
/* Appends the kernel that was chosen, and a launch that writes the results. */
sx_code sx_pipe_finish_fused(sx_ctx *cx, sx_pipe *pipe, sx_pipe_subject *s, const uint32_t *result,
                             const sx_pipe_choice *choice);
/* A launch of kernel `index`; the last arguments are what it writes. `constant`: in the prologue. */
void sx_pipe_launch(sx_pipe *pipe, uint32_t index, const uint32_t *arg, uint32_t arg_count,
                    bool constant);
/* A launch of its own packs an argument, or makes sums of slices. */
bool sx_pipe_packs(const sx_schedule *schedule);
/* The fused node that is compiled, of an operation of pipe->graph. */
sx_code sx_pipe_lift(sx_ctx *cx, const sx_pipe *pipe, const sx_pipe_subject *s, const sx_node *node,
                     sx_attr *fused);

/* measured.c: the schedule that was measured to be the fastest becomes the first candidate, if it has the numerics plan
 * of the first one that can be lowered. */
sx_code sx_pipe_prefer_measured(sx_ctx *cx, const sx_pipe *pipe, const sx_pipe_subject *s,
                                sx_pipe_choice *choice);

/* pieces.c: what is noted of an online sum in pieces of keys, for nodes like it. */
typedef struct {
    uint32_t kernel; /* that makes the sums of the pieces, or UINT32_MAX: there is none */
    /* Which inputs of the node it reads, as sx_online_pieces says, and its results. */
    uint32_t argument[SX_FUSED_ARGS_MAX], count;
    sx_type result[SX_PIECE_RESULTS];
} sx_pipe_pieces;
/* Few queries and many keys: the launch that makes sums of pieces of the keys; then the subject and *analysis are those
 * of the node that puts them together, which reads these sums in place of values, and statistics in place of keys.
 * Other nodes stay as they are. */
sx_code sx_pipe_make_pieces(sx_ctx *cx, sx_pipe *pipe, sx_pipe_subject *s, sx_type *type,
                            sx_analysis *analysis, sx_pipe_pieces *made);
/* Its launch for another node, if there is one. */
sx_code sx_pipe_make_pieces_again(sx_ctx *cx, sx_pipe *pipe, const sx_pipe_pieces *made,
                                  const sx_pipe_subject *s);

/* probes.c, for variants that serve an interval. The subject at each probe. */
sx_code sx_pipe_analyse_probes(sx_ctx *cx, sx_pipe *pipe, sx_pipe_subject *s);
/* The subject for one value of the symbol that the variant serves an interval of. */
sx_code sx_pipe_subject_at(sx_ctx *cx, const sx_pipe *pipe, const sx_pipe_subject *s,
                           const sx_pipe_point *value, sx_pipe_subject *there);
/* In place of the candidates for the highest value those for all: the ones whose grids follow the symbol, by loss. */
sx_code sx_pipe_choose_steady(sx_ctx *cx, sx_pipe *pipe, const sx_pipe_subject *s,
                              sx_pipe_choice *c);
/* Does the kernel of c->candidate compute the node at each probe, with grids that follow the symbol? The judge reads it
 * as it will be run there. */
sx_code sx_pipe_judge_probes(sx_ctx *cx, sx_pipe *pipe, const sx_pipe_subject *s, sx_pipe_choice *c,
                             bool *serves);
/* cases.c: c->kernel becomes one for all values, with c->cases, under the schedule of c->candidate; and so does the one
 * that packs for it. */
sx_code sx_pipe_make_cases(sx_ctx *cx, const sx_pipe *pipe, const sx_pipe_subject *s,
                           sx_pipe_choice *c, bool *serves);

/* ---- moves.c ---- */
/* The schedule of an operation that moves elements, whose result has this type, and the operations that its lanes do
 * beside loads and stores. */
void sx_pipe_schedule_move(const sx_pipe *pipe, const sx_pipe_subject *s, sx_op op,
                           const sx_attr *attr, const sx_type *type, sx_schedule *schedule,
                           double *flops);
#endif
