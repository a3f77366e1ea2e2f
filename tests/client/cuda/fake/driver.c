/* driver.c - a CUDA driver for tests: memory of the host at addresses that only it knows, kernels by the interpreter
 * of PTX (core/simt/run.h), everything at once.
 *
 * $SX_FAKE_CUDA says what it is like, read at each cuInit and cuDriverGetVersion; words are separated by spaces:
 *   version=12040     what cuDriverGetVersion says (13000)
 *   capability=80     of its GPU (90)
 *   other=1           all memory is said to be of GPU 1
 *   name=NAME         of its GPUs, with _ for spaces (Fake 0, Fake 1, ...)
 *   gpus=1            how many GPUs, of which all but the first have one more; 0: none
 *   memory=BYTES      of a GPU (1 GiB)
 *   cubin=FILE        PTX that it runs in place of any cubin, which must be for its capability; else it takes none
 *   shared=BYTES      that a block may have at most (232448)
 *   jitter=SEED       times of work are those of a busy GPU: by its number of blocks, or alike= for all
 *   fail=NAME:N:CODE  the N-th call of the function NAME answers CODE
 *
 * A stream can be captured into a graph (cuStreamBeginCapture_v2 and what belongs to it, for tests that call them): its
 * launches, copies and fills are kept with the values of their parameters, and done by cuGraphLaunch. Until the capture
 * ends every call that a graph could not repeat ends the process: memory, code, events, waiting, copies from and to the
 * host, and work on any other stream.
 *
 * It is stricter than a driver: it ends the process where memory, code, streams or events are left when the last
 * user of the context has gone, where a context is popped that was not pushed, and at addresses that it gave to
 * nobody in copies. Compiled with SX_FAKE_OLD it lacks cuOccupancyMaxActiveBlocksPerMultiprocessor, with
 * SX_FAKE_11 cuTensorMapEncodeTiled. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/base.h"
#include "core/simt/run.h"
#include "tests/client/cuda/fake/driver.h"
#include "tests/client/cuda/fake/events.h"
#include "tests/client/cuda/fake/image.h"
#include "tests/client/cuda/fake/map.h"
#include "tests/client/cuda/fake/name.h"
#include "tests/client/cuda/fake/time.h"

#define ALLOCATIONS_MAX 64
#define MODULES_MAX 512
#define FUNCTIONS_MAX 2048
#define FUNCTION_NAMES_MAX 64
#define DEPTH_MAX 8
#define PARAMETERS_MAX 140
#define STREAMS_MAX 8
#define NODES_MAX 4096
#define MAPS_MAX 3 /* of a kernel */

/* Numbers of cuda.h. */
enum {
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201,
    NO_BINARY = 209,
    INVALID_PTX = 218,
    NOT_FOUND = 500,
    ILLEGAL_ADDRESS = 700,
    OUT_OF_RESOURCES = 701,
    LAUNCH_FAILED = 719
};

typedef struct {
    uint64_t at; /* 0: free */
    uint8_t *bytes;
    size_t size;
} allocation;

typedef struct {
    bool used;
    sx_ctx cx;
    sx_ptx_module *ptx;
} code_module;

typedef struct {
    code_module *module;
    const sx_ptx_kernel *kernel;
    unsigned shared_bytes_max; /* that a launch may ask for */
} kernel_function;

/* What was captured. */
typedef enum { NODE_LAUNCH, NODE_COPY, NODE_FILL } node_kind;
typedef struct {
    node_kind kind;
    const kernel_function *function;
    unsigned dim[6], shared_bytes;
    uint64_t value[PARAMETERS_MAX]; /* of parameters; of maps which one it is */
    uint8_t map[MAPS_MAX][FAKE_MAP_BYTES];
    uint64_t to, from;
    size_t size, pitch, count; /* of a copy; of elements that are filled */
    unsigned element;
} node;
typedef struct {
    node *node;
    uint32_t count;
    bool executable;
} graph;

static struct {
    bool started, other_gpu;
    int version, capability, gpus, shared, lost;
    size_t memory, used;
    char fail_name[64], cubin[256];
    uint32_t fail_nth;
    int fail_code;
    const char *name[FUNCTION_NAMES_MAX]; /* of functions that were called, and how often */
    uint32_t calls[FUNCTION_NAMES_MAX];
    uint32_t users, depth; /* of the context */
    uint32_t streams, graphs, blocks;
    char stream[STREAMS_MAX]; /* 1: it is there; else only their addresses matter */
    void *captured;           /* NULL: none is captured now */
    graph *graph;             /* that it is captured into */
    uint64_t next;            /* address */
    allocation allocated[ALLOCATIONS_MAX];
    code_module module[MODULES_MAX];
    kernel_function function[FUNCTIONS_MAX];
    uint32_t function_count;
    char context; /* only its address matters */
} driver;

_Noreturn void fake_die(const char *why)
{
    (void)fprintf(stderr, "fake CUDA driver: %s\n", why);
    abort();
}

/* ---- what goes wrong ---- */

/* Counts the call; the error that it has to answer, or 0. */
int fake_enter(const char *name, bool needs_context)
{
    uint32_t i = 0;
    while (i < FUNCTION_NAMES_MAX && driver.name[i] != NULL && strcmp(driver.name[i], name) != 0) {
        i++;
    }
    if (i == FUNCTION_NAMES_MAX) {
        fake_die("too many functions");
    }
    driver.name[i] = name;
    driver.calls[i]++;
    if (!driver.started) {
        return NOT_INITIALIZED;
    }
    if (needs_context && driver.depth == 0) {
        return INVALID_CONTEXT;
    }
    if (driver.lost != 0 && needs_context) {
        return driver.lost;
    }
    if (strcmp(name, driver.fail_name) == 0 && driver.calls[i] == driver.fail_nth) {
        bool lasts = driver.fail_code >= ILLEGAL_ADDRESS && driver.fail_code != OUT_OF_RESOURCES &&
                     driver.fail_code <= LAUNCH_FAILED;
        driver.lost = lasts ? driver.fail_code : 0;
        return driver.fail_code;
    }
    return 0;
}
/* Nothing that a graph could not repeat. */
void fake_not_captured(const char *name)
{
    if (driver.captured != NULL) {
        (void)fprintf(stderr, "%s: ", name);
        fake_die("called while a stream is captured");
    }
}

/* A new node of the graph, where the stream is captured; NULL: the work is to be done now. */
static node *captured(void *stream)
{
    if (driver.captured == NULL) {
        return NULL;
    }
    if (stream != driver.captured || driver.graph->count == NODES_MAX) {
        fake_die("work beside the stream that is captured, or too much of it");
    }
    return &driver.graph->node[driver.graph->count++];
}

static long word_of(const char *text, const char *key, long usual)
{
    const char *at = text != NULL ? strstr(text, key) : NULL;
    return at != NULL ? strtol(at + strlen(key), NULL, 10) : usual;
}

static void read_settings(void)
{
    const char *text = getenv("SX_FAKE_CUDA");
    const char *fail = text != NULL ? strstr(text, "fail=") : NULL;
    driver.version = (int)word_of(text, "version=", 13000);
    driver.capability = (int)word_of(text, "capability=", 90);
    driver.gpus = (int)word_of(text, "gpus=", 1);
    driver.other_gpu = word_of(text, "other=", 0) != 0;
    driver.shared = (int)word_of(text, "shared=", 232448);
    driver.memory = (size_t)word_of(text, "memory=", 1L << 30);
    driver.fail_name[0] = '\0';
    if (fail != NULL && sscanf(fail, "fail=%60[A-Za-z0-9_]:%u:%d", driver.fail_name,
                               &driver.fail_nth, &driver.fail_code) != 3) {
        fake_die("fail=NAME:N:CODE");
    }
    const char *cubin = text != NULL ? strstr(text, "cubin=") : NULL;
    driver.cubin[0] = '\0';
    if (cubin != NULL && sscanf(cubin, "cubin=%250s", driver.cubin) != 1) {
        fake_die("cubin=FILE");
    }
    memset(driver.calls, 0, sizeof(driver.calls));
    driver.lost = 0;
}

/* ---- devices and contexts ---- */

API cuInit(unsigned flags);
API cuInit(unsigned flags)
{
    NOT_CAPTURED();
    read_settings();
    driver.started = true;
    driver.next = driver.next == 0 ? UINT64_C(0x7f0000000000) : driver.next;
    ENTER(false);
    return flags != 0 ? INVALID_VALUE : driver.gpus == 0 ? NO_DEVICE : 0;
}

API cuDriverGetVersion(int *version);
API cuDriverGetVersion(int *version)
{
    bool started = driver.started; /* this alone may be asked before cuInit */
    read_settings();
    driver.started = true;
    int status = fake_enter(__func__, false);
    driver.started = started;
    *version = driver.version;
    return status;
}

API cuDeviceGetCount(int *count);
API cuDeviceGetCount(int *count)
{
    ENTER(false);
    *count = driver.gpus;
    return 0;
}

API cuDeviceGet(int *device, int ordinal);
API cuDeviceGet(int *device, int ordinal)
{
    ENTER(false);
    *device = ordinal;
    return ordinal < 0 || ordinal >= driver.gpus ? INVALID_DEVICE : 0;
}

API cuDeviceGetName(char *name, int size, int device);
API cuDeviceGetName(char *name, int size, int device)
{
    ENTER(false);
    fake_name(getenv("SX_FAKE_CUDA"), device, name, (size_t)size);
    return 0;
}

API cuDeviceGetAttribute(int *value, int attribute, int device);
API cuDeviceGetAttribute(int *value, int attribute, int device)
{
    int capability = driver.capability + (device > 0 ? 1 : 0);
    ENTER(false);
    switch (attribute) {
    case 16: *value = 2; return 0;
    case 75: *value = capability / 10; return 0;
    case 76: *value = capability % 10; return 0;
    case 97: *value = driver.shared; return 0;
    default: return INVALID_VALUE;
    }
}

API cuDevicePrimaryCtxRetain(void **context, int device);
API cuDevicePrimaryCtxRetain(void **context, int device)
{
    (void)device;
    ENTER(false);
    *context = &driver.context;
    driver.users++;
    return 0;
}

API cuDevicePrimaryCtxRelease_v2(int device);
API cuDevicePrimaryCtxRelease_v2(int device)
{
    (void)device;
    if (driver.users == 0) {
        fake_die("a context is released that nobody has");
    }
    if (--driver.users > 0) {
        return 0;
    }
    for (uint32_t i = 0; i < ALLOCATIONS_MAX; i++) {
        if (driver.allocated[i].at != 0) {
            fake_die("memory is left");
        }
    }
    for (uint32_t i = 0; i < MODULES_MAX; i++) {
        if (driver.module[i].used) {
            fake_die("code is left");
        }
    }
    if (driver.graphs > 0 || driver.captured != NULL) {
        fake_die("a graph is left, or a stream is being captured");
    }
    if (driver.streams > 0 || fake_events() > 0 || driver.depth > 0) {
        fake_die("a stream or an event is left, or the context is current");
    }
    return 0;
}

API cuCtxPushCurrent_v2(void *context);
API cuCtxPushCurrent_v2(void *context)
{
    ENTER(false);
    if (context != &driver.context || driver.depth == DEPTH_MAX) {
        fake_die("not a context, or pushed too often");
    }
    driver.depth++;
    return 0;
}

API cuCtxPopCurrent_v2(void **context);
API cuCtxPopCurrent_v2(void **context)
{
    if (driver.depth == 0) {
        fake_die("a context is popped that was not pushed");
    }
    driver.depth--;
    *context = &driver.context;
    return 0;
}

/* ---- memory ---- */

static allocation *find(uint64_t at)
{
    for (uint32_t i = 0; i < ALLOCATIONS_MAX; i++) {
        allocation *a = &driver.allocated[i];
        if (a->at != 0 && at >= a->at && at - a->at < a->size) {
            return a;
        }
    }
    return NULL;
}

/* So many bytes from an address on. */
static uint8_t *bytes_at(uint64_t at, size_t count)
{
    allocation *a = find(at);
    if (a == NULL || count > a->size - (at - a->at)) {
        fake_die("an address that belongs to nobody");
    }
    return a->bytes + (at - a->at);
}

API cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes);
API cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
    NOT_CAPTURED();
    ENTER(true);
    *total_bytes = driver.memory;
    *free_bytes = driver.memory - driver.used;
    return 0;
}

API cuMemAlloc_v2(uint64_t *at, size_t bytes);
API cuMemAlloc_v2(uint64_t *at, size_t bytes)
{
    NOT_CAPTURED();
    uint32_t i = 0;
    ENTER(true);
    while (i < ALLOCATIONS_MAX && driver.allocated[i].at != 0) {
        i++;
    }
    if (bytes == 0) {
        return INVALID_VALUE;
    }
    if (i == ALLOCATIONS_MAX || bytes > driver.memory - driver.used) {
        return OUT_OF_MEMORY;
    }
    uint8_t *memory = malloc(bytes); /* as on a device, nothing is known of what it holds */
    if (memory == NULL) {
        return OUT_OF_MEMORY;
    }
    memset(memory, 0xa5, bytes);
    driver.allocated[i] = (allocation){.at = driver.next, .bytes = memory, .size = bytes};
    driver.next += ((bytes >> 16) + 2) << 16; /* nothing lies behind it */
    driver.used += bytes;
    *at = driver.allocated[i].at;
    return 0;
}

API cuMemFree_v2(uint64_t at);
API cuMemFree_v2(uint64_t at)
{
    NOT_CAPTURED();
    allocation *a = find(at);
    if (a == NULL || a->at != at) {
        fake_die("memory is freed that is not there");
    }
    free(a->bytes);
    driver.used -= a->size;
    *a = (allocation){.at = 0};
    ENTER(true);
    return 0;
}

API cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, void *stream);
API cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, void *stream)
{
    NOT_CAPTURED();
    (void)stream;
    ENTER(true);
    memcpy(bytes_at(to, bytes), from, bytes);
    return 0;
}

API cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *stream);
API cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *stream)
{
    NOT_CAPTURED();
    (void)stream;
    ENTER(true);
    memcpy(to, bytes_at(from, bytes), bytes);
    return 0;
}

static void do_copy(const node *n)
{
    uint8_t *target = bytes_at(n->to, n->size);
    const uint8_t *source = bytes_at(n->from, n->size);
    if (target < source + n->size && source < target + n->size) {
        fake_die("a copy onto itself");
    }
    memcpy(target, source, n->size);
}

static void do_fill(const node *n)
{
    if (n->count == 0) {
        return;
    }
    uint8_t *bytes = bytes_at(n->to, n->pitch * (n->count - 1) + n->size);
    for (size_t i = 0; i < n->count; i++) {
        memcpy(bytes + i * n->pitch, &n->element, n->size); /* little endian: its low bytes */
    }
}

API cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void *stream);
API cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void *stream)
{
    ENTER(true);
    const node n = {.kind = NODE_COPY, .to = to, .from = from, .size = bytes};
    node *kept = captured(stream);
    if (kept != NULL) {
        *kept = n;
        return 0;
    }
    do_copy(&n);
    return 0;
}

/* `count` elements of `size` bytes, `pitch` bytes from one to the next. */
static int fill(uint64_t at, unsigned element, size_t size, size_t pitch, size_t count,
                void *stream)
{
    const node n = {.kind = NODE_FILL,
                    .to = at,
                    .size = size,
                    .pitch = pitch,
                    .count = count,
                    .element = element};
    node *kept = captured(stream);
    if (kept != NULL) {
        *kept = n;
        return 0;
    }
    do_fill(&n);
    return 0;
}

API cuMemsetD8Async(uint64_t at, unsigned char value, size_t count, void *stream);
API cuMemsetD8Async(uint64_t at, unsigned char value, size_t count, void *stream)
{
    ENTER(true);
    return fill(at, value, sizeof(value), sizeof(value), count, stream);
}

API cuMemsetD16Async(uint64_t at, unsigned short value, size_t count, void *stream);
API cuMemsetD16Async(uint64_t at, unsigned short value, size_t count, void *stream)
{
    ENTER(true);
    return fill(at, value, sizeof(value), sizeof(value), count, stream);
}

API cuMemsetD32Async(uint64_t at, unsigned value, size_t count, void *stream);
API cuMemsetD32Async(uint64_t at, unsigned value, size_t count, void *stream)
{
    ENTER(true);
    return fill(at, value, sizeof(value), sizeof(value), count, stream);
}

API cuMemsetD2D32Async(uint64_t at, size_t pitch, unsigned value, size_t width, size_t height,
                       void *stream);
API cuMemsetD2D32Async(uint64_t at, size_t pitch, unsigned value, size_t width, size_t height,
                       void *stream)
{
    ENTER(true);
    if (width != 1 || pitch < sizeof(value) || pitch % sizeof(value) != 0) {
        return INVALID_VALUE;
    }
    return fill(at, value, sizeof(value), pitch, height, stream);
}

/* Only the number of its GPU. */
API cuPointerGetAttribute(void *value, int attribute, uint64_t at);
API cuPointerGetAttribute(void *value, int attribute, uint64_t at)
{
    const int ordinal = driver.other_gpu ? 1 : 0;
    ENTER(true);
    if (attribute != 9 || find(at) == NULL) {
        return INVALID_VALUE;
    }
    memcpy(value, &ordinal, sizeof(ordinal));
    return 0;
}

/* ---- code ---- */

API cuModuleLoadDataEx(void **module, const void *image, unsigned option_count, int *option,
                       void **value);
API cuModuleLoadDataEx(void **module, const void *image, unsigned option_count, int *option,
                       void **value)
{
    NOT_CAPTURED();
    uint32_t i = 0;
    ENTER(true);
    while (i < MODULES_MAX && driver.module[i].used) {
        i++;
    }
    if (i == MODULES_MAX || option_count != 2 || option[0] != 5 || option[1] != 6) {
        fake_die("too much code, or options that it does not know");
    }
    static char instead[FAKE_TEXT_BYTES];
    code_module *made = &driver.module[i];
    const char *said = fake_image_text(image, driver.capability, driver.cubin, instead);
    if (said == NULL) {
        return NO_BINARY;
    }
    sx_ctx_init(&made->cx, (size_t)1 << 30);
    sx_span text = sx_span_of(said);
    sx_code code = sx_ptx_parse(&made->cx, text, &made->ptx);
    code = code == SX_OK ? sx_ptx_check(&made->cx, made->ptx) : code;
    bool here = made->ptx == NULL || (int)made->ptx->target == driver.capability ||
                (made->ptx->feature == 0 && (int)made->ptx->target < driver.capability);
    if (code == SX_OK && !here) {
        code = SX_FAIL(&made->cx, SX_INPUT, "code for sm_%u", made->ptx->target);
    }
    if (code != SX_OK) {
        unsigned bytes;
        memcpy(&bytes, &value[1], sizeof(bytes));
        (void)snprintf(value[0], bytes, "ptxas fatal: %s", made->cx.error.text);
        sx_ctx_fini(&made->cx);
        return INVALID_PTX;
    }
    made->used = true;
    *module = made;
    return 0;
}

API cuModuleUnload(void *module);
API cuModuleUnload(void *module)
{
    NOT_CAPTURED();
    code_module *gone = module;
    if (!gone->used) {
        fake_die("code is unloaded that is not there");
    }
    for (uint32_t i = 0; i < driver.function_count; i++) {
        if (driver.function[i].module == gone) {
            driver.function[i].kernel = NULL;
        }
    }
    gone->used = false;
    sx_ctx_fini(&gone->cx);
    return 0;
}

API cuModuleGetFunction(void **function, void *module, const char *name);
API cuModuleGetFunction(void **function, void *module, const char *name)
{
    NOT_CAPTURED();
    code_module *from = module;
    ENTER(true);
    for (uint32_t k = 0; k < from->ptx->kernel_count; k++) {
        if (strcmp(from->ptx->kernel[k].name, name) == 0) {
            if (driver.function_count == FUNCTIONS_MAX) {
                fake_die("too many functions");
            }
            kernel_function *f = &driver.function[driver.function_count++];
            *f = (kernel_function){from, &from->ptx->kernel[k], 48U << 10};
            *function = f;
            return 0;
        }
    }
    return NOT_FOUND;
}

/* Only how much shared memory a launch may ask for. */
API cuFuncSetAttribute(void *function, int attribute, int value);
API cuFuncSetAttribute(void *function, int attribute, int value)
{
    NOT_CAPTURED();
    kernel_function *f = function;
    ENTER(true);
    if (attribute != 8 || value < 0 || value > driver.shared) {
        return INVALID_VALUE;
    }
    f->shared_bytes_max = (unsigned)value;
    return 0;
}

#ifndef SX_FAKE_OLD
API cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void *function, int threads,
                                                size_t shared_bytes);
API cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void *function, int threads,
                                                size_t shared_bytes)
{
    NOT_CAPTURED();
    const kernel_function *f = function;
    ENTER(true);
    *blocks = threads <= 1024 && shared_bytes <= f->shared_bytes_max ? 2 : 0;
    return 0;
}
#endif

/* ---- maps of the copy engine ---- */

#ifndef SX_FAKE_11
API cuTensorMapEncodeTiled(void *map, int type, unsigned rank, void *at, const uint64_t *dim,
                           const uint64_t *stride, const unsigned *box, const unsigned *every,
                           int interleave, int swizzle, int promotion, int fill);
API cuTensorMapEncodeTiled(void *map, int type, unsigned rank, void *at, const uint64_t *dim,
                           const uint64_t *stride, const unsigned *box, const unsigned *every,
                           int interleave, int swizzle, int promotion, int fill)
{
    const int words[] = {type, interleave, swizzle, promotion, fill};
    ENTER(true);
    return fake_map_encode(map, words, rank, at, dim, stride, box, every) ? 0 : INVALID_VALUE;
}
#endif

static sx_ptx_region region_of(const allocation *a)
{
    return (sx_ptx_region){.name = "memory of the GPU",
                           .bytes = a->bytes,
                           .size = a->size,
                           .writable = true,
                           .initialised = true,
                           .unwatched = true}; /* verification looks for races */
}

/* The number of the region that an allocation is, from 0 on. */
static uint32_t region_for(const allocation *a, sx_ptx_region *region, uint32_t *region_count)
{
    uint32_t r = 0;
    while (r < *region_count && region[r].bytes != a->bytes) {
        r++;
    }
    region[r] = region_of(a);
    *region_count = r == *region_count ? r + 1 : *region_count;
    return r;
}

static int read_map(const uint8_t *bytes, sx_ptx_tensor_map *map, sx_ptx_region *region,
                    uint32_t *region_count)
{
    fake_map e;
    const allocation *a = fake_map_read(bytes, &e) ? find(e.at) : NULL;
    if (a == NULL) {
        return ILLEGAL_ADDRESS;
    }
    *map = (sx_ptx_tensor_map){.region = region_for(a, region, region_count) + 1,
                               .offset = e.at - a->at,
                               .rank = e.rank,
                               .element_bytes = e.bytes,
                               .strides = {e.bytes},
                               .swizzle_bytes = e.swizzle};
    for (uint32_t d = 0; d < e.rank; d++) {
        map->dims[d] = e.dim[d];
        map->strides[d] = d == 0 ? e.bytes : e.stride[d - 1];
        map->box[d] = e.box[d];
    }
    return 0;
}

static uint64_t parameter_bytes(const sx_ptx_kernel *kernel, uint32_t i)
{
    return sx_ptx_variable_bytes(&kernel->parameter[i]);
}

/* Parameters as the interpreter takes them: where a pointer leads into memory, that; numbers as they are. One of 8
 * bytes that leads nowhere is a number: the interpreter finds no memory there if the kernel takes it for an address. */
static int read_parameters(const sx_ptx_kernel *kernel, const node *n, sx_ptx_argument *argument,
                           sx_ptx_tensor_map *map, sx_ptx_region *region, uint32_t *region_count)
{
    const uint64_t *value = n->value;
    for (uint32_t i = 0; i < kernel->parameter_count; i++) {
        uint64_t bytes = parameter_bytes(kernel, i);
        if (bytes == FAKE_MAP_BYTES) {
            int status = read_map(n->map[value[i]], &map[value[i]], region, region_count);
            if (status != 0) {
                return status;
            }
            argument[i] = (sx_ptx_argument){.map = &map[value[i]]};
            continue;
        }
        argument[i] = (sx_ptx_argument){.value = {(const uint8_t *)&value[i], bytes}};
        if (bytes != sizeof(uint64_t)) {
            continue;
        }
        uint64_t at = value[i];
        const allocation *a = find(at);
        if (a == NULL) {
            continue;
        }
        uint32_t r = region_for(a, region, region_count);
        argument[i] = (sx_ptx_argument){.region = r + 1, .offset = at - a->at};
    }
    return 0;
}

static int do_launch(const node *n)
{
    const kernel_function *f = n->function;
    sx_ptx_region region[PARAMETERS_MAX];
    sx_ptx_argument argument[PARAMETERS_MAX];
    sx_ptx_tensor_map map[MAPS_MAX];
    sx_ptx_outcome outcome;
    sx_ctx cx;
    uint32_t region_count = 0;
    if (f->kernel == NULL) {
        fake_die("a kernel whose code is unloaded");
    }
    int status = read_parameters(f->kernel, n, argument, map, region, &region_count);
    if (status != 0) {
        return driver.lost = status;
    }
    sx_ptx_launch launch = {.module = f->module->ptx,
                            .kernel = f->kernel->name,
                            .grid = {n->dim[0], n->dim[1], n->dim[2]},
                            .block = {n->dim[3], n->dim[4], n->dim[5]},
                            .dynamic_shared_bytes = n->shared_bytes,
                            .shared_bytes_max = (uint64_t)driver.shared,
                            .lazy = true,
                            .region = region,
                            .region_count = region_count,
                            .argument = argument,
                            .argument_count = f->kernel->parameter_count};
    sx_ctx_init(&cx, (size_t)4 << 30);
    if (sx_ptx_run(&cx, &launch, &outcome) != SX_OK) {
        (void)fprintf(stderr, "fake CUDA driver: %s: %s\n", f->kernel->name, cx.error.text);
        driver.lost = cx.error.code == SX_MISMATCH ? ILLEGAL_ADDRESS : LAUNCH_FAILED;
    }
    sx_ctx_fini(&cx);
    return 0; /* as on a GPU, who waits for the launch learns of its failure */
}

API cuLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                   void *stream, void **parameter, void **extra);
API cuLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                   void *stream, void **parameter, void **extra)
{
    const kernel_function *f = function;
    node n = {.kind = NODE_LAUNCH,
              .function = f,
              .dim = {grid_x, grid_y, grid_z, block_x, block_y, block_z},
              .shared_bytes = shared_bytes};
    (void)extra;
    ENTER(true);
    driver.blocks = grid_x * grid_y * grid_z;
    if (f->kernel == NULL || f->kernel->parameter_count > PARAMETERS_MAX) {
        fake_die("a kernel whose code is unloaded, or with too many parameters");
    }
    if (shared_bytes > f->shared_bytes_max) {
        return INVALID_VALUE;
    }
    uint32_t maps = 0;
    for (uint32_t i = 0; i < f->kernel->parameter_count; i++) {
        uint64_t bytes = parameter_bytes(f->kernel, i);
        if (bytes == FAKE_MAP_BYTES && maps == MAPS_MAX) {
            fake_die("too many maps");
        }
        void *to = bytes == FAKE_MAP_BYTES ? (void *)n.map[maps] : (void *)&n.value[i];
        memcpy(to, parameter[i], bytes);
        n.value[i] = bytes == FAKE_MAP_BYTES ? maps++ : n.value[i];
    }
    node *kept = captured(stream);
    if (kept != NULL) {
        *kept = n;
        return 0;
    }
    return do_launch(&n);
}

/* ---- graphs ---- */

API cuStreamBeginCapture_v2(void *stream, int mode);
API cuStreamBeginCapture_v2(void *stream, int mode)
{
    (void)mode;
    ENTER(true);
    NOT_CAPTURED();
    driver.captured = stream;
    driver.graphs++;
    driver.graph = calloc(1, sizeof(*driver.graph));
    if (driver.graph == NULL ||
        (driver.graph->node = calloc(NODES_MAX, sizeof(*driver.graph->node))) == NULL) {
        fake_die("no memory");
    }
    return 0;
}

API cuStreamEndCapture(void *stream, void **made);
API cuStreamEndCapture(void *stream, void **made)
{
    if (driver.captured != stream) {
        fake_die("a capture ends that was not begun");
    }
    driver.captured = NULL;
    *made = driver.graph;
    ENTER(true); /* a capture that failed has ended all the same */
    return 0;
}

API cuStreamIsCapturing(void *stream, int *status);
API cuStreamIsCapturing(void *stream, int *status)
{
    ENTER(true);
    *status = driver.captured != NULL && driver.captured == stream ? 1 : 0;
    return 0;
}

/* A graph is launched as it is: one that was made executable belongs to that. */
API cuGraphInstantiateWithFlags(void **executable, void *from, unsigned long long flags);
API cuGraphInstantiateWithFlags(void **executable, void *from, unsigned long long flags)
{
    graph *g = from;
    ENTER(true);
    if (flags != 0) {
        return INVALID_VALUE;
    }
    g->executable = true;
    *executable = g;
    return 0;
}

API cuGraphLaunch(void *executable, void *stream);
API cuGraphLaunch(void *executable, void *stream)
{
    const graph *g = executable;
    int status = 0;
    (void)stream;
    ENTER(true);
    NOT_CAPTURED();
    for (uint32_t i = 0; status == 0 && i < g->count; i++) {
        const node *n = &g->node[i];
        switch (n->kind) {
        case NODE_LAUNCH: status = do_launch(n); break;
        case NODE_COPY: do_copy(n); break;
        case NODE_FILL: do_fill(n); break;
        }
    }
    return status;
}

API cuGraphExecDestroy(void *executable);
API cuGraphExecDestroy(void *executable)
{
    graph *gone = executable;
    driver.graphs--;
    free(gone->node);
    free(gone);
    return 0;
}

API cuGraphDestroy(void *made);
API cuGraphDestroy(void *made)
{
    graph *g = made;
    if (!g->executable) {
        driver.graphs--;
        free(g->node);
        free(g);
    }
    return 0;
}

/* ---- streams and events ---- */

API cuStreamCreate(void **stream, unsigned flags);
API cuStreamCreate(void **stream, unsigned flags)
{
    NOT_CAPTURED();
    (void)flags;
    ENTER(true);
    uint32_t i = 0;
    while (i < STREAMS_MAX && driver.stream[i] != 0) {
        i++;
    }
    if (i == STREAMS_MAX) {
        fake_die("too many streams");
    }
    driver.stream[i] = 1;
    driver.streams++;
    *stream = &driver.stream[i];
    return 0;
}

API cuStreamSynchronize(void *stream);
API cuStreamSynchronize(void *stream)
{
    NOT_CAPTURED();
    (void)stream;
    ENTER(true);
    return 0;
}

API cuStreamDestroy_v2(void *stream);
API cuStreamDestroy_v2(void *stream)
{
    NOT_CAPTURED();
    *(char *)stream = 0;
    driver.streams--;
    return 0;
}

API cuEventSynchronize(void *event);
API cuEventSynchronize(void *event)
{
    NOT_CAPTURED();
    (void)event;
    ENTER(true);
    return 0;
}

/* Every piece of work takes 2 microseconds, unless there is jitter. */
API cuEventElapsedTime(float *ms, void *begin, void *end);
API cuEventElapsedTime(float *ms, void *begin, void *end)
{
    NOT_CAPTURED();
    (void)begin, (void)end;
    ENTER(true);
    *ms = fake_time(getenv("SX_FAKE_CUDA"), driver.blocks);
    return 0;
}
