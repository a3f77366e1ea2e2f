/* gen_transformer.h - transformers of any depth as program text, spelled as naive exporters spell them: norms,
 * softmax, gelu and silu in primitives, masks added to the scores, heads split by reshape and transpose.
 *
 * Same options, same text. Pre-norm layers with residuals; the batch is symbolic; every weight is a parameter
 * "d<layer>.<what>".
 */
#ifndef SX_TESTS_LIB_GEN_TRANSFORMER_H
#define SX_TESTS_LIB_GEN_TRANSFORMER_H
#include "core/base/buf.h"
#include "core/ir/ir.h"

#define SX_TRANSFORMER_NONE UINT32_MAX
/* What the first layer reads. */
typedef enum {
    SX_TRANSFORMER_TOKENS, /* numbers of tokens, looked up; the result goes through a head of `vocab` columns */
    SX_TRANSFORMER_VALUES, /* "x" [batch, seq, hidden] and no mask; the result is that of the last layer */
    /* Squares of an image, a class token before them, no mask; the head reads the mean over all of
     * them. `seq` is their number and one. */
    SX_TRANSFORMER_PATCHES
} sx_transformer_front;
#define SX_TRANSFORMER_LAYERS_MAX 500u
typedef struct {
    sx_transformer_front front;
    uint32_t patch;  /* PATCHES: pixels along a side of one; their number is a square */
    uint32_t layers; /* of the decoder (or the only stack), at least 1 */
    /* 0: no encoder; else each decoder layer attends to the encoder's result, too */
    uint32_t encoder_layers;
    uint32_t hidden, heads, ffn, seq, vocab; /* hidden a multiple of heads */
    bool layer_norm;                         /* else rms_norm */
    bool glu;                                /* silu(x g) * (x u), else gelu(x u + b) */
    bool causal;        /* the mask follows from iota, else an additive mask is an input */
    bool towers;        /* a second stack of the same layers beside the first; the two are added */
    bool alternate;     /* every second layer has gelu for glu and the other way round */
    bool post_norm;     /* norm(x + f(x)) for x + f(norm(x)) */
    uint32_t odd_layer; /* this layer has twice the ffn; SX_TRANSFORMER_NONE */
    uint32_t tapped;    /* the gate of this layer is an output as well */
    bool caches;        /* keys and values of every layer are outputs */
} sx_transformer;
/* 64 hidden, 4 heads, 128 ffn, 16 tokens, vocabulary of 97, rms_norm, glu, causal. */
sx_transformer sx_transformer_default(uint32_t layers);
void sx_transformer_print(const sx_transformer *options, sx_buf *text);
/* The same, parsed and canonical, as the pipeline has it. */
sx_code sx_transformer_make(sx_ctx *cx, const sx_transformer *options, sx_graph **graph);
#endif
