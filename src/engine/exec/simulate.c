/* simulate.c - tsr_simulate: from a model or a step graph, and options, to a schedule; from that to a result.
 *
 *   model, options ─► schedule (build.c) ─► dry run ─► numbers
 *                                              └─► recorder ─► snapshot */
#include "exec/simulate.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/options.h"
#include "exec/card.h"
#include "exec/profile.h"
#include "exec/record.h"
#include "tessera/unstable/simulation.h"
#include "traced/step_graph.h"

static void note(tsr_simulation *out, const char *text) {
  if (out->note_count < TSR_SIMULATE_NOTES) out->notes[out->note_count++] = text;
}

const char *tsr_simulate_caution(const tsr_simulate_options *options) {
  bool is_adamw = options->optimizer <= TSR_OPTIMIZER_ADAMW_LOOP;
  if (!is_adamw || options->dtype != TSR_SIMULATE_FP16 || options->master_weights) return NULL;
  return "fp16 holds nothing between 0 and 6e-8, so AdamW's second moments and its epsilon become "
         "0, "
         "and its steps too large: expect the loss to diverge; bf16, autocast-fp16 or master "
         "weights "
         "avoid that";
}

static_assert(TSR__CARD_NOTES == TSR_SIMULATE_CARD_NOTES &&
                  sizeof((tsr__card_notes *)0)->text == sizeof((tsr_simulation *)0)->card_notes,
              "a simulation has room for all notes on its card");

static bool is_counted(const tsr_outside *outside) {
  return outside && outside->source != TSR_OUTSIDE_NOT_COUNTED;
}

/* What cannot be on the card that was named. */
static void note_card(const tsr__built *built, const tsr_outside *counted, tsr_simulation *out) {
  const tsr_simulate_options *how = &built->run;
  tsr__card_notes notes = {.count = 0};
  if (counted) out->outside = *counted;
  if (!built->gpu) return;
  tsr_outside outside = is_counted(counted) ? *counted : tsr__outside_by_table(built->gpu, how);
  if (!built->graph) tsr__card_note_types(built->gpu, how, &notes);
  tsr__card_note_room(built->gpu,
                      &(tsr__card_room){.limit = "capacity",
                                        .limit_bytes = how->capacity_bytes,
                                        .run = "this run",
                                        .reserved_bytes = out->peak_reserved_bytes,
                                        .outside = &outside},
                      &notes);
  if (!out->is_out_of_memory)
    out->card_lacks = tsr__card_lacks_room(built->gpu, out->peak_reserved_bytes, &outside);
  out->card_title = built->gpu->title;
  memcpy(out->card_notes, notes.text, sizeof notes.text);
  for (size_t i = 0; i < notes.count; i++) note(out, out->card_notes[i]);
}

static void note_capacity(const tsr_simulate_options *options, const tsr_outside *counted,
                          tsr_simulation *out) {
  if (options->settings.expandable_segments || options->capacity_bytes == 0) return;
  if (options->gpu || is_counted(counted)) return; /* the answer has how much it takes */
  note(out, "the capacity is what the driver can provide; the CUDA context takes another 0.3 to "
            "0.8 GiB of the card");
}

/* Whether the kernel that has to take a mask does not take heads of this width: rows of whole 16 bytes
 * (aten/src/ATen/native/transformers/cuda/sdp_utils.cpp, check_head_dim_size_mem_efficient). */
static bool has_odd_heads(const tsr__program *p) {
  bool is_half = p->is_autocast || p->dtype != TSR__DTYPE_F32;
  return p->attention == TSR__OP_ATTENTION_EFFICIENT && p->model->head_width % (is_half ? 8 : 4);
}

/* Assumptions of the result that a reader could not guess. */
static void add_notes(const tsr__program *p, const tsr_simulate_options *o, tsr_simulation *out) {
  const char *caution = tsr_simulate_caution(o);
  if (caution) note(out, caution);
  if (p->is_own) {
    note(out, "the ops are tessera's own, as `tessera train` runs them, and not PyTorch's");
    return;
  }
  if (!o->fresh_process)
    note(out, "assumes that cuBLAS has allocated its two workspaces before the recording begins");
  if (p->has_attention_mask)
    note(out, "assumes that the batch has an attention mask; without one, and without a cache, "
              "transformers creates a mask for every pair of positions");
  if (p->has_mask && !p->is_eager)
    note(out, "transformers creates an explicit mask here, which the attention kernel keeps as "
              "numbers for every layer");
  if (has_odd_heads(p))
    note(out, "heads of this width do not suit the attention kernel: PyTorch computes attention "
              "without it, which is not modelled with a mask and takes more; trace the program");
  if (o->attention == TSR_ATTENTION_CHUNKED)
    note(out, "chunked attention is tessera's own op, not one of PyTorch's");
  if (o->loss_chunk)
    note(out, "the chunked loss is a fused head and cross-entropy: the outputs have no logits");
  if (o->backward_once && p->accumulate > 1)
    note(out, "one backward pass follows the forwards of all micro-batches, so what each of them "
              "saved is in "
              "memory at once: only temporaries and logits get smaller");
  if (tsr__plan_has(&p->plan, TSR__PLAN_RECOMPUTE_ATTENTION) && !p->is_eager)
    note(out, "the kernel keeps no scores, so selective checkpointing saves almost nothing");
  if (o->offload.activations)
    note(out, "offloaded activations are copied once per storage and fetched one block ahead; "
              "torch.autograd.graph.save_on_cpu copies each saved tensor, weights too, and waits");
  if (p->batch * p->sequence > 3072)
    note(out,
         "how much the embedding's backward sorts depends on the tokens: the maximum is assumed");
}

static void add_graph_notes(const tsr__built *built, tsr_simulation *out) {
  for (const char *const *text = tsr__step_graph_notes(built->graph); *text; text++)
    note(out, *text);
  if (!built->run.fresh_process && built->workspace_count)
    note(out, "assumes that cuBLAS has allocated its workspaces before the recording begins");
  note(out, tsr__step_graph_lacks_kernels(built->graph)
                ? "does not contain what kernels allocate internally; a new trace has it for "
                  "attention and embeddings"
                : "contains what the backward of attention and of embeddings allocates internally, "
                  "but not what other kernels do, such as cuDNN's workspaces");
}

/* ---- from the executor's numbers to the public struct ---- */

tsr_simulate_moment tsr__public_moment(const tsr__schedule *schedule,
                                       const tsr__dry_moment *moment) {
  tsr_simulate_moment out = {.event = (int64_t)moment->event_count - 1,
                             .step = moment->step,
                             .phase = tsr__phase_word(moment->phase),
                             .totals = moment->totals};
  (void)snprintf(out.op, sizeof out.op, "%s",
                 tsr__schedule_op_name(schedule, moment->op, moment->stack));
  memcpy(out.category_bytes, moment->category_bytes, sizeof out.category_bytes);
  return out;
}

tsr_space_peak tsr__space_peak_of(const tsr__dry_device *space) {
  return (tsr_space_peak){.allocated_bytes = space->peak.totals.allocated_bytes,
                          .reserved_bytes = space->peak_reserved_bytes};
}

static void put_results(const tsr__schedule *schedule, const tsr__dry_device *device,
                        tsr_simulation *out) {
  static const tsr__phase_kind phases[TSR_SIMULATE_PHASES] = {
      [TSR_SIMULATE_FORWARD] = TSR__PHASE_FORWARD,
      [TSR_SIMULATE_BACKWARD] = TSR__PHASE_BACKWARD,
      [TSR_SIMULATE_OPTIMIZER] = TSR__PHASE_OPTIMIZER,
      [TSR_SIMULATE_EVALUATION] = TSR__PHASE_EVALUATION};
  out->event_count = device->event_count;
  out->peak = tsr__public_moment(schedule, &device->peak);
  for (size_t i = 0; i < TSR_SIMULATE_PHASES; i++)
    if (device->phases[phases[i]].step)
      out->phases[i] = tsr__public_moment(schedule, &device->phases[phases[i]]);
  out->peak_reserved_bytes = device->peak_reserved_bytes;
  out->start_allocated_bytes = device->start.totals.allocated_bytes;
  memcpy(out->start_category_bytes, device->start.category_bytes, sizeof out->start_category_bytes);
  out->is_out_of_memory = device->is_out_of_memory;
  if (device->is_out_of_memory)
    out->out_of_memory = tsr__public_moment(schedule, &device->out_of_memory);
  out->oom_request_bytes = device->oom_request_bytes;
  out->oom_segment_bytes = device->oom_segment_bytes;
  out->oom_device_free_bytes = device->oom_device_free_bytes;
}

/* ---- all of it ---- */

bool tsr_gpu_at(size_t i, tsr_gpu *out) {
  const tsr__data_sheet *gpu = tsr__data_sheet_at(i);
  if (gpu) *out = (tsr_gpu){gpu->name, gpu->title, gpu->memory_bytes};
  return gpu != NULL;
}

/* ---- all of it ---- */

/* Run the schedule, and record it. */
static int execute(const tsr__built *built, tsr_simulation *out, tsr_error *error) {
  const tsr_simulate_options *options = &built->run;
  tsr__recorder *recorder = tsr__recorder_new(
      &built->schedule, &(tsr__record_options){.settings = &options->settings,
                                               .optimizer = built->optimizer,
                                               .has_categories = options->categories,
                                               .plan_hash = options->plan_hash});
  if (!recorder) return tsr__fail_memory(error);
  tsr__dry_device device, spaces[TSR__DRY_SPACES];
  tsr__dry_options how = {.settings = options->settings,
                          .capacity_bytes = options->capacity_bytes,
                          .steps = options->steps,
                          .effort = options->effort,
                          .spaces = spaces,
                          .observer = tsr__recorder_observer(recorder)};
  int status = tsr__dry_run(&built->schedule, &how, &device, &out->steps_done, error);
  if (status == 0) status = tsr__recorder_finish(recorder, &out->snapshot, error);
  if (status == 0) put_results(&built->schedule, &device, out);
  if (status == 0) out->host = tsr__space_peak_of(&spaces[0]);
  if (status == 0) out->disk = tsr__space_peak_of(&spaces[1]);
  out->host_machine_bytes = tsr__machine_bytes(options, out->host.reserved_bytes);
  if (status == 0 && options->profile)
    status = tsr__memory_profile_compute(&built->schedule, &how, &device, &out->profile, error);
  tsr__recorder_free(recorder);
  return status;
}

/* The time of a step on the card, or with measured rates. */
static void estimate_time(const tsr__built *built, tsr_simulation *out) {
  tsr__machine_rates rates;
  if (!tsr__rates_for(&built->run, built->gpu, &rates)) return;
  out->gpu_title = built->run.rates ? "machine of --rates" : built->gpu->title;
  out->step_seconds = tsr__cost_of_schedule(&built->schedule, &rates).step_s;
  out->step_low_seconds = out->step_seconds * rates.band.low;
  out->step_high_seconds = out->step_seconds * rates.band.high;
  out->step_source = tsr__band_words(rates.band.source);
  if (built->graph)
    note(out, tsr__step_graph_assumes_work(built->graph)
                  ? "the graph does not contain what its ops compute, so the time covers only "
                    "writing what they allocate: trace it again"
                  : "the time is an estimate from the card's data sheet: 60 % of its operations in "
                    "a second, 80 % of its bandwidth, and 5 us for each op");
  else if (!built->run.rates)
    note(out,
         "the time is an estimate from the card's data sheet: 60 % of its operations in a second, "
         "80 % of its bandwidth, and 5 us for each kernel");
}

static int simulate(const tsr_model *model, const tsr_simulate_options *options,
                    const tsr_outside *counted, tsr_simulation *out, tsr_error *error) {
  tsr__built built;
  int status = tsr__build(model, options, TSR__BUILD_STACKS, &built, error);
  if (status == 0) status = execute(&built, out, error);
  if (status == 0) {
    out->parameter_count = built.schedule.parameter_count;
    out->largest_parameter = built.schedule.largest_parameter;
    out->step_flops = built.schedule.flops;
    out->step_recomputed_flops = built.schedule.recomputed_flops;
    if (built.graph)
      add_graph_notes(&built, out);
    else
      add_notes(&built.program, options, out);
    note_capacity(&built.run, counted, out);
    note_card(&built, counted, out);
    estimate_time(&built, out);
  }
  tsr__built_release(&built);
  return status;
}

int tsr__simulate_beside(const tsr_model *model, const tsr_simulate_options *options,
                         const tsr_outside *outside, tsr_simulation **out, tsr_error *error) {
  tsr_simulate_options how;
  int status = tsr__options_read(options, &how, sizeof how, error);
  if (status) return status;
  if (how.memory == TSR_MEMORY_PLACED)
    return tsr__fail(error, TSR_ERROR_UNSUPPORTED, TSR_OFFSET_NONE,
                     "placed memory has no allocator whose events could be simulated");
  tsr_simulation *simulation = TSR__NEW(tsr_simulation);
  if (!simulation) return tsr__fail_memory(error);
  status = simulate(model, &how, outside, simulation, error);
  if (status) {
    tsr_simulation_free(simulation);
    return status;
  }
  *out = simulation;
  return 0;
}

int tsr_simulate(const tsr_model *model, const tsr_simulate_options *options, tsr_simulation **out,
                 tsr_error *error) {
  return tsr__simulate_beside(model, options, NULL, out, error);
}

const tsr_snapshot *tsr_simulation_snapshot(const tsr_simulation *simulation) {
  return simulation->snapshot;
}

tsr_allocator_totals tsr_simulation_peak(const tsr_simulation *simulation) {
  return simulation->peak.totals;
}

bool tsr_simulation_is_out_of_memory(const tsr_simulation *simulation) {
  return simulation->is_out_of_memory;
}

/* As c10's format_size has it. */
static const char *size_text(uint64_t bytes, char text[32]) {
  static const char *const units[] = {"KiB", "MiB", "GiB"};
  double size = (double)bytes / 1024;
  size_t unit = 0;
  for (; unit < 2 && size > 1024; unit++) size /= 1024;
  if (bytes <= 1024)
    (void)snprintf(text, 32, "%llu bytes", (unsigned long long)bytes);
  else
    (void)snprintf(text, 32, "%.2f %s", size, units[unit]);
  return text;
}

void tsr_simulation_message(const tsr_simulation *s, uint64_t capacity_bytes, char *text,
                            size_t size_bytes) {
  char tried[32], total[32], left[32], allocated[32], unused[32];
  const tsr_allocator_totals *now = &s->out_of_memory.totals;
  text[0] = '\0';
  if (!s->is_out_of_memory) return;
  (void)snprintf(text, size_bytes,
                 "CUDA out of memory. Tried to allocate %s. GPU 0 has a total capacity of %s of "
                 "which %s is free. Of the allocated memory %s is allocated by PyTorch, and %s is "
                 "reserved by PyTorch but unallocated.",
                 size_text(s->oom_segment_bytes, tried), size_text(capacity_bytes, total),
                 size_text(s->oom_device_free_bytes, left),
                 size_text(now->allocated_bytes, allocated),
                 size_text(now->reserved_bytes - now->allocated_bytes, unused));
}

void tsr_simulation_free(tsr_simulation *simulation) {
  if (!simulation) return;
  tsr_snapshot_free(simulation->snapshot);
  tsr_memory_profile_free(simulation->profile);
  tsr__free(simulation);
}
