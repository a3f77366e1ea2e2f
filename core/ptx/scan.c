/* scan.c - words and numbers of PTX text. */
#include "core/ptx/reader.h"

#include <string.h>

static bool is_letter(uint8_t c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$' || c == '%';
}

static bool is_digit(uint8_t c)
{
    return c >= '0' && c <= '9';
}

static void skip_comment(sx_ptx_reader *r)
{
    bool block = r->p[1] == '*';
    r->p += 2;
    while (r->p < r->end) {
        if (block && *r->p == '*' && r->end - r->p >= 2 && r->p[1] == '/') {
            r->p += 2;
            return;
        }
        if (*r->p == '\n' && !block) {
            return;
        }
        r->line += *r->p++ == '\n';
    }
}

void sx_ptx_skip(sx_ptx_reader *r)
{
    while (r->p < r->end) {
        uint8_t c = *r->p;
        if (c == ' ' || c == '\t' || c == '\r' || c == '\n') {
            r->line += c == '\n';
            r->p++;
        } else if (c == '/' && r->end - r->p >= 2 && (r->p[1] == '/' || r->p[1] == '*')) {
            skip_comment(r);
        } else {
            return;
        }
    }
}

bool sx_ptx_next_is(sx_ptx_reader *r, const char *text)
{
    sx_ptx_skip(r);
    size_t n = strlen(text);
    if ((size_t)(r->end - r->p) < n || memcmp(r->p, text, n) != 0) {
        return false;
    }
    bool word = is_letter((uint8_t)text[n - 1]) || is_digit((uint8_t)text[n - 1]);
    return !word || r->p + n == r->end || !(is_letter(r->p[n]) || is_digit(r->p[n]));
}

bool sx_ptx_take(sx_ptx_reader *r, const char *text)
{
    bool here = sx_ptx_next_is(r, text);
    r->p += here ? strlen(text) : 0;
    return here;
}

sx_code sx_ptx_expected(sx_ptx_reader *r, const char *what)
{
    sx_ptx_skip(r);
    size_t left = 0;
    while (left < 24 && r->p + left < r->end && r->p[left] >= ' ' && r->p[left] < 127) {
        left++;
    }
    return SX_FAIL(r->cx, SX_INPUT, "PTX line %u: expected %s, found '%.*s'", r->line, what,
                   (int)left, (const char *)r->p);
}

sx_code sx_ptx_outside(sx_ptx_reader *r, const char *what, sx_span text)
{
    return SX_FAIL(r->cx, SX_UNIMPLEMENTED, "PTX line %u: %s '%.*s' is outside the subset", r->line,
                   what, (int)(text.len < 80 ? text.len : 80), (const char *)text.ptr);
}

sx_code sx_ptx_need(sx_ptx_reader *r, const char *text)
{
    return sx_ptx_take(r, text) ? SX_OK : sx_ptx_expected(r, text);
}

sx_code sx_ptx_need_name(sx_ptx_reader *r, sx_span *name)
{
    sx_ptx_skip(r);
    const uint8_t *start = r->p;
    if (r->p == r->end || !is_letter(*r->p)) {
        return sx_ptx_expected(r, "a name");
    }
    while (r->p < r->end && (is_letter(*r->p) || is_digit(*r->p))) {
        r->p++;
    }
    *name = (sx_span){start, (size_t)(r->p - start)};
    return name->len <= SX_PTX_NAME_MAX ? SX_OK : sx_ptx_expected(r, "a name of 255 bytes at most");
}

static uint32_t digit_value(uint8_t c)
{
    return is_digit(c)            ? (uint32_t)c - '0'
           : c >= 'a' && c <= 'f' ? (uint32_t)c - 'a' + 10
           : c >= 'A' && c <= 'F' ? (uint32_t)c - 'A' + 10
                                  : 99;
}

/* Digits of this base up to 64 bits. */
static sx_code read_digits(sx_ptx_reader *r, uint32_t base, uint64_t *value)
{
    const uint8_t *start = r->p;
    *value = 0;
    while (r->p < r->end && digit_value(*r->p) < base) {
        uint64_t digit = digit_value(*r->p);
        if (*value > (UINT64_MAX - digit) / base) {
            return sx_ptx_expected(r, "a number of 64 bits");
        }
        *value = *value * base + digit;
        r->p++;
    }
    return r->p > start ? SX_OK : sx_ptx_expected(r, "digits");
}

sx_code sx_ptx_need_number(sx_ptx_reader *r, sx_ptx_arg *number)
{
    bool minus = sx_ptx_take(r, "-");
    sx_ptx_skip(r);
    *number = (sx_ptx_arg){.kind = SX_PTX_ARG_IMMEDIATE, .form = SX_PTX_INTEGER};
    if (r->p == r->end || !is_digit(*r->p)) {
        return sx_ptx_expected(r, "a number");
    }
    uint32_t base = 10;
    if (*r->p == '0' && r->end - r->p >= 2) {
        uint8_t mark = (uint8_t)(r->p[1] | 0x20);
        base = mark == 'x' || mark == 'f' || mark == 'd' ? 16 : mark == 'b' ? 2 : 10;
        number->form = mark == 'f'   ? SX_PTX_F32_BITS
                       : mark == 'd' ? SX_PTX_F64_BITS
                                     : SX_PTX_INTEGER;
        bool octal = base == 10 && is_digit(mark);
        r->p += base != 10 ? 2 : octal ? 1 : 0;
        base = octal ? 8 : base;
    }
    uint64_t value;
    SX_TRY(read_digits(r, base, &value));
    if (number->form == SX_PTX_INTEGER && r->p < r->end && (*r->p == 'U' || *r->p == 'u')) {
        r->p++;
    }
    if (r->p < r->end && (is_letter(*r->p) || is_digit(*r->p) || *r->p == '.')) {
        return sx_ptx_expected(r, "the end of a number");
    }
    if ((minus && value > (UINT64_C(1) << 63)) || (minus && number->form != SX_PTX_INTEGER) ||
        (number->form == SX_PTX_F32_BITS && value > UINT32_MAX)) {
        return sx_ptx_expected(r, "a number in range");
    }
    number->value = (int64_t)(minus ? 0 - value : value);
    return SX_OK;
}

sx_code sx_ptx_need_integer(sx_ptx_reader *r, int64_t *value)
{
    sx_ptx_arg number;
    SX_TRY(sx_ptx_need_number(r, &number));
    *value = number.value;
    return number.form == SX_PTX_INTEGER ? SX_OK : sx_ptx_expected(r, "a whole number");
}

sx_code sx_ptx_need_count(sx_ptx_reader *r, int64_t most, uint32_t *value)
{
    int64_t number;
    SX_TRY(sx_ptx_need_integer(r, &number));
    if (number < 0 || number > most) {
        return SX_FAIL(r->cx, SX_INPUT, "PTX line %u: %lld, at most %lld", r->line,
                       (long long)number, (long long)most);
    }
    *value = (uint32_t)number;
    return SX_OK;
}
