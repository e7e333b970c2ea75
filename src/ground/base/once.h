/* once.h - a value that the first thread to need it makes, and that all threads then share.
 *
 *   typedef struct study { tsr__once roles_once; tsr__roles roles; ... } study;
 *   int status = tsr__once_run(&study->roles_once, make_roles, study, error);
 *   if (status) return status;
 *   use(&study->roles);
 *
 * One thread runs `make`; others that need the value sleep until it is done. Success is
 * remembered. A failure is returned to the thread that ran `make` and forgotten: the next thread
 * tries again, so that running out of memory or a cancelled call does not spoil the value for good.
 *
 * A value may need other values, and `make` may run tasks in a pool, as long as no value needs
 * itself (asserted for the simple case). After fork(), a child may use values that were complete or
 * not yet begun; one that another thread of the parent was making is lost, and waiting for it never
 * returns.
 */
#ifndef TSR_BASE_ONCE_H
#define TSR_BASE_ONCE_H

#include <stdatomic.h>

#include "base/os.h"

/* Private to once.c. */
typedef struct tsr__once {
  tsr__os_mutex mutex;
  tsr__os_condition changed; /* is_running became false */
  atomic_bool is_ready;      /* never becomes false again */
  bool is_running;           /* both guarded by the mutex */
  uintptr_t runner;          /* the thread that runs `make`, while is_running */
} tsr__once;

/* False if the system has no resources left; then there is nothing to release. */
bool tsr__once_init(tsr__once *once);
/* No thread may be using it. What `make` made is the caller's to release. */
void tsr__once_release(tsr__once *once);

/* Return 0 once the value is made. Otherwise make it, and return what `make` returned. Costs one
 * atomic load if the value exists. */
int tsr__once_run(tsr__once *once, int (*make)(void *context, tsr_error *error), void *context,
                  tsr_error *error);
/* Whether the value exists, and so may be released. */
bool tsr__once_is_ready(const tsr__once *once);

#endif
