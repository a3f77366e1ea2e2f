/* launch.c - launches on the processor: kernels over their grids, copies, fills, and what ranks exchange. */
#include <string.h>
#include <time.h>

#include "client/runtime/cpu.h"
#include "client/runtime/program.h"
#include "client/runtime/ranks.h"

typedef void (*kernel_entry)(void *const *buffer, const int64_t *index, void *workspace);

/* ---- kernels ---- */

typedef struct {
    sxr_program *program;
    const sx_module_kernel *kernel;
    void *const *buffer;
} grid_task;

static int64_t part_points(const sx_module_part *part)
{
    return part->grid[0] * part->grid[1] * part->grid[2];
}

/* Points [first, last) of all parts laid end to end; the last grid dimension runs fastest. */
static void run_points(void *self, uint32_t thread, int64_t first, int64_t last)
{
    const grid_task *task = self;
    sxr_program *program = task->program;
    void *workspace = program->workspace_stride == 0
                          ? NULL
                          : program->workspace + program->workspace_stride * thread;
    int64_t base = 0;
    for (uint32_t p = 0; p < task->kernel->part_count; p++) {
        const sx_module_part *part = &program->part[task->kernel->part_first + p];
        int64_t points = part_points(part);
        int64_t begin = sx_max_i64(first - base, 0);
        int64_t end = sx_min_i64(last - base, points);
        kernel_entry entry;
        void *address = program->code + part->entry;
        memcpy(&entry, &address, sizeof(entry)); /* object to function pointer, as POSIX allows */
        uint32_t numbers;
        const int64_t *number = sxr_part_numbers(program, task->kernel->part_first + p, &numbers);
        int64_t index[SX_MODULE_NUMBERS_MAX];
        for (uint32_t k = 0; begin < end && k < numbers; k++) {
            index[3 + k] = number[k];
        }
        for (int64_t i = begin; i < end; i++) {
            index[0] = i / (part->grid[1] * part->grid[2]);
            index[1] = i / part->grid[2] % part->grid[1];
            index[2] = i % part->grid[2];
            entry(task->buffer, index, workspace);
        }
        base += points;
    }
}

static void run_kernel(sxr_program *program, uint32_t index, void *const *buffer)
{
    SX_ASSERT(program->runs_here);
    const sx_module_launch *launch = &program->module.launch[index];
    grid_task task = {program, &program->module.kernel[launch->kernel], buffer};
    int64_t points = 0;
    for (uint32_t p = 0; p < task.kernel->part_count; p++) {
        points += part_points(&program->part[task.kernel->part_first + p]);
    }
    uint32_t mxcsr = sxr_mxcsr_get();
    sxr_mxcsr_set(SXR_MXCSR_DEFAULT);
    sxr_pool_repeat(program->pool, &program->habit[index], run_points, &task, points);
    sxr_mxcsr_set(mxcsr);
}

/* ---- copies and fills ---- */

#define PIECE_BYTES ((uint64_t)65536) /* that one thread moves at a time; holds whole elements */

typedef struct {
    const uint8_t *from; /* of a copy */
    uint8_t *to;
    uint64_t bytes;
    uint64_t value; /* of a fill: the element */
    uint32_t element_bytes;
} move_task;

static void copy_pieces(void *self, uint32_t thread, int64_t first, int64_t last)
{
    const move_task *task = self;
    (void)thread;
    uint64_t begin = (uint64_t)first * PIECE_BYTES;
    uint64_t end = (uint64_t)last * PIECE_BYTES;
    end = end < task->bytes ? end : task->bytes;
    memmove(task->to + begin, task->from + begin, (size_t)(end - begin));
}

static void fill_pieces(void *self, uint32_t thread, int64_t first, int64_t last)
{
    const move_task *task = self;
    (void)thread;
    uint64_t begin = (uint64_t)first * PIECE_BYTES;
    uint64_t end = (uint64_t)last * PIECE_BYTES;
    end = end < task->bytes ? end : task->bytes;
    for (uint64_t i = begin; i < end; i += task->element_bytes) {
        memcpy(task->to + i, &task->value, task->element_bytes);
    }
}

static void run_move(sxr_program *program, uint32_t index, void *const *buffer)
{
    const sx_module_launch *launch = &program->module.launch[index];
    bool copy = launch->kind != SX_LAUNCH_FILL;
    uint32_t to = program->module.arg[launch->arg_first + (copy ? 1 : 0)];
    move_task task = {.from = buffer[0],
                      .to = buffer[copy ? 1 : 0],
                      .bytes = program->bytes[to],
                      .value = launch->value,
                      .element_bytes = program->module.tensor[to].element_bytes};
    if (launch->kind == SX_LAUNCH_SLICE) {
        task.from += program->round * task.bytes;
    } else if (launch->kind == SX_LAUNCH_ROW) {
        task.bytes = program->bytes[program->module.arg[launch->arg_first]];
        task.to += program->round * task.bytes;
    }
    int64_t pieces = (int64_t)((task.bytes + PIECE_BYTES - 1) / PIECE_BYTES);
    sxr_pool_run(program->pool, copy ? copy_pieces : fill_pieces, &task, pieces);
}

void sxr_run_launch(sxr_program *program, uint32_t index, void *const *buffer)
{
    SX_ASSERT(index < program->module.launch_count && program->device == NULL);
    const sx_module_launch *launch = &program->module.launch[index];
    switch ((sx_module_launch_kind)launch->kind) {
    case SX_LAUNCH_KERNEL: run_kernel(program, index, buffer); return;
    case SX_LAUNCH_COPY:
    case SX_LAUNCH_SLICE:
    case SX_LAUNCH_ROW:
    case SX_LAUNCH_FILL: run_move(program, index, buffer); return;
    case SX_LAUNCH_LOOP: /* the walk goes through them */
    case SX_LAUNCH_BRANCH:
    case SX_LAUNCH_WHILE:
    case SX_LAUNCH_COLLECTIVE: /* nothing that a rank does alone */
    case SX_LAUNCH_HOST:       /* refused when the module was opened */
    case SX_LAUNCH_KIND_COUNT: break;
    }
    SX_UNREACHABLE();
}

bool sxr_run_usual(sxr_program *program)
{
    const sx_module *module = &program->module;
    if (!program->usual || (program->aliased && !program->apart)) {
        return false;
    }
    const sx_module_variant *variant = &module->variant[program->variant];
    for (uint32_t i = 0; i < variant->launch_count; i++) {
        const sx_module_launch *row = &module->launch[variant->launch_first + i];
        void *buffer[SX_MODULE_ARGS_MAX];
        for (uint32_t k = 0; row->prologue == 0 && k < row->arg_count; k++) {
            buffer[k] = program->tensor[module->arg[row->arg_first + k]];
        }
        if (row->prologue == 0) {
            sxr_run_launch(program, variant->launch_first + i, buffer);
        }
    }
    return true;
}

/* ---- as a way to run a program ---- */

static uint64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* In the function of the communicator; the place along an axis needs nobody. */
static sx_code run_collective(sx_ctx *cx, const sxr_program *program, uint32_t index,
                              void *const *buffer)
{
    const sxr_communicator *c = program->communicator;
    const sxr_collective run[SX_COLLECTIVE_COUNT] = {[SX_COLLECTIVE_ALL_REDUCE] = c->all_reduce,
                                                     [SX_COLLECTIVE_ALL_GATHER] = c->all_gather,
                                                     [SX_COLLECTIVE_REDUCE_SCATTER] =
                                                         c->reduce_scatter,
                                                     [SX_COLLECTIVE_ALL_TO_ALL] = c->all_to_all,
                                                     [SX_COLLECTIVE_PERMUTE] = c->permute};
    sxr_exchange exchange;
    SX_TRY(sxr_exchange_of(cx, program, c->rank, index, buffer, &exchange));
    if (run[exchange.kind] == NULL) {
        sxr_exchange_run(&exchange, NULL);
        return SX_OK;
    }
    uint32_t mxcsr = sxr_mxcsr_get();
    sxr_mxcsr_set(SXR_MXCSR_DEFAULT); /* sums have the same bits whatever the caller has set */
    sx_code code = run[exchange.kind](cx, c->self, &exchange);
    sxr_mxcsr_set(mxcsr);
    return code;
}

static sx_code launch(sx_ctx *cx, sxr_program *program, uint32_t index, uint64_t *ns)
{
    const sx_module *module = &program->module;
    const sx_module_launch *row = &module->launch[index];
    void *buffer[SX_MODULE_ARGS_MAX];
    sx_code code = SX_OK;
    for (uint32_t k = 0; k < row->arg_count; k++) {
        buffer[k] = program->tensor[module->arg[row->arg_first + k]];
    }
    uint64_t start = ns != NULL ? now_ns() : 0;
    if (row->kind == SX_LAUNCH_COLLECTIVE) {
        code = run_collective(cx, program, index, buffer);
    } else {
        sxr_run_launch(program, index, buffer);
    }
    if (ns != NULL) {
        *ns += now_ns() - start;
    }
    return code;
}

static sx_code count_round(sx_ctx *cx, sxr_program *program, uint32_t tensor, uint64_t round)
{
    (void)cx;
    memcpy(program->tensor[tensor], &round, sizeof(round));
    return SX_OK;
}

static sx_code ask(sx_ctx *cx, sxr_program *program, uint32_t tensor, bool *truth)
{
    const uint8_t *byte = program->tensor[tensor];
    (void)cx;
    SX_ASSERT(byte != NULL);
    *truth = *byte != 0;
    return SX_OK;
}

const sxr_way sxr_way_cpu = {.launch = launch, .count_round = count_round, .ask = ask};
