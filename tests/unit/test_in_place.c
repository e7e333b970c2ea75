/* Ops that write over an operand: the same bits where that is possible, and a refusal that names who is in the way
 * where it is not. */
#include "run_support.h"

enum { TOKENS = 2 * 8, STEPS = 4 };

#define GPT2_WITH(more)                                                                       \
  "{\"model_type\":\"gpt2\",\"vocab_size\":31,\"n_positions\":8,\"n_embd\":12,\"n_layer\":2," \
  "\"n_head\":3" more "}"

static const char gpt2[] = GPT2_WITH(""),
                  gpt2_silu[] = GPT2_WITH(",\"activation_function\":\"silu\"");
static const char gpt2_silent[] = GPT2_WITH(",\"resid_pdrop\":0,\"embd_pdrop\":0");
static const char llama[] =
    "{\"model_type\":\"llama\",\"vocab_size\":31,\"hidden_size\":12,\"num_hidden_layers\":2,"
    "\"num_attention_heads\":3,\"head_dim\":4,\"num_key_value_heads\":3,\"intermediate_size\":20}";

typedef struct in_place_case {
  const char *model;
  unsigned in_place;
  tsr_simulate_options run;
  const char *recomputed; /* ops by name: what they save is computed again; NULL: none */
  const char *refused;    /* how the message begins */
} in_place_case;

#define OWN      .book = TSR_BOOK_OWN
#define FUSED    .gelu_fused = true
#define FULL     .checkpoint = TSR_CHECKPOINT_FULL
#define ADD      TSR_IN_PLACE_ADD
#define DROPOUT  TSR_IN_PLACE_DROPOUT
#define GELU     TSR_IN_PLACE_GELU
#define SILU     TSR_IN_PLACE_SILU
#define PRODUCT  TSR_IN_PLACE_PRODUCT
#define AUTOCAST .dtype = TSR_SIMULATE_AUTOCAST_BF16

static const in_place_case possible[] = {
    {gpt2, ADD, {0}, NULL, NULL},
    {gpt2, ADD | DROPOUT, {0}, NULL, NULL},
    {gpt2, ADD | DROPOUT, {OWN}, NULL, NULL},
    {gpt2, DROPOUT, {OWN, AUTOCAST}, NULL, NULL},
    {gpt2_silent, ADD, {0}, NULL, NULL},
    {gpt2, ADD | DROPOUT, {FULL}, NULL, NULL},
    {gpt2, ADD | DROPOUT, {OWN, FULL}, NULL, NULL},
    {gpt2, ADD | DROPOUT, {FULL, .non_reentrant = true}, NULL, NULL},
    {gpt2, ADD | DROPOUT, {OWN, .checkpoint = TSR_CHECKPOINT_SELECTIVE}, NULL, NULL},
    {gpt2, ADD | DROPOUT, {OWN, .offload = {.activations = TSR_SPACE_HOST}}, NULL, NULL},
    {gpt2, ADD | DROPOUT, {.offload = {.activations = TSR_SPACE_HOST}}, NULL, NULL},
    /* What is in place is computed again: by ops that made their operands again. */
    {gpt2, ADD | DROPOUT, {0}, "layer norm,linear,dropout", NULL},
    {gpt2, ADD | DROPOUT, {OWN}, "layer norm,linear", NULL},
    {gpt2, GELU, {FUSED}, "GELU", NULL},
    {gpt2, GELU, {OWN, FUSED}, "GELU,linear", NULL},
    {gpt2_silu, SILU, {OWN}, "SiLU", NULL},
    {gpt2_silu, SILU, {0}, "SiLU,linear", NULL},
    {llama, ADD, {0}, NULL, NULL},
    {llama, ADD, {OWN}, "RMS norm,linear without bias", NULL},
    {llama, SILU, {OWN}, "SiLU gate", NULL},
    {llama, SILU, {0}, "SiLU", NULL},
    {llama, PRODUCT, {0}, "product", NULL},
    {llama, SILU | PRODUCT, {0}, "SiLU,product", NULL},
    {llama, SILU | PRODUCT, {0}, "SiLU,product,linear without bias", NULL},
};

static const in_place_case impossible[] = {
    {gpt2, GELU, {FUSED}, NULL, "GELU of block 0 cannot be in place: it saves"},
    {gpt2, GELU, {OWN, FUSED}, NULL, "GELU of block 0 cannot be in place: it saves"},
    {gpt2, GELU, {FUSED, FULL}, NULL, "GELU of block 1 cannot be in place: it saves"},
    {gpt2,
     GELU,
     {FUSED, FULL, .non_reentrant = true},
     NULL,
     "GELU of block 1 cannot be in place: it saves"},
    {llama, SILU, {0}, NULL, "SiLU of block 0 cannot be in place: it saves"},
    {llama, PRODUCT, {0}, NULL, "product of block 0 cannot be in place: it saves"},
    {llama, SILU, {OWN}, NULL, "SiLU gate of block 0 cannot be in place: it saves"},
    {gpt2, ADD, {AUTOCAST}, NULL, "add of block 0 cannot be in place: its result has another type"},
    {gpt2, ADD, {AUTOCAST, OWN}, NULL, "add of block 0 cannot be in place: its result has another"},
    {gpt2, GELU, {0}, NULL, "nothing to do in place: the model has no GELU as one kernel"},
    {gpt2, PRODUCT, {0}, NULL, "nothing to do in place: the model has no product"},
    {gpt2_silent, DROPOUT, {0}, NULL, "nothing to do in place: the model has no dropout"},
    {llama, SILU | DROPOUT, {OWN}, "SiLU gate", "nothing to do in place: the model has no dropout"},
};

typedef struct subject {
  training t;
  tsr_simulate_options run;
  tsr_block_choice blocks;
  tsr_saved_choice saved[4];
  char names[4][32];
  int64_t tokens[TOKENS];
  double losses[STEPS];
} subject;

static const int64_t *batch(void *context, uint64_t step, uint64_t micro_batch, uint32_t which) {
  (void)step, (void)micro_batch;
  return which == 2 ? NULL : ((subject *)context)->tokens;
}

static bool keep_loss(void *context, const tsr__executor *e, const tsr__executed_step *step) {
  (void)e;
  ((subject *)context)->losses[step->step - 1] = step->loss;
  return true;
}

/* In both blocks, what these ops save is computed again. */
static void recompute(subject *s, const char *names) {
  size_t count = 0;
  for (const char *name = names; name && *name; count++) {
    size_t length = strcspn(name, ",");
    assert_true(count < 4 && length < sizeof *s->names);
    memcpy(s->names[count], name, length);
    s->saved[count] = (tsr_saved_choice){s->names[count], TSR_SAVED_RECOMPUTE};
    name += length + (name[length] == ',');
  }
  s->blocks = (tsr_block_choice){
      .last = 1, .checkpoint = s->run.checkpoint, .saved = s->saved, .saved_count = count};
  s->run.blocks = &s->blocks;
  s->run.block_count = 1;
}

static bool open_subject(subject *s, const in_place_case *c, unsigned in_place) {
  *s = (subject){.run = c->run};
  s->run.batch = 2;
  s->run.sequence = 8;
  s->run.no_kv_cache = true;
  s->run.in_place = in_place;
  if (c->recomputed) recompute(s, c->recomputed);
  for (size_t i = 0; i < TOKENS; i++) s->tokens[i] = (int64_t)(i * 7 % 31);
  if (!training_open(&s->t, c->model, &s->run, NULL)) return false;
  s->t.options.steps = STEPS;
  s->t.options.folder = "/tmp";
  s->t.options.batch = batch;
  s->t.options.step = keep_loss;
  return true;
}

static void run_subject(subject *s, const in_place_case *c, unsigned in_place,
                        tsr__execution *out) {
  tsr_error error = {0};
  if (!open_subject(s, c, in_place)) {
    char text[256] = "";
    if (s->t.tape.clash.reason) tsr__clash_describe(&s->t.tape, text, sizeof text);
    fail_msg("case %d: %s", (int)(c - possible), text);
  }
  if (tsr__execute(&s->t.schedule, &s->t.options, out, &error)) fail_msg("%s", error.message);
}

/* The same losses, and as many allocations fewer as there are ops in place, but for PyTorch's dropout, which makes noise. */
static void same_bits(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof possible / sizeof *possible; i++) {
    const in_place_case *c = &possible[i];
    subject apart, in_place;
    tsr__execution out, other;
    run_subject(&apart, c, 0, &other);
    run_subject(&in_place, c, c->in_place, &out);
    if (memcmp(apart.losses, in_place.losses, sizeof apart.losses) != 0)
      fail_msg("case %zu: %g, apart %g", i, in_place.losses[STEPS - 1], apart.losses[STEPS - 1]);
    size_t fewer = apart.t.schedule.slots.count - in_place.t.schedule.slots.count;
    bool is_default = c->run.book == TSR_BOOK_OWN && c->in_place == ADD;
    if (is_default ? fewer != 0 : fewer < 2 || fewer > apart.t.schedule.slots.count)
      fail_msg("case %zu: %zu allocations fewer", i, fewer);
    training_close(&apart.t);
    training_close(&in_place.t);
  }
}

static void refuse(const in_place_case *c, size_t i) {
  subject s;
  char text[256];
  if (open_subject(&s, c, c->in_place)) fail_msg("case %zu is not refused", i);
  tsr__clash_describe(&s.t.tape, text, sizeof text);
  if (strncmp(text, c->refused, strlen(c->refused)) != 0) fail_msg("case %zu: %s", i, text);
  training_close(&s.t);
}

/* Alone, and where gradients that never came would be clipped. */
static void refusals(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof impossible / sizeof *impossible; i++) {
    in_place_case c = impossible[i];
    refuse(&c, i);
    c.run.clip_norm = 1;
    refuse(&c, i);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(same_bits), cmocka_unit_test(refusals)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
