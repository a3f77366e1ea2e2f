/* check.c - whether arguments fit the row of their instruction, and a module its version and target. */
#include "core/ptx/ptx.h"

#include <inttypes.h>
#include <string.h>

/* ---- arguments ---- */
typedef struct {
    const sx_ptx_module *module;
    const sx_ptx_kernel *kernel;
} owner;

/* A register of this class (or larger, where `wider`), within those of the kernel. */
static const char *register_misfit(const sx_ptx_kernel *kernel, const sx_ptx_arg *arg,
                                   sx_ptx_register_class class_of, const sx_ptx_operand *operand)
{
    if (arg->form >= SX_PTX_REGISTER_CLASSES || arg->id >= kernel->register_count[arg->form]) {
        return "a register that is not declared";
    }
    if (arg->negated && (operand->flags & SX_PTX_OR_NEGATED) == 0) {
        return "a negated predicate";
    }
    if (arg->count != 0) {
        if ((operand->flags & SX_PTX_OR_PAIR) == 0) {
            return "a second result";
        }
        if (arg->count - 1 >= kernel->register_count[SX_PTX_PRED]) {
            return "a predicate that is not declared";
        }
    }
    bool wider = (operand->flags & SX_PTX_OR_WIDER) != 0 && class_of != SX_PTX_PRED &&
                 arg->form > (uint8_t)class_of;
    return arg->form == (uint8_t)class_of || wider ? NULL : "a register of another size";
}

/* The element type that the operand is of; 0: it is of no type. */
static sx_ptx_modifier operand_type(const sx_ptx_operand *operand, const sx_ptx_insn *insn)
{
    bool first = operand->class_of == SX_PTX_BY_TYPE1;
    bool second = operand->class_of == SX_PTX_BY_TYPE2;
    return first || second ? sx_ptx_insn_modifier(insn, SX_PTX_CLASS_TYPE, second ? 1 : 0)
                           : SX_PTX_NO_MODIFIER;
}

/* Does the immediate fit registers of the class, and the type? */
static const char *immediate_misfit(const sx_ptx_arg *arg, sx_ptx_register_class class_of,
                                    sx_ptx_modifier type)
{
    bool small = (type >= SX_PTX_TYPE_F16 && type <= SX_PTX_TYPE_BF16X2) ||
                 type == SX_PTX_TYPE_E4M3X2 || type == SX_PTX_TYPE_E5M2X2;
    bool f32 = arg->form == SX_PTX_F32_BITS;
    bool f64 = arg->form == SX_PTX_F64_BITS;
    if (small || (type == SX_PTX_TYPE_F32 && !f32) || (type == SX_PTX_TYPE_F64 && !f64)) {
        return "a constant of another type";
    }
    if (f32 || f64) {
        return class_of == (f32 ? SX_PTX_B32 : SX_PTX_B64) ? NULL
                                                           : "a float constant of another size";
    }
    uint32_t bits = 8 * sx_ptx_class_bytes(class_of);
    if (bits == 64) {
        return NULL;
    }
    int64_t most = bits == 0 ? 1 : (INT64_C(1) << bits) - 1;
    int64_t least = bits == 0 ? 0 : -(INT64_C(1) << (bits - 1));
    return arg->value >= least && arg->value <= most ? NULL : "a constant out of range";
}

static const char *symbol_misfit(const owner *of, const sx_ptx_arg *arg)
{
    uint32_t count = arg->form == SX_PTX_PARAMETER         ? of->kernel->parameter_count
                     : arg->form == SX_PTX_KERNEL_VARIABLE ? of->kernel->variable_count
                                                           : of->module->variable_count;
    return arg->id < count ? NULL : "a variable that is not declared";
}

static const char *one_misfit(const owner *of, const sx_ptx_insn *insn, const sx_ptx_arg *arg,
                              sx_ptx_register_class class_of, const sx_ptx_operand *operand)
{
    if ((operand->flags & SX_PTX_ONLY_SINK) != 0 && arg->kind != SX_PTX_ARG_SINK) {
        return "a result where there is none";
    }
    switch ((sx_ptx_arg_kind)arg->kind) {
    case SX_PTX_ARG_REGISTER: return register_misfit(of->kernel, arg, class_of, operand);
    case SX_PTX_ARG_IMMEDIATE:
        return (operand->flags & SX_PTX_OR_IMMEDIATE) != 0
                   ? immediate_misfit(arg, class_of, operand_type(operand, insn))
                   : "a constant";
    case SX_PTX_ARG_SPECIAL:
        return (operand->flags & SX_PTX_OR_SPECIAL) != 0 && arg->id < SX_PTX_SPECIAL_COUNT &&
                       sx_ptx_class_of_bytes(sx_ptx_special_of((sx_ptx_special)arg->id)->bytes) ==
                           class_of
                   ? NULL
                   : "a special register";
    case SX_PTX_ARG_SYMBOL:
        return (operand->flags & SX_PTX_OR_SYMBOL) != 0 ? symbol_misfit(of, arg)
                                                        : "the address of a variable";
    case SX_PTX_ARG_SINK: return (operand->flags & SX_PTX_WRITTEN) != 0 ? NULL : "_";
    default: return "an operand of another kind";
    }
}

static const char *vector_misfit(const owner *of, const sx_ptx_insn *insn, const sx_ptx_arg *arg,
                                 uint32_t count, sx_ptx_register_class class_of,
                                 const sx_ptx_operand *operand)
{
    if (arg->kind != SX_PTX_ARG_VECTOR || arg->count != count || arg->id > of->kernel->arg_count ||
        count > of->kernel->arg_count - arg->id) {
        return "no vector of the right length";
    }
    if ((arg->form != 0) != ((operand->flags & SX_PTX_WITHIN) != 0)) {
        return "a vector on the other side of a bracket";
    }
    for (uint32_t i = 0; i < count; i++) {
        const char *misfit = one_misfit(of, insn, &of->kernel->arg[arg->id + i], class_of, operand);
        if (misfit != NULL) {
            return misfit;
        }
    }
    return NULL;
}

static const char *memory_misfit(const owner *of, const sx_ptx_arg *arg)
{
    if (arg->kind != SX_PTX_ARG_MEMORY) {
        return "no address in brackets";
    }
    if (arg->base == SX_PTX_ARG_REGISTER) {
        bool address = arg->form == SX_PTX_B32 || arg->form == SX_PTX_B64;
        return address && arg->id < of->kernel->register_count[arg->form]
                   ? NULL
                   : "an address in a register of another size";
    }
    return arg->base == SX_PTX_ARG_SYMBOL ? symbol_misfit(of, arg) : NULL;
}

/* {a, b} or {a, b, c, d}, together as large as an element. */
static const char *halves_misfit(const owner *of, const sx_ptx_insn *insn, const sx_ptx_arg *arg,
                                 uint32_t bytes, const sx_ptx_operand *operand)
{
    if (arg->kind != SX_PTX_ARG_VECTOR || (arg->count != 2 && arg->count != 4) ||
        bytes / arg->count < 2) {
        return "no vector of two or four parts";
    }
    return vector_misfit(of, insn, arg, arg->count, sx_ptx_class_of_bytes(bytes / arg->count),
                         operand);
}

static const char *arg_misfit(const owner *of, const sx_ptx_insn *insn,
                              const sx_ptx_operand *operand, const sx_ptx_arg *arg)
{
    sx_ptx_register_class class_of = sx_ptx_operand_class(operand, insn);
    sx_ptx_modifier count = SX_PTX_NO_MODIFIER;
    switch ((sx_ptx_takes)operand->takes) {
    case SX_PTX_TAKES_REGISTER: return one_misfit(of, insn, arg, class_of, operand);
    case SX_PTX_TAKES_VECTOR:
        return vector_misfit(of, insn, arg, operand->count, class_of, operand);
    case SX_PTX_TAKES_COUNTED:
        return vector_misfit(of, insn, arg, sx_ptx_counted(insn), class_of, operand);
    case SX_PTX_TAKES_ELEMENTS:
        count = sx_ptx_insn_modifier(insn, SX_PTX_CLASS_VECTOR, 0);
        return count == SX_PTX_NO_MODIFIER
                   ? one_misfit(of, insn, arg, class_of, operand)
                   : vector_misfit(of, insn, arg, sx_ptx_modifier_of(count)->value, class_of,
                                   operand);
    case SX_PTX_TAKES_HALVES:
        return halves_misfit(of, insn, arg, sx_ptx_type_bytes(insn, 0), operand);
    case SX_PTX_TAKES_MEMORY: return memory_misfit(of, arg);
    case SX_PTX_TAKES_LABEL:
        return arg->kind == SX_PTX_ARG_LABEL && arg->id < of->kernel->label_count ? NULL
                                                                                  : "no label";
    case SX_PTX_TAKES_IMMEDIATE:
        return arg->kind == SX_PTX_ARG_IMMEDIATE
                   ? immediate_misfit(arg, SX_PTX_B32, SX_PTX_NO_MODIFIER)
                   : "no constant";
    default: SX_UNREACHABLE();
    }
}

static bool has_modifier(const sx_ptx_insn *insn, uint16_t modifier)
{
    for (uint32_t s = 0; s < SX_PTX_SLOTS_MAX; s++) {
        if (insn->modifier[s] == modifier) {
            return true;
        }
    }
    return false;
}

uint32_t sx_ptx_operands_of(const sx_ptx_insn *insn, uint8_t operand[SX_PTX_OPERANDS_MAX])
{
    const sx_ptx_row *row = sx_ptx_row_of((sx_ptx_op)insn->op);
    uint32_t wanted[SX_PTX_OPERANDS_MAX];
    uint32_t count = 0;
    uint32_t certain = 0;
    for (uint32_t o = 0; o < sx_ptx_row_operands(row); o++) {
        if (row->operand[o].when == 0 || has_modifier(insn, row->operand[o].when)) {
            wanted[count++] = o;
            certain += (row->operand[o].flags & SX_PTX_OR_ABSENT) == 0;
        }
    }
    /* Those that may be absent are there as far as there are arguments for them, the first ones first. */
    uint32_t spare = insn->arg_count > certain ? insn->arg_count - certain : 0;
    uint32_t taken = 0;
    for (uint32_t w = 0; w < count; w++) {
        bool may = (row->operand[wanted[w]].flags & SX_PTX_OR_ABSENT) != 0;
        if (!may || spare > 0) {
            operand[taken++] = (uint8_t)wanted[w];
            spare -= may;
        }
    }
    return taken;
}

const char *sx_ptx_args_misfit(const sx_ptx_module *module, const sx_ptx_kernel *kernel,
                               const sx_ptx_insn *insn)
{
    const owner of = {module, kernel};
    const sx_ptx_row *row = sx_ptx_row_of((sx_ptx_op)insn->op);
    if (insn->arg > kernel->arg_count || insn->arg_count > kernel->arg_count - insn->arg) {
        return "arguments outside the kernel";
    }
    if (insn->guarded && insn->guard >= kernel->register_count[SX_PTX_PRED]) {
        return "a guard that is not declared";
    }
    uint8_t operand[SX_PTX_OPERANDS_MAX];
    uint32_t count = sx_ptx_operands_of(insn, operand);
    if (count != insn->arg_count) {
        return count > insn->arg_count ? "too few operands" : "too many operands";
    }
    for (uint32_t a = 0; a < count; a++) {
        const char *misfit =
            arg_misfit(&of, insn, &row->operand[operand[a]], &kernel->arg[insn->arg + a]);
        if (misfit != NULL) {
            return misfit;
        }
    }
    return sx_ptx_values_misfit(kernel, insn);
}

/* ---- versions and targets ---- */
static void raise_to(uint16_t *value, uint16_t least)
{
    uint16_t specific = (uint16_t)((*value | least) & SX_PTX_SPECIFIC);
    uint16_t number = (uint16_t)(*value & ~SX_PTX_SPECIFIC);
    uint16_t other = (uint16_t)(least & ~SX_PTX_SPECIFIC);
    *value = (uint16_t)((number > other ? number : other) | specific);
}

/* The version of words that are older, each by itself, than their use together: the notes of "PTX ISA". */
static uint16_t floor_of_words(const sx_ptx_insn *insn)
{
    sx_ptx_modifier second = sx_ptx_insn_modifier(insn, SX_PTX_CLASS_TYPE, 1);
    switch ((sx_ptx_op)insn->op) {
    case SX_PTX_OP_CVT: return second == SX_PTX_TYPE_BF16 ? 71 : 0;
    case SX_PTX_OP_BAR_SYNC:
    case SX_PTX_OP_BAR_ARRIVE:
    case SX_PTX_OP_BARRIER_SYNC:
    case SX_PTX_OP_BARRIER_ARRIVE:
        return sx_ptx_insn_modifier(insn, SX_PTX_CLASS_SCOPE, 0) != SX_PTX_NO_MODIFIER ? 78 : 0;
    case SX_PTX_OP_WGMMA_INT8:
    case SX_PTX_OP_WGMMA_INT8_REGISTERS:
        return second != sx_ptx_insn_modifier(insn, SX_PTX_CLASS_TYPE, 2) ? 84 : 0;
    default: return 0;
    }
}

void sx_ptx_floor(const sx_ptx_insn *insn, const sx_ptx_kernel *kernel, uint16_t *version,
                  uint16_t *target)
{
    const sx_ptx_row *row = sx_ptx_row_of((sx_ptx_op)insn->op);
    raise_to(version, row->version);
    raise_to(target, row->target);
    for (uint32_t s = 0; s < SX_PTX_SLOTS_MAX; s++) {
        if (insn->modifier[s] != 0) {
            const sx_ptx_modifier_row *m = sx_ptx_modifier_of((sx_ptx_modifier)insn->modifier[s]);
            raise_to(version, m->version);
            raise_to(target, m->target);
        }
    }
    bool barrier =
        row->handler == SX_PTX_RUN_MBARRIER || row->handler == SX_PTX_RUN_CLUSTER_BARRIER;
    if (barrier && sx_ptx_insn_modifier(insn, SX_PTX_CLASS_ORDER, 0) != SX_PTX_NO_MODIFIER) {
        raise_to(version, 80);
    }
    raise_to(version, floor_of_words(insn));
    for (uint32_t a = 0; a < insn->arg_count; a++) {
        const sx_ptx_arg *arg = &kernel->arg[insn->arg + a];
        if (arg->kind == SX_PTX_ARG_SPECIAL) {
            const sx_ptx_special_row *special = sx_ptx_special_of((sx_ptx_special)arg->id);
            raise_to(version, special->version);
            raise_to(target, special->target);
        }
    }
}

/* ---- modules ---- */
static sx_code refuse(sx_ctx *cx, const sx_ptx_kernel *kernel, const sx_ptx_insn *insn,
                      const char *why)
{
    sx_buf text;
    sx_buf_init(&text, 4096);
    sx_buf_print(&text, "%s", sx_ptx_row_of((sx_ptx_op)insn->op)->text);
    for (uint32_t s = 0; s < SX_PTX_SLOTS_MAX; s++) {
        if (insn->modifier[s] != 0) {
            sx_buf_put_text(&text, sx_ptx_modifier_of((sx_ptx_modifier)insn->modifier[s])->text);
        }
    }
    sx_span shown = sx_buf_span(&text);
    sx_code code =
        SX_FAIL(cx, SX_INPUT, "kernel %s, instruction %u, %.*s: %s", kernel->name,
                (unsigned)(insn - kernel->insn), (int)shown.len, (const char *)shown.ptr, why);
    sx_buf_fini(&text);
    return code;
}

static sx_code check_insn(sx_ctx *cx, const sx_ptx_module *module, const sx_ptx_kernel *kernel,
                          const sx_ptx_insn *insn)
{
    if (insn->op >= SX_PTX_OP_COUNT) {
        return SX_FAIL(cx, SX_INPUT, "kernel %s, instruction %u: no such operation", kernel->name,
                       (unsigned)(insn - kernel->insn));
    }
    uint16_t slot[SX_PTX_SLOTS_MAX];
    uint16_t given[SX_PTX_SLOTS_MAX];
    uint32_t given_count = 0;
    for (uint32_t s = 0; s < SX_PTX_SLOTS_MAX; s++) {
        if (insn->modifier[s] != 0) {
            given[given_count++] = insn->modifier[s];
        }
    }
    const sx_ptx_row *row = sx_ptx_row_of((sx_ptx_op)insn->op);
    if (!sx_ptx_row_takes(row, given, given_count, false, slot) ||
        memcmp(slot, insn->modifier, sizeof(slot)) != 0) {
        return refuse(cx, kernel, insn, "modifiers that do not belong together");
    }
    const char *misfit = sx_ptx_modifiers_misfit(insn);
    misfit = misfit != NULL ? misfit : sx_ptx_args_misfit(module, kernel, insn);
    if (misfit != NULL) {
        return refuse(cx, kernel, insn, misfit);
    }
    uint16_t version = module->version;
    uint16_t target = (uint16_t)(module->target | (module->feature == 'a' ? SX_PTX_SPECIFIC : 0));
    sx_ptx_floor(insn, kernel, &version, &target);
    if (version > module->version) {
        return refuse(cx, kernel, insn, "it needs a later PTX version than the module's");
    }
    bool same = target == (module->target | (module->feature == 'a' ? SX_PTX_SPECIFIC : 0));
    return same ? SX_OK : refuse(cx, kernel, insn, "the target of the module lacks it");
}

static sx_code check_variable(sx_ctx *cx, const char *of, const sx_ptx_variable *variable)
{
    bool align = (variable->align & (variable->align - 1)) == 0;
    if (!align || (variable->count == 0) != variable->external ||
        variable->count > (UINT64_C(1) << 40)) {
        return SX_FAIL(cx, SX_INPUT, "%s: variable %s: alignment %" PRIu32 ", %" PRIu64 " elements",
                       of, variable->name, variable->align, variable->count);
    }
    return SX_OK;
}

static sx_code check_kernel(sx_ctx *cx, const sx_ptx_module *module, const sx_ptx_kernel *kernel)
{
    for (uint32_t v = 0; v < kernel->parameter_count; v++) {
        SX_TRY(check_variable(cx, kernel->name, &kernel->parameter[v]));
    }
    for (uint32_t v = 0; v < kernel->variable_count; v++) {
        SX_TRY(check_variable(cx, kernel->name, &kernel->variable[v]));
    }
    for (uint32_t l = 0; l < kernel->label_count; l++) {
        if (kernel->label[l] > kernel->insn_count) {
            return SX_FAIL(cx, SX_INPUT, "kernel %s: label %" PRIu32 " is nowhere", kernel->name,
                           l);
        }
        if (kernel->label[l] == kernel->insn_count) {
            return SX_FAIL(cx, SX_INPUT, "kernel %s: label %" PRIu32 " stands behind the end",
                           kernel->name, l);
        }
    }
    for (uint32_t i = 0; i < kernel->insn_count; i++) {
        SX_TRY(check_insn(cx, module, kernel, &kernel->insn[i]));
    }
    bool ends = false;
    if (kernel->insn_count != 0) {
        const sx_ptx_insn *last = &kernel->insn[kernel->insn_count - 1];
        ends =
            !last->guarded && (sx_ptx_row_of((sx_ptx_op)last->op)->effects & SX_PTX_DOES_END) != 0;
    }
    return ends ? SX_OK : SX_FAIL(cx, SX_INPUT, "kernel %s runs over its end", kernel->name);
}

sx_code sx_ptx_check(sx_ctx *cx, const sx_ptx_module *module)
{
    SX_ASSERT(cx != NULL && module != NULL);
    if (module->version < 70 || module->version > 90) {
        return SX_FAIL(cx, SX_INPUT, "PTX version %u.%u, known are 7.0 to 9.0",
                       module->version / 10U, module->version % 10U);
    }
    for (uint32_t v = 0; v < module->variable_count; v++) {
        SX_TRY(check_variable(cx, "module", &module->variable[v]));
    }
    for (uint32_t k = 0; k < module->kernel_count; k++) {
        SX_TRY(check_kernel(cx, module, &module->kernel[k]));
    }
    return SX_OK;
}
