/* paste.c - writes a plan in the formats of other programs.
 *
 * Each target supports some keys of a plan. Other keys are removed, or replaced by the nearest choice that the
 * target supports. The printed cost belongs to the resulting plan, and each difference is a comment. */
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "models/model.h"
#include "plan/planner.h"

/* The parts of a plan that a target supports, as bits. */
enum {
  SAYS_RANGES = 1,        /* some blocks, each completely */
  SAYS_FULL = 2,          /* all blocks */
  SAYS_OFFLOAD_STATE = 4, /* the optimizer, with gradients and parameters */
  SAYS_ACTIVATIONS = 8,   /* activations on the host */
  SAYS_IN_BACKWARD = 16,
  SAYS_AUTOCAST = 64,
  SAYS_LOSS = 32,       /* a loss that does not make logits */
  SAYS_OPTIMIZER = 128, /* the optimizer on the host, without gradients and parameters */
  SAYS_FIRST = 256,     /* the first N blocks, or N blocks at a time */
  SAYS_SOME = 512,      /* only attention */
  SAYS_NO_FP16 = 1024,
};

/* Stages of ZeRO. FSDP shards parameters, gradients and optimizer state, and keeps gathered parameters until
 * backward (stage 2) or not (stage 3). */
enum { STAGE_0 = 1, STAGE_2 = 4, STAGE_3 = 8, STAGES = 15 };

typedef struct writer {
  const char *model;
  const tsr_simulate_options *how;
  tsr_run_plan *plan; /* the nearest plan, owned; `o` points to its options */
  tsr_simulate_options *o;
  tsr__buffer text, cannot; /* the lines of code; the comments */
  const char *comment;      /* what starts a comment: "# " */
  uint64_t reserved_bytes;  /* of the nearest plan that the target supports */
} writer;

static void say_cannot(writer *w, const char *before, const char *format, va_list args) {
  char line[512];
  (void)vsnprintf(line, sizeof line, format, args);
  tsr__buffer_printf(&w->cannot, "%s%s%s\n", w->comment, before, line);
}

/* Report a choice that the target does not support, and the nearest one that it does. */
static void cannot(writer *w, const char *format, ...) TSR__PRINTF(2, 3);
static void cannot(writer *w, const char *format, ...) {
  va_list args;
  va_start(args, format);
  say_cannot(w, "not supported: ", format, args);
  va_end(args);
}

/* Report a choice that is made elsewhere than in this text. */
static void elsewhere(writer *w, const char *format, ...) TSR__PRINTF(2, 3);
static void elsewhere(writer *w, const char *format, ...) {
  va_list args;
  va_start(args, format);
  say_cannot(w, "not in this text: ", format, args);
  va_end(args);
}

static bool casts(const writer *w) {
  return w->o->dtype == TSR_SIMULATE_AUTOCAST_BF16 || w->o->dtype == TSR_SIMULATE_AUTOCAST_FP16;
}

static bool is_bf16(const writer *w) {
  return w->o->dtype == TSR_SIMULATE_BF16 || w->o->dtype == TSR_SIMULATE_AUTOCAST_BF16;
}

static bool is_fp16(const writer *w) {
  return w->o->dtype == TSR_SIMULATE_FP16 || w->o->dtype == TSR_SIMULATE_AUTOCAST_FP16;
}

/* The value of an option as a user types it. */
static const char *text_of(const writer *w, const char *option, char text[TSR__OPTION_BYTES]) {
  tsr__option_text(tsr__option_find(option), w->o, text);
  return text;
}

static unsigned long long batch_of(const writer *w) {
  return w->how->batch ? w->how->batch : 1;
}

static unsigned long long micro_of(const writer *w) {
  return w->o->micro_batch ? w->o->micro_batch : batch_of(w);
}

/* The number of ranks, or 0 for a single one. */
static unsigned long long ranks_of(const writer *w) {
  return w->o->ranks > 1 ? w->o->ranks : 0;
}

/* The number of backward passes in a step. */
static unsigned long long parts_of(const writer *w) {
  assert(micro_of(w));
  return batch_of(w) / micro_of(w) * w->o->accumulate;
}

static unsigned long long global_batch_of(const writer *w) {
  return micro_of(w) * parts_of(w) * (ranks_of(w) ? ranks_of(w) : 1);
}

static bool runs_again(const writer *w) {
  return w->o->checkpoint != TSR_CHECKPOINT_NONE || w->plan->blocks.count;
}

static bool is_gpt2(const writer *w) {
  return strstr(w->model, "gpt2") != NULL;
}

/* The arguments of peft's LoraConfig. */
static void say_adapters(writer *w) {
  char alpha[TSR__OPTION_BYTES], targets[TSR__OPTION_BYTES];
  if (!w->o->lora_rank) return;
  bool has_alpha = w->o->lora_alpha > 0, has_targets = w->o->lora_targets != 0;
  elsewhere(w,
            "adapters, which are peft.get_peft_model(model, peft.LoraConfig(r=%llu%s%s)), where "
            "target_modules is %s",
            (unsigned long long)w->o->lora_rank, has_alpha ? ", lora_alpha=" : "",
            has_alpha ? text_of(w, "lora_alpha", alpha) : "",
            has_targets ? text_of(w, "lora_targets", targets) : "the default");
}

/* ---- the nearest plan ---- */

/* Whether the target supports this choice for all blocks. */
static bool is_said(tsr_simulate_checkpoint checkpoint, unsigned says) {
  switch (checkpoint) {
  case TSR_CHECKPOINT_NONE:
  case TSR_CHECKPOINT_FULL: return true;
  case TSR_CHECKPOINT_SELECTIVE: return says & SAYS_SOME;
  case TSR_CHECKPOINT_EVERY: return says & SAYS_FIRST;
  default: return false;
  }
}

/* Targets recompute whole blocks, not single tensors. */
static void near_ranges(writer *w) {
  bool is_said = true;
  for (size_t i = 0; i < w->plan->blocks.count; i++) {
    tsr_block_choice *range = &w->plan->blocks.items[i];
    is_said = is_said && range->checkpoint == TSR_CHECKPOINT_FULL && !range->saved_count;
    range->checkpoint = TSR_CHECKPOINT_FULL;
    range->saved_count = 0;
  }
  if (!is_said) cannot(w, "some tensors computed again; the nearest is the whole block");
}

/* The number of blocks in ranges, and whether these are the first blocks, in order. */
static uint64_t blocks_of(const tsr_run_plan *plan, bool *are_first) {
  uint64_t count = 0;
  *are_first = true;
  for (size_t i = 0; i < plan->blocks.count; i++) {
    const tsr_block_choice *range = &plan->blocks.items[i];
    *are_first = *are_first && range->first == count;
    count += range->last + 1 - range->first;
  }
  return count;
}

/* Replace the ranges by as many blocks, counted from the first. */
static void near_first(writer *w) {
  bool are_first;
  uint64_t count = blocks_of(w->plan, &are_first);
  assert(count > 0);
  if (!are_first)
    cannot(w, "which blocks are computed again; the nearest is the first %llu",
           (unsigned long long)count);
  w->plan->blocks.items[0] =
      (tsr_block_choice){.last = count - 1, .checkpoint = TSR_CHECKPOINT_FULL};
  w->plan->blocks.count = 1;
}

/* Ranges become whole blocks if the target supports those, or else all blocks. */
static void near_blocks(writer *w, unsigned says) {
  char text[TSR__OPTION_BYTES];
  assert(says & SAYS_FULL);
  if (!is_said(w->o->checkpoint, says)) {
    cannot(w, "checkpoint %s; the nearest is each block on its own",
           text_of(w, "checkpoint", text));
    tsr__option_set("checkpoint", "full", w->o);
  }
  if (!w->plan->blocks.count) return;
  near_ranges(w);
  if (says & SAYS_RANGES) return;
  if (says & SAYS_FIRST && w->o->checkpoint != TSR_CHECKPOINT_FULL) {
    near_first(w);
    return;
  }
  cannot(w, "which blocks are computed again; the nearest is all");
  tsr__run_plan_clear_blocks(w->plan);
  tsr__option_set("checkpoint", "full", w->o);
}

static void near_offload(writer *w, unsigned says) {
  tsr_offload *away = &w->o->offload;
  bool state = says & SAYS_OFFLOAD_STATE && away->optimizer;
  bool alone = says & SAYS_OPTIMIZER && away->optimizer;
  bool activations = says & SAYS_ACTIVATIONS && away->activations;
  if (away->optimizer && !state && !alone)
    cannot(w, "optimizer, gradients or parameters on the host");
  if (alone && (away->gradients || away->parameters))
    cannot(w, "gradients or parameters on the host; the nearest is the optimizer alone");
  if (away->activations && !activations) cannot(w, "activations on the host");
  *away = (tsr_offload){.optimizer = state || alone ? TSR_SPACE_HOST : TSR_SPACE_DEVICE,
                        .gradients = state && !alone ? TSR_SPACE_HOST : TSR_SPACE_DEVICE,
                        .parameters = state && !alone ? TSR_SPACE_HOST : TSR_SPACE_DEVICE,
                        .activations = activations ? TSR_SPACE_HOST : TSR_SPACE_DEVICE};
}

/* DeepSpeed and Megatron have 16-bit weights with fp32 masters. */
static void near_types(writer *w, unsigned says) {
  char text[TSR__OPTION_BYTES];
  if (says & SAYS_NO_FP16 && is_fp16(w)) {
    cannot(w, "fp16; the nearest is bf16");
    w->o->dtype = casts(w) ? TSR_SIMULATE_AUTOCAST_BF16 : TSR_SIMULATE_BF16;
    return;
  }
  if (says & SAYS_AUTOCAST || w->o->dtype == TSR_SIMULATE_FP32) return;
  if (!casts(w) && w->o->master_weights) return;
  cannot(w, "%s; the nearest has weights of 16 bits with fp32 masters", text_of(w, "dtype", text));
  w->o->dtype = is_bf16(w) ? TSR_SIMULATE_BF16 : TSR_SIMULATE_FP16;
  w->o->master_weights = true;
}

static void near_loss(writer *w, unsigned says) {
  if (!w->o->loss_chunk || (says & SAYS_LOSS && !is_gpt2(w))) return;
  cannot(w, "the loss of some tokens at a time; Liger%s",
         is_gpt2(w) ? " does not know GPT-2" : "'s fused linear cross entropy is similar");
  w->o->loss_chunk = 0;
}

/* Replace the stage of ZeRO by the nearest one that the target supports (`stages` has a bit for each). That is the
 * next higher one, which shards more, and sends more only if it is stage 3. */
static void near_stage(writer *w, unsigned stages) {
  uint64_t stage = w->o->zero, nearest = stage;
  if (!ranks_of(w)) return;
  while (nearest < 3 && !(stages >> nearest & 1)) nearest++;
  if (nearest == stage) return;
  cannot(w, "ZeRO stage %llu; the nearest is stage %llu", (unsigned long long)stage,
         (unsigned long long)nearest);
  w->o->zero = nearest;
}

static void near_plan(writer *w, unsigned says) {
  if (w->o->replicas > 1) cannot(w, "replicas; the nearest shares one copy among all ranks");
  w->o->replicas = 0;
  near_loss(w, says);
  if (w->o->update_in_backward && !(says & SAYS_IN_BACKWARD)) {
    cannot(w, "the optimizer in backward");
    w->o->update_in_backward = false;
  }
  near_types(w, says);
  near_blocks(w, says);
  near_offload(w, says);
}

/* ---- lines that all Python targets share ---- */

static void say_model(writer *w) {
  if (w->o->gelu_fused)
    tsr__buffer_text(&w->text,
                     "# made of a config with activation_function=\"gelu_pytorch_tanh\"\n");
  if (w->o->no_kv_cache) tsr__buffer_text(&w->text, "model.config.use_cache = False\n");
  if (w->o->attention == TSR_ATTENTION_EAGER)
    tsr__buffer_text(&w->text, "model.set_attn_implementation(\"eager\")\n");
  if (w->o->attention == TSR_ATTENTION_FLASH)
    tsr__buffer_text(&w->text, "model.set_attn_implementation(\"flash_attention_2\")\n");
  if (w->o->dtype == TSR_SIMULATE_BF16) tsr__buffer_text(&w->text, "model.to(torch.bfloat16)\n");
  if (w->o->dtype == TSR_SIMULATE_FP16) tsr__buffer_text(&w->text, "model.to(torch.float16)\n");
}

/* The number of ranks is an argument of the launcher. */
static void say_ranks(writer *w) {
  if (ranks_of(w))
    elsewhere(w, "%llu ranks, which is torchrun --nproc-per-node %llu", ranks_of(w), ranks_of(w));
}

/* The words for AdamW also stand for optimizers that no target has in common. */
static const char *optimizer_of(writer *w, const char *fused, const char *foreach,
                                const char *sgd) {
  if (w->o->optimizer > TSR_OPTIMIZER_SGD)
    cannot(w, "the optimizer %s; the text has AdamW", tsr__optimizer_class(w->o->optimizer));
  if (w->o->optimizer == TSR_OPTIMIZER_ADAMW_FUSED) return fused;
  return w->o->optimizer == TSR_OPTIMIZER_SGD ? sgd : foreach;
}

/* ---- targets ---- */

static void say_hf(writer *w) {
  char clip[TSR__OPTION_BYTES];
  tsr__buffer_text(&w->text, "import torch\nfrom transformers import TrainingArguments\n\n");
  say_model(w);
  tsr__buffer_printf(&w->text,
                     "args = TrainingArguments(\n"
                     "    output_dir=\"out\",\n"
                     "    per_device_train_batch_size=%llu,\n"
                     "    gradient_accumulation_steps=%llu,\n"
                     "    optim=\"%s\",\n",
                     micro_of(w), parts_of(w),
                     optimizer_of(w, "adamw_torch_fused", "adamw_torch", "sgd"));
  if (w->o->dtype == TSR_SIMULATE_AUTOCAST_BF16) tsr__buffer_text(&w->text, "    bf16=True,\n");
  if (w->o->dtype == TSR_SIMULATE_AUTOCAST_FP16) tsr__buffer_text(&w->text, "    fp16=True,\n");
  if (w->o->loss_chunk) tsr__buffer_text(&w->text, "    use_liger_kernel=True,  # a fused loss\n");
  if (w->o->clip_norm > 0)
    tsr__buffer_printf(&w->text, "    max_grad_norm=%s,\n", text_of(w, "clip", clip));
  if (runs_again(w))
    tsr__buffer_printf(&w->text,
                       "    gradient_checkpointing=True,\n"
                       "    gradient_checkpointing_kwargs={\"use_reentrant\": %s},\n",
                       w->o->non_reentrant ? "False" : "True");
  if (ranks_of(w) && w->o->zero)
    tsr__buffer_printf(
        &w->text,
        "    fsdp=True,\n"
        "    fsdp_config={\"version\": 2, \"reshard_after_forward\": %s},  # ZeRO stage %llu\n",
        w->o->zero == 3 ? "True" : "False", (unsigned long long)w->o->zero);
  tsr__buffer_text(&w->text, ")\n");
}

/* With parameters on the host, DeepSpeed needs stage 3. */
static void near_host(writer *w) {
  if (!w->o->offload.optimizer || !w->o->ranks || w->o->zero == 3) return;
  cannot(w, "stage %llu with parameters on the host; the nearest is stage 3",
         (unsigned long long)w->o->zero);
  w->o->zero = 3;
}

static void put(writer *w, json_t *object, const char *key, json_t *value) {
  if (json_object_set_new(object, key, value)) w->text.failed = true;
}

static void say_deepspeed(writer *w) {
  json_t *zero = json_object(), *out;
  bool away = w->o->offload.optimizer;
  json_int_t bucket = (json_int_t)w->o->bucket_elements, ranks = (json_int_t)w->o->ranks;
  out = json_pack("{s:I,s:I}", "train_micro_batch_size_per_gpu", (json_int_t)micro_of(w),
                  "gradient_accumulation_steps", (json_int_t)parts_of(w));
  put(w, zero, "stage", json_integer(away ? 3 : (json_int_t)w->o->zero));
  if (bucket) put(w, zero, "reduce_bucket_size", json_integer(bucket));
  if (ranks) put(w, zero, "overlap_comm", json_boolean(!w->o->no_overlap));
  if (away) {
    put(w, zero, "offload_optimizer", json_pack("{s:s}", "device", "cpu"));
    put(w, zero, "offload_param", json_pack("{s:s}", "device", "cpu"));
  }
  put(w, out, "zero_optimization", zero);
  if (is_bf16(w)) put(w, out, "bf16", json_pack("{s:b}", "enabled", 1));
  if (is_fp16(w)) put(w, out, "fp16", json_pack("{s:b}", "enabled", 1));
  if (w->o->clip_norm > 0) put(w, out, "gradient_clipping", json_real(w->o->clip_norm));
  (void)tsr__json_append(&w->text, out, JSON_INDENT(2));
  tsr__buffer_text(&w->text, "\n");
  json_decref(out);
  if (ranks)
    elsewhere(w, "%lld ranks, which is deepspeed --num_gpus %lld", (long long)ranks,
              (long long)ranks);
  if (runs_again(w))
    elsewhere(w, "blocks computed again, which is model.gradient_checkpointing_enable()");
  if (w->o->no_kv_cache)
    elsewhere(w, "no key-value cache, which is model.config.use_cache = False");
  if (w->o->gelu_fused)
    elsewhere(w, "a fused GELU, which is activation_function \"gelu_pytorch_tanh\" of the model");
}

static void say_checkpoints(writer *w) {
  if (!runs_again(w)) return;
  if (!w->o->no_kv_cache) /* transformers does this for its own checkpoints */
    tsr__buffer_text(
        &w->text,
        "model.config.use_cache = False  # a block that runs again would add to it again\n");
  tsr__buffer_text(&w->text, "again = set()  # blocks that are computed again\n");
  if (w->o->checkpoint == TSR_CHECKPOINT_FULL)
    tsr__buffer_text(&w->text, "again.update(range(len(blocks)))\n");
  for (size_t i = 0; i < w->plan->blocks.count; i++)
    tsr__buffer_printf(&w->text, "again.update(range(%llu, %llu))\n",
                       (unsigned long long)w->plan->blocks.items[i].first,
                       (unsigned long long)w->plan->blocks.items[i].last + 1);
  tsr__buffer_printf(&w->text,
                     "for number in again:\n"
                     "    blocks[number] = checkpoint_wrapper(\n"
                     "        blocks[number], checkpoint_impl=CheckpointImpl.%s)\n",
                     w->o->non_reentrant ? "NO_REENTRANT" : "REENTRANT");
}

/* Import only what the code below uses. */
static void say_imports(writer *w) {
  tsr__buffer_text(&w->text, "import torch\n");
  if (runs_again(w))
    tsr__buffer_text(&w->text,
                     "from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (\n"
                     "    CheckpointImpl, checkpoint_wrapper)\n");
  tsr__buffer_printf(&w->text, "from torch.distributed.fsdp import %s%sfully_shard\n\n",
                     w->o->offload.optimizer ? "CPUOffloadPolicy, " : "",
                     casts(w) ? "MixedPrecisionPolicy, " : "");
}

/* fp16 needs loss scaling. */
static void say_scaler(writer *w) {
  if (w->o->dtype != TSR_SIMULATE_AUTOCAST_FP16) return;
  tsr__buffer_text(&w->text, "scaler = torch.amp.GradScaler(\"cuda\")\n"
                             "# each backward pass: scaler.scale(loss).backward()\n"
                             "# each step: scaler.step(optimizer); scaler.update()\n");
}

static void say_fsdp2(writer *w) {
  char clip[TSR__OPTION_BYTES];
  say_imports(w);
  say_model(w);
  tsr__buffer_printf(&w->text, "blocks = model.%s\n",
                     is_gpt2(w) ? "transformer.h" : "model.layers");
  say_checkpoints(w);
  tsr__buffer_text(&w->text, "options = {}\n");
  if (ranks_of(w))
    tsr__buffer_printf(&w->text, "options[\"reshard_after_forward\"] = %s  # ZeRO stage %llu\n",
                       w->o->zero == 3 ? "True" : "False", (unsigned long long)w->o->zero);
  if (casts(w))
    tsr__buffer_printf(&w->text,
                       "options[\"mp_policy\"] = MixedPrecisionPolicy(\n"
                       "    param_dtype=torch.%s, reduce_dtype=torch.float32)\n",
                       is_bf16(w) ? "bfloat16" : "float16");
  if (w->o->offload.optimizer)
    tsr__buffer_text(&w->text, "options[\"offload_policy\"] = CPUOffloadPolicy()\n");
  tsr__buffer_printf(&w->text,
                     "for block in blocks:\n"
                     "    fully_shard(block, **options)\n"
                     "fully_shard(model, **options)\n"
                     "optimizer = torch.optim.%s\n",
                     optimizer_of(w, "AdamW(model.parameters(), fused=True)",
                                  "AdamW(model.parameters())", "SGD(model.parameters(), lr=0.1)"));
  say_scaler(w);
  if (w->o->clip_norm > 0)
    tsr__buffer_printf(
        &w->text, "# before each step: torch.nn.utils.clip_grad_norm_(model.parameters(), %s)\n",
        text_of(w, "clip", clip));
  if (w->o->offload.activations)
    tsr__buffer_text(
        &w->text,
        "# around each forward: with torch.autograd.graph.save_on_cpu(pin_memory=True):\n");
  if (parts_of(w) > 1)
    tsr__buffer_printf(&w->text, "# each step: %llu backward passes of %llu sequences\n",
                       parts_of(w), micro_of(w));
}

static void say_torchtitan(writer *w) {
  unsigned long long ranks = ranks_of(w);
  char clip[TSR__OPTION_BYTES];
  tsr__buffer_printf(
      &w->text, "[training]\nlocal_batch_size = %llu\nglobal_batch_size = %llu\nseq_len = %llu\n",
      micro_of(w), global_batch_of(w),
      (unsigned long long)(w->how->sequence ? w->how->sequence : 1));
  tsr__buffer_printf(&w->text, "dtype = \"%s\"\nmixed_precision_param = \"%s\"\n",
                     w->o->dtype == TSR_SIMULATE_BF16 ? "bfloat16" : "float32",
                     w->o->dtype ? "bfloat16" : "float32");
  tsr__buffer_printf(&w->text, "max_norm = %s\n",
                     w->o->clip_norm > 0 ? text_of(w, "clip", clip) : "inf");
  if (w->o->offload.optimizer) tsr__buffer_text(&w->text, "enable_cpu_offload = true\n");
  tsr__buffer_printf(&w->text, "\n[optimizer]\nname = \"AdamW\"\nimplementation = \"%s\"\n",
                     w->o->optimizer == TSR_OPTIMIZER_ADAMW_LOOP
                         ? "for-loop"
                         : optimizer_of(w, "fused", "foreach", "foreach"));
  if (w->o->update_in_backward) tsr__buffer_text(&w->text, "early_step_in_backward = true\n");
  if (w->o->optimizer == TSR_OPTIMIZER_SGD)
    cannot(w, "SGD; AdamW's state takes 8 bytes a parameter more");
  tsr__buffer_printf(&w->text, "\n[activation_checkpoint]\nmode = \"%s\"\n",
                     runs_again(w) ? "full" : "none");
  if (!ranks) return;
  bool is_spread = w->o->zero > 0;
  tsr__buffer_printf(&w->text,
                     "\n[parallelism]  # ZeRO stage %llu\ndata_parallel_replicate_degree = %llu\n"
                     "data_parallel_shard_degree = %llu\nfsdp_reshard_after_forward = \"%s\"\n",
                     (unsigned long long)w->o->zero, is_spread ? 1 : ranks, is_spread ? ranks : 1,
                     w->o->zero == 3 ? "always" : "never");
}

/* One argument of pretrain_gpt.py on each line. */
static void say_megatron_blocks(writer *w) {
  if (!runs_again(w)) return;
  if (w->o->checkpoint == TSR_CHECKPOINT_SELECTIVE) {
    tsr__buffer_text(&w->text, "--recompute-granularity selective\n");
    return;
  }
  bool is_block = w->plan->blocks.count && w->o->checkpoint != TSR_CHECKPOINT_FULL, are_first;
  bool is_every = w->o->checkpoint == TSR_CHECKPOINT_EVERY;
  tsr__buffer_printf(
      &w->text,
      "--recompute-granularity full\n--recompute-method %s\n--recompute-num-layers %llu\n",
      is_block ? "block" : "uniform",
      (unsigned long long)(is_block   ? blocks_of(w->plan, &are_first)
                           : is_every ? w->o->checkpoint_every
                                      : 1));
}

static void say_megatron_ranks(writer *w) {
  static const char *const strategies[] = {"", "", "optim_grads", "optim_grads_params"};
  uint64_t stage = w->o->zero;
  if (!ranks_of(w)) return;
  if (stage) tsr__buffer_text(&w->text, "--use-distributed-optimizer\n");
  if (stage >= 2)
    tsr__buffer_printf(&w->text, "--use-megatron-fsdp\n--data-parallel-sharding-strategy %s\n",
                       strategies[stage]);
  if (!w->o->no_overlap) tsr__buffer_text(&w->text, "--overlap-grad-reduce\n");
}

static void say_megatron(writer *w) {
  char clip[TSR__OPTION_BYTES];
  tsr__buffer_printf(&w->text,
                     "--micro-batch-size %llu\n--global-batch-size %llu\n--seq-length %llu\n",
                     micro_of(w), global_batch_of(w),
                     (unsigned long long)(w->how->sequence ? w->how->sequence : 1));
  say_megatron_ranks(w);
  if (w->o->dtype) tsr__buffer_printf(&w->text, "--%s\n", is_bf16(w) ? "bf16" : "fp16");
  tsr__buffer_printf(&w->text, "--optimizer %s\n", optimizer_of(w, "adam", "adam", "sgd"));
  tsr__buffer_printf(&w->text, "--clip-grad %s\n",
                     w->o->clip_norm > 0 ? text_of(w, "clip", clip) : "0.0");
  if (w->o->offload.optimizer)
    tsr__buffer_text(&w->text, "--use-precision-aware-optimizer\n--optimizer-cpu-offload\n"
                               "--optimizer-offload-fraction 1.0\n");
  say_megatron_blocks(w);
  if (w->o->attention == TSR_ATTENTION_EAGER)
    tsr__buffer_text(&w->text, "--attention-backend unfused\n");
  if (w->o->attention == TSR_ATTENTION_FLASH)
    tsr__buffer_text(&w->text, "--attention-backend flash\n");
}

static void say_env(writer *w) {
  assert(!w->text.size);
  tsr__buffer_text(&w->text, "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n");
  cannot(w, "every choice of this plan; environment variables only configure the allocator");
}

static void say_tessera(writer *w) {
  (void)w;
}

static const struct {
  const char *name, *comment;
  unsigned
      bit; /* tsr__target, as in the table of techniques; 0 if the target limits no techniques */
  unsigned says, stages; /* stages: a bit for each stage of ZeRO */
  void (*say)(writer *w);
} targets[] = {
    {"hf", "# ", TSR__TARGET_HF, SAYS_AUTOCAST | SAYS_FULL | SAYS_LOSS, STAGE_0 | STAGE_2 | STAGE_3,
     say_hf},
    {"deepspeed", "// ", TSR__TARGET_DEEPSPEED, SAYS_FULL | SAYS_OFFLOAD_STATE, STAGES,
     say_deepspeed},
    {"fsdp2", "# ", TSR__TARGET_FSDP2,
     SAYS_AUTOCAST | SAYS_FULL | SAYS_RANGES | SAYS_OFFLOAD_STATE | SAYS_ACTIVATIONS,
     STAGE_2 | STAGE_3, say_fsdp2},
    {"torchtitan", "# ", TSR__TARGET_TORCHTITAN,
     SAYS_AUTOCAST | SAYS_NO_FP16 | SAYS_FULL | SAYS_OFFLOAD_STATE | SAYS_IN_BACKWARD,
     STAGE_0 | STAGE_2 | STAGE_3, say_torchtitan},
    {"megatron", "# ", TSR__TARGET_MEGATRON, SAYS_FULL | SAYS_FIRST | SAYS_SOME | SAYS_OPTIMIZER,
     STAGES, say_megatron},
    {"env", "# ", 0, 0, 0, say_env},
    {"tessera", "# ", 0, 0, 0, say_tessera},
};

unsigned tsr_target_allows(const char *target, const tsr_model *model) {
  unsigned allow = tsr_allow_default(), bit = 0;
  for (size_t i = 0; i < sizeof targets / sizeof *targets; i++)
    if (strcmp(targets[i].name, target) == 0) bit = targets[i].bit;
  if (!bit)
    return allow; /* a plan file supports every technique; allocator variables are no plan */
  for (const tsr__technique_row *t = tsr__techniques; t->allow; t++)
    if (t->targets && !(t->targets & bit)) allow &= ~tsr__technique_flag(t);
  if (strstr(tsr_model_name(model), "gpt2"))
    allow &= ~(unsigned)TSR_ALLOW_LOSS_CHUNK; /* Liger lacks GPT-2 */
  return allow;
}

/* ---- the complete text ---- */

/* Write the cost of the resulting plan, as a comment. */
static int say_cost(writer *w, const tsr_model *model, const tsr_simulate_options *how,
                    tsr__buffer *out, tsr_error *error) {
  tsr_run_plan_cost cost;
  char reserved[32];
  int status = tsr_run_plan_measure(w->plan, model, how, &cost, error);
  if (status == TSR_ERROR_ARGUMENT || status == TSR_ERROR_UNSUPPORTED) {
    tsr__buffer_printf(
        out, "%sthe nearest plan that this can express is impossible for this model\n", w->comment);
    return 0;
  }
  if (status) return status;
  w->reserved_bytes = cost.reserved_bytes;
  tsr__buffer_printf(
      out, "%s%s, batches of %llu sequences: %s reserved, %.0f ms a step (estimates)\n", w->comment,
      w->model, batch_of(w), tsr_size_text(cost.reserved_bytes, reserved, sizeof reserved),
      cost.step_seconds * 1000);
  return 0;
}

/* FSDP gathers the parameters outside of blocks as one unit, the root, and copies them from one buffer into the
 * tensors of the module. tessera gathers the embeddings and the head one after the other. */
static void say_root(writer *w, const tsr_model *model) {
  uint64_t tables = model->is_tied ? 1 : 2, each = w->o->dtype == TSR_SIMULATE_FP32 ? 4 : 2;
  char size[32];
  if (w->o->zero != 3) return;
  cannot(w,
         "gathering the root's parameters, such as embeddings and head, one by one; together, "
         "and copied, they need up to %s more",
         tsr_size_text(2 * tables * model->vocabulary * model->width * each, size, sizeof size));
}

static int paste(writer *w, size_t target, const tsr_model *model, tsr__buffer *out,
                 tsr_error *error) {
  tsr_simulate_options how = *w->how;
  bool is_env = targets[target].say == say_env;
  w->comment = targets[target].comment;
  if (is_env) how.settings.expandable_segments = true;
  if (!is_env) say_adapters(w);
  if (!is_env) near_plan(w, targets[target].says);
  if (!is_env) near_stage(w, targets[target].stages);
  if (targets[target].say == say_deepspeed) near_host(w);
  targets[target].say(w);
  if (!is_env && targets[target].say != say_deepspeed) say_ranks(w);
  bool is_fsdp = targets[target].say == say_hf || targets[target].say == say_fsdp2 ||
                 targets[target].say == say_torchtitan;
  if (is_fsdp) say_root(w, model);
  if (w->text.failed || w->cannot.failed) return tsr__fail_memory(error);
  int status = say_cost(w, model, &how, out, error);
  if (w->cannot.size) tsr__buffer_append(out, w->cannot.data, w->cannot.size);
  if (w->text.size) tsr__buffer_append(out, w->text.data, w->text.size);
  return status == 0 && out->failed ? tsr__fail_memory(error) : status;
}

int tsr_plan_paste(const tsr_run_plan *plan, const tsr_model *model,
                   const tsr_simulate_options *how, const char *target, tsr_write_fn *write,
                   void *context, uint64_t *reserved_bytes, tsr_error *error) {
  writer w = {.model = tsr_model_name(model), .how = how};
  tsr__buffer out = {0};
  size_t i = 0, count = sizeof targets / sizeof *targets;
  while (i < count && strcmp(targets[i].name, target) != 0) i++;
  if (i == count)
    return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE, "unknown target '%.40s'", target);
  if (tsr_model_is_traced(model) && targets[i].say != say_tessera)
    return tsr__fail(error, TSR_ERROR_UNSUPPORTED, TSR_OFFSET_NONE,
                     "%s cannot express which modules are recomputed: use --for tessera", target);
  w.plan = tsr__run_plan_copy(plan);
  int status = w.plan ? 0 : tsr__fail_memory(error);
  if (w.plan) w.o = &w.plan->options;
  if (status == 0 && targets[i].say == say_tessera)
    tsr__buffer_text(&out, tsr_run_plan_text(plan));
  else if (status == 0)
    status = paste(&w, i, model, &out, error);
  if (status == 0 && out.failed) status = tsr__fail_memory(error);
  if (status == 0 && write(context, out.data, out.size)) status = TSR_ERROR_WRITE;
  *reserved_bytes = w.reserved_bytes;
  tsr_run_plan_free(w.plan);
  tsr__buffer_release(&w.text);
  tsr__buffer_release(&w.cannot);
  tsr__buffer_release(&out);
  return status;
}
