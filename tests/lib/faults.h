/* faults.h - tables of faults for what reads bytes: each row spoils one thing and has the words of the refusal.
 *
 *     #define FAULTS(FAULT)                                              \
 *         FAULT(rank, tables.map[0].rank = 6, "map 0: rank 6")           \
 *         FAULT(order, tables.map[0].next = 0, "map 0: behind itself")
 *     SX_FAULTS(FAULTS)
 *
 * makes the table `fault` of this file, a row for each, in order. A name is a C name, once in the file. */
#ifndef SX_TESTS_LIB_FAULTS_H
#define SX_TESTS_LIB_FAULTS_H
#include <string.h>

#include "tests/lib/test.h"

typedef struct {
    const char *name;
    void (*make)(void); /* spoils it */
    const char *text;   /* part of what the error says */
} sx_fault_row;

#define SX_FAULT_MADE_(name, statement, text) \
    static void fault_##name(void)            \
    {                                         \
        statement;                            \
    }
#define SX_FAULT_ROW_(name, statement, text) {#name, fault_##name, text},
#define SX_FAULTS(LIST) \
    LIST(SX_FAULT_MADE_) static const sx_fault_row fault[] = {LIST(SX_FAULT_ROW_)};

/* `code` came of reading what the fault has spoiled: it is refused as corrupt, in its words. */
static inline void sx_fault_refused(const sx_fault_row *row, const sx_ctx *cx, sx_code code)
{
    ck_assert_msg(code == SX_CORRUPT && strstr(cx->error.text, row->text) != NULL, "%s: %s: %s",
                  row->name, sx_code_name(code), cx->error.text);
}

#endif
