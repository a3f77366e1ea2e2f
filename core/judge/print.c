/* print.c - terms and records as text, for tests and for looking into a refusal. */
#include "core/judge/record.h"

static void print_form(const sx_algebra *g, uint32_t form, sx_buf *text)
{
    sx_lin lin;
    sx_lin_get(g, form, &lin);
    sx_buf_print(text, "%lld", (long long)lin.constant);
    for (uint64_t left = lin.vars; left != 0; left &= left - 1) {
        uint32_t v = (uint32_t)__builtin_ctzll(left);
        const char *kind = v < SX_VAR_LANE ? "v" : v == SX_VAR_LANE ? "lane" : "";
        sx_buf_print(text, " + %lld*%s", (long long)lin.coef[v], kind);
        if (v >= SX_VAR_STORE) {
            sx_buf_print(text, "s%u", v - SX_VAR_STORE);
        } else if (v >= SX_VAR_RUN) {
            sx_buf_print(text, "r%u.%u", (v - SX_VAR_RUN) / SX_RUN_DEPTH,
                         (v - SX_VAR_RUN) % SX_RUN_DEPTH);
        } else if (v < SX_VAR_LANE) {
            sx_buf_print(text, "%u", v);
        }
    }
}

void sx_term_print(const sx_algebra *g, uint32_t term, uint32_t depth, sx_buf *text)
{
    const sx_term *t = &g->term[term];
    if (depth == 0) {
        sx_buf_put_text(text, "...");
        return;
    }
    switch ((sx_term_kind)t->kind) {
    case SX_TERM_CONST:
        sx_buf_print(text, "0x%08llx", (unsigned long long)sx_term_bits(g, t));
        return;
    case SX_TERM_ACC: sx_buf_put_text(text, "acc"); return;
    case SX_TERM_HOLE: sx_buf_print(text, "hole%u", t->imm); return;
    case SX_TERM_PART: sx_buf_print(text, "part%u", t->imm); return;
    case SX_TERM_STATE: sx_buf_print(text, "state%u[", t->imm); break;
    case SX_TERM_RECUR:
        sx_buf_print(text, "recur%u %lld[", t->imm, (long long)g->form[t->form].constant);
        break;
    case SX_TERM_ELEMENT: sx_buf_print(text, "b%u.%u[", t->imm, t->width); break;
    case SX_TERM_INT: sx_buf_put_text(text, "int["); break;
    case SX_TERM_RUN:
        sx_buf_print(text, "run%u[", t->imm);
        for (uint32_t k = 0; k < (uint32_t)g->form[t->form].constant; k++) {
            sx_buf_print(text, " %lld", (long long)g->coef[g->form[t->form].first + k]);
        }
        break;
    case SX_TERM_OP:
        sx_buf_print(text, "%s.%u(",
                     t->op < SX_LOP_COUNT       ? sx_lop_info_of(t->op)->name
                     : (int)t->op < SX_LOP_NMAX ? "imm"
                                                : "order",
                     t->imm);
        break;
    }
    if (t->kind == SX_TERM_ELEMENT || t->kind == SX_TERM_INT || t->kind == SX_TERM_STATE) {
        print_form(g, t->form, text);
    }
    for (uint32_t k = 0; k < 3 && t->child[k] != 0; k++) {
        sx_buf_put_text(text, k == 0 ? "" : ", ");
        sx_term_print(g, t->child[k], depth - 1, text);
    }
    sx_buf_put_text(text, t->kind == SX_TERM_OP ? ")" : "]");
}

void sx_record_print(const sx_algebra *g, const sx_record *record, sx_buf *text)
{
    sx_buf_print(text, "b%u.%u[", record->buffer, record->width);
    print_form(g, record->address, text);
    sx_buf_put_text(text, "] :");
    for (uint32_t k = 0; k < record->dims; k++) {
        sx_buf_print(text, " s%u<%lld", k, (long long)record->count[k]);
    }
    sx_buf_put_text(text, " = ");
    if (record->value != 0) {
        sx_term_print(g, record->value, 7, text);
    }
    sx_buf_put_text(text, "\n");
}
