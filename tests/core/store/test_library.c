/* Stored programs loaded with all attributes of their kernels and with those of chosen kernels only: the same
 * graph, the same meetings; what is left out is nobody's concern, what is read is checked. */
#include "tests/lib/test.h"

#include <string.h>

#include "core/base/rng.h"
#include "core/ir/extent.h"
#include "core/store/meet.h"
#include "core/optimize/optimize.h"
#include "tests/core/store/reseal.h"
#include "tests/lib/gen_transformer.h"

#define SECTION_ATTR SX_SNAPSHOT_OWN

static sx_ctx cx;

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)1 << 30);
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

#define HEAD                                                      \
    "sx 1\ngraph \"p\" (batch in [1, 64]) {\n"                    \
    "%x = parameter {name = \"x\", weight = 0} : f32[batch, 8]\n" \
    "%w = parameter {name = \"w\", weight = 1} : f32[8, 6]\n"     \
    "%v = parameter {name = \"v\", weight = 1} : f32[8, 6]\n"     \
    "%b = parameter {name = \"b\", weight = 1} : f32[6]\n"        \
    "%r = broadcast_in_dim(%b) {dims = [1]} : f32[batch, 6]\n"
#define DOT(to, a, b)                   \
    "%" to " = dot_general(%" a ", %" b \
    ") {lhs_contract = [1], rhs_contract = [0]} : f32[batch, 6]\n"
#define TAIL "return %y as \"y\"\n}\n"
static const char layer[] =
    HEAD DOT("p", "x", "w") DOT("q", "x", "v") "%s = add(%p, %q) : f32[batch, 6]\n"
                                               "%t = add(%s, %r) : f32[batch, 6]\n"
                                               "%y = relu(%t) : f32[batch, 6]\n" TAIL;
/* relu and the bias written in another way: nodes the stored graph does not hold */
static const char spelled[] =
    HEAD DOT("p", "x", "w") DOT("q", "x", "v") "%s = add(%q, %p) : f32[batch, 6]\n"
                                               "%n = negate(%r) : f32[batch, 6]\n"
                                               "%t = subtract(%s, %n) : f32[batch, 6]\n"
                                               "%z = constant {data = 0} : f32[batch, 6]\n"
                                               "%y = maximum(%z, %t) : f32[batch, 6]\n" TAIL;
static const char other[] =
    HEAD DOT("p", "x", "w") DOT("q", "x", "v") "%s = subtract(%p, %q) : f32[batch, 6]\n"
                                               "%t = add(%s, %r) : f32[batch, 6]\n"
                                               "%y = relu(%t) : f32[batch, 6]\n" TAIL;

/* Extents that are sums: the same program in other names, and one with another sum. */
#define SUMS(symbols, rows)                                                                    \
    "sx 1\ngraph \"p\" (" symbols ") {\n%x = parameter {name = \"x\", weight = 0} : f32[" rows \
    ", 8]\n%w = parameter {name = \"w\", weight = 1} : f32[8, 6]\n"                            \
    "%p = dot_general(%x, %w) {lhs_contract = [1], rhs_contract = [0]} : f32[" rows ", 6]\n"
static const char product[] =
    SUMS("batch in [2, 9], seq in [2, 2]", "batch*seq") "%y = relu(%p) : f32[batch*seq, 6]\n" TAIL;
static const char product_too[] =
    SUMS("b in [2, 9], s in [2, 2]",
         "s*b") "%z = constant {data = 0} : f32[s*b, 6]\n%y = maximum(%z, %p) : f32[s*b, 6]\n" TAIL;
static const char no_product[] = SUMS(
    "b in [2, 9], s in [2, 2]", "2*b - 2*s + s*s") "%y = relu(%p) : f32[2*b - 2*s + s*s, 6]\n" TAIL;

static const sx_graph *program_of(const char *text)
{
    sx_graph *graph, *canonical;
    ck_sx_ok(&cx, sx_graph_parse(&cx, sx_span_of(text), &graph));
    ck_sx_ok(&cx, sx_graph_canon(&cx, graph, &canonical));
    return canonical;
}

static const sx_graph *transformer(bool exchanged)
{
    sx_transformer shape = sx_transformer_default(1);
    sx_graph *graph, *canonical;
    ck_sx_ok(&cx, sx_transformer_make(&cx, &shape, &graph));
    for (uint32_t i = 0; exchanged && i < graph->node_count; i++) {
        const sx_node *node = &graph->node[i];
        if (node->op == SX_OP_ADD || node->op == SX_OP_MULTIPLY) {
            sx_node_id *input = &graph->input[node->input_first];
            sx_node_id first = input[0];
            input[0] = input[1];
            input[1] = first;
        }
    }
    ck_sx_ok(&cx, sx_graph_canon(&cx, graph, &canonical));
    return canonical;
}

static sx_optimize_options options_of(sx_buf *snapshot)
{
    sx_optimize_options options = sx_optimize_defaults();
    options.whole = true;
    options.snapshot = snapshot;
    return options;
}

static sx_span stored_graph(const sx_graph *program)
{
    sx_buf bytes;
    sx_graph *better;
    sx_optimize_report report;
    const sx_device *device;
    sx_buf_init(&bytes, (size_t)64 << 20);
    sx_optimize_options options = options_of(&bytes);
    ck_sx_ok(&cx, sx_device_find(&cx, SX_SPAN_LITERAL("x86-64-v3"), &device));
    ck_sx_ok(&cx, sx_optimize(&cx, program, device, &options, &better, &report));
    uint8_t *copy = sx_alloc(&cx, bytes.len + SX_SNAPSHOT_PAGE);
    ck_assert_ptr_nonnull(copy);
    memcpy(copy, bytes.ptr, bytes.len);
    sx_span span = {copy, bytes.len};
    sx_buf_fini(&bytes);
    return span;
}

static sx_library_graph *loaded(sx_span bytes, sx_library_kernels kernels)
{
    sx_library_graph *graph = SX_NEW(&cx, sx_library_graph);
    sx_optimize_options options = options_of(NULL);
    ck_sx_ok(&cx, sx_library_load(&cx, bytes, &options.snapshot_rules, kernels, graph));
    ck_sx_ok(&cx, sx_eg_check(&cx, &graph->t.eg));
    return graph;
}

static uint32_t attrs_read(const sx_library_graph *graph)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < graph->t.attrs->count; i++) {
        count += graph->t.attrs->attr[i]->present != 0 ? 1 : 0;
    }
    return count;
}

/* Every class knows the same. */
static void check_same(const sx_library_graph *a, const sx_library_graph *b)
{
    ck_assert_uint_eq(a->t.eg.node_count, b->t.eg.node_count);
    ck_assert_uint_eq(a->t.eg.class_count, b->t.eg.class_count);
    for (uint32_t n = 0; n < a->t.eg.node_count; n++) {
        const sx_fact *x = sx_tensors_fact(&a->t, n);
        const sx_fact *y = sx_tensors_fact(&b->t, n);
        ck_assert_uint_eq(sx_eg_find(&a->t.eg, n), sx_eg_find(&b->t.eg, n));
        ck_assert(sx_type_equal(&a->t.type[x->type], &b->t.type[y->type]));
        ck_assert(x->is_weight == y->is_weight && x->has_value == y->has_value &&
                  memcmp(&x->value, &y->value, sizeof(x->value)) == 0);
    }
}

static void meet(sx_library_graph *graph, const sx_graph *asked, sx_meeting *meeting, sx_buf *text)
{
    bool enabled[SX_RULE_COUNT];
    sx_optimize_options options = options_of(NULL);
    ck_sx_ok(&cx, sx_optimize_rules(&cx, &options, enabled));
    ck_sx_ok(&cx, sx_meet(&cx, graph, asked, &(sx_meet_options){enabled, false, true}, meeting));
    ck_sx_ok(&cx, sx_eg_check(&cx, &graph->t.eg));
    sx_buf_init(text, (size_t)64 << 20);
    if (meeting->met) {
        ck_sx_ok(&cx, sx_graph_check(&cx, meeting->better));
        ck_sx_ok(&cx, sx_graph_print(&cx, meeting->better, text));
    }
}

static void check_meetings(const sx_graph *stored, const sx_graph *asked, bool meets, bool inserts)
{
    sx_span bytes = stored_graph(stored);
    sx_library_graph *all = loaded(bytes, SX_LIBRARY_ALL);
    sx_library_graph *chosen = loaded(bytes, SX_LIBRARY_CHOSEN);
    sx_meeting a, b;
    sx_buf x, y;
    ck_assert_uint_lt(attrs_read(chosen), attrs_read(all));
    check_same(all, chosen);
    ck_assert_int_eq(sx_meet_kernels(asked, false), SX_LIBRARY_CHOSEN);
    ck_assert_int_eq(sx_meet_kernels(asked, true), SX_LIBRARY_ALL);
    meet(all, asked, &a, &x);
    meet(chosen, asked, &b, &y);
    check_same(all, chosen);
    ck_assert_int_eq(a.met, meets);
    ck_assert_int_eq(b.met, meets);
    ck_assert_uint_eq(a.inserted, b.inserted);
    ck_assert_int_eq(b.inserted > 0, inserts);
    ck_assert_uint_eq(a.rounds, b.rounds);
    ck_assert(sx_span_equal(sx_buf_span(&x), sx_buf_span(&y)));
    ck_assert(sx_span_equal(a.rules, b.rules));
    if (meets) { /* kernels in what is asked for: all are read */
        ck_assert_int_eq(sx_meet_kernels(a.better, false), SX_LIBRARY_ALL);
    }
    sx_buf_fini(&x);
    sx_buf_fini(&y);
}

START_TEST(test_same_meetings)
{
    check_meetings(transformer(false), transformer(true), true, false);
    check_meetings(program_of(layer), program_of(spelled), true, true);
    check_meetings(program_of(layer), program_of(other), false, true);
}
END_TEST

START_TEST(test_sums)
{
    const sx_graph *stored = program_of(product);
    const sx_library_graph *back = loaded(stored_graph(stored), SX_LIBRARY_ALL);
    ck_assert_uint_eq(stored->symbol_count, 3);
    ck_assert_uint_eq(back->interface->symbol_count, 3);
    ck_assert(sx_symbols_equal(stored->symbol, back->interface->symbol, 3, true));
    check_meetings(stored, program_of(product_too), true, false);
    sx_meeting meeting;
    sx_buf text;
    meet(loaded(stored_graph(stored), SX_LIBRARY_ALL), program_of(no_product), &meeting, &text);
    ck_assert(!meeting.met);
    sx_buf_fini(&text);
}
END_TEST

/* The bytes of attribute `index` in section ATTR. */
static uint8_t *attr_bytes(uint8_t *bytes, const sx_snapshot *s, uint32_t index, uint32_t *size)
{
    uint8_t *at = bytes + s->section[SECTION_ATTR].offset;
    for (uint32_t i = 0;; i++) {
        memcpy(size, at, sizeof(*size));
        if (i == index) {
            return at + sizeof(*size);
        }
        at += sizeof(*size) + *size;
    }
}

/* Each attribute made nonsense: refused by who reads it, and without effect on who does not. */
START_TEST(test_altered_attributes)
{
    sx_span stored = stored_graph(program_of(layer));
    sx_library_graph *chosen = loaded(stored, SX_LIBRARY_CHOSEN);
    sx_optimize_options options = options_of(NULL);
    sx_snapshot s;
    uint32_t refused = 0, passed = 0;
    uint8_t *bytes = sx_alloc(&cx, stored.len);
    ck_sx_ok(&cx, sx_snapshot_open(&cx, stored, &options.snapshot_rules, &s));
    for (uint32_t i = 0; i < chosen->t.attrs->count; i++) {
        uint32_t size;
        sx_library_graph graph;
        memcpy(bytes, stored.ptr, stored.len);
        memset(attr_bytes(bytes, &s, i, &size), 0xA5, 4); /* fields that there are not */
        sx_test_reseal(bytes, stored.len);
        bool is_read = i == 0 || chosen->t.attrs->attr[i]->present != 0;
        for (uint32_t kernels = 0; kernels < 2; kernels++) {
            sx_code code =
                sx_library_load(&cx, (sx_span){bytes, stored.len}, &options.snapshot_rules,
                                (sx_library_kernels)kernels, &graph);
            bool refuses = kernels == SX_LIBRARY_ALL || is_read;
            ck_assert_int_eq(code, refuses ? SX_CORRUPT : SX_OK);
            refused += refuses ? 1 : 0;
            if (!refuses) {
                sx_meeting meeting;
                sx_buf text;
                meet(&graph, program_of(spelled), &meeting, &text);
                ck_assert(meeting.met);
                sx_buf_fini(&text);
                passed++;
            }
            sx_ctx_reset_error(&cx);
        }
    }
    ck_assert_uint_gt(refused, 20);
    ck_assert_uint_gt(passed, 3);
}
END_TEST

/* Lengths of attributes that do not fit what is in them. */
START_TEST(test_altered_lengths)
{
    sx_span stored = stored_graph(program_of(layer));
    sx_optimize_options options = options_of(NULL);
    sx_snapshot s;
    sx_rng rng = {sx_test_seed()};
    uint8_t *bytes = sx_alloc(&cx, stored.len);
    ck_sx_ok(&cx, sx_snapshot_open(&cx, stored, &options.snapshot_rules, &s));
    for (uint32_t trial = 0; trial < 64; trial++) {
        uint32_t size;
        sx_library_graph graph;
        memcpy(bytes, stored.ptr, stored.len);
        uint8_t *at = attr_bytes(bytes, &s, (uint32_t)sx_rng_below(&rng, 20), &size);
        uint32_t wrong =
            trial % 4 == 0 ? UINT32_MAX - trial : size ^ (1u << sx_rng_below(&rng, 12));
        memcpy(at - sizeof(wrong), &wrong, sizeof(wrong));
        sx_test_reseal(bytes, stored.len);
        for (uint32_t kernels = 0; kernels < 2; kernels++) {
            ck_assert_int_eq(sx_library_load(&cx, (sx_span){bytes, stored.len},
                                             &options.snapshot_rules, (sx_library_kernels)kernels,
                                             &graph),
                             SX_CORRUPT);
            sx_ctx_reset_error(&cx);
        }
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("library");
    TCase *tc = tcase_create("library");
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_set_timeout(tc, 400);
    tcase_add_test(tc, test_same_meetings);
    tcase_add_test(tc, test_sums);
    tcase_add_test(tc, test_altered_attributes);
    tcase_add_test(tc, test_altered_lengths);
    suite_add_tcase(suite, tc);
    return sx_test_main(suite);
}
