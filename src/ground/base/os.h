/* os.h - the only files that call the operating system are os_*.c, which implement this header; the rest of the library is
 * portable C. os_files.c is for all systems; meson.build chooses the others: os_posix.c (files) and os_threads_posix.c (from
 * "memory" on) with os_linux.c or os_macos.c, or os_windows.c and os_threads_windows.c.
 */
#ifndef TSR_BASE_OS_H
#define TSR_BASE_OS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* ---- files ---- */

/* Open the file `path` for reading; "-" is standard input, which tsr__os_close leaves open.
 * `*size_bytes` is the file's size, or 0 if it has none (a pipe). A directory is an error. Fails
 * with TSR_ERROR_IO. */
int tsr__os_open(const char *path, int *handle, uint64_t *size_bytes, tsr_error *error);
/* The same for a file next to the input. Anything but a regular file is an error, and opening a
 * pipe does not block. */
int tsr__os_open_regular(const char *path, int *handle, tsr_error *error);
/* The same, with the file's size. */
int tsr__os_open_sized(const char *path, int *handle, uint64_t *size_bytes, tsr_error *error);
/* Read up to `size` bytes from `offset` on into `buffer`, which moves nothing for other readers of the file.
 * Returns how many, 0 at the end, or a negative tsr_status. Any thread. */
ptrdiff_t tsr__os_read_at(int handle, uint64_t offset, void *buffer, size_t size, tsr_error *error);
/* The same for exactly `size` bytes. Fails with TSR_ERROR_FORMAT besides, if the file ends before. */
int tsr__os_read_exactly(int handle, uint64_t offset, void *buffer, size_t size, tsr_error *error);
/* Make a file of `size_bytes` in a folder, for reading and writing, that goes when it is closed or the process ends. All
 * of it is reserved on the disk: writing to it later does not fill the disk. Fails with TSR_ERROR_IO, or with
 * TSR_ERROR_WRITE if the disk has no room. */
int tsr__os_scratch_file(const char *folder, uint64_t size_bytes, int *handle, tsr_error *error);
/* Write exactly `size` bytes from `offset` on. Fails with TSR_ERROR_WRITE. Any thread. */
int tsr__os_write_at(int handle, uint64_t offset, const void *data, size_t size, tsr_error *error);
/* Whether there is something at `path`; whether it is a folder. */
bool tsr__os_is_there(const char *path);
bool tsr__os_is_folder(const char *path);
/* Whether a path means the same in every folder. */
bool tsr__os_is_absolute(const char *path);
/* When a file was last written, and when anything about it changed last, its name included; in nanoseconds since 1970. False if there
 * is no such regular file. */
bool tsr__os_changed(const char *path, int64_t *written_ns, int64_t *changed_ns);
/* What tsr__os_list finds: a name in the folder; for tsr__os_match a whole path. False stops. */
typedef bool tsr__os_visit(void *context, const char *name, bool is_folder);
/* Call `visit` for everything in a folder but links to folders, in no particular order. Fails with TSR_ERROR_IO or TSR_ERROR_MEMORY. */
int tsr__os_list(const char *folder, tsr__os_visit *visit, void *context, tsr_error *error);
/* Call `visit` for every path that a pattern of the shell matches, in order. Fails with TSR_ERROR_IO or TSR_ERROR_MEMORY. */
int tsr__os_match(const char *pattern, tsr__os_visit *visit, void *context, tsr_error *error);
/* Read up to `size` bytes into `buffer`. Returns how many, 0 at the end, or a negative tsr_status. */
ptrdiff_t tsr__os_read(int handle, void *buffer, size_t size, tsr_error *error);
void tsr__os_close(int handle);

/* ---- memory ---- */

/* Have the system back the whole pages among these bytes now, not when they are first written to:
 * that saves the thread which will write them from stopping at each. No byte changes, so other threads
 * may use the memory at the same time, or have freed it; addresses that are not mapped are skipped.
 * Does nothing on systems that cannot. */
void tsr__os_populate(void *data, size_t size_bytes);

/* Reserve addresses: no memory is taken, and touching it is a fault. NULL if there is no room; else
 * released with tsr__os_unreserve. Sizes and offsets are multiples of 2 MiB in these, but for the last. */
void *tsr__os_reserve(size_t size_bytes);
void tsr__os_unreserve(void *base, size_t size_bytes);
/* Make part of a reservation usable, filled with zeros; pages are taken when they are touched. False
 * if the system refuses. */
bool tsr__os_commit(void *base, size_t offset_bytes, size_t size_bytes);
/* Give the memory back to the system; the addresses stay reserved. */
void tsr__os_decommit(void *base, size_t offset_bytes, size_t size_bytes);
/* Give the pages of usable memory back to the system, which may be touched again and is then filled with zeros. Of any
 * size, in multiples of 64 KiB. */
void tsr__os_forget(void *base, size_t offset_bytes, size_t size_bytes);

/* The machine's memory; 0 if that is unknown. What a process may take of it is in machine.h. */
uint64_t tsr__os_memory_bytes(void);

/* Nanoseconds of a clock that only goes forward, from some moment on; 0 if the system has no such clock. */
uint64_t tsr__os_time_ns(void);
/* Tell the processor that the thread waits in a loop, for some tens of nanoseconds. */
static inline void tsr__os_pause(void) {
#if defined(__GNUC__) && defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__GNUC__) && defined(__aarch64__)
  __asm__ volatile("isb");
#endif
}

/* Let other threads run: for `time_ns` or a little longer, or, with 0, until the system has run those that are ready. */
void tsr__os_rest(uint64_t time_ns);

/* ---- processors and processes ---- */

/* How many processors this process may run on (its affinity mask), at least 1. A container's quota
 * of processor time is not considered. */
unsigned tsr__os_processor_count(void);

/* Differs between a process and its fork: threads exist only in the process that started them. */
uint64_t tsr__os_process_id(void);

/* ---- threads ---- */

typedef struct tsr__os_thread tsr__os_thread;

/* Run `run(context)` in a new thread, which must be joined once. The thread receives no signals
 * except its own faults. NULL if no thread can be started or memory has run out. */
tsr__os_thread *tsr__os_thread_start(void (*run)(void *context), void *context);
/* Wait until the thread has ended, then release it. */
void tsr__os_thread_join(tsr__os_thread *thread);
/* Release the record of a thread of the parent process, in a fork, where it does not run. */
void tsr__os_thread_forget(tsr__os_thread *thread);
/* Identifies the calling thread among those that run; never 0. */
uintptr_t tsr__os_thread_self(void);

/* ---- libraries ---- */

/* Load a shared library by the name that the system looks for, such as "libm.so.6"; NULL if it is absent.
 * It stays until the process ends, because libraries may not survive being unloaded. */
void *tsr__os_library_open(const char *name);
/* A function of it, or of a library that it needs; with NULL, of the program and what was loaded with it. NULL if it
 * is absent. */
void *tsr__os_library_find(void *library, const char *name);

/* ---- mutexes and conditions ----
 *
 * Values that live inside the caller's struct and must not be copied or moved once initialised.
 * Not recursive. What a thread wrote before unlocking is visible to the thread that locks next. */

typedef union tsr__os_mutex {
  long long align_integer;
  void *align_pointer;
  unsigned char storage[64];
} tsr__os_mutex;

typedef union tsr__os_condition {
  long long align_integer;
  void *align_pointer;
  unsigned char storage[64];
} tsr__os_condition;

/* False if the system has no resources left. */
bool tsr__os_mutex_init(tsr__os_mutex *mutex);
/* The mutex must be unlocked. */
void tsr__os_mutex_release(tsr__os_mutex *mutex);
void tsr__os_mutex_lock(tsr__os_mutex *mutex);
void tsr__os_mutex_unlock(tsr__os_mutex *mutex);

/* False if the system has no resources left. */
bool tsr__os_condition_init(tsr__os_condition *condition);
/* No thread may be waiting. */
void tsr__os_condition_release(tsr__os_condition *condition);
/* Unlock `mutex`, sleep until woken, lock it again. May wake up for no reason: call it in a loop
 * that checks what is waited for. */
void tsr__os_condition_wait(tsr__os_condition *condition, tsr__os_mutex *mutex);
void tsr__os_condition_wake_one(tsr__os_condition *condition);
void tsr__os_condition_wake_all(tsr__os_condition *condition);

/* ---- semaphores (semaphore.c, for all systems) ---- */

/* A count that threads wait for. What one thread did before posting is visible to the thread that
 * waited for it. */
typedef struct tsr__os_semaphore tsr__os_semaphore;

/* NULL when out of memory. */
tsr__os_semaphore *tsr__os_semaphore_new(unsigned count);
void tsr__os_semaphore_post(tsr__os_semaphore *semaphore);
void tsr__os_semaphore_wait(tsr__os_semaphore *semaphore);
/* NULL is fine. */
void tsr__os_semaphore_free(tsr__os_semaphore *semaphore);

#endif
