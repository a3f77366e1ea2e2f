/* The table of machines, and that each row of it - and two that only the tests know - lowers, emits, checks
 * and emulates what the interpreter computes; machines of one class of rounding compute the same bits. */
#include "core/ir/num.h"
#include "protocol/arch.h"
#include "tests/core/judge/try.h"
#include "tests/core/loop/nested.h"
#include "tests/core/target/toy.h"

static sx_ctx cx;

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)1 << 28);
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

/* Every row, then the machines of the tests. */
static const sx_target *target_at(uint32_t i)
{
    const sx_targets *all = sx_targets_all();
    return i < all->count ? all->row[i] : toy_targets.row[i - all->count];
}

static uint32_t target_count(void)
{
    return sx_targets_all()->count + toy_targets.count;
}

START_TEST(test_table)
{
    const sx_targets *all = sx_targets_all();
    ck_assert_uint_ge(all->count, 2);
    for (uint32_t i = 0; i < target_count(); i++) {
        const sx_target *a = target_at(i);
        ck_assert(a->lower != NULL && a->emit != NULL && a->machine->check != NULL &&
                  a->print != NULL);
        ck_assert(a->emulator_make != NULL && a->emulate != NULL && a->emulated != NULL);
        ck_assert(a->lane_types != 0 && (a->lane_types & ~a->memory_types) == 0);
        for (uint32_t k = 0; k < i; k++) {
            const sx_target *b = target_at(k);
            ck_assert_str_ne(a->machine->name, b->machine->name);
            if (strcmp(a->machine->family, b->machine->family) == 0) {
                bool above = a->machine->level > b->machine->level;
                bool one_table = (i < all->count) == (k < all->count);
                ck_assert(a->machine->level != b->machine->level && (above || !one_table));
                ck_assert(sx_machine_executes(a->machine, b->machine) == above &&
                          sx_machine_executes(b->machine, a->machine) == !above);
            } else {
                ck_assert(!sx_machine_executes(a->machine, b->machine) &&
                          !sx_machine_executes(b->machine, a->machine));
            }
        }
        ck_assert(sx_machine_executes(a->machine, a->machine));
    }
    ck_assert_ptr_eq(sx_target_find(NULL, toy_machine.name), NULL);
    ck_assert_ptr_eq(sx_target_find(&toy_targets, toy_machine.name), &toy_target);
    ck_assert_ptr_eq(sx_target_find(NULL, all->row[1]->machine->name), all->row[1]);
    ck_assert_uint_eq(all->count, sx_machines_all()->count);
    ck_assert_ptr_eq(sx_target_of(NULL, &toy_machine), NULL);
    const sx_machine *found;
    ck_sx_fails(&cx, sx_machine_of_module(&cx, NULL, toy_machine.name, &found), SX_UNIMPLEMENTED,
                "machine sm_75");
    for (uint32_t i = 0; i < all->count; i++) { /* module files know every machine by its name */
        uint32_t arch, level;
        const sx_machine *machine = all->row[i]->machine;
        ck_assert(sx_level_find(machine->name, &arch, &level));
        ck_assert_str_eq(sx_arch_name(arch), machine->family);
        ck_assert_uint_eq(level, machine->level);
        ck_sx_ok(&cx, sx_machine_of_module(&cx, NULL, machine->name, &found));
        ck_assert_ptr_eq(found, machine);
        ck_assert_ptr_eq(sx_machines_all()->row[i], machine);
        ck_assert_ptr_eq(sx_target_of(NULL, machine), all->row[i]);
    }
}
END_TEST

/* ---- kernels of each kind through all functions of a row ---- */

static sx_lowering lowering_of(const node *n, const sx_schedule *s)
{
    return (sx_lowering){
        .kind = SX_LOWER_FUSED, .name = "k", .schedule = s, .analysis = analysis_of(&cx, n)};
}

static test_tiles tiles_for(const sx_target *target, const node *n)
{
    bool dot = analysis_of(&cx, n)->kind == SX_KERNEL_DOT;
    return (test_tiles){.lanes = target->vectors.lanes,
                        .block_m = 4,
                        .block_nv = dot ? 2 : 1,
                        .tile_m = 16,
                        .tile_n = dot ? 48 : 64,
                        .unroll_k = 2};
}

static sx_kernel *lowered(const sx_target *target, const node *n)
{
    test_tiles tiles = tiles_for(target, n);
    sx_schedule s = schedule_of(analysis_of(&cx, n), &tiles);
    sx_lowering what = lowering_of(n, &s);
    sx_kernel *kernel;
    ck_sx_ok(&cx, sx_target_lower(&cx, target, &what, &kernel));
    return kernel;
}

static void make_regions(const sx_kernel *kernel, const node *n, sx_region *region)
{
    for (uint32_t k = 0; k < kernel->buffer_count; k++) {
        size_t size = (size_t)kernel->buffer[k].size;
        region[k] = (sx_region){.name = "a buffer",
                                .memory = sx_alloc(&cx, size + 64),
                                .size = size,
                                .writable = kernel->buffer[k].role != SX_BUFFER_IN};
        ck_assert_ptr_nonnull(region[k].memory);
        memset(region[k].memory, 0x5a, size);
        if (k < n->count) {
            memcpy(region[k].memory, n->raw[k], bytes_of(&n->input[k]));
        }
    }
}

static void emulate_all(const sx_target *target, const sx_kernel *kernel, sx_span blob,
                        const sx_target_code *code, sx_region *region)
{
    sx_emulator *emulator;
    uint32_t count = kernel->buffer_count;
    bool has_work = kernel->buffer[count - 1].role == SX_BUFFER_WORKSPACE;
    ck_sx_ok(&cx,
             target->emulator_make(&cx, target, blob, code->entry, code->entry_count, &emulator));
    for (uint32_t p = 0; p < kernel->part_count; p++) {
        const int64_t *grid = kernel->part[p].grid;
        int64_t points = grid[0] * grid[1] * grid[2];
        sx_emulation what = {.entry = code->entry[p],
                             .grid = {grid[0], grid[1], grid[2]},
                             .buffer = region,
                             .buffer_count = count - (has_work ? 1 : 0),
                             .workspace = has_work ? &region[count - 1] : NULL};
        /* The last ones first: their order must not matter. */
        for (int64_t end = points; end > 0; end = what.first) {
            what.first = end > 3 ? end / 2 : 0;
            what.count = end - what.first;
            ck_sx_ok(&cx, target->emulate(&cx, emulator, &what));
        }
    }
    ck_assert_uint_gt(target->emulated(emulator), 0);
}

/* The code passes its own check and gives the interpreter's bits, which are the result; damaged, it does not
 * pass. */
static const uint8_t *try_kernel(const sx_target *target, const node *n, const sx_kernel *kernel)
{
    sx_buf blob, text;
    sx_target_code code;
    sx_buf_init(&blob, (size_t)1 << 24);
    sx_buf_init(&text, (size_t)1 << 24);
    ck_sx_ok(&cx, target->emit(&cx, target, kernel, false, &blob, &code));
    ck_assert_uint_eq(code.entry_count, kernel->part_count);
    ck_sx_ok(&cx, target->machine->check(&cx, target->machine, sx_buf_span(&blob), code.entry, NULL,
                                         code.entry_count));
    target->print(target, sx_buf_span(&blob), "symbol", &text);
    ck_assert_uint_gt(text.len, 0);
    sx_region ours[SX_LOOP_BUFFERS_MAX], theirs[SX_LOOP_BUFFERS_MAX];
    void *memory[SX_LOOP_BUFFERS_MAX];
    make_regions(kernel, n, ours);
    make_regions(kernel, n, theirs);
    for (uint32_t k = 0; k < kernel->buffer_count; k++) {
        memory[k] = theirs[k].memory;
    }
    emulate_all(target, kernel, sx_buf_span(&blob), &code, ours);
    ck_sx_ok(&cx, sx_kernel_eval(&cx, kernel, memory));
    ck_assert_mem_eq(ours[n->count].memory, theirs[n->count].memory, bytes_of(&n->result));
    memset(blob.ptr + code.entry[0], 0, 4);
    ck_sx_fails(&cx,
                target->machine->check(&cx, target->machine, sx_buf_span(&blob), code.entry, NULL,
                                       code.entry_count),
                SX_INPUT, "");
    sx_ctx_reset_error(&cx);
    sx_buf_fini(&blob);
    sx_buf_fini(&text);
    return ours[n->count].memory;
}

/* A gradient of attention in f32: rows are queries, or keys (what is subtracted varies along the outer sum). */
static node gradient_node(uint32_t products, bool by_key)
{
    nested_shape s = nested_gradient(2, 41, 23, 20, by_key);
    s.products = products;
    return nested_node(&cx, &s);
}

static void try_code(const sx_target *target, const node *n)
{
    (void)try_kernel(target, n, lowered(target, n));
}

START_TEST(test_code_of_every_row)
{
    sx_rng rng = {sx_test_seed()};
    for (uint32_t i = 0; i < target_count(); i++) {
        node n[] = {map_node(&cx, 3, 5, 37),
                    dot_node(&cx, 9, 50, 21, SX_OP_RELU),
                    row_node(&cx, SX_OP_SOFTMAX, 6, 70, 1),
                    row_node(&cx, SX_OP_SOFTMAX, 70, 6, 0),
                    gradient_node(2, true),
                    gradient_node(1, false)};
        for (uint32_t k = 0; k < SX_COUNT(n); k++) {
            fill_inputs(&cx, &n[k], &rng, false);
            try_code(target_at(i), &n[k]);
        }
    }
}
END_TEST

/* ---- every element type ---- */

/* Small numbers, of which no sum leaves its type; indices below 5. */
static void fill_typed(node *n, sx_rng *rng)
{
    for (uint32_t k = 0; k < n->count; k++) {
        sx_dtype dtype = n->input[k].dtype;
        bool real = sx_dtype_class_of(dtype) == SX_CLASS_FLOAT;
        n->raw[k] = sx_alloc(&cx, bytes_of(&n->input[k]) + 8);
        ck_assert_ptr_nonnull(n->raw[k]);
        for (int64_t i = 0; i < sx_tensor_elements(&n->input[k]); i++) {
            int64_t whole = (int64_t)sx_rng_below(rng, dtype == SX_BOOL ? 2 : 5);
            uint64_t bits = real ? sx_num_encode(dtype, 0.25 + fabs((double)sx_rng_f32(rng)))
                                 : sx_num_int_encode(dtype, whole);
            sx_num_store(dtype, n->raw[k], (size_t)i, bits);
        }
    }
}

static sx_kernel *lowered_move(const sx_target *target, const node *n, sx_op op,
                               const sx_attr *attr)
{
    uint32_t bytes = sx_move_lane_bytes_of(op, n->input[0].dtype, n->result.dtype);
    test_tiles tiles = {.tile_m = 2, .tile_n = 64};
    tiles.lanes = sx_vector_unit_lanes(&target->vectors, bytes);
    sx_lowering what = {.kind = SX_LOWER_MOVE,
                        .name = "k",
                        .schedule = move_schedule(&cx, &tiles),
                        .op = op,
                        .attr = attr,
                        .input = n->input,
                        .input_count = n->count,
                        .result = &n->result};
    sx_kernel *kernel;
    ck_sx_ok(&cx, sx_target_lower(&cx, target, &what, &kernel));
    ck_assert_uint_eq(kernel->lanes, tiles.lanes);
    return kernel;
}

/* The kernel on every row: one class of rounding, one numerics plan and one result, any NaN being one. */
static void compare_rows(node *n, sx_op move, const sx_attr *attr, sx_rng *rng, const char *what)
{
    const uint8_t *result = NULL;
    uint64_t numerics = 0;
    fill_typed(n, rng);
    for (uint32_t i = 0; i < target_count(); i++) {
        const sx_target *target = target_at(i);
        sx_kernel *kernel =
            move == SX_OP_FUSED ? lowered(target, n) : lowered_move(target, n, move, attr);
        const uint8_t *got = try_kernel(target, n, kernel);
        bool first = strcmp(target->vectors.numerics, target_at(0)->vectors.numerics) == 0;
        if (first && result == NULL) {
            result = got;
            numerics = kernel->numerics;
        }
        ck_assert_msg(!first || kernel->numerics == numerics, "%s: %s has another plan", what,
                      target->machine->name);
        ck_assert_msg(!first || memcmp(got, result, bytes_of(&n->result)) == 0,
                      "%s of %s: %s has other bits", what, sx_dtype_name(n->result.dtype),
                      target->machine->name);
    }
}

/* Maps, and reductions along and across the last dimension. */
static void compare_fused(sx_dtype dtype, sx_rng *rng)
{
    sx_attr none = {.present = 0};
    sx_type both[2] = {TYPE(dtype, 3, 71), TYPE(dtype, 3, 71)};
    node map = lift(&cx, dtype == SX_BOOL ? SX_OP_XOR : SX_OP_ADD, &none, both, 2);
    compare_rows(&map, SX_OP_FUSED, NULL, rng, "map");
    for (uint32_t k = 0; k < 4; k++) {
        sx_attr attr = {.present = SX_A(dims) | SX_A(reducer), .dims = {1, {k % 2}}};
        attr.reducer = k < 2 || dtype == SX_BOOL ? SX_SUM : SX_MAX;
        sx_type x = k % 2 == 0 ? TYPE(dtype, 45, 35) : TYPE(dtype, 3, 117);
        node n = lift(&cx, SX_OP_REDUCE, &attr, &x, 1);
        compare_rows(&n, SX_OP_FUSED, NULL, rng, k % 2 == 0 ? "column" : "row");
    }
}

static void compare_moves(sx_dtype dtype, sx_rng *rng)
{
    static const sx_op ops[] = {SX_OP_CONCATENATE, SX_OP_GATHER, SX_OP_PAD, SX_OP_REVERSE};
    for (uint32_t k = 0; k < SX_COUNT(ops); k++) {
        sx_op op = ops[k];
        sx_attr attr = {.present = sx_op_info_of(op)->attrs};
        attr.axis = op == SX_OP_CONCATENATE;
        attr.dims = (sx_ints){1, {1}};
        attr.low = (sx_ints){2, {1, 2}};
        attr.high = (sx_ints){2, {0, 3}};
        attr.interior = (sx_ints){2, {0, 1}};
        node n = {.count = op == SX_OP_REVERSE ? 1 : 2, .input = {TYPE(dtype, 5, 37)}};
        n.input[1] = op == SX_OP_CONCATENATE ? TYPE(dtype, 5, 70)
                     : op == SX_OP_GATHER    ? TYPE(SX_I64, 7)
                                             : (sx_type){.dtype = dtype};
        ck_sx_ok(&cx, sx_infer_type(&cx, NULL, 0, op, &attr, n.input, n.count, &n.result));
        compare_rows(&n, op, &attr, rng, sx_op_info_of(op)->name);
    }
}

/* Rows of 37 elements and single ones, combined in every way that the type has. */
static void compare_scatters(sx_dtype dtype, sx_rng *rng)
{
    for (uint32_t k = 0; k <= SX_REPLACE; k++) {
        sx_attr attr = {.present = SX_A(axis) | SX_A(reducer), .axis = k % 2};
        attr.reducer = (sx_reducer)k;
        bool order = k == SX_MAX || k == SX_MIN;
        if (dtype == SX_BOOL && order) {
            continue;
        }
        node n = {.count = 3, .input = {TYPE(dtype, 4, 37), TYPE(k < 2 ? SX_I32 : SX_I64, 7)}};
        n.input[2] = attr.axis == 0 ? TYPE(dtype, 7, 37) : TYPE(dtype, 4, 7);
        ck_sx_ok(&cx,
                 sx_infer_type(&cx, NULL, 0, SX_OP_SCATTER, &attr, n.input, n.count, &n.result));
        compare_rows(&n, SX_OP_SCATTER, &attr, rng, "scatter");
    }
}

/* All elements of rows that lie side by side, and the first places of such that do not. */
static void compare_sorts(sx_dtype dtype, sx_rng *rng)
{
    for (uint32_t k = 1; k < 3; k++) {
        sx_attr attr = {.present = sx_op_info_of(SX_OP_SORT)->attrs, .axis = k % 2};
        attr.direction = k == 1 ? SX_LT : SX_GT;
        attr.count = k == 2 ? 33 : -1;
        attr.result = k / 2;
        node n = {.count = 1, .input = {k % 2 == 0 ? TYPE(dtype, 67, 2) : TYPE(dtype, 2, 67)}};
        ck_sx_ok(&cx, sx_infer_type(&cx, NULL, 0, SX_OP_SORT, &attr, n.input, 1, &n.result));
        compare_rows(&n, SX_OP_SORT, &attr, rng, "sort");
    }
}

static void compare_dynamic(sx_dtype dtype, sx_rng *rng)
{
    for (uint32_t k = 0; k < 4; k++) {
        sx_op op = k < 2 ? SX_OP_DYNAMIC_SLICE : SX_OP_DYNAMIC_UPDATE_SLICE;
        uint32_t first = k < 2 ? 1 : 2;
        bool both = k % 2 == 1;
        sx_attr attr = {.present = sx_op_info_of(op)->attrs, .dims = {1, {1}}};
        attr.sizes = (sx_ints){k < 2, {5}};
        node n = {.count = first + 1, .input = {TYPE(dtype, 3, 9, 13)}};
        n.input[1] = TYPE(dtype, 3, 5, both ? 11 : 13);
        n.input[first] = (sx_type){.dtype = SX_I64};
        if (both) { /* the last dimension has a start, too */
            attr.dims = (sx_ints){2, {1, 2}};
            attr.sizes = (sx_ints){k < 2 ? 2 : 0, {5, 11}};
            n.input[n.count++] = (sx_type){.dtype = SX_I32};
        }
        ck_sx_ok(&cx, sx_infer_type(&cx, NULL, 0, op, &attr, n.input, n.count, &n.result));
        compare_rows(&n, op, &attr, rng, sx_op_info_of(op)->name);
    }
}

START_TEST(test_every_type_on_every_row)
{
    sx_rng rng = {sx_test_seed()};
    for (uint32_t t = 0; t < SX_DTYPE_COUNT; t++) {
        compare_fused((sx_dtype)t, &rng);
        compare_moves((sx_dtype)t, &rng);
    }
}
END_TEST

START_TEST(test_places_of_every_type)
{
    sx_rng rng = {sx_test_seed()};
    compare_scatters((sx_dtype)_i, &rng);
    compare_dynamic((sx_dtype)_i, &rng);
    compare_sorts((sx_dtype)_i, &rng);
}
END_TEST

/* ---- what a row refuses ---- */

static void refuse(const sx_target *target, const char *schedule, sx_code code, const char *why)
{
    node n = dot_node(&cx, 9, 50, 21, SX_OP_RELU);
    sx_schedule s;
    sx_kernel *kernel;
    ck_sx_ok(&cx, sx_schedule_parse(&cx, sx_span_of(schedule), &s));
    sx_lowering what = lowering_of(&n, &s);
    ck_sx_fails(&cx, sx_target_lower(&cx, target, &what, &kernel), code, why);
    sx_ctx_reset_error(&cx);
}

START_TEST(test_refusals)
{
    const sx_target *target = sx_targets_all()->row[0];
    refuse(target, "grid(b, m/8) warp(n/16) loop(n/16, m/4, k/2) register(k, m, n/8) lane(n)",
           SX_UNIMPLEMENTED, "nothing to bind warp to");
    refuse(
        target,
        "grid(b, m/8, n/16) loop(n/16, m/4, k/2) register(k, m, n/8) lane(n) stage(arg1: shared)",
        SX_UNIMPLEMENTED, "stages nothing in shared");
    refuse(target, "grid(b, m/8, n/64) loop(n/64, m/4, k/2) register(k, m, n/32) lane(n)", SX_INPUT,
           "32 lanes");
    sx_target narrow = *target;
    narrow.memory_types = 1u << SX_BF16;
    refuse(&narrow, "grid(b, m/8, n/16) loop(n/16, m/4, k/2) register(k, m, n/8) lane(n)",
           SX_UNIMPLEMENTED, "has no f32 in memory");
    sx_target small = *target;
    small.vectors.registers = 8;
    refuse(&small, "grid(b, m/8, n/16) loop(n/16, m/4, k/2) register(k, m, n/8) lane(n)", SX_LIMIT,
           "more than 8 registers");
    refuse(&toy_warp, "grid(b, m/8, n/16) loop(n/16, m/4, k/2) register(k, m, n/8) lane(n)",
           SX_INPUT, "schedule of 8 lanes, target sm_110 has 32");
    /* as many registers as there are do not make a block as large as one likes */
    refuse(&toy_warp, "grid(b, m/31, n/320) loop(n/320, m/31, k/2) register(k, m, n/32) lane(n)",
           SX_LIMIT, "more than 255 registers");
}
END_TEST

/* Instructions that round differently never share the id of a numerics plan; the vector width is no difference. */
START_TEST(test_numerics_class)
{
    node n[] = {map_node(&cx, 3, 5, 37), dot_node(&cx, 9, 50, 21, SX_OP_RELU),
                row_node(&cx, SX_OP_SOFTMAX, 6, 70, 1), row_node(&cx, SX_OP_SOFTMAX, 70, 6, 0)};
    for (uint32_t i = 0; i < target_count(); i++) {
        for (uint32_t k = 0; k < i; k++) {
            const sx_target *a = target_at(i), *b = target_at(k);
            bool same = strcmp(a->vectors.numerics, b->vectors.numerics) == 0;
            ck_assert(same == (a != &toy_target && b != &toy_target));
            for (uint32_t j = 0; j < SX_COUNT(n); j++) {
                uint64_t x = lowered(a, &n[j])->numerics, y = lowered(b, &n[j])->numerics;
                ck_assert_msg((x == y) == same, "%s and %s, kernel %u: %llx and %llx",
                              a->machine->name, b->machine->name, j, (unsigned long long)x,
                              (unsigned long long)y);
            }
        }
    }
}
END_TEST

/* Every type that a row says its lanes compute with has a kernel, and no other has. */
START_TEST(test_lane_types)
{
    for (uint32_t i = 0; i < target_count(); i++) {
        const sx_target *target = target_at(i);
        for (uint32_t t = 0; t < SX_DTYPE_COUNT; t++) {
            sx_type input[2] = {TYPE((sx_dtype)t, 33), TYPE((sx_dtype)t, 33)};
            sx_attr none = {.present = 0};
            node n = lift(&cx, t == SX_BOOL ? SX_OP_AND : SX_OP_ADD, &none, input, 2);
            test_tiles tiles = tiles_for(target, &n);
            sx_schedule s = schedule_of(analysis_of(&cx, &n), &tiles);
            sx_lowering what = lowering_of(&n, &s);
            sx_kernel *kernel;
            bool lowers = sx_target_lower(&cx, target, &what, &kernel) == SX_OK;
            sx_ctx_reset_error(&cx);
            ck_assert_msg(lowers == (target->lane_types >> t & 1), "%s: %s %s",
                          target->machine->name, sx_dtype_name((sx_dtype)t),
                          lowers ? "lowers" : "does not lower");
        }
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("core.target");
    TCase *cases = tcase_create("target");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, test_table);
    tcase_add_test(cases, test_code_of_every_row);
    tcase_add_test(cases, test_every_type_on_every_row);
    tcase_add_loop_test(cases, test_places_of_every_type, 0, SX_DTYPE_COUNT);
    tcase_add_test(cases, test_refusals);
    tcase_add_test(cases, test_numerics_class);
    tcase_add_test(cases, test_lane_types);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
