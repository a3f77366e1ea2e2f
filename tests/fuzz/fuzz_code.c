/* fuzz_code.c - any bytes as machine code: the verifier says yes or no; what it accepts decodes, prints and
 * encodes to the same bytes, and runs in the emulator, which touches nothing but its regions. */
#include "core/x64/emulate.h"

#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_reachable(sx_span blob)
{
    static sx_x64_decoder decoder;
    sx_x64_decoder_init(&decoder);
    sx_buf text;
    sx_buf_init(&text, (size_t)1 << 20);
    sx_x64_insn insn;
    for (size_t at = 0; at < blob.len; at += insn.len) {
        if (!sx_x64_decode(&decoder, (sx_span){blob.ptr + at, blob.len - at}, &insn)) {
            break;
        }
        sx_x64_insn again = insn;
        SX_ASSERT(sx_x64_encode(&again) && again.len == insn.len);
        SX_ASSERT(memcmp(again.byte, blob.ptr + at, insn.len) == 0);
        sx_x64_print(&text, &insn);
    }
    sx_x64_print_code(&text, blob, 0, (uint32_t)blob.len);
    sx_buf_fini(&text);
}

#define BUFFERS 6
#define BYTES 65536

/* Whatever is accepted ends with an answer, and the buffers that may not be written are as before. */
static void emulate(sx_ctx *cx, sx_span blob)
{
    static uint8_t memory[BUFFERS][BYTES], own[BYTES];
    sx_region buffer[BUFFERS];
    for (uint32_t k = 0; k < BUFFERS; k++) {
        buffer[k] = (sx_region){"a buffer", memory[k], BYTES, k > 0, NULL};
    }
    memset(memory, 1, sizeof(memory));
    const sx_region workspace = {"the workspace", own, BYTES, true, NULL};
    const int64_t index[3] = {0, 1, 0};
    const uint32_t entry = 0;
    sx_x64_emulator *emulator;
    sx_code code = sx_x64_emulator_make(cx, blob, &entry, 1, sx_x64_meanings, &emulator);
    SX_ASSERT(code == SX_OK || code == SX_NOMEM);
    if (code == SX_OK) {
        cx->fuel = 20000;
        code = sx_x64_emulate(cx, emulator, entry, buffer, BUFFERS, index, &workspace);
        SX_ASSERT(code == SX_OK || code == SX_INPUT || code == SX_QUOTA);
    }
    for (uint32_t i = 0; i < BYTES; i++) {
        SX_ASSERT(memory[0][i] == 1);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > 65536) {
        return 0;
    }
    sx_ctx cx;
    sx_ctx_init(&cx, (size_t)16 << 20);
    uint32_t entry[2] = {0, size > 0 ? data[0] : 0};
    sx_x64_level level = size % 2 == 0 ? SX_X64_AVX2 : SX_X64_AVX512;
    sx_code code = sx_x64_check(&cx, (sx_span){data, size}, level, entry, 2);
    SX_ASSERT(code == SX_OK || code == SX_INPUT);
    check_reachable((sx_span){data, size});
    sx_ctx_reset_error(&cx);
    if (sx_x64_check(&cx, (sx_span){data, size}, level, entry, 1) == SX_OK) {
        emulate(&cx, (sx_span){data, size});
    }
    sx_ctx_fini(&cx);
    return 0;
}
