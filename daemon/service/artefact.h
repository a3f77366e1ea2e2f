/* artefact.h - artefacts: bytes that the daemon keeps for caches of others (of PyTorch, Triton, JAX, ...), by the name
 * of the cache and a name within it, and leases, so that one makes an artefact while the others wait for it.
 *
 * An artefact is an entry of the cache like a module: checked, compressed, evicted by cost. Its namespace there is that
 * of its user with SXD_ARTEFACT_SPACE, which has a quota of its own; its kind is made from the name of its cache.
 *
 * A lease belongs to the connection that got it. It ends with a put of its artefact, by whomever; when it is given
 * back; at its deadline; or with its connection. If it ends without a value, the first that waits and would make the
 * artefact gets it, and the others go on waiting. A process never waits for itself, nor for one that waits for it,
 * however indirectly: it is told that the artefact is absent, and makes it, too.
 */
#ifndef SX_DAEMON_SERVICE_ARTEFACT_H
#define SX_DAEMON_SERVICE_ARTEFACT_H
#include "daemon/service/service.h"

#define SXD_ARTEFACT_NAME_MAX 4096  /* bytes of a name within a cache */
#define SXD_ARTEFACT_CACHE_MAX 32   /* bytes of the name of a cache */
#define SXD_ARTEFACT_CACHES_MAX 256 /* names of caches that are known at a time */
#define SXD_LEASE_MS_MAX 3600000    /* the longest lease */
#define SXD_LEASES_MAX 1024 /* above it nobody gets a lease, and everybody makes what is missing */

typedef struct sxd_lease sxd_lease;
struct sxd_lease {
    sxd_lease *prev, *next; /* artefacts->leases */
    sxd_service *service;
    int64_t id;
    uint32_t space; /* of the artefact */
    sx_key key;
    uint64_t peer; /* the connection that has it */
    int32_t pid;   /* its process; 0: not known */
    sxd_alarm alarm;
    sxd_waiters waiters; /* calls */
    bool seen;           /* while circles are looked for */
};

typedef struct {
    uint32_t kind;
    char name[SXD_ARTEFACT_CACHE_MAX + 1];
} sxd_artefact_kind;

struct sxd_artefacts {
    sxd_lease *leases;
    uint32_t lease_count;
    int64_t next_lease;
    uint32_t waiting; /* calls that wait for leases */
    sxd_artefact_kind kind[SXD_ARTEFACT_CACHES_MAX];
    uint32_t kind_count;
};

/* ---- artefact.c ---- */
sx_code sxd_artefact_open(sx_ctx *cx, sxd_service *service);
void sxd_artefact_close(sxd_service *service);
/* The methods. */
void sxd_artefact_get(SX_TAKE sxd_call *call);
void sxd_artefact_put(SX_TAKE sxd_call *call);
void sxd_artefact_release(SX_TAKE sxd_call *call);
void sxd_artefact_caches(SX_TAKE sxd_call *call);
/* The kind of the entries of a cache, for eviction.
 *   errors   SX_INPUT the name is empty, too long, or has other letters */
sx_code sxd_artefact_kind_of(sx_ctx *cx, sx_span cache, uint32_t *kind);
/* The rows that tune put there for this machine (core/request/request.h); NULL: there are none. */
sx_blob *sxd_artefact_rows(sxd_service *service, uint32_t user);
/* The name of the cache to which an entry of the kind belongs, as the entry itself tells. */
const char *sxd_artefact_cache_of(sxd_service *service, uint32_t kind, uint32_t space,
                                  const sx_key *key);
/* Answers a call that waited or did not: found (`blob` is one reference, which becomes ours), or what `state` says. */
void sxd_artefact_answer_found(SX_TAKE sxd_call *call, SX_TAKE sx_blob *blob,
                               const sx_cache_info *info);
void sxd_artefact_answer(SX_TAKE sxd_call *call, const char *state, int64_t lease);

/* ---- lease.c ---- */
sxd_lease *sxd_lease_find(sxd_service *service, uint32_t space, const sx_key *key);
/* Gives the caller a lease; NULL: there are too many, or there is no memory. */
sxd_lease *sxd_lease_new(sxd_call *call, uint32_t space, const sx_key *key);
/* Would the caller wait for its own process? */
bool sxd_lease_is_circle(sxd_lease *lease, const sxd_call *call);
/* The call waits until the lease ends with a value, or becomes its own, or its time is up. */
void sxd_lease_wait(sxd_lease *lease, SX_TAKE sxd_call *call);
/* There is a value: all that wait get it. Returns how many they were. */
uint32_t sxd_lease_end(SX_TAKE sxd_lease *lease, sx_blob *blob, const sx_cache_info *info);
/* It ends without a value. */
void sxd_lease_pass(sxd_lease *lease);
/* The lease with this number and of this user; NULL: it has ended. */
sxd_lease *sxd_lease_get(sxd_service *service, uint32_t space, int64_t id);
/* A connection is closed: what it has is passed on. */
void sxd_lease_forget(sxd_service *service, uint64_t peer);
/* The daemon drains: nobody waits any more. */
void sxd_lease_drain(sxd_service *service);
#endif
