/* Certificates: every golden program and random ones are certified and checked; a certificate that is altered
 * anywhere in its argument is refused. */
#include "tests/lib/test.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/proof/certificate.h"
#include "core/optimize/optimize.h"
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

/* The certificate of what comes out, in `text`; why there is none, or NULL. */
static const char *certify_as(const sx_graph *in, bool unfused)
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
        return report.unproved;
    }
    ck_sx_ok(&cx, sx_optimize_certificate(&cx, &report, &text));
    if (sx_certificate_check(&cx, sx_buf_span(&text), &found) != SX_OK) {
        return cx.error.text;
    }
    sx_key expected, key;
    ck_sx_ok(&cx, sx_graph_key(&cx, in, &expected));
    ck_sx_ok(&cx, sx_graph_key(&cx, found.input, &key));
    ck_assert_mem_eq(&key, &expected, sizeof(key));
    ck_sx_ok(&cx, sx_graph_key(&cx, out, &expected));
    ck_sx_ok(&cx, sx_graph_key(&cx, found.output, &key));
    ck_assert_mem_eq(&key, &expected, sizeof(key));
    return NULL;
}

/* Operations, then kernels in their place. */
static const char *certify_if(const sx_graph *in)
{
    const char *why = has_fused(in) ? NULL : certify_as(in, true);
    return why != NULL ? why : certify_as(in, false);
}

static void certify(const sx_graph *in)
{
    const char *why = certify_if(in);
    ck_assert_msg(why == NULL, "%s", why);
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

/* How many programs of each kind; the slow run asks for more. */
static uint32_t random_programs(uint32_t usual)
{
    const char *asked = getenv("SX_PROGRAMS");
    return asked != NULL ? (uint32_t)strtoul(asked, NULL, 10) : sx_test_trials(usual);
}

/* Programs full of constants that cancel, absorb and round: reassociating rules make one value both 0 and -0,
 * or two neighbouring numbers, and the argument must still be found. */
static sx_graph *make_constants(sx_rng *rng, uint32_t count)
{
    static const char *const value[] = {"0", "-0", "1", "-1", "0.1", "0.2", "0.3", "3", "0.5"};
    static const char *const unary[] = {"negate", "sqrt", "reshape", "abs", "relu"};
    static const char *const binary[] = {"add", "add", "subtract", "multiply", "divide", "maximum"};
    uint32_t constants = 2 + (uint32_t)sx_rng_below(rng, 4);
    uint32_t made = 0;
    sx_graph *graph;
    sx_buf_clear(&text);
    sx_buf_put_text(&text, "sx 1\ngraph \"constants\" {\n"
                           "  %0 = parameter {name = \"x\", weight = 0} : f32[6]\n"
                           "  %1 = parameter {name = \"w\", weight = 1} : f32[6]\n");
    for (made = 2; made < 2 + constants; made++) {
        sx_buf_print(&text, "  %%%u = constant {data = %s} : f32[6]\n", made,
                     value[sx_rng_below(rng, SX_COUNT(value))]);
    }
    for (uint32_t i = 0; i < count; i++, made++) {
        uint32_t a = (uint32_t)sx_rng_below(rng, made);
        uint32_t b = (uint32_t)sx_rng_below(rng, made);
        if (sx_rng_below(rng, 5) == 0) {
            sx_buf_print(&text, "  %%%u = %s(%%%u) : f32[6]\n", made,
                         unary[sx_rng_below(rng, SX_COUNT(unary))], a);
        } else {
            sx_buf_print(&text, "  %%%u = %s(%%%u, %%%u) : f32[6]\n", made,
                         binary[sx_rng_below(rng, SX_COUNT(binary))], a, b);
        }
    }
    sx_buf_print(&text, "  return %%%u as \"y\", %%%u as \"z\"\n}\n", made - 1, made - 2);
    ck_sx_ok(&cx, sx_graph_parse(&cx, sx_buf_span(&text), &graph));
    sx_buf_clear(&text);
    return graph;
}

static void certify_many(bool constants, uint32_t count)
{
    uint64_t seed = sx_test_seed();
    uint32_t unproved = 0;
    for (uint32_t i = 0; i < count; i++) {
        sx_rng rng = {seed + i};
        sx_gen_options options = sx_gen_default();
        options.node_count = 8 + (uint32_t)sx_rng_below(&rng, 24);
        options.sums = (seed + i) % 3 == 0;
        teardown();
        setup();
        const char *why =
            certify_if(constants ? make_constants(&rng, 6 + (uint32_t)sx_rng_below(&rng, 24))
                                 : sx_gen_graph(&cx, &rng, &options));
        if (why != NULL) {
            unproved++;
            (void)printf("program %u (seed %llu): %s\n", i, (unsigned long long)(seed + i), why);
        }
    }
    (void)printf("%u of %u programs have no certificate\n", unproved, count);
    (void)fflush(stdout);
    ck_assert_uint_eq(unproved, 0);
}

START_TEST(test_random_programs)
{
    certify_many(false, random_programs(60));
}
END_TEST

/* Programs once not certified: one of several equal contractions, a grouped convolution that came out as a
 * kernel, a number that the checker had lost among its neighbours, the cosine of a product of 1e30. */
START_TEST(test_random_programs_once_unproved)
{
    static const uint64_t seed[] = {575, 600977, 1000553, 1795922844567858};
    for (size_t i = 0; i < SX_COUNT(seed); i++) {
        sx_rng rng = {seed[i]};
        sx_gen_options options = sx_gen_default();
        options.node_count = 8 + (uint32_t)sx_rng_below(&rng, 24);
        teardown();
        setup();
        certify(sx_gen_graph(&cx, &rng, &options));
    }
}
END_TEST

START_TEST(test_constants)
{
    certify_many(true, random_programs(60));
}
END_TEST

/* Programs in which a rule read another number of a class than its checker did, or one of two equal terms was
 * passed over; in the last one a class is more numbers than are kept. */
START_TEST(test_constants_once_unproved)
{
    static const uint64_t seed[] = {100,  5255, 5890, 7180, 7271,   7484,
                                    7533, 8132, 8273, 8817, 301757, 1795389557285976};
    size_t count = getenv("SX_PROGRAMS") != NULL
                       ? SX_COUNT(seed)
                       : SX_COUNT(seed) - 2; /* the last ones take seconds */
    for (size_t i = 0; i < count; i++) {
        sx_rng rng = {seed[i]};
        teardown();
        setup();
        certify(make_constants(&rng, 6 + (uint32_t)sx_rng_below(&rng, 24)));
    }
}
END_TEST

static const char *refused(const char *altered, size_t size)
{
    sx_ctx fresh;
    static char what[SX_ERROR_TEXT_MAX];
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

/* Left out one at a time, no step of the slice can be missed: what is left does not prove the outputs equal,
 * or a later step fails. */
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

/* 0.3 - 0.3 is 0, and negated twice over it is -0 as well: either may come out, nothing else. */
START_TEST(test_number_of_several)
{
    static const char program[] = "sx 1\ngraph \"several\" {\n"
                                  "  %0 = parameter {name = \"x\", weight = 0} : f32[6]\n"
                                  "  %1 = constant {data = 0.3} : f32[6]\n"
                                  "  %2 = subtract(%1, %1) : f32[6]\n"
                                  "  %3 = relu(%2) : f32[6]\n"
                                  "  %4 = negate(%2) : f32[6]\n"
                                  "  %5 = subtract(%4, %2) : f32[6]\n"
                                  "  %6 = maximum(%3, %5) : f32[6]\n"
                                  "  %7 = constant {data = 2} : f32[6]\n"
                                  "  %8 = subtract(%7, %6) : f32[6]\n"
                                  "  %9 = multiply(%0, %8) : f32[6]\n"
                                  "  return %9 as \"y\", %6 as \"z\"\n}\n";
    sx_graph *graph;
    ck_sx_ok(&cx, sx_graph_parse(&cx, sx_span_of(program), &graph));
    certify(graph);
    sx_buf_put_u8(&text, 0);
    char *output = strstr((char *)text.ptr, "\noutput ");
    char *end = strstr(output + 1, "terms ");
    uint32_t altered = 0;
    for (char *at = output; (at = strpbrk(at, "02")) != NULL && at < end; at++) {
        bool number = at[-1] == ' ' || at[-1] == '-';
        bool whole = at[1] == '}' || at[1] == ',' || at[1] == ']';
        if (number && whole && memcmp(at - 7, "[imm", 4) != 0) {
            char was = *at;
            *at = '7';
            altered++;
            ck_assert_str_ne(refused((const char *)text.ptr, text.len - 1), "");
            *at = was;
        }
    }
    ck_assert_uint_gt(altered, 0);
    ck_assert_str_eq(refused((const char *)text.ptr, text.len - 1), "");
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

/* At every shortage of memory the reader says so, and takes no right certificate for a wrong one. */
START_TEST(test_short_of_memory)
{
    enum { SWEEP = 150 };
    sx_ctx fresh;
    sx_certificate found;
    certify(read_golden("layer_norm_1.sx"));
    sx_ctx_init(&fresh, (size_t)1 << 30);
    ck_sx_ok(&fresh, sx_certificate_check(&fresh, sx_buf_span(&text), &found));
    size_t enough = fresh.arena.used_bytes;
    sx_ctx_fini(&fresh);
    uint32_t short_of = 0;
    for (size_t k = 0; k <= SWEEP; k++) {
        sx_ctx_init(&fresh, enough / SWEEP * k);
        sx_code code = sx_certificate_check(&fresh, sx_buf_span(&text), &found);
        ck_assert_msg(code == SX_OK || code == SX_NOMEM, "%zu bytes: %s: %s", enough / SWEEP * k,
                      sx_code_name(code), fresh.error.text);
        short_of += code == SX_NOMEM ? 1 : 0;
        sx_ctx_fini(&fresh);
    }
    ck_assert_uint_gt(short_of, SWEEP / 2);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("core.proof.certificate");
    TCase *cases = tcase_create("certificate");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_set_timeout(cases, 400);
    tcase_add_test(cases, test_golden_programs);
    tcase_add_test(cases, test_layers);
    tcase_add_test(cases, test_every_step_counts);
    tcase_add_test(cases, test_altered_steps_are_refused);
    tcase_add_test(cases, test_other_programs_are_refused);
    tcase_add_test(cases, test_number_of_several);
    tcase_add_test(cases, test_damage);
    tcase_add_test(cases, test_short_of_memory);
    suite_add_tcase(suite, cases);
    TCase *random = tcase_create("random");
    tcase_add_checked_fixture(random, setup, teardown);
    tcase_add_test(random, test_random_programs);
    tcase_add_test(random, test_random_programs_once_unproved);
    suite_add_tcase(suite, random);
    TCase *constants = tcase_create("constants");
    tcase_add_checked_fixture(constants, setup, teardown);
    tcase_add_test(constants, test_constants);
    tcase_add_test(constants, test_constants_once_unproved);
    suite_add_tcase(suite, constants);
    return sx_test_main(suite);
}
