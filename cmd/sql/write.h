/* write.h - the rows of a query in a format. */
#ifndef CLI_SQL_WRITE_H
#define CLI_SQL_WRITE_H

#include "core/session.h"

#include "sqlite.h"

/* In the order of --output's words. */
typedef enum sql_format {
  SQL_FORMAT_TABLE,
  SQL_FORMAT_CSV,
  SQL_FORMAT_JSON,
  SQL_FORMAT_ARROW,
  SQL_FORMAT_PARQUET,
  SQL_FORMAT_COUNT
} sql_format;

/* Where rows come from: a prepared statement. */
typedef struct sql_rows {
  const sql_lib *lib;
  sqlite3_stmt *statement;
  int column_count;
} sql_rows;

/* What is not yet written. A failure turns later writes into nothing, and is the status of sql_out_finish. */
typedef struct sql_out {
  cli_output *output;
  cli_text text; /* its data is reused */
  int status;    /* of the first failure: TSR_ERROR_WRITE or TSR_ERROR_MEMORY */
} sql_out;

void sql_out_put(sql_out *out, const char *data, size_t size_bytes);
void sql_out_text(sql_out *out, const char *text);
/* Room for `size_bytes` bytes, of which sql_out_use says how many were written there. NULL after a failure. */
char *sql_out_room(sql_out *out, size_t size_bytes);
void sql_out_use(sql_out *out, size_t size_bytes);
/* Write what is left; returns the status. */
int sql_out_finish(sql_out *out);

/* A number as SQL writes it: a real has a point or an exponent, and reads back as the same number. At most 32 bytes. */
int sql_number_text(const sql_rows *rows, int column, char *text, size_t room_bytes);

/* How a format writes. `state` is the format's, zeroed before begin; what begin or row allocate, release frees. Each returns 0, a
 * negative tsr_status, or an exit status after explaining what is wrong. */
typedef struct sql_writer {
  size_t state_bytes;
  int (*begin)(void *state, const sql_rows *rows, sql_out *out, cli_session *session);
  int (*row)(void *state, const sql_rows *rows, sql_out *out);
  int (*end)(void *state, const sql_rows *rows, sql_out *out);
  void (*release)(void *state);
} sql_writer;

extern const sql_writer sql_table_writer, sql_csv_writer, sql_json_writer, sql_arrow_writer,
    sql_parquet_writer;

/* Whether DuckDB, which writes Parquet, can be loaded: 0 or a usage error. */
int sql_parquet_check(const cli_options *options);

#endif
