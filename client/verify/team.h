/* team.h - what a process lends to the compiler: threads, and memory that it keeps.
 *
 * The threads are the sx_team of a ctx. They are started when there are tasks and end with them, so that a process that
 * waits has none. Where the system starts fewer, those that there are do all of the work.
 */
#ifndef SX_CLIENT_VERIFY_TEAM_H
#define SX_CLIENT_VERIFY_TEAM_H
#include <pthread.h>

#include "core/base/base.h"

#define SXV_TEAM_THREADS_MAX 16u
typedef struct {
    sx_team team;          /* ctx.team points here */
    pthread_mutex_t mutex; /* guards what tasks share between team.lock and team.unlock */
} sxv_team;

/* `threads`: 1..SXV_TEAM_THREADS_MAX, more count as that; 0: as many as the process may use. */
void sxv_team_init(sxv_team *team, uint32_t threads);
void sxv_team_fini(sxv_team *team);

/* From now on the process keeps up to 64 MiB of the memory that it frees. The compiler takes and gives back blocks of
 * some megabytes many times, each time new pages of the system. For processes that compile and do little else. */
void sxv_keep_memory(void);
#endif
