/* certificate_read.h - reading certificates line by line (inner header of the checker). */
#ifndef SX_CORE_EGRAPH_CERTIFICATE_READ_H
#define SX_CORE_EGRAPH_CERTIFICATE_READ_H
#include "core/egraph/certificate.h"

typedef struct {
    sx_ctx *cx;
    const uint8_t *at, *end; /* text still to be read */
} sx_proof_reader;

/* A certificate that does not read: SX_INPUT. */
sx_code sx_proof_malformed(const sx_proof_reader *r, const char *expected);
/* The next line without its newline. */
sx_code sx_proof_line(sx_proof_reader *r, sx_span *line);
/* Takes a word off a line; empty at its end. */
sx_span sx_proof_word(sx_span *line);
/* Takes a number of at most `max` off a line. */
bool sx_proof_number(sx_span *line, uint64_t max, uint64_t *number);
/* "NAME NUMBER" as a line of its own. */
sx_code sx_proof_count(sx_proof_reader *r, const char *name, uint64_t max, uint32_t *count);
/* "NAME BYTES" and a program of so many bytes. */
sx_code sx_proof_program_text(sx_proof_reader *r, const char *name, sx_graph **graph);

/* One proved part: its input, output, terms and steps. Adds to certificate->term_count, step_count, rule_count. */
sx_code sx_proof_check_part(sx_proof_reader *r, sx_certificate *certificate, sx_graph **input,
                            sx_graph **output);
#endif
