/* psql.c - tables as tabulate draws them. See psql.h.
 *
 * A column is as wide as its widest cell and at least two wider than its header. Its type is
 * the most general type of its cells: integer, float, text. Numbers are right-aligned, and
 * floats are first padded with blanks on the right so that their points are in line; "nan" and
 * integers among them are padded as if their point came last. */
#include "mosaic/psql.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

enum { NUMBER_BYTES = 32, MIN_PADDING = 2 };

typedef struct column {
  tsr__psql_kind kind;
  size_t width, after;
} column;

/* ---- cells ---- */

static size_t characters(const char *data, size_t size) {
  size_t count = 0;
  uint32_t code;
  for (size_t at = 0; at < size; count++) at += tsr__utf8_decode(data + at, size - at, &code);
  return count;
}

static void measure(const tsr__psql *table, tsr__psql_cell *cell) {
  const char *at = table->texts.data + cell->begin, *end = at + cell->size;
  cell->line_count = 1;
  for (;;) {
    const char *newline = at < end ? memchr(at, '\n', (size_t)(end - at)) : NULL;
    size_t width = characters(at, (size_t)((newline ? newline : end) - at));
    if (width > cell->width) cell->width = width;
    if (!newline) return;
    cell->line_count++;
    at = newline + 1;
  }
}

static void add_cell(tsr__psql *table, tsr__psql_kind kind, const char *data, size_t size,
                     size_t after) {
  tsr__psql_cell cell = {.kind = kind, .begin = table->texts.size, .size = size, .after = after};
  tsr__buffer_append(&table->texts, data, size);
  if (table->texts.failed) {
    table->failed = true;
    return;
  }
  if (size)
    measure(table, &cell);
  else
    cell.line_count = 1;
  if (!TSR__VECTOR_PUSH(&table->cells, cell)) table->failed = true;
}

/* The type that tabulate infers for a text. Only integers are recognized, because no other number
 * is a line of a program or a name in it. */
static tsr__psql_kind kind_of(tsr_text text) {
  size_t at = text.size_bytes && (text.data[0] == '-' || text.data[0] == '+');
  if (at == text.size_bytes) return TSR__PSQL_TEXT;
  for (; at < text.size_bytes; at++)
    if (text.data[at] < '0' || text.data[at] > '9') return TSR__PSQL_TEXT;
  return TSR__PSQL_INTEGER;
}

static bool is_space(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

void tsr__psql_text(tsr__psql *table, tsr_text text) {
  while (text.size_bytes && is_space(text.data[0])) {
    text.data++;
    text.size_bytes--;
  }
  while (text.size_bytes && is_space(text.data[text.size_bytes - 1])) text.size_bytes--;
  add_cell(table, kind_of(text), text.data, text.size_bytes, 0);
}

void tsr__psql_integer(tsr__psql *table, int64_t value) {
  char text[NUMBER_BYTES];
  int size = snprintf(text, sizeof text, "%" PRId64, value);
  add_cell(table, TSR__PSQL_INTEGER, text, (size_t)size, 0);
}

/* "%g", with a point in any locale. */
static size_t format_float(double value, char text[NUMBER_BYTES]) {
  char raw[NUMBER_BYTES];
  size_t size = 0;
  if (isnan(value)) return (size_t)snprintf(text, NUMBER_BYTES, "nan");
  (void)snprintf(raw, sizeof raw, "%g", value);
  for (const char *at = raw; *at; at++) {
    bool is_point = !strchr("0123456789+-einf", *at);
    if (is_point && size && text[size - 1] == '.') continue; /* a point of several bytes */
    text[size++] = is_point ? '.' : *at;
  }
  text[size] = '\0';
  return size;
}

void tsr__psql_float(tsr__psql *table, double value) {
  char text[NUMBER_BYTES];
  size_t size = format_float(value, text);
  const char *point = memchr(text, '.', size);
  if (!point) point = memchr(text, 'e', size);
  add_cell(table, TSR__PSQL_FLOAT, text, size, point ? (size_t)(text + size - point) : 0);
}

/* ---- the table ---- */

static void measure_columns(const tsr__psql *table, column *columns) {
  if (!table->column_count) return;
  for (size_t c = 0; c < table->column_count; c++) columns[c] = (column){.kind = TSR__PSQL_INTEGER};
  for (size_t i = 0; i < table->cells.count; i++) {
    column *to = &columns[i % table->column_count];
    const tsr__psql_cell *cell = &table->cells.items[i];
    if (cell->kind > to->kind) to->kind = cell->kind;
    if (cell->after > to->after) to->after = cell->after;
  }
  for (size_t c = 0; c < table->column_count; c++)
    columns[c].width = strlen(table->headers[c]) + MIN_PADDING;
  for (size_t i = 0; i < table->cells.count; i++) {
    column *to = &columns[i % table->column_count];
    const tsr__psql_cell *cell = &table->cells.items[i];
    size_t width = cell->width + (to->kind == TSR__PSQL_FLOAT ? to->after - cell->after : 0);
    if (width > to->width) to->width = width;
  }
}

static void rule(const tsr__psql *table, const column *columns, char edge, tsr__buffer *out) {
  for (size_t c = 0; c < table->column_count; c++) {
    tsr__buffer_fill(out, c ? '+' : edge, 1);
    tsr__buffer_fill(out, '-', columns[c].width + 2);
  }
  tsr__buffer_fill(out, edge, 1);
}

static bool is_number(const column *of) {
  return of->kind == TSR__PSQL_INTEGER || of->kind == TSR__PSQL_FLOAT;
}

/* `size` bytes at `data`, which are `width` characters, and `after` blanks after them. */
static void put(const column *to, const char *data, size_t size, size_t width, size_t after,
                tsr__buffer *out) {
  assert(width + after <= to->width);
  size_t gap = to->width - width - after;
  tsr__buffer_text(out, "| ");
  if (is_number(to)) tsr__buffer_fill(out, ' ', gap);
  tsr__buffer_append(out, data, size);
  tsr__buffer_fill(out, ' ', after + (is_number(to) ? 0 : gap) + 1);
}

static void put_headers(const tsr__psql *table, const column *columns, tsr__buffer *out) {
  for (size_t c = 0; c < table->column_count; c++) {
    size_t size = strlen(table->headers[c]);
    put(&columns[c], table->headers[c], size, size, 0, out);
  }
  tsr__buffer_text(out, "|\n");
}

/* A row, line by line; `begins` has where the next line of each cell begins. */
static void put_row(const tsr__psql *table, const column *columns, const tsr__psql_cell *row,
                    tsr__buffer *out) {
  size_t begins[TSR__PSQL_COLUMNS] = {0}, count = 1;
  for (size_t c = 0; c < table->column_count; c++)
    if (row[c].line_count > count) count = row[c].line_count;
  for (size_t line = 0; line < count; line++) {
    for (size_t c = 0; c < table->column_count; c++) {
      if (line >= row[c].line_count || !row[c].size) {
        put(&columns[c], "", 0, 0, 0, out);
        continue;
      }
      const char *at = table->texts.data + row[c].begin + begins[c];
      size_t left = row[c].size - begins[c];
      const char *newline = left ? memchr(at, '\n', left) : NULL;
      size_t size = newline ? (size_t)(newline - at) : left;
      size_t after = columns[c].kind == TSR__PSQL_FLOAT ? columns[c].after - row[c].after : 0;
      put(&columns[c], at, size, characters(at, size), after, out);
      begins[c] += size + 1;
    }
    tsr__buffer_text(out, "|\n");
  }
}

void tsr__psql_print(const tsr__psql *table, tsr__buffer *out) {
  column columns[TSR__PSQL_COLUMNS];
  if (table->failed) out->failed = true;
  if (!table->cells.count || out->failed) return;
  assert(table->column_count && table->column_count <= TSR__PSQL_COLUMNS);
  assert(table->cells.count % table->column_count == 0);
  measure_columns(table, columns);
  rule(table, columns, '+', out);
  tsr__buffer_text(out, "\n");
  put_headers(table, columns, out);
  rule(table, columns, '|', out);
  tsr__buffer_text(out, "\n");
  for (size_t i = 0; i + table->column_count <= table->cells.count; i += table->column_count)
    put_row(table, columns, &table->cells.items[i], out);
  rule(table, columns, '+', out);
}

void tsr__psql_release(tsr__psql *table) {
  tsr__buffer_release(&table->texts);
  TSR__VECTOR_FREE(&table->cells);
}
