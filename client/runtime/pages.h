/* pages.h - large memory, zeroed, given back to the system at once.
 *
 * Small pages for what is touched a few times: in a virtual machine that hands free memory back to its host, the first
 * touch of a huge page took four times as long (1.3 s for 700 MB). Huge ones for what a module keeps and all of its
 * runs read: where the machine has the memory, their first touch takes a fifth of that of as many small ones.
 */
#ifndef SX_CLIENT_RUNTIME_PAGES_H
#define SX_CLIENT_RUNTIME_PAGES_H
#include "core/base/base.h"

void sxr_pages_free(SX_TAKE void *memory, size_t size); /* NULL is allowed */
/* `size` is above 0. NULL: there is none. */
void *sxr_pages(size_t size);
/* The same in huge pages, where the system has them. */
void *sxr_pages_kept(size_t size);
/* Memory that is about to be written gets all of its pages at once, which costs half of what it costs to fault them
 * in one by one. Best in pieces that a cache holds (SXR_TOUCH_BYTES). */
#define SXR_TOUCH_BYTES ((size_t)512 << 10)
void sxr_pages_touch(void *memory, size_t size);
/* How many of the first bytes of memory of sxr_pages_kept come in huge pages; 0: the system has none. It writes the
 * first byte as it is, to see what comes with it. They need no touch before they are written: a page that is faulted in
 * just then is still in the cache. */
size_t sxr_pages_huge(void *memory, size_t size);
#endif
