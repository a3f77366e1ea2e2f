/* Attention of more blocks of keys than are ever unrolled is proven by induction over the blocks. Every
 * instruction of the loop over the blocks is then spoilt in turn: an accumulator that is not rescaled, an old
 * maximum carried on, a block skipped, one block again and again. What is still proven is the same bit for
 * bit, which the interpreter shows. */
#include "tests/core/judge/try.h"

#include "core/judge/prove.h"
#include "tests/lib/unit.h"

typedef enum {
    NOT_RESCALED,  /* a product is its first factor */
    OLD_MAXIMUM,   /* a maximum is its second operand */
    NOT_STORED,    /* a store of the loop is gone */
    WRONG_WAY,     /* a difference is taken the other way */
    BLOCK_SKIPPED, /* an iteration less */
    BLOCK_TWICE,   /* an address does not move with the block: the first one again and again */
    BLOCK_AHEAD,   /* an address is one block further */
    FAULT_COUNT
} fault;
static const char *const names[FAULT_COUNT] = {"not rescaled", "old maximum",   "not stored",
                                               "wrong way",    "block skipped", "block twice",
                                               "block ahead"};

#define BLOCK_OF_KEYS 4
typedef struct {
    sx_ctx cx;
    sx_judge *judge;
    node n;
    sx_judge_facts facts;
    sx_kernel *kernel;
    uint32_t loop, end; /* items of the loop over the blocks, in part 0 */
    void *buffer[SX_LOOP_BUFFERS_MAX];
    void *expected;
    uint32_t planted[FAULT_COUNT], by_check[FAULT_COUNT], by_judge[FAULT_COUNT], equal[FAULT_COUNT];
} subject;

static void lower(subject *s, bool inside, int64_t keys, uint32_t lanes)
{
    const int64_t extent[5] = {1, 5, keys, 3, 2};
    s->n = attention_node(&s->cx, inside, extent);
    const test_tiles tiles = {.lanes = lanes, .block_m = 2, .block_nv = 1, .tile_n = BLOCK_OF_KEYS};
    const sx_analysis *a = analysis_of(&s->cx, &s->n);
    const sx_schedule schedule = schedule_of(a, &tiles);
    s->facts = sx_judge_facts_of(&schedule, a->kind);
    ck_assert_int_eq(s->facts.keys, BLOCK_OF_KEYS);
    ck_sx_ok(&s->cx,
             sx_lower_fused(&s->cx, sx_test_unit(&schedule), "blocks", a, &schedule, &s->kernel));
}

/* The outermost loop of as many iterations as there are whole blocks. */
static void find_loop(subject *s, int64_t blocks)
{
    const sx_part *part = &s->kernel->part[0];
    uint32_t depth = 0;
    s->loop = s->end = UINT32_MAX;
    for (uint32_t i = 0; i < part->item_count && s->end == UINT32_MAX; i++) {
        const sx_item *item = &part->item[i];
        if (s->loop == UINT32_MAX && item->kind == SX_ITEM_LOOP && item->trip == blocks) {
            s->loop = i;
            depth = 0;
        } else if (s->loop != UINT32_MAX && item->kind == SX_ITEM_LOOP) {
            depth++;
        } else if (s->loop != UINT32_MAX && item->kind == SX_ITEM_END && depth-- == 0) {
            s->end = i;
        }
    }
    ck_assert_uint_ne(s->end, UINT32_MAX);
}

static bool proven(subject *s, const sx_kernel *kernel, sx_verdict *verdict)
{
    ck_sx_ok(&s->cx, sx_judge_kernel(s->judge, &s->n.fused, s->n.input, s->n.count, &s->facts,
                                     kernel, verdict));
    return verdict->proven;
}

static void open_subject(subject *s, bool inside, int64_t keys, uint32_t lanes)
{
    sx_verdict verdict;
    memset(s, 0, sizeof(*s));
    sx_ctx_init(&s->cx, SX_ARENA_DEFAULT);
    s->cx.fuel = UINT64_MAX;
    ck_sx_ok(&s->cx, sx_judge_make(&s->cx, &s->judge));
    lower(s, inside, keys, lanes);
    find_loop(s, keys / BLOCK_OF_KEYS);
    ck_assert_msg(proven(s, s->kernel, &verdict), "%s", verdict.text);
    sx_rng rng = {7};
    for (uint32_t k = 0; k < s->kernel->buffer_count; k++) {
        size_t size = (size_t)s->kernel->buffer[k].size;
        float *p = s->buffer[k] = sx_alloc(&s->cx, size + 64);
        ck_assert_ptr_nonnull(p);
        for (size_t i = 0; i < size / 4; i++) {
            p[i] = sx_rng_f32(&rng);
        }
    }
    ck_sx_ok(&s->cx, sx_kernel_eval(&s->cx, s->kernel, s->buffer));
    size_t size = (size_t)s->kernel->buffer[s->n.count].size;
    s->expected = sx_alloc(&s->cx, size);
    memcpy(s->expected, s->buffer[s->n.count], size);
}

static sx_kernel *copy_of(subject *s)
{
    sx_kernel *copy = SX_NEW(&s->cx, sx_kernel);
    *copy = *s->kernel;
    copy->part = SX_NEW_ARRAY(&s->cx, sx_part, copy->part_count);
    memcpy(copy->part, s->kernel->part, copy->part_count * sizeof(sx_part));
    sx_part *part = &copy->part[0];
    part->item = SX_NEW_ARRAY(&s->cx, sx_item, part->item_count);
    part->addr = SX_NEW_ARRAY(&s->cx, sx_addr, part->addr_count);
    memcpy(part->item, s->kernel->part[0].item, part->item_count * sizeof(sx_item));
    memcpy(part->addr, s->kernel->part[0].addr, part->addr_count * sizeof(sx_addr));
    return copy;
}

static bool plant(sx_part *part, fault f, uint32_t at, uint32_t loop)
{
    sx_item *item = &part->item[at];
    bool op = item->kind == SX_ITEM_OP;
    bool memory = op && sx_lop_info_of(item->op)->operands[0] == 'A';
    uint32_t var = part->item[loop].dst;
    uint32_t x = item->src[0];
    switch (f) {
    case NOT_RESCALED:
    case OLD_MAXIMUM:
        if (!op || item->op != (f == NOT_RESCALED ? SX_LOP_MUL : SX_LOP_MAX)) {
            return false;
        }
        item->op = SX_LOP_MOV;
        item->src[0] = f == NOT_RESCALED ? x : item->src[1];
        item->src[1] = SX_NO_REG;
        return true;
    case NOT_STORED:
        if (!op || item->op != SX_LOP_STORE) {
            return false;
        }
        item->op = SX_LOP_SET; /* of a register that nobody reads again */
        item->dst = part->vector_count++;
        return true;
    case WRONG_WAY:
        item->src[0] = item->src[1];
        item->src[1] = x;
        return op && item->op == SX_LOP_SUB;
    case BLOCK_SKIPPED: item->trip--; return at == loop;
    case BLOCK_TWICE:
    case BLOCK_AHEAD:
        if (!memory || part->addr[item->addr].coef[var] == 0) {
            return false;
        }
        if (f == BLOCK_AHEAD) {
            part->addr[item->addr].offset += part->addr[item->addr].coef[var];
        } else {
            part->addr[item->addr].coef[var] = 0;
        }
        return true;
    case FAULT_COUNT: break;
    }
    return false;
}

static void try_fault(subject *s, fault f, uint32_t at)
{
    sx_kernel *mutant = copy_of(s);
    sx_verdict verdict;
    if (!plant(&mutant->part[0], f, at, s->loop)) {
        return;
    }
    s->planted[f]++;
    if (sx_kernel_check(&s->cx, mutant) != SX_OK) {
        sx_ctx_reset_error(&s->cx);
        s->by_check[f]++;
        return;
    }
    if (!proven(s, mutant, &verdict)) {
        s->by_judge[f]++;
        return;
    }
    ck_sx_ok(&s->cx, sx_kernel_eval(&s->cx, mutant, s->buffer));
    int64_t size = s->kernel->buffer[s->n.count].size;
    ck_assert_msg(memcmp(s->buffer[s->n.count], s->expected, (size_t)size) == 0,
                  "%s at item %u: proven, but its results differ", names[f], at);
    s->equal[f]++;
}

START_TEST(test_faults)
{
    static subject s;
    open_subject(&s, _i % 2 == 1, 66 * BLOCK_OF_KEYS + 3, _i < 2 ? 8 : 16);
    for (uint32_t at = s.loop; at <= s.end; at++) {
        for (uint32_t f = 0; f < FAULT_COUNT; f++) {
            try_fault(&s, (fault)f, at);
        }
    }
    for (uint32_t f = 0; f < FAULT_COUNT; f++) {
        (void)printf("%-14s planted %3u, refused by the checker %3u, by the judge %3u, equal %3u\n",
                     names[f], s.planted[f], s.by_check[f], s.by_judge[f], s.equal[f]);
        ck_assert_uint_gt(s.planted[f], 0);
        ck_assert_uint_gt(s.by_judge[f], 0);
    }
    sx_ctx_fini(&s.cx);
}
END_TEST

/* The work of a proof does not grow with the blocks. */
START_TEST(test_many_blocks)
{
    static subject s;
    static const int64_t blocks[] = {2, 64, 65, 100000};
    uint32_t terms[SX_COUNT(blocks)];
    for (uint32_t k = 0; k < SX_COUNT(blocks); k++) {
        sx_verdict verdict;
        sx_ctx_init(&s.cx, SX_ARENA_DEFAULT);
        ck_sx_ok(&s.cx, sx_judge_make(&s.cx, &s.judge));
        lower(&s, _i % 2 == 1, blocks[k] * BLOCK_OF_KEYS + _i / 2, 8);
        ck_assert_msg(proven(&s, s.kernel, &verdict), "%lld blocks: %s", (long long)blocks[k],
                      verdict.text);
        terms[k] = s.judge->algebra.term_count;
        ck_assert_uint_le(terms[k], terms[0] + 40);
        sx_ctx_fini(&s.cx);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("judge/blocks");
    TCase *cases = tcase_create("blocks");
    tcase_add_loop_test(cases, test_faults, 0, 4);
    tcase_add_loop_test(cases, test_many_blocks, 0, 4);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
