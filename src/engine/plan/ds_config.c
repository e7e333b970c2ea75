/* ds_config.c - reads a DeepSpeed configuration as parameters of a run: see tessera/unstable/runs.h.
 *
 *   JSON ──► each key, by the table below ──► wishes ──► parameters that are not set yet
 *                      └──► notes: keys that have no effect
 *
 * The table has a row for each known key. Batches, types, offloading and the number of ranks depend on several
 * keys, so they are decided after the last key. */
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "tessera/unstable/runs.h"
#include "tessera/unstable/terminal.h"

enum { KEY_BYTES = 160, TEXT_BYTES = 64, MOST_NOTES = 64 };
#define LARGEST_COUNT 9007199254740992.0 /* 2^53: a double holds every whole number up to it */

typedef enum form { SECTION, FLAG, COUNT, NUMBER, WORD, BETAS, IGNORED } form;

/* What a key asks for, if it does not set a parameter directly. */
typedef enum wish {
  DIRECT, /* sets the parameter of the row */
  ALL_SEQUENCES,
  MICRO,
  ACCUMULATE,
  STAGE,
  OVERLAP,
  OPTIMIZER_AWAY,
  PARAMETERS_AWAY,
  OPTIMIZER_DEVICE,
  PARAMETER_DEVICE,
  FP16,
  BF16,
  SCALE,
  SCALE_POWER,
  SCALE_WINDOW,
  CLIP,
  OPTIMIZER,
  TORCH_ADAM,
  MOMENTUM,
  WISHES
} wish;

typedef struct row {
  const char *path;
  form form;
  wish wish;
  const char *parameter;
  bool is_of_training; /* changes what `train` does, but no memory */
  const char *why;     /* why it has no effect */
} row;

#define UNIT   "each unit is gathered completely"
#define ORDER  "the order of sums does not change memory"
#define PINNED "host memory counts the same, pinned or not"
#define SAID   "it does not affect memory"
#define ZERO   "zero_optimization."
#define ROW_FLAG(name, w) \
  { .path = name, .form = FLAG, .wish = w }
#define ROW_COUNT(name, w) \
  { .path = name, .form = COUNT, .wish = w }
#define ROW_NO(name, because) \
  { .path = name, .form = IGNORED, .why = because }
#define ROW_SECTION(name) \
  { .path = name, .form = SECTION }

static const row rows[] = {
    ROW_COUNT("train_batch_size", ALL_SEQUENCES),
    ROW_COUNT("train_micro_batch_size_per_gpu", MICRO),
    ROW_COUNT("gradient_accumulation_steps", ACCUMULATE),
    {.path = "gradient_clipping", .form = NUMBER, .wish = CLIP},
    ROW_NO("prescale_gradients", ORDER),
    ROW_NO("gradient_predivide_factor", ORDER),
    ROW_NO("communication_data_type", "ranks send gradients in the type that they have"),
    ROW_NO("sparse_gradients", "gradients are dense"),
    ROW_NO("wall_clock_breakdown", SAID),
    ROW_NO("memory_breakdown", SAID),
    ROW_NO("dump_state", SAID),
    ROW_NO("steps_per_print", SAID),
    ROW_NO("zero_allow_untested_optimizer", "every optimizer here works with every stage"),
    ROW_NO("zero_force_ds_cpu_optimizer", "on the host, tessera has its own optimizer"),
    ROW_NO("activation_checkpointing",
           "other options choose what is recomputed: --checkpoint, --offload activations"),
    ROW_NO("scheduler", "the learning rate follows --schedule and --warmup of train"),
    ROW_SECTION("fp16"),
    ROW_FLAG("fp16.enabled", FP16),
    {.path = "fp16.loss_scale", .form = COUNT, .wish = SCALE, .is_of_training = true},
    {.path = "fp16.initial_scale_power",
     .form = COUNT,
     .wish = SCALE_POWER,
     .is_of_training = true},
    {.path = "fp16.loss_scale_window", .form = COUNT, .wish = SCALE_WINDOW, .is_of_training = true},
    ROW_NO("fp16.hysteresis", "the scale halves at each overflow"),
    ROW_NO("fp16.consecutive_hysteresis", "the scale halves at each overflow"),
    ROW_NO("fp16.min_loss_scale", "the scale has no lower limit"),
    ROW_NO("fp16.auto_cast", "inputs are tokens"),
    ROW_SECTION("bf16"),
    ROW_FLAG("bf16.enabled", BF16),
    ROW_SECTION("zero_optimization"),
    ROW_COUNT(ZERO "stage", STAGE),
    {.path = ZERO "reduce_bucket_size", .form = COUNT, .parameter = "bucket"},
    ROW_FLAG(ZERO "overlap_comm", OVERLAP),
    ROW_FLAG(ZERO "cpu_offload", OPTIMIZER_AWAY),
    ROW_FLAG(ZERO "cpu_offload_params", PARAMETERS_AWAY),
    ROW_NO(ZERO "cpu_offload_use_pin_memory", PINNED),
    ROW_NO(ZERO "allgather_bucket_size", UNIT),
    ROW_NO(ZERO "allgather_partitions", UNIT),
    ROW_NO(ZERO "reduce_scatter", "each rank always gets its part of each sum"),
    ROW_NO(ZERO "contiguous_gradients", "gradients of a unit are contiguous while they are summed"),
    ROW_NO(ZERO "round_robin_gradients", ORDER),
    ROW_NO(ZERO "sub_group_size", "the optimizer updates one unit at a time"),
    ROW_NO(ZERO "stage3_prefetch_bucket_size", UNIT ", before it runs"),
    ROW_NO(ZERO "stage3_param_persistence_threshold", UNIT ", with its small parameters"),
    ROW_NO(ZERO "stage3_max_live_parameters", UNIT ", and freed once it has run"),
    ROW_NO(ZERO "stage3_max_reuse_distance", UNIT ", and freed once it has run"),
    ROW_NO(ZERO "stage3_gather_16bit_weights_on_model_save", "--save writes whole weights"),
    ROW_NO(ZERO "stage3_gather_fp16_weights_on_model_save", "--save writes whole weights"),
    ROW_NO(ZERO "ignore_unused_parameters", "all parameters are used"),
    ROW_NO(ZERO "load_from_fp32_weights", "--resume reads all that was saved"),
    ROW_SECTION(ZERO "offload_optimizer"),
    {.path = ZERO "offload_optimizer.device", .form = WORD, .wish = OPTIMIZER_DEVICE},
    ROW_NO(ZERO "offload_optimizer.pin_memory", PINNED),
    ROW_NO(ZERO "offload_optimizer.nvme_path", "optimizer state is kept in host memory"),
    ROW_NO(ZERO "offload_optimizer.buffer_count", "optimizer state is kept in host memory"),
    ROW_NO(ZERO "offload_optimizer.fast_init", SAID),
    ROW_SECTION(ZERO "offload_param"),
    {.path = ZERO "offload_param.device", .form = WORD, .wish = PARAMETER_DEVICE},
    ROW_NO(ZERO "offload_param.pin_memory", PINNED),
    ROW_NO(ZERO "offload_param.nvme_path", "parameters are kept in host memory"),
    ROW_NO(ZERO "offload_param.buffer_count", "blocks are fetched one by one"),
    ROW_NO(ZERO "offload_param.buffer_size", "blocks are fetched one by one"),
    ROW_NO(ZERO "offload_param.max_in_cpu", "parameters are kept in host memory"),
    ROW_SECTION("optimizer"),
    {.path = "optimizer.type", .form = WORD, .wish = OPTIMIZER},
    ROW_SECTION("optimizer.params"),
    {.path = "optimizer.params.lr", .form = NUMBER, .parameter = "lr", .is_of_training = true},
    {.path = "optimizer.params.betas", .form = BETAS, .parameter = "betas", .is_of_training = true},
    {.path = "optimizer.params.eps", .form = NUMBER, .parameter = "eps", .is_of_training = true},
    {.path = "optimizer.params.weight_decay",
     .form = NUMBER,
     .parameter = "weight_decay",
     .is_of_training = true},
    ROW_FLAG("optimizer.params.torch_adam", TORCH_ADAM),
    {.path = "optimizer.params.momentum",
     .form = NUMBER,
     .wish = MOMENTUM,
     .parameter = "momentum"},
    ROW_NO("optimizer.params.adam_w_mode", "AdamW always decouples weight decay"),
    ROW_NO("optimizer.params.bias_correction", "AdamW always corrects its bias"),
};

typedef struct reader {
  tsr_params *params;
  const tsr_ds_config_how *how;
  tsr_error *error;
  bool has[WISHES];
  uint64_t counts[WISHES]; /* flags are 0 or 1 */
  const char *optimizer;   /* the word for --optimizer */
  size_t noted;
  bool is_fp16; /* this file selects fp16 */
} reader;

static int refuse(reader *r, const char *path, const char *why) {
  return tsr__fail(r->error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE, "%s %s", path, why);
}

static void note(reader *r, const char *path, const char *why) {
  char text[2 * KEY_BYTES];
  assert(path && why);
  if (!r->how->note || r->noted > MOST_NOTES) return;
  (void)snprintf(text, sizeof text, "no effect here: %s, because %s", path, why);
  if (r->noted++ == MOST_NOTES)
    (void)snprintf(text, sizeof text, "no effect here: more keys than %d", MOST_NOTES);
  text[tsr_terminal_clean(text, strlen(text), false)] = '\0'; /* it quotes the file */
  r->how->note(r->how->context, text);
}

/* ---- setting parameters ---- */

static int give(reader *r, const char *path, const char *parameter, const char *text) {
  assert(parameter && text);
  if (tsr_params_has(r->params, parameter)) {
    note(r, path, "the command line overrides it");
    return 0;
  }
  tsr_error cause = {.offset = TSR_OFFSET_NONE};
  int status = tsr_params_set_text(r->params, parameter, text, strlen(text), &cause);
  if (status == TSR_ERROR_ARGUMENT) return refuse(r, path, cause.message);
  if (status && r->error) *r->error = cause;
  return status;
}

static int give_count(reader *r, const char *path, const char *parameter, uint64_t count) {
  char text[TEXT_BYTES];
  (void)snprintf(text, sizeof text, "%" PRIu64, count);
  return give(r, path, parameter, text);
}

static int give_flag(reader *r, const char *parameter) {
  return tsr_params_has(r->params, parameter)
             ? 0
             : tsr_params_set_integer(r->params, parameter, 1, r->error);
}

/* Print the fewest digits that read back as the same number. */
static void print_number(char text[TEXT_BYTES], double number) {
  assert(isfinite(number));
  for (int digits = 1; digits <= 17; digits++) {
    (void)snprintf(text, TEXT_BYTES, "%.*g", digits, number);
    if (!(strtod(text, NULL) < number) && !(strtod(text, NULL) > number)) return;
  }
}

/* ---- single values ---- */

static int read_count(reader *r, const char *path, const json_t *value, uint64_t *out) {
  double number = json_number_value(value);
  if (json_is_boolean(value) || !json_is_number(value) || number < 0 || number > LARGEST_COUNT ||
      floor(number) < number)
    return refuse(r, path, "must be a whole number of at least 0");
  *out = (uint64_t)number;
  return 0;
}

static int take_count(reader *r, const row *k, const json_t *value) {
  static const wish from_one[] = {ALL_SEQUENCES, MICRO, ACCUMULATE};
  uint64_t count = 0;
  assert(k->form == COUNT && k->wish < WISHES && (k->wish != DIRECT || k->parameter));
  int status = read_count(r, k->path, value, &count);
  if (status) return status;
  for (size_t i = 0; i < sizeof from_one / sizeof *from_one; i++)
    if (k->wish == from_one[i] && !count) return refuse(r, k->path, "must be at least 1");
  if (k->wish == STAGE && count > 3) return refuse(r, k->path, "must be 0, 1, 2 or 3");
  if (k->wish == SCALE_POWER && count > 31) return refuse(r, k->path, "must be at most 31");
  if (k->wish == DIRECT) return give_count(r, k->path, k->parameter, count);
  r->has[k->wish] = true;
  r->counts[k->wish] = count;
  return 0;
}

static int take_flag(reader *r, const row *k, const json_t *value) {
  assert(k->form == FLAG && k->wish != DIRECT && k->wish < WISHES);
  if (!json_is_boolean(value)) return refuse(r, k->path, "must be true or false");
  r->has[k->wish] = true;
  r->counts[k->wish] = json_is_true(value);
  return 0;
}

static int take_number(reader *r, const row *k, const json_t *value) {
  char text[TEXT_BYTES];
  double number = json_number_value(value);
  if (!json_is_number(value) || !isfinite(number) || number < 0)
    return refuse(r, k->path, "must be a number of at least 0");
  if (r->how->trains && k->parameter && strcmp(k->parameter, "lr") == 0 && !(number > 0))
    return refuse(r, k->path, "must be above 0");
  print_number(text, number);
  if (k->wish == CLIP) return number > 0 ? give(r, k->path, "clip", text) : 0;
  r->has[k->wish] = r->has[k->wish] || number > 0;
  return r->how->trains ? give(r, k->path, k->parameter, text) : 0;
}

static int take_betas(reader *r, const row *k, const json_t *value) {
  char text[2 * TEXT_BYTES] = "", one[TEXT_BYTES];
  if (!json_is_array(value) || json_array_size(value) != 2)
    return refuse(r, k->path, "must be a list of two numbers");
  for (size_t i = 0; i < 2; i++) {
    const json_t *beta = json_array_get(value, i);
    double number = json_number_value(beta);
    if (!json_is_number(beta) || number < 0 || number >= 1)
      return refuse(r, k->path, "must be two numbers from 0 to below 1");
    print_number(one, number);
    (void)snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", i ? "," : "", one);
  }
  return r->how->trains ? give(r, k->path, k->parameter, text) : 0;
}

static int take_optimizer(reader *r, const char *path, const char *word) {
  static const char *const words[][2] = {{"adam", "adamw-fused"},
                                         {"adamw", "adamw-fused"},
                                         {"fusedadam", "adamw-fused"},
                                         {"sgd", "sgd"},
                                         {"lion", "lion"}};
  char lower[16] = "";
  for (size_t i = 0; i + 1 < sizeof lower && word[i]; i++)
    lower[i] = (char)(word[i] >= 'A' && word[i] <= 'Z' ? word[i] - 'A' + 'a' : word[i]);
  for (size_t i = 0; i < sizeof words / sizeof *words && strlen(word) < sizeof lower; i++)
    if (strcmp(lower, words[i][0]) == 0) r->optimizer = words[i][1];
  return r->optimizer
             ? 0
             : refuse(r, path, "must be Adam, AdamW, Lion or SGD: others are not simulated");
}

static int take_word(reader *r, const row *k, const json_t *value) {
  const char *word = json_string_value(value);
  if (!word) return refuse(r, k->path, "must be a text");
  if (k->wish == OPTIMIZER) return take_optimizer(r, k->path, word);
  bool is_disk = strcmp(word, "nvme") == 0;
  if (!is_disk && strcmp(word, "cpu") != 0 && strcmp(word, "none") != 0)
    return refuse(r, k->path, "must be none, cpu or nvme");
  if (is_disk) note(r, k->path, "nvme counts as host memory here");
  r->has[k->wish] = true;
  r->counts[k->wish] = strcmp(word, "none") != 0;
  return 0;
}

/* ---- keys ---- */

static const row *find(const char *path) {
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (strcmp(rows[i].path, path) == 0) return &rows[i];
  return NULL;
}

static int take(reader *r, const row *k, const json_t *value) {
  const char *word = json_string_value(value);
  if (k->form == IGNORED) {
    note(r, k->path, k->why);
    return 0;
  }
  if (word && strcmp(word, "auto") == 0) {
    note(r, k->path, "auto leaves the default here");
    return 0;
  }
  if (k->is_of_training && !r->how->trains) note(r, k->path, "it changes no memory; train uses it");
  switch (k->form) {
  case FLAG: return take_flag(r, k, value);
  case COUNT: return take_count(r, k, value);
  case NUMBER: return take_number(r, k, value);
  case BETAS: return take_betas(r, k, value);
  default: return take_word(r, k, value);
  }
}

/* The table has at most two levels of sections; deeper keys are unknown. */
static int walk(reader *r, const char *prefix, json_t *section) { /* NOLINT(misc-no-recursion) */
  const char *key;
  json_t *value;
  int status = 0;
  json_object_foreach(section, key, value) {
    char path[KEY_BYTES];
    (void)snprintf(path, sizeof path, "%s%s%.60s", prefix, *prefix ? "." : "", key);
    const row *k = find(path);
    if (!k)
      note(r, path, "tessera does not know this key");
    else if (k->form != SECTION)
      status = take(r, k, value);
    else
      status = json_is_object(value) ? walk(r, path, value) : refuse(r, path, "must be an object");
    if (status) return status;
  }
  return 0;
}

/* ---- decisions that depend on several keys ---- */

/* The whole batch is the micro-batch times the accumulation steps times the ranks. If the micro-batch or the
 * accumulation steps are missing, they follow from the rest. */
static int give_batches(reader *r) {
  uint64_t ranks = r->how->ranks ? r->how->ranks : tsr_params_count(r->params, "ranks");
  uint64_t all = r->counts[ALL_SEQUENCES], micro = r->counts[MICRO], parts = r->counts[ACCUMULATE];
  bool is_free = !tsr_params_has(r->params, "batch") && !tsr_params_has(r->params, "accumulate");
  if (!ranks) ranks = 1;
  if (all && is_free) {
    uint64_t known = ranks;
    if (micro) known = known > UINT64_MAX / micro ? 0 : known * micro;
    if (parts) known = known > UINT64_MAX / parts ? 0 : known * parts;
    if (!known || all % known || (micro && parts && all != known))
      return refuse(r, "train_batch_size",
                    "must be the micro-batch times the accumulation steps times the ranks");
    if (!micro)
      micro = all / known;
    else if (!parts)
      parts = all / known;
  } else if (all) {
    note(r, "train_batch_size", "the command line overrides it");
  }
  int status = micro ? give_count(r, "train_micro_batch_size_per_gpu", "batch", micro) : 0;
  if (status == 0 && parts)
    status = give_count(r, "gradient_accumulation_steps", "accumulate", parts);
  return status;
}

static int give_types(reader *r) {
  if (r->counts[FP16] && r->counts[BF16])
    return refuse(r, "bf16.enabled", "and fp16.enabled cannot both be true");
  if (!r->counts[FP16] && !r->counts[BF16]) return 0;
  const char *path = r->counts[FP16] ? "fp16.enabled" : "bf16.enabled";
  if (tsr_params_has(r->params, "dtype")) {
    note(r, path, "the command line overrides it");
    return 0;
  }
  r->is_fp16 = r->counts[FP16] != 0;
  int status = give(r, path, "dtype", r->counts[FP16] ? "fp16" : "bf16");
  if (status || tsr_params_has(r->params, "lora")) return status; /* adapters are fp32 anyway */
  return give_flag(r, "master_weights");
}

static int note_scale(reader *r) {
  static const struct {
    wish wish;
    const char *path;
  } keys[] = {{SCALE, "fp16.loss_scale"},
              {SCALE_POWER, "fp16.initial_scale_power"},
              {SCALE_WINDOW, "fp16.loss_scale_window"}};
  for (size_t i = 0; r->how->trains && i < sizeof keys / sizeof *keys; i++)
    if (r->has[keys[i].wish]) note(r, keys[i].path, "the loss is scaled only in fp16");
  return 0;
}

/* A loss_scale of 0 means a dynamic scale, which starts at a power of two. */
static int give_scale(reader *r) {
  uint64_t scale = r->counts[SCALE];
  if (!r->is_fp16) return note_scale(r);
  if (scale && r->how->trains)
    note(r, "fp16.loss_scale", "the scale is never constant here: an overflow halves it");
  if (!scale && r->has[SCALE_POWER]) scale = (uint64_t)1 << r->counts[SCALE_POWER];
  const char *path = r->counts[SCALE] ? "fp16.loss_scale" : "fp16.initial_scale_power";
  int status = scale ? give_count(r, path, "loss_scale", scale) : 0;
  if (status || !r->counts[SCALE_WINDOW]) return status;
  return give_count(r, "fp16.loss_scale_window", "loss_scale_window", r->counts[SCALE_WINDOW]);
}

/* If the optimizer is on the host, its gradients are, too. */
static int give_offload(reader *r) {
  bool state = r->counts[OPTIMIZER_DEVICE] || r->counts[OPTIMIZER_AWAY];
  bool parameters = r->counts[PARAMETER_DEVICE] || r->counts[PARAMETERS_AWAY];
  if (!state && !parameters) return 0;
  return give(r, state ? ZERO "offload_optimizer" : ZERO "offload_param", "offload",
              !parameters ? "optimizer,gradients"
              : state     ? "optimizer,gradients,parameters"
                          : "parameters");
}

static int give_stage(reader *r) {
  int status = 0;
  if (!r->has[STAGE]) return 0;
  if (r->counts[STAGE] && !r->how->ranks && !tsr_params_has(r->params, "ranks")) {
    note(r, ZERO "stage", "there is only one rank: set --ranks N");
    status = give_count(r, ZERO "stage", "ranks", 1);
  }
  return status ? status : give_count(r, ZERO "stage", "zero", r->counts[STAGE]);
}

static int give_optimizer(reader *r) {
  if (r->has[MOMENTUM] && (!r->optimizer || strcmp(r->optimizer, "sgd") != 0))
    note(r, "optimizer.params.momentum", "only SGD has momentum");
  if (!r->optimizer) return 0;
  bool is_sgd = strcmp(r->optimizer, "sgd") == 0, is_adam = strncmp(r->optimizer, "adam", 4) == 0;
  return give(r, "optimizer.type", "optimizer",
              is_sgd && r->has[MOMENTUM]         ? "sgd-momentum"
              : is_adam && r->counts[TORCH_ADAM] ? "adamw"
                                                 : r->optimizer);
}

static int give_all(reader *r) {
  int status = give_batches(r);
  if (status == 0) status = give_types(r);
  if (status == 0) status = give_scale(r);
  if (status == 0) status = give_offload(r);
  if (status == 0) status = give_stage(r);
  if (status == 0) status = give_optimizer(r);
  if (status == 0 && r->has[OVERLAP] && !r->counts[OVERLAP]) status = give_flag(r, "no_overlap");
  return status;
}

int tsr_ds_config_apply(const char *text, size_t size_bytes, const tsr_ds_config_how *how,
                        tsr_params *params, tsr_error *error) {
  reader r = {.params = params, .how = how, .error = error};
  json_t *root = NULL;
  int status = tsr_json_load(text, size_bytes, JSON_REJECT_DUPLICATES, NULL, &root, error);
  if (status) return status;
  if (!json_is_object(root))
    status = tsr__fail(error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE,
                       "a DeepSpeed configuration is a JSON object");
  if (status == 0) status = walk(&r, "", root);
  if (status == 0) status = give_all(&r);
  json_decref(root);
  return status;
}
