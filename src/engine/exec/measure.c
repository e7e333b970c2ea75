/* measure.c - see measure.h. */
#include "exec/measure.h"

#include <assert.h>
#include <stdio.h>

#include "base/effort.h"
#include "base/error.h"
#include "base/memory.h"
#include "exec/placed.h"
#include "exec/profile.h"

/* The figures that take no run. */
static tsr_run_plan_cost figures_of(const tsr__built *built) {
  tsr__machine_rates rates = {.launch_ns = 0};
  tsr__cost cost = {.step_s = 0};
  if (tsr__rates_for(&built->run, built->gpu, &rates))
    cost = tsr__cost_of_schedule(&built->schedule, &rates);
  return (tsr_run_plan_cost){.is_possible = true,
                             .step_flops = built->schedule.flops,
                             .recomputed_flops = built->schedule.recomputed_flops,
                             .step_seconds = cost.step_s,
                             .step_low_seconds = cost.step_s * rates.band.low,
                             .step_high_seconds = cost.step_s * rates.band.high,
                             .sent_bytes = tsr__schedule_sent_bytes(&built->schedule),
                             .stall_seconds = cost.stalls_s};
}

/* What a range for all tensors of the run takes, instead of what an allocator reserves. */
static int place(const tsr__built *built, tsr__measure_limit *limit, tsr_run_plan_cost *out,
                 tsr_error *error) {
  tsr__placement placement = {.total_bytes = 0};
  if (built->schedule.has_leaks)
    return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                     "placed memory has room for one step: a leak needs caching memory");
  int status = tsr__placement_solve(&built->schedule, built->run.effort, &placement, error);
  out->reserved_bytes = placement.total_bytes;
  if (limit->most_reserved_bytes && placement.total_bytes > limit->most_reserved_bytes)
    limit->over_bytes = placement.total_bytes;
  tsr__placement_release(&placement);
  return status;
}

/* `limit`: out, if it stopped. `how` has room for what host and disk saw. */
static int run_dry(const tsr__built *built, const tsr__dry_options *how, tsr__measure_limit *limit,
                   tsr__dry_device *device, tsr_run_plan_cost *out, tsr_error *error) {
  uint64_t done;
  int status = tsr__dry_run(&built->schedule, how, device, &done, error);
  if (status) return status;
  out->peak_bytes = device->peak.totals.allocated_bytes;
  out->host_bytes = how->spaces[0].peak_reserved_bytes;
  out->host_machine_bytes = tsr__machine_bytes(&built->run, out->host_bytes);
  if (built->run.memory == TSR_MEMORY_PLACED) return place(built, limit, out, error);
  out->reserved_bytes = device->peak_reserved_bytes;
  assert(!device->is_over || out->reserved_bytes > limit->most_reserved_bytes);
  if (device->is_over) limit->over_bytes = device->peak_reserved_bytes;
  return 0;
}

static tsr__dry_options dry_options(const tsr__built *built, const tsr__measure_limit *limit,
                                    tsr__dry_device spaces[TSR__DRY_SPACES]) {
  bool is_placed = built->run.memory == TSR_MEMORY_PLACED;
  return (tsr__dry_options){.settings = built->run.settings,
                            .capacity_bytes = is_placed ? 0 : built->run.capacity_bytes,
                            .most_reserved_bytes = is_placed ? 0 : limit->most_reserved_bytes,
                            .steps = built->run.steps,
                            .effort = built->run.effort,
                            .spaces = spaces};
}

int tsr__measure(const tsr_model *model, const tsr_simulate_options *options,
                 tsr__measure_limit *limit, tsr_run_plan_cost *out, tsr_error *error) {
  tsr__built built;
  tsr__measure_limit none = {0};
  if (!limit) limit = &none;
  *out = (tsr_run_plan_cost){.is_possible = false};
  limit->over_bytes = 0;
  limit->is_slower = false;
  int status = tsr__build(model, options, TSR__BUILD_FIGURES, &built, error);
  if (status == 0) {
    tsr_run_plan_cost found = figures_of(&built);
    limit->is_slower = limit->most_seconds > 0 && found.step_seconds > limit->most_seconds;
    tsr__dry_device device, spaces[TSR__DRY_SPACES];
    tsr__dry_options how = dry_options(&built, limit, spaces);
    how.wants_peaks_only = true;
    if (!limit->is_slower) status = run_dry(&built, &how, limit, &device, &found, error);
    if (status == 0) *out = found;
  }
  tsr__built_release(&built);
  return status;
}

int tsr__measure_peak(const tsr_model *model, const tsr_simulate_options *options,
                      tsr_run_plan_cost *out, tsr_memory_profile **profile, tsr_error *error) {
  tsr__built built;
  tsr__measure_limit none = {0};
  int status = tsr__build(model, options, TSR__BUILD_WHOLE, &built, error);
  if (status == 0) {
    tsr__dry_device device, spaces[TSR__DRY_SPACES];
    tsr__dry_options how = dry_options(&built, &none, spaces);
    *out = figures_of(&built);
    status = run_dry(&built, &how, &none, &device, out, error);
    if (status == 0)
      status = tsr__memory_profile_compute(&built.schedule, &how, &device, profile, error);
  }
  tsr__built_release(&built);
  return status;
}

static int survey_program(const tsr_model *model, const tsr_simulate_options *options,
                          const tsr__survey_options *wanted, tsr__survey *out, tsr_error *error) {
  tsr__built built;
  tsr__machine_rates rates;
  tsr__build_detail detail = wanted->sums_only ? TSR__BUILD_FIGURES : TSR__BUILD_WHOLE;
  int status = tsr__build(model, options, detail, &built, error);
  if (status == 0 && !tsr__effort_go_on(options->effort, built.schedule.instrs.count))
    status = tsr__effort_fail(options->effort, error);
  if (status == 0) {
    tsr__survey_options how = *wanted;
    how.rates = tsr__rates_for(options, built.gpu, &rates) ? &rates : NULL;
    status = tsr__survey_schedule(&built.schedule, &how, out, error);
    if (status) tsr__survey_release(out);
  }
  tsr__built_release(&built);
  return status;
}

/* transformers turns the key-value cache off if any block is recomputed, so what may be recomputed is surveyed without it. A plan
 * that recomputes nothing has it, and may take less time: then that is the least. */
int tsr__measure_survey(const tsr_model *model, const tsr_simulate_options *options,
                        uint64_t layers, const tsr__survey_options *wanted, tsr__survey *out,
                        tsr_error *error) {
  tsr__survey cached;
  tsr_model other = *model; /* what it owns stays the model's */
  tsr_simulate_options own = *options;
  tsr__survey_options sums = {.sums_only = true};
  if (layers) other.layers = layers;
  own.checkpoint_modules = own.offload_modules = NULL;
  own.modules = NULL;
  own.module_count = 0;
  own.optimizer_form = 0;
  bool has_both = wanted->may_recompute && model->uses_cache && !own.no_kv_cache;
  if (has_both) other.uses_cache = false;
  int status = survey_program(&other, &own, wanted, out, error);
  if (status || !has_both) return status;
  other.uses_cache = true;
  status = survey_program(&other, &own, &sums, &cached, error);
  if (status) {
    tsr__survey_release(out);
    return status;
  }
  if (tsr__cost_kernels(&cached.cost) < tsr__cost_kernels(&out->cost)) out->cost = cached.cost;
  tsr__survey_release(&cached);
  return 0;
}

/* Whether the first block has several ops of this kind. */
static bool is_one_of_several(const tsr__schedule *schedule, const tsr__op *op) {
  for (size_t i = 0; i < schedule->ops.count; i++) {
    const tsr__op *other = &schedule->ops.items[i];
    if (other->block == 0 && other->kind == op->kind && other->number) return true;
  }
  return false;
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
      if (is_one_of_several(schedule, op))
        (void)snprintf(one.name, sizeof one.name, "%s#%u.%u", op->name, op->number, (unsigned)k);
      else
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
  tsr_simulate_options own = *options;
  two.layers = 2;
  own.offload_blocks = 0; /* names do not depend on it */
  int status = tsr__build(&two, &own, TSR__BUILD_WHOLE, &built, error);
  if (status == 0) status = list_saved(&built.schedule, out, count, error);
  tsr__built_release(&built);
  return status;
}
