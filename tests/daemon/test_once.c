/* How often the program of one request is parsed and brought to canonical form: the linker sends the calls of the whole
 * program to the counters below (tests/CMakeLists.txt). */
#include "tests/lib/test.h"

#include <stdlib.h>
#include <string.h>

#include "core/ir/ir.h"
#include "core/ir/origin.h"
#include "daemon/daemon.h"

static uint32_t parsed, canonical, keyed, made_canonical;

sx_code __real_sx_graph_parse(sx_ctx *cx, sx_span text, sx_graph **graph);
sx_code __wrap_sx_graph_parse(sx_ctx *cx, sx_span text, sx_graph **graph);
sx_code __wrap_sx_graph_parse(sx_ctx *cx, sx_span text, sx_graph **graph)
{
    parsed++;
    return __real_sx_graph_parse(cx, text, graph);
}

sx_code __real_sx_graph_parse_named(sx_ctx *cx, sx_span text, sx_graph **graph);
sx_code __wrap_sx_graph_parse_named(sx_ctx *cx, sx_span text, sx_graph **graph);
sx_code __wrap_sx_graph_parse_named(sx_ctx *cx, sx_span text, sx_graph **graph)
{
    parsed++;
    return __real_sx_graph_parse_named(cx, text, graph);
}

sx_code __real_sx_graph_canon(sx_ctx *cx, const sx_graph *graph, sx_graph **out);
sx_code __wrap_sx_graph_canon(sx_ctx *cx, const sx_graph *graph, sx_graph **out);
sx_code __wrap_sx_graph_canon(sx_ctx *cx, const sx_graph *graph, sx_graph **out)
{
    canonical++;
    return __real_sx_graph_canon(cx, graph, out);
}

sx_code __real_sx_graph_canon_origins(sx_ctx *cx, const sx_graph *graph, sx_graph **out,
                                      sx_origins **origins);
sx_code __wrap_sx_graph_canon_origins(sx_ctx *cx, const sx_graph *graph, sx_graph **out,
                                      sx_origins **origins);
sx_code __wrap_sx_graph_canon_origins(sx_ctx *cx, const sx_graph *graph, sx_graph **out,
                                      sx_origins **origins)
{
    made_canonical++;
    return __real_sx_graph_canon_origins(cx, graph, out, origins);
}

sx_code __real_sx_graph_key(sx_ctx *cx, const sx_graph *graph, sx_key *key);
sx_code __wrap_sx_graph_key(sx_ctx *cx, const sx_graph *graph, sx_key *key);
/* This one makes the canonical form, too. */
sx_code __wrap_sx_graph_key(sx_ctx *cx, const sx_graph *graph, sx_key *key)
{
    canonical++;
    return __real_sx_graph_key(cx, graph, key);
}

sx_code __real_sx_graph_key_canonical(sx_ctx *cx, const sx_graph *graph, sx_key *key);
sx_code __wrap_sx_graph_key_canonical(sx_ctx *cx, const sx_graph *graph, sx_key *key);
sx_code __wrap_sx_graph_key_canonical(sx_ctx *cx, const sx_graph *graph, sx_key *key)
{
    keyed++;
    return __real_sx_graph_key_canonical(cx, graph, key);
}

static const char text[] =
    "sx 1\n"
    "graph \"p\" (b in [1, 16]) {\n"
    "    %0 = parameter {name = \"x\", weight = 0} : f32[b, 8]\n"
    "    %1 = parameter {name = \"w\", weight = 1} : f32[8, 8]\n"
    "    %2 = dot_general(%0, %1) {lhs_contract = [1], rhs_contract = [0]} : f32[b, 8]\n"
    "    %3 = tanh(%2) : f32[b, 8]\n"
    "    return %3 as \"y\"\n"
    "}\n";

/* Key and places of a request, as the daemon asks for them on its pool threads: one reading serves both, and the places
 * are those that a reading of their own gives. */
START_TEST(key_and_places)
{
    const sxd_backend *backend = &sxd_backend_core;
    sx_ctx cx;
    sx_ctx_init(&cx, (size_t)1 << 28);
    sx_pair dim = {.name = SX_SPAN_LITERAL("b"), .kind = SX_VALUE_INT, .integer = 4};
    sx_compile_args args = {.ir = {(const uint8_t *)text, sizeof(text) - 1}};
    args.dims.items = &dim;
    args.dims.count = 1;
    args.has |= SX_BIT(compile_args, dims);
    SX_PUT(&args, compile_args, target, SX_SPAN_LITERAL("x86-64-v3"));
    sxd_key key;
    sx_core_place place[SX_CORE_PLACES_MAX], own[SX_CORE_PLACES_MAX];
    uint32_t count, own_count;
    ck_sx_ok(&cx, backend->key(&cx, &args, &key));
    ck_sx_ok(&cx, backend->places(&cx, &args, key.program, place, &count));
    ck_assert_uint_eq(parsed, 1);
    ck_assert_uint_eq(canonical, 1);
    ck_assert_uint_eq(keyed, 1);
    ck_sx_ok(&cx, backend->places(&cx, &args, NULL, own, &own_count));
    ck_assert_uint_eq(parsed, 2); /* the counters count */
    ck_assert_uint_eq(own_count, count);
    for (uint32_t i = 0; i < count; i++) {
        ck_assert(sx_key_equal(&own[i].part, &place[i].part));
        ck_assert(sx_key_equal(&own[i].family, &place[i].family));
        ck_assert(sx_key_equal(&own[i].likes, &place[i].likes));
    }
    sx_ctx_fini(&cx);
}
END_TEST

/* A worker: it reads the program for itself, with the names of its nodes; the verification, which shares nothing with
 * the compiler, reads what was sent and what the module holds. The key is written into the module without another
 * canonical form. */
START_TEST(compile)
{
    const sxd_backend *backend = &sxd_backend_core;
    sx_ctx cx;
    sx_buf module;
    sx_ctx_init(&cx, (size_t)1 << 30);
    sx_buf_init(&module, (size_t)1 << 26);
    sx_compile_args args = {.ir = {(const uint8_t *)text, sizeof(text) - 1}};
    sx_pair dim = {.name = SX_SPAN_LITERAL("b"), .kind = SX_VALUE_INT, .integer = 4};
    args.dims.items = &dim;
    args.dims.count = 1;
    args.has |= SX_BIT(compile_args, dims);
    SX_PUT(&args, compile_args, target, SX_SPAN_LITERAL("x86-64-v3"));
    ck_sx_ok(&cx, backend->compile(&cx, &args, NULL, &module));
    sx_module view;
    sxd_key key;
    sx_span bytes = sx_buf_span(&module);
    ck_assert_uint_eq(parsed, 3);
    ck_assert_uint_eq(made_canonical, 1);
    ck_assert_uint_eq(canonical, 0);
    ck_assert_uint_eq(keyed, 1);
    void *copy = aligned_alloc(64, (bytes.len + 63) / 64 * 64);
    ck_assert_ptr_nonnull(copy);
    memcpy(copy, bytes.ptr, bytes.len);
    ck_sx_ok(&cx, sx_module_decode(&cx, (sx_span){copy, bytes.len}, true, &view));
    ck_sx_ok(&cx, backend->key(&cx, &args, &key));
    ck_assert_mem_eq(view.info->key, key.key.byte, SX_KEY_BYTES);
    free(copy);
    sx_buf_fini(&module);
    sx_ctx_fini(&cx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("once");
    TCase *cases = tcase_create("once");
    tcase_add_test(cases, key_and_places);
    tcase_add_test(cases, compile);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
