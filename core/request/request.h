/* request.h - what the compiler is asked, and the key under which the answer is stored.
 *
 * A request is a program as text, a target, a number or an interval for each symbolic extent, and options. Its key
 * is a digest of all that decides the answer: of the canonical program, the target, the extents, the options, the
 * sources of the compiler and the table of rules. Who only wants to know whether there is an answer needs this folder
 * and no compiler.
 */
#ifndef SX_CORE_REQUEST_REQUEST_H
#define SX_CORE_REQUEST_REQUEST_H
#include "core/ir/ir.h"

/* Measured rows in a daemon: the artefact of this cache under the name of the kind of machine (sxr_identity), and the
 * option by which the daemon hands them to a worker where a request brings none. */
#define SX_CORE_KEPT_CACHE "measured"
#define SX_CORE_KEPT_OPTION "kept_rows"

/* What earlier compilations left, and what this one leaves: core/core.h. */
typedef struct sx_core_library sx_core_library;

#define SX_ASSEMBLER_ANY "any"

/* No limit of the verification is above this. */
#define SX_VERIFY_LIMIT_MAX (UINT64_C(1) << 60)

/* All values of a symbol from `low` to `high` that one module is to serve. */
typedef struct {
    sx_span name;
    int64_t low, high;
} sx_interval;

typedef struct {
    sx_span ir; /* the program in the text form of docs/IR.md */
    /* The name of a device of core/cost: "x86-64-v3", "x86-64-v4", ... For code it may be several, separated by
     * commas: the module then has variants for each, and their order does not matter. */
    sx_span target;
    /* Empty, or the description of a device that is no row of the table (docs/DEVICES.md); it counts and not
     * `target`, which then is a name for people. Both are part of the key. */
    sx_span device;
    /* NULL: the targets of core/target; tests know others. Not part of the key. */
    const struct sx_targets *targets;
    /* A value for every symbol. For code a symbol may stand here several times: the module then has a variant for
     * each combination of values. */
    const sx_binding *binding;
    uint32_t binding_count;
    /* For code, in place of values: the module serves each value of the interval, which lies inside of the one that the
     * program declares. Its variants cover it. The optimised program and the bits are those of single values. */
    const sx_interval *interval;
    uint32_t interval_count;
    bool no_reassociate;    /* use only rules that keep every bit */
    bool allow_approximate; /* use also rules with an error bound */
    bool range_any; /* use also rules under which intermediate values may overflow or underflow */
    /* For sx_core_optimize: the result consists of operations and not of kernels. Stored programs are not used. */
    bool unfused;
    /* Limits of the comparison of all outputs (client/verify), as far as they are above the usual ones: operations, and
     * bytes of memory. 0: the usual one. They decide what a module's record can say, so they are part of the key. */
    uint64_t verify_flops, verify_bytes;
    /* The name of the assembler that makes machine code of code that is text ("nvJitLink 13.0.88"): part of the key.
     * Empty: the module has the text alone. SX_ASSEMBLER_ANY stands for the one that whoever compiles has, and is
     * replaced by its name, or by nothing, before anything is compiled or looked up. */
    sx_span assembler;
    /* The assembler of that name; NULL where only the key is asked for. Not part of the key. */
    const struct sx_assembler *assemble;
    sx_span disabled_rules; /* names of rules that are not used, separated by commas */
    /* What is minimised: "" or "time", "memory", "energy"; for sx_core_optimize also "pareto". */
    sx_span objective;
    /* Empty, or what kernels took on devices of this machine (core/search/measured.h): chooses among schedules that
     * give the same bits. Not part of the key. */
    sx_span measured;
    /* NULL: nothing is used of earlier compilations. The library is not part of the key. */
    sx_core_library *library;
} sx_core_request;

/* The parts of a key. A change in any part changes the key. The parts are stored beside the entry, so that the
 * cache can say which part of a request is new when it has no answer. */
typedef enum {
    SX_PART_PROGRAM, /* the digest of the canonical program */
    SX_PART_TARGET,
    SX_PART_EXTENTS, /* "batch=8 seq=1..512", sorted by name and value */
    SX_PART_OPTIONS,
    SX_PART_TOOLCHAIN, /* the version of the compiler and the digest of its sources */
    SX_PART_RULES,     /* the digest of the table of rules */
    SX_PART_COUNT
} sx_core_part;
const char *sx_core_part_name(sx_core_part part);
/* The program of a request, read once for everything that the request needs of it. */
typedef struct {
    const sx_graph *canonical;
    sx_key digest; /* of the canonical program: SX_PART_PROGRAM */
} sx_core_program;
/* Reads the program of a request into cx's arena.
 *   errors   SX_INPUT if the program cannot be parsed, with the message of the parser */
sx_code sx_core_read(sx_ctx *cx, const sx_core_request *request, sx_core_program *program);
/* Computes the key of a request and its parts, which lie in cx's arena.
 *   errors   SX_INPUT if the program cannot be parsed, with the message of the parser */
sx_code sx_core_key(sx_ctx *cx, const sx_core_request *request, sx_key *key,
                    sx_span part[SX_PART_COUNT]);
/* The same for a program that is parsed already. */
sx_code sx_core_key_of_graph(sx_ctx *cx, const sx_graph *graph, const sx_core_request *request,
                             sx_key *key, sx_span part[SX_PART_COUNT]);

/* Intervals ascend, and a symbol has one interval or values.
 *   errors   SX_INPUT with the symbol and the interval */
sx_code sx_core_check_extents(sx_ctx *cx, const sx_core_request *request);

/* The names in `target`, in order of their text, in cx's arena; one where there is a description.
 *   errors   SX_INPUT an empty name, or one name twice */
sx_code sx_core_target_names(sx_ctx *cx, const sx_core_request *request, sx_span **name,
                             uint32_t *count);
/* What the key says of the device: its name, and of one that is no row of the table a digest of its description;
 * in cx's arena. */
sx_code sx_core_key_device(sx_ctx *cx, const sx_core_request *request, sx_span *text);
/* The same as sx_core_key for a program of which only the digest is known. */
sx_code sx_core_key_of_program(sx_ctx *cx, const sx_key *program, const sx_core_request *request,
                               sx_key *key, sx_span part[SX_PART_COUNT]);
/* Prints the options as they stand in the key: "reassociate=1 approximate=0 ...". */
void sx_core_key_options(const sx_core_request *request, sx_buf *text);

/* Identifies this compiler: its version and the digest of its sources. */
const char *sx_core_toolchain(void);
#endif
