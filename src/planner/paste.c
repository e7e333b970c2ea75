/* paste.c - a plan in the words of other programs.
 *
 * Each target can say some keys of a plan. What it cannot say is taken out, or replaced by the nearest that it can; that
 * is the plan whose cost is printed, and each difference is a comment. */
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "planner/planner.h"

/* What a target says of a plan, as bits. */
enum {
  SAYS_RANGES = 1,        /* whole blocks, some of them */
  SAYS_FULL = 2,          /* all blocks */
  SAYS_OFFLOAD_STATE = 4, /* optimizer, and gradients and parameters with it */
  SAYS_ACTIVATIONS = 8,   /* on the host */
  SAYS_IN_BACKWARD = 16,
  SAYS_AUTOCAST = 64,
  SAYS_LOSS = 32, /* a loss that makes no logits */
};

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

/* Backward passes in a step. */
static unsigned long long parts_of(const writer *w) {
  json_int_t batches = json_integer_value(json_object_get(w->root, "accumulate"));
  assert(micro_of(w));
  return batch_of(w) / micro_of(w) * (batches ? (unsigned long long)batches : 1);
}

static bool runs_all_again(const writer *w) {
  return is_word(w, "checkpoint", "full") || has(w, "blocks");
}

/* ---- the nearest plan ---- */

static bool is_whole(const json_t *range) {
  const char *checkpoint = json_string_value(json_object_get(range, "checkpoint"));
  return checkpoint && strcmp(checkpoint, "full") == 0 && !json_object_get(range, "saved");
}

static bool set(writer *w, const char *key, const char *value) {
  return json_object_set_new(w->root, key, json_string(value)) == 0;
}

/* Ranges become whole blocks, if the target has these, and else all blocks. */
static bool near_blocks(writer *w, unsigned says) {
  assert(says & SAYS_FULL);
  json_t *ranges = json_object_get(w->root, "blocks"), *range;
  const char *checkpoint = word(w, "checkpoint");
  size_t i;
  bool ok = true, is_said = true;
  if (*checkpoint && strcmp(checkpoint, "full") != 0 && strcmp(checkpoint, "none") != 0) {
    cannot(w, "checkpoint %s; the nearest is each block on its own", checkpoint);
    ok = set(w, "checkpoint", "full");
  }
  json_array_foreach(ranges, i, range) {
    if (is_whole(range)) continue;
    is_said = false;
    (void)json_object_del(range, "saved");
    ok = ok && json_object_set_new(range, "checkpoint", json_string("full")) == 0;
  }
  if (!is_said) cannot(w, "some tensors computed again; the nearest is the whole block");
  if (!ranges || says & SAYS_RANGES) return ok;
  cannot(w, "which blocks are computed again; the nearest is all");
  (void)json_object_del(w->root, "blocks");
  return ok && set(w, "checkpoint", "full");
}

static bool near_offload(writer *w, unsigned says) {
  bool state = says & SAYS_OFFLOAD_STATE && is_away(w, "optimizer");
  bool activations = says & SAYS_ACTIVATIONS && is_away(w, "activations");
  if (!has(w, "offload")) return true;
  if (is_away(w, "optimizer") && !state)
    cannot(w, "optimizer, gradients or parameters on the host");
  if (is_away(w, "activations") && !activations) cannot(w, "activations on the host");
  (void)json_object_del(w->root, "offload");
  if (!state && !activations) return true;
  return set(w, "offload",
             !activations ? "optimizer,gradients,parameters"
             : state      ? "optimizer,gradients,parameters,activations"
                          : "activations");
}

/* DeepSpeed has weights of 16 bits, and masters of them. */
static bool near_types(writer *w, unsigned says) {
  const char *dtype = word(w, "dtype");
  if (says & SAYS_AUTOCAST || !*dtype) return true;
  cannot(w, "%s; the nearest has weights of 16 bits with fp32 masters", dtype);
  return set(w, "dtype", strstr(dtype, "bf16") ? "bf16" : "fp16") &&
         json_object_set_new(w->root, "master_weights", json_true()) == 0;
}

static bool near_plan(writer *w, unsigned says) {
  if (has(w, "loss") && !(says & SAYS_LOSS)) {
    cannot(w, "the loss of some tokens at a time; Liger's fused linear cross entropy comes near");
    (void)json_object_del(w->root, "loss");
  }
  if (has(w, "optimizer_in_backward") && !(says & SAYS_IN_BACKWARD)) {
    cannot(w, "the optimizer in backward");
    (void)json_object_del(w->root, "optimizer_in_backward");
  }
  return near_types(w, says) && near_blocks(w, says) && near_offload(w, says);
}

/* ---- what is the same for all that are Python ---- */

static void say_model(writer *w) {
  if (is_word(w, "gelu", "fused"))
    tsr__buffer_text(
        &w->text,
        "model.config.activation_function = \"gelu_pytorch_tanh\"  # before it is built\n");
  if (has(w, "no_kv_cache")) tsr__buffer_text(&w->text, "model.config.use_cache = False\n");
  if (is_word(w, "attention", "eager"))
    tsr__buffer_text(&w->text, "model.set_attn_implementation(\"eager\")\n");
  if (is_word(w, "attention", "flash"))
    tsr__buffer_text(&w->text, "model.set_attn_implementation(\"flash_attention_2\")\n");
  if (is_word(w, "dtype", "bf16")) tsr__buffer_text(&w->text, "model.to(torch.bfloat16)\n");
  if (is_word(w, "dtype", "fp16")) tsr__buffer_text(&w->text, "model.to(torch.float16)\n");
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
  if (runs_all_again(w))
    tsr__buffer_printf(&w->text,
                       "    gradient_checkpointing=True,\n"
                       "    gradient_checkpointing_kwargs={\"use_reentrant\": %s},\n",
                       is_word(w, "checkpoint_form", "non-reentrant") ? "False" : "True");
  tsr__buffer_text(&w->text, ")\n");
}

static int append(const char *text, size_t size_bytes, void *context) {
  tsr__buffer_append(context, text, size_bytes);
  return 0;
}

static void say_deepspeed(writer *w) {
  json_t *zero = json_object(), *out;
  bool away = is_away(w, "optimizer");
  const char *dtype = word(w, "dtype");
  out = json_pack("{s:I,s:I}", "train_micro_batch_size_per_gpu", (json_int_t)micro_of(w),
                  "gradient_accumulation_steps", (json_int_t)parts_of(w));
  (void)json_object_set_new(zero, "stage", json_integer(away ? 3 : 0));
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
  if (runs_all_again(w))
    cannot(w, "blocks computed again, which is model.gradient_checkpointing_enable()");
  if (has(w, "no_kv_cache"))
    cannot(w, "no key-value cache, which is model.config.use_cache = False");
  if (is_word(w, "gelu", "fused"))
    cannot(w, "a fused GELU, which is activation_function \"gelu_pytorch_tanh\" of the model");
}

static void say_checkpoints(writer *w) {
  json_t *ranges = json_object_get(w->root, "blocks"), *range;
  size_t i;
  if (!runs_all_again(w)) return;
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

static void say_fsdp2(writer *w) {
  bool casts = strncmp(word(w, "dtype"), "autocast-", 9) == 0;
  tsr__buffer_text(
      &w->text,
      "import torch\n"
      "from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (\n"
      "    CheckpointImpl, checkpoint_wrapper)\n"
      "from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard\n\n");
  say_model(w);
  tsr__buffer_printf(&w->text, "blocks = model.%s\n",
                     strstr(w->model, "gpt2") ? "transformer.h" : "model.layers");
  say_checkpoints(w);
  tsr__buffer_text(&w->text, "options = {}\n");
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
                                  "AdamW(model.parameters())", "SGD(model.parameters())"));
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
  tsr__buffer_printf(
      &w->text, "[training]\nlocal_batch_size = %llu\nglobal_batch_size = %llu\nseq_len = %llu\n",
      micro_of(w), micro_of(w) * parts_of(w),
      (unsigned long long)(w->how->sequence ? w->how->sequence : 1));
  if (strncmp(dtype, "autocast-", 9) == 0)
    tsr__buffer_printf(&w->text, "mixed_precision_param = \"%s\"\n",
                       strstr(dtype, "bf16") ? "bfloat16" : "float16");
  else if (*dtype)
    tsr__buffer_printf(&w->text, "dtype = \"%s\"\n",
                       strcmp(dtype, "bf16") == 0 ? "bfloat16" : "float16");
  if (has(w, "clip")) tsr__buffer_printf(&w->text, "max_norm = %s\n", word(w, "clip"));
  if (is_away(w, "optimizer")) tsr__buffer_text(&w->text, "enable_cpu_offload = true\n");
  tsr__buffer_printf(&w->text, "\n[optimizer]\nname = \"AdamW\"\nimplementation = \"%s\"\n",
                     optimizer_of(w, "fused", "foreach", "foreach"));
  if (has(w, "optimizer_in_backward"))
    tsr__buffer_text(&w->text, "early_step_in_backward = true\n");
  if (is_word(w, "optimizer", "sgd"))
    cannot(w, "SGD; AdamW's state takes 8 bytes a parameter more");
  tsr__buffer_printf(&w->text, "\n[activation_checkpoint]\nmode = \"%s\"\n",
                     runs_all_again(w) ? "full" : "none");
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
  unsigned says;
  void (*say)(writer *w);
} targets[] = {
    {"hf", "# ", SAYS_AUTOCAST | SAYS_FULL | SAYS_LOSS, say_hf},
    {"deepspeed", "// ", SAYS_FULL | SAYS_OFFLOAD_STATE, say_deepspeed},
    {"fsdp2", "# ", SAYS_AUTOCAST | SAYS_FULL | SAYS_RANGES | SAYS_OFFLOAD_STATE | SAYS_ACTIVATIONS,
     say_fsdp2},
    {"torchtitan", "# ", SAYS_AUTOCAST | SAYS_FULL | SAYS_OFFLOAD_STATE | SAYS_IN_BACKWARD,
     say_torchtitan},
    {"env", "# ", 0, say_env},
    {"tessera", "# ", 0, say_tessera},
};

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

static int paste(writer *w, size_t target, const tsr_model *model, tsr__buffer *out,
                 tsr_error *error) {
  tsr_simulate_options how = *w->how;
  bool is_env = targets[target].say == say_env;
  w->comment = targets[target].comment;
  if (is_env) how.settings.expandable_segments = true;
  bool ok = is_env || near_plan(w, targets[target].says);
  if (ok) targets[target].say(w);
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
