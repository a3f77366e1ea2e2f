#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "client/import/onnx_import.h"

static const sx_ox_entry entry_table[] = {
#define SX_ONNX_OP(name, since, handler, input_min, input_max, arg) \
    {#name, since, handler, input_min, input_max, arg},
#include "client/import/onnx_ops.def"
#undef SX_ONNX_OP
};

const sx_ox_entry *sx_ox_find(sx_span name, int64_t opset, bool *known)
{
    const sx_ox_entry *best = NULL;
    *known = false;
    for (uint32_t k = 0; k < SX_COUNT(entry_table); k++) {
        if (sx_span_is(name, entry_table[k].name)) {
            *known = true;
            if (entry_table[k].since <= opset &&
                (best == NULL || best->since < entry_table[k].since)) {
                best = &entry_table[k];
            }
        }
    }
    return best;
}

const sx_weight *sx_weights_find(const sx_weights *weights, sx_span name)
{
    SX_ASSERT(weights->count <= weights->capacity);
    for (uint32_t k = 0; k < weights->count; k++) {
        if (sx_span_equal(weights->weight[k].name, name)) {
            return &weights->weight[k];
        }
    }
    return NULL;
}

/* ---- errors ---- */

/* Puts `prefix` in front of the text of the failure. */
static void prefix_error(sx_ctx *cx, const char *prefix)
{
    char text[SX_ERROR_TEXT_MAX];
    (void)snprintf(text, sizeof(text), "%s", cx->error.text);
    (void)snprintf(cx->error.text, sizeof(cx->error.text), "%.200s%.1700s", prefix, text);
}

static sx_code fail_at_node(sx_ox *im, sx_code code)
{
    char prefix[200];
    const sx_onnx_node *node = im->node;
    (void)snprintf(prefix, sizeof(prefix), "node %u '%.*s' (%.*s, opset %lld): ", im->node_index,
                   (int)sx_min_i64((int64_t)node->name.len, 80), (const char *)node->name.ptr,
                   (int)sx_min_i64((int64_t)node->op_type.len, 40), (const char *)node->op_type.ptr,
                   (long long)im->model->opset);
    prefix_error(im->cx, prefix);
    return code;
}

/* ---- the interface of the graph ---- */

/* Symbols print bare: other bytes than letters, digits and '_' become '_', and a digit does not lead. */
static sx_code symbol_name(sx_ox *im, sx_span from, sx_span *to)
{
    char *text = sx_alloc(im->cx, from.len + 2);
    if (text == NULL) {
        return im->code = im->cx->error.code;
    }
    size_t len = 0;
    if (from.len == 0 || (from.ptr[0] >= '0' && from.ptr[0] <= '9')) {
        text[len++] = '_';
    }
    for (size_t k = 0; k < from.len; k++) {
        uint8_t c = from.ptr[k];
        bool keep = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        text[len++] = keep ? (char)c : '_';
    }
    *to = (sx_span){(const uint8_t *)text, len};
    return SX_OK;
}

static uint32_t find_symbol(const sx_ox *im, sx_span name)
{
    for (uint32_t k = 0; k < im->graph->symbol_count; k++) {
        if (sx_span_equal(im->graph->symbol[k].name, name)) {
            return k;
        }
    }
    return SX_NO_SYMBOL;
}

/* A dimension with a name, equal names giving one symbol; `fresh`: without a name, a symbol of its own. */
static sx_code symbol_of(sx_ox *im, sx_span name, bool fresh, sx_dim *dim)
{
    sx_span clean;
    SX_TRY(symbol_name(im, name, &clean));
    int64_t low = 1;
    int64_t high = im->symbol_high;
    for (uint32_t k = 0; im->options != NULL && k < im->options->interval_count; k++) {
        const sx_onnx_interval *interval = &im->options->interval[k];
        if (sx_span_equal(interval->name, name) || sx_span_equal(interval->name, clean)) {
            low = interval->low;
            high = interval->high;
        }
    }
    dim->scale = 1;
    dim->symbol = find_symbol(im, clean);
    if (dim->symbol != SX_NO_SYMBOL && !fresh) {
        return SX_OK;
    }
    if (dim->symbol != SX_NO_SYMBOL) {
        return SX_OX_FAIL(im, SX_INPUT, "two dimensions of the name '%.*s'", (int)clean.len,
                          (const char *)clean.ptr);
    }
    return im->code = sx_graph_add_symbol(im->cx, im->graph, clean, low, high, &dim->symbol);
}

/* The next word of an expression: a name or a number, which *name is; what is behind it stays in `rest`. */
static bool take_word(sx_span *rest, sx_span *name)
{
    size_t len = 0;
    while (len < rest->len && (isalnum(rest->ptr[len]) || rest->ptr[len] == '_')) {
        len++;
    }
    *name = (sx_span){rest->ptr, len};
    *rest = (sx_span){rest->ptr + len, rest->len - len};
    return len > 0;
}

static bool take_text(sx_span *rest, const char *text)
{
    size_t len = strlen(text);
    bool found = rest->len >= len && memcmp(rest->ptr, text, len) == 0;
    *rest = found ? (sx_span){rest->ptr + len, rest->len - len} : *rest;
    return found;
}

static bool is_number(sx_span word)
{
    bool digits = word.len > 0 && word.len <= 12;
    for (size_t k = 0; k < word.len && digits; k++) {
        digits = isdigit(word.ptr[k]) != 0;
    }
    return digits;
}

/* 2*batch*seq */
static bool take_product(sx_ox *im, sx_span *rest, sx_polynomial *product)
{
    bool more = true;
    (void)sx_polynomial_of(NULL, sx_dim_of(1), product);
    while (more) {
        sx_span word;
        sx_dim dim = sx_dim_of(0);
        sx_polynomial factor;
        if (!take_word(rest, &word) || word.len > SX_NAME_MAX) {
            return false;
        }
        for (size_t k = 0; k < word.len && is_number(word); k++) {
            dim.scale = dim.scale * 10 + (word.ptr[k] - '0');
        }
        if ((!is_number(word) && symbol_of(im, word, false, &dim) != SX_OK) ||
            !sx_polynomial_of(im->graph->symbol, dim, &factor) ||
            !sx_polynomial_multiply(product, &factor, product)) {
            return false;
        }
        more = take_text(rest, "*");
    }
    return true;
}

/* A name that frameworks made of others: "past + 1", "batch*seq", with blanks around + and -, so that what merely has
 * such a letter in it stays a name. Checked before a symbol is declared for a part of it. */
static bool is_sum(sx_span name)
{
    bool sum = false, word = false;
    while (name.len > 0) {
        sx_span part;
        if (word) {
            bool sign = take_text(&name, " + ") || take_text(&name, " - ") || take_text(&name, "*");
            if (!sign) {
                return false;
            }
            sum = true;
        }
        word = take_word(&name, &part) && (is_number(part) || !isdigit(part.ptr[0]));
        if (!word) {
            return false;
        }
    }
    return sum && word;
}

static bool sum_of(sx_ox *im, sx_span name, sx_dim *dim)
{
    sx_polynomial sum = {0};
    int64_t sign = 1;
    if (!is_sum(name)) {
        return false;
    }
    while (sign != 0) {
        sx_polynomial product;
        if (!take_product(im, &name, &product) || !sx_polynomial_add(&sum, &product, sign)) {
            return false;
        }
        sign = take_text(&name, " + ") ? 1 : take_text(&name, " - ") ? -1 : 0;
    }
    return sx_ox_extent(im, &sum, dim) && dim->scale > 0;
}

static sx_code input_dim(sx_ox *im, const sx_onnx_value_info *info, uint32_t k, sx_dim *dim)
{
    const sx_onnx_dim *source = &info->dim[k];
    if (source->kind == SX_ONNX_DIM_NAME) {
        bool sum = sum_of(im, source->name, dim);
        return sum || im->code != SX_OK ? im->code : symbol_of(im, source->name, false, dim);
    }
    if (source->kind == SX_ONNX_DIM_UNKNOWN) {
        char text[32];
        (void)snprintf(text, sizeof(text), "dim%u", im->anonymous_count++);
        char *copy = sx_alloc_text(im->cx, sx_span_of(text));
        return copy == NULL ? (im->code = im->cx->error.code)
                            : symbol_of(im, sx_span_of(copy), true, dim);
    }
    if (source->value < 0 || source->value > SX_EXTENT_MAX) {
        sx_code code = source->value < 0 ? SX_INPUT : SX_LIMIT;
        return SX_OX_FAIL(im, code, "input '%.*s': axis %u has extent %lld, 0 to %lld allowed",
                          (int)info->name.len, (const char *)info->name.ptr, k,
                          (long long)source->value, (long long)SX_EXTENT_MAX);
    }
    *dim = sx_dim_of(source->value);
    return SX_OK;
}

static sx_code input_type(sx_ox *im, const sx_onnx_value_info *info, sx_type *type)
{
    *type = (sx_type){.rank = info->rank};
    if (info->kind != SX_ONNX_TYPE_TENSOR) {
        return SX_OX_FAIL(im, SX_UNIMPLEMENTED, "input '%.*s' is of kind %s, a tensor is wanted",
                          (int)info->name.len, (const char *)info->name.ptr,
                          sx_onnx_type_kind_name(info->kind));
    }
    if (!info->has_shape) {
        return SX_OX_FAIL(im, SX_UNIMPLEMENTED, "input '%.*s' has no shape", (int)info->name.len,
                          (const char *)info->name.ptr);
    }
    if (sx_ox_dtype(im, info->data_type, &type->dtype) != SX_OK) {
        char prefix[200];
        (void)snprintf(prefix, sizeof(prefix),
                       "input '%.*s': ", (int)sx_min_i64((int64_t)info->name.len, 150),
                       (const char *)info->name.ptr);
        prefix_error(im->cx, prefix);
        return im->code;
    }
    for (uint32_t k = 0; k < info->rank; k++) {
        SX_TRY(input_dim(im, info, k, &type->dim[k]));
    }
    return SX_OK;
}

static const sx_onnx_fixed *fixed_of(const sx_ox *im, sx_span name)
{
    for (uint32_t k = 0; im->options != NULL && k < im->options->fixed_count; k++) {
        if (sx_span_equal(im->options->fixed[k].name, name)) {
            return &im->options->fixed[k];
        }
    }
    return NULL;
}

/* An input whose value the caller gave; its extents may be 0 then. */
static sx_code add_fixed(sx_ox *im, const sx_onnx_value_info *info, const sx_onnx_fixed *fixed)
{
    sx_ox_value value = {.name = info->name};
    sx_type type = {.rank = info->rank};
    bool is_static = info->kind == SX_ONNX_TYPE_TENSOR && info->has_shape;
    for (uint32_t k = 0; k < info->rank; k++) {
        is_static &= info->dim[k].kind == SX_ONNX_DIM_VALUE && info->dim[k].value >= 0;
        type.dim[k] = sx_dim_of(info->dim[k].value);
    }
    if (!is_static) {
        return SX_OX_FAIL(im, SX_INPUT, "input '%.*s' is fixed, its shape is not constant",
                          (int)info->name.len, (const char *)info->name.ptr);
    }
    SX_TRY(sx_ox_dtype(im, info->data_type, &type.dtype));
    SX_TRY(sx_ox_value_of_bytes(im, &type, fixed->bytes, &value));
    return sx_ox_declare(im, &value);
}

static sx_code add_inputs(sx_ox *im)
{
    const sx_onnx_graph *graph = &im->model->graph;
    for (uint32_t k = 0; k < graph->input_count; k++) {
        const sx_onnx_value_info *info = &graph->input[k];
        const sx_ox_value *earlier = sx_ox_lookup(im, info->name);
        if (earlier != NULL && !earlier->has_node && fixed_of(im, info->name) == NULL) {
            continue; /* the initializer is the default value of the input */
        }
        const sx_onnx_fixed *fixed = fixed_of(im, info->name);
        if (fixed != NULL) {
            SX_TRY(add_fixed(im, info, fixed));
            continue;
        }
        sx_ox_value value = {.name = info->name, .has_node = true};
        SX_TRY(input_type(im, info, &value.type));
        sx_attr attr = {.present = SX_A(name) | SX_A(weight) | SX_A(type),
                        .name = info->name,
                        .type = value.type};
        value.node = sx_ox_add(im, SX_OP_PARAMETER, &attr, NULL, 0);
        SX_TRY(im->code);
        SX_TRY(sx_ox_declare(im, &value));
    }
    return SX_OK;
}

/* Those of a subgraph are constants where they are small: siblings may have the same names. */
static sx_code add_initializers(sx_ox *im, const sx_onnx_graph *graph)
{
    if (graph->sparse_initializer_count > 0) {
        return SX_OX_FAIL(im, SX_UNIMPLEMENTED, "%u sparse initializers",
                          graph->sparse_initializer_count);
    }
    for (uint32_t k = 0; k < graph->initializer_count; k++) {
        sx_ox_value value;
        sx_span name = graph->initializer[k].name;
        if (sx_ox_value_of_tensor(im, &graph->initializer[k], name, im->depth == 0, &value) !=
            SX_OK) {
            char prefix[200];
            (void)snprintf(prefix, sizeof(prefix), "initializer %u '%.*s': ", k,
                           (int)sx_min_i64((int64_t)name.len, 150), (const char *)name.ptr);
            prefix_error(im->cx, prefix);
            return im->cx->error.code;
        }
        SX_TRY(sx_ox_declare(im, &value));
    }
    return SX_OK;
}

/* ---- nodes ---- */

static sx_code resolve_inputs(sx_ox *im)
{
    const sx_onnx_node *node = im->node;
    uint32_t count = node->input_count;
    while (count > 0 && node->input[count - 1].len == 0) {
        count--;
    }
    if (count < im->entry->input_min || count > im->entry->input_max) {
        return SX_OX_FAIL(im, SX_INPUT, "%u inputs, %u to %u wanted", count, im->entry->input_min,
                          im->entry->input_max);
    }
    SX_ASSERT(im->entry->input_max <= SX_OX_INPUTS_MAX);
    im->input_count = count;
    for (uint32_t k = 0; k < count; k++) {
        sx_span name = node->input[k];
        im->input[k] = name.len == 0 ? NULL : sx_ox_lookup(im, name);
        if (name.len == 0 && k < im->entry->input_min) {
            return SX_OX_FAIL(im, SX_INPUT, "input %u is left out", k);
        }
        if (name.len > 0 && im->input[k] == NULL) {
            return SX_OX_FAIL(im, SX_INPUT,
                              "input '%.*s' is made by no earlier node (a cycle or a wrong order)",
                              (int)name.len, (const char *)name.ptr);
        }
    }
    return SX_OK;
}

static sx_code find_handler(sx_ox *im)
{
    const sx_onnx_node *node = im->node;
    if (node->domain.len > 0 && !sx_span_is(node->domain, "ai.onnx")) {
        return SX_OX_FAIL(im, SX_UNIMPLEMENTED, "operator of the domain '%.*s'",
                          (int)node->domain.len, (const char *)node->domain.ptr);
    }
    bool known;
    im->entry = sx_ox_find(node->op_type, im->model->opset, &known);
    if (im->entry == NULL) {
        return SX_OX_FAIL(im, SX_UNIMPLEMENTED, "operator %.*s is not supported%s",
                          (int)node->op_type.len, (const char *)node->op_type.ptr,
                          known ? " at this opset" : "");
    }
    for (uint32_t k = 0; k < node->attr_count; k++) {
        const sx_onnx_attr *attr = &node->attr[k];
        sx_ox_handler handler = im->entry->handler;
        bool wanted = attr->type == SX_ONNX_ATTR_GRAPH &&
                      (handler == sx_ox_if || handler == sx_ox_scan || handler == sx_ox_loop);
        if (attr->is_reference || (attr->type == SX_ONNX_ATTR_GRAPH && !wanted) ||
            attr->type == SX_ONNX_ATTR_GRAPHS) {
            return SX_OX_FAIL(im, SX_UNIMPLEMENTED, "attribute '%.*s' is a %s", (int)attr->name.len,
                              (const char *)attr->name.ptr,
                              attr->is_reference ? "reference" : "subgraph");
        }
    }
    return SX_OK;
}

static sx_code import_node(sx_ox *im)
{
    SX_TRY(sx_spend(im->cx, 1));
    SX_TRY(find_handler(im));
    SX_TRY(resolve_inputs(im));
    im->attr_read = 0;
    SX_TRY(im->entry->handler(im));
    SX_TRY(im->code);
    for (uint32_t k = 0; k < im->node->attr_count; k++) {
        if ((im->attr_read >> k & 1) == 0) {
            return SX_OX_FAIL(im, SX_UNIMPLEMENTED, "attribute '%.*s' is not supported",
                              (int)im->node->attr[k].name.len,
                              (const char *)im->node->attr[k].name.ptr);
        }
    }
    for (uint32_t k = 0; k < im->node->output_count; k++) {
        if (sx_ox_wants(im, k) && sx_ox_lookup(im, im->node->output[k]) == NULL) {
            return SX_OX_FAIL(im, SX_UNIMPLEMENTED, "output %u '%.*s' is not supported", k,
                              (int)im->node->output[k].len, (const char *)im->node->output[k].ptr);
        }
    }
    return SX_OK;
}

/* Nodes of the graph from `first` on were made for this node of the model. */
static sx_code set_origins(sx_ox *im, uint32_t first, const sx_origin *origin)
{
    for (uint32_t i = first; i < im->graph->node_count; i++) {
        if (im->graph->node[i].op != SX_OP_PARAMETER) {
            SX_TRY(sx_graph_set_origin(im->cx, im->graph, i, origin));
        }
    }
    return SX_OK;
}

/* Does it read what a node that is not supported would have made? */
static bool reads_refused(sx_ox *im)
{
    for (uint32_t k = 0; k < im->node->input_count; k++) {
        const sx_ox_value *value = sx_ox_lookup(im, im->node->input[k]);
        if (value != NULL && value->refused) {
            return true;
        }
    }
    return sx_ox_captures_refused(im);
}

/* Nothing is known of the results of this node: what reads them is passed over, so that the others can be looked at. */
static sx_code refuse_results(sx_ox *im)
{
    for (uint32_t k = 0; k < im->node->output_count; k++) {
        sx_ox_value value = {.name = im->node->output[k], .refused = true};
        sx_ox_value *there = value.name.len > 0 ? sx_ox_lookup(im, value.name) : NULL;
        if (there != NULL) {
            there->refused = true; /* it failed after some of its results were made */
        } else if (value.name.len > 0) {
            SX_TRY(sx_ox_declare(im, &value));
        }
    }
    return SX_OK;
}

static sx_origin origin_of(const sx_ox *im)
{
    const sx_onnx_node *node = im->node;
    sx_span result = node->output_count > 0 ? node->output[0] : (sx_span){NULL, 0};
    return (sx_origin){.name = node->name.len > 0 ? node->name : result, /* names are optional */
                       .op = node->op_type,
                       .opset = im->model->opset};
}

/* All that is not supported is told at once. */
static sx_code end_refusals(sx_ox *im)
{
    if (im->refusals.count == 1) {
        im->node = &im->model->graph.node[im->refused_index];
        im->node_index = im->refused_index;
        sx_span reason = im->refusals.refusal[0].reason;
        (void)SX_FAIL(im->cx, SX_UNIMPLEMENTED, "%.*s", (int)reason.len, (const char *)reason.ptr);
        return fail_at_node(im, SX_UNIMPLEMENTED);
    }
    return sx_refusals_end(im->cx, &im->refusals);
}

static sx_code add_nodes(sx_ox *im)
{
    for (uint32_t k = 0; k < im->model->graph.node_count; k++) {
        im->node = &im->model->graph.node[k];
        im->node_index = k;
        sx_origin origin = origin_of(im);
        if (reads_refused(im)) {
            SX_TRY(refuse_results(im));
            continue;
        }
        uint32_t first = im->graph->node_count;
        sx_code code = import_node(im);
        if (code == SX_UNIMPLEMENTED) {
            SX_TRY(sx_refusals_add(im->cx, &im->refusals, &origin));
            im->refused_index = k;
            im->code = SX_OK;
            SX_TRY(refuse_results(im));
            continue;
        }
        if (code != SX_OK) {
            return fail_at_node(im, code);
        }
        SX_TRY(set_origins(im, first, &origin));
    }
    return end_refusals(im);
}

sx_code sx_ox_add_subgraph(sx_ox *im, const sx_onnx_graph *graph)
{
    SX_ASSERT(im->depth > 0);
    SX_TRY(add_initializers(im, graph));
    for (uint32_t k = 0; k < graph->node_count; k++) {
        im->node = &graph->node[k];
        im->node_index = k;
        sx_code code = import_node(im);
        if (code != SX_OK) {
            im->code = fail_at_node(im, code);
            return im->code;
        }
    }
    return SX_OK;
}

/* ---- outputs ---- */

/* What the file declares must not contradict what was inferred. */
static sx_code check_declared(sx_ox *im, const sx_onnx_value_info *info, const sx_type *type)
{
    int length = (int)info->name.len;
    const char *name = (const char *)info->name.ptr;
    sx_dtype dtype;
    if (info->kind != SX_ONNX_TYPE_TENSOR) {
        return SX_OK; /* absent or checked by nobody: the inferred type holds */
    }
    SX_TRY(sx_ox_dtype(im, info->data_type, &dtype));
    if (dtype != type->dtype) {
        return SX_OX_FAIL(im, SX_INPUT, "output '%.*s' is declared %s, it is %s", length, name,
                          sx_dtype_name(dtype), sx_dtype_name(type->dtype));
    }
    if (!info->has_shape) {
        return SX_OK;
    }
    if (info->rank != type->rank) {
        return SX_OX_FAIL(im, SX_INPUT, "output '%.*s' is declared of rank %u, it has rank %u",
                          length, name, info->rank, type->rank);
    }
    for (uint32_t k = 0; k < type->rank; k++) {
        if (info->dim[k].kind == SX_ONNX_DIM_VALUE && sx_dim_is_constant(type->dim[k]) &&
            info->dim[k].value != type->dim[k].scale) {
            return SX_OX_FAIL(im, SX_INPUT, "output '%.*s': axis %u is declared %lld, it is %lld",
                              length, name, k, (long long)info->dim[k].value,
                              (long long)type->dim[k].scale);
        }
    }
    return SX_OK;
}

static sx_code add_outputs(sx_ox *im)
{
    const sx_onnx_graph *graph = &im->model->graph;
    if (graph->output_count == 0) {
        return SX_OX_FAIL(im, SX_INPUT, "the graph has no outputs");
    }
    if (graph->output_count > SX_OUTPUTS_MAX) {
        return SX_OX_FAIL(im, SX_LIMIT, "%u outputs, at most %u", graph->output_count,
                          SX_OUTPUTS_MAX);
    }
    for (uint32_t k = 0; k < graph->output_count; k++) {
        const sx_onnx_value_info *info = &graph->output[k];
        sx_ox_value *value = sx_ox_lookup(im, info->name);
        if (value == NULL) {
            return SX_OX_FAIL(im, SX_INPUT, "output '%.*s' is made by no node", (int)info->name.len,
                              (const char *)info->name.ptr);
        }
        for (uint32_t j = 0; j < k; j++) {
            if (sx_span_equal(graph->output[j].name, info->name)) {
                return SX_OX_FAIL(im, SX_INPUT, "output '%.*s' is listed twice",
                                  (int)info->name.len, (const char *)info->name.ptr);
            }
        }
        sx_node_id node = sx_ox_node_of(im, value);
        SX_TRY(im->code);
        SX_TRY(check_declared(im, info, sx_ox_type(im, node)));
        SX_TRY(sx_graph_add_output(im->cx, im->graph, info->name, node));
    }
    return SX_OK;
}

/* ---- the whole model ---- */

static sx_code check_model(sx_ox *im)
{
    const sx_onnx_model *model = im->model;
    if (model->opset == 0 && model->foreign_domain.len > 0) {
        return SX_OX_FAIL(im, SX_UNIMPLEMENTED, "the model imports the domain '%.*s' only",
                          (int)model->foreign_domain.len, (const char *)model->foreign_domain.ptr);
    }
    if (model->opset == 0) {
        return SX_OX_FAIL(im, SX_INPUT, "the model imports no opset of the standard domain");
    }
    if (model->opset < SX_ONNX_OPSET_MIN || model->opset > SX_ONNX_OPSET_MAX) {
        return SX_OX_FAIL(im, SX_UNIMPLEMENTED, "opset %lld, %d to %d supported",
                          (long long)model->opset, SX_ONNX_OPSET_MIN, SX_ONNX_OPSET_MAX);
    }
    if (model->function_count > 0) {
        return SX_OX_FAIL(im, SX_UNIMPLEMENTED, "%u local functions in the model, none supported",
                          model->function_count);
    }
    if (model->training_count > 0) {
        return SX_OX_FAIL(im, SX_UNIMPLEMENTED, "training information in the model");
    }
    return SX_OK;
}

static sx_code import_model(sx_ox *im)
{
    sx_ctx *cx = im->cx;
    SX_TRY(check_model(im));
    sx_span name = im->model->graph.name;
    SX_TRY(sx_graph_make(cx, name.len == 0 ? SX_SPAN_LITERAL("main") : name, NULL, &im->graph));
    im->weights = SX_NEW(cx, sx_weights);
    if (im->weights == NULL) {
        return cx->error.code;
    }
    SX_TRY(add_initializers(im, &im->model->graph));
    SX_TRY(add_inputs(im));
    SX_TRY(add_nodes(im));
    return add_outputs(im);
}

sx_code sx_onnx_import(sx_ctx *cx, sx_span file, const sx_onnx_options *options, sx_graph **graph,
                       sx_weights **weights)
{
    SX_ASSERT(options == NULL || options->interval_count == 0 || options->interval != NULL);
    SX_ASSERT(options == NULL || options->fixed_count == 0 || options->fixed != NULL);
    sx_onnx_model *model = SX_NEW(cx, sx_onnx_model);
    sx_ox *im = SX_NEW(cx, sx_ox);
    if (model == NULL || im == NULL) {
        return cx->error.code;
    }
    if (sx_onnx_read_model(cx, file, model) != SX_OK) {
        return cx->error.code != SX_INPUT ? cx->error.code
                                          : sx_fail_in(cx, "not a whole ONNX model");
    }
    sx_code code = SX_LIMIT;
    for (int64_t high = SX_ONNX_SYMBOL_HIGH; code == SX_LIMIT; high /= 2) {
        sx_ctx_reset_error(cx);
        *im = (sx_ox){.cx = cx, .options = options, .model = model, .symbol_high = high};
        code = import_model(im);
        if (code == SX_LIMIT && (high == SX_ONNX_SYMBOL_HIGH_LEAST || im->graph == NULL ||
                                 im->graph->symbol_count == 0)) {
            break;
        }
    }
    SX_TRY(code);
    *graph = im->graph;
    *weights = im->weights;
    return SX_OK;
}
