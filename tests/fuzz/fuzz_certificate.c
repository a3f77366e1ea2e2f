/* fuzz_certificate.c - any bytes as a certificate: an error, or one whose two programs agree where they are evaluated.
 *
 * The first byte says what the rest is: 'c' a certificate as it stands; 'p' one proved part without its
 * counts, its input, output and terms apart by lines of "--", then its steps, so that a change of length does
 * not end the reading. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/rng.h"
#include "core/eval/eval.h"
#include "core/proof/certificate_eval.h"
#include "core/proof/certificate_read.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define WORK UINT64_C(4000000)
#define FUEL UINT64_C(20000000)
#define PARTS 3

/* Up to the next line of "--", which is taken off. */
static sx_span take_block(sx_span *rest)
{
    static const char mark[] = "\n--\n";
    const uint8_t *found = memmem(rest->ptr, rest->len, mark, sizeof(mark) - 1);
    size_t len = found != NULL ? (size_t)(found - rest->ptr) + 1 : rest->len;
    size_t skip = found != NULL ? len + sizeof(mark) - 2 : len;
    sx_span block = {rest->ptr, len};
    *rest = (sx_span){rest->ptr + skip, rest->len - skip};
    return block;
}

static void compose(sx_span rest, sx_buf *text)
{
    static const char *const name[PARTS] = {"input", "output", "terms"};
    sx_buf_put_text(text, "symplex-proof 1\nparts 1\npart proved\n");
    for (uint32_t i = 0; i < PARTS; i++) {
        sx_span block = take_block(&rest);
        sx_buf_print(text, "%s %zu\n", name[i], block.len);
        sx_buf_put_span(text, block);
    }
    uint32_t steps = 0;
    for (size_t i = 0; i < rest.len; i++) {
        steps += rest.ptr[i] == '\n' ? 1 : 0;
    }
    sx_buf_print(text, "steps %u\n", steps);
    sx_buf_put_span(text, rest);
    sx_buf_put_text(text, "end\n");
}

/* ---- both programs once more, with arguments and a comparison that are not the checker's ---- */

static sx_code bind_low(sx_ctx *cx, const sx_graph *graph, sx_graph **bound)
{
    sx_binding binding[SX_SYMBOLS_MAX];
    for (uint32_t s = 0; s < graph->symbol_count; s++) {
        binding[s] = (sx_binding){graph->symbol[s].name, graph->symbol[s].low};
    }
    return sx_graph_bind(cx, graph, binding, graph->symbol_count, bound);
}

/* Whole numbers from 1 to 4, by the name of the parameter. */
static sx_code draw(sx_ctx *cx, const sx_attr *attr, const sx_type *type, sx_tensor *argument)
{
    sx_rng rng = {sx_hash64(attr->name, 99)};
    int64_t count = sx_tensor_elements(type);
    SX_TRY(sx_spend(cx, (uint64_t)count));
    *argument = (sx_tensor){.type = *type, .data = sx_alloc_array(cx, (size_t)count, 8)};
    if (argument->data == NULL) {
        return cx->error.code;
    }
    for (int64_t k = 0; k < count; k++) {
        uint64_t value = sx_rng_below(&rng, 4) + 1;
        if (sx_dtype_class_of(type->dtype) == SX_CLASS_FLOAT) {
            ((double *)argument->data)[k] = (double)value;
        } else {
            ((int64_t *)argument->data)[k] = (int64_t)(type->dtype == SX_BOOL ? value & 1 : value);
        }
    }
    return SX_OK;
}

static sx_code evaluate(sx_ctx *cx, const sx_graph *graph, sx_tensor **result)
{
    sx_graph *bound;
    uint32_t count = 0;
    SX_TRY(bind_low(cx, graph, &bound));
    sx_tensor *argument = SX_NEW_ARRAY(cx, sx_tensor, bound->node_count + 1);
    *result = SX_NEW_ARRAY(cx, sx_tensor, bound->output_count + 1);
    if (argument == NULL || *result == NULL) {
        return cx->error.code;
    }
    for (uint32_t n = 0; n < bound->node_count; n++) {
        if (bound->node[n].op == SX_OP_PARAMETER) {
            SX_TRY(draw(cx, sx_graph_attr(bound, &bound->node[n]), &bound->node[n].type,
                        &argument[count++]));
        }
    }
    return sx_graph_eval(cx, bound, SX_EVAL_F64, argument, count, *result, bound->output_count);
}

/* Finite numbers within a thousandth of the largest, and of each other's sign where they are large; special
 * values are the checker's. */
static void must_agree(const sx_tensor *a, const sx_tensor *b)
{
    int64_t count = sx_tensor_elements(&a->type);
    bool is_float = sx_dtype_class_of(a->type.dtype) == SX_CLASS_FLOAT;
    bool narrow = is_float && sx_dtype_bytes(a->type.dtype) < 4;
    double largest = 1;
    SX_ASSERT(sx_type_equal(&a->type, &b->type));
    for (int64_t k = 0; is_float && k < count; k++) {
        double x = fabs(((const double *)a->data)[k]);
        if (!isfinite(x) || !isfinite(((const double *)b->data)[k])) {
            return;
        }
        largest = x > largest ? x : largest;
    }
    for (int64_t k = 0; k < count; k++) {
        if (!is_float) {
            SX_ASSERT(((const int64_t *)a->data)[k] == ((const int64_t *)b->data)[k]);
            continue;
        }
        double gap = fabs(((const double *)a->data)[k] - ((const double *)b->data)[k]);
        SX_ASSERT(gap <= (narrow ? 1 : 1e-3) * largest);
    }
}

static bool has_approximate(const sx_certificate *c)
{
    bool found = false;
    for (uint32_t r = 0; r < SX_RULE_COUNT; r++) {
        found = found || (c->rule_count[r] > 0 && sx_rule_class_of(r) == SX_RULE_APPROXIMATE);
    }
    return found;
}

static void check(sx_span text)
{
    sx_ctx cx;
    sx_certificate certificate;
    sx_tensor *input, *output;
    sx_ctx_init(&cx, (size_t)256 << 20);
    cx.fuel = FUEL;
    sx_code code = sx_proof_read(&cx, text, SX_PROOF_STEPS | SX_PROOF_VALUES, WORK, &certificate);
    SX_ASSERT(code != SX_INTERNAL);
    if (code == SX_OK) {
        SX_ASSERT(certificate.input->output_count == certificate.output->output_count);
        SX_ASSERT(sx_graph_check(&cx, certificate.input) == SX_OK);
        SX_ASSERT(sx_graph_check(&cx, certificate.output) == SX_OK);
    }
    cx.fuel = FUEL;
    if (code == SX_OK && !has_approximate(&certificate) &&
        evaluate(&cx, certificate.input, &input) == SX_OK &&
        evaluate(&cx, certificate.output, &output) == SX_OK) {
        for (uint32_t i = 0; i < certificate.input->output_count; i++) {
            must_agree(&input[i], &output[i]);
        }
    }
    sx_ctx_fini(&cx);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sx_buf text;
    if (size == 0 || (data[0] != 'c' && data[0] != 'p')) {
        return 0;
    }
    sx_span rest = {data + 1, size - 1};
    sx_buf_init(&text, (size_t)1 << 20);
    if (data[0] == 'p') {
        compose(rest, &text);
        rest = sx_buf_span(&text);
    }
    check(rest);
    sx_buf_fini(&text);
    return 0;
}
