/* gen_cubin.h - cubins as the assembler of CUDA 12 lays them out, of PTX that is not assembled: each entry of the text
 * gets a record as it is said here. */
#ifndef SX_TESTS_LIB_GEN_CUBIN_H
#define SX_TESTS_LIB_GEN_CUBIN_H
#include "core/base/buf.h"

typedef struct {
    uint32_t arch; /* 80 */
    uint32_t registers, stack_bytes, spills, shared_bytes;
    const char *left_out; /* an entry that does not appear; NULL: all do */
} sx_gen_cubin_record;
/* Every `.visible .entry` of the text, with its 8- and 4-byte parameters. */
void sx_gen_cubin(sx_span ptx, const sx_gen_cubin_record *record, sx_buf *cubin);
#endif
