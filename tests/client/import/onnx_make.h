/* onnx_make.h - ONNX models written by tests: the wire format from scratch, so that a test says what is in the file.
 *
 *   onnx_make m;
 *   make_begin(&m);
 *   make_input(&m, "x", SX_ONNX_FLOAT, "batch,3");
 *   make_attr_int(&m, "axis", 1);                 attributes go to the next node
 *   make_node(&m, "Softmax", "x", "y");           names separated by commas, empty for left out
 *   make_output(&m, "y", SX_ONNX_FLOAT, "batch,3");
 *   sx_span file = make_end(&m, 13);              valid until make_free
 */
#ifndef SX_TESTS_CLIENT_IMPORT_ONNX_MAKE_H
#define SX_TESTS_CLIENT_IMPORT_ONNX_MAKE_H
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/import/onnx_wire.h"
#include "tests/lib/test.h"

typedef struct {
    sx_buf graph;
    sx_buf attrs; /* of the next node */
    sx_buf file;
} onnx_make;

static inline void make_varint(sx_buf *out, uint64_t value)
{
    while (value >= 0x80) {
        sx_buf_put_u8(out, (uint8_t)(value | 0x80));
        value >>= 7;
    }
    sx_buf_put_u8(out, (uint8_t)value);
}

static inline void make_int(sx_buf *out, uint32_t field, int64_t value)
{
    make_varint(out, (uint64_t)field << 3);
    make_varint(out, (uint64_t)value);
}

static inline void make_bytes(sx_buf *out, uint32_t field, const void *bytes, size_t len)
{
    make_varint(out, (uint64_t)field << 3 | 2);
    make_varint(out, len);
    sx_buf_put(out, bytes, len);
}

static inline void make_text(sx_buf *out, uint32_t field, const char *text)
{
    make_bytes(out, field, text, strlen(text));
}

/* Appends `inner` as field and frees it. */
static inline void make_message(sx_buf *out, uint32_t field, sx_buf *inner)
{
    make_bytes(out, field, inner->ptr, inner->len);
    sx_buf_fini(inner);
}

static inline sx_buf make_buf(void)
{
    sx_buf buf;
    sx_buf_init(&buf, 64 << 20);
    return buf;
}

static inline void make_begin(onnx_make *m)
{
    m->graph = make_buf();
    m->attrs = make_buf();
    m->file = make_buf();
    make_text(&m->graph, 2, "made");
}

/* The first part of a comma-separated list; the rest, or NULL after the last. */
static inline const char *make_part(const char *list, char part[256])
{
    size_t len = strcspn(list, ",");
    ck_assert_uint_lt(len, 256);
    memcpy(part, list, len);
    part[len] = '\0';
    return list[len] == ',' ? list + len + 1 : NULL;
}

/* Dimensions such as "batch,3,?": a name, a number, unknown. */
static inline sx_buf make_value_info(const char *name, int64_t dtype, const char *dims)
{
    sx_buf shape = make_buf();
    for (const char *p = dims; p != NULL && dims[0] != '\0';) {
        char part[256];
        sx_buf dim = make_buf();
        p = make_part(p, part);
        if (part[0] == '-' || (part[0] >= '0' && part[0] <= '9')) {
            make_int(&dim, 1, strtoll(part, NULL, 10));
        } else if (part[0] != '?') {
            make_text(&dim, 2, part);
        }
        make_message(&shape, 1, &dim);
    }
    sx_buf tensor = make_buf();
    make_int(&tensor, 1, dtype);
    make_message(&tensor, 2, &shape);
    sx_buf type = make_buf();
    make_message(&type, 1, &tensor);
    sx_buf info = make_buf();
    make_text(&info, 1, name);
    make_message(&info, 2, &type);
    return info;
}

static inline void make_input(onnx_make *m, const char *name, int64_t dtype, const char *dims)
{
    sx_buf info = make_value_info(name, dtype, dims);
    make_message(&m->graph, 11, &info);
}

static inline void make_output(onnx_make *m, const char *name, int64_t dtype, const char *dims)
{
    sx_buf info = make_value_info(name, dtype, dims);
    make_message(&m->graph, 12, &info);
}

static inline sx_buf make_tensor(const char *name, int64_t dtype, const char *dims, const void *raw,
                                 size_t len)
{
    sx_buf tensor = make_buf();
    for (const char *p = dims; p != NULL && dims[0] != '\0';) {
        char part[256];
        p = make_part(p, part);
        make_int(&tensor, 1, strtoll(part, NULL, 10));
    }
    make_int(&tensor, 2, dtype);
    make_text(&tensor, 8, name);
    make_bytes(&tensor, 9, raw, len);
    return tensor;
}

static inline void make_initializer(onnx_make *m, const char *name, int64_t dtype, const char *dims,
                                    const void *raw, size_t len)
{
    sx_buf tensor = make_tensor(name, dtype, dims, raw, len);
    make_message(&m->graph, 5, &tensor);
}

/* A vector of int64, e.g. "2,-1,3". */
static inline void make_ints(onnx_make *m, const char *name, const char *numbers)
{
    int64_t value[64];
    size_t count = 0;
    for (const char *p = numbers; p != NULL && numbers[0] != '\0';) {
        char part[256];
        p = make_part(p, part);
        ck_assert_uint_lt(count, 64);
        value[count++] = strtoll(part, NULL, 10);
    }
    char dims[16];
    (void)snprintf(dims, sizeof(dims), "%zu", count);
    make_initializer(m, name, SX_ONNX_INT64, dims, value, count * sizeof(int64_t));
}

static inline void make_int_scalar(onnx_make *m, const char *name, int64_t value)
{
    make_initializer(m, name, SX_ONNX_INT64, "", &value, sizeof(value));
}

static inline void make_attr_int(onnx_make *m, const char *name, int64_t value)
{
    sx_buf attr = make_buf();
    make_text(&attr, 1, name);
    make_int(&attr, 3, value);
    make_int(&attr, 20, SX_ONNX_ATTR_INT);
    make_message(&m->attrs, 5, &attr);
}

static inline void make_attr_tensor(onnx_make *m, const char *name, sx_buf *tensor)
{
    sx_buf attr = make_buf();
    make_text(&attr, 1, name);
    make_message(&attr, 5, tensor);
    make_int(&attr, 20, SX_ONNX_ATTR_TENSOR);
    make_message(&m->attrs, 5, &attr);
}

static inline void make_attr_float(onnx_make *m, const char *name, float value)
{
    sx_buf attr = make_buf();
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    make_text(&attr, 1, name);
    make_varint(&attr, 2 << 3 | 5);
    sx_buf_put_u32(&attr, bits);
    make_int(&attr, 20, SX_ONNX_ATTR_FLOAT);
    make_message(&m->attrs, 5, &attr);
}

static inline void make_attr_text(onnx_make *m, const char *name, const char *value)
{
    sx_buf attr = make_buf();
    make_text(&attr, 1, name);
    make_text(&attr, 4, value);
    make_int(&attr, 20, SX_ONNX_ATTR_STRING);
    make_message(&m->attrs, 5, &attr);
}

static inline void make_attr_ints(onnx_make *m, const char *name, const char *numbers)
{
    sx_buf attr = make_buf();
    make_text(&attr, 1, name);
    for (const char *p = numbers; p != NULL && numbers[0] != '\0';) {
        char part[256];
        p = make_part(p, part);
        make_int(&attr, 8, strtoll(part, NULL, 10));
    }
    make_int(&attr, 20, SX_ONNX_ATTR_INTS);
    make_message(&m->attrs, 5, &attr);
}

static inline void make_names(sx_buf *node, uint32_t field, const char *names)
{
    for (const char *p = names; p != NULL && names[0] != '\0';) {
        char part[256];
        p = make_part(p, part);
        make_text(node, field, part);
    }
}

static inline void make_node_in(onnx_make *m, const char *domain, const char *op,
                                const char *inputs, const char *outputs)
{
    sx_buf node = make_buf();
    make_names(&node, 1, inputs);
    make_names(&node, 2, outputs);
    make_text(&node, 3, "here");
    make_text(&node, 4, op);
    sx_buf_put_span(&node, sx_buf_span(&m->attrs));
    make_text(&node, 7, domain);
    make_message(&m->graph, 1, &node);
    sx_buf_clear(&m->attrs);
}

static inline void make_node(onnx_make *m, const char *op, const char *inputs, const char *outputs)
{
    make_node_in(m, "", op, inputs, outputs);
}

static inline sx_span make_end(onnx_make *m, int64_t opset)
{
    sx_buf_clear(&m->file);
    make_int(&m->file, 1, 8);
    make_bytes(&m->file, 7, m->graph.ptr, m->graph.len);
    sx_buf set = make_buf();
    make_text(&set, 1, "");
    make_int(&set, 2, opset);
    make_message(&m->file, 8, &set);
    ck_assert_int_eq(m->file.code, SX_OK);
    return sx_buf_span(&m->file);
}

static inline void make_free(onnx_make *m)
{
    sx_buf_fini(&m->graph);
    sx_buf_fini(&m->attrs);
    sx_buf_fini(&m->file);
}
#endif
