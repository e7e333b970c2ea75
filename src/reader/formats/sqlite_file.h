/* sqlite_file.h - rows of the tables of an SQLite database, read from the file's bytes.
 *
 * Only what a reader of exports needs: ordinary tables, in UTF-8, front to back or a row by its number. Nothing
 * is executed: no view, no trigger, no expression of the schema. So the library needs no SQLite, and the same
 * code reads a file, standard input and a compressed form (docs/decisions/092-sqlite-files.md).
 *
 * The format is documented at sqlite.org/fileformat2.html. Every page number, offset and size in a file may be
 * wrong. Each scan visits at most as many pages as the file has, so that no file can make it run in circles. */
#ifndef TSR_FORMATS_SQLITE_FILE_H
#define TSR_FORMATS_SQLITE_FILE_H

#include "base/buffer.h"
#include "io/access.h"

/* Columns of a table and of a scan, and bytes of a row, beyond which nothing is read. */
enum { TSR__SQLITE_COLUMNS = 64, TSR__SQLITE_WANTED = 16, TSR__SQLITE_ROW_BYTES = 256 << 10 };

typedef struct tsr__sqlite {
  tsr__access *access; /* not owned */
  uint32_t page_bytes, usable_bytes;
  uint64_t page_count;
  bool has_log;    /* written with a write-ahead log, which is another file */
  tsr__buffer row; /* scratch: a row that is not on one page */
} tsr__sqlite;

typedef struct tsr__sqlite_table {
  const char *name;
  uint32_t root;
  int key;                               /* the column that is the row's number, or -1 */
  int count;                             /* columns */
  char columns[TSR__SQLITE_COLUMNS][40]; /* names; a longer one is empty */
} tsr__sqlite_table;

typedef enum tsr__sqlite_type {
  TSR__SQLITE_NULL,
  TSR__SQLITE_INTEGER,
  TSR__SQLITE_REAL,
  TSR__SQLITE_TEXT, /* or a blob */
} tsr__sqlite_type;

typedef struct tsr__sqlite_value {
  tsr__sqlite_type type;
  int64_t integer;
  double real;
  const char *text; /* valid during the visit; cut at TSR__SQLITE_ROW_BYTES */
  size_t size_bytes;
} tsr__sqlite_value;

/* A row: `row` is its number, `values` the wanted columns. Anything but 0 ends the scan and is returned. */
typedef int tsr__sqlite_visit(void *context, int64_t row, const tsr__sqlite_value *values,
                              tsr_error *error);

bool tsr__sqlite_looks_like(const unsigned char *data, size_t size);

/* Read the file's header. Fails with TSR_ERROR_FORMAT, _UNSUPPORTED or as `access` does. To be released either way. */
int tsr__sqlite_open(tsr__sqlite *db, tsr__access *access, tsr_error *error);
void tsr__sqlite_release(tsr__sqlite *db);

/* The table with this name, which must outlive `table`. `*found` is whether it exists and is one that can be read. */
int tsr__sqlite_find(tsr__sqlite *db, const char *name, tsr__sqlite_table *table, bool *found,
                     tsr_error *error);
/* The number of a column, or -1. */
int tsr__sqlite_column(const tsr__sqlite_table *table, const char *name);

/* Visit all rows. `columns` are the numbers of `count` columns; a negative one is always NULL. Fails with
 * TSR_ERROR_FORMAT if the table is damaged, as `visit` does, and with TSR_ERROR_MEMORY. */
int tsr__sqlite_scan(tsr__sqlite *db, const tsr__sqlite_table *table, const int *columns, int count,
                     tsr__sqlite_visit *visit, void *context, tsr_error *error);
/* Visit the row with this number, if it exists. Fails likewise. O(depth of the tree). */
int tsr__sqlite_seek(tsr__sqlite *db, const tsr__sqlite_table *table, int64_t row,
                     const int *columns, int count, tsr__sqlite_visit *visit, void *context,
                     tsr_error *error);

#endif
