/* effort.h - see tessera/effort.h. Long work asks now and then whether it may go on.
 *
 *   for (...) {
 *     if (i % 1024 == 0 && !tsr__effort_go_on(effort, 1024)) return tsr__effort_fail(effort, error);
 *
 * A search that has found something when a limit is reached lifts the limits (tsr__effort_lift) and finishes its answer. */
#ifndef TSR_BASE_EFFORT_H
#define TSR_BASE_EFFORT_H

#include "base/error.h"
#include "tessera/effort.h"

/* Work between two looks at the limits, in loops that look often. */
enum { TSR__EFFORT_UNITS = 1024 };

struct tsr_effort {
  tsr_effort_options limits; /* 0 seconds: unlimited */
  double share;              /* of the limits, which may be used now */
  uint64_t begin_ns, told_ns;
  uint64_t work;
  tsr_effort_end ended; /* stays when the limits are lifted */
  bool is_lifted, is_stopped;
};

/* As tsr_effort_new, without an allocation. */
int tsr__effort_init(tsr_effort *effort, const tsr_effort_options *options, tsr_error *error);
/* Count work that was done, or is about to be. False if it is to end, and the caller fails with tsr__effort_fail. NULL never ends. Costs a look
 * at the clock. */
bool tsr__effort_go_on(tsr_effort *effort, uint64_t units);
/* Whether it is to end. */
bool tsr__effort_is_over(const tsr_effort *effort);
/* Whether it is to end because of a limit: what was found so far is an answer. */
bool tsr__effort_is_spent(const tsr_effort *effort);
/* Explain why it is to end; returns the status. */
int tsr__effort_fail(const tsr_effort *effort, tsr_error *error);
/* Only this share of the limits may be used from now on. If a smaller one was reached, work goes on. NULL is fine. */
void tsr__effort_share(tsr_effort *effort, double share);
/* Go on regardless of limits, to finish an answer. NULL is fine. */
void tsr__effort_lift(tsr_effort *effort);

#endif
