/* Programs that equal a stored one meet it, in whatever way they are written, and get its extraction under
 * their own names; others do not. The judge is the interpreter: what comes back is evaluated against the
 * program asked for. */
#include "tests/lib/test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "client/verify/verify.h"
#include "core/base/rng.h"
#include "core/core.h"
#include "core/store/library.h"
#include "tests/core/store/reseal.h"
#include "tests/core/stored.h"
#include "tests/lib/compiled.h"
#include "tests/lib/ir.h"

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
    ck_assert((library.kept_count == 0) == library.met); /* what was met is not stored again */
    check_equal(meetings[_i].asked, text);
    if (meetings[_i].rule != NULL) {
        const char *rules = sx_alloc_text(&cx, library.rules);
        ck_assert_msg(strstr(rules, meetings[_i].rule) != NULL, "%s: by %s", meetings[_i].name,
                      rules);
    }
    sx_buf_fini(&egraph);
}
END_TEST

static void family_of(const sx_core_request *request, sx_key *family)
{
    sx_core_place place[SX_CORE_PLACES_MAX];
    uint32_t count;
    ck_sx_ok(&cx, sx_core_places(&cx, request, NULL, place, &count));
    ck_assert_uint_eq(count, 1); /* nothing in them repeats */
    *family = place[0].family;
}

/* Equal programs are looked up in one place, others elsewhere; so do options and targets. */
START_TEST(test_family)
{
    for (uint32_t i = 0; i < SX_COUNT(meetings); i++) {
        sx_key a, b;
        sx_core_request x = request_of(meetings[i].stored, &batch_4, NULL);
        sx_core_request y = request_of(meetings[i].asked, &batch_4, NULL);
        family_of(&x, &a);
        family_of(&y, &b);
        ck_assert_msg(!meetings[i].meets || sx_key_equal(&a, &b), "%s", meetings[i].name);
        bool same_point =
            meetings[i].asked == sum_twice ||
            meetings[i].asked == merged_swapped; /* inputs of one type have one value there */
        ck_assert_msg(meetings[i].meets || sx_key_equal(&a, &b) == same_point, "%s",
                      meetings[i].name);
    }
    sx_key a, b, c, d;
    sx_core_request request = request_of(layer, &batch_4, NULL);
    family_of(&request, &a);
    request.no_reassociate = true;
    family_of(&request, &b);
    request.no_reassociate = false;
    request.target = SX_SPAN_LITERAL("x86-64-v4");
    family_of(&request, &c);
    request.target = SX_SPAN_LITERAL("x86-64-v3");
    sx_binding batch_5 = {batch_4.name, 5};
    request.binding = &batch_5;
    family_of(&request, &d);
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
    if (library != NULL) {
        set_places(text, library);
    }
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

static void check_module(const char *asked, sx_span bytes)
{
    sxr_program *program = sx_test_open(&cx, bytes, 1, SX_FILL_SMOOTH);
    const sx_module *module = sxr_module(program);
    sx_module_check check;
    ck_sx_ok(&cx, sxr_run(&cx, program, NULL));
    ck_sx_ok(&cx, sxr_check_program(&cx, program, 0, &check));
    sx_key key;
    sx_span part[SX_PART_COUNT];
    sx_core_request request = request_of(asked, &batch_4, NULL);
    ck_sx_ok(&cx, sx_core_key(&cx, &request, &key, part));
    ck_assert(memcmp(module->info->key, key.byte, sizeof(key.byte)) == 0);
    sxr_close(program);
}

/* The module of the stored program serves under other names; at other extents the extraction is compiled. */
/* Elements that were compared when the module was verified: of its kernels, and of the whole program. */
static uint64_t compared(sx_span bytes, bool kernels)
{
    static const char program[] = "program as sent, all outputs";
    sx_module module;
    uint64_t points = 0;
    ck_sx_ok(&cx, sx_module_decode(&cx, bytes, true, &module));
    for (uint32_t i = 0; i < module.check_count; i++) {
        bool is_program = sx_span_is(sx_module_string(&module, module.check[i].name), program);
        points += is_program != kernels ? module.check[i].points : 0;
    }
    return points;
}

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
        check_module(asked[i], module);
        /* as thoroughly as a fresh one */
        ck_assert_uint_gt(compared(module, false), 0);
        ck_assert_uint_eq(compared(module, false), compared(stored, false));
        ck_assert_uint_gt(compared(module, true), 0);
        ck_assert_uint_eq(compared(module, true), compared(stored, true));
    }
    candidate.module = (sx_span){NULL, 0};
    sx_core_library library = {.candidate = &candidate, .candidate_count = 1};
    sx_span module = module_of(renamed, &library);
    ck_assert(library.met && !library.reused);
    check_module(renamed, module);
    candidate.module = module_of(no_relu, NULL); /* of another program: not taken */
    library = (sx_core_library){.candidate = &candidate, .candidate_count = 1};
    module = module_of(commuted, &library);
    ck_assert(library.met && !library.reused);
    check_module(commuted, module);
    sx_buf_fini(&egraph);
}
END_TEST

/* A program that keeps state meets the stored e-graph of one that does not, as its values are the same; no module is
 * taken over, neither way. */
START_TEST(test_state)
{
#define STATE(role, into)                                                    \
    HEAD X "%u = parameter {name = \"u\", weight = 0} : f32[batch, 8] " role \
           "\n" ADD("0", "x", "u",                                           \
                    "[batch, 8]") "%1 = tanh(%0) : f32[batch, 8]\nreturn %1 as \"y\"" into "\n}\n"
    static const char *const text[] = {STATE("", ""), STATE("state = 1", " into \"u\""),
                                       STATE("donated", " into \"u\"")};
    for (uint32_t i = 0; i < SX_COUNT(text); i++) {
        sx_buf egraph;
        sx_buf_init(&egraph, (size_t)64 << 20);
        sx_core_library first = {.egraph = &egraph};
        sx_span stored = module_of(text[i], &first);
        uint8_t *copy = sx_alloc(&cx, egraph.len + 64);
        copy += 64 - (uintptr_t)copy % 64;
        memcpy(copy, egraph.ptr, egraph.len);
        sx_core_candidate candidate = {.egraph = {copy, egraph.len}, .module = stored};
        for (uint32_t k = 0; k < SX_COUNT(text); k++) {
            sx_core_library library = {.candidate = &candidate, .candidate_count = 1};
            sx_span module = module_of(text[k], &library);
            ck_assert_msg(library.met && library.reused == (i == 0 && k == 0), "%u %u", i, k);
            sxr_program *program = sx_test_open(&cx, module, 1, SX_FILL_SMOOTH);
            uint32_t state = sxr_find(program, SX_TENSOR_STATE, sx_span_of("u"));
            uint32_t y = sxr_find(program, SX_TENSOR_OUTPUT, sx_span_of("y"));
            ck_assert((state != UINT32_MAX) == (k == 1) && (y == UINT32_MAX) == (k == 1));
            ck_assert(y == UINT32_MAX || (sxr_alias(program, y) != SX_MODULE_NONE) == (k == 2));
            sxr_close(program);
        }
        sx_buf_fini(&egraph);
    }
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

START_TEST(test_forged)
{
    static const char two[] =
        SUM_IN "%0 = subtract(%x, %u) : f32[batch, 8]\n"
               "%1 = subtract(%x, %v) : f32[batch, 8]\n"
               "%2 = tanh(%0) : f32[batch, 8]\n%3 = tanh(%1) : f32[batch, 8]\n"
               "return %2 as \"y\", %3 as \"z\"\n}\n";
    sx_span stored = stored_graph(two);
    sx_core_candidate candidate = {.egraph = forged(stored, SX_OP_TANH)};
    sx_core_library library = {.candidate = &candidate, .candidate_count = 1};
    sx_span text = optimized(two, &library);
    ck_assert_msg(library.refused == 0, "%.*s", (int)library.why.len,
                  (const char *)library.why.ptr); /* the form is good */
    ck_assert(!library.met);
    check_equal(two, text);
    library = (sx_core_library){.candidate = &candidate, .candidate_count = 1};
    sx_span module = module_of(two, &library); /* here the interpreter has the last word */
    ck_assert(!library.met);
    check_module(two, module);
}
END_TEST

/* What comes of a stored program that was altered is right, whether it is refused, not met, or met. */
static bool is_refused(uint8_t *bytes, size_t len)
{
    sx_test_reseal(bytes, len);
    sx_core_candidate candidate = {.egraph = {bytes, len}};
    sx_core_library library = {.candidate = &candidate, .candidate_count = 1};
    sx_ctx kept = cx;
    sx_ctx_init(&cx, (size_t)1 << 29);
    check_equal(commuted, optimized(commuted, &library));
    sx_ctx_fini(&cx);
    cx = kept;
    return library.refused != 0;
}

static uint8_t *aligned_copy(sx_span stored)
{
    uint8_t *bytes = sx_alloc(&cx, stored.len + 64);
    bytes += 64 - (uintptr_t)bytes % 64;
    memcpy(bytes, stored.ptr, stored.len);
    return bytes;
}

/* Words altered at random, checksums made good. */
static uint32_t refused_of(uint64_t seed, uint32_t trials)
{
    sx_rng rng = {seed};
    sx_span stored = stored_graph(layer);
    uint32_t refused = 0;
    uint8_t *bytes = aligned_copy(stored);
    sx_snapshot_header h;
    memcpy(&h, stored.ptr, sizeof(h));
    for (uint32_t trial = 0; trial < trials; trial++) {
        memcpy(bytes, stored.ptr, stored.len);
        sx_snapshot_section s;
        uint32_t row = (uint32_t)sx_rng_below(&rng, h.section_count);
        memcpy(&s, bytes + sizeof(h) + row * sizeof(s), sizeof(s));
        size_t at = (size_t)s.offset + sx_rng_below(&rng, s.size / 4 + 1) * 4;
        at = at + 4 <= stored.len ? at : 0;
        uint32_t word = (uint32_t)sx_rng_below(&rng, 70) - (trial % 4 == 0 ? 8u : 0u);
        memcpy(bytes + at, &word, sizeof(word));
        refused += is_refused(bytes, stored.len) ? 1 : 0;
    }
    return refused;
}

START_TEST(test_altered)
{
    ck_assert_uint_gt(refused_of(sx_test_seed(), 150), 20);
}
END_TEST

/* Seeds that have found something: a choice with a hole in it. */
START_TEST(test_altered_known)
{
    static const uint64_t seed[] = {UINT64_C(1795548464961601)};
    ck_assert_uint_gt(refused_of(seed[_i], 150), 20);
}
END_TEST

static sx_snapshot_section section_of_kind(sx_span stored, uint32_t kind)
{
    sx_snapshot_header h;
    sx_snapshot_section s = {0};
    memcpy(&h, stored.ptr, sizeof(h));
    for (uint32_t i = 0; i < h.section_count && (i == 0 || s.kind != kind); i++) {
        memcpy(&s, stored.ptr + sizeof(h) + i * sizeof(s), sizeof(s));
    }
    ck_assert_uint_eq(s.kind, kind);
    return s;
}

/* Each class in turn without the node that was chosen for it; what needs the class is no program any more. */
START_TEST(test_holes)
{
    sx_span stored = stored_graph(layer);
    sx_snapshot_section s = section_of_kind(stored, SX_SNAPSHOT_CHOICE);
    uint8_t *bytes = aligned_copy(stored);
    uint32_t count = (uint32_t)(s.size / sizeof(sx_snapshot_choice));
    uint32_t refused = 0;
    ck_assert_uint_gt(count, 1);
    for (uint32_t i = 0; i < count; i++) {
        memcpy(bytes, stored.ptr, stored.len);
        uint8_t *row = bytes + s.offset;
        memcpy(row + i * sizeof(sx_snapshot_choice),
               row + (i + 1) % count * sizeof(sx_snapshot_choice), sizeof(sx_snapshot_choice));
        refused += is_refused(bytes, stored.len) ? 1 : 0;
    }
    ck_assert_uint_gt(refused, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("semantic");
    TCase *tc = tcase_create("semantic");
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_set_timeout(tc, 400);
    tcase_add_loop_test(tc, test_meetings, 0, SX_COUNT(meetings));
    tcase_add_test(tc, test_family);
    tcase_add_test(tc, test_module_reused);
    tcase_add_test(tc, test_state);
    tcase_add_test(tc, test_twin);
    tcase_add_test(tc, test_forged);
    suite_add_tcase(suite, tc);
    tc = tcase_create("altered");
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_set_timeout(tc, 400);
    tcase_add_test(tc, test_altered);
    tcase_add_loop_test(tc, test_altered_known, 0, 1);
    tcase_add_test(tc, test_holes);
    suite_add_tcase(suite, tc);
    return sx_test_main(suite);
}
