/* cmd_info.c - ops, rules, version: what this program knows. */
#include <stdio.h>

#include "client/cli/cli.h"
#include "client/import/import.h"
#include "client/cli/table.h"
#include "core/core.h"

static const char *class_name(sx_op_class op_class)
{
    switch (op_class) {
    case SX_OPCLASS_LEAF: return "leaf";
    case SX_OPCLASS_UNARY: return "unary";
    case SX_OPCLASS_BINARY: return "binary";
    case SX_OPCLASS_COMPARE: return "compare";
    case SX_OPCLASS_SELECT: return "select";
    case SX_OPCLASS_CONVERT: return "convert";
    case SX_OPCLASS_VIEW: return "view";
    case SX_OPCLASS_CONCAT: return "concatenate";
    case SX_OPCLASS_REDUCE: return "reduce";
    case SX_OPCLASS_DOT: return "contraction";
    case SX_OPCLASS_GATHER: return "gather";
    case SX_OPCLASS_SCATTER: return "scatter";
    case SX_OPCLASS_DYNAMIC: return "dynamic";
    case SX_OPCLASS_SORT: return "sort";
    case SX_OPCLASS_MOVE: return "move";
    case SX_OPCLASS_WINDOW: return "window";
    case SX_OPCLASS_CONV: return "convolution";
    case SX_OPCLASS_COMPOSITE: return "composite";
    case SX_OPCLASS_REGION: return "region";
    case SX_OPCLASS_COLLECTIVE: return "collective";
    case SX_OPCLASS_FUSED: return "fused";
    }
    SX_UNREACHABLE();
}

static void put_attributes(const sx_op_info *info, sx_buf *out)
{
    sx_buf_clear(out);
    for (uint32_t i = 0; i < SX_ATTR_COUNT; i++) {
        if ((info->attrs >> i & 1) != 0) {
            sx_buf_print(out, "%s%s", out->len > 0 ? " " : "",
                         sx_attr_info_of((sx_attr_field)i)->name);
        }
    }
}

static sx_code ops_text(sxc_cli *cli, sx_buf *out)
{
    sxc_table table;
    sx_buf attributes;
    sx_buf_init(&attributes, 4096);
    sxc_table_init(&table, cli->cx, "OPERATION|CLASS|>INPUTS|ATTRIBUTES|MEANING");
    for (uint32_t i = 0; i < SX_OP_COUNT; i++) {
        const sx_op_info *info = sx_op_info_of((sx_op)i);
        put_attributes(info, &attributes);
        sxc_table_put(&table, "%s", info->name);
        sxc_table_put(&table, "%s", class_name(info->op_class));
        if (info->input_min == info->input_max) {
            sxc_table_put(&table, "%u", info->input_min);
        } else {
            sxc_table_put(&table, "%u-%u", info->input_min, info->input_max);
        }
        sxc_table_put_span(&table, sx_buf_span(&attributes));
        sxc_table_put(&table, "%s", info->help);
    }
    sx_buf_fini(&attributes);
    return sxc_table_print(&table, out);
}

static void ops_json(sx_buf *json)
{
    sxc_json_begin(json, "ops");
    sxc_json_open(json, "ops", '[');
    for (uint32_t i = 0; i < SX_OP_COUNT; i++) {
        const sx_op_info *info = sx_op_info_of((sx_op)i);
        sxc_json_open(json, NULL, '{');
        sxc_json_text(json, "name", sx_span_of(info->name));
        sxc_json_text(json, "class", sx_span_of(class_name(info->op_class)));
        sxc_json_int(json, "input_min", info->input_min);
        sxc_json_int(json, "input_max", info->input_max);
        sxc_json_open(json, "attributes", '[');
        for (uint32_t k = 0; k < SX_ATTR_COUNT; k++) {
            if ((info->attrs >> k & 1) != 0) {
                sxc_json_text(json, NULL, sx_span_of(sx_attr_info_of((sx_attr_field)k)->name));
            }
        }
        sxc_json_close(json, ']');
        sxc_json_text(json, "meaning", sx_span_of(info->help));
        sxc_json_close(json, '}');
    }
    sxc_json_close(json, ']');
    sxc_json_end(json);
}

sx_code sxc_cmd_ops(sxc_cli *cli)
{
    sx_buf out;
    sx_buf_init(&out, (size_t)4 << 20);
    sx_code code = SX_OK;
    if (cli->json) {
        ops_json(&out);
    } else {
        code = ops_text(cli, &out);
    }
    code = code == SX_OK ? sxc_put(cli, &out) : code;
    sx_buf_fini(&out);
    return code;
}

static const char *side_text(const char *text, const char *none)
{
    return text != NULL ? text : none;
}

static sx_code rules_text(sxc_cli *cli, sx_buf *out)
{
    sxc_table table;
    sx_core_rule rule;
    sxc_table_init(&table, cli->cx, "RULE|CLASS|RANGE|LEFT|RIGHT");
    for (uint32_t i = 0; sx_core_rule_find(i, &rule); i++) {
        sxc_table_put(&table, "%s", rule.name);
        sxc_table_put(&table, "%s", rule.rule_class);
        sxc_table_put(&table, "%s", rule.range);
        sxc_table_put(&table, "%s", side_text(rule.left, "a kernel"));
        sxc_table_put(&table, "%s", side_text(rule.right, "computed"));
    }
    return sxc_table_print(&table, out);
}

static void rules_json(sx_buf *json)
{
    sx_core_rule rule;
    sxc_json_begin(json, "rules");
    sxc_json_open(json, "rules", '[');
    for (uint32_t i = 0; sx_core_rule_find(i, &rule); i++) {
        sxc_json_open(json, NULL, '{');
        sxc_json_text(json, "name", sx_span_of(rule.name));
        sxc_json_text(json, "class", sx_span_of(rule.rule_class));
        sxc_json_text(json, "range", sx_span_of(rule.range));
        if (rule.range_why != NULL) {
            sxc_json_text(json, "range_why", sx_span_of(rule.range_why));
        }
        if (rule.left != NULL) {
            sxc_json_text(json, "left", sx_span_of(rule.left));
        }
        if (rule.right != NULL) {
            sxc_json_text(json, "right", sx_span_of(rule.right));
        }
        sxc_json_close(json, '}');
    }
    sxc_json_close(json, ']');
    sxc_json_end(json);
}

sx_code sxc_cmd_rules(sxc_cli *cli)
{
    sx_buf out;
    sx_buf_init(&out, (size_t)4 << 20);
    sx_code code = SX_OK;
    if (cli->json) {
        rules_json(&out);
    } else {
        code = rules_text(cli, &out);
    }
    code = code == SX_OK ? sxc_put(cli, &out) : code;
    sx_buf_fini(&out);
    return code;
}

sx_code sxc_cmd_version(sxc_cli *cli)
{
    sx_buf out;
    sx_buf_init(&out, 65536);
    if (cli->json) {
        sxc_json_begin(&out, "version");
        sxc_json_text(&out, "version", sx_span_of(SX_VERSION_TEXT));
        sxc_json_text(&out, "toolchain", sx_span_of(sx_core_toolchain()));
        sxc_json_int(&out, "protocol", SX_RPC_VERSION);
        sxc_json_int(&out, "module", SX_MODULE_VERSION);
        sxc_json_int(&out, "numerics", SX_NUMERICS_VERSION);
        sxc_json_int(&out, "text", SX_TEXT_VERSION);
        sxc_json_int(&out, "onnx_opset_min", SX_ONNX_OPSET_MIN);
        sxc_json_int(&out, "onnx_opset_max", SX_ONNX_OPSET_MAX);
        sxc_json_end(&out);
    } else {
        sx_buf_print(&out,
                     "symplex-client %s\ncompiler   %s\nprotocol %d, module format %u, numerics "
                     "contract %u, program text %d, ONNX opset %d to %d",
                     SX_VERSION_TEXT, sx_core_toolchain(), SX_RPC_VERSION, SX_MODULE_VERSION,
                     SX_NUMERICS_VERSION, SX_TEXT_VERSION, SX_ONNX_OPSET_MIN, SX_ONNX_OPSET_MAX);
    }
    sx_code code = sxc_put(cli, &out);
    sx_buf_fini(&out);
    return code;
}
