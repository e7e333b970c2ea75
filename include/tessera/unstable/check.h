/* tessera/unstable/check.h - is a run within its budget? The gate for continuous integration.
 *
 * The measured figures do not depend on what the allocator had cached before: the peak is that of
 * allocated memory; categories and causes count the requested bytes of allocations, as `profile` does,
 * until their memory is free. Reserved memory does depend on history; it is reported, and limited only on request.
 *
 * A *lock* is a small text file with the figures of a run, to be kept with the code and reviewed
 * when they change:
 *
 *   tessera memory lock 2
 *   device 0
 *   peak 24212045824 # 22.55 GiB
 *   category activation 17653317632 # 16.44 GiB
 *   cause activation 6442450944 nn_utils.py:softmax # 6.00 GiB
 *   rest 412090368 # 393.00 MiB
 *
 * Each figure is a maximum over time: `peak` of all allocated memory, `category` of one category, `cause`
 * of one category and one function, named by file and function (and, after a '>', by those of the
 * library it called), so that lines and folders do not matter; `rest` is the largest cause that
 * is not listed. A category that is not listed is 0. Text after " # ", empty lines, and lines that
 * begin with '#' are ignored. A name that is backslashes, or none, before a '#' or its end has one more
 * backslash in the lock: `\#x` for `#x`, `\` for the empty name. Older locks have `kind` for `category`
 * and `unexplained` for `unknown`; in those of version 1, categories and causes count bytes of blocks, and
 * are compared with such bytes.
 */
#ifndef TESSERA_UNSTABLE_CHECK_H
#define TESSERA_UNSTABLE_CHECK_H

#include "tessera/registry.h"
#include "tessera/unstable/answers.h"
#include "tessera/unstable/causes.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Locks ---- */

/* Limits on a lock: size of the text, length of a line, devices, and causes per device. */
#define TSR_LOCK_MAX_BYTES   (16u << 20) /* all devices of a snapshot, with their causes */
#define TSR_LOCK_LINE_BYTES  1024u
#define TSR_LOCK_MAX_DEVICES 4096u
#define TSR_LOCK_MAX_CAUSES  1000u
/* Causes that are written per device. */
#define TSR_LOCK_CAUSES 12u

typedef struct tsr_lock_cause {
  tsr_category category;
  uint64_t bytes;
  const char *name; /* as in tsr_check_cause */
} tsr_lock_cause;

typedef struct tsr_lock_device {
  uint32_t device;
  uint64_t peak_bytes;
  uint64_t categories[TSR_CATEGORY_COUNT];
  tsr_lock_cause *causes;
  size_t cause_count;
  uint64_t rest_bytes;
} tsr_lock_device;

typedef struct tsr_lock {
  tsr_lock_device *devices; /* ascending */
  size_t device_count;
  uint32_t version; /* 1: categories and causes are bytes of blocks; 2: requested bytes */
} tsr_lock;

/* Read a lock. Fails with TSR_ERROR_FORMAT, naming the line, TSR_ERROR_LIMIT if it exceeds a limit
 * above, or TSR_ERROR_MEMORY. Linear in the text. The caller owns `*out` and passes it to
 * tsr_lock_free. */
int tsr_lock_parse(const char *text, size_t size_bytes, tsr_lock **out, tsr_error *error);
/* Release it. NULL is fine. */
void tsr_lock_free(tsr_lock *lock);
/* The type of parameters that are locks. */
extern const tsr_parameter_type tsr_lock_type;

/* ---- Checks ---- */

typedef enum tsr_check_rule {
  TSR_CHECK_MAX_PEAK,      /* allocated memory is within its budget */
  TSR_CHECK_MAX_CATEGORY,  /* a category is within its budget */
  TSR_CHECK_MAX_RESERVED,  /* reserved memory is within its budget */
  TSR_CHECK_LOCK_DEVICE,   /* the lock and the snapshot have the same devices */
  TSR_CHECK_LOCK_PEAK,     /* allocated memory matches the lock */
  TSR_CHECK_LOCK_CATEGORY, /* a category matches; unknown memory counts in the peak only */
  TSR_CHECK_RULE_COUNT
} tsr_check_rule;

/* "max-peak", "lock-category", ...; static text, never NULL. */
const char *tsr_check_rule_name(tsr_check_rule rule);

/* A budget: MAX_PEAK, MAX_CATEGORY (of `category`) or MAX_RESERVED. */
typedef struct tsr_check_limit {
  tsr_check_rule rule;
  tsr_category category;
  uint64_t bytes;
} tsr_check_limit;

typedef struct tsr_check_options {
  const tsr_check_limit *limits;
  size_t limit_count;
  const tsr_lock *lock; /* or NULL */
  /* How far a figure may differ from the lock's, in both directions: this many bytes, plus this many
   * millionths of the device's locked peak. */
  uint64_t tolerance_bytes;
  uint32_t tolerance_millionths;
  bool wants_causes; /* return causes even if nothing fails and there is no lock */
} tsr_check_options;

/* What a category held. */
typedef struct tsr_check_category {
  uint64_t peak_bytes; /* its maximum, */
  int64_t peak_event;  /* first reached after this event */
  uint64_t bytes;      /* at the device's peak */
} tsr_check_category;

/* What one function's allocations of one category held. */
typedef struct tsr_check_cause {
  const char *name; /* "nn_utils.py:softmax", in printable characters; owned by the answer */
  tsr_cause
      cause; /* bytes and allocations are those at its maximum; the line is the one that holds most of
              * them, and the stack that of its largest allocation. Only causes of a failure have names, those at its maximum */
  int64_t peak_event;
  uint64_t bytes_at_peak; /* at the device's peak */
  bool is_locked;         /* the lock lists it */
  uint64_t locked_bytes;  /* its figure in the lock; if not listed, an upper bound */
} tsr_check_cause;

/* One check of one device. */
typedef struct tsr_check_result {
  tsr_check_rule rule;
  uint32_t device;
  tsr_category category; /* of the CATEGORY rules */
  bool is_passed;
  bool is_one_moment;       /* the device has no history: what is measured is no peak */
  uint64_t bytes;           /* measured */
  uint64_t limit_bytes;     /* the budget, or the lock's figure */
  uint64_t tolerance_bytes; /* allowed difference from that; 0 for budgets */
  int64_t event;            /* at which it was measured */
  uint32_t *causes;         /* of a failure: indexes of the device's causes that explain it, most
                               important first */
  size_t cause_count;
  uint64_t omitted_causes, omitted_bytes; /* omitted by tsr_query.top; bytes: as they are ranked */
  bool is_change; /* causes are ranked by their change from the lock, not by size */
} tsr_check_result;

typedef struct tsr_check_device {
  uint32_t device;
  uint64_t event_count;
  bool
      has_history; /* false: at most one event changes what is allocated, so the file shows one moment */
  tsr_moment peak; /* as in tsr_peak_device */
  uint64_t peak_reserved_bytes;
  int64_t peak_reserved_event;
  bool has_causes;
  bool
      needs_causes; /* a check of the device depends on its categories; else they are there because wants_causes is set */
  tsr_check_category categories[TSR_CATEGORY_COUNT]; /* by tsr_category */
  tsr_check_cause *causes;                           /* by their maximum, largest first */
  size_t cause_count;
  tsr_named *named; /* what the program called the memory of causes */
  tsr_warning *warnings;
  size_t warning_count;
  void *names; /* owns the texts */
} tsr_check_device;

/* Why a check cannot pass although nothing failed: the run may have held more than the file shows. */
typedef enum tsr_check_doubt {
  TSR_CHECK_CERTAIN,
  TSR_CHECK_TRUNCATED,     /* the file is truncated, or was made from one that was */
  TSR_CHECK_DAMAGED,       /* its compressed data is damaged */
  TSR_CHECK_UNREADABLE,    /* a part of the file could not be read: events, segments, sizes */
  TSR_CHECK_UNKNOWN,       /* a category has a budget, but most of a device's memory is unknown */
  TSR_CHECK_OUT_OF_MEMORY, /* a request failed: the run needed more than it got */
  TSR_CHECK_DOUBT_COUNT
} tsr_check_doubt;

/* "truncated", "damaged", "unreadable", "unknown", "out-of-memory"; "certain" for none. Static text. */
const char *tsr_check_doubt_name(tsr_check_doubt doubt);

/* Why, in words: "the file is truncated, and the missing part could hold more"; empty for none. Static text. */
const char *tsr_check_doubt_reason(tsr_check_doubt doubt);

typedef struct tsr_check {
  bool is_passed; /* nothing failed, there was something to check, and no doubt */
  tsr_check_doubt doubt;
  bool
      is_unrecorded; /* no device has a history, and no sidecar shows that a recording was on: only one moment
                         is checked */
  bool leaves_host; /* the file has pinned host memory, which is not among the devices */
  bool has_lock;
  bool counts_blocks; /* categories and causes: the lock is of version 1 */
  uint64_t failed_count;
  tsr_check_device *devices;
  size_t device_count;
  tsr_check_result *results; /* by device, in the order of tsr_check_rule */
  size_t result_count;
} tsr_check;

/* Check each device that the query selects; if it names devices, the lock's other devices are ignored.
 * tsr_query.top limits the causes of a result. Time is linear in events. Fails with
 * TSR_ERROR_MEMORY or _ARGUMENT. The caller owns `*out` and passes it to tsr_check_free. */
int tsr_check_compute(tsr_study *study, const tsr_check_options *options, const tsr_query *query,
                      tsr_check **out, tsr_error *error);
/* Release it. NULL is fine. */
void tsr_check_free(tsr_check *check);

/* Write the measured figures as a lock; needs causes. Fails with TSR_ERROR_WRITE or _MEMORY. */
int tsr_lock_write(const tsr_check *check, tsr_write_fn *write, void *context, tsr_error *error);

/* ---- Reports ---- */

typedef enum tsr_check_format {
  TSR_CHECK_TEXT,
  TSR_CHECK_JSON,
  TSR_CHECK_JUNIT,   /* XML for continuous integration: one test case per check */
  TSR_CHECK_SARIF,   /* 2.1.0: one result per failure, at the line that explains it */
  TSR_CHECK_MARKDOWN /* for a comment on a change */
} tsr_check_format;

typedef struct tsr_check_face {
  tsr_check_format format;
  /* The folder in which the program ran, as it appears in the snapshot's file names: files below it
   * are named relative to it in SARIF. NULL: all names stay absolute. */
  const char *root;
} tsr_check_face;

#ifdef __cplusplus
}
#endif
#endif
