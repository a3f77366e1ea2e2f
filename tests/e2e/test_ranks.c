/* Modules that several ranks run together: threads of one process against the interpreter of the whole mesh, bit for
 * bit; ranks that fail, disagree or let others wait; and modules with a planted fault, which are not handed out. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "client/runtime/ranks.h"
#include "client/verify/verify.h"
#include "core/base/rng.h"
#include "core/eval/eval.h"
#include "core/ir/collective.h"
#include "core/ir/num.h"
#include "core/ir/shard.h"
#include "tests/lib/compiled.h"
#include "tests/lib/region.h"
#include "tests/lib/test.h"

#define RANKS_MAX 24u
#define WAIT_MS 20000u
#define DRAWS 120

static sx_ctx cx;

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)512 << 20);
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

/* ---- all ranks of a program ---- */

typedef struct {
    sx_ctx cx;
    sxr_program *program;
    sx_code code;
    uint32_t runs;
    pthread_t thread;
} rank;

typedef struct {
    sxr_group *group;
    rank rank[RANKS_MAX];
    uint32_t ranks;
    sx_buf module;
} mesh;

static void *run_rank(void *self)
{
    rank *own = self;
    for (uint32_t i = 0; i < own->runs && own->code == SX_OK; i++) {
        own->code = sxr_run(&own->cx, own->program, NULL);
    }
    return NULL;
}

/* Elements of many bit patterns for whole types, and floats around one; no -0, which a sum of one makes 0. */
static void fill(sx_rng *rng, sx_dtype dtype, int64_t elements, void *memory)
{
    for (int64_t i = 0; i < elements; i++) {
        uint64_t bits = sx_rng_next(rng) >> 40;
        if (sx_dtype_class_of(dtype) == SX_CLASS_FLOAT) {
            bits = sx_num_encode(dtype, sx_round(dtype, 2.0 * (double)sx_rng_f32(rng)) + 0.0);
        } else if (sx_dtype_class_of(dtype) == SX_CLASS_BOOL) {
            bits &= 1;
        } else {
            bits = sx_num_int_encode(dtype, (int64_t)bits);
        }
        sx_num_store(dtype, memory, (size_t)i, bits);
    }
}

static sxr_program *open_rank(sx_ctx *own, sx_span bytes, sx_rng *rng)
{
    sxr_program *program;
    const sxr_options options = {.threads = 1};
    ck_sx_ok(own, sxr_open_bytes(own, bytes, &options, &program));
    const sx_module *module = sxr_module(program);
    for (uint32_t i = 0; i < module->tensor_count; i++) {
        const sx_module_tensor *tensor = &module->tensor[i];
        if (tensor->place == SX_TENSOR_INPUT || tensor->place == SX_TENSOR_OUTPUT) {
            void *memory = sx_alloc(own, (size_t)tensor->size + 1);
            ck_assert_ptr_nonnull(memory);
            fill(rng, (sx_dtype)tensor->dtype, (int64_t)(tensor->size / tensor->element_bytes),
                 memory);
            ck_sx_ok(own, sxr_bind(own, program, i, memory, tensor->size));
        }
    }
    return program;
}

static void open_mesh(mesh *m, const char *text, const char *target, uint64_t wait_ms, sx_rng *rng)
{
    const sx_test_request request = {.text = text, .target = target, .disabled = ""};
    *m = (mesh){.ranks = 0};
    sx_buf_init(&m->module, (size_t)64 << 20);
    ck_sx_ok(&cx, sx_test_compile(&cx, &request, &m->module));
    sx_ctx_init(&m->rank[0].cx, (size_t)64 << 20);
    m->rank[0].program = open_rank(&m->rank[0].cx, sx_buf_span(&m->module), rng);
    m->ranks = sx_module_ranks(sxr_module(m->rank[0].program));
    ck_assert_uint_le(m->ranks, RANKS_MAX);
    ck_sx_ok(&cx, sxr_group_new(&cx, m->ranks, wait_ms, &m->group));
    for (uint32_t r = 0; r < m->ranks; r++) {
        rank *own = &m->rank[r];
        if (r > 0) {
            sx_ctx_init(&own->cx, (size_t)64 << 20);
            own->program = open_rank(&own->cx, sx_buf_span(&m->module), rng);
        }
        own->runs = 1;
        ck_sx_ok(&cx, sxr_join(&cx, own->program, sxr_group_communicator(m->group, r)));
    }
}

static void run_mesh(mesh *m)
{
    for (uint32_t r = 0; r < m->ranks; r++) {
        ck_assert_int_eq(pthread_create(&m->rank[r].thread, NULL, run_rank, &m->rank[r]), 0);
    }
    for (uint32_t r = 0; r < m->ranks; r++) {
        ck_assert_int_eq(pthread_join(m->rank[r].thread, NULL), 0);
    }
}

static void close_mesh(mesh *m)
{
    for (uint32_t r = 0; r < m->ranks; r++) {
        sxr_close(m->rank[r].program);
        sx_ctx_fini(&m->rank[r].cx);
    }
    sxr_group_free(m->group);
    sx_buf_fini(&m->module);
}

/* ---- the interpreter ---- */

static void take_arguments(const mesh *m, const sx_graph *graph, uint32_t parameters,
                           sx_tensor *argument)
{
    for (uint32_t r = 0; r < m->ranks; r++) {
        uint32_t taken = 0;
        for (uint32_t n = 0; n < graph->node_count; n++) {
            if (graph->node[n].op != SX_OP_PARAMETER) {
                continue;
            }
            sx_span name = sx_graph_attr(graph, &graph->node[n])->name;
            uint32_t tensor = sxr_find(m->rank[r].program, SX_TENSOR_INPUT, name);
            sx_span raw = {sxr_memory(m->rank[r].program, tensor),
                           (size_t)sxr_size(m->rank[r].program, tensor)};
            ck_sx_ok(&cx, sx_tensor_unpack(&cx, &graph->node[n].type, SX_EVAL_TYPED, raw,
                                           &argument[r * parameters + taken++]));
        }
    }
}

/* All outputs of all ranks have the bits of the interpreter. */
static void compare_bits(const mesh *m, const char *text)
{
    const sx_graph *graph = sx_test_parse(&cx, text);
    const sx_graph *each[RANKS_MAX];
    uint32_t parameters = 0, outputs = graph->output_count;
    for (uint32_t n = 0; n < graph->node_count; n++) {
        parameters += graph->node[n].op == SX_OP_PARAMETER ? 1 : 0;
    }
    sx_tensor *argument = SX_NEW_ARRAY(&cx, sx_tensor, (size_t)m->ranks * parameters + 1);
    sx_tensor *result = SX_NEW_ARRAY(&cx, sx_tensor, (size_t)m->ranks * outputs);
    for (uint32_t r = 0; r < m->ranks; r++) {
        each[r] = graph;
    }
    take_arguments(m, graph, parameters, argument);
    ck_sx_ok(&cx, sx_graph_eval_mesh(&cx, each, m->ranks, SX_EVAL_TYPED, argument, parameters,
                                     result, outputs));
    for (uint32_t i = 0; i < m->ranks * outputs; i++) {
        const sxr_program *program = m->rank[i / outputs].program;
        const sx_output *output = &graph->output[i % outputs];
        sx_buf raw;
        sx_buf_init(&raw, (size_t)16 << 20);
        ck_sx_ok(&cx, sx_tensor_pack(&cx, &result[i], &raw));
        uint32_t tensor = sxr_find(program, SX_TENSOR_OUTPUT, output->name);
        ck_assert_msg(raw.len == sxr_size(program, tensor) &&
                          memcmp(raw.ptr, sxr_memory(program, tensor), raw.len) == 0,
                      "output %.*s of rank %u is another one:\n%s", (int)output->name.len,
                      (const char *)output->name.ptr, i / outputs, text);
        sx_buf_fini(&raw);
    }
}

static void check_text(const char *text, const char *target, uint32_t runs, sx_rng *rng)
{
    mesh m;
    open_mesh(&m, text, target, WAIT_MS, rng);
    for (uint32_t r = 0; r < m.ranks; r++) {
        m.rank[r].runs = runs;
    }
    run_mesh(&m);
    for (uint32_t r = 0; r < m.ranks; r++) {
        ck_sx_ok(&m.rank[r].cx, m.rank[r].code);
    }
    compare_bits(&m, text);
    close_mesh(&m);
}

/* ---- random programs of collectives ---- */

typedef struct {
    sx_buf text;
    sx_rng rng;
    int64_t size[3];
    uint32_t axes;
    int64_t extent[3]; /* of x */
    uint32_t nodes;
} writer;

static const char axis_name[3][3] = {"dp", "tp", "pp"};

/* One collective of %x. Extents of x are multiples of 12, whatever is cut. */
static void write_collective(writer *w, const char *dtype)
{
    static const char *const reducers[] = {"add", "multiply", "maximum", "minimum"};
    const char *reducer = reducers[sx_rng_below(&w->rng, 4)];
    uint32_t along = (uint32_t)sx_rng_below(&w->rng, w->axes);
    long long n = w->size[along];
    uint32_t axis = (uint32_t)sx_rng_below(&w->rng, 3), split = (uint32_t)sx_rng_below(&w->rng, 3);
    int64_t e[3] = {w->extent[0], w->extent[1], w->extent[2]};
    sx_buf *text = &w->text;
    sx_buf_print(text, "%%%u = ", w->nodes++);
    switch (sx_rng_below(&w->rng, 5)) {
    case 0: sx_buf_print(text, "all_reduce(%%x) {reducer = %s, ", reducer); break;
    case 1:
        sx_buf_print(text, "all_gather(%%x) {axis = %u, ", axis);
        e[axis] *= n;
        break;
    case 2:
        sx_buf_print(text, "reduce_scatter(%%x) {axis = %u, reducer = %s, ", axis, reducer);
        e[axis] /= n;
        break;
    case 3:
        sx_buf_print(text, "all_to_all(%%x) {axis = %u, split = %u, ", axis, split);
        e[split] /= n;
        e[axis] *= n;
        break;
    default:
        sx_buf_print(text, "permute(%%x) {pairs = [[0, %lld]], ",
                     (long long)sx_rng_below(&w->rng, (uint64_t)n));
    }
    sx_buf_print(text, "along = \"%s\", ranks = %lld} : %s[%lld, %lld, %lld]\n", axis_name[along],
                 n, dtype, (long long)e[0], (long long)e[1], (long long)e[2]);
}

static void write_program(writer *w)
{
    static const char *const dtypes[] = {"f32", "f64", "bf16", "f16", "f8e4m3",
                                         "i64", "i32", "i8",   "u8",  "f8e5m2"};
    const char *dtype = dtypes[sx_rng_below(&w->rng, SX_COUNT(dtypes))];
    sx_buf *text = &w->text;
    w->axes = 1 + (uint32_t)sx_rng_below(&w->rng, 3);
    sx_buf_put_text(text, "sx 1 graph \"g\" mesh (");
    for (uint32_t a = 0; a < w->axes; a++) {
        w->size[a] = 1 + (int64_t)sx_rng_below(&w->rng, a == 0 ? 4 : a == 1 ? 3 : 2);
        w->size[a] += a == 0 && w->size[a] == 1 ? 1 : 0; /* somebody is there */
        sx_buf_print(text, "%s%s = %lld", a > 0 ? ", " : "", axis_name[a], (long long)w->size[a]);
    }
    for (uint32_t d = 0; d < 3; d++) {
        w->extent[d] = 12 * (1 + (int64_t)sx_rng_below(&w->rng, 2));
    }
    sx_buf_print(text, ") {\n%%x = parameter {name = \"x\", weight = 0} : %s[%lld, %lld, %lld]\n",
                 dtype, (long long)w->extent[0], (long long)w->extent[1], (long long)w->extent[2]);
    for (uint32_t i = 0; i < 3; i++) {
        write_collective(w, dtype);
    }
    sx_buf_print(text, "%%3 = axis_index() {along = \"%s\", ranks = %lld} : i64[]\nreturn ",
                 axis_name[0], (long long)w->size[0]);
    for (uint32_t i = 0; i < 4; i++) {
        sx_buf_print(text, "%s%%%u as \"o%u\"", i > 0 ? ", " : "", i, i);
    }
    sx_buf_put_text(text, "\n}\n");
    sx_buf_put_u8(text, 0);
}

START_TEST(test_random_programs)
{
    writer w = {.rng = {sx_test_seed() + (uint64_t)_i * 7919}};
    sx_buf_init(&w.text, 1 << 16);
    write_program(&w);
    check_text((const char *)w.text.ptr, "x86-64-v3", 2, &w.rng);
    sx_buf_fini(&w.text);
}
END_TEST

/* ---- sums in the order of ranks ---- */

/* 2^24 + 1 + ... + 1 depends on the order: rank 0 has the large one, so that every 1 is lost. */
START_TEST(test_order_of_sums)
{
    mesh m;
    sx_rng rng = {1};
    open_mesh(&m,
              "sx 1 graph \"g\" mesh (dp = 8) { %x = parameter {name = \"x\", weight = 0} : f32[1] "
              "%0 = all_reduce(%x) {reducer = add, along = \"dp\", ranks = 8} : f32[1] "
              "return %0 as \"y\" }",
              "x86-64-v3", WAIT_MS, &rng);
    for (uint32_t r = 0; r < m.ranks; r++) {
        uint32_t x = sxr_find(m.rank[r].program, SX_TENSOR_INPUT, SX_SPAN_LITERAL("x"));
        float value = r == 0 ? 0x1p24F : 1.0F;
        memcpy(sxr_memory(m.rank[r].program, x), &value, sizeof(value));
        m.rank[r].runs = 50;
    }
    run_mesh(&m);
    for (uint32_t r = 0; r < m.ranks; r++) {
        float got;
        ck_sx_ok(&m.rank[r].cx, m.rank[r].code);
        uint32_t y = sxr_find(m.rank[r].program, SX_TENSOR_OUTPUT, SX_SPAN_LITERAL("y"));
        memcpy(&got, sxr_memory(m.rank[r].program, y), sizeof(got));
        ck_assert_msg(got == 0x1p24F, "rank %u: %.9g", r, (double)got);
    }
    close_mesh(&m);
}
END_TEST

/* A scan whose step has collectives, a cond beside one, and what depends on the place of the rank. */
static const char scan_text[] =
    "sx 1 graph \"g\" mesh (dp = 3, tp = 2) {\n"
    "%c = parameter {name = \"c\", weight = 0} : i32[6]\n"
    "%x = parameter {name = \"x\", weight = 0} : i32[5, 6]\n"
    "%s, %rows = scan(%c, %x) {carried = 1, sliced = 1, step = graph {\n"
    "    %c = parameter {name = \"c\", weight = 0} : i32[6]\n"
    "    %x = parameter {name = \"x\", weight = 0} : i32[6]\n"
    "    %0 = all_reduce(%x) {reducer = add, along = \"dp\", ranks = 3} : i32[6]\n"
    "    %1 = permute(%c) {along = \"tp\", ranks = 2, pairs = [[0, 1], [1, 0]]} : i32[6]\n"
    "    %2 = add(%0, %1) : i32[6]\n"
    "    %3 = reduce_scatter(%2) {axis = 0, reducer = maximum, along = \"dp\", ranks = 3} : "
    "i32[2]\n"
    "    return %2 as \"c\", %3 as \"y\"\n"
    "}} : i32[6], i32[5, 2]\n"
    "%i = axis_index() {along = \"dp\", ranks = 3} : i64[]\n"
    "%j = convert(%i) : i32[]\n"
    "%b = broadcast_in_dim(%j) {dims = []} : i32[6]\n"
    "%z = multiply(%s, %b) : i32[6]\n"
    "return %s as \"s\", %z as \"z\", %rows as \"rows\"\n}\n";

START_TEST(test_scan)
{
    sx_rng rng = {sx_test_seed()};
    check_text(scan_text, "x86-64-v3", 3, &rng);
}
END_TEST

/* ---- what goes wrong ---- */

static const char sum_text[] =
    "sx 1 graph \"g\" (n in [1, 8]) mesh (dp = 3) { %x = parameter {name = \"x\", weight = 0} : "
    "f32[n] %0 = all_reduce(%x) {reducer = add, along = \"dp\", ranks = 3} : f32[n] "
    "return %0 as \"y\" }";

/* All ranks end with an error that has this text. */
static void expect_all(const mesh *m, sx_code code, const char *text)
{
    for (uint32_t r = 0; r < m->ranks; r++) {
        const sx_ctx *own = &m->rank[r].cx;
        ck_assert_msg(m->rank[r].code == code && strstr(own->error.text, text) != NULL,
                      "rank %u: %s: %s", r, sx_code_name(m->rank[r].code), own->error.text);
    }
}

static const char fixed_text[] =
    "sx 1 graph \"g\" mesh (dp = 3) { %x = parameter {name = \"x\", weight = 0} : f32[4] "
    "%0 = all_reduce(%x) {reducer = add, along = \"dp\", ranks = 3} : f32[4] "
    "%1 = all_reduce(%x) {reducer = maximum, along = \"dp\", ranks = 3} : f32[4] "
    "return %0 as \"y\", %1 as \"z\" }";

/* A rank whose module asks for the same collectives in another order. */
START_TEST(test_disagreement)
{
    mesh m, other;
    sx_rng rng = {1};
    static const char turned[] =
        "sx 1 graph \"g\" mesh (dp = 3) { %x = parameter {name = \"x\", weight = 0} : f32[4] "
        "%0 = all_reduce(%x) {reducer = multiply, along = \"dp\", ranks = 3} : f32[4] "
        "%1 = all_reduce(%x) {reducer = maximum, along = \"dp\", ranks = 3} : f32[4] "
        "return %0 as \"y\", %1 as \"z\" }";
    open_mesh(&m, fixed_text, "x86-64-v3", WAIT_MS, &rng);
    open_mesh(&other, turned, "x86-64-v3", WAIT_MS, &rng);
    sxr_program *own = m.rank[1].program;
    m.rank[1].program = other.rank[1].program;
    ck_sx_ok(&cx, sxr_join(&cx, m.rank[1].program, sxr_group_communicator(m.group, 1)));
    run_mesh(&m);
    expect_all(&m, SX_INPUT, "ranks disagree: rank ");
    expect_all(&m, SX_INPUT, "launch 0, all-reduce product along dp of 16 bytes of f32");
    expect_all(&m, SX_INPUT, "launch 0, all-reduce sum along dp of 16 bytes of f32");
    m.rank[1].program = own;
    close_mesh(&m);
    close_mesh(&other);
}
END_TEST

/* A rank that does not come ends the others at the deadline, and a later run at once. */
START_TEST(test_absent)
{
    mesh m;
    sx_rng rng = {1};
    open_mesh(&m, fixed_text, "x86-64-v3", 50, &rng);
    m.rank[2].runs = 0;
    run_mesh(&m);
    m.rank[2].runs = 1;
    (void)run_rank(&m.rank[2]);
    expect_all(&m, SX_TIMEOUT,
               "waited 50 ms in launch 0, all-reduce along dp, for rank 2, which "
               "has come to 0 collectives of 1");
    close_mesh(&m);
}
END_TEST

/* A rank that fails on its own ends the others with its error. */
START_TEST(test_failure)
{
    mesh m;
    sx_rng rng = {1};
    open_mesh(&m, fixed_text, "x86-64-v3", WAIT_MS, &rng);
    sxr_close(m.rank[1].program); /* nothing is bound */
    const sxr_options options = {.threads = 1};
    ck_sx_ok(&cx, sxr_open_bytes(&cx, sx_buf_span(&m.module), &options, &m.rank[1].program));
    ck_sx_ok(&cx, sxr_join(&cx, m.rank[1].program, sxr_group_communicator(m.group, 1)));
    run_mesh(&m);
    expect_all(&m, SX_INPUT, "tensor x is not bound");
    ck_assert_ptr_nonnull(strstr(m.rank[0].cx.error.text, "rank 1: "));
    close_mesh(&m);
}
END_TEST

START_TEST(test_no_communicator)
{
    mesh m;
    sx_rng rng = {1};
    sxr_group *two;
    open_mesh(&m, fixed_text, "x86-64-v3", WAIT_MS, &rng);
    sxr_close(m.rank[1].program);
    m.rank[1].program = open_rank(&m.rank[1].cx, sx_buf_span(&m.module), &rng);
    ck_sx_fails(&cx, sxr_run(&cx, m.rank[1].program, NULL), SX_USAGE,
                "3 ranks run the module together: no communicator was given");
    ck_sx_ok(&cx, sxr_group_new(&cx, 2, WAIT_MS, &two));
    ck_sx_fails(&cx, sxr_join(&cx, m.rank[1].program, sxr_group_communicator(two, 1)), SX_INPUT,
                "communicator of rank 1 of 2, 3 ranks run the module");
    sxr_group_free(two);
    close_mesh(&m);
}
END_TEST

/* Ranks that bind a symbol to other values. */
START_TEST(test_other_extents)
{
    sx_buf module;
    mesh m = {.ranks = 3};
    const sx_binding binding[2] = {{SX_SPAN_LITERAL("n"), 4}, {SX_SPAN_LITERAL("n"), 8}};
    const sx_core_request request = {.ir = sx_span_of(sum_text),
                                     .target = sx_span_of("x86-64-v3"),
                                     .binding = binding,
                                     .binding_count = 2};
    sx_image image;
    sx_buf_init(&module, (size_t)16 << 20);
    sx_image_init(&image);
    ck_sx_ok(&cx, sx_core_compile(&cx, &request, &image));
    ck_sx_ok(&cx, sx_image_encode(&cx, &image, &module));
    ck_sx_ok(&cx, sxr_group_new(&cx, 3, WAIT_MS, &m.group));
    for (uint32_t r = 0; r < 3; r++) {
        const sxr_options options = {.threads = 1};
        rank *own = &m.rank[r];
        sx_ctx_init(&own->cx, 1 << 24);
        own->runs = 1;
        ck_sx_ok(&cx, sxr_open_bytes(&cx, sx_buf_span(&module), &options, &own->program));
        ck_sx_ok(&cx, sxr_set_extent(&cx, own->program, SX_SPAN_LITERAL("n"), r == 2 ? 8 : 4));
        ck_sx_ok(&cx, sxr_join(&cx, own->program, sxr_group_communicator(m.group, r)));
        for (uint32_t i = 0; i < sxr_module(own->program)->tensor_count; i++) {
            uint32_t place = sxr_module(own->program)->tensor[i].place;
            if (place == SX_TENSOR_INPUT || place == SX_TENSOR_OUTPUT) {
                uint64_t size = sxr_size(own->program, i);
                ck_sx_ok(&cx, sxr_bind(&cx, own->program, i, sx_alloc(&own->cx, size), size));
            }
        }
    }
    run_mesh(&m);
    expect_all(&m, SX_INPUT, "of 32 bytes of f32");
    expect_all(&m, SX_INPUT, "of 16 bytes of f32");
    sx_image_fini(&image);
    sx_buf_fini(&module);
    sx_buf_init(&m.module, 16);
    close_mesh(&m);
}
END_TEST

/* ---- verification ---- */

static sx_module_launch *collective_of(sx_image *image, uint64_t kind)
{
    sx_module_launch *launch = (sx_module_launch *)(void *)image->launch.ptr;
    for (size_t i = 0; i < image->launch.len / sizeof(*launch); i++) {
        if (launch[i].kind == SX_LAUNCH_COLLECTIVE && launch[i].value == kind) {
            return &launch[i];
        }
    }
    ck_abort_msg("the module has no such collective");
}

static sx_code verify(const char *text, const char *target, uint64_t kind,
                      void (*plant)(sx_module_launch *launch, sx_image *image), sx_image *image)
{
    sx_buf module;
    const sx_core_request request = {.ir = sx_span_of(text), .target = sx_span_of(target)};
    sxr_verify_options options = SXR_VERIFY_DEFAULT;
    sx_image_init(image);
    sx_buf_init(&module, (size_t)16 << 20);
    ck_sx_ok(&cx, sx_core_compile(&cx, &request, image));
    if (plant != NULL) {
        plant(collective_of(image, kind), image);
    }
    ck_sx_ok(&cx, sx_image_encode(&cx, image, &module));
    options.program = sx_span_of(text);
    sx_code code = sxr_verify(&cx, sx_buf_span(&module), &options, image);
    sx_buf_fini(&module);
    return code;
}

static void plant_combine(sx_module_launch *launch, sx_image *image)
{
    (void)image;
    launch->combine = SX_COMBINE_PRODUCT;
}

static void plant_pair(sx_module_launch *launch, sx_image *image)
{
    sx_module_pair *pair = (sx_module_pair *)(void *)image->pair.ptr + launch->pair_first;
    pair->target ^= 1;
    launch->pair_count = 1;
}

static void plant_axis(sx_module_launch *launch, sx_image *image)
{
    const sx_module_axis *axis = (const sx_module_axis *)(const void *)image->axis.ptr;
    launch->name = axis[1].name; /* of as many ranks */
}

static const char planted_text[] =
    "sx 1 graph \"g\" mesh (dp = 2, tp = 2) {\n"
    "%x = parameter {name = \"x\", weight = 0} : f32[4, 4]\n"
    "%0 = all_reduce(%x) {reducer = add, along = \"dp\", ranks = 2} : f32[4, 4]\n"
    "%1 = permute(%0) {along = \"tp\", ranks = 2, pairs = [[0, 1], [1, 0]]} : f32[4, 4]\n"
    "%2 = all_gather(%1) {axis = 1, along = \"dp\", ranks = 2} : f32[4, 8]\n"
    "return %2 as \"y\"\n}\n";

START_TEST(test_planted_faults)
{
    static const struct {
        uint64_t kind;
        void (*plant)(sx_module_launch *launch, sx_image *image);
    } fault[] = {{SX_COLLECTIVE_ALL_REDUCE, plant_combine},
                 {SX_COLLECTIVE_PERMUTE, plant_pair},
                 {SX_COLLECTIVE_ALL_REDUCE, plant_axis}};
    sx_image image;
    ck_sx_fails(&cx, verify(planted_text, "x86-64-v3", fault[_i].kind, fault[_i].plant, &image),
                SX_INTERNAL, ": output y: element ");
    sx_image_fini(&image);
}
END_TEST

/* Whole, on the processor and emulated: the record says so. */
START_TEST(test_record)
{
    static const char *const target[] = {"x86-64-v3", "x86-64-v4"};
    for (uint32_t i = 0; i < 2; i++) {
        sx_image image;
        ck_sx_ok(&cx, verify(planted_text, target[i], 0, NULL, &image));
        const sx_module_check *check = (const void *)image.check.ptr;
        ck_assert_uint_eq(image.check.len / sizeof(*check), 1);
        ck_assert_uint_eq(check->passed, SX_CHECK_PASSED);
        ck_assert_uint_eq(check->points, 4 * 32);
        sx_image_fini(&image);
    }
}
END_TEST

/* What GPUs and other ranks of tensors lack is said by the node. */
START_TEST(test_refused)
{
    const sx_core_request request = {.ir = sx_span_of(planted_text), .target = sx_span_of("h100")};
    sx_image image;
    sx_image_init(&image);
    ck_sx_fails(&cx, sx_core_compile(&cx, &request, &image), SX_UNIMPLEMENTED,
                "all_reduce (1: '%0'): no code generator for all_reduce");
    sx_image_fini(&image);
    sx_ctx_reset_error(&cx);
    sx_image_init(&image);
    ck_sx_fails(&cx, sx_core_optimize(&cx, &request, &image), SX_UNIMPLEMENTED,
                "2 ranks take part: certificates and searches are of programs that one device "
                "computes; compile makes code for it");
    sx_image_fini(&image);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("e2e/ranks");
    TCase *tcase = tcase_create("ranks");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, test_random_programs, 0, DRAWS);
    tcase_add_test(tcase, test_order_of_sums);
    tcase_add_test(tcase, test_scan);
    tcase_add_test(tcase, test_disagreement);
    tcase_add_test(tcase, test_absent);
    tcase_add_test(tcase, test_failure);
    tcase_add_test(tcase, test_no_communicator);
    tcase_add_test(tcase, test_other_extents);
    tcase_add_loop_test(tcase, test_planted_faults, 0, 3);
    tcase_add_test(tcase, test_record);
    tcase_add_test(tcase, test_refused);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
