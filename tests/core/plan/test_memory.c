#include "tests/lib/test.h"

#include "core/base/rng.h"
#include "core/plan/memory.h"

/* Brute force: no two tensors that live at the same time share a byte. */
static void assert_disjoint(const sx_lifetime *life, uint32_t count, uint64_t arena_bytes)
{
    for (uint32_t i = 0; i < count; i++) {
        ck_assert_uint_eq(life[i].offset % SX_MEMORY_ALIGNMENT, 0);
        ck_assert_uint_le(life[i].offset + life[i].size, arena_bytes);
        for (uint32_t k = 0; k < i; k++) {
            bool together = life[i].first <= life[k].last && life[k].first <= life[i].last;
            bool overlap = life[i].offset < life[k].offset + life[k].size &&
                           life[k].offset < life[i].offset + life[i].size;
            ck_assert_msg(!together || !overlap, "tensors %u and %u overlap", i, k);
        }
    }
}

START_TEST(test_random_plans_are_disjoint)
{
    sx_rng rng = {sx_test_seed()};
    for (uint32_t round = 0; round < 200; round++) {
        sx_ctx cx;
        sx_ctx_init(&cx, 1 << 20);
        sx_lifetime life[40];
        uint32_t count = 1 + (uint32_t)sx_rng_below(&rng, 40);
        for (uint32_t i = 0; i < count; i++) {
            uint32_t first = (uint32_t)sx_rng_below(&rng, 30);
            life[i] = (sx_lifetime){.size = 1 + sx_rng_below(&rng, 5000),
                                    .first = first,
                                    .last = first + (uint32_t)sx_rng_below(&rng, 10)};
        }
        uint64_t arena_bytes, floor_bytes;
        ck_sx_ok(&cx, sx_plan_memory(&cx, life, count, &arena_bytes, &floor_bytes));
        assert_disjoint(life, count, arena_bytes);
        ck_assert_uint_ge(arena_bytes, floor_bytes);
        sx_ctx_fini(&cx);
    }
}
END_TEST

START_TEST(test_chain_needs_two_areas)
{
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 20);
    sx_lifetime life[10];
    for (uint32_t i = 0; i < 10; i++) { /* step i writes tensor i and reads tensor i - 1 */
        life[i] = (sx_lifetime){.size = 640, .first = i, .last = i + 1};
    }
    uint64_t arena_bytes, floor_bytes;
    ck_sx_ok(&cx, sx_plan_memory(&cx, life, 10, &arena_bytes, &floor_bytes));
    ck_assert_uint_eq(floor_bytes, 1280);
    ck_assert_uint_eq(arena_bytes, 1280);
    sx_ctx_fini(&cx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("core.plan");
    TCase *cases = tcase_create("memory");
    tcase_add_test(cases, test_random_plans_are_disjoint);
    tcase_add_test(cases, test_chain_needs_two_areas);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
