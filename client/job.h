/* job.h - what the library asks of a compile process of its own, and how the two talk.
 *
 * The process is `symplex-client worker` with a socket as its standard input: the compiler, the e-graph, isl and
 * the verification live there and not in the program that links the library. It is asked one thing and ends.
 *
 *     library  -> process   sxc_job, then the bytes that belong to its kind
 *     process  -> library   any number of sxc_word with kind PROGRESS, each followed by the name of a stage; then
 *                           one with RESULT or ERROR, followed by the result or by a sx_error
 *
 * Both are of one build, which the process checks first. So structures travel as they lie in memory.
 */
#ifndef SX_CLIENT_JOB_H
#define SX_CLIENT_JOB_H
#include "core/request/request.h"
#include "protocol/module.h"

typedef enum {
    /* Request -> module, compiled and verified. */
    SXC_JOB_COMPILE,
    /* Request -> module of level 1 alone. */
    SXC_JOB_OPTIMIZE,
    /* Module -> sxc_verified and its comparisons: the code is run on random tensors, confined
     * (client/worker/confine.h). */
    SXC_JOB_VERIFY,
    /* Module, and the bytes of each input, weight and output in the order of its table -> sx_module_check: the
     * outputs are compared with the program that the module carries. */
    SXC_JOB_CHECK,
    /* PTX text -> sxa_result as bytes (client/assemble/assemble.h). The target is that of the assembler; in place of
     * the description of a device stands the folder of the toolkit, or nothing. */
    SXC_JOB_ASSEMBLE,
    /* Module -> an sxr_kernel_evidence for each kernel (client/verify/determinism.h), confined. */
    SXC_JOB_DETERMINISM,
    SXC_JOB_COUNT
} sxc_job_kind;

/* What is asked. Behind it come the texts of a request, then its extents as sxc_job_extent, each followed by a
 * name; or a module. */
typedef struct {
    /* The build of the library: sx_core_toolchain, cut at the end. */
    char build[64];
    uint32_t kind;
    /* A set of 1 << sxc_job_flag. */
    uint32_t flags;
    uint32_t extent_count;
    /* The sxa_tool that is to assemble. */
    uint32_t tool;
    /* Bytes of the program text, or of the module. */
    uint64_t program_size;
    /* Bytes of the name of the target, of the description of the device, of the disabled rules, of the objective, of
     * the name of the assembler, and of what was measured, in this order. */
    uint64_t target_size, device_size, disabled_size, objective_size, assembler_size, measured_size;
    /* As in sx_core_request. */
    uint64_t verify_flops, verify_bytes;
    /* Of VERIFY and DETERMINISM: what inputs and weights follow from; of DETERMINISM: instructions that are emulated
     * for a kernel. */
    uint64_t seed, fuel;
} sxc_job;
typedef enum {
    SXC_JOB_NO_REASSOCIATE,
    SXC_JOB_APPROXIMATE,
    SXC_JOB_RANGE_ANY,
    SXC_JOB_UNFUSED,
    /* Of VERIFY: sxc_verifying.all */
    SXC_JOB_ALL
} sxc_job_flag;
typedef struct {
    /* A value; or, where `high` is not 0, the interval from it to `high`. */
    int64_t value, high;
    uint64_t name_size;
} sxc_job_extent;

typedef enum { SXC_WORD_PROGRESS, SXC_WORD_RESULT, SXC_WORD_ERROR } sxc_word_kind;
/* What is answered. */
typedef struct {
    uint32_t kind;
    uint32_t reserved;
    /* How many bytes follow. */
    uint64_t size;
    /* Of PROGRESS: as in sx_ctx. */
    uint64_t done, total;
} sxc_word;

#define SXC_JOB_TEXT_MAX ((size_t)1 << 20) /* of a name, a target, a list of rules */
#define SXC_JOB_MODULE_MAX ((size_t)32 << 30)
#define SXC_JOB_RESULT_MAX ((size_t)2 << 30)

/* Is the tensor one that a caller binds? */
static inline bool sxc_is_interface(const sx_module_tensor *tensor)
{
    return tensor->place == SX_TENSOR_INPUT || tensor->place == SX_TENSOR_OUTPUT ||
           tensor->place == SX_TENSOR_WEIGHT;
}

/* Moves all the bytes over a socket; false: the other side is gone. */
bool sxc_job_send(int fd, const void *bytes, size_t size);
bool sxc_job_receive(int fd, void *bytes, size_t size);
#endif
