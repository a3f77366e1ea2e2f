/* reader.h - the inside of reading PTX: scan.c makes words of the text, parse.c declarations, parse_insn.c
 * instructions. */
#ifndef SX_CORE_PTX_READER_H
#define SX_CORE_PTX_READER_H
#include "core/ptx/ptx.h"

/* A declared register, or a range of them: .reg .b32 %r<8> declares %r0 to %r7. */
typedef struct {
    sx_span name;   /* of a range: what stands before the number */
    uint32_t count; /* of a range; 0: one register of exactly this name */
    uint32_t first; /* its id */
    uint8_t form;   /* sx_ptx_register_class */
    uint32_t scope; /* nesting of the braces it was declared in */
} sx_ptx_names;

/* A label by name. Labels of inner braces that are not placed there belong to the braces around. */
typedef struct {
    sx_span name;
    uint32_t id, scope;
    uint32_t line; /* where it was first met */
} sx_ptx_label_name;

typedef struct {
    sx_ctx *cx;
    const uint8_t *p, *end; /* what is left of the text */
    uint32_t line;          /* of p, from 1 */
    sx_ptx_module *module;
    sx_ptx_builder b; /* of the kernel being read */
    sx_ptx_names *names;
    uint32_t names_count, names_capacity;
    sx_ptx_label_name *labels;
    uint32_t labels_count, labels_capacity;
    uint32_t *same; /* by label: the label it is, itself mostly */
    uint32_t same_capacity;
    uint32_t scope;
} sx_ptx_reader;

/* ---- scan.c ---- */
/* Skips white space and comments. */
void sx_ptx_skip(sx_ptx_reader *r);
bool sx_ptx_next_is(sx_ptx_reader *r, const char *text);
/* Takes `text` if it comes next; a word must end there. */
bool sx_ptx_take(sx_ptx_reader *r, const char *text);
sx_code sx_ptx_need(sx_ptx_reader *r, const char *text);
/* A name: letters, digits, _ $ %, not beginning with a digit. */
sx_code sx_ptx_need_name(sx_ptx_reader *r, sx_span *name);
/* A whole number with its sign: decimal, 0x, 0b, octal, U at its end; no float. */
sx_code sx_ptx_need_integer(sx_ptx_reader *r, int64_t *value);
sx_code sx_ptx_need_count(sx_ptx_reader *r, int64_t most, uint32_t *value);
/* A number as an argument: a whole one, or 0f... and 0d... for the bits of a float. */
sx_code sx_ptx_need_number(sx_ptx_reader *r, sx_ptx_arg *number);
/* Failures that name the line and what stands there. */
sx_code sx_ptx_expected(sx_ptx_reader *r, const char *what);
sx_code sx_ptx_outside(sx_ptx_reader *r, const char *what, sx_span text);

/* ---- parse.c ---- */
/* The register of this name in the scopes that are open; false: none. */
bool sx_ptx_find_register(const sx_ptx_reader *r, sx_span name, sx_ptx_arg *found);
bool sx_ptx_find_symbol(const sx_ptx_reader *r, sx_span name, sx_ptx_arg *found);
/* The label of this name, made if it is new here. */
sx_code sx_ptx_find_label(sx_ptx_reader *r, sx_span name, sx_ptx_arg *found);

/* ---- build.c ---- */
/* Appends an instruction whose row is not known yet. */
sx_code sx_ptx_append_unknown(sx_ptx_builder *b, const sx_ptx_arg *arg, uint32_t arg_count);

/* ---- parse_insn.c ---- */
/* One instruction with its guard, up to its semicolon. */
sx_code sx_ptx_read_insn(sx_ptx_reader *r);
#endif
