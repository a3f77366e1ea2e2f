/* fuser.h - the steps of fusion on one kernel while it grows; internal to fuse.c, nest.c and narrow.c. */
#ifndef SX_CORE_OPTIMIZE_FUSER_H
#define SX_CORE_OPTIMIZE_FUSER_H
#include "core/fuse/fuse.h"
#include "core/optimize/fuse.h"

typedef struct {
    uint32_t node[SX_FUSE_FORMS];
    uint32_t count;
} sx_fuser_forms;

typedef struct {
    sx_ctx *cx;
    sx_ctx scratch; /* bodies on the way, gone after each step; what is kept is interned in cx */
    sx_tensors *t;
    const uint32_t *choice;
    const bool *enabled;
    sx_fuse_pairs *pairs;
    sx_fuse_steps *steps;
    uint64_t *count;
    uint64_t work;
    uint32_t *readers;    /* per class: operations that read it, through views */
    sx_fuser_forms *form; /* per class */
    bool logarithms;      /* sx_fuser_has_logarithms */
} sx_fuser;

/* A kernel while it grows. */
typedef struct {
    uint32_t node;
    const sx_attr *attr; /* of the node */
    uint32_t child[SX_FUSED_ARGS_MAX];
    uint32_t count;
} sx_fuser_kernel;

/* One operation as a kernel: lifted, or as it is if it is one already. */
sx_code sx_fuser_lift(sx_fuser *f, uint32_t n, sx_fuser_kernel *k, bool *ok);
/* The kernel with attribute `attr` (SX_FUSE_NO_STEP: none) and these children takes the place of `k`, if it is
 * well-typed and of the same type. */
sx_code sx_fuser_advance(sx_fuser *f, sx_fuser_kernel *k, uint32_t attr, const uint32_t *child,
                         uint32_t count, uint32_t producer, uint32_t rule, bool *taken);
/* What came of a step that was not tried before, remembered: the attribute that was made, none where `ok` is false or
 * the code means "not this one". */
sx_code sx_fuser_remember(sx_fuser *f, const sx_fuse_step *step, sx_code code, bool ok,
                          const sx_attr *attr, uint32_t *result);
/* Single steps on argument a, each if its rule is enabled: a known value, a view by node `producer`, an equal argument,
 * kernel `producer` computed inside. */
sx_code sx_fuser_value(sx_fuser *f, sx_fuser_kernel *k, uint32_t a, bool *taken);
sx_code sx_fuser_view(sx_fuser *f, sx_fuser_kernel *k, uint32_t a, uint32_t producer, bool *taken);
sx_code sx_fuser_same(sx_fuser *f, sx_fuser_kernel *k, uint32_t a, bool *taken);
sx_code sx_fuser_inline(sx_fuser *f, sx_fuser_kernel *k, uint32_t a, uint32_t producer,
                        bool *taken);
/* Every step that wins; elementwise producers with at most `readers_max` readers (0: none) are computed in place. */
sx_code sx_fuser_grow(sx_fuser *f, sx_fuser_kernel *k, uint32_t readers_max);
void sx_fuser_keep(sx_fuser_forms *list, uint32_t node);
/* The kernel of a class whose elements are made of their positions alone, as a causal mask is, or of what is: where it
 * is only read, nothing is known of its elements. Or SX_EG_NONE. */
#define SX_FUSER_POSITIONS_DEPTH 4u
uint32_t sx_fuser_positions(const sx_fuser *f, uint32_t class_, uint32_t depth);

/* nest.c: is there a logarithm of a sum of weights? If not, nothing is nested. */
bool sx_fuser_has_logarithms(const sx_tensors *t);
/* Contraction `k` as a nested one, where an operand is made of weights of attention that the logarithm of their
 * sum gives; with it the online sum that gives the logarithm. */
sx_code sx_fuser_nest(sx_fuser *f, const sx_fuser_kernel *k, sx_fuser_forms *list);
/* narrow.c: contraction `k`, lifted, with the conversions of its factors from bf16 or f16 computed inside. */
sx_code sx_fuser_narrow(sx_fuser *f, const sx_fuser_kernel *k, sx_fuser_forms *list);
#endif
