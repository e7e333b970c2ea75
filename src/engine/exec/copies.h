/* copies.h - copies between memory spaces, made by a thread of their own while kernels go on.
 *
 *   tsr__copier *copier = tsr__copier_new(moves, file);
 *   tsr__copier_start(copier, 3, &(tsr__copy){...});      begins, or queues
 *   ... kernels that touch neither side ...
 *   status = tsr__copier_wait(copier, 3, error);          it has been made
 *   tsr__copier_free(copier);
 *
 * Copies are made one after another, in the order in which they were started. Their result does not depend on timing,
 * because the caller must not write to either side, nor read the target, until it has waited for the copy
 * (graph/validate.h checks this for schedules). Without a thread, a copy is made where it is started. */
#ifndef TSR_EXEC_COPIES_H
#define TSR_EXEC_COPIES_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* From memory to memory, or between memory and the file: then `to` or `from` is NULL. */
typedef struct tsr__copy {
  void *to;
  const void *from;
  uint64_t offset_bytes; /* in the file */
  size_t size_bytes;
} tsr__copy;

/* What was copied so far. */
typedef struct tsr__copy_account {
  uint64_t size_bytes;
  uint64_t copied_ns; /* that the copies took, */
  uint64_t waited_ns; /* and that callers waited for them */
} tsr__copy_account;

typedef struct tsr__copier tsr__copier;

/* A thread for up to `most` copies at a time, each with a number below it. `file`: a handle that stays the caller's, or
 * -1. NULL when out of memory. */
tsr__copier *tsr__copier_new(uint32_t most, int file);
/* Start copy number `number`, which must not be under way. Starting and waiting are done by one thread. */
void tsr__copier_start(tsr__copier *copier, uint32_t number, const tsr__copy *copy);
/* Wait until it has been made; at once if it was not started. Fails as the file's first read or write that failed,
 * with TSR_ERROR_IO or TSR_ERROR_WRITE. */
int tsr__copier_wait(tsr__copier *copier, uint32_t number, tsr_error *error);
/* Make what is queued, and end the thread; copies that are started later are made at once. NULL is fine. */
void tsr__copier_stop(tsr__copier *copier);
/* While nothing is under way. */
tsr__copy_account tsr__copier_account(const tsr__copier *copier);
/* Stops it first. NULL is fine. */
void tsr__copier_free(tsr__copier *copier);

#endif
