/* A confined process computes and answers, and can do nothing to anybody. */
#include "client/worker/confine.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/test.h"

/* What went wrong, one letter each; read by the parent. */
static void try_everything(int fd, int open_before, char said[32])
{
    char *p = said;
    char *const arguments[] = {NULL};
    *p++ = sxc_confine(fd) ? '-' : 'C';
    *p++ = write(open_before, "x", 1) < 0 && errno == EBADF ? '-' : 'D';
    *p++ = write(STDERR_FILENO, "x", 1) < 0 && errno == EBADF ? '-' : 'E';
    if (!SX_SANITIZED) {
        *p++ = open("/etc/passwd", O_RDONLY) < 0 && errno == EPERM ? '-' : 'O';
        *p++ = socket(AF_UNIX, SOCK_STREAM, 0) < 0 && errno == EPERM ? '-' : 'S';
        *p++ = fork() < 0 && errno == EPERM ? '-' : 'F';
        *p++ = kill(getppid(), 0) < 0 && errno == EPERM ? '-' : 'K';
        *p++ = execve("/bin/true", arguments, arguments) < 0 && errno == EPERM ? '-' : 'X';
        *p++ = unlink("/nowhere") < 0 && errno == EPERM ? '-' : 'U';
    }
    void *memory = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *p++ = memory != MAP_FAILED ? '-' : 'M';
    *p = '\0';
}

START_TEST(nothing_but_computing)
{
    for (int high = 0; high < 2;
         high++) { /* the descriptor that is kept, before and behind the other */
        int pipes[2];
        ck_assert_int_eq(pipe(pipes), 0);
        int other = fcntl(pipes[0], F_DUPFD, high ? 3 : 90);
        int fd = fcntl(pipes[1], F_DUPFD, 40);
        pid_t child = fork();
        if (child == 0) {
            char said[32];
            try_everything(fd, other, said);
            _exit(write(fd, said, strlen(said) + 1) > 0 ? 0 : 1);
        }
        (void)close(pipes[1]);
        (void)close(fd);
        char said[32] = "";
        int status;
        ck_assert_int_gt(read(pipes[0], said, sizeof(said) - 1), 0);
        ck_assert_str_eq(said, SX_SANITIZED ? "----" : "----------");
        ck_assert_int_eq(waitpid(child, &status, 0), child);
        ck_assert_int_eq(status, 0);
        (void)close(pipes[0]);
        (void)close(other);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("confine");
    TCase *cases = tcase_create("confine");
    tcase_add_test(cases, nothing_but_computing);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
