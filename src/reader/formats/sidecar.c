/* sidecar.c - from the JSON next to a snapshot to named tensors. See sidecar.h.
 *
 *   out/rank0_pid7_step3_oom.pickle(.gz)  ->  out/rank0_pid7_step3_oom.json
 *
 * That name may as well be another program's, or a snapshot in JSON: so only what begins as
 * tessera.record writes it, with the schema within the first bytes, is read at all, and anything
 * else is ignored silently. It is untrusted input like any other: its size is bounded, it must be a
 * regular file (never a pipe, which could block), and jansson bounds its depth.
 *
 * A tensor's place is checked against the blocks of the snapshot: both are sorted by device and
 * address, and each tensor takes the block below its address, if that is allocated and large
 * enough. A sidecar of another run therefore names almost nothing, and a warning reports it.
 *
 * Numbers are non-negative integers, or strings of such: jansson cannot read addresses from 2^63 on
 * (Intel's) as integers, so they are written as strings. Any other value counts as absent. */
#include "formats/sidecar.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/os.h"
#include "base/sort.h"
#include "formats/card.h"

#define SCHEMA_FAMILY "tessera/capture/"
#define SCHEMA        SCHEMA_FAMILY "1"
/* Where the schema must stand. */
#define HEAD_BYTES 4096
/* A longer name is cut. */
#define NAME_BYTES 512
#define MOST_CARDS 4096
#define MOST_AXES  16

typedef struct reading {
  const tsr_snapshot *snapshot; /* laid out */
  tsr__sidecar out;
  tsr__buffer scratch;
  uint64_t lost;  /* tensors without a readable address, or in no block */
  uint64_t wrong; /* values of the ledger that cannot be right */
  bool is_failed; /* out of memory */
} reading;

/* ---- Values ---- */

static bool number_of(const json_t *value, uint64_t *out) {
  if (json_is_integer(value) && json_integer_value(value) >= 0) {
    *out = (uint64_t)json_integer_value(value);
    return true;
  }
  const char *text = json_string_value(value);
  if (!text || *text < '0' || *text > '9') return false;
  char *end;
  errno = 0;
  unsigned long long number = strtoull(text, &end, text[1] == 'x' ? 16 : 10);
  if (*end || errno) return false;
  *out = number;
  return true;
}

static uint64_t number_or_0(const json_t *object, const char *key) {
  uint64_t number = 0;
  (void)number_of(json_object_get(object, key), &number);
  return number;
}

static int64_t time_or_0(const json_t *object, const char *key) {
  uint64_t time_us = number_or_0(object, key);
  return time_us <= INT64_MAX ? (int64_t)time_us : 0;
}

/* "cuda:3" -> 3, "cuda" -> 0; false for what is on no device. */
static bool device_of(const json_t *object, uint32_t *device) {
  const char *text = json_string_value(json_object_get(object, "device"));
  if (!text || !strncmp(text, "cpu", 3) || !strncmp(text, "meta", 4)) return false;
  const char *colon = strchr(text, ':');
  unsigned long number = colon ? strtoul(colon + 1, NULL, 10) : 0;
  *device = (uint32_t)number;
  return number < TSR_DEVICE_CPU;
}

/* ---- Texts ---- */

/* What scratch holds, as a text that lives as long as the snapshot; NULL when out of memory. */
static const char *keep(reading *r) {
  tsr__buffer *buffer = &r->scratch;
  size_t size = buffer->size < NAME_BYTES ? buffer->size : NAME_BYTES;
  /* Not within a character: its later bytes begin with the bits 10. */
  while (size < buffer->size && size && ((unsigned char)buffer->data[size] & 0xc0) == 0x80) size--;
  char *text = buffer->failed ? NULL : tsr__arena_alloc(&r->out.texts, size + 1, 1);
  if (text && size) memcpy(text, buffer->data, size);
  if (text) text[size] = '\0';
  r->is_failed = r->is_failed || !text;
  buffer->size = 0;
  return text;
}

/* "float32 [768, 3072]". */
static const char *type_of(reading *r, const json_t *tensor) {
  const char *dtype = json_string_value(json_object_get(tensor, "dtype"));
  const json_t *shape = json_object_get(tensor, "shape");
  size_t axes = json_array_size(shape);
  if (dtype && !strncmp(dtype, "torch.", 6)) dtype += 6;
  if (dtype) tsr__buffer_text(&r->scratch, dtype);
  if (json_is_array(shape) && axes <= MOST_AXES) {
    tsr__buffer_text(&r->scratch, dtype ? " [" : "[");
    for (size_t i = 0; i < axes; i++)
      tsr__buffer_printf(&r->scratch, "%s%" JSON_INTEGER_FORMAT, i ? ", " : "",
                         json_integer_value(json_array_get(shape, i)));
    tsr__buffer_text(&r->scratch, "]");
  }
  return keep(r);
}

/* ---- Tensors ---- */

/* A tensor at the place that `place` holds; its name is in scratch. Tensors of no bytes are nowhere. */
static void add_tensor(reading *r, const json_t *place, uint32_t device, tsr_category kind,
                       const char *type) {
  tsr_tensor tensor = {.type = type, .device = device, .category = kind};
  uint64_t storage;
  bool is_there = number_of(json_object_get(place, "data_ptr"), &tensor.address) &&
                  number_of(json_object_get(place, "nbytes"), &tensor.size_bytes);
  /* A view that repeats its storage has more elements than there are bytes. */
  if (number_of(json_object_get(place, "storage_nbytes"), &storage) && storage < tensor.size_bytes)
    tensor.size_bytes = storage;
  r->lost += !is_there;
  if (!is_there || !tensor.size_bytes || !tensor.address) {
    r->scratch.size = 0;
    return;
  }
  tensor.name = keep(r);
  if (!TSR__VECTOR_PUSH(&r->out.tensors, tensor)) r->is_failed = true;
}

/* Puts a parameter's name into scratch, after its model's if there are several. A parameter of no
 * watched model is named by its place in the optimizer. */
static void say_name(reading *r, const char *model, const json_t *tensor) {
  const char *name = json_string_value(json_object_get(tensor, "name"));
  const json_t *index = json_object_get(tensor, "index");
  if (model) tsr__buffer_printf(&r->scratch, "%s.", model);
  if ((!name || !*name) && json_is_integer(index))
    tsr__buffer_printf(&r->scratch, "parameter %" JSON_INTEGER_FORMAT, json_integer_value(index));
  else
    tsr__buffer_text(&r->scratch, name && *name ? name : "(unnamed)");
}

static void add_list(reading *r, const json_t *list, const char *model) {
  for (size_t i = 0; !r->is_failed && i < json_array_size(list); i++) {
    const json_t *tensor = json_array_get(list, i);
    const json_t *gradient = json_object_get(tensor, "grad");
    uint32_t device;
    if (!device_of(tensor, &device)) continue;
    const char *type = type_of(r, tensor);
    say_name(r, model, tensor);
    add_tensor(r, tensor, device, TSR_CATEGORY_PARAMETER, type);
    if (!json_is_object(gradient)) continue;
    say_name(r, model, tensor);
    tsr__buffer_text(&r->scratch, ".grad");
    add_tensor(r, gradient, device, TSR_CATEGORY_GRADIENT, type);
  }
}

static void add_state(reading *r, const json_t *list) {
  for (size_t i = 0; !r->is_failed && i < json_array_size(list); i++) {
    const json_t *row = json_array_get(list, i);
    const json_t *owner = json_object_get(row, "parameter");
    const char *key = json_string_value(json_object_get(row, "key"));
    uint32_t device;
    if (!device_of(row, &device)) continue;
    tsr__buffer_printf(&r->scratch, "%s of ", key && *key ? key : "state");
    if (json_is_string(owner))
      tsr__buffer_text(&r->scratch, json_string_value(owner));
    else
      tsr__buffer_printf(&r->scratch, "parameter %" JSON_INTEGER_FORMAT, json_integer_value(owner));
    add_tensor(r, row, device, TSR_CATEGORY_OPTIMIZER_STATE, "");
  }
}

static void add_card(reading *r, const json_t *row) {
  uint64_t device;
  tsr_card card = {.total_bytes = number_or_0(row, "total_bytes"),
                   .free_bytes = number_or_0(row, "free_bytes"),
                   .outside_bytes = number_or_0(row, "outside_pytorch_bytes"),
                   .peak_bytes = number_or_0(row, "peak_allocated_bytes")};
  if (!number_of(json_object_get(row, "device"), &device) || device >= TSR_DEVICE_CPU) return;
  if (r->out.cards.count >= MOST_CARDS) return;
  if (!TSR__VECTOR_PUSH(&r->out.cards, (tsr__card_of){(uint32_t)device, card})) r->is_failed = true;
}

/* Tensors as tsr__sidecar_embed writes them: with their category, whatever it is. */
static void add_plain(reading *r, const json_t *list) {
  for (size_t i = 0; !r->is_failed && i < json_array_size(list); i++) {
    const json_t *row = json_array_get(list, i);
    const char *name = json_string_value(json_object_get(row, "name"));
    const char *type = json_string_value(json_object_get(row, "type"));
    const char *category = json_string_value(json_object_get(row, "category"));
    tsr_category kind = TSR_CATEGORY_UNKNOWN;
    uint32_t device;
    if (!device_of(row, &device)) continue;
    for (int k = 0; category && k < TSR_CATEGORY_COUNT; k++)
      if (!strcmp(category, tsr_category_name((tsr_category)k))) kind = (tsr_category)k;
    tsr__buffer_text(&r->scratch, type ? type : "");
    const char *kept = keep(r);
    tsr__buffer_text(&r->scratch, name && *name ? name : "(unnamed)");
    add_tensor(r, row, device, kind, kept);
  }
}

/* A name of an axis, as it is compared and printed; false if it cannot be the name of an axis. */
static bool take_axis_name(const json_t *value, char name[TSR_MESH_NAME_BYTES]) {
  const char *text = json_string_value(value);
  size_t length = text ? strlen(text) : 0;
  if (!length || length >= TSR_MESH_NAME_BYTES) return false;
  for (size_t i = 0; i <= length; i++) {
    char c = text[i];
    bool is_word = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || !c;
    if (c >= 'A' && c <= 'Z')
      c = (char)(c - 'A' + 'a');
    else if (!is_word)
      return false;
    name[i] = c;
  }
  return true;
}

/* The mesh, if all of it can be read. `coordinates` is a list like the others, or an object by name. */
static void take_mesh(tsr_rank_place *place, const json_t *mesh) {
  const json_t *names = json_object_get(mesh, "names"), *sizes = json_object_get(mesh, "sizes");
  const json_t *at = json_object_get(mesh, "coordinates");
  size_t count = json_array_size(names);
  if (count > TSR_MESH_AXES) return;
  for (size_t i = 0; i < count; i++) {
    tsr_mesh_axis *axis = &place->axes[i];
    const char *name = json_string_value(json_array_get(names, i));
    uint64_t size = 0, number;
    const json_t *value =
        json_is_object(at) && name ? json_object_get(at, name) : json_array_get(at, i);
    (void)number_of(json_array_get(sizes, i), &size);
    if (!take_axis_name(json_array_get(names, i), axis->name) || !number_of(value, &number) ||
        number >= UINT32_MAX || size >= UINT32_MAX || (size && number >= size))
      return;
    axis->size = (uint32_t)size;
    axis->at = (uint32_t)number;
  }
  place->axis_count = count;
}

static void take_place(reading *r, const json_t *root) {
  const json_t *ranks = json_object_get(root, "ranks"), *mesh = json_object_get(root, "mesh");
  tsr_rank_place *place = &r->out.place;
  uint64_t number;
  *place = (tsr_rank_place){.rank = -1, .world_size = -1};
  if (number_of(json_object_get(ranks, "rank"), &number) && number < UINT32_MAX)
    place->rank = (int64_t)number;
  if (number_of(json_object_get(ranks, "world_size"), &number) && number < UINT32_MAX)
    place->world_size = (int64_t)number;
  take_mesh(place, mesh);
  r->out.has_place = place->rank >= 0 || place->axis_count;
}

/* The process, whose number and machine tell whether two snapshots are of one card. */
static void take_process(reading *r, const json_t *process) {
  const char *host = json_string_value(json_object_get(process, "host"));
  r->out.pid = number_or_0(process, "pid") & INT64_MAX;
  if (!host || !*host) return;
  tsr__buffer_text(&r->scratch, host);
  r->out.host = keep(r);
}

static void take_root(reading *r, const json_t *root) {
  const json_t *models = json_object_get(root, "models");
  const json_t *optimizers = json_object_get(root, "optimizers");
  const json_t *devices = json_object_get(root, "devices");
  for (size_t i = 0; i < json_array_size(models); i++) {
    const json_t *model = json_array_get(models, i);
    const char *name =
        json_array_size(models) > 1 ? json_string_value(json_object_get(model, "name")) : NULL;
    add_list(r, json_object_get(model, "parameters"), name);
    add_list(r, json_object_get(model, "buffers"), name);
  }
  add_list(r, json_object_get(root, "other_parameters"), NULL);
  add_plain(r, json_object_get(root, "tensors"));
  for (size_t i = 0; i < json_array_size(optimizers); i++)
    add_state(r, json_object_get(json_array_get(optimizers, i), "state"));
  for (size_t i = 0; i < json_array_size(devices); i++) add_card(r, json_array_get(devices, i));
  take_place(r, root);
  take_process(r, json_object_get(root, "process"));
  if (!tsr__card_read(json_object_get(root, "card"), &r->out.texts, &r->out.ledger, &r->wrong))
    r->is_failed = true;
  r->out.taken_us = time_or_0(root, "time_us");
  r->out.started_us = time_or_0(json_object_get(root, "recording"), "started_us");
}

/* ---- Blocks ---- */

typedef struct held_block {
  uint64_t address, size_bytes;
  uint32_t device;
} held_block;

static int compare_blocks(const void *a, const void *b) {
  const held_block *x = a, *y = b;
  if (x->device != y->device) return x->device < y->device ? -1 : 1;
  return (x->address > y->address) - (x->address < y->address);
}

static int compare_tensors(const void *a, const void *b) {
  const tsr_tensor *x = a, *y = b;
  if (x->device != y->device) return x->device < y->device ? -1 : 1;
  if (x->address != y->address) return x->address < y->address ? -1 : 1;
  if (x->category != y->category) return x->category < y->category ? -1 : 1;
  return strcmp(x->name, y->name);
}

typedef TSR__VECTOR(held_block) held_list;

/* Blocks that held a tensor when the snapshot was taken; those that wait for a stream do not. */
static bool list_blocks(const tsr_snapshot *snapshot, held_list *out) {
  for (size_t i = 0; i < snapshot->segment_count; i++) {
    const tsr_segment *segment = &snapshot->segments.items[i];
    for (uint64_t k = 0; k < segment->block_count; k++) {
      const tsr_block *block = &snapshot->blocks.items[segment->first_block + k];
      if (block->state != TSR_BLOCK_ALLOCATED) continue;
      if (!TSR__VECTOR_PUSH(out, (held_block){block->address, block->size_bytes, segment->device}))
        return false;
    }
  }
  tsr__sort(out->items, out->count, sizeof *out->items, compare_blocks);
  return true;
}

static bool holds(const held_block *block, const tsr_tensor *tensor) {
  uint64_t offset = tensor->address - block->address;
  return block->device == tensor->device && block->address <= tensor->address &&
         offset <= block->size_bytes && tensor->size_bytes <= block->size_bytes - offset;
}

/* Give each tensor its block, and drop those that have none or are listed twice. */
static void place_tensors(reading *r, const held_list *blocks) {
  size_t at = 0, kept = 0;
  tsr_tensor *items = r->out.tensors.items;
  for (size_t i = 0; i < r->out.tensors.count; i++) {
    held_block place = {.address = items[i].address, .device = items[i].device};
    while (at + 1 < blocks->count && compare_blocks(&blocks->items[at + 1], &place) <= 0) at++;
    if (kept && !compare_tensors(&items[kept - 1], &items[i])) continue;
    if (at >= blocks->count || !holds(&blocks->items[at], &items[i])) {
      r->lost++;
      continue;
    }
    items[kept] = items[i];
    items[kept++].block_address = blocks->items[at].address;
  }
  r->out.tensors.count = kept;
}

static void place_all(reading *r) {
  held_list blocks = {0};
  size_t count = r->out.tensors.count;
  tsr__sort(r->out.tensors.items, count, sizeof *r->out.tensors.items, compare_tensors);
  if (list_blocks(r->snapshot, &blocks))
    place_tensors(r, &blocks);
  else
    r->is_failed = true;
  TSR__VECTOR_FREE(&blocks);
}

/* ---- A text of one's own ---- */

static json_t *tensor_of(const tsr_tensor *tensor) {
  char device[24], address[24];
  (void)snprintf(device, sizeof device, "cuda:%" PRIu32, tensor->device);
  (void)snprintf(address, sizeof address, "0x%" PRIx64, tensor->address);
  return json_pack("{s:s, s:s, s:s, s:s, s:s, s:I}", "name", tensor->name, "type", tensor->type,
                   "category", tsr_category_name(tensor->category), "device", device, "data_ptr",
                   address, "nbytes", (json_int_t)(tensor->size_bytes & INT64_MAX));
}

static json_t *card_of(const tsr__card_of *of) {
  return json_pack("{s:I, s:I, s:I, s:I, s:I}", "device", (json_int_t)of->device, "total_bytes",
                   (json_int_t)(of->card.total_bytes & INT64_MAX), "free_bytes",
                   (json_int_t)(of->card.free_bytes & INT64_MAX), "outside_pytorch_bytes",
                   (json_int_t)(of->card.outside_bytes & INT64_MAX), "peak_allocated_bytes",
                   (json_int_t)(of->card.peak_bytes & INT64_MAX));
}

/* What take_place reads; NULL when out of memory. */
static json_t *mesh_of(const tsr_rank_place *place) {
  json_t *names = json_array(), *sizes = json_array(), *at = json_array();
  bool ok = names && sizes && at;
  for (size_t i = 0; ok && i < place->axis_count; i++)
    ok = !json_array_append_new(names, json_string(place->axes[i].name)) &&
         !json_array_append_new(sizes, json_integer(place->axes[i].size)) &&
         !json_array_append_new(at, json_integer(place->axes[i].at));
  json_t *mesh =
      ok ? json_pack("{s:O, s:O, s:O}", "names", names, "sizes", sizes, "coordinates", at) : NULL;
  json_decref(names);
  json_decref(sizes);
  json_decref(at);
  return mesh;
}

/* What take_root reads of times. */
static bool add_times(const tsr__sidecar *sidecar, json_t *root) {
  if (sidecar->taken_us && json_object_set_new(root, "time_us", json_integer(sidecar->taken_us)))
    return false;
  return !sidecar->started_us ||
         !json_object_set_new(root, "recording",
                              json_pack("{s:I}", "started_us", (json_int_t)sidecar->started_us));
}

static bool add_place(const tsr__sidecar *sidecar, json_t *root) {
  const tsr_rank_place *place = &sidecar->place;
  if (!sidecar->has_place) return true;
  json_t *ranks = json_pack("{s:I, s:I}", "rank", (json_int_t)place->rank, "world_size",
                            (json_int_t)place->world_size);
  return !json_object_set_new(root, "ranks", ranks) &&
         (!place->axis_count || !json_object_set_new(root, "mesh", mesh_of(place)));
}

static bool add_process(const tsr__sidecar *sidecar, json_t *root) {
  if (!sidecar->pid && !sidecar->host) return true;
  return !json_object_set_new(
      root, "process",
      json_pack("{s:I, s:s?}", "pid", (json_int_t)sidecar->pid, "host", sidecar->host));
}

static bool add_ledger(const tsr__sidecar *sidecar, json_t *root) {
  return !sidecar->ledger.recording.is_there ||
         !json_object_set_new(root, "card", tsr__card_write(&sidecar->ledger));
}

/* False when out of memory. */
static bool append_text(const tsr__sidecar *sidecar, tsr__buffer *out) {
  json_t *tensors = json_array(), *cards = json_array();
  bool ok = tensors && cards;
  for (size_t i = 0; ok && i < sidecar->tensors.count; i++)
    ok = !json_array_append_new(tensors, tensor_of(&sidecar->tensors.items[i]));
  for (size_t i = 0; ok && i < sidecar->cards.count; i++)
    ok = !json_array_append_new(cards, card_of(&sidecar->cards.items[i]));
  json_t *root =
      ok ? json_pack("{s:s, s:O, s:O}", "schema", SCHEMA, "devices", cards, "tensors", tensors)
         : NULL;
  ok = root && add_times(sidecar, root) && add_place(sidecar, root) && add_process(sidecar, root) &&
       add_ledger(sidecar, root) && tsr__json_append(out, root, JSON_COMPACT);
  json_decref(root);
  json_decref(tensors);
  json_decref(cards);
  return ok;
}

int tsr__sidecar_embed(tsr__builder *builder, tsr__sidecar *sidecar, tsr_error *error) {
  sidecar->string = 0;
  bool has_ledger = sidecar->ledger.recording.is_there;
  if (!sidecar->tensors.count && !sidecar->cards.count && !sidecar->has_place && !has_ledger)
    return 0;
  tsr__buffer text = {0};
  bool ok = append_text(sidecar, &text);
  tsr__buffer_append(&text, "", 1);
  ok = ok && !text.failed;
  if (ok && text.size <= TSR__SIDECAR_BYTES)
    sidecar->string = tsr__builder_text(builder, text.data);
  tsr__buffer_release(&text);
  return ok && sidecar->string != TSR_NONE ? 0 : tsr__fail_memory(error);
}

/* ---- A text ---- */

static int fail_stranger(tsr_error *error) {
  return tsr__fail(error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE,
                   "not a sidecar written by tessera.record");
}

/* Read the text, whose path is `path` or NULL, and give the builder what it holds. */
static int read_text(tsr__builder *builder, const char *text, size_t size_bytes, const char *path,
                     tsr_error *error) {
  json_t *root = NULL;
  int loaded = tsr_json_load(text, size_bytes, JSON_ALLOW_NUL, NULL, &root, error);
  if (loaded && error) error->offset = TSR_OFFSET_NONE; /* the reader's are of the snapshot */
  if (loaded) return loaded;
  reading r = {.snapshot = builder->snapshot};
  const char *schema = json_string_value(json_object_get(root, "schema"));
  bool is_ours = schema && !strncmp(schema, SCHEMA_FAMILY, strlen(SCHEMA_FAMILY));
  bool is_known = is_ours && !strcmp(schema, SCHEMA);
  if (is_known) take_root(&r, root);
  if (is_known && !r.is_failed) place_all(&r);
  if (is_ours && path) {
    r.out.path = tsr__arena_copy(&r.out.texts, path, strlen(path) + 1, 1);
    r.is_failed = r.is_failed || !r.out.path;
  }
  int status = !is_ours ? fail_stranger(error) : r.is_failed ? tsr__fail_memory(error) : 0;
  if (!status) {
    tsr__builder_set_warning(builder, TSR__WARN_SIDECAR_SCHEMA, !is_known);
    tsr__builder_set_warning(builder, TSR__WARN_SIDECAR_MISFITS, r.lost);
    tsr__builder_set_warning(builder, TSR__WARN_SIDECAR_CARD, r.wrong);
    status = tsr__sidecar_embed(builder, &r.out, error);
  }
  if (!status) {
    tsr__builder_take_sidecar(builder, &r.out);
  }
  tsr__sidecar_release(&r.out);
  tsr__buffer_release(&r.scratch);
  json_decref(root);
  return status;
}

int tsr__sidecar_read(tsr__builder *builder, const char *text, size_t size_bytes,
                      tsr_error *error) {
  assert(builder->is_laid_out);
  return read_text(builder, text, size_bytes, NULL, error);
}

/* ---- A file ---- */

/* The name that tessera.record gives the sidecar of a snapshot, which it may have compressed; into
 * `out`. False where it is the snapshot's own. */
static bool name_beside(const char *path, tsr__buffer *out) {
  static const char *const endings[] = {".gz", ".zst", ".xz", ".pickle", ".pkl"};
  size_t size = strlen(path);
  for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
    size_t length = strlen(endings[i]);
    if (size > length && !memcmp(path + size - length, endings[i], length)) size -= length;
  }
  tsr__buffer_append(out, path, size);
  tsr__buffer_append(out, ".json", sizeof ".json");
  return !out->failed && strcmp(out->data, path) != 0;
}

static bool has_schema(const char *text, size_t size) {
  static const char family[] = SCHEMA_FAMILY;
  size_t length = sizeof family - 1, end = size < HEAD_BYTES ? size : HEAD_BYTES;
  for (size_t i = 0; i + length <= end; i++)
    if (!memcmp(text + i, family, length)) return true;
  return false;
}

/* The whole file into `text`; only its head, where that is not a sidecar's. */
static int read_file(int handle, tsr__buffer *text, tsr_error *error) {
  char piece[HEAD_BYTES];
  for (;;) {
    ptrdiff_t got = tsr__os_read(handle, piece, sizeof piece, error);
    if (got < 0) return (int)got;
    tsr__buffer_append(text, piece, (size_t)got);
    if (text->failed) return tsr__fail_memory(error);
    if (!got || !has_schema(text->data, text->size)) return 0;
    if (text->size > TSR__SIDECAR_BYTES)
      return tsr__fail(error, TSR_ERROR_LIMIT, TSR_OFFSET_NONE, "more than 64 MiB");
  }
}

/* Read `path`. `*is_sidecar`: it exists and begins as one. */
static int read_path(tsr__builder *builder, const char *path, bool *is_sidecar, tsr_error *error) {
  tsr__buffer text = {0};
  int handle;
  int status = tsr__os_open_regular(path, &handle, error);
  if (status) return status;
  status = read_file(handle, &text, error);
  tsr__os_close(handle);
  *is_sidecar = text.size && has_schema(text.data, text.size);
  if (!status && !*is_sidecar) status = fail_stranger(error);
  if (!status) status = read_text(builder, text.data, text.size, path, error);
  tsr__buffer_release(&text);
  return status;
}

/* The sidecar that was requested: every failure is one, and names it. */
static int read_chosen(tsr__builder *builder, const char *path, tsr_error *error) {
  tsr_error why = {.offset = TSR_OFFSET_NONE};
  bool is_sidecar = false;
  int status = read_path(builder, path, &is_sidecar, &why);
  if (!status) return 0;
  return tsr__fail(error, (tsr_status)status, why.offset, "the sidecar %s: %s", path, why.message);
}

/* The text in the snapshot itself, unless a file has been read. */
static int read_embedded(tsr__builder *builder, uint32_t string, tsr_error *error) {
  tsr_text text = tsr_snapshot_string(builder->snapshot, string);
  tsr_error ignored = {.offset = TSR_OFFSET_NONE};
  if (!string || builder->snapshot->sidecar.path) return 0;
  int status = text.size_bytes > TSR__SIDECAR_BYTES
                   ? TSR_ERROR_LIMIT
                   : read_text(builder, text.data, text.size_bytes, NULL, &ignored);
  if (status == TSR_ERROR_MEMORY) return tsr__fail_memory(error);
  if (status) tsr__builder_set_warning(builder, TSR__WARN_SIDECAR_UNREADABLE, true);
  return 0;
}

int tsr__sidecar_find(tsr__builder *builder, const char *path, const char *choice,
                      tsr_error *error) {
  int status = 0;
  uint32_t embedded = builder->snapshot->sidecar.string;
  assert(builder->is_laid_out);
  tsr__builder_embedded_sidecar(builder, 0);
  if (choice && *choice) {
    status = read_chosen(builder, choice, error);
  } else if (!choice && path && strcmp(path, "-") != 0) {
    tsr__buffer beside = {0};
    tsr_error ignored = {.offset = TSR_OFFSET_NONE};
    bool is_sidecar = false;
    if (name_beside(path, &beside))
      status = read_path(builder, beside.data, &is_sidecar, &ignored);
    else if (beside.failed)
      status = TSR_ERROR_MEMORY;
    tsr__buffer_release(&beside);
    if (status == TSR_ERROR_MEMORY) return tsr__fail_memory(error);
    tsr__builder_set_warning(builder, TSR__WARN_SIDECAR_UNREADABLE, status && is_sidecar);
    status = 0;
  }
  return status || choice ? status : read_embedded(builder, embedded, error);
}
