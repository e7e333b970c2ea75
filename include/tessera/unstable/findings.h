/* tessera/unstable/findings.h - what a user can do about the memory at the peak, with the evidence.
 *
 * Each rule looks for one habit that costs memory and is easy to change. A rule that is not sure stays
 * silent: a wrong hint costs more than a missing one. docs/findings.md describes when each applies. */
#ifndef TESSERA_UNSTABLE_FINDINGS_H
#define TESSERA_UNSTABLE_FINDINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "tessera/allocator.h"
#include "tessera/unstable/attribution.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tsr_finding_rule {
  TSR_FINDING_NO_GRAD,       /* a forward pass keeps memory for a backward pass that never runs */
  TSR_FINDING_CHECKPOINT,    /* equal blocks keep activations that could be recomputed */
  TSR_FINDING_ATTENTION,     /* attention keeps its weights, which fused attention does without */
  TSR_FINDING_TWO_FORWARDS,  /* an earlier forward pass is alive while a later one runs */
  TSR_FINDING_OLD_GRADIENTS, /* gradients are older than the model that is being trained */
  TSR_FINDING_ZERO_GRAD,    /* gradients of the step before are alive while the next runs forward */
  TSR_FINDING_HELD_OUTPUTS, /* so are outputs of the step before */
  TSR_FINDING_LEAK,         /* memory that grows from step to step is alive at the peak */
  TSR_FINDING_STATES, /* nearly all of it is parameters, gradients and the optimizer's state */
  TSR_FINDING_CACHED, /* segments are reserved and entirely free at the peak */
  TSR_FINDING_RULE_COUNT
} tsr_finding_rule;

/* "no_grad", "checkpoint", "attention", "two_forwards", "old_gradients", "zero_grad", "held_outputs", "leak", "states",
 * "cached"; static text, never NULL. */
const char *tsr_finding_rule_name(tsr_finding_rule rule);

/* What makes parameters, gradients and the optimizer's state smaller. */
typedef enum tsr_finding_option {
  TSR_FINDING_OPTION_FUSED,
  TSR_FINDING_OPTION_EIGHT_BIT,
  TSR_FINDING_OPTION_FACTORED,
  TSR_FINDING_OPTION_OFFLOAD,
  TSR_FINDING_OPTION_ZERO1,
  TSR_FINDING_OPTION_FSDP,
  TSR_FINDING_OPTION_LORA,
  TSR_FINDING_OPTION_FOUR_BIT,
  TSR_FINDING_OPTION_COUNT
} tsr_finding_option;

/* "fused_optimizer", "8bit_optimizer", ...; and what it is, in a few words. Static text, never NULL. */
const char *tsr_finding_option_name(tsr_finding_option option);
const char *tsr_finding_option_text(tsr_finding_option option);

/* Who checkpoints a block: the library that runs it, by the frames of its stacks. SDPA...: what fuses attention. */
typedef enum tsr_finding_call {
  TSR_FINDING_CALL_TORCH,
  TSR_FINDING_CALL_TRANSFORMERS,
  TSR_FINDING_CALL_TRAINER,
  TSR_FINDING_CALL_DIFFUSERS,
  TSR_FINDING_CALL_TIMM,
  TSR_FINDING_CALL_LIGHTNING,
  TSR_FINDING_CALL_ACCELERATE,
  TSR_FINDING_CALL_SDPA,
  TSR_FINDING_CALL_SDPA_TRANSFORMERS,
  TSR_FINDING_CALL_COUNT
} tsr_finding_call;

/* "model.gradient_checkpointing_enable()", ...; static text, never NULL. */
const char *tsr_finding_call_text(tsr_finding_call call);

typedef struct tsr_finding {
  tsr_finding_rule rule;
  uint64_t bytes;       /* that the finding is about; of CHECKPOINT, of one block */
  uint64_t saved_bytes; /* about how much less the peak would be; of CACHED, reserved memory */
  uint64_t count; /* NO_GRAD, OLD_GRADIENTS, ZERO_GRAD, HELD_OUTPUTS, LEAK: allocations; CHECKPOINT:
                           blocks; TWO_FORWARDS: passes that are alive; others: 0 */
  int64_t event;  /* the moment at which they are alive: the peak, or of NO_GRAD, the end of that
                           forward pass */
  bool
      has_backward; /* CHECKPOINT, ZERO_GRAD: the trace shows a backward pass, without which it is not
                           known whether one follows */
  bool is_one_moment; /* CACHED: the file shows one moment, so nothing is before or after it */
  bool is_before_recording; /* ZERO_GRAD: the step before is older than the recording */
  uint32_t frame;        /* CHECKPOINT: frame id of the line that calls the block; else TSR_NONE */
  uint32_t block;        /* CHECKPOINT: frame id of the block's own code, or TSR_NONE */
  tsr_finding_call call; /* CHECKPOINT, ATTENTION: how */
  uint32_t stack;        /* that allocated the largest part of it, or TSR_NONE */
  bool is_most;          /* that part is more than half */
  bool is_tied;          /* another part is as large */
  uint64_t step_bytes;   /* LEAK: how much it grows by in each step */
  tsr_steps_unit unit;   /* LEAK: what a step is */
  /* STATES: what is alive at the peak, of all that is requested then; and what each option saves of it, 0
   * for one that does not apply. */
  uint64_t parameter_bytes, gradient_bytes, state_bytes, peak_bytes;
  bool is_state_wide;  /* STATES: the optimizer's state has 32 bits; else it may have 16 */
  uint64_t copy_bytes; /* STATES: temporaries of the optimizer's step, if it is the peak */
  uint64_t option_bytes[TSR_FINDING_OPTION_COUNT];
  /* CACHED: other settings that would have reserved this much less at the highest moment; 0: none would. */
  tsr_allocator_settings settings;
  uint64_t settings_bytes;
} tsr_finding;

#ifdef __cplusplus
}
#endif
#endif
