#include "tests/lib/gen_transformer.h"

#include <stdio.h>
#include <string.h>

#define TEXT_BYTES_MAX ((size_t)64 << 20)

typedef struct {
    const sx_transformer *o;
    sx_buf *text;
    uint32_t next;
    char x[64];      /* type of the residual stream */
    char row[64];    /* one number per token */
    char scores[64]; /* of one attention */
    char stack;      /* 'e', 'd' or 't': first letter of weight names */
    uint32_t layer;
    bool glu;
    uint32_t tapped, key, value; /* nodes read from outside */
} writer;

sx_transformer sx_transformer_default(uint32_t layers)
{
    return (sx_transformer){.layers = layers,
                            .hidden = 64,
                            .heads = 4,
                            .ffn = 128,
                            .seq = 16,
                            .vocab = 97,
                            .glu = true,
                            .causal = true,
                            .odd_layer = SX_TRANSFORMER_NONE,
                            .tapped = SX_TRANSFORMER_NONE};
}

/* "  %7 = add(%3, %4) : f32[batch, 6]": `call` holds operation, operands and attributes. */
static uint32_t put(writer *w, const char *call, const char *type)
{
    sx_buf_print(w->text, "  %%%u = %s : %s\n", w->next, call, type);
    return w->next++;
}

static uint32_t unary(writer *w, const char *op, uint32_t a, const char *type)
{
    char call[160];
    (void)snprintf(call, sizeof(call), "%s(%%%u)", op, a);
    return put(w, call, type);
}

static uint32_t binary(writer *w, const char *op, uint32_t a, uint32_t b, const char *type)
{
    char call[160];
    (void)snprintf(call, sizeof(call), "%s(%%%u, %%%u)", op, a, b);
    return put(w, call, type);
}

static uint32_t constant(writer *w, double value, const char *type)
{
    char call[160];
    (void)snprintf(call, sizeof(call), "constant {data = %.9g}", value);
    return put(w, call, type);
}

static uint32_t spread(writer *w, uint32_t a, const char *dims, const char *type)
{
    char call[160];
    (void)snprintf(call, sizeof(call), "broadcast_in_dim(%%%u) {dims = [%s]}", a, dims);
    return put(w, call, type);
}

static uint32_t reduce(writer *w, const char *reducer, uint32_t a, uint32_t dim, const char *type)
{
    char call[160];
    (void)snprintf(call, sizeof(call), "reduce(%%%u) {dims = [%u], reducer = %s}", a, dim, reducer);
    return put(w, call, type);
}

static uint32_t weight(writer *w, const char *what, const char *type)
{
    char call[160];
    (void)snprintf(call, sizeof(call), "parameter {name = \"%c%u.%s\", weight = 1}", w->stack,
                   w->layer, what);
    return put(w, call, type);
}

static uint32_t input(writer *w, const char *name, const char *type)
{
    char call[160];
    (void)snprintf(call, sizeof(call), "parameter {name = \"%s\", weight = 0}", name);
    return put(w, call, type);
}

/* x w for a weight [rows, columns] */
static uint32_t project(writer *w, uint32_t x, const char *what, uint32_t rows, uint32_t columns)
{
    char type[64];
    char call[160];
    (void)snprintf(type, sizeof(type), "f32[%u, %u]", rows, columns);
    uint32_t matrix = weight(w, what, type);
    (void)snprintf(call, sizeof(call),
                   "dot_general(%%%u, %%%u) {lhs_contract = [2], rhs_contract = [0]}", x, matrix);
    (void)snprintf(type, sizeof(type), "f32[batch, %u, %u]", w->o->seq, columns);
    return put(w, call, type);
}

static uint32_t norm(writer *w, uint32_t x, const char *what)
{
    char vector[64];
    char name[64];
    (void)snprintf(vector, sizeof(vector), "f32[%u]", w->o->hidden);
    uint32_t count = constant(w, w->o->hidden, w->row);
    if (w->o->layer_norm) {
        uint32_t mean = binary(w, "divide", reduce(w, "add", x, 2, w->row), count, w->row);
        x = binary(w, "subtract", x, spread(w, mean, "0, 1", w->x), w->x);
    }
    uint32_t square = binary(w, "multiply", x, x, w->x);
    uint32_t mean = binary(w, "divide", reduce(w, "add", square, 2, w->row), count, w->row);
    uint32_t sum = binary(w, "add", mean, constant(w, 1e-5, w->row), w->row);
    uint32_t root = unary(w, "rsqrt", sum, w->row);
    uint32_t normal = binary(w, "multiply", x, spread(w, root, "0, 1", w->x), w->x);
    (void)snprintf(name, sizeof(name), "%s.w", what);
    uint32_t scale = spread(w, weight(w, name, vector), "2", w->x);
    normal = binary(w, "multiply", normal, scale, w->x);
    if (w->o->layer_norm) {
        (void)snprintf(name, sizeof(name), "%s.b", what);
        uint32_t bias = spread(w, weight(w, name, vector), "2", w->x);
        normal = binary(w, "add", normal, bias, w->x);
    }
    return normal;
}

/* [batch, seq, hidden] as [batch, heads, seq, width] */
static uint32_t split_heads(writer *w, uint32_t x)
{
    char type[64];
    char call[160];
    uint32_t width = w->o->hidden / w->o->heads;
    (void)snprintf(type, sizeof(type), "f32[batch, %u, %u, %u]", w->o->seq, w->o->heads, width);
    uint32_t split = unary(w, "reshape", x, type);
    (void)snprintf(type, sizeof(type), "f32[batch, %u, %u, %u]", w->o->heads, w->o->seq, width);
    (void)snprintf(call, sizeof(call), "transpose(%%%u) {perm = [0, 2, 1, 3]}", split);
    return put(w, call, type);
}

static uint32_t softmax(writer *w, uint32_t scores)
{
    char type[64];
    (void)snprintf(type, sizeof(type), "f32[batch, %u, %u]", w->o->heads, w->o->seq);
    uint32_t high = reduce(w, "maximum", scores, 3, type);
    uint32_t shifted =
        binary(w, "subtract", scores, spread(w, high, "0, 1, 2", w->scores), w->scores);
    uint32_t power = unary(w, "exponential", shifted, w->scores);
    uint32_t sum = reduce(w, "add", power, 3, type);
    return binary(w, "divide", power, spread(w, sum, "0, 1, 2", w->scores), w->scores);
}

/* softmax(q k^T / sqrt width + mask) v, heads merged; `mask` SX_TRANSFORMER_NONE: none */
static uint32_t attend(writer *w, uint32_t q, uint32_t k, uint32_t v, uint32_t mask)
{
    char type[64];
    char call[160];
    uint32_t width = w->o->hidden / w->o->heads;
    (void)snprintf(call, sizeof(call),
                   "dot_general(%%%u, %%%u) {lhs_batch = [0, 1], rhs_batch = [0, 1], lhs_contract "
                   "= [3], rhs_contract = [3]}",
                   q, k);
    uint32_t scores = put(w, call, w->scores);
    scores = binary(w, "multiply", scores, constant(w, width == 16 ? 0.25 : 0.125, w->scores),
                    w->scores);
    if (mask != SX_TRANSFORMER_NONE) {
        scores = binary(w, "add", scores, spread(w, mask, "2, 3", w->scores), w->scores);
    }
    uint32_t share = softmax(w, scores);
    (void)snprintf(type, sizeof(type), "f32[batch, %u, %u, %u]", w->o->heads, w->o->seq, width);
    (void)snprintf(call, sizeof(call),
                   "dot_general(%%%u, %%%u) {lhs_batch = [0, 1], rhs_batch = [0, 1], lhs_contract "
                   "= [3], rhs_contract = [2]}",
                   share, v);
    uint32_t mixed = put(w, call, type);
    (void)snprintf(call, sizeof(call), "transpose(%%%u) {perm = [0, 2, 1, 3]}", mixed);
    (void)snprintf(type, sizeof(type), "f32[batch, %u, %u, %u]", w->o->seq, w->o->heads, width);
    return unary(w, "reshape", put(w, call, type), w->x);
}

static uint32_t attention(writer *w, uint32_t x, uint32_t context, uint32_t mask, const char *what)
{
    char name[4][16];
    static const char part[] = "qkvo";
    for (uint32_t i = 0; i < 4; i++) {
        (void)snprintf(name[i], sizeof(name[i]), "%s%c", what, part[i]);
    }
    uint32_t h = w->o->hidden;
    uint32_t q = split_heads(w, project(w, x, name[0], h, h));
    uint32_t k = split_heads(w, project(w, context, name[1], h, h));
    uint32_t v = split_heads(w, project(w, context, name[2], h, h));
    w->key = k;
    w->value = v;
    return project(w, attend(w, q, k, v, mask), name[3], h, h);
}

static uint32_t feed_forward(writer *w, uint32_t x)
{
    char wide[64];
    char vector[64];
    uint32_t ffn = w->layer == w->o->odd_layer ? 2 * w->o->ffn : w->o->ffn;
    (void)snprintf(wide, sizeof(wide), "f32[batch, %u, %u]", w->o->seq, ffn);
    (void)snprintf(vector, sizeof(vector), "f32[%u]", ffn);
    uint32_t up = project(w, x, "up", w->o->hidden, ffn);
    if (w->glu) {
        uint32_t gate = project(w, x, "gate", w->o->hidden, ffn);
        gate = binary(w, "multiply", gate, unary(w, "logistic", gate, wide), wide);
        up = binary(w, "multiply", gate, up, wide);
    } else {
        up = binary(w, "add", up, spread(w, weight(w, "up.b", vector), "2", wide), wide);
        uint32_t scaled = binary(w, "multiply", up, constant(w, 0.70710678118654752, wide), wide);
        uint32_t half = binary(w, "multiply", up, constant(w, 0.5, wide), wide);
        uint32_t bell = unary(w, "erf", scaled, wide);
        up = binary(w, "multiply", half, binary(w, "add", bell, constant(w, 1, wide), wide), wide);
    }
    w->tapped = w->layer == w->o->tapped ? up : w->tapped;
    return project(w, up, "down", ffn, w->o->hidden);
}

/* One residual block around `part` of the layer: 0 attention, 1 attention to the encoder, 2 feed forward. */
static uint32_t block(writer *w, uint32_t x, uint32_t part, uint32_t encoded, uint32_t mask)
{
    static const char *const name[] = {"n1", "n2", "n3"};
    uint32_t from = w->o->post_norm ? x : norm(w, x, name[part]);
    uint32_t change;
    if (part == 0) {
        change = attention(w, from, from, mask, "");
    } else if (part == 1) {
        change = attention(w, from, encoded, SX_TRANSFORMER_NONE, "c");
    } else {
        change = feed_forward(w, from);
    }
    uint32_t sum = binary(w, "add", x, change, w->x);
    return w->o->post_norm ? norm(w, sum, name[part]) : sum;
}

static uint32_t stack(writer *w, char letter, uint32_t layers, uint32_t x, uint32_t encoded,
                      uint32_t mask, uint32_t *cache)
{
    w->stack = letter;
    for (w->layer = 0; w->layer < layers; w->layer++) {
        w->glu = w->o->glu != (w->o->alternate && w->layer % 2 == 1);
        x = block(w, x, 0, encoded, mask);
        if (cache != NULL) {
            cache[2 * w->layer] = w->key;
            cache[2 * w->layer + 1] = w->value;
        }
        if (encoded != SX_TRANSFORMER_NONE) {
            x = block(w, x, 1, encoded, mask);
        }
        x = block(w, x, 2, encoded, mask);
    }
    return x;
}

static uint32_t embed(writer *w, char letter, const char *name)
{
    char type[64];
    char call[160];
    w->stack = letter;
    w->layer = 0;
    (void)snprintf(type, sizeof(type), "i32[batch, %u]", w->o->seq);
    uint32_t token = input(w, name, type);
    (void)snprintf(type, sizeof(type), "f32[%u, %u]", w->o->vocab, w->o->hidden);
    uint32_t table = weight(w, "embedding", type);
    (void)snprintf(call, sizeof(call), "gather(%%%u, %%%u) {axis = 0}", table, token);
    uint32_t found = put(w, call, w->x);
    (void)snprintf(type, sizeof(type), "f32[%u, %u]", w->o->seq, w->o->hidden);
    uint32_t position = weight(w, "position", type);
    return binary(w, "add", found, spread(w, position, "1, 2", w->x), w->x);
}

/* An image of 3 channels, cut into squares by a convolution, each a row of its own; before them a row
 * that is a weight. */
static uint32_t embed_patches(writer *w)
{
    char type[64];
    char call[160];
    uint32_t p = w->o->patch, h = w->o->hidden, side = 1;
    while ((side + 1) * (side + 1) < w->o->seq) {
        side++;
    }
    SX_ASSERT(p > 0 && side * side + 1 == w->o->seq);
    w->stack = 'd';
    w->layer = 0;
    (void)snprintf(type, sizeof(type), "f32[batch, 3, %u, %u]", side * p, side * p);
    uint32_t image = input(w, "image", type);
    (void)snprintf(type, sizeof(type), "f32[%u, 3, %u, %u]", h, p, p);
    (void)snprintf(call, sizeof(call),
                   "convolution(%%%u, %%%u) {stride = [%u, %u], low = [0, 0], high = [0, 0], "
                   "dilation = [1, 1], groups = 1}",
                   image, weight(w, "patches", type), p, p);
    (void)snprintf(type, sizeof(type), "f32[batch, %u, %u, %u]", h, side, side);
    uint32_t squares = put(w, call, type);
    (void)snprintf(type, sizeof(type), "f32[batch, %u, %u]", h, side * side);
    (void)snprintf(call, sizeof(call), "transpose(%%%u) {perm = [0, 2, 1]}",
                   unary(w, "reshape", squares, type));
    (void)snprintf(type, sizeof(type), "f32[batch, %u, %u]", side * side, h);
    uint32_t rows = put(w, call, type);
    (void)snprintf(type, sizeof(type), "f32[1, %u]", h);
    uint32_t token = weight(w, "class", type);
    (void)snprintf(type, sizeof(type), "f32[batch, 1, %u]", h);
    (void)snprintf(call, sizeof(call), "concatenate(%%%u, %%%u) {axis = 1}",
                   spread(w, token, "1, 2", type), rows);
    uint32_t all = put(w, call, w->x);
    (void)snprintf(type, sizeof(type), "f32[%u, %u]", w->o->seq, h);
    return binary(w, "add", all, spread(w, weight(w, "position", type), "1, 2", w->x), w->x);
}

/* The mean over all rows, and a head of `vocab` columns. */
static uint32_t classify(writer *w, uint32_t x)
{
    char row[64];
    char type[64];
    char call[160];
    (void)snprintf(row, sizeof(row), "f32[batch, %u]", w->o->hidden);
    uint32_t sum = reduce(w, "add", x, 1, row);
    uint32_t mean = binary(w, "divide", sum, constant(w, w->o->seq, row), row);
    (void)snprintf(type, sizeof(type), "f32[%u, %u]", w->o->hidden, w->o->vocab);
    (void)snprintf(call, sizeof(call),
                   "dot_general(%%%u, %%%u) {lhs_contract = [1], rhs_contract = [0]}", mean,
                   weight(w, "head", type));
    (void)snprintf(type, sizeof(type), "f32[batch, %u]", w->o->vocab);
    return put(w, call, type);
}

/* A single stack on values or on an image. */
static uint32_t plain_body(writer *w, uint32_t *cache)
{
    bool values = w->o->front == SX_TRANSFORMER_VALUES;
    SX_ASSERT(w->o->encoder_layers == 0 && !w->o->towers);
    uint32_t x = values ? input(w, "x", w->x) : embed_patches(w);
    x = stack(w, 'd', w->o->layers, x, SX_TRANSFORMER_NONE, SX_TRANSFORMER_NONE, cache);
    return values ? x : classify(w, norm(w, x, "last"));
}

static uint32_t make_mask(writer *w)
{
    char square[64];
    char index[64];
    char flag[64];
    uint32_t s = w->o->seq;
    (void)snprintf(square, sizeof(square), "f32[%u, %u]", s, s);
    (void)snprintf(index, sizeof(index), "i32[%u, %u]", s, s);
    (void)snprintf(flag, sizeof(flag), "bool[%u, %u]", s, s);
    if (!w->o->causal) {
        return input(w, "mask", square);
    }
    char call[160];
    uint32_t row = put(w, "iota {axis = 0}", index);
    uint32_t column = put(w, "iota {axis = 1}", index);
    (void)snprintf(call, sizeof(call), "compare(%%%u, %%%u) {direction = ge}", row, column);
    uint32_t seen = put(w, call, flag);
    uint32_t zero = constant(w, 0, square);
    uint32_t low = constant(w, -1e9, square);
    (void)snprintf(call, sizeof(call), "select(%%%u, %%%u, %%%u)", seen, zero, low);
    return put(w, call, square);
}

static uint32_t body(writer *w, uint32_t *cache)
{
    uint32_t mask = make_mask(w);
    uint32_t encoded = SX_TRANSFORMER_NONE;
    if (w->o->encoder_layers > 0) {
        encoded = embed(w, 'e', "source");
        encoded = stack(w, 'e', w->o->encoder_layers, encoded, SX_TRANSFORMER_NONE,
                        SX_TRANSFORMER_NONE, NULL);
        encoded = norm(w, encoded, "last");
    }
    uint32_t start = embed(w, 'd', "tokens");
    uint32_t x = stack(w, 'd', w->o->layers, start, encoded, mask, cache);
    if (w->o->towers) {
        uint32_t other = stack(w, 't', w->o->layers, start, encoded, mask, NULL);
        x = binary(w, "add", x, other, w->x);
    }
    w->stack = 'd';
    x = norm(w, x, "last");
    return project(w, x, "head", w->o->hidden, w->o->vocab);
}

void sx_transformer_print(const sx_transformer *options, sx_buf *text)
{
    uint32_t cache[2 * SX_TRANSFORMER_LAYERS_MAX];
    SX_ASSERT(options->layers > 0 && options->layers <= SX_TRANSFORMER_LAYERS_MAX);
    writer w = {.o = options, .text = text, .tapped = SX_TRANSFORMER_NONE};
    (void)snprintf(w.x, sizeof(w.x), "f32[batch, %u, %u]", options->seq, options->hidden);
    (void)snprintf(w.row, sizeof(w.row), "f32[batch, %u]", options->seq);
    (void)snprintf(w.scores, sizeof(w.scores), "f32[batch, %u, %u, %u]", options->heads,
                   options->seq, options->seq);
    sx_buf_put_text(text, "sx 1\ngraph \"transformer\" (batch in [1, 64]) {\n");
    uint32_t *kept = options->caches ? cache : NULL;
    bool tokens = options->front == SX_TRANSFORMER_TOKENS;
    uint32_t result = tokens ? body(&w, kept) : plain_body(&w, kept);
    sx_buf_print(text, "  return %%%u as \"logits\"", result);
    if (w.tapped != SX_TRANSFORMER_NONE) {
        sx_buf_print(text, ", %%%u as \"tapped\"", w.tapped);
    }
    for (uint32_t i = 0; options->caches && i < 2 * options->layers; i++) {
        sx_buf_print(text, ", %%%u as \"cache%u\"", cache[i], i);
    }
    sx_buf_put_text(text, "\n}\n");
}

sx_code sx_transformer_make(sx_ctx *cx, const sx_transformer *options, sx_graph **graph)
{
    sx_buf text;
    sx_buf_init(&text, TEXT_BYTES_MAX);
    sx_transformer_print(options, &text);
    sx_graph *parsed = NULL;
    sx_code code = sx_graph_parse(cx, sx_buf_span(&text), &parsed);
    code = code == SX_OK ? sx_graph_check(cx, parsed) : code;
    code = code == SX_OK ? sx_graph_canon(cx, parsed, graph) : code;
    sx_buf_fini(&text);
    return code;
}
