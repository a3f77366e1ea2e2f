/* Certificates: every golden program and random ones are certified and checked; a certificate that is altered anywhere in its argument
 * is refused. */
#include "tests/lib/test.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/egraph/certificate.h"
#include "core/egraph/optimize.h"
#include "tests/lib/gen_graph.h"
#include "tests/lib/gen_transformer.h"

static sx_ctx cx;
static const sx_device *device;
static sx_buf text;

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)2 << 30);
    sx_buf_init(&text, (size_t)64 << 20);
    ck_sx_ok(&cx, sx_device_find(&cx, SX_SPAN_LITERAL("x86-64-v4"), &device));
}

static void teardown(void)
{
    sx_buf_fini(&text);
    sx_ctx_fini(&cx);
}

static sx_graph *read_golden(const char *name)
{
    char path[512];
    sx_buf file;
    sx_graph *graph;
    (void)snprintf(path, sizeof(path), "%s/tests/golden/egraph/%s", SX_SOURCE_DIR, name);
    sx_buf_init(&file, 1 << 20);
    sx_test_read_file(path, &file);
    ck_sx_ok(&cx, sx_graph_parse(&cx, sx_buf_span(&file), &graph));
    sx_buf_fini(&file);
    return graph;
}

static bool has_fused(const sx_graph *graph)
{
    bool has = false;
    for (uint32_t i = 0; i < graph->node_count; i++) {
        has = has || graph->node[i].op == SX_OP_FUSED;
    }
    return has;
}

/* The certificate of what comes out, in `text`; false if none was found. */
static bool certify_as(const sx_graph *in, bool unfused)
{
    sx_optimize_options options = sx_optimize_defaults();
    sx_optimize_report report;
    sx_graph *out;
    sx_certificate found;
    sx_buf_clear(&text);
    options.with_certificate = true;
    options.unfused = unfused;
    ck_sx_ok(&cx, sx_optimize(&cx, in, device, &options, &out, &report));
    ck_assert(!unfused || !has_fused(out));
    if (report.unproved != NULL) {
        return false;
    }
    ck_sx_ok(&cx, sx_optimize_certificate(&cx, &report, &text));
    ck_sx_ok(&cx, sx_certificate_check(&cx, sx_buf_span(&text), &found));
    sx_key expected, key;
    ck_sx_ok(&cx, sx_graph_key(&cx, in, &expected));
    ck_sx_ok(&cx, sx_graph_key(&cx, found.input, &key));
    ck_assert_mem_eq(&key, &expected, sizeof(key));
    ck_sx_ok(&cx, sx_graph_key(&cx, out, &expected));
    ck_sx_ok(&cx, sx_graph_key(&cx, found.output, &key));
    ck_assert_mem_eq(&key, &expected, sizeof(key));
    return true;
}

/* Operations, then kernels in their place. */
static bool certify_if(const sx_graph *in)
{
    bool proved = has_fused(in) || certify_as(in, true);
    return certify_as(in, false) && proved;
}

static void certify(const sx_graph *in)
{
    ck_assert_msg(certify_if(in), "no certificate");
}

START_TEST(test_golden_programs)
{
    char path[512];
    (void)snprintf(path, sizeof(path), "%s/tests/golden/egraph", SX_SOURCE_DIR);
    DIR *folder = opendir(path);
    ck_assert_ptr_nonnull(folder);
    uint32_t count = 0;
    for (struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
        const char *dot = strrchr(entry->d_name, '.');
        if (dot != NULL && strcmp(dot, ".sx") == 0) {
            certify(read_golden(entry->d_name));
            count++;
        }
    }
    (void)closedir(folder);
    ck_assert_uint_ge(count, 12);
}
END_TEST

#define RANDOM_PROGRAMS 60
/* A value that reassociating rules make both 0 and -0 can be read either way: then no certificate may be found. */
#define UNPROVED_MAX 3

START_TEST(test_random_programs)
{
    uint64_t seed = sx_test_seed();
    sx_rng rng = {seed};
    uint32_t unproved = 0;
    for (uint32_t i = 0; i < RANDOM_PROGRAMS; i++) {
        sx_gen_options options = sx_gen_default();
        options.node_count = 8 + i % 24;
        unproved += certify_if(sx_gen_graph(&cx, &rng, &options)) ? 0 : 1;
    }
    ck_assert_uint_le(unproved, UNPROVED_MAX);
}
END_TEST

static const char *refused(const char *altered, size_t size)
{
    sx_ctx fresh;
    static char what[512];
    sx_certificate found;
    sx_ctx_init(&fresh, (size_t)1 << 30);
    sx_code code = sx_certificate_check(&fresh, (sx_span){(const uint8_t *)altered, size}, &found);
    (void)snprintf(what, sizeof(what), "%s", code == SX_OK ? "" : fresh.error.text);
    ck_assert(code == SX_OK || code == SX_INPUT);
    sx_ctx_fini(&fresh);
    return what;
}

/* Equal layers are proved once; the whole is put together from them, and not from others. */
START_TEST(test_layers)
{
    sx_transformer options = sx_transformer_default(6);
    sx_graph *in;
    ck_sx_ok(&cx, sx_transformer_make(&cx, &options, &in));
    certify(in);
    sx_certificate found;
    ck_sx_ok(&cx, sx_certificate_check(&cx, sx_buf_span(&text), &found));
    ck_assert_uint_gt(found.part_count, 1);
    sx_buf_put_u8(&text, 0);
    const char *uses = strstr((const char *)text.ptr, "\nuses ");
    ck_assert_ptr_nonnull(uses);
    char *use = strstr(uses, "use ");
    ck_assert_ptr_nonnull(use);
    for (uint32_t k = 0; k < 3; k++) {
        use = strstr(use + 1, "use ");
        ck_assert_ptr_nonnull(use);
    }
    ck_assert_str_eq(refused((const char *)text.ptr, text.len - 1), "");
    char *value = strstr(use, "parameter ") + strlen("parameter ");
    *value = *value == '2' ? '3' : '2'; /* the weights of another layer */
    ck_assert_ptr_nonnull(strstr(refused((const char *)text.ptr, text.len - 1), "certificate"));
}
END_TEST

/* The text with the n-th line after "steps" replaced (NULL: left out, with the count adjusted). */
static void alter_step(uint32_t n, const char *line, sx_buf *out)
{
    const char *all = (const char *)text.ptr;
    const char *steps = strstr(all, "\nsteps ") + 1;
    uint32_t count = (uint32_t)strtoul(steps + 6, NULL, 10);
    const char *at = strchr(steps, '\n') + 1;
    sx_buf_clear(out);
    sx_buf_put(out, all, (size_t)(steps - all));
    sx_buf_print(out, "steps %u\n", line == NULL ? count - 1 : count);
    for (uint32_t i = 0; *at != 0; i++) {
        const char *end = strchr(at, '\n') + 1;
        if (i != n) {
            sx_buf_put(out, at, (size_t)(end - at));
        } else if (line != NULL) {
            sx_buf_print(out, "%s\n", line);
        }
        at = end;
    }
}

/* Left out one at a time, no step of the slice can be missed: what is left does not prove the outputs equal, or a later step fails. */
START_TEST(test_every_step_counts)
{
    certify(read_golden("layer_norm_1.sx"));
    sx_buf_put_u8(&text, 0);
    sx_buf out;
    sx_buf_init(&out, (size_t)64 << 20);
    const char *steps = strstr((const char *)text.ptr, "\nsteps ") + 7;
    uint32_t count = (uint32_t)strtoul(steps, NULL, 10);
    ck_assert_uint_gt(count, 5);
    for (uint32_t i = 0; i < count; i++) {
        alter_step(i, NULL, &out);
        ck_assert_msg(strlen(refused((const char *)out.ptr, out.len)) > 0,
                      "step %u of %u is not needed", i + 1, count);
    }
    sx_buf_fini(&out);
}
END_TEST

START_TEST(test_altered_steps_are_refused)
{
    certify(read_golden("relu_matmul_bias.sx"));
    sx_buf_put_u8(&text, 0);
    sx_buf out;
    sx_buf_init(&out, (size_t)64 << 20);
    ck_assert_str_eq(refused((const char *)text.ptr, text.len - 1), "");
    static const struct {
        const char *line;
        const char *what;
    } wrong[] = {
        {"no-such-rule 0 1 2", "step 1 names no rule"},
        {"add-commute 0 999999 1", "its terms are not numbers of terms"},
        {"add-commute 0", "two terms are needed"},
        {"add-commute 0 1", "no nodes"},
        {"add-commute 0 1 0", "a node has another operation than the left side"},
        {"lift 0 1 0", "another number of nodes than the rule has"},
        {"lift 0 1 0 1", "the kernel after is not what the rule makes"},
    };
    for (size_t i = 0; i < SX_COUNT(wrong); i++) {
        alter_step(0, wrong[i].line, &out);
        const char *what = refused((const char *)out.ptr, out.len);
        ck_assert_msg(strstr(what, wrong[i].what) != NULL, "%s: '%s'", wrong[i].line, what);
    }
    sx_buf_fini(&out);
}
END_TEST

/* The programs are not those the argument is about: a constant changed in one of them. */
START_TEST(test_other_programs_are_refused)
{
    certify(read_golden("gelu_2.sx"));
    sx_buf_put_u8(&text, 0);
    for (uint32_t i = 0; i < 2; i++) {
        char *program = strstr((char *)text.ptr, i == 0 ? "input " : "\noutput ");
        ck_assert_ptr_nonnull(program);
        char *bias = strstr(program, i == 0 ? "0.70710677" : "0.707106769");
        ck_assert_ptr_nonnull(bias);
        bias[2] = '6';
        ck_assert_ptr_nonnull(strstr(refused((const char *)text.ptr, text.len - 1), "output 'y'"));
        bias[2] = '7';
        ck_assert_str_eq(refused((const char *)text.ptr, text.len - 1), "");
    }
}
END_TEST

/* Any byte changed, any cut: refused or still a proof, never a crash. */
START_TEST(test_damage)
{
    certify(read_golden("softmax.sx"));
    uint64_t seed = sx_test_seed();
    sx_rng rng = {seed};
    char *out = malloc(text.len);
    uint32_t refusals = 0;
    for (uint32_t i = 0; i < 300; i++) {
        memcpy(out, text.ptr, text.len);
        size_t size = i % 3 == 0 ? sx_rng_below(&rng, text.len) : text.len;
        out[sx_rng_below(&rng, text.len)] = (char)sx_rng_below(&rng, 256);
        refusals += strlen(refused(out, size)) > 0 ? 1 : 0;
    }
    ck_assert_uint_gt(refusals, 150);
    free(out);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("core.egraph.certificate");
    TCase *cases = tcase_create("certificate");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_set_timeout(cases, 60);
    tcase_add_test(cases, test_golden_programs);
    tcase_add_test(cases, test_random_programs);
    tcase_add_test(cases, test_layers);
    tcase_add_test(cases, test_every_step_counts);
    tcase_add_test(cases, test_altered_steps_are_refused);
    tcase_add_test(cases, test_other_programs_are_refused);
    tcase_add_test(cases, test_damage);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
