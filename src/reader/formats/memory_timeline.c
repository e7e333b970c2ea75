/* memory_timeline.c - PyTorch's own timeline of categories becomes a flat list. See kineto.h.
 *
 *   [[-1, 1, 4096, 0], [t, 2, 512, 4], [t, 3, -512, 4], [t, 3, 512, 6], [t, 4, -512, 6], ...]
 *     time, action,      bytes, category:  1 was there before, 2 begins, 3 changes its category (two rows: out of the
 *                                          old one, into the new one), 4 ends
 *   [[t, t, ...], [[0, a, b, c, d, e, f, g, h], ...]]
 *     times, and at each the bytes of every category
 *
 * Rows do not say which memory they are about. An end is taken for that of the newest live memory of its size and
 * category, or else of its size; in the second form, where only sums are there, what a category loses is taken off
 * what it got last. The sums of categories are right either way; how long one piece lived may not be.
 *
 * Where this comes from: torch/profiler/_memory_profiler.py. */
#include <string.h>

#include "formats/kineto.h"

enum {
  CATEGORIES = 8,
  ROW_NUMBERS = 4,       /* of a row of the first form */
  CHECK_BYTES = 1 << 20, /* of input, between two looks at the memory held */
  UNIT = 512
};

/* In the file's order; what is behind the colon is PyTorch's word, where it is not ours. */
static const char *const category_texts[CATEGORIES] = {"parameter",
                                                       "optimizer_state",
                                                       "input",
                                                       "temporary",
                                                       "activation",
                                                       "gradient",
                                                       "temporary: autograd_detail",
                                                       NULL};

/* A piece of memory that is live, in a list of its size and category, or of its category. */
typedef struct piece {
  uint64_t address, bytes;
  size_t older; /* index + 1; 0 for none */
} piece;

typedef struct timeline {
  tsr__json j;
  tsr__flat flat;
  TSR__VECTOR(piece) pieces;
  tsr__map newest[CATEGORIES];  /* bytes -> index + 1 of the newest live piece */
  size_t newest_of[CATEGORIES]; /* of the second form: of the category */
  uint64_t now_bytes[CATEGORIES];
  uint32_t says[CATEGORIES];
  TSR__VECTOR(int64_t) first; /* the first inner list */
  size_t row_count;           /* of the second form: read so far */
  uint64_t next_check;
} timeline;

static int check_memory(timeline *t) {
  uint64_t offset = tsr__json_offset(&t->j, t->j.next);
  if (offset < t->next_check) return 0;
  t->next_check = offset + CHECK_BYTES;
  uint64_t held = tsr__flat_bytes(&t->flat) + t->pieces.capacity * sizeof *t->pieces.items +
                  t->first.capacity * sizeof *t->first.items;
  return tsr__check_memory(t->j.assembler, held, t->j.source, offset, t->j.error);
}

/* ---- pieces ---- */

static bool add_row(timeline *t, int64_t time_ns, tsr__flat_kind kind, const piece *of,
                    unsigned category) {
  return tsr__flat_add(&t->flat, &(tsr__flat_row){.time_ns = time_ns,
                                                  .address = of->address,
                                                  .bytes = of->bytes,
                                                  .allocated_bytes = TSR__FLAT_UNKNOWN,
                                                  .reserved_bytes = TSR__FLAT_UNKNOWN,
                                                  .stack = TSR_NONE,
                                                  .says = t->says[category],
                                                  .kind = (uint8_t)kind});
}

static bool begin_piece(timeline *t, int64_t time_ns, uint64_t bytes, unsigned category,
                        size_t older) {
  piece one = {UNIT * ((uint64_t)t->pieces.count + 1), bytes, older};
  return TSR__VECTOR_PUSH(&t->pieces, one) && add_row(t, time_ns, TSR__FLAT_ALLOC, &one, category);
}

static bool begin_sized(timeline *t, int64_t time_ns, uint64_t bytes, unsigned category) {
  uint64_t *newest = tsr__map_put(&t->newest[category], bytes, 0, NULL);
  if (!newest || !begin_piece(t, time_ns, bytes, category, (size_t)*newest)) return false;
  *newest = t->pieces.count;
  return true;
}

/* The end of something of this size. One that never began was there before. */
static bool end_sized(timeline *t, int64_t time_ns, uint64_t bytes, unsigned category) {
  uint64_t *newest = tsr__map_find(&t->newest[category], bytes);
  for (unsigned i = 0; i < CATEGORIES && !(newest && *newest); i++)
    newest = tsr__map_find(&t->newest[i], bytes);
  if (newest && *newest) {
    piece ended = t->pieces.items[*newest - 1];
    *newest = ended.older;
    return add_row(t, time_ns, TSR__FLAT_FREE, &ended, category);
  }
  piece before = {UNIT * ((uint64_t)t->pieces.count + 1), bytes, 0};
  return TSR__VECTOR_PUSH(&t->pieces, before) &&
         add_row(t, time_ns, TSR__FLAT_FREE, &before, category);
}

/* ---- the first form ---- */

/* A row of four numbers. One that makes no sense is counted and left out. */
static int take_row(timeline *t, const int64_t *row, size_t count) {
  bool is_row = count == ROW_NUMBERS && row[1] >= 1 && row[1] <= 4 && row[3] >= 0 &&
                row[3] < CATEGORIES && row[2] != INT64_MIN;
  if (!is_row) {
    tsr__builder_warn(t->flat.builder, TSR__WARN_EVENTS_MALFORMED);
    return 0;
  }
  uint64_t bytes = row[2] < 0 ? (uint64_t)-row[2] : (uint64_t)row[2];
  bool ends = row[2] < 0 || row[1] == 4, ok = true;
  if (bytes)
    ok = ends ? end_sized(t, row[0], bytes, (unsigned)row[3])
              : begin_sized(t, row[0], bytes, (unsigned)row[3]);
  return ok ? 0 : tsr__fail_memory(t->j.error);
}

/* What was there before has the time -1: it is there from the first moment on. */
static void place_before(timeline *t) {
  int64_t first_ns = INT64_MAX;
  for (size_t i = 0; i < t->flat.rows.count; i++)
    if (t->flat.rows.items[i].time_ns >= 0 && t->flat.rows.items[i].time_ns < first_ns)
      first_ns = t->flat.rows.items[i].time_ns;
  if (first_ns == INT64_MAX) first_ns = 0;
  for (size_t i = 0; i < t->flat.rows.count; i++)
    if (t->flat.rows.items[i].time_ns < 0) t->flat.rows.items[i].time_ns = first_ns;
}

/* ---- the second form ---- */

static bool shrink(timeline *t, int64_t time_ns, uint64_t bytes, unsigned category) {
  while (bytes) {
    size_t newest = t->newest_of[category];
    if (!newest) return true; /* cannot be: the category has as much as was added */
    piece last = t->pieces.items[newest - 1];
    t->newest_of[category] = last.older;
    if (!add_row(t, time_ns, TSR__FLAT_FREE, &last, category)) return false;
    if (last.bytes <= bytes) {
      bytes -= last.bytes;
      continue;
    }
    if (!begin_piece(t, time_ns, last.bytes - bytes, category, last.older)) return false;
    t->newest_of[category] = t->pieces.count;
    bytes = 0;
  }
  return true;
}

static bool grow(timeline *t, int64_t time_ns, uint64_t bytes, unsigned category) {
  if (!begin_piece(t, time_ns, bytes, category, t->newest_of[category])) return false;
  t->newest_of[category] = t->pieces.count;
  return true;
}

/* The sums at one time; the first of them is of nothing. What categories lose comes first, so that nothing is counted
 * twice while it moves from one to another. */
static int take_sums(timeline *t, const int64_t *sums, size_t count) {
  size_t index = t->row_count++;
  if (index >= t->first.count || count != CATEGORIES + 1) {
    tsr__builder_warn(t->flat.builder, TSR__WARN_EVENTS_MALFORMED);
    return 0;
  }
  int64_t time_us = t->first.items[index];
  if (time_us > INT64_MAX / 1000 || time_us < 0) {
    tsr__builder_warn(t->flat.builder, TSR__WARN_VALUES_UNREADABLE);
    return 0;
  }
  bool ok = true;
  for (int pass = 0; pass < 2; pass++)
    for (unsigned i = 0; ok && i < CATEGORIES; i++) {
      if (pass == 0 && sums[i + 1] < 0)
        tsr__builder_warn(t->flat.builder, TSR__WARN_VALUES_UNREADABLE);
      uint64_t sum = sums[i + 1] > 0 ? (uint64_t)sums[i + 1] : 0, now = t->now_bytes[i];
      if (sum == now || (pass == 0) != (sum < now)) continue;
      ok = sum < now ? shrink(t, time_us * 1000, now - sum, i)
                     : grow(t, time_us * 1000, sum - now, i);
      t->now_bytes[i] = sum;
    }
  return ok ? 0 : tsr__fail_memory(t->j.error);
}

/* ---- the text ---- */

/* A short list of numbers, which is in the window: at most `most` are kept, `*count` is how many there were. */
static int read_numbers(timeline *t, int64_t *out, size_t most, size_t *count) {
  size_t size, seen = 0;
  bool is_there = true;
  int status = tsr__scan_value(&t->j, &size);
  if (status) return status;
  tsr__scan s = tsr__scan_of(&t->j, size);
  *count = 0;
  status = tsr__scan_open(&s, '[');
  while (!status) {
    tsr__raw raw;
    int64_t number = 0;
    status = tsr__scan_item(&s, &seen, &is_there);
    if (status || !is_there) break;
    status = tsr__scan_raw(&s, &raw);
    if (!status && !tsr__raw_signed(&raw, &number))
      tsr__builder_warn(t->flat.builder, TSR__WARN_VALUES_UNREADABLE);
    if (*count < most) out[*count] = number;
    ++*count;
  }
  t->j.next += size;
  return status ? status : check_memory(t);
}

/* Move to the next member of a list, of which there were `*count`; `*is_there` is false at its end. */
static int next_member(timeline *t, size_t *count, bool *is_there) {
  unsigned char c;
  int status = tsr__scan_peek(&t->j, &c);
  if (status) return status;
  *is_there = c != ']';
  if (*is_there && *count) {
    if (c != ',') return tsr__json_damaged(&t->j, t->j.next, "expected ',' or ']'");
    t->j.next++;
    status = tsr__scan_peek(&t->j, &c);
    if (!status && (c == ',' || c == ']'))
      status = tsr__json_damaged(&t->j, t->j.next, "expected a value");
  }
  if (!*is_there) t->j.next++;
  ++*count;
  return status;
}

static int open_list(timeline *t) {
  unsigned char c;
  int status = tsr__scan_peek(&t->j, &c);
  if (status) return status;
  if (c != '[') return tsr__json_damaged(&t->j, t->j.next, "expected a list");
  t->j.next++;
  return 0;
}

/* The first inner list: a row, or the times of all. */
static int read_first(timeline *t) {
  size_t count = 0;
  bool is_there;
  int status = open_list(t);
  while (!status && !(status = next_member(t, &count, &is_there)) && is_there) {
    size_t size;
    tsr__raw raw;
    int64_t number = 0;
    status = tsr__scan_value(&t->j, &size);
    if (status) return status;
    tsr__scan s = tsr__scan_of(&t->j, size);
    status = tsr__scan_raw(&s, &raw);
    if (!status && !tsr__raw_signed(&raw, &number))
      tsr__builder_warn(t->flat.builder, TSR__WARN_VALUES_UNREADABLE);
    if (!status && !TSR__VECTOR_PUSH(&t->first, number)) status = tsr__fail_memory(t->j.error);
    t->j.next += size;
    if (!status) status = check_memory(t);
  }
  return status;
}

typedef int take_fn(timeline *t, const int64_t *numbers, size_t count);

/* Lists of numbers, the cursor being behind the bracket of the list of them, of which there were `count`. */
static int read_lists(timeline *t, size_t count, take_fn *take) {
  int64_t numbers[CATEGORIES + 1];
  bool is_there;
  int status;
  while (!(status = next_member(t, &count, &is_there)) && is_there) {
    size_t found;
    status = read_numbers(t, numbers, CATEGORIES + 1, &found);
    if (!status) status = take(t, numbers, found);
    if (status) break;
  }
  return status;
}

/* With the cursor behind the first inner list: is the second one of lists? Nothing is consumed. */
static int is_second_form(timeline *t, bool *is_it) {
  unsigned brackets = 0;
  *is_it = t->first.count != ROW_NUMBERS;
  if (*is_it) return 0;
  /* Four times look like a row: what follows decides. */
  for (size_t at = 0; brackets < 2; at++) {
    int status = tsr__json_need(&t->j, at + 1);
    if (status) return status < 0 ? status : 0;
    unsigned char c = t->j.next[at];
    if (c == '[')
      brackets++;
    else if (brackets == 1 && c == ']')
      brackets = 2; /* of no lists */
    else if (c != ',' && c != ' ' && c != '\n' && c != '\r' && c != '\t')
      return 0;
  }
  *is_it = true;
  return 0;
}

static int read_all(timeline *t) {
  bool is_second, is_there;
  size_t count = 1;
  int status = open_list(t);
  if (!status) status = read_first(t);
  if (!status) status = is_second_form(t, &is_second);
  if (status) return status;
  if (!is_second) {
    status = take_row(t, t->first.items, t->first.count);
    return status ? status : read_lists(t, 1, take_row);
  }
  status = next_member(t, &count, &is_there);
  if (!status && !is_there) return tsr__json_damaged(&t->j, t->j.next, "expected a list");
  if (!status) status = open_list(t);
  return status ? status : read_lists(t, 0, take_sums);
}

/* ---- the whole ---- */

static bool make_names(timeline *t) {
  for (size_t i = 0; i < CATEGORIES; i++) {
    const char *text = category_texts[i];
    t->says[i] = text ? tsr__builder_text(t->flat.builder, text) : TSR_NONE;
    if (text && t->says[i] == TSR_NONE) return false;
  }
  return true;
}

static void release(timeline *t) {
  tsr__scan_release(&t->j);
  tsr__flat_release(&t->flat);
  TSR__VECTOR_FREE(&t->pieces);
  TSR__VECTOR_FREE(&t->first);
  for (size_t i = 0; i < CATEGORIES; i++) tsr__map_release(&t->newest[i]);
}

int tsr__memory_timeline_read(tsr__input *source, tsr__assembler *assembler,
                              const tsr_open_options *options, uint64_t total_bytes,
                              tsr_error *error) {
  timeline t = {0};
  tsr__builder *b = assembler->builder;
  tsr__scan_init(&t.j, source, assembler, options, total_bytes, error);
  tsr__flat_init(&t.flat, b);
  t.flat.lists_all = true;
  int status = make_names(&t) ? read_all(&t) : tsr__fail_memory(error);
  if (status == 1) {
    tsr__builder_cut(b);
    status = 0;
  }
  if (!status && !t.flat.rows.count)
    status =
        tsr__fail(error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE,
                  "a memory timeline without any memory: export it for the device that was used");
  if (!status) {
    place_before(&t);
    tsr__builder_record(b, "memory timeline");
    tsr__builder_warn(b, TSR__WARN_TIMELINE);
    status = tsr__flat_finish(&t.flat, error);
  }
  if (!status) status = tsr__builder_lay_out(b, error);
  release(&t);
  return status;
}

bool tsr__memory_timeline_looks_like(const unsigned char *data, size_t size) {
  static const char shape[] = "[[";
  size_t i = 0, found = 0;
  for (; i < size && found < 2; i++) {
    if (data[i] == ' ' || data[i] == '\n' || data[i] == '\r' || data[i] == '\t') continue;
    if (data[i] != (unsigned char)shape[found]) return false;
    found++;
  }
  while (i < size && (data[i] == ' ' || data[i] == '\n')) i++;
  return found == 2 && i < size &&
         (data[i] == '-' || data[i] == ']' || (data[i] >= '0' && data[i] <= '9'));
}
