/* form.h - the rows of ops.def as data: shared by encoder, decoder, printer, verifier, emulator and the tests.
 *
 * A form is one way to write an instruction: a row. The names of the enumerators below are the words of the table,
 * whose head explains them (encoding, map, pp, lengths, digit, tuple, flags, nan). */
#ifndef SX_CORE_X64_FORM_H
#define SX_CORE_X64_FORM_H
#include "core/x64/x64.h"

typedef enum { SX_ENC_LEG, SX_ENC_VEX, SX_ENC_EVEX } sx_x64_encoding;
typedef enum { SX_MAP_M1, SX_MAP_M0F, SX_MAP_M38, SX_MAP_M3A } sx_x64_map; /* = VEX.mmmmm */
typedef enum { SX_PP_P0, SX_PP_P66, SX_PP_PF3, SX_PP_PF2 } sx_x64_pp;      /* = VEX.pp */
enum {
    SX_LEN_L0 = 0,
    SX_LEN_LX = 1,
    SX_LEN_LY = 2,
    SX_LEN_LXY = 3,
    SX_LEN_LZ = 4,
    SX_LEN_LYZ = 6,
    SX_LEN_LXYZ = 7
};
enum { SX_DIGIT_NX = -1, SX_DIGIT_0 = 0, SX_DIGIT_1, SX_DIGIT_2, SX_DIGIT_3, SX_DIGIT_4 };
enum { SX_DIGIT_5 = 5, SX_DIGIT_6, SX_DIGIT_7 };
typedef enum {
    SX_TUPLE_T0,
    SX_TUPLE_TV,
    SX_TUPLE_T4B,
    SX_TUPLE_T8B,
    SX_TUPLE_TH,
    SX_TUPLE_TQ,
    SX_TUPLE_T1,
    SX_TUPLE_T4,
    SX_TUPLE_T8,
    SX_TUPLE_T16,
    SX_TUPLE_T32
} sx_x64_tuple;
enum { SX_FLAG_N = 0, SX_FLAG_K = 1, SX_FLAG_KZ = 3, SX_FLAG_S = 4, SX_FLAG_KS = 5 };
enum { SX_FLAG_MASK = 1, SX_FLAG_ZERO = 2, SX_FLAG_STORE = 4 };
typedef enum { SX_NAN_NONE, SX_NAN_FIRST, SX_NAN_SECOND, SX_NAN_FMA } sx_x64_nan;

/* Where an operand stands in the bytes of an instruction. */
typedef enum {
    SX_PLACE_NONE,
    SX_PLACE_REG,    /* ModRM.reg */
    SX_PLACE_VVVV,   /* VEX.vvvv */
    SX_PLACE_RM,     /* ModRM.rm */
    SX_PLACE_OPCODE, /* the low three bits of the opcode */
    SX_PLACE_RAX,    /* nowhere: it is always rax */
    SX_PLACE_IS4,    /* bits 7 to 4 of the immediate */
    SX_PLACE_IMM,
    SX_PLACE_BRANCH
} sx_x64_place;

typedef enum {
    SX_IMM_NONE,
    SX_IMM_S8,
    SX_IMM_U8,
    SX_IMM_PREDICATE,
    SX_IMM_S32,
    SX_IMM_U32,
    SX_IMM_64,
    SX_IMM_ONE
} sx_x64_imm_kind;

/* What a mnemonic does: a micro-operation on elements of a type, in a variant (ops.def, micro.def). */
typedef enum {
#define SX_X64_MICRO(name, ...) SX_MICRO_##name,
#include "core/x64/micro.def"
#undef SX_X64_MICRO
    SX_MICRO_COUNT
} sx_x64_micro;

/* X(type, bytes) */
#define SX_X64_ELEMENTS(X) \
    X(NO, 0)               \
    X(F16, 2)              \
    X(F32, 4)              \
    X(F64, 8) X(I8, 1) X(U8, 1) X(I16, 2) X(U16, 2) X(I32, 4) X(U32, 4) X(I64, 8) X(U64, 8)
typedef enum {
#define X(type, bytes) SX_ELEMENT_##type,
    SX_X64_ELEMENTS(X)
#undef X
        SX_ELEMENT_COUNT
} sx_x64_element;

/* clang-format off */
#define SX_X64_VARIANTS(X) \
    X(NO) X(ALL) X(ONE) X(ALIGNED) X(OVER) X(SCALED) X(NEAREST) X(TOWARD_ZERO) X(BY_IMMEDIATE) \
    X(O132) X(O213) X(O231) X(ONE_132) X(ONE_213) X(ONE_231) /* fused multiply-add: which operands are multiplied */ \
    X(ALWAYS) X(B) X(AE) X(E) X(NE) X(BE) X(A) X(S) X(NS) X(L) X(GE) X(LE) X(G) /* conditions */ \
    X(FIRST) X(SHUFFLE) X(LOW_PAIRS) X(HIGH_PAIRS) X(QUARTERS) X(HALVES) X(BLOCKS) X(HIGH_TO_LOW) X(ODD_TWICE) \
      X(CHOOSE) \
    X(EXTRACT_X) X(EXTRACT_Y) X(EXTRACT_1) X(INSERT_X) X(INSERT_Y) X(INSERT_1) X(INSERT_ZERO) \
    X(WITHIN) X(ACROSS) X(TWO_TABLES)
/* clang-format on */
typedef enum {
#define X(name) SX_VARIANT_##name,
    SX_X64_VARIANTS(X)
#undef X
        SX_VARIANT_COUNT
} sx_x64_variant;

/* What a mnemonic means: a sx_x64_micro, a sx_x64_element and a sx_x64_variant. */
typedef struct {
    uint8_t micro, element, variant;
} sx_x64_meaning;
/* By mnemonic. */
extern const sx_x64_meaning sx_x64_meanings[SX_X64_OP_COUNT];

/* Sizes relative to the vector length of the instruction: all of it, half, a quarter; or no memory but its address. */
enum { SX_REL_V = -1, SX_REL_H = -2, SX_REL_Q = -3, SX_ADDRESS = -4 };

/* An operand position of a row. */
typedef struct {
    /* A sx_x64_place. */
    uint8_t place;
    /* The sx_x64_kind that a register must have; SX_X64_NONE: there can be no register here. */
    uint8_t reg;
    /* SX_REL_*: the register is a vector of this share of the vector length, whatever `reg` is; 0: it is not. */
    int8_t rel;
    /* How many bytes a memory operand has, or SX_REL_* or SX_ADDRESS; 0: there can be no memory here. */
    int8_t mem;
    /* A sx_x64_imm_kind. */
    uint8_t imm;
} sx_x64_spec;

/* A row of ops.def, with its columns under their names; `op` is its mnemonic. */
typedef struct {
    uint16_t op;
    uint8_t encoding, map, pp, w, lengths, opcode;
    int8_t digit;
    /* For each operand the number of its position in sx_x64_specs. */
    uint8_t spec[SX_X64_ARG_MAX];
    uint8_t tuple, flags, nan;
} sx_x64_form;

extern const sx_x64_form sx_x64_forms[];
extern const uint32_t sx_x64_form_count;
extern const sx_x64_spec sx_x64_specs[];

const sx_x64_spec *sx_x64_form_spec(const sx_x64_form *form, uint32_t index);
uint32_t sx_x64_form_arg_count(const sx_x64_form *form);
/* What the processor must have: EVEX and the mask registers are AVX-512. */
sx_x64_level sx_x64_form_level(const sx_x64_form *form);
uint32_t sx_x64_form_first(sx_x64_op op); /* rows [first(op), first(op + 1)) */
/* Register class and memory bytes of a position at vector length 0 (128), 1 (256) or 2 (512). */
sx_x64_kind sx_x64_spec_reg(const sx_x64_spec *spec, uint32_t length);
uint32_t sx_x64_spec_mem(const sx_x64_spec *spec,
                         uint32_t length);               /* 0: no memory allowed or an address */
uint32_t sx_x64_form_broadcast(const sx_x64_form *form); /* element bytes, 0 none */
uint32_t sx_x64_form_disp_scale(const sx_x64_form *form, uint32_t length, bool broadcast);
/* Vector length of `insn` under `form`; false when the operands do not fit the row. */
bool sx_x64_form_match(const sx_x64_form *form, const sx_x64_insn *insn, uint32_t *length);
#endif
