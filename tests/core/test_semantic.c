/* Programs that equal a stored one meet it, in whatever way they are written, and get its extraction under their own names; others do not.
 * The judge is the interpreter: what comes back is evaluated against the program asked for. */
#include "tests/lib/test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "client/runtime/verify.h"
#include "core/base/rng.h"
#include "core/core.h"
#include "core/egraph/bundle.h"
#include "core/egraph/library.h"
#include "tests/core/egraph/reseal.h"
#include "tests/lib/compiled.h"
#include "tests/lib/gen_transformer.h"
#include "tests/lib/ir.h"

static sx_ctx cx;

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)2 << 30);
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

#define HEAD "sx 1\ngraph \"p\" (batch in [1, 64]) {\n"
#define X "%x = parameter {name = \"x\", weight = 0} : f32[batch, 8]\n"
#define W(name, shape) "%" name " = parameter {name = \"" name "\", weight = 1} : f32" shape "\n"
#define LAYER_IN X W("w", "[8, 6]") W("b", "[6]")
#define DOT(to, a, b, shape)                                                                     \
    "%" to " = dot_general(%" a ", %" b ") {lhs_contract = [1], rhs_contract = [0]} : f32" shape \
    "\n"
#define ADD(to, a, b, shape) "%" to " = add(%" a ", %" b ") : f32" shape "\n"

/* relu(x w + b) */
static const char layer[] = HEAD LAYER_IN
    DOT("0", "x", "w", "[batch, 6]") "%1 = broadcast_in_dim(%b) {dims = [1]} : f32[batch, 6]\n" ADD(
        "2", "0", "1", "[batch, 6]") "%3 = relu(%2) : f32[batch, 6]\nreturn %3 as \"y\"\n}\n";
static const char commuted[] = HEAD LAYER_IN
    "%1 = broadcast_in_dim(%b) {dims = [1]} : f32[batch, 6]\n" DOT("0", "x", "w", "[batch, 6]")
        ADD("2", "1", "0", "[batch, 6]") "%3 = relu(%2) : f32[batch, 6]\nreturn %3 as \"y\"\n}\n";
static const char renamed[] = HEAD
    "%a = parameter {name = \"bias\", weight = 1} : f32[6]\n"
    "%b = parameter {name = \"data\", weight = 0} : f32[batch, 8]\n"
    "%c = parameter {name = \"matrix\", weight = 1} : f32[8, 6]\n"
    "%1 = broadcast_in_dim(%a) {dims = [1]} : f32[batch, 6]\n" DOT("0", "b", "c", "[batch, 6]")
        ADD("2", "0", "1", "[batch, 6]") "%3 = relu(%2) : f32[batch, 6]\nreturn %3 as \"out\"\n}\n";
static const char transposed[] = HEAD LAYER_IN
    "%t = transpose(%w) {perm = [1, 0]} : f32[6, 8]\n"
    "%0 = dot_general(%x, %t) {lhs_contract = [1], rhs_contract = [1]} : f32[batch, 6]\n"
    "%1 = broadcast_in_dim(%b) {dims = [1]} : f32[batch, 6]\n" ADD(
        "2", "0", "1", "[batch, 6]") "%3 = relu(%2) : f32[batch, 6]\nreturn %3 as \"y\"\n}\n";
static const char spelled_relu[] = HEAD LAYER_IN
    DOT("0", "x", "w", "[batch, 6]") "%1 = broadcast_in_dim(%b) {dims = [1]} : f32[batch, 6]\n" ADD(
        "2", "0", "1",
        "[batch, 6]") "%z = constant {data = 0} : f32[batch, 6]\n"
                      "%3 = maximum(%z, %2) : f32[batch, 6]\nreturn %3 as \"y\"\n}\n";
static const char no_relu[] = HEAD LAYER_IN
    DOT("0", "x", "w", "[batch, 6]") "%1 = broadcast_in_dim(%b) {dims = [1]} : f32[batch, 6]\n" ADD(
        "2", "0", "1", "[batch, 6]") "return %2 as \"y\"\n}\n";
static const char other_sign[] = HEAD LAYER_IN DOT(
    "0", "x", "w", "[batch, 6]") "%1 = broadcast_in_dim(%b) {dims = [1]} : f32[batch, 6]\n"
                                 "%2 = subtract(%0, %1) : f32[batch, 6]\n"
                                 "%3 = relu(%2) : f32[batch, 6]\nreturn %3 as \"y\"\n}\n";

#define SUM_IN                                                           \
    HEAD X "%u = parameter {name = \"u\", weight = 0} : f32[batch, 8]\n" \
           "%v = parameter {name = \"v\", weight = 0} : f32[batch, 8]\n"
static const char sum_left[] = SUM_IN ADD("0", "x", "u", "[batch, 8]")
    ADD("1", "0", "v", "[batch, 8]") "%2 = tanh(%1) : f32[batch, 8]\nreturn %2 as \"y\"\n}\n";
static const char sum_right[] = SUM_IN ADD("0", "u", "v", "[batch, 8]")
    ADD("1", "x", "0", "[batch, 8]") "%2 = tanh(%1) : f32[batch, 8]\nreturn %2 as \"y\"\n}\n";
static const char sum_twice[] = SUM_IN ADD("0", "u", "u", "[batch, 8]")
    ADD("1", "x", "0", "[batch, 8]") "%2 = tanh(%1) : f32[batch, 8]\nreturn %2 as \"y\"\n}\n";

#define TWO_IN HEAD X W("w", "[8, 6]") W("v", "[8, 6]")
static const char two_dots[] = TWO_IN DOT("0", "x", "w", "[batch, 6]")
    DOT("1", "x", "v", "[batch, 6]") ADD("2", "0", "1", "[batch, 6]") "return %2 as \"y\"\n}\n";
static const char one_dot[] =
    TWO_IN ADD("0", "w", "v", "[8, 6]") DOT("1", "x", "0", "[batch, 6]") "return %1 as \"y\"\n}\n";
static const char two_outputs[] = TWO_IN DOT("0", "x", "w", "[batch, 6]")
    DOT("1", "x", "v", "[batch, 6]") "%2 = tanh(%1) : f32[batch, 6]\n"
                                     "return %0 as \"p\", %2 as \"q\"\n}\n";
static const char outputs_swapped[] = TWO_IN DOT("0", "x", "w", "[batch, 6]")
    DOT("1", "x", "v", "[batch, 6]") "%2 = tanh(%1) : f32[batch, 6]\n"
                                     "return %2 as \"second\", %0 as \"first\"\n}\n";

/* concat(x w, x v), and in one contraction */
#define CAT(to, a, b, axis, shape) \
    "%" to " = concatenate(%" a ", %" b ") {axis = " axis "} : f32" shape "\n"
static const char split_dots[] =
    TWO_IN DOT("0", "x", "w", "[batch, 6]") DOT("1", "x", "v", "[batch, 6]")
        CAT("2", "0", "1", "1",
            "[batch, 12]") "%3 = tanh(%2) : f32[batch, 12]\nreturn %3 as \"y\"\n}\n";
static const char merged_dots[] = TWO_IN CAT("0", "w", "v", "1", "[8, 12]")
    DOT("1", "x", "0", "[batch, 12]") "%2 = tanh(%1) : f32[batch, 12]\nreturn %2 as \"y\"\n}\n";
static const char merged_swapped[] = TWO_IN CAT("0", "v", "w", "1", "[8, 12]")
    DOT("1", "x", "0", "[batch, 12]") "%2 = tanh(%1) : f32[batch, 12]\nreturn %2 as \"y\"\n}\n";

/* ---- asking ---- */

static sx_core_request request_of(const char *text, const sx_binding *batch,
                                  sx_core_library *library)
{
    return (sx_core_request){.ir = sx_span_of(text),
                             .target = SX_SPAN_LITERAL("x86-64-v3"),
                             .binding = batch,
                             .binding_count = 1,
                             .library = library};
}

static const sx_binding batch_4 = {{(const uint8_t *)"batch", 5}, 4};

/* The program that comes out, and by the certificate checked. */
static sx_span optimized(const char *text, sx_core_library *library)
{
    sx_image image;
    sx_core_proof proof;
    sx_image_init(&image);
    sx_core_request request = request_of(text, &batch_4, library);
    cx.stage_count = 0;
    ck_sx_ok(&cx, sx_core_optimize(&cx, &request, &image));
    char *copy = sx_alloc_text(&cx, sx_buf_span(&image.optimized));
    sx_span out = {(const uint8_t *)copy, image.optimized.len};
    ck_assert_uint_gt(image.proof.len, 0);
    ck_sx_ok(&cx, sx_core_prove(&cx, sx_buf_span(&image.proof), &proof));
    sx_buf input;
    sx_buf_init(&input, (size_t)1 << 20);
    ck_sx_ok(&cx, sx_graph_print(&cx, proof.input, &input));
    ck_assert(sx_span_equal(sx_buf_span(&input), sx_buf_span(&image.program)));
    sx_buf_clear(&input);
    ck_sx_ok(&cx, sx_graph_print(&cx, proof.output, &input));
    ck_assert(sx_span_equal(sx_buf_span(&input), out));
    sx_buf_fini(&input);
    sx_image_fini(&image);
    return out;
}

/* The e-graph that optimizing leaves, aligned. */
static sx_span stored_graph(const char *text)
{
    sx_buf egraph;
    sx_core_library library = {.egraph = &egraph};
    sx_buf_init(&egraph, (size_t)64 << 20);
    (void)optimized(text, &library);
    ck_assert(!library.met && egraph.len > 0);
    uint8_t *copy = sx_alloc(&cx, egraph.len + 64);
    copy += 64 - (uintptr_t)copy % 64;
    memcpy(copy, egraph.ptr, egraph.len);
    sx_span bytes = {copy, egraph.len};
    sx_buf_fini(&egraph);
    return bytes;
}

/* ---- judging ---- */

static sx_graph *bound_graph(sx_span text)
{
    sx_graph *graph, *bound;
    ck_sx_ok(&cx, sx_graph_parse(&cx, text, &graph));
    ck_sx_ok(&cx, sx_graph_bind(&cx, graph, &batch_4, 1, &bound));
    return bound;
}

/* Values of a parameter by its name alone. */
static sx_tensor values_of(const sx_graph *graph, const sx_node *node)
{
    int64_t count = sx_tensor_elements(&node->type);
    double *value = SX_NEW_ARRAY(&cx, double, (size_t)count);
    sx_rng rng = {sx_hash64(sx_graph_attr(graph, node)->name, 5)};
    for (int64_t i = 0; i < count; i++) {
        int64_t whole = (int64_t)sx_rng_below(&rng, 11); /* tokens */
        value[i] = (double)sx_rng_f32(&rng);
        if (node->type.dtype == SX_I32) {
            memcpy(&value[i], &whole, sizeof(whole));
        }
    }
    return (sx_tensor){node->type, value};
}

static sx_tensor *evaluate(const sx_graph *graph)
{
    sx_tensor *argument = SX_NEW_ARRAY(&cx, sx_tensor, graph->node_count + 1);
    sx_tensor *result = SX_NEW_ARRAY(&cx, sx_tensor, graph->output_count + 1);
    uint32_t count = 0;
    for (uint32_t i = 0; i < graph->node_count; i++) {
        if (graph->node[i].op == SX_OP_PARAMETER) {
            argument[count++] = values_of(graph, &graph->node[i]);
        }
    }
    ck_sx_ok(&cx,
             sx_graph_eval(&cx, graph, SX_EVAL_F64, argument, count, result, graph->output_count));
    return result;
}

/* Same interface in the same order, same values. */
static void check_equal(const char *asked, sx_span answer)
{
    sx_graph *a = bound_graph(sx_span_of(asked));
    sx_graph *b = bound_graph(answer);
    ck_assert_uint_eq(a->output_count, b->output_count);
    sx_tensor *x = evaluate(a);
    sx_tensor *y = evaluate(b);
    for (uint32_t i = 0; i < a->output_count; i++) {
        ck_assert(sx_span_equal(a->output[i].name, b->output[i].name));
        ck_assert(sx_type_equal(&x[i].type, &y[i].type));
        for (int64_t k = 0; k < sx_tensor_elements(&x[i].type); k++) {
            ck_assert_double_eq_tol(((double *)x[i].data)[k], ((double *)y[i].data)[k], 1e-12);
        }
    }
    for (uint32_t i = 0, k = 0; i < a->node_count; i++) {
        if (a->node[i].op == SX_OP_PARAMETER) {
            ck_assert_int_eq(b->node[k].op, SX_OP_PARAMETER);
            ck_assert(sx_span_equal(sx_graph_attr(a, &a->node[i])->name,
                                    sx_graph_attr(b, &b->node[k])->name));
            k++;
        }
    }
}

static const struct {
    const char *name, *stored, *asked;
    bool meets;
    const char *rule; /* among those named; NULL: none asked for */
} meetings[] = {
    {"itself", layer, layer, true, NULL},
    {"commuted", layer, commuted, true, "add-commute"},
    {"commuted, the other way", commuted, layer, true, "add-commute"},
    {"renamed and reordered", layer, renamed, true, NULL},
    {"transposed weights", layer, transposed, true, "dot-transpose-right"},
    {"transposed weights, the other way", transposed, layer, true, "dot-transpose-right"},
    {"relu spelled out", layer, spelled_relu, true, "relu"},
    {"association", sum_left, sum_right, true, "add-associate"},
    {"association, the other way", sum_right, sum_left, true, "add-associate"},
    {"factored", two_dots, one_dot, true, "dot-factor-left"},
    {"distributed", one_dot, two_dots, true, NULL},
    {"outputs in another order", two_outputs, outputs_swapped, true, NULL},
    {"merged", split_dots, merged_dots, true, NULL},
    {"split", merged_dots, split_dots, true, NULL},
    {"merged, other weights first", split_dots, merged_swapped, false, NULL},
    {"without relu", layer, no_relu, false, NULL},
    {"another sign", layer, other_sign, false, NULL},
    {"one operand twice", sum_left, sum_twice, false, NULL},
    {"another interface", layer, sum_left, false, NULL},
};

START_TEST(test_meetings)
{
    sx_span stored = stored_graph(meetings[_i].stored);
    sx_core_candidate candidate = {.egraph = stored};
    sx_buf egraph;
    sx_buf_init(&egraph, (size_t)64 << 20);
    sx_core_library library = {.candidate = &candidate, .candidate_count = 1, .egraph = &egraph};
    sx_span text = optimized(meetings[_i].asked, &library);
    ck_assert_msg(library.refused == 0, "%s: %.*s", meetings[_i].name, (int)library.why.len,
                  (const char *)library.why.ptr);
    ck_assert_msg(library.met == meetings[_i].meets, "%s: met %d", meetings[_i].name, library.met);
    ck_assert((egraph.len == 0) == library.met); /* what was met is not stored again */
    check_equal(meetings[_i].asked, text);
    if (meetings[_i].rule != NULL) {
        const char *rules = sx_alloc_text(&cx, library.rules);
        ck_assert_msg(strstr(rules, meetings[_i].rule) != NULL, "%s: by %s", meetings[_i].name,
                      rules);
    }
    sx_buf_fini(&egraph);
}
END_TEST

/* Equal programs are looked up in one place, others elsewhere; so do options and targets. */
START_TEST(test_family)
{
    for (uint32_t i = 0; i < SX_COUNT(meetings); i++) {
        sx_key a, b;
        sx_core_request x = request_of(meetings[i].stored, &batch_4, NULL);
        sx_core_request y = request_of(meetings[i].asked, &batch_4, NULL);
        ck_sx_ok(&cx, sx_core_family(&cx, &x, &a));
        ck_sx_ok(&cx, sx_core_family(&cx, &y, &b));
        ck_assert_msg(!meetings[i].meets || sx_key_equal(&a, &b), "%s", meetings[i].name);
        bool same_point =
            meetings[i].asked == sum_twice ||
            meetings[i].asked == merged_swapped; /* inputs of one type have one value there */
        ck_assert_msg(meetings[i].meets || sx_key_equal(&a, &b) == same_point, "%s",
                      meetings[i].name);
    }
    sx_key a, b, c, d;
    sx_core_request request = request_of(layer, &batch_4, NULL);
    ck_sx_ok(&cx, sx_core_family(&cx, &request, &a));
    request.no_reassociate = true;
    ck_sx_ok(&cx, sx_core_family(&cx, &request, &b));
    request.no_reassociate = false;
    request.target = SX_SPAN_LITERAL("x86-64-v4");
    ck_sx_ok(&cx, sx_core_family(&cx, &request, &c));
    request.target = SX_SPAN_LITERAL("x86-64-v3");
    sx_binding batch_5 = {batch_4.name, 5};
    request.binding = &batch_5;
    ck_sx_ok(&cx, sx_core_family(&cx, &request, &d));
    ck_assert(!sx_key_equal(&a, &b) && !sx_key_equal(&a, &c));
    ck_assert(sx_key_equal(&a, &d)); /* extents are bound later */
}
END_TEST

/* ---- modules ---- */

static sx_span module_of(const char *text, sx_core_library *library)
{
    sx_buf module;
    sx_buf_init(&module, (size_t)64 << 20);
    sxr_verify_options verify = SXR_VERIFY_DEFAULT;
    sx_core_request request = request_of(text, &batch_4, library);
    cx.stage_count = 0;
    ck_sx_ok(&cx, sxr_compile_verified(&cx, &request, &verify, &module));
    uint8_t *copy = sx_alloc(&cx, module.len + 64);
    copy += 64 - (uintptr_t)copy % 64;
    memcpy(copy, module.ptr, module.len);
    sx_span bytes = {copy, module.len};
    sx_buf_fini(&module);
    return bytes;
}

static void check_module(const char *asked, sx_span bytes, const char *target)
{
    if (!sx_test_can_run(target)) {
        return;
    }
    sxr_program *program = sx_test_open(&cx, bytes, 1, SX_FILL_SMOOTH);
    const sx_module *module = sxr_module(program);
    sx_module_check check;
    ck_sx_ok(&cx, sxr_run(&cx, program, NULL));
    ck_sx_ok(&cx, sxr_check_program(&cx, program, &check));
    sx_key key;
    sx_span part[SX_PART_COUNT];
    sx_core_request request = request_of(asked, &batch_4, NULL);
    ck_sx_ok(&cx, sx_core_key(&cx, &request, &key, part));
    ck_assert(memcmp(module->info->key, key.byte, sizeof(key.byte)) == 0);
    sxr_close(program);
}

/* The module of the stored program serves under other names; at other extents the extraction is compiled. */
START_TEST(test_module_reused)
{
    sx_buf egraph;
    sx_buf_init(&egraph, (size_t)64 << 20);
    sx_core_library first = {.egraph = &egraph};
    sx_span stored = module_of(layer, &first);
    uint8_t *copy = sx_alloc(&cx, egraph.len + 64);
    copy += 64 - (uintptr_t)copy % 64;
    memcpy(copy, egraph.ptr, egraph.len);
    sx_core_candidate candidate = {.egraph = {copy, egraph.len}, .module = stored};
    static const char *const asked[] = {commuted, renamed, transposed};
    for (uint32_t i = 0; i < SX_COUNT(asked); i++) {
        sx_core_library library = {.candidate = &candidate, .candidate_count = 1};
        sx_span module = module_of(asked[i], &library);
        ck_assert(library.met && library.reused);
        check_module(asked[i], module, "x86-64-v3");
    }
    candidate.module = (sx_span){NULL, 0};
    sx_core_library library = {.candidate = &candidate, .candidate_count = 1};
    sx_span module = module_of(renamed, &library);
    ck_assert(library.met && !library.reused);
    check_module(renamed, module, "x86-64-v3");
    candidate.module = module_of(no_relu, NULL); /* of another program: not taken */
    library = (sx_core_library){.candidate = &candidate, .candidate_count = 1};
    module = module_of(commuted, &library);
    ck_assert(library.met && !library.reused);
    check_module(commuted, module, "x86-64-v3");
    sx_buf_fini(&egraph);
}
END_TEST

START_TEST(test_twin)
{
    sx_span stored = stored_graph(layer);
    sx_core_request request = request_of(layer, &batch_4, NULL);
    sx_key key, twin;
    sx_span part[SX_PART_COUNT];
    ck_sx_ok(&cx, sx_core_key(&cx, &request, &key, part));
    request.ir = sx_span_of(commuted);
    ck_sx_ok(&cx, sx_core_twin(&cx, &request, stored, &twin));
    ck_assert(sx_key_equal(&key, &twin));
    request.no_reassociate = true;
    ck_sx_fails(&cx, sx_core_twin(&cx, &request, stored, &twin), SX_ABSENT, "another set of rules");
}
END_TEST

/* ---- hostile ---- */

/* Two classes of a stored graph made one although they are not equal, in every section that names them: the checker of certificates does
 * not follow. */
static void forge(uint8_t *bytes, size_t len, uint16_t op)
{
    sx_snapshot_header h;
    sx_snapshot_section s[SX_SNAPSHOT_SECTIONS_MAX] = {{0}};
    memcpy(&h, bytes, sizeof(h));
    for (uint32_t i = 0; i < h.section_count; i++) {
        sx_snapshot_section row;
        memcpy(&row, bytes + sizeof(h) + i * sizeof(row), sizeof(row));
        s[row.kind] = row;
    }
    const sx_snapshot_node *node = (void *)(bytes + s[SX_SNAPSHOT_NODE].offset);
    uint32_t *class_ = (void *)(bytes + s[SX_SNAPSHOT_CLASS].offset);
    uint32_t *up = (void *)(bytes + s[SX_SNAPSHOT_PROOF_UP].offset);
    uint32_t *why = (void *)(bytes + s[SX_SNAPSHOT_PROOF_RULE].offset);
    sx_snapshot_choice *choice = (void *)(bytes + s[SX_SNAPSHOT_CHOICE].offset);
    uint32_t found[2] = {0, 0};
    uint32_t count = 0;
    for (uint32_t n = 0; n < h.node_count && count < 2; n++) {
        if (node[n].op == op && class_[n] == n) {
            found[count++] = n;
        }
    }
    ck_assert_uint_eq(count, 2);
    for (uint32_t n = 0; n < h.node_count; n++) {
        if (class_[n] == found[1]) {
            class_[n] = found[0];
            if (up[n] ==
                n) { /* the root of its tree, now below the other class, for some reason that exists */
                up[n] = found[0];
                why[n] = 0;
            }
        }
    }
    for (uint32_t i = 0; i < s[SX_SNAPSHOT_CHOICE].size / sizeof(*choice); i++) {
        if (choice[i].class_ == found[1]) {
            choice[i].class_ = found[0];
        }
    }
    h.class_count--;
    memcpy(bytes, &h, sizeof(h));
    sx_test_reseal(bytes, len);
}

START_TEST(test_forged)
{
    static const char two[] =
        SUM_IN "%0 = subtract(%x, %u) : f32[batch, 8]\n"
               "%1 = subtract(%x, %v) : f32[batch, 8]\n"
               "%2 = tanh(%0) : f32[batch, 8]\n%3 = tanh(%1) : f32[batch, 8]\n"
               "return %2 as \"y\", %3 as \"z\"\n}\n";
    sx_span stored = stored_graph(two);
    uint8_t *bytes = sx_alloc(&cx, stored.len + 64);
    bytes += 64 - (uintptr_t)bytes % 64;
    memcpy(bytes, stored.ptr, stored.len);
    forge(bytes, stored.len, SX_OP_TANH);
    sx_core_candidate candidate = {.egraph = {bytes, stored.len}};
    sx_core_library library = {.candidate = &candidate, .candidate_count = 1};
    sx_span text = optimized(two, &library);
    ck_assert_msg(library.refused == 0, "%.*s", (int)library.why.len,
                  (const char *)library.why.ptr); /* the form is good */
    ck_assert(!library.met);
    check_equal(two, text);
    library = (sx_core_library){.candidate = &candidate, .candidate_count = 1};
    sx_span module = module_of(two, &library); /* here the interpreter has the last word */
    ck_assert(!library.met);
    check_module(two, module, "x86-64-v3");
}
END_TEST

/* Words of a stored program altered, checksums made good: refused, not met, or met with a right answer. */
START_TEST(test_altered)
{
    sx_rng rng = {sx_test_seed()};
    sx_span stored = stored_graph(layer);
    uint32_t refused = 0;
    uint8_t *bytes = sx_alloc(&cx, stored.len + 64);
    bytes += 64 - (uintptr_t)bytes % 64;
    sx_snapshot_header h;
    memcpy(&h, stored.ptr, sizeof(h));
    for (uint32_t trial = 0; trial < 150; trial++) {
        memcpy(bytes, stored.ptr, stored.len);
        sx_snapshot_section s;
        uint32_t row = (uint32_t)sx_rng_below(&rng, h.section_count);
        memcpy(&s, bytes + sizeof(h) + row * sizeof(s), sizeof(s));
        size_t at = (size_t)s.offset + sx_rng_below(&rng, s.size / 4 + 1) / 1 * 4;
        at = at + 4 <= stored.len ? at : 0;
        uint32_t word = (uint32_t)sx_rng_below(&rng, 70) - (trial % 4 == 0 ? 8u : 0u);
        memcpy(bytes + at, &word, sizeof(word));
        sx_test_reseal(bytes, stored.len);
        sx_core_candidate candidate = {.egraph = {bytes, stored.len}};
        sx_core_library library = {.candidate = &candidate, .candidate_count = 1};
        sx_ctx kept = cx;
        sx_ctx_init(&cx, (size_t)1 << 29);
        check_equal(commuted, optimized(commuted, &library));
        refused += library.refused != 0 ? 1 : 0;
        sx_ctx_fini(&cx);
        cx = kept;
    }
    ck_assert_uint_gt(refused, 20);
}
END_TEST

/* ---- programs of equal layers ---- */

static const char *transformer(uint32_t layers)
{
    sx_transformer options = sx_transformer_default(layers);
    options.hidden = 16;
    options.heads = 2;
    options.ffn = 24;
    options.seq = 4;
    options.vocab = 11;
    sx_buf text;
    sx_buf_init(&text, (size_t)4 << 20);
    sx_transformer_print(&options, &text);
    const char *copy = sx_alloc_text(&cx, sx_buf_span(&text));
    sx_buf_fini(&text);
    return copy;
}

/* The operands of every addition and multiplication the other way round, and weights called otherwise. */
static const char *respelled(const char *text)
{
    sx_buf out;
    sx_buf_init(&out, (size_t)4 << 20);
    while (*text != 0) {
        bool swaps = strncmp(text, " add(", 5) == 0 || strncmp(text, " multiply(", 10) == 0;
        if (strncmp(text, "{name = \"d", 10) == 0) {
            sx_buf_put_text(&out, "{name = \"layer");
            text += 10;
        } else if (swaps) {
            const char *open = strchr(text, '('), *comma = strchr(open, ','),
                       *close = strchr(comma, ')');
            sx_buf_print(&out, "%.*s%.*s, %.*s", (int)(open + 1 - text), text,
                         (int)(close - comma - 2), comma + 2, (int)(comma - open - 1), open + 1);
            text = close;
        } else {
            sx_buf_put_u8(&out, (uint8_t)*text++);
        }
    }
    const char *copy = sx_alloc_text(&cx, sx_buf_span(&out));
    sx_buf_fini(&out);
    return copy;
}

/* x + (x w + b) v in every layer, with more around it; `right` associates the sums of three the other way. */
static const char *stack(uint32_t layers, bool right, const char *prefix)
{
    sx_buf t;
    sx_buf_init(&t, (size_t)4 << 20);
    sx_buf_put_text(&t, HEAD X);
    for (uint32_t i = 0; i < layers; i++) {
        sx_buf_print(&t, "%%w%u = parameter {name = \"%sw%u\", weight = 1} : f32[8, 8]\n", i,
                     prefix, i);
        sx_buf_print(&t, "%%b%u = parameter {name = \"%sb%u\", weight = 1} : f32[8]\n", i, prefix,
                     i);
        sx_buf_print(&t, "%%v%u = parameter {name = \"%sv%u\", weight = 1} : f32[8, 8]\n", i,
                     prefix, i);
    }
    char in[16] = "x";
    for (uint32_t i = 0; i < layers; i++) {
        static const char *const op[] = {"tanh", "exponential", "negate", "logistic", "abs"};
#define TYPE " : f32[batch, 8]\n"
#define CONTRACT " {lhs_contract = [1], rhs_contract = [0]}" TYPE
        sx_buf_print(&t, "%%l%u_d = dot_general(%%%s, %%w%u)" CONTRACT, i, in, i);
        sx_buf_print(&t, "%%l%u_r = broadcast_in_dim(%%b%u) {dims = [1]}" TYPE, i, i);
        sx_buf_print(&t, "%%l%u_t = tanh(%%l%u_d)" TYPE, i, i);
        if (right) {
            sx_buf_print(&t, "%%l%u_p = add(%%l%u_r, %%l%u_t)" TYPE, i, i, i);
            sx_buf_print(&t, "%%l%u_s = add(%%l%u_d, %%l%u_p)" TYPE, i, i, i);
        } else {
            sx_buf_print(&t, "%%l%u_p = add(%%l%u_d, %%l%u_r)" TYPE, i, i, i);
            sx_buf_print(&t, "%%l%u_s = add(%%l%u_p, %%l%u_t)" TYPE, i, i, i);
        }
        char last[24];
        snprintf(last, sizeof(last), "l%u_s", i);
        for (uint32_t k = 0; k < SX_COUNT(op); k++) {
            sx_buf_print(&t, "%%l%u_%u = %s(%%%s)" TYPE, i, k, op[k], last);
            snprintf(last, sizeof(last), "l%u_%u", i, k);
        }
        sx_buf_print(&t, "%%l%u_e = dot_general(%%%s, %%v%u)" CONTRACT, i, last, i);
        sx_buf_print(&t, "%%l%u_f = tanh(%%l%u_e)" TYPE, i, i);
        sx_buf_print(&t, "%%l%u_o = add(%%%s, %%l%u_f)" TYPE, i, in, i);
        snprintf(in, sizeof(in), "l%u_o", i);
    }
    sx_buf_print(&t, "return %%%s as \"y\"\n}\n", in);
    const char *copy = sx_alloc_text(&cx, sx_buf_span(&t));
    sx_buf_fini(&t);
    return copy;
}

/* Every stage of the search is either the meeting or nothing. */
static bool saturated(void)
{
    for (uint32_t i = 0; i < cx.stage_count; i++) {
        if (strcmp(cx.stage[i].name, "saturate") == 0) {
            return true;
        }
    }
    return false;
}

static void check_layers(const char *stored, const char *asked, const char *rule)
{
    sx_span bundle = stored_graph(stored);
    ck_assert(sx_bundle_is(bundle) && saturated());
    sx_core_candidate candidate = {.egraph = bundle};
    sx_core_library library = {.candidate = &candidate, .candidate_count = 1};
    (void)optimized(stored, &library);
    ck_assert(library.met && library.rules.len == 0);
    library = (sx_core_library){.candidate = &candidate, .candidate_count = 1};
    sx_span text = optimized(asked, &library);
    ck_assert_msg(library.refused == 0, "%.*s", (int)library.why.len,
                  (const char *)library.why.ptr);
    ck_assert(library.met && !saturated());
    ck_assert_ptr_nonnull(strstr(sx_alloc_text(&cx, library.rules), rule));
    check_equal(asked, text);
    sx_key a, b;
    sx_core_request x = request_of(stored, &batch_4, NULL);
    sx_core_request y = request_of(asked, &batch_4, NULL);
    ck_sx_ok(&cx, sx_core_family(&cx, &x, &a));
    ck_sx_ok(&cx, sx_core_family(&cx, &y, &b));
    ck_assert(sx_key_equal(&a, &b));
    sx_span part[SX_PART_COUNT];
    ck_sx_ok(&cx, sx_core_key(&cx, &x, &a, part));
    ck_sx_ok(&cx, sx_core_twin(&cx, &y, bundle, &b));
    ck_assert(sx_key_equal(&a, &b));
}

static const uint32_t depths[] = {4, 12};

START_TEST(test_layers_commuted)
{
    const char *text = transformer(depths[_i]);
    check_layers(text, respelled(text), "commute");
}
END_TEST

START_TEST(test_layers_association)
{
    check_layers(stack(depths[_i], false, ""), stack(depths[_i], true, "m"), "add-associate");
}
END_TEST

/* What the stored program became, under the names of this one. */
START_TEST(test_layers_same_result)
{
    const char *stored = stack(5, false, "");
    sx_span bundle = stored_graph(stored);
    sx_core_candidate candidate = {.egraph = bundle};
    sx_core_library library = {.candidate = &candidate, .candidate_count = 1};
    sx_span plain = optimized(stored, NULL);
    sx_span met = optimized(stored, &library);
    ck_assert(library.met && sx_span_equal(plain, met));
}
END_TEST

/* Another count of layers, another wiring of equal parts, cut short, or altered. */
START_TEST(test_layers_unequal)
{
    sx_span bundle = stored_graph(stack(4, false, ""));
    sx_core_candidate candidate = {.egraph = bundle};
    static const uint32_t other[] = {3, 5, 12};
    for (uint32_t i = 0; i < SX_COUNT(other); i++) {
        sx_core_library library = {.candidate = &candidate, .candidate_count = 1};
        const char *asked = stack(other[i], false, "");
        check_equal(asked, optimized(asked, &library));
        ck_assert(!library.met && library.refused == 0);
    }
    sx_core_library library = {.candidate = &candidate, .candidate_count = 1};
    char *shared = sx_alloc_text(&cx, sx_span_of(stack(4, false, "")));
    char *at = strstr(shared, "dot_general(%l1_o, %w2)"); /* w1 for w2: w2 is of no use */
    ck_assert_ptr_nonnull(at);
    at[strlen("dot_general(%l1_o, %w")] = '1';
    check_equal(shared, optimized(shared, &library));
    ck_assert(!library.met && library.refused == 0);
}
END_TEST

/* Four layers over three matrices: layer i reads matrix which[i]. */
static const char *tied(const char *which)
{
    char *text = sx_alloc_text(&cx, sx_span_of(stack(4, false, "")));
    char *last = strstr(text, "%w3 = ");
    char *end = strchr(last, '\n') + 1;
    memmove(last, end, strlen(end) + 1);
    char *at = text;
    for (uint32_t i = 0; i < 4; i++) {
        at = strstr(at, ", %w") + strlen(", %w");
        *at = which[i];
    }
    return text;
}

/* All matrices are read in both, but not by the same layers. */
START_TEST(test_layers_tied)
{
    sx_core_candidate candidate = {.egraph = stored_graph(tied("0112"))};
    sx_core_library library = {.candidate = &candidate, .candidate_count = 1};
    const char *asked = tied("2001");
    check_equal(asked, optimized(asked, &library));
    ck_assert(library.met); /* other names for the same */
    library = (sx_core_library){.candidate = &candidate, .candidate_count = 1};
    asked = tied("0122");
    check_equal(asked, optimized(asked, &library));
    ck_assert(!library.met && library.refused == 0);
}
END_TEST

/* `bundle` with 4 bytes at `at` altered; the digest of header and tables made good if `sealed`. */
static bool refused_altered(sx_span bundle, size_t at, uint32_t word, bool sealed)
{
    const char *asked = stack(4, true, "m");
    uint8_t *bytes = sx_alloc(&cx, bundle.len + 64);
    bytes += 64 - (uintptr_t)bytes % 64;
    memcpy(bytes, bundle.ptr, bundle.len);
    memcpy(bytes + at, &word, sizeof(word));
    sx_bundle_header h;
    memcpy(&h, bytes, sizeof(h));
    size_t tables = sizeof(h) + (size_t)h.part_count * sizeof(sx_bundle_part) +
                    (size_t)h.word_count * sizeof(uint32_t);
    if (sealed && tables <= bundle.len) {
        h.digest = 0;
        memcpy(bytes, &h, sizeof(h));
        h.digest = sx_hash64((sx_span){bytes, tables}, 0);
        memcpy(bytes, &h, sizeof(h));
    }
    sx_core_candidate candidate = {.egraph = {bytes, bundle.len}};
    sx_core_library library = {.candidate = &candidate, .candidate_count = 1};
    sx_span text = optimized(asked, &library);
    if (library.met) {
        check_equal(asked, text);
    }
    return library.refused != 0;
}

START_TEST(test_layers_hostile)
{
    sx_rng rng = {sx_test_seed()};
    sx_span bundle = stored_graph(stack(4, false, ""));
    sx_key rules;
    sx_bundle_header h;
    sx_bundle opened;
    memcpy(&h, bundle.ptr, sizeof(h));
    rules = h.rules;
    size_t tables = sizeof(h) + h.part_count * sizeof(sx_bundle_part) + h.word_count * 4;
    ck_sx_ok(&cx, sx_bundle_open(&cx, bundle, &rules, &opened));
    for (size_t len = 8; len < bundle.len; len += len < tables + 8 ? 4 : 1001) {
        ck_sx_fails(&cx, sx_bundle_open(&cx, (sx_span){bundle.ptr, len}, &rules, &opened),
                    SX_CORRUPT, "bundle");
        sx_ctx_reset_error(&cx);
    }
    uint32_t refused = 0;
    for (uint32_t trial = 0; trial < 24; trial++) {
        sx_ctx kept = cx;
        sx_ctx_init(&cx, (size_t)1 << 29);
        size_t at = 8 + sx_rng_below(&rng, (tables - 12) / 4) * 4;
        uint32_t word = (uint32_t)sx_rng_below(&rng, 12) - (trial % 3 == 0 ? 8u : 0u);
        refused += refused_altered(bundle, at, word, trial % 4 != 0) ? 1 : 0;
        sx_ctx_fini(&cx);
        cx = kept;
    }
    ck_assert_uint_gt(refused, 4);
    sx_bundle_part first;
    memcpy(&first, bundle.ptr + sizeof(h), sizeof(first));
    ck_assert(refused_altered(bundle, (size_t)first.offset + 64, 77, true));
    ck_assert(refused_altered(bundle, 16, 1u << 30, false)); /* its count of uses */
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("semantic");
    TCase *tc = tcase_create("semantic");
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_set_timeout(tc, 60);
    tcase_add_loop_test(tc, test_meetings, 0, SX_COUNT(meetings));
    tcase_add_test(tc, test_family);
    tcase_add_test(tc, test_module_reused);
    tcase_add_test(tc, test_twin);
    tcase_add_test(tc, test_forged);
    tcase_add_test(tc, test_altered);
    tcase_add_loop_test(tc, test_layers_commuted, 0, SX_COUNT(depths));
    tcase_add_loop_test(tc, test_layers_association, 0, SX_COUNT(depths));
    tcase_add_test(tc, test_layers_same_result);
    tcase_add_test(tc, test_layers_unequal);
    tcase_add_test(tc, test_layers_tied);
    tcase_add_test(tc, test_layers_hostile);
    suite_add_tcase(suite, tc);
    return sx_test_main(suite);
}
