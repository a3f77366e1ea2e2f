/* Faults planted in emitted programs: each is refused by sx_kernel_check or by the judge, or the program is
 * the same bit for bit all the same. A mutant that is proven and differs is the one thing that must not be. Two
 * oracles say so, which share nothing with the judge: the interpreter, on random inputs, and provenance.h, which
 * finds that each place of the result is one and the same expression over the same elements. What provenance
 * cannot tell (a rule about NaN that holds for the numbers at hand) is counted. */
#include "tests/core/judge/try.h"

#include "core/search/search.h"
#include "tests/core/judge/provenance.h"
#include "tests/lib/unit.h"

typedef enum {
    FAULT_COEFFICIENTS, /* of two variables exchanged in one address */
    FAULT_TRIP_SHORT,
    FAULT_TRIP_LONG,
    FAULT_GRID_STEP, /* tiles overlap: the same part of the step missing in every address */
    FAULT_LANES,
    FAULT_NO_STEP, /* an accumulating instruction is gone */
    FAULT_STRIDE,
    FAULT_NO_RESET, /* a constant moves in front of, or behind, its neighbour */
    FAULT_OPERANDS,
    FAULT_NO_STORE,
    FAULT_OFFSET,
    FAULT_CONSTANT,
    FAULT_OPERATION,
    FAULT_ORDER, /* two neighbouring instructions exchanged */
    FAULT_REGISTER,
    FAULT_BUFFER,
    FAULT_DISTANCE, /* lanes exchanged with others */
    FAULT_COUNT
} fault;
static const char *const fault_names[FAULT_COUNT] = {
    "coefficients", "trip - 1", "trip + 1", "grid step", "lanes",   "no step",
    "stride",       "no reset", "operands", "no store",  "offset",  "constant",
    "operation",    "order",    "register", "buffer",    "distance"};

static uint32_t planted[FAULT_COUNT], by_check[FAULT_COUNT], by_judge[FAULT_COUNT],
    equal[FAULT_COUNT], traced[FAULT_COUNT];
static uint32_t differing,
    told_apart; /* mutants that run and differ; those that provenance tells apart */

/* ---- planting ---- */
static sx_kernel *copy_kernel(sx_ctx *cx, const sx_kernel *kernel)
{
    sx_kernel *copy = SX_NEW(cx, sx_kernel);
    ck_assert_ptr_nonnull(copy);
    *copy = *kernel;
    copy->part = SX_NEW_ARRAY(cx, sx_part, kernel->part_count);
    for (uint32_t p = 0; p < kernel->part_count; p++) {
        sx_part *part = &copy->part[p];
        *part = kernel->part[p];
        part->item = SX_NEW_ARRAY(cx, sx_item, part->item_count + 1);
        part->addr = SX_NEW_ARRAY(cx, sx_addr, part->addr_count + 1);
        memcpy(part->item, kernel->part[p].item, part->item_count * sizeof(sx_item));
        memcpy(part->addr, kernel->part[p].addr, part->addr_count * sizeof(sx_addr));
    }
    return copy;
}

static void drop_item(sx_part *part, uint32_t at)
{
    memmove(&part->item[at], &part->item[at + 1], (part->item_count - at - 1) * sizeof(sx_item));
    part->item_count--;
}

static void exchange(sx_part *part, uint32_t a, uint32_t b)
{
    sx_item item = part->item[a];
    part->item[a] = part->item[b];
    part->item[b] = item;
}

static bool plant_in_address(sx_part *part, fault f, sx_rng *rng)
{
    if (part->addr_count == 0) {
        return false;
    }
    sx_addr *a = &part->addr[sx_rng_below(rng, part->addr_count)];
    uint32_t v = (uint32_t)sx_rng_below(rng, part->var_count);
    uint32_t u = (uint32_t)sx_rng_below(rng, part->var_count);
    int64_t step = sx_rng_below(rng, 2) == 0 ? 4 : -4;
    switch ((int)f) {
    case FAULT_COEFFICIENTS: {
        int64_t c = a->coef[v];
        a->coef[v] = a->coef[u];
        a->coef[u] = c;
        return a->coef[u] != a->coef[v];
    }
    case FAULT_STRIDE: a->coef[v] += a->coef[v] != 0 ? step : 0; return a->coef[v] != 0;
    case FAULT_OFFSET: a->offset += step; return true;
    case FAULT_BUFFER: a->buffer += 1; return true;
    default: return false;
    }
}

static bool plant_in_grid(sx_part *part, fault f, sx_rng *rng)
{
    uint32_t v = (uint32_t)sx_rng_below(rng, 3);
    if (f != FAULT_GRID_STEP) {
        part->grid[v] += f == FAULT_TRIP_LONG ? 1 : -1;
        return part->grid[v] > 0;
    }
    int64_t divisor = 0;
    for (uint32_t k = 0; k < part->addr_count; k++) {
        int64_t b = part->addr[k].coef[v];
        for (; b != 0;) {
            int64_t rest = divisor % b;
            divisor = b;
            b = rest;
        }
    }
    int64_t share = 0;
    for (int64_t d = 2; d <= 64 && share == 0; d++) {
        share = divisor % d == 0 && sx_rng_below(rng, 2) == 0 ? d : 0;
    }
    for (uint32_t k = 0; share != 0 && k < part->addr_count; k++) {
        part->addr[k].coef[v] -= part->addr[k].coef[v] / share;
    }
    return share != 0 && part->grid[v] > 1;
}

static bool plant_in_item(sx_part *part, fault f, uint32_t at, sx_rng *rng)
{
    sx_item *item = &part->item[at];
    bool op = item->kind == SX_ITEM_OP;
    const char *operands = op ? sx_lop_info_of(item->op)->operands : "";
    switch (f) {
    case FAULT_TRIP_SHORT: item->trip--; return item->kind == SX_ITEM_LOOP && item->trip > 0;
    case FAULT_TRIP_LONG: item->trip++; return item->kind == SX_ITEM_LOOP;
    case FAULT_LANES:
        item->imm += sx_rng_below(rng, 2) == 0 ? 1u : UINT32_MAX;
        return op && operands[0] == 'A' && item->op != SX_LOP_LOADB && item->op != SX_LOP_PREFETCH;
    case FAULT_NO_STEP: {
        bool sums =
            op && (item->op == SX_LOP_FMA || item->op == SX_LOP_ADD || item->op == SX_LOP_MAX);
        if (sums) {
            drop_item(part, at);
        }
        return sums;
    }
    case FAULT_NO_RESET:
        if (!op || item->op != SX_LOP_SET || at == 0) {
            return false;
        }
        for (uint32_t k = at; k-- > 0;) { /* out of the loop around it */
            exchange(part, k, k + 1);
            if (part->item[k + 1].kind == SX_ITEM_LOOP) {
                return true;
            }
        }
        return false;
    case FAULT_OPERANDS: {
        bool blend = op && item->op == SX_LOP_BLEND;
        uint32_t a = blend ? 1 : 0;
        uint32_t other = item->src[a];
        item->src[a] = item->src[a + 1];
        item->src[a + 1] = other;
        return op && (blend || strncmp(operands, "vv", 2) == 0) && item->src[a] != item->src[a + 1];
    }
    case FAULT_NO_STORE:
        if (!op || item->op != SX_LOP_STORE) {
            return false;
        }
        drop_item(part, at);
        return true;
    case FAULT_CONSTANT:
        item->imm ^= 1u << sx_rng_below(rng, 32);
        return op && item->op == SX_LOP_SET;
    case FAULT_OPERATION: {
        bool pure = op && operands[0] != 'A' && strncmp(operands, "vv", 2) == 0 &&
                    sx_lop_info_of(item->op)->result == 'v';
        static const sx_lop others[] = {SX_LOP_ADD, SX_LOP_SUB,  SX_LOP_MUL,  SX_LOP_MAX,
                                        SX_LOP_MIN, SX_LOP_SHLV, SX_LOP_SHRV, SX_LOP_SARV};
        sx_lop now = others[sx_rng_below(rng, SX_COUNT(others))];
        bool same = item->op == now;
        if (pure) {
            item->op = operands[2] == 'v' ? SX_LOP_FNMA : now;
        }
        return pure && !same;
    }
    case FAULT_ORDER:
        if (at + 1 >= part->item_count || !op || part->item[at + 1].kind != SX_ITEM_OP) {
            return false;
        }
        exchange(part, at, at + 1);
        return true;
    case FAULT_REGISTER:
        if (!op || operands[0] == '\0' || strchr(operands, 'v') == NULL || part->vector_count < 2) {
            return false;
        }
        item->src[operands[0] == 'm' ? 1 : 0] = (uint32_t)sx_rng_below(rng, part->vector_count);
        return true;
    case FAULT_DISTANCE:
        item->imm = sx_rng_below(rng, 2) == 0 ? item->imm * 2 : item->imm / 2;
        return op && item->op == SX_LOP_SWAP;
    case FAULT_COEFFICIENTS:
    case FAULT_GRID_STEP:
    case FAULT_STRIDE:
    case FAULT_OFFSET:
    case FAULT_BUFFER:
    case FAULT_COUNT:
    default: return false;
    }
}

static bool plant(sx_kernel *kernel, fault f, sx_rng *rng)
{
    sx_part *part = &kernel->part[sx_rng_below(rng, kernel->part_count)];
    switch ((int)f) {
    case FAULT_COEFFICIENTS:
    case FAULT_STRIDE:
    case FAULT_OFFSET:
    case FAULT_BUFFER: return plant_in_address(part, f, rng);
    case FAULT_GRID_STEP: return plant_in_grid(part, f, rng);
    default: break;
    }
    if ((f == FAULT_TRIP_SHORT || f == FAULT_TRIP_LONG) && sx_rng_below(rng, 3) == 0) {
        return plant_in_grid(part, f, rng);
    }
    uint32_t start = (uint32_t)sx_rng_below(rng, part->item_count);
    for (uint32_t k = 0; k < part->item_count; k++) {
        uint32_t at = (start + k) % part->item_count;
        sx_item before = part->item[at];
        if (plant_in_item(part, f, at, rng)) {
            return true;
        }
        part->item[at] = before;
    }
    return false;
}

/* ---- judging ---- */
typedef struct {
    sx_ctx *cx;
    sx_judge *judge;
    const node *n;
    sx_judge_facts facts;
    const sx_kernel *kernel;
    bool pack;
    sx_op move; /* SX_OP_FUSED: none */
    const sx_attr *attr;
    void *buffer[SX_LOOP_BUFFERS_MAX];
    uint8_t *result;
    int64_t result_bytes;
    sx_rng rng;
} subject;

static void fill(subject *s)
{
    for (uint32_t k = 0; k < s->kernel->buffer_count; k++) {
        int64_t size = s->kernel->buffer[k].size;
        uint8_t *p = sx_alloc(s->cx, (size_t)size + 64);
        ck_assert_ptr_nonnull(p);
        s->buffer[k] = p;
        bool bytes = !s->pack && k < s->n->count && s->n->input[k].dtype == SX_BOOL;
        for (int64_t i = 0; i < size / (bytes ? 1 : 4); i++) {
            float f = sx_rng_f32(&s->rng);
            int32_t index = (int32_t)sx_rng_below(&s->rng, 12) - 4;
            if (!bytes && !s->pack && k < s->n->count && s->n->input[k].dtype == SX_I32) {
                memcpy(p + 4 * i, &index, 4);
            } else if (bytes) {
                p[i] = sx_rng_below(&s->rng, 2) != 0;
            } else {
                memcpy(p + 4 * i, &f, 4);
            }
        }
        if (s->kernel->buffer[k].role == SX_BUFFER_OUT) {
            s->result = p;
            s->result_bytes = size;
        }
    }
}

static uint8_t *run(subject *s, const sx_kernel *kernel)
{
    memset(s->result, 0xCC, (size_t)s->result_bytes);
    ck_sx_ok(s->cx, sx_kernel_eval(s->cx, kernel, s->buffer));
    uint8_t *copy = sx_alloc(s->cx, (size_t)s->result_bytes + 16);
    ck_assert_ptr_nonnull(copy);
    memcpy(copy, s->result, (size_t)s->result_bytes);
    return copy;
}

static bool same_bits(const uint8_t *a, const uint8_t *b, int64_t size)
{
    bool same = size % 4 == 0 || memcmp(a, b, (size_t)size) == 0;
    for (int64_t i = 0; same && i + 4 <= size; i += 4) {
        same = harness_same(a + i, b + i);
    }
    return same;
}

static sx_verdict verdict_of(subject *s, const sx_kernel *kernel)
{
    sx_verdict verdict;
    const node *n = s->n;
    if (s->move != SX_OP_FUSED) {
        ck_sx_ok(s->cx, sx_judge_move(s->judge, s->move, s->attr, n->input, n->count, &n->result,
                                      kernel, &verdict));
        return verdict;
    }
    sx_code code =
        s->pack
            ? sx_judge_pack(s->judge, &n->fused, n->input, n->count, &s->facts, kernel, &verdict)
            : sx_judge_kernel(s->judge, &n->fused, n->input, n->count, &s->facts, kernel, &verdict);
    ck_sx_ok(s->cx, code);
    return verdict;
}

static bool same_provenance(subject *s, const sx_kernel *mutant)
{
    int64_t size = 0;
    int64_t other = 0;
    uint64_t *a = provenance_of(s->kernel, s->buffer, &size);
    uint64_t *b = provenance_of(mutant, s->buffer, &other);
    bool same = size == other && memcmp(a, b, (size_t)size * sizeof(*a)) == 0;
    free(a);
    free(b);
    return same;
}

/* The oracle is doubted in turn: of refused mutants whose results differ it must not say that they are equal. */
static void doubt(subject *s, const sx_kernel *mutant, const uint8_t *expected)
{
    s->cx->fuel = SX_FUEL_DEFAULT;
    if (same_bits(run(s, mutant), expected, s->result_bytes)) {
        return;
    }
    differing++;
    told_apart += same_provenance(s, mutant) ? 0 : 1;
    ck_assert_uint_eq(told_apart, differing);
}

static void try_mutant(subject *s, fault f, const uint8_t *expected)
{
    sx_kernel *mutant = copy_kernel(s->cx, s->kernel);
    if (!plant(mutant, f, &s->rng)) {
        return;
    }
    planted[f]++;
    if (sx_kernel_check(s->cx, mutant) != SX_OK) {
        sx_ctx_reset_error(s->cx);
        by_check[f]++;
        return;
    }
    if (!verdict_of(s, mutant).proven) {
        by_judge[f]++;
        if (by_judge[f] % 4 == 1) {
            doubt(s, mutant, expected);
        }
        return;
    }
    s->cx->fuel = SX_FUEL_DEFAULT;
    const uint8_t *got = run(s, mutant);
    if (!same_bits(got, expected, s->result_bytes)) {
        sx_buf text;
        sx_buf_init(&text, 1 << 24);
        sx_judge_print(s->judge, &text);
        (void)sx_kernel_print(s->cx, mutant, &text);
        sx_buf_put(&text, "", 1);
        (void)fprintf(stderr, "%.20000s\n", (const char *)text.ptr);
        sx_buf_fini(&text);
        ck_abort_msg("%s: proven, but its results differ", fault_names[f]);
    }
    equal[f]++;
    traced[f] += same_provenance(s, mutant) ? 1 : 0;
}

static void try_faults(subject *s)
{
    fill(s);
    const uint8_t *expected = run(s, s->kernel);
    ck_assert(verdict_of(s, s->kernel).proven);
    for (uint32_t f = 0; f < FAULT_COUNT; f++) {
        for (uint32_t k = 0; k < 6; k++) {
            try_mutant(s, (fault)f, expected);
        }
    }
}

static void try_kernel(sx_ctx *cx, sx_judge *judge, const node *n, const sx_schedule *plan,
                       bool pack, uint64_t seed)
{
    subject s = {
        .cx = cx, .judge = judge, .n = n, .pack = pack, .move = SX_OP_FUSED, .rng = {seed}};
    sx_kernel *kernel;
    int64_t size;
    const sx_analysis *a = analysis_of(cx, n);
    s.facts = sx_judge_facts_of(plan, a->kind);
    ck_sx_ok(cx, pack ? sx_lower_pack(cx, "m", a, plan, &kernel, &size)
                      : sx_lower_fused(cx, sx_test_unit(plan), "m", a, plan, &kernel));
    s.kernel = kernel;
    try_faults(&s);
}

#define NODES 10
#define NODE_ATTENTION 8
static node node_of(sx_ctx *cx, uint32_t which, sx_rng *rng)
{
    int64_t a = 1 + (int64_t)sx_rng_below(rng, 20);
    int64_t b = 1 + (int64_t)sx_rng_below(rng, 40);
    int64_t c = 2 + (int64_t)sx_rng_below(rng, 60);
    switch (which) {
    case 0: return map_node(cx, a % 4 + 1, b % 9 + 1, c);
    case 1: return compare_node(cx, a, c);
    case 2: return dot_node(cx, a, b, c, SX_OP_RELU);
    case 3: return dot_node(cx, a, b, c, SX_OP_GELU);
    case 4: return batched_node(cx, a % 3 + 1, a, b, c);
    case 5: return row_node(cx, SX_OP_SOFTMAX, a, c, 1);
    case 6: return row_node(cx, SX_OP_SOFTMAX, b, c, 0);
    case NODE_ATTENTION: {
        const int64_t extent[5] = {2, a, c + 60, b % 9 + 1, b % 5 + 1};
        return attention_node(cx, a % 2 == 0, extent);
    }
    case 9: return shift_node(cx, a, c);
    default: return row_node(cx, SX_OP_LAYER_NORM, a, 3 * c, 1);
    }
}

static void print_figures(void)
{
    for (uint32_t f = 0; f < FAULT_COUNT; f++) {
        (void)printf("%-12s planted %4u, refused by the checker %4u, by the judge %4u, equal %4u "
                     "(one expression %4u)\n",
                     fault_names[f], planted[f], by_check[f], by_judge[f], equal[f], traced[f]);
    }
    (void)printf("%u refused mutants differ, all of them by provenance too\n", differing);
}

static sx_kernel *lower_move(sx_ctx *cx, sx_op op, const sx_attr *attr, const node *n,
                             const sx_schedule *s)
{
    sx_kernel *kernel = NULL;
    sx_code code = SX_OK;
    switch ((int)op) {
    case SX_OP_CONCATENATE:
        code = sx_lower_concatenate(cx, "m", attr, n->input, 2, &n->result, s, &kernel);
        break;
    case SX_OP_GATHER:
        code = sx_lower_gather(cx, "m", attr, n->input, 2, &n->result, s, &kernel);
        break;
    case SX_OP_PAD: code = sx_lower_pad(cx, "m", attr, n->input, &n->result, s, &kernel); break;
    default: code = sx_lower_reverse(cx, "m", attr, n->input, &n->result, s, &kernel); break;
    }
    ck_sx_ok(cx, code);
    return kernel;
}

/* The kernel of a move of small tensors. */
static void try_move(sx_ctx *cx, sx_judge *judge, sx_op op, sx_rng *rng)
{
    int64_t a = 2 + (int64_t)sx_rng_below(rng, 4);
    int64_t b = 2 + (int64_t)sx_rng_below(rng, 5);
    int64_t c = 1 + (int64_t)sx_rng_below(rng, 40);
    sx_attr attr = {.present = sx_op_info_of(op)->attrs, .axis = 1};
    node n = {.count = op == SX_OP_REVERSE ? 1 : 2};
    n.input[0] = TYPE(SX_F32, a, b, c);
    n.input[1] = op == SX_OP_GATHER ? TYPE(SX_I32, 5)
                 : op == SX_OP_PAD  ? (sx_type){.dtype = SX_F32}
                                    : TYPE(SX_F32, a, b + 1, c);
    if (op == SX_OP_REVERSE) {
        attr.dims = (sx_ints){2, {1, 2}};
    }
    if (op == SX_OP_PAD) {
        attr.low = (sx_ints){3, {1, 0, (int64_t)sx_rng_below(rng, 3)}};
        attr.high = (sx_ints){3, {0, 2, (int64_t)sx_rng_below(rng, 3)}};
        attr.interior = (sx_ints){3, {0, (int64_t)sx_rng_below(rng, 2), 0}};
    }
    ck_sx_ok(cx, sx_infer_type(cx, NULL, 0, op, &attr, n.input, n.count, &n.result));
    const test_tiles tiles = {.lanes = 8u << sx_rng_below(rng, 3),
                              .tile_m = 1 + (int64_t)sx_rng_below(rng, 4)};
    subject t = {.cx = cx,
                 .judge = judge,
                 .n = &n,
                 .kernel = lower_move(cx, op, &attr, &n, move_schedule(cx, &tiles)),
                 .move = op,
                 .attr = &attr,
                 .rng = {sx_rng_next(rng)}};
    try_faults(&t);
}

START_TEST(test_moves)
{
    static const sx_op ops[] = {SX_OP_CONCATENATE, SX_OP_GATHER, SX_OP_PAD, SX_OP_REVERSE};
    sx_rng rng = {sx_test_seed() + (uint64_t)_i};
    for (uint32_t round = 0; round < 6; round++) {
        sx_ctx cx;
        sx_judge *judge;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        ck_sx_ok(&cx, sx_judge_make(&cx, &judge));
        try_move(&cx, judge, ops[_i], &rng);
        sx_ctx_fini(&cx);
    }
    print_figures();
}
END_TEST

START_TEST(test_mutants)
{
    static const char *const targets[] = {"x86-64-v3", "x86-64-v4", "warp"};
    sx_rng rng = {sx_test_seed() + (uint64_t)_i};
    uint32_t devices = _i == NODE_ATTENTION ? 2 : 3; /* with 32 lanes it has some 10,000 items */
    for (uint32_t round = 0; round < 2 + devices; round++) {
        sx_ctx cx;
        sx_judge *judge;
        sx_search_result result;
        sx_ctx_init(&cx, SX_ARENA_DEFAULT);
        const sx_device warp = sx_test_warp_device(&cx);
        const sx_device *device = &warp;
        ck_sx_ok(&cx, sx_judge_make(&cx, &judge));
        node n = node_of(&cx, (uint32_t)_i, &rng);
        if (strcmp(targets[round % devices], warp.target) != 0) {
            ck_sx_ok(&cx, sx_device_find(&cx, sx_span_of(targets[round % devices]), &device));
        }
        ck_sx_ok(&cx, sx_search_kernel(&cx, analysis_of(&cx, &n), device, true, SX_SEARCH_KEEP,
                                       &result));
        const sx_schedule *plan = &result.best[sx_rng_below(&rng, result.best_count)].schedule;
        try_kernel(&cx, judge, &n, plan, false, sx_rng_next(&rng));
        if (plan->stage_count > 0) {
            try_kernel(&cx, judge, &n, plan, true, sx_rng_next(&rng));
        }
        sx_ctx_fini(&cx);
    }
    uint32_t all = 0;
    uint32_t refused = 0;
    for (uint32_t f = 0; f < FAULT_COUNT; f++) {
        all += planted[f];
        refused += by_judge[f];
    }
    print_figures();
    uint32_t same = 0;
    uint32_t expression = 0;
    for (uint32_t f = 0; f < FAULT_COUNT; f++) {
        same += equal[f];
        expression += traced[f];
    }
    ck_assert_uint_le(same - expression, 12 + same / 5); /* left to evaluation alone */
    ck_assert_uint_gt(all, 100);
    ck_assert_uint_gt(refused, all / 4); /* the checker alone would let them through */
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("judge/mutants");
    TCase *cases = tcase_create("mutants");
    tcase_add_loop_test(cases, test_mutants, 0, NODES);
    tcase_add_loop_test(cases, test_moves, 0, 4);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
