/* duck_rows.h - rows of DuckDB as the writers expect rows: through the functions of SQLite that read a statement's row. */
#ifndef CLI_SQL_DUCK_ROWS_H
#define CLI_SQL_DUCK_ROWS_H

#include "duck.h"

/* Give the rows of a result to `take`. Returns its status, or an exit status after explaining that a column has a type which has no
 * counterpart here. */
int sql_duck_take(const sql_duck_lib *lib, sql_duck_result *result, sql_take_fn *take,
                  void *context);

#endif
