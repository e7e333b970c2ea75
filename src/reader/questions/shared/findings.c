/* findings.c - see findings.h: a copy of the study's findings, which the answer owns. */
#include "questions/shared/findings.h"

#include <string.h>

#include "base/memory.h"

int tsr__findings_of(tsr_study *study, uint32_t device, tsr_finding **out, size_t *count,
                     tsr_error *error) {
  const tsr__findings *findings;
  int status = tsr__study_findings(study, device, &findings, error);
  *out = NULL;
  *count = 0;
  if (status || !findings->items.count) return status;
  if (!(*out = TSR__NEW_ARRAY(tsr_finding, findings->items.count))) return tsr__fail_memory(error);
  memcpy(*out, findings->items.items, findings->items.count * sizeof **out);
  *count = findings->items.count;
  return 0;
}
