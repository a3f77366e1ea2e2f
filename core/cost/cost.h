/* cost.h - devices as data, and what work costs on them: roofline floors and per-node estimates.
 *
 * Times are nanoseconds as doubles, for the whole device (all cores). No estimate is below the roofline floor
 * max(flops / peak, bytes / bandwidth) of the whole problem (Williams, Waterman, Patterson 2009); estimates
 * grow with every extent.
 */
#ifndef SX_CORE_COST_COST_H
#define SX_CORE_COST_COST_H
#include "core/kernel/kernel.h"

typedef struct {
    const char *name; /* "x86-64-v3", "h100", ... */
    const char *text; /* one line for people, with the source of the values */
    /* The target of core/target whose code it runs. NULL: there is no code generator for it, and requests get
     * SX_UNIMPLEMENTED. */
    const char *target;
    /* Devices of one class get the same program; see sx_device_class. */
    const char *program_class;
    uint32_t cores;         /* cores or multiprocessors assumed by the model */
    uint32_t lanes;         /* f32 lanes of a vector register */
    uint32_t registers;     /* vector registers */
    uint32_t fma_per_cycle; /* vector multiply-adds started per cycle and core */
    uint32_t fma_latency;   /* cycles */
    double ghz;
    double l1_bytes, l2_bytes, l3_bytes; /* per core, per core, shared */
    double l2_bytes_per_ns;              /* per core */
    double memory_bytes_per_ns;          /* device */
    double launch_ns;                    /* per kernel */
    double link_bytes_per_ns, link_ns;   /* to other devices: sent by one; a step of a collective */
    double flop_pj, byte_pj; /* energy of an operation, of a byte moved to or from memory */
} sx_device;

uint32_t sx_device_count(void);
const sx_device *sx_device_at(uint32_t index);
/* SX_INPUT: unknown name, with the known ones; SX_UNIMPLEMENTED: known, but no code generator. */
sx_code sx_device_find(sx_ctx *cx, sx_span name, const sx_device **device);

/* The device by whose prices level 1 chooses programs for all devices of a class: those whose kernels give the same
 * bits for the same program, so that the choice must not depend on which of them it is. It is the first of the class
 * in the table. A device that is no row of the table belongs to the class of the rows with its target. */
const sx_device *sx_device_class(const sx_device *device);

double sx_device_compute_ns(const sx_device *device, double flops); /* at peak on all cores */
double sx_device_move_ns(const sx_device *device, double bytes);    /* at memory bandwidth */
double sx_device_floor_ns(const sx_device *device, double flops, double bytes);

/* Estimated time of a kernel under a schedule, launch included; not below the roofline floor of its work and
 * bytes. The schedule is one that a lowering takes. `rhs_constant`: the right argument of a contraction
 * depends on weights alone, so packing it costs nothing at run time. */
double sx_cost_schedule(const sx_device *device, const sx_analysis *analysis,
                        const sx_schedule *schedule, bool rhs_constant);
/* What of it is the launch that packs the right argument. */
double sx_cost_pack(const sx_device *device, const sx_analysis *analysis,
                    const sx_schedule *schedule);
/* sx_cost_schedule for contractions that differ in the columns of a grid point alone: ns[c] under tile_columns[c]. */
void sx_cost_contractions(const sx_device *device, const sx_analysis *analysis,
                          const sx_contraction_tiles *tiles, const int64_t *tile_columns,
                          uint32_t count, bool rhs_constant, double *ns);
/* No contraction with these register blocks, whatever its tiles, costs less. */
double sx_cost_block_bound(const sx_device *device, const sx_analysis *analysis,
                           const sx_contraction_tiles *tiles);

typedef struct {
    double flops;    /* weighted: a transcendental counts as the instructions of its sequence */
    double bytes;    /* distinct bytes read and written */
    double floor_ns; /* roofline */
    double energy_nj;
    /* estimate as one kernel, launch included; 0 for parameter, constant and reshape */
    double cost_ns;
} sx_cost;
/* The extent a symbol stands for in costs: depends on its interval only, never on the value bound later, so
 * that the program chosen by level 1 is the same for every batch size (batch invariance). */
int64_t sx_cost_reference(const sx_symbol *symbol);
/* Bytes of a tensor, symbols at their reference. */
double sx_cost_bytes(const sx_symbol *symbols, uint32_t symbol_count, const sx_type *type);
/* One node, symbols at their reference. SX_LIMIT when sizes overflow. */
sx_code sx_cost_node(sx_ctx *cx, const sx_device *device, const sx_symbol *symbols,
                     uint32_t symbol_count, sx_op op, const sx_attr *attr, const sx_type *input,
                     uint32_t input_count, const sx_type *result, sx_cost *cost);
#endif
