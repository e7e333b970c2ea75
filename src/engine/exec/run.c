/* run.c - see run.h.
 *
 *   forecast: dry run of the first steps ─► how many addresses the whole run needs ─► arena
 *               or offsets of all tensors (placed.h) ───────────────────────────────────┘
 *   dry run, watched:   event ─► arena      RUN ─► kernel      move ─► copier      end of step ─► the caller
 *
 * Numbers that change from step to step (the learning rate, AdamW's corrections) are computed when a
 * kernel runs. Random numbers have a key for each draw of each step; what is computed again draws
 * the same. Ranks that train together agree before the first update of a step: on its loss, and on whether it is
 * one that all of them make. After an overflow of scaled gradients the optimizer's ops are left out, as a GradScaler
 * leaves out the optimizer's step. */
#include "exec/run.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/format.h"
#include "base/memory.h"
#include "base/os.h"
#include "kernels/fast.h"
#include "kernels/random.h"

/* The first address of placed memory: any but 0. */
#define ARENA_ORIGIN (UINT64_C(1) << 32)

/* What a rank reports about a step to the others. */
typedef struct finding {
  double loss;
  uint16_t has_overflowed, has_diverged, wants_end, unused;
} finding;
static_assert(sizeof(finding) == 16, "predictions of sent bytes count these");

struct tsr__executor {
  const tsr__schedule *schedule;
  const tsr__execute_options *options;
  tsr__tensor_arena arena, host;
  tsr__tensor_arena
      file; /* has no memory: counts the use of the disk, and has the origin of its addresses */
  int file_handle;
  tsr__copier
      *copiers[TSR__DRY_SPACES]; /* between device and host; with the disk. NULL: no moves */
  tsr__optimizer_numbers *numbers;
  const uint64_t *addresses; /* while a function of the observer runs */
  const tsr__forecast *forecast;
  const uint64_t *offsets; /* of this step, if is_placed */
  tsr_error *error;
  tsr_error failure; /* the text for `status` */
  tsr__isa isa;      /* of the instructions that fast kernels use */
  char *nothing;     /* the address of tensors without bytes */
  uint64_t step_key;
  uint64_t updates;     /* steps in which the optimizer ran */
  uint64_t micro_batch; /* 1 + the one that runs; 0 before the first */
  size_t losses_seen;
  double loss, last_loss; /* of micro-batches before the last, and of the last */
  double gradient_norm;
  uint64_t evaluated;     /* batches of this rank's evaluation so far */
  double *evaluations;    /* the loss of each batch of an evaluation, of all ranks; owned */
  uint64_t evaluation_ns; /* when it began; afterwards, what it took */
  bool is_evaluating, is_evaluation_left; /* unfinished */
  bool is_generating, has_enough;         /* no more tokens are wanted */
  bool has_overflowed, has_diverged, is_checked, is_done, is_interrupted, is_given_up;
  tsr__ticket *tickets;          /* by move, of what ranks make together */
  finding *findings;             /* of all ranks */
  bool has_agreed;               /* in this step */
  double agreed_loss;            /* the sum of all ranks' */
  bool has_updated;              /* some parameter, in backward */
  uint32_t checked_op;           /* the last update in backward */
  const tsr__dry_device *device; /* where the run is */
  int status;                    /* why it ended, if not for memory */
};

/* Where a slot's bytes are in memory; NULL if it is absent or on a disk. */
static void *place_of(const tsr__executor *e, uint32_t slot) {
  uint64_t address = e->addresses[slot];
  if (!address) return e->schedule->slots.items[slot].bytes ? NULL : e->nothing;
  switch ((tsr__memory_space)e->schedule->slots.items[slot].space) {
  case TSR__SPACE_DEVICE:
    return tsr__tensor_arena_at(&e->arena, e->offsets ? ARENA_ORIGIN + e->offsets[slot] : address);
  case TSR__SPACE_HOST: return tsr__tensor_arena_at(&e->host, address);
  case TSR__SPACE_DISK:
  case TSR__SPACE_COUNT: break;
  }
  return NULL;
}

tsr__kernel_tensor tsr__executor_tensor(const tsr__executor *e, tsr__tensor_id tensor) {
  tsr__kernel_tensor out = {.data = NULL};
  if (!tensor) return out;
  const tsr__step_tensor *t = tsr__schedule_tensor(e->schedule, tensor);
  out.dtype = (tsr__dtype)t->dtype;
  out.layout = t->layout;
  out.data = place_of(e, t->slot);
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
  case TSR__SCALAR_MOMENTUM: return n->momentum;
  case TSR__SCALAR_POSITION: /* the first batch came before the generation, and this round's has been taken */
    return scalar->number + (e->is_generating ? (double)(e->micro_batch - 2) : 0);
  case TSR__SCALAR_NONE:
  case TSR__SCALAR_KIND_COUNT: break;
  }
  assert(false);
  return 0;
}

static void fill_args(const tsr__executor *e, const tsr__kernel_run *run, tsr__kernel_args *args) {
  const tsr__schedule *schedule = e->schedule;
  const tsr__tensor_id *reads = tsr__run_reads(schedule, run),
                       *writes = tsr__run_writes(schedule, run);
  const tsr__tensor_id *scratch = tsr__run_scratch(schedule, run);
  const tsr__scalar *scalars = tsr__run_scalars(schedule, run);
  for (uint32_t i = 0; i < run->read_count; i++) args->reads[i] = tsr__executor_tensor(e, reads[i]);
  for (uint32_t i = 0; i < run->write_count; i++)
    args->writes[i] = tsr__executor_tensor(e, writes[i]);
  for (uint32_t i = 0; i < run->scratch_count; i++)
    args->scratch[i] = tsr__executor_tensor(e, scratch[i]);
  for (uint32_t i = 0; i < run->scalar_count; i++) args->scalars[i] = number_of(e, &scalars[i]);
  args->scalar_count = run->scalar_count;
  args->is_transposed[0] = run->transposed & 1;
  args->is_transposed[1] = run->transposed & 2;
  /* Other ranks' micro-batches draw what they would draw if they followed one another in one process. */
  if (run->draw)
    args->key = tsr__random_key(e->step_key,
                                run->draw + (uint64_t)schedule->sharding.rank * schedule->draws);
}

static double first_number(const tsr__kernel_tensor *tensor) {
  double number;
  tsr__kernel_args copy = {.reads = {*tensor}};
  copy.writes[0] = (tsr__kernel_tensor){.data = &number, .dtype = TSR__DTYPE_F64};
  assert(tensor->data && tsr__shape_elements(tensor->layout.shape) == 1);
  tsr__kernel_row_of(TSR__KERNEL_TO_COPY)->reference(&copy);
  return number;
}

static uint64_t ranks_of(const tsr__schedule *schedule) {
  return schedule->sharding.ranks ? schedule->sharding.ranks : 1;
}

uint64_t tsr__evaluation_rounds(const tsr__schedule *schedule, const tsr__execute_options *o) {
  uint64_t each = o->evaluation_loss_count * ranks_of(schedule);
  return each ? (o->evaluation_batches + each - 1) / each : 0;
}

/* The losses that a rank computes in an evaluation. Those beyond the last batch repeat it, and are not used. */
static uint64_t evaluations_of(const tsr__executor *e) {
  return tsr__evaluation_rounds(e->schedule, e->options) * e->options->evaluation_loss_count;
}

/* Note the loss of a batch. */
static void note_evaluation(tsr__executor *e, const tsr__kernel_run *run,
                            const tsr__kernel_args *args) {
  const tsr__execute_options *o = e->options;
  const tsr__tensor_id *writes = tsr__run_writes(e->schedule, run);
  if (!e->evaluated || !o->evaluation_loss_count) return;
  uint64_t batch = e->evaluated - 1;
  tsr__tensor_id loss = o->evaluation_losses[batch % o->evaluation_loss_count];
  double *mine = e->evaluations + e->schedule->sharding.rank * evaluations_of(e);
  for (uint32_t i = 0; i < run->write_count; i++)
    if (writes[i] == loss) mine[batch] = first_number(&args->writes[i]);
}

static void show_outputs(tsr__executor *e, const tsr__kernel_run *run) {
  const tsr__execute_options *o = e->options;
  const tsr__tensor_id *writes = tsr__run_writes(e->schedule, run);
  for (size_t k = 0; k < o->output_count; k++)
    for (uint32_t i = 0; i < run->write_count; i++)
      if (writes[i] == o->outputs[k] && !o->output(o->context, e, writes[i])) e->has_enough = true;
}

/* Note results that the caller needs: the loss, the gradient norm, an overflow. */
static void note_results(tsr__executor *e, const tsr__kernel_run *run,
                         const tsr__kernel_args *args) {
  const tsr__execute_options *o = e->options;
  if (run->kernel == TSR__KERNEL_UNSCALE && first_number(&args->writes[1]) != 0)
    e->has_overflowed = true;
  const tsr__tensor_id *writes = tsr__run_writes(e->schedule, run);
  show_outputs(e, run);
  if (e->is_evaluating) {
    note_evaluation(e, run, args);
    return;
  }
  for (uint32_t i = 0; i < run->write_count; i++) {
    if (o->gradient_norm && writes[i] == o->gradient_norm)
      e->gradient_norm = first_number(&args->writes[i]);
    if (e->losses_seen < o->loss_count && writes[i] == o->losses[e->losses_seen]) {
      e->loss += e->last_loss;
      e->last_loss = 0;
      e->losses_seen++;
    }
    if (e->losses_seen && writes[i] == o->losses[e->losses_seen - 1])
      e->last_loss = first_number(&args->writes[i]); /* it may be added to later */
  }
}

/* Numbers whose exponent bits are all ones are infinite or NaN. */
static bool is_finite_32(const uint32_t *bits, uint64_t count, uint32_t exponent) {
  uint32_t found = 0;
  assert(bits || !count);
  for (uint64_t i = 0; i < count; i++) found |= (bits[i] & exponent) == exponent;
  return !found;
}

static bool is_finite_16(const uint16_t *bits, uint64_t count, uint32_t exponent) {
  uint32_t found = 0;
  for (uint64_t i = 0; i < count; i++) found |= (bits[i] & exponent) == exponent;
  return !found;
}

bool tsr__tensor_is_finite(const tsr__kernel_tensor *t) {
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

/* In backward, gradients are checked one at a time: only when a run of its update reads it is a gradient certain to
 * be in the right space. */
static void check_gradient(tsr__executor *e, const tsr__kernel_run *run) {
  const tsr__tensor_id *reads = tsr__run_reads(e->schedule, run);
  if (!isfinite(e->loss + e->last_loss)) e->has_diverged = true;
  for (uint32_t i = 0; i < run->read_count && e->checked_op != run->op && !e->has_diverged; i++) {
    uint32_t slot = tsr__schedule_tensor(e->schedule, reads[i])->slot;
    if (e->schedule->slots.items[slot].category != TSR_CATEGORY_GRADIENT) continue;
    tsr__kernel_tensor gradient = tsr__executor_tensor(e, reads[i]);
    e->checked_op = run->op;
    if (!tsr__tensor_is_finite(&gradient)) e->has_diverged = true;
  }
  e->has_updated |= !e->has_diverged;
}

/* Before the first update of a step: a loss or a gradient that is no finite number must not reach the
 * parameters. */
static void check_gradients(tsr__executor *e) {
  const tsr__schedule *schedule = e->schedule;
  e->is_checked = true;
  e->has_diverged = !isfinite(e->loss + e->last_loss);
  for (size_t i = 0; i < tsr__schedule_updated_count(schedule) && !e->has_diverged; i++) {
    tsr__tensor_id wide = i < schedule->states.count ? schedule->states.items[i].gradient : 0;
    tsr__kernel_tensor gradient = tsr__executor_tensor(
        e, wide ? wide : tsr__schedule_tensor(schedule, tsr__schedule_updated(schedule, i))->grad);
    if (gradient.data && !tsr__tensor_is_finite(&gradient)) e->has_diverged = true;
  }
}

uint64_t tsr__executed_sent_bytes(const tsr__schedule *schedule, bool is_updated) {
  uint64_t ranks = schedule->sharding.ranks;
  if (!ranks) return 0;
  uint64_t sum = tsr__schedule_sent_bytes(schedule) + (ranks - 1) * sizeof(finding);
  for (size_t i = 0; i < schedule->moves.count && !is_updated; i++) {
    const tsr__move *m = &schedule->moves.items[i];
    assert(!m->is_update || m->kind != TSR__MOVE_BROADCAST);
    if (m->is_update && !m->is_once) sum -= tsr__move_sent_bytes(schedule, m);
  }
  return sum;
}

/* What one rank has found counts for all. */
static void agree(tsr__executor *e) {
  tsr__comm *comm = e->options->comm;
  uint32_t ranks = tsr__comm_size(comm);
  const tsr__execute_options *o = e->options;
  finding mine = {.loss = e->loss + e->last_loss,
                  .has_overflowed = e->has_overflowed,
                  .has_diverged = e->has_diverged,
                  .wants_end = o->wants_end && o->wants_end(o->context)};
  e->has_agreed = true;
  e->findings[tsr__comm_rank(comm)] = mine;
  e->status = tsr__comm_wait(
      comm,
      tsr__comm_all_gather(comm, &e->findings[tsr__comm_rank(comm)], e->findings, sizeof mine),
      &e->failure);
  e->agreed_loss = 0;
  for (uint32_t i = 0; i < ranks; i++) {
    e->agreed_loss += e->findings[i].loss;
    if (e->findings[i].has_overflowed) e->has_overflowed = true;
    if (e->findings[i].has_diverged) e->has_diverged = true;
    if (e->findings[i].wants_end) e->is_interrupted = true;
  }
}

/* `run`: the update, or NULL for what follows from updates. */
static bool may_update(tsr__executor *e, const tsr__kernel_run *run) {
  if (e->is_given_up) return false;
  bool is_in_backward = e->schedule->updates_in_backward;
  if (is_in_backward && run) check_gradient(e, run);
  if (!is_in_backward && !e->is_checked && !e->has_overflowed) check_gradients(e);
  if (e->options->comm && !e->has_agreed) agree(e);
  return !e->has_overflowed && !e->has_diverged && e->status == 0;
}

/* Let the caller replace the first value of optimizer state by a saved one. */
static bool restore(tsr__executor *e, const tsr__kernel_run *run) {
  const tsr__execute_options *o = e->options;
  const tsr__tensor_id *writes = tsr__run_writes(e->schedule, run);
  if (!run->is_once || !o->restore) return true;
  for (uint32_t i = 0; i < run->write_count && e->status == 0; i++)
    if (writes[i]) e->status = o->restore(o->context, e, writes[i], &e->failure);
  return e->status == 0;
}

/* Whether nothing more is computed in this step. One whose updates have begun is finished. */
static bool gives_up(tsr__executor *e) {
  const tsr__execute_options *o = e->options;
  bool has_ended = e->is_checked || e->has_overflowed || e->has_updated; /* but for its updates */
  if (!e->is_given_up && o->gives_up && !o->comm && !has_ended)
    e->is_given_up = o->gives_up(o->context);
  return e->is_given_up;
}

/* An evaluation may be left at any time: it changes nothing. */
static bool leaves_evaluation(tsr__executor *e) {
  const tsr__execute_options *o = e->options;
  if (!e->is_evaluation_left && o->gives_up && !o->comm)
    e->is_evaluation_left = o->gives_up(o->context);
  return e->is_evaluation_left || e->is_given_up;
}

/* Set what tsr__executor_tensor returns while a function of the observer runs. */
static void look(tsr__executor *e, uint64_t step, const uint64_t *addresses) {
  e->addresses = addresses;
  if (e->options->is_placed) e->offsets = e->forecast->placement.offsets[step & 1];
}

/* Ranks take the batches of an evaluation in turn, so that the losses do not depend on the number of ranks. */
static const int64_t *next_batch(tsr__executor *e, uint32_t which, uint64_t step) {
  const tsr__execute_options *o = e->options;
  uint64_t *count = e->is_evaluating ? &e->evaluated : &e->micro_batch;
  if (which == 0) ++*count;
  assert(*count && (e->is_evaluating ? o->evaluation_batch != NULL : o->batch != NULL));
  if (!e->is_evaluating) return o->batch(o->context, step, *count - 1, which);
  uint64_t number = (*count - 1) * ranks_of(e->schedule) + e->schedule->sharding.rank;
  if (number >= o->evaluation_batches) number = o->evaluation_batches - 1;
  return o->evaluation_batch(o->context, number, which);
}

static bool execute_run(void *context, uint32_t index, uint64_t step, const uint64_t *addresses) {
  tsr__executor *e = context;
  const tsr__kernel_run *run = &e->schedule->runs.items[index];
  const tsr__kernel_row *row = tsr__kernel_row_of((tsr__kernel)run->kernel);
  tsr__kernel_args args = {.pool = e->options->pool, .library = e->options->library};
  look(e, step, addresses);
  if (gives_up(e) && !run->is_once) return e->status == 0;
  if (e->is_evaluating && leaves_evaluation(e)) return true;
  if ((run->is_once && step > 1) || (run->is_update && !may_update(e, run))) return e->status == 0;
  fill_args(e, run, &args);
  if (run->kernel == TSR__KERNEL_BATCH)
    args.batch = next_batch(e, (uint32_t)args.scalars[0], e->options->steps_before + step);
  assert(row->reference);
  const tsr__execute_options *o = e->options;
  tsr__kernel_fn *fast =
      o->uses_reference ? NULL : tsr__kernel_fast((tsr__kernel)run->kernel, e->isa);
  bool is_timed = o->run_ns && (step > 1 || o->steps == 1) && !e->is_evaluating;
  uint64_t before_ns = is_timed ? tsr__os_time_ns() : 0;
  (fast ? fast : row->reference)(&args);
  if (is_timed) o->run_ns[index] += tsr__os_time_ns() - before_ns;
  note_results(e, run, &args);
  return restore(e, run);
}

/* ---- moves ---- */

/* A move with a disk at one end has a thread of its own. */
static tsr__copier *copier_of(const tsr__executor *e, const tsr__move *move) {
  const tsr__slot *slots = e->schedule->slots.items;
  bool has_disk =
      slots[move->from].space == TSR__SPACE_DISK || slots[move->to].space == TSR__SPACE_DISK;
  return e->copiers[has_disk];
}

static tsr__ticket begin_shared(const tsr__executor *e, const tsr__move *move) {
  const tsr__schedule *schedule = e->schedule;
  const tsr__slot *slots = schedule->slots.items;
  uint64_t ranks = schedule->sharding.ranks, rank = schedule->sharding.rank;
  uint64_t part_bytes = slots[move->to].bytes / ranks;
  char *from = place_of(e, move->from), *to = place_of(e, move->to);
  assert(from && to);
  switch ((tsr__move_kind)move->kind) {
  case TSR__MOVE_GATHER:
    if (move->from == move->to) from += rank * part_bytes;
    return tsr__comm_all_gather(e->options->comm, from, to, part_bytes);
  case TSR__MOVE_REDUCE: {
    uint64_t each = tsr__dtype_bytes((tsr__dtype)move->dtype);
    tsr__reduction sum = {.from = from,
                          .to = to,
                          .staging = place_of(e, move->staging),
                          .count = slots[move->from].bytes / ranks / each,
                          .staging_count = slots[move->staging].bytes / ranks / each,
                          .dtype = (tsr__dtype)move->dtype};
    if (move->from == move->to) sum.to = to + rank * sum.count * each;
    return tsr__comm_reduce_scatter(e->options->comm, &sum);
  }
  case TSR__MOVE_BROADCAST:
    return tsr__comm_broadcast(e->options->comm, move->root, to, slots[move->to].bytes);
  case TSR__MOVE_COPY:
  case TSR__MOVE_KIND_COUNT: break;
  }
  return 0;
}

/* Start an operation of all ranks, or wait for it. */
static int execute_shared(tsr__executor *e, uint32_t index, bool is_start, uint64_t step) {
  const tsr__move *move = &e->schedule->moves.items[index];
  assert(e->options->comm);
  if (!is_start) return tsr__comm_wait(e->options->comm, e->tickets[index], &e->failure);
  bool is_left_out = (move->is_once && step > 1) || (move->is_update && !may_update(e, NULL));
  e->tickets[index] = is_left_out ? 0 : begin_shared(e, move);
  return e->status;
}

static void start_move(tsr__executor *e, uint32_t index, uint64_t step) {
  const tsr__move *move = &e->schedule->moves.items[index];
  const tsr__slot *slots = e->schedule->slots.items;
  bool is_left_out = (move->is_once && step > 1) || (move->is_update && !may_update(e, NULL));
  if (is_left_out || !slots[move->from].bytes) return;
  tsr__copy copy = {.to = place_of(e, move->to),
                    .from = place_of(e, move->from),
                    .size_bytes = (size_t)slots[move->from].bytes};
  uint32_t on_disk = copy.to ? move->from : move->to;
  if (!copy.to || !copy.from) copy.offset_bytes = e->addresses[on_disk] - e->file.origin;
  tsr__copier_start(copier_of(e, move), index, &copy);
}

static bool execute_move(void *context, uint32_t index, bool is_start, uint64_t step,
                         const uint64_t *addresses) {
  tsr__executor *e = context;
  look(e, step, addresses);
  if (e->schedule->moves.items[index].kind != TSR__MOVE_COPY)
    e->status = execute_shared(e, index, is_start, step);
  else if (is_start)
    start_move(e, index, step);
  else
    e->status =
        tsr__copier_wait(copier_of(e, &e->schedule->moves.items[index]), index, &e->failure);
  return e->status == 0;
}

/* ---- the walk ---- */

static void begin_step(tsr__executor *e, uint64_t step) {
  e->step_key = tsr__random_key(e->options->seed, e->options->steps_before + step);
  e->micro_batch = 0;
  e->losses_seen = 0;
  e->loss = e->last_loss = 0;
  e->gradient_norm = NAN;
  e->evaluated = e->evaluation_ns = 0;
  e->is_evaluation_left = e->has_enough = false;
  e->has_overflowed = e->has_diverged = e->is_checked = e->has_updated = e->has_agreed = false;
  e->checked_op = TSR_NONE;
}

static bool execute_memory(void *context, uint32_t device, const tsr_allocator_event *event) {
  tsr__executor *e = context;
  if (device == tsr__dry_place(1, TSR__SPACE_HOST)) return tsr__tensor_arena_event(&e->host, event);
  if (device == tsr__dry_place(1, TSR__SPACE_DISK)) {
    tsr__tensor_arena_account(&e->file, event);
    return true;
  }
  assert(device == 0);
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

/* The losses of all ranks' batches. */
static bool share_evaluation(tsr__executor *e) {
  uint64_t count = evaluations_of(e);
  tsr__comm *comm = e->options->comm;
  if (e->is_evaluation_left) e->evaluated = 0;
  assert(e->evaluated == count || e->is_evaluation_left || e->is_given_up);
  if (!comm) return true;
  e->status =
      tsr__comm_wait(comm,
                     tsr__comm_all_gather(comm, e->evaluations + tsr__comm_rank(comm) * count,
                                          e->evaluations, count * sizeof(double)),
                     &e->failure);
  return e->status == 0;
}

/* The mean over batches, in their order; NaN if the step had no evaluation. */
static double mean_evaluation(const tsr__executor *e) {
  uint64_t batches = e->options->evaluation_batches, ranks = ranks_of(e->schedule);
  double sum = 0;
  if (!e->evaluated) return NAN;
  for (uint64_t i = 0; i < batches; i++)
    sum += e->evaluations[i % ranks * evaluations_of(e) + i / ranks];
  return sum / (double)batches;
}

uint64_t tsr__evaluation_sent_bytes(const tsr__schedule *schedule, const tsr__execute_options *o) {
  uint64_t ranks = schedule->sharding.ranks, sum = 0;
  if (!ranks) return 0;
  for (size_t i = 0; i < schedule->moves.count; i++)
    if (schedule->moves.items[i].is_evaluation)
      sum += tsr__move_sent_bytes(schedule, &schedule->moves.items[i]);
  return tsr__evaluation_rounds(schedule, o) *
         (sum + (ranks - 1) * o->evaluation_loss_count * sizeof(double));
}

static bool execute_step(void *context, uint64_t step, const uint64_t *addresses) {
  tsr__executor *e = context;
  const tsr__execute_options *o = e->options;
  double count = (double)(o->loss_count ? o->loss_count : 1);
  if (o->comm && !e->has_agreed) agree(e);
  double loss = o->comm ? e->agreed_loss / (count * tsr__comm_size(o->comm))
                        : (e->loss + e->last_loss) / count;
  if (e->status) return false;
  assert(e->losses_seen == o->loss_count || e->is_given_up);
  look(e, step, addresses);
  if (!isfinite(loss)) e->has_diverged = true; /* the scaler may have noticed first */
  if (e->is_given_up) e->has_diverged = e->has_overflowed = false; /* which nobody knows */
  if (!e->has_overflowed && !e->has_diverged && !e->is_given_up) e->updates++;
  tsr__executed_step done = {.step = o->steps_before + step,
                             .loss = loss,
                             .is_skipped = e->has_overflowed,
                             .is_diverged = e->has_diverged,
                             .is_interrupted = e->is_interrupted,
                             .is_given_up = e->is_given_up,
                             .is_torn = e->has_diverged && e->has_updated,
                             .gradient_norm = e->gradient_norm,
                             .is_evaluated = e->evaluated > 0,
                             .evaluation = mean_evaluation(e),
                             .evaluation_s = (double)e->evaluation_ns * 1e-9,
                             .block_bytes = e->arena.block_bytes,
                             .peak_bytes = e->device->peak.totals.allocated_bytes,
                             .updates = e->updates};
  if (o->step && !o->step(o->context, e, &done)) e->is_done = true;
  begin_step(e, step + 1);
  return true;
}

static bool execute_has_enough(void *context) {
  const tsr__executor *e = context;
  return e->has_enough;
}

static bool execute_is_done(void *context, uint64_t step) {
  (void)step;
  return ((const tsr__executor *)context)->is_done;
}

/* ---- another observer of the same run ---- */

static const tsr__dry_observer *other(const void *context) {
  return ((const tsr__executor *)context)->options->observer;
}
static bool execute_phase(void *context, tsr__phase_kind phase, uint64_t step, bool is_start) {
  tsr__executor *e = context;
  const tsr__dry_observer *watching = other(context);
  if (watching && watching->phase && !watching->phase(watching->context, phase, step, is_start))
    return false;
  if (phase == TSR__PHASE_GENERATION) e->is_generating = is_start;
  if (phase != TSR__PHASE_EVALUATION) return true;
  e->is_evaluating = is_start;
  e->evaluation_ns = tsr__os_time_ns() - (is_start ? 0 : e->evaluation_ns);
  return is_start || share_evaluation(e);
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

enum { GRANULE = 2 << 20, SPARE = 256 << 20, KEPT_BYTES = 16 << 20, KEPT_BY_RANK_BYTES = 4 << 20 };

static bool note_reach(void *context, uint32_t device, const tsr_allocator_event *event) {
  tsr__reach *r = (tsr__reach *)context + device;
  assert(device < TSR__FORECAST_PLACES);
  if (event->action != TSR_ACTION_SEGMENT_ALLOC && event->action != TSR_ACTION_SEGMENT_MAP)
    return true;
  if (!r->first || event->addr < r->first) r->first = event->addr;
  if (event->addr + event->size > r->end) r->end = event->addr + event->size;
  return true;
}

static bool note_step(void *context, uint64_t step, const uint64_t *addresses) {
  tsr__reach *r = context;
  (void)addresses;
  for (size_t i = 0; i < TSR__FORECAST_PLACES; i++) {
    memmove(r[i].lately + 1, r[i].lately, sizeof r[i].lately - sizeof *r[i].lately);
    r[i].lately[0] = r[i].end;
    if (step <= TSR__WALKED_STEPS) r[i].ends[step] = r[i].end;
  }
  return true;
}

static tsr__dry_options dry_options(const tsr__schedule *schedule, const tsr__execute_options *o) {
  return (tsr__dry_options){.settings = o->settings,
                            .capacity_bytes = o->is_placed ? 0 : o->capacity_bytes,
                            .host_bytes = o->host_bytes,
                            .effort = o->effort,
                            .steps = o->steps,
                            .steps_before = o->steps_before,
                            .rounds = o->generation_rounds ? o->generation_rounds
                                                           : tsr__evaluation_rounds(schedule, o),
                            .evaluates_last = o->evaluates_last};
}

/* The places of all tensors. */
static int forecast_placed(const tsr__schedule *schedule, const tsr__execute_options *options,
                           tsr__forecast *out, tsr_error *error) {
  uint64_t capacity = options->capacity_bytes;
  char needed[TSR__FORMAT_BYTES], has[TSR__FORMAT_BYTES];
  int status = tsr__placement_solve(schedule, options->effort, &out->placement, error);
  if (status) return status;
  out->reserved_bytes = out->placement.total_bytes;
  if (!capacity || out->reserved_bytes <= capacity) return 0;
  return tsr__fail(error, TSR_ERROR_LIMIT, TSR_OFFSET_NONE,
                   "placed memory needs %s, and the run may use %s",
                   tsr__format_size(out->reserved_bytes, needed), tsr__format_size(capacity, has));
}

int tsr__forecast_run(const tsr__schedule *schedule, const tsr__execute_options *options,
                      tsr__forecast *out, tsr_error *error) {
  *out = (tsr__forecast){.steps_done = 0};
  tsr__dry_options dry = dry_options(schedule, options);
  tsr__dry_observer observer = {.context = out->reach, .memory = note_reach, .step = note_step};
  dry.observer = &observer;
  dry.spaces = out->spaces;
  dry.is_abridged = true;
  int status = tsr__dry_run(schedule, &dry, &out->device, &out->steps_done, error);
  out->reserved_bytes = out->device.peak_reserved_bytes;
  if (status == 0 && options->is_placed) status = forecast_placed(schedule, options, out, error);
  return status;
}

void tsr__forecast_release(tsr__forecast *forecast) {
  tsr__placement_release(&forecast->placement);
}

/* If segments come and go, each step needs as many new addresses as the one before, and one with an evaluation as many as the last
 * one that was walked. Also, the best free block for a request may differ from step to step, and after many steps one
 * more segment may be needed. Addresses cost nothing, so twice as many are taken. Returns what `steps` need, of which
 * `done` were measured; `evaluations` of them at most have one. */
static uint64_t addresses_of(const tsr__reach *r, uint64_t steps, uint64_t done,
                             uint64_t evaluations) {
  uint64_t more = 0, most = 0;
  for (size_t i = 0; done > TSR__WALKED_STEPS && i < TSR__WALKED_AFTER + 1; i++)
    if (r->lately[i] - r->lately[i + 1] > most) most = r->lately[i] - r->lately[i + 1];
  if (steps > done && done >= TSR__WALKED_STEPS)
    more = (steps - done) * (r->ends[TSR__WALKED_STEPS] - r->ends[TSR__WALKED_STEPS - 1]) +
           evaluations * most + (r->end - r->first) + SPARE;
  uint64_t size = (r->end - r->first + more + GRANULE - 1) / GRANULE * GRANULE;
  return size ? size : GRANULE;
}

static int reserve_arena(tsr__executor *e, tsr__tensor_arena *arena, const tsr__reach *r,
                         uint64_t size) {
  if (tsr__tensor_arena_init(arena, r->first, size)) return 0;
  return tsr__fail(e->error, TSR_ERROR_MEMORY, TSR_OFFSET_NONE,
                   "the system cannot reserve %llu bytes of address space",
                   (unsigned long long)size);
}

static int reserve_file(tsr__executor *e, const tsr__reach *r, uint64_t size) {
  const char *folder = e->options->folder;
  e->file.origin = r->first;
  if (!folder)
    return tsr__fail(e->error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                     "offloading to disk needs a folder: --offload-dir");
  int status = tsr__os_scratch_file(folder, size, &e->file_handle, e->error);
  if (status && e->error) {
    tsr_error cause = *e->error;
    (void)tsr__fail(e->error, (tsr_status)status, TSR_OFFSET_NONE, "%.120s: %s", folder,
                    cause.message);
  }
  return status;
}

/* Threads for the moves that there are. */
static int start_copiers(tsr__executor *e) {
  const tsr__schedule *t = e->schedule;
  for (size_t i = 0; i < t->moves.count; i++) {
    bool has_disk = t->slots.items[t->moves.items[i].from].space == TSR__SPACE_DISK ||
                    t->slots.items[t->moves.items[i].to].space == TSR__SPACE_DISK;
    if (e->copiers[has_disk] || t->moves.items[i].kind != TSR__MOVE_COPY) continue;
    e->copiers[has_disk] = tsr__copier_new((uint32_t)t->moves.count, e->file_handle);
    if (!e->copiers[has_disk]) return tsr__fail_memory(e->error);
  }
  return 0;
}

/* All of placed memory at once. The allocator model goes on to decide what is reported, for the books. */
static int place(tsr__executor *e) {
  uint64_t total = e->forecast->placement.total_bytes;
  uint64_t size = (total + GRANULE - 1) / GRANULE * GRANULE;
  tsr_allocator_event all = {
      .action = TSR_ACTION_SEGMENT_ALLOC, .addr = ARENA_ORIGIN, .size = total};
  if (tsr__tensor_arena_init(&e->arena, ARENA_ORIGIN, size ? size : GRANULE) &&
      (!total || tsr__tensor_arena_event(&e->arena, &all)))
    return 0;
  return tsr__fail(e->error, TSR_ERROR_MEMORY, TSR_OFFSET_NONE,
                   "the system cannot provide %llu bytes", (unsigned long long)total);
}

/* Reserve what `steps` need: for tensors on the device, on the host, and on the disk. */
static int reserve(tsr__executor *e, uint64_t steps) {
  const tsr__forecast *f = e->forecast;
  const tsr__reach *host = &f->reach[tsr__dry_place(1, TSR__SPACE_HOST)];
  const tsr__reach *disk = &f->reach[tsr__dry_place(1, TSR__SPACE_DISK)];
  uint64_t done = f->steps_done, interval = e->schedule->evaluation_interval;
  uint64_t evaluations = interval ? steps / interval + 1 : 0;
  int status = e->options->is_placed
                   ? place(e)
                   : reserve_arena(e, &e->arena, &f->reach[0],
                                   addresses_of(&f->reach[0], steps, done, evaluations));
  /* A rank also has the memory of MPI, and others on the same machine. */
  uint64_t kept = e->options->comm ? KEPT_BY_RANK_BYTES : KEPT_BYTES;
  if (status == 0 && !e->options->is_placed && !e->schedule->has_leaks &&
      !tsr__tensor_arena_keep(&e->arena, f->device.peak.totals.allocated_bytes + kept))
    status = tsr__fail_memory(e->error);
  if (status == 0 && host->end)
    status = reserve_arena(e, &e->host, host, addresses_of(host, steps, done, evaluations));
  if (status == 0 && disk->end)
    status = reserve_file(e, disk, addresses_of(disk, steps, done, evaluations));
  return status ? status : start_copiers(e);
}

static int prepare_evaluations(tsr__executor *e) {
  uint64_t count = evaluations_of(e) * ranks_of(e->schedule);
  assert(!count || e->options->evaluation_batches);
  e->evaluations = count ? TSR__NEW_ARRAY(double, count) : NULL;
  return e->evaluations || !count ? 0 : tsr__fail_memory(e->error);
}

static int prepare_ranks(tsr__executor *e) {
  if (!e->options->comm) return 0;
  assert(tsr__comm_size(e->options->comm) == e->schedule->sharding.ranks &&
         tsr__comm_rank(e->options->comm) == e->schedule->sharding.rank);
  e->tickets = TSR__NEW_ARRAY(tsr__ticket, e->schedule->moves.count + 1);
  e->findings = TSR__NEW_ARRAY(finding, tsr__comm_size(e->options->comm));
  return e->tickets && e->findings ? 0 : tsr__fail_memory(e->error);
}

/* Stop the copying threads, note their figures, and release all memory. */
static void close_memory(tsr__executor *e, tsr__execution *out) {
  const tsr__tensor_arena *spaces[] = {&e->host, &e->file};
  for (size_t i = 0; i < TSR__DRY_SPACES; i++) {
    tsr__copier_stop(e->copiers[i]);
    if (e->copiers[i]) out->copies[i] = tsr__copier_account(e->copiers[i]);
    tsr__copier_free(e->copiers[i]);
    out->space_usable_bytes[i] = spaces[i]->usable_peak_bytes;
    out->space_block_bytes[i] = spaces[i]->block_peak_bytes;
  }
  if (e->options->comm) /* no rank may still read memory that is released */
    (void)tsr__comm_wait(e->options->comm, tsr__comm_begun(e->options->comm), NULL);
  out->usable_peak_bytes = e->arena.usable_peak_bytes;
  out->block_peak_bytes = e->arena.block_peak_bytes;
  tsr__tensor_arena_release(&e->arena);
  tsr__tensor_arena_release(&e->host);
  if (e->file_handle >= 0) tsr__os_close(e->file_handle);
}

/* The walk, once memory is reserved. */
static int walk(tsr__executor *e, tsr__execution *out, tsr_error *error) {
  const tsr__dry_observer *watched = e->options->observer;
  tsr__dry_observer observer = {.context = e,
                                .phase = execute_phase,
                                .memory = execute_memory,
                                .loaded = execute_loaded,
                                .run = execute_run,
                                .move = execute_move,
                                .step = execute_step,
                                .has_enough = execute_has_enough,
                                .is_done = execute_is_done};
  tsr__dry_options dry = dry_options(e->schedule, e->options);
  if (watched) {
    observer.op = watched->op ? pass_op : NULL;
    observer.event = watched->event ? pass_event : NULL;
    observer.end = watched->end ? pass_end : NULL;
  }
  dry.observer = &observer;
  dry.spaces = out->spaces;
  return tsr__dry_run(e->schedule, &dry, &out->executed, &out->steps_done, error);
}

static int execute(tsr__executor *e, tsr__execution *out, tsr_error *error) {
  const tsr__execute_options *o = e->options;
  out->predicted = e->forecast->device;
  memcpy(out->predicted_spaces, e->forecast->spaces, sizeof out->predicted_spaces);
  out->bound_bytes = e->forecast->placement.bound_bytes;
  int status = reserve(e, o->steps ? o->steps : 1);
  if (status == 0) status = prepare_ranks(e);
  if (status == 0) status = prepare_evaluations(e);
  if (status == 0) status = walk(e, out, error);
  if (e->status) {
    status = e->status;
    if (error) *error = e->failure;
  }
  return status;
}

int tsr__execute(const tsr__schedule *schedule, const tsr__execute_options *options,
                 tsr__execution *out, tsr_error *error) {
  tsr__optimizer_numbers numbers = options->numbers;
  tsr__forecast own = {.steps_done = 0};
  char nothing[8] = {0};
  tsr__executor e = {.schedule = schedule,
                     .options = options,
                     .numbers = &numbers,
                     .error = error,
                     .file_handle = -1,
                     .nothing = nothing,
                     .device = &out->executed,
                     .forecast = options->forecast ? options->forecast : &own,
                     .updates = options->updates_before};
  e.isa = tsr__isa_best();
  if (options->isa_limit && options->isa_limit - 1 < (unsigned)e.isa)
    e.isa = (tsr__isa)(options->isa_limit - 1);
  *out = (tsr__execution){0};
  int status = options->forecast ? 0 : tsr__forecast_run(schedule, options, &own, error);
  if (status == 0) status = execute(&e, out, error);
  if (status && options->comm && options->failed) options->failed(options->context, error);
  close_memory(&e, out);
  tsr__forecast_release(&own);
  tsr__free(e.tickets);
  tsr__free(e.findings);
  tsr__free(e.evaluations);
  return status;
}
