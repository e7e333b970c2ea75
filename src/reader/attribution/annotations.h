/* annotations.h - the innermost annotation that is open at each event of a trace.
 *
 * PyTorch writes one entry where a record_function range begins and one where it ends, but does not
 * record which belong together. Mosaic's rule: a stack of names; an entry takes effect at the first
 * event at or after its time; START pushes its name, END removes the last entry of its name,
 * wherever it is in the stack. Entries are processed in file order, so one with a late time
 * delays those after it. */
#ifndef TSR_ATTRIBUTION_ANNOTATIONS_H
#define TSR_ATTRIBUTION_ANNOTATIONS_H

#include "base/error.h"
#include "base/vector.h"
#include "tessera/unstable/columns.h"

/* Oddities; each becomes a warning if it is not 0. */
typedef enum tsr__annotation_odd {
  TSR__ANNOTATION_NO_START, /* an END of a name that is not open */
  TSR__ANNOTATION_NO_END,   /* a START without an END */
  TSR__ANNOTATION_CROSSED,  /* an END of a name that is not innermost: ranges overlap */
  TSR__ANNOTATION_LATE,     /* an entry earlier than the previous one */
  TSR__ANNOTATION_UNUSABLE, /* neither START nor END, or without a time */
  TSR__ANNOTATION_ODD_COUNT
} tsr__annotation_odd;

/* From event `first_event` on, the innermost name is `name`: a string id, or TSR_NONE for none. */
typedef struct tsr__annotation_span {
  uint64_t first_event;
  uint32_t name;
} tsr__annotation_span;

/* Spans ascend; the first begins at event 0. A trace without events has one span too. */
typedef struct tsr__annotations {
  TSR__VECTOR(tsr__annotation_span) spans;
  uint64_t odd[TSR__ANNOTATION_ODD_COUNT];
} tsr__annotations;

/* Apply the snapshot's annotations to a trace. Time is linear in both, however ranges nest
 * and overlap. Fails with TSR_ERROR_MEMORY. */
int tsr__annotations_compute(const tsr_snapshot *snapshot, const tsr_events *events,
                             tsr__annotations *out, tsr_error *error);
void tsr__annotations_release(tsr__annotations *annotations);

/* The span that contains an event. O(log spans). */
size_t tsr__annotations_span(const tsr__annotations *annotations, uint64_t event);

/* Write the oddities as warnings, at most TSR__ANNOTATION_ODD_COUNT, to `out`; returns their number. */
size_t tsr__annotations_warnings(const tsr__annotations *annotations, tsr_warning *out);

#endif
