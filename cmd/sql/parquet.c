/* parquet.c - rows as a Parquet file, by DuckDB where the user has it: no Debian has a library that writes one.
 *
 *   rows ──► batches (batch.h) ──► a table of DuckDB's, in memory ──► COPY to the unfinished file of the output */
#define _POSIX_C_SOURCE 200809L

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "batch.h"
#include "duck.h"

typedef struct parquet {
  sql_batch batch;
  sql_duck_lib duck;
  void *database, *connection, *appender;
  cli_output *output;
} parquet;

/* ---- DuckDB ---- */

int sql_parquet_check(const cli_options *options) {
  sql_duck_lib lib;
  if (sql_duck_load(&lib)) return 0;
  return cli_usage_error(
      options->command, "Parquet needs DuckDB (libduckdb.so), which cannot be loaded; write Arrow "
                        "with -o x.arrow, and convert it with pyarrow: pyarrow.parquet.write_table("
                        "pyarrow.feather.read_table('x.arrow'), 'x.parquet')");
}

static int run(const parquet *p, const char *text) {
  return sql_duck_query(&p->duck, p->connection, text);
}

/* ---- The table ---- */

static const char *type_of(const sql_column *c) {
  switch (c->type) {
  case SQL_COLUMN_INTEGER: return "BIGINT";
  case SQL_COLUMN_REAL: return "DOUBLE";
  case SQL_COLUMN_BLOB: return "BLOB";
  default: return "VARCHAR";
  }
}

/* Names differ in a table, also without regard to case: one that occurred before gets the position of its column. */
static bool has_name(const sql_batch *batch, size_t before, const char *name) {
  for (size_t i = 0; i < before; i++)
    if (strcasecmp(batch->columns[i].name, name) == 0) return true;
  return false;
}

static void put_name(FILE *stream, const sql_batch *batch, size_t column) {
  const char *name = batch->columns[column].name;
  fputc('"', stream);
  for (const char *at = name; *at; at++) fprintf(stream, *at == '"' ? "\"\"" : "%c", *at);
  if (has_name(batch, column, name)) fprintf(stream, "_%zu", column + 1);
  fputc('"', stream);
}

static int make_table(parquet *p) {
  cli_text text = {0};
  FILE *stream = cli_text_open(&text);
  if (!stream) return TSR_ERROR_MEMORY;
  fputs("CREATE TABLE rows (", stream);
  for (size_t i = 0; i < p->batch.column_count; i++) {
    if (i) fputs(", ", stream);
    put_name(stream, &p->batch, i);
    fprintf(stream, " %s", type_of(&p->batch.columns[i]));
  }
  fputs(")", stream);
  int status = cli_text_close(stream, &text) ? run(p, text.data) : TSR_ERROR_MEMORY;
  free(text.data);
  if (!status && p->duck.appender_create(p->connection, NULL, "rows", &p->appender))
    status = sql_duck_explain(p->appender ? p->duck.appender_error(p->appender) : NULL);
  return status;
}

/* ---- A batch ---- */

static int append(const parquet *p, const sql_column *c, size_t row, size_t *from) {
  char number[32];
  if (c->kinds[row] == SQLITE_NULL) return p->duck.append_null(p->appender);
  if (c->type == SQL_COLUMN_INTEGER)
    return p->duck.append_int64(p->appender, (int64_t)c->values[row]);
  if (c->type == SQL_COLUMN_REAL) return p->duck.append_double(p->appender, sql_batch_real(c, row));
  tsr_text text = sql_batch_text(c, row, from, number);
  if (c->type == SQL_COLUMN_BLOB)
    return p->duck.append_blob(p->appender, text.data, text.size_bytes);
  return p->duck.append_varchar_length(p->appender, text.data, text.size_bytes);
}

static int append_rows(const parquet *p, size_t *from) {
  for (size_t row = 0; row < p->batch.row_count; row++) {
    for (size_t i = 0; i < p->batch.column_count; i++)
      if (append(p, &p->batch.columns[i], row, &from[i])) return -1;
    if (p->duck.appender_end_row(p->appender)) return -1;
  }
  return 0;
}

static int flush(parquet *p, const sql_rows *rows) {
  int status = sql_batch_settle(&p->batch, rows);
  if (!status && !p->appender) status = make_table(p);
  if (status) return status;
  size_t *from = calloc(p->batch.column_count, sizeof *from);
  if (!from) return TSR_ERROR_MEMORY;
  if (append_rows(p, from)) status = sql_duck_explain(p->duck.appender_error(p->appender));
  free(from);
  sql_batch_clear(&p->batch);
  return status;
}

/* ---- The writer ---- */

static int begin(void *state, const sql_rows *rows, sql_out *out, cli_session *session) {
  parquet *p = state;
  struct stat found;
  FILE *stream = cli_output_stream(out->output);
  if (!stream) return TSR_ERROR_WRITE;
  if (stream == stdout || fstat(fileno(stream), &found) || !S_ISREG(found.st_mode))
    return cli_usage_error(session->options->command,
                           "a Parquet file is written at places in it; use -o FILE");
  p->output = out->output;
  if (!sql_duck_load(&p->duck)) return TSR_ERROR_UNSUPPORTED;
  if (p->duck.open(NULL, &p->database) || p->duck.connect(p->database, &p->connection))
    return sql_duck_explain("cannot be started");
  int status = run(p, "SET temp_directory = ''");
  return status ? status : sql_batch_begin(&p->batch, rows);
}

static int row(void *state, const sql_rows *rows, sql_out *out) {
  parquet *p = state;
  bool is_full;
  (void)out;
  int status = sql_batch_add(&p->batch, rows, &is_full);
  return !status && is_full ? flush(p, rows) : status;
}

/* The unfinished file has no name but this one. */
static int end(void *state, const sql_rows *rows, sql_out *out) {
  parquet *p = state;
  char text[160];
  int status = flush(p, rows);
  if (!status && p->duck.appender_destroy(&p->appender))
    status = sql_duck_explain("the rows cannot be kept");
  if (status) return status;
  (void)snprintf(
      text, sizeof text,
      "COPY rows TO '/proc/self/fd/%d' (FORMAT PARQUET, COMPRESSION ZSTD, USE_TMP_FILE FALSE)",
      fileno(cli_output_stream(out->output)));
  return run(p, text);
}

static void release(void *state) {
  parquet *p = state;
  if (p->appender) p->duck.appender_destroy(&p->appender);
  if (p->connection) p->duck.disconnect(&p->connection);
  if (p->database) p->duck.close(&p->database);
  sql_batch_release(&p->batch);
}

const sql_writer sql_parquet_writer = {sizeof(parquet), begin, row, end, release};
