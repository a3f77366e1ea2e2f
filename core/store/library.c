#include "core/store/library.h"

#include <string.h>

#include "core/base/rng.h"
#include "core/eval/eval.h"
#include "core/ir/extent.h"
#include "core/store/pair.h"

enum {
    SECTION_ATTR = SX_SNAPSHOT_OWN,
    SECTION_SYMBOL,
    SECTION_PARAMETER,
    SECTION_OUTPUT,
    SECTION_INFO,
    SECTION_MARK,
};
#define TABLE_BYTES_MAX ((size_t)256 << 20)

/* ---- storing ---- */

static void put_text(sx_buf *to, sx_span text)
{
    sx_buf_put_u32(to, (uint32_t)text.len);
    sx_buf_put_span(to, text);
}

typedef struct {
    sx_buf attr, symbol, parameter, output;
} tables;

/* In the place of the lower bound of a symbol: its text are the terms of a sum. */
#define SUM_LOW INT64_C(0)

static void write_tables(const sx_tensors *t, const sx_graph *program, const uint32_t *input_node,
                         tables *to)
{
    SX_ASSERT(!t->partial);
    for (uint32_t i = 0; i < t->attrs->count; i++) {
        size_t at = to->attr.len;
        sx_buf_put_u32(&to->attr, 0);
        sx_attr_encode(t->attrs->attr[i], &to->attr);
        uint32_t size = (uint32_t)(to->attr.len - at - sizeof(size));
        if (to->attr.code == SX_OK) {
            memcpy(to->attr.ptr + at, &size, sizeof(size));
        }
    }
    for (uint32_t i = 0; i < program->symbol_count; i++) {
        const sx_symbol *s = &program->symbol[i];
        bool declared = sx_symbol_is_declared(s);
        int64_t low = declared ? s->low : SUM_LOW;
        sx_buf_put(&to->symbol, &low, sizeof(low));
        sx_buf_put(&to->symbol, &s->high, sizeof(s->high));
        sx_span sum = {declared ? NULL : (const uint8_t *)s->sum->term,
                       declared ? 0 : s->sum->count * sizeof(sx_term)};
        put_text(&to->symbol, declared ? s->name : sum);
    }
    for (uint32_t i = 0; i < program->node_count; i++) {
        if (program->node[i].op == SX_OP_PARAMETER) {
            sx_buf_put_u32(&to->parameter, input_node[i]);
        }
    }
    for (uint32_t i = 0; i < program->output_count; i++) {
        put_text(&to->output, program->output[i].name);
    }
}

static sx_code store_with(sx_ctx *cx, const sx_tensors *t, const sx_graph *program,
                          const uint32_t *input_node, const sx_library_info *info,
                          sx_snapshot_source *source, tables *to, sx_buf *bytes)
{
    uint32_t *root = SX_NEW_ARRAY(cx, uint32_t, program->output_count + 1);
    uint32_t *mark;
    if (root == NULL) {
        return cx->error.code;
    }
    for (uint32_t i = 0; i < program->output_count; i++) {
        root[i] = input_node[program->output[i].node.i];
    }
    SX_TRY(sx_pair_marks(cx, program, &mark));
    write_tables(t, program, input_node, to);
    SX_TRY(sx_buf_check(cx, &to->attr, "attributes"));
    SX_TRY(sx_buf_check(cx, &to->symbol, "symbols"));
    SX_TRY(sx_buf_check(cx, &to->parameter, "parameters"));
    SX_TRY(sx_buf_check(cx, &to->output, "outputs"));
    const sx_snapshot_part part[] = {
        {SECTION_ATTR, 1, sx_buf_span(&to->attr)},
        {SECTION_SYMBOL, 1, sx_buf_span(&to->symbol)},
        {SECTION_PARAMETER, 4, sx_buf_span(&to->parameter)},
        {SECTION_OUTPUT, 1, sx_buf_span(&to->output)},
        {SECTION_INFO, sizeof(*info), {(const uint8_t *)info, sizeof(*info)}},
        {SECTION_MARK, sizeof(*mark), {(const uint8_t *)mark, to->parameter.len}},
    };
    source->root = root;
    source->root_count = program->output_count;
    source->part = part;
    source->part_count = SX_COUNT(part);
    return sx_snapshot_store(cx, &t->eg, source, bytes);
}

sx_code sx_library_store(sx_ctx *cx, const sx_tensors *t, const sx_eg_ruleset *set,
                         const sx_graph *program, const uint32_t *input_node,
                         const uint32_t *choice, sx_eg_stop stop, const sx_library_info *info,
                         const sx_key *rules, sx_buf *bytes)
{
    SX_ASSERT(bytes->len == 0 && sx_eg_is_rebuilt(&t->eg));
    tables to;
    sx_snapshot_source source = {
        .rules = *rules, .stop = stop, .with_proofs = true, .set = set, .choice = choice};
    sx_buf_init(&to.attr, TABLE_BYTES_MAX);
    sx_buf_init(&to.symbol, TABLE_BYTES_MAX);
    sx_buf_init(&to.parameter, TABLE_BYTES_MAX);
    sx_buf_init(&to.output, TABLE_BYTES_MAX);
    sx_code code = store_with(cx, t, program, input_node, info, &source, &to, bytes);
    sx_buf_fini(&to.attr);
    sx_buf_fini(&to.symbol);
    sx_buf_fini(&to.parameter);
    sx_buf_fini(&to.output);
    return code;
}

/* ---- loading ---- */

static bool take(sx_span *from, void *value, size_t size)
{
    if (from->len < size) {
        return false;
    }
    memcpy(value, from->ptr, size);
    *from = (sx_span){from->ptr + size, from->len - size};
    return true;
}

static bool take_text(sx_span *from, sx_span *text)
{
    uint32_t len;
    if (!take(from, &len, sizeof(len)) || len > from->len) {
        return false;
    }
    *text = (sx_span){from->ptr, len};
    *from = (sx_span){from->ptr + len, from->len - len};
    return true;
}

/* A sum of symbols that were read before it. */
static sx_code load_sum(sx_ctx *cx, sx_span terms, sx_graph *interface)
{
    sx_polynomial sum = {.count = (uint32_t)(terms.len / sizeof(sx_term))};
    uint32_t before = interface->symbol_count;
    bool good = terms.len % sizeof(sx_term) == 0 && sum.count > 0 && sum.count <= SX_TERMS_MAX;
    memcpy(sum.term, terms.ptr, good ? terms.len : 0);
    sx_polynomial own = {0};
    for (uint32_t i = 0; i < sum.count && good; i++) {
        for (uint32_t k = 0; k < SX_FACTORS_MAX && good; k++) {
            uint32_t s = sum.term[i].factor[k];
            good =
                s == SX_NO_SYMBOL || (s < before && sx_symbol_is_declared(&interface->symbol[s]) &&
                                      (k == 0 || sum.term[i].factor[k - 1] <= s));
            good =
                good && (k == 0 || sum.term[i].factor[k - 1] != SX_NO_SYMBOL || s == SX_NO_SYMBOL);
        }
        sx_polynomial one = {.count = 1, .term = {sum.term[i]}};
        good = good && sum.term[i].scale != 0 && sx_polynomial_add(&own, &one, 1);
    }
    sx_dim dim = sx_dim_of(0);
    good = good && sx_polynomial_compare(&own, &sum) == 0 &&
           sx_graph_add_extent(cx, interface, &own, &dim) == SX_OK &&
           interface->symbol_count == before + 1 && dim.scale == 1;
    return good ? SX_OK : SX_FAIL(cx, SX_CORRUPT, "snapshot symbol %u: no sum of others", before);
}

static sx_code load_symbols(sx_ctx *cx, const sx_snapshot *s, sx_graph *interface)
{
    sx_span rest;
    uint32_t count;
    SX_TRY(sx_snapshot_section_of(cx, s, SECTION_SYMBOL, 1, &rest, &count));
    while (rest.len > 0) {
        int64_t low, high;
        sx_span name;
        uint32_t index;
        if (!take(&rest, &low, sizeof(low)) || !take(&rest, &high, sizeof(high)) ||
            !take_text(&rest, &name)) {
            return SX_FAIL(cx, SX_CORRUPT, "snapshot symbol %u: cut short",
                           interface->symbol_count);
        }
        SX_TRY(low == SUM_LOW ? load_sum(cx, name, interface)
                              : sx_graph_add_symbol(cx, interface, name, low, high, &index));
    }
    return SX_OK;
}

/* How many attributes there are. */
static sx_code count_attrs(sx_ctx *cx, sx_span rest, uint32_t *count)
{
    sx_span one;
    *count = 0;
    while (rest.len > 0) {
        if (!take_text(&rest, &one) || one.len == 0) {
            return SX_FAIL(cx, SX_CORRUPT, "attribute %u: cut short", *count);
        }
        (*count)++;
    }
    return *count > 0 ? SX_OK : SX_FAIL(cx, SX_CORRUPT, "snapshot: no attributes");
}

/* Attribute numbers are followed while types are inferred; wanted[i]: this one is needed even where kernels
 * are left out. The classes are not checked yet, and what is said of them here is said again by sx_snapshot_load. */
static sx_code mark_attrs(sx_ctx *cx, const sx_snapshot *s, uint32_t attr_count, bool *wanted)
{
    sx_span bytes;
    uint32_t count, class_count, choice_count;
    SX_TRY(
        sx_snapshot_section_of(cx, s, SX_SNAPSHOT_NODE, sizeof(sx_snapshot_node), &bytes, &count));
    const sx_snapshot_node *node = (const void *)bytes.ptr;
    SX_TRY(sx_snapshot_section_of(cx, s, SX_SNAPSHOT_CLASS, 4, &bytes, &class_count));
    const uint32_t *class_ = (const void *)bytes.ptr;
    for (uint32_t n = 0; n < count; n++) {
        if (node[n].attr >= attr_count || node[n].op >= SX_OP_COUNT) {
            return SX_FAIL(cx, SX_CORRUPT, "e-node %u: operation %u, attribute %u of %u", n,
                           node[n].op, node[n].attr, attr_count);
        }
        if (node[n].op != SX_OP_FUSED || n >= class_count || class_[n] == n) {
            wanted[node[n].attr] = true;
        }
    }
    SX_TRY(sx_snapshot_section_of(cx, s, SX_SNAPSHOT_CHOICE, sizeof(sx_snapshot_choice), &bytes,
                                  &choice_count));
    const sx_snapshot_choice *choice = (const void *)bytes.ptr;
    for (uint32_t i = 0; i < choice_count; i++) {
        if (choice[i].node < count) {
            wanted[node[choice[i].node].attr] = true;
        }
    }
    return SX_OK;
}

static sx_code load_attrs(sx_ctx *cx, const sx_snapshot *s, sx_library_kernels kernels,
                          const sx_graph *interface)
{
    sx_span rest, one;
    uint32_t bytes, count;
    sx_attr_table *table = interface->attrs;
    SX_TRY(sx_snapshot_section_of(cx, s, SECTION_ATTR, 1, &rest, &bytes));
    SX_TRY(count_attrs(cx, rest, &count));
    bool *wanted = SX_NEW_ARRAY(cx, bool, count);
    if (wanted == NULL) {
        return cx->error.code;
    }
    SX_TRY(mark_attrs(cx, s, count, wanted));
    SX_TRY(sx_attr_table_restore(cx, table, count));
    for (uint32_t i = 0; i < count && take_text(&rest, &one); i++) {
        sx_attr *attr = table->attr[i];
        if (i > 0 && !wanted[i] && kernels != SX_LIBRARY_ALL) {
            continue;
        }
        SX_TRY(sx_attr_decode(cx, &one, interface->symbol_count, attr));
        if (one.len > 0 || (attr->present == 0) != (i == 0)) {
            return SX_FAIL(cx, SX_CORRUPT, "attribute %u: fields %llx, %zu bytes more", i,
                           (unsigned long long)attr->present, one.len);
        }
    }
    return sx_attr_table_index(cx, table);
}

static sx_code load_interface(sx_ctx *cx, const sx_snapshot *s, sx_library_graph *graph)
{
    sx_span bytes, rest;
    uint32_t count, root_count;
    SX_TRY(sx_snapshot_section_of(cx, s, SECTION_PARAMETER, 4, &bytes, &count));
    graph->parameter = (const void *)bytes.ptr;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t n = graph->parameter[i];
        sx_node_id id;
        if (n >= graph->t.eg.node_count || sx_tensors_op(&graph->t, n) != SX_OP_PARAMETER) {
            return SX_FAIL(cx, SX_CORRUPT, "parameter %u: e-node %u is none", i, n);
        }
        sx_attr attr = *sx_tensors_attr(&graph->t, n);
        SX_TRY(sx_graph_add(cx, graph->interface, SX_OP_PARAMETER, &attr, NULL, 0, &id));
    }
    uint32_t mark_count;
    SX_TRY(sx_snapshot_section_of(cx, s, SECTION_MARK, 4, &bytes, &mark_count));
    if (mark_count != count) {
        return SX_FAIL(cx, SX_CORRUPT, "snapshot: %u marks of %u parameters", mark_count, count);
    }
    graph->mark = (const void *)bytes.ptr;
    SX_TRY(sx_snapshot_load_roots(cx, s, &graph->t.eg, &graph->root, &root_count));
    SX_TRY(sx_snapshot_section_of(cx, s, SECTION_OUTPUT, 1, &rest, &count));
    sx_output *output = SX_NEW_ARRAY(cx, sx_output, root_count + 1);
    if (output == NULL) {
        return cx->error.code;
    }
    for (uint32_t i = 0; i < root_count; i++) {
        if (root_count > SX_OUTPUTS_MAX || !take_text(&rest, &output[i].name)) {
            return SX_FAIL(cx, SX_CORRUPT, "snapshot output %u of %u: no name", i, root_count);
        }
    }
    graph->interface->output = output;
    graph->interface->output_count = root_count;
    return SX_OK;
}

static sx_code load_parts(sx_ctx *cx, const sx_snapshot *s, sx_library_kernels kernels,
                          sx_library_graph *graph)
{
    sx_graph *interface;
    SX_TRY(sx_graph_make(cx, (sx_span){0}, NULL, &interface));
    graph->interface = interface;
    SX_TRY(load_symbols(cx, s, interface));
    SX_TRY(load_attrs(cx, s, kernels, interface));
    sx_eg_analysis analysis;
    sx_tensors_begin(&graph->t, interface, &analysis);
    graph->t.partial = kernels == SX_LIBRARY_CHOSEN;
    SX_TRY(sx_snapshot_load(cx, s, &analysis, &graph->t.eg));
    SX_TRY(sx_rules_set(cx, &graph->t, &graph->set));
    SX_TRY(sx_snapshot_load_set(cx, s, &graph->t.eg, &graph->set));
    const sx_eg *eg = &graph->t.eg;
    for (uint32_t n = 0; n < eg->node_count; n++) {
        sx_eg_why why = sx_eg_why_of(eg, n);
        if (why.up != n && why.rule == SX_EG_RULE_GIVEN) {
            return SX_FAIL(cx, SX_CORRUPT, "e-node %u: united without a rule", n);
        }
    }
    SX_TRY(load_interface(cx, s, graph));
    return sx_snapshot_load_choice(cx, s, &graph->t.eg, &graph->choice);
}

static sx_code load_info(sx_ctx *cx, const sx_snapshot *s, sx_library_info *info)
{
    sx_span bytes;
    uint32_t count;
    SX_TRY(sx_snapshot_section_of(cx, s, SECTION_INFO, sizeof(*info), &bytes, &count));
    if (count != 1) {
        return SX_FAIL(cx, SX_CORRUPT, "snapshot: %u records of info, not 1", count);
    }
    memcpy(info, bytes.ptr, sizeof(*info));
    return SX_OK;
}

sx_code sx_library_load(sx_ctx *cx, sx_span bytes, const sx_key *rules, sx_library_kernels kernels,
                        sx_library_graph *graph)
{
    sx_snapshot s;
    *graph = (sx_library_graph){0};
    SX_TRY(sx_snapshot_open(cx, bytes, rules, &s));
    SX_TRY(load_info(cx, &s, &graph->info));
    graph->stop = (sx_eg_stop)s.header.stop;
    sx_code code = load_parts(cx, &s, kernels, graph);
    if (code != SX_OK && code != SX_NOMEM && code != SX_CANCELLED) {
        cx->error.code = SX_CORRUPT; /* whatever is wrong with a program is damage here */
        code = SX_CORRUPT;
    }
    SX_ASSERT(code != SX_OK || sx_eg_is_rebuilt(&graph->t.eg));
    return code;
}

sx_code sx_library_peek(sx_ctx *cx, sx_span bytes, const sx_key *rules, sx_library_info *info)
{
    sx_snapshot s;
    SX_TRY(sx_snapshot_open(cx, bytes, rules, &s));
    return load_info(cx, &s, info);
}

/* ---- what programs that may be equal share ---- */

/* "1f32[s0*2,4]": weights and inputs apart, symbols by number. */
static sx_code print_type(sx_ctx *cx, char mark, const sx_type *type, sx_span *line)
{
    sx_buf text;
    sx_buf_init(&text, 4096);
    sx_buf_print(&text, "%c%s[", mark, sx_dtype_name(type->dtype));
    for (uint32_t d = 0; d < type->rank; d++) {
        sx_dim dim = type->dim[d];
        sx_buf_print(&text, "%s%lld", d > 0 ? "," : "", (long long)dim.scale);
        if (!sx_dim_is_constant(dim)) {
            sx_buf_print(&text, "*s%u", dim.symbol);
        }
    }
    sx_buf_put_text(&text, "]");
    char *copy = sx_alloc_text(cx, sx_buf_span(&text));
    *line = (sx_span){(const uint8_t *)copy, text.len};
    sx_buf_fini(&text);
    return copy == NULL ? cx->error.code : SX_OK;
}

static void sort_lines(sx_span *line, uint32_t count)
{
    for (uint32_t gap = count / 2; gap > 0; gap = gap == 2 ? 1 : gap * 5 / 11) { /* Shell sort */
        for (uint32_t i = gap; i < count; i++) {
            sx_span moved = line[i];
            uint32_t at = i;
            while (at >= gap && sx_span_compare(line[at - gap], moved) > 0) {
                line[at] = line[at - gap];
                at -= gap;
            }
            line[at] = moved;
        }
    }
}

sx_code sx_library_family(sx_ctx *cx, const sx_graph *program, sx_buf *text)
{
    sx_span *line = SX_NEW_ARRAY(cx, sx_span, program->node_count + program->output_count + 1);
    uint32_t count = 0;
    if (line == NULL) {
        return cx->error.code;
    }
    for (uint32_t i = 0; i < program->node_count; i++) {
        const sx_node *node = &program->node[i];
        if (node->op == SX_OP_PARAMETER) {
            char mark = sx_graph_attr(program, node)->weight != 0 ? 'w' : 'i';
            SX_TRY(print_type(cx, mark, &node->type, &line[count++]));
        }
    }
    for (uint32_t i = 0; i < program->output_count; i++) {
        const sx_node *node = sx_graph_node(program, program->output[i].node);
        SX_TRY(print_type(cx, 'o', &node->type, &line[count++]));
    }
    SX_ASSERT(count <= program->node_count + program->output_count);
    sort_lines(line, count);
    for (uint32_t i = 0; i < program->symbol_count; i++) {
        const sx_symbol *s = &program->symbol[i];
        sx_buf_print(text, "[%lld,%lld]", (long long)s->low, (long long)s->high);
        for (uint32_t k = 0; !sx_symbol_is_declared(s) && k < s->sum->count; k++) {
            const sx_term *t = &s->sum->term[k];
            sx_buf_print(text, "%+lld", (long long)t->scale);
            for (uint32_t f = 0; f < SX_FACTORS_MAX && t->factor[f] != SX_NO_SYMBOL; f++) {
                sx_buf_print(text, "*s%u", t->factor[f]);
            }
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        sx_buf_put_span(text, line[i]);
    }
    return sx_buf_check(cx, text, "types of the interface");
}

/* ---- value ---- */

/* Few elements in all, so that neither memory nor time is a matter. */
static bool is_small(const sx_graph *bound, uint64_t steps)
{
    uint64_t elements = 0;
    for (uint32_t i = 0; i < bound->node_count; i++) {
        elements += (uint64_t)sx_tensor_elements(&bound->node[i].type);
        if (elements > steps) {
            return false;
        }
    }
    return true;
}

/* Random residues, equal for parameters of equal type: so the value knows neither names nor order. */
static sx_code draw_parameter(sx_ctx *cx, const sx_graph *bound, const sx_node *node,
                              sx_tensor *tensor)
{
    sx_span line;
    bool weight = sx_graph_attr(bound, node)->weight != 0;
    SX_TRY(print_type(cx, weight ? 'w' : 'i', &node->type, &line));
    sx_rng rng = {sx_hash64(line, 1)};
    int64_t count = sx_tensor_elements(&node->type);
    uint64_t *cell = SX_NEW_ARRAY(cx, uint64_t, (size_t)count);
    if (cell == NULL) {
        return cx->error.code;
    }
    bool is_float = sx_dtype_class_of(node->type.dtype) == SX_CLASS_FLOAT;
    uint64_t limit =
        is_float ? (UINT64_C(1) << 31) - 1 : 2; /* small integers: they may be indices */
    for (int64_t k = 0; k < count; k++) {
        cell[k] = sx_rng_below(&rng, limit);
    }
    *tensor = (sx_tensor){node->type, cell};
    return SX_OK;
}

/* Extents of symbols: three, or the nearest that is allowed. */
static sx_code bind_small(sx_ctx *cx, const sx_graph *program, sx_graph **bound)
{
    sx_binding binding[SX_SYMBOLS_MAX];
    uint32_t count = 0;
    for (uint32_t i = 0; i < program->symbol_count; i++) {
        const sx_symbol *s = &program->symbol[i];
        if (sx_symbol_is_declared(s)) {
            binding[count++] = (sx_binding){s->name, sx_min_i64(s->high, sx_max_i64(s->low, 3))};
        }
    }
    return sx_graph_bind(cx, program, binding, count, bound);
}

static sx_code find_value(sx_ctx *cx, const sx_graph *program, uint64_t steps, bool *known,
                          uint64_t *value)
{
    sx_graph *bound;
    SX_TRY(bind_small(cx, program, &bound));
    if (!is_small(bound, steps)) {
        return SX_OK;
    }
    sx_tensor *argument = SX_NEW_ARRAY(cx, sx_tensor, bound->node_count + 1);
    sx_tensor *result = SX_NEW_ARRAY(cx, sx_tensor, bound->output_count + 1);
    if (argument == NULL || result == NULL) {
        return cx->error.code;
    }
    uint32_t count = 0;
    for (uint32_t i = 0; i < bound->node_count; i++) {
        if (bound->node[i].op == SX_OP_PARAMETER) {
            SX_TRY(draw_parameter(cx, bound, &bound->node[i], &argument[count++]));
        }
    }
    SX_TRY(sx_graph_eval(cx, bound, SX_EVAL_MODP, argument, count, result, bound->output_count));
    uint64_t sum = 0;
    for (uint32_t i = 0; i < bound->output_count; i++) {
        size_t bytes = (size_t)sx_tensor_elements(&result[i].type) * sizeof(uint64_t);
        sum += sx_hash64((sx_span){result[i].data, bytes}, result[i].type.rank);
    }
    *value = sum;
    *known = true;
    return SX_OK;
}

sx_code sx_library_value(sx_ctx *cx, const sx_graph *program, uint64_t steps, bool *known,
                         uint64_t *value)
{
    uint64_t fuel = cx->fuel;
    *known = false;
    *value = 0;
    cx->fuel = steps < fuel ? steps : fuel;
    SX_ASSERT(cx->fuel <= steps);
    sx_code code = find_value(cx, program, steps, known, value);
    cx->fuel = fuel;
    if (code == SX_QUOTA) { /* too long: no value, and no failure */
        sx_ctx_reset_error(cx);
        return SX_OK;
    }
    return code;
}
