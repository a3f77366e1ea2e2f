#include "client/kept.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    char *name; /* name_size bytes */
    size_t name_size;
    sx_span bytes; /* in the file, or in `own` */
    uint8_t *own;  /* of a weight that the importer computed; else NULL */
} kept_weight;

typedef struct {
    sx_onnx_file *file;
    kept_weight *weight;
    uint32_t count;
} kept_weights;

static void kept_close(void *self)
{
    kept_weights *kept = self;
    for (uint32_t i = 0; i < kept->count; i++) {
        free(kept->weight[i].name);
        free(kept->weight[i].own);
    }
    sx_onnx_file_close(kept->file);
    free(kept->weight);
    free(kept);
}

static sx_code kept_again(void *self, sx_ctx *cx, sx_span name, sx_span *bytes)
{
    const kept_weights *kept = self;
    SX_TRY(sx_onnx_file_check(cx, kept->file));
    for (uint32_t i = 0; i < kept->count; i++) {
        const kept_weight *weight = &kept->weight[i];
        if (weight->name_size == name.len && memcmp(weight->name, name.ptr, name.len) == 0) {
            *bytes = weight->bytes;
            return SX_OK;
        }
    }
    SX_UNREACHABLE(); /* the module got it from the same table */
}

static bool keep(const sx_onnx_file *file, const sx_weight *from, kept_weight *to)
{
    to->bytes = from->bytes;
    to->name = malloc(from->name.len + 1);
    to->name_size = from->name.len;
    if (to->name == NULL) {
        return false;
    }
    memcpy(to->name, from->name.ptr, from->name.len);
    if (from->bytes.len > 0 && !sx_onnx_file_has(file, from->bytes)) {
        to->own = malloc(from->bytes.len);
        if (to->own == NULL) {
            return false;
        }
        memcpy(to->own, from->bytes.ptr, from->bytes.len);
        to->bytes.ptr = to->own;
    }
    return true;
}

bool sxc_kept_make(sxc_source *source, sxr_source *kept)
{
    if (source->file == NULL || source->weights == NULL) {
        return false;
    }
    kept_weights *made = calloc(1, sizeof(*made));
    kept_weight *weight = calloc((size_t)source->weights->count + 1, sizeof(*weight));
    if (made == NULL || weight == NULL) {
        free(made);
        free(weight);
        return false;
    }
    made->weight = weight;
    made->count = source->weights->count;
    for (uint32_t i = 0; i < made->count; i++) {
        if (!keep(source->file, &source->weights->weight[i], &weight[i])) {
            kept_close(made);
            return false;
        }
    }
    made->file = source->file;
    source->file = NULL;
    *kept = (sxr_source){.again = kept_again, .close = kept_close, .self = made};
    return true;
}
