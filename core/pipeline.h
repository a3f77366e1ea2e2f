/* pipeline.h - what the stages of core/pipeline.c share. Internal to core/. */
#ifndef SX_CORE_PIPELINE_H
#define SX_CORE_PIPELINE_H
#include "core/core.h"
#include "core/cost/cost.h"
#include "core/store/meet.h"
#include "core/optimize/optimize.h"
#include "core/ir/effect.h"
#include "core/ir/fused.h"
#include "core/ir/refusals.h"
#include "core/loop/loop.h"
#include "core/judge/judge.h"
#include "core/search/correction.h"
#include "core/target/target.h"

#define SX_PIPE_CONSTANT_BYTES_MAX (INT64_C(1) << 30) /* of one constant */

/* One tensor of the module while places are decided. Reshapes share the tensor of their operand. */
typedef struct {
    sx_module_tensor record;
    /* It depends on weights and constants alone, so the prologue makes it. */
    bool constant;
    /* The first and the last launch that reads or writes it. */
    uint32_t first, last;
    /* Of an input, weight or output: its type with symbolic extents; else NULL. */
    const sx_type *symbolic;
} sx_pipe_tensor;

/* Values that one variant serves. */
typedef struct {
    int64_t low, high;
    /* Kernels take numbers that follow the value at run time (cases.c); else only grids follow it. */
    bool cases;
} sx_pipe_piece;
#define SX_PIPE_VARIANTS_MAX 64u /* of a module */
/* The values that a request gives a symbol, ascending: those of a list, or all of an interval. */
typedef struct {
    sx_span name;
    sx_pipe_piece *piece;
    uint32_t count;
    bool interval;
} sx_pipe_values;
/* A machine that code is made for, as protocol/arch.def numbers it. */
typedef struct {
    const sx_device *device;
    const sx_target *target; /* that of the device */
    uint32_t arch, level;
} sx_pipe_machine;
/* The variants of a module: for each machine, the best one first, all combinations of values. */
typedef struct {
    sx_pipe_values *symbol;
    uint32_t symbol_count;
    /* They are of one architecture, and the last one is the least. */
    sx_pipe_machine *machine;
    uint32_t machine_count;
    /* How many combinations of machines and values there are: one variant of the module for each. */
    uint32_t count;
} sx_pipe_variants;

/* A variant that serves an interval of one symbol. Where it has no cases, its code is made for the highest value; for
 * the others only grids differ, which are proportional to the value (EXTENTS of the module). Every kernel is proven for
 * some of these, the probes: strides and extents are affine in the symbol, so what fits two values next to each other
 * and the lowest one fits all between. */
#define SX_PIPE_PROBES_MAX 5u
#define SX_PIPE_STEADY_MAX 2u
/* A value of each symbol that a variant serves several of. */
typedef struct {
    int64_t value[SX_PIPE_STEADY_MAX];
} sx_pipe_point;
typedef struct {
    /* One symbol, or two; these have cases. By number among those of the variants; and what this variant serves. */
    uint32_t symbol[SX_PIPE_STEADY_MAX], symbol_count;
    int64_t low[SX_PIPE_STEADY_MAX], high[SX_PIPE_STEADY_MAX];
    bool cases;   /* as in its piece */
    int64_t most; /* that any variant serves of the first symbol */
    /* The first probe of one symbol is the value below its highest one; and the program for each. */
    sx_pipe_point value[SX_PIPE_PROBES_MAX];
    sx_graph *graph[SX_PIPE_PROBES_MAX];
    uint32_t count;
    /* For each probe and, behind them, for `high`: estimates of the kernels, and of the best ones for that value. */
    double cost_ns[SX_PIPE_PROBES_MAX + 1], best_ns[SX_PIPE_PROBES_MAX + 1];
} sx_pipe_steady;
/* Of each part of a kernel and each dimension of its grid: how many points it has for each unit of the symbol; 0: it
 * does not follow it. */
typedef int64_t sx_pipe_follows[SX_PARTS_MAX][3];
/* The cases of a kernel, by part, and their numbers; parts and numbers are counted from 0 on. None: it is the same for
 * all values, or its grids follow them. */
typedef struct {
    sx_module_case *row;
    sx_module_number *number;
    uint32_t count, capacity, number_count, number_capacity;
} sx_pipe_cases;

/* Kernels that were made for all values (cases.c), in memory of their own: what a trial finds is not made again. */
typedef struct sx_pipe_kept sx_pipe_kept;
typedef struct {
    sx_arena arena;
    sx_pipe_kept *last;
    /* How many kernels the trial under way has to make for all values, as the one for its price has found, and how many
     * it has made. */
    uint32_t kernel_count, kernel_done;
    /* As in sx_pipe_trial. */
    bool any_price;
    /* Why the last trial that failed did: a kernel that does not serve an interval. Empty: none did. */
    char why[256];
    /* Why the last candidate that was refused has no cases. */
    char no_cases[160];
} sx_pipe_memory;

/* How the new version of a state or of a donated input comes to where the old one lies; updates.c. */
typedef struct {
    /* The node that makes it: that of the output, with reshapes taken off. */
    uint32_t root;
    /* The state, or the output in place of the donated input; SX_MODULE_NONE: it has no tensor yet. */
    uint32_t target;
    /* The kernel of `root` is to write it in place; and it does. */
    bool planned, written;
} sx_pipe_version;

/* A node and the kernel made of it; kernels.c. */
typedef struct sx_pipe_made sx_pipe_made;
/* Nodes that share a kernel, in the order of its results; joint.c. */
typedef struct {
    uint32_t node[SX_FUSED_RESULTS_MAX];
    uint32_t count;
    /* What they cost together. */
    double cost_ns;
} sx_pipe_group;
/* A group and the kernel made of it; joint.c. */
typedef struct sx_pipe_joint sx_pipe_joint;
typedef struct {
    /* The program after level 1, with constant extents. */
    const sx_graph *graph;
    sx_image *image;
    const sx_pipe_variants *variants;
    /* The number of the variant that is being made. */
    uint32_t variant;
    /* The machine for which it is made, with its device and target. */
    const sx_pipe_machine *machine;
    const sx_device *device;
    const sx_target *target;
    /* [variants->symbol_count] the extents of this variant. */
    const sx_binding *binding;
    /* NULL: the variant serves one value of each symbol. */
    sx_pipe_steady *steady;
    sx_pipe_memory *memory;
    /* Only prices of variants that serve an interval are asked for: kernels are not made for all values. */
    bool pricing;
    /* Compiling stopped because some kernel does not serve all of the interval. */
    bool unsteady;
    /* Rows of EXTENTS for grids that follow a symbol. */
    sx_buf part_extent;
    /* The first launch of this variant. */
    uint32_t launch_first;
    /* Operations, estimate and floor of one run of this variant. */
    double flops, cost_ns, floor_ns;
    /* Bytes that a run of it copies because a new version of state or of a donated input is not made in place. */
    uint64_t copied_bytes;
    /* [updates of the graph] how each new version comes to its place, and the order in which nodes are compiled. */
    sx_pipe_version *version;
    uint32_t *order;
    /* The last kernel of a node stores each element of its result one time in all. */
    bool stored_once;
    /* For each node the number of its tensor; UINT32_MAX while it has none. */
    uint32_t *tensor_of;
    sx_pipe_tensor *tensor;
    uint32_t tensor_count, tensor_capacity;
    /* The loops of this variant, inner ones first. */
    struct {
        uint32_t first, last;
    } * loop;
    uint32_t loop_count, loop_capacity;
    uint32_t launch_count;
    uint32_t kernel_count;
    /* NULL: code that is text stays text. And its name among the strings of the image, once it has a row. */
    const sx_assembler *assembler;
    sx_span assembler_name;
    sx_module_text toolchain;
    /* What was measured of kernels. */
    sx_measured measured;
    sx_correction correction; /* kernels 0: there is none */
    /* Inside of loops, whiles and branches: how many are open, and how often what is in them runs in one run; `graph`
     * is a body. */
    uint32_t loop_depth;
    double rounds;
    bool inside;
    /* Launches of the prologue that were made while loops were open. */
    sx_buf hoisted;
    uint32_t kernel_last; /* that of the last launch */
    sx_idmap code_map;    /* kernels by their code */
    /* The nodes that have a kernel. */
    sx_pipe_made *made;
    uint32_t made_count, made_capacity;
    sx_idmap made_map;
    /* [group_count] nodes that were grouped, and [node] the number of its group; groups of several have a kernel in
     * `joint`. NULL: none were. */
    sx_pipe_group *group;
    uint32_t *group_of;
    uint32_t group_count;
    sx_pipe_joint *joint;
    uint32_t joint_count, joint_capacity;
    /* The judge of emitted programs. */
    sx_judge *judge;
    /* No candidate of the last kernel was proven. */
    bool unproven;
    /* The node at which compiling stopped for that, or UINT32_MAX. */
    uint32_t unproven_node;
    /* for messages: the canonical program, what became of it (`graph` without extents), the user's names for
     * the nodes of the program (NULL: none), what the nodes of `graph` stand for (NULL: not asked yet), and
     * what is not supported */
    const sx_graph *program, *better;
    const sx_origins *origins;
    sx_descent *descent;
    sx_refusals refusals;
} sx_pipe;

/* semantic.c: the request's library. Options of level 1 for this request. */
sx_code sx_semantic_options(sx_ctx *cx, const sx_core_request *request,
                            sx_optimize_options *options);
/* Looks for `graph` (canonical) and its parts among the candidates, and says in *options which of them met and
 * where e-graphs are left. *better NULL: there is something left to saturate, for sx_optimize. */
sx_code sx_semantic_find(sx_ctx *cx, const sx_core_request *request, const sx_graph *graph,
                         const sx_device *device, sx_optimize_options *options, sx_graph **better,
                         sx_optimize_report *report);
/* What came of it, into request->library; *meeting: with the stored program that the whole met, if any. */
sx_code sx_semantic_end(sx_ctx *cx, const sx_core_request *request,
                        const sx_optimize_options *options, const sx_optimize_report *report,
                        sx_graph *better, sx_meeting *meeting);
/* The module of the candidate that was met, under the names of `graph`; *done false: there is none that fits. */
sx_code sx_semantic_reuse(sx_ctx *cx, const sx_core_request *request, const sx_graph *graph,
                          const sx_meeting *meeting, sx_image *image, bool *done);
/* One row of REWRITES: which stored program was met, by which rules. */
void sx_semantic_report(const sx_core_library *library, sx_image *image);

/* pipeline.c: level 1 alone, under options of the caller's, without the library: the module as
 * sx_core_optimize makes it but for points. */
typedef struct {
    const sx_device *device;
    const sx_graph *better;
    sx_optimize_report report;
} sx_pipe_found;
sx_code sx_pipe_search(sx_ctx *cx, const sx_core_request *request,
                       const sx_optimize_options *options, sx_pipe_found *found, sx_image *image);

/* mesh.c: SHARDING and STEPS; `better` NULL: code for one device, placements are left aside. */
sx_code sx_pipe_mesh(sx_ctx *cx, const sx_core_request *request, const sx_device *device,
                     const sx_graph *input, const sx_graph *better, sx_image *image);

/* machines.c: the machines of a request, the best one first.
 *   errors   as sx_core_device; SX_INPUT two that nothing tells apart, or of two architectures */
sx_code sx_pipe_machines(sx_ctx *cx, const sx_core_request *request, sx_pipe_machine **machine,
                         uint32_t *count);

/* variants.c. The machines and the values of each symbol, and how many variants they make.
 *   errors   SX_INPUT one value twice; SX_LIMIT too many; those of sx_pipe_machines, sx_core_check_extents */
sx_code sx_pipe_variants_make(sx_ctx *cx, const sx_core_request *request,
                              sx_pipe_variants *variants);
/* The machine of a variant. */
/* Are the intervals of the request inside of those that the program declares?
 *   errors   SX_INPUT with both */
sx_code sx_pipe_check_intervals(sx_ctx *cx, const sx_core_request *request, const sx_graph *graph);
/* The symbols of which the variant serves several values, and which, the one with the most first; how many there are.*/
uint32_t sx_pipe_variant_pieces(const sx_pipe_variants *variants, uint32_t variant,
                                uint32_t symbol[SX_PIPE_STEADY_MAX],
                                sx_pipe_piece piece[SX_PIPE_STEADY_MAX]);
/* Has the symbol one value alone? */
bool sx_pipe_is_fixed(const sx_pipe_values *symbol);
const sx_pipe_machine *sx_pipe_variant_machine(const sx_pipe_variants *variants, uint32_t variant);
/* The extents of a variant, one for each symbol. */
void sx_pipe_variant_binding(const sx_pipe_variants *variants, uint32_t variant,
                             sx_binding *binding);
void sx_pipe_put_symbols(const sx_pipe_variants *variants, sx_image *image);
/* Writes the record of the variant that has been made, with its guards. */
void sx_pipe_put_variant(sx_pipe *pipe);
/* An input, weight or output: the one that an earlier variant made, or a new one. */
sx_code sx_pipe_add_shared(sx_ctx *cx, sx_pipe *pipe, sx_span name, const sx_type *type,
                           const sx_type *symbolic, sx_module_place place, uint32_t *index);
/* Writes TENSORS, and EXTENTS for those that follow a symbol with several values. */
sx_code sx_pipe_put_tensors(sx_ctx *cx, sx_pipe *pipe);

/* places.c */
sx_code sx_pipe_add_tensor(sx_ctx *cx, sx_pipe *pipe, sx_span name, const sx_type *type,
                           uint64_t size, sx_module_place place, uint32_t *index);
/* Decides offsets of the temporaries of this variant and writes its record. */
sx_code sx_pipe_place(sx_ctx *cx, sx_pipe *pipe);
/* Decides offsets of the persistent tensors of all variants: first those that they share. */
sx_code sx_pipe_place_persistent(sx_ctx *cx, sx_pipe *pipe);

/* steady.c. Sets pipe->steady for the variant that comes next. */
sx_code sx_pipe_steady_make(sx_ctx *cx, sx_pipe *pipe);
/* The variant cannot serve its interval, because of what the message says. SX_COMPILE, and pipe->unsteady. */
sx_code sx_pipe_unsteady(sx_ctx *cx, sx_pipe *pipe, const char *name, const char *why);
/* How the grids of a kernel follow the symbol, from what it is for the first probe; false: not in proportion. */
bool sx_pipe_follow(const sx_pipe_steady *steady, const sx_kernel *high, const sx_kernel *near,
                    sx_pipe_follows follows);
/* The kernel with the grids and the sizes of buffers that it has at a probe; `there` was lowered for it.
 *   errors   SX_UNIMPLEMENTED it has other buffers or bits there */
sx_code sx_pipe_regrid(sx_ctx *cx, const sx_pipe_steady *steady, uint32_t probe,
                       const sx_kernel *high, const sx_kernel *there, sx_pipe_follows follows,
                       sx_kernel **kernel);
/* Does the variant take little more time at each probe than one made for this value? */
bool sx_pipe_is_cheap(const sx_pipe_steady *steady);
/* Notes that grids of a part follow the symbol; the record then has those of its highest value. */
void sx_pipe_put_follows(sx_pipe *pipe, uint32_t part, const int64_t follows[3]);
/* How a part of the module follows it, as noted. */
void sx_pipe_follows_of(const sx_pipe *pipe, uint32_t part, int64_t follows[3]);
/* Finds pieces of the intervals that one variant each serves; `serves` tries one. `from` has one piece for each.
 *   errors   SX_LIMIT too many; those of `serves` */
typedef struct {
    void *self;
    /* Why one did not serve, as known last; may be empty. */
    const char *why;
    /* Whoever asks may set it: a variant then serves its interval whatever it costs. */
    bool *any_price;
    /* *unsteady: it does not, whatever that would cost. */
    sx_code (*serves)(sx_ctx *cx, void *self, const sx_pipe_variants *one, bool *does,
                      bool *unsteady);
} sx_pipe_trial;
sx_code sx_pipe_cut(sx_ctx *cx, const sx_pipe_variants *from, const sx_pipe_trial *trial,
                    sx_pipe_variants *cut);

/* pipeline.c: the tensor of an output. */
sx_code sx_pipe_add_output(sx_ctx *cx, sx_pipe *pipe, uint32_t output, uint32_t *index);

/* updates.c. The tensor of a parameter that is state. */
sx_code sx_pipe_put_state(sx_ctx *cx, sx_pipe *pipe, sx_node_id id);
/* Which new versions are written in place, and an order of the nodes in which all readers of the old one come first. */
sx_code sx_pipe_plan_updates(sx_ctx *cx, sx_pipe *pipe);
/* The version that the kernel of the node is to write in place, by number; SX_NOWHERE: none. */
uint32_t sx_pipe_version_of(const sx_pipe *pipe, sx_node_id id);
/* The tensor that a version goes to. */
sx_code sx_pipe_target(sx_ctx *cx, sx_pipe *pipe, uint32_t version, uint32_t *target);
/* When the kernel of the node was launched with that tensor as its result: it stays, or the launch gets another. */
sx_code sx_pipe_settle(sx_ctx *cx, sx_pipe *pipe, sx_node_id id, uint32_t version);
/* Brings the other new versions to their places, behind all other launches of the variant. */
sx_code sx_pipe_update(sx_ctx *cx, sx_pipe *pipe);
/* Decides where in the state area each state lies. */
sx_code sx_pipe_place_state(sx_ctx *cx, sx_pipe *pipe);

/* joint.c. Groups the nodes that share a kernel, and puts them side by side in the order of the nodes. */
sx_code sx_pipe_plan_groups(sx_ctx *cx, sx_pipe *pipe);
/* The group that the node shares a kernel with; NULL: it has one of its own. */
const sx_pipe_group *sx_pipe_group_of(const sx_pipe *pipe, sx_node_id id);
/* Code and launch for a group: the results in the order of its nodes. *made false: each node needs a kernel of its own,
 * in that order. */
sx_code sx_pipe_joint_kernel(sx_ctx *cx, sx_pipe *pipe, const sx_pipe_group *group,
                             const uint32_t *result, bool *made);

/* share.c. A kernel whose code has been appended: *index is that of an equal one of the module, and the code is
 * taken back; or SX_MODULE_NONE, and the kernel is to be appended as number pipe->kernel_count. `part` are its
 * parts with what their grids follow, which need not be in the image, and `maps` what the copy engine reads at each. */
sx_code sx_pipe_share_kernel(sx_ctx *cx, sx_pipe *pipe, const sx_module_kernel *record,
                             const sx_module_part *part, const sx_pipe_follows follows,
                             const sx_machine_maps *maps, uint32_t *index);
/* cases.c. Appends the cases of a kernel, whose parts begin at `part_first`. */
sx_code sx_pipe_put_cases(sx_ctx *cx, sx_pipe *pipe, const sx_pipe_cases *cases,
                          uint32_t part_first);
/* The largest that the cases make of a number of a part, of which the first three are its grid; 0: they give none. */
int64_t sx_pipe_largest(const sx_pipe_cases *cases, uint32_t part, uint32_t number);
/* A map as a row of the module, but for the kernel and the part that it is of. */
sx_module_map sx_pipe_map(const sx_machine_map *map);
/* When all variants have their launches: tensors that prologues make in the same way become one, of all variants.
 * Tensors have other numbers afterwards. */
sx_code sx_pipe_share_results(sx_ctx *cx, sx_pipe *pipe);

/* pipeline.c: one node of pipe->graph, whose operands have tensors. `output_tensor`: for each output of the graph the
 * tensor that is written in place, noted here; NULL: inside of a loop, where none is. */
sx_code sx_pipe_node(sx_ctx *cx, sx_pipe *pipe, sx_node_id id, uint32_t *output_tensor);
/* A tensor for a result that each run makes. */
sx_code sx_pipe_result(sx_ctx *cx, sx_pipe *pipe, sx_node_id id, uint32_t *output_tensor,
                       uint32_t *result);
/* regions.c: launches for scan, while and cond, all results that are asked for in one go.
 * errors   SX_LIMIT too many inside each other; SX_UNIMPLEMENTED tensors without elements */
sx_code sx_pipe_region(sx_ctx *cx, sx_pipe *pipe, sx_node_id id, uint32_t *output_tensor);
/* regions.c: each distinct body of the program goes through level 1, once. */
sx_code sx_pipe_bodies(sx_ctx *cx, const sx_core_request *request, const sx_device *device,
                       sx_graph **graph);
/* places.c: the launch that comes next reads or writes the tensor. */
void sx_pipe_use_tensor(sx_pipe *pipe, uint32_t index);
/* places.c: launches first .. last are a loop: temporaries that are used inside and outside live through all of it. */
sx_code sx_pipe_across(sx_ctx *cx, sx_pipe *pipe, uint32_t first, uint32_t last);

/* kernels.c: code for one node: search, lowering, proof, machine code, launch. Tensors of the inputs exist. A node that
 * equals an earlier one but for which tensors it reads is another launch of the same kernel. */
sx_code sx_pipe_kernel(sx_ctx *cx, sx_pipe *pipe, sx_node_id node, uint32_t result);
/* refuse.c: takes the failure `code` of a node of pipe->graph. What is not supported is noted, and SX_OK says
 * to go on, so that all of it is told at once (sx_refusals_end); other failures that speak of the node name
 * its origin. */
sx_code sx_pipe_refuse(sx_ctx *cx, sx_pipe *pipe, sx_node_id node, sx_code code);
/* refuse.c. A canonical program that has a collective is nothing that level 1 can prove alone: SX_UNIMPLEMENTED. */
sx_code sx_pipe_refuse_ranks(sx_ctx *cx, const sx_graph *graph);
/* ranks.c: the program with collectives of pieces that lie one behind the other, which alone have launches; programs
 * inside too. It has no sharding and no effects.
 *   errors   SX_UNIMPLEMENTED the rank of a tensor is too high for it */
sx_code sx_pipe_lead(sx_ctx *cx, const sx_graph *graph, sx_graph **led);
/* Writes AXES where the program has collectives. */
void sx_pipe_put_axes(const sx_graph *graph, sx_image *image);
/* The launch of a collective.  errors  SX_UNIMPLEMENTED machines that are no x86-64 */
sx_code sx_pipe_collective(sx_ctx *cx, sx_pipe *pipe, sx_node_id id, uint32_t *output_tensor);
/* A copy of one tensor into another of the same size (a parameter that is also an output). */
sx_code sx_pipe_copy(sx_ctx *cx, sx_pipe *pipe, uint32_t from, uint32_t to, const sx_type *type);
#endif
