/* The public library through its own header: compile in a process of our own, load, run, compare; what is
 * wrong is told. */
#include "client/symplex.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/cli/npy.h"
#include "core/base/rng.h"
#include "tests/client/api.h"
#include "tests/lib/gen_module.h"
#include "tests/lib/test.h"

#define MLP SX_SOURCE_DIR "/tests/models/mlp.onnx"
#define TARGET "x86-64-v3" /* runs wherever modules run */

static symplex_client *client;

static void setup(void)
{
    symplex_options options = {.daemon = SYMPLEX_DAEMON_NEVER};
    ck_ok(symplex_open(&options, &client, &error));
}
static void teardown(void)
{
    symplex_close(client);
}

static symplex_module *compile_mlp(int64_t batch, uint32_t flags, symplex_compiled *info)
{
    symplex_dim dim = {"batch", batch};
    symplex_program program = {
        .path = MLP, .target = TARGET, .dims = &dim, .dim_count = 1, .flags = flags};
    symplex_module *module;
    void *bytes;
    size_t size;
    ck_ok(symplex_compile(client, &program, &bytes, &size, info, &error));
    ck_ok(symplex_module_open(bytes, size, 2, &module, &error));
    symplex_free(bytes);
    return module;
}

static void bind_floats(symplex_module *module, symplex_role role, const char *name, float *memory,
                        size_t count)
{
    size_t index = symplex_module_find(module, role, name);
    ck_assert_uint_ne(index, SYMPLEX_NO_TENSOR);
    ck_ok(symplex_module_bind(module, index, memory, count * sizeof(float), &error));
}

/* ---- giving up ---- */

typedef struct {
    int stages, asked;
} patience;

static void see_stage(void *self, const char *stage, uint64_t done, uint64_t total)
{
    patience *p = self;
    (void)stage, (void)done, (void)total;
    p->stages++;
}

static int is_enough(void *self)
{
    patience *p = self;
    p->asked++;
    return p->stages > 0;
}

/* The compile process is killed in the midst of its work, and nothing of it is left. */
START_TEST(a_compile_is_stopped)
{
    patience p = {0};
    symplex_options options = {
        .daemon = SYMPLEX_DAEMON_NEVER, .progress = see_stage, .stop = is_enough, .self = &p};
    symplex_client *impatient;
    symplex_dim dim = {"batch", 64};
    symplex_program program = {.path = SX_SOURCE_DIR "/tests/models/encoder.onnx",
                               .target = "h100", /* emulated: seconds */
                               .dims = &dim,
                               .dim_count = 1};
    void *bytes;
    size_t size;
    ck_ok(symplex_open(&options, &impatient, &error));
    ck_fails(symplex_compile(impatient, &program, &bytes, &size, NULL, &error), SYMPLEX_CANCELLED,
             "given up by the caller");
    ck_assert(bytes == NULL && p.stages > 0 && p.asked > 0);
    ck_assert(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
    symplex_close(impatient);
}
END_TEST

/* ---- what works ---- */

/* The outputs of NumPy for x of seed 7 at batch 3 (tests/models/README.md). */
START_TEST(a_model_runs_and_agrees_with_numpy)
{
    symplex_compiled info;
    symplex_check check;
    sx_ctx cx;
    sxc_npy want;
    sx_ctx_init(&cx, (size_t)1 << 20);
    static float x[3 * 784], y[3 * 10];
    sx_rng rng = {7};
    for (size_t i = 0; i < SX_COUNT(x); i++) {
        x[i] = sx_rng_f32(&rng);
    }
    symplex_module *module = compile_mlp(3, 0, &info);
    ck_assert_str_eq(info.tier, "process");
    ck_assert_int_eq(info.hit, 0);
    ck_assert_uint_eq(strlen(info.key), 64);
    bind_floats(module, SYMPLEX_INPUT_TENSOR, "x", x, SX_COUNT(x));
    bind_floats(module, SYMPLEX_OUTPUT_TENSOR, "y", y, SX_COUNT(y));
    ck_ok(symplex_module_run(module, &error));
    ck_sx_ok(&cx, sxc_npy_read(&cx, SX_SOURCE_DIR "/tests/models/mlp.expected.npy", &want));
    ck_assert_uint_eq(want.bytes.len, SX_COUNT(y) * sizeof(double));
    for (size_t i = 0; i < SX_COUNT(y); i++) {
        double value;
        memcpy(&value, want.bytes.ptr + i * sizeof(value), sizeof(value));
        ck_assert_double_eq_tol((double)y[i], value, 2e-6);
    }
    ck_ok(symplex_module_check(module, &check, &error));
    ck_assert_int_eq(check.passed, 1);
    ck_assert_uint_eq(check.elements, SX_COUNT(y));
    y[17] += 0.01F; /* as if a kernel were wrong */
    ck_fails(symplex_module_check(module, &check, &error), SYMPLEX_MISMATCH,
             "output y: element 17");
    ck_assert_int_eq(check.passed, 0);
    symplex_module_info about;
    symplex_module_describe(module, &about);
    ck_assert_str_eq(about.key, info.key);
    ck_assert_str_eq(about.target, TARGET);
    ck_assert_uint_eq(about.threads, 2);
    ck_assert_double_ge(about.estimate_ns, about.floor_ns);
    ck_assert_double_ge(about.flops, 2.0 * 3 * (784 * 512 + 512 * 256 + 256 * 10));
    symplex_module_close(module);
    sx_ctx_fini(&cx);
}
END_TEST

START_TEST(tensors_are_listed)
{
    symplex_module *module = compile_mlp(2, SYMPLEX_NO_WEIGHTS, NULL);
    size_t count = symplex_module_tensor_count(module), weights = 0;
    ck_assert_uint_eq(count, 8);
    for (size_t i = 0; i < count; i++) {
        symplex_tensor tensor;
        ck_ok(symplex_module_tensor(module, i, &tensor, &error));
        ck_assert_int_eq(tensor.dtype, SYMPLEX_F32);
        ck_assert_str_eq(tensor.dtype_name, "f32");
        ck_assert_int_eq(tensor.bound, 0);
        ck_assert_uint_eq(symplex_module_find(module, tensor.role, tensor.name), i);
        size_t size = sizeof(float);
        for (uint32_t d = 0; d < tensor.rank; d++) {
            size *= (size_t)tensor.shape[d];
        }
        ck_assert_uint_eq(tensor.size, size);
        weights += tensor.role == SYMPLEX_WEIGHT_TENSOR;
    }
    ck_assert_uint_eq(weights, 6);
    ck_assert_uint_eq(symplex_module_find(module, SYMPLEX_INPUT_TENSOR, "y"), SYMPLEX_NO_TENSOR);
    symplex_tensor tensor;
    ck_fails(symplex_module_tensor(module, count, &tensor, &error), SYMPLEX_USAGE, "no tensor");
    symplex_module_close(module);
}
END_TEST

/* The same key with and without weights; a module without them says which are missing. */
START_TEST(weights_may_stay_away)
{
    symplex_compiled with, without;
    static float x[784], y[10], weight[512 * 784];
    symplex_module_close(compile_mlp(1, 0, &with));
    symplex_module *module = compile_mlp(1, SYMPLEX_NO_WEIGHTS, &without);
    ck_assert_str_eq(with.key, without.key);
    bind_floats(module, SYMPLEX_INPUT_TENSOR, "x", x, SX_COUNT(x));
    bind_floats(module, SYMPLEX_OUTPUT_TENSOR, "y", y, SX_COUNT(y));
    ck_fails(symplex_module_run(module, &error), SYMPLEX_INPUT, "is not bound");
    ck_fails(symplex_module_check(module, NULL, &error), SYMPLEX_INPUT, "is not bound");
    for (size_t i = 0; i < symplex_module_tensor_count(module); i++) {
        symplex_tensor tensor;
        ck_ok(symplex_module_tensor(module, i, &tensor, &error));
        if (tensor.role == SYMPLEX_WEIGHT_TENSOR) {
            ck_ok(symplex_module_bind(module, i, weight, tensor.size, &error));
        }
    }
    ck_ok(symplex_module_run(module, &error));
    for (size_t i = 0; i < SX_COUNT(y); i++) {
        ck_assert_double_eq_tol((double)y[i], 0.1, 1e-6); /* all weights are zero */
    }
    symplex_module_close(module);
}
END_TEST

/* Compiled and opened in one call it is the same module, its weights are copies, and a handle that shares them has them
 * when the first one is closed. */
START_TEST(a_model_is_compiled_and_opened_at_once)
{
    static float x[784], y[2][10];
    char folder[256], path[300];
    sx_rng rng = {7};
    for (size_t i = 0; i < SX_COUNT(x); i++) {
        x[i] = sx_rng_f32(&rng);
    }
    sx_test_mkdtemp(folder);
    (void)snprintf(path, sizeof(path), "%s/mlp.onnx", folder);
    sx_buf model;
    sx_buf_init(&model, (size_t)4 << 20);
    sx_test_read_file(MLP, &model);
    FILE *copy = fopen(path, "wb");
    ck_assert_ptr_nonnull(copy);
    ck_assert_uint_eq(fwrite(model.ptr, 1, model.len, copy), model.len);
    ck_assert_int_eq(fclose(copy), 0);
    sx_buf_fini(&model);
    symplex_dim dim = {"batch", 1};
    symplex_program program = {.path = path, .target = TARGET, .dims = &dim, .dim_count = 1};
    symplex_compiled info, apart;
    symplex_module *first, *module[2];
    module[0] = compile_mlp(1, 0, &apart);
    ck_ok(symplex_compile_open(client, &program, 1, &first, &info, &error));
    ck_assert_str_eq(info.key, apart.key);
    ck_assert_int_eq(truncate(path, 0), 0);
    ck_ok(symplex_module_share(first, &module[1], &error));
    symplex_module_close(first);
    ck_assert_uint_eq(symplex_module_tensor_count(module[1]),
                      symplex_module_tensor_count(module[0]));
    for (size_t k = 0; k < 2; k++) {
        bind_floats(module[k], SYMPLEX_INPUT_TENSOR, "x", x, SX_COUNT(x));
        bind_floats(module[k], SYMPLEX_OUTPUT_TENSOR, "y", y[k], SX_COUNT(y[k]));
        ck_ok(symplex_module_run(module[k], &error));
        symplex_module_close(module[k]);
    }
    ck_assert_mem_eq(y[0], y[1], sizeof(y[0]));
    ck_fails(symplex_compile_open(client, &program, 1, &first, &info, &error), SYMPLEX_INPUT,
             "mlp.onnx");
    ck_assert_ptr_null(first);
    ck_fails(symplex_compile_open(client, &program, 257, &first, NULL, &error), SYMPLEX_USAGE,
             "256 threads");
    ck_fails(symplex_compile_open(client, NULL, 1, &first, NULL, &error), SYMPLEX_USAGE, "needed");
    sx_test_rmtree(folder);
}
END_TEST

/* A framework maps far more memory than a compilation may use; the process that compiles is a child of it. */
START_TEST(callers_may_be_large)
{
    size_t size = (size_t)64 << 30;
    void *large = mmap(NULL, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ck_assert_ptr_ne(large, MAP_FAILED);
    symplex_module_close(compile_mlp(1, 0, NULL));
    ck_assert_int_eq(munmap(large, size), 0);
}
END_TEST

typedef struct {
    uint32_t count;
    char text[512];
    uint32_t stages; /* how often it was told how far the work is */
} heard;
static void listen_to_progress(void *self, const char *stage, uint64_t done, uint64_t total)
{
    heard *h = self;
    ck_assert(stage[0] != '\0' && (total == 0 || done <= total));
    h->stages++;
}
static void listen_to(void *self, const char *text)
{
    heard *h = self;
    h->count++;
    (void)snprintf(h->text, sizeof(h->text), "%s", text);
}

static const char twice[] = "sx 1\n"
                            "graph \"twice\" (n in [1, 64]) {\n"
                            "    %0 = parameter {name = \"x\", weight = 0} : f32[n]\n"
                            "    %1 = add(%0, %0) : f32[n]\n"
                            "    return %1 as \"y\"\n"
                            "}\n";

START_TEST(text_from_memory_and_nobody_answers)
{
    char folder[256], path[300];
    heard h = {0};
    sx_test_mkdtemp(folder);
    (void)snprintf(path, sizeof(path), "%s/none.sock", folder);
    symplex_options options = {
        .socket = path, .message = listen_to, .progress = listen_to_progress, .self = &h};
    symplex_client *automatic;
    symplex_dim dim = {"n", 5};
    symplex_program program = {
        .bytes = twice, .size = sizeof(twice) - 1, .target = TARGET, .dims = &dim, .dim_count = 1};
    symplex_compiled info;
    symplex_module *module;
    ck_ok(symplex_open(&options, &automatic, &error));
    memset(path, 'x', strlen(path)); /* the text of the options was copied */
    (void)snprintf(path, sizeof(path), "%s/out.sxm", folder);
    ck_ok(symplex_compile_file(automatic, &program, path, &info, &error));
    ck_assert_uint_eq(h.count, 1);
    ck_assert_ptr_nonnull(strstr(h.text, "none.sock"));
    ck_assert_uint_gt(h.stages, 0); /* of the process that compiles, too */
    ck_assert_str_eq(info.tier, "process");
    ck_fails(symplex_ping(automatic, NULL, &error), SYMPLEX_NODAEMON, "none.sock");
    ck_ok(symplex_module_open_file(path, 1, &module, &error));
    float x[5] = {1, -2, 3.5F, 0, 1e30F}, y[5];
    bind_floats(module, SYMPLEX_INPUT_TENSOR, "x", x, 5);
    bind_floats(module, SYMPLEX_OUTPUT_TENSOR, "y", y, 5);
    ck_ok(symplex_module_run(module, NULL));
    for (int i = 0; i < 5; i++) {
        ck_assert_double_eq((double)y[i], (double)(x[i] + x[i]));
    }
    symplex_module_close(module);
    char *text;
    size_t size;
    ck_ok(symplex_optimize(automatic, &program, &text, &size, &error));
    ck_assert_uint_eq(strlen(text), size);
    ck_assert_ptr_nonnull(strstr(text, "fused"));
    symplex_free(text);
    symplex_close(automatic);
    (void)snprintf(path, sizeof(path), "%s/none.sock", folder);
    options.daemon = SYMPLEX_DAEMON_ONLY;
    ck_fails(symplex_open(&options, &automatic, &error), SYMPLEX_NODAEMON, "none.sock");
    ck_assert_ptr_null(automatic);
    sx_test_rmtree(folder);
}
END_TEST

/* ---- what is wrong ---- */

START_TEST(wrong_programs)
{
    static const struct {
        const char *path, *text, *target;
        symplex_dim dim;
        uint32_t flags;
        symplex_code code;
        const char *part;
    } row[] = {
        {"/nowhere/model.onnx",
         NULL,
         TARGET,
         {"batch", 1},
         0,
         SYMPLEX_INPUT,
         "/nowhere/model.onnx"},
        {MLP, NULL, "z80", {"batch", 1}, 0, SYMPLEX_INPUT, "z80"},
        {MLP, NULL, "x86-64-v3,h100", {"batch", 1}, 0, SYMPLEX_INPUT, "h100"},
        {MLP, NULL, TARGET, {"batch", 0}, 0, SYMPLEX_USAGE, "batch: 0"},
        {MLP, NULL, TARGET, {"batch", INT64_MAX}, 0, SYMPLEX_USAGE, "batch"},
        {MLP, NULL, TARGET, {"seq", 4}, 0, SYMPLEX_INPUT, "batch"},
        {MLP, NULL, TARGET, {NULL, 4}, 0, SYMPLEX_USAGE, "without a name"},
        {MLP, NULL, TARGET, {"batch", 1}, 1u << 30, SYMPLEX_USAGE, "flags"},
        {NULL, NULL, TARGET, {"batch", 1}, 0, SYMPLEX_USAGE, "neither path nor bytes"},
        {NULL, "sx 1\ngraph nonsense", TARGET, {"batch", 1}, 0, SYMPLEX_INPUT, "line 2"},
        {NULL, "\x08\x07 not onnx", TARGET, {"batch", 1}, 0, SYMPLEX_INPUT, ""},
    };
    for (size_t i = 0; i < SX_COUNT(row); i++) {
        symplex_program program = {.path = row[i].path,
                                   .bytes = row[i].text,
                                   .size = row[i].text != NULL ? strlen(row[i].text) : 0,
                                   .target = row[i].target,
                                   .dims = &row[i].dim,
                                   .dim_count = 1,
                                   .flags = row[i].flags};
        void *bytes = &error;
        size_t size = 1;
        ck_fails(symplex_compile(client, &program, &bytes, &size, NULL, &error), row[i].code,
                 row[i].part);
        ck_assert_ptr_null(bytes);
        ck_assert_uint_eq(size, 0);
    }
}
END_TEST

/* Compared by its terms: past + 2*seq - 1, a multiple, and a number. */
START_TEST(extents_have_terms)
{
    static const char text[] =
        "sx 1\ngraph \"terms\" (past in [1, 4], seq in [1, 3]) {\n"
        "    %x = parameter {name = \"x\", weight = 0} : f32[2*seq, past + 2*seq - 1, 5]\n"
        "    %y = add(%x, %x) : f32[2*seq, past + 2*seq - 1, 5]\n"
        "    return %y as \"y\"\n}\n";
    const symplex_interval interval[] = {{"past", 1, 4}, {"seq", 1, 3}};
    symplex_program program = {.bytes = text,
                               .size = sizeof(text) - 1,
                               .target = TARGET,
                               .intervals = interval,
                               .interval_count = SX_COUNT(interval)};
    symplex_axis term[4] = {{0}}, axis;
    symplex_module *module;
    symplex_symbol symbol;
    void *bytes;
    size_t size;
    ck_ok(symplex_compile(client, &program, &bytes, &size, NULL, &error));
    ck_ok(symplex_module_open(bytes, size, 1, &module, &error));
    symplex_free(bytes);
    size_t y = symplex_module_find(module, SYMPLEX_OUTPUT_TENSOR, "y");
    ck_ok(symplex_module_symbol(module, 0, &symbol, &error));
    size_t past = strcmp(symbol.name, "past") == 0 ? 0 : 1, seq = 1 - past;
    ck_assert_uint_eq(symplex_module_terms(module, y, 1, NULL, 0), 3);
    ck_assert_uint_eq(symplex_module_terms(module, y, 1, term, 4), 3);
    ck_assert(term[past].symbol == past && term[past].scale == 1);
    ck_assert(term[seq].symbol == seq && term[seq].scale == 2);
    ck_assert_uint_eq(term[seq].other, SYMPLEX_NO_TENSOR);
    ck_assert(term[2].symbol == SYMPLEX_NO_TENSOR && term[2].scale == -1);
    ck_assert(term[3].symbol == 0 && term[3].scale == 0);
    ck_ok(symplex_module_axis(module, y, 1, &axis, &error));
    ck_assert(axis.symbol == 0 && axis.scale == 0);
    term[1] = axis;
    ck_assert_uint_eq(symplex_module_terms(module, y, 0, term, 1), 1);
    ck_assert(term[0].symbol == seq && term[0].scale == 2 && term[1].scale == 0);
    ck_ok(symplex_module_axis(module, y, 0, &axis, &error));
    ck_assert(axis.symbol == seq && axis.scale == 2);
    ck_assert_uint_eq(symplex_module_terms(module, y, 2, term, 4), 0);
    ck_assert_uint_eq(symplex_module_terms(module, y, 3, term, 4), 0);
    ck_assert_uint_eq(symplex_module_terms(module, SYMPLEX_NO_TENSOR, 0, term, 4), 0);
    symplex_module_close(module);
}
END_TEST

/* past*seq + 3*past*past, and a product alone. */
START_TEST(extents_have_products)
{
    static const char text[] =
        "sx 1\ngraph \"products\" (past in [1, 4], seq in [1, 3]) {\n"
        "    %x = parameter {name = \"x\", weight = 0} : f32[past*seq + 3*past*past, 5*past*seq]\n"
        "    %y = add(%x, %x) : f32[past*seq + 3*past*past, 5*past*seq]\n"
        "    return %y as \"y\"\n}\n";
    const symplex_interval interval[] = {{"past", 1, 4}, {"seq", 1, 3}};
    symplex_program program = {.bytes = text,
                               .size = sizeof(text) - 1,
                               .target = TARGET,
                               .intervals = interval,
                               .interval_count = SX_COUNT(interval)};
    symplex_axis term[2], axis;
    symplex_module *module;
    symplex_symbol symbol;
    symplex_tensor tensor;
    void *bytes;
    size_t size;
    ck_ok(symplex_compile(client, &program, &bytes, &size, NULL, &error));
    ck_ok(symplex_module_open(bytes, size, 1, &module, &error));
    symplex_free(bytes);
    size_t x = symplex_module_find(module, SYMPLEX_INPUT_TENSOR, "x");
    ck_ok(symplex_module_symbol(module, 0, &symbol, &error));
    ck_assert_str_eq(symbol.name, "past");
    ck_assert_uint_eq(symplex_module_terms(module, x, 0, term, 2), 2);
    size_t square = term[0].symbol == term[0].other ? 0 : 1;
    ck_assert(term[square].symbol == 0 && term[square].other == 0 && term[square].scale == 3);
    ck_assert(term[1 - square].symbol == 0 && term[1 - square].other == 1);
    ck_assert_int_eq(term[1 - square].scale, 1);
    ck_ok(symplex_module_axis(module, x, 1, &axis, &error));
    ck_assert(axis.symbol == 0 && axis.other == 1 && axis.scale == 5);
    const symplex_dim dims[] = {{"past", 4}, {"seq", 2}};
    ck_ok(symplex_module_choose(module, dims, SX_COUNT(dims), &error));
    ck_ok(symplex_module_tensor(module, x, &tensor, &error));
    ck_assert(tensor.shape[0] == 4 * 2 + 3 * 4 * 4 && tensor.shape[1] == 5 * 4 * 2);
    static float in[56 * 40], out[56 * 40];
    in[56 * 40 - 1] = 3;
    bind_floats(module, SYMPLEX_INPUT_TENSOR, "x", in, 56 * 40);
    bind_floats(module, SYMPLEX_OUTPUT_TENSOR, "y", out, 56 * 40);
    ck_ok(symplex_module_run(module, &error));
    ck_assert(out[56 * 40 - 1] == 6);
    const symplex_dim other = {"seq", 3}; /* a second factor alone changes: nothing fits any more */
    ck_ok(symplex_module_choose(module, &other, 1, &error));
    ck_fails(symplex_module_run(module, &error), SYMPLEX_INPUT, "is not bound");
    symplex_module_close(module);
}
END_TEST

static symplex_code compile_interval(const symplex_interval *interval, size_t count, void **bytes,
                                     size_t *size)
{
    symplex_program program = {.bytes = twice,
                               .size = sizeof(twice) - 1,
                               .target = TARGET,
                               .intervals = interval,
                               .interval_count = count};
    return symplex_compile(client, &program, bytes, size, NULL, &error);
}

START_TEST(one_module_for_an_interval)
{
    const symplex_interval n = {"n", 3, 6}, wrong[] = {{"n", 6, 3}, {"n", 0, 3}, {NULL, 1, 2}};
    symplex_symbol symbol;
    symplex_module *module;
    void *bytes;
    size_t size;
    ck_ok(compile_interval(&n, 1, &bytes, &size));
    ck_ok(symplex_module_open(bytes, size, 1, &module, &error));
    symplex_free(bytes);
    ck_ok(symplex_module_symbol(module, 0, &symbol, &error));
    ck_assert(symbol.range_count == 1 && symbol.range[0].low == 3 && symbol.range[0].high == 6);
    for (int64_t value = 3; value <= 6; value++) {
        float x[6] = {1, -2, 3.5F, 0, 1e30F, 7}, y[7] = {[6] = -1};
        const symplex_dim dim = {"n", value};
        ck_ok(symplex_module_choose(module, &dim, 1, &error));
        bind_floats(module, SYMPLEX_INPUT_TENSOR, "x", x, (size_t)value);
        bind_floats(module, SYMPLEX_OUTPUT_TENSOR, "y", y, (size_t)value);
        ck_ok(symplex_module_run(module, &error));
        for (int64_t i = 0; i < 7; i++) {
            double want = i < value ? (double)(x[i] + x[i]) : i == 6 ? -1 : 0;
            ck_assert_double_eq((double)y[i], want);
        }
    }
    const symplex_dim outside = {"n", 7};
    ck_fails(symplex_module_choose(module, &outside, 1, &error), SYMPLEX_INPUT,
             "extent n has 7; the module serves 3 to 6");
    symplex_module_close(module);
    for (size_t i = 0; i < SX_COUNT(wrong); i++) {
        ck_fails(compile_interval(&wrong[i], 1, &bytes, &size), SYMPLEX_USAGE, "the interval");
    }
    ck_fails(compile_interval(NULL, 1, &bytes, &size), SYMPLEX_USAGE, "1 intervals given");
    ck_fails(compile_interval(&n, 65, &bytes, &size), SYMPLEX_USAGE, "at most 64");
}
END_TEST

/* A refusal that names what does not fit into symplex_error. */
START_TEST(long_refusals_are_there_as_a_whole)
{
    char path[1024];
    (void)snprintf(path, sizeof(path), "/nonexistent/%0800d/model.onnx", 0);
    symplex_program program = {.path = path, .target = TARGET};
    void *bytes;
    size_t size;
    ck_assert_str_eq(symplex_client_error(NULL), "");
    ck_assert_str_eq(symplex_client_error(client), "");
    ck_fails(symplex_compile(client, &program, &bytes, &size, NULL, &error), SYMPLEX_INPUT, "...");
    ck_assert_uint_eq(strlen(error.text), sizeof(error.text) - 1);
    ck_assert_int_eq(strncmp(error.text, symplex_client_error(client), sizeof(error.text) - 4), 0);
    ck_assert_ptr_nonnull(strstr(symplex_client_error(client), "model.onnx: No such file"));
    symplex_dim dim = {"n", 5};
    symplex_program right = {
        .bytes = twice, .size = sizeof(twice) - 1, .target = TARGET, .dims = &dim, .dim_count = 1};
    ck_ok(symplex_compile(client, &right, &bytes, &size, NULL, &error));
    symplex_free(bytes);
    ck_assert_str_eq(symplex_client_error(client), "");
}
END_TEST

START_TEST(wrong_modules)
{
    symplex_dim dim = {"n", 64};
    symplex_program program = {
        .bytes = twice, .size = sizeof(twice) - 1, .target = TARGET, .dims = &dim, .dim_count = 1};
    symplex_module *module;
    void *bytes;
    size_t size;
    sx_rng rng = {sx_test_seed()};
    ck_ok(symplex_compile(client, &program, &bytes, &size, NULL, &error));
    uint8_t *copy = malloc(size);
    uint64_t file_size;
    memcpy(&file_size, (uint8_t *)bytes + offsetof(sx_module_header, file_size), sizeof(file_size));
    for (int i = 0; i < 200; i++) { /* cut anywhere */
        size_t cut = sx_rng_below(&rng, size);
        cut += cut == file_size ? 1 : 0; /* there only the seal is gone */
        memcpy(copy, bytes, size);
        ck_assert_int_eq(symplex_module_open(copy, cut, 1, &module, &error), SYMPLEX_CORRUPT);
        ck_assert_ptr_null(module);
    }
    for (int i = 0; i < 200;
         i++) { /* altered anywhere but in the gaps between sections, which are zero */
        size_t at = sx_rng_below(&rng, size);
        memcpy(copy, bytes, size);
        copy[at] ^= (uint8_t)(1u << sx_rng_below(&rng, 8));
        symplex_code code = symplex_module_open(copy, size, 1, &module, &error);
        bool seal = at >= file_size + 8; /* who verified it: loading does not ask */
        ck_assert_msg(code == SYMPLEX_CORRUPT ||
                          (code == SYMPLEX_OK && (seal || ((uint8_t *)bytes)[at] == 0)),
                      "byte %zu: %s %s", at, error.name, error.text);
        symplex_module_close(module);
    }
    ck_fails(symplex_module_open(bytes, 0, 1, &module, &error), SYMPLEX_CORRUPT, "0 bytes");
    ck_fails(symplex_module_open(bytes, size, 257, &module, &error), SYMPLEX_USAGE, "256");
    ck_fails(symplex_module_open(NULL, size, 1, &module, &error), SYMPLEX_USAGE, "no bytes");
    ck_fails(symplex_module_open_file("/nowhere/a.sxm", 1, &module, &error), SYMPLEX_INPUT,
             "a.sxm");
    ck_ok(symplex_module_open(bytes, size, 1, &module, &error));
    float x[64];
    ck_fails(symplex_module_bind(module, 0, x, 12, &error), SYMPLEX_INPUT,
             "12 bytes given, it has 256");
    ck_fails(symplex_module_bind(module, 99, x, 12, &error), SYMPLEX_USAGE, "no tensor");
    ck_fails(symplex_module_bind(module, SYMPLEX_NO_TENSOR, x, 12, &error), SYMPLEX_USAGE,
             "no tensor");
    symplex_module_close(module);
    symplex_free(bytes);
    free(copy);
}
END_TEST

/* Well-formed files with element types that nobody knows, or of another size than they have. */
START_TEST(unknown_element_types)
{
    sx_ctx cx;
    sx_gen_module_tables tables;
    symplex_module *module;
    sx_buf bytes;
    sx_ctx_init(&cx, (size_t)1 << 20);
    sx_buf_init(&bytes, (size_t)1 << 20);
    static const uint32_t dtype[] = {SYMPLEX_F32, SYMPLEX_I16 + 1, UINT32_MAX, SYMPLEX_F64};
    for (size_t i = 0; i < SX_COUNT(dtype); i++) {
        sx_gen_module_make(&tables);
        tables.tensor[2].dtype = dtype[i];
        sx_buf_clear(&bytes);
        sx_gen_module_encode(&cx, &tables, &bytes);
        symplex_code code = symplex_module_open(bytes.ptr, bytes.len, 1, &module, &error);
        ck_assert_int_eq(code, i == 0 ? SYMPLEX_OK : SYMPLEX_CORRUPT);
        ck_assert(i == 0 || strstr(error.text, "tensor 2: element type") != NULL);
        symplex_module_close(module);
    }
    sx_buf_fini(&bytes);
    sx_ctx_fini(&cx);
}
END_TEST

/* ---- symbols, donated inputs, state ---- */

/* The module of gen_module.h that has all of them: y of n; z in place of d, one more in each run; state s. */
static symplex_module *open_rich(void)
{
    sx_ctx cx;
    sx_gen_module_tables tables;
    symplex_module *module;
    sx_buf bytes;
    sx_ctx_init(&cx, (size_t)1 << 20);
    sx_buf_init(&bytes, (size_t)1 << 20);
    sx_gen_module_make_rich(&tables);
    sx_gen_module_encode(&cx, &tables, &bytes);
    ck_ok(symplex_module_open(bytes.ptr, bytes.len, 1, &module, &error));
    sx_buf_fini(&bytes);
    sx_ctx_fini(&cx);
    return module;
}

static void choose(symplex_module *module, int64_t n)
{
    symplex_dim dim = {"n", n};
    ck_ok(symplex_module_choose(module, &dim, 1, &error));
}

static symplex_tensor tensor_of(const symplex_module *module, symplex_role role, const char *name)
{
    symplex_tensor tensor;
    ck_ok(symplex_module_tensor(module, symplex_module_find(module, role, name), &tensor, &error));
    return tensor;
}

START_TEST(extents_are_chosen)
{
    symplex_module *module = open_rich();
    symplex_module_info info;
    symplex_symbol n;
    float x[64] = {0}, y[64], d[4] = {0};
    ck_assert_uint_eq(symplex_module_symbol_count(module), 1);
    ck_ok(symplex_module_symbol(module, 0, &n, &error));
    ck_assert_str_eq(n.name, "n");
    ck_assert_int_eq(n.value, 0);
    ck_assert_uint_eq(n.range_count, 2);
    ck_assert(n.range[0].low == 1 && n.range[0].high == 8 && n.range[0].step == 1);
    ck_assert(n.range[1].low == 16 && n.range[1].high == 64 && n.range[1].step == 16);
    ck_fails(symplex_module_symbol(module, 1, &n, &error), SYMPLEX_USAGE, "no symbol");
    symplex_tensor tensor = tensor_of(module, SYMPLEX_INPUT_TENSOR, "x"); /* the largest, so far */
    ck_assert(tensor.size == 256 && tensor.shape[0] == 64 && tensor.alias == SYMPLEX_NO_TENSOR);
    size_t in = symplex_module_find(module, SYMPLEX_INPUT_TENSOR, "x");
    ck_fails(symplex_module_bind(module, in, x, 256, &error), SYMPLEX_INPUT, "n has no value");
    bind_floats(module, SYMPLEX_INPUT_TENSOR, "d", d, 4);
    ck_fails(symplex_module_run(module, &error), SYMPLEX_INPUT, "extent n has no value");
    symplex_module_describe(module, &info);
    ck_assert(info.variant_count == 2 && info.variant[0] == '\0');
    for (int64_t value = 48; value >= 7; value -= 41) {
        choose(module, value);
        tensor = tensor_of(module, SYMPLEX_OUTPUT_TENSOR, "y");
        ck_assert(tensor.size == 4 * (size_t)value && tensor.shape[0] == value && !tensor.bound);
        bind_floats(module, SYMPLEX_INPUT_TENSOR, "x", x, (size_t)value);
        bind_floats(module, SYMPLEX_OUTPUT_TENSOR, "y", y, (size_t)value);
        ck_ok(symplex_module_run(module, &error));
        ck_assert(y[value - 1] == (value == 48 ? 4.0F : 0.0F));
        symplex_module_describe(module, &info);
        ck_assert(info.variant[0] != '\0' || value == 7);
    }
    ck_ok(symplex_module_symbol(module, 0, &n, &error));
    ck_assert_int_eq(n.value, 7);
    symplex_module_close(module);
}
END_TEST

START_TEST(a_run_in_one_call)
{
    symplex_module *module = open_rich();
    symplex_symbol n;
    float x[64] = {0}, y[64], other[64], d[4] = {0};
    size_t in = symplex_module_find(module, SYMPLEX_INPUT_TENSOR, "x");
    size_t out = symplex_module_find(module, SYMPLEX_OUTPUT_TENSOR, "y");
    size_t state = symplex_module_find(module, SYMPLEX_STATE_TENSOR, "s");
    symplex_dim dim = {"n", 48};
    symplex_memory memory[] = {{in, x, 48 * sizeof(float)},
                               {out, y, 48 * sizeof(float)},
                               {symplex_module_find(module, SYMPLEX_INPUT_TENSOR, "d"), d, 16}};
    ck_assert_uint_ne(state, SYMPLEX_NO_TENSOR);
    ck_ok(symplex_module_call(module, &dim, 1, memory, 3, &error));
    ck_assert(y[47] == 4.0F);
    memory[1].memory = other; /* the others stay as they are */
    ck_ok(symplex_module_call(module, NULL, 0, &memory[1], 1, &error));
    ck_assert(other[47] == 4.0F);
    dim.value = 7;
    ck_fails(symplex_module_call(module, &dim, 1, memory, 2, &error), SYMPLEX_INPUT, "192 bytes");
    ck_ok(symplex_module_symbol(module, 0, &n, &error));
    ck_assert_int_eq(n.value, 7); /* what came before the refusal was done */
    memory[0].size = memory[1].size = 7 * sizeof(float);
    ck_ok(symplex_module_call(module, NULL, 0, memory, 2, &error));
    ck_assert(other[6] == 0.0F);
    dim.value = 9;
    ck_fails(symplex_module_call(module, &dim, 1, memory, 2, &error), SYMPLEX_INPUT, "extent n");
    memory[0].index = state;
    ck_fails(symplex_module_call(module, NULL, 0, memory, 2, &error), SYMPLEX_USAGE,
             "symplex_module_call: state");
    memory[0].index = SYMPLEX_NO_TENSOR;
    ck_fails(symplex_module_call(module, NULL, 0, memory, 2, &error), SYMPLEX_USAGE, "no tensor");
    ck_fails(symplex_module_call(module, NULL, 0, NULL, 2, &error), SYMPLEX_USAGE, "memory");
    ck_fails(symplex_module_call(NULL, NULL, 0, NULL, 0, &error), SYMPLEX_USAGE, "module");
    symplex_module_close(module);
}
END_TEST

/* A choice that is refused changes nothing: neither values nor memory. */
START_TEST(wrong_choices)
{
    static const struct {
        symplex_dim dim[2];
        size_t count;
        symplex_code code;
        const char *part;
    } row[] = {
        {{{"n", 9}}, 1, SYMPLEX_INPUT, "extent n has 9; the module serves 1 to 8, 16 to 64"},
        {{{"n", 0}}, 1, SYMPLEX_INPUT, "extent n has 0; the module serves"},
        {{{"n", INT64_MIN}}, 1, SYMPLEX_INPUT, "extent n has -9223372036854775808"},
        {{{"m", 4}}, 1, SYMPLEX_INPUT, "extent m: the module has no symbol"},
        {{{"n", 4}, {"m", 4}}, 2, SYMPLEX_INPUT, "extent m: the module has no symbol"},
        {{{"n", 4}, {"n", 5}}, 2, SYMPLEX_USAGE, "dimension n: given twice, 4 and 5"},
        {{{"n", 4}, {NULL, 5}}, 2, SYMPLEX_USAGE, "without a name: 5"},
    };
    symplex_module *module = open_rich();
    float x[8] = {0};
    choose(module, 8);
    bind_floats(module, SYMPLEX_INPUT_TENSOR, "x", x, 8);
    for (size_t i = 0; i < SX_COUNT(row); i++) {
        symplex_symbol n;
        ck_fails(symplex_module_choose(module, row[i].dim, row[i].count, &error), row[i].code,
                 row[i].part);
        ck_ok(symplex_module_symbol(module, 0, &n, &error));
        ck_assert_int_eq(n.value, 8);
        ck_assert_int_eq(tensor_of(module, SYMPLEX_INPUT_TENSOR, "x").bound, 1);
    }
    ck_fails(symplex_module_choose(module, NULL, 1, &error), SYMPLEX_USAGE, "are needed");
    ck_fails(symplex_module_choose(NULL, NULL, 0, &error), SYMPLEX_USAGE, "are needed");
    ck_ok(symplex_module_choose(module, NULL, 0, &error));
    symplex_module_close(module);
}
END_TEST

START_TEST(an_output_in_place_of_an_input)
{
    symplex_module *module = open_rich();
    float x[4] = {0}, y[4], d[4] = {0}, other[4];
    symplex_tensor z = tensor_of(module, SYMPLEX_OUTPUT_TENSOR, "z");
    size_t in = symplex_module_find(module, SYMPLEX_INPUT_TENSOR, "d");
    ck_assert_uint_eq(z.alias, in);
    ck_assert_int_eq(z.bound, 0);
    ck_assert_uint_eq(tensor_of(module, SYMPLEX_INPUT_TENSOR, "d").alias, SYMPLEX_NO_TENSOR);
    choose(module, 4);
    bind_floats(module, SYMPLEX_INPUT_TENSOR, "x", x, 4);
    bind_floats(module, SYMPLEX_OUTPUT_TENSOR, "y", y, 4);
    bind_floats(module, SYMPLEX_INPUT_TENSOR, "d", d, 4);
    ck_assert_int_eq(tensor_of(module, SYMPLEX_OUTPUT_TENSOR, "z").bound, 1);
    size_t out = symplex_module_find(module, SYMPLEX_OUTPUT_TENSOR, "z");
    ck_fails(symplex_module_bind(module, out, other, 16, &error), SYMPLEX_INPUT,
             "output z lies in the memory of input d");
    for (int run = 1; run <= 3; run++) {
        ck_ok(symplex_module_run(module, &error));
        ck_assert(d[0] == (float)run && d[3] == (float)run);
    }
    /* who reads or writes there, too, would see what the output is */
    float both[7] = {0};
    const char *shared =
        "input d is replaced by an output in its place, and its memory overlaps that of ";
    for (int shift = -3; shift <= 3; shift++) {
        bind_floats(module, SYMPLEX_INPUT_TENSOR, "d", &both[shift < 0 ? 0 : shift], 4);
        bind_floats(module, SYMPLEX_INPUT_TENSOR, "x", &both[shift < 0 ? -shift : 0], 4);
        ck_fails(symplex_module_run(module, &error), SYMPLEX_INPUT, shared);
        ck_assert_ptr_nonnull(strstr(error.text, "overlaps that of x"));
    }
    bind_floats(module, SYMPLEX_INPUT_TENSOR, "x", x, 4);
    bind_floats(module, SYMPLEX_OUTPUT_TENSOR, "y", both, 4);
    bind_floats(module, SYMPLEX_INPUT_TENSOR, "d", &both[3], 4);
    ck_fails(symplex_module_run(module, &error), SYMPLEX_INPUT, shared);
    float next[8] = {0}; /* side by side */
    bind_floats(module, SYMPLEX_OUTPUT_TENSOR, "y", next, 4);
    bind_floats(module, SYMPLEX_INPUT_TENSOR, "d", &next[4], 4);
    ck_ok(symplex_module_run(module, &error));
    ck_assert(next[4] == 1.0F);
    symplex_module_close(module);
}
END_TEST

START_TEST(state_is_read_set_and_reset)
{
    symplex_module *module = open_rich();
    float x[16] = {0}, y[16], d[4] = {0}, value = 0;
    size_t s = symplex_module_find(module, SYMPLEX_STATE_TENSOR, "s");
    symplex_tensor state = tensor_of(module, SYMPLEX_STATE_TENSOR, "s");
    ck_assert(state.size == 4 && state.dtype == SYMPLEX_F32 && state.bound == 1);
    bind_floats(module, SYMPLEX_INPUT_TENSOR, "d", d, 4);
    for (int64_t n = 16; n >= 3; n -= 13) { /* both variants add to it, by 6 and by 2 */
        choose(module, n);
        bind_floats(module, SYMPLEX_INPUT_TENSOR, "x", x, (size_t)n);
        bind_floats(module, SYMPLEX_OUTPUT_TENSOR, "y", y, (size_t)n);
        ck_ok(symplex_module_run(module, &error));
        ck_ok(symplex_module_state_read(module, s, &value, 4, &error));
        ck_assert(value == (n == 16 ? 11.0F : 13.0F));
    }
    value = 100;
    ck_ok(symplex_module_state_write(module, s, &value, 4, &error));
    ck_ok(symplex_module_run(module, &error));
    ck_ok(symplex_module_state_read(module, s, &value, 4, &error));
    ck_assert(value == 102.0F);
    ck_ok(symplex_module_state_reset(module, &error));
    ck_ok(symplex_module_state_read(module, s, &value, 4, &error));
    ck_assert(value == 5.0F);
    size_t in = symplex_module_find(module, SYMPLEX_INPUT_TENSOR, "x");
    ck_fails(symplex_module_bind(module, s, &value, 4, &error), SYMPLEX_USAGE, "state lies in");
    ck_fails(symplex_module_state_read(module, in, &value, 4, &error), SYMPLEX_USAGE,
             "tensor x: it is not state");
    ck_fails(symplex_module_state_write(module, s, &value, 8, &error), SYMPLEX_INPUT,
             "state s: 8 bytes given, it has 4");
    ck_fails(symplex_module_state_write(module, s, NULL, 4, &error), SYMPLEX_USAGE, "no memory");
    ck_fails(symplex_module_state_read(module, 99, &value, 4, &error), SYMPLEX_USAGE, "no tensor");
    ck_fails(symplex_module_state_write(NULL, s, &value, 4, &error), SYMPLEX_USAGE, "no tensor");
    ck_fails(symplex_module_state_reset(NULL, &error), SYMPLEX_USAGE, "no module");
    symplex_module_close(module);
}
END_TEST

START_TEST(wrong_calls)
{
    symplex_options options = {.daemon = (symplex_daemon)7};
    symplex_client *none;
    ck_fails(symplex_open(&options, &none, &error), SYMPLEX_USAGE, "daemon mode 7");
    ck_fails(symplex_open(NULL, NULL, &error), SYMPLEX_USAGE, "symplex_open");
    ck_fails(symplex_compile(client, NULL, NULL, NULL, NULL, &error), SYMPLEX_USAGE, "program");
    ck_fails(symplex_ping(NULL, NULL, &error), SYMPLEX_USAGE, "no client");
    ck_assert_str_eq(error.name, "USAGE");
    symplex_close(NULL);
    symplex_module_close(NULL);
    symplex_free(NULL);
    ck_assert_str_eq(symplex_version(), "0.1.0");
    ck_assert_uint_eq(strspn(symplex_toolchain() + strlen("symplexd 0.1.0 "), "0123456789abcdef"),
                      strlen(symplex_toolchain()) - strlen("symplexd 0.1.0 "));
    ck_assert_uint_ge(strlen(symplex_toolchain()), strlen("symplexd 0.1.0 ") + 16);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("symplex");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, setup, teardown);
    tcase_add_test(all, a_compile_is_stopped);
    tcase_add_test(all, a_model_runs_and_agrees_with_numpy);
    tcase_add_test(all, tensors_are_listed);
    tcase_add_test(all, weights_may_stay_away);
    tcase_add_test(all, a_model_is_compiled_and_opened_at_once);
    tcase_add_test(all, callers_may_be_large);
    tcase_add_test(all, text_from_memory_and_nobody_answers);
    tcase_add_test(all, extents_have_terms);
    tcase_add_test(all, extents_have_products);
    tcase_add_test(all, one_module_for_an_interval);
    tcase_add_test(all, wrong_programs);
    tcase_add_test(all, long_refusals_are_there_as_a_whole);
    tcase_add_test(all, wrong_modules);
    tcase_add_test(all, unknown_element_types);
    tcase_add_test(all, extents_are_chosen);
    tcase_add_test(all, a_run_in_one_call);
    tcase_add_test(all, wrong_choices);
    tcase_add_test(all, an_output_in_place_of_an_input);
    tcase_add_test(all, state_is_read_set_and_reset);
    tcase_add_test(all, wrong_calls);
    suite_add_tcase(suite, all);
    return sx_test_main(suite);
}
