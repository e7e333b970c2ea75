/* ops.c - the op table. */
#include "engine/op.h"

const tsr__op_row *tsr__op_row_of(tsr__op_kind kind) {
#define BOTH(name) tsr__##name##_forward, tsr__##name##_backward
#define NONE       TSR__AUTOCAST_NONE
#define LOW        TSR__AUTOCAST_LOW
#define FULL       TSR__AUTOCAST_FULL
  static const tsr__op_row rows[TSR__OP_KIND_COUNT] = {
      [TSR__OP_EMBEDDING] = {"embedding", "EmbeddingBackward0", NONE, BOTH(embedding), NULL},
      [TSR__OP_ADDMM] = {"linear", "AddmmBackward0", LOW, BOTH(addmm), tsr__linear_cost},
      [TSR__OP_MM] = {"linear without bias", "MmBackward0", LOW, BOTH(mm), tsr__linear_cost},
      [TSR__OP_LAYER_NORM] = {"layer norm", "NativeLayerNormBackward0", FULL, BOTH(layer_norm),
                              tsr__norm_cost},
      [TSR__OP_RMS_NORM] = {"RMS norm", "MulBackward0", NONE, BOTH(rms_norm), tsr__norm_cost},
      [TSR__OP_SPLIT] = {"split", "SplitBackward0", NONE, BOTH(split), NULL},
      [TSR__OP_CACHE] = {"key-value cache", "CatBackward0", NONE, BOTH(cache), NULL},
      [TSR__OP_REPEAT] = {"repeated heads", "ExpandBackward0", NONE, BOTH(repeat), NULL},
      [TSR__OP_ROTARY_TABLE] = {"rotary table", NULL, NONE, BOTH(rotary_table), NULL},
      [TSR__OP_ROTARY] = {"rotary embedding", "AddBackward0", NONE, BOTH(rotary), NULL},
      [TSR__OP_ATTENTION] = {"attention", "ScaledDotProductAttentionBackward0", LOW,
                             BOTH(attention), tsr__attention_cost},
      [TSR__OP_EAGER_ATTENTION] = {"eager attention", "CloneBackward0", LOW, BOTH(eager_attention),
                                   tsr__attention_cost},
      [TSR__OP_CAUSAL_MASK] = {"causal mask", NULL, NONE, BOTH(causal_mask), NULL},
      [TSR__OP_DROPOUT] = {"dropout", "NativeDropoutBackward0", NONE, BOTH(dropout), NULL},
      [TSR__OP_ADD] = {"add", "AddBackward0", NONE, BOTH(add), NULL},
      [TSR__OP_MUL] = {"product", "MulBackward0", NONE, BOTH(mul), NULL},
      [TSR__OP_GELU] = {"eager GELU", "MulBackward0", NONE, BOTH(gelu), tsr__gelu_cost},
      [TSR__OP_GELU_FUSED] = {"GELU", "GeluBackward0", NONE, BOTH(gelu_fused), NULL},
      [TSR__OP_SILU] = {"SiLU", "SiluBackward0", NONE, BOTH(silu), NULL},
      [TSR__OP_CAST] = {"cast", "ToCopyBackward0", NONE, BOTH(cast), NULL},
      [TSR__OP_SHIFT_LABELS] = {"shifted labels", NULL, NONE, BOTH(shift_labels), NULL},
      [TSR__OP_LOG_SOFTMAX] = {"log-softmax", "LogSoftmaxBackward0", FULL, BOTH(log_softmax), NULL},
      [TSR__OP_NLL_LOSS] = {"nll loss", "NllLossBackward0", FULL, BOTH(nll_loss), NULL},
      [TSR__OP_CHUNKED_LOSS] = {"chunked loss", "ChunkedLossBackward", LOW, BOTH(chunked_loss),
                                tsr__chunked_loss_cost},
      [TSR__OP_SCALE] = {"scale", "MulBackward0", NONE, BOTH(scale), NULL},
      [TSR__OP_MEAN] = {"mean", "MeanBackward0", NONE, BOTH(mean), NULL},
      [TSR__OP_ARANGE] = {"arange", NULL, NONE, BOTH(arange), NULL},
      [TSR__OP_CHECKPOINT] = {"checkpoint", "CheckpointFunctionBackward", NONE, BOTH(checkpoint),
                              tsr__checkpoint_cost},
      [TSR__OP_ADAMW_LOOP] = {"AdamW", NULL, NONE, tsr__adamw_loop_forward, NULL, NULL},
      [TSR__OP_ADAMW_FOREACH] = {"foreach AdamW", NULL, NONE, tsr__adamw_foreach_forward, NULL,
                                 NULL},
      [TSR__OP_ADAMW_FUSED] = {"fused AdamW", NULL, NONE, tsr__adamw_fused_forward, NULL, NULL},
      [TSR__OP_SGD] = {"SGD", NULL, NONE, tsr__sgd_forward, NULL, NULL},
      [TSR__OP_UNSCALE] = {"unscale", NULL, NONE, tsr__unscale_forward, NULL, NULL},
  };
#undef BOTH
#undef NONE
#undef LOW
#undef FULL
  return &rows[kind];
}
