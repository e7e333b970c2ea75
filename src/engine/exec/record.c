/* record.c - turns the events of a dry run into the rows of a snapshot.
 *
 *   allocator event ─► builder event, with the slot's category
 *   phase ──────────► annotation, named as the profiler and torch.optim name it
 *   label's stack  ─► builder's stack, translated once each (`stacks`, `frames`: by the label's id)
 *   final heap ─────► segments and blocks
 *
 * Times are made up: a few microseconds for an op and one for an event, so that the order and the phases are visible.
 * They are not a prediction of speed. */
#include "exec/record.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "columns/builder.h"
#include "tessera/unstable/allocator_state.h"

/* 2026-01-01 00:00:00 UTC, and microseconds for each op and event. */
#define START_TIME_US INT64_C(1767225600000000)
enum { OP_US = 8, EVENT_US = 1 };

typedef TSR__VECTOR(uint32_t) ids;

struct tsr__recorder {
  const tsr__schedule *schedule;
  tsr__record_options options;
  tsr__dry_observer observer;
  tsr__builder builder;
  ids stacks, frames; /* the builder's id, by the label's; TSR_NONE: not needed yet */
  ids stack;          /* scratch */
  uint32_t categories[TSR_CATEGORY_COUNT]; /* string ids, if categories are needed */
  int64_t time_us;
};

/* ---- stacks ---- */

/* Make room for item `id` of a list that grows as ids do. */
static bool reach(ids *list, uint32_t id) {
  if (id < list->count) return true;
  if (!TSR__VECTOR_RESERVE(list, id + 1 - list->count)) return false;
  while (list->count <= id) list->items[list->count++] = TSR_NONE;
  return true;
}

static uint32_t frame_of(tsr__recorder *r, const tsr__trace_frame *frame) {
  if (!reach(&r->frames, frame->id)) return TSR_NONE;
  uint32_t *known = &r->frames.items[frame->id];
  if (*known == TSR_NONE)
    *known = tsr__builder_frame(&r->builder,
                                (tsr_frame){.name = tsr__builder_text(&r->builder, frame->name),
                                            .file = tsr__builder_text(&r->builder, frame->file),
                                            .line = frame->line});
  return *known;
}

/* The builder's id of a stack of the schedule's labels. False when out of memory. */
static bool translate(tsr__recorder *r, uint32_t stack, uint32_t *out) {
  const tsr__stack_labels *labels = &r->schedule->labels;
  *out = TSR_NONE;
  if (stack == TSR_NONE) return true;
  assert(labels->parent);
  if (!reach(&r->stacks, stack)) return false;
  if (r->stacks.items[stack] == TSR_NONE) {
    r->stack.count = 0;
    for (uint32_t at = stack; at != TSR_NONE;) {
      tsr__trace_frame frame;
      at = labels->parent(labels->context, at, &frame);
      uint32_t id = frame_of(r, &frame);
      if (id == TSR_NONE || !TSR__VECTOR_PUSH(&r->stack, id)) return false;
    }
    r->stacks.items[stack] =
        tsr__builder_stack(&r->builder, r->stack.items, (uint32_t)r->stack.count);
  }
  *out = r->stacks.items[stack];
  return *out != TSR_NONE;
}

/* ---- what the run does ---- */

/* PyTorch's viewer fails if no event has the category "unknown", so events of segments have it. */
static uint32_t category_of(const tsr__recorder *r, uint32_t slot, uint8_t action) {
  bool is_block = action == TSR_ACTION_ALLOC || action == TSR_ACTION_FREE_REQUESTED ||
                  action == TSR_ACTION_FREE_COMPLETED;
  assert(slot < r->schedule->slots.count);
  if (!r->options.has_categories) return TSR_NONE;
  return r->categories[is_block ? r->schedule->slots.items[slot].category : TSR_CATEGORY_UNKNOWN];
}

static bool record_event(void *context, uint32_t device, uint32_t slot,
                         const tsr_allocator_event *event) {
  tsr__recorder *r = context;
  uint32_t stack;
  r->time_us += EVENT_US;
  if (!translate(r, event->cause, &stack)) return false;
  return tsr__builder_event(&r->builder, device,
                            &(tsr__trace_event){.action = (tsr_action)event->action,
                                                .addr = event->addr,
                                                .size_bytes = event->size,
                                                .time_us = r->time_us,
                                                .stack = stack,
                                                .stream = event->stream,
                                                .pool = event->pool,
                                                .category = category_of(r, slot, event->action)});
}

static bool record_op(void *context, uint32_t op) {
  tsr__recorder *r = context;
  (void)op;
  r->time_us += OP_US;
  return true;
}

/* A phase as the profiler, torch.optim and the script (PyTorch's tutorial) write it. */
static bool record_phase(void *context, tsr__phase_kind phase, uint64_t step, bool is_start) {
  tsr__recorder *r = context;
  char name[64];
  switch (phase) {
  case TSR__PHASE_STEP: (void)snprintf(name, sizeof name, "ProfilerStep#%" PRIu64, step); break;
  case TSR__PHASE_ZERO_GRAD:
    (void)snprintf(name, sizeof name, "Optimizer.zero_grad#%s.zero_grad", r->options.optimizer);
    break;
  case TSR__PHASE_OPTIMIZER:
    (void)snprintf(name, sizeof name, "Optimizer.step#%s.step", r->options.optimizer);
    break;
  case TSR__PHASE_FORWARD: (void)snprintf(name, sizeof name, "## forward ##"); break;
  case TSR__PHASE_BACKWARD: (void)snprintf(name, sizeof name, "## backward ##"); break;
  case TSR__PHASE_EVALUATION: (void)snprintf(name, sizeof name, "## evaluation ##"); break;
  case TSR__PHASE_GENERATION: (void)snprintf(name, sizeof name, "## generation ##"); break;
  case TSR__PHASE_COUNT: assert(false); return false;
  }
  return tsr__builder_annotation(&r->builder, 0, ++r->time_us, name, is_start);
}

/* ---- the state at the end ---- */

static void record_segment(void *context, const tsr_allocator_segment *segment) {
  tsr__recorder *r = context;
  (void)tsr__builder_segment(
      &r->builder, &(tsr_segment){.address = segment->address,
                                  .total_bytes = segment->total_bytes,
                                  .stream = segment->stream,
                                  .stack = TSR_NONE,
                                  .pool = tsr__builder_pool(&r->builder, segment->pool.first,
                                                            segment->pool.second),
                                  .is_large = segment->is_large,
                                  .is_expandable = segment->is_expandable});
}

static void record_block(void *context, const tsr_allocator_block *block) {
  tsr__recorder *r = context;
  uint32_t owner = block->state == TSR_BLOCK_INACTIVE ? TSR_NONE : block->owner, stack;
  if (!translate(r, owner, &stack)) r->builder.has_failed = true;
  (void)tsr__builder_block(&r->builder, &(tsr_block){.address = block->address,
                                                     .size_bytes = block->size_bytes,
                                                     .requested_bytes = block->requested_bytes,
                                                     .stack = stack,
                                                     .state = block->state});
}

static int record_end(void *context, uint32_t device, const tsr_allocator *allocator,
                      tsr_error *error) {
  tsr__recorder *r = context;
  tsr_allocator_visitor visitor = {record_segment, record_block, r};
  assert(device == 0); /* in a snapshot of several devices, segments have the device's number */
  (void)device;
  return tsr_allocator_visit(allocator, &visitor, error);
}

/* allocator_settings, with the keys that PyTorch writes and a reader asks for. */
static void record_settings(tsr__recorder *r) {
  const tsr_allocator_settings *settings = r->options.settings;
  tsr__builder *b = &r->builder;
  char text[TSR_ALLOCATOR_SETTINGS_TEXT_BYTES], keys[TSR_ROUNDUP_SLOTS][16];
  tsr__setting roundup[TSR_ROUNDUP_SLOTS];
  uint64_t split = settings->max_split_bytes;
  tsr__value no = {.tag = TSR__BOOL, .u = false};
  for (uint32_t i = 0; i < TSR_ROUNDUP_SLOTS; i++) {
    (void)snprintf(keys[i], sizeof keys[i], "%u", 1u << i);
    roundup[i] = (tsr__setting){keys[i], tsr__value_u64(settings->roundup_divisions[i])};
  }
  (void)tsr_allocator_settings_text(settings, text);
  const tsr__setting all[] = {
      {"PYTORCH_CUDA_ALLOC_CONF", tsr__builder_text_value(b, text)},
      {"max_split_size", split ? tsr__value_u64(split) : tsr__value_int(-1)},
      {"garbage_collection_threshold",
       {.tag = TSR__FLOAT, .f = settings->garbage_collection_threshold}},
      {"expandable_segments", {.tag = TSR__BOOL, .u = settings->expandable_segments}},
      {"pinned_num_register_threads", tsr__value_int(1)},
      {"release_lock_on_cudamalloc", no},
      {"pinned_use_cuda_host_register", no},
      {"roundup_power2_divisions", tsr__builder_dict(b, roundup, TSR_ROUNDUP_SLOTS)}};
  (void)tsr__builder_settings(b, all, sizeof all / sizeof *all);
}

/* ---- the recorder ---- */

static bool name_categories(tsr__recorder *r) {
  for (int i = 0; i < TSR_CATEGORY_COUNT; i++)
    r->categories[i] = tsr__builder_text(&r->builder, tsr_category_name((tsr_category)i));
  return !r->builder.has_failed;
}

tsr__recorder *tsr__recorder_new(const tsr__schedule *schedule,
                                 const tsr__record_options *options) {
  tsr__recorder *r = TSR__NEW(tsr__recorder);
  if (!r) return NULL;
  r->schedule = schedule;
  r->options = *options;
  r->time_us = START_TIME_US;
  r->observer = (tsr__dry_observer){.context = r,
                                    .phase = record_phase,
                                    .op = record_op,
                                    .event = record_event,
                                    .end = record_end};
  if (!tsr__builder_init(&r->builder, NULL) || !tsr__builder_devices(&r->builder, 1) ||
      !name_categories(r)) {
    tsr__recorder_free(r);
    return NULL;
  }
  tsr__builder_record(&r->builder, "simulated");
  return r;
}

void tsr__recorder_free(tsr__recorder *r) {
  if (!r) return;
  tsr__builder_release(&r->builder);
  TSR__VECTOR_FREE(&r->stacks);
  TSR__VECTOR_FREE(&r->frames);
  TSR__VECTOR_FREE(&r->stack);
  tsr__free(r);
}

const tsr__dry_observer *tsr__recorder_observer(const tsr__recorder *r) {
  return &r->observer;
}

int tsr__recorder_finish(tsr__recorder *r, tsr_snapshot **out, tsr_error *error) {
  const char *hash = r->options.plan_hash;
  record_settings(r);
  if (hash)
    (void)tsr__builder_set_value(&r->builder, TSR__NAME_PLAN,
                                 tsr__builder_text_value(&r->builder, hash));
  return tsr__builder_finish(&r->builder, out, error);
}
