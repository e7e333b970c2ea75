/* answer.c - the steps of a program, and the peaks of a steady one.
 *
 * One sweep over the trace measures every step and every phase in it. The warm-up is the first whole
 * steps, at most half of them, that do something else than the later half: their allocations differ, by
 * stack or much in size, or they leave more behind (the state of an optimizer), and their peak differs by more
 * than 1 %. Memory that grows by as much in each is not enough, since equal steps then have different peaks. The
 * rest are steady. */
#include <assert.h>
#include <stdlib.h>

#include "base/checked.h"
#include "base/memory.h"
#include "questions/shared/devices.h"
#include "questions/shared/shares.h"
#include "questions/shared/stepping.h"
#include "tessera/unstable/steps.h"
#include "timeline/sweep.h"

#define SAME_WORK    0.98 /* as likeness of bags */
#define TIMES_LARGER 4

/* ---- Measuring ---- */

/* The most of one phase in one step, and of all phases in it. */
typedef struct phase_peak {
  uint64_t bytes;
  uint32_t event;
  bool is_there;
} phase_peak;

typedef struct step_peaks {
  phase_peak of[TSR_PHASE_COUNT];
} step_peaks;

/* What a step allocates. */
typedef struct work {
  tsr__bag bag;
  uint64_t bytes;
} work;

typedef struct meter {
  const tsr__stepping *s;
  tsr_steps_device *out;
  step_peaks *peaks; /* by step */
  work *works;       /* by step */
} meter;

static void begin_step(const meter *m, size_t step, const tsr__sweep *sweep, uint64_t before) {
  assert(step < m->out->step_count);
  tsr_step *at = &m->out->steps[step];
  at->start_bytes = before;
  at->peak_bytes = sweep->totals.allocated_bytes;
  at->peak_event = (uint64_t)sweep->event;
}

static void measure_event(const meter *m, size_t step, tsr_phase phase, const tsr__sweep *sweep) {
  tsr_step *at = &m->out->steps[step];
  uint64_t bytes = sweep->totals.allocated_bytes;
  assert(phase < TSR_PHASE_COUNT);
  at->allocations += sweep->born != TSR_NONE;
  at->end_bytes = bytes;
  if (bytes > at->peak_bytes) {
    at->peak_bytes = bytes;
    at->peak_event = (uint64_t)sweep->event;
  }
  phase_peak *peak = &m->peaks[step].of[phase];
  if (peak->is_there && bytes <= peak->bytes) return;
  *peak = (phase_peak){bytes, (uint32_t)sweep->event, true};
}

static int measure(const meter *m, tsr_error *error) {
  const tsr__cycle_steps *steps = &m->s->cycle->steps;
  const tsr__phases *phases = m->s->phases;
  tsr__sweep sweep;
  int status = tsr__sweep_begin(m->s->timeline, &sweep, error);
  if (status) return status;
  uint64_t before = sweep.totals.allocated_bytes;
  size_t step = 0, run = 0;
  while (step < steps->count && tsr__sweep_next(&sweep)) {
    uint32_t event = (uint32_t)sweep.event;
    while (run + 1 < phases->runs.count && phases->runs.items[run + 1].first <= event) run++;
    bool is_in_run = run < phases->runs.count && phases->runs.items[run].first <= event;
    tsr_phase phase = is_in_run ? (tsr_phase)phases->runs.items[run].phase : TSR_PHASE_UNKNOWN;
    if (event == steps->items[step].first) begin_step(m, step, &sweep, before);
    if (event >= steps->items[step].first) measure_event(m, step, phase, &sweep);
    before = sweep.totals.allocated_bytes;
    step += event == steps->items[step].last;
  }
  tsr__sweep_release(&sweep);
  return 0;
}

/* ---- Folding ---- */

static int compare_u64(const void *a, const void *b) {
  const uint64_t *x = a, *y = b;
  return (*x > *y) - (*x < *y);
}

static uint64_t middle_of(uint64_t *values, size_t count) {
  if (!count) return 0;
  qsort(values, count, sizeof *values, compare_u64);
  return values[count / 2];
}

/* The peak of the middle one of the later half of whole steps. */
static uint64_t usual_peak(const tsr_steps_device *out, uint64_t *scratch) {
  size_t count = 0, passed = 0;
  for (size_t i = 0; i < out->step_count; i++) {
    if (!out->steps[i].is_whole) continue;
    if (passed++ >= out->whole_count / 2) scratch[count++] = out->steps[i].peak_bytes;
  }
  assert(passed == out->whole_count && count <= passed);
  return middle_of(scratch, count);
}

static bool is_near(uint64_t bytes, uint64_t usual) {
  uint64_t off = bytes > usual ? bytes - usual : usual - bytes;
  return off <= usual / 100;
}

static void weigh_work(const meter *m) {
  const tsr__timeline *t = m->s->timeline;
  const tsr__cycle_steps *steps = &m->s->cycle->steps;
  size_t step = 0;
  for (size_t i = t->initial.count; i < t->birth.count; i++) {
    uint32_t birth = t->birth.items[i];
    while (step < steps->count && steps->items[step].last < birth) step++;
    if (step == steps->count) break;
    if (birth < steps->items[step].first) continue;
    tsr__bag_add(&m->works[step].bag, tsr__symbol(m->s->roles, &t->events, birth));
    m->works[step].bytes = tsr__sum_u64(m->works[step].bytes, t->events.size[birth]);
  }
}

/* Whether two steps leave as much behind, but for a twentieth of their peak. */
static bool grow_alike(const tsr_step *a, const tsr_step *b) {
  uint64_t peak = a->peak_bytes > b->peak_bytes ? a->peak_bytes : b->peak_bytes;
  uint64_t x = tsr__sum_u64(a->end_bytes, b->start_bytes);
  uint64_t y = tsr__sum_u64(b->end_bytes, a->start_bytes);
  return (x > y ? x - y : y - x) <= peak / 20;
}

/* Whether a step does what most of the whole steps in the later half do; some of them, evenly chosen, are
 * compared. */
static bool does_usual(const meter *m, size_t step) {
  enum { COMPARED = 16 };
  const tsr_steps_device *out = m->out;
  uint64_t later = out->whole_count / 2, number = 0, compared = 0, alike = 0;
  uint64_t stride = (out->whole_count - later + COMPARED - 1) / COMPARED;
  for (size_t i = 0; i < out->step_count; i++) {
    if (!out->steps[i].is_whole || number++ < later || (number - later) % stride) continue;
    compared++;
    alike += tsr__bag_likeness(&m->works[step].bag, &m->works[i].bag) >= SAME_WORK &&
             grow_alike(&out->steps[step], &out->steps[i]);
  }
  return compared && alike * 2 >= compared;
}

/* Sizes may grow from step to step, but not many times over: a prompt is not like a token. */
static bool is_as_large_as_next(const meter *m, size_t step) {
  size_t next = step + 1;
  while (next < m->out->step_count && !m->out->steps[next].is_whole) next++;
  if (next == m->out->step_count) return true;
  uint64_t a = m->works[step].bytes, b = m->works[next].bytes;
  return a / TIMES_LARGER <= b && b / TIMES_LARGER <= a;
}

static void part_warmup(const meter *m, uint64_t *scratch) {
  tsr_steps_device *out = m->out;
  uint64_t usual = usual_peak(out, scratch), passed = 0;
  bool is_warm = false;
  for (size_t i = 0; i < out->step_count; i++) {
    tsr_step *step = &out->steps[i];
    if (!step->is_whole) continue;
    if (!is_warm)
      is_warm = is_near(step->peak_bytes, usual) || passed >= out->whole_count / 2 ||
                (does_usual(m, i) && is_as_large_as_next(m, i));
    step->is_steady = is_warm;
    passed++;
  }
}

static void fold_steps(tsr_steps_device *out, uint64_t *scratch) {
  size_t count = 0;
  for (size_t i = 0; i < out->step_count; i++) {
    const tsr_step *step = &out->steps[i];
    if (step->is_whole && !step->is_steady && step->peak_bytes > out->warmup_peak_bytes)
      out->warmup_peak_bytes = step->peak_bytes;
    if (!step->is_steady) continue;
    if (!out->steady_count || step->peak_bytes > out->steady_peak_bytes) {
      out->steady_peak_bytes = step->peak_bytes;
      out->steady_peak_event = step->peak_event;
    }
    if (!out->steady_count || step->peak_bytes < out->steady_low_bytes)
      out->steady_low_bytes = step->peak_bytes;
    out->steady_count++;
    scratch[count++] = step->allocations;
  }
  assert(out->steady_count == count && count <= out->whole_count);
  out->step_allocations = middle_of(scratch, count);
  if (out->warmup_peak_bytes > out->steady_peak_bytes)
    out->warmup_surplus_bytes = out->warmup_peak_bytes - out->steady_peak_bytes;
}

/* How long a step takes: up to the first event of the next one. The last step has no next one, and counts
 * only if it is alone; what the program does after its last event is unknown, so that is a lower bound. */
static bool time_of(const tsr_steps_device *out, size_t index, uint64_t *time_us) {
  const tsr_step *step = &out->steps[index];
  bool is_last = index + 1 == out->step_count;
  if (is_last && out->steady_count > 1) return false;
  int64_t end = is_last ? step->last_time_us : out->steps[index + 1].first_time_us;
  if (step->first_time_us == TSR_TIME_NONE || end == TSR_TIME_NONE || end < step->first_time_us)
    return false;
  *time_us = (uint64_t)end - (uint64_t)step->first_time_us;
  return true;
}

static void fold_times(tsr_steps_device *out, uint64_t *scratch) {
  size_t count = 0;
  for (size_t i = 0; i < out->step_count; i++)
    if (out->steps[i].is_steady && time_of(out, i, &scratch[count])) count++;
  uint64_t middle = middle_of(scratch, count);
  out->step_time_us = count && middle <= INT64_MAX ? (int64_t)middle : TSR_TIME_NONE;
}

static void fold_phases(const meter *m) {
  tsr_steps_device *out = m->out;
  for (int p = 0; p < TSR_PHASE_COUNT; p++) {
    tsr_step_phase phase = {.phase = (tsr_phase)p};
    for (size_t i = 0; i < out->step_count; i++) {
      const phase_peak *peak = &m->peaks[i].of[p];
      if (!peak->is_there || (out->steady_count && !out->steps[i].is_steady)) continue;
      if (!phase.steps++ || peak->bytes > phase.peak_bytes) {
        phase.peak_bytes = peak->bytes;
        phase.peak_event = peak->event;
      }
    }
    assert(phase.steps <= out->step_count);
    if (phase.steps) out->phases[out->phase_count++] = phase;
  }
}

/* ---- Annotations ---- */

static const tsr__cycle_step *step_at(const tsr__cycle_steps *steps, uint32_t event) {
  size_t low = 0, high = steps->count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (steps->items[middle].last < event)
      low = middle + 1;
    else
      high = middle;
  }
  return low < steps->count && steps->items[low].first <= event ? &steps->items[low] : NULL;
}

/* Whether any event from `from` to `to` allocates. */
static bool allocates(const tsr__timeline *t, uint32_t from, uint32_t to) {
  for (uint32_t e = from; e <= to; e++)
    if (t->events.action[e] == TSR_ACTION_ALLOC) return true;
  return false;
}

/* An optimizer's step must end its step: it is inside, and nothing is allocated after it. */
static bool ends_step(const tsr__stepping *s, const tsr__marked *range) {
  const tsr__cycle_step *step = step_at(&s->cycle->steps, range->first);
  return step && range->last <= step->last && !allocates(s->timeline, range->last + 1, step->last);
}

/* Nearly all of the range is in one step, and is most of it: what comes between two ranges belongs
 * to a step too. */
static bool is_same_step(const tsr__stepping *s, const tsr__marked *range) {
  const tsr__cycle_step *step =
      step_at(&s->cycle->steps, range->first + (range->last - range->first) / 2);
  if (!step) return false;
  uint64_t first = step->first > range->first ? step->first : range->first;
  uint64_t last = step->last < range->last ? step->last : range->last;
  uint64_t common = last >= first ? last - first + 1 : 0;
  uint64_t of_range = (uint64_t)range->last - range->first + 1;
  uint64_t of_step = (uint64_t)step->last - step->first + 1;
  return common * 10 >= of_range * 9 && common * 3 >= of_step * 2;
}

static void compare_annotations(const tsr__stepping *s, tsr_steps_device *out) {
  const tsr__marked_ranges *ranges = &s->phases->marked;
  tsr_step_annotations optimizer = {.name = "Optimizer.step"}, profiler = {.name = "ProfilerStep"};
  const tsr__cycle_step *last_ended = NULL;
  for (size_t i = 0; i < ranges->count; i++) {
    const tsr__marked *range = &ranges->items[i];
    if (range->is_open) continue; /* where it ends is not known */
    if (range->is_step) {
      profiler.ranges++;
      profiler.matched += is_same_step(s, range);
    } else if (range->is_optimizer_step) {
      const tsr__cycle_step *step = step_at(&s->cycle->steps, range->first);
      optimizer.ranges++;
      optimizer.matched += step != last_ended && ends_step(s, range);
      last_ended = step;
    }
  }
  if (optimizer.ranges) out->annotations[out->annotation_count++] = optimizer;
  if (profiler.ranges) out->annotations[out->annotation_count++] = profiler;
}

/* ---- One device ---- */

static void list_steps(const tsr__stepping *s, tsr_steps_device *out) {
  const tsr_events *events = &s->timeline->events;
  out->basis = s->cycle->basis;
  out->unit = s->cycle->unit;
  out->counts_backwards = s->cycle->counts_backwards;
  out->event_count = events->count;
  out->step_count = s->cycle->steps.count;
  for (size_t i = 0; i < out->step_count; i++) {
    const tsr__cycle_step *step = &s->cycle->steps.items[i];
    assert(step->first <= step->last && step->last < events->count);
    assert(!i || step[-1].last < step->first);
    out->steps[i] = (tsr_step){.first_event = step->first,
                               .last_event = step->last,
                               .first_time_us = events->time_us[step->first],
                               .last_time_us = events->time_us[step->last],
                               .is_whole = step->is_whole,
                               .is_dead = !step->is_whole && out->stop.event >= step->first &&
                                          out->stop.event <= step->last};
    out->whole_count += step->is_whole;
  }
}

static int fill(const tsr__stepping *s, tsr_steps_device *out, tsr_error *error) {
  size_t count = s->cycle->steps.count;
  meter m = {s, out, TSR__NEW_ARRAY(step_peaks, count), TSR__NEW_ARRAY(work, count)};
  uint64_t *scratch = TSR__NEW_ARRAY(uint64_t, count);
  out->steps = TSR__NEW_ARRAY(tsr_step, count);
  out->warnings = tsr__copy_warnings(s->timeline, &out->warning_count);
  bool ok = m.peaks && m.works && scratch && out->steps && out->warnings;
  int status = 0;
  if (ok) status = tsr__stepping_stop(s, &out->stop, error);
  if (ok && !status) {
    list_steps(s, out);
    status = measure(&m, error);
    weigh_work(&m);
    part_warmup(&m, scratch);
    fold_steps(out, scratch);
    fold_times(out, scratch);
    fold_phases(&m);
    compare_annotations(s, out);
  }
  tsr__free(m.peaks);
  tsr__free(m.works);
  tsr__free(scratch);
  return ok ? status : tsr__fail_memory(error);
}

static int describe(const tsr__asking *asking, uint32_t device, void *part, tsr_error *error) {
  tsr_steps_device *out = part;
  tsr__stepping s;
  out->device = device;
  out->step_time_us = TSR_TIME_NONE;
  int status = tsr__stepping_find(asking->study, device, &s, error);
  if (!status) status = fill(&s, out, error);
  return status;
}

int tsr_steps_compute(tsr_study *study, const tsr_query *query, tsr_steps **out, tsr_error *error) {
  tsr__parts parts;
  tsr_steps *steps = TSR__NEW(tsr_steps);
  if (!steps) return tsr__fail_memory(error);
  int status = tsr__ask_devices(study, query, TSR__NEED_CYCLE, describe, sizeof *steps->devices,
                                &parts, error);
  steps->devices = parts.items;
  steps->device_count = parts.count;
  if (status)
    tsr_steps_free(steps);
  else
    *out = steps;
  return status;
}

void tsr_steps_free(tsr_steps *steps) {
  if (!steps) return;
  for (size_t i = 0; i < steps->device_count; i++) {
    tsr__free(steps->devices[i].steps);
    tsr__free(steps->devices[i].warnings);
  }
  tsr__free(steps->devices);
  tsr__free(steps);
}
