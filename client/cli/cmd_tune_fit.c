/* cmd_tune_fit.c - tune fit: what the model gets wrong, learned from what tune measured. */
#include <string.h>

#include "client/cli/cmd_compile.h"
#include "client/cli/measured.h"
#include "client/compile.h"
#include "client/runtime/cpu.h"
#include "core/search/correction.h"

static void put_json(sx_buf *out, const sx_correction *c, const sx_correction_score *score,
                     bool kept, const char *place)
{
    sxc_json_begin(out, "tune-fit");
    sxc_json_text(out, "machine", sx_span_of(c->machine));
    sxc_json_text(out, "device", sx_span_of(c->device));
    sxc_json_int(out, "kernels", c->kernels);
    sxc_json_int(out, "rows", c->rows);
    sxc_json_real(out, "model", score->model);
    sxc_json_real(out, "model_worst", score->model_worst);
    sxc_json_real(out, "corrected", score->corrected);
    sxc_json_real(out, "corrected_worst", score->corrected_worst);
    sxc_json_bool(out, "kept", kept);
    sxc_json_text(out, "place", sx_span_of(place));
    sxc_json_end(out);
}

static void put_text(sx_buf *out, const sx_correction *c, const sx_correction_score *score,
                     bool kept, const char *place)
{
    sx_buf_print(out,
                 "%u kernels, %u schedules on %s of %s\n"
                 "first choice over the fastest that was tried, of kernels that were left out:\n"
                 "  model      %.3f, at worst %.3f\n  corrected  %.3f, at worst %.3f\n",
                 c->kernels, c->rows, c->device, c->machine, score->model, score->model_worst,
                 score->corrected, score->corrected_worst);
    sx_buf_print(out, kept ? "kept in %s\n" : "not kept in %s: it is no better than the model\n",
                 place);
}

static sx_code fit(sxc_cli *cli, const sxc_measured_place *place, const char *machine)
{
    sx_ctx *cx = cli->cx;
    sx_measured all;
    sx_correction c;
    sx_correction_score score;
    uint64_t cost_us = 0;
    const char *given = sxc_value(cli, SXC_TARGET);
    sx_span target = sxc_target(given != NULL ? sx_span_of(given) : SX_SPAN_LITERAL("native"));
    const char *device = sx_alloc_text(cx, target);
    SX_TRY(device != NULL ? SX_OK : cx->error.code);
    if (target.len >= SX_MEASURED_DEVICE_MAX) {
        return SX_FAIL(cx, SX_INPUT, "tune fit: a target of %zu characters, at most %d", target.len,
                       SX_MEASURED_DEVICE_MAX - 1);
    }
    SX_TRY(sxc_measured_all(cx, place, machine, &all, &cost_us));
    SX_TRY(sx_correction_fit(cx, &all, machine, device, 0, &c));
    SX_TRY(sx_correction_judge(cx, &all, machine, device, &score));
    bool kept = score.corrected > score.model;
    sx_buf text, out;
    sx_buf_init(&text, SX_CORRECTION_TEXT_MAX);
    sx_buf_init(&out, (size_t)1 << 16);
    sx_correction_print(&c, &text);
    sx_code code = sx_buf_check(cx, &text, "correction");
    all.correction = kept ? sx_buf_span(&text) : (sx_span){NULL, 0};
    code = code == SX_OK ? sxc_measured_replace(cx, place, machine, &all, cost_us) : code;
    (cli->json ? put_json : put_text)(&out, &c, &score, kept, place->name);
    code = code == SX_OK ? sxc_put(cli, &out) : code;
    sx_buf_fini(&text);
    sx_buf_fini(&out);
    return code;
}

sx_code sxc_cmd_tune_fit(sxc_cli *cli)
{
    sxc_measured_place place;
    char machine[SX_MEASURED_MACHINE_MAX];
    int64_t threads;
    sxr_identity(machine);
    SX_TRY(sxc_number(cli, SXC_THREADS, 1, SXC_TUNE_THREADS_MAX, 0, &threads));
    sxc_measured_threads(machine, (uint32_t)threads);
    sx_code code = sxc_measured_open(cli, machine, &place);
    code = code == SX_OK ? fit(cli, &place, machine) : code;
    sxc_measured_close(&place);
    return code;
}
