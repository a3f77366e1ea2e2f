/* optimize.h - level 1 as one stage: a program in, the cheapest equal program found out, with its report and its proof.
 *
 * 1. Rounds of rewriting with the rules allowed (rules.def).
 * 2. Two programs are extracted, one under the costs of single kernels, one under costs that foresee fusion.
 * 3. Both, and the input, are fused (fusion.def) into the same e-graph.
 * 4. The cheapest program is extracted, never worse than the input.
 * 5. Whatever single loop nest is left outside a kernel is lifted, so that the result holds parameter, constant, reshape,
 *    concatenate, gather, pad, reverse and fused nodes only.
 *
 * Before that, equal layers are found (core/ir/roll.h): the program is cut into parts, steps 1 to 5 are done once for each
 * distinct part, and the results are put together again, so that depth costs next to nothing. A part is a program of its own
 * and is cut again if it holds layers itself. Where nothing repeats, or where it would not pay, the program is the only part.
 *
 * Prices are those of the device's class (sx_device_class): an x86-64 program is the same for every vector width, and so are
 * its bits. Parameters and outputs keep their names and order. Same input, same options, same bytes out; symbolic extents
 * count as sx_cost_reference of their interval, so the program does not depend on the batch size bound later.
 */
#ifndef SX_CORE_EGRAPH_OPTIMIZE_H
#define SX_CORE_EGRAPH_OPTIMIZE_H
#include "core/cost/cost.h"
#include "core/egraph/proof.h"
#include "core/ir/roll.h"

/* What is made small: so much for each nanosecond, for each byte of a result that is kept in memory, for each
 * nanojoule. */
typedef struct {
    double time, memory, energy;
} sx_objective;
/* "time" (the default), "memory", "energy"; the other two always break ties.  errors  SX_INPUT another name */
sx_code sx_objective_find(sx_ctx *cx, sx_span name, sx_objective *objective);
/* Is it a number of nanoseconds? */
static inline bool sx_objective_is_time(const sx_objective *objective)
{
    return objective->time == 1 && objective->memory == 0 && objective->energy == 0;
}

/* Parts of the program whose e-graphs are wanted, and what was left of them: snapshots (library.h), and for a
 * part that is cut its wiring (wiring.h), if all its pieces are kept or have met stored ones. */
typedef struct {
    sx_key part;   /* sx_graph_key */
    sx_key family; /* where it is kept: for those who read the wiring */
} sx_optimize_place;
typedef struct {
    sx_key part;
    size_t offset, size; /* in the bytes; offset is a multiple of 64 */
} sx_optimize_kept;
typedef struct {
    const sx_optimize_place *place;
    uint32_t place_count;
    size_t bytes_max; /* of each; what is larger is not kept, nor what does not fit into `bytes` */
    sx_buf *bytes;
    sx_optimize_kept *kept; /* [place_count], of the caller */
    uint32_t kept_count;
} sx_optimize_keeper;

struct sx_meeting;
struct sx_fragments;
typedef struct sx_optimize_options {
    sx_objective objective;   /* default: time */
    bool allow_reassociating; /* default true */
    bool allow_approximate;   /* default false */
    bool range_any;           /* default false: no rule that moves the range (range.def) */
    const sx_span *disabled;  /* names of rules not to use */
    uint32_t disabled_count;
    sx_eg_limits limits;   /* of the rounds */
    uint64_t extract_fuel; /* steps of each extraction */
    bool with_proof;       /* default true */
    bool with_certificate; /* default false */
    bool whole;            /* default false: equal layers are worked on once */
    /* default false. Operations instead of kernels: steps 3 and 5 are left out, and 4 goes by the
     * costs that foresee fusion; the report's costs are of single kernels all the same */
    bool unfused;
    /* where the e-graph of a program that is worked on as a whole goes (library.h), empty; left
     * empty where it would pass the buffer's limit. NULL for none */
    sx_buf *snapshot;
    sx_optimize_keeper *keeper; /* or NULL */
    sx_key snapshot_rules;      /* digest of what is stored and met */
    /* of this program (fragments.h): what met is not saturated; or NULL */
    const struct sx_fragments *fragments;
    /* e-graphs of an earlier search, which goes on with them, and what it leaves (memory.h); NULL
     * for none */
    struct sx_memory *memory;
    /* default 0: programs fused beside those of step 3, of costs drawn from sample_seed; they take
     * a quarter of extract_fuel together */
    uint32_t samples;
    uint64_t sample_seed;
    /* default false: in an e-graph of an earlier search the rules look at all of it again, as they
     * allow more now */
    bool afresh;
    /* default false: what the limits leave goes to the parts in order. Each gets its share of nodes
     * and fuel, by its size */
    bool fair;
} sx_optimize_options;
sx_optimize_options sx_optimize_defaults(void);

/* One distinct program that was worked on, in one of two ways. Whole (`roll` NULL): `proof` is the chain from
 * `program` to `better`. In pieces: sx_roll_expand(roll, programs of the pieces) has the canonical form of
 * `program`; with what came of the pieces it is `stitched`; `proof` is the chain from there to `better`, NULL
 * where nothing was left to do. */
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

typedef struct {
    sx_eg_stop stop;         /* of the first part that did not saturate */
    uint32_t rounds;         /* most of any part */
    uint32_t nodes, classes; /* at the end; these and all counts are sums over the distinct parts */
    uint64_t fuel;           /* of rounds and fusion */
    uint64_t extract_fuel;
    uint64_t match_count[SX_RULE_COUNT]; /* sx_rule_name names them */
    uint64_t union_count[SX_RULE_COUNT];
    double cost_before_ns,
        cost_after_ns; /* by the cost model, each operation of the input a kernel of its own */
    double objective_before,
        objective_after; /* the same by the objective: what the search made small */
    double bound_ns; /* no program in the e-graph costs less; 0 where several parts are not proven,
                     or the objective is not time */
    bool proven;     /* no program of a smaller objective in the e-graph of any part */
    sx_proof *proof; /* of the only part; NULL without, or where there are several */
    const sx_optimize_part *part; /* the last one is the whole program */
    uint32_t part_count;
    double mesh_before_ns,
        mesh_after_ns; /* on the mesh (sharding_plan.h), costs that foresee fusion, those of single kernels where
                          the program is put together of parts; 0 where it was not looked at */
    /* put together from parts it was dearer than the input: once more as a whole, with what was
     * left of the limits */
    bool searched_again;
    uint32_t met_count;   /* parts that were not saturated because a stored one was met */
    uint32_t met_nodes;   /* of `nodes`: in the graphs of these */
    const char *unproved; /* why there is no certificate though one was asked for, or NULL */
} sx_optimize_report;

/*   errors   SX_INPUT unknown rule name; SX_UNIMPLEMENTED `unfused` of a program that has fused nodes;
 *   SX_NOMEM, SX_LIMIT. Limits of the rounds are no errors: report->stop says. They bind each
 *            part and the sum of all. */
sx_code sx_optimize(sx_ctx *cx, const sx_graph *in, const sx_device *device,
                    const sx_optimize_options *options, sx_graph **out, sx_optimize_report *report);

/* The same with the program as the only part. */
sx_code sx_optimize_whole(sx_ctx *cx, const sx_graph *in, const sx_device *device,
                          const sx_optimize_options *options, sx_graph **out,
                          sx_optimize_report *report);
/* The certificate of the whole, from those of the parts; nothing is written if report->unproved says why there is none.
 *   errors   SX_LIMIT the text is longer than the buffer may be */
sx_code sx_optimize_certificate(sx_ctx *cx, const sx_optimize_report *report, sx_buf *text);

/* Which rules the options allow, [SX_RULE_COUNT].  errors  SX_INPUT unknown rule name */
sx_code sx_optimize_rules(sx_ctx *cx, const sx_optimize_options *options, bool *enabled);
/* Added to a node without a kernel where the program can do without it: what runs in its class may be reached
 * through cycles only. */
#define SX_COST_LAST_RESORT (SX_COST_MAX >> 10)
/* What each node of an e-graph costs as a kernel of its own, in thousandths of the objective; SX_COST_NEVER
 * for dead nodes, SX_COST_LAST_RESORT more for operations that have no kernel where kernels alone can compute
 * their class. Result in cx's arena, [node_count]. */
sx_code sx_optimize_node_costs(sx_ctx *cx, sx_tensors *t, const sx_device *device,
                               const sx_objective *objective, uint64_t **cost);
/* What a program costs as it stands, each operation its outputs need a kernel. */
sx_code sx_optimize_cost(sx_ctx *cx, const sx_graph *in, const sx_device *device,
                         const sx_objective *objective, double *cost);
#endif
