/* os_threads_posix.c - pages, threads and processes: the second half of os.h, on POSIX threads. What Linux and macOS do
 * differently is in os_linux.c and os_macos.c.
 *
 * Mutexes and conditions are stored inside the caller's struct, in os.h's opaque storage, so that
 * making one allocates nothing. A static assertion checks that the storage is large enough.
 *
 * Threads start with all signals blocked except those that report an error of the thread itself.
 * Signals meant for the process, Ctrl-C for example, are then delivered to the program's own
 * threads, which expect them. */
#define _GNU_SOURCE /* glibc: a mutex that spins, mmap's flags */
#include <assert.h>
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/os.h"

static_assert(sizeof(pthread_mutex_t) <= sizeof(tsr__os_mutex), "room for a mutex");
static_assert(_Alignof(pthread_mutex_t) <= _Alignof(tsr__os_mutex), "alignment of a mutex");
static_assert(sizeof(pthread_cond_t) <= sizeof(tsr__os_condition), "room for a condition");
static_assert(_Alignof(pthread_cond_t) <= _Alignof(tsr__os_condition), "alignment of a condition");
static_assert(sizeof(pthread_t) <= sizeof(uintptr_t), "a thread's identity fits");

/* ---- memory ---- */

uint64_t tsr__os_memory_bytes(void) {
  long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
  return pages > 0 && page_bytes > 0 ? (uint64_t)pages * (uint64_t)page_bytes : 0;
}

uint64_t tsr__os_time_ns(void) {
  struct timespec now;
  if (clock_gettime(CLOCK_MONOTONIC, &now) != 0) return 0;
  return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

void tsr__os_rest(uint64_t time_ns) {
  struct timespec time = {.tv_sec = (time_t)(time_ns / 1000000000),
                          .tv_nsec = (long)(time_ns % 1000000000)};
  if (time_ns)
    (void)nanosleep(&time, NULL); /* a signal ends it early, and the caller's loop goes on */
  else
    (void)sched_yield();
}

void *tsr__os_reserve(size_t size_bytes) {
  void *base =
      mmap(NULL, size_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return base == MAP_FAILED ? NULL : base;
}

void tsr__os_unreserve(void *base, size_t size_bytes) {
  if (base) (void)munmap(base, size_bytes);
}

bool tsr__os_commit(void *base, size_t offset_bytes, size_t size_bytes) {
  assert(base && size_bytes);
  return mprotect((char *)base + offset_bytes, size_bytes, PROT_READ | PROT_WRITE) == 0;
}

/* New pages in place of the old ones give these back at once, and read as zeros afterwards. */
void tsr__os_decommit(void *base, size_t offset_bytes, size_t size_bytes) {
  assert(base && size_bytes);
  (void)mmap((char *)base + offset_bytes, size_bytes, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

/* ---- processes ---- */

uint64_t tsr__os_process_id(void) {
  return (uint64_t)getpid();
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

static void block_signals(sigset_t *before) {
  static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT};
  sigset_t blocked;
  (void)sigfillset(&blocked);
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) (void)sigdelset(&blocked, faults[i]);
  (void)pthread_sigmask(SIG_SETMASK, &blocked, before);
}

tsr__os_thread *tsr__os_thread_start(void (*run)(void *context), void *context) {
  assert(run);
  tsr__os_thread *thread = TSR__NEW(tsr__os_thread);
  if (!thread) return NULL;
  thread->run = run;
  thread->context = context;
  sigset_t before;
  block_signals(&before); /* a new thread inherits the mask of the thread that starts it */
  int failure = pthread_create(&thread->id, NULL, run_thread, thread);
  (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (!failure) return thread;
  tsr__free(thread);
  return NULL;
}

void tsr__os_thread_join(tsr__os_thread *thread) {
  int failure = pthread_join(thread->id, NULL);
  assert(!failure);
  (void)failure;
  tsr__free(thread);
}

void tsr__os_thread_forget(tsr__os_thread *thread) {
  tsr__free(thread);
}

uintptr_t tsr__os_thread_self(void) {
  return (uintptr_t)pthread_self();
}

/* ---- libraries ---- */

void *tsr__os_library_open(const char *name) {
  return dlopen(name, RTLD_NOW | RTLD_LOCAL);
}

void *tsr__os_library_find(void *library, const char *name) {
  return dlsym(library, name);
}

/* ---- mutexes and conditions ----
 *
 * The calls below fail only when they are misused, which debug builds assert. */

static pthread_mutex_t *mutex_of(tsr__os_mutex *mutex) {
  return (pthread_mutex_t *)(void *)mutex;
}

static pthread_cond_t *condition_of(tsr__os_condition *condition) {
  return (pthread_cond_t *)(void *)condition;
}

static void must_succeed(int failure) {
  assert(!failure);
  (void)failure;
}

/* Mutexes are held for moments: a thread that finds one locked had better try again before it sleeps. */
bool tsr__os_mutex_init(tsr__os_mutex *mutex) {
#ifdef PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP
  pthread_mutexattr_t kind;
  if (pthread_mutexattr_init(&kind) != 0) return false;
  (void)pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_ADAPTIVE_NP);
  bool is_made = pthread_mutex_init(mutex_of(mutex), &kind) == 0;
  (void)pthread_mutexattr_destroy(&kind);
  return is_made;
#else
  return pthread_mutex_init(mutex_of(mutex), NULL) == 0;
#endif
}

void tsr__os_mutex_release(tsr__os_mutex *mutex) {
  must_succeed(pthread_mutex_destroy(mutex_of(mutex)));
}

void tsr__os_mutex_lock(tsr__os_mutex *mutex) {
  must_succeed(pthread_mutex_lock(mutex_of(mutex)));
}

void tsr__os_mutex_unlock(tsr__os_mutex *mutex) {
  must_succeed(pthread_mutex_unlock(mutex_of(mutex)));
}

bool tsr__os_condition_init(tsr__os_condition *condition) {
  return pthread_cond_init(condition_of(condition), NULL) == 0;
}

void tsr__os_condition_release(tsr__os_condition *condition) {
  must_succeed(pthread_cond_destroy(condition_of(condition)));
}

void tsr__os_condition_wait(tsr__os_condition *condition, tsr__os_mutex *mutex) {
  must_succeed(pthread_cond_wait(condition_of(condition), mutex_of(mutex)));
}

void tsr__os_condition_wake_one(tsr__os_condition *condition) {
  must_succeed(pthread_cond_signal(condition_of(condition)));
}

void tsr__os_condition_wake_all(tsr__os_condition *condition) {
  must_succeed(pthread_cond_broadcast(condition_of(condition)));
}
