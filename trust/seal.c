#include "trust/seal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trust/trust.h"

_Static_assert(crypto_sign_PUBLICKEYBYTES == 32 && crypto_sign_SECRETKEYBYTES == 64 &&
                   crypto_sign_BYTES == 64 && crypto_sign_SEEDBYTES == 32,
               "sizes of Ed25519");
_Static_assert(sizeof(((sx_module_seal *)0)->signature) == crypto_sign_BYTES, "seal");

/* ---- the key: a file of 32 random bytes ---- */

static sx_code read_key(sx_ctx *cx, const char *path, sx_trust_key *key)
{
    uint8_t seed[crypto_sign_SEEDBYTES + 1];
    struct stat status;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) {
        return SX_FAIL(cx, errno == ENOENT ? SX_ABSENT : SX_DENIED, "key %s: %s", path,
                       strerror(errno));
    }
    bool known = fstat(fd, &status) == 0;
    bool ours = known && S_ISREG(status.st_mode) && status.st_uid == geteuid() &&
                (status.st_mode & 0077) == 0;
    ssize_t size = ours ? read(fd, seed, sizeof(seed)) : 0;
    int error = errno;
    (void)close(fd);
    if (!known || size < 0) {
        return SX_FAIL(cx, SX_SYSTEM, "key %s cannot be read: %s", path, strerror(error));
    }
    if (!ours) {
        return SX_FAIL(cx, SX_DENIED, "key %s: owner %u, mode %04o; a key is ours and closed", path,
                       status.st_uid, status.st_mode & 07777u);
    }
    if (size != crypto_sign_SEEDBYTES) {
        return SX_FAIL(cx, SX_CORRUPT, "key %s: %zd bytes, a key has %u", path, size,
                       (unsigned)crypto_sign_SEEDBYTES);
    }
    (void)crypto_sign_seed_keypair(key->public_key, key->secret_key, seed);
    sodium_memzero(seed, sizeof(seed));
    return SX_OK;
}

/* Whole or not at all, and only where there is none: another process may be doing the same. */
static sx_code make_key(sx_ctx *cx, const char *path)
{
    uint8_t seed[crypto_sign_SEEDBYTES];
    char temporary[PATH_MAX + 40];
    (void)snprintf(temporary, sizeof(temporary), "%s.%ld.part", path, (long)getpid());
    (void)unlink(temporary); /* of an earlier process of this number */
    int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    randombytes_buf(seed, sizeof(seed));
    bool made = fd >= 0 && write(fd, seed, sizeof(seed)) == (ssize_t)sizeof(seed) && fsync(fd) == 0;
    made = made && (link(temporary, path) == 0 || errno == EEXIST);
    int error = errno;
    sodium_memzero(seed, sizeof(seed));
    if (fd >= 0) {
        (void)close(fd);
        (void)unlink(temporary);
    }
    return made ? SX_OK
                : SX_FAIL(cx, SX_SYSTEM, "key %s cannot be made: %s", path, strerror(error));
}

sx_code sx_trust_key_open(sx_ctx *cx, const char *folder, bool make, sx_trust_key *key)
{
    SX_ASSERT(folder != NULL);
    char path[PATH_MAX];
    sx_trust us = {.self = geteuid(), .also = geteuid()};
    if (snprintf(path, sizeof(path), "%s/" SX_TRUST_KEY_FILE, folder) >= (int)sizeof(path)) {
        return SX_FAIL(cx, SX_LIMIT, "key: folder path of %zu bytes, at most %zu", strlen(folder),
                       sizeof(path) - sizeof(SX_TRUST_KEY_FILE) - 1);
    }
    if (sodium_init() < 0) {
        return SX_FAIL(cx, SX_SYSTEM, "libsodium does not start");
    }
    SX_TRY(make ? sx_trust_make_folder(cx, "state", folder)
                : sx_trust_folder(cx, "state", folder, &us, 0077));
    sx_code code = read_key(cx, path, key);
    if (code == SX_ABSENT && make) {
        sx_ctx_reset_error(cx);
        SX_TRY(make_key(cx, path));
        code = read_key(cx, path, key);
    }
    return code;
}

void sx_trust_key_close(sx_trust_key *key)
{
    sodium_memzero(key, sizeof(*key));
}

void sx_trust_key_name(const uint8_t public_key[32], char name[SX_TRUST_KEY_NAME_SIZE])
{
    for (uint32_t i = 0; i < (SX_TRUST_KEY_NAME_SIZE - 1) / 2; i++) {
        (void)snprintf(name + 2 * i, 3, "%02x", public_key[i]);
    }
}

/* ---- signing ---- */

#define DOMAIN "symplex module 1"
typedef struct {
    uint8_t domain[sizeof(DOMAIN) - 1];
    uint8_t digest[SX_KEY_BYTES];
} signed_bytes;
_Static_assert(sizeof(signed_bytes) == sizeof(DOMAIN) - 1 + SX_KEY_BYTES, "no padding is signed");

static sx_code fill(sx_ctx *cx, const sx_module *module, signed_bytes *bytes)
{
    sx_key digest;
    SX_TRY(sx_module_digest(cx, module, &digest));
    memcpy(bytes->domain, DOMAIN, sizeof(bytes->domain));
    memcpy(bytes->digest, digest.byte, sizeof(bytes->digest));
    return SX_OK;
}

sx_code sx_trust_seal(sx_ctx *cx, const sx_trust_key *key, sx_span module, sx_module_seal *seal)
{
    SX_ASSERT((uintptr_t)module.ptr % 64 == 0); /* as the loader wants it */
    sx_module tables;
    signed_bytes bytes;
    SX_TRY(sx_module_decode(cx, module, false, &tables));
    if (tables.sealed) {
        return SX_FAIL(cx, SX_CORRUPT, "module: it carries a seal already");
    }
    SX_TRY(fill(cx, &tables, &bytes));
    memcpy(seal->magic, SX_MODULE_SEAL_MAGIC, sizeof(seal->magic));
    memcpy(seal->key, key->public_key, sizeof(seal->key));
    (void)crypto_sign_detached(seal->signature, NULL, (const uint8_t *)&bytes, sizeof(bytes),
                               key->secret_key);
    return SX_OK;
}

sx_code sx_trust_seal_check(sx_ctx *cx, const sx_module *module, bool *fits)
{
    signed_bytes bytes;
    *fits = false;
    if (!module->sealed) {
        return SX_OK;
    }
    SX_TRY(fill(cx, module, &bytes));
    *fits = crypto_sign_verify_detached(module->seal.signature, (const uint8_t *)&bytes,
                                        sizeof(bytes), module->seal.key) == 0;
    return SX_OK;
}
