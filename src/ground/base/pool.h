/* pool.h - threads that share work and sleep when idle; stopping and watching long work.
 *
 * A thread without work looks out for more for some microseconds, and then sleeps.
 *
 *   tsr__thread_pool *pool = tsr__thread_pool_new(0);                       one worker fewer than processors
 *   status = tsr__thread_pool_each(pool, NULL, device_count, replay_device, context, error);
 *   tsr__thread_pool_free(pool);
 *
 * or, with tasks that differ:
 *
 *   tsr__group group;
 *   tsr__group_init(&group, pool, work);
 *   tsr__group_submit(&group, &tasks[0], read_trace, &reader);
 *   tsr__group_submit(&group, &tasks[1], read_rules, &rules);
 *   status = tsr__group_wait(&group, error);                  always, also after other errors
 *
 * The thread that waits for a group runs the group's tasks, and no others, until then. Hence:
 *  - Tasks may submit groups of their own and wait for them, to any depth: a waiting thread can always
 *    run what it waits for. The same holds for a task that needs a tsr__once (base/once.h).
 *  - Threads are never needed. Without them (one processor, none could be started, a NULL pool, a
 *    child after fork) tasks run in tsr__group_wait, in the order in which they were submitted.
 *  - Tasks must not wait for each other by any other means than a group or a tsr__once.
 *
 * Submitting allocates nothing and cannot fail. Results do not depend on timing: if several tasks
 * fail, the failure of the one that was submitted first is returned.
 *
 * A pool is a value with no global state. Threads start as tasks arrive, and stay until the pool is
 * freed. After fork(), the child has no threads of the parent's pool; it may use the pool, which
 * then runs everything in the waiting thread, and free it. Do not fork inside a task.
 */
#ifndef TSR_BASE_POOL_H
#define TSR_BASE_POOL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/os.h"

typedef struct tsr__thread_pool tsr__thread_pool;

enum { TSR__THREAD_POOL_WIDTH_MAX = 64 };

/* A pool in which `width` threads work at most, the waiting one included; 0 selects as many as there
 * are processors to run on. At most TSR__THREAD_POOL_WIDTH_MAX. NULL, which is a pool without threads, when
 * `width` comes to 1 or memory has run out. */
tsr__thread_pool *tsr__thread_pool_new(unsigned width);
/* End the threads. No group may be in use. NULL is fine. */
void tsr__thread_pool_free(tsr__thread_pool *pool);
/* How many threads can work at once, the waiting one included; 1 for NULL and after fork. */
unsigned tsr__thread_pool_width(const tsr__thread_pool *pool);

/* ---- long work: stop it, watch it ---- */

/* Called with what is done and the total, in the same units; false stops the work. The same shape
 * as tsr_progress_fn. */
typedef bool tsr__work_hook(void *context, uint64_t done_units, uint64_t total_units);

/* One piece of long work, which may spread over many groups and threads. Private to pool.c. */
typedef struct tsr__work {
  tsr__thread_pool *pool;
  tsr__work_hook *hook;
  void *hook_context;
  uint64_t total_units, step_units; /* the hook is called about every step_units */
  uint64_t told_units;              /* at the last call; the owner's */
  uintptr_t owner;                  /* the thread that called tsr__work_init */
  _Atomic uint64_t done_units;
  atomic_bool is_cancelled;
} tsr__work;

/* Begin work of `total_units` (0 if unknown) in the calling thread, which becomes its owner. The
 * hook, if not NULL, is only ever called in the owner's thread: from tsr__work_advance, and from
 * tsr__group_wait while other threads work. It is called about a hundred times in all. */
void tsr__work_init(tsr__work *work, tsr__thread_pool *pool, tsr__work_hook *hook,
                    void *hook_context, uint64_t total_units);
/* Add to what is done; any thread. False if the work is to stop, which the caller then does soon,
 * returning tsr__work_stopped(error). NULL work never stops. Costs an atomic add: call it every
 * thousand events or so, not every event. */
bool tsr__work_advance(tsr__work *work, uint64_t units);
/* Stop the work; any thread. Tasks that have not begun are skipped. */
void tsr__work_cancel(tsr__work *work);
/* Whether it is to stop. NULL work never is. */
bool tsr__work_is_cancelled(const tsr__work *work);
/* Fill `error` the way a stopped reader does, and return its status. */
int tsr__work_stopped(tsr_error *error);

/* ---- groups of tasks ---- */

/* Returns 0 or a negative tsr_status; fills `error` (never NULL) on failure. */
typedef int tsr__task_run(void *context, tsr_error *error);

/* The caller's storage for a task, until its group has been waited for. Private to pool.c. */
typedef struct tsr__task {
  tsr__task_run *run;
  void *context;
  uint64_t number; /* among the group's tasks, as submitted */
  struct tsr__task *next;
} tsr__task;

/* Private to pool.c, where its invariants are. */
typedef struct tsr__group {
  tsr__thread_pool *pool; /* NULL: tasks run in tsr__group_wait */
  tsr__work *work;        /* or NULL */
  tsr__task *first, *last;
  struct tsr__group *newer, *older;
  uint64_t submitted_count, failed_number;
  size_t running_count;
  bool is_waited_for;
  int status;
  tsr_error error;
} tsr__group;

/* Prepare an empty group. Tasks are skipped once `work` (NULL: none) is cancelled. */
void tsr__group_init(tsr__group *group, tsr__thread_pool *pool, tsr__work *work);
/* Queue `run(context, error)`, using `task` as storage. Called by the thread that initialised the
 * group or by a task of the group. Constant time. */
void tsr__group_submit(tsr__group *group, tsr__task *task, tsr__task_run *run, void *context);
/* Work on the group until all its tasks have ended, including those that its tasks submitted.
 * Returns 0, the failure of the first task in order of submission that failed, or
 * tsr__work_stopped. After a failure, later tasks that have not begun are skipped; earlier ones
 * still run. The group is empty afterwards and may be used again. */
int tsr__group_wait(tsr__group *group, tsr_error *error);

/* Call `run(context, index, error)` for each index below `count`, in increasing order of their
 * start, spread over the pool. Returns 0, the failure of the smallest index that failed, or
 * tsr__work_stopped; then indices after the failed one may have been skipped. */
int tsr__thread_pool_each(tsr__thread_pool *pool, tsr__work *work, size_t count,
                          int (*run)(void *context, size_t index, tsr_error *error), void *context,
                          tsr_error *error);

#endif
