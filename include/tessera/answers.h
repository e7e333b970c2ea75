/* tessera/answers.h - the questions, each one function from a snapshot to a plain value.
 *
 * An answer is a struct that owns its arrays and is released by its own _free function, which
 * accepts NULL. It refers to stacks and strings by the ids of the snapshot it came from, so the
 * snapshot must outlive its use. Nothing here prints: tessera/report.h turns answers into text or
 * JSON.
 *
 * All functions are thread safe for a shared snapshot, fail only with TSR_ERROR_MEMORY or _ARGUMENT
 * (a device that the snapshot does not have), and take time linear in the device's events unless
 * they say otherwise.
 */
#ifndef TESSERA_ANSWERS_H
#define TESSERA_ANSWERS_H

#include "tessera/attribution.h"
#include "tessera/rules.h"
#include "tessera/snapshot.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Which devices and how much; a zeroed struct, or NULL, means every device and everything. */
typedef struct tsr_query {
  const uint32_t *devices; /* the devices to answer for, `device_count` of them; 0 = all */
  size_t device_count;
  size_t top; /* longest list to return, 0 = all; what is left out is counted, never dropped
                 silently */
} tsr_query;

/* Bytes in the four senses PyTorch gives them (product terms: requested, allocated, active,
 * reserved). */
typedef struct tsr_totals {
  uint64_t requested_bytes; /* what the program asked for, of active blocks */
  uint64_t allocated_bytes; /* blocks that serve them, rounding included */
  uint64_t active_bytes;    /* allocated plus blocks waiting for another stream */
  uint64_t reserved_bytes;  /* segments */
} tsr_totals;

/* How far the replay of a trace agrees with the file, and so how far its numbers can be trusted.
 * For traces of PyTorch's default configuration every pair is equal. */
typedef struct tsr_replay_check {
  uint64_t reused,
      reused_matched; /* allocs from cached memory; those where the model would put them */
  uint64_t segments_new, segments_matched; /* allocs from a new segment; those of the size it has */
  uint64_t final_blocks, final_matched; /* live blocks at the end; those the replay ends with too */
} tsr_replay_check;

/* What an allocation is by the names of the functions that made it: Mosaic's rules, for those who
 * compare with Mosaic. What it is truly for is a tsr_kind (tessera/attribution.h). */
typedef enum tsr_category {
  TSR_CATEGORY_PARAMETER,
  TSR_CATEGORY_ACTIVATION,
  TSR_CATEGORY_BACKWARD,
  TSR_CATEGORY_OPTIMIZER,
  TSR_CATEGORY_NET,
  TSR_CATEGORY_UNKNOWN,
  TSR_CATEGORY_NET_SETUP,
  TSR_CATEGORY_STATS,
  TSR_CATEGORY_FSDP,
  TSR_CATEGORY_COUNT
} tsr_category;

/* "parameter", "activation", ...; static text, never NULL. */
const char *tsr_category_name(tsr_category category);
/* The category of every stack of a snapshot, by stack id: `categories` has room for
 * tsr_snapshot_stack_count of them. Fails with TSR_ERROR_MEMORY. */
int tsr_category_of_stacks(const tsr_snapshot *snapshot, uint8_t *categories, tsr_error *error);

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
  uint64_t frame_count;                /* distinct frames in those */
  int64_t first_time_us, last_time_us; /* TSR_TIME_NONE when no event has a time */
  uint64_t
      frees_without_alloc; /* free_completed of an address with no alloc before it in the trace */
  tsr_totals end;          /* after the last event */
  tsr_replay_check replay;
  tsr_warning *warnings; /* where trace and segments disagree */
  size_t warning_count;
} tsr_info_device;

typedef struct tsr_info {
  tsr_info_device *devices;
  size_t device_count;
} tsr_info;

/* Describe each device the query means; `*out` is the caller's, to be given to the function below.
 */
int tsr_info_compute(const tsr_snapshot *snapshot, const tsr_query *query, tsr_info **out,
                     tsr_error *error);
void tsr_info_free(tsr_info *info);

/* ---- a moment: the exact state after an event ---- */

typedef struct tsr_moment {
  int64_t event;   /* index in the device's trace; -1: before the first */
  int64_t time_us; /* of the event, or TSR_TIME_NONE */
  tsr_totals totals;
} tsr_moment;

/* Reserved memory that holds no requested byte, by cause. Together with requested bytes (those of
 * waiting blocks aside) the parts make up what is reserved. */
typedef struct tsr_fragmentation {
  uint64_t rounding_bytes;     /* requests rounded up */
  uint64_t unsplit_bytes;      /* rest of a block that PyTorch does not split off */
  uint64_t waiting_bytes;      /* freed blocks that another stream may still use */
  uint64_t free_block_bytes;   /* free blocks in segments that are in use */
  uint64_t free_segment_bytes; /* segments wholly free: what empty_cache() gives back */
  uint64_t largest_free_bytes; /* the largest free block: larger requests need a new segment */
} tsr_fragmentation;

/* ---- peak: what holds the memory at its highest? ---- */

/* Live allocations that share a stack. One stack may make memory of several kinds, above all where
 * there is none. */
typedef struct tsr_stack_share {
  uint64_t bytes; /* requested bytes */
  uint64_t allocations;
  uint32_t stack; /* stack id, or TSR_NONE: memory whose stack was not recorded */
  tsr_kind kind;  /* that of most bytes; the two below are those of the largest allocation of it */
  tsr_phase phase;
  tsr_evidence evidence;
  uint64_t kind_bytes[TSR_KIND_COUNT]; /* add up to bytes */
  uint64_t kind_allocations[TSR_KIND_COUNT];
  uint64_t older_bytes, older_allocations; /* of these, what was there before the recording */
  size_t first_tensor, tensor_count; /* rows of `tensors`: the largest that it holds by name */
  uint64_t omitted_tensors;          /* left out by tsr_query.top */
} tsr_stack_share;

/* Memory as the trace alone tells it, counted from zero at its first event: `alloc` adds,
 * `free_completed` of an address allocated in the trace subtracts. These are Mosaic's numbers. */
typedef struct tsr_recorded {
  int64_t peak_event;   /* first event at which the total is largest; -1 when none allocates */
  int64_t peak_time_us; /* its time, or TSR_TIME_NONE */
  uint64_t dynamic_peak_bytes; /* total at that event */
  uint64_t static_bytes; /* allocated blocks whose address no alloc or free of the trace mentions */
  uint64_t overall_bytes; /* the sum of both */
} tsr_recorded;

typedef struct tsr_peak_device {
  uint32_t device;
  uint64_t event_count;
  tsr_moment
      peak; /* the first event after which allocated is largest; -1: already before the first */
  tsr_totals start, end; /* before the first event, after the last */
  tsr_totals maxima;     /* the largest of each, each at its own moment */
  /* Inferred: blocks from before the recording whose size no event tells count with their rounded
   * request in the totals above; PyTorch had handed out this much more for them. */
  uint64_t start_unsplit_bytes, peak_unsplit_bytes;
  tsr_fragmentation fragmentation; /* at the peak */
  tsr_recorded recorded;
  tsr_stack_share *stacks; /* live at the peak, largest first */
  size_t stack_count;
  uint32_t *tensors; /* rows of tsr_snapshot_tensors, for tsr_stack_share; NULL without a sidecar */
  uint64_t omitted_stacks; /* left out by tsr_query.top */
  uint64_t omitted_bytes;
  tsr_warning *warnings; /* where trace and segments disagree */
  size_t warning_count;
} tsr_peak_device;

typedef struct tsr_peak {
  tsr_peak_device *devices;
  size_t device_count;
} tsr_peak;

/* Find the peak of each device the query means; `*out` is the caller's, to be given to the function
 * below. */
int tsr_peak_compute(const tsr_snapshot *snapshot, const tsr_query *query, tsr_peak **out,
                     tsr_error *error);
void tsr_peak_free(tsr_peak *peak);

/* ---- at: what was live at another moment? ---- */

/* Which moment. An address's version is the number of frees completed there before, as Mosaic and
 * PyTorch's viewer count it. */
typedef enum tsr_at_kind { TSR_AT_EVENT, TSR_AT_TIME, TSR_AT_ALLOCATION } tsr_at_kind;

typedef struct tsr_at_where {
  tsr_at_kind kind;
  int64_t event;     /* TSR_AT_EVENT: -1 to the last */
  int64_t time_us;   /* TSR_AT_TIME: after the last event at or before it */
  uint64_t address;  /* TSR_AT_ALLOCATION: the event of this address, */
  uint64_t version;  /* this version */
  tsr_action action; /* and this action: ALLOC, FREE_REQUESTED or FREE_COMPLETED */
} tsr_at_where;

typedef struct tsr_at_device {
  uint32_t device;
  uint64_t event_count;
  bool is_found; /* the device has that moment; everything below is empty otherwise */
  tsr_moment moment;
  uint64_t live_allocations;
  tsr_fragmentation fragmentation;
  tsr_stack_share *stacks; /* as in tsr_peak_device */
  size_t stack_count;
  uint32_t *tensors;
  uint64_t omitted_stacks, omitted_bytes;
  tsr_warning *warnings;
  size_t warning_count;
} tsr_at_device;

typedef struct tsr_at {
  tsr_at_device *devices;
  size_t device_count;
} tsr_at;

/* Answer for each device the query means. A moment that no device has is TSR_ERROR_ARGUMENT. The
 * live set costs the same wherever in the trace the moment lies. */
int tsr_at_compute(const tsr_snapshot *snapshot, const tsr_at_where *where, const tsr_query *query,
                   tsr_at **out, tsr_error *error);
void tsr_at_free(tsr_at *at);

/* ---- profile: the peak, and all of the trace, by kind ---- */

typedef enum tsr_profile_by {
  TSR_PROFILE_BY_CATEGORY,        /* tsr_kind_name of what it is for */
  TSR_PROFILE_BY_ANNOTATION,      /* the innermost record_function range; "" outside all of them */
  TSR_PROFILE_BY_COMPILE_CONTEXT, /* the torch.compile region; "N/A" outside all of them */
  TSR_PROFILE_BY_RULES,           /* the first rule that fits the stack; "unknown": none */
  TSR_PROFILE_BY_OP,     /* the operation or kernel: "aten::bmm", "aten::mul in MulBackward0" */
  TSR_PROFILE_BY_MODULE, /* the innermost nn.Module and where it is called */
  TSR_PROFILE_BY_LINE,   /* the innermost line of the program's own */
  TSR_PROFILE_BY_STACK,
  TSR_PROFILE_BY_MOSAIC_CATEGORY /* tsr_category_name of the stack: Mosaic's rules */
} tsr_profile_by;

/* A zeroed struct, or NULL, is the peak by category. */
typedef struct tsr_profile_options {
  tsr_profile_by by;
  const tsr_rules *rules; /* for TSR_PROFILE_BY_RULES; needed during the call only */
  /* Tell memory in the order in which it was taken: an allocation joins the topmost band if that is
   * of its group, else begins a new one on top; a band ends with its last allocation, and
   * neighbours of one group that then meet become one. */
  bool is_ordered;
  size_t moment_count;  /* most moments of the history, 0 = none. Two at least */
  size_t series_count;  /* most groups told apart in it, 0 = 20; the rest are one series */
  uint64_t first_event; /* the history's window: from here, */
  uint64_t event_count; /* so many events; 0 = to the end */
} tsr_profile_options;

/* All allocations of a group over the whole trace, those from before the recording included. */
typedef struct tsr_profile_trace {
  uint64_t allocations, bytes, largest_bytes; /* requested; bytes is the sum of all */
  uint64_t
      freed; /* those that the trace saw being made and freed: the ones whose lives are known */
  uint64_t mean_life_events; /* of those; 0 when there are none */
  int64_t mean_life_us;      /* of those, or -1: no event has a time */
} tsr_profile_trace;

typedef struct tsr_profile_group {
  const char *name; /* as the file has it, cut at a zero byte; the answer's own */
  uint64_t bytes; /* requested bytes at the peak; 0 for a group that was live only at other times */
  uint64_t allocations;
  uint64_t peak_bytes;  /* the most it ever held, */
  int64_t peak_event;   /* first after this event (-1: before the first), */
  int64_t peak_time_us; /* at this time, or TSR_TIME_NONE */
  int64_t first_event;  /* its first allocation; -1: there before the first event */
  uint32_t stack;       /* BY_STACK: its id, TSR_NONE for what has none */
  tsr_profile_trace trace;
} tsr_profile_group;

/* BY_CATEGORY: why memory that is live at the peak is in its group. */
typedef struct tsr_profile_reason {
  tsr_kind kind;
  tsr_phase phase; /* in which it was made */
  tsr_evidence evidence;
  uint64_t bytes, allocations;
} tsr_profile_reason;

/* One of the bands that lie upon each other at the peak. */
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

/* tsr_profile_cell: several bands, too thin to tell apart; as `series`, of more than one. */
#define TSR_PROFILE_MIXED UINT32_MAX

/* A band, or neighbours too thin to tell apart, at a moment. */
typedef struct tsr_profile_cell {
  uint32_t band;   /* index, or TSR_PROFILE_MIXED */
  uint32_t series; /* index, or TSR_PROFILE_MIXED */
  uint64_t bytes;  /* never 0 */
} tsr_profile_cell;

typedef struct tsr_profile_moment {
  int64_t event;
  int64_t time_us; /* or TSR_TIME_NONE */
  uint64_t bytes;  /* requested bytes of recorded memory: what its shares, and its cells, sum to */
  uint64_t older_bytes;            /* requested bytes from before the recording */
  size_t first_share, share_count; /* rows of shares, by series */
  size_t first_cell, cell_count;   /* is_ordered: rows of cells, bottom first */
} tsr_profile_moment;

typedef struct tsr_profile_series {
  const char *name;    /* NULL: all groups that are not told apart */
  uint64_t peak_bytes; /* as in tsr_profile_group; of the largest, where it is several groups */
  int64_t peak_event;
  int64_t peak_time_us;
  uint64_t group_count; /* groups in it: 1 but for the last */
} tsr_profile_series;

typedef struct tsr_profile_band {
  uint32_t series;
  int64_t birth_event;
  int64_t death_event; /* ended, or became part of the one below; -1: not before the end */
  uint64_t peak_bytes;
} tsr_profile_band;

typedef struct tsr_profile_device {
  uint32_t device;
  uint64_t event_count;
  /* Everything that is allocated counts, as in tsr_peak_device, BY_CATEGORY, _OP, _MODULE, _LINE and
   * _STACK. BY the others only what the recording saw being made, from zero at the first event. */
  bool is_whole;
  int64_t peak_event; /* whole: as in tsr_peak_device; else the first after which recorded memory is
                         largest, -1: nothing allocates */
  int64_t peak_time_us;
  uint64_t peak_bytes;       /* requested bytes there; the groups add up to it */
  uint64_t allocated_bytes;  /* everything allocated at that event, older memory included */
  int64_t first_time_us;     /* of the first event that has a time, or TSR_TIME_NONE */
  tsr_profile_group *groups; /* those that occur up to the peak, largest there first */
  size_t group_count;
  tsr_profile_reason *reasons; /* by kind, then largest first */
  size_t reason_count;
  uint64_t omitted_groups, omitted_bytes; /* left out by tsr_query.top */
  tsr_profile_group *later_groups;        /* those that occur after it only, largest first */
  size_t later_group_count;

  tsr_profile_layer *layers; /* is_ordered: at the peak, bottom first; the largest, with a top */
  size_t layer_count;
  uint64_t omitted_layers, omitted_layer_bytes;

  /* The history. Its moments are chosen so that nothing is lost: each stretch of the trace gives the
   * one where it holds most and the one where it holds least, so the peak is always among them. */
  tsr_profile_series *series; /* by the most they hold, largest first */
  size_t series_count;
  tsr_profile_moment *moments; /* by event */
  size_t moment_count;
  tsr_profile_share *shares;
  size_t share_count;
  tsr_profile_cell *cells;
  size_t cell_count;
  tsr_profile_band *bands; /* is_ordered: those that some cell names */
  size_t band_count;

  tsr_warning *warnings; /* about annotations and rules, and where trace and segments disagree */
  size_t warning_count;
  void *names; /* what the texts above live in */
} tsr_profile_device;

typedef struct tsr_profile {
  tsr_profile_by by;
  bool is_ordered, has_history; /* what was asked for */
  tsr_profile_device *devices;
  size_t device_count;
} tsr_profile;

/* Profile each device the query means; `*out` is the caller's, to be given to the function below.
 * Time is linear in events, O(log bands) each when ordered; the history takes at most some 2 MiB a
 * device for the usual number of moments, whatever the number of bands. Fails also as tsr_rules do:
 * TSR_ERROR_ARGUMENT where a pattern backtracks without end. */
int tsr_profile_compute(const tsr_snapshot *snapshot, const tsr_profile_options *options,
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
  TSR_DIFF_BY_LINE
} tsr_diff_by;

/* What the allocations of one stack, or group, held at the peak of either run; never equal. */
typedef struct tsr_change {
  int64_t delta_bytes; /* new less old; stops at the ends of its range */
  uint64_t old_bytes, new_bytes;
  uint64_t old_allocations, new_allocations;
  uint32_t old_stack, new_stack; /* stack ids, each of its own snapshot; TSR_NONE on a side that
                                    does not have it, and for memory without a recorded stack */
  tsr_kind kind;    /* BY_STACK: of most bytes, in the new snapshot where that has it */
  const char *name; /* of the group; NULL BY_STACK. The answer's own */
  bool is_moved;    /* the same only but for lines, paths and versions */
  tsr_change_status status;
} tsr_change;

/* Where most of the difference comes from: of the kind of memory whose change is largest in the
 * direction of the whole, the line of code at which most of that changed, among those that hold more
 * (or less) in all. */
typedef struct tsr_diff_cause {
  tsr_kind kind;
  int64_t kind_delta_bytes; /* of the kind as a whole; 0: nothing changed */
  const char *line;         /* as TSR_PROFILE_BY_LINE names it; NULL: none. The answer's own */
  int64_t line_delta_bytes; /* of the kind at that line */
} tsr_diff_cause;

typedef struct tsr_diff_side {
  bool is_there;   /* that snapshot has the device; all below is 0 otherwise */
  uint32_t device; /* its number there */
  uint64_t event_count;
  tsr_moment peak; /* as in tsr_peak_device */
  char settings
      [TSR_DIFF_SETTINGS_BYTES]; /* as PYTORCH_CUDA_ALLOC_CONF would say them; "" = default */
} tsr_diff_side;

typedef struct tsr_diff_device {
  uint32_t device; /* the new side's where that is there */
  tsr_diff_side old_side, new_side;
  tsr_change *changes; /* by the size of their delta, largest first */
  size_t change_count;
  tsr_diff_cause cause;
  uint64_t unchanged_stacks; /* or groups: held as much in both */
  uint64_t moved_stacks;     /* or groups: the same only but for lines, paths and versions */
  uint64_t added_bytes, removed_bytes, grown_bytes, shrunk_bytes; /* sums over all changes */
  uint64_t omitted_changes;                                       /* left out by tsr_query.top */
  int64_t omitted_delta_bytes;
  tsr_warning *warnings; /* where trace and segments disagree, in either */
  size_t warning_count;
  void *names[2]; /* what the texts above live in */
} tsr_diff_device;

typedef struct tsr_diff {
  tsr_diff_by by;
  tsr_diff_device *devices;
  size_t device_count;
} tsr_diff;

/* Compare what was live at the peaks of two snapshots, stack by stack or group by group. The changes
 * add up to the difference of requested bytes of the two peaks. Stacks are the same when the function,
 * file and line of all their frames are; of those without a like, also when the functions and the
 * names of the files are, those of torch, C++ and the interpreter aside. Ids and addresses differ between runs and
 * mean nothing. Devices are those that either has, or that the query names; when each snapshot has
 * one alone, the two are compared whatever their numbers. A device that neither has is
 * TSR_ERROR_ARGUMENT. Time is linear in both traces and in the frames of all stacks. The answer's
 * ids are of two snapshots, and both must outlive its use. `*out` is the caller's, to be given to
 * the function below. */
int tsr_diff_compute(const tsr_snapshot *old_snapshot, const tsr_snapshot *new_snapshot,
                     tsr_diff_by by, const tsr_query *query, tsr_diff **out, tsr_error *error);
void tsr_diff_free(tsr_diff *diff);

/* ---- trim: a smaller snapshot ---- */

/* A part of a trace: from `first` to `last`, both included, as event numbers of each device or as
 * times in microseconds. */
typedef struct tsr_window {
  bool is_time;
  int64_t first, last;
} tsr_window;

/* A snapshot of that window alone: its events, and as segments and blocks the state after its last
 * event. Answers asked of it are those of the whole at the same moments, but for what memory is for,
 * which what was cut may have told. Devices that the query
 * does not mean are left out. `*out` is the caller's, to be given to tsr_snapshot_free. A window
 * that holds no event is TSR_ERROR_ARGUMENT. */
int tsr_snapshot_trim(const tsr_snapshot *snapshot, const tsr_window *window,
                      const tsr_query *query, tsr_snapshot **out, tsr_error *error);

#ifdef __cplusplus
}
#endif
#endif
