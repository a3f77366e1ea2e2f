/* legal.c - dependences and the legality of a schedule, by isl. */
#include "core/poly/poly.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <isl/ctx.h>
#include <isl/flow.h>
#include <isl/map.h>
#include <isl/options.h>
#include <isl/set.h>
#include <isl/space.h>
#include <isl/union_map.h>
#include <isl/union_set.h>

#define TEXT_BYTES_MAX ((size_t)1 << 20)

/* ---- relations as isl text ---- */

static void print_affine(sx_buf *text, const sx_affine *form, uint32_t rank)
{
    bool divided = form->div > 1;
    sx_buf_print(text, "%s%lld", divided ? "floor((" : "", (long long)form->constant);
    for (uint32_t d = 0; d < rank; d++) {
        if (form->coef[d] != 0) {
            sx_buf_print(text, " + %lld i%u", (long long)form->coef[d], d);
        }
    }
    if (divided) {
        sx_buf_print(text, ")/%lld)", (long long)form->div);
    }
}

static void print_dims(sx_buf *text, uint32_t dims)
{
    bool first = true;
    for (uint32_t d = 0; d < SX_RANK_MAX; d++) {
        if ((dims >> d & 1) != 0) {
            sx_buf_print(text, "%si%u", first ? "" : ", ", d);
            first = false;
        }
    }
}

static void print_tuple(sx_buf *text, const sx_poly_statement *statement)
{
    sx_buf_print(text, "%s[", statement->name);
    for (uint32_t d = 0; d < statement->rank; d++) {
        sx_buf_print(text, "%si%u", d > 0 ? ", " : "", d);
    }
    sx_buf_put_text(text, "]");
}

static void print_domain(sx_buf *text, const sx_poly_statement *statement)
{
    for (uint32_t d = 0; d < statement->rank; d++) {
        sx_buf_print(text, "%s0 <= i%u < %lld", d > 0 ? " and " : " : ", d,
                     (long long)statement->extent[d]);
    }
    sx_buf_put_text(text, "; ");
}

static void print_accesses(sx_buf *text, const sx_poly_program *program, bool writes)
{
    sx_buf_put_text(text, "{ ");
    for (uint32_t s = 0; s < program->statement_count; s++) {
        const sx_poly_statement *statement = &program->statement[s];
        for (uint32_t a = 0; a < statement->access_count; a++) {
            const sx_poly_access *access = &statement->access[a];
            if (access->write != writes) {
                continue;
            }
            print_tuple(text, statement);
            sx_buf_print(text, " -> A%u[", access->array);
            if (access->by_dims) {
                print_dims(text, access->dims);
            } else {
                print_affine(text, &access->index, statement->rank);
            }
            sx_buf_put_text(text, "]");
            print_domain(text, statement);
        }
    }
    sx_buf_put_text(text, "}");
}

static void print_times(sx_buf *text, const sx_poly_program *program, bool candidate)
{
    uint32_t dims = candidate ? program->schedule_dims : program->order_dims;
    sx_buf_put_text(text, "{ ");
    for (uint32_t s = 0; s < program->statement_count; s++) {
        const sx_poly_statement *statement = &program->statement[s];
        print_tuple(text, statement);
        sx_buf_put_text(text, " -> [");
        for (uint32_t t = 0; t < dims; t++) {
            sx_buf_put_text(text, t > 0 ? ", " : "");
            print_affine(text, candidate ? &statement->schedule[t] : &statement->order[t],
                         statement->rank);
        }
        sx_buf_put_text(text, "]");
        print_domain(text, statement);
    }
    sx_buf_put_text(text, "}");
}

static uint32_t operations_of(const sx_poly_program *program)
{
    return program->operations_max != 0 ? program->operations_max : SX_POLY_OPERATIONS_MAX;
}

/* Reading is bounded by the text and not counted: isl 0.25 loses memory where a quota ends its reader. */
static isl_union_map *read_map(isl_ctx *ctx, const sx_poly_program *program, const sx_buf *text)
{
    if (text->code != SX_OK) {
        return NULL;
    }
    isl_ctx_set_max_operations(ctx, 0);
    isl_union_map *map = isl_union_map_read_from_str(ctx, (const char *)text->ptr);
    isl_ctx_reset_operations(ctx);
    isl_ctx_set_max_operations(ctx, operations_of(program));
    return map;
}

typedef void (*printer)(sx_buf *text, const sx_poly_program *program, bool which);

static isl_union_map *build_map(isl_ctx *ctx, printer print, const sx_poly_program *program,
                                bool which)
{
    sx_buf text;
    sx_buf_init(&text, TEXT_BYTES_MAX);
    print(&text, program, which);
    sx_buf_put_u8(&text, 0);
    isl_union_map *map = read_map(ctx, program, &text);
    sx_buf_fini(&text);
    return map;
}

/* ---- dependences ---- */

/* Sources in `order` before sinks that touch the same element; `must` sources hide earlier ones. */
static isl_union_map *flow(isl_union_map *sink, isl_union_map *must, isl_union_map *may,
                           isl_union_map *order)
{
    isl_union_access_info *info = isl_union_access_info_from_sink(sink);
    if (must != NULL) {
        info = isl_union_access_info_set_must_source(info, must);
    }
    if (may != NULL) {
        info = isl_union_access_info_set_may_source(info, may);
    }
    info = isl_union_access_info_set_schedule_map(info, order);
    isl_union_flow *result = isl_union_access_info_compute_flow(info);
    isl_union_map *dependences =
        isl_union_flow_get_may_dependence(result); /* includes the must ones */
    isl_union_flow_free(result);
    return dependences;
}

static void new_step(isl_ctx *ctx)
{
    isl_ctx_reset_error(ctx);
    isl_ctx_reset_operations(ctx);
}

/* RAW, WAW and WAR, each a step of its own; NULL if one runs out of operations. */
static isl_union_map *dependences_of(isl_ctx *ctx, const sx_poly_program *program)
{
    isl_union_map *reads = build_map(ctx, print_accesses, program, false);
    isl_union_map *writes = build_map(ctx, print_accesses, program, true);
    isl_union_map *order = build_map(ctx, print_times, program, false);
    if (reads != NULL && writes != NULL && order != NULL) { /* else the reason is kept */
        new_step(ctx);
    }
    isl_union_map *raw = flow(isl_union_map_copy(reads), isl_union_map_copy(writes), NULL,
                              isl_union_map_copy(order));
    if (raw != NULL) {
        new_step(ctx);
    }
    isl_union_map *waw = flow(isl_union_map_copy(writes), isl_union_map_copy(writes), NULL,
                              isl_union_map_copy(order));
    if (raw != NULL && waw != NULL) {
        new_step(ctx);
    }
    isl_union_map *war = flow(writes, NULL, reads, order);
    return isl_union_map_union(raw, isl_union_map_union(waw, war));
}

/* { S[i] -> S[j] } for every reduction statement. */
static isl_union_map *reduction_pairs(isl_ctx *ctx, const sx_poly_program *program)
{
    sx_buf text;
    sx_buf_init(&text, TEXT_BYTES_MAX);
    sx_buf_put_text(&text, "{ ");
    for (uint32_t s = 0; s < program->statement_count; s++) {
        const sx_poly_statement *statement = &program->statement[s];
        if (!statement->reduction) {
            continue;
        }
        print_tuple(&text, statement);
        sx_buf_print(&text, " -> %s[", statement->name);
        for (uint32_t d = 0; d < statement->rank; d++) {
            sx_buf_print(&text, "%sj%u", d > 0 ? ", " : "", d);
        }
        sx_buf_put_text(&text, "]; ");
    }
    sx_buf_put_text(&text, "}");
    sx_buf_put_u8(&text, 0);
    isl_union_map *map = read_map(ctx, program, &text);
    sx_buf_fini(&text);
    return map;
}

/* ---- verdict ---- */

/* One dependence of `violated` as text. */
static void show(isl_union_map *violated, const char *what, sx_poly_verdict *verdict)
{
    isl_basic_map *one = isl_union_map_sample(isl_union_map_copy(violated));
    char *text = one != NULL ? isl_basic_map_to_str(one) : NULL;
    (void)snprintf(verdict->text, sizeof(verdict->text), "%s: %s", what,
                   text != NULL ? text : "unknown");
    free(text);
    isl_basic_map_free(one);
    isl_union_map_free(violated);
}

/* Dependences whose sink does not come after their source under `schedule`. */
static isl_union_map *not_after(isl_ctx *ctx, isl_union_map *dependences, isl_union_map *schedule,
                                uint32_t dims)
{
    isl_space *space = isl_space_set_alloc(ctx, 0, dims);
    isl_union_map *later_or_same = isl_union_map_from_map(isl_map_lex_ge(space));
    isl_union_map *pairs = isl_union_map_apply_range(isl_union_map_copy(schedule), later_or_same);
    pairs = isl_union_map_apply_range(pairs, isl_union_map_reverse(schedule));
    return isl_union_map_intersect(dependences, pairs);
}

/* Dependences that cross iterations of parallel dimension `p` while all sequential dimensions before it are equal. */
static isl_union_map *crossing(isl_ctx *ctx, isl_union_map *dependences, isl_union_map *schedule,
                               const sx_poly_program *program, uint32_t p)
{
    uint32_t dims = program->schedule_dims;
    isl_map *equal = isl_map_universe(isl_space_alloc(ctx, 0, dims, dims));
    for (uint32_t q = 0; q < p; q++) {
        if ((program->parallel >> q & 1) == 0) {
            equal = isl_map_equate(equal, isl_dim_in, (int)q, isl_dim_out, (int)q);
        }
    }
    isl_map *before =
        isl_map_order_lt(isl_map_copy(equal), isl_dim_in, (int)p, isl_dim_out, (int)p);
    isl_map *after = isl_map_order_gt(equal, isl_dim_in, (int)p, isl_dim_out, (int)p);
    isl_union_map *cross = isl_union_map_from_map(isl_map_union(before, after));
    isl_union_map *pairs = isl_union_map_apply_range(isl_union_map_copy(schedule), cross);
    pairs = isl_union_map_apply_range(pairs, isl_union_map_reverse(schedule));
    return isl_union_map_intersect(dependences, pairs);
}

/* Distances of the dependences in schedule time: { T(sink) - T(source) }. */
static isl_union_set *distances(isl_union_map *dependences, isl_union_map *schedule)
{
    isl_union_map *times = isl_union_map_apply_domain(dependences, isl_union_map_copy(schedule));
    return isl_union_map_deltas(isl_union_map_apply_range(times, schedule));
}

/* Distances that are not lexicographically positive. */
static isl_union_set *not_positive(isl_ctx *ctx, uint32_t dims)
{
    isl_space *space = isl_space_set_alloc(ctx, 0, dims);
    isl_set *zero = isl_set_universe(isl_space_copy(space));
    for (uint32_t d = 0; d < dims; d++) {
        zero = isl_set_fix_si(zero, isl_dim_set, d, 0);
    }
    return isl_union_set_from_set(isl_set_apply(zero, isl_map_lex_ge(space)));
}

/* Distances that cross threads of parallel dimension `p`: not zero there, zero in all sequential dimensions before. */
static isl_union_set *crossing_distances(isl_ctx *ctx, const sx_poly_program *program, uint32_t p)
{
    isl_set *same = isl_set_universe(isl_space_set_alloc(ctx, 0, program->schedule_dims));
    for (uint32_t q = 0; q < p; q++) {
        if ((program->parallel >> q & 1) == 0) {
            same = isl_set_fix_si(same, isl_dim_set, q, 0);
        }
    }
    isl_set *later = isl_set_lower_bound_si(isl_set_copy(same), isl_dim_set, p, 1);
    isl_set *earlier = isl_set_upper_bound_si(same, isl_dim_set, p, -1);
    return isl_union_set_from_set(isl_set_union(later, earlier));
}

/* Does no distance lie in `forbidden`? An error (out of operations) is no. */
static isl_bool disjoint(isl_union_set *all, isl_union_set *forbidden)
{
    isl_union_set *both = isl_union_set_intersect(isl_union_set_copy(all), forbidden);
    isl_bool empty = isl_union_set_is_empty(both);
    isl_union_set_free(both);
    return empty;
}

/* One step of the verdict; when it is no, `relation` gives the dependences to show. */
static bool accept(const sx_poly_program *program, isl_bool empty, isl_union_map *relation,
                   const char *what, sx_poly_verdict *verdict)
{
    if (empty == isl_bool_true) {
        isl_union_map_free(relation);
        return true;
    }
    (void)snprintf(verdict->text, sizeof(verdict->text), "not proven within %u isl operations",
                   operations_of(program));
    if (empty == isl_bool_false) {
        show(relation, what, verdict);
    } else {
        isl_union_map_free(relation);
    }
    return false;
}

/* `ordered`: the dependences whose order the schedule must keep. */
static bool judge_order(isl_ctx *ctx, const sx_poly_program *program, isl_union_map *ordered,
                        isl_union_map *schedule, sx_poly_verdict *verdict)
{
    new_step(ctx);
    isl_union_set *all = distances(isl_union_map_copy(ordered), isl_union_map_copy(schedule));
    isl_bool empty = disjoint(all, not_positive(ctx, program->schedule_dims));
    isl_union_set_free(all);
    isl_union_map *shown = NULL;
    if (empty == isl_bool_false) {
        new_step(ctx);
        shown = not_after(ctx, isl_union_map_copy(ordered), isl_union_map_copy(schedule),
                          program->schedule_dims);
    }
    return accept(program, empty, shown, "violated dependence", verdict);
}

/* `dependences`: all of them. A licence to reorder a reduction is none to run it on several threads. */
static bool judge_threads(isl_ctx *ctx, const sx_poly_program *program, isl_union_map *dependences,
                          isl_union_map *schedule, sx_poly_verdict *verdict)
{
    new_step(ctx);
    isl_union_set *all = distances(isl_union_map_copy(dependences), isl_union_map_copy(schedule));
    bool legal = true;
    for (uint32_t p = 0; legal && p < program->schedule_dims; p++) {
        if ((program->parallel >> p & 1) == 0) {
            continue;
        }
        new_step(ctx);
        isl_bool empty = disjoint(all, crossing_distances(ctx, program, p));
        isl_union_map *shown = NULL;
        if (empty == isl_bool_false) {
            new_step(ctx);
            shown = crossing(ctx, isl_union_map_copy(dependences), isl_union_map_copy(schedule),
                             program, p);
        }
        legal = accept(program, empty, shown, "dependence between threads", verdict);
    }
    isl_union_set_free(all);
    return legal;
}

static void judge(isl_ctx *ctx, const sx_poly_program *program, isl_union_map *dependences,
                  sx_poly_verdict *verdict)
{
    new_step(ctx);
    isl_union_map *schedule = build_map(ctx, print_times, program, true);
    isl_union_map *ordered = isl_union_map_copy(dependences);
    if (program->may_reassociate) {
        ordered = isl_union_map_subtract(ordered, reduction_pairs(ctx, program));
    }
    verdict->legal = judge_order(ctx, program, ordered, schedule, verdict) &&
                     judge_threads(ctx, program, dependences, schedule, verdict);
    isl_size pieces = isl_union_map_n_map(ordered);
    isl_union_map_free(ordered);
    isl_union_map_free(schedule);
    if (verdict->legal) {
        (void)snprintf(
            verdict->text, sizeof(verdict->text),
            "legal: %u statements, %d dependence relations kept%s", program->statement_count,
            (int)pieces,
            program->may_reassociate ? " (reductions may be reordered by the numerics plan)" : "");
    }
}

static sx_code decide(sx_ctx *cx, isl_ctx *ctx, const sx_poly_program *program,
                      sx_poly_verdict *verdict)
{
    isl_union_map *dependences = dependences_of(ctx, program);
    isl_bool empty = isl_union_map_is_empty(dependences);
    bool reduces = false;
    for (uint32_t s = 0; s < program->statement_count; s++) {
        reduces = reduces || program->statement[s].reduction;
    }
    if (empty == isl_bool_true && reduces) {
        isl_union_map_free(dependences);
        return SX_FAIL(cx, SX_INPUT, "a reduction without a dependence: its accesses are wrong");
    }
    if (empty == isl_bool_error) {
        isl_union_map_free(dependences);
        (void)snprintf(verdict->text, sizeof(verdict->text), "dependences not computed: %s",
                       isl_ctx_last_error(ctx) == isl_error_quota ? "out of isl operations"
                                                                  : "isl refused the program");
        return SX_OK;
    }
    judge(ctx, program, dependences, verdict);
    isl_union_map_free(dependences);
    return SX_OK;
}

sx_code sx_poly_legal(sx_ctx *cx, const sx_poly_program *program, sx_poly_verdict *verdict)
{
    *verdict = (sx_poly_verdict){.legal = false};
    if (program->statement_count > SX_POLY_STATEMENTS_MAX ||
        program->schedule_dims > SX_POLY_TIME_DIMS_MAX ||
        program->order_dims > SX_POLY_TIME_DIMS_MAX) {
        return SX_FAIL(
            cx, SX_INPUT,
            "polyhedral program: %u statements and %u time dimensions, at most %u and %u",
            program->statement_count, program->schedule_dims, SX_POLY_STATEMENTS_MAX,
            SX_POLY_TIME_DIMS_MAX);
    }
    SX_TRY(sx_spend(cx, 1000));
    isl_ctx *ctx = isl_ctx_alloc();
    if (ctx == NULL) {
        return SX_FAIL(cx, SX_NOMEM, "no memory for an isl context");
    }
    (void)isl_options_set_on_error(ctx, ISL_ON_ERROR_CONTINUE);
    isl_ctx_set_max_operations(ctx, operations_of(program));
    sx_code code = decide(cx, ctx, program, verdict);
    isl_ctx_free(ctx);
    return code;
}
