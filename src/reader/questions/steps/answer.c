/* answer.c - the loops of a program, their steps, and the peaks of steady ones.
 *
 * One sweep over the trace measures every step and every phase in it. The warm-up of a loop is its first whole
 * steps, at most half of them, that do something else than the later half: their optimizer, or that of a later one
 * of them, makes more state, or their peak differs by more than 1 %, and their allocations differ, by stack or much
 * in size, or they leave more behind. Memory that grows by as much in each is not enough, since equal steps then
 * have different peaks. The rest are steady.
 *
 * The figures of a device are those of its main loop: of those that train, or of all if none does, the one
 * whose steps peak highest. */
#include <assert.h>

#include "base/checked.h"
#include "base/map.h"
#include "base/memory.h"
#include "base/sort.h"
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

/* What a step allocates. `state_bytes`: what its optimizer leaves, less what of earlier steps' it replaces. */
typedef struct work {
  tsr__bag bag;
  uint64_t bytes;
  uint64_t state_bytes, replaced_bytes;
} work;

/* A step of any loop. */
typedef struct entry {
  tsr__cycle_step at;
  uint32_t loop;
  tsr_step step;
  step_peaks peaks;
  work work;
} entry;

typedef struct meter {
  const tsr__stepping *s;
  tsr_steps_device *out;
  entry *entries; /* by first event */
  size_t count;
  entry **of_loop; /* the whole steps of the loop at hand, in order */
  size_t whole_count;
  uint64_t *scratch;
} meter;

static void begin_step(tsr_step *at, const tsr__sweep *sweep, uint64_t before) {
  at->start_bytes = before;
  at->peak_bytes = sweep->totals.allocated_bytes;
  at->peak_event = (uint64_t)sweep->event;
}

static void measure_event(entry *e, tsr_phase phase, const tsr__sweep *sweep) {
  tsr_step *at = &e->step;
  uint64_t bytes = sweep->totals.allocated_bytes;
  assert(phase < TSR_PHASE_COUNT);
  at->allocations += sweep->born != TSR_NONE;
  at->end_bytes = bytes;
  if (bytes > at->peak_bytes) {
    at->peak_bytes = bytes;
    at->peak_event = (uint64_t)sweep->event;
  }
  phase_peak *peak = &e->peaks.of[phase];
  if (peak->is_there && bytes <= peak->bytes) return;
  *peak = (phase_peak){bytes, (uint32_t)sweep->event, true};
}

static int measure(const meter *m, tsr_error *error) {
  const tsr__phases *phases = m->s->phases;
  tsr__sweep sweep;
  int status = tsr__sweep_begin(m->s->timeline, &sweep, error);
  if (status) return status;
  uint64_t before = sweep.totals.allocated_bytes;
  size_t step = 0, run = 0;
  while (step < m->count && tsr__sweep_next(&sweep)) {
    entry *e = &m->entries[step];
    uint32_t event = (uint32_t)sweep.event;
    while (run + 1 < phases->runs.count && phases->runs.items[run + 1].first <= event) run++;
    bool is_in_run = run < phases->runs.count && phases->runs.items[run].first <= event;
    tsr_phase phase = is_in_run ? (tsr_phase)phases->runs.items[run].phase : TSR_PHASE_UNKNOWN;
    if (event == e->at.first) begin_step(&e->step, &sweep, before);
    if (event >= e->at.first) measure_event(e, phase, &sweep);
    before = sweep.totals.allocated_bytes;
    step += event == e->at.last;
  }
  tsr__sweep_release(&sweep);
  return 0;
}

/* The step that an event is in, or the next one; `count` after the last. */
static size_t entry_at(const meter *m, uint32_t event) {
  size_t low = 0, high = m->count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (m->entries[middle].at.last < event)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

static void weigh_state(const meter *m, size_t allocation, work *own) {
  const tsr__timeline *t = m->s->timeline;
  uint32_t birth = t->birth.items[allocation], death = t->death.items[allocation];
  uint64_t size = t->events.size[birth];
  own->state_bytes = tsr__sum_u64(own->state_bytes, size);
  size_t gone = death == TSR_NONE ? m->count : entry_at(m, death);
  if (gone == m->count) return;
  work *other = &m->entries[gone].work;
  other->replaced_bytes = tsr__sum_u64(other->replaced_bytes, size);
}

static void weigh_work(const meter *m) {
  const tsr__timeline *t = m->s->timeline;
  size_t step = 0;
  for (size_t i = t->initial.count; i < t->birth.count; i++) {
    uint32_t birth = t->birth.items[i];
    while (step < m->count && m->entries[step].at.last < birth) step++;
    if (step == m->count) break;
    if (birth < m->entries[step].at.first) continue;
    work *w = &m->entries[step].work;
    tsr__bag_add(&w->bag, tsr__symbol(m->s->roles, &t->events, birth));
    w->bytes = tsr__sum_u64(w->bytes, t->events.size[birth]);
    bool survives = t->death.items[i] > m->entries[step].at.last;
    if (survives && tsr__phases_at(m->s->phases, birth) == TSR_PHASE_OPTIMIZER)
      weigh_state(m, i, w);
  }
}

/* ---- Folding ---- */

static int compare_u64(const void *a, const void *b) {
  const uint64_t *x = a, *y = b;
  return (*x > *y) - (*x < *y);
}

static uint64_t middle_of(uint64_t *values, size_t count) {
  if (!count) return 0;
  tsr__sort(values, count, sizeof *values, compare_u64);
  return values[count / 2];
}

/* The peak of the middle one of the later half of a loop's whole steps. */
static uint64_t usual_peak(const meter *m) {
  size_t count = 0;
  for (size_t i = m->whole_count / 2; i < m->whole_count; i++)
    m->scratch[count++] = m->of_loop[i]->step.peak_bytes;
  return middle_of(m->scratch, count);
}

static bool is_near(uint64_t bytes, uint64_t usual) {
  uint64_t off = bytes > usual ? bytes - usual : usual - bytes;
  return off <= usual / 100;
}

/* Whether a step leaves no more behind than another, but for a twentieth of their peak. */
static bool leaves_no_more(const tsr_step *a, const tsr_step *b) {
  uint64_t peak = a->peak_bytes > b->peak_bytes ? a->peak_bytes : b->peak_bytes;
  uint64_t x = tsr__sum_u64(a->end_bytes, b->start_bytes);
  uint64_t y = tsr__sum_u64(b->end_bytes, a->start_bytes);
  return x <= y || x - y <= peak / 20;
}

/* Whether a step does what most of the whole steps in the later half do; some of them, evenly chosen, are
 * compared. */
static bool does_usual(const meter *m, const entry *e) {
  enum { COMPARED = 16 };
  uint64_t later = m->whole_count / 2, compared = 0, alike = 0;
  uint64_t stride = (m->whole_count - later + COMPARED - 1) / COMPARED;
  for (size_t i = later; i < m->whole_count; i += stride) {
    const entry *other = m->of_loop[i];
    compared++;
    alike += tsr__bag_likeness(&e->work.bag, &other->work.bag) >= SAME_WORK &&
             leaves_no_more(&e->step, &other->step);
  }
  return compared && alike * 2 >= compared;
}

/* Sizes may grow from step to step, but not many times over: a prompt is not like a token. */
static bool is_as_large_as_next(const meter *m, size_t index) {
  if (index + 1 == m->whole_count) return true;
  uint64_t a = m->of_loop[index]->work.bytes, b = m->of_loop[index + 1]->work.bytes;
  return a / TIMES_LARGER <= b && b / TIMES_LARGER <= a;
}

/* What the optimizer of a step adds to its state. */
static uint64_t new_state(const entry *e) {
  const work *w = &e->work;
  return w->state_bytes > w->replaced_bytes ? w->state_bytes - w->replaced_bytes : 0;
}

/* The middle one of the later half's. */
static uint64_t usual_state(const meter *m) {
  size_t count = 0;
  for (size_t i = m->whole_count / 2; i < m->whole_count; i++)
    m->scratch[count++] = new_state(m->of_loop[i]);
  return middle_of(m->scratch, count);
}

/* Past the last step of the earlier half whose optimizer makes state that counts: the steps before it lacked that,
 * whatever they do alike. */
static size_t end_of_new_state(const meter *m, uint64_t usual, uint64_t state) {
  for (size_t i = m->whole_count / 2; i-- > 0;)
    if (tsr__drop_u64(new_state(m->of_loop[i]), state) > usual / 100) return i + 1;
  return 0;
}

static void part_warmup(const meter *m) {
  uint64_t usual = usual_peak(m), state = usual_state(m);
  size_t first = end_of_new_state(m, usual, state);
  bool is_warm = false;
  for (size_t i = 0; i < m->whole_count; i++) {
    tsr_step *step = &m->of_loop[i]->step;
    bool makes_state = new_state(m->of_loop[i]) > state;
    bool is_usual = is_near(step->peak_bytes, usual) ||
                    (does_usual(m, m->of_loop[i]) && is_as_large_as_next(m, i));
    is_warm |= i >= m->whole_count / 2 || (i >= first && is_usual && !makes_state);
    step->is_steady = is_warm;
  }
}

static void fold_steps(const meter *m, tsr_steps_loop *out) {
  size_t count = 0;
  for (size_t i = 0; i < m->whole_count; i++) {
    const tsr_step *step = &m->of_loop[i]->step;
    if (!step->is_steady && step->peak_bytes > out->warmup_peak_bytes)
      out->warmup_peak_bytes = step->peak_bytes;
    if (!step->is_steady) continue;
    if (!count || step->peak_bytes > out->steady_peak_bytes) {
      out->steady_peak_bytes = step->peak_bytes;
      out->steady_peak_event = step->peak_event;
    }
    if (!count || step->peak_bytes < out->steady_low_bytes)
      out->steady_low_bytes = step->peak_bytes;
    m->scratch[count++] = step->allocations;
  }
  out->whole_count = m->whole_count;
  out->steady_count = count;
  out->step_allocations = middle_of(m->scratch, count);
  if (out->warmup_peak_bytes > out->steady_peak_bytes)
    out->warmup_surplus_bytes = out->warmup_peak_bytes - out->steady_peak_bytes;
}

/* By how much memory grows from each steady step to the next, if it does as far as the end: nothing of it is given
 * back, and nearly all of them begin with more than the one before, together with more than a hundredth of their
 * peak. The first one begins with what was there before the loop. */
static void fold_growth(const meter *m, tsr_steps_loop *out) {
  enum { STEPS_NEEDED = 4 };
  size_t first = m->whole_count - out->steady_count, count = 0, grown = 0;
  uint64_t all = 0, last = 0;
  if (out->steady_count < STEPS_NEEDED) return;
  for (size_t i = first + 2; i < m->whole_count; i++) {
    uint64_t before = m->of_loop[i - 1]->step.start_bytes, bytes = m->of_loop[i]->step.start_bytes;
    if (bytes < before) return;
    last = m->scratch[count++] = bytes - before;
    all = tsr__sum_u64(all, last);
    grown += last != 0;
  }
  if (last && grown * 4 >= count * 3 && all > out->steady_peak_bytes / 100)
    out->growth_bytes = middle_of(m->scratch, count);
}

/* How long a step takes: up to the first event of the next one. Where another loop or nothing follows, it counts only if it
 * is alone; what the program does after its last event is unknown, so that is a lower bound. */
static bool time_of(const meter *m, const entry *e, bool is_alone, uint64_t *time_us) {
  size_t index = (size_t)(e - m->entries);
  bool is_followed =
      index + 1 < m->count && e[1].loop == e->loop && e[1].at.first == e->at.last + 1;
  if (!is_followed && !is_alone) return false;
  int64_t end = is_followed ? e[1].step.first_time_us : e->step.last_time_us;
  int64_t begin = e->step.first_time_us;
  if (begin == TSR_TIME_NONE || end == TSR_TIME_NONE || end < begin) return false;
  *time_us = (uint64_t)end - (uint64_t)begin;
  return true;
}

static void fold_times(const meter *m, tsr_steps_loop *out) {
  size_t count = 0;
  for (size_t i = 0; i < m->whole_count; i++)
    if (m->of_loop[i]->step.is_steady &&
        time_of(m, m->of_loop[i], out->steady_count == 1, &m->scratch[count]))
      count++;
  uint64_t middle = middle_of(m->scratch, count);
  out->step_time_us = count && middle <= INT64_MAX ? (int64_t)middle : TSR_TIME_NONE;
}

static void fold_loop(meter *m, uint32_t index) {
  tsr_steps_loop *out = &m->out->loops[index];
  const tsr__loop *loop = &m->s->cycle->loops.items[index];
  size_t seen = 0;
  m->whole_count = 0;
  for (size_t i = 0; i < m->count; i++) {
    entry *e = &m->entries[i];
    if (e->loop != index) continue;
    if (!seen || e->step.peak_bytes > out->peak_bytes) {
      out->peak_bytes = e->step.peak_bytes;
      out->peak_event = e->step.peak_event;
      out->peak_step = loop->numbers.items[seen];
    }
    seen++;
    if (e->at.is_whole) m->of_loop[m->whole_count++] = e;
  }
  part_warmup(m);
  fold_steps(m, out);
  fold_growth(m, out);
  fold_times(m, out);
}

/* The loop that trains and peaks highest, then any. */
static void choose_main(tsr_steps_device *out) {
  tsr_steps_loop *best = NULL;
  for (size_t i = 0; i < out->loop_count; i++) {
    tsr_steps_loop *loop = &out->loops[i];
    if (!loop->is_listed) continue;
    bool has_whole = loop->whole_count != 0, best_whole = best && best->whole_count != 0;
    if (!best || (has_whole && !best_whole) ||
        (has_whole == best_whole && loop->peak_bytes > best->peak_bytes))
      best = loop;
  }
  if (best) best->is_main = true;
  out->main_loop = best;
}

static void find_peak(const meter *m) {
  const tsr__timeline *t = m->s->timeline;
  tsr_steps_peak *peak = &m->out->peak;
  *peak = (tsr_steps_peak){t->allocated_event, t->maxima.allocated_bytes, TSR_PHASE_UNKNOWN,
                           TSR_NONE, 0};
  if (peak->event < 0) return;
  peak->phase = tsr__phases_at(m->s->phases, (uint32_t)peak->event);
  for (uint32_t i = 0; i < m->out->loop_count; i++) {
    const tsr__loop *loop = &m->s->cycle->loops.items[i];
    for (size_t k = 0; k < loop->steps.count; k++) {
      const tsr__cycle_step *step = &loop->steps.items[k];
      if (step->first > (uint64_t)peak->event || step->last < (uint64_t)peak->event) continue;
      peak->loop = i;
      peak->step = loop->numbers.items[k];
    }
  }
  /* Outside of loops, neighbours say little of what the program does. */
  const tsr__phase_run *run = tsr__phases_run_at(m->s->phases, (uint32_t)peak->event);
  if (peak->loop == TSR_NONE && run && !run->is_known) peak->phase = TSR_PHASE_UNKNOWN;
}

static void fold_phases(const meter *m) {
  tsr_steps_device *out = m->out;
  for (int p = 0; p < TSR_PHASE_COUNT && out->main_loop; p++) {
    tsr_step_phase phase = {.phase = (tsr_phase)p};
    for (size_t i = 0; i < m->count; i++) {
      const entry *e = &m->entries[i];
      const phase_peak *peak = &e->peaks.of[p];
      if (&out->loops[e->loop] != out->main_loop) continue;
      if (!peak->is_there || (out->main_loop->steady_count && !e->step.is_steady)) continue;
      if (!phase.steps++ || peak->bytes > phase.peak_bytes) {
        phase.peak_bytes = peak->bytes;
        phase.peak_event = peak->event;
      }
    }
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

/* What the events from `from` to `to` allocate. */
static bool read_symbols(const tsr__stepping *s, uint32_t from, uint32_t to, tsr__map *out) {
  const tsr_events *events = &s->timeline->events;
  for (uint32_t e = from; e < to; e++)
    if (events->action[e] == TSR_ACTION_ALLOC &&
        !tsr__map_put(out, tsr__symbol(s->roles, events, e), 1, NULL))
      return false;
  return true;
}

/* An optimizer's step must end its step: it is inside, and nothing that the step does before it is done after it.
 * An evaluation may follow. False if out of memory. */
static bool ends_step(const tsr__stepping *s, const tsr__marked *range, bool *ends) {
  const tsr__cycle_step *step = step_at(&s->cycle->steps, range->first);
  const tsr_events *events = &s->timeline->events;
  tsr__map before = {0};
  *ends = step && range->last <= step->last;
  bool ok = !*ends || read_symbols(s, step->first, range->first, &before);
  for (uint32_t e = range->last + 1; ok && *ends && e <= step->last; e++)
    if (events->action[e] == TSR_ACTION_ALLOC)
      *ends = !tsr__map_find(&before, tsr__symbol(s->roles, events, e));
  tsr__map_release(&before);
  return ok;
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

static bool compare_annotations(const tsr__stepping *s, tsr_steps_device *out) {
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
      bool ends;
      if (!ends_step(s, range, &ends)) return false;
      optimizer.ranges++;
      optimizer.matched += step != last_ended && ends;
      last_ended = step;
    }
  }
  if (optimizer.ranges) out->annotations[out->annotation_count++] = optimizer;
  if (profiler.ranges) out->annotations[out->annotation_count++] = profiler;
  return true;
}

/* ---- One device ---- */

static int compare_entries(const void *a, const void *b) {
  const entry *x = a, *y = b;
  return (x->at.first > y->at.first) - (x->at.first < y->at.first);
}

static tsr_step step_of(const meter *m, const tsr__cycle_step *step, uint32_t loop) {
  const tsr_events *events = &m->s->timeline->events;
  int64_t stop = m->out->stop.event;
  assert(step->first <= step->last && step->last < events->count);
  bool is_dead = !step->is_whole && stop >= step->first && stop <= step->last;
  return (tsr_step){.first_event = step->first,
                    .last_event = step->last,
                    .first_time_us = events->time_us[step->first],
                    .last_time_us = events->time_us[step->last],
                    .is_whole = step->is_whole,
                    .is_dead = is_dead,
                    .loop = loop};
}

static void list_loops(meter *m) {
  const tsr__cycle *cycle = m->s->cycle;
  for (uint32_t i = 0; i < cycle->loops.count; i++) {
    const tsr__loop *loop = &cycle->loops.items[i];
    size_t count = loop->steps.count;
    m->out->loops[i] = (tsr_steps_loop){.unit = loop->unit,
                                        .frame = loop->frame,
                                        .is_listed = loop->is_listed,
                                        .first_step = loop->numbers.items[0],
                                        .last_step = loop->numbers.items[count - 1],
                                        .first_event = loop->steps.items[0].first,
                                        .last_event = loop->steps.items[count - 1].last,
                                        .step_count = count};
    for (size_t k = 0; k < count; k++) {
      const tsr__cycle_step *step = &loop->steps.items[k];
      m->entries[m->count++] = (entry){.at = *step, .loop = i, .step = step_of(m, step, i)};
    }
  }
  tsr__sort(m->entries, m->count, sizeof *m->entries, compare_entries);
}

static void hand_over(const meter *m) {
  tsr_steps_device *out = m->out;
  const tsr__cycle *cycle = m->s->cycle;
  out->basis = cycle->basis;
  out->unit = cycle->unit;
  out->counts_backwards = cycle->counts_backwards;
  out->event_count = m->s->timeline->events.count;
  out->has_history = tsr__has_history(&m->s->timeline->events);
  for (size_t i = 0; i < m->count; i++) {
    const tsr_step *step = &m->entries[i].step;
    if (!out->loops[step->loop].is_listed) continue;
    out->steps[out->step_count++] = *step;
    out->whole_count += step->is_whole;
    out->steady_count += step->is_steady;
  }
  assert(out->step_count == cycle->steps.count);
}

static int fill(const tsr__stepping *s, tsr_steps_device *out, tsr_error *error) {
  size_t count = 0, loops = s->cycle->loops.count;
  for (size_t i = 0; i < loops; i++) count += s->cycle->loops.items[i].steps.count;
  meter m = {.s = s, .out = out};
  m.entries = TSR__NEW_ARRAY(entry, count);
  m.of_loop = TSR__NEW_ARRAY(entry *, count);
  m.scratch = TSR__NEW_ARRAY(uint64_t, count);
  out->steps = TSR__NEW_ARRAY(tsr_step, s->cycle->steps.count);
  out->loops = TSR__NEW_ARRAY(tsr_steps_loop, loops);
  out->warnings = tsr__copy_warnings(s->timeline, &out->warning_count);
  bool ok = m.entries && m.of_loop && m.scratch && out->steps && out->loops && out->warnings;
  int status = 0;
  if (ok) status = tsr__stepping_stop(s, &out->stop, error);
  if (ok && !status) {
    out->loop_count = loops;
    list_loops(&m);
    status = measure(&m, error);
    weigh_work(&m);
    for (uint32_t i = 0; i < loops; i++) fold_loop(&m, i);
    choose_main(out);
    fold_phases(&m);
    find_peak(&m);
    hand_over(&m);
    ok = compare_annotations(s, out);
  }
  tsr__free(m.entries);
  tsr__free(m.of_loop);
  tsr__free(m.scratch);
  return ok ? status : tsr__fail_memory(error);
}

/* In which of the loops that grow `leaks` finds what does. */
static int find_leaks(const tsr__asking *asking, tsr_steps_device *out, tsr_error *error) {
  tsr_query query = {.struct_bytes = sizeof query, .devices = &out->device, .device_count = 1};
  tsr_leaks *leaks;
  bool grows = false;
  for (size_t i = 0; i < out->loop_count; i++) grows |= out->loops[i].growth_bytes != 0;
  if (!grows) return 0;
  int status = tsr_leaks_compute(asking->study, &query, &leaks, error);
  if (status) return status;
  assert(leaks->device_count == 1 && leaks->devices->loop_count >= out->loop_count);
  for (size_t i = 0; i < out->loop_count; i++)
    out->loops[i].is_leaking = out->loops[i].growth_bytes && leaks->devices->loops[i].leak_count;
  tsr_leaks_free(leaks);
  return 0;
}

static int describe(const tsr__asking *asking, uint32_t device, void *part, tsr_error *error) {
  tsr_steps_device *out = part;
  tsr__stepping s;
  out->device = device;
  int status = tsr__stepping_find(asking->study, device, &s, error);
  if (!status) status = fill(&s, out, error);
  if (!status) status = find_leaks(asking, out, error);
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
    tsr__free(steps->devices[i].loops);
    tsr__free(steps->devices[i].warnings);
  }
  tsr__free(steps->devices);
  tsr__free(steps);
}
