/* duck.c - the tables of a snapshot in DuckDB, and queries over them: see duck.h.
 *
 *   text of a query ──► the tables and columns that it names ──► DuckDB, in chunks of its vectors
 *                   └─► statements, of which only queries run ──► rows (duck_rows.c) ──► writer
 *
 * DuckDB has no tables that a program computes while they are read and that stay as quick as its own, so they are copied: of each table the
 * columns whose names are in the text, or all if it says `*`. */
#define _POSIX_C_SOURCE 200809L

#include "duck.h"

#include <ctype.h>
#include <dlfcn.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "batch.h"
#include "core/monotonic.h"
#include "duck_rows.h"

#define LIBRARY CLI_LIBRARY_DUCKDB /* cmd/meson.build */

enum { TYPE_BIGINT = 5, TYPE_VARCHAR = 17 };
enum { STATEMENT_SELECT = 1, STATEMENT_EXPLAIN = 4 };
enum { TASK_READY = 0, TASK_FAILED = 2, TASK_NONE = 3 };

struct sql_duck {
  sql_duck_lib lib;
  void *database, *connection;
  tsr_relations *relations; /* not owned */
  sql_limits limits;
  uint64_t *columns; /* by relation: which columns its table has; 0: there is no table yet */
};

bool sql_duck_load(sql_duck_lib *lib) {
  void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL), *found;
#define LOAD(type, name, arguments)                         \
  found = library ? dlsym(library, "duckdb_" #name) : NULL; \
  if (!found) return false;                                 \
  memcpy(&lib->name, &found, sizeof found); /* no cast from data to functions */
  DUCK_FUNCTIONS(LOAD)
#undef LOAD
  return true;
}

int sql_duck_explain(const char *why) {
  if (!why) why = "an error without a message";
  cli_say("sql", "DuckDB: %.*s", (int)strcspn(why, "\n"), why);
  return CLI_FAULT;
}

/* What is wrong with a query is a mistake of who wrote it. */
static int explain(const char *why) {
  (void)sql_duck_explain(why);
  return CLI_USAGE;
}

int sql_duck_query(const sql_duck_lib *lib, void *connection, const char *text) {
  sql_duck_result result = {{0}};
  int status = lib->query(connection, text, &result);
  if (status) status = sql_duck_explain(lib->result_error(&result));
  lib->destroy_result(&result);
  return status;
}

static int run(const sql_duck *duck, const char *text) {
  return sql_duck_query(&duck->lib, duck->connection, text);
}

int sql_duck_open(tsr_relations *relations, const sql_limits *limits, sql_duck **out) {
  char text[200];
  sql_duck *duck = *out = calloc(1, sizeof *duck);
  if (!duck) return TSR_ERROR_MEMORY;
  duck->relations = relations;
  duck->limits = *limits;
  duck->columns = calloc(tsr_relation_count(), sizeof *duck->columns);
  if (!duck->columns) return TSR_ERROR_MEMORY;
  if (!sql_duck_load(&duck->lib)) {
    cli_say("sql", "--engine duckdb takes DuckDB (libduckdb.so), which cannot be loaded");
    return CLI_USAGE;
  }
  if (duck->lib.open(NULL, &duck->database) || duck->lib.connect(duck->database, &duck->connection))
    return explain("cannot be started");
  (void)snprintf(text, sizeof text,
                 "SET temp_directory = ''; SET enable_external_access = false; "
                 "SET memory_limit = '%" PRIu64 "KiB'; SET lock_configuration = true",
                 limits->memory_bytes >> 10);
  return run(duck, text);
}

void sql_duck_close(sql_duck *duck) {
  if (!duck) return;
  if (duck->connection) duck->lib.disconnect(&duck->connection);
  if (duck->database) duck->lib.close(&duck->database);
  free(duck->columns);
  free(duck);
}

/* ---- Which tables and columns ---- */

static bool is_word_byte(char c) {
  return isalnum((unsigned char)c) || c == '_';
}

/* Whether the text has the word, in any case, wherever that is: a table too much costs time only. */
static bool has_word(const char *text, const char *word) {
  size_t length = strlen(word);
  for (const char *at = text; *at;) {
    size_t size = 0;
    while (is_word_byte(at[size])) size++;
    bool is_same = size == length;
    for (size_t i = 0; is_same && i < size; i++) is_same = tolower((unsigned char)at[i]) == word[i];
    if (is_same) return true;
    at += size ? size : 1;
  }
  return false;
}

static uint64_t columns_named(const tsr_relation *relation, const char *text) {
  /* NATURAL joins and COLUMNS(...) name columns without their names. */
  bool has_all = strchr(text, '*') || has_word(text, "natural") || has_word(text, "columns");
  uint64_t columns = 0;
  for (size_t i = 0; i < relation->column_count; i++)
    if (has_all || has_word(text, relation->columns[i].name)) columns |= UINT64_C(1) << i;
  return columns ? columns : 1;
}

/* ---- A table ---- */

typedef struct table {
  sql_duck *duck;
  const tsr_relation *relation;
  size_t columns[TSR_RELATION_COLUMNS]; /* those that it has */
  bool is_text[TSR_RELATION_COLUMNS];
  size_t count;
  void *appender, *chunk;
  tsr_relation_cursor *cursor;
  cli_text text; /* valid UTF-8 */
} table;

/* The name of a column is a word of the library's own, but may be one of SQL's. */
static int create(table *t, bool is_known) {
  char text[2048];
  size_t used = 0;
  if (is_known)
    used += (size_t)snprintf(text, sizeof text, "DROP TABLE \"%s\"; ", t->relation->name);
  used +=
      (size_t)snprintf(text + used, sizeof text - used, "CREATE TABLE \"%s\" (", t->relation->name);
  for (size_t i = 0; i < t->count; i++)
    used += (size_t)snprintf(text + used, sizeof text - used, "%s\"%s\" %s", i ? ", " : "",
                             t->relation->columns[t->columns[i]].name,
                             t->is_text[i] ? "VARCHAR" : "BIGINT");
  (void)snprintf(text + used, sizeof text - used, ")");
  return run(t->duck, text);
}

static int put_value(table *t, size_t i, uint64_t row) {
  const sql_duck_lib *lib = &t->duck->lib;
  tsr_relation_value value;
  char number[24];
  int status = tsr_relation_value_at(t->cursor, t->columns[i], &value);
  if (status) return status;
  void *vector = lib->data_chunk_get_vector(t->chunk, i);
  if (value.kind == TSR_VALUE_NULL || (value.kind == TSR_VALUE_TEXT && !t->is_text[i])) {
    lib->vector_ensure_validity_writable(vector);
    lib->validity_set_row_invalid(lib->vector_get_validity(vector), row);
    return 0;
  }
  if (!t->is_text[i]) {
    ((int64_t *)lib->vector_get_data(vector))[row] = value.integer;
    return 0;
  }
  if (value.kind == TSR_VALUE_INTEGER)
    value.text =
        (tsr_text){number, (size_t)snprintf(number, sizeof number, "%" PRId64, value.integer)};
  t->text.size = 0;
  if (cli_text_append(&t->text, value.text.data, value.text.size_bytes)) return TSR_ERROR_MEMORY;
  sql_make_valid(t->text.data, t->text.size);
  lib->vector_assign_string_element_len(vector, row, t->text.size ? t->text.data : "",
                                        t->text.size);
  return 0;
}

static int append_chunk(table *t, uint64_t rows) {
  const sql_duck_lib *lib = &t->duck->lib;
  lib->data_chunk_set_size(t->chunk, rows);
  int status =
      lib->append_data_chunk(t->appender, t->chunk) ? explain(lib->appender_error(t->appender)) : 0;
  lib->data_chunk_reset(t->chunk);
  return status;
}

static int copy_rows(table *t) {
  const uint64_t most = t->duck->lib.vector_size();
  uint64_t rows = 0;
  int status = 0;
  for (; !status && !tsr_relation_at_end(t->cursor); tsr_relation_next(t->cursor)) {
    for (size_t i = 0; !status && i < t->count; i++) status = put_value(t, i, rows);
    if (!status && ++rows < most) continue;
    if (!status) status = append_chunk(t, rows);
    rows = 0;
  }
  return !status && rows ? append_chunk(t, rows) : status;
}

static int make_chunk(table *t) {
  const sql_duck_lib *lib = &t->duck->lib;
  void *types[TSR_RELATION_COLUMNS];
  for (size_t i = 0; i < t->count; i++)
    types[i] = lib->create_logical_type(t->is_text[i] ? TYPE_VARCHAR : TYPE_BIGINT);
  t->chunk = lib->create_data_chunk(types, t->count);
  for (size_t i = 0; i < t->count; i++) lib->destroy_logical_type(&types[i]);
  return t->chunk ? 0 : TSR_ERROR_MEMORY;
}

static int fill(table *t, size_t relation, uint64_t wanted) {
  const sql_duck_lib *lib = &t->duck->lib;
  tsr_error error = {.status = TSR_OK};
  const tsr_relation_scan scan = {.wanted = wanted};
  int status = tsr_relation_cursor_new(t->duck->relations, relation, &t->cursor, &error);
  if (!status) status = tsr_relation_start(t->cursor, &scan, &error);
  if (status && status != TSR_ERROR_MEMORY) return explain(error.message);
  if (!status) status = make_chunk(t);
  if (!status && lib->appender_create(t->duck->connection, NULL, t->relation->name, &t->appender))
    status = explain(t->appender ? lib->appender_error(t->appender) : NULL);
  if (!status) status = copy_rows(t);
  if (t->appender && lib->appender_destroy(&t->appender) && !status)
    status = explain("the rows cannot be kept");
  return status;
}

/* Pinned host memory is a device whose number is a text. */
static bool is_text_column(const sql_duck *duck, size_t relation, size_t column) {
  const tsr_relation_column *c = &tsr_relation_at(relation)->columns[column];
  bool is_device = strcmp(c->name, "device") == 0;
  return c->type == TSR_RELATION_TEXT ||
         (is_device && tsr_relation_shape_of(duck->relations, relation).has_host);
}

static int copy_table(sql_duck *duck, size_t relation, uint64_t wanted) {
  table t = {.duck = duck, .relation = tsr_relation_at(relation)};
  for (size_t i = 0; i < t.relation->column_count; i++) {
    if (!(wanted >> i & 1)) continue;
    t.columns[t.count] = i;
    t.is_text[t.count++] = is_text_column(duck, relation, i);
  }
  int status = create(&t, duck->columns[relation] != 0);
  if (!status) status = fill(&t, relation, wanted);
  if (!status) duck->columns[relation] = wanted;
  if (t.chunk) duck->lib.destroy_data_chunk(&t.chunk);
  tsr_relation_cursor_free(t.cursor);
  free(t.text.data);
  return status;
}

static int copy_tables(sql_duck *duck, const char *text) {
  int status = 0;
  for (size_t i = 0; !status && i < tsr_relation_count(); i++) {
    const tsr_relation *relation = tsr_relation_at(i);
    if (!tsr_relations_have(duck->relations, i) || !has_word(text, relation->name)) continue;
    uint64_t wanted = columns_named(relation, text) | duck->columns[i];
    if (wanted != duck->columns[i]) status = copy_table(duck, i, wanted);
  }
  return status;
}

/* ---- Statements ---- */

/* Work on it piece by piece, until its first rows are there or its time is over. */
static int execute(sql_duck *duck, void *pending, sql_duck_result *result) {
  const sql_duck_lib *lib = &duck->lib;
  const struct timespec pause = {.tv_nsec = 1000000};
  double until = duck->limits.seconds ? cli_now_s() + (double)duck->limits.seconds : 0;
  int state;
  while ((state = lib->pending_execute_task(pending)) != TASK_READY && state != TASK_FAILED) {
    if (until > 0 && cli_now_s() > until) {
      lib->interrupt(duck->connection);
      cli_say("sql", "the query took longer than %" PRIu64 " s (--time-limit)",
              duck->limits.seconds);
      return CLI_FAULT;
    }
    if (state == TASK_NONE) (void)nanosleep(&pause, NULL); /* others work on it */
  }
  if (state == TASK_FAILED) return explain(lib->pending_error(pending));
  return lib->execute_pending(pending, result) ? explain(lib->result_error(result)) : 0;
}

static int run_prepared(sql_duck *duck, void *prepared, sql_take_fn *take, void *context) {
  const sql_duck_lib *lib = &duck->lib;
  int type = lib->prepared_statement_type(prepared);
  void *pending = NULL;
  sql_duck_result result = {{0}};
  if (type != STATEMENT_SELECT && type != STATEMENT_EXPLAIN) {
    cli_say("sql", "only queries are run, with SELECT: a statement that changes something is "
                   "refused");
    return CLI_USAGE;
  }
  if (lib->nparams(prepared)) return explain("the query has parameters, which nothing sets");
  int status = lib->pending_prepared(prepared, &pending) ? explain(lib->pending_error(pending)) : 0;
  if (!status) status = execute(duck, pending, &result);
  if (!status) status = sql_duck_take(lib, &result, take, context);
  lib->destroy_result(&result);
  lib->destroy_pending(&pending);
  return status;
}

int sql_duck_run(sql_duck *duck, const char *text, sql_take_fn *take, void *context) {
  const sql_duck_lib *lib = &duck->lib;
  void *statements = NULL;
  int status = copy_tables(duck, text);
  if (status) return status;
  uint64_t count = lib->extract_statements(duck->connection, text, &statements);
  const char *wrong = lib->extract_statements_error(statements);
  if (!count && wrong && *wrong) status = explain(wrong);
  for (uint64_t i = 0; !status && i < count; i++) {
    void *prepared = NULL;
    status = lib->prepare_extracted_statement(duck->connection, statements, i, &prepared)
                 ? explain(lib->prepare_error(prepared))
                 : run_prepared(duck, prepared, take, context);
    lib->destroy_prepare(&prepared);
  }
  lib->destroy_extracted(&statements);
  return status;
}
