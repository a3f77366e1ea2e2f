/* api.h - for tests through client/symplex.h alone: what a call must return, and what it says where it fails. */
#ifndef SX_TESTS_CLIENT_API_H
#define SX_TESTS_CLIENT_API_H
#include <string.h>

#include "client/symplex.h"
#include "tests/lib/test.h"

/* Of the last call that was given it. */
static symplex_error error;

#define ck_ok(call)                                                                         \
    do {                                                                                    \
        symplex_code ck_code_ = (call);                                                     \
        ck_assert_msg(ck_code_ == SYMPLEX_OK, "%s: %s: %s", #call, error.name, error.text); \
    } while (0)
#define ck_fails(call, expected, part)                                                      \
    do {                                                                                    \
        symplex_code ck_code_ = (call);                                                     \
        ck_assert_msg(ck_code_ == (expected), "%s: %s: %s", #call, error.name, error.text); \
        ck_assert_int_eq(error.code, (expected));                                           \
        ck_assert_msg(strstr(error.text, (part)) != NULL, "text is '%s'", error.text);      \
    } while (0)
#endif
