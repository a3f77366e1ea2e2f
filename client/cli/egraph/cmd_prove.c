/* cmd_prove.c - prove: a certificate, from a file or of an entry of the cache, checked by itself, without the
 * e-graph it came from. */
#include <stdio.h>

#include "client/cli/cli.h"
#include "client/cli/entry.h"
#include "client/source.h"
#include "client/cli/table.h"
#include "core/core.h"
#include "protocol/json.h"

#define TEXT_BYTES_MAX ((size_t)1 << 30)

/* --from or --to: the program of the file must be the one the certificate speaks of. */
static sx_code same_program(sxc_cli *cli, sxc_option option, const sx_graph *graph)
{
    sxc_source source;
    sx_key expected, key;
    if (!sxc_given(cli, option)) {
        return SX_OK;
    }
    const char *path = sxc_value(cli, option);
    sx_code code = sxc_source_load(cli->cx, path, &source);
    sx_graph *canonical;
    code = code == SX_OK ? sx_graph_canon(cli->cx, source.graph, &canonical) : code;
    if (code == SX_OK) {
        /* certificates leave both out: no part of what a program computes */
        canonical->sharding = NULL;
        canonical->effects = NULL;
    }
    code = code == SX_OK ? sx_graph_key(cli->cx, canonical, &expected) : code;
    code = code == SX_OK ? sx_graph_key(cli->cx, graph, &key) : code;
    if (code == SX_OK && !sx_key_equal(&expected, &key)) {
        code = SX_FAIL(cli->cx, SX_INPUT, "%s: not the program the proof %s", path,
                       option == SXC_INPUT_PROGRAM ? "starts from" : "ends at");
    }
    sxc_source_fini(&source);
    return code;
}

static sx_code print_json(sxc_cli *cli, const sx_core_proof *proof, sx_buf *out)
{
    sxc_json_begin(out, "prove");
    sxc_json_bool(out, "holds", true);
    sxc_json_int(out, "parts", proof->part_count);
    sxc_json_int(out, "steps", proof->step_count);
    sxc_json_int(out, "terms", proof->term_count);
    sxc_json_open(out, "bodies", '{');
    sxc_json_int(out, "programs", proof->body_count);
    sxc_json_int(out, "operations", proof->body_node_count);
    sxc_json_close(out, '}');
    sxc_json_open(out, "evaluated", '{');
    sxc_json_int(out, "steps", proof->step_evaluated);
    sxc_json_int(out, "outputs", proof->output_evaluated);
    sxc_json_int(out, "of_outputs", proof->output_count);
    sxc_json_real(out, "deviation", proof->worst);
    sxc_json_real(out, "allowed", proof->allowed);
    sxc_json_close(out, '}');
    sxc_json_open(out, "rules", '[');
    for (uint32_t i = 0; i < proof->rule_count; i++) {
        sxc_json_open(out, NULL, '{');
        sxc_json_text(out, "name", sx_span_of(proof->rule[i].rule));
        sxc_json_text(out, "class", sx_span_of(proof->rule[i].rule_class));
        sxc_json_int(out, "steps", proof->rule[i].count);
        sxc_json_close(out, '}');
    }
    sxc_json_close(out, ']');
    sxc_json_end(out);
    return sxc_put(cli, out);
}

/* What of the proof was also evaluated, and how far apart its values were. */
static void print_evaluated(const sx_core_proof *proof, sx_buf *out)
{
    sx_buf_print(out, "evaluated: %u of %u steps, %u of %u outputs, on random arguments%s",
                 proof->step_evaluated, proof->step_count, proof->output_evaluated,
                 proof->output_count,
                 proof->input->symbol_count > 0 ? " with small values for its symbols" : "");
    if (proof->step_evaluated + proof->output_evaluated > 0) {
        sx_buf_print(out, "; largest deviation %.2g (allowed %.2g)", proof->worst, proof->allowed);
    }
    bool all = proof->step_evaluated == proof->step_count &&
               proof->output_evaluated == proof->output_count;
    sx_buf_print(out, "\n%s",
                 all ? ""
                     : "the others are too large to evaluate here, or not numbers: checked step by "
                       "step alone\n");
}

static sx_code print_text(sxc_cli *cli, const sx_core_proof *proof, sx_buf *out)
{
    sxc_table table;
    sx_buf_print(out, "holds: %u steps over %u terms; %u operations became %u\n", proof->step_count,
                 proof->term_count, proof->input->node_count, proof->output->node_count);
    if (proof->body_count > 0) {
        sx_buf_print(
            out,
            "bodies of scan, while and cond: %u programs with %u operations, the same before and "
            "after; no step is in them, compile improves them behind the proof\n",
            proof->body_count, proof->body_node_count);
    }
    print_evaluated(proof, out);
    sxc_table_init(&table, cli->cx, "RULE|CLASS|>STEPS");
    for (uint32_t i = 0; i < proof->rule_count; i++) {
        sxc_table_put(&table, "%s", proof->rule[i].rule);
        sxc_table_put(&table, "%s", proof->rule[i].rule_class);
        sxc_table_put(&table, "%u", proof->rule[i].count);
    }
    SX_TRY(sxc_table_print(&table, out));
    return sxc_put(cli, out);
}

/* The certificate in a file, or of an entry of the cache. */
static sx_code read_proof(sxc_cli *cli, const char *name, sx_buf *text)
{
    sxc_module_file file;
    if (sxc_entry_is_file(name)) {
        return sxc_read_text(cli->cx, name, text);
    }
    SX_TRY(sxc_entry_open(cli, name, &file));
    sx_buf_put(text, file.module.proof, (size_t)file.module.proof_count);
    sxc_module_file_close(&file);
    return text->len > 0 ? sx_buf_check(cli->cx, text, "proof")
                         : SX_FAIL(cli->cx, SX_INPUT,
                                   "entry %.64s: no proof, only optimize stores one", name);
}

sx_code sxc_cmd_prove(sxc_cli *cli)
{
    sx_buf text, out;
    sx_core_proof proof;
    sx_buf_init(&text, TEXT_BYTES_MAX);
    sx_buf_init(&out, TEXT_BYTES_MAX);
    const char *name = cli->argument[0];
    sx_code code = read_proof(cli, name, &text);
    bool read = code == SX_OK;
    code = read ? sx_core_prove(cli->cx, sx_buf_span(&text), &proof) : code;
    if (code != SX_OK && (read || sxc_entry_is_file(name))) {
        code = sx_fail_in(cli->cx, "%s", name);
    }
    code = code == SX_OK ? same_program(cli, SXC_INPUT_PROGRAM, proof.input) : code;
    code = code == SX_OK ? same_program(cli, SXC_OUTPUT_PROGRAM, proof.output) : code;
    if (code == SX_OK) {
        code = cli->json ? print_json(cli, &proof, &out) : print_text(cli, &proof, &out);
    }
    sx_buf_fini(&text);
    sx_buf_fini(&out);
    return code;
}
