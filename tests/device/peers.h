/* peers.h - the products of cuBLAS and cuBLASLt, found by dlopen when they are asked for.
 *
 * Both see matrices by columns: a row-major result C = A B is theirs as C' = B' A', so B is their first factor. All
 * calls are made with the GPU's primary context current. */
#ifndef SX_TESTS_DEVICE_PEERS_H
#define SX_TESTS_DEVICE_PEERS_H
#include "tests/device/data.h"

typedef struct sx_peer sx_peer;
typedef enum { SX_PEER_CUBLAS, SX_PEER_CUBLASLT, SX_PEER_COUNT } sx_peer_kind;
const char *sx_peer_name(sx_peer_kind kind);

#define SX_PEER_WORKSPACE ((uint64_t)64 << 20)
#define SX_PEER_PLANS_MAX 8
/* Opens the library: the file that $SX_CUBLAS or $SX_CUBLASLT names, or what the loader finds. `workspace` is
 * SX_PEER_WORKSPACE bytes on the GPU, which stay there.
 *   errors   SX_ABSENT no library, with the reason; SX_SYSTEM it fails */
sx_code sx_peer_open(sx_ctx *cx, sx_peer_kind kind, void *stream, uint64_t workspace,
                     sx_peer **peer);
void sx_peer_close(SX_TAKE sx_peer *peer);
/* Gets ready for products of this kind; *plans ways of doing them, the one that the library advises first.
 *   errors   SX_UNIMPLEMENTED it has none; SX_SYSTEM */
sx_code sx_peer_prepare(sx_ctx *cx, sx_peer *peer, const sx_judged *product, uint32_t *plans);
/* Puts one product on the stream. */
sx_code sx_peer_enqueue(sx_ctx *cx, sx_peer *peer, uint32_t plan, uint64_t a, uint64_t b,
                        uint64_t c);
#endif
