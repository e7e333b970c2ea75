/* names.c - see names.h. */
#include "fleet/names.h"

#include <assert.h>
#include <string.h>

#include "base/memory.h"
#include "base/sort.h"
#include "base/vector.h"

enum { MOST_DIGITS = 9, TITAN_DIGITS = 6, DAY_DIGITS = 8, MINUTE_DIGITS = 4, MOST_FOLDERS = 3 };

static bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

static bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static char lower(char c) {
  return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

/* The number at `at`, of which `*digits` are used; -1 without digits, or with more than a rank or a step has. */
static int64_t number_at(const char *at, const char *end, size_t *digits) {
  int64_t number = 0;
  size_t n = 0;
  while (at + n < end && is_digit(at[n])) {
    if (n < MOST_DIGITS + 6) number = number * 10 + (at[n] - '0');
    n++;
  }
  if (digits) *digits = n;
  return n && n <= MOST_DIGITS + 6 && number < UINT32_MAX ? number : -1;
}

/* A piece of a path: the name of the file or of a folder. */
typedef struct piece {
  const char *begin, *end;
} piece;

static bool matches(const char *at, const char *end, const char *word) {
  for (; *word; at++, word++)
    if (at == end || lower(*at) != *word) return false;
  return true;
}

/* The number after `word`, which begins a word: "rank3", "rank-3", "rank_3", "oom_rank3". The last one that is there; -1 without. */
static int64_t number_after(piece p, const char *word) {
  size_t length = strlen(word);
  int64_t found = -1;
  for (const char *at = p.begin; at + length < p.end; at++) {
    if (!matches(at, p.end, word) || (at > p.begin && is_letter(at[-1]))) continue;
    const char *digits = at + length;
    if (*digits == '-' || *digits == '_' || *digits == '=' || *digits == '.') digits++;
    int64_t number = number_at(digits, p.end, NULL);
    if (number >= 0) found = number;
  }
  return found;
}

static bool has_word(piece p, const char *word) {
  size_t length = strlen(word);
  for (const char *at = p.begin; at + length <= p.end; at++) {
    bool is_begin = at == p.begin || !is_letter(at[-1]);
    bool is_end = at + length == p.end || !is_letter(at[length]);
    if (is_begin && is_end && matches(at, p.end, word)) return true;
  }
  return false;
}

static const char *const step_words[] = {"step", "iteration", "iter", NULL};
/* Of a number that is no rank. */
static const char *const other_words[] = {"step", "iteration", "iter",  "epoch", "time",
                                          "pid",  "global",    "batch", "node",  "job",
                                          "seed", "v",         NULL};

static int64_t step_in(piece p) {
  for (size_t i = 0; step_words[i]; i++) {
    int64_t step = number_after(p, step_words[i]);
    if (step >= 0) return step;
  }
  return -1;
}

/* verl's folders are times, 20261126-1812, and slime's names have time1764180000.12: digits in order. */
static int64_t stamp_in(piece p) {
  size_t first, second;
  int64_t time = number_after(p, "time");
  if (time >= 0) return time;
  int64_t day = number_at(p.begin, p.end, &first);
  if (first != DAY_DIGITS || p.begin + first == p.end || p.begin[first] != '-') return -1;
  int64_t minute = number_at(p.begin + first + 1, p.end, &second);
  return second >= MINUTE_DIGITS && second <= MOST_DIGITS ? day * 1000000 + minute : -1;
}

/* Without ".pickle", ".json.gz" and the like, of which none has a digit first. */
static piece stem_of(piece p) {
  for (const char *at = p.begin + 1; at < p.end; at++)
    if (*at == '.' && at + 1 < p.end && !is_digit(at[1])) return (piece){p.begin, at};
  return p;
}

/* ---- Coordinates ---- */

static const char *const axis_words[] = {"dp", "pp", "tp", "cp", "ep"};

static void read_axes(piece p, tsr__file_name *out) {
  for (size_t i = 0; i < sizeof axis_words / sizeof *axis_words; i++) {
    int64_t at = number_after(p, axis_words[i]);
    if (at < 0 || out->axis_count == TSR_MESH_AXES) continue;
    tsr_mesh_axis *axis = &out->axes[out->axis_count++];
    *axis = (tsr_mesh_axis){.at = (uint32_t)at};
    memcpy(axis->name, axis_words[i], strlen(axis_words[i]) + 1);
  }
}

/* ---- One name ---- */

/* torchtitan: 000017_step_20.pickle */
static bool read_titan(piece stem, tsr__file_name *out) {
  size_t digits;
  int64_t rank = number_at(stem.begin, stem.end, &digits);
  if (digits != TITAN_DIGITS || !matches(stem.begin + digits, stem.end, "_step_")) return false;
  out->rank = rank;
  out->step = number_at(stem.begin + digits + strlen("_step_"), stem.end, NULL);
  out->form = "torchtitan";
  return true;
}

/* Composer: rank17.100.memory_snapshot.pickle, at batch 100 */
static void read_composer(piece stem, tsr__file_name *out) {
  const char *at = stem.begin + strlen("rank");
  size_t digits, more;
  if (!matches(stem.begin, stem.end, "rank") || number_at(at, stem.end, &digits) < 0) return;
  at += digits;
  if (at == stem.end || *at != '.') return;
  int64_t step = number_at(at + 1, stem.end, &more);
  if (step < 0 || at + 1 + more != stem.end) return;
  out->step = step;
  out->form = "Composer";
}

/* The number that ends the name, unless the word before it says that it is something else. */
static void read_last(const char *path, piece stem, tsr__file_name *out) {
  const char *at = stem.end;
  while (at > stem.begin && is_digit(at[-1])) at--;
  if (at == stem.end || stem.end - at > MOST_DIGITS) return;
  const char *word_end = at;
  while (word_end > stem.begin && !is_letter(word_end[-1]) && !is_digit(word_end[-1])) word_end--;
  const char *word = word_end;
  while (word > stem.begin && is_letter(word[-1])) word--;
  for (size_t i = 0; other_words[i]; i++)
    if ((size_t)(word_end - word) == strlen(other_words[i]) &&
        matches(word, word_end, other_words[i]))
      return;
  out->last_number = number_at(at, stem.end, NULL);
  out->base_bytes = (size_t)(at - path);
}

void tsr__file_name_read(const char *path, tsr__file_name *out) {
  *out = (tsr__file_name){
      .path = path, .rank = -1, .step = -1, .world_size = -1, .stamp = -1, .last_number = -1};
  const char *end = path + strlen(path);
  while (end > path && end[-1] == '/') end--;
  for (int i = 0; i < MOST_FOLDERS && end > path; i++) {
    piece p = {end, end};
    while (p.begin > path && p.begin[-1] != '/') p.begin--;
    piece stem = i ? p : stem_of(p);
    if (i == 0) out->says_oom = has_word(stem, "oom"); /* a folder may be a test of it */
    if (i == 0 && !read_titan(stem, out)) read_axes(stem, out);
    if (out->rank < 0) out->rank = number_after(stem, "rank");
    if (out->step < 0) out->step = step_in(stem);
    if (out->stamp < 0) out->stamp = stamp_in(stem);
    if (i == 0) read_composer(stem, out);
    if (i == 0) read_last(path, stem, out);
    end = p.begin > path ? p.begin - 1 : path;
  }
}

/* ---- All together ---- */

/* Coordinates in order from the outermost axis: pipeline stages are far apart, tensor parallel ranks near each other. */
static int64_t axis_size(const tsr__file_name *names, size_t count, size_t axis) {
  int64_t size = 1;
  for (size_t i = 0; i < count; i++)
    for (size_t k = 0; k < names[i].axis_count; k++)
      if (!strcmp(names[i].axes[k].name, axis_words[axis]) && names[i].axes[k].at + 1 > size)
        size = (int64_t)names[i].axes[k].at + 1;
  return size;
}

static void rank_by_axes(tsr__file_name *names, size_t count) {
  static const size_t order[] = {1, 0, 3, 4, 2}; /* pp, dp, cp, ep, tp */
  enum { ORDER = sizeof order / sizeof *order };
  int64_t sizes[ORDER];
  for (size_t k = 0; k < ORDER; k++) sizes[k] = axis_size(names, count, order[k]);
  for (size_t i = 0; i < count; i++) {
    if (names[i].rank >= 0 || !names[i].axis_count) continue;
    int64_t rank = 0;
    for (size_t k = 0; k < ORDER; k++) {
      int64_t at = 0;
      for (size_t a = 0; a < names[i].axis_count; a++)
        if (!strcmp(names[i].axes[a].name, axis_words[order[k]])) at = names[i].axes[a].at;
      rank = rank * sizes[k] + at;
      if (rank >= UINT32_MAX) rank = UINT32_MAX - 1;
    }
    names[i].rank = rank;
    names[i].form = "SGLang";
  }
  for (size_t i = 0; i < count; i++) /* what is the size of each axis */
    for (size_t a = 0; a < names[i].axis_count; a++)
      for (size_t k = 0; k < ORDER; k++)
        if (!strcmp(names[i].axes[a].name, axis_words[order[k]]))
          names[i].axes[a].size = (uint32_t)sizes[k];
}

static int compare_numbers(const void *a, const void *b) {
  const int64_t *x = a, *y = b;
  return (*x > *y) - (*x < *y);
}

/* Whether numbers look like those of ranks: each once, from near 0 on, and at least half of them there. */
static bool are_ranks(int64_t *numbers, size_t count) {
  tsr__sort(numbers, count, sizeof *numbers, compare_numbers);
  for (size_t i = 1; i < count; i++)
    if (numbers[i] == numbers[i - 1]) return false;
  return numbers[count - 1] < 2 * (int64_t)count;
}

static int settle_last(tsr__file_name *names, size_t count, size_t open, int64_t *numbers,
                       tsr_error *error) {
  const tsr__file_name *first = NULL;
  size_t used = 0;
  for (size_t i = 0; i < count; i++) {
    tsr__file_name *name = &names[i];
    if (name->rank >= 0 || name->last_number < 0) continue;
    if (!first) first = name;
    bool is_alike = name->base_bytes == first->base_bytes &&
                    !memcmp(name->path, first->path, first->base_bytes);
    if (is_alike) numbers[used++] = name->last_number;
  }
  if (used != open || used < 2)
    return 0; /* names of several forms: files without a rank are reported */
  if (!are_ranks(numbers, used))
    return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                     "the last numbers of names such as '%.200s' may be ranks, steps or processes: "
                     "say which with --pattern, as in --pattern '_(?<rank>\\d+)\\.'",
                     first->path);
  for (size_t i = 0; i < count; i++) {
    if (names[i].rank >= 0 || names[i].last_number < 0) continue;
    names[i].rank = names[i].last_number;
    names[i].form = "Megatron-LM";
  }
  return 0;
}

int tsr__file_names_settle(tsr__file_name *names, size_t count, tsr_error *error) {
  size_t open = 0;
  rank_by_axes(names, count);
  for (size_t i = 0; i < count; i++) open += names[i].rank < 0;
  if (!open) return 0;
  int64_t *numbers = TSR__NEW_ARRAY(int64_t, open);
  if (!numbers) return tsr__fail_memory(error);
  int status = settle_last(names, count, open, numbers, error);
  tsr__free(numbers);
  return status;
}
