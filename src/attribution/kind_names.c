/* kind_names.c - phases, kinds, reasons and how far to believe them, in words. */
#include "tessera/attribution.h"

const char *tsr_phase_name(tsr_phase phase) {
  static const char *const names[TSR_PHASE_COUNT] = {
      "unknown", "setup", "data", "forward", "recompute", "backward", "optimizer", "zero_grad"};
  return (unsigned)phase < TSR_PHASE_COUNT ? names[phase] : "unknown";
}

const char *tsr_kind_name(tsr_kind kind) {
  static const char *const names[TSR_KIND_COUNT] = {
      "unexplained", "parameter", "gradient", "optimizer_state", "activation",
      "recomputed",  "temporary", "input",    "communication",   "workspace"};
  return (unsigned)kind < TSR_KIND_COUNT ? names[kind] : "unexplained";
}

const char *tsr_confidence_name(tsr_confidence confidence) {
  static const char *const names[] = {"none", "guess", "likely", "sure"};
  return (unsigned)confidence < 4 ? names[confidence] : "none";
}

static const struct {
  const char *text;
  tsr_confidence confidence;
} evidences[TSR_EVIDENCE_COUNT] = {
    [TSR_EVIDENCE_NONE] = {"nothing explains it", TSR_CONFIDENCE_NONE},
    [TSR_EVIDENCE_STATE_FRAME] = {"made by the optimizer for its state", TSR_CONFIDENCE_SURE},
    [TSR_EVIDENCE_OPTIMIZER_BUILT] = {"made when the optimizer was built", TSR_CONFIDENCE_SURE},
    [TSR_EVIDENCE_OUTLIVES_OPTIMIZER] = {"made in the optimizer's step and kept after it",
                                         TSR_CONFIDENCE_LIKELY},
    [TSR_EVIDENCE_WITHIN_PHASE] = {"made and freed within one phase", TSR_CONFIDENCE_SURE},
    [TSR_EVIDENCE_KEPT_FOR_BACKWARD] = {"made in forward and alive when backward began",
                                        TSR_CONFIDENCE_SURE},
    [TSR_EVIDENCE_RELEASED_BY_AUTOGRAD] =
        {"made in forward and freed by autograd, which had saved it", TSR_CONFIDENCE_SURE},
    [TSR_EVIDENCE_OUTLIVES_FORWARD] =
        {"made in forward and kept after it, with no backward recorded", TSR_CONFIDENCE_LIKELY},
    [TSR_EVIDENCE_OUTLIVES_RECOMPUTE] = {"made again within backward and kept for it",
                                         TSR_CONFIDENCE_SURE},
    [TSR_EVIDENCE_ACCUMULATE_FRAME] = {"made by AccumulateGrad and kept after backward",
                                       TSR_CONFIDENCE_SURE},
    [TSR_EVIDENCE_OUTLIVES_BACKWARD] = {"made in backward and kept after it",
                                        TSR_CONFIDENCE_LIKELY},
    [TSR_EVIDENCE_UNFINISHED_BACKWARD] =
        {"made in a backward pass that the recording does not see end", TSR_CONFIDENCE_GUESS},
    [TSR_EVIDENCE_MODULE_BUILT] = {"made when the model was built, moved or loaded",
                                   TSR_CONFIDENCE_SURE},
    [TSR_EVIDENCE_CONSTRUCTOR] = {"made in a constructor and kept", TSR_CONFIDENCE_LIKELY},
    [TSR_EVIDENCE_DATA_FRAME] = {"made by data loading and alive when forward began",
                                 TSR_CONFIDENCE_SURE},
    [TSR_EVIDENCE_BEFORE_FORWARD] = {"made just before forward and alive when it began",
                                     TSR_CONFIDENCE_GUESS},
    [TSR_EVIDENCE_WORKSPACE_FRAME] = {"made as a library's workspace", TSR_CONFIDENCE_SURE},
    [TSR_EVIDENCE_WORKSPACE_SIZE] = {"of the size of cuBLAS's workspace and never freed",
                                     TSR_CONFIDENCE_LIKELY},
    [TSR_EVIDENCE_COLLECTIVE_FRAME] = {"made by a collective", TSR_CONFIDENCE_SURE},
    [TSR_EVIDENCE_OLD_PARAMETER] = {"older than the recording, and as large as a gradient",
                                    TSR_CONFIDENCE_LIKELY},
    [TSR_EVIDENCE_OLD_STATE] =
        {"older than the recording, and as large as a gradient whose parameter is found already",
         TSR_CONFIDENCE_LIKELY},
    [TSR_EVIDENCE_OLD_GRADIENT] = {"older than the recording and freed as gradients are",
                                   TSR_CONFIDENCE_LIKELY},
    [TSR_EVIDENCE_FREED_BY_ZERO_GRAD] = {"made in forward where zero_grad frees what is made",
                                         TSR_CONFIDENCE_LIKELY},
    [TSR_EVIDENCE_FORWARD_GRADIENT] = {"made in forward, kept after backward, and as large as a "
                                       "parameter that backward leaves no gradient for",
                                       TSR_CONFIDENCE_LIKELY},
    [TSR_EVIDENCE_OLD_MODEL] = {"older than the recording, never freed, and nothing trains",
                                TSR_CONFIDENCE_GUESS},
    [TSR_EVIDENCE_REPLACED_PARAMETER] =
        {"made in the optimizer's step in place of a parameter that it "
         "freed",
         TSR_CONFIDENCE_LIKELY},
    [TSR_EVIDENCE_UNSAVED_OUTPUT] =
        {"made again within backward and let go by checkpointing, not by autograd",
         TSR_CONFIDENCE_LIKELY},
    [TSR_EVIDENCE_OLD_BUFFER] =
        {"older than the recording, never freed, and as many of its size as the model has layers",
         TSR_CONFIDENCE_GUESS},
    [TSR_EVIDENCE_OLD_FROZEN] = {"older than the recording, never freed, and of the size of no "
                                 "gradient, as most of the memory",
                                 TSR_CONFIDENCE_GUESS},
    [TSR_EVIDENCE_NAMED] = {"named by the program", TSR_CONFIDENCE_SURE},
    [TSR_EVIDENCE_OLD_ACTIVATION] = {"older than the recording and freed as saved tensors are",
                                     TSR_CONFIDENCE_LIKELY},
};

const char *tsr_evidence_text(tsr_evidence evidence) {
  return evidences[(unsigned)evidence < TSR_EVIDENCE_COUNT ? evidence : 0].text;
}

tsr_confidence tsr_evidence_confidence(tsr_evidence evidence) {
  return evidences[(unsigned)evidence < TSR_EVIDENCE_COUNT ? evidence : 0].confidence;
}
