/* duck.h - DuckDB, where the user has it: it writes Parquet files (parquet.c), and runs queries over the same tables (--engine duckdb).
 *
 * The library is loaded by its name. Its C interface is declared here as far as it is used, because no Debian has the header. */
#ifndef CLI_SQL_DUCK_H
#define CLI_SQL_DUCK_H

#include <stdbool.h>
#include <stdint.h>
#include <tessera/unstable/relations.h>

#include "engine.h"
#include "write.h"

/* duckdb_result, which some functions take by value: its size is part of the interface. */
typedef struct sql_duck_result {
  uint64_t private_words[6];
} sql_duck_result;

/* Functions that return int return 0 if all is well, where nothing else is noted. */
#define DUCK_FUNCTIONS(X)                                                                  \
  X(int, open, (const char *path, void **database))                                        \
  X(int, connect, (void *database, void **connection))                                     \
  X(void, disconnect, (void **connection))                                                 \
  X(void, close, (void **database))                                                        \
  X(int, query, (void *connection, const char *text, sql_duck_result *result))             \
  X(const char *, result_error, (sql_duck_result * result))                                \
  X(void, destroy_result, (sql_duck_result * result))                                      \
  X(int, appender_create,                                                                  \
    (void *connection, const char *schema, const char *table, void **appender))            \
  X(int, appender_end_row, (void *appender))                                               \
  X(int, appender_destroy, (void **appender))                                              \
  X(const char *, appender_error, (void *appender))                                        \
  X(int, append_int64, (void *appender, int64_t value))                                    \
  X(int, append_double, (void *appender, double value))                                    \
  X(int, append_varchar_length, (void *appender, const char *text, uint64_t size_bytes))   \
  X(int, append_blob, (void *appender, const void *data, uint64_t size_bytes))             \
  X(int, append_null, (void *appender))                                                    \
  X(int, append_data_chunk, (void *appender, void *chunk))                                 \
  X(void *, create_logical_type, (int type))                                               \
  X(void, destroy_logical_type, (void **type))                                             \
  X(void *, create_data_chunk, (void **types, uint64_t count))                             \
  X(void, destroy_data_chunk, (void **chunk))                                              \
  X(void, data_chunk_reset, (void *chunk))                                                 \
  X(void, data_chunk_set_size, (void *chunk, uint64_t size))                               \
  X(uint64_t, data_chunk_get_size, (void *chunk))                                          \
  X(void *, data_chunk_get_vector, (void *chunk, uint64_t column))                         \
  X(uint64_t, vector_size, (void))                                                         \
  X(void *, vector_get_data, (void *vector))                                               \
  X(uint64_t *, vector_get_validity, (void *vector))                                       \
  X(void, vector_ensure_validity_writable, (void *vector))                                 \
  X(void, validity_set_row_invalid, (uint64_t * validity, uint64_t row))                   \
  X(void, vector_assign_string_element_len,                                                \
    (void *vector, uint64_t row, const char *text, uint64_t size_bytes))                   \
  X(uint64_t, extract_statements, (void *connection, const char *text, void **statements)) \
  X(const char *, extract_statements_error, (void *statements))                            \
  X(int, prepare_extracted_statement,                                                      \
    (void *connection, void *statements, uint64_t index, void **prepared))                 \
  X(void, destroy_extracted, (void **statements))                                          \
  X(const char *, prepare_error, (void *prepared))                                         \
  X(int, prepared_statement_type, (void *prepared))                                        \
  X(uint64_t, nparams, (void *prepared))                                                   \
  X(void, destroy_prepare, (void **prepared))                                              \
  X(int, pending_prepared, (void *prepared, void **pending))                               \
  X(int, pending_execute_task, (void *pending))                                            \
  X(const char *, pending_error, (void *pending))                                          \
  X(int, execute_pending, (void *pending, sql_duck_result *result))                        \
  X(void, destroy_pending, (void **pending))                                               \
  X(void, interrupt, (void *connection))                                                   \
  X(uint64_t, column_count, (sql_duck_result * result))                                    \
  X(const char *, column_name, (sql_duck_result * result, uint64_t column))                \
  X(int, column_type, (sql_duck_result * result, uint64_t column))                         \
  X(void *, column_logical_type, (sql_duck_result * result, uint64_t column))              \
  X(int, decimal_internal_type, (void *type))                                              \
  X(uint8_t, decimal_scale, (void *type))                                                  \
  X(void *, fetch_chunk, (sql_duck_result result))

typedef struct sql_duck_lib {
#define DUCK_MEMBER(type, name, arguments) type(*name) arguments;
  DUCK_FUNCTIONS(DUCK_MEMBER)
#undef DUCK_MEMBER
} sql_duck_lib;

/* False if there is no DuckDB, or one that is too old. */
bool sql_duck_load(sql_duck_lib *lib);

/* Print DuckDB's message, without the lines after it, which repeat the query. Returns CLI_FAULT. */
int sql_duck_explain(const char *why);
/* Run a text whose rows nobody wants: 0, or CLI_FAULT after explaining. */
int sql_duck_query(const sql_duck_lib *lib, void *connection, const char *text);

/* ---- Queries ---- */

typedef struct sql_duck sql_duck;

/* A database in memory, with room for as much as the limits say, which reads and writes no files. Its tables are filled when a query
 * names them. The relations must outlive it. `*out` is for sql_duck_close, which takes NULL. Returns 0, TSR_ERROR_MEMORY, or an exit
 * status after explaining what is wrong. */
int sql_duck_open(tsr_relations *relations, const sql_limits *limits, sql_duck **out);
void sql_duck_close(sql_duck *duck);

/* Called with the rows of each statement of a text, before the first is fetched; returns a status. */
typedef int sql_take_fn(void *context, const sql_rows *rows);

/* Run all statements of a text, which must be queries. Returns 0, a negative tsr_status, or an exit status after explaining. */
int sql_duck_run(sql_duck *duck, const char *text, sql_take_fn *take, void *context);

#endif
