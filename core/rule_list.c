/* rule_list.c - the table of rules for people. */
#include "core/core.h"
#include "core/rules/rules.h"

bool sx_core_rule_find(uint32_t index, sx_core_rule *rule)
{
    if (index >= SX_RULE_COUNT) {
        return false;
    }
    bool in_rounds = index < SX_RULE_ROUNDS_COUNT;
    *rule = (sx_core_rule){.name = sx_rule_name(index),
                           .rule_class = sx_rule_class_name(sx_rule_class_of(index)),
                           .range = sx_rule_range_name(sx_rule_range_of(index)),
                           .range_why = sx_rule_range_why(index),
                           .left = in_rounds ? sx_rules[index].left : NULL,
                           .right = in_rounds ? sx_rules[index].right : NULL};
    return true;
}
