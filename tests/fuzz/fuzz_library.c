/* fuzz_library.c - any bytes as what is stored of a part, or of the wiring of parts: first byte 0 and 1 the
 * rest as it is, 2 and 3 the rest as words written over a good one (place, word); each also with its checksums
 * made right. What is accepted can be met: every number in it is followed, an answer passes the checks of
 * programs, and a certificate is believed by nobody but its checker. */
#include <stdlib.h>
#include <string.h>

#include "core/cost/cost.h"
#include "core/optimize/keep.h"
#include "core/store/pieces.h"
#include "tests/core/store/reseal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define ARENA_BYTES ((size_t)512 << 20)
#define ENTRY_BYTES_MAX ((size_t)8 << 20)
#define EDITS_MAX 64u
#define TYPE " : f32[n, 4]\n"
#define LAYER(i, in, out)                                                                          \
    "%a" i " = dot_general(%" in ", %w" i ") {lhs_contract = [1], rhs_contract = [0]}" TYPE "%b" i \
    " = add(%a" i ", %" in ")" TYPE "%c" i " = tanh(%b" i ")" TYPE "%d" i " = negate(%c" i         \
    ")" TYPE "%e" i " = abs(%d" i ")" TYPE "%f" i " = tanh(%e" i ")" TYPE "%g" i " = negate(%f" i  \
    ")" TYPE "%h" i " = tanh(%g" i ")" TYPE "%i" i " = abs(%h" i ")" TYPE "%j" i " = tanh(%i" i    \
    ")" TYPE "%k" i " = negate(%j" i ")" TYPE "%l" i " = tanh(%k" i ")" TYPE "%" out " = add(%l" i \
    ", %" in ")" TYPE

/* A program of three equal layers, and what is stored of it. */
static const char text[] =
    "sx 1\ngraph \"p\" (n in [1, 8]) {\n"
    "%x = parameter {name = \"x\", weight = 0}" TYPE
    "%w1 = parameter {name = \"w1\", weight = 1} : f32[4, 4]\n"
    "%w2 = parameter {name = \"w2\", weight = 1} : f32[4, 4]\n"
    "%w3 = parameter {name = \"w3\", weight = 1} : f32[4, 4]\n" LAYER("1", "x", "y")
        LAYER("2", "y", "z") LAYER("3", "z", "r") "return %r as \"r\"\n}\n";
static sx_ctx base;
static sx_pieces pieces;
static sx_optimize_options options;
static sx_span entry[2]; /* of a layer, and the wiring; aligned */
static uint32_t layer;   /* number of that piece */

static void make_base(void)
{
    sx_graph *graph, *canonical, *better;
    sx_optimize_report report;
    const sx_device *device;
    sx_buf bytes;
    sx_ctx_init(&base, ARENA_BYTES);
    sx_buf_init(&bytes, ENTRY_BYTES_MAX);
    options = sx_optimize_defaults();
    sx_code code = sx_graph_parse(&base, sx_span_of(text), &graph);
    code = code == SX_OK ? sx_graph_canon(&base, graph, &canonical) : code;
    code = code == SX_OK ? sx_pieces_find(&base, canonical, &pieces) : code;
    code = code == SX_OK ? sx_device_find(&base, SX_SPAN_LITERAL("x86-64-v3"), &device) : code;
    SX_ASSERT(code == SX_OK && pieces.count > 1 && pieces.piece[0].roll != NULL);
    sx_optimize_place *place = SX_NEW_ARRAY(&base, sx_optimize_place, pieces.count);
    sx_optimize_kept *kept = SX_NEW_ARRAY(&base, sx_optimize_kept, pieces.count);
    SX_ASSERT(place != NULL && kept != NULL);
    for (uint32_t i = 0; i < pieces.count; i++) {
        place[i].part = pieces.piece[i].key;
    }
    sx_optimize_keeper keeper = {.place = place,
                                 .place_count = pieces.count,
                                 .bytes_max = ENTRY_BYTES_MAX,
                                 .bytes = &bytes,
                                 .kept = kept};
    options.keeper = &keeper;
    code = sx_optimize(&base, canonical, device, &options, &better, &report);
    SX_ASSERT(code == SX_OK && keeper.kept_count == pieces.count);
    uint8_t *copy = aligned_alloc(64, (bytes.len + 63) / 64 * 64);
    SX_ASSERT(copy != NULL);
    memcpy(copy, bytes.ptr, bytes.len);
    for (uint32_t k = 0; k < keeper.kept_count; k++) {
        sx_span one = {copy + kept[k].offset, kept[k].size};
        entry[sx_wiring_is(one) ? 1 : 0] = one;
        for (uint32_t i = 1; i < pieces.count && !sx_wiring_is(one); i++) {
            layer = sx_key_equal(&pieces.piece[i].key, &kept[k].part) ? i : layer;
        }
    }
    options.keeper = NULL;
    sx_buf_fini(&bytes);
}

/* A copy of the layer: whoever meets and certifies adds attributes to its table. */
static const sx_graph *copy_layer(sx_ctx *cx)
{
    const sx_graph *from = pieces.piece[layer].program;
    sx_graph *alone, *copy;
    uint32_t index;
    sx_code code = sx_graph_make(cx, from->name, NULL, &alone);
    for (uint32_t i = 0; i < from->symbol_count && code == SX_OK; i++) {
        const sx_symbol *s = &from->symbol[i];
        code = sx_graph_add_symbol(cx, alone, s->name, s->low, s->high, &index);
    }
    code = code == SX_OK ? sx_graph_adopt(cx, from, alone, &copy) : code;
    SX_ASSERT(code == SX_OK);
    return copy;
}

static bool try_part(sx_span bytes, bool certified)
{
    sx_ctx cx;
    sx_library_graph graph;
    sx_meeting meeting = {0};
    bool enabled[SX_RULE_COUNT];
    sx_key rules = {{0}};
    const sx_meet_options wanted = {enabled, certified, false};
    sx_ctx_init(&cx, ARENA_BYTES);
    const sx_graph *program = copy_layer(&cx);
    if (bytes.len >= SX_SNAPSHOT_PAGE) {
        memcpy(rules.byte, bytes.ptr + offsetof(sx_snapshot_header, rules), sizeof(rules.byte));
    }
    sx_code code = sx_optimize_rules(&cx, &options, enabled);
    SX_ASSERT(code == SX_OK);
    sx_library_kernels kernels = sx_meet_kernels(program, certified);
    if (sx_library_load(&cx, bytes, &rules, kernels, &graph) == SX_OK &&
        sx_meet(&cx, &graph, program, &wanted, &meeting) == SX_OK && meeting.met) {
        SX_ASSERT(sx_graph_check(&cx, meeting.better) == SX_OK);
        SX_ASSERT(meeting.better->output_count == program->output_count);
        SX_ASSERT(!certified || meeting.certificate.len > 0);
    }
    sx_ctx_fini(&cx);
    return meeting.met;
}

static bool try_wiring(sx_span bytes)
{
    sx_ctx cx;
    sx_key rules = {{0}};
    sx_wiring wiring;
    bool alike = false;
    const sx_roll *roll = pieces.piece[0].roll;
    sx_ctx_init(&cx, ARENA_BYTES);
    sx_wired_part *part = SX_NEW_ARRAY(&cx, sx_wired_part, roll->part_count + 1);
    SX_ASSERT(part != NULL);
    for (uint32_t p = 0; p < roll->part_count; p++) {
        part[p].as.program = pieces.piece[pieces.piece[0].inner[p]].key;
    }
    if (sx_wiring_rules(&cx, bytes, &rules) == SX_OK &&
        sx_wiring_open(&cx, bytes, &rules, &wiring) == SX_OK) {
        sx_meeting whole = {0};
        sx_code code = sx_wiring_alike(&cx, &wiring, roll, part, &whole, &alike);
        SX_ASSERT(code == SX_OK);
        bool seen[4] = {false};
        for (uint32_t i = 0; alike && i < SX_COUNT(seen); i++) { /* x and three weights */
            SX_ASSERT(whole.parameter_of[i] < SX_COUNT(seen) && !seen[whole.parameter_of[i]]);
            seen[whole.parameter_of[i]] = true;
        }
    }
    sx_ctx_fini(&cx);
    return alike;
}

/* Was it met? */
static bool try(sx_span bytes, bool wiring)
{
    return wiring ? try_wiring(bytes) : try_part(bytes, false) && try_part(bytes, true);
}

static void reseal(uint8_t *bytes, size_t size, bool wiring)
{
    sx_wiring_header h;
    if (!wiring) {
        sx_test_reseal(bytes, size);
    } else if (size >= sizeof(h)) {
        memcpy(&h, bytes, sizeof(h));
        h.size = size;
        h.digest = 0;
        memcpy(bytes, &h, sizeof(h));
        h.digest = sx_hash64((sx_span){bytes, size}, 0);
        memcpy(bytes, &h, sizeof(h));
    }
}

/* Three bytes say which word of the good one is replaced, a fourth and a fifth by what. */
static void edit(uint8_t *bytes, size_t size, const uint8_t *data, size_t data_size)
{
    for (uint32_t i = 0; i < EDITS_MAX && data_size >= 5; i++, data += 5, data_size -= 5) {
        size_t at = (size_t)data[0] | (size_t)data[1] << 8 | (size_t)data[2] << 16;
        uint32_t word = (uint32_t)data[3] | (data[4] > 127 ? 0xffffff00u : (uint32_t)data[4] << 8);
        at = at % (size / 4) * 4;
        memcpy(bytes + at, &word, sizeof(word));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (entry[0].ptr == NULL) {
        make_base();
    }
    if (size == 0) {
        return 0;
    }
    bool wiring = data[0] % 2 == 1, edited = data[0] / 2 % 2 == 1;
    size_t len = edited ? entry[wiring].len : size - 1;
    uint8_t *copy = aligned_alloc(64, (len + 64) / 64 * 64);
    if (copy == NULL) {
        return 0;
    }
    memcpy(copy, edited ? entry[wiring].ptr : data + 1, len);
    if (edited) {
        edit(copy, len, data + 1, size - 1);
    }
    bool met = try((sx_span){copy, len}, wiring);
    SX_ASSERT(met || !edited || size > 1); /* the good one is */
    reseal(copy, len, wiring);
    (void)try((sx_span){copy, len}, wiring);
    free(copy);
    return 0;
}
