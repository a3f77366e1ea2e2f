/* lex.h - tokens of the text form. Private to core/ir.
 *
 * Tokens: names [A-Za-z_][A-Za-z0-9_]*, values %[A-Za-z0-9_.]+, numbers, strings in double quotes, and { } ( )
 * [ ] , = : * +. Blanks, tabs, line ends and comments from // to the end of the line separate tokens. The
 * lexer is a value: a copy reads the same text again.
 */
#ifndef SX_CORE_IR_LEX_H
#define SX_CORE_IR_LEX_H
#include "core/ir/ir.h"

typedef enum {
    SX_TOKEN_END,
    SX_TOKEN_NAME,
    SX_TOKEN_VALUE,  /* text without the % */
    SX_TOKEN_NUMBER, /* also -inf */
    SX_TOKEN_STRING, /* text between the quotes, escapes as written */
    SX_TOKEN_MARK    /* one character */
} sx_token_kind;
typedef struct {
    sx_token_kind kind;
    sx_span text;
    uint32_t line; /* from 1 */
    uint32_t column;
} sx_token;
typedef struct {
    sx_ctx *cx;
    sx_span text;
    size_t at; /* behind `token` */
    size_t line_start;
    uint32_t line;
    uint32_t depth; /* programs around this place */
    sx_token token; /* not yet taken */
} sx_lexer;

/* Reads the first token. */
sx_code sx_lex_init(sx_ctx *cx, sx_lexer *lex, sx_span text);
sx_code sx_lex_next(sx_lexer *lex);
/* SX_FAIL at the current token: "line L:C: ...". */
sx_code sx_lex_fail(sx_lexer *lex, sx_code code, const char *format, ...) SX_PRINTF(3, 4);
/* "line L:C: expected WHAT, found TOKEN". */
sx_code sx_lex_unexpected(sx_lexer *lex, const char *what);

bool sx_lex_is_mark(const sx_lexer *lex, char mark);
bool sx_lex_is_word(const sx_lexer *lex, const char *word);
sx_code sx_lex_mark(sx_lexer *lex, char mark);
sx_code sx_lex_word(sx_lexer *lex, const char *word);
/* Takes `mark` if it is the next token. */
sx_code sx_lex_accept(sx_lexer *lex, char mark, bool *taken);
sx_code sx_lex_int(sx_lexer *lex, int64_t *value);
/* A finite decimal number, inf, -inf, nan, or 0x and the bits of an element, as the bits of `dtype`. */
sx_code sx_lex_float(sx_lexer *lex, sx_dtype dtype, uint64_t *bits);
/* A string with its escapes \" \\ \xNN resolved, in cx's arena; at most SX_NAME_MAX bytes. */
sx_code sx_lex_string(sx_lexer *lex, sx_span *value);
/* A string of hex digits as bytes in cx's arena. */
sx_code sx_lex_hex(sx_lexer *lex, sx_span *value);
#endif
