/* engine.h - a database in which the relations of a snapshot are tables, and nothing can be written.
 *
 * Text of a query may come from somebody else, as files do. So the database is empty and in memory, only SELECT is authorized, and
 * memory and time are bounded. */
#ifndef CLI_SQL_ENGINE_H
#define CLI_SQL_ENGINE_H

#include <stdbool.h>
#include <stdint.h>
#include <tessera/unstable/relations.h>

#include "sqlite.h"

/* What a query may use; 0: unlimited. */
typedef struct sql_limits {
  uint64_t memory_bytes;
  uint64_t seconds; /* of each statement */
} sql_limits;

/* Why a statement ended early. */
typedef enum sql_end {
  SQL_END_NONE,
  SQL_END_TIME,
  SQL_END_CANCELLED, /* by sql_engine_cancel */
  SQL_END_MEMORY,
  SQL_END_DENIED, /* it would have changed something */
  SQL_END_WRONG   /* SQLite's message explains */
} sql_end;

typedef struct sql_engine {
  sql_lib lib;
  sqlite3 *db;
  tsr_relations *relations; /* not owned */
  sql_limits limits;
  const char *denied;   /* what was not authorized; NULL: nothing */
  uint64_t deadline_ms; /* of the statement; 0: none */
  bool is_out_of_time;
  volatile int *is_cancelled; /* set by a signal; not owned; NULL: never */
  const char *failure;        /* why sql_engine_open failed, if not for lack of memory */
} sql_engine;

/* Load SQLite and make the database. Fails with TSR_ERROR_UNSUPPORTED, and `failure` set, if there is no SQLite, or with
 * TSR_ERROR_MEMORY. The engine must stay where it is, and is to be closed in either case. */
int sql_engine_open(sql_engine *engine, tsr_relations *relations, const sql_limits *limits);
/* From here on only queries are authorized. */
void sql_engine_lock(sql_engine *engine);
/* A zeroed one is fine. Statements must have been finalized. */
void sql_engine_close(sql_engine *engine);

/* Prepare the first statement of `text`; `*rest` is what follows. `*out` is NULL for a blank text or a comment. Starts the clock.
 * Returns an SQLite code, which sql_engine_why explains. */
int sql_engine_prepare(sql_engine *engine, const char *text, sqlite3_stmt **out, const char **rest);
/* Why a statement failed, with SQLite's code. */
sql_end sql_engine_why(const sql_engine *engine, int code);

/* ---- table.c ---- */

/* Register the relations as virtual tables. Returns an SQLite code. */
int sql_tables_register(sql_engine *engine);

#endif
