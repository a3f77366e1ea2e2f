/* cmd_verify.c - verify: what was done before a module was handed out, done again. */
#include <string.h>

#include "client/cli/cmd_compile.h"
#include "client/cli/cmd_module.h"
#include "client/runtime/runtime.h"

#define SEED_USUAL 1 /* what compilers verify with */

typedef struct {
    sxc_cli *cli;
    sxc_module_file file;
    sxc_record record;
    sxc_verifying how;
    sxc_verified verified;
} session;

static void put_json(const session *s, sx_buf *json)
{
    const sxc_verified *v = &s->verified;
    sxc_json_begin(json, "verify");
    sxc_json_text(json, "target", sx_module_string(&s->file.module, s->file.module.info->target));
    sxc_json_text(json, "record", sx_span_of(sxc_record_name(&s->record)));
    sxc_json_text(json, "record_key", sx_span_of(s->record.key));
    sxc_json_int(json, "seed", (int64_t)s->how.seed);
    sxc_json_bool(json, "emulated", v->emulated);
    sxc_json_bool(json, "confined", v->confined);
    sxc_json_int(json, "comparisons", v->ran);
    sxc_json_int(json, "left_out", v->left_out);
    sxc_json_int(json, "elements", (int64_t)v->elements);
    sxc_json_real(json, "error", v->error);
    sxc_json_open(json, "checks", '[');
    for (uint32_t i = 0; i < v->comparison_count; i++) {
        const sxc_comparison *row = &v->comparison[i];
        sxc_json_check(json, sx_span_of(row->name), &row->check);
    }
    sxc_json_close(json, ']');
    sxc_json_int(json, "waited_us", (int64_t)(sxc_now_us() - s->cli->start_us));
    sxc_json_end(json);
}

static sx_code put_text(const session *s, sx_buf *out)
{
    const sxc_verified *v = &s->verified;
    char waited[32];
    sxc_human_ns((double)(sxc_now_us() - s->cli->start_us) * 1e3, waited);
    sx_buf_print(out,
                 "verified   again just now (%s): %u comparisons of %llu elements, largest error "
                 "%.1e; %u left out\n",
                 v->emulated ? "emulated" : "executed", v->ran, (unsigned long long)v->elements,
                 v->error, v->left_out);
    sx_buf_put_text(out, "record     ");
    sxc_record_print(&s->record, out);
    sx_buf_print(out, "\nseed       %llu (--random %llu repeats it)\nwaited     %s\n\n",
                 (unsigned long long)s->how.seed, (unsigned long long)s->how.seed, waited);
    sxc_table table;
    sxc_table_init(&table, s->cli->cx, SXC_CHECK_COLUMNS);
    for (uint32_t i = 0; i < v->comparison_count; i++) {
        sxc_put_check(&table, sx_span_of(v->comparison[i].name), &v->comparison[i].check, true);
    }
    return sxc_table_print(&table, out);
}

static sx_code read_options(session *s)
{
    int64_t seed;
    SX_TRY(sxc_number(s->cli, SXC_RANDOM, 0, INT64_MAX, SEED_USUAL, &seed));
    SX_TRY(sxc_read_amount(s->cli, SXC_VERIFY_FLOPS, 1000, &s->how.verify_flops));
    SX_TRY(sxc_read_amount(s->cli, SXC_VERIFY_MEMORY, 1024, &s->how.verify_bytes));
    s->how.seed = (uint64_t)seed;
    s->how.all = sxc_given(s->cli, SXC_ALL);
    return SX_OK;
}

static sx_code work(session *s)
{
    sx_ctx *cx = s->cli->cx;
    sxc_worker worker = sxc_own_worker;
    sx_span bytes = {s->file.mapping, s->file.size};
    SX_TRY(sxc_record_read(cx, &s->file.module, sxc_value(s->cli, SXC_SOCKET), &s->record));
    worker.progress = sxc_show_stage;
    worker.self = &s->cli->progress;
    sxc_progress_begin(&s->cli->progress);
    sx_code code = sxr_check_code(cx, NULL, &s->file.module);
    code = code == SX_OK ? sxc_verify_here(cx, bytes, &s->how, &worker, &s->verified) : code;
    sxc_progress_end(&s->cli->progress);
    return code;
}

sx_code sxc_cmd_verify(sxc_cli *cli)
{
    session s = {.cli = cli};
    SX_TRY(read_options(&s));
    SX_TRY(sxc_module_file_open(cli->cx, cli->argument[0], true, &s.file));
    sx_code code = work(&s);
    code = code == SX_OK ? SX_OK
                         : sx_fail_in(cli->cx, "%s, seed %llu", cli->argument[0],
                                      (unsigned long long)s.how.seed);
    sx_buf out;
    sx_buf_init(&out, (size_t)64 << 20);
    if (code == SX_OK && cli->json) {
        put_json(&s, &out);
    } else if (code == SX_OK) {
        code = put_text(&s, &out);
    }
    code = code == SX_OK ? sxc_put(cli, &out) : code;
    sx_buf_fini(&out);
    sxc_module_file_close(&s.file);
    return code;
}
