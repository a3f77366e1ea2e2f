/* print.c - modules as the text of PTX. */
#include "core/ptx/ptx.h"

#include <inttypes.h>

static const char *const class_prefix[SX_PTX_REGISTER_CLASSES] = {"%p", "%h", "%r", "%d"};
static const char *const class_type[SX_PTX_REGISTER_CLASSES] = {".pred", ".b16", ".b32", ".b64"};

static const char *modifier_text(uint32_t modifier)
{
    return sx_ptx_modifier_of((sx_ptx_modifier)modifier)->text;
}

static void print_register(uint32_t class_of, uint32_t id, sx_buf *text)
{
    SX_ASSERT(class_of < SX_PTX_REGISTER_CLASSES);
    sx_buf_print(text, "%s%" PRIu32, class_prefix[class_of], id);
}

static void print_offset(int64_t value, sx_buf *text)
{
    if (value != 0) {
        sx_buf_print(text, "+%" PRId64, value); /* PTX writes a negative one as +-4 */
    }
}

static void print_immediate(const sx_ptx_arg *arg, sx_buf *text)
{
    switch ((sx_ptx_notation)arg->form) {
    case SX_PTX_F32_BITS: sx_buf_print(text, "0f%08" PRIX32, (uint32_t)arg->value); return;
    case SX_PTX_F64_BITS: sx_buf_print(text, "0d%016" PRIX64, (uint64_t)arg->value); return;
    default: sx_buf_print(text, "%" PRId64, arg->value); return;
    }
}

typedef struct {
    const sx_ptx_module *module;
    const sx_ptx_kernel *kernel;
    sx_buf *text;
} printer;

static const char *symbol_name(const printer *p, uint32_t scope, uint32_t id)
{
    return sx_ptx_symbol(p->module, p->kernel, (sx_ptx_scope)scope, id)->name;
}

/* What stands inside the brackets. */
static void print_address(const printer *p, const sx_ptx_arg *arg)
{
    if (arg->base == SX_PTX_ARG_REGISTER) {
        print_register(arg->form, arg->id, p->text);
        print_offset(arg->value, p->text);
    } else if (arg->base == SX_PTX_ARG_SYMBOL) {
        sx_buf_put_text(p->text, symbol_name(p, arg->form, arg->id));
        print_offset(arg->value, p->text);
    } else {
        sx_buf_print(p->text, "%" PRId64, arg->value);
    }
}

/* Anything but a vector. */
static void print_simple(const printer *p, const sx_ptx_arg *arg)
{
    switch ((sx_ptx_arg_kind)arg->kind) {
    case SX_PTX_ARG_REGISTER:
        sx_buf_put_text(p->text, arg->negated ? "!" : "");
        print_register(arg->form, arg->id, p->text);
        if (arg->count != 0) {
            sx_buf_put_text(p->text, "|");
            print_register(SX_PTX_PRED, arg->count - 1, p->text);
        }
        return;
    case SX_PTX_ARG_IMMEDIATE: print_immediate(arg, p->text); return;
    case SX_PTX_ARG_SPECIAL:
        sx_buf_put_text(p->text, sx_ptx_special_of((sx_ptx_special)arg->id)->text);
        return;
    case SX_PTX_ARG_SYMBOL:
        sx_buf_put_text(p->text, symbol_name(p, arg->form, arg->id));
        print_offset(arg->value, p->text);
        return;
    case SX_PTX_ARG_MEMORY: print_address(p, arg); return;
    case SX_PTX_ARG_LABEL: sx_buf_print(p->text, "L%" PRIu32, arg->id); return;
    case SX_PTX_ARG_SINK: sx_buf_put_text(p->text, "_"); return;
    default: SX_UNREACHABLE();
    }
}

static void print_arg(const printer *p, const sx_ptx_arg *arg)
{
    if (arg->kind != SX_PTX_ARG_VECTOR) {
        print_simple(p, arg);
        return;
    }
    SX_ASSERT(arg->id + arg->count <= p->kernel->arg_count);
    sx_buf_put_text(p->text, "{");
    for (uint32_t i = 0; i < arg->count; i++) {
        sx_buf_put_text(p->text, i == 0 ? "" : ", ");
        print_simple(p, &p->kernel->arg[arg->id + i]);
    }
    sx_buf_put_text(p->text, "}");
}

void sx_ptx_print_insn(const sx_ptx_module *module, const sx_ptx_kernel *kernel,
                       const sx_ptx_insn *insn, sx_buf *text)
{
    SX_ASSERT(insn->arg + insn->arg_count <= kernel->arg_count);
    const printer p = {module, kernel, text};
    const sx_ptx_row *row = sx_ptx_row_of((sx_ptx_op)insn->op);
    if (insn->guarded) {
        sx_buf_put_text(text, insn->guard_negated ? "@!" : "@");
        print_register(SX_PTX_PRED, insn->guard, text);
        sx_buf_put_text(text, " ");
    }
    sx_buf_put_text(text, row->text);
    for (uint32_t s = 0; s < SX_PTX_SLOTS_MAX && row->slot[s].allowed != 0; s++) {
        sx_buf_put_text(text, insn->modifier[s] == 0 ? "" : modifier_text(insn->modifier[s]));
    }
    const sx_ptx_arg *arg = insn->arg_count == 0 ? NULL : kernel->arg + insn->arg;
    for (uint32_t a = 0; a < insn->arg_count; a++) {
        bool last = a + 1 == insn->arg_count;
        bool memory = arg[a].kind == SX_PTX_ARG_MEMORY;
        bool within = arg[a].kind == SX_PTX_ARG_VECTOR && arg[a].form != 0;
        bool holds =
            memory && !last && arg[a + 1].kind == SX_PTX_ARG_VECTOR && arg[a + 1].form != 0;
        sx_buf_put_text(text, a == 0 ? " " : ", ");
        sx_buf_put_text(text, memory ? "[" : "");
        print_arg(&p, &arg[a]);
        sx_buf_put_text(text, (memory && !holds) || within ? "]" : "");
    }
    sx_buf_put_text(text, ";");
}

/* ---- declarations ---- */
static void print_initial(const sx_ptx_variable *variable, sx_buf *text)
{
    SX_ASSERT(variable->initial.len <= sx_ptx_variable_bytes(variable));
    uint32_t bytes = sx_ptx_modifier_of((sx_ptx_modifier)variable->type)->value;
    uint8_t notation = variable->type == SX_PTX_TYPE_F32   ? SX_PTX_F32_BITS
                       : variable->type == SX_PTX_TYPE_F64 ? SX_PTX_F64_BITS
                                                           : SX_PTX_INTEGER;
    sx_buf_put_text(text, variable->array ? " = {" : " = ");
    for (size_t at = 0; at + bytes <= variable->initial.len; at += bytes) {
        uint64_t value = 0;
        for (uint32_t b = 0; b < bytes; b++) {
            value |= (uint64_t)variable->initial.ptr[at + b] << (8 * b);
        }
        sx_buf_put_text(text, at == 0 ? "" : ", ");
        print_immediate(&(sx_ptx_arg){.form = notation, .value = (int64_t)value}, text);
    }
    sx_buf_put_text(text, variable->array ? "}" : "");
}

static void print_variable(const sx_ptx_variable *variable, sx_buf *text)
{
    sx_buf_print(text, "%s%s ", variable->external ? ".extern " : "",
                 modifier_text(variable->space));
    if (variable->align != 0) {
        sx_buf_print(text, ".align %" PRIu32 " ", variable->align);
    }
    sx_buf_print(text, "%s %s", modifier_text(variable->type), variable->name);
    if (variable->external) {
        sx_buf_put_text(text, "[]");
    } else if (variable->array) {
        sx_buf_print(text, "[%" PRIu64 "]", variable->count);
    }
    if (variable->initial.len != 0) {
        print_initial(variable, text);
    }
}

static void print_block(const char *directive, const sx_ptx_block *block, sx_buf *text)
{
    if (block->x != 0) {
        sx_buf_print(text, "%s %" PRIu32 ", %" PRIu32 ", %" PRIu32 "\n", directive, block->x,
                     block->y, block->z);
    }
}

static void print_head(const sx_ptx_kernel *kernel, sx_buf *text)
{
    sx_buf_print(text, "\n.visible .entry %s(", kernel->name);
    for (uint32_t i = 0; i < kernel->parameter_count; i++) {
        sx_buf_put_text(text, i == 0 ? "\n    " : ",\n    ");
        print_variable(&kernel->parameter[i], text);
    }
    sx_buf_put_text(text, ")\n");
    print_block(".reqntid", &kernel->required, text);
    print_block(".maxntid", &kernel->maximum, text);
    if (kernel->least_blocks != 0) {
        sx_buf_print(text, ".minnctapersm %" PRIu32 "\n", kernel->least_blocks);
    }
    if (kernel->most_registers != 0) {
        sx_buf_print(text, ".maxnreg %" PRIu32 "\n", kernel->most_registers);
    }
    sx_buf_put_text(text, kernel->explicit_cluster ? ".explicitcluster\n" : "");
    print_block(".reqnctapercluster", &kernel->cluster, text);
}

static void print_kernel(const sx_ptx_module *module, const sx_ptx_kernel *kernel, sx_buf *text)
{
    print_head(kernel, text);
    sx_buf_put_text(text, "{\n");
    for (uint32_t c = 0; c < SX_PTX_REGISTER_CLASSES; c++) {
        if (kernel->register_count[c] != 0) {
            sx_buf_print(text, "    .reg %s %s<%" PRIu32 ">;\n", class_type[c], class_prefix[c],
                         kernel->register_count[c]);
        }
    }
    for (uint32_t v = 0; v < kernel->variable_count; v++) {
        sx_buf_put_text(text, "    ");
        print_variable(&kernel->variable[v], text);
        sx_buf_put_text(text, ";\n");
    }
    for (uint32_t i = 0; i <= kernel->insn_count; i++) {
        for (uint32_t l = 0; l < kernel->label_count; l++) {
            if (kernel->label[l] == i) {
                sx_buf_print(text, "L%" PRIu32 ":\n", l);
            }
        }
        if (i < kernel->insn_count) {
            sx_buf_put_text(text, "    ");
            sx_ptx_print_insn(module, kernel, &kernel->insn[i], text);
            sx_buf_put_text(text, "\n");
        }
    }
    sx_buf_put_text(text, "}\n");
}

void sx_ptx_print(const sx_ptx_module *module, sx_buf *text)
{
    SX_ASSERT(module != NULL && text != NULL);
    sx_buf_print(text, ".version %u.%u\n.target sm_%u", module->version / 10U,
                 module->version % 10U, module->target);
    if (module->feature != 0) {
        sx_buf_print(text, "%c", module->feature);
    }
    sx_buf_put_text(text, "\n.address_size 64\n");
    for (uint32_t v = 0; v < module->variable_count; v++) {
        print_variable(&module->variable[v], text);
        sx_buf_put_text(text, ";\n");
    }
    for (uint32_t k = 0; k < module->kernel_count; k++) {
        print_kernel(module, &module->kernel[k], text);
    }
}
