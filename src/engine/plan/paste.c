/* paste.c - a plan in the words of other programs.
 *
 * Each target supports some keys of a plan. Other keys are removed, or replaced by the nearest choice that the target
 * supports; the printed cost belongs to the resulting plan, and each difference is a comment. */
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "models/model.h"
#include "plan/planner.h"

/* The parts of a plan that a target supports, as bits. */
enum {
  SAYS_RANGES = 1,        /* whole blocks, some of them */
  SAYS_FULL = 2,          /* all blocks */
  SAYS_OFFLOAD_STATE = 4, /* optimizer, and gradients and parameters with it */
  SAYS_ACTIVATIONS = 8,   /* on the host */
  SAYS_IN_BACKWARD = 16,
  SAYS_AUTOCAST = 64,
  SAYS_LOSS = 32,       /* a loss that makes no logits */
  SAYS_OPTIMIZER = 128, /* the optimizer on the host, without gradients and parameters */
  SAYS_FIRST = 256,     /* the first blocks, or some at a time */
  SAYS_SOME = 512,      /* attention alone */
  SAYS_NO_FP16 = 1024,
};

/* Stages of ZeRO. FSDP keeps parts of all, and gathered parameters until backward (2) or not (3). */
enum { STAGE_0 = 1, STAGE_2 = 4, STAGE_3 = 8, STAGES = 15 };

typedef struct writer {
  const char *model;
  const tsr_simulate_options *how;
  json_t *root;             /* the nearest plan; owned */
  tsr__buffer text, cannot; /* lines of code; comments */
  const char *comment;      /* "# " */
  uint64_t reserved_bytes;  /* of the nearest plan that the target can say */
} writer;

static void cannot(writer *w, const char *format, ...) TSR__PRINTF(2, 3);
static void cannot(writer *w, const char *format, ...) {
  char line[512];
  va_list args;
  va_start(args, format);
  (void)vsnprintf(line, sizeof line, format, args);
  va_end(args);
  tsr__buffer_printf(&w->cannot, "%snot said: %s\n", w->comment, line);
}

static const char *word(const writer *w, const char *key) {
  const char *value = json_string_value(json_object_get(w->root, key));
  return value ? value : "";
}

static bool is_word(const writer *w, const char *key, const char *value) {
  return strcmp(word(w, key), value) == 0;
}

static bool has(const writer *w, const char *key) {
  return json_object_get(w->root, key) != NULL;
}

static bool is_away(const writer *w, const char *what) {
  return strstr(word(w, "offload"), what) != NULL;
}

static unsigned long long batch_of(const writer *w) {
  return w->how->batch ? w->how->batch : 1;
}

static unsigned long long micro_of(const writer *w) {
  json_int_t micro = json_integer_value(json_object_get(w->root, "micro_batch"));
  return micro ? (unsigned long long)micro : batch_of(w);
}

/* 0: one alone. */
static json_int_t ranks_of(const writer *w) {
  json_int_t ranks = json_integer_value(json_object_get(w->root, "ranks"));
  return ranks > 1 ? ranks : 0;
}

/* Backward passes in a step. */
static unsigned long long parts_of(const writer *w) {
  json_int_t batches = json_integer_value(json_object_get(w->root, "accumulate"));
  assert(micro_of(w));
  return batch_of(w) / micro_of(w) * (batches ? (unsigned long long)batches : 1);
}

static unsigned long long global_batch_of(const writer *w) {
  return micro_of(w) * parts_of(w) * (unsigned long long)(ranks_of(w) ? ranks_of(w) : 1);
}

static bool runs_again(const writer *w) {
  const char *checkpoint = word(w, "checkpoint");
  return (*checkpoint && strcmp(checkpoint, "none") != 0) || has(w, "blocks");
}

static bool is_gpt2(const writer *w) {
  return strstr(w->model, "gpt2") != NULL;
}

/* ---- the nearest plan ---- */

static bool is_whole(const json_t *range) {
  const char *checkpoint = json_string_value(json_object_get(range, "checkpoint"));
  return checkpoint && strcmp(checkpoint, "full") == 0 && !json_object_get(range, "saved");
}

static bool set(writer *w, const char *key, const char *value) {
  return json_object_set_new(w->root, key, json_string(value)) == 0;
}

/* Whether the target has an option for what all blocks do. */
static bool is_said(const char *checkpoint, unsigned says) {
  if (!*checkpoint || strcmp(checkpoint, "full") == 0 || strcmp(checkpoint, "none") == 0)
    return true;
  if (strcmp(checkpoint, "selective") == 0) return (says & SAYS_SOME) != 0;
  return strncmp(checkpoint, "every:", 6) == 0 && says & SAYS_FIRST;
}

/* Single tensors of a range become the whole block. */
static bool near_ranges(writer *w) {
  json_t *ranges = json_object_get(w->root, "blocks"), *range;
  size_t i;
  bool ok = true, is_said = true;
  json_array_foreach(ranges, i, range) {
    if (is_whole(range)) continue;
    is_said = false;
    (void)json_object_del(range, "saved");
    ok = ok && json_object_set_new(range, "checkpoint", json_string("full")) == 0;
  }
  if (!is_said) cannot(w, "some tensors computed again; the nearest is the whole block");
  return ok;
}

/* How many blocks ranges of whole blocks name, and whether these are the first ones, in order. */
static json_int_t blocks_of(const json_t *ranges, bool *are_first) {
  const json_t *range;
  json_int_t count = 0;
  size_t i;
  *are_first = true;
  json_array_foreach(ranges, i, range) {
    json_int_t first = json_integer_value(json_object_get(range, "first"));
    *are_first = *are_first && first == count;
    count += json_integer_value(json_object_get(range, "last")) + 1 - first;
  }
  return count;
}

/* As many blocks, from the first on. */
static bool near_first(writer *w) {
  bool are_first;
  json_int_t count = blocks_of(json_object_get(w->root, "blocks"), &are_first);
  assert(count > 0);
  if (!are_first)
    cannot(w, "which blocks are computed again; the nearest is the first %lld", (long long)count);
  json_t *range =
      json_pack("{s:I,s:I,s:s}", "first", (json_int_t)0, "last", count - 1, "checkpoint", "full");
  return json_object_set_new(w->root, "blocks", json_pack("[o]", range)) == 0;
}

/* Ranges become whole blocks, if the target has these, and else all blocks. */
static bool near_blocks(writer *w, unsigned says) {
  assert(says & SAYS_FULL);
  const char *checkpoint = word(w, "checkpoint");
  bool ok = true;
  if (!is_said(checkpoint, says)) {
    cannot(w, "checkpoint %s; the nearest is each block on its own", checkpoint);
    ok = set(w, "checkpoint", "full");
  }
  if (!has(w, "blocks")) return ok;
  ok = ok && near_ranges(w);
  if (says & SAYS_RANGES) return ok;
  if (says & SAYS_FIRST && !is_word(w, "checkpoint", "full")) return ok && near_first(w);
  cannot(w, "which blocks are computed again; the nearest is all");
  (void)json_object_del(w->root, "blocks");
  return ok && set(w, "checkpoint", "full");
}

static bool near_offload(writer *w, unsigned says) {
  bool state = says & SAYS_OFFLOAD_STATE && is_away(w, "optimizer");
  bool alone = says & SAYS_OPTIMIZER && is_away(w, "optimizer");
  bool activations = says & SAYS_ACTIVATIONS && is_away(w, "activations");
  if (!has(w, "offload")) return true;
  if (is_away(w, "optimizer") && !state && !alone)
    cannot(w, "optimizer, gradients or parameters on the host");
  if (alone && (is_away(w, "gradients") || is_away(w, "parameters")))
    cannot(w, "gradients or parameters on the host; the nearest is the optimizer alone");
  if (is_away(w, "activations") && !activations) cannot(w, "activations on the host");
  (void)json_object_del(w->root, "offload");
  if (alone) return set(w, "offload", activations ? "optimizer,activations" : "optimizer");
  if (!state && !activations) return true;
  return set(w, "offload",
             !activations ? "optimizer,gradients,parameters"
             : state      ? "optimizer,gradients,parameters,activations"
                          : "activations");
}

/* DeepSpeed and Megatron have weights of 16 bits, and masters of them. */
static bool near_types(writer *w, unsigned says) {
  const char *dtype = word(w, "dtype");
  bool casts = strncmp(dtype, "autocast-", 9) == 0;
  if (says & SAYS_NO_FP16 && strstr(dtype, "fp16")) {
    cannot(w, "fp16; the nearest is bf16");
    return set(w, "dtype", casts ? "autocast-bf16" : "bf16");
  }
  if (says & SAYS_AUTOCAST || !*dtype) return true;
  if (!casts && has(w, "master_weights")) return true;
  cannot(w, "%s; the nearest has weights of 16 bits with fp32 masters", dtype);
  return set(w, "dtype", strstr(dtype, "bf16") ? "bf16" : "fp16") &&
         json_object_set_new(w->root, "master_weights", json_true()) == 0;
}

static void near_loss(writer *w, unsigned says) {
  if (!has(w, "loss") || (says & SAYS_LOSS && !is_gpt2(w))) return;
  cannot(w, "the loss of some tokens at a time; Liger%s",
         is_gpt2(w) ? " does not know GPT-2" : "'s fused linear cross entropy comes near");
  (void)json_object_del(w->root, "loss");
}

static json_int_t stage_of(const writer *w) {
  return json_integer_value(json_object_get(w->root, "zero"));
}

/* What ranks keep a part of: `stages` has a bit for each stage of ZeRO that the target can say. The nearest keeps parts of
 * more, and sends no more unless it is stage 3. */
static bool near_stage(writer *w, unsigned stages) {
  json_int_t stage = stage_of(w), nearest = stage;
  if (!ranks_of(w)) return true;
  while (nearest < 3 && !(stages >> nearest & 1)) nearest++;
  if (nearest == stage) return true;
  cannot(w, "ZeRO stage %lld; the nearest is stage %lld", (long long)stage, (long long)nearest);
  return json_object_set_new(w->root, "zero", json_integer(nearest)) == 0;
}

static bool near_plan(writer *w, unsigned says) {
  near_loss(w, says);
  if (has(w, "optimizer_in_backward") && !(says & SAYS_IN_BACKWARD)) {
    cannot(w, "the optimizer in backward");
    (void)json_object_del(w->root, "optimizer_in_backward");
  }
  return near_types(w, says) && near_blocks(w, says) && near_offload(w, says);
}

/* ---- what is the same for all that are Python ---- */

static void say_model(writer *w) {
  if (is_word(w, "gelu", "fused"))
    tsr__buffer_text(&w->text,
                     "# made of a config with activation_function=\"gelu_pytorch_tanh\"\n");
  if (has(w, "no_kv_cache")) tsr__buffer_text(&w->text, "model.config.use_cache = False\n");
  if (is_word(w, "attention", "eager"))
    tsr__buffer_text(&w->text, "model.set_attn_implementation(\"eager\")\n");
  if (is_word(w, "attention", "flash"))
    tsr__buffer_text(&w->text, "model.set_attn_implementation(\"flash_attention_2\")\n");
  if (is_word(w, "dtype", "bf16")) tsr__buffer_text(&w->text, "model.to(torch.bfloat16)\n");
  if (is_word(w, "dtype", "fp16")) tsr__buffer_text(&w->text, "model.to(torch.float16)\n");
}

/* The launcher knows how many there are. */
static void say_ranks(writer *w) {
  if (ranks_of(w))
    cannot(w, "%lld ranks, which is torchrun --nproc-per-node %lld", (long long)ranks_of(w),
           (long long)ranks_of(w));
}

static const char *optimizer_of(const writer *w, const char *fused, const char *foreach,
                                const char *sgd) {
  if (is_word(w, "optimizer", "adamw-fused")) return fused;
  return is_word(w, "optimizer", "sgd") ? sgd : foreach;
}

/* ---- targets ---- */

static void say_hf(writer *w) {
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
  if (is_word(w, "dtype", "autocast-bf16")) tsr__buffer_text(&w->text, "    bf16=True,\n");
  if (is_word(w, "dtype", "autocast-fp16")) tsr__buffer_text(&w->text, "    fp16=True,\n");
  if (has(w, "loss")) tsr__buffer_text(&w->text, "    use_liger_kernel=True,  # a fused loss\n");
  if (has(w, "clip")) tsr__buffer_printf(&w->text, "    max_grad_norm=%s,\n", word(w, "clip"));
  if (runs_again(w))
    tsr__buffer_printf(&w->text,
                       "    gradient_checkpointing=True,\n"
                       "    gradient_checkpointing_kwargs={\"use_reentrant\": %s},\n",
                       is_word(w, "checkpoint_form", "non-reentrant") ? "False" : "True");
  if (ranks_of(w) && stage_of(w))
    tsr__buffer_printf(
        &w->text,
        "    fsdp=True,\n"
        "    fsdp_config={\"version\": 2, \"reshard_after_forward\": %s},  # ZeRO stage %lld\n",
        stage_of(w) == 3 ? "True" : "False", (long long)stage_of(w));
  tsr__buffer_text(&w->text, ")\n");
}

static int append(const char *text, size_t size_bytes, void *context) {
  tsr__buffer_append(context, text, size_bytes);
  return 0;
}

/* Parameters are on the host only in stage 3. */
static bool near_host(writer *w) {
  if (!is_away(w, "optimizer") || !has(w, "ranks") || stage_of(w) == 3) return true;
  cannot(w, "stage %lld with parameters on the host; the nearest is stage 3",
         (long long)stage_of(w));
  return json_object_set_new(w->root, "zero", json_integer(3)) == 0;
}

static void say_deepspeed(writer *w) {
  json_t *zero = json_object(), *out;
  bool away = is_away(w, "optimizer");
  json_int_t bucket = json_integer_value(json_object_get(w->root, "bucket"));
  json_int_t ranks = json_integer_value(json_object_get(w->root, "ranks"));
  const char *dtype = word(w, "dtype");
  out = json_pack("{s:I,s:I}", "train_micro_batch_size_per_gpu", (json_int_t)micro_of(w),
                  "gradient_accumulation_steps", (json_int_t)parts_of(w));
  (void)json_object_set_new(zero, "stage", json_integer(away ? 3 : stage_of(w)));
  if (bucket) (void)json_object_set_new(zero, "reduce_bucket_size", json_integer(bucket));
  if (ranks) (void)json_object_set_new(zero, "overlap_comm", json_boolean(!has(w, "no_overlap")));
  if (away) {
    (void)json_object_set_new(zero, "offload_optimizer", json_pack("{s:s}", "device", "cpu"));
    (void)json_object_set_new(zero, "offload_param", json_pack("{s:s}", "device", "cpu"));
  }
  (void)json_object_set_new(out, "zero_optimization", zero);
  if (strstr(dtype, "bf16"))
    (void)json_object_set_new(out, "bf16", json_pack("{s:b}", "enabled", 1));
  if (strstr(dtype, "fp16"))
    (void)json_object_set_new(out, "fp16", json_pack("{s:b}", "enabled", 1));
  if (has(w, "clip"))
    (void)json_object_set_new(out, "gradient_clipping", json_real(strtod(word(w, "clip"), NULL)));
  if (!out || json_dump_callback(out, append, &w->text, JSON_INDENT(2))) w->text.failed = true;
  tsr__buffer_text(&w->text, "\n");
  json_decref(out);
  if (ranks)
    cannot(w, "%lld ranks, which is deepspeed --num_gpus %lld", (long long)ranks, (long long)ranks);
  if (runs_again(w))
    cannot(w, "blocks computed again, which is model.gradient_checkpointing_enable()");
  if (has(w, "no_kv_cache"))
    cannot(w, "no key-value cache, which is model.config.use_cache = False");
  if (is_word(w, "gelu", "fused"))
    cannot(w, "a fused GELU, which is activation_function \"gelu_pytorch_tanh\" of the model");
}

static void say_checkpoints(writer *w) {
  json_t *ranges = json_object_get(w->root, "blocks"), *range;
  size_t i;
  if (!runs_again(w)) return;
  if (!has(w, "no_kv_cache")) /* as transformers does for checkpoints of its own */
    tsr__buffer_text(
        &w->text,
        "model.config.use_cache = False  # a block that runs again would add to it again\n");
  tsr__buffer_text(&w->text, "again = set()  # blocks that are computed again\n");
  if (is_word(w, "checkpoint", "full"))
    tsr__buffer_text(&w->text, "again.update(range(len(blocks)))\n");
  json_array_foreach(ranges, i, range)
      tsr__buffer_printf(&w->text, "again.update(range(%lld, %lld))\n",
                         (long long)json_integer_value(json_object_get(range, "first")),
                         (long long)json_integer_value(json_object_get(range, "last")) + 1);
  tsr__buffer_printf(&w->text,
                     "for number in again:\n"
                     "    blocks[number] = checkpoint_wrapper(\n"
                     "        blocks[number], checkpoint_impl=CheckpointImpl.%s)\n",
                     is_word(w, "checkpoint_form", "non-reentrant") ? "NO_REENTRANT" : "REENTRANT");
}

/* What the code below uses, and no more. */
static void say_imports(writer *w, bool casts) {
  tsr__buffer_text(&w->text, "import torch\n");
  if (runs_again(w))
    tsr__buffer_text(&w->text,
                     "from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (\n"
                     "    CheckpointImpl, checkpoint_wrapper)\n");
  tsr__buffer_printf(&w->text, "from torch.distributed.fsdp import %s%sfully_shard\n\n",
                     is_away(w, "optimizer") ? "CPUOffloadPolicy, " : "",
                     casts ? "MixedPrecisionPolicy, " : "");
}

/* fp16 needs a scaled loss. */
static void say_scaler(writer *w) {
  if (!is_word(w, "dtype", "autocast-fp16")) return;
  tsr__buffer_text(&w->text, "scaler = torch.amp.GradScaler(\"cuda\")\n"
                             "# each backward pass: scaler.scale(loss).backward()\n"
                             "# each step: scaler.step(optimizer); scaler.update()\n");
}

static void say_fsdp2(writer *w) {
  bool casts = strncmp(word(w, "dtype"), "autocast-", 9) == 0;
  say_imports(w, casts);
  say_model(w);
  tsr__buffer_printf(&w->text, "blocks = model.%s\n",
                     is_gpt2(w) ? "transformer.h" : "model.layers");
  say_checkpoints(w);
  tsr__buffer_text(&w->text, "options = {}\n");
  if (ranks_of(w))
    tsr__buffer_printf(&w->text, "options[\"reshard_after_forward\"] = %s  # ZeRO stage %lld\n",
                       stage_of(w) == 3 ? "True" : "False", (long long)stage_of(w));
  if (casts)
    tsr__buffer_printf(&w->text,
                       "options[\"mp_policy\"] = MixedPrecisionPolicy(\n"
                       "    param_dtype=torch.%s, reduce_dtype=torch.float32)\n",
                       strstr(word(w, "dtype"), "bf16") ? "bfloat16" : "float16");
  if (is_away(w, "optimizer"))
    tsr__buffer_text(&w->text, "options[\"offload_policy\"] = CPUOffloadPolicy()\n");
  tsr__buffer_printf(&w->text,
                     "for block in blocks:\n"
                     "    fully_shard(block, **options)\n"
                     "fully_shard(model, **options)\n"
                     "optimizer = torch.optim.%s\n",
                     optimizer_of(w, "AdamW(model.parameters(), fused=True)",
                                  "AdamW(model.parameters())", "SGD(model.parameters(), lr=0.1)"));
  say_scaler(w);
  if (has(w, "clip"))
    tsr__buffer_printf(
        &w->text, "# before each step: torch.nn.utils.clip_grad_norm_(model.parameters(), %s)\n",
        word(w, "clip"));
  if (is_away(w, "activations"))
    tsr__buffer_text(
        &w->text,
        "# around each forward: with torch.autograd.graph.save_on_cpu(pin_memory=True):\n");
  if (parts_of(w) > 1)
    tsr__buffer_printf(&w->text, "# each step: %llu backward passes of %llu sequences\n",
                       parts_of(w), micro_of(w));
}

static void say_torchtitan(writer *w) {
  const char *dtype = word(w, "dtype");
  long long ranks = ranks_of(w);
  tsr__buffer_printf(
      &w->text, "[training]\nlocal_batch_size = %llu\nglobal_batch_size = %llu\nseq_len = %llu\n",
      micro_of(w), global_batch_of(w),
      (unsigned long long)(w->how->sequence ? w->how->sequence : 1));
  tsr__buffer_printf(&w->text, "dtype = \"%s\"\nmixed_precision_param = \"%s\"\n",
                     is_word(w, "dtype", "bf16") ? "bfloat16" : "float32",
                     *dtype ? "bfloat16" : "float32");
  tsr__buffer_printf(&w->text, "max_norm = %s\n", has(w, "clip") ? word(w, "clip") : "inf");
  if (is_away(w, "optimizer")) tsr__buffer_text(&w->text, "enable_cpu_offload = true\n");
  tsr__buffer_printf(&w->text, "\n[optimizer]\nname = \"AdamW\"\nimplementation = \"%s\"\n",
                     is_word(w, "optimizer", "adamw-loop")
                         ? "for-loop"
                         : optimizer_of(w, "fused", "foreach", "foreach"));
  if (has(w, "optimizer_in_backward"))
    tsr__buffer_text(&w->text, "early_step_in_backward = true\n");
  if (is_word(w, "optimizer", "sgd"))
    cannot(w, "SGD; AdamW's state takes 8 bytes a parameter more");
  tsr__buffer_printf(&w->text, "\n[activation_checkpoint]\nmode = \"%s\"\n",
                     runs_again(w) ? "full" : "none");
  if (!ranks) return;
  bool is_spread = stage_of(w) > 0;
  tsr__buffer_printf(&w->text,
                     "\n[parallelism]  # ZeRO stage %lld\ndata_parallel_replicate_degree = %lld\n"
                     "data_parallel_shard_degree = %lld\nfsdp_reshard_after_forward = \"%s\"\n",
                     (long long)stage_of(w), is_spread ? 1 : ranks, is_spread ? ranks : 1,
                     stage_of(w) == 3 ? "always" : "never");
}

/* Arguments of pretrain_gpt.py, one a line. */
static void say_megatron_blocks(writer *w) {
  const char *checkpoint = word(w, "checkpoint");
  if (!runs_again(w)) return;
  if (strcmp(checkpoint, "selective") == 0) {
    tsr__buffer_text(&w->text, "--recompute-granularity selective\n");
    return;
  }
  bool is_block = has(w, "blocks") && !is_word(w, "checkpoint", "full"), are_first;
  tsr__buffer_printf(
      &w->text,
      "--recompute-granularity full\n--recompute-method %s\n--recompute-num-layers %lld\n",
      is_block ? "block" : "uniform",
      is_block ? (long long)blocks_of(json_object_get(w->root, "blocks"), &are_first)
      : strncmp(checkpoint, "every:", 6) == 0 ? strtoll(checkpoint + 6, NULL, 10)
                                              : 1);
}

static void say_megatron_ranks(writer *w) {
  static const char *const strategies[] = {"", "", "optim_grads", "optim_grads_params"};
  json_int_t stage = stage_of(w);
  if (!ranks_of(w)) return;
  if (stage) tsr__buffer_text(&w->text, "--use-distributed-optimizer\n");
  if (stage >= 2)
    tsr__buffer_printf(&w->text, "--use-megatron-fsdp\n--data-parallel-sharding-strategy %s\n",
                       strategies[stage]);
  if (!has(w, "no_overlap")) tsr__buffer_text(&w->text, "--overlap-grad-reduce\n");
}

static void say_megatron(writer *w) {
  const char *dtype = word(w, "dtype");
  tsr__buffer_printf(&w->text,
                     "--micro-batch-size %llu\n--global-batch-size %llu\n--seq-length %llu\n",
                     micro_of(w), global_batch_of(w),
                     (unsigned long long)(w->how->sequence ? w->how->sequence : 1));
  say_megatron_ranks(w);
  if (*dtype) tsr__buffer_printf(&w->text, "--%s\n", strstr(dtype, "bf16") ? "bf16" : "fp16");
  tsr__buffer_printf(&w->text, "--optimizer %s\n", is_word(w, "optimizer", "sgd") ? "sgd" : "adam");
  tsr__buffer_printf(&w->text, "--clip-grad %s\n", has(w, "clip") ? word(w, "clip") : "0.0");
  if (is_away(w, "optimizer"))
    tsr__buffer_text(&w->text, "--use-precision-aware-optimizer\n--optimizer-cpu-offload\n"
                               "--optimizer-offload-fraction 1.0\n");
  say_megatron_blocks(w);
  if (is_word(w, "attention", "eager")) tsr__buffer_text(&w->text, "--attention-backend unfused\n");
  if (is_word(w, "attention", "flash")) tsr__buffer_text(&w->text, "--attention-backend flash\n");
}

static void say_env(writer *w) {
  assert(!w->text.size);
  tsr__buffer_text(&w->text, "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n");
  cannot(w, "anything of the plan: variables set the allocator alone");
}

static void say_tessera(writer *w) {
  (void)w;
}

static const struct {
  const char *name, *comment;
  unsigned says, stages; /* stages: a bit for each of ZeRO's */
  void (*say)(writer *w);
} targets[] = {
    {"hf", "# ", SAYS_AUTOCAST | SAYS_FULL | SAYS_LOSS, STAGE_0 | STAGE_2 | STAGE_3, say_hf},
    {"deepspeed", "// ", SAYS_FULL | SAYS_OFFLOAD_STATE, STAGES, say_deepspeed},
    {"fsdp2", "# ", SAYS_AUTOCAST | SAYS_FULL | SAYS_RANGES | SAYS_OFFLOAD_STATE | SAYS_ACTIVATIONS,
     STAGE_2 | STAGE_3, say_fsdp2},
    {"torchtitan", "# ",
     SAYS_AUTOCAST | SAYS_NO_FP16 | SAYS_FULL | SAYS_OFFLOAD_STATE | SAYS_IN_BACKWARD,
     STAGE_0 | STAGE_2 | STAGE_3, say_torchtitan},
    {"megatron", "# ", SAYS_FULL | SAYS_FIRST | SAYS_SOME | SAYS_OPTIMIZER, STAGES, say_megatron},
    {"env", "# ", 0, 0, say_env},
    {"tessera", "# ", 0, 0, say_tessera},
};

unsigned tsr_target_allows(const char *target, const tsr_model *model) {
  static const struct {
    unsigned says, allow;
  } needs[] = {{SAYS_LOSS, TSR_ALLOW_LOSS_CHUNK},
               {SAYS_IN_BACKWARD, TSR_ALLOW_IN_BACKWARD},
               {SAYS_OFFLOAD_STATE | SAYS_OPTIMIZER, TSR_ALLOW_OFFLOAD}};
  unsigned allow = TSR_ALLOW_DEFAULT, says = 0;
  for (size_t i = 0; i < sizeof targets / sizeof *targets; i++)
    if (strcmp(targets[i].name, target) == 0) says = targets[i].says;
  if (!says) return allow; /* the plan file, or variables, which are no plan */
  for (size_t i = 0; i < sizeof needs / sizeof *needs; i++)
    if (!(says & needs[i].says)) allow &= ~needs[i].allow;
  if (strstr(tsr_model_name(model), "gpt2")) allow &= ~(unsigned)TSR_ALLOW_LOSS_CHUNK; /* Liger */
  return allow;
}

/* ---- all of it ---- */

/* What the target's own plan takes, as a comment. */
static int say_cost(writer *w, const tsr_model *model, const tsr_simulate_options *how,
                    tsr__buffer *out, tsr_error *error) {
  tsr_run_plan *plan = NULL;
  tsr_run_plan_cost cost;
  char reserved[32];
  int status = tsr__planner_parse(w->root, &plan, error);
  if (status == 0) status = tsr_run_plan_measure(plan, model, how, &cost, error);
  tsr_run_plan_free(plan);
  if (status == TSR_ERROR_ARGUMENT || status == TSR_ERROR_UNSUPPORTED) {
    tsr__buffer_printf(out, "%sthe nearest that this can say does not suit the model\n",
                       w->comment);
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

/* FSDP gathers the parameters outside of blocks as one unit, the root, where tessera gathers embeddings and head one after
 * the other; and copies them from one buffer into the tensors of the module. */
static void say_root(writer *w, const tsr_model *model) {
  uint64_t tables = model->is_tied ? 1 : 2, each = strstr(word(w, "dtype"), "16") ? 2 : 4;
  char size[32];
  if (stage_of(w) != 3) return;
  cannot(w,
         "that the root's parameters, such as embeddings and head, are gathered together and "
         "copied: up to %s more",
         tsr_size_text(2 * tables * model->vocabulary * model->width * each, size, sizeof size));
}

static int paste(writer *w, size_t target, const tsr_model *model, tsr__buffer *out,
                 tsr_error *error) {
  tsr_simulate_options how = *w->how;
  bool is_env = targets[target].say == say_env;
  w->comment = targets[target].comment;
  if (is_env) how.settings.expandable_segments = true;
  bool ok = is_env || near_plan(w, targets[target].says);
  ok = ok && (is_env || near_stage(w, targets[target].stages));
  if (targets[target].say == say_deepspeed) ok = ok && near_host(w);
  if (ok) targets[target].say(w);
  if (ok && !is_env && targets[target].say != say_deepspeed) say_ranks(w);
  bool is_fsdp = targets[target].say == say_hf || targets[target].say == say_fsdp2 ||
                 targets[target].say == say_torchtitan;
  if (ok && is_fsdp) say_root(w, model);
  if (!ok || w->text.failed || w->cannot.failed) return tsr__fail_memory(error);
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
    return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE, "'%.40s' is no target", target);
  if (tsr_model_is_traced(model) && targets[i].say != say_tessera)
    return tsr__fail(error, TSR_ERROR_UNSUPPORTED, TSR_OFFSET_NONE,
                     "%s cannot say which modules are computed again: --for tessera can", target);
  w.root = json_loads(tsr_run_plan_text(plan), 0, NULL);
  int status = w.root ? 0 : tsr__fail_memory(error);
  if (status == 0 && targets[i].say == say_tessera)
    tsr__buffer_text(&out, tsr_run_plan_text(plan));
  else if (status == 0)
    status = paste(&w, i, model, &out, error);
  if (status == 0 && out.failed) status = tsr__fail_memory(error);
  if (status == 0 && write(context, out.data, out.size)) status = TSR_ERROR_WRITE;
  *reserved_bytes = w.reserved_bytes;
  json_decref(w.root);
  tsr__buffer_release(&w.text);
  tsr__buffer_release(&w.cannot);
  tsr__buffer_release(&out);
  return status;
}
