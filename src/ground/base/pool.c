/* pool.c - a pool of sleeping threads; see pool.h for what it promises.
 *
 *   pool ── newest ─► group ── older ─► group ── older ─► NULL      groups with queued tasks
 *                       │                 │
 *                     first             first
 *                       ▼                 ▼
 *                     task ► task       task                        oldest first in each
 *
 * One mutex guards all groups of a pool; tasks are meant to take a millisecond or more, so it is
 * rarely contended. Workers take the oldest task of the newest group: inner groups are finished
 * before outer ones go on, so fewer things are half done at any time. A thread that waits takes
 * tasks of its own group only (pool.h says why this cannot deadlock); it also never gets stuck in
 * an unrelated task after its own group is done.
 *
 * Invariants, under the mutex:
 *  - a group is in the pool's list exactly while it has queued tasks;
 *  - queued_count is the number of tasks in all listed groups;
 *  - a group is done when nothing is queued and running_count is 0;
 *  - asleep_count <= idle_count <= worker_count <= width - 1.
 *
 * Threads start when a task arrives and more tasks are queued than workers are idle. If one cannot
 * be started, no more are tried for this pool.
 *
 * Waking a thread takes as long as a small task. So a thread that has nothing to do looks out for SPIN_NS
 * before it sleeps, unless the pool is wider than the machine: then it would only keep others from work.
 * `change_count` tells it, without the mutex, that there may be something new; what is new, it sees under the
 * mutex.
 *
 * A group of a NULL pool, or of a pool from before a fork, is used by one thread only, without the
 * mutex, which another thread of the parent may have held at the moment of the fork. */
#include "base/pool.h"

#include <assert.h>

#include "base/memory.h"

struct tsr__thread_pool {
  tsr__os_mutex mutex;
  tsr__os_condition work_arrived; /* workers sleep here */
  tsr__os_condition
      group_changed; /* waiting threads: a group is done or has tasks, work advanced */
  tsr__group *newest;
  size_t queued_count;
  unsigned width, worker_count;
  unsigned idle_count, asleep_count; /* workers without a task; those of them that sleep */
  atomic_uint change_count; /* of all that a thread may wait for; changed under the mutex */
  bool spins, cannot_start, is_ending;
  uint64_t process_id;
  tsr__os_thread *workers[TSR__THREAD_POOL_WIDTH_MAX - 1];
};

enum { PROGRESS_CALLS = 100, SPIN_NS = 50000, SPIN_LOOKS = 32 };

static void lock(tsr__thread_pool *pool) {
  if (pool) tsr__os_mutex_lock(&pool->mutex);
}

static void unlock(tsr__thread_pool *pool) {
  if (pool) tsr__os_mutex_unlock(&pool->mutex);
}

static bool is_usable(const tsr__thread_pool *pool) {
  return pool && pool->process_id == tsr__os_process_id();
}

/* ---- waiting; all under the mutex ---- */

static void note_change(tsr__thread_pool *pool) {
  atomic_fetch_add_explicit(&pool->change_count, 1, memory_order_release);
}

/* Tell threads in tsr__group_wait, which may sleep. */
static void tell_waiting(tsr__thread_pool *pool) {
  note_change(pool);
  tsr__os_condition_wake_all(&pool->group_changed);
}

/* Wait a while for a change, without the mutex. Whether there was one. */
static bool spin(tsr__thread_pool *pool) {
  if (!pool->spins) return false;
  unsigned seen = atomic_load_explicit(&pool->change_count, memory_order_relaxed);
  bool is_changed = false;
  unlock(pool);
  uint64_t end_ns = tsr__os_time_ns() + SPIN_NS;
  do {
    for (int i = 0; i < SPIN_LOOKS && !is_changed; i++) {
      tsr__os_pause();
      is_changed = atomic_load_explicit(&pool->change_count, memory_order_acquire) != seen;
    }
  } while (!is_changed && tsr__os_time_ns() < end_ns);
  lock(pool);
  return is_changed || atomic_load_explicit(&pool->change_count, memory_order_relaxed) != seen;
}

/* ---- work ---- */

void tsr__work_init(tsr__work *work, tsr__thread_pool *pool, tsr__work_hook *hook,
                    void *hook_context, uint64_t total_units) {
  uint64_t step_units = total_units / PROGRESS_CALLS;
  *work = (tsr__work){.pool = is_usable(pool) ? pool : NULL,
                      .hook = hook,
                      .hook_context = hook_context,
                      .total_units = total_units,
                      .step_units = step_units ? step_units : 1,
                      .owner = tsr__os_thread_self()};
}

/* Call the hook if enough was done since the last call. Owner only, without the mutex: the hook is
 * the user's and may take its time. */
static void tell(tsr__work *work) {
  assert(work->owner == tsr__os_thread_self());
  uint64_t done_units = atomic_load(&work->done_units);
  assert(done_units >= work->told_units);
  if (done_units - work->told_units < work->step_units) return;
  work->told_units = done_units;
  if (!work->hook(work->hook_context, done_units, work->total_units)) tsr__work_cancel(work);
}

bool tsr__work_advance(tsr__work *work, uint64_t units) {
  if (!work) return true;
  uint64_t before = atomic_fetch_add(&work->done_units, units);
  assert(before + units >= before);
  if (work->hook && work->owner == tsr__os_thread_self()) {
    tell(work);
  } else if (work->hook && work->pool &&
             before / work->step_units != (before + units) / work->step_units) {
    /* The owner may be asleep in tsr__group_wait. */
    lock(work->pool);
    tell_waiting(work->pool);
    unlock(work->pool);
  }
  return !tsr__work_is_cancelled(work);
}

void tsr__work_cancel(tsr__work *work) {
  atomic_store(&work->is_cancelled, true);
}

bool tsr__work_is_cancelled(const tsr__work *work) {
  return work && atomic_load(&work->is_cancelled);
}

int tsr__work_stopped(tsr_error *error) {
  return tsr__fail(error, TSR_ERROR_IO, TSR_OFFSET_NONE, "stopped");
}

/* ---- queues; all under the mutex ---- */

static void list_group(tsr__thread_pool *pool, tsr__group *group) {
  assert(!group->newer && !group->older && group != pool->newest);
  group->older = pool->newest;
  if (pool->newest) pool->newest->newer = group;
  pool->newest = group;
}

static void unlist_group(tsr__thread_pool *pool, tsr__group *group) {
  if (group->newer) {
    group->newer->older = group->older;
  } else {
    assert(pool->newest == group);
    pool->newest = group->older;
  }
  if (group->older) group->older->newer = group->newer;
  group->newer = group->older = NULL;
}

static tsr__task *take_task(tsr__group *group) {
  tsr__task *task = group->first;
  assert(task && task->number < group->submitted_count);
  group->first = task->next;
  if (!group->first) group->last = NULL;
  group->running_count++;
  if (group->pool) {
    assert(group->pool->queued_count > 0);
    group->pool->queued_count--;
    if (!group->first) unlist_group(group->pool, group);
  }
  return task;
}

/* Whether an earlier failure or a cancelled work makes the task pointless. */
static bool is_skipped(const tsr__group *group, const tsr__task *task) {
  return (group->status && task->number > group->failed_number) ||
         tsr__work_is_cancelled(group->work);
}

static void record_failure(tsr__group *group, uint64_t number, int status, const tsr_error *error) {
  assert(status < 0);
  if (group->status && group->failed_number <= number) return;
  group->status = status;
  group->failed_number = number;
  group->error = *error;
}

/* Take a task of the group and run it. The mutex is held on entry and on return, not in between. */
static void run_next(tsr__group *group) {
  tsr__thread_pool *pool = group->pool;
  tsr__task *task = take_task(group);
  uint64_t number = task->number;
  tsr_error error = {.status = TSR_OK, .offset = TSR_OFFSET_NONE};
  int status;
  if (is_skipped(group, task)) {
    status = group->status ? 0 : tsr__work_stopped(&error);
  } else {
    unlock(pool);
    status = task->run(task->context, &error);
    lock(pool);
  }
  if (status) record_failure(group, number, status, &error);
  assert(group->running_count > 0);
  group->running_count--;
  /* The waiting thread may return, and the group be gone, as soon as the mutex is released. */
  if (pool && group->is_waited_for && !group->first && !group->running_count) tell_waiting(pool);
}

/* ---- threads ---- */

/* Until there is a task, or the pool ends. */
static void be_idle(tsr__thread_pool *pool) {
  pool->idle_count++;
  assert(pool->idle_count <= pool->worker_count);
  while (!pool->newest && !pool->is_ending) {
    if (spin(pool)) continue;
    pool->asleep_count++;
    tsr__os_condition_wait(&pool->work_arrived, &pool->mutex);
    pool->asleep_count--;
  }
  pool->idle_count--;
}

static void work_in_thread(void *context) {
  tsr__thread_pool *pool = context;
  lock(pool);
  for (;;) {
    be_idle(pool);
    if (!pool->newest) break;
    run_next(pool->newest);
  }
  unlock(pool);
}

/* Make sure that somebody will look at a task that has just been queued. Under the mutex. */
static void call_worker(tsr__thread_pool *pool) {
  note_change(pool);
  if (pool->asleep_count) tsr__os_condition_wake_one(&pool->work_arrived);
  if (pool->queued_count <= pool->idle_count || pool->cannot_start) return;
  if (pool->worker_count + 1 >= pool->width) return;
  tsr__os_thread *worker = tsr__os_thread_start(work_in_thread, pool);
  if (worker)
    pool->workers[pool->worker_count++] = worker;
  else
    pool->cannot_start = true;
}

tsr__thread_pool *tsr__thread_pool_new(unsigned width) {
  if (!width) width = tsr__os_processor_count();
  if (width > TSR__THREAD_POOL_WIDTH_MAX) width = TSR__THREAD_POOL_WIDTH_MAX;
  if (width == 1) return NULL;
  tsr__thread_pool *pool = TSR__NEW(tsr__thread_pool);
  if (!pool) return NULL;
  pool->width = width;
  pool->spins = width <= tsr__os_processor_count();
  pool->process_id = tsr__os_process_id();
  if (tsr__os_mutex_init(&pool->mutex)) {
    if (tsr__os_condition_init(&pool->work_arrived)) {
      if (tsr__os_condition_init(&pool->group_changed)) return pool;
      tsr__os_condition_release(&pool->work_arrived);
    }
    tsr__os_mutex_release(&pool->mutex);
  }
  tsr__free(pool);
  return NULL;
}

void tsr__thread_pool_free(tsr__thread_pool *pool) {
  if (!pool) return;
  if (is_usable(pool)) {
    lock(pool);
    assert(!pool->newest && !pool->queued_count);
    pool->is_ending = true;
    note_change(pool);
    tsr__os_condition_wake_all(&pool->work_arrived);
    unlock(pool);
    for (unsigned i = 0; i < pool->worker_count; i++) tsr__os_thread_join(pool->workers[i]);
    tsr__os_condition_release(&pool->group_changed);
    tsr__os_condition_release(&pool->work_arrived);
    tsr__os_mutex_release(&pool->mutex);
  } else {
    /* Destroying a mutex or a condition that a thread of the parent was using is not allowed. */
    for (unsigned i = 0; i < pool->worker_count; i++) tsr__os_thread_forget(pool->workers[i]);
  }
  tsr__free(pool);
}

unsigned tsr__thread_pool_width(const tsr__thread_pool *pool) {
  return is_usable(pool) ? pool->width : 1;
}

/* ---- groups ---- */

void tsr__group_init(tsr__group *group, tsr__thread_pool *pool, tsr__work *work) {
  *group = (tsr__group){.pool = is_usable(pool) ? pool : NULL, .work = work};
}

void tsr__group_submit(tsr__group *group, tsr__task *task, tsr__task_run *run, void *context) {
  assert(run);
  lock(group->pool);
  *task = (tsr__task){.run = run, .context = context, .number = group->submitted_count++};
  bool was_empty = !group->first;
  assert(was_empty == !group->last);
  if (was_empty)
    group->first = task;
  else
    group->last->next = task;
  group->last = task;
  if (group->pool) {
    group->pool->queued_count++;
    if (was_empty) list_group(group->pool, group);
    call_worker(group->pool);
    if (group->is_waited_for) tell_waiting(group->pool);
  }
  unlock(group->pool);
}

/* Wait until something changes; the hook is called outside of the mutex. */
static void sleep_on(tsr__group *group) {
  assert(group->pool && group->running_count);
  if (!spin(group->pool)) tsr__os_condition_wait(&group->pool->group_changed, &group->pool->mutex);
  tsr__work *work = group->work;
  if (!work || !work->hook || work->owner != tsr__os_thread_self()) return;
  unlock(group->pool);
  tell(work);
  lock(group->pool);
}

int tsr__group_wait(tsr__group *group, tsr_error *error) {
  lock(group->pool);
  assert(!group->is_waited_for);
  group->is_waited_for = true;
  while (group->first || group->running_count) {
    if (group->first)
      run_next(group);
    else
      sleep_on(group);
  }
  assert(!group->last && !group->newer && !group->older);
  int status = group->status;
  if (status && error) *error = group->error;
  group->is_waited_for = false;
  group->status = 0;
  group->submitted_count = group->failed_number = 0;
  unlock(group->pool);
  return status;
}

/* ---- each ---- */

/* Shared by the tasks of one tsr__thread_pool_each. Indices are claimed in increasing order, so when index
 * i has failed, all smaller ones have been claimed, and no larger ones need to be. */
typedef struct each {
  tsr__group group;
  int (*run)(void *context, size_t index, tsr_error *error);
  void *context;
  size_t count;
  _Atomic size_t next; /* may pass `count` by as many as there are tasks */
  _Atomic size_t end;  /* indices from here on are not claimed any more: count, or after a failure;
                        * it and the rest change under the pool's mutex */
  int status;
  tsr_error error; /* of index `end`, where status is not 0 */
} each;

static bool claim_index(each *e, size_t *index) {
  if (tsr__work_is_cancelled(e->group.work)) return false;
  *index = atomic_fetch_add_explicit(&e->next, 1, memory_order_relaxed);
  return *index < atomic_load_explicit(&e->end, memory_order_acquire);
}

static void end_at(each *e, size_t index, int status, const tsr_error *error) {
  assert(status < 0 && index < e->count);
  lock(e->group.pool);
  if (index < atomic_load(&e->end)) {
    atomic_store(&e->end, index);
    e->status = status;
    e->error = *error;
  }
  unlock(e->group.pool);
}

static int run_some(void *context, tsr_error *error) {
  each *e = context;
  size_t index = 0;
  while (claim_index(e, &index)) {
    int status = e->run(e->context, index, error);
    if (status) end_at(e, index, status, error);
  }
  return 0;
}

int tsr__thread_pool_each(tsr__thread_pool *pool, tsr__work *work, size_t count,
                          int (*run)(void *context, size_t index, tsr_error *error), void *context,
                          tsr_error *error) {
  each e = {.run = run, .context = context, .count = count};
  atomic_init(&e.next, 0);
  atomic_init(&e.end, count);
  tsr__task tasks[TSR__THREAD_POOL_WIDTH_MAX];
  size_t task_count = tsr__thread_pool_width(pool);
  if (task_count > count) task_count = count;
  tsr__group_init(&e.group, pool, work);
  for (size_t i = 0; i < task_count; i++) tsr__group_submit(&e.group, &tasks[i], run_some, &e);
  int status = tsr__group_wait(&e.group, error);
  if (e.status) {
    if (error) *error = e.error;
    return e.status;
  }
  bool is_complete = atomic_load(&e.next) >= count;
  assert(status || is_complete || tsr__work_is_cancelled(work));
  return status || is_complete ? status : tsr__work_stopped(error);
}
