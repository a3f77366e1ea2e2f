/* Loops that may have no iterations: a program that is settled is the one for its own extents, machine code has as many
 * iterations as it is told when it runs, and what such a loop writes is not read behind it. */
#include "core/target/target.h"
#include "tests/core/loop/harness.h"
#include "tests/lib/test.h"

#define SLOTS 4
#define POINTS 2
#define BYTES (POINTS * SLOTS * 32)

static sx_ctx cx;

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)64 << 20);
    cx.fuel = SX_FUEL_DEFAULT;
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

static sx_addr slot_of(uint32_t variable)
{
    sx_addr addr = {.buffer = 0, .index_reg = SX_NO_REG};
    addr.coef[0] = SLOTS * 32;
    addr.coef[variable] = 32;
    return addr;
}

static void store(sx_loop_builder *b, uint32_t variable, uint32_t x)
{
    sx_addr to = slot_of(variable);
    (void)sx_loop_access(b, SX_LOP_STORE, SX_MEM_LANE, &to, x, 8, 0);
}

/* Slots are cleared; the first `ones` are 1; then 2 is added to the first `twos`, in two iterations of a loop inside.
 * `item`: where the two loops stand. */
static sx_kernel *make(int64_t ones, int64_t twos, uint32_t item[2])
{
    sx_kernel *kernel;
    sx_loop_builder b;
    const uint32_t none = SX_NO_REG;
    ck_sx_ok(&cx, sx_kernel_make(&cx, "slots", 8, 4, &kernel));
    (void)sx_kernel_add_buffer(kernel, SX_BUFFER_OUT, BYTES);
    sx_loop_begin_part(&b, &cx, kernel, POINTS, 1, 1);
    uint32_t zero = sx_loop_set(&b, 0), one = sx_loop_set(&b, 1);
    store(&b, sx_loop_open(&b, SLOTS), zero);
    sx_loop_close(&b);
    item[0] = b.part->item_count;
    store(&b, sx_loop_open_any(&b, ones), one);
    sx_loop_close(&b);
    item[1] = b.part->item_count;
    uint32_t variable = sx_loop_open_any(&b, twos);
    (void)sx_loop_open(&b, 2);
    sx_addr from = slot_of(variable);
    uint32_t x = sx_loop_access(&b, SX_LOP_LOAD, SX_MEM_LANE, &from, none, 8, 0);
    x = sx_loop_op(&b, SX_LOP_ADD, none, NULL, x, one, none, 0, 0);
    store(&b, variable, x);
    sx_loop_close(&b);
    sx_loop_close(&b);
    ck_sx_ok(&cx, sx_loop_end_part(&b));
    return kernel;
}

static void check_slots(const float *out, int64_t ones, int64_t twos)
{
    for (uint32_t k = 0; k < BYTES / 4; k++) {
        int64_t slot = k / 8 % SLOTS;
        float want = (float)((slot < ones) + 2 * (slot < twos));
        ck_assert_msg(out[k] == want, "%lld and %lld iterations: slot %lld is %g, not %g",
                      (long long)ones, (long long)twos, (long long)slot, (double)out[k],
                      (double)want);
    }
}

START_TEST(test_settled)
{
    for (int64_t k = 0; k < (SLOTS + 1) * (SLOTS + 1); k++) {
        const int64_t ones = k / (SLOTS + 1), twos = k % (SLOTS + 1);
        uint32_t item[2];
        sx_kernel *settled, *kernel = make(ones, twos, item);
        const uint32_t count = kernel->part[0].item_count;
        float out[BYTES / 4];
        void *buffer[] = {out};
        ck_sx_ok(&cx, sx_kernel_check(&cx, kernel));
        ck_sx_ok(&cx, sx_kernel_settle(&cx, kernel, &settled));
        const sx_part *part = &settled->part[0];
        for (uint32_t i = 0; i < part->item_count; i++) {
            ck_assert(!part->item[i].any_trip);
            ck_assert(part->item[i].kind != SX_ITEM_LOOP || part->item[i].trip > 0);
        }
        uint32_t gone = (ones == 0 ? 3u : 0u) + (twos == 0 ? 7u : 0u);
        ck_assert_uint_eq(part->item_count, count - gone);
        ck_assert(kernel->part[0].item_count == count && kernel->part[0].item[item[0]].any_trip);
        memset(out, 0x5a, sizeof(out));
        ck_sx_ok(&cx, sx_kernel_eval(&cx, settled, buffer));
        check_slots(out, ones, twos);
    }
}
END_TEST

/* One program of machine code, made for two iterations of each. */
START_TEST(test_code)
{
    const sx_target *target = sx_target_find(NULL, "x86-64-v3");
    uint32_t item[2];
    sx_kernel *kernel = make(2, 2, item);
    const sx_comes comes[] = {{.kind = SX_COMES_TRIP, .at = item[0], .slot = 1},
                              {.kind = SX_COMES_TRIP, .at = item[1], .slot = 0}};
    sx_target_code code;
    sx_emulator *emulator;
    sx_buf blob;
    kernel->part[0].comes = comes;
    kernel->part[0].comes_count = kernel->part[0].slot_count = 2;
    sx_buf_init(&blob, 1 << 20);
    ck_sx_ok(&cx, target->emit(&cx, target, kernel, false, &blob, &code));
    ck_sx_ok(&cx, target->emulator_make(&cx, target, sx_buf_span(&blob), code.entry,
                                        code.entry_count, &emulator));
    for (int64_t k = 0; k < (SLOTS + 1) * (SLOTS + 1); k++) {
        const int64_t number[] = {k % (SLOTS + 1), k / (SLOTS + 1)};
        float out[BYTES / 4];
        sx_region region = {
            .name = "slots", .memory = (uint8_t *)out, .size = BYTES, .writable = true};
        const sx_emulation what = {.entry = code.entry[0],
                                   .grid = {POINTS, 1, 1},
                                   .count = POINTS,
                                   .buffer = &region,
                                   .buffer_count = 1,
                                   .number = number,
                                   .number_count = 2};
        memset(out, 0x5a, sizeof(out));
        ck_sx_ok(&cx, target->emulate(&cx, emulator, &what));
        check_slots(out, number[1], number[0]);
    }
    sx_buf_fini(&blob);
}
END_TEST

/* A register that is written in a loop, and read behind it. */
static sx_code read_behind(bool any, int64_t trip)
{
    sx_kernel *kernel;
    sx_loop_builder b;
    ck_sx_ok(&cx, sx_kernel_make(&cx, "slots", 8, 4, &kernel));
    (void)sx_kernel_add_buffer(kernel, SX_BUFFER_OUT, BYTES);
    sx_loop_begin_part(&b, &cx, kernel, POINTS, 1, 1);
    (void)(any ? sx_loop_open_any(&b, trip) : sx_loop_open(&b, trip));
    uint32_t one = sx_loop_set(&b, 1);
    sx_loop_close(&b);
    store(&b, sx_loop_open(&b, SLOTS), one);
    sx_loop_close(&b);
    ck_sx_ok(&cx, sx_loop_end_part(&b));
    return sx_kernel_check(&cx, kernel);
}

START_TEST(test_behind)
{
    ck_sx_ok(&cx, read_behind(false, 2));
    for (int64_t trip = 0; trip < 3; trip++) {
        ck_sx_fails(&cx, read_behind(true, trip), SX_INPUT, "read before");
        sx_ctx_reset_error(&cx);
    }
    uint32_t item[2];
    sx_kernel *kernel = make(0, 1, item);
    kernel->part[0].item[item[0]].any_trip = false;
    ck_sx_fails(&cx, sx_kernel_check(&cx, kernel), SX_INPUT, "trip count 0");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("loop.settle");
    TCase *cases = tcase_create("settle");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, test_settled);
    tcase_add_test(cases, test_code);
    tcase_add_test(cases, test_behind);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
