/* measure.c - see measure.h. */
#include "exec/measure.h"

#include <assert.h>
#include <stdio.h>

#include "base/error.h"
#include "base/memory.h"
#include "graph/op.h"

static int run_dry(const tsr__built *built, const tsr_simulate_options *options, uint64_t most,
                   tsr__figures *out, tsr_error *error) {
  tsr__dry_options how = {.settings = options->settings,
                          .capacity_bytes = options->capacity_bytes,
                          .most_reserved_bytes = most,
                          .steps = options->steps};
  tsr__machine_rates rates;
  tsr__dry_device device;
  uint64_t done;
  int status = tsr__dry_run(&built->tape, &how, &device, &done, error);
  if (status) return status;
  *out = (tsr__figures){.peak_bytes = device.peak.totals.allocated_bytes,
                        .reserved_bytes = device.peak_reserved_bytes,
                        .step_flops = built->tape.flops,
                        .recomputed_flops = built->tape.recomputed_flops,
                        .sent_bytes = tsr__tape_sent_bytes(&built->tape),
                        .is_out_of_memory = device.is_out_of_memory,
                        .is_over = device.is_over};
  if (!tsr__rates_for(options, built->gpu, &rates)) return 0;
  tsr__cost cost = tsr__cost_of_tape(&built->tape, &rates);
  out->step_seconds = cost.step_s;
  out->stall_seconds = cost.stalls_s;
  return 0;
}

static int measure_graph(const tsr_model *model, const tsr_simulate_options *options, uint64_t most,
                         tsr__figures *out, tsr_error *error) {
  tsr__built_graph built;
  tsr__dry_options how = {.settings = options->settings,
                          .capacity_bytes = options->capacity_bytes,
                          .most_reserved_bytes = most,
                          .steps = options->steps};
  tsr__dry_device device;
  uint64_t done;
  int status = tsr__build_graph(model, options, &built, error);
  if (status == 0) status = tsr__dry_run(&built.tape, &how, &device, &done, error);
  if (status == 0)
    *out = (tsr__figures){.peak_bytes = device.peak.totals.allocated_bytes,
                          .reserved_bytes = device.peak_reserved_bytes,
                          .step_seconds = tsr__graph_seconds(built.graph, options),
                          .is_out_of_memory = device.is_out_of_memory,
                          .is_over = device.is_over};
  tsr__built_graph_release(&built);
  return status;
}

int tsr__measure(const tsr_model *model, const tsr_simulate_options *options, tsr__figures *out,
                 tsr_error *error) {
  return tsr__measure_within(model, options, 0, out, error);
}

int tsr__measure_within(const tsr_model *model, const tsr_simulate_options *options,
                        uint64_t most_reserved_bytes, tsr__figures *out, tsr_error *error) {
  tsr__built built;
  if (model->graph) return measure_graph(model, options, most_reserved_bytes, out, error);
  int status = tsr__build(model, options, false, &built, error);
  if (status == 0) status = run_dry(&built, options, most_reserved_bytes, out, error);
  tsr__built_release(&built);
  return status;
}

int tsr__measure_survey(const tsr_model *model, const tsr_simulate_options *options,
                        uint64_t layers, tsr__survey *out, tsr_error *error) {
  tsr__built built;
  tsr__machine_rates rates;
  tsr_model other = *model; /* what it owns stays the model's */
  assert(!model->graph);
  if (layers) other.layers = layers;
  int status = tsr__build(&other, options, false, &built, error);
  if (status == 0) {
    bool has_rates = tsr__rates_for(options, built.gpu, &rates);
    status = tsr__survey_tape(&built.tape, has_rates ? &rates : NULL, out, error);
    if (status) tsr__survey_release(out);
  }
  tsr__built_release(&built);
  return status;
}

int tsr__measure_graph_survey(const tsr_model *model, const tsr_simulate_options *options,
                              bool may_recompute, bool may_offload, tsr__survey *out,
                              tsr_error *error) {
  tsr__built_graph built;
  tsr__machine_rates rates;
  const tsr__data_sheet *gpu = options->gpu ? tsr__data_sheet_of_name(options->gpu) : NULL;
  tsr_simulate_options own = *options;
  own.modules = NULL; /* any schedule of the same ops takes the same time */
  own.module_count = 0;
  *out = (tsr__survey){.floor_phase = "", .floor_op = ""};
  if (!tsr__rates_for(options, gpu, &rates))
    return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE, "there is no card for its time");
  int status = tsr__build_graph(model, &own, &built, error);
  tsr__graph_survey_options how = {.rates = &rates,
                                   .workspace_bytes = built.workspaces * built.workspace_bytes,
                                   .may_recompute = may_recompute,
                                   .may_offload = may_offload};
  if (status == 0) status = tsr__survey_graph(model->graph, &how, out, error);
  tsr__built_graph_release(&built);
  return status;
}

int tsr__measure_parts(const tsr_model *model, const tsr_simulate_options *options,
                       tsr__graph_parts *out, tsr_error *error) {
  tsr__machine_rates rates;
  const tsr__data_sheet *gpu = options->gpu ? tsr__data_sheet_of_name(options->gpu) : NULL;
  if (!tsr__rates_for(options, gpu, &rates))
    return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE, "there is no card for its time");
  return tsr__list_graph_parts(model->graph, &rates, out, error);
}

static int list_saved(const tsr__tape *tape, tsr__saved_name **out, size_t *count,
                      tsr_error *error) {
  TSR__VECTOR(tsr__saved_name) names = {0};
  bool ok = true;
  for (size_t i = 0; ok && i < tape->ops.count; i++) {
    const tsr__op *op = &tape->ops.items[i];
    for (uint32_t k = 0; ok && op->block == 0 && k < op->saved_count; k++) {
      tsr__saved_name one = {.storage = 0};
      if (!op->saved[k]) continue;
      one.storage = tsr__tensor_at(tape, op->saved[k])->slot;
      const tsr__tape_slot *slot = &tape->slots.items[one.storage];
      if (slot->is_static || slot->category != TSR_CATEGORY_ACTIVATION) continue;
      (void)snprintf(one.name, sizeof one.name, "%s.%u",
                     tsr__op_row_of(tape->book, (tsr__op_kind)op->kind)->name, (unsigned)k);
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
  if (status == 0) status = list_saved(&built.tape, out, count, error);
  tsr__built_release(&built);
  return status;
}
