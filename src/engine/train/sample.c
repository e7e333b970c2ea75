/* sample.c - tsr_sample: a model continues a prompt.
 *
 *   last tokens of the text ─► batch ─► forward pass (one step of the executor) ─► logits
 *        ▲                                                                            │ of the last token
 *        └───────────────────────────── the next token ◄─ chosen at random ◄─────────┘
 *
 * A step has a fixed number of positions. Positions after the end of the text contain token 0, which no earlier token
 * attends to. If the text is longer, its beginning is left out. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/options.h"
#include "base/pool.h"
#include "base/sort.h"
#include "exec/run.h"
#include "exec/simulate.h"
#include "kernels/random.h"
#include "tessera/unstable/training.h"
#include "train/fill.h"
#include "train/state.h"

enum { LONGEST_CONTEXT = 1024 };

typedef struct candidate {
  double logit;
  int64_t token;
} candidate;

typedef struct sampling {
  const tsr_sample_options *options;
  tsr_model model; /* without dropout, cache and added modules */
  tsr__schedule schedule;
  tsr__program program;
  tsr__weight_list weights;
  tsr__saved saved;
  int64_t *text;  /* the prompt and the tokens added */
  int64_t *batch; /* the tokens of a step */
  candidate *candidates;
  uint64_t length, context; /* length: tokens of the text; context: positions of a step */
  uint64_t key;
} sampling;

/* ---- choosing ---- */

/* Sort by likelihood, the most likely first; the smaller token wins ties. */
static int compare(const void *a, const void *b) {
  const candidate *x = a, *y = b;
  if (x->logit != y->logit) return x->logit > y->logit ? -1 : 1;
  return (x->token > y->token) - (x->token < y->token);
}

/* The fewest candidates, the most likely first, that weigh at least `wanted` together; `*total` becomes what they weigh. */
static uint64_t most_probable(const candidate *c, uint64_t count, double wanted, double *total) {
  uint64_t kept = 0;
  double sum = 0;
  while (kept < count && (!kept || sum < wanted)) sum += c[kept++].logit;
  *total = sum;
  return kept;
}

static int64_t choose(const sampling *s, uint64_t count) {
  const tsr_sample_options *o = s->options;
  candidate *c = s->candidates;
  double total = 0, random;
  tsr__sort(c, (size_t)count, sizeof *c, compare);
  if (!(o->temperature > 0)) return c[0].token;
  if (o->top_k && o->top_k < count) count = o->top_k;
  double most = c[0].logit;
  for (uint64_t i = 0; i < count; i++) {
    c[i].logit = exp((c[i].logit - most) / o->temperature);
    total += c[i].logit;
  }
  if (o->top_p > 0 && o->top_p < 1) count = most_probable(c, count, o->top_p * total, &total);
  tsr__random_uniform(s->key, s->length, 1, &random);
  double left = random * total;
  for (uint64_t i = 0; i + 1 < count; i++) {
    if (left < c[i].logit) return c[i].token;
    left -= c[i].logit;
  }
  return c[count - 1].token;
}

/* Read the logits after the last token as candidates. */
static void read_logits(sampling *s, const tsr__executor *executor) {
  tsr__kernel_tensor logits = tsr__executor_tensor(executor, s->program.logits);
  uint64_t vocabulary = s->model.vocabulary;
  uint64_t row = (s->length < s->context ? s->length : s->context) - 1;
  assert(logits.data && logits.dtype == TSR__DTYPE_F32 && tsr__layout_is_dense(logits.layout));
  const float *from = (const float *)logits.data + logits.layout.offset + row * vocabulary;
  for (uint64_t i = 0; i < vocabulary; i++)
    s->candidates[i] = (candidate){isnan(from[i]) ? -HUGE_VAL : from[i], (int64_t)i};
}

/* ---- the executor's callbacks ---- */

typedef struct filler {
  sampling *s;
  const tsr__executor *executor;
} filler;

/* Set only buffers; parameters come from the files. */
static void set_constant(void *context, tsr__tensor_id tensor, const tsr__initial_value *initial) {
  const filler *f = context;
  if (tsr__schedule_tensor(&f->s->schedule, tensor)->is_parameter) return;
  tsr__fill(f->executor, tensor, initial, 0);
}

static int load(void *context, const tsr__executor *executor, tsr_error *error) {
  sampling *s = context;
  tsr__program_initials(&s->program, set_constant, &(filler){s, executor});
  return tsr__saved_load(&s->saved, &s->program, &s->weights, executor, error);
}

static const int64_t *batch(void *context, uint64_t step, uint64_t micro_batch, uint32_t which) {
  sampling *s = context;
  uint64_t first = s->length > s->context ? s->length - s->context : 0;
  (void)step, (void)micro_batch, (void)which;
  memset(s->batch, 0, (size_t)s->context * sizeof *s->batch);
  memcpy(s->batch, s->text + first, (size_t)(s->length - first) * sizeof *s->batch);
  return s->batch;
}

static bool see_step(void *context, const tsr__executor *executor, const tsr__executed_step *step) {
  sampling *s = context;
  (void)step;
  read_logits(s, executor);
  int64_t token = choose(s, s->model.vocabulary);
  s->text[s->length++] = token;
  return !s->options->token || s->options->token(s->options->token_context, token);
}

/* ---- tsr_sample ---- */

static int check(const tsr_model *model, const tsr_sample_options *o, tsr_error *error) {
  if (!o->weights)
    return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE, "there are no weights");
  if (!o->prompt_count || !o->prompt)
    return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                     "the prompt is empty: there is nothing to continue");
  int status = tsr__model_check_computed(model, error);
  if (status) return status;
  for (size_t i = 0; i < o->prompt_count; i++)
    if (o->prompt[i] < 0 || (uint64_t)o->prompt[i] >= model->vocabulary)
      return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                       "token %lld of the prompt is not in the model's vocabulary of %llu tokens",
                       (long long)o->prompt[i], (unsigned long long)model->vocabulary);
  return 0;
}

/* The number of positions: as many as the text will fill, up to the longest context. */
static uint64_t places(const tsr_model *model, const tsr_sample_options *o) {
  uint64_t most = model->positions < LONGEST_CONTEXT ? model->positions : LONGEST_CONTEXT;
  uint64_t all = o->prompt_count + o->count - 1;
  if (o->context) most = o->context < model->positions ? o->context : model->positions;
  return all < most ? all : most;
}

static int allocate(sampling *s, tsr_error *error) {
  const tsr_sample_options *o = s->options;
  s->text = TSR__NEW_ARRAY(int64_t, o->prompt_count + o->count);
  s->batch = TSR__NEW_ARRAY(int64_t, s->context);
  s->candidates = TSR__NEW_ARRAY(candidate, s->model.vocabulary);
  if (!s->text || !s->batch || !s->candidates) return tsr__fail_memory(error);
  memcpy(s->text, o->prompt, o->prompt_count * sizeof *o->prompt);
  s->length = o->prompt_count;
  return 0;
}

static int record(sampling *s, tsr_simulate_options *run, tsr_error *error) {
  tsr__tape tape;
  int status = tsr__tape_init(&tape, &tsr__book_own, NULL) ? 0 : tsr__fail_memory(error);
  if (status == 0) status = tsr__program_init(&s->program, &s->model, run, NULL, &tape, error);
  if (status == 0) status = tsr__program_record_infer(&s->program, &s->schedule, error);
  tsr__tape_release(&tape);
  return status;
}

static int prepare(sampling *s, tsr_simulate_options *run, tsr_error *error) {
  const tsr_sample_options *o = s->options;
  if (o->subject) *o->subject = o->weights;
  int status = tsr__saved_open_weights(o->weights, &s->saved, error);
  if (status) return status;
  if (o->subject) *o->subject = NULL;
  status = record(s, run, error);
  if (status == 0) status = tsr__weights_list(&s->program, &s->weights, error);
  if (status) return status;
  status = tsr__saved_check(&s->saved, &s->program, &s->weights, error);
  if (status && o->subject) *o->subject = o->weights;
  return status ? status : allocate(s, error);
}

static int execute(sampling *s, tsr_error *error) {
  const tsr_sample_options *o = s->options;
  tsr__thread_pool *pool = tsr__thread_pool_new(o->threads); /* NULL is allowed */
  tsr__execution done;
  tsr__execute_options how = {.steps = o->count,
                              .pool = pool,
                              .context = s,
                              .load = load,
                              .batch = batch,
                              .step = see_step};
  int status = tsr__execute(&s->schedule, &how, &done, error);
  tsr__thread_pool_free(pool);
  if (status == TSR_ERROR_IO || status == TSR_ERROR_FORMAT || status == TSR_ERROR_UNSUPPORTED)
    if (o->subject) *o->subject = o->weights;
  return status;
}

static void release(sampling *s) {
  tsr__saved_release(&s->saved);
  TSR__VECTOR_FREE(&s->weights);
  tsr__program_release(&s->program);
  tsr__schedule_release(&s->schedule);
  tsr__free(s->text);
  tsr__free(s->batch);
  tsr__free(s->candidates);
  tsr__free(s);
}

int tsr_sample(const tsr_model *model, const tsr_sample_options *options, tsr_error *error) {
  tsr_sample_options own;
  int status = tsr__options_read(options, &own, sizeof own, error);
  if (status == 0) status = check(model, &own, error);
  if (status || !own.count) return status;
  sampling *s = TSR__NEW(sampling);
  if (!s) return tsr__fail_memory(error);
  s->options = &own;
  s->model = *model;
  s->model.module_count = 0;
  s->model.uses_cache = false;
  s->model.embedding_dropout = s->model.residual_dropout = s->model.attention_dropout = 0;
  s->saved.training.handle = -1;
  s->context = places(model, &own);
  s->key = tsr__random_key(own.seed, UINT64_MAX - 2);
  tsr_simulate_options run = {.batch = 1, .sequence = s->context, .book = TSR_BOOK_OWN};
  status = prepare(s, &run, error);
  if (status == 0) status = execute(s, error);
  release(s);
  return status;
}
