/* test_pool.c - tasks run once, in any number of threads or none; runs under ThreadSanitizer too.
 *
 * Linked with --wrap=pthread_create, so that a test can make threads unavailable. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/once.h"
#include "base/pool.h"
#include "test_support.h"

static bool threads_are_refused;

int __real_pthread_create(pthread_t *id, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *argument);
int __wrap_pthread_create(pthread_t *id, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *argument);

int __wrap_pthread_create(pthread_t *id, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *argument) {
  if (threads_are_refused) return EAGAIN;
  return __real_pthread_create(id, attributes, run, argument);
}

static const unsigned widths[] = {1, 2, 3, 8};
enum { WIDTHS = sizeof widths / sizeof *widths };

static void test_width(void **state) {
  (void)state;
  assert_null(tsr__thread_pool_new(1));
  assert_int_equal(tsr__thread_pool_width(NULL), 1);
  tsr__thread_pool_free(NULL);
  tsr__thread_pool *pool = tsr__thread_pool_new(3);
  assert_int_equal(tsr__thread_pool_width(pool), 3);
  tsr__thread_pool_free(pool);
  pool = tsr__thread_pool_new(100000);
  assert_int_equal(tsr__thread_pool_width(pool), TSR__THREAD_POOL_WIDTH_MAX);
  tsr__thread_pool_free(pool);
  unsigned processors = tsr__os_processor_count();
  assert_true(processors >= 1);
  pool = tsr__thread_pool_new(0);
  assert_int_equal(tsr__thread_pool_width(pool), processors > TSR__THREAD_POOL_WIDTH_MAX
                                                     ? TSR__THREAD_POOL_WIDTH_MAX
                                                     : processors);
  tsr__thread_pool_free(pool);
}

/* ---- groups ---- */

enum { TASKS = 500 };

static int count_up(void *context, tsr_error *error) {
  (void)error;
  atomic_fetch_add((atomic_int *)context, 1);
  return 0;
}

static void test_every_task_runs_once(void **state) {
  (void)state;
  static tsr__task tasks[TASKS];
  static atomic_int counts[TASKS];
  for (size_t w = 0; w < WIDTHS; w++) {
    tsr__thread_pool *pool = tsr__thread_pool_new(widths[w]);
    tsr__group group;
    tsr__group_init(&group, pool, NULL);
    assert_int_equal(tsr__group_wait(&group, NULL), 0);
    for (int round = 1; round <= 3; round++) {
      for (size_t i = 0; i < TASKS; i++) {
        if (round == 1) atomic_init(&counts[i], 0);
        tsr__group_submit(&group, &tasks[i], count_up, &counts[i]);
      }
      assert_int_equal(tsr__group_wait(&group, NULL), 0);
      for (size_t i = 0; i < TASKS; i++) assert_int_equal(counts[i], round);
    }
    tsr__thread_pool_free(pool);
  }
}

/* A tree of tasks: each waits for its own group. */
typedef struct node {
  tsr__thread_pool *pool;
  unsigned depth;
  unsigned leaves; /* result */
} node;

enum { BRANCHES = 4, DEPTH = 4 };

static int grow(void *context, tsr_error *error) {
  node *n = context;
  if (!n->depth) {
    n->leaves = 1;
    return 0;
  }
  node children[BRANCHES];
  tsr__task tasks[BRANCHES];
  tsr__group group;
  tsr__group_init(&group, n->pool, NULL);
  for (size_t i = 0; i < BRANCHES; i++) {
    children[i] = (node){.pool = n->pool, .depth = n->depth - 1};
    tsr__group_submit(&group, &tasks[i], grow, &children[i]);
  }
  int status = tsr__group_wait(&group, error);
  for (size_t i = 0; i < BRANCHES; i++) n->leaves += children[i].leaves;
  return status;
}

static void test_tasks_wait_for_tasks(void **state) {
  (void)state;
  for (size_t w = 0; w < WIDTHS; w++) {
    tsr__thread_pool *pool = tsr__thread_pool_new(widths[w]);
    node root = {.pool = pool, .depth = DEPTH};
    assert_int_equal(grow(&root, NULL), 0);
    assert_int_equal(root.leaves, BRANCHES * BRANCHES * BRANCHES * BRANCHES);
    tsr__thread_pool_free(pool);
  }
}

/* A task that adds the next one to its own group. */
typedef struct chain {
  tsr__group *group;
  tsr__task tasks[100];
  size_t length;
} chain;

static int add_link(void *context, tsr_error *error) {
  chain *c = context;
  (void)error;
  c->length++;
  if (c->length < 100) tsr__group_submit(c->group, &c->tasks[c->length], add_link, c);
  return 0;
}

static void test_tasks_add_to_their_group(void **state) {
  (void)state;
  for (size_t w = 0; w < WIDTHS; w++) {
    tsr__thread_pool *pool = tsr__thread_pool_new(widths[w]);
    tsr__group group;
    chain c = {.group = &group};
    tsr__group_init(&group, pool, NULL);
    tsr__group_submit(&group, &c.tasks[0], add_link, &c);
    assert_int_equal(tsr__group_wait(&group, NULL), 0);
    assert_int_equal(c.length, 100);
    tsr__thread_pool_free(pool);
  }
}

/* Several threads use one pool; each its own group. */
static void wait_for_tree(void *context) {
  (void)grow(context, NULL);
}

static void test_threads_share_a_pool(void **state) {
  (void)state;
  tsr__thread_pool *pool = tsr__thread_pool_new(3);
  node roots[4];
  tsr__os_thread *threads[4];
  for (size_t i = 0; i < 4; i++) {
    roots[i] = (node){.pool = pool, .depth = 3};
    threads[i] = tsr__os_thread_start(wait_for_tree, &roots[i]);
    assert_non_null(threads[i]);
  }
  for (size_t i = 0; i < 4; i++) {
    tsr__os_thread_join(threads[i]);
    assert_int_equal(roots[i].leaves, BRANCHES * BRANCHES * BRANCHES);
  }
  tsr__thread_pool_free(pool);
}

/* ---- each, failures ---- */

typedef struct failing {
  atomic_int runs[TASKS];
  size_t fails_from, fails_each; /* index >= fails_from and divisible by fails_each */
} failing;

static int fail_some(void *context, size_t index, tsr_error *error) {
  failing *f = context;
  atomic_fetch_add(&f->runs[index], 1);
  if (index < f->fails_from || index % f->fails_each) return 0;
  return tsr__fail(error, TSR_ERROR_FORMAT, index, "number %zu", index);
}

static void test_the_first_failure_is_returned(void **state) {
  (void)state;
  for (size_t w = 0; w < WIDTHS; w++) {
    tsr__thread_pool *pool = tsr__thread_pool_new(widths[w]);
    failing f = {.fails_from = TASKS, .fails_each = 1};
    assert_int_equal(tsr__thread_pool_each(pool, NULL, TASKS, fail_some, &f, NULL), 0);
    for (size_t i = 0; i < TASKS; i++) assert_int_equal(f.runs[i], 1);
    f = (failing){.fails_from = 43, .fails_each = 11};
    tsr_error error = {0};
    assert_int_equal(tsr__thread_pool_each(pool, NULL, TASKS, fail_some, &f, &error),
                     TSR_ERROR_FORMAT);
    assert_int_equal(error.offset, 44);
    assert_string_equal(error.message, "number 44");
    for (size_t i = 0; i <= 44; i++) assert_int_equal(f.runs[i], 1);
    assert_int_equal(tsr__thread_pool_each(pool, NULL, 0, fail_some, &f, &error), 0);
    tsr__thread_pool_free(pool);
  }
}

typedef struct numbered {
  failing *f;
  size_t index;
} numbered;

static int fail_numbered(void *context, tsr_error *error) {
  numbered *n = context;
  return fail_some(n->f, n->index, error);
}

static void test_a_group_fails_like_its_first_failed_task(void **state) {
  (void)state;
  for (size_t w = 0; w < WIDTHS; w++) {
    tsr__thread_pool *pool = tsr__thread_pool_new(widths[w]);
    failing f = {.fails_from = 20, .fails_each = 7};
    static tsr__task tasks[TASKS];
    static numbered numbers[TASKS];
    tsr__group group;
    tsr__group_init(&group, pool, NULL);
    for (size_t i = 0; i < TASKS; i++) {
      numbers[i] = (numbered){&f, i};
      tsr__group_submit(&group, &tasks[i], fail_numbered, &numbers[i]);
    }
    tsr_error error = {0};
    assert_int_equal(tsr__group_wait(&group, &error), TSR_ERROR_FORMAT);
    assert_int_equal(error.offset, 21);
    for (size_t i = 0; i <= 21; i++) assert_int_equal(f.runs[i], 1);
    /* The group is as new. */
    f.fails_from = TASKS;
    tsr__group_submit(&group, &tasks[0], fail_numbered, &numbers[0]);
    assert_int_equal(tsr__group_wait(&group, &error), 0);
    tsr__thread_pool_free(pool);
  }
}

/* ---- stopping and watching ---- */

typedef struct watched {
  tsr__work work;
  uintptr_t owner;
  uint64_t calls, last_units, stop_at; /* of the hook */
  atomic_int runs;
} watched;

static bool watch(void *context, uint64_t done_units, uint64_t total_units) {
  watched *w = context;
  assert_int_equal(tsr__os_thread_self(), w->owner);
  assert_int_equal(total_units, TASKS * 100);
  assert_true(done_units >= w->last_units && done_units <= total_units);
  w->calls++;
  w->last_units = done_units;
  return !w->stop_at || done_units < w->stop_at;
}

static int advance(void *context, size_t index, tsr_error *error) {
  watched *w = context;
  (void)index;
  atomic_fetch_add(&w->runs, 1);
  for (int i = 0; i < 10; i++)
    if (!tsr__work_advance(&w->work, 10)) return tsr__work_stopped(error);
  return 0;
}

static void test_work_is_watched_by_its_owner(void **state) {
  (void)state;
  for (size_t i = 0; i < WIDTHS; i++) {
    tsr__thread_pool *pool = tsr__thread_pool_new(widths[i]);
    watched w = {.owner = tsr__os_thread_self()};
    tsr__work_init(&w.work, pool, watch, &w, TASKS * 100);
    assert_int_equal(tsr__thread_pool_each(pool, &w.work, TASKS, advance, &w, NULL), 0);
    assert_int_equal(w.runs, TASKS);
    assert_int_equal(w.work.done_units, TASKS * 100);
    if (widths[i] == 1) assert_int_equal(w.calls, 100);
    tsr__thread_pool_free(pool);
  }
}

static void test_the_hook_stops_work(void **state) {
  (void)state;
  for (size_t i = 0; i < WIDTHS; i++) {
    tsr__thread_pool *pool = tsr__thread_pool_new(widths[i]);
    watched w = {.owner = tsr__os_thread_self(), .stop_at = 1};
    tsr_error error = {0};
    tsr__work_init(&w.work, pool, watch, &w, TASKS * 100);
    int status = tsr__thread_pool_each(pool, &w.work, TASKS, advance, &w, &error);
    /* Other threads may have done everything before the owner got to call the hook. */
    assert_true(status == TSR_ERROR_IO || w.runs == TASKS);
    if (status) assert_string_equal(error.message, "stopped");
    if (widths[i] == 1) assert_int_equal(w.runs, 5);
    tsr__thread_pool_free(pool);
  }
}

/* Work that goes on until the hook, which only the waiting owner calls, stops it. */
static bool stop_at_once(void *context, uint64_t done_units, uint64_t total_units) {
  (void)context, (void)done_units, (void)total_units;
  return false;
}

static int advance_until_stopped(void *context, tsr_error *error) {
  while (tsr__work_advance(context, 1)) continue;
  return tsr__work_stopped(error);
}

static void test_the_hook_is_called_while_its_owner_waits(void **state) {
  (void)state;
  for (size_t i = 0; i < WIDTHS; i++) {
    tsr__thread_pool *pool = tsr__thread_pool_new(widths[i]);
    tsr__work work;
    tsr__task tasks[4];
    tsr__group group;
    tsr_error error = {0};
    tsr__work_init(&work, pool, stop_at_once, NULL, 1000);
    tsr__group_init(&group, pool, &work);
    for (size_t k = 0; k < 4; k++)
      tsr__group_submit(&group, &tasks[k], advance_until_stopped, &work);
    assert_int_equal(tsr__group_wait(&group, &error), TSR_ERROR_IO);
    assert_string_equal(error.message, "stopped");
    tsr__thread_pool_free(pool);
  }
}

static void test_cancelled_tasks_are_skipped(void **state) {
  (void)state;
  for (size_t i = 0; i < WIDTHS; i++) {
    tsr__thread_pool *pool = tsr__thread_pool_new(widths[i]);
    watched w = {.owner = tsr__os_thread_self()};
    tsr_error error = {0};
    tsr__work_init(&w.work, pool, NULL, NULL, 0);
    tsr__work_cancel(&w.work);
    assert_int_equal(tsr__thread_pool_each(pool, &w.work, TASKS, advance, &w, &error),
                     TSR_ERROR_IO);
    assert_int_equal(w.runs, 0);
    tsr__task task;
    tsr__group group;
    tsr__group_init(&group, pool, &w.work);
    tsr__group_submit(&group, &task, count_up, &w.runs);
    assert_int_equal(tsr__group_wait(&group, &error), TSR_ERROR_IO);
    assert_int_equal(w.runs, 0);
    tsr__thread_pool_free(pool);
  }
}

static void test_no_work_never_stops(void **state) {
  (void)state;
  assert_true(tsr__work_advance(NULL, 1));
  assert_false(tsr__work_is_cancelled(NULL));
}

/* ---- idle ---- */

static uint64_t time_ns(clockid_t clock) {
  struct timespec now;
  assert_int_equal(clock_gettime(clock, &now), 0);
  return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static int count_index(void *context, size_t index, tsr_error *error) {
  (void)index;
  return count_up(context, error);
}

/* Threads look out for work for a moment, whatever the width, then sleep; and they wake up again. */
static void test_idle_threads_sleep(void **state) {
  (void)state;
  for (unsigned i = 0; i < WIDTHS; i++) {
    tsr__thread_pool *pool = tsr__thread_pool_new(widths[i]);
    atomic_int runs = 0;
    for (int k = 1; k <= 3; k++) {
      assert_int_equal(tsr__thread_pool_each(pool, NULL, TASKS, count_index, &runs, NULL), 0);
      assert_int_equal(runs, k * TASKS);
      uint64_t before_ns = time_ns(CLOCK_PROCESS_CPUTIME_ID);
      const struct timespec pause = {.tv_nsec = 50000000};
      (void)nanosleep(&pause, NULL);
      assert_true(time_ns(CLOCK_PROCESS_CPUTIME_ID) - before_ns < 25000000);
    }
    tsr__thread_pool_free(pool);
  }
}

/* ---- without threads ---- */

static int note_thread(void *context, size_t index, tsr_error *error) {
  uintptr_t *threads = context;
  (void)error;
  threads[index] = tsr__os_thread_self();
  return 0;
}

static void check_runs_here(tsr__thread_pool *pool) {
  uintptr_t threads[TASKS] = {0};
  assert_int_equal(tsr__thread_pool_each(pool, NULL, TASKS, note_thread, threads, NULL), 0);
  for (size_t i = 0; i < TASKS; i++) assert_int_equal(threads[i], tsr__os_thread_self());
  node root = {.pool = pool, .depth = DEPTH};
  assert_int_equal(grow(&root, NULL), 0);
  assert_int_equal(root.leaves, BRANCHES * BRANCHES * BRANCHES * BRANCHES);
}

static void test_no_thread_can_be_started(void **state) {
  (void)state;
  threads_are_refused = true;
  tsr__thread_pool *pool = tsr__thread_pool_new(8);
  check_runs_here(pool);
  tsr__thread_pool_free(pool);
  threads_are_refused = false;
  check_runs_here(NULL);
}

static void test_a_fork_has_no_threads(void **state) {
  (void)state;
  tsr__thread_pool *pool = tsr__thread_pool_new(4);
  node root = {.pool = pool, .depth = DEPTH};
  assert_int_equal(grow(&root, NULL), 0);
  pid_t child = fork();
  if (!child) {
    bool is_narrow = tsr__thread_pool_width(pool) == 1;
    root.leaves = 0;
    bool is_right =
        grow(&root, NULL) == 0 && root.leaves == BRANCHES * BRANCHES * BRANCHES * BRANCHES;
    tsr__thread_pool_free(pool);
    _exit(is_narrow && is_right ? 0 : 1);
  }
  int status = -1;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  tsr__thread_pool_free(pool);
}

/* ---- once ---- */

typedef struct shared {
  tsr__once once;
  tsr__thread_pool *pool;
  int failures_left;
  atomic_int makes;
  unsigned value;
} shared;

static int make_value(void *context, tsr_error *error) {
  shared *s = context;
  atomic_fetch_add(&s->makes, 1);
  if (s->failures_left-- > 0) return tsr__fail_memory(error);
  node root = {.pool = s->pool, .depth = 3};
  int status = grow(&root, error);
  s->value = root.leaves;
  return status;
}

static int need_value(void *context, size_t index, tsr_error *error) {
  shared *s = context;
  (void)index;
  int status = tsr__once_run(&s->once, make_value, s, error);
  if (!status) assert_int_equal(s->value, BRANCHES * BRANCHES * BRANCHES);
  return status;
}

static void test_a_value_is_made_once(void **state) {
  (void)state;
  for (size_t w = 0; w < WIDTHS; w++) {
    shared s = {.pool = tsr__thread_pool_new(widths[w]), .failures_left = 1};
    tsr_error error = {0};
    assert_true(tsr__once_init(&s.once));
    assert_int_equal(tsr__once_run(&s.once, make_value, &s, &error), TSR_ERROR_MEMORY);
    assert_false(tsr__once_is_ready(&s.once));
    assert_int_equal(tsr__thread_pool_each(s.pool, NULL, TASKS, need_value, &s, &error), 0);
    assert_true(tsr__once_is_ready(&s.once));
    assert_int_equal(s.makes, 2);
    tsr__once_release(&s.once);
    tsr__thread_pool_free(s.pool);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_width),
      cmocka_unit_test(test_every_task_runs_once),
      cmocka_unit_test(test_tasks_wait_for_tasks),
      cmocka_unit_test(test_tasks_add_to_their_group),
      cmocka_unit_test(test_threads_share_a_pool),
      cmocka_unit_test(test_the_first_failure_is_returned),
      cmocka_unit_test(test_a_group_fails_like_its_first_failed_task),
      cmocka_unit_test(test_work_is_watched_by_its_owner),
      cmocka_unit_test(test_the_hook_stops_work),
      cmocka_unit_test(test_the_hook_is_called_while_its_owner_waits),
      cmocka_unit_test(test_cancelled_tasks_are_skipped),
      cmocka_unit_test(test_no_work_never_stops),
      cmocka_unit_test(test_no_thread_can_be_started),
      cmocka_unit_test(test_idle_threads_sleep),
      cmocka_unit_test(test_a_fork_has_no_threads),
      cmocka_unit_test(test_a_value_is_made_once)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
