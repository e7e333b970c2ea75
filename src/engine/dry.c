/* dry.c - the dry executor: no tensor exists, but every byte of it is asked for.
 *
 * Slots become addresses. Two arrays hold them: where a slot of this step is, and where the step
 * before left one that was still held when it ended.
 *
 *   schedule:  NEW 17 ...... DROP 17        here[17] = 0x7f.. ...... 0
 *              NEW 42 ...... (end of step)  before[42] = here[42]; here[42] = 0
 *              ...... DROP_PREV 42          before[42] = 0
 *
 * The allocator's events become the trace. Time is invented: a few microseconds for an op and one
 * for an event, so that order and phases can be seen; it says nothing about speed. */
#include "engine/dry.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "allocator/rules.h"
#include "engine/op.h"

/* 2026-01-01 00:00:00 UTC, and microseconds for each op and event. */
#define START_TIME_US INT64_C(1767225600000000)
enum { OP_US = 8, EVENT_US = 1 };

typedef struct dry {
  const tsr__tape *tape;
  tsr_snapshot *snapshot;
  tsr_allocator *allocator;
  tsr_simulation *out;
  const tsr_allocator_settings *settings;
  uint64_t *here, *before; /* by slot: address or 0 */
  uint64_t role_bytes[TSR_ROLE_COUNT];
  uint32_t roles[TSR_ROLE_COUNT]; /* string ids, where categories are wanted */
  uint32_t no_role;               /* of what is no tensor: "unknown" */
  uint32_t no_context, no_metadata, empty_stack, slot;
  int64_t time_us;
  uint64_t step;
  const char *phase, *op, *optimizer; /* optimizer: its class */
  int part;                           /* tsr_simulate_phase, or -1 */
  bool is_recording, has_categories, failed;
} dry;

static const char *const phase_words[TSR__PHASE_COUNT] = {"step", "zero_grad", "forward",
                                                          "backward", "optimizer"};

#define EVENT_SHAPE                                                           \
  (TSR__KEY(ACTION) | TSR__KEY(SIZE) | TSR__KEY(STREAM) | TSR__KEY(TIME_US) | \
   TSR__KEY(COMPILE_CONTEXT) | TSR__KEY(USER_METADATA) | TSR__KEY(POOL_ID) | TSR__KEY(FRAMES))

/* ---- events ---- */

static void record(void *context, const tsr_allocator_event *event) {
  dry *d = context;
  if (!d->is_recording) return;
  bool is_oom = event->action == TSR_ACTION_OOM;
  d->time_us += EVENT_US;
  tsr__event row = TSR__EVENT_EMPTY;
  row.action = event->action;
  row.addr = event->addr;
  row.size = event->size;
  row.time_us = d->time_us;
  row.stack = event->cause == TSR_NONE ? d->empty_stack : event->cause;
  row.stream = tsr__snapshot_stream_id(d->snapshot, event->stream);
  row.pool = tsr__snapshot_pool_id(d->snapshot, event->pool.first, event->pool.second);
  row.context = d->no_context;
  row.metadata = d->no_metadata;
  row.shape = (uint32_t)(EVENT_SHAPE | (is_oom ? TSR__KEY(DEVICE_FREE) : TSR__KEY(ADDR)));
  bool is_block = event->action == TSR_ACTION_ALLOC || event->action == TSR_ACTION_FREE_REQUESTED ||
                  event->action == TSR_ACTION_FREE_COMPLETED;
  /* PyTorch's viewer stumbles over categories of which none is "unknown": segments are that. */
  if (d->has_categories) {
    row.category = is_block ? d->roles[d->tape->slots.items[d->slot].role] : d->no_role;
    row.shape |= (uint32_t)TSR__KEY(CATEGORY);
  }
  if (is_oom) d->out->oom_device_free_bytes = event->device_free;
  tsr__trace *trace = &d->snapshot->traces.items[0];
  if (row.stream == TSR_NONE || row.pool == TSR_NONE ||
      !tsr__events_push(&d->snapshot->events, &row) ||
      !tsr__trace_append(trace, d->snapshot->events.count - 1))
    d->failed = true;
}

static tsr_simulate_moment moment_of(const dry *d) {
  tsr_simulate_moment moment = {.event = (int64_t)d->snapshot->events.count - 1,
                                .step = d->step,
                                .phase = d->phase,
                                .op = d->op,
                                .totals = tsr_allocator_now(d->allocator)};
  memcpy(moment.role_bytes, d->role_bytes, sizeof moment.role_bytes);
  return moment;
}

/* A phase as the profiler, torch.optim and the tutorial's program write it. */
static void spell_phase(const dry *d, tsr__phase phase, char *name, size_t room) {
  if (phase == TSR__PHASE_STEP)
    (void)snprintf(name, room, "ProfilerStep#%" PRIu64, d->step);
  else if (phase == TSR__PHASE_ZERO_GRAD)
    (void)snprintf(name, room, "Optimizer.zero_grad#%s.zero_grad", d->optimizer);
  else if (phase == TSR__PHASE_OPTIMIZER)
    (void)snprintf(name, room, "Optimizer.step#%s.step", d->optimizer);
  else
    (void)snprintf(name, room, "## %s ##", phase_words[phase]);
}

static void annotate(dry *d, tsr__phase phase, bool is_start) {
  char name[64];
  spell_phase(d, phase, name, sizeof name);
  uint32_t id = tsr__snapshot_string_id(d->snapshot, name, strlen(name));
  tsr_annotation row = {.time_us = ++d->time_us,
                        .name = id,
                        .stage = is_start ? TSR__NAME_START : TSR__NAME_END,
                        .is_start = is_start,
                        .is_end = !is_start};
  tsr__annotation_more more = {
      .shape = (uint32_t)(TSR__KEY(STAGE) | TSR__KEY(NAME) | TSR__KEY(DEVICE) | TSR__KEY(TIME_US)),
      .origin = (uint32_t)d->snapshot->annotations.count};
  d->phase = is_start ? phase_words[phase] : phase_words[TSR__PHASE_STEP];
  d->part = !is_start                       ? -1
            : phase == TSR__PHASE_FORWARD   ? TSR_SIMULATE_FORWARD
            : phase == TSR__PHASE_BACKWARD  ? TSR_SIMULATE_BACKWARD
            : phase == TSR__PHASE_OPTIMIZER ? TSR_SIMULATE_OPTIMIZER
                                            : -1;
  d->op = "";
  if (id == TSR_NONE || !TSR__VECTOR_PUSH(&d->snapshot->annotations, row) ||
      !TSR__VECTOR_PUSH(&d->snapshot->annotations_more, more))
    d->failed = true;
  d->snapshot->annotation_count = d->snapshot->annotations.count;
}

/* ---- memory ---- */

static void note_peak(dry *d) {
  uint64_t allocated = tsr_allocator_now(d->allocator).allocated_bytes;
  if (d->part >= 0 && allocated > d->out->phases[d->part].totals.allocated_bytes)
    d->out->phases[d->part] = moment_of(d);
  if (allocated > d->out->peak.totals.allocated_bytes) d->out->peak = moment_of(d);
}

/* 0, TSR_ALLOCATOR_OUT_OF_DEVICE or TSR_ERROR_MEMORY. */
static int allocate(dry *d, uint32_t slot, uint32_t stack) {
  const tsr__slot *s = &d->tape->slots.items[slot];
  d->slot = slot;
  tsr_allocator_set_owner(d->allocator, stack);
  int status = tsr_allocator_malloc(d->allocator, s->bytes, 0, (tsr_pool){0, 0}, &d->here[slot]);
  if (status == 0) {
    d->role_bytes[s->role] += s->bytes;
    if (d->is_recording) note_peak(d);
  } else if (status == TSR_ALLOCATOR_OUT_OF_DEVICE) {
    d->out->is_out_of_memory = true;
    d->out->oom_request_bytes = s->bytes;
    d->out->oom_segment_bytes =
        tsr__segment_size(d->settings, tsr__round_request(d->settings, s->bytes));
    d->out->out_of_memory = moment_of(d);
  }
  return status;
}

static void release(dry *d, uint64_t *address, uint32_t slot, uint32_t stack) {
  if (!*address) return;
  d->slot = slot;
  tsr_allocator_set_owner(d->allocator, stack);
  if (tsr_allocator_free(d->allocator, *address)) d->failed = true;
  d->role_bytes[d->tape->slots.items[slot].role] -= d->tape->slots.items[slot].bytes;
  *address = 0;
}

static int run_instr(dry *d, const tsr__instr *instr) {
  switch ((tsr__instr_kind)instr->kind) {
  case TSR__NEW: return allocate(d, instr->subject, instr->stack);
  case TSR__NEW_ONCE:
    return d->here[instr->subject] ? 0 : allocate(d, instr->subject, instr->stack);
  case TSR__DROP: release(d, &d->here[instr->subject], instr->subject, instr->stack); break;
  case TSR__DROP_PREV: release(d, &d->before[instr->subject], instr->subject, instr->stack); break;
  case TSR__RUN: break; /* there is nothing to compute on */
  case TSR__OP:
    d->time_us += OP_US;
    d->op = tsr__op_row_of((tsr__op_kind)d->tape->ops.items[instr->subject].kind)->name;
    break;
  case TSR__BEGIN: annotate(d, (tsr__phase)instr->subject, true); break;
  case TSR__END: annotate(d, (tsr__phase)instr->subject, false); break;
  }
  return 0;
}

static int run_step(dry *d) {
  const tsr__tape *tape = d->tape;
  for (size_t i = 0; i < tape->schedule.count; i++) {
    int status = run_instr(d, &tape->schedule.items[i]);
    if (status || d->failed) return status ? status : TSR_ERROR_MEMORY;
  }
  for (size_t i = 0; i < tape->slots.count; i++) {
    if (!tape->slots.items[i].is_carried) continue;
    d->before[i] = d->here[i];
    d->here[i] = 0;
  }
  return 0;
}

/* What was there before: the model on its way to the device, without a recording. */
static int load(dry *d) {
  for (size_t i = 1; i < d->tape->slots.count; i++) {
    if (!d->tape->slots.items[i].is_static) continue;
    int status = allocate(d, (uint32_t)i, TSR_NONE);
    if (status) return status;
  }
  return 0;
}

static int run(dry *d, uint64_t steps) {
  d->phase = "loading";
  int status = load(d);
  d->out->peak = moment_of(d);
  d->out->start_allocated_bytes = d->out->peak.totals.allocated_bytes;
  memcpy(d->out->start_role_bytes, d->role_bytes, sizeof d->role_bytes);
  d->is_recording = true;
  if (status == TSR_ALLOCATOR_OUT_OF_DEVICE) /* once more, for the record */
    status = allocate(d, d->slot, TSR_NONE);
  for (d->step = 1; status == 0 && d->step <= steps; d->step++) {
    status = run_step(d);
    if (status == 0) d->out->steps_done++;
  }
  d->out->peak_reserved_bytes = tsr_allocator_peak(d->allocator).reserved_bytes;
  d->out->event_count = d->snapshot->events.count;
  return status == TSR_ALLOCATOR_OUT_OF_DEVICE ? 0 : status;
}

/* ---- the state at the end ---- */

static void add_segment(void *context, const tsr_allocator_segment *segment) {
  dry *d = context;
  tsr_segment row = {.address = segment->address,
                     .total_bytes = segment->total_bytes,
                     .allocated_bytes = segment->allocated_bytes,
                     .active_bytes = segment->active_bytes,
                     .requested_bytes = segment->requested_bytes,
                     .stream = segment->stream,
                     .first_block = d->snapshot->blocks.count,
                     .stack = d->empty_stack,
                     .pool = tsr__snapshot_pool_id(d->snapshot, 0, 0),
                     .is_large = segment->is_large,
                     .is_expandable = segment->is_expandable};
  tsr__segment_more more = {.shape = TSR__KEY(DEVICE) | TSR__KEY(ADDRESS) | TSR__KEY(TOTAL_SIZE) |
                                     TSR__KEY(ALLOCATED_SIZE) | TSR__KEY(ACTIVE_SIZE) |
                                     TSR__KEY(REQUESTED_SIZE) | TSR__KEY(STREAM) |
                                     TSR__KEY(SEGMENT_TYPE) | TSR__KEY(SEGMENT_POOL_ID) |
                                     TSR__KEY(IS_EXPANDABLE) | TSR__KEY(FRAMES) | TSR__KEY(BLOCKS),
                            .type = segment->is_large ? TSR__NAME_LARGE : TSR__NAME_SMALL,
                            .origin = (uint32_t)d->snapshot->segments.count};
  if (!TSR__VECTOR_PUSH(&d->snapshot->segments, row) ||
      !TSR__VECTOR_PUSH(&d->snapshot->segments_more, more))
    d->failed = true;
}

static void add_block(void *context, const tsr_allocator_block *block) {
  static const uint32_t states[] = {TSR__NAME_INACTIVE, TSR__NAME_ACTIVE_ALLOCATED,
                                    TSR__NAME_ACTIVE_PENDING_FREE, TSR__NAME_INACTIVE};
  dry *d = context;
  bool has_stack = block->state != TSR_BLOCK_INACTIVE && block->owner != TSR_NONE;
  tsr_block row = {.address = block->address,
                   .size_bytes = block->size_bytes,
                   .requested_bytes = block->requested_bytes,
                   .stack = has_stack ? block->owner : d->empty_stack,
                   .state = block->state};
  tsr__block_more more = {.shape = TSR__KEY(ADDRESS) | TSR__KEY(SIZE) | TSR__KEY(REQUESTED_SIZE) |
                                   TSR__KEY(STATE) | TSR__KEY(FRAMES),
                          .state = states[block->state],
                          .origin = (uint32_t)d->snapshot->blocks.count};
  if (d->failed || !TSR__VECTOR_PUSH(&d->snapshot->blocks, row) ||
      !TSR__VECTOR_PUSH(&d->snapshot->blocks_more, more)) {
    d->failed = true;
    return;
  }
  d->snapshot->segments.items[d->snapshot->segments.count - 1].block_count++;
}

static bool push_setting(tsr_snapshot *s, const char *key, tsr__value value) {
  uint32_t id = tsr__snapshot_string_id(s, key, strlen(key));
  return id != TSR_NONE && TSR__VECTOR_PUSH(&s->loose_values, tsr__value_id(TSR__STRING, id)) &&
         TSR__VECTOR_PUSH(&s->loose_values, value);
}

/* allocator_settings, with the keys that PyTorch writes and a reader asks for. */
static bool add_settings(dry *d, const tsr_allocator_settings *settings) {
  tsr_snapshot *s = d->snapshot;
  char text[TSR_ALLOCATOR_SETTINGS_TEXT_BYTES], key[16];
  (void)tsr_allocator_settings_text(settings, text);
  uint32_t conf = tsr__snapshot_string_id(s, text, strlen(text));
  tsr__value is_expandable = {.tag = TSR__BOOL, .u = settings->expandable_segments};
  tsr__value no = {.tag = TSR__BOOL, .u = false};
  tsr__value threshold = {.tag = TSR__FLOAT, .f = settings->garbage_collection_threshold};
  uint64_t split = settings->max_split_bytes;
  bool ok = conf != TSR_NONE && TSR__VECTOR_PUSH(&s->loose, (tsr__loose){TSR__LOOSE_DICT, 32, 0});
  for (uint32_t i = 0; ok && i < TSR_ROUNDUP_SLOTS; i++) {
    (void)snprintf(key, sizeof key, "%u", 1u << i);
    ok = push_setting(s, key, tsr__value_u64(settings->roundup_divisions[i]));
  }
  uint64_t first = s->loose_values.count;
  ok = ok && push_setting(s, "PYTORCH_CUDA_ALLOC_CONF", tsr__value_id(TSR__STRING, conf)) &&
       push_setting(s, "max_split_size", split ? tsr__value_u64(split) : tsr__value_int(-1)) &&
       push_setting(s, "garbage_collection_threshold", threshold) &&
       push_setting(s, "expandable_segments", is_expandable) &&
       push_setting(s, "pinned_num_register_threads", tsr__value_int(1)) &&
       push_setting(s, "release_lock_on_cudamalloc", no) &&
       push_setting(s, "pinned_use_cuda_host_register", no) &&
       push_setting(s, "roundup_power2_divisions", tsr__value_id(TSR__LOOSE, 0));
  uint32_t count = (uint32_t)(s->loose_values.count - first);
  tsr__extra extra = {.value = tsr__value_id(TSR__LOOSE, 1),
                      .key = TSR__NAME_ALLOCATOR_SETTINGS,
                      .table = TSR__NULL};
  return ok && TSR__VECTOR_PUSH(&s->loose, (tsr__loose){TSR__LOOSE_DICT, count, first}) &&
         TSR__VECTOR_PUSH(&s->extras, extra);
}

static int finish_snapshot(dry *d, const tsr_allocator_settings *settings, tsr_error *error) {
  static const uint32_t order[] = {0};
  tsr_limits limits = tsr__limits_or_default(NULL);
  tsr_allocator_visitor visitor = {add_segment, add_block, d};
  if (!add_settings(d, settings)) return tsr__fail_memory(error);
  int status = tsr_allocator_visit(d->allocator, &visitor, error);
  if (status) return status;
  if (d->failed) return tsr__fail_memory(error);
  d->snapshot->segment_count = d->snapshot->segments.count;
  d->snapshot->top_keys =
      TSR__KEY(SEGMENTS) | TSR__KEY(DEVICE_TRACES) | TSR__KEY(EXTERNAL_ANNOTATIONS);
  (void)snprintf(d->snapshot->format, sizeof d->snapshot->format, "simulated");
  return tsr__snapshot_finish(d->snapshot, order, 1, &limits, error);
}

/* ---- all of it ---- */

static bool prepare(dry *d) {
  static const char context[] = "N/A", unknown[] = "unknown";
  size_t slots = d->tape->slots.count;
  tsr_snapshot *s = d->snapshot;
  d->here = TSR__NEW_ARRAY(uint64_t, slots);
  d->before = TSR__NEW_ARRAY(uint64_t, slots);
  d->no_context = tsr__snapshot_string_id(s, context, strlen(context));
  d->no_metadata = tsr__snapshot_string_id(s, "", 0);
  d->empty_stack = tsr__snapshot_stack_id(s, NULL, 0);
  d->no_role = tsr__snapshot_string_id(s, unknown, strlen(unknown));
  bool ok = d->here && d->before && d->no_context != TSR_NONE && d->no_metadata != TSR_NONE &&
            d->empty_stack != TSR_NONE && d->no_role != TSR_NONE &&
            TSR__VECTOR_PUSH(&s->traces, (tsr__trace){0});
  for (int i = 0; ok && i < TSR_ROLE_COUNT; i++) {
    const char *name = tsr_memory_role_name((tsr_memory_role)i);
    d->roles[i] = tsr__snapshot_string_id(s, name, strlen(name));
    ok = d->roles[i] != TSR_NONE;
  }
  return ok;
}

int tsr__dry_run(const tsr__tape *tape, const tsr_simulate_options *options, tsr_simulation *out,
                 tsr_error *error) {
  dry d = {.tape = tape,
           .snapshot = tape->names,
           .out = out,
           .settings = &options->settings,
           .time_us = START_TIME_US,
           .phase = "",
           .op = "",
           .optimizer = options->optimizer == TSR_OPTIMIZER_SGD ? "SGD" : "AdamW",
           .part = -1,
           .has_categories = options->categories};
  tsr_allocator_options how = {.settings = options->settings,
                               .capacity_bytes = options->capacity_bytes,
                               .sink = record,
                               .sink_context = &d};
  int status = tsr_allocator_new(&how, &d.allocator, error);
  if (status == 0 && !prepare(&d)) status = tsr__fail_memory(error);
  if (status == 0) {
    status = run(&d, options->steps ? options->steps : 1);
    if (status) tsr__fail_memory(error);
  }
  if (status == 0) status = finish_snapshot(&d, &options->settings, error);
  tsr_allocator_destroy(d.allocator);
  tsr__free(d.here);
  tsr__free(d.before);
  return status;
}
