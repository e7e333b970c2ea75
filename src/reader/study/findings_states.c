/* findings_states.c - a peak that is parameters, gradients and optimizer state: no batch and no checkpoint
 * makes it smaller, so what does is listed, each with what it saves of this file's bytes.
 *
 * Types of tensors are not in a snapshot. States in 8 bits, or weights in 4, are counted against the type that
 * such models usually have (32 bits of a state, 16 of a frozen weight), which the texts say. */
#include "base/checked.h"
#include "study/block_call.h"
#include "study/finder.h"

/* Parameters, gradients and states, and the copies of the optimizer's step, hold so much of the peak. */
#define MOST_PERCENT 90

/* An 8-bit optimizer keeps one byte for four, and a scale of 4 bytes for every 256 of them; 4-bit weights
 * keep 4.13 bits of 16. */
#define EIGHT_BIT_SAVES (1 - (1 + 4.0 / 256) / 4)
#define FOUR_BIT_SAVES  (1 - 4.127 / 16)

/* Does a frame of the snapshot lie in a file whose path has this part? */
static bool has_file(const tsr_snapshot *snapshot, const char *part) {
  uint32_t count = tsr_snapshot_frame_count(snapshot);
  for (uint32_t i = 0; i < count; i++)
    if (tsr__path_has(tsr_snapshot_string(snapshot, tsr_snapshot_frame(snapshot, i).file), part))
      return true;
  return false;
}

static bool is_sharded(const tsr_snapshot *snapshot) {
  return has_file(snapshot, "/fsdp/") || has_file(snapshot, "/_fsdp/") ||
         has_file(snapshot, "deepspeed/");
}

static bool has_small_states(const tsr_snapshot *snapshot) {
  return has_file(snapshot, "bitsandbytes/") || has_file(snapshot, "low_bit_optim") ||
         has_file(snapshot, "adafactor.py");
}

/* PyTorch's optimizers work on lists of tensors by default, of which they make copies. */
static bool is_foreach(const tsr_snapshot *snapshot) {
  uint32_t count = tsr_snapshot_frame_count(snapshot);
  for (uint32_t i = 0; i < count; i++)
    if (tsr__path_has(tsr_snapshot_string(snapshot, tsr_snapshot_frame(snapshot, i).name),
                      "_multi_tensor_"))
      return true;
  return false;
}

static void add_option(tsr_finding *finding, tsr_finding_option option, double saved_bytes) {
  if (saved_bytes < (double)TSR__FINDING_LEAST_BYTES) return;
  assert((unsigned)option < TSR_FINDING_OPTION_COUNT);
  finding->option_bytes[option] = (uint64_t)saved_bytes;
}

static void list_options(const tsr__finder *f, bool is_frozen, uint64_t copies,
                         tsr_finding *finding) {
  double states = (double)finding->state_bytes, gradients = (double)finding->gradient_bytes,
         parameters = (double)finding->parameter_bytes;
  const tsr_snapshot *snapshot = f->t->snapshot;
  if (is_foreach(snapshot)) add_option(finding, TSR_FINDING_OPTION_FUSED, (double)copies);
  if (!has_small_states(snapshot)) {
    add_option(finding, TSR_FINDING_OPTION_EIGHT_BIT, states * EIGHT_BIT_SAVES);
    add_option(finding, TSR_FINDING_OPTION_FACTORED, states);
  }
  add_option(finding, TSR_FINDING_OPTION_OFFLOAD, states);
  if (!is_sharded(snapshot)) {
    add_option(finding, TSR_FINDING_OPTION_ZERO1, states / 2);
    add_option(finding, TSR_FINDING_OPTION_FSDP, (states + gradients + parameters) / 2);
  }
  if (is_frozen)
    add_option(finding, TSR_FINDING_OPTION_FOUR_BIT, parameters * FOUR_BIT_SAVES);
  else
    add_option(finding, TSR_FINDING_OPTION_LORA, states + gradients);
}

/* What keeps the program as it is counts as the saving: the state in 8 bits; without a state, what there is. */
static uint64_t saving_of(const tsr_finding *finding) {
  uint64_t most = 0;
  if (finding->option_bytes[TSR_FINDING_OPTION_EIGHT_BIT])
    return finding->option_bytes[TSR_FINDING_OPTION_EIGHT_BIT];
  for (int i = 0; i < TSR_FINDING_OPTION_COUNT; i++)
    if (finding->option_bytes[i] > most) most = finding->option_bytes[i];
  return most;
}

static bool note_all(tsr__finder *f) {
  bool ok = true;
  for (size_t i = 0; ok && i < f->live.count; i++) {
    uint8_t category = f->category[f->live.items[i]];
    if (category == TSR_CATEGORY_PARAMETER || category == TSR_CATEGORY_GRADIENT ||
        category == TSR_CATEGORY_OPTIMIZER_STATE)
      ok = tsr__finder_note(f, TSR_FINDING_STATES, f->live.items[i]);
  }
  return ok;
}

bool tsr__find_states(tsr__finder *f) {
  uint64_t of[TSR_CATEGORY_COUNT] = {0}, all = 0, copies = 0, largest = 0;
  tsr_finding finding = {.rule = TSR_FINDING_STATES,
                         .event = f->t->allocated_event,
                         .frame = TSR_NONE,
                         .stack = TSR_NONE};
  for (size_t i = 0; i < f->live.count; i++) {
    uint32_t a = f->live.items[i];
    uint64_t bytes = tsr__timeline_requested(f->t, a);
    of[f->category[a]] = tsr__sum_u64(of[f->category[a]], bytes);
    all = tsr__sum_u64(all, bytes);
    if (f->category[a] != TSR_CATEGORY_OPTIMIZER_STATE || bytes <= largest) continue;
    largest = bytes;
    finding.stack = tsr__timeline_stack(f->t, a);
  }
  int64_t peak = f->t->allocated_event;
  if (peak >= 0 && tsr__phases_at(f->phases, (uint32_t)peak) == TSR_PHASE_OPTIMIZER)
    copies = of[TSR_CATEGORY_TEMPORARY];
  finding.parameter_bytes = of[TSR_CATEGORY_PARAMETER];
  finding.gradient_bytes = of[TSR_CATEGORY_GRADIENT];
  finding.state_bytes = of[TSR_CATEGORY_OPTIMIZER_STATE];
  uint64_t trained = tsr__sum_u64(finding.gradient_bytes, finding.state_bytes);
  finding.bytes = tsr__sum_u64(finding.parameter_bytes, trained);
  uint64_t fixed = tsr__sum_u64(finding.bytes, copies);
  if (!f->has_backward || !trained || fixed / MOST_PERCENT < all / 100) return true;
  finding.peak_bytes = all;
  finding.copy_bytes = copies;
  list_options(f, trained < finding.parameter_bytes / 4, copies, &finding);
  finding.saved_bytes = saving_of(&finding);
  if (!tsr__finder_is_worth_it(f, finding.saved_bytes)) return true;
  return note_all(f) && tsr__finder_add(f, finding);
}
