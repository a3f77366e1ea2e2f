/* runtime.h - loads a module, binds tensors, runs it: used by the client library, by the daemon's verification
 * and by benchmarks.
 *
 * A program owns its mappings, its memory and its threads. Weights that the file carries are used where they
 * lie. Not thread-safe: one run at a time per program.
 */
#ifndef SX_CLIENT_RUNTIME_RUNTIME_H
#define SX_CLIENT_RUNTIME_RUNTIME_H
#include "core/target/target.h"
#include "protocol/module.h"

typedef struct sxr_program sxr_program;
typedef struct {
    uint32_t threads;    /* 0: as many as the process may use */
    bool skip_checksums; /* of code and weights; the tables are always checked */
    /* also a module for instructions that this processor lacks: it opens and binds, but does not
     * run */
    bool any_level;
} sxr_options;

void sxr_close(SX_TAKE sxr_program *program); /* NULL is allowed */
/* SX_CORRUPT: not a valid module; SX_UNIMPLEMENTED: this processor does not execute the module's target; SX_SYSTEM:
 * file or memory. */
sx_code sxr_open_file(sx_ctx *cx, const char *path, const sxr_options *options,
                      sxr_program **program);
sx_code sxr_open_bytes(sx_ctx *cx, sx_span bytes, const sxr_options *options,
                       sxr_program **program); /* copies */

/* The processor executes the module's code; false only with `any_level`. */
bool sxr_runs_here(const sxr_program *program);
const sx_target *sxr_target(const sxr_program *program); /* that the module is for */

const sx_module *sxr_module(const sxr_program *program);
/* The bytes of the module file, as long as the program is open. */
sx_span sxr_bytes(const sxr_program *program);
uint32_t sxr_threads(const sxr_program *program);

/* Number of the tensor with this place and name, or UINT32_MAX. Interface order is table order. */
uint32_t sxr_find(const sxr_program *program, sx_module_place place, sx_span name);

/* Binds memory of exactly the tensor's size to an input, output or weight; borrowed until rebound or close.
 * Rebinding a weight makes the prologue run again. SX_INPUT names the tensor and both sizes. */
sx_code sxr_bind(sx_ctx *cx, sxr_program *program, uint32_t tensor, void *memory, uint64_t size);

/* Runs the prologue if needed, then all launches. Every input, output and weight must be bound (SX_INPUT names
 * the first that is not). `launch_ns`: NULL, or one slot for each launch of the module, filled with wall times. */
sx_code sxr_run(sx_ctx *cx, sxr_program *program, uint64_t *launch_ns);

/* Where tensor `index` lies (bound or owned memory); NULL if it is not bound. Contents of temporaries are
 * those of the last launch that wrote there. */
void *sxr_memory(const sxr_program *program, uint32_t tensor);
/* One launch alone, with memory for each of its arguments given by the caller. */
void sxr_run_launch(sxr_program *program, uint32_t launch, void *const *buffer);
#endif
