/* model_trace.c - driving the allocator model, and writing down what PyTorch would have. See
 * model_trace.h.
 *
 * The sink keeps its own totals from the events; only the size of a new block is not in them. It is
 * what the allocator's active bytes have grown by, once the call has returned. After every call the
 * totals must be the allocator's. */
#include "model_trace.h"

#include <inttypes.h>

#include "base/buffer.h"
#include "tessera/export.h"
#include "tessera/unstable/allocator_state.h"

#define START_US INT64_C(1700000000000000)

uint64_t model_mark(uint64_t address, uint64_t requested_bytes) {
  return tsr__hash_u64(address ^ tsr__hash_u64(requested_bytes));
}

/* ---- what is recorded ---- */

static void count_free(model_trace *m, const tsr_allocator_event *event, model_event *kept) {
  const uint64_t *bytes = tsr__map_find(&m->block_bytes, event->addr);
  assert_non_null(bytes);
  kept->block_bytes = *bytes;
  if (event->action == TSR_ACTION_FREE_REQUESTED) {
    m->now.after.allocated_bytes -= *bytes;
    return;
  }
  m->now.after.active_bytes -= *bytes;
  m->now.after.requested_bytes -= event->size;
  m->now.live_count--;
  m->now.live_sum -= model_mark(event->addr, event->size);
  tsr__map_remove(&m->block_bytes, event->addr);
}

static void record(void *context, const tsr_allocator_event *event) {
  model_trace *m = context;
  model_event kept = {.event = *event, .time_us = m->clock_us += (int64_t)(event->addr >> 9 & 3)};
  switch (event->action) {
  case TSR_ACTION_ALLOC: /* its size follows: see finish_alloc */
    m->now.after.requested_bytes += event->size;
    m->now.live_count++;
    m->now.live_sum += model_mark(event->addr, event->size);
    break;
  case TSR_ACTION_FREE_REQUESTED:
  case TSR_ACTION_FREE_COMPLETED: count_free(m, event, &kept); break;
  case TSR_ACTION_SEGMENT_ALLOC:
  case TSR_ACTION_SEGMENT_MAP: m->now.after.reserved_bytes += event->size; break;
  case TSR_ACTION_SEGMENT_FREE:
  case TSR_ACTION_SEGMENT_UNMAP: m->now.after.reserved_bytes -= event->size; break;
  default: assert_int_equal(event->action, TSR_ACTION_OOM);
  }
  kept.after = m->now.after;
  kept.live_count = m->now.live_count;
  kept.live_sum = m->now.live_sum;
  assert_true(TSR__VECTOR_PUSH(&m->events, kept));
}

/* The last event is an alloc, and the allocator's active bytes give its block's size. */
static void finish_alloc(model_trace *m) {
  model_event *alloc = &m->events.items[m->events.count - 1];
  assert_int_equal(alloc->event.action, TSR_ACTION_ALLOC);
  alloc->block_bytes = tsr_allocator_now(m->allocator).active_bytes - m->now.after.active_bytes;
  m->now.after.active_bytes += alloc->block_bytes;
  m->now.after.allocated_bytes += alloc->block_bytes;
  alloc->after = m->now.after;
  uint64_t *bytes = tsr__map_put(&m->block_bytes, alloc->event.addr, 0, NULL);
  assert_non_null(bytes);
  *bytes = alloc->block_bytes;
}

static void check_totals(const model_trace *m) {
  tsr_allocator_totals now = tsr_allocator_now(m->allocator);
  assert_int_equal(m->now.after.requested_bytes, now.requested_bytes);
  assert_int_equal(m->now.after.allocated_bytes, now.allocated_bytes);
  assert_int_equal(m->now.after.active_bytes, now.active_bytes);
  assert_int_equal(m->now.after.reserved_bytes, now.reserved_bytes);
}

/* ---- calls ---- */

void model_start(model_trace *m, const model_program *program) {
  tsr_allocator_options options = {.capacity_bytes = program->capacity_bytes,
                                   .memory_limit_bytes = program->memory_limit_bytes,
                                   .sink = record,
                                   .sink_context = m};
  *m = (model_trace){.clock_us = START_US, .random = 88172645463325252u + program->seed};
  assert_int_equal(tsr_allocator_settings_parse(program->conf, &options.settings, NULL), 0);
  options.settings.rounding_extra_bytes = program->rounding_extra_bytes;
  m->settings = options.settings;
  assert_int_equal(tsr_allocator_new(&options, &m->allocator, NULL), 0);
}

static void begin_call(model_trace *m) {
  m->clock_us += 3;
  tsr_allocator_set_owner(m->allocator, (uint32_t)(m->calls.count % 11));
}

uint32_t model_malloc(model_trace *m, uint64_t bytes, uint64_t stream, tsr_pool pool) {
  model_call call = {.kind = MODEL_MALLOC,
                     .allocation = (uint32_t)m->address.count,
                     .bytes = bytes,
                     .stream = stream,
                     .pool = pool};
  uint64_t address = 0;
  begin_call(m);
  int status = tsr_allocator_malloc(m->allocator, bytes, stream, pool, &address);
  assert_true(status == TSR_OK || status == TSR_ALLOCATOR_OUT_OF_DEVICE);
  call.is_served = status == TSR_OK;
  if (call.is_served) finish_alloc(m);
  check_totals(m);
  call.event = m->events.count - 1;
  assert_true(TSR__VECTOR_PUSH(&m->calls, call) && TSR__VECTOR_PUSH(&m->address, address));
  return call.is_served ? call.allocation : TSR_NONE;
}

void model_free(model_trace *m, uint32_t allocation, uint32_t used_on) {
  model_call call = {.kind = MODEL_FREE, .allocation = allocation, .used_on = used_on};
  uint64_t address = m->address.items[allocation];
  begin_call(m);
  if (used_on) assert_int_equal(tsr_allocator_record_stream(m->allocator, address, used_on - 1), 0);
  assert_int_equal(tsr_allocator_free(m->allocator, address), 0);
  m->address.items[allocation] = 0;
  check_totals(m);
  assert_true(TSR__VECTOR_PUSH(&m->calls, call));
}

void model_complete(model_trace *m, uint64_t stream) {
  model_call call = {.kind = MODEL_COMPLETE, .stream = stream};
  tsr_allocator_complete_stream(m->allocator, stream);
  assert_true(TSR__VECTOR_PUSH(&m->calls, call));
}

void model_empty(model_trace *m) {
  uint64_t reserved = m->now.after.reserved_bytes;
  begin_call(m);
  assert_int_equal(tsr_allocator_empty_cache(m->allocator), 0);
  check_totals(m);
  model_call call = {.kind = reserved > m->now.after.reserved_bytes ? MODEL_EMPTY : MODEL_WAIT};
  assert_true(TSR__VECTOR_PUSH(&m->calls, call));
}

void model_insert(model_trace *m, size_t index, tsr_allocator_event event) {
  model_event kept = {.event = event, .time_us = START_US};
  if (index) kept.time_us = m->events.items[index - 1].time_us;
  assert_true(TSR__VECTOR_PUSH(&m->events, kept));
  model_event *at = &m->events.items[index];
  memmove(at + 1, at, (m->events.count - 1 - index) * sizeof *at);
  *at = kept;
}

void model_release(model_trace *m) {
  tsr_allocator_destroy(m->allocator);
  TSR__VECTOR_FREE(&m->events);
  TSR__VECTOR_FREE(&m->calls);
  TSR__VECTOR_FREE(&m->address);
  tsr__map_release(&m->block_bytes);
}

/* ---- a random program ---- */

static uint64_t below(model_trace *m, uint64_t bound) {
  m->random ^= m->random << 13;
  m->random ^= m->random >> 7;
  m->random ^= m->random << 17;
  return (m->random >> 11) % bound;
}

static bool one_in(model_trace *m, uint32_t n) {
  return n && below(m, n) == 0;
}

/* Small ones mostly, as in life; a quarter just above what the small pool serves. */
static uint64_t random_bytes(model_trace *m, uint64_t largest) {
  switch (below(m, 8)) {
  case 0: return 1 + below(m, largest);
  case 1: return (1 + below(m, largest / MODEL_MIB)) * MODEL_MIB;
  case 2:
  case 3: return MODEL_MIB + below(m, 4 * MODEL_MIB);
  case 4: return MODEL_MIB / 2 + below(m, MODEL_MIB);
  default: return 1 + below(m, 100000);
  }
}

static void take_one(model_trace *m, const model_program *program) {
  uint64_t largest = program->largest_bytes ? program->largest_bytes : 24 * MODEL_MIB;
  uint64_t stream = below(m, program->streams + 1), pool = below(m, program->pools + 1);
  (void)model_malloc(m, random_bytes(m, largest), stream, (tsr_pool){pool, 0});
}

/* Free one of the live allocations, any. */
static void give_one(model_trace *m, const model_program *program) {
  uint32_t used_on = 0;
  if (one_in(m, program->wait_one_in)) used_on = 1 + (uint32_t)below(m, program->streams + 1);
  size_t at = below(m, m->address.count);
  for (size_t i = 0; i < m->address.count; i++, at = (at + 1) % m->address.count) {
    if (!m->address.items[at]) continue;
    model_free(m, (uint32_t)at, used_on);
    return;
  }
}

static void toggle_capture(model_trace *m) {
  if (m->capture_depth)
    tsr_allocator_capture_end(m->allocator);
  else
    tsr_allocator_capture_begin(m->allocator);
  m->capture_depth ^= 1;
}

/* Let a private pool's memory go from now on, or keep it again. */
static void toggle_pool(model_trace *m, const model_program *program) {
  tsr_pool pool = {1 + below(m, program->pools), 0};
  if (tsr_allocator_pool_end(m->allocator, pool))
    assert_int_equal(tsr_allocator_pool_begin(m->allocator, pool), 0);
}

void model_random(model_trace *m, const model_program *program) {
  uint64_t target = program->live_target ? program->live_target : 60, goal = target;
  model_start(m, program);
  for (uint32_t i = 0; i < program->operations; i++) {
    if (one_in(m, 100)) goal = below(m, target);
    if (one_in(m, program->capture_one_in)) toggle_capture(m);
    if (one_in(m, program->empty_one_in) && !m->capture_depth) model_empty(m);
    if (program->ends_pools && one_in(m, 200)) toggle_pool(m, program);
    if (program->wait_one_in && one_in(m, 10)) model_complete(m, below(m, program->streams + 1));
    if (m->now.live_count < goal + below(m, 8) || !m->now.live_count)
      take_one(m, program);
    else
      give_one(m, program);
  }
}

/* ---- as a snapshot ---- */

static void put_frames(tsr__buffer *out, uint32_t owner) {
  tsr__buffer_text(out, "\"frames\": [");
  if (owner != TSR_NONE)
    tsr__buffer_printf(out,
                       "{\"name\": \"op_%" PRIu32 "\", \"filename\": \"/work/train.py\", "
                       "\"line\": %" PRIu32 "}",
                       owner, owner + 10);
  tsr__buffer_text(out, "]");
}

static void put_event(tsr__buffer *out, const model_event *event, const model_form *form) {
  static const char *const names[] = {
      "alloc",        "free_requested", "free_completed", "free",     "segment_alloc",
      "segment_free", "segment_map",    "segment_unmap",  "snapshot", "oom"};
  const tsr_allocator_event *e = &event->event;
  tsr__buffer_printf(out,
                     "{\"action\": \"%s\", \"%s\": %" PRIu64 ", \"size\": %" PRIu64
                     ", \"stream\": %" PRIu64 ", \"time_us\": %" PRId64 ", ",
                     names[e->action], e->action == TSR_ACTION_OOM ? "device_free" : "addr",
                     e->addr, e->size, e->stream, event->time_us);
  if (!form->drops_pool_id)
    tsr__buffer_printf(out, "\"pool_id\": [%" PRIu64 ", %" PRIu64 "], ", e->pool.first,
                       e->pool.second);
  put_frames(out, e->owner);
  tsr__buffer_text(out, "}");
}

static void put_trace(tsr__buffer *out, const model_trace *m, const model_form *form) {
  tsr__buffer_text(out, "[");
  for (size_t i = form->cut_events; i < m->events.count; i++) {
    if (i > form->cut_events) tsr__buffer_text(out, ",\n");
    put_event(out, &m->events.items[i], form);
  }
  tsr__buffer_text(out, "]");
}

typedef struct segment_writer {
  tsr__buffer *out;
  uint32_t device;
  bool has_segments, has_blocks;
} segment_writer;

static void put_segment(void *context, const tsr_allocator_segment *segment) {
  segment_writer *w = context;
  if (w->has_segments) tsr__buffer_text(w->out, w->has_blocks ? "]},\n" : ",\n");
  w->has_segments = true;
  w->has_blocks = false;
  tsr__buffer_printf(w->out,
                     "{\"device\": %" PRIu32 ", \"address\": %" PRIu64 ", \"total_size\": %" PRIu64
                     ", \"allocated_size\": %" PRIu64 ", \"active_size\": %" PRIu64
                     ", \"requested_size\": %" PRIu64 ", \"stream\": %" PRIu64
                     ", \"segment_type\": \"%s\", \"segment_pool_id\": [%" PRIu64 ", %" PRIu64
                     "], \"is_expandable\": %s, \"frames\": [], \"blocks\": [",
                     w->device, segment->address, segment->total_bytes, segment->allocated_bytes,
                     segment->active_bytes, segment->requested_bytes, segment->stream,
                     segment->is_large ? "large" : "small", segment->pool.first,
                     segment->pool.second, segment->is_expandable ? "true" : "false");
}

static void put_block(void *context, const tsr_allocator_block *block) {
  static const char *const states[] = {"inactive", "active_allocated", "active_pending_free"};
  segment_writer *w = context;
  if (w->has_blocks) tsr__buffer_text(w->out, ",\n");
  w->has_blocks = true;
  tsr__buffer_printf(w->out,
                     "{\"address\": %" PRIu64 ", \"size\": %" PRIu64
                     ", \"requested_size\": %" PRIu64 ", \"state\": \"%s\", ",
                     block->address, block->size_bytes, block->requested_bytes,
                     states[block->state]);
  put_frames(w->out, block->state == TSR_BLOCK_INACTIVE ? TSR_NONE : block->owner);
  tsr__buffer_text(w->out, "}");
}

static void put_settings(tsr__buffer *out, const tsr_allocator_settings *settings) {
  tsr__buffer_printf(out,
                     ", \"allocator_settings\": {\"max_split_size\": %" PRId64
                     ", \"garbage_collection_threshold\": %.3f, \"expandable_segments\": %s, "
                     "\"roundup_power2_divisions\": {",
                     settings->max_split_bytes ? (int64_t)settings->max_split_bytes : -1,
                     settings->garbage_collection_threshold,
                     settings->expandable_segments ? "true" : "false");
  for (unsigned i = 0; i < TSR_ROUNDUP_SLOTS; i++)
    tsr__buffer_printf(out, "%s\"%u\": %" PRIu32, i ? ", " : "", 1u << i,
                       settings->roundup_divisions[i]);
  tsr__buffer_text(out, "}}");
}

tsr_snapshot *model_snapshot(const model_trace *traces, size_t count, const model_form *form) {
  static const model_form whole;
  tsr__buffer text = {0};
  segment_writer w = {.out = &text};
  tsr_allocator_visitor visitor = {put_segment, put_block, &w};
  tsr_snapshot *snapshot = NULL;
  tsr_error error = {0};
  if (!form) form = &whole;
  tsr__buffer_text(&text, "{\"segments\": [");
  for (w.device = 0; w.device < count; w.device++)
    assert_int_equal(tsr_allocator_visit(traces[w.device].allocator, &visitor, NULL), 0);
  if (w.has_segments) tsr__buffer_text(&text, "]}");
  if (form->more_segments) tsr__buffer_text(&text, form->more_segments);
  tsr__buffer_text(&text, "], \"device_traces\": [");
  for (size_t i = 0; i < count; i++) {
    if (i) tsr__buffer_text(&text, ", ");
    put_trace(&text, &traces[i], form);
  }
  tsr__buffer_text(&text, "]");
  if (!form->drops_settings) put_settings(&text, &traces[0].settings);
  tsr__buffer_text(&text, "}\n");
  assert_false(text.failed);
  if (tsr_snapshot_read(text.data, text.size, NULL, &snapshot, &error))
    fail_msg("%s", error.message);
  tsr__buffer_release(&text);
  return snapshot;
}

static int append(void *context, const char *data, size_t size_bytes) {
  tsr__buffer_append(context, data, size_bytes);
  return 0;
}

tsr_snapshot *model_reread(const tsr_snapshot *snapshot) {
  tsr__buffer bytes = {0};
  tsr_snapshot *again = NULL;
  assert_int_equal(tsr_snapshot_export(snapshot, TSR_EXPORT_PICKLE, append, &bytes, NULL), 0);
  assert_int_equal(tsr_snapshot_read(bytes.data, bytes.size, NULL, &again, NULL), 0);
  tsr__buffer_release(&bytes);
  return again;
}
