/* train.c - tsr_train: runs a model on data in the executor.
 *
 *   model, options ─► program ─► schedule (one step) ─► executor ─► steps
 *   data ─► batches ──────────────────────────────────────┘ └─► recorder ─► snapshot
 *
 * Weights, positions in the data and dropout use random numbers with separate keys, which are made from the seed,
 * so that changing one does not change the others. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/effort.h"
#include "base/format.h"
#include "base/hash.h"
#include "base/machine.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/os.h"
#include "base/pool.h"
#include "exec/profile.h"
#include "exec/rates.h"
#include "exec/record.h"
#include "exec/run.h"
#include "exec/simulate.h"
#include "kernels/fast.h"
#include "kernels/random.h"
#include "models/program.h"
#include "tessera/unstable/training.h"
#include "torch/torch.h"
#include "train/batches.h"
#include "train/fill.h"
#include "train/ops.h"
#include "train/processes.h"
#include "train/products.h"
#include "train/rising.h"
#include "train/shards.h"
#include "train/state.h"

/* Keys for uses of the seed; a step uses its number, from 1. */
#define KEY_WEIGHTS UINT64_MAX
#define KEY_PLACES  (UINT64_MAX - 1)

enum { CLOCKED = 256 };

/* How long the last CLOCKED steps took. */
typedef struct step_clock {
  uint64_t began_ns; /* 0: the first step has not ended */
  size_t count;      /* of steps that were timed */
  double steps_s[CLOCKED];
} step_clock;

typedef struct training {
  const tsr_simulate_options *run;
  const tsr_train_options *options;
  tsr__schedule schedule;
  tsr__program program;
  tsr__recorder *recorder;
  tsr__thread_pool *pool;
  tsr__products products;
  char computed_by[128]; /* of tsr_train_step */
  tsr__batches batches;
  tsr__validation validation;
  uint64_t data_hash;
  int data_status; /* from reading the next step's tokens */
  tsr_error data_error;
  tsr__weight_list weights;
  tsr__saved saved; /* what the run starts from */
  tsr_train_state state;
  uint32_t base_sum; /* of tsr_train_state */
  uint64_t weights_key;
  uint64_t parameters_filled;
  tsr__forecast forecast;
  uint64_t predicted_peak_bytes;
  uint64_t *run_ns; /* by run, if ops are requested */
  tsr__comm *comm;  /* to the other ranks, or NULL; owned by `options->processes`, if set */
  char *room;       /* for a parameter of which this rank keeps a part */
  int rank_status;  /* of the ranks' exchange between steps */
  tsr_error rank_error;
  uint64_t sent_before;     /* bytes sent before the step */
  tsr__execute_options how; /* of the prediction, and of the run */
  tsr__rising rising;
  step_clock clock;
  char warning[256]; /* that the loss rises */
  tsr_train_rank took;
  bool has_failed;      /* and the other ranks know */
  bool is_not_to_blame; /* another rank failed first, and reports the reason */
  const tsr_train_options
      *asked;        /* the caller's: of all ranks that are threads, the first rank's */
  tsr_effort effort; /* of everything before the first step */
  tsr_training out;
} training;

/* The learning rate of a step. */
static double rate_of(const training *t, uint64_t step) {
  const tsr_train_options *o = t->options;
  double full = o->learning_rate > 0 ? o->learning_rate : 1e-3, pi = 3.14159265358979323846;
  double least = o->least_rate > 0 ? o->least_rate : 0;
  uint64_t warm = o->warmup_steps, steps = t->run->steps;
  if (step <= warm) return full * (double)step / (double)warm;
  double done = (double)(step - warm - 1) / (double)(steps > warm ? steps - warm : 1);
  switch (o->schedule) {
  case TSR_TRAIN_CONSTANT: break;
  case TSR_TRAIN_COSINE: return least + (full - least) * 0.5 * (1 + cos(pi * done));
  case TSR_TRAIN_LINEAR: return least + (full - least) * (1 - done);
  }
  return full;
}

/* Set the path that a failure is about, for the caller's message. */
static void blame(const training *t, const char *path) {
  if (t->options->subject) *t->options->subject = path;
}

static const char *path_of_weights(const training *t) {
  return t->options->resume ? t->options->resume : t->options->weights;
}

/* ---- weights ---- */

typedef struct filler {
  training *t;
  const tsr__executor *executor;
} filler;

/* Compute the whole parameter, then copy this rank's part of it. */
static void fill_part(const filler *f, tsr__tensor_id tensor, const tsr__initial_value *initial,
                      uint64_t key) {
  const tsr__schedule *schedule = &f->t->schedule;
  size_t i = 0;
  while (schedule->parameters.items[i] != tensor) i++;
  assert(i < schedule->parameters.count && f->t->room);
  tsr__tensor_id owned = tsr__schedule_updated(schedule, schedule->sharding.pieces.items[i].unit);
  tsr__kernel_tensor part = tsr__executor_tensor(f->executor, owned);
  tsr__kernel_tensor whole = {.data = f->t->room,
                              .dtype = part.dtype,
                              .layout = tsr__layout_dense(tsr__schedule_shape(schedule, tensor))};
  tsr__fill_tensor(&whole, f->t->pool, initial, key);
  tsr__shards_put(schedule, i, &whole, &part);
}

static void fill(void *context, tsr__tensor_id tensor, const tsr__initial_value *initial) {
  const filler *f = context;
  bool is_parameter = tsr__schedule_tensor(&f->t->schedule, tensor)->is_parameter;
  bool is_read = is_parameter && tsr__saved_has(&f->t->saved, &f->t->weights, tensor);
  /* Buffers differ between rule books; random weights do not. */
  uint64_t key =
      tsr__random_key(f->t->weights_key, is_parameter ? ++f->t->parameters_filled : UINT64_MAX);
  if (is_read) return;
  if (is_parameter && f->t->schedule.sharding.stage == 3)
    fill_part(f, tensor, initial, key);
  else
    tsr__fill(f->executor, tensor, initial, key);
}

static int load(void *context, const tsr__executor *executor, tsr_error *error) {
  training *t = context;
  filler f = {t, executor};
  tsr__shards_clear(&t->schedule, executor);
  tsr__program_initials(&t->program, fill, &f);
  tsr__free(t->room); /* it may be as large as the embedding, and steps need the memory */
  t->room = NULL;
  int status = tsr__saved_load(&t->saved, &t->program, &t->weights, executor, error);
  if (status == 0 && t->run->lora_rank) {
    t->base_sum = tsr__saved_base_sum(&t->weights, executor);
    status = tsr__saved_check_base(&t->saved, t->base_sum, error);
  }
  if (status) blame(t, path_of_weights(t));
  return status;
}

static int restore(void *context, const tsr__executor *executor, tsr__tensor_id tensor,
                   tsr_error *error) {
  training *t = context;
  int status = tsr__saved_restore(&t->saved, &t->program, &t->weights, executor, tensor, error);
  if (status) blame(t, path_of_weights(t));
  return status;
}

/* Open the weights or the saved run to start from. */
static int open_saved(training *t, tsr_error *error) {
  const tsr_train_options *o = t->options;
  int status = 0;
  blame(t, path_of_weights(t));
  if (o->resume) status = tsr__saved_open(o->resume, &t->saved, error);
  if (status == 0 && o->resume && !t->run->lora_rank != !t->saved.adapters.file_count)
    status = tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                       "the run in %.200s %s, so it is resumed %s --lora", o->resume,
                       t->run->lora_rank ? "trained the model itself" : "trained adapters",
                       t->run->lora_rank ? "without" : "with");
  if (status == 0 && o->weights && !o->resume)
    status = tsr__saved_open_weights(o->weights, &t->saved, error);
  else if (status == 0 && o->weights && t->run->lora_rank)
    status = tsr__weight_files_open(o->weights, &t->saved.weights, error);
  t->out.steps_before = t->saved.steps;
  if (status == 0 && t->saved.steps >= t->run->steps)
    status =
        tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                  "the run in %.200s has already made %llu steps, and %llu in total are requested: "
                  "give --steps a larger number",
                  o->resume, (unsigned long long)t->saved.steps, (unsigned long long)t->run->steps);
  if (status == 0) blame(t, NULL);
  return status;
}

/* Before the run, list the names of the weights and check that the files contain them. */
static int check_saved(training *t, tsr_error *error) {
  int status = tsr__weights_list(&t->program, &t->weights, error);
  if (status) return status;
  status = tsr__saved_check(&t->saved, &t->program, &t->weights, error);
  if (status) blame(t, path_of_weights(t));
  return status;
}

/* ---- data ---- */

/* Refuse other data: a resumed run would give other results. */
static int check_data(const training *t, tsr_error *error) {
  const tsr__saved *saved = &t->saved;
  uint64_t count = t->batches.tokens.count;
  const char *remedy = "to resume with it anyway, name it with --data";
  if (!saved->data_tokens || t->options->accepts_other_data) return 0;
  if (saved->data_tokens != count)
    return tsr__fail(error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE,
                     "not the data of the saved run: %llu tokens instead of %llu; %s",
                     (unsigned long long)count, (unsigned long long)saved->data_tokens, remedy);
  if (saved->data_hash != t->data_hash)
    return tsr__fail(
        error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE,
        "not the data of the saved run: the same number of tokens, but different ones; %s", remedy);
  return 0;
}

/* Refuse a text for trained weights whose tokens are words: its bytes are other tokens to them, and training on these would undo what
 * they have learned, while the loss falls. */
static int check_tokens(const training *t, tsr__token_format format, tsr_error *error) {
  enum { BYTES_MOST = 512 }; /* 256, and those that stand for no byte, of models that read bytes */
  const tsr_train_options *o = t->options;
  uint64_t vocabulary = t->program.model->vocabulary;
  if (!o->weights || o->resume || o->tokens != TSR_TRAIN_TOKENS_AUTO || vocabulary <= BYTES_MOST ||
      format != TSR__TOKENS_BYTES)
    return 0;
  return tsr__fail(error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE,
                   "a text, of which each byte would be a token; this trained model has its own "
                   "tokenizer, of %llu tokens: name it with --tokenizer, give a file of their "
                   "numbers (--tokens u16 or u32), or --tokens bytes if it was trained on bytes",
                   (unsigned long long)vocabulary);
}

static tsr__token_format format_of_text(tsr_train_tokens type) {
  return type == TSR_TRAIN_TOKENS_AUTO ? TSR__TOKENS_BYTES : (tsr__token_format)type;
}

static int open_data(training *t, tsr_error *error) {
  const tsr_train_options *o = t->options;
  tsr__batches *b = &t->batches;
  uint64_t vocabulary = t->program.model->vocabulary;
  *b = (tsr__batches){.sequence = t->program.sequence,
                      .batch = t->program.batch,
                      .accumulate = t->program.accumulate,
                      .ranks = t->run->ranks,
                      .rank = t->run->rank,
                      .key = tsr__random_key(o->seed, KEY_PLACES),
                      .is_sequential = o->order == TSR_TRAIN_SEQUENTIAL};
  blame(t, o->data);
  int status = o->text ? tsr__tokens_in_memory(o->text, o->text_bytes, format_of_text(o->tokens),
                                               vocabulary, &b->tokens, error)
                       : tsr__tokens_open(o->data, (tsr__token_format)o->tokens, vocabulary,
                                          &b->tokens, error);
  if (status == 0) status = check_tokens(t, b->tokens.format, error);
  if (status == 0) status = tsr__tokens_hash(&b->tokens, &t->data_hash, error);
  if (status == 0) status = check_data(t, error);
  if (status == 0) status = tsr__batches_init(b, error);
  if (status == 0) status = tsr__batches_read(b, t->saved.steps + 1, error);
  if (status == 0) blame(t, NULL);
  return status;
}

static int open_validation(training *t, tsr_error *error) {
  const tsr_train_options *o = t->options;
  tsr__validation *v = &t->validation;
  if (!o->validation) return 0;
  *v = (tsr__validation){.sequence = t->program.sequence,
                         .batch = t->program.evaluation.batch,
                         .batches = o->validation_batches ? o->validation_batches : 20};
  blame(t, o->validation);
  uint64_t vocabulary = t->program.model->vocabulary;
  tsr_train_tokens type = o->validation_tokens;
  int status =
      o->validation_text
          ? tsr__tokens_in_memory(o->validation_text, o->validation_text_bytes,
                                  format_of_text(type), vocabulary, &v->tokens, error)
          : tsr__tokens_open(o->validation, (tsr__token_format)type, vocabulary, &v->tokens, error);
  if (status == 0) status = check_tokens(t, v->tokens.format, error);
  if (status == 0) status = tsr__validation_read(v, error);
  if (status == 0) blame(t, NULL);
  return status;
}

static const int64_t *validation_batch(void *context, uint64_t number, uint32_t which) {
  const training *t = context;
  return which == 2 ? NULL : tsr__validation_at(&t->validation, number);
}

static const int64_t *batch(void *context, uint64_t step, uint64_t micro_batch, uint32_t which) {
  const training *t = context;
  (void)step;
  return which == 2 ? NULL : tsr__batches_at(&t->batches, micro_batch);
}

/* Read the next step's tokens, so that a file which fails ends the run between two steps. */
static void read_ahead(training *t, uint64_t step) {
  if (step == t->run->steps) return;
  t->data_status = tsr__batches_read(&t->batches, step + 1, &t->data_error);
  if (t->data_status) blame(t, t->options->data);
}

static uint64_t tokens_of_step(const training *t) {
  uint64_t ranks = t->run->ranks ? t->run->ranks : 1;
  return t->program.batch * t->program.sequence * t->program.accumulate * ranks;
}

static void note_evaluation(training *t, const tsr__executed_step *step) {
  t->out.validation_loss = step->evaluation;
  if (t->out.best_validation_loss <= step->evaluation) return;
  t->out.best_validation_loss = step->evaluation;
  t->out.best_validation_step = step->step;
}

static void note_step(training *t, const tsr__executed_step *step) {
  if (!t->out.steps_done++) t->out.first_loss = step->loss;
  t->out.last_loss = step->loss;
  t->out.token_count += tokens_of_step(t);
  t->out.data_bytes = t->batches.filled_bytes + t->validation.filled_bytes;
  if (step->is_evaluated) note_evaluation(t, step);
  read_ahead(t, step->step);
}

/* Decide on rank 0 what follows a step; the other ranks help to save it. */
static bool end_step(training *t, bool goes_on) {
  if (!t->comm) return goes_on;
  bool is_first = tsr__comm_rank(t->comm) == 0;
  const tsr__executor *executor = t->state.executor;
  t->rank_status =
      is_first ? tsr__shards_end(t->comm, goes_on, &t->rank_error)
               : tsr__shards_serve(t->comm, &t->schedule, executor, &goes_on, &t->rank_error);
  t->sent_before = tsr__comm_sent_bytes(t->comm);
  return goes_on && !t->rank_status;
}

/* The set of instructions that kernels use. */
static tsr_train_isa isa_of(const training *t) {
  tsr_train_isa best = (tsr_train_isa)(tsr__isa_best() + 1), asked = t->options->isa;
  return asked != TSR_TRAIN_ISA_BEST && asked < best ? asked : best;
}

/* Whether the loss rises, and what helps; NULL if it does not. */
static const char *warn(training *t, const tsr__executed_step *step) {
  const tsr_train_options *o = t->options;
  char what[96];
  if (!t->rising.count) t->rising.guessing = log((double)t->program.model->vocabulary);
  tsr__rising before = t->rising;
  switch (tsr__rising_add(&t->rising, step->step, step->loss)) {
  case TSR__RISE_NONE: return NULL;
  case TSR__RISE_RISEN:
    (void)snprintf(what, sizeof what, "rises, %.3f on average now, from %.3f around step %llu",
                   t->rising.mean, before.least, (unsigned long long)before.least_step);
    break;
  case TSR__RISE_ABOVE_GUESSING:
    (void)snprintf(what, sizeof what, "is %.3f, worse than guessing (%.3f)", step->loss,
                   before.guessing);
    break;
  }
  (void)snprintf(
      t->warning, sizeof t->warning, "step %llu: the loss %s; try a smaller --lr than %g%s%s",
      (unsigned long long)step->step, what, rate_of(t, o->warmup_steps + 1),
      o->warmup_steps ? "" : ", or --warmup", t->run->clip_norm > 0 ? "" : ", or --clip 1");
  return t->warning;
}

/* Between steps: what reports and saves take is not a step's. The first step is not timed, as elsewhere. */
static void clock_step(training *t, const tsr__executed_step *step) {
  step_clock *c = &t->clock;
  if (c->began_ns)
    c->steps_s[c->count++ % CLOCKED] =
        (double)(tsr__os_time_ns() - c->began_ns) * 1e-9 - step->evaluation_s;
}

static bool see_step(void *context, const tsr__executor *executor, const tsr__executed_step *step) {
  training *t = context;
  clock_step(t, step);
  if (t->comm) t->took.sent_bytes += tsr__comm_sent_bytes(t->comm) - t->sent_before;
  bool is_undone = step->is_diverged || step->is_given_up;
  t->out.is_diverged = step->is_diverged;
  t->state = (tsr_train_state){.program = &t->program,
                               .weights = &t->weights,
                               .executor = executor,
                               .comm = t->comm,
                               .steps = step->step - is_undone,
                               .updates = step->updates,
                               .data_tokens = t->batches.tokens.count,
                               .data_hash = t->data_hash,
                               .base_sum = t->base_sum};
  if (!is_undone) note_step(t, step);
  tsr_train_step seen = {.step = step->step,
                         .steps = t->run->steps,
                         .loss = step->loss,
                         .is_skipped = step->is_skipped,
                         .gradient_norm = step->gradient_norm,
                         .validation_loss = is_undone ? (double)NAN : step->evaluation,
                         .validation_seconds = step->evaluation_s,
                         .token_count = tokens_of_step(t),
                         .is_diverged = step->is_diverged,
                         .learning_rate = rate_of(t, step->step),
                         .allocated_bytes = step->block_bytes,
                         .peak_bytes = step->peak_bytes,
                         .parameter_count = t->out.parameter_count,
                         .trained_count = t->out.trained_count,
                         .rank_count = t->comm ? tsr__comm_size(t->comm) : 1,
                         .predicted_peak_bytes = t->predicted_peak_bytes,
                         .predicted_reserved_bytes = t->out.predicted_reserved_bytes,
                         .products = t->products.chosen,
                         .products_text = t->products.text,
                         .isa = isa_of(t),
                         .best_isa = (tsr_train_isa)(tsr__isa_best() + 1),
                         .computed_by = t->computed_by,
                         .state = step->is_torn ? NULL : &t->state,
                         .warning = is_undone ? NULL : warn(t, step),
                         .is_interrupted = step->is_interrupted,
                         .is_given_up = step->is_given_up,
                         .is_last = step->step == t->run->steps || is_undone || t->data_status ||
                                    step->is_interrupted};
  bool goes_on = !t->options->step || t->options->step(t->options->context, &seen);
  tsr__executor_numbers(executor)->learning_rate = rate_of(t, step->step + 1);
  bool is_updated = !step->is_skipped && !is_undone;
  t->took.predicted_sent_bytes += tsr__executed_sent_bytes(&t->schedule, is_updated);
  if (step->is_evaluated)
    t->took.predicted_sent_bytes += tsr__evaluation_sent_bytes(&t->schedule, &t->how);
  goes_on = end_step(t, goes_on);
  t->clock.began_ns = tsr__os_time_ns();
  return goes_on && !is_undone && !t->data_status;
}

/* ---- checks before the run ---- */

static uint64_t steps_to_do(const training *t) {
  assert(t->saved.steps < t->run->steps);
  return t->run->steps - t->saved.steps;
}

/* What decides about memory, and more of the same when the run begins. */
static void choose_run(training *t) {
  t->how = (tsr__execute_options){.settings = t->run->settings,
                                  .capacity_bytes = t->run->capacity_bytes,
                                  .is_placed = t->run->memory == TSR_MEMORY_PLACED,
                                  .effort = &t->effort,
                                  .steps = steps_to_do(t),
                                  .steps_before = t->saved.steps,
                                  .evaluation_losses = t->program.evaluation_losses.items,
                                  .evaluation_loss_count = t->program.evaluation_losses.count,
                                  .evaluation_batches = t->validation.batches,
                                  .evaluates_last = true};
}

/* Predict the peaks of the run. */
static int predict(training *t, tsr_error *error) {
  const tsr__forecast *f = &t->forecast;
  choose_run(t);
  int status = tsr__forecast_run(&t->schedule, &t->how, &t->forecast, error);
  if (status) return status;
  t->predicted_peak_bytes = f->device.peak.totals.allocated_bytes;
  t->out.predicted_peak_bytes = f->device.peak.totals.allocated_bytes;
  t->out.predicted_reserved_bytes = f->reserved_bytes;
  t->out.bound_bytes = f->placement.bound_bytes;
  t->out.predicted_host = tsr__space_peak_of(&f->spaces[0]);
  t->out.predicted_disk = tsr__space_peak_of(&f->spaces[1]);
  t->out.predicted_data_bytes = (t->run->accumulate ? t->run->accumulate : 1) *
                                (t->run->batch ? t->run->batch : 1) * t->run->sequence *
                                sizeof(int64_t);
  t->out.predicted_data_bytes +=
      t->validation.batches * t->validation.batch * t->validation.sequence * sizeof(int64_t);
  uint64_t here = t->options->launch == TSR_TRAIN_THREADS ? t->run->ranks : 1;
  uint64_t needs = t->out.predicted_reserved_bytes + t->out.predicted_host.reserved_bytes;
  return tsr__machine_check(needs > UINT64_MAX / here ? UINT64_MAX : needs * here, error);
}

/* ---- starting and running ---- */

static int choose_products(training *t, tsr_error *error) {
  tsr_simulate_dtype dtype = t->run->dtype;
  uint64_t flops = t->schedule.flops, steps = steps_to_do(t);
  bool is_half = dtype == TSR_SIMULATE_BF16 || dtype == TSR_SIMULATE_AUTOCAST_BF16;
  tsr_train_products wanted = t->options->products;
  if (t->comm && wanted == TSR_TRAIN_PRODUCTS_AUTO)
    wanted = TSR_TRAIN_PRODUCTS_OWN; /* all ranks must use the same kernels */
  return tsr__products_choose(
      &(tsr__products_question){.wanted = wanted,
                                .is_half = is_half,
                                .is_possible = is_half || dtype == TSR_SIMULATE_FP32,
                                .is_limited = isa_of(t) <= (tsr_train_isa)tsr__isa_best(),
                                .width = t->program.model->width,
                                .flops = flops > UINT64_MAX / steps ? UINT64_MAX : flops * steps,
                                .pool = t->pool},
      &t->products, error);
}

static void note_computed_by(training *t) {
  const tsr__library *library = t->products.library;
  int length = snprintf(t->computed_by, sizeof t->computed_by, "%s kernels",
                        tsr__isa_name((tsr__isa)(isa_of(t) - 1)));
  if (library && length > 0)
    (void)snprintf(t->computed_by + length, sizeof t->computed_by - (size_t)length,
                   ", products by %s (%#x)", tsr__library_name(library),
                   (unsigned)tsr__library_isa(library));
}

/* The threads of this rank: an equal share of the processors, unless the options set a number. */
static unsigned threads_of(const training *t) {
  unsigned all = tsr__os_processor_count();
  if (t->options->threads || !t->comm) return t->options->threads;
  return all / tsr__comm_size(t->comm) ? all / tsr__comm_size(t->comm) : 1;
}

static int prepare(training *t, tsr_error *error) {
  t->weights_key = tsr__random_key(t->options->seed, KEY_WEIGHTS);
  t->out.parameter_count = t->schedule.parameter_count;
  t->out.trained_count = t->schedule.trained_count;
  t->out.step_flops = t->schedule.flops;
  if (t->options->ops || t->options->measures) {
    t->run_ns = TSR__NEW_ARRAY(uint64_t, t->schedule.runs.count);
    if (!t->run_ns) return tsr__fail_memory(error);
  }
  t->pool = tsr__thread_pool_new(threads_of(t)); /* NULL is allowed */
  if (t->schedule.sharding.stage == 3) {
    uint64_t most = 0;
    for (size_t i = 0; i < t->schedule.sharding.pieces.count; i++)
      if (t->schedule.sharding.pieces.items[i].count > most)
        most = t->schedule.sharding.pieces.items[i].count;
    t->room = TSR__NEW_ARRAY(char, most * sizeof(float));
    if (!t->room) return tsr__fail_memory(error);
  }
  int status = choose_products(t, error);
  note_computed_by(t);
  if (status || !t->options->is_recorded) return status;
  t->recorder = tsr__recorder_new(
      &t->schedule, &(tsr__record_options){.settings = &t->run->settings,
                                           .optimizer = tsr__optimizer_class(t->run->optimizer),
                                           .has_categories = t->run->categories,
                                           .plan_hash = t->run->plan_hash});
  return t->recorder ? 0 : tsr__fail_memory(error);
}

/* The value of an option: a negative number means 0, and 0 means the default. */
static double number_or(double given, double fallback) {
  return given < 0 ? 0 : given > 0 ? given : fallback;
}

static double speed_of(const tsr__copy_account *copies) {
  return copies->copied_ns ? 1e9 * (double)copies->size_bytes / (double)copies->copied_ns : 0;
}

/* Report what was offloaded, and how long copying it took. */
static void note_spaces(training *t, const tsr__execution *done) {
  t->out.host = tsr__space_peak_of(&done->spaces[0]);
  t->out.disk = tsr__space_peak_of(&done->spaces[1]);
  t->out.host_copy_bytes_per_second = speed_of(&done->copies[0]);
  t->out.disk_copy_bytes_per_second = speed_of(&done->copies[1]);
  for (size_t i = 0; i < TSR__DRY_SPACES; i++) {
    t->out.copied_bytes += (double)done->copies[i].size_bytes;
    t->out.copy_wait_seconds += (double)done->copies[i].waited_ns * 1e-9;
  }
}

/* Profile the executed peak. */
static int profile(training *t, const tsr__dry_device *executed, tsr_error *error) {
  bool is_placed = t->run->memory == TSR_MEMORY_PLACED;
  tsr__dry_options dry = {.settings = t->run->settings,
                          .capacity_bytes = is_placed ? 0 : t->run->capacity_bytes,
                          .steps_before = t->saved.steps,
                          .rounds = tsr__evaluation_rounds(&t->schedule, &t->how),
                          .evaluates_last = true};
  int status = tsr__memory_profile_compute(&t->schedule, &dry, executed, &t->out.profile, error);
  if (status) return status;
  tsr_memory_profile *p = t->out.profile;
  if (p->peak.step) p->peak.step += t->saved.steps;
  for (size_t i = 0; i < TSR_MEMORY_PHASES; i++)
    if (p->phases[i].peak.step) p->phases[i].peak.step += t->saved.steps;
  return 0;
}

/* Measure how many bytes per second the processor copies, for runs that copied nothing. */
static double measure_copies(void) {
  enum { BYTES = 32 << 20 };
  char *from = TSR__NEW_ARRAY(char, BYTES), *to = TSR__NEW_ARRAY(char, BYTES);
  uint64_t best = UINT64_MAX;
  for (int i = 0; from && to && i < 3; i++) {
    uint64_t before = tsr__os_time_ns();
    memcpy(to, from, BYTES);
    from[i] = to[BYTES - 1]; /* so that the compiler cannot remove the copy */
    uint64_t took = tsr__os_time_ns() - before;
    if (i && took && took < best) best = took; /* the first round touches the memory */
  }
  tsr__free(from);
  tsr__free(to);
  return best == UINT64_MAX ? 0 : BYTES / ((double)best * 1e-9);
}

/* Measure the time of kernels and copies. */
static int measure(training *t, tsr_error *error) {
  tsr__machine_rates rates;
  char title[96];
  unsigned threads = t->options->threads ? t->options->threads : tsr__os_processor_count();
  if (!t->options->measures || !t->out.timed_steps) return 0;
  tsr__rates_measure(&t->schedule, t->run_ns, t->out.timed_steps, t->clock.steps_s,
                     t->clock.count < CLOCKED ? t->clock.count : CLOCKED, &rates);
  rates.link_bytes_per_s = t->out.host_copy_bytes_per_second;
  if (rates.link_bytes_per_s <= 0) rates.link_bytes_per_s = measure_copies();
  rates.disk_bytes_per_s = t->out.disk_copy_bytes_per_second;
  (void)snprintf(title, sizeof title, "%u %s, %s", threads, threads == 1 ? "thread" : "threads",
                 tsr__isa_name(tsr__isa_best()));
  t->out.rates = tsr__rates_new(&rates, title);
  return t->out.rates ? 0 : tsr__fail_memory(error);
}

/* Report this rank's failure to the other ranks, once. */
static void fail_rank(void *context, const tsr_error *error) {
  training *t = context;
  const char *reason = error && error->message[0] ? error->message : "it is out of memory";
  if (!t->comm || t->has_failed) return;
  t->has_failed = true;
  if (t->options->failed) t->options->failed(t->options->context, tsr__comm_rank(t->comm), reason);
  tsr__comm_fail(t->comm, reason);
}

/* A hash of everything that all ranks must have in common: the schedule, the numbers of the optimizer, the data and
 * the saved run. Ranks that differ would wait for each other forever, or train different models. */
static uint64_t hash_of_run(const training *t) {
  const tsr_train_options *o = t->options;
  const double numbers[] = {o->learning_rate, o->least_rate, o->weight_decay, o->beta_1,
                            o->beta_2,        o->epsilon,    o->momentum};
  const uint64_t counts[] = {t->run->steps,
                             t->program.batch,
                             t->program.sequence,
                             t->program.accumulate,
                             t->schedule.moves.count,
                             t->schedule.sharding.stage,
                             t->out.parameter_count,
                             t->saved.steps,
                             t->data_hash,
                             t->run->eval_steps,
                             t->run->no_decay,
                             t->run->nesterov,
                             t->validation.batches,
                             t->validation.batch,
                             o->seed,
                             o->warmup_steps,
                             (uint64_t)o->schedule,
                             (uint64_t)o->order,
                             (uint64_t)o->products,
                             (uint64_t)tsr__isa_best(),
                             (uint64_t)o->isa};
  uint64_t hash = tsr__hash_u64(tsr__comm_size(t->comm)), bits;
  for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) hash = tsr__mix(hash, counts[i]);
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    memcpy(&bits, &numbers[i], sizeof bits);
    hash = tsr__mix(hash, bits);
  }
  for (size_t i = 0; i < t->schedule.moves.count; i++) { /* what ranks do together */
    const tsr__move *m = &t->schedule.moves.items[i];
    hash = tsr__mix(hash, m->kind);
    hash = tsr__mix(hash, tsr__move_sent_bytes(&t->schedule, m));
  }
  return hash;
}

/* What each rank sends to the others before the first step. */
typedef struct beginning {
  uint64_t hash; /* of its run, if it can start */
  int64_t status;
} beginning;

/* The first rank that cannot start, or whose run differs from rank 0's; the number of ranks if all can start. */
static uint32_t first_failure(const beginning *all, uint32_t ranks) {
  uint32_t first = 0;
  while (first < ranks && !all[first].status) first++;
  if (first < ranks) return first;
  first = 0;
  while (first < ranks && all[first].hash == all[0].hash) first++;
  return first;
}

/* Start on all ranks or on none; `status` is this rank's. */
static int agree_to_begin(training *t, int status, tsr_error *error) {
  uint32_t ranks = tsr__comm_size(t->comm), rank = tsr__comm_rank(t->comm);
  beginning *all = TSR__NEW_ARRAY(beginning, ranks);
  if (!all) return tsr__fail_memory(error);
  all[rank] = (beginning){status ? 0 : hash_of_run(t), status};
  tsr_error cause = {.offset = TSR_OFFSET_NONE};
  int sent =
      tsr__comm_wait(t->comm, tsr__comm_all_gather(t->comm, &all[rank], all, sizeof *all), &cause);
  uint32_t first = first_failure(all, ranks);
  bool fails = first < ranks, is_other = fails && !all[first].status;
  tsr__free(all);
  t->sent_before = tsr__comm_sent_bytes(t->comm);
  if (sent && !status) {
    if (error) *error = cause;
    return sent;
  }
  t->has_failed = fails; /* all ranks know */
  t->is_not_to_blame = fails && first != rank;
  if (t->options->has_begun) *t->options->has_begun = !fails;
  bool is_process = t->options->launch == TSR_TRAIN_PROCESSES;
  if (t->is_not_to_blame && is_process && t->options->is_said) *t->options->is_said = true;
  if (status || !fails) return status;
  if (is_other)
    return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                     "rank %u does not have the run of rank 0: all ranks need the same options, "
                     "model, data and kind of processor",
                     first);
  return tsr__fail(error, TSR_ERROR_IO, TSR_OFFSET_NONE, "rank %u cannot start", first);
}

/* Exchange the memory figures of all ranks. */
static int share_results(training *t, tsr_error *error) {
  uint32_t ranks = tsr__comm_size(t->comm), rank = tsr__comm_rank(t->comm);
  assert(rank < ranks && ranks == t->schedule.sharding.ranks);
  t->out.rank = rank;
  t->out.rank_count = ranks;
  t->took.predicted_peak_bytes = t->out.predicted_peak_bytes;
  t->took.peak_bytes = t->out.peak_bytes;
  t->took.predicted_host_bytes = t->out.predicted_host.allocated_bytes;
  t->took.host_bytes = t->out.host.allocated_bytes;
  tsr_train_rank *all = TSR__NEW_ARRAY(tsr_train_rank, ranks);
  if (!all) return tsr__fail_memory(error);
  int status =
      tsr__comm_wait(t->comm, tsr__comm_all_gather(t->comm, &t->took, all, sizeof *all), error);
  for (uint32_t i = 0; status == 0 && i < ranks && i < t->options->rank_room; i++)
    t->options->ranks[i] = all[i];
  tsr__free(all);
  return status;
}

static bool wants_end(void *context) {
  const tsr_train_options *o = ((const training *)context)->options;
  return o->wants_end && o->wants_end(o->context);
}

static bool gives_up(void *context) {
  const tsr_train_options *o = ((const training *)context)->options;
  return o->gives_up && o->gives_up(o->context);
}

static void choose_execution(training *t) {
  const tsr_train_options *o = t->options;
  tsr__execute_options *how = &t->how;
  how->effort = NULL; /* of the prediction */
  how->folder = o->offload_folder;
  how->updates_before = t->saved.updates;
  how->seed = o->seed;
  how->numbers = (tsr__optimizer_numbers){.learning_rate = rate_of(t, t->saved.steps + 1),
                                          .beta_1 = number_or(o->beta_1, 0.9),
                                          .beta_2 = number_or(o->beta_2, 0.999),
                                          .epsilon = number_or(o->epsilon, 1e-8),
                                          .decay = number_or(o->weight_decay, 0.01),
                                          .momentum = number_or(o->momentum, 0.9)};
  how->losses = t->program.losses.items;
  how->loss_count = t->program.losses.count;
  how->gradient_norm = t->program.gradient_norm;
  how->pool = t->pool;
  how->library = t->products.library;
  how->isa_limit = (unsigned)o->isa;
  how->comm = t->comm;
  how->failed = fail_rank;
  how->forecast = &t->forecast;
  how->observer = t->recorder ? tsr__recorder_observer(t->recorder) : NULL;
  how->context = t;
  how->run_ns = t->run_ns;
  how->load = load;
  how->restore = t->saved.training_path ? restore : NULL;
  how->batch = batch;
  how->evaluation_batch = validation_batch;
  how->wants_end = wants_end;
  how->gives_up = gives_up;
  how->step = see_step;
}

static int execute(training *t, tsr_error *error) {
  const tsr_train_options *o = t->options;
  tsr__execution done;
  choose_execution(t);
  int status = tsr__execute(&t->schedule, &t->how, &done, error);
  if (status) return status;
  if (t->data_status || t->rank_status) {
    if (error) *error = t->data_status ? t->data_error : t->rank_error;
    return t->data_status ? t->data_status : t->rank_status;
  }
  t->out.is_out_of_memory = done.executed.is_out_of_memory;
  if (t->out.is_out_of_memory)
    t->out.out_of_memory = tsr__public_moment(&t->schedule, &done.executed.out_of_memory);
  t->out.oom_request_bytes = done.executed.oom_request_bytes;
  t->out.timed_steps = t->out.steps_done > 1 ? t->out.steps_done - 1 : t->out.steps_done;
  if (t->options->ops) t->out.op_count = tsr__list_ops(&t->schedule, t->run_ns, t->options->ops);
  t->out.peak_bytes = done.executed.peak.totals.allocated_bytes;
  t->out.reserved_bytes = done.usable_peak_bytes;
  note_spaces(t, &done);
  status = measure(t, error);
  if (status == 0 && o->is_profiled) status = profile(t, &done.executed, error);
  if (status || !t->recorder) return status;
  return tsr__recorder_finish(t->recorder, &t->out.snapshot, error);
}

/* Record the step, once the files that it needs are open. */
static int record(training *t, const tsr_model *model, tsr__tracer *tracer, tsr_error *error) {
  tsr__tape tape;
  bool has_tracer = tracer || !t->options->is_recorded;
  bool ok = tsr__tape_init(&tape, &tsr__book_own, tracer) && has_tracer;
  int status = ok ? 0 : tsr__fail_memory(error);
  tape.effort = &t->effort;
  if (status == 0) status = tsr__program_init(&t->program, model, t->run, NULL, &tape, error);
  if (status == 0) status = open_saved(t, error);
  if (status == 0) status = open_data(t, error);
  if (status == 0) status = open_validation(t, error);
  if (status == 0)
    status = tsr__program_record(&t->program, t->options->is_recorded, &t->schedule, error);
  tsr__tape_release(&tape);
  return status;
}

/* A progress function of efforts. */
static bool may_begin(void *context, uint64_t done_units, uint64_t total_units) {
  const tsr_train_options *asked = ((const training *)context)->asked;
  (void)done_units, (void)total_units;
  return !asked->wants_end || !asked->wants_end(asked->context);
}

/* Everything before the first step. */
static int begin(training *t, const tsr_model *model, tsr__tracer *tracer, tsr_error *error) {
  const tsr_effort_options limits = {
      .struct_bytes = sizeof limits, .progress = may_begin, .progress_context = t};
  int status = tsr__effort_init(&t->effort, &limits, error);
  if (status == 0) status = tsr__model_check_computed(model, error);
  if (status == 0 && t->run->module_count)
    status = tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                       "the plan names modules, which only a step graph has");
  if (status == 0 && t->run->optimizer > TSR_OPTIMIZER_SGD_MOMENTUM)
    status = tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                       "only adamw, in its forms, and sgd train; other optimizers are simulated");
  if (status == 0 && t->run->quantize)
    status = tsr__fail(error, TSR_ERROR_UNSUPPORTED, TSR_OFFSET_NONE,
                       "weights in 4 bits (--quantize) are only simulated, not trained with");
  if (status == 0) status = record(t, model, tracer, error);
  if (status == 0) status = check_saved(t, error);
  if (status == 0) status = predict(t, error);
  if (status == 0) status = prepare(t, error);
  bool is_first = !t->comm || tsr__comm_rank(t->comm) == 0;
  if (status == 0 && is_first && t->options->ready)
    status = t->options->ready(t->options->context, tsr__saved_bytes(&t->program, &t->weights));
  return status;
}

static int train(training *t, const tsr_model *model, tsr_error *error) {
  tsr__tracer *tracer = t->options->is_recorded ? tsr__torch_new(model) : NULL;
  t->out.rank_count = 1;
  int status = begin(t, model, tracer, error);
  if (t->comm) status = agree_to_begin(t, status, error);
  if (status == 0) status = execute(t, error);
  if (status == 0 && t->comm) status = share_results(t, error);
  if (status) fail_rank(t, error);
  if (!t->options->processes) tsr__comm_free(t->comm);
  tsr__products_release(&t->products);
  tsr__thread_pool_free(t->pool);
  tsr__recorder_free(t->recorder);
  tsr__free(t->run_ns);
  tsr__free(t->room);
  tsr__batches_release(&t->batches);
  tsr__validation_release(&t->validation);
  tsr__saved_release(&t->saved);
  TSR__VECTOR_FREE(&t->weights);
  tsr__program_release(&t->program);
  tsr__forecast_release(&t->forecast);
  tsr__schedule_release(&t->schedule);
  tsr__torch_free(tracer);
  return status;
}

/* ---- ranks ---- */

/* A thread that is a rank. */
typedef struct member {
  training *t;
  tsr_simulate_options run;
  tsr_train_options options;
  const tsr_model *model;
  tsr__os_thread *thread;
  tsr_error error;
  int status;
} member;

static training *new_training(const tsr_simulate_options *run, const tsr_train_options *options) {
  training *t = TSR__NEW(training);
  if (!t) return NULL;
  t->run = run;
  t->options = t->asked = options;
  t->batches.tokens.handle = t->validation.tokens.handle = -1;
  t->out.validation_loss = t->out.best_validation_loss = (double)NAN;
  t->saved.training.handle = -1;
  return t;
}

static void run_member(void *context) {
  member *m = context;
  m->status = train(m->t, m->model, &m->error);
}

/* Pass a thread's snapshot to the caller, if there is room for it. */
static void give_snapshot(const training *first, uint32_t rank, training *t) {
  const tsr_train_options *o = first->options;
  assert(rank);
  if (o->snapshots && rank < o->rank_room)
    o->snapshots[rank] = t->out.snapshot;
  else
    tsr_snapshot_free(t->out.snapshot);
}

/* Prepare the ranks. Rank 0 is the caller's thread, and reports for all. */
static int prepare_members(member *all, uint32_t ranks, training *first, const tsr_model *model,
                           tsr__hub *hub, tsr_error *error) {
  int status = 0;
  for (uint32_t i = 0; status == 0 && i < ranks; i++) {
    member *m = &all[i];
    *m = (member){.t = first, .run = *first->run, .options = *first->options, .model = model};
    m->run.rank = i;
    m->error.offset = TSR_OFFSET_NONE;
    if (i) {
      m->options.step = NULL;
      m->options.failed = NULL;
      m->options.ops = NULL;
      m->options.subject = NULL;
      m->options.is_said = m->options.has_begun = NULL;
      m->options.wants_end = NULL; /* rank 0 decides when the run ends */
      m->options.rank_room = 0;
      m->options.is_profiled = m->options.measures = false;
      if (!m->options.snapshots) m->options.is_recorded = false;
      m->options.snapshots = NULL;
      m->t = new_training(&m->run, &m->options);
      if (m->t) m->t->asked = first->options;
    }
    status = m->t ? tsr__threads_comm_new(hub, i, &m->t->comm, error) : tsr__fail_memory(error);
  }
  return status;
}

static int train_members(member *all, uint32_t ranks, const tsr_model *model, tsr_error *error) {
  bool ok = true;
  for (uint32_t i = 1; ok && i < ranks; i++) {
    all[i].thread = tsr__os_thread_start(run_member, &all[i]);
    ok = all[i].thread != NULL;
  }
  if (!ok) tsr__comm_fail(all[0].t->comm, "no more threads can be started");
  int status = train(all[0].t, model, error);
  for (uint32_t i = 1; i < ranks; i++)
    if (all[i].thread) tsr__os_thread_join(all[i].thread);
  bool is_clear = status && !all[0].t->is_not_to_blame;
  for (uint32_t i = 1; !is_clear && i < ranks; i++) {
    if (!all[i].status || all[i].t->is_not_to_blame) continue;
    is_clear = true;
    status = all[i].status;
    if (error) *error = all[i].error;
  }
  return status;
}

static int train_threads(training *first, const tsr_model *model, tsr_error *error) {
  uint32_t ranks = (uint32_t)first->run->ranks;
  tsr__hub *hub = tsr__hub_new(ranks);
  member *all = TSR__NEW_ARRAY(member, ranks);
  int status =
      hub && all ? prepare_members(all, ranks, first, model, hub, error) : tsr__fail_memory(error);
  bool is_ready = status == 0;
  if (is_ready) status = train_members(all, ranks, model, error);
  for (uint32_t i = 0; all && i < ranks; i++) {
    if (!is_ready && all[i].t) tsr__comm_free(all[i].t->comm);
    if (i && all[i].t) give_snapshot(first, i, all[i].t);
    if (i) tsr__free(all[i].t);
  }
  tsr__free(all);
  tsr__hub_free(hub);
  return status;
}

/* Train as one of several processes. */
static int train_process(training *t, tsr_simulate_options *run, const tsr_model *model,
                         tsr_error *error) {
  const tsr_processes *processes = t->options->processes;
  uint64_t wanted = run->ranks;
  run->rank = tsr_processes_rank(processes);
  run->ranks = tsr_processes_count(processes);
  if (wanted && wanted != run->ranks)
    return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                     "%llu ranks are requested, but the launcher has started %llu",
                     (unsigned long long)wanted, (unsigned long long)run->ranks);
  t->comm = tsr__processes_comm(processes);
  return train(t, model, error);
}

static int train_all(training *t, tsr_simulate_options *run, const tsr_model *model,
                     tsr_error *error) {
  switch (t->options->launch) {
  case TSR_TRAIN_ALONE: break;
  case TSR_TRAIN_THREADS: return train_threads(t, model, error);
  case TSR_TRAIN_PROCESSES: return train_process(t, run, model, error);
  }
  return train(t, model, error);
}

static int check_launch(const tsr_simulate_options *run, const tsr_train_options *options,
                        tsr_error *error) {
  if (run->replicas > 1)
    return tsr__fail(error, TSR_ERROR_UNSUPPORTED, TSR_OFFSET_NONE,
                     "replicas of what ranks share are only simulated and planned: train sums in "
                     "the order of all "
                     "ranks, so that all stages have the same weights");
  if (options->launch == TSR_TRAIN_ALONE && run->ranks)
    return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                     "ranks need to be launched: as threads, or as processes");
  if ((options->launch == TSR_TRAIN_PROCESSES) != (options->processes != NULL))
    return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                     "processes belong to TSR_TRAIN_PROCESSES");
  if (options->launch == TSR_TRAIN_THREADS && (!run->ranks || run->ranks > TSR__COMM_RANKS))
    return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                     "the number of ranks must be 1 to %d, not %llu", TSR__COMM_RANKS,
                     (unsigned long long)run->ranks);
  return 0;
}

/* What a run that failed later on had already made. */
static void drop_results(tsr_training *out) {
  tsr_memory_profile_free(out->profile);
  tsr_rates_free(out->rates);
  tsr_snapshot_free(out->snapshot);
}

int tsr_train(const tsr_model *model, const tsr_simulate_options *run,
              const tsr_train_options *options, tsr_training *out, tsr_error *error) {
  tsr_simulate_options own_run;
  tsr_train_options own;
  int status = tsr__options_read(run, &own_run, sizeof own_run, error);
  if (status == 0) status = tsr__options_read(options, &own, sizeof own, error);
  if (status) return status;
  if (!own_run.steps) own_run.steps = 1;
  if (own_run.eval_steps && !own.validation)
    return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                     "there is no data to evaluate on: --val");
  if (own.validation) {
    if (!own_run.eval_steps) own_run.eval_steps = 100;
    if (own_run.eval_steps > own_run.steps) own_run.eval_steps = own_run.steps;
  }
  if (!own.text && !own.data)
    return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE, "there is no data to train on");
  if (own_run.leak && own_run.memory == TSR_MEMORY_PLACED)
    return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                     "placed memory has room for one step: a leak needs caching memory");
  if (own.is_recorded && own_run.memory == TSR_MEMORY_PLACED)
    return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                     "placed memory has no events to record: a snapshot needs caching memory");
  status = check_launch(&own_run, &own, error);
  training *t = status ? NULL : new_training(&own_run, &own);
  if (!t) return status ? status : tsr__fail_memory(error);
  status = train_all(t, &own_run, model, error);
  if (status == 0)
    *out = t->out;
  else
    drop_results(&t->out);
  tsr__free(t);
  return status;
}
