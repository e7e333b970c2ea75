/* tessera/view.h - what a picture of a trace is drawn from: its allocations as columns.
 *
 * Time is counted in *moments*: moment 0 is the state before the first event, moment m the state
 * after event m - 1. Something is there at moment m when born <= m < died; what is there at the end
 * has died = event_count + 1.
 *
 * A long trace holds more allocations than a page can. The largest are then told one by one, and
 * the rest in sums: the moments are divided into buckets, and for the moment of each bucket at which
 * most is allocated, and the one at which least is, the sums of the rest are given by group. So a
 * picture made of both is exact at every bucket's highest and lowest moment, the peak among them.
 */
#ifndef TESSERA_VIEW_H
#define TESSERA_VIEW_H

#include "tessera/answers.h"
#include "tessera/report.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How much to tell. A zeroed struct, or NULL, is the default. */
typedef struct tsr_view_options {
  uint64_t most_allocations; /* told one by one, on one device; 0 = 1,500,000 */
  uint32_t most_buckets;     /* 0 = 8,192 */
} tsr_view_options;

/* A way of dividing memory into groups: by category, stream, ... Every allocation is in one. */
typedef struct tsr_view_grouping {
  const char *key, *title; /* "stream", "Stream"; static text */
  tsr_text *names;         /* of the groups */
  size_t count;            /* at most TSR_VIEW_GROUPS_MAX; what would be beyond is in the last */
  uint8_t *group;          /* by allocation told */
  /* Requested bytes of the rest, by bucket, then by group; NULL where there is no rest. */
  uint64_t *rest_high, *rest_low;
  char *spelled; /* what names that are not the snapshot's point to */
} tsr_view_grouping;

#define TSR_VIEW_GROUPS_MAX    48
#define TSR_VIEW_GROUPINGS_MAX 8

/* A stretch of reserved memory. */
typedef struct tsr_view_span {
  uint64_t address, size_bytes;
  uint32_t born, died;
  uint32_t stream, pool; /* ids of the snapshot, or TSR_NONE */
  bool is_large, is_expandable;
} tsr_view_span;

/* An annotated range: of record_function, or events that carry the same user metadata. */
typedef struct tsr_view_range {
  uint32_t name;       /* string id */
  uint32_t born, died; /* moments */
  uint32_t depth;      /* ranges around it */
  bool is_metadata;
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

  /* Allocations told one by one, in the order in which they were made. */
  size_t allocation_count;
  uint32_t *born, *died;
  uint32_t *released; /* moment at which the program gave it back: its memory may wait for a stream
                         from then until `died` */
  uint64_t *address, *requested_bytes, *block_bytes;
  uint32_t *stack; /* stack id; TSR_NONE where none was recorded, or it is empty */

  tsr_view_grouping groupings[TSR_VIEW_GROUPINGS_MAX];
  size_t grouping_count; /* the first is by category */

  /* The rest. */
  uint64_t rest_count, rest_largest_bytes;
  uint32_t bucket_moments; /* bucket b is the moments from b * bucket_moments on */
  size_t bucket_count;
  uint32_t *high, *low;                         /* a moment of each bucket */
  uint64_t *allocated_high, *allocated_low;     /* allocated bytes there, of all allocations */
  uint64_t *active_high, *active_low;           /* active bytes there */
  uint32_t *rest_blocks_high, *rest_blocks_low; /* how many of the rest are there; NULL: no rest */

  int64_t *times_us; /* time of moments 0, time_step, 2 * time_step, ...; never decreasing */
  size_t time_count; /* 0 where the file has no times; else the last is the last moment's */
  uint32_t time_step;

  tsr_view_span *spans;
  size_t span_count;
  tsr_view_range *ranges; /* by born, the outer first */
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
 * below. Fails as the questions of tessera/answers.h do, and takes time as they do. */
int tsr_view_compute(const tsr_snapshot *snapshot, const tsr_view_options *options,
                     const tsr_query *query, tsr_view **out, tsr_error *error);
void tsr_view_free(tsr_view *view);

/* One file of a page. */
typedef struct tsr_page_input {
  tsr_report_input input;
  const tsr_view *view;
} tsr_page_input;

/* How the page opens; a zeroed struct is the default. */
typedef struct tsr_page_options {
  const char *by;          /* key of the grouping, NULL = category */
  uint64_t capacity_bytes; /* of the card, drawn as a line; 0: none */
  uint64_t most_bytes;     /* of the page; 0 = 20 MB (20,000,000) */
} tsr_page_options;

/* Write one HTML page that shows the files: no network, no server, nothing of theirs but data.
 * Fails with TSR_ERROR_MEMORY, _WRITE, or _LIMIT where the page would be larger than it may be:
 * compute views with fewer allocations then. Nothing is written before that is known. */
int tsr_report_page(const tsr_page_input *inputs, size_t input_count,
                    const tsr_page_options *options, tsr_write_fn *write, void *context,
                    tsr_error *error);

#ifdef __cplusplus
}
#endif
#endif
