/* os_threads_windows.c - pages, threads, processors and processes: the second half of os.h, through Windows.
 *
 * Mutexes and conditions are the system's slim ones, in os.h's opaque storage; making one cannot fail. */
#include "base/os.h"

#include <assert.h>
#include <string.h>
#include <windows.h>

#include "base/memory.h"

static_assert(sizeof(SRWLOCK) <= sizeof(tsr__os_mutex), "room for a mutex");
static_assert(sizeof(CONDITION_VARIABLE) <= sizeof(tsr__os_condition), "room for a condition");

/* ---- memory ---- */

/* Nothing here backs pages ahead of time without changing them. */
void tsr__os_populate(void *data, size_t size_bytes) {
  (void)data, (void)size_bytes;
}

uint64_t tsr__os_memory_bytes(void) {
  MEMORYSTATUSEX memory = {.dwLength = sizeof memory};
  return GlobalMemoryStatusEx(&memory) ? memory.ullTotalPhys : 0;
}

uint64_t tsr__os_time_ns(void) {
  LARGE_INTEGER now, per_second;
  if (!QueryPerformanceFrequency(&per_second) || !QueryPerformanceCounter(&now)) return 0;
  uint64_t ticks = (uint64_t)now.QuadPart, rate = (uint64_t)per_second.QuadPart;
  return ticks / rate * 1000000000 + ticks % rate * 1000000000 / rate;
}

/* Sleeps are whole milliseconds, and 0 runs other threads that are ready. */
void tsr__os_rest(uint64_t time_ns) {
  Sleep((DWORD)((time_ns + 999999) / 1000000));
}

void *tsr__os_reserve(size_t size_bytes) {
  return VirtualAlloc(NULL, size_bytes, MEM_RESERVE, PAGE_NOACCESS);
}

void tsr__os_unreserve(void *base, size_t size_bytes) {
  (void)size_bytes;
  if (base) (void)VirtualFree(base, 0, MEM_RELEASE);
}

bool tsr__os_commit(void *base, size_t offset_bytes, size_t size_bytes) {
  assert(base && size_bytes);
  return VirtualAlloc((char *)base + offset_bytes, size_bytes, MEM_COMMIT, PAGE_READWRITE) != NULL;
}

void tsr__os_decommit(void *base, size_t offset_bytes, size_t size_bytes) {
  assert(base && size_bytes);
  (void)VirtualFree((char *)base + offset_bytes, size_bytes, MEM_DECOMMIT);
}

/* Pages that are committed again are filled with zeros. If the system has no memory for them, which it just had, the bytes
 * are cleared instead. */
void tsr__os_forget(void *base, size_t offset_bytes, size_t size_bytes) {
  assert(base && size_bytes);
  char *first = (char *)base + offset_bytes;
  memset(first, 0, size_bytes);
  (void)VirtualAlloc(first, size_bytes, MEM_RESET, PAGE_READWRITE);
}

/* ---- processors and processes ---- */

unsigned tsr__os_processor_count(void) {
  DWORD_PTR own = 0, all = 0;
  unsigned count = 0;
  if (GetProcessAffinityMask(GetCurrentProcess(), &own, &all))
    for (; own; own &= own - 1) count++;
  return count ? count : 1;
}

uint64_t tsr__os_process_id(void) {
  return GetCurrentProcessId();
}

/* ---- threads ---- */

struct tsr__os_thread {
  HANDLE handle;
  void (*run)(void *context);
  void *context;
};

static DWORD WINAPI run_thread(void *argument) {
  tsr__os_thread *thread = argument;
  thread->run(thread->context);
  return 0;
}

tsr__os_thread *tsr__os_thread_start(void (*run)(void *context), void *context) {
  assert(run);
  tsr__os_thread *thread = TSR__NEW(tsr__os_thread);
  if (!thread) return NULL;
  thread->run = run;
  thread->context = context;
  thread->handle = CreateThread(NULL, 0, run_thread, thread, 0, NULL);
  if (thread->handle) return thread;
  tsr__free(thread);
  return NULL;
}

void tsr__os_thread_join(tsr__os_thread *thread) {
  DWORD end = WaitForSingleObject(thread->handle, INFINITE);
  assert(end == WAIT_OBJECT_0);
  (void)end;
  (void)CloseHandle(thread->handle);
  tsr__free(thread);
}

/* There is no fork. */
void tsr__os_thread_forget(tsr__os_thread *thread) {
  tsr__free(thread);
}

uintptr_t tsr__os_thread_self(void) {
  return GetCurrentThreadId();
}

/* ---- libraries ---- */

void *tsr__os_library_open(const char *name) {
  return (void *)LoadLibraryA(name);
}

void *tsr__os_library_find(void *library, const char *name) {
  FARPROC found = GetProcAddress(library ? (HMODULE)library : GetModuleHandleW(NULL), name);
  void *address;
  memcpy(&address, &found, sizeof address); /* no cast from functions to data */
  return address;
}

/* ---- mutexes and conditions ---- */

static SRWLOCK *mutex_of(tsr__os_mutex *mutex) {
  return (SRWLOCK *)(void *)mutex;
}

static CONDITION_VARIABLE *condition_of(tsr__os_condition *condition) {
  return (CONDITION_VARIABLE *)(void *)condition;
}

bool tsr__os_mutex_init(tsr__os_mutex *mutex) {
  InitializeSRWLock(mutex_of(mutex));
  return true;
}

void tsr__os_mutex_release(tsr__os_mutex *mutex) {
  (void)mutex;
}

void tsr__os_mutex_lock(tsr__os_mutex *mutex) {
  AcquireSRWLockExclusive(mutex_of(mutex));
}

void tsr__os_mutex_unlock(tsr__os_mutex *mutex) {
  ReleaseSRWLockExclusive(mutex_of(mutex));
}

bool tsr__os_condition_init(tsr__os_condition *condition) {
  InitializeConditionVariable(condition_of(condition));
  return true;
}

void tsr__os_condition_release(tsr__os_condition *condition) {
  (void)condition;
}

void tsr__os_condition_wait(tsr__os_condition *condition, tsr__os_mutex *mutex) {
  (void)SleepConditionVariableSRW(condition_of(condition), mutex_of(mutex), INFINITE, 0);
}

void tsr__os_condition_wake_one(tsr__os_condition *condition) {
  WakeConditionVariable(condition_of(condition));
}

void tsr__os_condition_wake_all(tsr__os_condition *condition) {
  WakeAllConditionVariable(condition_of(condition));
}
