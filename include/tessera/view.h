/* tessera/view.h - what a picture of a trace is drawn from: its allocations as columns.
 *
 * Time is counted in *moments*: moment 0 is the state before the first event, moment m the state
 * after event m - 1. Something is there at moment m when born <= m < died; what is there at the end
 * has died = event_count + 1.
 *
 * A view holds every allocation. What a page, or an answer of a server, tells of it is a *cut*: a
 * stretch of the trace with so many of its allocations one by one, the largest, and the rest in
 * sums: the stretch is divided into buckets, and for the moment of each bucket at which most is
 * allocated, and the one at which least is, the sums of the rest are given by group. So a picture
 * made of both is exact at every bucket's highest and lowest moment, the peak among them.
 */
#ifndef TESSERA_VIEW_H
#define TESSERA_VIEW_H

#include "tessera/answers.h"
#include "tessera/report.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A zeroed struct, or NULL, is the default. */
typedef struct tsr_view_options {
  const tsr_rules *rules; /* a grouping more; needed during the call only. NULL: none */
  tsr_profile_by by;      /* a grouping more: BY_OP, _MODULE or _LINE; anything else: none */
} tsr_view_options;

/* A way of dividing memory into groups: by category, stream, ... Every allocation is in one. */
typedef struct tsr_view_grouping {
  const char *key, *title; /* "stream", "stream"; static text */
  tsr_text *names;         /* of the groups */
  size_t count;            /* at most TSR_VIEW_GROUPS_MAX; what would be beyond is in the last */
  uint8_t *group;          /* by allocation */
  char *spelled;           /* what names that are not the snapshot's point to */
} tsr_view_grouping;

#define TSR_VIEW_GROUPS_MAX    48
#define TSR_VIEW_GROUPINGS_MAX 10

/* A stretch of reserved memory. */
typedef struct tsr_view_span {
  uint64_t address, size_bytes;
  uint32_t born, died;
  uint32_t stream, pool; /* ids of the snapshot, or TSR_NONE */
  bool is_large, is_expandable;
} tsr_view_span;

typedef enum tsr_view_range_kind {
  TSR_VIEW_ANNOTATION, /* of record_function */
  TSR_VIEW_METADATA,   /* events that carry the same user metadata */
  TSR_VIEW_STEP,       /* inferred, as tessera/steps.h tells */
  TSR_VIEW_PHASE       /* likewise */
} tsr_view_range_kind;

/* A stretch of the trace that has a name. */
typedef struct tsr_view_range {
  uint8_t kind;        /* tsr_view_range_kind */
  bool is_certain;     /* a whole step; a phase that frames or annotations tell; else true */
  uint32_t name;       /* string id; of a step its number, from 0; of a phase the tsr_phase */
  uint32_t born, died; /* moments */
} tsr_view_range;

/* Something that happened at one moment: out of memory, or an earlier snapshot. */
typedef struct tsr_view_mark {
  uint32_t moment;
  tsr_action action;               /* TSR_ACTION_OOM or TSR_ACTION_SNAPSHOT */
  uint64_t size_bytes, free_bytes; /* of an OOM: what was asked for, what the driver had */
} tsr_view_mark;

typedef struct tsr_view_device {
  uint32_t device;
  uint64_t event_count;
  uint32_t peak;          /* the first moment at which allocated is largest */
  tsr_totals peak_totals; /* there */
  tsr_totals maxima;

  /* Allocations, in the order in which they were made. */
  size_t allocation_count;
  uint32_t *born, *died;
  uint32_t *released; /* moment at which the program gave it back: its memory may wait for a stream
                         from then until `died` */
  uint64_t *address, *requested_bytes, *block_bytes;
  uint32_t *stack; /* stack id; TSR_NONE where none was recorded, or it is empty */

  tsr_view_grouping groupings[TSR_VIEW_GROUPINGS_MAX];
  size_t grouping_count; /* the first is by category */

  int64_t *times_us; /* time of moments 0, time_step, 2 * time_step, ...; never decreasing */
  size_t time_count; /* 0 where the file has no times; else the last is the last moment's */
  uint32_t time_step;

  tsr_view_span *spans;
  size_t span_count;
  tsr_view_range *ranges; /* by kind, by born, the outer first */
  size_t range_count;
  tsr_view_mark *marks;
  size_t mark_count;
  tsr_warning *warnings;
  size_t warning_count;
} tsr_view_device;

typedef struct tsr_view {
  tsr_view_device *devices;
  size_t device_count;
} tsr_view;

/* The columns of each device the query means; `*out` is the caller's, to be given to the function
 * below. Immutable from then on, and so usable from many threads at once. Fails as the questions of
 * tessera/answers.h do, with rules as tsr_profile_compute does, and takes time as they do; memory is
 * some 48 bytes an allocation. */
int tsr_view_compute(const tsr_snapshot *snapshot, const tsr_view_options *options,
                     const tsr_query *query, tsr_view **out, tsr_error *error);
void tsr_view_free(tsr_view *view);

/* ---- what is told of it ---- */

/* A zeroed struct, or NULL, is the default. */
typedef struct tsr_view_stretch {
  uint32_t from, to;         /* moments, both included; to = 0, or beyond the last: the last */
  uint64_t most_allocations; /* told one by one; 0 = 1,500,000 */
  uint32_t most_buckets;     /* 0 = 8,192 */
} tsr_view_stretch;

/* Requested bytes of the rest, by bucket, then by group. */
typedef struct tsr_view_sums {
  uint64_t *high, *low;
} tsr_view_sums;

typedef struct tsr_view_cut {
  uint32_t from, to;
  uint32_t *told; /* rows of the device's columns that are told, ascending */
  size_t told_count;
  uint64_t rest_count, rest_largest_bytes; /* of those in the stretch that are not */
  uint32_t bucket_moments; /* bucket b is the moments from + b * bucket_moments and so on */
  size_t bucket_count;
  uint32_t *high, *low;                         /* a moment of each bucket */
  uint64_t *allocated_high, *allocated_low;     /* allocated bytes there, of all allocations */
  uint64_t *active_high, *active_low;           /* active bytes there */
  uint32_t *rest_blocks_high, *rest_blocks_low; /* how many of the rest are there */
  tsr_view_sums rest[TSR_VIEW_GROUPINGS_MAX];   /* by grouping; NULL where there is no rest */
} tsr_view_cut;

/* Cut a stretch out of a device; release it with the function below. Time is linear in the
 * allocations made before its end and in its moments. Fails with TSR_ERROR_MEMORY, or _ARGUMENT
 * where `from` is past the end. */
int tsr_view_cut_compute(const tsr_view_device *device, const tsr_view_stretch *stretch,
                         tsr_view_cut *out, tsr_error *error);
/* A zeroed one is fine. */
void tsr_view_cut_release(tsr_view_cut *cut);

/* ---- the page ---- */

/* One file of a page: what there is, and what is told of it. */
typedef struct tsr_page_input {
  tsr_report_input input;
  const tsr_view *view;
  const tsr_view_cut *cuts; /* by device of the view: whole traces */
} tsr_page_input;

/* How the page opens; a zeroed struct is the default. */
typedef struct tsr_page_options {
  const char *by;          /* key of the grouping, NULL = category */
  bool is_ordered;         /* as bands in the order in which memory was taken, not group by group */
  uint64_t first_event;    /* what is shown at first: from here, */
  uint64_t event_count;    /* so many events; 0: everything */
  uint64_t capacity_bytes; /* of the card, drawn as a line; 0: none */
  uint64_t most_bytes;     /* of the page; 0 = 20 MB (20,000,000) */
  bool is_served; /* by a server that answers "part?track=T&from=M&to=N" beside the page with
                     tsr_page_write_part of that stretch; then the page asks for what it shows */
} tsr_page_options;

/* A page, ready to be written. Inputs and their views must outlive it. Immutable. */
typedef struct tsr_page tsr_page;

/* Fails with TSR_ERROR_MEMORY, or _LIMIT where the page would be larger than it may be: bring cuts
 * with fewer allocations then. */
int tsr_page_open(const tsr_page_input *inputs, size_t input_count, const tsr_page_options *options,
                  tsr_page **out, tsr_error *error);
/* One HTML document: no network, no server (unless it is served), nothing of the files but data.
 * Fails with TSR_ERROR_WRITE. */
int tsr_page_write(const tsr_page *page, tsr_write_fn *write, void *context, tsr_error *error);
/* A cut of a device, in the form that a served page reads: `track` counts the devices of all inputs.
 * Fails with TSR_ERROR_MEMORY, _WRITE, or _ARGUMENT for a track that there is not. */
int tsr_page_write_part(const tsr_page *page, size_t track, const tsr_view_cut *cut,
                        tsr_write_fn *write, void *context, tsr_error *error);
/* NULL is fine. */
void tsr_page_free(tsr_page *page);

#ifdef __cplusplus
}
#endif
#endif
