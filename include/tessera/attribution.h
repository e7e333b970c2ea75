/* tessera/attribution.h - the words in which tessera says what memory is for.
 *
 * A training step has phases, and memory has a purpose. PyTorch records neither; both are inferred
 * from stacks, lifetimes, sizes and annotations, and every inference names its evidence. */
#ifndef TESSERA_ATTRIBUTION_H
#define TESSERA_ATTRIBUTION_H

#ifdef __cplusplus
extern "C" {
#endif

/* What the program was doing. */
typedef enum tsr_phase {
  TSR_PHASE_UNKNOWN,
  TSR_PHASE_SETUP, /* the model, or the optimizer, is being built or loaded */
  TSR_PHASE_DATA,  /* the next batch is being made or moved */
  TSR_PHASE_FORWARD,
  TSR_PHASE_RECOMPUTE, /* forward again, within backward: activation checkpointing */
  TSR_PHASE_BACKWARD,
  TSR_PHASE_OPTIMIZER, /* from the end of backward on: clipping, unscaling, the step */
  TSR_PHASE_ZERO_GRAD,
  TSR_PHASE_COUNT
} tsr_phase;

/* "forward", "zero_grad", ...; static text, never NULL. */
const char *tsr_phase_name(tsr_phase phase);

/* What an allocation is for. */
typedef enum tsr_kind {
  TSR_KIND_UNEXPLAINED,
  TSR_KIND_PARAMETER,       /* parameters and buffers */
  TSR_KIND_GRADIENT,        /* of parameters; gradients of activations are temporary */
  TSR_KIND_OPTIMIZER_STATE, /* moments, master copies */
  TSR_KIND_ACTIVATION,      /* made in forward and kept for backward */
  TSR_KIND_RECOMPUTED,      /* activations made again by checkpointing */
  TSR_KIND_TEMPORARY,       /* made and freed within one phase */
  TSR_KIND_INPUT,           /* batches */
  TSR_KIND_COMMUNICATION,   /* buffers of collectives */
  TSR_KIND_WORKSPACE,       /* of cuBLAS and its like */
  TSR_KIND_COUNT
} tsr_kind;

/* "parameter", "optimizer_state", ...; static text, never NULL. */
const char *tsr_kind_name(tsr_kind kind);

/* How far to believe a kind. */
typedef enum tsr_confidence {
  TSR_CONFIDENCE_NONE,   /* unexplained */
  TSR_CONFIDENCE_GUESS,  /* position or size alone */
  TSR_CONFIDENCE_LIKELY, /* phase and lifetime agree */
  TSR_CONFIDENCE_SURE    /* frames name it, or phase and lifetime leave no other */
} tsr_confidence;

/* "sure", "likely", ...; static text, never NULL. */
const char *tsr_confidence_name(tsr_confidence confidence);

/* Why an allocation has its kind. Each reason has one confidence. */
typedef enum tsr_evidence {
  TSR_EVIDENCE_NONE,
  TSR_EVIDENCE_STATE_FRAME,
  TSR_EVIDENCE_OPTIMIZER_BUILT,
  TSR_EVIDENCE_OUTLIVES_OPTIMIZER,
  TSR_EVIDENCE_WITHIN_PHASE,
  TSR_EVIDENCE_KEPT_FOR_BACKWARD,
  TSR_EVIDENCE_RELEASED_BY_AUTOGRAD,
  TSR_EVIDENCE_OUTLIVES_FORWARD,
  TSR_EVIDENCE_OUTLIVES_RECOMPUTE,
  TSR_EVIDENCE_ACCUMULATE_FRAME,
  TSR_EVIDENCE_OUTLIVES_BACKWARD,
  TSR_EVIDENCE_UNFINISHED_BACKWARD,
  TSR_EVIDENCE_MODULE_BUILT,
  TSR_EVIDENCE_CONSTRUCTOR,
  TSR_EVIDENCE_DATA_FRAME,
  TSR_EVIDENCE_BEFORE_FORWARD,
  TSR_EVIDENCE_WORKSPACE_FRAME,
  TSR_EVIDENCE_WORKSPACE_SIZE,
  TSR_EVIDENCE_COLLECTIVE_FRAME,
  TSR_EVIDENCE_OLD_PARAMETER,
  TSR_EVIDENCE_OLD_STATE,
  TSR_EVIDENCE_OLD_GRADIENT,
  TSR_EVIDENCE_OLD_ACTIVATION,
  TSR_EVIDENCE_FREED_BY_ZERO_GRAD,
  TSR_EVIDENCE_FORWARD_GRADIENT,
  TSR_EVIDENCE_OLD_MODEL,
  TSR_EVIDENCE_REPLACED_PARAMETER,
  TSR_EVIDENCE_UNSAVED_OUTPUT,
  TSR_EVIDENCE_OLD_BUFFER,
  TSR_EVIDENCE_OLD_FROZEN,
  TSR_EVIDENCE_NAMED,
  TSR_EVIDENCE_COUNT
} tsr_evidence;

/* A short sentence without a full stop, as "made in forward and alive when backward began". Static
 * text, never NULL. */
const char *tsr_evidence_text(tsr_evidence evidence);
tsr_confidence tsr_evidence_confidence(tsr_evidence evidence);

#ifdef __cplusplus
}
#endif
#endif
