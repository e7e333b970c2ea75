/* state.c - see state.h. */
#include "train/state.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/memory.h"

enum { NAME_BYTES = TSR__WEIGHT_NAME_BYTES + 16, NUMBER_BYTES = 24, PIECE_BYTES = 1 << 16 };

/* Keys of metadata. */
#define KEY_TRAINING "tessera_training" /* of weights: the file of the training */
#define KEY_STEPS    "steps"
#define KEY_UPDATES  "updates"
#define KEY_NOTES    "notes"
#define KEY_TOKENS   "data_tokens"
#define KEY_HASH     "data_hash" /* of them: 16 hexadecimal digits */

/* ---- opening ---- */

static const char *metadata(const tsr__safetensors *file, const char *key) {
  return json_string_value(json_object_get(json_object_get(file->header, "__metadata__"), key));
}

static bool read_count(const tsr__safetensors *file, const char *key, uint64_t *out) {
  const char *text = metadata(file, key);
  char *end = NULL;
  if (!text || text[0] < '0' || text[0] > '9') return false;
  *out = strtoull(text, &end, 10);
  return *end == '\0' && *out < UINT64_MAX / 2;
}

/* What it was trained on; earlier versions did not save that. */
static void read_data(tsr__saved *saved) {
  const char *hash = metadata(&saved->training, KEY_HASH);
  if (!hash || strspn(hash, "0123456789abcdef") != 16 || hash[16] != '\0') return;
  if (!read_count(&saved->training, KEY_TOKENS, &saved->data_tokens)) saved->data_tokens = 0;
  saved->data_hash = strtoull(hash, NULL, 16);
}

int tsr__saved_open_weights(const char *path, tsr__saved *out, tsr_error *error) {
  *out = (tsr__saved){.training.handle = -1};
  return tsr__weight_files_open(path, &out->weights, error);
}

static int open_training(const char *folder, tsr__saved *saved, tsr_error *error) {
  const char *name =
      saved->weights.file_count == 1 ? metadata(saved->weights.files, KEY_TRAINING) : NULL;
  tsr__buffer path = {0};
  if (!name || !name[0] || strchr(name, '/'))
    return tsr__fail(error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE,
                     "the weights there were not saved by a training that could go on; train the "
                     "folder as MODEL to begin with them");
  tsr__buffer_printf(&path, "%s/%s", folder, name);
  tsr__buffer_append(&path, "", 1);
  if (path.failed) {
    tsr__buffer_release(&path);
    return tsr__fail_memory(error);
  }
  saved->training_path = path.data;
  int status = tsr__safetensors_open(path.data, &saved->training, error);
  if (status == 0 && (!read_count(&saved->training, KEY_STEPS, &saved->steps) ||
                      !read_count(&saved->training, KEY_UPDATES, &saved->updates)))
    status = tsr__fail(error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE,
                       "its metadata does not contain the number of steps");
  if (status == 0) read_data(saved);
  if (status && error) {
    tsr_error cause = *error;
    (void)tsr__fail(error, (tsr_status)status, cause.offset, "%.80s: %s", name, cause.message);
  }
  return status;
}

int tsr__saved_open(const char *folder, tsr__saved *out, tsr_error *error) {
  int status = tsr__saved_open_weights(folder, out, error);
  if (status == 0) status = open_training(folder, out, error);
  if (status) tsr__saved_release(out);
  return status;
}

const char *tsr__saved_notes(const tsr__saved *saved) {
  const char *notes = metadata(&saved->training, KEY_NOTES);
  return notes ? notes : "";
}

void tsr__saved_release(tsr__saved *saved) {
  tsr__weight_files_release(&saved->weights);
  tsr__safetensors_release(&saved->training);
  tsr__free(saved->training_path);
  *saved = (tsr__saved){.training.handle = -1};
}

/* ---- reading ---- */

static tsr__kernel_tensor part_of(const tsr__kernel_tensor *whole, uint64_t first, uint64_t count) {
  tsr__kernel_tensor part = *whole;
  part.layout = tsr__layout_dense(TSR__SHAPE(count));
  part.layout.offset = whole->layout.offset + first;
  return part;
}

/* Some elements of a tensor that is read column by column, all of one column. */
static tsr__kernel_tensor column_of(const tsr__kernel_tensor *whole, uint64_t first,
                                    uint64_t count) {
  uint64_t rows = whole->layout.shape.dim[0], columns = whole->layout.shape.dim[1];
  assert(whole->layout.shape.rank == 2 && first % rows + count <= rows);
  tsr__kernel_tensor part = part_of(whole, first % rows * columns + first / rows, count);
  part.layout.stride[0] = columns;
  return part;
}

/* An array into a tensor without gaps, of the same number of elements; other types are converted. */
static int read_array(const tsr__safetensors *file, const tsr__array *array,
                      const tsr__kernel_tensor *to, tsr_error *error) {
  uint64_t total = tsr__shape_elements(to->layout.shape), each = tsr__array_type_bytes(array->type),
           most = PIECE_BYTES / each, column = array->is_transposed ? array->dim[0] : total;
  int dtype = tsr__weight_dtype(array->type);
  double piece[PIECE_BYTES / sizeof(double)];
  assert(to->data && tsr__layout_is_dense(to->layout) && array->size_bytes == total * each);
  assert(dtype >= 0);
  if ((tsr__dtype)dtype == to->dtype && !array->is_transposed)
    return tsr__safetensors_read(file, array, 0, (char *)to->data + to->layout.offset * each,
                                 (size_t)array->size_bytes, error);
  for (uint64_t first = 0, count; first < total; first += count) {
    uint64_t left = column - first % column;
    count = left < most ? left : most;
    int status =
        tsr__safetensors_read(file, array, first * each, piece, (size_t)(count * each), error);
    if (status) return status;
    tsr__kernel_tensor from = {
        .data = piece, .dtype = (tsr__dtype)dtype, .layout = tsr__layout_dense(TSR__SHAPE(count))};
    tsr__kernel_tensor part =
        array->is_transposed ? column_of(to, first, count) : part_of(to, first, count);
    tsr__kernel_args copy = {.reads = {from}, .writes = {part}};
    tsr__kernel_row_of(TSR__KERNEL_TO_COPY)->reference(&copy);
  }
  return 0;
}

/* An array of the training, which has the tensor's elements and type. */
static int find_state(const tsr__saved *saved, const tsr__program *p, tsr__tensor_id tensor,
                      const char *name, const tsr__array **out, tsr_error *error) {
  const tsr__array *array = tsr__safetensors_find(&saved->training, name);
  const char *slash = strrchr(saved->training_path, '/');
  const char *file = slash ? slash + 1 : saved->training_path;
  if (!array)
    return tsr__fail(
        error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE,
        "%.80s has no array \"%s\"; it was trained with another --optimizer or --dtype", file,
        name);
  if (tsr__weight_dtype(array->type) != (int)tsr__tensor_dtype(p->tape, tensor) ||
      array->size_bytes != tsr__tensor_bytes(p->tape, tensor))
    return tsr__fail(error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE,
                     "%.80s: array \"%s\" has another size or type than this model needs", file,
                     name);
  *out = array;
  return 0;
}

/* Weights that are no numbers would be found in the first loss, which is not their cause. */
static int read_weight(const tsr__safetensors *file, const tsr__array *array,
                       const tsr__kernel_tensor *to, tsr_error *error) {
  int status = read_array(file, array, to, error);
  if (status || tsr__tensor_is_finite(to)) return status;
  return tsr__fail(error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE,
                   "array \"%.100s\" has an element that is not a finite number", array->name);
}

static int read_state(const tsr__saved *saved, const tsr__program *p, const tsr__executor *executor,
                      tsr__tensor_id tensor, const char *name, tsr_error *error) {
  const tsr__array *array = NULL;
  int status = find_state(saved, p, tensor, name, &array, error);
  if (status) return status;
  tsr__kernel_tensor to = tsr__executor_tensor(executor, tensor);
  return read_array(&saved->training, array, &to, error);
}

/* ---- the names of state ---- */

typedef struct state_tensor {
  tsr__tensor_id tensor;
  char name[NAME_BYTES];
} state_tensor;

/* The state of parameter number `index`, whose weight has this name: up to four tensors. */
static size_t list_states(const tsr__tape *tape, size_t index, const char *name,
                          state_tensor out[4]) {
  static const char *const endings[] = {"exp_avg", "exp_avg_sq", "step", "master"};
  size_t count = 0;
  if (index >= tape->states.count) return 0; /* SGD has none */
  const tsr__optimizer_state *state = &tape->states.items[index];
  const tsr__tensor_id tensors[] = {state->first, state->second, state->count, state->master};
  for (size_t i = 0; i < 4; i++) {
    if (!tensors[i]) continue;
    out[count].tensor = tensors[i];
    (void)snprintf(out[count++].name, NAME_BYTES, "%s.%s", name, endings[i]);
  }
  return count;
}

/* The same by weight. */
static size_t states_of(const tsr__program *p, const tsr__weight *weight, state_tensor out[4]) {
  const tsr__tape *tape = p->tape;
  size_t index = 0;
  while (index < tape->parameters.count && tape->parameters.items[index] != weight->tensor) index++;
  assert(index < tape->parameters.count);
  return list_states(tape, index, weight->name, out);
}

static const char *name_of(const tsr__weight_list *weights, tsr__tensor_id tensor) {
  size_t i = 0;
  while (i + 1 < weights->count && weights->items[i].tensor != tensor) i++;
  assert(weights->items[i].tensor == tensor);
  return weights->items[i].name;
}

static size_t list_scaler(const tsr__program *p, state_tensor out[2]) {
  if (!p->loss_scale) return 0;
  out[0] = (state_tensor){p->loss_scale, "loss_scale"};
  out[1] = (state_tensor){p->good_steps, "good_steps"};
  return 2;
}

/* ---- loading ---- */

static int check_states(const tsr__saved *saved, const tsr__program *p, const state_tensor *states,
                        size_t count, tsr_error *error) {
  const tsr__array *array;
  int status = 0;
  for (size_t i = 0; status == 0 && i < count; i++)
    status = find_state(saved, p, states[i].tensor, states[i].name, &array, error);
  return status;
}

/* Fails if the training has state that the run would drop without a word: another optimizer's. */
static int check_dropped(const tsr__saved *saved, const tsr__program *p,
                         const tsr__weight_list *weights, tsr_error *error) {
  const char *slash = strrchr(saved->training_path, '/');
  state_tensor states[4];
  size_t needed = list_scaler(p, states);
  for (size_t i = 0; i < weights->count; i++) needed += states_of(p, &weights->items[i], states);
  if (saved->training.count <= needed) return 0;
  return tsr__fail(error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE,
                   "%.80s has %zu arrays, of which this run would go on with %zu; it was trained "
                   "with another --optimizer or --dtype",
                   slash ? slash + 1 : saved->training_path, saved->training.count, needed);
}

int tsr__saved_check(const tsr__saved *saved, const tsr__program *p,
                     const tsr__weight_list *weights, tsr_error *error) {
  const tsr__array *array;
  const tsr__safetensors *file;
  state_tensor states[4];
  int status = 0;
  if (!saved->weights.file_count) return 0;
  for (size_t i = 0; status == 0 && i < weights->count; i++) {
    status = tsr__weights_find(p, &weights->items[i], &saved->weights, &array, &file, error);
    if (status == 0 && saved->training_path) {
      size_t count = states_of(p, &weights->items[i], states);
      status = check_states(saved, p, states, count, error);
    }
  }
  if (status == 0) status = tsr__weights_check_names(p, weights, &saved->weights, error);
  if (status || !saved->training_path) return status;
  status = check_states(saved, p, states, list_scaler(p, states), error);
  return status ? status : check_dropped(saved, p, weights, error);
}

int tsr__saved_load(const tsr__saved *saved, const tsr__program *p, const tsr__weight_list *weights,
                    const tsr__executor *executor, tsr_error *error) {
  const tsr__array *array = NULL;
  const tsr__safetensors *file = NULL;
  state_tensor scaler[2];
  int status = 0;
  for (size_t i = 0; status == 0 && saved->weights.file_count && i < weights->count; i++) {
    tsr__kernel_tensor to = tsr__executor_tensor(executor, weights->items[i].tensor);
    status = tsr__weights_find(p, &weights->items[i], &saved->weights, &array, &file, error);
    if (status == 0) status = read_weight(file, array, &to, error);
  }
  size_t count = saved->training_path ? list_scaler(p, scaler) : 0;
  for (size_t i = 0; status == 0 && i < count; i++)
    status = read_state(saved, p, executor, scaler[i].tensor, scaler[i].name, error);
  return status;
}

int tsr__saved_restore(const tsr__saved *saved, const tsr__program *p,
                       const tsr__weight_list *weights, const tsr__executor *executor,
                       tsr__tensor_id tensor, tsr_error *error) {
  const tsr__tape *tape = p->tape;
  state_tensor states[4] = {{.tensor = tensor}};
  assert(saved->training_path);
  for (size_t i = 0; i < tape->states.count; i++) {
    const tsr__optimizer_state *state = &tape->states.items[i];
    if (state->first != tensor && state->second != tensor && state->count != tensor &&
        state->master != tensor)
      continue;
    size_t count = list_states(tape, i, name_of(weights, tape->parameters.items[i]), states), k = 0;
    while (k + 1 < count && states[k].tensor != tensor) k++;
    assert(states[k].tensor == tensor);
    return read_state(saved, p, executor, tensor, states[k].name, error);
  }
  return 0;
}

/* ---- writing ---- */

typedef TSR__VECTOR(tsr__array) arrays;
typedef TSR__VECTOR(state_tensor) state_tensors;

static bool add_array(const tsr__program *p, const state_tensor *from, arrays *out) {
  tsr__shape shape = tsr__tensor_shape(p->tape, from->tensor);
  tsr__array array = {.name = from->name,
                      .type = tsr__weight_array_type(tsr__tensor_dtype(p->tape, from->tensor)),
                      .rank = shape.rank};
  for (uint32_t i = 0; i < shape.rank; i++) array.dim[i] = shape.dim[i];
  return TSR__VECTOR_PUSH(out, array);
}

static tsr__tensor_id tensor_named(const state_tensors *tensors, const char *name) {
  size_t i = 0;
  while (i + 1 < tensors->count && tensors->items[i].name != name) i++;
  assert(tensors->items[i].name == name);
  return tensors->items[i].tensor;
}

/* The tensors as a file. Their names must not move. */
static int write_file(const tsr_train_state *s, const state_tensors *tensors,
                      const char *const *notes, tsr_write_fn *write, void *context,
                      tsr_error *error) {
  arrays all = {0};
  int status = 0;
  for (size_t i = 0; status == 0 && i < tensors->count; i++)
    if (!add_array(s->program, &tensors->items[i], &all)) status = tsr__fail_memory(error);
  if (status == 0)
    status = tsr__safetensors_write_header(all.items, all.count, notes, write, context, error);
  for (size_t i = 0; status == 0 && i < all.count; i++) {
    const tsr__array *array = &all.items[i];
    tsr__kernel_tensor from = tsr__executor_tensor(s->executor, tensor_named(tensors, array->name));
    uint64_t each = tsr__dtype_bytes(from.dtype);
    assert(from.data && tsr__layout_is_dense(from.layout));
    if (write(context, (const char *)from.data + from.layout.offset * each,
              (size_t)array->size_bytes))
      status = tsr__fail(error, TSR_ERROR_WRITE, TSR_OFFSET_NONE, "cannot write");
  }
  TSR__VECTOR_FREE(&all);
  return status;
}

uint64_t tsr_train_state_steps(const tsr_train_state *s) {
  return s->steps;
}

int tsr_train_write_weights(const tsr_train_state *s, const char *training, tsr_write_fn *write,
                            void *context, tsr_error *error) {
  const char *const notes[] = {"format", "pt", KEY_TRAINING, training, NULL};
  state_tensors tensors = {0};
  int status = 0;
  for (size_t i = 0; status == 0 && i < s->weights->count; i++) {
    state_tensor weight = {.tensor = s->weights->items[i].tensor};
    (void)snprintf(weight.name, sizeof weight.name, "%s", s->weights->items[i].name);
    if (!TSR__VECTOR_PUSH(&tensors, weight)) status = tsr__fail_memory(error);
  }
  if (status == 0) status = write_file(s, &tensors, notes, write, context, error);
  TSR__VECTOR_FREE(&tensors);
  return status;
}

/* A model that was trained in fp32 would else be loaded in the type it was published in. Returns the changed config,
 * which the caller releases, or NULL if the model's own will do. */
static json_t *retyped_config(const char *before, tsr__dtype dtype) {
  static const char *const keys[] = {"dtype", "torch_dtype"};
  const char *name = dtype == TSR__DTYPE_BF16  ? "bfloat16"
                     : dtype == TSR__DTYPE_F16 ? "float16"
                                               : "float32";
  json_t *config = json_loads(before, 0, NULL);
  bool is_other = false;
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    const char *named = json_string_value(json_object_get(config, keys[i]));
    if (!named || strcmp(named, name) == 0) continue;
    is_other |= json_object_set_new(config, keys[i], json_string(name)) == 0;
  }
  if (is_other) return config;
  json_decref(config);
  return NULL;
}

typedef struct sink {
  tsr_write_fn *write;
  void *context;
} sink;

static int write_text(const char *text, size_t size_bytes, void *to) {
  const sink *s = to;
  return s->write(s->context, text, size_bytes);
}

int tsr_train_write_config(const tsr_train_state *s, tsr_write_fn *write, void *context,
                           tsr_error *error) {
  const char *before = tsr_model_config(s->program->model);
  sink to = {write, context};
  assert(before && s->weights->count);
  json_t *other =
      retyped_config(before, tsr__tensor_dtype(s->program->tape, s->weights->items[0].tensor));
  bool failed = other ? json_dump_callback(other, write_text, &to,
                                           JSON_INDENT(2) | JSON_REAL_PRECISION(15)) != 0 ||
                            write(context, "\n", 1)
                      : write(context, before, strlen(before)) != 0;
  json_decref(other);
  return failed ? tsr__fail(error, TSR_ERROR_WRITE, TSR_OFFSET_NONE, "cannot write") : 0;
}

static bool push_states(state_tensors *out, const state_tensor *states, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (!TSR__VECTOR_PUSH(out, states[i])) return false;
  return true;
}

int tsr_train_write_training(const tsr_train_state *s, const char *notes, tsr_write_fn *write,
                             void *context, tsr_error *error) {
  char steps[NUMBER_BYTES], updates[NUMBER_BYTES], count[NUMBER_BYTES], hash[NUMBER_BYTES];
  const char *const pairs[] = {KEY_STEPS,  steps, KEY_UPDATES, updates, KEY_NOTES, notes,
                               KEY_TOKENS, count, KEY_HASH,    hash,    NULL};
  state_tensors tensors = {0};
  state_tensor some[4];
  bool ok = push_states(&tensors, some, list_scaler(s->program, some));
  (void)snprintf(steps, sizeof steps, "%llu", (unsigned long long)s->steps);
  (void)snprintf(updates, sizeof updates, "%llu", (unsigned long long)s->updates);
  (void)snprintf(count, sizeof count, "%llu", (unsigned long long)s->data_tokens);
  (void)snprintf(hash, sizeof hash, "%016llx", (unsigned long long)s->data_hash);
  for (size_t i = 0; ok && i < s->weights->count; i++)
    ok = push_states(&tensors, some, states_of(s->program, &s->weights->items[i], some));
  int status = ok ? write_file(s, &tensors, pairs, write, context, error) : tsr__fail_memory(error);
  TSR__VECTOR_FREE(&tensors);
  return status;
}

/* ---- what was saved, for the caller ---- */

struct tsr_train_saved {
  tsr__saved saved;
};

int tsr_train_saved_open(const char *folder, tsr_train_saved **out, tsr_error *error) {
  tsr_train_saved *s = TSR__NEW(tsr_train_saved);
  if (!s) return tsr__fail_memory(error);
  int status = tsr__saved_open(folder, &s->saved, error);
  if (status)
    tsr__free(s);
  else
    *out = s;
  return status;
}

uint64_t tsr_train_saved_steps(const tsr_train_saved *s) {
  return s->saved.steps;
}

const char *tsr_train_saved_notes(const tsr_train_saved *s) {
  return tsr__saved_notes(&s->saved);
}

void tsr_train_saved_free(tsr_train_saved *s) {
  if (!s) return;
  tsr__saved_release(&s->saved);
  tsr__free(s);
}
