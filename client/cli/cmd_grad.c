/* cmd_grad.c - grad: a program with the gradients of one of its outputs. */
#include <stdio.h>

#include "client/cli/program.h"
#include "core/grad/grad.h"
#include "core/ir/origin.h"

/* A parameter of this name is meant before all weights are. */
static bool has_parameter(const sx_graph *graph, sx_span name)
{
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const sx_node *node = &graph->node[n];
        if (node->op == SX_OP_PARAMETER && sx_span_equal(sx_graph_attr(graph, node)->name, name)) {
            return true;
        }
    }
    return false;
}

static sx_code read_request(sxc_cli *cli, const sx_graph *graph, sx_grad_request *request)
{
    const sxc_values *given = &cli->option[SXC_WRT];
    if (given->count == 0) {
        return SX_FAIL(cli->cx, SX_USAGE, "--wrt is missing: the name of a parameter, or weights");
    }
    sx_span *name = SX_NEW_ARRAY(cli->cx, sx_span, given->count);
    if (name == NULL) {
        return cli->cx->error.code;
    }
    *request = (sx_grad_request){.wrt = name};
    for (uint32_t i = 0; i < given->count; i++) {
        sx_span wrt = sx_span_of(given->value[i]);
        if (sx_span_is(wrt, "weights") && !has_parameter(graph, wrt)) {
            request->weights = true;
        } else {
            name[request->wrt_count++] = wrt;
        }
    }
    if (sxc_given(cli, SXC_OF)) {
        request->output = sx_span_of(sxc_value(cli, SXC_OF));
    }
    return SX_OK;
}

static void tell_names(const char *before, const sx_span *name, uint32_t count, const char *behind)
{
    if (count == 0) {
        return;
    }
    (void)fprintf(stderr, "%s", before);
    for (uint32_t i = 0; i < count; i++) {
        (void)fprintf(stderr, "%s%.*s", i > 0 ? ", " : "", (int)name[i].len,
                      (const char *)name[i].ptr);
    }
    (void)fprintf(stderr, "%s\n", behind);
}

static void put_names(sx_buf *json, const char *field, const sx_span *name, uint32_t count)
{
    sxc_json_open(json, field, '[');
    for (uint32_t i = 0; i < count; i++) {
        sxc_json_text(json, NULL, name[i]);
    }
    sxc_json_close(json, ']');
}

static sx_code deliver(sxc_cli *cli, const sx_gradient *made, sx_span text)
{
    const char *path = sxc_given(cli, SXC_OUTPUT) ? sxc_value(cli, SXC_OUTPUT) : "-";
    if (!cli->json) {
        tell_names("the result has a new input: ", &made->cotangent, made->cotangent.len > 0, "");
        tell_names("zero, as the output does not depend on it: ", made->zero, made->zero_count, "");
        tell_names("left out, as they are no floats: ", made->skipped, made->skipped_count, "");
        return sxc_write_file(cli->cx, path, text);
    }
    if (sxc_given(cli, SXC_OUTPUT)) {
        SX_TRY(sxc_write_file(cli->cx, path, text));
    }
    sx_buf json;
    sx_buf_init(&json, 8 * SX_TEXT_BYTES_MAX);
    sxc_json_begin(&json, "grad");
    if (!sxc_given(cli, SXC_OUTPUT)) {
        sxc_json_text(&json, "program", text);
    }
    sxc_json_text(&json, "cotangent", made->cotangent);
    put_names(&json, "zero", made->zero, made->zero_count);
    put_names(&json, "skipped", made->skipped, made->skipped_count);
    sxc_json_end(&json);
    sx_code code = sxc_put(cli, &json);
    sx_buf_fini(&json);
    return code;
}

static sx_code differentiate(sxc_cli *cli, const sxc_source *source)
{
    sx_graph *graph; /* with the names that messages speak of */
    sx_grad_request request;
    sx_gradient made;
    SX_TRY(sx_graph_parse_named(cli->cx, sx_buf_span(&source->text), &graph));
    SX_TRY(read_request(cli, graph, &request));
    SX_TRY(sx_grad_make(cli->cx, graph, &request, &made));
    sx_buf text;
    sx_buf_init(&text, SX_TEXT_BYTES_MAX);
    sx_code code = sx_graph_print(cli->cx, made.graph, &text);
    code = code == SX_OK ? deliver(cli, &made, sx_buf_span(&text)) : code;
    sx_buf_fini(&text);
    return code;
}

sx_code sxc_cmd_grad(sxc_cli *cli)
{
    sxc_source source = {0};
    if (sxc_given(cli, SXC_OUTPUT)) {
        SX_TRY(sxc_check_output(cli->cx, sxc_value(cli, SXC_OUTPUT)));
    }
    sx_code code = sxc_program_load(cli, &source);
    code = code == SX_OK ? differentiate(cli, &source) : code;
    sxc_source_fini(&source);
    return code;
}
