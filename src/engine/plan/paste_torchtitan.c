/* paste_torchtitan.c - a plan as torchtitan's configuration. */
#include "plan/paste.h"

void tsr__near_torchtitan(tsr__paste *p) {
  switch (p->o->optimizer) {
  case TSR_OPTIMIZER_ADAMW_FOREACH:
  case TSR_OPTIMIZER_ADAMW: break;
  case TSR_OPTIMIZER_ADAMW_LOOP:
  case TSR_OPTIMIZER_ADAMW_FUSED: break;
  default: tsr__near_optimizer(p, TSR_OPTIMIZER_ADAMW_FUSED); break;
  }
  tsr__near_form(p, true);
  p->o->no_kv_cache = true; /* its models have none */
}

static const char *implementation_of(const tsr__paste *p) {
  switch (p->o->optimizer) {
  case TSR_OPTIMIZER_ADAMW_FUSED: return "fused";
  case TSR_OPTIMIZER_ADAMW_LOOP: return "for-loop";
  default: return "foreach";
  }
}

void tsr__paste_torchtitan(tsr__paste *p) {
  unsigned long long ranks = tsr__paste_ranks(p);
  char clip[TSR__OPTION_BYTES];
  tsr__buffer *out = &p->text;
  tsr__buffer_printf(
      out, "[training]\nlocal_batch_size = %llu\nglobal_batch_size = %llu\nseq_len = %llu\n",
      tsr__paste_micro_batch(p), tsr__paste_global_batch(p), tsr__paste_sequence(p));
  tsr__buffer_printf(out, "dtype = \"%s\"\nmixed_precision_param = \"%s\"\n",
                     p->o->dtype == TSR_SIMULATE_BF16 ? "bfloat16" : "float32",
                     p->o->dtype ? "bfloat16" : "float32");
  tsr__buffer_printf(out, "max_norm = %s\n",
                     p->o->clip_norm > 0 ? tsr__paste_option(p, "clip", clip) : "inf");
  if (p->o->offload.optimizer) tsr__buffer_text(out, "enable_cpu_offload = true\n");
  tsr__buffer_printf(out, "\n[optimizer]\nname = \"AdamW\"\nimplementation = \"%s\"\n",
                     implementation_of(p));
  if (p->o->update_in_backward) tsr__buffer_text(out, "early_step_in_backward = true\n");
  tsr__buffer_printf(out, "\n[activation_checkpoint]\nmode = \"%s\"\n",
                     tsr__paste_recomputes(p) ? "full" : "none");
  if (!ranks) return;
  bool is_spread = p->o->zero > 0;
  tsr__buffer_printf(out,
                     "\n[parallelism]  # ZeRO stage %llu\ndata_parallel_replicate_degree = %llu\n"
                     "data_parallel_shard_degree = %llu\nfsdp_reshard_after_forward = \"%s\"\n",
                     (unsigned long long)p->o->zero, is_spread ? 1 : ranks, is_spread ? ranks : 1,
                     p->o->zero == 3 ? "always" : "never");
  tsr__paste_launch(p);
}
