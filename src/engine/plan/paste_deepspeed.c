/* paste_deepspeed.c - a plan as DeepSpeed's configuration, which is JSON: notes are apart.
 *
 * ds_config.c reads it back. What it contains is what that file understands, so `simulate --ds-config` of the text, with what
 * the notes name, predicts what the plan needs. */
#include <math.h>
#include <string.h>

#include "base/json.h"
#include "plan/paste.h"

/* The greatest power of two that ds_config.c reads, and the window that PyTorch's GradScaler begins with, which DeepSpeed does not. */
enum { MOST_POWER = 31, WINDOW = 2000 };

/* What is on the host needs ranks, of which one is enough, that keep only a part of it. */
static void near_away(tsr__paste *p) {
  unsigned away = tsr__paste_away(p);
  uint64_t least = away & TSR__AWAY_PARAMETERS ? 3 : away ? 1 : 0, stage = p->o->zero;
  if (!away || (p->o->ranks && stage >= least)) return;
  p->o->zero = stage > least ? stage : least;
  if (!p->o->ranks)
    tsr__paste_cannot(p, "offloading without ZeRO; the nearest is stage %llu on one rank",
                      (unsigned long long)p->o->zero);
  else
    tsr__paste_cannot(p, "ZeRO stage %llu with %s on the host; the nearest is stage %llu",
                      (unsigned long long)stage, least == 3 ? "parameters" : "the optimizer",
                      (unsigned long long)least);
  if (!p->o->ranks) p->o->ranks = 1;
}

/* The power of two that is nearest to the loss scale. */
static int power_of(const tsr__paste *p) {
  double power = round(log2(p->o->loss_scale));
  return power > MOST_POWER ? MOST_POWER : power > 0 ? (int)power : 0;
}

static void near_scale(tsr__paste *p) {
  char text[TSR__OPTION_BYTES], instead[TSR__OPTION_BYTES];
  if (!(p->o->loss_scale > 0) || !tsr__paste_is_fp16(p)) return;
  double nearest = ldexp(1, power_of(p));
  bool is_same = !(nearest < p->o->loss_scale) && !(nearest > p->o->loss_scale);
  (void)tsr__paste_option(p, "loss_scale", text);
  p->o->loss_scale = nearest;
  if (!is_same)
    tsr__paste_cannot(p, "a loss scale of %s; the nearest is %s", text,
                      tsr__paste_option(p, "loss_scale", instead));
}

/* ZeRO flattens parameters, so optimizers that need matrices, or scales for blocks of them, do not keep what they keep elsewhere. */
static void near_kind(tsr__paste *p) {
  switch (p->o->optimizer) {
  case TSR_OPTIMIZER_ADAMW_LOOP: tsr__near_optimizer(p, TSR_OPTIMIZER_ADAMW); break;
  case TSR_OPTIMIZER_ADAFACTOR:
  case TSR_OPTIMIZER_ADAMW_8BIT:
  case TSR_OPTIMIZER_MUON: tsr__near_optimizer(p, TSR_OPTIMIZER_ADAMW_FUSED); break;
  default: break;
  }
}

void tsr__near_deepspeed(tsr__paste *p) {
  tsr__near_attention(p);
  near_away(p);
  near_scale(p);
  near_kind(p);
}

static void put(tsr__paste *p, json_t *object, const char *key, json_t *value) {
  if (json_object_set_new(object, key, value)) p->text.failed = true;
}

static json_t *zero_of(tsr__paste *p) {
  json_t *zero = json_object();
  unsigned away = tsr__paste_away(p);
  put(p, zero, "stage", json_integer((json_int_t)p->o->zero));
  if (p->o->bucket_elements)
    put(p, zero, "reduce_bucket_size", json_integer((json_int_t)p->o->bucket_elements));
  if (p->o->ranks) put(p, zero, "overlap_comm", json_boolean(!p->o->no_overlap));
  if (away & TSR__AWAY_OPTIMIZER)
    put(p, zero, "offload_optimizer", json_pack("{s:s}", "device", "cpu"));
  if (away & TSR__AWAY_PARAMETERS)
    put(p, zero, "offload_param", json_pack("{s:s}", "device", "cpu"));
  return zero;
}

/* DeepSpeed's own defaults have a window of 1000 steps, and ignore the first overflow. */
static json_t *fp16_of(tsr__paste *p) {
  uint64_t window = p->o->loss_scale_window ? p->o->loss_scale_window : WINDOW;
  json_t *fp16 = json_pack("{s:b,s:I,s:i}", "enabled", 1, "loss_scale_window", (json_int_t)window,
                           "hysteresis", 1);
  if (p->o->loss_scale > 0) put(p, fp16, "initial_scale_power", json_integer(power_of(p)));
  return fp16;
}

/* "torch_adam" is PyTorch's; else DeepSpeed has a fused kernel of its own. */
static json_t *optimizer_of(const tsr__paste *p) {
  switch (p->o->optimizer) {
  case TSR_OPTIMIZER_SGD: return json_pack("{s:s}", "type", "SGD");
  case TSR_OPTIMIZER_SGD_MOMENTUM:
    return json_pack("{s:s,s:{s:f}}", "type", "SGD", "params", "momentum", 0.9);
  case TSR_OPTIMIZER_LION: return json_pack("{s:s}", "type", "Lion");
  case TSR_OPTIMIZER_ADAMW_FUSED: return json_pack("{s:s}", "type", "AdamW");
  default: return json_pack("{s:s,s:{s:b}}", "type", "AdamW", "params", "torch_adam", 1);
  }
}

static bool is_untested(const tsr__paste *p) {
  return p->o->optimizer == TSR_OPTIMIZER_SGD || p->o->optimizer == TSR_OPTIMIZER_SGD_MOMENTUM;
}

void tsr__paste_deepspeed(tsr__paste *p) {
  unsigned long long ranks = tsr__paste_ranks(p);
  json_t *out = json_pack("{s:I,s:I}", "train_micro_batch_size_per_gpu",
                          (json_int_t)tsr__paste_micro_batch(p), "gradient_accumulation_steps",
                          (json_int_t)tsr__paste_passes(p));
  put(p, out, "zero_optimization", zero_of(p));
  put(p, out, "optimizer", optimizer_of(p));
  if (p->o->zero && is_untested(p)) put(p, out, "zero_allow_untested_optimizer", json_true());
  if (tsr__paste_is_bf16(p)) put(p, out, "bf16", json_pack("{s:b}", "enabled", 1));
  if (tsr__paste_is_fp16(p)) put(p, out, "fp16", fp16_of(p));
  put(p, out, "gradient_clipping", json_real(p->o->clip_norm)); /* DeepSpeed clips to 1 by itself */
  if (!tsr__json_append(&p->text, out, JSON_INDENT(2))) p->text.failed = true;
  tsr__buffer_text(&p->text, "\n");
  json_decref(out);
  tsr__paste_adapters(p);
  if (ranks)
    tsr__paste_elsewhere(p, "%llu ranks, which is deepspeed --num_gpus %llu", ranks, ranks);
  tsr__paste_model_notes(p);
}
