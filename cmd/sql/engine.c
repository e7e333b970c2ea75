/* engine.c - see engine.h. */
#define _POSIX_C_SOURCE 200809L

#include "engine.h"

#include "core/monotonic.h"

#include <stdio.h>
#include <string.h>
#include <tessera/tessera.h>
#include <time.h>

/* A text or blob of a query, and a query. Snapshots contain no text of that size. */
enum { VALUE_BYTES_MOST = 64 << 20, STEPS_BETWEEN_CHECKS = 4000 };

/* ---- What is authorized ---- */

static bool is_one_of(const char *name, const char *const *list) {
  for (; name && *list; list++)
    if (strcmp(name, *list) == 0) return true;
  return false;
}

/* Pragmas that describe tables and functions. */
static const char *const pragmas[] = {"table_info", "table_xinfo", "table_list", "function_list",
                                      NULL};
/* Functions that reach beyond the query. */
static const char *const functions[] = {"load_extension", "fts3_tokenizer", NULL};

static int authorize(void *context, int action, const char *first, const char *second,
                     const char *database, const char *trigger) {
  sql_engine *engine = context;
  (void)database, (void)trigger;
  switch (action) {
  case SQLITE_SELECT:
  case SQLITE_READ:
  case SQLITE_RECURSIVE: return SQLITE_OK;
  case SQLITE_FUNCTION:
    if (!is_one_of(second, functions)) return SQLITE_OK;
    engine->denied = "this function";
    return SQLITE_DENY;
  case SQLITE_PRAGMA:
    if (is_one_of(first, pragmas)) return SQLITE_OK;
    engine->denied = "this PRAGMA";
    return SQLITE_DENY;
  case SQLITE_ATTACH:
  case SQLITE_DETACH: engine->denied = "another database"; return SQLITE_DENY;
  default: engine->denied = "a statement that changes something"; return SQLITE_DENY;
  }
}

/* ---- Limits ---- */

static int check_limits(void *context) {
  sql_engine *engine = context;
  if (engine->is_cancelled && *engine->is_cancelled) return 1;
  if (!engine->deadline_ms || (uint64_t)cli_now_ms() < engine->deadline_ms) return 0;
  engine->is_out_of_time = true;
  return 1;
}

static void set_limits(sql_engine *engine) {
  const sql_lib *lib = &engine->lib;
  lib->limit(engine->db, SQLITE_LIMIT_LENGTH, VALUE_BYTES_MOST);
  lib->limit(engine->db, SQLITE_LIMIT_ATTACHED, 0);
  lib->limit(engine->db, SQLITE_LIMIT_WORKER_THREADS, 0);
  if (engine->limits.memory_bytes)
    lib->hard_heap_limit64((sqlite3_int64)(engine->limits.memory_bytes > INT64_MAX
                                               ? INT64_MAX
                                               : engine->limits.memory_bytes));
  lib->progress_handler(engine->db, STEPS_BETWEEN_CHECKS, check_limits, engine);
}

/* ---- Open and close ---- */

static int open_database(sql_engine *engine) {
  const sql_lib *lib = &engine->lib;
  int code = lib->open_v2(
      ":memory:", &engine->db,
      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX, NULL);
  /* Nothing may go to temporary files: a query is not allowed to fill a disk. What is sorted in one piece of memory need not be merged. */
  if (code == SQLITE_OK)
    code = lib->exec(engine->db, "PRAGMA temp_store = MEMORY; PRAGMA cache_size = -500000", NULL,
                     NULL, NULL);
  if (code == SQLITE_OK) code = sql_tables_register(engine);
  return code;
}

int sql_engine_open(sql_engine *engine, tsr_relations *relations, const sql_limits *limits) {
  *engine = (sql_engine){.relations = relations, .limits = *limits};
  int status = sql_lib_load(&engine->lib, &engine->failure);
  if (status) return status;
  int code = open_database(engine);
  if (code == SQLITE_OK) return 0;
  if (code != SQLITE_NOMEM) engine->failure = engine->lib.errmsg(engine->db);
  return code == SQLITE_NOMEM ? TSR_ERROR_MEMORY : TSR_ERROR_UNSUPPORTED;
}

void sql_engine_lock(sql_engine *engine) {
  const sql_lib *lib = &engine->lib;
  lib->db_config(engine->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
  lib->db_config(engine->db, SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0, NULL);
  lib->set_authorizer(engine->db, authorize, engine);
  set_limits(engine);
}

void sql_engine_close(sql_engine *engine) {
  if (engine->db) engine->lib.close(engine->db);
  if (engine->db && engine->limits.memory_bytes) engine->lib.hard_heap_limit64(0);
  engine->db = NULL;
}

/* ---- Statements ---- */

int sql_engine_prepare(sql_engine *engine, const char *text, sqlite3_stmt **out,
                       const char **rest) {
  engine->denied = NULL;
  engine->is_out_of_time = false;
  engine->deadline_ms =
      engine->limits.seconds ? (uint64_t)cli_now_ms() + engine->limits.seconds * 1000 : 0;
  return engine->lib.prepare_v2(engine->db, text, -1, out, rest);
}

sql_end sql_engine_why(const sql_engine *engine, int code) {
  switch (code & 0xff) {
  case SQLITE_OK:
  case SQLITE_ROW:
  case SQLITE_DONE: return SQL_END_NONE;
  case SQLITE_INTERRUPT: return engine->is_out_of_time ? SQL_END_TIME : SQL_END_CANCELLED;
  case SQLITE_NOMEM: return SQL_END_MEMORY;
  case SQLITE_AUTH: return SQL_END_DENIED;
  default: return engine->denied ? SQL_END_DENIED : SQL_END_WRONG;
  }
}
