/* module_file.h - a module file to look at: mapped and checked, nothing of it runs, any processor will do. */
#ifndef SX_CLIENT_MODULE_FILE_H
#define SX_CLIENT_MODULE_FILE_H
#include "core/ir/ir.h"
#include "protocol/module.h"

typedef struct {
    /* Its tables point into the mapping. */
    sx_module module;
    void *mapping;
    size_t size;
} sxc_module_file;

void sxc_module_file_close(sxc_module_file *file); /* also of a zero struct */
/* `checksums`: also those of code and weights, a pass over all bytes. SX_INPUT: no such file, not a regular
 * file; SX_CORRUPT: not a module, truncated, altered; names section, value and limit. *file is zeroed first
 * and closed on failure. */
sx_code sxc_module_file_open(sx_ctx *cx, const char *path, bool checksums, sxc_module_file *file);

/* The same of bytes that came some other way; they are copied. */
sx_code sxc_module_file_of(sx_ctx *cx, sx_span bytes, sxc_module_file *file);

/* The static type of a tensor. SX_CORRUPT: an element type this program does not know. */
sx_code sxc_module_type(sx_ctx *cx, const sx_module *module, uint64_t tensor, sx_type *type);
/* End of the code of a part: the next entry, or the end of the section. */
uint64_t sxc_module_part_end(const sx_module *module, uint64_t part);
#endif
