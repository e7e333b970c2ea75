/* emitter.c - one description, two output formats. See emitter.h for the use.
 *
 * JSON is written immediately: `levels` is the stack of open containers, and each records
 * whether a comma is due. Text must wait for alignment: fields and table rows are kept as
 * cells until the block ends, then measured and printed.
 *
 *   describe ──► JSON ───────────────────────────────────┐
 *           └──► text ──► lines ─────────────────────────┤──► out ──► write, 64 KiB at a time
 *                    └──► cells, row by row ──► layout ──┘
 *
 * The texts of cells follow one another in `cell_text`, already cleaned; `cells` holds the rows one
 * after the other, `column_count` cells each. A block of fields is a table of two columns without a
 * header, closed by the next call that is not a field.
 *
 * Invariants: columns == NULL ? no cells : cells.count is a multiple of column_count between calls;
 * in text format everything in `out` went through tsr__text_clean or is a constant of this file.
 * After a failure `out` stays small: it is emptied instead of written.
 */
#include "emit/emitter.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/format.h"
#include "base/intern.h"
#include "emit/cut.h"
#include "emit/text.h"
#include "tessera/category.h"

#define FLUSH_BYTES   ((size_t)64 << 10)
#define ESCAPE_BYTES  ((size_t)4 << 10) /* of a long string, between two checks of FLUSH_BYTES */
#define PAGE_WIDTH    100               /* what layouts are made for if the width is unlimited */
#define BLOCK_INDENT  2                 /* of tables and fields */
#define COLUMN_GAP    2                 /* spaces between columns */
#define ELASTIC_LEAST 16                /* columns; a text cut shorter than this is useless */
#define ELASTIC_MOST  26 /* columns that must be left even if files and lines are longer */
#define FOLD_INDENT   5  /* of a cell that has its own line */
#define WRAPPED_ENOUGH \
  24 /* columns of words that go on below, before numbers are left out for them */

static const tsr__column field_columns[] = {{NULL, "", TSR__LEFT}, {NULL, "", TSR__WRAPPED}};

/* ---- Output ---- */

static bool out_of_memory(const tsr__emitter *emitter) {
  return emitter->out.failed || emitter->scratch.failed || emitter->cell_text.failed ||
         emitter->cells_failed;
}

/* Write and empty `out` if it holds at least `least` bytes. */
static void flush_from(tsr__emitter *emitter, size_t least) {
  if (emitter->out.size < least || !emitter->out.size) return;
  if (!emitter->write_failed && !out_of_memory(emitter) &&
      emitter->write(emitter->context, emitter->out.data, emitter->out.size))
    emitter->write_failed = true;
  emitter->out.size = 0;
}

void tsr__emitter_init(tsr__emitter *emitter, const tsr_report_options *options,
                       tsr_write_fn *write, void *context) {
  assert(write);
  *emitter = (tsr__emitter){.write = write, .context = context};
  if (options) emitter->options = *options;
}

bool tsr__emitter_is_text(const tsr__emitter *emitter) {
  return emitter->options.format != TSR_REPORT_JSON;
}

static bool is_json(const tsr__emitter *emitter) {
  return emitter->options.format == TSR_REPORT_JSON;
}

/* Of the text, only lines in the style TSR__VERDICT are shown. */
static bool is_verdict(const tsr__emitter *emitter) {
  return emitter->options.format == TSR_REPORT_VERDICT;
}

size_t tsr__emitter_width(const tsr__emitter *emitter) {
  return emitter->options.width ? emitter->options.width : PAGE_WIDTH;
}

/* ---- Values ---- */

tsr__cell tsr__string(const char *string) {
  return tsr__text(tsr__text_of(string));
}

static void append_json_string(tsr__emitter *emitter, tsr_text text) {
  tsr__buffer_text(&emitter->out, "\"");
  for (size_t at = 0; at < text.size_bytes;) {
    at = tsr__json_escape(&emitter->out, text, at, at + ESCAPE_BYTES);
    flush_from(emitter, FLUSH_BYTES);
  }
  tsr__buffer_text(&emitter->out, "\"");
}

/* Tenths in integers, because printf's decimal point depends on the locale and JSON's does not. */
static void append_json_percent(tsr__buffer *out, uint64_t part, uint64_t whole) {
  double percent = whole ? 100.0 * ((double)part / (double)whole) : 0;
  uint64_t tenths = percent < 1e15 ? (uint64_t)(percent * 10 + 0.5) : 0;
  tsr__buffer_printf(out, "%" PRIu64 ".%" PRIu64, tenths / 10, tenths % 10);
}

/* 17 digits tell any two numbers apart. */
static void append_real(tsr__buffer *out, tsr__cell value) {
  char text[512]; /* the largest number with "%.3f" takes 313 */
  if (!isfinite(value.real)) {
    tsr__buffer_text(out, "null");
    return;
  }
  (void)snprintf(text, sizeof text, value.format ? value.format : "%.17g", value.real);
  char *comma = strchr(text, ','); /* of a locale */
  if (comma) *comma = '.';
  char *exponent = strchr(text, 'e');
  if (!value.format && exponent) { /* "1e-07" is 1e-7, as JSON's writers have it */
    char *digits = exponent + 1 + (exponent[1] == '-' || exponent[1] == '+');
    size_t zeros = strspn(digits, "0");
    char *to = exponent + 1 + (exponent[1] == '-');
    memmove(to, digits + zeros, strlen(digits + zeros) + 1);
  }
  tsr__buffer_text(out, text);
  if (!value.format && !strpbrk(text, ".e")) tsr__buffer_text(out, ".0");
}

static void append_json_value(tsr__emitter *emitter, tsr__cell value) {
  tsr__buffer *out = &emitter->out;
  switch (value.kind) {
  case TSR__CELL_NOTHING: tsr__buffer_text(out, "null"); break;
  case TSR__CELL_BYTES:
  case TSR__CELL_COUNT:
  case TSR__CELL_ADDRESS: tsr__buffer_printf(out, "%" PRIu64, value.number); break;
  case TSR__CELL_INDEX:
  case TSR__CELL_TIME: tsr__buffer_printf(out, "%" PRId64, value.integer); break;
  case TSR__CELL_TEXT: append_json_string(emitter, value.text); break;
  case TSR__CELL_BOOL: tsr__buffer_text(out, value.number ? "true" : "false"); break;
  case TSR__CELL_PERCENT: append_json_percent(out, value.number, value.whole); break;
  case TSR__CELL_REAL: append_real(out, value); break;
  }
}

static const char *text_of_number(tsr__cell value, char text[TSR__FORMAT_BYTES]) {
  switch (value.kind) {
  case TSR__CELL_BYTES: return tsr__format_size(value.number, text);
  case TSR__CELL_COUNT: return tsr__format_count(value.number, text);
  case TSR__CELL_INDEX:
    return value.integer < 0 ? "-" : tsr__format_count((uint64_t)value.integer, text);
  case TSR__CELL_TIME: return tsr__format_time(value.integer, text);
  case TSR__CELL_BOOL: return value.number ? "yes" : "no";
  case TSR__CELL_PERCENT: return tsr__format_percent(value.number, value.whole, text);
  case TSR__CELL_ADDRESS:
    (void)snprintf(text, TSR__FORMAT_BYTES, "0x%" PRIx64, value.number);
    return text;
  case TSR__CELL_NOTHING:
  case TSR__CELL_REAL:
  case TSR__CELL_TEXT: break;
  }
  return "-";
}

/* Returns the columns it takes. */
static size_t append_text_value(tsr__buffer *out, tsr__cell value) {
  if (value.kind == TSR__CELL_TEXT) return tsr__text_clean(out, value.text);
  if (value.kind == TSR__CELL_REAL) {
    size_t before = out->size;
    append_real(out, value);
    return out->size - before;
  }
  char text[TSR__FORMAT_BYTES];
  size_t columns = tsr__text_clean(out, tsr__text_of(text_of_number(value, text)));
  if (value.kind != TSR__CELL_TIME) return columns;
  tsr__buffer_text(out, " UTC");
  return columns + 4;
}

/* ---- JSON ---- */

static void break_line(tsr__emitter *emitter) {
  tsr__buffer_text(&emitter->out, "\n");
  tsr__buffer_fill(&emitter->out, ' ', 2 * emitter->depth);
}

/* Comma, line break and key: everything before a value. */
static void begin_member(tsr__emitter *emitter, tsr_text key) {
  flush_from(emitter, FLUSH_BYTES);
  if (emitter->depth) {
    tsr__emitter_level *level = &emitter->levels[emitter->depth - 1];
    assert((level->close == '}') == (key.data != NULL));
    if (level->has_members)
      tsr__buffer_text(&emitter->out, level->is_inline && !level->is_compact ? ", " : ",");
    if (!level->is_inline) break_line(emitter);
    level->has_members = true;
  }
  if (!key.data) return;
  append_json_string(emitter, key);
  tsr__buffer_text(&emitter->out, emitter->levels[emitter->depth - 1].is_compact ? ":" : ": ");
}

/* ---- JSON: what is declared ---- */

static const tsr__emitter_level *innermost(const tsr__emitter *emitter) {
  return emitter->depth ? &emitter->levels[emitter->depth - 1] : NULL;
}

/* The declaration of a member, or an element, of the open container; NULL if nothing is declared there. */
static const tsr_field *declared(const tsr__emitter *emitter, tsr_text key) {
  const tsr__emitter_level *level = innermost(emitter);
  if (!level || !level->record || level->close == ']') return level ? level->field : NULL;
  return tsr_record_field(level->record, key.data, key.size_bytes);
}

#ifndef NDEBUG
static bool is_value_declared(const tsr__emitter *emitter, tsr_text key, tsr__cell value) {
  const tsr__emitter_level *level = innermost(emitter);
  if (!level || (!level->record && !level->field)) return true;
  const tsr_field *field = declared(emitter, key);
  bool is_element = level->field && (level->close == ']' || field->kind == TSR_FIELD_MAP);
  bool is_single = field && (is_element || !field->is_list || value.kind == TSR__CELL_NOTHING);
  return is_single && tsr__field_allows(field, &value);
}

static bool is_json_declared(const tsr__emitter *emitter, const char *key) {
  const tsr__emitter_level *level = innermost(emitter);
  if (!level || (!level->record && !level->field)) return true;
  const tsr_field *field = declared(emitter, tsr__text_of(key));
  return field && field->kind == TSR_FIELD_JSON;
}

/* An array is a list or a pair; an object is a record or a map, and outside an array no list. */
static bool is_container_declared(const tsr__emitter *emitter, const tsr_field *field, char open) {
  const tsr__emitter_level *level = innermost(emitter);
  if (!level || (!level->record && !level->field)) return true;
  if (!field) return false;
  bool is_element = level->close == ']' && field->is_list;
  if (open == '[') return field->kind == TSR_FIELD_PAIR || (field->is_list && !is_element);
  bool is_object = field->kind == TSR_FIELD_MAP || field->kind == TSR_FIELD_RECORD;
  return is_object && field->is_list == is_element;
}
#endif

/* What is in a container that is on one line is on that line, too. */
static void open_container(tsr__emitter *emitter, const char *key, const char *brackets,
                           tsr__emitter_level how) {
  if (!is_json(emitter)) return;
  assert(emitter->depth < TSR__EMITTER_DEPTH);
  const tsr_field *field = declared(emitter, tsr__text_of(key));
  assert(is_container_declared(emitter, field, brackets[0]));
  begin_member(emitter, tsr__text_of(key));
  how.close = brackets[1];
  how.field = field;
  how.record = emitter->depth ? (field ? field->record : NULL) : emitter->fields;
  if (emitter->depth) {
    how.is_inline |= emitter->levels[emitter->depth - 1].is_inline;
    how.is_compact |= emitter->levels[emitter->depth - 1].is_compact;
  }
  emitter->levels[emitter->depth++] = how;
  tsr__buffer_append(&emitter->out, brackets, 1);
}

void tsr__emit_object(tsr__emitter *emitter, const char *key) {
  open_container(emitter, key, "{}", (tsr__emitter_level){.is_inline = false});
}

void tsr__emit_array(tsr__emitter *emitter, const char *key) {
  open_container(emitter, key, "[]", (tsr__emitter_level){.is_inline = false});
}

void tsr__emit_inline_object(tsr__emitter *emitter, const char *key) {
  open_container(emitter, key, "{}", (tsr__emitter_level){.is_inline = true});
}

void tsr__emit_inline_array(tsr__emitter *emitter, const char *key) {
  open_container(emitter, key, "[]", (tsr__emitter_level){.is_inline = true});
}

void tsr__emit_json_line(tsr__emitter *emitter, const char *key) {
  open_container(emitter, key, "{}",
                 (tsr__emitter_level){.is_inline = true, .is_compact = true, .ends_line = true});
}

void tsr__emit_json(tsr__emitter *emitter, const char *key, tsr_text json) {
  if (!is_json(emitter)) return;
  assert(is_json_declared(emitter, key));
  begin_member(emitter, tsr__text_of(key));
  tsr__buffer_append(&emitter->out, json.data, json.size_bytes);
}

void tsr__emit_item(tsr__emitter *emitter, tsr__cell value) {
  if (!is_json(emitter)) return;
  assert(emitter->depth && is_value_declared(emitter, (tsr_text){NULL, 0}, value));
  begin_member(emitter, (tsr_text){NULL, 0});
  append_json_value(emitter, value);
}

void tsr__emit_end(tsr__emitter *emitter) {
  if (!is_json(emitter)) return;
  assert(emitter->depth);
  tsr__emitter_level level = emitter->levels[--emitter->depth];
  if (level.has_members && !level.is_inline) break_line(emitter);
  tsr__buffer_append(&emitter->out, &level.close, 1);
  if (level.ends_line || !emitter->depth) tsr__buffer_text(&emitter->out, "\n");
}

void tsr__emit_member(tsr__emitter *emitter, tsr_text key, tsr__cell value) {
  if (!is_json(emitter)) return;
  assert(emitter->depth && is_value_declared(emitter, key, value));
  begin_member(emitter, key.data ? key : tsr__text_of(""));
  append_json_value(emitter, value);
}

/* ---- Text: lines ---- */

static void end_line(tsr__emitter *emitter) {
  tsr__buffer_text(&emitter->out, "\n");
  emitter->line_count++;
}

static void begin_text(tsr__emitter *emitter) {
  if (emitter->wants_space && emitter->has_lines && !is_verdict(emitter)) end_line(emitter);
  emitter->wants_space = false;
  emitter->has_lines = true;
}

static bool is_verdict_style(tsr__style style) {
  return style == TSR__VERDICT || style == TSR__ALARM;
}

static void print_line(tsr__emitter *emitter, tsr__style style, size_t indent, tsr_text text) {
  static const char *const starts[] = {"", "\033[1m", "\033[2m", "\033[1;31m", "\033[1m"};
  assert((size_t)style < sizeof starts / sizeof *starts);
  if (is_verdict(emitter) && !is_verdict_style(style)) return;
  if (emitter->options.omits_verdict && !is_verdict(emitter) && is_verdict_style(style)) {
    const char *colon = text.size_bytes ? memchr(text.data, ':', text.size_bytes) : NULL;
    bool is_name = colon && text.size_bytes > 7 && memcmp(text.data, "Device ", 7) == 0;
    if (!is_name || !emitter->options.keeps_device_names) return;
    text.size_bytes = (size_t)(colon - text.data) + 1;
  }
  bool is_styled = emitter->options.color && style != TSR__PLAIN;
  begin_text(emitter);
  tsr__buffer_fill(&emitter->out, ' ', indent);
  if (is_styled) tsr__buffer_text(&emitter->out, starts[style]);
  (void)tsr__text_clean(&emitter->out, text);
  if (is_styled) tsr__buffer_text(&emitter->out, "\033[0m");
  end_line(emitter);
  flush_from(emitter, FLUSH_BYTES);
}

/* ---- Text: where lines are broken ---- */

/* Whether byte `at` is the space of "4.75 GiB" or "99.5 %". */
static bool is_before_unit(tsr_text text, size_t at) {
  assert(at && at < text.size_bytes);
  char before = text.data[at - 1], unit = at + 1 < text.size_bytes ? text.data[at + 1] : 0;
  bool is_binary = at + 3 < text.size_bytes && memcmp(text.data + at + 2, "iB", 2) == 0;
  return before >= '0' && before <= '9' && (unit == '%' || is_binary);
}

/* Bytes of a line's text that fit in `room` columns: up to the last space that leaves it short enough, or
 * up to the first one. A byte is taken for a column, which breaks other scripts early. */
static size_t fitting(tsr_text text, size_t room) {
  size_t space = 0;
  for (size_t i = 1; i < text.size_bytes; i++) {
    if (i > room && space) break;
    if (text.data[i] == ' ' && !is_before_unit(text, i)) space = i;
  }
  return text.size_bytes <= room || !space ? text.size_bytes : space;
}

/* The bytes of a wrapped cell's text that go on one line of `columns`: up to the last space or comma that leaves it
 * short enough, or up to the first one. */
static size_t fitting_cell(tsr_text text, size_t columns) {
  size_t size = 0;
  for (size_t i = 1; i < text.size_bytes && (i <= columns || !size); i++) {
    bool is_space = text.data[i] == ' ' && !is_before_unit(text, i);
    if (is_space || (text.data[i - 1] == ',' && text.data[i] != ' ')) size = i;
  }
  return text.size_bytes <= columns || !size ? text.size_bytes : size;
}

/* Take the next line of `columns` from a wrapped cell's text. */
static tsr_text take_line(tsr_text *left, size_t columns) {
  tsr_text line = {left->data, fitting_cell(*left, columns)};
  size_t size = line.size_bytes;
  if (size < left->size_bytes && left->data[size] == ' ') size++;
  *left = (tsr_text){left->data + size, left->size_bytes - size};
  return line;
}

/* The widest line of a text that is broken wherever it can be. */
static size_t widest_word(tsr_text text) {
  size_t widest = 0;
  while (text.size_bytes) {
    size_t size = take_line(&text, 1).size_bytes;
    if (size > widest) widest = size;
  }
  return widest;
}

/* ---- Text: cells and their layout ---- */

static void add_cell(tsr__emitter *emitter, tsr__cell value) {
  tsr__laid_cell cell = {.offset = emitter->cell_text.size};
  cell.width = append_text_value(&emitter->cell_text, value);
  cell.size_bytes = emitter->cell_text.size - cell.offset;
  assert(emitter->columns && (cell.width <= cell.size_bytes || emitter->cell_text.failed));
  if (!TSR__VECTOR_PUSH(&emitter->cells, cell)) emitter->cells_failed = true;
}

static size_t column_width(const tsr__emitter *emitter, size_t column) {
  const char *title = emitter->columns[column].title;
  size_t width = emitter->has_header ? tsr__text_of(title).size_bytes : 0;
  if (emitter->least_widths && width < emitter->least_widths[column])
    width = emitter->least_widths[column];
  for (size_t i = column; i < emitter->cells.count; i += emitter->column_count)
    if (emitter->cells.items[i].width > width) width = emitter->cells.items[i].width;
  return width;
}

/* Texts that were cut, as they are shown, and for each the cell that it shows. */
typedef struct cut_texts {
  tsr__intern shown;
  TSR__VECTOR(size_t) cells;
  tsr__buffer text;
  tsr_text shared; /* the file and line that most cells name first; empty: none */
} cut_texts;

/* Spaces before a column that is not the first. */
static size_t gap_of(const tsr__emitter *emitter) {
  return emitter->least_widths ? 1 : COLUMN_GAP;
}

static bool is_elastic(const tsr__emitter *emitter, size_t column) {
  tsr__align align = emitter->columns[column].align;
  return align == TSR__ELASTIC || align == TSR__CHAIN;
}

/* How the rows of a table are printed. */
typedef struct layout {
  size_t *widths;
  tsr_text *left; /* by column: of the row being printed, what comes on further lines */
  size_t elastic; /* the column that is cut to fit; column_count: none */
  size_t spare;   /* spare columns from this one on are left out; column_count: none are */
  bool is_folded; /* its cells have lines of their own: above the row if it is first, else below */
  bool is_cut;    /* the elastic column is narrower than its widest cell */
  cut_texts cuts;
} layout;

static bool is_shown(const tsr__emitter *emitter, const layout *laid, size_t column) {
  bool is_left_out = column >= laid->spare && emitter->columns[column].align == TSR__SPARE;
  return emitter->columns[column].title && !is_left_out;
}

/* The narrowest that an elastic cell is worth: the file and line of the longest and some of what follows,
 * within reason. */
static size_t elastic_least(const tsr__emitter *emitter, const layout *laid) {
  size_t least = 0;
  for (size_t i = laid->elastic; i < emitter->cells.count; i += emitter->column_count) {
    tsr__laid_cell cell = emitter->cells.items[i];
    if (!cell.size_bytes) continue;
    size_t place =
        tsr__place_least((tsr_text){emitter->cell_text.data + cell.offset, cell.size_bytes});
    if (place > least) least = place < cell.width ? place : cell.width;
  }
  if (least < ELASTIC_LEAST) least = ELASTIC_LEAST;
  if (least > ELASTIC_MOST) least = ELASTIC_MOST;
  return least < laid->widths[laid->elastic] ? least : laid->widths[laid->elastic];
}

/* Give the elastic cells, which would take `natural` columns, lines of their own. */
static void fold(const tsr__emitter *emitter, size_t natural, layout *laid) {
  size_t room = emitter->options.width, width = room > FOLD_INDENT ? room - FOLD_INDENT : 0;
  if (width < ELASTIC_LEAST) width = ELASTIC_LEAST;
  laid->is_folded = true;
  laid->widths[laid->elastic] = width < natural ? width : natural;
}

/* Make the row fit the terminal if possible: the elastic column is cut, or gets a line of its own if too little
 * would be left of it. */
static void squeeze(const tsr__emitter *emitter, size_t total, layout *laid) {
  assert(emitter->options.width && total > emitter->options.width);
  size_t excess = total - emitter->options.width, natural = laid->widths[laid->elastic];
  size_t cut = natural > excess ? natural - excess : 0, least = elastic_least(emitter, laid);
  laid->is_cut = true;
  if (cut < least && emitter->has_header)
    fold(emitter, natural, laid);
  else
    laid->widths[laid->elastic] = cut > least ? cut : least;
}

/* Leave out one more spare column. Returns the columns that this saves, 0 if there are no more. */
static size_t leave_out(const tsr__emitter *emitter, layout *laid) {
  for (size_t i = laid->spare; i-- > 0;) {
    if (emitter->columns[i].align != TSR__SPARE || !emitter->columns[i].title) continue;
    laid->spare = i;
    return laid->widths[i] + gap_of(emitter);
  }
  return 0;
}

/* Whether the elastic column, if any, can be cut so far that `total` columns become as many as there are. */
static bool can_give_way(const tsr__emitter *emitter, size_t total, const layout *laid) {
  size_t excess = total - emitter->options.width;
  if (laid->elastic == emitter->column_count) return false;
  return laid->widths[laid->elastic] >= elastic_least(emitter, laid) + excess;
}

/* The spare columns that a folded row, which is `whole` columns wide with all of them and the elastic one, has room
 * for. */
static void restore(const tsr__emitter *emitter, size_t whole, layout *laid) {
  size_t natural = column_width(emitter, laid->elastic) + gap_of(emitter), saved = 1;
  size_t room = emitter->options.width + natural;
  laid->spare = emitter->column_count;
  while (saved && whole > room) whole -= saved = leave_out(emitter, laid);
}

static tsr_text text_of_cell(const tsr__emitter *emitter, size_t cell) {
  const tsr__laid_cell *laid = &emitter->cells.items[cell];
  assert(cell < emitter->cells.count);
  assert(laid->offset + laid->size_bytes <= emitter->cell_text.size);
  if (!laid->size_bytes) return (tsr_text){"", 0};
  return (tsr_text){emitter->cell_text.data + laid->offset, laid->size_bytes};
}

/* The narrowest that a wrapped column can be. */
static size_t wrapped_least(const tsr__emitter *emitter, size_t column) {
  size_t least = emitter->has_header ? tsr__text_of(emitter->columns[column].title).size_bytes : 0;
  for (size_t i = column; i < emitter->cells.count; i += emitter->column_count) {
    size_t word = widest_word(text_of_cell(emitter, i));
    if (word > least) least = word;
  }
  return least;
}

/* The widest wrapped column that can be narrower, of equals the last, but is wider than `least`; column_count: none. */
static size_t widest_wrapped(const tsr__emitter *emitter, const layout *laid, size_t least) {
  size_t widest = emitter->column_count;
  for (size_t i = 0; i < emitter->column_count; i++) {
    if (emitter->columns[i].align != TSR__WRAPPED || !emitter->columns[i].title) continue;
    bool is_wider = widest == emitter->column_count || laid->widths[i] >= laid->widths[widest];
    if (is_wider && laid->widths[i] > least && laid->widths[i] > wrapped_least(emitter, i))
      widest = i;
  }
  return widest;
}

/* Narrow the wrapped columns, always the widest, until `total` columns become as many as there are, or all are as
 * narrow as `least`. Returns the total then. */
static size_t wrap(const tsr__emitter *emitter, size_t total, size_t least, layout *laid) {
  for (size_t i; total > emitter->options.width; total--) {
    if ((i = widest_wrapped(emitter, laid, least)) == emitter->column_count) break;
    laid->widths[i]--;
  }
  return total;
}

/* Widths of all columns. An unlimited width shortens nothing. */
static void lay_out(const tsr__emitter *emitter, layout *laid) {
  size_t total = BLOCK_INDENT, width = emitter->options.width, saved = 1;
  bool is_first = true;
  laid->elastic = laid->spare = emitter->column_count;
  for (size_t i = 0; i < emitter->column_count; i++) {
    laid->widths[i] = 0;
    if (!emitter->columns[i].title) continue;
    laid->widths[i] = column_width(emitter, i);
    total += laid->widths[i] + (is_first ? 0 : gap_of(emitter));
    is_first = false;
    if (!is_elastic(emitter, i)) continue;
    assert(laid->elastic == emitter->column_count); /* one column gives way */
    laid->elastic = i;
  }
  if (width && total > width) total = wrap(emitter, total, WRAPPED_ENOUGH, laid);
  size_t whole = total;
  while (width && saved && total > width && !can_give_way(emitter, total, laid))
    total -= saved = leave_out(emitter, laid);
  if (width && total > width) total = wrap(emitter, total, 0, laid);
  if (!width || total <= width || laid->elastic == emitter->column_count) return;
  squeeze(emitter, total, laid);
  if (laid->is_folded) restore(emitter, whole, laid);
}

static bool is_same_text(tsr_text a, tsr_text b) {
  return a.size_bytes == b.size_bytes && memcmp(a.data, b.data, a.size_bytes) == 0;
}

/* The cells of the elastic column, one for each row. */
typedef struct elastic_cells {
  const tsr__emitter *emitter;
  size_t first;
} elastic_cells;

static tsr_text elastic_text(const void *context, size_t row) {
  const elastic_cells *cells = context;
  return text_of_cell(cells->emitter, cells->first + row * cells->emitter->column_count);
}

static tsr_text find_shared(const tsr__emitter *emitter, const layout *laid) {
  elastic_cells cells = {emitter, laid->elastic};
  return tsr__place_shared(elastic_text, &cells, emitter->cells.count / emitter->column_count);
}

enum { PIECE_CUTS = 4, PLACE_CUTS = 12, PLAIN_CUTS = 18, CUTS = 34 };

/* Cut a row whose first place is the one that most rows share. Returns 0 if it is not, or that does not do. */
static size_t cut_shared(cut_texts *cuts, tsr_text full, size_t width, size_t columns) {
  if (!cuts->shared.size_bytes || !is_same_text(tsr__place_first(full), cuts->shared)) return 0;
  return tsr__place_shorten_rest(&cuts->text, full, width, columns);
}

/* The next attempt to cut a text to `columns`, showing what is around column `at` if that is not 0: first so that
 * places survive, then plainly, then anywhere. Returns the columns that it takes. */
static size_t try_cut(tsr__buffer *out, int attempt, tsr_text full, size_t width, size_t columns,
                      size_t at, bool is_chain) {
  if (attempt == 0) return tsr__place_shorten(out, full, width, columns, is_chain);
  if (attempt < PLACE_CUTS)
    return tsr__place_shorten_at(out, full, width, columns, at, attempt < PIECE_CUTS);
  if (attempt == PLACE_CUTS)
    tsr__text_shorten(out, full, width, columns);
  else if (attempt < PLAIN_CUTS)
    tsr__text_shorten_at(out, full, width, columns, at);
  else
    tsr__text_shorten_at(out, full, width, columns,
                         width / CUTS * (size_t)(attempt - PLAIN_CUTS + 1) * 2);
  return columns;
}

/* Cut a cell so that it reads unlike those above it: if the usual cut hides in what they differ, by one that
 * shows it. Each attempt compares with another row, so a few suffice for any table that people read.
 * Returns the columns that the text in `cuts` takes; `*keeps_place` becomes whether a place kept its line. */
static size_t cut_cell(tsr__emitter *emitter, cut_texts *cuts, size_t cell, size_t columns,
                       bool *keeps_place) {
  tsr_text full = text_of_cell(emitter, cell);
  bool is_chain = emitter->columns[cell % emitter->column_count].align == TSR__CHAIN;
  size_t width = emitter->cells.items[cell].width, at = 0, taken = 0;
  *keeps_place = true;
  for (int attempt = is_chain ? 0 : -1; attempt < CUTS; attempt++) {
    bool is_new = false;
    *keeps_place = attempt < PLACE_CUTS;
    cuts->text.size = 0;
    taken = attempt < 0 ? cut_shared(cuts, full, width, columns)
                        : try_cut(&cuts->text, attempt, full, width, columns, at, is_chain);
    if (attempt < 0 && !taken) continue;
    uint32_t id = tsr__intern_put(&cuts->shown, cuts->text.data, cuts->text.size, &is_new);
    if (id == TSR__INTERN_FULL || (is_new && !TSR__VECTOR_PUSH(&cuts->cells, cell)))
      emitter->cells_failed = true;
    if (is_new || emitter->cells_failed) return taken;
    tsr_text other = text_of_cell(emitter, cuts->cells.items[id]);
    size_t difference = tsr__text_difference(full, other);
    if (difference >= width && other.size_bytes == full.size_bytes) return taken;
    at = difference < width ? difference : width - 1;
  }
  return taken;
}

/* Width of a cell: of the header's when `first` is SIZE_MAX, else in the row that begins at that cell. */
static size_t cell_width(const tsr__emitter *emitter, size_t first, size_t column) {
  if (first != SIZE_MAX) return emitter->cells.items[first + column].width;
  return tsr__text_of(emitter->columns[column].title).size_bytes;
}

/* The colour of the category that a text begins with, as the page shows it: the nearest of the 256 that
 * terminals have. 0 if it begins with none. */
static unsigned category_color(tsr_text text) {
  static const uint8_t colors[TSR_CATEGORY_COUNT] = {
      [TSR_CATEGORY_PARAMETER] = 67,  [TSR_CATEGORY_ACTIVATION] = 173,
      [TSR_CATEGORY_GRADIENT] = 71,   [TSR_CATEGORY_OPTIMIZER_STATE] = 97,
      [TSR_CATEGORY_TEMPORARY] = 72,  [TSR_CATEGORY_RECOMPUTED] = 179,
      [TSR_CATEGORY_INPUT] = 74,      [TSR_CATEGORY_COMMUNICATION] = 167,
      [TSR_CATEGORY_WORKSPACE] = 137, [TSR_CATEGORY_BUFFER] = 101,
      [TSR_CATEGORY_KV_CACHE] = 61,   [TSR_CATEGORY_CAST] = 169,
      [TSR_CATEGORY_UNKNOWN] = 145,
  };
  size_t length = 0;
  while (length < text.size_bytes && text.data[length] != ' ') length++;
  for (int i = 0; i < TSR_CATEGORY_COUNT; i++) {
    tsr_text name = tsr__text_of(tsr_category_name((tsr_category)i));
    if (name.size_bytes == length && memcmp(name.data, text.data, length) == 0) return colors[i];
  }
  return 0;
}

/* The next line of a wrapped cell, as print_cell does. */
static size_t print_wrapped(tsr__emitter *emitter, layout *laid, size_t column, size_t pending) {
  size_t columns = laid->widths[column];
  if (!laid->left[column].size_bytes) return pending + columns;
  tsr_text line = take_line(&laid->left[column], columns);
  tsr__buffer_fill(&emitter->out, ' ', pending);
  tsr__buffer_append(&emitter->out, line.data, line.size_bytes);
  return columns > line.size_bytes ? columns - line.size_bytes : 0;
}

/* One cell, after the `pending` spaces that are due before it; returns those due after it. Spaces
 * are written late so that no line ends in one. */
static size_t print_cell(tsr__emitter *emitter, layout *laid, size_t first, size_t column,
                         size_t pending) {
  size_t width = cell_width(emitter, first, column), columns = laid->widths[column];
  tsr__align align = emitter->columns[column].align;
  bool is_title = first == SIZE_MAX, is_right = align == TSR__RIGHT || align == TSR__SPARE;
  if (!width || !columns) return pending + columns;
  tsr_text text = is_title ? tsr__text_of(emitter->columns[column].title)
                           : text_of_cell(emitter, first + column);
  assert(width <= columns || !is_title || is_elastic(emitter, column));
  if (align == TSR__WRAPPED && width > columns) {
    laid->left[column] = text;
    return print_wrapped(emitter, laid, column, pending);
  }
  if (width > columns && is_title) {
    tsr__buffer_fill(&emitter->out, ' ', pending);
    tsr__text_shorten(&emitter->out, text, width, columns);
    return 0;
  }
  if (width > columns) {
    bool keeps_place;
    width = cut_cell(emitter, &laid->cuts, first + column, columns, &keeps_place);
    text = (tsr_text){laid->cuts.text.data, laid->cuts.text.size};
  }
  size_t padding = columns > width ? columns - width : 0;
  tsr__buffer_fill(&emitter->out, ' ', pending + (is_right ? padding : 0));
  bool is_category = !is_title && align == TSR__CATEGORY;
  unsigned color = is_category && emitter->options.color ? category_color(text) : 0;
  if (color) tsr__buffer_printf(&emitter->out, "\033[38;5;%um", color);
  tsr__buffer_append(&emitter->out, text.data, text.size_bytes);
  if (color) tsr__buffer_text(&emitter->out, "\033[0m");
  return is_right ? 0 : padding;
}

/* The elastic cell on its own line, if it has a text. */
static void print_elastic(tsr__emitter *emitter, layout *laid, size_t first, size_t indent) {
  if (!cell_width(emitter, first, laid->elastic)) return;
  (void)print_cell(emitter, laid, first, laid->elastic, indent);
  end_line(emitter);
}

static size_t first_shown(const tsr__emitter *emitter, const layout *laid) {
  size_t i = 0;
  while (i < emitter->column_count && !is_shown(emitter, laid, i)) i++;
  return i;
}

/* The lines below a row that its wrapped cells go on in. */
static void print_rest(tsr__emitter *emitter, layout *laid, size_t indent) {
  for (bool is_more = true; is_more;) {
    size_t pending = indent;
    is_more = false;
    for (size_t i = 0; i < emitter->column_count; i++) is_more |= laid->left[i].size_bytes > 0;
    for (size_t i = 0; is_more && i < emitter->column_count; i++) {
      if (!is_shown(emitter, laid, i) || (laid->is_folded && i == laid->elastic)) continue;
      pending = print_wrapped(emitter, laid, i, pending) + gap_of(emitter);
    }
    if (is_more) end_line(emitter);
  }
}

/* The row that begins at cell `first`; the header when `first` is SIZE_MAX. */
static void print_row(tsr__emitter *emitter, layout *laid, size_t first) {
  bool is_above = laid->is_folded && laid->elastic == first_shown(emitter, laid);
  size_t pending = is_above ? FOLD_INDENT : BLOCK_INDENT;
  bool is_first = true;
  begin_text(emitter);
  if (is_above) print_elastic(emitter, laid, first, BLOCK_INDENT);
  for (size_t i = 0; i < emitter->column_count; i++) {
    if (!is_shown(emitter, laid, i) || (laid->is_folded && i == laid->elastic)) continue;
    if (!is_first) pending += gap_of(emitter);
    pending = print_cell(emitter, laid, first, i, pending);
    is_first = false;
  }
  end_line(emitter);
  print_rest(emitter, laid, is_above ? FOLD_INDENT : BLOCK_INDENT);
  if (laid->is_folded && !is_above) print_elastic(emitter, laid, first, FOLD_INDENT);
  flush_from(emitter, FLUSH_BYTES);
}

static void release_cuts(cut_texts *cuts) {
  tsr__intern_release(&cuts->shown);
  TSR__VECTOR_FREE(&cuts->cells);
  tsr__buffer_release(&cuts->text);
}

static void print_rows(tsr__emitter *emitter, layout *laid) {
  tsr__intern_init(&laid->cuts.shown);
  if (laid->is_cut) laid->cuts.shared = find_shared(emitter, laid);
  if (emitter->has_header) print_row(emitter, laid, SIZE_MAX);
  for (size_t i = 0; i < emitter->cells.count; i += emitter->column_count)
    print_row(emitter, laid, i);
  if (laid->cuts.text.failed) emitter->cells_failed = true;
  release_cuts(&laid->cuts);
}

/* Can the rows not be distinguished without giving up the lines of places? */
static bool loses_places(tsr__emitter *emitter, const layout *laid) {
  size_t columns = laid->widths[laid->elastic];
  cut_texts cuts = {.shared = find_shared(emitter, laid)};
  bool keeps_place = true;
  tsr__intern_init(&cuts.shown);
  for (size_t i = laid->elastic; keeps_place && i < emitter->cells.count;
       i += emitter->column_count)
    if (emitter->cells.items[i].width > columns && tsr__place_least(text_of_cell(emitter, i)))
      (void)cut_cell(emitter, &cuts, i, columns, &keeps_place);
  emitter->cells_failed |= cuts.text.failed;
  release_cuts(&cuts);
  return !keeps_place;
}

/* Print the collected table or fields, if any, and reset for the next. */
static void print_cells(tsr__emitter *emitter) {
  assert(emitter->columns
             ? out_of_memory(emitter) || emitter->cells.count % emitter->column_count == 0
             : !emitter->cells.count);
  if (emitter->columns && emitter->cells.count && !out_of_memory(emitter)) {
    layout laid = {.widths = TSR__NEW_ARRAY(size_t, emitter->column_count),
                   .left = TSR__NEW_ARRAY(tsr_text, emitter->column_count)};
    if (laid.widths && laid.left) {
      lay_out(emitter, &laid);
      if (laid.is_cut && !laid.is_folded && emitter->has_header && loses_places(emitter, &laid))
        fold(emitter, column_width(emitter, laid.elastic), &laid);
      print_rows(emitter, &laid);
    } else {
      emitter->cells_failed = true;
    }
    tsr__free(laid.left);
    tsr__free(laid.widths);
  }
  emitter->columns = NULL;
  emitter->least_widths = NULL;
  emitter->cells.count = emitter->cell_text.size = 0;
}

static void begin_cells(tsr__emitter *emitter, const tsr__column *columns, size_t column_count,
                        bool has_header) {
  print_cells(emitter);
  emitter->columns = columns;
  emitter->column_count = column_count;
  emitter->has_header = has_header;
}

/* ---- Both formats ---- */

void tsr__emit_field(tsr__emitter *emitter, const char *key, const char *title, tsr__cell value) {
  if (is_json(emitter)) {
    if (key) tsr__emit_member(emitter, tsr__text_of(key), value);
    return;
  }
  if (!title || is_verdict(emitter)) return;
  if (emitter->columns != field_columns) begin_cells(emitter, field_columns, 2, false);
  add_cell(emitter, tsr__string(title));
  add_cell(emitter, value);
}

void tsr__emit_table(tsr__emitter *emitter, const char *key, const tsr__column *columns,
                     size_t column_count) {
  assert(!emitter->skips_json && column_count);
  emitter->skips_json = !key;
  if (key) tsr__emit_array(emitter, key);
  begin_cells(emitter, columns, column_count, true);
}

void tsr__emit_ruled_table(tsr__emitter *emitter, const char *key, const tsr__column *columns,
                           const size_t *widths, size_t column_count) {
  tsr__emit_table(emitter, key, columns, column_count);
  emitter->least_widths = widths;
}

void tsr__emit_row(tsr__emitter *emitter, const tsr__cell *values) {
  assert(emitter->columns && emitter->columns != field_columns);
  if (is_json(emitter) && emitter->skips_json) return;
  tsr__emit_object(emitter, NULL);
  for (size_t i = 0; i < emitter->column_count; i++)
    if (!is_json(emitter) && !is_verdict(emitter))
      add_cell(emitter, values[i]);
    else if (emitter->columns[i].key)
      tsr__emit_member(emitter, tsr__text_of(emitter->columns[i].key), values[i]);
}

void tsr__emit_row_end(tsr__emitter *emitter) {
  if (!emitter->skips_json) tsr__emit_end(emitter);
}

void tsr__emit_table_end(tsr__emitter *emitter) {
  assert(emitter->columns && emitter->columns != field_columns);
  print_cells(emitter);
  if (!emitter->skips_json) tsr__emit_end(emitter);
  emitter->skips_json = false;
}

/* ---- Text only ---- */

void tsr__emit_unbroken(tsr__emitter *emitter, tsr__style style, size_t indent) {
  if (!is_json(emitter)) {
    print_cells(emitter);
    print_line(emitter, style, indent, (tsr_text){emitter->scratch.data, emitter->scratch.size});
  }
  emitter->scratch.size = 0;
}

/* Lines of at most `width` columns, as far as the words allow; those after the first are indented further. */
static void print_sentence(tsr__emitter *emitter, tsr__style style, size_t indent, tsr_text left,
                           size_t width) {
  for (bool is_first = true; left.size_bytes; is_first = false) {
    size_t size = fitting(left, width > indent ? width - indent : 1);
    print_line(emitter, style, indent, (tsr_text){left.data, size});
    if (is_first) indent += BLOCK_INDENT;
    if (size < left.size_bytes) size++; /* the space */
    left = (tsr_text){left.data + size, left.size_bytes - size};
  }
}

void tsr__emit_paragraph(tsr__emitter *emitter, tsr__style style, size_t indent) {
  if (is_json(emitter) || is_verdict(emitter) || out_of_memory(emitter) || !emitter->scratch.size) {
    tsr__emit_unbroken(emitter, style, indent);
    return;
  }
  print_cells(emitter);
  print_sentence(emitter, style, indent, (tsr_text){emitter->scratch.data, emitter->scratch.size},
                 tsr__emitter_width(emitter));
  emitter->scratch.size = 0;
}

void tsr__emit_line(tsr__emitter *emitter, tsr__style style, size_t indent) {
  if (emitter->options.width)
    tsr__emit_paragraph(emitter, style, indent);
  else
    tsr__emit_unbroken(emitter, style, indent);
}

void tsr__emit_printf(tsr__emitter *emitter, tsr__style style, const char *format, ...) {
  if (is_json(emitter)) return;
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  assert(length >= 0 && (size_t)length < sizeof text);
  if (length < 0) return;
  size_t indent = strspn(text, " "), width = emitter->options.width;
  print_cells(emitter);
  if (width && !is_verdict(emitter) && (size_t)length > width)
    print_sentence(emitter, style, indent, tsr__text_of(text + indent), width);
  else
    print_line(emitter, style, 0, tsr__text_of(text));
}

void tsr__emit_space(tsr__emitter *emitter) {
  if (is_json(emitter)) return;
  print_cells(emitter);
  emitter->wants_space = true;
}

bool tsr__emitter_flush(tsr__emitter *emitter) {
  print_cells(emitter);
  flush_from(emitter, 1);
  return !emitter->write_failed && !out_of_memory(emitter);
}

int tsr__emitter_finish(tsr__emitter *emitter, tsr_error *error) {
  assert(!emitter->depth && !emitter->skips_json);
  print_cells(emitter);
  flush_from(emitter, 1);
  bool memory_failed = out_of_memory(emitter), write_failed = emitter->write_failed;
  tsr__buffer_release(&emitter->out);
  tsr__buffer_release(&emitter->scratch);
  tsr__buffer_release(&emitter->cell_text);
  TSR__VECTOR_FREE(&emitter->cells);
  if (write_failed)
    return tsr__fail(error, TSR_ERROR_WRITE, TSR_OFFSET_NONE, "the report could not be written");
  return memory_failed ? tsr__fail_memory(error) : TSR_OK;
}
