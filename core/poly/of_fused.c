/* of_fused.c - the statements of a fused node, their original order, and the schedule its lowering follows.
 *
 * Original order: the instructions as whole-tensor operations, one after the other. The elementwise
 * instructions between two levels of reductions are one statement "Ek" over the whole space; each reduction is
 * an initialisation "In" and an update "Un". Values live in arrays of their own, indexed by the dimensions
 * they vary along: the result, one for each group, one for each reduction. Arguments are only read, so no
 * dependence goes through them and they are left out.
 *
 * Dimensions that play the same part are one (their row-major product): rows and reduced dimensions; for a
 * contraction batch, rows, columns and k. Nothing is lost, as values are indexed by whole dimensions only, and
 * isl has fewer of them to work on. */
#include "core/poly/of_online.h"

#include <stdio.h>
#include <string.h>

/* Merged dimensions of a contraction; a map has ROWS only, a row kernel ROWS and REDUCED. */
enum { ROWS = 0, REDUCED = 1, BATCH = 0, DOT_ROWS = 1, DOT_COLUMNS = 2, DOT_K = 3, DOT_RANK = 4 };

typedef struct {
    const sx_attr *fused;
    const sx_body *body;
    const sx_schedule *schedule;
    sx_poly_program *program;
    uint32_t rank; /* merged dimensions */
    int64_t extent[SX_RANK_MAX];
    uint32_t all, rows,
        reduced; /* sets of merged dimensions: the whole space, those kept, those reduced */
    uint32_t level[SX_FUSED_INSTRS_MAX]; /* reductions an instruction depends on, longest chain */
    uint32_t level_max;
    bool varies[SX_FUSED_INSTRS_MAX];           /* along the reduced dimensions */
    bool group_varies[SX_FUSED_INSTRS_MAX + 1]; /* some elementwise instruction of the level does */
    uint32_t result_array;
    bool full; /* the result has the whole space */
} builder;

static bool is_reduction(const sx_instr *instr)
{
    return instr->kind == SX_BODY_REDUCE || instr->kind == SX_BODY_DOT;
}

/* Operands of an instruction that are instructions. */
static uint32_t operands(const sx_instr *instr, uint32_t operand[3])
{
    operand[0] = instr->x;
    operand[1] = instr->y;
    operand[2] = instr->z;
    switch (instr->kind) {
    case SX_BODY_ARG:
    case SX_BODY_IMM:
    case SX_BODY_INDEX: return 0;
    case SX_BODY_REDUCE: return 1;
    case SX_BODY_DOT:
    case SX_BODY_ONLINE: return 2;
    case SX_BODY_APPLY: break;
    }
    return sx_op_info_of(instr->op)->input_max;
}

/* Does a leaf instruction vary along the reduced dimensions? */
static bool leaf_varies(const builder *b, const sx_instr *instr)
{
    if (instr->kind == SX_BODY_INDEX) {
        return (b->body->axes >> instr->x & 1) != 0;
    }
    bool varies = false;
    for (uint32_t d = 0; instr->kind == SX_BODY_ARG && d < b->fused->type.rank; d++) {
        varies = varies ||
                 ((b->body->axes >> d & 1) != 0 && b->body->access[instr->x].stride[d].scale != 0);
    }
    return varies;
}

static void find_levels(builder *b)
{
    for (uint32_t i = 0; i < b->body->instr_count; i++) {
        const sx_instr *instr = &b->body->instr[i];
        uint32_t operand[3];
        uint32_t count = operands(instr, operand);
        b->varies[i] = leaf_varies(b, instr);
        for (uint32_t k = 0; k < count; k++) {
            b->varies[i] = b->varies[i] || (b->varies[operand[k]] && !is_reduction(instr));
            uint32_t from =
                b->level[operand[k]] + (is_reduction(&b->body->instr[operand[k]]) ? 1 : 0);
            b->level[i] = from > b->level[i] ? from : b->level[i];
        }
        b->level_max = b->level[i] > b->level_max ? b->level[i] : b->level_max;
        b->group_varies[b->level[i]] =
            b->group_varies[b->level[i]] || (b->varies[i] && !is_reduction(instr));
    }
}

static void add_access(sx_poly_statement *statement, uint32_t array, bool write, uint32_t dims)
{
    SX_ASSERT(statement->access_count < SX_POLY_ACCESSES_MAX);
    statement->access[statement->access_count++] =
        (sx_poly_access){.array = array, .write = write, .by_dims = true, .dims = dims};
}

/* A new statement over the whole space, or over the rows (reduced dimensions have extent 1). */
static sx_code add_statement(sx_ctx *cx, builder *b, char kind, uint32_t number, bool rows,
                             sx_poly_statement **out)
{
    sx_poly_program *program = b->program;
    if (program->statement_count == SX_POLY_STATEMENTS_MAX) {
        return SX_FAIL(cx, SX_INPUT, "polyhedral program: more than %u statements",
                       SX_POLY_STATEMENTS_MAX);
    }
    sx_poly_statement *statement = &program->statement[program->statement_count];
    (void)snprintf(statement->name, sizeof(statement->name), "%c%u", kind, number);
    statement->rank = b->rank;
    for (uint32_t d = 0; d < b->rank; d++) {
        bool single = rows && (b->reduced >> d & 1) != 0;
        statement->extent[d] = single ? 1 : b->extent[d];
    }
    /* original order: statement number, then the space in row-major order */
    statement->order[0].constant = program->statement_count++;
    for (uint32_t d = 0; d < b->rank; d++) {
        statement->order[1 + d].coef[d] = 1;
    }
    *out = statement;
    return SX_OK;
}

/* Arrays: arguments, result, then value groups by level, then reductions by instruction. */
static uint32_t group_array(const builder *b, uint32_t level)
{
    return b->result_array + 1 + level;
}
static uint32_t reduction_array(const builder *b, uint32_t instr)
{
    return b->result_array + 2 + b->level_max + instr;
}

static uint32_t group_dims(const builder *b, uint32_t level)
{
    return b->group_varies[level] ? b->all : b->rows;
}

/* Reads the value of an instruction: a reduction's array or that of its level's group. */
static void add_read(const builder *b, sx_poly_statement *statement, uint32_t instr)
{
    if (is_reduction(&b->body->instr[instr])) {
        add_access(statement, reduction_array(b, instr), false, b->rows);
    } else {
        add_access(statement, group_array(b, b->level[instr]), false,
                   group_dims(b, b->level[instr]));
    }
}

/* The elementwise instructions of one level as a statement: reads arguments, earlier groups and reductions. */
static sx_code add_group(sx_ctx *cx, builder *b, uint32_t level)
{
    sx_poly_statement *statement;
    SX_TRY(add_statement(cx, b, 'E', level, !b->group_varies[level], &statement));
    bool earlier[SX_FUSED_INSTRS_MAX] = {false};
    uint32_t reads[SX_FUSED_INSTRS_MAX];
    uint32_t read_count = 0;
    for (uint32_t i = 0; i < b->body->instr_count; i++) {
        const sx_instr *instr = &b->body->instr[i];
        if (b->level[i] != level || is_reduction(instr)) {
            continue;
        }
        uint32_t operand[3];
        uint32_t count = operands(instr, operand);
        for (uint32_t k = 0; k < count; k++) {
            if (b->level[operand[k]] < level && !earlier[operand[k]]) {
                earlier[operand[k]] = true;
                reads[read_count++] = operand[k];
            }
        }
    }
    for (uint32_t k = 0; k < read_count && statement->access_count < SX_POLY_ACCESSES_MAX - 2;
         k++) {
        add_read(b, statement, reads[k]);
    }
    add_access(statement, group_array(b, level), true, group_dims(b, level));
    return SX_OK;
}

static sx_code add_reduction(sx_ctx *cx, builder *b, uint32_t i)
{
    const sx_instr *instr = &b->body->instr[i];
    sx_poly_statement *init, *update;
    SX_TRY(add_statement(cx, b, 'I', i, true, &init));
    add_access(init, reduction_array(b, i), true, b->rows);
    SX_TRY(add_statement(cx, b, 'U', i, false, &update));
    update->reduction = true;
    add_access(update, reduction_array(b, i), true, b->rows);
    add_access(update, reduction_array(b, i), false, b->rows);
    if (instr->kind == SX_BODY_REDUCE) {
        add_read(b, update, instr->x);
    }
    return SX_OK;
}

static sx_code add_statements(sx_ctx *cx, builder *b)
{
    bool contraction = sx_body_kernel_kind(b->body) == SX_KERNEL_DOT;
    uint32_t last = b->body->instr_count - 1;
    for (uint32_t level = 0; level <= b->level_max; level++) {
        if (level > 0 ||
            !contraction) { /* level 0 of a contraction is its two arguments, read by the update */
            SX_TRY(add_group(cx, b, level));
        }
        for (uint32_t i = 0; i < b->body->instr_count; i++) {
            if (b->level[i] == level && is_reduction(&b->body->instr[i])) {
                SX_TRY(add_reduction(cx, b, i));
            }
        }
    }
    sx_poly_statement *store;
    SX_TRY(add_statement(cx, b, 'R', 0, !b->full, &store));
    add_read(b, store, last);
    add_access(store, b->result_array, true, b->full ? b->all : b->rows);
    return SX_OK;
}

/* ---- schedules ---- */

static void put_time(sx_poly_statement *statement, uint32_t *t, sx_affine form)
{
    SX_ASSERT(*t < SX_POLY_TIME_DIMS_MAX);
    statement->schedule[(*t)++] = form;
}
static void put_constant(sx_poly_statement *statement, uint32_t *t, int64_t value)
{
    put_time(statement, t, (sx_affine){.constant = value});
}
static void put_dims(const builder *b, sx_poly_statement *statement, uint32_t *t, uint32_t set)
{
    for (uint32_t d = 0; d < b->rank; d++) {
        if ((set >> d & 1) != 0) {
            sx_affine form = {0};
            form.coef[d] = 1;
            put_time(statement, t, form);
        }
    }
}

/* Level of a statement (from its name), and its place inside a pass: 0 initialisations, 1 the loop over elements. */
static uint32_t statement_level(const builder *b, const sx_poly_statement *statement,
                                uint32_t *phase, uint32_t *slot)
{
    uint32_t number = 0;
    (void)sscanf(statement->name + 1, "%u", &number);
    *phase = statement->name[0] == 'I' ? 0 : 1;
    *slot = statement->name[0] == 'U' ? 1 + number : 0;
    if (statement->name[0] == 'R') {
        *slot = 1 + SX_FUSED_INSTRS_MAX;
        uint32_t last = b->body->instr_count - 1;
        if (is_reduction(&b->body->instr[last])) {
            *phase = 2; /* after the loop */
            return b->level[last];
        }
        *phase = b->full ? 1 : 2;
        return b->level[last];
    }
    if (statement->name[0] == 'E') {
        *phase = b->group_varies[number] ? 1 : 0;
        return number;
    }
    return b->level[number];
}

/* Rows to threads; per row one pass for each level, elements in order, all of a level's statements at each element. */
static void schedule_rows(builder *b)
{
    for (uint32_t s = 0; s < b->program->statement_count; s++) {
        sx_poly_statement *statement = &b->program->statement[s];
        uint32_t t = 0, phase, slot;
        uint32_t level = statement_level(b, statement, &phase, &slot);
        put_dims(b, statement, &t, 1u << ROWS);
        put_constant(statement, &t, level);
        put_constant(statement, &t, phase);
        put_dims(b, statement, &t, b->reduced);
        put_constant(statement, &t, slot);
        b->program->schedule_dims = t;
    }
    b->program->parallel = 1u << 0;
}

static sx_affine tiled(uint32_t dim, int64_t tile)
{
    sx_affine form = {.div = tile > 1 ? tile : 1};
    form.coef[dim] = 1;
    return form;
}

/* Batch, row tiles and column tiles to threads; panels, strips, then initialise, all of k, epilogue. */
static void schedule_dot(builder *b)
{
    const sx_schedule *plan = b->schedule;
    for (uint32_t s = 0; s < b->program->statement_count; s++) {
        sx_poly_statement *statement = &b->program->statement[s];
        uint32_t t = 0, phase, slot;
        uint32_t level = statement_level(b, statement, &phase, &slot);
        put_dims(b, statement, &t, 1u << BATCH);
        put_time(statement, &t,
                 tiled(DOT_ROWS, sx_schedule_step(plan, SX_ROLE_ROW, SX_BIND_GRID, 0)));
        put_time(statement, &t,
                 tiled(DOT_COLUMNS, sx_schedule_step(plan, SX_ROLE_COLUMN, SX_BIND_GRID, 0)));
        put_time(statement, &t,
                 tiled(DOT_COLUMNS, sx_schedule_step(plan, SX_ROLE_COLUMN, SX_BIND_LOOP, 0)));
        put_time(statement, &t,
                 tiled(DOT_ROWS, sx_schedule_step(plan, SX_ROLE_ROW, SX_BIND_LOOP, 0)));
        put_constant(statement, &t, level * 4 + phase);
        put_dims(b, statement, &t, 1u << DOT_K); /* ascending: one chain */
        put_dims(b, statement, &t, 1u << DOT_ROWS | 1u << DOT_COLUMNS);
        put_constant(statement, &t, slot);
        b->program->schedule_dims = t;
    }
    b->program->parallel = 7; /* the first three */
}

/* The merged dimension that a role belongs to. */
static uint32_t merged(const sx_analysis *a, sx_role role)
{
    if (a->kind != SX_KERNEL_DOT) {
        return role == SX_ROLE_SUM ? REDUCED : ROWS;
    }
    return role == SX_ROLE_SUM      ? DOT_K
           : role == SX_ROLE_ROW    ? DOT_ROWS
           : role == SX_ROLE_COLUMN ? DOT_COLUMNS
                                    : BATCH;
}

static void begin(builder *b, const sx_analysis *a)
{
    bool contraction = a->kind == SX_KERNEL_DOT;
    b->full = a->full || a->reduced == 0;
    b->rank = contraction ? DOT_RANK : (b->body->axes != 0 ? 2 : 1);
    b->reduced = contraction ? 1u << DOT_K : (b->body->axes != 0 ? 1u << REDUCED : 0);
    b->all = (1u << b->rank) - 1;
    b->rows = b->all & ~b->reduced;
    for (uint32_t d = 0; d < b->rank; d++) {
        b->extent[d] = 1;
    }
    for (uint32_t r = 0; r < SX_ROLE_COUNT; r++) {
        b->extent[merged(a, (sx_role)r)] *= a->extent[r];
    }
    find_levels(b);
}

sx_code sx_poly_of_fused(sx_ctx *cx, const sx_analysis *a, const sx_schedule *schedule,
                         sx_poly_program *program)
{
    memset(program, 0, sizeof(*program));
    builder b = {.fused = a->fused, .body = a->body, .schedule = schedule, .program = program};
    if (a->refusal != NULL) {
        return SX_FAIL(cx, SX_UNIMPLEMENTED, "polyhedral program: %s", a->refusal);
    }
    if (a->kind == SX_KERNEL_ONLINE || a->kind == SX_KERNEL_NESTED) {
        sx_poly_of_online(a, schedule, program);
        return SX_OK;
    }
    begin(&b, a);
    SX_TRY(add_statements(cx, &b));
    program->order_dims = 1 + b.rank;
    if (a->kind == SX_KERNEL_DOT) {
        schedule_dot(&b);
    } else {
        schedule_rows(&b);
        program->may_reassociate = b.reduced != 0; /* the fixed virtual shape of row reductions */
    }
    return SX_OK;
}

sx_code sx_poly_check_fused(sx_ctx *cx, const sx_analysis *a, const sx_schedule *schedule,
                            sx_poly_verdict *verdict)
{
    sx_poly_program *program = SX_NEW(cx, sx_poly_program);
    if (program == NULL) {
        return cx->error.code;
    }
    SX_TRY(sx_poly_of_fused(cx, a, schedule, program));
    return sx_poly_legal(cx, program, verdict);
}
