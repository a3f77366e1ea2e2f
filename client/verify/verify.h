/* verify.h - compiled code against the reference interpreter.
 *
 * Two comparisons: each kernel at sampled elements, on the very inputs it was run with; and the outputs of the whole program against
 * the interpretation of the program as it came (before any rewriting). Errors are relative to the largest magnitude of the reference.
 * The reference is computed in double precision; where rounding to the element types alone moves an element (cancellation, overflow
 * on the way), it is as uncertain as the difference between the two. A fresh module whose random numbers
 * overflow on the way is compared kernel by kernel only; its record says that the program was not.
 *
 * Where the processor lacks the instructions of a module, its code is emulated (execute.h), and the record says so for each kernel. The
 * emulator gives the processor's bits, so that nothing else of a module depends on the machine that made it; of a kernel of many
 * instructions it runs only some points of the grid, and elements are sampled from those.
 */
#ifndef SX_CLIENT_VERIFY_VERIFY_H
#define SX_CLIENT_VERIFY_VERIFY_H
#include "client/runtime/runtime.h"
#include "core/core.h"

#define SXR_KERNEL_TOLERANCE 2e-5
#define SXR_PROGRAM_TOLERANCE 1e-4
/* What daemon and client verify with: a whole program up to here takes the interpreter a fraction of a second. */
#define SXR_VERIFY_DEFAULT ((sxr_verify_options){.seed = 1, .program_flops = 5e8})

typedef struct {
    uint64_t seed; /* of inputs, weights and sampled elements */
    uint32_t
        kernel_points; /* elements compared per kernel; 0: 48, or 4 of a module that is taken over */
    double
        program_flops; /* the whole program is interpreted if it has at most this many; negative: never */
    uint64_t
        emulated_max; /* instructions of a launch that are emulated; 0: 4 million. Beyond: some points of its grid */
} sxr_verify_options;

/* Fills memory of a tensor with seeded values: floats in [-1, 1) scaled so that sums over its first dimension stay of order one,
 * integers in [0, 16), bools 0 or 1. */
void sxr_fill_random(const sx_module_tensor *tensor, void *memory, uint64_t seed);

/* The outputs now bound, against the interpretation of the embedded program on the inputs and weights now bound. SX_MISMATCH, with
 * output, element and both values, if the error is above the tolerance; `check` is filled in either way. */
sx_code sxr_check_program(sx_ctx *cx, const sxr_program *program, sx_module_check *check);

/* Runs the module on random tensors and appends to image->check what was compared. SX_INTERNAL if a kernel or the program
 * differs from the interpreter: such a module must not be handed out. */
sx_code sxr_verify(sx_ctx *cx, sx_span module, const sxr_verify_options *options, sx_image *image);

/* Compile, verify, encode with the verification record: what a worker does. A module taken over from a stored program has code that was
 * verified when it was made: fewer elements of its kernels are compared, its outputs against the program of this request as those of a
 * fresh one; if that fails it is compiled from nothing. */
sx_code sxr_compile_verified(sx_ctx *cx, const sx_core_request *request,
                             const sxr_verify_options *options, sx_buf *module);
#endif
