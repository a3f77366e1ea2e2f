/* fuzz_snapshot.c - any bytes as a stored e-graph: first as they are, then with every checksum made right, so
 * that what lies behind the checksums is reached. What is accepted passes every check of the engine, grows
 * under rules, is stored again and loads again. */
#include <stdlib.h>
#include <string.h>

#include "core/store/snapshot.h"
#include "tests/core/store/reseal.h"
#include "tests/core/rules/symbols.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define ARENA_BYTES ((size_t)256 << 20)
#define SNAPSHOT_BYTES_MAX ((size_t)64 << 20)

static const sx_rule sums[] = {
    {.name = "commute", .left = "(add ?a ?b)", .right = "(add ?b ?a)"},
    {.name = "left", .left = "(add ?a (add ?b ?c))", .right = "(add (add ?a ?b) ?c)"},
};

static bool load(sx_ctx *cx, const sx_snapshot *s, sx_eg *eg, sx_eg_ruleset *set)
{
    const uint32_t *root;
    uint32_t root_count;
    uint32_t *choice;
    return sx_snapshot_load(cx, s, NULL, eg) == SX_OK &&
           sx_eg_ruleset_init(cx, set, &symbols, sums, SX_COUNT(sums)) == SX_OK &&
           sx_snapshot_load_set(cx, s, eg, set) == SX_OK &&
           sx_snapshot_load_roots(cx, s, eg, &root, &root_count) == SX_OK &&
           sx_snapshot_load_choice(cx, s, eg, &choice) == SX_OK;
}

static void try(sx_span bytes)
{
    static const sx_eg_limits limits = {.rounds = 3,
                                        .nodes = 4000,
                                        .matches = 500,
                                        .fuel = 100000,
                                        .bytes = (size_t)64 << 20,
                                        .check = true};
    sx_ctx cx;
    sx_snapshot s;
    sx_eg eg;
    sx_eg_ruleset set;
    sx_key rules = {{0}};
    sx_ctx_init(&cx, ARENA_BYTES);
    if (bytes.len >= SX_SNAPSHOT_PAGE) {
        memcpy(rules.byte, bytes.ptr + offsetof(sx_snapshot_header, rules), sizeof(rules.byte));
    }
    if (sx_snapshot_open(&cx, bytes, &rules, &s) == SX_OK && load(&cx, &s, &eg, &set)) {
        SX_ASSERT(sx_eg_check(&cx, &eg) == SX_OK);
        sx_eg_run run;
        sx_code code = sx_eg_saturate(&cx, &eg, &set, &limits, &run);
        SX_ASSERT(code == SX_OK || code == SX_NOMEM);
        sx_buf again;
        sx_buf_init(&again, SNAPSHOT_BYTES_MAX);
        sx_snapshot_source source = {.rules = rules,
                                     .stop = run.stop,
                                     .with_proofs = (s.header.flags & 1) != 0,
                                     .set = &set};
        if (code == SX_OK && sx_snapshot_store(&cx, &eg, &source, &again) == SX_OK) {
            SX_ASSERT(sx_snapshot_open(&cx, sx_buf_span(&again), &rules, &s) == SX_OK);
            SX_ASSERT(load(&cx, &s, &eg, &set) || cx.error.code == SX_NOMEM);
        }
        sx_buf_fini(&again);
    }
    sx_ctx_fini(&cx);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *copy = aligned_alloc(8, (size + 8) / 8 * 8);
    if (copy == NULL) {
        return 0;
    }
    memcpy(copy, data, size);
    try((sx_span){copy, size});
    sx_test_reseal(copy, size);
    try((sx_span){copy, size});
    free(copy);
    return 0;
}
