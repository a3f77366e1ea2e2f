/* stored.h - programs optimised against a store of e-graphs, as the daemon keeps it, and judged by the interpreter. */
#ifndef SX_TESTS_CORE_STORED_H
#define SX_TESTS_CORE_STORED_H
#include <string.h>

#include "core/base/rng.h"
#include "core/core.h"
#include "tests/core/store/reseal.h"
#include "tests/lib/ir.h"
#include "tests/lib/test.h"

static sx_ctx cx;

static inline void setup(void)
{
    sx_ctx_init(&cx, (size_t)2 << 30);
}

static inline void teardown(void)
{
    sx_ctx_fini(&cx);
}

#define HEAD "sx 1\ngraph \"p\" (batch in [1, 64]) {\n"
#define X "%x = parameter {name = \"x\", weight = 0} : f32[batch, 8]\n"

/* ---- asking ---- */

static inline sx_core_request request_of(const char *text, const sx_binding *batch,
                                         sx_core_library *library)
{
    return (sx_core_request){.ir = sx_span_of(text),
                             .target = SX_SPAN_LITERAL("x86-64-v3"),
                             .binding = batch,
                             .binding_count = 1,
                             .library = library};
}

static const sx_binding batch_4 = {{(const uint8_t *)"batch", 5}, 4};

/* Places of the program; candidates that name no part are for the whole. */
static inline void set_places(const char *text, sx_core_library *library)
{
    sx_core_request request = request_of(text, &batch_4, library);
    sx_core_place *place = SX_NEW_ARRAY(&cx, sx_core_place, SX_CORE_PLACES_MAX);
    sx_core_candidate *candidate = SX_NEW_ARRAY(&cx, sx_core_candidate, SX_CORE_CANDIDATES_MAX);
    ck_sx_ok(&cx, sx_core_places(&cx, &request, NULL, place, &library->place_count));
    for (uint32_t i = 0; i < library->candidate_count; i++) {
        candidate[i] = library->candidate[i];
        if (sx_key_equal(&candidate[i].part, &(sx_key){{0}})) {
            candidate[i].part = place[0].part;
        }
    }
    library->place = place;
    library->candidate = candidate;
    library->egraph_bytes = (size_t)8 << 20;
}

/* The report, in words, of the last one. */
static sx_span rewrites;

/* The program that comes out, and by the certificate checked. */
static inline sx_span optimized(const char *text, sx_core_library *library)
{
    sx_image image;
    sx_core_proof proof;
    sx_image_init(&image);
    if (library != NULL) {
        set_places(text, library);
    }
    sx_core_request request = request_of(text, &batch_4, library);
    cx.stage_count = 0;
    ck_sx_ok(&cx, sx_core_optimize(&cx, &request, &image));
    char *copy = sx_alloc_text(&cx, sx_buf_span(&image.optimized));
    sx_span out = {(const uint8_t *)copy, image.optimized.len};
    rewrites = (sx_span){(const uint8_t *)sx_alloc_text(&cx, sx_buf_span(&image.strings)),
                         image.strings.len};
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

static inline sx_span aligned(sx_span bytes)
{
    uint8_t *copy = sx_alloc(&cx, bytes.len + 64);
    copy += 64 - (uintptr_t)copy % 64;
    memcpy(copy, bytes.ptr, bytes.len);
    return (sx_span){copy, bytes.len};
}

/* ---- a store, as the daemon keeps it: by family ---- */

typedef struct {
    sx_key family;
    sx_core_candidate candidate;
} entry;
static entry store[256];
static uint32_t store_count;

static inline void set_candidates(sx_core_library *library)
{
    sx_core_candidate *candidate = SX_NEW_ARRAY(&cx, sx_core_candidate, SX_CORE_CANDIDATES_MAX);
    for (uint32_t p = 0; p < library->place_count; p++) {
        for (uint32_t i = 0; i < store_count; i++) {
            if (sx_key_equal(&store[i].family, &library->place[p].family) &&
                library->candidate_count < SX_CORE_CANDIDATES_MAX) {
                candidate[library->candidate_count] = store[i].candidate;
                candidate[library->candidate_count++].part = library->place[p].part;
            }
        }
    }
    library->candidate = candidate;
}

static inline void put_kept(const sx_core_library *library)
{
    for (uint32_t i = 0; i < library->kept_count; i++) {
        const sx_core_kept *kept = &library->kept[i];
        uint32_t p = 0;
        while (!sx_key_equal(&library->place[p].part, &kept->part)) {
            p++;
            ck_assert_uint_lt(p, library->place_count);
        }
        ck_assert_uint_lt(store_count, SX_COUNT(store));
        ck_assert_uint_eq(kept->offset % 64, 0);
        sx_span bytes = {library->egraph->ptr + kept->offset, kept->size};
        store[store_count++] =
            (entry){library->place[p].family,
                    {.part = kept->part, .key = kept->part, .egraph = aligned(bytes)}};
    }
}

/* What comes out of a compilation that draws on the store; what it leaves goes there. */
static inline sx_span from_store(const char *text, sx_core_library *library)
{
    sx_buf egraph;
    sx_buf_init(&egraph, (size_t)64 << 20);
    *library = (sx_core_library){.egraph = &egraph};
    set_places(text, library);
    set_candidates(library);
    sx_span out = optimized(text, library);
    put_kept(library);
    sx_buf_fini(&egraph);
    library->egraph = NULL;
    return out;
}

/* The e-graph, or the wiring, that optimizing leaves of the program, aligned. */
static inline sx_span stored_graph(const char *text)
{
    sx_core_library library;
    store_count = 0;
    (void)from_store(text, &library);
    ck_assert(!library.met && library.kept_count > 0);
    sx_span bytes = {NULL, 0};
    for (uint32_t i = 0; i < store_count; i++) {
        bytes = sx_key_equal(&store[i].candidate.part, &library.place[0].part)
                    ? store[i].candidate.egraph
                    : bytes;
    }
    ck_assert_uint_gt(bytes.len, 0);
    return bytes;
}

/* Two classes of a stored graph made one although they are not equal, in every section that names them: the
 * checker of certificates does not follow. */
static inline sx_span forged(sx_span stored, uint16_t op)
{
    uint8_t *bytes = (uint8_t *)(uintptr_t)aligned(stored).ptr;
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
    uint32_t *child = (void *)(bytes + s[SX_SNAPSHOT_CHILD].offset);
    for (uint32_t i = 0; i < s[SX_SNAPSHOT_CHILD].size / sizeof(*child); i++) {
        child[i] = child[i] == found[1] ? found[0] : child[i];
    }
    for (uint32_t i = 0; i < s[SX_SNAPSHOT_CHOICE].size / sizeof(*choice); i++) {
        if (choice[i].class_ == found[1]) {
            choice[i].class_ = found[0];
        }
    }
    h.class_count--;
    memcpy(bytes, &h, sizeof(h));
    sx_test_reseal(bytes, stored.len);
    return (sx_span){bytes, stored.len};
}

/* ---- judging ---- */

static inline sx_graph *bound_graph(sx_span text)
{
    sx_graph *graph, *bound;
    ck_sx_ok(&cx, sx_graph_parse(&cx, text, &graph));
    ck_sx_ok(&cx, sx_graph_bind(&cx, graph, &batch_4, 1, &bound));
    return bound;
}

/* Values of a parameter by its name alone. */
static inline sx_tensor values_of(const sx_graph *graph, const sx_node *node)
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

static inline sx_tensor *evaluate(const sx_graph *graph)
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
static inline void check_equal(const char *asked, sx_span answer)
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

#endif
