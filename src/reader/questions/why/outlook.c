/* outlook.c - what would have come after a failed request. See outlook.h.
 *
 * A setting that serves the one request that failed is of little use if the run fails at the next. The
 * trace ends there, but programs repeat themselves: the same request, after the same requests, was
 * made before, and what followed it then is what would have followed now:
 *
 *   step 1                                        step 2
 *   |--- forward ---*--- backward, optimizer ---| |--- forward --- X
 *                   like_event ............................ failure
 *                   |<-------------- the tail ------------->|
 *
 *   the first step
 *   | prelude | block 1 | block 2 --- * - | block 3 --- X      of 12 blocks
 *                          like_event            failure
 *                                     |<-- tail, 9 times -->|
 *
 * The earlier request is the one whose preceding allocations agree longest with those before the
 * failure: same stack, or without frames same size. An earlier step is preferred, because it shows all of a step;
 * blocks show only the rest of the forward. If a step has several forward passes (it accumulates gradients), the
 * one of the same number in its step counts: others have as much memory less or more as the gradients take.
 * In a first step no other pass is like the one that failed.
 *
 * The number of blocks comes from the parameters: a model of 12 equal blocks has 12, 24 or 36 of each
 * large shape. */
#include "questions/why/outlook.h"

#include <assert.h>

#include "allocator/rules.h"
#include "base/checked.h"
#include "base/memory.h"
#include "base/sort.h"
#include "timeline/sweep.h"

/* Comparisons in total, and the longest agreement that is distinguished from a longer one. */
#define MOST_COMPARED (UINT64_C(1) << 24)
#define LONG_ENOUGH   65536

/* Steps that a tail repeats: a second one finds the pieces that the first one left. */
#define STEPS_AHEAD 2

/* Up to the failure. Allocations before it are numbered initial.count .. end - 1. */
typedef struct look {
  const tsr__timeline *t;
  const tsr__roles *roles;
  uint32_t first, end; /* allocations of the trace before the failure */
  int64_t oom;         /* event */
  uint32_t begin;      /* the first allocation of the pass that failed */
  const tsr__cycle *cycle;
  const tsr__failure *failure;
  uint64_t compared;
} look;

static uint64_t symbol(const look *l, uint32_t allocation) {
  assert(allocation >= l->first && allocation < l->end);
  return tsr__symbol(l->roles, &l->t->events, l->t->birth.items[allocation]);
}

/* Is this allocation the same request as the one that failed? */
static bool is_like_failure(const look *l, uint32_t allocation) {
  const tsr_events *events = &l->t->events;
  uint32_t stack = events->stack[l->oom], birth = l->t->birth.items[allocation];
  if (events->stack[birth] != stack) return false;
  bool has_frames = stack < l->roles->count && !l->roles->is_empty[stack];
  if (has_frames) return true;
  return tsr__round_request(&l->t->settings, events->size[birth]) == events->size[l->oom];
}

/* How many allocations before `a` agree with those before `b`, which is later; `b` may be `end`. */
static uint32_t agreement(look *l, uint32_t a, uint32_t b) {
  uint32_t length = 0;
  assert(a < b);
  while (length < LONG_ENOUGH && a - length > l->first && l->compared < MOST_COMPARED) {
    l->compared++;
    if (symbol(l, a - length - 1) != symbol(l, b - length - 1)) break;
    length++;
  }
  return length;
}

/* An earlier place like a later one. */
typedef struct match {
  uint32_t place; /* allocation, or TSR_NONE */
  uint32_t length;
} match;

/* The best in low .. high - 1 for the place `at`, the later the better among equals. `at` may be `end`,
 * which is the failure. With `wanted`, the first that agrees for that long will do. */
static match find_like(look *l, uint32_t at, uint32_t low, uint32_t high, uint32_t wanted) {
  match best = {TSR_NONE, 0};
  assert(low >= l->first && high <= at);
  for (uint32_t a = high; a-- > low && l->compared < MOST_COMPARED;) {
    bool is_like = at == l->end ? is_like_failure(l, a) : symbol(l, a) == symbol(l, at);
    if (!is_like) continue;
    uint32_t length = agreement(l, a, at);
    if (best.place == TSR_NONE || length > best.length) best = (match){a, length};
    if (wanted && length >= wanted) break;
  }
  return best;
}

/* The block before: the places agree for at least half of their distance. One and the same request over and
 * over is no block. */
static match find_block(look *l, uint32_t at, uint32_t low) {
  match m = find_like(l, at, low, at, 0);
  if (m.place != TSR_NONE && ((uint64_t)m.length * 2 < at - m.place || at - m.place < 2))
    m.place = TSR_NONE;
  return m;
}

static int totals_before(const look *l, uint32_t allocation, tsr_totals *out, tsr_error *error) {
  int64_t event = (int64_t)l->t->birth.items[allocation] - 1;
  tsr__live_set live = {0};
  int status = tsr__timeline_live(l->t, event, &live, error);
  if (!status) *out = tsr__timeline_totals(l->t, event, &live);
  TSR__VECTOR_FREE(&live);
  return status;
}

/* ---- Where the failure is ---- */

/* The first allocation of the trace that is made at `event` or later. */
static uint32_t first_from(const tsr__timeline *t, int64_t event) {
  size_t low = t->initial.count, high = t->birth.count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if ((int64_t)t->birth.items[middle] < event)
      low = middle + 1;
    else
      high = middle;
  }
  return (uint32_t)low;
}

/* The phase and the step, and where the pass that failed began. What comes before the first pass is part of it,
 * so that nothing is an earlier one. */
static void locate(look *l, tsr_why_outlook *out) {
  const tsr__failure *failure = l->failure;
  out->phase = (tsr_phase)failure->phase;
  out->step = failure->step;
  out->unit = l->cycle->unit;
  bool is_first = failure->pass <= 1;
  l->begin = first_from(l->t, is_first ? 0 : (int64_t)l->cycle->passes.items[failure->pass - 1]);
}

/* ---- How many blocks ---- */

static int compare_u64(const void *a, const void *b) {
  const uint64_t *x = a, *y = b;
  return (*x > *y) - (*x < *y);
}

/* A shape of the parameters, and how many have it. */
typedef struct shape {
  uint64_t bytes, count;
  bool is_large; /* a hundredth of the model or more, and not a single one such as an embedding */
} shape;

/* Does each large shape occur once or several times in each of `blocks`? An embedding or two outside of them
 * may happen to have the same size. */
static bool is_made_of(const shape *shapes, size_t count, uint64_t blocks) {
  for (size_t i = 0; i < count; i++)
    if (shapes[i].is_large && (shapes[i].count < blocks || shapes[i].count % blocks > 2))
      return false;
  return true;
}

/* The number of blocks that a model of these shapes has, 0 if they show none: the largest of which all
 * large shapes are made. If these occur twice or more often in each block (BERT's attention and feed-forward), a
 * small shape (a bias) may occur once. */
static uint64_t blocks_of(const shape *shapes, size_t count) {
  uint64_t blocks = UINT64_MAX, parts = 0;
  for (size_t i = 0; i < count; i++)
    if (shapes[i].is_large && shapes[i].count < blocks) blocks = shapes[i].count;
  if (blocks == UINT64_MAX) return 0;
  while (blocks > 1 && !is_made_of(shapes, count, blocks)) blocks--;
  for (size_t i = 0; i < count; i++)
    if (shapes[i].count < blocks && shapes[i].count > parts && blocks % shapes[i].count == 0 &&
        blocks / shapes[i].count <= 4)
      parts = shapes[i].count;
  if (parts > 2) blocks = parts;
  return blocks > 2 ? blocks : 0;
}

/* Group `sizes`, which ascend, in place: `shapes` has room for `count`. */
static size_t group_shapes(const uint64_t *sizes, size_t count, shape *shapes) {
  uint64_t total = 0;
  size_t made = 0;
  for (size_t i = 0; i < count; i++) {
    assert(!i || sizes[i - 1] <= sizes[i]);
    total = tsr__sum_u64(total, sizes[i]);
    if (!made || shapes[made - 1].bytes != sizes[i]) shapes[made++] = (shape){.bytes = sizes[i]};
    shapes[made - 1].count++;
  }
  for (size_t i = 0; i < made; i++)
    shapes[i].is_large = shapes[i].count > 2 && shapes[i].bytes >= total / 100 / shapes[i].count;
  return made;
}

/* The live allocations of a category that are `least` bytes or larger, by shape; the caller frees
 * `*shapes`. */
static int shapes_of(tsr_study *study, const look *l, tsr_category category, uint64_t least,
                     shape **shapes, size_t *shape_count, tsr_error *error) {
  const tsr__categories *categories;
  tsr__live_set live = {0};
  int status = tsr__study_categories(study, l->t->device, &categories, error);
  if (!status) status = tsr__timeline_live(l->t, l->oom, &live, error);
  if (status) return status;
  uint64_t *sizes = TSR__NEW_ARRAY(uint64_t, live.count + 1);
  size_t count = 0;
  *shapes = TSR__NEW_ARRAY(shape, live.count + 1);
  if (!sizes || !*shapes) status = tsr__fail_memory(error);
  for (size_t i = 0; !status && i < live.count; i++) {
    uint64_t bytes = tsr__timeline_requested(l->t, live.items[i]);
    if (categories->category[live.items[i]] == category && bytes >= least) sizes[count++] = bytes;
  }
  tsr__sort(sizes, count, sizeof *sizes, compare_u64);
  if (!status) *shape_count = group_shapes(sizes, count, *shapes);
  if (status) {
    tsr__free(*shapes);
    *shapes = NULL;
  }
  tsr__free(sizes);
  TSR__VECTOR_FREE(&live);
  return status;
}

static int count_blocks(tsr_study *study, const look *l, uint64_t begun, uint64_t *out,
                        tsr_error *error) {
  shape *shapes = NULL;
  size_t count = 0;
  int status = shapes_of(study, l, TSR_CATEGORY_PARAMETER, 1, &shapes, &count, error);
  if (status) return status;
  *out = blocks_of(shapes, count);
  if (*out < begun) *out = 0;
  tsr__free(shapes);
  return 0;
}

/* The shape that occurs most often, the smallest among equals; NULL without shapes. */
static const shape *commonest(const shape *shapes, size_t count) {
  const shape *most = NULL;
  for (size_t i = 0; i < count; i++)
    if (!most || shapes[i].count > most->count) most = &shapes[i];
  return most;
}

/* The largest parameter is the embedding: words * width * e bytes. The commonest is a norm's or a bias: width *
 * e. The commonest large activation is a hidden state: tokens * width * e. A loss then has logits, their
 * logarithms and the gradients of both: up to 16 bytes for each word and token. */
static int judge_loss(tsr_study *study, const look *l, uint64_t *out, tsr_error *error) {
  shape *parameters = NULL, *activations = NULL;
  size_t parameter_count = 0, activation_count = 0;
  int status =
      shapes_of(study, l, TSR_CATEGORY_PARAMETER, 512, &parameters, &parameter_count, error);
  if (!status)
    status = shapes_of(study, l, TSR_CATEGORY_ACTIVATION, UINT64_C(1) << 18, &activations,
                       &activation_count, error);
  const shape *row = status ? NULL : commonest(parameters, parameter_count);
  const shape *hidden = status ? NULL : commonest(activations, activation_count);
  *out = 0;
  if (row && hidden && row->count > 8 && hidden->count > 8) {
    double words = (double)parameters[parameter_count - 1].bytes / (double)row->bytes;
    double tokens = (double)hidden->bytes / (double)row->bytes, bytes = 16 * words * tokens;
    if (words >= 1000 && bytes < 1e15) *out = (uint64_t)bytes;
  }
  tsr__free(parameters);
  tsr__free(activations);
  return status;
}

/* ---- Which earlier request ---- */

static void set_tail(const look *l, const match *m, uint64_t repeats, tsr__rerun_tail *tail) {
  *tail = (tsr__rerun_tail){.first = (int64_t)l->t->birth.items[m->place] + 1,
                            .last = l->oom - 1,
                            .lag = l->end - m->place,
                            .repeats = (uint32_t)repeats,
                            .drop_event = -1};
  if (tail->first > tail->last) tail->repeats = 0;
}

/* Does memory grow from step to step? Three differences or two, all of a kind. Between a first step and
 * a second it grows anyway, by the optimizer's state. What was requested counts: tails of blocks differ from
 * step to step. `now`: requested at the failure. */
static int measure_growth(look *l, const match *step, uint64_t now, tsr_why_outlook *out,
                          tsr_error *error) {
  uint32_t at = step->place, lag = l->end - step->place;
  uint64_t least = UINT64_MAX, most = 0, later = now;
  int measured = 0;
  while (measured < 3) {
    tsr_totals totals;
    int status = totals_before(l, at, &totals, error);
    if (status) return status;
    uint64_t before = totals.requested_bytes;
    if (before >= later) return 0;
    uint64_t grown = later - before;
    if (grown < least) least = grown;
    if (grown > most) most = grown;
    later = before;
    measured++;
    if (at < l->first + lag / 2) break;
    match next = find_like(l, at, l->first, at - lag / 2, lag / 2);
    if (next.place == TSR_NONE || (uint64_t)next.length * 4 < lag) break;
    at = next.place;
  }
  if (measured < 2 || least < most / 2 || least < now / 2000) return 0;
  out->step_growth_bytes = least;
  return 0;
}

/* What an iteration makes and lets go by the end of the next one's forward at the latest, when variables
 * such as `outputs` and `loss` are assigned again. */
static bool is_passing(tsr_category category) {
  return category == TSR_CATEGORY_ACTIVATION || category == TSR_CATEGORY_TEMPORARY ||
         category == TSR_CATEGORY_INPUT;
}

/* The optimizer makes its state in the first step that it takes, and keeps it. */
static int decide_fates(tsr_study *study, const look *l, tsr__rerun_tail *tail, tsr_error *error) {
  const tsr__categories *categories;
  const tsr__phases *phases;
  int status = tsr__study_categories(study, l->t->device, &categories, error);
  if (!status) status = tsr__study_phases(study, l->t->device, &phases, error);
  if (status) return status;
  uint8_t *fate = TSR__NEW_ARRAY(uint8_t, l->t->birth.count);
  if (!fate) return tsr__fail_memory(error);
  for (uint32_t a = l->first; a < l->end; a++) {
    uint32_t death = l->t->death.items[a];
    bool is_there = death == TSR_NONE || (int64_t)death > l->oom;
    if (is_there && categories->category[a] == TSR_CATEGORY_OPTIMIZER_STATE)
      fate[a] = TSR__FATE_ONCE;
    if (is_there && a < l->begin && is_passing((tsr_category)categories->category[a]))
      fate[a] = TSR__FATE_STALE;
  }
  tail->fate = fate;
  for (size_t i = 0; i < phases->runs.count && tail->drop_event < 0; i++) {
    const tsr__phase_run *run = &phases->runs.items[i];
    bool is_in_tail = run->first >= tail->first && run->first <= tail->last;
    if (is_in_tail && run->phase == TSR_PHASE_BACKWARD) tail->drop_event = run->first;
  }
  return 0;
}

static int expect_step(tsr_study *study, look *l, const match *m, uint64_t now,
                       tsr__rerun_tail *tail, tsr_why_outlook *out, tsr_error *error) {
  out->basis = TSR_WHY_BASIS_STEP;
  set_tail(l, m, STEPS_AHEAD, tail);
  int status = decide_fates(study, l, tail, error);
  if (status) return status;
  return measure_growth(l, m, now, out, error);
}

static int expect_blocks(tsr_study *study, look *l, const match *m, uint64_t now,
                         tsr__rerun_tail *tail, tsr_why_outlook *out, tsr_error *error) {
  tsr_totals before = {0};
  int status = totals_before(l, m->place, &before, error);
  out->blocks_begun = m->length / (l->end - m->place) + 2;
  out->block_bytes = tsr__drop_u64(now, before.allocated_bytes);
  if (!status) status = count_blocks(study, l, out->blocks_begun, &out->block_count, error);
  if (status || !out->block_count || !out->block_bytes) return status;
  if (out->block_count == out->blocks_begun) return 0;
  out->basis = TSR_WHY_BASIS_BLOCKS;
  set_tail(l, m, out->block_count - out->blocks_begun, tail);
  return 0;
}

/* The number of passes that begin before an event. */
static size_t passes_before(const tsr__cycle *cycle, uint32_t event) {
  return event ? tsr__cycle_passes_by(cycle, event - 1) : 0;
}

/* The same request in the pass of the same number of an earlier step, the last step first; if the trace does
 * not show which step the failure is in, in any earlier pass. It agrees for at least half of what its pass
 * has allocated. */
static match find_in_steps(look *l) {
  const tsr__cycle *cycle = l->cycle;
  uint32_t since = l->end - l->begin, wanted = since ? since : 1;
  if (!l->failure->step || !l->failure->pass) {
    match m = find_like(l, l->end, l->first, l->begin, wanted);
    return (uint64_t)m.length * 2 >= since ? m : (match){TSR_NONE, 0};
  }
  assert(l->failure->step <= cycle->steps.count && l->failure->pass <= cycle->passes.count);
  size_t step = l->failure->step - 1;
  size_t number = l->failure->pass - passes_before(cycle, cycle->steps.items[step].first);
  while (step-- > 0) {
    size_t pass = passes_before(cycle, cycle->steps.items[step].first) + (number ? number - 1 : 0);
    if (pass >= cycle->passes.count || cycle->passes.items[pass] > cycle->steps.items[step].last)
      continue;
    size_t next = pass + 1;
    uint32_t from = first_from(l->t, cycle->passes.items[pass]);
    uint32_t to =
        next < cycle->passes.count ? first_from(l->t, cycle->passes.items[next]) : l->begin;
    match m = find_like(l, l->end, from, to < l->begin ? to : l->begin, wanted);
    if (m.place != TSR_NONE && (uint64_t)m.length * 2 >= since) return m;
  }
  return (match){TSR_NONE, 0};
}

static int find_earlier(tsr_study *study, look *l, const tsr_totals *now, tsr__rerun_tail *tail,
                        tsr_why_outlook *out, tsr_error *error) {
  match m = find_in_steps(l);
  bool is_step = m.place != TSR_NONE;
  if (!is_step) {
    bool is_forward = out->phase == TSR_PHASE_FORWARD || out->phase == TSR_PHASE_UNKNOWN;
    if (!is_forward) return 0;
    m = find_block(l, l->end, l->begin);
    if (m.place == TSR_NONE) return 0;
  }
  out->like_event = (int64_t)l->t->birth.items[m.place];
  return is_step ? expect_step(study, l, &m, now->requested_bytes, tail, out, error)
                 : expect_blocks(study, l, &m, now->allocated_bytes, tail, out, error);
}

/* The most that is allocated from the request on, if nothing fails. */
static int measure_rest(const look *l, tsr__patience *patience, tsr__rerun_tail *tail,
                        const tsr_why_device *device, tsr_why_outlook *out, tsr_error *error) {
  tsr__rerun_options how = {
      .settings = l->t->settings, .until = l->oom, .patience = patience, .tail = *tail};
  if (out->basis == TSR_WHY_BASIS_STEP) how.tail.repeats = 1;
  tsr_whatif_run run = {.is_recorded = true};
  tsr__rerun_end end;
  int status = tsr__rerun_further(l->t, &how, &run, &end, error);
  if (status) return status;
  if (run.is_given_up || !end.is_tail_served) {
    out->basis = TSR_WHY_BASIS_NONE;
    tail->repeats = 0;
    return 0;
  }
  out->peak_bytes = end.most.allocated_bytes;
  out->asked_bytes = end.most.requested_bytes;
  out->short_bytes = tsr__drop_u64(out->asked_bytes, device->trial_capacity_bytes);
  return 0;
}

/* ---- An optimizer's first step ---- */

/* Smaller states are counters of steps. */
#define LEAST_STATE_BYTES 512

static uint64_t common_divisor(uint64_t a, uint64_t b) {
  while (b) {
    uint64_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

/* How many states a parameter has. An optimizer makes all states of one parameter and goes on to the next, so
 * the lengths of runs of equal sizes are multiples of it; the last run may be cut. 0 if there are too few to say. */
static uint64_t states_each(const look *l, const tsr__categories *categories) {
  enum { FEWEST_RUNS = 8 };
  uint64_t each = 0, runs = 0, length = 0, last = 0;
  for (uint32_t a = l->first; a < l->end; a++) {
    uint64_t bytes = tsr__timeline_requested(l->t, a);
    bool is_state = categories->category[a] == TSR_CATEGORY_OPTIMIZER_STATE;
    if (!is_state || bytes < LEAST_STATE_BYTES) continue;
    if (bytes != last && length) {
      each = common_divisor(each, length);
      runs++;
      length = 0;
    }
    last = bytes;
    length++;
  }
  return runs < FEWEST_RUNS ? 0 : each;
}

static uint64_t bytes_of(const shape *shapes, size_t count) {
  uint64_t sum = 0;
  for (size_t i = 0; i < count; i++)
    sum = tsr__sum_u64(sum, tsr__product_u64(shapes[i].bytes, shapes[i].count));
  return sum;
}

/* It failed while the optimizer makes its state: what that will be when every gradient has its share. Smaller
 * than the truth, since the step itself needs memory too. */
static int expect_states(tsr_study *study, const look *l, const tsr_why_device *device,
                         tsr_why_outlook *out, tsr_error *error) {
  const tsr__categories *categories;
  shape *gradients = NULL, *states = NULL;
  size_t gradient_count = 0, state_count = 0;
  int status = tsr__study_categories(study, l->t->device, &categories, error);
  if (!status)
    status = shapes_of(study, l, TSR_CATEGORY_GRADIENT, LEAST_STATE_BYTES, &gradients,
                       &gradient_count, error);
  if (!status)
    status = shapes_of(study, l, TSR_CATEGORY_OPTIMIZER_STATE, LEAST_STATE_BYTES, &states,
                       &state_count, error);
  if (!status) {
    uint64_t all =
        tsr__product_u64(bytes_of(gradients, gradient_count), states_each(l, categories));
    uint64_t asked = tsr__drop_u64(all, bytes_of(states, state_count)); /* what is still to come */
    for (size_t i = 0; i < device->category_count; i++) {
      tsr_category category = device->categories[i].category;
      if (category == TSR_CATEGORY_PARAMETER || category == TSR_CATEGORY_GRADIENT ||
          category == TSR_CATEGORY_OPTIMIZER_STATE)
        asked = tsr__sum_u64(asked, device->categories[i].bytes);
    }
    if (all && asked > device->trial_capacity_bytes) {
      out->basis = TSR_WHY_BASIS_STATES;
      out->peak_bytes = out->asked_bytes = asked;
      out->short_bytes = asked - device->trial_capacity_bytes;
    }
  }
  tsr__free(gradients);
  tsr__free(states);
  return status;
}

/* ---- The whole ---- */

static int begin_look(tsr_study *study, const tsr__timeline *t, const tsr_why_device *device,
                      look *l, tsr_why_outlook *out, tsr_error *error) {
  const tsr__cycle *cycle;
  const tsr__roles *roles;
  int status = tsr__study_roles(study, &roles, error);
  if (!status) status = tsr__study_cycle(study, device->device, &cycle, error);
  if (status) return status;
  int64_t oom = device->moment.event;
  assert(oom >= 0 && t->events.action[oom] == TSR_ACTION_OOM);
  *l = (look){.t = t,
              .roles = roles,
              .first = (uint32_t)t->initial.count,
              .end = first_from(t, oom),
              .oom = oom,
              .cycle = cycle,
              .failure = &cycle->failures.items[device->chosen]};
  *out = (tsr_why_outlook){.like_event = -1};
  assert(cycle->failures.count == device->oom_count);
  assert(l->failure->event == oom);
  locate(l, out);
  assert(l->begin >= l->first);
  if (l->begin > l->end) l->begin = l->end;
  return 0;
}

int tsr__why_look_ahead(tsr_study *study, const tsr__timeline *timeline, tsr__patience *patience,
                        tsr__rerun_tail *tail, tsr_why_device *device, tsr_error *error) {
  tsr_why_outlook *out = &device->outlook;
  look l;
  *tail = (tsr__rerun_tail){0};
  int status = begin_look(study, timeline, device, &l, out, error);
  if (status || device->ooms[device->chosen].is_recovered) return status;
  status = find_earlier(study, &l, &device->moment.totals, tail, out, error);
  if (!status && !tail->repeats) out->basis = TSR_WHY_BASIS_NONE;
  if (!status && tail->repeats) status = measure_rest(&l, patience, tail, device, out, error);
  bool is_update = !out->basis && out->phase == TSR_PHASE_OPTIMIZER;
  return status || !is_update ? status : expect_states(study, &l, device, out, error);
}

/* The blocks of the forward in which or after which it failed: tried from a few places of it. */
static int find_blocks(tsr_study *study, look *l, tsr__why_blocks *out, tsr_error *error) {
  enum { PLACES = 8 };
  match best = {TSR_NONE, 0};
  uint32_t best_at = 0, count = l->end - l->begin;
  for (uint32_t i = 1; i <= PLACES && count > PLACES; i++) {
    uint32_t at = l->begin + (uint32_t)((uint64_t)count * i / (PLACES + 1));
    match m = find_block(l, at, l->begin);
    if (m.place == TSR_NONE || m.length <= best.length) continue;
    best = m;
    best_at = at;
  }
  if (best.place == TSR_NONE) return 0;
  uint64_t begun = best.length / (best_at - best.place) + 2;
  tsr_totals before = {0}, after = {0};
  int status = totals_before(l, best.place, &before, error);
  if (!status) status = totals_before(l, best_at, &after, error);
  if (!status) status = count_blocks(study, l, begun, &out->count, error);
  out->bytes = tsr__drop_u64(after.allocated_bytes, before.allocated_bytes);
  if (!out->count) out->count = begun;
  return status;
}

static int measure_peaks(const look *l, const tsr__phases *phases, tsr__why_program *out,
                         tsr_error *error) {
  tsr__sweep sweep;
  size_t r = 0, runs = phases->runs.count;
  int status = tsr__sweep_begin(l->t, &sweep, error);
  if (status) return status;
  while (tsr__sweep_next(&sweep) && sweep.event < l->oom) {
    while (r + 1 < runs && (int64_t)phases->runs.items[r + 1].first <= sweep.event) r++;
    bool is_update = r < runs && phases->runs.items[r].phase == TSR_PHASE_OPTIMIZER;
    uint64_t *most = is_update ? &out->update_peak_bytes : &out->work_peak_bytes;
    if (sweep.totals.allocated_bytes > *most) *most = sweep.totals.allocated_bytes;
  }
  tsr__sweep_release(&sweep);
  return 0;
}

int tsr__why_program_of(tsr_study *study, const tsr__timeline *timeline,
                        const tsr_why_device *device, tsr__why_program *out, tsr_error *error) {
  const tsr_why_outlook *known = &device->outlook;
  const tsr__phases *phases;
  tsr_why_outlook ignored;
  look l;
  *out = (tsr__why_program){0};
  int status = begin_look(study, timeline, device, &l, &ignored, error);
  if (!status) status = tsr__study_phases(study, device->device, &phases, error);
  if (status) return status;
  uint32_t step = l.failure->step;
  out->has_whole_step = step > 1 && l.cycle->steps.items[step - 2].is_whole;
  for (size_t i = 0; i < phases->runs.count && phases->runs.items[i].first <= l.oom; i++) {
    tsr_phase phase = (tsr_phase)phases->runs.items[i].phase;
    bool is_last = i + 1 == phases->runs.count || (int64_t)phases->runs.items[i + 1].first > l.oom;
    out->has_backward |= phase == TSR_PHASE_BACKWARD || phase == TSR_PHASE_OPTIMIZER;
    out->has_optimizer |=
        phase == TSR_PHASE_OPTIMIZER && (!is_last || known->phase != TSR_PHASE_OPTIMIZER);
    out->has_recompute |= phase == TSR_PHASE_RECOMPUTE;
  }
  status = judge_loss(study, &l, &out->loss_bytes, error);
  if (!status) status = measure_peaks(&l, phases, out, error);
  if (status) return status;
  if (known->blocks_begun) {
    uint64_t count = known->block_count ? known->block_count : known->blocks_begun;
    out->blocks = (tsr__why_blocks){count, known->block_bytes};
    return 0;
  }
  return find_blocks(study, &l, &out->blocks, error);
}
