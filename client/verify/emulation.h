/* emulation.h - inside client/verify: a launch that the emulator runs, in pieces that the threads of its program share.
 *
 * Points are independent, and which of them are a piece does not depend on the threads: so neither what is stored nor
 * what is said of a fault does. Each thread has an emulator of its own.
 */
#ifndef SX_CLIENT_VERIFY_EMULATION_H
#define SX_CLIENT_VERIFY_EMULATION_H
#include "client/verify/execute.h"

/* One launch. */
typedef struct {
    sxr_executor *executor;
    const sx_module_kernel *kernel;
    uint32_t launch, buffer_count;
    sx_region buffer[SX_REGIONS_MAX]; /* the last are the results */
    char name[SX_REGIONS_MAX][32];
    int64_t points; /* of all parts */
    uint32_t only;  /* the part that has points for these extents; SX_MODULE_NONE: several have */
    bool walks;     /* blocks walk over them */
    /* Of a block program: how many points run together, along each index (sx_emulated_path); all 0: nobody knows yet,
     * and no two threads take points of one launch. */
    uint32_t cluster[3];
} sxv_emulation;

/* Points that one thread runs together: `count` from `first` on of a part, or blocks that walk over points, as in
 * sx_emulation. */
typedef struct {
    uint32_t part;
    int64_t walkers, first, count;
    uint8_t *touched;       /* in place of that of the result, where there is one; NULL: no other */
    sx_emulated_path *path; /* NULL: not wanted */
} sxv_piece;
typedef struct {
    sxv_piece *piece; /* in the arena of the executor's ctx */
    uint32_t count, capacity;
    bool in_turn; /* several may run the same point: by one thread */
} sxv_pieces;

/* `buffer`: one for each argument of the launch. */
void sxv_emulation_init(sxv_emulation *e, sxr_executor *executor, uint32_t launch,
                        void *const *buffer);
/* Notes in `touched` what is stored from now on, as in sxr_execute_some; NULL: nowhere. */
void sxv_emulation_watch(sxv_emulation *e, uint8_t *touched);
/* Adds `count` points from `first` on, those of all parts laid end to end. Blocks that could walk do where they are all
 * that there are. */
sx_code sxv_pieces_add(const sxv_emulation *e, int64_t first, int64_t count, sxv_pieces *pieces);
/* Does each point run by itself, as far as is known? Single points of clusters may run together with others. */
bool sxv_runs_alone(const sxv_emulation *e);
/* Runs them.
 *   errors   those of the first piece that fails; SX_INTERNAL: the code does what it may not */
sx_code sxv_pieces_run(const sxv_emulation *e, const sxv_pieces *pieces);
/* Instructions that the emulators of an executor have run so far. */
uint64_t sxv_emulated(const sxr_executor *executor);
#endif
