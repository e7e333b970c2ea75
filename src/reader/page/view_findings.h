/* view_findings.h - a device's findings (tessera/unstable/findings.h) as texts and rows of its view. */
#ifndef TSR_PAGE_VIEW_FINDINGS_H
#define TSR_PAGE_VIEW_FINDINGS_H

#include "study/study.h"
#include "tessera/unstable/view.h"

/* Fill in `out->findings`, which outlive the study. Fails with TSR_ERROR_MEMORY; they must be released in any
 * case. */
int tsr__view_findings(tsr_study *study, tsr_view_device *out, tsr_error *error);
/* A zeroed device is fine. */
void tsr__view_findings_release(tsr_view_device *device);

#endif
