/* loop.h - the loop-nest IR, the bridge to machines: one kernel as structured loops over vector instructions.
 *
 * A kernel has buffers and one or more parts; a part is a program run once for every point of its grid. Points
 * of the grids of all parts of one kernel are independent: any order, any threads, same bits. All shapes are
 * static: trip counts, steps and offsets are constants. Sequential order inside a part is the textual order.
 *
 * A program is a flat list of items: LOOP opens a counted loop over a fresh variable (0 .. trip - 1), END
 * closes it, OP is an instruction of ops.def. Registers are virtual and mutable: vectors of `lanes` lanes of
 * `lane_bytes` bytes (f32 and int32, or f64 and int64), lane masks, and 64-bit integers. A machine with vector
 * registers has 32 bytes in each (AVX2) or 64 (AVX-512), so as many lanes as fit; on a machine whose lanes are
 * threads a vector is a register of each of the 32 threads of a warp, whatever the size of an element. Elements
 * in memory may be narrower than lanes: loads and stores say how (mems.def). A register must be written before it
 * is read, on the path of the text (a loop body runs at least once: trip >= 1).
 *
 * Variables: 0, 1, 2 are the grid indices; a loop gets 3 + the number of loops open around it, so a variable
 * is free again once its loop is closed. An address is a buffer, a byte offset and a byte coefficient for each
 * variable in scope, plus optionally an integer register (bytes). Every access stays inside its buffer
 * for all variable values; sx_kernel_check proves it by interval arithmetic (accesses through an integer
 * register: the register must come from SCLAMP followed by SMUL, which bounds it).
 *
 * NaN: which NaN (sign, payload) an arithmetic instruction makes is not specified; that it is one is.
 *
 * Determinism: the order of floating point operations on each element is in the program, and no instruction
 * depends on the number of lanes apart from the count; row reductions use the fixed virtual shape of
 * core/loop/lower_row.c on every width.
 */
#ifndef SX_CORE_LOOP_LOOP_H
#define SX_CORE_LOOP_LOOP_H
#include "core/kernel/kernel.h"

typedef enum {
#define SX_LOP(name, enumerator, operands, result, help) SX_LOP_##enumerator,
#include "core/loop/ops.def"
#undef SX_LOP
    SX_LOP_COUNT
} sx_lop;
/* A row of ops.def, which explains the letters of `operands` and `result`. */
typedef struct {
    const char *name;
    const char *operands;
    char result;
} sx_lop_info;
const sx_lop_info *sx_lop_info_of(sx_lop op);
/* Is it one of an integer and a number, which is imm2 of its item? */
static inline bool sx_lop_has_number(sx_lop op)
{
    return op == SX_LOP_SWRAP || op == SX_LOP_SCLAMP || op == SX_LOP_SOFF || op == SX_LOP_SMUL;
}

/* How an element lies in memory. */
typedef enum {
#define SX_MEM(name, enumerator, narrow, wide, help) SX_MEM_##enumerator,
#include "core/loop/mems.def"
#undef SX_MEM
    SX_MEM_COUNT
} sx_mem;
const char *sx_mem_name(sx_mem mem);
uint32_t sx_mem_bytes(sx_mem mem, uint32_t lane_bytes); /* 0: not with such lanes */

#define SX_LOOP_LANES_MAX 32 /* a mask is as many bits */
#define SX_LOOP_VARS_MAX 16  /* 3 grid variables and 13 open loops */
#define SX_LOOP_ITEMS_MAX 200000u
#define SX_LOOP_REGS_MAX 65536u /* of one class in one part */
#define SX_LOOP_BYTES_MAX (INT64_C(1) << 46)
#define SX_NO_REG UINT32_MAX
typedef struct {
    /* The number of the buffer in the kernel. */
    uint32_t buffer;
    /* All that follows is in bytes: where it begins, what each variable is multiplied by, and an integer register that
     * is added (or SX_NO_REG). */
    int64_t offset;
    int64_t coef[SX_LOOP_VARS_MAX];
    uint32_t index_reg;
} sx_addr;

typedef enum { SX_ITEM_OP, SX_ITEM_LOOP, SX_ITEM_END } sx_item_kind;
typedef struct {
    sx_item_kind kind;
    /* Of an OP, as all fields without another word. */
    sx_lop op;
    /* How the elements of a load or store of vectors lie in memory. */
    sx_mem mem;
    /* The register of the result, of the class that ops.def names. Of a LOOP and its END: the variable. */
    uint32_t dst;
    /* The registers that it reads, in the order of ops.def, which has immediates and addresses between them. */
    uint32_t src[3];
    /* Where its address stands in part->addr, if it has one. */
    uint32_t addr;
    /* The immediates of ops.def. `imm` is the first `n`, or the low half of the bits `f`. `imm2` is the high half of
     * `f`, or the second `n`: the bytes from lane to lane of a load. swrap, sclamp and smul have their one immediate
     * in imm2, because it has 64 bits. */
    uint32_t imm;
    int64_t imm2;
    /* Of a LOOP: how many iterations it has, at least 1. */
    int64_t trip;
    /* Of a LOOP: in a program that is to serve other extents, too, it is there whatever they are, and may then have one
     * iteration or none. Registers that are written in it are not read behind it, unless they are written before. */
    bool any_trip;
    /* Of a LOOP: the warps of a block have an iteration each. Iterations take nothing from each other: no registers,
     * and no bytes that another one stores (check_warps.c). */
    bool warps;
} sx_item;

/* What a block of threads does at a point of the grid: core/tile/program.h. */
typedef struct sx_tile sx_tile;

/* A number of a program that comes when it is launched, as index[3 + slot] of the entry ABI below: what is added to
 * the offset of an address, or the coefficient of an address, the trip count of a loop or the number n of an
 * instruction on integers, which is what the program has where it was lowered (more than 1 for a loop unless it has
 * `any_trip`, not 0 for a coefficient). Where the code of the machine is text, it is a number of that
 * (sx_target_shape), which comes as a parameter: the number itself, or for SX_COMES_CODE_OFFSET what is added to it.
 * Machine code alone knows them; checks, interpreter and judge read the program as it was lowered for one value. */
typedef enum {
    SX_COMES_OFFSET,
    SX_COMES_COEF,
    SX_COMES_TRIP,
    SX_COMES_NUMBER,
    SX_COMES_CODE,
    SX_COMES_CODE_OFFSET
} sx_comes_kind;
typedef struct {
    sx_comes_kind kind;
    /* The number of the address, of the item (the LOOP, the instruction whose immediate it is), or of the number. */
    uint32_t at;
    /* Of a coefficient. */
    uint32_t variable;
    uint32_t slot;
} sx_comes;
#define SX_COMES_SLOTS_MAX 61u /* of a part */

/* A program that is run once for every point of its grid. */
typedef struct {
    /* How many points each dimension of the grid has, at least 1. */
    int64_t grid[3];
    /* NULL: the program of one thread's vectors that follows. Else the program of a block, and there are no items. */
    sx_tile *tile;
    sx_item *item;
    uint32_t item_count, item_capacity;
    sx_addr *addr;
    uint32_t addr_count, addr_capacity;
    /* How many virtual registers of each class it uses: vectors, masks, 64-bit integers. */
    uint32_t vector_count;
    uint32_t mask_count;
    uint32_t scalar_count;
    /* One more than the highest variable in use, at least 3. */
    uint32_t var_count;
    /* 0: a point is the work of one thread's vectors, of one warp where lanes are threads. Else a block of so many
     * warps may work at a point: each runs all of the program but the loops over warps, and waits for the others
     * before and behind these. Everything is stored in such loops; the workspace belongs to the block. */
    uint32_t warps;
    /* Which of its numbers come at run time, and in how many slots. */
    const sx_comes *comes;
    uint32_t comes_count, slot_count;
} sx_part;
#define SX_PART_WARPS_MAX 32

typedef enum { SX_BUFFER_IN, SX_BUFFER_OUT, SX_BUFFER_WORKSPACE } sx_buffer_role;
typedef struct {
    /* The workspace belongs to one thread, and what it holds at entry is undefined. There is at most one; it is the
     * last buffer. */
    sx_buffer_role role;
    /* How many bytes may be touched. */
    int64_t size;
} sx_loop_buffer;
/* What a node has, SX_INPUTS_MAX at most, and its result. */
#define SX_LOOP_BUFFERS_MAX 65
#define SX_PARTS_MAX 128
typedef struct {
    /* For reports, for instance "dot_17". */
    char name[64];
    /* Vectors have 8 or 16 lanes of 4 bytes, 4 or 8 lanes of 8 bytes, or 32 lanes of either. */
    uint32_t lanes;
    uint32_t lane_bytes;
    sx_loop_buffer buffer[SX_LOOP_BUFFERS_MAX];
    uint32_t buffer_count;
    sx_part *part;
    uint32_t part_count;
    /* The id of the numerics plan, a hash. Kernels with equal ids give equal bits: it holds operations, types and the
     * extents that sums depend on, but no tiles, no number of rows and no lanes. */
    uint64_t numerics;
    /* Of the whole kernel: useful floating point operations, and distinct bytes that are read and written. */
    double flops;
    double bytes;
} sx_kernel;

/* The constant that a SET makes. */
static inline uint64_t sx_item_bits(const sx_item *item)
{
    return (uint64_t)item->imm2 << 32 | item->imm;
}

/* ---- build.c: how lowerings write programs. The first failure sticks in cx->error and in builder->code. ---- */
typedef struct {
    sx_ctx *cx;
    sx_kernel *kernel;
    /* The part that is written. */
    sx_part *part;
    /* The LOOP items of the open loops, outermost first. */
    uint32_t open[SX_LOOP_VARS_MAX];
    uint32_t open_count;
    /* Equal addresses have entries of their own: they are equal for some numbers of rows and not for others. */
    bool apart;
    /* The first failure; what is asked after it does nothing. */
    sx_code code;
} sx_loop_builder;
/* Are there kernels with so many lanes of so many bytes?
 *   errors   SX_INPUT no, with what is allowed */
sx_code sx_kernel_check_lanes(sx_ctx *cx, const char *name, uint32_t lanes, uint32_t lane_bytes);
sx_code sx_kernel_make(sx_ctx *cx, const char *name, uint32_t lanes, uint32_t lane_bytes,
                       sx_kernel **kernel);
/* Of a vector register: 32 or 64; 128 or 256 where lanes are threads. */
static inline uint32_t sx_kernel_vector_bytes(const sx_kernel *kernel)
{
    return kernel->lanes * kernel->lane_bytes;
}
uint32_t sx_kernel_add_buffer(sx_kernel *kernel, sx_buffer_role role, int64_t size);
void sx_loop_begin_part(sx_loop_builder *b, sx_ctx *cx, sx_kernel *kernel, int64_t g0, int64_t g1,
                        int64_t g2);
sx_code sx_loop_end_part(sx_loop_builder *b);
uint32_t sx_loop_open(sx_loop_builder *b, int64_t trip); /* the variable */
/* The same over warps of the part, which has at least as many. */
uint32_t sx_loop_open_warps(sx_loop_builder *b, int64_t trip);
/* The same that may have any number of iterations, also none. */
uint32_t sx_loop_open_any(sx_loop_builder *b, int64_t trip);
void sx_loop_close(sx_loop_builder *b);
uint32_t sx_loop_vector(sx_loop_builder *b); /* a fresh virtual register */
/* One instruction; dst SX_NO_REG takes a fresh register of the result class. Returns the result register. */
uint32_t sx_loop_op(sx_loop_builder *b, sx_lop op, uint32_t dst, const sx_addr *addr, uint32_t x,
                    uint32_t y, uint32_t z, uint32_t imm, int64_t imm2);
/* A load or store of vectors with elements of type `mem`; imm and imm2 as sx_loop_op. */
uint32_t sx_loop_access(sx_loop_builder *b, sx_lop op, sx_mem mem, const sx_addr *addr, uint32_t x,
                        uint32_t imm, int64_t imm2);
uint32_t sx_loop_bits(sx_loop_builder *b, uint64_t bits);    /* a constant */
uint32_t sx_loop_set(sx_loop_builder *b, float value);       /* lanes of 4 bytes */
uint32_t sx_loop_set_wide(sx_loop_builder *b, double value); /* lanes of 8 bytes */

/* math.c: elementwise operations as instruction sequences, written once and used by every kernel, so that a
 * fused and an unfused kernel agree bit for bit: exp, log, tanh, erf, logistic, gelu, sin ... Result register
 * for operation `op` on x, y, z. Accuracy of each is stated there and tested against libm. SX_UNIMPLEMENTED
 * through b->code names the operation. */
uint32_t sx_loop_apply(sx_loop_builder *b, sx_op op, sx_direction direction, uint32_t x, uint32_t y,
                       uint32_t z);
/* math_wide.c: the same on f64, kernels with lanes of 8 bytes. */
uint32_t sx_loop_apply_wide(sx_loop_builder *b, sx_op op, uint32_t x, uint32_t y);

/* ---- typed.c: elements of any type in lanes; errors through b->code ---- */
/* How elements of a type lie in memory, */
sx_mem sx_loop_mem(sx_dtype dtype, uint32_t lane_bytes);
/* the value of what such a load gives, and what such a store takes for a value of the type. */
uint32_t sx_loop_decode(sx_loop_builder *b, sx_dtype dtype, uint32_t raw);
uint32_t sx_loop_encode(sx_loop_builder *b, sx_dtype dtype, uint32_t value);
uint32_t sx_loop_constant(sx_loop_builder *b, sx_dtype dtype, double value);
/* A lane's float rounded to a float type, as arithmetic of the type does: f8 saturates. */
uint32_t sx_loop_round(sx_loop_builder *b, sx_dtype dtype, uint32_t x);
/* An operation on operands of type `from` with a result of type `to`, which but for comparisons, conversions and
 * the predicate of a select are the same. */
typedef struct {
    sx_op op;
    sx_direction direction;
    sx_dtype from, to;
} sx_loop_step;
uint32_t sx_loop_typed(sx_loop_builder *b, const sx_loop_step *step, uint32_t x, uint32_t y,
                       uint32_t z);
/* The conversion of an index below `extent`, held as an integer, to a type. One that every lane's float holds
 * is as good as a u8: it is converted without rounding. */
static inline sx_loop_step sx_loop_index_step(int64_t extent, sx_dtype to, uint32_t lane_bytes)
{
    bool small = extent <= 1 << 24 && sx_dtype_class_of(to) == SX_CLASS_FLOAT;
    sx_dtype from = small ? SX_U8 : lane_bytes == 8 ? SX_I64 : SX_I32;
    return (sx_loop_step){.op = SX_OP_CONVERT, .from = from, .to = to};
}
/* sort_order.c: an element in the order of `sort` as two integers of a lane. Where the key or, of equal keys, the tag
 * of a pair is larger, its element comes later. */
typedef struct {
    uint32_t key, tag;
} sx_loop_pair;
/* Of what a load gives, and its place along the axis. `falls`: the largest first. */
sx_loop_pair sx_loop_sort_enter(sx_loop_builder *b, sx_dtype dtype, bool falls, uint32_t raw,
                                uint32_t place);
/* What a store takes for the element, and its place as an integer. */
uint32_t sx_loop_sort_value(sx_loop_builder *b, sx_dtype dtype, bool falls, sx_loop_pair pair);
uint32_t sx_loop_sort_place(sx_loop_builder *b, sx_dtype dtype, sx_loop_pair pair);
/* A key that no element has a larger one than. */
uint32_t sx_loop_sort_last(sx_loop_builder *b);
/* What makes an element of a type of a sum that was made in a lane's own float or integer. */
static inline sx_loop_step sx_loop_close_step(sx_dtype to, uint32_t lane_bytes)
{
    bool real = sx_dtype_class_of(to) == SX_CLASS_FLOAT;
    sx_dtype narrow = real ? SX_F32 : SX_I32;
    sx_dtype wide = real ? SX_F64 : SX_I64;
    return (sx_loop_step){.op = SX_OP_CONVERT, .from = lane_bytes == 8 ? wide : narrow, .to = to};
}
/* The maximum (SX_LOP_MAX) or minimum of x and y, NaN where either is, y where they are equal; in register
 * `dst`, or a new one. */
uint32_t sx_loop_order(sx_loop_builder *b, sx_lop lop, uint32_t dst, uint32_t x, uint32_t y);

/* The accumulator x combined with y, in register `dst` or a new one: a NaN in y replaces it and stays, the first of
 * equals stays too. Floats are those of lanes, integers wrap in the end; bools are 0 and 1. */
uint32_t sx_loop_combine(sx_loop_builder *b, sx_reducer reducer, sx_dtype dtype, uint32_t dst,
                         uint32_t x, uint32_t y);

/* check.c: registers written before read, addresses inside buffers for all variable values, variables in
 * scope, nesting, limits; iterations over warps apart. */
sx_code sx_kernel_check(sx_ctx *cx, const sx_kernel *kernel);
/* settle.c: the program for the extents that it was lowered for: loops without iterations are left out, and the others
 * have those that they have. */
sx_code sx_kernel_settle(sx_ctx *cx, const sx_kernel *kernel, sx_kernel **settled);
/* print.c, parse.c: text that reads back */
sx_code sx_kernel_print(sx_ctx *cx, const sx_kernel *kernel, sx_buf *text);
sx_code sx_kernel_parse(sx_ctx *cx, sx_span text, sx_kernel **kernel);
/* eval.c: runs every part at every grid point; the bit oracle of the machine back ends. buffer[k] has
 * kernel->buffer[k].size bytes; the workspace buffer is filled with a pattern before every grid point. Runs
 * sx_kernel_check first. Fuel: one per instruction executed. */
sx_code sx_kernel_eval(sx_ctx *cx, const sx_kernel *kernel, void *const *buffer);
/* The same for one point of the grid of one part. */
sx_code sx_kernel_eval_point(sx_ctx *cx, const sx_kernel *kernel, uint32_t part,
                             const int64_t index[3], void *const *buffer);
/* emit_c.c: C11 with GNU vector extensions and explicit fma, no headers: one function per part,
 * `void NAME_pP(void *const *buffer, const long long *index, void *workspace)`. The tests' oracle for machine code. */
sx_code sx_kernel_emit_c(sx_ctx *cx, const sx_kernel *kernel, sx_buf *text);

/* Entry ABI of machine code, one entry per part: void entry(void *const *buffer, const int64_t *index, void
 * *workspace): `buffer` without the workspace, `index` the grid point and behind it the numbers of the part that come
 * at run time; SysV, leaf, MXCSR default on entry (the runtime's duty). */

/* The vector instructions that a program is lowered for. */
typedef struct {
    /* How many lanes of 4 bytes a register has. */
    uint32_t lanes;
    /* Each lane is a thread, whose registers hold one element of any size; else a register has a number of
     * bytes, and half as many lanes of 8. */
    bool threads;
    /* How many vector registers there are. */
    uint32_t registers;
    /* Masks have registers of their own. Otherwise each takes a vector register. */
    bool mask_registers;
    /* How the instructions round, in a word: units of one class give the same bits for the same program,
     * units of different classes never share the id of a numerics plan. */
    const char *numerics;
} sx_vector_unit;
static inline uint32_t sx_vector_unit_lanes(const sx_vector_unit *unit, uint32_t lane_bytes)
{
    SX_ASSERT(unit->lanes > 0 && (lane_bytes == 4 || lane_bytes == 8));
    return unit->threads ? unit->lanes : unit->lanes * 4 / lane_bytes;
}

/* ---- lowerings: an analysed kernel under a schedule as a loop program. A schedule of a form that the
 * lowering does not follow is SX_UNIMPLEMENTED; one that needs too many registers SX_LIMIT. ---- */
/* Buffers of the kernel: arguments in order (the packed panels in place of a staged one), result, workspace. */
sx_code sx_lower_fused(sx_ctx *cx, const sx_vector_unit *unit, const char *name,
                       const sx_analysis *analysis, const sx_schedule *schedule,
                       sx_kernel **kernel);
/* The kernel that packs the right argument of a contraction: [batch][panel of columns][k][column], zeros
 * beyond n; *packed_bytes is the size of the packed buffer. Buffers: argument, packed result. */
sx_code sx_lower_pack(sx_ctx *cx, const char *name, const sx_analysis *analysis,
                      const sx_schedule *schedule, sx_kernel **kernel, int64_t *packed_bytes);
/* Moves of elements of any type, under a schedule of sx_schedule_map. concatenate and gather (runtime indices
 * i32 or i64) copy rows with lanes of 4 bytes; reverse of one input, and pad of an input by a scalar, have
 * lanes of sx_move_lane_bytes. Buffers: inputs in order, result. */
static inline uint32_t sx_move_lane_bytes(sx_dtype dtype)
{
    return sx_dtype_bytes(dtype) == 8 ? 8 : 4;
}
/* The lanes of a move of `input` .. to `result`. */
static inline uint32_t sx_move_lane_bytes_of(sx_op op, sx_dtype input, sx_dtype result)
{
    bool elements = op == SX_OP_PAD || op == SX_OP_REVERSE || op == SX_OP_SCATTER;
    return op == SX_OP_SORT ? sx_move_lane_bytes(input) : elements ? sx_move_lane_bytes(result) : 4;
}
/* Rows of `bytes` go in words of 4 bytes where that divides them all, else element by element. */
static inline int64_t sx_move_unit(sx_dtype dtype, int64_t bytes)
{
    return bytes % 4 == 0 ? 4 : sx_dtype_bytes(dtype);
}
sx_code sx_lower_concatenate(sx_ctx *cx, const char *name, const sx_attr *attr,
                             const sx_type *input, uint32_t input_count, const sx_type *result,
                             const sx_schedule *schedule, sx_kernel **kernel);
sx_code sx_lower_gather(sx_ctx *cx, const char *name, const sx_attr *attr, const sx_type *input,
                        uint32_t input_count, const sx_type *result, const sx_schedule *schedule,
                        sx_kernel **kernel);
sx_code sx_lower_reverse(sx_ctx *cx, const char *name, const sx_attr *attr, const sx_type *input,
                         const sx_type *result, const sx_schedule *schedule, sx_kernel **kernel);
sx_code sx_lower_pad(sx_ctx *cx, const char *name, const sx_attr *attr, const sx_type *input,
                     const sx_type *result, const sx_schedule *schedule, sx_kernel **kernel);

/* One of them, as a value. */
typedef enum {
    SX_LOWER_FUSED, /* an analysed kernel */
    SX_LOWER_PACK, /* what a contraction reads: panels of its right argument, or sums of slices of k */
    SX_LOWER_MOVE /* concatenate, gather, pad, reverse, scatter, sort, dynamic slices and updates */
} sx_lowering_kind;
typedef struct {
    sx_lowering_kind kind;
    /* The name of the kernel, for reports. */
    const char *name;
    const sx_schedule *schedule;
    /* Of FUSED and PACK. */
    const sx_analysis *analysis;
    /* Of MOVE: the operation, its attributes, the types of its inputs and of its result. */
    sx_op op;
    const sx_attr *attr;
    const sx_type *input;
    uint32_t input_count;
    const sx_type *result;
} sx_lowering;
/* lower_index.c: moves whose places are operands (indices and starts of i32 or i64). dynamic_slice and
 * dynamic_update_slice have lanes of 4 bytes, scatter those of sx_move_lane_bytes. */
sx_code sx_lower_dynamic_slice(sx_ctx *cx, const sx_lowering *w, sx_kernel **kernel);
sx_code sx_lower_dynamic_update(sx_ctx *cx, const sx_lowering *w, sx_kernel **kernel);
sx_code sx_lower_scatter(sx_ctx *cx, const sx_lowering *w, sx_kernel **kernel);
/* lower_sort.c: a sort of rows of up to SX_SORT_NETWORK_MAX elements, with the lanes of its input. */
sx_code sx_lower_sort(sx_ctx *cx, const sx_lowering *w, sx_kernel **kernel);
sx_code sx_loop_lower(sx_ctx *cx, const sx_vector_unit *unit, const sx_lowering *what,
                      sx_kernel **kernel);
#endif
