/* technique_rows.h - the rows of the table of techniques (techniques.h). A new technique is a row here.
 *
 * The words of --allow are in the order of their first rows, and their flags are TSR_ALLOW_... in that order. */
#ifndef TSR_PLAN_TECHNIQUE_ROWS_H
#define TSR_PLAN_TECHNIQUE_ROWS_H

#include "plan/techniques.h"

/* clang-format off */
#define TSR__TECHNIQUE_ROWS \
  {.allow = "kernels", .name = "GELU as one kernel", .option = "gelu", .value = "fused", \
   .use = TSR__USE_IF_FREE, .listed = 1, .is_free = true}, \
  {.allow = "kernels", .name = "no key-value cache", .option = "no_kv_cache", .value = "true", \
   .use = TSR__USE_IF_FREE, .listed = 2, .is_free = true}, \
  {.allow = "kernels", .name = "fused attention kernel", .option = "attention", .value = "sdpa", \
   .use = TSR__USE_IF_FREE, .listed = 3, .is_free = true}, \
  {.allow = "kernels", .name = "fused optimizer", .option = "optimizer", .value = "adamw-fused", \
   .use = TSR__USE_IF_FREE, .listed = 5, .is_free = true}, \
  {.allow = "loss-chunk", .name = "loss of %s tokens at a time", .option = "loss", .value = "chunked:2048", \
   .use = TSR__USE_IF_FREE, .most_tokens = 512, .targets = TSR__TARGET_HF}, \
  {.allow = "loss-chunk", .name = "loss of %s tokens at a time", .option = "loss", .value = "chunked:512", \
   .use = TSR__USE_IF_FREE, .listed = 4, .is_free = true, .targets = TSR__TARGET_HF}, \
  {.allow = "kernels", .name = "in place: %s", .option = "in_place", .value = "add,dropout", \
   .use = TSR__USE_IF_FREE}, \
  {.allow = "kernels", .name = "in place: %s", .option = "in_place", .value = "add", \
   .use = TSR__USE_IF_FREE, .listed = 10, .is_free = true}, \
  {.allow = "kernels", .name = "in place: %s", .option = "in_place", .value = "dropout", \
   .use = TSR__USE_IF_FREE}, \
  {.allow = "accumulate", .name = "%s at a time", .option = "micro_batch", .value = "1", \
   .use = TSR__USE_DIVIDED, .dimension = 1, .listed = 12}, \
  {.allow = "recompute", .name = "attention computed again", .option = "checkpoint", .value = "selective", \
   .use = TSR__USE_OF_BLOCKS, .listed = 13}, \
  {.allow = "recompute", .name = "all blocks computed again", .option = "checkpoint", .value = "full", \
   .use = TSR__USE_OF_BLOCKS, .listed = 15}, \
  {.allow = "offload", .name = "on the host: %s", .option = "offload", .value = "activations", \
   .use = TSR__USE_COMBINED, .dimension = 2, .targets = TSR__TARGETS_OF_OFFLOAD}, \
  {.allow = "offload", .name = "on the host: %s", .option = "offload", .value = "optimizer", \
   .use = TSR__USE_COMBINED, .dimension = 2, .listed = 14, .targets = TSR__TARGETS_OF_OFFLOAD}, \
  {.allow = "offload", .name = "on the host: %s", .option = "offload", .value = "optimizer,activations", \
   .use = TSR__USE_COMBINED, .dimension = 2, .targets = TSR__TARGETS_OF_OFFLOAD}, \
  {.allow = "offload", .name = "on the host: %s", .option = "offload", .value = "optimizer,gradients", \
   .use = TSR__USE_COMBINED, .dimension = 2, .listed = 16, .targets = TSR__TARGETS_OF_OFFLOAD}, \
  {.allow = "offload", .name = "on the host: %s", .option = "offload", .value = "optimizer,gradients,activations", \
   .use = TSR__USE_COMBINED, .dimension = 2, .targets = TSR__TARGETS_OF_OFFLOAD}, \
  {.allow = "offload", .name = "on the host: %s", .option = "offload", .value = "optimizer,gradients,parameters", \
   .use = TSR__USE_COMBINED, .dimension = 2, .listed = 17, .targets = TSR__TARGETS_OF_OFFLOAD}, \
  {.allow = "offload", .name = "on the host: %s", .option = "offload", \
   .value = "optimizer,gradients,parameters,activations", \
   .use = TSR__USE_COMBINED, .dimension = 2, .targets = TSR__TARGETS_OF_OFFLOAD}, \
  {.allow = "loss-chunk", .name = "loss of %s tokens at a time", .option = "loss", .value = "chunked:512", \
   .use = TSR__USE_COMBINED, .dimension = 3, .targets = TSR__TARGET_HF}, \
  {.allow = "loss-chunk", .name = "loss of %s tokens at a time", .option = "loss", .value = "chunked:128", \
   .use = TSR__USE_COMBINED, .dimension = 3, .most_tokens = 128, .targets = TSR__TARGET_HF}, \
  {.allow = "in-backward", .name = "optimizer in backward", .option = "optimizer_in_backward", .value = "true", \
   .use = TSR__USE_COMBINED, .dimension = 4, .targets = TSR__TARGET_TORCHTITAN}, \
  {.allow = "precision", .name = "dtype %s", .option = "dtype", .value = "autocast-bf16", \
   .use = TSR__USE_COMBINED, .dimension = 5, .listed = 8, .is_free = true, .changes_results = true}, \
  {.allow = "precision", .name = "dtype %s", .option = "dtype", .value = "bf16", \
   .use = TSR__USE_COMBINED, .dimension = 5, .listed = 9, .is_free = true, .changes_results = true}, \
  {.allow = "precision", .name = "dtype %s", .option = "dtype", .value = "autocast-fp16", \
   .use = TSR__USE_COMBINED, .dimension = 5, .is_of_old_cards = true, .changes_results = true}, \
  {.allow = "precision", .name = "dtype %s", .option = "dtype", .value = "fp16", \
   .option2 = "master_weights", .value2 = "true", \
   .use = TSR__USE_COMBINED, .dimension = 5, .is_of_old_cards = true, .changes_results = true}, \
  {.allow = "precision", .name = "weights in fp32, too", .option = "master_weights", .value = "true", \
   .use = TSR__USE_NAMED, .changes_results = true}, \
  {.allow = "narrow", .name = "saved tensors in 8 or 16 bits", \
   .use = TSR__USE_COMBINED, .dimension = 6, .changes_results = true}, \
  {.allow = "zero", .name = "ZeRO stage %s", .option = "zero", .value = "1", \
   .use = TSR__USE_COMBINED, .dimension = 7, .listed = 6, .is_free = true, .needs_ranks = true}, \
  {.allow = "zero", .name = "ZeRO stage %s", .option = "zero", .value = "2", \
   .use = TSR__USE_COMBINED, .dimension = 7, .listed = 7, .is_free = true, .needs_ranks = true}, \
  {.allow = "zero", .name = "ZeRO stage %s", .option = "zero", .value = "3", \
   .use = TSR__USE_COMBINED, .dimension = 7, .listed = 11, .needs_ranks = true}
/* clang-format on */

#define TSR__TARGETS_OF_OFFLOAD \
  (TSR__TARGET_DEEPSPEED | TSR__TARGET_FSDP2 | TSR__TARGET_TORCHTITAN | TSR__TARGET_MEGATRON)

#endif
