/* fuzz_code.c - any bytes as machine code: the verifier says yes or no; what it accepts decodes, prints and encodes to the same bytes. */
#include "core/x64/x64.h"

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
    sx_ctx_fini(&cx);
    return 0;
}
