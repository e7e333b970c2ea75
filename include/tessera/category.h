/* tessera/category.h - what memory is for: one vocabulary for measured, simulated and executed
 * memory.
 */
#ifndef TESSERA_CATEGORY_H
#define TESSERA_CATEGORY_H

#ifdef __cplusplus
extern "C" {
#endif

/* What an allocation is for. Every interface uses these names with these meanings: `simulate`, which
 * knows, and whatever infers them from a recorded snapshot (how, and how surely: docs/categories.md). */
typedef enum tsr_category {
  TSR_CATEGORY_UNKNOWN,         /* nothing says what it is for */
  TSR_CATEGORY_PARAMETER,       /* parameters, and buffers: a snapshot does not distinguish them */
  TSR_CATEGORY_GRADIENT,        /* of parameters; gradients of activations are temporary */
  TSR_CATEGORY_OPTIMIZER_STATE, /* moments, master copies */
  TSR_CATEGORY_ACTIVATION,    /* made in forward and kept for backward, or as the model's output */
  TSR_CATEGORY_RECOMPUTED,    /* activations made again by checkpointing */
  TSR_CATEGORY_TEMPORARY,     /* made and freed within one phase */
  TSR_CATEGORY_INPUT,         /* batches */
  TSR_CATEGORY_COMMUNICATION, /* buffers of collectives */
  TSR_CATEGORY_WORKSPACE,     /* of cuBLAS and similar libraries */
  TSR_CATEGORY_BUFFER,        /* only what the program itself names "buffer"; others: PARAMETER */
  TSR_CATEGORY_KV_CACHE,      /* keys and values kept for later tokens */
  TSR_CATEGORY_CAST,          /* a weight's copy in another type */
  TSR_CATEGORY_COUNT
} tsr_category;

/* "parameter", "optimizer_state", ...; static text, never NULL. The only
 * spelling: text, JSON, traces and Python use these. */
const char *tsr_category_name(tsr_category category);

#ifdef __cplusplus
}
#endif
#endif
