/* pprof_file.c - a profile of live memory, from protocol buffers to blocks.
 *
 *   Profile    1 sample_type {1 type 2 unit}   2 sample {1 location* 2 value* 3 label {1 key 2 text}}
 *              4 location {1 id 4 line* {1 function 2 line}}   5 function {1 id 2 name 4 file}   6 string
 *
 * (github.com/google/pprof, proto/profile.proto.) Fields may be in any order and strings are at the end in
 * practice, so a first pass notes where each message is, and a second one makes the blocks. Names, types and units
 * are numbers of strings. The first location of a sample, and the first line of a location, are the innermost. */
#include "formats/pprof_file.h"

#include <inttypes.h>
#include <string.h>

#include "base/checked.h"
#include "base/sort.h"
#include "io/access.h"

/* ---- protocol buffers ---- */

typedef struct span {
  const unsigned char *p, *end;
} span;

/* A field: a number or bytes. */
typedef struct field {
  uint32_t number;
  bool is_bytes;
  uint64_t value;
  span bytes;
} field;

static bool read_varint(span *s, uint64_t *out) {
  uint64_t value = 0;
  for (unsigned shift = 0; shift < 70; shift += 7) {
    if (s->p == s->end) return false;
    unsigned char byte = *s->p++;
    if (shift < 64) value |= (uint64_t)(byte & 0x7f) << shift;
    if (!(byte & 0x80)) {
      *out = value;
      return true;
    }
  }
  return false;
}

/* The next field of a message. False at its end and where it is damaged: then s->p is before s->end. */
static bool next_field(span *s, field *f) {
  enum { VARINT, FIXED64, BYTES, FIXED32 = 5 };
  span at = *s;
  uint64_t key, size = 0;
  if (at.p == at.end || !read_varint(&at, &key) || !(key >> 3) || key >> 3 >= UINT32_C(1) << 29)
    return false;
  *f = (field){.number = (uint32_t)(key >> 3)};
  switch (key & 7) {
  case VARINT:
    if (!read_varint(&at, &f->value)) return false;
    break;
  case BYTES:
    if (!read_varint(&at, &size)) return false;
    f->is_bytes = true;
    break;
  case FIXED64: size = 8; break;
  case FIXED32: size = 4; break;
  default: return false;
  }
  if (size > (uint64_t)(at.end - at.p)) return false;
  f->bytes = (span){at.p, at.p + size};
  at.p += size;
  *s = at;
  return true;
}

/* Items of a repeated number, which are packed into bytes or come one by one. */
static bool next_number(field *f, uint64_t *out) {
  if (!f->is_bytes) {
    *out = f->value;
    f->is_bytes = true; /* and empty: that was all */
    f->bytes.p = f->bytes.end;
    return true;
  }
  return f->bytes.p < f->bytes.end && read_varint(&f->bytes, out);
}

/* A type of samples in full: only its type and its unit. */
static bool is_type(span s) {
  field f;
  bool any = false;
  while (next_field(&s, &f)) {
    if ((f.number != 1 && f.number != 2) || f.is_bytes || f.value > 1 << 20) return false;
    any = true;
  }
  return any && s.p == s.end;
}

bool tsr__pprof_looks_like(const unsigned char *data, size_t size) {
  enum { TYPE = 0x0a, TYPE_BYTES_MAX = 16 };
  if (size < 4 || data[0] != TYPE || data[1] > TYPE_BYTES_MAX || data[1] > size - 2) return false;
  return is_type((span){data + 2, data + 2 + data[1]});
}

/* ---- the profile ---- */

enum {
  LINES_MAX = 64,       /* inlined functions of one location */
  BLOCKS_MAX = 1 << 22, /* equal allocations listed one by one */
  NO_VALUE = INT32_MAX, /* no such type of samples */
};
#define BYTES_MAX (UINT64_C(1) << 60) /* of a device */

typedef struct location {
  uint32_t first, count; /* of frames */
} location;

/* A device, by its label. */
typedef struct device {
  uint32_t label; /* number of a string; 0, which is empty: no label */
  uint32_t number;
} device;

/* A sample with something live. */
typedef struct sample {
  uint64_t bytes, count;
  uint32_t stack, device; /* an index, until all are known; then a number */
} sample;

typedef struct profile {
  tsr__assembler *assembler;
  tsr__builder *builder;
  tsr__access access;
  tsr_error *error;
  TSR__VECTOR(span) strings;
  TSR__VECTOR(uint32_t) ids; /* by string: its id in the snapshot, or TSR_NONE */
  TSR__VECTOR(span) types, samples, locations, functions;
  tsr__map function_of, location_of, device_of; /* id or label -> index */
  TSR__VECTOR(uint32_t) names, files;           /* by function: ids of strings */
  TSR__VECTOR(location) places;                 /* by location */
  TSR__VECTOR(uint32_t) frames;                 /* of locations */
  TSR__VECTOR(uint32_t) stack;                  /* scratch */
  TSR__VECTOR(device) devices;
  TSR__VECTOR(sample) live;
  uint32_t bytes_at, count_at; /* among a sample's values, or NO_VALUE */
} profile;

static int fail_damaged(profile *p, const unsigned char *at, const char *what) {
  return tsr__fail(p->error, TSR_ERROR_FORMAT, (uint64_t)(at - p->access.data),
                   "the pprof profile is damaged: %s", what);
}

static int check_memory(profile *p, const unsigned char *at) {
  uint64_t held = tsr__access_held(&p->access) +
                  p->strings.capacity * (sizeof(span) + sizeof(uint32_t)) +
                  (p->samples.capacity + p->locations.capacity + p->functions.capacity) *
                      (sizeof(span) + 2 * sizeof(tsr__map_slot)) +
                  p->live.capacity * sizeof(sample) + p->frames.capacity * sizeof(uint32_t);
  return tsr__check_memory(p->assembler, held, p->access.source, (uint64_t)(at - p->access.data),
                           p->error);
}

/* Note where the messages are. */
static int collect(profile *p) {
  span s = {p->access.data, p->access.data + p->access.size_bytes};
  field f;
  const unsigned char *check_at = s.p;
  while (next_field(&s, &f)) {
    bool ok = true;
    if (!f.is_bytes) continue;
    switch (f.number) {
    case 1: ok = TSR__VECTOR_PUSH(&p->types, f.bytes); break;
    case 2: ok = TSR__VECTOR_PUSH(&p->samples, f.bytes); break;
    case 4: ok = TSR__VECTOR_PUSH(&p->locations, f.bytes); break;
    case 5: ok = TSR__VECTOR_PUSH(&p->functions, f.bytes); break;
    case 6:
      ok = TSR__VECTOR_PUSH(&p->strings, f.bytes) && TSR__VECTOR_PUSH(&p->ids, TSR_NONE);
      break;
    default: break;
    }
    if (!ok) return tsr__fail_memory(p->error);
    if (s.p >= check_at) {
      int status = check_memory(p, s.p);
      if (status) return status;
      check_at = s.p + ((size_t)(s.end - s.p) < (1 << 20) ? (size_t)(s.end - s.p) : 1 << 20);
    }
  }
  return s.p == s.end ? 0
                      : fail_damaged(p, s.p, "a field that does not end, or the file is truncated");
}

static span string_at(const profile *p, uint64_t number) {
  static const unsigned char none[1];
  return number < p->strings.count ? p->strings.items[number] : (span){none, none};
}

static bool is_text(span s, const char *text) {
  return (size_t)(s.end - s.p) == strlen(text) && memcmp(s.p, text, strlen(text)) == 0;
}

/* A string's id in the snapshot. */
static int intern(profile *p, uint64_t number, uint32_t *out) {
  if (number >= p->strings.count) number = 0;
  if (!p->strings.count) {
    *out = tsr__builder_text(p->builder, "");
    return *out == TSR_NONE ? tsr__fail_memory(p->error) : 0;
  }
  if (p->ids.items[number] == TSR_NONE) {
    span s = p->strings.items[number];
    if ((uint64_t)(s.end - s.p) > p->assembler->limits.string_bytes)
      return tsr__fail(p->error, TSR_ERROR_LIMIT, (uint64_t)(s.p - p->access.data),
                       "a text longer than tsr_limits.string_bytes");
    p->ids.items[number] = tsr__builder_string(p->builder, s.p, (size_t)(s.end - s.p));
    if (p->ids.items[number] == TSR_NONE) return tsr__fail_memory(p->error);
  }
  *out = p->ids.items[number];
  return 0;
}

/* Which of a sample's values are the bytes and the number of live allocations. */
static int find_values(profile *p) {
  static const char *const spaces[] = {"space", "inuse_space", "inuse_bytes"};
  static const char *const counts[] = {"allocations", "inuse_objects", "objects"};
  p->bytes_at = p->count_at = NO_VALUE;
  for (size_t i = 0; i < p->types.count && i < NO_VALUE; i++) {
    uint64_t ends[3] = {0};
    field f;
    for (span s = p->types.items[i]; next_field(&s, &f);)
      if (f.number <= 2) ends[f.number] = f.value;
    span type = string_at(p, ends[1]);
    for (size_t k = 0; k < sizeof spaces / sizeof *spaces; k++) {
      if (is_text(type, spaces[k]) && is_text(string_at(p, ends[2]), "bytes"))
        p->bytes_at = (uint32_t)i;
      if (is_text(type, counts[k])) p->count_at = (uint32_t)i;
    }
  }
  if (p->bytes_at != NO_VALUE) return 0;
  return tsr__fail(p->error, TSR_ERROR_FORMAT, 0,
                   "a pprof profile, but not of live memory: it has no samples 'space' (JAX) or "
                   "'inuse_space' in bytes");
}

/* ---- frames ---- */

static int read_functions(profile *p) {
  for (size_t i = 0; i < p->functions.count; i++) {
    uint64_t id = 0, name = 0, file = 0;
    uint32_t name_id, file_id;
    field f;
    span s = p->functions.items[i];
    while (next_field(&s, &f)) {
      if (f.number == 1) id = f.value;
      if (f.number == 2) name = f.value;
      if (f.number == 4) file = f.value;
    }
    if (s.p != s.end) return fail_damaged(p, s.p, "a function");
    int status = intern(p, name, &name_id);
    if (!status) status = intern(p, file, &file_id);
    if (status) return status;
    if (!TSR__VECTOR_PUSH(&p->names, name_id) || !TSR__VECTOR_PUSH(&p->files, file_id) ||
        !tsr__map_put(&p->function_of, id, i, NULL))
      return tsr__fail_memory(p->error);
  }
  return 0;
}

/* One line of a location: its frame. */
static int add_line(profile *p, span s) {
  uint64_t function = 0, line = 0;
  field f;
  while (next_field(&s, &f)) {
    if (f.number == 1) function = f.value;
    if (f.number == 2) line = f.value;
  }
  if (s.p != s.end) return fail_damaged(p, s.p, "a line of a location");
  const uint64_t *index = tsr__map_find(&p->function_of, function);
  tsr_frame frame = {.line = line};
  int status = index ? 0 : intern(p, 0, &frame.name);
  if (!status && !index) frame.file = frame.name;
  if (status) return status;
  if (index) frame.name = p->names.items[*index], frame.file = p->files.items[*index];
  uint32_t id = tsr__builder_frame(p->builder, frame);
  if (id == TSR_NONE || !TSR__VECTOR_PUSH(&p->frames, id)) return tsr__fail_memory(p->error);
  return 0;
}

static int read_locations(profile *p) {
  for (size_t i = 0; i < p->locations.count; i++) {
    location place = {.first = (uint32_t)p->frames.count};
    uint64_t id = 0;
    field f;
    span s = p->locations.items[i];
    while (next_field(&s, &f)) {
      if (f.number == 1) id = f.value;
      if (f.number != 4 || !f.is_bytes) continue;
      if (place.count == LINES_MAX) {
        tsr__builder_warn(p->builder, TSR__WARN_FRAMES_MALFORMED);
        break;
      }
      int status = add_line(p, f.bytes);
      if (status) return status;
      place.count++;
    }
    if (s.p != s.end && place.count < LINES_MAX) return fail_damaged(p, s.p, "a location");
    if (!TSR__VECTOR_PUSH(&p->places, place) || !tsr__map_put(&p->location_of, id, i, NULL))
      return tsr__fail_memory(p->error);
    if (i % 4096 == 4095) {
      int status = check_memory(p, s.p);
      if (status) return status;
    }
  }
  return 0;
}

/* ---- samples ---- */

/* Append the frames of the locations with these ids, innermost first. */
static int add_locations(profile *p, field *f) {
  uint64_t id;
  while (next_number(f, &id)) {
    const uint64_t *index = tsr__map_find(&p->location_of, id);
    if (!index) {
      tsr__builder_warn(p->builder, TSR__WARN_FRAMES_MALFORMED);
      continue;
    }
    location place = p->places.items[*index];
    if (p->stack.count + place.count > p->assembler->limits.stack_depth)
      return tsr__fail(p->error, TSR_ERROR_LIMIT, (uint64_t)(f->bytes.p - p->access.data),
                       "a stack deeper than tsr_limits.stack_depth");
    for (uint32_t i = 0; i < place.count; i++)
      if (!TSR__VECTOR_PUSH(&p->stack, p->frames.items[place.first + i]))
        return tsr__fail_memory(p->error);
  }
  return f->bytes.p == f->bytes.end ? 0 : fail_damaged(p, f->bytes.p, "the locations of a sample");
}

/* What a label says of a sample: numbers of strings. */
typedef struct label_texts {
  uint64_t kind, device;
} label_texts;

static void read_label(const profile *p, span s, label_texts *out) {
  uint64_t key = 0, text = 0;
  field f;
  while (next_field(&s, &f)) {
    if (f.number == 1) key = f.value;
    if (f.number == 2) text = f.value;
  }
  if (is_text(string_at(p, key), "kind")) out->kind = text;
  if (is_text(string_at(p, key), "device")) out->device = text;
}

/* The index of a device. */
static int find_device(profile *p, uint64_t label, uint32_t *out) {
  bool added;
  uint32_t number = label < p->strings.count ? (uint32_t)label : 0;
  const uint64_t *index = tsr__map_put(&p->device_of, number, p->devices.count, &added);
  if (!index) return tsr__fail_memory(p->error);
  *out = (uint32_t)*index;
  if (!added) return 0;
  if (p->devices.count >= p->assembler->limits.devices)
    return tsr__fail(p->error, TSR_ERROR_LIMIT, TSR_OFFSET_NONE,
                     "more devices than tsr_limits.devices");
  return TSR__VECTOR_PUSH(&p->devices, (device){number, TSR_NONE}) ? 0 : tsr__fail_memory(p->error);
}

/* An executable has the stack of its compilation. A frame inside shows what it is. */
static int add_kind(profile *p, uint64_t kind) {
  span s = string_at(p, kind);
  if (s.p == s.end || is_text(s, "buffer") || (size_t)(s.end - s.p) > 64) return 0;
  char text[80] = "[";
  memcpy(text + 1, s.p, (size_t)(s.end - s.p));
  strcat(text, "]");
  tsr_frame frame = {.name = tsr__builder_text(p->builder, text),
                     .file = tsr__builder_text(p->builder, "")};
  uint32_t id = tsr__builder_frame(p->builder, frame);
  if (id == TSR_NONE || !TSR__VECTOR_PUSH(&p->stack, id)) return tsr__fail_memory(p->error);
  return 0;
}

static int add_sample(profile *p, span s) {
  label_texts labels = {0};
  uint64_t bytes = 0, count = 0, value;
  uint32_t number = 0;
  field f;
  int status = 0;
  p->stack.count = 0;
  for (span all = s; next_field(&all, &f);)
    if (f.number == 3 && f.is_bytes) read_label(p, f.bytes, &labels);
  status = add_kind(p, labels.kind);
  while (!status && next_field(&s, &f)) {
    if (f.number == 1) status = add_locations(p, &f);
    while (f.number == 2 && next_number(&f, &value)) {
      if (number == p->bytes_at) bytes = value;
      if (number == p->count_at) count = value;
      number++;
    }
  }
  if (status) return status;
  if (s.p != s.end) return fail_damaged(p, s.p, "a sample");
  if (bytes > BYTES_MAX || count > BYTES_MAX) { /* negative ones, too */
    tsr__builder_warn(p->builder, TSR__WARN_VALUES_UNREADABLE);
    return 0;
  }
  if (!bytes) return 0; /* executables of the CPU have no size */
  sample live = {.bytes = bytes, .count = count ? count : 1};
  live.stack = tsr__builder_stack(p->builder, p->stack.items, (uint32_t)p->stack.count);
  if (live.stack == TSR_NONE) return tsr__fail_memory(p->error);
  status = find_device(p, labels.device, &live.device);
  if (status) return status;
  return TSR__VECTOR_PUSH(&p->live, live) ? 0 : tsr__fail_memory(p->error);
}

static int read_samples(profile *p) {
  enum { FRAMES_BETWEEN_CHECKS = 1 << 18 };
  size_t frames = 0;
  for (size_t i = 0; i < p->samples.count; i++) {
    int status = add_sample(p, p->samples.items[i]);
    frames += p->stack.count + 16;
    if (!status && frames >= FRAMES_BETWEEN_CHECKS) {
      status = check_memory(p, p->samples.items[i].p);
      frames = 0;
    }
    if (status) return status;
  }
  return 0;
}

/* ---- devices ---- */

static bool has_cpu(span s) {
  for (; s.end - s.p >= 3; s.p++)
    if ((s.p[0] | 0x20) == 'c' && (s.p[1] | 0x20) == 'p' && (s.p[2] | 0x20) == 'u') return true;
  return false;
}

/* The first number in a label: 3 of "cuda:3" and "TPU_3(process=0,(0,1,0,0))". */
static uint32_t number_in(span s, uint32_t limit) {
  uint32_t number = 0;
  while (s.p < s.end && (*s.p < '0' || *s.p > '9')) s.p++;
  for (; s.p < s.end && *s.p >= '0' && *s.p <= '9' && number < limit; s.p++)
    number = number * 10 + (uint32_t)(*s.p - '0');
  return number < limit ? number : 0;
}

/* The number that a device's label has, or the next that is free. */
static uint32_t take_number(bool *taken, uint32_t wanted, uint32_t limit) {
  while (taken[wanted]) wanted = (wanted + 1) % limit;
  taken[wanted] = true;
  return wanted;
}

/* Number the devices. What has no device, such as an executable, counts for the first. */
static int number_devices(profile *p) {
  uint32_t limit = p->assembler->limits.devices, first = TSR_NONE;
  bool *taken = TSR__NEW_ARRAY(bool, limit);
  if (!taken) return tsr__fail_memory(p->error);
  for (size_t i = 0; i < p->devices.count; i++) {
    device *d = &p->devices.items[i];
    span name = string_at(p, d->label);
    if (name.p == name.end) continue;
    d->number = TSR_DEVICE_CPU;
    if (has_cpu(name)) continue;
    d->number = take_number(taken, number_in(name, limit), limit);
    if (first == TSR_NONE || d->number < first) first = d->number;
  }
  tsr__free(taken);
  if (first == TSR_NONE) first = p->devices.count > 1 ? TSR_DEVICE_CPU : 0;
  for (size_t i = 0; i < p->devices.count; i++)
    if (p->devices.items[i].number == TSR_NONE) p->devices.items[i].number = first;
  return 0;
}

static int by_device(const void *a, const void *b) {
  const sample *x = a, *y = b;
  return x->device < y->device ? -1 : x->device > y->device;
}

/* The blocks of a sample: its allocations, which are of equal size. */
static int add_blocks(profile *p, const sample *s, uint64_t *address, uint64_t *blocks) {
  uint64_t count = s->count <= s->bytes ? s->count : 1;
  if (*blocks + count > BLOCKS_MAX) count = 1;
  *blocks += count;
  for (uint64_t i = 0; i < count; i++) {
    uint64_t size = s->bytes / count + (i < s->bytes % count);
    tsr_block block = {.address = *address,
                       .size_bytes = size,
                       .requested_bytes = size,
                       .stack = s->stack,
                       .state = TSR_BLOCK_ALLOCATED};
    if (!tsr__builder_block(p->builder, &block)) return tsr__fail_memory(p->error);
    *address += size;
    if (i % 65536 == 65535) {
      int status = check_memory(p, p->access.data);
      if (status) return status;
    }
  }
  return 0;
}

/* A segment for each device, in which its blocks are one after the other. */
static int add_segments(profile *p) {
  uint64_t address = UINT64_C(1) << 32, blocks = 0;
  tsr__sort(p->live.items, p->live.count, sizeof *p->live.items, by_device);
  for (size_t i = 0, next; i < p->live.count; i = next) {
    uint64_t total = 0;
    for (next = i; next < p->live.count && p->live.items[next].device == p->live.items[i].device;
         next++)
      total = tsr__sum_u64(total, p->live.items[next].bytes);
    if (total > BYTES_MAX || address > UINT64_MAX - 2 * BYTES_MAX)
      return tsr__fail(p->error, TSR_ERROR_FORMAT, 0,
                       "the sizes of the pprof profile add up to more than any memory");
    tsr_segment segment = {.address = address,
                           .total_bytes = total,
                           .device = p->live.items[i].device,
                           .is_large = true,
                           .stack = TSR_NONE,
                           .pool = TSR_NONE};
    if (!tsr__builder_segment(p->builder, &segment)) return tsr__fail_memory(p->error);
    for (size_t k = i; k < next; k++) {
      int status = add_blocks(p, &p->live.items[k], &address, &blocks);
      if (status) return status;
    }
    address = (address + (UINT64_C(1) << 32)) & ~((UINT64_C(1) << 21) - 1);
  }
  return 0;
}

static int read_profile(profile *p) {
  int status = collect(p);
  if (!status) status = find_values(p);
  if (!status) status = read_functions(p);
  if (!status) status = read_locations(p);
  if (!status) status = read_samples(p);
  if (status) return status;
  uint64_t unplaced = 0;
  status = number_devices(p);
  if (status) return status;
  for (size_t i = 0; i < p->live.count; i++) {
    device d = p->devices.items[p->live.items[i].device];
    unplaced += !d.label && p->devices.count > 1;
    p->live.items[i].device = d.number;
  }
  tsr__builder_warn_times(p->builder, TSR__WARN_DEVICES_MISSING, unplaced);
  status = add_segments(p);
  return status ? status : tsr__builder_lay_out(p->builder, p->error);
}

int tsr__pprof_read(tsr__input *source, tsr__assembler *assembler, const tsr_open_options *options,
                    uint64_t total_bytes, tsr_error *error) {
  profile p = {.assembler = assembler, .builder = assembler->builder, .error = error};
  (void)options, (void)total_bytes;
  tsr__builder_record(p.builder, "pprof");
  int status = tsr__access_copy(&p.access, source, assembler->limits.memory_bytes / 4, error);
  if (!status) status = read_profile(&p);
  tsr__access_release(&p.access);
  TSR__VECTOR_FREE(&p.strings);
  TSR__VECTOR_FREE(&p.ids);
  TSR__VECTOR_FREE(&p.types);
  TSR__VECTOR_FREE(&p.samples);
  TSR__VECTOR_FREE(&p.locations);
  TSR__VECTOR_FREE(&p.functions);
  tsr__map_release(&p.function_of);
  tsr__map_release(&p.location_of);
  tsr__map_release(&p.device_of);
  TSR__VECTOR_FREE(&p.names);
  TSR__VECTOR_FREE(&p.files);
  TSR__VECTOR_FREE(&p.places);
  TSR__VECTOR_FREE(&p.frames);
  TSR__VECTOR_FREE(&p.stack);
  TSR__VECTOR_FREE(&p.devices);
  TSR__VECTOR_FREE(&p.live);
  return status;
}
