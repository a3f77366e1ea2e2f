/* base.h - what every other file stands on: integers, ownership, contexts, errors, arenas, spans.
 *
 * Six ideas: ctx (what one request owns), arena (its memory), code (how functions fail), span (borrowed bytes),
 * id (one-field structs naming array slots), table (.def files). There are no others.
 */
#ifndef SX_CORE_BASE_BASE_H
#define SX_CORE_BASE_BASE_H
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SX_VERSION_MAJOR 0
#define SX_VERSION_MINOR 1
#define SX_VERSION_PATCH 0
#define SX_VERSION_TEXT "0.1.0"

/* Ownership, written in prototypes. GIVE: the result is the caller's, released with `free_fn`. TAKE: the
 * callee owns the argument from then on, also on failure. KEEP: borrowed for the call. */
#if defined(__GNUC__) && !defined(__clang__)
#define SX_GIVE(free_fn) __attribute__((malloc(free_fn, 1), warn_unused_result))
#else
#define SX_GIVE(free_fn) __attribute__((warn_unused_result))
#endif
#define SX_TAKE
#define SX_KEEP
#define SX_PRINTF(format_index, first_index) \
    __attribute__((format(printf, format_index, first_index)))
#define SX_NORETURN __attribute__((noreturn))
#define SX_UNUSED __attribute__((unused))
#define SX_COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* ---- codes.def: every way a call can end ---- */
typedef enum {
#define SX_CODE(name, wire, exit_status, retry, text) SX_##name,
#include "core/base/codes.def"
#undef SX_CODE
    SX_CODE_COUNT
} sx_code;

const char *sx_code_name(sx_code code);  /* "input", "limit", ... */
const char *sx_code_text(sx_code code);  /* one line for people */
int sx_code_wire(sx_code code);          /* number in RPC errors */
int sx_code_exit(sx_code code);          /* exit status of the command line */
bool sx_code_retry(sx_code code);        /* may the same call succeed later? */
sx_code sx_code_from_wire(int64_t wire); /* SX_INTERNAL if unknown */

/* ---- spans: borrowed bytes, never NUL-terminated by contract ---- */
typedef struct {
    const uint8_t *ptr;
    size_t len;
} sx_span;

#define SX_SPAN_LITERAL(text) ((sx_span){(const uint8_t *)("" text), sizeof(text) - 1})
sx_span sx_span_of(const char *text); /* up to the NUL; NULL gives an empty span */
bool sx_span_equal(sx_span a, sx_span b);
bool sx_span_is(sx_span a, const char *text);
int sx_span_compare(sx_span a, sx_span b); /* bytewise, shorter first on a tie */

/* ---- arena: one per request, byte limit, freed in one go ---- */
typedef struct sx_arena_block sx_arena_block;
typedef struct sx_arena_region sx_arena_region;
typedef struct {
    sx_arena_block *head;
    sx_arena_region *region; /* arrays that grow in place, see sx_region_grow */
    size_t used_bytes;       /* handed out, with alignment */
    size_t limit_bytes;      /* sx_alloc and sx_region_grow fail beyond it */
    size_t refused_bytes;    /* what the last of them that failed had asked for */
    size_t most_bytes;       /* the most that were needed at once before something was given back */
} sx_arena;

void sx_arena_init(sx_arena *arena, size_t limit_bytes);
void sx_arena_fini(sx_arena *arena);
/* What is in `from` belongs to `to` from now on, which must have room for its bytes; `from` is empty then. */
void sx_arena_adopt(sx_arena *to, sx_arena *from);
/* So many bytes beside those in use have come out of what the arena has left, for a while. */
static inline void sx_arena_needed(sx_arena *arena, size_t bytes)
{
    size_t most = arena->used_bytes + bytes;
    arena->most_bytes = most > arena->most_bytes ? most : arena->most_bytes;
}
/* The most bytes that were needed at any time. */
static inline size_t sx_arena_peak(const sx_arena *arena)
{
    return arena->most_bytes > arena->used_bytes ? arena->most_bytes : arena->used_bytes;
}

/* ---- team: threads that its owner lends to a computation ---- */
typedef struct {
    void *self;
    uint32_t threads; /* that run tasks side by side, the caller's among them */
    /* Runs task(of, 0) ... task(of, count - 1), each once, in any order, and returns when all of them are done. */
    void (*run)(void *self, void (*task)(void *of, uint32_t index), void *of, uint32_t count);
    /* Between the two a thread is alone: tables that tasks share are read and written there. */
    void (*lock)(void *self);
    void (*unlock)(void *self);
} sx_team;

/* ---- ctx: everything one request owns ---- */
#define SX_ERROR_TEXT_MAX 1920 /* a list of all that is not supported needs room */
typedef struct {
    sx_code code;
    const char *file; /* where the error was made */
    int line;
    char text[SX_ERROR_TEXT_MAX]; /* one factual line, lower case, no full stop */
    char hint[SX_ERROR_TEXT_MAX]; /* advice, a sentence; may be empty */
} sx_error;

/* Counters of one pipeline stage, shown by `explain` and /metrics. */
#define SX_STAGE_MAX 24
typedef struct {
    const char *name;    /* static storage */
    const char *stop;    /* why it ended: "done", "saturated", "fuel", "nodes"; static storage */
    uint64_t items;      /* nodes, kernels or bytes: what the stage makes */
    uint64_t fuel;       /* fuel spent */
    uint64_t elapsed_ns; /* 0 where no clock was given */
} sx_stage;

typedef struct sx_ctx sx_ctx;
struct sx_ctx {
    sx_arena arena;
    uint64_t fuel; /* operations left; SX_QUOTA at zero */
    uint64_t seed;
    uint64_t (*now_ns)(void *self); /* NULL in pure runs: times in stages are then 0 */
    void *now_self;
    /* NULL: never; polled where fuel is spent in bulk, with a team by several threads at once. */
    bool (*cancelled)(void *self);
    void *cancelled_self;
    /* NULL: no other threads. What is computed does not depend on it. */
    const sx_team *team;
    void (*progress)(void *self, const char *stage, uint64_t done,
                     uint64_t total); /* NULL: nobody listens */
    void *progress_self;
    sx_error error; /* first failure wins */
    uint32_t stage_count;
    sx_stage stage[SX_STAGE_MAX];
};

#define SX_FUEL_DEFAULT UINT64_C(2000000000)
#define SX_ARENA_DEFAULT ((size_t)1 << 30)

void sx_ctx_init(sx_ctx *cx, size_t limit_bytes);
void sx_ctx_fini(sx_ctx *cx);
void sx_ctx_reset_error(sx_ctx *cx);
/* A ctx for one task of the computation of `cx`, for whatever thread runs it: with memory of its own, as much as cx
 * has left, and with cx's fuel, seed and cancellation. It has no team. */
void sx_ctx_init_task(sx_ctx *task, const sx_ctx *cx);

/* Memory of the request: zeroed, aligned to 16; NULL past the limit with cx->error set (SX_NOMEM). */
void *sx_alloc(sx_ctx *cx, size_t size);
/* The same, but for what is in it: for memory that is written before it is read. */
void *sx_alloc_unset(sx_ctx *cx, size_t size);
void *sx_alloc_array(sx_ctx *cx, size_t count, size_t size); /* checks the product */
void *sx_alloc_array_unset(sx_ctx *cx, size_t count, size_t size);
char *sx_alloc_text(sx_ctx *cx, sx_span text); /* NUL-terminated copy */
#define SX_NEW(cx, type) ((type *)sx_alloc((cx), sizeof(type)))
#define SX_NEW_ARRAY(cx, type, count) ((type *)sx_alloc_array((cx), (count), sizeof(type)))
#define SX_NEW_ARRAY_UNSET(cx, type, count) \
    ((type *)sx_alloc_array_unset((cx), (count), sizeof(type)))
/* Room for `need` items: doubles an arena array (old copy stays in the arena). SX_NOMEM past the limit. */
sx_code sx_grow_to(sx_ctx *cx, void **array, uint32_t *capacity, uint32_t need, size_t item_size);
static inline sx_code sx_grow(sx_ctx *cx, void **array, uint32_t *capacity, uint32_t need,
                              size_t item_size)
{
    return need <= *capacity ? SX_OK : sx_grow_to(cx, array, capacity, need, item_size);
}
/* The same for large arrays: the old block goes back to the system (which moves pages instead of copying
 * them), so that an array counts once against the limit. New items are not zeroed. An array lives in one of
 * the two kinds, never in both. */
sx_code sx_region_grow(sx_ctx *cx, void **array, uint32_t *capacity, uint32_t need,
                       size_t item_size);
/* Exactly `count` items, fewer than before or more. */
sx_code sx_region_resize(sx_ctx *cx, void **array, uint32_t *capacity, uint32_t count,
                         size_t item_size);

/* Fail: records the first error with file and line, returns `code`. */
sx_code sx_fail(sx_ctx *cx, sx_code code, const char *file, int line, const char *format, ...)
    SX_PRINTF(5, 6);
/* Puts "<text>: " in front of the recorded failure, for a caller that knows which object failed; returns its code. */
sx_code sx_fail_in(sx_ctx *cx, const char *format, ...) SX_PRINTF(2, 3);
void sx_hint(sx_ctx *cx, const char *format, ...) SX_PRINTF(2, 3);
#define SX_FAIL(cx, code, ...) sx_fail((cx), (code), __FILE__, __LINE__, __VA_ARGS__)
#define SX_TRY(call)                   \
    do {                               \
        sx_code sx_try_code_ = (call); \
        if (sx_try_code_ != SX_OK) {   \
            return sx_try_code_;       \
        }                              \
    } while (0)

/* Takes `amount` from the fuel; SX_QUOTA when it is used up, SX_CANCELLED when the request is no longer wanted. */
sx_code sx_spend(sx_ctx *cx, uint64_t amount);

/* Stage bookkeeping: begin returns the slot, end fills in what was spent since. */
uint32_t sx_stage_begin(sx_ctx *cx, const char *name);
void sx_stage_end(sx_ctx *cx, uint32_t index, const char *stop, uint64_t items);

/* ---- asserts: only what a bug can break; on in every build; kill the process ---- */
SX_NORETURN void sx_panic(const char *file, int line, const char *what);
#define SX_ASSERT(condition) ((condition) ? (void)0 : sx_panic(__FILE__, __LINE__, #condition))
#define SX_UNREACHABLE() sx_panic(__FILE__, __LINE__, "unreachable")
/* Marks the condition of a branch that only a bug can reach and that has a harmless way out:
 *     if (SX_NEVER(index >= count)) { return NULL; }
 * Debug builds (with the sanitizers among them) panic there, so that a test finds the bug; release builds take the
 * way out; where coverage is measured the branch is not there, so that nobody writes tests for it. The condition
 * is free of side effects. Where going on would give a wrong answer the thing is SX_ASSERT. */
#if defined(SX_COVERAGE)
#define SX_NEVER(condition) (false && (condition))
#elif defined(SX_DEBUG)
#define SX_NEVER(condition) \
    ((condition) ? (sx_panic(__FILE__, __LINE__, "never: " #condition), true) : false)
#else
#define SX_NEVER(condition) (condition)
#endif

/* ---- checked arithmetic ---- */
static inline bool sx_add_i64(int64_t a, int64_t b, int64_t *sum)
{
    return !__builtin_add_overflow(a, b, sum);
}
static inline bool sx_sub_i64(int64_t a, int64_t b, int64_t *difference)
{
    return !__builtin_sub_overflow(a, b, difference);
}
static inline bool sx_mul_i64(int64_t a, int64_t b, int64_t *product)
{
    return !__builtin_mul_overflow(a, b, product);
}
static inline bool sx_mul_size(size_t a, size_t b, size_t *product)
{
    return !__builtin_mul_overflow(a, b, product);
}
/* The greatest common divisor; the other number where one is 0. */
static inline uint64_t sx_gcd_u64(uint64_t a, uint64_t b)
{
    while (b != 0) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}
/* Likewise of the magnitudes of two numbers, where that fits into one. */
static inline int64_t sx_gcd_i64(int64_t a, int64_t b)
{
    return (int64_t)sx_gcd_u64(a < 0 ? 0 - (uint64_t)a : (uint64_t)a,
                               b < 0 ? 0 - (uint64_t)b : (uint64_t)b);
}
static inline int64_t sx_min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}
static inline int64_t sx_max_i64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}
static inline int64_t sx_ceil_div_i64(int64_t a, int64_t b)
{
    return (a + b - 1) / b; /* a >= 0, b > 0 */
}

/* ---- sanitizers map terabytes and use system calls of their own: no RLIMIT_AS and no seccomp with them ---- */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SX_SANITIZED true
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SX_SANITIZED true
#endif
#endif
#ifndef SX_SANITIZED
#define SX_SANITIZED false
#endif

/* ---- limits shared by all parts ---- */
#define SX_RANK_MAX 8
#define SX_NAME_MAX 255                    /* bytes of a tensor, symbol or operator name */
#define SX_EXTENT_MAX (INT64_C(1) << 40)   /* one dimension */
#define SX_ELEMENTS_MAX (INT64_C(1) << 42) /* one tensor */
#define SX_SPACE_MAX (INT64_C(1) << 56)    /* points of the iteration space of a kernel */
#endif
