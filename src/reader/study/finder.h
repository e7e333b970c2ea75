/* finder.h - what the rules of findings share: see findings.c. */
#ifndef TSR_STUDY_FINDER_H
#define TSR_STUDY_FINDER_H

#include <assert.h>

#include "study/findings.h"

/* Findings about less than this, or less than a twentieth of the peak, are not worth a change. */
#define TSR__FINDING_LEAST_BYTES (UINT64_C(16) << 20)
#define TSR__FINDING_LEAST_SHARE 20

typedef struct tsr__finder {
  const tsr__timeline *t;
  const tsr__phases *phases;
  const tsr__cycle *cycle;
  const uint8_t *category; /* by allocation */
  const uint8_t *evidence; /* likewise */
  tsr__live_set live;      /* at the peak */
  uint64_t peak_bytes;
  bool has_backward;       /* a backward pass or an optimizer's step is in the trace */
  uint64_t released_bytes; /* of activations from before the recording: released during it */
  tsr__findings *out;
} tsr__finder;

static inline bool tsr__finder_is_worth_it(const tsr__finder *f, uint64_t bytes) {
  return bytes >= TSR__FINDING_LEAST_BYTES && bytes >= f->peak_bytes / TSR__FINDING_LEAST_SHARE;
}

static inline bool tsr__finder_add(tsr__finder *f, tsr_finding finding) {
  assert(finding.saved_bytes && (unsigned)finding.rule < TSR_FINDING_RULE_COUNT);
  return TSR__VECTOR_PUSH(&f->out->items, finding);
}

/* Note an allocation that the finding of a rule is about. */
static inline bool tsr__finder_note(tsr__finder *f, tsr_finding_rule rule, uint32_t allocation) {
  assert((unsigned)rule < TSR_FINDING_RULE_COUNT && allocation < f->t->birth.count);
  return TSR__VECTOR_PUSH(&f->out->allocations[rule], allocation);
}

/* Rules about attention (findings_attention.c), about memory that a step leaves behind (findings_stale.c), and about memory that no batch
 * changes (findings_states.c). False when out of memory. */
bool tsr__find_attention(tsr__finder *f, tsr_error *error);
bool tsr__find_stale_gradients(tsr__finder *f, tsr_error *error);
bool tsr__find_held_outputs(tsr__finder *f, tsr_error *error);
bool tsr__find_states(tsr__finder *f, tsr_error *error);

#endif
