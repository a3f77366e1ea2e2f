/* gpu.h - inside client/cuda: a GPU that is open. */
#ifndef SX_CLIENT_CUDA_GPU_H
#define SX_CLIENT_CUDA_GPU_H
#include "client/cuda/cuda.h"
#include "client/cuda/driver.h"

/* Two between which time is taken, one by which streams are put in order, and what sxg_mark remembers. */
typedef enum { SXG_BEGIN, SXG_END, SXG_ORDER, SXG_MARK, SXG_EVENT_COUNT } sxg_event;

struct sxg_gpu {
    sxg_driver driver;
    sxg_info info;
    int device;
    void *context; /* the primary one of the device, which others of this process may use, too */
    void *own;     /* its stream */
    void *stream;  /* where work goes now: that one, or one of the caller */
    void *event[SXG_EVENT_COUNT];
    bool marked;    /* event[SXG_MARK] was recorded */
    char lost[512]; /* the error that ended its use; "" before */
};

/* A call has failed: the error, which is kept if the GPU is lost by it. */
sx_code sxg_fail(sx_ctx *cx, sxg_gpu *gpu, const char *what, int status);
#endif
