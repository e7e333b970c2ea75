/* Tests of attribution/ on simulated training runs (tessera/simulate.h), whose trace has each
 * allocation's true category: after every event, ninety-nine live bytes in a hundred must have it,
 * those from before the recording included. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "attribution/category.h"
#include "study_support.h"
#include "tessera/unstable/simulation.h"
#include "tessera/unstable/view.h"
#include "test_support.h"

/* Four layers, so small that any tensor matters. */
#define SMALL_LLAMA                                                                        \
  "{\"model_type\":\"llama\",\"hidden_size\":512,\"intermediate_size\":1376,\"num_hidden_" \
  "layers\":4,"                                                                            \
  "\"num_attention_heads\":8,\"num_key_value_heads\":8,\"vocab_size\":8000}"
/* As small, with one weight for the embedding and the output layer. */
#define SMALL_QWEN                                                                        \
  "{\"model_type\":\"qwen2\",\"hidden_size\":256,\"intermediate_size\":700,\"num_hidden_" \
  "layers\":4,"                                                                           \
  "\"num_attention_heads\":8,\"num_key_value_heads\":8,\"vocab_size\":9001,\"tie_word_"   \
  "embeddings\":true}"

/* Whether `said` may be inferred for memory that is `truth`. A recording does not distinguish
 * buffers from parameters, nor what a step keeps for its backward pass from what it recomputes. */
static bool is_said(tsr_category truth, tsr_category said) {
  if (truth == TSR_CATEGORY_BUFFER) return said == TSR_CATEGORY_PARAMETER;
  bool is_either = truth == TSR_CATEGORY_ACTIVATION || truth == TSR_CATEGORY_RECOMPUTED;
  if (is_either && (said == TSR_CATEGORY_ACTIVATION || said == TSR_CATEGORY_RECOMPUTED))
    return true;
  return truth == said;
}

/* The category of a name; fails the test for any other name. */
static tsr_category category_of(tsr_text name) {
  for (int i = 0; i < TSR_CATEGORY_COUNT; i++) {
    const char *known = tsr_category_name((tsr_category)i);
    if (strlen(known) == name.size_bytes && !memcmp(known, name.data, name.size_bytes))
      return (tsr_category)i;
  }
  fail_msg("no category is called %.*s", (int)name.size_bytes, name.data);
  return TSR_CATEGORY_UNKNOWN;
}

typedef struct subject {
  tsr_model *model;
  tsr_simulation *simulation;
  tsr__roles roles;
  tsr__timeline timeline;
  tsr__phases phases;
  tsr__categories kinds;
} subject;

/* False for options that do not go together. */
static bool begin(subject *out, const char *model, const tsr_simulate_options *options) {
  subject s = {0};
  tsr_error error = {0};
  int status = model[0] == '{' ? tsr_model_read(model, strlen(model), &s.model, &error)
                               : tsr_model_named(model, &s.model, &error);
  if (status) fail_msg("%s", error.message);
  status = tsr_simulate(s.model, options, &s.simulation, &error);
  if (status == TSR_ERROR_UNSUPPORTED || status == TSR_ERROR_ARGUMENT) {
    tsr_model_free(s.model);
    return false;
  }
  if (status) fail_msg("%s", error.message);
  const tsr_snapshot *snapshot = s.simulation->snapshot;
  assert_int_equal(tsr__roles_compute(snapshot, &s.roles, NULL), 0);
  assert_int_equal(tsr__timeline_compute(snapshot, 0, false, NULL, &s.timeline, NULL), 0);
  assert_int_equal(tsr__phases_compute(snapshot, &s.roles, &s.timeline.events, &s.phases, NULL), 0);
  assert_int_equal(
      tsr__categories_compute(&s.timeline, &s.roles, &s.phases, NULL, NULL, &s.kinds, NULL), 0);
  *out = s;
  return true;
}

static void end(subject *s) {
  tsr__categories_release(&s->kinds);
  tsr__phases_release(&s->phases);
  tsr__timeline_release(&s->timeline);
  tsr__roles_release(&s->roles);
  tsr_simulation_free(s->simulation);
  tsr_model_free(s->model);
}

static bool is_right(const subject *s, uint32_t a) {
  uint32_t birth = s->timeline.birth.items[a];
  tsr_text truth =
      tsr_snapshot_string(s->simulation->snapshot, tsr_id_at(s->timeline.events.category, birth));
  return is_said(category_of(truth), (tsr_category)s->kinds.category[a]);
}

/* Bytes from before the recording that are called something else. Equal blocks cannot be
 * distinguished, so sums are compared. */
static uint64_t wrong_at_start(const subject *s) {
  uint64_t truth[TSR_CATEGORY_COUNT] = {0}, said[TSR_CATEGORY_COUNT] = {0}, wrong = 0;
  for (int category = 0; category < TSR_CATEGORY_COUNT; category++) {
    int kind = 0;
    while (!is_said((tsr_category)category, (tsr_category)kind)) kind++;
    truth[kind] += s->simulation->start_category_bytes[category];
  }
  for (uint32_t i = 0; i < s->timeline.initial.count; i++)
    said[s->kinds.category[i]] += s->timeline.initial.items[i].requested_bytes;
  for (int kind = 0; kind < TSR_CATEGORY_COUNT; kind++)
    if (truth[kind] > said[kind]) wrong += truth[kind] - said[kind];
  return wrong;
}

/* After every event; returns the worst share in a million. */
static uint64_t worst_error(const subject *s) {
  uint64_t live = 0, wrong = wrong_at_start(s), worst = 0;
  for (uint32_t a = 0; a < s->timeline.initial.count; a++)
    live += tsr__timeline_requested(&s->timeline, a);
  for (uint32_t e = 0; e < s->timeline.events.count; e++) {
    uint32_t a = s->timeline.allocation_of[e];
    if (a == TSR_NONE || a < s->timeline.initial.count) continue;
    uint64_t size = tsr__timeline_requested(&s->timeline, a), lie = is_right(s, a) ? 0 : size;
    if (s->timeline.birth.items[a] == e) {
      live += size;
      wrong += lie;
    } else if (s->timeline.death.items[a] == e) {
      live -= size;
      wrong -= lie;
    }
    if (live && wrong * 1000000 / live > worst) worst = wrong * 1000000 / live;
  }
  return worst;
}

static uint64_t allocations_of(const subject *s, tsr_category kind) {
  uint64_t count = 0;
  for (size_t i = 0; i < s->kinds.count; i++) count += s->kinds.category[i] == kind;
  return count;
}

/* True where the options go together. */
static bool check(const char *model, const tsr_simulate_options *options) {
  subject s;
  if (!begin(&s, model, options)) return false;
  uint64_t worst = worst_error(&s);
  if (worst > 10000)
    fail_msg(
        "%.22s, attention %d, type %d, checkpoint %d, optimizer %d, loss by %u, %u micro-batches, "
        "%u steps, %u bytes in a million are wrong",
        model, options->attention, options->dtype, options->checkpoint, options->optimizer,
        (unsigned)options->loss_chunk, (unsigned)options->accumulate, (unsigned)options->steps,
        (unsigned)worst);
  bool again = options->checkpoint != TSR_CHECKPOINT_NONE;
  assert_int_equal(allocations_of(&s, TSR_CATEGORY_RECOMPUTED) > 0, again);
  end(&s);
  return true;
}

enum {
  OPTIMIZERS = TSR_OPTIMIZER_SGD + 1,
  DTYPES = TSR_SIMULATE_AUTOCAST_FP16 + 1,
  CHECKPOINTS = 4
};

/* Every optimizer, type and way of checkpointing, of which `number` is one. */
static tsr_simulate_options combination(int number) {
  return (tsr_simulate_options){
      .batch = 4,
      .sequence = 128,
      .categories = true,
      .checkpoint_every = 2,
      .attention_chunk = 32,
      .optimizer = (tsr_simulate_optimizer)(number % OPTIMIZERS),
      .dtype = (tsr_simulate_dtype)(number / OPTIMIZERS % DTYPES),
      .checkpoint = (tsr_simulate_checkpoint)(number / OPTIMIZERS / DTYPES % CHECKPOINTS)};
}

static void gpt2(void **state) {
  (void)state;
  for (int i = 0; i < OPTIMIZERS * DTYPES * CHECKPOINTS; i++)
    for (unsigned accumulate = 1; accumulate <= 2; accumulate++) {
      tsr_simulate_options options = combination(i);
      options.accumulate = accumulate;
      options.steps = 2;
      assert_true(check("gpt2", &options));
    }
}

/* One step alone, and kernels that keep other things. */
static void small_llama(void **state) {
  (void)state;
  unsigned checked = 0;
  for (int i = 0; i < OPTIMIZERS * DTYPES * CHECKPOINTS; i++)
    for (unsigned variant = 0; variant < 4 * 2; variant++) {
      tsr_simulate_options options = combination(i);
      options.attention = (tsr_simulate_attention)(variant % 4);
      options.accumulate = 1 + variant / 4 % 2;
      options.steps = 1 + (variant / 4 + (unsigned)i) % 2;
      checked += check(SMALL_LLAMA, &options);
    }
  assert_true(checked > 700);
}

static void tied_weights(void **state) {
  (void)state;
  for (int i = 0; i < OPTIMIZERS * DTYPES * CHECKPOINTS; i++) {
    tsr_simulate_options options = combination(i);
    options.attention = i % 2 ? TSR_ATTENTION_EAGER : TSR_ATTENTION_SDPA;
    options.steps = 3;
    assert_true(check(SMALL_QWEN, &options));
  }
}

/* A loss that makes its gradient in forward, a fused GELU, no cache of keys, a fresh process. */
static void losses(void **state) {
  (void)state;
  unsigned checked = 0;
  for (int checkpoint = 0; checkpoint < CHECKPOINTS; checkpoint++)
    for (int attention = 0; attention < 5; attention++)
      for (int variant = 0; variant < 4; variant++) {
        bool is_narrow = attention == TSR_ATTENTION_FLASH || variant == 3;
        tsr_simulate_options options = {.batch = 2,
                                        .sequence = 128,
                                        .steps = 3,
                                        .categories = true,
                                        .attention = (tsr_simulate_attention)attention,
                                        .attention_chunk = 48,
                                        .dtype = is_narrow ? TSR_SIMULATE_AUTOCAST_BF16
                                                           : TSR_SIMULATE_FP32,
                                        .checkpoint = (tsr_simulate_checkpoint)checkpoint,
                                        .checkpoint_every = 5,
                                        .loss_chunk = variant == 1 ? 100 : 0,
                                        .gelu_fused = variant == 2,
                                        .no_kv_cache = variant >= 1,
                                        .fresh_process = variant == 2,
                                        .accumulate = variant == 3 ? 2 : 1};
        checked += check("gpt2", &options);
      }
  assert_true(checked >= CHECKPOINTS * 4 * 4);
}

/* All that reports categories agrees: the peak by stack, the profile, and the page. */
static void one_notion(void **state) {
  (void)state;
  tsr_simulate_options options = combination(0);
  options.checkpoint = TSR_CHECKPOINT_FULL;
  subject s;
  assert_true(begin(&s, "gpt2", &options));
  const tsr_snapshot *snapshot = s.simulation->snapshot;
  tsr_peak *peak = NULL;
  tsr_profile *profile = NULL;
  tsr_view *view = NULL;
  assert_int_equal(tsr_peak_compute(test_study(snapshot), NULL, &peak, NULL), 0);
  assert_int_equal(tsr_profile_compute(test_study(snapshot), NULL, NULL, &profile, NULL), 0);
  assert_int_equal(tsr_view_compute(test_study(snapshot), NULL, NULL, &view, NULL), 0);
  uint64_t by_stack[TSR_CATEGORY_COUNT] = {0}, by_view[TSR_CATEGORY_COUNT] = {0};
  for (size_t i = 0; i < peak->devices[0].stack_count; i++)
    for (int kind = 0; kind < TSR_CATEGORY_COUNT; kind++)
      by_stack[kind] += peak->devices[0].stacks[i].category_bytes[kind];
  const tsr_view_device *d = &view->devices[0];
  for (size_t i = 0; i < d->allocation_count; i++)
    if (d->born[i] <= d->peak && d->died[i] > d->peak)
      by_view[d->groupings[0].group[i]] += d->requested_bytes[i];
  for (size_t i = 0; i < profile->devices[0].group_count; i++) {
    const tsr_profile_group *group = &profile->devices[0].groups[i];
    for (int kind = 0; kind < TSR_CATEGORY_COUNT; kind++)
      if (strcmp(tsr_category_name((tsr_category)kind), group->name) == 0) {
        assert_int_equal(group->bytes, by_stack[kind]);
        assert_int_equal(group->bytes, by_view[kind]);
      }
  }
  assert_true(by_view[TSR_CATEGORY_ACTIVATION] > 0 && by_view[TSR_CATEGORY_PARAMETER] > 0);
  tsr_peak_free(peak);
  tsr_profile_free(profile);
  tsr_view_free(view);
  end(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(gpt2),   cmocka_unit_test(small_llama), cmocka_unit_test(tied_weights),
      cmocka_unit_test(losses), cmocka_unit_test(one_notion),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
