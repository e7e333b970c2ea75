/* tessera/effort.h - how much work simulations and searches for plans may take, and who watches them.
 *
 * Work is counted in units, of which one is an instruction of a step, recorded or simulated. So a limit on work gives the
 * same answer on every machine; a limit on time does not.
 *
 *   tsr_effort_options limits = {.struct_bytes = sizeof limits, .most_seconds = 60, .progress = continues};
 *   int status = tsr_effort_new(&limits, &effort, &error);
 *   options.effort = effort;                                  of tsr_simulate_options, for any number of calls
 *
 * An effort is for one thread at a time. */
#ifndef TESSERA_EFFORT_H
#define TESSERA_EFFORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tessera/options.h"
#include "tessera/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What all calls with an effort may take together. */
typedef struct tsr_effort_options {
  size_t struct_bytes;
  uint64_t most_work;  /* units; 0: unlimited */
  double most_seconds; /* from tsr_effort_new on; 0: unlimited */
  /* Called about a hundred times a second, in the thread that works: the units so far, and 0. False stops the work, which then
   * fails with TSR_ERROR_IO. NULL for none. */
  bool (*progress)(void *context, uint64_t done_units, uint64_t total_units);
  void *progress_context;
} tsr_effort_options;

typedef struct tsr_effort tsr_effort;

/* Which limit was reached. */
typedef enum tsr_effort_end { TSR_EFFORT_LEFT, TSR_EFFORT_WORK, TSR_EFFORT_TIME } tsr_effort_end;

/* Begin to count. `options` NULL means no limits. The caller owns `*out` and passes it to tsr_effort_free. Fails with
 * TSR_ERROR_MEMORY, or TSR_ERROR_ARGUMENT for a time that is negative or not finite. */
int tsr_effort_new(const tsr_effort_options *options, tsr_effort **out, tsr_error *error);
/* NULL is fine. */
void tsr_effort_free(tsr_effort *effort);
/* The units so far. */
uint64_t tsr_effort_work(const tsr_effort *effort);
/* Which limit was reached, if any. Simulations then fail with TSR_ERROR_LIMIT, and searches return what they have found. */
tsr_effort_end tsr_effort_ended(const tsr_effort *effort);

#ifdef __cplusplus
}
#endif
#endif
