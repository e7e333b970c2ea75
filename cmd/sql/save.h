/* save.h - tables of a snapshot as a file for other programs, for `tessera export`. */
#ifndef CLI_SQL_SAVE_H
#define CLI_SQL_SAVE_H

#include <tessera/unstable/fleet.h>

#include "core/session.h"

/* Write the allocations to the session's output, as an Arrow IPC file or with `is_parquet` as a Parquet file. Returns 0, a negative
 * tsr_status, or an exit status after explaining what is wrong. */
int sql_save_allocations(cli_session *session, tsr_study *study, bool is_parquet);

/* Write all tables as an SQLite database to the session's output, which must be a regular file. Returns likewise. */
int sql_save_database(cli_session *session, tsr_study *study);

/* Write the table `ranks` of an answer in a format of --format: "csv", "arrow" or "parquet". Returns a status, or an exit status after
 * explaining what is missing. */
int sql_save_ranks(cli_session *session, const tsr_ranks *ranks, const char *format);
/* Whether it is one of these. */
bool sql_saves_ranks(const char *format);

#endif
