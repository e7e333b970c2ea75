/* paste_hf.c - a plan for the Trainer of transformers 4 and 5.
 *
 * For FSDP, transformers 5 has all settings in `fsdp_config`. Version 4 passes version, wrapping and resharding to accelerate
 * only by environment variables, without which it runs FSDP1 with the model as one unit. The text has both. */
#include "plan/paste.h"

void tsr__near_hf(tsr__paste *p) {
  tsr__near_attention(p);
  switch (p->o->optimizer) {
  case TSR_OPTIMIZER_ADAMW_LOOP: tsr__near_optimizer(p, TSR_OPTIMIZER_ADAMW); break;
  case TSR_OPTIMIZER_SGD_MOMENTUM: tsr__near_optimizer(p, TSR_OPTIMIZER_SGD); break;
  case TSR_OPTIMIZER_ADAFACTOR: /* "adafactor" is transformers' own, which has other state */
  case TSR_OPTIMIZER_MUON: tsr__near_optimizer(p, TSR_OPTIMIZER_ADAMW_FUSED); break;
  default: break;
  }
  if (p->o->loss_chunk && tsr__paste_is_gpt2(p)) {
    char text[TSR__OPTION_BYTES];
    tsr__paste_cannot(p, "loss %s; Liger does not know GPT-2", tsr__paste_option(p, "loss", text));
    p->o->loss_chunk = 0;
  }
}

const char *tsr__paste_trainer_optimizer(const tsr__paste *p) {
  switch (p->o->optimizer) {
  case TSR_OPTIMIZER_ADAMW_FUSED: return "adamw_torch_fused";
  case TSR_OPTIMIZER_SGD: return "sgd";
  case TSR_OPTIMIZER_ADAMW_8BIT: return "adamw_bnb_8bit";
  case TSR_OPTIMIZER_LION: return "lion_32bit";
  default: return "adamw_torch";
  }
}

static void write_environment(tsr__paste *p) {
  tsr__buffer_printf(&p->text,
                     "# transformers 4 takes these from the environment, 5 from fsdp_config\n"
                     "os.environ[\"FSDP_VERSION\"] = \"2\"\n"
                     "os.environ[\"FSDP_AUTO_WRAP_POLICY\"] = \"TRANSFORMER_BASED_WRAP\"\n"
                     "os.environ[\"FSDP_RESHARD_AFTER_FORWARD\"] = \"%s\"\n",
                     p->o->zero == 3 ? "true" : "false");
}

static void write_fsdp(tsr__paste *p) {
  tsr__buffer_printf(&p->text,
                     "    fsdp=True,  # ZeRO stage %llu\n"
                     "    fsdp_config={\n"
                     "        \"version\": 2,\n"
                     "        \"auto_wrap_policy\": \"TRANSFORMER_BASED_WRAP\",\n"
                     "        \"reshard_after_forward\": %s,\n"
                     "    },\n",
                     (unsigned long long)p->o->zero, p->o->zero == 3 ? "True" : "False");
}

void tsr__paste_arguments(tsr__paste *p) {
  char clip[TSR__OPTION_BYTES];
  tsr__buffer_printf(&p->text,
                     "    output_dir=\"out\",\n"
                     "    per_device_train_batch_size=%llu,\n"
                     "    gradient_accumulation_steps=%llu,\n"
                     "    optim=\"%s\",\n"
                     "    max_grad_norm=%s,\n",
                     tsr__paste_micro_batch(p), tsr__paste_passes(p),
                     tsr__paste_trainer_optimizer(p),
                     p->o->clip_norm > 0 ? tsr__paste_option(p, "clip", clip) : "0.0");
}

void tsr__paste_hf(tsr__paste *p) {
  tsr__buffer *out = &p->text;
  bool is_sharded = tsr__paste_ranks(p) && p->o->zero;
  tsr__paste_adapters(p);
  if (is_sharded) tsr__buffer_text(out, "import os\n");
  tsr__buffer_text(out, "import torch\nfrom transformers import TrainingArguments\n\n");
  if (is_sharded) write_environment(p);
  tsr__paste_model(p);
  tsr__buffer_text(out, "args = TrainingArguments(\n");
  tsr__paste_arguments(p);
  if (p->o->dtype == TSR_SIMULATE_AUTOCAST_BF16) tsr__buffer_text(out, "    bf16=True,\n");
  if (p->o->dtype == TSR_SIMULATE_AUTOCAST_FP16) tsr__buffer_text(out, "    fp16=True,\n");
  if (p->o->loss_chunk) tsr__buffer_text(out, "    use_liger_kernel=True,  # a fused loss\n");
  if (tsr__paste_recomputes(p))
    tsr__buffer_printf(out,
                       "    gradient_checkpointing=True,\n"
                       "    gradient_checkpointing_kwargs={\"use_reentrant\": %s},\n",
                       p->o->non_reentrant ? "False" : "True");
  if (is_sharded) write_fsdp(p);
  tsr__buffer_text(out, ")\n");
  tsr__paste_launch(p);
}
