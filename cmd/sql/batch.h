/* batch.h - rows as columns of one type each, for formats that store columns.
 *
 * SQL's values have types, not its columns. So the values of a batch are kept as they are, and the types of columns are chosen when the
 * first batch is full: by what was declared, else by what occurred. A later value that does not fit is an error. */
#ifndef CLI_SQL_BATCH_H
#define CLI_SQL_BATCH_H

#include "write.h"

/* Rows of a batch, at most. */
enum { SQL_BATCH_ROWS = 1 << 16 };

typedef enum sql_column_type {
  SQL_COLUMN_OPEN, /* not chosen yet */
  SQL_COLUMN_INTEGER,
  SQL_COLUMN_REAL,
  SQL_COLUMN_TEXT, /* valid UTF-8 */
  SQL_COLUMN_BLOB
} sql_column_type;

typedef struct sql_column {
  const char *name; /* the statement's */
  sql_column_type type;
  unsigned seen;    /* a bit for each SQLite type */
  uint8_t *kinds;   /* SQLite's types, by row */
  uint64_t *values; /* integers, and the bits of reals; of texts, where they end in `text` */
  cli_text text;
} sql_column;

typedef struct sql_batch {
  sql_column *columns;
  size_t column_count, row_count;
} sql_batch;

/* Functions return 0, TSR_ERROR_MEMORY, or an exit status after explaining what is wrong. */
int sql_batch_begin(sql_batch *batch, const sql_rows *rows);
/* Keep the statement's row; `*is_full` when the batch is to be written and cleared. */
int sql_batch_add(sql_batch *batch, const sql_rows *rows, bool *is_full);
/* Choose the types that are open, and check that all values fit; before the batch is written. */
int sql_batch_settle(sql_batch *batch, const sql_rows *rows);
void sql_batch_clear(sql_batch *batch);
void sql_batch_release(sql_batch *batch);

/* Replace by '?' what is no UTF-8: texts of a snapshot may be any bytes, those of other programs are not. */
void sql_make_valid(char *text, size_t size_bytes);

/* Values of a settled batch. A value is NULL if its kind is. */
bool sql_batch_is_number(const sql_column *column, size_t row);
double sql_batch_real(const sql_column *column, size_t row);
/* The text or blob of a row, of which a number is printed to `number`. Rows are asked for in order, with `*from` 0 for the first. */
tsr_text sql_batch_text(const sql_column *column, size_t row, size_t *from, char number[32]);

#endif
