/* .npy files: what is written reads back, NumPy's own header forms are read, everything else is refused. */
#include "client/cli/npy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/rng.h"
#include "tests/lib/test.h"

static sx_ctx cx;
static void setup(void)
{
    sx_ctx_init(&cx, (size_t)64 << 20);
}
static void teardown(void)
{
    sx_ctx_fini(&cx);
}

/* A file of version 1 with this header text and as many zero bytes behind. */
static sx_span file_of(const char *header, size_t payload)
{
    size_t length = strlen(header), size = 10 + length + payload;
    uint8_t *bytes = sx_alloc(&cx, size + 1);
    ck_assert_ptr_nonnull(bytes);
    memcpy(bytes, "\x93NUMPY\x01\x00", 8);
    bytes[8] = (uint8_t)length;
    bytes[9] = (uint8_t)(length >> 8);
    memcpy(bytes + 10, header, length);
    return (sx_span){bytes, size};
}

START_TEST(round_trip)
{
    static const sx_dtype dtype[] = {SX_F64, SX_F32, SX_F16,  SX_I64,  SX_I32,    SX_I16,
                                     SX_I8,  SX_U8,  SX_BOOL, SX_BF16, SX_F8E4M3, SX_F8E5M2};
    sx_rng rng = {sx_test_seed()};
    for (int round = 0; round < 500; round++) {
        sx_type type = {.dtype = dtype[sx_rng_below(&rng, SX_COUNT(dtype))],
                        .rank = (uint32_t)sx_rng_below(&rng, SX_RANK_MAX + 1)};
        size_t size = sx_dtype_bytes(type.dtype);
        for (uint32_t d = 0; d < type.rank; d++) {
            int64_t extent = 1 + (int64_t)sx_rng_below(&rng, 4);
            type.dim[d] = sx_dim_of(extent);
            size *= (size_t)extent;
        }
        uint8_t *bytes = sx_alloc(&cx, size);
        for (size_t i = 0; i < size; i++) {
            bytes[i] = (uint8_t)sx_rng_next(&rng);
        }
        sx_buf file;
        sxc_npy array;
        sx_buf_init(&file, (size_t)1 << 20);
        ck_sx_ok(&cx, sxc_npy_print(&cx, &type, (sx_span){bytes, size}, &file));
        ck_assert_uint_eq((file.len - size) % 64, 0); /* NumPy maps the elements aligned */
        ck_sx_ok(&cx, sxc_npy_parse(&cx, "it", sx_buf_span(&file), &array));
        ck_sx_ok(&cx, sxc_npy_as(&cx, "it", type.dtype, &array));
        ck_assert(sx_type_equal(&array.type, &type));
        ck_assert(sx_span_equal(array.bytes, (sx_span){bytes, size}));
        sx_buf_fini(&file);
    }
}
END_TEST

/* Header texts as NumPy 1.x and 2.x and other writers make them. */
START_TEST(headers_of_others)
{
    static const struct {
        const char *header;
        size_t payload;
        sx_dtype dtype;
        uint32_t rank;
        int64_t extent[3];
    } row[] = {
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }   \n", 24, SX_F32, 2, {2, 3}},
        {"{'descr': '<f8', 'fortran_order': False, 'shape': (5,), }\n", 40, SX_F64, 1, {5}},
        {"{'descr': '<i8', 'fortran_order': False, 'shape': (), }\n", 8, SX_I64, 0, {0}},
        {"{'shape': (2,2,2), 'fortran_order': False, 'descr': '|u1'}\n", 8, SX_U8, 3, {2, 2, 2}},
        {"{'descr':'|b1','fortran_order':False,'shape':(7,)}\n", 7, SX_BOOL, 1, {7}},
    };
    for (uint32_t i = 0; i < SX_COUNT(row); i++) {
        sxc_npy array;
        ck_sx_ok(&cx, sxc_npy_parse(&cx, "it", file_of(row[i].header, row[i].payload), &array));
        ck_assert_int_eq(array.type.dtype, row[i].dtype);
        ck_assert_uint_eq(array.type.rank, row[i].rank);
        for (uint32_t d = 0; d < row[i].rank; d++) {
            ck_assert_int_eq(array.type.dim[d].scale, row[i].extent[d]);
        }
        ck_assert_uint_eq(array.bytes.len, row[i].payload);
    }
}
END_TEST

START_TEST(refused_headers)
{
    static const struct {
        const char *header;
        size_t payload;
        const char *text;
    } row[] = {
        {"{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }\n", 24, "not in C order"},
        {"{'descr': '>f4', 'fortran_order': False, 'shape': (2,), }\n", 8, "element type"},
        {"{'descr': '<c8', 'fortran_order': False, 'shape': (2,), }\n", 16, "element type"},
        {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,), }\n", 8, "element type"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (0,), }\n", 4, "4 bytes of elements"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }\n", 0, "extent"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }\n", 4,
         "extent"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1), }\n", 4,
         "in at most 8"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776, 1099511627776), }\n", 4,
         "4 bytes of elements"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n", 23,
         "23 bytes of elements"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n", 25,
         "25 bytes of elements"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3", 24, "extent"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': ", 0, "no shape"},
        {"{'descr': '<f4', 'fortran_order': False, }\n", 4, "no shape"},
        {"{'descr': '<f4', 'shape': (1,), }\n", 4, "not in C order"},
        {"", 4, "not in C order"},
    };
    for (uint32_t i = 0; i < SX_COUNT(row); i++) {
        sxc_npy array;
        ck_sx_fails(&cx, sxc_npy_parse(&cx, "it", file_of(row[i].header, row[i].payload), &array),
                    SX_INPUT, row[i].text);
    }
}
END_TEST

START_TEST(truncated_at_each_byte)
{
    sx_type type = {.dtype = SX_F32, .rank = 2, .dim = {sx_dim_of(2), sx_dim_of(3)}};
    uint8_t bytes[24] = {1, 2, 3};
    sx_buf file;
    sxc_npy array;
    sx_buf_init(&file, 65536);
    ck_sx_ok(&cx, sxc_npy_print(&cx, &type, (sx_span){bytes, sizeof(bytes)}, &file));
    for (size_t size = 0; size < file.len; size++) {
        uint8_t *copy = malloc(size + 1); /* its end is where the sanitizer looks */
        memcpy(copy, file.ptr, size);
        ck_assert_int_eq(sxc_npy_parse(&cx, "it", (sx_span){copy, size}, &array), SX_INPUT);
        sx_ctx_reset_error(&cx);
        free(copy);
    }
    file.ptr[6] = 4;
    ck_sx_fails(&cx, sxc_npy_parse(&cx, "it", sx_buf_span(&file), &array), SX_INPUT,
                "version 1 to 3");
    sx_buf_fini(&file);
}
END_TEST

/* Elements without a type are bf16 or an 8-bit float, unsigned ones the signed numbers of their bits, if they fit. */
START_TEST(types_that_are_left_open)
{
    static const struct {
        const char *code;
        size_t payload;
        sx_dtype dtype, as;
        sxc_npy_open open;
    } row[] = {
        {"|V2", 4, SX_BF16, SX_BF16, SXC_NPY_CLOSED},
        {"<V2", 4, SX_BF16, SX_BF16, SXC_NPY_CLOSED},
        {"|V1", 2, SX_F8E4M3, SX_F8E4M3, SXC_NPY_FLOAT8},
        {"<V1", 2, SX_F8E4M3, SX_F8E5M2, SXC_NPY_FLOAT8},
        {"<f1", 2, SX_F8E5M2, SX_F8E5M2, SXC_NPY_CLOSED},
        {"<u2", 4, SX_I16, SX_I16, SXC_NPY_UNSIGNED},
        {"<u4", 8, SX_I32, SX_I32, SXC_NPY_UNSIGNED},
        {"<u8", 16, SX_I64, SX_I64, SXC_NPY_UNSIGNED},
    };
    for (uint32_t i = 0; i < SX_COUNT(row); i++) {
        char header[100];
        sxc_npy array;
        (void)snprintf(header, sizeof(header),
                       "{'descr': '%s', 'fortran_order': False, 'shape': (2,), }\n", row[i].code);
        sx_span file = file_of(header, row[i].payload);
        ck_sx_ok(&cx, sxc_npy_parse(&cx, "it", file, &array));
        ck_assert_int_eq(array.type.dtype, row[i].dtype);
        ck_assert_int_eq(array.open, row[i].open);
        ck_sx_ok(&cx, sxc_npy_as(&cx, "it", row[i].as, &array));
        ck_assert_int_eq(array.type.dtype, row[i].as);
        if (row[i].open == SXC_NPY_UNSIGNED) {
            uint8_t *last = (uint8_t *)(uintptr_t)(file.ptr + file.len - 1);
            *last = 127;
            ck_sx_ok(&cx, sxc_npy_as(&cx, "it", row[i].as, &array));
            *last = 128;
            ck_sx_fails(&cx, sxc_npy_as(&cx, "it", row[i].as, &array), SX_INPUT,
                        "it: element 1 of u");
        }
    }
}
END_TEST

START_TEST(files)
{
    sxc_npy array;
    ck_sx_ok(&cx, sxc_npy_read(&cx, SX_SOURCE_DIR "/tests/models/mlp.expected.npy", &array));
    ck_assert_int_eq(array.type.dtype, SX_F64);
    ck_assert_uint_eq(array.bytes.len, 30 * sizeof(double));
    double sum = 0;
    for (size_t i = 0; i < array.bytes.len / 8; i++) {
        double value;
        memcpy(&value, array.bytes.ptr + 8 * i, 8);
        sum += value;
    }
    ck_assert_double_eq_tol(sum, 3.0, 1e-9); /* three rows of a softmax */
    ck_sx_fails(&cx, sxc_npy_read(&cx, "/nowhere/x.npy", &array), SX_INPUT, "/nowhere/x.npy");
    ck_sx_fails(&cx, sxc_npy_read(&cx, "/", &array), SX_INPUT, "/");
    ck_sx_fails(&cx, sxc_npy_read(&cx, "/dev/null", &array), SX_INPUT, "not a regular file");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("npy");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, setup, teardown);
    tcase_add_test(all, round_trip);
    tcase_add_test(all, headers_of_others);
    tcase_add_test(all, refused_headers);
    tcase_add_test(all, truncated_at_each_byte);
    tcase_add_test(all, types_that_are_left_open);
    tcase_add_test(all, files);
    suite_add_tcase(suite, all);
    return sx_test_main(suite);
}
