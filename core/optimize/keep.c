#include "core/optimize/keep.h"

#define ALIGNMENT ((size_t)64)

const sx_optimize_place *sx_keep_place(const sx_optimize_keeper *keeper, const sx_key *part)
{
    SX_ASSERT(keeper->place != NULL || keeper->place_count == 0);
    for (uint32_t i = 0; i < keeper->place_count; i++) {
        if (sx_key_equal(&keeper->place[i].part, part)) {
            return &keeper->place[i];
        }
    }
    return NULL;
}

bool sx_keep_has(const sx_optimize_keeper *keeper, const sx_key *part)
{
    SX_ASSERT(keeper->kept_count <= keeper->place_count);
    for (uint32_t i = 0; i < keeper->kept_count; i++) {
        if (sx_key_equal(&keeper->kept[i].part, part)) {
            return true;
        }
    }
    return false;
}

void sx_keep_clear(sx_optimize_keeper *keeper)
{
    sx_buf_clear(keeper->bytes);
    keeper->kept_count = 0;
}

static void put(sx_optimize_keeper *keeper, const sx_key *part, sx_span bytes)
{
    size_t room = keeper->bytes->limit - keeper->bytes->len;
    SX_ASSERT(keeper->bytes->len <= keeper->bytes->limit);
    if (bytes.len == 0 || room < ALIGNMENT || bytes.len > room - ALIGNMENT ||
        sx_keep_has(keeper, part)) {
        return;
    }
    SX_ASSERT(keeper->kept_count < keeper->place_count);
    sx_buf_pad(keeper->bytes, ALIGNMENT);
    keeper->kept[keeper->kept_count++] = (sx_optimize_kept){*part, keeper->bytes->len, bytes.len};
    sx_buf_put_span(keeper->bytes, bytes);
}

void sx_keep_snapshot(sx_optimize_keeper *keeper, const sx_key *part, const sx_buf *snapshot)
{
    SX_ASSERT(sx_keep_place(keeper, part) != NULL);
    if (snapshot->code == SX_OK) {
        put(keeper, part, sx_buf_span(snapshot));
    }
}

sx_code sx_keep_optimized(sx_ctx *cx, const sx_graph *program, const sx_key *part,
                          const sx_device *device, const sx_optimize_options *options,
                          sx_graph **out, sx_optimize_report *report)
{
    sx_optimize_options own = *options;
    sx_optimize_keeper *keeper = options->keeper;
    sx_buf snapshot;
    if (keeper == NULL || sx_keep_place(keeper, part) == NULL) {
        return sx_optimize_whole(cx, program, device, options, out, report);
    }
    sx_buf_init(&snapshot, keeper->bytes_max);
    own.snapshot = &snapshot;
    sx_code code = sx_optimize_whole(cx, program, device, &own, out, report);
    if (code == SX_OK) {
        sx_keep_snapshot(keeper, part, &snapshot);
    }
    sx_buf_fini(&snapshot);
    return code;
}

sx_code sx_keep_wiring(sx_ctx *cx, sx_optimize_keeper *keeper, const sx_roll *roll,
                       const sx_wired_part *part, const sx_library_info *info, const sx_key *rules)
{
    sx_buf bytes;
    if (sx_keep_place(keeper, &info->program) == NULL) {
        return SX_OK;
    }
    sx_buf_init(&bytes, keeper->bytes_max);
    sx_code code = sx_wiring_store(cx, roll, part, info, rules, &bytes);
    if (code == SX_LIMIT) { /* too large: it is not kept */
        sx_ctx_reset_error(cx);
        code = SX_OK;
    } else if (code == SX_OK) {
        put(keeper, &info->program, sx_buf_span(&bytes));
    }
    sx_buf_fini(&bytes);
    return code;
}
