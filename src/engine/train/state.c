/* state.c - see state.h. */
#include "train/state.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/json.h"
#include "base/memory.h"
#include "base/os.h"

enum {
  NAME_BYTES = TSR__WEIGHT_NAME_BYTES + 16,
  NUMBER_BYTES = 24,
  PIECE_BYTES = 1 << 16,
  SUMMED_BYTES = 1 << 20
};

/* Keys of a file's metadata. */
#define KEY_TRAINING "tessera_training" /* in the weights: the name of the training file */
/* Checksums, as 8 hexadecimal digits: of the file's arrays; in the weights, of the configuration; in the training file, of its other
 * metadata. Equal weights are equal files, whatever else is saved. Earlier versions saved none. */
#define KEY_ARRAYS_SUM "tessera_arrays_crc32"
#define KEY_CONFIG_SUM "tessera_config_crc32"
#define KEY_BASE_SUM   "tessera_base_crc32"
#define KEY_NOTES_SUM  "tessera_notes_crc32"
#define KEY_STEPS      "steps"
#define KEY_UPDATES    "updates"
#define KEY_NOTES      "notes"
#define KEY_TOKENS     "data_tokens"
#define KEY_HASH       "data_hash" /* of the tokens, as 16 hexadecimal digits */

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

/* ---- checksums ---- */

/* CRC-32 of bytes that follow others, whose checksum is `before`; 0 for the first. */
static uint32_t sum_of(uint32_t before, const void *data, size_t size_bytes) {
  return (uint32_t)crc32_z(before, data, size_bytes);
}

/* The checksum in a file's metadata; false if it has none. */
static bool read_sum(const tsr__safetensors *file, const char *key, uint32_t *out) {
  const char *text = metadata(file, key);
  if (!text || strspn(text, "0123456789abcdef") != 8 || text[8] != '\0') return false;
  *out = (uint32_t)strtoul(text, NULL, 16);
  return true;
}

/* The checksum of a file from its byte `first` on. */
static int sum_of_file(int handle, uint64_t first, uint32_t *out, tsr_error *error) {
  void *piece = tsr__realloc(NULL, SUMMED_BYTES, 1);
  uint32_t sum = 0;
  ptrdiff_t got = piece ? 1 : 0;
  if (!piece) return tsr__fail_memory(error);
  for (; got > 0; first += (uint64_t)got) {
    got = tsr__os_read_at(handle, first, piece, SUMMED_BYTES, error);
    if (got > 0) sum = sum_of(sum, piece, (size_t)got);
  }
  tsr__free(piece);
  *out = sum;
  return (int)got;
}

static int fail_sum(const char *name, tsr_error *error) {
  return tsr__fail(error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE,
                   "%.80s is damaged or was changed: its checksum is not the one that was saved",
                   name);
}

/* Compare the arrays of a file. */
static int check_arrays(const tsr__safetensors *file, const char *name, tsr_error *error) {
  uint32_t saved, now;
  if (!read_sum(file, KEY_ARRAYS_SUM, &saved)) return 0;
  int status = sum_of_file(file->handle, file->data_start, &now, error);
  return status || now == saved ? status : fail_sum(name, error);
}

/* The checksum of texts, each with its ending zero. */
static uint32_t sum_of_texts(const char *const *texts, size_t count) {
  uint32_t sum = 0;
  for (size_t i = 0; i < count; i++)
    sum = sum_of(sum, texts[i] ? texts[i] : "", texts[i] ? strlen(texts[i]) + 1 : 1);
  return sum;
}

/* The file of what the run trained. */
static const tsr__safetensors *trained_file(const tsr__saved *saved) {
  return saved->adapters.file_count ? saved->adapters.files : saved->weights.files;
}

static const char *const noted[] = {KEY_STEPS, KEY_UPDATES, KEY_NOTES, KEY_TOKENS, KEY_HASH};
enum { NOTED = sizeof noted / sizeof *noted };

/* Compare the training file. One without checksums is of an earlier version, if the weights have none either. */
static int check_training(const tsr__saved *saved, const char *name, tsr_error *error) {
  const char *texts[NOTED];
  uint32_t notes, arrays;
  if (!read_sum(trained_file(saved), KEY_ARRAYS_SUM, &arrays)) return 0;
  for (size_t i = 0; i < NOTED; i++) texts[i] = metadata(&saved->training, noted[i]);
  if (!read_sum(&saved->training, KEY_NOTES_SUM, &notes) ||
      !read_sum(&saved->training, KEY_ARRAYS_SUM, &arrays) || notes != sum_of_texts(texts, NOTED))
    return fail_sum(name, error);
  return check_arrays(&saved->training, name, error);
}

/* The keys of config.json that name the type of the weights. */
static const char *const dtype_keys[] = {"dtype", "torch_dtype"};
enum { DTYPE_KEYS = 2, CONFIG_BYTES_MOST = 16 << 20 };

/* The checksum of a configuration, but for the type of the weights: a run that is resumed with another type writes config.json before the
 * weights, and may be killed in between. */
static int sum_of_config(const char *text, size_t size_bytes, uint32_t *out, tsr_error *error) {
  json_t *config = NULL;
  tsr__buffer plain = {0};
  int status = tsr_json_load(text, size_bytes, 0, NULL, &config, error);
  if (status) return status;
  for (size_t i = 0; i < DTYPE_KEYS; i++) (void)json_object_del(config, dtype_keys[i]);
  bool ok =
      tsr__json_append(&plain, config, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(15));
  if (ok) *out = sum_of(0, plain.data, plain.size);
  json_decref(config);
  tsr__buffer_release(&plain);
  return ok ? 0 : tsr__fail_memory(error);
}

/* Compare the model's configuration with the checksum that the weights have of it. */
static int check_config(const tsr__saved *saved, const char *path, tsr_error *error) {
  uint32_t then, now = 0;
  uint64_t size_bytes;
  int handle;
  if (!read_sum(trained_file(saved), KEY_CONFIG_SUM, &then)) return 0;
  int status = tsr__os_open_sized(path, &handle, &size_bytes, error);
  if (status) return status;
  char *text = size_bytes <= CONFIG_BYTES_MOST ? tsr__realloc(NULL, (size_t)size_bytes, 1) : NULL;
  if (size_bytes > CONFIG_BYTES_MOST)
    status = fail_sum("config.json", error);
  else if (!text)
    status = tsr__fail_memory(error);
  if (status == 0) status = tsr__os_read_exactly(handle, 0, text, (size_t)size_bytes, error);
  tsr__os_close(handle);
  if (status == 0) status = sum_of_config(text, (size_t)size_bytes, &now, error);
  tsr__free(text);
  bool is_other = status == 0 ? now != then : status == TSR_ERROR_FORMAT;
  return is_other ? fail_sum("config.json", error) : status;
}

static int check_config_in(const char *folder, const tsr__saved *saved, tsr_error *error) {
  tsr__buffer config = {0};
  tsr__buffer_printf(&config, "%s/config.json", folder);
  tsr__buffer_append(&config, "", 1);
  int status = config.failed ? tsr__fail_memory(error) : check_config(saved, config.data, error);
  tsr__buffer_release(&config);
  return status;
}

/* ---- opening ---- */

/* Read which data the run was trained on; earlier versions did not save that. */
static void read_data(tsr__saved *saved) {
  const char *hash = metadata(&saved->training, KEY_HASH);
  if (!hash || strspn(hash, "0123456789abcdef") != 16 || hash[16] != '\0') return;
  if (!read_count(&saved->training, KEY_TOKENS, &saved->data_tokens)) saved->data_tokens = 0;
  saved->data_hash = strtoull(hash, NULL, 16);
}

int tsr__saved_open_weights(const char *path, tsr__saved *out, tsr_error *error) {
  *out = (tsr__saved){.training.handle = -1};
  int status = tsr__weight_files_open(path, &out->weights, error);
  if (status == 0 && out->weights.file_count == 1)
    status = check_arrays(out->weights.files, "model.safetensors", error);
  if (status == 0 && out->weights.file_count == 1 && tsr__os_is_folder(path))
    status = check_config_in(path, out, error);
  return status;
}

static int open_training(const char *folder, tsr__saved *saved, tsr_error *error) {
  bool is_one = saved->adapters.file_count == 1 || saved->weights.file_count == 1;
  const char *name = is_one ? metadata(trained_file(saved), KEY_TRAINING) : NULL;
  tsr__buffer path = {0};
  if (!name || !name[0] || strchr(name, '/'))
    return tsr__fail(error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE,
                     "the weights there were not saved by a run that can be resumed; to start from "
                     "them, pass the folder as MODEL");
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

/* Compare all files with what was saved. */
static int check_files(const char *folder, const tsr__saved *saved, tsr_error *error) {
  const char *slash = strrchr(saved->training_path, '/');
  int status = check_training(saved, slash ? slash + 1 : saved->training_path, error);
  return status ? status : check_config_in(folder, saved, error);
}

/* Open the adapters of a folder, if it has any. */
static int open_adapters(const char *folder, tsr__saved *out, tsr_error *error) {
  static const char name[] = "adapter_model.safetensors";
  tsr__buffer path = {0};
  tsr__buffer_printf(&path, "%s/%s", folder, name);
  tsr__buffer_append(&path, "", 1);
  int status = path.failed ? tsr__fail_memory(error) : 0;
  if (status == 0 && tsr__os_is_there(path.data))
    status = tsr__weight_files_open(path.data, &out->adapters, error);
  if (status == 0 && out->adapters.file_count)
    status = check_arrays(out->adapters.files, name, error);
  tsr__buffer_release(&path);
  return status;
}

int tsr__saved_open(const char *folder, tsr__saved *out, tsr_error *error) {
  *out = (tsr__saved){.training.handle = -1};
  int status = open_adapters(folder, out, error);
  if (status == 0 && !out->adapters.file_count)
    status = tsr__saved_open_weights(folder, out, error);
  if (status == 0) status = open_training(folder, out, error);
  if (status == 0) status = check_files(folder, out, error);
  if (status) tsr__saved_release(out);
  return status;
}

const char *tsr__saved_notes(const tsr__saved *saved) {
  const char *notes = metadata(&saved->training, KEY_NOTES);
  return notes ? notes : "";
}

void tsr__saved_release(tsr__saved *saved) {
  tsr__weight_files_release(&saved->weights);
  tsr__weight_files_release(&saved->adapters);
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

/* Elements from `first` on of a tensor that is read column by column; they must be in one column. */
static tsr__kernel_tensor column_of(const tsr__kernel_tensor *whole, uint64_t first,
                                    uint64_t count) {
  uint64_t rows = whole->layout.shape.dim[0], columns = whole->layout.shape.dim[1];
  assert(whole->layout.shape.rank == 2 && first % rows + count <= rows);
  tsr__kernel_tensor part = part_of(whole, first % rows * columns + first / rows, count);
  part.layout.stride[0] = columns;
  return part;
}

/* Read an array into a tensor without gaps and with as many elements; other types are converted. */
static int read_array(const tsr__safetensors *file, const tsr__array *array,
                      const tsr__kernel_tensor *to, tsr_error *error) {
  assert(array && to);
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

typedef struct state_tensor {
  tsr__tensor_id tensor;
  tsr__kept kind;   /* TSR__KEPT_COUNT for a single number */
  size_t parameter; /* the parameter that it belongs to, unless it is a single number */
  char name[NAME_BYTES];
} state_tensor;

static uint64_t elements_of(const tsr__program *p, const state_tensor *state) {
  if (state->kind == TSR__KEPT_COUNT) return 1;
  return tsr__shape_elements(
      tsr__schedule_shape(p->schedule, p->schedule->parameters.items[state->parameter]));
}

/* Find the array of a state in the training file; its size and type must match. */
static int find_state(const tsr__saved *saved, const tsr__program *p, const state_tensor *state,
                      const tsr__array **out, tsr_error *error) {
  const char *name = state->name;
  tsr__dtype dtype = tsr__schedule_dtype(p->schedule, state->tensor);
  const tsr__array *array = tsr__safetensors_find(&saved->training, name);
  const char *slash = strrchr(saved->training_path, '/');
  const char *file = slash ? slash + 1 : saved->training_path;
  if (!array)
    return tsr__fail(
        error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE,
        "%.80s has no array \"%s\"; it was trained with another --optimizer or --dtype", file,
        name);
  if (tsr__weight_dtype(array->type) != (int)dtype ||
      array->size_bytes != elements_of(p, state) * tsr__dtype_bytes(dtype))
    return tsr__fail(error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE,
                     "%.80s: array \"%s\" has another size or type than this model needs", file,
                     name);
  *out = array;
  return 0;
}

/* Refuse weights that are not finite: otherwise the first loss would show them, without the cause. */
static int read_weight(const tsr__safetensors *file, const tsr__array *array,
                       const tsr__kernel_tensor *to, tsr_error *error) {
  int status = read_array(file, array, to, error);
  if (status || tsr__tensor_is_finite(to)) return status;
  return tsr__fail(error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE,
                   "array \"%.100s\" has an element that is not a finite number", array->name);
}

/* Whether numbers are what an optimizer keeps: finite, and squares and counts not negative. */
static bool is_sound(const tsr__kernel_tensor *t, const state_tensor *state) {
  bool is_signed = state->kind == TSR__KEPT_FIRST || state->kind == TSR__KEPT_MASTER;
  uint64_t count = tsr__shape_elements(t->layout.shape);
  const char *data = (const char *)t->data + t->layout.offset * tsr__dtype_bytes(t->dtype);
  if (!tsr__tensor_is_finite(t)) return false;
  uint32_t negative = 0;
  if (is_signed) return true;
  if (tsr__dtype_bytes(t->dtype) == 4 && t->dtype == TSR__DTYPE_F32)
    for (uint64_t i = 0; i < count; i++) {
      float x;
      memcpy(&x, data + 4 * i, sizeof x);
      negative |= x < 0;
    }
  else if (t->dtype == TSR__DTYPE_BF16 || t->dtype == TSR__DTYPE_F16)
    for (uint64_t i = 0; i < count; i++) {
      uint16_t bits;
      memcpy(&bits, data + 2 * i, sizeof bits);
      negative |= bits > 0x8000;
    }
  return !negative;
}

/* A buffer for a whole parameter or its state; a rank that keeps only a part copies it from there. */
typedef struct room {
  tsr__kernel_tensor to;
  void *own; /* the buffer, unless it is the tensor's own memory; owned */
} room;

static int open_room(const tsr__program *p, const tsr__executor *executor, tsr__tensor_id tensor,
                     size_t parameter, bool is_part, room *out, tsr_error *error) {
  out->to = tsr__executor_tensor(executor, tensor);
  out->own = NULL;
  if (!is_part) return 0;
  tsr__shape shape = tsr__schedule_shape(p->schedule, p->schedule->parameters.items[parameter]);
  out->to.layout = tsr__layout_dense(shape);
  out->own = tsr__calloc((size_t)tsr__shape_elements(shape), tsr__dtype_bytes(out->to.dtype));
  out->to.data = out->own;
  return out->own ? 0 : tsr__fail_memory(error);
}

static void close_room(const tsr__program *p, const tsr__executor *executor, tsr__tensor_id part,
                       size_t parameter, room *r) {
  if (!r->own) return;
  tsr__kernel_tensor to = tsr__executor_tensor(executor, part);
  tsr__shards_put(p->schedule, parameter, &r->to, &to);
  tsr__free(r->own);
}

static int read_state(const tsr__saved *saved, const tsr__program *p, const tsr__executor *executor,
                      const state_tensor *state, tsr_error *error) {
  const tsr__array *array = NULL;
  bool is_part = p->schedule->sharding.stage && state->kind != TSR__KEPT_COUNT;
  room r = {.own = NULL};
  int status = find_state(saved, p, state, &array, error);
  if (status == 0)
    status = open_room(p, executor, state->tensor, state->parameter, is_part, &r, error);
  if (status == 0) status = read_array(&saved->training, array, &r.to, error);
  if (status == 0 && !is_sound(&r.to, state))
    status = tsr__fail(error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE,
                       "array \"%.100s\" of the saved training has an element that no optimizer "
                       "keeps: it is not finite, or negative",
                       state->name);
  if (status == 0)
    close_room(p, executor, state->tensor, state->parameter, &r);
  else
    tsr__free(r.own);
  return status;
}

/* ---- the names of state ---- */

/* The state of parameter number `index`, whose weight has this name: up to four tensors. */
static size_t list_states(const tsr__schedule *schedule, size_t index, const char *name,
                          state_tensor out[4]) {
  static const struct {
    const char *ending;
    tsr__kept kind;
  } kinds[] = {{"exp_avg", TSR__KEPT_FIRST},
               {"exp_avg_sq", TSR__KEPT_SECOND},
               {"step", TSR__KEPT_COUNT},
               {"master", TSR__KEPT_MASTER}};
  size_t count = 0,
         at = schedule->sharding.stage ? schedule->sharding.pieces.items[index].unit : index;
  if (at >= schedule->states.count) return 0; /* SGD has none */
  const tsr__optimizer_state *state = &schedule->states.items[at];
  const tsr__tensor_id tensors[] = {state->first, state->second, state->count, state->master};
  for (size_t i = 0; i < 4; i++) {
    bool is_momentum = i == 0 && !state->second; /* SGD's */
    if (!tensors[i]) continue;
    out[count] = (state_tensor){.tensor = tensors[i], .kind = kinds[i].kind, .parameter = index};
    (void)snprintf(out[count++].name, NAME_BYTES, "%s.%s", name,
                   is_momentum ? "momentum_buffer" : kinds[i].ending);
  }
  return count;
}

/* The index of a parameter. */
static size_t number_of(const tsr__program *p, tsr__tensor_id parameter) {
  size_t index = 0;
  while (index < p->schedule->parameters.count && p->schedule->parameters.items[index] != parameter)
    index++;
  assert(index < p->schedule->parameters.count);
  return index;
}

/* The same as list_states, for a weight. */
static size_t states_of(const tsr__program *p, const tsr__weight *weight, state_tensor out[4]) {
  return list_states(p->schedule, number_of(p, weight->tensor), weight->name, out);
}

static size_t list_scaler(const tsr__program *p, state_tensor out[2]) {
  if (!p->loss_scale) return 0;
  out[0] = (state_tensor){.tensor = p->loss_scale, .kind = TSR__KEPT_COUNT, .name = "loss_scale"};
  out[1] = (state_tensor){.tensor = p->good_steps, .kind = TSR__KEPT_COUNT, .name = "good_steps"};
  return 2;
}

/* ---- loading ---- */

static int check_states(const tsr__saved *saved, const tsr__program *p, const state_tensor *states,
                        size_t count, tsr_error *error) {
  const tsr__array *array;
  int status = 0;
  for (size_t i = 0; status == 0 && i < count; i++)
    status = find_state(saved, p, &states[i], &array, error);
  return status;
}

/* Fails if the training file has state that the run would silently drop, such as another optimizer's. */
static int check_dropped(const tsr__saved *saved, const tsr__program *p,
                         const tsr__weight_list *weights, tsr_error *error) {
  const char *slash = strrchr(saved->training_path, '/');
  state_tensor states[4];
  size_t needed = list_scaler(p, states);
  for (size_t i = 0; i < weights->count; i++) needed += states_of(p, &weights->items[i], states);
  if (saved->training.count <= needed) return 0;
  return tsr__fail(error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE,
                   "%.80s has %zu arrays, of which this run would use %zu; it was trained with "
                   "another --optimizer or --dtype",
                   slash ? slash + 1 : saved->training_path, saved->training.count, needed);
}

/* The files that have a weight; none: it is filled as the model's class does it. */
static const tsr__weight_files *files_of(const tsr__saved *saved, const tsr__weight *weight) {
  return weight->is_adapter ? &saved->adapters : &saved->weights;
}

bool tsr__saved_has(const tsr__saved *saved, const tsr__weight_list *weights,
                    tsr__tensor_id tensor) {
  size_t i = 0;
  while (i < weights->count && weights->items[i].tensor != tensor) i++;
  assert(i < weights->count);
  return files_of(saved, &weights->items[i])->file_count;
}

int tsr__saved_check(const tsr__saved *saved, const tsr__program *p,
                     const tsr__weight_list *weights, tsr_error *error) {
  const tsr__array *array;
  const tsr__safetensors *file;
  state_tensor states[4];
  int status = 0;
  for (size_t i = 0; status == 0 && i < weights->count; i++) {
    const tsr__weight_files *files = files_of(saved, &weights->items[i]);
    if (files->file_count)
      status = tsr__weights_find(p, &weights->items[i], files, &array, &file, error);
    if (status == 0 && saved->training_path) {
      size_t count = states_of(p, &weights->items[i], states);
      status = check_states(saved, p, states, count, error);
    }
  }
  if (status == 0) status = tsr__weights_check_names(p, weights, &saved->weights, error);
  if (status == 0) status = tsr__weights_check_names(p, weights, &saved->adapters, error);
  if (status || !saved->training_path) return status;
  status = check_states(saved, p, states, list_scaler(p, states), error);
  return status ? status : check_dropped(saved, p, weights, error);
}

static int load_weight(const tsr__program *p, const tsr__executor *executor, tsr__tensor_id weight,
                       const tsr__safetensors *file, const tsr__array *array, tsr_error *error) {
  const tsr__sharding *s = &p->schedule->sharding;
  size_t parameter = number_of(p, weight);
  bool is_part = s->stage == 3;
  tsr__tensor_id part = is_part ? s->owned.items[s->pieces.items[parameter].unit] : weight;
  room r = {.own = NULL};
  int status = open_room(p, executor, part, parameter, is_part, &r, error);
  if (status == 0) status = read_weight(file, array, &r.to, error);
  if (status == 0)
    close_room(p, executor, part, parameter, &r);
  else
    tsr__free(r.own);
  return status;
}

int tsr__saved_load(const tsr__saved *saved, const tsr__program *p, const tsr__weight_list *weights,
                    const tsr__executor *executor, tsr_error *error) {
  const tsr__array *array = NULL;
  const tsr__safetensors *file = NULL;
  state_tensor scaler[2];
  int status = 0;
  for (size_t i = 0; status == 0 && i < weights->count; i++) {
    const tsr__weight_files *files = files_of(saved, &weights->items[i]);
    if (!files->file_count) continue;
    status = tsr__weights_find(p, &weights->items[i], files, &array, &file, error);
    if (status == 0)
      status = load_weight(p, executor, weights->items[i].tensor, file, array, error);
  }
  size_t count = saved->training_path ? list_scaler(p, scaler) : 0;
  for (size_t i = 0; status == 0 && i < count; i++)
    status = read_state(saved, p, executor, &scaler[i], error);
  return status;
}

uint32_t tsr__saved_base_sum(const tsr__weight_list *weights, const tsr__executor *executor) {
  uint32_t sum = 0;
  for (size_t i = 0; i < weights->count; i++) {
    if (weights->items[i].is_adapter) continue;
    tsr__kernel_tensor t = tsr__executor_tensor(executor, weights->items[i].tensor);
    uint64_t each = tsr__dtype_bytes(t.dtype), count = tsr__shape_elements(t.layout.shape);
    assert(t.data && tsr__layout_is_dense(t.layout));
    sum = sum_of(sum, (const char *)t.data + t.layout.offset * each, (size_t)(count * each));
  }
  return sum;
}

int tsr__saved_check_base(const tsr__saved *saved, uint32_t base_sum, tsr_error *error) {
  uint32_t then;
  if (!saved->adapters.file_count || !read_sum(saved->adapters.files, KEY_BASE_SUM, &then) ||
      then == base_sum)
    return 0;
  return tsr__fail(error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE,
                   "the adapters are of a model with other weights, or of another --dtype: the "
                   "model has changed since they were saved");
}

int tsr__saved_restore(const tsr__saved *saved, const tsr__program *p,
                       const tsr__weight_list *weights, const tsr__executor *executor,
                       tsr__tensor_id tensor, tsr_error *error) {
  state_tensor states[4];
  int status = 0;
  assert(saved->training_path);
  for (size_t i = 0; status == 0 && i < weights->count; i++) {
    size_t count = states_of(p, &weights->items[i], states);
    for (size_t k = 0; status == 0 && k < count; k++)
      if (states[k].tensor == tensor) status = read_state(saved, p, executor, &states[k], error);
  }
  return status;
}

/* ---- writing ---- */

typedef TSR__VECTOR(tsr__array) arrays;
typedef TSR__VECTOR(state_tensor) state_tensors;

static bool add_array(const tsr__program *p, const state_tensor *from, arrays *out) {
  bool is_number = from->kind == TSR__KEPT_COUNT;
  tsr__tensor_id like = is_number ? from->tensor : p->schedule->parameters.items[from->parameter];
  tsr__shape shape = tsr__schedule_shape(p->schedule, like);
  tsr__array array = {.name = from->name,
                      .type =
                          tsr__weight_array_type(tsr__schedule_dtype(p->schedule, from->tensor)),
                      .rank = shape.rank};
  for (uint32_t i = 0; i < shape.rank; i++) array.dim[i] = shape.dim[i];
  return TSR__VECTOR_PUSH(out, array);
}

static const state_tensor *state_named(const state_tensors *tensors, const char *name) {
  size_t i = 0;
  while (i + 1 < tensors->count && tensors->items[i].name != name) i++;
  assert(tensors->items[i].name == name);
  return &tensors->items[i];
}

/* Find the elements of a state: in this rank's memory, or gathered from all ranks. */
static int find_elements(const tsr_train_state *s, const state_tensor *state,
                         tsr__gathered *gathered, const void **out, tsr_error *error) {
  const tsr__schedule *schedule = s->program->schedule;
  tsr__kernel_tensor from = tsr__executor_tensor(s->executor, state->tensor);
  uint32_t parted_from = state->kind == TSR__KEPT_PARAMETER ? 3 : 1; /* the stage */
  if (state->kind != TSR__KEPT_COUNT && schedule->sharding.stage >= parted_from)
    return tsr__shards_read(s->comm, schedule, s->executor, state->kind, state->parameter, gathered,
                            out, error);
  assert(from.data && tsr__layout_is_dense(from.layout));
  *out = (const char *)from.data + from.layout.offset * tsr__dtype_bytes(from.dtype);
  return 0;
}

/* Go through the arrays' elements: check that they may be saved, and compute their checksum. */
static int sum_arrays(const tsr_train_state *s, const state_tensors *tensors, const arrays *all,
                      uint32_t *sum, tsr_error *error) {
  tsr__gathered gathered = {0};
  int status = 0;
  *sum = 0;
  for (size_t i = 0; status == 0 && i < all->count; i++) {
    const tsr__array *array = &all->items[i];
    const state_tensor *state = state_named(tensors, array->name);
    const void *from = NULL;
    uint64_t count = elements_of(s->program, state);
    tsr__dtype dtype = tsr__schedule_dtype(s->program->schedule, state->tensor);
    status = find_elements(s, state, &gathered, &from, error);
    if (status) break;
    *sum = sum_of(*sum, from, (size_t)(count * tsr__dtype_bytes(dtype)));
    const tsr__kernel_tensor numbers = {.data = (void *)(uintptr_t)from,
                                        .dtype = dtype,
                                        .layout = tsr__layout_dense(TSR__SHAPE(count))};
    if (!tsr__tensor_is_finite(&numbers))
      status =
          tsr__fail(error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE,
                    "array \"%.100s\" has an element that is not a finite number", array->name);
  }
  tsr__gathered_release(&gathered);
  return status;
}

/* Write the tensors to a file. Their names must not move. `notes` are the keys and values of its metadata, of which `sum`
 * becomes the checksum of the arrays. */
static int write_file(const tsr_train_state *s, const state_tensors *tensors,
                      const char *const *notes, char *sum, tsr_write_fn *write, void *context,
                      tsr_error *error) {
  arrays all = {0};
  tsr__gathered gathered = {0};
  uint32_t checksum;
  int status = 0;
  for (size_t i = 0; status == 0 && i < tensors->count; i++)
    if (!add_array(s->program, &tensors->items[i], &all)) status = tsr__fail_memory(error);
  if (status == 0) {
    tsr__safetensors_place(all.items, all.count);
    status = sum_arrays(s, tensors, &all, &checksum, error);
  }
  if (status == 0) (void)snprintf(sum, NUMBER_BYTES, "%08x", checksum);
  if (status == 0)
    status = tsr__safetensors_write_header(all.items, all.count, notes, write, context, error);
  for (size_t i = 0; status == 0 && i < all.count; i++) {
    const tsr__array *array = &all.items[i];
    const void *from = NULL;
    status = find_elements(s, state_named(tensors, array->name), &gathered, &from, error);
    if (status == 0 && write(context, from, (size_t)array->size_bytes))
      status = tsr__fail(error, TSR_ERROR_WRITE, TSR_OFFSET_NONE, "cannot write");
  }
  tsr__gathered_release(&gathered);
  TSR__VECTOR_FREE(&all);
  return status;
}

/* Whether a save has this weight: with adapters, it has only these. */
static bool is_saved(const tsr__program *p, const tsr__weight *weight) {
  return weight->is_adapter || !p->options->lora_rank;
}

uint64_t tsr__saved_bytes(const tsr__program *p, const tsr__weight_list *weights) {
  uint64_t bytes = 0;
  state_tensor states[4];
  for (size_t i = 0; i < weights->count; i++) {
    if (!is_saved(p, &weights->items[i])) continue;
    size_t parameter = number_of(p, weights->items[i].tensor);
    uint64_t elements = tsr__shape_elements(
        tsr__schedule_shape(p->schedule, p->schedule->parameters.items[parameter]));
    bytes +=
        elements * tsr__dtype_bytes(tsr__schedule_dtype(p->schedule, weights->items[i].tensor));
    size_t count = states_of(p, &weights->items[i], states);
    for (size_t k = 0; k < count; k++)
      bytes += elements_of(p, &states[k]) *
               tsr__dtype_bytes(tsr__schedule_dtype(p->schedule, states[k].tensor));
  }
  return bytes;
}

uint64_t tsr_train_state_steps(const tsr_train_state *s) {
  return s->steps;
}

int tsr_train_write_weights(const tsr_train_state *s, const char *training, tsr_write_fn *write,
                            void *context, tsr_error *error) {
  char sum[NUMBER_BYTES], config[NUMBER_BYTES], base[NUMBER_BYTES];
  const char *const notes[] = {"format",
                               "pt",
                               KEY_TRAINING,
                               training,
                               KEY_ARRAYS_SUM,
                               sum,
                               KEY_CONFIG_SUM,
                               config,
                               tsr_train_has_adapters(s) ? KEY_BASE_SUM : NULL,
                               base,
                               NULL};
  const char *text = tsr_model_config(s->program->model);
  state_tensors tensors = {0};
  uint32_t config_sum = 0;
  int status = sum_of_config(text, strlen(text), &config_sum, error);
  (void)snprintf(config, sizeof config, "%08x", config_sum);
  (void)snprintf(base, sizeof base, "%08x", s->base_sum);
  for (size_t i = 0; status == 0 && i < s->weights->count; i++) {
    if (!is_saved(s->program, &s->weights->items[i])) continue;
    state_tensor weight = {.tensor = s->weights->items[i].tensor,
                           .kind = TSR__KEPT_PARAMETER,
                           .parameter = number_of(s->program, s->weights->items[i].tensor)};
    (void)snprintf(weight.name, sizeof weight.name, "%s", s->weights->items[i].name);
    if (!TSR__VECTOR_PUSH(&tensors, weight)) status = tsr__fail_memory(error);
  }
  if (status == 0) status = write_file(s, &tensors, notes, sum, write, context, error);
  TSR__VECTOR_FREE(&tensors);
  return status;
}

/* The text of config.json with the type of the weights: otherwise a model that was trained in fp32 would be loaded in the
 * type it was published in. Unchanged if it has that type, or none. */
static int config_text(const char *before, tsr__dtype dtype, tsr__buffer *out, tsr_error *error) {
  const char *name = dtype == TSR__DTYPE_BF16  ? "bfloat16"
                     : dtype == TSR__DTYPE_F16 ? "float16"
                                               : "float32";
  json_t *config = NULL;
  bool is_other = false;
  int status = tsr_json_load(before, strlen(before), 0, NULL, &config, error);
  for (size_t i = 0; i < DTYPE_KEYS; i++) {
    const char *named = json_string_value(json_object_get(config, dtype_keys[i]));
    if (!named || strcmp(named, name) == 0) continue;
    is_other = true;
    if (json_object_set_new(config, dtype_keys[i], json_string(name))) out->failed = true;
  }
  if (is_other) {
    (void)tsr__json_append(out, config, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
    tsr__buffer_text(out, "\n");
  } else {
    tsr__buffer_text(out, before);
  }
  json_decref(config);
  return status == 0 && out->failed ? tsr__fail_memory(error) : status;
}

int tsr_train_write_config(const tsr_train_state *s, tsr_write_fn *write, void *context,
                           tsr_error *error) {
  const char *before = tsr_model_config(s->program->model);
  tsr__buffer text = {0};
  assert(before && s->weights->count);
  tsr__dtype dtype = tsr__schedule_dtype(s->program->schedule, s->weights->items[0].tensor);
  int status = config_text(before, dtype, &text, error);
  if (status == 0 && write(context, text.data, text.size))
    status = tsr__fail(error, TSR_ERROR_WRITE, TSR_OFFSET_NONE, "cannot write");
  tsr__buffer_release(&text);
  return status;
}

bool tsr_train_has_adapters(const tsr_train_state *s) {
  return s->program->options->lora_rank != 0;
}

/* The names of the layers that have an adapter, as peft's target_modules has them. */
static json_t *target_modules(const tsr_train_state *s) {
  json_t *list = json_array();
  for (size_t i = 0; list && i < s->weights->count; i++) {
    char name[TSR__WEIGHT_NAME_BYTES];
    if (!s->weights->items[i].is_adapter) continue;
    (void)snprintf(name, sizeof name, "%s", s->weights->items[i].name);
    *strstr(name, ".lora_") = '\0';
    const char *module = strrchr(name, '.') + 1;
    bool is_listed = false;
    for (size_t k = 0; k < json_array_size(list); k++)
      is_listed |= strcmp(json_string_value(json_array_get(list, k)), module) == 0;
    if (!is_listed && json_array_append_new(list, json_string(module))) {
      json_decref(list);
      return NULL;
    }
  }
  return list;
}

int tsr_train_write_adapter_config(const tsr_train_state *s, const char *base, tsr_write_fn *write,
                                   void *context, tsr_error *error) {
  const tsr_simulate_options *o = s->program->options;
  double alpha = tsr__program_adapter_scale(s->program) * (double)o->lora_rank;
  bool is_whole = alpha <= 1e9 && !(alpha < floor(alpha)) && !(alpha > floor(alpha));
  tsr__buffer text = {0};
  /* Not packed as an optional value: jansson leaves that out when memory runs out, too. */
  json_t *root = base ? json_pack("{s:s}", "base_model_name_or_path", base) : json_object();
  json_t *rest = json_pack(
      "{s:s, s:b, s:b, s:b, s:o, s:f, s:s, s:i, s:o, s:s}", "bias", "none", "fan_in_fan_out",
      s->program->model->class == TSR__CLASS_GPT2, "inference_mode", 1, "init_lora_weights", 1,
      "lora_alpha", is_whole ? json_integer((json_int_t)alpha) : json_real(alpha), "lora_dropout",
      o->lora_dropout, "peft_type", "LORA", "r", (int)o->lora_rank, "target_modules",
      target_modules(s), "task_type", "CAUSAL_LM");
  bool ok = root && rest && json_object_update(root, rest) == 0 &&
            tsr__json_append(&text, root, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
  json_decref(root);
  json_decref(rest);
  tsr__buffer_text(&text, "\n");
  int status = ok && !text.failed ? 0 : tsr__fail_memory(error);
  if (status == 0 && write(context, text.data, text.size))
    status = tsr__fail(error, TSR_ERROR_WRITE, TSR_OFFSET_NONE, "cannot write");
  tsr__buffer_release(&text);
  return status;
}

static bool push_states(state_tensors *out, const state_tensor *states, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (!TSR__VECTOR_PUSH(out, states[i])) return false;
  return true;
}

int tsr_train_write_training(const tsr_train_state *s, const char *notes, tsr_write_fn *write,
                             void *context, tsr_error *error) {
  char steps[NUMBER_BYTES], updates[NUMBER_BYTES], count[NUMBER_BYTES], hash[NUMBER_BYTES],
      sum[NUMBER_BYTES], noted_sum[NUMBER_BYTES];
  const char *const texts[NOTED] = {steps, updates, notes, count, hash};
  const char *const pairs[] = {KEY_STEPS,      steps,      KEY_UPDATES,   updates,   KEY_NOTES,
                               notes,          KEY_TOKENS, count,         KEY_HASH,  hash,
                               KEY_ARRAYS_SUM, sum,        KEY_NOTES_SUM, noted_sum, NULL};
  state_tensors tensors = {0};
  state_tensor some[4];
  bool ok = push_states(&tensors, some, list_scaler(s->program, some));
  (void)snprintf(steps, sizeof steps, "%llu", (unsigned long long)s->steps);
  (void)snprintf(updates, sizeof updates, "%llu", (unsigned long long)s->updates);
  (void)snprintf(count, sizeof count, "%llu", (unsigned long long)s->data_tokens);
  (void)snprintf(hash, sizeof hash, "%016llx", (unsigned long long)s->data_hash);
  (void)snprintf(noted_sum, sizeof noted_sum, "%08x", sum_of_texts(texts, NOTED));
  for (size_t i = 0; ok && i < s->weights->count; i++)
    ok = push_states(&tensors, some, states_of(s->program, &s->weights->items[i], some));
  int status =
      ok ? write_file(s, &tensors, pairs, sum, write, context, error) : tsr__fail_memory(error);
  TSR__VECTOR_FREE(&tensors);
  return status;
}

/* ---- a saved run, for the caller ---- */

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
