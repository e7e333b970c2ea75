/* sample.c - tsr_sample: a model continues a prompt.
 *
 *   prompt ─► forward pass ─► logits of its last token ─► the next token ◄─ chosen at random
 *                  │                                          │
 *             key-value cache ◄──── forward pass of it ◄──────┘ ◄─┐
 *                  └──────────────────► logits ─► the next token ─┘
 *
 * That is one step of the executor, with one round of its generation phase for each token. Once the text is longer than
 * what the model sees, every position changes, and the cache is of no more use: a second run computes all of the last
 * tokens again for each new one. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/machine.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/os.h"
#include "base/pool.h"
#include "exec/run.h"
#include "exec/simulate.h"
#include "kernels/random.h"
#include "tessera/unstable/training.h"
#include "train/fill.h"
#include "train/state.h"

enum { LONGEST_CONTEXT = 1024 };
#define MOST_TOKENS (UINT64_C(1) << 31) /* of a text */

typedef struct candidate {
  double logit, weight; /* weight: its probability, times a number that all have in common */
  int64_t token;
} candidate;

typedef struct sampling {
  const tsr_sample_options *options;
  tsr_model model; /* without dropout, transformers' cache and added modules */
  tsr__saved saved;
  tsr__thread_pool *pool; /* or NULL */
  int64_t *text;          /* the prompt and the tokens added */
  candidate *candidates;
  uint64_t length, context; /* tokens: of the text; and those that the model sees at most */
  uint64_t left;            /* tokens to add */
  uint64_t key;
  bool is_over; /* the caller wants no more */
  uint64_t begun_ns, first_ns;
  tsr_sample_account account;
  /* The run under way. */
  tsr__schedule schedule;
  tsr__program program;
  tsr__weight_list weights;
  uint64_t sequence; /* tokens of its first pass */
} sampling;

/* ---- choosing ---- */

/* Whether `a` is more likely than `b`; the smaller token wins ties. */
static bool is_before(const candidate *a, const candidate *b) {
  return a->logit != b->logit ? a->logit > b->logit : a->token < b->token;
}

/* Move item `i` of a heap down to its place: each item is before the two below it. */
static void sink(candidate *heap, uint64_t count, uint64_t i) {
  candidate own = heap[i];
  for (uint64_t below; (below = 2 * i + 1) < count; i = below) {
    if (below + 1 < count && is_before(&heap[below + 1], &heap[below])) below++;
    if (!is_before(&heap[below], &own)) break;
    heap[i] = heap[below];
  }
  heap[i] = own;
}

/* Candidates, the most likely first, as far as they are wanted: few of all tokens usually have nearly all of the probability, so
 * sorting them all would cost more than what is done with them. */
typedef struct order {
  candidate
      *items; /* a heap of `left`, and after it those that have been taken, the last one first */
  uint64_t count, left;
} order;

static order order_of(candidate *items, uint64_t count) {
  for (uint64_t i = count / 2; i--;) sink(items, count, i);
  return (order){items, count, count};
}

/* Candidate `rank`, from 0; after it, all before it have been taken, too. */
static const candidate *ranked(order *o, uint64_t rank) {
  assert(rank < o->count);
  while (o->count - o->left <= rank) {
    candidate first = o->items[0];
    o->items[0] = o->items[--o->left];
    sink(o->items, o->left, 0);
    o->items[o->left] = first;
  }
  return &o->items[o->count - 1 - rank];
}

static int64_t most_likely(const candidate *c, uint64_t count) {
  uint64_t best = 0;
  for (uint64_t i = 1; i < count; i++)
    if (is_before(&c[i], &c[best])) best = i;
  return c[best].token;
}

/* How many of the most likely candidates to draw from, and what they weigh together. */
static uint64_t limit(const tsr_sample_options *o, order *all, double *total) {
  uint64_t count = all->count;
  double sum = 0;
  if (o->top_k && o->top_k < count) {
    count = o->top_k;
    *total = 0;
    for (uint64_t i = 0; i < count; i++) *total += ranked(all, i)->weight;
  }
  if (!(o->top_p > 0 && o->top_p < 1)) return count;
  uint64_t kept = 0;
  while (kept < count && (!kept || sum < o->top_p * *total)) sum += ranked(all, kept++)->weight;
  *total = sum;
  return kept;
}

static int64_t choose(const sampling *s, uint64_t count) {
  const tsr_sample_options *o = s->options;
  candidate *c = s->candidates;
  double total = 0, random;
  if (!(o->temperature > 0)) return most_likely(c, count);
  double most = -HUGE_VAL;
  for (uint64_t i = 0; i < count; i++)
    if (c[i].logit > most) most = c[i].logit;
  for (uint64_t i = 0; i < count; i++) {
    c[i].weight = exp((c[i].logit - most) / o->temperature);
    total += c[i].weight;
  }
  order all = order_of(c, count);
  count = limit(o, &all, &total);
  tsr__random_uniform(s->key, s->length, 1, &random);
  double left = random * total;
  for (uint64_t i = 0; i + 1 < count; i++) {
    const candidate *next = ranked(&all, i);
    if (left < next->weight) return next->token;
    left -= next->weight;
  }
  return ranked(&all, count - 1)->token;
}

/* Read the logits after the last token as candidates. */
static void read_logits(sampling *s, const tsr__executor *executor, tsr__tensor_id tensor) {
  tsr__kernel_tensor logits = tsr__executor_tensor(executor, tensor);
  uint64_t vocabulary = s->model.vocabulary;
  assert(logits.data && logits.dtype == TSR__DTYPE_F32 && tsr__layout_is_dense(logits.layout) &&
         tsr__shape_elements(logits.layout.shape) == vocabulary);
  const float *from = (const float *)logits.data + logits.layout.offset;
  for (uint64_t i = 0; i < vocabulary; i++)
    s->candidates[i] = (candidate){isnan(from[i]) ? -HUGE_VAL : from[i], 0, (int64_t)i};
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
  int status = tsr__saved_load(&s->saved, &s->program, &s->weights, executor, error);
  if (!s->begun_ns) s->begun_ns = tsr__os_time_ns();
  return status;
}

/* The tokens of the first pass are the last ones of the text; then one follows another. */
static const int64_t *batch(void *context, uint64_t step, uint64_t micro_batch, uint32_t which) {
  const sampling *s = context;
  (void)step, (void)which;
  return s->text + s->length - (micro_batch ? 1 : s->sequence);
}

/* A tsr__execute_options.output: choose the next token. */
static bool see_logits(void *context, const tsr__executor *executor, tsr__tensor_id tensor) {
  sampling *s = context;
  assert(s->left);
  read_logits(s, executor, tensor);
  int64_t token = choose(s, s->model.vocabulary);
  s->text[s->length++] = token;
  s->left--;
  if (!s->account.tokens++) s->first_ns = tsr__os_time_ns();
  s->is_over = s->options->token && !s->options->token(s->options->token_context, token);
  return !s->is_over && s->left;
}

static bool see_step(void *context, const tsr__executor *executor, const tsr__executed_step *step) {
  const sampling *s = context;
  (void)executor, (void)step;
  return !s->is_over && s->left;
}

/* ---- tsr_sample ---- */

static int check(const tsr_model *model, const tsr_sample_options *o, tsr_error *error) {
  if (!o->weights)
    return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE, "there are no weights");
  if (!o->prompt_count || !o->prompt)
    return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                     "the prompt is empty: there is nothing to continue");
  if (o->prompt_count > MOST_TOKENS || o->count > MOST_TOKENS)
    return tsr__fail(error, TSR_ERROR_LIMIT, TSR_OFFSET_NONE, "a text of more than %llu tokens",
                     (unsigned long long)MOST_TOKENS);
  int status = tsr__model_check_computed(model, error);
  if (status) return status;
  for (size_t i = 0; i < o->prompt_count; i++)
    if (o->prompt[i] < 0 || (uint64_t)o->prompt[i] >= model->vocabulary)
      return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                       "token %lld of the prompt is not in the model's vocabulary of %llu tokens",
                       (long long)o->prompt[i], (unsigned long long)model->vocabulary);
  return 0;
}

/* Positions: as many as the text will fill, up to the longest context. */
static uint64_t places(const tsr_model *model, const tsr_sample_options *o) {
  uint64_t most = model->positions < LONGEST_CONTEXT ? model->positions : LONGEST_CONTEXT;
  uint64_t all = o->prompt_count + o->count - 1;
  if (o->context) most = o->context < model->positions ? o->context : model->positions;
  return all < most ? all : most;
}

static int allocate(sampling *s, tsr_error *error) {
  const tsr_sample_options *o = s->options;
  s->text = TSR__NEW_ARRAY(int64_t, o->prompt_count + o->count);
  s->candidates = TSR__NEW_ARRAY(candidate, s->model.vocabulary);
  if (!s->text || !s->candidates) return tsr__fail_memory(error);
  memcpy(s->text, o->prompt, o->prompt_count * sizeof *o->prompt);
  s->length = o->prompt_count;
  s->left = o->count;
  s->pool = tsr__thread_pool_new(o->threads); /* NULL is allowed */
  return 0;
}

static int open_weights(sampling *s, tsr_error *error) {
  const tsr_sample_options *o = s->options;
  if (o->subject) *o->subject = o->weights;
  int status = tsr__saved_open_weights(o->weights, &s->saved, error);
  if (status == 0 && o->subject) *o->subject = NULL;
  return status;
}

/* ---- a run ---- */

/* What the executor does: a pass of the text's last tokens, and rounds of a token each with caches of so many positions; or
 * steps of such a pass alone. */
typedef struct run {
  uint64_t positions, rounds, steps;
} run;

static int record(sampling *s, const run *r, tsr_simulate_options *options, tsr_error *error) {
  tsr__tape tape;
  int status = tsr__tape_init(&tape, &tsr__book_own, NULL) ? 0 : tsr__fail_memory(error);
  if (status == 0) status = tsr__program_init(&s->program, &s->model, options, NULL, &tape, error);
  if (status == 0)
    status =
        tsr__program_record_generate(&s->program, r->positions, r->rounds > 0, &s->schedule, error);
  tsr__tape_release(&tape);
  if (status == 0) status = tsr__weights_list(&s->program, &s->weights, error);
  if (status) return status;
  status = tsr__saved_check(&s->saved, &s->program, &s->weights, error);
  if (status && s->options->subject) *s->options->subject = s->options->weights;
  return status;
}

static void account(sampling *s, const tsr__execution *done) {
  tsr_sample_account *a = &s->account;
  uint64_t predicted = done->predicted.peak.totals.allocated_bytes;
  uint64_t executed = done->executed.peak.totals.allocated_bytes;
  if (predicted > a->predicted_peak_bytes) a->predicted_peak_bytes = predicted;
  if (executed > a->peak_bytes) a->peak_bytes = executed;
}

static int execute(sampling *s, const run *r, tsr_error *error) {
  const tsr_sample_options *o = s->options;
  tsr__execution done;
  tsr__execute_options how = {.steps = r->steps,
                              .generation_rounds = r->rounds,
                              .outputs = s->program.next_logits,
                              .output_count = 2,
                              .pool = s->pool,
                              .context = s,
                              .load = load,
                              .batch = batch,
                              .output = see_logits,
                              .step = see_step};
  tsr__forecast forecast = {.steps_done = 0};
  int status = tsr__forecast_run(&s->schedule, &how, &forecast, error);
  if (status == 0) status = tsr__machine_check(forecast.reserved_bytes, error);
  how.forecast = &forecast;
  if (status == 0) {
    status = tsr__execute(&s->schedule, &how, &done, error);
    account(s, &done);
    if (status == TSR_ERROR_IO || status == TSR_ERROR_FORMAT || status == TSR_ERROR_UNSUPPORTED)
      if (o->subject) *o->subject = o->weights;
  }
  tsr__forecast_release(&forecast);
  return status;
}

static void release_run(sampling *s) {
  TSR__VECTOR_FREE(&s->weights);
  tsr__program_release(&s->program);
  tsr__schedule_release(&s->schedule);
  s->weights = (tsr__weight_list){0};
  s->program = (tsr__program){0};
  s->schedule = (tsr__schedule){0};
}

static int continue_text(sampling *s, const run *r, tsr_error *error) {
  s->sequence = s->length < s->context ? s->length : s->context;
  tsr_simulate_options options = {.batch = 1, .sequence = s->sequence, .book = TSR_BOOK_OWN};
  int status = record(s, r, &options, error);
  if (status == 0) status = execute(s, r, error);
  release_run(s);
  return status;
}

/* ---- tsr_sample ---- */

/* With caches, as long as the text is not longer than the context; then without. */
static int continue_all(sampling *s, tsr_error *error) {
  const tsr_model *m = &s->model;
  int status = 0;
  if (s->length < s->context || s->left == 1) {
    uint64_t room = s->length < s->context ? s->context - s->length : 0, rounds = s->left - 1;
    run r = {.positions = s->context, .rounds = rounds < room ? rounds : room, .steps = 1};
    if (r.rounds)
      s->account.cache_bytes =
          2 * m->layers * m->kv_heads * m->head_width * s->context * sizeof(float);
    else
      r.positions = 0;
    status = continue_text(s, &r, error);
  }
  if (status == 0 && s->left && !s->is_over)
    status = continue_text(s, &(run){.steps = s->left}, error);
  return status;
}

static void release(sampling *s) {
  tsr__saved_release(&s->saved);
  tsr__thread_pool_free(s->pool);
  tsr__free(s->text);
  tsr__free(s->candidates);
  tsr__free(s);
}

static double seconds(uint64_t from_ns, uint64_t to_ns) {
  return from_ns && to_ns > from_ns ? (double)(to_ns - from_ns) * 1e-9 : 0;
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
  s->account.prompt_tokens = own.prompt_count < s->context ? own.prompt_count : s->context;
  s->key = tsr__random_key(own.seed, UINT64_MAX - 2);
  status = open_weights(s, error);
  if (status == 0) status = allocate(s, error);
  if (status == 0) status = continue_all(s, error);
  s->account.prompt_s = seconds(s->begun_ns, s->first_ns);
  s->account.tokens_s = seconds(s->first_ns, tsr__os_time_ns());
  if (own.account) *own.account = s->account;
  release(s);
  return status;
}
