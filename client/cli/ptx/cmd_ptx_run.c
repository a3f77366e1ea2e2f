/* cmd_ptx_run.c - ptx run: a kernel in the interpreter, with buffers from .npy files and results into such. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/cli/cli.h"
#include "client/cli/npy.h"
#include "client/cli/table.h"
#include "client/source.h"
#include "core/cost/device.h"
#include "core/simt/run.h"

#define PTX_BYTES_MAX ((size_t)64 << 20)
#define PATH_BYTES 4096
#define NAME_BYTES 32
#define SCALAR_BYTES 8

typedef struct {
    char name[NAME_BYTES]; /* "argument 0" */
    sx_type type;
    bool writes; /* it goes into the folder of --output */
    uint8_t scalar[SCALAR_BYTES];
    sx_ptx_tensor_map map;
} argument;

typedef struct {
    sxc_cli *cli;
    argument *arg;
    uint32_t count;
    sx_ptx_region *region;
    sx_ptx_argument *given;
    sx_ptx_launch launch;
    sx_ptx_outcome outcome;
} session;

/* ---- arguments ---- */
/* "X", "X,Y" or "X,Y,Z" */
static sx_code read_dim(sxc_cli *cli, sxc_option option, sx_ptx_dim *dim)
{
    const char *text = sxc_value(cli, option);
    uint32_t *const side[] = {&dim->x, &dim->y, &dim->z};
    char what[NAME_BYTES];
    (void)snprintf(what, sizeof(what), "--%s", sxc_options[option].name);
    *dim = (sx_ptx_dim){1, 1, 1};
    for (uint32_t i = 0; text != NULL && i < SX_COUNT(side); i++) {
        const char *comma = strchr(text, ',');
        size_t len = comma == NULL ? strlen(text) : (size_t)(comma - text);
        int64_t value;
        SX_TRY(sxc_parse_i64(cli->cx, what, (sx_span){(const uint8_t *)text, len}, 1, INT32_MAX,
                             &value));
        *side[i] = (uint32_t)value;
        text = comma == NULL ? NULL : comma + 1;
    }
    return text == NULL ? SX_OK
                        : SX_FAIL(cli->cx, SX_USAGE, "%s %s: more than three numbers", what,
                                  sxc_value(cli, option));
}

static sx_code bad_argument(session *s, const char *text)
{
    return SX_FAIL(
        s->cli->cx, SX_USAGE,
        "--arg %.80s is not of the form @FILE.npy, inout:@FILE.npy, out:TYPE:64x64, TYPE:VALUE or "
        "map:N:64x160:32x64[:128]",
        text);
}

/* Extents with an x between them, outermost first, up to `end` or the end of the text. */
static sx_code read_extents(session *s, const char *text, size_t size, const char *whole,
                            int64_t extent[SX_RANK_MAX], uint32_t *rank)
{
    size_t from = 0;
    for (*rank = 0; from <= size; (*rank)++) {
        size_t to = from;
        while (to < size && text[to] != 'x') {
            to++;
        }
        if (*rank == SX_RANK_MAX) {
            return SX_FAIL(s->cli->cx, SX_LIMIT, "--arg %.80s: more than %d extents", whole,
                           SX_RANK_MAX);
        }
        SX_TRY(sxc_parse_i64(s->cli->cx, "--arg",
                             (sx_span){(const uint8_t *)text + from, to - from}, 1, INT32_MAX,
                             &extent[*rank]));
        from = to + 1;
    }
    return SX_OK;
}

/* "f32:64x64" */
static sx_code read_type(session *s, const char *text, const char *whole, sx_type *type)
{
    const char *colon = strchr(text, ':');
    *type = (sx_type){.rank = 0};
    if (colon == NULL ||
        !sx_dtype_parse((sx_span){(const uint8_t *)text, (size_t)(colon - text)}, &type->dtype)) {
        return bad_argument(s, whole);
    }
    int64_t extent[SX_RANK_MAX];
    SX_TRY(read_extents(s, colon + 1, strlen(colon + 1), whole, extent, &type->rank));
    for (uint32_t d = 0; d < type->rank; d++) {
        type->dim[d] = sx_dim_of(extent[d]);
    }
    sx_dim elements;
    return sx_type_elements(type, &elements)
               ? SX_OK
               : SX_FAIL(s->cli->cx, SX_LIMIT, "--arg %.80s: too large", whole);
}

static void add_region(session *s, uint32_t index, uint8_t *bytes, size_t size, bool writable,
                       bool initialised)
{
    s->region[s->launch.region_count++] = (sx_ptx_region){.name = s->arg[index].name,
                                                          .bytes = bytes,
                                                          .size = size,
                                                          .writable = writable,
                                                          .initialised = initialised};
    s->given[index].region = s->launch.region_count;
    s->arg[index].writes = writable;
}

static sx_code read_file(session *s, uint32_t index, const char *path, bool writable)
{
    sxc_npy array;
    SX_TRY(sxc_npy_read(s->cli->cx, path, &array));
    uint8_t *bytes = SX_NEW_ARRAY(s->cli->cx, uint8_t, array.bytes.len + 1);
    if (bytes == NULL) {
        return s->cli->cx->error.code;
    }
    memcpy(bytes, array.bytes.ptr, array.bytes.len);
    s->arg[index].type = array.type;
    add_region(s, index, bytes, array.bytes.len, writable, true);
    return SX_OK;
}

static sx_code make_output(session *s, uint32_t index, const char *text)
{
    sx_ctx *cx = s->cli->cx;
    sx_type *type = &s->arg[index].type;
    size_t size;
    SX_TRY(read_type(s, text, text, type));
    if (!sx_mul_size((size_t)sx_tensor_elements(type), sx_dtype_bytes(type->dtype), &size)) {
        return SX_FAIL(cx, SX_LIMIT, "--arg out:%.80s: too large", text);
    }
    uint8_t *bytes = SX_NEW_ARRAY(cx, uint8_t, size);
    if (bytes == NULL) {
        return cx->error.code;
    }
    add_region(s, index, bytes, size, true, false);
    return SX_OK;
}

static sx_code read_float(session *s, const char *text, const char *whole, sx_dtype dtype,
                          uint8_t *bytes)
{
    char *end;
    errno = 0;
    double value = strtod(text, &end);
    if (*text == '\0' || *end != '\0' || errno != 0) {
        return bad_argument(s, whole);
    }
    float narrow = (float)value;
    memcpy(bytes, dtype == SX_F32 ? (const void *)&narrow : (const void *)&value,
           sx_dtype_bytes(dtype));
    return SX_OK;
}

static sx_code read_integer(session *s, const char *text, const char *whole, sx_dtype dtype,
                            uint8_t *bytes)
{
    char *end;
    uint32_t bits = 8 * sx_dtype_bytes(dtype);
    bool is_unsigned = sx_dtype_name(dtype)[0] == 'u';
    errno = 0;
    uint64_t value = is_unsigned ? strtoull(text, &end, 0) : (uint64_t)strtoll(text, &end, 0);
    bool fits = bits == 64 || (is_unsigned ? value >> bits == 0
                                           : (int64_t)value >> (bits - 1) == 0 ||
                                                 (int64_t)value >> (bits - 1) == -1);
    if (*text == '\0' || *end != '\0' || errno != 0 || !fits || (is_unsigned && *text == '-')) {
        return bad_argument(s, whole);
    }
    memcpy(bytes, &value, bits / 8);
    return SX_OK;
}

static sx_code read_scalar(session *s, uint32_t index, const char *text)
{
    argument *a = &s->arg[index];
    const char *colon = strchr(text, ':');
    sx_dtype dtype;
    if (colon == NULL ||
        !sx_dtype_parse((sx_span){(const uint8_t *)text, (size_t)(colon - text)}, &dtype)) {
        return bad_argument(s, text);
    }
    bool is_float = dtype == SX_F32 || dtype == SX_F64;
    if (!is_float && sx_dtype_class_of(dtype) != SX_CLASS_INT) {
        return SX_FAIL(s->cli->cx, SX_USAGE, "--arg %.80s: numbers are integers, f32 or f64", text);
    }
    s->given[index].value = (sx_span){a->scalar, sx_dtype_bytes(dtype)};
    return is_float ? read_float(s, colon + 1, text, dtype, a->scalar)
                    : read_integer(s, colon + 1, text, dtype, a->scalar);
}

/* The buffer that a map is of: an argument before it. */
static sx_code read_mapped(session *s, uint32_t index, sx_span number, const char *whole,
                           uint32_t *of)
{
    int64_t value;
    SX_TRY(sxc_parse_i64(s->cli->cx, "--arg", number, 0, INT32_MAX, &value));
    if (value >= index || s->given[value].region == 0) {
        return SX_FAIL(s->cli->cx, SX_USAGE, "--arg %.80s: argument %lld is no buffer before it",
                       whole, (long long)value);
    }
    *of = (uint32_t)value;
    return SX_OK;
}

/* "N:DIMS:BOX" or "N:DIMS:BOX:SWIZZLE": the memory of argument N as a tensor of these extents, without gaps, that the
 * copy engine reads or writes in boxes. What is possible says the interpreter. */
static sx_code read_map(session *s, uint32_t index, const char *text, const char *whole)
{
    const char *word[4] = {text, NULL, NULL, NULL};
    size_t size[4] = {0};
    for (uint32_t i = 0; i < SX_COUNT(word) && word[i] != NULL; i++) {
        const char *colon = strchr(word[i], ':');
        size[i] = colon != NULL ? (size_t)(colon - word[i]) : strlen(word[i]);
        if (colon != NULL && i + 1 == SX_COUNT(word)) {
            return bad_argument(s, whole);
        }
        if (colon != NULL) {
            word[i + 1] = colon + 1;
        }
    }
    if (word[2] == NULL) {
        return bad_argument(s, whole);
    }
    int64_t dims[SX_RANK_MAX], box[SX_RANK_MAX], swizzle = 0;
    uint32_t rank, sides, of = 0;
    SX_TRY(read_mapped(s, index, (sx_span){(const uint8_t *)text, size[0]}, whole, &of));
    SX_TRY(read_extents(s, word[1], size[1], whole, dims, &rank));
    SX_TRY(read_extents(s, word[2], size[2], whole, box, &sides));
    if (word[3] != NULL) {
        SX_TRY(sxc_parse_i64(s->cli->cx, "--arg", sx_span_of(word[3]), 0, 128, &swizzle));
    }
    if (rank != sides || rank > SX_PTX_TENSOR_RANK_MAX) {
        return SX_FAIL(s->cli->cx, SX_USAGE, "--arg %.80s: %u extents and %u of a box, at most %d",
                       whole, rank, sides, SX_PTX_TENSOR_RANK_MAX);
    }
    sx_ptx_tensor_map *map = &s->arg[index].map;
    uint64_t stride = sx_dtype_bytes(s->arg[of].type.dtype);
    *map = (sx_ptx_tensor_map){.region = s->given[of].region,
                               .rank = (uint8_t)rank,
                               .element_bytes = (uint8_t)stride,
                               .swizzle_bytes = (uint8_t)swizzle};
    uint64_t bytes = s->region[map->region - 1].size;
    for (uint32_t d = 0; d < rank; d++) { /* the last one is the innermost */
        int64_t extent = dims[rank - 1 - d];
        map->dims[d] = (uint64_t)extent;
        map->box[d] = (uint32_t)box[rank - 1 - d];
        map->strides[d] = stride;
        if (stride > bytes / (uint64_t)extent) {
            return SX_FAIL(s->cli->cx, SX_USAGE,
                           "--arg %.80s: more than the %llu bytes of argument %u", whole,
                           (unsigned long long)bytes, of);
        }
        stride *= (uint64_t)extent;
    }
    s->given[index].map = map;
    return SX_OK;
}

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static sx_code read_argument(session *s, uint32_t index, const char *text)
{
    (void)snprintf(s->arg[index].name, NAME_BYTES, "argument %u", index);
    if (text[0] == '@') {
        return read_file(s, index, text + strlen("@"), false);
    }
    if (begins(text, "inout:@")) {
        return read_file(s, index, text + strlen("inout:@"), true);
    }
    if (begins(text, "map:")) {
        return read_map(s, index, text + strlen("map:"), text);
    }
    return begins(text, "out:") ? make_output(s, index, text + strlen("out:"))
                                : read_scalar(s, index, text);
}

static sx_code read_arguments(session *s)
{
    sx_ctx *cx = s->cli->cx;
    const sxc_values *values = &s->cli->option[SXC_ARG];
    s->count = values->count;
    s->arg = SX_NEW_ARRAY(cx, argument, s->count + 1U);
    s->region = SX_NEW_ARRAY(cx, sx_ptx_region, s->count + 1U);
    s->given = SX_NEW_ARRAY(cx, sx_ptx_argument, s->count + 1U);
    if (s->arg == NULL || s->region == NULL || s->given == NULL) {
        return cx->error.code;
    }
    for (uint32_t i = 0; i < s->count; i++) {
        SX_TRY(read_argument(s, i, values->value[i]));
    }
    s->launch.region = s->region;
    s->launch.argument = s->given;
    s->launch.argument_count = s->count;
    return SX_OK;
}

/* ---- the launch ---- */
static sx_code read_launch(session *s, const sx_ptx_module *module)
{
    sx_ctx *cx = s->cli->cx;
    const char *kernel = sxc_value(s->cli, SXC_KERNEL), *on = sxc_value(s->cli, SXC_ON);
    int64_t shared, seed, fuel;
    if (kernel == NULL && module->kernel_count != 1) {
        return SX_FAIL(cx, SX_USAGE, "%s has %u kernels: name one with --kernel",
                       s->cli->argument[0], module->kernel_count);
    }
    s->launch.module = module;
    s->launch.kernel = kernel == NULL ? module->kernel[0].name : kernel;
    s->launch.lazy = sxc_given(s->cli, SXC_LAZY);
    SX_TRY(read_dim(s->cli, SXC_GRID, &s->launch.grid));
    SX_TRY(read_dim(s->cli, SXC_BLOCK, &s->launch.block));
    if (sxc_given(s->cli, SXC_CLUSTER)) {
        SX_TRY(read_dim(s->cli, SXC_CLUSTER, &s->launch.cluster));
    }
    SX_TRY(sxc_number(s->cli, SXC_SHARED, 0, INT64_C(1) << 40, 0, &shared));
    SX_TRY(sxc_number(s->cli, SXC_SEED, 0, INT64_MAX, 0, &seed));
    SX_TRY(sxc_number(s->cli, SXC_FUEL, 1, INT64_MAX, INT64_C(100000000000), &fuel));
    s->launch.dynamic_shared_bytes = (uint64_t)shared;
    s->launch.seed = (uint64_t)seed;
    s->launch.instructions_max = (uint64_t)fuel;
    cx->fuel = UINT64_MAX; // the instructions are the limit
    if (on != NULL) {
        const sx_device *device;
        SX_TRY(sx_device_find(cx, sx_span_of(on), &device));
        if (device->block_threads == 0) {
            return SX_FAIL(cx, SX_USAGE, "--on %s: a device without blocks of threads", on);
        }
        s->launch.threads_max = device->block_threads;
        s->launch.shared_bytes_max = (uint64_t)device->shared_block_bytes;
    }
    return SX_OK;
}

static void show_progress(void *self, const char *stage, uint64_t done, uint64_t total)
{
    session *s = self;
    (void)stage;
    if (sxc_progress_due(&s->cli->progress)) {
        sxc_progress_show(&s->cli->progress, "block %llu of %llu, %.0f million instructions",
                          (unsigned long long)done, (unsigned long long)total,
                          (double)s->outcome.statistics.thread_insns / 1e6);
    }
}

/* ---- results ---- */
/* `made`: it was not there. */
static sx_code make_folder(sx_ctx *cx, const char *folder, bool *made)
{
    struct stat status;
    *made = mkdir(folder, 0777) == 0;
    if (!*made && errno != EEXIST) {
        return SX_FAIL(cx, SX_INPUT, "%s: cannot be made: %s", folder, strerror(errno));
    }
    if (stat(folder, &status) != 0 || !S_ISDIR(status.st_mode)) {
        return SX_FAIL(cx, SX_INPUT, "%s: is no folder", folder);
    }
    return SX_OK;
}

static sx_code write_results(session *s, const char *folder)
{
    for (uint32_t i = 0; i < s->count; i++) {
        char path[PATH_BYTES];
        sx_buf file;
        if (!s->arg[i].writes) {
            continue;
        }
        if (snprintf(path, sizeof(path), "%s/arg%u.npy", folder, i) >= (int)sizeof(path)) {
            return SX_FAIL(s->cli->cx, SX_USAGE, "output path longer than %zu bytes", sizeof(path));
        }
        const sx_ptx_region *region = &s->region[s->given[i].region - 1];
        sx_buf_init(&file, (size_t)16 << 30);
        sx_code code = sxc_npy_print(s->cli->cx, &s->arg[i].type,
                                     (sx_span){region->bytes, region->size}, &file);
        code = code == SX_OK ? sxc_write_file(s->cli->cx, path, sx_buf_span(&file)) : code;
        sx_buf_fini(&file);
        SX_TRY(code);
    }
    return SX_OK;
}

static void put_json(const session *s, double seconds, sx_buf *json)
{
    const sx_ptx_statistics *stats = &s->outcome.statistics;
    sxc_json_begin(json, "ptx-run");
    sxc_json_text(json, "kernel", sx_span_of(s->launch.kernel));
    sxc_json_int(json, "thread_instructions", (int64_t)stats->thread_insns);
    sxc_json_int(json, "warp_instructions", (int64_t)stats->warp_insns);
    sxc_json_int(json, "divergent_branches", (int64_t)stats->divergent);
    sxc_json_int(json, "global_read_bytes", (int64_t)stats->global_read_bytes);
    sxc_json_int(json, "global_written_bytes", (int64_t)stats->global_written_bytes);
    sxc_json_int(json, "global_sectors", (int64_t)stats->global_sectors);
    sxc_json_int(json, "shared_bytes", (int64_t)stats->shared_bytes);
    sxc_json_int(json, "shared_passes", (int64_t)stats->shared_passes);
    sxc_json_int(json, "shared_passes_least", (int64_t)stats->shared_passes_least);
    sxc_json_int(json, "barriers", (int64_t)stats->barriers);
    sxc_json_real(json, "seconds", seconds);
    sxc_json_end(json);
}

static void put_text(const session *s, double seconds, sx_buf *out)
{
    const sx_ptx_statistics *stats = &s->outcome.statistics;
    char read[32], written[32], shared[32], line[256], time[32];
    sxc_human_bytes((double)stats->global_read_bytes, read);
    sxc_human_bytes((double)stats->global_written_bytes, written);
    sxc_human_bytes((double)stats->shared_bytes, shared);
    sxc_human_ns(seconds * 1e9, time);
    (void)snprintf(line, sizeof(line), "%s ended without a fault, in %s", s->launch.kernel, time);
    sxc_put_line(out, "kernel", sx_span_of(line));
    (void)snprintf(line, sizeof(line),
                   "%llu instructions of threads, %llu of warps, %llu branches that part a warp",
                   (unsigned long long)stats->thread_insns, (unsigned long long)stats->warp_insns,
                   (unsigned long long)stats->divergent);
    sxc_put_line(out, "executed", sx_span_of(line));
    (void)snprintf(line, sizeof(line), "%s read, %s written, %llu sectors of 32 bytes", read,
                   written, (unsigned long long)stats->global_sectors);
    sxc_put_line(out, "global", sx_span_of(line));
    (void)snprintf(
        line, sizeof(line),
        "%s a block, %llu passes where %llu would do without bank conflicts, %llu barriers", shared,
        (unsigned long long)stats->shared_passes, (unsigned long long)stats->shared_passes_least,
        (unsigned long long)stats->barriers);
    sxc_put_line(out, "shared", sx_span_of(line));
}

static sx_code put(session *s, double seconds)
{
    sx_buf out;
    sx_buf_init(&out, (size_t)1 << 20);
    if (s->cli->json) {
        put_json(s, seconds, &out);
    } else {
        put_text(s, seconds, &out);
    }
    sx_code code = sxc_put(s->cli, &out);
    sx_buf_fini(&out);
    return code;
}

/* ---- the command ---- */
static sx_code run_kernel(session *s)
{
    sx_ctx *cx = s->cli->cx;
    sx_buf text;
    sx_ptx_module *module;
    const char *folder = sxc_value(s->cli, SXC_OUTPUT);
    sx_buf_init(&text, PTX_BYTES_MAX);
    sx_code code = sxc_read_text(cx, s->cli->argument[0], &text);
    if (code == SX_OK && sx_ptx_parse(cx, sx_buf_span(&text), &module) != SX_OK) {
        code = sx_fail_in(cx, "%s", s->cli->argument[0]);
    }
    sx_buf_fini(&text);
    SX_TRY(code);
    SX_TRY(read_launch(s, module));
    SX_TRY(read_arguments(s));
    bool made = false;
    SX_TRY(folder == NULL ? SX_OK : make_folder(cx, folder, &made));
    uint64_t start = sxc_now_us();
    cx->progress = show_progress;
    cx->progress_self = s;
    sxc_progress_begin(&s->cli->progress);
    code = sx_ptx_run(cx, &s->launch, &s->outcome);
    sxc_progress_end(&s->cli->progress);
    if (code != SX_OK && made) {
        (void)rmdir(folder);
    }
    SX_TRY(code);
    SX_TRY(put(s, (double)(sxc_now_us() - start) / 1e6));
    return folder == NULL ? SX_OK : write_results(s, folder);
}

sx_code sxc_cmd_ptx_run(sxc_cli *cli)
{
    session *s = SX_NEW(cli->cx, session);
    if (s == NULL) {
        return cli->cx->error.code;
    }
    s->cli = cli;
    return run_kernel(s);
}
