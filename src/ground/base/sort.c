/* sort.c - a merge sort.
 *
 * Halves are sorted and then merged: the left half is copied to scratch memory, and the smaller of the two first items goes
 * to the front, the left one if they are equal, which makes the sort stable. Scratch memory is on the stack for few items.
 * Without it, halves are merged in place by rotations: slower, but a sort can't fail.
 *
 * Runs of up to SHORT items are sorted by insertion. Items that are in order at the middle are not merged, so a sorted array
 * costs one comparison an item.
 */
#include "base/sort.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

#include "base/memory.h"

enum { SHORT = 8, STACK_BYTES = 2048 };

typedef struct sorting {
  size_t item_size;
  int (*compare)(const void *left, const void *right);
  char *scratch; /* for half of the items; NULL if memory has run out */
} sorting;

/* The usual sizes are copied without a call. */
static inline void copy(char *to, const char *from, size_t size) {
  switch (size) {
  case 4: memcpy(to, from, 4); break;
  case 8: memcpy(to, from, 8); break;
  case 16: memcpy(to, from, 16); break;
  case 24: memcpy(to, from, 24); break;
  case 32: memcpy(to, from, 32); break;
  default: memcpy(to, from, size);
  }
}

static void swap(char *left, char *right, size_t size) {
  char held[64];
  while (size) {
    size_t part = size < sizeof held ? size : sizeof held;
    memcpy(held, left, part);
    memcpy(left, right, part);
    memcpy(right, held, part);
    left += part, right += part, size -= part;
  }
}

static void reverse(char *items, size_t count, size_t size) {
  for (size_t i = 0; i < count / 2; i++)
    swap(items + i * size, items + (count - 1 - i) * size, size);
}

/* How many of the sorted items go before `key`: those that are smaller, or with `and_equal` not larger. */
static size_t rank_of(const sorting *s, const char *items, size_t count, const char *key,
                      bool and_equal) {
  size_t from = 0, to = count;
  while (from < to) {
    size_t middle = from + (to - from) / 2;
    int order = s->compare(items + middle * s->item_size, key);
    if (order < 0 || (and_equal && order == 0))
      from = middle + 1;
    else
      to = middle;
  }
  return from;
}

/* Merge two sorted neighbours without memory: the larger one is cut in the middle, the other at the same key, the inner two
 * pieces change places, and both sides are merged in turn. */
static void merge_in_place(const sorting *s, char *items, size_t left, size_t right) {
  size_t size = s->item_size;
  while (left && right) {
    if (left == 1 && right == 1) {
      if (s->compare(items, items + size) > 0) swap(items, items + size, size);
      return;
    }
    char *middle = items + left * size;
    size_t from_left, from_right;
    if (left >= right) {
      from_left = left / 2;
      from_right = rank_of(s, middle, right, items + from_left * size, false);
    } else {
      from_right = right / 2;
      from_left = rank_of(s, items, left, middle + from_right * size, true);
    }
    char *inner = items + from_left * size;
    reverse(inner, left - from_left, size);
    reverse(middle, from_right, size);
    reverse(inner, left - from_left + from_right, size);
    merge_in_place(s, items, from_left, from_right);
    items = inner + from_right * size;
    left -= from_left;
    right -= from_right;
  }
}

static void merge(const sorting *s, char *items, size_t left, size_t right) {
  if (!s->scratch) {
    merge_in_place(s, items, left, right);
    return;
  }
  size_t size = s->item_size;
  memcpy(s->scratch, items, left * size);
  const char *a = s->scratch, *a_end = a + left * size;
  const char *b = items + left * size, *b_end = b + right * size;
  for (char *to = items; a < a_end; to += size) {
    bool takes_right = b < b_end && s->compare(a, b) > 0;
    copy(to, takes_right ? b : a, size);
    *(takes_right ? &b : &a) += size;
  }
}

static void insert(const sorting *s, char *items, size_t count) {
  size_t size = s->item_size;
  char held[256];
  for (char *item = items + size, *end = items + count * size; item < end; item += size) {
    char *to = item;
    while (to > items && s->compare(to - size, item) > 0) to -= size;
    if (size > sizeof held) {
      for (char *at = item; at > to; at -= size) swap(at - size, at, size);
    } else if (to < item) {
      copy(held, item, size);
      memmove(to + size, to, (size_t)(item - to));
      copy(to, held, size);
    }
  }
}

static void sort(const sorting *s, char *items, size_t count) {
  if (count <= SHORT) {
    insert(s, items, count);
    return;
  }
  size_t left = count / 2, size = s->item_size;
  char *middle = items + left * size;
  sort(s, items, left);
  sort(s, middle, count - left);
  if (s->compare(middle - size, middle) > 0) merge(s, items, left, count - left);
}

void tsr__sort(void *items, size_t count, size_t item_size,
               int (*compare)(const void *left, const void *right)) {
  assert(item_size && compare && (items || !count));
  if (count < 2) return;
  _Alignas(max_align_t) char on_stack[STACK_BYTES];
  size_t half = count / 2;
  bool is_large = half > sizeof on_stack / item_size;
  sorting s = {item_size, compare, is_large ? tsr__realloc(NULL, half, item_size) : on_stack};
  sort(&s, items, count);
  if (is_large) tsr__free(s.scratch);
}
