/* tessera/unstable/relations.h - a snapshot and what is derived from it as relational tables, for SQL and for other
 * programs' table formats.
 *
 *   tsr_relations *all;
 *   tsr_relation_cursor *cursor;
 *   int status = tsr_relations_new(study, NULL, &all, &error);
 *   if (!status) status = tsr_relation_cursor_new(all, tsr_relation_find("allocations"), &cursor, &error);
 *   if (!status) status = tsr_relation_start(cursor, &scan, &error);
 *   for (; !status && !tsr_relation_at_end(cursor); tsr_relation_next(cursor))
 *     ... tsr_relation_value_at(cursor, column, &value)
 *
 * A relation is a row here and its columns are declared once, with their documentation. Running totals, lifetimes and peaks are
 * columns, because SQL computes them slowly. Rows are not stored: a value is computed from the columns of the snapshot
 * and of the study when it is read. What a scan needs is derived when it starts, once for all scans.
 *
 * Relations are those of one study, or of the ranks of a job (tessera/unstable/fleet.h), which have others.
 *
 * Not thread safe: one object, with its cursors, for one thread. */
#ifndef TESSERA_UNSTABLE_RELATIONS_H
#define TESSERA_UNSTABLE_RELATIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tessera/query.h"
#include "tessera/study.h"
#include "tessera/types.h"
#include "tessera/unstable/fleet.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- What there is ---- */

typedef enum tsr_relation_type { TSR_RELATION_INTEGER, TSR_RELATION_TEXT } tsr_relation_type;

/* How a scan finds the rows with a value of a column. */
typedef enum tsr_relation_access {
  TSR_ACCESS_NONE,   /* it does not: the caller compares */
  TSR_ACCESS_FILTER, /* it compares each row */
  TSR_ACCESS_SORTED, /* rows are in the order of this column within a part: a range is found by bisection */
  TSR_ACCESS_INDEX, /* few different values: rows with one of them are found in an index, made on first use */
  TSR_ACCESS_ROW, /* the position in the part */
  TSR_ACCESS_PART /* the part: a device, or the stack of frames */
} tsr_relation_access;

typedef struct tsr_relation_column {
  const char *name;
  const char *help; /* a phrase with its unit, and when it is NULL */
  tsr_relation_type type;
  tsr_relation_access access;
} tsr_relation_column;

#define TSR_RELATION_COLUMNS 32

typedef struct tsr_relation {
  const char *name, *help;
  const char *key; /* the columns that identify a row, separated by commas; "" if none do */
  const tsr_relation_column *columns;
  size_t column_count; /* at most TSR_RELATION_COLUMNS */
} tsr_relation;

/* How many relations there are. */
size_t tsr_relation_count(void);
/* `index` is below the count. Static. */
const tsr_relation *tsr_relation_at(size_t index);
/* The index of the relation of that name; the count if no relation has it. */
size_t tsr_relation_find(const char *name);

/* ---- Of a snapshot ---- */

typedef struct tsr_relations tsr_relations;

/* The relations of a study, of the devices that the query selects. Derives nothing yet. The study must outlive them; the
 * caller owns `*out` and passes it to tsr_relations_free. Fails with TSR_ERROR_MEMORY, or with TSR_ERROR_ARGUMENT for a
 * device that the snapshot does not have. */
int tsr_relations_new(tsr_study *study, const tsr_query *query, tsr_relations **out,
                      tsr_error *error);
/* The same for the ranks of a job, which must outlive them. */
int tsr_relations_of_ranks(const tsr_ranks *ranks, tsr_relations **out, tsr_error *error);
/* Whether they have a relation: a snapshot has no ranks, and ranks have no events. */
bool tsr_relations_have(const tsr_relations *relations, size_t relation);
/* NULL is fine. Its cursors must have been freed. */
void tsr_relations_free(tsr_relations *all);

/* What a planner of queries wants to know of a relation. Without deriving anything. */
typedef struct tsr_relation_shape {
  uint64_t rows, parts; /* about how many rows, in how many parts */
  bool is_ascending;    /* parts are in the order of their numbers, with the host last */
  bool has_host;        /* pinned host memory is one of the devices */
} tsr_relation_shape;

/* The shape of a relation. O(devices). */
tsr_relation_shape tsr_relation_shape_of(const tsr_relations *all, size_t relation);
/* How a scan of these relations finds the rows with a value of a column: as the column says, but that times are in order only
 * where every event has one and no clock was set back. O(devices). */
tsr_relation_access tsr_relation_access_of(const tsr_relations *all, size_t relation,
                                           size_t column);

/* ---- Scans ---- */

/* What rows must have: an integer from `low` to `high`, or this text. A condition on a column without access is ignored, so the
 * caller checks its rows again; others are never NULL. */
typedef struct tsr_relation_condition {
  size_t column;
  bool is_text;
  int64_t low, high;
  tsr_text text; /* must live until the scan has started */
} tsr_relation_condition;

typedef struct tsr_relation_scan {
  const tsr_relation_condition *conditions;
  size_t condition_count;
  uint64_t wanted; /* columns whose values are read: bit i for column i */
  /* Rows ascend by part and position, or if `is_ordered` by the column `order`, which has an index; equal values are then by part
   * and position. NULL is first, and texts are in the order of their bytes. */
  bool is_ordered;
  bool is_by_part; /* ordered within each part instead */
  size_t order;
} tsr_relation_scan;

typedef struct tsr_relation_cursor tsr_relation_cursor;

/* A cursor over a relation, of the caller, who frees it. */
int tsr_relation_cursor_new(tsr_relations *relations, size_t relation, tsr_relation_cursor **out,
                            tsr_error *error);
/* NULL is fine. */
void tsr_relation_cursor_free(tsr_relation_cursor *cursor);

/* Go to the first row. Derives what the wanted columns and the conditions need: the first time this may replay the trace, later
 * it takes O(log rows) for each condition that has an access better than FILTER. Fails with TSR_ERROR_MEMORY, or as the study's
 * computations do. */
int tsr_relation_start(tsr_relation_cursor *cursor, const tsr_relation_scan *scan,
                       tsr_error *error);
/* Go to the next row. */
void tsr_relation_next(tsr_relation_cursor *cursor);
bool tsr_relation_at_end(const tsr_relation_cursor *cursor);
/* A number that is the row's alone, in this relation of this snapshot. */
int64_t tsr_relation_row_id(const tsr_relation_cursor *cursor);

typedef enum tsr_relation_kind {
  TSR_VALUE_NULL,
  TSR_VALUE_INTEGER,
  TSR_VALUE_TEXT
} tsr_relation_kind;

typedef struct tsr_relation_value {
  tsr_relation_kind kind;
  int64_t integer; /* sizes above 2^63 - 1 saturate; addresses and streams keep their bits */
  tsr_text text;   /* bytes as in the file, not always valid UTF-8 */
  bool
      is_lasting; /* the text lives as long as the relations; otherwise until the next value is read */
} tsr_relation_value;

/* The value of a wanted column in the current row. Pinned host memory has the text "host" as its device. Fails with
 * TSR_ERROR_MEMORY. */
int tsr_relation_value_at(tsr_relation_cursor *cursor, size_t column, tsr_relation_value *out);

#ifdef __cplusplus
}
#endif
#endif
