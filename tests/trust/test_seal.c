/* Keys and seals: a key is made once and closed to others; a seal fits the bytes it was made for and no others. */
#include "trust/seal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/gen_module.h"
#include "tests/lib/test.h"

static sx_ctx cx;
static char top[256], folder[300], file[320];
static sx_trust_key key;

static void setup(void)
{
    sx_ctx_init(&cx, 1 << 26);
    sx_test_mkdtemp(top);
    (void)snprintf(folder, sizeof(folder), "%s/a/state", top);
    (void)snprintf(file, sizeof(file), "%s/verify.key", folder);
    ck_sx_ok(&cx, sx_trust_key_open(&cx, folder, true, &key));
}
static void teardown(void)
{
    sx_test_rmtree(top);
    sx_ctx_fini(&cx);
}

/* ---- keys ---- */

START_TEST(a_key_is_made_once)
{
    sx_trust_key again;
    struct stat status;
    ck_assert_int_eq(stat(file, &status), 0);
    ck_assert_uint_eq(status.st_mode & 07777u, 0600);
    ck_assert_int_eq(stat(folder, &status), 0);
    ck_assert_uint_eq(status.st_mode & 07777u, 0700);
    for (int make = 0; make < 2; make++) {
        ck_sx_ok(&cx, sx_trust_key_open(&cx, folder, make != 0, &again));
        ck_assert_mem_eq(&again, &key, sizeof(key));
    }
    char other[300];
    (void)snprintf(other, sizeof(other), "%s/b", top);
    ck_sx_fails(&cx, sx_trust_key_open(&cx, other, false, &again), SX_ABSENT, "/b");
    ck_sx_ok(&cx, sx_trust_key_open(&cx, other, true, &again));
    ck_assert_mem_ne(again.public_key, key.public_key, sizeof(key.public_key));
}
END_TEST

/* Many processes at once: one key. */
START_TEST(one_key_for_all)
{
    enum { COUNT = 16 };
    int pipes[2];
    ck_assert_int_eq(unlink(file), 0);
    ck_assert_int_eq(pipe(pipes), 0);
    for (int i = 0; i < COUNT; i++) {
        pid_t child = fork();
        if (child == 0) {
            bool fine = sx_trust_key_open(&cx, folder, true, &key) == SX_OK &&
                        write(pipes[1], key.public_key, 32) == 32;
            _exit(fine ? 0 : 1);
        }
    }
    (void)close(pipes[1]);
    ck_sx_ok(&cx, sx_trust_key_open(&cx, folder, true, &key));
    for (int i = 0; i < COUNT; i++) {
        uint8_t got[32];
        int status;
        ck_assert_int_eq(read(pipes[0], got, sizeof(got)), 32);
        ck_assert_mem_eq(got, key.public_key, 32);
        ck_assert_int_ge(wait(&status), 0);
        ck_assert_int_eq(status, 0);
    }
    (void)close(pipes[0]);
}
END_TEST

static void refused(sx_code code, const char *part)
{
    sx_trust_key other;
    ck_sx_fails(&cx, sx_trust_key_open(&cx, folder, true, &other), code, part);
}

START_TEST(keys_that_are_none)
{
    char elsewhere[300];
    (void)snprintf(elsewhere, sizeof(elsewhere), "%s/k", top);
    ck_assert_int_eq(chmod(file, 0640), 0);
    refused(SX_DENIED, "mode 0640");
    ck_assert_int_eq(chmod(file, 0600), 0);
    ck_assert_int_eq(truncate(file, 31), 0);
    refused(SX_CORRUPT, "31 bytes");
    ck_assert_int_eq(truncate(file, 33), 0);
    refused(SX_CORRUPT, "33 bytes");
    ck_assert_int_eq(rename(file, elsewhere), 0);
    ck_assert_int_eq(symlink(elsewhere, file), 0);
    refused(SX_DENIED, "verify.key");
    ck_assert_int_eq(unlink(file), 0);
    ck_assert_int_eq(mkfifo(file, 0600), 0);
    refused(SX_DENIED, "verify.key");
    ck_assert_int_eq(unlink(file), 0);
    ck_assert_int_eq(chmod(folder, 0750), 0);
    refused(SX_DENIED, "mode 0750");
}
END_TEST

/* ---- seals ---- */

static sx_gen_module_tables tables;

static bool fits(const sx_module *module)
{
    bool answer = false;
    ck_sx_ok(&cx, sx_trust_seal_check(&cx, module, &answer));
    return answer;
}

/* The hand-made module with a seal, as it lies in `tables`. */
static sx_module sealed(sx_buf *bytes)
{
    sx_gen_module_make_rich(&tables);
    sx_buf_init(bytes, 1 << 20);
    sx_gen_module_encode(&cx, &tables, bytes);
    sx_buf copy;
    sx_buf_init(&copy, 1 << 20);
    void *aligned = aligned_alloc(64, (bytes->len + 63) / 64 * 64);
    memcpy(aligned, bytes->ptr, bytes->len);
    sx_module module = sx_gen_module_view(&tables);
    ck_sx_ok(&cx, sx_trust_seal(&cx, &key, (sx_span){aligned, bytes->len}, &module.seal));
    free(aligned);
    module.sealed = true;
    return module;
}

START_TEST(a_seal_survives_the_file)
{
    sx_buf plain, whole;
    sx_module module = sealed(&plain), back, other;
    ck_assert(fits(&module));
    sx_buf_init(&whole, 1 << 20);
    ck_sx_ok(&cx, sx_module_encode(&cx, &module, &whole));
    ck_assert_uint_eq(whole.len, plain.len + sizeof(sx_module_seal));
    ck_assert_mem_eq(whole.ptr, plain.ptr, plain.len); /* it is no part of the file */
    size_t size = (whole.len + 63) / 64 * 64 + 64;
    uint8_t *aligned = aligned_alloc(64, size);
    memset(aligned, 0, size);
    memcpy(aligned, whole.ptr, whole.len);
    ck_sx_ok(&cx, sx_module_decode(&cx, (sx_span){aligned, whole.len}, true, &back));
    ck_assert(back.sealed && fits(&back));
    ck_sx_ok(&cx, sx_module_decode(&cx, (sx_span){aligned, plain.len}, true, &other));
    ck_assert(!other.sealed && !fits(&other));
    for (size_t cut = plain.len + 1; cut < whole.len + 8; cut++) {
        sx_code code = sx_module_decode(&cx, (sx_span){aligned, cut}, true, &other);
        ck_assert_int_eq(code, cut == whole.len ? SX_OK : SX_CORRUPT);
        sx_ctx_reset_error(&cx);
    }
    aligned[plain.len] ^= 1; /* no seal at all: then the file is too long */
    ck_sx_fails(&cx, sx_module_decode(&cx, (sx_span){aligned, whole.len}, true, &other), SX_CORRUPT,
                "header says");
    aligned[plain.len] ^= 1;
    sx_module_seal twice;
    ck_sx_fails(&cx, sx_trust_seal(&cx, &key, (sx_span){aligned, whole.len}, &twice), SX_CORRUPT,
                "carries a seal already");
    free(aligned);
    sx_buf_fini(&plain);
    sx_buf_fini(&whole);
}
END_TEST

START_TEST(one_key_signs_equal_modules_equally)
{
    sx_buf first, second;
    sx_module a = sealed(&first), b = sealed(&second);
    ck_assert_mem_eq(&a.seal, &b.seal, sizeof(a.seal));
    sx_trust_key other;
    char there[300];
    (void)snprintf(there, sizeof(there), "%s/other", top);
    ck_sx_ok(&cx, sx_trust_key_open(&cx, there, true, &other));
    memcpy(b.seal.key, other.public_key, sizeof(b.seal.key)); /* says that somebody else signed */
    ck_assert(!fits(&b));
    sx_buf_fini(&first);
    sx_buf_fini(&second);
}
END_TEST

/* Every bit of every table and of the seal; weights and their places are not signed, for they are put in later. */
START_TEST(no_other_bytes_fit)
{
    sx_buf bytes;
    sx_module module = sealed(&bytes);
    struct {
        void *at;
        size_t size;
    } part[] = {{&tables.info, sizeof(tables.info)},
                {tables.symbol, tables.symbols * sizeof(*tables.symbol)},
                {tables.range, tables.ranges * sizeof(*tables.range)},
                {tables.variant, tables.variants * sizeof(*tables.variant)},
                {tables.guard, tables.guards * sizeof(*tables.guard)},
                {tables.extent, tables.extents * sizeof(*tables.extent)},
                {tables.tensor, tables.tensors * sizeof(*tables.tensor)},
                {tables.kernel, tables.kernels * sizeof(*tables.kernel)},
                {tables.part, tables.parts * sizeof(*tables.part)},
                {tables.launch, tables.launches * sizeof(*tables.launch)},
                {tables.arg, tables.args * sizeof(*tables.arg)},
                {tables.constants, sizeof(tables.constants)},
                {tables.code, module.code_count},
                {tables.strings, sizeof(tables.strings)},
                {module.seal.key, sizeof(module.seal.key) + sizeof(module.seal.signature)}};
    size_t where = offsetof(sx_module_tensor, offset);
    for (uint32_t k = 0; k < SX_COUNT(part); k++) {
        uint8_t *byte = part[k].at;
        for (size_t i = 0; i < part[k].size; i++) {
            size_t in = i % sizeof(sx_module_tensor);
            bool place = part[k].at == (void *)tables.tensor && in >= where && in < where + 8 &&
                         tables.tensor[i / sizeof(sx_module_tensor)].place == SX_TENSOR_WEIGHT;
            byte[i] ^= (uint8_t)(1u << (i % 8));
            ck_assert_msg(fits(&module) == place, "part %u, byte %zu", k, i);
            byte[i] ^= (uint8_t)(1u << (i % 8));
        }
    }
    tables.weights[3] ^= 1;
    module.weights_count = 0;
    ck_assert(fits(&module));
    sx_buf_fini(&bytes);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("seal");
    TCase *cases = tcase_create("seal");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, a_key_is_made_once);
    tcase_add_test(cases, one_key_for_all);
    tcase_add_test(cases, keys_that_are_none);
    tcase_add_test(cases, a_seal_survives_the_file);
    tcase_add_test(cases, one_key_signs_equal_modules_equally);
    tcase_add_test(cases, no_other_bytes_fit);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
