/* parse_insn.c - instructions of PTX text: which row of the table they are, and their arguments. */
#include "core/ptx/reader.h"

#include <string.h>

#define WORDS_MAX 24

/* ---- arguments ---- */
static sx_code read_offset(sx_ptx_reader *r, int64_t *value)
{
    *value = 0;
    if (sx_ptx_take(r, "+")) {
        return sx_ptx_need_integer(r, value);
    }
    return sx_ptx_next_is(r, "-") ? sx_ptx_need_integer(r, value) : SX_OK;
}

/* Behind a bracket: register + offset, variable + offset or a number. */
static sx_code read_address(sx_ptx_reader *r, sx_ptx_arg *arg)
{
    *arg = (sx_ptx_arg){.kind = SX_PTX_ARG_MEMORY, .base = SX_PTX_ARG_IMMEDIATE};
    sx_ptx_skip(r);
    if (r->p < r->end && *r->p >= '0' && *r->p <= '9') {
        return sx_ptx_need_integer(r, &arg->value);
    }
    sx_span name;
    SX_TRY(sx_ptx_need_name(r, &name));
    sx_ptx_arg base;
    if (!sx_ptx_find_register(r, name, &base) && !sx_ptx_find_symbol(r, name, &base)) {
        return sx_ptx_expected(r, "a register or variable that is declared");
    }
    arg->base = base.kind;
    arg->form = base.form;
    arg->id = base.id;
    return read_offset(r, &arg->value);
}

static bool find_special(sx_span name, sx_ptx_arg *arg)
{
    for (uint32_t s = 0; s < SX_PTX_SPECIAL_COUNT; s++) {
        if (sx_span_is(name, sx_ptx_special_of((sx_ptx_special)s)->text)) {
            *arg = (sx_ptx_arg){.kind = SX_PTX_ARG_SPECIAL, .id = s};
            return true;
        }
    }
    return false;
}

/* Special registers and some others have a dot in their names. */
static sx_code read_word(sx_ptx_reader *r, sx_span *word)
{
    SX_TRY(sx_ptx_need_name(r, word));
    bool dotted = r->end - r->p >= 2 && r->p[0] == '.' && r->p[1] >= 'w' && r->p[1] <= 'z';
    if (word->ptr[0] == '%' && dotted) {
        r->p += 2;
        word->len += 2;
    }
    return SX_OK;
}

static sx_code read_named(sx_ptx_reader *r, sx_ptx_arg *arg)
{
    sx_span word;
    SX_TRY(read_word(r, &word));
    if (sx_span_is(word, "_")) {
        *arg = (sx_ptx_arg){.kind = SX_PTX_ARG_SINK};
        return SX_OK;
    }
    if (sx_ptx_find_register(r, word, arg)) {
        if (!sx_ptx_take(r, "|")) {
            return SX_OK;
        }
        sx_ptx_arg second;
        SX_TRY(sx_ptx_need_name(r, &word));
        if (!sx_ptx_find_register(r, word, &second) || second.form != SX_PTX_PRED) {
            return sx_ptx_expected(r, "a predicate that is declared");
        }
        arg->count = 1 + second.id;
        return SX_OK;
    }
    if (find_special(word, arg)) {
        return SX_OK;
    }
    if (sx_ptx_find_symbol(r, word, arg)) {
        return read_offset(r, &arg->value);
    }
    if (word.ptr[0] == '%') {
        return sx_ptx_outside(r, "the register", word);
    }
    return sx_ptx_find_label(r, word, arg);
}

/* Anything but a vector or an address. */
static sx_code read_simple(sx_ptx_reader *r, sx_ptx_arg *arg)
{
    if (sx_ptx_take(r, "!")) {
        SX_TRY(read_named(r, arg));
        arg->negated = 1;
        return arg->kind == SX_PTX_ARG_REGISTER ? SX_OK : sx_ptx_expected(r, "a predicate");
    }
    sx_ptx_skip(r);
    bool number = r->p < r->end && ((*r->p >= '0' && *r->p <= '9') || *r->p == '-');
    return number ? sx_ptx_need_number(r, arg) : read_named(r, arg);
}

/* A vector, behind its first brace. */
static sx_code read_vector(sx_ptx_reader *r, sx_ptx_arg *arg)
{
    sx_ptx_arg element[256];
    uint32_t count = 0;
    do {
        if (count == SX_COUNT(element)) {
            return sx_ptx_expected(r, "at most 256 elements");
        }
        SX_TRY(read_simple(r, &element[count++]));
    } while (sx_ptx_take(r, ","));
    SX_TRY(sx_ptx_need(r, "}"));
    *arg = sx_ptx_vector(&r->b, element, count);
    return r->b.code;
}

/* An argument; an address and coordinates in the same brackets are two. */
static sx_code read_arg(sx_ptx_reader *r, sx_ptx_arg arg[2], uint32_t *count)
{
    *count = 1;
    if (sx_ptx_take(r, "{")) {
        return read_vector(r, arg);
    }
    if (!sx_ptx_take(r, "[")) {
        return read_simple(r, arg);
    }
    SX_TRY(read_address(r, arg));
    if (sx_ptx_take(r, ",")) {
        SX_TRY(sx_ptx_need(r, "{"));
        SX_TRY(read_vector(r, &arg[1]));
        arg[1].form = 1;
        *count = 2;
    }
    return sx_ptx_need(r, "]");
}

/* ---- the row ---- */
typedef struct {
    sx_span name;                /* up to the first dot */
    sx_span modifier[WORDS_MAX]; /* with their dots */
    uint32_t count;
    sx_span whole;
} opcode;

static bool in_opcode(uint8_t c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == ':';
}

static sx_code read_opcode(sx_ptx_reader *r, opcode *op)
{
    sx_ptx_skip(r);
    const uint8_t *start = r->p;
    op->count = 0;
    op->name = (sx_span){start, 0};
    for (;;) {
        const uint8_t *word = r->p;
        r->p += r->p < r->end && *r->p == '.' ? 1 : 0;
        while (r->p < r->end && in_opcode(*r->p)) {
            r->p++;
        }
        sx_span text = {word, (size_t)(r->p - word)};
        if (word == start) {
            op->name = text;
        } else if (op->count < WORDS_MAX) {
            op->modifier[op->count++] = text;
        } else {
            return sx_ptx_expected(r, "fewer modifiers");
        }
        if (r->p == r->end || *r->p != '.') {
            break;
        }
    }
    op->whole = (sx_span){start, (size_t)(r->p - start)};
    return op->name.len > 0 && op->name.ptr[0] != '.' ? SX_OK
                                                      : sx_ptx_expected(r, "an instruction");
}

/* Has some row this name and these modifiers? Where none has, its arguments need not be any that are known here. */
static bool is_in_subset(const opcode *op)
{
    bool found = false;
    for (uint32_t i = 0; i < SX_PTX_OP_COUNT && !found; i++) {
        const sx_ptx_row *row = sx_ptx_row_of((sx_ptx_op)i);
        uint16_t slot[SX_PTX_SLOTS_MAX];
        found =
            sx_span_is(op->name, row->text) && sx_ptx_row_reads(row, op->modifier, op->count, slot);
    }
    return found;
}

/* Gives the last instruction the first row that takes its modifiers and arguments. */
static sx_code choose_row(sx_ptx_reader *r, const opcode *op)
{
    sx_ptx_kernel *k = r->b.kernel;
    sx_ptx_insn *insn = &k->insn[k->insn_count - 1];
    const char *misfit = NULL;
    for (uint32_t i = 0; i < SX_PTX_OP_COUNT; i++) {
        const sx_ptx_row *row = sx_ptx_row_of((sx_ptx_op)i);
        uint16_t slot[SX_PTX_SLOTS_MAX];
        if (!sx_span_is(op->name, row->text) ||
            !sx_ptx_row_reads(row, op->modifier, op->count, slot)) {
            continue;
        }
        insn->op = (uint16_t)i;
        memcpy(insn->modifier, slot, sizeof(slot));
        const char *reason = sx_ptx_modifiers_misfit(insn);
        reason = reason != NULL ? reason : sx_ptx_args_misfit(r->module, k, insn);
        if (reason == NULL) {
            return SX_OK;
        }
        misfit = misfit == NULL ? reason : misfit;
    }
    SX_ASSERT(misfit != NULL); /* some row reads the modifiers */
    return SX_FAIL(r->cx, SX_INPUT, "PTX line %u: %.*s: %s", insn->line,
                   (int)(op->whole.len < 120 ? op->whole.len : 120), (const char *)op->whole.ptr,
                   misfit);
}

static sx_code read_guard(sx_ptx_reader *r)
{
    if (!sx_ptx_take(r, "@")) {
        return SX_OK;
    }
    bool negated = sx_ptx_take(r, "!");
    sx_span name;
    sx_ptx_arg predicate;
    SX_TRY(sx_ptx_need_name(r, &name));
    if (!sx_ptx_find_register(r, name, &predicate) || predicate.form != SX_PTX_PRED) {
        return sx_ptx_expected(r, "a predicate that is declared");
    }
    sx_ptx_guard(&r->b, negated ? sx_ptx_not(predicate) : predicate);
    return SX_OK;
}

sx_code sx_ptx_read_insn(sx_ptx_reader *r)
{
    uint32_t line = r->line;
    SX_TRY(read_guard(r));
    opcode op;
    SX_TRY(read_opcode(r, &op));
    if (!is_in_subset(&op)) {
        return sx_ptx_outside(r, "the instruction", op.whole);
    }
    sx_ptx_arg arg[SX_PTX_OPERANDS_MAX + 1];
    uint32_t count = 0;
    if (!sx_ptx_take(r, ";")) {
        do {
            uint32_t read;
            if (count == SX_PTX_OPERANDS_MAX) {
                return sx_ptx_outside(r, "the instruction", op.whole);
            }
            if (read_arg(r, &arg[count], &read) != SX_OK) {
                return sx_fail_in(r->cx, "%.*s", (int)(op.whole.len < 80 ? op.whole.len : 80),
                                  (const char *)op.whole.ptr);
            }
            count += read;
        } while (sx_ptx_take(r, ","));
        if (count > SX_PTX_OPERANDS_MAX) {
            return sx_ptx_outside(r, "the instruction", op.whole);
        }
        SX_TRY(sx_ptx_need(r, ";"));
    }
    /* Any row for the moment: the right one is found with its arguments in place. */
    SX_TRY(sx_ptx_append_unknown(&r->b, arg, count));
    r->b.kernel->insn[r->b.kernel->insn_count - 1].line = line;
    return choose_row(r, &op);
}
