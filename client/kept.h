/* kept.h - the weights of a model in a file, kept to be read again by a module that was compiled from it. */
#ifndef SX_CLIENT_KEPT_H
#define SX_CLIENT_KEPT_H
#include "client/runtime/runtime.h"
#include "client/source.h"

/* Takes the open file of `source`, whose weights stay valid as long as the result, and knows its weights by name.
 * False: the source has no file, or there is no memory; then it is as it was, and nothing has to be closed. */
bool sxc_kept_make(sxc_source *source, sxr_source *kept);
#endif
