/* Block programs with one instruction left out, exchanged with the next one, or with another immediate: each is stopped
 * at a fault, gives another result or never ends, or is listed with the reason why its result is the same. */
#include "tests/core/nvidia/tiles.h"

#define RUNS 3

static const struct {
    tiles_case c;
    sx_block_tiles plan;
    uint32_t level; /* 0: 80 */
} subjects[] = {
    {.c = {.dtype = SX_F32, .b = 1, .m = 25, .k = 42, .n = 40},
     .plan = {.rows = 16,
              .columns = 32,
              .steps = 8,
              .warp_rows = 16,
              .warp_columns = 16,
              .thread_rows = 2,
              .thread_columns = 4,
              .depth = 3}},
    {.c = {.dtype = SX_BF16, .b = 1, .m = 25, .k = 84, .n = 20},
     .plan = {.matrix_rows = 16,
              .matrix_columns = 8,
              .matrix_steps = 16,
              .rows = 16,
              .columns = 16,
              .steps = 16,
              .warp_rows = 16,
              .warp_columns = 8,
              .depth = 3}},
    /* A block that walks over three tiles, with the copy engine. */
    {.c = {.dtype = SX_BF16, .b = 1, .m = 150, .k = 40, .n = 16, .widened = true},
     .plan = {.matrix_rows = 64,
              .matrix_columns = 8,
              .matrix_steps = 16,
              .rows = 64,
              .columns = 8,
              .steps = 16,
              .warp_rows = 64,
              .warp_columns = 8,
              .depth = 2,
              .stores = 1,
              .walkers = 1},
     .level = 90},
};

/* Mutants whose results are the same: what is done, the text of the instruction, how many of each subject, and why. */
static const struct {
    const char *how, *text;
    uint32_t count[SX_COUNT(subjects)];
    const char *why;
} same[] = {
    {"without", "cvta.to.global", {3, 3, 3}, "generic addresses of global memory are the same"},
    {"without", "add.u32", {7, 0, 0}, "pointers to steps of k that the last stage does not have"},
    {"without", "bra", {1, 1, 0}, "a stage beyond the last is filled, with zeros, and not read"},
    {"exchange", "bra", {2, 2, 0}, "a stage is filled, or waited for, once more"},
    {"exchange", "add.u32", {1, 2, 0}, "sums commute"},
    {"exchange", "mad.lo", {3, 3, 0}, "sums commute"},
    {"exchange", "max.s32", {4, 4, 0}, "bounds from both sides commute"},
    {"immediate", "max.s32", {2, 2, 0}, "columns beyond the edge are summed up, but not stored"},
    {"immediate", "mov.b32", {8, 4, 0}, "sums that begin at 2^-149 round to the same"},
    {"immediate", "bar.sync", {2, 2, 3}, "another barrier with the same threads"},
    {"immediate", "setp.ge.s32", {1, 1, 0}, "a stage beyond the last is filled and not read"},
    {"immediate", "setp.gt", {3, 2, 0}, "no thread begins so near to the edge"},
    /* The block that walks. Threads have no addresses of its results, but the program still makes them. */
    {"without",
     "add.u32",
     {0, 0, 3},
     "unused addresses; a barrier that is noted anew before it is read"},
    {"without", "and.b32", {0, 0, 4}, "unused addresses; bits that no thread of the group has"},
    {"without", "mad.lo", {0, 0, 5}, "unused addresses"},
    {"without", "mov.b32", {0, 0, 2}, "the index of the only matrix, which no map has"},
    {"without", "setp.gt", {0, 0, 2}, "the engine cuts what lies outside"},
    {"without", "ret", {0, 0, 1}, "threads that do not load end where the others begin to load"},
    {"without", "wgmma.fence", {0, 0, 1}, "no thread writes sums before the last stage"},
    {"exchange", "add.u32", {0, 0, 2}, "unused addresses"},
    {"exchange", "and.b32", {0, 0, 3}, "unused addresses"},
    {"exchange", "mad.lo", {0, 0, 3}, "unused addresses"},
    {"exchange",
     "bra",
     {0, 0, 6},
     "what stands behind is done more often, or by more threads, to the same end"},
    {"exchange",
     "fence.proxy",
     {0, 0, 1},
     "the thread that speaks has its fence behind the barrier"},
    {"exchange",
     "mbarrier.init",
     {0, 0, 1},
     "the last barrier is one that the engine does not use"},
    {"immediate", "add.u32", {0, 0, 9}, "the last four bits of an address are in no descriptor"},
    {"immediate", "selp", {0, 0, 2}, "the last four bits of an address are in no descriptor"},
    {"immediate", "mov.b32", {0, 0, 5}, "unused addresses; the index of the only matrix; as above"},
    {"immediate",
     "and.b32",
     {0, 0, 4},
     "unused addresses; every thread has the engine store the same"},
    {"immediate", "mad.lo", {0, 0, 5}, "unused addresses"},
    {"immediate", "shr.u32", {0, 0, 3}, "unused addresses"},
    {"immediate", "sub.s32", {0, 0, 1}, "the engine cuts what lies outside"},
    {"immediate", "setp.gt", {0, 0, 2}, "the engine cuts what lies outside"},
    {"immediate", "setp.lt", {0, 0, 1}, "no stage begins so near to the end of k"},
    {"immediate", "setp.eq", {0, 0, 2}, "another thread of the four warps speaks"},
    {"immediate", "setp.ne", {0, 0, 2}, "another thread of the warp makes the barriers, or loads"},
};

static sx_ctx cx;
static const sx_kernel *kernel;
static sx_ptx_module *module;
static node input;
static uint8_t *want, *got;
static uint64_t most; /* instructions of the whole kernel */
static uint32_t survivors[SX_COUNT(same)];
static uint32_t subject; /* of this process */

/* Is the kernel as it stands found out, in one of the orders? */
static bool is_killed(void)
{
    uint32_t bytes = bytes_of(&input.result);
    for (uint64_t run = 0; run < RUNS; run++) {
        memset(got, 0xCC, bytes);
        sx_ctx inner;
        sx_ctx_init(&inner, (size_t)1 << 28);
        sx_code code =
            tiles_run_within(&inner, kernel, module, &input, run, run != 1, got, most, NULL);
        sx_ctx_fini(&inner);
        if (code != SX_OK || memcmp(got, want, bytes) != 0) {
            return true;
        }
    }
    return false;
}

static void judge(const char *how, uint32_t i, const char *text)
{
    if (is_killed()) {
        return;
    }
    uint32_t n = 0;
    while (n < SX_COUNT(same) && (same[n].count[subject] == 0 || strcmp(same[n].how, how) != 0 ||
                                  strstr(text, same[n].text) == NULL)) {
        n++;
    }
    if (getenv("SX_SHOW") != NULL) {
        (void)fprintf(stderr, "%s %u: %s\n", how, i, text);
    }
    ck_assert_msg(n < SX_COUNT(same), "nobody misses: %s instruction %u %s", how, i, text);
    survivors[n]++;
}

static void text_of(uint32_t i, char text[256])
{
    sx_buf line;
    sx_buf_init(&line, 4096);
    sx_ptx_print_insn(module, &module->kernel[0], &module->kernel[0].insn[i], &line);
    (void)snprintf(text, 256, "%.*s", (int)line.len, (const char *)line.ptr);
    sx_buf_fini(&line);
}

/* ---- exchanges that change nothing ---- */
typedef struct {
    uint32_t count;
    struct {
        uint32_t form, id;
        bool written;
    } of[40];
} registers;

static void note(registers *r, uint32_t form, uint32_t id, bool written)
{
    ck_assert_uint_lt(r->count, SX_COUNT(r->of));
    r->of[r->count].form = form;
    r->of[r->count].id = id;
    r->of[r->count++].written = written;
}

static registers registers_of(const sx_ptx_insn *insn)
{
    const sx_ptx_kernel *k = &module->kernel[0];
    const sx_ptx_row *row = sx_ptx_row_of((sx_ptx_op)insn->op);
    uint8_t operand[SX_PTX_OPERANDS_MAX];
    uint32_t count = sx_ptx_operands_of(insn, operand);
    registers r = {0};
    if (insn->guarded) {
        note(&r, SX_PTX_PRED, insn->guard, false);
    }
    for (uint32_t i = 0; i < count; i++) {
        const sx_ptx_arg *arg = &k->arg[insn->arg + i];
        bool memory = arg->kind == SX_PTX_ARG_MEMORY;
        bool written = (row->operand[operand[i]].flags & SX_PTX_WRITTEN) != 0 && !memory;
        if (arg->kind == SX_PTX_ARG_REGISTER || (memory && arg->base == SX_PTX_ARG_REGISTER)) {
            note(&r, arg->form, arg->id, written);
        }
        for (uint32_t e = 0; arg->kind == SX_PTX_ARG_VECTOR && e < arg->count; e++) {
            note(&r, k->arg[arg->id + e].form, k->arg[arg->id + e].id, written);
        }
    }
    return r;
}

/* Neither needs what the other writes, and they do not touch the same memory: loads alone, or none. */
static bool independent(const sx_ptx_insn *a, const sx_ptx_insn *b)
{
    registers x = registers_of(a), y = registers_of(b);
    uint32_t does[2] = {sx_ptx_row_of((sx_ptx_op)a->op)->effects,
                        sx_ptx_row_of((sx_ptx_op)b->op)->effects};
    uint32_t free = SX_PTX_DOES_LOADS | SX_PTX_DOES_WARP;
    if ((does[0] & ~free) != 0 && (does[1] & ~free) != 0) {
        /* stores and copies to different places, which the layouts prove (core.tile) */
        uint32_t order = SX_PTX_DOES_FENCE | SX_PTX_DOES_CONTROL | SX_PTX_DOES_BLOCK;
        if (((does[0] | does[1]) & order) != 0) {
            return false;
        }
    } else if (((does[0] | does[1]) & ~free) != 0 &&
               ((does[0] & does[1]) != 0 || (does[0] | does[1]) & SX_PTX_DOES_CONTROL ||
                (does[0] != 0 && does[1] != 0))) {
        return false;
    }
    for (uint32_t i = 0; i < x.count; i++) {
        for (uint32_t k = 0; k < y.count; k++) {
            if (x.of[i].form == y.of[k].form && x.of[i].id == y.of[k].id &&
                (x.of[i].written || y.of[k].written)) {
                return false;
            }
        }
    }
    return true;
}

static void change_immediates(uint32_t i)
{
    sx_ptx_kernel *k = &module->kernel[0];
    char text[256];
    uint8_t operand[SX_PTX_OPERANDS_MAX];
    uint32_t count = sx_ptx_operands_of(&k->insn[i], operand);
    for (uint32_t n = 0; n < count; n++) {
        sx_ptx_arg *arg = &k->arg[k->insn[i].arg + n];
        bool memory = arg->kind == SX_PTX_ARG_MEMORY && arg->base == SX_PTX_ARG_REGISTER;
        if (arg->kind != SX_PTX_ARG_IMMEDIATE && !memory) {
            continue;
        }
        sx_ptx_arg whole = *arg;
        arg->value += memory ? 16 : 1;
        if (sx_ptx_check(&cx, module) == SX_OK) {
            text_of(i, text);
            judge("immediate", i, text);
        }
        sx_ctx_reset_error(&cx);
        *arg = whole;
    }
}

/* Where the programs of the elements begin: they are instructions of the loop IR, which others test. */
static uint32_t block_end(void)
{
    const sx_ptx_kernel *k = &module->kernel[0];
    uint32_t last = 0;
    for (uint32_t i = 0; i < k->insn_count; i++) {
        uint8_t unit = sx_ptx_row_of((sx_ptx_op)k->insn[i].op)->unit;
        last = unit == SX_PTX_UNIT_TENSOR || k->insn[i].op == SX_PTX_OP_FMA_F32 ? i : last;
    }
    registers sums = registers_of(&k->insn[last]);
    for (uint32_t i = last + 1; i < k->insn_count; i++) {
        registers r = registers_of(&k->insn[i]);
        for (uint32_t n = 0; n < r.count; n++) {
            if (!r.of[n].written && r.of[n].form == sums.of[0].form &&
                r.of[n].id == sums.of[0].id) {
                while (k->insn[i - 1].op ==
                       SX_PTX_OP_MOV) { /* constants of the element's program */
                    i--;
                }
                return i;
            }
        }
    }
    return k->insn_count - 1;
}

static void check_subject(void)
{
    sx_ptx_kernel *k = &module->kernel[0];
    uint32_t mutants = 0;
    uint32_t end = subjects[subject].level == 90 ? k->insn_count - 1 : block_end();
    for (uint32_t i = 0; i < end; i++) {
        sx_ptx_insn whole = k->insn[i], next = k->insn[i + 1];
        char text[256];
        text_of(i, text);
        /* Nothing is left where it stood. */
        k->insn[i] =
            (sx_ptx_insn){.op = SX_PTX_OP_FENCE, .modifier = {SX_PTX_ORDER_SC, SX_PTX_SCOPE_CTA}};
        judge("without", i, text);
        k->insn[i] = whole;
        if (!independent(&whole, &next)) {
            k->insn[i] = next;
            k->insn[i + 1] = whole;
            judge("exchange", i, text);
            k->insn[i] = whole;
            k->insn[i + 1] = next;
            mutants++;
        }
        change_immediates(i);
        mutants++;
    }
    ck_assert_uint_gt(mutants, 250);
}

START_TEST(test_mutants)
{
    sx_rng rng = {7};
    sx_kernel *made;
    sx_ptx_statistics statistics;
    subject = (uint32_t)_i;
    sx_ctx_init(&cx, (size_t)1 << 30);
    input = tiles_node(&cx, &subjects[subject].c);
    tiles_fill(&cx, &input, &rng, false);
    const sx_target *target = subjects[subject].level == 90 ? &sx_target_sm_90 : &sx_target_sm_80;
    sx_code code = tiles_lower(&cx, target, &input, subjects[subject].plan, &made);
    ck_assert_msg(code == SX_OK, "%s", cx.error.text);
    kernel = made;
    module = tiles_module(&cx, kernel, target->machine->level);
    want = exact_buffer(&cx, bytes_of(&input.result));
    got = exact_buffer(&cx, bytes_of(&input.result));
    ck_sx_ok(&cx, tiles_run_within(&cx, kernel, module, &input, 0, false, want, 0, &statistics));
    most = 2 * statistics.thread_insns;
    ck_assert(!is_killed());
    check_subject();
    for (uint32_t n = 0; n < SX_COUNT(same); n++) {
        ck_assert_msg(survivors[n] == same[n].count[subject], "%s %s: %u survive, not %u (%s)",
                      same[n].how, same[n].text, survivors[n], same[n].count[subject], same[n].why);
    }
    sx_ctx_fini(&cx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tile mutants");
    TCase *tcase = tcase_create("mutants");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, test_mutants, 0, (int)SX_COUNT(subjects));
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
