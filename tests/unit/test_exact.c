/* What was predicted is what is executed, to the byte: random models with random plans under random
 * settings of the allocator, and attacks on that claim.
 *
 * The seed is fixed, so a failure is reproducible. */
#define _DEFAULT_SOURCE /* mincore */

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "exec/placed.h"
#include "run_support.h"

enum { TRIALS = IS_SANITIZED ? 60 : 1000, MOST_TOKENS = 4 * 24, MOST_LOSSES = 4 };

/* ---- random models and plans ---- */

typedef struct trial {
  uint64_t random;
  char json[640];
  uint64_t layers;
  tsr_simulate_options run;
  tsr_allocator_settings settings;
  uint64_t steps;
} trial;

static uint64_t below(trial *t, uint64_t bound) {
  uint64_t z = t->random += UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
  return (z ^ z >> 31) % bound;
}

static bool flip(trial *t) {
  return below(t, 2);
}

static void choose_model(trial *t) {
  static const char *const families[] = {"gpt2", "llama", "mistral", "qwen2"};
  uint64_t family = below(t, 4), heads = 1 + below(t, 4), width = 4 * (1 + below(t, 3));
  uint64_t groups = flip(t) ? heads : 1, vocabulary = 5 + below(t, 60);
  const char *tied = flip(t) ? "true" : "false";
  t->layers = 1 + below(t, 4);
  if (family == 0)
    snprintf(t->json, sizeof t->json,
             "{\"model_type\":\"gpt2\",\"vocab_size\":%" PRIu64
             ",\"n_positions\":24,\"n_embd\":%" PRIu64 ",\"n_layer\":%" PRIu64
             ",\"n_head\":%" PRIu64 ",\"n_inner\":%" PRIu64
             ",\"tie_word_embeddings\":%s,\"resid_pdrop\":%s,\"attn_pdrop\":%s}",
             vocabulary, heads * width, t->layers, heads, 1 + below(t, 70), tied,
             flip(t) ? "0.1" : "0", flip(t) ? "0.1" : "0");
  else
    snprintf(t->json, sizeof t->json,
             "{\"model_type\":\"%s\",\"vocab_size\":%" PRIu64 ",\"hidden_size\":%" PRIu64
             ",\"num_hidden_layers\":%" PRIu64 ",\"num_attention_heads\":%" PRIu64
             ",\"num_key_value_heads\":%" PRIu64 ",\"head_dim\":%" PRIu64
             ",\"intermediate_size\":%" PRIu64 ",\"tie_word_embeddings\":%s}",
             families[family], vocabulary, heads * width, t->layers, heads, groups, width,
             1 + below(t, 70), tied);
}

/* Mostly refused, so most that is asked for is what is mostly possible. */
static unsigned choose_in_place(trial *t) {
  switch (below(t, 8)) {
  case 0: return TSR_IN_PLACE_ADD;
  case 1: return TSR_IN_PLACE_DROPOUT | TSR_IN_PLACE_ADD;
  case 2: return TSR_IN_PLACE_DROPOUT;
  case 3: return (unsigned)below(t, 32);
  default: return 0;
  }
}

static void choose_run(trial *t) {
  t->run = (tsr_simulate_options){.batch = 1 + below(t, 3),
                                  .sequence = 1 + below(t, 23),
                                  .accumulate = 1 + below(t, 3),
                                  .optimizer = (tsr_simulate_optimizer)below(t, 5),
                                  .dtype = (tsr_simulate_dtype)below(t, 5),
                                  .attention = (tsr_simulate_attention)below(t, 5),
                                  .gelu_fused = flip(t),
                                  .no_kv_cache = true,
                                  .fresh_process = flip(t),
                                  .book = flip(t) ? TSR_BOOK_OWN : TSR_BOOK_TORCH};
  if (t->run.attention == TSR_ATTENTION_CHUNKED)
    t->run.attention_chunk = 1 + below(t, t->run.sequence);
  if (below(t, 4) == 0) t->run.leak = (tsr_simulate_leak)below(t, 5);
  if (flip(t)) t->run.loss_chunk = 1 + below(t, t->run.batch * t->run.sequence);
  bool is_half = t->run.dtype == TSR_SIMULATE_BF16 || t->run.dtype == TSR_SIMULATE_FP16;
  t->run.master_weights = is_half && flip(t);
  if (t->run.dtype == TSR_SIMULATE_FP16 && flip(t)) t->run.loss_scale = 256;
  if (flip(t))
    t->run.offload = (tsr_offload){.optimizer = (tsr_space)below(t, 2),
                                   .gradients = (tsr_space)below(t, 2),
                                   .parameters = (tsr_space)below(t, 2),
                                   .activations = (tsr_space)below(t, 3)};
  t->run.non_reentrant = flip(t);
  t->run.micro_batch = flip(t) ? 1 : 0;
  t->run.backward_once = below(t, 4) == 0;
  t->run.update_in_backward = below(t, 4) == 0; /* refused with some of the above */
  t->run.in_place = choose_in_place(t);
  t->steps = 1 + below(t, 4);
  t->settings = (tsr_allocator_settings){.expandable_segments = below(t, 4) == 0};
  if (below(t, 4) == 0) t->settings.max_split_bytes = (20 + below(t, 40)) << 20;
  for (size_t i = 0; below(t, 4) == 0 && i < TSR_ROUNDUP_SLOTS; i++)
    t->settings.roundup_divisions[i] = 1U << below(t, 4);
}

/* What ops save, by op and tensor, in some blocks. */
static void choose_saved(trial *t, tsr__plan *plan) {
  for (uint64_t count = flip(t) ? below(t, 12) : 0; count > 0; count--) {
    uint64_t first = below(t, t->layers);
    tsr__plan_saved saved = {.first = first,
                             .end = first + 1 + below(t, t->layers - first),
                             .op = flip(t) ? TSR__PLAN_ANY : (uint8_t)below(t, TSR__OP_KIND_COUNT),
                             .number = flip(t) ? TSR__PLAN_ANY : (uint8_t)below(t, 4),
                             .index = flip(t) ? TSR__PLAN_ANY : (uint8_t)below(t, TSR__OP_SAVED),
                             .place = (uint8_t)below(t, TSR__PLACED_COUNT)};
    assert_true(tsr__plan_choose_saved(plan, saved));
  }
}

/* Each block has a choice of its own. */
static void choose_plan(trial *t, tsr__plan *plan) {
  assert_true(tsr__plan_init(plan, t->layers));
  for (uint64_t i = 0; i < t->layers;) {
    uint64_t length = 1 + below(t, t->layers - i), choice = below(t, TSR__PLAN_CHOICE_COUNT);
    if (choice == TSR__PLAN_RECOMPUTE_RUN)
      tsr__plan_choose_runs(plan, i, i + length, 1 + below(t, length));
    else
      tsr__plan_choose(plan, i, i + length, (tsr__plan_choice)choice);
    i += length;
  }
  choose_saved(t, plan);
}

/* ---- a program ---- */

typedef struct subject {
  training t; /* first: the context of a run, its training, is also the subject */
  tsr__plan plan;
  int64_t tokens[MOST_TOKENS];
  void *extra; /* of a test's own step */
} subject;

static const int64_t *batch(void *context, uint64_t step, uint64_t micro_batch, uint32_t which) {
  (void)step, (void)micro_batch;
  return which == 2 ? NULL : ((subject *)context)->tokens;
}

/* False if the options do not suit the model. */
static bool open_subject(subject *s, trial *t) {
  *s = (subject){.extra = NULL};
  choose_plan(t, &s->plan);
  if (!training_open(&s->t, t->json, &t->run, &s->plan)) return false;
  s->t.options.settings = t->settings;
  s->t.options.steps = t->steps;
  s->t.options.folder = "/tmp";
  s->t.options.batch = batch;
  return true;
}

static void close_subject(subject *s) {
  training_close(&s->t);
  tsr__plan_release(&s->plan);
}

/* ---- the events of a run ---- */

enum { PLACES = 1 + TSR__DRY_SPACES };

typedef struct account {
  uint64_t hash, event_count; /* of the recorded events: what, where, how much */
  /* Of all events, requested: of the device, the host and the disk. */
  uint64_t block_bytes[PLACES], block_peak_bytes[PLACES];
} account;

static bool note_event(void *context, uint32_t device, uint32_t slot,
                       const tsr_allocator_event *event) {
  account *a = context;
  const uint64_t parts[] = {device, slot, event->action, event->addr, event->size};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
    a->hash = (a->hash ^ parts[i]) * UINT64_C(0x100000001b3);
  a->event_count++;
  return true;
}

static bool note_memory(void *context, uint32_t device, const tsr_allocator_event *event) {
  account *a = context;
  uint64_t *bytes = &a->block_bytes[device], *peak = &a->block_peak_bytes[device];
  if (event->action == TSR_ACTION_ALLOC) *bytes += event->size;
  if (event->action == TSR_ACTION_FREE_COMPLETED) *bytes -= event->size;
  if (*bytes > *peak) *peak = *bytes;
  return true;
}

static void predict(const subject *s, account *a, tsr__dry_device *device,
                    tsr__dry_device spaces[TSR__DRY_SPACES]) {
  tsr__dry_observer observer = {.context = a, .event = note_event, .memory = note_memory};
  uint64_t done;
  assert_int_equal(tsr__dry_run(&s->t.schedule,
                                &(tsr__dry_options){.settings = s->t.options.settings,
                                                    .capacity_bytes = s->t.options.capacity_bytes,
                                                    .steps = s->t.options.steps,
                                                    .spaces = spaces,
                                                    .observer = &observer},
                                device, &done, NULL),
                   0);
}

static void same_moment(const tsr__dry_moment *a, const tsr__dry_moment *b, const char *json) {
  if (a->event_count != b->event_count || a->step != b->step || a->phase != b->phase ||
      a->op != b->op || memcmp(&a->totals, &b->totals, sizeof a->totals) != 0 ||
      memcmp(a->category_bytes, b->category_bytes, sizeof a->category_bytes) != 0)
    fail_msg("%s: predicted and executed differ", json);
}

/* Runs it; every event, peak and total is the predicted one. */
static void attack(subject *s, const trial *t, tsr__execution *out) {
  account predicted = {0}, seen = {0};
  tsr__dry_device device, spaces[TSR__DRY_SPACES];
  tsr_error error = {0};
  predict(s, &predicted, &device, spaces);
  tsr__dry_observer observer = {.context = &seen, .event = note_event};
  s->t.options.observer = &observer;
  if (tsr__execute(&s->t.schedule, &s->t.options, out, &error))
    fail_msg("%s: %s", t->json, error.message);
  s->t.options.observer = NULL;
  const tsr__dry_device *executed = &out->executed;
  assert_int_equal(seen.event_count, predicted.event_count);
  assert_int_equal(seen.hash, predicted.hash);
  same_moment(&executed->start, &device.start, t->json);
  same_moment(&executed->peak, &device.peak, t->json);
  for (size_t i = 0; i < TSR__PHASE_COUNT; i++)
    same_moment(&executed->phases[i], &device.phases[i], t->json);
  assert_int_equal(executed->is_out_of_memory, device.is_out_of_memory);
  assert_int_equal(executed->peak_reserved_bytes, device.peak_reserved_bytes);
  /* The arena's own account, of pages that were usable and bytes that were asked for. */
  assert_int_equal(out->usable_peak_bytes, device.peak_reserved_bytes);
  assert_int_equal(out->block_peak_bytes, predicted.block_peak_bytes[0]);
  for (size_t i = 0; i < TSR__DRY_SPACES; i++) {
    same_moment(&out->spaces[i].peak, &spaces[i].peak, t->json);
    assert_int_equal(out->space_usable_bytes[i], spaces[i].peak_reserved_bytes);
    assert_int_equal(out->space_block_bytes[i], predicted.block_peak_bytes[i + 1]);
  }
}

/* ---- places chosen before the run ---- */

/* Who has a place, in units of 512 bytes. */
typedef struct ownership {
  const training *t;
  const tsr__placement *placement;
  uint32_t *owner; /* 1 + twice the slot, + 1 in odd steps; 0: nobody */
  uint64_t live_bytes, peak_bytes;
} ownership;

static void own(ownership *o, uint32_t slot, uint64_t step, bool begins) {
  if (o->t->schedule.slots.items[slot].space != TSR__SPACE_DEVICE) return;
  uint64_t units = (o->t->schedule.slots.items[slot].bytes + 511) / 512;
  uint64_t first = o->placement->offsets[step & 1][slot] / 512;
  uint32_t me = 1 + 2 * slot + (step & 1);
  assert_true((first + units) * 512 <= o->placement->total_bytes);
  for (uint64_t i = first; i < first + units; i++) {
    assert_int_equal(o->owner[i], begins ? 0 : me);
    o->owner[i] = begins ? me : 0;
  }
  o->live_bytes = begins ? o->live_bytes + units * 512 : o->live_bytes - units * 512;
  if (o->live_bytes > o->peak_bytes) o->peak_bytes = o->live_bytes;
}

/* Walk some steps: nobody takes a place that somebody has, and the bound is what lives at once. */
static void check_places(const training *t, const tsr__placement *p) {
  ownership o = {.t = t, .placement = p};
  bool *is_there = calloc(t->schedule.slots.count, sizeof *is_there);
  o.owner = calloc(p->total_bytes / 512 + 1, sizeof *o.owner);
  for (uint32_t i = 1; i < t->schedule.slots.count; i++)
    if (t->schedule.slots.items[i].is_static) own(&o, i, 0, true);
  for (uint64_t step = 1; step <= 5; step++)
    for (size_t i = 0; i < t->schedule.instrs.count; i++) {
      const tsr__instr *instr = &t->schedule.instrs.items[i];
      uint32_t slot = instr->subject;
      if (instr->kind == TSR__INSTR_NEW || (instr->kind == TSR__INSTR_NEW_ONCE && !is_there[slot]))
        own(&o, slot, instr->kind == TSR__INSTR_NEW ? step : 0, true);
      if (instr->kind == TSR__INSTR_NEW_ONCE) is_there[slot] = true;
      if (instr->kind == TSR__INSTR_DROP) own(&o, slot, step, false);
      if (instr->kind == TSR__INSTR_DROP_PREV && step > 1) own(&o, slot, step - 1, false);
    }
  assert_int_equal(o.peak_bytes, p->bound_bytes);
  free(o.owner);
  free(is_there);
}

/* The losses of a run's steps, in their order, from here on. */
static bool keep_loss(void *context, const tsr__executor *e, const tsr__executed_step *step) {
  subject *s = context;
  (void)e;
  assert_in_range(step->step, 1, MOST_LOSSES);
  ((double *)s->extra)[step->step - 1] = step->loss;
  return true;
}

static void keep_losses(subject *s, double *losses) {
  s->extra = losses;
  s->t.options.step = keep_loss;
}

/* Places are sound, and a run that uses them needs as much as was computed. */
static void try_placed(subject *s, const trial *t) {
  tsr__placement placement;
  tsr__execution out;
  tsr_error error = {0};
  assert_int_equal(tsr__placement_solve(&s->t.schedule, NULL, &placement, NULL), 0);
  check_places(&s->t, &placement);
  s->t.options.is_placed = true;
  s->t.options.capacity_bytes = placement.total_bytes;
  if (tsr__execute(&s->t.schedule, &s->t.options, &out, &error))
    fail_msg("%s: %s", t->json, error.message);
  assert_int_equal(out.steps_done, t->steps);
  assert_int_equal(out.usable_peak_bytes, placement.total_bytes);
  assert_int_equal(out.bound_bytes, placement.bound_bytes);
  s->t.options.capacity_bytes = placement.total_bytes - 512;
  assert_int_equal(tsr__execute(&s->t.schedule, &s->t.options, &out, &error), TSR_ERROR_LIMIT);
  tsr__placement_release(&placement);
}

static bool narrows(const tsr__plan *plan) {
  for (size_t i = 0; i < plan->saved.count; i++)
    if (plan->saved.items[i].place >= TSR__PLACED_NARROW16) return true;
  return false;
}

/* What is in place computes the same, to the bit, but for PyTorch's dropout: in 16 bits its noise is rounded. */
static void try_apart(const trial *before, const double *losses, size_t count) {
  trial apart = *before, *t = &apart; /* as it was when its plan was chosen */
  subject s;
  tsr__execution out;
  double others[MOST_LOSSES];
  unsigned in_place = t->run.in_place;
  bool has_noise = t->run.book == TSR_BOOK_TORCH && in_place & TSR_IN_PLACE_DROPOUT;
  t->run.in_place = 0;
  assert_true(open_subject(&s, t));
  bool rounds = has_noise && (t->run.dtype != TSR_SIMULATE_FP32 || narrows(&s.plan));
  keep_losses(&s, others);
  attack(&s, t, &out);
  if (!rounds && memcmp(losses, others, count * sizeof *losses) != 0)
    fail_msg("%s: in place %u the losses are others", t->json, in_place);
  close_subject(&s);
}

static void random_plans(void **state) {
  uint64_t done = 0, seed = 0, in_place = 0;
  (void)state;
  for (; done < TRIALS; seed++) {
    trial t = {.random = seed};
    subject s;
    tsr__execution out;
    choose_model(&t);
    choose_run(&t);
    trial before = t;
    if (open_subject(&s, &t)) {
      double losses[MOST_LOSSES];
      keep_losses(&s, losses);
      attack(&s, &t, &out);
      if (t.run.in_place) try_apart(&before, losses, (size_t)t.steps);
      in_place += t.run.in_place != 0;
      assert_int_equal(out.steps_done, t.steps);
      if (done % 4 == 0 && !t.run.leak) try_placed(&s, &t);
      done++;
    }
    close_subject(&s);
    assert_true(seed < 4 * TRIALS);
  }
  assert_true(in_place > TRIALS / 20);
}

/* A program to attack, large enough to have many segments and pages: activations of 1 MiB. */
static void choose_large(trial *t) {
  snprintf(t->json, sizeof t->json,
           "{\"model_type\":\"gpt2\",\"vocab_size\":1024,\"n_positions\":24,\"n_embd\":64,"
           "\"n_layer\":3,\"n_head\":4}");
  t->layers = 3;
  t->run = (tsr_simulate_options){.batch = 4, .sequence = 24, .no_kv_cache = true};
  t->steps = 4;
}

static void open_large(subject *s, trial *t, uint64_t seed) {
  *t = (trial){.random = seed};
  choose_large(t);
  assert_true(open_subject(s, t));
}

/* With 512 bytes less than the predicted peak it ends in the request, and at the event, that was
 * predicted; with exactly as much it runs. */
static void a_block_less(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < 6; seed++) {
    trial t;
    subject s;
    tsr__execution out;
    open_large(&s, &t, seed);
    s.t.options.settings.expandable_segments = seed & 1;
    attack(&s, &t, &out);
    s.t.options.capacity_bytes = out.executed.peak_reserved_bytes;
    attack(&s, &t, &out);
    assert_int_equal(out.steps_done, t.steps);
    s.t.options.capacity_bytes -= 512;
    attack(&s, &t, &out);
    const tsr__dry_device *e = &out.executed, *p = &out.predicted;
    assert_true(e->is_out_of_memory && p->is_out_of_memory && out.steps_done < t.steps);
    same_moment(&e->out_of_memory, &p->out_of_memory, t.json);
    assert_int_equal(e->oom_request_bytes, p->oom_request_bytes);
    assert_int_equal(e->oom_segment_bytes, p->oom_segment_bytes);
    assert_true(out.usable_peak_bytes <= s.t.options.capacity_bytes);
    close_subject(&s);
  }
}

/* Blocks are not always where they were a step before: this run takes one more segment long after the steps that
 * are predicted. */
static void a_late_segment(void **state) {
  static const char json[] = "{\"model_type\":\"gpt2\",\"vocab_size\":256,\"n_positions\":128,"
                             "\"n_embd\":64,\"n_layer\":3,\"n_head\":4,\"resid_pdrop\":0,"
                             "\"attn_pdrop\":0,\"embd_pdrop\":0}";
  const tsr_simulate_options run = {
      .batch = 2, .sequence = 32, .optimizer = TSR_OPTIMIZER_ADAMW_FUSED};
  subject s = {.extra = NULL};
  tsr__execution out;
  tsr_error error = {0};
  (void)state;
  assert_true(training_open(&s.t, json, &run, NULL));
  s.t.options.steps = 30;
  s.t.options.batch = batch;
  if (tsr__execute(&s.t.schedule, &s.t.options, &out, &error)) fail_msg("%s", error.message);
  assert_int_equal(out.steps_done, 30);
  assert_true(out.usable_peak_bytes > out.predicted.peak_reserved_bytes);
  training_close(&s.t);
}

/* ---- pages: a sanitizer has its own ---- */

#if !IS_SANITIZED

/* The pages that a run should have touched, by the schedule: those of what was loaded and of what
 * kernels wrote, less those of segments that were returned. */
typedef struct touched {
  const subject *s;
  uint64_t origin, end, page_bytes; /* addresses of segments */
  unsigned char *pages;
  size_t page_count;
  uint64_t first_static; /* the address of some static slot, and which */
  tsr__tensor_id parameter;
} touched;

static void touch(touched *t, uint64_t address, uint64_t size, bool is_touched) {
  if (!size) return;
  uint64_t first = (address - t->origin) / t->page_bytes;
  uint64_t last = (address + size - 1 - t->origin) / t->page_bytes;
  assert_true(last < t->page_count);
  memset(t->pages + first, is_touched, (size_t)(last - first + 1));
}

static void touch_tensor(touched *t, tsr__tensor_id tensor, const uint64_t *addresses) {
  const tsr__step_tensor *item = tsr__schedule_tensor(&t->s->t.schedule, tensor);
  if (!tensor) return; /* a result that the op does not need */
  uint64_t size = tsr__dtype_bytes((tsr__dtype)item->dtype);
  uint64_t first = item->layout.offset * size, end = tsr__layout_end(item->layout) * size;
  if (tsr__shape_elements(item->layout.shape))
    touch(t, addresses[item->slot] + first, end - first, true);
}

static bool touch_memory(void *context, uint32_t device, const tsr_allocator_event *event) {
  touched *t = context;
  (void)device;
  if (!t->origin) t->origin = event->addr; /* the first is of a segment */
  if (event->action == TSR_ACTION_SEGMENT_ALLOC && event->addr + event->size > t->end)
    t->end = event->addr + event->size;
  if (event->action == TSR_ACTION_SEGMENT_FREE || event->action == TSR_ACTION_SEGMENT_UNMAP)
    touch(t, event->addr, event->size, false);
  return true;
}

typedef struct loading {
  touched *t;
  const uint64_t *addresses;
} loading;

static void touch_initial(void *context, tsr__tensor_id tensor, const tsr__initial_value *initial) {
  loading *l = context;
  (void)initial;
  touch_tensor(l->t, tensor, l->addresses);
}

static bool touch_loaded(void *context, const uint64_t *addresses) {
  touched *t = context;
  t->parameter = t->s->t.schedule.parameters.items[0];
  t->first_static = addresses[tsr__schedule_tensor(&t->s->t.schedule, t->parameter)->slot];
  tsr__program_initials(&t->s->t.program, touch_initial, &(loading){t, addresses});
  return true;
}

static bool touch_run(void *context, uint32_t index, uint64_t step, const uint64_t *addresses) {
  touched *t = context;
  const tsr__schedule *schedule = &t->s->t.schedule;
  const tsr__kernel_run *run = &schedule->runs.items[index];
  if (run->is_once && step > 1) return true;
  for (uint32_t i = 0; i < run->write_count; i++)
    touch_tensor(t, tsr__run_writes(schedule, run)[i], addresses);
  for (uint32_t i = 0; i < run->scratch_count; i++)
    touch_tensor(t, tsr__run_scratch(schedule, run)[i], addresses);
  return true;
}

typedef struct resident {
  const touched *expected;
  uint64_t last_step, differing, count;
} resident;

/* Called after the last step, while the memory is there. */
static bool compare_pages(void *context, const tsr__executor *e, const tsr__executed_step *step) {
  resident *r = ((subject *)context)->extra;
  const touched *t = r->expected;
  if (step->step != r->last_step) return true;
  char *base = (char *)tsr__executor_tensor(e, t->parameter).data - (t->first_static - t->origin);
  for (size_t i = 0; i < (t->end - t->origin) / t->page_bytes; i++) {
    unsigned char is_there = 0;
    /* Fails for addresses that are reserved and not usable. */
    if (mincore(base + i * t->page_bytes, t->page_bytes, &is_there) != 0) is_there = 0;
    r->differing += (is_there & 1) != t->pages[i];
    r->count += is_there & 1;
  }
  return true;
}

/* Of the arena, exactly the pages are in memory that the schedule says are written. */
static void pages(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < 4; seed++) {
    trial t;
    subject s;
    tsr__execution out;
    tsr__dry_device device;
    uint64_t done;
    open_large(&s, &t, seed);
    touched want = {.s = &s, .page_bytes = (uint64_t)sysconf(_SC_PAGESIZE), .page_count = 1 << 16};
    want.pages = calloc(want.page_count, 1);
    tsr__dry_observer observer = {
        .context = &want, .memory = touch_memory, .loaded = touch_loaded, .run = touch_run};
    tsr__dry_options dry = {.steps = t.steps, .observer = &observer};
    assert_int_equal(tsr__dry_run(&s.t.schedule, &dry, &device, &done, NULL), 0);
    resident r = {.expected = &want, .last_step = t.steps};
    s.extra = &r;
    s.t.options.step = compare_pages;
    attack(&s, &t, &out);
    assert_int_equal(r.differing, 0);
    assert_true(r.count * want.page_bytes <= out.usable_peak_bytes);
    assert_true(r.count > 100);
    free(want.pages);
    close_subject(&s);
  }
}

#endif

/* ---- the end of memory ---- */

/* What is after a segment cannot be used, not even the first byte. */
static void guard(void **state) {
  tsr__tensor_arena arena;
  const uint64_t origin = UINT64_C(0x7f0000000000), mib = UINT64_C(1) << 20;
  (void)state;
  assert_true(tsr__tensor_arena_init(&arena, origin, 8 * mib));
  tsr_allocator_event event = {.action = TSR_ACTION_SEGMENT_ALLOC, .addr = origin, .size = 2 * mib};
  assert_true(tsr__tensor_arena_event(&arena, &event));
  char *base = tsr__tensor_arena_at(&arena, origin);
  base[2 * mib - 1] = 1;
  for (int after = 0; after < 2; after++) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
      signal(SIGSEGV, SIG_DFL); /* of a sanitizer */
      ((volatile char *)base)[2 * mib - 1 + (uint64_t)after] = 2;
      _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (after)
      assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    else
      assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  tsr__tensor_arena_release(&arena);
}

/* Blocks of 1 MiB in turn, each written and freed, in a segment of 64 MiB: no more than 16 MiB stay touched. What is in
 * use is not given back. */
static void keep(void **state) {
  tsr__tensor_arena arena;
  const uint64_t origin = UINT64_C(0x7f0000000000), mib = UINT64_C(1) << 20;
  (void)state;
  assert_true(tsr__tensor_arena_init(&arena, origin, 64 * mib));
  assert_true(tsr__tensor_arena_keep(&arena, 16 * mib));
  tsr_allocator_event segment = {
      .action = TSR_ACTION_SEGMENT_ALLOC, .addr = origin, .size = 64 * mib};
  assert_true(tsr__tensor_arena_event(&arena, &segment));
  tsr_allocator_event live = {.action = TSR_ACTION_ALLOC, .addr = origin + 512, .size = mib};
  assert_true(tsr__tensor_arena_event(&arena, &live));
  memset(tsr__tensor_arena_at(&arena, live.addr), 7, mib);
  for (uint64_t i = 0; i < 500; i++) {
    tsr_allocator_event block = {
        .action = TSR_ACTION_ALLOC, .addr = origin + (2 + i % 61) * mib, .size = mib};
    assert_true(tsr__tensor_arena_event(&arena, &block));
    memset(tsr__tensor_arena_at(&arena, block.addr), 1, mib);
    assert_true(arena.touched <= 16 * 16);
    block.action = TSR_ACTION_FREE_COMPLETED;
    assert_true(tsr__tensor_arena_event(&arena, &block));
  }
  const char *data = tsr__tensor_arena_at(&arena, live.addr);
  for (uint64_t i = 0; i < mib; i++) assert_true(data[i] == 7);
  live.action = TSR_ACTION_FREE_COMPLETED;
  assert_true(tsr__tensor_arena_event(&arena, &live));
  segment.action = TSR_ACTION_SEGMENT_FREE;
  assert_true(tsr__tensor_arena_event(&arena, &segment));
  assert_int_equal(arena.touched + arena.idle, 0);
  tsr__tensor_arena_release(&arena);
}

/* ---- calls of the system's allocator ---- */

#if !IS_SANITIZED && defined(__GLIBC__)
static _Atomic uint64_t calls;
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *memory, size_t size);
void *malloc(size_t size) {
  calls++;
  return __libc_malloc(size);
}
void *calloc(size_t count, size_t size) {
  calls++;
  return __libc_calloc(count, size);
}
void *realloc(void *memory, size_t size) {
  calls++;
  return __libc_realloc(memory, size);
}

typedef struct counted {
  uint64_t at[8];
} counted;

static bool note_calls(void *context, const tsr__executor *e, const tsr__executed_step *step) {
  counted *c = ((subject *)context)->extra;
  (void)e;
  c->at[step->step] = calls;
  return true;
}

/* Once memory has its final shape, steps allocate nothing: neither for kernels nor for the walk. */
static void steady(void **state) {
  trial t;
  subject s;
  tsr__execution out;
  counted c = {{0}};
  tsr_error error;
  (void)state;
  open_large(&s, &t, 1);
  s.extra = &c;
  s.t.options.steps = 6;
  s.t.options.step = note_calls;
  uint64_t before = calls;
  assert_int_equal(tsr__execute(&s.t.schedule, &s.t.options, &out, &error), 0);
  assert_true(calls > before); /* they are counted */
  for (size_t i = 3; i <= 6; i++) assert_int_equal(c.at[i], c.at[i - 1]);
  close_subject(&s);
}
#endif

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(random_plans),
    cmocka_unit_test(a_block_less),
    cmocka_unit_test(a_late_segment),
    cmocka_unit_test(guard),
    cmocka_unit_test(keep),
#if !IS_SANITIZED
    cmocka_unit_test(pages),
#endif
#if !IS_SANITIZED && defined(__GLIBC__)
    cmocka_unit_test(steady),
#endif
  };
  return cmocka_run_group_tests_name("exact", tests, NULL, NULL);
}
