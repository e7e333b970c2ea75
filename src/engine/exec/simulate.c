/* simulate.c - tsr_simulate: from a description and options to a tape, from the tape to a result.
 *
 *   model, options ─► program ─► tape (one step) ─► dry run ─► numbers
 *                                                      └─► recorder ─► snapshot */
#include "exec/simulate.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/options.h"
#include "exec/card_memory.h"
#include "exec/graph_survey.h"
#include "exec/profile.h"
#include "exec/rates.h"
#include "exec/record.h"
#include "graph/validate.h"
#include "models/program.h"
#include "tessera/unstable/simulation.h"
#include "torch/torch.h"
#include "traced/rewrite.h"
#include "traced/step_graph.h"

static void note(tsr_simulation *out, const char *text) {
  if (out->note_count < TSR_SIMULATE_NOTES) out->notes[out->note_count++] = text;
}

static void note_capacity(const tsr_simulate_options *options, tsr_simulation *out) {
  if (options->settings.expandable_segments || options->capacity_bytes == 0) return;
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
  note_capacity(o, out);
}

static int too_long(uint64_t steps, uint64_t each, tsr_error *error) {
  return tsr__fail(error, TSR_ERROR_LIMIT, TSR_OFFSET_NONE,
                   "%llu steps of %llu instructions each are too long: at most %llu instructions "
                   "are simulated (memory repeats from the third step on)",
                   (unsigned long long)steps, (unsigned long long)each,
                   (unsigned long long)TSR_SIMULATE_MOST_INSTRUCTIONS);
}

static int explain(const tsr__tape *tape, int status, tsr_error *error) {
  if (status == TSR_ERROR_LIMIT && tape->is_too_long)
    return tsr__fail(
        error, TSR_ERROR_LIMIT, TSR_OFFSET_NONE,
        "a step takes more than %llu instructions; use fewer micro-batches or larger chunks",
        (unsigned long long)TSR_SIMULATE_MOST_INSTRUCTIONS);
  if (status == TSR_ERROR_LIMIT)
    return tsr__fail(error, TSR_ERROR_LIMIT, TSR_OFFSET_NONE,
                     "one of the tensors would be larger than 256 TiB");
  if (status == TSR_ERROR_ARGUMENT) {
    char text[256];
    tsr__clash_describe(tape, text, sizeof text);
    return tsr__fail(error, status, TSR_OFFSET_NONE, "%s", text);
  }
  return status ? tsr__fail_memory(error) : 0;
}

/* ---- from the executor's numbers to the public struct ---- */

const char *tsr__phase_word(uint8_t phase) {
  static const char *const words[] = {[TSR__TAPE_PHASE_STEP] = "step",
                                      [TSR__TAPE_PHASE_ZERO_GRAD] = "zero_grad",
                                      [TSR__TAPE_PHASE_FORWARD] = "forward",
                                      [TSR__TAPE_PHASE_BACKWARD] = "backward",
                                      [TSR__TAPE_PHASE_OPTIMIZER] = "optimizer",
                                      [TSR__TAPE_PHASE_EVALUATION] = "evaluation",
                                      [TSR__DRY_LOADING] = "loading"};
  assert(phase < sizeof words / sizeof *words && words[phase]);
  return words[phase];
}

tsr_simulate_moment tsr__public_moment(const tsr__tape *tape, const tsr__dry_moment *moment) {
  tsr_simulate_moment out = {.event = (int64_t)moment->event_count - 1,
                             .step = moment->step,
                             .phase = tsr__phase_word(moment->phase),
                             .totals = moment->totals};
  if (moment->op != TSR_NONE)
    (void)snprintf(
        out.op, sizeof out.op, "%s",
        tsr__op_row_of(tape->book, (tsr__op_kind)tape->ops.items[moment->op].kind)->name);
  else if (!tape->ops.count && tape->tracer && moment->stack != TSR_NONE)
    (void)snprintf(out.op, sizeof out.op, "%s", tsr__step_graph_op(tape->tracer, moment->stack));
  memcpy(out.category_bytes, moment->category_bytes, sizeof out.category_bytes);
  return out;
}

tsr_space_peak tsr__space_peak_of(const tsr__dry_device *space) {
  return (tsr_space_peak){.allocated_bytes = space->peak.totals.allocated_bytes,
                          .reserved_bytes = space->peak_reserved_bytes};
}

static void put_results(const tsr__tape *tape, const tsr__dry_device *device, tsr_simulation *out) {
  static const tsr__tape_phase phases[TSR_SIMULATE_PHASES] = {
      [TSR_SIMULATE_FORWARD] = TSR__TAPE_PHASE_FORWARD,
      [TSR_SIMULATE_BACKWARD] = TSR__TAPE_PHASE_BACKWARD,
      [TSR_SIMULATE_OPTIMIZER] = TSR__TAPE_PHASE_OPTIMIZER,
      [TSR_SIMULATE_EVALUATION] = TSR__TAPE_PHASE_EVALUATION};
  out->event_count = device->event_count;
  out->peak = tsr__public_moment(tape, &device->peak);
  for (size_t i = 0; i < TSR_SIMULATE_PHASES; i++)
    if (device->phases[phases[i]].step)
      out->phases[i] = tsr__public_moment(tape, &device->phases[phases[i]]);
  out->peak_reserved_bytes = device->peak_reserved_bytes;
  out->start_allocated_bytes = device->start.totals.allocated_bytes;
  memcpy(out->start_category_bytes, device->start.category_bytes, sizeof out->start_category_bytes);
  out->is_out_of_memory = device->is_out_of_memory;
  if (device->is_out_of_memory)
    out->out_of_memory = tsr__public_moment(tape, &device->out_of_memory);
  out->oom_request_bytes = device->oom_request_bytes;
  out->oom_segment_bytes = device->oom_segment_bytes;
  out->oom_device_free_bytes = device->oom_device_free_bytes;
}

/* ---- all of it ---- */

/* NOLINTNEXTLINE(misc-redundant-expression): equal on purpose, but defined in two rooms */
static_assert(TSR_SIMULATE_MOST_INSTRUCTIONS == TSR__TAPE_MOST_INSTRUCTIONS,
              "a run of one step has its schedule's length");

/* Run the finished tape, and record it. `optimizer`: its class, for the names of phases. */
static int execute(const tsr__program *program, const char *optimizer,
                   const tsr_simulate_options *options, tsr_simulation *out, tsr_error *error) {
  const tsr__tape *tape = program->tape;
  tsr__recorder *recorder =
      tsr__recorder_new(tape, &(tsr__record_options){.settings = &options->settings,
                                                     .optimizer = optimizer,
                                                     .has_categories = options->categories,
                                                     .plan_hash = options->plan_hash});
  if (!recorder) return tsr__fail_memory(error);
  tsr__dry_device device, spaces[TSR__DRY_SPACES];
  tsr__dry_options how = {.settings = options->settings,
                          .capacity_bytes = options->capacity_bytes,
                          .steps = options->steps,
                          .spaces = spaces,
                          .observer = tsr__recorder_observer(recorder)};
  int status = tsr__dry_run(tape, &how, &device, &out->steps_done, error);
  if (status == 0) status = tsr__recorder_finish(recorder, &out->snapshot, error);
  if (status == 0) put_results(tape, &device, out);
  if (status == 0) out->host = tsr__space_peak_of(&spaces[0]);
  if (status == 0) out->disk = tsr__space_peak_of(&spaces[1]);
  if (status == 0 && options->profile)
    status = tsr__memory_profile_compute(program, &how, &device, &out->profile, error);
  tsr__recorder_free(recorder);
  return status;
}

/* Debug builds validate every program that is built. */
static int finish_tape(tsr__tape *tape) {
  int status = tsr__tape_finish(tape);
#ifndef NDEBUG
  tsr__violation violation;
  bool is_finished = status == 0;
  if (is_finished) status = tsr__tape_validate(tape, &violation);
  assert(!is_finished || status != TSR_ERROR_ARGUMENT); /* violation.text describes it */
#endif
  return status;
}

int tsr__program_record(tsr__program *program, bool is_recorded, tsr_error *error) {
  tsr__tape *tape = program->tape;
  uint64_t steps = program->options->steps ? program->options->steps : 1;
  tsr__program_step(program);
  int status = explain(tape, finish_tape(tape), error);
  bool is_long = status == 0 && steps > TSR_SIMULATE_MOST_INSTRUCTIONS / tape->schedule.count;
  if (is_recorded && is_long) status = too_long(steps, tape->schedule.count, error);
  return status;
}

int tsr__program_record_infer(tsr__program *program, tsr_error *error) {
  tsr__program_infer(program);
  return explain(program->tape, finish_tape(program->tape), error);
}

bool tsr_gpu_at(size_t i, tsr_gpu *out) {
  const tsr__data_sheet *gpu = tsr__data_sheet_at(i);
  if (gpu) *out = (tsr_gpu){gpu->name, gpu->title};
  return gpu != NULL;
}

static bool has_flash(const tsr__data_sheet *gpu) {
  return tsr__card_memory_of(TSR__CARD_FLASH, gpu->capability)->bytes != 0;
}

static int no_such_card(const char *name, tsr_error *error) {
  return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE, "no card is called '%.40s'", name);
}

/* The card's own kernels and workspaces; without a card, an A100's. */
static int suit_gpu(const tsr_simulate_options *options, const tsr__data_sheet **gpu,
                    tsr_simulate_options *run, tsr__tape *tape, tsr_error *error) {
  *gpu = options->gpu ? tsr__data_sheet_of_name(options->gpu) : NULL;
  if (!options->gpu) return 0;
  if (!*gpu) return no_such_card(options->gpu, error);
  tape->workspace_bytes = tsr__data_sheet_workspace_bytes(*gpu);
  if (has_flash(*gpu)) return 0;
  if (run->attention == TSR_ATTENTION_FLASH)
    return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                     "flash attention needs compute capability 8.0, and the %s has %u.%u",
                     (*gpu)->title, (*gpu)->capability / 10u, (*gpu)->capability % 10u);
  if (run->attention == TSR_ATTENTION_SDPA) run->attention = TSR_ATTENTION_EFFICIENT;
  return 0;
}

bool tsr__rates_for(const tsr_simulate_options *options, const tsr__data_sheet *gpu,
                    tsr__machine_rates *out) {
  if (options->rates)
    *out = *tsr__rates_numbers(options->rates);
  else if (gpu)
    tsr__rates_of_sheet(gpu, out);
  if ((options->rates || gpu) && options->link_bytes_per_s > 0)
    out->peer_bytes_per_s = options->link_bytes_per_s;
  return options->rates || gpu;
}

/* The time of a step on the card. */
static void estimate_time(const tsr__tape *tape, const tsr__data_sheet *gpu,
                          const tsr_simulate_options *options, tsr_simulation *out) {
  tsr__machine_rates rates;
  if (!tsr__rates_for(options, gpu, &rates)) return;
  out->gpu_title = options->rates ? "machine of --rates" : gpu->title;
  out->step_seconds = tsr__cost_of_tape(tape, &rates).step_s;
  if (options->rates) return;
  note(out,
       "the time is an estimate from the card's data sheet: 60 % of its operations in a second, "
       "80 % of its bandwidth, and 5 us for each kernel");
}

/* What the traced program has decided cannot be chosen again. */
static int check_traced(const tsr_simulate_options *o, tsr_error *error) {
  const tsr_offload *away = &o->offload;
  bool is_chosen = o->book || o->accumulate > 1 || o->optimizer || o->dtype || o->attention ||
                   o->checkpoint || o->loss_chunk || o->gelu_fused || o->no_kv_cache || o->leak ||
                   o->micro_batch || o->accumulation || o->backward_once || o->non_reentrant ||
                   o->in_place || o->block_count || o->clip_norm > 0 || o->eval_steps ||
                   o->eval_batch || o->ranks || o->zero || away->optimizer || away->gradients ||
                   away->parameters || away->activations;
  if (!is_chosen) return 0;
  return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                   "a step graph is simulated as it was traced: only steps, capacity, allocator "
                   "settings, a card, a fresh process, categories, what modules keep and the "
                   "optimizer's form can be chosen");
}

/* The graph to run: the model's own, or a rewritten one, which is in *owned. */
static int rewritten_modules(const tsr_model *model, const tsr_simulate_options *options,
                             tsr__step_graph **owned, tsr__step_graph **graph, tsr_error *error) {
  const char *checkpoint = options->checkpoint_modules, *offload = options->offload_modules;
  size_t count = 0;
  *owned = NULL;
  *graph = model->graph;
  if (!checkpoint && !offload && !options->module_count) return 0;
  tsr__rewrite_choice *choices = TSR__NEW_ARRAY(tsr__rewrite_choice, options->module_count + 2);
  if (!choices) return tsr__fail_memory(error);
  if (checkpoint) choices[count++] = (tsr__rewrite_choice){checkpoint, TSR__REWRITE_CHECKPOINT};
  if (offload) choices[count++] = (tsr__rewrite_choice){offload, TSR__REWRITE_OFFLOAD};
  for (size_t i = 0; i < options->module_count; i++)
    choices[count++] = (tsr__rewrite_choice){options->modules[i].name,
                                             options->modules[i].how == TSR_MODULE_CHECKPOINT
                                                 ? TSR__REWRITE_CHECKPOINT
                                                 : TSR__REWRITE_OFFLOAD};
  int status = tsr__step_graph_rewrite(model->graph, choices, count, owned, error);
  tsr__free(choices);
  if (status == 0) *graph = *owned;
  return status;
}

static int rewritten(const tsr_model *model, const tsr_simulate_options *options,
                     tsr__step_graph **owned, tsr__step_graph **graph, tsr_error *error) {
  tsr__step_graph *other = NULL;
  int status = rewritten_modules(model, options, owned, graph, error);
  if (status || !options->optimizer_form) return status;
  assert(options->optimizer_form - 1 < TSR__OPTIMIZER_FORMS);
  status = tsr__step_graph_with_form(*graph, (tsr__form_kind)(options->optimizer_form - 1), &other,
                                     error);
  tsr__step_graph_free(*owned);
  *owned = other;
  *graph = other;
  return status;
}

static void add_graph_notes(const tsr_simulate_options *options, const tsr__built_graph *built,
                            tsr_simulation *out) {
  if (!options->fresh_process && built->workspaces)
    note(out, "assumes that cuBLAS has allocated its workspaces before the recording begins");
  note(out, tsr__step_graph_lacks_kernels(built->graph)
                ? "does not contain what kernels allocate internally; a new trace has it for "
                  "attention and embeddings"
                : "contains what the backward of attention and of embeddings allocates internally, "
                  "but not what other kernels do, such as cuDNN's workspaces");
  note_capacity(options, out);
}

static int refuse_traced_gpu(const char *name, tsr_error *error) {
  char known[160] = "";
  const tsr__data_sheet *gpu;
  for (size_t i = 0; (gpu = tsr__data_sheet_at(i)) != NULL; i++) {
    size_t used = strlen(known);
    int added = snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", gpu->name);
    assert(added > 0 && (size_t)added < sizeof known - used);
    (void)added;
  }
  return tsr__fail(
      error, TSR_ERROR_UNSUPPORTED, TSR_OFFSET_NONE,
      "step graph: 'gpu' is '%.31s', which is not a known card; choose one with --gpu: "
      "%s",
      name, known);
}

/* The card that a step was traced for. */
static int traced_gpu(const tsr__step_graph *graph, const tsr__data_sheet **out, tsr_error *error) {
  const char *name = tsr__step_graph_gpu(graph);
  *out = tsr__data_sheet_of_name(name);
  return *out ? 0 : refuse_traced_gpu(name, error);
}

/* Whether the step would run other kernels on a card. An unknown card is a newer one: it has flash attention's. */
static bool needs_other_kernels(const tsr__step_graph *graph, const tsr__data_sheet *traced,
                                const tsr__data_sheet *gpu) {
  bool had_flash = !traced || has_flash(traced);
  return has_flash(gpu) != had_flash && tsr__step_graph_needs_kernels(graph, had_flash);
}

/* cuBLAS's workspace on the card that the step was traced for, or on another one with the same kernels. */
static int workspace_of(const tsr__step_graph *graph, const char *name, uint64_t *bytes,
                        tsr_error *error) {
  const tsr__data_sheet *traced = NULL;
  int status = traced_gpu(graph, &traced, name ? NULL : error);
  if (status && !name) return status;
  const tsr__data_sheet *gpu = name ? tsr__data_sheet_of_name(name) : traced;
  if (!gpu) return no_such_card(name, error);
  if (needs_other_kernels(graph, traced, gpu))
    return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                     "the step was traced for the %s, and PyTorch chooses other attention kernels "
                     "on the %s: trace it again with gpu='%s'",
                     traced ? traced->title : tsr__step_graph_gpu(graph), gpu->title, gpu->name);
  *bytes = tsr__data_sheet_workspace_bytes(gpu);
  return 0;
}

int tsr__choose_gpu(const tsr_model *model, tsr_simulate_options *options, tsr_error *error) {
  const tsr__data_sheet *traced = NULL;
  if (options->gpu) return 0;
  int status = model->graph ? traced_gpu(model->graph, &traced, error) : 0;
  if (status == 0 && !options->rates) options->gpu = traced ? traced->name : "a100";
  return status;
}

void tsr__built_graph_release(tsr__built_graph *built) {
  tsr__tape_release(&built->tape);
  tsr__step_graph_free(built->owned);
}

int tsr__build_graph(const tsr_model *model, const tsr_simulate_options *options,
                     tsr__built_graph *out, tsr_error *error) {
  uint64_t steps = options->steps ? options->steps : 1;
  uint64_t workspace = 0;
  *out = (tsr__built_graph){.workspace_bytes = 0};
  int status = check_traced(options, error);
  if (status == 0) status = workspace_of(model->graph, options->gpu, &workspace, error);
  if (status == 0) status = rewritten(model, options, &out->owned, &out->graph, error);
  if (status) return status;
  out->workspace_bytes = workspace;
  out->workspaces = tsr__step_graph_workspaces(out->graph);
  if (!tsr__tape_init(&out->tape, tsr__step_graph_tracer(out->graph)) ||
      tsr__step_graph_record(out->graph, workspace, options->fresh_process, &out->tape))
    return tsr__fail_memory(error);
  if (steps > TSR_SIMULATE_MOST_INSTRUCTIONS / (out->tape.schedule.count + 1))
    return too_long(steps, out->tape.schedule.count, error);
  return 0;
}

double tsr__graph_seconds(const tsr__step_graph *graph, const tsr_simulate_options *options) {
  tsr__machine_rates rates;
  const tsr__data_sheet *gpu = options->gpu ? tsr__data_sheet_of_name(options->gpu) : NULL;
  if (!tsr__rates_for(options, gpu, &rates)) return 0;
  return tsr__cost_of_graph(graph, &rates).step_s;
}

/* The time of the traced step on the card. */
static void estimate_graph(const tsr__step_graph *graph, const tsr_simulate_options *options,
                           tsr_simulation *out) {
  const tsr__data_sheet *gpu = options->gpu ? tsr__data_sheet_of_name(options->gpu) : NULL;
  assert(gpu || !options->gpu);
  if (!gpu && !options->rates) return;
  out->gpu_title = options->rates ? "machine of --rates" : gpu->title;
  out->step_seconds = tsr__graph_seconds(graph, options);
  note(out, tsr__step_graph_assumes_work(graph)
                ? "the graph does not contain what its ops compute, so the time covers only "
                  "writing what they allocate: trace it again"
                : "the time is an estimate from the card's data sheet: 60 % of its operations in "
                  "a second, 80 % of its bandwidth, and 5 us for each op");
}

/* A traced step: its own slots and stacks, and what fake tensors cannot show. `batch` and `sequence` mean nothing. */
static int simulate_graph(const tsr_model *model, const tsr_simulate_options *options,
                          tsr_simulation *out, tsr_error *error) {
  tsr__built_graph built;
  tsr_simulate_options how = *options;
  if (!options->module_count) how.plan_hash = NULL; /* of the choices that do not apply */
  int status = tsr__build_graph(model, options, &built, error);
  const tsr__program program = {.model = model, .tape = &built.tape};
  if (status == 0)
    status = execute(&program, tsr__step_graph_optimizer(built.graph), &how, out, error);
  if (status == 0) {
    out->parameter_count = tsr__step_graph_parameters(built.graph);
    add_graph_notes(options, &built, out);
    estimate_graph(built.graph, options, out);
  }
  tsr__built_graph_release(&built);
  return status;
}

int tsr__build(const tsr_model *model, const tsr_simulate_options *options, bool has_stacks,
               tsr__built *out, tsr_error *error) {
  assert(!model->graph);
  *out = (tsr__built){.run = *options};
  if (has_stacks) out->tracer = tsr__torch_new(model);
  bool ok = (out->tracer || !has_stacks) && tsr__tape_init(&out->tape, out->tracer);
  int status = ok ? 0 : tsr__fail_memory(error);
  if (status == 0) status = suit_gpu(options, &out->gpu, &out->run, &out->tape, error);
  if (status == 0)
    status = tsr__program_init(&out->program, model, &out->run, NULL, &out->tape, error);
  return status ? status : tsr__program_record(&out->program, true, error);
}

void tsr__built_release(tsr__built *built) {
  tsr__program_release(&built->program);
  tsr__tape_release(&built->tape);
  tsr__torch_free(built->tracer);
}

static int simulate(const tsr_model *model, const tsr_simulate_options *options,
                    tsr_simulation *out, tsr_error *error) {
  if (options->checkpoint_modules || options->offload_modules || options->module_count ||
      options->optimizer_form)
    return tsr__fail(
        error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
        "modules by name, and the optimizer's form, can only be chosen for a step graph");
  tsr__built built;
  int status = tsr__build(model, options, true, &built, error);
  if (status == 0)
    status = execute(&built.program, options->optimizer == TSR_OPTIMIZER_SGD ? "SGD" : "AdamW",
                     options, out, error);
  if (status == 0) {
    const tsr__tape *tape = &built.tape;
    for (size_t i = 0; i < tape->parameters.count; i++) {
      uint64_t count = tsr__shape_elements(tsr__tensor_shape(tape, tape->parameters.items[i]));
      out->parameter_count += count;
      if (count > out->largest_parameter) out->largest_parameter = count;
    }
    out->step_flops = tape->flops;
    out->step_recomputed_flops = tape->recomputed_flops;
    add_notes(&built.program, options, out);
    estimate_time(tape, built.gpu, options, out);
  }
  tsr__built_release(&built);
  return status;
}

int tsr_simulate(const tsr_model *model, const tsr_simulate_options *options, tsr_simulation **out,
                 tsr_error *error) {
  tsr_simulate_options how;
  int status = tsr__options_read(options, &how, sizeof how, error);
  if (status) return status;
  tsr_simulation *simulation = TSR__NEW(tsr_simulation);
  if (!simulation) return tsr__fail_memory(error);
  status = model->graph ? simulate_graph(model, &how, simulation, error)
                        : simulate(model, &how, simulation, error);
  if (status) {
    tsr_simulation_free(simulation);
    return status;
  }
  *out = simulation;
  return 0;
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
