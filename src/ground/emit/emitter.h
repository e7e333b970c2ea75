/* emitter.h - one description of a result, two output formats: aligned text or JSON.
 *
 * A report emits each value once, with both a JSON key and a title for people; the emitter prints
 * the requested format. A NULL key omits the value from JSON, a NULL title from text.
 *
 *   tsr__emitter_init(&e, options, write, context);
 *   tsr__emit_object(&e, NULL);
 *   tsr__emit_printf(&e, TSR__BOLD, "All is well.");
 *   tsr__emit_field(&e, "events", "events recorded", tsr__count(22331));
 *   tsr__emit_end(&e);
 *   return tsr__emitter_finish(&e, error);
 *
 *   JSON  {                          text  All is well.
 *           "events": 22331                  events recorded  22,331
 *         }
 *
 * Text is a sequence of lines, blocks of fields (`title  value`, aligned among neighbours) and
 * tables. JSON is indented by two spaces, with one member per line. Both are written in pieces of
 * some 64 KiB. Failures - of the write function, or of memory - are recorded, turn all later calls
 * into no-ops, and are reported once, by tsr__emitter_finish. Every string is made safe first
 * (emit/text.h).
 *
 * Not thread safe; one emitter, one report. */
#ifndef TSR_EMIT_EMITTER_H
#define TSR_EMIT_EMITTER_H

#include "base/buffer.h"
#include "base/vector.h"
#include "emit/fields.h"
#include "tessera/unstable/input.h"

/* ---- Values ---- */

/*                   JSON              text
 * NOTHING           null              -
 * BYTES             19112604467       17.80 GiB
 * COUNT             22331             22,331
 * INDEX             3737 or -1        3,737 or -
 * TIME              1783866822365713  2026-07-12 14:33:42.365713 UTC
 * TEXT              "forward"         forward
 * BOOL              true              yes
 * PERCENT           46.1              46.1 %
 * ADDRESS           139872991969280   0x7f36b8000000
 * REAL              0.25              0.25
 */
typedef enum tsr__cell_kind {
  TSR__CELL_NOTHING,
  TSR__CELL_BYTES,
  TSR__CELL_COUNT,
  TSR__CELL_INDEX,
  TSR__CELL_TIME,
  TSR__CELL_TEXT,
  TSR__CELL_BOOL,
  TSR__CELL_PERCENT,
  TSR__CELL_ADDRESS,
  TSR__CELL_REAL
} tsr__cell_kind;

typedef struct tsr__cell {
  tsr__cell_kind kind;
  union {
    uint64_t number; /* BYTES, COUNT, ADDRESS, BOOL; PERCENT: the part */
    int64_t integer; /* INDEX, TIME */
    double real;     /* REAL */
    tsr_text text;   /* not copied: must live until the emitting call returns */
  };
  uint64_t whole;     /* PERCENT */
  const char *format; /* REAL: printf's, a literal; NULL: every digit */
} tsr__cell;

static inline tsr__cell tsr__nothing(void) {
  return (tsr__cell){.kind = TSR__CELL_NOTHING};
}
static inline tsr__cell tsr__bytes(uint64_t bytes) {
  return (tsr__cell){.kind = TSR__CELL_BYTES, .number = bytes};
}
static inline tsr__cell tsr__count(uint64_t count) {
  return (tsr__cell){.kind = TSR__CELL_COUNT, .number = count};
}
/* The number of an event; negative means "before the first". */
static inline tsr__cell tsr__index(int64_t index) {
  return (tsr__cell){.kind = TSR__CELL_INDEX, .integer = index};
}
/* Microseconds since the Unix epoch; TSR_TIME_NONE prints as NOTHING. */
static inline tsr__cell tsr__time(int64_t time_us) {
  return time_us == TSR_TIME_NONE ? tsr__nothing()
                                  : (tsr__cell){.kind = TSR__CELL_TIME, .integer = time_us};
}
static inline tsr__cell tsr__text(tsr_text text) {
  return (tsr__cell){.kind = TSR__CELL_TEXT, .text = text};
}
tsr__cell tsr__string(const char *string); /* zero-terminated; NULL is empty */
static inline tsr__cell tsr__bool(bool truth) {
  return (tsr__cell){.kind = TSR__CELL_BOOL, .number = truth};
}
static inline tsr__cell tsr__percent(uint64_t part, uint64_t whole) {
  return (tsr__cell){.kind = TSR__CELL_PERCENT, .number = part, .whole = whole};
}
static inline tsr__cell tsr__address(uint64_t address) {
  return (tsr__cell){.kind = TSR__CELL_ADDRESS, .number = address};
}

/* A number that is not whole; null if it is not finite. It is read back as the same number, and is never mistaken for an
 * integer: 2 is 2.0. */
static inline tsr__cell tsr__real(double real) {
  return (tsr__cell){.kind = TSR__CELL_REAL, .real = real};
}
/* The same as printf prints it, with a format such as "%.3f" of our own. */
static inline tsr__cell tsr__real_as(const char *format, double real) {
  return (tsr__cell){.kind = TSR__CELL_REAL, .real = real, .format = format};
}

/* A device: its number, or "host" for pinned host memory, "cpu" for that of the CPU. */
static inline tsr__cell tsr__device(uint32_t device) {
  return device == TSR_DEVICE_HOST  ? tsr__text((tsr_text){"host", 4})
         : device == TSR_DEVICE_CPU ? tsr__text((tsr_text){"cpu", 3})
                                    : tsr__count(device);
}

/* ---- The emitter ---- */

/* Containers open at one time. Reports are shallow; exceeding this is a bug in tessera. */
#define TSR__EMITTER_DEPTH 16

typedef enum tsr__align {
  TSR__RIGHT, /* numbers */
  TSR__SPARE, /* numbers that are left out, the last first, if the terminal is too narrow for the table */
  TSR__LEFT, /* words */
  TSR__WRAPPED, /* words, which continue below if the table is too wide: broken after spaces and commas */
  TSR__CATEGORY, /* words of which the first is a category's name, in its colour */
  TSR__ELASTIC, /* words or places (tsr__place_shorten), which give way if the table is too wide for
                 * the terminal: they are cut, or put on a line below the row if the column is the last
                 * and too little would be left. At most one per table */
  TSR__CHAIN    /* the same for calls of one stack, joined by " > " */
} tsr__align;

typedef struct tsr__column {
  const char *key;   /* NULL: not in JSON */
  const char *title; /* NULL: not in text */
  tsr__align align;
} tsr__column;

typedef enum tsr__style {
  TSR__PLAIN,
  TSR__BOLD,
  TSR__DIM,
  TSR__ALARM,  /* a verdict that reports a failure: red */
  TSR__VERDICT /* bold; a line that says what was found, for a device or the whole. It is all that
                * is left of the text where the verdict alone is requested (TSR_REPORT_VERDICT) */
} tsr__style;

/* An open container. What is in it must be declared as its record, or for an array and a map as its field, says; if
 * both are NULL nothing is declared, and everything is allowed. */
typedef struct tsr__emitter_level {
  char close;
  bool is_inline, has_members;
  const tsr_field *field;
  const tsr_record *record;
  bool is_compact; /* inline, and without blanks */
  bool ends_line;  /* a line break follows it */
} tsr__emitter_level;

/* A text in cell_text, and its width in columns. */
typedef struct tsr__laid_cell {
  size_t offset, size_bytes, width;
} tsr__laid_cell;

/* The members are private to the emitter, except `scratch`, `line_count` and `fields`. */
typedef struct tsr__emitter {
  tsr_report_options options;
  const tsr_record
      *fields; /* what the JSON may have; NULL: anything. Set before the first object is opened */
  tsr_write_fn *write;
  void *context;
  tsr__buffer out; /* not yet written */
  bool write_failed, cells_failed;

  /* A line or a value that the report assembles piece by piece. tsr__emit_line prints
   * and empties it; after using it for a value, the report empties it by setting its size to 0. */
  tsr__buffer scratch;

  /* JSON: the open containers. */
  tsr__emitter_level levels[TSR__EMITTER_DEPTH];
  size_t depth;

  /* Text: the cells of the table or block of fields being collected, row by row. */
  const tsr__column *columns; /* NULL: none */
  const size_t *least_widths; /* of a ruled table; else NULL */
  size_t column_count;
  bool has_header;
  bool skips_json; /* the open table has no key */
  tsr__buffer cell_text;
  TSR__VECTOR(tsr__laid_cell) cells;
  bool wants_space, has_lines;
  size_t line_count; /* of text, printed so far; reports may read it */
} tsr__emitter;

/* `options` may be NULL for the defaults. Allocates nothing. */
void tsr__emitter_init(tsr__emitter *emitter, const tsr_report_options *options,
                       tsr_write_fn *write, void *context);
/* Write what is left, release everything and return the result: 0, TSR_ERROR_WRITE or
 * TSR_ERROR_MEMORY. All containers must be closed. */
int tsr__emitter_finish(tsr__emitter *emitter, tsr_error *error);
/* Write what is left and keep going; for reports that take hours. False after a failure, which tsr__emitter_finish
 * explains. */
bool tsr__emitter_flush(tsr__emitter *emitter);

/* Whether the format is text, for work that only one format needs. A verdict is part of the text. */
bool tsr__emitter_is_text(const tsr__emitter *emitter);
/* Columns of the terminal; 100 if the width is unlimited. */
size_t tsr__emitter_width(const tsr__emitter *emitter);

/* ---- JSON structure: text ignores it. `key` is NULL inside arrays. ---- */

void tsr__emit_object(tsr__emitter *emitter, const char *key);
void tsr__emit_array(tsr__emitter *emitter, const char *key);
/* An object that is printed on one line, with everything in it. */
void tsr__emit_inline_object(tsr__emitter *emitter, const char *key);
/* An array that is printed on one line, and one of its values. */
void tsr__emit_inline_array(tsr__emitter *emitter, const char *key);
void tsr__emit_item(tsr__emitter *emitter, tsr__cell value);
/* An object on a line of its own, without blanks, and so is everything in it. A report that consists of several is a
 * stream of events: tsr__emitter_flush after each lets its reader see it. */
void tsr__emit_json_line(tsr__emitter *emitter, const char *key);
/* A member that is JSON already, as it is. */
void tsr__emit_json(tsr__emitter *emitter, const char *key, tsr_text json);
/* Close the innermost object or array. */
void tsr__emit_end(tsr__emitter *emitter);
/* A member whose key is data, not a literal. */
void tsr__emit_member(tsr__emitter *emitter, tsr_text key, tsr__cell value);

/* ---- Both formats ---- */

/* JSON: `"key": value`. Text: a row of the block that consecutive fields form. */
void tsr__emit_field(tsr__emitter *emitter, const char *key, const char *title, tsr__cell value);

/* A list of rows. JSON: the array `key` of objects; text: a table with a header, or nothing if it
 * has no rows. A NULL key omits it from JSON. `columns` must live until tsr__emit_table_end. */
void tsr__emit_table(tsr__emitter *emitter, const char *key, const tsr__column *columns,
                     size_t column_count);
/* The same for a table that looks alike whatever it holds: the cells of column i fill widths[i] columns of text at
 * least, after a single space. */
void tsr__emit_ruled_table(tsr__emitter *emitter, const char *key, const tsr__column *columns,
                           const size_t *widths, size_t column_count);
/* One row: `values` has one for each column. The row's JSON object stays open, for members that are
 * not columns, until tsr__emit_row_end; between the two only JSON may be emitted. */
void tsr__emit_row(tsr__emitter *emitter, const tsr__cell *values);
void tsr__emit_row_end(tsr__emitter *emitter);
void tsr__emit_table_end(tsr__emitter *emitter);

/* ---- Text only: JSON ignores it ---- */

/* Print `scratch`, a sentence, indented by `indent` spaces, and empty it: as one line, or if the width is limited, as
 * a paragraph. */
void tsr__emit_line(tsr__emitter *emitter, tsr__style style, size_t indent);
/* The same as a paragraph: broken at spaces where it is longer than the terminal is wide, with what follows
 * the first line indented further. Verdicts that are all of the text stay one line. */
void tsr__emit_paragraph(tsr__emitter *emitter, tsr__style style, size_t indent);
/* The same as one line however long, for what is no sentence: a frame of a stack. */
void tsr__emit_unbroken(tsr__emitter *emitter, tsr__style style, size_t indent);
/* tsr__emit_line for a line from a format string of our own, which begins with its indentation: at most 511
 * bytes. */
void tsr__emit_printf(tsr__emitter *emitter, tsr__style style, const char *format, ...)
    TSR__PRINTF(3, 4);
/* One empty line before the next output; none at the start, and never two. */
void tsr__emit_space(tsr__emitter *emitter);

#endif
