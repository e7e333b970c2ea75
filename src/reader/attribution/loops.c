/* loops.c - which steps are rounds of one loop, and the loops of forward passes that training has next to its
 * own. See cycle.h.
 *
 * The frames of a stack that call its first module are its path. Steps that have a path in common are rounds
 * of one loop, whichever other lines they run:
 *
 *   main:21 train:5   model                 steps 1 to 40: loop 1
 *   main:21 train:6   loss
 *   main:31 train:5   model                 steps 41 to 60: loop 2
 *   main:31 train:6   loss
 *
 * A single step on its own line is a loop's first round (a warm-up, a prompt), or lines take turns: it belongs
 * to the loop that follows. Where steps of one line do the same for long, and then something else for long,
 * these are two loops.
 *
 * Training evaluates in loops of its own. Their passes leave nothing for a backward pass, so their paths are those of
 * which hardly any allocation is live when one begins. Such paths make no step a round of a loop.
 *
 * Steps of training were found by their ends: each goes on to the next optimizer's, and has what is done between.
 * Where two steps of one loop meet, lines below the optimizer's are still the first one's. A loop's first step begins
 * with what other steps do, and its last ends with that: the rest is done once, and is in no loop. */
#include <assert.h>

#include "attribution/callers.h"
#include "attribution/cycle.h"
#include "base/map.h"
#include "base/memory.h"
#include "base/sort.h"
#include "tessera/unstable/frames.h"

enum {
  LONG = 5,       /* equal steps that are no warm-up */
  KEPT_SHARE = 8, /* an evaluation keeps less than an eighth of its allocations */
  MATES = 4,      /* steps of a loop that are enough to know what it does at its ends */
};

#define ALIKE 0.95 /* steps that do the same */

typedef TSR__VECTOR(uint32_t) ids;

/* What a path makes before the backward passes of steps, and what of it is live when they begin. */
typedef struct path_use {
  uint32_t made, kept;
  bool leads_backward; /* of some step it is the last path before the backward pass */
} path_use;

typedef struct linker {
  const tsr__timeline *t;
  const tsr__roles *roles;
  const tsr__phases *phases;
  tsr__cycle *cycle;
  tsr__callers callers;
  uint32_t *path_of;  /* by stack: of its path, from 1; 0: it shows no forward pass */
  ids stacks;         /* by path: one stack that has it */
  uint32_t *parent;   /* by path, and by step after them: paths of one loop have one root */
  uint32_t *group_of; /* by step of the list at hand */
  uint32_t *backward; /* by step: the first event of its backward pass; UINT32_MAX if absent */
  path_use *uses;     /* by path; NULL if nothing trains */
} linker;

/* ---- Paths ---- */

static bool is_torch(const linker *l, uint32_t frame) {
  return (l->callers.kind[frame] & TSR__CALLER_TORCH) != 0;
}

/* A stack's path: the number of its frames, and those in `out` unless NULL. Torch's own, such as decorators, do
 * not count. */
static uint32_t path_frames(const linker *l, uint32_t stack, uint32_t *out) {
  uint32_t depth = tsr__callers_depth(&l->callers, stack), count = 0;
  for (uint32_t i = 0; i < depth; i++) {
    uint32_t frame = l->callers.frames[l->callers.at[stack] + i];
    if (is_torch(l, frame)) continue;
    if (out) out[count] = frame;
    count++;
  }
  return count;
}

static uint64_t hash_path(const linker *l, uint32_t stack) {
  uint32_t depth = tsr__callers_depth(&l->callers, stack);
  uint64_t hash = 1;
  for (uint32_t i = 0; i < depth; i++) {
    uint32_t frame = l->callers.frames[l->callers.at[stack] + i];
    if (!is_torch(l, frame)) hash = tsr__mix(hash, frame + 1);
  }
  return hash;
}

static bool read_paths(linker *l) {
  tsr__map numbers = {0};
  uint32_t count = l->roles->count;
  l->path_of = TSR__NEW_ARRAY(uint32_t, (size_t)count + 1);
  bool ok = l->path_of && tsr__callers_read(l->t->snapshot, &l->callers) &&
            TSR__VECTOR_PUSH(&l->stacks, TSR_NONE);
  for (uint32_t i = 0; ok && i < count; i++) {
    if (l->roles->stacks[i].phase != TSR_PHASE_FORWARD) continue;
    if (l->callers.at[i] == l->callers.at[i + 1]) continue;
    uint64_t *number = tsr__map_put(&numbers, hash_path(l, i), l->stacks.count, NULL);
    ok = number && (*number < l->stacks.count || TSR__VECTOR_PUSH(&l->stacks, i));
    if (ok) l->path_of[i] = (uint32_t)*number;
  }
  tsr__map_release(&numbers);
  return ok;
}

static uint32_t path_at(const linker *l, uint32_t birth) {
  uint32_t stack = l->t->events.stack[birth];
  return stack < l->roles->count ? l->path_of[stack] : 0;
}

/* ---- Evaluations ---- */

/* The first event of a backward pass in a step; UINT32_MAX if absent. */
static uint32_t backward_in(const tsr__phases *phases, const tsr__cycle_step *step, size_t *run) {
  for (; *run < phases->runs.count && phases->runs.items[*run].first <= step->last; ++*run) {
    const tsr__phase_run *at = &phases->runs.items[*run];
    bool is_backward = at->phase == TSR_PHASE_BACKWARD || at->phase == TSR_PHASE_RECOMPUTE;
    if (is_backward && at->first >= step->first) return at->first;
  }
  return UINT32_MAX;
}

static bool may_evaluate(const path_use *use) {
  uint64_t kept = (uint64_t)use->kept * KEPT_SHARE;
  return (kept < use->made && !use->leads_backward) || !use->made;
}

/* Whether nothing of what a path makes is trained. False of loops that nothing trains. */
static bool trains_nothing(const linker *l, uint32_t path) {
  return l->uses && may_evaluate(&l->uses[path]);
}

static void measure_paths(const linker *l) {
  const tsr__cycle_steps *steps = &l->cycle->steps;
  uint32_t step = 0, last = 0; /* the last path in this step */
  for (size_t i = l->t->initial.count; i < l->t->birth.count; i++) {
    uint32_t birth = l->t->birth.items[i], path = path_at(l, birth);
    for (; step < steps->count && steps->items[step].last < birth; step++, last = 0)
      l->uses[last].leads_backward = true;
    if (step == steps->count) break;
    if (!path || birth < steps->items[step].first || birth > l->backward[step]) continue;
    path_use *use = &l->uses[path];
    if (l->backward[step] == UINT32_MAX) continue;
    last = path;
    use->made++;
    use->kept += l->t->death.items[i] >= l->backward[step];
  }
  l->uses[last].leads_backward = true;
}

/* By step, the range of its leading allocations that may be an evaluation's: empty if first > last. */
static void lead_ranges(const linker *l, tsr__cycle_step *ranges) {
  const tsr__cycle_steps *steps = &l->cycle->steps;
  size_t step = 0;
  bool leads = true;
  for (size_t s = 0; s < steps->count; s++) ranges[s] = (tsr__cycle_step){1, 0, false};
  for (size_t i = l->t->initial.count; i < l->t->birth.count; i++) {
    uint32_t birth = l->t->birth.items[i], path = path_at(l, birth);
    for (; step < steps->count && steps->items[step].last < birth; step++) leads = true;
    if (step == steps->count) break;
    if (birth < steps->items[step].first || birth > l->backward[step]) continue;
    leads = leads && (!path || may_evaluate(&l->uses[path]));
    bool begins = path && ranges[step].first > ranges[step].last;
    if (!leads || (!begins && ranges[step].first > ranges[step].last)) continue;
    if (begins) ranges[step].first = birth;
    ranges[step].last = birth;
  }
}

/* A step begins after the evaluation before it; the step before that goes on to the evaluation. What has nothing
 * else is no step. */
static void take_from_steps(linker *l, const tsr__cycle_steps *found) {
  tsr__cycle_steps *steps = &l->cycle->steps;
  size_t kept = 0, at = 0;
  for (size_t i = 0; i < steps->count; i++) {
    tsr__cycle_step step = steps->items[i];
    uint32_t end = 0;
    bool has_evaluation = at < found->count && found->items[at].first <= step.last;
    if (has_evaluation && kept) steps->items[kept - 1].last = found->items[at].first - 1;
    for (; at < found->count && found->items[at].first <= step.last; at++)
      end = found->items[at].last + 1;
    if (end > step.first) step.first = end;
    bool has_backward = l->backward[i] != UINT32_MAX;
    if (end && (step.first > step.last || (!has_backward && !step.is_whole))) continue;
    l->backward[kept] = l->backward[i];
    steps->items[kept++] = step;
  }
  steps->count = kept;
}

static bool has_died(const linker *l, const tsr__cycle_step *step) {
  const tsr__failure *stop = tsr__cycle_stop(l->cycle);
  return stop && stop->event >= step->first && stop->event <= step->last;
}

/* Loops of forward passes at the beginning of a step, or after the last: into `out`. A step in which memory ran out
 * is left as it is. */
static bool find_evaluations(linker *l, tsr__cycle_steps *out) {
  size_t count = l->cycle->steps.count, kept = 0;
  tsr__cycle_step *ranges = TSR__NEW_ARRAY(tsr__cycle_step, count);
  if (!ranges) return false;
  bool ok = true;
  lead_ranges(l, ranges);
  for (size_t i = 0; i < count; i++)
    if (ranges[i].first < ranges[i].last && !has_died(l, &l->cycle->steps.items[i]))
      ranges[kept++] = ranges[i];
  if (kept) ok = tsr__loop_find_in(l->t, l->roles, ranges, kept, out);
  if (ok && out->count) take_from_steps(l, out);
  tsr__free(ranges);
  return ok;
}

/* The part behind the last step is no step if it only runs forward, on lines that train nothing, and keeps hardly
 * anything: it is a single call or an evaluation. It is added to the step before, whose end is found later. */
static void drop_rest(linker *l) {
  tsr__cycle_steps *steps = &l->cycle->steps;
  const tsr__cycle_step *rest = steps->count > 1 ? &steps->items[steps->count - 1] : NULL;
  uint32_t made = 0, kept = 0;
  if (!rest || rest->is_whole || has_died(l, rest) || l->backward[steps->count - 1] != UINT32_MAX)
    return;
  for (size_t i = l->t->initial.count; i < l->t->birth.count; i++) {
    uint32_t path = path_at(l, l->t->birth.items[i]);
    if (!path || l->t->birth.items[i] < rest->first) continue;
    if (l->uses[path].leads_backward || l->uses[path].kept) return;
    made++;
    kept += l->t->death.items[i] == TSR_NONE;
  }
  if ((uint64_t)kept * KEPT_SHARE >= made) return;
  steps->items[steps->count - 2].last = rest->last;
  steps->count--;
}

/* ---- Groups of steps ---- */

static uint32_t root_of(linker *l, uint32_t id) {
  while (l->parent[id] != id) id = l->parent[id] = l->parent[l->parent[id]];
  return id;
}

static void unite(linker *l, uint32_t a, uint32_t b) {
  a = root_of(l, a);
  b = root_of(l, b);
  if (a < b)
    l->parent[b] = a;
  else
    l->parent[a] = b;
}

/* Unite the paths of each step; of one that trains, those that do. A step without any is of the loop before it. */
static void link_paths(linker *l, const tsr__cycle_steps *steps) {
  size_t step = 0;
  uint32_t last = UINT32_MAX; /* the last path in this step: paths mostly come again at once */
  for (size_t i = 0; i < steps->count; i++) l->group_of[i] = 0;
  for (size_t i = l->t->initial.count; i < l->t->birth.count; i++) {
    uint32_t birth = l->t->birth.items[i], path = path_at(l, birth);
    for (; step < steps->count && steps->items[step].last < birth; step++) last = UINT32_MAX;
    if (step == steps->count) break;
    if (!path || path == last || birth < steps->items[step].first) continue;
    if (l->group_of[step] && trains_nothing(l, path)) continue;
    if (l->group_of[step] && !trains_nothing(l, l->group_of[step]))
      unite(l, l->group_of[step], path);
    l->group_of[step] = last = path;
  }
  for (size_t i = 0; i < steps->count; i++)
    if (!l->group_of[i] && i) l->group_of[i] = l->group_of[i - 1];
  for (size_t i = steps->count; i-- > 1;)
    if (!l->group_of[i - 1]) l->group_of[i - 1] = l->group_of[i];
}

/* Single steps between others join what follows, unless their loop has two together somewhere. */
static void join_single(linker *l, const tsr__cycle_steps *steps, bool *is_long) {
  for (size_t i = 0; i < l->stacks.count; i++) is_long[i] = false;
  for (size_t i = 1; i < steps->count; i++)
    if (root_of(l, l->group_of[i]) == root_of(l, l->group_of[i - 1]))
      is_long[root_of(l, l->group_of[i])] = true;
  for (size_t i = 0; i + 1 < steps->count; i++)
    if (!is_long[root_of(l, l->group_of[i])]) unite(l, l->group_of[i], l->group_of[i + 1]);
  size_t last = steps->count - 1;
  if (last && !is_long[root_of(l, l->group_of[last])])
    unite(l, l->group_of[last], l->group_of[last - 1]);
}

static bool group_steps(linker *l, const tsr__cycle_steps *steps) {
  bool *is_long = TSR__NEW_ARRAY(bool, l->stacks.count);
  if (!is_long) return false;
  for (uint32_t i = 0; i < l->stacks.count; i++) l->parent[i] = i;
  link_paths(l, steps);
  if (steps->count) join_single(l, steps, is_long);
  for (size_t i = 0; i < steps->count; i++) l->group_of[i] = root_of(l, l->group_of[i]);
  tsr__free(is_long);
  return true;
}

/* ---- Where steps end ---- */

/* How the lines of two stacks are in order, in the function in which they part: above 0 if the first is below the
 * second, 0 if they part in none. */
static int order_of(const linker *l, uint32_t a, uint32_t b) {
  const uint32_t *x = l->callers.frames + l->callers.at[a],
                 *y = l->callers.frames + l->callers.at[b];
  uint32_t count = l->callers.at[a + 1] - l->callers.at[a];
  uint32_t other = l->callers.at[b + 1] - l->callers.at[b], i = 0;
  if (other < count) count = other;
  while (i < count && x[i] == y[i]) i++;
  if (i == count) return 0;
  tsr_frame f = tsr_snapshot_frame(l->t->snapshot, x[i]);
  tsr_frame g = tsr_snapshot_frame(l->t->snapshot, y[i]);
  if (f.name != g.name || f.file != g.file) return 0;
  return (f.line > g.line) - (f.line < g.line);
}

/* The stack of an event that allocates, if it has Python frames; else TSR_NONE. */
static uint32_t python_stack(const linker *l, uint32_t event) {
  uint32_t stack = l->t->events.stack[event];
  if (l->t->events.action[event] != TSR_ACTION_ALLOC || stack >= l->roles->count) return TSR_NONE;
  return l->callers.at[stack] < l->callers.at[stack + 1] ? stack : TSR_NONE;
}

static bool is_training(uint8_t phase) {
  return phase == TSR_PHASE_BACKWARD || phase == TSR_PHASE_RECOMPUTE ||
         phase == TSR_PHASE_OPTIMIZER;
}

/* The last allocation of a step's backward passes and optimizer; UINT32_MAX if absent. `stack`, unless NULL: the last
 * one's that has Python frames. */
static uint32_t end_of_training(const linker *l, const tsr__cycle_step *step, uint32_t *stack) {
  uint32_t end = UINT32_MAX;
  if (stack) *stack = TSR_NONE;
  for (uint32_t e = step->last + 1; e-- > step->first;) {
    if (l->t->events.action[e] != TSR_ACTION_ALLOC) continue;
    if (!is_training((uint8_t)tsr__phases_at(l->phases, e))) continue;
    if (end == UINT32_MAX) end = e;
    if (stack) *stack = python_stack(l, e);
    if (!stack || *stack != TSR_NONE) break;
  }
  return end;
}

/* Between two steps of a loop: what the lines below the optimizer's do is part of the step before, as far as they
 * train nothing. */
static void divide(const linker *l, tsr__cycle_step *before, tsr__cycle_step *step) {
  uint32_t stack, last = UINT32_MAX, bound = step->first;
  if (end_of_training(l, before, &stack) == UINT32_MAX || stack == TSR_NONE) return;
  for (; bound <= step->last; bound++) {
    const tsr__phase_run *run = tsr__phases_run_at(l->phases, bound);
    bool begins_run = run && run->first == bound && run->is_known;
    if (begins_run && last != UINT32_MAX && l->t->events.action[bound] != TSR_ACTION_ALLOC) break;
    if (l->t->events.action[bound] != TSR_ACTION_ALLOC) continue;
    uint32_t own = python_stack(l, bound), path = path_at(l, bound);
    if (run && is_training(run->phase)) break;
    if (own == TSR_NONE || order_of(l, own, stack) <= 0) break;
    if (path && !trains_nothing(l, path)) break;
    last = bound;
  }
  if (last == UINT32_MAX || bound > step->last) return;
  before->last = bound - 1;
  step->first = bound;
}

/* What a step allocates; or only what it does behind its optimizer. */
static bool read_symbols(const linker *l, const tsr__cycle_step *step, bool is_tail,
                         tsr__map *out) {
  uint32_t end = is_tail ? end_of_training(l, step, NULL) : step->first;
  if (end == UINT32_MAX) return true;
  for (uint32_t e = end + is_tail; e <= step->last; e++) {
    if (l->t->events.action[e] != TSR_ACTION_ALLOC) continue;
    if (!tsr__map_put(out, tsr__symbol(l->roles, &l->t->events, e), 1, NULL)) return false;
  }
  return true;
}

/* The same of the nearest steps of its loop; `count` of them. */
static bool read_mates(const linker *l, const tsr__cycle_steps *steps, size_t at, bool is_tail,
                       tsr__map *out, size_t *count) {
  bool ok = true;
  *count = 0;
  for (size_t i = at; ok && i-- > 0 && *count < MATES && l->group_of[i] == l->group_of[at];
       ++*count)
    ok = read_symbols(l, &steps->items[i], is_tail, out);
  for (size_t i = at + 1;
       ok && i < steps->count && *count < MATES && l->group_of[i] == l->group_of[at]; i++, ++*count)
    ok = read_symbols(l, &steps->items[i], is_tail, out);
  return ok;
}

/* The first event from `at` on that does not free what was made since `since`. */
static uint32_t skip_frees(const linker *l, uint32_t since, uint32_t at) {
  for (; at < l->t->events.count; at++) {
    uint32_t allocation = l->t->allocation_of[at];
    bool is_free = l->t->events.action[at] == TSR_ACTION_FREE_REQUESTED ||
                   l->t->events.action[at] == TSR_ACTION_FREE_COMPLETED;
    if (!is_free || allocation == TSR_NONE || allocation < l->t->initial.count) break;
    if (l->t->birth.items[allocation] < since) break;
  }
  return at;
}

/* What a loop's first step begins with may be what the program does before the loop: other steps do not do it. It
 * goes to the step before, if any. */
static void begin_at_own(const linker *l, tsr__map *own, tsr__cycle_step *before,
                         tsr__cycle_step *step) {
  uint32_t first = step->first;
  for (uint32_t e = step->first; e <= step->last; e++) {
    if (l->t->events.action[e] != TSR_ACTION_ALLOC) continue;
    uint32_t path = path_at(l, e);
    if ((path && !trains_nothing(l, path)) || is_training((uint8_t)tsr__phases_at(l->phases, e)))
      break;
    if (tsr__map_find(own, tsr__symbol(l->roles, &l->t->events, e))) break;
    first = e + 1;
  }
  if (first > step->first) first = skip_frees(l, step->first, first);
  if (first > step->last || first == step->first) return;
  if (before && before->last + 1 == step->first) before->last = first - 1;
  step->first = first;
}

/* A step that no other of its loop follows ends before what its optimizer is followed by, unless that follows those of
 * other steps too. */
static void end_at_own(const linker *l, tsr__map *own, tsr__cycle_step *step) {
  uint32_t end = end_of_training(l, step, NULL);
  if (end == UINT32_MAX || has_died(l, step)) return;
  for (uint32_t e = end + 1; e <= step->last; e++) {
    if (l->t->events.action[e] != TSR_ACTION_ALLOC) continue;
    if (tsr__map_find(own, tsr__symbol(l->roles, &l->t->events, e))) continue;
    step->last = e - 1;
    return;
  }
}

static bool is_next(const linker *l, const tsr__cycle_steps *steps, size_t at) {
  return at && at < steps->count && l->group_of[at - 1] == l->group_of[at] &&
         steps->items[at - 1].last + 1 == steps->items[at].first;
}

static bool is_marked(const linker *l) {
  for (size_t i = 0; i < l->phases->marked.count; i++)
    if (l->phases->marked.items[i].is_step) return true;
  return false;
}

/* Begin each step that does not follow another of its loop. */
static bool begin_loops(const linker *l, tsr__cycle_steps *steps) {
  bool ok = true;
  for (size_t i = 0; ok && i < steps->count; i++) {
    tsr__map own = {0};
    size_t mates;
    if (is_next(l, steps, i)) continue;
    ok = read_mates(l, steps, i, false, &own, &mates);
    if (ok && mates) begin_at_own(l, &own, i ? &steps->items[i - 1] : NULL, &steps->items[i]);
    tsr__map_release(&own);
  }
  return ok;
}

/* End each step that no other of its loop follows. If a later one exists, what other steps begin with may be what
 * ends this one, as each step may begin with what the one before it leaves to do. */
static bool end_loops(const linker *l, tsr__cycle_steps *steps) {
  tsr__map seen = {0}; /* loops */
  bool ok = true;
  for (size_t i = steps->count; ok && i-- > 0;) {
    tsr__map own = {0};
    size_t mates;
    bool is_last;
    ok = tsr__map_put(&seen, l->group_of[i], 1, &is_last) != NULL;
    if (!ok || is_next(l, steps, i + 1)) continue;
    ok = read_mates(l, steps, i, is_last, &own, &mates);
    if (ok && mates) end_at_own(l, &own, &steps->items[i]);
    tsr__map_release(&own);
  }
  tsr__map_release(&seen);
  return ok;
}

/* Steps that were found by their ends, and so follow each other without gaps. The profiler's marks have parted
 * neighbours better. */
static bool part_loops(const linker *l, tsr__cycle_steps *steps) {
  bool by_lines = l->uses && !is_marked(l);
  for (size_t i = 1; by_lines && i < steps->count; i++)
    if (is_next(l, steps, i)) divide(l, &steps->items[i - 1], &steps->items[i]);
  return begin_loops(l, steps) && end_loops(l, steps);
}

/* ---- The line of a loop ---- */

/* How many frames two paths have in common, from the outside. */
static uint32_t common_frames(const uint32_t *a, uint32_t a_count, const uint32_t *b,
                              uint32_t b_count) {
  uint32_t i = 0;
  while (i < a_count && i < b_count && a[i] == b[i]) i++;
  return i;
}

static bool is_users(const linker *l, uint32_t id) {
  tsr_frame frame = tsr_snapshot_frame(l->t->snapshot, id);
  return tsr_frame_origin(tsr_snapshot_string(l->t->snapshot, frame.name),
                          tsr_snapshot_string(l->t->snapshot, frame.file)) == TSR_ORIGIN_USER;
}

/* The line from which a group of paths differs from the others; if there are no others, the innermost that all
 * of the group's have, or the first of its function's. The user's own code is preferred. */
static bool find_line(linker *l, uint32_t group, bool is_alone, uint32_t *line) {
  uint32_t first = 0, most = 0, own, other = 0;
  *line = TSR_NONE;
  for (uint32_t i = 1; i < l->stacks.count; i++) {
    uint32_t depth = path_frames(l, l->stacks.items[i], NULL);
    if (depth > most) most = depth;
    if (!first && root_of(l, i) == group) first = i;
  }
  if (!first || !most) return true;
  uint32_t *frames = TSR__NEW_ARRAY(uint32_t, most), *others = TSR__NEW_ARRAY(uint32_t, most);
  bool ok = frames && others;
  uint32_t depth = own = ok ? path_frames(l, l->stacks.items[first], frames) : 0;
  for (uint32_t i = 1; ok && i < l->stacks.count; i++) {
    uint32_t count = path_frames(l, l->stacks.items[i], others);
    uint32_t common = common_frames(frames, depth, others, count);
    if (root_of(l, i) == group)
      own = common < own ? common : own;
    else if (!is_alone && common > other)
      other = common;
  }
  uint32_t at = is_alone || own < other ? own : other;
  if (depth) {
    if (at >= depth) at = depth - 1;
    *line = frames[at];
    for (uint32_t i = at + 1; i-- > 0 && (is_alone || i >= other);)
      if (is_users(l, frames[i])) {
        *line = frames[i];
        break;
      }
  }
  tsr__free(frames);
  tsr__free(others);
  return ok;
}

/* ---- Steps that do the same ---- */

/* Consecutive steps of a loop that do the same: a regime if there are enough. */
typedef struct regime {
  size_t first, count;
} regime;

typedef TSR__VECTOR(regime) regimes;

static bool fill_bags(const linker *l, const tsr__loop *loop, tsr__bag *bags) {
  size_t step = 0;
  for (size_t i = l->t->initial.count; i < l->t->birth.count; i++) {
    uint32_t birth = l->t->birth.items[i];
    while (step < loop->steps.count && loop->steps.items[step].last < birth) step++;
    if (step == loop->steps.count) break;
    if (birth < loop->steps.items[step].first) continue;
    tsr__bag_add(&bags[step], tsr__symbol(l->roles, &l->t->events, birth));
  }
  return true;
}

/* Where a loop's steps change for good. Fewer than LONG that differ are of the regime after them. */
static bool find_regimes(const tsr__loop *loop, const tsr__bag *bags, regimes *out) {
  size_t count = loop->steps.count, first = 0;
  for (size_t i = 0, begin = 0; i < count; i = begin) {
    while (begin < count && tsr__bag_likeness(&bags[i], &bags[begin]) >= ALIKE) begin++;
    if (begin == i) begin++; /* an empty step is like itself */
    if (begin - i < LONG) continue;
    regime *last = out->count ? &out->items[out->count - 1] : NULL;
    bool is_same =
        last && tsr__bag_likeness(&bags[i], &bags[last->first + last->count - 1]) >= ALIKE;
    if (is_same)
      last->count = begin - last->first;
    else if (!TSR__VECTOR_PUSH(out, (regime){first, begin - first}))
      return false;
    first = begin;
  }
  if (out->count) out->items[out->count - 1].count = count - out->items[out->count - 1].first;
  return true;
}

/* Equal steps are most of the loop; otherwise steps just vary. */
static bool is_regular(const tsr__loop *loop, const tsr__bag *bags) {
  size_t alike = 0;
  for (size_t i = 1; i < loop->steps.count; i++)
    alike += tsr__bag_likeness(&bags[i - 1], &bags[i]) >= ALIKE;
  return alike * 10 >= loop->steps.count * 8;
}

/* ---- Loops ---- */

static tsr__loop *add_loop(tsr__cycle *cycle, const tsr__loop *like) {
  tsr__loop made = {like->unit, like->frame, like->is_listed, {0}, {0}};
  return TSR__VECTOR_PUSH(&cycle->loops, made) ? &cycle->loops.items[cycle->loops.count - 1] : NULL;
}

static bool add_step(tsr__loop *loop, tsr__cycle_step step, uint32_t number) {
  return TSR__VECTOR_PUSH(&loop->steps, step) && TSR__VECTOR_PUSH(&loop->numbers, number);
}

/* One loop becomes several if it changes for good. */
static bool add_regimes(linker *l, tsr__loop *loop) {
  size_t count = loop->steps.count;
  tsr__bag *bags = count < 2 * (size_t)LONG ? NULL : TSR__NEW_ARRAY(tsr__bag, count);
  regimes found = {0};
  bool ok = count < 2 * (size_t)LONG || (bags && fill_bags(l, loop, bags));
  if (ok && bags && is_regular(loop, bags)) ok = find_regimes(loop, bags, &found);
  if (ok && found.count < 2) {
    found.count = 0;
    ok = TSR__VECTOR_PUSH(&found, (regime){0, count});
  }
  for (size_t r = 0; ok && r < found.count; r++) {
    tsr__loop *made = add_loop(l->cycle, loop);
    ok = made != NULL;
    assert(!loop->is_listed || (loop->numbers.items && loop->numbers.count == count));
    for (size_t i = 0; ok && i < found.items[r].count; i++) {
      size_t at = found.items[r].first + i;
      ok = add_step(made, loop->steps.items[at],
                    loop->is_listed ? loop->numbers.items[at] : (uint32_t)i + 1);
    }
  }
  TSR__VECTOR_FREE(&found);
  tsr__free(bags);
  return ok;
}

static bool add_loops(linker *l, tsr__cycle_steps *steps, tsr_steps_unit unit, bool is_listed) {
  l->group_of = TSR__NEW_ARRAY(uint32_t, steps->count);
  l->parent = TSR__NEW_ARRAY(uint32_t, l->stacks.count);
  bool ok = l->group_of && l->parent && group_steps(l, steps), is_alone = true;
  if (ok && unit == TSR_STEPS_UNIT_STEP) ok = part_loops(l, steps);
  for (size_t i = 1; ok && i < steps->count; i++) is_alone &= l->group_of[i] == l->group_of[0];
  for (size_t i = 0; ok && i < steps->count; i++) {
    uint32_t group = l->group_of[i];
    if (group == UINT32_MAX) continue;
    tsr__loop loop = {unit, TSR_NONE, is_listed, {0}, {0}};
    ok = find_line(l, group, is_alone, &loop.frame);
    for (size_t k = i; ok && k < steps->count; k++) {
      if (l->group_of[k] != group) continue;
      ok = add_step(&loop, steps->items[k], (uint32_t)k + 1);
      l->group_of[k] = UINT32_MAX;
    }
    ok = ok && add_regimes(l, &loop);
    TSR__VECTOR_FREE(&loop.steps);
    TSR__VECTOR_FREE(&loop.numbers);
  }
  tsr__free(l->group_of);
  tsr__free(l->parent);
  l->group_of = l->parent = NULL;
  return ok;
}

static int compare_loops(const void *a, const void *b) {
  const tsr__loop *x = a, *y = b;
  uint32_t m = x->steps.items[0].first, n = y->steps.items[0].first;
  return (m > n) - (m < n);
}

/* What training needs to know of paths, and the evaluations next to it. */
static bool take_evaluations(linker *l, tsr__cycle_steps *out) {
  size_t run = 0, count = l->cycle->steps.count;
  l->backward = TSR__NEW_ARRAY(uint32_t, count);
  l->uses = TSR__NEW_ARRAY(path_use, l->stacks.count);
  if (!l->backward || !l->uses) return false;
  for (size_t i = 0; i < count; i++)
    l->backward[i] = backward_in(l->phases, &l->cycle->steps.items[i], &run);
  measure_paths(l);
  if (!find_evaluations(l, out)) return false;
  drop_rest(l);
  return true;
}

bool tsr__loops_find(const tsr__timeline *timeline, const tsr__roles *roles,
                     const tsr__phases *phases, bool trains, tsr__cycle *cycle) {
  linker l = {.t = timeline, .roles = roles, .phases = phases, .cycle = cycle};
  tsr__cycle_steps evaluations = {0};
  bool ok = true;
  if (!cycle->steps.count) return true;
  ok = read_paths(&l);
  if (ok && trains) ok = take_evaluations(&l, &evaluations);
  ok = ok && add_loops(&l, &cycle->steps, cycle->unit, true);
  tsr__free(l.uses);
  l.uses = NULL; /* of other steps */
  ok = ok && add_loops(&l, &evaluations, TSR_STEPS_UNIT_ITERATION, false);
  if (ok && cycle->loops.count > 1)
    tsr__sort(cycle->loops.items, cycle->loops.count, sizeof *cycle->loops.items, compare_loops);
  TSR__VECTOR_FREE(&evaluations);
  TSR__VECTOR_FREE(&l.stacks);
  tsr__callers_release(&l.callers);
  tsr__free(l.path_of);
  tsr__free(l.backward);
  return ok;
}

void tsr__loops_release(tsr__cycle *cycle) {
  for (size_t i = 0; i < cycle->loops.count; i++) {
    TSR__VECTOR_FREE(&cycle->loops.items[i].steps);
    TSR__VECTOR_FREE(&cycle->loops.items[i].numbers);
  }
  TSR__VECTOR_FREE(&cycle->loops);
}
