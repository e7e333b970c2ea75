/* phase.h - what the program was doing: by stack, and by ranges of a device's trace.
 *
 * A stack has a role if its frames show one. If they do not (the user's loss
 * function, a backward thread whose frames Python does not see), the known neighbours in the trace
 * decide: what is allocated after forward and before backward belongs to forward. */
#ifndef TSR_ATTRIBUTION_PHASE_H
#define TSR_ATTRIBUTION_PHASE_H

#include "attribution/marked.h"
#include "attribution/marks.h"
#include "base/error.h"
#include "base/vector.h"
#include "tessera/unstable/attribution.h"

/* The role of a stack. */
typedef struct tsr__role {
  uint8_t phase;       /* tsr_phase; UNKNOWN if its frames do not show it */
  uint8_t hint;        /* tsr__mark of a frame that shows more than the phase, or NONE */
  bool has_native;     /* has C++ frames */
  bool takes_list;     /* of a function that is given its operands as a list */
  bool calls_backward; /* Python in it is called backward */
  bool is_inner_grad;  /* a forward pass in it computes some gradient */
} tsr__role;

/* By stack id; the last, number `count`, is that of an absent stack. */
typedef struct tsr__roles {
  tsr__role *stacks;
  bool *is_empty;       /* has no frames */
  uint64_t *apply_line; /* the line of its innermost Module._apply; 0 if it has none */
  uint8_t *purpose;     /* its innermost frame of a loop: TSR__MARK_TRAINING, _INFERENCE or _NONE */
  uint64_t *buffer_line;     /* the line of Megatron's constructor of buffers; 0 if it has none */
  uint64_t last_buffer_line; /* the largest of these */
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

/* Consecutive events of one phase; the run ends at the next run's first event. */
typedef struct tsr__phase_run {
  uint32_t first, last_alloc; /* events; last_alloc: the last that allocates, or first */
  uint8_t phase;
  bool is_known; /* the phase is known from frames or annotations, not from neighbours */
} tsr__phase_run;

/* Runs ascend, and neighbours differ in phase. Events before the first run allocate nothing. A request that
 * failed counts like one that was served: it shows what the program was doing. `marked` are
 * the annotations that name a phase or a step; `is_training_marked` is whether any means training. */
typedef struct tsr__phases {
  TSR__VECTOR(tsr__phase_run) runs;
  tsr__marked_ranges marked;
  bool is_training_marked;
} tsr__phases;

/* The runs of a device's trace. Time is linear in events and annotations. Fails with
 * TSR_ERROR_MEMORY. */
int tsr__phases_compute(const tsr_snapshot *snapshot, const tsr__roles *roles,
                        const tsr_events *events, tsr__phases *out, tsr_error *error);
void tsr__phases_release(tsr__phases *phases);
/* Whether a backward pass or an optimizer's step is among them. Linear in runs. */
bool tsr__phases_train(const tsr__phases *phases);
/* The run that an event belongs to; NULL before the first. O(log runs). */
const tsr__phase_run *tsr__phases_run_at(const tsr__phases *phases, uint32_t event);
/* Its phase; UNKNOWN before the first run. O(log runs). */
tsr_phase tsr__phases_at(const tsr__phases *phases, uint32_t event);

#endif
