/* finding_names.c - the words for the rules of findings. */
#include <assert.h>

#include "tessera/unstable/findings.h"

static const char *const names[] = {[TSR_FINDING_NO_GRAD] = "no_grad",
                                    [TSR_FINDING_CHECKPOINT] = "checkpoint",
                                    [TSR_FINDING_ATTENTION] = "attention",
                                    [TSR_FINDING_TWO_FORWARDS] = "two_forwards",
                                    [TSR_FINDING_OLD_GRADIENTS] = "old_gradients",
                                    [TSR_FINDING_ZERO_GRAD] = "zero_grad",
                                    [TSR_FINDING_HELD_OUTPUTS] = "held_outputs",
                                    [TSR_FINDING_LEAK] = "leak",
                                    [TSR_FINDING_STATES] = "states",
                                    [TSR_FINDING_CACHED] = "cached"};
static_assert(sizeof names / sizeof *names == TSR_FINDING_RULE_COUNT, "a name for each rule");

const char *tsr_finding_rule_name(tsr_finding_rule rule) {
  return (unsigned)rule < TSR_FINDING_RULE_COUNT ? names[rule] : "unknown";
}

const char *tsr_finding_option_name(tsr_finding_option option) {
  static const char *const words[] = {
      [TSR_FINDING_OPTION_FUSED] = "fused_optimizer",
      [TSR_FINDING_OPTION_EIGHT_BIT] = "8bit_optimizer",
      [TSR_FINDING_OPTION_FACTORED] = "factored_optimizer",
      [TSR_FINDING_OPTION_OFFLOAD] = "offload_optimizer",
      [TSR_FINDING_OPTION_ZERO1] = "zero1",
      [TSR_FINDING_OPTION_FSDP] = "fsdp",
      [TSR_FINDING_OPTION_LORA] = "lora",
      [TSR_FINDING_OPTION_FOUR_BIT] = "4bit_weights",
  };
  static_assert(sizeof words / sizeof *words == TSR_FINDING_OPTION_COUNT, "a name for each option");
  return (unsigned)option < TSR_FINDING_OPTION_COUNT ? words[option] : "unknown";
}

const char *tsr_finding_option_text(tsr_finding_option option) {
  static const char *const texts[] = {
      [TSR_FINDING_OPTION_FUSED] = "fused=True",
      [TSR_FINDING_OPTION_EIGHT_BIT] = "an 8-bit optimizer",
      [TSR_FINDING_OPTION_FACTORED] = "a factored one (Adafactor)",
      [TSR_FINDING_OPTION_OFFLOAD] = "offload of its state",
      [TSR_FINDING_OPTION_ZERO1] = "ZeRO-1 on 2 GPUs",
      [TSR_FINDING_OPTION_FSDP] = "FSDP on 2 GPUs",
      [TSR_FINDING_OPTION_LORA] = "LoRA",
      [TSR_FINDING_OPTION_FOUR_BIT] = "4-bit weights",
  };
  static_assert(sizeof texts / sizeof *texts == TSR_FINDING_OPTION_COUNT, "a text for each option");
  return (unsigned)option < TSR_FINDING_OPTION_COUNT ? texts[option] : "";
}

const char *tsr_finding_call_text(tsr_finding_call call) {
  static const char *const texts[] = {
      [TSR_FINDING_CALL_TORCH] = "torch.utils.checkpoint.checkpoint(block, ...)",
      [TSR_FINDING_CALL_TRANSFORMERS] = "model.gradient_checkpointing_enable()",
      [TSR_FINDING_CALL_TRAINER] = "gradient_checkpointing=True in TrainingArguments",
      [TSR_FINDING_CALL_DIFFUSERS] = "model.enable_gradient_checkpointing()",
      [TSR_FINDING_CALL_TIMM] = "model.set_grad_checkpointing()",
      [TSR_FINDING_CALL_LIGHTNING] =
          "FSDPStrategy(activation_checkpointing_policy={the block's class})",
      [TSR_FINDING_CALL_ACCELERATE] =
          "FullyShardedDataParallelPlugin(activation_checkpointing=True)",
      [TSR_FINDING_CALL_SDPA] = "torch.nn.functional.scaled_dot_product_attention",
      [TSR_FINDING_CALL_SDPA_TRANSFORMERS] = "attn_implementation=\"sdpa\"",
  };
  static_assert(sizeof texts / sizeof *texts == TSR_FINDING_CALL_COUNT, "a text for each call");
  return (unsigned)call < TSR_FINDING_CALL_COUNT ? texts[call] : "";
}
