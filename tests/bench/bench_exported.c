/* bench_exported.c - `symplex-bench ptx --case exported-h200` (or another GPU of the table): networks as torch.export
 * gives them (tests/data/networks), as the model of core/cost prices them, beside their floor and beside one kernel for
 * each operation. Nothing is run: there is no GPU here. */
#include <stdio.h>

#include "client/source.h"
#include "core/core.h"
#include "tests/bench/bench.h"

#define PREFIX "exported"

static const char *const networks[] = {"bert", "encoder", "gpt2", "llama", "vit"};

static sx_code measure(sx_ctx *cx, const sx_bench_options *options, const char *label,
                       const sx_device *device, const char *network, sx_buf *text)
{
    char path[512], metric[80];
    sx_image image;
    (void)snprintf(path, sizeof(path), "%s/tests/data/networks/%s.sx", SX_SOURCE_DIR, network);
    SX_TRY(sxc_read_text(cx, path, text));
    const sx_core_request request = {
        .ir = sx_buf_span(text), .target = sx_span_of(device->name), .assembler = {0}};
    sx_image_init(&image);
    sx_code code = sx_core_compile(cx, &request, &image);
    if (code == SX_OK) {
        const sx_module_info *info = &image.info;
        SX_ASSERT(info->cost_ns >= info->floor_ns);
        (void)snprintf(metric, sizeof(metric), "%s, predicted", network);
        sx_bench_put(options, &(sx_bench_row){"ptx", label, metric, info->cost_ns / 1e3, "us",
                                              "floor", info->floor_ns / 1e3});
        sx_bench_put(options,
                     &(sx_bench_row){"ptx", label, metric, info->cost_ns / 1e3, "us",
                                     "one kernel per operation", info->input_cost_ns / 1e3});
    }
    sx_image_fini(&image);
    return code;
}

static int run(const sx_bench_options *options, const char *label, const sx_device *device)
{
    sx_code code = SX_OK;
    for (uint32_t i = 0; i < SX_COUNT(networks) && code == SX_OK; i++) {
        sx_ctx cx;
        sx_buf text;
        sx_ctx_init(&cx, (size_t)8 << 30);
        sx_buf_init(&text, SX_TEXT_BYTES_MAX);
        cx.fuel = SX_FUEL_DEFAULT;
        code = measure(&cx, options, label, device, networks[i], &text);
        if (code != SX_OK) {
            (void)fprintf(stderr, "symplex-bench ptx: %s: %s\n", networks[i], cx.error.text);
        }
        sx_buf_fini(&text);
        sx_ctx_fini(&cx);
    }
    return code == SX_OK ? 0 : sx_code_exit(code);
}

int sx_bench_exported(const sx_bench_options *options)
{
    return sx_bench_each_gpu(options, PREFIX, run);
}
