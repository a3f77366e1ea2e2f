#include "cache/writer.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

typedef enum { IDLE, GIVEN, DONE, STOP } mailbox;

struct sx_writer {
    sx_writer_config config;
    sx_apply apply; /* the writer thread's, once it runs */
    pthread_t thread;
    pthread_mutex_t mutex; /* guards state and batch */
    pthread_cond_t changed;
    mailbox state;
    sx_batch *batch;
};

static void *writer_main(void *self)
{
    sx_writer *writer = self;
    (void)pthread_mutex_lock(&writer->mutex);
    for (;;) {
        while (writer->state != GIVEN && writer->state != STOP) {
            (void)pthread_cond_wait(&writer->changed, &writer->mutex);
        }
        if (writer->state == STOP) {
            break;
        }
        sx_batch *batch = writer->batch;
        (void)pthread_mutex_unlock(&writer->mutex);
        sx_apply_run(&writer->apply, batch);
        (void)pthread_mutex_lock(&writer->mutex);
        writer->state = DONE;
        (void)pthread_cond_broadcast(&writer->changed);
        if (writer->config.wake != NULL) {
            (void)pthread_mutex_unlock(&writer->mutex);
            writer->config.wake(writer->config.wake_self);
            (void)pthread_mutex_lock(&writer->mutex);
        }
    }
    (void)pthread_mutex_unlock(&writer->mutex);
    return NULL;
}

/* The thread takes no signals: they are the loop's. */
static int start_thread(sx_writer *writer)
{
    sigset_t all;
    sigset_t before;
    (void)sigfillset(&all);
    int code = pthread_sigmask(SIG_SETMASK, &all, &before);
    if (code == 0) {
        code = pthread_create(&writer->thread, NULL, writer_main, writer);
        (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    return code;
}

sx_code sx_writer_open(sx_ctx *cx, const sx_writer_config *config, sx_store *store,
                       sx_writer **opened)
{
    sx_writer *writer = calloc(1, sizeof(*writer));
    ZSTD_CCtx *pack = ZSTD_createCCtx();
    if (writer == NULL || pack == NULL) {
        free(writer);
        (void)ZSTD_freeCCtx(pack);
        return SX_FAIL(cx, SX_NOMEM, "cache writer: no memory");
    }
    (void)ZSTD_CCtx_setParameter(pack, ZSTD_c_compressionLevel, 3);
    (void)ZSTD_CCtx_setParameter(pack, ZSTD_c_checksumFlag, 1);
    writer->config = *config;
    writer->apply = (sx_apply){.config = &writer->config, .store = *store, .pack = pack};
    (void)pthread_mutex_init(&writer->mutex, NULL);
    (void)pthread_cond_init(&writer->changed, NULL);
    int code = start_thread(writer);
    if (code != 0) {
        (void)pthread_cond_destroy(&writer->changed);
        (void)pthread_mutex_destroy(&writer->mutex);
        (void)ZSTD_freeCCtx(pack);
        free(writer);
        return SX_FAIL(cx, SX_SYSTEM, "cache writer: cannot start a thread: %s", strerror(code));
    }
    *store = (sx_store){0};
    *opened = writer;
    return SX_OK;
}

void sx_writer_close(sx_writer *writer)
{
    if (writer == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&writer->mutex);
    SX_ASSERT(writer->state == IDLE);
    writer->state = STOP;
    (void)pthread_cond_broadcast(&writer->changed);
    (void)pthread_mutex_unlock(&writer->mutex);
    int code = pthread_join(writer->thread, NULL);
    SX_ASSERT(code == 0);
    sx_store_close(&writer->apply.store);
    (void)ZSTD_freeCCtx(writer->apply.pack);
    (void)pthread_cond_destroy(&writer->changed);
    (void)pthread_mutex_destroy(&writer->mutex);
    free(writer);
}

void sx_writer_give(sx_writer *writer, sx_batch *batch)
{
    (void)pthread_mutex_lock(&writer->mutex);
    SX_ASSERT(writer->state == IDLE);
    writer->batch = batch;
    writer->state = GIVEN;
    (void)pthread_cond_broadcast(&writer->changed);
    (void)pthread_mutex_unlock(&writer->mutex);
}

bool sx_writer_take(sx_writer *writer, bool wait)
{
    (void)pthread_mutex_lock(&writer->mutex);
    while (wait && writer->state == GIVEN) {
        (void)pthread_cond_wait(&writer->changed, &writer->mutex);
    }
    bool finished = writer->state == DONE;
    if (finished) {
        writer->state = IDLE;
        writer->batch = NULL;
    }
    (void)pthread_mutex_unlock(&writer->mutex);
    return finished;
}
