/* Every call of the system that making, reading and checking a key does fails once: a code that says so, no key
 * that is half written, no file left open, and afterwards the same folder serves.
 *
 * The linker sends the calls of the program to the functions below (--wrap, tests/CMakeLists.txt), so that none
 * can be forgotten: what the product calls is counted, not what somebody named. */
#include "tests/lib/test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trust/seal.h"
#include "trust/trust.h"

static struct {
    bool armed;
    uint32_t calls;   /* so far */
    uint32_t fail_at; /* this call fails, counted from 1 */
    bool cut_short;   /* a write is cut short instead of failing */
    const char *name; /* of the one that failed */
} fault;

static bool fails(const char *name)
{
    if (!fault.armed || ++fault.calls != fault.fail_at) {
        return false;
    }
    fault.name = name;
    errno = EIO;
    return true;
}

/* __real_x is what the linker calls x. */
#define WRAP(result, name, parameters, arguments)           \
    result __real_##name parameters;                        \
    result __wrap_##name parameters;                        \
    result __wrap_##name parameters                         \
    {                                                       \
        return fails(#name) ? -1 : __real_##name arguments; \
    }

WRAP(int, fstat, (int fd, struct stat *status), (fd, status))
WRAP(int, lstat, (const char *path, struct stat *status), (path, status))
WRAP(int, stat, (const char *path, struct stat *status), (path, status))
WRAP(ssize_t, read, (int fd, void *bytes, size_t size), (fd, bytes, size))
WRAP(int, fsync, (int fd), (fd))
WRAP(int, link, (const char *from, const char *to), (from, to))
WRAP(int, unlink, (const char *path), (path))
WRAP(int, mkdir, (const char *path, mode_t mode), (path, mode))

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
    return fails("open") ? -1 : __real_open(path, flags, 0600);
}

ssize_t __real_write(int fd, const void *bytes, size_t size);
ssize_t __wrap_write(int fd, const void *bytes, size_t size);
ssize_t __wrap_write(int fd, const void *bytes, size_t size)
{
    if (!fails("write")) {
        return __real_write(fd, bytes, size);
    }
    return fault.cut_short ? __real_write(fd, bytes, size / 2) : -1;
}

static uint32_t open_files(void)
{
    DIR *folder = opendir("/proc/self/fd");
    uint32_t count = 0;
    ck_assert_ptr_nonnull(folder);
    while (readdir(folder) != NULL) {
        count++;
    }
    (void)closedir(folder);
    return count;
}

/* Opens the key of `folder` with the n-th call failing; the code, and in *failed the name of that call or NULL. */
static sx_code open_key(sx_ctx *cx, const char *folder, bool make, uint32_t n, sx_trust_key *key,
                        const char **failed)
{
    fault.calls = 0;
    fault.fail_at = n;
    fault.name = NULL;
    fault.armed = true;
    sx_code code = sx_trust_key_open(cx, folder, make, key);
    fault.armed = false;
    *failed = fault.name;
    return code;
}

static void check_sweep(bool exists)
{
    const char *failed = "";
    uint32_t refused = 0;
    for (uint32_t n = 1; failed != NULL; n++) {
        char root[256], folder[300];
        sx_ctx cx;
        sx_trust_key key, again;
        sx_ctx_init(&cx, 1 << 16);
        sx_test_mkdtemp(root);
        (void)snprintf(folder, sizeof(folder), "%s/a/b", root);
        if (exists) {
            ck_sx_ok(&cx, sx_trust_key_open(&cx, folder, true, &again));
        }
        uint32_t files = open_files();
        sx_code code = open_key(&cx, folder, true, n, &key, &failed);
        ck_assert_uint_eq(open_files(), files);
        ck_assert_int_eq(code, cx.error.code);
        /* a file that could not be removed is not worth refusing a key for */
        bool harmless = failed == NULL || strcmp(failed, "unlink") == 0;
        ck_assert_msg(harmless == (code == SX_OK), "call %u, %s: %s (%s)", n, failed,
                      sx_code_name(code), cx.error.text);
        ck_assert_msg(code == SX_OK || code == SX_SYSTEM || code == SX_DENIED, "call %u, %s: %s", n,
                      failed, sx_code_name(code));
        refused += code != SX_OK;
        sx_ctx_reset_error(&cx);
        /* what is there now is a whole key or none, and the next call gets one */
        sx_trust_key next;
        ck_sx_ok(&cx, sx_trust_key_open(&cx, folder, true, &next));
        if (exists) {
            ck_assert_mem_eq(&next, &again, sizeof(next));
        } else if (code == SX_OK) {
            ck_assert_mem_eq(&next, &key, sizeof(next));
        }
        sx_test_rmtree(root);
        sx_ctx_fini(&cx);
    }
    ck_assert_uint_ge(refused, exists ? 5 : 12);
}

START_TEST(test_every_call_fails_once)
{
    fault.cut_short = _i == 2;
    check_sweep(_i == 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("trust.fault");
    TCase *cases = tcase_create("fault");
    tcase_add_loop_test(cases, test_every_call_fails_once, 0, 3);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
