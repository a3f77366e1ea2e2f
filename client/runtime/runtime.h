/* runtime.h - loads a module, binds tensors, runs it: used by the client library, by the daemon's verification
 * and by benchmarks.
 *
 * A program owns its memory, and its mappings and threads together with those that share its module. Weights that the
 * file carries are used where they lie. Not thread-safe: one run at a time per program. A module for GPUs is run by the
 * first one that is enough; memory of the host that is bound is copied there and back, memory of the GPU is used where
 * it lies.
 */
#ifndef SX_CLIENT_RUNTIME_RUNTIME_H
#define SX_CLIENT_RUNTIME_RUNTIME_H
#include "core/target/machine.h"
#include "protocol/module.h"

typedef struct sxr_program sxr_program;
struct sxr_communicator; /* ranks.h */
/* Where weights come from that may be had again as long as it is open. */
typedef struct {
    /* The bytes of the weight `name`, the same as when the module was opened.  errors  SX_INPUT they were changed */
    sx_code (*again)(void *self, sx_ctx *cx, sx_span name, sx_span *bytes);
    void (*close)(void *self);
    void *self;
} sxr_source;
typedef struct {
    /* How many threads run the points of a grid; 0: as many as the process may use. */
    uint32_t threads;
    /* Checksums of code and weights are not looked at. Those of the tables always are. */
    bool skip_checksums;
    /* A module for instructions that this processor lacks is opened too. It can be bound, and not run. No GPU is
     * looked for: code for one is not run here. */
    bool any_level;
    /* The bytes of a weight that the file does not carry, by its name; false: there are none, and it is bound later.
     * The program copies them, so that it is as if the file carried them. NULL: no weight has any. */
    bool (*weight)(const void *self, sx_span name, sx_span *bytes);
    const void *weight_self;
    /* The same weights for later; NULL: there is none. A module for the processor with one variant, whose symbols have
     * values, then does its work on weights when it is opened, and those that nothing else reads are not copied: they
     * are read again where they are needed again, as another weight was bound that this work reads, too. The program
     * has the source once it is open, and closes it. */
    const sxr_source *source;
    /* The machines that a module may be for. NULL: those of core/target; tests know others. */
    const sx_machines *machines;
} sxr_options;

void sxr_close(SX_TAKE sxr_program *program); /* NULL is allowed */
/* Opens a module, the second one from a copy of its bytes.
 *   errors   SX_CORRUPT not a valid module; SX_UNIMPLEMENTED it is for another machine, or a variant that would run
 *            here has a launch or code of a kind that this runtime cannot run, by name; SX_INPUT a weight of the
 *            options has another size, with both; SX_SYSTEM file or memory */
sx_code sxr_open_file(sx_ctx *cx, const char *path, const sxr_options *options,
                      sxr_program **program);
sx_code sxr_open_bytes(sx_ctx *cx, sx_span bytes, const sxr_options *options,
                       sxr_program **program);

/* Another program of the same module: tables, code, threads and the weights that the file carries are shared, as long
 * as one of them is open. Memory, what is bound, values of symbols and state are its own, as when a module was opened.
 * The two may be run by different threads at the same time: each launch has all threads, or, where another program's
 * has them, runs on its caller alone. `program` may be running meanwhile.  errors  SX_NOMEM; on a GPU those of opening
 */
sx_code sxr_share(sx_ctx *cx, const sxr_program *program, sxr_program **another);

/* A run calls `stop` on its thread between rounds of loops and whiles, about every 20 ms; NULL: it does not. Other than
 * 0: the run fails with SX_CANCELLED. */
void sxr_watch(sxr_program *program, int (*stop)(void *self), void *self);

/* Of a module that several ranks run together: which of them this program is, and how it reaches the others, as long as
 * the program is open. Without it such a program does not run.  errors  SX_INPUT another number of ranks */
sx_code sxr_join(sx_ctx *cx, sxr_program *program, const struct sxr_communicator *communicator);

/* Every kernel's code for the module's architecture is code of its level and nothing else. SX_CORRUPT names
 * the kernel and the offset. */
sx_code sxr_check_code(sx_ctx *cx, const sx_machines *machines, const sx_module *module);

/* Does the processor execute the code of the variant that was chosen, or of the module while none is? False only with
 * `any_level` or after sxr_choose_machine. */
bool sxr_runs_here(const sxr_program *program);
/* The least machine that the module is for, or what sxr_choose_machine said. */
const sx_machine *sxr_machine(const sxr_program *program);
/* Variants are chosen as on a machine of this level of the module's architecture, for verification: what the
 * processor cannot execute is refused by sxr_run, and sxr_run_launch must not be asked to run it.
 *   errors   SX_UNIMPLEMENTED the level is below the least of the module, or nothing here knows it */
sx_code sxr_choose_machine(sx_ctx *cx, sxr_program *program, uint32_t level);

const sx_module *sxr_module(const sxr_program *program);
/* The bytes of the module file, as long as the program is open. */
sx_span sxr_bytes(const sxr_program *program);
uint32_t sxr_threads(const sxr_program *program);
/* The name of the GPU that runs the program, and its number; NULL and -1: the processor does. */
const char *sxr_gpu(const sxr_program *program);
int sxr_gpu_ordinal(const sxr_program *program);
/* That GPU, for memory and streams of callers (client/cuda/cuda.h); NULL: the processor runs the program. */
struct sxg_gpu *sxr_gpu_of(const sxr_program *program);
/* The program's threads, for other work between its runs: two pools would wait in each other's way. */
struct sxr_pool *sxr_pool_of(const sxr_program *program);

/* ---- symbolic extents: they choose the variant ---- */

/* SX_OK if the symbol may get this value.  errors  as sxr_set_extent */
sx_code sxr_extent_allowed(sx_ctx *cx, const sxr_program *program, sx_span name, int64_t value);
/* Gives a symbol its value. A symbol that may have only one has it from the start. Inputs and outputs with an
 * extent that changes are unbound.  errors  SX_INPUT no symbol of that name, or a value that the module does
 * not serve */
sx_code sxr_set_extent(sx_ctx *cx, sxr_program *program, sx_span name, int64_t value);
/* The value of a symbol; 0 while it has none. */
int64_t sxr_extent(const sxr_program *program, uint32_t symbol);
/* The variant that runs; SX_MODULE_NONE until every symbol has a value. */
uint32_t sxr_variant(const sxr_program *program);
/* Bytes and extents of a tensor for the values of the symbols. Before they all have values: the largest. */
uint64_t sxr_size(const sxr_program *program, uint32_t tensor);
/* A part of a kernel with the grid that it has for the values of the symbols, which may be empty; and what its code
 * finds behind the index of the point. */
const sx_module_part *sxr_part(const sxr_program *program, uint32_t part);
const int64_t *sxr_part_numbers(const sxr_program *program, uint32_t part, uint32_t *count);
const int64_t *sxr_shape(const sxr_program *program, uint32_t tensor);

/* ---- binding ---- */

/* Number of the tensor with this place and name, or UINT32_MAX. Interface order is table order. */
uint32_t sxr_find(const sxr_program *program, sx_module_place place, sx_span name);

/* Binds memory of exactly the tensor's size to an input, output or weight; borrowed until rebound or close.
 * Rebinding a weight that they read makes the prologues run again. SX_INPUT names the tensor and both sizes. */
sx_code sxr_bind(sx_ctx *cx, sxr_program *program, uint32_t tensor, void *memory, uint64_t size);
/* The same for what nearly every bind of a run is, an input or output of fixed extents on the processor: a short way.
 * False: nothing was done, and sxr_bind does it or says why not. */
bool sxr_bind_usual(sxr_program *program, uint32_t tensor, void *memory, uint64_t size);
/* The same with memory of the GPU that runs the program, by its address there: it is used where it lies, and is not
 * copied. What must lie in one allocation is `size` bytes from the address on.
 *   errors   SX_USAGE the processor runs the program; SX_INPUT another size, an address that is not a multiple of
 *            SXR_DEVICE_ALIGN, or not memory of this GPU, by the tensor's name */
#define SXR_DEVICE_ALIGN 64u
sx_code sxr_bind_device(sx_ctx *cx, sxr_program *program, uint32_t tensor, uint64_t address,
                        uint64_t size);
bool sxr_bound(const sxr_program *program, uint32_t tensor);
/* Does a prologue read the tensor? Then runs see its bytes as they were at the first run after it was bound; runs read
 * what else is bound where it lies. */
bool sxr_packed(const sxr_program *program, uint32_t tensor);
/* The input in whose memory an output lies, which a run overwrites; SX_MODULE_NONE: it has its own. Binding the
 * input binds such an output; bound by itself it must be the same memory. */
uint32_t sxr_alias(const sxr_program *program, uint32_t output);

/* Where tensor `index` lies (bound or owned memory); NULL if it is not bound, or on a GPU alone, or a weight that was
 * left where it comes from (sxr_weights_again). Contents of
 * temporaries are those of the last launch that wrote there. */
void *sxr_memory(const sxr_program *program, uint32_t tensor);

/* ---- state: tensors that the program keeps from run to run ---- */

/* All state gets its first value, as when the module was opened. */
void sxr_state_reset(sxr_program *program);
/* Copies the state tensor of this number (sxr_find) out or in.  errors  SX_USAGE the tensor is not state, or
 * there is no memory; SX_INPUT another size */
sx_code sxr_state_read(sx_ctx *cx, const sxr_program *program, uint32_t tensor, void *memory,
                       uint64_t size);
sx_code sxr_state_write(sx_ctx *cx, sxr_program *program, uint32_t tensor, const void *memory,
                        uint64_t size);

/* Weights that were left where they come from (sxr_options.source) are in memory again.  errors  SX_INPUT they were
 * changed there; SX_NOMEM */
sx_code sxr_weights_again(sx_ctx *cx, sxr_program *program);

/* Copies what runs overwrite, state and inputs in whose memory outputs lie, as it is now: for whoever compares the next
 * run with the program. What was copied before is given up. Inputs that lie on a GPU alone are left out. */
sx_code sxr_remember(sx_ctx *cx, sxr_program *program);
/* The copy of a tensor; NULL: there is none. */
const void *sxr_remembered(const sxr_program *program, uint32_t tensor);

/* ---- running ---- */

/* Runs the prologue of the variant if needed, without what another variant's has made for all, then its launches.
 * Every input, output and weight must be bound (SX_INPUT names the first that is not). `launch_ns`: NULL, or one
 * slot for each launch of the module; those of the launches that ran are filled with wall times, inside a loop
 * with the sum of all rounds. */
sx_code sxr_run(sx_ctx *cx, sxr_program *program, uint64_t *launch_ns);

/* The same for what nearly every run is, launches of fixed extents on the processor that were run before: a short way.
 * False: nothing was done, and sxr_run does it or says why not. */
bool sxr_run_usual(sxr_program *program);

/* On a GPU: all that comes before the launches of a run and lasts: code is loaded, weights and state are copied, the
 * prologue of the variant has run. Waits for it. Inputs and outputs need no memory yet.
 *   errors   SX_USAGE the processor runs the program; SX_INPUT a weight is not bound; those of sxr_run */
sx_code sxr_prepare(sx_ctx *cx, sxr_program *program);
/* Puts the launches of a run on a stream of the caller, a CUstream of the GPU's primary context (NULL: its default
 * stream), and returns without waiting for them. All inputs and outputs lie in memory of the GPU. Nothing is allocated,
 * waited for or copied from the host, so that the stream may be one that is being captured into a graph; the graph then
 * uses the addresses that are bound now, the program's temporaries and its state, as long as the program is open.
 * Runs of one program must not overlap.
 *   errors   SX_USAGE the processor runs the program, or it is not prepared, and why; SX_INPUT as sxr_run, or a tensor
 *            is not in memory of the GPU; SX_SYSTEM */
sx_code sxr_enqueue(sx_ctx *cx, sxr_program *program, void *stream);

/* Times of `count` launches of a graph of a run, each by events of the GPU: without the copies of inputs and
 * outputs, and without what a launch costs the processor. The program has been run by sxr_run; its outputs in memory
 * of the host stay as they are, its state goes on.
 *   errors   SX_USAGE the processor runs the program, or it has not been run with what is bound; SX_UNIMPLEMENTED the
 *            driver has no graphs; SX_SYSTEM */
sx_code sxr_time_graph(sx_ctx *cx, sxr_program *program, uint32_t count, uint64_t *ns);

/* The launches of the variant one after the other, each as often as the loops, whiles and branches around it say. A
 * walk begins at zero. */
typedef struct {
    uint32_t loop;  /* a launch that has a body */
    bool truth;     /* of a branch or while: what was answered, of a while in this round */
    uint64_t round; /* that the body of a loop or while is in */
} sxr_loop_place;
typedef struct {
    uint32_t at; /* from the first launch of the variant on */
    uint32_t depth;
    sxr_loop_place open[SX_MODULE_LOOPS_MAX];
} sxr_walk;
typedef enum {
    SXR_WALK_END,
    SXR_WALK_ROUND,  /* a round of loop *index begins, that of the innermost open place */
    SXR_WALK_LAUNCH, /* launch *index is to be run */
    SXR_WALK_ASK     /* what is argument 0 of branch or while *index? The answer is next. */
} sxr_walk_event;
/* What is next, in the prologue (1) or in a run (0). A slice or row that is run before the next call takes the piece of
 * the round that the walk is in. */
sxr_walk_event sxr_walk_next(sxr_program *program, uint32_t prologue, sxr_walk *walk,
                             uint32_t *index);
/* How the branch or while goes on that was asked for.  errors  SX_LIMIT true after all rounds that a while may have */
sx_code sxr_walk_answer(sx_ctx *cx, const sxr_program *program, sxr_walk *walk, bool truth);
/* Are all loops around this place in their last rounds? Of a while nobody knows. */
bool sxr_walk_is_last(const sxr_program *program, const sxr_walk *walk);

/* One launch alone, but no loop, by the processor, with memory for each of its arguments given by the caller. The
 * program is not one that a GPU runs. */
void sxr_run_launch(sxr_program *program, uint32_t launch, void *const *buffer);
#endif
