/* nested.c - the analysis of a nested contraction: a sum over keys of a program of contractions, times values. It has
 * the roles of an online sum: with queries as rows it is the gradient of the queries of attention; that of keys or
 * values has keys as rows and sums over the queries. */
#include "core/kernel/work.h"

static void find_outer(sx_analysis *a)
{
    const sx_body *body = a->body;
    for (uint32_t i = 0; i < body->instr_count; i++) {
        const sx_instr *in = &body->instr[i];
        if (in->kind != SX_BODY_DOT) {
            continue;
        }
        if (sx_dtype_class_of(in->dtype) != SX_CLASS_FLOAT) {
            a->refusal = "contraction of contractions of integers";
        }
        if (sx_body_summed(body, in) == body->inner) {
            SX_ASSERT(a->product_count < SX_NESTED_DOTS_MAX);
            sx_analysis_add_product(a, i);
        } else {
            a->outer = i;
            a->scores = in->x;
            a->value = body->instr[in->y].x;
        }
    }
    SX_ASSERT(a->outer != SX_NO_INSTR && a->product_count > 0);
}

void sx_analysis_of_nested(sx_analysis *a)
{
    sx_view_merge(a->body, &a->view);
    sx_analysis_find_varies(a);
    a->dot = SX_NO_INSTR;
    find_outer(a);
    for (uint32_t d = 0; d < a->view.rank; d++) { /* the innermost one: it is cut in blocks */
        a->keys = a->view.reduced[d] && !a->view.inner[d] ? d : a->keys;
    }
    sx_analysis_find_rows_and_columns(a);
}
