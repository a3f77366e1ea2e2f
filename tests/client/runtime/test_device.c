/* Modules for GPUs, run on a CUDA driver of the tests (tests/client/cuda/fake) that interprets their PTX: the bits of
 * the same program on the processor, and errors where something is missing or fails. */
#include "tests/client/cuda/fake_driver.h"

#include <signal.h>
#include <string.h>

#include "client/runtime/cpu.h"
#include "client/runtime/runtime.h"
#include "client/verify/verify.h"
#include "core/core.h"
#include "core/ir/ir.h"
#include "tests/lib/compiled.h"
#include "tests/lib/gen_block.h"
#include "tests/lib/model.h"

static sx_ctx cx;
static char folder[256];

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)2 << 30);
    sx_test_mkdtemp(folder);
    fake_driver(folder, "fake", "");
}

static void teardown(void)
{
    sx_test_rmtree(folder);
    sx_ctx_fini(&cx);
}

static void compile(sx_span text, const char *target, sx_buf *module)
{
    sx_binding binding = {SX_SPAN_LITERAL("batch"), 1};
    sx_core_request request = {
        .ir = text, .target = sx_span_of(target), .binding = &binding, .binding_count = 1};
    sx_image image;
    sx_image_init(&image);
    sx_buf_init(module, (size_t)1 << 28);
    ck_sx_ok(&cx, sx_core_compile(&cx, &request, &image));
    ck_sx_ok(&cx, sx_image_encode(&cx, &image, module));
    sx_image_fini(&image);
}

static sxr_program *open_for(const char *name, const char *target)
{
    sx_buf text, module;
    sxr_program *program = NULL;
    sx_buf_init(&text, (size_t)1 << 24);
    ck_sx_ok(&cx, sx_test_model_text(&cx, name, &text));
    compile(sx_buf_span(&text), target, &module);
    ck_sx_ok(&cx, sxr_open_bytes(&cx, sx_buf_span(&module), NULL, &program));
    sx_buf_fini(&module);
    sx_buf_fini(&text);
    return program;
}

/* ---- the same bits ---- */

static void same_outputs(const sxr_program *a, const sxr_program *b)
{
    uint32_t compared = 0;
    for (uint32_t i = 0; i < sxr_module(a)->tensor_count; i++) {
        const sx_module_tensor *tensor = &sxr_module(a)->tensor[i];
        if (tensor->place != SX_TENSOR_OUTPUT) {
            continue;
        }
        uint32_t other =
            sxr_find(b, SX_TENSOR_OUTPUT, sx_module_string(sxr_module(a), tensor->name));
        ck_assert_uint_ne(other, UINT32_MAX);
        ck_assert_uint_eq(sxr_size(a, i), sxr_size(b, other));
        ck_assert_mem_eq(sxr_memory(a, i), sxr_memory(b, other), (size_t)sxr_size(a, i));
        compared++;
    }
    ck_assert_uint_ge(compared, 1);
}

static const struct {
    const char *network, *target;
    /* Sums are in the same order as on the processor. Where they are not, it is compared with the program alone. */
    bool same_plans;
} networks[] = {{"mlp", "a100", true},
                {"mlp", "h100", true},
                {"cnn", "a100", false},
                {"encoder", "a100", false}};

START_TEST(test_the_bits_of_the_processor)
{
    const char *name = networks[_i].network;
    const sx_machine *here = sxr_cpu_machine();
    ck_assert_ptr_nonnull(here);
    sxr_program *cpu = open_for(name, here->name);
    sxr_program *gpu = open_for(name, networks[_i].target);
    ck_assert(sxr_runs_here(gpu));
    ck_sx_ok(&cx, sx_test_model_bind(&cx, name, cpu, 7));
    ck_sx_ok(&cx, sx_test_model_bind(&cx, name, gpu, 7));
    for (uint32_t i = 0; i < sxr_module(gpu)->tensor_count; i++) { /* the same by name */
        const sx_module_tensor *tensor = &sxr_module(gpu)->tensor[i];
        if (tensor->place == SX_TENSOR_INPUT || tensor->place == SX_TENSOR_WEIGHT) {
            uint32_t other = sxr_find(cpu, (sx_module_place)tensor->place,
                                      sx_module_string(sxr_module(gpu), tensor->name));
            memcpy(sxr_memory(gpu, i), sxr_memory(cpu, other), (size_t)sxr_size(cpu, other));
        }
    }
    uint64_t *ns = sx_alloc(&cx, sizeof(*ns) * (sxr_module(gpu)->launch_count + 1));
    ck_sx_ok(&cx, sxr_run(&cx, cpu, NULL));
    ck_sx_ok(&cx, sxr_run(&cx, gpu, ns));
    if (networks[_i].same_plans) {
        same_outputs(cpu, gpu);
    } else {
        sx_module_check check;
        ck_sx_ok(&cx, sxr_check_program(&cx, gpu, 0, &check));
    }
    for (uint32_t i = 0; i < sxr_module(gpu)->launch_count; i++) {
        ck_assert_uint_ge(ns[i], 1999); /* of an event of the fake driver */
        ck_assert_uint_le(ns[i], 2001);
    }
    sxr_close(cpu);
    sxr_close(gpu);
}
END_TEST

/* ---- everything that the format can say, on the rich module of gen_module.h ---- */

/* The tables with PTX in place of the code for the processor; with a cubin beside it, too. */
static sx_code open_with_cubin(sx_gen_module_tables *t, sx_span cubin, sxr_program **program)
{
    sx_buf bytes;
    sx_gen_module_for_gpu(t, cubin);
    sx_buf_init(&bytes, 1 << 24);
    sx_gen_module_encode(&cx, t, &bytes);
    sx_code code = sxr_open_bytes(&cx, sx_buf_span(&bytes), NULL, program);
    sx_buf_fini(&bytes);
    return code;
}

static sx_code open_as_gpu(sx_gen_module_tables *t, sxr_program **program)
{
    return open_with_cubin(t, (sx_span){NULL, 0}, program);
}

typedef struct {
    sxr_program *program;
    float x[64], y[64], d[4];
} rich;

/* In place of s += w: s, an i64, = the number of the outer loop's round. */
static void copy_rounds(sx_gen_module_tables *t)
{
    sx_module_launch *launch = &t->launch[5];
    ck_assert(launch->kind == SX_LAUNCH_KERNEL && t->arg[launch->arg_first + 1] == SX_GEN_S);
    launch->kind = SX_LAUNCH_COPY;
    launch->kernel = SX_MODULE_NONE;
    t->arg[launch->arg_first] = SX_GEN_ROUND;
    t->tensor[SX_GEN_S].dtype = SX_I64;
    t->tensor[SX_GEN_S].element_bytes = 8;
    t->tensor[SX_GEN_S].size = 8;
    t->tensor[SX_GEN_S].initial = UINT64_MAX;
}

static void open_rich(rich *r, bool gpu, bool rounds)
{
    sx_gen_module_tables tables;
    sx_buf bytes;
    *r = (rich){.program = NULL};
    for (uint32_t i = 0; i < 64; i++) {
        r->x[i] = (float)i;
        r->y[i] = -1;
    }
    sx_gen_module_make_rich(&tables);
    if (rounds) {
        copy_rounds(&tables);
    }
    if (gpu) {
        ck_sx_ok(&cx, open_as_gpu(&tables, &r->program));
    } else {
        sx_buf_init(&bytes, 1 << 24);
        sx_gen_module_encode(&cx, &tables, &bytes);
        ck_sx_ok(&cx, sxr_open_bytes(&cx, sx_buf_span(&bytes), NULL, &r->program));
        sx_buf_fini(&bytes);
    }
    ck_sx_ok(&cx, sxr_bind(&cx, r->program, SX_GEN_D, r->d, sizeof(r->d)));
}

static sx_code run_rich(rich *r, int64_t n)
{
    ck_sx_ok(&cx, sxr_set_extent(&cx, r->program, SX_SPAN_LITERAL("n"), n));
    ck_sx_ok(&cx, sxr_bind(&cx, r->program, SX_GEN_X, r->x, 4 * (uint64_t)n));
    ck_sx_ok(&cx, sxr_bind(&cx, r->program, SX_GEN_Y, r->y, 4 * (uint64_t)n));
    return sxr_run(&cx, r->program, NULL);
}

static float state_of(rich *r)
{
    float value = -1;
    ck_sx_ok(&cx, sxr_state_read(&cx, r->program, SX_GEN_S, &value, 4));
    return value;
}

static void same(rich *cpu, rich *gpu)
{
    ck_assert(state_of(cpu) == state_of(gpu));
    ck_assert_mem_eq(cpu->y, gpu->y, sizeof(cpu->y));
    ck_assert_mem_eq(cpu->d, gpu->d, sizeof(cpu->d));
}

/* Fills, copies, loops, prologues, state, outputs in place of inputs, variants: as on the processor. */
START_TEST(test_all_that_a_module_can_say)
{
    static const int64_t extents[] = {16, 48, 3, 7, 64, 8, 5};
    rich r[2];
    float weight = 3, value = 100;
    for (uint32_t i = 0; i < 2; i++) {
        open_rich(&r[i], i == 1, false);
        ck_assert(state_of(&r[i]) == 5.0F); /* before the first run */
    }
    for (uint32_t k = 0; k < SX_COUNT(extents); k++) {
        for (uint32_t i = 0; i < 2; i++) {
            ck_sx_ok(&cx, run_rich(&r[i], extents[k]));
        }
        same(&r[0], &r[1]);
    }
    for (uint32_t i = 0; i < 2; i++) {
        ck_sx_ok(&cx, sxr_state_write(&cx, r[i].program, SX_GEN_S, &value, 4));
        ck_sx_ok(&cx, sxr_bind(&cx, r[i].program, SX_GEN_W, &weight, 4));
        ck_sx_ok(&cx, run_rich(&r[i], 16));
    }
    same(&r[0], &r[1]);
    ck_assert(r[1].y[0] == 1 + 3 * 3.0F && state_of(&r[1]) > 100.0F);
    for (uint32_t i = 0; i < 2; i++) {
        sxr_state_reset(r[i].program);
    }
    same(&r[0], &r[1]);
    weight = 4; /* the same memory, bound again: its bytes are copied again */
    for (uint32_t i = 0; i < 2; i++) {
        ck_sx_ok(&cx, sxr_bind(&cx, r[i].program, SX_GEN_W, &weight, 4));
        ck_sx_ok(&cx, run_rich(&r[i], 7));
        ck_sx_ok(&cx, run_rich(&r[i], 32));
    }
    same(&r[0], &r[1]);
    sxr_close(r[0].program);
    sxr_close(r[1].program);
}
END_TEST

START_TEST(test_rounds_of_a_loop)
{
    rich r[2];
    int64_t last = -1;
    for (uint32_t i = 0; i < 2; i++) {
        open_rich(&r[i], i == 1, true);
        ck_sx_ok(&cx, run_rich(&r[i], 16));
        ck_sx_ok(&cx, sxr_state_read(&cx, r[i].program, SX_GEN_S, &last, 8));
        ck_assert_int_eq(last, 2); /* of the rounds 0, 1, 2 */
        sxr_close(r[i].program);
    }
}
END_TEST

/* ---- machine code beside the PTX ---- */

static sx_buf cubin_bytes;

/* A fake GPU that runs, in place of any cubin, the text that adds twice as much: results tell which code was taken. */
static void fake_for_cubins(const char *settings)
{
    char path[300], all[400];
    sx_buf text;
    sx_buf_init(&text, 1 << 16);
    sx_buf_put_text(&text, sx_gen_module_ptx);
    uint8_t *at = memmem(text.ptr, text.len, "add.rn.f32 %f1, %f1, %f2;", 25);
    ck_assert_ptr_nonnull(at);
    (void)snprintf(path, sizeof(path), "%s/twice.ptx", folder);
    FILE *file = fopen(path, "w");
    size_t before = (size_t)(at - text.ptr) + 25;
    ck_assert_ptr_nonnull(file);
    ck_assert(fwrite(text.ptr, 1, before, file) == before &&
              fputs("\n    add.rn.f32 %f1, %f1, %f2;", file) >= 0 &&
              fwrite(text.ptr + before, 1, text.len - before, file) == text.len - before &&
              fclose(file) == 0);
    sx_buf_fini(&text);
    (void)snprintf(all, sizeof(all), "cubin=%s %s", path, settings);
    fake_driver(folder, "fake", all);
    sx_buf_init(&cubin_bytes, 1 << 16);
    sx_test_read_file(SX_SOURCE_DIR "/tests/fuzz/seeds/fuzz_cubin/add.cubin", &cubin_bytes);
}

static sx_code open_altered(void (*alter)(sx_gen_module_tables *t), sxr_program **program)
{
    sx_gen_module_tables tables;
    sx_buf bytes;
    sx_gen_module_make(&tables);
    sx_gen_module_for_gpu(&tables, sx_buf_span(&cubin_bytes));
    alter(&tables);
    sx_buf_init(&bytes, 1 << 24);
    sx_gen_module_encode(&cx, &tables, &bytes);
    sx_code code = sxr_open_bytes(&cx, sx_buf_span(&bytes), NULL, program);
    sx_buf_fini(&bytes);
    return code;
}

static void keep(sx_gen_module_tables *t)
{
    ck_assert_uint_eq(t->cubins, 1);
}

static void no_cubin(sx_gen_module_tables *t)
{
    t->cubins = 0;
}

static const struct {
    const char *settings;
    void (*alter)(sx_gen_module_tables *t);
    float expected;
} choices[] = {
    {"capability=80", keep, 2},               /* exactly its GPU */
    {"capability=86", keep, 1},               /* a newer one: the PTX */
    {"capability=90", keep, 1},               /* likewise */
    {"capability=80", no_cubin, 1},           /* there is none */
    {"capability=80 version=12040", keep, 1}, /* the toolkit, 13, is newer than the driver */
    {"capability=80 version=13020", keep, 2},
};

START_TEST(test_which_code_a_gpu_gets)
{
    sxr_program *program = NULL;
    float x[4] = {0}, y[SX_GEN_POINTS] = {0};
    fake_for_cubins(choices[_i].settings);
    ck_sx_ok(&cx, open_altered(choices[_i].alter, &program));
    ck_sx_ok(&cx, sxr_bind(&cx, program, 0, x, sizeof(x)));
    ck_sx_ok(&cx, sxr_bind(&cx, program, 2, y, sizeof(y)));
    ck_sx_ok(&cx, sxr_run(&cx, program, NULL));
    for (uint32_t i = 0; i < SX_GEN_POINTS; i++) {
        ck_assert(y[i] == choices[_i].expected);
    }
    sxr_close(program);
    sx_buf_fini(&cubin_bytes);
}
END_TEST

START_TEST(test_a_driver_that_refuses_a_cubin)
{
    sxr_program *program = NULL;
    float x[4] = {0}, y[SX_GEN_POINTS] = {0};
    fake_for_cubins("capability=80 fail=cuModuleLoadDataEx:1:209");
    ck_sx_ok(&cx, open_altered(keep, &program));
    ck_sx_ok(&cx, sxr_bind(&cx, program, 0, x, sizeof(x)));
    ck_sx_ok(&cx, sxr_bind(&cx, program, 2, y, sizeof(y)));
    ck_sx_fails(&cx, sxr_run(&cx, program, NULL), SX_SYSTEM,
                "loading code on the GPU: CUDA error 209");
    sxr_close(program);
    sx_buf_fini(&cubin_bytes);
}
END_TEST

/* What a row says must be what is read from its cubin. */
#define CUBIN_FAULTS(FAULT)                                                                        \
    FAULT(registers, t->cubin[0].registers = 11, "cubin 0: 11 registers, the cubin itself has 12") \
    FAULT(local, t->cubin[0].local_bytes = 0, "0 bytes of local memory, the cubin itself has 16")  \
    FAULT(spills, t->cubin[0].spills = 0, "0 spills, the cubin itself has 2")                      \
    FAULT(barriers, t->cubin[0].barriers = 2, "2 barriers, the cubin itself has 1")                \
    FAULT(parameters, t->cubin[0].parameter_bytes = 32, "32 bytes of parameters, the cubin")       \
    FAULT(shared, t->cubin[0].shared_bytes = 0, "0 bytes of shared memory, the cubin itself")      \
    FAULT(level, t->cubin[0].level = 90, "cubin 0: for sm_90, its code is for sm_80")              \
    FAULT(entry, memcpy(strstr((char *)t->ptx, "add("), "sub(", 4), "cubin 0: no entry sub")       \
    FAULT(magic, t->ptx[t->cubin[0].offset] = 0, "module cubin 0: this is no cubin")               \
    FAULT(cut, t->cubin[0].size -= 64, "module cubin 0: cubin: 9 section headers")
#define FAULT(name, statement, text)                  \
    static void fault_##name(sx_gen_module_tables *t) \
    {                                                 \
        statement;                                    \
    }
CUBIN_FAULTS(FAULT)
#undef FAULT
static const struct {
    void (*alter)(sx_gen_module_tables *t);
    const char *says;
} cubin_faults[] = {
#define FAULT(name, statement, text) {fault_##name, text},
    CUBIN_FAULTS(FAULT)
#undef FAULT
};

START_TEST(test_cubins_that_are_not_what_is_said)
{
    sxr_program *program = NULL;
    fake_for_cubins("capability=80");
    ck_sx_fails(&cx, open_altered(cubin_faults[_i].alter, &program), SX_CORRUPT,
                cubin_faults[_i].says);
    ck_assert_ptr_null(program);
    sx_buf_fini(&cubin_bytes);
}
END_TEST

/* ---- block programs ---- */

#define BLOCK_POINTS 24
static const int64_t block_grid[3] = {2, 3, 4};

static void open_block(uint32_t shared_bytes, uint32_t walkers, sxr_program **program)
{
    sx_gen_module_tables tables;
    sx_buf bytes;
    sx_gen_block_make(block_grid, shared_bytes, &tables);
    tables.part[0].walkers = walkers;
    sx_buf_init(&bytes, 1 << 24);
    sx_gen_module_encode(&cx, &tables, &bytes);
    ck_sx_ok(&cx, sxr_open_bytes(&cx, sx_buf_span(&bytes), NULL, program));
    sx_buf_fini(&bytes);
}

/* Each point of the grid is a block, with all the shared memory that it asks for. */
START_TEST(test_block_programs)
{
    static const uint32_t shared[] = {256, 48 << 10, 49156, 163 << 10};
    float x[BLOCK_POINTS * SX_GEN_BLOCK_THREADS], y[SX_COUNT(x)], w = 3;
    for (uint32_t s = 0; s < SX_COUNT(shared); s++) {
        sxr_program *program;
        uint64_t ns[1] = {0};
        open_block(shared[s], 0, &program);
        for (uint32_t i = 0; i < SX_COUNT(x); i++) {
            x[i] = (float)(i + s);
            y[i] = -1;
        }
        ck_sx_ok(&cx, sxr_bind(&cx, program, SX_GEN_BLOCK_X, x, sizeof(x)));
        ck_sx_ok(&cx, sxr_bind(&cx, program, SX_GEN_BLOCK_W, &w, sizeof(w)));
        ck_sx_ok(&cx, sxr_bind(&cx, program, SX_GEN_BLOCK_Y, y, sizeof(y)));
        ck_sx_ok(&cx, sxr_run(&cx, program, ns));
        for (uint32_t i = 0; i < SX_COUNT(y); i++) {
            ck_assert_msg(y[i] == sx_gen_block_expected(block_grid, x, w, i), "element %u", i);
        }
        ck_assert_uint_ge(ns[0], 1999);
        sxr_close(program);
    }
}
END_TEST

/* Where blocks walk, so many are launched, side by side, but no more than there are points. This text does not walk: it
 * shows which blocks there are. */
START_TEST(test_walking_blocks)
{
    float x[BLOCK_POINTS * SX_GEN_BLOCK_THREADS] = {0}, y[SX_COUNT(x)], w = 3;
    for (uint32_t walkers = 1; walkers < 2 * BLOCK_POINTS; walkers += BLOCK_POINTS) {
        sxr_program *program;
        open_block(256, walkers, &program);
        for (uint32_t i = 0; i < SX_COUNT(y); i++) {
            y[i] = -1;
        }
        ck_sx_ok(&cx, sxr_bind(&cx, program, SX_GEN_BLOCK_X, x, sizeof(x)));
        ck_sx_ok(&cx, sxr_bind(&cx, program, SX_GEN_BLOCK_W, &w, sizeof(w)));
        ck_sx_ok(&cx, sxr_bind(&cx, program, SX_GEN_BLOCK_Y, y, sizeof(y)));
        ck_sx_ok(&cx, sxr_run(&cx, program, NULL));
        for (uint32_t i = 0; i < SX_COUNT(y); i++) {
            bool there = i < walkers * SX_GEN_BLOCK_THREADS;
            ck_assert_msg(y[i] == (there ? w : -1), "%u blocks: element %u", walkers, i);
        }
        sxr_close(program);
    }
}
END_TEST

static const struct {
    const char *settings;
    uint32_t shared_bytes;
    sx_code code;
    const char *says;
} refused_block[] = {
    {"shared=65535", 65536, SX_LIMIT,
     "kernel 0: turn: a block asks for 65536 bytes of shared memory, GPU 0 (Fake 0) has 65535"},
    {"fail=cuFuncSetAttribute:1:304", 65536, SX_SYSTEM, "kernel 0: turn: CUDA error 304"},
    {"fail=cuLaunchKernel:1:701", 4096, SX_SYSTEM, "launching a kernel: CUDA error 701"},
    {"", 128, SX_SYSTEM, "GPU 0 (Fake 0) is lost: "},
};

START_TEST(test_blocks_that_are_refused)
{
    float x[BLOCK_POINTS * SX_GEN_BLOCK_THREADS] = {0}, y[SX_COUNT(x)], w = 3;
    sxr_program *program;
    fake_driver(folder, "fake", refused_block[_i].settings);
    open_block(refused_block[_i].shared_bytes, 0, &program);
    ck_sx_ok(&cx, sxr_bind(&cx, program, SX_GEN_BLOCK_X, x, sizeof(x)));
    ck_sx_ok(&cx, sxr_bind(&cx, program, SX_GEN_BLOCK_W, &w, sizeof(w)));
    ck_sx_ok(&cx, sxr_bind(&cx, program, SX_GEN_BLOCK_Y, y, sizeof(y)));
    ck_sx_fails(&cx, sxr_run(&cx, program, NULL), refused_block[_i].code, refused_block[_i].says);
    sxr_close(program);
}
END_TEST

/* Contractions that the compiler makes for blocks, of odd extents: in f32 with the bits of the processor, in others as
 * the program as sent. */
static const struct {
    const char *dtype;
    bool same_bits;
} contraction[] = {{"f32", true}, {"bf16", false}};

START_TEST(test_contractions_by_blocks)
{
    char text[1024];
    const char *t = contraction[_i].dtype;
    sxr_program *program[2];
    uint32_t blocks = 0;
    (void)snprintf(text, sizeof(text),
                   "sx 1\ngraph \"g\" () {\n"
                   "%%x = parameter {name = \"x\", weight = 0} : %s[70, 37]\n"
                   "%%w = parameter {name = \"w\", weight = 0} : %s[37, 51]\n"
                   "%%d = dot_general(%%x, %%w) {lhs_contract = [1], rhs_contract = [0]} : "
                   "%s[70, 51]\n"
                   "%%r = relu(%%d) : %s[70, 51]\n"
                   "return %%r as \"y\"\n}\n",
                   t, t, t, t);
    for (uint32_t i = 0; i < 2; i++) {
        sx_buf module;
        const sx_test_request request = {.text = text,
                                         .target = i == 0 ? sxr_cpu_machine()->name : "a100"};
        sx_buf_init(&module, (size_t)1 << 26);
        ck_sx_ok(&cx, sx_test_compile(&cx, &request, &module));
        program[i] = sx_test_open(&cx, sx_buf_span(&module), 1, SX_FILL_SMOOTH);
        sx_buf_fini(&module);
        ck_sx_ok(&cx, sxr_run(&cx, program[i], NULL));
    }
    for (uint32_t p = 0; p < sxr_module(program[1])->part_count; p++) {
        blocks += sxr_module(program[1])->part[p].threads > 0 ? 1 : 0;
    }
    ck_assert_uint_ge(blocks, 1);
    if (contraction[_i].same_bits) {
        same_outputs(program[0], program[1]);
    }
    sx_module_check check;
    ck_sx_ok(&cx, sxr_check_program(&cx, program[1], 0, &check));
    sxr_close(program[0]);
    sxr_close(program[1]);
}
END_TEST

/* Long sums of few rows: slices of k by different blocks, and a launch that adds them up; the second product is two
 * launches of the same kernels. */
START_TEST(test_slices_by_blocks)
{
    static const char text[] =
        "sx 1\ngraph \"g\" () {\n"
        "%x = parameter {name = \"x\", weight = 0} : bf16[5, 8192]\n"
        "%w = parameter {name = \"w\", weight = 0} : bf16[8192, 40]\n"
        "%y = parameter {name = \"y\", weight = 0} : bf16[5, 8192]\n"
        "%v = parameter {name = \"v\", weight = 0} : bf16[8192, 40]\n"
        "%d = dot_general(%x, %w) {lhs_contract = [1], rhs_contract = [0]} : bf16[5, 40]\n"
        "%e = dot_general(%y, %v) {lhs_contract = [1], rhs_contract = [0]} : bf16[5, 40]\n"
        "%r = relu(%d) : bf16[5, 40]\n"
        "%s = relu(%e) : bf16[5, 40]\n"
        "return %r as \"r\", %s as \"s\"\n}\n";
    const sx_test_request request = {.text = text, .target = "h100"};
    sx_buf image;
    sx_buf_init(&image, (size_t)1 << 26);
    ck_sx_ok(&cx, sx_test_compile(&cx, &request, &image));
    sxr_program *program = sx_test_open(&cx, sx_buf_span(&image), 1, SX_FILL_SMOOTH);
    sx_buf_fini(&image);
    const sx_module *module = sxr_module(program);
    ck_assert_uint_eq(module->kernel_count, 2);
    ck_assert_uint_eq(module->launch_count, 4);
    ck_assert_uint_eq(sx_test_kernels(module, SX_MODULE_PACK), 1);
    ck_assert_uint_eq(sx_test_kernels(module, SX_MODULE_CONTRACTION), 1);
    ck_sx_ok(&cx, sxr_run(&cx, program, NULL));
    sx_module_check check;
    ck_sx_ok(&cx, sxr_check_program(&cx, program, 0, &check));
    sxr_close(program);
}
END_TEST

/* ---- memory and streams of the caller ---- */

/* The memory of x, y and d on the GPU, and with `weight` that of w. */
static void bind_rich_device(rich *r, fake_user *u, int64_t n, const float *weight)
{
    uint64_t bytes = 4 * (uint64_t)n;
    ck_sx_ok(&cx, sxr_set_extent(&cx, r->program, SX_SPAN_LITERAL("n"), n));
    uint64_t x = fake_user_memory(u, r->x, bytes), y = fake_user_memory(u, r->y, bytes);
    uint64_t d = fake_user_memory(u, r->d, sizeof(r->d));
    ck_sx_ok(&cx, sxr_bind_device(&cx, r->program, SX_GEN_X, x, bytes));
    ck_sx_ok(&cx, sxr_bind_device(&cx, r->program, SX_GEN_Y, y, bytes));
    ck_sx_ok(&cx, sxr_bind_device(&cx, r->program, SX_GEN_D, d, sizeof(r->d)));
    ck_assert(sxr_bound(r->program, SX_GEN_Z) && sxr_memory(r->program, SX_GEN_Z) == NULL);
    if (weight != NULL) {
        uint64_t w = fake_user_memory(u, weight, 4);
        ck_sx_ok(&cx, sxr_bind_device(&cx, r->program, SX_GEN_W, w, 4));
    }
}

static void read_rich_device(rich *r, const fake_user *u, int64_t n)
{
    ck_assert_int_eq(u->download(r->y, u->memory[1], 4 * (size_t)n, u->stream), 0);
    ck_assert_int_eq(u->download(r->d, u->memory[2], sizeof(r->d), u->stream), 0);
}

/* Runs on the caller's stream, as they come and from a graph, are those of the processor: loops, fills, copies, state,
 * an output in place of an input. The driver ends the process at a call that a graph could not repeat. */
START_TEST(test_streams_and_graphs)
{
    static const int64_t extents[] = {16, 7, 64};
    const float weight = 2;
    bool on_device = _i == 1;
    for (uint32_t k = 0; k < SX_COUNT(extents); k++) {
        int64_t n = extents[k];
        rich r[2];
        fake_user u;
        for (uint32_t i = 0; i < 2; i++) {
            open_rich(&r[i], i == 1, false);
        }
        float w = weight;
        ck_sx_ok(&cx, sxr_bind(&cx, r[0].program, SX_GEN_W, &w, 4));
        fake_user_begin(&u);
        bind_rich_device(&r[1], &u, n, on_device ? &weight : NULL);
        if (!on_device) {
            ck_sx_ok(&cx, sxr_bind(&cx, r[1].program, SX_GEN_W, &w, 4));
        }
        ck_sx_ok(&cx, sxr_prepare(&cx, r[1].program));
        ck_sx_ok(&cx, sxr_enqueue(&cx, r[1].program, u.stream));
        fake_user_capture(&u);
        ck_sx_ok(&cx, sxr_enqueue(&cx, r[1].program, u.stream));
        fake_user_captured(&u);
        ck_assert(u.launch(u.graph, u.stream) == 0 && u.launch(u.graph, u.stream) == 0);
        for (uint32_t run = 0; run < 3; run++) {
            ck_sx_ok(&cx, run_rich(&r[0], n));
        }
        read_rich_device(&r[1], &u, n);
        same(&r[0], &r[1]);
        ck_sx_ok(&cx,
                 sxr_run(&cx, r[1].program, NULL)); /* on a stream of its own, and waited for */
        ck_sx_ok(&cx, run_rich(&r[0], n));
        read_rich_device(&r[1], &u, n);
        same(&r[0], &r[1]);
        fake_user_end(&u);
        sxr_close(r[0].program);
        sxr_close(r[1].program);
    }
}
END_TEST

/* The rounds of a loop are counted on the GPU. */
START_TEST(test_rounds_in_a_graph)
{
    rich r;
    fake_user u;
    int64_t last = -1;
    open_rich(&r, true, true);
    fake_user_begin(&u);
    bind_rich_device(&r, &u, 16, NULL);
    ck_sx_ok(&cx, sxr_prepare(&cx, r.program));
    fake_user_capture(&u);
    ck_sx_ok(&cx, sxr_enqueue(&cx, r.program, u.stream));
    fake_user_captured(&u);
    ck_assert_int_eq(u.launch(u.graph, u.stream), 0);
    ck_sx_ok(&cx, sxr_state_read(&cx, r.program, SX_GEN_S, &last, 8));
    ck_assert_int_eq(last, 2);
    fake_user_end(&u);
    sxr_close(r.program);
}
END_TEST

/* A graph of a run that has been made: its times, and outputs that stay as they were. */
START_TEST(test_times_of_a_graph)
{
    uint64_t ns[5] = {0};
    rich r;
    float before[64];
    open_rich(&r, true, true);
    ck_sx_ok(&cx, sxr_set_extent(&cx, r.program, SX_SPAN_LITERAL("n"), 16));
    ck_sx_ok(&cx, sxr_bind(&cx, r.program, SX_GEN_X, r.x, 64));
    ck_sx_ok(&cx, sxr_bind(&cx, r.program, SX_GEN_Y, r.y, 64));
    ck_sx_fails(&cx, sxr_time_graph(&cx, r.program, 5, ns), SX_USAGE, "not prepared");
    ck_sx_ok(&cx, run_rich(&r, 16));
    memcpy(before, r.y, sizeof(before));
    ck_sx_ok(&cx, sxr_time_graph(&cx, r.program, 5, ns));
    ck_assert_mem_eq(before, r.y, sizeof(before));
    for (uint32_t i = 0; i < SX_COUNT(ns); i++) {
        ck_assert(ns[i] >= 1999 && ns[i] <= 2001); /* of an event of the fake driver */
    }
    sxr_close(r.program);
    open_rich(&r, false, false);
    ck_sx_fails(&cx, sxr_time_graph(&cx, r.program, 5, ns), SX_USAGE, "runs on the processor");
    sxr_close(r.program);
}
END_TEST

/* A graph that cannot be made or launched; what was begun of it is ended. */
START_TEST(test_graphs_that_fail)
{
    static const struct {
        const char *settings;
        sx_code code;
        const char *says;
    } fault[] = {{"fail=cuStreamBeginCapture_v2:1:304", SX_SYSTEM, "beginning a graph"},
                 {"fail=cuLaunchKernel:15:304", SX_SYSTEM, "launching a kernel"},
                 {"fail=cuStreamEndCapture:1:304", SX_SYSTEM, "making a graph"},
                 {"fail=cuGraphInstantiateWithFlags:1:304", SX_SYSTEM, "making a graph"},
                 {"fail=cuGraphLaunch:3:719", SX_SYSTEM, "is lost: launching a graph"}};
    for (uint32_t i = 0; i < SX_COUNT(fault); i++) {
        uint64_t ns[5];
        rich r;
        fake_driver(folder, "fake", fault[i].settings);
        open_rich(&r, true, false);
        sx_code code = SX_OK;
        for (uint32_t run = 0; code == SX_OK && run < 4; run++) {
            ck_sx_ok(&cx, run_rich(&r, 16));
            code = sxr_time_graph(&cx, r.program, 5, ns);
        }
        ck_assert_msg(code == fault[i].code && strstr(cx.error.text, fault[i].says) != NULL,
                      "%s: %s", fault[i].settings, cx.error.text);
        sx_ctx_reset_error(&cx);
        sxr_close(r.program);
    }
}
END_TEST

/* The driver of the tests ends the process where a run that copies and waits meets a capture. */
START_TEST(test_a_run_that_cannot_be_captured)
{
    rich r;
    fake_user u;
    open_rich(&r, true, false);
    fake_user_begin(&u);
    bind_rich_device(&r, &u, 16, NULL);
    ck_sx_ok(&cx, sxr_prepare(&cx, r.program));
    fake_user_capture(&u);
    (void)sxr_run(&cx, r.program, NULL);
}
END_TEST

/* Of a weight that the prologue reads, work is done before a run can be enqueued. */
START_TEST(test_prologues_before_runs_are_enqueued)
{
    sx_gen_module_tables tables;
    sxr_program *program;
    fake_user u;
    float x[2] = {0}, y[2] = {0}, w[2] = {2, 3};
    sx_gen_module_make_shared(&tables);
    ck_sx_ok(&cx, open_as_gpu(&tables, &program));
    fake_user_begin(&u);
    uint64_t own = fake_user_memory(&u, &w[0], 4), other = fake_user_memory(&u, &w[1], 4);
    uint64_t in = fake_user_memory(&u, x, sizeof(x)), out = fake_user_memory(&u, y, sizeof(y));
    ck_sx_ok(&cx, sxr_set_extent(&cx, program, SX_SPAN_LITERAL("n"), 2));
    ck_sx_ok(&cx, sxr_bind_device(&cx, program, SX_GEN_SHARED_X, in, sizeof(x)));
    ck_sx_ok(&cx, sxr_bind_device(&cx, program, SX_GEN_SHARED_Y, out, sizeof(y)));
    ck_sx_ok(&cx, sxr_bind_device(&cx, program, SX_GEN_SHARED_W, own, 4));
    ck_sx_ok(&cx, sxr_prepare(&cx, program));
    ck_sx_ok(&cx, sxr_enqueue(&cx, program, u.stream));
    ck_sx_ok(&cx, sxr_bind_device(&cx, program, SX_GEN_SHARED_W, other, 4));
    ck_sx_fails(&cx, sxr_enqueue(&cx, program, u.stream), SX_USAGE, "its weights were bound");
    ck_sx_ok(&cx, sxr_prepare(&cx, program));
    ck_sx_ok(&cx, sxr_enqueue(&cx, program, u.stream));
    fake_user_end(&u);
    sxr_close(program);
}
END_TEST

START_TEST(test_runs_that_are_not_enqueued)
{
    rich r;
    fake_user u;
    float w = 2;
    open_rich(&r, true, false);
    fake_user_begin(&u);
    ck_sx_fails(&cx, sxr_enqueue(&cx, r.program, u.stream), SX_INPUT, "extent n has no value");
    bind_rich_device(&r, &u, 16, NULL);
    ck_sx_fails(&cx, sxr_enqueue(&cx, r.program, u.stream), SX_USAGE,
                "the module is not prepared: tensor w is not on the GPU");
    ck_sx_ok(&cx, sxr_prepare(&cx, r.program));
    ck_sx_ok(&cx, sxr_enqueue(&cx, r.program, u.stream));
    ck_sx_ok(&cx, sxr_bind(&cx, r.program, SX_GEN_W, &w, 4));
    ck_sx_fails(&cx, sxr_enqueue(&cx, r.program, u.stream), SX_USAGE, "tensor w is not on the GPU");
    ck_sx_ok(&cx, sxr_prepare(&cx, r.program));
    sxr_state_reset(r.program);
    ck_sx_fails(&cx, sxr_enqueue(&cx, r.program, u.stream), SX_USAGE, "tensor s is not on the GPU");
    ck_sx_ok(&cx, sxr_prepare(&cx, r.program));
    uint64_t other = fake_user_memory(&u, &w, 4);
    ck_sx_ok(&cx, sxr_bind_device(&cx, r.program, SX_GEN_W, other, 4));
    ck_sx_ok(&cx, sxr_enqueue(&cx, r.program, u.stream)); /* no prologue reads it */
    ck_sx_ok(&cx, sxr_bind(&cx, r.program, SX_GEN_X, r.x, 64));
    ck_sx_fails(&cx, sxr_enqueue(&cx, r.program, u.stream), SX_INPUT,
                "tensor x is not bound to memory of the GPU");
    ck_sx_ok(&cx, sxr_set_extent(&cx, r.program, SX_SPAN_LITERAL("n"), 7));
    ck_sx_fails(&cx, sxr_enqueue(&cx, r.program, u.stream), SX_INPUT, "tensor x is not bound");
    fake_user_end(&u);
    sxr_close(r.program);
}
END_TEST

/* Addresses that are refused, by name, before anything is launched. */
START_TEST(test_addresses)
{
    rich r;
    fake_user u;
    open_rich(&r, true, false);
    fake_user_begin(&u);
    bind_rich_device(&r, &u, 16, NULL);
    uint64_t x = u.memory[0], d = u.memory[2];
    ck_sx_fails(&cx, sxr_bind_device(&cx, r.program, SX_GEN_X, x + 4, 64), SX_INPUT,
                "tensor x: 0x7f0000");
    ck_sx_fails(&cx, sxr_bind_device(&cx, r.program, SX_GEN_X, x + 32, 64), SX_INPUT,
                "is not a multiple of 64");
    ck_sx_fails(&cx, sxr_bind_device(&cx, r.program, SX_GEN_X, 640, 64), SX_INPUT,
                "tensor x: 0x280 is no address of memory of a GPU");
    ck_sx_fails(&cx, sxr_bind_device(&cx, r.program, SX_GEN_X, x, 60), SX_INPUT,
                "tensor x: 60 bytes given, it has 64");
    ck_sx_fails(&cx, sxr_bind_device(&cx, r.program, SX_GEN_Z, x, 16), SX_INPUT,
                "output z lies in the memory of input d: bind that");
    ck_sx_ok(&cx, sxr_bind_device(&cx, r.program, SX_GEN_Z, d, 16));
    ck_sx_fails(&cx, sxr_bind_device(&cx, r.program, SX_GEN_S, x, 4), SX_INPUT,
                "tensor s is internal");
    fake_user_end(&u);
    sxr_close(r.program);
    open_rich(&r, false, false);
    ck_sx_fails(&cx, sxr_bind_device(&cx, r.program, SX_GEN_X, x, 64), SX_USAGE,
                "no memory of a GPU");
    ck_sx_fails(&cx, sxr_prepare(&cx, r.program), SX_USAGE, "runs on the processor");
    ck_sx_fails(&cx, sxr_enqueue(&cx, r.program, NULL), SX_USAGE, "which has no streams");
    sxr_close(r.program);
}
END_TEST

START_TEST(test_memory_of_another_gpu)
{
    rich r;
    fake_user u;
    fake_driver(folder, "fake", "gpus=2 other=1");
    open_rich(&r, true, false);
    fake_user_begin(&u);
    ck_sx_ok(&cx, sxr_set_extent(&cx, r.program, SX_SPAN_LITERAL("n"), 16));
    uint64_t x = fake_user_memory(&u, r.x, 64);
    ck_sx_fails(&cx, sxr_bind_device(&cx, r.program, SX_GEN_X, x, 64), SX_INPUT,
                "is memory of GPU 1, the module is on GPU 0 (Fake 0)");
    fake_user_end(&u);
    sxr_close(r.program);
}
END_TEST

/* ---- what is missing, and what fails ---- */

static const struct {
    const char *settings;
    sx_code code;
    const char *says;
} refused[] = {
    {"gpus=0", SX_UNIMPLEMENTED, "module is for sm_80: the CUDA driver finds no GPU"},
    {"capability=75", SX_UNIMPLEMENTED,
     "module is for sm_80: compute capability 8.0 is needed, GPU 0 (Fake 0) has 7.5"},
    {"memory=200", SX_NOMEM, "bytes wanted for temporaries and state"},
    {"fail=cuMemAlloc_v2:2:2", SX_NOMEM, "bytes wanted for constants"},
    {"fail=cuMemAlloc_v2:3:2", SX_NOMEM, "bytes wanted for weights, inputs and outputs"},
    {"fail=cuMemcpyHtoDAsync_v2:1:700", SX_SYSTEM, "GPU 0 (Fake 0) is lost"},
    {"fail=cuStreamCreate:1:304", SX_SYSTEM, "starting the GPU: CUDA error 304"},
};

START_TEST(test_modules_that_cannot_be_opened)
{
    sx_gen_module_tables tables;
    sxr_program *program = NULL;
    fake_driver(folder, "fake", refused[_i].settings);
    sx_gen_module_make_rich(&tables);
    ck_sx_fails(&cx, open_as_gpu(&tables, &program), refused[_i].code, refused[_i].says);
    ck_assert_ptr_null(program);
}
END_TEST

START_TEST(test_no_driver)
{
    sx_gen_module_tables tables;
    sxr_program *program = NULL;
    ck_assert(sxr_machine_executes(&sx_machine_sm_80) && sxr_machine_executes(&sx_machine_sm_90) &&
              !sxr_machine_executes(&sx_machine_sm_100));
    ck_assert(setenv("SYMPLEX_CUDA_DRIVER", "/nonexistent/libcuda.so.1", 1) == 0);
    sx_gen_module_make_rich(&tables);
    ck_sx_fails(&cx, open_as_gpu(&tables, &program), SX_UNIMPLEMENTED,
                "module is for sm_80: $SYMPLEX_CUDA_DRIVER: /nonexistent/libcuda.so.1");
    ck_assert(!sxr_machine_executes(&sx_machine_sm_80));
}
END_TEST

START_TEST(test_an_old_driver)
{
    rich r;
    fake_driver(folder, "fake", "version=10020");
    open_rich(&r, true, false);
    ck_sx_fails(&cx, run_rich(&r, 16), SX_UNIMPLEMENTED,
                "PTX 7.0 needs a driver of CUDA 11.0, this one is of CUDA 10.2");
    sxr_close(r.program);
}
END_TEST

/* Each function that a run calls loses the GPU once: that error, and the same one from then on. */
START_TEST(test_a_gpu_lost_in_a_run)
{
    static const char *const call[] = {"cuModuleLoadDataEx:1:719",   "cuModuleGetFunction:1:719",
                                       "cuMemcpyHtoDAsync_v2:3:700", "cuLaunchKernel:2:719",
                                       "cuMemcpyDtoHAsync_v2:1:700", "cuStreamSynchronize:1:719",
                                       "cuMemcpyDtoDAsync_v2:1:716", "cuMemsetD32Async:1:702"};
    for (uint32_t i = 0; i < SX_COUNT(call); i++) {
        char settings[128], first[sizeof(cx.error.text)];
        rich r;
        (void)snprintf(settings, sizeof(settings), "fail=%s", call[i]);
        fake_driver(folder, "fake", settings);
        open_rich(&r, true, false);
        ck_assert_msg(run_rich(&r, 16) == SX_SYSTEM, "%s", call[i]);
        (void)snprintf(first, sizeof(first), "%s", cx.error.text);
        ck_assert_msg(strstr(first, "is lost") != NULL, "%s: %s", call[i], first);
        sx_ctx_reset_error(&cx);
        const char *kept = strstr(first, "GPU 0"); /* without the kernel that was loaded then */
        ck_sx_fails(&cx, run_rich(&r, 16), SX_SYSTEM, kept);
        float value = 0;
        ck_sx_fails(&cx, sxr_state_write(&cx, r.program, SX_GEN_S, &value, 4), SX_SYSTEM, kept);
        sxr_close(r.program);
    }
}
END_TEST

/* A launch that the GPU has no resources for leaves it as it was: the next run gives what it should. */
START_TEST(test_a_launch_that_fails_alone)
{
    rich r;
    fake_driver(folder, "fake", "fail=cuLaunchKernel:1:701");
    open_rich(&r, true, false);
    ck_sx_fails(&cx, run_rich(&r, 48), SX_SYSTEM, "launching a kernel: CUDA error 701");
    ck_sx_ok(&cx, run_rich(&r, 48));
    ck_assert(r.y[0] == 4 && r.y[47] == 4 && r.y[48] == -1);
    sxr_close(r.program);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("device");
    TCase *tcase = tcase_create("device");
    tcase_add_checked_fixture(tcase, setup, teardown);
    /* Under sanitizers the last one takes minutes. */
    tcase_add_loop_test(tcase, test_the_bits_of_the_processor, 0,
                        (int)SX_COUNT(networks) - (SX_SANITIZED ? 1 : 0));
    tcase_add_test(tcase, test_all_that_a_module_can_say);
    tcase_add_test(tcase, test_rounds_of_a_loop);
    tcase_add_loop_test(tcase, test_which_code_a_gpu_gets, 0, (int)SX_COUNT(choices));
    tcase_add_test(tcase, test_a_driver_that_refuses_a_cubin);
    tcase_add_loop_test(tcase, test_cubins_that_are_not_what_is_said, 0,
                        (int)SX_COUNT(cubin_faults));
    tcase_add_loop_test(tcase, test_modules_that_cannot_be_opened, 0, (int)SX_COUNT(refused));
    tcase_add_test(tcase, test_walking_blocks);
    tcase_add_test(tcase, test_block_programs);
    tcase_add_loop_test(tcase, test_blocks_that_are_refused, 0, (int)SX_COUNT(refused_block));
    tcase_add_loop_test(tcase, test_contractions_by_blocks, 0, (int)SX_COUNT(contraction));
    tcase_add_test(tcase, test_slices_by_blocks);
    tcase_add_loop_test(tcase, test_streams_and_graphs, 0, 2);
    tcase_add_test(tcase, test_rounds_in_a_graph);
    tcase_add_test(tcase, test_times_of_a_graph);
    tcase_add_test(tcase, test_graphs_that_fail);
    tcase_add_test_raise_signal(tcase, test_a_run_that_cannot_be_captured, SIGABRT);
    tcase_add_test(tcase, test_runs_that_are_not_enqueued);
    tcase_add_test(tcase, test_prologues_before_runs_are_enqueued);
    tcase_add_test(tcase, test_addresses);
    tcase_add_test(tcase, test_memory_of_another_gpu);
    tcase_add_test(tcase, test_no_driver);
    tcase_add_test(tcase, test_an_old_driver);
    tcase_add_test(tcase, test_a_gpu_lost_in_a_run);
    tcase_add_test(tcase, test_a_launch_that_fails_alone);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
