#include "core/rules/key.h"

#include "core/rules/rules.h"

/* The tables again, as text alone: rules.c names the functions of the rules and thereby all of level 1. */
static const struct {
    const char *name, *rule_class;
    const char *left,
        *right; /* NULL: a step of the pass that fuses; a right side that is a C function */
} row[SX_RULE_COUNT] = {
#define SX_RULE(id, name_, class_, left_, right_) \
    [SX_RULE_##id] = {.name = name_, .rule_class = #class_, .left = left_, .right = right_},
#define SX_RULE_BUILD(id, name_, class_, left_, build_) \
    [SX_RULE_##id] = {.name = name_, .rule_class = #class_, .left = left_},
#include "core/rules/rules.def"
#undef SX_RULE
#undef SX_RULE_BUILD
#define SX_RULE_FUSION(id, name_, class_, help) \
    [SX_RULE_##id] = {.name = name_, .rule_class = #class_},
#include "core/rules/fusion.def"
#undef SX_RULE_FUSION
};

static const char *const range[SX_RULE_COUNT] = {
#define SX_RULE_RANGE(id, range_, why) [SX_RULE_##id] = #range_,
#include "core/rules/range.def"
#undef SX_RULE_RANGE
};

sx_key sx_rules_key(void)
{
    sx_span part[5 * SX_RULE_COUNT];
    uint32_t count = 0;
    for (uint32_t i = 0; i < SX_RULE_COUNT; i++) {
        SX_ASSERT(row[i].name != NULL && row[i].rule_class != NULL);
        part[count++] = sx_span_of(row[i].name);
        part[count++] = sx_span_of(row[i].rule_class);
        part[count++] = sx_span_of(range[i]);
        part[count++] = sx_span_of(row[i].left);
        part[count++] = sx_span_of(row[i].right);
    }
    SX_ASSERT(count == SX_COUNT(part));
    return sx_key_of("rules", part, count);
}
