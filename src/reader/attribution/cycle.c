/* cycle.c - steps by the phases of a trace. See cycle.h.
 *
 * A step ends where the optimizer's does, since nothing that follows needs what the step made:
 *
 *   setup | data forward backward optimizer | zero_grad data forward backward optimizer | ...
 *
 * Optimizer steps without a backward pass between them are one (several parameter groups, several
 * optimizers). If no optimizer allocates, a step ends with a backward pass that is followed by
 * zero_grad or, if that is not visible either, with every backward pass. The resulting ranges are
 * compared by what trains in them: if every second one is alike, and neighbours are not, two make a step (a
 * generator and a discriminator), and so on, unless the profiler's marks know better.
 *
 * Without a backward pass, annotations of steps decide; else the loop in the user's Python (loop.c); else, if
 * no stack shows a forward pass, what repeats in the sequence of allocations (sequence.c).
 *
 * A step in which memory ran out is not whole, unless what ends a step was still reached. The steps before it
 * are: a forward pass that begins after an optimizer's step begins a new one even if it dies at its first
 * request, and if the profiler's mark around it never ends. */
#include "attribution/cycle.h"

#include "base/memory.h"
#include <assert.h>

enum { STRETCHES_MAX = 4 }; /* stretches that may make a step */

/* ---- Similarity ---- */

void tsr__bag_add(tsr__bag *bag, uint64_t symbol) {
  bag->place[tsr__mix(symbol, 1) % TSR__BAG_PLACES]++;
  bag->count++;
}

double tsr__bag_likeness(const tsr__bag *a, const tsr__bag *b) {
  uint64_t common = 0, larger = a->count > b->count ? a->count : b->count;
  for (size_t i = 0; i < TSR__BAG_PLACES; i++)
    common += a->place[i] < b->place[i] ? a->place[i] : b->place[i];
  assert(common <= larger);
  return larger ? (double)common / (double)larger : 1;
}

uint64_t tsr__symbol(const tsr__roles *roles, const tsr_events *events, uint64_t event) {
  assert(event < events->count);
  uint32_t stack = events->stack[event];
  if (stack < roles->count && !roles->is_empty[stack]) return stack;
  return events->size[event] + (UINT64_C(1) << 32);
}

/* ---- Where ranges end ---- */

typedef TSR__VECTOR(uint32_t) bounds;

static bool is_backward(uint8_t phase) {
  return phase == TSR_PHASE_BACKWARD || phase == TSR_PHASE_RECOMPUTE;
}

/* Whether what a program does in a phase is part of a step. */
static bool is_of_step(uint8_t phase) {
  return phase != TSR_PHASE_UNKNOWN && phase != TSR_PHASE_SETUP;
}

static bool has_phase(const tsr__phases *phases, tsr_phase phase) {
  for (size_t i = 0; i < phases->runs.count; i++)
    if (phases->runs.items[i].phase == phase) return true;
  return false;
}

/* The gap between one backward pass and the next, or after the last. */
typedef struct gap {
  uint32_t backward;        /* the event at which the backward pass before it begins */
  uint32_t after_backward;  /* the event at which another phase begins; 0: none does */
  uint32_t after_optimizer; /* the same after the optimizer's last run in it; 0: absent */
  uint32_t next_backward;   /* where it ends; UINT32_MAX: with the trace */
  bool has_optimizer, has_zero_grad;
} gap;

typedef TSR__VECTOR(gap) gaps;

static bool find_gaps(const tsr__phases *phases, gaps *out) {
  gap *g = NULL;
  for (size_t i = 0; i < phases->runs.count; i++) {
    const tsr__phase_run *run = &phases->runs.items[i];
    bool follows_backward = i && is_backward(phases->runs.items[i - 1].phase);
    if (is_backward(run->phase)) {
      if (g && !follows_backward) g->next_backward = run->first;
      if (!follows_backward &&
          !TSR__VECTOR_PUSH(out, (gap){.backward = run->first, .next_backward = UINT32_MAX}))
        return false;
      g = &out->items[out->count - 1];
      continue;
    }
    if (!g) continue;
    if (follows_backward) g->after_backward = run->first;
    /* Events before the next known phase, such as logging, still belong to the step. */
    if (run->phase == TSR_PHASE_OPTIMIZER)
      g->after_optimizer = 0;
    else if (g->has_optimizer && !g->after_optimizer && run->phase != TSR_PHASE_UNKNOWN)
      g->after_optimizer = run->first;
    g->has_optimizer |= run->phase == TSR_PHASE_OPTIMIZER;
    g->has_zero_grad |= run->phase == TSR_PHASE_ZERO_GRAD;
  }
  return true;
}

static bool shows_end(const gap *g) {
  return g->has_optimizer || g->has_zero_grad;
}

/* Whether the profiler's marks have a step that goes on at the event `bound`, at which phases would end one.
 * They are not believed if the step is open, has several ends in it, or memory runs out later in it: then it
 * was closed by the exception, or stands for the whole run. */
static bool goes_on(const gap *g, uint32_t bound, const tsr__marked_ranges *ranges,
                    const tsr__failure *stop) {
  for (size_t i = 0; i < ranges->count; i++) {
    const tsr__marked *range = &ranges->items[i];
    if (!range->is_step || range->first > g->backward || range->last < bound) continue;
    if (!shows_end(g)) return true;
    bool is_one = range->last < g->next_backward;
    bool died = stop && stop->event >= bound && stop->event <= range->last;
    if (is_one && !range->is_open && !died) return true;
  }
  return false;
}

/* Where a step ends in a gap that ends one. The profiler's own marks decide if there are any; 0: the
 * gap belongs to the last step. `stop`: where memory ran out for good, or NULL. */
static uint32_t bound_in(const gap *g, const tsr__marked_ranges *ranges, const tsr__failure *stop) {
  for (size_t i = 0; i < ranges->count; i++) {
    if (!ranges->items[i].is_step) continue;
    uint32_t first = ranges->items[i].first;
    if (g->after_backward && first >= g->after_backward && first < g->next_backward) return first;
  }
  uint32_t bound = g->has_optimizer ? g->after_optimizer : g->after_backward;
  return bound && goes_on(g, bound, ranges, stop) ? 0 : bound;
}

static bool has_marked_steps(const tsr__marked_ranges *ranges) {
  for (size_t i = 0; i < ranges->count; i++)
    if (ranges->items[i].is_step) return true;
  return false;
}

/* How many backward passes a step has, if all that shows is one optimizer's step, the first, because only that
 * allocates: as many as came before it. */
static size_t backwards_a_step(const gaps *list) {
  for (size_t i = 0; i < list->count; i++)
    if (list->items[i].has_optimizer) return i + 1;
  return 1;
}

/* Which gaps end a step: those with an optimizer's step or a zero_grad in them, because others belong
 * to gradient accumulation. But an optimizer that allocates in its first step only is not visible
 * later, and if neither is visible, each gap ends a step. */
static bool find_bounds(const tsr__phases *phases, const tsr__failure *stop, tsr_phase *by,
                        tsr__cycle *cycle, bounds *out) {
  const tsr__marked_ranges *ranges = &phases->marked;
  gaps list = {0};
  bool ok = find_gaps(phases, &list);
  size_t optimizers = 0, zero_grads = 0;
  for (size_t i = 0; i < list.count; i++) {
    optimizers += list.items[i].has_optimizer;
    zero_grads += list.items[i].has_zero_grad;
  }
  bool is_shown = zero_grads || optimizers > 1 || list.count == 1;
  bool is_everywhere = optimizers != 0; /* every step ends with an optimizer */
  size_t backwards = is_shown ? 1 : backwards_a_step(&list);
  cycle->counts_backwards = !optimizers && !zero_grads && !has_marked_steps(ranges);
  for (size_t i = 0; ok && i < list.count; i++) {
    const gap *g = &list.items[i];
    if (is_shown && !shows_end(g)) continue;
    if ((i + 1) % backwards) continue;
    uint32_t bound = bound_in(g, ranges, stop);
    if (bound) ok = TSR__VECTOR_PUSH(out, bound);
    if (!g->has_optimizer) is_everywhere = false;
  }
  *by = is_everywhere ? TSR_PHASE_OPTIMIZER : TSR_PHASE_BACKWARD;
  TSR__VECTOR_FREE(&list);
  return ok;
}

/* ---- Stretches ---- */

typedef struct stretch {
  tsr__cycle_step step;
  tsr__bag bag;        /* of what trains: an evaluation before the step is left out */
  uint32_t backward;   /* the first event of a backward pass; UINT32_MAX if absent */
  uint32_t core_count; /* of these, in forward and backward: optimizers differ */
  bool has_forward, has_backward, has_end;
} stretch;

typedef TSR__VECTOR(stretch) stretches;

/* The first event of a step, ignoring setup. */
static uint32_t first_event(const tsr__phases *phases) {
  for (size_t i = 0; i < phases->runs.count; i++)
    if (phases->runs.items[i].phase != TSR_PHASE_SETUP) return phases->runs.items[i].first;
  return 0;
}

static bool make_stretches(const tsr__timeline *t, const tsr__phases *phases, const bounds *at,
                           stretches *out) {
  uint32_t first = first_event(phases), end = (uint32_t)t->events.count;
  for (size_t i = 0; i <= at->count; i++) {
    uint32_t past = i < at->count ? at->items[i] : end;
    if (past <= first) continue;
    stretch s = {.step = {.first = first, .last = past - 1}, .backward = UINT32_MAX};
    if (!TSR__VECTOR_PUSH(out, s)) return false;
    first = past;
  }
  return true;
}

static bool is_core(uint8_t phase) {
  return phase == TSR_PHASE_FORWARD || is_backward(phase);
}

/* Whether an allocation is part of training: made by a backward pass or an optimizer, or made before a backward pass
 * and freed in it or after it. What an evaluation makes is not, even if it is kept. */
static bool is_of_training(const stretch *at, uint8_t phase, uint32_t birth, uint32_t death) {
  bool is_saved = birth < at->backward && at->backward < death && death <= at->step.last;
  return at->backward != UINT32_MAX &&
         (is_backward(phase) || phase == TSR_PHASE_OPTIMIZER || is_saved);
}

static void describe_stretches(const tsr__timeline *t, const tsr__roles *roles,
                               const tsr__phases *phases, tsr_phase by, stretches *list) {
  size_t s = 0;
  for (size_t i = 0; i < phases->runs.count; i++) {
    const tsr__phase_run *run = &phases->runs.items[i];
    while (s + 1 < list->count && list->items[s].step.last < run->first) s++;
    stretch *at = &list->items[s];
    if (run->first < at->step.first) continue;
    at->has_forward |= run->phase == TSR_PHASE_FORWARD;
    at->has_backward |= is_backward(run->phase);
    if (is_backward(run->phase) && at->backward == UINT32_MAX) at->backward = run->first;
    at->has_end |= run->phase == by;
  }
  s = 0;
  size_t r = 0;
  for (size_t i = t->initial.count; i < t->birth.count; i++) {
    uint32_t birth = t->birth.items[i];
    while (s + 1 < list->count && list->items[s].step.last < birth) s++;
    while (r + 1 < phases->runs.count && phases->runs.items[r + 1].first <= birth) r++;
    stretch *at = &list->items[s];
    uint8_t phase = phases->runs.items[r].phase;
    uint64_t symbol = tsr__symbol(roles, &t->events, birth);
    if (birth < at->step.first) continue;
    if (!is_of_training(at, phase, birth, t->death.items[i])) continue;
    tsr__bag_add(&at->bag, symbol);
    at->core_count += is_core(phase);
  }
}

/* A range without forward and backward is the rest after the last step, and belongs to it, unless memory ran
 * out in it: what has begun after an end is a step that died early. */
static void drop_tail(stretches *list, const tsr__failure *stop) {
  while (list->count > 1) {
    const stretch *last = &list->items[list->count - 1];
    bool died = stop && is_of_step(stop->phase) && stop->event >= last->step.first;
    if (last->has_forward || last->has_backward || died) return;
    list->items[list->count - 2].step.last = list->items[list->count - 1].step.last;
    list->count--;
  }
}

static double likeness_at(const stretches *list, size_t distance) {
  double sum = 0;
  size_t pairs = 0;
  for (size_t i = 0; i + distance < list->count; i++, pairs++)
    sum += tsr__bag_likeness(&list->items[i].bag, &list->items[i + distance].bag);
  return pairs ? sum / (double)pairs : 0;
}

/* Whether the profiler's marks begin a step within steps of `n` ranges. */
static bool is_parted(const stretches *list, size_t n, const tsr__marked_ranges *ranges) {
  size_t at = 0;
  for (size_t i = 0; i < ranges->count; i++) {
    if (!ranges->items[i].is_step) continue;
    while (at < list->count && list->items[at].step.first < ranges->items[i].first) at++;
    if (at < list->count && list->items[at].step.first == ranges->items[i].first && at % n)
      return true;
  }
  return false;
}

/* The number of ranges in a step: the smallest at which the similarity is clearly better. */
static size_t stretches_a_step(const stretches *list, const tsr__marked_ranges *ranges) {
  double of_neighbours = likeness_at(list, 1);
  for (size_t n = 2; n <= STRETCHES_MAX && n * 2 <= list->count; n++) {
    double likeness = likeness_at(list, n);
    if (likeness > 0.8 && likeness > of_neighbours + 0.15 && !is_parted(list, n, ranges)) return n;
  }
  return 1;
}

/* Whether most of a stretch is also in another: then how much of it there is can be compared. */
static bool is_part_of(const stretch *s, const stretch *other) {
  uint64_t common = 0;
  for (size_t i = 0; i < TSR__BAG_PLACES; i++)
    common += s->bag.place[i] < other->bag.place[i] ? s->bag.place[i] : other->bag.place[i];
  return common * 2 >= s->bag.count;
}

/* Allocations that a stretch like its neighbours has. Of two the smaller, since where another model is
 * trained next the larger says nothing. */
static uint32_t usual_count(const stretches *list, size_t at) {
  uint32_t usual = UINT32_MAX;
  for (size_t i = at ? at - 1 : at + 1; i <= at + 1 && i < list->count; i += 2)
    if (is_part_of(&list->items[at], &list->items[i]) && list->items[i].core_count < usual)
      usual = list->items[i].core_count;
  return usual == UINT32_MAX ? 0 : usual;
}

/* Whole: has everything that a step has, and not much less of it than other steps. */
static bool is_whole(const stretch *s, tsr_phase by, uint32_t usual) {
  bool ends = by == TSR_PHASE_OPTIMIZER ? s->has_end : s->has_backward;
  return s->has_forward && s->has_backward && ends && s->core_count >= usual - usual / 10;
}

static bool join_stretches(const stretches *list, const tsr__marked_ranges *ranges, tsr_phase by,
                           tsr__cycle_steps *out) {
  size_t n = stretches_a_step(list, ranges);
  for (size_t i = 0; i < list->count; i += n) {
    size_t past = i + n < list->count ? i + n : list->count;
    tsr__cycle_step step = {list->items[i].step.first, list->items[past - 1].step.last,
                            past - i == n};
    for (size_t k = i; k < past; k++)
      step.is_whole &= is_whole(&list->items[k], by, n == 1 ? usual_count(list, k) : 0);
    if (!TSR__VECTOR_PUSH(out, step)) return false;
  }
  return true;
}

static bool find_by_phases(const tsr__timeline *t, const tsr__roles *roles,
                           const tsr__phases *phases, const tsr__failure *stop, tsr_phase *by,
                           tsr__cycle *cycle) {
  bounds at = {0};
  stretches list = {0};
  bool ok = find_bounds(phases, stop, by, cycle, &at) && make_stretches(t, phases, &at, &list);
  if (ok && list.count) {
    describe_stretches(t, roles, phases, *by, &list);
    drop_tail(&list, stop);
    ok = join_stretches(&list, &phases->marked, *by, &cycle->steps);
  }
  TSR__VECTOR_FREE(&at);
  TSR__VECTOR_FREE(&list);
  return ok;
}

/* ---- Steps by annotations ---- */

/* Each ProfilerStep begins a step; without them, each optimizer's step ends one. */
static bool find_by_annotations(const tsr__timeline *t, const tsr__phases *phases,
                                tsr__cycle_steps *out, bool *has_optimizer) {
  const tsr__marked_ranges *ranges = &phases->marked;
  bool ok = true, has_steps = false;
  uint32_t end = (uint32_t)t->events.count, first = first_event(phases);
  for (size_t i = 0; i < ranges->count; i++) {
    has_steps |= ranges->items[i].is_step;
    *has_optimizer |= ranges->items[i].is_optimizer_step;
  }
  for (size_t i = 0; ok && i < ranges->count; i++) {
    const tsr__marked *range = &ranges->items[i];
    if (has_steps ? !range->is_step : !range->is_optimizer_step) continue;
    if (has_steps && out->count) out->items[out->count - 1].last = range->first - 1;
    if (has_steps) first = range->first;
    if (range->last < first || (out->count && first <= out->items[out->count - 1].first)) continue;
    ok = TSR__VECTOR_PUSH(out, (tsr__cycle_step){first, range->last, !range->is_open});
    first = range->last + 1;
  }
  if (ok && out->count && !has_steps && first < end) {
    bool allocates = false;
    for (uint32_t e = first; e < end; e++)
      allocates |= t->events.action[e] == TSR_ACTION_ALLOC || t->events.action[e] == TSR_ACTION_OOM;
    if (allocates)
      ok = TSR__VECTOR_PUSH(out, (tsr__cycle_step){first, end - 1, false});
    else
      out->items[out->count - 1].last = end - 1;
  }
  return ok;
}

/* ---- Steps that died ---- */

static bool ends_step(uint8_t phase, tsr_phase by) {
  return by == TSR_PHASE_OPTIMIZER ? phase == TSR_PHASE_OPTIMIZER : is_backward(phase);
}

/* Whether a step reaches its end after an event: something that ends steps allocates. */
static bool ends_after(const tsr__timeline *t, const tsr__phases *phases, tsr_phase by,
                       uint32_t event, uint32_t last) {
  size_t run = 0;
  for (uint32_t e = event + 1; e <= last; e++) {
    while (run + 1 < phases->runs.count && phases->runs.items[run + 1].first <= e) run++;
    if (t->events.action[e] == TSR_ACTION_ALLOC && run < phases->runs.count &&
        ends_step(phases->runs.items[run].phase, by))
      return true;
  }
  return false;
}

/* The last step, if memory ran out in it. `by` is UNKNOWN if nothing runs backward. */
static void mark_dead(const tsr__timeline *t, const tsr__phases *phases, tsr_phase by,
                      tsr__cycle *cycle) {
  if (!cycle->steps.count || !cycle->failures.count) return;
  tsr__cycle_step *step = &cycle->steps.items[cycle->steps.count - 1];
  size_t last = cycle->failures.count;
  while (last && cycle->failures.items[last - 1].event > step->last) last--;
  tsr__failure *failure = last ? &cycle->failures.items[last - 1] : NULL;
  if (!failure || failure->event < step->first) return;
  if (by != TSR_PHASE_UNKNOWN && ends_after(t, phases, by, failure->event, step->last)) {
    failure->is_recovered = true;
    return;
  }
  bool was_done = by == TSR_PHASE_OPTIMIZER && step->is_whole && !is_of_step(failure->phase);
  if (was_done && failure->event > step->first) {
    if (!failure->is_recovered) step->last = failure->event - 1; /* it came after the step */
    return;
  }
  step->is_whole = false;
}

static bool by_annotations_or_repetition(const tsr__timeline *t, const tsr__roles *roles,
                                         const tsr__phases *phases, const tsr__failure *stop,
                                         tsr__cycle *out) {
  bool has_optimizer = false, shows_forward = false;
  if (!find_by_annotations(t, phases, &out->steps, &has_optimizer)) return false;
  bool trains = has_optimizer || phases->is_training_marked;
  out->unit = trains ? TSR_STEPS_UNIT_STEP : TSR_STEPS_UNIT_ITERATION;
  out->basis = TSR_STEPS_ANNOTATIONS;
  if (out->steps.count) return true;
  if (!tsr__loop_find(t, roles, stop, &out->steps, &shows_forward)) return false;
  out->basis = TSR_STEPS_LOOP;
  if (shows_forward) return true;
  out->basis = TSR_STEPS_SEQUENCE;
  return tsr__sequence_find(t, roles, &out->steps);
}

int tsr__cycle_compute(const tsr__timeline *timeline, const tsr__roles *roles,
                       const tsr__phases *phases, tsr__cycle *out, tsr_error *error) {
  tsr__cycle cycle = {0};
  bool trains = has_phase(phases, TSR_PHASE_BACKWARD) || has_phase(phases, TSR_PHASE_RECOMPUTE);
  tsr_phase by = TSR_PHASE_UNKNOWN;
  bool ok = tsr__failures_find(timeline, phases, &cycle);
  const tsr__failure *stop = ok ? tsr__cycle_stop(&cycle) : NULL;
  if (ok)
    ok = trains ? find_by_phases(timeline, roles, phases, stop, &by, &cycle)
                : by_annotations_or_repetition(timeline, roles, phases, stop, &cycle);
  if (ok) mark_dead(timeline, phases, by, &cycle);
  if (ok) ok = tsr__loops_find(timeline, roles, phases, trains, &cycle);
  if (ok) ok = tsr__passes_find(phases, &cycle);
  if (!ok) {
    tsr__cycle_release(&cycle);
    return tsr__fail_memory(error);
  }
  for (size_t i = 0; i < cycle.steps.count; i++) {
    assert(cycle.steps.items[i].first <= cycle.steps.items[i].last);
    assert(!i || cycle.steps.items[i - 1].last < cycle.steps.items[i].first);
  }
  if (trains) cycle.basis = TSR_STEPS_PHASES;
  if (!cycle.steps.count) cycle.basis = TSR_STEPS_NONE;
  tsr__failures_place(timeline, roles, &cycle);
  *out = cycle;
  return 0;
}

void tsr__cycle_release(tsr__cycle *cycle) {
  tsr__loops_release(cycle);
  TSR__VECTOR_FREE(&cycle->steps);
  TSR__VECTOR_FREE(&cycle->passes);
  TSR__VECTOR_FREE(&cycle->failures);
}
