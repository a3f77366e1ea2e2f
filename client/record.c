#include "client/record.h"

#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/connection.h"

bool sxc_state_folder(char folder[SXC_FOLDER_MAX])
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    if (state != NULL && state[0] != '\0') {
        return snprintf(folder, SXC_FOLDER_MAX, "%s/symplex", state) < SXC_FOLDER_MAX;
    }
    const struct passwd *user = home == NULL || home[0] == '\0' ? getpwuid(getuid()) : NULL;
    home = user != NULL ? user->pw_dir : home;
    return home != NULL && home[0] != '\0' &&
           snprintf(folder, SXC_FOLDER_MAX, "%s/.local/state/symplex", home) < SXC_FOLDER_MAX;
}

sx_code sxc_state_folder_make(sx_ctx *cx, const char *what, const char *folder)
{
    return access(folder, F_OK) == 0 ? SX_OK : sx_trust_make_folder(cx, what, folder);
}

/* The key of the state folder. What is wrong with it is no failure of the caller's work. */
static bool open_key(sx_ctx *cx, bool make, sx_trust_key *key)
{
    char folder[SXC_FOLDER_MAX];
    bool known = sxc_state_folder(folder);
    bool open = known && sx_trust_key_open(cx, folder, make, key) == SX_OK;
    if (known && !open) {
        sx_ctx_reset_error(cx);
    }
    return open;
}

void sxc_record_sign(sx_ctx *cx, sx_buf *module)
{
    sx_trust_key key;
    sx_module_seal seal;
    if (!open_key(cx, true, &key)) {
        return;
    }
    size_t size = (module->len + 63) / 64 * 64;
    uint8_t *aligned = aligned_alloc(64, size > 0 ? size : 64);
    sx_code code = aligned == NULL ? SX_FAIL(cx, SX_NOMEM, "no memory for a module") : SX_OK;
    if (code == SX_OK) {
        memcpy(aligned, module->ptr, module->len);
        code = sx_trust_seal(cx, &key, (sx_span){aligned, module->len}, &seal);
    }
    if (code == SX_OK) {
        sx_buf_put(module, &seal, sizeof(seal));
    } else {
        sx_ctx_reset_error(cx);
    }
    free(aligned);
    sx_trust_key_close(&key);
}

/* Does the daemon there say that this is its key? */
static bool ask_daemon(sx_ctx *cx, const char *socket, const uint8_t public_key[32])
{
    char path[SXC_PATH_MAX];
    sxc_connection *connection = NULL;
    const void *reply = NULL;
    sx_hello_args args = {0};
    SX_PUT(&args, hello_args, client, SX_SPAN_LITERAL("symplex-client " SX_VERSION_TEXT));
    sx_code code = SX_OK;
    if (socket == NULL) {
        code = sxc_default_socket(cx, path);
        socket = path;
    }
    code = code == SX_OK ? sxc_connect(cx, socket, SXC_DECIDE_MS, &connection) : code;
    code = code == SX_OK
               ? sxc_call(cx, connection, SX_METHOD_HELLO, &args, SXC_DECIDE_MS * 20, &reply)
               : code;
    bool same = false;
    if (code == SX_OK) {
        const sx_hello_result *hello = reply;
        same = SX_HAS(hello, hello_result, verify_key) && hello->verify_key.len == 32 &&
               memcmp(hello->verify_key.ptr, public_key, 32) == 0;
    } else {
        sx_ctx_reset_error(cx);
    }
    sxc_disconnect(connection);
    return same;
}

sx_code sxc_record_read(sx_ctx *cx, const sx_module *module, const char *socket, sxc_record *record)
{
    sx_trust_key own;
    bool fits = false;
    *record = (sxc_record){.state = SXC_RECORD_NONE};
    if (module->kernel_count == 0 && !module->sealed) {
        return SX_OK;
    }
    record->state = SXC_RECORD_UNSIGNED;
    if (!module->sealed) {
        return SX_OK;
    }
    sx_trust_key_name(module->seal.key, record->key);
    record->state = SXC_RECORD_ALTERED;
    SX_TRY(sx_trust_seal_check(cx, module, &fits));
    if (!fits) {
        return SX_OK;
    }
    bool ours = false;
    if (open_key(cx, false, &own)) {
        ours = memcmp(own.public_key, module->seal.key, sizeof(own.public_key)) == 0;
        sx_trust_key_close(&own);
    }
    record->daemon = !ours && ask_daemon(cx, socket, module->seal.key);
    record->state = ours || record->daemon ? SXC_RECORD_VERIFIED : SXC_RECORD_UNKNOWN;
    return SX_OK;
}

static const struct {
    const char *name, *text;
} states[] = {
    [SXC_RECORD_NONE] = {"none", "no kernels, nothing to verify"},
    [SXC_RECORD_UNSIGNED] = {"unsigned", "nobody signed it"},
    [SXC_RECORD_ALTERED] = {"altered", "it does not fit these bytes"},
    [SXC_RECORD_UNKNOWN] = {"unknown-key", "signed by an unknown key, not trusted"},
    [SXC_RECORD_VERIFIED] = {"verified", "verified here, these bytes"},
};

const char *sxc_record_name(const sxc_record *record)
{
    return states[record->state].name;
}

void sxc_record_print(const sxc_record *record, sx_buf *out)
{
    sx_buf_put_text(out, record->daemon ? "verified by the daemon, these bytes"
                                        : states[record->state].text);
    if (record->key[0] != '\0') {
        sx_buf_print(out, " (key %s)", record->key);
    }
    if (record->state != SXC_RECORD_VERIFIED && record->state != SXC_RECORD_NONE) {
        sx_buf_put_text(out, "; not verified for these bytes: symplex-client verify does it again");
    }
}
