/* annotations.h - which annotation each event of a trace falls under: the innermost open one.
 *
 * PyTorch writes one entry where a record_function range begins and one where it ends, without
 * saying which belong together. Mosaic's rule: a stack of names; an entry takes effect at the first
 * event at or after its time; START pushes its name, END takes the last entry of its name off,
 * wherever in the stack that is. Entries are taken in the order of the file, so that one which is
 * late holds up those behind it. */
#ifndef TSR_ATTRIBUTION_ANNOTATIONS_H
#define TSR_ATTRIBUTION_ANNOTATIONS_H

#include "base/error.h"
#include "base/vector.h"
#include "tessera/snapshot.h"

/* Oddities, each a warning where it is not 0. */
typedef enum tsr__annotation_odd {
  TSR__ANNOTATION_NO_START, /* an END of a name that is not open */
  TSR__ANNOTATION_NO_END,   /* a START whose END never comes */
  TSR__ANNOTATION_CROSSED,  /* an END of a name that is not innermost: ranges overlap */
  TSR__ANNOTATION_LATE,     /* an entry earlier than the one before it */
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

/* Follow the snapshot's annotations through a trace. Time is linear in both, however ranges nest
 * and overlap. Fails with TSR_ERROR_MEMORY. */
int tsr__annotations_compute(const tsr_snapshot *snapshot, const tsr_events *events,
                             tsr__annotations *out, tsr_error *error);
void tsr__annotations_release(tsr__annotations *annotations);

/* The span that holds an event. O(log spans). */
size_t tsr__annotations_span(const tsr__annotations *annotations, uint64_t event);

/* What was odd, as warnings: at most TSR__ANNOTATION_ODD_COUNT into `out`; answers how many. */
size_t tsr__annotations_warnings(const tsr__annotations *annotations, tsr_warning *out);

#endif
