/* relations.h - between the files of the room: how a relation is declared, and what a scan has in its hands.
 *
 * Rows are in *parts*: the devices, or for frames the stacks. A part's rows have positions from 0. So a row is a part and a
 * position, and nothing else is stored of it. See tessera/unstable/relations.h. */
#ifndef TSR_TABLES_RELATIONS_H
#define TSR_TABLES_RELATIONS_H

#include "base/buffer.h"
#include "base/vector.h"
#include "study/study.h"
#include "tessera/unstable/relations.h"
#include "tessera/unstable/steps.h"

typedef enum tsr__relation_id {
  TSR__DEVICES,
  TSR__EVENTS,
  TSR__ALLOCATIONS,
  TSR__STACKS,
  TSR__FRAMES,
  TSR__SEGMENTS,
  TSR__BLOCKS,
  TSR__SPANS,
  TSR__STEPS,
  TSR__ANNOTATIONS,
  TSR__RANKS,
  TSR__OUTLIERS,
  TSR__CHANGES,
  TSR__RELATION_COUNT
} tsr__relation_id;

/* What a column needs to have been derived. */
typedef enum tsr__need {
  TSR__FOR_TIMELINE = 1 << 0,
  TSR__FOR_CATEGORIES = 1 << 1,
  TSR__FOR_NAMES = 1 << 2,
  TSR__FOR_CYCLE = 1 << 3,
  TSR__FOR_STEPS = 1 << 4,
  TSR__FOR_ANNOTATIONS = 1 << 5,
  TSR__FOR_OPERATION = 1 << 6,
  TSR__FOR_MODULE = 1 << 7,
  TSR__FOR_LINE = 1 << 8,
  /* running totals, in the order of tsr__total */
  TSR__FOR_REQUESTED = 1 << 9,
  TSR__FOR_ALLOCATED = 1 << 10,
  TSR__FOR_ACTIVE = 1 << 11,
  TSR__FOR_RESERVED = 1 << 12,
  TSR__FOR_PEAK = 1 << 13,
} tsr__need;

typedef enum tsr__total {
  TSR__TOTAL_REQUESTED,
  TSR__TOTAL_ALLOCATED,
  TSR__TOTAL_ACTIVE,
  TSR__TOTAL_RESERVED,
  TSR__TOTAL_PEAK,
  TSR__TOTAL_COUNT
} tsr__total;

/* The texts that a code stands for. */
typedef enum tsr__domain {
  TSR__DOMAIN_NONE, /* of a column of integers: the integer itself */
  TSR__DOMAIN_ACTION,
  TSR__DOMAIN_CATEGORY,
  TSR__DOMAIN_PHASE,
  TSR__DOMAIN_CONFIDENCE,
  TSR__DOMAIN_STATE,
  TSR__DOMAIN_OPERATION,
  TSR__DOMAIN_MODULE,
  TSR__DOMAIN_LINE,
  TSR__DOMAIN_CAUSE,
  TSR__DOMAIN_COUNT
} tsr__domain;

/* Columns of more kinds than the public declaration shows, in the same order. */
typedef struct tsr__relation_extra {
  unsigned needs; /* of tsr__need */
  tsr__domain domain;
} tsr__relation_extra;

/* The rows of a part that have each value of a column: those with key k are rows[starts[k]] to rows[starts[k + 1] - 1],
 * ascending. Key 0 is NULL, k the value k - 1. */
typedef struct tsr__row_index {
  uint32_t *starts, *rows;
  uint32_t key_count;
} tsr__row_index;

/* A device of the relations. */
typedef struct tsr__relation_device {
  uint32_t device;
  tsr_events events;
  bool is_time_sorted; /* every event has a time, and none is before the one before it */
  const tsr__timeline *timeline;
  const tsr__categories *categories;
  const tsr__names *names;
  const tsr__cycle *cycle;
  const tsr__annotations *annotations;
  tsr_steps *steps;                   /* owned; of this device alone */
  uint64_t *totals[TSR__TOTAL_COUNT]; /* by event, after it; owned; NULL: not derived yet */
  TSR__VECTOR(uint32_t) segments, blocks, block_segments, notes; /* rows of the snapshot's tables */
  tsr__row_index
      indexes[2]
             [TSR_RELATION_COLUMNS]; /* of events and of allocations, by column; made on demand */
} tsr__relation_device;

struct tsr_relations {
  tsr_study *study;
  const tsr_ranks
      *ranks; /* NULL: of a snapshot. Then the study is that of the ranks' stacks, and owned */
  const tsr_snapshot *snapshot;
  tsr__relation_device *devices;
  size_t device_count;
  bool is_ascending; /* device numbers */
  unsigned derived;  /* of tsr__need */
  const tsr__labels *operations, *modules, *lines;
  uint32_t
      *orders[TSR__DOMAIN_COUNT]; /* codes in the order of their texts; owned, made on demand */
};

/* What a value is before its text is made. */
typedef enum tsr__cell_form {
  TSR__FORM_NULL,
  TSR__FORM_INTEGER,
  TSR__FORM_CODE,   /* `code` of the column's domain */
  TSR__FORM_TEXT,   /* lasting */
  TSR__FORM_SCRATCH /* appended to the buffer */
} tsr__cell_form;

typedef struct tsr__relation_cell {
  tsr__cell_form form;
  int64_t integer; /* also the code */
  tsr_text text;
} tsr__relation_cell;

/* ---- schema.c ---- */

const tsr__relation_extra *tsr__relation_extras(size_t relation);

/* ---- derive.c ---- */

/* Derive what `needs` lists, for all devices. */
int tsr__relations_derive(tsr_relations *all, unsigned needs, tsr_error *error);
/* The number of texts of a domain, one of them, and the codes in the order of their texts. Labels must have been derived. */
uint32_t tsr__domain_size(const tsr_relations *all, tsr__domain domain);
tsr_text tsr__domain_text(const tsr_relations *all, tsr__domain domain, uint32_t code);
/* NULL when out of memory. */
const uint32_t *tsr__domain_order(tsr_relations *all, tsr__domain domain);
/* The code of a text; TSR_NONE if the domain lacks it. O(log texts) once the order exists. */
int tsr__domain_find(tsr_relations *all, tsr__domain domain, tsr_text text, uint32_t *out);

/* ---- values.c ---- */

/* Whether its parts are the devices of a snapshot. */
bool tsr__relation_has_devices(size_t relation);

size_t tsr__relation_parts(const tsr_relations *all, size_t relation);
size_t tsr__relation_rows(const tsr_relations *all, size_t relation, size_t part);
/* The value of a column. `scratch` may be NULL for columns that have an access. */
tsr__relation_cell tsr__relation_cell_at(const tsr_relations *all, size_t relation, size_t part,
                                         size_t row, size_t column, tsr__buffer *scratch);

/* ---- index.c ---- */

/* The index of a column with TSR_ACCESS_INDEX for a part, made on first use: linear in its rows. NULL when out of memory. */
const tsr__row_index *tsr__relation_index(tsr_relations *all, size_t relation, size_t part,
                                          size_t column);
/* The number of keys of such an index, NULL's included. */
uint32_t tsr__relation_key_count(const tsr_relations *all, size_t relation, size_t column);
void tsr__relation_indexes_release(tsr__relation_device *device);

#endif
