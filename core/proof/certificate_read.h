/* certificate_read.h - reading certificates line by line (inner header of the checker). */
#ifndef SX_CORE_PROOF_CERTIFICATE_READ_H
#define SX_CORE_PROOF_CERTIFICATE_READ_H
#include "core/proof/certificate.h"

/* What is asked of a certificate: that its steps follow from the rules, and that what they make equal has
 * equal values. */
#define SX_PROOF_STEPS 1u
#define SX_PROOF_VALUES 2u

typedef struct {
    sx_ctx *cx;
    const uint8_t *at, *end; /* text still to be read */
    uint32_t asked;          /* set of SX_PROOF_* */
} sx_proof_reader;

/* sx_certificate_check of a part of what it asks, with other bounds of work: tests show that values
 * alone refuse what a wrong rule would let pass. */
sx_code sx_proof_read(sx_ctx *cx, sx_span text, uint32_t asked, uint64_t work,
                      sx_certificate *certificate);

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
