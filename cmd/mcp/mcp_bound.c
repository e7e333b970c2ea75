/* mcp_bound.c - makes an answer small enough for a reader with limited context.
 *
 * Lists are ranked, so their ends matter least: as long as the answer is too large, the list that
 * takes most room loses its end. Texts of a file are cut first, one by one: some C++ names have
 * thousands of characters. The answer itself reports what was cut:
 *
 *   "left_out": {"stacks": 17}, "hint": "..."
 *
 * Everything is done on the tree; its size is what jansson would write.
 */
#include <string.h>

#include "mcp.h"

#define TEXT_BYTES 600
/* Each round makes the largest list smaller; by then all are of one item. */
#define ROUNDS 200

/* The list that takes most room. */
typedef struct found {
  json_t *list;
  const char *name; /* of the member that it is, or that it is part of */
  size_t size_bytes;
} found;

static size_t size_of(const json_t *value) {
  return json_dumpb(value, NULL, 0, JSON_COMPACT | JSON_ENCODE_ANY);
}

static bool cut_text(json_t *text) {
  const char *bytes = json_string_value(text);
  size_t size = json_string_length(text);
  if (size <= TEXT_BYTES) return true;
  char kept[TEXT_BYTES + 4];
  size_t end = TEXT_BYTES;
  while (end && ((unsigned char)bytes[end] & 0xC0) == 0x80) end--;
  memcpy(kept, bytes, end);
  memcpy(kept + end, "...", 3);
  return json_string_setn(text, kept, end + 3) == 0;
}

/* jansson bounds the depth of what it parses, and so of this. */
static bool cut_texts(json_t *value) { /* NOLINT(misc-no-recursion) */
  const char *key;
  json_t *item;
  size_t i;
  bool ok = true;
  if (json_is_string(value)) return cut_text(value);
  json_object_foreach(value, key, item) ok = ok && cut_texts(item);
  json_array_foreach(value, i, item) ok = ok && cut_texts(item);
  return ok;
}

static void find_largest(json_t *value, const char *name, /* NOLINT(misc-no-recursion) */
                         found *out) {
  const char *key;
  json_t *item;
  size_t i;
  if (json_array_size(value) > 1) {
    size_t size = size_of(value);
    if (size > out->size_bytes) *out = (found){value, name, size};
  }
  json_object_foreach(value, key, item) find_largest(item, key, out);
  json_array_foreach(value, i, item) find_largest(item, name, out);
}

/* Shorten a list so that the answer loses `excess` bytes if the list has them. */
static bool shorten(const found *largest, size_t excess, json_t *left_out) {
  size_t count = json_array_size(largest->list), keep = 1;
  if (largest->size_bytes > excess)
    keep = (size_t)((double)count * (double)(largest->size_bytes - excess) /
                    (double)largest->size_bytes);
  if (keep < 1) keep = 1;
  if (keep >= count) keep = count - 1;
  for (size_t i = count; i-- > keep;) json_array_remove(largest->list, i);
  json_int_t before = json_integer_value(json_object_get(left_out, largest->name));
  return json_object_set_new(left_out, largest->name,
                             json_integer(before + (json_int_t)(count - keep))) == 0;
}

static bool say_left_out(json_t *answer, json_t *left_out) {
  static const char hint[] =
      "The answer was too large, so lists were shortened; left_out counts the removed entries. To "
      "see more entries, request less of each: fewer frames (max_frames), no stacks (print_stack), "
      "one device.";
  return json_object_set(answer, "left_out", left_out) == 0 &&
         json_object_set_new(answer, "hint", json_string(hint)) == 0;
}

/* Nothing more can be cut: keep the members that fit, and those that report the cut. */
static void keep_small_members(json_t *answer, size_t limit) {
  static const char kept[] = " verdict status tool error command ";
  const char *key;
  json_t *item;
  void *next;
  json_object_foreach_safe(answer, next, key, item) {
    if (size_of(answer) <= limit) break;
    bool is_needed = strstr(kept, key) != NULL;
    if (!is_needed && size_of(item) > limit / 16) json_object_del(answer, key);
  }
}

bool mcp_bound(json_t *answer, size_t limit) {
  if (!cut_texts(answer)) return false;
  if (!limit || size_of(answer) <= limit) return true;
  size_t room = limit > 2048 ? limit - 1024 : limit; /* what the hint takes */
  json_t *left_out = json_object();
  bool ok = left_out != NULL;
  for (int round = 0; ok && round < ROUNDS; round++) {
    size_t size = size_of(answer);
    if (size <= room) break;
    found largest = {0};
    find_largest(answer, "entries", &largest);
    if (!largest.list) break;
    ok = shorten(&largest, size - room, left_out);
  }
  if (ok && size_of(answer) > room) keep_small_members(answer, room);
  if (ok) ok = say_left_out(answer, left_out);
  json_decref(left_out);
  return ok;
}
