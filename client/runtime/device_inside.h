/* device_inside.h - what device.c and device_code.c share: a program's memory and code on a GPU. */
#ifndef SX_CLIENT_RUNTIME_DEVICE_INSIDE_H
#define SX_CLIENT_RUNTIME_DEVICE_INSIDE_H
#include "client/cuda/cuda.h"
#include "client/runtime/device.h"

#define SXR_WARPS 4u /* of a block of a vector program, as many as core/nvidia/loop.h allows */
#define SXR_LANES 32u

/* A part of a kernel. */
typedef struct {
    sxg_function function; /* no handle: its code is not loaded yet */
    bool workspace;        /* it has one */
} sxr_entry;

struct sxr_device {
    sxg_gpu *gpu;
    /* Memory: temporaries, persistent tensors, state; constants; weights, inputs, outputs; workspaces. */
    uint64_t kept, constants, bound, workspace;
    uint64_t workspace_warps; /* that there are workspaces for */
    uint64_t *at;             /* [tensor_count] where each tensor is now, */
    uint64_t *own;            /* and where it is in memory of ours */
    bool *lent;               /* [tensor_count] it is in memory of the GPU that the caller has */
    bool *stale;              /* [tensor_count] the weight, or the state, must be copied */
    sxr_entry *part;          /* [part_count] */
    void **code;              /* [kernel_count] NULL: not loaded yet */
};

static inline uint64_t sxr_least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* ---- device_code.c ---- */

/* The code of each kernel that the variant launches, where it is not loaded yet.
 *   errors   SX_CORRUPT an entry that is none for its part; those of sxg_load and sxg_function_find */
sx_code sxr_device_load(sx_ctx *cx, sxr_program *program);
/* One part of a kernel over its grid.  errors  SX_LIMIT a vector program with more than 2^31 points; SX_SYSTEM */
sx_code sxr_device_run_part(sx_ctx *cx, sxr_program *program, const sx_module_launch *launch,
                            uint32_t index);
#endif
