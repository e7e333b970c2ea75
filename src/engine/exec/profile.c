/* profile.c - see profile.h.
 *
 * The run is walked a second time, up to the event of its peak, counting how many allocations each slot has live:
 *
 *   slot        17   18   19 ...
 *   live         1    0    2          2: this step's, and one that the step before still holds
 *   origin      op, kernel, block     from the schedule: which op ran when the slot was allocated
 *   saved_for   op                    the first that saved a tensor of it
 *
 * Live slots become rows, and equal rows are added up. Slots of parameters, gradients and optimizer state have
 * the block of their parameter. */
#include "exec/profile.h"

#include <assert.h>
#include <string.h>

#include "base/checked.h"
#include "base/memory.h"
#include "base/sort.h"
#include "exec/simulate.h"

typedef struct origin {
  uint32_t op;        /* index into the schedule's ops, or TSR_NONE */
  uint32_t kernel;    /* the first that writes it, or TSR_NONE */
  uint32_t saved_for; /* op, or TSR_NONE */
  uint32_t block;
  uint32_t stack; /* where it is allocated, or TSR_NONE */
  uint8_t dtype;  /* tsr__dtype, of its first tensor */
  bool is_backward, is_module_output;
} origin;

typedef struct profiler {
  const tsr__schedule *schedule;
  const tsr__dry_moment *peak;
  origin *origins; /* by slot */
  uint32_t *live;  /* by slot: how many are live, after the last event seen */
  uint64_t seen;   /* events */
  bool is_there;   /* the peak has been reached: `live` is of it */
} profiler;

/* ---- where slots come from ---- */

static void set_block(const profiler *p, tsr__tensor_id tensor, uint32_t block) {
  if (tensor) p->origins[tsr__schedule_tensor(p->schedule, tensor)->slot].block = block;
}

static void note_blocks(const profiler *p) {
  for (size_t i = 0; i < p->schedule->blocks.count; i++)
    set_block(p, p->schedule->blocks.items[i].tensor, p->schedule->blocks.items[i].block);
}

/* Gradients and optimizer state belong to the block of their parameter. */
static void note_parameters(const profiler *p) {
  const tsr__schedule *t = p->schedule;
  for (size_t i = 0; i < t->parameters.count; i++) {
    const tsr__step_tensor *parameter = tsr__schedule_tensor(t, t->parameters.items[i]);
    uint32_t block = p->origins[parameter->slot].block;
    set_block(p, parameter->grad, block);
    if (i >= t->states.count) continue;
    set_block(p, t->states.items[i].count, block);
    set_block(p, t->states.items[i].first, block);
    set_block(p, t->states.items[i].second, block);
  }
}

static void note_run(const profiler *p, uint32_t index) {
  const tsr__kernel_run *run = &p->schedule->runs.items[index];
  for (uint32_t i = 0; i < run->write_count; i++) {
    origin *o =
        &p->origins[tsr__schedule_tensor(p->schedule, tsr__run_writes(p->schedule, run)[i])->slot];
    if (o->kernel == TSR_NONE) o->kernel = run->kernel;
  }
}

static void note_schedule(const profiler *p) {
  const tsr__schedule *t = p->schedule;
  uint32_t op = TSR_NONE;
  for (size_t i = 0; i < t->instrs.count; i++) {
    const tsr__instr *instr = &t->instrs.items[i];
    if (instr->kind == TSR__INSTR_OP) op = instr->subject;
    if (instr->kind == TSR__INSTR_BEGIN || instr->kind == TSR__INSTR_END) op = TSR_NONE;
    if (instr->kind == TSR__INSTR_RUN) note_run(p, instr->subject);
    if (instr->kind != TSR__INSTR_NEW && instr->kind != TSR__INSTR_NEW_ONCE) continue;
    origin *o = &p->origins[instr->subject];
    o->stack = instr->stack;
    if (instr->kind != TSR__INSTR_NEW) continue;
    o->op = op;
    o->is_backward = instr->is_backward;
    if (op != TSR_NONE) o->block = t->ops.items[op].block;
  }
}

static void note_tensors(const profiler *p) {
  const tsr__schedule *t = p->schedule;
  for (size_t i = t->tensors.count; i-- > 1;) {
    origin *o = &p->origins[t->tensors.items[i].slot];
    o->dtype = t->tensors.items[i].dtype;
    if (t->tensors.items[i].is_module_output) o->is_module_output = true;
  }
  for (size_t i = t->ops.count; i-- > 0;)
    for (uint32_t k = 0; k < t->ops.items[i].saved_count; k++)
      p->origins[tsr__schedule_tensor(t, t->ops.items[i].saved[k])->slot].saved_for = (uint32_t)i;
}

static void note_origins(const profiler *p) {
  for (size_t i = 0; i < p->schedule->slots.count; i++)
    p->origins[i] = (origin){.op = TSR_NONE,
                             .kernel = TSR_NONE,
                             .saved_for = TSR_NONE,
                             .block = TSR_NONE,
                             .stack = TSR_NONE};
  note_schedule(p);
  note_blocks(p);
  note_parameters(p);
  note_tensors(p);
}

/* ---- the walk ---- */

static bool see_event(void *context, uint32_t device, uint32_t slot,
                      const tsr_allocator_event *event) {
  profiler *p = context;
  if (device != 0 || p->is_there) return true;
  if (event->action == TSR_ACTION_ALLOC) p->live[slot]++;
  if (event->action == TSR_ACTION_FREE_COMPLETED) {
    assert(p->live[slot]);
    p->live[slot]--;
  }
  p->is_there = ++p->seen == p->peak->event_count;
  return true;
}

static bool is_done(void *context, uint64_t step) {
  (void)step;
  return ((const profiler *)context)->is_there;
}

/* `start_bytes`: requested before the first event. */
static int walk(profiler *p, const tsr__dry_options *dry, uint64_t start_bytes, tsr_error *error) {
  tsr__dry_observer observer = {.context = p, .event = see_event, .is_done = is_done};
  tsr__dry_options how = *dry;
  uint32_t count = how.device_count ? how.device_count : 1;
  tsr__dry_device *devices = TSR__NEW_ARRAY(tsr__dry_device, count);
  uint64_t done;
  if (!devices) return tsr__fail_memory(error);
  how.observer = &observer;
  how.spaces = NULL;
  how.steps = p->peak->step ? p->peak->step : 1;
  uint64_t loaded = 0; /* in the order of slots; not all of them if memory ran out */
  for (size_t i = 1; i < p->schedule->slots.count && loaded < start_bytes; i++) {
    const tsr__slot *slot = &p->schedule->slots.items[i];
    p->live[i] = slot->is_static && slot->bytes && slot->space == TSR__SPACE_DEVICE;
    if (p->live[i]) loaded += slot->bytes;
  }
  assert(loaded == start_bytes);
  p->is_there = p->peak->event_count == 0;
  int status = tsr__dry_run(p->schedule, &how, devices, &done, error);
  assert(status || p->is_there);
  tsr__free(devices);
  return status;
}

/* ---- rows ---- */

static const char *dtype_word(uint8_t dtype) {
  static const char *const words[] = {
      [TSR__DTYPE_F32] = "fp32", [TSR__DTYPE_BF16] = "bf16", [TSR__DTYPE_F16] = "fp16",
      [TSR__DTYPE_F64] = "fp64", [TSR__DTYPE_I64] = "int64", [TSR__DTYPE_BOOL] = "bool",
      [TSR__DTYPE_I8] = "int8"};
  assert(dtype < sizeof words / sizeof *words && words[dtype]);
  return words[dtype];
}

/* "" if the schedule has no tensors, and so no types. */
static const char *dtype_of(const profiler *p, const origin *o) {
  return p->schedule->tensors.count ? dtype_word(o->dtype) : "";
}

static tsr_memory_row row_of(const profiler *p, uint32_t slot) {
  const tsr__schedule *t = p->schedule;
  const origin *o = &p->origins[slot];
  tsr_memory_row row = {.block = o->block,
                        .category = (tsr_category)t->slots.items[slot].category,
                        .dtype = dtype_of(p, o),
                        .op = "",
                        .kernel = "",
                        .saved_for = "",
                        .count = p->live[slot],
                        .bytes = p->live[slot] * t->slots.items[slot].bytes};
  bool is_made = row.category != TSR_CATEGORY_PARAMETER && row.category != TSR_CATEGORY_GRADIENT &&
                 row.category != TSR_CATEGORY_OPTIMIZER_STATE;
  if (!is_made) return row;
  row.op = tsr__schedule_op_name(t, o->op, o->stack);
  if (o->kernel != TSR_NONE) row.kernel = tsr__kernel_row_of((tsr__kernel)o->kernel)->name;
  row.saved_for = tsr__schedule_op_name(t, o->saved_for, TSR_NONE);
  row.is_backward = o->is_backward;
  row.is_module_output = o->is_module_output;
  return row;
}

static int compare_kinds(const void *left, const void *right) {
  const tsr_memory_row *a = left, *b = right;
  if (a->block != b->block) return a->block < b->block ? -1 : 1;
  if (a->category != b->category) return a->category < b->category ? -1 : 1;
  if (a->is_backward != b->is_backward) return a->is_backward ? 1 : -1;
  if (a->is_module_output != b->is_module_output) return a->is_module_output ? 1 : -1;
  int order = strcmp(a->dtype, b->dtype);
  if (order == 0) order = strcmp(a->op, b->op);
  if (order == 0) order = strcmp(a->kernel, b->kernel);
  return order ? order : strcmp(a->saved_for, b->saved_for);
}

static int compare_bytes(const void *left, const void *right) {
  const tsr_memory_row *a = left, *b = right;
  if (a->bytes != b->bytes) return a->bytes > b->bytes ? -1 : 1;
  return compare_kinds(a, b);
}

static bool list_rows(const profiler *p, tsr_memory_profile *out) {
  size_t count = 0, kinds = 0;
  for (size_t i = 1; i < p->schedule->slots.count; i++) count += p->live[i] != 0;
  out->rows = TSR__NEW_ARRAY(tsr_memory_row, count + 1);
  if (!out->rows) return false;
  count = 0;
  for (uint32_t i = 1; i < p->schedule->slots.count; i++)
    if (p->live[i]) out->rows[count++] = row_of(p, i);
  tsr__sort(out->rows, count, sizeof *out->rows, compare_kinds);
  for (size_t i = 0; i < count; i++) {
    if (kinds && compare_kinds(&out->rows[kinds - 1], &out->rows[i]) == 0) {
      out->rows[kinds - 1].count += out->rows[i].count;
      out->rows[kinds - 1].bytes += out->rows[i].bytes;
    } else {
      out->rows[kinds++] = out->rows[i];
    }
  }
  tsr__sort(out->rows, kinds, sizeof *out->rows, compare_bytes);
  out->row_count = kinds;
  return true;
}

/* Every slot by category and type; if types are not known, what outlives the step apart from the rest. */
static void list_types(const profiler *p, tsr_memory_profile *out) {
  enum { TYPES = TSR_MEMORY_TYPES / TSR_CATEGORY_COUNT };
  tsr_memory_type all[TSR_CATEGORY_COUNT][TYPES] = {{{0}}};
  for (size_t i = 1; i < p->schedule->slots.count; i++) {
    const tsr__slot *slot = &p->schedule->slots.items[i];
    assert(slot->category < TSR_CATEGORY_COUNT && p->origins[i].dtype < TYPES);
    bool has_types = p->schedule->tensors.count > 0;
    tsr_memory_type *type =
        &all[slot->category][has_types ? p->origins[i].dtype : slot->is_carried];
    type->category = (tsr_category)slot->category;
    type->dtype = dtype_of(p, &p->origins[i]);
    type->count++;
    type->bytes += slot->bytes;
    type->peak_bytes += p->live[i] * slot->bytes;
  }
  for (size_t c = 0; c < TSR_CATEGORY_COUNT; c++)
    for (size_t t = 0; t < TYPES; t++)
      if (all[c][t].count) out->types[out->type_count++] = all[c][t];
}

static void check_sums(const profiler *p, const tsr_memory_profile *profile) {
  uint64_t sums[TSR_CATEGORY_COUNT] = {0};
  for (size_t i = 0; i < profile->row_count; i++)
    sums[profile->rows[i].category] += profile->rows[i].bytes;
  assert(memcmp(sums, p->peak->category_bytes, sizeof sums) == 0);
  (void)p, (void)sums;
}

static void add_phases(const profiler *p, const tsr__dry_device *device, tsr_memory_profile *out) {
  static const tsr__phase_kind phases[TSR_MEMORY_PHASES] = {
      TSR__PHASE_ZERO_GRAD, TSR__PHASE_FORWARD, TSR__PHASE_BACKWARD, TSR__PHASE_OPTIMIZER,
      TSR__PHASE_EVALUATION};
  for (size_t i = 0; i < TSR_MEMORY_PHASES; i++) {
    tsr_memory_phase *phase = &out->phases[i];
    phase->peak.phase = phase->end.phase = tsr__phase_word((uint8_t)phases[i]);
    if (device->phases[phases[i]].step)
      phase->peak = tsr__public_moment(p->schedule, &device->phases[phases[i]]);
    if (device->ends[phases[i]].step)
      phase->end = tsr__public_moment(p->schedule, &device->ends[phases[i]]);
  }
}

static int fill(profiler *p, const tsr__dry_options *dry, const tsr__dry_device *device,
                tsr_memory_profile *out, tsr_error *error) {
  p->origins = TSR__NEW_ARRAY(origin, p->schedule->slots.count);
  p->live = TSR__NEW_ARRAY(uint32_t, p->schedule->slots.count);
  if (!p->origins || !p->live) return tsr__fail_memory(error);
  note_origins(p);
  int status = walk(p, dry, device->start.totals.requested_bytes, error);
  if (status) return status;
  if (!list_rows(p, out)) return tsr__fail_memory(error);
  list_types(p, out);
  check_sums(p, out);
  add_phases(p, device, out);
  out->peak = tsr__public_moment(p->schedule, p->peak);
  out->peak_reserved_bytes = device->peak_reserved_bytes;
  out->block_count = p->schedule->block_count;
  out->lost_bytes = tsr__drop_u64(p->peak->totals.allocated_bytes, p->peak->totals.requested_bytes);
  return 0;
}

int tsr__memory_profile_compute(const tsr__schedule *schedule, const tsr__dry_options *dry,
                                const tsr__dry_device *device, tsr_memory_profile **out,
                                tsr_error *error) {
  profiler p = {.schedule = schedule, .peak = &device->peak};
  tsr_memory_profile *profile = TSR__NEW(tsr_memory_profile);
  if (!profile) return tsr__fail_memory(error);
  int status = fill(&p, dry, device, profile, error);
  tsr__free(p.origins);
  tsr__free(p.live);
  if (status)
    tsr_memory_profile_free(profile);
  else
    *out = profile;
  return status;
}

void tsr_memory_profile_free(tsr_memory_profile *profile) {
  if (!profile) return;
  tsr__free(profile->rows);
  tsr__free(profile);
}
