/* worker.h - the compile process: does the one job that stands on its socket (client/job.h). */
#ifndef SX_CLIENT_WORKER_WORKER_H
#define SX_CLIENT_WORKER_WORKER_H

/* Reads a job from `fd`, does it under limits on memory and processor time, and answers. Returns the exit status:
 * 0 if an answer was given, which may be an error. The process ends with the one that started it. */
int sxc_work(int fd);
#endif
