/* test.h - what every test program needs: Check, a context per test, temporary folders, waiting with a deadline. */
#ifndef SX_TESTS_LIB_TEST_H
#define SX_TESTS_LIB_TEST_H
#include <check.h>

#include "core/base/base.h"
#include "core/base/buf.h"

/* The code is expected; prints the error text otherwise. */
#define ck_sx_ok(cx, call)                                                   \
    do {                                                                     \
        sx_code ck_code_ = (call);                                           \
        ck_assert_msg(ck_code_ == SX_OK, "%s: %s", #call, (cx)->error.text); \
    } while (0)
#define ck_sx_fails(cx, call, expected, text_part)                                              \
    do {                                                                                        \
        sx_code ck_code_ = (call);                                                              \
        ck_assert_msg(ck_code_ == (expected), "%s: got %s (%s)", #call, sx_code_name(ck_code_), \
                      (cx)->error.text);                                                        \
        ck_assert_msg(strstr((cx)->error.text, (text_part)) != NULL, "%s: text is '%s'", #call, \
                      (cx)->error.text);                                                        \
        sx_ctx_reset_error(cx);                                                                 \
    } while (0)

/* Runs one suite; the exit status of the program. Check's own fork mode isolates the cases.
 * $SX_TARGET names an instruction set ("x86-64-v3", "x86-64-v4"): what executes code of the other one is left
 * out, and where the processor lacks it nothing is run and the status is SX_TEST_SKIPPED, after a line
 * "SKIPPED: " with the reason. */
int sx_test_main(Suite *suite);
#define SX_TEST_SKIPPED 77

/* May this run execute code for `target`? Without $SX_TARGET yes, and the test fails where the processor
 * cannot: what was not executed must not look as if it had passed. */
bool sx_test_can_run(const char *target);

/* The seed of randomised tests: $SX_SEED or a fresh one; always printed. */
uint64_t sx_test_seed(void);

/* How many random trials a test makes: `usual` of them, and a quarter under sanitizers. There each takes five to ten
 * times as long and looks for something else; what a result means is tried in full by the release build. */
static inline uint32_t sx_test_trials(uint32_t usual)
{
    return SX_SANITIZED ? (usual + 3) / 4 : usual;
}

/* A fresh folder under $TMPDIR, removed by sx_test_rmtree. */
void sx_test_mkdtemp(char path[256]);
void sx_test_rmtree(const char *path);

/* Polls `ready` until it is true or `deadline_ms` passed. */
bool sx_test_wait(bool (*ready)(void *self), void *self, uint32_t deadline_ms);

/* Whole file into buf; fails the test when it cannot be read. */
void sx_test_read_file(const char *path, sx_buf *buf);
#endif
