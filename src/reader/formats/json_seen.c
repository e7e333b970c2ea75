/* json_seen.c - stacks that were read before, recognised by their bytes.
 *
 * In a JSON text a stack is spelled out at each event that has it, and makes up nine tenths of the
 * file. But a writer spells equal values equally, so equal stacks are equal bytes:
 *
 *   "frames": [{"name": "empty", "filename": "a.py", "line": 3}, ... ]
 *             |<------------------ the text of one stack ----------->|
 *
 * The text of a list says itself where it ends, so no list's text is the beginning of another's:
 * comparing memory with a text that is known to be a stack is enough to have read it. And programs
 * repeat themselves: after one stack comes, mostly, one that followed it before, so each text
 * remembers its last two successors, and most stacks are read by one comparison. The others are
 * looked up by hash, for which their end must be found first.
 *
 * A text is remembered before it is read, and counts once it was read as nothing but frames, with
 * no warning and nothing kept next to them: those must be the same however often it is met. It must
 * be entirely in the window; longer ones, and lists inside a list that is being read, are read as
 * any other value. When the texts fill SEEN_BYTES, all are forgotten and learnt again. */
#include "formats/json.h"

#include <string.h>

enum { LONGEST_TEXT = 64 << 10, SEEN_BYTES = 64 << 20 };

/* Bytes of the list at the cursor, brackets included; 0 where its end is not in the window or
 * is too far away. What is in between is not checked: brackets are counted. */
static size_t list_size(const tsr__json *j) {
  const unsigned char *p = j->next, *end = j->end;
  if (end - p > LONGEST_TEXT) end = p + LONGEST_TEXT;
  size_t depth = 0;
  while (p < end) {
    unsigned char c = *p++;
    if (c == '"') {
      while ((p = tsr__json_find_special(p, end)) < end && *p != '"') {
        if (*p != '\\' || end - p < 2) return 0;
        p += 2;
      }
      if (p == end) return 0;
      p++;
    } else if (c == '[' || c == '{') {
      depth++;
    } else if ((c == ']' || c == '}') && !--depth) {
      return (size_t)(p - j->next);
    }
  }
  return 0;
}

/* Is the text `index`, a known stack, at the cursor? */
static inline bool is_here(const tsr__json *j, uint32_t index) {
  if (index == TSR_NONE || j->seen.items[index].stack == TSR_NONE) return false;
  const tsr__interned *text = &j->texts.items[index];
  return (size_t)(j->end - j->next) >= text->size_bytes &&
         memcmp(j->next, text->data, text->size_bytes) == 0;
}

static void forget(tsr__json *j) {
  tsr__intern_release(&j->texts);
  j->seen.count = 0;
  j->last_seen = TSR_NONE;
}

/* The text at the cursor, added if new; TSR_NONE where it cannot be kept. */
static uint32_t look_up(tsr__json *j) {
  size_t size = list_size(j);
  if (!size) return TSR_NONE;
  if (j->texts.bytes > SEEN_BYTES) forget(j);
  if (!TSR__VECTOR_RESERVE(&j->seen, 1)) return TSR_NONE;
  bool added;
  uint32_t index = tsr__intern_put(&j->texts, j->next, size, &added);
  if (added) j->seen.items[j->seen.count++] = (tsr__json_seen){TSR_NONE, {TSR_NONE, TSR_NONE}};
  return index;
}

/* Grows with each warning and each value kept that is no part of a row. */
static uint64_t count_left_behind(const tsr__json *j) {
  const tsr_snapshot *snapshot = j->assembler->snapshot;
  uint64_t count = snapshot->extras.count + snapshot->loose_values.count;
  for (size_t i = 0; i < TSR__WARNING_COUNT; i++) count += snapshot->tally[i];
  return count;
}

uint32_t tsr__json_recognise(tsr__json *j) {
  uint32_t last = j->last_seen, found;
  const uint32_t none[2] = {TSR_NONE, TSR_NONE};
  const uint32_t *next = last == TSR_NONE ? none : j->seen.items[last].next;
  if (is_here(j, next[0])) {
    found = next[0];
  } else {
    found = is_here(j, next[1]) ? next[1] : look_up(j);
    if (found == TSR_NONE) return TSR_NONE;
    if (j->last_seen != TSR_NONE) {
      tsr__json_seen *before = &j->seen.items[j->last_seen];
      before->next[1] = before->next[0];
      before->next[0] = found;
    }
  }
  j->last_seen = found;
  uint32_t stack = j->seen.items[found].stack;
  if (stack == TSR_NONE) {
    j->learning = found;
    j->left_behind = count_left_behind(j);
  } else {
    j->next += j->texts.items[found].size_bytes;
  }
  return stack;
}

void tsr__json_learnt(tsr__json *j, uint32_t stack) {
  if (j->learning != TSR_NONE && j->left_behind == count_left_behind(j))
    j->seen.items[j->learning].stack = stack;
  j->learning = TSR_NONE;
}
