/* confidence.c - each allocation's category, how certain that is, and why.
 *
 *   confidence FILE
 *
 * prints a line for each allocation of the first device's trace: event of birth (-1: before the
 * recording), address, requested bytes, category, confidence, evidence; separated by tabs. */
#include <inttypes.h>
#include <stdio.h>

#include "attribution/category.h"

typedef struct subject {
  tsr_snapshot *snapshot;
  tsr__roles roles;
  tsr__timeline timeline;
  tsr__phases phases;
  tsr__categories categories;
} subject;

static int compute(subject *s) {
  int status = tsr__roles_compute(s->snapshot, &s->roles, NULL);
  if (!status) status = tsr__timeline_compute(s->snapshot, 0, false, NULL, &s->timeline, NULL);
  if (!status)
    status = tsr__phases_compute(s->snapshot, &s->roles, &s->timeline.events, &s->phases, NULL);
  return status ? status
                : tsr__categories_compute(&s->timeline, &s->roles, &s->phases, NULL, NULL,
                                          &s->categories, NULL);
}

int main(int argc, char **argv) {
  subject s = {0};
  if (argc != 2 || tsr_snapshot_open(argv[1], NULL, &s.snapshot, NULL) || compute(&s)) return 1;
  for (uint32_t i = 0; i < s.categories.count; i++) {
    tsr_evidence evidence = (tsr_evidence)s.categories.evidence[i];
    bool is_old = i < s.timeline.initial.count;
    printf("%" PRIi64 "\t%" PRIu64 "\t%" PRIu64 "\t%s\t%s\t%s\n",
           is_old ? -1 : (int64_t)s.timeline.birth.items[i], tsr__timeline_address(&s.timeline, i),
           tsr__timeline_requested(&s.timeline, i),
           tsr_category_name((tsr_category)s.categories.category[i]),
           tsr_confidence_name(tsr_evidence_confidence(evidence)), tsr_evidence_text(evidence));
  }
  tsr__categories_release(&s.categories);
  tsr__phases_release(&s.phases);
  tsr__timeline_release(&s.timeline);
  tsr__roles_release(&s.roles);
  tsr_snapshot_free(s.snapshot);
  return 0;
}
