/* match.c - the same stacks in two snapshots.
 *
 * Ids are a snapshot's own, so texts have to be compared, but only once for each string, then once
 * for each frame and once for each stack: every kind of thing gets classes, numbers that mean the
 * same on both sides, made of the classes of its parts.
 *
 *   string   its bytes                              ──► class
 *   frame    class of name, class of file, line     ──► class
 *   stack    class of each frame, innermost first   ──► class
 *
 * A class is the number of a row in a table of distinct things; `index` finds the row by hash, and
 * rows of one hash are chained. Rows refer to the thing where it lies, on either side.
 *
 * Whoever wants stacks to match although lines moved gives frames other classes than these; the
 * rest stays as it is.
 */
#include "answers/match.h"

#include <string.h>

#include "base/hash.h"
#include "base/map.h"
#include "base/memory.h"
#include "base/vector.h"

/* A distinct thing: `words` are its parts' classes, or the bytes of a string. */
typedef struct row {
  const void *data;
  size_t size_bytes;
  uint32_t next; /* row of the same hash, or TSR_NONE */
} row;

typedef struct table {
  TSR__VECTOR(row) rows;
  tsr__map index; /* hash -> first row */
} table;

/* One side, with the classes found so far. */
typedef struct side {
  const tsr_snapshot *snapshot;
  uint32_t *strings, *frames, *stacks;
  uint32_t *words; /* of all stacks, one after the other */
  uint64_t *frame_words;
} side;

#define FRAME_WORDS 3

static void table_release(table *t) {
  TSR__VECTOR_FREE(&t->rows);
  tsr__map_release(&t->index);
}

/* The class of what `size_bytes` bytes at `data` say; they must stay where they are. False when out
 * of memory. */
static bool classify(table *t, const void *data, size_t size_bytes, uint32_t *class) {
  uint64_t hash = tsr__hash_bytes(data, size_bytes, tsr__hash_seed(t));
  bool is_new;
  uint64_t *first = tsr__map_put(&t->index, hash, TSR_NONE, &is_new);
  if (!first) return false;
  for (uint32_t i = (uint32_t)*first; i != TSR_NONE; i = t->rows.items[i].next)
    if (t->rows.items[i].size_bytes == size_bytes &&
        (!size_bytes || memcmp(t->rows.items[i].data, data, size_bytes) == 0)) {
      *class = i;
      return true;
    }
  row added = {data, size_bytes, (uint32_t)*first};
  *class = (uint32_t)t->rows.count;
  *first = *class;
  return TSR__VECTOR_PUSH(&t->rows, added);
}

static bool classify_strings(table *t, side *s) {
  uint32_t count = tsr_snapshot_string_count(s->snapshot);
  s->strings = TSR__NEW_ARRAY(uint32_t, count);
  if (!s->strings) return false;
  for (uint32_t i = 0; i < count; i++) {
    tsr_text text = tsr_snapshot_string(s->snapshot, i);
    if (!classify(t, text.data, text.size_bytes, &s->strings[i])) return false;
  }
  return true;
}

static bool classify_frames(table *t, side *s) {
  uint32_t count = tsr_snapshot_frame_count(s->snapshot);
  s->frames = TSR__NEW_ARRAY(uint32_t, count);
  s->frame_words = tsr__calloc(count, FRAME_WORDS * sizeof *s->frame_words);
  if (!s->frames || !s->frame_words) return false;
  uint32_t strings = tsr_snapshot_string_count(s->snapshot);
  for (uint32_t i = 0; i < count; i++) {
    tsr_frame frame = tsr_snapshot_frame(s->snapshot, i);
    uint64_t *words = &s->frame_words[(size_t)i * FRAME_WORDS];
    words[0] = frame.name < strings ? s->strings[frame.name] : TSR_NONE;
    words[1] = frame.file < strings ? s->strings[frame.file] : TSR_NONE;
    words[2] = frame.line;
    if (!classify(t, words, FRAME_WORDS * sizeof *words, &s->frames[i])) return false;
  }
  return true;
}

static bool classify_stacks(table *t, side *s) {
  uint32_t count = tsr_snapshot_stack_count(s->snapshot);
  size_t total = 0, at = 0;
  for (uint32_t i = 0; i < count; i++) total += tsr_snapshot_stack(s->snapshot, i).depth;
  s->stacks = TSR__NEW_ARRAY(uint32_t, count);
  s->words = TSR__NEW_ARRAY(uint32_t, total);
  if (!s->stacks || !s->words) return false;
  for (uint32_t i = 0; i < count; i++) {
    tsr_stack stack = tsr_snapshot_stack(s->snapshot, i);
    for (uint32_t k = 0; k < stack.depth; k++) s->words[at + k] = s->frames[stack.frames[k]];
    if (!classify(t, &s->words[at], stack.depth * sizeof *s->words, &s->stacks[i])) return false;
    at += stack.depth;
  }
  return true;
}

static bool classify_both(bool (*step)(table *, side *), side sides[2], uint32_t *class_count) {
  table t = {0};
  bool ok = step(&t, &sides[0]) && step(&t, &sides[1]);
  *class_count = (uint32_t)t.rows.count;
  table_release(&t);
  return ok;
}

static void side_release(side *s) {
  tsr__free(s->strings);
  tsr__free(s->frames);
  tsr__free(s->stacks);
  tsr__free(s->words);
  tsr__free(s->frame_words);
}

int tsr__match_compute(const tsr_snapshot *old_snapshot, const tsr_snapshot *new_snapshot,
                       tsr__match *out, tsr_error *error) {
  side sides[2] = {{.snapshot = old_snapshot}, {.snapshot = new_snapshot}};
  uint32_t count = 0;
  bool ok = classify_both(classify_strings, sides, &count) &&
            classify_both(classify_frames, sides, &count) &&
            classify_both(classify_stacks, sides, &count);
  if (ok) {
    *out = (tsr__match){sides[0].stacks, sides[1].stacks, count};
    sides[0].stacks = sides[1].stacks = NULL;
  }
  side_release(&sides[0]);
  side_release(&sides[1]);
  return ok ? 0 : tsr__fail_memory(error);
}

void tsr__match_release(tsr__match *match) {
  tsr__free(match->old_class);
  tsr__free(match->new_class);
  *match = (tsr__match){0};
}
