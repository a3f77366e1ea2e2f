/* sandbox.c - what a worker may do: compute, and talk on one pipe. */
#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <seccomp.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "daemon/work/work.h"
#include "daemon/work/zygote.h"

#define FILE_BYTES_MAX ((rlim_t)1 << 30) /* stderr may be a file */

static const int allowed[] = {
    SCMP_SYS(read),
    SCMP_SYS(write),
    SCMP_SYS(readv),
    SCMP_SYS(writev),
    SCMP_SYS(recvfrom),
    SCMP_SYS(sendto),
    SCMP_SYS(recvmsg),
    SCMP_SYS(sendmsg),
    SCMP_SYS(poll),
    SCMP_SYS(ppoll),
    SCMP_SYS(close),
    SCMP_SYS(mmap),
    SCMP_SYS(munmap),
    SCMP_SYS(mremap),
    SCMP_SYS(mprotect),
    SCMP_SYS(madvise),
    SCMP_SYS(brk),
    SCMP_SYS(futex),
    SCMP_SYS(set_robust_list),
    SCMP_SYS(rseq),
    SCMP_SYS(rt_sigaction),
    SCMP_SYS(rt_sigprocmask),
    SCMP_SYS(rt_sigreturn),
    SCMP_SYS(sigaltstack),
    SCMP_SYS(exit),
    SCMP_SYS(exit_group),
    SCMP_SYS(getpid),
    SCMP_SYS(gettid),
    SCMP_SYS(tgkill),
    SCMP_SYS(clock_gettime),
    SCMP_SYS(clock_nanosleep),
    SCMP_SYS(nanosleep),
    SCMP_SYS(gettimeofday),
    SCMP_SYS(sched_yield),
    SCMP_SYS(sched_getaffinity),
    SCMP_SYS(sched_setaffinity),
    SCMP_SYS(getrandom),
    SCMP_SYS(uname),
    SCMP_SYS(sysinfo),
    SCMP_SYS(prctl),
    SCMP_SYS(arch_prctl),
    SCMP_SYS(getrusage),
    SCMP_SYS(prlimit64),
    SCMP_SYS(getcpu),
    SCMP_SYS(membarrier),
    SCMP_SYS(restart_syscall),
    /* compiled code is checked before it is handed out: it is run from a sealed memory file */
    SCMP_SYS(memfd_create),
    SCMP_SYS(ftruncate),
    SCMP_SYS(pwrite64),
    SCMP_SYS(fcntl),
};

/* Library code asks and copes with "no"; everything else kills the worker. */
static const int refused[] = {
    SCMP_SYS(open),      SCMP_SYS(openat),     SCMP_SYS(stat),       SCMP_SYS(lstat),
    SCMP_SYS(fstat),     SCMP_SYS(newfstatat), SCMP_SYS(statx),      SCMP_SYS(access),
    SCMP_SYS(faccessat), SCMP_SYS(readlink),   SCMP_SYS(readlinkat), SCMP_SYS(getcwd),
    SCMP_SYS(ioctl),     SCMP_SYS(lseek),      SCMP_SYS(getuid),     SCMP_SYS(geteuid),
    SCMP_SYS(socket),
};

bool sxd_sandbox_filters(void)
{
    uint32_t action = SECCOMP_RET_KILL_PROCESS;
    return !SX_SANITIZED && syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0;
}

bool sxd_sandbox_limits_memory(void)
{
    return !SX_SANITIZED;
}

static bool add_rules(scmp_filter_ctx filter)
{
    bool fine = true;
    for (size_t i = 0; i < SX_COUNT(allowed); i++) {
        fine = seccomp_rule_add(filter, SCMP_ACT_ALLOW, allowed[i], 0) == 0 && fine;
    }
    for (size_t i = 0; i < SX_COUNT(refused); i++) {
        fine = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EACCES), refused[i], 0) == 0 && fine;
    }
    /* threads yes, processes no; clone3 hides its flags from filters, and the C library then uses clone */
    fine = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(clone), 1,
                            SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD, CLONE_THREAD)) == 0 &&
           fine;
    return seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0) == 0 && fine;
}

static void limit(__rlimit_resource_t resource, rlim_t soft, rlim_t hard)
{
    struct rlimit old;
    if (getrlimit(resource, &old) != 0) {
        _exit(EXIT_FAILURE);
    }
    if (old.rlim_max != RLIM_INFINITY && hard > old.rlim_max) {
        hard = old.rlim_max; /* limits only shrink */
    }
    struct rlimit fresh = {.rlim_cur = soft < hard ? soft : hard, .rlim_max = hard};
    if (setrlimit(resource, &fresh) != 0) {
        _exit(EXIT_FAILURE);
    }
}

static void close_others(int kept)
{
    if (syscall(SYS_close_range, (unsigned)kept + 1, ~0u, 0u) == 0) {
        return;
    }
    struct rlimit files;
    rlim_t last =
        getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < 65536 ? files.rlim_cur : 65536;
    for (int fd = kept + 1; fd < (int)last; fd++) {
        (void)close(fd);
    }
}

void sxd_sandbox_enter(const sxd_zygote_message *limits, int kept)
{
    SX_ASSERT(limits->memory_bytes > 0 && limits->cpu_s > 0);
    SX_ASSERT(kept >= SXD_WORK_FD);
    close_others(kept);
    limit(RLIMIT_CORE, 0, 0);
    limit(RLIMIT_CPU, limits->cpu_s, limits->cpu_s + 1);
    limit(RLIMIT_FSIZE, FILE_BYTES_MAX, FILE_BYTES_MAX);
    if (sxd_sandbox_limits_memory()) {
        limit(RLIMIT_AS, limits->memory_bytes, limits->memory_bytes);
    }
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
        _exit(EXIT_FAILURE);
    }
    if (sxd_sandbox_filters()) {
        scmp_filter_ctx filter = seccomp_init(SCMP_ACT_KILL_PROCESS);
        if (filter == NULL || !add_rules(filter) || seccomp_load(filter) != 0) {
            _exit(EXIT_FAILURE);
        }
        seccomp_release(filter);
    }
}
