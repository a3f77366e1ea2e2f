/* gen_rules.c - writes the parsed rules of rules.def as C tables (rules_parsed.c in the build folder), so that
 * nobody reads their text again. Runs while the project is built; a rule that does not parse or is ill-typed
 * (typed.h) ends the build with its name and the reason.
 *   usage: sx_gen_rules                       the tables, to standard output
 *          sx_gen_rules NAME LEFT [RIGHT]     is this a row that could stand in the table? */
#include <math.h>
#include <stdio.h>

#include "core/egraph/pattern.h"
#include "core/egraph/tensor.h"
#include "core/egraph/typed.h"

#define ARENA_BYTES ((size_t)64 << 20)

static const struct {
    const char *name, *left, *right; /* right NULL: a C function */
} rule_table[] = {
#define SX_RULE(id, name_, class_, left_, right_) {name_, left_, right_},
#define SX_RULE_BUILD(id, name_, class_, left_, build_) {name_, left_, NULL},
#include "core/rules/rules.def"
#undef SX_RULE
#undef SX_RULE_BUILD
};

static void print_value(double value)
{
    SX_ASSERT(!isnan(value));
    if (isinf(value)) {
        printf("%s(double)INFINITY", value < 0 ? "-" : ""); /* INFINITY is a float */
    } else {
        printf("%a", value);
    }
}

static void print_bits(const sx_bits *set)
{
    printf("{{UINT64_C(%llu), UINT64_C(%llu)}}", (unsigned long long)set->word[0],
           (unsigned long long)set->word[1]);
}

static void print_part(const sx_pattern_part *part)
{
    printf("{.kind = %d, .name = %u, .attr_name = %u, .arity = %u, .any_arity = %d, ",
           (int)part->kind, part->name, part->attr_name, part->arity, part->any_arity ? 1 : 0);
    printf(".ops = ");
    print_bits(&part->ops);
    printf(", .value = ");
    print_value(part->value);
    printf(", .child = {");
    for (uint32_t k = 0; k < SX_PATTERN_NAMES_MAX; k++) {
        printf("%u,", part->child[k]);
    }
    printf("}},\n");
}

static void print_step(const sx_step *step)
{
    printf("{.kind = %d, .from = %u, .other = %u, .bind = %u, .out = %u, .arity = %u, ",
           (int)step->kind, step->from, step->other, step->bind, step->out, step->arity);
    printf(".any_arity = %d, .ops = ", step->any_arity ? 1 : 0);
    print_bits(&step->ops);
    printf(", .hint = %u, .value = ", step->hint);
    print_value(step->value);
    printf("},\n");
}

static void print_bytes(const char *what, const char *id, const uint8_t *byte, uint32_t count)
{
    printf("static const uint8_t %s_%s[] = {", what, id);
    for (uint32_t i = 0; i < count; i++) {
        printf("%u,", byte[i]);
    }
    printf("0};\n");
}

static void print_list(const char *field, const uint8_t *byte)
{
    printf("    .%s = {", field);
    for (uint32_t i = 0; i < SX_PATTERN_NAMES_MAX; i++) {
        printf("%u,", byte[i]);
    }
    printf("},\n");
}

static void print_names(const char *field, const sx_span *name, uint32_t count)
{
    printf("    .%s_count = %u,\n", field, count);
    for (uint32_t i = 0; i < count; i++) {
        printf("    .%s[%u] = {(const uint8_t *)\"%.*s\", %zu},\n", field, i, (int)name[i].len,
               (const char *)name[i].ptr, name[i].len);
    }
}

static void print_pattern(const char *id, const sx_pattern *p)
{
    printf("static const sx_pattern_part part_%s[] = {\n", id);
    for (uint32_t i = 0; i < p->part_count; i++) {
        print_part(&p->part[i]);
    }
    printf("};\nstatic const sx_step step_%s[] = {\n", id);
    for (uint32_t i = 0; i < p->step_count; i++) {
        print_step(&p->step[i]);
    }
    printf("{.kind = 0}};\n");
    print_bytes("reg_bind", id, p->reg_bind, p->reg_count);
    print_bytes("reg_slot", id, p->reg_slot, p->reg_count);
    printf("static const sx_pattern pattern_%s = {\n    .part = part_%s, .part_count = %u, .root = "
           "%u,\n",
           id, id, p->part_count, p->root);
    print_names("name", p->name, p->name_count);
    print_names("attr_name", p->attr_name, p->attr_name_count);
    print_list("attr_bind", p->attr_bind);
    print_list("name_reg", p->name_reg);
    printf("    .step = step_%s, .step_count = %u, .bind_count = %u, .reg_count = %u,\n", id,
           p->step_count, p->bind_count, p->reg_count);
    printf("    .reg_bind = reg_bind_%s, .reg_slot = reg_slot_%s, .depth = %u};\n", id, id,
           p->depth);
}

static sx_code read_rule(sx_ctx *cx, const sx_eg_language *language, const char *name,
                         const char *left_text, const char *right_text, const sx_pattern **left,
                         const sx_pattern **right)
{
    *right = NULL;
    SX_TRY(sx_pattern_parse(cx, language, name, left_text, NULL, left));
    if (right_text != NULL) {
        SX_TRY(sx_pattern_parse(cx, language, name, right_text, *left, right));
    }
    return sx_rule_typed(cx, name, *left, *right);
}

static sx_code try_row(sx_ctx *cx, const char *name, const char *left_text, const char *right_text)
{
    sx_tensors none = {0};
    sx_eg_language language = sx_tensors_language(&none);
    const sx_pattern *left, *right;
    return read_rule(cx, &language, name, left_text, right_text, &left, &right);
}

static sx_code print_rules(sx_ctx *cx)
{
    sx_tensors none = {0}; /* rules are read for no graph in particular */
    sx_eg_language language = sx_tensors_language(&none);
    char id[32];
    for (uint32_t i = 0; i < SX_COUNT(rule_table); i++) {
        const sx_pattern *left, *right;
        const char *name = rule_table[i].name;
        SX_TRY(
            read_rule(cx, &language, name, rule_table[i].left, rule_table[i].right, &left, &right));
        (void)snprintf(id, sizeof(id), "%u_left", i);
        print_pattern(id, left);
        if (right != NULL) {
            (void)snprintf(id, sizeof(id), "%u_right", i);
            print_pattern(id, right);
        }
    }
    printf("const sx_rule_sides sx_rules_parsed[] = {\n");
    for (uint32_t i = 0; i < SX_COUNT(rule_table); i++) {
        printf("{&pattern_%u_left, ", i);
        if (rule_table[i].right != NULL) {
            printf("&pattern_%u_right},\n", i);
        } else {
            printf("NULL},\n");
        }
    }
    printf(
        "};\n_Static_assert(SX_COUNT(sx_rules_parsed) == SX_RULE_ROUNDS_COUNT, \"every rule\");\n");
    return SX_OK;
}

int main(int argc, char **argv)
{
    sx_ctx cx;
    sx_ctx_init(&cx, ARENA_BYTES);
    if (argc == 3 || argc == 4) {
        sx_code row = try_row(&cx, argv[1], argv[2], argc == 4 ? argv[3] : NULL);
        (void)fprintf(stderr, "%s\n", row == SX_OK ? "well-typed" : cx.error.text);
        sx_ctx_fini(&cx);
        return row == SX_OK ? 0 : 1;
    }
    printf("/* Written by core/rules/gen_rules.c from core/rules/rules.def. */\n"
           "#include <math.h>\n\n#include \"core/egraph/pattern.h\"\n#include "
           "\"core/rules/rules.h\"\n\n");
    sx_code code = print_rules(&cx);
    if (code != SX_OK) {
        (void)fprintf(stderr, "rules.def: %s\n", cx.error.text);
    }
    sx_ctx_fini(&cx);
    return code == SX_OK && fflush(stdout) == 0 ? 0 : 1;
}
