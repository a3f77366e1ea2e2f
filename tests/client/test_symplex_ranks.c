/* The public library with several ranks: threads with a communicator that the test wrote, over a barrier. */
#include "client/symplex.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/module.h"
#include "tests/lib/test.h"

#define RANKS 3u

static const char text[] =
    "sx 1\ngraph \"g\" mesh (dp = 3) {\n"
    "    %x = parameter {name = \"x\", weight = 0} : f32[6]\n"
    "    %0 = all_reduce(%x) {reducer = add, along = \"dp\", ranks = 3} : f32[6]\n"
    "    %1 = all_gather(%x) {axis = 0, along = \"dp\", ranks = 3} : f32[18]\n"
    "    %2 = reduce_scatter(%x) {axis = 0, reducer = maximum, along = \"dp\", ranks = 3} : "
    "f32[2]\n"
    "    %3 = permute(%x) {along = \"dp\", ranks = 3, pairs = [[0, 2]]} : f32[6]\n"
    "    return %0 as \"sum\", %1 as \"all\", %2 as \"most\", %3 as \"sent\"\n}\n";

typedef struct {
    pthread_barrier_t barrier;
    const void *from[RANKS];
    bool refuses;
    uint32_t aborted;
    uint32_t asked; /* all-gathers of the library itself */
} meeting;

typedef struct {
    meeting *at;
    uint32_t rank;
    symplex_module *module;
    symplex_error error;
    symplex_code code;
    float x[6], sum[6], all[18], most[2], sent[6];
    pthread_t thread;
} rank;

static symplex_code meet(void *self, const symplex_exchange *exchange, symplex_error *error)
{
    rank *own = self;
    if (own->at->refuses) {
        (void)snprintf(error->text, sizeof(error->text), "no wire along %s", exchange->axis);
        return SYMPLEX_BUSY;
    }
    ck_assert(exchange->count == RANKS && exchange->place == own->rank && exchange->first == 0);
    bool library = exchange->launch == SYMPLEX_NO_LAUNCH;
    ck_assert_str_eq(exchange->axis, library ? "" : "dp");
    own->at->asked += library && own->rank == 0 ? 1 : 0;
    own->at->from[own->rank] = exchange->from;
    (void)pthread_barrier_wait(&own->at->barrier);
    symplex_exchange_run(exchange, own->at->from);
    (void)pthread_barrier_wait(&own->at->barrier);
    return SYMPLEX_OK;
}

static void give_up(void *self, const symplex_error *error)
{
    rank *own = self;
    ck_assert_int_eq(error->code, own->at->refuses ? SYMPLEX_BUSY : SYMPLEX_MISMATCH);
    own->at->aborted |= 1u << own->rank;
}

static symplex_communicator communicator_of(rank *own)
{
    return (symplex_communicator){own, own->rank, RANKS, meet, meet, meet, meet, meet, give_up};
}

static void bind(rank *own, symplex_role role, const char *name, float *memory, size_t size)
{
    size_t index = symplex_module_find(own->module, role, name);
    symplex_code code = symplex_module_bind(own->module, index, memory, size, &own->error);
    ck_assert_msg(code == SYMPLEX_OK, "%s", own->error.text);
}

/* The same module, but that it says of itself that it is slower by a nanosecond. */
static void alter(void **bytes, size_t *size)
{
    sx_ctx cx;
    sx_buf out;
    sx_module module;
    sx_ctx_init(&cx, (size_t)64 << 20);
    sx_buf_init(&out, (size_t)64 << 20);
    void *aligned = aligned_alloc(64, (*size + 63) / 64 * 64);
    memcpy(aligned, *bytes, *size);
    ck_sx_ok(&cx, sx_module_decode(&cx, (sx_span){aligned, *size}, true, &module));
    sx_module_info info = *module.info;
    info.cost_ns += 1;
    module.info = &info;
    ck_sx_ok(&cx, sx_module_encode(&cx, &module, &out));
    ck_assert_uint_eq(out.len, *size);
    memcpy(*bytes, out.ptr, *size);
    free(aligned);
    sx_buf_fini(&out);
    sx_ctx_fini(&cx);
}

/* One module for all ranks; rank 2 that of `other` if it is not NULL, or an altered one if it is the same. */
static void open_ranks(meeting *m, rank ranks[RANKS], const symplex_program *other)
{
    symplex_error error;
    symplex_client *client;
    void *bytes[2] = {NULL, NULL};
    size_t size[2];
    const symplex_options options = {.daemon = SYMPLEX_DAEMON_NEVER};
    const symplex_program program = {
        .bytes = text, .size = sizeof(text) - 1, .target = "x86-64-v3"};
    ck_assert_int_eq(symplex_open(&options, &client, &error), SYMPLEX_OK);
    for (uint32_t i = 0; i < (other != NULL ? 2 : 1); i++) {
        symplex_code code =
            symplex_compile(client, i == 0 ? &program : other, &bytes[i], &size[i], NULL, &error);
        ck_assert_msg(code == SYMPLEX_OK, "%s", error.text);
    }
    if (other != NULL && other->bytes == text) {
        alter(&bytes[1], &size[1]);
    }
    for (uint32_t r = 0; r < RANKS; r++) {
        rank *own = &ranks[r];
        uint32_t which = r == 2 && other != NULL ? 1 : 0;
        *own = (rank){.at = m, .rank = r};
        ck_assert_int_eq(symplex_module_open(bytes[which], size[which], 1, &own->module, &error),
                         SYMPLEX_OK);
        ck_assert_uint_eq(symplex_module_ranks(own->module), RANKS);
        for (uint32_t i = 0; i < 6; i++) {
            own->x[i] = (float)(r * 10 + i);
        }
        bind(own, SYMPLEX_INPUT_TENSOR, "x", own->x, sizeof(own->x));
        bind(own, SYMPLEX_OUTPUT_TENSOR, "sum", own->sum, sizeof(own->sum));
        bind(own, SYMPLEX_OUTPUT_TENSOR, "all", own->all, sizeof(own->all));
        bind(own, SYMPLEX_OUTPUT_TENSOR, "most", own->most, sizeof(own->most));
        bind(own, SYMPLEX_OUTPUT_TENSOR, "sent", own->sent, sizeof(own->sent));
    }
    symplex_free(bytes[0]);
    symplex_free(bytes[1]);
    symplex_close(client);
}

static void *run_rank(void *self)
{
    rank *own = self;
    own->code = symplex_module_run(own->module, &own->error);
    return NULL;
}

static void run_ranks(rank ranks[RANKS], bool join)
{
    for (uint32_t r = 0; r < RANKS; r++) {
        const symplex_communicator c = communicator_of(&ranks[r]);
        ck_assert(!join || symplex_module_join(ranks[r].module, &c, NULL) == SYMPLEX_OK);
    }
    for (uint32_t r = 0; r < RANKS; r++) {
        ck_assert_int_eq(pthread_create(&ranks[r].thread, NULL, run_rank, &ranks[r]), 0);
    }
    for (uint32_t r = 0; r < RANKS; r++) {
        ck_assert_int_eq(pthread_join(ranks[r].thread, NULL), 0);
    }
}

START_TEST(test_ranks_of_the_caller)
{
    static rank ranks[RANKS];
    meeting m = {.refuses = false};
    open_ranks(&m, ranks, NULL);
    ck_assert_int_eq(pthread_barrier_init(&m.barrier, NULL, RANKS), 0);
    run_ranks(ranks, true);
    run_ranks(ranks, false);
    ck_assert_uint_eq(m.asked, 1); /* once, and again where they join again */
    run_ranks(ranks, true);
    ck_assert_uint_eq(m.asked, 2);
    for (uint32_t r = 0; r < RANKS; r++) {
        ck_assert_msg(ranks[r].code == SYMPLEX_OK, "%s", ranks[r].error.text);
        for (uint32_t i = 0; i < 6; i++) {
            ck_assert(ranks[r].sum[i] == (float)(30 + 3 * i));
            ck_assert(ranks[r].sent[i] == (r == 2 ? (float)i : 0.0F));
        }
        for (uint32_t i = 0; i < 18; i++) {
            ck_assert(ranks[r].all[i] == (float)(i / 6 * 10 + i % 6));
        }
        ck_assert(ranks[r].most[0] == (float)(20 + 2 * r) &&
                  ranks[r].most[1] == (float)(21 + 2 * r));
        symplex_module_close(ranks[r].module);
    }
    (void)pthread_barrier_destroy(&m.barrier);
}
END_TEST

/* Modules whose collectives are the same, of another program, or of the same compiled in another way: the difference
 * is named, and no output is written. */
START_TEST(test_other_modules)
{
    static rank ranks[RANKS];
    meeting m = {.refuses = false};
    char other[sizeof(text) + 64];
    const char *cut = strstr(text, "    return");
    (void)snprintf(other, sizeof(other), "%.*s    %%4 = negate(%%0) : f32[6]\n    return %%4%s",
                   (int)(cut - text), text, cut + strlen("    return %0"));
    const symplex_program program[] = {
        {.bytes = other, .size = strlen(other), .target = "x86-64-v3"},
        {.bytes = text, .size = sizeof(text) - 1, .target = "x86-64-v3"}};
    static const char *const error[] = {
        "ranks disagree: rank 2 runs program ",
        "ranks disagree: rank 2 runs another build of the program: module "};
    open_ranks(&m, ranks, &program[_i]);
    ck_assert_int_eq(pthread_barrier_init(&m.barrier, NULL, RANKS), 0);
    run_ranks(ranks, true);
    for (uint32_t r = 0; r < RANKS; r++) {
        ck_assert_int_eq(ranks[r].code, SYMPLEX_MISMATCH);
        ck_assert_msg(strstr(ranks[r].error.text, error[_i]) != NULL, "%s", ranks[r].error.text);
        ck_assert(ranks[r].sum[1] == 0 && ranks[r].all[1] == 0);
        symplex_module_close(ranks[r].module);
    }
    ck_assert_uint_eq(m.aborted, 7);
    (void)pthread_barrier_destroy(&m.barrier);
}
END_TEST

START_TEST(test_failures)
{
    static rank ranks[RANKS];
    meeting m = {.refuses = true};
    symplex_error error;
    open_ranks(&m, ranks, NULL);
    rank *own = &ranks[1];
    ck_assert_int_eq(symplex_module_run(own->module, &error), SYMPLEX_USAGE);
    ck_assert_ptr_nonnull(strstr(error.text, "3 ranks run the module together: no communicator"));
    symplex_communicator c = communicator_of(own);
    c.rank_count = 4;
    ck_assert_int_eq(symplex_module_join(own->module, &c, &error), SYMPLEX_INPUT);
    ck_assert_ptr_nonnull(strstr(error.text, "communicator of rank 1 of 4, 3 ranks run the"));
    c = communicator_of(own);
    c.permute = NULL;
    ck_assert_int_eq(symplex_module_join(own->module, &c, &error), SYMPLEX_USAGE);
    c = communicator_of(own);
    ck_assert_int_eq(symplex_module_join(own->module, &c, &error), SYMPLEX_OK);
    ck_assert_int_eq(symplex_module_run(own->module, &error), SYMPLEX_BUSY);
    ck_assert_str_eq(error.text, "communicator: no wire along ");
    ck_assert_uint_eq(m.aborted, 2);
    for (uint32_t r = 0; r < RANKS; r++) {
        symplex_module_close(ranks[r].module);
    }
    ck_assert_uint_eq(symplex_module_ranks(NULL), 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client/symplex_ranks");
    TCase *tcase = tcase_create("ranks");
    tcase_add_test(tcase, test_ranks_of_the_caller);
    tcase_add_loop_test(tcase, test_other_modules, 0, 2);
    tcase_add_test(tcase, test_failures);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
