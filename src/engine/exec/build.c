/* build.c - see build.h.
 *
 *   model, options ─► program ─► recorder ─────────────────┐
 *                                                          ├─► schedule
 *   step graph, options ─► the graph, perhaps rewritten ───┘ */
#include "exec/build.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "ask/question.h"
#include "base/effort.h"
#include "base/memory.h"
#include "exec/card.h"
#include "exec/card_memory.h"
#include "exec/rates.h"
#include "graph/validate.h"
#include "tessera/unstable/runs.h"
#include "torch/torch.h"
#include "traced/rewrite.h"
#include "traced/step_graph.h"

/* ---- how long ---- */

/* NOLINTNEXTLINE(misc-redundant-expression): equal on purpose, but defined in two rooms */
static_assert(TSR_SIMULATE_MOST_INSTRUCTIONS == TSR__MOST_INSTRUCTIONS,
              "a run of one step has its schedule's length");

/* All steps together must not be longer than a snapshot can be. */
static int check_length(const tsr__schedule *schedule, const tsr_simulate_options *options,
                        tsr_error *error) {
  uint64_t steps = options->steps ? options->steps : 1, each = schedule->instrs.count;
  if (!each || steps <= TSR_SIMULATE_MOST_INSTRUCTIONS / each) return 0;
  return tsr__fail(error, TSR_ERROR_LIMIT, TSR_OFFSET_NONE,
                   "%llu steps of %llu instructions each are too long: at most %llu instructions "
                   "are simulated (memory repeats from the third step on)",
                   (unsigned long long)steps, (unsigned long long)each,
                   (unsigned long long)TSR_SIMULATE_MOST_INSTRUCTIONS);
}

/* ---- programs ---- */

/* Finish the tape, and hand its schedule over. Debug builds validate every program that is built. */
static int finish(tsr__program *program, tsr__schedule *out, tsr_error *error) {
  tsr__schedule made;
  int status = tsr__tape_finish(program->tape, &made);
  if (status) return tsr__tape_explain(program->tape, status, error);
#ifndef NDEBUG
  tsr__violation violation;
  if (!program->tape->is_brief) status = tsr__schedule_validate(&made, &violation);
  assert(status != TSR_ERROR_ARGUMENT); /* violation.text describes it */
  if (status) {
    tsr__schedule_release(&made);
    return tsr__fail_memory(error);
  }
#endif
  *out = made;
  program->tape = NULL;
  program->schedule = out;
  return 0;
}

int tsr__program_record(tsr__program *program, bool is_recorded, tsr__schedule *out,
                        tsr_error *error) {
  tsr__program_step(program);
  int status = tsr__program_check_saved(program, error);
  if (status == 0) status = finish(program, out, error);
  return status || !is_recorded ? status : check_length(out, program->options, error);
}

int tsr__program_record_generate(tsr__program *program, uint64_t positions, bool has_rounds,
                                 tsr__schedule *out, tsr_error *error) {
  tsr__program_generate(program, positions, has_rounds);
  return finish(program, out, error);
}

/* ---- cards ---- */

static bool has_flash(const tsr__data_sheet *gpu) {
  return tsr__card_memory_of(TSR__CARD_FLASH, gpu->capability)->bytes != 0;
}

static int no_such_card(const char *name, tsr_error *error) {
  return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE, "no card is called '%.40s'", name);
}

/* The card's own kernels and workspaces; without a card, an A100's. */
static int suit_gpu(const tsr_simulate_options *options, const tsr__data_sheet **gpu,
                    tsr_simulate_options *run, tsr__tape *tape, tsr_error *error) {
  *gpu = tsr__gpu_of(options);
  if (!options->gpu) return 0;
  if (!*gpu) return no_such_card(options->gpu, error);
  tape->workspace_bytes = tsr__data_sheet_workspace_bytes(*gpu);
  tape->processors = (*gpu)->processors;
  tape->threads = (*gpu)->threads;
  tape->capability = (*gpu)->capability;
  if (has_flash(*gpu)) return 0;
  if (run->attention == TSR_ATTENTION_FLASH)
    return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                     "flash attention needs compute capability 8.0, and the %s has %u.%u",
                     (*gpu)->title, (*gpu)->capability / 10u, (*gpu)->capability % 10u);
  if (run->attention == TSR_ATTENTION_SDPA) run->attention = TSR_ATTENTION_EFFICIENT;
  return 0;
}

const tsr__data_sheet *tsr__gpu_of(const tsr_simulate_options *options) {
  return options->gpu ? tsr__data_sheet_of_name(options->gpu) : NULL;
}

/* A card without tensor cores for bf16 multiplies it as fp32. */
static void emulate_bf16(tsr__machine_rates *rates) {
  for (size_t k = 0; k < TSR__KERNEL_COUNT; k++)
    rates->kernel[k][TSR__RATE_HALF].ns_per_flop = rates->kernel[k][TSR__RATE_FULL].ns_per_flop;
}

bool tsr__rates_for(const tsr_simulate_options *options, const tsr__data_sheet *gpu,
                    tsr__machine_rates *out) {
  bool is_bf16 =
      options->dtype == TSR_SIMULATE_BF16 || options->dtype == TSR_SIMULATE_AUTOCAST_BF16;
  if (options->rates)
    *out = *tsr__rates_numbers(options->rates);
  else if (gpu)
    tsr__rates_of_sheet(gpu, out);
  if (!options->rates && gpu && is_bf16 && !tsr__card_has_bf16(gpu)) emulate_bf16(out);
  if (!options->rates && !gpu) return false;
  if (options->link_bytes_per_s > 0) out->peer_bytes_per_s = options->link_bytes_per_s;
  out->ranks_a_machine = options->ranks_per_node;
  out->network_bytes_per_s = options->network_bytes_per_s;
  if (options->has_latency) {
    out->peer_latency_s = options->latency_s;
    out->network_latency_s = options->network_latency_s;
  }
  return true;
}

/* ---- step graphs ---- */

/* What the traced program has decided cannot be chosen again. */
static int check_traced(const tsr_simulate_options *o, tsr_error *error) {
  const tsr_offload *away = &o->offload;
  bool is_chosen = o->book || o->accumulate > 1 || o->optimizer || o->dtype || o->attention ||
                   o->checkpoint || o->loss_chunk || o->gelu_fused || o->no_kv_cache || o->leak ||
                   o->micro_batch || o->accumulation || o->backward_once || o->non_reentrant ||
                   o->in_place || o->block_count || o->clip_norm > 0 || o->eval_steps ||
                   o->eval_batch || o->lora_rank || o->lora_alpha > 0 || o->lora_targets ||
                   o->lora_dropout > 0 || o->adapter_dtype || o->quantize || o->double_quant ||
                   o->kbit_training || o->fp8 || o->ranks || o->zero || o->offload_blocks ||
                   away->optimizer || away->gradients || away->parameters || away->activations;
  if (!is_chosen) return 0;
  return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                   "a step graph is simulated as it was traced: only steps, capacity, allocator "
                   "settings, a card, a fresh process, categories, what modules keep and the "
                   "optimizer's form can be chosen");
}

/* How many names a list has, with commas between; 0 for NULL. */
static size_t count_names(const char *list) {
  size_t count = list != NULL;
  for (; list && *list; list++) count += *list == ',';
  return count;
}

static char *copy_list(const char *list) {
  char *copy = TSR__NEW_ARRAY(char, strlen(list) + 1);
  if (copy) memcpy(copy, list, strlen(list) + 1);
  return copy;
}

/* Add a choice for each name of a list, which may be NULL. Commas are overwritten. */
static size_t add_names(char *list, tsr__rewrite how, tsr__rewrite_choice *out) {
  size_t count = 0;
  for (char *at = list; at; count++) {
    char *comma = strchr(at, ',');
    out[count] = (tsr__rewrite_choice){at, how};
    if (comma) *comma++ = '\0';
    at = comma;
  }
  return count;
}

/* The graph to run: the model's own, or a rewritten one, which is in *owned. */
static int rewritten_modules(const tsr_model *model, const tsr_simulate_options *options,
                             tsr__step_graph **owned, const tsr__step_graph **graph,
                             tsr_error *error) {
  const char *checkpoint = options->checkpoint_modules, *offload = options->offload_modules;
  size_t count = 0;
  *owned = NULL;
  *graph = model->graph;
  if (!checkpoint && !offload && !options->module_count) return 0;
  size_t most = options->module_count + count_names(checkpoint) + count_names(offload);
  tsr__rewrite_choice *choices = TSR__NEW_ARRAY(tsr__rewrite_choice, most);
  char *lists[2] = {checkpoint ? copy_list(checkpoint) : NULL, offload ? copy_list(offload) : NULL};
  bool ok = choices && (lists[0] || !checkpoint) && (lists[1] || !offload);
  if (ok) count += add_names(lists[0], TSR__REWRITE_CHECKPOINT, choices);
  if (ok) count += add_names(lists[1], TSR__REWRITE_OFFLOAD, choices + count);
  for (size_t i = 0; ok && i < options->module_count; i++)
    choices[count++] = (tsr__rewrite_choice){options->modules[i].name,
                                             options->modules[i].how == TSR_MODULE_CHECKPOINT
                                                 ? TSR__REWRITE_CHECKPOINT
                                                 : TSR__REWRITE_OFFLOAD};
  int status = ok ? tsr__step_graph_rewrite(model->graph, choices, count, owned, error)
                  : tsr__fail_memory(error);
  tsr__free(lists[0]);
  tsr__free(lists[1]);
  tsr__free(choices);
  if (status == 0) *graph = *owned;
  return status;
}

static int rewritten(const tsr_model *model, const tsr_simulate_options *options,
                     tsr__step_graph **owned, const tsr__step_graph **graph, tsr_error *error) {
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

static int refuse_traced_gpu(const char *name, tsr_error *error) {
  char known[192];
  tsr__list_words(tsr_gpu_word, known, sizeof known);
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
  const char *usual = options->fp8 ? "h100" : "a100"; /* which has no FP8 */
  if (status == 0 && !options->rates) options->gpu = traced ? traced->name : usual;
  return status;
}

static int build_graph(const tsr_model *model, const tsr_simulate_options *options, tsr__built *out,
                       tsr_error *error) {
  uint64_t workspace = 0;
  int status = check_traced(options, error);
  if (status == 0) status = workspace_of(model->graph, options->gpu, &workspace, error);
  if (status == 0) status = rewritten(model, options, &out->rewritten, &out->graph, error);
  if (status) return status;
  if (!options->module_count) out->run.plan_hash = NULL; /* of choices that do not apply */
  out->gpu = tsr__gpu_of(options);
  out->optimizer = tsr__step_graph_optimizer(out->graph);
  out->workspace_count = tsr__step_graph_workspaces(out->graph);
  if (tsr__step_graph_schedule(out->graph, workspace, options->fresh_process, &out->schedule))
    return tsr__fail_memory(error);
  if (!tsr__effort_go_on(options->effort, out->schedule.instrs.count))
    return tsr__effort_fail(options->effort, error);
  return check_length(&out->schedule, options, error);
}

/* ---- all of it ---- */

static int build_model(const tsr_model *model, const tsr_simulate_options *options,
                       tsr__build_detail detail, tsr__built *out, tsr_error *error) {
  tsr__tape tape;
  bool has_stacks = detail == TSR__BUILD_STACKS;
  if (has_stacks) out->tracer = tsr__torch_new(model);
  bool ok = tsr__tape_init(&tape, &tsr__book_torch, out->tracer) && (out->tracer || !has_stacks);
  int status = ok ? 0 : tsr__fail_memory(error);
  tape.is_brief = detail == TSR__BUILD_FIGURES;
  tape.effort = options->effort;
  out->optimizer = tsr__optimizer_class(options->optimizer);
  if (status == 0) status = suit_gpu(options, &out->gpu, &out->run, &tape, error);
  if (status == 0) status = tsr__program_init(&out->program, model, &out->run, NULL, &tape, error);
  if (status == 0) status = tsr__program_record(&out->program, true, &out->schedule, error);
  tsr__tape_release(&tape);
  return status;
}

/* Refuse what only step graphs have. */
static int check_modules(const tsr_simulate_options *o, tsr_error *error) {
  bool has_choices =
      o->checkpoint_modules || o->offload_modules || o->module_count || o->optimizer_form;
  if (!has_choices) return 0;
  return tsr__fail(
      error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
      "modules by name, and the optimizer's form, can only be chosen for a step graph");
}

int tsr__build(const tsr_model *model, const tsr_simulate_options *options,
               tsr__build_detail detail, tsr__built *out, tsr_error *error) {
  *out = (tsr__built){.run = *options};
  if (model->graph) return build_graph(model, options, out, error);
  int status = check_modules(options, error);
  return status ? status : build_model(model, options, detail, out, error);
}

void tsr__built_release(tsr__built *built) {
  tsr__schedule_release(&built->schedule);
  tsr__program_release(&built->program);
  tsr__torch_free(built->tracer);
  tsr__step_graph_free(built->rewritten);
}

/* The ranks that share a machine: all, or as many as --gpus-per-node says. */
static uint64_t ranks_of_machine(const tsr_simulate_options *options) {
  uint64_t ranks = options->ranks ? options->ranks : 1, most = options->ranks_per_node;
  return most && most < ranks ? most : ranks;
}

uint64_t tsr__machine_bytes(const tsr_simulate_options *options, uint64_t rank_bytes) {
  uint64_t ranks = ranks_of_machine(options);
  return rank_bytes > UINT64_MAX / ranks ? UINT64_MAX : rank_bytes * ranks;
}
