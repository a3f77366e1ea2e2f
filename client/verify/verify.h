/* verify.h - a module against the program that was sent.
 *
 * Random inputs are drawn on which the program means something (draw.h), and the module runs on them. Two
 * comparisons: all elements of all outputs with those of the program as it came in the request, before
 * canonical form and rewriting (reference.h, compare.h), up to a size; and, so that a fault
 * has a place, each kernel at sampled elements with the node it was made of, on the very inputs it was run
 * with. The first is the judgement, for fresh modules and for those taken over from a stored program alike.
 *
 * Where the processor lacks the instructions of a module, its code is emulated (execute.h), and the record
 * says so for each kernel. The emulator gives the processor's bits, so that nothing else of a module depends
 * on the machine that made it. Of a kernel of many instructions it runs only some points of the grid, and those
 * elements are compared; the outputs are then those of the optimised program on the processor at hand (proxy.h). Of a
 * block program it runs the blocks at the ends of the grid, and shows that the others are like them (cover.h), or says
 * nothing of them.
 */
#ifndef SX_CLIENT_VERIFY_VERIFY_H
#define SX_CLIENT_VERIFY_VERIFY_H
#include "client/runtime/runtime.h"
#include "core/core.h"

#define SXR_KERNEL_TOLERANCE 2e-5
#define SXR_REFERENCE_BYTES ((size_t)2 << 30) /* of the reference's tensors alive at once */
/* What daemon and client verify with. The reference does about 2e10 to 2e11 operations a second: beyond the
 * limit it takes minutes. A program without symbols has no smaller extents and is compared whole nevertheless. */
#define SXR_VERIFY_DEFAULT \
    ((sxr_verify_options){.seed = 1, .program_flops = 4e12, .fixed_flops = 1e30})

typedef struct sxr_verify_options {
    /* Inputs, weights and the elements that are sampled follow from it. */
    uint64_t seed;
    /* How many elements of each kernel are compared; 0: 48. Further launches of a kernel get at most 8 where all
     * outputs are compared, too. */
    uint32_t kernel_points;
    /* The whole program is compared if it has at most this many operations; negative: never. What is larger, or
     * takes more memory, is compared at smaller extents (proxy.h); every element that its kernels compute is seen to
     * be written; and outputs that are copies are compared with what they copy. */
    double program_flops;
    /* The same for a program without symbols, if it is more, and `program_flops` is not negative. Its reference may
     * take a quarter of the memory that the process may have, if that is more than `reference_bytes`. */
    double fixed_flops;
    /* Memory of the reference; 0: SXR_REFERENCE_BYTES. */
    size_t reference_bytes;
    /* A launch with more instructions than this is emulated at some points of its grid alone; 0: 4 million. */
    uint64_t emulated_max;
    /* Threads of the module and of the reference; 0: as many as the process may use. */
    uint32_t threads;
    /* As in sx_core_request. */
    const struct sx_targets *targets;
    /* The text as it was sent. Empty: the canonical one that the module holds. */
    sx_span program;
} sxr_verify_options;

/* Fills memory of a tensor with seeded values: floats in [-1, 1) scaled so that sums over its first dimension
 * stay of order one, integers in [0, 16), bools 0 or 1. */
void sxr_fill_random(const sx_module_tensor *tensor, void *memory, uint64_t seed);

/* Random inputs and weights on which the program of a module means something: what comes under a root is positive, sums
 * keep their order of magnitude, indices lie in their table (draw.h). The memory is cx's; the threads are the
 * program's, which must not run meanwhile. */
typedef struct sxr_draws sxr_draws;
sx_code sxr_draws_make(sx_ctx *cx, const sxr_program *program, sxr_draws **draws);
/* The elements of one tensor of the interface. */
void sxr_draws_fill(const sxr_draws *draws, uint32_t tensor, uint64_t seed, void *memory);

/* The outputs now bound, against the embedded program on the inputs and weights now bound. SX_MISMATCH, with
 * output, element, both values and the bound, if one is wrong; `check` is filled in either way.
 *   reference_bytes  memory of the reference; 0: SXR_REFERENCE_BYTES
 *   errors           SX_LIMIT the reference needs more; SX_INPUT all elements are NaN, so that nothing was compared */
sx_code sxr_check_program(sx_ctx *cx, const sxr_program *program, size_t reference_bytes,
                          sx_module_check *check);

/* The same of a module that several ranks run together: programs of all of them, by rank, each behind its run, and what
 * runs overwrite remembered (sxr_remember). The interpreter evaluates all ranks.
 *   errors   as sxr_check_program */
sx_code sxr_check_ranks(sx_ctx *cx, sxr_program *const *program, size_t reference_bytes,
                        sx_module_check *check);

/* Runs the module on random tensors and appends to image->check what was compared. SX_INTERNAL if a kernel or
 * an output is wrong: such a module must not be handed out. One that is only imprecise is, and its record says so. */
sx_code sxr_verify(sx_ctx *cx, sx_span module, const sxr_verify_options *options, sx_image *image);

/* Compile, verify, encode with the verification record: what a worker does. Limits of the request count where they are
 * above those of `options`; SX_LIMIT if this process cannot have so much memory. If what came of a stored program
 * is not the program of this request, it is compiled from nothing. */
sx_code sxr_compile_verified(sx_ctx *cx, const sx_core_request *request,
                             const sxr_verify_options *options, sx_buf *module);
#endif
