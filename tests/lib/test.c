#include "tests/lib/test.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "client/runtime/cpu.h"

bool sx_test_can_run(const char *target)
{
    const char *only = getenv("SX_TARGET");
    const sx_machine *row = sx_machine_find(NULL, target);
    ck_assert_msg(row != NULL, "%s is no target that runs", target);
    if (only != NULL) {
        return strcmp(only, target) == 0;
    }
    ck_assert_msg(sxr_cpu_executes(row),
                  "this processor does not run %s: name one that it runs, SX_TARGET=x86-64-v3",
                  target);
    return true;
}

int sx_test_main(Suite *suite)
{
    const char *only = getenv("SX_TARGET");
    const sx_machine *row = only != NULL ? sx_machine_find(NULL, only) : NULL;
    const sx_machine *here = sxr_cpu_machine();
    if (only != NULL && row == NULL) {
        (void)fprintf(stderr, "SX_TARGET=%s: no target has this name\n", only);
        return EXIT_FAILURE;
    }
    if (row != NULL && !sxr_cpu_executes(row)) {
        printf("SKIPPED: instruction set %s: this processor has %s\n", only,
               here != NULL ? here->name : "none of the targets");
        return SX_TEST_SKIPPED;
    }
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

uint64_t sx_test_seed(void)
{
    const char *text = getenv("SX_SEED");
    uint64_t seed;
    if (text != NULL) {
        seed = strtoull(text, NULL, 10);
    } else {
        struct timespec now;
        (void)clock_gettime(CLOCK_REALTIME, &now);
        seed = (uint64_t)now.tv_sec * UINT64_C(1000003) + (uint64_t)now.tv_nsec;
    }
    printf("seed: SX_SEED=%llu\n", (unsigned long long)seed);
    (void)fflush(stdout);
    return seed;
}

void sx_test_mkdtemp(char path[256])
{
    const char *base = getenv("TMPDIR");
    (void)snprintf(path, 256, "%s/sxtest.XXXXXX", base != NULL ? base : "/tmp");
    ck_assert_ptr_nonnull(mkdtemp(path));
}

void sx_test_rmtree(const char *path)
{
    DIR *folder = opendir(path);
    if (folder == NULL) {
        (void)unlink(path);
        return;
    }
    struct dirent *entry;
    while ((entry = readdir(folder)) != NULL) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) {
            continue;
        }
        char child[4096];
        (void)snprintf(child, sizeof(child), "%s/%s", path, entry->d_name);
        struct stat status;
        if (lstat(child, &status) == 0 && S_ISDIR(status.st_mode)) {
            sx_test_rmtree(child);
        } else {
            (void)unlink(child);
        }
    }
    (void)closedir(folder);
    (void)rmdir(path);
}

bool sx_test_wait(bool (*ready)(void *self), void *self, uint32_t deadline_ms)
{
    for (uint32_t waited_ms = 0; waited_ms <= deadline_ms; waited_ms += 2) {
        if (ready(self)) {
            return true;
        }
        (void)usleep(2000);
    }
    return false;
}

void sx_test_read_file(const char *path, sx_buf *buf)
{
    FILE *file = fopen(path, "rb");
    ck_assert_msg(file != NULL, "cannot open %s", path);
    uint8_t chunk[65536];
    size_t got;
    while ((got = fread(chunk, 1, sizeof(chunk), file)) > 0) {
        sx_buf_put(buf, chunk, got);
    }
    (void)fclose(file);
    ck_assert_int_eq(buf->code, SX_OK);
}
