/* tiles.h - contractions as programs of blocks: nodes, schedules, and launches in the interpreter of PTX. */
#ifndef SX_TESTS_CORE_NVIDIA_TILES_H
#define SX_TESTS_CORE_NVIDIA_TILES_H
#include "core/ir/num.h"
#include "core/nvidia/tile.h"
#include "core/target/target.h"
#include "core/tile/program.h"
#include "tests/core/loop/nodes.h"
#include "tests/core/simt/launches.h"

#define TILES_SHARED_MAX (99u << 10)

/* A contraction [b, m, k] x [b, k, n]; the last two dimensions of each may lie the other way round. */
typedef struct {
    sx_dtype dtype;
    int64_t b, m, k, n;
    bool left_turned, right_turned;
    /* 0: nothing; 1: + column, max 0; 2: gelu, + residual; 3: the result turned; 4: as f32, times column; 5: + the
     * last columns of a tensor that has one more */
    uint32_t after;
    bool widened; /* products of bf16 and f16 as f32, of bytes as i32 */
} tiles_case;

static inline node tiles_convert(sx_ctx *cx, const sx_type *from, sx_dtype dtype)
{
    sx_attr attr = {.present = SX_A(type), .type = *from};
    attr.type.dtype = dtype;
    return lift(cx, SX_OP_CONVERT, &attr, from, 1);
}

/* The product of both as elements that hold theirs. */
static inline node tiles_widened(sx_ctx *cx, const sx_attr *attr, const sx_type *x)
{
    bool real = sx_dtype_class_of(x[0].dtype) == SX_CLASS_FLOAT;
    node wide[2];
    sx_type both[2];
    for (uint32_t k = 0; k < 2; k++) {
        wide[k] = tiles_convert(cx, &x[k], real ? SX_F32 : SX_I32);
        both[k] = wide[k].result;
    }
    node d = lift(cx, SX_OP_DOT_GENERAL, attr, both, 2);
    d = inlined(cx, &d, 0,
                &wide[0]); /* the arguments are now the right one and then the left one */
    return inlined(cx, &d, 0, &wide[1]);
}

/* x + the last columns of a tensor [b, m, n + 1]: no row of it begins where one of the result does. */
static inline node tiles_with_part(sx_ctx *cx, const node *x)
{
    sx_type whole = x->result;
    whole.dim[2] = sx_dim_of(whole.dim[2].scale + 1);
    sx_attr last = {.present = sx_op_info_of(SX_OP_SLICE)->attrs};
    last.start = (sx_ints){3, {0, 0, 1}};
    last.limit = (sx_ints){3, {whole.dim[0].scale, whole.dim[1].scale, whole.dim[2].scale}};
    last.stride = (sx_ints){3, {1, 1, 1}};
    node part = lift(cx, SX_OP_SLICE, &last, &whole, 1);
    sx_attr none = {.present = 0};
    sx_type both[2] = {x->result, part.result};
    node n = lift(cx, SX_OP_ADD, &none, both, 2);
    n = inlined(cx, &n, 1, &part);
    return inlined(cx, &n, 0, x);
}

static inline node tiles_node(sx_ctx *cx, const tiles_case *c)
{
    sx_attr attr = {.present = SX_A(lhs_batch) | SX_A(rhs_batch) | SX_A(lhs_contract) |
                               SX_A(rhs_contract)};
    attr.lhs_batch = attr.rhs_batch = (sx_ints){1, {0}};
    attr.lhs_contract = (sx_ints){1, {c->left_turned ? 1 : 2}};
    attr.rhs_contract = (sx_ints){1, {c->right_turned ? 2 : 1}};
    const sx_type x[2] = {
        c->left_turned ? TYPE(c->dtype, c->b, c->k, c->m) : TYPE(c->dtype, c->b, c->m, c->k),
        c->right_turned ? TYPE(c->dtype, c->b, c->n, c->k) : TYPE(c->dtype, c->b, c->k, c->n)};
    node d = c->widened ? tiles_widened(cx, &attr, x) : lift(cx, SX_OP_DOT_GENERAL, &attr, x, 2);
    sx_dtype dtype = d.result.dtype;
    if (c->after == 1) {
        d = with_tensor(cx, SX_OP_ADD, &d, TYPE(dtype, c->n));
        d = with_tensor(cx, SX_OP_MAXIMUM, &d, TYPE(dtype, c->n));
    } else if (c->after == 2) {
        bool real = sx_dtype_class_of(dtype) == SX_CLASS_FLOAT;
        d = unary(cx, real ? SX_OP_TANH : SX_OP_NEGATE, &d);
        d = with_tensor(cx, SX_OP_ADD, &d, TYPE(dtype, c->b, c->m, c->n));
    } else if (c->after == 4) {
        node f32 = tiles_convert(cx, &d.result, SX_F32);
        d = inlined(cx, &f32, 0, &d);
        d = with_tensor(cx, SX_OP_MULTIPLY, &d, TYPE(SX_F32, c->n));
    } else if (c->after == 5) {
        d = tiles_with_part(cx, &d);
    } else if (c->after == 3) {
        sx_attr perm = {.present = SX_A(perm), .perm = {3, {0, 2, 1}}};
        node t = lift(cx, SX_OP_TRANSPOSE, &perm, &d.result, 1);
        d = inlined(cx, &t, 0, &d);
    }
    return d;
}

/* Numbers of the type: integers from -4 to 4 if `exact`, else from [-1, 1), or any integers. */
static inline void tiles_fill(sx_ctx *cx, node *n, sx_rng *rng, bool exact)
{
    for (uint32_t k = 0; k < n->count; k++) {
        sx_dtype dtype = n->input[k].dtype;
        uint32_t bytes = sx_dtype_bytes(dtype);
        n->raw[k] = sx_alloc(cx, bytes_of(&n->input[k]) + 16);
        ck_assert_ptr_nonnull(n->raw[k]);
        for (int64_t i = 0; i < sx_tensor_elements(&n->input[k]); i++) {
            double value = exact ? (double)sx_rng_below(rng, 9) - 4.0 : (double)sx_rng_f32(rng);
            bool real = sx_dtype_class_of(dtype) == SX_CLASS_FLOAT;
            uint64_t bits = real    ? sx_num_encode(dtype, value)
                            : exact ? sx_num_int_encode(dtype, (int64_t)value)
                                    : sx_rng_next(rng);
            memcpy(n->raw[k] + bytes * i, &bits, bytes);
        }
    }
}

/* The plan of the numerics id: groups of 16 products in ascending order, each sum rounded once (as the interpreter of
 * PTX has it; a GPU rounds the sum within a group in its own way). */
static inline float tiles_folded(const node *n, int64_t k, int64_t row, int64_t column,
                                 int64_t columns)
{
    float sum = 0;
    for (int64_t g = 0; g < k; g += 16) {
        long double exact = (long double)sum;
        for (int64_t i = g; i < k && i < g + 16; i++) {
            sx_dtype dtype = n->input[0].dtype;
            double x = sx_num_decode(dtype, sx_num_load(dtype, n->raw[0], (size_t)(row * k + i)));
            double y =
                sx_num_decode(dtype, sx_num_load(dtype, n->raw[1], (size_t)(i * columns + column)));
            exact += (long double)x * (long double)y;
        }
        sum = (float)exact;
    }
    return sum;
}

static inline sx_tile_unit tiles_unit(const sx_target *target)
{
    return (sx_tile_unit){.vectors = &target->vectors,
                          .matrix = target->matrix,
                          .matrix_count = target->matrix_count + target->rounding_count,
                          .shared_bytes =
                              target->machine->level == 90 ? SX_SMEM_BYTES_MAX : TILES_SHARED_MAX,
                          .threads = 1024,
                          .registers = 65536};
}

static inline sx_code tiles_lower(sx_ctx *cx, const sx_target *target, const node *n,
                                  sx_block_tiles tiles, sx_kernel **kernel)
{
    const sx_analysis *a = analysis_of(cx, n);
    sx_schedule s;
    sx_tile_unit unit = tiles_unit(target);
    tiles.left = tiles.swapped ? a->rhs : a->lhs;
    tiles.right = tiles.swapped ? a->lhs : a->rhs;
    sx_schedule_block(&tiles, &s);
    return sx_tile_lower_dot(cx, &unit, "block", a, &s, kernel);
}

static inline sx_code tiles_emit(sx_ctx *cx, const sx_kernel *kernel, uint32_t level,
                                 sx_ptx_module **module)
{
    char feature = sx_nvidia_tile_feature(kernel->part[0].tile, 0);
    sx_code code = sx_ptx_module_make(cx, level, feature, module);
    return code == SX_OK ? sx_nvidia_of_tile(cx, kernel, 0, *module) : code;
}

static inline sx_ptx_module *tiles_module(sx_ctx *cx, const sx_kernel *kernel, uint32_t level)
{
    sx_ptx_module *module;
    sx_code code = tiles_emit(cx, kernel, level, &module);
    ck_assert_msg(code == SX_OK, "%s", cx->error.text);
    return module;
}

/* The map of an argument or the result, as the driver would encode it. */
static inline void tiles_give_map(launches *l, const sx_tile_view *view, const sx_tensor_map *map)
{
    uint32_t i = l->launch.argument_count++;
    ck_assert_uint_lt(i, LAUNCH_ARGUMENTS_MAX);
    l->map[i] = (sx_ptx_tensor_map){
        .region = 1 + view->buffer,
        .offset = (uint64_t)view->offset * sx_dtype_bytes(view->element),
        .rank = map->rank,
        .element_bytes = (uint8_t)sx_dtype_bytes(map->element),
        .swizzle_bytes =
            (uint8_t)(map->swizzle == SX_SWIZZLE_NONE ? 0 : sx_swizzle_bytes(map->swizzle))};
    memcpy(l->map[i].dims, map->dims, sizeof(map->dims));
    memcpy(l->map[i].strides, map->strides, sizeof(map->strides));
    memcpy(l->map[i].box, map->box, sizeof(map->box));
    l->argument[i] = (sx_ptx_argument){.map = &l->map[i]};
}

/* A launch of the block's program. */
static inline void tiles_begin(launches *l, const sx_kernel *kernel, const sx_ptx_module *module,
                               const node *n, uint8_t *out)
{
    const sx_part *part = &kernel->part[0];
    ck_assert(kernel->part_count == 1 && part->tile != NULL);
    bool folded = part->grid[0] > 65535 || part->grid[1] > 65535; /* as docs/MODULE.md has it */
    uint32_t all = (uint32_t)(part->grid[0] * part->grid[1] * part->grid[2]);
    uint32_t walkers = part->tile->walkers;
    sx_ptx_dim points = {(uint32_t)part->grid[2], (uint32_t)part->grid[1], (uint32_t)part->grid[0]};
    points = folded ? (sx_ptx_dim){all, 1, 1} : points;
    launch_begin(l, module, module->kernel[0].name,
                 walkers > 0 ? (sx_ptx_dim){walkers < all ? walkers : all, 1, 1} : points,
                 (sx_ptx_dim){part->tile->threads, 1, 1});
    l->launch.dynamic_shared_bytes = part->tile->shared_bytes;
    for (uint32_t k = 0; k < n->count; k++) {
        launch_in(l, "argument", n->raw[k], bytes_of(&n->input[k]));
    }
    launch_out(l, "result", out, bytes_of(&n->result));
    const sx_tile *tile = part->tile;
    for (uint32_t i = 0; i < 2 && tile->by_engine; i++) {
        tiles_give_map(l, &tile->operand[i].view, &tile->operand[i].boxes.map);
        l->launch.shared_bytes_max = SX_SMEM_BYTES_MAX;
    }
    if (tile->store.depth > 0) {
        tiles_give_map(l, &tile->store.view, &tile->store.boxes.map);
    }
}

/* Runs it, at most so many instructions of all threads if that is not 0. */
static inline sx_code tiles_run_within(sx_ctx *cx, const sx_kernel *kernel,
                                       const sx_ptx_module *module, const node *n, uint64_t seed,
                                       bool lazy, uint8_t *out, uint64_t instructions_max,
                                       sx_ptx_statistics *statistics)
{
    launches l;
    tiles_begin(&l, kernel, module, n, out);
    l.launch.instructions_max = instructions_max;
    sx_code code = launch_run(cx, &l, seed, lazy);
    if (statistics != NULL) {
        *statistics = l.outcome.statistics;
    }
    return code;
}

/* The same without a limit. */
static inline sx_code tiles_run(sx_ctx *cx, const sx_kernel *kernel, const sx_ptx_module *module,
                                const node *n, uint64_t seed, bool lazy, uint8_t *out,
                                sx_ptx_statistics *statistics)
{
    return tiles_run_within(cx, kernel, module, n, seed, lazy, out, 0, statistics);
}

#define KILLED_INSTRUCTIONS_MAX (1 << 22) /* of a loop that does not end */

/* Is the kernel stopped at a fault, or gives another result, in one of three orders? */
static inline bool tiles_are_killed(const sx_kernel *kernel, const sx_ptx_module *module,
                                    const node *n, const uint8_t *want, uint8_t *got)
{
    for (uint64_t order = 0; order < 3; order++) {
        sx_ctx inner;
        sx_ctx_init(&inner, (size_t)1 << 28);
        memset(got, 0xCC, bytes_of(&n->result));
        sx_code code = tiles_run_within(&inner, kernel, module, n, order, order != 1, got,
                                        KILLED_INSTRUCTIONS_MAX, NULL);
        sx_ctx_fini(&inner);
        if (code != SX_OK || memcmp(got, want, bytes_of(&n->result)) != 0) {
            return true;
        }
    }
    return false;
}
#endif
