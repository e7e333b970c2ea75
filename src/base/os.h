/* os.h - the only door to the operating system, so that the rest is portable C. */
#ifndef TSR_BASE_OS_H
#define TSR_BASE_OS_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* Open the file `path` for reading ("-": standard input, which stays open afterwards).
 * `*size_bytes` is its size, or 0 when it has none (a pipe). A directory is an error. Fails with
 * TSR_ERROR_IO. */
int tsr__os_open(const char *path, int *handle, uint64_t *size_bytes, tsr_error *error);
/* The same for a file beside the input: only a regular file is opened, and a pipe is not waited for.
 */
int tsr__os_open_regular(const char *path, int *handle, tsr_error *error);
/* Up to `size` bytes into `buffer`: how many, 0 at the end, or a negative tsr_status. */
ptrdiff_t tsr__os_read(int handle, void *buffer, size_t size, tsr_error *error);
void tsr__os_close(int handle);

/* ---- threads ---- */

typedef struct tsr__os_thread tsr__os_thread;

/* Run `run(context)` in a new thread, to be joined once. NULL where none can be started. */
tsr__os_thread *tsr__os_thread_start(void (*run)(void *context), void *context);
/* Wait for its end and release it. */
void tsr__os_thread_join(tsr__os_thread *thread);

/* A count that threads wait for: what one does before posting, the other sees after waiting. */
typedef struct tsr__os_semaphore tsr__os_semaphore;

/* NULL when out of memory. */
tsr__os_semaphore *tsr__os_semaphore_new(unsigned count);
void tsr__os_semaphore_post(tsr__os_semaphore *semaphore);
void tsr__os_semaphore_wait(tsr__os_semaphore *semaphore);
/* NULL is fine. */
void tsr__os_semaphore_free(tsr__os_semaphore *semaphore);

#endif
