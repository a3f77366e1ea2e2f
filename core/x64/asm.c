#include "core/x64/form.h"

#include <string.h>

void sx_x64_asm_init(sx_x64_asm *as, sx_ctx *cx, sx_x64_level level, sx_buf *out)
{
    *as = (sx_x64_asm){.cx = cx, .out = out, .level = level};
}

uint32_t sx_x64_offset(const sx_x64_asm *as)
{
    SX_ASSERT(as->out->len <= SX_X64_BLOB_MAX);
    return (uint32_t)as->out->len;
}

/* Notes the first failure; later calls do nothing. */
static bool working(sx_x64_asm *as)
{
    if (as->code == SX_OK && as->out->code != SX_OK) {
        as->code = sx_buf_check(as->cx, as->out, "machine code");
    }
    if (as->code == SX_OK && as->out->len > SX_X64_BLOB_MAX - 4096) {
        as->code = SX_FAIL(as->cx, SX_LIMIT, "machine code: %zu bytes, at most %zu", as->out->len,
                           SX_X64_BLOB_MAX);
    }
    return as->code == SX_OK;
}

/* Room for one more item in an arena array. */
static bool grow(sx_x64_asm *as, void **array, uint32_t *capacity, uint32_t count, size_t size,
                 uint32_t limit, const char *what)
{
    if (!working(as)) {
        return false;
    }
    if (count >= limit) {
        as->code = SX_FAIL(as->cx, SX_LIMIT, "machine code: more than %u %s", limit, what);
        return false;
    }
    as->code = sx_grow(as->cx, array, capacity, count + 1, size);
    return as->code == SX_OK;
}

uint32_t sx_x64_label_make(sx_x64_asm *as)
{
    void *array = as->label;
    if (!grow(as, &array, &as->label_capacity, as->label_count, sizeof(*as->label),
              SX_X64_LABEL_MAX, "labels")) {
        return SX_X64_NO_LABEL;
    }
    as->label = array;
    as->label[as->label_count] = SX_X64_NO_LABEL;
    return as->label_count++;
}

void sx_x64_label_put(sx_x64_asm *as, uint32_t label)
{
    if (working(as)) {
        SX_ASSERT(label < as->label_count && as->label[label] == SX_X64_NO_LABEL);
        as->label[label] = sx_x64_offset(as);
    }
}

uint32_t sx_x64_const_put(sx_x64_asm *as, const void *bytes, uint32_t size, uint32_t align)
{
    SX_ASSERT(size >= 4 && size <= 64 && align >= 1 && align <= 64 && (align & (align - 1)) == 0);
    for (uint32_t i = 0; i < as->constant_count; i++) {
        sx_x64_const *known = &as->constant[i];
        if (known->size == size && memcmp(known->bytes, bytes, size) == 0) {
            known->align = known->align < align ? align : known->align;
            return known->label;
        }
    }
    void *array = as->constant;
    if (!grow(as, &array, &as->constant_capacity, as->constant_count, sizeof(*as->constant),
              SX_X64_CONST_MAX, "constants")) {
        return SX_X64_NO_LABEL;
    }
    as->constant = array;
    uint8_t *copy = sx_alloc(as->cx, size);
    uint32_t label = sx_x64_label_make(as);
    if (copy == NULL || label == SX_X64_NO_LABEL) {
        as->code = as->cx->error.code;
        return SX_X64_NO_LABEL;
    }
    memcpy(copy, bytes, size);
    as->constant[as->constant_count++] =
        (sx_x64_const){.label = label, .align = align, .size = size, .bytes = copy};
    return label;
}

void sx_x64_align(sx_x64_asm *as, uint32_t align)
{
    SX_ASSERT(align >= 1 && align <= 4096 && (align & (align - 1)) == 0);
    while (working(as) && sx_x64_offset(as) % align != 0) {
        uint32_t gap = align - sx_x64_offset(as) % align;
        sx_x64_arg place = sx_x64_mem(SX_RAX, gap == 3 ? 0 : gap < 7 ? 1 : 1024);
        if (gap == 5 || gap >= 8) { /* 5: [rax+rax+1]; 8: [rax+rax+1024] */
            place.index = SX_RAX;
        }
        if (gap < 3) {
            SX_X64_PUT0(as, NOP);
        } else {
            SX_X64_PUT(as, NOP, place);
        }
    }
}

/* Records where the label of an operand has to be filled in. */
static void put_fixup(sx_x64_asm *as, const sx_x64_insn *insn, uint32_t start)
{
    for (uint32_t i = 0; i < insn->arg_count; i++) {
        const sx_x64_arg *arg = &insn->arg[i];
        bool place =
            arg->kind == SX_X64_LABEL || (arg->kind == SX_X64_MEM && arg->reg == SX_X64_RIP);
        if (!place || arg->label == SX_X64_NO_LABEL) {
            continue;
        }
        void *array = as->fixup;
        if (!grow(as, &array, &as->fixup_capacity, as->fixup_count, sizeof(*as->fixup),
                  SX_X64_LABEL_MAX * 16, "label uses")) {
            return;
        }
        as->fixup = array;
        SX_ASSERT(insn->disp_at != 0 && arg->label < as->label_count);
        as->fixup[as->fixup_count++] = (sx_x64_fixup){.at = start + insn->disp_at,
                                                      .end = start + insn->len,
                                                      .label = arg->label,
                                                      .addend = arg->disp};
    }
}

void sx_x64_put(sx_x64_asm *as, sx_x64_op op, const sx_x64_arg *arg, uint32_t arg_count)
{
    if (!working(as)) {
        return;
    }
    SX_ASSERT(arg_count <= SX_X64_ARG_MAX);
    sx_x64_insn insn = {.op = op, .arg_count = (uint8_t)arg_count};
    for (uint32_t i = 0; i < arg_count; i++) {
        insn.arg[i] = arg[i];
    }
    if (!sx_x64_encode(&insn)) {
        as->code =
            SX_FAIL(as->cx, SX_INTERNAL, "machine code: no form of %s takes these %u operands",
                    sx_x64_op_text(op), arg_count);
        return;
    }
    if (sx_x64_form_level(&sx_x64_forms[insn.form]) > as->level) {
        as->code = SX_FAIL(as->cx, SX_UNIMPLEMENTED,
                           "machine code: this form of %s needs avx-512, the target has avx2",
                           sx_x64_op_text(op));
        return;
    }
    uint32_t start = sx_x64_offset(as);
    sx_buf_put(as->out, insn.byte, insn.len);
    put_fixup(as, &insn, start);
}

static void put_constants(sx_x64_asm *as)
{
    for (uint32_t align = 64; align >= 1 && as->constant_count > 0; align /= 2) {
        for (uint32_t i = 0; i < as->constant_count; i++) {
            const sx_x64_const *constant = &as->constant[i];
            if (constant->align == align && working(as)) {
                sx_buf_pad(as->out, align);
                sx_x64_label_put(as, constant->label);
                sx_buf_put(as->out, constant->bytes, constant->size);
            }
        }
    }
}

sx_code sx_x64_finish(sx_x64_asm *as)
{
    if (working(as) && as->constant_count > 0) {
        sx_buf_pad(as->out, 64);
        put_constants(as);
    }
    for (uint32_t i = 0; i < as->fixup_count && working(as); i++) {
        const sx_x64_fixup *fixup = &as->fixup[i];
        uint32_t target = as->label[fixup->label];
        if (target == SX_X64_NO_LABEL) {
            as->code = SX_FAIL(as->cx, SX_INTERNAL, "machine code: label %u is used but not placed",
                               fixup->label);
            break;
        }
        int64_t distance = (int64_t)target + fixup->addend - (int64_t)fixup->end;
        SX_ASSERT(distance >= INT32_MIN && distance <= INT32_MAX);
        SX_ASSERT((size_t)fixup->at + 4 <= as->out->len);
        for (uint32_t k = 0; k < 4; k++) {
            as->out->ptr[fixup->at + k] = (uint8_t)((uint32_t)distance >> (8 * k));
        }
    }
    as->fixup_count = 0;
    return as->code;
}
