/* image.c - the tables of a module while it is made, and their file form. */
#include "core/core.h"

#define TABLE_BYTES_MAX ((size_t)256 << 20)
#define DATA_BYTES_MAX ((size_t)4 << 30)

void sx_image_init(sx_image *image)
{
    image->info = (sx_module_info){.numerics = SX_NUMERICS_VERSION};
    sx_buf *table[] = {&image->strings, &image->symbol,   &image->tensor,  &image->kernel,
                       &image->part,    &image->launch,   &image->arg,     &image->stage,
                       &image->rewrite, &image->check,    &image->program, &image->optimized,
                       &image->code,    &image->search,   &image->rule,    &image->proof,
                       &image->point,   &image->sharding, &image->step};
    for (uint32_t i = 0; i < SX_COUNT(table); i++) {
        sx_buf_init(table[i], TABLE_BYTES_MAX);
    }
    sx_buf_init(&image->constants, DATA_BYTES_MAX);
}

void sx_image_fini(sx_image *image)
{
    sx_buf *table[] = {&image->strings, &image->symbol,    &image->tensor,   &image->kernel,
                       &image->part,    &image->launch,    &image->arg,      &image->stage,
                       &image->rewrite, &image->check,     &image->program,  &image->optimized,
                       &image->code,    &image->constants, &image->search,   &image->rule,
                       &image->proof,   &image->point,     &image->sharding, &image->step};
    for (uint32_t i = 0; i < SX_COUNT(table); i++) {
        sx_buf_fini(table[i]);
    }
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
#define POINT(field, buf, type)                                      \
    do {                                                             \
        SX_TRY(sx_buf_check(cx, &image->buf, "module table " #buf)); \
        module.field = (const type *)(const void *)image->buf.ptr;   \
        module.field##_count = image->buf.len / sizeof(type);        \
    } while (0)
    POINT(strings, strings, char);
    POINT(symbol, symbol, sx_module_symbol);
    POINT(tensor, tensor, sx_module_tensor);
    POINT(kernel, kernel, sx_module_kernel);
    POINT(part, part, sx_module_part);
    POINT(launch, launch, sx_module_launch);
    POINT(arg, arg, uint32_t);
    POINT(stage, stage, sx_module_stage);
    POINT(rewrite, rewrite, sx_module_rewrite);
    POINT(check, check, sx_module_check);
    POINT(search, search, sx_module_search);
    POINT(rule, rule, sx_module_rule);
    POINT(proof, proof, char);
    POINT(point, point, sx_module_point);
    POINT(sharding, sharding, sx_module_sharding);
    POINT(step, step, sx_module_step);
    POINT(program, program, char);
    POINT(optimized, optimized, char);
    POINT(code, code, uint8_t);
    POINT(constants, constants, uint8_t);
#undef POINT
    return sx_module_encode(cx, &module, bytes);
}
