/* category_names.c - phases, categories, reasons and how far to believe them, in words. */
#include "tessera/unstable/attribution.h"
#include "tessera/unstable/names.h"

const char *tsr_name_source_name(tsr_name_source source) {
  static const char *const names[TSR_NAME_SOURCE_COUNT] = {"sidecar", "annotation", "metadata"};
  return (unsigned)source < TSR_NAME_SOURCE_COUNT ? names[source] : "unknown";
}

const char *tsr_phase_name(tsr_phase phase) {
  static const char *const names[TSR_PHASE_COUNT] = {
      "unknown", "setup", "data", "forward", "recompute", "backward", "optimizer", "zero_grad"};
  return (unsigned)phase < TSR_PHASE_COUNT ? names[phase] : "unknown";
}

const char *tsr_steps_basis_name(tsr_steps_basis basis) {
  static const char *const names[TSR_STEPS_BASIS_COUNT] = {"none", "phases", "sequence", "loop",
                                                           "annotations"};
  return (unsigned)basis < TSR_STEPS_BASIS_COUNT ? names[basis] : "none";
}

const char *tsr_steps_unit_name(tsr_steps_unit unit) {
  if (unit == TSR_STEPS_UNIT_ROUND) return "round";
  return unit == TSR_STEPS_UNIT_ITERATION ? "iteration" : "step";
}

const char *tsr_profile_by_name(tsr_profile_by by) {
  static const char *const words[] = {
      [TSR_PROFILE_BY_CATEGORY] = TSR_BY_CATEGORY,
      [TSR_PROFILE_BY_ANNOTATION] = TSR_BY_ANNOTATION,
      [TSR_PROFILE_BY_COMPILE_CONTEXT] = TSR_BY_COMPILE_CONTEXT,
      [TSR_PROFILE_BY_RULES] = TSR_BY_RULES,
      [TSR_PROFILE_BY_OP] = TSR_BY_OP,
      [TSR_PROFILE_BY_MODULE] = TSR_BY_MODULE,
      [TSR_PROFILE_BY_LINE] = TSR_BY_LINE,
      [TSR_PROFILE_BY_STACK] = TSR_BY_STACK,
      [TSR_PROFILE_BY_POOL] = TSR_BY_POOL,
      [TSR_PROFILE_BY_METADATA] = TSR_BY_METADATA,
      [TSR_PROFILE_BY_MOSAIC_CATEGORY] = "mosaic-category",
  };
  return (size_t)by < sizeof words / sizeof *words ? words[by] : "unknown";
}

const char *tsr_confidence_name(tsr_confidence confidence) {
  static const char *const names[] = {"none", "guess", "likely", "sure"};
  return (unsigned)confidence < 4 ? names[confidence] : "none";
}

static const struct {
  const char *text;
  tsr_confidence confidence;
} evidences[TSR_EVIDENCE_COUNT] = {
    [TSR_EVIDENCE_NONE] = {"no rule explains it", TSR_CONFIDENCE_NONE},
    [TSR_EVIDENCE_STATE_FRAME] = {"allocated by the optimizer for its state", TSR_CONFIDENCE_SURE},
    [TSR_EVIDENCE_OPTIMIZER_BUILT] = {"allocated when the optimizer was built",
                                      TSR_CONFIDENCE_SURE},
    [TSR_EVIDENCE_OUTLIVES_OPTIMIZER] = {"allocated in the optimizer's step and kept after it",
                                         TSR_CONFIDENCE_LIKELY},
    [TSR_EVIDENCE_WITHIN_PHASE] = {"allocated and freed within one phase", TSR_CONFIDENCE_SURE},
    [TSR_EVIDENCE_KEPT_FOR_BACKWARD] = {"allocated in forward and live when backward began",
                                        TSR_CONFIDENCE_SURE},
    [TSR_EVIDENCE_RELEASED_BY_AUTOGRAD] = {"allocated in forward, saved and freed by autograd",
                                           TSR_CONFIDENCE_SURE},
    [TSR_EVIDENCE_OUTLIVES_FORWARD] =
        {"allocated in forward and kept after it, with no backward recorded",
         TSR_CONFIDENCE_LIKELY},
    [TSR_EVIDENCE_OUTLIVES_RECOMPUTE] = {"recomputed within backward and kept for it",
                                         TSR_CONFIDENCE_SURE},
    [TSR_EVIDENCE_ACCUMULATE_FRAME] = {"allocated by AccumulateGrad and kept after backward",
                                       TSR_CONFIDENCE_SURE},
    [TSR_EVIDENCE_OUTLIVES_BACKWARD] = {"allocated in backward and kept after it",
                                        TSR_CONFIDENCE_LIKELY},
    [TSR_EVIDENCE_UNFINISHED_BACKWARD] = {"allocated in a backward pass whose end was not recorded",
                                          TSR_CONFIDENCE_GUESS},
    [TSR_EVIDENCE_MODULE_BUILT] = {"allocated when the model was built, moved or loaded",
                                   TSR_CONFIDENCE_SURE},
    [TSR_EVIDENCE_CONSTRUCTOR] = {"allocated in a constructor and kept", TSR_CONFIDENCE_LIKELY},
    [TSR_EVIDENCE_DATA_FRAME] = {"allocated by data loading and live when forward began",
                                 TSR_CONFIDENCE_SURE},
    [TSR_EVIDENCE_BEFORE_FORWARD] = {"allocated just before forward and live when it began",
                                     TSR_CONFIDENCE_GUESS},
    [TSR_EVIDENCE_WORKSPACE_FRAME] = {"allocated as a library's workspace", TSR_CONFIDENCE_SURE},
    [TSR_EVIDENCE_WORKSPACE_SIZE] = {"has the size of cuBLAS's workspace and is never freed",
                                     TSR_CONFIDENCE_LIKELY},
    [TSR_EVIDENCE_COLLECTIVE_FRAME] = {"allocated by a collective", TSR_CONFIDENCE_SURE},
    [TSR_EVIDENCE_OLD_PARAMETER] = {"older than the recording, and as large as a gradient",
                                    TSR_CONFIDENCE_LIKELY},
    [TSR_EVIDENCE_OLD_STATE] =
        {"older than the recording, and as large as a gradient whose parameter is already known",
         TSR_CONFIDENCE_LIKELY},
    [TSR_EVIDENCE_OLD_GRADIENT] = {"older than the recording and freed like gradients",
                                   TSR_CONFIDENCE_LIKELY},
    [TSR_EVIDENCE_FREED_BY_ZERO_GRAD] = {"allocated in forward and freed by zero_grad",
                                         TSR_CONFIDENCE_LIKELY},
    [TSR_EVIDENCE_FORWARD_GRADIENT] = {"allocated in forward, kept after backward, and as large as "
                                       "a parameter without a gradient from backward",
                                       TSR_CONFIDENCE_GUESS},
    [TSR_EVIDENCE_OLD_MODEL] = {"older than the recording, never freed, and there is no training",
                                TSR_CONFIDENCE_GUESS},
    [TSR_EVIDENCE_REPLACED_PARAMETER] =
        {"allocated in the optimizer's step in place of a parameter that it freed",
         TSR_CONFIDENCE_LIKELY},
    [TSR_EVIDENCE_UNSAVED_OUTPUT] =
        {"recomputed within backward and freed by checkpointing, not by autograd",
         TSR_CONFIDENCE_LIKELY},
    [TSR_EVIDENCE_OLD_BUFFER] =
        {"older than the recording, never freed, and there are as many of its size as layers",
         TSR_CONFIDENCE_GUESS},
    [TSR_EVIDENCE_OLD_FROZEN] = {"older than the recording, never freed, and without a gradient of "
                                 "its size, like most of the memory",
                                 TSR_CONFIDENCE_GUESS},
    [TSR_EVIDENCE_MOVED_GRADIENT] =
        {"allocated by Module._apply right after a parameter of its size", TSR_CONFIDENCE_LIKELY},
    [TSR_EVIDENCE_AUTOCAST_CACHE] = {"allocated by autocast and freed with its cache of weights",
                                     TSR_CONFIDENCE_SURE},
    [TSR_EVIDENCE_WEIGHT_CAST] = {"allocated by autocast and half as large as a live parameter",
                                  TSR_CONFIDENCE_LIKELY},
    [TSR_EVIDENCE_CAST_SIZE] = {"half as large as a live parameter, in a program under autocast",
                                TSR_CONFIDENCE_GUESS},
    [TSR_EVIDENCE_KEPT_OR_CAST] = {"kept for backward, but a weight's copy would be as large",
                                   TSR_CONFIDENCE_GUESS},
    [TSR_EVIDENCE_LAST_RECOMPUTED] = {"the last that is recomputed within backward and kept",
                                      TSR_CONFIDENCE_GUESS},
    [TSR_EVIDENCE_HELD_OUTPUT] = {"allocated in forward and not freed by backward",
                                  TSR_CONFIDENCE_LIKELY},
    [TSR_EVIDENCE_KV_CACHE_FRAME] = {"allocated by a function for caches of keys and values",
                                     TSR_CONFIDENCE_SURE},
    [TSR_EVIDENCE_KV_CACHE_UPDATE] =
        {"added to a cache of keys and values, and no backward pass needs it",
         TSR_CONFIDENCE_LIKELY},
    [TSR_EVIDENCE_REPLICA] = {"allocated by DataParallel as a copy of a parameter",
                              TSR_CONFIDENCE_SURE},
    [TSR_EVIDENCE_SCATTERED] = {"allocated by DataParallel for one device's part of the batch",
                                TSR_CONFIDENCE_SURE},
    [TSR_EVIDENCE_FLATTENED] = {"allocated and freed by DataParallel as it copies to other devices",
                                TSR_CONFIDENCE_SURE},
    [TSR_EVIDENCE_NAMED] = {"named by the program", TSR_CONFIDENCE_SURE},
    [TSR_EVIDENCE_NAMED_BY_FILE] = {"named by the file", TSR_CONFIDENCE_SURE},
    [TSR_EVIDENCE_OLD_CAST] =
        {"older than the recording, freed like saved tensors, and as large as "
         "a weight's copy in another type",
         TSR_CONFIDENCE_LIKELY},
    [TSR_EVIDENCE_UNFINISHED_OPTIMIZER] =
        {"allocated in the optimizer's step that ran out of memory, and not for its state",
         TSR_CONFIDENCE_LIKELY},
    [TSR_EVIDENCE_GRADIENT_BUFFER] = {"allocated by Megatron for the gradients of many parameters",
                                      TSR_CONFIDENCE_LIKELY},
    [TSR_EVIDENCE_KEPT_OUTSIDE] =
        {"allocated outside of modules, next to a forward pass, and live when backward began",
         TSR_CONFIDENCE_LIKELY},
    [TSR_EVIDENCE_UNFINISHED_FORWARD] =
        {"allocated just before memory ran out in the forward pass, and live",
         TSR_CONFIDENCE_GUESS},
    [TSR_EVIDENCE_OLD_UNFINISHED] =
        {"older than the recording, never freed, and the first backward pass was not finished",
         TSR_CONFIDENCE_GUESS},
    [TSR_EVIDENCE_OLD_SPARE] =
        {"older than the recording, never freed, as large as a parameter, and too old for the "
         "optimizer's state",
         TSR_CONFIDENCE_GUESS},
    [TSR_EVIDENCE_OLD_ACTIVATION] = {"older than the recording and freed like saved tensors",
                                     TSR_CONFIDENCE_LIKELY},
};

const char *tsr_evidence_text(tsr_evidence evidence) {
  return evidences[(unsigned)evidence < TSR_EVIDENCE_COUNT ? evidence : 0].text;
}

tsr_confidence tsr_evidence_confidence(tsr_evidence evidence) {
  return evidences[(unsigned)evidence < TSR_EVIDENCE_COUNT ? evidence : 0].confidence;
}
