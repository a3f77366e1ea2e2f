/* cmd_compile.c - compile and optimize. */
#include <stdio.h>
#include <string.h>

#include "client/cli/cmd_compile.h"
#include "core/core.h"
#include "client/cli/cmd_module.h"
#include "client/cli/interrupt.h"
#include "client/cli/measured.h"
#include "client/cli/program.h"
#include "client/export/onnx_write.h"

static void say(void *self, const char *text)
{
    (void)self;
    (void)fprintf(stderr, "symplex: %s\n", text);
}

void sxc_show_stage(void *self, const char *stage, uint64_t done, uint64_t total)
{
    if (total > 0) {
        sxc_progress_show(self, "%s %llu of %llu", stage, (unsigned long long)done,
                          (unsigned long long)total);
    } else {
        sxc_progress_show(self, "%s", stage);
    }
}

static uint32_t count_values(const sxc_values *given)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < given->count; i++) {
        count++;
        for (const char *p = given->value[i]; *p != '\0'; p++) {
            count += *p == ',' ? 1 : 0;
        }
    }
    return count;
}

/* "1..64": the low end, two points, the high end. */
static sx_code read_interval(sx_ctx *cx, const char *given, const char *text, const char *points,
                             sx_interval *interval)
{
    sx_span low = {(const uint8_t *)text, (size_t)(points - text)};
    SX_TRY(sxc_parse_i64(cx, given, low, 1, SX_EXTENT_MAX, &interval->low));
    SX_TRY(sxc_parse_i64(cx, given, sx_span_of(points + 2), 1, SX_EXTENT_MAX, &interval->high));
    if (interval->high < interval->low) {
        return SX_FAIL(cx, SX_USAGE, "--dim %.60s: the interval from %lld to %lld holds no value",
                       given, (long long)interval->low, (long long)interval->high);
    }
    return SX_OK;
}

static sx_code read_values(sx_ctx *cx, const char *given, const char *text, sx_span name,
                           sx_binding *binding, uint32_t *count)
{
    for (const char *value = text; value != NULL;) {
        const char *comma = strchr(value, ',');
        size_t size = comma != NULL ? (size_t)(comma - value) : strlen(value);
        sx_binding *next = &binding[(*count)++];
        next->name = name;
        SX_TRY(sxc_parse_i64(cx, given, (sx_span){(const uint8_t *)value, size}, 1, SX_EXTENT_MAX,
                             &next->value));
        value = comma != NULL ? comma + 1 : NULL;
    }
    return SX_OK;
}

static sx_code read_extents(sxc_cli *cli, sx_core_request *request)
{
    const sxc_values *given = &cli->option[SXC_DIM];
    sx_binding *binding = SX_NEW_ARRAY(cli->cx, sx_binding, count_values(given) + 1);
    sx_interval *interval = SX_NEW_ARRAY(cli->cx, sx_interval, (size_t)given->count + 1);
    if (binding == NULL || interval == NULL) {
        return cli->cx->error.code;
    }
    request->binding = binding;
    request->interval = interval;
    for (uint32_t i = 0; i < given->count; i++) {
        const char *text = given->value[i], *equals = strchr(text, '=');
        if (equals == NULL || equals == text) {
            return SX_FAIL(cli->cx, SX_USAGE,
                           "--dim %.60s is not of the form NAME=N or NAME=LOW..HIGH", text);
        }
        sx_span name = {(const uint8_t *)text, (size_t)(equals - text)};
        const char *points = strstr(equals, "..");
        if (points != NULL) {
            sx_interval *next = &interval[request->interval_count++];
            next->name = name;
            SX_TRY(read_interval(cli->cx, text, equals + 1, points, next));
        } else {
            SX_TRY(read_values(cli->cx, text, equals + 1, name, binding, &request->binding_count));
        }
    }
    return SX_OK;
}

sx_code sxc_read_dims(sxc_cli *cli, const sx_binding **bindings, uint32_t *count)
{
    sx_core_request request = {.binding_count = 0};
    SX_TRY(read_extents(cli, &request));
    if (request.interval_count > 0) {
        const sx_interval *first = &request.interval[0];
        return SX_FAIL(cli->cx, SX_USAGE, "--dim %.*s=%lld..%lld: only compile takes an interval",
                       (int)first->name.len, (const char *)first->name.ptr, (long long)first->low,
                       (long long)first->high);
    }
    *bindings = request.binding;
    *count = request.binding_count;
    return SX_OK;
}

sx_code sxc_read_amount(sxc_cli *cli, sxc_option option, uint64_t kilo, uint64_t *amount)
{
    static const char unit[] = "KMGTP";
    const char *given = sxc_value(cli, option);
    sx_span digits = sx_span_of(given);
    uint64_t factor = 1;
    int64_t count;
    *amount = 0;
    if (digits.len == 0) {
        return SX_OK;
    }
    const char *last = strchr(unit, given[digits.len - 1]);
    for (size_t k = 0; last != NULL && k <= (size_t)(last - unit); k++) {
        factor *= kilo;
    }
    digits.len -= last != NULL ? 1 : 0;
    SX_TRY(sxc_parse_i64(cli->cx, option == SXC_VERIFY_FLOPS ? "--verify-flops" : "--verify-memory",
                         digits, 1, (int64_t)(SX_VERIFY_LIMIT_MAX / factor), &count));
    *amount = (uint64_t)count * factor;
    return SX_OK;
}

sx_code sxc_read_range(sxc_cli *cli, bool *any)
{
    const char *range = sxc_value(cli, SXC_RANGE);
    *any = range != NULL && strcmp(range, "any") == 0;
    if (range != NULL && !*any && strcmp(range, "keep") != 0) {
        return SX_FAIL(cli->cx, SX_USAGE, "--range %.60s, keep or any wanted", range);
    }
    return SX_OK;
}

sx_code sxc_read_request(sxc_cli *cli, sx_core_request *request, sxc_compile_options *options)
{
    const char *target = sxc_target_name(cli);
    *request = (sx_core_request){.target = sx_span_of(target != NULL ? target : "native"),
                                 .no_reassociate = sxc_given(cli, SXC_EXACT),
                                 .allow_approximate = sxc_given(cli, SXC_APPROXIMATE),
                                 .objective = sx_span_of(sxc_value(cli, SXC_OBJECTIVE))};
    SX_TRY(sxc_read_range(cli, &request->range_any));
    SX_TRY(sxc_read_amount(cli, SXC_VERIFY_FLOPS, 1000, &request->verify_flops));
    SX_TRY(sxc_read_amount(cli, SXC_VERIFY_MEMORY, 1024, &request->verify_bytes));
    const sx_device *device;
    SX_TRY(sxc_read_device(cli, &device, &request->device));
    if (sxc_value(cli, SXC_DEVICE) != NULL && sxc_value(cli, SXC_TARGET) != NULL) {
        return SX_FAIL(cli->cx, SX_USAGE, "--target and --device exclude each other");
    }
    if (device != NULL) {
        request->target = sx_span_of(device->name);
        const sx_target *machine;
        SX_TRY(sx_core_device(cli->cx, request, &device, &machine)); /* refused before all else */
    }
    *options = (sxc_compile_options){.socket = sxc_value(cli, SXC_SOCKET),
                                     .refresh = sxc_given(cli, SXC_REFRESH),
                                     .message = say,
                                     .progress = sxc_show_stage,
                                     .progress_self = &cli->progress,
                                     .program = sxc_own_worker.program};
    sxc_progress_begin(&cli->progress);
    if (sxc_given(cli, SXC_NO_DAEMON) && sxc_given(cli, SXC_DAEMON_ONLY)) {
        return SX_FAIL(cli->cx, SX_USAGE, "--no-daemon and --daemon-only exclude each other");
    }
    options->daemon = sxc_given(cli, SXC_NO_DAEMON)
                          ? SXC_MODE_NEVER
                          : (sxc_given(cli, SXC_DAEMON_ONLY) ? SXC_MODE_ONLY : SXC_MODE_AUTO);
    sx_buf rules;
    sx_buf_init(&rules, 65536);
    const sxc_values *disabled = &cli->option[SXC_DISABLE_RULE];
    for (uint32_t i = 0; i < disabled->count; i++) {
        sx_buf_print(&rules, "%s%s", i > 0 ? "," : "", disabled->value[i]);
    }
    sx_code code = sx_buf_check(cli->cx, &rules, "--disable-rule");
    if (code == SX_OK) {
        const char *copy = sx_alloc_text(cli->cx, sx_buf_span(&rules));
        request->disabled_rules = sx_span_of(copy);
        code = copy == NULL ? cli->cx->error.code : SX_OK;
    }
    sx_buf_fini(&rules);
    return code == SX_OK ? read_extents(cli, request) : code;
}

sx_code sxc_compile_until(sxc_cli *cli, const sxc_source *source, const sx_core_request *request,
                          const sxc_compile_options *options, sx_buf *module,
                          sxc_compile_info *info)
{
    sxc_interrupt interrupt;
    sxc_interrupt_begin(cli->cx, &interrupt);
    sx_code code = sxc_compile(cli->cx, source, request, options, module, info);
    sxc_interrupt_end(cli->cx, &interrupt);
    sxc_progress_end(&cli->progress);
    return code;
}

/* FILE.sxm beside the program if no output is named. */
static sx_code output_path(sxc_cli *cli, const char *suffix, char path[4096])
{
    const char *given = sxc_value(cli, SXC_OUTPUT);
    const char *source;
    SX_TRY(sxc_program_name(cli, &source));
    const char *slash = strrchr(source, '/');
    const char *base = slash != NULL ? slash + 1 : source;
    const char *dot = strrchr(base, '.');
    int stem = dot != NULL && dot != base ? (int)(dot - base) : (int)strlen(base);
    int length = given != NULL ? snprintf(path, 4096, "%s", given)
                               : snprintf(path, 4096, "%.*s%s", stem, base, suffix);
    if (length >= 4096) {
        return SX_FAIL(cli->cx, SX_USAGE, "output path of %d bytes, at most 4095", length);
    }
    return SX_OK;
}

static sx_code report(sxc_cli *cli, const char *schema, const char *path, size_t size,
                      const sxc_compile_info *info)
{
    char key[SX_KEY_TEXT_SIZE], bytes[32], waited[32], cost[32];
    sx_key_print(&info->key, key);
    bool hit = strcmp(info->tier, "ram") == 0 || strcmp(info->tier, "disk") == 0;
    char met[SX_KEY_TEXT_SIZE] = "";
    if (info->met) {
        sx_key_print(&info->met_key, met);
    }
    if (cli->json) {
        sx_buf json;
        sx_buf_init(&json, 65536);
        sxc_json_begin(&json, schema);
        sxc_json_text(&json, "output", sx_span_of(path));
        sxc_json_int(&json, "bytes", (int64_t)size);
        sxc_json_text(&json, "key", sx_span_of(key));
        sxc_json_bool(&json, "hit", hit);
        sxc_json_text(&json, "tier", sx_span_of(info->tier));
        sxc_json_text(&json, "met", sx_span_of(met));
        sxc_json_text(&json, "rules", sx_span_of(info->rules));
        sxc_json_int(&json, "compile_us", (int64_t)info->cost_us);
        sxc_json_int(&json, "waited_us", (int64_t)(sxc_now_us() - cli->start_us));
        sxc_json_end(&json);
        sx_code code = sxc_put(cli, &json);
        sx_buf_fini(&json);
        return code;
    }
    sxc_human_bytes((double)size, bytes);
    sxc_human_ns((double)(sxc_now_us() - cli->start_us) * 1e3, waited);
    sxc_human_ns((double)info->cost_us * 1e3, cost);
    (void)fprintf(stderr, "%s: %s, key %.12s, ", path, bytes, key);
    if (info->met && sx_key_equal(&info->met_key, &info->key)) {
        (void)fprintf(stderr, "its search was stored already, for other options or extents; ");
    } else if (info->met) {
        (void)fprintf(stderr, "equal to the stored program %.12s (%s); ", met,
                      info->rules[0] != '\0' ? info->rules : "the same terms");
    } else if (hit) {
        (void)fprintf(stderr, "from the cache (%s); ", info->tier);
    } else {
        (void)fprintf(stderr, "compiled %s; ",
                      strcmp(info->tier, "process") == 0 ? "in process" : "by the daemon");
    }
    (void)fprintf(stderr, "waited %s, compiling %s %s\n", waited, hit ? "had taken" : "took", cost);
    return SX_OK;
}

/* How many rows from `first` on say of the same thing that it was not compared; 0: a row before them says so. */
static uint64_t absent_count(const sx_module *module, uint64_t first)
{
    uint64_t count = 0;
    sx_span name = sx_module_string(module, module->check[first].name);
    for (uint64_t i = 0; i < module->check_count; i++) {
        sx_span other = sx_module_string(module, module->check[i].name);
        bool same = module->check[i].passed == SX_CHECK_ABSENT && sx_span_equal(name, other);
        if (same && i < first) {
            return 0;
        }
        count += same ? 1 : 0;
    }
    return count;
}

/* What the record says that nobody should overlook; what it says of several extents is said once. */
static sx_code warn(sxc_cli *cli, sx_span bytes)
{
    sxc_module_file file = {.mapping = NULL};
    sx_code code = sxc_module_file_of(cli->cx, bytes, &file);
    for (uint64_t i = 0; code == SX_OK && i < file.module.check_count; i++) {
        const sx_module_check *check = &file.module.check[i];
        sx_span name = sx_module_string(&file.module, check->name);
        uint64_t absent = check->passed == SX_CHECK_ABSENT ? absent_count(&file.module, i) : 0;
        if (check->passed == SX_CHECK_IMPRECISE) {
            (void)fprintf(stderr, "warning: imprecise: %.*s (error %.1e)\n", (int)name.len,
                          (const char *)name.ptr, check->error);
        } else if (absent > 0) {
            (void)fprintf(stderr, "warning: not compared: %.*s", (int)name.len,
                          (const char *)name.ptr);
            (void)fprintf(stderr, absent > 1 ? " (%llu times)\n" : "\n",
                          (unsigned long long)absent);
        }
    }
    sxc_module_file_close(&file);
    return code;
}

/* Machine code beside code that is text, unless it is not wanted. */
static sx_code read_assembler(sxc_cli *cli, sx_core_request *request)
{
    const char *given = sxc_value(cli, SXC_ASSEMBLER);
    bool none = given != NULL && strcmp(given, "none") == 0;
    if (given != NULL && !none && strcmp(given, SX_ASSEMBLER_ANY) != 0) {
        return SX_FAIL(cli->cx, SX_USAGE, "--assembler %.60s, any or none wanted", given);
    }
    sx_core_request asked = *request;
    asked.target = sxc_target(request->target);
    if (!none && sx_core_assembles(&asked)) {
        request->assembler = sx_span_of(SX_ASSEMBLER_ANY);
    }
    return SX_OK;
}

static sx_code print_program(sxc_cli *cli)
{
    sxc_source source;
    sx_code code = sxc_program_load(cli, &source);
    sx_core_request request = {.binding_count = 0};
    code = code == SX_OK ? sxc_program_generalise(cli, &source, &request) : code;
    code = code == SX_OK ? sxc_program_print(cli, &source) : code;
    sxc_source_fini(&source);
    return code;
}

sx_code sxc_cmd_compile(sxc_cli *cli)
{
    if (sxc_given(cli, SXC_PRINT_PROGRAM)) {
        return print_program(cli);
    }
    sx_core_request request;
    sxc_compile_options options;
    sxc_source source;
    sxc_compile_info info;
    char path[4096];
    SX_TRY(output_path(cli, ".sxm", path));
    SX_TRY(sxc_read_request(cli, &request, &options));
    SX_TRY(read_assembler(cli, &request));
    SX_TRY(
        sxc_measured_read(cli, sxc_given(cli, SXC_TIMES) ? &request.measured : &options.measured));
    sx_buf module, with;
    sx_buf_init(&module, (size_t)2 << 30);
    sx_buf_init(&with, (size_t)32 << 30);
    sx_code code = sxc_program_load(cli, &source);
    code = code == SX_OK ? sxc_program_generalise(cli, &source, &request) : code;
    code = code == SX_OK ? sxc_check_output(cli->cx, path) : code;
    code =
        code == SX_OK ? sxc_compile_until(cli, &source, &request, &options, &module, &info) : code;
    bool weights = code == SX_OK && source.weights != NULL && !sxc_given(cli, SXC_NO_WEIGHTS);
    if (weights) {
        code = sxc_attach_weights(cli->cx, sx_buf_span(&module), source.weights, &with);
    }
    sx_span bytes = weights ? sx_buf_span(&with) : sx_buf_span(&module);
    code = code == SX_OK ? sxc_write_file(cli->cx, path, bytes) : code;
    code = code == SX_OK ? report(cli, "compile", path, bytes.len, &info) : code;
    code = code == SX_OK ? warn(cli, sx_buf_span(&module)) : code;
    sxc_source_fini(&source);
    sx_buf_fini(&module);
    sx_buf_fini(&with);
    return code;
}

static bool ends_in(const char *path, const char *suffix)
{
    size_t length = strlen(path);
    size_t tail = strlen(suffix);
    return length > tail && strcmp(path + length - tail, suffix) == 0;
}

/* The program asked for: the one extracted, or a point of the front. */
static sx_code pick_program(sxc_cli *cli, const sx_module *module, sx_span *program)
{
    int64_t point;
    *program = (sx_span){(const uint8_t *)module->optimized, (size_t)module->optimized_count};
    if (!sxc_given(cli, SXC_POINT)) {
        return SX_OK;
    }
    if (module->point_count == 0) {
        return SX_FAIL(cli->cx, SX_USAGE, "--point is for --objective pareto");
    }
    if (sxc_given(cli, SXC_PROOF)) {
        return SX_FAIL(cli->cx, SX_USAGE, "--proof is of the extracted program, not of a --point");
    }
    SX_TRY(sxc_number(cli, SXC_POINT, 1, (int64_t)module->point_count, 1, &point));
    *program = sx_module_string(module, module->point[point - 1].program);
    return SX_OK;
}

/* Beside estimates that stand alone: whose they are. */
static void tell_machine(sxc_cli *cli, const sx_module *module)
{
    sx_buf machine;
    sx_buf_init(&machine, 4096);
    sxc_put_machine(module, true, &machine);
    if (!cli->json && machine.len > 0) {
        (void)fprintf(stderr, "estimates for %.*s\n", (int)machine.len, (const char *)machine.ptr);
    }
    sx_buf_fini(&machine);
}

/* Writes the program, or the picture of the front, to `path` unless it is NULL, and the certificate where it
 * is asked for. */
static sx_code write_optimized(sxc_cli *cli, const char *path, const sx_module *module)
{
    sx_span program;
    sx_span proof = {(const uint8_t *)module->proof, (size_t)module->proof_count};
    if (sxc_given(cli, SXC_PROOF)) {
        if (proof.len == 0) {
            sx_span why = sx_module_string(module, module->search->unproved);
            return SX_FAIL(cli->cx, SX_UNIMPLEMENTED, "%.*s", (int)why.len, (const char *)why.ptr);
        }
        SX_TRY(sxc_write_file(cli->cx, sxc_value(cli, SXC_PROOF), proof));
    }
    if (path == NULL) {
        return SX_OK;
    }
    SX_TRY(pick_program(cli, module, &program));
    bool front = module->point_count > 0 && !sxc_given(cli, SXC_POINT);
    if (!front || (strcmp(path, "-") != 0 && !ends_in(path, ".svg"))) {
        return sxc_write_file(cli->cx, path, program);
    }
    sx_buf out;
    sx_buf_init(&out, SX_TEXT_BYTES_MAX);
    sx_code code = SX_OK;
    if (ends_in(path, ".svg")) {
        sxc_front_svg(module, &out);
        code = sx_buf_check(cli->cx, &out, path);
        code = code == SX_OK ? sxc_write_file(cli->cx, path, sx_buf_span(&out)) : code;
    } else {
        code = sxc_front_text(cli->cx, module, &out);
        code = code == SX_OK ? sxc_put(cli, &out) : code;
        tell_machine(cli, module);
    }
    sx_buf_fini(&out);
    return code;
}

/* The extracted operations as an ONNX model, with the weights of the source. */
static sx_code write_onnx(sxc_cli *cli, const sx_weights *weights, const sx_module *module)
{
    sx_graph *graph;
    sx_buf file;
    sx_span program = {(const uint8_t *)module->optimized, (size_t)module->optimized_count};
    SX_TRY(sx_graph_parse(cli->cx, program, &graph));
    sx_buf_init(&file, SX_ONNX_FILE_MAX);
    sx_code code = sx_onnx_write(cli->cx, graph, weights, &file);
    code = code == SX_OK ? sxc_write_file(cli->cx, sxc_value(cli, SXC_ONNX), sx_buf_span(&file))
                         : code;
    sx_buf_fini(&file);
    return code;
}

static sx_code print_optimized(sxc_cli *cli, const sx_module *module)
{
    sx_span program;
    SX_TRY(pick_program(cli, module, &program));
    sx_buf json;
    sx_buf_init(&json, 8 * SX_TEXT_BYTES_MAX);
    sxc_json_begin(&json, "optimize");
    sxc_json_text(&json, "program", program);
    sxc_report_json(&json, module);
    sxc_json_front(&json, module);
    sxc_json_text(&json, "proof",
                  (sx_span){(const uint8_t *)module->proof, (size_t)module->proof_count});
    sxc_json_end(&json);
    sx_code code = sxc_put(cli, &json);
    sx_buf_fini(&json);
    return code;
}

/* On a mesh: what is sent, beside the program. */
static sx_code tell_sharding(sxc_cli *cli, const sx_module *module)
{
    sx_buf out;
    sx_buf_init(&out, SX_TEXT_BYTES_MAX);
    sx_code code = sxc_sharding_text(cli->cx, module, &out);
    if (code == SX_OK) {
        (void)fwrite(out.ptr, 1, out.len, stderr);
    }
    sx_buf_fini(&out);
    return code;
}

sx_code sxc_check_outputs(sxc_cli *cli)
{
    static const sxc_option option[] = {SXC_OUTPUT, SXC_ONNX, SXC_PROOF};
    for (uint32_t i = 0; i < SX_COUNT(option); i++) {
        if (sxc_given(cli, option[i])) {
            SX_TRY(sxc_check_output(cli->cx, sxc_value(cli, option[i])));
        }
    }
    return SX_OK;
}

sx_code sxc_deliver(sxc_cli *cli, const sx_weights *weights, sx_span bytes,
                    const sxc_compile_info *info)
{
    const char *path = sxc_given(cli, SXC_OUTPUT) ? sxc_value(cli, SXC_OUTPUT) : "-";
    bool onnx = sxc_given(cli, SXC_ONNX);
    bool as_json = cli->json && strcmp(path, "-") == 0;
    sxc_module_file file = {.mapping = NULL};
    sx_code code = sxc_module_file_of(cli->cx, bytes, &file);
    code = code == SX_OK && onnx ? write_onnx(cli, weights, &file.module) : code;
    if (code == SX_OK && as_json) {
        code = print_optimized(cli, &file.module);
    } else if (code == SX_OK) {
        code =
            write_optimized(cli, onnx && !sxc_given(cli, SXC_OUTPUT) ? NULL : path, &file.module);
        size_t size = (size_t)file.module.optimized_count;
        code = code == SX_OK && cli->json ? report(cli, "optimize", path, size, info) : code;
        code = code == SX_OK && !cli->json ? tell_sharding(cli, &file.module) : code;
    }
    sxc_module_file_close(&file);
    return code;
}

sx_code sxc_cmd_optimize(sxc_cli *cli)
{
    sx_core_request request;
    sxc_compile_options options;
    sxc_source source;
    sxc_compile_info info;
    SX_TRY(sxc_read_request(cli, &request, &options));
    request.unfused = sxc_given(cli, SXC_ONNX);
    sx_buf bytes;
    sx_buf_init(&bytes, (size_t)2 << 30);
    sx_code code = sxc_program_load(cli, &source);
    code = code == SX_OK ? sxc_program_generalise(cli, &source, &request) : code;
    code = code == SX_OK ? sxc_check_outputs(cli) : code;
    if (sxc_given(cli, SXC_BUDGET) || sxc_given(cli, SXC_BACKGROUND)) {
        code = code == SX_OK ? sxc_optimize_long(cli, &source, &request, &options) : code;
    } else {
        code = code == SX_OK ? sxc_optimize(cli->cx, &source, &request, &options, &bytes, &info)
                             : code;
        sxc_progress_end(&cli->progress);
        code = code == SX_OK ? sxc_deliver(cli, source.weights, sx_buf_span(&bytes), &info) : code;
    }
    sxc_source_fini(&source);
    sx_buf_fini(&bytes);
    return code;
}
