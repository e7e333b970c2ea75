/* batch.c - see batch.h. */
#include "batch.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_PER_BATCH = 64 << 20 };

int sql_batch_begin(sql_batch *batch, const sql_rows *rows) {
  batch->columns = calloc((size_t)rows->column_count, sizeof *batch->columns);
  if (!batch->columns) return TSR_ERROR_MEMORY;
  for (; batch->column_count < (size_t)rows->column_count; batch->column_count++) {
    sql_column *c = &batch->columns[batch->column_count];
    c->name = rows->lib->column_name(rows->statement, (int)batch->column_count);
    c->kinds = malloc(SQL_BATCH_ROWS);
    c->values = malloc(SQL_BATCH_ROWS * sizeof *c->values);
    if (c->name && c->kinds && c->values) continue;
    batch->column_count++;
    return TSR_ERROR_MEMORY;
  }
  return 0;
}

void sql_batch_clear(sql_batch *batch) {
  batch->row_count = 0;
  for (size_t i = 0; i < batch->column_count; i++)
    batch->columns[i].text.size = batch->columns[i].seen = 0;
}

void sql_batch_release(sql_batch *batch) {
  for (size_t i = 0; i < batch->column_count; i++) {
    free(batch->columns[i].kinds);
    free(batch->columns[i].values);
    free(batch->columns[i].text.data);
  }
  free(batch->columns);
}

/* ---- Keeping ---- */

void sql_make_valid(char *text, size_t size_bytes) {
  for (size_t i = 0; i < size_bytes;) {
    unsigned char first = (unsigned char)text[i];
    size_t length = first < 0x80                    ? 1
                    : first >= 0xc2 && first < 0xe0 ? 2
                    : (first & 0xf0) == 0xe0        ? 3
                    : first >= 0xf0 && first < 0xf5 ? 4
                                                    : 0;
    bool ok = length && length <= size_bytes - i;
    for (size_t b = 1; ok && b < length; b++) ok = ((unsigned char)text[i + b] & 0xc0) == 0x80;
    unsigned char second = ok && length > 2 ? (unsigned char)text[i + 1] : 0x90;
    ok = ok && !(first == 0xe0 && second < 0xa0) && !(first == 0xed && second > 0x9f) &&
         !(first == 0xf0 && second < 0x90) && !(first == 0xf4 && second > 0x8f);
    if (!ok) text[i] = '?';
    i += ok ? length : 1;
  }
}

static int keep_text(const sql_rows *rows, int index, sql_column *c, size_t row, int kind) {
  const void *data = kind == SQLITE_BLOB
                         ? rows->lib->column_blob(rows->statement, index)
                         : (const void *)rows->lib->column_text(rows->statement, index);
  size_t size = (size_t)rows->lib->column_bytes(rows->statement, index);
  if (!data && (size || kind == SQLITE_TEXT)) return TSR_ERROR_MEMORY;
  if (cli_text_append(&c->text, data ? data : "", size)) return TSR_ERROR_MEMORY;
  if (kind == SQLITE_TEXT) sql_make_valid(c->text.data + c->text.size - size, size);
  c->values[row] = c->text.size;
  return 0;
}

int sql_batch_add(sql_batch *batch, const sql_rows *rows, bool *is_full) {
  size_t at = batch->row_count, text = 0;
  int status = 0;
  for (size_t i = 0; !status && i < batch->column_count; i++) {
    sql_column *c = &batch->columns[i];
    int kind = rows->lib->column_type(rows->statement, (int)i);
    double real = 0;
    c->kinds[at] = (uint8_t)kind;
    c->seen |= 1U << kind;
    if (kind == SQLITE_INTEGER)
      c->values[at] = (uint64_t)rows->lib->column_int64(rows->statement, (int)i);
    if (kind == SQLITE_FLOAT) real = rows->lib->column_double(rows->statement, (int)i);
    if (kind == SQLITE_FLOAT) memcpy(&c->values[at], &real, sizeof real);
    if (kind == SQLITE_TEXT || kind == SQLITE_BLOB) status = keep_text(rows, (int)i, c, at, kind);
    if (c->text.size > text) text = c->text.size;
  }
  batch->row_count++;
  *is_full = batch->row_count == SQL_BATCH_ROWS || text > TEXT_PER_BATCH;
  return status;
}

/* ---- Types ---- */

static bool has_word(const char *text, const char *word) {
  return text && strstr(text, word);
}

static sql_column_type choose_type(const sql_rows *rows, int index, unsigned seen) {
  const char *declared = rows->lib->column_decltype(rows->statement, index);
  if (seen & 1U << SQLITE_BLOB) return SQL_COLUMN_BLOB;
  if (seen & 1U << SQLITE_TEXT || has_word(declared, "TEXT")) return SQL_COLUMN_TEXT;
  if (seen & 1U << SQLITE_FLOAT) return SQL_COLUMN_REAL;
  return seen & 1U << SQLITE_INTEGER || has_word(declared, "INT") ? SQL_COLUMN_INTEGER
                                                                  : SQL_COLUMN_TEXT;
}

static bool fits(sql_column_type type, unsigned seen) {
  const unsigned integer = 1U << SQLITE_INTEGER, real = 1U << SQLITE_FLOAT,
                 null = 1U << SQLITE_NULL, text = 1U << SQLITE_TEXT;
  switch (type) {
  case SQL_COLUMN_INTEGER: return !(seen & ~(integer | null));
  case SQL_COLUMN_REAL: return !(seen & ~(integer | real | null));
  case SQL_COLUMN_TEXT: return !(seen & ~(integer | real | text | null));
  default: return true;
  }
}

int sql_batch_settle(sql_batch *batch, const sql_rows *rows) {
  for (size_t i = 0; i < batch->column_count; i++) {
    sql_column *c = &batch->columns[i];
    if (c->type == SQL_COLUMN_OPEN) c->type = choose_type(rows, (int)i, c->seen);
    if (fits(c->type, c->seen)) continue;
    cli_say("sql",
            "column '%s' has values of several types, which this format cannot contain; CAST it",
            c->name);
    return CLI_USAGE;
  }
  return 0;
}

/* ---- Values ---- */

bool sql_batch_is_number(const sql_column *c, size_t row) {
  return c->kinds[row] == SQLITE_INTEGER || c->kinds[row] == SQLITE_FLOAT;
}

double sql_batch_real(const sql_column *c, size_t row) {
  double value;
  memcpy(&value, &c->values[row], sizeof value);
  return c->kinds[row] == SQLITE_INTEGER ? (double)(int64_t)c->values[row] : value;
}

static int print_number(const sql_column *c, size_t row, char text[32]) {
  if (c->kinds[row] == SQLITE_INTEGER)
    return snprintf(text, 32, "%" PRId64, (int64_t)c->values[row]);
  return snprintf(text, 32, "%.17g", sql_batch_real(c, row));
}

tsr_text sql_batch_text(const sql_column *c, size_t row, size_t *from, char number[32]) {
  if (sql_batch_is_number(c, row)) return (tsr_text){number, (size_t)print_number(c, row, number)};
  if (c->kinds[row] == SQLITE_NULL) return (tsr_text){"", 0};
  size_t start = *from;
  *from = (size_t)c->values[row];
  return (tsr_text){c->text.data + start, *from - start};
}
