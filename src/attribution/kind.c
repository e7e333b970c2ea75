/* kind.c - from phase, lifetime and stack to what an allocation is for. See kind.h.
 *
 * Where a phase ends, what it made either dies or is kept, and what is kept is what the phase was
 * for:
 *
 *   made in     and alive when             is             else
 *   setup       forward begins             parameter      temporary
 *   (built) optimizer                      its state      temporary
 *   data        forward begins             input          temporary
 *   forward     backward begins            activation     temporary
 *   recompute   the recomputation ends     recomputed     temporary
 *   backward    backward ends              gradient       temporary
 *   optimizer   the step ends              its state      temporary
 *
 * Frames that name a purpose (a workspace, a collective, AccumulateGrad) come first. A run's end is
 * the first event of the next run: frees between belong to the run they end.
 *
 * Memory from before the recording has no birth to go by. How it died tells, where it did: zero_grad
 * frees gradients, autograd frees what it saved. What never died is matched by size with the
 * gradients of one step: as many blocks of a size as there are gradients of it are parameters, and
 * up to twice as many more are optimizer state, less what the recording saw being made. Which of equal
 * blocks is which cannot be told and does not matter: their bytes are equal.
 *
 * What the program itself named (tessera/sidecar.h) goes before all of it. */
#include "attribution/kind.h"

#include "attribution/named.h"
#include "base/checked.h"
#include "base/map.h"
#include "base/memory.h"

/* cuBLAS's own workspace before Hopper: 4096 KiB twice and 16 KiB eight times. */
#define CUBLAS_WORKSPACE_BYTES UINT64_C(8519680)
/* Hopper's: 4096 KiB eight times. Parameters can be as large. */
#define HOPPER_WORKSPACE_BYTES (UINT64_C(32) << 20)
/* In a backward pass that the recording cuts, how many of the last allocations may be temporary
 * still. */
#define UNFINISHED_ALLOCATIONS 64

/* Smaller than the weights of any output layer: a size that means nothing. */
#define FORWARD_GRADIENT_BYTES UINT64_C(65536)

/* Of fewer layers, as many blocks of one size are chance. */
#define FEWEST_LAYERS 4

#define NEVER UINT32_MAX /* as TSR_NONE in `death` */

/* Events at which something begins after a run; NEVER where it does not. */
typedef struct after {
  uint32_t any, forward, backward, no_backward, optimizer;
  uint32_t end_of_backward; /* of the backward pass that begins at `backward` */
} after;

/* What became of the allocations of one stack and size in backward passes that the recording saw
 * end. */
typedef struct fate {
  uint32_t span, kept;  /* the last such pass, and how many it kept */
  uint64_t most, alive; /* kept by any pass; by all, and alive when the recording ends */
} fate;

typedef struct judge {
  const tsr__timeline *t;
  const tsr__roles *roles;
  const tsr__phases *phases;
  tsr__kinds out;
  after *after;             /* by run */
  uint32_t *span;           /* by run: the number of the backward pass it is in, or follows */
  uint32_t *optimizer_pass; /* the same of optimizer runs */
  uint32_t span_count, optimizer_count;
  tsr__map gradients; /* size -> gradients of it in the fullest backward pass */
  tsr__map states;    /* size -> state made in the fullest optimizer run */
  tsr__map fates;     /* stack and size -> index in seen, see learn_fates */
  TSR__VECTOR(fate) seen;
  tsr__map unclaimed;      /* size -> parameters for which no gradient is found, see learn_fates */
  bool *is_gradient_stack; /* by stack: made in forward, freed by zero_grad */
  bool has_old_gradients;  /* backward leaves none, but adds to those that are there */
  bool has_forward;
  bool ends_elsewhere; /* the program did something after the last allocation of backward */
} judge;

static bool is_backward(uint8_t phase) {
  return phase == TSR_PHASE_BACKWARD || phase == TSR_PHASE_RECOMPUTE;
}

/* ---- Counts by size ---- */

static bool add_to(tsr__map *map, uint64_t size) {
  uint64_t *count = tsr__map_put(map, size, 0, NULL);
  if (count) ++*count;
  return count != NULL;
}

/* Take one of a size, if there is one. */
static bool take(tsr__map *map, uint64_t size) {
  uint64_t *count = tsr__map_find(map, size);
  if (!count || !*count) return false;
  --*count;
  return true;
}

static uint64_t count_of(tsr__map *map, uint64_t size) {
  const uint64_t *count = tsr__map_find(map, size);
  return count ? *count : 0;
}

/* ---- What follows each run ---- */

static bool look_ahead(judge *j) {
  size_t count = j->phases->runs.count;
  j->after = TSR__NEW_ARRAY(after, count);
  j->span = TSR__NEW_ARRAY(uint32_t, count);
  j->optimizer_pass = TSR__NEW_ARRAY(uint32_t, count);
  if (!j->after || !j->span || !j->optimizer_pass) return false;
  after next = {NEVER, NEVER, NEVER, NEVER, NEVER, NEVER};
  for (size_t i = count; i-- > 0;) {
    const tsr__run *run = &j->phases->runs.items[i];
    j->after[i] = next;
    next.any = run->first;
    if (run->phase == TSR_PHASE_FORWARD) next.forward = run->first;
    if (run->phase == TSR_PHASE_OPTIMIZER) next.optimizer = run->first;
    if (is_backward(run->phase)) {
      next.backward = run->first;
      next.end_of_backward = next.no_backward;
    } else {
      next.no_backward = run->first;
    }
  }
  bool was_backward = false;
  for (size_t i = 0; i < count; i++) {
    uint8_t phase = j->phases->runs.items[i].phase;
    if (is_backward(phase) && !was_backward) j->span_count++;
    if (phase == TSR_PHASE_OPTIMIZER) j->optimizer_count++;
    j->span[i] = j->span_count;
    j->optimizer_pass[i] = j->optimizer_count;
    was_backward = is_backward(phase);
  }
  j->has_forward = next.forward != NEVER;
  return true;
}

/* Did anything but autograd act after the last allocation of the last run? Then its backward is done.
 */
static bool has_moved_on(const judge *j) {
  const tsr_events *events = &j->t->events;
  size_t count = j->phases->runs.count;
  if (!count) return false;
  for (uint64_t i = (uint64_t)j->phases->runs.items[count - 1].last_alloc + 1; i < events->count;
       i++) {
    if (events->action[i] != TSR_ACTION_FREE_REQUESTED) continue;
    uint32_t stack = events->stack[i];
    bool is_empty = j->roles->is_empty[stack < j->roles->count ? stack : j->roles->count];
    if (!is_empty && !is_backward(tsr__role_of(j->roles, stack).phase)) return true;
  }
  return false;
}

/* ---- Allocations of the recording ---- */

typedef struct verdict {
  tsr_kind kind;
  tsr_evidence evidence;
} verdict;

static const verdict unexplained = {TSR_KIND_UNEXPLAINED, TSR_EVIDENCE_NONE};
static const verdict temporary = {TSR_KIND_TEMPORARY, TSR_EVIDENCE_WITHIN_PHASE};

/* Alive just before the event `begin`? Where that never comes, alive past the run's last allocation
 * says so. */
static bool is_kept(const judge *j, uint32_t allocation, uint32_t begin, const tsr__run *run) {
  uint32_t death = j->t->death.items[allocation];
  return begin != NEVER ? death >= begin : death > run->last_alloc;
}

/* The same of what should outlive its phase for good: where the recording ends first, to its end. */
static bool is_kept_on(const judge *j, uint32_t allocation, uint32_t begin) {
  return j->t->death.items[allocation] >= begin;
}

static tsr__role freed_by(const judge *j, uint32_t allocation) {
  uint32_t death = j->t->death.items[allocation];
  if (death == NEVER) return (tsr__role){0};
  return tsr__role_of(j->roles, j->t->events.stack[death]);
}

static verdict judge_forward(const judge *j, uint32_t allocation, size_t r) {
  const tsr__run *run = &j->phases->runs.items[r];
  if (freed_by(j, allocation).hint == TSR__MARK_RELEASE)
    return (verdict){TSR_KIND_ACTIVATION, TSR_EVIDENCE_RELEASED_BY_AUTOGRAD};
  uint32_t backward = j->after[r].backward, birth = j->t->birth.items[allocation];
  uint32_t stack = j->t->events.stack[birth];
  if (stack < j->roles->count && j->is_gradient_stack[stack])
    return (verdict){TSR_KIND_GRADIENT, TSR_EVIDENCE_FREED_BY_ZERO_GRAD};
  if (!is_kept(j, allocation, backward != NEVER ? backward : j->after[r].any, run))
    return temporary;
  return (verdict){TSR_KIND_ACTIVATION, backward != NEVER ? TSR_EVIDENCE_KEPT_FOR_BACKWARD
                                                          : TSR_EVIDENCE_OUTLIVES_FORWARD};
}

static uint64_t fate_key(const judge *j, uint32_t allocation) {
  uint32_t birth = j->t->birth.items[allocation];
  return tsr__mix(j->t->events.stack[birth], j->t->events.size[birth]);
}

/* Of a backward pass that the recording cuts: the last allocations may still be temporary. */
static bool is_unfinished(const judge *j, uint32_t allocation, size_t r) {
  return j->after[r].no_backward == NEVER && !j->ends_elsewhere &&
         j->t->death.items[allocation] == NEVER;
}

/* Such passes kept so many like it, and so many are not there yet; else there is a parameter of its
 * size; else it has been there for long. */
static bool will_be_kept(judge *j, uint32_t allocation) {
  const uint64_t *index = tsr__map_find(&j->fates, fate_key(j, allocation));
  if (!index)
    return j->unclaimed.count
               ? take(&j->unclaimed, j->t->events.size[j->t->birth.items[allocation]])
               : j->t->birth.count - allocation > UNFINISHED_ALLOCATIONS;
  fate *f = &j->seen.items[*index];
  if (f->alive >= f->most) return false;
  f->alive++;
  return true;
}

static verdict judge_backward(judge *j, uint32_t allocation, size_t r, tsr__role role) {
  if (!is_kept_on(j, allocation, j->after[r].no_backward)) return temporary;
  if (role.hint == TSR__MARK_ACCUMULATE)
    return (verdict){TSR_KIND_GRADIENT, TSR_EVIDENCE_ACCUMULATE_FRAME};
  if (is_unfinished(j, allocation, r)) {
    return (verdict){will_be_kept(j, allocation) ? TSR_KIND_GRADIENT : TSR_KIND_TEMPORARY,
                     TSR_EVIDENCE_UNFINISHED_BACKWARD};
  }
  return (verdict){TSR_KIND_GRADIENT, TSR_EVIDENCE_OUTLIVES_BACKWARD};
}

static verdict judge_setup(const judge *j, uint32_t allocation, size_t r, tsr__role role) {
  const tsr__run *run = &j->phases->runs.items[r];
  bool is_optimizer = role.hint == TSR__MARK_OPTIMIZER_SETUP;
  uint32_t begin = j->after[r].forward != NEVER ? j->after[r].forward : j->after[r].any;
  if (!is_kept(j, allocation, begin, run)) return temporary;
  if (is_optimizer) return (verdict){TSR_KIND_OPTIMIZER_STATE, TSR_EVIDENCE_OPTIMIZER_BUILT};
  return (verdict){TSR_KIND_PARAMETER, role.hint == TSR__MARK_MODULE_SETUP
                                           ? TSR_EVIDENCE_MODULE_BUILT
                                           : TSR_EVIDENCE_CONSTRUCTOR};
}

static verdict judge_optimizer(const judge *j, uint32_t allocation, size_t r, tsr__role role) {
  if (role.hint == TSR__MARK_STATE)
    return (verdict){TSR_KIND_OPTIMIZER_STATE, TSR_EVIDENCE_STATE_FRAME};
  if (!is_kept_on(j, allocation, j->after[r].any)) return temporary;
  if (role.hint == TSR__MARK_GRADIENT_TOOL) return unexplained;
  return (verdict){TSR_KIND_OPTIMIZER_STATE, TSR_EVIDENCE_OUTLIVES_OPTIMIZER};
}

/* Does a run keep anything that it made after this? Every allocation is looked at once, in all. */
static bool is_last_kept(const judge *j, uint32_t allocation, size_t r) {
  const tsr__run *run = &j->phases->runs.items[r];
  for (size_t i = (size_t)allocation + 1; i < j->t->birth.count; i++) {
    if (j->t->birth.items[i] > run->last_alloc) break;
    if (is_kept(j, (uint32_t)i, j->after[r].any, run)) return false;
  }
  return true;
}

/* A block's output is made last, and nobody needs it: checkpointing itself lets it go when the block's
 * backward is done, and not autograd. Unless the operation that made it is one that saves it. */
static verdict judge_recompute(const judge *j, uint32_t allocation, size_t r, tsr__role role) {
  if (!is_kept(j, allocation, j->after[r].any, &j->phases->runs.items[r])) return temporary;
  if (role.hint != TSR__MARK_SAVES_OUTPUT && freed_by(j, allocation).phase == TSR_PHASE_RECOMPUTE &&
      is_last_kept(j, allocation, r))
    return (verdict){TSR_KIND_TEMPORARY, TSR_EVIDENCE_UNSAVED_OUTPUT};
  return (verdict){TSR_KIND_RECOMPUTED, TSR_EVIDENCE_OUTLIVES_RECOMPUTE};
}

static verdict judge_by_phase(judge *j, uint32_t allocation, size_t r, tsr__role role) {
  const tsr__run *run = &j->phases->runs.items[r];
  switch ((tsr_phase)run->phase) {
  case TSR_PHASE_SETUP: return judge_setup(j, allocation, r, role);
  case TSR_PHASE_DATA:
    if (!is_kept(j, allocation, j->after[r].forward, run)) return temporary;
    return (verdict){TSR_KIND_INPUT, role.hint == TSR__MARK_DATA ? TSR_EVIDENCE_DATA_FRAME
                                                                 : TSR_EVIDENCE_BEFORE_FORWARD};
  case TSR_PHASE_FORWARD: return judge_forward(j, allocation, r);
  case TSR_PHASE_RECOMPUTE: return judge_recompute(j, allocation, r, role);
  case TSR_PHASE_BACKWARD: return judge_backward(j, allocation, r, role);
  case TSR_PHASE_OPTIMIZER: return judge_optimizer(j, allocation, r, role);
  case TSR_PHASE_ZERO_GRAD:
  case TSR_PHASE_UNKNOWN:
  case TSR_PHASE_COUNT: break;
  }
  /* A trace whose phases are not known at all is one long run, which tells nothing. */
  bool is_known = j->phases->runs.count > 1;
  return is_known && !is_kept(j, allocation, j->after[r].any, run) ? temporary : unexplained;
}

static verdict judge_one(judge *j, uint32_t allocation, size_t r) {
  uint32_t birth = j->t->birth.items[allocation];
  tsr__role role = tsr__role_of(j->roles, j->t->events.stack[birth]);
  if (role.hint == TSR__MARK_WORKSPACE)
    return (verdict){TSR_KIND_WORKSPACE, TSR_EVIDENCE_WORKSPACE_FRAME};
  if (role.hint == TSR__MARK_COLLECTIVE)
    return (verdict){TSR_KIND_COMMUNICATION, TSR_EVIDENCE_COLLECTIVE_FRAME};
  if (j->t->events.size[birth] == CUBLAS_WORKSPACE_BYTES && j->t->death.items[allocation] == NEVER)
    return (verdict){TSR_KIND_WORKSPACE, TSR_EVIDENCE_WORKSPACE_SIZE};
  return judge_by_phase(j, allocation, r, role);
}

static void put(judge *j, uint32_t allocation, verdict v) {
  j->out.kind[allocation] = (uint8_t)v.kind;
  j->out.evidence[allocation] = (uint8_t)v.evidence;
}

/* Gradients that forward makes (a loss that computes its own) look like activations until zero_grad
 * frees them. */
static bool find_gradient_stacks(judge *j) {
  const tsr_events *events = &j->t->events;
  j->is_gradient_stack = TSR__NEW_ARRAY(bool, (size_t)j->roles->count + 1);
  if (!j->is_gradient_stack) return false;
  for (size_t i = j->t->initial.count; i < j->out.count; i++) {
    uint32_t stack = events->stack[j->t->birth.items[i]];
    if (freed_by(j, (uint32_t)i).phase == TSR_PHASE_ZERO_GRAD && stack < j->roles->count)
      j->is_gradient_stack[stack] = true;
  }
  return true;
}

static bool note_fate(judge *j, uint32_t allocation, uint32_t span, bool is_kept) {
  bool is_new;
  const uint64_t *index = tsr__map_put(&j->fates, fate_key(j, allocation), j->seen.count, &is_new);
  if (!index || (is_new && !TSR__VECTOR_PUSH(&j->seen, (fate){.span = span}))) return false;
  fate *f = &j->seen.items[*index];
  if (f->span != span) f->kept = 0;
  f->span = span;
  f->kept += is_kept;
  if (f->kept > f->most) f->most = f->kept;
  f->alive += is_kept && j->t->death.items[allocation] == NEVER;
  return true;
}

/* Where the recording ends within backward, what earlier passes kept tells what this one will; in a
 * first pass, the sizes of what may be parameters: what was there before, and what setup made. */
static bool learn_fates(judge *j) {
  size_t r = 0, runs = j->phases->runs.count;
  if (!runs || !is_backward(j->phases->runs.items[runs - 1].phase) || j->ends_elsewhere)
    return true;
  for (size_t i = 0; i < j->t->initial.count; i++)
    if (j->t->death.items[i] == NEVER &&
        !add_to(&j->unclaimed, j->t->initial.items[i].requested_bytes))
      return false;
  for (size_t i = j->t->initial.count; i < j->out.count; i++) {
    uint32_t birth = j->t->birth.items[i];
    while (r + 1 < runs && j->phases->runs.items[r + 1].first <= birth) r++;
    uint32_t end = j->after[r].no_backward;
    bool is_setup = j->phases->runs.items[r].phase == TSR_PHASE_SETUP;
    if (is_setup && j->t->death.items[i] == NEVER &&
        !add_to(&j->unclaimed, j->t->events.size[birth]))
      return false;
    if (end == NEVER || !is_backward(j->phases->runs.items[r].phase)) continue;
    if (!note_fate(j, (uint32_t)i, j->span[r], is_kept_on(j, (uint32_t)i, end))) return false;
  }
  return true;
}

static void judge_recorded(judge *j) {
  size_t r = 0, runs = j->phases->runs.count;
  for (size_t i = j->t->initial.count; i < j->out.count; i++) {
    uint32_t birth = j->t->birth.items[i];
    while (r + 1 < runs && j->phases->runs.items[r + 1].first <= birth) r++;
    if (r >= runs) continue;
    put(j, (uint32_t)i, judge_one(j, (uint32_t)i, r));
    j->out.phase[i] = j->phases->runs.items[r].phase;
  }
}

/* ---- Sizes of gradients and states ---- */

/* The passes of one phase are numbered; the one that made the most bytes of a kind is the one to go
 * by: others may be cut, or only add to what is there. */
static bool sizes_of_fullest(const judge *j, tsr_kind kind, bool (*is_of)(uint8_t phase),
                             const uint32_t *pass_of_run, uint32_t pass_count, tsr__map *sizes) {
  uint64_t *bytes = TSR__NEW_ARRAY(uint64_t, (size_t)pass_count + 1);
  uint32_t fullest = 0;
  bool ok = bytes != NULL;
  for (int round = 0; ok && round < 2; round++) {
    size_t r = 0, runs = j->phases->runs.count;
    for (size_t i = j->t->initial.count; ok && i < j->out.count; i++) {
      if (j->out.kind[i] != kind) continue;
      uint32_t birth = j->t->birth.items[i];
      while (r + 1 < runs && j->phases->runs.items[r + 1].first <= birth) r++;
      if (!is_of(j->phases->runs.items[r].phase)) continue;
      uint64_t size = j->t->events.size[birth], *sum = &bytes[pass_of_run[r]];
      if (!round)
        *sum = tsr__sum_u64(*sum, size);
      else if (pass_of_run[r] == fullest)
        ok = add_to(sizes, size);
    }
    for (uint32_t s = 1; s <= pass_count; s++)
      if (bytes[s] > bytes[fullest]) fullest = s;
  }
  tsr__free(bytes);
  return ok;
}

static bool is_optimizer(uint8_t phase) {
  return phase == TSR_PHASE_OPTIMIZER;
}

/* Old memory that is never freed, by size. */
static bool count_old(const judge *j, tsr__map *sizes) {
  for (size_t i = 0; i < j->t->initial.count; i++)
    if (j->t->death.items[i] == NEVER && !add_to(sizes, j->t->initial.items[i].requested_bytes))
      return false;
  return true;
}

/* Divide every count by two, at most `limits` halved too (NULL: without a limit). */
static void halve(tsr__map *sizes, tsr__map *limits) {
  size_t slots = sizes->slots ? sizes->mask + 1 : 0;
  for (size_t i = 0; i < slots; i++) {
    tsr__map_slot *slot = &sizes->slots[i];
    if (slot->key == TSR__MAP_EMPTY) continue;
    uint64_t limit = limits ? count_of(limits, slot->key) / 2 : slot->value / 2;
    if (slot->value > limit) slot->value = limit;
  }
}

/* The sizes of parameters, into `gradients`: of the gradients that a backward pass left; else, where
 * it added to gradients that were there, of the state that the optimizer made anew (two a parameter);
 * else of what backward made, as far as pairs of old memory have its size. */
static bool note_sizes(judge *j) {
  tsr__map old = {0};
  bool ok =
      sizes_of_fullest(j, TSR_KIND_OPTIMIZER_STATE, is_optimizer, j->optimizer_pass,
                       j->optimizer_count, &j->states) &&
      sizes_of_fullest(j, TSR_KIND_GRADIENT, is_backward, j->span, j->span_count, &j->gradients);
  j->has_old_gradients = j->span_count && !j->gradients.count;
  if (ok && j->has_old_gradients) {
    ok = sizes_of_fullest(j, TSR_KIND_OPTIMIZER_STATE, is_optimizer, j->optimizer_pass,
                          j->optimizer_count, &j->gradients);
    halve(&j->gradients, NULL);
  }
  if (ok && j->has_old_gradients && !j->gradients.count) {
    ok = count_old(j, &old) && sizes_of_fullest(j, TSR_KIND_TEMPORARY, is_backward, j->span,
                                                j->span_count, &j->gradients);
    halve(&j->gradients, &old);
  }
  tsr__map_release(&old);
  return ok;
}

/* ---- Gradients that forward makes ---- */

/* How many old blocks there are for each gradient: the parameter, and what its optimizer keeps. 1
 * (no state), 2 (momentum) or 3 (Adam, and where nothing tells). */
static uint64_t copies_of(judge *j, tsr__map *old) {
  double gradients = 0, copies = 0;
  for (size_t i = 0; j->gradients.slots && i <= j->gradients.mask; i++) {
    uint64_t size = j->gradients.slots[i].key;
    if (size == TSR__MAP_EMPTY || !count_of(old, size)) continue;
    gradients += (double)size * (double)j->gradients.slots[i].value;
    copies += (double)size * (double)count_of(old, size);
  }
  if (gradients == 0 || copies >= 2.5 * gradients) return 3;
  return copies < 1.5 * gradients ? 1 : 2;
}

/* How many parameters of a size there are, as far as optimizer state tells: two a parameter, made in
 * the recording or, beside the parameter itself, there before. */
static uint64_t parameters_by_state(judge *j, tsr__map *old, uint64_t copies, uint64_t size) {
  uint64_t made = count_of(&j->states, size);
  return made ? made / 2 : count_of(old, size) / copies;
}

/* A loss that computes its own gradient makes it in forward, and only its size tells it from an
 * output that the program holds: there is a parameter so large that backward leaves none for. */
static bool find_forward_gradients(judge *j) {
  tsr__map old = {0}, found = {0};
  bool ok = count_old(j, &old);
  uint64_t copies = ok ? copies_of(j, &old) : 1;
  size_t r = 0, runs = j->phases->runs.count;
  for (size_t i = j->t->initial.count; ok && i < j->out.count; i++) {
    if (j->out.evidence[i] != TSR_EVIDENCE_KEPT_FOR_BACKWARD) continue;
    uint32_t birth = j->t->birth.items[i];
    while (r + 1 < runs && j->phases->runs.items[r + 1].first <= birth) r++;
    uint32_t backward = j->after[r].backward, end = j->after[r].end_of_backward;
    if (backward == NEVER || !is_kept_on(j, (uint32_t)i, end)) continue;
    uint64_t size = j->t->events.size[birth];
    if (size < FORWARD_GRADIENT_BYTES) continue;
    if (parameters_by_state(j, &old, copies, size) <= count_of(&j->gradients, size)) continue;
    put(j, (uint32_t)i, (verdict){TSR_KIND_GRADIENT, TSR_EVIDENCE_FORWARD_GRADIENT});
    ok = tsr__map_put(&found, size, 1, NULL) != NULL;
  }
  for (size_t i = 0; ok && found.slots && i <= found.mask; i++)
    if (found.slots[i].key != TSR__MAP_EMPTY) ok = add_to(&j->gradients, found.slots[i].key);
  tsr__map_release(&old);
  tsr__map_release(&found);
  return ok;
}

/* ---- Memory from before the recording ---- */

/* How many blocks of each size may yet be found to be what. */
typedef struct quota {
  tsr__map parameters, gradients, states;
} quota;

/* What its own stack tells, where the file has it. */
static verdict judge_old_stack(const judge *j, uint32_t allocation) {
  tsr__role role = tsr__role_of(j->roles, j->t->initial.items[allocation].stack);
  if (role.hint == TSR__MARK_WORKSPACE)
    return (verdict){TSR_KIND_WORKSPACE, TSR_EVIDENCE_WORKSPACE_FRAME};
  if (role.hint == TSR__MARK_STATE)
    return (verdict){TSR_KIND_OPTIMIZER_STATE, TSR_EVIDENCE_STATE_FRAME};
  if (role.hint == TSR__MARK_OPTIMIZER_SETUP)
    return (verdict){TSR_KIND_OPTIMIZER_STATE, TSR_EVIDENCE_OPTIMIZER_BUILT};
  if (role.hint == TSR__MARK_ACCUMULATE)
    return (verdict){TSR_KIND_GRADIENT, TSR_EVIDENCE_ACCUMULATE_FRAME};
  switch ((tsr_phase)role.phase) {
  case TSR_PHASE_SETUP:
    return (verdict){TSR_KIND_PARAMETER, role.hint == TSR__MARK_MODULE_SETUP
                                             ? TSR_EVIDENCE_MODULE_BUILT
                                             : TSR_EVIDENCE_CONSTRUCTOR};
  case TSR_PHASE_OPTIMIZER:
    return (verdict){TSR_KIND_OPTIMIZER_STATE, TSR_EVIDENCE_OUTLIVES_OPTIMIZER};
  case TSR_PHASE_BACKWARD: return (verdict){TSR_KIND_GRADIENT, TSR_EVIDENCE_OUTLIVES_BACKWARD};
  case TSR_PHASE_FORWARD: return (verdict){TSR_KIND_ACTIVATION, TSR_EVIDENCE_OUTLIVES_FORWARD};
  case TSR_PHASE_DATA: return (verdict){TSR_KIND_INPUT, TSR_EVIDENCE_DATA_FRAME};
  default: return unexplained;
  }
}

/* What died in the recording, by what freed it and when. An optimizer frees what it replaces. */
static verdict judge_old_dead(judge *j, uint32_t allocation, const tsr__run *run, quota *left) {
  tsr__role role = freed_by(j, allocation);
  uint64_t size = j->t->initial.items[allocation].requested_bytes;
  static const verdict gradient = {TSR_KIND_GRADIENT, TSR_EVIDENCE_OLD_GRADIENT};
  static const verdict activation = {TSR_KIND_ACTIVATION, TSR_EVIDENCE_OLD_ACTIVATION};
  if (role.phase == TSR_PHASE_ZERO_GRAD) return gradient;
  if (role.hint == TSR__MARK_RELEASE) return activation;
  uint8_t phase = run ? run->phase : (uint8_t)TSR_PHASE_UNKNOWN;
  if (is_backward(role.phase) || is_backward(phase)) return activation;
  bool is_known_size = count_of(&j->gradients, size) != 0;
  if (phase == TSR_PHASE_OPTIMIZER && is_known_size)
    return take(&left->parameters, size)
               ? (verdict){TSR_KIND_PARAMETER, TSR_EVIDENCE_OLD_PARAMETER}
               : (verdict){TSR_KIND_OPTIMIZER_STATE, TSR_EVIDENCE_OLD_STATE};
  if (is_known_size) return gradient;
  return phase == TSR_PHASE_FORWARD ? activation : unexplained;
}

static verdict judge_old_live(judge *j, uint32_t allocation, quota *left) {
  uint64_t size = j->t->initial.items[allocation].requested_bytes;
  bool is_workspace = size == CUBLAS_WORKSPACE_BYTES || size == HOPPER_WORKSPACE_BYTES;
  if (is_workspace && !count_of(&j->gradients, size))
    return (verdict){TSR_KIND_WORKSPACE, TSR_EVIDENCE_WORKSPACE_SIZE};
  if (take(&left->parameters, size))
    return (verdict){TSR_KIND_PARAMETER, TSR_EVIDENCE_OLD_PARAMETER};
  if (take(&left->gradients, size)) return (verdict){TSR_KIND_GRADIENT, TSR_EVIDENCE_OLD_GRADIENT};
  if (take(&left->states, size)) return (verdict){TSR_KIND_OPTIMIZER_STATE, TSR_EVIDENCE_OLD_STATE};
  bool trains = j->span_count || j->optimizer_count;
  if (!trains && j->has_forward) return (verdict){TSR_KIND_PARAMETER, TSR_EVIDENCE_OLD_MODEL};
  return unexplained;
}

static bool set_quota(quota *left, uint64_t size, uint64_t parameters, uint64_t gradients,
                      uint64_t states) {
  uint64_t *p = tsr__map_put(&left->parameters, size, 0, NULL);
  uint64_t *g = tsr__map_put(&left->gradients, size, 0, NULL);
  uint64_t *s = tsr__map_put(&left->states, size, 0, NULL);
  if (!p || !g || !s) return false;
  *p = parameters;
  *g = gradients;
  *s = states;
  return true;
}

/* Of each size there are as many parameters as gradients, and twice as much state, less what the
 * recording saw being made. */
static bool set_quotas(judge *j, quota *left) {
  size_t slots = j->gradients.slots ? j->gradients.mask + 1 : 0;
  for (size_t i = 0; i < slots; i++) {
    uint64_t size = j->gradients.slots[i].key, count = j->gradients.slots[i].value;
    if (size == TSR__MAP_EMPTY || !count) continue;
    uint64_t states = tsr__drop_u64(tsr__sum_u64(count, count), count_of(&j->states, size));
    if (j->has_old_gradients && !j->optimizer_count) states = 0; /* the count is a guess already */
    if (!set_quota(left, size, count, j->has_old_gradients ? count : 0, states)) return false;
  }
  return true;
}

static const tsr__run *run_at(const tsr__phases *phases, uint32_t event) {
  size_t low = 0, high = phases->runs.count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (phases->runs.items[middle].first <= event)
      low = middle + 1;
    else
      high = middle;
  }
  return low ? &phases->runs.items[low - 1] : NULL;
}

/* How many layers the model has: the largest number that two sizes of gradients or more have in
 * common; 0 where none do. */
static bool find_layers(const judge *j, uint64_t *layers) {
  tsr__map sizes_of = {0}; /* count -> sizes that have it */
  bool ok = true;
  *layers = 0;
  for (size_t i = 0; ok && j->gradients.slots && i <= j->gradients.mask; i++) {
    uint64_t count = j->gradients.slots[i].value;
    if (j->gradients.slots[i].key == TSR__MAP_EMPTY || count <= *layers) continue;
    ok = add_to(&sizes_of, count);
    if (count_of(&sizes_of, count) > 1) *layers = count;
  }
  tsr__map_release(&sizes_of);
  return ok;
}

/* What lives on and has the size of no gradient: buffers, where there is one a layer; and parameters
 * that are frozen, where it is most of what lives on. */
static bool judge_old_rest(judge *j) {
  tsr__map rest = {0};
  uint64_t known_bytes = 0, rest_bytes = 0, layers;
  bool ok = find_layers(j, &layers);
  for (size_t i = 0; ok && i < j->t->initial.count; i++) {
    uint64_t size = j->t->initial.items[i].requested_bytes;
    if (j->t->death.items[i] != NEVER) continue;
    if (j->out.evidence[i] == TSR_EVIDENCE_OLD_PARAMETER)
      known_bytes = tsr__sum_u64(known_bytes, size);
    if (j->out.kind[i] != TSR_KIND_UNEXPLAINED) continue;
    rest_bytes = tsr__sum_u64(rest_bytes, size);
    ok = add_to(&rest, size);
  }
  bool is_frozen = known_bytes && rest_bytes / 2 > known_bytes;
  for (size_t i = 0; ok && i < j->t->initial.count; i++) {
    if (j->out.kind[i] != TSR_KIND_UNEXPLAINED || j->t->death.items[i] != NEVER) continue;
    uint64_t count = count_of(&rest, j->t->initial.items[i].requested_bytes);
    bool is_buffer = layers >= FEWEST_LAYERS && count % layers == 0;
    if (is_buffer || is_frozen)
      put(j, (uint32_t)i,
          (verdict){TSR_KIND_PARAMETER,
                    is_buffer ? TSR_EVIDENCE_OLD_BUFFER : TSR_EVIDENCE_OLD_FROZEN});
  }
  tsr__map_release(&rest);
  return ok;
}

/* What the program itself named. */
static bool judge_named(const judge *j, uint32_t allocation, verdict *out) {
  out->evidence = TSR_EVIDENCE_NAMED;
  return tsr__named_kind(j->t, allocation, &out->kind);
}

static void take_names(judge *j) {
  verdict v;
  for (uint32_t i = 0; i < (uint32_t)j->out.count; i++)
    if (judge_named(j, i, &v)) put(j, i, v);
}

/* Names first, then stacks, then what lives on, then what died: parameters mostly live on. */
static bool judge_old(judge *j) {
  quota left = {0};
  bool ok = set_quotas(j, &left);
  uint32_t count = ok ? (uint32_t)j->t->initial.count : 0;
  for (uint32_t i = 0; i < count; i++) {
    verdict v;
    if (!judge_named(j, i, &v)) v = judge_old_stack(j, i);
    j->out.phase[i] = tsr__role_of(j->roles, j->t->initial.items[i].stack).phase;
    uint64_t size = j->t->initial.items[i].requested_bytes;
    if (v.kind == TSR_KIND_PARAMETER) take(&left.parameters, size);
    if (v.kind == TSR_KIND_GRADIENT) take(&left.gradients, size);
    if (v.kind == TSR_KIND_OPTIMIZER_STATE) take(&left.states, size);
    put(j, i, v);
  }
  for (uint32_t i = 0; i < count; i++)
    if (j->out.kind[i] == TSR_KIND_UNEXPLAINED && j->t->death.items[i] == NEVER)
      put(j, i, judge_old_live(j, i, &left));
  for (uint32_t i = 0; i < count; i++) {
    uint32_t death = j->t->death.items[i];
    if (j->out.kind[i] == TSR_KIND_UNEXPLAINED && death != NEVER)
      put(j, i, judge_old_dead(j, i, run_at(j->phases, death), &left));
  }
  tsr__map_release(&left.parameters);
  tsr__map_release(&left.gradients);
  tsr__map_release(&left.states);
  return ok;
}

/* ---- Parameters that the optimizer replaces ---- */

/* What an optimizer's step made and kept, a stack for each size: the last on top. */
typedef struct kept {
  uint32_t allocation, below; /* below: index of the one before of its size, plus 1 */
} kept;

typedef struct replacer {
  tsr__map top; /* size -> index in items, plus 1 */
  TSR__VECTOR(kept) items;
} replacer;

/* A step that assigns to p.data frees the old parameter when the new one is there: the last that it
 * kept of that size is the new parameter, and not state. */
static bool replace_in_run(judge *j, replacer *r, uint32_t first, uint32_t behind) {
  tsr__map_release(&r->top);
  r->items.count = 0;
  for (uint32_t e = first; e < behind; e++) {
    uint32_t allocation = j->t->allocation_of[e];
    if (allocation == NEVER) continue;
    uint8_t *kind = &j->out.kind[allocation];
    bool is_born = j->t->birth.items[allocation] == e;
    if (is_born && *kind == TSR_KIND_OPTIMIZER_STATE) {
      uint64_t *top = tsr__map_put(&r->top, j->t->events.size[e], 0, NULL);
      if (!top || !TSR__VECTOR_PUSH(&r->items, (kept){allocation, (uint32_t)*top})) return false;
      *top = r->items.count;
    } else if (j->t->death.items[allocation] == e && *kind == TSR_KIND_PARAMETER) {
      uint64_t *top = tsr__map_find(&r->top, tsr__timeline_requested(j->t, allocation));
      if (!top || !*top) continue;
      const kept *newest = &r->items.items[*top - 1];
      put(j, newest->allocation, (verdict){TSR_KIND_PARAMETER, TSR_EVIDENCE_REPLACED_PARAMETER});
      *top = newest->below;
    }
  }
  return true;
}

/* Only where parameters die in a step at all; which is rare. */
static bool needs_replacing(const judge *j) {
  for (size_t i = 0; i < j->out.count; i++) {
    uint32_t death = j->t->death.items[i];
    if (j->out.kind[i] != TSR_KIND_PARAMETER || death == NEVER) continue;
    const tsr__run *run = run_at(j->phases, death);
    if (run && run->phase == TSR_PHASE_OPTIMIZER) return true;
  }
  return false;
}

static bool replace_parameters(judge *j) {
  if (!needs_replacing(j)) return true;
  replacer r = {0};
  bool ok = true;
  for (size_t i = 0; ok && i < j->phases->runs.count; i++) {
    uint32_t behind = j->after[i].any == NEVER ? (uint32_t)j->t->events.count : j->after[i].any;
    if (j->phases->runs.items[i].phase == TSR_PHASE_OPTIMIZER)
      ok = replace_in_run(j, &r, j->phases->runs.items[i].first, behind);
  }
  tsr__map_release(&r.top);
  TSR__VECTOR_FREE(&r.items);
  return ok;
}

/* ---- All together ---- */

int tsr__kinds_compute(const tsr__timeline *timeline, const tsr__roles *roles,
                       const tsr__phases *phases, tsr__kinds *out, tsr_error *error) {
  judge j = {.t = timeline, .roles = roles, .phases = phases, .out.count = timeline->birth.count};
  j.out.kind = TSR__NEW_ARRAY(uint8_t, j.out.count);
  j.out.evidence = TSR__NEW_ARRAY(uint8_t, j.out.count);
  j.out.phase = TSR__NEW_ARRAY(uint8_t, j.out.count);
  bool ok = j.out.kind && j.out.evidence && j.out.phase && look_ahead(&j);
  if (ok) {
    j.ends_elsewhere = has_moved_on(&j);
    ok = find_gradient_stacks(&j) && learn_fates(&j);
  }
  if (ok) {
    judge_recorded(&j);
    ok = note_sizes(&j) && find_forward_gradients(&j) && judge_old(&j) && judge_old_rest(&j) &&
         replace_parameters(&j);
    take_names(&j);
  }
  tsr__free(j.after);
  tsr__free(j.span);
  tsr__free(j.optimizer_pass);
  tsr__map_release(&j.gradients);
  tsr__map_release(&j.states);
  tsr__map_release(&j.fates);
  TSR__VECTOR_FREE(&j.seen);
  tsr__map_release(&j.unclaimed);
  tsr__free(j.is_gradient_stack);
  if (!ok) {
    tsr__kinds_release(&j.out);
    return tsr__fail_memory(error);
  }
  *out = j.out;
  return 0;
}

int tsr__kinds_of_timeline(const tsr__timeline *timeline, const tsr__roles *roles, tsr__kinds *out,
                           tsr_error *error) {
  tsr__phases phases = {0};
  int status = tsr__phases_compute(timeline->snapshot, roles, &timeline->events, &phases, error);
  if (!status) status = tsr__kinds_compute(timeline, roles, &phases, out, error);
  tsr__phases_release(&phases);
  return status;
}

void tsr__kinds_release(tsr__kinds *kinds) {
  tsr__free(kinds->kind);
  tsr__free(kinds->evidence);
  tsr__free(kinds->phase);
  *kinds = (tsr__kinds){0};
}
