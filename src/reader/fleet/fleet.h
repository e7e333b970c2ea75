/* fleet.h - the sketches of many files, and their ranks.
 *
 *   places ─► files ─► sketches (any thread, any machine) ─► members: a device of a rank ─► groups ─► outliers
 *
 * Files are in the order of their paths; all that follows is a function of the set of (path, sketch), so parts can be put together in
 * any order. */
#ifndef TSR_FLEET_FLEET_H
#define TSR_FLEET_FLEET_H

#include "base/map.h"
#include "columns/builder.h"
#include "fleet/names.h"
#include "fleet/sketch.h"
#include "tessera/unstable/fleet.h"

/* A file: its sketch, or why it has no sketch. */
typedef struct tsr__fleet_file {
  char *path;
  tsr__buffer sketch;
  char *message; /* NULL: the sketch is there */
} tsr__fleet_file;

/* A device of a rank's last dump. Its stacks are those of the fleet's snapshot. */
typedef struct tsr__member {
  size_t file;
  int64_t rank, step;
  bool is_other; /* a device beside the rank's own */
  bool says_oom; /* the file's name does */
  bool is_partial;
  int64_t taken_us;
  tsr_rank_place place;
  tsr__sketch_device sketch;
  uint64_t category_bytes[TSR_CATEGORY_COUNT];
  uint64_t live_count; /* activations, of each stack when it had most */
  int64_t
      ahead_us; /* when its steps begin, by its clock, less the median rank's; TSR_TIME_NONE: unknown */
  int64_t
      clock_us; /* the same if it is more than a step, or else 0: then it may be late and not wrong */
  size_t group;
} tsr__member;

/* Whether a member is compared with its equals: one of which the file lacks a part may have held more than it shows. */
static inline bool tsr__is_compared(const tsr__member *member) {
  return !member->is_other && !member->is_partial;
}

/* A dump of a rank: when it was taken, and its file. */
typedef struct tsr__dump {
  int64_t time_us;
  size_t file;
} tsr__dump;

typedef struct tsr__fleet {
  TSR__VECTOR(tsr__fleet_file) files;
  TSR__VECTOR(tsr__member) members; /* by rank, then device */
  TSR__VECTOR(size_t) by_group;     /* members, by group, then rank */
  TSR__VECTOR(size_t)
  group_first; /* by group: its first in by_group; one more entry ends the last */
  TSR__VECTOR(tsr_rank_growth) growths; /* of ranks with several dumps, by rank, then device */
  TSR__VECTOR(uint32_t) parts_seen;     /* of `parts` */
  uint32_t parts;
  size_t known_count; /* files that need not be read */
  tsr_snapshot *stacks;
  tsr_rank_source rank_source;
  tsr_mesh_source mesh_source;
  const char *name_form;
  int64_t world_size;
} tsr__fleet;

/* Read the files. `out` is released by tsr__fleet_release, also when zeroed. Errors as tsr_ranks_compute. */
int tsr__fleet_read(const tsr_fleet_options *options, tsr__fleet *out, tsr_error *error);
void tsr__fleet_release(tsr__fleet *fleet);

/* How a rank grew over its dumps, of which there are at least two, in their order: appends to `growths` each device that did, without
 * when it will be full. Time is that of decoding at most 128 of them. Fails with TSR_ERROR_MEMORY, or TSR_ERROR_FORMAT for a damaged sketch. */
int tsr__fleet_grow(tsr__fleet *fleet, int64_t rank, const tsr__dump *dumps, size_t count,
                    tsr__builder *to, tsr_error *error);
/* The fleet's number of each stack of a sketch; false when out of memory. */
bool tsr__fleet_take_stacks(const tsr__sketch *sketch, tsr__builder *to, uint32_t *stack_of);
/* Fill the answer's growths: when each card will be full, and at most `top` stacks of each. O(n log n) for n growths. */
void tsr__fleet_forecast(tsr__fleet *fleet, const tsr_fleet_options *options, tsr_ranks *out);

/* Which members are equals: fills `group` of each and the answer's groups. TSR_ERROR_MEMORY. */
int tsr__fleet_group(tsr__fleet *fleet, tsr_ranks *out, tsr_error *error);
/* Which of them differ: fills the answer's outliers. TSR_ERROR_MEMORY. O(shares log shares). */
int tsr__fleet_compare(const tsr__fleet *fleet, size_t top, tsr_ranks *out, tsr_error *error);

/* Compare the ranks, which are in the answer already, with the budgets. TSR_ERROR_MEMORY. O(limits * ranks). */
int tsr__fleet_check(const tsr__fleet *fleet, const tsr_fleet_options *options, tsr_ranks *out,
                     tsr_error *error);
/* Whose clocks differ, which fills `clock_us` of each member, and which ranks are late: fills the answer's stragglers.
 * TSR_ERROR_MEMORY. O(members x steps). */
int tsr__fleet_pace(tsr__fleet *fleet, tsr_ranks *out, tsr_error *error);
/* How the peak of any row differs from that of the rank that its group is compared with, as in a tsr_rank_outlier: `compared_with` is -1,
 * without changes, if the group has no other. The caller frees `changes`. TSR_ERROR_MEMORY. O(shares log shares + ranks of the group). */
int tsr__fleet_difference(const tsr__fleet *fleet, const tsr_ranks *ranks, size_t row, size_t top,
                          tsr_rank_outlier *out, tsr_error *error);

/* Append all sketches as one file; false when out of memory. And read one: TSR_ERROR_FORMAT or TSR_ERROR_MEMORY. */
bool tsr__fleet_encode(const tsr__fleet *fleet, tsr__buffer *out);
bool tsr__is_fleet(const void *data, size_t size_bytes);
int tsr__fleet_decode(const void *data, size_t size_bytes, tsr__fleet *into, tsr_error *error);

#endif
