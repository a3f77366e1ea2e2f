/* pieces.h - attention of few queries by pieces of keys: both nodes of a case, and the first launch, which makes sums
 * and statistics of the pieces. */
#ifndef SX_TESTS_CORE_NVIDIA_PIECES_H
#define SX_TESTS_CORE_NVIDIA_PIECES_H
#include "core/kernel/online_pieces.h"
#include "tests/core/nvidia/online.h"

#define PIECES_STAGE 64 /* keys */

/* Both nodes of a case, with the arguments of the first one as a node of its own. */
typedef struct {
    sx_ctx cx;
    online_case c;
    online_node o;
    const sx_analysis *a;
    sx_online_pieces *nodes;
    node sums;
} pieces_setting;

static inline void pieces_fill(pieces_setting *s, sx_rng *rng, bool exact)
{
    const online_case *c = &s->c;
    for (uint32_t k = ONLINE_Q; k <= ONLINE_V; k++) {
        for (int64_t i = 0; i < sx_tensor_elements(&s->o.n.input[s->o.at[k]]); i++) {
            double whole = (double)sx_rng_below(rng, 3) - 1;
            online_set(&s->cx, &s->o, k, i, exact ? whole : (double)sx_rng_f32(rng));
        }
    }
    for (int64_t i = 0; c->mask && i < c->rows * c->keys;
         i++) { /* of row 0 the first piece is hidden */
        bool hidden = i < 512 || (c->rows > 1 && i / c->keys == 1);
        online_set(&s->cx, &s->o, ONLINE_MASK, i, hidden ? -HUGE_VAL : (double)sx_rng_f32(rng));
    }
}

static inline void pieces_setup(pieces_setting *s, const online_case *c, sx_rng *rng)
{
    memset(s, 0, sizeof(*s));
    sx_ctx_init(&s->cx, SX_ARENA_DEFAULT);
    s->c = *c;
    s->o = online_make(&s->cx, c);
    pieces_fill(s, rng, false);
    s->a = analysis_of(&s->cx, &s->o.n);
    int64_t piece = sx_online_piece(s->a);
    ck_assert_int_ge(piece, SX_PIECE_KEYS_LEAST);
    s->nodes = SX_NEW(&s->cx, sx_online_pieces);
    ck_assert_ptr_nonnull(s->nodes);
    sx_code code = sx_online_pieces_make(&s->cx, s->a, piece, s->nodes);
    ck_assert_msg(code == SX_OK, "%s", s->cx.error.text);
    s->sums = (node){.fused = s->nodes->partial,
                     .count = s->nodes->argument_count,
                     .result = s->nodes->partial_analysis.result};
    for (uint32_t k = 0; k < s->sums.count; k++) {
        s->sums.input[k] = s->nodes->partial_input[k];
        s->sums.raw[k] = s->o.n.raw[s->nodes->argument[k]];
    }
}

static inline sx_code pieces_lower(pieces_setting *s, const sx_target *target, int64_t rows,
                                   uint32_t depth, sx_kernel **kernel)
{
    const sx_analysis *a = &s->nodes->partial_analysis;
    sx_online_blocks blocks = {.matrix_rows = 16,
                               .matrix_columns = 8,
                               .matrix_steps = 16,
                               .rows = rows,
                               .warp_rows = 16,
                               .keys = PIECES_STAGE,
                               .depth = depth,
                               .query = a->lhs,
                               .key = a->rhs,
                               .value = a->value};
    sx_schedule schedule;
    sx_schedule_online_blocks(&blocks, &schedule);
    sx_lowering what = {
        .kind = SX_LOWER_FUSED, .name = "pieces", .analysis = a, .schedule = &schedule};
    return sx_target_lower(&s->cx, target, &what, kernel);
}

static inline sx_kernel *pieces_sums_of(pieces_setting *s, int64_t rows, uint32_t depth)
{
    sx_kernel *kernel;
    sx_code code = pieces_lower(s, &sx_target_sm_80, rows, depth, &kernel);
    ck_assert_msg(code == SX_OK, "%s", s->cx.error.text);
    return kernel;
}

/* The first launch in the interpreter of PTX. */
static inline sx_code pieces_run(pieces_setting *s, sx_ctx *cx, const sx_kernel *kernel,
                                 const sx_ptx_module *module, uint64_t seed, bool lazy,
                                 uint8_t *const out[SX_PIECE_RESULTS])
{
    launches l;
    uint32_t last = s->sums.count + SX_PIECE_STATISTIC;
    tiles_begin(&l, kernel, module, &s->sums, out[SX_PIECE_SUM]);
    launch_out(&l, "statistics", out[SX_PIECE_STATISTIC], (size_t)kernel->buffer[last].size);
    return launch_run(cx, &l, seed, lazy);
}

static inline void pieces_make_room(pieces_setting *s, const sx_kernel *kernel,
                                    uint8_t *out[SX_PIECE_RESULTS])
{
    for (uint32_t k = 0; k < SX_PIECE_RESULTS; k++) {
        out[k] = exact_buffer(&s->cx, kernel->buffer[s->sums.count + k].size);
    }
}
#endif
