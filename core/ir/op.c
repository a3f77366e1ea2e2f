#include "core/ir/ir.h"

#include <string.h>

const sx_op_info sx_op_table[SX_OP_COUNT] = {
#define SX_OP(name_, enumerator_, class_, min_, max_, attrs_, help_) \
    [SX_OP_##enumerator_] = {.name = #name_,                         \
                             .help = help_,                          \
                             .name_len = sizeof(#name_) - 1,         \
                             .op_class = SX_OPCLASS_##class_,        \
                             .input_min = min_,                      \
                             .input_max = max_,                      \
                             .attrs = attrs_},
#include "core/ir/ops.def"
#undef SX_OP
};

#define SX_OP(name_, enumerator_, class_, min_, max_, attrs_, help_) \
    _Static_assert((max_) <= SX_INPUTS_MAX, "inputs of an operation");
#include "core/ir/ops.def"
#undef SX_OP

static const sx_attr_info attr_table[SX_ATTR_COUNT] = {
#define SX_ATTR(name_, kind_, help_) \
    [SX_ATTR_##name_] = {.name = #name_, .help = help_, .kind = SX_KIND_##kind_},
#include "core/ir/attrs.def"
#undef SX_ATTR
};
_Static_assert(SX_ATTR_COUNT <= 64, "sets of attributes are uint64_t");

static const char *const reducer_name[SX_REPLACE + 1] = {[SX_SUM] = "add",
                                                         [SX_PRODUCT] = "multiply",
                                                         [SX_MAX] = "maximum",
                                                         [SX_MIN] = "minimum",
                                                         [SX_REPLACE] = "set"};

static const char *const direction_name[SX_DIRECTION_COUNT] = {
    [SX_EQ] = "eq", [SX_NE] = "ne", [SX_LT] = "lt", [SX_LE] = "le", [SX_GT] = "gt", [SX_GE] = "ge"};

bool sx_op_parse(sx_span name, sx_op *op)
{
    for (uint32_t i = 0; i < SX_OP_COUNT; i++) {
        if (name.len == sx_op_table[i].name_len &&
            memcmp(name.ptr, sx_op_table[i].name, name.len) == 0) {
            *op = (sx_op)i;
            return true;
        }
    }
    return false;
}

const sx_attr_info *sx_attr_info_of(sx_attr_field field)
{
    SX_ASSERT(field < SX_ATTR_COUNT);
    return &attr_table[field];
}

bool sx_attr_field_parse(sx_span name, sx_attr_field *field)
{
    for (uint32_t i = 0; i < SX_ATTR_COUNT; i++) {
        if (sx_span_is(name, attr_table[i].name)) {
            *field = (sx_attr_field)i;
            return true;
        }
    }
    return false;
}

const char *sx_reducer_name(sx_reducer reducer)
{
    SX_ASSERT(reducer <= SX_REPLACE);
    return reducer_name[reducer];
}

bool sx_reducer_parse(sx_span name, sx_reducer *reducer)
{
    for (uint32_t i = 0; i <= SX_REPLACE; i++) {
        if (sx_span_is(name, reducer_name[i])) {
            *reducer = (sx_reducer)i;
            return true;
        }
    }
    return false;
}

const char *sx_direction_name(sx_direction direction)
{
    SX_ASSERT(direction < SX_DIRECTION_COUNT);
    return direction_name[direction];
}

bool sx_direction_parse(sx_span name, sx_direction *direction)
{
    for (uint32_t i = 0; i < SX_DIRECTION_COUNT; i++) {
        if (sx_span_is(name, direction_name[i])) {
            *direction = (sx_direction)i;
            return true;
        }
    }
    return false;
}
