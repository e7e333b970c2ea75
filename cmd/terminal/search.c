/* search.c - see search.h. */
#include "search.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS_MOST = SEARCH_BYTES / 2, PLACE_BYTES = 24 };

const char *terminal_no_stack(const tsr_view_device *device, uint32_t row) {
  return device->has_history && !device->born[row] ? "(before the recording)"
                                                   : "(no stack recorded)";
}

static char lower(char byte) {
  return byte >= 'A' && byte <= 'Z' ? (char)(byte - 'A' + 'a') : byte;
}

/* Whether `text` contains a word, which is in lower case and not empty. */
static bool contains(tsr_text text, const char *word, size_t length) {
  for (size_t i = 0; i + length <= text.size_bytes; i++) {
    size_t k = 0;
    while (k < length && lower(text.data[i + k]) == word[k]) k++;
    if (k == length) return true;
  }
  return false;
}

static bool ends_with(tsr_text text, const char *word, size_t length) {
  if (text.size_bytes < length) return false;
  return contains((tsr_text){text.data + text.size_bytes - length, length}, word, length);
}

/* ---- A size: ">16MiB" ---- */

typedef struct size_test {
  bool is_above, is_inclusive;
  double bytes;
} size_test;

/* KiB and K are binary, kB is decimal; a number alone is one of bytes. */
static bool read_size(const char *word, size_test *out) {
  static const char units[] = "bkmgt";
  if (*word != '<' && *word != '>') return false;
  out->is_above = *word++ == '>';
  out->is_inclusive = *word == '=';
  word += out->is_inclusive;
  char *end;
  if (*word < '0' || *word > '9' || word[strspn(word, "0123456789.bkmgti")]) return false;
  out->bytes = strtod(word, &end);
  const char *unit = *end ? strchr(units, *end) : units;
  if (!unit) return false;
  bool is_byte = unit == units;
  const char *rest = *end ? end + 1 : end;
  if (is_byte && *rest) return false;
  if (!is_byte && *rest && strcmp(rest, "b") != 0 && strcmp(rest, "i") != 0 &&
      strcmp(rest, "ib") != 0)
    return false;
  double thousand = strcmp(rest, "b") == 0 ? 1000 : 1024;
  for (const char *u = units; u < unit; u++) out->bytes *= thousand;
  return true;
}

static bool fits_size(const size_test *test, uint64_t bytes) {
  double size = (double)bytes;
  if (test->is_inclusive && size == test->bytes) return true;
  return test->is_above ? size > test->bytes : size < test->bytes;
}

/* ---- A word ---- */

typedef struct finder {
  const tsr_snapshot *snapshot;
  const tsr_view_device *device;
  uint8_t *strings, *frames, *stacks; /* by id, whether a word is in them */
  uint8_t *has_word, *has_all;        /* by row */
} finder;

/* "model.py:253", or the end of that. */
static bool is_place(const char *word, size_t length) {
  size_t digits = 0;
  while (digits < length && word[length - 1 - digits] >= '0' && word[length - 1 - digits] <= '9')
    digits++;
  return digits && length > digits + 1 && word[length - 1 - digits] == ':';
}

static bool is_at_place(const finder *f, tsr_frame frame, const char *word, size_t length) {
  char line[PLACE_BYTES];
  size_t colon = length;
  while (word[colon - 1] != ':') colon--;
  int digits = snprintf(line, sizeof line, "%" PRIu64, frame.line);
  return digits > 0 && (size_t)digits == length - colon &&
         !memcmp(line, word + colon, length - colon) &&
         ends_with(tsr_snapshot_string(f->snapshot, frame.file), word, colon - 1);
}

static void mark_frames(const finder *f, const char *word, size_t length) {
  uint32_t strings = tsr_snapshot_string_count(f->snapshot);
  bool has_line = is_place(word, length);
  for (uint32_t i = 0; i < strings; i++)
    f->strings[i] = contains(tsr_snapshot_string(f->snapshot, i), word, length);
  for (uint32_t i = 0; i < tsr_snapshot_frame_count(f->snapshot); i++) {
    tsr_frame frame = tsr_snapshot_frame(f->snapshot, i);
    f->frames[i] = (frame.name < strings && f->strings[frame.name]) ||
                   (frame.file < strings && f->strings[frame.file]) ||
                   (has_line && is_at_place(f, frame, word, length));
  }
}

static void mark_stacks(const finder *f) {
  for (uint32_t i = 0; i < tsr_snapshot_stack_count(f->snapshot); i++) {
    tsr_stack stack = tsr_snapshot_stack(f->snapshot, i);
    f->stacks[i] = false;
    for (uint32_t k = 0; k < stack.depth && !f->stacks[i]; k++)
      f->stacks[i] = f->frames[stack.frames[k]];
  }
}

/* Rows that are born while a range with such a name is open. */
static void mark_ranges(const finder *f, const char *word, size_t length) {
  const tsr_view_device *d = f->device;
  for (size_t i = 0; i < d->range_count; i++) {
    const tsr_view_range *range = &d->ranges[i];
    if (range->kind != TSR_VIEW_ANNOTATION && range->kind != TSR_VIEW_METADATA) continue;
    if (!contains(tsr_snapshot_string(f->snapshot, range->name), word, length)) continue;
    size_t low = 0, high = d->allocation_count;
    while (low < high) {
      size_t middle = low + (high - low) / 2;
      if (d->born[middle] < range->born)
        low = middle + 1;
      else
        high = middle;
    }
    for (; low < d->allocation_count && d->born[low] < range->died; low++) f->has_word[low] = true;
  }
}

static bool has_in_stack(const finder *f, size_t row, const char *word, size_t length) {
  const char *name = terminal_no_stack(f->device, (uint32_t)row);
  if (f->device->stack[row] != TSR_NONE) return f->stacks[f->device->stack[row]];
  return contains((tsr_text){name, strlen(name)}, word, length);
}

static void mark_word(const finder *f, const char *word) {
  const tsr_view_device *d = f->device;
  size_t length = strlen(word);
  size_test size;
  if (read_size(word, &size)) {
    for (size_t row = 0; row < d->allocation_count; row++)
      f->has_word[row] = fits_size(&size, d->requested_bytes[row]);
    return;
  }
  mark_frames(f, word, length);
  mark_stacks(f);
  for (size_t row = 0; row < d->allocation_count; row++)
    f->has_word[row] =
        has_in_stack(f, row, word, length) ||
        (d->said && d->said[row] != TSR_NONE && contains(d->texts[d->said[row]], word, length));
  mark_ranges(f, word, length);
}

/* ---- Words, all of which must be found ---- */

/* The group of the first grouping with this name; its count if absent. */
static size_t group_named(const tsr_view_device *d, const char *name) {
  const tsr_view_grouping *by = d->groupings;
  size_t g = 0;
  if (!d->grouping_count) return TSR_VIEW_GROUPS_MAX;
  while (g < by->count && !(by->names[g].size_bytes == strlen(name) &&
                            contains(by->names[g], name, by->names[g].size_bytes)))
    g++;
  return g;
}

static bool read_address(const char *word, uint64_t *address) {
  char *end;
  if (strncmp(word, "0x", 2) != 0 || !word[2]) return false;
  *address = strtoull(word + 2, &end, 16);
  return !*end;
}

static void add_found(const finder *f, char *const *words, size_t count, uint8_t *found) {
  const tsr_view_device *d = f->device;
  uint64_t address = 0;
  bool has_address = count == 1 && read_address(words[0], &address);
  size_t group = count == 1 ? group_named(d, words[0]) : TSR_VIEW_GROUPS_MAX;
  memset(f->has_all, 1, d->allocation_count);
  for (size_t i = 0; i < count; i++) {
    mark_word(f, words[i]);
    for (size_t row = 0; row < d->allocation_count; row++) f->has_all[row] &= f->has_word[row];
  }
  for (size_t row = 0; row < d->allocation_count; row++)
    if (f->has_all[row] || (has_address && d->address[row] == address) ||
        (d->grouping_count && d->groupings[0].group[row] == group))
      found[row] = true;
}

/* Cut a text into its words, in lower case. */
static size_t split(char *text, char *words[WORDS_MOST]) {
  size_t count = 0;
  while (*(text += strspn(text, " \t"))) {
    assert(count < WORDS_MOST);
    words[count++] = text;
    for (; *text && *text != ' ' && *text != '\t'; text++) *text = lower(*text);
    if (*text) *text++ = '\0';
  }
  return count;
}

/* Returns whether the text, which is cut up, has a word. */
static bool find(const finder *f, char *text, uint8_t *found) {
  bool has_any = false;
  for (char *part = text, *next; part; part = next) {
    char *words[WORDS_MOST];
    next = strchr(part, '|');
    if (next) *next++ = '\0';
    size_t count = split(part, words);
    if (count) add_found(f, words, count, found);
    has_any = has_any || count;
  }
  return has_any;
}

int terminal_search(const tsr_snapshot *snapshot, const tsr_view_device *device, const char *text,
                    uint8_t **found) {
  char copy[SEARCH_BYTES];
  size_t rows = device->allocation_count + 1;
  finder f = {.snapshot = snapshot, .device = device};
  f.strings = calloc((size_t)tsr_snapshot_string_count(snapshot) + 1, 1);
  f.frames = calloc((size_t)tsr_snapshot_frame_count(snapshot) + 1, 1);
  f.stacks = calloc((size_t)tsr_snapshot_stack_count(snapshot) + 1, 1);
  f.has_word = calloc(rows, 1);
  f.has_all = calloc(rows, 1);
  uint8_t *made = calloc(rows, 1);
  bool ok = f.strings && f.frames && f.stacks && f.has_word && f.has_all && made;
  (void)snprintf(copy, sizeof copy, "%s", text);
  bool has_words = ok && find(&f, copy, made);
  free(f.strings);
  free(f.frames);
  free(f.stacks);
  free(f.has_word);
  free(f.has_all);
  *found = has_words ? made : NULL;
  if (!has_words) free(made);
  return ok ? 0 : TSR_ERROR_MEMORY;
}
