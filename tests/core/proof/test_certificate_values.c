/* What a certificate claims, evaluated: programs and steps that differ are refused, also where nothing else is
 * asked. */
#include <dirent.h>

#include "core/proof/certificate_eval.h"
#include "core/proof/certificate_read.h"
#include "tests/core/optimize/optimized.h"

static sx_buf text;

static void put_program(const char *name, const char *program)
{
    sx_buf_print(&text, "%s %zu\n%s", name, strlen(program), program);
}

/* A certificate of one part. */
static void write_certificate(const char *input, const char *output, const char *terms,
                              const char *step)
{
    sx_buf_clear(&text);
    sx_buf_put_text(&text, "symplex-proof 1\nparts 1\npart proved\n");
    put_program("input", input);
    put_program("output", output);
    put_program("terms", terms);
    sx_buf_print(&text, "steps 1\n%s\nend\n", step);
}

static sx_certificate found;

static uint64_t work = SX_PROOF_WORK;

static sx_code ask(uint32_t asked, char *why, size_t size)
{
    sx_ctx fresh;
    sx_ctx_init(&fresh, (size_t)1 << 30);
    sx_code code = sx_proof_read(&fresh, sx_buf_span(&text), asked, work, &found);
    (void)snprintf(why, size, "%s", code == SX_OK ? "" : fresh.error.text);
    sx_ctx_fini(&fresh);
    return code;
}

#define X "%0 = parameter {name = \"x\", weight = 0} : f32[4]\n"
#define P(body) "sx 1\ngraph \"p\" {\n" X body "\n}\n"

/* Steps that no rule makes, as a wrong row of the table would let them pass: without the check of steps only
 * values can refuse. */
START_TEST(test_wrong_steps_are_refused_by_values)
{
    static const struct {
        const char *left, *right, *terms, *step;
    } wrong[] = {
        /* sqrt(x x) as sqrt(-(x x)): NaN for every number */
        {P("%1 = multiply(%0, %0) : f32[4]\n%2 = sqrt(%1) : f32[4]\nreturn %2 as \"y\""),
         P("%1 = multiply(%0, %0) : f32[4]\n%2 = negate(%1) : f32[4]\n%3 = sqrt(%2) : f32[4]\n"
           "return %3 as \"y\""),
         P("%1 = multiply(%0, %0) : f32[4]\n%2 = sqrt(%1) : f32[4]\n%3 = negate(%1) : f32[4]\n"
           "%4 = sqrt(%3) : f32[4]\nreturn %2 as \"y\""),
         "square-root 2 4 2 1"},
        /* the other infinity */
        {P("%1 = constant {data = inf} : f32[4]\n%2 = add(%0, %1) : f32[4]\nreturn %2 as \"y\""),
         P("%1 = constant {data = inf} : f32[4]\n%2 = subtract(%0, %1) : f32[4]\n"
           "return %2 as \"y\""),
         P("%1 = constant {data = inf} : f32[4]\n%2 = add(%0, %1) : f32[4]\n"
           "%3 = subtract(%0, %1) : f32[4]\nreturn %2 as \"y\""),
         "add-negate 2 3 2 1"},
        /* a quotient by zero where there was none: the programs are not compared, the step is */
        {P("return %0 as \"y\""),
         P("%1 = subtract(%0, %0) : f32[4]\n%2 = divide(%0, %1) : f32[4]\nreturn %2 as \"y\""),
         P("%1 = subtract(%0, %0) : f32[4]\n%2 = divide(%0, %1) : f32[4]\nreturn %0 as \"y\""),
         "divide-one 0 2 0"},
        /* operands exchanged */
        {P("%1 = exponential(%0) : f32[4]\n%2 = subtract(%0, %1) : f32[4]\nreturn %2 as \"y\""),
         P("%1 = exponential(%0) : f32[4]\n%2 = subtract(%1, %0) : f32[4]\nreturn %2 as \"y\""),
         P("%1 = exponential(%0) : f32[4]\n%2 = subtract(%0, %1) : f32[4]\n"
           "%3 = subtract(%1, %0) : f32[4]\nreturn %2 as \"y\""),
         "add-commute 2 3 2"},
        /* one element of four */
        {P("%1 = reverse(%0) {dims = [0]} : f32[4]\n%2 = add(%0, %1) : f32[4]\n"
           "return %2 as \"y\""),
         P("%1 = slice(%0) {start = [0], limit = [3], stride = [1]} : f32[3]\n"
           "%2 = slice(%0) {start = [2], limit = [3], stride = [1]} : f32[1]\n"
           "%3 = concatenate(%1, %2) {axis = 0} : f32[4]\n"
           "%4 = reverse(%0) {dims = [0]} : f32[4]\n%5 = add(%3, %4) : f32[4]\nreturn %5 as \"y\""),
         P("%1 = slice(%0) {start = [0], limit = [3], stride = [1]} : f32[3]\n"
           "%2 = slice(%0) {start = [2], limit = [3], stride = [1]} : f32[1]\n"
           "%3 = concatenate(%1, %2) {axis = 0} : f32[4]\nreturn %3 as \"y\""),
         "concatenate-slices 3 0 3"},
    };
    for (uint32_t i = 0; i < SX_COUNT(wrong); i++) {
        char why[SX_ERROR_TEXT_MAX];
        write_certificate(wrong[i].left, wrong[i].right, wrong[i].terms, wrong[i].step);
        sx_code code = ask(SX_PROOF_VALUES, why, sizeof(why));
        ck_assert_msg(code == SX_INTERNAL && strstr(why, "evaluated") != NULL, "%u: %d %s", i, code,
                      why);
        ck_assert_int_eq(ask(SX_PROOF_STEPS, why, sizeof(why)), SX_INPUT);
        /* the programs agree: the step alone */
        write_certificate(wrong[i].left, wrong[i].left, wrong[i].terms, wrong[i].step);
        code = ask(SX_PROOF_VALUES, why, sizeof(why));
        ck_assert_msg(code == SX_INTERNAL && strstr(why, "step 1") != NULL, "%u: %d %s", i, code,
                      why);
    }
}
END_TEST

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

static void certify(const sx_graph *in)
{
    sx_optimize_options options = sx_optimize_defaults();
    sx_graph *out;
    sx_buf_clear(&text);
    options.with_certificate = true;
    options.unfused = true;
    ck_sx_ok(&cx, sx_optimize(&cx, in, device, &options, &out, &report));
    ck_assert_ptr_null(report.unproved);
    ck_sx_ok(&cx, sx_optimize_certificate(&cx, &report, &text));
}

/* Each golden program: all of its certificate is evaluated; with one operation of the output replaced, values
 * alone refuse it. */
START_TEST(test_golden_certificates)
{
    static const char *const other[][2] = {{"multiply(", "subtract("},
                                           {"maximum(", "minimum("},
                                           {" sqrt(", " sine("},
                                           {"subtract(", "multiply("}};
    char path[512];
    (void)snprintf(path, sizeof(path), "%s/tests/golden/egraph", SX_SOURCE_DIR);
    DIR *folder = opendir(path);
    ck_assert_ptr_nonnull(folder);
    uint32_t count = 0, altered = 0;
    for (struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
        const char *dot = strrchr(entry->d_name, '.');
        char why[SX_ERROR_TEXT_MAX];
        if (dot == NULL || strcmp(dot, ".sx") != 0) {
            continue;
        }
        certify(read_golden(entry->d_name));
        ck_assert_msg(ask(SX_PROOF_STEPS | SX_PROOF_VALUES, why, sizeof(why)) == SX_OK, "%s: %s",
                      entry->d_name, why);
        const sx_evaluation *e = &found.evaluation;
        ck_assert_msg(
            e->step_evaluated == e->step_count && e->output_evaluated == e->output_count &&
                e->output_count > 0 && e->worst < 1e-6,
            "%s: %u of %u steps, %u of %u outputs, deviation %g", entry->d_name, e->step_evaluated,
            e->step_count, e->output_evaluated, e->output_count, e->worst);
        count++;
        sx_buf_put_u8(&text, 0);
        char *output = strstr((char *)text.ptr, "\noutput ");
        char *terms = strstr((char *)text.ptr, "\nterms ");
        text.len--;
        for (uint32_t i = 0; i < SX_COUNT(other); i++) {
            char *at = strstr(output, other[i][0]);
            if (at == NULL || at > terms) {
                continue;
            }
            ck_assert_uint_eq(strlen(other[i][0]), strlen(other[i][1]));
            memcpy(at, other[i][1], strlen(other[i][1]));
            sx_code code = ask(SX_PROOF_VALUES, why, sizeof(why));
            ck_assert_msg(code == SX_INTERNAL && strstr(why, "output") != NULL, "%s, %s: %d %s",
                          entry->d_name, other[i][1], code, why);
            memcpy(at, other[i][0], strlen(other[i][0]));
            altered++;
        }
    }
    (void)closedir(folder);
    ck_assert_uint_ge(count, 12);
    ck_assert_uint_ge(altered, 5);
}
END_TEST

/* What is too large is not evaluated, what is NaN everywhere shows nothing, and both are said. */
START_TEST(test_what_was_not_evaluated_is_counted)
{
    static const char never[] = P("%1 = exponential(%0) : f32[4]\n%2 = negate(%1) : f32[4]\n"
                                  "%3 = sqrt(%2) : f32[4]\nreturn %3 as \"y\"");
    static const char large[] =
        "sx 1\ngraph \"p\" {\n%0 = parameter {name = \"x\", weight = 0} : f32[256, 256]\n"
        "%1 = dot_general(%0, %0) {lhs_batch = [], rhs_batch = [], lhs_contract = [1], "
        "rhs_contract = [0]} : f32[256, 256]\n%2 = abs(%1) : f32[256, 256]\n"
        "return %2 as \"y\"\n}\n";
    static const char *const program[] = {never, large};
    work = 1000000; /* the contraction alone is 16 times as much */
    for (uint32_t i = 0; i < SX_COUNT(program); i++) {
        char why[SX_ERROR_TEXT_MAX];
        write_certificate(program[i], program[i], program[i],
                          i == 0 ? "abs-abs 3 3" : "abs-abs 2 2");
        sx_code code = ask(SX_PROOF_VALUES, why, sizeof(why));
        ck_assert_msg(code == SX_OK, "%s", why);
        ck_assert_uint_eq(found.evaluation.step_count, 1);
        ck_assert_uint_eq(found.evaluation.step_evaluated, 0);
        ck_assert_uint_eq(found.evaluation.output_count, 1);
        ck_assert_uint_eq(found.evaluation.output_evaluated, 0);
    }
}
END_TEST

/* Symbols get values; a step that is wrong for some of them only is refused. */
START_TEST(test_symbols_are_bound)
{
    static const char left[] =
        "sx 1\ngraph \"p\" (s in [1, 9]) {\n%0 = parameter {name = \"x\", weight = 0} : f32[]\n"
        "%1 = broadcast_in_dim(%0) {dims = []} : f32[s]\n"
        "%2 = reduce(%1) {dims = [0], reducer = add} : f32[]\nreturn %2 as \"y\"\n}\n";
    static const char terms[] =
        "sx 1\ngraph \"p\" (s in [1, 9]) {\n%0 = parameter {name = \"x\", weight = 0} : f32[]\n"
        "%1 = broadcast_in_dim(%0) {dims = []} : f32[s]\n"
        "%2 = reduce(%1) {dims = [0], reducer = add} : f32[]\n"
        "%3 = abs(%0) : f32[]\nreturn %2 as \"y\"\n}\n";
    char why[SX_ERROR_TEXT_MAX];
    write_certificate(left, left, terms, "reduce-broadcast 2 0 2 1"); /* right for s = 1 */
    ck_assert_int_eq(ask(SX_PROOF_VALUES, why, sizeof(why)), SX_INTERNAL);
    write_certificate(left, left, terms, "reduce-broadcast 2 2 2 1");
    ck_assert_msg(ask(SX_PROOF_VALUES, why, sizeof(why)) == SX_OK, "%s", why);
    ck_assert_uint_eq(found.evaluation.step_evaluated, 1);
}
END_TEST

/* That a sum is a number, its operands read as the constants that the step names. */
START_TEST(test_numbers_that_are_read)
{
#define SUM                                                                      \
    "%1 = constant {data = 0.1} : f32[4]\n%2 = constant {data = 0.2} : f32[4]\n" \
    "%3 = add(%1, %2) : f32[4]\n"
    static const char left[] = P(SUM "%4 = multiply(%0, %3) : f32[4]\nreturn %4 as \"y\"");
    static const char right[] = P(
        "%1 = constant {data = 0.3} : f32[4]\n%2 = multiply(%0, %1) : f32[4]\nreturn %2 as \"y\"");
    static const char terms[] =
        P(SUM "%4 = constant {data = 0.3} : f32[4]\n%5 = constant {data = 0.30000004} : f32[4]\n"
              "%6 = sqrt(%2) : f32[4]\nreturn %3 as \"y\"");
    static const struct {
        const char *step;
        const char *what;
    } row[] = {
        {"fold-value 3 4 3 as 1 2", ""},
        {"fold-value 3 4 3", ""},
        {"fold-value 3 4 3 as 2 1", "its operands as read do not make it this number"},
        {"fold-value 3 4 3 as 1 1", "its operands as read do not make it this number"},
        {"fold-value 3 4 3 as 1", "its operands as read do not make it this number"},
        {"fold-value 3 4 3 as 1 2 2", "its operands as read do not make it this number"},
        {"fold-value 3 5 3 as 1 2", "its operands as read do not make it this number"},
        {"fold-value 6 4 3 as 1 2", "its operands as read do not make it this number"},
        {"fold-value 3 6 3 as 1 2", "its operands as read do not make it this number"},
        {"fold-value 3 4 3 as 1 6", "what it reads are not numbers of constants"},
        {"fold-value 3 4 3 as 1 99", "what it reads are not numbers of constants"},
        {"fold-value 3 4 3 1 as 1 2", "its operands as read do not make it this number"},
        {"fold-value as 1 2", "two terms are needed"},
    };
    for (size_t i = 0; i < SX_COUNT(row); i++) {
        char why[SX_ERROR_TEXT_MAX];
        write_certificate(left, right, terms, row[i].step);
        sx_code code = ask(SX_PROOF_STEPS | SX_PROOF_VALUES, why, sizeof(why));
        ck_assert_msg(row[i].what[0] != 0 ? code == SX_INPUT : code == SX_OK, "%s: %s", row[i].step,
                      why);
        ck_assert_msg(strstr(why, row[i].what) != NULL, "%s: '%s'", row[i].step, why);
    }
}
END_TEST

static void setup_text(void)
{
    setup();
    sx_buf_init(&text, (size_t)64 << 20);
}

static void teardown_text(void)
{
    sx_buf_fini(&text);
    teardown();
}

int main(void)
{
    Suite *suite = suite_create("core.proof.certificate_values");
    TCase *cases = tcase_create("values");
    tcase_add_checked_fixture(cases, setup_text, teardown_text);
    tcase_add_test(cases, test_wrong_steps_are_refused_by_values);
    tcase_add_test(cases, test_golden_certificates);
    tcase_add_test(cases, test_what_was_not_evaluated_is_counted);
    tcase_add_test(cases, test_symbols_are_bound);
    tcase_add_test(cases, test_numbers_that_are_read);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
