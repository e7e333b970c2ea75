/* os.c - POSIX's side of os.h. */
#define _POSIX_C_SOURCE 200809L
#include "base/os.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"

enum { STANDARD_INPUT = 0, LARGEST_READ = 1 << 30 };

static int fail_errno(tsr_error *error, const char *what) {
  char reason[128];
  if (strerror_r(errno, reason, sizeof reason) != 0) strcpy(reason, "unknown reason");
  return tsr__fail(error, TSR_ERROR_IO, TSR_OFFSET_NONE, "%s: %s", what, reason);
}

int tsr__os_open(const char *path, int *handle, uint64_t *size_bytes, tsr_error *error) {
  int fd = STANDARD_INPUT;
  if (strcmp(path, "-") != 0) fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return fail_errno(error, "cannot open");
  struct stat status;
  if (fstat(fd, &status) != 0) {
    int result = fail_errno(error, "cannot examine");
    tsr__os_close(fd);
    return result;
  }
  if (S_ISDIR(status.st_mode)) {
    tsr__os_close(fd);
    return tsr__fail(error, TSR_ERROR_IO, TSR_OFFSET_NONE, "is a directory, not a snapshot");
  }
  *handle = fd;
  *size_bytes = S_ISREG(status.st_mode) && status.st_size > 0 ? (uint64_t)status.st_size : 0;
  return 0;
}

int tsr__os_open_regular(const char *path, int *handle, tsr_error *error) {
  int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return fail_errno(error, "cannot open");
  struct stat status;
  if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
    (void)close(fd);
    return tsr__fail(error, TSR_ERROR_IO, TSR_OFFSET_NONE, "not a regular file");
  }
  *handle = fd;
  return 0;
}

ptrdiff_t tsr__os_read(int handle, void *buffer, size_t size, tsr_error *error) {
  for (;;) {
    ssize_t got = read(handle, buffer, size < LARGEST_READ ? size : LARGEST_READ);
    if (got >= 0) return got;
    if (errno != EINTR) return fail_errno(error, "cannot read");
  }
}

void tsr__os_close(int handle) {
  if (handle != STANDARD_INPUT) (void)close(handle);
}

/* ---- threads ---- */

struct tsr__os_thread {
  pthread_t id;
  void (*run)(void *context);
  void *context;
};

static void *run_thread(void *argument) {
  tsr__os_thread *thread = argument;
  thread->run(thread->context);
  return NULL;
}

tsr__os_thread *tsr__os_thread_start(void (*run)(void *context), void *context) {
  tsr__os_thread *thread = TSR__NEW(tsr__os_thread);
  if (!thread) return NULL;
  thread->run = run;
  thread->context = context;
  if (pthread_create(&thread->id, NULL, run_thread, thread) == 0) return thread;
  tsr__free(thread);
  return NULL;
}

void tsr__os_thread_join(tsr__os_thread *thread) {
  (void)pthread_join(thread->id, NULL);
  tsr__free(thread);
}

struct tsr__os_semaphore {
  pthread_mutex_t mutex;
  pthread_cond_t is_positive;
  unsigned count;
};

tsr__os_semaphore *tsr__os_semaphore_new(unsigned count) {
  tsr__os_semaphore *semaphore = TSR__NEW(tsr__os_semaphore);
  if (!semaphore) return NULL;
  (void)pthread_mutex_init(&semaphore->mutex, NULL);
  (void)pthread_cond_init(&semaphore->is_positive, NULL);
  semaphore->count = count;
  return semaphore;
}

void tsr__os_semaphore_post(tsr__os_semaphore *semaphore) {
  (void)pthread_mutex_lock(&semaphore->mutex);
  semaphore->count++;
  (void)pthread_cond_signal(&semaphore->is_positive);
  (void)pthread_mutex_unlock(&semaphore->mutex);
}

void tsr__os_semaphore_wait(tsr__os_semaphore *semaphore) {
  (void)pthread_mutex_lock(&semaphore->mutex);
  while (!semaphore->count) (void)pthread_cond_wait(&semaphore->is_positive, &semaphore->mutex);
  semaphore->count--;
  (void)pthread_mutex_unlock(&semaphore->mutex);
}

void tsr__os_semaphore_free(tsr__os_semaphore *semaphore) {
  if (!semaphore) return;
  (void)pthread_cond_destroy(&semaphore->is_positive);
  (void)pthread_mutex_destroy(&semaphore->mutex);
  tsr__free(semaphore);
}
