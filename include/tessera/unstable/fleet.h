/* tessera/unstable/fleet.h - the snapshots of many ranks at once: which one ran out, which one differs from its equals, and where.
 *
 * Each file becomes a sketch of at most 64 KiB (docs/sketch.md), so that thousands of ranks fit into memory, and sketches that were
 * made elsewhere can be put together. */
#ifndef TESSERA_UNSTABLE_FLEET_H
#define TESSERA_UNSTABLE_FLEET_H

#include "tessera/category.h"
#include "tessera/output.h"
#include "tessera/snapshot.h"
#include "tessera/unstable/sidecar.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a budget is for. */
typedef enum tsr_rank_rule {
  TSR_RANK_MAX_PEAK,     /* the most that a device allocated */
  TSR_RANK_MAX_CATEGORY, /* the most that a category held, as requested */
  TSR_RANK_MAX_RESERVED, /* the most that a device reserved */
  TSR_RANK_MAX_SPREAD,   /* the highest peak of ranks of equal role less the lowest */
  TSR_RANK_RULE_COUNT
} tsr_rank_rule;

typedef struct tsr_rank_limit {
  tsr_rank_rule rule;
  tsr_category category; /* of MAX_CATEGORY */
  uint64_t bytes;
} tsr_rank_limit;

/* What to look at; all texts are borrowed for the call. */
typedef struct tsr_fleet_options {
  const char *const
      *places; /* folders, patterns, @lists, files: snapshots, and sketches of several */
  size_t place_count;
  const char *pattern;  /* regular expression with named groups for paths; NULL: the known forms */
  const char *mesh;     /* "pp=4,dp=8,tp=8", outermost axis first; NULL: as files tell */
  uint32_t part, parts; /* only every parts-th file, from the part-th; 0, 0: all */
  /* Sketches of an earlier run: those of files that have not changed since it was written are used again. NULL, or a file that is not
   * there or is no such file: none. */
  const char *known;
  uint32_t threads;        /* 0: as many as there are processors */
  uint64_t capacity_bytes; /* of the cards; 0: as sidecars tell */
  size_t top;              /* entries of a list; 0: all */
  const tsr_rank_limit *limits;
  size_t limit_count;
  bool allows_missing; /* checks can pass though files or ranks are missing */
  tsr_progress_fn *progress;
  void *progress_context;
} tsr_fleet_options;

/* How a rank's file was recognised. */
typedef enum tsr_rank_source {
  TSR_RANK_FROM_SIDECAR, /* or what tessera wrote into the snapshot */
  TSR_RANK_FROM_PATTERN,
  TSR_RANK_FROM_NAME,
  TSR_RANK_FROM_ORDER /* one file, or files that say nothing: numbered in order of their names */
} tsr_rank_source;

/* How ranks of equal role were found. */
typedef enum tsr_mesh_source {
  TSR_MESH_FROM_SIDECAR,
  TSR_MESH_FROM_NAME,
  TSR_MESH_GIVEN,
  TSR_MESH_FROM_LIKENESS /* nothing says: ranks with as much memory for parameters are equals */
} tsr_mesh_source;

enum { TSR_RANK_PARTS = 48 };

/* A device of a rank's last snapshot. */
typedef struct tsr_rank_row {
  int64_t rank;
  const char *path;
  uint32_t device;
  bool is_other;   /* not the device that holds most of the rank's memory */
  bool is_partial; /* its file is truncated or damaged: it is compared with nothing */
  int64_t step;    /* by the file's name, or -1 */
  size_t group;
  uint64_t peak_allocated_bytes, peak_reserved_bytes, end_allocated_bytes, end_reserved_bytes;
  int64_t peak_us, taken_us; /* taken: of the last dump; TSR_TIME_NONE: unknown */
  bool is_out_of_memory, has_history;
  int64_t stop_us;     /* when it ran out, by its own clock; TSR_TIME_NONE: unknown */
  uint64_t stop_bytes; /* of the request */
  uint32_t stop_stack; /* in tsr_ranks.stacks, or TSR_NONE */
  uint64_t category_bytes[TSR_CATEGORY_COUNT]; /* at the peak */
  tsr_mesh_axis axes[TSR_MESH_AXES];
  size_t axis_count;
  int64_t first_us, last_us;
  int64_t
      clock_us; /* ahead of the median rank's clock, by the steps; 0: by no more than a step, or unknown */
  uint64_t parts[TSR_RANK_PARTS]; /* the most allocated in equal parts of that time */
} tsr_rank_row;

/* Ranks of equal role. */
typedef struct tsr_rank_group {
  char name[96];
  int64_t *ranks; /* ascending */
  size_t rank_count;
  int64_t median_rank; /* whose peak is the median */
  uint64_t min_bytes, median_bytes, max_bytes;
} tsr_rank_group;

/* Why a rank differs, as far as its memory shows. */
typedef enum tsr_rank_cause {
  TSR_CAUSE_UNKNOWN,
  TSR_CAUSE_OTHER_DEVICE,
  TSR_CAUSE_LEAK,
  TSR_CAUSE_OPTIMIZER,
  TSR_CAUSE_PARAMETERS,
  TSR_CAUSE_EXTRA_WORK,
  TSR_CAUSE_EXPERT,
  TSR_CAUSE_IN_FLIGHT,
  TSR_CAUSE_SEQUENCE,
  TSR_CAUSE_COUNT
} tsr_rank_cause;

typedef struct tsr_rank_change {
  int64_t delta_bytes;
  uint64_t median_bytes, bytes; /* of the median rank, and of this one */
  tsr_category category;
  uint32_t stack; /* in tsr_ranks.stacks, or TSR_NONE */
} tsr_rank_change;

/* A rank that holds more than its equals. The changes add up to delta_bytes. */
typedef struct tsr_rank_outlier {
  size_t row; /* of tsr_ranks.rows */
  size_t group;
  int64_t
      compared_with; /* the group's median rank; of that one itself, the next lower; -1 for another device: with nothing */
  int64_t delta_bytes;   /* of the peak, to that rank's */
  uint64_t excess_bytes; /* what is beyond the spread of its equals */
  tsr_rank_cause cause;
  char cause_text[200];
  uint32_t stack; /* where most of the excess was allocated, or TSR_NONE */
  tsr_rank_change *
      changes; /* largest first; the last may stand for all others, then its stack is TSR_NONE and `others` counts them */
  size_t change_count, others;
} tsr_rank_outlier;

/* What a stack held at the end of a rank's first and last dump. */
typedef struct tsr_growth_stack {
  uint32_t stack; /* in tsr_ranks.stacks, or TSR_NONE */
  tsr_category category;
  uint64_t first_bytes, last_bytes;
  double bytes_per_hour; /* as below */
} tsr_growth_stack;

/* Memory of a device of a rank from dump to dump, at the end of each. With three dumps or more only what grows steadily is one: a line
 * through the dumps (the median of the slopes between any two of them), from which few dumps depart, and which the later ones follow, too.
 * docs/ranks.md explains when it is. */
typedef struct tsr_rank_growth {
  int64_t rank;
  uint32_t device;
  size_t dumps;
  uint64_t first_bytes, last_bytes;
  int64_t first_us, last_us; /* of the dumps; TSR_TIME_NONE where unknown */
  double bytes_per_hour;     /* of the line; 0 where times are unknown */
  bool is_steady;
  bool is_dead;         /* the last dump ran out of memory */
  uint64_t peak_bytes;  /* the most that is known to have been allocated, by the last dump */
  uint64_t limit_bytes; /* what the card has for PyTorch; 0: unknown */
  int64_t
      full_us; /* when the peak, growing like this, reaches that; TSR_TIME_NONE: unknown, or not within a year */
  tsr_growth_stack *stacks; /* that grow steadily, fastest first */
  size_t stack_count;
} tsr_rank_growth;

/* A budget, and what it was compared with: the rank, or of a spread the group, that is furthest above it, or nearest below. */
typedef struct tsr_rank_check {
  tsr_rank_limit limit;
  bool is_passed;
  uint64_t bytes;
  size_t row;          /* of tsr_ranks.rows: the rank; of a spread the one with the highest peak */
  size_t low_row;      /* of a spread: the one with the lowest peak */
  int64_t *failed;     /* ranks that are above, ascending; of a spread none */
  size_t failed_count; /* of a spread: groups */
  uint32_t
      stack; /* that holds most at that rank's peak, of the category if it is one; or TSR_NONE */
  uint64_t stack_bytes;
} tsr_rank_check;

/* Why checks that did not fail cannot pass either; the first that applies. */
typedef enum tsr_rank_doubt {
  TSR_RANK_CERTAIN,
  TSR_RANK_BROKEN,        /* files that cannot be read */
  TSR_RANK_MISSING,       /* ranks without a snapshot, or parts without sketches */
  TSR_RANK_PARTIAL,       /* files that are truncated or damaged */
  TSR_RANK_OUT_OF_MEMORY, /* ranks that needed more than they got */
  TSR_RANK_UNKNOWN,       /* a category has a budget, but most of a rank's memory has no category */
  TSR_RANK_DOUBT_COUNT
} tsr_rank_doubt;

/* A rank that is late in its steps, by when it allocates in them. */
typedef struct tsr_straggler {
  size_t row;               /* of tsr_ranks.rows */
  int64_t late_us;          /* in a step, behind its equals: the median */
  int64_t step_us;          /* how long a step of its group takes: the median */
  size_t steps, late_steps; /* that were compared, and in which it was late */
} tsr_straggler;

typedef struct tsr_broken_file {
  const char *path;
  const char *message;
} tsr_broken_file;

typedef struct tsr_ranks {
  tsr_rank_row *rows; /* by rank, then device */
  size_t row_count, rank_count, file_count;
  size_t known_count;     /* files whose sketches were there already */
  tsr_rank_group *groups; /* largest first */
  size_t group_count;
  tsr_rank_outlier *outliers; /* most telling first */
  size_t outlier_count;
  size_t *dead; /* rows of ranks that ran out of memory, in order of death; unknown times last */
  size_t dead_count;
  tsr_rank_growth *
      growths; /* of ranks with several dumps that grew: the next to be full first, then fastest first */
  size_t growth_count;
  tsr_straggler *stragglers; /* latest first */
  size_t straggler_count;
  int64_t *missing; /* ranks */
  size_t missing_count;
  tsr_broken_file *broken;
  size_t broken_count;
  uint32_t *missing_parts; /* of sketches that were made in parts: parts that are absent, from 1 */
  size_t missing_part_count;
  tsr_rank_check *checks; /* in the order of the limits; none without a rank */
  size_t check_count, failed_count;
  tsr_rank_doubt doubt; /* only if there are limits */
  size_t doubt_count;   /* files or ranks that it is about */
  tsr_rank_source rank_source;
  tsr_mesh_source mesh_source;
  const char *name_form;      /* who names files so; NULL: a common form */
  int64_t world_size;         /* -1: unknown */
  const tsr_snapshot *stacks; /* all stacks that are named, for tsr_snapshot_stack */
  struct tsr__fleet *fleet;   /* what they are made from */
} tsr_ranks;

/* Read all files, and compare their ranks. A file that cannot be read is a row of `broken`, never a failure. Time is that of reading
 * them, on all threads. Fails with TSR_ERROR_ARGUMENT for names that are ambiguous, and for a pattern or mesh that cannot be; with
 * TSR_ERROR_IO, _LIMIT or _UNSUPPORTED for places that cannot be listed, TSR_ERROR_MEMORY, or what `progress` stopped. */
int tsr_ranks_compute(const tsr_fleet_options *options, tsr_ranks **out, tsr_error *error);
void tsr_ranks_free(tsr_ranks *ranks);

/* The path of a file that was read, or of which a sketch was; NULL past the last. In the order of their paths. Lives as long as
 * the answer. O(1). */
const char *tsr_ranks_file(const tsr_ranks *ranks, size_t index);

/* All sketches as one file, which tsr_ranks_compute reads: the same whatever the order of the files, and however they were divided into
 * parts. `*out` is the caller's, for tsr_ranks_sketches_free. Fails with TSR_ERROR_MEMORY. */
int tsr_ranks_sketches(const tsr_ranks *ranks, void **out, size_t *size_bytes, tsr_error *error);
void tsr_ranks_sketches_free(void *sketches);

/* "max-peak", ... and "broken", ...; "certain" for none. Static texts. */
const char *tsr_rank_rule_name(tsr_rank_rule rule);
const char *tsr_rank_doubt_name(tsr_rank_doubt doubt);

/* Write one HTML document that draws the ranks over time and by category, and shows each one's own memory: docs/ranks.md. `path` is what
 * was asked about, for its title. It needs no network, and content of the files appears in it as data only. Of more than about ten thousand
 * ranks, less is listed of each, so that it stays below 20 MB if possible. Fails with TSR_ERROR_MEMORY or TSR_ERROR_WRITE. */
int tsr_ranks_page(const tsr_ranks *ranks, const char *path, tsr_write_fn *write, void *context,
                   tsr_error *error);

/* "optimizer_state", ...: the name of a cause in JSON. */
const char *tsr_rank_cause_name(tsr_rank_cause cause);

#ifdef __cplusplus
}
#endif
#endif
