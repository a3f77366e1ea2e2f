/* group.c - ranks that are threads of one process: they meet at each collective and read each other's memory.
 *
 * A rank takes a seat, writes there what it wants to exchange, and waits until all that take part have done so. Then
 * all of them look whether they say the same, each makes its own result from what the others hold, and none goes on
 * before all have read. The n-th collective of one rank meets the n-th of the others: that is the order of the
 * module. Who ends with an error, disagrees or lets others wait too long breaks the group, and everybody gets the
 * same error.
 */
#include "client/runtime/ranks.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct {
    sxr_group *group;
    uint32_t rank;
    sxr_communicator communicator;
    /* What it wants in its last collective; how many it has come to, and how many it is done with. */
    sxr_exchange wants;
    uint64_t come, done;
    /* It reads memory of other ranks. */
    bool reads;
    /* [rank_count] operands of those that take part, of the thread of this rank alone */
    const void **from;
} seat;

struct sxr_group {
    uint32_t rank_count;
    uint64_t deadline_ms;
    seat *seats; /* [rank_count] */
    /* Guards all seats but `from`, `broken` and `error`. */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool has_lock, has_condition;
    bool broken;
    sx_error error; /* why */
};

/* ---- waiting, with the lock held ---- */

static uint32_t member(const sxr_exchange *x, uint32_t k)
{
    SX_ASSERT(k < x->count);
    return x->first + k * x->stride;
}

static sx_code fail_broken(sx_ctx *cx, const sxr_group *group)
{
    cx->error = group->error;
    return cx->error.code;
}

/* The first error is everybody's. */
static void break_group(sxr_group *group, const sx_error *error)
{
    if (!group->broken) {
        group->broken = true;
        group->error = *error;
    }
    (void)pthread_cond_broadcast(&group->changed);
}

static struct timespec deadline_of(const sxr_group *group)
{
    struct timespec at;
    (void)clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_sec += (time_t)(group->deadline_ms / 1000);
    at.tv_nsec += (long)(group->deadline_ms % 1000) * 1000000L;
    at.tv_sec += at.tv_nsec / 1000000000L;
    at.tv_nsec %= 1000000000L;
    return at;
}

/* The first of those that take part which has not come to (or is not done with) collective n; count: all have. */
static uint32_t first_missing(const sxr_group *group, const sxr_exchange *x, uint64_t n, bool done)
{
    uint32_t k = 0;
    while (k < x->count) {
        const seat *other = &group->seats[member(x, k)];
        if ((done ? other->done : other->come) < n) {
            break;
        }
        k++;
    }
    return k;
}

/* Until all that take part have come to the n-th collective. */
static sx_code wait_for_all(sx_ctx *cx, seat *own, const sxr_exchange *x, uint64_t n)
{
    sxr_group *group = own->group;
    const struct timespec until = deadline_of(group);
    uint32_t missing;
    while (!group->broken && (missing = first_missing(group, x, n, false)) < x->count) {
        int status = pthread_cond_timedwait(&group->changed, &group->lock, &until);
        missing = first_missing(group, x, n, false);
        if (status == ETIMEDOUT && !group->broken && missing < x->count) {
            (void)SX_FAIL(
                cx, SX_TIMEOUT,
                "rank %u waited %llu ms in launch %u, %s along %.*s, for rank %u, which "
                "has come to %llu collectives of %llu",
                own->rank, (unsigned long long)group->deadline_ms, x->launch,
                sx_module_collective_name(x->kind), (int)sx_min_i64((int64_t)x->axis.len, 40),
                (const char *)x->axis.ptr, member(x, missing),
                (unsigned long long)group->seats[member(x, missing)].come, (unsigned long long)n);
            break_group(group, &cx->error);
        }
    }
    return group->broken ? fail_broken(cx, group) : SX_OK;
}

static bool somebody_reads(const sxr_group *group, const sxr_exchange *x)
{
    bool reads = false;
    for (uint32_t k = 0; k < x->count; k++) {
        reads = reads || group->seats[member(x, k)].reads;
    }
    return reads;
}

/* Until all are done with the n-th collective; of a group that is broken, until nobody reads what this rank holds. That
 * takes as long as copying does. */
static sx_code wait_until_done(sx_ctx *cx, const seat *own, const sxr_exchange *x, uint64_t n)
{
    sxr_group *group = own->group;
    while (group->broken ? somebody_reads(group, x) : first_missing(group, x, n, true) < x->count) {
        (void)pthread_cond_wait(&group->changed, &group->lock);
    }
    return group->broken ? fail_broken(cx, group) : SX_OK;
}

/* ---- one collective ---- */

static sx_code agree(sx_ctx *cx, seat *own, const sxr_exchange *x)
{
    sxr_group *group = own->group;
    for (uint32_t k = 0; k < x->count; k++) {
        const seat *other = &group->seats[member(x, k)];
        sx_code code = sxr_exchange_agree(cx, x, own->rank, &other->wants, other->rank);
        if (code != SX_OK) {
            break_group(group, &cx->error);
            return code;
        }
        own->from[k] = other->wants.from;
    }
    return SX_OK;
}

static sx_code meet(sx_ctx *cx, void *self, const sxr_exchange *x)
{
    seat *own = self;
    sxr_group *group = own->group;
    SX_ASSERT(member(x, x->place) == own->rank && x->count <= group->rank_count);
    (void)pthread_mutex_lock(&group->lock);
    own->wants = *x;
    uint64_t n = ++own->come;
    (void)pthread_cond_broadcast(&group->changed);
    sx_code code = wait_for_all(cx, own, x, n);
    code = code == SX_OK ? agree(cx, own, x) : code;
    if (code == SX_OK) {
        own->reads = true;
        (void)pthread_mutex_unlock(&group->lock);
        sxr_exchange_run(x, own->from);
        (void)pthread_mutex_lock(&group->lock);
        own->reads = false;
    }
    own->done = n;
    (void)pthread_cond_broadcast(&group->changed);
    sx_code left = wait_until_done(cx, own, x, n);
    (void)pthread_mutex_unlock(&group->lock);
    return code != SX_OK ? code : left;
}

static void leave(void *self, const sx_error *error)
{
    seat *own = self;
    (void)pthread_mutex_lock(&own->group->lock);
    sx_error told = *error;
    if (!own->group->broken) {
        (void)snprintf(told.text, sizeof(told.text), "rank %u: %.400s", own->rank, error->text);
    }
    break_group(own->group, &told);
    (void)pthread_mutex_unlock(&own->group->lock);
}

/* ---- the group ---- */

void sxr_group_free(sxr_group *group)
{
    if (group == NULL) {
        return;
    }
    for (uint32_t r = 0; group->seats != NULL && r < group->rank_count; r++) {
        free(group->seats[r].from);
    }
    if (group->has_lock) {
        (void)pthread_mutex_destroy(&group->lock);
    }
    if (group->has_condition) {
        (void)pthread_cond_destroy(&group->changed);
    }
    free(group->seats);
    free(group);
}

static bool make_condition(pthread_cond_t *condition)
{
    pthread_condattr_t clock;
    if (pthread_condattr_init(&clock) != 0) {
        return false;
    }
    bool made = pthread_condattr_setclock(&clock, CLOCK_MONOTONIC) == 0 &&
                pthread_cond_init(condition, &clock) == 0;
    (void)pthread_condattr_destroy(&clock);
    return made;
}

sx_code sxr_group_new(sx_ctx *cx, uint32_t rank_count, uint64_t deadline_ms, sxr_group **out)
{
    SX_ASSERT(rank_count >= 1 && deadline_ms >= 1);
    sxr_group *group = calloc(1, sizeof(*group));
    bool made = group != NULL;
    if (made) {
        group->rank_count = rank_count;
        group->deadline_ms = deadline_ms;
        group->seats = calloc(rank_count, sizeof(*group->seats));
        group->has_lock = pthread_mutex_init(&group->lock, NULL) == 0;
        group->has_condition = make_condition(&group->changed);
        made = group->seats != NULL && group->has_lock && group->has_condition;
    }
    for (uint32_t r = 0; made && r < rank_count; r++) {
        seat *s = &group->seats[r];
        *s = (seat){.group = group, .rank = r};
        s->from = calloc(rank_count, sizeof(*s->from));
        s->communicator = (sxr_communicator){.self = s,
                                             .rank = r,
                                             .rank_count = rank_count,
                                             .all_reduce = meet,
                                             .all_gather = meet,
                                             .reduce_scatter = meet,
                                             .all_to_all = meet,
                                             .permute = meet,
                                             .abort = leave};
        made = s->from != NULL;
    }
    if (!made) {
        sxr_group_free(group);
        return SX_FAIL(cx, SX_NOMEM, "no memory for a group of %u ranks", rank_count);
    }
    *out = group;
    return SX_OK;
}

const sxr_communicator *sxr_group_communicator(sxr_group *group, uint32_t rank)
{
    SX_ASSERT(rank < group->rank_count);
    return &group->seats[rank].communicator;
}
