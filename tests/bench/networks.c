#include "tests/bench/networks.h"

#include <string.h>

#include "core/grad/grad.h"
#include "tests/bench/step.h"
#include "tests/lib/gen_transformer.h"
#include "tests/lib/gen_vision.h"
#include "tests/lib/model.h"

/* Layers before which nothing is looked up: 128 tokens, 256 wide, 4 heads; layer normalisation and gelu. */
static void print_encoder(uint32_t layers, sx_buf *text)
{
    sx_transformer shape = sx_transformer_default(layers);
    shape.front = SX_TRANSFORMER_VALUES;
    shape.hidden = 256;
    shape.ffn = 1024;
    shape.seq = 128;
    shape.layer_norm = true;
    shape.glu = false;
    sx_transformer_print(&shape, text);
}

static void print_encoder12(sx_buf *text)
{
    print_encoder(12, text);
}

static void print_encoder24(sx_buf *text)
{
    print_encoder(24, text);
}

static void print_resnet50(sx_buf *text)
{
    sx_resnet shape = sx_resnet50();
    sx_resnet_print(&shape, text);
}

/* ViT-B/16 on 224 pixels. Exporters take q, k and v out of one product, and the class token out of the
 * result: here these are three products, and the head reads the mean over all tokens. */
static void print_vit(sx_buf *text)
{
    sx_transformer shape = sx_transformer_default(12);
    shape.front = SX_TRANSFORMER_PATCHES;
    shape.patch = 16;
    shape.seq = 14 * 14 + 1;
    shape.hidden = 768;
    shape.heads = 12;
    shape.ffn = 3072;
    shape.vocab = 1000;
    shape.layer_norm = true;
    shape.glu = false;
    sx_transformer_print(&shape, text);
}

/* 4 layers of GPT-2 on 128 tokens: tokens are i32, q, k and v three products, projections of attention
 * without biases, gelu by erf. */
static void print_gpt2(uint32_t hidden, uint32_t vocab, sx_buf *text)
{
    sx_transformer shape = sx_transformer_default(4);
    shape.hidden = hidden;
    shape.heads = hidden / 64;
    shape.ffn = 4 * hidden;
    shape.seq = 128;
    shape.vocab = vocab;
    shape.layer_norm = true;
    shape.glu = false;
    sx_transformer_print(&shape, text);
}

static void print_gpt2_full(sx_buf *text)
{
    print_gpt2(768, 50257, text);
}

static void print_gpt2_small(sx_buf *text)
{
    print_gpt2(384, 1000, text);
}

static const struct {
    sx_bench_network network;
    void (*print)(sx_buf *text);
} networks[] = {
    {{"mlp", "mlp", false, false}, NULL},
    {{"encoder", "encoder", false, false}, NULL},
    {{"cnn", "cnn", false, false}, NULL},
    {{"encoder12", NULL, false, false}, print_encoder12},
    {{"encoder_gradients", "encoder", true, false}, NULL},
    {{"encoder12_gradients", NULL, true, false}, print_encoder12},
    {{"encoder24_gradients", NULL, true, false}, print_encoder24},
    {{"encoder12_step", NULL, false, true}, print_encoder12},
    {{"resnet50", NULL, false, false}, print_resnet50},
    {{"vit_b_16", NULL, false, false}, print_vit},
    {{"gpt2_4", NULL, false, false}, print_gpt2_full},
    {{"gpt2_4_small", NULL, false, false}, print_gpt2_small},
};

const sx_bench_network *sx_bench_network_find(const char *name)
{
    for (uint32_t i = 0; i < SX_COUNT(networks); i++) {
        if (strcmp(networks[i].network.name, name) == 0) {
            return &networks[i].network;
        }
    }
    return NULL;
}

sx_code sx_bench_add_gradients(sx_ctx *cx, sx_buf *text)
{
    sx_graph *graph;
    sx_gradient made;
    SX_TRY(sx_graph_parse(cx, sx_buf_span(text), &graph));
    SX_TRY(sx_grad_make(cx, graph, &(sx_grad_request){.weights = true}, &made));
    sx_buf with; /* the graph may point into `text` */
    sx_buf_init(&with, SX_TEXT_BYTES_MAX);
    sx_code code = sx_graph_print(cx, made.graph, &with);
    sx_buf_clear(text);
    sx_buf_put_span(text, sx_buf_span(&with));
    sx_buf_fini(&with);
    return code;
}

sx_code sx_bench_network_text(sx_ctx *cx, const sx_bench_network *network, sx_buf *text)
{
    if (network->model != NULL) {
        SX_TRY(sx_test_model_text(cx, network->model, text));
    }
    for (uint32_t i = 0; i < SX_COUNT(networks); i++) {
        if (&networks[i].network == network && networks[i].print != NULL) {
            networks[i].print(text);
        }
    }
    SX_TRY(sx_buf_check(cx, text, "the program"));
    SX_TRY(network->gradients ? sx_bench_add_gradients(cx, text) : SX_OK);
    return network->step ? sx_bench_make_step(cx, text) : SX_OK;
}
