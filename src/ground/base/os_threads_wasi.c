/* os_threads_wasi.c - memory, processors and threads for WebAssembly, where os_posix.c has os.h's files and this file the rest: one thread,
 * a flat memory that only grows, no libraries to load.
 *
 * A thread can't be started, so everything runs in the calling one, and nobody else holds a mutex. Waiting on a
 * condition would wait for ever: pools and readers without threads never do.
 *
 * Addresses can't be reserved without memory. What a reservation holds is therefore memory from the start.
 */
#define _GNU_SOURCE
#include "base/os_posix.h"

#include <assert.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"
#include "base/os.h"

/* ---- files: what os_posix.c leaves to each system ---- */

int tsr__posix_reserve(int fd, int64_t size) {
  return posix_fallocate(fd, 0, size);
}

/* ---- memory ---- */

void tsr__os_populate(void *data, size_t size_bytes) {
  (void)data, (void)size_bytes;
}

/* Of the addresses that there are; the browser may have fewer, which it doesn't say. */
uint64_t tsr__os_memory_bytes(void) {
  return (uint64_t)UINT32_MAX + 1;
}

uint64_t tsr__os_time_ns(void) {
  struct timespec now;
  if (clock_gettime(CLOCK_MONOTONIC, &now) != 0) return 0;
  return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* There is one thread. */
void tsr__os_rest(uint64_t time_ns) {
  (void)time_ns;
}

void *tsr__os_reserve(size_t size_bytes) {
  return tsr__calloc(size_bytes, 1);
}

void tsr__os_unreserve(void *base, size_t size_bytes) {
  (void)size_bytes;
  tsr__free(base);
}

bool tsr__os_commit(void *base, size_t offset_bytes, size_t size_bytes) {
  assert(base && size_bytes);
  memset((char *)base + offset_bytes, 0, size_bytes);
  return true;
}

void tsr__os_decommit(void *base, size_t offset_bytes, size_t size_bytes) {
  (void)base, (void)offset_bytes, (void)size_bytes;
}

void tsr__os_forget(void *base, size_t offset_bytes, size_t size_bytes) {
  assert(base && size_bytes);
  memset((char *)base + offset_bytes, 0, size_bytes);
}

/* ---- processors and processes ---- */

unsigned tsr__os_processor_count(void) {
  return 1;
}

uint64_t tsr__os_process_id(void) {
  return 1;
}

/* ---- threads ---- */

tsr__os_thread *tsr__os_thread_start(void (*run)(void *context), void *context) {
  (void)run, (void)context;
  return NULL;
}

void tsr__os_thread_join(tsr__os_thread *thread) {
  (void)thread;
}

void tsr__os_thread_forget(tsr__os_thread *thread) {
  (void)thread;
}

uintptr_t tsr__os_thread_self(void) {
  return 1;
}

/* ---- libraries ---- */

void *tsr__os_library_open(const char *name) {
  (void)name;
  return NULL;
}

void *tsr__os_library_find(void *library, const char *name) {
  (void)library, (void)name;
  return NULL;
}

/* ---- mutexes and conditions ---- */

bool tsr__os_mutex_init(tsr__os_mutex *mutex) {
  (void)mutex;
  return true;
}

void tsr__os_mutex_release(tsr__os_mutex *mutex) {
  (void)mutex;
}

void tsr__os_mutex_lock(tsr__os_mutex *mutex) {
  (void)mutex;
}

void tsr__os_mutex_unlock(tsr__os_mutex *mutex) {
  (void)mutex;
}

bool tsr__os_condition_init(tsr__os_condition *condition) {
  (void)condition;
  return true;
}

void tsr__os_condition_release(tsr__os_condition *condition) {
  (void)condition;
}

void tsr__os_condition_wait(tsr__os_condition *condition, tsr__os_mutex *mutex) {
  (void)condition, (void)mutex;
  abort(); /* nobody could wake it */
}

void tsr__os_condition_wake_one(tsr__os_condition *condition) {
  (void)condition;
}

void tsr__os_condition_wake_all(tsr__os_condition *condition) {
  (void)condition;
}
