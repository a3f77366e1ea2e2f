/* The real assemblers, on texts of tests/data/ptx. Both must give the same record; ptxas -v says some of it in words
 * and so judges the reader of cubins. Skipped where there is no CUDA toolkit. */
#include "tests/lib/test.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/assemble/assemble.h"
#include "core/base/hash.h"
#include "core/base/rng.h"

static sx_ctx cx;

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)1 << 28);
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

static sx_span read_text(sx_ctx *into, const char *name)
{
    char path[512];
    sx_buf file;
    (void)snprintf(path, sizeof(path), SX_SOURCE_DIR "/tests/data/ptx/%s.ptx", name);
    sx_buf_init(&file, (size_t)1 << 20);
    sx_test_read_file(path, &file);
    const char *copy = sx_alloc_text(into, sx_buf_span(&file));
    sx_span text = {(const uint8_t *)copy, file.len};
    ck_assert_ptr_nonnull(copy);
    sx_buf_fini(&file);
    return text;
}

static sx_code assemble(sx_ctx *into, const char *name, const char *target, sxa_tool with,
                        sxa_result *result)
{
    sxa_options options = {.with = with};
    return sxa_assemble(into, read_text(into, name), target, &options, result);
}

static const sx_cubin_kernel *kernel_of(const sxa_result *result, const char *name)
{
    const sx_cubin_kernel *kernel = sx_cubin_find(result->record, sx_span_of(name));
    ck_assert_msg(kernel != NULL, "no kernel %s", name);
    return kernel;
}

/* Texts that assemble, with their targets. */
static const struct {
    const char *name, *target;
    bool same_registers;
} sound[] = {{"plain", "sm_80", true},
             {"plain", "sm_89", true},
             {"plain", "sm_90a", true},
             {"plain", "sm_100a", true},
             {"plain", "sm_120", true},
             {"shared", "sm_80", true},
             {"shared", "sm_90", true},
             {"shared", "sm_100a", true},
             {"spill", "sm_80", true},
             {"spill", "sm_90a", true},
             {"cluster", "sm_90a", true},
             {"wgmma", "sm_90a", true},
             /* nvJitLink links functions of the toolkit to it, which call for more of them. */
             {"tcgen05", "sm_100a", false}};

/* ---- the two agree ---- */

static void compare(const sx_cubin_kernel *a, const sx_cubin_kernel *b, bool same_registers)
{
    ck_assert(sx_span_equal(a->name, b->name));
    ck_assert_uint_eq(a->frame_bytes, b->frame_bytes);
    ck_assert_uint_eq(a->spill_count, b->spill_count);
    ck_assert_uint_eq(a->shared_bytes, b->shared_bytes);
    ck_assert_uint_eq(a->barriers, b->barriers);
    ck_assert_uint_eq(a->mbarriers, b->mbarriers);
    ck_assert_uint_eq(a->param_count, b->param_count);
    ck_assert_uint_eq(a->param_bytes, b->param_bytes);
    ck_assert(memcmp(&a->block, &b->block, sizeof(a->block)) == 0);
    ck_assert(memcmp(&a->block_max, &b->block_max, sizeof(a->block)) == 0);
    ck_assert(memcmp(&a->cluster, &b->cluster, sizeof(a->cluster)) == 0);
    ck_assert_uint_eq(a->cluster_max, b->cluster_max);
    ck_assert(same_registers ? a->registers == b->registers : a->registers != b->registers);
}

START_TEST(test_both_assemblers_agree)
{
    sxa_result one, other;
    ck_sx_ok(&cx, assemble(&cx, sound[_i].name, sound[_i].target, SXA_NVJITLINK, &one));
    ck_sx_ok(&cx, assemble(&cx, sound[_i].name, sound[_i].target, SXA_PTXAS, &other));
    char target[SX_CUBIN_TARGET_MAX];
    sx_cubin_target(one.record, target);
    ck_assert_str_eq(target, sound[_i].target);
    sx_cubin_target(other.record, target);
    ck_assert_str_eq(target, sound[_i].target);
    ck_assert_str_eq(one.record->toolkit, other.record->toolkit);
    ck_assert_uint_eq(one.record->kernel_count, other.record->kernel_count);
    for (uint32_t i = 0; i < one.record->kernel_count; i++) {
        compare(&one.record->kernel[i], &other.record->kernel[i], sound[_i].same_registers);
    }
    ck_assert_uint_eq(one.failure_count, other.failure_count);
    ck_assert_uint_eq(one.failure_count, strcmp(sound[_i].name, "spill") == 0);
    sxa_result again; /* the same text, the same bytes */
    ck_sx_ok(&cx, assemble(&cx, sound[_i].name, sound[_i].target, SXA_NVJITLINK, &again));
    ck_assert(sx_span_equal(one.cubin, again.cubin));
}
END_TEST

/* ---- what ptxas says in words ---- */

/* The number in front of `unit`, in the lines about a kernel; 0: it is not said. */
static uint64_t said(const sxa_result *result, sx_span kernel, const char *unit)
{
    char mark[300];
    (void)snprintf(mark, sizeof(mark), "entry function '%.*s'", (int)kernel.len,
                   (const char *)kernel.ptr);
    const char *from = strstr((const char *)result->log.ptr, mark);
    ck_assert_ptr_nonnull(from);
    const char *to = strstr(from + 1, "entry function"), *at = strstr(from, unit);
    if (at == NULL || (to != NULL && at > to)) {
        return 0;
    }
    const char *digits = at;
    while (digits > from && digits[-1] >= '0' && digits[-1] <= '9') {
        digits--;
    }
    return strtoull(digits, NULL, 10);
}

START_TEST(test_the_record_is_what_ptxas_says)
{
    sxa_result result;
    ck_sx_ok(&cx, assemble(&cx, sound[_i].name, sound[_i].target, SXA_PTXAS, &result));
    for (uint32_t i = 0; i < result.record->kernel_count; i++) {
        const sx_cubin_kernel *k = &result.record->kernel[i];
        ck_assert_uint_eq(k->registers, said(&result, k->name, " registers"));
        ck_assert_uint_eq(k->barriers, said(&result, k->name, " barriers"));
        ck_assert_uint_eq(k->frame_bytes, said(&result, k->name, " bytes stack frame"));
        ck_assert_uint_eq(k->shared_bytes, said(&result, k->name, " bytes smem"));
        uint64_t spilled = said(&result, k->name, " bytes spill stores") +
                           said(&result, k->name, " bytes spill loads");
        ck_assert_uint_eq(k->spill_count > 0, spilled > 0);
        ck_assert_uint_le(k->spill_count, spilled / 4); /* an instruction moves 4 bytes or more */
        ck_assert_uint_ge(k->spill_count, spilled / 16);
    }
}
END_TEST

/* ---- what the texts say ---- */

START_TEST(test_records_of_known_texts)
{
    sxa_result result;
    ck_sx_ok(&cx, assemble(&cx, "cluster", "sm_90a", SXA_ANY, &result));
    ck_assert_int_eq(result.tool, SXA_NVJITLINK);
    const sx_cubin_kernel *k = kernel_of(&result, "pair");
    ck_assert(k->cluster_explicit && k->cluster.x == 2 && k->cluster.y == 1 && k->cluster.z == 1);
    ck_assert(k->block.x == 64 && k->block.y == 2 && k->block.z == 1 && k->block_max.x == 0);
    ck_assert_uint_eq(k->shared_bytes, 4104);
    ck_assert_uint_eq(k->barriers, 4);
    ck_assert_uint_eq(k->mbarriers, 1);
    ck_assert_uint_eq(k->param_count, 2);
    ck_assert(k->param[0].offset == 0 && k->param[0].size == 8);
    /* Aligned to 64 together with what lies before the parameters in their bank, 528 bytes on sm_90. */
    ck_assert(k->param[1].offset == 48 && k->param[1].size == 128);
    k = kernel_of(&result, "any_cluster");
    ck_assert_uint_eq(k->cluster_max, 4);
    ck_assert_uint_eq(k->block_max.x, 256);
    ck_sx_ok(&cx, assemble(&cx, "shared", "sm_80", SXA_ANY, &result));
    ck_assert_uint_eq(kernel_of(&result, "given")->barriers, 16);
    ck_assert_uint_eq(kernel_of(&result, "given")->param[1].size, 4000);
    ck_assert_uint_eq(result.finding_count, 1);
    ck_assert_str_eq(result.finding[0].name, "barriers");
    ck_sx_ok(&cx, sxa_refuse(&cx, &result));
}
END_TEST

START_TEST(test_what_is_a_failure)
{
    static const struct {
        const char *name, *target, *finding;
        sxa_tool with;
    } row[] = {{"spill", "sm_80", "spill", SXA_ANY},
               {"wgmma_unfenced", "sm_90a", "C7519", SXA_NVJITLINK},
               {"wgmma_unfenced", "sm_90a", "C7519", SXA_PTXAS},
               {"setmaxnreg", "sm_90a", "C7504", SXA_NVJITLINK}};
    sxa_result result;
    for (uint32_t i = 0; i < SX_COUNT(row); i++) {
        ck_sx_ok(&cx, assemble(&cx, row[i].name, row[i].target, row[i].with, &result));
        ck_assert_uint_eq(result.failure_count, 1);
        ck_assert_str_eq(result.finding[0].name, row[i].finding);
        ck_sx_fails(&cx, sxa_refuse(&cx, &result), SX_COMPILE, row[i].finding);
    }
    /* With ptxas, which is chosen for it, it is kept: 168 registers at entry, as the text asks. */
    ck_sx_ok(&cx, assemble(&cx, "setmaxnreg", "sm_90a", SXA_ANY, &result));
    ck_assert_int_eq(result.tool, SXA_PTXAS);
    ck_assert_uint_eq(result.failure_count, 0);
    ck_assert_uint_eq(kernel_of(&result, "handed")->registers, 168);
}
END_TEST

START_TEST(test_what_is_refused)
{
    sxa_result result;
    for (int with = SXA_NVJITLINK; with <= SXA_PTXAS; with++) {
        sxa_tool tool = (sxa_tool)with;
        ck_sx_fails(&cx, assemble(&cx, "error", "sm_90a", tool, &result), SX_COMPILE,
                    "line 9: Arguments mismatch for instruction 'add': `add.u32 %r1, %r2;`");
        ck_sx_fails(&cx, assemble(&cx, "error", "sm_90a", tool, &result), SX_COMPILE,
                    "`frobnicate.u32 %r1, %r2;`");
        ck_sx_fails(&cx, assemble(&cx, "wgmma_starved", "sm_90a", tool, &result), SX_COMPILE,
                    "register target of");
        ck_sx_fails(&cx, assemble(&cx, "cluster", "sm_100a", tool, &result), SX_COMPILE, "sm_90a");
        ck_sx_fails(&cx, assemble(&cx, "plain", "sm_66", tool, &result), SX_COMPILE, "sm_66");
    }
}
END_TEST

/* ---- several at once ---- */

typedef struct {
    const char *name, *target;
    sxa_tool with;
    sx_ctx own;
    sx_hash128 hash;
    sx_code code;
} job;

static void *work(void *self)
{
    job *j = self;
    for (uint32_t i = 0; i < 3; i++) {
        sxa_result result;
        sxa_options options = {.with = j->with};
        sx_ctx_init(&j->own, (size_t)1 << 26);
        j->code = sxa_assemble(&j->own, read_text(&j->own, j->name), j->target, &options, &result);
        j->hash = j->code == SX_OK ? sx_hash128_of(result.cubin) : j->hash;
        sx_ctx_fini(&j->own);
    }
    return NULL;
}

START_TEST(test_several_threads)
{
    static job jobs[] = {{.name = "plain", .target = "sm_80", .with = SXA_NVJITLINK},
                         {.name = "cluster", .target = "sm_90a", .with = SXA_NVJITLINK},
                         {.name = "spill", .target = "sm_80", .with = SXA_PTXAS},
                         {.name = "spill", .target = "sm_80", .with = SXA_NVJITLINK},
                         {.name = "wgmma", .target = "sm_90a", .with = SXA_PTXAS}};
    pthread_t thread[SX_COUNT(jobs)];
    for (uint32_t i = 0; i < SX_COUNT(jobs); i++) {
        ck_assert_int_eq(pthread_create(&thread[i], NULL, work, &jobs[i]), 0);
    }
    for (uint32_t i = 0; i < SX_COUNT(jobs); i++) {
        sxa_result alone;
        ck_assert_int_eq(pthread_join(thread[i], NULL), 0);
        ck_assert_int_eq(jobs[i].code, SX_OK);
        ck_sx_ok(&cx, assemble(&cx, jobs[i].name, jobs[i].target, jobs[i].with, &alone));
        sx_hash128 hash = sx_hash128_of(alone.cubin);
        ck_assert(hash.low == jobs[i].hash.low && hash.high == jobs[i].hash.high);
    }
}
END_TEST

/* Real cubins with altered bytes: an answer, and never a crash. */
START_TEST(test_altered_cubins)
{
    sx_rng rng = {sx_test_seed()};
    sxa_result result;
    ck_sx_ok(&cx, assemble(&cx, sound[_i].name, sound[_i].target, SXA_ANY, &result));
    uint32_t trials = sx_test_trials(4000);
    for (uint32_t t = 0; t < trials; t++) {
        sx_ctx own;
        sx_cubin *cubin;
        uint8_t *copy = malloc(result.cubin.len);
        ck_assert_ptr_nonnull(copy);
        memcpy(copy, result.cubin.ptr, result.cubin.len);
        for (uint64_t n = 1 + sx_rng_below(&rng, 4); n > 0; n--) {
            copy[sx_rng_below(&rng, result.cubin.len)] = (uint8_t)sx_rng_next(&rng);
        }
        sx_ctx_init(&own, (size_t)1 << 24);
        (void)sx_cubin_read(&own, (sx_span){copy, result.cubin.len}, &cubin);
        sx_ctx_fini(&own);
        free(copy);
    }
}
END_TEST

int main(void)
{
    static sxa_found library, program;
    sx_ctx_init(&cx, (size_t)1 << 20);
    sxa_find(&cx, SXA_NVJITLINK, NULL, &library);
    sxa_find(&cx, SXA_PTXAS, NULL, &program);
    sx_ctx_fini(&cx);
    if (!library.found || !program.found) {
        printf("SKIPPED: CUDA toolkit: no %s\n", !program.found ? "ptxas" : "nvJitLink");
        return SX_TEST_SKIPPED;
    }
    Suite *suite = suite_create("toolkit");
    TCase *tcase = tcase_create("toolkit");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, test_both_assemblers_agree, 0, (int)SX_COUNT(sound));
    tcase_add_loop_test(tcase, test_the_record_is_what_ptxas_says, 0, (int)SX_COUNT(sound));
    tcase_add_test(tcase, test_records_of_known_texts);
    tcase_add_test(tcase, test_what_is_a_failure);
    tcase_add_test(tcase, test_what_is_refused);
    tcase_add_test(tcase, test_several_threads);
    tcase_add_loop_test(tcase, test_altered_cubins, 0, (int)SX_COUNT(sound));
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
