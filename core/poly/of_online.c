/* of_online.c - the statements of an online sum or a nested contraction, their original order, and the schedule of
 * core/loop/lower_keys.c.
 *
 * Dimensions that play the same part are one: batch, rows, columns, keys, inner. The scores are contractions over inner
 * (I0, U1; I6, U7) and a program (E2); maximum, sum of weights and weighted values of an online sum are one reduction
 * over the keys (I3, U4) of triples, whose operation is associative and commutative (core/rules/online.c), kept in
 * ascending order all the same; of a nested contraction it is a plain sum. R5 is the rest of the program. Without a
 * contraction I0 and U1 are not there. */
#include "core/poly/of_online.h"

#include <stdio.h>
#include <string.h>

enum { BATCH, ROWS, COLUMNS, KEYS, INNER, RANK };
enum { ARRAY_SUMS, ARRAY_OTHER_SUMS, ARRAY_SCORES, ARRAY_TRIPLES, ARRAY_RESULT };
#define ROWS_SET (1u << BATCH | 1u << ROWS)

typedef struct {
    sx_poly_program *program;
    const sx_schedule *schedule;
    int64_t extent[RANK];
} builder;

/* Over the dimensions in `dims`; the others have extent 1. */
static sx_poly_statement *add(builder *b, char kind, uint32_t number, uint32_t dims)
{
    sx_poly_program *program = b->program;
    SX_ASSERT(program->statement_count < SX_POLY_STATEMENTS_MAX);
    sx_poly_statement *statement = &program->statement[program->statement_count];
    (void)snprintf(statement->name, sizeof(statement->name), "%c%u", kind, number);
    statement->rank = RANK;
    statement->order[0].constant = program->statement_count++;
    for (uint32_t d = 0; d < RANK; d++) {
        statement->extent[d] = (dims >> d & 1) != 0 ? b->extent[d] : 1;
        statement->order[1 + d].coef[d] = 1;
    }
    return statement;
}

static void touch(sx_poly_statement *statement, uint32_t array, bool write, uint32_t dims)
{
    SX_ASSERT(statement->access_count < SX_POLY_ACCESSES_MAX);
    statement->access[statement->access_count++] =
        (sx_poly_access){.array = array, .write = write, .by_dims = true, .dims = dims};
}

/* ---- the schedule: block of rows to a thread; start, blocks of keys, end ---- */

#define TIMES 9
typedef struct {
    sx_affine time[TIMES];
} times;

static sx_affine number(int64_t value)
{
    return (sx_affine){.constant = value};
}

static sx_affine along(uint32_t dim, int64_t tile)
{
    sx_affine form = {.div = tile > 1 ? tile : 0};
    form.coef[dim] = 1;
    return form;
}

/* phase: 0 start, 1 blocks, 2 end; step of a block: 0 scores, 1 program and weights, 2 values; then what
 * `inside` says. */
static void schedule(const builder *b, sx_poly_statement *statement, int64_t phase, int64_t step,
                     const sx_affine inside[4])
{
    int64_t width = sx_schedule_step(b->schedule, SX_ROLE_ROW, SX_BIND_GRID, 0);
    int64_t block = sx_schedule_step(b->schedule, SX_ROLE_SUM, SX_BIND_LOOP, 0);
    uint32_t t = 0;
    statement->schedule[t++] = along(BATCH, 1);
    statement->schedule[t++] = along(ROWS, width);
    statement->schedule[t++] = number(phase);
    statement->schedule[t++] = phase == 1 ? along(KEYS, block) : number(0);
    statement->schedule[t++] = number(step);
    for (uint32_t k = 0; k < 4; k++) {
        statement->schedule[t++] = inside[k];
    }
    SX_ASSERT(t == TIMES);
    b->program->schedule_dims = TIMES;
}

/* The products of number `product`. */
static void add_product(builder *b, uint32_t product)
{
    uint32_t scores = ROWS_SET | 1u << KEYS, array = product == 0 ? ARRAY_SUMS : ARRAY_OTHER_SUMS;
    sx_affine strip = along(KEYS, sx_schedule_step(b->schedule, SX_ROLE_SUM, SX_BIND_LOOP, 1));
    sx_poly_statement *clear = add(b, 'I', product == 0 ? 0 : 6, scores);
    touch(clear, array, true, scores);
    schedule(b, clear, 1, 0, (sx_affine[4]){strip, number(0), along(KEYS, 1), along(ROWS, 1)});
    sx_poly_statement *update = add(b, 'U', product == 0 ? 1 : 7, scores | 1u << INNER);
    update->reduction = true;
    touch(update, array, true, scores);
    touch(update, array, false, scores);
    sx_affine inner = along(INNER, 1);
    inner.constant = 1; /* after the initialisation */
    schedule(b, update, 1, 0, (sx_affine[4]){strip, inner, along(KEYS, 1), along(ROWS, 1)});
}

static void add_scores(builder *b, uint32_t products)
{
    uint32_t scores = ROWS_SET | 1u << KEYS;
    for (uint32_t k = 0; k < products; k++) {
        add_product(b, k);
    }
    sx_poly_statement *finish = add(b, 'E', 2, scores);
    for (uint32_t k = 0; k < products; k++) {
        touch(finish, k == 0 ? ARRAY_SUMS : ARRAY_OTHER_SUMS, false, scores);
    }
    touch(finish, ARRAY_SCORES, true, scores);
    schedule(b, finish, 1, 1, (sx_affine[4]){along(KEYS, 1), along(ROWS, 1), number(0), number(0)});
}

static void add_sums(builder *b)
{
    uint32_t scores = ROWS_SET | 1u << KEYS;
    uint32_t result = ROWS_SET | 1u << COLUMNS;
    sx_poly_statement *clear = add(b, 'I', 3, result);
    touch(clear, ARRAY_TRIPLES, true, result);
    schedule(b, clear, 0, 0,
             (sx_affine[4]){along(COLUMNS, 1), along(ROWS, 1), number(0), number(0)});
    sx_poly_statement *update = add(b, 'U', 4, result | 1u << KEYS);
    update->reduction = true;
    touch(update, ARRAY_TRIPLES, true, result);
    touch(update, ARRAY_TRIPLES, false, result);
    touch(update, ARRAY_SCORES, false, scores);
    schedule(b, update, 1, 2,
             (sx_affine[4]){
                 along(COLUMNS, sx_schedule_step(b->schedule, SX_ROLE_COLUMN, SX_BIND_LOOP, 0)),
                 along(KEYS, 1), along(COLUMNS, 1), along(ROWS, 1)});
    sx_poly_statement *store = add(b, 'R', 5, result);
    touch(store, ARRAY_TRIPLES, false, result);
    touch(store, ARRAY_RESULT, true, result);
    schedule(b, store, 2, 0,
             (sx_affine[4]){along(ROWS, 1), along(COLUMNS, 1), number(0), number(0)});
}

void sx_poly_of_online(const sx_analysis *a, const sx_schedule *schedule, sx_poly_program *program)
{
    static const uint32_t part[SX_ROLE_COUNT] = {[SX_ROLE_BATCH] = BATCH,
                                                 [SX_ROLE_ROW] = ROWS,
                                                 [SX_ROLE_COLUMN] = COLUMNS,
                                                 [SX_ROLE_SUM] = KEYS,
                                                 [SX_ROLE_INNER] = INNER};
    builder b = {.program = program, .schedule = schedule};
    for (uint32_t r = 0; r < SX_ROLE_COUNT; r++) {
        b.extent[part[r]] = a->extent[r];
    }
    add_scores(&b, a->product_count);
    add_sums(&b);
    program->order_dims = 1 + RANK;
    program->parallel = 3; /* batch and blocks of rows */
}
