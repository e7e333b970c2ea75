/* save.c - see save.h.
 *
 * The database is written by SQLite, page by page, into the unfinished file of the output (core/output.h), which has no name yet. So
 * SQLite gets a file system that consists of this file: other files, such as journals, are neither made nor needed, because what
 * is written becomes visible only when it is complete. */
#define _POSIX_C_SOURCE 200809L

#include "save.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shell.h"

#define FILE_SYSTEM "tessera-output"

/* ---- A file system of one file ---- */

typedef struct output_file {
  sqlite3_file base; /* first: SQLite knows only this */
  int handle;
  int *error_number;
} output_file;

typedef struct file_system {
  sqlite3_vfs base;
  int handle;
  int error_number;
} file_system;

static int close_file(sqlite3_file *file) {
  (void)file;
  return SQLITE_OK;
}

static int read_file(sqlite3_file *file, void *data, int size, sqlite3_int64 offset) {
  const output_file *f = (const output_file *)file;
  char *at = data;
  ssize_t got = 1;
  int left = size;
  while (left && (got = pread(f->handle, at, (size_t)left, (off_t)offset)) > 0) {
    at += got;
    offset += got;
    left -= (int)got;
  }
  if (left) memset(at, 0, (size_t)left); /* as SQLite wants it after the end */
  if (got < 0) *f->error_number = errno;
  return got < 0 ? SQLITE_IOERR_READ : left ? SQLITE_IOERR_SHORT_READ : SQLITE_OK;
}

static int write_file(sqlite3_file *file, const void *data, int size, sqlite3_int64 offset) {
  const output_file *f = (const output_file *)file;
  const char *at = data;
  while (size) {
    ssize_t written = pwrite(f->handle, at, (size_t)size, (off_t)offset);
    if (written <= 0) {
      *f->error_number = written ? errno : EIO;
      return SQLITE_IOERR_WRITE;
    }
    at += written;
    offset += written;
    size -= (int)written;
  }
  return SQLITE_OK;
}

static int truncate_file(sqlite3_file *file, sqlite3_int64 size) {
  const output_file *f = (const output_file *)file;
  return ftruncate(f->handle, (off_t)size) ? SQLITE_IOERR_TRUNCATE : SQLITE_OK;
}

static int sync_file(sqlite3_file *file, int flags) {
  (void)file, (void)flags;
  return SQLITE_OK;
}

static int measure_file(sqlite3_file *file, sqlite3_int64 *out) {
  struct stat found;
  if (fstat(((const output_file *)file)->handle, &found)) return SQLITE_IOERR_FSTAT;
  *out = found.st_size;
  return SQLITE_OK;
}

static int lock_file(sqlite3_file *file, int level) {
  (void)file, (void)level;
  return SQLITE_OK;
}

static int is_locked(sqlite3_file *file, int *out) {
  (void)file;
  *out = 0;
  return SQLITE_OK;
}

static int control_file(sqlite3_file *file, int what, void *argument) {
  (void)file, (void)what, (void)argument;
  return SQLITE_NOTFOUND;
}

static int sector_bytes(sqlite3_file *file) {
  (void)file;
  return 4096;
}

static int traits_of_device(sqlite3_file *file) {
  (void)file;
  return 0;
}

static const sqlite3_io_methods methods = {
    .iVersion = 1,
    .xClose = close_file,
    .xRead = read_file,
    .xWrite = write_file,
    .xTruncate = truncate_file,
    .xSync = sync_file,
    .xFileSize = measure_file,
    .xLock = lock_file,
    .xUnlock = lock_file,
    .xCheckReservedLock = is_locked,
    .xFileControl = control_file,
    .xSectorSize = sector_bytes,
    .xDeviceCharacteristics = traits_of_device,
};

static int open_file(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags, int *out) {
  file_system *system = (file_system *)vfs;
  output_file *f = (output_file *)file;
  (void)name;
  *f = (output_file){.base.pMethods = NULL};
  if (!(flags & SQLITE_OPEN_MAIN_DB)) return SQLITE_CANTOPEN;
  *f = (output_file){{&methods}, system->handle, &system->error_number};
  if (out) *out = flags;
  return SQLITE_OK;
}

static int delete_file(sqlite3_vfs *vfs, const char *name, int syncs) {
  (void)vfs, (void)name, (void)syncs;
  return SQLITE_OK;
}

static int find_file(sqlite3_vfs *vfs, const char *name, int flags, int *out) {
  (void)vfs, (void)name, (void)flags;
  *out = 0;
  return SQLITE_OK;
}

static int name_file(sqlite3_vfs *vfs, const char *name, int room, char *out) {
  (void)vfs;
  (void)snprintf(out, (size_t)room, "%s", name);
  return SQLITE_OK;
}

/* The clock and random numbers are those of the system's own. */
static void fill_system(file_system *system, const sql_lib *lib, int handle) {
  system->base = *lib->vfs_find(NULL);
  system->base.iVersion = 1;
  system->base.szOsFile = (int)sizeof(output_file);
  system->base.pNext = NULL;
  system->base.zName = FILE_SYSTEM;
  system->base.xOpen = open_file;
  system->base.xDelete = delete_file;
  system->base.xAccess = find_file;
  system->base.xFullPathname = name_file;
  system->handle = handle;
}

/* ---- The database ---- */

static int run(const sql_engine *engine, char *text) {
  int code = text ? engine->lib.exec(engine->db, text, NULL, NULL, NULL) : SQLITE_NOMEM;
  engine->lib.free(text);
  return code;
}

static int copy_table(const sql_engine *engine, const tsr_relation *relation) {
  const sql_lib *lib = &engine->lib;
  char *columns = lib->mprintf("%s", "");
  for (size_t i = 0; columns && i < relation->column_count; i++) {
    char *longer =
        lib->mprintf("%s\"%w\" %s, ", columns, relation->columns[i].name,
                     relation->columns[i].type == TSR_RELATION_TEXT ? "TEXT" : "INTEGER");
    lib->free(columns);
    columns = longer;
  }
  if (!columns) return SQLITE_NOMEM;
  int code =
      run(engine, lib->mprintf("CREATE TABLE saved.\"%w\" (%sPRIMARY KEY (%s)) WITHOUT ROWID",
                               relation->name, columns, relation->key));
  if (code == SQLITE_OK)
    code =
        run(engine, lib->mprintf("INSERT INTO saved.\"%w\" SELECT * FROM main.\"%w\" ORDER BY %s",
                                 relation->name, relation->name, relation->key));
  lib->free(columns);
  return code;
}

static int copy_tables(const sql_engine *engine) {
  const sql_lib *lib = &engine->lib;
  int code =
      run(engine, lib->mprintf("ATTACH 'file:saved?vfs=" FILE_SYSTEM "' AS saved; "
                               "PRAGMA saved.journal_mode = OFF; PRAGMA saved.synchronous = OFF; "
                               "PRAGMA saved.cache_size = -50000; BEGIN"));
  for (size_t i = 0; code == SQLITE_OK && i < tsr_relation_count(); i++)
    if (tsr_relations_have(engine->relations, i)) code = copy_table(engine, tsr_relation_at(i));
  if (code == SQLITE_OK) code = run(engine, lib->mprintf("COMMIT; DETACH saved"));
  return code;
}

static int write_database(cli_session *session, sql_engine *engine, FILE *stream) {
  file_system system = {.error_number = 0};
  fill_system(&system, &engine->lib, fileno(stream));
  int code = engine->lib.vfs_register(&system.base, 0);
  if (code == SQLITE_OK) code = copy_tables(engine);
  int status = 0;
  if (code != SQLITE_OK && system.error_number) {
    session->output.error_number = system.error_number;
    status = TSR_ERROR_WRITE;
  } else if (code != SQLITE_OK) {
    status = sql_shell_explain(engine, code);
  }
  sql_engine_close(engine);
  engine->lib.vfs_unregister(&system.base);
  return status;
}

static int open_regular(cli_session *session, FILE **out) {
  struct stat found;
  *out = cli_output_stream(&session->output);
  if (!*out) return TSR_ERROR_WRITE;
  if (*out != stdout && fstat(fileno(*out), &found) == 0 && S_ISREG(found.st_mode)) return 0;
  return cli_usage_error(session->options->command,
                         "a database is written to a file, at places in it; use -o FILE");
}

int sql_save_database(cli_session *session, tsr_study *study) {
  const sql_limits unlimited = {.seconds = 0};
  tsr_relations *relations = NULL;
  sql_engine engine = {.db = NULL};
  FILE *stream = NULL;
  int status = open_regular(session, &stream);
  if (!status) status = tsr_relations_new(study, &session->query, &relations, &session->error);
  if (!status) status = sql_shell_open(&engine, relations, &unlimited);
  if (!status) status = write_database(session, &engine, stream);
  sql_engine_close(&engine);
  tsr_relations_free(relations);
  return status;
}

static const struct {
  const char *word;
  sql_format format;
} formats_of_ranks[] = {
    {"csv", SQL_FORMAT_CSV}, {"arrow", SQL_FORMAT_ARROW}, {"parquet", SQL_FORMAT_PARQUET}};

enum { FORMATS_OF_RANKS = sizeof formats_of_ranks / sizeof *formats_of_ranks };

bool sql_saves_ranks(const char *format) {
  for (size_t i = 0; i < FORMATS_OF_RANKS; i++)
    if (strcmp(formats_of_ranks[i].word, format) == 0) return true;
  return false;
}

int sql_save_ranks(cli_session *session, const tsr_ranks *ranks, const char *format) {
  const sql_limits unlimited = {.seconds = 0};
  tsr_relations *relations = NULL;
  sql_engine engine = {.db = NULL};
  sql_shell shell = {.session = session, .engine = &engine};
  for (size_t i = 0; i < FORMATS_OF_RANKS; i++)
    if (strcmp(formats_of_ranks[i].word, format) == 0) shell.format = formats_of_ranks[i].format;
  int status = shell.format == SQL_FORMAT_PARQUET ? sql_parquet_check(session->options) : 0;
  if (!status) status = tsr_relations_of_ranks(ranks, &relations, &session->error);
  if (!status) status = sql_shell_open(&engine, relations, &unlimited);
  if (!status) status = sql_shell_run(&shell, "SELECT * FROM ranks");
  sql_engine_close(&engine);
  tsr_relations_free(relations);
  return status;
}

int sql_save_allocations(cli_session *session, tsr_study *study, bool is_parquet) {
  const sql_limits unlimited = {.seconds = 0};
  tsr_relations *relations = NULL;
  sql_engine engine = {.db = NULL};
  sql_shell shell = {.session = session,
                     .engine = &engine,
                     .format = is_parquet ? SQL_FORMAT_PARQUET : SQL_FORMAT_ARROW};
  int status = is_parquet ? sql_parquet_check(session->options) : 0;
  if (!status) status = tsr_relations_new(study, &session->query, &relations, &session->error);
  if (!status) status = sql_shell_open(&engine, relations, &unlimited);
  if (!status) status = sql_shell_run(&shell, "SELECT * FROM allocations");
  sql_engine_close(&engine);
  tsr_relations_free(relations);
  return status;
}
