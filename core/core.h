/* core.h - the compiler as a pure function: the only header other folders include from core (besides core/base and core/ir).
 *
 * (program text, target name, extents, options, fuel) -> module. No clock, no files, no environment: the same request gives the same
 * bytes on every machine (stages are timed only if the ctx carries a clock, for its owner: no time enters a module).
 */
#ifndef SX_CORE_CORE_H
#define SX_CORE_CORE_H
#include "core/ir/ir.h"
#include "protocol/module.h"

/* Where the e-graphs of programs that may equal one are kept, and those of the parts it is cut into (core/ir/roll.h). */
typedef struct {
    sx_key part; /* digest of the canonical program, or of the part */
    sx_key
        family; /* by the types at its interface, the target, the options, the rules and this compiler, and by its value at a
                      random point if that takes no more than SX_CORE_VALUE_STEPS scalar operations. Symbols count with their
                      intervals, whatever the extents */
    sx_key
        likes; /* the family and, where it does not tell the value, the operations: what differs in names and in the order of
                      parameters and operands alone has the same */
} sx_core_place;
#define SX_CORE_PLACES_MAX 16
#define SX_CORE_WAYS 4 /* entries of a family */
sx_key sx_core_entry(const sx_key *family, uint32_t way);
#define SX_CORE_VALUE_STEPS UINT64_C(4000000)

/* A stored program, or part, that may equal the one asked for, or its part. */
typedef struct {
    sx_key part; /* sx_core_place.part */
    sx_key
        key; /* what a meeting is named by; of a program: its key compiled as this request says (sx_core_twin) */
    sx_span egraph; /* as a compilation left it; aligned to 64 */
    sx_span module; /* of that key, aligned to 64; empty: not there, or a part */
} sx_core_candidate;
typedef struct {
    sx_key part;
    size_t offset, size;
} sx_core_kept;
/* What a compilation may draw on, and what it leaves. The same request with the same candidates gives the same bytes; with other candidates
 * it may give another equal program. */
typedef struct {
    const sx_core_candidate *candidate; /* tried in their order */
    uint32_t candidate_count;
    const sx_core_place *place; /* as sx_core_places says: what of this program may be left */
    uint32_t place_count;
    sx_buf *
        egraph; /* takes the e-graphs of the program and of its parts, if they have not met stored ones; NULL: none are wanted */
    size_t egraph_bytes; /* what is larger is not left */
    /* found out: */
    sx_core_kept kept[SX_CORE_PLACES_MAX]; /* what was left, each at a multiple of 64 in `egraph` */
    uint32_t kept_count;
    uint32_t
        parts_met; /* parts that were not saturated, as they met stored ones; 1 for a program that is not cut */
    bool met;    /* the program equals candidate[which] (core/egraph/meet.h, wiring.h) */
    bool reused; /* its module was taken over, under other names */
    uint32_t which;
    sx_span rules;    /* what the equality rests upon, names separated by commas; arena */
    uint64_t refused; /* set of 1 << candidate: damaged, or made by another compiler */
    sx_span why;      /* of the last one refused; arena */
} sx_core_library;
#define SX_CORE_CANDIDATES_MAX 48

typedef struct {
    sx_span ir;                /* text form, docs/IR.md */
    sx_span target;            /* device name of core/cost: "x86-64-v3", "x86-64-v4", ... */
    const sx_binding *binding; /* a value for every symbol */
    uint32_t binding_count;
    bool no_reassociate;    /* exact rules only */
    bool allow_approximate; /* also rules with an error bound */
    bool range_any;         /* also rules under which values in between may overflow or vanish */
    bool
        unfused; /* for sx_core_optimize: operations instead of kernels; no use is made of the library */
    sx_span disabled_rules; /* names separated by commas */
    sx_span
        objective; /* what is made small: "" or "time", "memory", "energy"; for sx_core_optimize also "pareto" */
    sx_core_library *library; /* NULL: compile from nothing; no part of the key */
} sx_core_request;

/* What a key is made of: a change in any part changes the key; the parts are stored so that a miss can be explained. */
typedef enum {
    SX_PART_PROGRAM, /* digest of the canonical program */
    SX_PART_TARGET,
    SX_PART_EXTENTS, /* "batch=8" sorted by name */
    SX_PART_OPTIONS,
    SX_PART_TOOLCHAIN, /* compiler version and digest of its sources */
    SX_PART_RULES,     /* digest of the rule table */
    SX_PART_COUNT
} sx_core_part;
const char *sx_core_part_name(sx_core_part part);
/* The key of a request. part[]: spans in cx's arena. Parses the program: SX_INPUT as the parser says. */
sx_code sx_core_key(sx_ctx *cx, const sx_core_request *request, sx_key *key,
                    sx_span part[SX_PART_COUNT]);
/* The same for a program that is parsed already. */
sx_code sx_core_key_of_graph(sx_ctx *cx, const sx_graph *graph, const sx_core_request *request,
                             sx_key *key, sx_span part[SX_PART_COUNT]);

/* Place 0 is of the program, the others of the largest of its parts; at most SX_CORE_PLACES_MAX.  errors  as sx_core_key */
sx_code sx_core_places(sx_ctx *cx, const sx_core_request *request, sx_core_place *place,
                       uint32_t *count);
/* The key of the program whose e-graph this is, compiled as the request says. SX_CORRUPT, SX_ABSENT as core/egraph/snapshot.h. */
sx_code sx_core_twin(sx_ctx *cx, const sx_core_request *request, sx_span egraph, sx_key *key);

/* What is stored of a program that is cut into parts: which they are, by their digests and families, and how often it uses each.
 * *count 0: it is no such entry, but an e-graph.  errors  SX_CORRUPT; SX_ABSENT another version of the form */
typedef struct {
    sx_key program, family;
    uint32_t use_count;
} sx_core_wired;
sx_code sx_core_wiring(sx_ctx *cx, sx_span egraph, sx_core_wired **part, uint32_t *count);
/* The digest of the program, or part, that an entry was made of, by any rules. */
sx_code sx_core_egraph_program(sx_ctx *cx, sx_span egraph, sx_key *program);

/* A module being made: growing tables. */
typedef struct {
    sx_module_info info;
    sx_buf strings, symbol, tensor, kernel, part, launch, arg, stage, rewrite, check, search, rule,
        proof, point, sharding, step, program, optimized, code, constants;
    bool emulated; /* of checks that are added: their code was emulated */
} sx_image;
void sx_image_init(sx_image *image);
void sx_image_fini(sx_image *image);
void sx_image_add_check(sx_image *image, const char *name, sx_module_verdict verdict,
                        uint64_t points, double error, double tolerance);
/* The file form; may be called again after adding checks. */
sx_code sx_image_encode(sx_ctx *cx, const sx_image *image, sx_buf *bytes);

typedef struct {
    const char *rule;
    const char *rule_class;
    uint32_t count;
} sx_core_steps;

/* The whole compiler (core/pipeline.c). `image` is initialised by the caller and finished by it, also on failure. Errors: SX_INPUT
 * (program, extents), SX_UNIMPLEMENTED (operation or target without code generator, named), SX_QUOTA (fuel), SX_NOMEM,
 * SX_COMPILE (no legal candidate for a kernel, with the last reason). */
sx_code sx_core_compile(sx_ctx *cx, const sx_core_request *request, sx_image *image);
/* Level 1 only: a module without kernels, which holds the extracted program, the report, and the certificate. With the objective "pareto"
 * it also holds the programs of which no other is better in both time and peak memory, fastest first, the extracted one among them. */
sx_code sx_core_optimize(sx_ctx *cx, const sx_core_request *request, sx_image *image);
/* The same as the bytes of the file. */
sx_code sx_core_optimize_module(sx_ctx *cx, const sx_core_request *request, sx_buf *bytes);

/* ---- long searches (core/long.c) ----
 * Lanes that differ in how they search, each a chain of steps of bounded fuel. The state of a lane is bytes, so that a step can be done by
 * any process on any machine of the same build, after any restart. The same request, lane and fuels of its steps give the same bytes.
 * Lane 0 begins with what sx_core_optimize does, so the lanes together are never worse. */
typedef struct {
    const sx_core_request *
        request; /* objective "", "time", "memory", "energy" or "pareto"; its library is not used */
    uint32_t lane;
    uint64_t fuel; /* of this step; less than SX_CORE_STEP_FUEL_MIN counts as that */
    sx_span state; /* empty: the first step; aligned to 64 */
} sx_core_step;
typedef struct {
    sx_buf *state; /* initialised by the caller with a limit: state after the step */
    sx_buf *
        module; /* the best of this lane so far as sx_core_optimize gives it (pareto: one point); left empty where this step found
                       nothing better than the steps before it */
    double objective;    /* of the lane's best; pareto: its time */
    double bound;        /* no program in this lane's e-graph is cheaper; 0: not known */
    double time_ns;      /* of the lane's best */
    uint64_t peak_bytes; /* likewise; 0 where a symbol has no value */
    uint64_t nodes;      /* of the e-graph */
    uint64_t fuel;       /* used by all steps */
    uint32_t step;       /* steps done */
    bool done; /* the lane cannot find anything more: saturated and proven, or at its last limit */
    const char *stop; /* why the step ended: name of sx_eg_stop, or "proven" */
} sx_core_step_result;
#define SX_CORE_LANES_MAX 32
#define SX_CORE_STEP_FUEL_MIN UINT64_C(1000000)
/* How many lanes, and their names. */
sx_code sx_core_long_lanes(sx_ctx *cx, const sx_core_request *request, uint32_t *count);
const char *sx_core_long_lane_name(const sx_core_request *request, uint32_t lane);
/* One step; a lane that is done stays as it is.
 *   errors   SX_ABSENT state of another build, request or lane; SX_CORRUPT damaged; SX_LIMIT the state is larger than its limit: it is
 *            left empty, all else is filled in; those of sx_core_optimize */
sx_code sx_core_long_step(sx_ctx *cx, const sx_core_step *step, sx_core_step_result *result);
/* The better of two modules of this request by its objective, a where they are equal; pareto: the front of both. Empty bytes are no
 * module. *out takes the bytes; a and b are aligned to 64.
 *   errors   SX_CORRUPT; SX_ABSENT a module of another request or build */
sx_code sx_core_long_merge(sx_ctx *cx, const sx_core_request *request, sx_span a, sx_span b,
                           sx_buf *out);

/* What a certificate shows; programs are in cx's arena. */
typedef struct {
    const sx_graph *input, *output;
    uint32_t part_count, step_count, term_count;
    uint32_t step_evaluated; /* of the steps; the others are beyond the limit of work */
    uint32_t output_count, output_evaluated; /* of the parts that have steps, and of the whole */
    double worst, allowed;                   /* deviation of what was evaluated */
    sx_core_steps *rule;                     /* those that have steps, in the order of the table */
    uint32_t rule_count;
} sx_core_proof;
/* Checks a certificate and evaluates it (core/egraph/certificate.h).
 *   errors   SX_INPUT malformed, or the step that does not hold; SX_INTERNAL values that differ where its steps say that they do not */
sx_code sx_core_prove(sx_ctx *cx, sx_span text, sx_core_proof *proof);

/* An e-graph for other tools and for people (core/egraph/export.h). */
typedef enum { SX_CORE_JSON, SX_CORE_DOT, SX_CORE_SVG } sx_core_form;
/* The e-graph of the request's program as a snapshot, saturated here, not cut into parts. */
sx_code sx_core_egraph(sx_ctx *cx, const sx_core_request *request, sx_buf *snapshot);
/* A snapshot, made by any rules, with the costs of `target`.
 *   errors   SX_CORRUPT damaged; SX_ABSENT another version of the form; SX_LIMIT too many classes for a picture */
sx_code sx_core_egraph_print(sx_ctx *cx, sx_span snapshot, sx_span target, sx_core_form form,
                             sx_buf *out);

/* Rule `index` of the table: both sides as text (core/egraph/match.h); `right` NULL: computed; `left` NULL too: a step from operations to
 * kernels. false: there are no more. */
typedef struct {
    const char *name, *rule_class, *left, *right;
    const char *range;     /* "keeps", "contracts", "folds", "moves": core/egraph/range.def */
    const char *range_why; /* NULL where it keeps it */
} sx_core_rule;
bool sx_core_rule_find(uint32_t index, sx_core_rule *rule);

/* Identification of this compiler: version and digest of its sources. */
const char *sx_core_toolchain(void);
#endif
