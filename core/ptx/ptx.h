/* ptx.h - programs for NVIDIA GPUs: the instructions of PTX as a table, and modules as stored instructions.
 *
 * One row of ops.def says of an instruction how it is written, which operands it takes, which PTX version and
 * which GPU it needs, what it does beside its result, and which function of the interpreter runs it. Builder,
 * printer, parser, check and interpreter read the same row, so that an instruction without a meaning cannot be
 * emitted.
 *
 * Code generators build instructions and never text; text is printed from them at the end, and reading it
 * back gives the same instructions. Programs of other compilers are read likewise, as far as they stay in the
 * table; what is outside is refused with its line.
 *
 * Registers are numbered within four classes by size, and are declared as untyped bits (.pred .b16 .b32 .b64),
 * which PTX takes wherever the size fits.
 *
 * Source: "PTX ISA", version 9.0, NVIDIA.
 */
#ifndef SX_CORE_PTX_PTX_H
#define SX_CORE_PTX_PTX_H
#include "core/base/buf.h"

/* ---- the words of the table ---- */
/* A modifier: one of the dotted words behind an opcode. The modifiers of a class are consecutive, and
 * SX_PTX_<class>_FIRST is the first of them. */
typedef enum {
    SX_PTX_NO_MODIFIER = 0,
#define SX_PTX_MODIFIERS(class) \
    SX_PTX_##class##_FIRST, SX_PTX_##class##_BEFORE = SX_PTX_##class##_FIRST - 1,
#define SX_PTX_MODIFIER(class, name, text, value, version, target) SX_PTX_##class##_##name,
#include "core/ptx/modifiers.def"
#undef SX_PTX_MODIFIER
#undef SX_PTX_MODIFIERS
    SX_PTX_MODIFIER_COUNT
} sx_ptx_modifier;

typedef enum {
#define SX_PTX_MODIFIERS(class) SX_PTX_CLASS_##class,
#define SX_PTX_MODIFIER(class, name, text, value, version, target)
#include "core/ptx/modifiers.def"
#undef SX_PTX_MODIFIER
#undef SX_PTX_MODIFIERS
    SX_PTX_CLASSES
} sx_ptx_class;

typedef struct {
    const char *text; /* with its dot */
    uint8_t class_of; /* sx_ptx_class */
    uint16_t value;   /* modifiers.def says what it counts */
    /* Least PTX version and compute capability, both times ten, where later than those of the instruction. */
    uint16_t version, target;
} sx_ptx_modifier_row;
const sx_ptx_modifier_row *sx_ptx_modifier_of(sx_ptx_modifier modifier);

/* Registers that the machine fills. */
typedef enum {
#define SX_PTX_SPECIAL(name, text, bytes, version, target) SX_PTX_SPECIAL_##name,
#include "core/ptx/specials.def"
#undef SX_PTX_SPECIAL
    SX_PTX_SPECIAL_COUNT
} sx_ptx_special;

typedef struct {
    const char *text;
    uint16_t bytes, version, target;
} sx_ptx_special_row;
const sx_ptx_special_row *sx_ptx_special_of(sx_ptx_special special);

/* ---- the table of instructions ---- */
typedef enum {
#define SX_PTX_OP(op, text, slots, operands, version, target, effects, unit, handler) \
    SX_PTX_OP_##op,
#include "core/ptx/ops.def"
#undef SX_PTX_OP
    SX_PTX_OP_COUNT
} sx_ptx_op;

/* Functions of the interpreter; several instructions may share one. */
typedef enum {
#define SX_PTX_HANDLER(name) SX_PTX_RUN_##name,
#include "core/ptx/handlers.def"
#undef SX_PTX_HANDLER
    SX_PTX_RUN_COUNT
} sx_ptx_handler;

/* What an instruction does beside writing its result registers. */
enum {
    SX_PTX_DOES_LOADS = 1 << 0,   /* reads memory */
    SX_PTX_DOES_STORES = 1 << 1,  /* writes memory */
    SX_PTX_DOES_WARP = 1 << 2,    /* the threads of a warp execute it together */
    SX_PTX_DOES_BLOCK = 1 << 3,   /* it waits for other warps of its block */
    SX_PTX_DOES_ASYNC = 1 << 4,   /* what it begins ends later, by itself */
    SX_PTX_DOES_FENCE = 1 << 5,   /* it orders memory accesses or completes what was begun */
    SX_PTX_DOES_CONTROL = 1 << 6, /* the next instruction need not be the one behind it */
    SX_PTX_DOES_END = 1 << 7,     /* without a guard, the one behind it is not executed */
};

/* Where an instruction executes; devices say how many of these an SM does in a clock. */
typedef enum {
    SX_PTX_UNIT_CONTROL,
    SX_PTX_UNIT_INTEGER,
    SX_PTX_UNIT_FLOAT,
    SX_PTX_UNIT_DOUBLE,
    SX_PTX_UNIT_SPECIAL, /* reciprocals, roots, exponentials */
    SX_PTX_UNIT_CONVERT,
    SX_PTX_UNIT_MEMORY,
    SX_PTX_UNIT_TENSOR,
    SX_PTX_UNIT_COUNT
} sx_ptx_unit;

#define SX_PTX_SLOTS_MAX 12
#define SX_PTX_OPERANDS_MAX 8

/* A place for one modifier. */
typedef struct {
    uint8_t class_of; /* sx_ptx_class */
    uint8_t optional;
    uint64_t allowed; /* set of 1 << (modifier - first of the class) */
} sx_ptx_slot;

/* The size of a register class is that of what it holds. */
typedef enum {
    SX_PTX_PRED,
    SX_PTX_B16,
    SX_PTX_B32,
    SX_PTX_B64,
    SX_PTX_REGISTER_CLASSES,
    /* In a row: as large as the first or second element type of the instruction, or twice the first. */
    SX_PTX_BY_TYPE1 = SX_PTX_REGISTER_CLASSES,
    SX_PTX_BY_TYPE2,
    SX_PTX_BY_TYPE1_TWICE,
} sx_ptx_register_class;

typedef enum {
    SX_PTX_TAKES_NOTHING,  /* no operand, nor any behind it */
    SX_PTX_TAKES_REGISTER, /* and an immediate, special register or symbol where the flags say so */
    SX_PTX_TAKES_VECTOR,   /* {a, b, ...}, `count` registers of the class */
    SX_PTX_TAKES_ELEMENTS, /* one register without a VECTOR modifier, {a, b, ...} with one */
    SX_PTX_TAKES_COUNTED,  /* {a, ...}, as many as sx_ptx_counted says */
    SX_PTX_TAKES_HALVES,   /* {a, b} or {a, b, c, d} that are together as large as the first type */
    SX_PTX_TAKES_MEMORY,   /* [address] */
    SX_PTX_TAKES_LABEL,
    SX_PTX_TAKES_IMMEDIATE,
} sx_ptx_takes;
enum {
    SX_PTX_WRITTEN = 1 << 0,
    SX_PTX_OR_IMMEDIATE = 1 << 1,
    SX_PTX_OR_SPECIAL = 1 << 2,
    SX_PTX_OR_SYMBOL = 1 << 3,
    SX_PTX_OR_WIDER = 1 << 4,   /* a larger register will do: loads extend, stores truncate */
    SX_PTX_OR_NEGATED = 1 << 5, /* !p */
    SX_PTX_OR_PAIR = 1 << 6,    /* d|p: a predicate beside the result */
    SX_PTX_OR_ABSENT = 1 << 7,  /* it and those behind it may be missing */
    SX_PTX_ONLY_SINK = 1 << 8,  /* _ and nothing else */
    SX_PTX_WITHIN =
        1 << 9, /* a vector inside the brackets of the address before it: [map, {x, y}] */
};

typedef struct {
    uint8_t takes;    /* sx_ptx_takes */
    uint8_t class_of; /* sx_ptx_register_class, of each register */
    uint8_t count;    /* of a vector */
    uint16_t flags;
    /* sx_ptx_modifier: the operand is there exactly if the instruction has it; 0: always */
    uint16_t when;
} sx_ptx_operand;

typedef struct {
    const char *text;                            /* the opcode up to the first dot */
    sx_ptx_slot slot[SX_PTX_SLOTS_MAX];          /* those behind the last allow nothing */
    sx_ptx_operand operand[SX_PTX_OPERANDS_MAX]; /* those behind the last take nothing */
    /* Least PTX version and compute capability, both times ten; plus SX_PTX_SPECIFIC where only GPUs of this
     * very architecture have it (sm_90a). */
    uint16_t version, target;
    uint16_t effects;
    uint8_t unit, handler; /* sx_ptx_unit, sx_ptx_handler */
} sx_ptx_row;
#define SX_PTX_SPECIFIC 0x1000
const sx_ptx_row *sx_ptx_row_of(sx_ptx_op op);
uint32_t sx_ptx_row_slots(const sx_ptx_row *row);
uint32_t sx_ptx_row_operands(const sx_ptx_row *row);

/* ---- arguments ---- */
typedef enum {
    SX_PTX_ARG_NONE,
    SX_PTX_ARG_REGISTER,
    SX_PTX_ARG_IMMEDIATE,
    SX_PTX_ARG_SPECIAL,
    SX_PTX_ARG_SYMBOL, /* the address of a variable or parameter */
    SX_PTX_ARG_MEMORY, /* what lies at an address */
    SX_PTX_ARG_VECTOR,
    SX_PTX_ARG_LABEL,
    SX_PTX_ARG_SINK, /* _: a result that nobody wants */
} sx_ptx_arg_kind;

/* How an immediate is written. */
typedef enum { SX_PTX_INTEGER, SX_PTX_F32_BITS, SX_PTX_F64_BITS } sx_ptx_notation;
/* What a symbol names. */
typedef enum { SX_PTX_PARAMETER, SX_PTX_KERNEL_VARIABLE, SX_PTX_MODULE_VARIABLE } sx_ptx_scope;

typedef struct {
    uint8_t kind; /* sx_ptx_arg_kind */
    /* REGISTER and a base register of MEMORY: sx_ptx_register_class. IMMEDIATE: sx_ptx_notation. SYMBOL and a
     * base symbol of MEMORY: sx_ptx_scope. VECTOR: 1 inside the brackets of the address before it. */
    uint8_t form;
    /* MEMORY: the kind of its base, REGISTER, SYMBOL, or IMMEDIATE for an address alone */
    uint8_t base;
    uint8_t negated; /* REGISTER: !p */
    /* of the register, special register, symbol or label; VECTOR: first in sx_ptx_kernel.arg */
    uint32_t id;
    /* VECTOR: elements; REGISTER: 0, or 1 + the predicate written beside it (d|p) */
    uint32_t count;
    int64_t value; /* IMMEDIATE: its bits; MEMORY and SYMBOL: bytes that are added */
} sx_ptx_arg;

/* ---- stored programs ---- */
typedef struct {
    uint16_t op; /* sx_ptx_op */
    /* sx_ptx_modifier by slot, 0 where an optional one is absent */
    uint16_t modifier[SX_PTX_SLOTS_MAX];
    uint8_t arg_count;
    bool guarded, guard_negated; /* @p, @!p */
    uint32_t guard;              /* the predicate */
    uint32_t arg;                /* first in sx_ptx_kernel.arg */
    uint32_t line;               /* of the text it was read from; 0: none */
} sx_ptx_insn;

/* A variable or parameter. */
typedef struct {
    const char *name;
    uint16_t space; /* sx_ptx_modifier of class SPACE */
    uint16_t type;  /* of class TYPE: of an element */
    uint32_t align; /* bytes, a power of two */
    uint64_t count; /* elements; 1 and `array` false: a scalar */
    bool array;
    bool external;   /* .extern .shared: as many bytes as the launch gives */
    sx_span initial; /* of constants: bytes, the rest is zero */
} sx_ptx_variable;

typedef struct {
    uint32_t x, y, z; /* all 0: not said */
} sx_ptx_block;

#define SX_PTX_NAME_MAX 255
typedef struct {
    const char *name;
    sx_ptx_variable *parameter;
    uint32_t parameter_count, parameter_capacity;
    sx_ptx_variable *variable;
    uint32_t variable_count, variable_capacity;
    uint32_t register_count[SX_PTX_REGISTER_CLASSES];
    sx_ptx_insn *insn;
    uint32_t insn_count, insn_capacity;
    sx_ptx_arg *arg; /* of all instructions; elements of vectors too */
    uint32_t arg_count, arg_capacity;
    /* By label: the instruction it stands before; insn_count: at the end; SX_PTX_NOWHERE: not placed yet. */
    uint32_t *label;
    uint32_t label_count, label_capacity;
    sx_ptx_block required, maximum; /* .reqntid, .maxntid: threads of a block */
    sx_ptx_block cluster;           /* .reqnctapercluster: blocks of a cluster */
    bool explicit_cluster;   /* .explicitcluster: the launch gives no cluster shape of its own */
    uint32_t least_blocks;   /* .minnctapersm; 0: not said */
    uint32_t most_registers; /* .maxnreg; 0: not said */
} sx_ptx_kernel;
#define SX_PTX_NOWHERE UINT32_MAX

typedef struct {
    uint16_t version; /* .version times ten: 70 to 90 */
    uint16_t target;  /* compute capability times ten: 80, 90 */
    char feature;     /* of the target: 'a', 'f' or 0 */
    sx_ptx_variable *variable;
    uint32_t variable_count, variable_capacity;
    sx_ptx_kernel *kernel;
    uint32_t kernel_count, kernel_capacity;
} sx_ptx_module;

/* ---- of instructions ---- */
/* The modifier in the first or a later slot of this class; `nth` counts from 0. 0: none. */
sx_ptx_modifier sx_ptx_insn_modifier(const sx_ptx_insn *insn, sx_ptx_class class_of, uint32_t nth);
/* Bytes of an element of its first or a later type; 0: a predicate, or there is no such type. */
uint32_t sx_ptx_type_bytes(const sx_ptx_insn *insn, uint32_t nth);
/* Registers or coordinates of an operand that is counted by a modifier: .x4 4, .2d 2, .m64n128k16 64 (each thread of
 * a warpgroup holds n / 2 elements of the result). */
uint32_t sx_ptx_counted(const sx_ptx_insn *insn);
/* The class of the registers that this operand of its row takes in this instruction. */
sx_ptx_register_class sx_ptx_operand_class(const sx_ptx_operand *operand, const sx_ptx_insn *insn);
uint32_t sx_ptx_class_bytes(sx_ptx_register_class class_of); /* 0 for predicates */
sx_ptx_register_class sx_ptx_class_of_bytes(uint32_t bytes); /* the smallest that holds them */
/* Does the row take these modifiers, in their order? Then fills in `slot`. `fixed_implied`: `given` may leave
 * out the modifiers of slots that take only one. */
bool sx_ptx_row_takes(const sx_ptx_row *row, const uint16_t *given, uint32_t given_count,
                      bool fixed_implied, uint16_t slot[SX_PTX_SLOTS_MAX]);
/* The same for modifiers as text, dots included and fixed ones among them. */
bool sx_ptx_row_reads(const sx_ptx_row *row, const sx_span *text, uint32_t text_count,
                      uint16_t slot[SX_PTX_SLOTS_MAX]);
/* Modifiers that the row takes one by one, but PTX not together: NULL, or what is wrong, for people. */
const char *sx_ptx_modifiers_misfit(const sx_ptx_insn *insn);
/* Likewise immediates that fit the operands but not the instruction. */
const char *sx_ptx_values_misfit(const sx_ptx_kernel *kernel, const sx_ptx_insn *insn);
/* The operands of its row that its arguments stand for, in their order; their number. */
uint32_t sx_ptx_operands_of(const sx_ptx_insn *insn, uint8_t operand[SX_PTX_OPERANDS_MAX]);
/* Do the arguments fit the row under the instruction's modifiers? NULL: yes; else what is wrong, for people. */
const char *sx_ptx_args_misfit(const sx_ptx_module *module, const sx_ptx_kernel *kernel,
                               const sx_ptx_insn *insn);
uint64_t sx_ptx_variable_bytes(const sx_ptx_variable *variable);
/* The variable that a symbol names. */
const sx_ptx_variable *sx_ptx_symbol(const sx_ptx_module *module, const sx_ptx_kernel *kernel,
                                     sx_ptx_scope scope, uint32_t id);

/* ---- building ---- */
/* A kernel under construction. The first failure sticks, later calls do nothing, sx_ptx_end reports it. The
 * module may not get another kernel while one is under construction. */
typedef struct {
    sx_ctx *cx;
    sx_ptx_module *module;
    sx_ptx_kernel *kernel;
    sx_code code;
    bool guarded, guard_negated; /* of the next instruction */
    uint32_t guard;
} sx_ptx_builder;

/* Least PTX version, times ten, that knows the target. */
uint16_t sx_ptx_target_version(uint32_t target, char feature);
sx_code sx_ptx_module_make(sx_ctx *cx, uint32_t target, char feature, sx_ptx_module **module);
void sx_ptx_begin(sx_ptx_builder *b, sx_ctx *cx, sx_ptx_module *module, const char *name);
/* Checks the kernel and raises the module's version to what it needs.
 *   errors   the first failure of a call; SX_INTERNAL what sx_ptx_check says of an instruction */
sx_code sx_ptx_end(sx_ptx_builder *b);

/* Variables; each returns an ARG_SYMBOL. `type` is a modifier of class TYPE. */
sx_ptx_arg sx_ptx_parameter(sx_ptx_builder *b, const char *name, sx_ptx_modifier type);
/* Bytes by value, as tensor maps are given. */
sx_ptx_arg sx_ptx_parameter_bytes(sx_ptx_builder *b, const char *name, uint32_t align,
                                  uint64_t bytes);
sx_ptx_arg sx_ptx_shared(sx_ptx_builder *b, const char *name, uint32_t align, uint64_t bytes);
/* The shared memory whose size the launch gives; once in a kernel. */
sx_ptx_arg sx_ptx_shared_dynamic(sx_ptx_builder *b, const char *name, uint32_t align);

/* Arguments. */
sx_ptx_arg sx_ptx_register(sx_ptx_builder *b, sx_ptx_register_class class_of); /* a new one */
/* `count` new registers as a vector. */
sx_ptx_arg sx_ptx_registers(sx_ptx_builder *b, sx_ptx_register_class class_of, uint32_t count);
sx_ptx_arg sx_ptx_element(const sx_ptx_builder *b, sx_ptx_arg vector, uint32_t index);
sx_ptx_arg sx_ptx_vector(sx_ptx_builder *b, const sx_ptx_arg *element, uint32_t count);
/* Coordinates behind a tensor map: [map, {x, y}] are the arguments sx_ptx_at(map, 0) and this. */
sx_ptx_arg sx_ptx_coordinates(sx_ptx_builder *b, const sx_ptx_arg *element, uint32_t count);
sx_ptx_arg sx_ptx_imm(int64_t value);
sx_ptx_arg sx_ptx_imm_f32(float value);
sx_ptx_arg sx_ptx_imm_f64(double value);
sx_ptx_arg sx_ptx_special_register(sx_ptx_special special);
/* [base + offset]; base is a register of 32 or 64 bits or a symbol. */
sx_ptx_arg sx_ptx_at(sx_ptx_arg base, int64_t offset);
sx_ptx_arg sx_ptx_not(sx_ptx_arg predicate);
sx_ptx_arg sx_ptx_pair(sx_ptx_arg result, sx_ptx_arg predicate); /* d|p */
sx_ptx_arg sx_ptx_label(sx_ptx_builder *b);                      /* a new one, placed later */

/* The next instruction to be put has this guard. */
void sx_ptx_guard(sx_ptx_builder *b, sx_ptx_arg predicate);
/* The label stands before the next instruction. */
void sx_ptx_place(sx_ptx_builder *b, sx_ptx_arg label);
/* Modifiers in the order of PTX; fixed ones may be left out, zeros among them are skipped. */
typedef struct {
    uint16_t item[SX_PTX_SLOTS_MAX];
} sx_ptx_modifiers;
#define SX_PTX_M(...) ((sx_ptx_modifiers){{__VA_ARGS__}})

/* Appends an instruction; `arg` NULL where there is none. */
void sx_ptx_put(sx_ptx_builder *b, sx_ptx_op op, sx_ptx_modifiers modifiers, const sx_ptx_arg *arg,
                uint32_t arg_count);
/*     SX_PTX_PUT(b, LD, SX_PTX_M(SX_PTX_SPACE_GLOBAL, SX_PTX_TYPE_F32), x, sx_ptx_at(p, 4)); */
#define SX_PTX_PUT(b, op, modifiers, ...)                                           \
    sx_ptx_put((b), SX_PTX_OP_##op, (modifiers), (const sx_ptx_arg[]){__VA_ARGS__}, \
               (uint32_t)SX_COUNT(((const sx_ptx_arg[]){__VA_ARGS__})))

/* ---- text ---- */
/* The module as PTX, registers named %p0 %h0 %r0 %d0 and labels L0. */
void sx_ptx_print(const sx_ptx_module *module, sx_buf *text);
void sx_ptx_print_insn(const sx_ptx_module *module, const sx_ptx_kernel *kernel,
                       const sx_ptx_insn *insn, sx_buf *text);
/* Reads PTX: what sx_ptx_print writes, and what others write within the table. The module lies in cx's arena
 * and is checked.
 *   errors   SX_INPUT with line and text; SX_UNIMPLEMENTED an instruction, modifier or directive outside the
 *            table, likewise; SX_LIMIT */
sx_code sx_ptx_parse(sx_ctx *cx, sx_span text, sx_ptx_module **module);

/* ---- check ---- */
/* Whether every instruction is one of the table with fitting arguments, and the module's version and target
 * know them all.
 *   errors   SX_INPUT with kernel and instruction */
sx_code sx_ptx_check(sx_ctx *cx, const sx_ptx_module *module);
/* Least version and target of what the instruction uses; raises the values given. */
void sx_ptx_floor(const sx_ptx_insn *insn, const sx_ptx_kernel *kernel, uint16_t *version,
                  uint16_t *target);
#endif
