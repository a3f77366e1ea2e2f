/* rule_habits.h - how an instance of a rule is drawn and judged where its pattern alone does not say; one row a rule. */
#ifndef SX_TESTS_CORE_EGRAPH_RULE_HABITS_H
#define SX_TESTS_CORE_EGRAPH_RULE_HABITS_H
#include "tests/core/egraph/instances.h"
#include "tests/core/egraph/instances_merge.h"
#include "tests/core/egraph/rule_makers.h"
#include "tests/core/egraph/values.h"

#define HABIT_NO_RESIDUES 1u /* functions without algebra: no residues, doubles within rounding */
#define HABIT_ORDER 2u       /* sums under a maximum: no residues, equal over small whole numbers */
#define HABIT_REDUCERS 4u    /* any reducer, not the sum alone */
#define HABIT_FIRST_MAX 8u   /* the first reduction is a maximum */
#define HABIT_RECIPROCAL 16u /* the name c is one over the number of elements reduced */
#define HABIT_GELU 32u       /* the name s is the argument of erf or tanh in gelu */
#define HABIT_REAL 64u       /* f32 and f64 */
#define HABIT_FLOAT 128u     /* f64, f32, bf16, f16 */
#define HABIT_ONLINE 256u    /* sums weighted by a softmax */

typedef struct {
    uint32_t rule;
    fill_kind fill;
    uint32_t flags;
    double bound;                                  /* deviation allowed in doubles; 0: rounding */
    sx_code (*make)(generator *g, sx_node_id *id); /* NULL: the pattern itself */
} habit;

#define NO_RESIDUES FILL_PLAIN, HABIT_NO_RESIDUES, 0, NULL
#define POSITIVE FILL_POSITIVE, HABIT_NO_RESIDUES, 0, NULL
static const habit habits[] = {
    {SX_RULE_POWER_TWO, POSITIVE},
    {SX_RULE_POWER_THREE, POSITIVE},
    {SX_RULE_POWER_HALF, POSITIVE},
    {SX_RULE_POWER_MINUS_HALF, POSITIVE},
    {SX_RULE_DIVIDE_ROOT, POSITIVE},
    {SX_RULE_DIVIDE_ROOT_BROADCAST, POSITIVE},
    {SX_RULE_POWER_ONE, NO_RESIDUES},
    {SX_RULE_RECIPROCAL_ROOT, POSITIVE},
    {SX_RULE_FOLD_VALUE, FILL_PLAIN, HABIT_NO_RESIDUES, 0, make_constants},
    {SX_RULE_MEAN, FILL_PLAIN, HABIT_NO_RESIDUES | HABIT_RECIPROCAL | HABIT_REAL, 0, NULL},
    {SX_RULE_LOGISTIC, NO_RESIDUES},
    {SX_RULE_SILU_DIVIDE, NO_RESIDUES},
    {SX_RULE_GELU_HALF_LAST, FILL_PLAIN, HABIT_NO_RESIDUES | HABIT_GELU | HABIT_REAL, 0, NULL},
    {SX_RULE_GELU_HALF_FIRST, FILL_PLAIN, HABIT_NO_RESIDUES | HABIT_GELU | HABIT_REAL, 0, NULL},
    {SX_RULE_GELU_HALF_INNER, FILL_PLAIN, HABIT_NO_RESIDUES | HABIT_GELU | HABIT_REAL, 0, NULL},
    {SX_RULE_SOFTMAX, FILL_PLAIN, HABIT_FIRST_MAX | HABIT_REAL, 0, NULL},
    {SX_RULE_LOG_SOFTMAX, FILL_PLAIN, HABIT_FIRST_MAX | HABIT_REAL, 0, NULL},
    {SX_RULE_LAYER_NORM, FILL_PLAIN, HABIT_REAL, 0, NULL},
    {SX_RULE_LAYER_NORM_PLAIN, FILL_PLAIN, HABIT_REAL, 0, NULL},
    {SX_RULE_RMS_NORM, FILL_PLAIN, HABIT_REAL, 0, NULL},
    {SX_RULE_LOG_OF_SOFTMAX, NO_RESIDUES},
    {SX_RULE_EXP_PRODUCT, NO_RESIDUES},
    {SX_RULE_EXP_QUOTIENT, NO_RESIDUES},
    {SX_RULE_EXP_RECIPROCAL, NO_RESIDUES},
    {SX_RULE_LOG_EXP, NO_RESIDUES},
    {SX_RULE_SOFTMAX_SHIFT, NO_RESIDUES},
    {SX_RULE_ONLINE, FILL_PLAIN, HABIT_ONLINE, 0, NULL},
    {SX_RULE_WINDOW_PADDING, NO_RESIDUES}, /* -inf is not the least residue */
    {SX_RULE_CONV_DEEP, FILL_PLAIN, 0, 0, make_deep},
    {SX_RULE_CONV_GROUPS, FILL_PLAIN, 0, 0, make_groups},
    {SX_RULE_BATCH_NORM_DEFINITION, FILL_POSITIVE, HABIT_REAL, 0, NULL},
    {SX_RULE_OUTER_IDLE, NO_RESIDUES},
    {SX_RULE_SQUARE_ROOT, NO_RESIDUES},
    {SX_RULE_SELECT_KNOWN, FILL_PLAIN, 0, 0, make_known_choice},
    {SX_RULE_MASK_ADDED, FILL_PLAIN, HABIT_NO_RESIDUES | HABIT_FLOAT, 0, NULL},
    {SX_RULE_MASK_ADDED_OTHER, FILL_PLAIN, HABIT_NO_RESIDUES | HABIT_FLOAT, 0, NULL},
    {SX_RULE_MASK_REPEATED, FILL_PLAIN, HABIT_NO_RESIDUES | HABIT_FLOAT, 0, NULL},
    {SX_RULE_SLICE_SOFTMAX, FILL_PLAIN, HABIT_FLOAT, 0, NULL},
    {SX_RULE_SLICE_LOG_SOFTMAX, FILL_PLAIN, HABIT_FLOAT, 0, NULL},
    {SX_RULE_SLICE_LAYER_NORM, FILL_PLAIN, HABIT_FLOAT, 0, NULL},
    {SX_RULE_SLICE_RMS_NORM, FILL_PLAIN, HABIT_FLOAT, 0, NULL},
    {SX_RULE_SLICE_REDUCE, FILL_PLAIN, HABIT_REDUCERS, 0, NULL},
    {SX_RULE_CONCATENATE_FLAT, FILL_PLAIN, 0, 0, make_nested},
    {SX_RULE_CONCATENATE_SLICES, FILL_PLAIN, 0, 0, make_slices},
    {SX_RULE_CONCATENATE_EXCHANGE, FILL_PLAIN, 0, 0, make_grid},
    {SX_RULE_CONCATENATE_UNARY, FILL_PLAIN, 0, 0, make_mapped_parts},
    {SX_RULE_CONCATENATE_TRANSPOSE, FILL_PLAIN, 0, 0, make_turned_parts},
    {SX_RULE_CONCATENATE_BROADCAST, FILL_PLAIN, 0, 0, make_repeated_parts},
    {SX_RULE_BINARY_CONCATENATE, FILL_PLAIN, 0, 0, make_binary_of_parts},
    {SX_RULE_CONCATENATE_BINARY, FILL_PLAIN, 0, 0, make_parts_of_binary},
    {SX_RULE_REDUCE_REDUCE, FILL_PLAIN, HABIT_REDUCERS, 0, NULL},
    {SX_RULE_REDUCE_TRANSPOSE, FILL_PLAIN, HABIT_REDUCERS, 0, NULL},
    {SX_RULE_REDUCE_TRANSPOSE_TURNED, FILL_PLAIN, HABIT_REDUCERS, 0, NULL},
    {SX_RULE_REDUCE_RESHAPE, FILL_PLAIN, HABIT_REDUCERS, 0, NULL},
    {SX_RULE_REDUCE_CONCATENATE, FILL_PLAIN, HABIT_REDUCERS, 0, NULL},
    {SX_RULE_REDUCE_CONCATENATE_APART, FILL_PLAIN, HABIT_REDUCERS, 0, NULL},
    {SX_RULE_REDUCE_BROADCAST, FILL_PLAIN, HABIT_REDUCERS, 0, NULL},
    {SX_RULE_REDUCE_ONES, FILL_PLAIN, HABIT_REDUCERS, 0, NULL},
    {SX_RULE_REDUCE_VALUE, FILL_PLAIN, HABIT_REDUCERS | HABIT_ORDER | HABIT_REAL, 0, NULL},
    {SX_RULE_REDUCE_ROW, FILL_PLAIN, HABIT_REDUCERS | HABIT_ORDER | HABIT_REAL, 0, NULL},
    {SX_RULE_REDUCE_SUM_APART, FILL_PLAIN, HABIT_REAL, 0, NULL},
    {SX_RULE_REDUCE_MONOTONE, FILL_PLAIN, HABIT_REDUCERS | HABIT_NO_RESIDUES | HABIT_REAL, 0, NULL},
    {SX_RULE_RMS_NORM_DOT, FILL_PLAIN, HABIT_REAL, 0, NULL},
    {SX_RULE_POWER_FOUR, POSITIVE},
    {SX_RULE_POWER_ZERO, NO_RESIDUES},
    {SX_RULE_POWER_MINUS_ONE, FILL_POSITIVE, HABIT_NO_RESIDUES | HABIT_FLOAT, 0, NULL},
    {SX_RULE_ATTENTION, FILL_PLAIN, 0, 0, make_attention},
    {SX_RULE_DOT_MERGE_RIGHT, FILL_PLAIN, 0, 0, make_dots_left},
    {SX_RULE_DOT_MERGE_LEFT, FILL_PLAIN, 0, 0, make_dots_right},
    {SX_RULE_CONV_MERGE_RIGHT, FILL_PLAIN, 0, 0, make_convolutions_left},
    {SX_RULE_CONV_MERGE_LEFT, FILL_PLAIN, 0, 0, make_convolutions_right},
    {SX_RULE_DOT_CONCATENATE_RIGHT, FILL_PLAIN, 0, 0, make_dot_joined_right},
    {SX_RULE_DOT_CONCATENATE_LEFT, FILL_PLAIN, 0, 0, make_dot_joined_left},
    {SX_RULE_DOT_SUM_PARTS_RIGHT, FILL_PLAIN, 0, 0, make_dot_summed_right},
    {SX_RULE_DOT_SUM_PARTS_LEFT, FILL_PLAIN, 0, 0, make_dot_summed_left},
    {SX_RULE_CONCATENATE_DOTS, FILL_PLAIN, 0, 0, make_joined_dots},
    {SX_RULE_DOT_SUM_MERGE, FILL_PLAIN, 0, 0, make_dot_sum},
    {SX_RULE_CONV_SUM_MERGE, FILL_PLAIN, 0, 0, make_convolution_sum},
    {SX_RULE_PARTS_UNARY, FILL_PLAIN, 0, 0, make_parts_unary},
    {SX_RULE_PARTS_VALUE, FILL_PLAIN, 0, 0, make_parts_value},
    {SX_RULE_PARTS_REPEATED, FILL_PLAIN, 0, 0, make_parts_repeated},
};

static inline habit habit_of(uint32_t rule)
{
    for (uint32_t i = 0; i < SX_COUNT(habits); i++) {
        if (habits[i].rule == rule) {
            return habits[i];
        }
    }
    return (habit){rule, FILL_PLAIN, 0, 0, NULL};
}
#endif
