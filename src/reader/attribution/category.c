/* category.c - infers categories from phase, lifetime and stack. See category.h.
 *
 * When a phase ends, what it allocated has either died or is kept, and what is kept is the result of
 * the phase:
 *
 *   made in     and live when              is             otherwise
 *   setup       forward begins             parameter      temporary
 *   (built) optimizer                      its state      temporary
 *   data        forward begins             input          temporary
 *   forward     backward begins            activation     temporary
 *   recompute   the recomputation ends     recomputed     temporary
 *   backward    backward ends              gradient       temporary
 *   optimizer   the step ends              its state      temporary
 *
 * Frames that name a category (a workspace, a collective, AccumulateGrad, a cache of keys and values)
 * take precedence. A run ends
 * at the first event of the next run: frees in between belong to the run that ends.
 *
 * Memory from before the recording has no birth event. If it dies, its death is evidence: zero_grad
 * frees gradients, autograd frees what it saved. What never dies is matched by size with the
 * gradients of one step: as many blocks of a size as there are gradients of it are parameters, and
 * up to twice as many more are optimizer state, less what was allocated during the recording. Which of
 * several equal blocks is which cannot be known and does not matter: their bytes are equal. If the only backward
 * pass is cut, it has made gradients of some parameters only, and the numbers of equal blocks show whether
 * there is state: with Adam's, all are multiples of three (judge_unfinished).
 *
 * A weight's copy under autocast is not an activation, although backward saves it: it does not grow with
 * the batch. It is freed with autocast's cache, or it is as large as a live parameter in the other type
 * (find_casts). Module._apply moves a gradient right after its parameter (find_moved_gradients).
 *
 * What the program itself named (attribution/named.h) takes precedence over all of this. */
#include "attribution/category.h"

#include <assert.h>
#include <string.h>

#include "attribution/iterations.h"
#include "base/checked.h"
#include "base/map.h"
#include "base/memory.h"

/* cuBLAS's own workspace before Hopper: 4096 KiB twice and 16 KiB eight times. */
#define CUBLAS_WORKSPACE_BYTES UINT64_C(8519680)
/* Hopper's: 4096 KiB eight times. Parameters can be as large. */
#define HOPPER_WORKSPACE_BYTES (UINT64_C(32) << 20)
/* In a backward pass that the recording cuts, the number of last allocations that may still be
 * temporary. */
#define UNFINISHED_ALLOCATIONS 64

/* In a pass that runs out of memory, the number of its last allocations that may be temporary. In GPT-2 a variable of a
 * block's function holds attention's result while about 25 more tensors are made. */
#define UNFINISHED_PASS 32

/* Smaller than the weights of any output layer: too small to conclude anything from. */
#define FORWARD_GRADIENT_BYTES UINT64_C(65536)

/* Forward passes for which an input may be kept: batches are loaded ahead. */
#define PASSES_KEPT 4

/* With fewer layers, equally many blocks of one size are a coincidence. */
#define FEWEST_LAYERS 4

/* What a forward pass may keep without saving anything for a backward pass: its output, and what it is
 * about to use. */
#define FEWEST_SAVED 16

#define NEVER UINT32_MAX /* as TSR_NONE in `death` */

/* Events at which something begins after a run; NEVER if it does not. */
typedef struct after {
  uint32_t any, forward, backward, no_backward, optimizer;
  uint32_t end_of_backward; /* end of the backward pass that begins at `backward` */
} after;

/* What happened to the allocations of one stack and size in backward passes whose end was
 * recorded. */
typedef struct fate {
  uint32_t span, kept;  /* the last such pass, and the number it kept */
  uint64_t most, alive; /* kept by any one pass; kept by all, and live when the recording ends */
} fate;

typedef struct judge {
  const tsr__timeline *t;
  const tsr__roles *roles;
  const tsr__phases *phases;
  const tsr__names *names; /* or NULL */
  tsr__iterations iterations;
  tsr__categories out;
  after *after;             /* by run */
  uint32_t *span;           /* by run: the number of the backward pass that it is in or follows */
  uint32_t *optimizer_pass; /* the same for optimizer runs */
  uint32_t span_count, optimizer_count;
  tsr__map gradients;     /* size -> gradients of it in the fullest backward pass */
  tsr__map states;        /* size -> state made in the fullest optimizer run */
  tsr__map hopper_stacks; /* stack -> allocations of a workspace's size on Hopper */
  tsr__map freed_stacks;  /* stack -> freed allocations of the size of an older card's workspace */
  tsr__map fates;         /* stack and size -> index in seen, see learn_fates */
  TSR__VECTOR(fate) seen;
  tsr__map unclaimed;      /* size -> parameters without a gradient, see learn_fates */
  bool *is_gradient_stack; /* by stack: made in forward, freed by zero_grad */
  bool *was_temporary;     /* by stack: the last time that forward made it, so far */
  bool *piles_up;          /* by stack: what it makes before forward passes is kept beyond them */
  uint64_t
      old_grad_line; /* of Module._apply, which moved gradients before the recording; 0: none */
  bool has_old_gradients; /* backward leaves no new ones, but adds to existing ones */
  bool has_forward;
  bool has_autocast;     /* some memory is freed with autocast's cache */
  bool has_cast_stacks;  /* some stack is of autocast */
  bool may_cast;         /* that, or some stack is of forward without C++ frames */
  bool has_cache_stacks; /* some stack adds to a cache of keys and values */
  bool moves;            /* some stack is of Module._apply */
  bool trains;           /* some stack is of a backward pass, an optimizer or a loop of training */
  bool has_state_frames; /* some stack is of an optimizer that allocates its state */
  uint32_t failed;       /* the last event of running out of memory, or NEVER */
  uint32_t *updates;     /* by run: what it added to caches of keys and values, and kept */
  uint32_t *saved;       /* by run: what else it kept */
  /* Old blocks of the size of Hopper's workspace, apart from those that gradients explain, are as many as a model has layers: a
   * handle on a stream has one workspace. */
  bool has_hopper_layers;
  bool replaces_state; /* an optimizer's step frees memory from before the recording */
  bool ends_elsewhere; /* the program did something after the last allocation of backward */
  /* The recording has one backward pass, of which it lacks the end. `old_copies`: of each parameter, how many blocks
   * from before it there are: 1, or 3 with Adam's state. */
  bool is_cut;
  uint64_t old_copies;
} judge;

static bool is_backward(uint8_t phase) {
  return phase == TSR_PHASE_BACKWARD || phase == TSR_PHASE_RECOMPUTE;
}

/* ---- Counts by size ---- */

/* Whether a stack has no frames. An absent stack has none. */
static bool is_empty(const judge *j, uint32_t stack) {
  return j->roles->is_empty[stack < j->roles->count ? stack : j->roles->count];
}

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
    const tsr__phase_run *run = &j->phases->runs.items[i];
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
    /* Runs ascend, and neighbours differ in phase: tsr__phases. */
    assert(!i || j->phases->runs.items[i - 1].first < j->phases->runs.items[i].first);
    assert(!i || j->phases->runs.items[i - 1].phase != phase);
  }
  assert(j->span_count <= count && j->optimizer_count <= count);
  j->has_forward = next.forward != NEVER;
  for (uint32_t i = 0; i < j->roles->count; i++) {
    tsr__role role = j->roles->stacks[i];
    bool is_python = !role.has_native && !j->roles->is_empty[i];
    j->trains |= is_backward(role.phase) || role.phase == TSR_PHASE_OPTIMIZER ||
                 role.phase == TSR_PHASE_ZERO_GRAD || role.hint == TSR__MARK_OPTIMIZER_SETUP ||
                 j->roles->purpose[i] == TSR__MARK_TRAINING;
    j->has_cast_stacks |= role.hint == TSR__MARK_AUTOCAST || role.hint == TSR__MARK_AUTOCAST_EXIT;
    j->may_cast |= j->has_cast_stacks || (is_python && role.phase == TSR_PHASE_FORWARD);
    j->has_cache_stacks |= role.hint == TSR__MARK_KV_CACHE;
    j->moves |= j->roles->apply_line[i] != 0;
    j->has_state_frames |= role.hint == TSR__MARK_STATE;
  }
  j->failed = NEVER;
  const tsr_events *events = &j->t->events;
  for (uint64_t i = 0; (i = tsr__next_action(events, TSR_ACTION_OOM, i)) < events->count; i++)
    j->failed = (uint32_t)i;
  return true;
}

/* Whether anything but autograd acts after the last allocation of the last run. Then its backward is done.
 */
static bool has_moved_on(const judge *j) {
  const tsr_events *events = &j->t->events;
  size_t count = j->phases->runs.count;
  if (!count) return false;
  for (uint64_t i = (uint64_t)j->phases->runs.items[count - 1].last_alloc + 1; i < events->count;
       i++) {
    if (events->action[i] != TSR_ACTION_FREE_REQUESTED) continue;
    uint32_t stack = events->stack[i];
    if (!is_empty(j, stack) && !is_backward(tsr__role_of(j->roles, stack).phase)) return true;
  }
  return false;
}

/* ---- Allocations of the recording ---- */

typedef struct verdict {
  tsr_category kind;
  tsr_evidence evidence;
} verdict;

static const verdict unknown = {TSR_CATEGORY_UNKNOWN, TSR_EVIDENCE_NONE};
static const verdict temporary = {TSR_CATEGORY_TEMPORARY, TSR_EVIDENCE_WITHIN_PHASE};

/* Whether it is live just before the event `begin`. If that is NEVER, whether it is live after the
 * run's last allocation. */
static bool is_kept(const judge *j, uint32_t allocation, uint32_t begin,
                    const tsr__phase_run *run) {
  uint32_t death = j->t->death.items[allocation];
  return begin != NEVER ? death >= begin : death > run->last_alloc;
}

/* The same for what should outlive its phase permanently: if the recording ends first, live at its end. */
static bool is_kept_on(const judge *j, uint32_t allocation, uint32_t begin) {
  return j->t->death.items[allocation] >= begin;
}

static tsr__role freed_by(const judge *j, uint32_t allocation) {
  uint32_t death = j->t->death.items[allocation];
  if (death == NEVER) return (tsr__role){0};
  assert(death < j->t->events.count);
  return tsr__role_of(j->roles, j->t->events.stack[death]);
}

/* How much each forward pass that no backward follows has kept. */
static bool count_kept(judge *j) {
  size_t r = 0, runs = j->phases->runs.count;
  j->updates = TSR__NEW_ARRAY(uint32_t, runs);
  j->saved = TSR__NEW_ARRAY(uint32_t, runs);
  if (!j->updates || !j->saved) return false;
  if (!j->has_cache_stacks) return true; /* then nobody asks: judge_forward */
  for (size_t i = j->t->initial.count; i < j->out.count; i++) {
    uint32_t birth = j->t->birth.items[i];
    while (r + 1 < runs && j->phases->runs.items[r + 1].first <= birth) r++;
    if (r >= runs || j->phases->runs.items[r].phase != TSR_PHASE_FORWARD) continue;
    if (!is_kept(j, (uint32_t)i, j->after[r].any, &j->phases->runs.items[r])) continue;
    bool is_update = tsr__role_of(j->roles, j->t->events.stack[birth]).hint == TSR__MARK_KV_CACHE;
    ++*(is_update ? &j->updates[r] : &j->saved[r]);
  }
  return true;
}

/* Whether what a stack adds to a cache of keys and values is kept for a backward pass that is not in the
 * trace: training has such caches too. */
static bool is_of_training(const judge *j, uint32_t stack) {
  uint8_t purpose = stack < j->roles->count ? j->roles->purpose[stack] : (uint8_t)TSR__MARK_NONE;
  return purpose != TSR__MARK_NONE ? purpose == TSR__MARK_TRAINING : j->trains;
}

/* The same for a forward pass: one that keeps more than the cache keeps what autograd saves. */
static bool is_training_pass(const judge *j, uint32_t stack, size_t r) {
  bool saves = j->saved[r] >= FEWEST_SAVED && j->saved[r] >= j->updates[r];
  bool infers = stack < j->roles->count && j->roles->purpose[stack] == TSR__MARK_INFERENCE;
  return !infers && (saves || is_of_training(j, stack));
}

/* Whether the program ran out of memory in the last run, and did nothing after it. */
static bool ends_in_failure(const judge *j, size_t r) {
  return j->after[r].any == NEVER && j->failed != NEVER &&
         j->failed > j->phases->runs.items[r].last_alloc;
}

static verdict judge_forward(const judge *j, uint32_t allocation, size_t r, tsr__role role) {
  const tsr__phase_run *run = &j->phases->runs.items[r];
  assert(run->phase == TSR_PHASE_FORWARD);
  if (freed_by(j, allocation).hint == TSR__MARK_RELEASE)
    return (verdict){TSR_CATEGORY_ACTIVATION, TSR_EVIDENCE_RELEASED_BY_AUTOGRAD};
  uint32_t backward = j->after[r].backward, birth = j->t->birth.items[allocation];
  uint32_t stack = j->t->events.stack[birth];
  bool is_saved = backward != NEVER && j->t->death.items[allocation] >= backward;
  if (role.hint == TSR__MARK_KV_CACHE && !is_saved && !is_training_pass(j, stack, r))
    return (verdict){TSR_CATEGORY_KV_CACHE, TSR_EVIDENCE_KV_CACHE_UPDATE};
  if (stack < j->roles->count && j->is_gradient_stack[stack])
    return (verdict){TSR_CATEGORY_GRADIENT, TSR_EVIDENCE_FREED_BY_ZERO_GRAD};
  bool is_iteration = false;
  bool lives = backward == NEVER &&
               tsr__outlives_iteration(&j->iterations, allocation, run->last_alloc, &is_iteration);
  if (!is_iteration)
    lives = is_kept(j, allocation, backward != NEVER ? backward : j->after[r].any, run);
  if (!lives) return temporary;
  if (backward == NEVER && ends_in_failure(j, r) &&
      j->t->birth.count - allocation <= UNFINISHED_PASS)
    return (verdict){stack < j->roles->count && j->was_temporary[stack] ? TSR_CATEGORY_TEMPORARY
                                                                        : TSR_CATEGORY_ACTIVATION,
                     TSR_EVIDENCE_UNFINISHED_FORWARD};
  if (backward == NEVER) return (verdict){TSR_CATEGORY_ACTIVATION, TSR_EVIDENCE_OUTLIVES_FORWARD};
  uint32_t end = j->after[r].end_of_backward;
  if (end != NEVER && is_kept_on(j, allocation, end))
    return (verdict){TSR_CATEGORY_ACTIVATION, TSR_EVIDENCE_HELD_OUTPUT};
  uint64_t later = (uint64_t)allocation + UNFINISHED_PASS;
  bool is_last = later >= j->t->birth.count || j->t->birth.items[later] >= backward;
  if (end == NEVER && is_last && j->failed != NEVER && j->failed > backward)
    return (verdict){TSR_CATEGORY_ACTIVATION, TSR_EVIDENCE_UNFINISHED_FORWARD};
  bool is_inside = role.phase == TSR_PHASE_FORWARD || !j->roles->has_python;
  return (verdict){TSR_CATEGORY_ACTIVATION,
                   is_inside ? TSR_EVIDENCE_KEPT_FOR_BACKWARD : TSR_EVIDENCE_KEPT_OUTSIDE};
}

static uint64_t fate_key(const judge *j, uint32_t allocation) {
  uint32_t birth = j->t->birth.items[allocation];
  return tsr__mix(j->t->events.stack[birth], j->t->events.size[birth]);
}

/* In a backward pass that the recording cuts, the last allocations may still be temporary. */
static bool is_unfinished(const judge *j, uint32_t allocation, size_t r) {
  return j->after[r].no_backward == NEVER && !j->ends_elsewhere &&
         j->t->death.items[allocation] == NEVER;
}

/* Earlier passes kept a number of allocations like it, and not that many exist yet; or there is a
 * parameter of its size; or it has been live for long. */
static bool will_be_kept(judge *j, uint32_t allocation) {
  const uint64_t *index = tsr__map_find(&j->fates, fate_key(j, allocation));
  if (!index)
    return j->unclaimed.count
               ? take(&j->unclaimed, j->t->events.size[j->t->birth.items[allocation]])
               : j->t->birth.count - allocation > UNFINISHED_ALLOCATIONS;
  assert(*index < j->seen.count);
  fate *f = &j->seen.items[*index];
  if (f->alive >= f->most) return false;
  f->alive++;
  return true;
}

static verdict judge_backward(judge *j, uint32_t allocation, size_t r, tsr__role role) {
  assert(is_backward(j->phases->runs.items[r].phase));
  if (!is_kept_on(j, allocation, j->after[r].no_backward)) return temporary;
  if (role.hint == TSR__MARK_ACCUMULATE)
    return (verdict){TSR_CATEGORY_GRADIENT, TSR_EVIDENCE_ACCUMULATE_FRAME};
  if (is_unfinished(j, allocation, r)) {
    return (verdict){will_be_kept(j, allocation) ? TSR_CATEGORY_GRADIENT : TSR_CATEGORY_TEMPORARY,
                     TSR_EVIDENCE_UNFINISHED_BACKWARD};
  }
  return (verdict){TSR_CATEGORY_GRADIENT, TSR_EVIDENCE_OUTLIVES_BACKWARD};
}

/* Megatron's constructor of buffers allocates the one for gradients last. It makes none for parameters
 * unless the optimizer is distributed. */
static bool is_gradient_buffer(const judge *j, uint32_t stack) {
  uint64_t line = stack < j->roles->count ? j->roles->buffer_line[stack] : 0;
  return line && line == j->roles->last_buffer_line;
}

static verdict judge_setup(const judge *j, uint32_t allocation, size_t r, tsr__role role) {
  const tsr__phase_run *run = &j->phases->runs.items[r];
  bool is_optimizer = role.hint == TSR__MARK_OPTIMIZER_SETUP;
  assert(run->phase == TSR_PHASE_SETUP);
  uint32_t begin = j->after[r].forward != NEVER ? j->after[r].forward : j->after[r].any;
  if (!is_kept(j, allocation, begin, run)) return temporary;
  if (role.hint == TSR__MARK_KV_CACHE)
    return (verdict){TSR_CATEGORY_KV_CACHE, TSR_EVIDENCE_KV_CACHE_FRAME};
  if (is_optimizer) return (verdict){TSR_CATEGORY_OPTIMIZER_STATE, TSR_EVIDENCE_OPTIMIZER_BUILT};
  if (is_gradient_buffer(j, j->t->events.stack[j->t->birth.items[allocation]]))
    return (verdict){TSR_CATEGORY_GRADIENT, TSR_EVIDENCE_GRADIENT_BUFFER};
  return (verdict){TSR_CATEGORY_PARAMETER, role.hint == TSR__MARK_MODULE_SETUP
                                               ? TSR_EVIDENCE_MODULE_BUILT
                                               : TSR_EVIDENCE_CONSTRUCTOR};
}

static verdict judge_optimizer(const judge *j, uint32_t allocation, size_t r, tsr__role role) {
  assert(j->phases->runs.items[r].phase == TSR_PHASE_OPTIMIZER);
  if (role.hint == TSR__MARK_STATE)
    return (verdict){TSR_CATEGORY_OPTIMIZER_STATE, TSR_EVIDENCE_STATE_FRAME};
  if (!is_kept_on(j, allocation, j->after[r].any)) return temporary;
  if (role.hint == TSR__MARK_GRADIENT_TOOL) return unknown;
  if (ends_in_failure(j, r) && j->has_state_frames)
    return (verdict){TSR_CATEGORY_TEMPORARY, TSR_EVIDENCE_UNFINISHED_OPTIMIZER};
  return (verdict){TSR_CATEGORY_OPTIMIZER_STATE, TSR_EVIDENCE_OUTLIVES_OPTIMIZER};
}

/* Whether a run keeps anything that it allocated after this. Checks every allocation once in total. */
static bool is_last_kept(const judge *j, uint32_t allocation, size_t r) {
  const tsr__phase_run *run = &j->phases->runs.items[r];
  for (size_t i = (size_t)allocation + 1; i < j->t->birth.count; i++) {
    if (j->t->birth.items[i] > run->last_alloc) break;
    if (is_kept(j, (uint32_t)i, j->after[r].any, run)) return false;
  }
  return true;
}

/* A block's output is allocated last, and nobody needs it: checkpointing itself, not autograd, releases
 * it when the block's backward is done. Unless the operation that made it is one that saves it. */
static verdict judge_recompute(const judge *j, uint32_t allocation, size_t r, tsr__role role) {
  if (!is_kept(j, allocation, j->after[r].any, &j->phases->runs.items[r])) return temporary;
  bool may_die = ends_in_failure(j, r) && j->t->birth.count - allocation <= UNFINISHED_PASS;
  if (!may_die && !is_last_kept(j, allocation, r))
    return (verdict){TSR_CATEGORY_RECOMPUTED, TSR_EVIDENCE_OUTLIVES_RECOMPUTE};
  if (role.hint != TSR__MARK_SAVES_OUTPUT && freed_by(j, allocation).phase == TSR_PHASE_RECOMPUTE)
    return (verdict){TSR_CATEGORY_TEMPORARY, TSR_EVIDENCE_UNSAVED_OUTPUT};
  return (verdict){TSR_CATEGORY_RECOMPUTED, TSR_EVIDENCE_LAST_RECOMPUTED};
}

static bool piles_up(const judge *j, uint32_t allocation) {
  uint32_t stack = j->t->events.stack[j->t->birth.items[allocation]];
  return stack < j->roles->count && j->piles_up[stack];
}

static verdict judge_by_phase(judge *j, uint32_t allocation, size_t r, tsr__role role) {
  const tsr__phase_run *run = &j->phases->runs.items[r];
  switch ((tsr_phase)run->phase) {
  case TSR_PHASE_SETUP: return judge_setup(j, allocation, r, role);
  case TSR_PHASE_DATA:
    if (!is_kept(j, allocation, j->after[r].forward, run)) return temporary;
    if (role.hint != TSR__MARK_DATA && piles_up(j, allocation)) return unknown;
    return (verdict){TSR_CATEGORY_INPUT, role.hint == TSR__MARK_DATA ? TSR_EVIDENCE_DATA_FRAME
                                                                     : TSR_EVIDENCE_BEFORE_FORWARD};
  case TSR_PHASE_FORWARD: return judge_forward(j, allocation, r, role);
  case TSR_PHASE_RECOMPUTE: return judge_recompute(j, allocation, r, role);
  case TSR_PHASE_BACKWARD: return judge_backward(j, allocation, r, role);
  case TSR_PHASE_OPTIMIZER: return judge_optimizer(j, allocation, r, role);
  case TSR_PHASE_ZERO_GRAD:
  case TSR_PHASE_UNKNOWN:
  case TSR_PHASE_COUNT: break;
  }
  /* A trace without any known phase is one long run, which is no evidence. */
  bool is_known = j->phases->runs.count > 1;
  return is_known && !is_kept(j, allocation, j->after[r].any, run) ? temporary : unknown;
}

/* DataParallel makes replicas and divides the batch before it calls the model. What it frees again while
 * it does so are flattened copies. */
static verdict judge_parallel(const judge *j, uint32_t allocation, tsr__role role) {
  assert(role.hint == TSR__MARK_REPLICA || role.hint == TSR__MARK_SCATTER);
  if (freed_by(j, allocation).hint == role.hint)
    return (verdict){TSR_CATEGORY_COMMUNICATION, TSR_EVIDENCE_FLATTENED};
  if (role.hint == TSR__MARK_SCATTER) return (verdict){TSR_CATEGORY_INPUT, TSR_EVIDENCE_SCATTERED};
  return (verdict){TSR_CATEGORY_PARAMETER, TSR_EVIDENCE_REPLICA};
}

/* Whether a stack shows what it allocates, or that no thread runs its first product here. */
static bool excludes_workspace(tsr__role role, uint8_t phase) {
  return phase == TSR_PHASE_OPTIMIZER || role.hint == TSR__MARK_STATE ||
         role.hint == TSR__MARK_OPTIMIZER_SETUP || role.hint == TSR__MARK_MODULE_SETUP ||
         role.hint == TSR__MARK_ACCUMULATE || role.hint == TSR__MARK_KV_CACHE ||
         role.hint == TSR__MARK_GRAD_BUFFER;
}

/* cuBLAS's workspaces are never freed, unlike gradients and outputs, of which all but the last are. Hopper's size is a round number,
 * which an output that the program keeps may have too: it must also survive into a later forward pass, as the only one of its stack. */
static bool is_workspace_size(judge *j, uint32_t allocation, size_t r) {
  const tsr_events *events = &j->t->events;
  uint32_t birth = j->t->birth.items[allocation], stack = events->stack[birth];
  uint8_t phase = j->phases->runs.items[r].phase;
  if (j->t->death.items[allocation] != NEVER) return false;
  if (excludes_workspace(tsr__role_of(j->roles, stack), phase)) return false;
  if (events->size[birth] == CUBLAS_WORKSPACE_BYTES)
    return is_empty(j, stack) || !count_of(&j->freed_stacks, stack);
  if (events->size[birth] != HOPPER_WORKSPACE_BYTES) return false;
  if (phase != TSR_PHASE_FORWARD || j->after[r].forward == NEVER) return false;
  return count_of(&j->hopper_stacks, stack) == 1;
}

static verdict judge_one(judge *j, uint32_t allocation, size_t r) {
  uint32_t birth = j->t->birth.items[allocation];
  assert(birth < j->t->events.count && r < j->phases->runs.count);
  tsr__role role = tsr__role_of(j->roles, j->t->events.stack[birth]);
  if (role.hint == TSR__MARK_WORKSPACE)
    return (verdict){TSR_CATEGORY_WORKSPACE, TSR_EVIDENCE_WORKSPACE_FRAME};
  if (role.hint == TSR__MARK_COLLECTIVE)
    return (verdict){TSR_CATEGORY_COMMUNICATION, TSR_EVIDENCE_COLLECTIVE_FRAME};
  if (role.hint == TSR__MARK_REPLICA || role.hint == TSR__MARK_SCATTER)
    return judge_parallel(j, allocation, role);
  if (is_workspace_size(j, allocation, r))
    return (verdict){TSR_CATEGORY_WORKSPACE, TSR_EVIDENCE_WORKSPACE_SIZE};
  return judge_by_phase(j, allocation, r, role);
}

static void put(judge *j, uint32_t allocation, verdict v) {
  assert(allocation < j->out.count);
  assert(v.kind < TSR_CATEGORY_COUNT && v.evidence < TSR_EVIDENCE_COUNT);
  assert((v.kind == TSR_CATEGORY_UNKNOWN) == (v.evidence == TSR_EVIDENCE_NONE));
  j->out.category[allocation] = (uint8_t)v.kind;
  j->out.evidence[allocation] = (uint8_t)v.evidence;
}

/* Gradients that forward makes (a loss that computes its own) look like activations until zero_grad
 * frees them. And how often each stack asks for what may be a workspace. */
static bool look_at_stacks(judge *j) {
  const tsr_events *events = &j->t->events;
  j->is_gradient_stack = TSR__NEW_ARRAY(bool, (size_t)j->roles->count + 1);
  j->was_temporary = TSR__NEW_ARRAY(bool, (size_t)j->roles->count + 1);
  if (!j->is_gradient_stack || !j->was_temporary) return false;
  for (size_t i = j->t->initial.count; i < j->out.count; i++) {
    uint32_t birth = j->t->birth.items[i], stack = events->stack[birth];
    if (events->size[birth] == HOPPER_WORKSPACE_BYTES && !add_to(&j->hopper_stacks, stack))
      return false;
    if (events->size[birth] == CUBLAS_WORKSPACE_BYTES && j->t->death.items[i] != NEVER &&
        !add_to(&j->freed_stacks, stack))
      return false;
    if (freed_by(j, (uint32_t)i).phase == TSR_PHASE_ZERO_GRAD && stack < j->roles->count)
      j->is_gradient_stack[stack] = true;
  }
  return true;
}

/* The last allocations of a stack, each before another forward pass. */
typedef struct pile {
  uint32_t last[PASSES_KEPT]; /* a ring of allocations */
  uint32_t count, run;        /* of all so far; of the last */
  uint32_t kept, freed;
} pile;

static void count_pile(const judge *j, pile *p, uint32_t allocation, uint32_t event) {
  if (j->t->death.items[allocation] > event)
    p->kept++;
  else
    p->freed++;
}

/* An input is replaced by the next one, or by one soon after it. What a line makes before each forward pass and is live
 * some passes later is something else: what the program keeps of the last pass, a log or a leak. */
static bool find_piles(judge *j) {
  size_t r = 0, runs = j->phases->runs.count;
  pile *piles = TSR__NEW_ARRAY(pile, (size_t)j->roles->count + 1);
  j->piles_up = TSR__NEW_ARRAY(bool, (size_t)j->roles->count + 1);
  if (!piles || !j->piles_up) {
    tsr__free(piles);
    return false;
  }
  for (size_t i = j->t->initial.count; i < j->out.count; i++) {
    uint32_t birth = j->t->birth.items[i], stack = j->t->events.stack[birth];
    while (r + 1 < runs && j->phases->runs.items[r + 1].first <= birth) r++;
    if (r >= runs || j->phases->runs.items[r].phase != TSR_PHASE_DATA) continue;
    if (is_empty(j, stack)) continue; /* of many lines */
    pile *p = &piles[stack];
    if (p->count && p->run == (uint32_t)r) continue;
    p->run = (uint32_t)r;
    uint32_t *oldest = &p->last[p->count++ % PASSES_KEPT];
    if (p->count > PASSES_KEPT) count_pile(j, p, *oldest, birth);
    *oldest = (uint32_t)i;
  }
  for (uint32_t i = 0; i < j->roles->count; i++) {
    pile *p = &piles[i];
    for (uint32_t k = 2; k < PASSES_KEPT && k < p->count;
         k++) /* those with two or more later ones */
      count_pile(j, p, p->last[(p->count - 1 - k) % PASSES_KEPT], NEVER - 1);
    j->piles_up[i] = p->kept > p->freed;
  }
  tsr__free(piles);
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
  assert(f->kept <= f->most);
  f->alive += is_kept && j->t->death.items[allocation] == NEVER;
  return true;
}

/* If the recording ends within backward, this pass is expected to keep what earlier passes kept; in a
 * first pass, sizes of possible parameters decide: older memory, and what setup allocated. */
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
    uint32_t stack = j->t->events.stack[birth];
    if (stack < j->roles->count && j->out.phase[i] == TSR_PHASE_FORWARD)
      j->was_temporary[stack] = j->out.category[i] == TSR_CATEGORY_TEMPORARY;
  }
}

/* ---- Sizes of gradients and states ---- */

/* An allocation in a numbered pass. */
typedef struct pass_size {
  uint32_t pass;
  uint64_t size_bytes;
} pass_size;

/* The passes of one phase are numbered. The one that allocated the most bytes of a category is the
 * reference: others may be cut, or only add to existing memory. */
static bool sizes_of_fullest(const judge *j, tsr_category kind, bool (*is_of)(uint8_t phase),
                             const uint32_t *pass_of_run, uint32_t pass_count, tsr__map *sizes) {
  TSR__VECTOR(pass_size) found = {0};
  uint64_t *bytes = TSR__NEW_ARRAY(uint64_t, (size_t)pass_count + 1);
  uint32_t fullest = 0;
  bool ok = bytes != NULL;
  size_t r = 0, runs = j->phases->runs.count;
  for (size_t i = j->t->initial.count; ok && i < j->out.count; i++) {
    if (j->out.category[i] != kind) continue;
    uint32_t birth = j->t->birth.items[i];
    while (r + 1 < runs && j->phases->runs.items[r + 1].first <= birth) r++;
    if (!is_of(j->phases->runs.items[r].phase)) continue;
    pass_size one = {pass_of_run[r], j->t->events.size[birth]};
    assert(one.pass <= pass_count);
    bytes[one.pass] = tsr__sum_u64(bytes[one.pass], one.size_bytes);
    ok = TSR__VECTOR_PUSH(&found, one);
  }
  for (uint32_t s = 1; ok && s <= pass_count; s++)
    if (bytes[s] > bytes[fullest]) fullest = s;
  for (size_t i = 0; ok && i < found.count; i++)
    if (found.items[i].pass == fullest) ok = add_to(sizes, found.items[i].size_bytes);
  TSR__VECTOR_FREE(&found);
  tsr__free(bytes);
  return ok;
}

static bool is_optimizer(uint8_t phase) {
  return phase == TSR_PHASE_OPTIMIZER;
}

/* Memory from before the recording that is never freed, by size. */
static bool count_old(const judge *j, tsr__map *sizes) {
  for (size_t i = 0; i < j->t->initial.count; i++)
    if (j->t->death.items[i] == NEVER && !add_to(sizes, j->t->initial.items[i].requested_bytes))
      return false;
  return true;
}

/* Halve every count; the results are at most those of `limits`, halved too (NULL: no limit). */
static void halve(tsr__map *sizes, tsr__map *limits) {
  size_t slots = sizes->slots ? sizes->mask + 1 : 0;
  for (size_t i = 0; i < slots; i++) {
    tsr__map_slot *slot = &sizes->slots[i];
    if (slot->key == TSR__MAP_EMPTY) continue;
    uint64_t limit = limits ? count_of(limits, slot->key) / 2 : slot->value / 2;
    if (slot->value > limit) slot->value = limit;
  }
}

/* The sizes of parameters, into `gradients`: from the gradients that a backward pass left; or, if
 * it added to existing gradients, from the state that the optimizer replaced (two per parameter);
 * or from what backward allocated, as far as pairs of old memory have its size. */
static bool note_sizes(judge *j) {
  tsr__map old = {0};
  bool ok = sizes_of_fullest(j, TSR_CATEGORY_OPTIMIZER_STATE, is_optimizer, j->optimizer_pass,
                             j->optimizer_count, &j->states) &&
            sizes_of_fullest(j, TSR_CATEGORY_GRADIENT, is_backward, j->span, j->span_count,
                             &j->gradients);
  j->has_old_gradients = j->span_count && !j->gradients.count;
  if (ok && j->has_old_gradients) {
    ok = sizes_of_fullest(j, TSR_CATEGORY_OPTIMIZER_STATE, is_optimizer, j->optimizer_pass,
                          j->optimizer_count, &j->gradients);
    halve(&j->gradients, NULL);
  }
  if (ok && j->has_old_gradients && !j->gradients.count) {
    ok = count_old(j, &old) && sizes_of_fullest(j, TSR_CATEGORY_TEMPORARY, is_backward, j->span,
                                                j->span_count, &j->gradients);
    halve(&j->gradients, &old);
  }
  tsr__map_release(&old);
  return ok;
}

/* ---- Gradients that forward makes ---- */

/* The number of old blocks for each gradient: the parameter, and what its optimizer keeps. 1
 * (no state), 2 (momentum) or 3 (Adam, and if unknown). Gradients are counted, not weighed: one that is missing yet, of
 * a large head, would outweigh all others. */
static uint64_t copies_of(judge *j, tsr__map *old) {
  double gradients = 0, copies = 0;
  for (size_t i = 0; j->gradients.slots && i <= j->gradients.mask; i++) {
    uint64_t size = j->gradients.slots[i].key;
    if (size == TSR__MAP_EMPTY || !count_of(old, size)) continue;
    gradients += (double)j->gradients.slots[i].value;
    copies += (double)count_of(old, size);
  }
  assert(gradients >= 0 && copies >= 0);
  if (gradients == 0 || copies >= 2.5 * gradients) return 3;
  return copies < 1.5 * gradients ? 1 : 2;
}

/* The number of parameters of a size, from optimizer state: two per parameter, allocated during
 * the recording or, in addition to the parameter itself, before it. */
static uint64_t parameters_by_state(judge *j, tsr__map *old, uint64_t copies, uint64_t size) {
  uint64_t made = count_of(&j->states, size);
  assert(copies >= 1 && copies <= 3);
  return made ? made / 2 : count_of(old, size) / copies;
}

/* A loss that computes its own gradient allocates it in forward. Only its size distinguishes it from an
 * output that the program holds: there is a parameter of that size for which backward leaves none. */
static bool find_forward_gradients(judge *j) {
  tsr__map old = {0}, found = {0};
  bool ok = count_old(j, &old);
  uint64_t copies = ok ? copies_of(j, &old) : 1;
  size_t r = 0, runs = j->phases->runs.count;
  for (size_t i = j->t->initial.count; ok && i < j->out.count; i++) {
    if (j->out.evidence[i] != TSR_EVIDENCE_HELD_OUTPUT &&
        j->out.evidence[i] != TSR_EVIDENCE_KEPT_FOR_BACKWARD)
      continue;
    uint32_t birth = j->t->birth.items[i];
    while (r + 1 < runs && j->phases->runs.items[r + 1].first <= birth) r++;
    uint32_t backward = j->after[r].backward, end = j->after[r].end_of_backward;
    if (backward == NEVER || !is_kept_on(j, (uint32_t)i, end)) continue;
    uint64_t size = j->t->events.size[birth];
    if (size < FORWARD_GRADIENT_BYTES) continue;
    tsr__role role = tsr__role_of(j->roles, j->t->events.stack[birth]);
    if (role.hint == TSR__MARK_KV_CACHE) continue; /* held by the cache, which the output has */
    if (count_of(&old, size)) /* also where the end of backward is not seen: not sure */
      put(j, (uint32_t)i, (verdict){TSR_CATEGORY_ACTIVATION, TSR_EVIDENCE_HELD_OUTPUT});
    if (j->is_cut) continue; /* backward may yet make that gradient */
    if (parameters_by_state(j, &old, copies, size) <= count_of(&j->gradients, size)) continue;
    put(j, (uint32_t)i, (verdict){TSR_CATEGORY_GRADIENT, TSR_EVIDENCE_FORWARD_GRADIENT});
    ok = tsr__map_put(&found, size, 1, NULL) != NULL;
  }
  for (size_t i = 0; ok && found.slots && i <= found.mask; i++)
    if (found.slots[i].key != TSR__MAP_EMPTY) ok = add_to(&j->gradients, found.slots[i].key);
  tsr__map_release(&old);
  tsr__map_release(&found);
  return ok;
}

/* ---- Memory from before the recording ---- */

/* How many blocks of each size may still be assigned to each category. */
typedef struct quota {
  tsr__map parameters, gradients, states;
} quota;

/* The line of Module._apply that made it before the recording; 0 if it did not. */
static uint64_t old_apply_line(const judge *j, uint32_t allocation) {
  uint32_t stack = j->t->initial.items[allocation].stack;
  bool is_setup = tsr__role_of(j->roles, stack).phase == TSR_PHASE_SETUP;
  return stack < j->roles->count && is_setup ? j->roles->apply_line[stack] : 0;
}

/* What one line of Module._apply made before the recording. */
typedef struct old_line {
  uint64_t line, bytes;
} old_line;

/* The lines, ascending; 4 if there are more than three. */
static size_t find_old_lines(const judge *j, old_line *lines) {
  size_t count = 0;
  for (uint32_t i = 0; i < j->t->initial.count; i++) {
    uint64_t line = old_apply_line(j, i), bytes = j->t->initial.items[i].requested_bytes;
    size_t at = 0;
    if (!line) continue;
    while (at < count && lines[at].line < line) at++;
    if (at == count || lines[at].line != line) {
      if (count == 3) return 4;
      memmove(&lines[at + 1], &lines[at], (count - at) * sizeof *lines);
      lines[at] = (old_line){line, 0};
      count++;
    }
    lines[at].bytes = tsr__sum_u64(lines[at].bytes, bytes);
  }
  return count;
}

/* Module._apply moves parameters, on a line further down their gradients, and then buffers. Of two lines the second
 * is that of gradients if each has its parameter, and they are too large for buffers. */
static bool find_old_gradients(judge *j) {
  old_line lines[4];
  tsr__map sizes = {0};
  bool ok = true, fits = true;
  size_t count = j->moves ? find_old_lines(j, lines) : 0;
  if (count < 2 || count > 3) return true;
  if (count == 2 && lines[1].bytes < lines[0].bytes / 2) return true;
  for (uint32_t i = 0; ok && i < j->t->initial.count; i++)
    if (old_apply_line(j, i) == lines[0].line)
      ok = add_to(&sizes, j->t->initial.items[i].requested_bytes);
  for (uint32_t i = 0; ok && i < j->t->initial.count; i++)
    if (old_apply_line(j, i) == lines[1].line)
      fits &= take(&sizes, j->t->initial.items[i].requested_bytes);
  if (ok && fits) j->old_grad_line = lines[1].line;
  tsr__map_release(&sizes);
  return ok;
}

/* Evidence from its own stack, if the file has it. */
static verdict judge_old_stack(const judge *j, uint32_t allocation) {
  assert(allocation < j->t->initial.count);
  const tsr__initial *initial = &j->t->initial.items[allocation];
  tsr__role role = tsr__role_of(j->roles, initial->stack);
  bool is_workspace = initial->requested_bytes == CUBLAS_WORKSPACE_BYTES &&
                      role.phase == TSR_PHASE_FORWARD && j->t->death.items[allocation] == NEVER;
  if (role.hint == TSR__MARK_WORKSPACE)
    return (verdict){TSR_CATEGORY_WORKSPACE, TSR_EVIDENCE_WORKSPACE_FRAME};
  if (is_workspace) return (verdict){TSR_CATEGORY_WORKSPACE, TSR_EVIDENCE_WORKSPACE_SIZE};
  if (role.hint == TSR__MARK_KV_CACHE && role.phase == TSR_PHASE_SETUP)
    return (verdict){TSR_CATEGORY_KV_CACHE, TSR_EVIDENCE_KV_CACHE_FRAME};
  if (role.hint == TSR__MARK_KV_CACHE && !is_of_training(j, initial->stack))
    return (verdict){TSR_CATEGORY_KV_CACHE, TSR_EVIDENCE_KV_CACHE_UPDATE};
  if (role.hint == TSR__MARK_REPLICA)
    return (verdict){TSR_CATEGORY_PARAMETER, TSR_EVIDENCE_REPLICA};
  if (role.hint == TSR__MARK_SCATTER) return (verdict){TSR_CATEGORY_INPUT, TSR_EVIDENCE_SCATTERED};
  if (role.hint == TSR__MARK_STATE)
    return (verdict){TSR_CATEGORY_OPTIMIZER_STATE, TSR_EVIDENCE_STATE_FRAME};
  if (role.hint == TSR__MARK_OPTIMIZER_SETUP)
    return (verdict){TSR_CATEGORY_OPTIMIZER_STATE, TSR_EVIDENCE_OPTIMIZER_BUILT};
  if (role.hint == TSR__MARK_ACCUMULATE)
    return (verdict){TSR_CATEGORY_GRADIENT, TSR_EVIDENCE_ACCUMULATE_FRAME};
  if (role.phase == TSR_PHASE_SETUP && is_gradient_buffer(j, initial->stack))
    return (verdict){TSR_CATEGORY_GRADIENT, TSR_EVIDENCE_GRADIENT_BUFFER};
  if (j->old_grad_line && old_apply_line(j, allocation) == j->old_grad_line)
    return (verdict){TSR_CATEGORY_GRADIENT, TSR_EVIDENCE_MOVED_GRADIENT};
  switch ((tsr_phase)role.phase) {
  case TSR_PHASE_SETUP:
    return (verdict){TSR_CATEGORY_PARAMETER, role.hint == TSR__MARK_MODULE_SETUP
                                                 ? TSR_EVIDENCE_MODULE_BUILT
                                                 : TSR_EVIDENCE_CONSTRUCTOR};
  case TSR_PHASE_OPTIMIZER:
    return (verdict){TSR_CATEGORY_OPTIMIZER_STATE, TSR_EVIDENCE_OUTLIVES_OPTIMIZER};
  case TSR_PHASE_BACKWARD: return (verdict){TSR_CATEGORY_GRADIENT, TSR_EVIDENCE_OUTLIVES_BACKWARD};
  case TSR_PHASE_FORWARD: return (verdict){TSR_CATEGORY_ACTIVATION, TSR_EVIDENCE_OUTLIVES_FORWARD};
  case TSR_PHASE_DATA: return (verdict){TSR_CATEGORY_INPUT, TSR_EVIDENCE_DATA_FRAME};
  default: return unknown;
  }
}

/* Memory freed during the recording, by what freed it and when. An optimizer frees what it replaces. */
static verdict judge_old_dead(judge *j, uint32_t allocation, const tsr__phase_run *run,
                              quota *left) {
  tsr__role role = freed_by(j, allocation);
  uint64_t size = j->t->initial.items[allocation].requested_bytes;
  static const verdict gradient = {TSR_CATEGORY_GRADIENT, TSR_EVIDENCE_OLD_GRADIENT};
  static const verdict activation = {TSR_CATEGORY_ACTIVATION, TSR_EVIDENCE_OLD_ACTIVATION};
  if (role.phase == TSR_PHASE_ZERO_GRAD) return gradient;
  if (role.hint == TSR__MARK_RELEASE) return activation;
  uint8_t phase = run ? run->phase : (uint8_t)TSR_PHASE_UNKNOWN;
  if (is_backward(role.phase) || is_backward(phase)) return activation;
  bool is_known_size = count_of(&j->gradients, size) != 0;
  if (phase == TSR_PHASE_OPTIMIZER && is_known_size)
    return take(&left->parameters, size)
               ? (verdict){TSR_CATEGORY_PARAMETER, TSR_EVIDENCE_OLD_PARAMETER}
               : (verdict){TSR_CATEGORY_OPTIMIZER_STATE, TSR_EVIDENCE_OLD_STATE};
  if (is_known_size) return gradient;
  return phase == TSR_PHASE_FORWARD ? activation : unknown;
}

/* The only backward pass is cut. It leaves state unknown unless old memory, apart from a twentieth, is of sizes
 * that occur a multiple of three times: embeddings and norms of which there is one rule that out. */
static bool judge_unfinished(judge *j) {
  size_t runs = j->phases->runs.count;
  tsr__map old = {0};
  j->is_cut = runs && j->span_count == 1 && !j->optimizer_count && !j->ends_elsewhere &&
              is_backward(j->phases->runs.items[runs - 1].phase);
  j->old_copies = 1;
  if (!j->is_cut) return true;
  if (!count_old(j, &old)) return false;
  double all = 0, threes = 0;
  for (size_t i = 0; old.slots && i <= old.mask; i++) {
    uint64_t size = old.slots[i].key, count = old.slots[i].value;
    if (size == TSR__MAP_EMPTY || size == CUBLAS_WORKSPACE_BYTES) continue;
    double bytes = (double)size * (double)count;
    all += bytes;
    if (count % 3 == 0 && count >= 3 * count_of(&j->gradients, size)) threes += bytes;
  }
  if (threes >= all * 0.95) j->old_copies = 3;
  tsr__map_release(&old);
  return true;
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

/* How many old blocks of a size there may be, if the only backward pass is cut: a third of them are parameters,
 * or all. `gradients`: how many of those have one already. */
static bool set_cut_quotas(judge *j, quota *left) {
  tsr__map old = {0};
  bool ok = count_old(j, &old);
  for (size_t i = 0; ok && old.slots && i <= old.mask; i++) {
    uint64_t size = old.slots[i].key, count = old.slots[i].value;
    if (size == TSR__MAP_EMPTY) continue;
    bool is_clear = j->old_copies == 1 || count % 3 == 0;
    uint64_t parameters = is_clear ? count / j->old_copies : 0;
    ok = set_quota(left, size, parameters, count_of(&j->gradients, size),
                   is_clear ? count - parameters : 0);
  }
  tsr__map_release(&old);
  return ok;
}

/* The same if the only backward pass is cut. */
static verdict judge_old_cut(quota *left, uint64_t size) {
  if (take(&left->parameters, size))
    return (verdict){TSR_CATEGORY_PARAMETER, take(&left->gradients, size)
                                                 ? TSR_EVIDENCE_OLD_PARAMETER
                                                 : TSR_EVIDENCE_OLD_UNFINISHED};
  if (take(&left->states, size))
    return (verdict){TSR_CATEGORY_OPTIMIZER_STATE, TSR_EVIDENCE_OLD_UNFINISHED};
  return unknown;
}

static bool frees_old_in_optimizer(const judge *j) {
  for (uint32_t i = 0; i < (uint32_t)j->t->initial.count; i++) {
    uint32_t death = j->t->death.items[i];
    const tsr__phase_run *run = death == NEVER ? NULL : tsr__phases_run_at(j->phases, death);
    if (run && run->phase == TSR_PHASE_OPTIMIZER) return true;
  }
  return false;
}

/* Whether the first step of the optimizer is in the recording: it makes state for each parameter of a size, and replaces
 * none. */
static bool begins_with_state(judge *j, uint64_t size) {
  uint64_t parameters = count_of(&j->gradients, size);
  return parameters && !j->replaces_state && !j->has_old_gradients &&
         count_of(&j->states, size) >= parameters;
}

static verdict judge_old_live(judge *j, uint32_t allocation, quota *left) {
  uint64_t size = j->t->initial.items[allocation].requested_bytes;
  bool is_workspace =
      size == CUBLAS_WORKSPACE_BYTES || (size == HOPPER_WORKSPACE_BYTES && !j->has_hopper_layers);
  if (is_workspace && !count_of(&j->gradients, size))
    return (verdict){TSR_CATEGORY_WORKSPACE, TSR_EVIDENCE_WORKSPACE_SIZE};
  if (j->is_cut) return judge_old_cut(left, size);
  if (take(&left->parameters, size))
    return (verdict){TSR_CATEGORY_PARAMETER, TSR_EVIDENCE_OLD_PARAMETER};
  if (take(&left->gradients, size))
    return (verdict){TSR_CATEGORY_GRADIENT, TSR_EVIDENCE_OLD_GRADIENT};
  if (take(&left->states, size))
    return (verdict){TSR_CATEGORY_OPTIMIZER_STATE, TSR_EVIDENCE_OLD_STATE};
  if (is_workspace) return (verdict){TSR_CATEGORY_WORKSPACE, TSR_EVIDENCE_WORKSPACE_SIZE};
  if (begins_with_state(j, size)) return (verdict){TSR_CATEGORY_PARAMETER, TSR_EVIDENCE_OLD_SPARE};
  bool trains = j->span_count || j->optimizer_count;
  if (!trains && j->has_forward) return (verdict){TSR_CATEGORY_PARAMETER, TSR_EVIDENCE_OLD_MODEL};
  return unknown;
}

/* For each size there are as many parameters as gradients, and twice as many states, less what was
 * allocated during the recording. */
static bool set_quotas(judge *j, quota *left) {
  size_t slots = j->gradients.slots ? j->gradients.mask + 1 : 0;
  j->replaces_state = frees_old_in_optimizer(j);
  for (size_t i = 0; i < slots; i++) {
    uint64_t size = j->gradients.slots[i].key, count = j->gradients.slots[i].value;
    if (size == TSR__MAP_EMPTY || !count) continue;
    uint64_t states = tsr__drop_u64(tsr__sum_u64(count, count), count_of(&j->states, size));
    if (j->has_old_gradients && !j->optimizer_count) states = 0; /* the count is a guess already */
    if (begins_with_state(j, size)) states = 0;
    if (!set_quota(left, size, count, j->has_old_gradients ? count : 0, states)) return false;
  }
  return true;
}

/* How many old blocks of the size of Hopper's workspace no parameter's gradient explains. */
static uint64_t count_hopper_sized(const judge *j, quota *left) {
  uint64_t count = 0;
  for (size_t i = 0; i < j->t->initial.count; i++)
    count += j->t->initial.items[i].requested_bytes == HOPPER_WORKSPACE_BYTES;
  if (j->is_cut) return count;
  uint64_t explained = tsr__sum_u64(count_of(&left->parameters, HOPPER_WORKSPACE_BYTES),
                                    count_of(&left->gradients, HOPPER_WORKSPACE_BYTES));
  explained = tsr__sum_u64(explained, count_of(&left->states, HOPPER_WORKSPACE_BYTES));
  return tsr__drop_u64(count, explained);
}

/* The number of layers of the model: the largest count that at least two sizes of gradients have in
 * common; 0 if none do. */
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

/* Old memory that is never freed and whose size no gradient has: buffers, if there is one per layer;
 * frozen parameters, if it is most of the memory that is never freed. */
static bool judge_old_rest(judge *j) {
  tsr__map rest = {0};
  uint64_t known_bytes = 0, rest_bytes = 0, layers;
  bool ok = find_layers(j, &layers);
  for (size_t i = 0; ok && i < j->t->initial.count; i++) {
    uint64_t size = j->t->initial.items[i].requested_bytes;
    if (j->t->death.items[i] != NEVER) continue;
    if (j->out.evidence[i] == TSR_EVIDENCE_OLD_PARAMETER)
      known_bytes = tsr__sum_u64(known_bytes, size);
    if (j->out.category[i] != TSR_CATEGORY_UNKNOWN) continue;
    rest_bytes = tsr__sum_u64(rest_bytes, size);
    ok = add_to(&rest, size);
  }
  bool is_frozen = known_bytes && rest_bytes / 2 > known_bytes;
  for (size_t i = 0; ok && i < j->t->initial.count; i++) {
    if (j->out.category[i] != TSR_CATEGORY_UNKNOWN || j->t->death.items[i] != NEVER) continue;
    uint64_t count = count_of(&rest, j->t->initial.items[i].requested_bytes);
    bool is_buffer = layers >= FEWEST_LAYERS && count % layers == 0;
    if (is_buffer || is_frozen)
      put(j, (uint32_t)i,
          (verdict){TSR_CATEGORY_PARAMETER,
                    is_buffer ? TSR_EVIDENCE_OLD_BUFFER : TSR_EVIDENCE_OLD_FROZEN});
  }
  tsr__map_release(&rest);
  return ok;
}

/* What the program itself named, or the profiler that wrote a flat list. */
static bool judge_named(const judge *j, uint32_t allocation, verdict *out) {
  out->evidence = j->t->flat ? TSR_EVIDENCE_NAMED_BY_FILE : TSR_EVIDENCE_NAMED;
  return j->names && tsr__names_category(j->names, allocation, &out->kind);
}

static void take_names(judge *j) {
  verdict v;
  if (!j->names || !tsr__names_any(j->names)) return; /* most snapshots have no names */
  for (uint32_t i = 0; i < (uint32_t)j->out.count; i++)
    if (judge_named(j, i, &v)) put(j, i, v);
}

/* Names first, then stacks, then what is never freed, then what died: parameters are mostly never freed. */
static bool judge_old(judge *j) {
  quota left = {0};
  if (!find_old_gradients(j)) return false;
  bool ok = j->is_cut ? set_cut_quotas(j, &left) : set_quotas(j, &left);
  uint32_t count = ok ? (uint32_t)j->t->initial.count : 0;
  j->has_hopper_layers = ok && count_hopper_sized(j, &left) >= FEWEST_LAYERS;
  for (uint32_t i = 0; i < count; i++) {
    verdict v;
    if (!judge_named(j, i, &v)) v = judge_old_stack(j, i);
    j->out.phase[i] = tsr__role_of(j->roles, j->t->initial.items[i].stack).phase;
    uint64_t size = j->t->initial.items[i].requested_bytes;
    if (v.kind == TSR_CATEGORY_PARAMETER) take(&left.parameters, size);
    if (v.kind == TSR_CATEGORY_GRADIENT) take(&left.gradients, size);
    if (v.kind == TSR_CATEGORY_OPTIMIZER_STATE) take(&left.states, size);
    put(j, i, v);
  }
  for (uint32_t i = 0; i < count; i++)
    if (j->out.category[i] == TSR_CATEGORY_UNKNOWN && j->t->death.items[i] == NEVER)
      put(j, i, judge_old_live(j, i, &left));
  for (uint32_t i = 0; i < count; i++) {
    uint32_t death = j->t->death.items[i];
    if (j->out.category[i] == TSR_CATEGORY_UNKNOWN && death != NEVER)
      put(j, i, judge_old_dead(j, i, tsr__phases_run_at(j->phases, death), &left));
  }
  tsr__map_release(&left.parameters);
  tsr__map_release(&left.gradients);
  tsr__map_release(&left.states);
  return ok;
}

/* ---- Parameters that the optimizer replaces ---- */

/* What an optimizer's step allocated and kept: a stack for each size, the last on top. */
typedef struct kept {
  uint32_t allocation, below; /* below: index of the previous one of its size, plus 1 */
} kept;

typedef struct replacer {
  tsr__map top; /* size -> index in items, plus 1 */
  TSR__VECTOR(kept) items;
} replacer;

/* A step that assigns to p.data frees the old parameter after the new one exists: the last that it
 * kept of that size is the new parameter, not state. */
static bool replace_in_run(judge *j, replacer *r, uint32_t first, uint32_t behind) {
  tsr__map_release(&r->top);
  r->items.count = 0;
  for (uint32_t e = first; e < behind; e++) {
    uint32_t allocation = j->t->allocation_of[e];
    if (allocation == NEVER) continue;
    uint8_t *kind = &j->out.category[allocation];
    bool is_born = j->t->birth.items[allocation] == e;
    if (is_born && *kind == TSR_CATEGORY_OPTIMIZER_STATE) {
      uint64_t *top = tsr__map_put(&r->top, j->t->events.size[e], 0, NULL);
      if (!top || !TSR__VECTOR_PUSH(&r->items, (kept){allocation, (uint32_t)*top})) return false;
      *top = r->items.count;
    } else if (j->t->death.items[allocation] == e && *kind == TSR_CATEGORY_PARAMETER) {
      uint64_t *top = tsr__map_find(&r->top, tsr__timeline_requested(j->t, allocation));
      if (!top || !*top) continue;
      const kept *newest = &r->items.items[*top - 1];
      assert(*top <= r->items.count && newest->below < *top);
      put(j, newest->allocation,
          (verdict){TSR_CATEGORY_PARAMETER, TSR_EVIDENCE_REPLACED_PARAMETER});
      *top = newest->below;
    }
  }
  return true;
}

/* Needed only if parameters die in a step at all, which is rare. */
static bool needs_replacing(const judge *j) {
  for (size_t i = 0; i < j->out.count; i++) {
    uint32_t death = j->t->death.items[i];
    if (j->out.category[i] != TSR_CATEGORY_PARAMETER || death == NEVER) continue;
    const tsr__phase_run *run = tsr__phases_run_at(j->phases, death);
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

/* ---- Gradients that Module._apply moves ---- */

/* The lines of Module._apply that made something, in one program: parameters, gradients, buffers. */
typedef struct apply_line {
  uint64_t line;
  uint32_t follows; /* made right after something of the same size on an earlier line, */
  uint32_t others;  /* or not */
} apply_line;

enum { APPLY_LINES = 8 };

static apply_line *find_line(apply_line *lines, uint64_t line) {
  for (size_t i = 0; i < APPLY_LINES; i++) {
    if (lines[i].line == line) return &lines[i];
    if (lines[i].line) continue;
    lines[i].line = line;
    return &lines[i];
  }
  return NULL; /* several versions of PyTorch in one file: no evidence */
}

/* The line of Module._apply that makes something and keeps it until it makes the next. What a copy to another
 * type takes on the way is freed before. */
static uint64_t apply_line_of(const judge *j, uint32_t allocation) {
  uint32_t stack = j->t->events.stack[j->t->birth.items[allocation]];
  if (stack >= j->roles->count || j->out.phase[allocation] != TSR_PHASE_SETUP) return 0;
  bool is_moved = j->out.evidence[allocation] == TSR_EVIDENCE_MODULE_BUILT ||
                  j->out.category[allocation] == TSR_CATEGORY_TEMPORARY;
  bool is_last = (size_t)allocation + 1 == j->out.count;
  bool is_brief = !is_last && j->t->death.items[allocation] < j->t->birth.items[allocation + 1] &&
                  freed_by(j, allocation).phase != TSR_PHASE_ZERO_GRAD;
  return is_moved && !is_brief ? j->roles->apply_line[stack] : 0;
}

/* Whether _apply makes it only to copy something else. */
static bool is_copys_own(const judge *j, uint32_t allocation) {
  uint32_t stack = j->t->events.stack[j->t->birth.items[allocation]];
  return stack < j->roles->count && j->roles->apply_line[stack] && !apply_line_of(j, allocation);
}

/* What `allocation` takes the place of, if _apply frees that before it allocates again: NEVER if it
 * frees nothing. */
static uint32_t replaced_by(const judge *j, uint32_t allocation) {
  const tsr_events *events = &j->t->events;
  for (uint64_t e = (uint64_t)j->t->birth.items[allocation] + 1; e < events->count; e++) {
    if (events->action[e] == TSR_ACTION_ALLOC) return NEVER;
    if (events->action[e] == TSR_ACTION_FREE_REQUESTED) return j->t->allocation_of[e];
  }
  return NEVER;
}

/* Module._apply makes a parameter's copy, and then that of its gradient on a line further down. Either
 * the old gradient is freed next, or zero_grad frees the new one; or everything made on that line follows something
 * of its own size made on an earlier one, which is not so for buffers. */
static void find_moved_gradients(judge *j) {
  static const verdict moved = {TSR_CATEGORY_GRADIENT, TSR_EVIDENCE_MOVED_GRADIENT};
  apply_line lines[APPLY_LINES] = {{0}};
  uint64_t last_line = 0, last_size = 0;
  for (size_t i = j->t->initial.count; i < j->out.count; i++) {
    if (is_copys_own(j, (uint32_t)i)) continue;
    uint64_t line = apply_line_of(j, (uint32_t)i),
             size = tsr__timeline_requested(j->t, (uint32_t)i);
    apply_line *of_line = line ? find_line(lines, line) : NULL;
    if (of_line && line > last_line && last_line && size == last_size)
      of_line->follows++;
    else if (of_line)
      of_line->others++;
    last_line = line;
    last_size = size;
    uint32_t old = line ? replaced_by(j, (uint32_t)i) : NEVER;
    bool replaces = old != NEVER && j->out.category[old] == TSR_CATEGORY_GRADIENT;
    bool is_zeroed = line && freed_by(j, (uint32_t)i).phase == TSR_PHASE_ZERO_GRAD;
    if (replaces || is_zeroed) put(j, (uint32_t)i, moved);
  }
  for (size_t i = j->t->initial.count; i < j->out.count; i++) {
    uint64_t line = apply_line_of(j, (uint32_t)i);
    const apply_line *of_line = line ? find_line(lines, line) : NULL;
    if (of_line && of_line->follows > 1 && !of_line->others) put(j, (uint32_t)i, moved);
  }
}

/* ---- Copies of weights that autocast makes ---- */

/* Live memory by size, during a pass over the events. */
typedef struct live_sizes {
  bool counts_activations;    /* there may be copies, to which they are compared */
  tsr__map parameters, casts; /* size -> count */
  /* size -> count of what the recording allocated, and the most that were live together */
  tsr__map new_casts, most_casts, activations, most_activations;
  uint32_t *next_copy; /* by allocation: autocast's next copy for another operation, or NEVER */
} live_sizes;

static bool may_be_cast(const judge *j, uint32_t allocation) {
  uint8_t kind = j->out.category[allocation];
  return kind == TSR_CATEGORY_ACTIVATION || kind == TSR_CATEGORY_RECOMPUTED ||
         kind == TSR_CATEGORY_TEMPORARY;
}

/* How many parameters of twice the size are live; of those, how many have no copy yet. */
static uint64_t weights_of(live_sizes *live, uint64_t size) {
  return size <= UINT64_MAX / 2 ? count_of(&live->parameters, 2 * size) : 0;
}
static bool has_uncast_weight(live_sizes *live, uint64_t size) {
  return size <= UINT64_MAX / 2 && weights_of(live, size) > count_of(&live->casts, 2 * size);
}

/* Whether the next allocation has the same stack: mostly, that the same operation made it. */
static bool has_next_alike(const judge *j, uint32_t allocation) {
  const tsr_events *events = &j->t->events;
  return (size_t)allocation + 1 < j->out.count &&
         events->stack[j->t->birth.items[allocation + 1]] ==
             events->stack[j->t->birth.items[allocation]];
}

static tsr__role made_by(const judge *j, uint32_t allocation) {
  assert(allocation >= j->t->initial.count);
  return tsr__role_of(j->roles, j->t->events.stack[j->t->birth.items[allocation]]);
}

/* Whether autocast's copy is still there when it copies for another operation. What backward does not need goes with the
 * operation that it was made for, unless autocast's cache has it: only weights' copies are there. */
static bool is_cached(const judge *j, uint32_t allocation, const live_sizes *live) {
  uint32_t next = live->next_copy[allocation];
  return next != NEVER && j->t->birth.items[next] < j->t->death.items[allocation];
}

/* Whether it can be a weight's copy that backward needs, as far as lifetime and size show. Without C++
 * frames the last allocation of an operation is its result. */
static bool fits_weight(const judge *j, uint32_t allocation, live_sizes *live) {
  return may_be_cast(j, allocation) && j->out.category[allocation] != TSR_CATEGORY_TEMPORARY &&
         (made_by(j, allocation).has_native || has_next_alike(j, allocation)) &&
         weights_of(live, tsr__timeline_requested(j->t, allocation)) != 0;
}

/* Of an operation's copies, those that backward needs: whether the one before was the weight's. */
static bool follows_weight(const judge *j, uint32_t allocation) {
  if (allocation <= j->t->initial.count || !has_next_alike(j, allocation - 1)) return false;
  uint8_t before = j->out.evidence[allocation - 1];
  return before == TSR_EVIDENCE_WEIGHT_CAST || before == TSR_EVIDENCE_CAST_SIZE;
}

/* Of several copies that one operation makes, the weight's comes before that of the activation to which it is applied: it
 * is the later argument, and gcc evaluates the last argument first. Operands in a list, such as those of einsum, are copied
 * in their order. */
static verdict judge_cast(const judge *j, uint32_t allocation, live_sizes *live) {
  tsr__role role = made_by(j, allocation);
  if (freed_by(j, allocation).hint == TSR__MARK_AUTOCAST_EXIT)
    return (verdict){TSR_CATEGORY_CAST, TSR_EVIDENCE_AUTOCAST_CACHE};
  bool is_temporary = j->out.category[allocation] == TSR_CATEGORY_TEMPORARY;
  if (is_temporary && role.hint == TSR__MARK_AUTOCAST && is_cached(j, allocation, live) &&
      has_uncast_weight(live, tsr__timeline_requested(j->t, allocation)))
    return (verdict){TSR_CATEGORY_CAST, TSR_EVIDENCE_AUTOCAST_CACHE};
  if (!fits_weight(j, allocation, live)) return unknown;
  bool has_evidence = role.has_native ? role.hint == TSR__MARK_AUTOCAST
                                      : j->has_autocast && role.hint == TSR__MARK_NONE;
  bool is_other = role.takes_list
                      ? has_next_alike(j, allocation) && fits_weight(j, allocation + 1, live) &&
                            has_uncast_weight(live, tsr__timeline_requested(j->t, allocation + 1))
                      : follows_weight(j, allocation);
  if (has_evidence && !is_other &&
      has_uncast_weight(live, tsr__timeline_requested(j->t, allocation)))
    return (verdict){TSR_CATEGORY_CAST,
                     role.has_native ? TSR_EVIDENCE_WEIGHT_CAST : TSR_EVIDENCE_CAST_SIZE};
  /* The size fits, but something else was taken for the copy: then nothing is sure. */
  bool may_be_either = !role.has_native || role.hint == TSR__MARK_AUTOCAST;
  return may_be_either
             ? (verdict){(tsr_category)j->out.category[allocation], TSR_EVIDENCE_KEPT_OR_CAST}
             : unknown;
}

/* Autocast's copies for other operations, each by the one before. */
static bool find_next_copies(const judge *j, live_sizes *live) {
  const uint32_t *stack = j->t->events.stack;
  uint32_t next = NEVER;
  live->next_copy = TSR__NEW_ARRAY(uint32_t, j->out.count + 1);
  if (!live->next_copy) return false;
  for (size_t i = j->out.count; i-- > j->t->initial.count;) {
    uint32_t of = stack[j->t->birth.items[i]];
    bool is_other = next != NEVER && stack[j->t->birth.items[next]] != of;
    live->next_copy[i] = next == NEVER || is_other ? next : live->next_copy[next];
    if (made_by(j, (uint32_t)i).hint == TSR__MARK_AUTOCAST) next = (uint32_t)i;
  }
  return true;
}

/* Some memory is freed with autocast's cache. */
static bool sees_autocast(const judge *j) {
  for (size_t i = j->t->initial.count; i < j->out.count; i++)
    if (freed_by(j, (uint32_t)i).hint == TSR__MARK_AUTOCAST_EXIT) return true;
  return false;
}

/* One more of a size is live; `most` is the most that were. */
static bool add_live(tsr__map *now, tsr__map *most, uint64_t size) {
  if (!add_to(now, size)) return false;
  uint64_t *highest = tsr__map_put(most, size, 0, NULL);
  if (highest && count_of(now, size) > *highest) *highest = count_of(now, size);
  return highest != NULL;
}

/* Whether judge_cast may say anything of it. Most allocations have C++ frames, which would name autocast. */
static bool can_judge_cast(const judge *j, uint32_t allocation) {
  return may_be_cast(j, allocation) && (j->has_cast_stacks || !made_by(j, allocation).has_native);
}

static bool note_birth(judge *j, live_sizes *live, uint32_t allocation, bool is_recorded) {
  if (is_recorded && can_judge_cast(j, allocation)) {
    verdict v = judge_cast(j, allocation, live);
    if (v.kind != TSR_CATEGORY_UNKNOWN) put(j, allocation, v);
  }
  uint8_t kind = j->out.category[allocation];
  bool is_counted = is_recorded && live->counts_activations && kind == TSR_CATEGORY_ACTIVATION;
  if (!is_counted && kind != TSR_CATEGORY_CAST && kind != TSR_CATEGORY_PARAMETER) return true;
  uint64_t size = tsr__timeline_requested(j->t, allocation);
  if (is_counted) return add_live(&live->activations, &live->most_activations, size);
  if (kind == TSR_CATEGORY_PARAMETER) return add_to(&live->parameters, size);
  return size > UINT64_MAX / 2 ||
         (add_to(&live->casts, 2 * size) && add_live(&live->new_casts, &live->most_casts, size));
}

static void note_death(judge *j, live_sizes *live, uint32_t allocation) {
  uint8_t kind = j->out.category[allocation];
  bool is_recorded = allocation >= j->t->initial.count;
  bool is_counted = is_recorded && live->counts_activations && kind == TSR_CATEGORY_ACTIVATION;
  if (!is_counted && kind != TSR_CATEGORY_CAST && kind != TSR_CATEGORY_PARAMETER) return;
  uint64_t size = tsr__timeline_requested(j->t, allocation);
  if (is_counted) take(&live->activations, size);
  if (kind == TSR_CATEGORY_PARAMETER) take(&live->parameters, size);
  if (kind == TSR_CATEGORY_CAST) take(&live->casts, 2 * size);
  if (kind == TSR_CATEGORY_CAST) take(&live->new_casts, size);
}

/* Of several forward passes under autocast, one from before the recording kept copies of weights as the
 * recorded ones did. What is as large as a recorded copy was one; if activations are as large too, it is
 * in the same proportion. */
static bool find_old_casts(judge *j, live_sizes *live) {
  tsr__map left = {0}; /* size -> the number of old copies not found yet */
  tsr__map old = {0};
  bool ok = true;
  for (size_t i = 0; ok && live->most_casts.count && i < j->t->initial.count; i++)
    if (j->out.evidence[i] == TSR_EVIDENCE_OLD_ACTIVATION)
      ok = add_to(&old, j->t->initial.items[i].requested_bytes);
  for (size_t i = 0; ok && old.count && i < j->t->initial.count; i++) {
    uint64_t size = j->t->initial.items[i].requested_bytes;
    uint64_t casts = count_of(&live->most_casts, size);
    uint64_t others = count_of(&live->most_activations, size);
    if (!casts || j->out.evidence[i] != TSR_EVIDENCE_OLD_ACTIVATION) continue;
    bool is_new;
    uint64_t *count = tsr__map_put(&left, size, 0, &is_new);
    ok = count != NULL;
    if (!ok) break;
    double share = (double)casts / ((double)casts + (double)others);
    if (is_new) *count = (uint64_t)(share * (double)count_of(&old, size) + 0.5);
    verdict v = {*count ? TSR_CATEGORY_CAST : TSR_CATEGORY_ACTIVATION,
                 others ? TSR_EVIDENCE_KEPT_OR_CAST : TSR_EVIDENCE_OLD_CAST};
    *count -= *count != 0;
    put(j, (uint32_t)i, v);
  }
  tsr__map_release(&left);
  tsr__map_release(&old);
  return ok;
}

static bool find_casts(judge *j) {
  live_sizes live = {0};
  bool ok = true;
  j->has_autocast = j->has_cast_stacks && sees_autocast(j);
  live.counts_activations = j->has_cast_stacks; /* what judge_cast needs to be sure */
  ok = find_next_copies(j, &live);
  for (size_t i = 0; ok && i < j->t->initial.count; i++)
    ok = note_birth(j, &live, (uint32_t)i, false);
  for (uint32_t e = 0; ok && e < j->t->events.count; e++) {
    uint32_t allocation = j->t->allocation_of[e];
    if (allocation == NEVER) continue;
    if (allocation >= j->t->initial.count && j->t->birth.items[allocation] == e) {
      ok = note_birth(j, &live, allocation, true);
    } else if (j->t->death.items[allocation] == e) {
      note_death(j, &live, allocation);
    }
  }
  ok = ok && find_old_casts(j, &live);
  tsr__free(live.next_copy);
  tsr__map_release(&live.parameters);
  tsr__map_release(&live.casts);
  tsr__map_release(&live.new_casts);
  tsr__map_release(&live.most_casts);
  tsr__map_release(&live.activations);
  tsr__map_release(&live.most_activations);
  return ok;
}

/* ---- All together ---- */

int tsr__categories_compute(const tsr__timeline *timeline, const tsr__roles *roles,
                            const tsr__phases *phases, const tsr__cycle *cycle,
                            const tsr__names *names, tsr__categories *out, tsr_error *error) {
  assert(!names || names->timeline == timeline);
  judge j = {.t = timeline,
             .roles = roles,
             .phases = phases,
             .names = names,
             .out.count = timeline->birth.count};
  j.out.category = TSR__NEW_ARRAY(uint8_t, j.out.count);
  j.out.evidence = TSR__NEW_ARRAY(uint8_t, j.out.count);
  j.out.phase = TSR__NEW_ARRAY(uint8_t, j.out.count);
  bool ok = j.out.category && j.out.evidence && j.out.phase && look_ahead(&j) &&
            tsr__iterations_find(timeline, cycle, roles->count, &j.iterations) && count_kept(&j);
  if (ok) {
    j.ends_elsewhere = has_moved_on(&j);
    ok = look_at_stacks(&j) && find_piles(&j) && learn_fates(&j);
  }
  if (ok) {
    judge_recorded(&j);
    ok = note_sizes(&j) && judge_unfinished(&j) && find_forward_gradients(&j) && judge_old(&j) &&
         judge_old_rest(&j) && replace_parameters(&j);
    if (ok && j.moves) find_moved_gradients(&j);
    ok = ok && (!j.may_cast || find_casts(&j));
    take_names(&j);
  }
  tsr__free(j.after);
  tsr__free(j.span);
  tsr__free(j.optimizer_pass);
  tsr__free(j.updates);
  tsr__free(j.saved);
  tsr__map_release(&j.gradients);
  tsr__map_release(&j.hopper_stacks);
  tsr__map_release(&j.freed_stacks);
  tsr__map_release(&j.states);
  tsr__map_release(&j.fates);
  TSR__VECTOR_FREE(&j.seen);
  tsr__map_release(&j.unclaimed);
  tsr__free(j.is_gradient_stack);
  tsr__free(j.was_temporary);
  tsr__free(j.piles_up);
  tsr__iterations_release(&j.iterations);
  if (!ok) {
    tsr__categories_release(&j.out);
    return tsr__fail_memory(error);
  }
  *out = j.out;
  return 0;
}

void tsr__categories_release(tsr__categories *categories) {
  tsr__free(categories->category);
  tsr__free(categories->evidence);
  tsr__free(categories->phase);
  *categories = (tsr__categories){0};
}
