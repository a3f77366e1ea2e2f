/* numbers.c - kernels that are the same but for numbers, and numbers that come with the launch. */
#include "core/ptx/numbers.h"

#include <stdio.h>
#include <string.h>

/* The class of the register that can stand in place of this argument; SX_PTX_REGISTER_CLASSES: none can. */
static sx_ptx_register_class class_of_number(const sx_ptx_insn *insn, const sx_ptx_arg *arg,
                                             const sx_ptx_operand *operand)
{
    if (arg->kind == SX_PTX_ARG_MEMORY) {
        bool far = arg->base == SX_PTX_ARG_REGISTER && arg->form == SX_PTX_B64;
        return far ? SX_PTX_B64 : SX_PTX_REGISTER_CLASSES;
    }
    if (arg->kind != SX_PTX_ARG_IMMEDIATE || arg->form != SX_PTX_INTEGER ||
        operand->takes != SX_PTX_TAKES_REGISTER) {
        return SX_PTX_REGISTER_CLASSES;
    }
    sx_ptx_register_class its = sx_ptx_operand_class(operand, insn);
    return its == SX_PTX_B32 || its == SX_PTX_B64 ? its : SX_PTX_REGISTER_CLASSES;
}

/* Arguments of an instruction that are numbers: by argument the class, or SX_PTX_REGISTER_CLASSES. */
static void find_numbers(const sx_ptx_kernel *kernel, const sx_ptx_insn *insn,
                         sx_ptx_register_class class_of[SX_PTX_OPERANDS_MAX])
{
    const sx_ptx_row *row = sx_ptx_row_of((sx_ptx_op)insn->op);
    uint8_t operand[SX_PTX_OPERANDS_MAX];
    uint32_t count = sx_ptx_operands_of(insn, operand);
    for (uint32_t a = 0; a < insn->arg_count; a++) {
        SX_ASSERT(a < count); /* the check has seen it */
        class_of[a] = class_of_number(insn, &kernel->arg[insn->arg + a], &row->operand[operand[a]]);
    }
}

/* How many numbers there are. They go to `take`, and are 0 from then on; NULL: they stay. */
static uint32_t walk(sx_ptx_kernel *kernel, int64_t *take, bool *offset)
{
    sx_ptx_register_class class_of[SX_PTX_OPERANDS_MAX];
    uint32_t count = 0;
    for (uint32_t i = 0; i < kernel->insn_count; i++) {
        const sx_ptx_insn *insn = &kernel->insn[i];
        find_numbers(kernel, insn, class_of);
        for (uint32_t a = 0; a < insn->arg_count; a++) {
            if (class_of[a] == SX_PTX_REGISTER_CLASSES) {
                continue;
            }
            if (take != NULL) {
                sx_ptx_arg *arg = &kernel->arg[insn->arg + a];
                take[count] = arg->value;
                offset[count] = arg->kind == SX_PTX_ARG_MEMORY;
                arg->value = 0;
            }
            count++;
        }
    }
    return count;
}

uint32_t sx_ptx_count_numbers(sx_ptx_kernel *kernel)
{
    return walk(kernel, NULL, NULL);
}

sx_code sx_ptx_take_numbers(sx_ctx *cx, sx_ptx_kernel *kernel, int64_t **number, bool **offset,
                            uint32_t *count)
{
    SX_ASSERT(kernel != NULL && number != NULL && offset != NULL && count != NULL);
    *number = SX_NEW_ARRAY(cx, int64_t, (size_t)kernel->arg_count + 1);
    *offset = SX_NEW_ARRAY(cx, bool, (size_t)kernel->arg_count + 1);
    if (*number == NULL || *offset == NULL) {
        return cx->error.code;
    }
    *count = walk(kernel, *number, *offset);
    return SX_OK;
}

/* ---- numbers that come ---- */
typedef struct {
    sx_ptx_builder b;
    sx_ptx_arg *wide, *narrow; /* by slot: registers that hold it; NONE: nobody asks for it */
    const sx_ptx_coming *coming;
    uint32_t count, next; /* of `coming` */
    uint32_t seen;        /* numbers so far */
} opening;

/* Which slots are asked for with 64 bits, and with 32. */
static void find_slots(opening *o, const sx_ptx_insn *insn, uint32_t insn_count)
{
    sx_ptx_register_class class_of[SX_PTX_OPERANDS_MAX];
    uint32_t next = 0, seen = 0;
    for (uint32_t i = 0; i < insn_count; i++) {
        find_numbers(o->b.kernel, &insn[i], class_of);
        for (uint32_t a = 0; a < insn[i].arg_count; a++) {
            if (class_of[a] == SX_PTX_REGISTER_CLASSES) {
                continue;
            }
            if (next < o->count && o->coming[next].at == seen) {
                sx_ptx_arg *file = class_of[a] == SX_PTX_B64 ? o->wide : o->narrow;
                file[o->coming[next].slot].kind = SX_PTX_ARG_REGISTER;
                next++;
            }
            seen++;
        }
    }
    SX_ASSERT(next == o->count);
}

/* Loads the slots that are asked for, at the begin of the kernel. */
static void load_slots(opening *o, uint32_t slot_count)
{
    sx_ptx_builder *b = &o->b;
    for (uint32_t s = 0; s < slot_count; s++) {
        char name[32];
        (void)snprintf(name, sizeof(name), "number_%u", s);
        sx_ptx_arg parameter = sx_ptx_parameter(b, name, SX_PTX_TYPE_U64);
        bool narrow = o->narrow[s].kind != SX_PTX_ARG_NONE;
        if (!narrow && o->wide[s].kind == SX_PTX_ARG_NONE) {
            continue;
        }
        o->wide[s] = sx_ptx_register(b, SX_PTX_B64);
        SX_PTX_PUT(b, LD, SX_PTX_M(SX_PTX_SPACE_PARAM, SX_PTX_TYPE_U64), o->wide[s],
                   sx_ptx_at(parameter, 0));
        if (narrow) {
            o->narrow[s] = sx_ptx_register(b, SX_PTX_B32);
            SX_PTX_PUT(b, CVT, SX_PTX_M(SX_PTX_TYPE_U32, SX_PTX_TYPE_U64), o->narrow[s],
                       o->wide[s]);
        }
    }
}

/* Appends an instruction of before with registers in place of the numbers that come. */
static void put_insn(opening *o, const sx_ptx_insn *insn)
{
    sx_ptx_builder *b = &o->b;
    sx_ptx_register_class class_of[SX_PTX_OPERANDS_MAX];
    find_numbers(b->kernel, insn, class_of);
    for (uint32_t a = 0; a < insn->arg_count && b->code == SX_OK; a++) {
        if (class_of[a] == SX_PTX_REGISTER_CLASSES) {
            continue;
        }
        bool comes = o->next < o->count && o->coming[o->next].at == o->seen++;
        if (!comes) {
            continue;
        }
        uint32_t slot = o->coming[o->next++].slot;
        sx_ptx_arg arg = b->kernel->arg[insn->arg + a];
        sx_ptx_arg with = class_of[a] == SX_PTX_B64 ? o->wide[slot] : o->narrow[slot];
        if (arg.kind == SX_PTX_ARG_MEMORY) {
            const sx_ptx_arg base = {.kind = SX_PTX_ARG_REGISTER, .form = arg.form, .id = arg.id};
            sx_ptx_arg sum = sx_ptx_register(b, SX_PTX_B64);
            SX_PTX_PUT(b, ADD, SX_PTX_M(SX_PTX_TYPE_S64), sum, base, with);
            with = sx_ptx_at(sum, arg.value);
        }
        b->kernel->arg[insn->arg + a] = with; /* behind ADD, which may move them */
    }
    SX_ASSERT(b->code != SX_OK || b->kernel->insn_count < b->kernel->insn_capacity);
    if (b->code == SX_OK) {
        b->kernel->insn[b->kernel->insn_count++] = *insn;
    }
}

/* The labels that stand before instruction `i` of before stand before the next one. */
static void move_labels(const uint32_t *before, uint32_t i, sx_ptx_kernel *kernel)
{
    for (uint32_t l = 0; l < kernel->label_count; l++) {
        kernel->label[l] = before[l] == i ? kernel->insn_count : kernel->label[l];
    }
}

sx_code sx_ptx_open_numbers(sx_ctx *cx, sx_ptx_module *module, uint32_t index,
                            const sx_ptx_coming *coming, uint32_t count, uint32_t slot_count)
{
    SX_ASSERT(index < module->kernel_count);
    sx_ptx_kernel *kernel = &module->kernel[index];
    const sx_ptx_insn *before = kernel->insn;
    uint32_t insn_count = kernel->insn_count;
    uint32_t capacity = insn_count + 2 * slot_count + count;
    uint32_t *label = SX_NEW_ARRAY(cx, uint32_t, (size_t)kernel->label_count + 1);
    opening o = {.b = {.cx = cx, .module = module, .kernel = kernel},
                 .wide = SX_NEW_ARRAY(cx, sx_ptx_arg, (size_t)slot_count + 1),
                 .narrow = SX_NEW_ARRAY(cx, sx_ptx_arg, (size_t)slot_count + 1),
                 .coming = coming,
                 .count = count};
    sx_ptx_insn *insn = SX_NEW_ARRAY(cx, sx_ptx_insn, (size_t)capacity + 1);
    if (label == NULL || o.wide == NULL || o.narrow == NULL || insn == NULL) {
        return cx->error.code;
    }
    memcpy(label, kernel->label, kernel->label_count * sizeof(*label));
    find_slots(&o, before, insn_count);
    kernel->insn = insn;
    kernel->insn_count = 0;
    kernel->insn_capacity = capacity + 1;
    load_slots(&o, slot_count);
    for (uint32_t i = 0; i <= insn_count && o.b.code == SX_OK; i++) {
        move_labels(label, i, kernel);
        if (i < insn_count) {
            put_insn(&o, &before[i]);
        }
    }
    SX_ASSERT(o.b.code != SX_OK || o.next == count);
    return sx_ptx_end(&o.b);
}
