/* match.c - the same stacks in two snapshots.
 *
 * Ids are specific to a snapshot, so texts must be compared, but only once per string, then once
 * per frame and once per stack: strings, frames and stacks get classes, numbers that mean the
 * same on both sides, built from the classes of their parts.
 *
 *   string   its bytes                              ──► class
 *   frame    class of name, class of file, line     ──► class
 *   stack    class of each frame, innermost first   ──► class
 *
 * A class is the number of a row in a table of distinct values; `index` finds the row by hash, and
 * rows with the same hash are chained. Rows point to the value in place, on either side.
 *
 * Unmatched stacks are compared again by less: a stack's outline is the functions and
 * base names of the frames that are not torch's, C++'s or the interpreter's, and the outermost
 * operation; for a stack in a model only frames inside it, so that the script that trains it does not
 * matter. If both sides have the same number of stacks with one outline, these match in the order in
 * which they appear; if the numbers differ, all of them are combined.
 */
#include "questions/diff/match.h"

#include <assert.h>
#include <string.h>

#include "attribution/marks.h"
#include "base/hash.h"
#include "base/map.h"
#include "base/memory.h"
#include "base/vector.h"
#include "tessera/unstable/frames.h"

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

/* The class of the `size_bytes` bytes at `data`, which must stay valid. False if out
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
  assert(is_new == (*first == TSR_NONE));
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
  assert(at == total);
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

/* ---- Outlines ---- */

/* The stacks of one outline that the other side does not have. */
typedef struct outline {
  uint32_t counts[2];
} outline;

typedef struct outliner {
  const tsr_snapshot *snapshots[2];
  uint32_t *classes[2], counts[2]; /* by stack, and how many */
  uint64_t *frames[2];             /* hash of what a frame adds to an outline, 0: nothing */
  uint8_t *marks[2];               /* by frame, see below */
  uint8_t *sides;                  /* by class: bits of the sides that have it */
  uint64_t *keys[2];               /* by stack: its outline, 0: none, or it is matched already */
  tsr__map of_key;                 /* outline -> index in items */
  TSR__VECTOR(outline) items;
} outliner;

static uint64_t hash_text(tsr_text text, uint64_t seed) {
  return tsr__hash_bytes(text.data, text.size_bytes, seed);
}

static bool is_operator(tsr_text name) {
  static const char room[] = "at::_ops::";
  return name.size_bytes > sizeof room && memcmp(name.data, room, sizeof room - 1) == 0;
}

/* `at::_ops::bmm::call(at::Tensor const&, ...)` without what changes between versions. */
static tsr_text operator_of(tsr_text name) {
  size_t end = sizeof "at::_ops::" - 1;
  while (end < name.size_bytes && name.data[end] != ':') end++;
  return (tsr_text){name.data, end};
}

/* What a frame is to an outline. */
enum { IS_OPERATOR = 1, IS_CALL = 2, IS_BACKWARD = 4 };

static uint8_t mark_of(tsr_text name, tsr_text file) {
  if (is_operator(name)) return IS_OPERATOR;
  tsr__mark mark = tsr__mark_of(name, file);
  if (mark == TSR__MARK_CALL) return IS_CALL;
  return mark == TSR__MARK_ENGINE || mark == TSR__MARK_PYTHON_NODE || mark == TSR__MARK_RECOMPUTE ||
                 mark == TSR__MARK_BACKWARD || mark == TSR__MARK_GRAD
             ? IS_BACKWARD
             : 0;
}

static bool outline_frames(outliner *o, int which) {
  uint32_t count = tsr_snapshot_frame_count(o->snapshots[which]);
  o->frames[which] = TSR__NEW_ARRAY(uint64_t, count);
  o->marks[which] = TSR__NEW_ARRAY(uint8_t, count);
  if (!o->frames[which] || !o->marks[which]) return false;
  for (uint32_t i = 0; i < count; i++) {
    tsr_frame frame = tsr_snapshot_frame(o->snapshots[which], i);
    tsr_text name = tsr_snapshot_string(o->snapshots[which], frame.name);
    tsr_text file = tsr_snapshot_string(o->snapshots[which], frame.file);
    tsr_origin origin = tsr_frame_origin(name, file);
    uint64_t seed = tsr__hash_seed(o);
    o->marks[which][i] = mark_of(name, file);
    if (o->marks[which][i] == IS_OPERATOR) {
      o->frames[which][i] = hash_text(operator_of(name), seed) | 1;
    } else if (origin == TSR_ORIGIN_USER || origin == TSR_ORIGIN_LIBRARY) {
      o->frames[which][i] = hash_text(name, hash_text(tsr_base_name(file), seed)) | 1;
    }
  }
  return true;
}

/* The outermost operation inside of all else, then the frames outwards, to the outermost call of a
 * module: who calls the model is another matter. 0: none. */
static uint64_t outline_of(const outliner *o, int which, uint32_t id) {
  tsr_stack stack = tsr_snapshot_stack(o->snapshots[which], id);
  uint64_t key = 0, operation = 0, in_model = 0;
  uint8_t marks = 0;
  for (uint32_t i = 0; i < stack.depth; i++) {
    uint64_t hash = o->frames[which][stack.frames[i]];
    uint8_t mark = o->marks[which][stack.frames[i]];
    marks |= mark;
    if (mark == IS_CALL) in_model = key;
    if (mark == IS_OPERATOR)
      operation = key ? operation : hash;
    else if (hash)
      key = tsr__mix(key, hash) | 1;
  }
  if (in_model) key = in_model;
  return key ? tsr__mix(tsr__mix(key, operation), marks & IS_BACKWARD) | 1 : 0;
}

static bool find_outlines(outliner *o) {
  for (int which = 0; which < 2; which++) {
    o->keys[which] = TSR__NEW_ARRAY(uint64_t, o->counts[which]);
    if (!o->keys[which] || !outline_frames(o, which)) return false;
    for (uint32_t i = 0; i < o->counts[which]; i++) {
      assert(o->sides[o->classes[which][i]] & 1 << which);
      if (o->sides[o->classes[which][i]] == 3) continue;
      uint64_t key = o->keys[which][i] = outline_of(o, which, i);
      bool is_new;
      const uint64_t *at = key ? tsr__map_put(&o->of_key, key, o->items.count, &is_new) : NULL;
      if (key && (!at || (is_new && !TSR__VECTOR_PUSH(&o->items, (outline){{0, 0}})))) return false;
      if (key) o->items.items[*at].counts[which]++;
    }
  }
  return true;
}

/* Old stacks note their class by outline and number, new ones take it. */
static bool join(outliner *o, bool *is_moved) {
  tsr__map class_of = {0}; /* outline and number -> class */
  uint32_t *seen = TSR__NEW_ARRAY(uint32_t, o->items.count);
  bool ok = seen != NULL;
  for (int which = 0; ok && which < 2; which++) {
    for (size_t i = 0; i < o->items.count; i++) seen[i] = 0;
    for (uint32_t i = 0; ok && i < o->counts[which]; i++) {
      if (!o->keys[which][i]) continue;
      uint32_t at = (uint32_t)*tsr__map_find(&o->of_key, o->keys[which][i]);
      const outline *item = &o->items.items[at];
      assert(at < o->items.count && item->counts[which]);
      if (!item->counts[0] || !item->counts[1]) continue;
      uint32_t number = item->counts[0] == item->counts[1] ? seen[at]++ : 0;
      assert(number < item->counts[which]);
      uint64_t place = (uint64_t)at << 32 | number;
      const uint64_t *class = tsr__map_put(&class_of, place, o->classes[which][i], NULL);
      if (!(ok = class != NULL)) break;
      o->classes[which][i] = (uint32_t) * class;
      is_moved[*class] = true;
    }
  }
  tsr__map_release(&class_of);
  tsr__free(seen);
  return ok;
}

static bool match_outlines(const side sides[2], uint32_t class_count, bool *is_moved) {
  outliner o = {.snapshots = {sides[0].snapshot, sides[1].snapshot},
                .classes = {sides[0].stacks, sides[1].stacks},
                .sides = TSR__NEW_ARRAY(uint8_t, class_count)};
  for (int k = 0; k < 2; k++) o.counts[k] = tsr_snapshot_stack_count(o.snapshots[k]);
  for (int k = 0; o.sides && k < 2; k++)
    for (uint32_t i = 0; i < o.counts[k]; i++) o.sides[o.classes[k][i]] |= (uint8_t)(1 << k);
  bool ok = o.sides && find_outlines(&o) && join(&o, is_moved);
  for (int k = 0; k < 2; k++) {
    tsr__free(o.frames[k]);
    tsr__free(o.marks[k]);
    tsr__free(o.keys[k]);
  }
  tsr__free(o.sides);
  tsr__map_release(&o.of_key);
  TSR__VECTOR_FREE(&o.items);
  return ok;
}

int tsr__match_compute(const tsr_snapshot *old_snapshot, const tsr_snapshot *new_snapshot,
                       tsr__match *out, tsr_error *error) {
  side sides[2] = {{.snapshot = old_snapshot}, {.snapshot = new_snapshot}};
  uint32_t count = 0;
  bool ok = classify_both(classify_strings, sides, &count) &&
            classify_both(classify_frames, sides, &count) &&
            classify_both(classify_stacks, sides, &count);
  bool *is_moved = ok ? TSR__NEW_ARRAY(bool, count) : NULL;
  ok = is_moved && match_outlines(sides, count, is_moved);
  if (ok) {
    assert(count ||
           (!tsr_snapshot_stack_count(old_snapshot) && !tsr_snapshot_stack_count(new_snapshot)));
    *out = (tsr__match){sides[0].stacks, sides[1].stacks, count, is_moved};
    sides[0].stacks = sides[1].stacks = NULL;
  } else {
    tsr__free(is_moved);
  }
  side_release(&sides[0]);
  side_release(&sides[1]);
  return ok ? 0 : tsr__fail_memory(error);
}

void tsr__match_release(tsr__match *match) {
  tsr__free(match->old_class);
  tsr__free(match->new_class);
  tsr__free(match->is_moved);
  *match = (tsr__match){0};
}
