/* pickle_support.h - a small pickler that speaks every dialect: CPython's protocols 0 to 5 and
 * PyTorch's C++ pickler. Containers are begun with the number of their items; `pickle_next` stands
 * before each item of a list and each pair of a dict.
 *
 *   pickle_begin(&p, 'd', 1);  pickle_next(&p);  pickle_text(&p, "size");  pickle_int(&p, 4096);
 *   pickle_end(&p);
 */
#ifndef TSR_TEST_PICKLE_SUPPORT_H
#define TSR_TEST_PICKLE_SUPPORT_H

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/buffer.h"
#include "test_support.h"

enum { CPP = -1, MOST_TEXTS = 256, MOST_LEVELS = 16, BATCH_ITEMS = 1000 };

typedef struct pickle_level {
  char kind; /* 'd' or 'l' */
  size_t count, position;
} pickle_level;

typedef struct pickler {
  tsr__buffer out;
  int protocol; /* 0 to 5, or CPP */
  uint32_t memo_count;
  const char *texts[MOST_TEXTS];   /* written before, */
  uint32_t text_slots[MOST_TEXTS]; /* and where */
  size_t text_count;
  pickle_level levels[MOST_LEVELS];
  size_t depth;
  bool has_empty_batches; /* one more after full ones, as CPython writes for dicts */
} pickler;

static inline void pickle_raw(pickler *p, const void *bytes, size_t size) {
  tsr__buffer_append(&p->out, bytes, size);
}

static inline void pickle_op(pickler *p, unsigned char opcode) {
  pickle_raw(p, &opcode, 1);
}

static inline void pickle_number(pickler *p, uint64_t number, size_t size) {
  for (size_t i = 0; i < size; i++) pickle_op(p, (unsigned char)(number >> 8 * i));
}

static inline pickler pickle_start(int protocol) {
  pickler p = {.protocol = protocol};
  if (protocol == CPP || protocol >= 2) pickle_op(&p, 0x80);
  if (protocol == CPP || protocol >= 2)
    pickle_op(&p, (unsigned char)(protocol == CPP ? 2 : protocol));
  return p;
}

/* Store the value just written; its slot. */
static inline uint32_t pickle_put(pickler *p) {
  uint32_t slot = p->memo_count++;
  if (p->protocol == 0) {
    tsr__buffer_printf(&p->out, "p%" PRIu32 "\n", slot);
  } else if (p->protocol >= 4) {
    pickle_op(p, 0x94);
  } else {
    pickle_op(p, slot < 256 ? 'q' : 'r');
    pickle_number(p, slot, slot < 256 ? 1 : 4);
  }
  return slot;
}

static inline void pickle_get(pickler *p, uint32_t slot) {
  if (p->protocol == 0) {
    tsr__buffer_printf(&p->out, "g%" PRIu32 "\n", slot);
    return;
  }
  pickle_op(p, slot < 256 ? 'h' : 'j');
  pickle_number(p, slot, slot < 256 ? 1 : 4);
}

static inline void pickle_text(pickler *p, const char *text) {
  size_t size = strlen(text);
  for (size_t i = 0; i < p->text_count; i++)
    if (!strcmp(p->texts[i], text)) {
      pickle_get(p, p->text_slots[i]);
      return;
    }
  if (p->protocol == 0) {
    tsr__buffer_printf(&p->out, "V%s\n", text);
  } else {
    bool is_short = p->protocol >= 4 && size < 256;
    pickle_op(p, is_short ? 0x8c : 'X');
    pickle_number(p, size, is_short ? 1 : 4);
    pickle_raw(p, text, size);
  }
  assert_true(p->text_count < MOST_TEXTS);
  p->texts[p->text_count] = text;
  p->text_slots[p->text_count++] = pickle_put(p);
}

static inline void pickle_int(pickler *p, int64_t value) {
  if (p->protocol == 0) {
    bool is_long = value < INT32_MIN || value > INT32_MAX;
    tsr__buffer_printf(&p->out, is_long ? "L%" PRId64 "L\n" : "I%" PRId64 "\n", value);
  } else if (value >= 0 && value < 256) {
    pickle_op(p, 'K');
    pickle_number(p, (uint64_t)value, 1);
  } else if (value >= 0 && value < 65536) {
    pickle_op(p, 'M');
    pickle_number(p, (uint64_t)value, 2);
  } else if (value >= INT32_MIN && value <= INT32_MAX) {
    pickle_op(p, 'J');
    pickle_number(p, (uint64_t)value, 4);
  } else if (p->protocol == 1) {
    tsr__buffer_printf(&p->out, "L%" PRId64 "L\n", value);
  } else {
    pickle_op(p, 0x8a);
    pickle_op(p, 8);
    pickle_number(p, (uint64_t)value, 8);
  }
}

static inline void pickle_bool(pickler *p, bool value) {
  if (p->protocol == 0 || p->protocol == 1)
    tsr__buffer_printf(&p->out, "I0%d\n", value);
  else
    pickle_op(p, value ? 0x88 : 0x89);
}

static inline void pickle_real(pickler *p, double value) {
  uint64_t bits;
  if (p->protocol == 0) {
    tsr__buffer_printf(&p->out, "F%g\n", value);
    return;
  }
  memcpy(&bits, &value, 8);
  pickle_op(p, 'G');
  for (int i = 56; i >= 0; i -= 8) pickle_op(p, (unsigned char)(bits >> i));
}

/* A tuple of two numbers. */
static inline void pickle_pair(pickler *p, int64_t first, int64_t second) {
  bool has_mark = p->protocol == 0 || p->protocol == 1;
  if (has_mark) pickle_op(p, '(');
  pickle_int(p, first);
  pickle_int(p, second);
  pickle_op(p, has_mark ? 't' : 0x86);
  if (p->protocol != CPP) (void)pickle_put(p);
}

/* Begin a container; the slot that names it, which means nothing for the C++ dialect. */
static inline uint32_t pickle_begin(pickler *p, char kind, size_t count) {
  uint32_t slot = 0;
  if (p->protocol == 0) {
    pickle_op(p, '(');
    pickle_op(p, (unsigned char)kind);
  } else {
    pickle_op(p, kind == 'd' ? '}' : ']');
  }
  if (p->protocol == CPP)
    pickle_op(p, '(');
  else
    slot = pickle_put(p);
  assert_true(p->depth < MOST_LEVELS);
  p->levels[p->depth++] = (pickle_level){kind, count, 0};
  return slot;
}

static inline size_t batch_at(const pickle_level *level, size_t position) {
  size_t left = level->count - position / BATCH_ITEMS * BATCH_ITEMS;
  return left < BATCH_ITEMS ? left : BATCH_ITEMS;
}

/* What CPython writes after the item that was the last of its batch. */
static inline void close_batch(pickler *p, const pickle_level *level, size_t position) {
  bool is_dict = level->kind == 'd';
  if (p->protocol == 0 || batch_at(level, position - 1) == 1)
    pickle_op(p, is_dict ? 's' : 'a');
  else if (position % BATCH_ITEMS == 0 || position == level->count)
    pickle_op(p, is_dict ? 'u' : 'e');
}

static inline void pickle_next(pickler *p) {
  pickle_level *level = &p->levels[p->depth - 1];
  if (p->protocol != CPP && level->position) close_batch(p, level, level->position);
  if (p->protocol > 0 && level->position % BATCH_ITEMS == 0 && batch_at(level, level->position) > 1)
    pickle_op(p, '(');
  level->position++;
}

/* End a container; in the C++ dialect its slot, if it is to be named again. */
static inline uint32_t pickle_end_named(pickler *p, bool is_named) {
  const pickle_level *level = &p->levels[--p->depth];
  bool is_dict = level->kind == 'd';
  assert_int_equal(level->position, level->count);
  if (p->protocol == CPP) {
    pickle_op(p, is_dict ? 'u' : 'e');
    return is_named ? pickle_put(p) : 0;
  }
  if (level->count) close_batch(p, level, level->count);
  if (p->has_empty_batches && p->protocol > 0 && level->count && level->count % BATCH_ITEMS == 0) {
    pickle_op(p, '(');
    pickle_op(p, is_dict ? 'u' : 'e');
  }
  return 0;
}

static inline void pickle_end(pickler *p) {
  (void)pickle_end_named(p, false);
}

static inline void pickle_stop(pickler *p) {
  assert_int_equal(p->depth, 0);
  pickle_op(p, '.');
  assert_false(p->out.failed);
}

#endif
