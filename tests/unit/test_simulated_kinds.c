/* What is inferred of simulated runs, against what is true of them.
 *
 * A simulated trace says of every allocation what it is for (its category), which attribution does
 * not look at. After every event, of the bytes that are live - those from before the recording
 * included - ninety-nine in a hundred must be called what they are. */
#include <stdio.h>

#include "attribution/kind.h"
#include "tessera/simulate.h"
#include "test_support.h"

enum { MOST_WRONG = 100 }; /* one byte in so many */

typedef struct subject {
  tsr_simulation *simulation;
  tsr__roles roles;
  tsr__timeline timeline;
  tsr__phases phases;
  tsr__kinds kinds;
} subject;

static subject infer(const char *text, const tsr_simulate_options *options) {
  subject s = {0};
  tsr_model *model = NULL;
  tsr_error error = {0};
  int status = text[0] == '{' ? tsr_model_read(text, strlen(text), &model, &error)
                              : tsr_model_named(text, &model, &error);
  if (status == 0) status = tsr_simulate(model, options, &s.simulation, &error);
  if (status) fail_msg("%s: %s", text, error.message);
  tsr_model_free(model);
  const tsr_snapshot *snapshot = s.simulation->snapshot;
  assert_int_equal(tsr__roles_compute(snapshot, &s.roles, NULL), 0);
  assert_int_equal(tsr__timeline_compute(snapshot, 0, false, &s.timeline, NULL), 0);
  assert_int_equal(tsr__phases_compute(snapshot, &s.roles, &s.timeline.events, &s.phases, NULL), 0);
  assert_int_equal(tsr__kinds_compute(&s.timeline, &s.roles, &s.phases, &s.kinds, NULL), 0);
  return s;
}

static void release(subject *s) {
  tsr__kinds_release(&s->kinds);
  tsr__phases_release(&s->phases);
  tsr__timeline_release(&s->timeline);
  tsr__roles_release(&s->roles);
  tsr_simulation_free(s->simulation);
}

/* The kind that a role is told as. Within recomputation an activation is "recomputed". */
static tsr_kind kind_of(tsr_memory_role role) {
  switch (role) {
  case TSR_ROLE_PARAMETER:
  case TSR_ROLE_BUFFER: return TSR_KIND_PARAMETER;
  case TSR_ROLE_INPUT: return TSR_KIND_INPUT;
  case TSR_ROLE_ACTIVATION: return TSR_KIND_ACTIVATION;
  case TSR_ROLE_GRADIENT: return TSR_KIND_GRADIENT;
  case TSR_ROLE_OPTIMIZER: return TSR_KIND_OPTIMIZER_STATE;
  case TSR_ROLE_WORKSPACE: return TSR_KIND_WORKSPACE;
  case TSR_ROLE_TEMPORARY:
  case TSR_ROLE_BACKWARD:
  case TSR_ROLE_COUNT: break;
  }
  return TSR_KIND_TEMPORARY;
}

static tsr_memory_role true_role(const subject *s, uint32_t allocation) {
  tsr_text name =
      tsr_snapshot_string(s->simulation->snapshot, tsr_id_at(s->timeline.events.category,
                                                             s->timeline.birth.items[allocation]));
  int role = 0;
  for (; role < TSR_ROLE_COUNT; role++) {
    const char *word = tsr_memory_role_name((tsr_memory_role)role);
    if (strlen(word) == name.size_bytes && memcmp(word, name.data, name.size_bytes) == 0) break;
  }
  assert_true(role < TSR_ROLE_COUNT);
  return (tsr_memory_role)role;
}

/* Bytes from before the recording that are called something else. Equal blocks cannot be told
 * apart, so sums are compared. */
static uint64_t wrong_at_start(const subject *s) {
  uint64_t truth[TSR_KIND_COUNT] = {0}, said[TSR_KIND_COUNT] = {0}, wrong = 0;
  for (int i = 0; i < TSR_ROLE_COUNT; i++)
    truth[kind_of((tsr_memory_role)i)] += s->simulation->start_role_bytes[i];
  for (uint32_t i = 0; i < s->timeline.initial.count; i++)
    said[s->kinds.kind[i]] += s->timeline.initial.items[i].requested_bytes;
  for (int i = 0; i < TSR_KIND_COUNT; i++)
    if (truth[i] > said[i]) wrong += truth[i] - said[i];
  return wrong;
}

static bool is_right(const subject *s, uint32_t allocation) {
  tsr_kind said = (tsr_kind)s->kinds.kind[allocation];
  tsr_kind truth = kind_of(true_role(s, allocation));
  return said == truth || (said == TSR_KIND_RECOMPUTED && truth == TSR_KIND_ACTIVATION);
}

static void explain(const subject *s, const char *what, uint32_t at, uint64_t wrong,
                    uint64_t live) {
  print_message("%s: at event %u, %llu of %llu live bytes are called something else\n", what, at,
                (unsigned long long)wrong, (unsigned long long)live);
  print_message("  from before the recording: %llu\n", (unsigned long long)wrong_at_start(s));
  for (uint32_t i = (uint32_t)s->timeline.initial.count; i < s->timeline.birth.count; i++) {
    uint32_t birth = s->timeline.birth.items[i], death = s->timeline.death.items[i];
    uint64_t size = tsr__timeline_requested(&s->timeline, i);
    if (birth > at || death <= at || is_right(s, i) || size < live / 1000) continue;
    print_message("  %llu bytes, events %u to %u: is %s, called %s (%s)\n",
                  (unsigned long long)size, birth, death, tsr_memory_role_name(true_role(s, i)),
                  tsr_kind_name((tsr_kind)s->kinds.kind[i]),
                  tsr_evidence_text((tsr_evidence)s->kinds.evidence[i]));
  }
  fail_msg("%s: too much is called something else", what);
}

static void check(const char *model, tsr_simulate_options options) {
  char what[160];
  options.categories = true;
  (void)snprintf(
      what, sizeof what,
      "%.60s batch %llu seq %llu optimizer %d dtype %d attention %d checkpoint %d loss %llu", model,
      (unsigned long long)options.batch, (unsigned long long)options.sequence,
      (int)options.optimizer, (int)options.dtype, (int)options.attention, (int)options.checkpoint,
      (unsigned long long)options.loss_chunk);
  subject s = infer(model, &options);
  uint64_t wrong = wrong_at_start(&s), live = 0;
  for (int i = 0; i < TSR_ROLE_COUNT; i++) live += s.simulation->start_role_bytes[i];
  for (uint32_t event = 0; event < s.timeline.events.count; event++) {
    uint32_t allocation = s.timeline.allocation_of[event];
    if (allocation == TSR_NONE || allocation < s.timeline.initial.count) continue;
    uint64_t size = tsr__timeline_requested(&s.timeline, allocation);
    uint64_t lie = is_right(&s, allocation) ? 0 : size;
    if (s.timeline.birth.items[allocation] == event) {
      live += size;
      wrong += lie;
    } else if (s.timeline.death.items[allocation] == event) {
      live -= size;
      wrong -= lie;
    }
    if (wrong > live / MOST_WRONG) explain(&s, what, event, wrong, live);
  }
  release(&s);
}

#define SMALL_LLAMA                                                                              \
  "{\"model_type\":\"llama\",\"vocab_size\":9001,\"hidden_size\":256,\"intermediate_size\":700," \
  "\"num_attention_heads\":8,\"num_key_value_heads\":2,\"num_hidden_layers\":4}"
#define SMALL_QWEN                                                                               \
  "{\"model_type\":\"qwen2\",\"vocab_size\":9001,\"hidden_size\":256,\"intermediate_size\":700," \
  "\"num_attention_heads\":8,\"num_key_value_heads\":8,\"num_hidden_layers\":4,"                 \
  "\"tie_word_embeddings\":true}"

static void tutorial(void **state) {
  (void)state;
  for (int checkpoint = 0; checkpoint < 4; checkpoint++)
    check("gpt2", (tsr_simulate_options){.batch = 4,
                                         .sequence = 512,
                                         .steps = 5,
                                         .checkpoint = (tsr_simulate_checkpoint)checkpoint,
                                         .checkpoint_every = 3});
}

static void optimizers_and_types(void **state) {
  static const char *const models[] = {"gpt2", SMALL_LLAMA, SMALL_QWEN};
  (void)state;
  for (size_t m = 0; m < sizeof models / sizeof *models; m++)
    for (int optimizer = 0; optimizer < 5; optimizer++)
      for (int dtype = 0; dtype < 5; dtype++)
        for (int checkpoint = 0; checkpoint < 2; checkpoint++)
          check(models[m], (tsr_simulate_options){
                               .batch = 4,
                               .sequence = 128,
                               .steps = 3,
                               .attention = dtype == 0 ? TSR_ATTENTION_EAGER : TSR_ATTENTION_SDPA,
                               .optimizer = (tsr_simulate_optimizer)optimizer,
                               .dtype = (tsr_simulate_dtype)dtype,
                               .checkpoint = (tsr_simulate_checkpoint)checkpoint});
}

static void kernels_and_losses(void **state) {
  (void)state;
  for (int attention = 0; attention < 5; attention++)
    for (int checkpoint = 0; checkpoint < 4; checkpoint++)
      for (int variant = 0; variant < 4; variant++)
        check("gpt2",
              (tsr_simulate_options){.batch = 2,
                                     .sequence = 128,
                                     .steps = 3,
                                     .attention = (tsr_simulate_attention)attention,
                                     .attention_chunk = 48,
                                     .dtype = attention == TSR_ATTENTION_FLASH || variant == 3
                                                  ? TSR_SIMULATE_AUTOCAST_BF16
                                                  : TSR_SIMULATE_FP32,
                                     .checkpoint = (tsr_simulate_checkpoint)checkpoint,
                                     .checkpoint_every = 5,
                                     .loss_chunk = variant == 1 ? 100 : 0,
                                     .gelu_fused = variant == 2,
                                     .no_kv_cache = variant >= 1,
                                     .fresh_process = variant == 2,
                                     .accumulate = variant == 3 ? 2 : 1});
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(tutorial),
      cmocka_unit_test(optimizers_and_types),
      cmocka_unit_test(kernels_and_losses),
  };
  return cmocka_run_group_tests_name("simulated_kinds", tests, NULL, NULL);
}
