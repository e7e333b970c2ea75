/* once.c - see once.h.
 *
 * The mutex is not held while `make` runs, which may take seconds: threads that wait sleep on the
 * condition instead.
 *
 * Invariant, under the mutex: not both is_ready and is_running. */
#include "base/once.h"

#include <assert.h>

bool tsr__once_init(tsr__once *once) {
  if (!tsr__os_mutex_init(&once->mutex)) return false;
  if (!tsr__os_condition_init(&once->changed)) {
    tsr__os_mutex_release(&once->mutex);
    return false;
  }
  atomic_init(&once->is_ready, false);
  once->is_running = false;
  once->runner = 0;
  return true;
}

void tsr__once_release(tsr__once *once) {
  assert(!once->is_running);
  tsr__os_condition_release(&once->changed);
  tsr__os_mutex_release(&once->mutex);
}

bool tsr__once_is_ready(const tsr__once *once) {
  return atomic_load_explicit(&once->is_ready, memory_order_acquire);
}

/* Wait until the value is ready or this thread is to make it; true for the latter. */
static bool claim(tsr__once *once) {
  tsr__os_mutex_lock(&once->mutex);
  /* A value that needs itself would wait for itself. */
  assert(!once->is_running || once->runner != tsr__os_thread_self());
  while (once->is_running) tsr__os_condition_wait(&once->changed, &once->mutex);
  bool is_claimed = !tsr__once_is_ready(once);
  if (is_claimed) {
    once->is_running = true;
    once->runner = tsr__os_thread_self();
  }
  tsr__os_mutex_unlock(&once->mutex);
  return is_claimed;
}

int tsr__once_run(tsr__once *once, int (*make)(void *context, tsr_error *error), void *context,
                  tsr_error *error) {
  if (tsr__once_is_ready(once)) return 0;
  if (!claim(once)) return 0;
  int status = make(context, error);
  tsr__os_mutex_lock(&once->mutex);
  assert(once->is_running && once->runner == tsr__os_thread_self() && !tsr__once_is_ready(once));
  once->is_running = false;
  once->runner = 0;
  if (!status) atomic_store_explicit(&once->is_ready, true, memory_order_release);
  tsr__os_condition_wake_all(&once->changed);
  tsr__os_mutex_unlock(&once->mutex);
  return status;
}
