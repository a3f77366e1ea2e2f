#include "core/x64/form.h"

#include <string.h>

#define FRAME_MAX (1 << 20) /* bytes of stack an entry may use */

/* Byte k of the blob: 0 not reached, START an instruction begins, BODY inside one. */
enum { FREE, START, BODY };

typedef struct {
    sx_ctx *cx;
    sx_span blob;
    sx_x64_level level;
    uint8_t *state;
    int32_t *depth; /* bytes pushed since the entry, at every START */
    uint32_t *work; /* offsets still to be walked */
    uint32_t work_count;
    sx_x64_decoder decoder;
} walk;

static sx_code refuse(const walk *w, uint32_t offset, const char *why)
{
    return SX_FAIL(w->cx, SX_INPUT, "machine code at offset %u: %s", offset, why);
}

/* Control reaches `target` with `depth`: queue it, or check that it agrees with what is known. */
static sx_code reach(walk *w, uint32_t from, int64_t target, int32_t depth)
{
    if (target < 0 || (uint64_t)target >= w->blob.len) {
        return refuse(w, from, "control leaves the code");
    }
    uint32_t at = (uint32_t)target;
    if (w->state[at] == BODY) {
        return refuse(w, from, "jump into the middle of an instruction");
    }
    if (w->state[at] == START) {
        return w->depth[at] == depth ? SX_OK : refuse(w, from, "stack depth differs at a join");
    }
    w->state[at] = START;
    w->depth[at] = depth;
    w->work[w->work_count++] = at; /* a byte becomes START once: room for all */
    return SX_OK;
}

static bool is_move_of_rsp(const sx_x64_insn *insn)
{
    return (insn->op == SX_X64_ADD || insn->op == SX_X64_SUB) && insn->arg[0].kind == SX_X64_R64 &&
           insn->arg[0].reg == SX_RSP && insn->arg[1].kind == SX_X64_IMM;
}

static bool names_rsp(const sx_x64_insn *insn)
{
    for (uint32_t i = 0; i < insn->arg_count; i++) {
        const sx_x64_arg *arg = &insn->arg[i];
        if ((arg->kind == SX_X64_R64 || arg->kind == SX_X64_R32) && arg->reg == SX_RSP) {
            return true;
        }
    }
    return false;
}

/* Memory operand: rip-relative loads stay in the blob, accesses off rsp in the frame, lea and prefetch touch
 * nothing. */
static sx_code check_mem(const walk *w, uint32_t at, const sx_x64_insn *insn, uint32_t index,
                         int32_t depth)
{
    const sx_x64_form *form = &sx_x64_forms[insn->form];
    const sx_x64_arg *arg = &insn->arg[index];
    uint32_t length = 0;
    SX_ASSERT(sx_x64_form_match(form, insn, &length));
    uint32_t size = sx_x64_spec_mem(sx_x64_form_spec(form, index), length);
    size = arg->broadcast ? sx_x64_form_broadcast(form) : size;
    if (arg->reg == SX_X64_RIP) {
        int64_t from = (int64_t)at + insn->len + arg->disp;
        if ((form->flags & SX_FLAG_STORE) != 0) {
            return refuse(w, at, "store into the code");
        }
        if (from < 0 || from + size > (int64_t)w->blob.len) {
            return refuse(w, at, "constant outside the blob");
        }
    } else if (arg->reg == SX_RSP) {
        if (arg->index != SX_X64_NO_REG || size == 0) {
            return refuse(w, at, "address of the stack with an index or as a value");
        }
        bool store = (form->flags & SX_FLAG_STORE) != 0;
        int64_t end = (int64_t)arg->disp + size;
        if (arg->disp < 0 || end > (int64_t)depth + (store ? 0 : FRAME_MAX)) {
            return refuse(w, at, "access off rsp outside the frame");
        }
    }
    return SX_OK;
}

/* Stack depth after the instruction. */
static sx_code move_stack(const walk *w, uint32_t at, const sx_x64_insn *insn, int32_t *depth)
{
    int64_t next = *depth;
    if (is_move_of_rsp(insn)) {
        next += insn->op == SX_X64_SUB ? insn->arg[1].imm : -insn->arg[1].imm;
    } else if (names_rsp(insn)) {
        return refuse(w, at, "rsp as an operand");
    } else if (insn->op == SX_X64_PUSH) {
        next += 8;
    } else if (insn->op == SX_X64_POP) {
        next -= 8;
    }
    if (next < 0 || next > FRAME_MAX) {
        return refuse(w, at, "stack leaves the frame");
    }
    *depth = (int32_t)next;
    return SX_OK;
}

/* Marks the bytes of an instruction; its first is START already. */
static sx_code mark(walk *w, uint32_t at, uint32_t len)
{
    for (uint32_t i = 1; i < len; i++) {
        if (w->state[at + i] == START) {
            return refuse(w, at, "instruction overlaps a jump target");
        }
        w->state[at + i] = BODY;
    }
    return SX_OK;
}

/* One instruction at a START: checks it and reaches its successors. */
static sx_code step(walk *w, uint32_t at)
{
    sx_x64_insn insn;
    sx_span rest = {w->blob.ptr + at, w->blob.len - at};
    if (!sx_x64_decode(&w->decoder, rest, &insn)) {
        return refuse(w, at, "no listed instruction");
    }
    if (sx_x64_form_level(&sx_x64_forms[insn.form]) > w->level) {
        return refuse(w, at, "avx-512 instruction in code for avx2");
    }
    SX_TRY(mark(w, at, insn.len));
    int32_t depth = w->depth[at];
    for (uint32_t i = 0; i < insn.arg_count; i++) {
        if (insn.arg[i].kind == SX_X64_MEM) {
            SX_TRY(check_mem(w, at, &insn, i, depth));
        }
    }
    SX_TRY(move_stack(w, at, &insn, &depth));
    if (insn.op == SX_X64_RET) {
        return depth == 0 ? SX_OK
                          : refuse(w, at, "ret with a stack that is not at its entry depth");
    }
    uint32_t next = at + insn.len;
    if (insn.arg_count == 1 && insn.arg[0].kind == SX_X64_LABEL) {
        SX_TRY(reach(w, at, (int64_t)next + insn.arg[0].disp, depth));
        if (insn.op == SX_X64_JMP) {
            return SX_OK;
        }
    }
    return reach(w, at, next, depth);
}

sx_code sx_x64_check(sx_ctx *cx, sx_span blob, sx_x64_level level, const uint32_t *entry,
                     uint32_t entry_count)
{
    if (blob.len > SX_X64_BLOB_MAX) {
        return SX_FAIL(cx, SX_LIMIT, "machine code: %zu bytes, at most %zu", blob.len,
                       SX_X64_BLOB_MAX);
    }
    walk *w = SX_NEW(cx, walk);
    if (w == NULL) {
        return cx->error.code;
    }
    *w = (walk){.cx = cx, .blob = blob, .level = level};
    w->state = SX_NEW_ARRAY(cx, uint8_t, blob.len + 1);
    w->depth = SX_NEW_ARRAY(cx, int32_t, blob.len + 1);
    w->work = SX_NEW_ARRAY(cx, uint32_t, blob.len + 1);
    if (w->state == NULL || w->depth == NULL || w->work == NULL) {
        return cx->error.code;
    }
    sx_x64_decoder_init(&w->decoder);
    for (uint32_t i = 0; i < entry_count; i++) {
        SX_TRY(reach(w, entry[i], entry[i], 0));
        while (w->work_count > 0) {
            SX_TRY(step(w, w->work[--w->work_count]));
        }
    }
    return SX_OK;
}
