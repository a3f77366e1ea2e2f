/* explain.h - why two nodes of an e-graph are equal: the reasons on the path between them in the forest, and
 * those by which the left sides of these came to match, each once (Nieuwenhuis, Oliveras 2005).
 */
#ifndef SX_CORE_PROOF_EXPLAIN_H
#define SX_CORE_PROOF_EXPLAIN_H
#include "core/rules/rules.h"

typedef struct {
    sx_ctx *cx;
    const sx_tensors *t;
    const sx_eg_ruleset *set;
    /* The nodes of the last sx_explain_path. */
    uint32_t *path;
    uint32_t path_count;
    /* For each node: the epoch in which the walk up from the start of a path came by. */
    uint32_t *walked;
    uint32_t walk_epoch;
    /* For each node: the epoch in which its edge of the forest was explained. */
    uint32_t *explained;
    /* Raise it to explain everything anew. */
    uint32_t epoch;
    /* Also how the numbers came about that rules read (sx_eg_reading)? */
    bool numbers;
    /* For each node: 1 + the place of its entry in sx_tensors.number, 0 where it has none. */
    uint32_t *number_of;
    /* For each node: the epoch in which it was asked how its number came about. */
    uint32_t *counted;
    uint32_t *uncounted; /* those of which it is still to be said */
    uint32_t uncounted_count;
    /* Pairs of nodes whose equality is still to be explained. */
    uint32_t *wanted;
    uint32_t wanted_count, wanted_capacity;
    /* Is called for every reason of a rule, once in each epoch. */
    sx_code (*found)(void *self, uint32_t reason);
    void *self;
} sx_explainer;

sx_code sx_explain_init(sx_ctx *cx, const sx_tensors *t, const sx_eg_ruleset *set,
                        sx_explainer *explainer);
/* The nodes from `from` to `to` (of one class) along the forest, both included, into explainer->path. */
void sx_explain_path(sx_explainer *explainer, uint32_t from, uint32_t to);
/* Two neighbours of a path: reports the reason and notes its premises. */
sx_code sx_explain_edge(sx_explainer *explainer, uint32_t a, uint32_t b);
/* Notes an equality to be explained. */
sx_code sx_explain_want(sx_explainer *explainer, uint32_t a, uint32_t b);
/* The readings of a reason, in the set's list.  Result: how many */
uint32_t sx_explain_readings(const sx_explainer *explainer, uint32_t reason,
                             const sx_eg_reading **reading);
/* Notes how the numbers came about that the rule of a reason may have read. */
sx_code sx_explain_want_readings(sx_explainer *explainer, uint32_t reason);
/* Explains what is noted, and what that rests upon, until nothing is left. */
sx_code sx_explain_run(sx_explainer *explainer);
#endif
