/* json_scan.h - reads JSON text piece by piece, for files that people and other tools write.
 *
 * The caller walks: open an object, take a key, take or skip its value, ask for more. Nothing is built, nothing is
 * recursive, and every failure says at which byte.
 */
#ifndef SX_CLIENT_JSON_SCAN_H
#define SX_CLIENT_JSON_SCAN_H
#include "core/base/base.h"

typedef struct {
    sx_ctx *cx;
    const uint8_t *begin, *at, *end;
} sxc_scan;

/* The text is borrowed; it may be empty. */
sxc_scan sxc_scan_of(sx_ctx *cx, sx_span text);
/* All below: SX_INPUT "byte N: what", SX_LIMIT nested too deep, a number too long. */
sx_code sxc_scan_bad(const sxc_scan *s, const char *what);
/* The next byte that is no blank; 0 at the end. */
uint8_t sxc_scan_peek(sxc_scan *s);
sx_code sxc_scan_expect(sxc_scan *s, uint8_t byte, const char *what);
/* "[" or "{": *more is false if it is empty. */
sx_code sxc_scan_open(sxc_scan *s, uint8_t opening, uint8_t closing, const char *what, bool *more);
/* After a member or an item: true in *more at a comma, false at the closing bracket. */
sx_code sxc_scan_more(sxc_scan *s, uint8_t closing, bool *more);
/* A key with its colon. */
sx_code sxc_scan_key(sxc_scan *s, sx_span *key);
/* A string, in the text itself or, where it has escapes, in cx's arena. */
sx_code sxc_scan_text(sxc_scan *s, sx_span *text);
sx_code sxc_scan_number(sxc_scan *s, double *value);
/* "true", "false", "null" */
sx_code sxc_scan_word(sxc_scan *s, const char *word);
/* Any value. */
sx_code sxc_scan_skip(sxc_scan *s);
#endif
