/* Descriptions of devices: the rows of the table against vendor figures, text that reads back, and what is refused. */
#include "tests/lib/test.h"

#include <stdio.h>
#include <string.h>

#include "core/base/rng.h"
#include "core/cost/cost.h"

static sx_ctx cx;

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)1 << 26);
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

static const sx_device *row(const char *name)
{
    const sx_device *device;
    ck_sx_ok(&cx, sx_device_find(&cx, sx_span_of(name), &device));
    return device;
}

/* TFLOP/s of data sheets, dense; what adds in f32, f64 or i32. */
START_TEST(test_vendor_rates)
{
    static const struct {
        const char *name;
        double f32, f64, f64_matrix, bf16, fp8, i8;
    } sheet[] = {{"a100", 19.5, 9.7, 19.5, 312, 312, 624},
                 {"h100", 67, 33.5, 67, 989.4, 1978.9, 1978.9},
                 {"h200", 67, 33.5, 67, 989.4, 1978.9, 1978.9},
                 {"b200", 75, 37, 37, 2250, 4500, 4500},
                 {"rtx3090", 35.6, 0.556, 0.556, 71, 71, 284},
                 {"rtx4090", 82.6, 1.29, 1.29, 165.2, 330.3, 660.6}};
    for (uint32_t i = 0; i < SX_COUNT(sheet); i++) {
        const sx_device *d = row(sheet[i].name);
        bool has_fp8 = sheet[i].fp8 > sheet[i].bf16;
        const double rate[] = {sx_device_rate(d, SX_F32, true),    sx_device_rate(d, SX_F64, false),
                               sx_device_rate(d, SX_F64, true),    sx_device_rate(d, SX_BF16, true),
                               sx_device_rate(d, SX_F8E4M3, true), sx_device_rate(d, SX_I8, true)};
        const double wanted[] = {sheet[i].f32,
                                 sheet[i].f64,
                                 sheet[i].f64_matrix,
                                 sheet[i].bf16,
                                 has_fp8 ? sheet[i].fp8 : sheet[i].f32,
                                 sheet[i].i8};
        for (uint32_t k = 0; k < SX_COUNT(rate); k++) {
            ck_assert_msg(rate[k] > 990 * wanted[k] && rate[k] < 1010 * wanted[k],
                          "%s, rate %u: %g GFLOP/s, the data sheet has %g TFLOP/s", d->name, k,
                          rate[k], wanted[k]);
        }
        /* Beside contractions a narrow float is computed in f32. */
        ck_assert_double_eq(sx_device_rate(d, SX_BF16, false), sx_device_rate(d, SX_F32, false));
    }
    ck_assert_double_eq(sx_device_rate(row("x86-64-v4"), SX_F32, true), 2.0 * 8 * 16 * 2 * 2.6);
    ck_assert_double_eq(sx_device_rate(row("x86-64-v4"), SX_BF16, true), 2.0 * 8 * 16 * 2 * 2.6);
}
END_TEST

/* Every value of the table says where it comes from (device_sources.def), and every source is of a value. */
START_TEST(test_sources)
{
    for (uint32_t i = 0; i < sx_device_count(); i++) {
        sx_device_value value;
        uint32_t count = 0;
        for (; sx_device_value_of(sx_device_at(i), count, &value); count++) {
            ck_assert_msg(value.number <= 0 || strcmp(value.source, "not told") != 0,
                          "%s: %s has no row in device_sources.def", sx_device_at(i)->name,
                          value.words);
        }
        ck_assert_uint_ge(count, 30);
    }
    static const struct {
        const char *device, *words, *value, *source;
    } known[] = {{"h200", "memory bandwidth", "4.8 TB/s", "data sheet"},
                 {"a100", "l2 bandwidth", "64 GB/s", "A100 white paper: 5120 bytes in a cycle"},
                 {"rtx4090", "link latency", "1.9 us", "NCCL, src/graph/tuning.cc: PCIe"},
                 {"x86-64-v4", "clock", "2.6 GHz", "chosen: under vector load"}};
    for (uint32_t k = 0; k < SX_COUNT(known); k++) {
        bool found = false;
        sx_device_value value;
        for (uint32_t v = 0; sx_device_value_of(row(known[k].device), v, &value); v++) {
            if (strcmp(value.words, known[k].words) == 0) {
                ck_assert_str_eq(value.value, known[k].value);
                ck_assert_str_eq(value.source, known[k].source);
                found = true;
            }
        }
        ck_assert(found);
    }
    sx_device own = *row("h200");
    sx_device_value value;
    own.name = "h200+tf32"; /* has the constants of its row */
    ck_assert(sx_device_value_of(&own, 0, &value));
    ck_assert_str_eq(value.source, "data sheet: multiprocessors");
    own.name = "own";
    ck_assert(sx_device_value_of(&own, 0, &value));
    ck_assert_str_eq(value.source, "its description");
}
END_TEST

/* Registers of a thread that assemblers grant (-maxrregcount, launch bounds), and blocks that fit a core. */
START_TEST(test_laws_of_blocks)
{
    const sx_device *h100 = row("h100");
    static const struct {
        uint32_t threads, registers;
    } grant[] = {{32, 255},  {256, 255}, {288, 224}, {384, 168},
                 {416, 152}, {512, 128}, {1024, 64}, {1025, 0}};
    for (uint32_t i = 0; i < SX_COUNT(grant); i++) {
        ck_assert_uint_eq(sx_device_thread_registers(h100, grant[i].threads), grant[i].registers);
    }
    ck_assert_uint_eq(sx_device_resident_blocks(h100, 128, 32, 0), 16);     /* threads */
    ck_assert_uint_eq(sx_device_resident_blocks(h100, 32, 32, 0), 32);      /* blocks */
    ck_assert_uint_eq(sx_device_resident_blocks(h100, 256, 128, 0), 2);     /* registers */
    ck_assert_uint_eq(sx_device_resident_blocks(h100, 256, 64, 100000), 2); /* shared memory */
    ck_assert_uint_eq(sx_device_resident_blocks(h100, 288, 154, 214016), 1);
    ck_assert_uint_eq(sx_device_resident_blocks(h100, 288, 154, 263168), 0); /* beyond a block's */
    ck_assert_uint_eq(sx_device_resident_blocks(h100, 288, 225, 1024), 0);   /* registers */
    ck_assert_uint_eq(sx_device_resident_blocks(row("rtx4090"), 768, 40, 0), 2);
}
END_TEST

/* ---- text ---- */

static const char *printed(const sx_device *device, const char *name)
{
    sx_buf text;
    sx_buf_init(&text, 65536);
    sx_device renamed = *device;
    renamed.name = name;
    sx_device_print(&renamed, &text);
    const char *copy = sx_alloc_text(&cx, sx_buf_span(&text));
    ck_assert_ptr_nonnull(copy);
    sx_buf_fini(&text);
    return copy;
}

static void check_equal(const sx_device *a, const sx_device *b)
{
#define SX_DEVICE_FIELD(member, type, words, unit, least, most, need, help) \
    ck_assert_msg(!(a->member < b->member) && !(a->member > b->member), "%s: " words, a->name);
#include "core/cost/device_fields.def"
    ck_assert_str_eq(a->text, b->text);
    ck_assert_uint_eq(a->rate_count, b->rate_count);
    for (uint32_t i = 0; i < a->rate_count; i++) {
        ck_assert_int_eq(a->rate[i].dtype, b->rate[i].dtype);
        ck_assert_int_eq(a->rate[i].unit, b->rate[i].unit);
        ck_assert_double_eq(a->rate[i].flops_per_ns, b->rate[i].flops_per_ns);
    }
    ck_assert_int_eq(a->target == NULL, b->target == NULL);
    ck_assert(a->target == NULL || strcmp(a->target, b->target) == 0);
}

START_TEST(test_rows_read_back)
{
    for (uint32_t i = 0; i < sx_device_count(); i++) {
        const sx_device *back;
        const char *text = printed(sx_device_at(i), "mine");
        ck_sx_ok(&cx, sx_device_check(&cx, sx_device_at(i)));
        ck_sx_ok(&cx, sx_device_parse(&cx, sx_span_of(text), &back));
        check_equal(sx_device_at(i), back);
        ck_assert_str_eq(printed(back, "mine"), text);
        ck_assert(sx_device_class(back) == sx_device_class(sx_device_at(i)) ||
                  back->target == NULL);
    }
}
END_TEST

/* Values drawn over the whole of their ranges read back to the same bits. */
START_TEST(test_random_values_read_back)
{
    sx_rng rng = {sx_test_seed()};
    for (uint32_t trial = 0; trial < 300; trial++) {
        sx_device d = *row("h100");
        d.ghz = 0.1 + 9 * (double)sx_rng_below(&rng, 1u << 30) / (1u << 30);
        d.memory_bytes_per_ns = 0.1 + 1e4 * (double)sx_rng_below(&rng, 1u << 30) / 1e9;
        d.l2_bytes = 1024 + (double)sx_rng_below(&rng, 1u << 29);
        d.launch_ns = 1 + (double)sx_rng_below(&rng, 1u << 20) / 7;
        d.link_ns = d.launch_ns > 1e6 ? 5 : d.launch_ns * 3;
        d.launch_ns = d.launch_ns > 1e6 ? 1e6 : d.launch_ns;
        d.rate[0].flops_per_ns = 1 + (double)sx_rng_below(&rng, 1u << 30) / 3;
        const sx_device *back;
        const char *text = printed(&d, "mine");
        ck_sx_ok(&cx, sx_device_parse(&cx, sx_span_of(text), &back));
        check_equal(&d, back);
    }
}
END_TEST

/* `text` with the first line that begins with `line` replaced; `by` NULL: left out; line NULL: appended. */
static const char *edited(const char *text, const char *line, const char *by)
{
    sx_buf out;
    sx_buf_init(&out, 65536);
    bool done = false;
    for (const char *p = text; *p != '\0';) {
        size_t length = strcspn(p, "\n") + 1;
        bool hit = !done && line != NULL && strncmp(p, line, strlen(line)) == 0;
        done = done || hit;
        if (!hit) {
            sx_buf_put(&out, p, length);
        } else if (by != NULL) {
            sx_buf_print(&out, "%s\n", by);
        }
        p += length;
    }
    ck_assert(done || line == NULL);
    if (line == NULL) {
        sx_buf_print(&out, "%s\n", by);
    }
    const char *copy = sx_alloc_text(&cx, sx_buf_span(&out));
    sx_buf_fini(&out);
    return copy;
}

START_TEST(test_refused)
{
    static const struct {
        const char *line, *by, *why;
    } fault[] = {
        {"memory bandwidth", NULL, "memory bandwidth is missing: 100 MB/s to 100 TB/s wanted"},
        {"memory bandwidth", "memory bandwidth 0 GB/s", "memory bandwidth 0: 100 MB/s to 100 TB/s"},
        {"memory bandwidth", "memory bandwidth 3352", "unit \"\": one of MB/s GB/s TB/s wanted"},
        {"memory bandwidth", "memory bandwidth 3352 GFLOP/s", "unit \"GFLOP/s\""},
        {"memory bandwidth", "memory bandwidth -3 GB/s", "not a decimal number: \"-3\""},
        {"memory bandwidth", "memory bandwidth nan GB/s", "not a decimal number: \"nan\""},
        {"memory bandwidth", "memory bandwidth 1e999 GB/s", "not a decimal number"},
        {"memory bandwidth", "memory bandwidth 0x10 GB/s", "not a decimal number"},
        {"memory bandwidth", "memory bandwidth 1 GB/s 2", "a number and a unit wanted: \"2\""},
        {"memory bandwidth", "memory bandwith 1 GB/s", "no value of a device: \"memory bandwith"},
        {NULL, "memory bandwidth 1 GB/s", "memory bandwidth stands twice"},
        {"cores", "cores 0", "cores 0: 1 to 65536 wanted"},
        {"cores", "cores 1.5", "cores 1.5: a whole number from 1 to 65536 wanted"},
        {"cores", "cores 99999", "cores 99999: 1 to 65536 wanted"},
        {"cores", NULL, "cores is missing: 1 to 65536 wanted"},
        {"lanes", "lanes 24", "lanes 24: a power of two wanted"},
        {"clock", "clock 1980 MHz 1", "a number and a unit wanted"},
        {"clock", "clock 19.8 GHz", "clock 19.8: 100 MHz to 10 GHz wanted"},
        {"device", NULL, "\"device NAME\" wanted first"},
        {"device", "device H100", "small letters"},
        {"device", "device h100", "device h100: a device of this name is known already"},
        {"target", NULL, "target is missing"},
        {"target", "target x y", "small letters"},
        {NULL, "rate f16 gpu 3 TFLOP/s", "vector, tensor or amx wanted: \"gpu\""},
        {NULL, "rate f17 tensor 3 TFLOP/s", "an element type wanted: \"f17\""},
        {NULL, "rate f16 tensor 3 TFLOP/s", "stands twice: \"f16\""},
        {NULL, "rate f16 amx 3 GB/s", "unit \"GB/s\""},
        {NULL, "rate f16 amx 1e9 PFLOP/s", "wanted"},
        {NULL, "rate f32 vector 989 TFLOP/s", "multiply-adds a cycle at 1.98 GHz make"},
        {"threads per block", NULL, "the laws of blocks are given all or not at all"},
        {"register step", NULL, "register step is missing: 1 to 256 wanted"},
        {"register step", "register step 7", "register step 7: a power of two wanted"},
        {"threads per block", "threads per block 33", "33: a multiple of its 32 lanes wanted"},
        {"threads per block", "threads per block 1", "1: a multiple of its 32 lanes wanted"},
        {"shared per block", "shared per block 300 KiB", "each at most the next"},
        {"l2 latency", "l2 latency 20 cycles", "l2 latency 20, memory latency 479: each at most"},
        {"memory latency", "memory latency 200 cycles",
         "memory latency 200: each at most the next"},
        {"matrix share", "matrix share 1.5", "matrix share 1.5: 0.01"},
        {"matrix latency", "matrix latency 33", "unit \"\""},
        {"threads per block", "threads per block 4096", "threads per block 4096, of 2048 per core"},
    };
    const char *text = printed(row("h100"), "mine");
    for (uint32_t i = 0; i < SX_COUNT(fault); i++) {
        const sx_device *device;
        const char *bad = edited(text, fault[i].line, fault[i].by);
        ck_sx_fails(&cx, sx_device_parse(&cx, sx_span_of(bad), &device), SX_INPUT, fault[i].why);
        sx_ctx_reset_error(&cx);
    }
    const sx_device *device;
    ck_sx_ok(&cx, sx_device_parse(&cx, sx_span_of(edited(text, NULL, " # a comment")), &device));
    ck_sx_ok(&cx, sx_device_parse(&cx, sx_span_of(edited(text, "memory capacity", NULL)), &device));
}
END_TEST

/* Each value that is required is asked for by name when its line is missing; the others may be left out. */
START_TEST(test_each_missing_value)
{
    const char *text = printed(row("x86-64-v4"), "mine");
    enum { REQUIRED, OPTIONAL, BLOCK };
    static const struct {
        const char *words;
        int need;
    } value[] = {
#define SX_DEVICE_FIELD(member, type, words, unit, least, most, need, help) {words, need},
#include "core/cost/device_fields.def"
    };
    uint32_t required = 0;
    for (uint32_t i = 0; i < SX_COUNT(value); i++) {
        const sx_device *device;
        char line[64], why[96];
        (void)snprintf(line, sizeof(line), "\n%s ", value[i].words);
        if (strstr(text, line) == NULL) {
            ck_assert_int_ne(value[i].need, REQUIRED);
            continue;
        }
        (void)snprintf(why, sizeof(why), "%s is missing: ", value[i].words);
        sx_code code = sx_device_parse(&cx, sx_span_of(edited(text, line + 1, NULL)), &device);
        ck_assert_msg((code == SX_OK) == (value[i].need == OPTIONAL), "%s", value[i].words);
        ck_assert(code == SX_OK || strstr(cx.error.text, why) != NULL);
        required += code != SX_OK;
        sx_ctx_reset_error(&cx);
    }
    ck_assert_uint_ge(required, 12);
}
END_TEST

/* Truncated at every byte: refused, or read as what is left says. */
START_TEST(test_cut_anywhere)
{
    const char *text = printed(row("h100"), "mine");
    size_t size = strlen(text), accepted = 0;
    for (size_t cut = 0; cut < size; cut++) {
        const sx_device *device;
        sx_code code = sx_device_parse(&cx, (sx_span){(const uint8_t *)text, cut}, &device);
        ck_assert(code == SX_OK || code == SX_INPUT);
        accepted += code == SX_OK;
        sx_ctx_reset_error(&cx);
    }
    ck_assert_uint_lt(accepted, size / 2);
}
END_TEST

/* docs/DEVICES.md lists every value with its range, and its example is a device. */
START_TEST(test_document)
{
    sx_buf page;
    sx_buf_init(&page, (size_t)1 << 20);
    sx_test_read_file(SX_SOURCE_DIR "/docs/DEVICES.md", &page);
    sx_buf_put_u8(&page, 0);
    const char *text = (const char *)page.ptr;
#define SX_DEVICE_FIELD(member, type, words, unit, least, most, need, help)              \
    ck_assert_msg(strstr(text, "| `" words "` |") != NULL, "no row of " words);          \
    ck_assert_msg(strstr(text, "| " #least " to " #most) != NULL, "no range of " words); \
    ck_assert_msg(strstr(text, "| " help " |") != NULL, "no meaning of " words);
#include "core/cost/device_fields.def"
    sx_buf example;
    sx_buf_init(&example, (size_t)1 << 16);
    const char *line = strstr(text, "    device my-server\n");
    ck_assert_ptr_nonnull(line);
    while (strncmp(line, "    ", 4) == 0) {
        size_t length = strcspn(line, "\n") + 1;
        sx_buf_put(&example, line, length);
        line += length;
    }
    const sx_device *device;
    ck_sx_ok(&cx, sx_device_parse(&cx, sx_buf_span(&example), &device));
    ck_assert_uint_eq(device->cores, 32);
    ck_assert_double_eq(device->l2_bytes, 2 << 20);
    sx_buf_fini(&example);
    sx_buf_fini(&page);
}
END_TEST

/* ---- prices ---- */

static sx_cost dot_of(const sx_device *device, sx_dtype dtype)
{
    sx_type input[2] = {{.dtype = dtype, .rank = 2}, {.dtype = dtype, .rank = 2}};
    for (uint32_t d = 0; d < 2; d++) {
        input[0].dim[d] = input[1].dim[d] = sx_dim_of(4096);
    }
    sx_attr attr = {.present = SX_A(lhs_contract) | SX_A(rhs_contract)};
    attr.lhs_contract = (sx_ints){1, {1}};
    attr.rhs_contract = (sx_ints){1, {0}};
    sx_cost cost;
    ck_sx_ok(&cx, sx_cost_node(&cx, device, NULL, 0, SX_OP_DOT_GENERAL, &attr, input, 2, &input[0],
                               &cost));
    return cost;
}

/* A large product is as fast as the rate for its type says. */
START_TEST(test_prices_by_type)
{
    const sx_device *h100 = row("h100"), *server = row("x86-64-v4");
    double flops = 2.0 * 4096 * 4096 * 4096;
    ck_assert_double_eq_tol(dot_of(h100, SX_BF16).floor_ns, flops / 989400, 1);
    ck_assert_double_eq_tol(dot_of(h100, SX_F8E4M3).floor_ns, flops / 1978900, 1);
    ck_assert_double_eq_tol(dot_of(h100, SX_F64).floor_ns, flops / 66900, 1);
    ck_assert_double_eq_tol(dot_of(h100, SX_F32).floor_ns, flops / 66900, 0.01 * flops / 66900);
    ck_assert_double_eq_tol(dot_of(server, SX_F64).floor_ns, flops / 665.6, 1);
    ck_assert_double_eq_tol(dot_of(server, SX_BF16).floor_ns, flops / 1331.2, 1);
    sx_device amx = *server;
    amx.rate[amx.rate_count++] = (sx_rate){SX_BF16, SX_UNIT_AMX, 18000};
    ck_assert_double_eq_tol(dot_of(&amx, SX_BF16).floor_ns, flops / 18000, 1);
    ck_assert_double_eq_tol(dot_of(&amx, SX_F32).floor_ns, flops / 1331.2, 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("core.cost.device");
    TCase *cases = tcase_create("device");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, test_vendor_rates);
    tcase_add_test(cases, test_sources);
    tcase_add_test(cases, test_laws_of_blocks);
    tcase_add_test(cases, test_rows_read_back);
    tcase_add_test(cases, test_random_values_read_back);
    tcase_add_test(cases, test_refused);
    tcase_add_test(cases, test_each_missing_value);
    tcase_add_test(cases, test_cut_anywhere);
    tcase_add_test(cases, test_document);
    tcase_add_test(cases, test_prices_by_type);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
