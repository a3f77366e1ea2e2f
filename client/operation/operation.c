/* operation.c - the table of operations, element types, and the way from words to a program. */
#include "client/operation/build.h"

#include <string.h>

typedef struct {
    const char *name;
    sx_code (*build)(sxc_build *b, sx_node_id *result);
    /* The options that it has beside --dtype. */
    bool batch, layout, epilogue;
    /* Sets of sx_dtype_class. */
    uint32_t classes;
} operation_row;

static const operation_row rows[SXC_OPERATION_COUNT] = {
    [SXC_OPERATION_GEMM] = {.name = "gemm",
                            .build = sxc_build_gemm,
                            .batch = true,
                            .layout = true,
                            .epilogue = true,
                            .classes = 1u << SX_CLASS_FLOAT | 1u << SX_CLASS_INT},
    [SXC_OPERATION_ATTENTION] = {.name = "attention",
                                 .build = sxc_build_attention,
                                 .classes = 1u << SX_CLASS_FLOAT},
    [SXC_OPERATION_SOFTMAX] = {.name = "softmax",
                               .build = sxc_build_softmax,
                               .classes = 1u << SX_CLASS_FLOAT},
    [SXC_OPERATION_NORM] = {.name = "norm",
                            .build = sxc_build_norm,
                            .classes = 1u << SX_CLASS_FLOAT},
};

const char *sxc_operation_name(sxc_operation_kind kind)
{
    SX_ASSERT(kind < SXC_OPERATION_COUNT);
    return rows[kind].name;
}

/* ---- element types ---- */

static sx_code unknown_dtype(sxc_build *b, sx_span word)
{
    char known[256];
    size_t used = 0;
    known[0] = '\0';
    for (uint32_t t = 0; t < SX_DTYPE_COUNT; t++) {
        const char *name = sx_dtype_name((sx_dtype)t);
        if ((rows[b->asked->kind].classes >> sx_dtype_class_of((sx_dtype)t) & 1) != 0 &&
            used + strlen(name) + 2 < sizeof(known)) {
            known[used++] = ' ';
            memcpy(known + used, name, strlen(name) + 1);
            used += strlen(name);
        }
    }
    return SX_FAIL(b->cx, SX_USAGE, "--dtype %.*s: --%s takes%s",
                   (int)sx_min_i64((int64_t)word.len, 40), (const char *)word.ptr,
                   sxc_operation_name(b->asked->kind), known);
}

/* What a product of the type is computed in and what comes out of it, where only the type is given. */
static void default_types(sxc_build *b)
{
    bool narrow = sx_dtype_bytes(b->input) == 1;
    bool integer = sx_dtype_class_of(b->input) == SX_CLASS_INT;
    b->compute = b->result = b->input;
    if (b->asked->kind != SXC_OPERATION_GEMM) {
        return;
    }
    if (integer && sx_dtype_bytes(b->input) < 4) {
        b->compute = b->result = SX_I32;
    } else if (narrow) {
        b->compute = SX_F32;
        b->result = SX_BF16;
    }
}

static sx_code read_dtypes(sxc_build *b)
{
    sx_span rest = sx_span_of(b->asked->dtype), word;
    sx_dtype type[3];
    uint32_t count = 0;
    while (sxc_word_next(&rest, &word)) {
        if (count == SX_COUNT(type)) {
            return SX_FAIL(b->cx, SX_USAGE, "--dtype %.60s: more than INPUT,COMPUTE,RESULT",
                           b->asked->dtype);
        }
        if (!sx_dtype_parse(word, &type[count]) ||
            (rows[b->asked->kind].classes >> sx_dtype_class_of(type[count]) & 1) == 0) {
            return unknown_dtype(b, word);
        }
        count++;
    }
    if (count == 0) {
        return unknown_dtype(b, sx_span_of(b->asked->dtype));
    }
    b->input = type[0];
    default_types(b);
    b->compute = count > 1 ? type[1] : b->compute;
    b->result = count > 2 ? type[2] : count > 1 ? type[1] : b->result;
    return SX_OK;
}

/* ---- the program ---- */

static sx_code check_options(sxc_build *b)
{
    const operation_row *row = &rows[b->asked->kind];
    const char *extra = b->asked->batch != NULL && !row->batch         ? "batch"
                        : b->asked->layout != NULL && !row->layout     ? "layout"
                        : b->asked->epilogue != NULL && !row->epilogue ? "epilogue"
                                                                       : NULL;
    return extra == NULL
               ? SX_OK
               : SX_FAIL(b->cx, SX_USAGE, "--%s has no --%s; it is for --gemm", row->name, extra);
}

sx_code sxc_operation_make(sx_ctx *cx, const sxc_operation *operation, sx_graph **graph)
{
    SX_ASSERT(operation->kind < SXC_OPERATION_COUNT);
    SX_ASSERT(operation->shape != NULL && operation->dtype != NULL);
    const operation_row *row = &rows[operation->kind];
    sxc_build b = {.cx = cx, .asked = operation, .name = row->name};
    sx_node_id result;
    SX_TRY(check_options(&b));
    SX_TRY(read_dtypes(&b));
    SX_TRY(sx_graph_make(cx, sx_span_of(row->name), NULL, &b.graph));
    if (row->build(&b, &result) != SX_OK) {
        if (b.graph->symbol_count > 0 && cx->error.code != SX_USAGE) {
            sx_hint(cx, "A name stands for any extent up to %d; NAME:4096 says that it is less.",
                    SXC_OPERATION_SYMBOL_HIGH);
        }
        return strncmp(cx->error.text, "--", 2) == 0
                   ? cx->error.code
                   : sx_fail_in(cx, "--%s %.60s", row->name, operation->shape);
    }
    SX_TRY(sxc_build_convert(&b, b.result, &result));
    SX_TRY(sx_graph_add_output(cx, b.graph, SX_SPAN_LITERAL("out"), result));
    SX_TRY(sx_graph_check(cx, b.graph));
    *graph = b.graph;
    return SX_OK;
}
