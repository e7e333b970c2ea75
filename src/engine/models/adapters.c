/* adapters.c - LoRA's adapters and weights in 4 bits: which layers have them, their types, and what they run.
 *
 *   peft/tuners/lora/layer.py, Linear.forward()     result + lora_B(lora_A(dropout(x))) * scaling, in the adapter's type
 *   peft/tuners/lora/bnb.py, Linear4bit.forward()   the same with a copy of the result, and what is added is cast first
 *   bitsandbytes/nn/modules.py, Linear4bit.forward()  x in the type of products, and the result in x's
 *
 * Types with --quantize (bf16 stands for either 16-bit type):
 *
 *   --dtype          loaded as   products in   other parameters
 *   fp32             fp32        fp32          fp32
 *   bf16             bf16        bf16          bf16, or fp32 after prepare_model_for_kbit_training
 *   autocast-bf16    fp32        bf16          fp32; after that preparation loaded as bf16
 *
 * Variables and lifetimes are written as gpt2.c explains. */
#include <assert.h>

#include "base/error.h"
#include "models/program.h"

#define REFUSE(status, ...) tsr__fail(error, (status), TSR_OFFSET_NONE, __VA_ARGS__)

/* How many numbers have one scale, and how many of these scales; the numbers that codes may stand for. */
enum { SCALED = 64, NESTED_SCALED = 256, CODES = 16, NESTED_CODES = 256, BLOCK_LINEARS = 8 };

/* ---- options ---- */

static unsigned default_targets(const tsr_model *model) {
  return model->class == TSR__CLASS_GPT2 ? TSR_LORA_C_ATTN : TSR_LORA_Q_PROJ | TSR_LORA_V_PROJ;
}

static unsigned known_targets(const tsr_model *model) {
  unsigned of_gpt2 = TSR_LORA_C_ATTN | TSR_LORA_C_PROJ | TSR_LORA_C_FC;
  return model->class == TSR__CLASS_GPT2 ? of_gpt2 : TSR_LORA_ALL & ~of_gpt2;
}

/* The layers of a block that may get an adapter, in the order of the model's modules. */
static size_t list_targets(const tsr__program *p, tsr__model_layer *l, unsigned flags,
                           tsr__model_linear *out[BLOCK_LINEARS]) {
  const struct {
    tsr__model_linear *linear;
    unsigned in_gpt2, in_llama;
  } all[BLOCK_LINEARS] = {{&l->qkv, TSR_LORA_C_ATTN, 0},
                          {&l->q, 0, TSR_LORA_Q_PROJ},
                          {&l->k, 0, TSR_LORA_K_PROJ},
                          {&l->v, 0, TSR_LORA_V_PROJ},
                          {&l->out, TSR_LORA_C_PROJ, TSR_LORA_O_PROJ},
                          {&l->gate, 0, TSR_LORA_GATE_PROJ},
                          {&l->up, TSR_LORA_C_FC, TSR_LORA_UP_PROJ},
                          {&l->down, TSR_LORA_C_PROJ, TSR_LORA_DOWN_PROJ}};
  bool is_gpt2 = p->model->class == TSR__CLASS_GPT2;
  size_t count = 0;
  for (size_t i = 0; i < BLOCK_LINEARS; i++)
    if (flags & (is_gpt2 ? all[i].in_gpt2 : all[i].in_llama)) out[count++] = all[i].linear;
  return count;
}

/* Whether an op of the first block would have an operand that needs a gradient, and one that does not. */
static bool is_partial(const tsr__program *p, unsigned flags) {
  unsigned rotated = TSR_LORA_Q_PROJ | TSR_LORA_K_PROJ;
  bool has_attention = flags & (rotated | TSR_LORA_V_PROJ | TSR_LORA_O_PROJ);
  if (p->model->class == TSR__CLASS_GPT2 || !flags) return false;
  if ((flags & TSR_LORA_V_PROJ) && !(flags & rotated)) return true;
  return !has_attention && !(flags & TSR_LORA_GATE_PROJ) != !(flags & TSR_LORA_UP_PROJ);
}

static int check_quantised(const tsr__program *p, tsr_error *error) {
  const tsr_simulate_options *o = p->options;
  if (!o->quantize && (o->double_quant || o->kbit_training))
    return REFUSE(
        TSR_ERROR_ARGUMENT,
        "double quantisation and preparation for it are of weights in 4 bits (--quantize)");
  if (!o->quantize) return 0;
  if (p->is_own)
    return REFUSE(TSR_ERROR_UNSUPPORTED,
                  "weights in 4 bits (--quantize) are only simulated, with the ops of PyTorch and "
                  "bitsandbytes: tessera's own ops cannot read them");
  if (!o->lora_rank)
    return REFUSE(TSR_ERROR_ARGUMENT,
                  "weights in 4 bits are not trained: train adapters of them (--lora RANK)");
  if (o->offload.parameters)
    return REFUSE(TSR_ERROR_UNSUPPORTED,
                  "weights in 4 bits (--quantize) are not modelled in the host's memory");
  return 0;
}

int tsr__program_check_adapters(const tsr__program *p, tsr_error *error) {
  const tsr_simulate_options *o = p->options;
  enum { LARGEST_RANK = 65536 };
  int status = check_quantised(p, error);
  if (status) return status;
  if (!o->lora_rank &&
      (o->lora_alpha > 0 || o->lora_targets || o->lora_dropout > 0 || o->adapter_dtype))
    return REFUSE(TSR_ERROR_ARGUMENT,
                  "LoRA's alpha, targets, dropout and type need a rank (--lora RANK)");
  if (!o->lora_rank) return 0;
  if (!(o->lora_dropout >= 0 && o->lora_dropout < 1))
    return REFUSE(TSR_ERROR_ARGUMENT, "LoRA's dropout must be at least 0 and below 1");
  if (o->lora_rank > LARGEST_RANK)
    return REFUSE(TSR_ERROR_LIMIT, "a rank of %llu is too large: at most %d",
                  (unsigned long long)o->lora_rank, LARGEST_RANK);
  if (o->lora_targets != TSR_LORA_ALL && (o->lora_targets & ~known_targets(p->model)))
    return REFUSE(TSR_ERROR_ARGUMENT,
                  "the model lacks some of the layers that LoRA is to adapt: %s",
                  p->model->class == TSR__CLASS_GPT2
                      ? "it has c_attn, c_proj and c_fc"
                      : "it has q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj and down_proj");
  if (is_partial(p, o->lora_targets))
    return REFUSE(
        TSR_ERROR_UNSUPPORTED,
        "in the first block only adapters need gradients: v_proj is modelled with q_proj or "
        "k_proj, and gate_proj without an adapter before it with up_proj");
  if (o->master_weights)
    return REFUSE(TSR_ERROR_ARGUMENT, "LoRA has no use for master weights: adapters are fp32 "
                                      "unless --adapter-dtype changes that");
  if (o->ranks) return REFUSE(TSR_ERROR_UNSUPPORTED, "LoRA is modelled on one rank");
  if (p->model->module_count)
    return REFUSE(TSR_ERROR_UNSUPPORTED, "LoRA is not modelled with added modules");
  return 0;
}

/* ---- types ---- */

void tsr__program_choose_adapter_types(tsr__program *p) {
  const tsr_simulate_options *o = p->options;
  p->loaded_dtype = p->compute_dtype = p->dtype;
  p->adapter_dtype = TSR__DTYPE_F32;
  if (p->is_autocast) p->compute_dtype = (tsr__dtype)p->tape->low_dtype;
  if (o->kbit_training && o->quantize) {
    p->loaded_dtype = p->compute_dtype;
    p->dtype = TSR__DTYPE_F32;
  }
  if (o->adapter_dtype == TSR_ADAPTERS_BASE)
    p->adapter_dtype = o->quantize ? p->compute_dtype : p->dtype;
}

/* ---- declaring ---- */

static uint64_t divided(uint64_t count, uint64_t by) {
  return count / by + (count % by != 0);
}

static tsr__tensor_id buffer_of(tsr__program *p, tsr__dtype dtype, uint64_t count) {
  return tsr__tensor_declare(p->tape, dtype, TSR__SHAPE(count), TSR_CATEGORY_BUFFER);
}

/* The parts of a QuantState (bitsandbytes/functional.py); the tables of numbers that codes stand for are read by kernels that list no
 * operands. */
void tsr__program_declare_quantised(tsr__program *p, tsr__model_linear *linear) {
  uint64_t count = tsr__product_u64(linear->inputs, linear->features);
  uint64_t scales = divided(count, SCALED);
  bool is_nested = p->options->double_quant;
  linear->weight = buffer_of(p, TSR__DTYPE_BOOL, divided(count, 2));
  p->tape->schedule.parameter_count +=
      count; /* codes are no parameters of the tape, which counts those at its end */
  p->tape->schedule.parameter_bytes += divided(count, 2);
  (void)buffer_of(p, TSR__DTYPE_F32, CODES);
  linear->scales = buffer_of(p, is_nested ? TSR__DTYPE_BOOL : TSR__DTYPE_F32, scales);
  if (!is_nested) return;
  linear->nested_scales = buffer_of(p, TSR__DTYPE_F32, divided(scales, NESTED_SCALED));
  (void)buffer_of(p, TSR__DTYPE_F32, NESTED_CODES);
  linear->offset = tsr__tensor_declare(p->tape, TSR__DTYPE_F32, TSR__SCALAR, TSR_CATEGORY_BUFFER);
}

void tsr__program_declare_adapters(tsr__program *p) {
  tsr__tape *t = p->tape;
  uint64_t rank = p->options->lora_rank;
  unsigned flags = p->options->lora_targets;
  if (!rank) return;
  if (p->options->double_quant) /* the library's own, of which each layer has a copy */
    (void)buffer_of(p, TSR__DTYPE_F32, NESTED_CODES);
  for (size_t i = 0; i < t->schedule.parameters.count; i++)
    tsr__tensor_at(t, t->schedule.parameters.items[i])->requires_grad = false;
  for (uint32_t i = 0; i < p->model->layers && !t->status; i++) {
    tsr__model_linear *targets[BLOCK_LINEARS];
    size_t count =
        list_targets(p, &p->layers[i], flags ? flags : default_targets(p->model), targets);
    for (size_t k = 0; k < count && !t->status; k++) {
      tsr__model_linear *l = targets[k];
      l->lora_a = tsr__tensor_declare(t, p->adapter_dtype, TSR__SHAPE(rank, l->inputs),
                                      TSR_CATEGORY_PARAMETER);
      l->lora_b = tsr__tensor_declare(t, p->adapter_dtype, TSR__SHAPE(l->features, rank),
                                      TSR_CATEGORY_PARAMETER);
      tsr__program_put_in_block(p, l->lora_a, i);
      tsr__program_put_in_block(p, l->lora_b, i);
    }
  }
}

/* ---- running ---- */

tsr__tensor_id tsr__program_quantised(tsr__program *p, const tsr__model_linear *linear,
                                      tsr__tensor_id x) {
  tsr__tape *t = p->tape;
  tsr__op_attributes attributes = {.features = linear->features, .dtype = (uint8_t)p->loaded_dtype};
  assert(linear->weight && linear->scales);
  tsr__scope_enter(t, TSR__PLACE_QUANTISED);
  tsr__dtype dtype = tsr__tensor_dtype(t, x);
  if (dtype != p->compute_dtype) x = tsr__program_cast(p, x, p->compute_dtype);
  tsr__tensor_id result =
      tsr__op_apply(t, TSR__OP_LINEAR_4BIT, &attributes,
                    (tsr__tensor_id[]){x, linear->weight, linear->scales, linear->nested_scales,
                                       linear->offset, linear->bias},
                    6, NULL);
  if (dtype != p->compute_dtype) {
    tsr__tensor_id cast = tsr__program_cast(p, result, dtype);
    tsr__scope_unbind(t, result);
    result = cast;
  }
  return tsr__scope_leave(t, result);
}

double tsr__program_adapter_scale(const tsr__program *p) {
  enum { ALPHA = 8 };
  double alpha = p->options->lora_alpha;
  return (alpha > 0 ? alpha : ALPHA) / (double)p->options->lora_rank;
}

/* torch.nn.Dropout, which returns its input if it drops nothing. */
static tsr__tensor_id dropped(tsr__program *p, tsr__tensor_id x) {
  tsr__op_attributes attributes = {.dropout = tsr__program_dropout(p, p->options->lora_dropout)};
  if (!(attributes.dropout > 0)) return x;
  tsr__scope_enter(p->tape, TSR__PLACE_DROPOUT);
  return tsr__scope_leave(p->tape,
                          tsr__op_apply(p->tape, TSR__OP_DROPOUT, &attributes, &x, 1, NULL));
}

/* lora_B(lora_A(dropout(x))) * scaling */
static tsr__tensor_id product_of(tsr__program *p, const tsr__model_linear *linear,
                                 tsr__tensor_id x) {
  tsr__tape *t = p->tape;
  const tsr__model_linear down = {
      .weight = linear->lora_a, .features = p->options->lora_rank, .place = TSR__PLACE_ADDED};
  const tsr__model_linear up = {
      .weight = linear->lora_b, .features = linear->features, .place = TSR__PLACE_ADDED};
  tsr__tensor_id kept = dropped(p, x);
  tsr__tensor_id narrow = tsr__program_linear_of(p, &down, kept);
  if (kept != x) tsr__scope_unbind(t, kept);
  tsr__tensor_id wide = tsr__program_linear_of(p, &up, narrow);
  tsr__scope_unbind(t, narrow);
  tsr__tensor_id scaled = tsr__program_scale(p, wide, tsr__program_adapter_scale(p));
  tsr__scope_unbind(t, wide);
  return scaled;
}

/* Convert x, whose variable is bound to the result. */
static tsr__tensor_id converted(tsr__program *p, tsr__tensor_id x, tsr__dtype dtype) {
  if (tsr__tensor_dtype(p->tape, x) == dtype) return x;
  tsr__tensor_id cast = tsr__program_cast(p, x, dtype);
  tsr__scope_unbind(p->tape, x);
  return cast;
}

/* Under autocast nothing is cast: products cast what they read. */
static tsr__tensor_id adapted_4bit(tsr__program *p, const tsr__model_linear *linear,
                                   tsr__tensor_id x) {
  tsr__tape *t = p->tape;
  tsr__scope_enter(t, TSR__PLACE_ADAPTED_4BIT);
  tsr__tensor_id first = tsr__program_quantised(p, linear, x);
  tsr__tensor_id result = TSR__OP_APPLY(t, TSR__OP_CLONE, first);
  tsr__scope_unbind(t, first);
  if (!p->is_autocast && tsr__tensor_dtype(t, x) != p->adapter_dtype)
    x = tsr__program_cast(p, x, p->adapter_dtype);
  tsr__tensor_id output = product_of(p, linear, x);
  if (!p->is_autocast) output = converted(p, output, tsr__tensor_dtype(t, result));
  tsr__tensor_id sum = TSR__OP_APPLY(t, TSR__OP_ADD, result, output);
  tsr__scope_unbind(t, result);
  return tsr__scope_leave(t, sum);
}

/* With tessera's own rule book and autocast, products round what they read. */
tsr__tensor_id tsr__program_adapted(tsr__program *p, const tsr__model_linear *linear,
                                    tsr__tensor_id x) {
  tsr__tape *t = p->tape;
  if (linear->scales) return adapted_4bit(p, linear, x);
  tsr__scope_enter(t, TSR__PLACE_ADAPTED);
  tsr__tensor_id result = tsr__program_linear_of(p, linear, x);
  tsr__dtype dtype = tsr__tensor_dtype(t, result);
  bool is_rounded = p->is_own && p->is_autocast;
  if (!is_rounded && tsr__tensor_dtype(t, x) != p->adapter_dtype)
    x = tsr__program_cast(p, x, p->adapter_dtype);
  tsr__tensor_id scaled = product_of(p, linear, x);
  tsr__tensor_id sum = TSR__OP_APPLY(t, TSR__OP_ADD, result, scaled);
  tsr__scope_unbind(t, scaled);
  tsr__scope_unbind(t, result);
  return tsr__scope_leave(t, converted(p, sum, dtype));
}
