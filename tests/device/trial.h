/* trial.h - one shape on a device: right, the same bits again and under other numbers of rows, and how fast. */
#ifndef SX_TESTS_DEVICE_TRIAL_H
#define SX_TESTS_DEVICE_TRIAL_H
#include "client/cuda/gpu.h"
#include "client/symplex.h"
#include "tests/device/peers.h"

typedef struct {
    bool check_only, all_results;
    double seconds; /* of timing, for a shape */
} sx_trial_options;

/* The device, its peers, and what stays from shape to shape. */
typedef struct {
    sx_ctx *cx;
    sxg_gpu *gpu;
    sx_peer *peer[SX_PEER_COUNT];
    char without[SX_PEER_COUNT][200]; /* why a peer is not there */
    uint64_t workspace;
    int64_t l2_bytes;
    sx_data *data[4]; /* tables of elements, made when they are needed */
    /* The result of the shape before, which may be that of fewer rows of the same operation. */
    uint8_t *before;
    size_t before_bytes;
    sx_judged before_judged;
    bool before_exists;
} sx_session;
sx_code sx_session_open(sx_ctx *cx, sx_session *s);
void sx_session_close(sx_session *s);

typedef enum { SX_TRIAL_NOT_ASKED, SX_TRIAL_PASSED, SX_TRIAL_FAILED } sx_trial_verdict;
typedef struct {
    double predicted_us, ours_us;  /* 0: not measured */
    double peer_us[SX_PEER_COUNT]; /* 0: not measured, and why: */
    char peer_without[SX_PEER_COUNT][200];
    uint64_t results; /* that were compared */
    /* Random elements against the reference; whole numbers, to the last bit; the same again after all that was timed;
     * the rows that the shape before has, too. */
    sx_trial_verdict right, exact, again, rows;
    char why[240]; /* of the first that failed */
} sx_trial_row;
/* Runs module `path` for a shape. A wrong result is no error.
 *   errors   those of the module and of the device */
sx_code sx_trial_run(sx_session *s, const sx_trial_options *options, const sx_bench_shape *shape,
                     const char *path, sx_trial_row *row);
#endif
