/* snapshot.h - an e-graph as bytes: stored, loaded, extended.
 *
 * Form 4, little endian, offsets from the start of the bytes:
 *   header    one page (SX_SNAPSHOT_PAGE): sx_snapshot_header, then section_count rows sx_snapshot_section, then zeros
 *   sections  in ascending order of kind, each on a page of its own (so that a file of it can be mapped), zeros between
 * The header carries magic, byte order, version of the form, digest of the rules that give the rule numbers
 * their meaning, counts, stop reason, and the XXH3-64 of itself and its table; each row the XXH3-64 of its
 * section. Same graph, same bytes.
 *
 *   NODE                  8 bytes a node: attribute, operation, arity, dead
 *   CHILD                 4 bytes an edge: the class of the child
 *   CLASS                 4 bytes a node: the smallest node of its class
 *   MADE                  4 bytes an edge: the child as it was inserted (with proofs)
 *   PROOF_UP, PROOF_RULE  4 bytes a node: the forest of reasons (with proofs)
 *   REASON, REASON_NODE   what the rules had matched (with proofs)
 *   JOURNAL               8 bytes a rule: how many nodes and entries of LOG it has seen
 *   LOG                   4 bytes an entry: nodes that changed, from the oldest journal on
 *   ROOT                  4 bytes each
 *   CHOICE                8 bytes each: a class and the node that was chosen for it
 *   from SX_SNAPSHOT_OWN on: sections of the caller
 *
 * Without proofs dead nodes are dropped and the rest is numbered anew in its order; with them every node
 * stays, as dead nodes are steps of proofs. Nodes are numbered children first: a child's class is always
 * smaller than the node.
 *
 * A snapshot is input like any other: loading checks digests, versions, bounds, that classes are named by
 * their smallest nodes, that no two live nodes are equal (so congruence is closed), that the forest of reasons
 * spans each class without a cycle and its congruences hold, and computes the analysis anew. All of it is
 * linear. What is wrong with the bytes is said in one line; the caller then builds the graph again.
 */
#ifndef SX_CORE_STORE_SNAPSHOT_H
#define SX_CORE_STORE_SNAPSHOT_H
#include "core/base/buf.h"
#include "core/base/hash.h"
#include "core/egraph/match.h"

#define SX_SNAPSHOT_MAGIC "SXEGRAPH"
#define SX_SNAPSHOT_VERSION 5u
#define SX_SNAPSHOT_ORDER 0x01020304u
#define SX_SNAPSHOT_PAGE 4096u
#define SX_SNAPSHOT_SECTIONS_MAX 32u

typedef enum {
    SX_SNAPSHOT_NODE,
    SX_SNAPSHOT_CHILD,
    SX_SNAPSHOT_CLASS,
    SX_SNAPSHOT_MADE,
    SX_SNAPSHOT_PROOF_UP,
    SX_SNAPSHOT_PROOF_RULE,
    SX_SNAPSHOT_REASON,
    SX_SNAPSHOT_REASON_NODE,
    SX_SNAPSHOT_JOURNAL,
    SX_SNAPSHOT_LOG,
    SX_SNAPSHOT_ROOT,
    SX_SNAPSHOT_CHOICE,
    SX_SNAPSHOT_OWN = 16 /* kinds from here to SX_SNAPSHOT_SECTIONS_MAX belong to the caller */
} sx_snapshot_kind;

typedef struct {
    uint8_t magic[8];
    /* SX_SNAPSHOT_ORDER as the machine that made it writes it. */
    uint32_t order;
    /* SX_SNAPSHOT_VERSION. */
    uint32_t version;
    /* How many bytes the whole snapshot has. */
    uint64_t size;
    /* The XXH3-64 of the page of the header, taken with zero in this field. */
    uint64_t digest;
    uint8_t rules[SX_KEY_BYTES];
    uint32_t section_count;
    /* The sx_eg_stop with which the rounds of rewriting ended. */
    uint32_t stop;
    uint32_t node_count, edge_count, class_count, live_count;
    /* How many journals there are: one for each rule. */
    uint32_t rule_count;
    /* Bit 0: proofs are in it. */
    uint32_t flags;
} sx_snapshot_header;
typedef struct {
    uint32_t kind;
    uint32_t item_size; /* bytes of one record */
    /* A multiple of SX_SNAPSHOT_PAGE. */
    uint64_t offset;
    uint64_t size;   /* bytes */
    uint64_t digest; /* XXH3-64 */
} sx_snapshot_section;
typedef struct {
    uint32_t attr;
    uint16_t op;
    uint8_t arity;
    uint8_t dead;
} sx_snapshot_node;
typedef struct {
    uint32_t class_, node;
} sx_snapshot_choice;

/* ---- storing ---- */

/* A section of the caller's. */
typedef struct {
    uint32_t kind; /* SX_SNAPSHOT_OWN to SX_SNAPSHOT_SECTIONS_MAX - 1, ascending */
    uint32_t item_size;
    sx_span bytes;
} sx_snapshot_part;
typedef struct {
    sx_key rules;
    sx_eg_stop stop;
    bool with_proofs;
    /* Its journals and reasons are stored. NULL: reasons are the caller's own numbers. */
    const sx_eg_ruleset *set;
    /* The nodes of the outputs. */
    const uint32_t *root;
    uint32_t root_count;
    /* [node_count] for each class the chosen node or SX_EG_NONE. NULL: no choice is stored. */
    const uint32_t *choice;
    const sx_snapshot_part *part;
    uint32_t part_count;
} sx_snapshot_source;
/* `bytes` must be empty, and `eg` rebuilt.
 *   errors   SX_LIMIT past the limit of `bytes`; SX_NOMEM */
sx_code sx_snapshot_store(sx_ctx *cx, const sx_eg *eg, const sx_snapshot_source *source,
                          sx_buf *bytes);

/* ---- loading ---- */

/* A snapshot whose header, table and digests are good; points into the bytes, which must outlive it. */
typedef struct {
    sx_snapshot_header header;
    /* Indexed by kind; a section that is not there has size 0. */
    sx_snapshot_section section[SX_SNAPSHOT_SECTIONS_MAX];
    sx_span bytes;
} sx_snapshot;
/*   errors   SX_CORRUPT says which field or section; SX_ABSENT made by other rules or another version of the form */
sx_code sx_snapshot_open(sx_ctx *cx, sx_span bytes, const sx_key *rules, sx_snapshot *snapshot);
/* The digest of the rules that made it. SX_CORRUPT: no snapshot. */
sx_code sx_snapshot_rules(sx_ctx *cx, sx_span bytes, sx_key *rules);
/* The bytes of a section, `count` records of `item_size`; SX_CORRUPT if it holds records of another size. */
sx_code sx_snapshot_section_of(sx_ctx *cx, const sx_snapshot *snapshot, uint32_t kind,
                               uint32_t item_size, sx_span *bytes, uint32_t *count);

/* The graph, in cx's arena; `analysis` as in sx_eg_init. Every class and node keeps the number it has in the snapshot.
 *   errors   SX_CORRUPT names the node; SX_NOMEM; what analysis.make says of a node */
sx_code sx_snapshot_load(sx_ctx *cx, const sx_snapshot *snapshot, const sx_eg_analysis *analysis,
                         sx_eg *eg);
/* Journals and reasons into a rule set that was just initialised, of the same rules: saturating goes on where
 * the stored graph ended. */
sx_code sx_snapshot_load_set(sx_ctx *cx, const sx_snapshot *snapshot, sx_eg *eg,
                             sx_eg_ruleset *set);
sx_code sx_snapshot_load_roots(sx_ctx *cx, const sx_snapshot *snapshot, const sx_eg *eg,
                               const uint32_t **root, uint32_t *root_count);
/* [node_count] per class: the stored choice or SX_EG_NONE. */
sx_code sx_snapshot_load_choice(sx_ctx *cx, const sx_snapshot *snapshot, const sx_eg *eg,
                                uint32_t **choice);
#endif
