/* optimize.h - level 1 as one stage: finds the cheapest program that equals the given one, with a report and a proof.
 *
 *   1. Rounds of rewriting by the allowed rules (rules.def) put equal programs into an e-graph.
 *   2. Two programs are extracted from it: the one that is cheapest if each operation is a kernel of its own, and the
 *      one that is cheapest if elementwise operations and views are assumed to be fused.
 *   3. Both, and the input, are fused into kernels (fusion.def), which are added to the same e-graph.
 *   4. The cheapest program is extracted. It is never dearer than the input.
 *   5. Operations that are a single loop nest and are not in a kernel yet become one. The result consists of
 *      parameter, constant, reshape, concatenate, gather, pad, reverse and fused nodes only.
 *
 * Before that the program is searched for equal layers (core/roll/roll.h) and divided into parts. Steps 1 to 5
 * are done once for each distinct part, and the results are put together, so that a deep model costs little
 * more than one layer. A part that itself has equal layers is divided again. If nothing repeats, or it would
 * not pay, the program is the only part.
 *
 * Prices are those of the class of the device (sx_device_class): for x86-64 the program, and with it the bits, are the
 * same for every vector width. Parameters and outputs keep their names and order. The same input and options give the
 * same bytes. A symbolic extent counts as sx_cost_reference of its interval, so the result does not depend on
 * the batch size that is bound later.
 */
#ifndef SX_CORE_OPTIMIZE_OPTIMIZE_H
#define SX_CORE_OPTIMIZE_OPTIMIZE_H
#include "core/cost/cost.h"
#include "core/proof/proof.h"
#include "core/roll/roll.h"

/* What is minimised: a weighted sum of nanoseconds, of bytes of results that are kept in memory, and of nanojoules. */
typedef struct {
    double time, memory, energy;
} sx_objective;
/* The objective of that name: "time" (the default), "memory" or "energy". Between programs that are equally good by it,
 * the other two decide.
 *   errors   SX_INPUT another name */
sx_code sx_objective_find(sx_ctx *cx, sx_span name, sx_objective *objective);
/* Is the objective the time alone, so that its value is a number of nanoseconds? */
static inline bool sx_objective_is_time(const sx_objective *objective)
{
    return objective->time == 1 && objective->memory == 0 && objective->energy == 0;
}

/* Which entries for later programs are wanted, and which were written. The entry of a part is its e-graph
 * (library.h); the entry of a part that is itself divided is its wiring (wiring.h), which is written if all pieces
 * of the part are stored too. */
typedef struct {
    sx_key part;   /* the sx_graph_key of the part */
    sx_key family; /* under which it is stored (core/core.h); a wiring refers to its parts by it */
} sx_optimize_place;
/* An entry that was written, and where it is in the buffer. */
typedef struct {
    sx_key part;
    size_t offset, size; /* offset is a multiple of 64 */
} sx_optimize_kept;
typedef struct {
    const sx_optimize_place *place; /* the parts that are wanted */
    uint32_t place_count;
    /* The limit for one entry. A larger one is not written, nor one for which there is no room in `bytes`. */
    size_t bytes_max;
    sx_buf *bytes;
    sx_optimize_kept *kept; /* [place_count], memory of the caller */
    uint32_t kept_count;
} sx_optimize_keeper;

struct sx_meeting;
struct sx_fragments;
struct sx_prices;
typedef struct sx_optimize_options {
    sx_objective objective;   /* default: time */
    bool allow_reassociating; /* default true */
    bool allow_approximate;   /* default false */
    bool range_any;          /* default false: rules that move the range (range.def) are not used */
    const sx_span *disabled; /* names of rules that are not used */
    uint32_t disabled_count;
    sx_eg_limits limits;   /* for the rounds of rewriting */
    uint64_t extract_fuel; /* for each extraction */
    bool with_proof;       /* default true */
    bool with_certificate; /* default false */
    /* default false: the program is divided into parts, and equal layers are worked on once */
    bool whole;
    /* Default false. If true, the result consists of operations: steps 3 and 5 are left out, and step 4 goes
     * by the costs that assume fusion. The costs in the report are those of single kernels all the same. */
    bool unfused;
    /* Kernels that may not be in the result: nobody could prove their programs. What they were fused from stands
     * beside them. */
    const sx_attr *const *refused;
    uint32_t refused_count;
    /* An empty buffer that receives the e-graph of a program that is not divided (library.h). It stays empty if the
     * e-graph is larger than the limit of the buffer. NULL: not wanted. */
    sx_buf *snapshot;
    sx_optimize_keeper *keeper; /* or NULL */
    sx_key snapshot_rules; /* the digest of the rules by which entries are written and compared */
    /* Which pieces of this program equal stored ones (fragments.h); these are not saturated. Or NULL. */
    const struct sx_fragments *fragments;
    /* The e-graphs of an earlier step of a long search, which goes on with them, and room for what this step leaves
     * (memory.h). NULL: none. */
    struct sx_memory *memory;
    /* Default 0. So many further programs are fused in step 3. They are cheapest by randomly changed costs, drawn from
     * sample_seed, and together they take a quarter of extract_fuel. */
    uint32_t samples;
    uint64_t sample_seed;
    /* Default false. If true, the rules look at all of the e-graph of an earlier step again, because more is
     * allowed now. */
    bool afresh;
    /* Default false: the parts are worked on in order, and each may use what the limits leave. If true, each
     * gets a share of nodes and fuel according to its size. */
    bool fair;
    /* Default 0: a program for itself. Of a part of one, how much of the e-graph that a part of its size is worth it
     * may have in a first step: up to 1, less where it is little of the whole. */
    double effort;
    /* Prices of kernels that are known, to which more are added (prices.c). NULL: none are; sx_optimize makes a table
     * that the parts of the program share. */
    struct sx_prices *prices;
} sx_optimize_options;
sx_optimize_options sx_optimize_defaults(void);

/* One distinct part, and how it was worked on.
 *
 * If it was not divided, `roll` is NULL and `proof` is the chain of rewrites from `program` to `better`. If it
 * was divided, sx_roll_expand of `roll` with the programs of its pieces has the canonical form of `program`.
 * With the results of the pieces in their place it is the program `stitched`, and `proof` is the chain from
 * there to `better`; it is NULL if `stitched` was not changed any more. */
typedef struct {
    const sx_graph *program;
    sx_graph *better;
    const sx_roll *roll;
    const uint32_t *piece; /* [roll->part_count] numbers in sx_optimize_report.part, smaller than
                              this one's; roll->part_count parts with no use have one all the same */
    const sx_graph *stitched;
    const sx_proof *proof; /* NULL also where proofs are not wanted */
    sx_span certificate;   /* of what `proof` is the chain of (certificate.h); empty without */
    uint64_t use_count;    /* in the whole program */
    sx_eg_stop stop;       /* what follows counts this part alone, without its pieces */
    uint32_t rounds, nodes, classes;
    uint64_t fuel;
    const struct sx_meeting *meeting; /* it met a stored part, number `which`; NULL: it met none */
    uint32_t which;
} sx_optimize_part;

/* What was done. Counts are sums over the distinct parts. */
typedef struct {
    sx_eg_stop stop;         /* why the first part that did not saturate stopped */
    uint32_t rounds;         /* the largest number of rounds of any part */
    uint32_t nodes, classes; /* at the end */
    uint32_t all_nodes;      /* with those that died: what the limit of nodes counts */
    uint64_t fuel;           /* spent on rounds and fusion */
    uint64_t extract_fuel;
    uint64_t match_count[SX_RULE_COUNT]; /* sx_rule_name names them */
    uint64_t union_count[SX_RULE_COUNT];
    /* by the cost model, each operation of the input a kernel of its own */
    double cost_before_ns, cost_after_ns;
    /* the same by the objective: what the search made small */
    double objective_before, objective_after;
    double bound_ns; /* no program in the e-graph costs less; 0 where several parts are not proven,
                     or the objective is not time */
    bool proven;     /* no program of a smaller objective in the e-graph of any part */
    sx_proof *proof; /* of the only part; NULL without, or where there are several */
    const sx_optimize_part *part; /* the last one is the whole program */
    uint32_t part_count;
    /* on the mesh (plan.h), costs that foresee fusion, those of single kernels where the
     * program is put together of parts; 0 where it was not looked at */
    double mesh_before_ns, mesh_after_ns;
    /* put together from parts it was dearer than the input: once more as a whole, with what was
     * left of the limits */
    bool searched_again;
    uint32_t met_count;   /* parts that were not saturated because they equal stored ones */
    uint32_t met_nodes;   /* those of `nodes` that are in the e-graphs of these parts */
    const char *unproved; /* why there is no certificate although one was asked for, or NULL */
} sx_optimize_report;

/* Limits of the rounds are no errors; report->stop names the one that was reached. They hold for each part and for the
 * sum of all.
 *   errors   SX_INPUT an unknown name of a rule; SX_UNIMPLEMENTED `unfused` for a program that has fused nodes;
 *            SX_NOMEM; SX_LIMIT */
sx_code sx_optimize(sx_ctx *cx, const sx_graph *in, const sx_device *device,
                    const sx_optimize_options *options, sx_graph **out, sx_optimize_report *report);

/* The same without dividing the program into parts. */
sx_code sx_optimize_whole(sx_ctx *cx, const sx_graph *in, const sx_device *device,
                          const sx_optimize_options *options, sx_graph **out,
                          sx_optimize_report *report);
/* Writes the certificate of the whole program, made of those of the parts. Nothing is written if report->unproved says
 * why there is none.
 *   errors   SX_LIMIT the text is longer than the limit of the buffer */
sx_code sx_optimize_certificate(sx_ctx *cx, const sx_optimize_report *report, sx_buf *text);

/* Sets enabled[SX_RULE_COUNT] to the rules that the options allow.
 *   errors   SX_INPUT an unknown name of a rule */
sx_code sx_optimize_rules(sx_ctx *cx, const sx_optimize_options *options, bool *enabled);
/* This is added to the cost of a node without a kernel if kernels alone can compute its class. The node is then chosen
 * only if every other choice would make the program cyclic. */
#define SX_COST_LAST_RESORT (SX_COST_MAX >> 10)
/* What each node of an e-graph costs as a kernel of its own, in thousandths of the objective. A dead node costs
 * SX_COST_NEVER; an operation that has no kernel costs SX_COST_LAST_RESORT more, if kernels alone can compute
 * its class. The result, [node_count], is in cx's arena. */
sx_code sx_optimize_node_costs(sx_ctx *cx, sx_tensors *t, const sx_device *device,
                               const sx_objective *objective, uint64_t **cost);
/* What a program costs as it stands, if each operation that its outputs need is a kernel of its own. */
sx_code sx_optimize_cost(sx_ctx *cx, const sx_graph *in, const sx_device *device,
                         const sx_objective *objective, double *cost);
#endif
