/* seal.h - who verified a module: a signature behind the file that fits these bytes and no others.
 *
 * Whoever made the comparisons that a module lists signs its digest with a key of his state directory: the
 * daemon what its workers verified, a client what it compiled in process. Ed25519 is deterministic: one key
 * signs equal modules with equal bytes.
 */
#ifndef SX_TRUST_SEAL_H
#define SX_TRUST_SEAL_H
#include "protocol/module.h"

#define SX_TRUST_KEY_FILE "verify.key"
#define SX_TRUST_KEY_NAME_SIZE 17 /* the first 16 hex digits of the public key, and NUL */

typedef struct {
    uint8_t public_key[32];
    uint8_t secret_key[64];
} sx_trust_key;

/* The key of a folder that is ours and closed to others; `make`: made where it is missing, with the folder.
 *   errors   SX_ABSENT there is none; SX_DENIED folder or file are not ours alone; SX_CORRUPT no key; SX_SYSTEM it
 *            cannot be made or read */
sx_code sx_trust_key_open(sx_ctx *cx, const char *folder, bool make, sx_trust_key *key);
void sx_trust_key_close(sx_trust_key *key); /* forgets the secret */
void sx_trust_key_name(const uint8_t public_key[32], char name[SX_TRUST_KEY_NAME_SIZE]);

/* The seal of a module's bytes, which carry none yet (SX_CORRUPT) and are aligned to 64; to be put behind them. */
sx_code sx_trust_seal(sx_ctx *cx, const sx_trust_key *key, sx_span module, sx_module_seal *seal);
/* Does the seal fit the module? *fits is false without one. SX_NOMEM. */
sx_code sx_trust_seal_check(sx_ctx *cx, const sx_module *module, bool *fits);
#endif
