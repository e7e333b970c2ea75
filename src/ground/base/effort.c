/* effort.c - see effort.h. */
#include "base/effort.h"

#include <assert.h>
#include <math.h>

#include "base/memory.h"
#include "base/options.h"
#include "base/os.h"
#include "base/pool.h"

enum { PROGRESS_NS = 10000000 };

int tsr__effort_init(tsr_effort *effort, const tsr_effort_options *options, tsr_error *error) {
  tsr_effort_options limits = {.struct_bytes = sizeof limits};
  int status = options ? tsr__options_read(options, &limits, sizeof limits, error) : 0;
  if (status) return status;
  if (!isfinite(limits.most_seconds) || limits.most_seconds < 0)
    return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                     "a limit on time must be finite, and not negative");
  *effort = (tsr_effort){.limits = limits, .share = 1, .begin_ns = tsr__os_time_ns()};
  effort->told_ns = effort->begin_ns;
  return 0;
}

int tsr_effort_new(const tsr_effort_options *options, tsr_effort **out, tsr_error *error) {
  tsr_effort *effort = TSR__NEW(tsr_effort);
  int status = effort ? tsr__effort_init(effort, options, error) : tsr__fail_memory(error);
  if (status)
    tsr__free(effort);
  else
    *out = effort;
  return status;
}

void tsr_effort_free(tsr_effort *effort) {
  tsr__free(effort);
}

uint64_t tsr_effort_work(const tsr_effort *effort) {
  return effort->work;
}

tsr_effort_end tsr_effort_ended(const tsr_effort *effort) {
  return effort->ended;
}

static bool is_beyond(double used, double most, double share) {
  return most > 0 && used > most * share;
}

bool tsr__effort_go_on(tsr_effort *effort, uint64_t units) {
  if (!effort) return true;
  const tsr_effort_options *limits = &effort->limits;
  uint64_t now_ns = tsr__os_time_ns();
  double seconds = (double)(now_ns - effort->begin_ns) * 1e-9;
  effort->work += units;
  if (!effort->ended && is_beyond((double)effort->work, (double)limits->most_work, effort->share))
    effort->ended = TSR_EFFORT_WORK;
  if (!effort->ended && is_beyond(seconds, limits->most_seconds, effort->share))
    effort->ended = TSR_EFFORT_TIME;
  if (limits->progress && now_ns - effort->told_ns >= PROGRESS_NS) {
    effort->told_ns = now_ns;
    if (!limits->progress(limits->progress_context, effort->work, 0)) effort->is_stopped = true;
  }
  return !tsr__effort_is_over(effort);
}

bool tsr__effort_is_over(const tsr_effort *effort) {
  return effort && (effort->is_stopped || (effort->ended && !effort->is_lifted));
}

bool tsr__effort_is_spent(const tsr_effort *effort) {
  return tsr__effort_is_over(effort) && !effort->is_stopped;
}

int tsr__effort_fail(const tsr_effort *effort, tsr_error *error) {
  assert(effort->is_stopped || effort->ended);
  if (effort->is_stopped) return tsr__work_stopped(error);
  if (effort->ended == TSR_EFFORT_TIME)
    return tsr__fail(error, TSR_ERROR_LIMIT, TSR_OFFSET_NONE,
                     "this takes longer than the limit of %g seconds", effort->limits.most_seconds);
  return tsr__fail(error, TSR_ERROR_LIMIT, TSR_OFFSET_NONE,
                   "this takes more work than the limit of %llu instructions",
                   (unsigned long long)effort->limits.most_work);
}

void tsr__effort_share(tsr_effort *effort, double share) {
  if (!effort || effort->is_lifted) return;
  assert(share > 0 && share <= 1);
  if (share > effort->share) effort->ended = TSR_EFFORT_LEFT;
  effort->share = share;
}

void tsr__effort_lift(tsr_effort *effort) {
  if (effort) effort->is_lifted = true;
}
