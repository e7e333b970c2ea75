/* paste_fsdp2.c - a plan as Python that wraps a model of transformers in PyTorch's FSDP2. */
#include <assert.h>

#include "plan/paste.h"

/* bitsandbytes has no kernels for DTensors, and Muon needs matrices alone. */
void tsr__near_fsdp2(tsr__paste *p) {
  tsr__near_attention(p);
  if (p->o->dtype == TSR_SIMULATE_FP16 && (p->o->loss_scale > 0 || p->o->loss_scale_window)) {
    tsr__paste_cannot(p, "loss-scale with fp16 weights: GradScaler refuses fp16 gradients");
    p->o->loss_scale = 0;
    p->o->loss_scale_window = 0;
  }
  if (tsr__paste_recomputes(p)) p->o->no_kv_cache = true; /* write_checkpoints */
  if (p->o->optimizer == TSR_OPTIMIZER_MUON || p->o->optimizer == TSR_OPTIMIZER_ADAMW_8BIT ||
      p->o->optimizer == TSR_OPTIMIZER_LION)
    tsr__near_optimizer(p, TSR_OPTIMIZER_ADAMW);
}

static bool has_scaler(const tsr__paste *p) {
  return p->o->dtype == TSR_SIMULATE_AUTOCAST_FP16;
}

/* Import only what the code below uses. */
static void write_imports(tsr__paste *p) {
  tsr__buffer_text(&p->text, "import torch\n");
  if (tsr__paste_recomputes(p))
    tsr__buffer_text(&p->text,
                     "from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (\n"
                     "    CheckpointImpl, checkpoint_wrapper)\n");
  tsr__buffer_printf(&p->text, "from torch.distributed.fsdp import %s%sfully_shard\n\n",
                     p->o->offload.optimizer ? "CPUOffloadPolicy, " : "",
                     tsr__paste_is_autocast(p) ? "MixedPrecisionPolicy, " : "");
}

static void write_checkpoints(tsr__paste *p) {
  if (!tsr__paste_recomputes(p)) return;
  tsr__buffer_text(&p->text, "again = set()  # blocks that are computed again\n");
  if (p->o->checkpoint == TSR_CHECKPOINT_FULL)
    tsr__buffer_text(&p->text, "again.update(range(len(blocks)))\n");
  for (size_t i = 0; i < p->plan->blocks.count;) {
    const tsr_block_choice *ranges = p->plan->blocks.items;
    uint64_t first = ranges[i].first, end = ranges[i].last + 1;
    /* Ranges that differ only in what FSDP2 cannot express. */
    while (++i < p->plan->blocks.count && ranges[i].first == end) end = ranges[i].last + 1;
    tsr__buffer_printf(&p->text, "again.update(range(%llu, %llu))\n", (unsigned long long)first,
                       (unsigned long long)end);
  }
  tsr__buffer_printf(&p->text,
                     "for number in again:\n"
                     "    blocks[number] = checkpoint_wrapper(\n"
                     "        blocks[number], checkpoint_impl=CheckpointImpl.%s)\n",
                     p->o->non_reentrant ? "NO_REENTRANT" : "REENTRANT");
}

static void write_sharding(tsr__paste *p) {
  tsr__buffer_text(&p->text, "options = {}\n");
  if (tsr__paste_ranks(p))
    tsr__buffer_printf(&p->text, "options[\"reshard_after_forward\"] = %s  # ZeRO stage %llu\n",
                       p->o->zero == 3 ? "True" : "False", (unsigned long long)p->o->zero);
  if (tsr__paste_is_autocast(p))
    tsr__buffer_printf(&p->text,
                       "options[\"mp_policy\"] = MixedPrecisionPolicy(\n"
                       "    param_dtype=torch.%s, reduce_dtype=torch.float32)\n",
                       tsr__paste_is_bf16(p) ? "bfloat16" : "float16");
  if (p->o->offload.optimizer)
    tsr__buffer_text(&p->text, "options[\"offload_policy\"] = CPUOffloadPolicy()\n");
  tsr__buffer_text(&p->text, "for block in blocks:\n"
                             "    fully_shard(block, **options)\n"
                             "fully_shard(model, **options)\n");
}

/* fp16 needs loss scaling. */
static void write_scaler(tsr__paste *p) {
  char scale[TSR__OPTION_BYTES];
  if (!has_scaler(p)) return;
  tsr__buffer_text(&p->text, "scaler = torch.amp.GradScaler(\"cuda\"");
  if (p->o->loss_scale > 0)
    tsr__buffer_printf(&p->text, ", init_scale=%s", tsr__paste_option(p, "loss_scale", scale));
  if (p->o->loss_scale_window)
    tsr__buffer_printf(&p->text, ", growth_interval=%llu",
                       (unsigned long long)p->o->loss_scale_window);
  tsr__buffer_text(&p->text, ")\n"
                             "# each backward pass: scaler.scale(loss).backward()\n"
                             "# each step: scaler.step(optimizer); scaler.update()\n");
}

/* What the loop around the model does. */
static void write_loop(tsr__paste *p) {
  char clip[TSR__OPTION_BYTES];
  if (p->o->clip_norm > 0)
    tsr__buffer_printf(
        &p->text, "# before each step: %storch.nn.utils.clip_grad_norm_(model.parameters(), %s)\n",
        has_scaler(p) ? "scaler.unscale_(optimizer); " : "", tsr__paste_option(p, "clip", clip));
  if (p->o->offload.activations)
    tsr__buffer_text(
        &p->text,
        "# around each forward: with torch.autograd.graph.save_on_cpu(pin_memory=True):\n");
  if (tsr__paste_passes(p) > 1)
    tsr__buffer_printf(&p->text, "# each step: %llu backward passes of %llu sequences\n",
                       tsr__paste_passes(p), tsr__paste_micro_batch(p));
}

void tsr__paste_fsdp2(tsr__paste *p) {
  tsr__paste_adapters(p);
  write_imports(p);
  tsr__paste_model(p);
  tsr__buffer_printf(&p->text, "blocks = model.%s\n",
                     tsr__paste_is_gpt2(p) ? "transformer.h" : "model.layers");
  write_checkpoints(p);
  write_sharding(p);
  assert(*tsr__paste_optimizer(p));
  tsr__buffer_printf(&p->text, "optimizer = %s\n", tsr__paste_optimizer(p));
  write_scaler(p);
  write_loop(p);
  tsr__paste_launch(p);
}
