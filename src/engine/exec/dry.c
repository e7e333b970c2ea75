/* dry.c - the dry executor: no tensor exists, but every byte of it is requested.
 *
 * Slots become addresses. Two arrays hold them: where a slot of this step is, and where the step
 * before left one that was still held when it ended.
 *
 *   schedule:  NEW 17 ...... DROP 17        here[17] = 0x7f.. ...... 0
 *              NEW 42 ...... (end of step)  before[42] = here[42]; here[42] = 0
 *              ...... DROP_PREV 42          before[42] = 0
 *              (end of step, leaked)        here[99] = 0: nobody knows its address any more
 *
 * Invariants, between two instructions:
 *   - a slot that is not carried has no address in `before`
 *   - a device's category_bytes are the bytes of the slots that have addresses on it, and of what was leaked
 *   - NEW meets a slot without an address, DROP one with an address
 *
 * A slot of no bytes has address 0 throughout, as in PyTorch. */
#include "exec/dry.h"

#include <assert.h>
#include <string.h>

#include "allocator/rules.h"
#include "tessera/unstable/allocator_state.h"

struct dry;

typedef struct device {
  struct dry *run;
  tsr_allocator *allocator;
  tsr__dry_device *out;
  uint64_t category_bytes[TSR_CATEGORY_COUNT];
  uint32_t index;
} device;

typedef struct dry {
  const tsr__schedule *schedule;
  const tsr__dry_options *options;
  tsr__dry_observer observer;
  device *devices; /* and the other spaces after them */
  uint32_t device_count, place_count;
  tsr__dry_device spaces[TSR__DRY_SPACES]; /* if the caller does not ask for them */
  uint64_t *here, *before;                 /* by slot: address or 0 */
  uint64_t step;
  uint64_t evaluations; /* complete ones */
  uint32_t slot, op, stack;
  uint8_t phase;
  bool is_recording, has_failed;
  bool is_brief; /* options->wants_peaks_only */
} dry;

static const tsr__slot *slot_at(const dry *d, uint32_t slot) {
  assert(slot && slot < d->schedule->slots.count);
  return &d->schedule->slots.items[slot];
}

static device *device_of(const dry *d, uint32_t slot) {
  const tsr__slot *s = slot_at(d, slot);
  assert(s->device < d->device_count && s->space < TSR__SPACE_COUNT);
  return &d->devices[s->space == TSR__SPACE_DEVICE
                         ? s->device
                         : tsr__dry_place(d->device_count, (tsr__memory_space)s->space)];
}

static void see_event(void *context, const tsr_allocator_event *event) {
  device *v = context;
  dry *d = v->run;
  if (!d->has_failed && d->observer.memory &&
      !d->observer.memory(d->observer.context, v->index, event))
    d->has_failed = true;
  if (!d->is_recording) return;
  v->out->event_count++;
  if (event->action == TSR_ACTION_OOM) v->out->oom_device_free_bytes = event->device_free;
  if (d->has_failed || !d->observer.event || v->index >= d->device_count) return;
  if (!d->observer.event(d->observer.context, v->index, d->slot, event)) d->has_failed = true;
}

/* ---- moments ---- */

const char *tsr__phase_word(uint8_t phase) {
  static const char *const words[] = {[TSR__PHASE_STEP] = "step",
                                      [TSR__PHASE_ZERO_GRAD] = "zero_grad",
                                      [TSR__PHASE_FORWARD] = "forward",
                                      [TSR__PHASE_BACKWARD] = "backward",
                                      [TSR__PHASE_OPTIMIZER] = "optimizer",
                                      [TSR__PHASE_EVALUATION] = "evaluation",
                                      [TSR__PHASE_GENERATION] = "generation",
                                      [TSR__DRY_LOADING] = "loading"};
  assert(phase < sizeof words / sizeof *words && words[phase]);
  return words[phase];
}

static tsr__dry_moment moment_of(const device *v) {
  const dry *d = v->run;
  tsr__dry_moment moment = {.event_count = v->out->event_count,
                            .step = d->step,
                            .phase = d->phase,
                            .op = d->op,
                            .stack = d->stack,
                            .totals = tsr_allocator_now(v->allocator)};
  memcpy(moment.category_bytes, v->category_bytes, sizeof moment.category_bytes);
  return moment;
}

static void note_peak(device *v) {
  uint64_t allocated = tsr_allocator_now(v->allocator).allocated_bytes;
  uint8_t phase = v->run->phase;
  if (phase < TSR__PHASE_COUNT && allocated > v->out->phases[phase].totals.allocated_bytes)
    v->out->phases[phase] = moment_of(v);
  if (allocated > v->out->peak.totals.allocated_bytes) v->out->peak = moment_of(v);
}

static void note_out_of_memory(device *v, uint64_t bytes) {
  const tsr_allocator_settings *settings = &v->run->options->settings;
  v->out->is_out_of_memory = true;
  if (v->run->is_brief) return;
  v->out->oom_request_bytes = bytes;
  v->out->oom_segment_bytes = tsr__segment_size(settings, tsr__round_request(settings, bytes));
  v->out->out_of_memory = moment_of(v);
}

/* ---- memory ---- */

/* Beside the allocator's. */
enum { OVER_MOST = 1 << 20 };

static int check_reserved(device *v) {
  uint64_t most = v->run->options->most_reserved_bytes;
  if (!most || v->index >= v->run->device_count) return 0;
  v->out->is_over = tsr_allocator_now(v->allocator).reserved_bytes > most;
  return v->out->is_over ? OVER_MOST : 0;
}

/* 0, OVER_MOST, TSR_ALLOCATOR_OUT_OF_DEVICE or TSR_ERROR_MEMORY. */
static int allocate(dry *d, uint32_t slot, uint32_t stack) {
  const tsr__slot *s = slot_at(d, slot);
  device *v = device_of(d, slot);
  assert(!d->here[slot]);
  d->slot = slot;
  d->stack = stack;
  tsr_allocator_set_owner(v->allocator, stack);
  int status =
      tsr_allocator_malloc(v->allocator, s->bytes, s->stream, (tsr_pool){0, 0}, &d->here[slot]);
  assert(status || !s->bytes || d->here[slot]);
  if (status == 0 && d->is_brief) {
    status = check_reserved(v);
  } else if (status == 0) {
    v->category_bytes[s->category] += s->bytes;
    if (d->is_recording) note_peak(v);
    status = check_reserved(v);
  } else if (status == TSR_ALLOCATOR_OUT_OF_DEVICE) {
    note_out_of_memory(v, s->bytes);
  }
  return status;
}

static void release(dry *d, uint64_t *address, uint32_t slot, uint32_t stack) {
  const tsr__slot *s = slot_at(d, slot);
  device *v = device_of(d, slot);
  if (!*address) return; /* no bytes, or this is the first step */
  d->slot = slot;
  d->stack = stack;
  tsr_allocator_set_owner(v->allocator, stack);
  int status = tsr_allocator_free(v->allocator, *address);
  assert(status != TSR_ERROR_ARGUMENT); /* the allocator knows the address */
  if (status) d->has_failed = true;
  *address = 0;
  if (d->is_brief) return;
  assert(v->category_bytes[s->category] >= s->bytes);
  v->category_bytes[s->category] -= s->bytes;
}

/* ---- the schedule ---- */

static void enter_phase(dry *d, tsr__phase_kind phase, bool is_start) {
  assert(phase < TSR__PHASE_COUNT);
  for (uint32_t i = 0; !is_start && !d->is_brief && i < d->device_count; i++)
    d->devices[i].out->ends[phase] = moment_of(&d->devices[i]);
  d->phase = (uint8_t)(is_start ? phase : TSR__PHASE_STEP);
  d->op = TSR_NONE;
  if (d->observer.phase && !d->observer.phase(d->observer.context, phase, d->step, is_start))
    d->has_failed = true;
}

static void enter_op(dry *d, uint32_t op) {
  d->op = op;
  if (d->observer.op && !d->observer.op(d->observer.context, op)) d->has_failed = true;
}

static void enter_run(dry *d, uint32_t run) {
  assert(run < d->schedule->runs.count);
  if (d->observer.run && !d->observer.run(d->observer.context, run, d->step, d->here))
    d->has_failed = true;
}

static void enter_move(dry *d, uint32_t move, bool is_start) {
  assert(move < d->schedule->moves.count);
  if (d->observer.move && !d->observer.move(d->observer.context, move, is_start, d->step, d->here))
    d->has_failed = true;
}

static int run_instr(dry *d, const tsr__instr *instr) {
  uint32_t subject = instr->subject;
  switch ((tsr__instr_kind)instr->kind) {
  case TSR__INSTR_NEW: return allocate(d, subject, instr->stack);
  case TSR__INSTR_NEW_ONCE: return d->here[subject] ? 0 : allocate(d, subject, instr->stack);
  case TSR__INSTR_DROP: release(d, &d->here[subject], subject, instr->stack); break;
  case TSR__INSTR_DROP_PREV: release(d, &d->before[subject], subject, instr->stack); break;
  case TSR__INSTR_RUN: enter_run(d, subject); break;
  case TSR__INSTR_START: enter_move(d, subject, true); break;
  case TSR__INSTR_WAIT: enter_move(d, subject, false); break;
  case TSR__INSTR_OP: enter_op(d, subject); break;
  case TSR__INSTR_BEGIN: enter_phase(d, (tsr__phase_kind)subject, true); break;
  case TSR__INSTR_END: enter_phase(d, (tsr__phase_kind)subject, false); break;
  }
  return 0;
}

/* ---- evaluations ---- */

static uint64_t steps_of(const dry *d) {
  return d->options->steps ? d->options->steps : 1;
}

/* Whether the step has an evaluation, if the schedule does. */
static bool evaluates(const dry *d, uint64_t step) {
  uint64_t interval = d->schedule->evaluation_interval;
  if (!interval || (d->options->evaluates_last && step == steps_of(d))) return true;
  return (d->options->steps_before + step) % interval == 0;
}

static uint64_t rounds_of(const dry *d) {
  uint64_t rounds = d->options->rounds ? d->options->rounds : 1;
  return d->options->is_abridged && rounds > TSR__WALKED_ROUNDS ? TSR__WALKED_ROUNDS : rounds;
}

/* The step to walk after the current one; beyond the last to end the run. */
static uint64_t next_step(const dry *d, uint64_t last_evaluation) {
  uint64_t step = d->step + 1, steps = steps_of(d), interval = d->schedule->evaluation_interval;
  if (!d->options->is_abridged || d->schedule->has_leaks || step <= TSR__WALKED_STEPS) return step;
  if (last_evaluation && step <= last_evaluation + TSR__WALKED_AFTER) return step;
  if (!interval || d->evaluations >= TSR__WALKED_EVALUATIONS) return steps + 1;
  uint64_t to_go = interval - (d->options->steps_before + d->step) % interval;
  if (to_go <= steps - d->step) return d->step + to_go;
  return d->options->evaluates_last ? steps : steps + 1;
}

/* Whether the instruction begins or ends a part of the step that runs in rounds. */
static bool is_of_rounds(const tsr__instr *instr, tsr__instr_kind kind) {
  return instr->kind == kind && tsr__phase_has_rounds((tsr__phase_kind)instr->subject);
}

static bool has_enough(const dry *d) {
  return d->observer.has_enough && d->observer.has_enough(d->observer.context);
}

static int run_step(dry *d) {
  const tsr__schedule *schedule = d->schedule;
  size_t first = 0; /* of the part in rounds */
  uint64_t rounds = rounds_of(d);
  for (size_t i = 0; i < schedule->instrs.count; i++) {
    const tsr__instr *instr = &schedule->instrs.items[i];
    if (is_of_rounds(instr, TSR__INSTR_BEGIN)) {
      first = i;
      if (!evaluates(d, d->step) || has_enough(d)) {
        while (!is_of_rounds(&schedule->instrs.items[i], TSR__INSTR_END)) i++;
        continue;
      }
    }
    if (is_of_rounds(instr, TSR__INSTR_END) && --rounds && !has_enough(d)) {
      i = first; /* it leaves nothing behind, so it can run again */
      continue;
    }
    d->evaluations += is_of_rounds(instr, TSR__INSTR_END);
    int status = run_instr(d, instr);
    if (status || d->has_failed) return status ? status : TSR_ERROR_MEMORY;
    if (i % TSR__EFFORT_UNITS == 0 && !tsr__effort_go_on(d->options->effort, TSR__EFFORT_UNITS))
      return TSR_ERROR_LIMIT;
  }
  if (d->observer.step && !d->observer.step(d->observer.context, d->step, d->here))
    return TSR_ERROR_MEMORY;
  for (size_t i = 0; i < schedule->slots.count; i++) {
    assert(!d->before[i]); /* each carried slot has its DROP_PREV */
    if (schedule->slots.items[i].is_carried) d->before[i] = d->here[i];
    if (schedule->slots.items[i].is_carried || schedule->slots.items[i].is_leaked) d->here[i] = 0;
  }
  return 0;
}

/* What is static and a workspace, or is static and none. */
static int load_some(dry *d, bool is_workspace) {
  for (size_t i = 1; i < d->schedule->slots.count; i++) {
    const tsr__slot *slot = &d->schedule->slots.items[i];
    if (!slot->is_static || (slot->category == TSR_CATEGORY_WORKSPACE) != is_workspace) continue;
    int status = allocate(d, (uint32_t)i, TSR_NONE);
    if (status) return status;
  }
  return 0;
}

/* What exists before the recording: workspaces, as if the process had multiplied before, and the model on its way to the
 * device. */
static int load(dry *d) {
  int status = load_some(d, true);
  return status ? status : load_some(d, false);
}

static int finish_loading(dry *d) {
  if (d->has_failed) return TSR_ERROR_MEMORY;
  bool ok = !d->observer.loaded || d->observer.loaded(d->observer.context, d->here);
  return ok ? 0 : TSR_ERROR_MEMORY;
}

static int run(dry *d, uint64_t *steps_done) {
  uint64_t last_evaluation = 0;
  int status = load(d);
  for (uint32_t i = 0; i < d->place_count; i++) {
    if (!d->is_brief)
      d->devices[i].out->start = d->devices[i].out->peak = moment_of(&d->devices[i]);
    assert(!d->devices[i].out->event_count);
  }
  d->is_recording = true;
  if (status == TSR_ALLOCATOR_OUT_OF_DEVICE) /* once more, for the record */
    status = allocate(d, d->slot, TSR_NONE);
  if (status == 0) status = finish_loading(d);
  for (d->step = 1; status == 0 && d->step <= steps_of(d);
       d->step = next_step(d, last_evaluation)) {
    uint64_t evaluations = d->evaluations;
    status = run_step(d);
    if (status) break;
    if (d->evaluations > evaluations) last_evaluation = d->step;
    ++*steps_done;
    if (d->observer.is_done && d->observer.is_done(d->observer.context, d->step)) break;
  }
  for (uint32_t i = 0; i < d->place_count; i++) {
    tsr_allocator_totals peak = tsr_allocator_peak(d->devices[i].allocator);
    d->devices[i].out->peak_reserved_bytes = peak.reserved_bytes;
    if (d->is_brief) d->devices[i].out->peak.totals.allocated_bytes = peak.allocated_bytes;
  }
  return status == TSR_ALLOCATOR_OUT_OF_DEVICE || status == OVER_MOST ? 0 : status;
}

/* ---- all of it ---- */

static uint64_t capacity_of(const dry *d, uint32_t place) {
  const tsr__dry_options *o = d->options;
  if (place < d->device_count) return o->capacity_bytes;
  return place == tsr__dry_place(d->device_count, TSR__SPACE_HOST) ? o->host_bytes : o->disk_bytes;
}

/* The allocator's settings are the device's alone. */
static int prepare_place(dry *d, uint32_t place, tsr__dry_device *out, tsr_error *error) {
  device *v = &d->devices[place];
  tsr_allocator_options how = {.capacity_bytes = capacity_of(d, place)};
  if (!d->is_brief) {
    how.sink = see_event;
    how.sink_context = v;
  }
  if (place < d->device_count) how.settings = d->options->settings;
  *out = (tsr__dry_device){0};
  *v = (device){.run = d, .out = out, .index = place};
  return tsr_allocator_new(&how, &v->allocator, error);
}

static int prepare(dry *d, tsr__dry_device *out, tsr_error *error) {
  tsr__dry_device *spaces = d->options->spaces ? d->options->spaces : d->spaces;
  d->here = TSR__NEW_ARRAY(uint64_t, d->schedule->slots.count);
  d->before = TSR__NEW_ARRAY(uint64_t, d->schedule->slots.count);
  d->devices = TSR__NEW_ARRAY(device, d->place_count);
  if (!d->here || !d->before || !d->devices) return tsr__fail_memory(error);
  for (uint32_t i = 0; i < d->place_count; i++) {
    int status =
        prepare_place(d, i, i < d->device_count ? &out[i] : &spaces[i - d->device_count], error);
    if (status) return status;
  }
  return 0;
}

static int finish(dry *d, tsr_error *error) {
  int status = 0;
  for (uint32_t i = 0; d->observer.end && status == 0 && i < d->device_count; i++)
    status = d->observer.end(d->observer.context, i, d->devices[i].allocator, error);
  return status;
}

int tsr__dry_run(const tsr__schedule *schedule, const tsr__dry_options *options,
                 tsr__dry_device *devices, uint64_t *steps_done, tsr_error *error) {
  assert(schedule->slots.count && !(options->wants_peaks_only && options->observer));
  dry d = {.schedule = schedule,
           .options = options,
           .is_brief = options->wants_peaks_only,
           .device_count = options->device_count ? options->device_count : 1,
           .phase = TSR__DRY_LOADING,
           .op = TSR_NONE,
           .stack = TSR_NONE};
  d.place_count = d.device_count + TSR__DRY_SPACES;
  if (options->observer) d.observer = *options->observer;
  *steps_done = 0;
  int status = prepare(&d, devices, error);
  if (status == 0) {
    status = run(&d, steps_done);
    if (status == TSR_ERROR_LIMIT)
      status = tsr__effort_fail(options->effort, error);
    else if (status)
      tsr__fail_memory(error);
  }
  if (status == 0) status = finish(&d, error);
  for (uint32_t i = 0; d.devices && i < d.place_count; i++)
    tsr_allocator_destroy(d.devices[i].allocator);
  tsr__free(d.devices);
  tsr__free(d.here);
  tsr__free(d.before);
  return status;
}
