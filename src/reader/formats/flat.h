/* flat.h - inputs that are a flat list of allocations and frees.
 *
 * A profiler's trace, an export of Nsight Systems or a timeline of PyTorch's list when memory was allocated
 * and freed, mostly where, often with what was allocated in all afterwards. They have no segments and no state
 * at the end. A reader adds one row for each entry, in any order, and finishes; what is common to such
 * files is decided here.
 *
 *   tsr__flat flat;
 *   tsr__flat_init(&flat, assembler->builder);
 *   ... tsr__flat_add(&flat, &(tsr__flat_row){.kind = TSR__FLAT_ALLOC, ...});
 *   status = tsr__flat_finish(&flat, error);
 *   tsr__flat_release(&flat);
 *
 * Rows are put in the order of their times, those of one time in the order in which they were added. For each
 * device:
 *
 *   a free of an address that no row allocated      was there before the recording, with its bytes
 *   the first total, less what is known to be there was there before, as one allocation without a stack
 *   a total that its rows do not explain            one more allocation without a stack, or the end of one,
 *                                                   in an event of its own before the row's
 *
 * so that the answer's totals are the file's at each of its rows. Where totals fall below what the rows leave
 * live, they are not followed; that is counted (TSR__WARN_TOTALS_DISAGREE).
 * Rows without an address are given one: a free that of the newest live allocation of its device with the same
 * bytes. */
#ifndef TSR_FORMATS_FLAT_H
#define TSR_FORMATS_FLAT_H

#include "base/map.h"
#include "columns/builder.h"

typedef enum tsr__flat_kind {
  TSR__FLAT_ALLOC,
  TSR__FLAT_FREE,
  TSR__FLAT_OOM /* an allocation of these bytes failed */
} tsr__flat_kind;

/* The address of a row that has none in the file, and the total of one that has none. */
#define TSR__FLAT_UNKNOWN UINT64_MAX

typedef struct tsr__flat_row {
  int64_t time_ns;  /* since the Unix epoch, or since any other moment */
  uint64_t address; /* or TSR__FLAT_UNKNOWN */
  uint64_t bytes;   /* TSR__FLAT_UNKNOWN for a free with an address: those that are live there */
  uint64_t allocated_bytes; /* of the device, after this row, or TSR__FLAT_UNKNOWN */
  uint64_t reserved_bytes;  /* the same; TSR__FLAT_UNKNOWN if the file does not know it */
  uint32_t device; /* a number below tsr_limits.devices, TSR_DEVICE_CPU or TSR_DEVICE_HOST */
  uint32_t stack;  /* id, or TSR_NONE; may be set until tsr__flat_finish */
  uint32_t says;   /* string id of what the file says that the memory is, or TSR_NONE: a category
                                (tsr_category_name), or text as in user_metadata */
  uint64_t stream; /* raw handle; 0 is the default stream, or unknown */
  uint32_t thread; /* the reader's own */
  uint8_t kind;    /* tsr__flat_kind */
} tsr__flat_row;

typedef struct tsr__flat {
  tsr__builder *builder; /* not owned */
  TSR__VECTOR(tsr__flat_row) rows;
  bool lists_all; /* the rows contain what was there before, so totals are not missed */
} tsr__flat;

void tsr__flat_init(tsr__flat *flat, tsr__builder *builder);
void tsr__flat_release(tsr__flat *flat);
/* False when out of memory. A row whose device is out of bounds is counted as TSR__WARN_EVENTS_MALFORMED and left
 * out. */
bool tsr__flat_add(tsr__flat *flat, const tsr__flat_row *row);
/* Bytes of memory held. */
uint64_t tsr__flat_bytes(const tsr__flat *flat);

/* Put the rows in order of time, without adding them to the snapshot. _finish does it, if it has to be done. */
void tsr__flat_sort(tsr__flat *flat);

/* Add all rows to the snapshot and count what is to be warned about: always that there are no segments. The rows
 * are gone then. TSR_ERROR_MEMORY. O(n log n) in rows. */
int tsr__flat_finish(tsr__flat *flat, tsr_error *error);

#endif
