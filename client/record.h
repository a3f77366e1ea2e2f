/* record.h - what the verification record of a module is worth: who signed it, and does the signature fit
 * these bytes? */
#ifndef SX_CLIENT_RECORD_H
#define SX_CLIENT_RECORD_H
#include "trust/seal.h"

typedef enum {
    /* The module has no kernels, so nothing was run. */
    SXC_RECORD_NONE,
    /* Nobody answers for it. */
    SXC_RECORD_UNSIGNED,
    /* The signature is of other bytes. */
    SXC_RECORD_ALTERED,
    /* The signature fits, but its key is neither ours nor that of the daemon. */
    SXC_RECORD_UNKNOWN,
    /* The signature fits, and its key is ours or that of the daemon that we believe. */
    SXC_RECORD_VERIFIED
} sxc_record_state;
typedef struct {
    sxc_record_state state;
    /* Only for VERIFIED: the key is that of the daemon, and another than that of our state folder. */
    bool daemon;
    /* The name of the key that signed. It is empty without a signature. */
    char key[SX_TRUST_KEY_NAME_SIZE];
} sxc_record;

#define SXC_FOLDER_MAX 4096
/* $XDG_STATE_HOME/symplex, else ~/.local/state/symplex: of the daemon and of the client's key. False: no home
 * is known. */
bool sxc_state_folder(char folder[SXC_FOLDER_MAX]);
/* Makes it where it is missing, closed to others. `what` is for: the error begins with that.
 *   errors   those of sx_trust_make_folder */
sx_code sxc_state_folder_make(sx_ctx *cx, const char *what, const char *folder);

/* Signs what was compiled and verified in process with the key of the state folder, made if it is missing.
 * Where there can be no key the module stays unsigned. */
void sxc_record_sign(sx_ctx *cx, sx_buf *module);
/* The daemon at `socket` (NULL: the default) is asked for its key if the module's is not ours. SX_NOMEM. */
sx_code sxc_record_read(sx_ctx *cx, const sx_module *module, const char *socket,
                        sxc_record *record);
/* "verified", "unknown-key", "altered", ... */
const char *sxc_record_name(const sxc_record *record);
void sxc_record_print(const sxc_record *record,
                      sx_buf *out); /* one line for people, without its end */
#endif
