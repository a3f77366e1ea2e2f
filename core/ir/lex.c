#include "core/ir/lex.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/ir/check.h"
#include "core/ir/num.h"

#define NUMBER_BYTES_MAX 400 /* longer than any shortest decimal of a double */

static bool is_digit(uint8_t c)
{
    return c >= '0' && c <= '9';
}

static bool is_word_start(uint8_t c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_word(uint8_t c)
{
    return is_word_start(c) || is_digit(c);
}

sx_code sx_lex_fail(sx_lexer *lex, sx_code code, const char *format, ...)
{
    char text[SX_ERROR_TEXT_MAX - 32];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    return SX_FAIL(lex->cx, code, "line %u:%u: %s", lex->token.line, lex->token.column, text);
}

sx_code sx_lex_unexpected(sx_lexer *lex, const char *what)
{
    static const char *const before[] = {"the end", "'", "'%", "'", "\"", "'"};
    static const char *const after[] = {"", "'", "'", "'", "\"", "'"};
    SX_ASSERT(lex->token.kind < SX_COUNT(before));
    return sx_lex_fail(lex, SX_INPUT, "expected %s, found %s%s%s", what, before[lex->token.kind],
                       sx_short_name(lex->token.text).text, after[lex->token.kind]);
}

/* Blanks and comments. */
static void skip_blank(sx_lexer *lex)
{
    const sx_span text = lex->text;
    while (lex->at < text.len) {
        uint8_t c = text.ptr[lex->at];
        if (c == '\n') {
            lex->at++;
            lex->line++;
            lex->line_start = lex->at;
        } else if (c == ' ' || c == '\t' || c == '\r') {
            lex->at++;
        } else if (c == '/' && lex->at + 1 < text.len && text.ptr[lex->at + 1] == '/') {
            while (lex->at < text.len && text.ptr[lex->at] != '\n') {
                lex->at++;
            }
        } else {
            return;
        }
    }
}

/* Bytes of a number from `at`: letters, digits, point, and a sign right behind e or E unless it is 0x. */
static size_t number_length(sx_span text, size_t at)
{
    size_t end = at + (text.ptr[at] == '-' ? 1 : 0);
    bool hex = end + 1 < text.len && text.ptr[end] == '0' && text.ptr[end + 1] == 'x';
    while (end < text.len) {
        uint8_t c = text.ptr[end];
        uint8_t before = end > at ? text.ptr[end - 1] : 0;
        bool exponent = !hex && (before == 'e' || before == 'E') && (c == '+' || c == '-');
        if (!is_word(c) && c != '.' && !exponent) {
            break;
        }
        end++;
    }
    return end - at;
}

/* Bytes up to the closing quote, or SIZE_MAX if there is none on this line. */
static size_t string_length(sx_span text, size_t at)
{
    for (size_t end = at; end < text.len; end++) {
        uint8_t c = text.ptr[end];
        if (c == '"') {
            return end - at;
        }
        if (c < 0x20 || c == 0x7f) {
            return SIZE_MAX;
        }
        end += c == '\\' ? 1 : 0;
    }
    return SIZE_MAX;
}

sx_code sx_lex_next(sx_lexer *lex)
{
    skip_blank(lex);
    const sx_span text = lex->text;
    sx_token *token = &lex->token;
    size_t start = lex->at;
    *token = (sx_token){.line = lex->line, .column = (uint32_t)(start - lex->line_start + 1)};
    if (start >= text.len) {
        return SX_OK;
    }
    uint8_t c = text.ptr[start];
    size_t length = 1;
    if (is_word_start(c)) {
        token->kind = SX_TOKEN_NAME;
        while (start + length < text.len && is_word(text.ptr[start + length])) {
            length++;
        }
    } else if (is_digit(c) || c == '-') {
        token->kind = SX_TOKEN_NUMBER;
        length = number_length(text, start);
    } else if (c == '%') {
        token->kind = SX_TOKEN_VALUE;
        lex->at = ++start;
        for (length = 0; start + length < text.len; length++) {
            uint8_t d = text.ptr[start + length];
            if (!is_word(d) && d != '.') {
                break;
            }
        }
        if (length == 0 || length > SX_NAME_MAX) {
            return sx_lex_fail(lex, SX_INPUT, "value name of %zu bytes, 1 to %d", length,
                               SX_NAME_MAX);
        }
    } else if (c == '"') {
        token->kind = SX_TOKEN_STRING;
        length = string_length(text, ++start);
        if (length == SIZE_MAX) {
            return sx_lex_fail(lex, SX_INPUT, "string without closing quote on its line");
        }
        lex->at = start + 1; /* the closing quote counts */
    } else if (strchr("{}()[],=:*+", c) != NULL && c != '\0') {
        token->kind = SX_TOKEN_MARK;
    } else {
        return sx_lex_fail(lex, SX_INPUT, "unexpected byte 0x%02x", c);
    }
    token->text = (sx_span){text.ptr + start, length};
    lex->at += length;
    return SX_OK;
}

sx_code sx_lex_init(sx_ctx *cx, sx_lexer *lex, sx_span text)
{
    SX_ASSERT(text.ptr != NULL || text.len == 0);
    *lex = (sx_lexer){.cx = cx, .text = text, .line = 1};
    return sx_lex_next(lex);
}

bool sx_lex_is_mark(const sx_lexer *lex, char mark)
{
    return lex->token.kind == SX_TOKEN_MARK && lex->token.text.ptr[0] == (uint8_t)mark;
}

bool sx_lex_is_word(const sx_lexer *lex, const char *word)
{
    return lex->token.kind == SX_TOKEN_NAME && sx_span_is(lex->token.text, word);
}

sx_code sx_lex_mark(sx_lexer *lex, char mark)
{
    if (!sx_lex_is_mark(lex, mark)) {
        char what[4] = {'\'', mark, '\'', '\0'};
        return sx_lex_unexpected(lex, what);
    }
    return sx_lex_next(lex);
}

sx_code sx_lex_word(sx_lexer *lex, const char *word)
{
    if (!sx_lex_is_word(lex, word)) {
        return sx_lex_unexpected(lex, word);
    }
    return sx_lex_next(lex);
}

sx_code sx_lex_accept(sx_lexer *lex, char mark, bool *taken)
{
    *taken = sx_lex_is_mark(lex, mark);
    return *taken ? sx_lex_next(lex) : SX_OK;
}

sx_code sx_lex_int(sx_lexer *lex, int64_t *value)
{
    sx_span text = lex->token.text;
    if (lex->token.kind != SX_TOKEN_NUMBER) {
        return sx_lex_unexpected(lex, "an integer");
    }
    bool negative = text.ptr[0] == '-';
    int64_t sum = 0;
    bool fits = text.len > (negative ? 1 : 0);
    for (size_t i = negative ? 1 : 0; i < text.len && fits; i++) {
        int64_t digit = (int64_t)text.ptr[i] - '0';
        fits = is_digit(text.ptr[i]) && sx_mul_i64(sum, 10, &sum) &&
               sx_add_i64(sum, negative ? -digit : digit, &sum);
    }
    if (!fits) {
        return sx_lex_unexpected(lex, "an integer of 64 bits");
    }
    *value = sum;
    return sx_lex_next(lex);
}

static int hex_digit(uint8_t c)
{
    if (is_digit(c)) {
        return c - '0';
    }
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* 0x and exactly the digits of the type. */
static sx_code raw_bits(sx_lexer *lex, sx_dtype dtype, uint64_t *bits)
{
    sx_span text = lex->token.text;
    size_t digits = (size_t)sx_dtype_bytes(dtype) * 2;
    bool good = text.len == digits + 2;
    *bits = 0;
    for (size_t i = 2; i < text.len && good; i++) {
        int digit = hex_digit(text.ptr[i]);
        good = digit >= 0;
        *bits = *bits << 4 | (uint64_t)(digit & 15);
    }
    if (!good) {
        return sx_lex_fail(lex, SX_INPUT, "bits of %s are 0x and %zu lower-case hex digits",
                           sx_dtype_name(dtype), digits);
    }
    return sx_lex_next(lex);
}

/* A decimal number: digits, point, exponent; nothing else that strtod takes. */
static bool decimal(sx_span text, double *value)
{
    char copy[NUMBER_BYTES_MAX + 1];
    if (text.len == 0 || text.len > NUMBER_BYTES_MAX) {
        return false;
    }
    size_t first = text.ptr[0] == '-' ? 1 : 0;
    if (first >= text.len || !is_digit(text.ptr[first])) {
        return false;
    }
    for (size_t i = first; i < text.len; i++) {
        if (!is_digit(text.ptr[i]) && memchr(".eE+-", text.ptr[i], 5) == NULL) {
            return false;
        }
    }
    memcpy(copy, text.ptr, text.len);
    copy[text.len] = '\0';
    char *end;
    *value = strtod(copy, &end);
    return end == copy + text.len;
}

sx_code sx_lex_float(sx_lexer *lex, sx_dtype dtype, uint64_t *bits)
{
    sx_span text = lex->token.text;
    double value;
    if (lex->token.kind != SX_TOKEN_NUMBER && lex->token.kind != SX_TOKEN_NAME) {
        return sx_lex_unexpected(lex, "a number");
    }
    if (text.len > 2 && text.ptr[0] == '0' && text.ptr[1] == 'x') {
        return raw_bits(lex, dtype, bits);
    }
    bool special = true;
    if (sx_span_is(text, "inf") || sx_span_is(text, "-inf")) {
        value = text.ptr[0] == '-' ? -HUGE_VAL : HUGE_VAL;
    } else if (sx_span_is(text, "nan")) {
        value = (double)NAN;
    } else if (decimal(text, &value)) {
        special = false;
    } else {
        return sx_lex_unexpected(lex, "a number");
    }
    *bits = sx_num_encode(dtype, value);
    double stored = sx_num_decode(dtype, *bits);
    if ((!special && !isfinite(stored)) || (special && !isnan(value) && !isinf(stored))) {
        return sx_lex_fail(lex, SX_INPUT, "%s does not fit %s", sx_short_name(text).text,
                           sx_dtype_name(dtype));
    }
    return sx_lex_next(lex);
}

sx_code sx_lex_string(sx_lexer *lex, sx_span *value)
{
    if (lex->token.kind != SX_TOKEN_STRING) {
        return sx_lex_unexpected(lex, "a string");
    }
    sx_span text = lex->token.text;
    uint8_t bytes[SX_NAME_MAX];
    size_t used = 0;
    for (size_t i = 0; i < text.len; i++) {
        uint8_t c = text.ptr[i];
        if (used == sizeof(bytes)) {
            return sx_lex_fail(lex, SX_INPUT, "name of more than %d bytes", SX_NAME_MAX);
        }
        if (c == '\\') {
            SX_ASSERT(i + 1 < text.len); /* the lexer saw what follows */
            c = text.ptr[++i];
            int high = c == 'x' && i + 2 < text.len ? hex_digit(text.ptr[i + 1]) : -1;
            int low = high >= 0 ? hex_digit(text.ptr[i + 2]) : -1;
            if (low >= 0) {
                c = (uint8_t)(high * 16 + low);
                i += 2;
            } else if (c != '"' && c != '\\') {
                return sx_lex_fail(lex, SX_INPUT,
                                   "escape at byte %zu of the string is not \\\", \\\\ or \\xNN",
                                   i);
            }
        }
        bytes[used++] = c;
    }
    const char *copy = sx_alloc_text(lex->cx, (sx_span){bytes, used});
    if (copy == NULL) {
        return lex->cx->error.code;
    }
    *value = (sx_span){(const uint8_t *)copy, used};
    return sx_lex_next(lex);
}

sx_code sx_lex_hex(sx_lexer *lex, sx_span *value)
{
    SX_ASSERT(lex->token.kind == SX_TOKEN_STRING);
    sx_span text = lex->token.text;
    uint8_t *bytes = sx_alloc(lex->cx, text.len / 2 + 1);
    if (bytes == NULL) {
        return lex->cx->error.code;
    }
    for (size_t i = 0; i < text.len; i++) {
        int digit = hex_digit(text.ptr[i]);
        if (digit < 0 || text.len % 2 != 0) {
            return sx_lex_fail(lex, SX_INPUT, "data of %zu characters is not pairs of hex digits",
                               text.len);
        }
        bytes[i / 2] = (uint8_t)(bytes[i / 2] << 4 | digit);
    }
    *value = (sx_span){bytes, text.len / 2};
    return sx_lex_next(lex);
}
