/* device.h - devices as data: what a machine offers, for prices and laws; a table of known ones, and a text form.
 *
 * A device says what work costs on it. How code is made is the business of its target (core/target), which it
 * names. Rows for the table come from vendor documents (devices.c names them); a user's own come as text, which
 * is checked against a range for each value before anything uses it. docs/DEVICES.md describes the text form,
 * device_fields.def has each value with its range. */
#ifndef SX_CORE_COST_DEVICE_H
#define SX_CORE_COST_DEVICE_H
#include "core/base/buf.h"
#include "core/ir/ir.h"

/* What computes: the lanes of vector registers, the tensor cores of a GPU, the tile registers of AMX. */
typedef enum { SX_UNIT_VECTOR, SX_UNIT_TENSOR, SX_UNIT_AMX, SX_UNIT_COUNT } sx_unit;
const char *sx_unit_name(sx_unit unit);

/* How many operations of a type a unit does, on all cores. A matrix unit multiplies elements of the type and
 * adds them in f32 or i32. */
typedef struct {
    sx_dtype dtype;
    sx_unit unit;
    double flops_per_ns; /* 1000 of them are a TFLOP/s */
} sx_rate;
#define SX_RATES_MAX 32

#define SX_DEVICE_NAME_MAX 31
#define SX_DEVICE_TEXT_MAX 200
typedef struct sx_device {
    const char *name; /* "x86-64-v3", "h100", ... */
    const char *text; /* one line for people */
    /* The target of core/target whose code it runs. NULL: there is no code generator for it, and requests get
     * SX_UNIMPLEMENTED. */
    const char *target;
    /* Devices of one class get the same program; see sx_device_class. */
    const char *program_class;
    sx_rate rate[SX_RATES_MAX];
    uint32_t rate_count;
#define SX_DEVICE_FIELD(member, type, words, unit, least, most, need, help) type member;
#include "core/cost/device_fields.def"
} sx_device;

/* ---- the table ---- */
uint32_t sx_device_count(void);
const sx_device *sx_device_at(uint32_t index);
/* `name` is that of a row, or of a row that may do more: "h100+tf32" has tensor cores that multiply f32 with factors
 * rounded to 11 bits, which a program must be compiled for by name. Such a device lies in cx's arena.
 *   errors   SX_INPUT unknown name, with the known ones; SX_UNIMPLEMENTED the row cannot do that */
sx_code sx_device_find(sx_ctx *cx, sx_span name, const sx_device **device);
#define SX_DEVICE_TF32 "+tf32"
/* The row whose constants the device of such a name has; NULL: there is none. */
const sx_device *sx_device_row(sx_span name);
/* May contractions of f32 round their factors to tf32? A device says so by a rate of f32 on its tensor cores. */
bool sx_device_allows_tf32(const sx_device *device);

/* The device by whose prices level 1 chooses programs for all devices of a class: those whose kernels give the same
 * bits for the same program, so that the choice must not depend on which of them it is. It is the first of the class
 * in the table. A device that is no row of the table belongs to the class of the rows with its target. */
const sx_device *sx_device_class(const sx_device *device);

/* ---- text ---- */
/* Reads a description. The device and its texts lie in cx's arena.
 *   errors   SX_INPUT with the line: a word that is no value of a device, a value out of its range, with the
 *            range, a unit that does not fit, a value that stands twice; a value that is missing, with its range;
 *            values that contradict each other; the name of a row of the table */
sx_code sx_device_parse(sx_ctx *cx, sx_span text, const sx_device **device);
/* Text that reads back to the same values. */
void sx_device_print(const sx_device *device, sx_buf *text);
/* One value of a device, for people. */
typedef struct {
    const char *words, *help; /* as in device_fields.def */
    /* Where it comes from: of a row of the table as in device_sources.def, of any other its own description. */
    const char *source;
    double number;  /* in the base unit */
    char value[64]; /* with its unit: "4.8 TB/s" */
    char range[96]; /* what is allowed: "100 MB/s to 100 TB/s" */
} sx_device_value;
/* Value `index` of a device, in the order of its text; numbers that it does not have are 0. False: no more. */
bool sx_device_value_of(const sx_device *device, uint32_t index, sx_device_value *value);
/* Ranges, and what the values say of each other; of rows of the table too.
 *   errors   SX_INPUT as above */
sx_code sx_device_check(sx_ctx *cx, const sx_device *device);

/* ---- laws ---- */
/* Lanes of elements of so many bytes: a thread holds an element of any size in each lane, while a vector register
 * has as many bytes as its f32 lanes. Devices with the laws of blocks have threads. */
uint32_t sx_device_lanes(const sx_device *device, uint32_t bytes);
/* Operations in a nanosecond at peak on all cores. A contraction may use any unit, anything else the lanes. A
 * narrow float is computed in f32 where no unit takes it, a narrow integer in i32. */
double sx_device_rate(const sx_device *device, sx_dtype dtype, bool contraction);
double sx_device_compute_ns(const sx_device *device, sx_dtype dtype, bool contraction,
                            double flops);
double sx_device_move_ns(const sx_device *device, double bytes); /* at memory bandwidth */
double sx_device_floor_ns(const sx_device *device, sx_dtype dtype, bool contraction, double flops,
                          double bytes);
/* Times longer that the lanes need for an operation of this type than for one of f32. */
double sx_device_slower(const sx_device *device, sx_dtype dtype);
/* Points of a kernel's grid that run at once: one on a core, or as many warps as all cores hold threads for. A
 * device moves and computes as fast as it can when that many run; each of them has its share. */
double sx_device_points(const sx_device *device);
/* Registers that each thread of a block may have; 0: the block has too many threads. Of devices with the laws of
 * blocks (block_threads is not 0). */
uint32_t sx_device_thread_registers(const sx_device *device, uint32_t threads);
/* Blocks that a core holds at once; 0: not one fits. */
uint32_t sx_device_resident_blocks(const sx_device *device, uint32_t threads, uint32_t registers,
                                   double shared_bytes);
#endif
