/* uop.h - the emulator's inside: decoded instructions, and the state that they change. Internal to core/x64. */
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

enum { SX_CARRY = 1, SX_ZERO = 2, SX_SIGN = 4, SX_OVERFLOW = 8, SX_FLAGS_ALL = 15 };
typedef struct {
    /* The flags that are 1. */
    uint32_t set;
    /* The flags that have a value: the manual leaves some undefined behind some instructions. */
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
    /* A sx_x64_kind; SX_X64_NONE: there is no operand. */
    uint8_t kind;
    /* The register, or the base of an address where `based`. */
    uint8_t reg;
    /* The register that is shifted left by `shift` and added to the address; SX_X64_NO_REG: none. */
    uint8_t index;
    uint8_t shift;
    bool based;
    /* One element of memory is taken for all lanes. */
    bool broadcast;
    /* How many bytes are accessed in memory. */
    uint8_t bytes;
    /* What is added to the address; or the immediate. */
    uint64_t disp;
} sx_x64_place_of;

#define SX_X64_PICK_ZERO \
    255 /* in `pick`: the element is zero; 128 + i: element i of the second source */
struct sx_x64_uop {
    sx_x64_lane_run *lane;
    sx_x64_general_run *general;
    /* Where the instruction stands in the blob. */
    uint32_t offset;
    /* The numbers of the micro-operations that follow: usually, and where a jump is taken. */
    uint32_t next;
    uint32_t target;
    /* As in sx_x64_meaning. */
    uint8_t micro, element, variant;
    /* The k register of a write mask, 0 for none; lanes out of it become zero where `zero`, and stay otherwise. */
    uint8_t mask;
    bool zero;
    uint8_t imm;
    /* How many lanes are computed. */
    uint8_t lanes;
    /* How many bytes an element of the result has, and one of the sources. */
    uint8_t size;
    uint8_t from_size;
    /* How many operands `arg` has. */
    uint8_t arg_count;
    /* Which operands are vector sources, and in which order they are a, b and c of the formula. */
    uint8_t source[3];
    uint8_t source_count;
    /* Memory is accessed as a whole, whatever the mask. */
    bool whole;
    uint8_t order[3];
    sx_x64_place_of arg[SX_X64_ARG_MAX];
    /* Of a permutation: for each element of the result the element of the first source, or as SX_X64_PICK_ZERO says. */
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
