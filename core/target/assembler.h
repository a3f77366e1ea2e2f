/* assembler.h - how text for a machine becomes machine code: an assembler that the caller of the compiler has, and
 * what the code that comes of it needs.
 *
 * Some machines take code as text that others compile for them (PTX); the machine code for one kind of them is an
 * addition. The compiler stays a function of what it is given: the assembler's name stands in the request and in its
 * key, and the same text, target and assembler give the same code.
 */
#ifndef SX_CORE_TARGET_ASSEMBLER_H
#define SX_CORE_TARGET_ASSEMBLER_H
#include "core/base/base.h"

typedef struct sx_assembler {
    void *self;
    /* Makes machine code of `text` for `target`, such as "sm_90a".
     *   memory   result in cx's arena
     *   errors   SX_LIMIT the code can be made and should not be run, with the reason: the search takes the next
     *            candidate; SX_COMPILE the text is refused; SX_WORKER, SX_TIMEOUT, SX_SYSTEM of the assembler */
    sx_code (*assemble)(void *self, sx_ctx *cx, sx_span text, const char *target, sx_span *code);
} sx_assembler;

/* What an entry of machine code needs, as the code itself says it; the fields are those of sx_module_cubin. */
typedef struct {
    uint32_t registers, local_bytes, spills, barriers, parameter_bytes;
    uint64_t shared_bytes;
} sx_target_record;
#endif
