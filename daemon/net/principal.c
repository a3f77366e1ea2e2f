#include "daemon/net/principal.h"

sxd_principal sxd_principal_of_process(uint32_t uid, int32_t pid, uint32_t self)
{
    sxd_principal principal = {.space = uid, .pid = pid};
    if (uid == self) {
        principal.rights = SXD_MAY_USE | SXD_MAY_MANAGE;
    }
    if (uid == 0) {
        principal.rights = SXD_MAY_USE | SXD_MAY_MANAGE | SXD_MAY_SEE_ALL;
    }
    return principal;
}

bool sxd_principal_may(const sxd_principal *principal, uint32_t rights)
{
    SX_ASSERT(rights != 0);
    return (principal->rights & rights) == rights;
}

bool sxd_principal_sees(const sxd_principal *principal, uint32_t space)
{
    bool own = principal->space == space && sxd_principal_may(principal, SXD_MAY_USE);
    return own || sxd_principal_may(principal, SXD_MAY_SEE_ALL);
}
