/* sqlite.h - SQLite, loaded on demand: no other command needs it. docs/decisions/069-sql.md */
#ifndef CLI_SQL_SQLITE_H
#define CLI_SQL_SQLITE_H

#include <sqlite3.h>

/* Its functions, each under its own name without the prefix. */
typedef struct sql_lib {
/* clang-format off */
#define SQL_FUNCTIONS(X) \
  X(bind_parameter_count) X(close) X(column_blob) X(column_bytes) X(column_count) X(column_decltype) \
  X(column_double) X(column_int64) X(column_name) X(column_text) X(column_type) X(complete) \
  X(create_module_v2) X(db_config) X(declare_vtab) X(errmsg) X(exec) X(extended_errcode) \
  X(finalize) X(free) X(hard_heap_limit64) X(initialize) X(interrupt) X(limit) X(mprintf) \
  X(open_v2) X(prepare_v2) X(progress_handler) X(result_error) X(result_error_nomem) X(result_int64) \
  X(result_null) X(result_text) X(set_authorizer) X(step) X(stmt_readonly) X(value_bytes) \
  X(value_double) X(value_int64) X(value_text) X(value_type) X(vfs_find) X(vfs_register) \
  X(vfs_unregister) X(vtab_collation)
/* clang-format on */
#define SQL_FIELD(name) __typeof__(sqlite3_##name) *name;
  SQL_FUNCTIONS(SQL_FIELD)
#undef SQL_FIELD
  /* Since 3.38; NULL before. */
  int (*vtab_distinct)(sqlite3_index_info *info);
} sql_lib;

/* Load it; it stays loaded. Returns 0; TSR_ERROR_MEMORY; or TSR_ERROR_UNSUPPORTED, and `*why` is a static text or dlerror's. */
int sql_lib_load(sql_lib *lib, const char **why);

#endif
