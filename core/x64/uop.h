/* uop.h - the emulator's inside: decoded instructions and the state they change. */
#ifndef SX_CORE_X64_UOP_H
#define SX_CORE_X64_UOP_H
#include "core/x64/form.h"

typedef union {
    uint8_t u8[64];
    int8_t i8[64];
    uint16_t u16[32];
    int16_t i16[32];
    uint32_t u32[16];
    int32_t i32[16];
    uint64_t u64[8];
    int64_t i64[8];
    float f32[16];
    double f64[8];
} sx_x64_vector;

/* Bits of flags and of the set of flags that are defined. */
enum { SX_CARRY = 1, SX_ZERO = 2, SX_SIGN = 4, SX_OVERFLOW = 8, SX_FLAGS_ALL = 15 };
typedef struct {
    uint32_t set;
    uint32_t defined;
} sx_x64_flags;

typedef struct sx_x64_uop sx_x64_uop;
typedef void sx_x64_lane_run(const sx_x64_uop *u, sx_x64_vector *d, const sx_x64_vector *a,
                             const sx_x64_vector *b, const sx_x64_vector *c);
/* Result of a general operation in the low `bits` bits; sets flags. */
typedef uint64_t sx_x64_general_run(const sx_x64_uop *u, sx_x64_flags *flags, uint64_t a,
                                    uint64_t b, uint32_t bits);

/* An operand: a register, an immediate, or memory at a sum. */
typedef struct {
    uint8_t kind; /* sx_x64_kind, NONE without operand */
    uint8_t reg;
    uint8_t index; /* SX_X64_NO_REG: none */
    uint8_t shift; /* of the index */
    bool based;    /* reg takes part in the address */
    bool broadcast;
    uint8_t bytes; /* accessed in memory */
    uint64_t disp; /* added to the address; the immediate */
} sx_x64_place_of;

#define SX_X64_PICK_ZERO \
    255 /* in `pick`: the element is zero; 128 + i: element i of the second source */
struct sx_x64_uop {
    sx_x64_lane_run *lane;
    sx_x64_general_run *general;
    uint32_t offset; /* of the instruction in the blob */
    uint32_t next;   /* micro-operation that follows */
    uint32_t target; /* of a jump */
    uint8_t micro, element, variant;
    uint8_t mask; /* k register of a write mask, 0 none */
    bool zero;
    uint8_t imm;
    uint8_t lanes;     /* computed */
    uint8_t size;      /* bytes of an element of the result */
    uint8_t from_size; /* and of the sources */
    uint8_t arg_count; /* operands in `arg` */
    uint8_t source[3]; /* operands that are vector sources */
    uint8_t source_count;
    bool whole;       /* memory is accessed whole, whatever the mask */
    uint8_t order[3]; /* of the sources as a, b, c */
    sx_x64_place_of arg[SX_X64_ARG_MAX];
    uint8_t pick[64];
};

uint32_t sx_x64_element_bytes(sx_x64_element element);
/* NULL: lanes.def has no such row. */
sx_x64_lane_run *sx_x64_lane_of(sx_x64_micro micro, sx_x64_element element);
/* Places of PICK for `count` elements; `in_memory`: the last operand is. */
void sx_x64_pick_places(sx_x64_uop *u, uint32_t count, bool in_memory);
/* NULL: none. */
sx_x64_general_run *sx_x64_general_of(sx_x64_micro micro);
/* The condition holds; *defined is false when a flag it reads is not. */
bool sx_x64_condition(const sx_x64_flags *flags, sx_x64_variant condition, bool *defined);
#endif
