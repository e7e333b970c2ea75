/* view_findings.c - what a user can do about a device's memory, for the page. See view_findings.h.
 *
 * The words are those of `tessera peak` (questions/shared/findings.h); the allocations are rows of the view. */
#include "page/view_findings.h"

#include <assert.h>
#include <string.h>

#include "questions/shared/findings.h"

/* The buffer's text, copied; it is empty afterwards. NULL when out of memory. */
static char *take_text(tsr__buffer *text) {
  char *copy = text->failed ? NULL : TSR__NEW_ARRAY(char, text->size + 1);
  if (copy && text->size) memcpy(copy, text->data, text->size);
  text->size = 0;
  return copy;
}

static bool copy_rows(const uint32_t *rows, size_t count, tsr_view_finding *out) {
  if (!count) return true;
  out->rows = TSR__NEW_ARRAY(uint32_t, count);
  if (!out->rows) return false;
  memcpy(out->rows, rows, count * sizeof *out->rows);
  out->row_count = count;
  return true;
}

static bool describe(tsr__namer *namer, const tsr_finding *finding, tsr_view_finding *out) {
  tsr__buffer text = {0};
  assert(finding->event >= -1);
  out->rule = finding->rule;
  out->moment = (uint32_t)(finding->event + 1);
  tsr__finding_append_change(namer, finding, &text);
  out->change = take_text(&text);
  tsr__finding_append_evidence(finding, &text);
  if (finding->rule == TSR_FINDING_STATES) tsr__buffer_text(&text, " ");
  tsr__finding_append_options(finding, &text);
  out->evidence = take_text(&text);
  tsr__finding_append_place(namer, finding, &text);
  out->place = take_text(&text);
  tsr__buffer_release(&text);
  return out->change && out->evidence && out->place;
}

/* The allocations that a finding is about. */
static int find_rows(tsr_study *study, uint32_t device, const tsr__findings *from,
                     const tsr_finding *finding, tsr_view_finding *out, tsr_error *error) {
  tsr__allocations leaked = {0};
  tsr_finding leak;
  int status = 0;
  bool is_leak = finding->rule == TSR_FINDING_LEAK;
  if (is_leak) status = tsr__leak_find(study, device, &leak, &leaked, error);
  const uint32_t *rows = is_leak ? leaked.items : from->allocations[finding->rule].items;
  size_t count = is_leak ? leaked.count : from->allocations[finding->rule].count;
  if (!status && !copy_rows(rows, count, out)) status = tsr__fail_memory(error);
  TSR__VECTOR_FREE(&leaked);
  return status;
}

int tsr__view_findings(tsr_study *study, tsr_view_device *out, tsr_error *error) {
  const tsr__findings *findings;
  tsr_finding *list = NULL;
  size_t count = 0;
  tsr__namer namer = {0};
  int status = tsr__study_findings(study, out->device, &findings, error);
  if (!status) status = tsr__findings_of(study, out->device, &list, &count, error);
  if (!status && count) {
    out->findings = TSR__NEW_ARRAY(tsr_view_finding, count);
    status = out->findings ? tsr__namer_init(&namer, tsr_study_snapshot(study), NULL, error)
                           : tsr__fail_memory(error);
  }
  for (size_t i = 0; !status && i < count; i++) {
    tsr_view_finding *finding = &out->findings[out->finding_count++];
    if (!describe(&namer, &list[i], finding)) status = tsr__fail_memory(error);
    if (!status) status = find_rows(study, out->device, findings, &list[i], finding, error);
  }
  tsr__namer_release(&namer);
  tsr__free(list);
  return status;
}

void tsr__view_findings_release(tsr_view_device *device) {
  for (size_t i = 0; i < device->finding_count; i++) {
    tsr__free(device->findings[i].change);
    tsr__free(device->findings[i].evidence);
    tsr__free(device->findings[i].place);
    tsr__free(device->findings[i].rows);
  }
  tsr__free(device->findings);
}
