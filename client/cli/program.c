#include "client/cli/program.h"

#include <stdio.h>

#include "client/operation/operation.h"

static const sxc_option options[SXC_OPERATION_COUNT] = {
    [SXC_OPERATION_GEMM] = SXC_GEMM,
    [SXC_OPERATION_ATTENTION] = SXC_ATTENTION,
    [SXC_OPERATION_SOFTMAX] = SXC_SOFTMAX,
    [SXC_OPERATION_NORM] = SXC_NORM,
};

/* The operation that the options name; *any false: there is none. */
static sx_code read_operation(sxc_cli *cli, sxc_operation *operation, bool *any)
{
    static const sxc_option words[] = {SXC_DTYPE, SXC_BATCH, SXC_LAYOUT, SXC_EPILOGUE};
    *operation = (sxc_operation){.dtype = sxc_value(cli, SXC_DTYPE),
                                 .batch = sxc_value(cli, SXC_BATCH),
                                 .layout = sxc_value(cli, SXC_LAYOUT),
                                 .epilogue = sxc_value(cli, SXC_EPILOGUE)};
    *any = false;
    for (uint32_t k = 0; k < SXC_OPERATION_COUNT; k++) {
        if (!sxc_given(cli, options[k])) {
            continue;
        }
        if (*any) {
            return SX_FAIL(cli->cx, SX_USAGE, "--%s and --%s exclude each other",
                           sxc_operation_name(operation->kind),
                           sxc_operation_name((sxc_operation_kind)k));
        }
        *any = true;
        operation->kind = (sxc_operation_kind)k;
        operation->shape = sxc_value(cli, options[k]);
    }
    for (uint32_t k = 0; k < SX_COUNT(words) && !*any; k++) {
        if (sxc_given(cli, words[k])) {
            return SX_FAIL(cli->cx, SX_USAGE,
                           "--%s describes an operation: --gemm, --attention, --softmax or --norm",
                           sxc_options[words[k]].name);
        }
    }
    return SX_OK;
}

/* *operation and *any as above; one of file and operation is given. */
static sx_code choose(sxc_cli *cli, sxc_operation *operation, bool *any)
{
    SX_TRY(read_operation(cli, operation, any));
    if (*any && cli->argument_count > 0) {
        return SX_FAIL(cli->cx, SX_USAGE, "--%s and the file %.200s exclude each other",
                       sxc_operation_name(operation->kind), cli->argument[0]);
    }
    if (!*any && cli->argument_count == 0) {
        return SX_FAIL(cli->cx, SX_USAGE,
                       "it needs FILE, or --gemm, --attention, --softmax or --norm");
    }
    return SX_OK;
}

sx_code sxc_program_name(sxc_cli *cli, const char **name)
{
    sxc_operation operation;
    bool any;
    SX_TRY(choose(cli, &operation, &any));
    *name = any ? sxc_operation_name(operation.kind) : cli->argument[0];
    return SX_OK;
}

sx_code sxc_program_load(sxc_cli *cli, sxc_source *source)
{
    sxc_operation operation;
    bool any;
    *source = (sxc_source){.graph = NULL};
    SX_TRY(choose(cli, &operation, &any));
    if (!any) {
        return sxc_source_load(cli->cx, cli->argument[0], source);
    }
    if (operation.dtype == NULL) {
        sx_hint(cli->cx, "For example --dtype f32, or --dtype bf16.");
        return SX_FAIL(cli->cx, SX_USAGE, "--%s needs --dtype", sxc_operation_name(operation.kind));
    }
    sx_buf_init(&source->text, SX_TEXT_BYTES_MAX);
    SX_TRY(sxc_operation_make(cli->cx, &operation, &source->graph));
    return sx_graph_print(cli->cx, source->graph, &source->text);
}

sx_code sxc_program_generalise(sxc_cli *cli, sxc_source *source, sx_core_request *request)
{
    const char *why = NULL;
    SX_ASSERT(source->graph != NULL);
    SX_TRY(sxc_given(cli, SXC_BATCH_INVARIANT)
               ? sxc_source_generalise(cli->cx, source, request, &why)
               : SX_OK);
    if (why != NULL) {
        (void)fprintf(stderr,
                      "symplex: only rewrites that keep every bit: the batch is no symbol, as %s\n",
                      why);
    }
    return SX_OK;
}

sx_code sxc_program_print(sxc_cli *cli, const sxc_source *source)
{
    SX_ASSERT(source->graph != NULL);
    sx_buf out;
    sx_buf_init(&out, 8 * SX_TEXT_BYTES_MAX);
    if (cli->json) {
        sxc_json_begin(&out, "program");
        sxc_json_text(&out, "program", sx_buf_span(&source->text));
        sxc_json_end(&out);
    } else {
        sx_buf_put_span(&out, sx_buf_span(&source->text));
    }
    sx_code code = sxc_put(cli, &out);
    sx_buf_fini(&out);
    return code;
}
