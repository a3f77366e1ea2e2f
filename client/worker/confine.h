/* confine.h - a process that is about to run code of unknown origin: it may compute and answer, and nothing else. */
#ifndef SX_CLIENT_WORKER_CONFINE_H
#define SX_CLIENT_WORKER_CONFINE_H
#include "core/base/base.h"

/* From here on this process holds no descriptor but `fd`, opens no file and no socket, starts no process and
 * sends no signal: such calls fail with EPERM. What it needs to load and run a module works. There is no way
 * back. False: the system offers no such filter. Builds with sanitizers, which need more, close the
 * descriptors only. */
bool sxc_confine(int fd);
#endif
