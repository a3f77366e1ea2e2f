#include "client/json_scan.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH_MAX 64u
#define NUMBER_MAX 256u

sxc_scan sxc_scan_of(sx_ctx *cx, sx_span text)
{
    static const uint8_t nothing[1];
    const uint8_t *begin = text.ptr != NULL ? text.ptr : nothing; /* of an empty file */
    return (sxc_scan){.cx = cx, .begin = begin, .at = begin, .end = begin + text.len};
}

sx_code sxc_scan_bad(const sxc_scan *s, const char *what)
{
    return SX_FAIL(s->cx, SX_INPUT, "byte %zu: %s", (size_t)(s->at - s->begin), what);
}

static void skip_blanks(sxc_scan *s)
{
    while (s->at < s->end &&
           (*s->at == ' ' || *s->at == '\n' || *s->at == '\t' || *s->at == '\r')) {
        s->at++;
    }
}

/* The next byte that is no blank; 0 at the end. */
uint8_t sxc_scan_peek(sxc_scan *s)
{
    skip_blanks(s);
    return s->at < s->end ? *s->at : 0;
}

sx_code sxc_scan_expect(sxc_scan *s, uint8_t byte, const char *what)
{
    if (sxc_scan_peek(s) != byte || s->at == s->end) {
        return sxc_scan_bad(s, what);
    }
    s->at++;
    return SX_OK;
}

static bool read_hex(const uint8_t *p, uint32_t *value)
{
    *value = 0;
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t c = p[i];
        uint32_t digit = c - '0';
        if (c >= 'a' && c <= 'f') {
            digit = c - 'a' + 10;
        } else if (c >= 'A' && c <= 'F') {
            digit = c - 'A' + 10;
        }
        if (digit > 15 || (c > '9' && c < 'A')) {
            return false;
        }
        *value = *value << 4 | digit;
    }
    return true;
}

/* Four hex digits after "\u", with the second half of a pair; 0 bytes read: not a character. */
static size_t read_unicode(const uint8_t *p, const uint8_t *end, uint32_t *value)
{
    uint32_t low;
    if (end - p < 4 || !read_hex(p, value) || (*value >= 0xDC00 && *value < 0xE000)) {
        return 0;
    }
    if (*value < 0xD800 || *value >= 0xE000) {
        return 4;
    }
    if (end - p < 10 || p[4] != '\\' || p[5] != 'u' || !read_hex(p + 6, &low) || low < 0xDC00 ||
        low >= 0xE000) {
        return 0;
    }
    *value = 0x10000 + ((*value - 0xD800) << 10) + (low - 0xDC00);
    return 10;
}

static size_t put_utf8(uint8_t *to, uint32_t value)
{
    if (value < 0x80) {
        to[0] = (uint8_t)value;
        return 1;
    }
    size_t more = value < 0x800 ? 1 : value < 0x10000 ? 2 : 3;
    static const uint8_t lead[] = {0, 0xC0, 0xE0, 0xF0};
    to[0] = (uint8_t)(lead[more] | value >> (6 * more));
    for (size_t i = 1; i <= more; i++) {
        to[i] = (uint8_t)(0x80 | (value >> (6 * (more - i)) & 0x3F));
    }
    return more + 1;
}

/* Text with escapes, which is never longer than its source. */
static sx_code unescape(sxc_scan *s, sx_span raw, sx_span *text)
{
    static const char from[] = "\"\\/bfnrt";
    static const char into[] = "\"\\/\b\f\n\r\t";
    uint8_t *to = sx_alloc(s->cx, raw.len + 1);
    size_t count = 0;
    if (to == NULL) {
        return s->cx->error.code;
    }
    const uint8_t *end = raw.ptr + raw.len;
    for (const uint8_t *p = raw.ptr; p < end;) {
        if (*p != '\\') {
            to[count++] = *p++;
            continue;
        }
        const char *known = p[1] != 0 ? strchr(from, p[1]) : NULL;
        if (known != NULL) {
            to[count++] = (uint8_t)into[known - from];
            p += 2;
            continue;
        }
        uint32_t value;
        size_t used = p[1] == 'u' ? read_unicode(p + 2, end, &value) : 0;
        if (used == 0) {
            return sxc_scan_bad(s, "an escape that is none of JSON");
        }
        count += put_utf8(to + count, value);
        p += 2 + used;
    }
    *text = (sx_span){to, count};
    return SX_OK;
}

sx_code sxc_scan_text(sxc_scan *s, sx_span *text)
{
    SX_TRY(sxc_scan_expect(s, '"', "a string expected"));
    const uint8_t *start = s->at;
    bool escaped = false;
    while (s->at < s->end && *s->at != '"') {
        if (*s->at < 0x20) {
            return sxc_scan_bad(s, "a control character in a string");
        }
        escaped = escaped || *s->at == '\\';
        s->at += *s->at == '\\' && s->at + 1 < s->end ? 2 : 1;
    }
    if (s->at >= s->end) {
        s->at = s->end;
        return sxc_scan_bad(s, "a string without end");
    }
    *text = (sx_span){start, (size_t)(s->at - start)};
    s->at++;
    return escaped ? unescape(s, *text, text) : SX_OK;
}

static const uint8_t *digits(const uint8_t *p, const uint8_t *end)
{
    while (p < end && isdigit(*p) != 0) {
        p++;
    }
    return p;
}

/* The end of the number at s->at by the grammar of JSON, or NULL. */
static const uint8_t *number_end(const sxc_scan *s)
{
    const uint8_t *p = s->at + (s->at < s->end && *s->at == '-' ? 1 : 0);
    const uint8_t *whole = p;
    p = digits(p, s->end);
    if (p == whole || (*whole == '0' && p - whole > 1)) {
        return NULL;
    }
    if (p < s->end && *p == '.') {
        const uint8_t *fraction = p + 1;
        p = digits(fraction, s->end);
        if (p == fraction) {
            return NULL;
        }
    }
    if (p < s->end && (*p == 'e' || *p == 'E')) {
        p += p + 1 < s->end && (p[1] == '+' || p[1] == '-') ? 2 : 1;
        const uint8_t *power = p;
        p = digits(power, s->end);
        if (p == power) {
            return NULL;
        }
    }
    return p;
}

sx_code sxc_scan_number(sxc_scan *s, double *value)
{
    char text[NUMBER_MAX + 1];
    skip_blanks(s);
    const uint8_t *end = number_end(s);
    if (end == NULL) {
        return sxc_scan_bad(s, "a number expected");
    }
    size_t len = (size_t)(end - s->at);
    if (len > NUMBER_MAX) {
        return SX_FAIL(s->cx, SX_LIMIT, "byte %zu: a number of %zu characters, at most %u",
                       (size_t)(s->at - s->begin), len, NUMBER_MAX);
    }
    memcpy(text, s->at, len);
    text[len] = '\0';
    *value = strtod(text, NULL);
    s->at = end;
    return SX_OK;
}

sx_code sxc_scan_word(sxc_scan *s, const char *word)
{
    size_t len = strlen(word);
    if ((size_t)(s->end - s->at) < len || memcmp(s->at, word, len) != 0) {
        return sxc_scan_bad(s, "a value expected");
    }
    s->at += len;
    return SX_OK;
}

static sx_code skip_scalar(sxc_scan *s)
{
    sx_span text;
    double number;
    switch (sxc_scan_peek(s)) {
    case '"': return sxc_scan_text(s, &text);
    case 't': return sxc_scan_word(s, "true");
    case 'f': return sxc_scan_word(s, "false");
    case 'n': return sxc_scan_word(s, "null");
    default: return sxc_scan_number(s, &number);
    }
}

/* Behind a value inside a container: a comma, or as many closing brackets as come. */
static sx_code close_containers(sxc_scan *s, char *open, uint32_t *depth, bool *more)
{
    *more = false;
    while (*depth > 0 && !*more) {
        uint8_t byte = sxc_scan_peek(s);
        if (byte == ',') {
            *more = true;
        } else if (byte != (open[*depth - 1] == '{' ? '}' : ']')) {
            return sxc_scan_bad(s, "a comma or a closing bracket expected");
        } else {
            (*depth)--;
        }
        s->at++;
    }
    return SX_OK;
}

/* Any value, without recursion. */
sx_code sxc_scan_skip(sxc_scan *s)
{
    char open[DEPTH_MAX];
    uint32_t depth = 0;
    bool more = true;
    while (more) {
        if (depth > 0 && open[depth - 1] == '{') {
            sx_span key;
            SX_TRY(sxc_scan_text(s, &key));
            SX_TRY(sxc_scan_expect(s, ':', "a colon expected"));
        }
        uint8_t byte = sxc_scan_peek(s);
        if (byte == '{' || byte == '[') {
            if (depth == DEPTH_MAX) {
                return SX_FAIL(s->cx, SX_LIMIT, "byte %zu: nested deeper than %u",
                               (size_t)(s->at - s->begin), DEPTH_MAX);
            }
            open[depth++] = (char)byte;
            s->at++;
            if (sxc_scan_peek(s) != (byte == '{' ? '}' : ']')) {
                continue;
            }
        } else {
            SX_TRY(skip_scalar(s));
        }
        SX_TRY(close_containers(s, open, &depth, &more));
    }
    return SX_OK;
}

/* After a member or an item: true in *more at a comma, false at the closing bracket. */
sx_code sxc_scan_more(sxc_scan *s, uint8_t closing, bool *more)
{
    uint8_t byte = sxc_scan_peek(s);
    if (s->at == s->end || (byte != ',' && byte != closing)) {
        return sxc_scan_bad(s, "a comma or a closing bracket expected");
    }
    s->at++;
    *more = byte == ',';
    return SX_OK;
}

/* "[": *more is false if it is empty. */
sx_code sxc_scan_open(sxc_scan *s, uint8_t opening, uint8_t closing, const char *what, bool *more)
{
    SX_TRY(sxc_scan_expect(s, opening, what));
    *more = sxc_scan_peek(s) != closing;
    s->at += *more ? 0 : 1;
    return SX_OK;
}

sx_code sxc_scan_key(sxc_scan *s, sx_span *key)
{
    SX_TRY(sxc_scan_text(s, key));
    return sxc_scan_expect(s, ':', "a colon expected");
}
