#include "client/worker/confine.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define THIS_ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define THIS_ARCHITECTURE AUDIT_ARCH_AARCH64
#endif

#ifdef THIS_ARCHITECTURE
/* Memory, the descriptors that are there (sendto: without an address that it could name, the socket is
 * connected), the loader's memory file, clocks and the end. */
static const uint32_t allowed[] = {
    SYS_read,
    SYS_write,
    SYS_sendto,
    SYS_close,
    SYS_lseek,
    SYS_fcntl,
    SYS_fstat,
    SYS_ftruncate,
    SYS_memfd_create,
    SYS_mmap,
    SYS_munmap,
    SYS_mremap,
    SYS_mprotect,
    SYS_madvise,
    SYS_brk,
    SYS_futex,
    SYS_getrandom,
    SYS_clock_gettime,
    SYS_gettimeofday,
    SYS_getpid,
    SYS_gettid,
    SYS_sched_yield,
    SYS_rt_sigprocmask,
    SYS_rt_sigaction,
    SYS_rt_sigreturn,
    SYS_getrusage,
    SYS_sysinfo,
    SYS_restart_syscall,
    SYS_sched_getaffinity,
    SYS_exit,
    SYS_exit_group,
};

#define FIELD(name) (uint32_t) offsetof(struct seccomp_data, name)

static bool set_filter(void)
{
    struct sock_filter program[2 * SX_COUNT(allowed) + 8];
    uint16_t n = 0;
    program[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, FIELD(arch));
    program[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, THIS_ARCHITECTURE, 1, 0);
    program[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    program[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, FIELD(nr));
    for (uint32_t i = 0; i < SX_COUNT(allowed); i++) {
        program[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, allowed[i], 0, 1);
        program[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    }
    program[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
    struct sock_fprog filter = {.len = n, .filter = program};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0) == 0;
}
#else
static bool set_filter(void)
{
    return false;
}
#endif

bool sxc_confine(int fd)
{
    bool closed = (fd == 0 || syscall(SYS_close_range, 0u, (unsigned)fd - 1, 0u) == 0) &&
                  syscall(SYS_close_range, (unsigned)fd + 1, ~0u, 0u) == 0;
    return SX_SANITIZED || (closed && set_filter());
}
