/* tessera/unstable/attribution.h - categories, phases and evidence: what memory is for.
 *
 * A training step has phases, and memory has a category. PyTorch records neither; both are inferred
 * from stacks, lifetimes, sizes and annotations, and every inference names its evidence. */
#ifndef TESSERA_UNSTABLE_ATTRIBUTION_H
#define TESSERA_UNSTABLE_ATTRIBUTION_H

#include <stdint.h>

#include "tessera/category.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What the program was doing. */
typedef enum tsr_phase {
  TSR_PHASE_UNKNOWN,
  TSR_PHASE_SETUP, /* the model or the optimizer is being built or loaded */
  TSR_PHASE_DATA,  /* the next batch is being created or moved */
  TSR_PHASE_FORWARD,
  TSR_PHASE_RECOMPUTE, /* forward again, within backward: activation checkpointing */
  TSR_PHASE_BACKWARD,
  TSR_PHASE_OPTIMIZER, /* from the end of backward on: clipping, unscaling, the step */
  TSR_PHASE_ZERO_GRAD,
  TSR_PHASE_COUNT
} tsr_phase;

/* "forward", "zero_grad", ...; static text, never NULL. */
const char *tsr_phase_name(tsr_phase phase);

/* Where the program ran out of memory for good: the last failure from which it did not recover. */
typedef struct tsr_step_stop {
  int64_t event; /* the oom event; -1: no failure, and the other fields are 0 */
  tsr_phase phase;
  uint64_t
      step; /* the step or iteration in which it was, from 1; 0: in none that the trace shows */
  uint64_t pass;            /* forward passes that had begun, this one included */
  uint64_t allocated_bytes; /* at that event */
} tsr_step_stop;

/* How certain a category is. */
typedef enum tsr_confidence {
  TSR_CONFIDENCE_NONE,   /* unknown */
  TSR_CONFIDENCE_GUESS,  /* position or size alone */
  TSR_CONFIDENCE_LIKELY, /* phase and lifetime agree */
  TSR_CONFIDENCE_SURE    /* frames name it, or phase and lifetime leave no alternative */
} tsr_confidence;

/* "sure", "likely", ...; static text, never NULL. */
const char *tsr_confidence_name(tsr_confidence confidence);

/* Why an allocation has its category. Each reason has one confidence. */
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
  TSR_EVIDENCE_OLD_CAST,
  TSR_EVIDENCE_GRADIENT_BUFFER,
  TSR_EVIDENCE_UNFINISHED_OPTIMIZER,
  TSR_EVIDENCE_FREED_BY_ZERO_GRAD,
  TSR_EVIDENCE_FORWARD_GRADIENT,
  TSR_EVIDENCE_OLD_MODEL,
  TSR_EVIDENCE_REPLACED_PARAMETER,
  TSR_EVIDENCE_UNSAVED_OUTPUT,
  TSR_EVIDENCE_OLD_BUFFER,
  TSR_EVIDENCE_OLD_FROZEN,
  TSR_EVIDENCE_NAMED,
  TSR_EVIDENCE_MOVED_GRADIENT,
  TSR_EVIDENCE_AUTOCAST_CACHE,
  TSR_EVIDENCE_WEIGHT_CAST,
  TSR_EVIDENCE_CAST_SIZE,
  TSR_EVIDENCE_KEPT_OR_CAST,
  TSR_EVIDENCE_LAST_RECOMPUTED,
  TSR_EVIDENCE_HELD_OUTPUT,
  TSR_EVIDENCE_KV_CACHE_FRAME,
  TSR_EVIDENCE_KV_CACHE_UPDATE,
  TSR_EVIDENCE_REPLICA,
  TSR_EVIDENCE_SCATTERED,
  TSR_EVIDENCE_FLATTENED,
  TSR_EVIDENCE_KEPT_OUTSIDE,
  TSR_EVIDENCE_UNFINISHED_FORWARD,
  TSR_EVIDENCE_OLD_UNFINISHED,
  TSR_EVIDENCE_OLD_SPARE,
  TSR_EVIDENCE_NAMED_BY_FILE, /* by the profiler that wrote it */
  TSR_EVIDENCE_COUNT
} tsr_evidence;

/* A short sentence without a full stop, such as "made in forward and alive when backward began". Static
 * text, never NULL. */
const char *tsr_evidence_text(tsr_evidence evidence);
tsr_confidence tsr_evidence_confidence(tsr_evidence evidence);

/* How the steps were found. */
typedef enum tsr_steps_basis {
  TSR_STEPS_NONE,        /* none were found */
  TSR_STEPS_PHASES,      /* each ends with the optimizer's step, or, without one, with backward */
  TSR_STEPS_SEQUENCE,    /* the same stacks and sizes repeat */
  TSR_STEPS_LOOP,        /* the outermost loop in Python repeats */
  TSR_STEPS_ANNOTATIONS, /* ProfilerStep or Optimizer.step say so, without stacks that show phases */
  TSR_STEPS_BASIS_COUNT
} tsr_steps_basis;

/* "phases", "sequence", "loop", "annotations", "none"; static text, never NULL. */
const char *tsr_steps_basis_name(tsr_steps_basis basis);

/* What the repetition is: a training step, or an iteration of a loop in which nothing runs backward. */
typedef enum tsr_steps_unit {
  TSR_STEPS_UNIT_STEP,
  TSR_STEPS_UNIT_ITERATION,
  TSR_STEPS_UNIT_ROUND /* of loops that take turns, such as an epoch; only of a tsr_leaks_loop */
} tsr_steps_unit;

/* "step" or "iteration"; static text, never NULL. */
const char *tsr_steps_unit_name(tsr_steps_unit unit);

/* Mosaic's categories, from the names of the functions in a stack, for comparisons with Mosaic.
 * What an allocation is really for is a tsr_category (tessera/unstable/attribution.h). */
typedef enum tsr_mosaic_category {
  TSR_MOSAIC_CATEGORY_PARAMETER,
  TSR_MOSAIC_CATEGORY_ACTIVATION,
  TSR_MOSAIC_CATEGORY_BACKWARD,
  TSR_MOSAIC_CATEGORY_OPTIMIZER,
  TSR_MOSAIC_CATEGORY_NET,
  TSR_MOSAIC_CATEGORY_UNKNOWN,
  TSR_MOSAIC_CATEGORY_NET_SETUP,
  TSR_MOSAIC_CATEGORY_STATS,
  TSR_MOSAIC_CATEGORY_FSDP,
  TSR_MOSAIC_CATEGORY_COUNT
} tsr_mosaic_category;

/* "parameter", "activation", ...; static text, never NULL. */
const char *tsr_mosaic_category_name(tsr_mosaic_category category);

/* By what allocations are grouped. */
typedef enum tsr_profile_by {
  TSR_PROFILE_BY_CATEGORY,        /* tsr_category_name of its category */
  TSR_PROFILE_BY_ANNOTATION,      /* the innermost record_function range; "" outside all of them */
  TSR_PROFILE_BY_COMPILE_CONTEXT, /* the torch.compile region; "N/A" outside all of them */
  TSR_PROFILE_BY_RULES,           /* the first rule that matches the stack; "unknown": none */
  TSR_PROFILE_BY_OP,     /* the operation or kernel: "aten::bmm", "aten::mul in MulBackward0" */
  TSR_PROFILE_BY_MODULE, /* the innermost nn.Module and where it is called */
  TSR_PROFILE_BY_LINE,   /* the program's innermost line */
  TSR_PROFILE_BY_STACK,
  TSR_PROFILE_BY_POOL,           /* "default pool"; a private pool by its id, and by stream */
  TSR_PROFILE_BY_METADATA,       /* what the program said of it, or the value of a key of that */
  TSR_PROFILE_BY_MOSAIC_CATEGORY /* tsr_mosaic_category_name of the stack: Mosaic's rules */
} tsr_profile_by;

/* The words for groupings: what users type after --by, what JSON contains, and what a page calls them. They
 * are spelled here alone; lists of choices are made of them. */
#define TSR_BY_CATEGORY        "category"
#define TSR_BY_ANNOTATION      "annotation"
#define TSR_BY_COMPILE_CONTEXT "compile-context"
#define TSR_BY_RULES           "rules"
#define TSR_BY_OP              "op"
#define TSR_BY_MODULE          "module"
#define TSR_BY_LINE            "line"
#define TSR_BY_STACK           "stack"
#define TSR_BY_ALLOCATION      "allocation" /* one by one: diff only */
#define TSR_BY_POOL            "pool"
#define TSR_BY_METADATA        "metadata"
#define TSR_BY_METADATA_KEY    "metadata:KEY" /* a choice for which users type metadata:layer */

/* What users type for these words: tsr_parameter.synonyms. */
#define TSR_GROUPING_SYNONYMS                                                         \
  (const tsr_synonym[]) {                                                             \
    {"operation", TSR_BY_OP}, {"operations", TSR_BY_OP}, {"operator", TSR_BY_OP},     \
        {"ops", TSR_BY_OP}, {"kernel", TSR_BY_OP}, {"categories", TSR_BY_CATEGORY},   \
        {"modules", TSR_BY_MODULE}, {"lines", TSR_BY_LINE}, {"stacks", TSR_BY_STACK}, \
        {"pools", TSR_BY_POOL}, {"annotations", TSR_BY_ANNOTATION}, {                 \
      NULL, NULL                                                                      \
    }                                                                                 \
  }

/* The word for it, and "mosaic-category"; static text, never NULL. */
const char *tsr_profile_by_name(tsr_profile_by by);

#ifdef __cplusplus
}
#endif
#endif
