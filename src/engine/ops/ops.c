/* ops.c - the rule books: the row of each op, which is next to its steps in op_*.c. */
#include <assert.h>

#include "graph/op.h"

const tsr__rule_book tsr__book_torch = {
    .name = "torch",
    .is_torch = true,
    .views_keep_bases = true,
    .rows =
        {
            [TSR__OP_EMBEDDING] = &tsr__op_embedding,
            [TSR__OP_CONV1D] = &tsr__op_conv1d,
            [TSR__OP_LINEAR] = &tsr__op_linear,
            [TSR__OP_LINEAR_PLAIN] = &tsr__op_linear_plain,
            [TSR__OP_LAYER_NORM] = &tsr__op_layer_norm,
            [TSR__OP_RMS_NORM] = &tsr__op_rms_norm,
            [TSR__OP_SPLIT] = &tsr__op_split,
            [TSR__OP_CACHE] = &tsr__op_cache,
            [TSR__OP_REPEAT] = &tsr__op_repeat,
            [TSR__OP_ROTARY_TABLE] = &tsr__op_rotary_table,
            [TSR__OP_ROTARY] = &tsr__op_rotary,
            [TSR__OP_ATTENTION_EFFICIENT] = &tsr__op_attention_efficient,
            [TSR__OP_ATTENTION_FLASH] = &tsr__op_attention_flash,
            [TSR__OP_ATTENTION_MATH] = &tsr__op_attention_math,
            [TSR__OP_ATTENTION_CHUNKED] = &tsr__op_attention_chunked,
            [TSR__OP_ATTENTION_GPT2] = &tsr__op_attention_gpt2,
            [TSR__OP_ATTENTION_LLAMA] = &tsr__op_attention_llama,
            [TSR__OP_CAUSAL_MASK] = &tsr__op_causal_mask,
            [TSR__OP_MASK_CHECK] = &tsr__op_mask_check,
            [TSR__OP_DROPOUT] = &tsr__op_dropout,
            [TSR__OP_ADD] = &tsr__op_add,
            [TSR__OP_MUL] = &tsr__op_mul,
            [TSR__OP_GELU] = &tsr__op_gelu,
            [TSR__OP_GELU_FUSED] = &tsr__op_gelu_fused,
            [TSR__OP_SILU] = &tsr__op_silu,
            [TSR__OP_CAST] = &tsr__op_cast,
            [TSR__OP_SHIFT_LABELS] = &tsr__op_shift_labels,
            [TSR__OP_LOG_SOFTMAX] = &tsr__op_log_softmax,
            [TSR__OP_NLL_LOSS] = &tsr__op_nll_loss,
            [TSR__OP_CHUNKED_LOSS] = &tsr__op_chunked_loss,
            [TSR__OP_SCALE] = &tsr__op_scale,
            [TSR__OP_MEAN] = &tsr__op_mean,
            [TSR__OP_ARANGE] = &tsr__op_arange,
            [TSR__OP_CHECKPOINT] = &tsr__op_checkpoint,
            [TSR__OP_ADAMW_STATE] = &tsr__op_adamw_state,
            [TSR__OP_ADAMW_COUNT] = &tsr__op_adamw_count,
            [TSR__OP_ADAMW_LOOP] = &tsr__op_adamw_loop,
            [TSR__OP_ADAMW_FOREACH] = &tsr__op_adamw_foreach,
            [TSR__OP_ADAMW_FUSED] = &tsr__op_adamw_fused,
            [TSR__OP_SGD] = &tsr__op_sgd,
            [TSR__OP_UNSCALE] = &tsr__op_unscale,
            [TSR__OP_MASTER] = &tsr__op_master,
            [TSR__OP_MASTER_STORE] = &tsr__op_master_store,
        },
};

/* If an op allocates nothing that a fused form would not, both books have the same row. Ops that are variants in
 * PyTorch share a row here. */
const tsr__rule_book tsr__book_own = {
    .name = "own",
    .sums_flat = true,
    .rows =
        {
            [TSR__OP_EMBEDDING] = &tsr__own_embedding,
            [TSR__OP_CONV1D] = &tsr__own_conv1d,
            [TSR__OP_LINEAR] = &tsr__own_linear,
            [TSR__OP_LINEAR_PLAIN] = &tsr__own_linear_plain,
            [TSR__OP_LAYER_NORM] = &tsr__own_layer_norm,
            [TSR__OP_RMS_NORM] = &tsr__own_rms_norm,
            [TSR__OP_SPLIT] = &tsr__own_split,
            [TSR__OP_ROTARY_TABLE] = &tsr__op_rotary_table,
            [TSR__OP_ROTARY] = &tsr__own_rotary,
            [TSR__OP_ATTENTION_FLASH] = &tsr__own_attention,
            [TSR__OP_ATTENTION_CHUNKED] = &tsr__op_attention_chunked,
            [TSR__OP_DROPOUT] = &tsr__own_dropout,
            [TSR__OP_ADD] = &tsr__own_add,
            [TSR__OP_GELU] = &tsr__own_gelu,
            [TSR__OP_GELU_FUSED] = &tsr__own_gelu,
            [TSR__OP_SILU] = &tsr__own_silu,
            [TSR__OP_SILU_GATE] = &tsr__own_silu_gate,
            [TSR__OP_CAST] = &tsr__op_cast,
            [TSR__OP_SHIFT_LABELS] = &tsr__op_shift_labels,
            [TSR__OP_CROSS_ENTROPY] = &tsr__own_cross_entropy,
            [TSR__OP_CHUNKED_LOSS] = &tsr__own_chunked_loss,
            [TSR__OP_SCALE] = &tsr__op_scale,
            [TSR__OP_MEAN] = &tsr__op_mean,
            [TSR__OP_ARANGE] = &tsr__op_arange,
            [TSR__OP_CHECKPOINT] = &tsr__op_checkpoint,
            [TSR__OP_ADAMW_STATE] = &tsr__op_adamw_state,
            [TSR__OP_ADAMW_LOOP] = &tsr__own_adamw,
            [TSR__OP_ADAMW_FOREACH] = &tsr__own_adamw,
            [TSR__OP_ADAMW_FUSED] = &tsr__own_adamw,
            [TSR__OP_SGD] = &tsr__op_sgd,
            [TSR__OP_UNSCALE] = &tsr__op_unscale,
            [TSR__OP_MASTER] = &tsr__op_master,
            [TSR__OP_MASTER_STORE] = &tsr__op_master_store,
        },
};

const tsr__op_row *tsr__op_row_of(const tsr__rule_book *book, tsr__op_kind kind) {
  assert(book && (unsigned)kind < TSR__OP_KIND_COUNT && book->rows[kind]);
  return book->rows[kind];
}
