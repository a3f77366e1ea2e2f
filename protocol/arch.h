/* arch.h - architectures, their levels and the forms of code, as module files number and name them (arch.def). */
#ifndef SX_PROTOCOL_ARCH_H
#define SX_PROTOCOL_ARCH_H
#include "core/base/base.h"

typedef enum {
#define SX_ARCH(enumerator, number, name) SX_ARCH_##enumerator = (number),
#include "protocol/arch.def"
#undef SX_ARCH
} sx_arch;
#define SX_ARCH_END 3u /* every number of an architecture is smaller */

typedef enum {
#define SX_CODE_FORM(enumerator, number, arch, name) SX_FORM_##enumerator = (number),
#include "protocol/arch.def"
#undef SX_CODE_FORM
} sx_code_form;

/* What a machine runs: for each architecture its highest level, 0 for none. */
typedef struct {
    uint32_t level[SX_ARCH_END];
} sx_arch_set;

/* NULL: no such number. */
const char *sx_arch_name(uint32_t arch);
const char *sx_level_name(uint32_t arch, uint32_t level);
/* The architecture and level of this name, "x86-64-v3"; false: there is none. */
bool sx_level_find(const char *name, uint32_t *arch, uint32_t *level);
const char *sx_form_name(uint32_t form);
/* The first form of code for an architecture: what is made for it, unless said otherwise. */
uint32_t sx_form_first(uint32_t arch);
/* The architecture that code of this form is for; 0: no such form. */
uint32_t sx_form_arch(uint32_t form);
#endif
