/* The check of code for GPUs: an entry is launched as its text says, on a machine that can give it that. */
#include "tests/lib/test.h"

#include <stdio.h>
#include <string.h>

#include "core/cost/device.h"
#include "core/nvidia/code.h"
#include "core/target/machine.h"
#include "tests/lib/gen_block.h"

static sx_ctx cx;

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)64 << 20);
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

/* The text with the first `from` in it replaced by `to`. */
static sx_span changed(const char *from, const char *to)
{
    const char *text = (const char *)sx_gen_block_text().ptr, *at = strstr(text, from);
    size_t before = (size_t)(at - text), behind = strlen(at + strlen(from)), n = strlen(to);
    char *made = sx_alloc(&cx, before + n + behind + 1);
    ck_assert(at != NULL && made != NULL);
    memcpy(made, text, before);
    memcpy(made + before, to, n);
    memcpy(made + before + n, at + strlen(from), behind);
    return (sx_span){(const uint8_t *)made, before + n + behind + 1};
}

static sx_code check(const sx_machine *machine, sx_span text, uint32_t threads,
                     uint32_t shared_bytes)
{
    const sx_machine_block block = {.threads = threads, .shared_bytes = shared_bytes};
    const char *at = strstr((const char *)text.ptr, ".visible");
    uint32_t entry = (uint32_t)(at - (const char *)text.ptr);
    return machine->check(&cx, machine, text, &entry, &block, 1);
}

START_TEST(test_a_block_is_launched_as_its_text_says)
{
    sx_span text = sx_gen_block_text();
    ck_sx_ok(&cx, check(&sx_machine_sm_80, text, 64, 256));
    ck_sx_fails(&cx, check(&sx_machine_sm_80, text, 32, 256), SX_INPUT,
                "requires blocks of 64x1x1 threads, launched with 32");
    ck_sx_fails(&cx, check(&sx_machine_sm_80, text, 0, 0), SX_INPUT, "launched with 0");
    sx_span two = changed(".reqntid 64, 1, 1", ".reqntid 32, 2, 1");
    ck_sx_fails(&cx, check(&sx_machine_sm_80, two, 64, 256), SX_INPUT, "blocks of 32x2x1 threads");
    sx_span any = changed(".reqntid 64, 1, 1\n", "");
    ck_sx_fails(&cx, check(&sx_machine_sm_80, any, 64, 256), SX_INPUT, "blocks of 0x0x0 threads");
    ck_sx_ok(&cx, check(&sx_machine_sm_80, any, 0, 0));
    uint32_t entry = sx_gen_block_entry();
    ck_sx_fails(&cx, sx_machine_sm_80.check(&cx, &sx_machine_sm_80, text, &entry, NULL, 1),
                SX_INPUT, "launched with 0"); /* all are said to be vector programs */
}
END_TEST

/* The grid of the launch, last index along x. */
START_TEST(test_clusters)
{
    static const struct {
        const char *cluster;
        int64_t grid[3];
        uint32_t walkers;
        bool fits;
    } row[] = {
        {".reqnctapercluster 2, 1, 1", {3, 5, 4}, 0, true},
        {".reqnctapercluster 2, 1, 1", {3, 4, 5}, 0, false},
        {".reqnctapercluster 1, 2, 1", {3, 4, 5}, 0, true},
        {".reqnctapercluster 1, 2, 3", {3, 4, 5}, 0, true},
        {".reqnctapercluster 2, 1, 1", {0, 0, 0}, 0, true}, /* not known */
        {".reqnctapercluster 8, 1, 1", {1, 1, 16}, 0, true},
        {".reqnctapercluster 4, 4, 1", {1, 16, 16}, 0, false}, /* more than every device allows */
        {".explicitcluster", {1, 1, 16}, 0, false},            /* of which size? */
        {".reqnctapercluster 2, 1, 1", {3, 5, 4}, 6, true},    /* which walk, of 60 points */
        {".reqnctapercluster 2, 1, 1", {3, 5, 4}, 132, true},  /* as many as there are points */
        {".reqnctapercluster 2, 1, 1", {3, 5, 4}, 7, false},   /* half of a cluster */
        {".reqnctapercluster 2, 1, 1", {4, 4, 5}, 6, false},   /* over the ends of rows */
        {".reqnctapercluster 1, 2, 1", {3, 4, 4}, 6, false},   /* they walk along x */
        {".reqnctapercluster 2, 1, 1", {0, 0, 0}, 6, true},
        {".reqnctapercluster 2, 1, 1", {0, 0, 0}, 7, false},
    };
    for (uint32_t i = 0; i < SX_COUNT(row); i++) {
        char to[80];
        (void)snprintf(to, sizeof(to), ".reqntid 64, 1, 1\n%s", row[i].cluster);
        sx_span text = changed(".reqntid 64, 1, 1", to);
        sx_machine_block block = {.threads = 64, .shared_bytes = 256, .walkers = row[i].walkers};
        memcpy(block.grid, row[i].grid, sizeof(block.grid));
        uint32_t entry = sx_gen_block_entry();
        const sx_machine *machine = &sx_machine_sm_90;
        sx_code code = machine->check(&cx, machine, text, &entry, &block, 1);
        ck_assert_msg(code == (row[i].fits ? SX_OK : SX_INPUT), "row %u: %s", i, cx.error.text);
        ck_assert(row[i].fits || strstr(cx.error.text, "requires clusters of") != NULL);
        sx_ctx_reset_error(&cx);
        ck_sx_fails(&cx, sx_machine_sm_80.check(&cx, &sx_machine_sm_80, text, &entry, &block, 1),
                    SX_INPUT, "requires clusters of");
        sx_ctx_reset_error(&cx);
    }
}
END_TEST

START_TEST(test_shared_memory_of_a_block)
{
    sx_span text = sx_gen_block_text();
    ck_sx_ok(&cx, check(&sx_machine_sm_80, text, 64, 163 << 10));
    ck_sx_fails(&cx, check(&sx_machine_sm_80, text, 64, (163 << 10) + 1), SX_INPUT,
                "0 bytes of shared memory and 166913 at the launch, a block of sm_80 has at most "
                "166912");
    ck_sx_ok(&cx, check(&sx_machine_sm_90, text, 64, 227 << 10));
    ck_sx_fails(&cx, check(&sx_machine_sm_120, text, 64, 163 << 10), SX_INPUT,
                "sm_120 has at most 101376");
    sx_span fixed =
        changed(".extern .shared .align 1024 .b8 pool[]", ".shared .align 1024 .b8 pool[4096]");
    ck_sx_ok(&cx, check(&sx_machine_sm_80, fixed, 64, 0));
    ck_sx_fails(&cx, check(&sx_machine_sm_80, fixed, 64, 256), SX_INPUT,
                "launched with 256 bytes of shared memory, it names none");
    sx_span both = changed(".extern .shared .align 1024 .b8 pool[];",
                           ".shared .align 16 .b8 own[1024];\n"
                           ".extern .shared .align 1024 .b8 pool[];");
    ck_sx_ok(&cx, check(&sx_machine_sm_80, both, 64, 162 << 10));
    ck_sx_fails(&cx, check(&sx_machine_sm_80, both, 64, 163 << 10), SX_INPUT,
                "1024 bytes of shared memory and 166912 at the launch");
}
END_TEST

/* Blocks that walk over the grid have to know how many they are. */
START_TEST(test_walkers)
{
    const sx_machine_block walks = {.threads = 64, .shared_bytes = 256, .walkers = 132};
    sx_span asks = sx_gen_block_text(), never = changed("%nctaid.x", "%nctaid.z");
    uint32_t entry = sx_gen_block_entry();
    const sx_machine *machine = &sx_machine_sm_80;
    ck_sx_ok(&cx, machine->check(&cx, machine, asks, &entry, &walks, 1));
    ck_sx_fails(&cx, machine->check(&cx, machine, never, &entry, &walks, 1), SX_INPUT,
                "132 blocks that walk over the grid, it does not ask");
}
END_TEST

START_TEST(test_processors_have_no_blocks)
{
    static const uint8_t code[] = {0xc3};
    const sx_machine_block none = {0}, block = {.threads = 64, .shared_bytes = 256};
    uint32_t entry = 0;
    const sx_machine *machine = &sx_machine_x86_64_v3;
    sx_span text = {code, sizeof(code)};
    ck_sx_ok(&cx, machine->check(&cx, machine, text, &entry, &none, 1));
    ck_sx_fails(&cx, machine->check(&cx, machine, text, &entry, &block, 1), SX_INPUT,
                "a block of 64 threads, x86-64-v3 has none");
}
END_TEST

/* The loader's figure for a machine is the largest of the devices whose code it is: one that stands for several
 * machines has the least of theirs. */
START_TEST(test_devices_agree)
{
    uint32_t compared = 0, equal = 0;
    for (uint32_t i = 0; i < sx_device_count(); i++) {
        const sx_device *device = sx_device_at(i);
        const sx_machine *machine =
            device->target != NULL ? sx_machine_find(NULL, device->target) : NULL;
        if (machine == NULL) {
            continue;
        }
        if (device->block_threads == 0) {
            ck_assert_uint_eq(machine->block_shared_bytes, 0);
            continue;
        }
        ck_assert_msg((double)machine->block_shared_bytes >= device->shared_block_bytes, "%s: %.0f",
                      device->name, device->shared_block_bytes);
        equal += (double)machine->block_shared_bytes == device->shared_block_bytes ? 1 : 0;
        ck_assert_uint_eq(device->block_threads, SX_MODULE_THREADS_MAX);
        ck_assert_uint_le(machine->block_shared_bytes, SX_MODULE_SHARED_BYTES_MAX);
        compared++;
    }
    ck_assert_uint_ge(equal, 6);
    ck_assert_uint_eq(compared - equal, 1); /* generic-sm80 */
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("machine");
    TCase *tcase = tcase_create("machine");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, test_a_block_is_launched_as_its_text_says);
    tcase_add_test(tcase, test_clusters);
    tcase_add_test(tcase, test_shared_memory_of_a_block);
    tcase_add_test(tcase, test_walkers);
    tcase_add_test(tcase, test_processors_have_no_blocks);
    tcase_add_test(tcase, test_devices_agree);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
