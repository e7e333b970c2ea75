/* safetensors.c - see safetensors.h.
 *
 * jansson reads the whole header. Its contents are then checked once, in one pass over the arrays sorted by offset.
 * Afterwards, the only thing that can go wrong is that the file becomes shorter. */
#include "models/safetensors.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/memory.h"
#include "base/os.h"
#include "base/sort.h"
#include "models/llmc.h"

enum { LENGTH_BYTES = 8 };

static const struct {
  const char *name;
  uint8_t bytes;
} types[TSR__ARRAY_TYPES] = {
    [TSR__ARRAY_BOOL] = {"BOOL", 1},       [TSR__ARRAY_U8] = {"U8", 1},
    [TSR__ARRAY_I8] = {"I8", 1},           [TSR__ARRAY_F8_E5M2] = {"F8_E5M2", 1},
    [TSR__ARRAY_F8_E4M3] = {"F8_E4M3", 1}, [TSR__ARRAY_I16] = {"I16", 2},
    [TSR__ARRAY_U16] = {"U16", 2},         [TSR__ARRAY_F16] = {"F16", 2},
    [TSR__ARRAY_BF16] = {"BF16", 2},       [TSR__ARRAY_I32] = {"I32", 4},
    [TSR__ARRAY_U32] = {"U32", 4},         [TSR__ARRAY_F32] = {"F32", 4},
    [TSR__ARRAY_I64] = {"I64", 8},         [TSR__ARRAY_U64] = {"U64", 8},
    [TSR__ARRAY_F64] = {"F64", 8},
};

const char *tsr__array_type_name(tsr__array_type type) {
  assert((unsigned)type < TSR__ARRAY_TYPES);
  return types[type].name;
}

uint64_t tsr__array_type_bytes(tsr__array_type type) {
  assert((unsigned)type < TSR__ARRAY_TYPES);
  return types[type].bytes;
}

/* ---- the header ---- */

static int refuse(tsr_error *error, tsr_status status, const char *name, const char *why) {
  return tsr__fail(error, status, TSR_OFFSET_NONE, "array \"%.100s\" %s", name, why);
}

static int read_type(const json_t *value, const char *name, tsr__array *out, tsr_error *error) {
  const char *text = json_string_value(value);
  if (!text) return refuse(error, TSR_ERROR_FORMAT, name, "has no \"dtype\"");
  for (unsigned i = 0; i < TSR__ARRAY_TYPES; i++)
    if (strcmp(types[i].name, text) == 0) {
      out->type = (tsr__array_type)i;
      return 0;
    }
  return tsr__fail(error, TSR_ERROR_UNSUPPORTED, TSR_OFFSET_NONE,
                   "array \"%.100s\" has elements of an unknown type: %.40s", name, text);
}

/* Elements times bytes; UINT64_MAX if that overflows, which is larger than any file. */
static uint64_t bytes_of(const tsr__array *array) {
  uint64_t bytes = tsr__array_type_bytes(array->type);
  for (uint32_t i = 0; i < array->rank; i++) {
    if (!array->dim[i]) return 0; /* even if the others would overflow */
    bytes = bytes > UINT64_MAX / array->dim[i] ? UINT64_MAX : bytes * array->dim[i];
  }
  return bytes;
}

static int read_shape(const json_t *value, const char *name, tsr__array *out, tsr_error *error) {
  if (!json_is_array(value)) return refuse(error, TSR_ERROR_FORMAT, name, "has no \"shape\"");
  size_t rank = json_array_size(value);
  if (rank > TSR__ARRAY_RANK)
    return refuse(error, TSR_ERROR_LIMIT, name, "has more than 8 dimensions");
  out->rank = (uint32_t)rank;
  for (size_t i = 0; i < rank; i++) {
    const json_t *dim = json_array_get(value, i);
    if (!json_is_integer(dim) || json_integer_value(dim) < 0)
      return refuse(error, TSR_ERROR_FORMAT, name, "has a dimension that is not a whole number");
    out->dim[i] = (uint64_t)json_integer_value(dim);
  }
  return 0;
}

static int read_offsets(const json_t *value, const char *name, tsr__array *out, tsr_error *error) {
  const json_t *begin = json_array_get(value, 0), *end = json_array_get(value, 1);
  if (json_array_size(value) != 2 || !json_is_integer(begin) || !json_is_integer(end) ||
      json_integer_value(begin) < 0 || json_integer_value(end) < json_integer_value(begin))
    return refuse(error, TSR_ERROR_FORMAT, name,
                  "must have two \"data_offsets\" in ascending order");
  out->offset_bytes = (uint64_t)json_integer_value(begin);
  out->size_bytes = (uint64_t)json_integer_value(end) - out->offset_bytes;
  if (out->size_bytes != bytes_of(out))
    return tsr__fail(error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE,
                     "array \"%.100s\" has %llu bytes, which does not match its shape and type",
                     name, (unsigned long long)out->size_bytes);
  return 0;
}

static int read_array(const char *name, const json_t *value, tsr__array *out, tsr_error *error) {
  out->name = name;
  if (!json_is_object(value)) return refuse(error, TSR_ERROR_FORMAT, name, "is not described");
  int status = read_type(json_object_get(value, "dtype"), name, out, error);
  if (!status) status = read_shape(json_object_get(value, "shape"), name, out, error);
  if (!status) status = read_offsets(json_object_get(value, "data_offsets"), name, out, error);
  return status;
}

static int compare_places(const void *a, const void *b) {
  const tsr__array *x = a, *y = b;
  if (x->offset_bytes != y->offset_bytes) return x->offset_bytes < y->offset_bytes ? -1 : 1;
  return (x->size_bytes > y->size_bytes) - (x->size_bytes < y->size_bytes);
}

static int compare_names(const void *a, const void *b) {
  return strcmp(((const tsr__array *)a)->name, ((const tsr__array *)b)->name);
}

/* Check that the arrays follow each other without gaps, from the end of the header to the end of the file. */
static int check_places(tsr__safetensors *file, uint64_t data_bytes, tsr_error *error) {
  uint64_t at = 0;
  tsr__sort(file->arrays, file->count, sizeof *file->arrays, compare_places);
  for (size_t i = 0; i < file->count; i++) {
    const tsr__array *array = &file->arrays[i];
    if (array->offset_bytes != at)
      return refuse(error, TSR_ERROR_FORMAT, array->name,
                    array->offset_bytes < at ? "overlaps another array"
                                             : "begins after bytes that belong to no array");
    if (array->size_bytes > data_bytes - at)
      return tsr__fail(
          error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE,
          "the file is cut off: array \"%.100s\" ends %llu bytes after the end of the file",
          array->name, (unsigned long long)(array->size_bytes - (data_bytes - at)));
    at += array->size_bytes;
  }
  if (at != data_bytes)
    return tsr__fail(error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE,
                     "%llu bytes after the last array belong to no array",
                     (unsigned long long)(data_bytes - at));
  tsr__sort(file->arrays, file->count, sizeof *file->arrays, compare_names);
  return 0;
}

int tsr__safetensors_header_end(const unsigned char *bytes, uint64_t file_bytes, uint64_t *out,
                                tsr_error *error) {
  uint64_t length = 0;
  if (file_bytes < LENGTH_BYTES)
    return tsr__fail(error, TSR_ERROR_FORMAT, 0, "too short for a safetensors file");
  for (unsigned i = LENGTH_BYTES; i-- > 0;) length = length << 8 | bytes[i];
  if (length > file_bytes - LENGTH_BYTES)
    return tsr__fail(
        error, TSR_ERROR_FORMAT, 0,
        "not a safetensors file, or cut off: its header would be longer than the file");
  if (length > TSR__SAFETENSORS_HEADER_MAX)
    return tsr__fail(error, TSR_ERROR_LIMIT, 0, "the header is longer than 100,000,000 bytes");
  *out = LENGTH_BYTES + length;
  return 0;
}

static int read_header(tsr__safetensors *file, uint64_t data_bytes, tsr_error *error) {
  const char *name;
  json_t *value;
  file->arrays = TSR__NEW_ARRAY(tsr__array, json_object_size(file->header));
  if (!file->arrays) return tsr__fail_memory(error);
  json_object_foreach(file->header, name, value) {
    if (strcmp(name, "__metadata__") == 0) continue;
    int status = read_array(name, value, &file->arrays[file->count], error);
    if (status) return status;
    file->count++;
  }
  return check_places(file, data_bytes, error);
}

int tsr__safetensors_parse(const unsigned char *bytes, size_t size_bytes, uint64_t file_bytes,
                           tsr__safetensors *out, tsr_error *error) {
  tsr__safetensors file = {.handle = -1};
  int status = tsr__safetensors_header_end(bytes, file_bytes, &file.data_start, error);
  if (status) return status;
  assert(size_bytes >= file.data_start);
  (void)size_bytes;
  const char *text = (const char *)bytes + LENGTH_BYTES;
  size_t length = (size_t)(file.data_start - LENGTH_BYTES);
  status = tsr_json_load(text, length, JSON_REJECT_DUPLICATES, "the header is not JSON",
                         &file.header, error);
  if (!status && !json_is_object(file.header))
    status = tsr__fail(error, TSR_ERROR_FORMAT, LENGTH_BYTES, "the header is not a JSON object");
  if (!status) status = read_header(&file, file_bytes - file.data_start, error);
  if (status)
    tsr__safetensors_release(&file);
  else
    *out = file;
  return status;
}

/* ---- files ---- */

static int open_handle(int handle, uint64_t file_bytes, tsr__safetensors *out, tsr_error *error) {
  unsigned char length[LENGTH_BYTES] = {0};
  uint64_t end = 0;
  int status = file_bytes < LENGTH_BYTES
                   ? 0 /* header_end reports it */
                   : tsr__os_read_exactly(handle, 0, length, LENGTH_BYTES, error);
  if (!status) status = tsr__safetensors_header_end(length, file_bytes, &end, error);
  if (status) return status;
  unsigned char *header = tsr__realloc(NULL, (size_t)end, 1);
  if (!header) return tsr__fail_memory(error);
  status = tsr__os_read_exactly(handle, 0, header, (size_t)end, error);
  /* The length is read again with the rest, because another program may be writing to the file. */
  if (!status && memcmp(header, length, LENGTH_BYTES) != 0)
    status = tsr__fail(error, TSR_ERROR_FORMAT, 0, "the file changed while it was read");
  if (!status) status = tsr__safetensors_parse(header, (size_t)end, file_bytes, out, error);
  tsr__free(header);
  return status;
}

int tsr__safetensors_open(const char *path, tsr__safetensors *out, tsr_error *error) {
  int handle;
  uint64_t file_bytes;
  int status = tsr__os_open_sized(path, &handle, &file_bytes, error);
  if (status) return status;
  status = open_handle(handle, file_bytes, out, error);
  if (status)
    tsr__os_close(handle);
  else
    out->handle = handle;
  return status;
}

const tsr__array *tsr__safetensors_find(const tsr__safetensors *file, const char *name) {
  const tsr__array wanted = {.name = name};
  if (!file->count) return NULL;
  return bsearch(&wanted, file->arrays, file->count, sizeof *file->arrays, compare_names);
}

int tsr__safetensors_read(const tsr__safetensors *file, const tsr__array *array, uint64_t first,
                          void *buffer, size_t size_bytes, tsr_error *error) {
  assert(file->handle >= 0);
  assert(first <= array->size_bytes && size_bytes <= array->size_bytes - first);
  return tsr__os_read_exactly(file->handle, file->data_start + array->offset_bytes + first, buffer,
                              size_bytes, error);
}

void tsr__safetensors_release(tsr__safetensors *file) {
  if ((file->header || file->names) && file->handle >= 0) tsr__os_close(file->handle);
  tsr__free(file->arrays);
  tsr__free(file->names);
  json_decref(file->header);
  *file = (tsr__safetensors){.handle = -1};
}

/* ---- folders ---- */

static int join(const char *folder, const char *name, tsr__buffer *out, tsr_error *error) {
  out->size = 0;
  tsr__buffer_printf(out, "%s/%s", folder, name);
  tsr__buffer_append(out, "", 1);
  return out->failed ? tsr__fail_memory(error) : 0;
}

/* Add the name of the file within the folder to the message. */
static int name_file(int status, const char *name, tsr_error *error) {
  if (status && status != TSR_ERROR_MEMORY && error) {
    tsr_error cause = *error;
    return tsr__fail(error, (tsr_status)status, cause.offset, "%.80s: %s", name, cause.message);
  }
  return status;
}

static int add_file(tsr__weight_files *weights, const char *folder, const char *name,
                    tsr_error *error) {
  tsr__buffer path = {0};
  int status = join(folder, name, &path, error);
  if (!status)
    status = name_file(
        tsr__safetensors_open(path.data, &weights->files[weights->file_count], error), name, error);
  tsr__buffer_release(&path);
  if (!status) weights->file_count++;
  return status;
}

/* Read a text file, with the size limit of headers. The caller frees the text. */
static int read_text(const char *path, char **out, size_t *size_bytes, tsr_error *error) {
  int handle;
  uint64_t bytes;
  int status = tsr__os_open_sized(path, &handle, &bytes, error);
  if (status) return status;
  char *text = NULL;
  if (bytes > TSR__SAFETENSORS_HEADER_MAX)
    status = tsr__fail(error, TSR_ERROR_LIMIT, TSR_OFFSET_NONE, "longer than 100,000,000 bytes");
  else if (!(text = tsr__realloc(NULL, (size_t)bytes + 1, 1)))
    status = tsr__fail_memory(error);
  else
    status = tsr__os_read_exactly(handle, 0, text, (size_t)bytes, error);
  tsr__os_close(handle);
  if (status) {
    tsr__free(text);
    return status;
  }
  *out = text;
  *size_bytes = (size_t)bytes;
  return 0;
}

/* Whether a name is plain: an index must not refer to other folders. */
static bool is_plain(const char *name) {
  return name[0] && !strchr(name, '/') && strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

static int compare_texts(const void *a, const void *b) {
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Open each file that "weight_map" names, once. */
static int open_listed(const char *folder, json_t *map, tsr__weight_files *out, tsr_error *error) {
  const char *name;
  json_t *value;
  size_t count = 0;
  const char **names = TSR__NEW_ARRAY(const char *, json_object_size(map));
  if (!names) return tsr__fail_memory(error);
  int status = 0;
  json_object_foreach(map, name, value) {
    names[count] = json_string_value(value);
    if (!names[count] || !is_plain(names[count])) {
      status =
          refuse(error, TSR_ERROR_FORMAT, name, "is in a file whose name is not a plain file name");
      break;
    }
    count++;
  }
  tsr__sort(names, count, sizeof *names, compare_texts);
  size_t distinct = 0;
  for (size_t i = 0; i < count; i++)
    if (!i || strcmp(names[i], names[distinct - 1]) != 0) names[distinct++] = names[i];
  if (!status && !distinct)
    status = tsr__fail(error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE, "the index names no files");
  if (!status && distinct > TSR__WEIGHT_FILES)
    status =
        tsr__fail(error, TSR_ERROR_LIMIT, TSR_OFFSET_NONE, "the index names more than 1024 files");
  if (!status && !(out->files = TSR__NEW_ARRAY(tsr__safetensors, distinct)))
    status = tsr__fail_memory(error);
  for (size_t i = 0; !status && i < distinct; i++) status = add_file(out, folder, names[i], error);
  tsr__free(names);
  return status;
}

static int open_index(const char *folder, const char *path, tsr__weight_files *out,
                      tsr_error *error) {
  char *text;
  size_t size_bytes;
  json_t *root = NULL;
  int status = read_text(path, &text, &size_bytes, error);
  if (status) return status;
  status = tsr_json_load(text, size_bytes, JSON_REJECT_DUPLICATES, "the index is not JSON", &root,
                         error);
  json_t *map = json_object_get(root, "weight_map");
  if (!status && !json_is_object(map))
    status = tsr__fail(error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE, "has no \"weight_map\"");
  if (!status) status = open_listed(folder, map, out, error);
  json_decref(root);
  tsr__free(text);
  return status;
}

static int check_once(const tsr__weight_files *weights, tsr_error *error) {
  for (size_t i = 0; i < weights->file_count; i++)
    for (size_t k = 0; k < weights->files[i].count; k++) {
      const char *name = weights->files[i].arrays[k].name;
      for (size_t other = 0; other < i; other++)
        if (tsr__safetensors_find(&weights->files[other], name))
          return refuse(error, TSR_ERROR_FORMAT, name, "is in two files");
    }
  return 0;
}

static int open_folder(const char *folder, tsr__weight_files *out, tsr_error *error) {
  static const char single[] = "model.safetensors", index[] = "model.safetensors.index.json";
  tsr__buffer path = {0};
  int status = join(folder, single, &path, error);
  if (!status && tsr__os_is_there(path.data)) {
    if (!(out->files = TSR__NEW(tsr__safetensors))) status = tsr__fail_memory(error);
    if (!status) status = add_file(out, folder, single, error);
  } else if (!status) {
    status = join(folder, index, &path, error);
    if (!status && !tsr__os_is_there(path.data))
      status =
          tsr__fail(error, TSR_ERROR_IO, TSR_OFFSET_NONE,
                    "the folder has neither model.safetensors nor model.safetensors.index.json");
    if (!status) status = name_file(open_index(folder, path.data, out, error), index, error);
  }
  tsr__buffer_release(&path);
  return status ? status : check_once(out, error);
}

/* Open a checkpoint of llm.c, recognised by its first bytes. */
static int open_checkpoint(int handle, uint64_t file_bytes, bool *is_one, tsr__safetensors *out,
                           tsr_error *error) {
  unsigned char header[TSR__LLMC_HEADER_BYTES];
  size_t size = file_bytes < sizeof header ? (size_t)file_bytes : sizeof header;
  int status = tsr__os_read_exactly(handle, 0, header, size, error);
  *is_one = !status && tsr__llmc_is(header, size);
  return *is_one ? tsr__llmc_parse(header, size, file_bytes, out, error) : status;
}

static int open_single(const char *path, tsr__safetensors *out, tsr_error *error) {
  int handle;
  uint64_t file_bytes;
  bool is_checkpoint;
  int status = tsr__os_open_sized(path, &handle, &file_bytes, error);
  if (status) return status;
  status = open_checkpoint(handle, file_bytes, &is_checkpoint, out, error);
  if (!status && is_checkpoint) {
    out->handle = handle;
    return 0;
  }
  tsr__os_close(handle);
  return status ? status : tsr__safetensors_open(path, out, error);
}

int tsr__weight_files_open(const char *path, tsr__weight_files *out, tsr_error *error) {
  tsr__weight_files weights = {0};
  int status;
  if (tsr__os_is_folder(path)) {
    status = open_folder(path, &weights, error);
  } else if (!(weights.files = TSR__NEW(tsr__safetensors))) {
    status = tsr__fail_memory(error);
  } else {
    status = open_single(path, weights.files, error);
    weights.file_count = !status;
  }
  if (status)
    tsr__weight_files_release(&weights);
  else
    *out = weights;
  return status;
}

const tsr__array *tsr__weight_files_find(const tsr__weight_files *weights, const char *name,
                                         const tsr__safetensors **file) {
  for (size_t i = 0; i < weights->file_count; i++) {
    const tsr__array *array = tsr__safetensors_find(&weights->files[i], name);
    if (array) {
      *file = &weights->files[i];
      return array;
    }
  }
  return NULL;
}

void tsr__weight_files_release(tsr__weight_files *weights) {
  for (size_t i = 0; i < weights->file_count; i++) tsr__safetensors_release(&weights->files[i]);
  tsr__free(weights->files);
  *weights = (tsr__weight_files){0};
}

/* ---- writing ---- */

static int compare_elements(const void *a, const void *b) {
  const tsr__array *x = a, *y = b;
  uint64_t of_x = tsr__array_type_bytes(x->type), of_y = tsr__array_type_bytes(y->type);
  return of_x != of_y ? (of_x < of_y ? 1 : -1) : compare_names(a, b);
}

void tsr__safetensors_place(tsr__array *arrays, size_t count) {
  uint64_t at = 0;
  tsr__sort(arrays, count, sizeof *arrays, compare_elements);
  for (size_t i = 0; i < count; i++) {
    assert(arrays[i].rank <= TSR__ARRAY_RANK);
    arrays[i].offset_bytes = at;
    arrays[i].size_bytes = bytes_of(&arrays[i]);
    assert(arrays[i].size_bytes <= UINT64_MAX - at);
    at += arrays[i].size_bytes;
  }
}

static void put_json_text(tsr__buffer *out, const char *text) {
  tsr__buffer_append(out, "\"", 1);
  for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
    if (*c == '"' || *c == '\\')
      tsr__buffer_printf(out, "\\%c", *c);
    else if (*c < ' ')
      tsr__buffer_printf(out, "\\u%04x", *c);
    else
      tsr__buffer_append(out, c, 1);
  }
  tsr__buffer_append(out, "\"", 1);
}

static void put_array(tsr__buffer *out, const tsr__array *array) {
  put_json_text(out, array->name);
  tsr__buffer_printf(out, ":{\"dtype\":\"%s\",\"shape\":[", tsr__array_type_name(array->type));
  for (uint32_t i = 0; i < array->rank; i++)
    tsr__buffer_printf(out, "%s%llu", i ? "," : "", (unsigned long long)array->dim[i]);
  unsigned long long begin = array->offset_bytes, size = array->size_bytes;
  tsr__buffer_printf(out, "],\"data_offsets\":[%llu,%llu]}", begin, begin + size);
}

int tsr__safetensors_write_header(tsr__array *arrays, size_t count, const char *const *metadata,
                                  tsr_write_fn *write, void *context, tsr_error *error) {
  static const char spaces[] = "       ";
  tsr__buffer out = {0};
  unsigned char length[LENGTH_BYTES];
  const char *comma = "";
  tsr__safetensors_place(arrays, count);
  tsr__buffer_text(&out, "{");
  for (size_t i = 0; metadata && metadata[i]; i += 2) {
    assert(metadata[i + 1]);
    tsr__buffer_text(&out, i ? "," : "\"__metadata__\":{");
    put_json_text(&out, metadata[i]);
    tsr__buffer_text(&out, ":");
    put_json_text(&out, metadata[i + 1]);
    comma = "},";
  }
  bool is_open = comma[0] != 0;
  for (size_t i = 0; i < count; i++) {
    assert(!i || strcmp(arrays[i - 1].name, arrays[i].name) != 0);
    tsr__buffer_text(&out, comma);
    put_array(&out, &arrays[i]);
    comma = ",";
    is_open = false;
  }
  tsr__buffer_text(&out, is_open ? "}}" : "}");
  if (!out.failed) /* so that the arrays start at a multiple of 8 */
    tsr__buffer_append(&out, spaces, (LENGTH_BYTES - out.size % LENGTH_BYTES) % LENGTH_BYTES);
  for (unsigned i = 0; i < LENGTH_BYTES; i++) length[i] = (unsigned char)(out.size >> (8 * i));
  int status = out.failed ? tsr__fail_memory(error) : 0;
  if (!status &&
      (write(context, (const char *)length, sizeof length) || write(context, out.data, out.size)))
    status = tsr__fail(error, TSR_ERROR_WRITE, TSR_OFFSET_NONE, "cannot write");
  tsr__buffer_release(&out);
  return status;
}
