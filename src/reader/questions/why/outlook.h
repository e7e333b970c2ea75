/* outlook.h - what would have come after a failed request, and what would help. */
#ifndef TSR_QUESTIONS_WHY_OUTLOOK_H
#define TSR_QUESTIONS_WHY_OUTLOOK_H

#include "questions/shared/rerun.h"
#include "study/study.h"
#include "tessera/unstable/why.h"

/* Whether another arrangement of the memory that was there would have served the request. */
static inline bool tsr__why_is_arrangement(tsr_why_reason reason) {
  return reason >= TSR_WHY_FRAGMENTED && reason <= TSR_WHY_ROUNDED;
}

/* Fill the device's outlook, for its chosen oom event, and the tail that trials add to the request; no
 * tail if nothing is expected. The caller frees `tail->fate`, also after a failure. Needs the device's moment, categories, request and capacity. `patience` as in
 * tsr__rerun_options. Time is linear in events. Fails with TSR_ERROR_MEMORY. */
int tsr__why_look_ahead(tsr_study *study, const tsr__timeline *timeline, tsr__patience *patience,
                        tsr__rerun_tail *tail, tsr_why_device *device, tsr_error *error);

/* The blocks of the forward that ran before the failure, for estimates. */
typedef struct tsr__why_blocks {
  uint64_t count; /* 0 if nothing repeats */
  uint64_t bytes; /* what one keeps */
} tsr__why_blocks;

/* What the trace up to the failure shows of the program. */
typedef struct tsr__why_program {
  bool has_backward, has_optimizer, has_recompute; /* has_optimizer: a whole run of it */
  bool
      has_whole_step; /* a step before the one that failed: also if its optimizer allocates nothing */
  tsr__why_blocks blocks;
  /* What a loss over a vocabulary may need, judged by the largest parameter; 0 if unknown. */
  uint64_t loss_bytes;
  /* The most that was allocated while the optimizer ran, and while anything else did. */
  uint64_t update_peak_bytes, work_peak_bytes;
} tsr__why_program;

/* The program up to the device's failure; after tsr__why_look_ahead. Fails with TSR_ERROR_MEMORY. */
int tsr__why_program_of(tsr_study *study, const tsr__timeline *timeline,
                        const tsr_why_device *device, tsr__why_program *out, tsr_error *error);

/* Fill what the ledger says of the rest of the card at the device's moment. Fails with TSR_ERROR_MEMORY. */
int tsr__why_look_outside(tsr_study *study, tsr_why_device *device, tsr_error *error);

/* Which parts of it explain the failure. Needs the request and the capacity, too. */
void tsr__why_find_outside(tsr_why_device *device);

/* Fill the device's advice, from its outlook and its trials. Fails with TSR_ERROR_MEMORY. */
int tsr__why_advise(tsr_study *study, const tsr__timeline *timeline, tsr_why_device *device,
                    tsr_error *error);

#endif
