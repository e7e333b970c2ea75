/* cut.c - makes texts fit. See cut.h.
 *
 * A text that names a place is read as
 *
 *     cs336/model.py:382 forward > linear.py:125 forward (aten::mm), from train.py:9
 *   ╰┤╰────┤╰──────────┤ ╰─────┤   ╰───────────┤ ╰─────┤╰─────────┤╰──────────────┤
 *  indent folder anchor    name      anchor        name   operation     callers
 *
 * Two parts here. Cuts are tried in the order in which readers miss least, and the first that fits is
 * printed; " ..." follows if it leaves something out:
 *
 *   the operation's "aten::", the callers, all but the last folder, the parts after the first, the middle of
 *   the name, the folder, the operation, the name, the beginning of the file's name
 *
 * A chain of calls keeps all of its parts for as long as it can, and gives up their names first. Of a row whose first part
 * most rows share, the parts after it are kept instead. */
#include "emit/cut.h"

#include <assert.h>
#include <string.h>

#include "base/utf8.h"

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
  if (at >= width - room) /* the end shows it: a file's line, mostly */
    from = width - room;
  else
    end = from + room - gap_columns;
  assert(head <= from && from < end && end <= width);
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

/* ---- Places ---- */

#define PLACE_PARTS      8  /* the last part holds the rest of the text */
#define NAME_LEAST       8  /* columns of a name that is cut; a shorter rest names nothing */
#define NAME_WANTED      12 /* columns that a name keeps as long as the operation can give way */
#define FOLDER_LEAST     4  /* columns: ".../" */
#define PLACE_REST_LEAST 12 /* columns after a file and line in which a difference can be shown */
#define UNCUT            SIZE_MAX

static const char separator[] = " > ", more[] = " ...";
enum {
  SEPARATOR_COLUMNS = sizeof separator - 1,
  MORE_COLUMNS = sizeof more - 1,
  OPERATORS_COLUMNS = 6 /* "aten::" */
};

typedef struct piece {
  tsr_text text;
  size_t columns;
} piece;

typedef struct place_part {
  piece folder, anchor, name;
} place_part;

typedef struct place {
  size_t indent; /* blanks before the first part */
  size_t count;
  place_part parts[PLACE_PARTS];
  piece op, callers; /* with what separates them from the text before */
} place;

/* What is shown of a place. */
typedef struct place_cut {
  enum { ALL_FOLDERS, LAST_FOLDER, NO_FOLDER } folders; /* ".../" for the others */
  bool has_no_callers, has_no_op, has_no_names;
  size_t most_name; /* columns of the longest name */
  size_t parts;     /* the first ones */
} place_cut;

static size_t columns_of(tsr_text text) {
  size_t columns = 0;
  uint32_t code;
  for (size_t at = 0; at < text.size_bytes; columns++)
    at += tsr__utf8_decode(text.data + at, text.size_bytes - at, &code);
  return columns;
}

static piece piece_of(const char *data, size_t size) {
  tsr_text text = {data, size};
  return (piece){text, columns_of(text)};
}

static bool has_at(tsr_text text, size_t at, const char *part) {
  size_t size = strlen(part);
  return at <= text.size_bytes && size <= text.size_bytes - at &&
         memcmp(text.data + at, part, size) == 0;
}

/* Size of the path and line that `part` begins with: up to a colon and digits before a blank or the end. A
 * time such as 10:30 does not count. */
static size_t path_size(tsr_text part) {
  bool is_number = true;
  for (size_t at = 0; at < part.size_bytes; at++) {
    if (part.data[at] != ':' || (is_number && at)) {
      is_number &= part.data[at] >= '0' && part.data[at] <= '9';
      continue;
    }
    size_t end = at + 1;
    while (end < part.size_bytes && part.data[end] >= '0' && part.data[end] <= '9') end++;
    if (end > at + 1 && (end == part.size_bytes || part.data[end] == ' ')) return end;
  }
  return 0;
}

static bool is_slash(char byte) {
  return byte == '/' || byte == '\\';
}

static place_part part_of(tsr_text text) {
  size_t size = path_size(text), blank = size && size < text.size_bytes, file = size;
  while (file && !is_slash(text.data[file - 1])) file--;
  return (place_part){.folder = piece_of(text.data, file),
                      .anchor = piece_of(text.data + file, size - file),
                      .name = piece_of(text.data + size + blank, text.size_bytes - size - blank)};
}

/* Byte position of the first caller, ", from " or ", via ", or the size. */
static size_t callers_at(tsr_text text, size_t from) {
  while (from < text.size_bytes && !has_at(text, from, ", from ") && !has_at(text, from, ", via "))
    from++;
  return from;
}

/* Byte position of the operation in brackets that a text ends with, or the size. */
static size_t op_at(tsr_text text) {
  size_t depth = 0;
  if (!text.size_bytes || text.data[text.size_bytes - 1] != ')') return text.size_bytes;
  for (size_t at = text.size_bytes; at-- > 1;) {
    depth += text.data[at] == ')';
    depth -= text.data[at] == '(';
    if (!depth) return text.data[at - 1] == ' ' ? at - 1 : text.size_bytes;
  }
  return text.size_bytes;
}

static void split_parts(tsr_text text, place *out) {
  size_t from = out->indent;
  for (size_t at = from; out->count < PLACE_PARTS - 1 && at + SEPARATOR_COLUMNS < text.size_bytes;
       at++) {
    if (!has_at(text, at, separator)) continue;
    out->parts[out->count++] = part_of((tsr_text){text.data + from, at - from});
    from = at + SEPARATOR_COLUMNS;
    at = from - 1;
  }
  out->parts[out->count++] = part_of((tsr_text){text.data + from, text.size_bytes - from});
}

static void split_place(tsr_text text, place *out) {
  *out = (place){0};
  while (out->indent < text.size_bytes && text.data[out->indent] == ' ') out->indent++;
  tsr_text line = {text.data, callers_at(text, out->indent)};
  bool has_anchor = path_size((tsr_text){text.data + out->indent, line.size_bytes - out->indent});
  size_t op = has_anchor ? op_at(line) : line.size_bytes;
  if (op < out->indent) op = line.size_bytes;
  out->op = piece_of(text.data + op, line.size_bytes - op);
  if (!has_anchor) op = line.size_bytes = text.size_bytes;
  out->callers = piece_of(text.data + line.size_bytes, text.size_bytes - line.size_bytes);
  split_parts((tsr_text){text.data, op}, out);
  assert(out->count && out->count <= PLACE_PARTS);
}

static size_t least_of(size_t a, size_t b) {
  return a < b ? a : b;
}

/* The operation without "aten::", which every reader adds. */
static bool is_operator(const piece *op) {
  return has_at(op->text, 0, " (aten::");
}

static size_t op_columns(const place *from) {
  return from->op.columns - (is_operator(&from->op) ? OPERATORS_COLUMNS : 0);
}

static void append_text(tsr__buffer *out, tsr_text text) {
  tsr__buffer_append(out, text.data, text.size_bytes);
}

static void append_op(tsr__buffer *out, const place *from) {
  tsr_text op = from->op.text;
  size_t skipped = is_operator(&from->op) ? OPERATORS_COLUMNS : 0;
  if (!op.size_bytes) return;
  tsr__buffer_text(out, " (");
  tsr__buffer_append(out, op.data + 2 + skipped, op.size_bytes - 2 - skipped);
}

/* The last folder of a path, with its slash. */
static tsr_text last_folder(tsr_text folder) {
  size_t at = folder.size_bytes;
  if (at) at--;
  while (at && !is_slash(folder.data[at - 1])) at--;
  return (tsr_text){folder.data + at, folder.size_bytes - at};
}

/* What is shown of a folder; `*is_cut`: after ".../". */
static tsr_text shown_folder(const place_part *part, place_cut cut, bool *is_cut) {
  tsr_text folder = part->folder.text, last = last_folder(folder);
  if (cut.folders == NO_FOLDER) last = (tsr_text){folder.data, 0};
  size_t columns = columns_of(last) + FOLDER_LEAST;
  *is_cut = cut.folders != ALL_FOLDERS && columns < part->folder.columns;
  return *is_cut ? last : folder;
}

static size_t folder_columns(const place_part *part, place_cut cut) {
  bool is_cut;
  tsr_text folder = shown_folder(part, cut, &is_cut);
  return columns_of(folder) + (is_cut ? FOLDER_LEAST : 0);
}

/* A part without a line is all name. */
static size_t name_columns(const place_part *part, place_cut cut) {
  if (cut.has_no_names && part->anchor.columns) return 0;
  return least_of(part->name.columns, cut.most_name);
}

static bool leaves_out(const place *from, place_cut cut) {
  return cut.parts < from->count || (cut.has_no_callers && from->callers.columns) ||
         (cut.has_no_op && from->op.columns) ||
         (cut.has_no_names && cut.has_no_op && cut.parts == 1 && from->parts[0].name.columns);
}

static size_t cut_columns(const place *from, place_cut cut) {
  assert(cut.parts && cut.parts <= from->count && from->count <= PLACE_PARTS);
  size_t columns = from->indent + (cut.parts - 1) * SEPARATOR_COLUMNS;
  for (size_t i = 0; i < cut.parts; i++) {
    const place_part *part = &from->parts[i];
    size_t name = name_columns(part, cut);
    columns +=
        folder_columns(part, cut) + part->anchor.columns + (name && part->anchor.columns) + name;
  }
  if (!cut.has_no_op) columns += op_columns(from);
  if (!cut.has_no_callers) columns += from->callers.columns;
  return columns + (leaves_out(from, cut) ? MORE_COLUMNS : 0);
}

static void append_part(tsr__buffer *out, const place_part *part, place_cut cut) {
  bool is_cut;
  tsr_text folder = shown_folder(part, cut, &is_cut);
  size_t name = name_columns(part, cut);
  if (is_cut) {
    tsr__buffer_text(out, "...");
    tsr__buffer_append(out, part->folder.text.data + part->folder.text.size_bytes - 1, 1);
  }
  append_text(out, folder);
  append_text(out, part->anchor.text);
  if (part->anchor.columns && name) tsr__buffer_text(out, " ");
  if (name) tsr__text_shorten(out, part->name.text, part->name.columns, name);
}

/* The longest names that fit. Returns the columns that it takes. */
static size_t append_cut(tsr__buffer *out, const place *from, place_cut cut, size_t columns) {
  for (place_cut longer = cut; longer.most_name < columns; cut = longer) {
    longer.most_name++;
    if (cut_columns(from, longer) > columns) break;
  }
  tsr__buffer_fill(out, ' ', from->indent);
  for (size_t i = 0; i < cut.parts; i++) {
    if (i) tsr__buffer_text(out, separator);
    append_part(out, &from->parts[i], cut);
  }
  if (!cut.has_no_op) append_op(out, from);
  if (!cut.has_no_callers) append_text(out, from->callers.text);
  if (leaves_out(from, cut)) tsr__buffer_text(out, more);
  assert(cut_columns(from, cut) <= columns);
  return cut_columns(from, cut);
}

/* The first of `cuts` that fits, of the first `parts`. Returns its columns, 0 if none fits. */
static size_t append_first(tsr__buffer *out, const place *from, const place_cut *cuts, size_t count,
                           size_t parts, size_t columns) {
  for (size_t i = 0; i < count; i++) {
    place_cut cut = cuts[i];
    cut.parts = parts;
    if (cut_columns(from, cut) <= columns) return append_cut(out, from, cut, columns);
  }
  return 0;
}

/* A file and its line, which keep their end: "...model.py:382". Returns the columns they take. */
static size_t append_anchor_end(tsr__buffer *out, const piece *anchor, size_t columns) {
  size_t dots = least_of(columns, 3);
  if (anchor->columns <= columns) columns = anchor->columns, dots = 0;
  size_t from = position_of(anchor->text, anchor->columns - (columns - dots));
  tsr__buffer_append(out, "...", dots);
  tsr__buffer_append(out, anchor->text.data + from, anchor->text.size_bytes - from);
  return columns;
}

/* As many items of a list, "a 1 GiB, b 2 MiB", as fit. Returns the columns, 0 if it is no list or the first
 * does not fit. */
static size_t append_items(tsr__buffer *out, tsr_text text, size_t columns) {
  static const char rest[] = ", ...";
  const size_t rest_columns = sizeof rest - 1;
  size_t taken = 0;
  for (size_t at = 0; at + 2 < text.size_bytes; at++)
    if (has_at(text, at, ", ") && columns_of((tsr_text){text.data, at}) + rest_columns <= columns)
      taken = at;
  if (!taken) return 0;
  tsr__buffer_append(out, text.data, taken);
  tsr__buffer_text(out, rest);
  return columns_of((tsr_text){text.data, taken}) + rest_columns;
}

static size_t shorten_words(tsr__buffer *out, tsr_text text, size_t width, size_t indent,
                            size_t columns) {
  size_t blanks = least_of(indent, columns);
  tsr_text words = {text.data + indent, text.size_bytes - indent};
  tsr__buffer_fill(out, ' ', blanks);
  size_t taken = append_items(out, words, columns - blanks);
  if (taken) return blanks + taken;
  tsr__text_shorten(out, words, width - indent, columns - blanks);
  return columns;
}

static const place_cut gentle[] = {
    {.most_name = UNCUT},
    {.most_name = UNCUT, .has_no_callers = true},
    {.most_name = UNCUT, .has_no_callers = true, .folders = LAST_FOLDER},
};
static const place_cut rough[] = {
    {.most_name = NAME_WANTED, .has_no_callers = true, .folders = LAST_FOLDER},
    {.most_name = NAME_WANTED, .has_no_callers = true, .folders = NO_FOLDER},
    {.most_name = NAME_LEAST, .has_no_callers = true, .folders = NO_FOLDER, .has_no_op = true},
};
static const place_cut nameless = {.most_name = NAME_LEAST,
                                   .has_no_callers = true,
                                   .folders = NO_FOLDER,
                                   .has_no_op = true,
                                   .has_no_names = true};
#define CUTS(list) list, sizeof list / sizeof *list

/* All parts of a chain, or the first part of a row and as many others as leave its name whole. */
static size_t append_place(tsr__buffer *out, const place *from, size_t columns, bool is_chain) {
  size_t parts = from->count;
  size_t taken = append_first(out, from, CUTS(gentle), parts, columns);
  while (!taken && !is_chain && parts > 1)
    taken = append_first(out, from, CUTS(gentle), --parts, columns);
  if (!taken) taken = append_first(out, from, CUTS(rough), parts, columns);
  for (; !taken && parts; parts--) taken = append_first(out, from, &nameless, 1, parts, columns);
  return taken;
}

size_t tsr__place_shorten(tsr__buffer *out, tsr_text text, size_t width, size_t columns,
                          bool is_chain) {
  place from;
  if (width <= columns) {
    append_text(out, text);
    return width;
  }
  split_place(text, &from);
  const piece *anchor = &from.parts[0].anchor;
  if (!anchor->columns && from.count == 1)
    return shorten_words(out, text, width, from.indent, columns);
  size_t taken = append_place(out, &from, columns, is_chain);
  if (taken) return taken;
  if (!anchor->columns) return shorten_words(out, text, width, from.indent, columns);
  size_t indent = least_of(from.indent, columns);
  tsr__buffer_fill(out, ' ', indent);
  return indent + append_anchor_end(out, anchor, columns - indent);
}

/* What follows a place that many rows share. The operation tells rows of one line apart, so names go first. */
static const place_cut after_shared[] = {
    {.most_name = UNCUT},
    {.most_name = UNCUT, .has_no_callers = true, .folders = LAST_FOLDER},
    {.most_name = NAME_WANTED, .has_no_callers = true, .folders = NO_FOLDER},
    {.most_name = NAME_LEAST, .has_no_callers = true, .folders = NO_FOLDER},
    {.has_no_names = true, .has_no_callers = true, .folders = NO_FOLDER},
    {.most_name = NAME_LEAST, .has_no_callers = true, .folders = NO_FOLDER, .has_no_op = true},
    {.has_no_names = true, .has_no_callers = true, .folders = NO_FOLDER, .has_no_op = true},
};

size_t tsr__place_shorten_rest(tsr__buffer *out, tsr_text text, size_t width, size_t columns) {
  static const char arrow[] = "> ";
  const size_t arrow_columns = sizeof arrow - 1, begin = out->size;
  place from;
  if (width <= columns) {
    append_text(out, text);
    return width;
  }
  split_place(text, &from);
  if (!from.parts[0].anchor.columns || from.count < 2 || !from.parts[1].anchor.columns) return 0;
  size_t taken = append_first(out, &from, CUTS(gentle), from.count, columns);
  if (taken || columns <= from.indent + arrow_columns) return taken;
  columns -= from.indent + arrow_columns;
  tsr__buffer_fill(out, ' ', from.indent);
  tsr__buffer_text(out, arrow);
  place rest = from;
  rest.indent = 0;
  rest.count = from.count - 1;
  memmove(rest.parts, rest.parts + 1, rest.count * sizeof *rest.parts);
  taken = append_first(out, &rest, CUTS(after_shared), rest.count, columns);
  if (taken) return from.indent + arrow_columns + taken;
  if (!out->failed) out->size = begin;
  return 0;
}

tsr_text tsr__place_first(tsr_text text) {
  place from;
  split_place(text, &from);
  const place_part *first = &from.parts[0];
  if (!first->anchor.columns || from.count < 2 || !from.parts[1].anchor.columns)
    return (tsr_text){"", 0};
  return (tsr_text){text.data + from.indent,
                    first->folder.text.size_bytes + first->anchor.text.size_bytes};
}

static bool is_same_text(tsr_text a, tsr_text b) {
  return a.size_bytes == b.size_bytes && memcmp(a.data, b.data, a.size_bytes) == 0;
}

/* The only text that can be so frequent is the one left over when different ones are set off against each other. */
tsr_text tsr__place_shared(tsr__text_at_fn *at, const void *context, size_t count) {
  enum { LEAST = 3 };
  tsr_text candidate = {"", 0};
  size_t votes = 0, same = 0, places = 0;
  for (size_t i = 0; i < count; i++) {
    tsr_text first = tsr__place_first(at(context, i));
    if (!first.size_bytes) continue;
    if (!votes) candidate = first;
    votes += is_same_text(first, candidate) ? 1 : (size_t)-1;
  }
  for (size_t i = 0; i < count; i++) {
    tsr_text text = at(context, i), first = tsr__place_first(text);
    places += tsr__place_least(text) != 0;
    same += first.size_bytes && is_same_text(first, candidate);
  }
  assert(same <= places);
  return same >= LEAST && same > places / 2 ? candidate : (tsr_text){"", 0};
}

/* ---- What differs ---- */

/* The caller that contains column `at` of the callers: ", from train.py:9". */
static piece caller_at(const piece *callers, size_t at) {
  tsr_text text = callers->text;
  size_t byte = position_of(text, at), begin = 0, end = callers_at(text, 1);
  while (end <= byte && end < text.size_bytes) {
    begin = end;
    end = callers_at(text, begin + 1);
  }
  return piece_of(text.data + begin, end - begin);
}

/* The first part, and one more piece of the text: that which contains column `at`. False if that is in the first
 * part. */
static bool keep_piece(const place *from, size_t width, size_t at, place *out) {
  size_t callers = width - from->callers.columns, end = callers - from->op.columns;
  assert(width >= from->callers.columns + from->op.columns);
  *out = (place){.indent = from->indent, .count = 1};
  out->parts[0] = from->parts[0];
  if (at >= callers && from->callers.columns)
    out->callers = caller_at(&from->callers, at - callers);
  else if (at >= end && from->op.columns)
    out->op = from->op;
  for (size_t i = from->count; i-- > 1 && !out->callers.columns && !out->op.columns;) {
    const place_part *part = &from->parts[i];
    end -= part->folder.columns + part->anchor.columns + part->name.columns;
    end -= part->anchor.columns && part->name.columns;
    end -= SEPARATOR_COLUMNS;
    if (at < end) continue;
    out->parts[out->count++] = *part;
    break;
  }
  return out->count > 1 || out->callers.columns || out->op.columns;
}

/* The file and line, and the middle of a caller or an operation cut. Returns the columns; 0 if too little room is
 * left for that. */
static size_t append_cut_piece(tsr__buffer *out, const place *kept, size_t columns) {
  const place_part *part = &kept->parts[0];
  const piece *rest = kept->callers.columns ? &kept->callers : &kept->op;
  place_cut cut = {
      .folders = NO_FOLDER, .has_no_names = true, .has_no_callers = true, .has_no_op = true};
  size_t taken = kept->indent + folder_columns(part, cut) + part->anchor.columns;
  if (kept->count > 1 || columns < taken + PLACE_REST_LEAST) return 0;
  tsr__buffer_fill(out, ' ', kept->indent);
  append_part(out, part, cut);
  size_t room = least_of(columns - taken, rest->columns);
  tsr__text_shorten(out, rest->text, rest->columns, room);
  return taken + room;
}

/* Columns of a number at the end, " #12", which rows have that would read alike in full; 0 without one. */
static size_t number_columns(tsr_text text) {
  size_t at = text.size_bytes;
  while (at && text.data[at - 1] >= '0' && text.data[at - 1] <= '9') at--;
  bool is_number =
      at < text.size_bytes && at >= 2 && text.data[at - 1] == '#' && text.data[at - 2] == ' ';
  return is_number ? text.size_bytes - at + 2 : 0;
}

/* The caller alone, "from train.py:9", where both do not fit, of its file the end if need be; or the file and line, and the number that tells
 * rows apart: "attention.py:285 #12". Returns the columns, 0 if that does not fit either. */
static size_t append_caller(tsr__buffer *out, const place *kept, size_t columns) {
  static const char comma[] = ", ";
  const size_t comma_columns = sizeof comma - 1;
  const place_part *part = &kept->parts[0];
  tsr_text text = kept->callers.text;
  place_cut cut = {
      .folders = NO_FOLDER, .has_no_names = true, .has_no_callers = true, .has_no_op = true};
  size_t number = number_columns(text), alone = kept->callers.columns - comma_columns;
  size_t taken = kept->indent + folder_columns(part, cut) + part->anchor.columns + number;
  if (!kept->callers.columns || !has_at(text, 0, comma)) return 0;
  if (number && taken <= columns) {
    tsr__buffer_fill(out, ' ', kept->indent);
    append_part(out, part, cut);
    tsr__buffer_append(out, text.data + text.size_bytes - number, number);
    return taken;
  }
  text = (tsr_text){text.data + comma_columns, text.size_bytes - comma_columns};
  size_t word = 0; /* "from " or "via " */
  while (word < text.size_bytes && text.data[word] != ' ') word++;
  word += word < text.size_bytes;
  size_t before = kept->indent + word;
  bool fits = kept->indent + alone <= columns;
  if (!fits && columns < before + PLACE_REST_LEAST) return 0;
  tsr__buffer_fill(out, ' ', kept->indent);
  if (fits) {
    append_text(out, text);
    return kept->indent + alone;
  }
  tsr__buffer_append(out, text.data, word);
  piece file = piece_of(text.data + word, text.size_bytes - word);
  return before + append_anchor_end(out, &file, columns - before);
}

/* The second of two places alone, "> linear.py:125 forward", where both do not fit: the first is what rows that
 * would read alike have in common. Of its file, the end if need be. Returns the columns, 0 if that does not fit
 * either. */
static size_t append_callee(tsr__buffer *out, const place *kept, size_t columns) {
  static const char arrow[] = "> ";
  const place_part *part = &kept->parts[1];
  place_cut cut = {.most_name = UNCUT, .folders = NO_FOLDER};
  if (kept->count < 2 || !part->anchor.columns) return 0;
  for (int round = 0; round < 2; round++, cut.has_no_names = true) {
    size_t name = name_columns(part, cut);
    size_t taken = kept->indent + sizeof arrow - 1 + folder_columns(part, cut) +
                   part->anchor.columns + (name ? name + 1 : 0);
    if (taken > columns) continue;
    tsr__buffer_fill(out, ' ', kept->indent);
    tsr__buffer_text(out, arrow);
    append_part(out, part, cut);
    return taken;
  }
  size_t before = kept->indent + sizeof arrow - 1;
  if (columns < before + PLACE_REST_LEAST) return 0;
  tsr__buffer_fill(out, ' ', kept->indent);
  tsr__buffer_text(out, arrow);
  return before + append_anchor_end(out, &part->anchor, columns - before);
}

static size_t show_column(tsr__buffer *out, const place *from, tsr_text text, size_t width,
                          size_t columns, size_t at) {
  const place_part *first = &from->parts[0];
  place_cut cut = {
      .folders = NO_FOLDER, .has_no_names = true, .has_no_callers = true, .has_no_op = true};
  size_t whole = from->indent + first->folder.columns + first->anchor.columns;
  size_t taken = from->indent + folder_columns(first, cut) + first->anchor.columns;
  if (!first->anchor.columns || at <= whole || columns < taken + PLACE_REST_LEAST) {
    tsr__text_shorten_at(out, text, width, columns, at);
    return columns;
  }
  size_t begin = from->indent + first->folder.text.size_bytes + first->anchor.text.size_bytes;
  tsr_text rest = {text.data + begin, text.size_bytes - begin};
  tsr__buffer_fill(out, ' ', from->indent);
  append_part(out, first, cut);
  size_t rest_columns = width - whole, room = least_of(columns - taken, rest_columns);
  tsr__text_shorten_at(out, rest, rest_columns, room, at - whole);
  return taken + room;
}

size_t tsr__place_shorten_at(tsr__buffer *out, tsr_text text, size_t width, size_t columns,
                             size_t at, bool keeps_pieces) {
  static const place_cut cuts[] = {{.most_name = UNCUT},
                                   {.most_name = NAME_LEAST},
                                   {.most_name = NAME_LEAST, .folders = NO_FOLDER},
                                   {.folders = NO_FOLDER, .has_no_names = true}};
  place from, kept;
  size_t taken = 0;
  if (width <= columns) {
    append_text(out, text);
    return width;
  }
  split_place(text, &from);
  if (keeps_pieces && from.parts[0].anchor.columns && keep_piece(&from, width, at, &kept)) {
    taken = append_first(out, &kept, CUTS(cuts), kept.count, columns);
    if (!taken) taken = append_cut_piece(out, &kept, columns);
    if (!taken) taken = append_caller(out, &kept, columns);
    if (!taken) taken = append_callee(out, &kept, columns);
  }
  return taken ? taken : show_column(out, &from, text, width, columns, at);
}

/* What a module's name says of where it was called needs no more room: "nn.linear at model.py:39". */
size_t tsr__place_least(tsr_text text) {
  static const char called_at[] = " at ";
  place from;
  split_place(text, &from);
  const piece *anchor = &from.parts[0].anchor;
  for (size_t at = anchor->text.size_bytes; at--;)
    if (has_at(anchor->text, at, called_at))
      return from.indent +
             columns_of((tsr_text){anchor->text.data + at, anchor->text.size_bytes - at}) +
             MORE_COLUMNS;
  return anchor->columns ? from.indent + anchor->columns + PLACE_REST_LEAST : 0;
}
