/* search_store.c - what searches want of search.db: one operation at a time on a pool thread, so that the loop never
 * waits for a disk. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "daemon/service/search.h"

#define LIST_ARENA_BYTES ((size_t)1 << 30)
#define RETRY_MS 250
#define RETRY_STEPS 7 /* 250 ms to 32 s */

/* ---- operations ---- */
sxd_op *sxd_op_new(sxd_search *search, sxd_search_lane *lane)
{
    SX_ASSERT(lane == NULL || lane->search == search);
    sxd_op *op = calloc(1, sizeof(*op));
    if (op == NULL) {
        return NULL;
    }
    op->search = search;
    op->lane = lane;
    sx_ctx_init(&op->cx, (size_t)1 << 30);
    sx_buf_init(&op->frame, SX_SEARCH_STATE_MAX + SX_RPC_REQUEST_BYTES_MAX + 65536);
    if (search != NULL) {
        op->row = search->row;
        op->request = search->request;
        search->ops++;
    }
    if (lane != NULL) {
        op->lane_row = lane->row;
    }
    return op;
}

static void op_free(sxd_op *op)
{
    sx_blob_free(op->state);
    sx_blob_free(op->best);
    sx_buf_fini(&op->frame);
    sx_ctx_fini(&op->cx);
    free(op);
}

static sxd_op *op_of(sxd_task *task)
{
    return SXD_OWNER(sxd_op, task, task);
}

static void run_op(sxd_task *task)
{
    sxd_op *op = op_of(task);
    sxd_service *service = op->service;
    uv_mutex_lock(&service->search_lock);
    if (service->search_db == NULL) {
        op->code = SX_FAIL(&op->cx, SX_SYSTEM, "search.db is closed");
    } else {
        op->code = SX_OK;
        op->run(op, service->search_db);
    }
    uv_mutex_unlock(&service->search_lock);
}

/* The call of an operation is the loop's again; it is forgotten if its client left. */
static void take_call(sxd_op *op)
{
    if (op->call != NULL && !sxd_call_unpin(op->call)) {
        op->call = NULL;
    }
}

static void on_op(sxd_task *task, const sxd_end *end)
{
    sxd_op *op = op_of(task);
    SX_ASSERT(end->kind == SXD_END_DONE);
    take_call(op);
    if (op->service->base->phase == SXD_DOWN) { /* its search is gone */
        if (op->call != NULL) {
            sxd_call_drop(op->call);
        }
        op_free(op);
        return;
    }
    if (op->search != NULL) {
        op->search->ops--;
    }
    op->retry_ms = 0;
    op->done(op);
    if (op->retry_ms == 0) {
        op_free(op);
    }
}

static const sxd_task_class op_class = {
    .name = "search.db", .serial = true, .run = run_op, .end = on_op};

void sxd_op_put(sxd_service *service, sxd_op *op)
{
    op->service = service;
    SX_ASSERT(op->run != NULL && op->done != NULL);
    if (op->call != NULL) {
        sxd_call_pin(op->call);
    }
    sxd_task_init(&op->task, service->work, &op_class);
    sxd_task_put(&op->task);
}

void sxd_op_retry(sxd_op *op)
{
    uint32_t step = op->tries < RETRY_STEPS ? op->tries : RETRY_STEPS;
    op->tries++;
    op->retry_ms = sxd_base_now(op->service->base) + ((uint64_t)RETRY_MS << step);
    sx_ctx_reset_error(&op->cx);
    DL_APPEND(op->service->op_retries, op);
}

bool sxd_op_waits(const sxd_op *op)
{
    return op->retry_ms != 0;
}

void sxd_op_drop(sxd_op *op)
{
    if (sxd_op_waits(op)) {
        DL_DELETE(op->service->op_retries, op);
    } else {
        SX_ASSERT(op->service == NULL);
        if (op->search != NULL) {
            op->search->ops--;
        }
    }
    op_free(op);
}

void sxd_op_sweep(sxd_service *service)
{
    uint64_t now = sxd_base_now(service->base);
    sxd_op *op;
    sxd_op *next;
    DL_FOREACH_SAFE(service->op_retries, op, next)
    {
        if (now >= op->retry_ms) {
            DL_DELETE(service->op_retries, op);
            op->retry_ms = 0;
            if (op->search != NULL) {
                op->search->ops++;
                op->row = op->search->row; /* it may have been stopped meanwhile */
            }
            sxd_op_put(service, op);
        }
    }
}

/* ---- start and end ---- */
static sx_code take_over(sx_ctx *cx, sxd_service *service)
{
    sx_search_found *found;
    uint32_t count;
    SX_TRY(sx_search_db_list(cx, service->search_db, &found, &count));
    for (uint32_t i = 0; i < count; i++) {
        sxd_search *search =
            sxd_search_new(service, &found[i].row, found[i].lane, found[i].lane_count);
        if (search == NULL) {
            return SX_FAIL(cx, SX_NOMEM, "search %lld: no memory", (long long)found[i].row.id);
        }
        bool runs = search->row.state == SXD_SEARCH_RUNNING;
        sxd_log(SXD_INFO, "search", "search=%lld state=%s lanes=%u damaged=%d",
                (long long)search->row.id, sxd_search_state_name(search->row.state),
                search->lane_count, found[i].damaged);
        if (found[i].damaged) {
            search->row.state = SXD_SEARCH_FAILED;
            (void)snprintf(search->row.why, sizeof(search->row.why),
                           "its row was found damaged in the store");
        } else if (runs) {
            sxd_search_begin(search);
        }
    }
    return SX_OK;
}

void sxd_search_open(sxd_service *service)
{
    sx_ctx cx;
    sx_ctx_init(&cx, LIST_ARENA_BYTES);
    int error = uv_mutex_init(&service->search_lock);
    SX_ASSERT(error == 0);
    bool aside = false;
    sx_code code = service->backend->lanes == NULL
                       ? SX_FAIL(&cx, SX_UNIMPLEMENTED, "this compiler has no searches")
                       : sx_search_db_open(&cx, service->base->config.options.state,
                                           &service->search_db, &aside);
    if (aside) {
        sxd_log(SXD_ERROR, "search-db", "error=\"search.db was damaged: set aside\"");
    }
    code = code == SX_OK ? take_over(&cx, service) : code;
    if (code != SX_OK) {
        char quoted[SXD_QUOTE_MAX];
        (void)snprintf(service->search_error, sizeof(service->search_error), "%s", cx.error.text);
        sxd_log(service->backend->lanes == NULL ? SXD_INFO : SXD_ERROR, "search-db", "error=%s",
                sxd_quote(quoted, sx_span_of(cx.error.text)));
        sx_search_db_close(service->search_db);
        service->search_db = NULL;
        while (service->searches != NULL) {
            sxd_search_free(service->searches);
        }
    }
    sx_ctx_fini(&cx);
}

void sxd_search_close(sxd_service *service)
{
    SX_ASSERT(service->base->phase == SXD_DOWN);
    uv_mutex_lock(&service->search_lock); /* waits for the operation under way */
    sx_search_db_close(service->search_db);
    service->search_db = NULL;
    uv_mutex_unlock(&service->search_lock);
    sxd_task *task;
    sxd_task *next;
    DL_FOREACH_SAFE(service->work->tasks, task, next)
    {
        if (task->class != &op_class || task->state != SXD_TASK_QUEUED) {
            continue; /* on_op frees the one that runs */
        }
        sxd_op *op = op_of(task);
        sxd_task_drop(task);
        take_call(op);
        if (op->call != NULL) {
            sxd_call_drop(op->call);
        }
        op_free(op);
    }
    while (service->op_retries != NULL) {
        sxd_op_drop(service->op_retries);
    }
    while (service->searches != NULL) {
        sxd_search_free(service->searches);
    }
}
