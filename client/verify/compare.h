/* compare.h - is an output what the program says, as far as rounding lets anybody say it?
 *
 * The reference has each element twice (reference.h): in double precision, and with every result on the way
 * rounded to its element type. What lies between the two is what rounding does to this program on these
 * inputs, whatever its depth. So elements are judged in groups of SXV_GROUP neighbours. With s the largest
 * difference of the two in the group, m the largest magnitude in it, M that of the whole tensor, and u half a
 * unit in the last place of f32, 2^-24 (of f64 where that is the type; narrower floats, and f32 where factors
 * are rounded to tf32, have four units of their own beside), an element that is off
 *
 *   by at most  16 s + 64 u m + 4 u M      is right: a program that is rounded in another order is off by as much;
 *   by at most  64 s + 1024 u m + 16 u M   is imprecise: a right program whose rewriting rounds more than the original;
 *   by more                                is wrong.
 *
 * Where the reference has only the rounded elements, s is not known. An element that is off them
 *
 *   by at most  48 u m + 3 u M             is right: it is right by the first line above, whatever s is
 *
 * and nothing is said of any other, nor of those that are not finite there: double precision has to tell. (An element
 * that is off by s from double precision is off by s more than from the rounded one, and m and M are off by s.)
 *
 * To all come 64 of the smallest numbers of f32, for results that leave the range downwards.
 *
 * An element that is not finite in double precision must be the same infinity or NaN; where only the rounded
 * one is not finite (the range was left on the way), the element may be either. Integers and bools are equal
 * to one of the two.
 */
#ifndef SX_CLIENT_VERIFY_COMPARE_H
#define SX_CLIENT_VERIFY_COMPARE_H
#include "client/verify/reference.h"

#define SXV_GROUP 64

/* SXV_UNKNOWN: the rounded elements do not tell. */
typedef enum { SXV_RIGHT, SXV_IMPRECISE, SXV_WRONG, SXV_UNKNOWN } sxv_verdict;
typedef struct {
    sxv_verdict verdict;
    /* How many elements were compared; how many of them are finite in double precision, are NaN there, and are
     * further off than their bound. Without double precision the first two are said of the rounded elements. */
    uint64_t points, finite, nan, wrong;
    /* The element that is furthest from the reference, measured by its bound, and its two values. */
    uint64_t worst;
    double got, want;
    /* Its deviation, the deviation that would not be wrong there, and the largest difference of the two references:
     * all relative to the largest magnitude of the tensor. Where that is 0, the difference is infinite or 0. */
    double error, bound, spread;
} sxv_comparison;

/* Half a unit in the last place of 1 in a float type; 0 for other types. */
double sxv_unit(sx_dtype dtype);
/* `memory` holds stored elements of the type. `wide`: magnitudes differ from group to group, so M plays no part.
 * `spread`: s of each group as references that were rounded in other ways have found it, at first 0; it is replaced by
 * the larger one of that and of this reference's, which counts. NULL: that of this reference alone. */
void sxv_compare(const sxv_pair *reference, const void *memory, bool wide, double *spread,
                 sxv_comparison *result);
#endif
