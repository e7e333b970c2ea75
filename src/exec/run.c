/* run.c - see run.h.
 *
 *   dry run of the first steps ─► how many addresses the whole run needs ─► arena
 *     or offsets of all tensors (placed.h) ───────────────────────────────────┘
 *   dry run, watched:   event ─► arena      RUN ─► kernel      end of step ─► the caller
 *
 * Numbers that change from step to step (the learning rate, AdamW's corrections) are computed when a
 * kernel runs. Random numbers have a key for each draw of each step; what is computed again draws
 * the same. After an overflow of scaled gradients the optimizer's ops are left out, as a GradScaler
 * leaves out the optimizer's step. */
#include "exec/run.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/os.h"
#include "exec/placed.h"
#include "graph/op.h"
#include "kernels/fast.h"
#include "kernels/random.h"

/* Of placed memory; any will do but 0. */
#define ARENA_ORIGIN (UINT64_C(1) << 32)

struct tsr__executor {
  const tsr__tape *tape;
  const tsr__execute_options *options;
  tsr__tensor_arena arena;
  tsr__optimizer_numbers *numbers;
  const uint64_t *addresses; /* while a function of the observer runs */
  tsr__placement placement;  /* empty unless is_placed */
  const uint64_t *offsets;   /* of this step, if is_placed */
  tsr_error *error;
  tsr_error failure; /* the text for `status` */
  tsr__isa isa;      /* of the instructions that fast kernels use */
  char *nothing;     /* the address of tensors without bytes */
  uint64_t step_key;
  uint64_t updates;     /* steps in which the optimizer ran */
  uint64_t micro_batch; /* 1 + the one that runs; 0 before the first */
  size_t losses_seen;
  double loss, last_loss; /* of micro-batches before the last, and of the last */
  bool has_overflowed, has_diverged, is_checked, is_done;
  const tsr__dry_device *device; /* where the run is */
  int status;                    /* why it ended, if not for memory */
};

tsr__kernel_tensor tsr__executor_tensor(const tsr__executor *e, tsr__tensor_id tensor) {
  tsr__kernel_tensor out = {.data = NULL};
  if (!tensor) return out;
  const tsr__tape_tensor *t = tsr__tensor_at(e->tape, tensor);
  uint64_t address = e->addresses[t->slot];
  out.dtype = (tsr__dtype)t->dtype;
  out.layout = t->layout;
  if (address)
    out.data =
        tsr__tensor_arena_at(&e->arena, e->offsets ? ARENA_ORIGIN + e->offsets[t->slot] : address);
  else if (!e->tape->slots.items[t->slot].bytes)
    out.data = e->nothing;
  return out;
}

struct tsr__thread_pool *tsr__executor_pool(const tsr__executor *e) {
  return e->options->pool;
}

tsr__optimizer_numbers *tsr__executor_numbers(const tsr__executor *e) {
  return e->numbers;
}

/* ---- kernels ---- */

static double number_of(const tsr__executor *e, const tsr__scalar *scalar) {
  const tsr__optimizer_numbers *n = e->numbers;
  double step = (double)(e->updates + 1);
  switch ((tsr__scalar_kind)scalar->kind) {
  case TSR__SCALAR_NUMBER: return scalar->number;
  case TSR__SCALAR_KEPT: return 1 - n->learning_rate * n->decay;
  case TSR__SCALAR_LEARNING_RATE: return n->learning_rate;
  case TSR__SCALAR_DESCENT: return -n->learning_rate;
  case TSR__SCALAR_BETA_1: return n->beta_1;
  case TSR__SCALAR_BETA_1_REST: return 1 - n->beta_1;
  case TSR__SCALAR_BETA_2: return n->beta_2;
  case TSR__SCALAR_BETA_2_REST: return 1 - n->beta_2;
  case TSR__SCALAR_BETA_2_ROOT: return sqrt(1 - pow(n->beta_2, step));
  case TSR__SCALAR_ADAM_STEP: return -n->learning_rate / (1 - pow(n->beta_1, step));
  case TSR__SCALAR_ADAM_EPSILON: return n->epsilon;
  case TSR__SCALAR_WEIGHT_DECAY: return n->decay;
  case TSR__SCALAR_NONE:
  case TSR__SCALAR_KIND_COUNT: break;
  }
  assert(false);
  return 0;
}

static bool is_update(const tsr__tape *tape, const tsr__kernel_run *run) {
  if (run->op == TSR_NONE) return false;
  switch (tape->ops.items[run->op].kind) {
  case TSR__OP_ADAMW_LOOP:
  case TSR__OP_ADAMW_FOREACH:
  case TSR__OP_ADAMW_FUSED:
  case TSR__OP_SGD: return true;
  default: return false;
  }
}

static void fill_args(const tsr__executor *e, const tsr__kernel_run *run, tsr__kernel_args *args) {
  const tsr__tape *tape = e->tape;
  const tsr__tensor_id *reads = tsr__run_reads(tape, run), *writes = tsr__run_writes(tape, run);
  const tsr__tensor_id *scratch = tsr__run_scratch(tape, run);
  const tsr__scalar *scalars = tsr__run_scalars(tape, run);
  for (uint32_t i = 0; i < run->read_count; i++) args->reads[i] = tsr__executor_tensor(e, reads[i]);
  for (uint32_t i = 0; i < run->write_count; i++)
    args->writes[i] = tsr__executor_tensor(e, writes[i]);
  for (uint32_t i = 0; i < run->scratch_count; i++)
    args->scratch[i] = tsr__executor_tensor(e, scratch[i]);
  for (uint32_t i = 0; i < run->scalar_count; i++) args->scalars[i] = number_of(e, &scalars[i]);
  args->scalar_count = run->scalar_count;
  args->is_transposed[0] = run->transposed & 1;
  args->is_transposed[1] = run->transposed & 2;
  if (run->draw) args->key = tsr__random_key(e->step_key, run->draw);
}

static double first_number(const tsr__kernel_tensor *tensor) {
  double number;
  tsr__kernel_args copy = {.reads = {*tensor}};
  copy.writes[0] = (tsr__kernel_tensor){.data = &number, .dtype = TSR__DTYPE_F64};
  assert(tensor->data && tsr__shape_elements(tensor->layout.shape) == 1);
  tsr__kernel_row_of(TSR__KERNEL_TO_COPY)->reference(&copy);
  return number;
}

/* What the run meant, besides its results. */
static void note_results(tsr__executor *e, const tsr__kernel_run *run,
                         const tsr__kernel_args *args) {
  const tsr__execute_options *o = e->options;
  if (run->kernel == TSR__KERNEL_UNSCALE && first_number(&args->writes[1]) != 0)
    e->has_overflowed = true;
  const tsr__tensor_id *writes = tsr__run_writes(e->tape, run);
  for (uint32_t i = 0; i < run->write_count; i++) {
    if (e->losses_seen < o->loss_count && writes[i] == o->losses[e->losses_seen]) {
      e->loss += e->last_loss;
      e->last_loss = 0;
      e->losses_seen++;
    }
    if (e->losses_seen && writes[i] == o->losses[e->losses_seen - 1])
      e->last_loss = first_number(&args->writes[i]); /* it may be added to later */
  }
}

/* Numbers whose exponent is all ones are infinite or none. */
static bool is_finite_32(const uint32_t *bits, uint64_t count, uint32_t exponent) {
  uint32_t found = 0;
  for (uint64_t i = 0; i < count; i++) found |= (bits[i] & exponent) == exponent;
  return !found;
}

static bool is_finite_16(const uint16_t *bits, uint64_t count, uint32_t exponent) {
  uint32_t found = 0;
  for (uint64_t i = 0; i < count; i++) found |= (bits[i] & exponent) == exponent;
  return !found;
}

static bool is_finite(const tsr__kernel_tensor *t) {
  uint64_t count = tsr__layout_end(t->layout) - t->layout.offset;
  const void *data = (const char *)t->data + t->layout.offset * tsr__dtype_bytes(t->dtype);
  if (count != tsr__shape_elements(t->layout.shape)) return true; /* gaps may hold anything */
  switch (t->dtype) {
  case TSR__DTYPE_F32: return is_finite_32(data, count, 0x7f800000);
  case TSR__DTYPE_BF16: return is_finite_16(data, count, 0x7f80);
  case TSR__DTYPE_F16: return is_finite_16(data, count, 0x7c00);
  default: return true;
  }
}

/* Before the first update of a step: a loss or a gradient that is no finite number must not reach the
 * parameters. */
static void check_gradients(tsr__executor *e) {
  const tsr__tape *tape = e->tape;
  e->is_checked = true;
  e->has_diverged = !isfinite(e->loss + e->last_loss);
  for (size_t i = 0; i < tape->parameters.count && !e->has_diverged; i++) {
    tsr__kernel_tensor gradient =
        tsr__executor_tensor(e, tsr__tensor_at(tape, tape->parameters.items[i])->grad);
    if (gradient.data && !is_finite(&gradient)) e->has_diverged = true;
  }
}

static bool may_update(tsr__executor *e) {
  if (!e->is_checked && !e->has_overflowed) check_gradients(e);
  return !e->has_overflowed && !e->has_diverged;
}

/* What an op has made of state may be replaced by what was saved. */
static bool restore(tsr__executor *e, const tsr__kernel_run *run) {
  const tsr__execute_options *o = e->options;
  const tsr__tensor_id *writes = tsr__run_writes(e->tape, run);
  if (!run->is_once || !o->restore) return true;
  for (uint32_t i = 0; i < run->write_count && e->status == 0; i++)
    if (writes[i]) e->status = o->restore(o->context, e, writes[i], &e->failure);
  return e->status == 0;
}

/* What functions of the observer see. */
static void look(tsr__executor *e, uint64_t step, const uint64_t *addresses) {
  e->addresses = addresses;
  if (e->options->is_placed) e->offsets = e->placement.offsets[step & 1];
}

static bool execute_run(void *context, uint32_t index, uint64_t step, const uint64_t *addresses) {
  tsr__executor *e = context;
  const tsr__kernel_run *run = &e->tape->runs.items[index];
  const tsr__kernel_row *row = tsr__kernel_row_of((tsr__kernel)run->kernel);
  tsr__kernel_args args = {.pool = e->options->pool};
  look(e, step, addresses);
  if ((run->is_once && step > 1) || (is_update(e->tape, run) && !may_update(e))) return true;
  fill_args(e, run, &args);
  if (run->kernel == TSR__KERNEL_BATCH) {
    uint32_t which = (uint32_t)args.scalars[0];
    if (which == 0) e->micro_batch++;
    assert(e->micro_batch && e->options->batch);
    args.batch = e->options->batch(e->options->context, e->options->steps_before + step,
                                   e->micro_batch - 1, which);
  }
  assert(row->reference);
  const tsr__execute_options *o = e->options;
  tsr__kernel_fn *fast =
      o->uses_reference ? NULL : tsr__kernel_fast((tsr__kernel)run->kernel, e->isa);
  uint64_t before_ns = o->run_ns ? tsr__os_time_ns() : 0;
  (fast ? fast : row->reference)(&args);
  if (o->run_ns) o->run_ns[index] += tsr__os_time_ns() - before_ns;
  note_results(e, run, &args);
  return restore(e, run);
}

/* ---- the walk ---- */

static void begin_step(tsr__executor *e, uint64_t step) {
  e->step_key = tsr__random_key(e->options->seed, e->options->steps_before + step);
  e->micro_batch = 0;
  e->losses_seen = 0;
  e->loss = e->last_loss = 0;
  e->has_overflowed = e->has_diverged = e->is_checked = false;
}

static bool execute_memory(void *context, uint32_t device, const tsr_allocator_event *event) {
  tsr__executor *e = context;
  assert(device == 0);
  (void)device;
  if (!e->options->is_placed) return tsr__tensor_arena_event(&e->arena, event);
  tsr__tensor_arena_count(&e->arena, event);
  return true;
}

static bool execute_loaded(void *context, const uint64_t *addresses) {
  tsr__executor *e = context;
  look(e, 1, addresses);
  if (e->options->load) e->status = e->options->load(e->options->context, e, &e->failure);
  begin_step(e, 1);
  return e->status == 0;
}

static bool execute_step(void *context, uint64_t step, const uint64_t *addresses) {
  tsr__executor *e = context;
  const tsr__execute_options *o = e->options;
  double loss = (e->loss + e->last_loss) / (double)(o->loss_count ? o->loss_count : 1);
  assert(e->losses_seen == o->loss_count);
  look(e, step, addresses);
  if (!isfinite(loss)) e->has_diverged = true; /* the scaler may have noticed first */
  if (!e->has_overflowed && !e->has_diverged) e->updates++;
  tsr__executed_step done = {.step = o->steps_before + step,
                             .loss = loss,
                             .is_skipped = e->has_overflowed,
                             .is_diverged = e->has_diverged,
                             .block_bytes = e->arena.block_bytes,
                             .peak_bytes = e->device->peak.totals.allocated_bytes,
                             .updates = e->updates};
  if (o->step && !o->step(o->context, e, &done)) e->is_done = true;
  begin_step(e, step + 1);
  return true;
}

static bool execute_is_done(void *context, uint64_t step) {
  (void)step;
  return ((const tsr__executor *)context)->is_done;
}

/* ---- another observer of the same run ---- */

static const tsr__dry_observer *other(const void *context) {
  return ((const tsr__executor *)context)->options->observer;
}
static bool pass_phase(void *context, tsr__tape_phase phase, uint64_t step, bool is_start) {
  return other(context)->phase(other(context)->context, phase, step, is_start);
}
static bool pass_op(void *context, uint32_t op) {
  return other(context)->op(other(context)->context, op);
}
static bool pass_event(void *context, uint32_t device, uint32_t slot,
                       const tsr_allocator_event *event) {
  return other(context)->event(other(context)->context, device, slot, event);
}
static int pass_end(void *context, uint32_t device, const tsr_allocator *allocator,
                    tsr_error *error) {
  return other(context)->end(other(context)->context, device, allocator, error);
}

/* ---- how many addresses ---- */

enum { STEPS_TO_REPEAT = 4, GRANULE = 2 << 20 };

typedef struct reach {
  uint64_t first, end;
  uint64_t ends[STEPS_TO_REPEAT + 1]; /* after each step */
} reach;

static bool note_reach(void *context, uint32_t device, const tsr_allocator_event *event) {
  reach *r = context;
  (void)device;
  if (event->action != TSR_ACTION_SEGMENT_ALLOC && event->action != TSR_ACTION_SEGMENT_MAP)
    return true;
  if (!r->first || event->addr < r->first) r->first = event->addr;
  if (event->addr + event->size > r->end) r->end = event->addr + event->size;
  return true;
}

static bool note_step(void *context, uint64_t step, const uint64_t *addresses) {
  reach *r = context;
  (void)addresses;
  if (step <= STEPS_TO_REPEAT) r->ends[step] = r->end;
  return true;
}

/* Memory repeats from the third step on, unless the program leaks: if segments come and go, each step needs
 * as many new addresses as the one before. Reserve what `steps` need. */
static int reserve(tsr__executor *e, tsr__dry_options dry, tsr__execution *out) {
  reach r = {0};
  tsr__dry_observer observer = {.context = &r, .memory = note_reach, .step = note_step};
  uint64_t steps = dry.steps ? dry.steps : 1, done = 0, more = 0;
  bool repeats = steps > STEPS_TO_REPEAT && !e->tape->has_leaks;
  dry.observer = &observer;
  if (repeats) dry.steps = STEPS_TO_REPEAT;
  int status = tsr__dry_run(e->tape, &dry, &out->predicted, &done, e->error);
  if (status) return status;
  if (repeats && done == STEPS_TO_REPEAT)
    more = (steps - done) * (r.ends[STEPS_TO_REPEAT] - r.ends[STEPS_TO_REPEAT - 1]);
  uint64_t size = (r.end - r.first + more + GRANULE - 1) / GRANULE * GRANULE;
  if (!tsr__tensor_arena_init(&e->arena, r.first, size ? size : GRANULE))
    return tsr__fail(e->error, TSR_ERROR_MEMORY, TSR_OFFSET_NONE,
                     "the system has no room for %llu bytes of addresses",
                     (unsigned long long)size);
  return 0;
}

/* All of placed memory at once. The prediction of the allocator is made as well, for the books. */
static int place(tsr__executor *e, tsr__dry_options dry, tsr__execution *out) {
  uint64_t done, steps = dry.steps ? dry.steps : 1;
  if (steps > STEPS_TO_REPEAT) dry.steps = STEPS_TO_REPEAT;
  int status = tsr__dry_run(e->tape, &dry, &out->predicted, &done, e->error);
  if (status) return status;
  if (!tsr__placement_solve(e->tape, &e->placement)) return tsr__fail_memory(e->error);
  uint64_t total = e->placement.total_bytes, capacity = e->options->capacity_bytes;
  uint64_t size = (total + GRANULE - 1) / GRANULE * GRANULE;
  tsr_allocator_event all = {
      .action = TSR_ACTION_SEGMENT_ALLOC, .addr = ARENA_ORIGIN, .size = total};
  out->bound_bytes = e->placement.bound_bytes;
  if (capacity && total > capacity)
    return tsr__fail(e->error, TSR_ERROR_LIMIT, TSR_OFFSET_NONE,
                     "the run needs %llu bytes, placed, and may use %llu",
                     (unsigned long long)total, (unsigned long long)capacity);
  if (tsr__tensor_arena_init(&e->arena, ARENA_ORIGIN, size ? size : GRANULE) &&
      (!total || tsr__tensor_arena_event(&e->arena, &all)))
    return 0;
  return tsr__fail(e->error, TSR_ERROR_MEMORY, TSR_OFFSET_NONE,
                   "the system has no room for %llu bytes", (unsigned long long)total);
}

int tsr__execute(const tsr__tape *tape, const tsr__execute_options *options, tsr__execution *out,
                 tsr_error *error) {
  tsr__optimizer_numbers numbers = options->numbers;
  char nothing[8] = {0};
  tsr__executor e = {.tape = tape,
                     .options = options,
                     .numbers = &numbers,
                     .error = error,
                     .nothing = nothing,
                     .device = &out->executed,
                     .updates = options->updates_before};
  e.isa = tsr__isa_best();
  if (options->isa_limit && options->isa_limit - 1 < (unsigned)e.isa)
    e.isa = (tsr__isa)(options->isa_limit - 1);
  tsr__dry_observer observer = {.context = &e,
                                .memory = execute_memory,
                                .loaded = execute_loaded,
                                .run = execute_run,
                                .step = execute_step,
                                .is_done = execute_is_done};
  tsr__dry_options dry = {.settings = options->settings,
                          .capacity_bytes = options->is_placed ? 0 : options->capacity_bytes,
                          .steps = options->steps};
  assert(tape->status == 0);
  *out = (tsr__execution){0};
  int status = options->is_placed ? place(&e, dry, out) : reserve(&e, dry, out);
  if (options->observer) {
    observer.phase = options->observer->phase ? pass_phase : NULL;
    observer.op = options->observer->op ? pass_op : NULL;
    observer.event = options->observer->event ? pass_event : NULL;
    observer.end = options->observer->end ? pass_end : NULL;
  }
  dry.observer = &observer;
  if (status == 0) status = tsr__dry_run(tape, &dry, &out->executed, &out->steps_done, error);
  if (e.status) {
    status = e.status;
    if (error) *error = e.failure;
  }
  out->usable_peak_bytes = e.arena.usable_peak_bytes;
  out->block_peak_bytes = e.arena.block_peak_bytes;
  tsr__tensor_arena_release(&e.arena);
  tsr__placement_release(&e.placement);
  return status;
}
