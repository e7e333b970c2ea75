/* copies.c - see copies.h.
 *
 * Invariants, while `mutex` is held: `queue` is a ring of copies that have been started and not yet made, the oldest at
 * `first`; is_open[n] if and only if n is among them or is being made. The thread sleeps when the ring is empty. */
#include "exec/copies.h"

#include <assert.h>
#include <string.h>

#include "base/memory.h"
#include "base/os.h"

struct tsr__copier {
  tsr__os_mutex mutex;
  tsr__os_condition started, made;
  tsr__os_thread *thread; /* NULL: none could be started */
  tsr__copy *copies;      /* by number */
  uint32_t *queue;        /* numbers */
  bool *is_open;          /* by number */
  uint32_t most, first, count;
  int file;
  bool is_ending;
  int status; /* of the first copy that failed */
  tsr_error error;
  tsr__copy_account account;
};

static int make_copy(const tsr__copier *c, const tsr__copy *copy, tsr_error *error) {
  assert(copy->to || copy->from);
  if (copy->to && copy->from) memcpy(copy->to, copy->from, copy->size_bytes);
  if (!copy->to)
    return tsr__os_write_at(c->file, copy->offset_bytes, copy->from, copy->size_bytes, error);
  if (!copy->from)
    return tsr__os_read_exactly(c->file, copy->offset_bytes, copy->to, copy->size_bytes, error);
  return 0;
}

/* Make a copy while nobody holds the mutex. */
static void make(tsr__copier *c, uint32_t number) {
  tsr_error error = {0};
  uint64_t before_ns = tsr__os_time_ns();
  int status = make_copy(c, &c->copies[number], &error);
  uint64_t ns = tsr__os_time_ns() - before_ns;
  tsr__os_mutex_lock(&c->mutex);
  c->account.size_bytes += c->copies[number].size_bytes;
  c->account.copied_ns += ns;
  if (status && !c->status) {
    c->status = status;
    c->error = error;
  }
  c->is_open[number] = false;
  tsr__os_condition_wake_all(&c->made);
  tsr__os_mutex_unlock(&c->mutex);
}

static void run(void *context) {
  tsr__copier *c = context;
  for (;;) {
    tsr__os_mutex_lock(&c->mutex);
    while (!c->count && !c->is_ending) tsr__os_condition_wait(&c->started, &c->mutex);
    if (!c->count) break;
    uint32_t number = c->queue[c->first];
    c->first = (c->first + 1) % c->most;
    c->count--;
    tsr__os_mutex_unlock(&c->mutex);
    make(c, number);
  }
  tsr__os_mutex_unlock(&c->mutex);
}

tsr__copier *tsr__copier_new(uint32_t most, int file) {
  tsr__copier *c = TSR__NEW(tsr__copier);
  assert(most);
  if (!c) return NULL;
  c->most = most;
  c->file = file;
  c->copies = TSR__NEW_ARRAY(tsr__copy, most);
  c->queue = TSR__NEW_ARRAY(uint32_t, most);
  c->is_open = TSR__NEW_ARRAY(bool, most);
  bool has_mutex = tsr__os_mutex_init(&c->mutex);
  bool has_started = has_mutex && tsr__os_condition_init(&c->started);
  bool has_made = has_started && tsr__os_condition_init(&c->made);
  if (c->copies && c->queue && c->is_open && has_made) {
    c->thread = tsr__os_thread_start(run, c);
    return c;
  }
  if (has_made) tsr__os_condition_release(&c->made);
  if (has_started) tsr__os_condition_release(&c->started);
  if (has_mutex) tsr__os_mutex_release(&c->mutex);
  tsr__free(c->copies);
  tsr__free(c->queue);
  tsr__free(c->is_open);
  tsr__free(c);
  return NULL;
}

void tsr__copier_start(tsr__copier *c, uint32_t number, const tsr__copy *copy) {
  assert(number < c->most);
  tsr__os_mutex_lock(&c->mutex);
  assert(!c->is_open[number] && c->count < c->most);
  c->copies[number] = *copy;
  c->is_open[number] = true;
  if (c->thread) {
    c->queue[(c->first + c->count++) % c->most] = number;
    tsr__os_condition_wake_one(&c->started);
  }
  tsr__os_mutex_unlock(&c->mutex);
  if (!c->thread) make(c, number);
}

int tsr__copier_wait(tsr__copier *c, uint32_t number, tsr_error *error) {
  assert(number < c->most);
  tsr__os_mutex_lock(&c->mutex);
  if (c->is_open[number]) {
    uint64_t before_ns = tsr__os_time_ns();
    while (c->is_open[number]) tsr__os_condition_wait(&c->made, &c->mutex);
    c->account.waited_ns += tsr__os_time_ns() - before_ns;
  }
  int status = c->status;
  if (status && error) *error = c->error;
  tsr__os_mutex_unlock(&c->mutex);
  return status;
}

void tsr__copier_stop(tsr__copier *c) {
  if (!c || !c->thread) return;
  tsr__os_mutex_lock(&c->mutex);
  c->is_ending = true;
  tsr__os_condition_wake_one(&c->started);
  tsr__os_mutex_unlock(&c->mutex);
  tsr__os_thread_join(c->thread);
  c->thread = NULL;
}

tsr__copy_account tsr__copier_account(const tsr__copier *c) {
  assert(!c->count);
  return c->account;
}

void tsr__copier_free(tsr__copier *c) {
  if (!c) return;
  tsr__copier_stop(c);
  tsr__os_condition_release(&c->made);
  tsr__os_condition_release(&c->started);
  tsr__os_mutex_release(&c->mutex);
  tsr__free(c->copies);
  tsr__free(c->queue);
  tsr__free(c->is_open);
  tsr__free(c);
}
