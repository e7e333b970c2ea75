/* lock.c - reads and writes locks. See tessera/unstable/check.h for the format.
 *
 * A lock is an untrusted file: it is read line by line, each a keyword and its words, in any order
 * within a device, but without duplicates. The first error ends reading and names its line. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/buffer.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/format.h"
#include "base/memory.h"
#include "base/vector.h"
#include "tessera/unstable/check.h"

/* The first line, and the version that is written. */
static const char title[] = "tessera memory lock ";
enum { VERSION = 2 };

/* ---- Reading ---- */

/* A lock while it is being read; `lock` comes first, so that it can be freed by its address. */
typedef struct lock_store {
  tsr_lock lock;
  tsr__arena arena;
} lock_store;

typedef struct reader {
  lock_store *store;
  TSR__VECTOR(tsr_lock_device) devices;
  TSR__VECTOR(tsr_lock_cause) causes; /* of the last device */
  unsigned seen;                      /* keywords of the last device: a bit each */
  unsigned seen_categories;
  uint32_t version;
  tsr_text rest; /* of the line */
  unsigned long line;
  tsr_error *error;
} reader;

enum { SEEN_PEAK = 1, SEEN_REST = 2 };

static int wrong(reader *r, const char *what) {
  return tsr__fail(r->error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE, "line %lu of the lock: %s", r->line,
                   what);
}

static int too_much(reader *r, const char *what) {
  return tsr__fail(r->error, TSR_ERROR_LIMIT, TSR_OFFSET_NONE, "line %lu of the lock: %s", r->line,
                   what);
}

/* The next word of the line; empty at its end. */
static tsr_text next_word(reader *r) {
  size_t begin = 0;
  while (begin < r->rest.size_bytes && r->rest.data[begin] == ' ') begin++;
  size_t end = begin;
  while (end < r->rest.size_bytes && r->rest.data[end] != ' ') end++;
  tsr_text word = {r->rest.data + begin, end - begin};
  r->rest = (tsr_text){r->rest.data + end, r->rest.size_bytes - end};
  return word;
}

static bool is_word(tsr_text text, const char *word) {
  return text.size_bytes == strlen(word) && memcmp(text.data, word, text.size_bytes) == 0;
}

static bool read_number(reader *r, uint64_t most, uint64_t *out) {
  tsr_text word = next_word(r);
  uint64_t number = 0;
  for (size_t i = 0; i < word.size_bytes; i++) {
    if (word.data[i] < '0' || word.data[i] > '9') return false;
    uint64_t digit = (uint64_t)(word.data[i] - '0');
    if (number > (most - digit) / 10) return false;
    number = number * 10 + digit;
  }
  if (!word.size_bytes) return false;
  *out = number;
  return true;
}

/* Locks written before the words were unified say "unexplained". */
static bool read_category(reader *r, tsr_category *out) {
  tsr_text word = next_word(r);
  if (is_word(word, "unexplained")) {
    *out = TSR_CATEGORY_UNKNOWN;
    return true;
  }
  for (int i = 0; i < TSR_CATEGORY_COUNT; i++) {
    if (!is_word(word, tsr_category_name((tsr_category)i))) continue;
    *out = (tsr_category)i;
    return true;
  }
  return false;
}

/* Whether a name is backslashes, none included, before a '#' or its end. Written as it is it
 * would be a comment, or nothing, so such names get one more backslash in a lock. All others,
 * those of older locks included, are written unchanged. */
static bool is_escaped(const char *name, size_t size_bytes) {
  size_t at = 0;
  while (at < size_bytes && name[at] == '\\') at++;
  return at == size_bytes || name[at] == '#';
}

/* Only a comment may follow. */
static int end_line(reader *r) {
  tsr_text word = next_word(r);
  if (!word.size_bytes || word.data[0] == '#') return 0;
  return wrong(r, "unexpected text at its end");
}

/* Move the collected causes to their device. */
static int end_device(reader *r) {
  if (!r->devices.count) return 0;
  tsr_lock_device *device = &r->devices.items[r->devices.count - 1];
  if (!(r->seen & SEEN_PEAK)) return wrong(r, "the previous device has no peak");
  assert(r->causes.count <= TSR_LOCK_MAX_CAUSES);
  size_t size = r->causes.count * sizeof *device->causes;
  device->causes = tsr__arena_alloc(&r->store->arena, size, _Alignof(tsr_lock_cause));
  if (!device->causes) return tsr__fail_memory(r->error);
  if (size) memcpy(device->causes, r->causes.items, size);
  device->cause_count = r->causes.count;
  r->causes.count = 0;
  return 0;
}

static int read_device(reader *r) {
  uint64_t number;
  int status = end_device(r);
  if (status) return status;
  tsr_text rest = r->rest, word = next_word(r);
  if (is_word(word, "host")) {
    number = TSR_DEVICE_HOST;
  } else if (is_word(word, "cpu")) {
    number = TSR_DEVICE_CPU;
  } else {
    r->rest = rest;
    if (!read_number(r, TSR_DEVICE_CPU - 1, &number))
      return wrong(r, "'device' takes a number, 'cpu' or 'host'");
  }
  if (r->devices.count && r->devices.items[r->devices.count - 1].device >= number)
    return wrong(r, "devices must ascend");
  if (r->devices.count == TSR_LOCK_MAX_DEVICES) return too_much(r, "too many devices");
  if (!TSR__VECTOR_PUSH(&r->devices, (tsr_lock_device){.device = (uint32_t)number}))
    return tsr__fail_memory(r->error);
  r->seen = r->seen_categories = 0;
  return end_line(r);
}

/* `peak` or `rest`. */
static int read_total(reader *r, unsigned bit, uint64_t *out) {
  if (r->seen & bit) return wrong(r, "duplicate for this device");
  r->seen |= bit;
  if (!read_number(r, UINT64_MAX, out)) return wrong(r, "a number of bytes is missing");
  return end_line(r);
}

static int read_category_line(reader *r, tsr_lock_device *device) {
  tsr_category kind;
  if (!read_category(r, &kind)) return wrong(r, "no such category of memory");
  assert(kind < TSR_CATEGORY_COUNT);
  if (r->seen_categories & (1u << kind)) return wrong(r, "duplicate for this device");
  r->seen_categories |= 1u << kind;
  if (!read_number(r, UINT64_MAX, &device->categories[kind]))
    return wrong(r, "a number of bytes is missing");
  return end_line(r);
}

static int read_cause(reader *r) {
  tsr_lock_cause cause = {.bytes = 0};
  if (!read_category(r, &cause.category)) return wrong(r, "no such category of memory");
  if (!read_number(r, UINT64_MAX, &cause.bytes)) return wrong(r, "a number of bytes is missing");
  tsr_text name = next_word(r);
  if (!name.size_bytes || name.data[0] == '#') return wrong(r, "the cause has no name");
  if (r->causes.count == TSR_LOCK_MAX_CAUSES) return too_much(r, "too many causes");
  if (is_escaped(name.data, name.size_bytes)) name.data++, name.size_bytes--;
  char *copy = tsr__arena_alloc(&r->store->arena, name.size_bytes + 1, 1);
  if (!copy) return tsr__fail_memory(r->error);
  if (name.size_bytes) memcpy(copy, name.data, name.size_bytes);
  copy[name.size_bytes] = '\0';
  cause.name = copy;
  for (size_t i = 0; i < r->causes.count; i++)
    if (r->causes.items[i].category == cause.category && strcmp(r->causes.items[i].name, copy) == 0)
      return wrong(r, "duplicate for this device");
  if (!TSR__VECTOR_PUSH(&r->causes, cause)) return tsr__fail_memory(r->error);
  return end_line(r);
}

static int read_title(reader *r) {
  for (const char *at = title; *at;) {
    size_t length = strcspn(at, " ");
    tsr_text word = next_word(r);
    if (word.size_bytes != length || memcmp(word.data, at, length) != 0)
      return wrong(r, "not a memory lock: it must begin with 'tessera memory lock 2'");
    at += length + 1;
  }
  tsr_text version = next_word(r);
  if (!is_word(version, "1") && !is_word(version, "2"))
    return wrong(r, "unsupported lock version: only versions 1 and 2 can be read");
  r->version = (uint32_t)(version.data[0] - '0');
  return end_line(r);
}

static int read_line(reader *r) {
  if (r->line == 1) return read_title(r);
  tsr_text word = next_word(r);
  if (!word.size_bytes || word.data[0] == '#') return 0;
  if (is_word(word, "device")) return read_device(r);
  tsr_lock_device *device = r->devices.count ? &r->devices.items[r->devices.count - 1] : NULL;
  if (!device) return wrong(r, "a device line must come first");
  if (is_word(word, "peak")) return read_total(r, SEEN_PEAK, &device->peak_bytes);
  if (is_word(word, "rest")) return read_total(r, SEEN_REST, &device->rest_bytes);
  if (is_word(word, "category") || is_word(word, "kind")) return read_category_line(r, device);
  if (is_word(word, "cause")) return read_cause(r);
  return wrong(r, "it must begin with device, peak, category, cause or rest");
}

/* A line must print, and be short. */
static int check_line(reader *r) {
  if (r->rest.size_bytes > TSR_LOCK_LINE_BYTES) return too_much(r, "the line is too long");
  for (size_t i = 0; i < r->rest.size_bytes; i++) {
    unsigned char byte = (unsigned char)r->rest.data[i];
    if (byte < 0x20 || byte == 0x7f) return wrong(r, "it contains a control character");
  }
  return 0;
}

static int read_lines(reader *r, const char *text, size_t size_bytes) {
  int status = 0;
  for (size_t at = 0; !status && at < size_bytes; r->line++) {
    const char *end = memchr(text + at, '\n', size_bytes - at);
    size_t length = end ? (size_t)(end - text) - at : size_bytes - at;
    size_t next = at + length + 1;
    if (length && text[at + length - 1] == '\r') length--;
    assert(next > at && at + length <= size_bytes);
    r->rest = (tsr_text){text + at, length};
    at = next;
    status = check_line(r);
    if (!status) status = read_line(r);
    if (status) return status;
  }
  return end_device(r);
}

int tsr_lock_parse(const char *text, size_t size_bytes, tsr_lock **out, tsr_error *error) {
  reader r = {.line = 1, .error = error};
  if (size_bytes > TSR_LOCK_MAX_BYTES)
    return tsr__fail(error, TSR_ERROR_LIMIT, TSR_OFFSET_NONE, "a lock may have at most %u bytes",
                     TSR_LOCK_MAX_BYTES);
  if (!size_bytes) return wrong(&r, "the lock is empty");
  if (!(r.store = TSR__NEW(lock_store))) return tsr__fail_memory(error);
  tsr__arena_init(&r.store->arena);
  int status = read_lines(&r, text, size_bytes);
  TSR__VECTOR_FREE(&r.causes);
  r.store->lock = (tsr_lock){r.devices.items, r.devices.count, r.version};
  if (status)
    tsr_lock_free(&r.store->lock);
  else
    *out = &r.store->lock;
  return status;
}

void tsr_lock_free(tsr_lock *lock) {
  if (!lock) return;
  lock_store *store = (lock_store *)lock;
  tsr__arena_release(&store->arena);
  tsr__free(lock->devices);
  tsr__free(store);
}

static int parse_object(const char *text, size_t size_bytes, void **out, tsr_error *error) {
  tsr_lock *lock = NULL;
  int status = tsr_lock_parse(text, size_bytes, &lock, error);
  if (status == 0) *out = lock;
  return status;
}

static void free_object(void *lock) {
  tsr_lock_free(lock);
}

const tsr_parameter_type tsr_lock_type = {
    .name = "lock", .parse = parse_object, .free = free_object};

/* ---- Writing ---- */

/* `name` is NULL for figures without one. */
static void put_figure(tsr__buffer *out, const char *what, uint64_t bytes, const char *name) {
  char size[TSR__FORMAT_BYTES];
  tsr__buffer_printf(out, "%s %" PRIu64, what, bytes);
  if (name) tsr__buffer_printf(out, " %s%s", is_escaped(name, strlen(name)) ? "\\" : "", name);
  tsr__buffer_printf(out, " # %s\n", tsr__format_size(bytes, size));
}

/* The categories that held anything, largest first. */
static void put_categories(tsr__buffer *out, const tsr_check_device *device) {
  bool is_done[TSR_CATEGORY_COUNT] = {false};
  char what[64];
  for (;;) {
    int most = -1;
    for (int i = 0; i < TSR_CATEGORY_COUNT; i++)
      if (!is_done[i] && device->categories[i].peak_bytes &&
          (most < 0 || device->categories[i].peak_bytes > device->categories[most].peak_bytes))
        most = i;
    if (most < 0) return;
    is_done[most] = true;
    (void)snprintf(what, sizeof what, "category %s", tsr_category_name((tsr_category)most));
    put_figure(out, what, device->categories[most].peak_bytes, NULL);
  }
}

static void put_device(tsr__buffer *out, const tsr_check_device *device) {
  char what[64];
  size_t count = device->cause_count < TSR_LOCK_CAUSES ? device->cause_count : TSR_LOCK_CAUSES;
  for (size_t i = 1; i < count; i++)
    assert(device->causes[i - 1].cause.bytes >= device->causes[i].cause.bytes ||
           device->causes[i].is_locked);
  while (count && !device->causes[count - 1].cause.bytes) count--; /* of an older lock */
  if (device->device == TSR_DEVICE_HOST)
    tsr__buffer_text(out, "\ndevice host\n");
  else if (device->device == TSR_DEVICE_CPU)
    tsr__buffer_text(out, "\ndevice cpu\n");
  else
    tsr__buffer_printf(out, "\ndevice %" PRIu32 "\n", device->device);
  put_figure(out, "peak", device->peak.totals.allocated_bytes, NULL);
  put_categories(out, device);
  for (size_t i = 0; i < count; i++) {
    const tsr_check_cause *cause = &device->causes[i];
    (void)snprintf(what, sizeof what, "cause %s", tsr_category_name(cause->cause.category));
    put_figure(out, what, cause->cause.bytes, cause->name);
  }
  if (count < device->cause_count && device->causes[count].cause.bytes)
    put_figure(out, "rest", device->causes[count].cause.bytes, NULL);
}

int tsr_lock_write(const tsr_check *check, tsr_write_fn *write, void *context, tsr_error *error) {
  tsr__buffer out = {0};
  tsr__buffer_printf(&out,
                     "%s%d\n# Peak GPU memory, in bytes, each figure at its own moment. Written by "
                     "`tessera check --lock FILE --update`.\n",
                     title, VERSION);
  for (size_t i = 0; i < check->device_count; i++) put_device(&out, &check->devices[i]);
  int status = 0;
  if (out.failed)
    status = tsr__fail_memory(error);
  else if (write(context, out.data, out.size))
    status = tsr__fail(error, TSR_ERROR_WRITE, TSR_OFFSET_NONE, "the lock cannot be written");
  tsr__buffer_release(&out);
  return status;
}
