/* core.h - the compiler as a pure function.
 *
 * This is the only header of core/ itself that other folders include; the folders below core/ have headers
 * of their own. Terms are explained in docs/GLOSSARY.md.
 *
 * A request is a program as text, a target, a number for each symbolic extent, and options; sx_core_compile
 * makes a module of it. The compiler reads no clock, file or environment variable, so the same request gives
 * the same bytes on every machine. (If the ctx carries a clock, its owner learns how long each stage took;
 * the times are not written into the module.)
 */
#ifndef SX_CORE_CORE_H
#define SX_CORE_CORE_H
#include "core/cost/device.h"
#include "core/request/request.h"
#include "core/target/target.h"
#include "protocol/module.h"

/* Under which keys the e-graph of a program, or of one of its parts (core/roll/roll.h), is stored and looked up. A
 * part is, for example, the transformer layer that a model repeats twelve times. */
typedef struct {
    /* The digest of the canonical program, or of the part. */
    sx_key part;
    /* The digest of what equal programs have in common: the types of parameters and outputs, with the
     * intervals of symbolic extents and not their values; the target, the options, the rules and this
     * compiler; and the value of the program at one random point, unless evaluating it takes more than
     * SX_CORE_VALUE_STEPS scalar operations. Programs that may be equal are stored under one family. */
    sx_key family;
    /* A digest of the family and, where it holds no value, of the operations. Programs that differ only in
     * names and in the order of parameters and operands have the same one. */
    sx_key likes;
} sx_core_place;
#define SX_CORE_PLACES_MAX 16
/* A family has this many entries in the cache, as a set of a set-associative cache has ways. */
#define SX_CORE_WAYS 4
/* The key of entry `way` of a family. */
sx_key sx_core_entry(const sx_key *family, uint32_t way);
#define SX_CORE_VALUE_STEPS UINT64_C(4000000)

/* A stored program that may equal the one of the request, or a stored part that may equal one of its parts. */
typedef struct {
    /* Which place of the request it may fill: sx_core_place.part. */
    sx_key part;
    /* The name of the stored program in reports. For a whole program it is the key that this program has when
     * it is compiled with the options of the present request (sx_core_twin). */
    sx_key key;
    /* The e-graph, as an earlier compilation wrote it; aligned to 64. */
    sx_span egraph;
    /* The module stored under `key`, aligned to 64; empty if there is none, and for parts. */
    sx_span module;
} sx_core_candidate;
/* An e-graph that this compilation wrote: which part it is of, and where it is in the buffer. */
typedef struct {
    sx_key part;
    size_t offset, size;
} sx_core_kept;
/* What a compilation may use of earlier ones, and what it writes for later ones. The same request with the same
 * candidates gives the same bytes. With other candidates the module may hold another, equal program. */
struct sx_core_library {
    /* Stored programs and parts; they are tried in this order. */
    const sx_core_candidate *candidate;
    uint32_t candidate_count;
    /* The result of sx_core_places: the program and the parts whose e-graphs may be written. */
    const sx_core_place *place;
    uint32_t place_count;
    /* Receives the e-graphs of the program and of those parts that no candidate equals. NULL: none is wanted. */
    sx_buf *egraph;
    /* An e-graph that is larger than this is not written. */
    size_t egraph_bytes;

    /* The fields below are results. */

    /* The e-graphs that were written, each at a multiple of 64 in `egraph`. */
    sx_core_kept kept[SX_CORE_PLACES_MAX];
    uint32_t kept_count;
    /* How many parts were not optimised because they equal stored ones. It is 1 for a program that is not
     * divided into parts and equals a stored one. */
    uint32_t parts_met;
    bool met;       /* the program equals candidate[which] (core/store/meet.h, wiring.h) */
    bool reused;    /* the module of that candidate was taken over, with the names exchanged */
    uint32_t which; /* valid if `met` */
    /* The rewrite rules on which the equality rests, separated by commas; in the arena. */
    sx_span rules;
    /* The set of 1 << candidate of those that are damaged or were made by another compiler, and why the last
     * one of them was refused; in the arena. */
    uint64_t refused;
    sx_span why;
};
#define SX_CORE_CANDIDATES_MAX 48

/* The device of a request and the target whose code it runs.
 *   errors   SX_INPUT an unknown name, a description that is refused, a device that contradicts its target;
 *            SX_UNIMPLEMENTED there is no code generator for it */
sx_code sx_core_device(sx_ctx *cx, const sx_core_request *request, const sx_device **device,
                       const sx_target **target);

/* Is the code for the targets of this request text, of which an assembler can make machine code? False, too, for
 * targets that are refused. */
bool sx_core_assembles(const sx_core_request *request);

/* The places of a request. Place 0 is that of the program, the others are those of its largest parts; there are
 * at most SX_CORE_PLACES_MAX. `program` is what sx_core_read made of it; NULL: it is read here.
 *   errors   as sx_core_key */
sx_code sx_core_places(sx_ctx *cx, const sx_core_request *request, const sx_core_program *program,
                       sx_core_place *place, uint32_t *count);
/* The key under which the module of a stored program would be found if it had been compiled with the target,
 * extents and options of this request.
 *   errors   SX_CORRUPT, SX_ABSENT as in core/store/snapshot.h */
sx_code sx_core_twin(sx_ctx *cx, const sx_core_request *request, sx_span egraph, sx_key *key);

/* A part of a stored program: its digest, the family under which its e-graph is stored, and how often the program
 * uses it. */
typedef struct {
    sx_key program, family;
    uint32_t use_count;
} sx_core_wired;
/* Lists the parts of a stored program. *count is 0 if the entry is the e-graph of an undivided program.
 *   errors   SX_CORRUPT; SX_ABSENT the entry has another version of the form */
sx_code sx_core_wiring(sx_ctx *cx, sx_span egraph, sx_core_wired **part, uint32_t *count);
/* The digest of the program or part that an entry was made of; the rules it was made with may be others than ours. */
sx_code sx_core_egraph_program(sx_ctx *cx, sx_span egraph, sx_key *program);

/* A module while it is being made: tables that grow. */
typedef struct {
    sx_module_info info;
    sx_buf strings, symbol, range, variant, guard, extent, tensor, kernel, part, launch, arg, stage,
        rewrite, check, search, rule, proof, point, sharding, step, program, optimized, code,
        constants, cubin, map, cases, number, axis, pair;
    bool emulated; /* the checks that are added next ran on the emulator and not on the processor */
} sx_image;
void sx_image_init(sx_image *image);
void sx_image_fini(sx_image *image);
void sx_image_add_check(sx_image *image, const char *name, sx_module_verdict verdict,
                        uint64_t points, double error, double tolerance);
/* Writes the image as the bytes of a module file. It may be called again after checks have been added. */
sx_code sx_image_encode(sx_ctx *cx, const sx_image *image, sx_buf *bytes);

/* How many steps of a proof use a rule. */
typedef struct {
    const char *rule;
    const char *rule_class;
    uint32_t count;
} sx_core_steps;

/* Runs the whole compiler (core/pipeline.c). The caller initialises `image` and finishes it, also after a failure.
 *   errors   SX_INPUT the program or an extent; SX_UNIMPLEMENTED an operation or target without code generator, by
 *            name; SX_QUOTA out of fuel; SX_NOMEM; SX_COMPILE no schedule of a kernel could be used, with the
 *            reason for the last one */
sx_code sx_core_compile(sx_ctx *cx, const sx_core_request *request, sx_image *image);
/* The rows of what was measured on this kind of machine among those of the text (core/search/measured.h), in cx's
 * arena, for request->measured. */
sx_code sx_core_measured_here(sx_ctx *cx, sx_span text, const char *machine, sx_span *here);
/* Runs level 1 only, which chooses the program. The module then has no kernels; it holds the optimised program, the
 * report and the certificate. With the objective "pareto" it also holds every program that was found for which no
 * other is better in both time and peak memory. They are sorted by time, and the optimised program is one of them. */
sx_code sx_core_optimize(sx_ctx *cx, const sx_core_request *request, sx_image *image);
/* The same, as the bytes of the module file. */
sx_code sx_core_optimize_module(sx_ctx *cx, const sx_core_request *request, sx_buf *bytes);
/* Prints the program that each device of the mesh runs (core/shard/local.h), by the plan of the program as it came.
 *   errors   SX_INPUT it has no mesh, or collectives already; a symbol without a value, or with one that the pieces do
 *            not divide; SX_UNIMPLEMENTED it has state or donated inputs */
sx_code sx_core_local(sx_ctx *cx, const sx_core_request *request, sx_buf *text);

/* ---- long searches (core/long/long.c) ----
 * A long search has several lanes: ways of searching that go on side by side and differ in their limits and seeds
 * (a portfolio). A lane is a chain of steps, and each step spends a bounded amount of fuel. Between two steps the
 * state of a lane is bytes, so any process on any machine with the same build can do the next step, also after
 * a restart. The same request, lane and fuels give the same bytes. Lane 0 begins with what sx_core_optimize does, so
 * the best of all lanes is never worse than that. */
typedef struct {
    /* The objective is "", "time", "memory", "energy" or "pareto". The library is not used. */
    const sx_core_request *request;
    uint32_t lane;
    uint64_t fuel; /* for this step; less than SX_CORE_STEP_FUEL_MIN counts as that */
    sx_span state; /* the state after the step before, aligned to 64; empty for the first step */
} sx_core_step;
typedef struct {
    /* Receives the state after this step. The caller initialises it with a limit. */
    sx_buf *state;
    /* Receives the best program of this lane so far, in the form of sx_core_optimize; for "pareto" it is one point of
     * the front. It stays empty if this step found nothing better than the steps before it. */
    sx_buf *module;
    double objective; /* of the best program of the lane; for "pareto" its time */
    double bound;   /* no program in the e-graph of this lane costs less; 0 if no bound is known */
    double time_ns; /* estimated for the best program */
    uint64_t peak_bytes; /* of the best program; 0 if a symbol has no value */
    uint64_t nodes;      /* in the e-graph */
    uint64_t fuel;       /* spent by all steps */
    uint32_t step;       /* number of steps done */
    /* The lane can find nothing more: either no rule applies any more and the best program is proven to be the
     * cheapest, or the lane has reached its last limit. */
    bool done;
    const char *stop; /* why the step ended: the name of a sx_eg_stop, or "proven" */
} sx_core_step_result;
#define SX_CORE_LANES_MAX 32
#define SX_CORE_STEP_FUEL_MIN UINT64_C(1000000)
/* How many lanes a search of this request has, and the name of each. */
sx_code sx_core_long_lanes(sx_ctx *cx, const sx_core_request *request, uint32_t *count);
const char *sx_core_long_lane_name(const sx_core_request *request, uint32_t lane);
/* Does one step. A lane that is done stays as it is.
 *   errors   SX_ABSENT the state belongs to another build, request or lane; SX_CORRUPT it is damaged; SX_LIMIT the
 *            new state is larger than its limit: it is then empty, and everything else of the result is valid;
 *            and those of sx_core_optimize */
sx_code sx_core_long_step(sx_ctx *cx, const sx_core_step *step, sx_core_step_result *result);
/* Writes the better one of two modules of this request to *out. If they are equally good it is `a`; for "pareto" it is
 * the front of both. Empty bytes stand for no module. `a` and `b` are aligned to 64.
 *   errors   SX_CORRUPT; SX_ABSENT a module is of another request or build */
sx_code sx_core_long_merge(sx_ctx *cx, const sx_core_request *request, sx_span a, sx_span b,
                           sx_buf *out);

/* What a certificate shows. The programs are in cx's arena. */
typedef struct {
    const sx_graph *input, *output;
    uint32_t part_count, step_count, term_count;
    /* steps that were evaluated; the others are beyond the limit of work */
    uint32_t step_evaluated;
    /* Outputs of the whole program and of the parts with steps, and how many of them were evaluated. */
    uint32_t output_count, output_evaluated;
    double worst, allowed; /* the largest deviation found, and the largest that is allowed */
    sx_core_steps *rule;   /* the rules that have steps, in the order of the table */
    uint32_t rule_count;
    /* Distinct programs inside regions (scan, while, cond), those inside them too, and their operations. Both
     * programs have the same ones, which is checked: no step is in them. */
    uint32_t body_count, body_node_count;
} sx_core_proof;
/* Checks a certificate and evaluates it (core/proof/certificate.h).
 *   errors   SX_INPUT the text is malformed, or a step does not hold; SX_INTERNAL two values differ although the
 *            steps say that they are equal */
sx_code sx_core_prove(sx_ctx *cx, sx_span text, sx_core_proof *proof);

/* Forms in which an e-graph is written for other tools and for people (core/optimize/export.h). */
typedef enum { SX_CORE_JSON, SX_CORE_DOT, SX_CORE_SVG } sx_core_form;
/* Saturates the program of the request as a whole, without dividing it into parts, and writes its e-graph as a
 * snapshot. */
sx_code sx_core_egraph(sx_ctx *cx, const sx_core_request *request, sx_buf *snapshot);
/* Prints a snapshot with the costs of `target`. The rules it was made with may be others than ours.
 *   errors   SX_CORRUPT it is damaged; SX_ABSENT it has another version of the form; SX_LIMIT it has too many classes
 *            for a picture */
sx_code sx_core_egraph_print(sx_ctx *cx, sx_span snapshot, sx_span target, sx_core_form form,
                             sx_buf *out);

/* A rule of the table. The sides are text as in core/egraph/match.h. `right` is NULL where a function builds the right
 * side; both are NULL for a step from operations to kernels. */
typedef struct {
    const char *name, *rule_class, *left, *right;
    const char *range;     /* "keeps", "contracts", "folds" or "moves": core/rules/range.def */
    const char *range_why; /* NULL for "keeps" */
} sx_core_rule;
/* Finds rule number `index`; false if there are not so many. */
bool sx_core_rule_find(uint32_t index, sx_core_rule *rule);
#endif
