/* Parts of programs meet stored ones: layers of one program serve another, of another depth, with another head
 * or embedding; whole programs of equal layers meet through their wiring; what is damaged is refused. The
 * judge is the interpreter, and the checker of certificates. */
#include "tests/lib/test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "client/verify/verify.h"
#include "core/store/wiring.h"
#include "core/ir/fused.h"
#include "tests/core/store/reseal.h"
#include "tests/core/stored.h"
#include "tests/lib/gen_transformer.h"

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
    sx_core_library library;
    sx_span wiring = stored_graph(stored);
    uint32_t entries = store_count;
    ck_assert(sx_wiring_is(wiring) && saturated());
    sx_span plain = from_store(stored, &library);
    ck_assert(library.met && library.rules.len == 0 && library.kept_count == 0);
    ck_assert(sx_span_equal(plain, optimized(stored, NULL)));
    sx_span text = from_store(asked, &library);
    ck_assert_msg(library.refused == 0, "%.*s", (int)library.why.len,
                  (const char *)library.why.ptr);
    ck_assert(library.met && !saturated() && store_count == entries);
    ck_assert_ptr_nonnull(strstr(sx_alloc_text(&cx, library.rules), rule));
    check_equal(asked, text);
    sx_key a, b;
    sx_core_request x = request_of(stored, &batch_4, NULL);
    sx_core_request y = request_of(asked, &batch_4, NULL);
    sx_span part[SX_PART_COUNT];
    ck_sx_ok(&cx, sx_core_key(&cx, &x, &a, part));
    ck_sx_ok(&cx, sx_core_twin(&cx, &y, wiring, &b));
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

/* Another wiring of equal parts: all parts meet, the whole does not. */
static sx_span module_of(const char *text, sx_core_library *library, sx_buf *module)
{
    sxr_verify_options verify = SXR_VERIFY_DEFAULT;
    sx_core_request request = request_of(text, &batch_4, library);
    sx_buf_init(module, (size_t)64 << 20);
    ck_sx_ok(&cx, sxr_compile_verified(&cx, &request, &verify, module));
    sx_span bytes = aligned(sx_buf_span(module));
    sx_buf_fini(module);
    return bytes;
}

/* The module of a program in layers is taken over though its parts are put together in another order. */
START_TEST(test_layers_module_reused)
{
    const char *text = transformer(4);
    const char *asked = respelled(text);
    sx_core_library library;
    sx_buf buf;
    sx_span wiring = stored_graph(text);
    sx_span stored = module_of(text, NULL, &buf);
    for (uint32_t i = 0; i < store_count; i++) { /* of the whole; parts have none */
        if (store[i].candidate.egraph.ptr == wiring.ptr) {
            store[i].candidate.module = stored;
        }
    }
    library = (sx_core_library){0};
    set_places(asked, &library);
    set_candidates(&library);
    sx_span module = module_of(asked, &library, &buf);
    ck_assert(library.met && library.reused);
    sx_module decoded;
    ck_sx_ok(&cx, sx_module_decode(&cx, module, true, &decoded));
    check_equal(asked,
                (sx_span){(const uint8_t *)decoded.optimized, (size_t)decoded.optimized_count});
}
END_TEST

START_TEST(test_layers_unequal)
{
    sx_core_library library;
    (void)stored_graph(stack(4, false, ""));
    char *shared = sx_alloc_text(&cx, sx_span_of(stack(4, false, "")));
    char *at = strstr(shared, "dot_general(%l1_o, %w2)"); /* w1 for w2: w2 is of no use */
    ck_assert_ptr_nonnull(at);
    at[strlen("dot_general(%l1_o, %w")] = '1';
    check_equal(shared, from_store(shared, &library));
    ck_assert(!library.met && library.refused == 0 && !saturated());
    ck_assert(library.parts_met > 0 && library.kept_count == 1); /* its wiring */
    check_equal(shared, from_store(shared, &library));
    ck_assert(library.met);
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
    sx_core_library library;
    (void)stored_graph(tied("0112"));
    const char *asked = tied("2001");
    check_equal(asked, from_store(asked, &library));
    ck_assert(library.met); /* other names for the same */
    asked = tied("0122");
    check_equal(asked, from_store(asked, &library));
    ck_assert(!library.met && library.refused == 0);
}
END_TEST

/* ---- parts that serve other programs ---- */

static const char *model(uint32_t layers, uint32_t vocab, bool towers)
{
    sx_transformer options = sx_transformer_default(layers);
    options.hidden = 16;
    options.heads = 2;
    options.ffn = 24;
    options.seq = 4;
    options.vocab = vocab;
    options.towers = towers;
    sx_buf text;
    sx_buf_init(&text, (size_t)4 << 20);
    sx_transformer_print(&options, &text);
    const char *copy = sx_alloc_text(&cx, sx_buf_span(&text));
    sx_buf_fini(&text);
    return copy;
}

/* Nodes of what was saturated. */
static uint64_t nodes_saturated(void)
{
    for (uint32_t i = 0; i < cx.stage_count; i++) {
        if (strcmp(cx.stage[i].name, "saturate") == 0) {
            return cx.stage[i].items;
        }
    }
    return 0;
}

/* How often the report says so. */
static uint32_t count_said(const char *what)
{
    uint32_t count = 0;
    for (size_t i = 0; i + strlen(what) <= rewrites.len; i++) {
        count += memcmp(rewrites.ptr + i, what, strlen(what)) == 0 ? 1 : 0;
    }
    return count;
}

/* The layers of a shallow model serve a deeper one with another vocabulary: another embedding and another head. */
START_TEST(test_parts_serve)
{
    sx_core_library library;
    const char *asked = model(6, 13, false);
    if (_i == 1) {
        asked = respelled(asked);
    }
    (void)stored_graph(model(3, 11, false));
    uint32_t entries = store_count;
    (void)optimized(asked, NULL);
    uint64_t alone = nodes_saturated();
    sx_span text = from_store(asked, &library);
    ck_assert(!library.met && library.refused == 0 && library.parts_met == 1);
    ck_assert_uint_eq(count_said(", met stored "), 1);
    ck_assert_uint_eq(count_said(" by the same terms"), _i == 0 ? 1 : 0);
    ck_assert_uint_gt(nodes_saturated(), 0);
    ck_assert_uint_lt(nodes_saturated(), alone / 2);
    check_equal(asked, text);
    ck_assert_uint_eq(store_count, entries + library.kept_count);
    store_count = entries; /* the same store, the same bytes */
    ck_assert(sx_span_equal(text, from_store(asked, &library)));
    (void)from_store(asked, &library);
    ck_assert(library.met && !saturated() && library.kept_count == 0);
}
END_TEST

/* Layers within the towers of a model. */
START_TEST(test_parts_nested)
{
    sx_core_library library;
    const char *stored = model(4, 11, true);
    sx_span wiring = stored_graph(stored);
    sx_key rules;
    sx_wiring opened;
    ck_sx_ok(&cx, sx_wiring_rules(&cx, wiring, &rules));
    ck_sx_ok(&cx, sx_wiring_open(&cx, wiring, &rules, &opened));
    uint32_t wirings = 0;
    for (uint32_t i = 0; i < store_count; i++) {
        wirings += sx_wiring_is(store[i].candidate.egraph) ? 1 : 0;
    }
    ck_assert_uint_eq(wirings, 2); /* of the whole, and of a tower */
    check_layers(stored, respelled(stored), "commute");
    uint32_t entries = store_count;
    static const uint32_t layers[] = {4, 7};
    for (uint32_t i = 0; i < SX_COUNT(layers); i++) {
        const char *asked = model(layers[i], 13, true);
        store_count = entries;
        check_equal(asked, from_store(asked, &library));
        ck_assert(!library.met && library.parts_met >= 2 && library.refused == 0);
    }
}
END_TEST

/* One layer that was stored as a program of its own serves as a part, and the other way round. */
START_TEST(test_program_is_part)
{
    sx_core_library library;
    store_count = 0;
    (void)from_store(stack(1, false, ""), &library);
    ck_assert(!sx_wiring_is(store[0].candidate.egraph) && store_count == 1);
    const char *asked = stack(5, true, "m");
    check_equal(asked, from_store(asked, &library));
    ck_assert(!library.met && library.parts_met >= 1);
    store_count = 0;
    (void)from_store(stack(5, false, ""), &library);
    asked = stack(1, true, "m");
    check_equal(asked, from_store(asked, &library));
    ck_assert(library.met && library.parts_met == 1 && !saturated());
}
END_TEST

/* Without some entry the rest serves all the same, and what was gone is left again. */
START_TEST(test_parts_gone)
{
    sx_core_library library;
    const char *text = model(4, 11, false);
    (void)stored_graph(text);
    uint32_t entries = store_count;
    ck_assert_uint_ge(entries, 3);
    for (uint32_t gone = 0; gone < entries; gone++) {
        entry last = store[gone];
        store[gone] = store[entries - 1];
        store_count = entries - 1;
        check_equal(text, from_store(text, &library));
        ck_assert(!library.met && library.refused == 0);
        ck_assert_uint_ge(library.kept_count, 1);
        (void)from_store(text, &library);
        ck_assert(library.met);
        store[entries - 1] = store[gone];
        store[gone] = last;
    }
}
END_TEST

/* Only entries up to the limit are left, each for itself. */
START_TEST(test_parts_limit)
{
    sx_buf egraph;
    sx_buf_init(&egraph, (size_t)64 << 20);
    const char *text = model(4, 11, false);
    sx_core_library library = {.egraph = &egraph};
    (void)optimized(text, &library);
    size_t largest = 0;
    uint32_t all = library.kept_count;
    for (uint32_t i = 0; i < all; i++) {
        largest = library.kept[i].size > largest ? library.kept[i].size : largest;
    }
    sx_core_request request = request_of(text, &batch_4, &library);
    sx_image image;
    sx_image_init(&image);
    library.egraph_bytes = largest - 1;
    ck_sx_ok(&cx, sx_core_optimize(&cx, &request, &image));
    ck_assert_uint_eq(library.kept_count, all - 2); /* without it there is no wiring */
    sx_image_fini(&image);
    sx_image_init(&image);
    egraph.limit = largest + 4096; /* of all together */
    library.egraph_bytes = largest;
    ck_sx_ok(&cx, sx_core_optimize(&cx, &request, &image));
    ck_assert(library.kept_count > 0 && library.kept_count < all && egraph.len <= egraph.limit);
    sx_image_fini(&image);
    sx_buf_fini(&egraph);
}
END_TEST

/* ---- hostile ---- */

/* A wiring with one word altered, the digest made good if `sealed`. */
static sx_span altered_wiring(sx_span wiring, size_t at, uint32_t word, bool sealed)
{
    sx_span copy = aligned(wiring);
    uint8_t *bytes = (uint8_t *)(uintptr_t)copy.ptr;
    sx_wiring_header h;
    memcpy(bytes + at, &word, sizeof(word));
    memcpy(&h, bytes, sizeof(h));
    if (sealed) {
        h.digest = 0;
        memcpy(bytes, &h, sizeof(h));
        h.digest = sx_hash64(copy, 0);
        memcpy(bytes, &h, sizeof(h));
    }
    return copy;
}

START_TEST(test_wiring_hostile)
{
    sx_rng rng = {sx_test_seed()};
    const char *asked = stack(4, true, "m");
    sx_span wiring = stored_graph(stack(4, false, ""));
    uint32_t entries = store_count, index = 0;
    sx_key rules;
    sx_wiring opened;
    sx_core_library library;
    while (!sx_wiring_is(store[index].candidate.egraph)) {
        index++;
    }
    ck_sx_ok(&cx, sx_wiring_rules(&cx, wiring, &rules));
    for (size_t len = 8; len < wiring.len; len += 4) {
        ck_sx_fails(&cx, sx_wiring_open(&cx, (sx_span){wiring.ptr, len}, &rules, &opened),
                    SX_CORRUPT, "wiring");
        sx_ctx_reset_error(&cx);
    }
    uint32_t refused = 0, met = 0;
    for (uint32_t trial = 0; trial < 30; trial++) {
        sx_ctx kept = cx;
        sx_ctx_init(&cx, (size_t)1 << 29);
        size_t at = 8 + sx_rng_below(&rng, (wiring.len - 12) / 4) * 4;
        uint32_t word = (uint32_t)sx_rng_below(&rng, 12) - (trial % 3 == 0 ? 8u : 0u);
        store[index].candidate.egraph = altered_wiring(wiring, at, word, trial % 4 != 0);
        check_equal(asked, from_store(asked, &library));
        refused += library.refused != 0 ? 1 : 0;
        met += library.met ? 1 : 0;
        store_count = entries;
        sx_ctx_fini(&cx);
        cx = kept;
    }
    ck_assert_uint_gt(refused, 2);
    ck_assert_uint_lt(met, 27);
}
END_TEST

/* Damaged parts are refused and made again; parts of other rules, too. */
START_TEST(test_parts_damaged)
{
    sx_core_library library;
    const char *asked = model(6, 13, false);
    (void)stored_graph(model(3, 11, false));
    uint32_t entries = store_count;
    for (uint32_t kind = 0; kind < 3; kind++) {
        entry before[SX_COUNT(store)];
        memcpy(before, store, sizeof(store));
        for (uint32_t i = 0; i < entries; i++) {
            sx_span copy = aligned(store[i].candidate.egraph);
            uint8_t *bytes = (uint8_t *)(uintptr_t)copy.ptr;
            bytes[24] ^= kind == 0 ? 1 : 0;
            copy.len = kind == 1 ? copy.len / 2 : copy.len;
            if (kind == 2 && !sx_wiring_is(copy)) {
                bytes[offsetof(sx_snapshot_header, rules)] ^= 1;
                sx_test_reseal(bytes, copy.len);
            }
            store[i].candidate.egraph = copy;
        }
        check_equal(asked, from_store(asked, &library));
        ck_assert(library.refused != 0 && library.parts_met == 0 && library.kept_count > 1);
        (void)from_store(asked, &library);
        ck_assert(library.met);
        memcpy(store, before, sizeof(store));
        store_count = entries;
    }
}
END_TEST

/* |tanh(x w) - tanh(-x w)| in every layer, with more behind it. */
static const char *differences(uint32_t layers)
{
    static const char *const op[] = {"abs", "exponential", "negate", "logistic"};
    sx_buf t;
    sx_buf_init(&t, (size_t)1 << 20);
    sx_buf_put_text(&t, HEAD X);
    for (uint32_t i = 0; i < layers; i++) {
        sx_buf_print(&t, "%%w%u = parameter {name = \"w%u\", weight = 1} : f32[8, 8]\n", i, i);
    }
    char last[24] = "x";
    for (uint32_t i = 0; i < layers; i++) {
        sx_buf_print(&t, "%%l%u_d = dot_general(%%%s, %%w%u)" CONTRACT, i, last, i);
        sx_buf_print(&t, "%%l%u_n = negate(%%l%u_d)" TYPE, i, i);
        sx_buf_print(&t, "%%l%u_a = tanh(%%l%u_d)" TYPE, i, i);
        sx_buf_print(&t, "%%l%u_b = tanh(%%l%u_n)" TYPE, i, i);
        sx_buf_print(&t, "%%l%u_s = subtract(%%l%u_a, %%l%u_b)" TYPE, i, i, i);
        snprintf(last, sizeof(last), "l%u_s", i);
        for (uint32_t k = 0; k < 3 * SX_COUNT(op); k++) {
            sx_buf_print(&t, "%%l%u_%u = %s(%%%s)" TYPE, i, k, op[k % SX_COUNT(op)], last);
            snprintf(last, sizeof(last), "l%u_%u", i, k);
        }
    }
    sx_buf_print(&t, "return %%%s as \"y\"\n}\n", last);
    const char *copy = sx_alloc_text(&cx, sx_buf_span(&t));
    sx_buf_fini(&t);
    return copy;
}

/* A part in whose graph two classes that are not equal are one: what follows from it is not there, so it is refused. */
START_TEST(test_parts_forged)
{
    sx_core_library library;
    const char *text = differences(4);
    (void)stored_graph(text);
    for (uint32_t i = 0; i < store_count; i++) {
        if (!sx_wiring_is(store[i].candidate.egraph)) {
            store[i].candidate.egraph = forged(store[i].candidate.egraph, SX_OP_TANH);
        }
    }
    check_equal(text, from_store(text, &library));
    ck_assert(!library.met && library.refused != 0 && library.parts_met == 0);
}
END_TEST

/* Kernels of a stored part that round down where they took the absolute value; its checksums are good. */
static sx_span altered_kernels(sx_span stored)
{
    uint8_t *bytes = (uint8_t *)(uintptr_t)aligned(stored).ptr;
    sx_snapshot_header h;
    sx_snapshot_section s = {0};
    sx_buf attrs;
    memcpy(&h, bytes, sizeof(h));
    for (uint32_t i = 0; i < h.section_count && s.kind != SX_SNAPSHOT_OWN; i++) {
        memcpy(&s, bytes + sizeof(h) + i * sizeof(s), sizeof(s));
    }
    ck_assert_uint_eq(s.kind, SX_SNAPSHOT_OWN); /* the attributes */
    sx_span rest = {stored.ptr + s.offset, (size_t)s.size};
    sx_buf_init(&attrs, (size_t)1 << 20);
    while (rest.len > 0) {
        sx_attr attr;
        uint32_t size;
        memcpy(&size, rest.ptr, sizeof(size));
        sx_span one = {rest.ptr + sizeof(size), size};
        rest = (sx_span){one.ptr + size, rest.len - size - sizeof(size)};
        ck_sx_ok(&cx, sx_attr_decode(&cx, &one, 1, &attr));
        for (uint32_t i = 0; attr.body != NULL && i < attr.body->instr_count; i++) {
            sx_instr instr = attr.body->instr[i];
            instr.op =
                instr.kind == SX_BODY_APPLY && instr.op == SX_OP_ABS ? SX_OP_FLOOR : instr.op;
            memcpy((void *)(uintptr_t)&attr.body->instr[i], &instr, sizeof(instr));
        }
        sx_buf_put_u32(&attrs, size);
        sx_attr_encode(&attr, &attrs);
    }
    ck_assert_uint_eq(attrs.len, s.size);
    memcpy(bytes + s.offset, attrs.ptr, attrs.len);
    sx_buf_fini(&attrs);
    sx_test_reseal(bytes, stored.len);
    return (sx_span){bytes, stored.len};
}

/* The checker does not follow; where no certificate is asked for, the interpreter has the last word, and the
 * program is compiled again from nothing. */
START_TEST(test_parts_verified)
{
    sx_core_library library;
    const char *text = differences(3);
    (void)stored_graph(text);
    for (uint32_t i = 0; i < store_count; i++) {
        if (!sx_wiring_is(store[i].candidate.egraph)) {
            store[i].candidate.egraph = altered_kernels(store[i].candidate.egraph);
        }
    }
    uint32_t entries = store_count;
    check_equal(text, from_store(text, &library));
    ck_assert(library.refused == 0 && library.parts_met == 0 && library.kept_count > 0);
    store_count = entries;
    sx_buf module;
    sx_buf_init(&module, (size_t)64 << 20);
    sxr_verify_options verify = SXR_VERIFY_DEFAULT;
    library = (sx_core_library){0};
    set_places(text, &library);
    set_candidates(&library);
    sx_core_request request = request_of(text, &batch_4, &library);
    ck_assert_uint_gt(library.candidate_count, 0);
    ck_sx_ok(&cx, sxr_compile_verified(&cx, &request, &verify, &module));
    ck_assert(!library.met && library.candidate_count == 0);
    sx_buf_fini(&module);
}
END_TEST

/* The same in a program of 5 GFLOP: what the wrong stored e-graph gives is refused, and the program compiled
 * from nothing is handed out. */
START_TEST(test_large_verified)
{
    static const char text[] =
        HEAD "%x = parameter {name = \"x\", weight = 0} : f32[batch, 320, 1024]\n"
             "%w = parameter {name = \"w\", weight = 1} : f32[1024, 2048]\n"
             "%v = parameter {name = \"v\", weight = 1} : f32[2048, 1024]\n"
             "%h = dot_general(%x, %w) {lhs_contract = [2], rhs_contract = [0]} : f32[batch, 320, "
             "2048]\n"
             "%a = abs(%h) : f32[batch, 320, 2048]\n"
             "%y = dot_general(%a, %v) {lhs_contract = [2], rhs_contract = [0]} : f32[batch, 320, "
             "1024]\n"
             "return %y as \"y\"\n}\n";
    sx_core_library library = {0};
    sx_buf module;
    sx_buf_init(&module, (size_t)64 << 20);
    (void)stored_graph(text);
    for (uint32_t i = 0; i < 2; i++) { /* right, then altered */
        sxr_verify_options verify = SXR_VERIFY_DEFAULT;
        library = (sx_core_library){0};
        set_places(text, &library);
        set_candidates(&library);
        sx_core_request request = request_of(text, &batch_4, &library);
        cx.stage_count = 0;
        sx_buf_clear(&module);
        ck_sx_ok(&cx, sxr_compile_verified(&cx, &request, &verify, &module));
        ck_assert(library.met == (i == 0) && (library.candidate_count == 0) == (i == 1));
        for (uint32_t k = 0; k < store_count; k++) {
            store[k].candidate.egraph = altered_kernels(store[k].candidate.egraph);
        }
    }
    sx_buf_fini(&module);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("fragments");
    TCase *tc = tcase_create("fragments");
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_set_timeout(tc, 400);
    tcase_add_loop_test(tc, test_layers_commuted, 0, SX_COUNT(depths));
    tcase_add_loop_test(tc, test_layers_association, 0, SX_COUNT(depths));
    tcase_add_test(tc, test_layers_module_reused);
    tcase_add_test(tc, test_layers_unequal);
    tcase_add_test(tc, test_layers_tied);
    tcase_add_loop_test(tc, test_parts_serve, 0, 2);
    tcase_add_test(tc, test_parts_nested);
    tcase_add_test(tc, test_program_is_part);
    tcase_add_test(tc, test_parts_gone);
    tcase_add_test(tc, test_parts_limit);
    tcase_add_test(tc, test_wiring_hostile);
    tcase_add_test(tc, test_parts_damaged);
    tcase_add_test(tc, test_parts_forged);
    tcase_add_test(tc, test_parts_verified);
    tcase_add_test(tc, test_large_verified);
    suite_add_tcase(suite, tc);
    return sx_test_main(suite);
}
