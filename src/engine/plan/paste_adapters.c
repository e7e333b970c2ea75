/* paste_adapters.c - a plan for programs that train adapters: peft with the Trainer of transformers, axolotl, Unsloth.
 *
 * peft is what is simulated, so its text is exact. axolotl runs the same libraries, and converts back what peft's
 * preparation for weights in 4 bits makes fp32. Unsloth replaces kernels of the model and of adapters by its own, so the
 * prediction is that of peft, which a note tells.
 *
 * Names of settings are those of peft 0.21, transformers 4.57, axolotl 0.19 and Unsloth 2026.10. */
#include <string.h>

#include "plan/paste.h"

/* ---- what a plan says about adapters ---- */

static const char *alpha_of(const tsr__paste *p, char text[TSR__OPTION_BYTES]) {
  return p->o->lora_alpha > 0 ? tsr__paste_option(p, "lora_alpha", text) : "8"; /* peft's default */
}

static const char *dropout_of(const tsr__paste *p, char text[TSR__OPTION_BYTES]) {
  return p->o->lora_dropout > 0 ? tsr__paste_option(p, "lora_dropout", text) : "0";
}

/* Names of layers with commas between, also where peft would choose them itself. */
static const char *targets_of(const tsr__paste *p, char text[TSR__OPTION_BYTES]) {
  if (p->o->lora_targets) return tsr__paste_option(p, "lora_targets", text);
  return p->model->class == TSR__CLASS_GPT2 ? "c_attn" : "q_proj,v_proj";
}

/* Write each name of a list between two texts. */
static void write_names(tsr__buffer *out, const char *names, const char *before,
                        const char *after) {
  for (const char *at = names; *at;) {
    size_t length = strcspn(at, ",");
    tsr__buffer_text(out, before);
    tsr__buffer_append(out, at, length);
    at += length + (at[length] == ',');
    tsr__buffer_text(out, after);
    if (*at && *after != '\n') tsr__buffer_text(out, ", ");
  }
}

static const char *quoted_type(const tsr__paste *p) {
  return p->o->quantize == TSR_QUANTIZE_FP4 ? "fp4" : "nf4";
}

/* What from_pretrained takes: of a description that was read from a file, only users know that. */
static const char *hub_name(const tsr__paste *p) {
  return p->model->hub ? p->model->hub : "/path/to/the/model";
}

/* The type that a model is loaded in, and that in which weights in 4 bits are multiplied. */
static const char *loaded_type(const tsr__paste *p) {
  bool is_low = !tsr__paste_is_autocast(p) || p->o->kbit_training;
  if (!is_low) return "torch.float32";
  return tsr__paste_is_bf16(p)   ? "torch.bfloat16"
         : tsr__paste_is_fp16(p) ? "torch.float16"
                                 : "torch.float32";
}
static const char *product_type(const tsr__paste *p) {
  return tsr__paste_is_bf16(p)   ? "torch.bfloat16"
         : tsr__paste_is_fp16(p) ? "torch.float16"
                                 : "torch.float32";
}

static bool recomputes(const tsr__paste *p) {
  return tsr__paste_recomputes(p) || p->o->kbit_training == TSR_KBIT_CHECKPOINTING;
}

/* ---- peft ---- */

static void write_loading(tsr__paste *p) {
  tsr__buffer *out = &p->text;
  tsr_simulate_attention attention = p->o->attention;
  tsr__buffer_printf(out,
                     "model = AutoModelForCausalLM.from_pretrained(\n"
                     "    \"%s\",\n"
                     "    dtype=%s,\n",
                     hub_name(p), loaded_type(p));
  if (attention == TSR_ATTENTION_EAGER || attention == TSR_ATTENTION_FLASH)
    tsr__buffer_printf(out, "    attn_implementation=\"%s\",\n",
                       attention == TSR_ATTENTION_EAGER ? "eager" : "flash_attention_2");
  if (p->o->gelu_fused) tsr__buffer_text(out, "    activation_function=\"gelu_pytorch_tanh\",\n");
  if (p->o->quantize)
    tsr__buffer_printf(out,
                       "    quantization_config=BitsAndBytesConfig(\n"
                       "        load_in_4bit=True,\n"
                       "        bnb_4bit_quant_type=\"%s\",\n"
                       "        bnb_4bit_use_double_quant=%s,\n"
                       "        bnb_4bit_compute_dtype=%s,\n"
                       "    ),\n",
                       quoted_type(p), p->o->double_quant ? "True" : "False", product_type(p));
  tsr__buffer_text(out, ")\n");
  if (p->o->no_kv_cache) tsr__buffer_text(out, "model.config.use_cache = False\n");
}

/* Checkpoints are chosen before the adapters exist: reentrant ones need inputs that require gradients. */
static void write_preparation(tsr__paste *p) {
  const char *reentrant = p->o->non_reentrant ? "False" : "True";
  tsr__buffer *out = &p->text;
  if (p->o->kbit_training == TSR_KBIT_CHECKPOINTING)
    tsr__buffer_printf(out,
                       "model = prepare_model_for_kbit_training(\n"
                       "    model, gradient_checkpointing_kwargs={\"use_reentrant\": %s})\n",
                       reentrant);
  else if (p->o->kbit_training)
    tsr__buffer_text(
        out, "model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)\n");
  if (!tsr__paste_recomputes(p) || p->o->kbit_training == TSR_KBIT_CHECKPOINTING) return;
  tsr__buffer_printf(out,
                     "model.gradient_checkpointing_enable(\n"
                     "    gradient_checkpointing_kwargs={\"use_reentrant\": %s})\n",
                     reentrant);
  if (p->o->lora_rank && !p->o->non_reentrant)
    tsr__buffer_text(out, "model.enable_input_require_grads()\n");
}

static void write_config(tsr__paste *p) {
  char alpha[TSR__OPTION_BYTES], dropout[TSR__OPTION_BYTES], targets[TSR__OPTION_BYTES];
  tsr__buffer *out = &p->text;
  const char *names = targets_of(p, targets);
  tsr__buffer_printf(out,
                     "config = LoraConfig(\n"
                     "    r=%llu,\n"
                     "    lora_alpha=%s,\n"
                     "    lora_dropout=%s,\n"
                     "    target_modules=",
                     (unsigned long long)p->o->lora_rank, alpha_of(p, alpha),
                     dropout_of(p, dropout));
  if (strcmp(names, "all-linear") == 0) {
    tsr__buffer_text(out, "\"all-linear\"");
  } else {
    tsr__buffer_text(out, "[");
    write_names(out, names, "\"", "\"");
    tsr__buffer_text(out, "]");
  }
  tsr__buffer_printf(out,
                     ",\n"
                     "    task_type=\"CAUSAL_LM\",\n"
                     ")\n"
                     "model = get_peft_model(model, config%s)\n",
                     p->o->adapter_dtype == TSR_ADAPTERS_BASE ? ", autocast_adapter_dtype=False"
                                                              : "");
}

void tsr__paste_peft(tsr__paste *p) {
  tsr__buffer *out = &p->text;
  bool has_adapters = p->o->lora_rank != 0;
  tsr__buffer_text(out, "import torch\n");
  if (has_adapters)
    tsr__buffer_printf(out, "from peft import LoraConfig, get_peft_model%s\n",
                       p->o->kbit_training ? ", prepare_model_for_kbit_training" : "");
  tsr__buffer_printf(out, "from transformers import AutoModelForCausalLM, %sTrainingArguments\n\n",
                     p->o->quantize ? "BitsAndBytesConfig, " : "");
  write_loading(p);
  write_preparation(p);
  if (has_adapters) write_config(p);
  tsr__buffer_text(out, "args = TrainingArguments(\n");
  tsr__paste_arguments(p);
  if (tsr__paste_is_autocast(p))
    tsr__buffer_printf(out, "    %s=True,\n", tsr__paste_is_bf16(p) ? "bf16" : "fp16");
  if (p->o->loss_chunk) tsr__buffer_text(out, "    use_liger_kernel=True,  # a fused loss\n");
  tsr__buffer_text(out, ")\n");
}

/* ---- what axolotl and Unsloth do differently ---- */

/* Both load a model in the type in which it computes. */
static void near_low(tsr__paste *p) {
  char text[TSR__OPTION_BYTES];
  if (!tsr__paste_is_autocast(p)) return;
  tsr__paste_cannot(p, "%s with fp32 weights; the nearest has weights of 16 bits",
                    tsr__paste_option(p, "dtype", text));
  p->o->dtype = tsr__paste_is_bf16(p) ? TSR_SIMULATE_BF16 : TSR_SIMULATE_FP16;
}

/* Parameters that peft's preparation makes fp32 have 16 bits again. */
static void near_preparation(tsr__paste *p) {
  char text[TSR__OPTION_BYTES];
  bool is_again = p->o->kbit_training == TSR_KBIT_CHECKPOINTING && !tsr__paste_recomputes(p);
  if (!p->o->kbit_training) return;
  tsr__paste_cannot(p, "kbit-training %s; the nearest keeps norms, embeddings and head in %s",
                    tsr__paste_option(p, "kbit_training", text),
                    tsr__paste_is_bf16(p)   ? "bf16"
                    : tsr__paste_is_fp16(p) ? "fp16"
                                            : "fp32");
  p->o->kbit_training = TSR_KBIT_NONE;
  if (is_again) tsr__option_set("checkpoint", "full", p->o);
}

/* ---- axolotl ---- */

void tsr__near_axolotl(tsr__paste *p) {
  near_low(p);
  near_preparation(p);
  tsr__near_hf(p);
}

static void write_axolotl_adapters(tsr__paste *p) {
  char alpha[TSR__OPTION_BYTES], dropout[TSR__OPTION_BYTES], targets[TSR__OPTION_BYTES];
  tsr__buffer *out = &p->text;
  const char *names = targets_of(p, targets);
  tsr__buffer_printf(out, "adapter: %s\n", p->o->quantize ? "qlora" : "lora");
  if (p->o->quantize)
    tsr__buffer_printf(out,
                       "load_in_4bit: true\n"
                       "embeddings_skip_upcast: true\n"
                       "bnb_config_kwargs:\n"
                       "  bnb_4bit_quant_type: %s\n"
                       "  bnb_4bit_use_double_quant: %s\n",
                       quoted_type(p), p->o->double_quant ? "true" : "false");
  tsr__buffer_printf(out, "lora_r: %llu\nlora_alpha: %s\nlora_dropout: %s\n",
                     (unsigned long long)p->o->lora_rank, alpha_of(p, alpha),
                     dropout_of(p, dropout));
  if (strcmp(names, "all-linear") == 0) {
    tsr__buffer_text(out, "lora_target_linear: true\n");
  } else {
    tsr__buffer_text(out, "lora_target_modules:\n");
    write_names(out, names, "  - ", "\n");
  }
  if (p->o->adapter_dtype == TSR_ADAPTERS_BASE)
    tsr__buffer_text(out, "peft_autocast_adapter_dtype: false\n");
}

void tsr__paste_axolotl(tsr__paste *p) {
  char clip[TSR__OPTION_BYTES];
  tsr__buffer *out = &p->text;
  tsr_simulate_attention attention = p->o->attention;
  tsr__buffer_printf(out, "base_model: %s\n", hub_name(p));
  if (p->o->lora_rank) write_axolotl_adapters(p);
  tsr__buffer_printf(out,
                     "sequence_len: %llu\n"
                     "micro_batch_size: %llu\n"
                     "gradient_accumulation_steps: %llu\n"
                     "optimizer: %s\n"
                     "max_grad_norm: %s\n"
                     "bf16: false\n",
                     tsr__paste_sequence(p), tsr__paste_micro_batch(p), tsr__paste_passes(p),
                     tsr__paste_trainer_optimizer(p),
                     p->o->clip_norm > 0 ? tsr__paste_option(p, "clip", clip) : "0.0");
  if (p->o->dtype != TSR_SIMULATE_FP32)
    tsr__buffer_printf(out, "%s: true\n", tsr__paste_is_bf16(p) ? "bfloat16" : "float16");
  tsr__buffer_printf(out, "attn_implementation: %s\n",
                     attention == TSR_ATTENTION_EAGER   ? "eager"
                     : attention == TSR_ATTENTION_FLASH ? "flash_attention_2"
                                                        : "sdpa");
  tsr__buffer_printf(out, "gradient_checkpointing: %s\n", recomputes(p) ? "true" : "false");
  if (recomputes(p))
    tsr__buffer_printf(out, "gradient_checkpointing_kwargs:\n  use_reentrant: %s\n",
                       p->o->non_reentrant ? "false" : "true");
  if (p->o->loss_chunk)
    tsr__buffer_text(out, "plugins:\n"
                          "  - axolotl.integrations.liger.LigerPlugin\n"
                          "liger_fused_linear_cross_entropy: true\n");
  if (p->o->no_kv_cache) tsr__buffer_text(out, "overrides_of_model_config:\n  use_cache: false\n");
}

/* ---- Unsloth ---- */

void tsr__near_unsloth(tsr__paste *p) {
  char text[TSR__OPTION_BYTES];
  near_low(p);
  near_preparation(p);
  tsr__near_hf(p);
  if (p->o->quantize == TSR_QUANTIZE_FP4) tsr__paste_cannot(p, "quantize fp4; the nearest is nf4");
  if (p->o->quantize) p->o->quantize = TSR_QUANTIZE_NF4;
  if (p->o->quantize && !p->o->double_quant) {
    tsr__paste_cannot(p, "weights in 4 bits without double-quant; the nearest has it");
    p->o->double_quant = true;
  }
  if (p->o->adapter_dtype) {
    tsr__paste_cannot(p, "adapter-dtype %s; the nearest is fp32",
                      tsr__paste_option(p, "adapter_dtype", text));
    p->o->adapter_dtype = TSR_ADAPTERS_FP32;
  }
  tsr__near_form(p, false);
}

static void write_unsloth_adapters(tsr__paste *p) {
  char alpha[TSR__OPTION_BYTES], dropout[TSR__OPTION_BYTES], targets[TSR__OPTION_BYTES];
  tsr__buffer *out = &p->text;
  const char *names = targets_of(p, targets);
  if (strcmp(names, "all-linear") == 0)
    names = "q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj";
  tsr__buffer_printf(out,
                     "model = FastLanguageModel.get_peft_model(\n"
                     "    model,\n"
                     "    r=%llu,\n"
                     "    lora_alpha=%s,\n"
                     "    lora_dropout=%s,\n"
                     "    target_modules=[",
                     (unsigned long long)p->o->lora_rank, alpha_of(p, alpha),
                     dropout_of(p, dropout));
  write_names(out, names, "\"", "\"");
  tsr__buffer_printf(out,
                     "],\n"
                     "    use_gradient_checkpointing=%s,\n"
                     ")\n",
                     recomputes(p) ? "True" : "False");
}

void tsr__paste_unsloth(tsr__paste *p) {
  tsr__buffer *out = &p->text;
  tsr__paste_cannot(p,
                    "a prediction of Unsloth's own kernels, which usually need less than those of "
                    "transformers and peft: it is that of the latter");
  if (p->model->class == TSR__CLASS_GPT2)
    tsr__paste_cannot(p, "GPT-2, which Unsloth does not know");
  tsr__buffer_printf(out,
                     "from unsloth import FastLanguageModel\n"
                     "import torch\n"
                     "from trl import SFTConfig\n\n"
                     "model, tokenizer = FastLanguageModel.from_pretrained(\n"
                     "    model_name=\"%s\",\n"
                     "    max_seq_length=%llu,\n"
                     "    dtype=%s,\n"
                     "    load_in_4bit=%s,\n"
                     "    full_finetuning=%s,\n"
                     "    use_gradient_checkpointing=%s,\n"
                     ")\n",
                     hub_name(p), tsr__paste_sequence(p), loaded_type(p),
                     p->o->quantize ? "True" : "False", p->o->lora_rank ? "False" : "True",
                     recomputes(p) ? "True" : "False");
  if (p->o->no_kv_cache) tsr__buffer_text(out, "model.config.use_cache = False\n");
  if (p->o->lora_rank) write_unsloth_adapters(p);
  tsr__buffer_text(out, "args = SFTConfig(\n");
  tsr__paste_arguments(p);
  tsr__buffer_printf(out, "    max_length=%llu,\n)\n", tsr__paste_sequence(p));
}
