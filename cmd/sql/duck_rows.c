/* duck_rows.c - see duck_rows.h.
 *
 * A result comes in chunks of columns. Integers of up to 64 bits are integers here, larger ones and decimals are reals unless they are
 * whole and fit, texts and blobs are themselves, and everything else must be cast to text by the query. */
#include "duck_rows.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* duckdb_type */
enum {
  TYPE_BOOLEAN = 1,
  TYPE_TINYINT,
  TYPE_SMALLINT,
  TYPE_INTEGER,
  TYPE_BIGINT,
  TYPE_UTINYINT,
  TYPE_USMALLINT,
  TYPE_UINTEGER,
  TYPE_UBIGINT,
  TYPE_FLOAT,
  TYPE_DOUBLE,
  TYPE_HUGEINT = 16,
  TYPE_VARCHAR = 17,
  TYPE_BLOB = 18,
  TYPE_DECIMAL = 19,
  TYPE_NOTHING = 36
};

/* duckdb_string_t. Of at most 12 bytes, the text begins at the prefix, in place of the pointer. */
typedef struct duck_text {
  uint32_t size;
  char prefix[4];
  const char *data;
} duck_text;
enum { INSIDE_BYTES = 12 };

typedef struct column {
  int type, stored; /* duckdb_type; of a decimal, how it is stored */
  double divisor;   /* of a decimal */
  const void *data; /* of the chunk */
  const uint64_t *validity;
} column;

/* What stands for the statement. */
typedef struct duck_rows {
  const sql_duck_lib *lib;
  sql_duck_result *result;
  column *columns;
  int count;
  void *chunk;
  uint64_t size, at; /* of the chunk's rows */
} duck_rows;

static duck_rows *rows_of(sqlite3_stmt *statement) {
  return (duck_rows *)(void *)statement;
}

/* ---- Values ---- */

/* A whole number of any width; false if it does not fit. */
static bool whole_of(const column *c, uint64_t row, int type, int64_t *out) {
  switch (type) {
  case TYPE_BOOLEAN:
  case TYPE_UTINYINT: *out = ((const uint8_t *)c->data)[row]; return true;
  case TYPE_TINYINT:
    *out = ((const uint8_t *)c->data)[row];
    if (*out > INT8_MAX) *out -= 256;
    return true;
  case TYPE_SMALLINT: *out = ((const int16_t *)c->data)[row]; return true;
  case TYPE_USMALLINT: *out = ((const uint16_t *)c->data)[row]; return true;
  case TYPE_INTEGER: *out = ((const int32_t *)c->data)[row]; return true;
  case TYPE_UINTEGER: *out = ((const uint32_t *)c->data)[row]; return true;
  case TYPE_BIGINT: *out = ((const int64_t *)c->data)[row]; return true;
  case TYPE_UBIGINT: *out = ((const int64_t *)c->data)[row]; return *out >= 0;
  case TYPE_HUGEINT: {
    const int64_t *halves = (const int64_t *)c->data + 2 * row; /* the lower one first */
    *out = halves[0];
    return halves[1] == (halves[0] < 0 ? -1 : 0);
  }
  default: return false;
  }
}

static double real_of(const column *c, uint64_t row, int type) {
  int64_t whole;
  if (type == TYPE_FLOAT) return (double)((const float *)c->data)[row];
  if (type == TYPE_DOUBLE) return ((const double *)c->data)[row];
  if (whole_of(c, row, type, &whole)) return (double)whole;
  if (type == TYPE_UBIGINT) return (double)((const uint64_t *)c->data)[row];
  const int64_t *halves = (const int64_t *)c->data + 2 * row;
  return (double)halves[1] * 18446744073709551616.0 + (double)(uint64_t)halves[0];
}

static bool is_null(const column *c, uint64_t row) {
  return c->type == TYPE_NOTHING || (c->validity && !(c->validity[row >> 6] >> (row & 63) & 1));
}

static int type_at(sqlite3_stmt *statement, int index) {
  const duck_rows *r = rows_of(statement);
  const column *c = &r->columns[index];
  int64_t whole;
  if (is_null(c, r->at)) return SQLITE_NULL;
  if (c->type == TYPE_VARCHAR) return SQLITE_TEXT;
  if (c->type == TYPE_BLOB) return SQLITE_BLOB;
  return c->type != TYPE_DECIMAL && whole_of(c, r->at, c->type, &whole) ? SQLITE_INTEGER
                                                                        : SQLITE_FLOAT;
}

static sqlite3_int64 integer_at(sqlite3_stmt *statement, int index) {
  const duck_rows *r = rows_of(statement);
  int64_t whole = 0;
  (void)whole_of(&r->columns[index], r->at, r->columns[index].type, &whole);
  return whole;
}

static double real_at(sqlite3_stmt *statement, int index) {
  const duck_rows *r = rows_of(statement);
  const column *c = &r->columns[index];
  return real_of(c, r->at, c->stored) / c->divisor;
}

static const duck_text *text_of(sqlite3_stmt *statement, int index) {
  const duck_rows *r = rows_of(statement);
  return (const duck_text *)r->columns[index].data + r->at;
}

static const void *blob_at(sqlite3_stmt *statement, int index) {
  const duck_text *text = text_of(statement, index);
  if (text->size > INSIDE_BYTES) return text->data;
  return (const char *)text + offsetof(duck_text, prefix);
}

static const unsigned char *text_at(sqlite3_stmt *statement, int index) {
  return blob_at(statement, index);
}

static int bytes_at(sqlite3_stmt *statement, int index) {
  return (int)text_of(statement, index)->size;
}

/* ---- Rows ---- */

static const char *name_at(sqlite3_stmt *statement, int index) {
  const duck_rows *r = rows_of(statement);
  return r->lib->column_name(r->result, (uint64_t)index);
}

static const char *declared_at(sqlite3_stmt *statement, int index) {
  int type = rows_of(statement)->columns[index].type;
  return type == TYPE_VARCHAR                           ? "TEXT"
         : type >= TYPE_TINYINT && type <= TYPE_UBIGINT ? "INT"
                                                        : NULL;
}

static int count_of(sqlite3_stmt *statement) {
  return rows_of(statement)->count;
}

static int next(sqlite3_stmt *statement) {
  duck_rows *r = rows_of(statement);
  if (r->chunk && ++r->at < r->size) return SQLITE_ROW;
  do {
    if (r->chunk) r->lib->destroy_data_chunk(&r->chunk);
    r->chunk = r->lib->fetch_chunk(*r->result);
    r->size = r->chunk ? r->lib->data_chunk_get_size(r->chunk) : 0;
  } while (r->chunk && !r->size);
  r->at = 0;
  for (int i = 0; r->chunk && i < r->count; i++) {
    void *vector = r->lib->data_chunk_get_vector(r->chunk, (uint64_t)i);
    r->columns[i].data = r->lib->vector_get_data(vector);
    r->columns[i].validity = r->lib->vector_get_validity(vector);
  }
  return r->chunk ? SQLITE_ROW : SQLITE_DONE;
}

/* How a column is stored; false if its type is unknown here. */
static bool set_type(duck_rows *r, int index) {
  column *c = &r->columns[index];
  c->type = c->stored = r->lib->column_type(r->result, (uint64_t)index);
  c->divisor = 1;
  if (c->type == TYPE_DECIMAL) {
    void *type = r->lib->column_logical_type(r->result, (uint64_t)index);
    c->stored = r->lib->decimal_internal_type(type);
    c->divisor = pow(10, r->lib->decimal_scale(type));
    r->lib->destroy_logical_type(&type);
  }
  return (c->type >= TYPE_BOOLEAN && c->type <= TYPE_DOUBLE) ||
         (c->type >= TYPE_HUGEINT && c->type <= TYPE_DECIMAL) || c->type == TYPE_NOTHING;
}

static const sql_lib reading = {.column_type = type_at,
                                .column_int64 = integer_at,
                                .column_double = real_at,
                                .column_text = text_at,
                                .column_blob = blob_at,
                                .column_bytes = bytes_at,
                                .column_name = name_at,
                                .column_decltype = declared_at,
                                .column_count = count_of,
                                .step = next};

int sql_duck_take(const sql_duck_lib *lib, sql_duck_result *result, sql_take_fn *take,
                  void *context) {
  duck_rows rows = {.lib = lib, .result = result, .count = (int)lib->column_count(result)};
  int status = 0;
  rows.columns = calloc((size_t)rows.count + 1, sizeof *rows.columns);
  if (!rows.columns) return TSR_ERROR_MEMORY;
  for (int i = 0; !status && i < rows.count; i++)
    if (!set_type(&rows, i)) {
      cli_say("sql", "column '%s' has a type that cannot be written; CAST it to VARCHAR",
              lib->column_name(result, (uint64_t)i));
      status = CLI_USAGE;
    }
  const sql_rows out = {&reading, (sqlite3_stmt *)(void *)&rows, rows.count};
  if (!status) status = take(context, &out);
  if (rows.chunk) lib->destroy_data_chunk(&rows.chunk);
  free(rows.columns);
  return status;
}
