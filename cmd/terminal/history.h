/* history.h - a device of a view, indexed: what there is at any moment, and where a range of moments is highest, at once.
 *
 * A view (tessera/unstable/view.h) has the columns; nothing is replayed here. Moments are those of the view. They are divided
 * into blocks of HISTORY_BLOCK; what is kept by block lets a question about one moment look at one block, and a question about
 * a range look at each block once:
 *
 *   moments       |0 ....... 255|256 ..... 511|512 ...
 *   allocated      by moment: 8 bytes each
 *   high           by block: its highest moment, the first of these
 *   born, died     by block: where its births are among the rows, and its deaths in the rows by death
 *   sums           by block: bytes of each group at its first moment (terminal_sums)
 *
 * Rows that are live at a moment are found in a tree over the rows, in the order in which they are born: a node knows when the
 * last row below it dies, so that what has died costs little.
 */
#ifndef CLI_TERMINAL_HISTORY_H
#define CLI_TERMINAL_HISTORY_H

#include <stdbool.h>
#include <tessera/unstable/view.h>

enum { HISTORY_BLOCK = 256, HISTORY_LEVELS = 9 };

typedef struct terminal_history {
  const tsr_view_device *device; /* outlives it */
  uint32_t moment_count;
  uint64_t *allocated; /* by moment */
  size_t block_count;
  uint32_t *high;     /* by block */
  uint32_t *born;     /* by block: the first row that is born after its first moment */
  uint32_t *died;     /* by block: the first of `by_death` that dies after its first moment */
  uint32_t *by_death; /* rows that die at a moment of the trace, by that */
  size_t death_count;
  uint32_t *reserved_from; /* moments at which reserved memory changes, ascending; the first is 0 */
  uint64_t *reserved;      /* bytes from then on */
  size_t reserved_count;
  uint32_t
      *last[HISTORY_LEVELS]; /* the tree: by node of a level, when the last row below it dies */
  size_t last_count[HISTORY_LEVELS];
} terminal_history;

/* Index a device. Time and memory are linear in moments and allocations. False if memory ran out; to be released in either case. */
bool terminal_history_make(terminal_history *out, const tsr_view_device *device);
/* A zeroed one is fine. */
void terminal_history_release(terminal_history *history);

/* The first moment from `from` to `to` - 1 at which most is allocated; both are in the trace, and `from` < `to`. */
uint32_t terminal_history_high(const terminal_history *history, uint32_t from, uint32_t to);
uint64_t terminal_history_reserved(const terminal_history *history, uint32_t moment);

/* Append the rows that are live at a moment to `out`, which grows. False if memory ran out. */
typedef struct terminal_rows {
  uint32_t *items;
  size_t count, room;
} terminal_rows;
bool terminal_history_live(const terminal_history *history, uint32_t moment, terminal_rows *out);

/* ---- Bytes by group ---- */

/* Requested bytes of the groups of one grouping; of all rows, or of those that a search has found. */
typedef struct terminal_sums {
  const tsr_view_grouping *grouping; /* outlives it */
  const uint8_t *is_found;           /* by row, or NULL; outlives it */
  uint64_t *at_block;                /* by block, then by group */
} terminal_sums;

/* Linear in rows. False if memory ran out; to be released in either case. */
bool terminal_sums_make(terminal_sums *out, const terminal_history *history,
                        const tsr_view_grouping *grouping, const uint8_t *is_found);
void terminal_sums_release(terminal_sums *sums);
/* The bytes of each group at a moment. */
void terminal_sums_at(const terminal_sums *sums, const terminal_history *history, uint32_t moment,
                      uint64_t bytes[TSR_VIEW_GROUPS_MAX]);

/* The groups in the order in which areas are stacked, from the bottom: those that change least for what they hold first, as on
 * the page, and groups without memory last. */
void terminal_sums_order(const terminal_sums *sums, const terminal_history *history,
                         uint8_t order[TSR_VIEW_GROUPS_MAX]);

#endif
