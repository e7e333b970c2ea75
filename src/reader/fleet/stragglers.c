/* stragglers.c - clocks, and which ranks are late in their steps.
 *
 * A job that works in step leaves every rank the same steps: each waits for the others where they exchange data. So the steps say how
 * far the clocks of two machines are apart, although a trace tells only its own: that is the difference which is the same in all of
 * them. A rank is late if, measured from the moment of the step at which equals agree best, it reaches another moment later than they
 * do. These moments are the first event of the step and the last one of each quarter of its events; they are those of the process,
 * which runs ahead of the card until it waits for it.
 *
 * The rows of a group are compared with each other; one of them is the reference, and drops out of the result. */
#include <assert.h>
#include <math.h>

#include "base/memory.h"
#include "base/sort.h"
#include "fleet/fleet.h"
#include "fleet/gaps.h"

enum { LEAST_STEPS = 4, MOST_SHIFT = 3, MOMENTS = TSR__SKETCH_MOMENTS };
/* What a rank is late by, as a part of a step, to be worth a word. */
#define LEAST_LATE 0.05
/* Differences within this part of a step are as good as equal. */
#define CLOSE   0.01
#define REGULAR 0.0005

/* A moment of a rank's steps, as seen from the reference's clock. */
typedef struct offset {
  double ahead_us;  /* the median over the steps */
  double spread_us; /* the median distance from that */
} offset;

/* Which steps of a rank and of the reference are the same: its i-th is the reference's (i + shift)-th. */
typedef struct alignment {
  const tsr__member *member; /* NULL: nothing to compare */
  long shift;
  size_t pairs;
  offset at[MOMENTS];
} alignment;

static size_t step_count(const tsr__member *m) {
  for (size_t i = 0; i < m->sketch.steps.count; i++)
    for (size_t k = 0; k < MOMENTS; k++)
      if (m->sketch.steps.items[i].at_us[k] == TSR_TIME_NONE) return 0;
  return m->sketch.steps.count;
}

static double time_at(const tsr__member *m, size_t step, size_t moment) {
  return (double)m->sketch.steps.items[step].at_us[moment];
}

/* The lower median; sorts the values. */
static double median_of(double *values, size_t count) {
  assert(count);
  tsr__sort_reals(values, count);
  return values[(count - 1) / 2];
}

/* From the start of a step to that of the next. */
static double period_of(const tsr__member *m) {
  double periods[TSR__SKETCH_STEPS];
  size_t count = step_count(m);
  if (count < 2) return 0;
  for (size_t i = 0; i + 1 < count; i++) periods[i] = time_at(m, i + 1, 0) - time_at(m, i, 0);
  return median_of(periods, count - 1);
}

/* The pairs of steps, as a range of the rank's own. */
static size_t pairs_of(size_t own, size_t other, long shift, size_t *first) {
  long begin = shift < 0 ? -shift : 0;
  long end = (long)own < (long)other - shift ? (long)own : (long)other - shift;
  *first = (size_t)begin;
  return end > begin ? (size_t)(end - begin) : 0;
}

static offset measure(const tsr__member *m, const tsr__member *reference, long shift, size_t at) {
  double ahead[TSR__SKETCH_STEPS];
  size_t first, count = pairs_of(step_count(m), step_count(reference), shift, &first);
  for (size_t i = 0; i < count; i++)
    ahead[i] =
        time_at(m, first + i, at) - time_at(reference, (size_t)((long)(first + i) + shift), at);
  offset out = {.ahead_us = median_of(ahead, count)};
  for (size_t i = 0; i < count; i++) ahead[i] = fabs(ahead[i] - out.ahead_us);
  out.spread_us = median_of(ahead, count);
  return out;
}

/* Whether the first is a better guess of which steps are the same: the one at which differences vary clearly less. Steps that are all
 * as long say nothing; then clocks that are right to half a step decide, or else the guess that came first. */
static bool is_better(offset a, offset b, double period) {
  double close = REGULAR * period;
  if (a.spread_us * 3 + close < b.spread_us) return true;
  if (b.spread_us * 3 + close < a.spread_us) return false;
  return fabs(a.ahead_us) < period / 2 && fabs(a.ahead_us) < fabs(b.ahead_us);
}

/* The shift at which the steps of both are nearest in time. */
static long nearest_shift(const tsr__member *m, const tsr__member *reference, size_t own,
                          size_t other) {
  double when = time_at(m, own - 1, 0), least = INFINITY;
  size_t nearest = other - 1;
  for (size_t i = 0; i < other; i++) {
    double off = fabs(time_at(reference, i, 0) - when);
    if (off < least) nearest = i;
    if (off < least) least = off;
  }
  return (long)nearest - (long)(own - 1);
}

static alignment align(const tsr__member *m, const tsr__member *reference, double period) {
  size_t own = step_count(m), other = step_count(reference), first;
  if (own < LEAST_STEPS || other < LEAST_STEPS) return (alignment){0};
  const long centers[] = {(long)other - (long)own, nearest_shift(m, reference, own, other)};
  size_t least = (own < other ? own : other) / 2;
  bool is_found = false;
  offset best = {0};
  long shift = 0;
  if (least < LEAST_STEPS) least = LEAST_STEPS;
  for (size_t c = 0; c < 2; c++)
    for (long k = 0; k <= 2 * MOST_SHIFT; k++) { /* 0, -1, 1, -2, ... from the center */
      long s = centers[c] + (k % 2 ? -(k + 1) / 2 : k / 2);
      if (pairs_of(own, other, s, &first) < least) continue;
      offset at = measure(m, reference, s, 0);
      if (is_found && !is_better(at, best, period)) continue;
      is_found = true;
      best = at;
      shift = s;
    }
  if (!is_found) return (alignment){0};
  alignment out = {.member = m, .shift = shift, .pairs = pairs_of(own, other, shift, &first)};
  out.at[0] = best;
  for (size_t k = 1; k < MOMENTS; k++) out.at[k] = measure(m, reference, shift, k);
  return out;
}

/* The first of those with most steps. */
static const tsr__member *choose_reference(const tsr__fleet *fleet, const size_t *members,
                                           size_t count) {
  const tsr__member *best = NULL;
  size_t most = LEAST_STEPS - 1;
  for (size_t i = 0; i < count; i++) {
    const tsr__member *m = &fleet->members.items[members ? members[i] : i];
    size_t steps = !tsr__is_compared(m) ? 0 : step_count(m);
    if (steps > most) best = m;
    if (steps > most) most = steps;
  }
  return best;
}

/* ---- Clocks ---- */

/* How far each rank's clock is ahead of the median one; up to a step it may as well be where the rank is in its step. */
static bool set_clocks(tsr__fleet *fleet) {
  size_t count = fleet->members.count, listed = 0;
  const tsr__member *reference = choose_reference(fleet, NULL, count);
  for (size_t i = 0; i < count; i++) fleet->members.items[i].ahead_us = TSR_TIME_NONE;
  if (!reference) return true;
  double period = period_of(reference);
  double *ahead = TSR__NEW_ARRAY(double, count), *sorted = TSR__NEW_ARRAY(double, count);
  for (size_t i = 0; ahead && sorted && i < count; i++) {
    const tsr__member *m = &fleet->members.items[i];
    alignment a = m->is_other ? (alignment){0} : align(m, reference, period);
    bool is_known = a.member && a.at[0].spread_us <= period / 4;
    ahead[i] = is_known ? a.at[0].ahead_us : NAN;
    if (is_known) sorted[listed++] = ahead[i];
  }
  double middle = listed ? median_of(sorted, listed) : 0;
  for (size_t i = 0; ahead && sorted && i < count; i++) {
    double off = ahead[i] - middle;
    if (!(fabs(off) < 1e15)) continue; /* unknown, or no time of a clock */
    fleet->members.items[i].ahead_us = (int64_t)off;
    if (fabs(off) > period) fleet->members.items[i].clock_us = (int64_t)off;
  }
  bool ok = ahead && sorted;
  tsr__free(ahead);
  tsr__free(sorted);
  return ok;
}

/* ---- Who is late ---- */

typedef struct pacing {
  const tsr__fleet *fleet;
  const size_t *members;  /* of the group */
  size_t count, compared; /* of these, with steps to compare */
  double period;
  alignment *of;         /* by position */
  double *scratch;       /* as many */
  size_t anchor;         /* the moment at which equals agree best */
  double usual[MOMENTS]; /* how long after it the median rank reaches each, less the reference */
} pacing;

/* What a rank's clock shows beyond the reference's at a moment, from the anchor on. */
static double lag_of(const pacing *p, const alignment *a, size_t moment) {
  return a->at[moment].ahead_us - a->at[p->anchor].ahead_us;
}

/* How much the differences between ranks vary from step to step at a moment: least where all have waited for each other. */
static double unlikeness(const pacing *p, size_t moment) {
  double sum = 0;
  for (size_t i = 0; i < p->count; i++) sum += p->of[i].member ? p->of[i].at[moment].spread_us : 0;
  return sum / (double)p->compared;
}

/* With a moment as the anchor: what the median rank needs from there to each other one, and how early ranks are in all. */
static double set_anchor(pacing *p, size_t anchor) {
  double early = 0;
  p->anchor = anchor;
  for (size_t k = 0; k < MOMENTS; k++) {
    size_t listed = 0;
    for (size_t i = 0; i < p->count; i++)
      if (p->of[i].member) p->scratch[listed++] = lag_of(p, &p->of[i], k);
    p->usual[k] = median_of(p->scratch, listed);
  }
  for (size_t i = 0; i < p->count; i++) {
    double most = 0;
    for (size_t k = 0; p->of[i].member && k < MOMENTS; k++)
      most = fmax(most, p->usual[k] - lag_of(p, &p->of[i], k));
    early += most;
  }
  return early;
}

/* Of the moments at which ranks agree about equally well, the one from which on fewest are early: one who waits for others can be
 * late for them, but not early. */
static void choose_anchor(pacing *p) {
  double within[MOMENTS], least = INFINITY, least_early = INFINITY;
  size_t best = 0;
  for (size_t k = 0; k < MOMENTS; k++) {
    within[k] = unlikeness(p, k);
    least = fmin(least, within[k]);
  }
  for (size_t k = 0; k < MOMENTS; k++) {
    if (within[k] > least * 1.25 + CLOSE / 4 * p->period) continue;
    double early = set_anchor(p, k);
    if (early < least_early) best = k;
    least_early = fmin(least_early, early);
  }
  (void)set_anchor(p, best);
}

/* How late a rank is at the moment where that is most. */
static double late_of(const pacing *p, const alignment *a, size_t *moment) {
  double most = -INFINITY;
  for (size_t k = 0; k < MOMENTS; k++) {
    double late = lag_of(p, a, k) - p->usual[k];
    if (late > most) *moment = k;
    if (late > most) most = late;
  }
  return most;
}

/* In how many steps it was. */
static size_t late_steps(const pacing *p, const alignment *a, const tsr__member *reference,
                         size_t moment) {
  size_t first, late = 0;
  size_t count = pairs_of(step_count(a->member), step_count(reference), a->shift, &first);
  for (size_t i = first; i < first + count; i++) {
    size_t other = (size_t)((long)i + a->shift);
    double lag = (time_at(a->member, i, moment) - time_at(reference, other, moment)) -
                 (time_at(a->member, i, p->anchor) - time_at(reference, other, p->anchor));
    late += lag - p->usual[moment] > LEAST_LATE * p->period;
  }
  return late;
}

typedef struct late_rank {
  double late_us;
  size_t position, moment;
} late_rank;

static int compare_late(const void *a, const void *b) {
  const late_rank *x = a, *y = b;
  if (x->late_us != y->late_us) return x->late_us < y->late_us ? 1 : -1;
  return (x->position > y->position) - (x->position < y->position);
}

/* Take those that stand apart. `late` and `values` have room for all of the group. */
static void list_late(const pacing *p, const tsr__member *reference, late_rank *late,
                      uint64_t *values, tsr_ranks *out) {
  size_t listed = 0;
  bool is_exact;
  for (size_t i = 0; i < p->count; i++) {
    size_t moment = 0;
    if (!p->of[i].member) continue;
    double us = late_of(p, &p->of[i], &moment);
    late[listed++] = (late_rank){us, i, moment};
  }
  tsr__sort(late, listed, sizeof *late, compare_late);
  for (size_t i = 0; i < listed; i++) {
    double above = late[i].late_us - late[listed - 1].late_us;
    values[i] = above < 1e15 ? (uint64_t)above : (uint64_t)1e15;
  }
  size_t apart = tsr__apart(values, listed, listed, 1 + listed / 4, &is_exact);
  for (size_t i = 0; i < apart && late[i].late_us >= LEAST_LATE * p->period; i++) {
    const alignment *a = &p->of[late[i].position];
    size_t steps = late_steps(p, a, reference, late[i].moment);
    if (late[i].late_us > 1e15 || steps * 2 <= a->pairs) continue;
    out->stragglers[out->straggler_count++] = (tsr_straggler){.row = p->members[late[i].position],
                                                              .late_us = (int64_t)late[i].late_us,
                                                              .step_us = (int64_t)p->period,
                                                              .steps = a->pairs,
                                                              .late_steps = steps};
  }
}

static bool pace_group(const tsr__fleet *fleet, size_t group, tsr_ranks *out) {
  size_t begin = fleet->group_first.items[group];
  assert(fleet->by_group.items);
  pacing p = {.fleet = fleet,
              .members = fleet->by_group.items + begin,
              .count = fleet->group_first.items[group + 1] - begin};
  const tsr__member *reference = choose_reference(fleet, p.members, p.count);
  if (!reference || p.count < TSR__LEAST_EQUALS) return true;
  p.period = period_of(reference);
  p.of = TSR__NEW_ARRAY(alignment, p.count);
  p.scratch = TSR__NEW_ARRAY(double, p.count);
  late_rank *late = TSR__NEW_ARRAY(late_rank, p.count);
  uint64_t *values = TSR__NEW_ARRAY(uint64_t, p.count);
  bool ok = p.of && p.scratch && late && values;
  for (size_t i = 0; ok && i < p.count; i++) {
    const tsr__member *m = &fleet->members.items[p.members[i]];
    if (tsr__is_compared(m)) p.of[i] = align(m, reference, p.period);
    p.compared += p.of[i].member != NULL;
  }
  if (ok && p.period > 0 && p.compared >= TSR__LEAST_EQUALS) {
    choose_anchor(&p);
    list_late(&p, reference, late, values, out);
  }
  tsr__free(p.of);
  tsr__free(p.scratch);
  tsr__free(late);
  tsr__free(values);
  return ok;
}

static int compare_stragglers(const void *a, const void *b) {
  const tsr_straggler *x = a, *y = b;
  if (x->late_us != y->late_us) return x->late_us < y->late_us ? 1 : -1;
  return (x->row > y->row) - (x->row < y->row);
}

int tsr__fleet_pace(tsr__fleet *fleet, tsr_ranks *out, tsr_error *error) {
  out->stragglers = TSR__NEW_ARRAY(tsr_straggler, fleet->members.count);
  bool ok = out->stragglers && set_clocks(fleet);
  for (size_t i = 0; ok && i < out->group_count; i++) ok = pace_group(fleet, i, out);
  if (!ok) return tsr__fail_memory(error);
  tsr__sort(out->stragglers, out->straggler_count, sizeof *out->stragglers, compare_stragglers);
  return 0;
}
