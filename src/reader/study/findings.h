/* findings.h - looks for habits that cost memory; see tessera/unstable/findings.h. */
#ifndef TSR_STUDY_FINDINGS_H
#define TSR_STUDY_FINDINGS_H

#include "attribution/category.h"
#include "attribution/cycle.h"
#include "base/vector.h"
#include "tessera/unstable/findings.h"

/* Of one device, by saved_bytes, largest first, CACHED last; at most one of each rule. */
typedef struct tsr__findings {
  TSR__VECTOR(tsr_finding) items;
  /* By rule, the allocations that its finding is about, of the timeline; empty without a finding, and of CACHED. */
  TSR__VECTOR(uint32_t) allocations[TSR_FINDING_RULE_COUNT];
} tsr__findings;

/* What the rules read of a device; all of the same timeline. */
typedef struct tsr__finding_sources {
  const tsr__timeline *timeline;
  const tsr__phases *phases;
  const tsr__cycle *cycle;
  const tsr__categories *categories;
} tsr__finding_sources;

/* Time is linear in allocations and runs, and O(n log n) in the allocations live at the peak. `out` is
 * released by tsr__findings_release, also when zeroed. Fails with TSR_ERROR_MEMORY. */
int tsr__findings_compute(const tsr__finding_sources *from, tsr__findings *out, tsr_error *error);
void tsr__findings_release(tsr__findings *findings);

#endif
