/* loop.h - the loop-nest IR, the bridge to machines: one kernel as structured loops over vector instructions.
 *
 * A kernel has buffers and one or more parts; a part is a program run once for every point of its grid. Points
 * of the grids of all parts of one kernel are independent: any order, any threads, same bits. All shapes are
 * static: trip counts, steps and offsets are constants. Sequential order inside a part is the textual order.
 *
 * A program is a flat list of items: LOOP opens a counted loop over a fresh variable (0 .. trip - 1), END
 * closes it, OP is an instruction of ops.def. Registers are virtual and mutable, f32/int32 vectors of `lanes`
 * lanes (8: AVX2, 16: AVX-512), lane masks, and 64-bit integers. A register must be written before it is read,
 * on the path of the text (a loop body runs at least once: trip >= 1).
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
 * depends on lanes being 8 or 16 apart from the count; row reductions use the fixed virtual shape of
 * core/loop/lower_row.c on both widths.
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
typedef struct {
    const char *name;
    const char *operands;
    char result;
} sx_lop_info;
const sx_lop_info *sx_lop_info_of(sx_lop op);

#define SX_LOOP_VARS_MAX 16 /* 3 grid variables and 13 open loops */
#define SX_LOOP_ITEMS_MAX 200000u
#define SX_LOOP_REGS_MAX 65536u /* of one class in one part */
#define SX_LOOP_BYTES_MAX (INT64_C(1) << 46)
#define SX_NO_REG UINT32_MAX
typedef struct {
    uint32_t buffer;
    int64_t offset;                 /* bytes */
    int64_t coef[SX_LOOP_VARS_MAX]; /* bytes per step of each variable */
    uint32_t index_reg;             /* integer register added (bytes), or SX_NO_REG */
} sx_addr;

typedef enum { SX_ITEM_OP, SX_ITEM_LOOP, SX_ITEM_END } sx_item_kind;
typedef struct {
    sx_item_kind kind;
    sx_lop op;    /* OP */
    uint32_t dst; /* OP: result register of the class in ops.def; LOOP and its END: the variable */
    /* OP: register operands in order of ops.def (immediates and addresses skipped) */
    uint32_t src[3];
    uint32_t addr; /* OP: index into part->addr, if it has an address */
    uint32_t imm;  /* OP: float bits of `f`, or the first `n` */
    /* OP: the second `n` (byte stride of loads; bound of swrap/sclamp/smul is here as their only
     * n) */
    int64_t imm2;
    int64_t trip; /* LOOP: iterations, >= 1 */
} sx_item;
/* Note: swrap, sclamp and smul have their immediate in imm2 (64 bits); all others have it in imm. */

typedef struct {
    int64_t grid[3]; /* points per grid dimension, >= 1 */
    sx_item *item;
    uint32_t item_count, item_capacity;
    sx_addr *addr;
    uint32_t addr_count, addr_capacity;
    uint32_t vector_count; /* virtual registers used of each class */
    uint32_t mask_count;
    uint32_t scalar_count;
    uint32_t var_count; /* highest variable in use + 1, at least 3 */
} sx_part;

typedef enum { SX_BUFFER_IN, SX_BUFFER_OUT, SX_BUFFER_WORKSPACE } sx_buffer_role;
typedef struct {
    /* WORKSPACE: private to the thread, contents undefined at entry; at most one, the last
     * buffer */
    sx_buffer_role role;
    int64_t size; /* bytes that may be touched */
} sx_loop_buffer;
#define SX_LOOP_BUFFERS_MAX 20
#define SX_PARTS_MAX 64
typedef struct {
    char name[64];  /* for reports: e.g. "dot_17" */
    uint32_t lanes; /* 8 or 16 */
    sx_loop_buffer buffer[SX_LOOP_BUFFERS_MAX];
    uint32_t buffer_count;
    sx_part *part;
    uint32_t part_count;
    /* hash of the numerics plan: equal ids must give equal bits (op, N, K, dtype; never M, tiles,
     * lanes) */
    uint64_t numerics;
    double flops; /* useful floating point operations of the whole kernel */
    double bytes; /* distinct bytes read and written */
} sx_kernel;

/* ---- build.c: how lowerings write programs. The first failure sticks in cx->error and in builder->code. ---- */
typedef struct {
    sx_ctx *cx;
    sx_kernel *kernel;
    sx_part *part;                   /* the open part */
    uint32_t open[SX_LOOP_VARS_MAX]; /* item indices of the open loops */
    uint32_t open_count;
    sx_code code;
} sx_loop_builder;
sx_code sx_kernel_make(sx_ctx *cx, const char *name, uint32_t lanes, sx_kernel **kernel);
uint32_t sx_kernel_add_buffer(sx_kernel *kernel, sx_buffer_role role, int64_t size);
void sx_loop_begin_part(sx_loop_builder *b, sx_ctx *cx, sx_kernel *kernel, int64_t g0, int64_t g1,
                        int64_t g2);
sx_code sx_loop_end_part(sx_loop_builder *b);
uint32_t sx_loop_open(sx_loop_builder *b, int64_t trip); /* the variable */
void sx_loop_close(sx_loop_builder *b);
uint32_t sx_loop_vector(sx_loop_builder *b); /* a fresh virtual register */
/* One instruction; dst SX_NO_REG takes a fresh register of the result class. Returns the result register. */
uint32_t sx_loop_op(sx_loop_builder *b, sx_lop op, uint32_t dst, const sx_addr *addr, uint32_t x,
                    uint32_t y, uint32_t z, uint32_t imm, int64_t imm2);
uint32_t sx_loop_set(sx_loop_builder *b, float value);

/* math.c: elementwise operations as instruction sequences, written once and used by every kernel, so that a
 * fused and an unfused kernel agree bit for bit: exp, log, tanh, erf, logistic, gelu, sin ... Result register
 * for operation `op` on x, y, z. Accuracy of each is stated there and tested against libm. SX_UNIMPLEMENTED
 * through b->code names the operation. */
uint32_t sx_loop_apply(sx_loop_builder *b, sx_op op, sx_direction direction, uint32_t x, uint32_t y,
                       uint32_t z);
/* The maximum (SX_LOP_MAX) or minimum of x and y, NaN where either is, y where they are equal; in register
 * `dst`, or a new one. */
uint32_t sx_loop_order(sx_loop_builder *b, sx_lop lop, uint32_t dst, uint32_t x, uint32_t y);

/* check.c: registers written before read, addresses inside buffers for all variable values, variables in
 * scope, nesting, limits. */
sx_code sx_kernel_check(sx_ctx *cx, const sx_kernel *kernel);
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

/* Entry ABI of machine code, one entry per part: void entry(void *const *buffer, const int64_t index[3], void
 * *workspace): `buffer` without the workspace; SysV, leaf, MXCSR default on entry (the runtime's duty). */

/* The vector instructions that a program is lowered for. */
typedef struct {
    uint32_t lanes;      /* of 4 bytes */
    uint32_t registers;  /* vector registers */
    bool mask_registers; /* masks have registers of their own; else each takes a vector register */
    /* How the instructions round, in a word: units of one class give the same bits for the same program,
     * units of different classes never share the id of a numerics plan. */
    const char *numerics;
} sx_vector_unit;

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
/* Moves, under a schedule of sx_schedule_map. concatenate and gather (runtime indices i32 or i64), 4-byte
 * elements; reverse of one input; pad of an input by a scalar. Buffers: inputs in order, result. */
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
    SX_LOWER_PACK,  /* the panels of a contraction's right argument */
    SX_LOWER_MOVE   /* concatenate, gather, pad, reverse */
} sx_lowering_kind;
typedef struct {
    sx_lowering_kind kind;
    const char *name; /* of the kernel, for reports */
    const sx_schedule *schedule;
    const sx_analysis *analysis; /* FUSED, PACK */
    /* MOVE: the operation, its attributes, the types of its inputs and of its result */
    sx_op op;
    const sx_attr *attr;
    const sx_type *input;
    uint32_t input_count;
    const sx_type *result;
} sx_lowering;
sx_code sx_loop_lower(sx_ctx *cx, const sx_vector_unit *unit, const sx_lowering *what,
                      sx_kernel **kernel);
#endif
