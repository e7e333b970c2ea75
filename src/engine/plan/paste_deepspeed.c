/* paste_deepspeed.c - a plan as DeepSpeed's configuration, which is JSON: notes are apart. */
#include <string.h>

#include "base/json.h"
#include "plan/paste.h"

/* Parameters on the host need stage 3, and the loss scale is a power of two. */
void tsr__near_deepspeed(tsr__paste *p) {
  if (p->o->offload.optimizer && tsr__paste_ranks(p) && p->o->zero != 3) {
    tsr__paste_cannot(p, "ZeRO stage %llu with parameters on the host; the nearest is stage 3",
                      (unsigned long long)p->o->zero);
    p->o->zero = 3;
  }
}

static void put(tsr__paste *p, json_t *object, const char *key, json_t *value) {
  if (json_object_set_new(object, key, value)) p->text.failed = true;
}

static json_t *zero_of(tsr__paste *p) {
  json_t *zero = json_object();
  bool away = p->o->offload.optimizer;
  put(p, zero, "stage", json_integer(away ? 3 : (json_int_t)p->o->zero));
  if (p->o->bucket_elements)
    put(p, zero, "reduce_bucket_size", json_integer((json_int_t)p->o->bucket_elements));
  if (tsr__paste_ranks(p)) put(p, zero, "overlap_comm", json_boolean(!p->o->no_overlap));
  if (!away) return zero;
  put(p, zero, "offload_optimizer", json_pack("{s:s}", "device", "cpu"));
  put(p, zero, "offload_param", json_pack("{s:s}", "device", "cpu"));
  return zero;
}

static json_t *fp16_of(tsr__paste *p) {
  json_t *fp16 = json_pack("{s:b}", "enabled", 1);
  int power = 0;
  for (double scale = p->o->loss_scale; scale >= 2; scale /= 2) power++;
  if (p->o->loss_scale > 0) put(p, fp16, "initial_scale_power", json_integer(power));
  if (p->o->loss_scale_window)
    put(p, fp16, "loss_scale_window", json_integer((json_int_t)p->o->loss_scale_window));
  return fp16;
}

static void note_rest(tsr__paste *p) {
  unsigned long long ranks = tsr__paste_ranks(p);
  const char *optimizer = tsr__paste_optimizer(p);
  tsr__paste_adapters(p);
  if (p->o->optimizer != TSR_OPTIMIZER_ADAMW)
    tsr__paste_elsewhere(p, "the optimizer, which is %s",
                         *optimizer ? optimizer
                                    : "Muon for matrices of blocks, AdamW for the rest");
  if (ranks)
    tsr__paste_elsewhere(p, "%llu ranks, which is deepspeed --num_gpus %llu", ranks, ranks);
  tsr__paste_model_notes(p);
}

void tsr__paste_deepspeed(tsr__paste *p) {
  json_t *out = json_pack("{s:I,s:I}", "train_micro_batch_size_per_gpu",
                          (json_int_t)tsr__paste_micro_batch(p), "gradient_accumulation_steps",
                          (json_int_t)tsr__paste_passes(p));
  put(p, out, "zero_optimization", zero_of(p));
  if (tsr__paste_is_bf16(p)) put(p, out, "bf16", json_pack("{s:b}", "enabled", 1));
  if (tsr__paste_is_fp16(p)) put(p, out, "fp16", fp16_of(p));
  if (p->o->clip_norm > 0) put(p, out, "gradient_clipping", json_real(p->o->clip_norm));
  if (!tsr__json_append(&p->text, out, JSON_INDENT(2))) p->text.failed = true;
  tsr__buffer_text(&p->text, "\n");
  json_decref(out);
  note_rest(p);
}
