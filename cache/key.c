#include "cache/cache.h"

sx_key sx_cache_key_make(const sx_cache_key_fields *fields, sx_cache_part part[SX_KEY_FIELD_COUNT])
{
    sx_span pair[2 * SX_KEY_FIELD_COUNT];
    uint32_t n = 0;
#define SX_KEY_FIELD(field, meaning) \
    part[n++] = (sx_cache_part){.name = SX_SPAN_LITERAL(#field), .value = fields->field};
#include "cache/key.def"
#undef SX_KEY_FIELD
    SX_ASSERT(n == SX_KEY_FIELD_COUNT);
    for (uint32_t i = 0; i < n; i++) {
        pair[2 * i] = part[i].name;
        pair[2 * i + 1] = part[i].value;
    }
    return sx_key_of("symplex-cache-1", pair, 2 * n);
}
