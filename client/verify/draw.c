#include "client/verify/draw.h"

#include "client/runtime/pages.h"

#include <math.h>
#include <string.h>

#include "core/base/fast.h"
#include "core/base/hash.h"
#include "core/ir/num.h"

/* ---- what parameters are used for ---- */
#define NONE UINT32_MAX

typedef struct {
    sx_ctx *cx;
    const sx_graph *graph;
    sxv_recipe *recipe;
    /* [node] number of the parameter it shows, through views and conversions; NONE */
    uint32_t *viewed;
    uint32_t *moved; /* the same through operations with constants, too */
    bool *constant;  /* [node] no parameter is in it */
} survey;

static bool shows_operand(sx_op op)
{
    return sx_op_info_of(op)->op_class == SX_OPCLASS_VIEW || op == SX_OP_CONVERT;
}

/* An operation with one operand that is no constant: its number, or NONE. */
static uint32_t only_operand(const survey *s, const sx_node *node)
{
    uint32_t found = NONE;
    for (uint32_t k = 0; k < node->input_count; k++) {
        uint32_t from = sx_graph_input(s->graph, node, k).i;
        if (!s->constant[from]) {
            if (found != NONE) {
                return NONE;
            }
            found = from;
        }
    }
    return found;
}

static void follow(survey *s, uint32_t n)
{
    const sx_node *node = &s->graph->node[n];
    s->constant[n] = true;
    for (uint32_t k = 0; k < node->input_count; k++) {
        s->constant[n] = s->constant[n] && s->constant[sx_graph_input(s->graph, node, k).i];
    }
    uint32_t first = node->input_count > 0 ? sx_graph_input(s->graph, node, 0).i : NONE;
    s->viewed[n] = shows_operand(node->op) ? s->viewed[first] : NONE;
    bool keeps = shows_operand(node->op) || node->op == SX_OP_ADD || node->op == SX_OP_MULTIPLY ||
                 node->op == SX_OP_MAXIMUM || node->op == SX_OP_DIVIDE;
    uint32_t only = keeps ? only_operand(s, node) : NONE;
    s->moved[n] = only != NONE ? s->moved[only] : NONE;
}

/* Away from zero; positive if `either_sign` is not said, here or elsewhere. */
static void keep_from_zero(survey *s, sx_node_id of, bool either_sign)
{
    uint32_t parameter = s->moved[of.i];
    if (parameter != NONE) {
        sxv_recipe *recipe = &s->recipe[parameter];
        recipe->either_sign = either_sign && (recipe->low < 0 || recipe->either_sign);
        recipe->low = 0.5;
        recipe->width = 1;
    }
}

/* Is the exponent of a power a whole number? Then any base will do. */
static bool is_whole(const survey *s, sx_node_id of)
{
    const sx_node *node = sx_graph_node(s->graph, of);
    while (sx_op_info_of(node->op)->op_class == SX_OPCLASS_VIEW || node->op == SX_OP_CONVERT) {
        node = sx_graph_node(s->graph, sx_graph_input(s->graph, node, 0));
    }
    double value;
    const sx_attr *attr = sx_graph_attr(s->graph, node);
    return node->op == SX_OP_CONSTANT && attr->data.len == sx_dtype_bytes(node->type.dtype) &&
           sx_element_value(node->type.dtype, attr->data.ptr, &value) && value == floor(value);
}

/* The terms of a sum: the right operand is scaled if it is a parameter, else the left one. */
static void scale_terms(survey *s, const sx_node *node, double terms)
{
    uint32_t left = s->viewed[sx_graph_input(s->graph, node, 0).i];
    uint32_t right = s->viewed[sx_graph_input(s->graph, node, 1).i];
    uint32_t scaled = right != NONE ? right : left;
    double bound = sqrt(3 / terms);
    if (scaled != NONE && s->recipe[scaled].low < 0 && s->recipe[scaled].width > 2 * bound) {
        s->recipe[scaled].low = -bound;
        s->recipe[scaled].width = 2 * bound;
    }
}

/* Starts reach one place behind the last one where the box fits. */
static void note_starts(survey *s, const sx_node *node, const sx_attr *attr)
{
    bool updates = node->op == SX_OP_DYNAMIC_UPDATE_SLICE;
    uint32_t first = updates ? 2 : 1;
    const sx_type *x = &s->graph->node[sx_graph_input(s->graph, node, 0).i].type;
    const sx_type *box =
        updates ? &s->graph->node[sx_graph_input(s->graph, node, 1).i].type : &node->type;
    for (uint32_t k = first; k < node->input_count; k++) {
        uint32_t start = s->viewed[sx_graph_input(s->graph, node, k).i];
        int64_t d = attr->dims.v[k - first];
        if (start != NONE) {
            s->recipe[start].integers = (uint64_t)(x->dim[d].scale - box->dim[d].scale + 2);
        }
    }
}

static void note_use(survey *s, const sx_node *node)
{
    const sx_attr *attr = sx_graph_attr(s->graph, node);
    double terms = 1;
    switch ((int)node->op) {
    case SX_OP_SQRT:
    case SX_OP_RSQRT:
    case SX_OP_LOG: keep_from_zero(s, sx_graph_input(s->graph, node, 0), false); break;
    case SX_OP_POWER:
        if (!is_whole(s, sx_graph_input(s->graph, node, 1))) {
            keep_from_zero(s, sx_graph_input(s->graph, node, 0), false);
        }
        break;
    case SX_OP_DIVIDE:
    case SX_OP_REMAINDER: keep_from_zero(s, sx_graph_input(s->graph, node, 1), true); break;
    case SX_OP_DOT_GENERAL:
        for (uint32_t k = 0; k < attr->lhs_contract.count; k++) {
            sx_node_id left = sx_graph_input(s->graph, node, 0);
            terms *= (double)s->graph->node[left.i].type.dim[attr->lhs_contract.v[k]].scale;
        }
        scale_terms(s, node, terms);
        break;
    case SX_OP_CONVOLUTION: {
        const sx_type *weight = &s->graph->node[sx_graph_input(s->graph, node, 1).i].type;
        scale_terms(s, node, (double)sx_tensor_elements(weight) / (double)weight->dim[0].scale);
        break;
    }
    case SX_OP_DYNAMIC_SLICE:
    case SX_OP_DYNAMIC_UPDATE_SLICE: note_starts(s, node, attr); break;
    case SX_OP_SCATTER:
    case SX_OP_GATHER: {
        uint32_t index = s->viewed[sx_graph_input(s->graph, node, 1).i];
        const sx_type *from = &s->graph->node[sx_graph_input(s->graph, node, 0).i].type;
        if (index != NONE) {
            uint64_t extent = (uint64_t)from->dim[attr->axis].scale;
            bool drops = node->op == SX_OP_SCATTER; /* some updates name no row */
            s->recipe[index].integers = extent + (drops ? extent / 8 + 1 : 0);
        }
        break;
    }
    }
}

sx_code sxv_draw_recipes(sx_ctx *cx, const sx_graph *graph, sxv_recipe **recipe, uint32_t *count)
{
    survey s = {.cx = cx};
    SX_TRY(sx_graph_expand(cx, graph, &s.graph));
    size_t nodes = (size_t)s.graph->node_count + 1;
    s.recipe = SX_NEW_ARRAY(cx, sxv_recipe, nodes);
    s.viewed = SX_NEW_ARRAY(cx, uint32_t, nodes);
    s.moved = SX_NEW_ARRAY(cx, uint32_t, nodes);
    s.constant = SX_NEW_ARRAY(cx, bool, nodes);
    if (s.recipe == NULL || s.viewed == NULL || s.moved == NULL || s.constant == NULL) {
        return cx->error.code;
    }
    *count = 0;
    for (uint32_t n = 0; n < s.graph->node_count; n++) {
        const sx_node *node = &s.graph->node[n];
        if (node->op == SX_OP_PARAMETER) {
            const sx_attr *attr = sx_graph_attr(s.graph, node);
            s.recipe[*count] =
                (sxv_recipe){.name = attr->name,
                             .low = -1,
                             .width = 2,
                             .integers = node->type.dtype == SX_BOOL ? UINT64_C(2) : UINT64_C(16)};
            s.viewed[n] = s.moved[n] = (*count)++;
        } else {
            follow(&s, n);
        }
    }
    for (uint32_t n = 0; n < s.graph->node_count; n++) {
        note_use(&s, &s.graph->node[n]);
    }
    *recipe = s.recipe;
    return SX_OK;
}

sxv_recipe sxv_recipe_of(const sxv_recipe *recipe, uint32_t count, sx_span name)
{
    for (uint32_t k = 0; k < count; k++) {
        if (sx_span_equal(recipe[k].name, name)) {
            return recipe[k];
        }
    }
    return (sxv_recipe){.name = name, .low = -1, .width = 2, .integers = 2};
}

/* ---- elements ---- */
typedef struct {
    const sxv_recipe *recipe;
    sx_dtype dtype;
    uint32_t seed;
    int64_t elements;
    void *memory;
} filling;

/* The finisher of MurmurHash3: each element has a number of its own, so any thread can make any of them. */
static inline uint32_t mixed(uint32_t x)
{
    x = (x ^ x >> 16) * UINT32_C(0x85EBCA6B);
    x = (x ^ x >> 13) * UINT32_C(0xC2B2AE35);
    return x ^ x >> 16;
}

/* In [0, 1) with 24 bits. */
static inline float fraction(uint32_t seed, int64_t i)
{
    return (float)(int32_t)(mixed((uint32_t)i * UINT32_C(0x9E3779B1) + seed) >> 8) * 0x1p-24F;
}

static inline float element(const filling *f, int64_t i)
{
    float value = (float)f->recipe->low + (float)f->recipe->width * fraction(f->seed, i);
    bool negated = f->recipe->either_sign && (mixed(f->seed ^ (uint32_t)i) & 1) != 0;
    return negated ? -value : value;
}

/* Numbers from 2^-n to 2^n are normal ones of the type. */
static uint32_t exponent_max(sx_dtype dtype)
{
    switch ((int)dtype) {
    case SX_F16:
    case SX_F8E5M2: return 14;
    case SX_F8E4M3: return 6;
    default: return 126; /* of f64, too: what is made of it may be an f32 */
    }
}

/* The magnitude of a run of elements. */
static double magnitude(const filling *f, uint32_t part)
{
    uint32_t most = exponent_max(f->dtype);
    uint32_t drawn = mixed(f->seed + (part + 1) * UINT32_C(0x9E3779B1)) % (2 * most + 1);
    return ldexp(1, (int)drawn - (int)most);
}

/* Elements of f32, times `scale`. */
SX_LEVELS static void fill_f32(const filling *f, double scale, int64_t first, int64_t last)
{
    float *to = f->memory;
    filling own = *f; /* what the loop reads cannot be what it writes */
    sxv_recipe recipe = *f->recipe;
    own.recipe = &recipe;
    if (scale == 1 && !recipe.either_sign) {
        for (int64_t i = first; i < last; i++) {
            to[i] = (float)recipe.low + (float)recipe.width * fraction(own.seed, i);
        }
        return;
    }
    for (int64_t i = first; i < last; i++) {
        to[i] = (float)((double)element(&own, i) * scale);
    }
}

/* Elements of one magnitude. */
static void fill_part(const filling *f, double scale, int64_t first, int64_t last)
{
    if (f->dtype == SX_F32) {
        fill_f32(f, scale, first, last);
        return;
    }
    for (int64_t i = first; i < last; i++) {
        double value = (double)element(f, i) * scale;
        uint64_t bits = 0;
        if (sx_dtype_class_of(f->dtype) == SX_CLASS_FLOAT) {
            bits = sx_num_encode(f->dtype, value);
        } else {
            uint64_t bound = f->recipe->integers;
            bits = (uint64_t)((double)fraction(f->seed, i) * (double)bound);
            bits &= (uint64_t)sx_num_int_max(f->dtype);
        }
        sx_num_store(f->dtype, f->memory, (size_t)i, bits);
    }
}

static void fill(void *self, uint32_t thread, int64_t first, int64_t last)
{
    const filling *f = self;
    int64_t bytes = sx_dtype_bytes(f->dtype);
    int64_t piece = (int64_t)SXR_TOUCH_BYTES / bytes;
    (void)thread;
    while (first < last) {
        int64_t part = f->recipe->wide ? first * SXV_DRAW_PARTS / f->elements : 0;
        int64_t end =
            f->recipe->wide ? sx_ceil_div_i64((part + 1) * f->elements, SXV_DRAW_PARTS) : last;
        end = sx_min_i64(sx_min_i64(end, last), first + piece);
        sxr_pages_touch((uint8_t *)f->memory + first * bytes, (size_t)((end - first) * bytes));
        fill_part(f, f->recipe->wide ? magnitude(f, (uint32_t)part) : 1, first, end);
        first = end;
    }
}

void sxv_draw(sxr_pool *pool, const sxv_recipe *recipe, sx_dtype dtype, int64_t elements,
              uint64_t seed, void *memory)
{
    SX_ASSERT(elements >= 0 && dtype < SX_DTYPE_COUNT && (memory != NULL || elements == 0));
    uint64_t own = sx_hash64(recipe->name, seed);
    filling f = {recipe, dtype, (uint32_t)own ^ (uint32_t)(own >> 32), elements, memory};
    sxr_pool_run(pool, fill, &f, elements);
}
