/* write.c - what formats share, and two that need no more than a row at a time: CSV and JSON. */
#define _POSIX_C_SOURCE 200809L

#include "write.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <tessera/unstable/json.h>
#include <tessera/unstable/terminal.h>
#include <unistd.h>

enum { WRITE_BYTES = 64 << 10 };

/* ---- Output ---- */

static void write_out(sql_out *out) {
  if (!out->status && out->text.size &&
      cli_output_write(out->output, out->text.data, out->text.size) != 0)
    out->status = TSR_ERROR_WRITE;
  out->text.size = 0;
}

char *sql_out_room(sql_out *out, size_t size_bytes) {
  if (out->text.size >= WRITE_BYTES) write_out(out);
  if (out->status) return NULL;
  if (out->text.capacity - out->text.size < size_bytes) {
    size_t capacity = out->text.size + size_bytes + WRITE_BYTES;
    char *larger = realloc(out->text.data, capacity);
    if (!larger) {
      out->status = TSR_ERROR_MEMORY;
      return NULL;
    }
    out->text.data = larger;
    out->text.capacity = capacity;
  }
  return out->text.data + out->text.size;
}

void sql_out_use(sql_out *out, size_t size_bytes) {
  out->text.size += size_bytes;
}

void sql_out_put(sql_out *out, const char *data, size_t size_bytes) {
  char *room = sql_out_room(out, size_bytes);
  if (!room) return;
  if (size_bytes) memcpy(room, data, size_bytes);
  sql_out_use(out, size_bytes);
}

void sql_out_text(sql_out *out, const char *text) {
  sql_out_put(out, text, strlen(text));
}

int sql_out_finish(sql_out *out) {
  write_out(out);
  free(out->text.data);
  out->text = (cli_text){0};
  return out->status;
}

/* ---- Values ---- */

int sql_number_text(const sql_rows *rows, int column, char *text, size_t room_bytes) {
  if (rows->lib->column_type(rows->statement, column) == SQLITE_INTEGER)
    return snprintf(text, room_bytes, "%" PRId64,
                    (int64_t)rows->lib->column_int64(rows->statement, column));
  double value = rows->lib->column_double(rows->statement, column);
  int size = snprintf(text, room_bytes, "%.15g", value);
  if (strtod(text, NULL) != value) size = snprintf(text, room_bytes, "%.17g", value);
  if (strcspn(text, ".en") == (size_t)size)
    size += snprintf(text + size, room_bytes - (size_t)size, ".0");
  return size;
}

static void put_hex(sql_out *out, const unsigned char *data, size_t size_bytes) {
  static const char digits[] = "0123456789abcdef";
  for (size_t i = 0; i < size_bytes; i++) {
    char *room = sql_out_room(out, 2);
    if (!room) return;
    room[0] = digits[data[i] >> 4];
    room[1] = digits[data[i] & 15];
    sql_out_use(out, 2);
  }
}

/* The bytes of a text or blob; NULL when out of memory. */
static const char *bytes_of(const sql_rows *rows, int column, size_t *size_bytes) {
  bool is_blob = rows->lib->column_type(rows->statement, column) == SQLITE_BLOB;
  const void *data = is_blob ? rows->lib->column_blob(rows->statement, column)
                             : (const void *)rows->lib->column_text(rows->statement, column);
  *size_bytes = (size_t)rows->lib->column_bytes(rows->statement, column);
  return data ? data : *size_bytes ? NULL : "";
}

/* ---- JSON ---- */

/* The keys of an object, `"name": `, made once. */
typedef struct json {
  char **keys;
  int count;
  bool has_rows;
} json;

static void put_json_text(sql_out *out, const char *text, size_t size_bytes) {
  sql_out_text(out, "\"");
  char *room = sql_out_room(out, 6 * size_bytes + 16);
  if (room) sql_out_use(out, tsr_json_text(text, size_bytes, room));
  sql_out_text(out, "\"");
}

static bool has_name(const sql_rows *rows, int before, const char *name) {
  for (int i = 0; i < before; i++)
    if (strcmp(rows->lib->column_name(rows->statement, i), name) == 0) return true;
  return false;
}

/* The name of a column; one that occurred before gets its position, since an object has a key once. */
static char *make_key(const sql_rows *rows, int column) {
  const char *name = rows->lib->column_name(rows->statement, column);
  if (!name) return NULL;
  size_t length = strlen(name);
  char *key = malloc(6 * length + 48);
  if (!key) return NULL;
  key[0] = '"';
  char *end = key + 1 + tsr_json_text(name, length, key + 1);
  if (has_name(rows, column, name)) end += sprintf(end, "_%d", column + 1);
  strcpy(end, "\": ");
  return key;
}

static int json_begin(void *state, const sql_rows *rows, sql_out *out, cli_session *session) {
  json *j = state;
  (void)session;
  j->keys = calloc((size_t)rows->column_count, sizeof *j->keys);
  for (; j->keys && j->count < rows->column_count; j->count++)
    if (!(j->keys[j->count] = make_key(rows, j->count))) return TSR_ERROR_MEMORY;
  sql_out_text(out, "[");
  return j->keys ? 0 : TSR_ERROR_MEMORY;
}

static int json_value(const sql_rows *rows, int column, sql_out *out) {
  char number[32];
  size_t size;
  const char *text;
  switch (rows->lib->column_type(rows->statement, column)) {
  case SQLITE_FLOAT:
    if (!isfinite(rows->lib->column_double(rows->statement, column))) break;
    /* fall through */
  case SQLITE_INTEGER:
    sql_out_put(out, number, (size_t)sql_number_text(rows, column, number, sizeof number));
    return 0;
  case SQLITE_TEXT:
    text = bytes_of(rows, column, &size);
    if (!text) return TSR_ERROR_MEMORY;
    put_json_text(out, text, size);
    return 0;
  case SQLITE_BLOB:
    text = bytes_of(rows, column, &size);
    if (!text) return TSR_ERROR_MEMORY;
    sql_out_text(out, "\"");
    put_hex(out, (const unsigned char *)text, size);
    sql_out_text(out, "\"");
    return 0;
  default: break;
  }
  sql_out_text(out, "null");
  return 0;
}

static int json_row(void *state, const sql_rows *rows, sql_out *out) {
  json *j = state;
  int status = 0;
  sql_out_text(out, j->has_rows ? ",\n  {" : "\n  {");
  j->has_rows = true;
  for (int i = 0; !status && i < rows->column_count; i++) {
    if (i) sql_out_text(out, ", ");
    sql_out_text(out, j->keys[i]);
    status = json_value(rows, i, out);
  }
  sql_out_text(out, "}");
  return status;
}

static int json_end(void *state, const sql_rows *rows, sql_out *out) {
  (void)rows;
  sql_out_text(out, ((json *)state)->has_rows ? "\n]\n" : "]\n");
  return 0;
}

static void json_release(void *state) {
  json *j = state;
  for (int i = 0; i < j->count; i++) free(j->keys[i]);
  free(j->keys);
}

const sql_writer sql_json_writer = {sizeof(json), json_begin, json_row, json_end, json_release};

/* ---- CSV: RFC 4180 ---- */

/* Spreadsheet programs execute text that looks like a formula; an apostrophe before it prevents that, as in `tessera export`. */
static void put_csv_text(sql_out *out, const char *text, size_t size_bytes) {
  bool is_formula = size_bytes && strchr("=+-@", text[0]);
  sql_out_text(out, is_formula ? "\"'" : "\"");
  for (size_t at = 0; at < size_bytes;) {
    const char *quote = memchr(text + at, '"', size_bytes - at);
    size_t end = quote ? (size_t)(quote - text) + 1 : size_bytes;
    sql_out_put(out, text + at, end - at);
    if (quote) sql_out_text(out, "\"");
    at = end;
  }
  sql_out_text(out, "\"");
}

typedef struct csv {
  bool is_shown; /* at a terminal, which texts must not control */
} csv;

/* A text as it is, or what of it a terminal may get. Returns 0 or TSR_ERROR_MEMORY. */
static int put_csv_value(const csv *c, sql_out *out, const char *text, size_t size_bytes) {
  char *copy = c->is_shown ? malloc(size_bytes + 1) : NULL;
  if (c->is_shown && !copy) return TSR_ERROR_MEMORY;
  if (copy && size_bytes) memcpy(copy, text, size_bytes);
  if (copy)
    put_csv_text(out, copy, tsr_terminal_clean(copy, size_bytes, false));
  else
    put_csv_text(out, text, size_bytes);
  free(copy);
  return 0;
}

static int csv_begin(void *state, const sql_rows *rows, sql_out *out, cli_session *session) {
  csv *c = state;
  (void)session;
  c->is_shown = !out->output->path && isatty(STDOUT_FILENO);
  for (int i = 0; i < rows->column_count; i++) {
    const char *name = rows->lib->column_name(rows->statement, i);
    if (!name) return TSR_ERROR_MEMORY;
    bool is_word =
        strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789") ==
        strlen(name);
    if (i) sql_out_text(out, ",");
    if (is_word)
      sql_out_text(out, name);
    else if (put_csv_value(c, out, name, strlen(name)))
      return TSR_ERROR_MEMORY;
  }
  sql_out_text(out, "\r\n");
  return 0;
}

static int csv_row(void *state, const sql_rows *rows, sql_out *out) {
  for (int i = 0; i < rows->column_count; i++) {
    char number[32];
    size_t size;
    int type = rows->lib->column_type(rows->statement, i);
    if (i) sql_out_text(out, ",");
    if (type == SQLITE_NULL) continue;
    if (type == SQLITE_INTEGER || type == SQLITE_FLOAT) {
      sql_out_put(out, number, (size_t)sql_number_text(rows, i, number, sizeof number));
      continue;
    }
    const char *text = bytes_of(rows, i, &size);
    if (!text) return TSR_ERROR_MEMORY;
    if (type == SQLITE_TEXT && put_csv_value(state, out, text, size)) return TSR_ERROR_MEMORY;
    if (type == SQLITE_BLOB) put_hex(out, (const unsigned char *)text, size);
  }
  sql_out_text(out, "\r\n");
  return 0;
}

static int csv_end(void *state, const sql_rows *rows, sql_out *out) {
  (void)state, (void)rows, (void)out;
  return 0;
}

static void csv_release(void *state) {
  (void)state;
}

const sql_writer sql_csv_writer = {sizeof(csv), csv_begin, csv_row, csv_end, csv_release};
