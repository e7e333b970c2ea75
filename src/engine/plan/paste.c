/* paste.c - see paste.h: the nearest plan that a target supports, its cost, and what the texts share.
 *
 * The printed cost belongs to the nearest plan. Each difference from the plan that was asked for is a note. Notes are
 * comments above the text, or apart from it if its format has no comments. */
#include "plan/paste.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "ask/question.h"
#include "base/error.h"
#include "base/format.h"
#include "base/memory.h"
#include "plan/planner.h"

/* ---- notes ---- */

static void add_note(tsr__paste *p, const char *before, const char *format, va_list args) {
  char line[512];
  (void)vsnprintf(line, sizeof line, format, args);
  tsr__buffer_printf(&p->notes, "%s%s\n", before, line);
}

void tsr__paste_cannot(tsr__paste *p, const char *format, ...) {
  va_list args;
  va_start(args, format);
  add_note(p, "not supported: ", format, args);
  va_end(args);
  p->lacking++;
}

void tsr__paste_elsewhere(tsr__paste *p, const char *format, ...) {
  va_list args;
  va_start(args, format);
  add_note(p, "not in this text: ", format, args);
  va_end(args);
}

/* ---- what the plan chooses ---- */

bool tsr__paste_is_autocast(const tsr__paste *p) {
  return p->o->dtype == TSR_SIMULATE_AUTOCAST_BF16 || p->o->dtype == TSR_SIMULATE_AUTOCAST_FP16;
}

bool tsr__paste_is_bf16(const tsr__paste *p) {
  return p->o->dtype == TSR_SIMULATE_BF16 || p->o->dtype == TSR_SIMULATE_AUTOCAST_BF16;
}

bool tsr__paste_is_fp16(const tsr__paste *p) {
  return p->o->dtype == TSR_SIMULATE_FP16 || p->o->dtype == TSR_SIMULATE_AUTOCAST_FP16;
}

const char *tsr__paste_option(const tsr__paste *p, const char *option,
                              char text[TSR__OPTION_BYTES]) {
  tsr__option_text(tsr__option_find(option), p->o, text);
  return text;
}

static unsigned long long batch_of(const tsr__paste *p) {
  return p->how->batch ? p->how->batch : 1;
}

unsigned long long tsr__paste_micro_batch(const tsr__paste *p) {
  return p->o->micro_batch ? p->o->micro_batch : batch_of(p);
}

unsigned long long tsr__paste_sequence(const tsr__paste *p) {
  return p->how->sequence ? p->how->sequence : 1;
}

unsigned long long tsr__paste_ranks(const tsr__paste *p) {
  return p->o->ranks > 1 ? p->o->ranks : 0;
}

unsigned long long tsr__paste_passes(const tsr__paste *p) {
  assert(tsr__paste_micro_batch(p));
  return batch_of(p) / tsr__paste_micro_batch(p) * p->o->accumulate;
}

unsigned long long tsr__paste_global_batch(const tsr__paste *p) {
  unsigned long long ranks = tsr__paste_ranks(p);
  return tsr__paste_micro_batch(p) * tsr__paste_passes(p) * (ranks ? ranks : 1);
}

unsigned tsr__paste_away(const tsr__paste *p) {
  const tsr_offload *away = &p->o->offload;
  return (away->optimizer ? TSR__AWAY_OPTIMIZER : 0) | (away->gradients ? TSR__AWAY_GRADIENTS : 0) |
         (away->parameters ? TSR__AWAY_PARAMETERS : 0);
}

bool tsr__paste_recomputes(const tsr__paste *p) {
  return p->o->checkpoint != TSR_CHECKPOINT_NONE || p->plan->blocks.count;
}

bool tsr__paste_is_gpt2(const tsr__paste *p) {
  return strstr(p->name, "gpt2") != NULL;
}

uint64_t tsr__paste_blocks(const tsr_run_plan *plan, bool *are_first) {
  uint64_t count = 0;
  *are_first = true;
  for (size_t i = 0; i < plan->blocks.count; i++) {
    const tsr_block_choice *range = &plan->blocks.items[i];
    *are_first = *are_first && range->first == count;
    count += range->last + 1 - range->first;
  }
  return count;
}

/* ---- the nearest plan ---- */

/* Whether `word` is one of the words of a list with blanks between. */
static bool is_listed(const char *list, const char *word) {
  size_t length = strlen(word);
  for (const char *at = strstr(list, word); at; at = strstr(at + 1, word))
    if ((at == list || at[-1] == ' ') && (at[length] == ' ' || !at[length])) return true;
  return false;
}

/* Reset options that the target does not have. */
static void near_options(tsr__paste *p, const tsr__target_row *target) {
  char text[TSR__OPTION_BYTES];
  const tsr_parameter *row;
  for (size_t i = 0; (row = tsr__option_at(i)) != NULL; i++) {
    if (tsr__option_is_default(row, p->o) || is_listed(target->options, row->name)) continue;
    tsr__option_text(row, p->o, text);
    tsr__paste_cannot(p, "%s%s%s", row->option ? row->option : row->name, *text ? " " : "", text);
    tsr__option_reset(row, p->o);
  }
}

/* Whether the target supports this choice for all blocks. */
static bool is_said(tsr_simulate_checkpoint checkpoint, unsigned says) {
  switch (checkpoint) {
  case TSR_CHECKPOINT_NONE:
  case TSR_CHECKPOINT_FULL: return true;
  case TSR_CHECKPOINT_SELECTIVE: return says & TSR__SAYS_SOME;
  case TSR_CHECKPOINT_EVERY: return says & TSR__SAYS_FIRST;
  default: return false;
  }
}

/* Targets recompute whole blocks, not single tensors. */
static void near_ranges(tsr__paste *p) {
  bool is_said = true;
  for (size_t i = 0; i < p->plan->blocks.count; i++) {
    tsr_block_choice *range = &p->plan->blocks.items[i];
    is_said = is_said && range->checkpoint == TSR_CHECKPOINT_FULL && !range->saved_count;
    range->checkpoint = TSR_CHECKPOINT_FULL;
    range->saved_count = 0;
  }
  if (!is_said) tsr__paste_cannot(p, "some tensors computed again; the nearest is the whole block");
}

/* Replace the ranges by as many blocks, counted from the first. */
static void near_first(tsr__paste *p) {
  bool are_first;
  uint64_t count = tsr__paste_blocks(p->plan, &are_first);
  assert(count > 0);
  if (!are_first)
    tsr__paste_cannot(p, "which blocks are computed again; the nearest is the first %llu",
                      (unsigned long long)count);
  p->plan->blocks.items[0] =
      (tsr_block_choice){.last = count - 1, .checkpoint = TSR_CHECKPOINT_FULL};
  p->plan->blocks.count = 1;
}

/* Ranges become whole blocks if the target supports those, or else all blocks. */
static void near_blocks(tsr__paste *p, unsigned says) {
  char text[TSR__OPTION_BYTES];
  if (!is_said(p->o->checkpoint, says)) {
    tsr__paste_cannot(p, "checkpoint %s; the nearest is each block on its own",
                      tsr__paste_option(p, "checkpoint", text));
    tsr__option_set("checkpoint", "full", p->o);
  }
  if (!p->plan->blocks.count) return;
  near_ranges(p);
  if (says & TSR__SAYS_RANGES) return;
  if (says & TSR__SAYS_FIRST && p->o->checkpoint != TSR_CHECKPOINT_FULL) {
    near_first(p);
    return;
  }
  tsr__paste_cannot(p, "which blocks are computed again; the nearest is all");
  tsr__run_plan_clear_blocks(p->plan);
  tsr__option_set("checkpoint", "full", p->o);
}

/* Whether one set of what is on the host is nearer than another: the least that contains what the plan has there, which
 * needs no more memory, or else the most of it. */
static bool is_nearer(unsigned set, unsigned than, unsigned wanted) {
  bool contains = (set & wanted) == wanted, than_contains = (than & wanted) == wanted;
  if (contains != than_contains) return contains;
  return contains ? (set & than) == set : (set & wanted & ~than) != 0;
}

static void name_away(unsigned set, char text[TSR__OPTION_BYTES]) {
  static const char *const names[] = {"optimizer", "gradients", "parameters"};
  *text = '\0';
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (set >> i & 1)
      (void)snprintf(text + strlen(text), TSR__OPTION_BYTES - strlen(text), "%s%s",
                     *text ? ", " : "", names[i]);
}

static tsr_space place(unsigned set, unsigned bit) {
  return set & bit ? TSR_SPACE_HOST : TSR_SPACE_DEVICE;
}

static void near_state(tsr__paste *p, const uint8_t *sets, size_t count) {
  char wanted_text[TSR__OPTION_BYTES], nearest_text[TSR__OPTION_BYTES];
  unsigned wanted = tsr__paste_away(p), nearest = 0;
  for (size_t i = 0; i < count && wanted; i++)
    if (sets[i] & wanted && is_nearer(sets[i], nearest, wanted)) nearest = sets[i];
  if (nearest == wanted) return;
  name_away(wanted, wanted_text);
  name_away(nearest, nearest_text);
  tsr__paste_cannot(p, nearest ? "%s on the host; the nearest is %s" : "%s on the host",
                    wanted_text, nearest_text);
  p->o->offload.optimizer = place(nearest, TSR__AWAY_OPTIMIZER);
  p->o->offload.gradients = place(nearest, TSR__AWAY_GRADIENTS);
  p->o->offload.parameters = place(nearest, TSR__AWAY_PARAMETERS);
}

static void near_activations(tsr__paste *p, unsigned says) {
  tsr_space *where = &p->o->offload.activations;
  const char *name = *where == TSR_SPACE_DISK ? "disk" : "host";
  if (*where == TSR_SPACE_DEVICE) return;
  if (!(says & TSR__SAYS_ACTIVATIONS)) {
    tsr__paste_cannot(p, "activations on the %s", name);
    *where = TSR_SPACE_DEVICE;
  } else if (*where == TSR_SPACE_DISK) {
    tsr__paste_cannot(p, "activations on the disk; the nearest is on the host");
    *where = TSR_SPACE_HOST;
  }
}

/* Some targets have fp32 weights under autocast, and 16-bit weights alone; others 16-bit weights with fp32 masters. */
static void near_types(tsr__paste *p, unsigned says) {
  char text[TSR__OPTION_BYTES];
  bool is_autocast = tsr__paste_is_autocast(p);
  if (p->o->lora_rank) p->o->master_weights = false; /* adapters are fp32 anyway */
  if (tsr__paste_is_fp16(p) && !(says & TSR__SAYS_FP16)) {
    tsr__paste_cannot(p, "fp16; the nearest is bf16");
    p->o->dtype = is_autocast ? TSR_SIMULATE_AUTOCAST_BF16 : TSR_SIMULATE_BF16;
  }
  if (p->o->master_weights && !(says & TSR__SAYS_MASTERS)) {
    tsr__paste_cannot(p,
                      "16-bit weights with fp32 masters (master-weights); the nearest is autocast");
    p->o->dtype = tsr__paste_is_bf16(p) ? TSR_SIMULATE_AUTOCAST_BF16 : TSR_SIMULATE_AUTOCAST_FP16;
    p->o->master_weights = false;
  }
  bool has_masters = p->o->master_weights || p->o->lora_rank;
  if (!(says & TSR__SAYS_AUTOCAST) && p->o->dtype != TSR_SIMULATE_FP32 &&
      (is_autocast || !has_masters)) {
    tsr__paste_cannot(p, "%s; the nearest has weights of 16 bits with fp32 masters",
                      tsr__paste_option(p, "dtype", text));
    p->o->dtype = tsr__paste_is_bf16(p) ? TSR_SIMULATE_BF16 : TSR_SIMULATE_FP16;
    p->o->master_weights = !p->o->lora_rank;
  }
  if (!tsr__paste_is_fp16(p)) p->o->loss_scale = 0;
  if (!tsr__paste_is_fp16(p)) p->o->loss_scale_window = 0;
}

/* Replace the stage of ZeRO by the nearest one that the target supports. That is the next higher one, which shards more,
 * and sends more only if it is stage 3. */
static void near_stage(tsr__paste *p, unsigned stages) {
  uint64_t stage = p->o->zero, nearest = stage;
  if (!tsr__paste_ranks(p)) return;
  while (nearest < 3 && !(stages >> nearest & 1)) nearest++;
  if (nearest == stage) return;
  tsr__paste_cannot(p, "ZeRO stage %llu; the nearest is stage %llu", (unsigned long long)stage,
                    (unsigned long long)nearest);
  p->o->zero = nearest;
}

/* A process that is alone is not told that it is one of several. */
static void near_ranks(tsr__paste *p, const tsr__target_row *target) {
  if (p->o->ranks != 1 || (target->zero_alone && p->o->zero)) return;
  if (p->o->zero)
    tsr__paste_cannot(p, "ZeRO stage %llu on one rank; the nearest is without ZeRO",
                      (unsigned long long)p->o->zero);
  p->o->ranks = p->o->zero = p->o->bucket_elements = 0;
  p->o->no_overlap = false;
}

/* PyTorch computes the gradients of each micro-batch separately, and then adds them. */
static void near_accumulation(tsr__paste *p) {
  if (p->o->accumulation == TSR_ACCUMULATION_FLAT)
    tsr__paste_cannot(p, "accumulation flat; the nearest is grouped");
  p->o->accumulation = TSR_ACCUMULATION_AUTO;
}

static void near_plan(tsr__paste *p, const tsr__target_row *target) {
  near_options(p, target);
  near_accumulation(p);
  near_types(p, target->says);
  near_blocks(p, target->says);
  near_state(p, target->away, sizeof target->away);
  near_activations(p, target->says);
  near_ranks(p, target);
  near_stage(p, target->stages);
  if (target->near) target->near(p);
}

/* ---- lines that several targets share ---- */

void tsr__paste_model(tsr__paste *p) {
  tsr__buffer *out = &p->text;
  if (p->o->gelu_fused)
    tsr__buffer_text(out, "# made of a config with activation_function=\"gelu_pytorch_tanh\"\n");
  if (p->o->no_kv_cache) tsr__buffer_text(out, "model.config.use_cache = False\n");
  if (p->o->attention == TSR_ATTENTION_EAGER)
    tsr__buffer_text(out, "model.set_attn_implementation(\"eager\")\n");
  if (p->o->attention == TSR_ATTENTION_FLASH)
    tsr__buffer_text(out, "model.set_attn_implementation(\"flash_attention_2\")\n");
  if (p->o->dtype == TSR_SIMULATE_BF16) tsr__buffer_text(out, "model.to(torch.bfloat16)\n");
  if (p->o->dtype == TSR_SIMULATE_FP16) tsr__buffer_text(out, "model.to(torch.float16)\n");
}

void tsr__paste_model_notes(tsr__paste *p) {
  tsr_simulate_attention attention = p->o->attention;
  if (tsr__paste_recomputes(p))
    tsr__paste_elsewhere(p,
                         "blocks computed again, which is model.gradient_checkpointing_enable("
                         "gradient_checkpointing_kwargs={\"use_reentrant\": %s})",
                         p->o->non_reentrant ? "False" : "True");
  if (p->o->no_kv_cache)
    tsr__paste_elsewhere(p, "no key-value cache, which is model.config.use_cache = False");
  if (p->o->gelu_fused)
    tsr__paste_elsewhere(
        p, "a fused GELU, which is activation_function \"gelu_pytorch_tanh\" of the model");
  if (attention == TSR_ATTENTION_EAGER || attention == TSR_ATTENTION_FLASH)
    tsr__paste_elsewhere(p, "attention, which is model.set_attn_implementation(\"%s\")",
                         attention == TSR_ATTENTION_EAGER ? "eager" : "flash_attention_2");
}

void tsr__paste_launch(tsr__paste *p) {
  unsigned long long ranks = tsr__paste_ranks(p);
  if (ranks)
    tsr__paste_elsewhere(p, "%llu ranks, which is torchrun --nproc-per-node %llu", ranks, ranks);
}

void tsr__paste_adapters(tsr__paste *p) {
  char alpha[TSR__OPTION_BYTES], targets[TSR__OPTION_BYTES], dropout[TSR__OPTION_BYTES];
  if (!p->o->lora_rank) return;
  bool has_alpha = p->o->lora_alpha > 0, has_targets = p->o->lora_targets != 0;
  bool has_dropout = p->o->lora_dropout > 0;
  if (p->o->quantize)
    tsr__paste_elsewhere(
        p,
        "weights in 4 bits, for which the model is loaded with "
        "BitsAndBytesConfig(load_in_4bit=True, "
        "bnb_4bit_quant_type=\"%s\", bnb_4bit_use_double_quant=%s, bnb_4bit_compute_dtype=%s)",
        p->o->quantize == TSR_QUANTIZE_FP4 ? "fp4" : "nf4", p->o->double_quant ? "True" : "False",
        tsr__paste_is_bf16(p)   ? "torch.bfloat16"
        : tsr__paste_is_fp16(p) ? "torch.float16"
                                : "torch.float32");
  bool is_again = p->o->kbit_training == TSR_KBIT_CHECKPOINTING;
  if (p->o->kbit_training)
    tsr__paste_elsewhere(p,
                         "what peft.prepare_model_for_kbit_training(model, "
                         "use_gradient_checkpointing=%s%s) prepares",
                         is_again ? "True" : "False",
                         is_again && p->o->non_reentrant
                             ? ", gradient_checkpointing_kwargs={\"use_reentrant\": False}"
                             : "");
  tsr__paste_elsewhere(
      p,
      "adapters, which are peft.get_peft_model(model, peft.LoraConfig(r=%llu%s%s%s%s)%s), where "
      "target_modules is %s",
      (unsigned long long)p->o->lora_rank, has_alpha ? ", lora_alpha=" : "",
      has_alpha ? tsr__paste_option(p, "lora_alpha", alpha) : "",
      has_dropout ? ", lora_dropout=" : "",
      has_dropout ? tsr__paste_option(p, "lora_dropout", dropout) : "",
      p->o->adapter_dtype == TSR_ADAPTERS_BASE ? ", autocast_adapter_dtype=False" : "",
      has_targets ? tsr__paste_option(p, "lora_targets", targets) : "the default");
}

void tsr__paste_env(tsr__paste *p) {
  tsr__buffer_text(&p->text, "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n");
  tsr__paste_cannot(
      p, "every choice of this plan; environment variables only configure the allocator");
}

const char *tsr__paste_optimizer(const tsr__paste *p) {
  switch (p->o->optimizer) {
  case TSR_OPTIMIZER_ADAMW_FUSED: return "torch.optim.AdamW(model.parameters(), fused=True)";
  case TSR_OPTIMIZER_ADAMW_FOREACH: return "torch.optim.AdamW(model.parameters(), foreach=True)";
  case TSR_OPTIMIZER_ADAMW_LOOP: return "torch.optim.AdamW(model.parameters(), foreach=False)";
  case TSR_OPTIMIZER_SGD: return "torch.optim.SGD(model.parameters(), lr=0.001)";
  case TSR_OPTIMIZER_SGD_MOMENTUM:
    return "torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)";
  case TSR_OPTIMIZER_ADAFACTOR: return "torch.optim.Adafactor(model.parameters())";
  case TSR_OPTIMIZER_ADAMW_8BIT: return "bitsandbytes.optim.AdamW8bit(model.parameters())";
  case TSR_OPTIMIZER_LION: return "bitsandbytes.optim.Lion(model.parameters())";
  case TSR_OPTIMIZER_MUON: return "";
  case TSR_OPTIMIZER_ADAMW: break;
  }
  return "torch.optim.AdamW(model.parameters())";
}

void tsr__near_optimizer(tsr__paste *p, tsr_simulate_optimizer nearest) {
  char text[TSR__OPTION_BYTES], instead[TSR__OPTION_BYTES];
  (void)tsr__paste_option(p, "optimizer", text);
  if (p->o->optimizer == nearest) return;
  p->o->optimizer = nearest;
  tsr__paste_cannot(p, "optimizer %s; the nearest is %s", text,
                    tsr__paste_option(p, "optimizer", instead));
}

void tsr__near_attention(tsr__paste *p) {
  char text[TSR__OPTION_BYTES];
  if (p->o->attention != TSR_ATTENTION_EFFICIENT && p->o->attention != TSR_ATTENTION_CHUNKED)
    return;
  tsr__paste_cannot(p, "attention %s; the nearest is sdpa, for which PyTorch chooses a kernel",
                    tsr__paste_option(p, "attention", text));
  p->o->attention = TSR_ATTENTION_SDPA;
  p->o->attention_chunk = 0;
}

void tsr__near_form(tsr__paste *p, bool is_non_reentrant) {
  static const char *const forms[] = {"reentrant", "non-reentrant"};
  bool is_note = tsr__paste_recomputes(p) || p->o->non_reentrant;
  if (p->o->non_reentrant == is_non_reentrant) return;
  p->o->non_reentrant = is_non_reentrant;
  if (is_note)
    tsr__paste_cannot(p, "%s checkpoints (checkpoint-form); the nearest is %s",
                      forms[!is_non_reentrant], forms[is_non_reentrant]);
}

/* ---- the table ---- */

static const tsr__target_row *find(const char *name) {
  const tsr__target_row *row;
  for (size_t i = 0; (row = tsr__target_at(i)) != NULL; i++)
    if (strcmp(row->name, name) == 0) return row;
  return NULL;
}

/* Whether a target can express one of the techniques that a word of --allow permits. One without options of its own
 * stores tensors in other types, which no target does. */
static bool allows(const tsr__target_row *target, const char *word) {
  for (const tsr__technique_row *t = tsr__techniques; t->allow; t++)
    if (strcmp(t->allow, word) == 0 && t->option && is_listed(target->options, t->option))
      return true;
  return false;
}

const char *tsr__target_name(const char *name) {
  const tsr__target_row *target = find(name);
  return target ? target->name : NULL;
}

int tsr__target_check(const char *name, const tsr_model *model, tsr_error *error) {
  const tsr__target_row *target = find(name);
  if (!target || target->is_plan || !tsr_model_is_traced(model)) return 0;
  return tsr__fail(error, TSR_ERROR_UNSUPPORTED, TSR_OFFSET_NONE,
                   "%s has no words for which modules of a traced model are recomputed: --for "
                   "tessera writes the plan, and tessera.apply(model, plan) follows it in your "
                   "script",
                   name);
}

bool tsr__target_has(const char *name, const char *option) {
  const tsr__target_row *target = find(name);
  return !target || target->is_plan || target->is_allocator || is_listed(target->options, option);
}

unsigned tsr_target_allows(const char *name, const tsr_model *model, unsigned allow) {
  const tsr__target_row *target = find(name);
  if (!target || target->is_plan || target->is_allocator) return allow;
  for (const tsr__technique_row *t = tsr__techniques; t->allow; t++)
    if (!allows(target, t->allow)) allow &= ~tsr__technique_flag(t);
  bool has_parts = target->says & (TSR__SAYS_RANGES | TSR__SAYS_FIRST | TSR__SAYS_SOME);
  if (allow & TSR_ALLOW_RECOMPUTE && !has_parts && !tsr_model_is_traced(model))
    allow = (allow & ~(unsigned)TSR_ALLOW_RECOMPUTE) | TSR_ALLOW_ALL_BLOCKS;
  if (strstr(tsr_model_name(model), "gpt2"))
    allow &= ~(unsigned)TSR_ALLOW_LOSS_CHUNK; /* Liger lacks GPT-2 */
  return allow;
}

int tsr__target_nearest(const char *name, const tsr_model *model, const tsr_simulate_options *how,
                        const tsr_run_plan *plan, tsr_run_plan **out, size_t *replaced,
                        tsr_error *error) {
  const tsr__target_row *target = find(name);
  tsr__paste p = {.model = model, .name = tsr_model_name(model), .how = how};
  *replaced = 0;
  *out = p.plan = tsr__run_plan_copy(plan);
  if (!p.plan) return tsr__fail_memory(error);
  if (!target || target->is_plan || target->is_allocator) return 0;
  p.o = &p.plan->options;
  near_plan(&p, target);
  *replaced = p.lacking;
  bool has_failed = p.notes.failed;
  tsr__buffer_release(&p.notes);
  if (!has_failed) return 0;
  tsr_run_plan_free(p.plan);
  *out = NULL;
  return tsr__fail_memory(error);
}

/* ---- the complete text ---- */

/* FSDP gathers the parameters outside of blocks as one unit, the root, and copies them from one buffer into the
 * tensors of the module. tessera gathers the embeddings and the head one after the other. */
static void note_root(tsr__paste *p) {
  uint64_t tables = p->model->is_tied ? 1 : 2, each = p->o->dtype == TSR_SIMULATE_FP32 ? 4 : 2;
  char size[32];
  if (p->o->zero != 3) return;
  tsr__paste_cannot(
      p,
      "gathering the root's parameters, such as embeddings and head, one by one; together, "
      "and copied, they need up to %s more",
      tsr_size_text(2 * tables * p->model->vocabulary * p->model->width * each, size, sizeof size));
}

/* The first line of the notes: the cost of the nearest plan. */
static int price(const tsr__paste *p, const tsr_simulate_options *how, tsr__buffer *out,
                 uint64_t *reserved_bytes, tsr_error *error) {
  tsr_run_plan_cost cost;
  char reserved[32], time[TSR__FORMAT_BYTES];
  int status = tsr_run_plan_measure(p->plan, p->model, how, &cost, error);
  if (status == TSR_ERROR_ARGUMENT || status == TSR_ERROR_UNSUPPORTED) {
    tsr__buffer_printf(out, "no prediction for the nearest plan that this can express: %s\n",
                       error->message);
    return 0;
  }
  if (status) return status;
  *reserved_bytes = cost.reserved_bytes;
  tsr__buffer_printf(out, "%s, batches of %llu sequence%s: %s reserved, %s a step (estimates)\n",
                     p->name, batch_of(p), batch_of(p) == 1 ? "" : "s",
                     tsr_size_text(cost.reserved_bytes, reserved, sizeof reserved),
                     tsr__format_duration(cost.step_seconds, time));
  return 0;
}

/* Lines as comments. */
static void add_comments(tsr__buffer *out, const char *comment, const tsr__buffer *lines) {
  const char *at = lines->data, *end = at + lines->size;
  while (at < end) {
    const char *next = memchr(at, '\n', (size_t)(end - at));
    assert(next);
    tsr__buffer_text(out, comment);
    tsr__buffer_append(out, at, (size_t)(next + 1 - at));
    at = next + 1;
  }
}

/* Put notes and text together, or apart. */
static void finish(tsr__paste *p, const tsr__target_row *target, tsr__buffer *notes,
                   tsr_pasted *out) {
  tsr__buffer whole = {0};
  if (p->notes.size) tsr__buffer_append(notes, p->notes.data, p->notes.size);
  if (target->comment) add_comments(&whole, target->comment, notes);
  if (p->text.size) tsr__buffer_append(&whole, p->text.data, p->text.size);
  tsr__buffer_append(&whole, "", 1);
  if (!target->comment) {
    tsr__buffer_append(notes, "", 1);
    out->notes = notes->data;
    *notes = (tsr__buffer){.failed = notes->failed};
  }
  out->text = whole.data;
  notes->failed = notes->failed || whole.failed;
}

/* Programs load each micro-batch on its own. */
static void near_batches(tsr__paste *p, tsr_simulate_options *how) {
  how->batch = tsr__paste_micro_batch(p);
  p->o->accumulate = tsr__paste_passes(p);
  p->o->micro_batch = 0;
}

/* Add the lines of `more` that `to` does not have. */
static void add_new_lines(tsr__buffer *to, const tsr__buffer *more) {
  const char *at = more->data, *end = at + more->size;
  size_t before = to->size;
  while (at < end) {
    size_t length = (size_t)((const char *)memchr(at, '\n', (size_t)(end - at)) + 1 - at);
    bool is_known = false;
    for (size_t i = 0; !is_known && i + length <= before; i++)
      is_known = (!i || to->data[i - 1] == '\n') && memcmp(to->data + i, at, length) == 0;
    if (!is_known) tsr__buffer_append(to, at, length);
    at += length;
  }
}

/* Note what the target lacks of the plan that the search began with: `p` is a nearest one already. */
static int note_asked(tsr__paste *p, const tsr__target_row *target, const tsr_run_plan *asked,
                      tsr_error *error) {
  tsr__paste q = {.model = p->model, .name = p->name, .how = p->how};
  q.plan = tsr__run_plan_copy(asked);
  if (!q.plan) return tsr__fail_memory(error);
  q.o = &q.plan->options;
  near_plan(&q, target);
  add_new_lines(&p->notes, &q.notes);
  p->notes.failed = p->notes.failed || q.notes.failed;
  tsr_run_plan_free(q.plan);
  tsr__buffer_release(&q.notes);
  return 0;
}

static int paste(tsr__paste *p, const tsr__target_row *target, const tsr_run_plan *asked,
                 const char *remark, tsr_pasted *out, tsr_error *error) {
  tsr_simulate_options how = *p->how;
  tsr__buffer notes = {0};
  int status = asked && !target->is_allocator ? note_asked(p, target, asked, error) : 0;
  if (status) return status;
  if (target->is_allocator)
    how.settings.expandable_segments = true;
  else
    near_plan(p, target);
  target->write(p);
  if (target->is_fsdp) note_root(p);
  if (remark && !target->is_allocator) tsr__buffer_printf(&p->notes, "%s\n", remark);
  if (!target->is_allocator) near_batches(p, &how);
  status = price(p, &how, &notes, &out->reserved_bytes, error);
  if (status == 0) finish(p, target, &notes, out);
  if (status == 0 && (p->text.failed || p->notes.failed || notes.failed))
    status = tsr__fail_memory(error);
  tsr__buffer_release(&notes);
  return status;
}

static int copy_plan(const tsr_run_plan *plan, tsr_pasted *out, tsr_error *error) {
  tsr__buffer text = {0};
  tsr__buffer_text(&text, tsr_run_plan_text(plan));
  tsr__buffer_append(&text, "", 1);
  out->text = text.data;
  return text.failed ? tsr__fail_memory(error) : 0;
}

int tsr_plan_paste(const tsr_run_plan *plan, const tsr_model *model,
                   const tsr_simulate_options *how, const char *name, tsr_pasted *out,
                   tsr_error *error) {
  return tsr__plan_paste_found(plan, NULL, NULL, model, how, name, out, error);
}

int tsr__plan_paste_found(const tsr_run_plan *plan, const tsr_run_plan *asked, const char *remark,
                          const tsr_model *model, const tsr_simulate_options *how, const char *name,
                          tsr_pasted *out, tsr_error *error) {
  tsr__paste p = {.model = model, .name = tsr_model_name(model), .how = how};
  const tsr__target_row *target = find(name);
  *out = (tsr_pasted){0};
  if (!target) {
    char words[256];
    tsr__list_words(tsr_target_word, words, sizeof words);
    return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                     "unknown target '%.40s'; choose from %s", name, words);
  }
  out->target = target->name;
  out->file = target->file;
  int status = tsr__target_check(name, model, error);
  if (status) return status;
  if (target->is_plan) return copy_plan(plan, out, error);
  p.plan = tsr__run_plan_copy(plan);
  status = p.plan ? 0 : tsr__fail_memory(error);
  if (p.plan) p.o = &p.plan->options;
  if (status == 0) status = paste(&p, target, asked, remark, out, error);
  tsr_run_plan_free(p.plan);
  tsr__buffer_release(&p.text);
  tsr__buffer_release(&p.notes);
  return status;
}

void tsr_pasted_release(tsr_pasted *pasted) {
  tsr__free(pasted->text);
  tsr__free(pasted->notes);
  *pasted = (tsr_pasted){0};
}
