/* verifier.h - inside client/verify: what the verification of one variant of a module knows while it runs, and its
 * work on single kernels (kernels.c). */
#ifndef SX_CLIENT_VERIFY_VERIFIER_H
#define SX_CLIENT_VERIFY_VERIFIER_H
#include "client/runtime/pool.h"
#include "client/verify/execute.h"
#include "core/base/rng.h"
#include "core/core.h"

#define SXV_RAN 1u
#define SXV_LEFT 2u
#define SXV_KERNEL_POINTS_MAX 4096u /* elements of one kernel that are compared */

/* Memory for one tensor at a time; SX_MODULE_NONE: it is free. */
typedef struct {
    void *memory;
    size_t bytes;
    uint32_t tensor;
} sxv_room;

typedef struct sxv_verifier sxv_verifier;
/* Something else that is done with each launch of each variant, on random inputs. */
typedef struct {
    sx_code (*launch)(sxv_verifier *v, uint32_t index);
    void *self;
} sxv_visit;

/* places.h */
typedef struct {
    /* [tensor] memory of a tensor of the interface, or of one that is in a room; NULL: where the program has it, or
     * nowhere. */
    void **at;
    /* Inputs, outputs and small weights; and the runs of random elements on which large weights are windows. */
    uint8_t *own, *shared;
    size_t own_bytes, shared_bytes;
    /* [tensor] the launch of the prologue that makes it when somebody reads it; SX_MODULE_NONE: none. */
    uint32_t *maker;
    uint32_t *left; /* [tensor] how many launches are still to read it */
    sxv_room *room;
    uint32_t room_count;
} sxv_places;

struct sxv_verifier {
    sx_ctx *cx;
    sxr_program *program;
    sxr_executor executor;
    sxv_visit visit; /* launch NULL: the module is verified */
    /* of an emulated launch: what it made, and which bytes of that it stored */
    uint8_t *result, *touched;
    size_t result_bytes; /* room in each */
    const sx_module *module;
    const sx_graph *graph; /* the optimised program with its extents bound */
    sx_rng rng;
    uint32_t points;
    uint64_t emulated_max; /* instructions of a launch */
    size_t reference_bytes;
    sx_image *image;
    uint32_t variant; /* the one that is verified */
    uint32_t level;   /* of the machine that the executor was made for */
    sxr_pool *pool;
    sxv_places places;
    /* part of some result was not emulated: the outputs are not those of the program */
    bool replaced;
    /* All outputs will be compared. */
    bool with_whole;
    bool *seen; /* [kernel] one of its launches in this variant was compared */
    /* [launch] SXV_RAN: some walk went through it; of a branch, SXV_LEFT if it was false and SXV_RAN if it was true */
    uint8_t *ran;
    /* The last walk ended in a while that went on: beyond its rounds, or for longer than is waited here. */
    bool beyond, endless;
    /* All outputs of the last draw were compared. */
    bool compared;
    double flops, flops_max; /* of the program as sent, and as many as the comparison may take */
    /* The program is too large to be compared whole: `written` elements were seen to be stored. */
    bool large;
    uint64_t written;
    /* The module is the proxy of another one (proxy.h). */
    bool proxy;
};

struct sxr_verify_options;
/* Calls `visit` for every launch instead of verifying the module.  errors  as sxr_verify, and those of `visit` */
sx_code sxv_visit_launches(sx_ctx *cx, sx_span module, const struct sxr_verify_options *options,
                           sxv_visit visit);
/* The tensor that an argument was packed from, or the argument itself. */
uint32_t sxv_unpacked(const sx_module *module, uint32_t tensor);

/* Adds a row to the record; of a module with several variants it says of which. */
void sxv_add_check(sxv_verifier *v, const char *name, sx_module_verdict verdict, uint64_t points,
                   double error, double tolerance);
/* extents.c: gives the symbols values for which the variant runs; *found is false where there are none. Calls that
 * begin with *n = 0 and go on with what the one before left there give other values each, at the ends and in the middle
 * of what the variant serves, until there are no more. */
#define SXV_EXTENTS 5u
sx_code sxv_next_extents(sxv_verifier *v, uint64_t *n, bool *found);
sx_code sxv_run_launch(sxv_verifier *v, uint32_t index);
/* Runs a launch and compares its kernel at v->points elements.
 *   errors   SX_INTERNAL the kernel gives something else than the interpreter, or leaves elements unwritten */
sx_code sxv_verify_launch(sxv_verifier *v, uint32_t index);
/* Where the tensor lies now. */
static inline void *sxv_memory(const sxv_verifier *v, uint32_t tensor)
{
    void *own = v->places.at[tensor];
    return own != NULL ? own : sxr_memory(v->program, tensor);
}
/* A task of the pool: writes over bytes of memory that somebody is to write, so that one sees where nobody did. */
void sxv_write_pattern(void *memory, uint32_t thread, int64_t first, int64_t last);
#endif
