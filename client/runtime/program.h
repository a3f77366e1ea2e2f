/* program.h - inside client/runtime: what a loaded module owns. */
#ifndef SX_CLIENT_RUNTIME_PROGRAM_H
#define SX_CLIENT_RUNTIME_PROGRAM_H
#include <stdatomic.h>

#include "client/runtime/pool.h"
#include "client/runtime/runtime.h"

/* How the launches of a program are run. */
typedef struct {
    /* Before the first launch of a run; NULL: there is nothing to do. */
    sx_code (*begin)(sx_ctx *cx, sxr_program *program);
    /* One kernel, copy or fill. `ns`: NULL, or where its time is added. */
    sx_code (*launch)(sx_ctx *cx, sxr_program *program, uint32_t index, uint64_t *ns);
    /* Which round a loop is in, for the tensor that counts them. */
    sx_code (*count_round)(sx_ctx *cx, sxr_program *program, uint32_t tensor, uint64_t round);
    /* Is the bool of this tensor true, behind all launches so far? */
    sx_code (*ask)(sx_ctx *cx, sxr_program *program, uint32_t tensor, bool *truth);
    /* After the last launch, or after the first that failed, whose code it passes on. May be NULL. */
    sx_code (*end)(sx_ctx *cx, sxr_program *program, sx_code code);
} sxr_way;
extern const sxr_way sxr_way_cpu; /* launch.c */
extern const sxr_way sxr_way_gpu; /* device.c */

struct sxr_program {
    sx_module module;
    /* The bytes of the module, as a mapping. */
    uint8_t *file;
    size_t file_size;
    /* The section CODE, as a mapping that can be executed. */
    uint8_t *code;
    size_t code_size;
    /* Weights that came with the options of opening; NULL: none did. */
    struct sxr_weights *weights;
    /* What is made of weights alone is still as opening has made it, of those that came then. */
    bool as_opened;
    /* [launch_count] how long that took, until a run has told it; else NULL. */
    uint64_t *opening_ns;
    /* One mapping for temporaries, persistent tensors, state and workspaces. */
    uint8_t *memory;
    size_t memory_size;
    /* The memory that all runs write has its pages. */
    bool touched;
    /* Inside `memory`: where the workspace of thread 0 begins, and how many bytes lie between one thread's and the
     * next one's. A kernel uses it for what it cannot hold in registers. */
    uint8_t *workspace;
    uint64_t workspace_stride;
    const sxr_way *way;
    /* What a run asks between the rounds of its loops (sxr_watch); NULL: nobody. */
    int (*stop)(void *self);
    void *stop_self;
    /* How the other ranks are reached; NULL: they are not. */
    const struct sxr_communicator *communicator;
    /* What is on a GPU (device.c); NULL: the processor runs it. */
    struct sxr_device *device;
    /* The threads that run the points of a grid. */
    sxr_pool *pool;
    /* How many programs use `file`, `code`, `weights` and `pool` (sxr_share); the last one that is closed gives them
     * back. */
    _Atomic uint32_t *users;
    /* [tensor_count] where each tensor lies; NULL while it is not bound, and where it is on a GPU alone. */
    void **tensor;
    /* [variant_count] the prologue of the variant has run since its weights were bound. */
    bool *prologue_done;
    /* [tensor_count] of a tensor that several variants share: some variant's prologue has made it. */
    bool *made;
    /* Launches one after the other are all that a run is, as a run before has found: everything is bound, and the
     * prologue has run. Where outputs lie in place of inputs, only while these are `apart`. */
    bool usual;
    /* Some output lies in the memory of an input. */
    bool aliased;
    /* Such memory overlaps that of no other tensor, as the last run found; nothing was bound elsewhere since. */
    bool apart;
    /* [tensor_count] a launch of a prologue reads the tensor. */
    bool *packed;
    /* The least machine that the module is for, or what sxr_choose_machine said. */
    const sx_machine *made_for;
    /* The machines that a module may name; NULL: all of core/target. */
    const sx_machines *machines;
    /* The processor, or a GPU, executes code of the module's least machine. */
    bool runs_here;
    /* What the processor executes. */
    sx_arch_set here;
    /* What variants are chosen for: this machine, or, where it lacks the module's instructions and the module
     * was opened all the same, the least machine that has them, or that of sxr_choose_machine. */
    sx_arch_set machine;
    /* [symbol_count] the value of each symbol; 0 while it has none. */
    int64_t *value;
    /* The variant for these values; SX_MODULE_NONE until all symbols have one. What follows is for the variant;
     * until there is one it is as in the file, which has the largest. */
    uint32_t variant;
    /* [tensor_count] how large each tensor is. */
    uint64_t *bytes;
    /* [tensor_count] its extents. */
    int64_t (*dim)[SX_MODULE_RANK_MAX];
    /* [part_count] the parts of kernels with their grids. */
    sx_module_part *part;
    /* [part_count] of a part with cases the one that holds; SX_MODULE_NONE: none, or there are no cases. */
    uint32_t *part_case;
    /* [number_count] what the numbers of these cases are. */
    int64_t *number;
    /* [launch_count] how many rounds a loop has. */
    uint64_t *rounds;
    /* [launch_count] of kernels on the processor: how they ran so far. */
    sxr_pool_habit *habit;
    /* [tensor_count] copies of sxr_remember; NULL: nothing is remembered. */
    void **before;
    /* Of the slice or row that is launched: the number of its piece. */
    uint64_t round;
};

/* weights.c: takes what the options have for weights that the file does not carry, and the source. */
sx_code sxr_take_weights(sx_ctx *cx, sxr_program *program, const sxr_options *options);
/* Where those are that have memory, for a program that shares them. */
void sxr_place_weights(sxr_program *program);
/* The tensor is a weight that was left where it comes from. */
bool sxr_weight_is_left(const sxr_program *program, uint32_t tensor);
void sxr_weights_free(SX_TAKE struct sxr_weights *weights);
/* lists.c: what is made of weights alone, before the first run; fills as_opened and opening_ns. */
sx_code sxr_run_opening(sx_ctx *cx, sxr_program *program);
/* apart.c: an input that an output replaces shares its memory with no other tensor, whose reader would see the output.
 *   errors   SX_INPUT both, by name */
sx_code sxr_check_apart(sx_ctx *cx, sxr_program *program);
/* remember.c: what sxr_remember copied is given up. */
void sxr_forget(sxr_program *program);

/* extents.c: what does not follow a symbol, and a value for each symbol that can have but one. */
void sxr_extents_init(sxr_program *program);
/* The variant and all extents for the values and the machine as they are now. */
void sxr_extents_follow(sxr_program *program);
/* SX_INPUT names the first symbol without a value, and those that it may have. */
sx_code sxr_extents_check(sx_ctx *cx, const sxr_program *program);
/* load.c. SX_UNIMPLEMENTED: the machine that the module is for, and what this one has. */
sx_code sxr_refuse_machine(sx_ctx *cx, const sx_module *module);
#endif
