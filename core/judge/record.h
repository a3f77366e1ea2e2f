/* record.h - what a part has written so far, as sets of places with the terms they hold. Internal to core/judge.
 *
 * A record is one set: bytes [address, address + width) hold `value`, stored as `mem`, for every point of its
 * store variables. Store variable k runs from 0 to count[k] - 1. Address and value may use variables of open loops
 * and of the grid too, which mean their present values. Different points have different places: sorted by stride,
 * each stride of the address is at least what the smaller ones reach together. Records stand in the order of the
 * text; where two meet, the later one holds. */
#ifndef SX_CORE_JUDGE_RECORD_H
#define SX_CORE_JUDGE_RECORD_H
#include "core/judge/algebra.h"

#define SX_RECORDS_MAX 4000u
typedef struct {
    uint32_t buffer;
    /* How the store puts a lane in memory. */
    sx_mem mem;
    /* How many bytes one point has. */
    uint32_t width;
    /* The form of the first byte of a point. */
    uint32_t address;
    /* The term that is stored. 0: the record is of a read. */
    uint32_t value;
    /* Of a read: the number of the record that answered it, at that time. */
    uint32_t from;
    /* How many store variables there are. */
    uint32_t dims;
    /* Of a record in a list: every byte of it is in [low, end), whatever the variables in scope are. */
    int64_t low, end;
    int64_t count[SX_STORE_DIMS];
} sx_record;

typedef struct {
    sx_record *record;
    uint32_t count, capacity;
} sx_records;

/* Appends, and joins it with records from `first` on where that makes one arithmetic set. */
void sx_records_put(sx_algebra *g, sx_records *list, uint32_t first, const sx_record *record);
/* Adds a set of the same kind that is not joined. */
void sx_records_push(sx_algebra *g, sx_records *list, const sx_record *record);
/* Notes that places of the buffer are stored more than once. */
static inline void sx_buffer_again(sx_algebra *g, uint32_t buffer)
{
    g->again |= buffer < 64 ? UINT64_C(1) << buffer : UINT64_MAX;
}
/* Turns variable `var` into a store variable. False where two points would share a place. */
bool sx_record_close(sx_algebra *g, sx_record *record, uint32_t var, int64_t trip);
/* Sorts, drops and merges the store variables. False where two points share a place. */
bool sx_record_normalise(sx_algebra *g, sx_record *record);

/* Do the two never touch the same byte? Variables in scope are the same in both, but `var` (or SX_VAR_COUNT:
 * none): equal in both, or independent (`differ` 0), or the second's larger (1) or smaller (-1). */
typedef enum { SX_VAR_SAME, SX_VAR_FREE, SX_VAR_LARGER, SX_VAR_SMALLER } sx_relation;
bool sx_records_apart(sx_algebra *g, const sx_record *a, const sx_record *b, uint32_t var,
                      int64_t trip, sx_relation relation);

/* Writes `form` as strides times digits, each within its count; strides ascend. False: it does not fit. */
bool sx_decode(sx_algebra *g, const sx_lin *form, const int64_t *stride, const int64_t *count,
               uint32_t dims, sx_lin *digit);
/* The bytes [low, end) in which `width` bytes at `address` lie, whatever the variables in scope are: `dims` store
 * variables have the counts given, the others their ranges. All bytes where that overflows. */
void sx_bytes_reached(const sx_algebra *g, uint32_t address, uint32_t width, uint32_t dims,
                      const int64_t *count, int64_t *low, int64_t *end);
typedef enum { SX_READ_COVERED, SX_READ_APART, SX_READ_UNKNOWN } sx_read;
/* What a read of `width` bytes at `address` sees of the record. */
sx_read sx_record_read(sx_algebra *g, const sx_record *record, uint32_t address, uint32_t width,
                       uint32_t *value);
/* Is `form`, over the variables in scope, never strictly between the two bounds? */
bool sx_lin_avoids(sx_algebra *g, const sx_lin *form, int64_t low, int64_t high);
void sx_record_print(const sx_algebra *g, const sx_record *record, sx_buf *text);
#endif
