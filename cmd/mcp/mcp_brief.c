/* mcp_brief.c - an answer that a language model reads at a glance: what peak and why return unless more is asked for.
 *
 * The verdict ends in the advice that the command prints, and names tools instead of commands. Devices that ran out of memory
 * come first, then those with the highest peak. Absent and empty fields are left out, and lists are cut until
 * the answer is small enough. The lists of the first device are cut last, and a list of frames or stacks always keeps its first entry.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/output.h"
#include "mcp.h"

/* Lines of advice of a device at most, and the bytes of a verdict after which other devices have none. */
enum { ADVICE_LINES = 8, ADVICE_BYTES = 1400 };
/* Entries that lists of the first device keep if that is enough. */
enum { FIRST_ENTRIES = 4, FRAMES = 3 };

static size_t size_of(const json_t *value) {
  return json_dumpb(value, NULL, 0, JSON_COMPACT);
}

/* ---- Words ---- */

/* The number of the device that a line begins with, "Device 3: ...", as text; false if it begins with none. */
static bool device_of(const char *line, char number[16]) {
  static const char word[] = "Device ";
  enum { LENGTH = sizeof word - 1 };
  size_t digits = strncmp(line, word, LENGTH) ? 0 : strspn(line + LENGTH, "0123456789");
  if (!digits || digits > 10) return false;
  memcpy(number, line + LENGTH, digits);
  number[digits] = '\0';
  return true;
}

static void add_line(json_t *parts, const char *number, json_t *line) {
  if (!json_object_get(parts, number)) json_object_set_new(parts, number, json_array());
  json_array_append_new(json_object_get(parts, number), line);
}

/* Add the lines of the text's sections of advice to the parts of their devices. */
static void add_advice(json_t *parts, const char *text) {
  char number[16] = "";
  bool is_inside = false;
  for (size_t size; *text; text += size + (text[size] == '\n')) {
    size = strcspn(text, "\n");
    bool is_heading =
        strncmp(text, "What to do", 10) == 0 || strncmp(text, "What would help", 15) == 0;
    bool is_detail = strncmp(text, "    ", 4) == 0;
    (void)device_of(text, number);
    if (is_heading || *text != ' ') is_inside = is_heading;
    if (!is_inside || is_detail || json_array_size(json_object_get(parts, number)) == ADVICE_LINES)
      continue;
    size_t blank = strspn(text, " ");
    add_line(parts, number, mcp_string((tsr_text){text + blank, size - blank}));
  }
}

/* The verdict in the order of the devices, each followed by its advice while there is room: the first one's always fits. */
static void order_verdict(json_t *verdict, const json_t *devices, const char *text) {
  json_t *parts = json_object(), *advice = json_object(), *line, *device, *rest;
  char number[16] = "";
  const char *key;
  size_t i;
  json_array_foreach(verdict, i, line) {
    (void)device_of(json_string_value(line), number);
    add_line(parts, number, json_incref(line));
  }
  add_advice(advice, text);
  json_array_clear(verdict);
  json_array_extend(verdict, json_object_get(parts, ""));
  json_object_del(parts, "");
  json_array_foreach(devices, i, device) {
    (void)snprintf(number, sizeof number, "%" JSON_INTEGER_FORMAT,
                   json_integer_value(json_object_get(device, "device")));
    json_array_extend(verdict, json_object_get(parts, number));
    json_object_del(parts, number);
    if (i == 0 || size_of(verdict) < ADVICE_BYTES)
      json_array_extend(verdict, json_object_get(advice, number));
  }
  json_object_foreach(parts, key, rest) json_array_extend(verdict, rest);
  json_decref(parts);
  json_decref(advice);
}

/* "`tessera why`" as "tessera_why", if there is such a tool. NULL if memory ran out. */
static char *with_tools(const char *text) {
  static const char program[] = "tessera ";
  enum { LENGTH = sizeof program - 1 };
  char *out = malloc(strlen(text) + 1), *to = out;
  while (out && *text) {
    size_t quote = *text == '`';
    size_t word = strncmp(text + quote, program, LENGTH)
                      ? 0
                      : strspn(text + quote + LENGTH, "abcdefghijklmnopqrstuvwxyz");
    char name[64] = "tessera_";
    bool is_tool = word && word < 40;
    if (is_tool) strncat(name, text + quote + LENGTH, word);
    const tsr_question *question = is_tool ? tsr_question_find(name + LENGTH) : NULL;
    bool is_open = quote && text[quote + LENGTH + word] != '`';
    if (question && question->title && !is_open) {
      size_t length = strlen(name);
      memcpy(to, name, length);
      to += length;
      text += quote + LENGTH + word;
      text += quote && *text == '`';
    } else {
      *to++ = *text++;
    }
  }
  if (out) *to = '\0';
  return out;
}

void mcp_name_tools(json_t *lines) {
  size_t i;
  json_t *line;
  json_array_foreach(lines, i, line) {
    char *named = with_tools(json_string_value(line));
    if (named)
      json_string_set(line, named);
    else
      mcp_memory_note();
    free(named);
  }
}

/* ---- Order ---- */

static json_int_t peak_of(const json_t *device) {
  const json_t *moment = json_object_get(json_object_get(device, "moment"), "totals");
  if (!moment) moment = json_object_get(device, "peak");
  return json_integer_value(json_object_get(moment, "allocated_bytes"));
}

static bool has_failed(const json_t *device) {
  const json_t *stop = json_object_get(device, "out_of_memory");
  return json_is_object(stop) || json_array_size(json_object_get(device, "ooms")) > 0;
}

static bool is_before(const json_t *a, const json_t *b) {
  if (has_failed(a) != has_failed(b)) return has_failed(a);
  return peak_of(a) > peak_of(b);
}

/* Devices are few. */
static void sort_devices(json_t *devices) {
  for (size_t i = 1; i < json_array_size(devices); i++) {
    json_t *device = json_incref(json_array_get(devices, i));
    size_t at = i;
    while (at && is_before(device, json_array_get(devices, at - 1))) at--;
    json_array_remove(devices, i);
    json_array_insert_new(devices, at, device);
  }
}

/* ---- Size ---- */

static bool is_empty(const json_t *value) {
  return json_is_null(value) || (json_is_array(value) && !json_array_size(value)) ||
         (json_is_object(value) && !json_object_size(value));
}

/* Remove members that are absent or empty. jansson bounds the depth of what it parses, and so of this. */
static void drop_empty(json_t *value) { /* NOLINT(misc-no-recursion) */
  const char *key;
  json_t *item;
  void *next;
  size_t i;
  json_array_foreach(value, i, item) drop_empty(item);
  json_object_foreach_safe(value, next, key, item) {
    drop_empty(item);
    if (is_empty(item)) json_object_del(value, key);
  }
}

/* Shorten all lists within `value` to `most` entries, those of frames to `frames`; counts what goes. */
static void shorten(json_t *value, size_t most, size_t frames,
                    json_t *left_out) { /* NOLINT(misc-no-recursion) */
  const char *key;
  json_t *item;
  size_t i;
  json_array_foreach(value, i, item) shorten(item, most, frames, left_out);
  json_object_foreach(value, key, item) {
    size_t keep = strcmp(key, "frames") ? most : frames, count = json_array_size(item);
    /* Entries of a pair, such as a pool's id, are no list. */
    bool is_list = count && !json_is_integer(json_array_get(item, 0));
    for (size_t k = count; is_list && k-- > keep;) json_array_remove(item, k);
    if (is_list && count > keep) {
      json_int_t before = json_integer_value(json_object_get(left_out, key));
      json_object_set_new(left_out, key, json_integer(before + (json_int_t)(count - keep)));
    }
    shorten(item, most, frames, left_out);
  }
}

static void say_left_out(json_t *answer, json_t *left_out) {
  if (!json_object_size(left_out)) return;
  json_object_set(answer, "left_out", left_out);
  json_object_set_new(
      answer, "hint",
      json_string("This is the short answer; left_out counts the entries that it lacks. "
                  "Pass top (and max_frames) for more, or device for one device."));
}

void mcp_brief(json_t *answer, const char *text, size_t limit) {
  static const struct {
    size_t first, frames, others;
  } steps[] = {{10, FRAMES + 1, 2},
               {FIRST_ENTRIES + 2, FRAMES, 1},
               {FIRST_ENTRIES, FRAMES, 1},
               {FIRST_ENTRIES - 1, 2, 1},
               {2, 1, 1},
               {1, 1, 1}};
  json_t *devices = json_object_get(answer, "devices"), *left_out = json_object();
  json_t *verdict = json_object_get(answer, "verdict");
  sort_devices(devices);
  order_verdict(verdict, devices, text);
  mcp_name_tools(verdict);
  drop_empty(answer);
  size_t room = limit > 1024 ? limit - 512 : limit; /* what the hint takes */
  for (size_t step = 0; step < sizeof steps / sizeof *steps && size_of(answer) > room; step++)
    for (size_t i = 0; i < json_array_size(devices) && size_of(answer) > room; i++) {
      size_t at = json_array_size(devices) - 1 - i; /* the first device last */
      shorten(json_array_get(devices, at), at ? steps[step].others : steps[step].first,
              at ? 1 : steps[step].frames, left_out);
    }
  while (json_array_size(devices) > 1 && size_of(answer) > room) {
    json_array_remove(devices, json_array_size(devices) - 1);
    json_int_t before = json_integer_value(json_object_get(left_out, "devices"));
    json_object_set_new(left_out, "devices", json_integer(before + 1));
  }
  say_left_out(answer, left_out);
  json_decref(left_out);
}
