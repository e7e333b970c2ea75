/* answer.c - what survives every step and grows with each.
 *
 * Only allocations that outlive the step in which they were made matter; few do. Each is a plus in
 * its step and, if it dies in a later one, a minus there:
 *
 *   step                0     1     2     3
 *   gradient stack     +G  +G-G  +G-G  +G-G     live at the ends: G G G G       nothing grows
 *   optimizer state    +S     .     .     .                       S S S S       grows once
 *   cache of two       +c    +c  +c-c  +c-c                       c 2c 2c 2c    stops
 *   leak               +l    +l    +l    +l                       l 2l 3l 4l
 *   both, one stack    G+l  G+l-G G+l-G G+l-G                     G+l G+2l ...
 *
 * Changes are grouped by stack (allocations without one by size) and put in order of step. A group
 * leaks when, since it last shrank, it has grown in three steps or more, in bytes and in count, and
 * has not stopped: the time since it last grew is shorter than its longest pause so far. What its
 * second growth replaces - G of the last line - stood there after the first one, and is no part of
 * what leaks. Categories play no part. Each loop of the program is judged by itself: by its own steps. Where
 * loops take turns, as in epochs of training and evaluation, so are the rounds of all of them, for what the program keeps
 * of each:
 *
 *   loop     1 1 1 1 2 2   1 1 1 1 2 2   1 1 1 1 2 2
 *   round    0           K 1           K 2           K */
#include <assert.h>

#include "base/checked.h"
#include "base/map.h"
#include "base/memory.h"
#include "base/sort.h"
#include "questions/shared/devices.h"
#include "questions/shared/names.h"
#include "questions/shared/shares.h"
#include "questions/shared/stepping.h"
#include "tessera/unstable/steps.h"

enum { STEPS_NEEDED = 3, GROWTHS_NEEDED = 3 };

/* A surviving allocation comes, or goes. */
typedef struct change {
  uint32_t group, step;
  uint32_t birth;
  bool is_gone;
  uint64_t bytes;
} change;

/* Whole steps of a loop, and those between: `count` steps and their numbers. */
typedef struct window {
  const tsr__cycle_step *steps;
  const uint32_t *numbers;
  uint32_t loop, count;
} window;

typedef struct finder {
  const tsr__timeline *t;
  const tsr__roles *roles;
  window w;
  tsr__map group_of; /* symbol -> group */
  uint32_t group_count;
  TSR__VECTOR(change) changes;
  size_t first_change; /* of the loop at hand; its groups have larger numbers than earlier loops' */
  TSR__VECTOR(tsr_leak) leaks;
  TSR__VECTOR(uint32_t) groups; /* by leak */
  TSR__VECTOR(uint32_t) ends;   /* by leak: the last event of the last step of its loop */
} finder;

/* ---- Survivors ---- */

static window whole_steps(const tsr__loop *loop, uint32_t index) {
  const tsr__cycle_steps *list = &loop->steps;
  size_t first = 0, past = list->count;
  while (first < past && !list->items[first].is_whole) first++;
  while (past > first && !list->items[past - 1].is_whole) past--;
  assert(first <= past && loop->numbers.count == list->count);
  return (window){list->items + first, loop->numbers.items + first, index,
                  (uint32_t)(past - first)};
}

/* The step that an event is in, given that it is not before the window; `count` after it. */
static uint32_t step_of(const window *w, uint32_t event) {
  uint32_t low = 0, high = w->count;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    if (w->steps[middle].last < event)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

static bool add_survivor(finder *f, uint32_t allocation, uint32_t step) {
  uint32_t birth = f->t->birth.items[allocation], death = f->t->death.items[allocation];
  uint64_t *group =
      tsr__map_put(&f->group_of, tsr__symbol(f->roles, &f->t->events, birth), f->group_count, NULL);
  if (!group) return false;
  assert(*group <= f->group_count && step < f->w.count);
  if (*group == f->group_count) f->group_count++;
  change c = {(uint32_t)*group, step, birth, false, f->t->events.size[birth]};
  if (!TSR__VECTOR_PUSH(&f->changes, c)) return false;
  uint32_t gone = death == TSR_NONE ? f->w.count : step_of(&f->w, death);
  if (gone == f->w.count) return true;
  c.step = gone;
  c.is_gone = true;
  return TSR__VECTOR_PUSH(&f->changes, c);
}

static bool gather(finder *f) {
  uint32_t step = 0;
  for (size_t i = f->t->initial.count; i < f->t->birth.count; i++) {
    uint32_t birth = f->t->birth.items[i];
    while (step < f->w.count && f->w.steps[step].last < birth) step++;
    if (step == f->w.count) break;
    if (birth < f->w.steps[step].first || f->t->death.items[i] <= f->w.steps[step].last) continue;
    if (!add_survivor(f, (uint32_t)i, step)) return false;
  }
  return true;
}

static int compare_changes(const void *a, const void *b) {
  const change *x = a, *y = b;
  if (x->group != y->group) return x->group < y->group ? -1 : 1;
  if (x->step != y->step) return x->step < y->step ? -1 : 1;
  return (x->birth > y->birth) - (x->birth < y->birth);
}

/* ---- Growth ---- */

/* One group as it grows, since it last shrank. */
typedef struct growth {
  int64_t bytes, count; /* grown */
  uint32_t steps;       /* in which it grew */
  uint32_t first, last, longest_pause;
  uint32_t birth; /* of the first allocation in the first of those steps */
} growth;

static int64_t signed_bytes(uint64_t bytes) {
  return bytes > INT64_MAX / 2 ? INT64_MAX / 2 : (int64_t)bytes;
}

/* What a group gains in a step, and how much it frees for that. */
typedef struct gain {
  int64_t bytes, count;
  int64_t freed_bytes, freed_count;
  uint32_t birth; /* of the step's first allocation */
} gain;

/* The first growth, without what the second one replaced. */
static void leave_out_replaced(growth *g, const gain *second) {
  assert(g->steps == 1);
  if (second->freed_count >= g->count || second->freed_bytes >= g->bytes) {
    *g = (growth){0};
    return;
  }
  g->bytes -= second->freed_bytes;
  g->count -= second->freed_count;
}

static void grow(growth *g, uint32_t step, const gain *gained) {
  int64_t bytes = gained->bytes, count = gained->count;
  assert(!g->steps || step > g->last);
  if (bytes == 0 && count == 0) return;
  if (bytes <= 0 || count <= 0) {
    *g = (growth){0};
    return;
  }
  if (g->steps == 1) leave_out_replaced(g, gained);
  if (!g->steps) {
    g->first = g->last = step;
    g->birth = gained->birth;
  } else if (step - g->last > g->longest_pause) {
    g->longest_pause = step - g->last;
  }
  g->last = step;
  g->steps++;
  g->bytes = g->bytes > INT64_MAX / 2 ? g->bytes : g->bytes + bytes;
  g->count += count;
}

static bool is_leak(const finder *f, const growth *g) {
  if (g->steps < GROWTHS_NEEDED) return false;
  return f->w.count - 1 - g->last < g->longest_pause;
}

static bool add_leak(finder *f, const growth *g, uint32_t group) {
  const tsr_events *events = &f->t->events;
  uint32_t stack = events->stack[g->birth];
  bool has_frames = stack < f->roles->count && !f->roles->is_empty[stack];
  assert(g->bytes > 0 && g->count > 0 && g->first < g->last && g->last < f->w.count);
  uint64_t bytes = (uint64_t)g->bytes;
  tsr_leak leak = {.stack = has_frames ? stack : TSR_NONE,
                   .bytes_per_step = bytes / (f->w.count - g->first),
                   .bytes = bytes,
                   .allocations = (uint64_t)g->count,
                   .loop = f->w.loop,
                   .since_step = f->w.numbers[g->first],
                   .growing_steps = g->steps,
                   .first_event = g->birth,
                   .first_time_us = events->time_us[g->birth]};
  return TSR__VECTOR_PUSH(&f->leaks, leak) && TSR__VECTOR_PUSH(&f->groups, group) &&
         TSR__VECTOR_PUSH(&f->ends, f->w.steps[f->w.count - 1].last);
}

/* The changes of one group in one step, from the i-th on. Returns the first that is not one. */
static size_t add_up(const finder *f, size_t i, gain *gained) {
  const change *c = &f->changes.items[i];
  size_t past = i;
  *gained = (gain){.birth = c->birth};
  for (; past < f->changes.count; past++) {
    const change *other = &f->changes.items[past];
    int64_t bytes = signed_bytes(other->bytes);
    if (other->group != c->group || other->step != c->step) break;
    gained->bytes += other->is_gone ? -bytes : bytes;
    gained->count += other->is_gone ? -1 : 1;
    gained->freed_bytes += other->is_gone ? bytes : 0;
    gained->freed_count += other->is_gone;
  }
  return past;
}

static bool judge(finder *f) {
  growth g = {0};
  for (size_t i = f->first_change, past; i < f->changes.count; i = past) {
    const change *c = &f->changes.items[i];
    gain gained;
    past = add_up(f, i, &gained);
    grow(&g, c->step, &gained);
    bool is_last = past == f->changes.count || f->changes.items[past].group != c->group;
    if (is_last && is_leak(f, &g) && !add_leak(f, &g, c->group)) return false;
    if (is_last) g = (growth){0};
  }
  return true;
}

/* ---- Names ---- */

/* Whether an allocation of a leak is among what leaked: made since, and not freed. */
static bool has_leaked(const finder *f, const change *c, uint32_t leak) {
  uint32_t death = f->t->death.items[f->t->allocation_of[c->birth]];
  bool is_live = death == TSR_NONE || death > f->ends.items[leak];
  return !c->is_gone && c->birth >= f->leaks.items[leak].first_event && is_live;
}

/* Give each leak its names; before leaks are sorted. */
static bool name_leaks(finder *f, const tsr__names *names, size_t top, tsr_named **out) {
  if (!f->leaks.count || !tsr__names_any(names)) return true;
  tsr__name_sums sums;
  tsr__name_sums_init(&sums);
  tsr_name_range *ranges = TSR__NEW_ARRAY(tsr_name_range, f->leaks.count);
  uint32_t *leak_of = TSR__NEW_ARRAY(uint32_t, f->group_count); /* by group, plus 1 */
  bool ok = ranges && leak_of;
  for (uint32_t i = 0; ok && i < f->leaks.count; i++) leak_of[f->groups.items[i]] = i + 1;
  for (size_t i = 0; ok && i < f->changes.count; i++) {
    const change *c = &f->changes.items[i];
    uint32_t leak = leak_of[c->group];
    assert(leak <= f->leaks.count);
    if (leak && has_leaked(f, c, leak - 1))
      ok = tsr__name_sums_add(&sums, leak - 1, names, f->t->allocation_of[c->birth]);
  }
  ok = ok && !tsr__name_sums_take(&sums, top, f->leaks.count, ranges, out, NULL);
  for (size_t i = 0; ok && i < f->leaks.count; i++) f->leaks.items[i].names = ranges[i];
  tsr__free(ranges);
  tsr__free(leak_of);
  tsr__name_sums_release(&sums);
  return ok;
}

/* ---- One device ---- */

static int compare_leaks(const void *a, const void *b) {
  const tsr_leak *x = a, *y = b;
  if (x->bytes_per_step != y->bytes_per_step) return x->bytes_per_step < y->bytes_per_step ? 1 : -1;
  if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
  return (x->first_event > y->first_event) - (x->first_event < y->first_event);
}

static void hand_over(finder *f, size_t top, tsr_leaks_device *out) {
  tsr__sort(f->leaks.items, f->leaks.count, sizeof *f->leaks.items, compare_leaks);
  out->leaks = f->leaks.items;
  out->leak_count = f->leaks.count;
  if (!top || out->leak_count <= top) return;
  for (size_t i = top; i < out->leak_count; i++)
    out->omitted_bytes = tsr__sum_u64(out->omitted_bytes, out->leaks[i].bytes_per_step);
  out->omitted_leaks = out->leak_count - top;
  out->leak_count = top;
}

static bool judge_window(finder *f) {
  f->first_change = f->changes.count;
  bool ok = gather(f);
  size_t count = f->changes.count - f->first_change;
  if (ok && count)
    tsr__sort(f->changes.items + f->first_change, count, sizeof *f->changes.items, compare_changes);
  ok = ok && judge(f);
  tsr__map_release(&f->group_of);
  return ok;
}

/* The leaks from the first on are the loop's. */
static void add_up_leaks(const finder *f, size_t first, tsr_leaks_loop *out) {
  out->leak_count = f->leaks.count - first;
  for (size_t i = first; i < f->leaks.count; i++)
    out->bytes_per_step = tsr__sum_u64(out->bytes_per_step, f->leaks.items[i].bytes_per_step);
}

static bool judge_loop(finder *f, const tsr__loop *loop, uint32_t index, tsr_leaks_loop *out) {
  size_t leaks = f->leaks.count;
  f->w = whole_steps(loop, index);
  *out = (tsr_leaks_loop){.unit = loop->unit,
                          .frame = loop->frame,
                          .step_count = f->w.count,
                          .is_answered = f->w.count >= STEPS_NEEDED};
  if (!out->is_answered) return true;
  bool ok = judge_window(f);
  add_up_leaks(f, leaks, out);
  return ok;
}

/* ---- Rounds of loops ---- */

/* The steps of all loops, and the rounds that begin with the same loop's. */
typedef struct rounds {
  tsr__cycle_step *steps;
  uint32_t *loop_of; /* by step */
  size_t step_count;
  tsr__cycle_step *items;
  uint32_t *numbers; /* of the rounds, from 1 */
  uint32_t count;
} rounds;

/* Merge the steps of loops, each of which is in order. */
static void merge_steps(const tsr__cycle *cycle, size_t *next, rounds *r) {
  for (size_t i = 0; i < r->step_count; i++) {
    size_t best = cycle->loops.count;
    for (size_t k = 0; k < cycle->loops.count; k++) {
      const tsr__cycle_steps *steps = &cycle->loops.items[k].steps;
      if (next[k] == steps->count) continue;
      if (best == cycle->loops.count ||
          steps->items[next[k]].first < cycle->loops.items[best].steps.items[next[best]].first)
        best = k;
    }
    assert(best < cycle->loops.count);
    r->steps[i] = cycle->loops.items[best].steps.items[next[best]++];
    r->loop_of[i] = (uint32_t)best;
  }
}

/* The loop that comes again most often after others; the first of such. */
static uint32_t leading_loop(const rounds *r, size_t loop_count, size_t *turns) {
  uint32_t best = 0;
  for (size_t i = 0; i < loop_count; i++) turns[i] = 0;
  for (size_t i = 0; i < r->step_count; i++)
    turns[r->loop_of[i]] += !i || r->loop_of[i] != r->loop_of[i - 1];
  for (uint32_t i = 1; i < loop_count; i++)
    if (turns[i] > turns[best]) best = i;
  return best;
}

/* A round begins with what its first step allocates: what is freed before may be what the round before replaces. */
static uint32_t begin_of(const tsr_events *events, const tsr__cycle_step *step) {
  uint32_t event = step->first;
  while (event < step->last && events->action[event] != TSR_ACTION_ALLOC) event++;
  return event;
}

/* The last round has as much after its last step as the one before; it is left out if it has less, or fewer steps. */
static void find_rounds(rounds *r, uint32_t leader, const tsr_events *events) {
  uint32_t after = 0;             /* events after the last step of the round before this one */
  size_t steps = 0, previous = 0; /* in this round, and in that */
  for (size_t i = 0; i < r->step_count; i++, steps++) {
    if (r->loop_of[i] != leader || (i && r->loop_of[i - 1] == leader)) continue;
    uint32_t begin = begin_of(events, &r->steps[i]);
    if (r->count) {
      r->items[r->count - 1].last = begin - 1;
      after = begin - 1 - r->steps[i - 1].last;
      previous = steps;
    }
    steps = 0;
    r->items[r->count++] = (tsr__cycle_step){begin, begin, true};
    r->numbers[r->count - 1] = r->count;
  }
  if (!r->count) return;
  uint32_t end = r->steps[r->step_count - 1].last, left = (uint32_t)events->count - 1 - end;
  r->items[r->count - 1].last = end + (after < left ? after : left);
  if (left < after || steps < previous) r->count--;
}

/* Leaks of rounds that are no loop's: what grows in each step grows in each round, too. */
static void drop_known(finder *f, size_t first) {
  size_t kept = first;
  for (size_t i = first; i < f->leaks.count; i++) {
    bool is_known = false;
    for (size_t k = 0; k < first; k++)
      is_known |= f->leaks.items[k].stack == f->leaks.items[i].stack;
    if (is_known) continue;
    f->leaks.items[kept] = f->leaks.items[i];
    f->groups.items[kept] = f->groups.items[i];
    f->ends.items[kept++] = f->ends.items[i];
  }
  f->leaks.count = f->groups.count = f->ends.count = kept;
}

/* Judge the rounds, as the last loop of `out`, which is there if it leaks. */
static bool judge_rounds(finder *f, const rounds *r, tsr_leaks_device *out) {
  size_t first = f->leaks.count, index = out->loop_count;
  tsr_leaks_loop *loop = &out->loops[index];
  f->w = (window){r->items, r->numbers, (uint32_t)index, r->count};
  if (r->count < STEPS_NEEDED) return true;
  if (!judge_window(f)) return false;
  drop_known(f, first);
  if (f->leaks.count == first) return true;
  *loop = (tsr_leaks_loop){
      .unit = TSR_STEPS_UNIT_ROUND, .frame = TSR_NONE, .step_count = r->count, .is_answered = true};
  add_up_leaks(f, first, loop);
  out->loop_count++;
  return true;
}

static bool find_in_rounds(finder *f, const tsr__cycle *cycle, tsr_leaks_device *out) {
  rounds r = {0};
  for (size_t i = 0; i < cycle->loops.count; i++) r.step_count += cycle->loops.items[i].steps.count;
  if (cycle->loops.count < 2) return true;
  size_t *next = TSR__NEW_ARRAY(size_t, cycle->loops.count);
  r.steps = TSR__NEW_ARRAY(tsr__cycle_step, r.step_count);
  r.items = TSR__NEW_ARRAY(tsr__cycle_step, r.step_count);
  r.loop_of = TSR__NEW_ARRAY(uint32_t, r.step_count);
  r.numbers = TSR__NEW_ARRAY(uint32_t, r.step_count);
  bool ok = next && r.steps && r.items && r.loop_of && r.numbers;
  if (ok) {
    merge_steps(cycle, next, &r);
    find_rounds(&r, leading_loop(&r, cycle->loops.count, next), &f->t->events);
    ok = judge_rounds(f, &r, out);
  }
  tsr__free(next);
  tsr__free(r.steps);
  tsr__free(r.items);
  tsr__free(r.loop_of);
  tsr__free(r.numbers);
  return ok;
}

static void choose_main(tsr_leaks_device *out) {
  const tsr_leaks_loop *best = NULL;
  for (size_t i = 0; i < out->loop_count; i++) {
    const tsr_leaks_loop *loop = &out->loops[i];
    if (!best || loop->bytes_per_step > best->bytes_per_step ||
        (loop->bytes_per_step == best->bytes_per_step && loop->step_count > best->step_count))
      best = loop;
  }
  if (!best) return;
  out->main_loop = best;
  out->step_count = best->step_count;
  out->is_answered = best->is_answered;
  out->bytes_per_step = best->bytes_per_step;
}

static int find(const tsr__stepping *s, const tsr__names *names, size_t top, tsr_leaks_device *out,
                tsr_error *error) {
  finder f = {.t = s->timeline, .roles = s->roles};
  out->event_count = s->timeline->events.count;
  out->has_history = tsr__has_history(&s->timeline->events);
  out->basis = s->cycle->basis;
  out->unit = s->cycle->unit;
  out->loop_count = s->cycle->loops.count;
  out->loops = TSR__NEW_ARRAY(tsr_leaks_loop, out->loop_count + 1); /* one for rounds */
  bool ok = out->loops != NULL;
  for (uint32_t i = 0; ok && i < out->loop_count; i++)
    ok = judge_loop(&f, &s->cycle->loops.items[i], i, &out->loops[i]);
  ok = ok && find_in_rounds(&f, s->cycle, out);
  if (ok) choose_main(out);
  ok = ok && name_leaks(&f, names, top, &out->names) &&
       (out->warnings = tsr__copy_warnings(s->timeline, &out->warning_count));
  tsr__map_release(&f.group_of);
  TSR__VECTOR_FREE(&f.changes);
  TSR__VECTOR_FREE(&f.groups);
  TSR__VECTOR_FREE(&f.ends);
  if (!ok) {
    TSR__VECTOR_FREE(&f.leaks);
    return tsr__fail_memory(error);
  }
  hand_over(&f, top, out);
  return 0;
}

static int describe(const tsr__asking *asking, uint32_t device, void *part, tsr_error *error) {
  tsr_leaks_device *out = part;
  const tsr__names *names;
  tsr__stepping s;
  out->device = device;
  int status = tsr__stepping_find(asking->study, device, &s, error);
  if (!status) status = tsr__study_names(asking->study, device, &names, error);
  if (!status) status = tsr__stepping_stop(&s, &out->stop, error);
  if (!status) status = find(&s, names, asking->top, out, error);
  return status;
}

int tsr_leaks_compute(tsr_study *study, const tsr_query *query, tsr_leaks **out, tsr_error *error) {
  tsr__parts parts;
  tsr_leaks *leaks = TSR__NEW(tsr_leaks);
  if (!leaks) return tsr__fail_memory(error);
  int status = tsr__ask_devices(study, query, TSR__NEED_CYCLE, describe, sizeof *leaks->devices,
                                &parts, error);
  leaks->devices = parts.items;
  leaks->device_count = parts.count;
  if (status)
    tsr_leaks_free(leaks);
  else
    *out = leaks;
  return status;
}

void tsr_leaks_free(tsr_leaks *leaks) {
  if (!leaks) return;
  for (size_t i = 0; i < leaks->device_count; i++) {
    tsr__free(leaks->devices[i].leaks);
    tsr__free(leaks->devices[i].loops);
    tsr__free(leaks->devices[i].names);
    tsr__free(leaks->devices[i].warnings);
  }
  tsr__free(leaks->devices);
  tsr__free(leaks);
}
