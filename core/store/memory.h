/* memory.h - what one step of a long search leaves for the next one (optimize.h, core/long/long.c): for each part
 * of the program its e-graph with proofs, the kernels that were tried, and the program that was chosen. The
 * next step goes on there.
 *
 * The bytes are a sequence of records, each at a multiple of SX_MEMORY_ALIGN, with zeros between them. A record is:
 *   - sx_memory_record;
 *   - for each node of the part the number of its e-node, 32 bits;
 *   - the runs of e-nodes that fusion has made, each with its first number and its end;
 *   - at a multiple of SX_MEMORY_ALIGN, the snapshot (library.h).
 * Numbers are in the byte order of the machine. The snapshots carry digests; the records are covered by a digest of
 * whoever stores them.
 *
 * The bytes are treated as input: sizes and numbers are checked before they are used, and the e-nodes of the part are
 * compared with its nodes (operation, attribute and operands).
 */
#ifndef SX_CORE_STORE_MEMORY_H
#define SX_CORE_STORE_MEMORY_H
#include "core/store/library.h"

#define SX_MEMORY_ALIGN 64u
#define SX_MEMORY_PARTS_MAX 4096u

typedef struct {
    /* The sx_graph_key of the part. */
    sx_key program;
    /* How many bytes the snapshot has. */
    uint64_t size;
    uint32_t node_count;
    uint32_t run_count;
} sx_memory_record;
/* Kernels of one pass of fusion are among the e-nodes from `first` on, before `end`. */
typedef struct {
    uint32_t first, end;
} sx_memory_run;
#define SX_MEMORY_RUNS_MAX 1024u
typedef struct {
    sx_memory_record record;
    /* Borrowed from the bytes of the record, as is what follows. */
    const uint32_t *node;
    const sx_memory_run *run;
    sx_span snapshot;
} sx_memory_part;
typedef struct sx_memory {
    /* The digest of the rules by which the snapshots were made. */
    sx_key rules;
    const sx_memory_part *part;
    uint32_t part_count;
    /* Takes what is left for the next step. Once it is full it is emptied, and `full` is set. */
    sx_buf *after;
    bool full;
} sx_memory;
/* A part's e-graph as it was left. */
typedef struct {
    sx_library_graph graph;
    /* The part, with the attributes of the graph. */
    sx_graph *program;
    /* The e-node of each of its nodes. */
    uint32_t *node;
    const sx_memory_run *run;
    uint32_t run_count;
    /* How many e-nodes the graph had when it was left. */
    uint32_t node_count;
} sx_memory_graph;
/* What is left of a part. */
typedef struct {
    const sx_tensors *t;
    const sx_eg_ruleset *set;
    const sx_graph *program;
    /* Node i of the program is e-node node[i]. */
    const uint32_t *node;
    /* For each class the node that was chosen. */
    const uint32_t *choice;
    const sx_memory_run *run;
    uint32_t run_count;
    sx_eg_stop stop;
} sx_memory_source;

/* `before`: bytes an earlier search left, aligned to 64, borrowed; empty: nothing is remembered. `after` is
 * initialised, and what it holds already is a multiple of SX_MEMORY_ALIGN long: records go behind it.
 *   errors   SX_CORRUPT names the record */
sx_code sx_memory_open(sx_ctx *cx, sx_span before, const sx_key *rules, sx_buf *after,
                       sx_memory *memory);
/* The e-graph of `program`, in cx's arena; *found NULL: none was left.
 *   errors   SX_CORRUPT; SX_ABSENT made under other rules; SX_NOMEM */
sx_code sx_memory_find(sx_ctx *cx, const sx_memory *memory, const sx_graph *program,
                       sx_memory_graph **found);
/* errors   SX_NOMEM; too little room is none: see `full` */
sx_code sx_memory_put(sx_ctx *cx, sx_memory *memory, const sx_memory_source *source);
#endif
