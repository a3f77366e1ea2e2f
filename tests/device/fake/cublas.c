/* cublas.c - cuBLAS and cuBLASLt for tests: products in double precision on the memory of the fake driver
 * (tests/client/cuda/fake), which $SYMPLEX_CUDA_DRIVER names. While the stream is being captured nothing is computed.
 *
 * It has what tests/device/peers.c calls, and refuses what these libraries would refuse: other types, leading
 * dimensions that are too small, a workspace before a stream. $SX_FAKE_CUBLAS: "fail" refuses every product;
 * "wrong" swaps the transposition of the first factor. */
#include <dlfcn.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default"))) int
enum {
    OK = 0,
    INVALID = 7,
    NOT_SUPPORTED = 15,
    R_32F = 0,
    R_16F = 2,
    R_16BF = 14,
    COMPUTE_32F = 68
};

typedef struct {
    void *stream;
} handle;
typedef struct {
    int op_a, op_b, m, n, k, type, lda, ldb, ldc;
    uint64_t a, b, c;
} product;
typedef struct {
    int op[2];
} description;
typedef struct {
    int type;
    uint64_t rows, columns;
    int64_t ld;
} layout;

static void *function(const char *name)
{
    void *library = dlopen(getenv("SYMPLEX_CUDA_DRIVER"), RTLD_NOW | RTLD_LOCAL);
    void *address = library != NULL ? dlsym(library, name) : NULL;
    if (address == NULL) {
        (void)fprintf(stderr, "fake cuBLAS: no %s\n", name);
        abort();
    }
    return address;
}

static double get(const uint8_t *bytes, int type, int64_t index)
{
    uint32_t bits = 0;
    float x;
    if (type == R_32F) {
        memcpy(&bits, bytes + 4 * index, 4);
    } else {
        memcpy(&bits, bytes + 2 * index, 2);
    }
    if (type == R_16F) {
        int exponent = (int)(bits >> 10 & 31);
        double fraction = (double)(bits & 1023) / 1024;
        double size = exponent == 0 ? ldexp(fraction, -14) : ldexp(1 + fraction, exponent - 15);
        return bits >> 15 ? -size : size;
    }
    bits = type == R_16BF ? bits << 16 : bits;
    memcpy(&x, &bits, 4);
    return (double)x;
}

static void put(uint8_t *bytes, int type, int64_t index, double value)
{
    float x = (float)value;
    uint32_t bits;
    memcpy(&bits, &x, 4);
    if (type == R_32F) {
        memcpy(bytes + 4 * index, &bits, 4);
        return;
    }
    if (type == R_16BF) {
        bits = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    } else {
        int exponent;
        (void)frexp(fabs(value), &exponent);
        int last = exponent - 11 < -24 ? -24 : exponent - 11;
        double rounded = value == 0 ? 0 : ldexp(nearbyint(ldexp(fabs(value), -last)), last);
        float size = (float)rounded;
        memcpy(&bits, &size, 4);
        bits = rounded < 0x1p-14 ? (uint32_t)ldexp(rounded, 24) : (bits - (112u << 23)) >> 13;
        bits |= value < 0 ? 0x8000u : 0;
    }
    memcpy(bytes + 2 * index, &bits, 2);
}

static int multiply(const product *p, void *stream)
{
    int (*capturing)(void *, int *), (*download)(void *, uint64_t, size_t, void *);
    int (*upload)(uint64_t, const void *, size_t, void *), captured = 0;
    void *address[3] = {function("cuStreamIsCapturing"), function("cuMemcpyDtoHAsync_v2"),
                        function("cuMemcpyHtoDAsync_v2")};
    memcpy(&capturing, &address[0], sizeof(capturing));
    memcpy(&download, &address[1], sizeof(download));
    memcpy(&upload, &address[2], sizeof(upload));
    const char *mode = getenv("SX_FAKE_CUBLAS");
    int64_t m = p->m, n = p->n, k = p->k;
    int ta = p->op_a == 1, tb = p->op_b == 1;
    if (mode != NULL && strcmp(mode, "fail") == 0) {
        return NOT_SUPPORTED;
    }
    if (p->lda < (ta ? k : m) || p->ldb < (tb ? n : k) || p->ldc < m) {
        return INVALID;
    }
    if (capturing(stream, &captured) != 0 || captured != 0) {
        return captured != 0 ? OK : INVALID;
    }
    size_t size = p->type == R_32F ? 4 : 2;
    size_t bytes[3] = {size * (size_t)(p->lda * (ta ? m : k)),
                       size * (size_t)(p->ldb * (tb ? k : n)), size * (size_t)(p->ldc * n)};
    uint8_t *a = malloc(bytes[0]), *b = malloc(bytes[1]), *c = malloc(bytes[2]);
    int status = a == NULL || b == NULL || c == NULL ? INVALID : OK;
    status = status == OK ? download(a, p->a, bytes[0], stream) : status;
    status = status == OK ? download(b, p->b, bytes[1], stream) : status;
    int swap = mode != NULL && strcmp(mode, "wrong") == 0;
    for (int64_t column = 0; status == OK && column < n; column++) {
        for (int64_t row = 0; row < m; row++) {
            double sum = 0;
            for (int64_t i = 0; i < k; i++) {
                int64_t at = (ta != 0) != (swap != 0) ? row * p->lda + i : i * p->lda + row;
                at %= (int64_t)(bytes[0] / size);
                sum += get(a, p->type, at) *
                       get(b, p->type, tb ? i * p->ldb + column : column * p->ldb + i);
            }
            put(c, p->type, column * p->ldc + row, sum);
        }
    }
    status = status == OK ? upload(p->c, c, bytes[2], stream) : status;
    free(a);
    free(b);
    free(c);
    return status;
}

/* ---- cuBLAS ---- */

API cublasCreate_v2(void **made);
API cublasCreate_v2(void **made)
{
    *made = calloc(1, sizeof(handle));
    return *made != NULL ? OK : INVALID;
}

API cublasDestroy_v2(void *made);
API cublasDestroy_v2(void *made)
{
    free(made);
    return OK;
}

API cublasSetStream_v2(void *made, void *stream);
API cublasSetStream_v2(void *made, void *stream)
{
    ((handle *)made)->stream = stream;
    return OK;
}

API cublasSetWorkspace_v2(void *made, void *at, size_t bytes);
API cublasSetWorkspace_v2(void *made, void *at, size_t bytes)
{
    return ((handle *)made)->stream != NULL && at != NULL && bytes > 0 ? OK : INVALID;
}

API cublasGemmEx(void *made, int op_a, int op_b, int m, int n, int k, const void *alpha,
                 const void *a, int type_a, int lda, const void *b, int type_b, int ldb,
                 const void *beta, void *c, int type_c, int ldc, int compute, int algo);
API cublasGemmEx(void *made, int op_a, int op_b, int m, int n, int k, const void *alpha,
                 const void *a, int type_a, int lda, const void *b, int type_b, int ldb,
                 const void *beta, void *c, int type_c, int ldc, int compute, int algo)
{
    float one, zero;
    memcpy(&one, alpha, 4);
    memcpy(&zero, beta, 4);
    if (type_a != type_b || type_a != type_c || compute != COMPUTE_32F || algo != -1 || one != 1 ||
        zero != 0 || (type_a != R_32F && type_a != R_16F && type_a != R_16BF)) {
        return NOT_SUPPORTED;
    }
    const product p = {op_a,         op_b,         m,           n, k, type_a, lda, ldb, ldc,
                       (uintptr_t)a, (uintptr_t)b, (uintptr_t)c};
    return multiply(&p, ((handle *)made)->stream);
}

/* ---- cuBLASLt ---- */

API cublasLtCreate(void **made);
API cublasLtCreate(void **made)
{
    return cublasCreate_v2(made);
}

API cublasLtDestroy(void *made);
API cublasLtDestroy(void *made)
{
    return cublasDestroy_v2(made);
}

API cublasLtMatmulDescCreate(void **made, int compute, int scale);
API cublasLtMatmulDescCreate(void **made, int compute, int scale)
{
    *made = calloc(1, sizeof(description));
    return *made != NULL && compute == COMPUTE_32F && scale == R_32F ? OK : INVALID;
}

API cublasLtMatmulDescDestroy(void *made);
API cublasLtMatmulDescDestroy(void *made)
{
    return cublasDestroy_v2(made);
}

API cublasLtMatmulDescSetAttribute(void *made, int attribute, const void *value, size_t size);
API cublasLtMatmulDescSetAttribute(void *made, int attribute, const void *value, size_t size)
{
    if ((attribute != 3 && attribute != 4) || size != sizeof(int)) {
        return INVALID;
    }
    memcpy(&((description *)made)->op[attribute - 3], value, size);
    return OK;
}

API cublasLtMatrixLayoutCreate(void **made, int type, uint64_t rows, uint64_t columns, int64_t ld);
API cublasLtMatrixLayoutCreate(void **made, int type, uint64_t rows, uint64_t columns, int64_t ld)
{
    layout *l = calloc(1, sizeof(*l));
    *made = l;
    if (l == NULL || ld < (int64_t)rows) {
        return INVALID;
    }
    *l = (layout){type, rows, columns, ld};
    return OK;
}

API cublasLtMatrixLayoutDestroy(void *made);
API cublasLtMatrixLayoutDestroy(void *made)
{
    return cublasDestroy_v2(made);
}

API cublasLtMatmulPreferenceCreate(void **made);
API cublasLtMatmulPreferenceCreate(void **made)
{
    return cublasCreate_v2(made);
}

API cublasLtMatmulPreferenceDestroy(void *made);
API cublasLtMatmulPreferenceDestroy(void *made)
{
    return cublasDestroy_v2(made);
}

API cublasLtMatmulPreferenceSetAttribute(void *made, int attribute, const void *value, size_t size);
API cublasLtMatmulPreferenceSetAttribute(void *made, int attribute, const void *value, size_t size)
{
    (void)made;
    (void)value;
    return attribute == 1 && size == sizeof(uint64_t) ? OK : INVALID;
}

/* Two plans: the second one is as the first. A result is 96 bytes, which begin with the plan. */
API cublasLtMatmulAlgoGetHeuristic(void *made, void *desc, void *a, void *b, void *c, void *d,
                                   void *preference, int wanted, void *result, int *count);
API cublasLtMatmulAlgoGetHeuristic(void *made, void *desc, void *a, void *b, void *c, void *d,
                                   void *preference, int wanted, void *result, int *count)
{
    const description *op = desc;
    const layout *x = a, *y = b, *z = c;
    (void)made;
    (void)d;
    uint64_t k[2] = {op->op[0] == 1 ? x->rows : x->columns, op->op[1] == 1 ? y->columns : y->rows};
    uint64_t m = op->op[0] == 1 ? x->columns : x->rows, n = op->op[1] == 1 ? y->rows : y->columns;
    if (preference == NULL || wanted < 2 || k[0] != k[1] || m != z->rows || n != z->columns) {
        return INVALID;
    }
    memset(result, 0, 2 * 96);
    memset(result, 1, 64);
    memset((char *)result + 96, 2, 64);
    *count = 2;
    return OK;
}

API cublasLtMatmul(void *made, void *desc, const void *alpha, const void *a, void *layout_a,
                   const void *b, void *layout_b, const void *beta, const void *c, void *layout_c,
                   void *d, void *layout_d, const void *algo, void *workspace, size_t bytes,
                   void *stream);
API cublasLtMatmul(void *made, void *desc, const void *alpha, const void *a, void *layout_a,
                   const void *b, void *layout_b, const void *beta, const void *c, void *layout_c,
                   void *d, void *layout_d, const void *algo, void *workspace, size_t bytes,
                   void *stream)
{
    const description *op = desc;
    const layout *x = layout_a, *y = layout_b, *z = layout_d;
    char plan = *(const char *)algo;
    (void)made;
    (void)alpha;
    (void)beta;
    if ((plan != 1 && plan != 2) || workspace == NULL || bytes == 0 || c != d ||
        layout_c != layout_d) {
        return INVALID;
    }
    const product p = {op->op[0],
                       op->op[1],
                       (int)z->rows,
                       (int)z->columns,
                       (int)(op->op[0] == 1 ? x->rows : x->columns),
                       x->type,
                       (int)x->ld,
                       (int)y->ld,
                       (int)z->ld,
                       (uintptr_t)a,
                       (uintptr_t)b,
                       (uintptr_t)d};
    return multiply(&p, stream);
}
