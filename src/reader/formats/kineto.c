/* kineto.c - a profiler's trace becomes rows of allocations, their stacks, and annotations. See kineto.h.
 *
 *   top-level keys:  traceEvents        one event after the other, each completely in the window
 *                    baseTimeNanoseconds  what their times are relative to
 *                    anything else      skipped
 *   an event:        its name and category decide; most are forgotten at once
 *   at the end:      rows by time - stacks joined - annotations - the builder
 *
 * A list of events alone, as Chrome's format allows, is read the same way, and may lack its end. */
#include "formats/kineto.h"

#include <assert.h>
#include <string.h>

#include "base/sort.h"

enum {
  CHECK_BYTES = 1 << 20,
  LOOK_AHEAD = 64 << 10 /* bytes in which nearly every event ends */
};

/* One end of a range of the program. */
typedef struct range_end {
  int64_t time_ns;
  uint32_t name; /* string id */
  bool is_start;
} range_end;

typedef struct kineto {
  tsr__json j;
  tsr__flat flat;
  tsr__slices slices;
  TSR__VECTOR(range_end) ranges;
  tsr__buffer text; /* scratch: a string without its escapes */
  tsr__buffer thread;
  int64_t base_ns;
  uint64_t event_count;
  uint64_t next_check; /* offset at which to look at the memory held */
} kineto;

/* ---- an event ---- */

/* The members that matter, as they are in the text; `data` is NULL for what is absent. */
typedef struct event {
  tsr__raw ph, cat, name, pid, tid, ts, dur, args;
} event;

static tsr__raw *member_of(event *e, const tsr__raw *key) {
  switch (key->size) {
  case 2:
    if (key->data[0] == 'p') return key->data[1] == 'h' ? &e->ph : NULL;
    return key->data[0] == 't' && key->data[1] == 's' ? &e->ts : NULL;
  case 3:
    if (tsr__raw_is(key, "cat")) return &e->cat;
    if (tsr__raw_is(key, "dur")) return &e->dur;
    if (tsr__raw_is(key, "tid")) return &e->tid;
    return tsr__raw_is(key, "pid") ? &e->pid : NULL;
  case 4:
    if (tsr__raw_is(key, "name")) return &e->name;
    return tsr__raw_is(key, "args") ? &e->args : NULL;
  default: return NULL;
  }
}

static int read_members(tsr__scan *s, event *e) {
  size_t count = 0;
  int status = tsr__scan_open(s, '{');
  while (!status) {
    tsr__raw key, ignored;
    status = tsr__scan_key(s, &count, &key);
    if (status || !key.data) break;
    tsr__raw *member = member_of(e, &key);
    status = tsr__scan_raw(s, member ? member : &ignored);
  }
  return status;
}

/* The id of a thread: process and thread as they are spelled. */
static uint32_t thread_of(kineto *k, const event *e) {
  k->thread.size = 0;
  tsr__buffer_append(&k->thread, e->pid.data, e->pid.size);
  tsr__buffer_append(&k->thread, "", 1);
  tsr__buffer_append(&k->thread, e->tid.data, e->tid.size);
  if (k->thread.failed) return TSR_NONE;
  return tsr__intern_put(&k->slices.threads, k->thread.data, k->thread.size, NULL);
}

static bool warn_malformed(kineto *k) {
  tsr__builder_warn(k->flat.builder, TSR__WARN_EVENTS_MALFORMED);
  return true;
}

/* ---- memory ---- */

typedef struct memory {
  tsr__raw type, device, address, bytes, allocated, reserved;
} memory;

static int read_memory_args(kineto *k, const event *e, memory *m) {
  static const char *const names[] = {"Device Type", "Device Id",       "Addr",
                                      "Bytes",       "Total Allocated", "Total Reserved"};
  tsr__raw *const places[] = {&m->type,  &m->device,    &m->address,
                              &m->bytes, &m->allocated, &m->reserved};
  tsr__scan s = {&k->j, e->args.data, e->args.data + e->args.size};
  size_t count = 0;
  if (!e->args.data || e->args.is_text || *e->args.data != '{') return 0;
  int status = tsr__scan_open(&s, '{');
  while (!status) {
    tsr__raw key, value;
    status = tsr__scan_key(&s, &count, &key);
    if (status || !key.data) break;
    status = tsr__scan_raw(&s, &value);
    for (size_t i = 0; !status && i < sizeof names / sizeof *names; i++)
      if (tsr__raw_is(&key, names[i])) *places[i] = value;
  }
  return status;
}

static bool number_or(const tsr__raw *raw, uint64_t *out) {
  if (!raw->data) return true;
  uint64_t value;
  if (!tsr__raw_unsigned(raw, &value)) return false;
  *out = value;
  return true;
}

/* One [memory] or [OutOfMemory] event as a row; false for any other event. */
static bool row_of_memory(const memory *m, bool is_oom, tsr__flat_row *row) {
  int64_t bytes, type = 0, device = 0;
  if (!m->bytes.data || !tsr__raw_signed(&m->bytes, &bytes)) return false;
  if (m->type.data && !tsr__raw_signed(&m->type, &type)) return false;
  if (m->device.data && !tsr__raw_signed(&m->device, &device)) return false;
  if (!number_or(&m->address, &row->address)) return false;
  if (!number_or(&m->allocated, &row->allocated_bytes)) return false;
  if (!number_or(&m->reserved, &row->reserved_bytes)) return false;
  if (type < 0 || (type > 0 && (device < 0 || device > UINT32_MAX))) return false;
  row->device = type ? (uint32_t)device : TSR_DEVICE_CPU;
  if (!type)
    row->reserved_bytes = TSR__FLAT_UNKNOWN; /* the CPU's allocator keeps nothing: it writes 0 */
  if (row->device >= TSR_DEVICE_CPU && type) return false;
  row->kind = is_oom ? TSR__FLAT_OOM : bytes < 0 ? TSR__FLAT_FREE : TSR__FLAT_ALLOC;
  row->bytes = bytes < 0 ? (uint64_t)-bytes : (uint64_t)bytes;
  return true;
}

static int take_memory(kineto *k, const event *e, bool is_oom) {
  memory m = {0};
  tsr__flat_row row = {.address = TSR__FLAT_UNKNOWN,
                       .allocated_bytes = TSR__FLAT_UNKNOWN,
                       .reserved_bytes = TSR__FLAT_UNKNOWN,
                       .stack = TSR_NONE,
                       .says = TSR_NONE};
  int status = read_memory_args(k, e, &m);
  if (status) return status;
  if (!tsr__raw_ns(&e->ts, &row.time_ns) || !row_of_memory(&m, is_oom, &row)) {
    (void)warn_malformed(k);
    return 0;
  }
  row.thread = thread_of(k, e);
  bool ok = row.thread != TSR_NONE && tsr__flat_add(&k->flat, &row);
  return ok ? 0 : tsr__fail_memory(k->j.error);
}

/* ---- slices ---- */

typedef enum slice_kind { SLICE_NONE, SLICE_PYTHON, SLICE_OP, SLICE_RANGE } slice_kind;

static bool begins_with(const tsr__raw *raw, const char *part) {
  size_t size = strlen(part);
  return raw->size >= size && memcmp(raw->data, part, size) == 0;
}

/* In 2021 operators had the category "Operator", and so had ranges. */
static slice_kind kind_of(const event *e) {
  if (tsr__raw_is(&e->cat, "python_function")) return SLICE_PYTHON;
  if (tsr__raw_is(&e->cat, "user_annotation")) return SLICE_RANGE;
  if (!tsr__raw_is(&e->cat, "cpu_op") && !tsr__raw_is(&e->cat, "Operator")) return SLICE_NONE;
  return begins_with(&e->name, "ProfilerStep#") || begins_with(&e->name, "Optimizer.") ? SLICE_RANGE
                                                                                       : SLICE_OP;
}

/* The text of a string: in the window, or without its escapes in `text`. */
static bool text_of(kineto *k, const tsr__raw *raw, tsr_text *out) {
  *out = (tsr_text){(const char *)raw->data, raw->size};
  if (!raw->has_escapes) return true;
  if (!tsr__raw_unescape(raw, &k->text)) return false;
  *out = (tsr_text){k->text.data, k->text.size};
  return true;
}

static bool add_range(kineto *k, tsr_text name, int64_t start_ns, int64_t end_ns) {
  uint32_t string = tsr__builder_string(k->flat.builder, name.data, name.size_bytes);
  return string != TSR_NONE && TSR__VECTOR_PUSH(&k->ranges, (range_end){start_ns, string, true}) &&
         TSR__VECTOR_PUSH(&k->ranges, (range_end){end_ns, string, false});
}

static bool add_slice(kineto *k, const event *e, tsr_text name, int64_t start_ns, int64_t end_ns) {
  bool is_new;
  tsr__slice slice = {
      .start_ns = start_ns, .end_ns = end_ns, .order = (uint32_t)k->slices.items.count};
  if (!TSR__VECTOR_RESERVE(&k->slices.frame_of, 1)) return false;
  slice.thread = thread_of(k, e);
  slice.name = tsr__intern_put(&k->slices.names, name.data, name.size_bytes, &is_new);
  if (slice.name == TSR_NONE || slice.thread == TSR_NONE) return false;
  if (is_new) k->slices.frame_of.items[k->slices.frame_of.count++] = TSR_NONE;
  return TSR__VECTOR_PUSH(&k->slices.items, slice);
}

static int take_slice(kineto *k, const event *e) {
  slice_kind kind = kind_of(e);
  int64_t start_ns, duration_ns;
  tsr_text name;
  if (kind == SLICE_NONE) return 0;
  if (!e->name.is_text || !tsr__raw_ns(&e->ts, &start_ns) || !tsr__raw_ns(&e->dur, &duration_ns) ||
      duration_ns < 0 || start_ns > INT64_MAX - duration_ns) {
    (void)warn_malformed(k);
    return 0;
  }
  bool ok = text_of(k, &e->name, &name);
  k->slices.python_count += kind == SLICE_PYTHON;
  if (ok)
    ok = kind == SLICE_RANGE ? add_range(k, name, start_ns, start_ns + duration_ns)
                             : add_slice(k, e, name, start_ns, start_ns + duration_ns);
  return ok ? 0 : tsr__fail_memory(k->j.error);
}

static int take_event(kineto *k, const event *e) {
  k->event_count++;
  if (tsr__raw_is(&e->ph, "X")) return take_slice(k, e);
  if (tsr__raw_is(&e->name, "[memory]")) return take_memory(k, e, false);
  if (tsr__raw_is(&e->name, "[OutOfMemory]")) return take_memory(k, e, true);
  return 0;
}

/* ---- the text ---- */

static int check_memory(kineto *k) {
  uint64_t offset = tsr__json_offset(&k->j, k->j.next);
  if (offset < k->next_check) return 0;
  k->next_check = offset + CHECK_BYTES;
  uint64_t held = tsr__flat_bytes(&k->flat) + tsr__slices_bytes(&k->slices) +
                  k->ranges.capacity * sizeof *k->ranges.items;
  const tsr_limits *limits = &k->j.assembler->limits;
  if (k->slices.names.bytes + k->j.assembler->snapshot->strings.bytes > limits->all_strings_bytes)
    return tsr__json_limit(&k->j, "more text than tsr_limits.all_strings_bytes");
  return tsr__check_memory(k->j.assembler, held, k->j.source, offset, k->j.error);
}

/* The same without looking for its end first, which takes half of the time: false, and nothing has happened, if it does not
 * end in the window or is damaged. */
static bool read_short(kineto *k, event *e) {
  tsr_error ignored, *error = k->j.error;
  tsr__scan s = {&k->j, k->j.next, k->j.end};
  k->j.error = &ignored;
  bool ok = !read_members(&s, e);
  k->j.error = error;
  if (ok) k->j.next = s.next;
  return ok;
}

/* The event at the cursor. What is no object is counted and ignored. */
static int read_event(kineto *k) {
  size_t size;
  event e = {0};
  int status = k->j.end - k->j.next < LOOK_AHEAD ? tsr__json_need(&k->j, LOOK_AHEAD) : 0;
  if (status < 0) return status;
  if (read_short(k, &e)) {
    status = take_event(k, &e);
    return status ? status : check_memory(k);
  }
  e = (event){0};
  status = tsr__scan_value(&k->j, &size);
  if (status) return status;
  if (*k->j.next == '{') {
    tsr__scan s = tsr__scan_of(&k->j, size);
    status = read_members(&s, &e);
    if (!status) status = take_event(k, &e);
  } else {
    (void)warn_malformed(k);
  }
  k->j.next += size;
  return status ? status : check_memory(k);
}

/* A list of events, with the cursor on its bracket. */
static int read_events(kineto *k) {
  unsigned char c;
  int status;
  k->j.next++;
  for (bool is_first = true;; is_first = false) {
    status = tsr__scan_peek(&k->j, &c);
    if (status) return status;
    if (c == ']') {
      k->j.next++;
      return 0;
    }
    if (!is_first) {
      if (c != ',') return tsr__json_damaged(&k->j, k->j.next, "expected ',' or ']'");
      k->j.next++;
      status = tsr__scan_peek(&k->j, &c);
      if (status) return status;
      if (c == ']') continue; /* writers leave a comma behind the last event */
    }
    if (c == ',' || c == '}' || c == ':')
      return tsr__json_damaged(&k->j, k->j.next, "expected an event");
    status = read_event(k);
    if (status) return status;
  }
}

static int read_base(kineto *k) {
  size_t size;
  tsr__raw raw;
  int64_t base_ns;
  int status = tsr__scan_value(&k->j, &size);
  if (status) return status;
  tsr__scan s = tsr__scan_of(&k->j, size);
  status = tsr__scan_raw(&s, &raw);
  if (!status && tsr__raw_signed(&raw, &base_ns))
    k->base_ns = base_ns;
  else if (!status)
    tsr__builder_warn(k->flat.builder, TSR__WARN_VALUES_UNREADABLE);
  k->j.next += size;
  return status;
}

/* A key of the top and its value, with the cursor on the key. */
static int read_member(kineto *k, unsigned char c) {
  size_t size;
  tsr__raw key;
  if (c != '"') return tsr__json_damaged(&k->j, k->j.next, "expected a key in quotes or '}'");
  int status = tsr__scan_value(&k->j, &size);
  if (status) return status;
  tsr__scan s = tsr__scan_of(&k->j, size);
  status = tsr__scan_raw(&s, &key);
  if (status) return status;
  bool is_events = tsr__raw_is(&key, "traceEvents");
  bool is_base = tsr__raw_is(&key, "baseTimeNanoseconds");
  k->j.next += size;
  status = tsr__scan_peek(&k->j, &c);
  if (status) return status;
  if (c != ':') return tsr__json_damaged(&k->j, k->j.next, "expected ':'");
  k->j.next++;
  status = tsr__scan_peek(&k->j, &c);
  if (status) return status;
  if (is_events && c == '[') return read_events(k);
  return is_base ? read_base(k) : tsr__scan_pass(&k->j);
}

static int read_top(kineto *k) {
  unsigned char c;
  int status = tsr__scan_peek(&k->j, &c);
  if (status) return status;
  if (c == '[') return read_events(k);
  if (c != '{') return tsr__json_damaged(&k->j, k->j.next, "expected an object or a list");
  k->j.next++;
  for (bool is_first = true;; is_first = false) {
    status = tsr__scan_peek(&k->j, &c);
    if (status) return status;
    if (c == '}') return 0;
    if (!is_first && c != ',') return tsr__json_damaged(&k->j, k->j.next, "expected ',' or '}'");
    if (!is_first) {
      k->j.next++;
      status = tsr__scan_peek(&k->j, &c);
      if (status) return status;
    }
    status = read_member(k, c);
    if (!status) status = check_memory(k);
    if (status) return status;
  }
}

/* ---- the end ---- */

static int64_t add_base(int64_t time_ns, int64_t base_ns) {
  if (base_ns > 0 && time_ns > INT64_MAX - base_ns) return INT64_MAX;
  if (base_ns < 0 && time_ns < INT64_MIN - base_ns) return INT64_MIN;
  return time_ns + base_ns;
}

/* What begins comes before what ends at the same time only if it is its own end. */
static int compare_ranges(const void *a, const void *b) {
  const range_end *x = a, *y = b;
  return (x->time_ns > y->time_ns) - (x->time_ns < y->time_ns);
}

/* Annotations are of the process: the first GPU's, if there is one. */
static uint32_t annotated_device(const tsr__flat *flat) {
  uint32_t device = TSR_DEVICE_CPU;
  for (size_t i = 0; i < flat->rows.count; i++)
    if (flat->rows.items[i].device < device) device = flat->rows.items[i].device;
  return device == TSR_DEVICE_CPU ? 0 : device;
}

static bool add_annotations(kineto *k, uint32_t device) {
  bool ok = true;
  tsr__sort(k->ranges.items, k->ranges.count, sizeof *k->ranges.items, compare_ranges);
  for (size_t i = 0; ok && i < k->ranges.count; i++) {
    const range_end *end = &k->ranges.items[i];
    int64_t time_ns = add_base(end->time_ns, k->base_ns);
    int64_t time_us = time_ns / 1000 - (time_ns % 1000 < 0);
    ok = tsr__builder_annotation_of(k->flat.builder, device, time_us, end->name, end->is_start);
  }
  return ok;
}

static int finish(kineto *k) {
  tsr__builder *b = k->flat.builder;
  if (!k->flat.rows.count)
    return tsr__fail(k->j.error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE,
                     "a profiler's trace without allocations: record it with "
                     "torch.profiler.profile(profile_memory=True)");
  if (!k->slices.python_count) tsr__builder_warn(b, TSR__WARN_NO_STACKS);
  uint32_t device = annotated_device(&k->flat);
  tsr__builder_record(b, "kineto");
  tsr__flat_sort(&k->flat);
  int status = tsr__slices_join(&k->slices, &k->flat, &k->j);
  for (size_t i = 0; i < k->flat.rows.count; i++)
    k->flat.rows.items[i].time_ns = add_base(k->flat.rows.items[i].time_ns, k->base_ns);
  if (!status) status = tsr__flat_finish(&k->flat, k->j.error);
  if (!status && !add_annotations(k, device)) status = tsr__fail_memory(k->j.error);
  return status ? status : tsr__builder_lay_out(b, k->j.error);
}

int tsr__kineto_read(tsr__input *source, tsr__assembler *assembler, const tsr_open_options *options,
                     uint64_t total_bytes, tsr_error *error) {
  kineto k = {0};
  tsr__scan_init(&k.j, source, assembler, options, total_bytes, error);
  tsr__flat_init(&k.flat, assembler->builder);
  tsr__slices_init(&k.slices, assembler->builder);
  int status = read_top(&k);
  if (status == 1) {
    tsr__builder_cut(assembler->builder);
    status = k.flat.rows.count ? 0
                               : tsr__fail(error, TSR_ERROR_FORMAT, tsr__json_offset(&k.j, k.j.end),
                                           "the trace is truncated before its first allocation");
  }
  if (!status) status = finish(&k);
  tsr__scan_release(&k.j);
  tsr__flat_release(&k.flat);
  tsr__slices_release(&k.slices);
  TSR__VECTOR_FREE(&k.ranges);
  tsr__buffer_release(&k.text);
  tsr__buffer_release(&k.thread);
  return status;
}

/* ---- is it one? ---- */

static const unsigned char *after_space(const unsigned char *p, const unsigned char *end) {
  while (p < end && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t')) p++;
  return p;
}

/* Is there such a string in the first bytes? */
static bool has_key(const unsigned char *p, const unsigned char *end, const char *key) {
  size_t size = strlen(key);
  for (; (size_t)(end - p) > size + 1; p++) {
    p = memchr(p, '"', (size_t)(end - p) - size - 1);
    if (!p) return false;
    if (memcmp(p + 1, key, size) == 0 && p[size + 1] == '"') return true;
  }
  return false;
}

bool tsr__kineto_looks_like(const unsigned char *data, size_t size) {
  static const char *const first_keys[] = {"schemaVersion",   "deviceProperties",    "traceEvents",
                                           "displayTimeUnit", "baseTimeNanoseconds", "traceName",
                                           "distributedInfo"};
  const unsigned char *end = data + size;
  const unsigned char *p = size >= 3 && memcmp(data, "\xef\xbb\xbf", 3) == 0 ? data + 3 : data;
  p = after_space(p, end);
  if (p == end || (*p != '{' && *p != '[')) return false;
  bool is_list = *p == '[';
  p = after_space(p + 1, end);
  if (p == end) return false;
  if (is_list) return *p == '{' && has_key(p, end - p > 4096 ? p + 4096 : end, "ph");
  if (*p != '"') return false;
  for (size_t i = 0; i < sizeof first_keys / sizeof *first_keys; i++) {
    size_t length = strlen(first_keys[i]);
    if ((size_t)(end - p) > length + 1 && memcmp(p + 1, first_keys[i], length) == 0 &&
        p[length + 1] == '"')
      return true;
  }
  return has_key(p, end, "traceEvents") && !has_key(p, end, "device_traces");
}
