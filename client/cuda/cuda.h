/* cuda.h - one NVIDIA GPU by its driver: memory, code, launches, times.
 *
 * Whatever is called between sxg_enter and sxg_leave is done on one stream, in order; results of launches are
 * there after sxg_sync. The caller's own context is current again after sxg_leave.
 *
 * While the stream that was entered is being captured into a graph, sxg_copy, sxg_fill, sxg_map_encode and sxg_launch
 * may be called, and nothing else: they neither allocate nor wait, and what is on the stack of the caller is read
 * before they return.
 *
 * A GPU that has failed in the middle of its work has lost what was in its memory: the error is kept, and every
 * later call on this sxg_gpu fails with it.
 */
#ifndef SX_CLIENT_CUDA_CUDA_H
#define SX_CLIENT_CUDA_CUDA_H
#include "core/base/base.h"

typedef struct sxg_gpu sxg_gpu;
typedef struct {
    char name[128];
    int ordinal;
    int count;           /* GPUs that the driver sees */
    uint32_t capability; /* 80: compute capability 8.0 */
    uint32_t driver;     /* 12040: CUDA 12.4 */
    uint32_t processors; /* streaming multiprocessors */
    /* Shared memory that a block may ask for at its launch, if the text declares none. */
    uint32_t block_shared_bytes;
} sxg_info;

/* The library of the driver, which is opened and not started; `name` is a file, or what the system's loader finds.
 *   errors   SX_ABSENT none; SX_DENIED it is not trusted; SX_UNIMPLEMENTED it lacks a function; SX_SYSTEM */
typedef struct {
    char name[256];
    uint32_t version; /* 12040: CUDA 12.4 */
} sxg_library;
sx_code sxg_library_find(sx_ctx *cx, sxg_library *library);
/* The first GPU whose compute capability is enough. Nothing is kept.
 *   errors   SX_ABSENT no driver, no GPU; SX_UNIMPLEMENTED the GPUs that there are have less, or the driver
 *            lacks a function; SX_DENIED the driver's file is not trusted; SX_SYSTEM */
sx_code sxg_find(sx_ctx *cx, uint32_t capability, sxg_info *info);
/* The GPU of this number. Nothing is kept.  errors  SX_ABSENT there is none of this number; as sxg_find */
sx_code sxg_describe(sx_ctx *cx, int ordinal, sxg_info *info);
void sxg_close(SX_TAKE sxg_gpu *gpu); /* NULL is allowed; frees what is left of memory and code */
/* The same GPU with a stream of its own.  errors  as sxg_find, and SX_NOMEM */
sx_code sxg_open(sx_ctx *cx, uint32_t capability, sxg_gpu **gpu);
const sxg_info *sxg_info_of(const sxg_gpu *gpu);

/* Makes the GPU current for the calls below.  errors  SX_SYSTEM, the kept error of a GPU that is lost, too */
sx_code sxg_enter(sx_ctx *cx, sxg_gpu *gpu);
/* The same, and what follows is done on a stream of the caller (a CUstream of the GPU's primary context; NULL: its
 * default stream) instead of the GPU's own. */
sx_code sxg_enter_stream(sx_ctx *cx, sxg_gpu *gpu, void *stream);
void sxg_leave(sxg_gpu *gpu);

/* ---- memory ---- */

/* Is this the address of memory of this GPU, whoever allocated it?
 *   errors   SX_INPUT it is not, or of another one, by number */
sx_code sxg_check_address(sx_ctx *cx, sxg_gpu *gpu, uint64_t at);

/* `what` is for the error.  errors  SX_NOMEM with the bytes that were wanted and those that are free */
sx_code sxg_alloc(sx_ctx *cx, sxg_gpu *gpu, const char *what, uint64_t bytes, uint64_t *at);
void sxg_free(sxg_gpu *gpu, uint64_t at); /* 0 is allowed */
/* Memory of the host may be used again when sxg_upload returns, and holds the bytes after sxg_sync. */
sx_code sxg_upload(sx_ctx *cx, sxg_gpu *gpu, uint64_t to, const void *from, uint64_t bytes);
sx_code sxg_download(sx_ctx *cx, sxg_gpu *gpu, void *to, uint64_t from, uint64_t bytes);
sx_code sxg_copy(sx_ctx *cx, sxg_gpu *gpu, uint64_t to, uint64_t from, uint64_t bytes);
/* Fills with one element of 1, 2, 4 or 8 bytes, again and again; `bytes` is a multiple of that. */
sx_code sxg_fill(sx_ctx *cx, sxg_gpu *gpu, uint64_t to, uint64_t bytes, uint64_t element,
                 uint32_t element_bytes);
sx_code sxg_sync(sx_ctx *cx, sxg_gpu *gpu);

/* ---- code ---- */

typedef struct {
    void *handle;
    uint32_t shared_bytes; /* that each launch asks for */
    uint32_t blocks_max;   /* that the GPU holds at once, with the threads of sxg_function_find */
} sxg_function;
typedef struct {
    uint32_t x, y, z;
} sxg_dim;
/* The driver compiles PTX text for the GPU. A NUL stands behind `text`.
 *   errors   SX_UNIMPLEMENTED the text is for a newer driver, with both versions; SX_COMPILE the driver refuses
 *            it, with what it says */
sx_code sxg_load(sx_ctx *cx, sxg_gpu *gpu, sx_span text, void **module);
/* Machine code for exactly this GPU, as an assembler made it; `cubin` is aligned to 64.
 *   errors   SX_COMPILE the driver refuses it, with what it says */
sx_code sxg_load_cubin(sx_ctx *cx, sxg_gpu *gpu, sx_span cubin, void **module);
void sxg_unload(sxg_gpu *gpu, void *module); /* NULL is allowed */
/* For blocks of so many threads, 32 to 1024, whose launch asks for so many bytes of shared memory.
 *   errors   SX_LIMIT a block of this GPU has less, with both numbers, or no such block fits; SX_SYSTEM */
sx_code sxg_function_find(sx_ctx *cx, sxg_gpu *gpu, void *module, const char *name,
                          uint32_t threads, uint32_t shared_bytes, sxg_function *function);
/* `parameter`: where the value of each parameter lies; read before the call returns. */
sx_code sxg_launch(sx_ctx *cx, sxg_gpu *gpu, const sxg_function *function, sxg_dim grid,
                   sxg_dim block, void **parameter);

/* ---- what the copy engine reads ---- */

/* Values of CUtensorMapDataType. */
typedef enum {
    SXG_U8 = 0,
    SXG_U16 = 1,
    SXG_U32 = 2,
    SXG_I32 = 3,
    SXG_U64 = 4,
    SXG_I64 = 5,
    SXG_F16 = 6,
    SXG_F32 = 7,
    SXG_F64 = 8,
    SXG_BF16 = 9
} sxg_element;
/* A tensor in memory of the GPU, and the boxes in which it is copied to shared memory; dimensions from the innermost
 * outwards. Elements are not interleaved, each is taken, and what lies outside of the tensor arrives as zeros. */
#define SXG_MAP_RANK_MAX 5
typedef struct {
    uint64_t at; /* a multiple of 16 */
    sxg_element element;
    uint32_t rank;
    uint64_t dim[SXG_MAP_RANK_MAX];    /* elements */
    uint64_t stride[SXG_MAP_RANK_MAX]; /* bytes; the first one is that of an element */
    uint32_t box[SXG_MAP_RANK_MAX];    /* elements */
    uint32_t swizzle_bytes;            /* 0, 32, 64, 128 */
    uint32_t promoted_bytes;           /* 0, 64, 128, 256 */
} sxg_map;
/* The value of a kernel's parameter: 128 bytes (CUtensorMap), for which memory is aligned to 64. It waits for nothing,
 * and may be called while a stream is captured.
 *   errors   SX_INPUT the address is not a multiple of 16; SX_UNIMPLEMENTED the driver or the GPU has no such maps;
 *            SX_SYSTEM the driver refuses it */
typedef struct {
    _Alignas(64) uint8_t bytes[128];
} sxg_encoded_map;
sx_code sxg_map_encode(sx_ctx *cx, sxg_gpu *gpu, const sxg_map *map, sxg_encoded_map *encoded);

/* ---- graphs ---- */

/* What is called until sxg_graph_end is not done but kept, on the stream that was entered, which is not the default
 * stream. Each begin has its end, also after a failure, whose `code` is passed on; then there is no graph.
 *   errors   SX_UNIMPLEMENTED the driver lacks a function; SX_SYSTEM */
sx_code sxg_graph_begin(sx_ctx *cx, sxg_gpu *gpu);
sx_code sxg_graph_end(sx_ctx *cx, sxg_gpu *gpu, sx_code code, void **graph);
/* Does all that was kept, in its order. */
sx_code sxg_graph_launch(sx_ctx *cx, sxg_gpu *gpu, void *graph);
void sxg_graph_free(sxg_gpu *gpu, void *graph); /* NULL is allowed */

/* ---- streams in order: between sxg_enter and sxg_leave, whatever stream was entered ---- */

/* What is put on `then` from now on waits for what is on `first` now.  errors  SX_SYSTEM */
sx_code sxg_order(sx_ctx *cx, sxg_gpu *gpu, void *first, void *then);
/* Remembers how far the stream has come; nothing where it is being captured.  errors  SX_SYSTEM */
sx_code sxg_mark(sx_ctx *cx, sxg_gpu *gpu, void *stream);
/* What is put on `stream` from now on waits for what the last mark remembers. Nothing where there was no mark, and
 * where the stream is being captured: whoever launches the graph has it in order.  errors  SX_SYSTEM */
sx_code sxg_follow(sx_ctx *cx, sxg_gpu *gpu, void *stream);
/* The same for the GPU's own stream. */
sx_code sxg_follow_own(sx_ctx *cx, sxg_gpu *gpu);

/* ---- time ---- */

/* Nanoseconds that the GPU needs for what is called in between; waits for its end. */
sx_code sxg_time_begin(sx_ctx *cx, sxg_gpu *gpu);
sx_code sxg_time_end(sx_ctx *cx, sxg_gpu *gpu, uint64_t *ns);
#endif
