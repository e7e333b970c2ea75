/* card.c - the ledger of the card, from JSON to columns and back. See card.h.
 *
 *   "card": {..., "devices": [{..., "communicators": [{...}], "samples": {"time_us": [..], "total_used_bytes": [..],
 *                                                                          "communicator_bytes": [[..], ..]}}]}
 *
 * A sidecar is untrusted. Everything may be absent, null or of another kind; then it is not known. A series that is not as long
 * as the times is left out and counted, and so is a value that no card can have. Samples are put in the order of their times,
 * of which those without a time are dropped. Memory is linear in the text: a column is only made for a series that is there. */
#include "formats/card.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/sort.h"

enum {
  MOST_DEVICES = 64,
  MOST_LISTED = 1024, /* libraries, communicators, processes */
  MOST_MARKS = 1 << 14,
  MOST_SAMPLES = 1 << 16,
  TEXT_BYTES = 512
};
/* Of a card; sums of as many as are listed stay below 2^63. */
#define MOST_BYTES ((json_int_t)1 << 50)

/* When a sample was taken, and its place in the file. */
typedef struct place {
  int64_t time_us;
  size_t index;
} place;

typedef struct reading {
  tsr__arena *texts;
  uint64_t lost;
  bool is_failed; /* out of memory */
  place *places;  /* of the samples of the device at hand, in their order */
  size_t sample_count, listed_count;
} reading;

static void *take(reading *r, size_t count, size_t size, size_t alignment) {
  assert(count <= SIZE_MAX / size);
  void *room = tsr__arena_alloc(r->texts, count * size, alignment);
  if (!room) r->is_failed = true;
  return room;
}

#define TAKE(r, type, count) ((type *)take((r), (count), sizeof(type), _Alignof(type)))

/* ---- Values ---- */

/* A text that lives as long as the sidecar; "" for any other value. */
static const char *text_of(reading *r, const json_t *value) {
  const char *text = json_string_value(value);
  size_t length = text ? json_string_length(value) : 0,
         size = length < TEXT_BYTES ? length : TEXT_BYTES;
  const char *end = size ? memchr(text, 0, size) : NULL;
  if (value && !text && !json_is_null(value)) r->lost++;
  if (end) size = (size_t)(end - text);
  while (size < length && size && ((unsigned char)text[size] & 0xc0) == 0x80) size--;
  char *copy = TAKE(r, char, size + 1);
  if (!copy) return "";
  if (size) memcpy(copy, text, size);
  copy[size] = '\0';
  return copy;
}

/* A number of bytes, or of anything else that is not negative; TSR_LEDGER_UNKNOWN for any other value, which is counted unless it is
 * absent or null. */
static uint64_t number_of(reading *r, const json_t *value) {
  if (json_is_integer(value) && json_integer_value(value) >= 0 &&
      json_integer_value(value) < MOST_BYTES)
    return (uint64_t)json_integer_value(value);
  r->lost += value && !json_is_null(value);
  return TSR_LEDGER_UNKNOWN;
}

static uint64_t number_in(reading *r, const json_t *object, const char *key) {
  return number_of(r, json_object_get(object, key));
}

static uint64_t number_or_0(reading *r, const json_t *object, const char *key) {
  uint64_t number = number_in(r, object, key);
  return number == TSR_LEDGER_UNKNOWN ? 0 : number;
}

/* A time; 0 for any other value. */
static int64_t time_in(reading *r, const json_t *object, const char *key) {
  const json_t *value = json_object_get(object, key);
  if (json_is_integer(value) && json_integer_value(value) >= 0) return json_integer_value(value);
  r->lost += value && !json_is_null(value);
  return 0;
}

static const char *text_in(reading *r, const json_t *object, const char *key) {
  return text_of(r, json_object_get(object, key));
}

/* How many entries of a list are read. */
static size_t list_count(reading *r, const json_t *list, size_t most) {
  size_t count = json_array_size(list);
  r->lost += list && !json_is_null(list) && !json_is_array(list);
  if (count <= most) return count;
  r->lost += count - most;
  return most;
}

/* ---- Samples ---- */

static int compare_places(const void *a, const void *b) {
  const place *x = a, *y = b;
  if (x->time_us != y->time_us) return x->time_us < y->time_us ? -1 : 1;
  return (x->index > y->index) - (x->index < y->index);
}

/* Fill r->places from the times, which `samples` has. */
static const int64_t *take_times(reading *r, const json_t *samples) {
  const json_t *times = json_object_get(samples, "time_us");
  r->listed_count = json_array_size(times);
  r->sample_count = 0;
  size_t count = list_count(r, times, MOST_SAMPLES);
  r->places = tsr__realloc(r->places, count + 1, sizeof *r->places);
  if (!r->places) r->is_failed = true;
  for (size_t i = 0; !r->is_failed && i < count; i++) {
    const json_t *value = json_array_get(times, i);
    bool is_time = json_is_integer(value) && json_integer_value(value) > 0;
    r->lost += !is_time;
    if (is_time) r->places[r->sample_count++] = (place){json_integer_value(value), i};
  }
  if (r->is_failed || !r->sample_count) return NULL;
  tsr__sort(r->places, r->sample_count, sizeof *r->places, compare_places);
  int64_t *out = TAKE(r, int64_t, r->sample_count);
  for (size_t i = 0; out && i < r->sample_count; i++) out[i] = r->places[i].time_us;
  return out;
}

/* A series as a column; NULL if it is absent, of another length, or has no value. */
static const uint64_t *take_series(reading *r, const json_t *series) {
  bool is_absent = !series || json_is_null(series), has_value = false;
  if (is_absent || !r->sample_count) return NULL;
  if (!json_is_array(series) || json_array_size(series) != r->listed_count) {
    r->lost++;
    return NULL;
  }
  uint64_t *out = TAKE(r, uint64_t, r->sample_count);
  for (size_t i = 0; out && i < r->sample_count; i++) {
    out[i] = number_of(r, json_array_get(series, r->places[i].index));
    has_value = has_value || out[i] != TSR_LEDGER_UNKNOWN;
  }
  return has_value ? out : NULL;
}

static const uint32_t *take_marks(reading *r, const json_t *series, size_t mark_count) {
  const uint64_t *numbers = take_series(r, series);
  if (!numbers) return NULL;
  uint32_t *out = TAKE(r, uint32_t, r->sample_count);
  for (size_t i = 0; out && i < r->sample_count; i++) {
    bool is_mark = numbers[i] < mark_count;
    r->lost += !is_mark && numbers[i] != TSR_LEDGER_UNKNOWN;
    out[i] = is_mark ? (uint32_t)numbers[i] : TSR_NONE;
  }
  return out;
}

/* ---- A device ---- */

static void take_libraries(reading *r, const json_t *list, tsr_ledger *out) {
  size_t count = list_count(r, list, MOST_LISTED);
  tsr_ledger_library *rows = TAKE(r, tsr_ledger_library, count);
  for (size_t i = 0; rows && i < count; i++) {
    const json_t *row = json_array_get(list, i);
    rows[i] = (tsr_ledger_library){.name = text_in(r, row, "name"),
                                   .from = text_in(r, row, "from"),
                                   .bytes = number_in(r, row, "bytes"),
                                   .since_us = time_in(r, row, "since_us")};
  }
  out->libraries = rows;
  out->library_count = rows ? count : 0;
}

static void take_communicators(reading *r, const json_t *list, const json_t *series,
                               tsr_ledger *out) {
  size_t count = list_count(r, list, MOST_LISTED);
  tsr_ledger_communicator *rows = TAKE(r, tsr_ledger_communicator, count);
  for (size_t i = 0; rows && i < count; i++) {
    const json_t *row = json_array_get(list, i);
    rows[i] =
        (tsr_ledger_communicator){.name = text_in(r, row, "name"),
                                  .backend = text_in(r, row, "backend"),
                                  .from = text_in(r, row, "from"),
                                  .ranks = number_or_0(r, row, "ranks"),
                                  .is_suspended = json_is_true(json_object_get(row, "suspended")),
                                  .bytes = take_series(r, json_array_get(series, i))};
  }
  out->communicators = rows;
  out->communicator_count = rows ? count : 0;
}

static void take_processes(reading *r, const json_t *list, const json_t *series, tsr_ledger *out) {
  size_t count = list_count(r, list, MOST_LISTED);
  tsr_ledger_process *rows = TAKE(r, tsr_ledger_process, count);
  for (size_t i = 0; rows && i < count; i++) {
    const json_t *row = json_array_get(list, i);
    rows[i] = (tsr_ledger_process){.pid = number_or_0(r, row, "pid"),
                                   .name = text_in(r, row, "name"),
                                   .bytes = take_series(r, json_array_get(series, i))};
  }
  out->processes = rows;
  out->process_count = rows ? count : 0;
}

static const char *const *take_texts(reading *r, const json_t *list, size_t most, size_t *count) {
  size_t listed = list_count(r, list, most);
  const char **texts = TAKE(r, const char *, listed);
  for (size_t i = 0; texts && i < listed; i++) texts[i] = text_of(r, json_array_get(list, i));
  *count = texts ? listed : 0;
  return texts;
}

static void take_device(reading *r, const json_t *row, tsr_ledger *out) {
  const json_t *samples = json_object_get(row, "samples");
  out->name = text_in(r, row, "name");
  out->uuid = text_in(r, row, "uuid");
  out->total_bytes = number_in(r, row, "total_bytes");
  out->driver_bytes = number_in(r, row, "driver_bytes");
  out->context_bytes = number_in(r, row, "context_bytes");
  out->context_from = text_in(r, row, "context_from");
  take_libraries(r, json_object_get(row, "libraries"), out);
  out->marks = take_texts(r, json_object_get(row, "marks"), MOST_MARKS, &out->mark_count);
  out->notes = take_texts(r, json_object_get(row, "notes"), MOST_LISTED, &out->note_count);
  out->time_us = take_times(r, samples);
  out->sample_count = out->time_us ? r->sample_count : 0;
  if (r->is_failed) return;
  out->mark = take_marks(r, json_object_get(samples, "mark"), out->mark_count);
  out->used_bytes = take_series(r, json_object_get(samples, "total_used_bytes"));
  out->allocated_bytes = take_series(r, json_object_get(samples, "allocated_bytes"));
  out->reserved_bytes = take_series(r, json_object_get(samples, "reserved_bytes"));
  out->private_pool_bytes = take_series(r, json_object_get(samples, "private_pool_bytes"));
  out->unmapped_bytes = take_series(r, json_object_get(samples, "unmapped_bytes"));
  out->process_bytes = take_series(r, json_object_get(samples, "process_bytes"));
  take_communicators(r, json_object_get(row, "communicators"),
                     json_object_get(samples, "communicator_bytes"), out);
  take_processes(r, json_object_get(row, "processes"),
                 json_object_get(samples, "other_process_bytes"), out);
}

static int compare_devices(const void *a, const void *b) {
  const tsr_ledger *x = a, *y = b;
  return (x->device > y->device) - (x->device < y->device);
}

static bool has_device(const tsr_ledger *rows, size_t count, uint64_t device) {
  for (size_t i = 0; i < count; i++)
    if (rows[i].device == device) return true;
  return false;
}

static void take_devices(reading *r, const json_t *list, tsr__card_ledger *out) {
  size_t count = list_count(r, list, MOST_DEVICES), kept = 0;
  tsr_ledger *rows = TAKE(r, tsr_ledger, count);
  for (size_t i = 0; rows && !r->is_failed && i < count; i++) {
    const json_t *row = json_array_get(list, i);
    uint64_t device = number_in(r, row, "device");
    bool is_device = device < TSR_DEVICE_HOST && !has_device(rows, kept, device);
    r->lost += !is_device;
    if (!is_device) continue;
    rows[kept] = (tsr_ledger){.device = (uint32_t)device};
    take_device(r, row, &rows[kept++]);
  }
  if (rows) tsr__sort(rows, kept, sizeof *rows, compare_devices);
  out->devices = rows;
  out->device_count = rows ? kept : 0;
}

static void take_host(reading *r, const json_t *host, tsr_host_ledger *out) {
  const json_t *samples = json_object_get(host, "samples");
  out->pinned_bytes = number_in(r, host, "pinned_bytes");
  out->limit_bytes = number_in(r, host, "limit_bytes");
  out->limit_from = text_in(r, host, "limit_from");
  out->time_us = take_times(r, samples);
  out->sample_count = out->time_us ? r->sample_count : 0;
  if (r->is_failed) return;
  out->rss_bytes = take_series(r, json_object_get(samples, "rss_bytes"));
  out->cgroup_bytes = take_series(r, json_object_get(samples, "cgroup_bytes"));
  out->pinned_bytes_by_sample = take_series(r, json_object_get(samples, "pinned_bytes"));
}

bool tsr__card_read(const json_t *card, tsr__arena *texts, tsr__card_ledger *out, uint64_t *lost) {
  reading r = {.texts = texts};
  *out = (tsr__card_ledger){0};
  if (!json_is_object(card)) {
    *lost += card && !json_is_null(card);
    return true;
  }
  out->recording = (tsr_ledger_recording){.is_there = true,
                                          .period_ms = number_in(&r, card, "period_ms"),
                                          .samples_taken = number_in(&r, card, "samples_taken"),
                                          .samples_kept = number_in(&r, card, "samples_kept"),
                                          .sampling_us = number_in(&r, card, "sampling_us"),
                                          .step_us = number_in(&r, card, "step_us"),
                                          .nvml = text_in(&r, card, "nvml"),
                                          .nvml_error = text_in(&r, card, "nvml_error")};
  out->recording.notes =
      take_texts(&r, json_object_get(card, "notes"), MOST_LISTED, &out->recording.note_count);
  if (!r.is_failed) take_devices(&r, json_object_get(card, "devices"), out);
  if (!r.is_failed) take_host(&r, json_object_get(card, "host"), &out->host);
  tsr__free(r.places);
  *lost += r.lost;
  return !r.is_failed;
}

/* ---- Back to JSON ---- */

static json_t *number(uint64_t value) {
  return value == TSR_LEDGER_UNKNOWN ? json_null() : json_integer((json_int_t)value);
}

static json_t *text(const char *value) {
  return *value ? json_string(value) : json_null();
}

/* Puts a new value into an object or an array, if there is one; false when out of memory. */
static bool put(json_t *object, const char *key, json_t *value) {
  return !json_object_set_new(object, key, value);
}

static bool push(json_t *array, json_t *value) {
  return !json_array_append_new(array, value);
}

static json_t *series(const uint64_t *column, size_t count) {
  json_t *out = column ? json_array() : json_null();
  bool ok = out != NULL;
  for (size_t i = 0; ok && column && i < count; i++) ok = push(out, number(column[i]));
  if (ok) return out;
  json_decref(out);
  return NULL;
}

static json_t *times(const int64_t *time_us, size_t count) {
  json_t *out = json_array();
  bool ok = out != NULL;
  for (size_t i = 0; ok && i < count; i++) ok = push(out, json_integer(time_us[i]));
  if (ok) return out;
  json_decref(out);
  return NULL;
}

static json_t *mark_numbers(const tsr_ledger *d) {
  json_t *out = d->mark ? json_array() : json_null();
  bool ok = out != NULL;
  for (size_t i = 0; ok && d->mark && i < d->sample_count; i++)
    ok = push(out, d->mark[i] == TSR_NONE ? json_null() : json_integer(d->mark[i]));
  if (ok) return out;
  json_decref(out);
  return NULL;
}

static json_t *texts_of(const char *const *texts, size_t count) {
  json_t *out = json_array();
  bool ok = out != NULL;
  for (size_t i = 0; ok && i < count; i++) ok = push(out, json_string(texts[i]));
  if (ok) return out;
  json_decref(out);
  return NULL;
}

/* All lists of a device and the series of its samples, into `row` and `samples`. */
static bool put_lists(const tsr_ledger *d, json_t *row, json_t *samples) {
  static const char *const keys[] = {"libraries", "communicators", "processes"};
  json_t *lists[3], *groups = json_array(), *others = json_array();
  bool ok = put(samples, "communicator_bytes", groups);
  ok = put(samples, "other_process_bytes", others) && ok;
  for (size_t i = 0; i < 3; i++) {
    lists[i] = json_array();
    ok = put(row, keys[i], lists[i]) && ok;
  }
  for (size_t i = 0; ok && i < d->library_count; i++) {
    const tsr_ledger_library *l = &d->libraries[i];
    ok =
        push(lists[0], json_pack("{s:s, s:o, s:o, s:I}", "name", l->name, "bytes", number(l->bytes),
                                 "from", text(l->from), "since_us", (json_int_t)l->since_us));
  }
  for (size_t i = 0; ok && i < d->communicator_count; i++) {
    const tsr_ledger_communicator *c = &d->communicators[i];
    ok = push(lists[1], json_pack("{s:s, s:s, s:I, s:o, s:b}", "name", c->name, "backend",
                                  c->backend, "ranks", (json_int_t)c->ranks, "from", text(c->from),
                                  "suspended", c->is_suspended)) &&
         push(groups, series(c->bytes, d->sample_count));
  }
  for (size_t i = 0; ok && i < d->process_count; i++) {
    const tsr_ledger_process *p = &d->processes[i];
    ok =
        push(lists[2], json_pack("{s:I, s:o}", "pid", (json_int_t)p->pid, "name", text(p->name))) &&
        push(others, series(p->bytes, d->sample_count));
  }
  return ok && put(row, "marks", texts_of(d->marks, d->mark_count)) &&
         put(row, "notes", texts_of(d->notes, d->note_count));
}

static json_t *device_of(const tsr_ledger *d) {
  json_t *row = json_object(), *samples = json_object();
  bool ok = put(row, "device", json_integer(d->device)) && put(row, "name", text(d->name)) &&
            put(row, "uuid", text(d->uuid)) && put(row, "total_bytes", number(d->total_bytes)) &&
            put(row, "driver_bytes", number(d->driver_bytes)) &&
            put(row, "context_bytes", number(d->context_bytes)) &&
            put(row, "context_from", text(d->context_from)) &&
            put(samples, "time_us", times(d->time_us, d->sample_count)) &&
            put(samples, "mark", mark_numbers(d)) &&
            put(samples, "total_used_bytes", series(d->used_bytes, d->sample_count)) &&
            put(samples, "allocated_bytes", series(d->allocated_bytes, d->sample_count)) &&
            put(samples, "reserved_bytes", series(d->reserved_bytes, d->sample_count)) &&
            put(samples, "private_pool_bytes", series(d->private_pool_bytes, d->sample_count)) &&
            put(samples, "unmapped_bytes", series(d->unmapped_bytes, d->sample_count)) &&
            put(samples, "process_bytes", series(d->process_bytes, d->sample_count)) &&
            put_lists(d, row, samples);
  ok = put(row, "samples", samples) && ok;
  if (ok) return row;
  json_decref(row);
  return NULL;
}

static json_t *host_of(const tsr_host_ledger *h) {
  json_t *row = json_object(), *samples = json_object();
  bool ok = put(row, "pinned_bytes", number(h->pinned_bytes)) &&
            put(row, "limit_bytes", number(h->limit_bytes)) &&
            put(row, "limit_from", text(h->limit_from)) &&
            put(samples, "time_us", times(h->time_us, h->sample_count)) &&
            put(samples, "rss_bytes", series(h->rss_bytes, h->sample_count)) &&
            put(samples, "cgroup_bytes", series(h->cgroup_bytes, h->sample_count)) &&
            put(samples, "pinned_bytes", series(h->pinned_bytes_by_sample, h->sample_count));
  ok = put(row, "samples", samples) && ok;
  if (ok) return row;
  json_decref(row);
  return NULL;
}

json_t *tsr__card_write(const tsr__card_ledger *card) {
  const tsr_ledger_recording *r = &card->recording;
  json_t *out = json_object(), *devices = json_array();
  bool ok = put(out, "devices", devices) && put(out, "period_ms", number(r->period_ms)) &&
            put(out, "samples_taken", number(r->samples_taken)) &&
            put(out, "samples_kept", number(r->samples_kept)) &&
            put(out, "sampling_us", number(r->sampling_us)) &&
            put(out, "step_us", number(r->step_us)) && put(out, "nvml", text(r->nvml)) &&
            put(out, "nvml_error", text(r->nvml_error)) && put(out, "host", host_of(&card->host)) &&
            put(out, "notes", texts_of(r->notes, r->note_count));
  for (size_t i = 0; ok && i < card->device_count; i++)
    ok = push(devices, device_of(&card->devices[i]));
  if (ok) return out;
  json_decref(out);
  return NULL;
}

/* ---- A copy ---- */

bool tsr__card_copy(const tsr__card_ledger *from, tsr__arena *texts, tsr__card_ledger *out) {
  uint64_t lost = 0;
  json_t *card = from->recording.is_there ? tsr__card_write(from) : NULL;
  bool ok = (card || !from->recording.is_there) && tsr__card_read(card, texts, out, &lost);
  assert(!ok || !lost);
  json_decref(card);
  return ok;
}
