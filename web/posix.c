/* posix.c - see posix.h. */
#include "posix.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

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

int dup(int handle) {
  (void)handle;
  return is_absent();
}

int dup2(int handle, int number) {
  (void)handle, (void)number;
  return is_absent();
}

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
