/* emitter.h - one description of a result, two faces: aligned text or JSON.
 *
 * A report says each thing once and gives it both a JSON key and a human title; the emitter prints
 * whichever face was asked for. A NULL key keeps a thing out of JSON, a NULL title out of text.
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
 * tables. JSON is printed two spaces an indent, one member a line. Either goes out in pieces of
 * some 64 KiB. Failures - the write function's or of memory - are remembered, make the rest a no-op
 * and are reported once, by tsr__emitter_finish. Every string is made safe on the way
 * (report/text.h).
 *
 * Not thread safe; one emitter, one report. */
#ifndef TSR_REPORT_EMITTER_H
#define TSR_REPORT_EMITTER_H

#include "base/buffer.h"
#include "base/vector.h"
#include "tessera/report.h"

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
 */
typedef enum tsr__kind {
  TSR__KIND_NOTHING,
  TSR__KIND_BYTES,
  TSR__KIND_COUNT,
  TSR__KIND_INDEX,
  TSR__KIND_TIME,
  TSR__KIND_TEXT,
  TSR__KIND_BOOL,
  TSR__KIND_PERCENT,
  TSR__KIND_ADDRESS
} tsr__kind;

typedef struct tsr__cell {
  tsr__kind kind;
  union {
    uint64_t number; /* BYTES, COUNT, ADDRESS, BOOL; PERCENT: the part */
    int64_t integer; /* INDEX, TIME */
    tsr_text text;   /* not copied: must live until the call it is given to returns */
  };
  uint64_t whole; /* PERCENT */
} tsr__cell;

static inline tsr__cell tsr__nothing(void) {
  return (tsr__cell){.kind = TSR__KIND_NOTHING};
}
static inline tsr__cell tsr__bytes(uint64_t bytes) {
  return (tsr__cell){.kind = TSR__KIND_BYTES, .number = bytes};
}
static inline tsr__cell tsr__count(uint64_t count) {
  return (tsr__cell){.kind = TSR__KIND_COUNT, .number = count};
}
/* The number of an event; negative means "before the first". */
static inline tsr__cell tsr__index(int64_t index) {
  return (tsr__cell){.kind = TSR__KIND_INDEX, .integer = index};
}
/* Microseconds since the Unix epoch; TSR_TIME_NONE is nothing. */
static inline tsr__cell tsr__time(int64_t time_us) {
  return time_us == TSR_TIME_NONE ? tsr__nothing()
                                  : (tsr__cell){.kind = TSR__KIND_TIME, .integer = time_us};
}
static inline tsr__cell tsr__text(tsr_text text) {
  return (tsr__cell){.kind = TSR__KIND_TEXT, .text = text};
}
tsr__cell tsr__string(const char *string); /* zero-terminated; NULL is empty */
static inline tsr__cell tsr__bool(bool truth) {
  return (tsr__cell){.kind = TSR__KIND_BOOL, .number = truth};
}
static inline tsr__cell tsr__percent(uint64_t part, uint64_t whole) {
  return (tsr__cell){.kind = TSR__KIND_PERCENT, .number = part, .whole = whole};
}
static inline tsr__cell tsr__address(uint64_t address) {
  return (tsr__cell){.kind = TSR__KIND_ADDRESS, .number = address};
}

/* ---- The emitter ---- */

/* Containers open at one time. Reports are shallow; passing this is a defect of tessera's. */
#define TSR__EMITTER_DEPTH 16

typedef enum tsr__align {
  TSR__RIGHT,  /* numbers */
  TSR__LEFT,   /* words */
  TSR__ELASTIC /* words, cut in the middle when the table is too wide; one column a table at most */
} tsr__align;

typedef struct tsr__column {
  const char *key;   /* NULL: not in JSON */
  const char *title; /* NULL: not in text */
  tsr__align align;
} tsr__column;

typedef enum tsr__style { TSR__PLAIN, TSR__BOLD, TSR__DIM } tsr__style;

/* A container that is open. */
typedef struct tsr__level {
  char close;
  bool is_inline, has_members;
} tsr__level;

/* A text in cell_text, and the columns it takes. */
typedef struct tsr__laid_cell {
  size_t offset, size_bytes, width;
} tsr__laid_cell;

/* The members are the emitter's own, but for `scratch`. */
typedef struct tsr__emitter {
  tsr_report_options options;
  tsr_write_fn *write;
  void *context;
  tsr__buffer out; /* not yet written */
  bool write_failed, cells_failed;

  /* A line, or a value, that the report is putting together piece by piece. tsr__emit_line prints
   * and empties it; who uses it for a value empties it by setting its size to 0. */
  tsr__buffer scratch;

  /* JSON: the containers that are open. */
  tsr__level levels[TSR__EMITTER_DEPTH];
  size_t depth;

  /* Text: the cells of the table or block of fields being collected, row by row. */
  const tsr__column *columns; /* NULL: none */
  size_t column_count;
  bool has_header;
  bool skips_json; /* the table that is open has no key */
  tsr__buffer cell_text;
  TSR__VECTOR(tsr__laid_cell) cells;
  bool wants_space, has_lines;
} tsr__emitter;

/* `options` may be NULL for the defaults. Allocates nothing. */
void tsr__emitter_init(tsr__emitter *emitter, const tsr_report_options *options,
                       tsr_write_fn *write, void *context);
/* Write what is left, release everything and say how it went: 0, TSR_ERROR_WRITE or
 * TSR_ERROR_MEMORY. All containers must be closed. */
int tsr__emitter_finish(tsr__emitter *emitter, tsr_error *error);

/* Which face is shown, for work that only one of them needs. */
bool tsr__emitter_is_text(const tsr__emitter *emitter);
/* Columns of the terminal. */
size_t tsr__emitter_width(const tsr__emitter *emitter);

/* ---- JSON structure: nothing of it shows in text. `key` is NULL inside arrays. ---- */

void tsr__emit_object(tsr__emitter *emitter, const char *key);
void tsr__emit_array(tsr__emitter *emitter, const char *key);
/* An object that stays on one line, with all it holds. */
void tsr__emit_inline_object(tsr__emitter *emitter, const char *key);
/* An array that stays on one line, and one of its values. */
void tsr__emit_inline_array(tsr__emitter *emitter, const char *key);
void tsr__emit_item(tsr__emitter *emitter, tsr__cell value);
/* Close the innermost object or array. */
void tsr__emit_end(tsr__emitter *emitter);
/* A member whose key is data. */
void tsr__emit_member(tsr__emitter *emitter, tsr_text key, tsr__cell value);

/* ---- Both faces ---- */

/* JSON `"key": value`; text a row of the block of fields that neighbouring fields form. */
void tsr__emit_field(tsr__emitter *emitter, const char *key, const char *title, tsr__cell value);

/* A list of rows. JSON: the array `key` of objects; text: a table with a header, nothing when it
 * has no rows. A NULL key keeps it out of JSON. `columns` must live until tsr__emit_table_end. */
void tsr__emit_table(tsr__emitter *emitter, const char *key, const tsr__column *columns,
                     size_t column_count);
/* One row: `values` has one for each column. The row's JSON object stays open, for members that are
 * no column, until tsr__emit_row_end; between the two nothing that shows in text may be emitted. */
void tsr__emit_row(tsr__emitter *emitter, const tsr__cell *values);
void tsr__emit_row_end(tsr__emitter *emitter);
void tsr__emit_table_end(tsr__emitter *emitter);

/* ---- Text alone: nothing of it shows in JSON ---- */

/* Print `scratch` as one line, `indent` spaces in, and empty it. Styles show with options.color. */
void tsr__emit_line(tsr__emitter *emitter, tsr__style style, size_t indent);
/* The same for a line that is said in one go, in our own words: at most 511 bytes. */
void tsr__emit_printf(tsr__emitter *emitter, tsr__style style, const char *format, ...)
    TSR__PRINTF(3, 4);
/* One empty line before what comes next; none at the start, and never two. */
void tsr__emit_space(tsr__emitter *emitter);

#endif
