/* principal.h - who asks, and with what rights.
 *
 * A transport proves who its peer is in its own way: for a Unix socket the kernel names the process. What it found
 * out is a principal, and nothing above the transport asks for more: it compares spaces and looks at rights.
 */
#ifndef SX_DAEMON_NET_PRINCIPAL_H
#define SX_DAEMON_NET_PRINCIPAL_H
#include "core/base/base.h"

typedef enum {
    SXD_MAY_USE = 1,     /* compile, search, and read what belongs to its own space */
    SXD_MAY_MANAGE = 2,  /* stop the daemon, check the store, evict entries of its own space */
    SXD_MAY_SEE_ALL = 4, /* read, and cancel, what belongs to other spaces */
} sxd_right;

typedef struct {
    /* Entries of the cache, jobs and searches belong to a space, and are shared within it alone. The space of a
     * local user is the uid. */
    uint32_t space;
    uint32_t rights; /* a set of sxd_right; empty: it is refused */
    int32_t pid;     /* of a local peer, for the log; 0: not known */
} sxd_principal;

/* The principal of a process on this machine. The daemon serves the user it runs as, `self`, and root. */
sxd_principal sxd_principal_of_process(uint32_t uid, int32_t pid, uint32_t self);
/* Has it all of these rights? */
bool sxd_principal_may(const sxd_principal *principal, uint32_t rights);
/* May it read and cancel what belongs to this space? */
bool sxd_principal_sees(const sxd_principal *principal, uint32_t space);
#endif
