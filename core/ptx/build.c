/* build.c - the builder that code generators write kernels with. */
#include "core/ptx/reader.h"

#include <stdio.h>
#include <string.h>

#define INSNS_MAX 1000000
#define REGISTERS_MAX 1000000

static sx_code grow(sx_ctx *cx, void **array, uint32_t *capacity, uint32_t need, size_t size)
{
    return need <= *capacity ? SX_OK : sx_grow(cx, array, capacity, need, size);
}

/* Records a failure of the builder; later calls do nothing. */
static void fail(sx_ptx_builder *b, sx_code code, const char *text)
{
    if (b->code == SX_OK) {
        b->code = SX_FAIL(b->cx, code, "kernel %s: %s", b->kernel->name, text);
    }
}

/* ---- modules and kernels ---- */
sx_code sx_ptx_module_make(sx_ctx *cx, uint32_t target, char feature, sx_ptx_module **module)
{
    SX_ASSERT(cx != NULL && module != NULL);
    if (target < 80 || target > 130 || (feature != 0 && feature != 'a' && feature != 'f')) {
        return SX_FAIL(cx, SX_INPUT, "target sm_%u%c, known are sm_80 and later", target,
                       feature == 0 ? ' ' : feature);
    }
    sx_ptx_module *made = SX_NEW(cx, sx_ptx_module);
    if (made == NULL) {
        return cx->error.code;
    }
    made->target = (uint16_t)target;
    made->feature = feature;
    made->version = sx_ptx_target_version(target, feature);
    *module = made;
    return SX_OK;
}

void sx_ptx_begin(sx_ptx_builder *b, sx_ctx *cx, sx_ptx_module *module, const char *name)
{
    SX_ASSERT(b != NULL && module != NULL && name != NULL && name[0] != 0);
    *b = (sx_ptx_builder){.cx = cx, .module = module};
    void *kernels = module->kernel;
    b->code = grow(cx, &kernels, &module->kernel_capacity, module->kernel_count + 1,
                   sizeof(sx_ptx_kernel));
    module->kernel = kernels;
    if (b->code == SX_OK) {
        b->kernel = &module->kernel[module->kernel_count++];
        *b->kernel = (sx_ptx_kernel){.name = sx_alloc_text(cx, sx_span_of(name))};
        b->code = b->kernel->name == NULL ? cx->error.code : SX_OK;
    }
}

sx_code sx_ptx_end(sx_ptx_builder *b)
{
    SX_ASSERT(b != NULL && !b->guarded);
    SX_TRY(b->code);
    uint16_t target = 0;
    for (uint32_t i = 0; i < b->kernel->insn_count; i++) {
        sx_ptx_floor(&b->kernel->insn[i], b->kernel, &b->module->version, &target);
    }
    sx_code code = sx_ptx_check(b->cx, b->module);
    return code == SX_INPUT ? SX_INTERNAL : code;
}

/* ---- variables ---- */
static sx_ptx_arg add_variable(sx_ptx_builder *b, sx_ptx_scope scope, sx_ptx_variable variable)
{
    if (b->code != SX_OK) {
        return (sx_ptx_arg){.kind = SX_PTX_ARG_SYMBOL, .form = (uint8_t)scope};
    }
    sx_ptx_kernel *k = b->kernel;
    bool parameter = scope == SX_PTX_PARAMETER;
    uint32_t *count = parameter ? &k->parameter_count : &k->variable_count;
    void *array = parameter ? k->parameter : k->variable;
    b->code = grow(b->cx, &array, parameter ? &k->parameter_capacity : &k->variable_capacity,
                   *count + 1, sizeof(sx_ptx_variable));
    variable.name = sx_alloc_text(b->cx, sx_span_of(variable.name));
    if (b->code != SX_OK || variable.name == NULL) {
        b->code = b->cx->error.code;
        return (sx_ptx_arg){.kind = SX_PTX_ARG_SYMBOL, .form = (uint8_t)scope};
    }
    sx_ptx_variable *variables = array;
    variables[*count] = variable;
    if (parameter) {
        k->parameter = variables;
    } else {
        k->variable = variables;
    }
    return (sx_ptx_arg){.kind = SX_PTX_ARG_SYMBOL, .form = (uint8_t)scope, .id = (*count)++};
}

sx_ptx_arg sx_ptx_parameter(sx_ptx_builder *b, const char *name, sx_ptx_modifier type)
{
    return add_variable(
        b, SX_PTX_PARAMETER,
        (sx_ptx_variable){
            .name = name, .space = SX_PTX_SPACE_PARAM, .type = (uint16_t)type, .count = 1});
}

sx_ptx_arg sx_ptx_parameter_bytes(sx_ptx_builder *b, const char *name, uint32_t align,
                                  uint64_t bytes)
{
    SX_ASSERT(bytes > 0);
    return add_variable(b, SX_PTX_PARAMETER,
                        (sx_ptx_variable){.name = name,
                                          .space = SX_PTX_SPACE_PARAM,
                                          .type = SX_PTX_TYPE_B8,
                                          .align = align,
                                          .count = bytes,
                                          .array = true});
}

sx_ptx_arg sx_ptx_shared(sx_ptx_builder *b, const char *name, uint32_t align, uint64_t bytes)
{
    SX_ASSERT(bytes > 0);
    return add_variable(b, SX_PTX_KERNEL_VARIABLE,
                        (sx_ptx_variable){.name = name,
                                          .space = SX_PTX_SPACE_SHARED,
                                          .type = SX_PTX_TYPE_B8,
                                          .align = align,
                                          .count = bytes,
                                          .array = true});
}

sx_ptx_arg sx_ptx_shared_dynamic(sx_ptx_builder *b, const char *name, uint32_t align)
{
    /* PTX wants it outside of kernels. */
    SX_ASSERT(b != NULL && name != NULL);
    for (uint32_t v = 0; b->code == SX_OK && v < b->module->variable_count; v++) {
        sx_ptx_variable *variable = &b->module->variable[v];
        if (variable->external && strcmp(variable->name, name) == 0) {
            variable->align = variable->align > align ? variable->align : align;
            return (sx_ptx_arg){.kind = SX_PTX_ARG_SYMBOL, .form = SX_PTX_MODULE_VARIABLE, .id = v};
        }
    }
    sx_ptx_arg symbol = {.kind = SX_PTX_ARG_SYMBOL, .form = SX_PTX_MODULE_VARIABLE};
    if (b->code != SX_OK) {
        return symbol;
    }
    void *variables = b->module->variable;
    b->code = grow(b->cx, &variables, &b->module->variable_capacity, b->module->variable_count + 1,
                   sizeof(sx_ptx_variable));
    b->module->variable = variables;
    const char *copy = sx_alloc_text(b->cx, sx_span_of(name));
    if (b->code != SX_OK || copy == NULL) {
        b->code = b->cx->error.code;
        return symbol;
    }
    symbol.id = b->module->variable_count++;
    b->module->variable[symbol.id] = (sx_ptx_variable){.name = copy,
                                                       .space = SX_PTX_SPACE_SHARED,
                                                       .type = SX_PTX_TYPE_B8,
                                                       .align = align,
                                                       .array = true,
                                                       .external = true};
    return symbol;
}

/* ---- arguments ---- */
sx_ptx_arg sx_ptx_register(sx_ptx_builder *b, sx_ptx_register_class class_of)
{
    SX_ASSERT(class_of < SX_PTX_REGISTER_CLASSES);
    sx_ptx_arg made = {.kind = SX_PTX_ARG_REGISTER, .form = (uint8_t)class_of};
    if (b->code != SX_OK) {
        return made;
    }
    if (b->kernel->register_count[class_of] >= REGISTERS_MAX) {
        fail(b, SX_LIMIT, "too many registers");
        return made;
    }
    made.id = b->kernel->register_count[class_of]++;
    return made;
}

sx_ptx_arg sx_ptx_vector(sx_ptx_builder *b, const sx_ptx_arg *element, uint32_t count)
{
    SX_ASSERT(count > 0 && element != NULL);
    sx_ptx_arg vector = {.kind = SX_PTX_ARG_VECTOR, .count = count};
    if (b->code != SX_OK) {
        return vector;
    }
    sx_ptx_kernel *k = b->kernel;
    void *args = k->arg;
    b->code = grow(b->cx, &args, &k->arg_capacity, k->arg_count + count, sizeof(sx_ptx_arg));
    k->arg = args;
    if (b->code == SX_OK) {
        vector.id = k->arg_count;
        memcpy(&k->arg[k->arg_count], element, count * sizeof(*element));
        k->arg_count += count;
    }
    return vector;
}

sx_ptx_arg sx_ptx_coordinates(sx_ptx_builder *b, const sx_ptx_arg *element, uint32_t count)
{
    sx_ptx_arg vector = sx_ptx_vector(b, element, count);
    vector.form = 1;
    return vector;
}

sx_ptx_arg sx_ptx_registers(sx_ptx_builder *b, sx_ptx_register_class class_of, uint32_t count)
{
    SX_ASSERT(count > 0 && count <= 256);
    sx_ptx_arg element[256];
    for (uint32_t i = 0; i < count; i++) {
        element[i] = sx_ptx_register(b, class_of);
    }
    return sx_ptx_vector(b, element, count);
}

sx_ptx_arg sx_ptx_element(const sx_ptx_builder *b, sx_ptx_arg vector, uint32_t index)
{
    SX_ASSERT(vector.kind == SX_PTX_ARG_VECTOR && index < vector.count);
    return b->code == SX_OK ? b->kernel->arg[vector.id + index]
                            : (sx_ptx_arg){.kind = SX_PTX_ARG_REGISTER};
}

sx_ptx_arg sx_ptx_imm(int64_t value)
{
    return (sx_ptx_arg){.kind = SX_PTX_ARG_IMMEDIATE, .form = SX_PTX_INTEGER, .value = value};
}

sx_ptx_arg sx_ptx_imm_f32(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return (sx_ptx_arg){
        .kind = SX_PTX_ARG_IMMEDIATE, .form = SX_PTX_F32_BITS, .value = (int64_t)bits};
}

sx_ptx_arg sx_ptx_imm_f64(double value)
{
    int64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return (sx_ptx_arg){.kind = SX_PTX_ARG_IMMEDIATE, .form = SX_PTX_F64_BITS, .value = bits};
}

sx_ptx_arg sx_ptx_special_register(sx_ptx_special special)
{
    SX_ASSERT(special < SX_PTX_SPECIAL_COUNT);
    return (sx_ptx_arg){.kind = SX_PTX_ARG_SPECIAL, .id = (uint32_t)special};
}

sx_ptx_arg sx_ptx_at(sx_ptx_arg base, int64_t offset)
{
    SX_ASSERT(base.kind == SX_PTX_ARG_REGISTER || base.kind == SX_PTX_ARG_SYMBOL);
    return (sx_ptx_arg){.kind = SX_PTX_ARG_MEMORY,
                        .form = base.form,
                        .base = base.kind,
                        .id = base.id,
                        .value = base.value + offset};
}

sx_ptx_arg sx_ptx_not(sx_ptx_arg predicate)
{
    SX_ASSERT(predicate.kind == SX_PTX_ARG_REGISTER && predicate.form == SX_PTX_PRED);
    predicate.negated = !predicate.negated;
    return predicate;
}

sx_ptx_arg sx_ptx_pair(sx_ptx_arg result, sx_ptx_arg predicate)
{
    SX_ASSERT(result.kind == SX_PTX_ARG_REGISTER && predicate.form == SX_PTX_PRED);
    result.count = 1 + predicate.id;
    return result;
}

sx_ptx_arg sx_ptx_label(sx_ptx_builder *b)
{
    sx_ptx_arg label = {.kind = SX_PTX_ARG_LABEL};
    if (b->code != SX_OK) {
        return label;
    }
    sx_ptx_kernel *k = b->kernel;
    void *labels = k->label;
    b->code = grow(b->cx, &labels, &k->label_capacity, k->label_count + 1, sizeof(uint32_t));
    k->label = labels;
    if (b->code == SX_OK) {
        label.id = k->label_count;
        k->label[k->label_count++] = SX_PTX_NOWHERE;
    }
    return label;
}

/* ---- instructions ---- */
void sx_ptx_guard(sx_ptx_builder *b, sx_ptx_arg predicate)
{
    SX_ASSERT(predicate.kind == SX_PTX_ARG_REGISTER && predicate.form == SX_PTX_PRED);
    b->guarded = true;
    b->guard_negated = predicate.negated;
    b->guard = predicate.id;
}

void sx_ptx_place(sx_ptx_builder *b, sx_ptx_arg label)
{
    SX_ASSERT(label.kind == SX_PTX_ARG_LABEL);
    if (b->code == SX_OK) {
        SX_ASSERT(label.id < b->kernel->label_count);
        SX_ASSERT(b->kernel->label[label.id] == SX_PTX_NOWHERE);
        b->kernel->label[label.id] = b->kernel->insn_count;
    }
}

/* An instruction without arguments yet; NULL after a failure. */
static sx_ptx_insn *append(sx_ptx_builder *b)
{
    sx_ptx_kernel *k = b->kernel;
    if (b->code == SX_OK && k->insn_count >= INSNS_MAX) {
        fail(b, SX_LIMIT, "too many instructions");
    }
    if (b->code != SX_OK) {
        return NULL;
    }
    void *insns = k->insn;
    b->code = grow(b->cx, &insns, &k->insn_capacity, k->insn_count + 1, sizeof(sx_ptx_insn));
    k->insn = insns;
    if (b->code != SX_OK) {
        return NULL;
    }
    k->insn[k->insn_count] = (sx_ptx_insn){0};
    return &k->insn[k->insn_count++];
}

/* Gives the instruction, the last one, its guard and arguments. */
static void fill(sx_ptx_builder *b, sx_ptx_insn *insn, const sx_ptx_arg *arg, uint32_t arg_count)
{
    insn->guarded = b->guarded;
    insn->guard_negated = b->guarded && b->guard_negated;
    insn->guard = b->guarded ? b->guard : 0;
    insn->arg_count = (uint8_t)arg_count;
    b->guarded = false;
    if (arg_count > 0) {
        insn->arg = sx_ptx_vector(b, arg, arg_count).id;
    }
}

void sx_ptx_put(sx_ptx_builder *b, sx_ptx_op op, sx_ptx_modifiers modifiers, const sx_ptx_arg *arg,
                uint32_t arg_count)
{
    SX_ASSERT(b != NULL && op < SX_PTX_OP_COUNT && arg_count <= SX_PTX_OPERANDS_MAX);
    sx_ptx_insn *insn = append(b);
    if (insn == NULL) {
        b->guarded = false;
        return;
    }
    uint16_t given[SX_PTX_SLOTS_MAX];
    uint32_t given_count = 0;
    for (uint32_t i = 0; i < SX_PTX_SLOTS_MAX; i++) {
        if (modifiers.item[i] != 0) {
            given[given_count++] = modifiers.item[i];
        }
    }
    insn->op = (uint16_t)op;
    if (!sx_ptx_row_takes(sx_ptx_row_of(op), given, given_count, true, insn->modifier)) {
        fail(b, SX_INTERNAL, sx_ptx_row_of(op)->text);
    }
    fill(b, insn, arg, arg_count);
}

sx_code sx_ptx_append_unknown(sx_ptx_builder *b, const sx_ptx_arg *arg, uint32_t arg_count)
{
    SX_ASSERT(b != NULL && arg_count <= SX_PTX_OPERANDS_MAX);
    sx_ptx_insn *insn = append(b);
    if (insn != NULL) {
        fill(b, insn, arg, arg_count);
    }
    return b->code;
}
