/* zygote.c - parent of all workers: a small process without threads that forks on request, kills on request
 * and tells who ended.
 *
 * Forking from the daemon would copy its page tables (82 ms at 2 GiB) and its threads' locks; from here it
 * costs 0.1 ms.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/work/work.h"
#include "daemon/work/zygote.h"

typedef struct {
    const sxd_backend *backend;
    int signal_fd;
    pid_t child[SXD_WORKER_MAX]; /* by slot; 0: none */
} zygote;

/* One packet to the daemon, with a descriptor when `fd` >= 0. A daemon that is gone ends us. */
static void tell(const sxd_zygote_message *message, int fd)
{
    sxd_zygote_message copy = *message;
    struct iovec io = {.iov_base = &copy, .iov_len = sizeof(copy)};
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    memset(&control, 0, sizeof(control));
    struct msghdr packet = {.msg_iov = &io, .msg_iovlen = 1};
    if (fd >= 0) {
        packet.msg_control = control.bytes;
        packet.msg_controllen = sizeof(control.bytes);
        struct cmsghdr *head = CMSG_FIRSTHDR(&packet);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(head), &fd, sizeof(fd));
    }
    ssize_t sent;
    do {
        sent = sendmsg(SXD_WORK_FD, &packet, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    if (sent < 0) {
        _exit(EXIT_FAILURE);
    }
}

/* In the child: its end of the pipe becomes SXD_WORK_FD. */
SX_NORETURN static void become_worker(const zygote *z, const sxd_zygote_message *order, int fd,
                                      pid_t parent)
{
    sigset_t none;
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent ||
        dup2(fd, SXD_WORK_FD) != SXD_WORK_FD) {
        _exit(EXIT_FAILURE);
    }
    sxd_work_main(z->backend, order);
}

static void spawn(zygote *z, const sxd_zygote_message *order)
{
    sxd_zygote_message answer = {.op = SXD_ZYGOTE_FAILED, .slot = order->slot};
    int pair[2];
    if (order->slot >= SXD_WORKER_MAX || z->child[order->slot] != 0 ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
        answer.status = errno != 0 ? errno : EINVAL;
        tell(&answer, -1);
        return;
    }
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid == 0) {
        become_worker(z, order, pair[1], parent);
    }
    if (pid < 0) {
        answer.status = errno;
        tell(&answer, -1);
    } else {
        z->child[order->slot] = pid;
        answer = (sxd_zygote_message){.op = SXD_ZYGOTE_SPAWNED, .slot = order->slot, .pid = pid};
        tell(&answer, pair[0]);
    }
    (void)close(pair[0]);
    (void)close(pair[1]);
}

static void reap(zygote *z)
{
    struct signalfd_siginfo info;
    (void)!read(z->signal_fd, &info, sizeof(info)); /* several ends may be one signal */
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        for (uint32_t slot = 0; slot < SXD_WORKER_MAX; slot++) {
            if (z->child[slot] == pid) {
                z->child[slot] = 0;
                sxd_zygote_message end = {
                    .op = SXD_ZYGOTE_EXITED, .slot = slot, .pid = pid, .status = status};
                tell(&end, -1);
            }
        }
    }
}

/* One order of the daemon; false at its end. */
static bool obey(zygote *z)
{
    sxd_zygote_message order;
    ssize_t got = recv(SXD_WORK_FD, &order, sizeof(order), 0);
    if (got < 0 && errno == EINTR) {
        return true;
    }
    if (got != (ssize_t)sizeof(order)) {
        return false;
    }
    if (order.op == SXD_ZYGOTE_SPAWN) {
        spawn(z, &order);
    } else if (order.op == SXD_ZYGOTE_KILL && order.slot < SXD_WORKER_MAX && order.pid > 0 &&
               z->child[order.slot] == order.pid) {
        (void)kill(order.pid, SIGKILL); /* not yet reaped, so the number is still its own */
    }
    return true;
}

int sxd_zygote_main(const sxd_backend *backend, int64_t parent_pid)
{
    static zygote z; /* the process is this one object */
    z.backend = backend;
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent_pid) {
        return EXIT_FAILURE;
    }
    const int ignored[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGQUIT, SIGXFSZ};
    for (size_t i = 0; i < SX_COUNT(ignored); i++) {
        (void)signal(ignored[i], SIG_IGN); /* the daemon decides when workers end */
    }
    sigset_t mask;
    (void)sigemptyset(&mask);
    (void)sigaddset(&mask, SIGCHLD);
    (void)sigprocmask(SIG_BLOCK, &mask, NULL);
    z.signal_fd = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
    if (z.signal_fd < 0) {
        return EXIT_FAILURE;
    }
    if (backend->prepare != NULL) {
        backend->prepare();
    }
    for (;;) { /* until the daemon closes its end */
        struct pollfd fds[2] = {{.fd = SXD_WORK_FD, .events = POLLIN},
                                {.fd = z.signal_fd, .events = POLLIN}};
        if (poll(fds, 2, -1) < 0 && errno != EINTR) {
            return EXIT_FAILURE;
        }
        if ((fds[1].revents & POLLIN) != 0) {
            reap(&z);
        }
        if (fds[0].revents != 0 && !obey(&z)) {
            break;
        }
    }
    for (uint32_t slot = 0; slot < SXD_WORKER_MAX; slot++) {
        if (z.child[slot] != 0) {
            (void)kill(z.child[slot], SIGKILL);
        }
    }
    return EXIT_SUCCESS;
}
