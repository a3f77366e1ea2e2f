#include "tests/lib/gen_vision.h"

#include <stdio.h>

typedef struct {
    sx_buf *text;
    uint32_t next; /* number of the next value */
} writer;

/* A value and what is not known from the image's channels: it is [batch, channels, size, size]. */
typedef struct {
    uint32_t id, channels, size;
} image;

sx_resnet sx_resnet50(void)
{
    return (sx_resnet){.size = 224, .width = 64, .blocks = {3, 4, 6, 3}, .classes = 1000};
}

static void put_type(writer *w, const image *x)
{
    sx_buf_print(w->text, " : f32[batch, %u, %u, %u]\n", x->channels, x->size, x->size);
}

static image unary(writer *w, const char *op, image x)
{
    sx_buf_print(w->text, "  %%%u = %s(%%%u)", w->next, op, x.id);
    x.id = w->next++;
    put_type(w, &x);
    return x;
}

static image add(writer *w, image x, uint32_t other)
{
    sx_buf_print(w->text, "  %%%u = add(%%%u, %%%u)", w->next, x.id, other);
    x.id = w->next++;
    put_type(w, &x);
    return x;
}

/* A convolution by a square window, "same" padding, and its bias. */
static image convolve(writer *w, image x, uint32_t channels, uint32_t window, uint32_t stride)
{
    uint32_t around = window / 2, kernel = w->next++, bias = w->next++;
    sx_buf_print(w->text, "  %%%u = parameter {name = \"w%u\", weight = 1} : f32[%u, %u, %u, %u]\n",
                 kernel, kernel, channels, x.channels, window, window);
    sx_buf_print(w->text, "  %%%u = parameter {name = \"b%u\", weight = 1} : f32[%u]\n", bias, bias,
                 channels);
    sx_buf_print(w->text,
                 "  %%%u = convolution(%%%u, %%%u) {stride = [%u, %u], low = [%u, %u], high = [%u, "
                 "%u], dilation = [1, 1], groups = 1}",
                 w->next, x.id, kernel, stride, stride, around, around, around, around);
    x = (image){w->next++, channels, (x.size + 2 * around - window) / stride + 1};
    put_type(w, &x);
    sx_buf_print(w->text, "  %%%u = broadcast_in_dim(%%%u) {dims = [1]}", w->next, bias);
    put_type(w, &x);
    return add(w, x, w->next++);
}

static image bottleneck(writer *w, image x, uint32_t middle, uint32_t stride, bool first)
{
    image y = unary(w, "relu", convolve(w, x, middle, 1, 1));
    y = unary(w, "relu", convolve(w, y, middle, 3, stride));
    y = convolve(w, y, 4 * middle, 1, 1);
    x = first ? convolve(w, x, 4 * middle, 1, stride) : x;
    return unary(w, "relu", add(w, y, x.id));
}

static image largest(writer *w, image x)
{
    sx_buf_print(w->text,
                 "  %%%u = reduce_window(%%%u) {stride = [1, 1, 2, 2], low = [0, 0, 1, 1], high = "
                 "[0, 0, 1, 1], window = [1, 1, 3, 3], dilation = [1, 1, 1, 1], reducer = maximum}",
                 w->next, x.id);
    x = (image){w->next++, x.channels, (x.size - 1) / 2 + 1};
    put_type(w, &x);
    return x;
}

/* The mean over the image, and a product with a bias. */
static uint32_t classify(writer *w, image x, uint32_t classes)
{
    uint32_t n = w->next, c = x.channels;
    w->next += 8;
    sx_buf_print(w->text, "  %%%u = reduce(%%%u) {dims = [2, 3], reducer = add} : f32[batch, %u]\n",
                 n, x.id, c);
    sx_buf_print(w->text, "  %%%u = constant {data = %u} : f32[batch, %u]\n", n + 1,
                 x.size * x.size, c);
    sx_buf_print(w->text, "  %%%u = divide(%%%u, %%%u) : f32[batch, %u]\n", n + 2, n, n + 1, c);
    sx_buf_print(w->text, "  %%%u = parameter {name = \"fc.w\", weight = 1} : f32[%u, %u]\n", n + 3,
                 c, classes);
    sx_buf_print(w->text, "  %%%u = parameter {name = \"fc.b\", weight = 1} : f32[%u]\n", n + 4,
                 classes);
    sx_buf_print(w->text,
                 "  %%%u = dot_general(%%%u, %%%u) {lhs_contract = [1], rhs_contract = [0]} : "
                 "f32[batch, %u]\n",
                 n + 5, n + 2, n + 3, classes);
    sx_buf_print(w->text, "  %%%u = broadcast_in_dim(%%%u) {dims = [1]} : f32[batch, %u]\n", n + 6,
                 n + 4, classes);
    sx_buf_print(w->text, "  %%%u = add(%%%u, %%%u) : f32[batch, %u]\n", n + 7, n + 5, n + 6,
                 classes);
    return n + 7;
}

void sx_resnet_print(const sx_resnet *options, sx_buf *text)
{
    writer w = {.text = text, .next = 1};
    image x = {0, 3, options->size};
    SX_ASSERT(options->size >= 32 && options->size % 32 == 0);
    sx_buf_put_text(text, "sx 1\ngraph \"resnet\" (batch in [1, 64]) {\n");
    sx_buf_put_text(text, "  %0 = parameter {name = \"image\", weight = 0}");
    put_type(&w, &x);
    x = largest(&w, unary(&w, "relu", convolve(&w, x, options->width, 7, 2)));
    for (uint32_t stage = 0; stage < SX_COUNT(options->blocks); stage++) {
        for (uint32_t block = 0; block < options->blocks[stage]; block++) {
            uint32_t stride = stage > 0 && block == 0 ? 2 : 1;
            x = bottleneck(&w, x, options->width << stage, stride, block == 0);
        }
    }
    uint32_t result = classify(&w, x, options->classes);
    sx_buf_print(text, "  return %%%u as \"y\"\n}\n", result);
}
