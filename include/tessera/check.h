/* tessera/check.h - is a run within its budget? The gate for continuous integration.
 *
 * What is measured does not depend on what the allocator had cached before: the peak is that of
 * allocated memory, kinds and causes count blocks from their allocation until their memory is free.
 * Reserved memory does depend on history; it is reported, and gated only where asked.
 *
 * A *lock* is a small text that holds the figures of a run, to be kept beside the code and reviewed
 * when they change:
 *
 *   tessera memory lock 1
 *   device 0
 *   peak 24212045824 # 22.55 GiB
 *   kind activation 17653317632 # 16.44 GiB
 *   cause activation 6442450944 nn_utils.py:softmax # 6.00 GiB
 *   rest 412090368 # 393.00 MiB
 *
 * Each figure is the most it was at any one time; `peak` of all allocated memory, `kind` of a kind's,
 * `cause` of a kind's that one function took, named by file and function (and, behind a '>', by those
 * of the library it called) so that neither lines nor folders matter; `rest` is the largest cause that
 * is not listed. A kind not named is 0. What stands behind " # " is for people. Empty lines, and lines that begin with '#', mean nothing.
 */
#ifndef TESSERA_CHECK_H
#define TESSERA_CHECK_H

#include "tessera/answers.h"
#include "tessera/causes.h"
#include "tessera/report.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Locks ---- */

/* Bounds on what is read as a lock: of the text, of a line, of devices and of a device's causes. */
#define TSR_LOCK_MAX_BYTES   (1u << 20)
#define TSR_LOCK_LINE_BYTES  1024u
#define TSR_LOCK_MAX_DEVICES 4096u
#define TSR_LOCK_MAX_CAUSES  1000u
/* Causes that are written. */
#define TSR_LOCK_CAUSES 12u

typedef struct tsr_lock_cause {
  tsr_kind kind;
  uint64_t bytes;
  const char *name; /* as in tsr_check_cause */
} tsr_lock_cause;

typedef struct tsr_lock_device {
  uint32_t device;
  uint64_t peak_bytes;
  uint64_t kinds[TSR_KIND_COUNT];
  tsr_lock_cause *causes;
  size_t cause_count;
  uint64_t rest_bytes;
} tsr_lock_device;

typedef struct tsr_lock {
  tsr_lock_device *devices; /* ascending */
  size_t device_count;
} tsr_lock;

/* Read a lock. Fails with TSR_ERROR_FORMAT, naming the line, TSR_ERROR_LIMIT for one that passes a
 * bound above, or TSR_ERROR_MEMORY. Linear in the text. `*out` is the caller's, for tsr_lock_free. */
int tsr_lock_parse(const char *text, size_t size_bytes, tsr_lock **out, tsr_error *error);
/* Release it. NULL is fine. */
void tsr_lock_free(tsr_lock *lock);

/* ---- Checks ---- */

typedef enum tsr_check_rule {
  TSR_CHECK_MAX_PEAK,     /* allocated memory has a budget */
  TSR_CHECK_MAX_KIND,     /* memory of a kind has one */
  TSR_CHECK_MAX_RESERVED, /* reserved memory has one */
  TSR_CHECK_LOCK_DEVICE,  /* the lock and the snapshot have the same devices */
  TSR_CHECK_LOCK_PEAK,    /* allocated memory is what the lock says */
  TSR_CHECK_LOCK_KIND,    /* memory of a kind is; what is unexplained shows in the peak alone */
  TSR_CHECK_RULE_COUNT
} tsr_check_rule;

/* "max-peak", "lock-kind", ...; static text, never NULL. */
const char *tsr_check_rule_name(tsr_check_rule rule);

/* A budget: MAX_PEAK, MAX_KIND (of `kind`) or MAX_RESERVED. */
typedef struct tsr_check_limit {
  tsr_check_rule rule;
  tsr_kind kind;
  uint64_t bytes;
} tsr_check_limit;

typedef struct tsr_check_options {
  const tsr_check_limit *limits;
  size_t limit_count;
  const tsr_lock *lock; /* or NULL */
  /* How far a figure may be off the lock's, either way: so many bytes, and so many millionths of
   * the device's locked peak more. */
  uint64_t tolerance_bytes;
  uint32_t tolerance_millionths;
  bool wants_causes; /* tell causes also where nothing fails and there is no lock */
} tsr_check_options;

/* What a kind held. */
typedef struct tsr_check_kind {
  uint64_t peak_bytes; /* the most at one time, */
  int64_t peak_event;  /* first after this event */
  uint64_t bytes;      /* at the device's peak */
} tsr_check_kind;

/* What one function's allocations of one kind held. */
typedef struct tsr_check_cause {
  const char *name; /* "nn_utils.py:softmax", in printable characters; the answer's own */
  tsr_cause cause;  /* with the bytes and allocations it held when most; the line of its largest
                       allocation */
  int64_t peak_event;
  uint64_t bytes_at_peak; /* the device's */
  bool is_locked;         /* the lock lists it, */
  uint64_t locked_bytes;  /* with so much; without, it was at most this */
} tsr_check_cause;

/* One check of one device. */
typedef struct tsr_check_result {
  tsr_check_rule rule;
  uint32_t device;
  tsr_kind kind; /* of the KIND rules */
  bool is_passed;
  uint64_t bytes;           /* measured */
  uint64_t limit_bytes;     /* the budget, or what the lock says */
  uint64_t tolerance_bytes; /* allowed beside that; 0 for budgets */
  int64_t event;            /* at which it was measured */
  uint32_t *causes;         /* of a failure: what explains it, most telling first: by index in the
                               device's causes */
  size_t cause_count;
  bool is_change; /* causes are ranked by what they changed against the lock, not by size */
} tsr_check_result;

typedef struct tsr_check_device {
  uint32_t device;
  uint64_t event_count;
  tsr_moment peak; /* as in tsr_peak_device */
  uint64_t peak_reserved_bytes;
  int64_t peak_reserved_event;
  bool has_causes;
  tsr_check_kind kinds[TSR_KIND_COUNT]; /* by tsr_kind */
  tsr_check_cause *causes;              /* by the most they held */
  size_t cause_count;
  tsr_warning *warnings;
  size_t warning_count;
  void *names; /* what the texts live in */
} tsr_check_device;

typedef struct tsr_check {
  bool is_passed; /* nothing failed, something was there to be checked, and it was whole */
  bool is_cut;    /* the file ends too early: the run may have held more than it says */
  bool has_lock;
  uint64_t failed_count;
  tsr_check_device *devices;
  size_t device_count;
  tsr_check_result *results; /* by device, in the order of tsr_check_rule */
  size_t result_count;
} tsr_check;

/* Check each device the query means; a lock's other devices are left alone where it names some.
 * tsr_query.top bounds the causes of a result. Time is linear in events. Fails with
 * TSR_ERROR_MEMORY or _ARGUMENT. `*out` is the caller's, for tsr_check_free. */
int tsr_check_compute(const tsr_snapshot *snapshot, const tsr_check_options *options,
                      const tsr_query *query, tsr_check **out, tsr_error *error);
/* Release it. NULL is fine. */
void tsr_check_free(tsr_check *check);

/* Write what was measured as a lock; needs causes. Fails with TSR_ERROR_WRITE or _MEMORY. */
int tsr_lock_write(const tsr_check *check, tsr_write_fn *write, void *context, tsr_error *error);

/* ---- Reports ---- */

typedef enum tsr_check_format {
  TSR_CHECK_TEXT,
  TSR_CHECK_JSON,
  TSR_CHECK_JUNIT,   /* XML as continuous integration reads it: a test case a check */
  TSR_CHECK_SARIF,   /* 2.1.0: a result a failure, at the line that explains it */
  TSR_CHECK_MARKDOWN /* for a comment on a change */
} tsr_check_format;

typedef struct tsr_check_face {
  tsr_check_format format;
  /* The folder that the program was run in, as the snapshot's files name it: what lies below is
   * named relative to it in SARIF. NULL: none is. */
  const char *root;
} tsr_check_face;

/* `options` as in tessera/report.h; its format does not matter. Fails with TSR_ERROR_WRITE or
 * _MEMORY. */
int tsr_report_check(const tsr_report_input *input, const tsr_check *check,
                     const tsr_check_face *face, const tsr_report_options *options,
                     tsr_write_fn *write, void *context, tsr_error *error);

#ifdef __cplusplus
}
#endif
#endif
