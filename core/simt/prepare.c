/* prepare.c - instructions as micro-operations: operands become indices of words, modifiers become fields. */
#include <string.h>

#include "core/simt/machine.h"

static uint64_t class_mask(sx_ptx_register_class class_of)
{
    switch (class_of) {
    case SX_PTX_PRED: return 1;
    case SX_PTX_B16: return UINT16_MAX;
    case SX_PTX_B32: return UINT32_MAX;
    case SX_PTX_B64: return UINT64_MAX;
    case SX_PTX_REGISTER_CLASSES:
    case SX_PTX_BY_TYPE2:
    case SX_PTX_BY_TYPE1_TWICE: break;
    }
    SX_UNREACHABLE();
}

/* ---- words ---- */
static sx_code add_word(sx_ptx_machine *m, uint32_t word)
{
    SX_TRY(
        sx_grow(m->cx, (void **)&m->word, &m->word_capacity, m->word_count + 1, sizeof *m->word));
    m->word[m->word_count++] = word;
    return SX_OK;
}

/* The constant in all lanes. Equal ones are often near each other. */
static sx_code add_constant(sx_ptx_machine *m, uint64_t value, uint32_t *word)
{
    const uint32_t looked_back = 64;
    for (uint32_t back = 1; back <= looked_back && back <= m->constant_count; back++) {
        if (m->constant[m->constant_count - back].lane[0] == value) {
            *word = SX_PTX_CONSTANT | (m->constant_count - back);
            return SX_OK;
        }
    }
    SX_TRY(sx_grow(m->cx, (void **)&m->constant, &m->constant_capacity, m->constant_count + 1,
                   sizeof *m->constant));
    for (uint32_t lane = 0; lane < SX_PTX_LANES; lane++) {
        m->constant[m->constant_count].lane[lane] = value;
    }
    *word = SX_PTX_CONSTANT | m->constant_count++;
    return SX_OK;
}

static uint32_t register_word(const sx_ptx_machine *m, uint32_t class_of, uint32_t id)
{
    SX_ASSERT(class_of < SX_PTX_REGISTER_CLASSES && id < m->kernel->register_count[class_of]);
    return m->class_first[class_of] + id;
}

static uint64_t symbol_address(const sx_ptx_machine *m, uint32_t scope, uint32_t id)
{
    switch ((sx_ptx_scope)scope) {
    case SX_PTX_PARAMETER: return m->parameter_offset[id];
    case SX_PTX_KERNEL_VARIABLE: return m->kernel_address[id];
    case SX_PTX_MODULE_VARIABLE: return m->module_address[id];
    }
    SX_UNREACHABLE();
}

static sx_code word_of(sx_ptx_machine *m, const sx_ptx_arg *arg, sx_ptx_register_class class_of,
                       uint32_t *word)
{
    switch ((sx_ptx_arg_kind)arg->kind) {
    case SX_PTX_ARG_REGISTER: *word = register_word(m, arg->form, arg->id); return SX_OK;
    case SX_PTX_ARG_SINK: *word = m->sink; return SX_OK;
    case SX_PTX_ARG_SPECIAL: *word = arg->id; return SX_OK;
    case SX_PTX_ARG_IMMEDIATE:
        return add_constant(m, (uint64_t)arg->value & class_mask(class_of), word);
    case SX_PTX_ARG_SYMBOL: {
        uint64_t address = symbol_address(m, arg->form, arg->id) + (uint64_t)arg->value;
        return add_constant(m, address & class_mask(class_of), word);
    }
    case SX_PTX_ARG_NONE:
    case SX_PTX_ARG_MEMORY:
    case SX_PTX_ARG_VECTOR:
    case SX_PTX_ARG_LABEL: break;
    }
    SX_UNREACHABLE();
}

/* The class of the parts of a larger register. */
static sx_ptx_register_class element_class(const sx_ptx_operand *operand, const sx_ptx_insn *insn,
                                           uint32_t count)
{
    sx_ptx_register_class whole = sx_ptx_operand_class(operand, insn);
    return operand->takes == SX_PTX_TAKES_HALVES
               ? sx_ptx_class_of_bytes(sx_ptx_class_bytes(whole) / count)
               : whole;
}

static sx_code prepare_arg(sx_ptx_machine *m, const sx_ptx_insn *insn,
                           const sx_ptx_operand *operand, const sx_ptx_arg *arg, sx_ptx_micro *u,
                           uint32_t *addresses)
{
    uint8_t *count = (operand->flags & SX_PTX_WRITTEN) != 0 ? &u->result_count : &u->operand_count;
    uint32_t word;
    if (arg->kind == SX_PTX_ARG_MEMORY) {
        SX_ASSERT(*addresses < SX_COUNT(u->address));
        sx_ptx_arg base = {.kind = arg->base, .form = arg->form, .id = arg->id};
        u->offset[*addresses] = arg->value;
        SX_TRY(word_of(m, &base, SX_PTX_B64, &u->address[*addresses]));
        *addresses += 1;
        return SX_OK;
    }
    if (arg->kind == SX_PTX_ARG_LABEL) {
        u->target = m->kernel->label[arg->id];
        return SX_OK;
    }
    if (arg->kind == SX_PTX_ARG_VECTOR) {
        for (uint32_t i = 0; i < arg->count; i++) {
            SX_TRY(word_of(m, &m->kernel->arg[arg->id + i],
                           element_class(operand, insn, arg->count), &word));
            SX_TRY(add_word(m, word));
            *count += 1;
        }
        return SX_OK;
    }
    SX_TRY(word_of(m, arg, sx_ptx_operand_class(operand, insn), &word));
    SX_TRY(add_word(m, word));
    *count += 1;
    if (arg->count > 0) { // d|p
        SX_TRY(add_word(m, register_word(m, SX_PTX_PRED, arg->count - 1)));
        *count += 1;
    }
    return SX_OK;
}

/* ---- fields ---- */
static bool is_signed(sx_ptx_modifier type)
{
    return type == SX_PTX_TYPE_S8 || type == SX_PTX_TYPE_S16 || type == SX_PTX_TYPE_S32;
}

static void prepare_access(const sx_ptx_machine *m, const sx_ptx_insn *insn, sx_ptx_micro *u)
{
    sx_ptx_modifier order = sx_ptx_insn_modifier(insn, SX_PTX_CLASS_ORDER, 0);
    sx_ptx_modifier vector = sx_ptx_insn_modifier(insn, SX_PTX_CLASS_VECTOR, 0);
    u->space = (uint16_t)sx_ptx_insn_modifier(insn, SX_PTX_CLASS_SPACE, 0);
    if (u->space == SX_PTX_SPACE_SHARED_CTA) {
        u->space = SX_PTX_SPACE_SHARED;
    }
    u->strong = u->handler == SX_PTX_RUN_ATOM || (order != 0 && order != SX_PTX_ORDER_WEAK);
    u->constant = sx_ptx_insn_modifier(insn, SX_PTX_CLASS_NC, 0) != 0;
    u->element_bytes = (uint8_t)sx_ptx_type_bytes(insn, 0);
    u->elements = vector == 0 ? 1 : (uint8_t)sx_ptx_modifier_of(vector)->value;
    u->extends = is_signed(sx_ptx_insn_modifier(insn, SX_PTX_CLASS_TYPE, 0));
    if (u->handler == SX_PTX_RUN_LD && insn->arg_count > 0) {
        const sx_ptx_arg *to = &m->kernel->arg[insn->arg];
        if (to->kind == SX_PTX_ARG_VECTOR) {
            to = &m->kernel->arg[to->id];
        }
        u->result_bytes =
            to->kind == SX_PTX_ARG_REGISTER ? (uint8_t)sx_ptx_class_bytes(to->form) : 8;
    }
}

static bool is_together(uint8_t handler)
{
    return handler == SX_PTX_RUN_SHFL || handler == SX_PTX_RUN_VOTE ||
           handler == SX_PTX_RUN_REDUX || handler == SX_PTX_RUN_BAR_WARP ||
           handler == SX_PTX_RUN_LDMATRIX || handler == SX_PTX_RUN_STMATRIX ||
           handler == SX_PTX_RUN_MMA || handler == SX_PTX_RUN_BAR || handler == SX_PTX_RUN_ELECT ||
           handler == SX_PTX_RUN_WGMMA || handler == SX_PTX_RUN_WGMMA_GROUP ||
           handler == SX_PTX_RUN_SETMAXNREG;
}

/* Barriers of the cluster are for whole warps where they say so. */
static bool is_aligned_barrier(const sx_ptx_insn *insn, uint8_t handler)
{
    return handler == SX_PTX_RUN_CLUSTER_BARRIER &&
           sx_ptx_insn_modifier(insn, SX_PTX_CLASS_ALIGNED, 0) != 0;
}

static sx_code prepare_insn(sx_ptx_machine *m, uint32_t index)
{
    const sx_ptx_insn *insn = &m->kernel->insn[index];
    const sx_ptx_row *row = sx_ptx_row_of((sx_ptx_op)insn->op);
    sx_ptx_micro *u = &m->micro[index];
    uint8_t operand[SX_PTX_OPERANDS_MAX];
    uint32_t count = sx_ptx_operands_of(insn, operand);
    uint32_t addresses = 0;
    SX_ASSERT(count == insn->arg_count);
    u->handler = row->handler;
    u->together = is_together(row->handler) || is_aligned_barrier(insn, row->handler);
    u->guard = SX_PTX_NO_WORD;
    u->word = m->word_count;
    if (insn->guarded) {
        u->guard = register_word(m, SX_PTX_PRED, insn->guard);
        u->guard_negated = insn->guard_negated;
    }
    /* Results stand before operands in every row, but for the address of a store, which has no word. */
    for (uint32_t i = 0; i < count; i++) {
        SX_TRY(prepare_arg(m, insn, &row->operand[operand[i]], &m->kernel->arg[insn->arg + i], u,
                           &addresses));
    }
    u->address_count = (uint8_t)addresses;
    SX_ASSERT(u->result_count + u->operand_count <= SX_PTX_WORDS_MAX);
    prepare_access(m, insn, u);
    m->multiplies =
        m->multiplies || u->handler == SX_PTX_RUN_WGMMA || u->handler == SX_PTX_RUN_WGMMA_GROUP;
    m->tracks = m->tracks || m->multiplies || u->handler == SX_PTX_RUN_MBARRIER ||
                u->handler == SX_PTX_RUN_CLUSTER_BARRIER || u->handler == SX_PTX_RUN_BULK ||
                u->handler == SX_PTX_RUN_FENCE_PROXY || m->block_count > 1;
    u->computes = sx_ptx_alu_of(m->kernel, insn, &u->alu);
    SX_ASSERT(!u->computes || u->alu.run != NULL);
    return SX_OK;
}

/* ---- shared memory ---- */
#define CELL_SHIFT_MAX 4

/* The largest power of two that divides the bytes of each access of the instruction to shared memory. */
static uint32_t cell_shift_of(const sx_ptx_machine *m, const sx_ptx_micro *u)
{
    bool shared =
        u->space == 0 || u->space == SX_PTX_SPACE_SHARED || u->space == SX_PTX_SPACE_SHARED_CLUSTER;
    uint32_t size = 1U << CELL_SHIFT_MAX;
    if (u->handler == SX_PTX_RUN_CP_ASYNC) {
        uint32_t word = m->word[u->word + u->result_count];
        size = (word & SX_PTX_CONSTANT) != 0
                   ? (uint32_t)m->constant[word & ~SX_PTX_CONSTANT].lane[0]
                   : 4;
    } else if (shared && (u->handler == SX_PTX_RUN_LD || u->handler == SX_PTX_RUN_ST ||
                          u->handler == SX_PTX_RUN_ATOM)) {
        size = (uint32_t)u->element_bytes * u->elements;
    } else if (u->handler == SX_PTX_RUN_MBARRIER) {
        size = 8;
    }
    SX_ASSERT(size > 0);
    uint32_t shift = (uint32_t)__builtin_ctz(size);
    return shift < CELL_SHIFT_MAX ? shift : CELL_SHIFT_MAX;
}

/* Accesses lie at multiples of their size, so that one takes a cell wholly. Those of
 * engines are 16 bytes, mbarriers 8. */
static void choose_cells(sx_ptx_machine *m)
{
    m->cell_shift = CELL_SHIFT_MAX;
    for (uint32_t i = 0; i < m->kernel->insn_count && m->cell_shift > 0; i++) {
        uint32_t shift = cell_shift_of(m, &m->micro[i]);
        m->cell_shift = shift < m->cell_shift ? shift : m->cell_shift;
    }
}

/* ---- variables ---- */
static bool names(const sx_ptx_machine *m, sx_ptx_scope scope, uint32_t id)
{
    for (uint32_t i = 0; i < m->kernel->arg_count; i++) {
        const sx_ptx_arg *arg = &m->kernel->arg[i];
        bool symbol = arg->kind == SX_PTX_ARG_SYMBOL ||
                      (arg->kind == SX_PTX_ARG_MEMORY && arg->base == SX_PTX_ARG_SYMBOL);
        if (symbol && arg->form == scope && arg->id == id) {
            return true;
        }
    }
    return false;
}

static uint64_t align_up(uint64_t value, uint64_t align)
{
    return (value + align - 1) / align * align;
}

/* A place behind `*end`, which grows. Sizes stay far below 2^63: the parser and the builder bound them. */
static uint64_t lay_behind(uint64_t *end, const sx_ptx_variable *variable)
{
    uint64_t at = align_up(*end, variable->align == 0 ? 1 : variable->align);
    *end = at + sx_ptx_variable_bytes(variable);
    return at;
}

typedef struct {
    uint64_t shared, local, constants;
    uint64_t dynamic_align; /* 0: no variable takes the dynamic shared memory */
} extents;

static sx_code lay_variable(sx_ptx_machine *m, const sx_ptx_variable *variable, extents *end,
                            uint64_t *address)
{
    switch (variable->space) {
    case SX_PTX_SPACE_SHARED:
        if (variable->external) {
            end->dynamic_align =
                variable->align > end->dynamic_align ? variable->align : end->dynamic_align;
            end->dynamic_align += end->dynamic_align == 0;
            return SX_OK;
        }
        *address = lay_behind(&end->shared, variable);
        return SX_OK;
    case SX_PTX_SPACE_LOCAL: *address = lay_behind(&end->local, variable); return SX_OK;
    case SX_PTX_SPACE_CONST: *address = lay_behind(&end->constants, variable); return SX_OK;
    default:
        return SX_FAIL(m->cx, SX_UNIMPLEMENTED,
                       "variable %s: memory %s of a module is not interpreted", variable->name,
                       sx_ptx_modifier_of(variable->space)->text);
    }
}

/* Variables that the kernel names; then the dynamic shared memory, which all of its names share. */
static sx_code lay_variables(sx_ptx_machine *m)
{
    const sx_ptx_module *module = m->launch->module;
    const sx_ptx_kernel *k = m->kernel;
    extents end = {SX_PTX_SHARED_FIRST, SX_PTX_LOCAL_FIRST, SX_PTX_CONST_FIRST, 0};
    m->kernel_address = SX_NEW_ARRAY(m->cx, uint64_t, k->variable_count + 1U);
    m->module_address = SX_NEW_ARRAY(m->cx, uint64_t, module->variable_count + 1U);
    if (m->kernel_address == NULL || m->module_address == NULL) {
        return m->cx->error.code;
    }
    for (uint32_t i = 0; i < k->variable_count; i++) {
        SX_TRY(lay_variable(m, &k->variable[i], &end, &m->kernel_address[i]));
    }
    for (uint32_t i = 0; i < module->variable_count; i++) {
        if (names(m, SX_PTX_MODULE_VARIABLE, i)) {
            SX_TRY(lay_variable(m, &module->variable[i], &end, &m->module_address[i]));
        }
    }
    uint64_t dynamic = align_up(end.shared, end.dynamic_align == 0 ? 1 : end.dynamic_align);
    for (uint32_t i = 0; i < k->variable_count; i++) {
        m->kernel_address[i] = k->variable[i].external ? dynamic : m->kernel_address[i];
    }
    for (uint32_t i = 0; i < module->variable_count; i++) {
        m->module_address[i] = module->variable[i].external ? dynamic : m->module_address[i];
    }
    m->shared_bytes = dynamic - SX_PTX_SHARED_FIRST + m->launch->dynamic_shared_bytes;
    m->local_bytes = end.local - SX_PTX_LOCAL_FIRST;
    m->constants_bytes = end.constants - SX_PTX_CONST_FIRST;
    return SX_OK;
}

static sx_code lay_parameters(sx_ptx_machine *m)
{
    m->parameter_offset = SX_NEW_ARRAY(m->cx, uint64_t, m->kernel->parameter_count + 1U);
    if (m->parameter_offset == NULL) {
        return m->cx->error.code;
    }
    for (uint32_t i = 0; i < m->kernel->parameter_count; i++) {
        m->parameter_offset[i] = lay_behind(&m->parameter_bytes, &m->kernel->parameter[i]);
    }
    return SX_OK;
}

sx_code sx_ptx_prepare(sx_ptx_machine *m)
{
    SX_ASSERT(m->kernel != NULL && m->micro == NULL);
    SX_TRY(lay_parameters(m));
    SX_TRY(lay_variables(m));
    uint32_t next = SX_PTX_SPECIAL_COUNT;
    for (uint32_t i = 0; i < SX_PTX_REGISTER_CLASSES; i++) {
        m->class_first[i] = next;
        next += m->kernel->register_count[i];
    }
    m->sink = next;
    m->file_count = next + 1;
    m->micro = SX_NEW_ARRAY(m->cx, sx_ptx_micro, m->kernel->insn_count + 1U);
    if (m->micro == NULL) {
        return m->cx->error.code;
    }
    for (uint32_t i = 0; i < m->kernel->insn_count; i++) {
        SX_TRY(prepare_insn(m, i));
    }
    choose_cells(m);
    /* Behind the last instruction a thread ends. */
    m->micro[m->kernel->insn_count] =
        (sx_ptx_micro){.handler = SX_PTX_RUN_EXIT, .guard = SX_PTX_NO_WORD};
    return SX_OK;
}
