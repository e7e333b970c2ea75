/* settings.c - PYTORCH_CUDA_ALLOC_CONF, read and written.
 *
 *   expandable_segments:True,roundup_power2_divisions:[256:1,512:2,>:8],max_split_size_mb:128
 *
 * A configuration is pairs of key and value between commas; a value is a word, or a list in square
 * brackets; space means nothing. A table lists the keys and the functions that read their values.
 * The grammar and bounds are those of c10/core/AllocatorConfig.{h,cpp}; where releases differ the
 * newest is followed, except that older bounds that are looser are kept.
 *
 * Numbers are read and written without the C library's, whose decimal point is the locale's. */
#include <ctype.h>
#include <float.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "allocator/allocator.h"
#include "base/number.h"

#define MIB           (UINT64_C(1) << 20)
#define GIB           (UINT64_C(1) << 30)
#define MIN_SPLIT_MIB 20 /* of max_split_size_mb and max_non_split_rounding_mb */
#define MOST_RESERVE  1.125
#define MOST_GIB      (UINT64_C(1) << 20)

/* ---- words ---- */

/* A word or a punctuation mark; empty at the end of the text. */
typedef struct token {
  char text[64]; /* cut when longer: no key or value is */
  size_t length;
} token;

typedef struct reader {
  const char *at;
  token key; /* of the pair being read, for messages */
  tsr_error *error;
} reader;

static bool is_mark(char c) {
  return c == ',' || c == ':' || c == '[' || c == ']';
}

static token next_token(reader *r) {
  token t = {.length = 0};
  for (; *r->at; r->at++) {
    if (isspace((unsigned char)*r->at)) continue;
    if (is_mark(*r->at) && t.length) break;
    if (t.length < sizeof t.text - 1) t.text[t.length++] = *r->at;
    if (is_mark(*r->at)) {
      r->at++;
      break;
    }
  }
  return t;
}

static bool is_text(const token *t, const char *text) {
  return strcmp(t->text, text) == 0;
}

static int refuse(reader *r, const char *why) {
  return tsr__fail(r->error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE, "allocator option %s: %s",
                   r->key.text, why);
}

static int expect(reader *r, const char *mark) {
  token t = next_token(r);
  if (is_text(&t, mark)) return TSR_OK;
  return tsr__fail(r->error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                   "allocator option %s: expected \"%s\", not \"%s\"", r->key.text, mark, t.text);
}

static int to_number(reader *r, const token *t, uint64_t *out) {
  uint64_t value = 0;
  if (!t->length || t->length > 15) return refuse(r, "expected a whole number");
  for (size_t i = 0; i < t->length; i++) {
    if (t->text[i] < '0' || t->text[i] > '9') return refuse(r, "expected a whole number");
    value = value * 10 + (uint64_t)(t->text[i] - '0');
  }
  *out = value;
  return TSR_OK;
}

static int read_number(reader *r, uint64_t *out) {
  token t = next_token(r);
  return to_number(r, &t, out);
}

static int read_bool(reader *r, bool *out) {
  token t = next_token(r);
  if (!is_text(&t, "True") && !is_text(&t, "False")) return refuse(r, "expected True or False");
  *out = is_text(&t, "True");
  return TSR_OK;
}

static bool is_power_of_two(uint64_t value) {
  return value && !(value & (value - 1));
}

/* ---- values ---- */

typedef int read_value(reader *r, tsr_allocator_settings *out);

static int read_mib(reader *r, uint64_t least_mib, const char *why, uint64_t *out) {
  uint64_t mib = 0;
  int status = read_number(r, &mib);
  if (status < 0) return status;
  if (mib < least_mib) return refuse(r, why);
  *out = mib > UINT64_MAX / MIB ? UINT64_MAX / MIB * MIB : mib * MIB;
  return TSR_OK;
}

static int read_max_split(reader *r, tsr_allocator_settings *out) {
  return read_mib(r, MIN_SPLIT_MIB, "must be at least 20", &out->max_split_bytes);
}

static int read_max_non_split(reader *r, tsr_allocator_settings *out) {
  return read_mib(r, MIN_SPLIT_MIB, "must be at least 20", &out->max_non_split_rounding_bytes);
}

static int read_large_segment(reader *r, tsr_allocator_settings *out) {
  return read_mib(r, 2, "must be more than 1", &out->large_segment_bytes);
}

static int read_expandable(reader *r, tsr_allocator_settings *out) {
  return read_bool(r, &out->expandable_segments);
}

/* "0.8": digits, and a point somewhere. Exact up to fifteen digits. */
static int read_threshold(reader *r, tsr_allocator_settings *out) {
  token t = next_token(r);
  double digits = 0, scale = 1;
  bool has_point = false, is_number = t.length > 0 && t.length < 17;
  for (size_t i = 0; i < t.length && is_number; i++) {
    bool is_digit = t.text[i] >= '0' && t.text[i] <= '9';
    is_number = is_digit || (t.text[i] == '.' && !has_point);
    if (is_digit) {
      digits = digits * 10 + (t.text[i] - '0');
      scale *= has_point ? 10 : 1;
    } else {
      has_point = true;
    }
  }
  double value = digits / scale;
  if (!is_number || value <= 0 || value >= 1) return refuse(r, "must be between 0 and 1");
  out->garbage_collection_threshold = value;
  return TSR_OK;
}

static void fill(tsr_allocator_settings *out, size_t from, size_t to, uint64_t divisions) {
  for (size_t i = from; i < to; i++) out->roundup_divisions[i] = (uint32_t)divisions;
}

static int read_divisions(reader *r, uint64_t *out) {
  int status = read_number(r, out);
  if (status < 0) return status;
  if (*out && (!is_power_of_two(*out) || *out > UINT32_MAX / 2))
    return refuse(r, "divisions must be powers of two, or 0");
  return TSR_OK;
}

static size_t slot_of(uint64_t mib) {
  size_t slot = 0;
  while (mib >>= 1) slot++;
  return slot < TSR_ROUNDUP_SLOTS ? slot : TSR_ROUNDUP_SLOTS - 1;
}

/* One "key:value" of the list. `*slot` is the slot of the last key, or SIZE_MAX. */
static int read_interval(reader *r, const token *key, size_t *slot, tsr_allocator_settings *out) {
  uint64_t mib = 0, divisions = 0;
  bool is_rest = is_text(key, ">");
  int status = is_rest ? TSR_OK : to_number(r, key, &mib);
  if (status == TSR_OK && !is_rest && !is_power_of_two(mib))
    status = refuse(r, "intervals must be powers of two, or >");
  if (status == TSR_OK) status = expect(r, ":");
  if (status == TSR_OK) status = read_divisions(r, &divisions);
  if (status < 0) return status;
  if (is_rest) {
    fill(out, *slot == SIZE_MAX ? 1 : *slot + 1, TSR_ROUNDUP_SLOTS, divisions);
    return TSR_OK;
  }
  if (*slot == SIZE_MAX) fill(out, 0, slot_of(mib), divisions);
  *slot = slot_of(mib);
  out->roundup_divisions[*slot] = (uint32_t)divisions;
  return TSR_OK;
}

static int read_roundup(reader *r, tsr_allocator_settings *out) {
  token t = next_token(r);
  if (!is_text(&t, "[")) {
    uint64_t divisions = 0;
    int status = to_number(r, &t, &divisions);
    if (status < 0) return status;
    if (!is_power_of_two(divisions) || divisions > UINT32_MAX / 2)
      return refuse(r, "divisions must be a power of two");
    fill(out, 0, TSR_ROUNDUP_SLOTS, divisions);
    return TSR_OK;
  }
  size_t slot = SIZE_MAX;
  t = next_token(r);
  while (!is_text(&t, "]")) {
    int status = read_interval(r, &t, &slot, out);
    if (status < 0) return status;
    t = next_token(r);
    if (is_text(&t, "]")) break;
    if (!is_text(&t, ",")) return refuse(r, "expected \",\" or \"]\" in the list");
    t = next_token(r);
  }
  return TSR_OK;
}

static int read_backend(reader *r, tsr_allocator_settings *out) {
  (void)out;
  token t = next_token(r);
  if (is_text(&t, "native")) return TSR_OK;
  if (is_text(&t, "cudaMallocAsync") || is_text(&t, "hipMallocAsync"))
    return tsr__fail(r->error, TSR_ERROR_UNSUPPORTED, TSR_OFFSET_NONE,
                     "backend:%s keeps no blocks of its own, so there is nothing to model", t.text);
  return refuse(r, "expected native or cudaMallocAsync");
}

/* A value that changes nothing here: any word. */
static int read_other(reader *r, tsr_allocator_settings *out) {
  (void)out;
  token t = next_token(r);
  return t.length && !is_mark(t.text[0]) ? TSR_OK : refuse(r, "expected a value");
}

/* "0.5" of the device, or "40G". What is not a positive number PyTorch ignores with a warning, and so it is
 * here. A reserve is never more than 9/8 of the device. */
static int read_reserve(reader *r, tsr_allocator_settings *out) {
  token t = next_token(r);
  double value;
  if (!t.length || is_mark(t.text[0])) return refuse(r, "expected a fraction such as 0.5, or 40G");
  bool is_gib = t.text[t.length - 1] == 'G' || t.text[t.length - 1] == 'g';
  if (is_gib) t.text[--t.length] = '\0';
  if (!t.length || !tsr__read_real(t.text, &value) || !(value > 0) || value > DBL_MAX)
    return TSR_OK;
  out->expandable_reserve_bytes = 0;
  out->expandable_reserve_fraction = 0;
  if (!is_gib)
    out->expandable_reserve_fraction = value < MOST_RESERVE ? value : MOST_RESERVE;
  else
    out->expandable_reserve_bytes =
        value < (double)MOST_GIB ? (uint64_t)(value * (double)GIB) : MOST_GIB * GIB;
  return TSR_OK;
}

/* "[serving:0.25,loading:40G]": which class a stream is of is recorded nowhere. */
static int read_reserve_classes(reader *r, tsr_allocator_settings *out) {
  tsr_allocator_settings ignored;
  (void)out;
  int status = expect(r, "[");
  if (status < 0) return status;
  for (token t = next_token(r); !is_text(&t, "]"); t = next_token(r)) {
    if (!t.length || is_mark(t.text[0])) return refuse(r, "expected a class, or \"]\"");
    status = expect(r, ":");
    if (status == TSR_OK) status = read_reserve(r, &ignored);
    if (status < 0) return status;
    t = next_token(r);
    if (is_text(&t, "]")) break;
    if (!is_text(&t, ",")) return refuse(r, "expected \",\" or \"]\" in the list");
  }
  return TSR_OK;
}

/* ---- keys ---- */

typedef struct option {
  const char *key;
  read_value *read;
} option;

static const option options[] = {
    {"expandable_segments", read_expandable},
    {"expandable_segments_reserve", read_reserve},
    {"expandable_segments_reserve_by_class", read_reserve_classes},
    {"max_split_size_mb", read_max_split},
    {"max_non_split_rounding_mb", read_max_non_split},
    {"large_segment_size_mb", read_large_segment},
    {"garbage_collection_threshold", read_threshold},
    {"roundup_power2_divisions", read_roundup},
    {"backend", read_backend},
    {"graph_capture_record_stream_reuse", read_other},
    {"per_process_memory_fraction", read_other},
    {"pinned_max_cached_size_mb", read_other},
    {"pinned_max_round_threshold_mb", read_other},
    {"pinned_num_register_threads", read_other},
    {"pinned_reserve_segment_size_mb", read_other},
    {"pinned_use_background_threads", read_other},
    {"pinned_use_cuda_host_register", read_other},
    {"pinned_use_hip_host_register", read_other},
    {"release_lock_on_cudamalloc", read_other},
    {"release_lock_on_hipmalloc", read_other},
    {"throw_on_cudamalloc_oom", read_other},
};

static int read_pair(reader *r, tsr_allocator_settings *out) {
  for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
    if (!is_text(&r->key, options[i].key)) continue;
    int status = expect(r, ":");
    return status < 0 ? status : options[i].read(r, out);
  }
  return tsr__fail(
      r->error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
      "unknown allocator option \"%s\"; known: expandable_segments[_reserve[_by_class]], "
      "max_split_size_mb, "
      "max_non_split_rounding_mb, large_segment_size_mb, "
      "garbage_collection_threshold, roundup_power2_divisions, backend, pinned_*",
      r->key.text);
}

int tsr_allocator_settings_parse(const char *conf, tsr_allocator_settings *out, tsr_error *error) {
  tsr_allocator_settings settings = {.max_split_bytes = 0};
  reader r = {.at = conf ? conf : "", .error = error};
  r.key = next_token(&r);
  while (r.key.length) {
    int status = read_pair(&r, &settings);
    if (status < 0) return status;
    token t = next_token(&r);
    if (!t.length) break;
    if (!is_text(&t, ",")) return refuse(&r, "expected \",\" after its value");
    r.key = next_token(&r);
  }
  *out = settings;
  return TSR_OK;
}

int tsr__settings_check(const tsr_allocator_settings *settings, tsr_error *error) {
  const char *wrong = NULL;
  double threshold = settings->garbage_collection_threshold;
  for (size_t i = 0; i < TSR_ROUNDUP_SLOTS; i++)
    if (settings->roundup_divisions[i] && !is_power_of_two(settings->roundup_divisions[i]))
      wrong = "roundup divisions must be powers of two";
  for (size_t i = 0; i < sizeof settings->reserved / sizeof settings->reserved[0]; i++)
    if (settings->reserved[i]) wrong = "a reserved field of the settings is set";
  if (!(threshold >= 0 && threshold < 1))
    wrong = "the garbage collection threshold must be below 1";
  if (!(settings->expandable_reserve_fraction >= 0) ||
      settings->expandable_reserve_fraction > MOST_RESERVE ||
      settings->expandable_reserve_bytes > MOST_GIB * GIB)
    wrong = "the reserve of expandable segments must be at most 9/8 of the device";
  if (settings->tie_break != TSR_TIE_ADDRESS && settings->tie_break != TSR_TIE_SEGMENT)
    wrong = "invalid tie-break";
  if (settings->large_segment_bytes &&
      (settings->large_segment_bytes <= TSR__SMALL_MAX || settings->large_segment_bytes % MIB ||
       settings->large_segment_bytes > UINT64_C(1) << 50))
    wrong = "large segments must be whole MiB, at least 2";
  if (!wrong) return TSR_OK;
  return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE, "%s", wrong);
}

/* ---- the way out ---- */

/* Text of a fixed room; what does not fit is cut, but all of it does. */
typedef struct writer {
  char *text;
  size_t length;
} writer;

static TSR__PRINTF(2, 3) void put(writer *w, const char *format, ...) {
  size_t room = TSR_ALLOCATOR_SETTINGS_TEXT_BYTES - w->length;
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(w->text + w->length, room, format, arguments);
  va_end(arguments);
  if (length > 0) w->length += (size_t)length < room ? (size_t)length : room - 1;
}

static void put_key(writer *w, const char *key) {
  put(w, "%s%s:", w->length ? "," : "", key);
}

static void put_mib(writer *w, const char *key, uint64_t bytes) {
  if (!bytes) return;
  put_key(w, key);
  put(w, "%" PRIu64, bytes / MIB);
}

/* The fewest decimals, up to fifteen, that read back as the same number or the nearest one between
 * 0 and 1. */
static void put_threshold(writer *w, double value) {
  if (!(value > 0)) return; /* a file may have any number, or none */
  if (value > 1) value = 1;
  double scale = 10;
  int digits = 1;
  while (digits < 15 && (double)(uint64_t)(value * scale + 0.5) / scale != value) {
    scale *= 10;
    digits++;
  }
  uint64_t number = (uint64_t)(value * scale + 0.5), most = (uint64_t)scale - 1;
  put_key(w, "garbage_collection_threshold");
  put(w, "0.%0*" PRIu64, digits, !number ? 1 : number > most ? most : number);
}

/* The fewest decimals, up to nine, that read back as the same number. */
static void put_decimal(writer *w, double value) {
  double scale = 1;
  int digits = 0;
  while (digits < 9 && (double)(uint64_t)(value * scale + 0.5) / scale != value) {
    scale *= 10;
    digits++;
  }
  uint64_t number = (uint64_t)(value * scale + 0.5), whole = number / (uint64_t)scale;
  put(w, "%" PRIu64, whole);
  if (digits) put(w, ".%0*" PRIu64, digits, number - whole * (uint64_t)scale);
}

static void put_reserve(writer *w, const tsr_allocator_settings *settings) {
  uint64_t bytes = settings->expandable_reserve_bytes;
  if (!bytes && !(settings->expandable_reserve_fraction > 0)) return;
  put_key(w, "expandable_segments_reserve");
  put_decimal(w, bytes ? (double)bytes / (double)GIB : settings->expandable_reserve_fraction);
  if (bytes) put(w, "G");
}

/* One number when all slots agree; else a list, in which the slots below the first key and above
 * the last agree with it. */
static void put_roundup(writer *w, const uint32_t *divisions) {
  size_t first = 0, last = TSR_ROUNDUP_SLOTS - 1;
  while (first < last && divisions[first + 1] == divisions[0]) first++;
  if (first == last && !divisions[0]) return;
  put_key(w, "roundup_power2_divisions");
  if (first == last) {
    put(w, "%" PRIu32, divisions[0]);
    return;
  }
  while (divisions[last - 1] == divisions[TSR_ROUNDUP_SLOTS - 1]) last--;
  put(w, "[");
  for (size_t i = first; i < last; i++) put(w, "%u:%" PRIu32 ",", 1u << i, divisions[i]);
  put(w, ">:%" PRIu32 "]", divisions[last]);
}

const char *tsr_allocator_settings_text(const tsr_allocator_settings *settings,
                                        char text[TSR_ALLOCATOR_SETTINGS_TEXT_BYTES]) {
  writer w = {.text = text};
  text[0] = '\0';
  if (settings->expandable_segments) {
    put_key(&w, "expandable_segments");
    put(&w, "True");
  }
  put_reserve(&w, settings);
  put_mib(&w, "max_split_size_mb", settings->max_split_bytes);
  put_mib(&w, "max_non_split_rounding_mb", settings->max_non_split_rounding_bytes);
  put_mib(&w, "large_segment_size_mb", settings->large_segment_bytes);
  put_threshold(&w, settings->garbage_collection_threshold);
  put_roundup(&w, settings->roundup_divisions);
  return text;
}
