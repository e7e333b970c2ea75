/* text.c - makes arbitrary bytes safe to print, as JSON or on a terminal.
 *
 * Both formats use the decoder of base/utf8.h, which treats lone surrogates as characters.
 *
 * A high surrogate followed by a low one becomes two escapes, which a JSON parser joins
 * into one character; JSON cannot represent them separately.
 *
 * Invariant: every function consumes at least one byte per step, so hostile input cannot stall it.
 */
#include "emit/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Number of bytes from `at` on that need no work in either format: printable ASCII except `"` and `\`. */
static size_t plain_run(tsr_text text, size_t at, size_t until) {
  size_t end = at;
  while (end < until && text.data[end] >= ' ' && text.data[end] < 0x7F && text.data[end] != '"' &&
         text.data[end] != '\\')
    end++;
  return end - at;
}

static void escape_character(tsr__buffer *out, uint32_t code, const char *bytes, size_t length) {
  static const char names[] = "\"\"\\\\\bb\ff\nn\rr\tt"; /* a character, then its letter */
  if (code == TSR__CODE_INVALID) {
    tsr__buffer_text(out, "\xEF\xBF\xBD");
    return;
  }
  for (size_t i = 0; i + 1 < sizeof names; i += 2)
    if (code == (unsigned char)names[i]) {
      tsr__buffer_printf(out, "\\%c", names[i + 1]);
      return;
    }
  if (tsr__code_is_unsafe(code))
    tsr__buffer_printf(out, "\\u%04x", (unsigned)code);
  else
    tsr__buffer_append(out, bytes, length);
}

size_t tsr__json_escape(tsr__buffer *out, tsr_text text, size_t from, size_t until) {
  if (until > text.size_bytes) until = text.size_bytes;
  size_t at = from;
  while (at < until) {
    size_t plain = plain_run(text, at, until);
    if (plain) {
      tsr__buffer_append(out, text.data + at, plain);
      at += plain;
      continue;
    }
    uint32_t code;
    size_t length = tsr__utf8_decode(text.data + at, text.size_bytes - at, &code);
    escape_character(out, code, text.data + at, length);
    at += length;
  }
  return at;
}

size_t tsr__text_clean(tsr__buffer *out, tsr_text text) {
  size_t columns = 0;
  for (size_t at = 0; at < text.size_bytes;) {
    size_t plain = plain_run(text, at, text.size_bytes);
    if (plain) {
      tsr__buffer_append(out, text.data + at, plain);
      at += plain, columns += plain;
      continue;
    }
    uint32_t code;
    size_t length = tsr__utf8_decode(text.data + at, text.size_bytes - at, &code);
    if (tsr__code_is_unsafe(code))
      tsr__buffer_text(out, "?");
    else
      tsr__buffer_append(out, text.data + at, length);
    at += length, columns++;
  }
  return columns;
}

/* Byte position of character number `columns`. */
static size_t position_of(tsr_text text, size_t columns) {
  size_t at = 0;
  uint32_t code;
  while (columns-- && at < text.size_bytes)
    at += tsr__utf8_decode(text.data + at, text.size_bytes - at, &code);
  return at;
}

void tsr__text_shorten(tsr__buffer *out, tsr_text text, size_t width, size_t columns) {
  static const char gap[] = "...";
  const size_t gap_columns = sizeof gap - 1;
  if (width <= columns) {
    tsr__buffer_append(out, text.data, text.size_bytes);
    return;
  }
  if (columns <= gap_columns) {
    tsr__buffer_append(out, gap, columns);
    return;
  }
  size_t tail = (columns - gap_columns) / 2, head = columns - gap_columns - tail;
  size_t tail_at = position_of(text, width - tail);
  tsr__buffer_append(out, text.data, position_of(text, head));
  tsr__buffer_append(out, gap, gap_columns);
  tsr__buffer_append(out, text.data + tail_at, text.size_bytes - tail_at);
}

void tsr__text_shorten_at(tsr__buffer *out, tsr_text text, size_t width, size_t columns,
                          size_t at) {
  static const char gap[] = "...";
  const size_t gap_columns = sizeof gap - 1, head = columns / 4;
  if (width <= columns || columns < 4 * gap_columns || at < head) {
    tsr__text_shorten(out, text, width, columns);
    return;
  }
  size_t room = columns - head - gap_columns, lead = room / 3;
  size_t from = at - head > lead ? at - lead : head, end = width;
  if (width - from > room)
    end = from + room - gap_columns;
  else
    from = width - room;
  size_t from_at = position_of(text, from), end_at = position_of(text, end);
  tsr__buffer_append(out, text.data, position_of(text, head));
  tsr__buffer_append(out, gap, gap_columns);
  tsr__buffer_append(out, text.data + from_at, end_at - from_at);
  if (end < width) tsr__buffer_append(out, gap, gap_columns);
}

size_t tsr__text_difference(tsr_text a, tsr_text b) {
  size_t columns = 0, at = 0;
  while (at < a.size_bytes && at < b.size_bytes) {
    uint32_t x, y;
    size_t length = tsr__utf8_decode(a.data + at, a.size_bytes - at, &x);
    (void)tsr__utf8_decode(b.data + at, b.size_bytes - at, &y);
    if (x != y) break;
    at += length;
    columns++;
  }
  return columns;
}

/* ---- Places ----
 *
 *     cs336/model.py:382 forward > linear.py:125 forward
 *   ╰┤╰────┤╰──────────┤ ╰─────┤   ╰───────────┤ ╰─────┤
 *  indent folder anchor    name      anchor        name
 *
 * Two parts here. A part without a line (`AddmmBackward0 (autograd)`) is all name. */

#define PLACE_PARTS      8  /* the last part holds the rest of the text */
#define NAME_LEAST       3  /* columns: "..." */
#define NAME_WANTED      8  /* columns that names keep as long as folders can give way */
#define FOLDER_LEAST     4  /* columns: ".../" */
#define PLACE_REST_LEAST 12 /* columns after a file and line in which a difference can be shown */

static const char separator[] = " > ";
enum { SEPARATOR_COLUMNS = sizeof separator - 1 };

typedef struct place_part {
  tsr_text folder, anchor, name;
  size_t folder_columns, anchor_columns, name_columns;
} place_part;

typedef struct place {
  size_t indent; /* blanks before the first part */
  size_t count;
  place_part parts[PLACE_PARTS];
} place;

/* What is shown of a place. */
typedef struct place_cut {
  size_t parts;        /* the first ones */
  size_t most_name;    /* columns of the longest name */
  bool is_folder_less; /* folders are ".../" */
} place_cut;

static size_t columns_of(tsr_text text) {
  size_t columns = 0;
  uint32_t code;
  for (size_t at = 0; at < text.size_bytes; columns++)
    at += tsr__utf8_decode(text.data + at, text.size_bytes - at, &code);
  return columns;
}

/* Size of the path and line that `part` begins with: up to a colon and digits before a blank or the end. */
static size_t path_size(tsr_text part) {
  for (size_t at = 0; at < part.size_bytes; at++) {
    if (part.data[at] != ':') continue;
    size_t end = at + 1;
    while (end < part.size_bytes && part.data[end] >= '0' && part.data[end] <= '9') end++;
    if (end > at + 1 && (end == part.size_bytes || part.data[end] == ' ')) return end;
  }
  return 0;
}

static place_part part_of(tsr_text text) {
  size_t size = path_size(text), blank = size && size < text.size_bytes, file = size;
  while (file && text.data[file - 1] != '/') file--;
  place_part part = {.folder = {text.data, file},
                     .anchor = {text.data + file, size - file},
                     .name = {text.data + size + blank, text.size_bytes - size - blank}};
  part.folder_columns = columns_of(part.folder);
  part.anchor_columns = columns_of(part.anchor);
  part.name_columns = columns_of(part.name);
  return part;
}

static void split_place(tsr_text text, place *out) {
  size_t from = 0;
  *out = (place){0};
  while (from < text.size_bytes && text.data[from] == ' ') from++;
  out->indent = from;
  for (size_t at = from; out->count < PLACE_PARTS - 1 && at + SEPARATOR_COLUMNS < text.size_bytes;
       at++) {
    if (memcmp(text.data + at, separator, SEPARATOR_COLUMNS) != 0) continue;
    out->parts[out->count++] = part_of((tsr_text){text.data + from, at - from});
    from = at + SEPARATOR_COLUMNS;
    at = from - 1;
  }
  out->parts[out->count++] = part_of((tsr_text){text.data + from, text.size_bytes - from});
}

static size_t least_of(size_t a, size_t b) {
  return a < b ? a : b;
}

static size_t folder_columns(const place_part *part, place_cut cut) {
  return cut.is_folder_less ? least_of(part->folder_columns, FOLDER_LEAST) : part->folder_columns;
}

static size_t cut_columns(const place *from, place_cut cut) {
  size_t columns = from->indent + (cut.parts - 1) * SEPARATOR_COLUMNS;
  for (size_t i = 0; i < cut.parts; i++) {
    const place_part *part = &from->parts[i];
    bool has_both = part->anchor_columns && part->name_columns;
    columns += folder_columns(part, cut) + part->anchor_columns + has_both +
               least_of(part->name_columns, cut.most_name);
  }
  return columns;
}

static void append_part(tsr__buffer *out, const place_part *part, place_cut cut) {
  if (folder_columns(part, cut) < part->folder_columns)
    tsr__buffer_text(out, ".../");
  else
    tsr__buffer_append(out, part->folder.data, part->folder.size_bytes);
  tsr__buffer_append(out, part->anchor.data, part->anchor.size_bytes);
  if (part->anchor_columns && part->name_columns) tsr__buffer_text(out, " ");
  tsr__text_shorten(out, part->name, part->name_columns,
                    least_of(part->name_columns, cut.most_name));
}

/* The longest names that fit. Returns the columns that it takes. */
static size_t append_cut(tsr__buffer *out, const place *from, place_cut cut, size_t columns) {
  for (place_cut more = cut; more.most_name < columns; cut = more) {
    more.most_name++;
    if (cut_columns(from, more) > columns) break;
  }
  tsr__buffer_fill(out, ' ', from->indent);
  for (size_t i = 0; i < cut.parts; i++) {
    if (i) tsr__buffer_text(out, separator);
    append_part(out, &from->parts[i], cut);
  }
  return cut_columns(from, cut);
}

/* A file and its line, which keep their end: "...model.py:382". Returns the columns they take. */
static size_t append_anchor_end(tsr__buffer *out, tsr_text anchor, size_t width, size_t columns) {
  size_t dots = least_of(columns, 3);
  if (width <= columns) columns = width, dots = 0;
  size_t from = position_of(anchor, width - (columns - dots));
  tsr__buffer_append(out, "...", dots);
  tsr__buffer_append(out, anchor.data + from, anchor.size_bytes - from);
  return columns;
}

size_t tsr__place_shorten(tsr__buffer *out, tsr_text text, size_t width, size_t columns) {
  static const char more[] = " ...";
  static const place_cut cuts[] = {
      {0, NAME_WANTED, false}, {0, NAME_WANTED, true}, {0, NAME_LEAST, true}};
  const size_t more_columns = sizeof more - 1, cut_count = sizeof cuts / sizeof *cuts;
  place from;
  if (width <= columns) {
    tsr__buffer_append(out, text.data, text.size_bytes);
    return width;
  }
  split_place(text, &from);
  for (size_t i = 0; i < from.count * cut_count; i++) {
    place_cut cut = cuts[i % cut_count];
    cut.parts = from.count - i / cut_count;
    bool is_whole = cut.parts == from.count;
    size_t room = is_whole ? columns : columns - least_of(columns, more_columns);
    if (cut_columns(&from, cut) > room) continue;
    size_t taken = append_cut(out, &from, cut, room);
    if (is_whole) return taken;
    tsr__buffer_text(out, more);
    return taken + more_columns;
  }
  size_t indent = least_of(from.indent, columns);
  const place_part *first = &from.parts[0];
  tsr__buffer_fill(out, ' ', indent);
  if (first->anchor_columns)
    return indent + append_anchor_end(out, first->anchor, first->anchor_columns, columns - indent);
  tsr__text_shorten(out, (tsr_text){text.data + from.indent, text.size_bytes - from.indent},
                    width - from.indent, columns - indent);
  return columns;
}

size_t tsr__place_shorten_at(tsr__buffer *out, tsr_text text, size_t width, size_t columns,
                             size_t at) {
  place_part first = part_of(text);
  size_t dropped = first.folder_columns, kept = dropped + first.anchor_columns;
  size_t mark = dropped > FOLDER_LEAST ? FOLDER_LEAST : 0;
  if (!mark) dropped = 0;
  size_t taken = mark + kept - dropped;
  if (width <= columns || !first.anchor_columns || at <= kept ||
      columns < taken + PLACE_REST_LEAST) {
    tsr__text_shorten_at(out, text, width, columns, at);
    return width < columns ? width : columns;
  }
  size_t from = first.folder.size_bytes + first.anchor.size_bytes;
  tsr_text rest = {text.data + from, text.size_bytes - from};
  if (mark)
    tsr__buffer_text(out, ".../");
  else
    tsr__buffer_append(out, first.folder.data, first.folder.size_bytes);
  tsr__buffer_append(out, first.anchor.data, first.anchor.size_bytes);
  size_t room = columns - taken, rest_columns = width - kept;
  tsr__text_shorten_at(out, rest, rest_columns, room, at - kept);
  return taken + (rest_columns < room ? rest_columns : room);
}

size_t tsr__place_least(tsr_text text) {
  place from;
  split_place(text, &from);
  return from.indent + from.parts[0].anchor_columns;
}

tsr_text tsr__text_of(const char *string) {
  return (tsr_text){string, string ? strlen(string) : 0};
}

const char *tsr__device_name(uint32_t device, char text[TSR__FORMAT_BYTES]) {
  if (device == TSR_DEVICE_HOST)
    (void)snprintf(text, TSR__FORMAT_BYTES, "pinned host memory");
  else
    (void)snprintf(text, TSR__FORMAT_BYTES, "device %" PRIu32, device);
  return text;
}

const char *tsr__device_title(uint32_t device, char text[TSR__FORMAT_BYTES]) {
  tsr__device_name(device, text);
  text[0] = device == TSR_DEVICE_HOST ? 'P' : 'D';
  return text;
}
