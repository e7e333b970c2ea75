/* write_table.c - rows as an aligned table.
 *
 * Widths are those of the first rows, at most ROWS_MEASURED of them, which are kept; later rows are written as they come, so that a
 * large result needs no memory and a pipe's reader need not wait. A later value that is wider shifts the rest of its row. Only on a
 * terminal, texts are shortened to fit: what is cut in a file is lost. Names and texts are made safe for the terminal.
 */
#include <stdlib.h>
#include <string.h>
#include <tessera/unstable/terminal.h>

#include "write.h"

enum { ROWS_MEASURED = 1000, BYTES_MEASURED = 4 << 20, SHORTEST = 12, BLOB_BYTES = 16 };

/* A value that is made: its text, and how many characters that is. */
typedef struct cell {
  size_t offset, size_bytes;
} cell;

typedef struct table {
  size_t columns, width; /* width: of the terminal; 0: unlimited */
  size_t *widths;        /* by column, in characters */
  bool *is_number;       /* the column has numbers only, so far */
  cli_text text;         /* of the kept rows; of one row when they have been written */
  cell *cells;           /* row by row, the names first */
  size_t row_count, row_room;
  bool is_flowing; /* the kept rows have been written */
  bool has_color;
} table;

static size_t characters(const char *text, size_t size_bytes) {
  size_t count = 0;
  for (size_t i = 0; i < size_bytes; i++) count += ((unsigned char)text[i] & 0xc0) != 0x80;
  return count;
}

/* ---- Cells ---- */

static int add_cell(table *t, cell *out, const char *text, size_t size_bytes) {
  size_t from = t->text.size;
  if (cli_text_append(&t->text, text, size_bytes)) return TSR_ERROR_MEMORY;
  t->text.size = from + tsr_terminal_clean(t->text.data + from, size_bytes, false);
  *out = (cell){from, t->text.size - from};
  return 0;
}

static int add_blob(table *t, cell *out, const unsigned char *data, size_t size_bytes) {
  char text[2 * BLOB_BYTES + 16];
  size_t shown = size_bytes < BLOB_BYTES ? size_bytes : BLOB_BYTES, at = 2;
  strcpy(text, "x'");
  for (size_t i = 0; i < shown; i++) at += (size_t)sprintf(text + at, "%02x", data[i]);
  strcpy(text + at, shown < size_bytes ? "...'" : "'");
  return add_cell(t, out, text, strlen(text));
}

static int add_value(table *t, const sql_rows *rows, int column, cell *out) {
  char number[32];
  const void *data;
  switch (rows->lib->column_type(rows->statement, column)) {
  case SQLITE_INTEGER:
  case SQLITE_FLOAT:
    return add_cell(t, out, number, (size_t)sql_number_text(rows, column, number, sizeof number));
  case SQLITE_TEXT:
    t->is_number[column] &= t->is_flowing;
    data = rows->lib->column_text(rows->statement, column);
    if (!data) return TSR_ERROR_MEMORY;
    return add_cell(t, out, data, (size_t)rows->lib->column_bytes(rows->statement, column));
  case SQLITE_BLOB:
    t->is_number[column] &= t->is_flowing;
    data = rows->lib->column_blob(rows->statement, column);
    return add_blob(t, out, data,
                    data ? (size_t)rows->lib->column_bytes(rows->statement, column) : 0);
  default: return add_cell(t, out, "-", 1);
  }
}

/* ---- Layout ---- */

/* Take from the widest texts until the table fits. Numbers are never cut. */
static void fit(table *t) {
  size_t total = t->columns ? 2 * (t->columns - 1) : 0;
  for (size_t i = 0; i < t->columns; i++) total += t->widths[i];
  while (t->width && total > t->width) {
    size_t widest = t->columns;
    for (size_t i = 0; i < t->columns; i++)
      if (!t->is_number[i] && t->widths[i] > SHORTEST &&
          (widest == t->columns || t->widths[i] > t->widths[widest]))
        widest = i;
    if (widest == t->columns) return;
    t->widths[widest]--;
    total--;
  }
}

static void measure(table *t) {
  for (size_t i = 0; i < t->columns * t->row_count; i++) {
    size_t wide = characters(t->text.data + t->cells[i].offset, t->cells[i].size_bytes);
    if (wide > t->widths[i % t->columns]) t->widths[i % t->columns] = wide;
  }
  fit(t);
}

static void put_blanks(sql_out *out, size_t count) {
  while (count--) sql_out_put(out, " ", 1);
}

/* The first `count` characters. */
static size_t prefix_bytes(const char *text, size_t size_bytes, size_t count) {
  size_t at = 0;
  while (at < size_bytes && count--) do
      at++;
    while (at < size_bytes && ((unsigned char)text[at] & 0xc0) == 0x80);
  return at;
}

/* `*owed` is how many blanks come before the cell, so that no line ends with any. */
static void put_cell(const table *t, sql_out *out, const cell *c, size_t column, size_t *owed) {
  const char *text = t->text.data + c->offset;
  size_t wide = characters(text, c->size_bytes), room = t->widths[column];
  size_t blanks = wide < room ? room - wide : 0;
  bool is_cut = t->width && wide > room && !t->is_number[column];
  if (t->is_number[column]) *owed += blanks;
  if (c->size_bytes) {
    put_blanks(out, *owed);
    *owed = 0;
  }
  sql_out_put(out, text, is_cut ? prefix_bytes(text, c->size_bytes, room - 3) : c->size_bytes);
  if (is_cut) sql_out_text(out, "...");
  *owed += 2 + (t->is_number[column] ? 0 : blanks);
}

static void put_row(const table *t, sql_out *out, const cell *cells, bool is_header) {
  size_t owed = 0;
  if (is_header && t->has_color) sql_out_text(out, "\033[1m");
  for (size_t i = 0; i < t->columns; i++) put_cell(t, out, &cells[i], i, &owed);
  sql_out_text(out, is_header && t->has_color ? "\033[0m\n" : "\n");
}

static void write_kept(table *t, sql_out *out) {
  measure(t);
  for (size_t i = 0; i < t->row_count; i++) put_row(t, out, &t->cells[i * t->columns], i == 0);
  t->is_flowing = true;
}

/* ---- The writer ---- */

static int begin(void *state, const sql_rows *rows, sql_out *out, cli_session *session) {
  table *t = state;
  (void)out;
  t->columns = (size_t)rows->column_count;
  t->width = session->report.width;
  t->has_color = session->report.color;
  t->row_room = 64;
  t->widths = calloc(t->columns, sizeof *t->widths);
  t->is_number = calloc(t->columns, sizeof *t->is_number);
  t->cells = calloc(t->columns * t->row_room, sizeof *t->cells);
  if (!t->widths || !t->is_number || !t->cells) return TSR_ERROR_MEMORY;
  int status = 0;
  for (size_t i = 0; !status && i < t->columns; i++) {
    const char *name = rows->lib->column_name(rows->statement, (int)i);
    t->is_number[i] = true;
    status = name ? add_cell(t, &t->cells[i], name, strlen(name)) : TSR_ERROR_MEMORY;
  }
  t->row_count = 1;
  return status;
}

static bool make_room(table *t) {
  if (t->row_count < t->row_room) return true;
  cell *larger = realloc(t->cells, 2 * t->row_room * t->columns * sizeof *larger);
  if (!larger) return false;
  t->cells = larger;
  t->row_room *= 2;
  return true;
}

static int row(void *state, const sql_rows *rows, sql_out *out) {
  table *t = state;
  int status = 0;
  if (!t->is_flowing && (t->row_count > ROWS_MEASURED || t->text.size > BYTES_MEASURED))
    write_kept(t, out);
  if (t->is_flowing) t->text.size = t->row_count = 0;
  if (!make_room(t)) return TSR_ERROR_MEMORY;
  cell *cells = &t->cells[t->row_count++ * t->columns];
  for (size_t i = 0; !status && i < t->columns; i++) status = add_value(t, rows, (int)i, &cells[i]);
  if (!status && t->is_flowing) put_row(t, out, cells, false);
  return status;
}

static int end(void *state, const sql_rows *rows, sql_out *out) {
  table *t = state;
  (void)rows;
  if (!t->is_flowing) write_kept(t, out);
  return 0;
}

static void release(void *state) {
  table *t = state;
  free(t->widths);
  free(t->is_number);
  free(t->text.data);
  free(t->cells);
}

const sql_writer sql_table_writer = {sizeof(table), begin, row, end, release};
