#include "tests/device/peers.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* Numbers of cublas_api.h, cublasLt.h and library_types.h, CUDA 11.0 to 13.0. */
enum { OP_N = 0, OP_T = 1, COMPUTE_32F = 68, GEMM_DEFAULT = -1, R_32F = 0, R_16F = 2, R_16BF = 14 };
enum { DESC_TRANSA = 3, DESC_TRANSB = 4, PREFERENCE_WORKSPACE = 1 };

/* cublasLtMatmulAlgo_t and cublasLtMatmulHeuristicResult_t. */
typedef struct {
    uint64_t data[8];
} algorithm;
typedef struct {
    algorithm algo;
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
} heuristic;

/* FUNCTION(field, symbol, arguments): all return a cublasStatus_t, 0 for success. */
#define BLAS(FUNCTION)                                                                       \
    FUNCTION(create, "cublasCreate_v2", (void **handle))                                     \
    FUNCTION(destroy, "cublasDestroy_v2", (void *handle))                                    \
    FUNCTION(set_stream, "cublasSetStream_v2", (void *handle, void *stream))                 \
    FUNCTION(set_workspace, "cublasSetWorkspace_v2", (void *handle, void *at, size_t bytes)) \
    FUNCTION(gemm, "cublasGemmEx",                                                           \
             (void *handle, int op_a, int op_b, int m, int n, int k, const void *alpha,      \
              const void *a, int type_a, int lda, const void *b, int type_b, int ldb,        \
              const void *beta, void *c, int type_c, int ldc, int compute, int algo))
#define LIGHT(FUNCTION)                                                                       \
    FUNCTION(light_create, "cublasLtCreate", (void **handle))                                 \
    FUNCTION(light_destroy, "cublasLtDestroy", (void *handle))                                \
    FUNCTION(desc_create, "cublasLtMatmulDescCreate", (void **desc, int compute, int scale))  \
    FUNCTION(desc_destroy, "cublasLtMatmulDescDestroy", (void *desc))                         \
    FUNCTION(desc_set, "cublasLtMatmulDescSetAttribute",                                      \
             (void *desc, int attribute, const void *value, size_t size))                     \
    FUNCTION(layout_create, "cublasLtMatrixLayoutCreate",                                     \
             (void **layout, int type, uint64_t rows, uint64_t columns, int64_t ld))          \
    FUNCTION(layout_destroy, "cublasLtMatrixLayoutDestroy", (void *layout))                   \
    FUNCTION(preference_create, "cublasLtMatmulPreferenceCreate", (void **preference))        \
    FUNCTION(preference_destroy, "cublasLtMatmulPreferenceDestroy", (void *preference))       \
    FUNCTION(preference_set, "cublasLtMatmulPreferenceSetAttribute",                          \
             (void *preference, int attribute, const void *value, size_t size))               \
    FUNCTION(advise, "cublasLtMatmulAlgoGetHeuristic",                                        \
             (void *handle, void *desc, void *a, void *b, void *c, void *d, void *preference, \
              int wanted, heuristic *result, int *count))                                     \
    FUNCTION(matmul, "cublasLtMatmul",                                                        \
             (void *handle, void *desc, const void *alpha, const void *a, void *layout_a,     \
              const void *b, void *layout_b, const void *beta, const void *c, void *layout_c, \
              void *d, void *layout_d, const algorithm *algo, void *workspace, size_t bytes,  \
              void *stream))

struct sx_peer {
    sx_peer_kind kind;
    void *handle, *stream;
    uint64_t workspace;
    int m, n, k, op[2], ld[2], type; /* as the library sees it: its first factor is our b */
    void *desc, *layout[3];
    heuristic plan[SX_PEER_PLANS_MAX];
#define FIELD(field, symbol, arguments) int(*field) arguments;
    BLAS(FIELD)
    LIGHT(FIELD)
#undef FIELD
};

const char *sx_peer_name(sx_peer_kind kind)
{
    return kind == SX_PEER_CUBLAS ? "cuBLAS" : "cuBLASLt";
}

static sx_code open_library(sx_ctx *cx, sx_peer_kind kind, void **library)
{
    static const char *const names[][3] = {
        [SX_PEER_CUBLAS] = {"libcublas.so.13", "libcublas.so.12", "libcublas.so.11"},
        [SX_PEER_CUBLASLT] = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11"}};
    const char *given = getenv(kind == SX_PEER_CUBLAS ? "SX_CUBLAS" : "SX_CUBLASLT");
    *library = given != NULL ? dlopen(given, RTLD_NOW | RTLD_LOCAL) : NULL;
    for (uint32_t i = 0; given == NULL && *library == NULL && i < 3; i++) {
        *library = dlopen(names[kind][i], RTLD_NOW | RTLD_LOCAL);
    }
    return *library != NULL ? SX_OK
                            : SX_FAIL(cx, SX_ABSENT, "no %s: %s", sx_peer_name(kind), dlerror());
}

static sx_code find(sx_ctx *cx, void *library, const char *symbol, void *function)
{
    void *address = dlsym(library, symbol);
    if (address == NULL) {
        return SX_FAIL(cx, SX_ABSENT, "no %s: %s", symbol, dlerror());
    }
    memcpy(function, &address, sizeof(address)); /* as POSIX allows */
    return SX_OK;
}

static sx_code must(sx_ctx *cx, const char *what, int status)
{
    return status == 0 ? SX_OK : SX_FAIL(cx, SX_SYSTEM, "%s answers %d", what, status);
}

sx_code sx_peer_open(sx_ctx *cx, sx_peer_kind kind, void *stream, uint64_t workspace,
                     sx_peer **peer)
{
    void *library;
    sx_peer *p = SX_NEW(cx, sx_peer);
    if (p == NULL) {
        return cx->error.code;
    }
    p->kind = kind;
    p->stream = stream;
    p->workspace = workspace;
    SX_TRY(open_library(cx, kind, &library)); /* stays loaded */
#define FIND(field, symbol, arguments) SX_TRY(find(cx, library, symbol, &p->field));
    if (kind == SX_PEER_CUBLAS) {
        BLAS(FIND)
        SX_TRY(must(cx, "cublasCreate", p->create(&p->handle)));
        int status = p->set_stream(p->handle, stream);
        void *at = (void *)(uintptr_t)workspace; /* behind set_stream, which takes it away */
        status = status == 0 ? p->set_workspace(p->handle, at, SX_PEER_WORKSPACE) : status;
        if (status != 0) {
            (void)p->destroy(p->handle);
        }
        SX_TRY(must(cx, "cublasSetStream", status));
    } else {
        LIGHT(FIND)
        SX_TRY(must(cx, "cublasLtCreate", p->light_create(&p->handle)));
    }
#undef FIND
    *peer = p;
    return SX_OK;
}

static void drop_plans(sx_peer *p)
{
    for (uint32_t i = 0; i < SX_COUNT(p->layout); i++) {
        if (p->layout[i] != NULL) {
            (void)p->layout_destroy(p->layout[i]);
            p->layout[i] = NULL;
        }
    }
    if (p->desc != NULL) {
        (void)p->desc_destroy(p->desc);
        p->desc = NULL;
    }
}

void sx_peer_close(sx_peer *peer)
{
    if (peer != NULL) {
        drop_plans(peer);
        (void)(peer->kind == SX_PEER_CUBLAS ? peer->destroy : peer->light_destroy)(peer->handle);
    }
}

/* Descriptor and layouts of a product for cuBLASLt, and its advice. */
static int plan(sx_peer *p, int *count)
{
    uint64_t bytes = SX_PEER_WORKSPACE;
    void *preference = NULL;
    uint64_t m = (uint64_t)p->m, n = (uint64_t)p->n, k = (uint64_t)p->k;
    int status = p->desc_create(&p->desc, COMPUTE_32F, R_32F);
    status = status == 0 ? p->desc_set(p->desc, DESC_TRANSA, &p->op[0], sizeof(int)) : status;
    status = status == 0 ? p->desc_set(p->desc, DESC_TRANSB, &p->op[1], sizeof(int)) : status;
    bool turned[2] = {p->op[0] == OP_T, p->op[1] == OP_T};
    status = status == 0 ? p->layout_create(&p->layout[0], p->type, turned[0] ? k : m,
                                            turned[0] ? m : k, p->ld[0])
                         : status;
    status = status == 0 ? p->layout_create(&p->layout[1], p->type, turned[1] ? n : k,
                                            turned[1] ? k : n, p->ld[1])
                         : status;
    status = status == 0 ? p->layout_create(&p->layout[2], p->type, m, n, p->m) : status;
    status = status == 0 ? p->preference_create(&preference) : status;
    status = status == 0
                 ? p->preference_set(preference, PREFERENCE_WORKSPACE, &bytes, sizeof(bytes))
                 : status;
    status = status == 0 ? p->advise(p->handle, p->desc, p->layout[0], p->layout[1], p->layout[2],
                                     p->layout[2], preference, SX_PEER_PLANS_MAX, p->plan, count)
                         : status;
    if (preference != NULL) {
        (void)p->preference_destroy(preference);
    }
    return status;
}

sx_code sx_peer_prepare(sx_ctx *cx, sx_peer *p, const sx_judged *product, uint32_t *plans)
{
    int count = 1;
    if (product->kind != SX_JUDGE_PRODUCT) {
        return SX_FAIL(cx, SX_UNIMPLEMENTED, "products alone");
    }
    SX_ASSERT(product->x[0] <= INT32_MAX && product->x[1] <= INT32_MAX &&
              product->x[2] <= INT32_MAX);
    p->m = (int)product->x[1];
    p->n = (int)product->x[0];
    p->k = (int)product->x[2];
    p->op[0] = product->right_turned ? OP_T : OP_N;
    p->op[1] = product->left_turned ? OP_T : OP_N;
    p->ld[0] = product->right_turned ? p->k : p->m;
    p->ld[1] = product->left_turned ? p->n : p->k;
    p->type = product->result == SX_BF16 ? R_16BF : product->result == SX_F16 ? R_16F : R_32F;
    drop_plans(p);
    if (p->kind == SX_PEER_CUBLASLT) {
        SX_TRY(must(cx, "cublasLtMatmulAlgoGetHeuristic", plan(p, &count)));
    }
    if (count < 1) {
        return SX_FAIL(cx, SX_UNIMPLEMENTED, "%s has no plan", sx_peer_name(p->kind));
    }
    *plans = (uint32_t)count;
    return SX_OK;
}

sx_code sx_peer_enqueue(sx_ctx *cx, sx_peer *p, uint32_t plan_index, uint64_t a, uint64_t b,
                        uint64_t c)
{
    static const float one = 1, zero = 0;
    const void *first = (const void *)(uintptr_t)b, *second = (const void *)(uintptr_t)a;
    void *result = (void *)(uintptr_t)c, *workspace = (void *)(uintptr_t)p->workspace;
    if (p->kind == SX_PEER_CUBLAS) {
        return must(cx, "cublasGemmEx",
                    p->gemm(p->handle, p->op[0], p->op[1], p->m, p->n, p->k, &one, first, p->type,
                            p->ld[0], second, p->type, p->ld[1], &zero, result, p->type, p->m,
                            COMPUTE_32F, GEMM_DEFAULT));
    }
    SX_ASSERT(plan_index < SX_PEER_PLANS_MAX);
    return must(cx, "cublasLtMatmul",
                p->matmul(p->handle, p->desc, &one, first, p->layout[0], second, p->layout[1],
                          &zero, result, p->layout[2], result, p->layout[2],
                          &p->plan[plan_index].algo, workspace, SX_PEER_WORKSPACE, p->stream));
}
