/* posix.c - see posix.h. */
#include "posix.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/wait.h>

static int is_absent(void) {
  errno = ENOSYS;
  return -1;
}

/* ---- signals ---- */

int sigemptyset(sigset_t *set) {
  *set = 0;
  return 0;
}

int sigfillset(sigset_t *set) {
  *set = UINT64_MAX;
  return 0;
}

int sigaddset(sigset_t *set, int signal) {
  *set |= (uint64_t)1 << (signal & 63);
  return 0;
}

int sigdelset(sigset_t *set, int signal) {
  *set &= ~((uint64_t)1 << (signal & 63));
  return 0;
}

int sigismember(const sigset_t *set, int signal) {
  return (int)(*set >> (signal & 63) & 1);
}

int sigpending(sigset_t *set) {
  return sigemptyset(set);
}

int sigaction(int signal, const struct sigaction *action, struct sigaction *before) {
  (void)signal, (void)action;
  if (before) memset(before, 0, sizeof *before);
  return 0;
}

int sigprocmask(int how, const sigset_t *set, sigset_t *before) {
  (void)how, (void)set;
  return before ? sigemptyset(before) : 0;
}

int pthread_sigmask(int how, const sigset_t *set, sigset_t *before) {
  return sigprocmask(how, set, before);
}

/* ---- threads: one, which holds every lock ---- */

int pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*run)(void *),
                   void *context) {
  (void)thread, (void)how, (void)run, (void)context;
  return EAGAIN;
}

int pthread_join(pthread_t thread, void **result) {
  (void)thread, (void)result;
  return ESRCH;
}

int pthread_mutex_init(pthread_mutex_t *mutex, const pthread_mutexattr_t *how) {
  (void)mutex, (void)how;
  return 0;
}

int pthread_mutex_destroy(pthread_mutex_t *mutex) {
  (void)mutex;
  return 0;
}

int pthread_mutex_lock(pthread_mutex_t *mutex) {
  (void)mutex;
  return 0;
}

int pthread_mutex_unlock(pthread_mutex_t *mutex) {
  (void)mutex;
  return 0;
}

int pthread_cond_init(pthread_cond_t *condition, const pthread_condattr_t *how) {
  (void)condition, (void)how;
  return 0;
}

int pthread_cond_destroy(pthread_cond_t *condition) {
  (void)condition;
  return 0;
}

int pthread_cond_signal(pthread_cond_t *condition) {
  (void)condition;
  return 0;
}

int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex,
                           const struct timespec *until) {
  (void)condition, (void)mutex, (void)until;
  return ETIMEDOUT;
}

/* ---- processes ---- */

pid_t fork(void) {
  return is_absent();
}

int kill(pid_t id, int signal) {
  (void)id, (void)signal;
  return is_absent();
}

pid_t waitpid(pid_t id, int *status, int how) {
  (void)id, (void)status, (void)how;
  return is_absent();
}

int pipe(int ends[2]) {
  (void)ends;
  return is_absent();
}

int dup(int handle) {
  (void)handle;
  return is_absent();
}

int dup2(int handle, int number) {
  (void)handle, (void)number;
  return is_absent();
}

int posix_spawnp(pid_t *restrict id, const char *restrict name,
                 const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *restrict how,
                 char *const *restrict words, char *const *restrict variables) {
  (void)id, (void)name, (void)actions, (void)how, (void)words, (void)variables;
  return ENOSYS;
}

int posix_spawn_file_actions_init(posix_spawn_file_actions_t *actions) {
  (void)actions;
  return ENOSYS;
}

int posix_spawn_file_actions_destroy(posix_spawn_file_actions_t *actions) {
  (void)actions;
  return 0;
}

int posix_spawn_file_actions_adddup2(posix_spawn_file_actions_t *actions, int from, int to) {
  (void)actions, (void)from, (void)to;
  return ENOSYS;
}

int posix_spawn_file_actions_addopen(posix_spawn_file_actions_t *restrict actions, int handle,
                                     const char *restrict path, int how, mode_t mode) {
  (void)actions, (void)handle, (void)path, (void)how, (void)mode;
  return ENOSYS;
}

int posix_spawnattr_init(posix_spawnattr_t *how) {
  (void)how;
  return ENOSYS;
}

int posix_spawnattr_destroy(posix_spawnattr_t *how) {
  (void)how;
  return 0;
}

int posix_spawnattr_setflags(posix_spawnattr_t *how, short flags) {
  (void)how, (void)flags;
  return 0;
}

int posix_spawnattr_setsigdefault(posix_spawnattr_t *restrict how, const sigset_t *restrict set) {
  (void)how, (void)set;
  return 0;
}

int posix_spawnattr_setsigmask(posix_spawnattr_t *restrict how, const sigset_t *restrict set) {
  (void)how, (void)set;
  return 0;
}

/* ---- libraries that are loaded on demand: none is there ---- */

void *dlopen(const char *name, int how) {
  (void)name, (void)how;
  return NULL;
}

void *dlsym(void *restrict library, const char *restrict name) {
  (void)library, (void)name;
  return NULL;
}

char *dlerror(void) {
  static char reason[] = "libraries cannot be loaded in a browser";
  return reason;
}

/* ---- files ---- */

FILE *tmpfile(void) {
  (void)is_absent();
  return NULL;
}

/* The shim has no links, so a path is full once it begins at the root and has no dots. */
char *realpath(const char *path, char *room) {
  struct stat status;
  if (stat(path, &status) != 0) return NULL;
  char *full = room ? room : malloc(PATH_MAX);
  size_t used = 0;
  if (!full) return NULL;
  for (const char *at = path; *at;) {
    size_t length = strcspn(at, "/");
    if (length == 2 && at[0] == '.' && at[1] == '.') {
      while (used && full[--used] != '/') {}
    } else if (length && !(length == 1 && at[0] == '.')) {
      if (used + length + 2 > PATH_MAX) {
        if (!room) free(full);
        errno = ENAMETOOLONG;
        return NULL;
      }
      full[used++] = '/';
      memcpy(full + used, at, length);
      used += length;
    }
    at += length;
    at += *at == '/';
  }
  if (!used) full[used++] = '/';
  full[used] = '\0';
  return full;
}

int mkstemp(char *pattern) {
  static const char digits[] = "abcdefghijklmnopqrstuvwxyz012345";
  size_t length = strlen(pattern);
  unsigned char random[6];
  if (length < sizeof random || getentropy(random, sizeof random) != 0) return is_absent();
  for (size_t i = 0; i < sizeof random; i++)
    pattern[length - sizeof random + i] = digits[random[i] % 32];
  return open(pattern, O_CREAT | O_EXCL | O_RDWR, 0600);
}

/* Files have no permissions. */
int fchmod(int handle, mode_t mode) {
  (void)handle, (void)mode;
  return 0;
}
