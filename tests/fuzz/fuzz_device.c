/* fuzz_device.c - any bytes as the description of a device: an error, or a device whose values are in their ranges
 * and whose text reads back to the same text. */
#include "core/cost/device.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sx_ctx cx;
    sx_buf first, second;
    const sx_device *device, *again;
    sx_ctx_init(&cx, (size_t)1 << 22);
    sx_buf_init(&first, (size_t)1 << 20);
    sx_buf_init(&second, (size_t)1 << 20);
    sx_code code = sx_device_parse(&cx, (sx_span){data, size}, &device);
    SX_ASSERT(code == SX_OK || code == SX_INPUT || code == SX_NOMEM);
    if (code == SX_OK) {
        SX_ASSERT(sx_device_check(&cx, device) == SX_OK);
        sx_device_print(device, &first);
        SX_ASSERT(sx_device_parse(&cx, sx_buf_span(&first), &again) == SX_OK);
        sx_device_print(again, &second);
        SX_ASSERT(sx_span_equal(sx_buf_span(&first), sx_buf_span(&second)));
        SX_ASSERT(sx_device_floor_ns(device, SX_BF16, true, 1e9, 1e9) > 0);
    }
    sx_buf_fini(&first);
    sx_buf_fini(&second);
    sx_ctx_fini(&cx);
    return 0;
}
