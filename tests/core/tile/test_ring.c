/* Rings: places and bytes by hand; programs of roles against a machine with real barriers under random schedules. */
#include "tests/lib/test.h"

#include "core/base/rng.h"
#include "core/tile/ring.h"

static sx_ctx cx;

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)1 << 30);
}

static void teardown(void)
{
    sx_ctx_fini(&cx);
}

static sx_slot rows_of_128(uint32_t rows)
{
    sx_slot slot;
    ck_sx_ok(&cx, sx_slot_make(&cx, rows, 128, 128, 128, SX_SWIZZLE_128, &slot));
    return slot;
}

/* A stage of the 128 x 256 x 64 kernel of bf16. */
static sx_ring gemm_ring(uint32_t depth)
{
    sx_ring ring = {.depth = depth, .full_arrivals = 1, .empty_arrivals = 2};
    sx_dtype element = SX_BF16;
    sx_slot a = rows_of_128(128), b = rows_of_128(256);
    ck_sx_ok(&cx, sx_ring_add(&cx, &ring, &a, &element));
    ck_sx_ok(&cx, sx_ring_add(&cx, &ring, &b, &element));
    return ring;
}

START_TEST(test_places)
{
    sx_ring ring = gemm_ring(3);
    sx_slot slab[2] = {rows_of_128(256), rows_of_128(256)};
    uint32_t offset[2], bytes;
    ck_assert_uint_eq(sx_ring_stage_bytes(&ring), 49152);
    ck_assert_uint_eq(ring.tx_bytes, 49152);
    ck_sx_ok(&cx, sx_smem_place(&cx, &ring, 1, slab, 2, offset, &bytes));
    ck_assert_uint_eq(bytes, 214016); /* three stages and 64 KB */
    ck_assert_uint_eq(ring.offset, 1024);
    ck_assert_uint_eq(sx_ring_slot_offset(&ring, 2, 1), 1024 + 2 * 49152 + 16384);
    ck_assert_uint_eq(offset[0], 1024 + 3 * 49152);
    ck_assert_uint_eq(offset[1], offset[0] + 32768);
    ck_assert_uint_eq(sx_ring_full_barrier(&ring, 2), 32);
    ck_assert_uint_eq(sx_ring_empty_barrier(&ring, 2), 40);
    ring.depth = 4;
    ck_sx_fails(&cx, sx_smem_place(&cx, &ring, 1, slab, 2, offset, &bytes), SX_LIMIT,
                "263168 bytes, at most 232448; a depth of 3 fits");
    ck_sx_ok(&cx, sx_smem_place(&cx, &ring, 1, slab, 1, offset, &bytes));
    ck_assert_uint_eq(bytes, 230400);
    ck_assert_uint_eq(sx_ring_depth_that_fits(&ring, 1024 + 32768), 4);
    ck_assert_uint_eq(sx_ring_depth_that_fits(&ring, 232448), 0);
    ck_assert_uint_eq(sx_ring_depth_that_fits(&ring, 300000), 0);
    ring.depth = 17;
    ck_sx_fails(&cx, sx_smem_place(&cx, &ring, 1, slab, 1, offset, &bytes), SX_INPUT,
                "depth is 17");
}
END_TEST

/* Two rings: nothing overlaps, everything is aligned. */
START_TEST(test_places_do_not_overlap)
{
    sx_ring ring[2] = {gemm_ring(2), {.depth = 5, .full_arrivals = 1, .empty_arrivals = 1}};
    sx_slot plain, slab = rows_of_128(64);
    static uint8_t taken[SX_SMEM_BYTES_MAX];
    uint32_t offset, bytes, used = 0;
    ck_sx_ok(&cx, sx_slot_make(&cx, 10, 80, 80, 96, SX_SWIZZLE_NONE, &plain));
    ck_sx_ok(&cx, sx_ring_add(&cx, &ring[1], &plain, NULL));
    ck_assert_uint_eq(ring[1].tx_bytes, 0);
    ck_sx_ok(&cx, sx_smem_place(&cx, ring, 2, &slab, 1, &offset, &bytes));
    for (uint32_t r = 0; r < 2; r++) {
        for (uint32_t stage = 0; stage < ring[r].depth; stage++) {
            for (uint32_t i = 0; i < 8; i++) {
                taken[sx_ring_full_barrier(&ring[r], stage) + i]++;
                taken[sx_ring_empty_barrier(&ring[r], stage) + i]++;
            }
            for (uint32_t slot = 0; slot < ring[r].slot_count; slot++) {
                uint32_t at = sx_ring_slot_offset(&ring[r], stage, slot);
                ck_assert_uint_eq(at % ring[r].slot[slot].align, 0);
                for (uint32_t i = 0; i < ring[r].slot[slot].bytes; i++) {
                    taken[at + i]++;
                }
            }
        }
    }
    for (uint32_t i = 0; i < slab.bytes; i++) {
        taken[offset + i]++;
    }
    for (uint32_t i = 0; i < SX_SMEM_BYTES_MAX; i++) {
        ck_assert(taken[i] <= (i < bytes ? 1 : 0));
        used += taken[i];
    }
    ck_assert_uint_le(bytes - used, 1024); /* behind the barriers */
    sx_dtype element = SX_BF16;
    ck_sx_fails(&cx, sx_ring_add(&cx, &ring[1], &plain, &element), SX_INPUT, "leaves no gaps");
    for (uint32_t i = 1; i < SX_RING_SLOTS_MAX; i++) {
        ck_sx_ok(&cx, sx_ring_add(&cx, &ring[1], &plain, NULL));
    }
    ck_sx_fails(&cx, sx_ring_add(&cx, &ring[1], &plain, NULL), SX_LIMIT, "more than 4 slots");
}
END_TEST

/* ---- programs of roles ---- */

#define A SX_STEP_ACQUIRE
#define P SX_STEP_PUBLISH
#define W SX_STEP_WAIT
#define R SX_STEP_RELEASE
#define READ SX_STEP_READ
#define S SX_STEP_SETTLE

#define STEPS_MAX 10
typedef struct {
    uint32_t rings, roles;
    uint32_t full[2], empty[2]; /* arrivals */
    struct {
        const char *name;
        uint32_t body_count, tail_count;
        sx_step body[STEPS_MAX], tail[STEPS_MAX];
    } role[SX_ROLES_MAX];
} program;

/* One producer and two consuming warpgroups, which free a stage one step late. */
#define LOAD                                  \
    {                                         \
        "load", 2, 0, {{A, 0, 0}, {P, 0, 0}}, \
        {                                     \
            {                                 \
                0, 0, 0                       \
            }                                 \
        }                                     \
    }
#define MATH                                                           \
    {                                                                  \
        "math", 4, 2, {{W, 0, 0}, {READ, 0, 0}, {S, 0, 1}, {R, 0, 1}}, \
        {                                                              \
            {S, 0, 0},                                                 \
            {                                                          \
                R, 0, 0                                                \
            }                                                          \
        }                                                              \
    }
static const program gemm = {1, 3, {1}, {2}, {LOAD, MATH, MATH}};
static const program gemv = {
    1, 2, {1}, {1}, {LOAD, {"math", 2, 0, {{W, 0, 0}, {R, 0, 0}}, {{0, 0, 0}}}}};
/* Keys and values in rings of their own; both are read at once. */
static const program attention = {
    2,
    2,
    {1, 1},
    {1, 1},
    {{"load", 4, 0, {{A, 0, 0}, {P, 0, 0}, {A, 1, 0}, {P, 1, 0}}, {{0, 0, 0}}},
     {"math",
      8,
      0,
      {{W, 0, 0},
       {READ, 0, 0},
       {W, 1, 0},
       {READ, 1, 0},
       {S, 0, 1},
       {R, 0, 0},
       {S, 0, 0},
       {R, 1, 0}},
      {{0, 0, 0}}}}};
/* A role in between that rewrites what it got: it consumes one ring and produces the other. */
static const program relay = {
    2,
    3,
    {1, 1},
    {1, 1},
    {LOAD,
     {"cast", 4, 0, {{W, 0, 0}, {A, 1, 0}, {R, 0, 0}, {P, 1, 0}}, {{0, 0, 0}}},
     {"math", 2, 0, {{W, 1, 0}, {R, 1, 0}}, {{0, 0, 0}}}}};

static sx_code check(const program *p, uint32_t depth)
{
    sx_ring ring[2] = {
        {.depth = depth, .full_arrivals = p->full[0], .empty_arrivals = p->empty[0]},
        {.depth = depth, .full_arrivals = p->full[1], .empty_arrivals = p->empty[1]}};
    sx_role_steps role[SX_ROLES_MAX];
    for (uint32_t i = 0; i < p->roles; i++) {
        role[i] = (sx_role_steps){p->role[i].name, p->role[i].body, p->role[i].body_count,
                                  p->role[i].tail, p->role[i].tail_count};
    }
    return sx_rings_check(&cx, ring, p->rings, role, p->roles);
}

START_TEST(test_programs)
{
    static const program *const programs[] = {&gemm, &gemv, &attention, &relay};
    for (uint32_t i = 0; i < SX_COUNT(programs); i++) {
        for (uint32_t depth = programs[i] == &gemm ? 2 : 1; depth <= 4; depth++) {
            ck_sx_ok(&cx, check(programs[i], depth));
        }
    }
}
END_TEST

static const struct {
    program program;
    uint32_t depth;
    const char *error;
} faults[] = {
    /* a stage that is freed one step late needs two */
    {{1, 3, {1}, {2}, {LOAD, MATH, MATH}}, 1, "deadlock in 2 tiles of 2 steps"},
    /* one arrival frees for both warpgroups; two arrivals of one */
    {{1, 3, {1}, {1}, {LOAD, MATH, MATH}},
     2,
     "arrives for use 0 of ring 0 in phase 1, which is not its own"},
    {{1, 2, {1}, {2}, {LOAD, MATH}}, 2, "which all have released"},
    {{1, 3, {1}, {1}, {LOAD, LOAD, {"math", 2, 0, {{W, 0, 0}, {R, 0, 0}}, {{0, 0, 0}}}}},
     2,
     "before all have published it"},
    {{1, 2, {2}, {1}, {LOAD, MATH}}, 2, "which all have published"},
    /* freed before it is read to the end */
    {{1,
      2,
      {1},
      {1},
      {LOAD,
       {"math", 4, 2, {{W, 0, 0}, {READ, 0, 0}, {S, 0, 1}, {R, 0, 0}}, {{S, 0, 0}, {R, 0, 0}}}}},
     2,
     "releases use 0 of ring 0 while it is read"},
    {{1,
      2,
      {1},
      {1},
      {LOAD,
       {"math", 4, 2, {{W, 0, 0}, {READ, 0, 0}, {S, 0, 1}, {R, 0, 1}}, {{S, 0, 1}, {R, 0, 0}}}}},
     2,
     "while it is read"},
    /* the last stage of a tile is never freed */
    {{1,
      2,
      {1},
      {1},
      {LOAD, {"math", 4, 1, {{W, 0, 0}, {READ, 0, 0}, {S, 0, 1}, {R, 0, 1}}, {{S, 0, 0}}}}},
     2,
     "2 waited for, 0 released"},
    {{1, 2, {1}, {1}, {LOAD, {"math", 3, 0, {{W, 0, 0}, {R, 0, 0}, {R, 0, 0}}, {{0, 0, 0}}}}},
     2,
     "releases use 0 of ring 0, the next to release is 1"},
    {{1, 2, {1}, {1}, {{"load", 1, 0, {{A, 0, 0}}, {{0, 0, 0}}}, MATH}},
     2,
     "2 acquired, 0 published"},
    {{1, 2, {1}, {1}, {{"load", 1, 0, {{P, 0, 0}}, {{0, 0, 0}}}, MATH}},
     2,
     "publishes ring 0 without a stage"},
    {{1, 2, {1}, {1}, {LOAD, {"math", 1, 0, {{READ, 0, 0}}, {{0, 0, 0}}}}},
     2,
     "reads ring 0 without a stage"},
    /* each waits for what the other makes later */
    {{2,
      2,
      {1, 1},
      {1, 1},
      {{"one", 4, 0, {{W, 0, 0}, {R, 0, 0}, {A, 1, 0}, {P, 1, 0}}, {{0, 0, 0}}},
       {"two", 4, 0, {{W, 1, 0}, {R, 1, 0}, {A, 0, 0}, {P, 0, 0}}, {{0, 0, 0}}}}},
     2,
     "deadlock in 2 tiles of 1 steps: role one waits for use 0 of ring 0"},
    /* the consumer takes one more than there is */
    {{1, 2, {1}, {1}, {LOAD, {"math", 2, 2, {{W, 0, 0}, {R, 0, 0}}, {{W, 0, 0}, {R, 0, 0}}}}},
     2,
     "deadlock in 2 tiles of 0"},
    {{1, 2, {1}, {0}, {LOAD, MATH}}, 2, "arrivals 1 and 0"},
    {{1, 2, {1}, {1}, {LOAD, MATH}}, 17, "depth is 17 (from 1 to 16)"},
};

START_TEST(test_faults)
{
    ck_sx_fails(&cx, check(&faults[_i].program, faults[_i].depth), SX_INPUT, faults[_i].error);
}
END_TEST

START_TEST(test_fuel)
{
    cx.fuel = 50;
    ck_sx_fails(&cx, check(&gemm, 4), SX_QUOTA, "");
    cx.fuel = SX_FUEL_DEFAULT;
    program wide = attention; /* 4 events for each step of 4 roles: 121^4 states */
    wide.roles = 4;
    wide.role[1].body_count = 4;
    memcpy(wide.role[1].body, (sx_step[]){{W, 0, 0}, {R, 0, 0}, {W, 1, 0}, {R, 1, 0}},
           4 * sizeof(sx_step));
    wide.role[2] = wide.role[3] = wide.role[1];
    wide.empty[0] = wide.empty[1] = 3;
    ck_sx_fails(&cx, check(&wide, 16), SX_LIMIT, "more than 16777216 states");
}
END_TEST

/* ---- a machine with barriers ---- */

typedef struct {
    uint32_t pending, expected, phase;
} barrier;

typedef struct {
    barrier full[16], empty[16];
    uint32_t content[16]; /* the use whose data lies in the stage */
} ring_state;

typedef struct {
    uint32_t tile, step, at; /* in the tail where step is the number of trips */
    uint32_t acquired[2], published[2], waited[2], released[2], tile_waited[2];
    uint32_t held[64][2], held_count; /* ring and use of the stages that are held to be read */
} runner;

static void arrive(barrier *b)
{
    b->pending--;
    if (b->pending == 0) {
        b->pending = b->expected;
        b->phase++;
    }
}

/* mbarrier.try_wait.parity: has the phase of this parity completed last? */
static bool passed(const barrier *b, uint32_t parity)
{
    return b->phase % 2 != parity;
}

/* One step of a role: 0 it waits, 1 done, 2 it saw data of another use. */
static int run_step(const sx_step *s, uint32_t depth, ring_state *rings, runner *r)
{
    ring_state *ring = &rings[s->ring];
    uint32_t number;
    switch ((sx_step_op)s->op) {
    case SX_STEP_ACQUIRE:
        number = r->acquired[s->ring];
        if (!passed(&ring->empty[number % depth], 1 - number / depth % 2)) {
            return 0;
        }
        ring->content[number % depth] = UINT32_MAX; /* being written from now on */
        r->acquired[s->ring]++;
        return 1;
    case SX_STEP_PUBLISH:
        number = r->published[s->ring]++;
        ring->content[number % depth] = number;
        arrive(&ring->full[number % depth]);
        return 1;
    case SX_STEP_WAIT:
        number = r->waited[s->ring];
        if (!passed(&ring->full[number % depth], number / depth % 2)) {
            return 0;
        }
        r->waited[s->ring]++;
        return ring->content[number % depth] == number ? 1 : 2;
    case SX_STEP_RELEASE:
        if (r->waited[s->ring] - r->tile_waited[s->ring] <= s->back) {
            return 1;
        }
        number = r->released[s->ring]++;
        int seen = ring->content[number % depth] == number ? 1 : 2; /* still there at the end */
        arrive(&ring->empty[number % depth]);
        return seen;
    case SX_STEP_READ:
    case SX_STEP_SETTLE: return 1;
    }
    return 2;
}

/* Does the program end, having seen only what it waited for, under one random schedule? */
static bool runs(sx_rng *rng, const program *p, uint32_t depth, uint32_t trips, uint32_t tiles)
{
    static ring_state rings[2];
    static runner roles[SX_ROLES_MAX];
    memset(rings, 0, sizeof(rings));
    memset(roles, 0, sizeof(roles));
    for (uint32_t i = 0; i < 2 * depth; i++) {
        ring_state *ring = &rings[i % 2];
        ring->full[i / 2] = (barrier){p->full[i % 2], p->full[i % 2], 0};
        ring->empty[i / 2] = (barrier){p->empty[i % 2], p->empty[i % 2], 0};
        ring->content[i / 2] = UINT32_MAX;
    }
    uint32_t favourite = (uint32_t)sx_rng_below(rng, p->roles), idle = 0, done = 0;
    while (done < p->roles && idle < 200) {
        uint32_t i = sx_rng_below(rng, 4) != 0 ? favourite : (uint32_t)sx_rng_below(rng, p->roles);
        favourite = sx_rng_below(rng, 16) == 0 ? (uint32_t)sx_rng_below(rng, p->roles) : favourite;
        runner *r = &roles[i];
        bool tail = r->step == trips;
        uint32_t count = tail ? p->role[i].tail_count : p->role[i].body_count;
        if (r->tile == tiles) {
            idle++;
            continue;
        }
        if (r->at == count) {
            r->at = 0;
            r->step = tail ? 0 : r->step + 1;
            if (tail) {
                memcpy(r->tile_waited, r->waited, sizeof(r->waited));
                done += ++r->tile == tiles;
            }
            continue;
        }
        int result =
            run_step(tail ? &p->role[i].tail[r->at] : &p->role[i].body[r->at], depth, rings, r);
        if (result == 2) {
            return false;
        }
        r->at += result == 1;
        idle = result == 1 ? 0 : idle + 1;
    }
    return done == p->roles;
}

/* One step deleted, exchanged with its neighbour, or with another number. */
static program mutated(sx_rng *rng, const program *from)
{
    program p = *from;
    uint32_t i = (uint32_t)sx_rng_below(rng, p.roles), n = p.role[i].body_count;
    uint32_t at = (uint32_t)sx_rng_below(rng, n), kind = (uint32_t)sx_rng_below(rng, 5);
    sx_step *body = p.role[i].body, kept = body[at];
    if (kind == 0) {
        memmove(&body[at], &body[at + 1], (n - at - 1) * sizeof(body[0]));
        p.role[i].body_count--;
    } else if (kind == 1 && at + 1 < n) {
        body[at] = body[at + 1];
        body[at + 1] = kept;
    } else if (kind == 2) {
        body[at].back = (uint8_t)sx_rng_below(rng, 3);
    } else if (kind == 3) {
        body[at].ring = (uint8_t)sx_rng_below(rng, p.rings);
    } else {
        p.empty[0] += (uint32_t)sx_rng_below(rng, 2);
        p.full[0] += (uint32_t)sx_rng_below(rng, 2);
    }
    return p;
}

/* What the check accepts runs under every schedule that is tried, for other numbers of steps and tiles than the
 * check's; what it refuses is most of what was changed. */
START_TEST(test_accepted_programs_run)
{
    sx_rng rng = {sx_test_seed()};
    static const program *const programs[] = {&gemm, &gemv, &attention, &relay};
    uint32_t accepted = 0, refused = 0, failing = 0;
    for (uint32_t trial = 0; trial < sx_test_trials(300); trial++) {
        program p = *programs[sx_rng_below(&rng, 4)];
        uint32_t changes = (uint32_t)sx_rng_below(&rng, 3),
                 depth = 1 + (uint32_t)sx_rng_below(&rng, 3);
        for (uint32_t i = 0; i < changes; i++) {
            p = mutated(&rng, &p);
        }
        bool holds = check(&p, depth) == SX_OK, ran = true;
        sx_ctx_reset_error(&cx);
        for (uint32_t i = 0; i < 40; i++) {
            bool run = runs(&rng, &p, depth, (uint32_t)sx_rng_below(&rng, 3 * depth + 2), 3);
            ck_assert(!holds || run);
            ran &= run;
        }
        accepted += holds;
        refused += !holds;
        failing += !ran;
    }
    ck_assert(accepted > 0 && refused > 0 && failing > 0);
}
END_TEST

/* Every step left out: refused, but for the beginning of a read, which orders nothing unless a settle counts it. */
START_TEST(test_every_step_counts)
{
    static const program *const programs[] = {&gemm, &gemv, &attention, &relay};
    for (uint32_t i = 0; i < SX_COUNT(programs); i++) {
        for (uint32_t r = 0; r < programs[i]->roles; r++) {
            for (uint32_t at = 0; at < programs[i]->role[r].body_count; at++) {
                program p = *programs[i];
                sx_step *body = p.role[r].body, left_out = body[at];
                memmove(&body[at], &body[at + 1],
                        (p.role[r].body_count - at - 1) * sizeof(body[0]));
                p.role[r].body_count--;
                bool counted = programs[i] == &attention && at == 3;
                bool harmless = left_out.op == SX_STEP_READ && !counted;
                ck_assert_msg((check(&p, 2) == SX_OK) == harmless, "program %u role %u step %u", i,
                              r, at);
                sx_ctx_reset_error(&cx);
            }
        }
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("core/tile/ring");
    TCase *tc = tcase_create("ring");
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, test_places);
    tcase_add_test(tc, test_places_do_not_overlap);
    tcase_add_test(tc, test_programs);
    tcase_add_loop_test(tc, test_faults, 0, SX_COUNT(faults));
    tcase_add_test(tc, test_fuel);
    tcase_add_test(tc, test_accepted_programs_run);
    tcase_add_test(tc, test_every_step_counts);
    suite_add_tcase(suite, tc);
    return sx_test_main(suite);
}
