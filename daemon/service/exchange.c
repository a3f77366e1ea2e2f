/* exchange.c - the thread that talks to the server. */
#include "daemon/service/exchange.h"

#include <hiredis/hiredis.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <utlist.h>

#include "protocol/protocol.h"

#define TICK_MS 50
#define IDLE_MS 2000     /* a free place lapses unless it is told again */
#define TASK_MS 30000    /* a task lapses unless its owner lives */
#define RESULT_MS 120000 /* a result lapses unless its owner fetches it */
#define COMMAND_S 5      /* for one command */
#define RETRY_MS 250
#define RETRY_STEPS 7
#define RESULTS_MAX 16 /* fetched in one turn */
#define DECODE_BYTES ((size_t)64 << 20)

typedef struct {
    char name[SXD_NAME_MAX];
    char who[SXD_NAME_MAX]; /* offer: who holds the lease; empty: nobody */
    sx_key task;            /* digest of name and body */
    uint64_t at_ms;         /* offer: pushed; held: renewed */
    uint64_t fresh_ms;      /* offer: the task was told to live on */
    bool used;
} item;

struct sxd_exchange {
    sxd_exchange_config config;
    char prefix[48];
    char host[256]; /* or path */
    int port;       /* 0: a path */
    pthread_t thread;
    pthread_mutex_t mutex; /* guards orders, events, want, stop */
    pthread_cond_t changed;
    sxd_parcel *orders, *events;
    uint32_t want;
    bool stop;
    /* the thread's own */
    redisContext *redis; /* NULL: not connected */
    uint64_t retry_ms;
    uint32_t failures;
    bool was_down; /* told */
    uint32_t told_want, told_wanted;
    uint64_t told_ms;
    uint32_t ticket;
    item offer[SXD_EXCHANGE_HELD_MAX];
    item held[SXD_EXCHANGE_HELD_MAX];
};

/* ---- parcels ---- */
void sxd_parcel_free(sxd_parcel *parcel)
{
    if (parcel != NULL) {
        sx_buf_fini(&parcel->body);
        free(parcel);
    }
}

sxd_parcel *sxd_parcel_new(int kind, const char *name)
{
    sxd_parcel *parcel = calloc(1, sizeof(*parcel));
    if (parcel != NULL) {
        parcel->kind = kind;
        sx_buf_init(&parcel->body, SXD_EXCHANGE_BYTES_MAX);
        (void)snprintf(parcel->name, sizeof(parcel->name), "%s", name != NULL ? name : "");
    }
    return parcel;
}

static void post(sxd_exchange *exchange, sxd_parcel *event)
{
    if (event == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&exchange->mutex);
    DL_APPEND(exchange->events, event);
    (void)pthread_mutex_unlock(&exchange->mutex);
    exchange->config.wake(exchange->config.self);
}

static void tell(sxd_exchange *exchange, int kind, const char *name, const char *who,
                 uint32_t count)
{
    sxd_parcel *event = sxd_parcel_new(kind, name);
    if (event != NULL) {
        (void)snprintf(event->who, sizeof(event->who), "%s", who);
        event->count = count;
    }
    post(exchange, event);
}

static uint64_t now_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* ---- names and digests ---- */
static bool is_name(const char *text, size_t len)
{
    uint32_t parts = 1;
    for (size_t i = 0; i < len; i++) {
        bool digit = (text[i] >= '0' && text[i] <= '9') || (text[i] >= 'a' && text[i] <= 'f');
        if (!digit && text[i] != '/') {
            return false;
        }
        parts += text[i] == '/' ? 1 : 0;
    }
    return len > 0 && len < SXD_NAME_MAX && parts == 4;
}

static sx_key task_digest(const char *name, sx_span body)
{
    const sx_span part[] = {sx_span_of(name), body};
    return sx_key_of("search task", part, SX_COUNT(part));
}

static sx_key result_digest(const char *name, const sx_key *task, sx_span rest)
{
    const sx_span part[] = {sx_span_of(name), {task->byte, SX_KEY_BYTES}, rest};
    return sx_key_of("search result", part, SX_COUNT(part));
}

/* `value`: digest, then what it is of. */
static bool split(const redisReply *value, sx_key *digest, sx_span *rest)
{
    if (value == NULL || value->type != REDIS_REPLY_STRING || value->len < SX_KEY_BYTES ||
        value->len > SXD_EXCHANGE_BYTES_MAX) {
        return false;
    }
    memcpy(digest->byte, value->str, SX_KEY_BYTES);
    *rest = (sx_span){(const uint8_t *)value->str + SX_KEY_BYTES, value->len - SX_KEY_BYTES};
    return true;
}

static item *find(item items[SXD_EXCHANGE_HELD_MAX], const char *name)
{
    for (uint32_t i = 0; i < SXD_EXCHANGE_HELD_MAX; i++) {
        if (items[i].used && strcmp(items[i].name, name) == 0) {
            return &items[i];
        }
    }
    return NULL;
}

static item *make(item items[SXD_EXCHANGE_HELD_MAX], const char *name)
{
    for (uint32_t i = 0; i < SXD_EXCHANGE_HELD_MAX; i++) {
        if (!items[i].used) {
            items[i] = (item){.used = true, .at_ms = now_ms(), .fresh_ms = now_ms()};
            (void)snprintf(items[i].name, sizeof(items[i].name), "%s", name);
            return &items[i];
        }
    }
    return NULL;
}

/* ---- commands ---- */
static void lose(sxd_exchange *exchange, const char *why)
{
    if (!exchange->was_down) {
        sxd_parcel *event = sxd_parcel_new(SXD_EVENT_DOWN, NULL);
        if (event != NULL) {
            (void)snprintf(event->who, sizeof(event->who), "%.90s", why);
        }
        post(exchange, event);
    }
    exchange->was_down = true;
    if (exchange->redis != NULL) {
        redisFree(exchange->redis);
        exchange->redis = NULL;
    }
    memset(exchange->offer, 0, sizeof(exchange->offer));
    memset(exchange->held, 0, sizeof(exchange->held));
    uint32_t step = exchange->failures < RETRY_STEPS ? exchange->failures : RETRY_STEPS;
    exchange->failures++;
    exchange->retry_ms = now_ms() + ((uint64_t)RETRY_MS << step);
}

/* The reply; NULL: the connection is lost, or the server refuses. The caller frees it. */
static redisReply *ask(sxd_exchange *exchange, const char *format, ...)
{
    if (exchange->redis == NULL) {
        return NULL;
    }
    va_list arguments;
    va_start(arguments, format);
    redisReply *reply = redisvCommand(exchange->redis, format, arguments);
    va_end(arguments);
    if (reply == NULL || reply->type == REDIS_REPLY_ERROR) {
        char why[128];
        (void)snprintf(why, sizeof(why), "%.90s",
                       reply != NULL ? reply->str : exchange->redis->errstr);
        freeReplyObject(reply);
        lose(exchange, why);
        return NULL;
    }
    return reply;
}

/* A command of which only a number, or nothing, is wanted. -1: none. */
static int64_t number(redisReply *reply)
{
    int64_t value = reply != NULL && reply->type == REDIS_REPLY_INTEGER ? reply->integer : -1;
    freeReplyObject(reply);
    return value;
}

static bool connect_server(sxd_exchange *exchange)
{
    if (exchange->redis != NULL) {
        return true;
    }
    if (now_ms() < exchange->retry_ms) {
        return false;
    }
    struct timeval patience = {.tv_sec = 1};
    redisContext *redis = exchange->port != 0
                              ? redisConnectWithTimeout(exchange->host, exchange->port, patience)
                              : redisConnectUnixWithTimeout(exchange->host, patience);
    struct timeval longest = {.tv_sec = COMMAND_S};
    if (redis == NULL || redis->err != 0 || redisSetTimeout(redis, longest) != REDIS_OK) {
        char why[128];
        (void)snprintf(why, sizeof(why), "%.90s", redis != NULL ? redis->errstr : "no memory");
        if (redis != NULL) {
            redisFree(redis);
        }
        lose(exchange, why);
        return false;
    }
    exchange->redis = redis;
    freeReplyObject(ask(exchange, "PING"));
    if (exchange->redis == NULL) {
        return false;
    }
    exchange->failures = 0;
    exchange->was_down = false;
    exchange->told_ms = 0;
    exchange->told_wanted = 0;
    tell(exchange, SXD_EVENT_UP, NULL, "", 0);
    return true;
}

/* ---- orders ---- */
static void push(sxd_exchange *exchange, item *offer)
{
    offer->at_ms = now_ms();
    offer->who[0] = '\0';
    freeReplyObject(ask(exchange, "LREM %soffers 0 %s", exchange->prefix, offer->name));
    freeReplyObject(ask(exchange, "RPUSH %soffers %s", exchange->prefix, offer->name));
}

static void put_offer(sxd_exchange *exchange, const sxd_parcel *order)
{
    item *offer = make(exchange->offer, order->name);
    sx_span body = sx_buf_span(&order->body);
    if (offer == NULL) {
        tell(exchange, SXD_EVENT_LEASED, order->name, "", 0); /* its owner takes it back in time */
        return;
    }
    offer->task = task_digest(order->name, body);
    sx_buf value;
    sx_buf_init(&value, SXD_EXCHANGE_BYTES_MAX);
    sx_buf_put(&value, offer->task.byte, SX_KEY_BYTES);
    sx_buf_put_span(&value, body);
    if (value.code == SX_OK) {
        freeReplyObject(ask(exchange, "SET %stask:%s %b PX %d", exchange->prefix, offer->name,
                            value.ptr, value.len, TASK_MS));
        push(exchange, offer);
    }
    sx_buf_fini(&value);
}

static void forget(sxd_exchange *exchange, const char *name)
{
    const char *p = exchange->prefix;
    freeReplyObject(ask(exchange, "LREM %soffers 0 %s", p, name));
    freeReplyObject(
        ask(exchange, "DEL %stask:%s %slease:%s %sresult:%s", p, name, p, name, p, name));
    item *offer = find(exchange->offer, name);
    if (offer != NULL) {
        offer->used = false;
    }
}

static const char release_script[] =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0";
static const char renew_script[] =
    "if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end"
    " redis.call('pexpire', KEYS[1], ARGV[2]) return redis.call('exists', KEYS[2])";
/* lease, task, result, done; who, value, milliseconds, name */
static const char answer_script[] =
    "if redis.call('get', KEYS[1]) ~= ARGV[1] or redis.call('exists', KEYS[2]) == 0 then return 0 "
    "end redis.call('set', KEYS[3], ARGV[2], 'PX', ARGV[3])"
    " redis.call('rpush', KEYS[4], ARGV[4]) redis.call('pexpire', KEYS[4], ARGV[3])"
    " redis.call('del', KEYS[1]) return 1";

static void release(sxd_exchange *exchange, item *held)
{
    freeReplyObject(ask(exchange, "EVAL %s 1 %slease:%s %s", release_script, exchange->prefix,
                        held->name, exchange->config.id));
    held->used = false;
}

static void put_answer(sxd_exchange *exchange, const sxd_parcel *order)
{
    item *held = find(exchange->held, order->name);
    const char *p = exchange->prefix;
    if (held == NULL) {
        return; /* the connection was lost in between: another does it again */
    }
    sx_buf rest, value;
    sx_buf_init(&rest, SXD_EXCHANGE_BYTES_MAX);
    sx_buf_init(&value, SXD_EXCHANGE_BYTES_MAX);
    sx_buf_put_u32(&rest, (uint32_t)order->worked_us);
    sx_buf_put_u32(&rest, (uint32_t)(order->worked_us >> 32));
    sx_buf_put_span(&rest, sx_buf_span(&order->body));
    sx_key digest = result_digest(held->name, &held->task, sx_buf_span(&rest));
    sx_buf_put(&value, digest.byte, SX_KEY_BYTES);
    sx_buf_put_span(&value, sx_buf_span(&rest));
    const char *slash = strchr(held->name, '/');
    if (rest.code == SX_OK && value.code == SX_OK && slash != NULL) {
        freeReplyObject(ask(exchange,
                            "EVAL %s 4 %slease:%s %stask:%s %sresult:%s %sdone:%b %s %b %d %s",
                            answer_script, p, held->name, p, held->name, p, held->name, p,
                            held->name, (size_t)(slash - held->name), exchange->config.id,
                            value.ptr, value.len, RESULT_MS, held->name));
    }
    held->used = false;
    sx_buf_fini(&rest);
    sx_buf_fini(&value);
}

static void carry_out(sxd_exchange *exchange, const sxd_parcel *order)
{
    item *held;
    switch ((sxd_order_kind)order->kind) {
    case SXD_ORDER_OFFER: put_offer(exchange, order); break;
    case SXD_ORDER_WITHDRAW: forget(exchange, order->name); break;
    case SXD_ORDER_ANSWER: put_answer(exchange, order); break;
    case SXD_ORDER_DROP:
        held = find(exchange->held, order->name);
        if (held != NULL) {
            release(exchange, held);
        }
        break;
    }
}

static void carry_out_all(sxd_exchange *exchange)
{
    (void)pthread_mutex_lock(&exchange->mutex);
    sxd_parcel *orders = exchange->orders;
    exchange->orders = NULL;
    (void)pthread_mutex_unlock(&exchange->mutex);
    sxd_parcel *order;
    sxd_parcel *next;
    DL_FOREACH_SAFE(orders, order, next)
    {
        DL_DELETE(orders, order);
        if (exchange->redis != NULL) {
            carry_out(exchange, order);
        }
        sxd_parcel_free(order);
    }
}

/* ---- free places ---- */
/* Milliseconds by the server's clock; 0: lost. */
static int64_t server_ms(sxd_exchange *exchange)
{
    redisReply *reply = ask(exchange, "TIME");
    int64_t ms = 0;
    if (reply != NULL && reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 &&
        reply->element[0]->type == REDIS_REPLY_STRING &&
        reply->element[1]->type == REDIS_REPLY_STRING) {
        ms = strtoll(reply->element[0]->str, NULL, 10) * 1000 +
             strtoll(reply->element[1]->str, NULL, 10) / 1000;
    }
    freeReplyObject(reply);
    return ms;
}

static void tell_places(sxd_exchange *exchange, uint32_t want, int64_t now)
{
    const char *p = exchange->prefix;
    for (uint32_t i = 0; i < want || i < exchange->told_want; i++) {
        if (i < want) {
            freeReplyObject(ask(exchange, "ZADD %sidle %lld %s/%u", p, (long long)(now + IDLE_MS),
                                exchange->config.id, i));
        } else {
            freeReplyObject(ask(exchange, "ZREM %sidle %s/%u", p, exchange->config.id, i));
        }
    }
    exchange->told_want = want;
    exchange->told_ms = now_ms();
}

static void count_places(sxd_exchange *exchange, int64_t now)
{
    freeReplyObject(
        ask(exchange, "ZREMRANGEBYSCORE %sidle -inf %lld", exchange->prefix, (long long)now));
    redisReply *reply = ask(exchange, "ZRANGE %sidle 0 255", exchange->prefix);
    uint32_t count = 0;
    size_t own = strlen(exchange->config.id);
    for (size_t i = 0; reply != NULL && reply->type == REDIS_REPLY_ARRAY && i < reply->elements;
         i++) {
        const redisReply *place = reply->element[i];
        bool ours = place->type != REDIS_REPLY_STRING ||
                    (place->len > own && memcmp(place->str, exchange->config.id, own) == 0);
        count += ours ? 0 : 1;
    }
    freeReplyObject(reply);
    if (exchange->redis != NULL && count != exchange->told_wanted) {
        exchange->told_wanted = count;
        tell(exchange, SXD_EVENT_WANTED, NULL, "", count);
    }
}

static void places(sxd_exchange *exchange, uint32_t want)
{
    int64_t now = server_ms(exchange);
    if (now == 0) {
        return;
    }
    if (want != exchange->told_want || now_ms() - exchange->told_ms > IDLE_MS / 4) {
        tell_places(exchange, want, now);
    }
    count_places(exchange, now);
}

/* ---- our offers ---- */
static void take_result(sxd_exchange *exchange, item *offer)
{
    redisReply *value = ask(exchange, "GET %sresult:%s", exchange->prefix, offer->name);
    sx_key digest;
    sx_span rest;
    bool fine = split(value, &digest, &rest) && rest.len > 8;
    if (fine) {
        sx_key wanted = result_digest(offer->name, &offer->task, rest);
        fine = sx_key_equal(&wanted, &digest);
    }
    sxd_parcel *event = sxd_parcel_new(SXD_EVENT_RESULT, offer->name);
    if (fine && event != NULL) {
        for (uint32_t i = 0; i < 8; i++) {
            event->worked_us |= (uint64_t)rest.ptr[i] << (8 * i);
        }
        sx_buf_put(&event->body, rest.ptr + 8, rest.len - 8);
    }
    freeReplyObject(value);
    if (exchange->redis == NULL) {
        sxd_parcel_free(event);
        return;
    }
    char name[SXD_NAME_MAX];
    (void)snprintf(name, sizeof(name), "%s", offer->name);
    forget(exchange, name);
    post(exchange, event); /* with an empty body: not to be trusted, its owner does it */
}

static void take_results(sxd_exchange *exchange)
{
    for (uint32_t i = 0; i < RESULTS_MAX; i++) {
        redisReply *name = ask(exchange, "LPOP %sdone:%s", exchange->prefix, exchange->config.id);
        if (name == NULL || name->type != REDIS_REPLY_STRING) {
            freeReplyObject(name);
            return;
        }
        item *offer = is_name(name->str, name->len) ? find(exchange->offer, name->str) : NULL;
        freeReplyObject(name);
        if (offer != NULL) {
            take_result(exchange, offer);
        }
    }
}

static void look_after_offer(sxd_exchange *exchange, item *offer, uint64_t now)
{
    if (now - offer->fresh_ms > TASK_MS / 6) {
        offer->fresh_ms = now;
        if (number(ask(exchange, "PEXPIRE %stask:%s %d", exchange->prefix, offer->name, TASK_MS)) ==
            0) {
            char name[SXD_NAME_MAX];
            (void)snprintf(name, sizeof(name), "%s", offer->name);
            offer->used = false; /* evicted or deleted there: its owner does it */
            post(exchange, sxd_parcel_new(SXD_EVENT_RESULT, name));
            return;
        }
    }
    redisReply *lease = ask(exchange, "GET %slease:%s", exchange->prefix, offer->name);
    if (lease == NULL) {
        return;
    }
    bool held = lease->type == REDIS_REPLY_STRING && lease->len > 0 && lease->len < SXD_NAME_MAX;
    const char *who = held ? lease->str : "";
    bool printable = strspn(who, "0123456789abcdef") == strlen(who);
    if (strcmp(who, offer->who) != 0 && printable) {
        bool lost = !held &&
                    number(ask(exchange, "EXISTS %sresult:%s", exchange->prefix, offer->name)) == 0;
        if (held || lost) {
            tell(exchange, SXD_EVENT_LEASED, offer->name, who, 0);
            (void)snprintf(offer->who, sizeof(offer->who), "%s", who);
        }
        if (lost && exchange->redis != NULL) {
            push(exchange, offer);
        }
    } else if (!held && now - offer->at_ms > (uint64_t)exchange->config.lease_ms) {
        push(exchange, offer); /* whoever popped its name did not live to take the lease */
    }
    freeReplyObject(lease);
}

/* ---- steps of others ---- */
static void renew(sxd_exchange *exchange, item *held, uint64_t now)
{
    if (now - held->at_ms < (uint64_t)exchange->config.lease_ms / 3) {
        return;
    }
    held->at_ms = now;
    const char *p = exchange->prefix;
    int64_t alive =
        number(ask(exchange, "EVAL %s 2 %slease:%s %stask:%s %s %lld", renew_script, p, held->name,
                   p, held->name, exchange->config.id, (long long)exchange->config.lease_ms));
    if (exchange->redis != NULL && alive != 1) {
        tell(exchange, SXD_EVENT_GONE, held->name, "", 0);
        release(exchange, held);
    }
}

/* The task as a frame for a worker; false: it is none. */
static bool read_task(sxd_exchange *exchange, sx_span body, sxd_parcel *event)
{
    static const uint8_t room[SX_SP_HEAD_BYTES] = {0};
    sx_ctx cx;
    sx_rpc_request request;
    sx_ctx_init(&cx, DECODE_BYTES);
    bool fine = sx_rpc_decode_request(&cx, body, &request) == SX_OK &&
                request.method == SX_METHOD_STEP && !request.notice;
    if (fine) {
        event->ticket = ++exchange->ticket;
        sx_buf_put(&event->body, room, sizeof(room));
        sx_rpc_encode_request(&event->body, event->ticket, SX_METHOD_STEP, request.args, NULL);
        fine = event->body.code == SX_OK;
    }
    if (fine) {
        sx_sp_head(event->body.len - SX_SP_HEAD_BYTES, event->body.ptr);
    }
    sx_ctx_fini(&cx);
    return fine;
}

/* A lease on the name is ours: fetches the task. */
static bool fetch(sxd_exchange *exchange, item *held)
{
    redisReply *value = ask(exchange, "GET %stask:%s", exchange->prefix, held->name);
    sxd_parcel *event = sxd_parcel_new(SXD_EVENT_TAKEN, held->name);
    sx_key digest;
    sx_span body;
    bool fine = event != NULL && split(value, &digest, &body);
    if (fine) {
        held->task = task_digest(held->name, body);
        fine = sx_key_equal(&held->task, &digest) && read_task(exchange, body, event);
    }
    freeReplyObject(value);
    if (fine) {
        post(exchange, event);
    } else {
        sxd_parcel_free(event);
        release(exchange, held);
    }
    return fine;
}

/* Pops one name; false: there is none. */
static bool take_one(sxd_exchange *exchange, uint32_t *want)
{
    redisReply *name = ask(exchange, "LPOP %soffers", exchange->prefix);
    if (name == NULL || name->type != REDIS_REPLY_STRING) {
        freeReplyObject(name);
        return false;
    }
    size_t own = strlen(exchange->config.id); /* ours: its owner has taken it back */
    bool known = !is_name(name->str, name->len) || find(exchange->held, name->str) != NULL ||
                 (name->len > own && memcmp(name->str, exchange->config.id, own) == 0);
    item *held = known ? NULL : make(exchange->held, name->str);
    freeReplyObject(name);
    if (held == NULL) {
        return true;
    }
    redisReply *got = ask(exchange, "SET %slease:%s %s NX PX %lld", exchange->prefix, held->name,
                          exchange->config.id, (long long)exchange->config.lease_ms);
    bool ours = got != NULL && got->type == REDIS_REPLY_STATUS;
    freeReplyObject(got);
    if (!ours) {
        held->used = false;
    } else if (fetch(exchange, held)) {
        *want -= 1;
    }
    return true;
}

/* ---- the thread ---- */
static void turn(sxd_exchange *exchange, uint32_t want)
{
    carry_out_all(exchange);
    take_results(exchange);
    uint64_t now = now_ms();
    for (uint32_t i = 0; i < SXD_EXCHANGE_HELD_MAX; i++) {
        if (exchange->redis != NULL && exchange->offer[i].used) {
            look_after_offer(exchange, &exchange->offer[i], now);
        }
        if (exchange->redis != NULL && exchange->held[i].used) {
            renew(exchange, &exchange->held[i], now);
        }
    }
    uint32_t left = want;
    for (uint32_t i = 0; left > 0 && i < SXD_EXCHANGE_HELD_MAX && take_one(exchange, &left); i++) {
    }
    if (left !=
        want) { /* said before the next turn, so that nobody takes more than it has room for */
        (void)pthread_mutex_lock(&exchange->mutex);
        exchange->want = exchange->want > want - left ? exchange->want - (want - left) : 0;
        (void)pthread_mutex_unlock(&exchange->mutex);
    }
    if (exchange->redis != NULL) {
        places(exchange, left);
    }
}

static void *exchange_main(void *self)
{
    sxd_exchange *exchange = self;
    bool stop = false;
    while (!stop) {
        struct timespec until;
        (void)clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += TICK_MS * 1000000L;
        until.tv_sec += until.tv_nsec / 1000000000L;
        until.tv_nsec %= 1000000000L;
        (void)pthread_mutex_lock(&exchange->mutex);
        if (exchange->orders == NULL && !exchange->stop) {
            (void)pthread_cond_timedwait(&exchange->changed, &exchange->mutex, &until);
        }
        uint32_t want = exchange->want;
        stop = exchange->stop;
        (void)pthread_mutex_unlock(&exchange->mutex);
        if (!stop && connect_server(exchange)) {
            turn(exchange, want);
        } else {
            carry_out_all(exchange); /* without a connection: thrown away */
        }
    }
    if (exchange->redis != NULL) {
        tell_places(exchange, 0, 0);
    }
    if (exchange->redis != NULL) {
        redisFree(exchange->redis);
    }
    return NULL;
}

/* ---- open and close ---- */
static sx_code read_uri(sx_ctx *cx, const char *uri, sxd_exchange *exchange)
{
    const char *colon = strrchr(uri, ':');
    if (strncmp(uri, "unix:///", 8) == 0 && strlen(uri) - 7 < 104) {
        (void)snprintf(exchange->host, sizeof(exchange->host), "%s", uri + 7);
        return SX_OK;
    }
    if (strncmp(uri, "tcp://", 6) == 0 && colon != NULL && colon > uri + 6) {
        char *end;
        long port = strtol(colon + 1, &end, 10);
        size_t len = (size_t)(colon - uri) - 6;
        if (*end == '\0' && end != colon + 1 && port > 0 && port < 65536 &&
            len < sizeof(exchange->host)) {
            memcpy(exchange->host, uri + 6, len);
            exchange->host[len] = '\0';
            exchange->port = (int)port;
            return SX_OK;
        }
    }
    return SX_FAIL(cx, SX_INPUT, "search_redis: '%.100s' is not unix:///path or tcp://host:port",
                   uri);
}

static void free_all(sxd_exchange *exchange)
{
    sxd_parcel *parcel;
    sxd_parcel *next;
    DL_FOREACH_SAFE(exchange->orders, parcel, next)
    {
        sxd_parcel_free(parcel);
    }
    DL_FOREACH_SAFE(exchange->events, parcel, next)
    {
        sxd_parcel_free(parcel);
    }
    (void)pthread_cond_destroy(&exchange->changed);
    (void)pthread_mutex_destroy(&exchange->mutex);
    free(exchange);
}

void sxd_exchange_close(sxd_exchange *exchange)
{
    if (exchange == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&exchange->mutex);
    exchange->stop = true;
    (void)pthread_cond_signal(&exchange->changed);
    (void)pthread_mutex_unlock(&exchange->mutex);
    (void)pthread_join(exchange->thread, NULL);
    free_all(exchange);
}

sx_code sxd_exchange_open(sx_ctx *cx, const sxd_exchange_config *config, sxd_exchange **opened)
{
    SX_ASSERT(config->lease_ms > 0 && config->wake != NULL);
    sxd_exchange *exchange = calloc(1, sizeof(*exchange));
    if (exchange == NULL) {
        return SX_FAIL(cx, SX_NOMEM, "search_redis: no memory");
    }
    exchange->config = *config;
    (void)pthread_mutex_init(&exchange->mutex, NULL);
    (void)pthread_cond_init(&exchange->changed, NULL);
    sx_code code = read_uri(cx, config->uri, exchange);
    sx_span build = sx_span_of(config->build);
    sx_key digest = sx_key_of("search build", &build, 1);
    char hex[SX_KEY_TEXT_SIZE];
    sx_key_print(&digest, hex);
    (void)snprintf(exchange->prefix, sizeof(exchange->prefix), "symplex:1:%.16s:", hex);
    sigset_t all, before;
    (void)sigfillset(&all);
    if (code == SX_OK) {
        (void)pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are the loop's */
        int error = pthread_create(&exchange->thread, NULL, exchange_main, exchange);
        (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
        code = error == 0 ? SX_OK
                          : SX_FAIL(cx, SX_SYSTEM, "search_redis: thread: %s", strerror(error));
    }
    if (code != SX_OK) {
        free_all(exchange);
        return code;
    }
    *opened = exchange;
    return SX_OK;
}

void sxd_exchange_order(sxd_exchange *exchange, sxd_parcel *order)
{
    SX_ASSERT(order->name[0] != '\0');
    (void)pthread_mutex_lock(&exchange->mutex);
    DL_APPEND(exchange->orders, order);
    (void)pthread_cond_signal(&exchange->changed);
    (void)pthread_mutex_unlock(&exchange->mutex);
}

sxd_parcel *sxd_exchange_event(sxd_exchange *exchange)
{
    (void)pthread_mutex_lock(&exchange->mutex);
    sxd_parcel *event = exchange->events;
    if (event != NULL) {
        DL_DELETE(exchange->events, event);
    }
    (void)pthread_mutex_unlock(&exchange->mutex);
    return event;
}

void sxd_exchange_want(sxd_exchange *exchange, uint32_t count)
{
    (void)pthread_mutex_lock(&exchange->mutex);
    bool more = count > exchange->want;
    exchange->want = count;
    if (more) {
        (void)pthread_cond_signal(&exchange->changed);
    }
    (void)pthread_mutex_unlock(&exchange->mutex);
}
