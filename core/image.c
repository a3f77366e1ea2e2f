/* image.c - the tables of a module while it is made, and their file form. */
#include "core/core.h"

#define TABLE_BYTES_MAX ((size_t)256 << 20)
#define DATA_BYTES_MAX ((size_t)4 << 30)

/* TABLE(field, record type): every table but `info`, which has one record, and the weights, which a client adds. */
#define TABLES(TABLE)                   \
    TABLE(strings, char)                \
    TABLE(symbol, sx_module_symbol)     \
    TABLE(range, sx_module_range)       \
    TABLE(variant, sx_module_variant)   \
    TABLE(guard, sx_module_guard)       \
    TABLE(extent, sx_module_extent)     \
    TABLE(tensor, sx_module_tensor)     \
    TABLE(kernel, sx_module_kernel)     \
    TABLE(part, sx_module_part)         \
    TABLE(launch, sx_module_launch)     \
    TABLE(arg, uint32_t)                \
    TABLE(stage, sx_module_stage)       \
    TABLE(rewrite, sx_module_rewrite)   \
    TABLE(check, sx_module_check)       \
    TABLE(search, sx_module_search)     \
    TABLE(rule, sx_module_rule)         \
    TABLE(proof, char)                  \
    TABLE(point, sx_module_point)       \
    TABLE(sharding, sx_module_sharding) \
    TABLE(step, sx_module_step)         \
    TABLE(program, char)                \
    TABLE(optimized, char)              \
    TABLE(code, uint8_t)                \
    TABLE(constants, uint8_t)           \
    TABLE(cubin, sx_module_cubin)       \
    TABLE(map, sx_module_map)           \
    TABLE(cases, sx_module_case)        \
    TABLE(number, sx_module_number)     \
    TABLE(axis, sx_module_axis)         \
    TABLE(pair, sx_module_pair)

void sx_image_init(sx_image *image)
{
    image->info = (sx_module_info){.numerics = SX_NUMERICS_VERSION};
#define TABLE(field, type) sx_buf_init(&image->field, TABLE_BYTES_MAX);
    TABLES(TABLE)
#undef TABLE
    image->constants.limit = DATA_BYTES_MAX;
}

void sx_image_fini(sx_image *image)
{
#define TABLE(field, type) sx_buf_fini(&image->field);
    TABLES(TABLE)
#undef TABLE
}

void sx_image_add_check(sx_image *image, const char *name, sx_module_verdict verdict,
                        uint64_t points, double error, double tolerance)
{
    sx_module_check check = {.name = sx_module_put_text(&image->strings, sx_span_of(name)),
                             .passed = (uint32_t)verdict,
                             .emulated = verdict != SX_CHECK_ABSENT && image->emulated ? 1 : 0,
                             .points = points,
                             .error = error,
                             .tolerance = tolerance};
    sx_buf_put(&image->check, &check, sizeof(check));
}

sx_code sx_image_encode(sx_ctx *cx, const sx_image *image, sx_buf *bytes)
{
    sx_module module = {.info = &image->info, .info_count = 1};
#define TABLE(name, type)                                          \
    SX_TRY(sx_buf_check(cx, &image->name, "module table " #name)); \
    module.name = (const type *)(const void *)image->name.ptr;     \
    module.name##_count = image->name.len / sizeof(type);
    TABLES(TABLE)
#undef TABLE
    return sx_module_encode(cx, &module, bytes);
}
