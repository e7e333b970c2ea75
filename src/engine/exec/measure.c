/* measure.c - see measure.h. */
#include "exec/measure.h"

#include <assert.h>
#include <stdio.h>

#include "base/error.h"
#include "base/memory.h"

static int run_dry(const tsr__built *built, tsr__measure_limit *limit, tsr_run_plan_cost *out,
                   tsr_error *error) {
  const tsr_simulate_options *options = &built->run;
  tsr__dry_options how = {.settings = options->settings,
                          .capacity_bytes = options->capacity_bytes,
                          .most_reserved_bytes = limit ? limit->most_reserved_bytes : 0,
                          .steps = options->steps};
  tsr__machine_rates rates;
  tsr__cost cost = {.step_s = 0};
  tsr__dry_device device;
  uint64_t done;
  int status = tsr__dry_run(&built->schedule, &how, &device, &done, error);
  if (status) return status;
  if (tsr__rates_for(options, built->gpu, &rates))
    cost = tsr__cost_of_schedule(&built->schedule, &rates);
  *out = (tsr_run_plan_cost){.is_possible = true,
                             .peak_bytes = device.peak.totals.allocated_bytes,
                             .reserved_bytes = device.peak_reserved_bytes,
                             .step_flops = built->schedule.flops,
                             .recomputed_flops = built->schedule.recomputed_flops,
                             .step_seconds = cost.step_s,
                             .sent_bytes = tsr__schedule_sent_bytes(&built->schedule),
                             .stall_seconds = cost.stalls_s};
  assert(!device.is_over || (limit && out->reserved_bytes > limit->most_reserved_bytes));
  if (device.is_over) limit->over_bytes = device.peak_reserved_bytes;
  return 0;
}

int tsr__measure(const tsr_model *model, const tsr_simulate_options *options,
                 tsr__measure_limit *limit, tsr_run_plan_cost *out, tsr_error *error) {
  tsr__built built;
  *out = (tsr_run_plan_cost){.is_possible = false};
  if (limit) limit->over_bytes = 0;
  int status = tsr__build(model, options, false, &built, error);
  if (status == 0) status = run_dry(&built, limit, out, error);
  tsr__built_release(&built);
  return status;
}

int tsr__measure_survey(const tsr_model *model, const tsr_simulate_options *options,
                        uint64_t layers, bool may_recompute, bool may_offload, tsr__survey *out,
                        tsr_error *error) {
  tsr__built built;
  tsr__machine_rates rates;
  tsr_model other = *model; /* what it owns stays the model's */
  tsr_simulate_options own = *options;
  if (layers) other.layers = layers;
  own.checkpoint_modules = own.offload_modules = NULL;
  own.modules = NULL;
  own.module_count = 0;
  own.optimizer_form = 0;
  int status = tsr__build(&other, &own, false, &built, error);
  if (status == 0) {
    bool has_rates = tsr__rates_for(options, built.gpu, &rates);
    tsr__survey_options how = {.rates = has_rates ? &rates : NULL,
                               .may_recompute = may_recompute,
                               .may_offload = may_offload};
    status = tsr__survey_schedule(&built.schedule, &how, out, error);
    if (status) tsr__survey_release(out);
  }
  tsr__built_release(&built);
  return status;
}

static int list_saved(const tsr__schedule *schedule, tsr__saved_name **out, size_t *count,
                      tsr_error *error) {
  TSR__VECTOR(tsr__saved_name) names = {0};
  bool ok = true;
  for (size_t i = 0; ok && i < schedule->ops.count; i++) {
    const tsr__op *op = &schedule->ops.items[i];
    for (uint32_t k = 0; ok && op->block == 0 && k < op->saved_count; k++) {
      tsr__saved_name one = {.storage = 0};
      if (!op->saved[k]) continue;
      one.storage = tsr__schedule_tensor(schedule, op->saved[k])->slot;
      const tsr__slot *slot = &schedule->slots.items[one.storage];
      if (slot->is_static || slot->category != TSR_CATEGORY_ACTIVATION) continue;
      (void)snprintf(one.name, sizeof one.name, "%s.%u", op->name, (unsigned)k);
      ok = TSR__VECTOR_PUSH(&names, one);
    }
  }
  if (!ok) {
    TSR__VECTOR_FREE(&names);
    return tsr__fail_memory(error);
  }
  *out = names.items;
  *count = names.count;
  return 0;
}

int tsr__measure_saved(const tsr_model *model, const tsr_simulate_options *options,
                       tsr__saved_name **out, size_t *count, tsr_error *error) {
  tsr__built built;
  tsr_model two = *model;
  two.layers = 2;
  int status = tsr__build(&two, options, false, &built, error);
  if (status == 0) status = list_saved(&built.schedule, out, count, error);
  tsr__built_release(&built);
  return status;
}
