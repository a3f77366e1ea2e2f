/* online_pieces.h - an online sum whose keys are cut in pieces that different blocks take: decoding, where there are
 * few queries and many keys.
 *
 * It is written as two nodes, for a piece p of keys, of which m is the largest score and l the sum of e^(score - m):
 *
 *     partial    o[p] = the sum of e^(score - m) * value, over l         s[p] = m + log l      or minus infinity, where
 *                                                                                             no key of p is seen
 *     combine    w[p] = e^(s[p] - max s), or 0 where s[p] is minus infinity
 *                the weighted sum is the sum of w[p] * o[p], the sum of weights that of w[p], p in ascending order
 *
 * so that quotients of both sums, which is all that attention takes of them, are those of the online sum. Where no
 * key at all is seen, both sums are not a number, as there.
 *
 * Whether keys are cut, and where, belongs to the numerics plan. It follows from the number of keys, from the types and
 * from how many queries share their keys: those of one head or of one group of heads, never of a batch, unless all of
 * the batch share one set of keys. No machine has a say. A piece has the same number of keys however many there are,
 * so that keys that nobody sees, behind those of a sequence, change no bit.
 *
 * Papers: Dao et al. 2023 (Flash-Decoding); flash-attention issue 2604 (a fixed size of pieces, no fixed number). */
#ifndef SX_CORE_KERNEL_ONLINE_PIECES_H
#define SX_CORE_KERNEL_ONLINE_PIECES_H
#include "core/kernel/kernel.h"

/* Queries that share their keys, at most: rows of one matrix instruction. */
#define SX_PIECE_ROWS_MAX 16
/* Keys of a piece: the least number, the most, and what all are multiples of. */
#define SX_PIECE_KEYS_LEAST INT64_C(512)
#define SX_PIECE_KEYS_MAX INT64_C(1024)
#define SX_PIECE_KEYS_UNIT INT64_C(64)

/* The arguments of `partial`, and its results. Behind these arguments come those that scores are made of besides. */
enum { SX_PIECE_VALUE, SX_PIECE_KEY, SX_PIECE_QUERY, SX_PIECE_OTHER };
enum { SX_PIECE_SUM, SX_PIECE_STATISTIC, SX_PIECE_RESULTS };

/* The bodies lie inside: do not copy it. */
typedef struct {
    sx_attr partial, statistic, combine;
    sx_body partial_body, statistic_body, combine_body;
    /* Of `partial`: which argument of the online sum each of its own is, and their types. */
    uint32_t argument[SX_FUSED_ARGS_MAX];
    uint32_t argument_count;
    sx_type partial_input[SX_FUSED_ARGS_MAX];
    /* Its results as lists of elements; and the arguments of `combine`: those of the online sum, with the statistic in
     * place of the keys and the sums in place of the values. */
    sx_type result[SX_PIECE_RESULTS];
    sx_type combine_input[SX_FUSED_ARGS_MAX];
    /* That of `partial` has two results: sums, and the statistic of each row (sx_analysis). */
    sx_analysis partial_analysis, combine_analysis;
} sx_online_pieces;

/* How many keys a piece has; 0: the keys are not cut. That its types are those of a matrix instruction is asked
 * apart. */
int64_t sx_online_piece(const sx_analysis *analysis);
/* `piece` is that of sx_online_piece. */
sx_code sx_online_pieces_make(sx_ctx *cx, const sx_analysis *analysis, int64_t piece,
                              sx_online_pieces *pieces);
/* `partial` and `combine` alone with their analyses, as prices need them: no statistic, and none of its checks. */
sx_code sx_online_pieces_of_price(sx_ctx *cx, const sx_analysis *analysis, int64_t piece,
                                  sx_online_pieces *pieces);
#endif
