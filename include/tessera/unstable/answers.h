/* tessera/unstable/answers.h - the questions: each is one function from a study to a plain struct.
 *
 * An answer is a struct that owns its arrays and is released by its _free function, which
 * accepts NULL. It refers to stacks and strings by the ids of its snapshot, so the
 * snapshot must outlive its use. Nothing here prints: tsr_answer_write (tessera/registry.h) writes answers as text or
 * JSON.
 *
 * All functions are thread safe for a shared study. On success the caller owns `*out`. They fail only
 * with TSR_ERROR_MEMORY or _ARGUMENT (a device that the snapshot does not have), and take time linear
 * in the device's events unless documented otherwise.
 */
#ifndef TESSERA_UNSTABLE_ANSWERS_H
#define TESSERA_UNSTABLE_ANSWERS_H

#include "tessera/query.h"
#include "tessera/rules.h"
#include "tessera/study.h"
#include "tessera/unstable/attribution.h"
#include "tessera/unstable/columns.h"
#include "tessera/unstable/findings.h"
#include "tessera/unstable/names.h"
#include "tessera/unstable/timeline.h"
#include "tessera/unstable/window.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- info: what is in this file? ---- */

typedef struct tsr_action_tally {
  uint32_t action; /* code for tsr_snapshot_action_name */
  uint64_t count;  /* never 0 */
} tsr_action_tally;

typedef struct tsr_info_device {
  uint32_t device;
  uint64_t event_count;
  tsr_action_tally *actions; /* by code, only those that occur */
  size_t action_count;
  uint64_t segment_count, block_count;
  uint64_t stack_count;                /* distinct stacks among the events */
  uint64_t frame_count;                /* distinct frames in these stacks */
  int64_t first_time_us, last_time_us; /* TSR_TIME_NONE if no event has a time */
  uint64_t
      frees_without_alloc; /* free_completed of an address with no earlier alloc in the trace */
  tsr_totals end;          /* after the last event */
  tsr_replay_check replay;
  tsr_warning *warnings; /* where trace and segments disagree */
  size_t warning_count;
} tsr_info_device;

typedef struct tsr_info {
  tsr_info_device *devices;
  size_t device_count;
  tsr_text
      plan_hash; /* of the plan that simulate or train ran (docs/plan.md), or empty; the snapshot's */
} tsr_info;

/* Describe each device that the query selects. */
int tsr_info_compute(tsr_study *study, const tsr_query *query, tsr_info **out, tsr_error *error);
void tsr_info_free(tsr_info *info);

/* ---- peak: what holds the memory at its highest? ---- */

/* Live allocations that share a stack. Their memory may have several categories, in particular if
 * no stack was recorded. */
typedef struct tsr_stack_share {
  uint64_t bytes; /* requested bytes */
  uint64_t allocations;
  uint32_t stack; /* stack id, or TSR_NONE: memory whose stack was not recorded */
  tsr_category
      category; /* the category of most bytes; the next two are from its largest allocation */
  tsr_phase phase;
  tsr_evidence evidence;
  uint64_t category_bytes[TSR_CATEGORY_COUNT]; /* add up to bytes */
  uint64_t category_allocations[TSR_CATEGORY_COUNT];
  uint64_t older_bytes, older_allocations; /* of these, memory from before the recording */
  tsr_name_range names;                    /* what the program called it */
} tsr_stack_share;

typedef struct tsr_peak_device {
  uint32_t device;
  uint64_t event_count;
  bool
      has_history; /* false: at most one event changes what is allocated, so the file shows one moment */
  bool is_partial; /* the file lacks a part that was recorded, so figures are approximate */
  tsr_moment
      peak; /* the first event after which allocated is largest; -1: already before the first */
  tsr_totals start, end; /* before the first event, after the last */
  tsr_totals maxima;     /* the maximum of each, each at its own moment */
  /* Inferred: a block from before the recording, if no event contains its size, counts with its
   * rounded request in the totals above; PyTorch had really allocated this much more. */
  uint64_t start_unsplit_bytes, peak_unsplit_bytes;
  tsr_fragmentation fragmentation; /* at the peak */
  tsr_private_pool *private_pools; /* then, by pool and stream */
  size_t private_pool_count;
  tsr_recorded recorded;
  tsr_stack_share *stacks; /* live at the peak, largest first */
  size_t stack_count;
  tsr_named *names;        /* of all stacks; NULL if the program named nothing */
  uint64_t omitted_stacks; /* omitted by tsr_query.top */
  uint64_t omitted_bytes;
  tsr_finding *findings; /* what to do, largest saving first; NULL if none */
  size_t finding_count;
  tsr_step_stop stop;    /* where memory ran out for good; `why` explains it */
  tsr_steps_unit unit;   /* what stop.step counts */
  tsr_warning *warnings; /* where trace and segments disagree */
  size_t warning_count;
} tsr_peak_device;

/* GPUs whose peaks differ much, though they share the work. `device_count` 0: they do not. */
typedef struct tsr_imbalance {
  uint32_t device, least_device; /* with the highest peak, and with the lowest of those at work */
  uint64_t peak_bytes, least_peak_bytes; /* theirs */
  uint64_t mean_peak_bytes;              /* of all that are at work */
  size_t device_count;                   /* at work */
  bool
      is_data_parallel; /* frames of nn.DataParallel, which gathers on one device, are in the trace */
} tsr_imbalance;

typedef struct tsr_peak {
  tsr_peak_device *devices;
  size_t device_count;
  tsr_imbalance imbalance;
} tsr_peak;

/* Find the peak of each device that the query selects. */
int tsr_peak_compute(tsr_study *study, const tsr_query *query, tsr_peak **out, tsr_error *error);
void tsr_peak_free(tsr_peak *peak);

/* ---- at: what was live at another moment? ---- */

/* How the moment is given. An address's version is the number of frees completed there before, as in
 * Mosaic and PyTorch's viewer. */
typedef enum tsr_at_kind {
  TSR_AT_EVENT,
  TSR_AT_TIME,
  TSR_AT_ALLOCATION,
  TSR_AT_PEAK, /* the peak of each device */
  TSR_AT_END   /* after each device's last event */
} tsr_at_kind;

typedef struct tsr_at_where {
  tsr_at_kind kind;
  int64_t event;     /* TSR_AT_EVENT: from -1 (before the first) */
  int64_t time_us;   /* TSR_AT_TIME: after the last event at or before this time */
  uint64_t address;  /* TSR_AT_ALLOCATION: the event of this address, */
  uint64_t version;  /* this version */
  tsr_action action; /* and this action: ALLOC, FREE_REQUESTED or FREE_COMPLETED */
} tsr_at_where;

typedef struct tsr_at_device {
  uint32_t device;
  uint64_t event_count;
  bool has_history; /* as in tsr_peak_device */
  bool is_found;    /* the device has that moment; otherwise everything below is empty */
  tsr_moment moment;
  uint64_t live_allocations;
  tsr_fragmentation fragmentation;
  tsr_private_pool *private_pools; /* then, by pool and stream */
  size_t private_pool_count;
  tsr_stack_share *stacks; /* as in tsr_peak_device */
  size_t stack_count;
  tsr_named *names;
  uint64_t omitted_stacks, omitted_bytes;
  tsr_warning *warnings;
  size_t warning_count;
} tsr_at_device;

typedef struct tsr_at {
  tsr_at_device *devices;
  size_t device_count;
} tsr_at;

/* Describe the moment on each device that the query selects. A moment that no device has is
 * TSR_ERROR_ARGUMENT. The live set costs the same at any moment of the trace. */
int tsr_at_compute(tsr_study *study, const tsr_at_where *where, const tsr_query *query,
                   tsr_at **out, tsr_error *error);
void tsr_at_free(tsr_at *at);

/* ---- profile: the peak, and the whole trace, by category or another grouping ---- */

/* A zeroed struct, or NULL, is the peak by category. */
typedef struct tsr_profile_options {
  tsr_profile_by by;
  const tsr_rules *rules; /* for TSR_PROFILE_BY_RULES; needed during the call only */
  const char *key; /* for TSR_PROFILE_BY_METADATA: a key of JSON metadata; NULL: the whole text */
  /* Show memory as bands in the order of allocation: an allocation joins the topmost band if that has
   * its group, otherwise it starts a new band on top; a band ends with its last allocation, and if two
   * bands of one group then become neighbours, they merge. */
  bool is_ordered;
  size_t moment_count;  /* most moments of the history, 0 = no history, otherwise at least 2 */
  size_t series_count;  /* most groups shown separately in it, 0 = 20; the rest are one series */
  uint64_t first_event; /* the history's window: its first event, */
  uint64_t event_count; /* and its number of events; 0 = to the end */
} tsr_profile_options;

/* All allocations of a group over the whole trace, including those from before the recording. */
typedef struct tsr_profile_trace {
  uint64_t allocations, bytes, largest_bytes; /* requested bytes; `bytes` is their sum */
  uint64_t freed; /* those both allocated and freed within the trace, whose lifetime is known */
  uint64_t mean_life_events; /* of these; 0 if none */
  int64_t mean_life_us;      /* of these; -1 if no event has a time */
} tsr_profile_trace;

typedef struct tsr_profile_group {
  const char *name; /* as in the file, cut at a zero byte; owned by the answer */
  uint64_t bytes; /* requested bytes at the peak; 0 for a group that was live only at other times */
  uint64_t allocations;
  uint64_t peak_bytes;  /* its maximum, */
  int64_t peak_event;   /* first reached after this event (-1: before the first), */
  int64_t peak_time_us; /* at this time, or TSR_TIME_NONE */
  int64_t first_event;  /* its first allocation; -1: before the first event */
  uint32_t stack;       /* BY_STACK: its id, TSR_NONE if not recorded */
  tsr_profile_trace trace;
} tsr_profile_group;

/* BY_CATEGORY: why memory that is live at the peak is in its group. */
typedef struct tsr_profile_reason {
  tsr_category category;
  tsr_phase phase; /* in which it was allocated */
  tsr_evidence evidence;
  uint64_t bytes, allocations;
} tsr_profile_reason;

/* One of the stacked bands at the peak. */
typedef struct tsr_profile_layer {
  const char *name;
  uint64_t bytes, allocations;
  int64_t birth_event; /* of the band */
} tsr_profile_layer;

/* What one series holds at a moment. */
typedef struct tsr_profile_share {
  uint32_t series; /* index */
  uint64_t bytes;  /* never 0 */
} tsr_profile_share;

/* tsr_profile_cell.band: several bands that are too thin to distinguish; .series: they have several. */
#define TSR_PROFILE_MIXED UINT32_MAX

/* At a moment, a band, or neighbouring bands that are too thin to distinguish. */
typedef struct tsr_profile_cell {
  uint32_t band;   /* index, or TSR_PROFILE_MIXED */
  uint32_t series; /* index, or TSR_PROFILE_MIXED */
  uint64_t bytes;  /* never 0 */
} tsr_profile_cell;

typedef struct tsr_profile_moment {
  int64_t event;
  int64_t time_us; /* or TSR_TIME_NONE */
  uint64_t bytes;  /* requested bytes of recorded memory: the sum of its shares, and of its cells */
  uint64_t older_bytes; /* requested bytes from before the recording */
  uint64_t
      allocated_bytes; /* everything, including older memory and what requests are rounded up by */
  size_t first_share, share_count; /* rows of shares, by series */
  size_t first_cell, cell_count;   /* is_ordered: rows of cells, bottom first */
} tsr_profile_moment;

typedef struct tsr_profile_series {
  const char *name;    /* NULL: all groups without a separate series */
  uint64_t peak_bytes; /* as in tsr_profile_group; of the largest group if there are several */
  int64_t peak_event;
  int64_t peak_time_us;
  uint64_t group_count; /* groups in it: 1, or more in the last series */
} tsr_profile_series;

typedef struct tsr_profile_band {
  uint32_t series;
  int64_t birth_event;
  int64_t death_event; /* ended, or merged into the band below; -1: not before the end */
  uint64_t peak_bytes;
} tsr_profile_band;

typedef struct tsr_profile_device {
  uint32_t device;
  uint64_t event_count;
  bool
      has_history; /* false: at most one event changes what is allocated, so the file shows one moment */
  /* BY_CATEGORY, _OP, _MODULE, _LINE and _STACK count all allocated memory, as in tsr_peak_device.
   * The others count only what was allocated during the recording, from zero at the first event. */
  bool is_whole;
  int64_t peak_event; /* whole: as in tsr_peak_device; otherwise the first after which recorded
                         memory is largest; -1 if nothing allocates */
  int64_t peak_time_us;
  uint64_t peak_bytes;       /* requested bytes at the peak; the groups add up to it */
  uint64_t allocated_bytes;  /* everything allocated at that event, including older memory */
  int64_t first_time_us;     /* of the first event that has a time, or TSR_TIME_NONE */
  tsr_profile_group *groups; /* those that occur up to the peak, largest at the peak first */
  size_t group_count;
  tsr_profile_reason *reasons; /* by kind, then largest first */
  size_t reason_count;
  uint64_t omitted_groups, omitted_bytes; /* omitted by tsr_query.top */
  tsr_profile_group
      *later_groups; /* those that occur only after it, by their maximum, largest first */
  size_t later_group_count;
  uint64_t omitted_later_groups; /* omitted by tsr_query.top */

  tsr_profile_layer *layers; /* is_ordered: at the peak, bottom first; with `top`, the largest */
  size_t layer_count;
  uint64_t omitted_layers, omitted_layer_bytes;

  /* The history. Its moments keep every extreme: each section of the trace contributes the moment with
   * the most memory and the one with the least, so the peak is always included. */
  tsr_profile_series *series; /* by their maximum, largest first */
  size_t series_count;
  tsr_profile_moment *moments; /* by event */
  size_t moment_count;
  tsr_profile_share *shares;
  size_t share_count;
  tsr_profile_cell *cells;
  size_t cell_count;
  tsr_profile_band *bands; /* is_ordered: those that cells refer to */
  size_t band_count;

  tsr_warning *warnings; /* about annotations and rules, and where trace and segments disagree */
  size_t warning_count;
  void *names; /* owns the texts above */
} tsr_profile_device;

typedef struct tsr_profile {
  tsr_profile_by by;
  char *key;                    /* as in the options */
  bool is_ordered, has_history; /* as in the options */
  tsr_profile_device *devices;
  size_t device_count;
} tsr_profile;

/* Profile each device that the query selects. Time is linear in events, O(log bands) each if ordered.
 * The history takes at most some 2 MiB per device for the usual number of moments, whatever the
 * number of bands. Also fails with TSR_ERROR_ARGUMENT if a pattern of `rules` exceeds its backtracking
 * limit. */
int tsr_profile_compute(tsr_study *study, const tsr_profile_options *options,
                        const tsr_query *query, tsr_profile **out, tsr_error *error);
void tsr_profile_free(tsr_profile *profile);

/* ---- diff: what changed between two runs? ---- */

#define TSR_DIFF_SETTINGS_BYTES 512

typedef enum tsr_change_status {
  TSR_CHANGE_ADDED,   /* its stack holds memory in the new snapshot only */
  TSR_CHANGE_REMOVED, /* in the old one only */
  TSR_CHANGE_GROWN,
  TSR_CHANGE_SHRUNK
} tsr_change_status;

/* "added", "removed", "grown", "shrunk"; static text, never NULL. */
const char *tsr_change_status_name(tsr_change_status status);

typedef enum tsr_diff_by {
  TSR_DIFF_BY_STACK,
  TSR_DIFF_BY_CATEGORY, /* as TSR_PROFILE_BY_CATEGORY, and so on */
  TSR_DIFF_BY_OP,
  TSR_DIFF_BY_LINE,
  TSR_DIFF_BY_ALLOCATION /* pairs of allocations of one step: tsr_alignment */
} tsr_diff_by;

/* What the allocations of one stack or group held at the peaks of both runs; the two differ. */
typedef struct tsr_change {
  int64_t delta_bytes; /* new less old; saturates */
  uint64_t old_bytes, new_bytes;
  uint64_t old_allocations, new_allocations;
  uint32_t old_stack, new_stack; /* stack ids, each of its snapshot; TSR_NONE if that snapshot does
                                    not have it, and for memory without a recorded stack */
  tsr_category category; /* BY_STACK: of most bytes, from the new snapshot if it has the stack */
  const char *name;      /* of the group; NULL BY_STACK. Owned by the answer */
  tsr_name_range
      names;     /* BY_STACK: what the program called it, in the snapshot whose stack is shown */
  bool is_moved; /* the match ignores lines, paths and versions */
  bool is_older; /* BY_STACK, without a stack: from before the recording */
  tsr_change_status status;
} tsr_change;

/* Where most of the difference comes from: the category that changed most in the direction of the
 * total, and the line of code at which most of that change happened, among the lines whose total
 * changed in the same direction. */
typedef struct tsr_diff_cause {
  tsr_category category;
  int64_t kind_delta_bytes; /* of the whole category; 0: nothing changed */
  const char *line;         /* named as in TSR_PROFILE_BY_LINE; NULL: none. Owned by the answer */
  int64_t line_delta_bytes; /* of the category at that line */
} tsr_diff_cause;

typedef struct tsr_diff_side {
  bool is_there;   /* that snapshot has the device; otherwise all below is 0 */
  uint32_t device; /* its number there */
  uint64_t event_count;
  bool has_history; /* as in tsr_peak_device */
  tsr_moment peak;  /* as there */
  tsr_phase phase;  /* in which that is */
  /* The moment whose content is compared: the peak, or if the peaks are of different phases, the highest moment
   * of one of these phases. */
  tsr_moment compared;
  /* By phase, when most is allocated in it; `event` -1: it does not occur. Recomputation is part of backward. */
  tsr_moment in_phase[TSR_PHASE_COUNT];
  bool is_stopped;      /* memory ran out for good, */
  tsr_phase stop_phase; /* in this phase */
  char settings
      [TSR_DIFF_SETTINGS_BYTES]; /* in the syntax of PYTORCH_CUDA_ALLOC_CONF; "" = default */
} tsr_diff_side;

/* What is different about allocations. */
typedef enum tsr_allocation_status {
  TSR_ALLOCATION_REMOVED,  /* only the old snapshot has it */
  TSR_ALLOCATION_ADDED,    /* only the new one */
  TSR_ALLOCATION_RESIZED,  /* a pair, of different sizes */
  TSR_ALLOCATION_LIFETIME, /* a pair, of which one is live at its side's peak and the other is not */
} tsr_allocation_status;
#define TSR_ALLOCATION_STATUSES 4

/* "removed", "added", "resized", "lifetime"; static text, never NULL. */
const char *tsr_allocation_status_name(tsr_allocation_status status);

/* One side of equal allocations. */
typedef struct tsr_allocation_side {
  uint32_t
      stack; /* id of its snapshot; TSR_NONE if none is recorded or this side has no such allocation */
  uint64_t size_bytes; /* requested, of each; 0 if this side has none */
  uint64_t peak_bytes; /* of all that are live at the peak of this side's step */
  int64_t event;       /* that made the first; -1: before the recording, or none */
} tsr_allocation_side;

/* Allocations that differ in the same way: of one stack, category and size on each side. */
typedef struct tsr_allocation_change {
  tsr_allocation_status status;
  tsr_category category; /* in the new snapshot if it has them */
  uint64_t count;
  tsr_allocation_side sides[2]; /* old, new */
} tsr_allocation_change;

typedef struct tsr_aligned_side {
  uint64_t step;        /* that was compared, from 1; 0: all of the trace */
  uint64_t allocations; /* live when it begins, or made in it */
  int64_t peak_event;   /* of the step */
  uint64_t peak_requested_bytes, peak_allocated_bytes;
} tsr_aligned_side;

/* The last whole step of each snapshot, allocation by allocation. The changes add up to the difference of the peaks' requested
 * bytes. */
typedef struct tsr_alignment {
  tsr_aligned_side sides[2]; /* old, new */
  uint64_t same;             /* pairs of one size */
  uint64_t moved;            /* those that the step makes in another order */
  uint64_t counts[TSR_ALLOCATION_STATUSES], bytes[TSR_ALLOCATION_STATUSES]; /* of the larger side */
  tsr_allocation_change *changes; /* what differs most at the peak first, then the largest */
  size_t change_count;
  uint64_t omitted_changes; /* omitted by tsr_query.top */
} tsr_alignment;

typedef struct tsr_diff_device {
  uint32_t device; /* the new snapshot's if it has the device */
  tsr_diff_side old_side, new_side;
  tsr_phase compared_phase; /* if the peaks are of different phases, the one in which they are
                               compared; else UNKNOWN */
  tsr_change *changes;      /* by absolute delta, largest first */
  size_t change_count;
  tsr_named *named; /* of all changes; NULL if the programs named nothing */
  tsr_diff_cause cause;
  uint64_t unchanged_stacks; /* or groups: hold the same in both */
  uint64_t moved_stacks;     /* or groups: the match ignores lines, paths and versions */
  uint64_t added_bytes, removed_bytes, grown_bytes, shrunk_bytes; /* sums over all changes */
  uint64_t omitted_changes;                                       /* omitted by tsr_query.top */
  int64_t omitted_delta_bytes;
  tsr_warning *warnings; /* where trace and segments disagree, in either */
  size_t warning_count;
  void *names[2]; /* own the texts above */
  tsr_alignment
      *alignment; /* BY_ALLOCATION, if both sides have the device, and then there are no changes */
} tsr_diff_device;

typedef struct tsr_diff {
  tsr_diff_by by;
  tsr_diff_device *devices;
  size_t device_count;
} tsr_diff;

/* Compare what was live at the peaks of two snapshots, stack by stack or group by group. If the peaks are of different
 * phases, such as backward and the optimizer's step, the content of both is compared in that one of the two phases
 * whose highest moments differ most. The changes add up to the difference of requested bytes of the moments compared. Stacks match if function, file and
 * line of all their frames are equal; the remaining ones also match if functions and file names are
 * equal, ignoring frames of torch, C++ and the interpreter. Ids and addresses differ between runs and
 * are not compared. Devices are those that either snapshot has, or that the query names; if each has
 * only one, the two are compared whatever their numbers. A device that neither has is
 * TSR_ERROR_ARGUMENT. Time is linear in both traces and in the frames of all stacks; BY_ALLOCATION also
 * in the square of the number of differences, up to a few million. The answer
 * contains ids of both snapshots, and both must outlive its use. */
int tsr_diff_compute(tsr_study *old_study, tsr_study *new_study, tsr_diff_by by,
                     const tsr_query *query, tsr_diff **out, tsr_error *error);
void tsr_diff_free(tsr_diff *diff);

#ifdef __cplusplus
}
#endif
#endif
