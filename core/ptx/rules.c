/* rules.c - which modifiers of PTX go together: what the slots of a row cannot say one by one. */
#include "core/ptx/ptx.h"

typedef struct {
    const sx_ptx_insn *insn;
    sx_ptx_modifier type, type2, space, order, scope, vector, compare, combine, round, cache;
    uint32_t bytes; /* of the first type */
} form;

#define TYPE(name) (UINT32_C(1) << (SX_PTX_TYPE_##name - SX_PTX_TYPE_FIRST))
static const uint32_t unsigned_types = TYPE(U8) | TYPE(U16) | TYPE(U32) | TYPE(U64);
static const uint32_t signed_types = TYPE(S8) | TYPE(S16) | TYPE(S32) | TYPE(S64);
static const uint32_t bit_types = TYPE(B8) | TYPE(B16) | TYPE(B32) | TYPE(B64);
static const uint32_t float_types = TYPE(F16) | TYPE(BF16) | TYPE(F32) | TYPE(F64);

static bool in(sx_ptx_modifier type, uint32_t set)
{
    return type != SX_PTX_NO_MODIFIER && (set >> (type - SX_PTX_TYPE_FIRST) & 1) != 0;
}

static sx_ptx_modifier get(const sx_ptx_insn *insn, sx_ptx_class class_of, uint32_t nth)
{
    return sx_ptx_insn_modifier(insn, class_of, nth);
}

/* .relaxed and its like name a scope, others have none. */
static const char *order_misfit(const form *f)
{
    bool strong = f->order == SX_PTX_ORDER_RELAXED || f->order == SX_PTX_ORDER_ACQUIRE ||
                  f->order == SX_PTX_ORDER_RELEASE || f->order == SX_PTX_ORDER_ACQ_REL;
    if (strong != (f->scope != SX_PTX_NO_MODIFIER)) {
        return strong ? "an order without a scope" : "a scope without an order";
    }
    bool global = f->space == SX_PTX_NO_MODIFIER || f->space == SX_PTX_SPACE_GLOBAL;
    bool shared = f->space == SX_PTX_SPACE_SHARED || f->space == SX_PTX_SPACE_SHARED_CTA ||
                  f->space == SX_PTX_SPACE_SHARED_CLUSTER;
    bool weak = f->order == SX_PTX_NO_MODIFIER || f->order == SX_PTX_ORDER_WEAK;
    return !weak && !global && !shared ? "an order for memory of one thread" : NULL;
}

static const char *access_misfit(const form *f, bool load)
{
    const char *misfit = order_misfit(f);
    bool plain = f->order == SX_PTX_NO_MODIFIER || f->order == SX_PTX_ORDER_WEAK;
    bool global = f->space == SX_PTX_NO_MODIFIER || f->space == SX_PTX_SPACE_GLOBAL;
    bool nc = load && get(f->insn, SX_PTX_CLASS_NC, 0) != 0;
    bool l1 = get(f->insn, SX_PTX_CLASS_L1, 0) != 0;
    bool hint = get(f->insn, SX_PTX_CLASS_HINT, 0) != 0;
    bool fetch = load && get(f->insn, SX_PTX_CLASS_FETCH, 0) != 0;
    uint32_t count = f->vector == 0 ? 1 : sx_ptx_modifier_of(f->vector)->value;
    if (misfit != NULL) {
        return misfit;
    }
    if (f->bytes * count > 16) {
        return "more than 16 bytes";
    }
    if (!load && (f->space == SX_PTX_SPACE_CONST || f->space == SX_PTX_SPACE_PARAM)) {
        return "a store to constants or parameters";
    }
    bool store_cache = f->cache == SX_PTX_CACHE_WB || f->cache == SX_PTX_CACHE_WT;
    bool load_cache =
        f->cache == SX_PTX_CACHE_CA || f->cache == SX_PTX_CACHE_LU || f->cache == SX_PTX_CACHE_CV;
    if ((load && store_cache) || (!load && load_cache)) {
        return "a cache operator of the other direction";
    }
    if (nc && (f->order != SX_PTX_NO_MODIFIER || f->space != SX_PTX_SPACE_GLOBAL)) {
        return ".nc outside of .global";
    }
    if (f->cache != 0 && (f->order != 0 || l1)) {
        return "a cache operator beside an order or an L1 priority";
    }
    if ((l1 || hint || fetch) && !global) {
        return "cache hints outside of .global";
    }
    return (l1 || hint) && !plain && f->order == SX_PTX_ORDER_VOLATILE
               ? "hints on a volatile access"
               : NULL;
}

/* .ftz and .NaN of types that have them. */
static const char *float_misfit(const form *f)
{
    bool half = f->type == SX_PTX_TYPE_F16 || f->type == SX_PTX_TYPE_F16X2;
    bool brain = f->type == SX_PTX_TYPE_BF16 || f->type == SX_PTX_TYPE_BF16X2;
    bool ftz = get(f->insn, SX_PTX_CLASS_FTZ, 0) != 0;
    bool nan = get(f->insn, SX_PTX_CLASS_NAN, 0) != 0;
    if (ftz && f->type != SX_PTX_TYPE_F32 && !half) {
        return ".ftz of a type without it";
    }
    return nan && f->type != SX_PTX_TYPE_F32 && !half && !brain ? ".NaN of a type without it"
                                                                : NULL;
}

static const char *compare_misfit(const form *f)
{
    sx_ptx_modifier c = f->compare;
    bool equal = c == SX_PTX_COMPARE_EQ || c == SX_PTX_COMPARE_NE;
    bool ordered = c >= SX_PTX_COMPARE_LT && c <= SX_PTX_COMPARE_GE;
    bool natural = c >= SX_PTX_COMPARE_LO && c <= SX_PTX_COMPARE_HS;
    bool unordered = c >= SX_PTX_COMPARE_EQU && c <= SX_PTX_COMPARE_NAN;
    bool fits = equal || (ordered && !in(f->type, bit_types)) ||
                (natural && in(f->type, unsigned_types)) || (unordered && in(f->type, float_types));
    return fits ? float_misfit(f) : "a comparison of another type";
}

static const char *combine_misfit(const form *f)
{
    sx_ptx_modifier c = f->combine;
    bool wide = f->bytes == 8;
    bool integer = in(f->type, unsigned_types | signed_types);
    bool bits = in(f->type, bit_types);
    switch (c) {
    case SX_PTX_COMBINE_AND:
    case SX_PTX_COMBINE_OR:
    case SX_PTX_COMBINE_XOR: return bits ? NULL : "a bitwise operation of numbers";
    case SX_PTX_COMBINE_EXCH:
        return bits && f->insn->op == SX_PTX_OP_ATOM ? NULL : "an exchange of numbers";
    case SX_PTX_COMBINE_INC:
    case SX_PTX_COMBINE_DEC: return f->type == SX_PTX_TYPE_U32 ? NULL : "a count that is not .u32";
    case SX_PTX_COMBINE_ADD:
        return bits || f->type == SX_PTX_TYPE_S64 || (f->bytes == 2) ? "a sum of this type" : NULL;
    default: return integer || (wide && integer) ? NULL : "a smallest or largest of this type";
    }
}

static const char *atom_misfit(const form *f)
{
    bool strong = f->order == SX_PTX_ORDER_RELAXED || f->order == SX_PTX_ORDER_ACQUIRE ||
                  f->order == SX_PTX_ORDER_RELEASE || f->order == SX_PTX_ORDER_ACQ_REL;
    bool reduction = f->insn->op == SX_PTX_OP_RED;
    if (f->order != 0 && (!strong || (reduction && f->order != SX_PTX_ORDER_RELAXED &&
                                      f->order != SX_PTX_ORDER_RELEASE))) {
        return "an order that atomic operations do not have";
    }
    bool near = f->space == SX_PTX_SPACE_SHARED || f->space == SX_PTX_SPACE_SHARED_CTA ||
                f->space == SX_PTX_SPACE_SHARED_CLUSTER;
    if (f->space != 0 && !near && f->space != SX_PTX_SPACE_GLOBAL) {
        return "memory without atomic operations";
    }
    return f->insn->op == SX_PTX_OP_ATOM_CAS ? NULL : combine_misfit(f);
}

/* Are all values of the second type, an integer, values of the first? */
static bool contains(const form *f)
{
    uint32_t from = sx_ptx_type_bytes(f->insn, 1);
    bool to_signed = in(f->type, signed_types);
    return in(f->type2, signed_types) ? to_signed && f->bytes >= from
                                      : f->bytes > from || (f->bytes == from && !to_signed);
}

/* Rounding is said where a value may not fit, and nowhere else. */
static const char *rounding_misfit(const form *f)
{
    bool to_float = in(f->type, float_types);
    bool from_float = in(f->type2, float_types);
    bool integral = f->round >= SX_PTX_ROUND_RNI && f->round <= SX_PTX_ROUND_RPI;
    bool narrower = to_float && from_float && f->bytes < sx_ptx_type_bytes(f->insn, 1);
    if (!to_float) {
        return integral == from_float && (f->round == 0 || integral) ? NULL
                                                                     : "a rounding of another kind";
    }
    if (!from_float || narrower) {
        return f->round != 0 && !integral ? NULL : "a conversion to a float without its rounding";
    }
    return f->round == 0 || (integral && f->type == f->type2) ? NULL
                                                              : "a rounding that is not needed";
}

static const char *convert_misfit(const form *f)
{
    bool to_float = in(f->type, float_types);
    bool from_float = in(f->type2, float_types);
    bool brain = f->type == SX_PTX_TYPE_BF16;
    bool brain2 = f->type2 == SX_PTX_TYPE_BF16;
    bool saturates = get(f->insn, SX_PTX_CLASS_SAT, 0) != 0;
    bool relu = get(f->insn, SX_PTX_CLASS_RELU, 0) != 0;
    if ((brain && f->type2 != SX_PTX_TYPE_F32) || (brain2 && f->type != SX_PTX_TYPE_F32)) {
        return "bf16 and another type than f32";
    }
    if (get(f->insn, SX_PTX_CLASS_FTZ, 0) != 0 && f->type != SX_PTX_TYPE_F32 &&
        f->type2 != SX_PTX_TYPE_F32) {
        return ".ftz without .f32";
    }
    bool half = f->type == SX_PTX_TYPE_F16 || brain;
    bool nearest = f->round == SX_PTX_ROUND_RN || f->round == SX_PTX_ROUND_RZ;
    if (relu && (f->type2 != SX_PTX_TYPE_F32 || !half || !nearest || saturates)) {
        return ".relu of a conversion without it";
    }
    if (saturates && (brain || (!to_float && !from_float && contains(f)))) {
        return ".sat of a conversion without it";
    }
    return rounding_misfit(f);
}

const char *sx_ptx_modifiers_misfit(const sx_ptx_insn *insn)
{
    SX_ASSERT(insn != NULL);
    form f = {.insn = insn,
              .type = get(insn, SX_PTX_CLASS_TYPE, 0),
              .type2 = get(insn, SX_PTX_CLASS_TYPE, 1),
              .space = get(insn, SX_PTX_CLASS_SPACE, 0),
              .order = get(insn, SX_PTX_CLASS_ORDER, 0),
              .scope = get(insn, SX_PTX_CLASS_SCOPE, 0),
              .vector = get(insn, SX_PTX_CLASS_VECTOR, 0),
              .compare = get(insn, SX_PTX_CLASS_COMPARE, 0),
              .combine = get(insn, SX_PTX_CLASS_COMBINE, 0),
              .round = get(insn, SX_PTX_CLASS_ROUND, 0),
              .cache = get(insn, SX_PTX_CLASS_CACHE, 0),
              .bytes = sx_ptx_type_bytes(insn, 0)};
    switch ((sx_ptx_op)insn->op) {
    case SX_PTX_OP_LD: return access_misfit(&f, true);
    case SX_PTX_OP_ST: return access_misfit(&f, false);
    case SX_PTX_OP_ATOM:
    case SX_PTX_OP_ATOM_CAS:
    case SX_PTX_OP_RED: return atom_misfit(&f);
    case SX_PTX_OP_SETP:
    case SX_PTX_OP_SETP_JOIN: return compare_misfit(&f);
    case SX_PTX_OP_REDUX: return combine_misfit(&f);
    case SX_PTX_OP_MBARRIER_ARRIVE:
    case SX_PTX_OP_MBARRIER_ARRIVE_COUNT:
    case SX_PTX_OP_MBARRIER_ARRIVE_FAR:
    case SX_PTX_OP_MBARRIER_ARRIVE_TX:
    case SX_PTX_OP_MBARRIER_ARRIVE_TX_FAR:
    case SX_PTX_OP_MBARRIER_EXPECT_TX:
    case SX_PTX_OP_MBARRIER_TEST:
    case SX_PTX_OP_MBARRIER_TEST_PARITY:
    case SX_PTX_OP_MBARRIER_TRY:
    case SX_PTX_OP_MBARRIER_TRY_PARITY:
        return (f.order != 0) == (f.scope != 0) ? NULL
                                                : "an order without a scope, or a scope alone";
    case SX_PTX_OP_CVT: return convert_misfit(&f);
    default: return float_misfit(&f);
    }
}

/* ---- values of immediates ---- */
/* The immediate at this place; false: there is a register or nothing. */
static bool immediate(const sx_ptx_kernel *kernel, const sx_ptx_insn *insn, uint32_t index,
                      int64_t *value)
{
    *value = 0;
    if (index >= insn->arg_count || kernel->arg[insn->arg + index].kind != SX_PTX_ARG_IMMEDIATE) {
        return false;
    }
    *value = kernel->arg[insn->arg + index].value;
    return true;
}

/* Behind the predicate: factors 1 or -1 of A and B, then who is transposed, 0 or 1. */
static const char *wgmma_misfit(const sx_ptx_kernel *kernel, const sx_ptx_insn *insn)
{
    for (uint32_t i = 4; i < insn->arg_count; i++) {
        int64_t value;
        bool factor = i < 6;
        (void)immediate(kernel, insn, i, &value);
        if (factor ? value != 1 && value != -1 : value != 0 && value != 1) {
            return factor ? "a factor that is not 1 or -1" : "a transposition that is not 0 or 1";
        }
    }
    return NULL;
}

static const char *bulk_misfit(const sx_ptx_kernel *kernel, const sx_ptx_insn *insn)
{
    int64_t value;
    const sx_ptx_arg *arg = kernel->arg + insn->arg;
    if (get(insn, SX_PTX_CLASS_TENSOR, 0) == SX_PTX_NO_MODIFIER) {
        return immediate(kernel, insn, 2, &value) && (value <= 0 || value % 16 != 0)
                   ? "a copy that is no multiple of 16 bytes"
                   : NULL;
    }
    bool load = insn->op == SX_PTX_OP_CP_TENSOR_LOAD;
    return arg[load ? 1 : 0].value == 0 ? NULL : "a tensor map with an offset";
}

const char *sx_ptx_values_misfit(const sx_ptx_kernel *kernel, const sx_ptx_insn *insn)
{
    int64_t value;
    const sx_ptx_row *row = sx_ptx_row_of((sx_ptx_op)insn->op);
    switch ((sx_ptx_handler)row->handler) {
    case SX_PTX_RUN_BAR:
        if (immediate(kernel, insn, 0, &value) && (value < 0 || value > 15)) {
            return "a barrier outside of 0 to 15";
        }
        return immediate(kernel, insn, 1, &value) && (value < 32 || value % 32 != 0)
                   ? "a number of threads that is no multiple of 32"
                   : NULL;
    case SX_PTX_RUN_CP_ASYNC:
        (void)immediate(kernel, insn, 2, &value);
        if (get(insn, SX_PTX_CLASS_CACHE, 0) == SX_PTX_CACHE_CG) {
            return value == 16 ? NULL : "a copy past L1 that is not of 16 bytes";
        }
        return value == 4 || value == 8 || value == 16 ? NULL
                                                       : "a copy that is not of 4, 8 or 16 bytes";
    case SX_PTX_RUN_CP_WAIT:
        return immediate(kernel, insn, 0, &value) && value < 0 ? "a negative number of groups"
                                                               : NULL;
    case SX_PTX_RUN_MBARRIER:
        return get(insn, SX_PTX_CLASS_PARITY, 0) != 0 && immediate(kernel, insn, 2, &value) &&
                       value != 0 && value != 1
                   ? "a parity that is not 0 or 1"
                   : NULL;
    case SX_PTX_RUN_BULK: return bulk_misfit(kernel, insn);
    case SX_PTX_RUN_ELECT:
        return kernel->arg[insn->arg].count != 0 ? NULL : "no predicate beside the result";
    case SX_PTX_RUN_POLICY:
        return insn->arg_count < 2 || kernel->arg[insn->arg + 1].kind == SX_PTX_ARG_REGISTER ||
                       kernel->arg[insn->arg + 1].form == SX_PTX_F32_BITS
                   ? NULL
                   : "a fraction that is no float";
    case SX_PTX_RUN_SETMAXNREG:
        (void)immediate(kernel, insn, 0, &value);
        return value >= 24 && value <= 256 && value % 8 == 0
                   ? NULL
                   : "a number of registers that is no multiple of 8 from 24 to 256";
    case SX_PTX_RUN_BULK_GROUP:
    case SX_PTX_RUN_WGMMA_GROUP:
        return immediate(kernel, insn, 0, &value) && (value < 0 || value > 7)
                   ? "a number of groups outside of 0 to 7"
                   : NULL;
    case SX_PTX_RUN_WGMMA: return wgmma_misfit(kernel, insn);
    case SX_PTX_RUN_LOP3:
        (void)immediate(kernel, insn, 4, &value);
        return value >= 0 && value <= 255 ? NULL : "a table outside of 0 to 255";
    default: return NULL;
    }
}
