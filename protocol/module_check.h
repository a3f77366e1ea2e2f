/* module_check.h - inside protocol: the checks of a module's tables once its sections are in place. */
#ifndef SX_PROTOCOL_MODULE_CHECK_H
#define SX_PROTOCOL_MODULE_CHECK_H
#include "protocol/module.h"

/* Name and payload of a section. */
const char *sx_module_section_name(uint32_t kind);
sx_span sx_module_payload(const sx_module *module, uint32_t kind);

/* Everything that module.h says of records. SX_CORRUPT names table, record, value and limit. */
sx_code sx_module_check_records(sx_ctx *cx, const sx_module *module);
/* Have two tensors equally many bytes, whatever the values of the symbols? */
bool sx_module_same_bytes(const sx_module *module, uint32_t a, uint32_t b);
/* Does an extent of the tensor follow a symbol? */
bool sx_module_follows_symbol(const sx_module *module, uint32_t tensor);
/* module_variant.c: what a row of EXTENTS makes of the values of its symbols, before it is divided; false: overflow.
 * The value of a symbol that the row does not have is not looked at. */
bool sx_module_extent_product(const sx_module_extent *extent, int64_t value, int64_t other,
                              int64_t *product);
/* module_launch.c: the launches of every variant, and which tensors they read and write. */
sx_code sx_module_check_launches(sx_ctx *cx, const sx_module *module);
/* module_mesh.c: the axes of the mesh; and a collective, whose arguments are tensors, against them. */
sx_code sx_module_check_axes(sx_ctx *cx, const sx_module *module);
sx_code sx_module_check_collective(sx_ctx *cx, const sx_module *module, uint32_t launch);
/* module_map.c: a map by itself; and those of a kernel launch, which is in order, against its arguments. */
sx_code sx_module_check_map(sx_ctx *cx, const sx_module *module, uint64_t index);
sx_code sx_module_check_mapped(sx_ctx *cx, const sx_module *module, uint64_t launch);
/* module_case.c: a case by itself, and against the one before it. */
sx_code sx_module_check_case(sx_ctx *cx, const sx_module *module, uint64_t index);
/* module_variant.c: is there a variant for all values of the symbols? After the checks of the records.
 *   errors   SX_CORRUPT names the first values without one; SX_NOMEM */
sx_code sx_module_check_cover(sx_ctx *cx, const sx_module *module);
#endif
