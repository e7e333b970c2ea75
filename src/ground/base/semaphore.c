/* semaphore.c - the semaphores of os.h, which are made of its mutexes and conditions on every system. */
#include <assert.h>

#include "base/memory.h"
#include "base/os.h"

struct tsr__os_semaphore {
  tsr__os_mutex mutex;
  tsr__os_condition is_positive;
  unsigned count;
};

tsr__os_semaphore *tsr__os_semaphore_new(unsigned count) {
  tsr__os_semaphore *semaphore = TSR__NEW(tsr__os_semaphore);
  if (!semaphore) return NULL;
  semaphore->count = count;
  if (tsr__os_mutex_init(&semaphore->mutex)) {
    if (tsr__os_condition_init(&semaphore->is_positive)) return semaphore;
    tsr__os_mutex_release(&semaphore->mutex);
  }
  tsr__free(semaphore);
  return NULL;
}

void tsr__os_semaphore_post(tsr__os_semaphore *semaphore) {
  tsr__os_mutex_lock(&semaphore->mutex);
  semaphore->count++;
  assert(semaphore->count); /* no wrap-around */
  tsr__os_condition_wake_one(&semaphore->is_positive);
  tsr__os_mutex_unlock(&semaphore->mutex);
}

void tsr__os_semaphore_wait(tsr__os_semaphore *semaphore) {
  tsr__os_mutex_lock(&semaphore->mutex);
  while (!semaphore->count) tsr__os_condition_wait(&semaphore->is_positive, &semaphore->mutex);
  semaphore->count--;
  tsr__os_mutex_unlock(&semaphore->mutex);
}

void tsr__os_semaphore_free(tsr__os_semaphore *semaphore) {
  if (!semaphore) return;
  tsr__os_condition_release(&semaphore->is_positive);
  tsr__os_mutex_release(&semaphore->mutex);
  tsr__free(semaphore);
}
