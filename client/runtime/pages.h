/* pages.h - large memory, zeroed, in huge pages where the system has some: a first touch costs a third of what it
 * costs in small ones. */
#ifndef SX_CLIENT_RUNTIME_PAGES_H
#define SX_CLIENT_RUNTIME_PAGES_H
#include "core/base/base.h"

void sxr_pages_free(SX_TAKE void *memory, size_t size); /* NULL is allowed */
/* `size` is above 0. NULL: there is none. */
void *sxr_pages(size_t size);
#endif
