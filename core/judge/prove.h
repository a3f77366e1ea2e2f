/* prove.h - between prove.c and move.c. */
#ifndef SX_CORE_JUDGE_PROVE_H
#define SX_CORE_JUDGE_PROVE_H
#include "core/judge/reference.h"
#include "core/judge/walk.h"

/* Dimensions that the stores of a result must lie along. */
typedef struct {
    uint32_t count;
    int64_t stride[SX_STORE_DIMS]; /* bytes, ascending */
    int64_t extent[SX_STORE_DIMS];
    uint32_t dim[SX_STORE_DIMS]; /* of the space; panels: SX_RANK_MAX is the panel's column */
} sx_places;

typedef struct {
    sx_record record;
    sx_lin digit[SX_RANK_MAX + 1]; /* of each place, over its store variables */
} sx_final;

struct sx_judge {
    sx_ctx *cx;
    sx_algebra algebra;
    sx_reference reference;
    sx_walk walk;
    sx_records live;
    sx_final *made;
    uint32_t made_capacity;
    sx_places places;  /* of the last kernel, for sx_judge_print */
    uint32_t expected; /* value of the record that differs, for sx_judge_print */
};

/* Checks the kernel and forgets the one before. */
sx_code sx_prove_begin(sx_judge *j, const sx_kernel *kernel, sx_verdict *verdict);
/* The buffers must be those of the node: `size` bytes of each input and of the result, and at most a workspace. */
bool sx_prove_buffers(sx_algebra *g, const sx_kernel *kernel, uint32_t inputs, const int64_t *size);
/* What the parts leave in buffer `result`, located in its places. */
sx_code sx_prove_stores(sx_judge *j, const sx_kernel *kernel, uint32_t result, const sx_places *p);
/* Ranges of the store variables of a record, as variables from `first` on. */
void sx_prove_ranges(sx_algebra *g, const sx_record *record, uint32_t first);
/* Each record must hold the term that `expected` gives for it. */
typedef uint32_t (*sx_prove_value)(void *self, const sx_final *f);
void sx_prove_values(sx_judge *j, sx_prove_value expected, void *self);
/* The verdict, once the records are known to be a partition of elements of `width` bytes. */
sx_code sx_prove_finish(sx_judge *j, const sx_places *p, sx_mem mem, sx_verdict *verdict);
#endif
