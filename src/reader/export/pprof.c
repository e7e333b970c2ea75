/* pprof.c - weights as a pprof profile: google/pprof's profile.proto, gzipped.
 *
 * Protocol buffers are a sequence of fields: a key (number * 8 + wire type), then a varint,
 * or a length and that many bytes. The messages written here, with the numbers of their fields:
 *
 *   Profile   1 sample_type  2 sample  4 location  5 function  6 string  9 time_nanos
 *             10 duration_nanos  13 comment  14 default_sample_type
 *   ValueType 1 type  2 unit           Sample    1 location_id  2 value  3 label
 *   Label     1 key  2 str  3 num      Location  1 id  4 line
 *   Line      1 function_id  2 line    Function  1 id  2 name  4 filename
 *
 * A name is an index into the strings. String 0 is empty; then come the format's own words, then
 * the names and files of what is shown. There is one location and one function for each frame or
 * operation that is shown (shown.h), numbered from 1.
 *
 * Five small messages that are written and never read do not justify a code generator in the build.
 * zlib does the gzip. */
#include <assert.h>
#include <limits.h>
#include <string.h>
#include <zlib.h>

#include "base/memory.h"
#include "emit/text.h"
#include "export/flame.h"

enum { WIRE_VARINT = 0, WIRE_BYTES = 2, GZIP = 16 };
enum { NS_PER_US = 1000 };

/* The format's own words. */
enum {
  WORD_EMPTY,
  WORD_OBJECTS,
  WORD_COUNT,
  WORD_SPACE,
  WORD_BYTES,
  WORD_BYTE_TIME,
  WORD_TIME_UNIT,
  WORD_CATEGORY,
  WORD_DEVICE,
  WORD_HOST,
  WORD_CPU,
  WORD_NAME,
  FIRST_CATEGORY,
  FIRST_STRING = FIRST_CATEGORY + TSR_CATEGORY_COUNT
};

static void put_varint(tsr__buffer *out, uint64_t value) {
  unsigned char bytes[10];
  size_t size = 0;
  do {
    bytes[size] = (unsigned char)(value & 0x7f);
    value >>= 7;
    if (value) bytes[size] |= 0x80;
    size++;
    assert(size <= sizeof bytes);
  } while (value);
  tsr__buffer_append(out, bytes, size);
}

static void put_number(tsr__buffer *out, unsigned field, uint64_t value) {
  put_varint(out, (uint64_t)field << 3 | WIRE_VARINT);
  put_varint(out, value);
}

static void put_bytes(tsr__buffer *out, unsigned field, const void *data, size_t size) {
  put_varint(out, (uint64_t)field << 3 | WIRE_BYTES);
  put_varint(out, size);
  tsr__buffer_append(out, data, size);
}

/* Append a complete message, and empty it for the next. */
static void put_message(tsr__buffer *out, unsigned field, tsr__buffer *message) {
  put_bytes(out, field, message->data, message->size);
  out->failed |= message->failed;
  message->size = 0;
}

static void put_value_type(tsr__buffer *out, tsr__buffer *scratch, uint64_t type, uint64_t unit) {
  put_number(scratch, 1, type);
  put_number(scratch, 2, unit);
  put_message(out, 1, scratch);
}

static void put_label(tsr__buffer *out, tsr__buffer *scratch, uint64_t key, unsigned field,
                      uint64_t value) {
  put_number(scratch, 1, key);
  put_number(scratch, field, value);
  put_message(out, 3, scratch);
}

typedef struct profile {
  const tsr__flame *flame;
  const tsr_weights *weights;
  tsr__shown *shown;
  tsr__intern strings; /* after the format's own */
  tsr__buffer *out;
  tsr__buffer sample, part, packed;
} profile;

/* The index of a string; that of an empty one is 0. pprof's readers reject invalid UTF-8. */
static uint64_t string_of(profile *p, tsr_text text) {
  if (!text.size_bytes) return WORD_EMPTY;
  p->part.size = 0;
  (void)tsr__text_clean(&p->part, text);
  uint32_t id = tsr__intern_put(&p->strings, p->part.data, p->part.size, NULL);
  p->out->failed |= p->part.failed || id == TSR__INTERN_FULL;
  p->part.size = 0;
  return (uint64_t)id + FIRST_STRING;
}

static void put_sample(profile *p, const tsr_weights_device *device,
                       const tsr_stack_weight *weight) {
  assert(!p->sample.size && !p->part.size && !p->packed.size);
  p->out->failed |= !tsr__shown_take(p->shown, weight->stack);
  for (size_t i = 0; i < p->shown->frames.count; i++)
    put_varint(&p->packed, (uint64_t)p->shown->frames.items[i] + 1);
  put_message(&p->sample, 1, &p->packed);
  put_varint(&p->packed, weight->allocations);
  put_varint(&p->packed, weight->bytes);
  if (p->weights->what == TSR_WEIGH_WINDOW) put_varint(&p->packed, weight->byte_time);
  put_message(&p->sample, 2, &p->packed);
  put_label(&p->sample, &p->part, WORD_CATEGORY, 2, FIRST_CATEGORY + (uint64_t)weight->category);
  bool is_host = device->device >= TSR_DEVICE_CPU;
  uint64_t word = device->device == TSR_DEVICE_CPU ? WORD_CPU : WORD_HOST;
  put_label(&p->sample, &p->part, WORD_DEVICE, is_host ? 2 : 3, is_host ? word : device->device);
  uint64_t name = string_of(p, weight->name);
  if (name != WORD_EMPTY) put_label(&p->sample, &p->part, WORD_NAME, 2, name);
  put_message(p->out, 2, &p->sample);
}

static void put_place(profile *p, uint64_t id, uint64_t name, uint64_t file, uint64_t line) {
  assert(id && !p->sample.size && !p->part.size);
  put_number(&p->part, 1, id);
  put_number(&p->part, 2, line);
  put_number(&p->sample, 1, id);
  put_message(&p->sample, 4, &p->part);
  put_message(p->out, 4, &p->sample);
  put_number(&p->part, 1, id);
  put_number(&p->part, 2, name);
  put_number(&p->part, 4, file);
  put_message(p->out, 5, &p->part);
}

static void put_places(profile *p) {
  for (uint32_t i = 0; i < p->shown->entries.count; i++) {
    tsr__shown_name name = tsr__shown_name_of(p->shown, i);
    uint64_t function = string_of(p, name.name), file = string_of(p, name.file);
    put_place(p, (uint64_t)i + 1, function, file, name.line <= INT64_MAX ? name.line : 0);
  }
}

static void put_strings(profile *p) {
  bool is_window = p->weights->what == TSR_WEIGH_WINDOW;
  const char *const words[FIRST_CATEGORY] = {
      [WORD_EMPTY] = "",
      [WORD_OBJECTS] = is_window ? "alloc_objects" : "inuse_objects",
      [WORD_COUNT] = "count",
      [WORD_SPACE] = is_window ? "alloc_space" : "inuse_space",
      [WORD_BYTES] = "bytes",
      [WORD_BYTE_TIME] = "lifetime",
      [WORD_TIME_UNIT] = p->weights->is_timed ? "byte_milliseconds" : "byte_events",
      [WORD_CATEGORY] = "category",
      [WORD_DEVICE] = "device",
      [WORD_HOST] = "host",
      [WORD_CPU] = "cpu",
      [WORD_NAME] = "name",
  };
  for (size_t i = 0; i < FIRST_CATEGORY; i++) assert(words[i]);
  for (size_t i = 0; i < FIRST_CATEGORY; i++) put_bytes(p->out, 6, words[i], strlen(words[i]));
  for (int i = 0; i < TSR_CATEGORY_COUNT; i++) {
    const char *name = tsr_category_name((tsr_category)i);
    put_bytes(p->out, 6, name, strlen(name));
  }
  for (uint32_t i = 0; i < p->strings.count; i++)
    put_bytes(p->out, 6, p->strings.items[i].data, p->strings.items[i].size_bytes);
}

static void put_profile(profile *p) {
  bool is_window = p->weights->what == TSR_WEIGH_WINDOW;
  const tsr_weights_device *device = p->weights->device_count ? p->weights->devices : NULL;
  put_value_type(p->out, &p->part, WORD_OBJECTS, WORD_COUNT);
  put_value_type(p->out, &p->part, WORD_SPACE, WORD_BYTES);
  if (is_window) put_value_type(p->out, &p->part, WORD_BYTE_TIME, WORD_TIME_UNIT);
  for (size_t d = 0; d < p->weights->device_count; d++)
    for (size_t i = 0; i < p->weights->devices[d].stack_count; i++)
      put_sample(p, &p->weights->devices[d], &p->weights->devices[d].stacks[i]);
  put_places(p);
  put_strings(p);
  if (device && device->first_us > 0 && device->first_us < INT64_MAX / NS_PER_US)
    put_number(p->out, 9, (uint64_t)device->first_us * NS_PER_US);
  if (is_window && p->weights->is_timed && device && device->last_us > device->first_us &&
      device->last_us < INT64_MAX / NS_PER_US)
    put_number(p->out, 10, (uint64_t)(device->last_us - device->first_us) * NS_PER_US);
  put_number(p->out, 14, is_window ? WORD_BYTE_TIME : WORD_SPACE);
}

static void append_gzip(tsr__buffer *out, const tsr__buffer *plain) {
  unsigned char piece[16 << 10];
  z_stream z = {0};
  int status = Z_MEM_ERROR;
  if (plain->size <= UINT_MAX &&
      deflateInit2(&z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, MAX_WBITS + GZIP, MAX_MEM_LEVEL - 1,
                   Z_DEFAULT_STRATEGY) == Z_OK) {
    z.next_in = (unsigned char *)plain->data;
    z.avail_in = (unsigned)plain->size;
    do {
      z.next_out = piece;
      z.avail_out = sizeof piece;
      status = deflate(&z, Z_FINISH);
      tsr__buffer_append(out, piece, sizeof piece - z.avail_out);
    } while (status == Z_OK);
    (void)deflateEnd(&z);
  }
  out->failed |= status != Z_STREAM_END || plain->failed;
}

void tsr__flame_pprof(const tsr__flame *flame, tsr__buffer *out) {
  tsr__buffer plain = {0};
  profile p = {.flame = flame, .weights = flame->weights, .shown = flame->shown, .out = &plain};
  tsr__intern_init(&p.strings);
  put_profile(&p);
  append_gzip(out, &plain);
  tsr__intern_release(&p.strings);
  tsr__buffer_release(&p.sample);
  tsr__buffer_release(&p.part);
  tsr__buffer_release(&p.packed);
  tsr__buffer_release(&plain);
}
