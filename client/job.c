#include "client/job.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

bool sxc_job_send(int fd, const void *bytes, size_t size)
{
    const uint8_t *at = bytes;
    while (size > 0) {
        ssize_t n = send(fd, at, size, MSG_NOSIGNAL);
        if (n <= 0 && errno != EINTR) {
            return false;
        }
        at += n > 0 ? n : 0;
        size -= n > 0 ? (size_t)n : 0;
    }
    return true;
}

bool sxc_job_receive(int fd, void *bytes, size_t size)
{
    uint8_t *at = bytes;
    while (size > 0) {
        ssize_t n = read(fd, at, size);
        if (n == 0 || (n < 0 && errno != EINTR)) {
            return false;
        }
        at += n > 0 ? n : 0;
        size -= n > 0 ? (size_t)n : 0;
    }
    return true;
}
