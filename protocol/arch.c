#include "protocol/arch.h"

#include <string.h>

#define SX_ARCH(enumerator, number, name) \
    _Static_assert((number) > 0 && (number) < SX_ARCH_END, "number of " name);
#include "protocol/arch.def"
#undef SX_ARCH

const char *sx_arch_name(uint32_t arch)
{
    switch (arch) {
#define SX_ARCH(enumerator, number, name) \
    case number:                          \
        return name;
#include "protocol/arch.def"
#undef SX_ARCH
    }
    return NULL;
}

static const struct {
    uint32_t arch, level;
    const char *name;
} levels[] = {
#define SX_LEVEL(arch_, number, name_) {SX_ARCH_##arch_, number, name_},
#include "protocol/arch.def"
#undef SX_LEVEL
};

const char *sx_level_name(uint32_t arch, uint32_t level)
{
    for (uint32_t i = 0; i < SX_COUNT(levels); i++) {
        if (levels[i].arch == arch && levels[i].level == level) {
            return levels[i].name;
        }
    }
    return NULL;
}

bool sx_level_find(const char *name, uint32_t *arch, uint32_t *level)
{
    SX_ASSERT(name != NULL);
    for (uint32_t i = 0; i < SX_COUNT(levels); i++) {
        if (strcmp(levels[i].name, name) == 0) {
            *arch = levels[i].arch;
            *level = levels[i].level;
            return true;
        }
    }
    return false;
}

const char *sx_form_name(uint32_t form)
{
    switch (form) {
#define SX_CODE_FORM(enumerator, number, arch, name) \
    case number:                                     \
        return name;
#include "protocol/arch.def"
#undef SX_CODE_FORM
    }
    return NULL;
}

uint32_t sx_form_arch(uint32_t form)
{
    switch (form) {
#define SX_CODE_FORM(enumerator, number, arch, name) \
    case number:                                     \
        return SX_ARCH_##arch;
#include "protocol/arch.def"
#undef SX_CODE_FORM
    }
    return 0;
}

uint32_t sx_form_first(uint32_t arch)
{
    static const uint32_t form[] = {
#define SX_CODE_FORM(enumerator, number, arch, name) number,
#include "protocol/arch.def"
#undef SX_CODE_FORM
    };
    uint32_t first = 0;
    while (first < SX_COUNT(form) && sx_form_arch(form[first]) != arch) {
        first++;
    }
    SX_ASSERT(first < SX_COUNT(form));
    return form[first];
}
