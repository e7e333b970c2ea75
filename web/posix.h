/* posix.h - what the command uses of POSIX and WASI's C library does not declare. The compiler includes it before each file
 * of the command, so that these need no conditions for a system without signals; posix.c has the
 * functions, most of which fail with ENOSYS as a system that lacks them would.
 */
#ifndef WEB_POSIX_H
#define WEB_POSIX_H

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

/* ---- signals: none arrives, so masks are kept by nobody ---- */

#ifndef SIG_BLOCK
#define SIG_BLOCK    0
#define SIG_UNBLOCK  1
#define SIG_SETMASK  2
#define SA_RESTART   0x10000000
#define SA_RESETHAND 0x80000000u
#endif

typedef uint64_t web_sigset;
#define sigset_t web_sigset
typedef struct web_siginfo {
  int si_signo;
} siginfo_t;
struct sigaction {
  void (*sa_handler)(int signal);
  sigset_t sa_mask;
  unsigned sa_flags;
};

int sigemptyset(sigset_t *set);
int sigfillset(sigset_t *set);
int sigaddset(sigset_t *set, int signal);
int sigdelset(sigset_t *set, int signal);
int sigismember(const sigset_t *set, int signal);
int sigpending(sigset_t *set);
int sigaction(int signal, const struct sigaction *action, struct sigaction *before);
int sigprocmask(int how, const sigset_t *set, sigset_t *before);
int pthread_sigmask(int how, const sigset_t *set, sigset_t *before);

/* ---- files ---- */

int dup(int handle);
int dup2(int handle, int number);

#ifndef F_DUPFD_CLOEXEC
#define F_DUPFD_CLOEXEC 1030
#endif

char *realpath(const char *path, char *room);
int mkstemp(char *pattern);
int fchmod(int handle, mode_t mode);

#endif
