/* findings_states.c - a peak that is parameters, gradients and optimizer state: no batch and no checkpoint
 * makes it smaller, so what does is listed, each with what it would save.
 *
 * An option scales what is alive of each of the three (and of the copies in the optimizer's step) at every moment of
 * the trace; the highest moment that remains is compared with the peak. Types of tensors are not in a snapshot: a
 * state counts as one of 16 bits, unless it is three times as large as what is trained, or weights are cast, and
 * frozen weights as ones of 16 bits. So a state or weights of 32 bits save more. */
#include <math.h>

#include "base/checked.h"
#include "study/block_call.h"
#include "study/finder.h"
#include "timeline/sweep.h"

/* Parameters, gradients and states, and the copies of the optimizer's step, hold so much of the peak. */
#define MOST_PERCENT 90

/* An 8-bit optimizer keeps one byte of each number, and a scale of 4 bytes for every 256 of them; 4-bit weights
 * keep 4.13 bits of 16. */
#define EIGHT_BIT_KEEPS (1 + 4.0 / 256)
#define FOUR_BIT_KEEPS  (4.127 / 16)

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

/* What an option leaves of each: a share, and of the copies no more than `most_copies`. */
typedef struct kept {
  bool applies;
  double parameters, gradients, states, copies, most_copies;
} kept;

static bool is_copy(const tsr__finder *f, uint32_t allocation) {
  uint32_t birth = f->t->birth.items[allocation];
  return f->category[allocation] == TSR_CATEGORY_TEMPORARY && birth != TSR_NONE &&
         tsr__phases_at(f->phases, birth) == TSR_PHASE_OPTIMIZER;
}

/* What an optimizer that works on one tensor after the other keeps at most: two copies of the largest. */
static double two_copies(const tsr__finder *f) {
  uint64_t largest = 0;
  for (uint32_t a = 0; a < f->t->birth.count; a++)
    if (f->t->block_bytes.items[a] > largest && is_copy(f, a)) largest = f->t->block_bytes.items[a];
  return 2 * (double)largest;
}

/* PyTorch's fused, 8-bit and offloaded optimizers make no copies. */
static void list_options(const tsr__finder *f, const tsr_finding *finding, bool is_frozen,
                         kept options[TSR_FINDING_OPTION_COUNT]) {
  const tsr_snapshot *snapshot = f->t->snapshot;
  bool has_states = finding->state_bytes != 0, is_divided = is_sharded(snapshot);
  bool is_large = has_states && !has_small_states(snapshot);
  double eight_bit = EIGHT_BIT_KEEPS / (finding->is_state_wide ? 4 : 2), all = INFINITY;
  options[TSR_FINDING_OPTION_FUSED] = (kept){is_foreach(snapshot), 1, 1, 1, 0, all};
  options[TSR_FINDING_OPTION_EIGHT_BIT] = (kept){is_large, 1, 1, eight_bit, 0, all};
  options[TSR_FINDING_OPTION_FACTORED] = (kept){is_large, 1, 1, 0, 1, two_copies(f)};
  options[TSR_FINDING_OPTION_OFFLOAD] = (kept){has_states, 1, 1, 0, 0, all};
  options[TSR_FINDING_OPTION_ZERO1] = (kept){has_states && !is_divided, 1, 1, 0.5, 0.5, all};
  options[TSR_FINDING_OPTION_FSDP] = (kept){!is_divided, 0.5, 0.5, 0.5, 0.5, all};
  options[TSR_FINDING_OPTION_LORA] = (kept){!is_frozen, 1, 0, 0, 0, all};
  options[TSR_FINDING_OPTION_FOUR_BIT] = (kept){is_frozen, FOUR_BIT_KEEPS, 1, 1, 1, all};
}

/* Add an allocation that is made, or subtract one that is freed. */
static void count(const tsr__finder *f, uint32_t allocation, double sign, double alive[4]) {
  if (allocation == TSR_NONE) return;
  double bytes = sign * (double)f->t->block_bytes.items[allocation];
  switch (f->category[allocation]) {
  case TSR_CATEGORY_PARAMETER: alive[0] += bytes; break;
  case TSR_CATEGORY_GRADIENT: alive[1] += bytes; break;
  case TSR_CATEGORY_OPTIMIZER_STATE: alive[2] += bytes; break;
  case TSR_CATEGORY_TEMPORARY:
    if (is_copy(f, allocation)) alive[3] += bytes;
    break;
  default: break;
  }
}

/* What each option saves of the peak, where that is worth it. */
static bool weigh_options(const tsr__finder *f, const kept *options, tsr_finding *finding,
                          tsr_error *error) {
  tsr__sweep sweep;
  double alive[4] = {0}, most[TSR_FINDING_OPTION_COUNT] = {0};
  if (tsr__sweep_begin(f->t, &sweep, error)) return false;
  for (uint32_t a = 0; a < f->t->initial.count; a++) count(f, a, 1, alive);
  do {
    if (sweep.event >= 0) count(f, sweep.born, 1, alive);
    if (sweep.event >= 0) count(f, sweep.died, -1, alive);
    for (int i = 0; i < TSR_FINDING_OPTION_COUNT; i++) {
      const kept *k = &options[i];
      double copies = fmin(k->copies * alive[3], k->most_copies);
      double left = (double)sweep.totals.allocated_bytes - (1 - k->parameters) * alive[0] -
                    (1 - k->gradients) * alive[1] - (1 - k->states) * alive[2] -
                    (alive[3] - copies);
      if (left > most[i]) most[i] = left;
    }
  } while (tsr__sweep_next(&sweep));
  tsr__sweep_release(&sweep);
  for (int i = 0; i < TSR_FINDING_OPTION_COUNT; i++) {
    double saved = (double)f->peak_bytes - most[i];
    if (options[i].applies && saved >= (double)TSR__FINDING_LEAST_BYTES)
      finding->option_bytes[i] = (uint64_t)saved;
  }
  return true;
}

/* The saving is that of the option that saves most. */
static uint64_t saving_of(const tsr_finding *finding) {
  uint64_t most = 0;
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

bool tsr__find_states(tsr__finder *f, tsr_error *error) {
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
  uint64_t weights = finding.gradient_bytes ? finding.gradient_bytes : finding.parameter_bytes;
  finding.is_state_wide = of[TSR_CATEGORY_CAST] || finding.state_bytes / 3 > weights;
  kept options[TSR_FINDING_OPTION_COUNT];
  list_options(f, &finding, trained < finding.parameter_bytes / 4, options);
  if (!weigh_options(f, options, &finding, error)) return false;
  finding.saved_bytes = saving_of(&finding);
  if (!tsr__finder_is_worth_it(f, finding.saved_bytes)) return true;
  return note_all(f) && tsr__finder_add(f, finding);
}
