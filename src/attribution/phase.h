/* phase.h - what the program was doing: by stack, and by stretches of a device's trace.
 *
 * A stack has a role of its own as far as its frames tell. Where they do not (the user's loss
 * function, a backward thread whose frames Python does not see), the stretch between two that are
 * known tells: what is made after forward and before backward belongs to forward. */
#ifndef TSR_ATTRIBUTION_PHASE_H
#define TSR_ATTRIBUTION_PHASE_H

#include "attribution/marks.h"
#include "base/error.h"
#include "base/vector.h"
#include "tessera/attribution.h"

/* What a stack tells. */
typedef struct tsr__role {
  uint8_t phase; /* tsr_phase; UNKNOWN where its frames do not tell */
  uint8_t hint;  /* tsr__mark of the frame that tells more than the phase, or NONE */
} tsr__role;

/* By stack id; the last, number `count`, is that of an absent stack. */
typedef struct tsr__roles {
  tsr__role *stacks;
  bool *is_empty; /* has no frames */
  uint32_t count;
  bool has_python; /* some stack has Python frames */
} tsr__roles;

/* Time is linear in distinct frames' text and distinct stacks' depth. Fails with TSR_ERROR_MEMORY.
 */
int tsr__roles_compute(const tsr_snapshot *snapshot, tsr__roles *out, tsr_error *error);
void tsr__roles_release(tsr__roles *roles);

static inline tsr__role tsr__role_of(const tsr__roles *roles, uint32_t stack) {
  return roles->stacks[stack < roles->count ? stack : roles->count];
}

/* A stretch of events in one phase; the next run's first event ends it. */
typedef struct tsr__run {
  uint32_t first, last_alloc; /* events; last_alloc: the last that allocates, or first */
  uint8_t phase;
  bool is_told; /* frames or annotations tell the phase; else its neighbours do */
} tsr__run;

/* Runs ascend, and neighbours differ in phase. Events before the first run allocate nothing. */
typedef struct tsr__phases {
  TSR__VECTOR(tsr__run) runs;
} tsr__phases;

/* The runs of a device's trace. Time is linear in events and annotations. Fails with
 * TSR_ERROR_MEMORY. */
int tsr__phases_compute(const tsr_snapshot *snapshot, const tsr__roles *roles,
                        const tsr_events *events, tsr__phases *out, tsr_error *error);
void tsr__phases_release(tsr__phases *phases);

#endif
