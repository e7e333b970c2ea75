/* tessera/unstable/view.h - the data from which a trace is drawn: its allocations as columns.
 *
 * Time is counted in *moments*: moment 0 is the state before the first event, moment m the state
 * after event m - 1. Something exists at moment m if born <= m < died; what exists at the end
 * has died = event_count + 1.
 *
 * A view holds every allocation. A page, or a server's response, contains a *cut* of it: a
 * range of the trace, with the N largest allocations individually and the rest aggregated:
 * the range is divided into buckets, and for the moment of each bucket at which most is
 * allocated, and the one at which least is, the sums of the rest are given by group. So a picture
 * made of both is exact at every bucket's highest and lowest moment, the peak included.
 */
#ifndef TESSERA_UNSTABLE_VIEW_H
#define TESSERA_UNSTABLE_VIEW_H

#include "tessera/unstable/answers.h"
#include "tessera/unstable/findings.h"
#include "tessera/unstable/input.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A zeroed struct, or NULL, is the default. */
typedef struct tsr_view_options {
  const tsr_rules *rules; /* an additional grouping; used during the call only. NULL: none */
  /* The grouping that a page will open with, one of tsr_page_groupings: those by operation, module and line
   * are only made if it is theirs. NULL: none of them. */
  const char *by;
  /* The key of the metadata that its grouping is by; used during the call only. NULL: the whole text. */
  const char *key;
} tsr_view_options;

/* A way of dividing memory into groups: by category, stream, ... Every allocation is in one. */
typedef struct tsr_view_grouping {
  const char *key, *title; /* "stream", "stream"; static text */
  tsr_text *names;         /* of the groups */
  size_t count;            /* at most TSR_VIEW_GROUPS_MAX; the last one includes any others */
  uint8_t *group;          /* by allocation */
  char *spelled;           /* owns the names that are not the snapshot's */
} tsr_view_grouping;

#define TSR_VIEW_GROUPS_MAX    48
#define TSR_VIEW_GROUPINGS_MAX 10

/* A range of reserved memory: a segment, or of expandable memory a range that is mapped without a gap.
 * When such a range grows or shrinks, its span dies and a new one is born at the same moment. */
typedef struct tsr_view_span {
  uint64_t address, size_bytes;
  uint32_t born, died;
  uint32_t stream, pool; /* ids of the snapshot, or TSR_NONE */
  bool is_large, is_expandable;
} tsr_view_span;

/* What private pools keep (tsr_private_pool): from `moment` on, those in `group` of the grouping "pool"
 * have taken `bytes` in all. By moment; the bytes of a group only rise, and later marks of one
 * moment replace earlier ones. */
typedef struct tsr_view_pool_mark {
  uint32_t moment;
  uint8_t group;
  uint64_t bytes;
} tsr_view_pool_mark;

typedef enum tsr_view_range_kind {
  TSR_VIEW_ANNOTATION, /* of record_function */
  TSR_VIEW_METADATA,   /* events that carry the same user metadata */
  TSR_VIEW_STEP,       /* inferred, see tessera/unstable/steps.h */
  TSR_VIEW_PHASE       /* likewise */
} tsr_view_range_kind;

/* A named range of the trace. */
typedef struct tsr_view_range {
  uint8_t kind;        /* tsr_view_range_kind */
  bool is_certain;     /* a whole step; a phase known from frames or annotations; otherwise true */
  uint32_t name;       /* string id; for a step its number, from 1; for a phase the tsr_phase */
  uint32_t born, died; /* moments */
} tsr_view_range;

/* Something that happened at one moment: out of memory, or an earlier snapshot. */
typedef struct tsr_view_mark {
  uint32_t moment;
  tsr_action action;               /* TSR_ACTION_OOM or TSR_ACTION_SNAPSHOT */
  uint64_t size_bytes, free_bytes; /* for an OOM: the request, and the driver's free memory */
} tsr_view_mark;

/* What the user can do, as `tessera peak` prints it: the change, its evidence, and where most of the memory
 * comes from, or "". UTF-8 apart from names of the snapshot's. */
typedef struct tsr_view_finding {
  tsr_finding_rule rule;
  char *change, *evidence, *place;
  uint32_t moment; /* at which the memory is in use */
  uint32_t *rows;  /* the allocations that it is about; NULL if they are not single ones */
  size_t row_count;
} tsr_view_finding;

typedef struct tsr_view_device {
  uint32_t device;
  uint64_t event_count;
  uint32_t peak;          /* the first moment at which allocated is largest */
  tsr_totals peak_totals; /* at that moment */
  tsr_totals maxima;
  bool has_history;                     /* as in tsr_peak_device */
  tsr_phase phase;                      /* of the peak, as in tsr_diff_side */
  tsr_moment in_phase[TSR_PHASE_COUNT]; /* likewise */

  /* Allocations, in order of allocation. */
  size_t allocation_count;
  uint32_t *born, *died;
  uint32_t *released; /* moment at which the program freed it: from then until `died` its memory may
                         wait for a stream */
  uint64_t *address, *requested_bytes, *block_bytes;
  uint32_t *stack; /* stack id; TSR_NONE if none was recorded, or it is empty */
  uint32_t
      *said; /* index in `texts` of what the program called it, or TSR_NONE; NULL: it named none */
  tsr_text *texts; /* distinct; names are separated by "; ". Owned by the view, as its memory is */
  size_t text_count;
  void *said_memory;

  tsr_view_grouping groupings[TSR_VIEW_GROUPINGS_MAX];
  size_t grouping_count; /* the first is by category */

  int64_t *times_us; /* time of moments 0, time_step, 2 * time_step, ...; never decreasing */
  size_t time_count; /* 0 if the file has no times; otherwise the last is the last moment's */
  uint32_t time_step;

  tsr_view_span *spans;
  size_t span_count;
  tsr_view_pool_mark *pool_marks; /* none without private pools */
  size_t pool_mark_count;
  tsr_view_range *ranges; /* by kind, then by born, outer ones first */
  size_t range_count;
  tsr_view_mark *marks;
  size_t mark_count;
  tsr_view_finding *findings; /* most saved first; at most one of each rule */
  size_t finding_count;
  tsr_warning *warnings;
  size_t warning_count;
} tsr_view_device;

typedef struct tsr_view {
  tsr_view_device *devices;
  size_t device_count;
} tsr_view;

/* The columns of each device that the query selects. The caller owns `*out` and passes it to
 * tsr_view_free; it is immutable, so any number of threads may use it. Fails and takes time like the
 * questions of tessera/unstable/answers.h, with rules like tsr_profile_compute; memory is
 * some 48 bytes per allocation. */
int tsr_view_compute(tsr_study *study, const tsr_view_options *options, const tsr_query *query,
                     tsr_view **out, tsr_error *error);
void tsr_view_free(tsr_view *view);

/* ---- cuts ---- */

/* A zeroed struct, or NULL, is the default. */
typedef struct tsr_view_stretch {
  uint32_t from, to;         /* moments, inclusive; to = 0, or beyond the last: the last */
  uint64_t most_allocations; /* most allocations included individually; 0 = 1,500,000 */
  uint32_t most_buckets;     /* 0 = 8,192 */
} tsr_view_stretch;

/* Requested bytes of the aggregated rest, by bucket, then by group. */
typedef struct tsr_view_sums {
  uint64_t *high, *low;
} tsr_view_sums;

typedef struct tsr_view_cut {
  uint32_t from, to;
  uint32_t *listed; /* rows of the device's columns that are included, ascending */
  size_t listed_count;
  uint64_t rest_count, rest_largest_bytes; /* of the others in the range */
  uint32_t bucket_moments;                 /* bucket b begins at moment from + b * bucket_moments */
  size_t bucket_count;
  uint32_t *high, *low;                         /* by bucket: its highest and lowest moment */
  uint64_t *allocated_high, *allocated_low;     /* allocated bytes then, of all allocations */
  uint64_t *active_high, *active_low;           /* active bytes then */
  uint32_t *rest_blocks_high, *rest_blocks_low; /* number of the rest's blocks then */
  tsr_view_sums rest[TSR_VIEW_GROUPINGS_MAX];   /* by grouping; NULL if there is no rest */
} tsr_view_cut;

/* Cut a range out of a device; release it with tsr_view_cut_release. Time is linear in the
 * allocations made before its end and in its moments. Fails with TSR_ERROR_MEMORY, or _ARGUMENT
 * if `from` is past the end. */
int tsr_view_cut_compute(const tsr_view_device *device, const tsr_view_stretch *stretch,
                         tsr_view_cut *out, tsr_error *error);
/* A zeroed one is fine. */
void tsr_view_cut_release(tsr_view_cut *cut);

/* ---- the page ---- */

/* One file of a page: its view, and the cuts to include. */
typedef struct tsr_page_input {
  tsr_report_input input;
  const tsr_view *view;
  const tsr_view_cut *cuts; /* by device of the view, each of the whole trace */
} tsr_page_input;

/* The groupings that a page can open with, as users type them ("compile-context"). The last one is "metadata:KEY",
 * for which tsr_view_options has a key; ends at NULL. */
extern const char *const tsr_page_groupings[];

/* The page's initial settings; a zeroed struct is the default. */
typedef struct tsr_page_options {
  size_t struct_bytes;     /* tessera/options.h */
  const char *by;          /* one of them but the last; NULL = category */
  bool is_ordered;         /* as bands in allocation order, not group by group */
  uint64_t first_event;    /* the range shown at first: its first event, */
  uint64_t event_count;    /* and its number of events; 0: everything */
  uint64_t capacity_bytes; /* of the card, drawn as a line; 0: none */
  uint64_t most_bytes;     /* of the page; 0 = 20 MB (20,000,000) */
  bool is_served; /* a server responds to "part?track=T&from=M&to=N", relative to the page, with
                     tsr_page_write_part of that range; then the page requests what it shows */
} tsr_page_options;

/* A page, ready to be written. Inputs and their views must outlive it. Immutable. */
typedef struct tsr_page tsr_page;

/* Make a page. Fails with TSR_ERROR_MEMORY, or with _LIMIT if the page would exceed most_bytes: then
 * try again with cuts of fewer allocations. */
int tsr_page_open(const tsr_page_input *inputs, size_t input_count, const tsr_page_options *options,
                  tsr_page **out, tsr_error *error);
/* Write one HTML document. It needs no network and no server (unless it is served), and content of the
 * files appears in it as data only. Fails with TSR_ERROR_WRITE. */
int tsr_page_write(const tsr_page *page, tsr_write_fn *write, void *context, tsr_error *error);
/* Write a cut of a device in the format that a served page reads. `track` counts the devices of all
 * inputs. Fails with TSR_ERROR_MEMORY, _WRITE, or _ARGUMENT for a track that does not exist. */
int tsr_page_write_part(const tsr_page *page, size_t track, const tsr_view_cut *cut,
                        tsr_write_fn *write, void *context, tsr_error *error);
/* NULL is fine. */
void tsr_page_free(tsr_page *page);

#ifdef __cplusplus
}
#endif
#endif
