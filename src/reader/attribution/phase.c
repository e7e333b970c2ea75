/* phase.c - the role of each stack, and the runs of a trace. See phase.h.
 *
 * A stack is read once, innermost frame first. Marks compete: an optimizer's step may call backward
 * (a closure), backward may call forward (checkpointing), forward may call backward (a penalty on
 * gradients); the innermost wins. There are two exceptions. The unwinder sometimes fails, and
 * PyTorch then lists the Python frames that it knows after the C++ ones: so Python marks are compared
 * among themselves, and the engine's C++ frames only show that all of it is backward. And a module
 * called inside backward is recomputation, whether or not a checkpoint's frame is visible; a mere name
 * is not, because compiled code shows the lines of forward from which it was made.
 *
 * Runs are made in two passes: first a run for each range of equal roles, known or not; then the
 * unknown ones take the phase that their neighbours imply, and equal neighbours are merged:
 *
 *   known     setup  ?     forward ?     backward (no frames)  optimizer ?     forward
 *   implied          data          forward        backward               data */
#include "attribution/phase.h"

#include <assert.h>

#include "attribution/reentrant.h"
#include "base/memory.h"

/* ---- Stacks ---- */

/* Where each mark first occurs, innermost first; UINT32_MAX if it does not. */
typedef struct marks {
  uint32_t at[TSR__MARK_COUNT];
} marks;

static marks find_marks(tsr_stack stack, const uint8_t *mark_of_frame) {
  marks found;
  for (size_t i = 0; i < TSR__MARK_COUNT; i++) found.at[i] = UINT32_MAX;
  for (uint32_t i = 0; i < stack.depth; i++) {
    assert(mark_of_frame[stack.frames[i]] < TSR__MARK_COUNT);
    uint8_t mark = mark_of_frame[stack.frames[i]];
    if (found.at[mark] == UINT32_MAX) found.at[mark] = i;
    if (mark == TSR__MARK_APPLY && found.at[TSR__MARK_MODULE_SETUP] == UINT32_MAX)
      found.at[TSR__MARK_MODULE_SETUP] = i;
    if (mark == TSR__MARK_GRAD_BUFFER && found.at[TSR__MARK_CONSTRUCTOR] == UINT32_MAX)
      found.at[TSR__MARK_CONSTRUCTOR] = i;
    bool is_plain = mark == TSR__MARK_TRAINING || mark == TSR__MARK_INFERENCE;
    if (is_plain && found.at[TSR__MARK_PYTHON] == UINT32_MAX) found.at[TSR__MARK_PYTHON] = i;
    bool is_forward = mark == TSR__MARK_CALL || mark == TSR__MARK_ATTENTION;
    if (is_forward && found.at[TSR__MARK_FORWARD] == UINT32_MAX) found.at[TSR__MARK_FORWARD] = i;
  }
  return found;
}

static bool has(const marks *m, tsr__mark mark) {
  return m->at[mark] != UINT32_MAX;
}

/* Whether `a` occurs, and is inside of `b` if that occurs too. */
static bool inside(const marks *m, tsr__mark a, tsr__mark b) {
  return m->at[a] < m->at[b];
}

static tsr_phase phase_in_backward(const marks *m) {
  bool is_called = has(m, TSR__MARK_BACKWARD);
  if (has(m, TSR__MARK_RECOMPUTE))
    return is_called && inside(m, TSR__MARK_BACKWARD, TSR__MARK_RECOMPUTE) ? TSR_PHASE_BACKWARD
                                                                           : TSR_PHASE_RECOMPUTE;
  if (inside(m, TSR__MARK_UNPACK, TSR__MARK_ENGINE)) return TSR_PHASE_RECOMPUTE;
  if (has(m, TSR__MARK_CALL) && !inside(m, TSR__MARK_BACKWARD, TSR__MARK_CALL))
    return TSR_PHASE_RECOMPUTE;
  return TSR_PHASE_BACKWARD;
}

static bool is_backward(const marks *m) {
  if (has(m, TSR__MARK_ENGINE) || has(m, TSR__MARK_PYTHON_NODE)) return true;
  if (has(m, TSR__MARK_ACCUMULATE) || has(m, TSR__MARK_RECOMPUTE)) return true;
  return has(m, TSR__MARK_BACKWARD);
}

/* The innermost mark of the optimizer's family; UINT32_MAX for none. */
static tsr_phase phase_in_optimizer(const marks *m, uint32_t *at) {
  static const struct {
    tsr__mark mark;
    tsr_phase phase;
  } family[] = {{TSR__MARK_ZERO_GRAD, TSR_PHASE_ZERO_GRAD},
                {TSR__MARK_OPTIMIZER_SETUP, TSR_PHASE_SETUP},
                {TSR__MARK_STATE, TSR_PHASE_OPTIMIZER},
                {TSR__MARK_OPTIMIZER, TSR_PHASE_OPTIMIZER},
                {TSR__MARK_GRADIENT_TOOL, TSR_PHASE_OPTIMIZER}};
  tsr_phase phase = TSR_PHASE_UNKNOWN;
  *at = UINT32_MAX;
  for (size_t i = 0; i < sizeof family / sizeof *family; i++)
    if (m->at[family[i].mark] < *at) {
      *at = m->at[family[i].mark];
      phase = family[i].phase;
    }
  return phase;
}

static tsr_phase phase_of(const marks *m) {
  uint32_t at;
  tsr_phase of_optimizer = phase_in_optimizer(m, &at);
  bool runs_model = m->at[TSR__MARK_BACKWARD] < at || m->at[TSR__MARK_FORWARD] < at;
  if (of_optimizer != TSR_PHASE_UNKNOWN && !runs_model) return of_optimizer;
  /* A gradient penalty calls backward inside forward, and counts as backward; a closure calls both. */
  if (is_backward(m)) return phase_in_backward(m);
  if (has(m, TSR__MARK_MODULE_SETUP) && !inside(m, TSR__MARK_FORWARD, TSR__MARK_MODULE_SETUP))
    return TSR_PHASE_SETUP;
  if (has(m, TSR__MARK_FORWARD)) return TSR_PHASE_FORWARD;
  if (has(m, TSR__MARK_KV_CACHE)) return TSR_PHASE_SETUP;
  if (has(m, TSR__MARK_DATA)) return TSR_PHASE_DATA;
  if (has(m, TSR__MARK_CONSTRUCTOR)) return TSR_PHASE_SETUP;
  if (has(m, TSR__MARK_OPTIMIZER_KERNEL) && !has(m, TSR__MARK_PYTHON)) return TSR_PHASE_OPTIMIZER;
  return TSR_PHASE_UNKNOWN;
}

/* Attention and pointwise functions have no weights that autocast could cast. */
static bool is_of_attention(const marks *m) {
  return has(m, TSR__MARK_SAVES_OUTPUT) || inside(m, TSR__MARK_ATTENTION, TSR__MARK_CALL);
}

static tsr__mark hint_of(const marks *m, tsr_phase phase) {
  static const tsr__mark telling[] = {
      TSR__MARK_WORKSPACE,       TSR__MARK_COLLECTIVE,    TSR__MARK_RELEASE,
      TSR__MARK_AUTOCAST_EXIT,   TSR__MARK_KV_CACHE,      TSR__MARK_REPLICA,
      TSR__MARK_SCATTER,         TSR__MARK_AUTOCAST,      TSR__MARK_STATE,
      TSR__MARK_OPTIMIZER_SETUP, TSR__MARK_GRADIENT_TOOL, TSR__MARK_ACCUMULATE,
      TSR__MARK_MODULE_SETUP,    TSR__MARK_DATA,          TSR__MARK_CONSTRUCTOR};
  for (size_t i = 0; i < sizeof telling / sizeof *telling; i++) {
    tsr__mark mark = telling[i];
    if (!has(m, mark)) continue;
    bool is_of_phase =
        mark == TSR__MARK_STATE || mark == TSR__MARK_GRADIENT_TOOL ? phase == TSR_PHASE_OPTIMIZER
        : mark == TSR__MARK_OPTIMIZER_SETUP || mark == TSR__MARK_MODULE_SETUP ||
                mark == TSR__MARK_CONSTRUCTOR
            ? phase == TSR_PHASE_SETUP
        : mark == TSR__MARK_DATA     ? phase == TSR_PHASE_DATA
        : mark == TSR__MARK_AUTOCAST ? !is_of_attention(m)
        : mark == TSR__MARK_KV_CACHE ? !inside(m, TSR__MARK_FORWARD, TSR__MARK_KV_CACHE)
        : mark == TSR__MARK_REPLICA || mark == TSR__MARK_SCATTER
            ? phase != TSR_PHASE_BACKWARD && phase != TSR_PHASE_RECOMPUTE
        : mark == TSR__MARK_COLLECTIVE ? !inside(m, TSR__MARK_FORWARD, TSR__MARK_COLLECTIVE)
                                       : true;
    if (is_of_phase) return mark;
  }
  bool has_native = has(m, TSR__MARK_NONE);
  if (has(m, TSR__MARK_SAVES_OUTPUT) || (has(m, TSR__MARK_ATTENTION) && !has_native))
    return TSR__MARK_SAVES_OUTPUT;
  return TSR__MARK_NONE;
}

static bool is_python_mark(uint8_t mark) {
  return mark == TSR__MARK_PYTHON || mark == TSR__MARK_FORWARD || mark == TSR__MARK_CALL ||
         mark == TSR__MARK_OPTIMIZER || mark == TSR__MARK_BACKWARD ||
         mark == TSR__MARK_CONSTRUCTOR || mark == TSR__MARK_ATTENTION || mark == TSR__MARK_APPLY ||
         mark == TSR__MARK_KV_CACHE || mark == TSR__MARK_TRAINING || mark == TSR__MARK_INFERENCE ||
         mark == TSR__MARK_GRAD_BUFFER;
}

/* The line of the innermost frame with a mark; 0 without one. */
static uint64_t line_of(const tsr_snapshot *snapshot, tsr_stack stack, const marks *m,
                        tsr__mark mark) {
  return has(m, mark) ? tsr_snapshot_frame(snapshot, stack.frames[m->at[mark]]).line : 0;
}

static tsr__mark purpose_of(const marks *m) {
  if (inside(m, TSR__MARK_TRAINING, TSR__MARK_INFERENCE)) return TSR__MARK_TRAINING;
  return has(m, TSR__MARK_INFERENCE) ? TSR__MARK_INFERENCE : TSR__MARK_NONE;
}

static void read_stacks(const tsr_snapshot *snapshot, const uint8_t *mark_of_frame,
                        tsr__roles *roles) {
  for (uint32_t i = 0; i < roles->count; i++) {
    tsr_stack stack = tsr_snapshot_stack(snapshot, i);
    marks m = find_marks(stack, mark_of_frame);
    tsr_phase phase = phase_of(&m);
    roles->is_empty[i] = stack.depth == 0;
    roles->apply_line[i] = line_of(snapshot, stack, &m, TSR__MARK_APPLY);
    roles->buffer_line[i] = line_of(snapshot, stack, &m, TSR__MARK_GRAD_BUFFER);
    if (roles->buffer_line[i] > roles->last_buffer_line)
      roles->last_buffer_line = roles->buffer_line[i];
    roles->purpose[i] = (uint8_t)purpose_of(&m);
    roles->stacks[i] = (tsr__role){(uint8_t)phase, (uint8_t)hint_of(&m, phase),
                                   has(&m, TSR__MARK_NONE), has(&m, TSR__MARK_LIST)};
  }
  roles->is_empty[roles->count] = true;
  assert(roles->stacks[roles->count].phase == TSR_PHASE_UNKNOWN); /* of what has no stack */
}

int tsr__roles_compute(const tsr_snapshot *snapshot, tsr__roles *out, tsr_error *error) {
  uint32_t frame_count = tsr_snapshot_frame_count(snapshot);
  tsr__roles roles = {.count = tsr_snapshot_stack_count(snapshot)};
  uint8_t *mark_of_frame = TSR__NEW_ARRAY(uint8_t, frame_count);
  roles.stacks = TSR__NEW_ARRAY(tsr__role, (size_t)roles.count + 1);
  roles.is_empty = TSR__NEW_ARRAY(bool, (size_t)roles.count + 1);
  roles.apply_line = TSR__NEW_ARRAY(uint64_t, (size_t)roles.count + 1);
  roles.purpose = TSR__NEW_ARRAY(uint8_t, (size_t)roles.count + 1);
  roles.buffer_line = TSR__NEW_ARRAY(uint64_t, (size_t)roles.count + 1);
  bool ok = mark_of_frame && roles.stacks && roles.is_empty && roles.apply_line && roles.purpose &&
            roles.buffer_line;
  for (uint32_t i = 0; ok && i < frame_count; i++) {
    tsr_frame frame = tsr_snapshot_frame(snapshot, i);
    mark_of_frame[i] = (uint8_t)tsr__mark_of(tsr_snapshot_string(snapshot, frame.name),
                                             tsr_snapshot_string(snapshot, frame.file));
    roles.has_python |= is_python_mark(mark_of_frame[i]);
  }
  if (ok) read_stacks(snapshot, mark_of_frame, &roles);
  int status =
      ok ? tsr__reentrant_find(snapshot, mark_of_frame, &roles, error) : tsr__fail_memory(error);
  tsr__free(mark_of_frame);
  if (status)
    tsr__roles_release(&roles);
  else
    *out = roles;
  return status;
}

void tsr__roles_release(tsr__roles *roles) {
  tsr__free(roles->stacks);
  tsr__free(roles->is_empty);
  tsr__free(roles->apply_line);
  tsr__free(roles->purpose);
  tsr__free(roles->buffer_line);
  *roles = (tsr__roles){0};
}

/* ---- Runs ---- */

/* Additional value next to the phases, while runs are made: no frames, so nothing is known. */
enum { PHASE_EMPTY = TSR_PHASE_COUNT };

typedef struct maker {
  const tsr__roles *roles;
  const tsr_events *events;
  size_t next_range;                 /* the first that has not begun */
  uint32_t covered[TSR_PHASE_COUNT]; /* by phase: the last event in a range of it, plus 1 */
  tsr_phase annotated;               /* the phase given by annotations, up to this event */
  uint32_t annotated_until;
  tsr__phases out;
} maker;

/* The phase given by annotations for an event; the narrower of two wins, because they nest. */
static tsr_phase annotated(maker *m, uint32_t event) {
  if (event < m->annotated_until) return m->annotated;
  while (m->next_range < m->out.marked.count && m->out.marked.items[m->next_range].first <= event) {
    const tsr__marked *range = &m->out.marked.items[m->next_range++];
    assert(range->phase < TSR_PHASE_COUNT && range->first <= range->last);
    if (m->covered[range->phase] < range->last + 1) m->covered[range->phase] = range->last + 1;
  }
  tsr_phase phase = TSR_PHASE_UNKNOWN;
  m->annotated_until =
      m->next_range < m->out.marked.count ? m->out.marked.items[m->next_range].first : UINT32_MAX;
  for (int i = TSR_PHASE_UNKNOWN + 1; i < TSR_PHASE_COUNT; i++) {
    if (m->covered[i] <= event) continue;
    if (m->annotated_until > m->covered[i]) m->annotated_until = m->covered[i];
    if (phase == TSR_PHASE_UNKNOWN || m->covered[i] < m->covered[phase]) phase = (tsr_phase)i;
  }
  assert(m->annotated_until > event);
  m->annotated = phase;
  return phase;
}

/* The phase of one event; UNKNOWN for an allocation without evidence, -1 for an event that does not count. */
static int phase_shown(maker *m, uint32_t event) {
  tsr_action action = (tsr_action)m->events->action[event];
  uint32_t stack = m->events->stack[event];
  tsr_phase range = m->out.marked.count ? annotated(m, event) : TSR_PHASE_UNKNOWN;
  if (action != TSR_ACTION_ALLOC && action != TSR_ACTION_OOM) {
    bool may_be_silent = range == TSR_PHASE_OPTIMIZER || range == TSR_PHASE_ZERO_GRAD;
    if (may_be_silent) return (int)range;
    if (action != TSR_ACTION_FREE_REQUESTED) return -1;
    return tsr__role_of(m->roles, stack).phase == TSR_PHASE_ZERO_GRAD ? TSR_PHASE_ZERO_GRAD : -1;
  }
  tsr_phase phase = (tsr_phase)tsr__role_of(m->roles, stack).phase;
  if (phase != TSR_PHASE_UNKNOWN) return (int)phase;
  if (range != TSR_PHASE_UNKNOWN) return (int)range;
  bool is_empty = m->roles->is_empty[stack < m->roles->count ? stack : m->roles->count];
  if (is_empty && action == TSR_ACTION_OOM) return -1; /* any thread's */
  return is_empty && m->roles->has_python ? PHASE_EMPTY : TSR_PHASE_UNKNOWN;
}

static bool make_runs(maker *m) {
  const tsr_events *events = m->events;
  int phase = -1;
  uint32_t count = events->count < UINT32_MAX ? (uint32_t)events->count : UINT32_MAX - 1;
  for (uint32_t i = 0; i < count; i++) {
    int shown = phase_shown(m, i);
    if (shown < 0) continue;
    assert(shown <= PHASE_EMPTY);
    if (shown != phase) {
      phase = shown;
      bool is_known = phase != TSR_PHASE_UNKNOWN && phase != PHASE_EMPTY;
      if (!TSR__VECTOR_PUSH(&m->out.runs, (tsr__phase_run){i, i, (uint8_t)phase, is_known}))
        return false;
    }
    if (events->action[i] == TSR_ACTION_ALLOC)
      m->out.runs.items[m->out.runs.count - 1].last_alloc = i;
  }
  return true;
}

/* Stacks without Python frames are those of autograd's threads, unless the program was elsewhere. */
static void imply_threads(tsr__phases *phases) {
  tsr_phase before = TSR_PHASE_UNKNOWN;
  for (size_t i = 0; i < phases->runs.count; i++) {
    tsr__phase_run *run = &phases->runs.items[i];
    if (run->phase == PHASE_EMPTY) {
      bool is_elsewhere = before == TSR_PHASE_OPTIMIZER || before == TSR_PHASE_ZERO_GRAD ||
                          before == TSR_PHASE_SETUP || before == TSR_PHASE_DATA;
      run->phase = (uint8_t)(is_elsewhere ? TSR_PHASE_UNKNOWN : TSR_PHASE_BACKWARD);
    }
    if (run->phase != TSR_PHASE_UNKNOWN) before = (tsr_phase)run->phase;
  }
}

/* The phase of a run between two known ones. */
static tsr_phase between(tsr_phase before, tsr_phase after) {
  bool was_backward = before == TSR_PHASE_BACKWARD || before == TSR_PHASE_RECOMPUTE;
  bool will_be_backward = after == TSR_PHASE_BACKWARD || after == TSR_PHASE_RECOMPUTE;
  if (before == TSR_PHASE_FORWARD) /* the loss; zero_grad may come before backward */
    return after == TSR_PHASE_OPTIMIZER || after == TSR_PHASE_SETUP || after == TSR_PHASE_DATA
               ? TSR_PHASE_UNKNOWN
               : TSR_PHASE_FORWARD;
  if (was_backward && will_be_backward) return TSR_PHASE_FORWARD;
  if (was_backward && after == TSR_PHASE_OPTIMIZER) return TSR_PHASE_OPTIMIZER;
  if (before == TSR_PHASE_OPTIMIZER && after == TSR_PHASE_OPTIMIZER) return TSR_PHASE_OPTIMIZER;
  if (after == TSR_PHASE_FORWARD) return TSR_PHASE_DATA;
  if (before == TSR_PHASE_SETUP && after == TSR_PHASE_SETUP) return TSR_PHASE_SETUP;
  /* Forward that no frame names: only the loss of it is recorded, or there are only C++ frames. */
  return will_be_backward ? TSR_PHASE_FORWARD : TSR_PHASE_UNKNOWN;
}

/* Known and unknown runs alternate. The runs on both sides of zero_grad mostly have the same phase. */
static tsr_phase phase_after(const tsr__phases *phases, size_t i) {
  tsr_phase after = TSR_PHASE_UNKNOWN;
  for (size_t next = i + 1; next < phases->runs.count && next <= i + 3; next++) {
    tsr_phase phase = (tsr_phase)phases->runs.items[next].phase;
    if (phase != TSR_PHASE_UNKNOWN) after = phase;
    if (phase != TSR_PHASE_UNKNOWN && phase != TSR_PHASE_ZERO_GRAD) break;
  }
  return after;
}

static void imply_neighbours(tsr__phases *phases) {
  tsr_phase before = TSR_PHASE_UNKNOWN;
  for (size_t i = 0; i < phases->runs.count; i++) {
    tsr__phase_run *run = &phases->runs.items[i];
    if (run->phase != TSR_PHASE_UNKNOWN) {
      before = (tsr_phase)run->phase;
      continue;
    }
    run->phase = (uint8_t)between(before, phase_after(phases, i));
  }
}

static void join_equal(tsr__phases *phases) {
  size_t kept = 0;
  for (size_t i = 0; i < phases->runs.count; i++) {
    tsr__phase_run run = phases->runs.items[i];
    tsr__phase_run *last = kept ? &phases->runs.items[kept - 1] : NULL;
    if (last && last->phase == run.phase) {
      last->last_alloc = run.last_alloc;
      last->is_known |= run.is_known;
    } else {
      phases->runs.items[kept++] = run;
    }
  }
  assert(kept <= phases->runs.count);
  phases->runs.count = kept;
}

int tsr__phases_compute(const tsr_snapshot *snapshot, const tsr__roles *roles,
                        const tsr_events *events, tsr__phases *out, tsr_error *error) {
  maker m = {.roles = roles, .events = events};
  tsr__marks_read read;
  int status = tsr__marked_compute(snapshot, events, &read, error);
  if (status) return status;
  m.out.marked = read.ranges;
  m.out.is_training_marked = read.shows_training;
  if (!make_runs(&m)) {
    tsr__phases_release(&m.out);
    return tsr__fail_memory(error);
  }
  imply_threads(&m.out);
  join_equal(&m.out);
  imply_neighbours(&m.out);
  join_equal(&m.out);
  for (size_t i = 0; i < m.out.runs.count; i++) {
    assert(m.out.runs.items[i].phase < TSR_PHASE_COUNT);
    assert(m.out.runs.items[i].first <= m.out.runs.items[i].last_alloc);
    assert(!i || m.out.runs.items[i - 1].last_alloc < m.out.runs.items[i].first);
  }
  *out = m.out;
  return 0;
}

void tsr__phases_release(tsr__phases *phases) {
  TSR__VECTOR_FREE(&phases->runs);
  TSR__VECTOR_FREE(&phases->marked);
}

bool tsr__phases_train(const tsr__phases *phases) {
  for (size_t i = 0; i < phases->runs.count; i++) {
    uint8_t phase = phases->runs.items[i].phase;
    if (phase == TSR_PHASE_BACKWARD || phase == TSR_PHASE_RECOMPUTE || phase == TSR_PHASE_OPTIMIZER)
      return true;
  }
  return false;
}

const tsr__phase_run *tsr__phases_run_at(const tsr__phases *phases, uint32_t event) {
  size_t low = 0, high = phases->runs.count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (phases->runs.items[middle].first <= event)
      low = middle + 1;
    else
      high = middle;
  }
  assert(!low || phases->runs.items[low - 1].first <= event);
  assert(low == phases->runs.count || phases->runs.items[low].first > event);
  return low ? &phases->runs.items[low - 1] : NULL;
}

tsr_phase tsr__phases_at(const tsr__phases *phases, uint32_t event) {
  const tsr__phase_run *run = tsr__phases_run_at(phases, event);
  return run ? (tsr_phase)run->phase : TSR_PHASE_UNKNOWN;
}
