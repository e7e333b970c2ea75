/* psql.h - tables as Python's tabulate (0.9) draws them in its "psql" style, byte for byte.
 *
 *   +--------+---------+
 *   | name   |   share |      A column is numeric if all its texts are numbers. Floats are
 *   |--------+---------|      written with "%g" and aligned at their points. A
 *   | a      |     1.5 |      text may have several lines. Widths count characters.
 *   +--------+---------+
 *
 * A table without rows is empty text. */
#ifndef TSR_MOSAIC_PSQL_H
#define TSR_MOSAIC_PSQL_H

#include "base/buffer.h"
#include "base/vector.h"
#include "tessera/unstable/columns.h"

enum { TSR__PSQL_COLUMNS = 16 };

typedef enum tsr__psql_kind { TSR__PSQL_INTEGER, TSR__PSQL_FLOAT, TSR__PSQL_TEXT } tsr__psql_kind;

typedef struct tsr__psql_cell {
  tsr__psql_kind kind;
  size_t begin, size; /* of its text, in `texts` */
  size_t width;       /* of its widest line */
  size_t after;       /* of a number: 1 + characters after its point, 0 without a point */
  size_t line_count;
} tsr__psql_cell;

/* A zeroed table with `column_count` and `headers` set has no rows. */
typedef struct tsr__psql {
  size_t column_count; /* at most TSR__PSQL_COLUMNS */
  const char *const *headers;
  tsr__buffer texts;
  TSR__VECTOR(tsr__psql_cell) cells; /* row by row */
  bool failed;                       /* out of memory */
} tsr__psql;

/* Add the next cell. Blanks around its text are removed. */
void tsr__psql_text(tsr__psql *table, tsr_text text);
void tsr__psql_integer(tsr__psql *table, int64_t value);
void tsr__psql_float(tsr__psql *table, double value);

/* Append the table, without a newline after the last line. */
void tsr__psql_print(const tsr__psql *table, tsr__buffer *out);
void tsr__psql_release(tsr__psql *table);

#endif
