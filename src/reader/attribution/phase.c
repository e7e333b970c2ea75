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
#include <string.h>

#include "attribution/reentrant.h"
#include "base/map.h"
#include "base/memory.h"

/* ---- Stacks ---- */

/* Where each mark first occurs, innermost first; UINT32_MAX if it does not. */
typedef struct marks {
  uint32_t at[TSR__MARK_COUNT];
  uint32_t outer_backward; /* the outermost Python that runs backward; UINT32_MAX if absent */
} marks;

static marks find_marks(tsr_stack stack, const uint8_t *mark_of_frame) {
  marks found;
  for (size_t i = 0; i < TSR__MARK_COUNT; i++) found.at[i] = UINT32_MAX;
  found.outer_backward = UINT32_MAX;
  for (uint32_t i = 0; i < stack.depth; i++) {
    assert(mark_of_frame[stack.frames[i]] < TSR__MARK_COUNT);
    uint8_t mark = mark_of_frame[stack.frames[i]];
    if (found.at[mark] == UINT32_MAX) found.at[mark] = i;
    if (mark == TSR__MARK_APPLY && found.at[TSR__MARK_MODULE_SETUP] == UINT32_MAX)
      found.at[TSR__MARK_MODULE_SETUP] = i;
    if (mark == TSR__MARK_GRAD_BUFFER && found.at[TSR__MARK_CONSTRUCTOR] == UINT32_MAX)
      found.at[TSR__MARK_CONSTRUCTOR] = i;
    if (mark == TSR__MARK_BACKWARD) found.outer_backward = i;
    if (mark == TSR__MARK_GRAD && found.at[TSR__MARK_BACKWARD] == UINT32_MAX)
      found.at[TSR__MARK_BACKWARD] = i;
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

/* A forward pass that calls torch.autograd.grad, as a product with a Jacobian does: what that makes is the pass's
 * own, and not a gradient of parameters. */
static bool is_inner_grad(const marks *m) {
  if (!has(m, TSR__MARK_GRAD) || !has(m, TSR__MARK_FORWARD) || has(m, TSR__MARK_RECOMPUTE))
    return false;
  bool runs_within =
      m->outer_backward != UINT32_MAX && m->outer_backward > m->at[TSR__MARK_FORWARD];
  return inside(m, TSR__MARK_GRAD, TSR__MARK_FORWARD) && !runs_within;
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
  if (is_inner_grad(m)) return TSR_PHASE_FORWARD;
  /* What calls backward itself inside of forward counts as backward; a closure calls both. */
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
         mark == TSR__MARK_OPTIMIZER || mark == TSR__MARK_BACKWARD || mark == TSR__MARK_GRAD ||
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
    roles->stacks[i] = (tsr__role){
        (uint8_t)phase,          (uint8_t)hint_of(&m, phase),    has(&m, TSR__MARK_NONE),
        has(&m, TSR__MARK_LIST), m.outer_backward != UINT32_MAX, is_inner_grad(&m)};
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
  bool *
      is_data; /* by stack: it makes what a forward pass gets, by its neighbours elsewhere; or NULL */
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
  if (m->is_data && stack < m->roles->count && m->is_data[stack]) return TSR_PHASE_DATA;
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

/* ---- Gradients within a forward pass ---- */

/* What forward made before a run of autograd's engine, and what became of it: freed by the run, or by a later
 * backward pass. */
typedef struct saved {
  uint32_t made, freed, freed_later;
} saved;

static bool calls_backward(const maker *m, size_t run) {
  uint32_t last = m->out.runs.items[run].last_alloc;
  for (uint32_t e = m->out.runs.items[run].first; e <= last; e++)
    if (m->events->action[e] == TSR_ACTION_ALLOC &&
        tsr__role_of(m->roles, m->events->stack[e]).calls_backward)
      return true;
  return false;
}

static uint32_t end_of_run(const maker *m, size_t run) {
  return run + 1 < m->out.runs.count ? m->out.runs.items[run + 1].first
                                     : (uint32_t)m->events->count;
}

/* The frees of addresses in `live` in one run; they are taken out. */
static uint32_t count_frees(const maker *m, size_t run, tsr__map *live) {
  uint32_t count = 0, end = end_of_run(m, run);
  for (uint32_t e = m->out.runs.items[run].first; e < end; e++) {
    if (m->events->action[e] == TSR_ACTION_ALLOC ||
        m->events->action[e] == TSR_ACTION_FREE_REQUESTED) {
      bool is_live = tsr__map_find(live, m->events->addr[e]) != NULL;
      if (is_live) tsr__map_remove(live, m->events->addr[e]);
      count += is_live && m->events->action[e] == TSR_ACTION_FREE_REQUESTED;
    }
  }
  return count;
}

enum { RUNS_AHEAD = 256 }; /* runs until the backward pass */

static bool follow_saved(const maker *m, size_t run, saved *out) {
  tsr__map live = {0};
  const tsr__phase_run *runs = m->out.runs.items;
  bool ok = true;
  for (uint32_t e = runs[run - 1].first; ok && e < runs[run].first; e++) {
    if (m->events->action[e] == TSR_ACTION_ALLOC)
      ok = tsr__map_put(&live, m->events->addr[e], 1, NULL) != NULL;
    else if (m->events->action[e] == TSR_ACTION_FREE_REQUESTED)
      tsr__map_remove(&live, m->events->addr[e]);
  }
  out->made = (uint32_t)live.count;
  out->freed = count_frees(m, run, &live);
  out->freed_later = 0;
  for (size_t i = run + 1; i < m->out.runs.count && i - run < RUNS_AHEAD; i++) {
    bool is_backward = runs[i].phase == TSR_PHASE_BACKWARD || runs[i].phase == TSR_PHASE_RECOMPUTE;
    uint32_t freed = count_frees(m, i, &live);
    if (!is_backward) continue;
    out->freed_later = freed;
    break;
  }
  tsr__map_release(&live);
  return ok;
}

/* Autograd's engine has threads of its own, whose stacks do not show what runs it. It computes some gradient for a
 * forward pass itself if nothing there calls backward, and if forward was about to; or if it runs between two parts of
 * forward, and what the first has saved stays for a later backward pass. */
static bool find_inner_grads(maker *m) {
  enum { FEWEST = 4, SHARE = 8 };
  for (size_t i = m->out.runs.count;
       i-- > 1;) { /* the last first: what is before it then looks past it */
    if (i + 1 == m->out.runs.count) continue;
    tsr__phase_run *run = &m->out.runs.items[i];
    bool is_last = i + 1 == m->out.runs.count;
    saved s;
    if (run->phase != TSR_PHASE_BACKWARD || run[-1].phase != TSR_PHASE_FORWARD ||
        calls_backward(m, i))
      continue;
    if (!tsr__role_of(m->roles, m->events->stack[run[-1].last_alloc]).is_inner_grad) {
      if (is_last || run[1].phase != TSR_PHASE_FORWARD) continue;
      if (!follow_saved(m, i, &s)) return false;
      if (s.made < FEWEST || s.freed > s.made / SHARE || s.freed_later < s.made / 2) continue;
    }
    run->phase = TSR_PHASE_FORWARD;
  }
  return true;
}

/* ---- One line, one phase ---- */

/* What the neighbours of a stack without a phase of its own imply, over the whole trace: it loads data where
 * it begins a step, and computes a loss where backward follows. Between two forward passes it may do either. */
enum { BEGINS_STEP = 1, ENDS_FORWARD = 2, IS_BETWEEN = 4 };

static uint8_t implied_use(tsr_phase before, tsr_phase after) {
  bool will_be_backward = after == TSR_PHASE_BACKWARD || after == TSR_PHASE_RECOMPUTE;
  if (before == TSR_PHASE_FORWARD)
    return will_be_backward ? ENDS_FORWARD : after == TSR_PHASE_FORWARD ? IS_BETWEEN : 0;
  return after == TSR_PHASE_FORWARD ? BEGINS_STEP : 0;
}

static void note_uses(const maker *m, uint8_t *uses) {
  tsr_phase before = TSR_PHASE_UNKNOWN;
  for (size_t i = 0; i < m->out.runs.count; i++) {
    const tsr__phase_run *run = &m->out.runs.items[i];
    if (run->phase != TSR_PHASE_UNKNOWN) {
      before = (tsr_phase)run->phase;
      continue;
    }
    uint8_t use = implied_use(before, phase_after(&m->out, i));
    for (uint32_t e = run->first; use && e <= run->last_alloc; e++) {
      uint32_t stack = m->events->stack[e];
      if (m->events->action[e] != TSR_ACTION_ALLOC || stack >= m->roles->count) continue;
      if (m->roles->stacks[stack].phase == TSR_PHASE_UNKNOWN && !m->roles->is_empty[stack])
        uses[stack] |= use;
    }
  }
}

/* Whether some stack begins a step in one place, and is between two forward passes in another. */
static bool find_data(maker *m) {
  uint8_t *uses = TSR__NEW_ARRAY(uint8_t, m->roles->count);
  bool any = false;
  m->is_data = TSR__NEW_ARRAY(bool, m->roles->count);
  if (uses && m->is_data) note_uses(m, uses);
  for (uint32_t i = 0; uses && m->is_data && i < m->roles->count; i++)
    any |= m->is_data[i] = uses[i] == (BEGINS_STEP | IS_BETWEEN);
  bool ok = uses && m->is_data;
  tsr__free(uses);
  if (!any) {
    tsr__free(m->is_data);
    m->is_data = NULL;
  }
  return ok;
}

static bool read_runs(maker *m) {
  m->next_range = 0;
  m->annotated_until = 0;
  memset(m->covered, 0, sizeof m->covered);
  m->out.runs.count = 0;
  if (!make_runs(m)) return false;
  imply_threads(&m->out);
  join_equal(&m->out);
  return true;
}

int tsr__phases_compute(const tsr_snapshot *snapshot, const tsr__roles *roles,
                        const tsr_events *events, tsr__phases *out, tsr_error *error) {
  maker m = {.roles = roles, .events = events};
  tsr__marks_read read;
  int status = tsr__marked_compute(snapshot, events, &read, error);
  if (status) return status;
  m.out.marked = read.ranges;
  m.out.is_training_marked = read.shows_training;
  bool ok = read_runs(&m) && find_data(&m);
  if (ok && m.is_data) ok = read_runs(&m);
  if (ok) imply_neighbours(&m.out);
  if (ok) join_equal(&m.out);
  if (ok) ok = find_inner_grads(&m);
  tsr__free(m.is_data);
  if (!ok) {
    tsr__phases_release(&m.out);
    return tsr__fail_memory(error);
  }
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
