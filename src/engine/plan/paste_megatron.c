/* paste_megatron.c - a plan as arguments of Megatron-LM's pretrain_gpt.py, one on each line. */
#include "plan/paste.h"

/* Only Adam runs on the host, as part of the optimizer that ranks share. */
static void near_away(tsr__paste *p, bool is_sgd) {
  if (!p->o->offload.optimizer) return;
  if (is_sgd) {
    tsr__paste_cannot(p, "SGD on the host");
    p->o->offload.optimizer = TSR_SPACE_DEVICE;
  } else if (tsr__paste_ranks(p) && !p->o->zero) {
    tsr__paste_cannot(p, "ZeRO stage 0 with the optimizer on the host; the nearest is stage 1");
    p->o->zero = 1;
  }
}

/* Megatron's models fuse GELU and have no cache in training, its Adam is one fused kernel, and its checkpoints are an
 * autograd function of its own, which is reentrant. */
void tsr__near_megatron(tsr__paste *p) {
  tsr_simulate_optimizer optimizer = p->o->optimizer;
  bool is_sgd = optimizer == TSR_OPTIMIZER_SGD || optimizer == TSR_OPTIMIZER_SGD_MOMENTUM;
  p->o->no_kv_cache = true;
  p->o->gelu_fused = tsr__paste_is_gpt2(p);
  if (optimizer == TSR_OPTIMIZER_ADAMW) p->o->optimizer = TSR_OPTIMIZER_ADAMW_FUSED;
  if (!is_sgd) tsr__near_optimizer(p, TSR_OPTIMIZER_ADAMW_FUSED);
  tsr__near_form(p, false);
  tsr__near_attention(p);
  near_away(p, is_sgd);
}

static void write_blocks(tsr__paste *p) {
  if (!tsr__paste_recomputes(p)) return;
  if (p->o->checkpoint == TSR_CHECKPOINT_SELECTIVE) {
    tsr__buffer_text(&p->text, "--recompute-granularity selective\n");
    return;
  }
  bool is_block = p->plan->blocks.count && p->o->checkpoint != TSR_CHECKPOINT_FULL, are_first;
  bool is_every = p->o->checkpoint == TSR_CHECKPOINT_EVERY;
  tsr__buffer_printf(
      &p->text,
      "--recompute-granularity full\n--recompute-method %s\n--recompute-num-layers %llu\n",
      is_block ? "block" : "uniform",
      (unsigned long long)(is_block   ? tsr__paste_blocks(p->plan, &are_first)
                           : is_every ? p->o->checkpoint_every
                                      : 1));
}

static void write_ranks(tsr__paste *p) {
  static const char *const strategies[] = {"", "", "optim_grads", "optim_grads_params"};
  uint64_t stage = p->o->zero;
  if (stage || p->o->offload.optimizer) tsr__buffer_text(&p->text, "--use-distributed-optimizer\n");
  if (!tsr__paste_ranks(p)) return;
  if (stage >= 2) {
    tsr__buffer_printf(&p->text,
                       "--use-megatron-fsdp\n--data-parallel-sharding-strategy %s\n"
                       "--no-gradient-accumulation-fusion\n--ckpt-format fsdp_dtensor\n",
                       strategies[stage]);
    tsr__paste_elsewhere(p, "the environment, in which CUDA_DEVICE_MAX_CONNECTIONS must not be 1");
  }
  if (!p->o->no_overlap) tsr__buffer_text(&p->text, "--overlap-grad-reduce\n");
  if (p->o->bucket_elements)
    tsr__buffer_printf(&p->text, "--ddp-bucket-size %llu\n",
                       (unsigned long long)p->o->bucket_elements);
}

/* Megatron's own defaults are a scale of 2^32, a window of 1000 steps, and a first overflow that is ignored. */
static void write_scale(tsr__paste *p) {
  char text[TSR__OPTION_BYTES];
  unsigned long long window = p->o->loss_scale_window ? p->o->loss_scale_window : 2000;
  tsr__buffer_printf(
      &p->text, "--initial-loss-scale %s\n--loss-scale-window %llu\n--hysteresis 1\n",
      p->o->loss_scale > 0 ? tsr__paste_option(p, "loss_scale", text) : "65536", window);
}

static void write_optimizer(tsr__paste *p) {
  char text[TSR__OPTION_BYTES];
  bool is_sgd = p->o->optimizer != TSR_OPTIMIZER_ADAMW_FUSED;
  if (p->o->dtype) tsr__buffer_printf(&p->text, "--%s\n", tsr__paste_is_bf16(p) ? "bf16" : "fp16");
  if (tsr__paste_is_fp16(p)) write_scale(p);
  if (p->o->fp8)
    tsr__buffer_text(&p->text, "--transformer-impl transformer_engine\n--fp8-format hybrid\n");
  tsr__buffer_printf(&p->text, "--optimizer %s\n", is_sgd ? "sgd" : "adam");
  if (is_sgd)
    tsr__buffer_printf(&p->text, "--sgd-momentum %s\n",
                       p->o->optimizer == TSR_OPTIMIZER_SGD ? "0.0" : "0.9");
  tsr__buffer_printf(&p->text, "--clip-grad %s\n",
                     p->o->clip_norm > 0 ? tsr__paste_option(p, "clip", text) : "0.0");
  if (p->o->offload.optimizer)
    tsr__buffer_text(&p->text, "--use-precision-aware-optimizer\n--optimizer-cpu-offload\n"
                               "--optimizer-offload-fraction 1.0\n");
}

void tsr__paste_megatron(tsr__paste *p) {
  tsr__buffer_printf(&p->text,
                     "--micro-batch-size %llu\n--global-batch-size %llu\n--seq-length %llu\n",
                     tsr__paste_micro_batch(p), tsr__paste_global_batch(p), tsr__paste_sequence(p));
  write_ranks(p);
  write_optimizer(p);
  write_blocks(p);
  if (p->o->attention == TSR_ATTENTION_EAGER)
    tsr__buffer_text(&p->text, "--attention-backend unfused\n");
  if (p->o->attention == TSR_ATTENTION_FLASH)
    tsr__buffer_text(&p->text, "--attention-backend flash\n");
  tsr__paste_launch(p);
}
