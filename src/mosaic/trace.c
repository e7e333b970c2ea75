/* trace.c - see trace.h. */
#include "mosaic/trace.h"

#include <assert.h>

tsr__mosaic_trace tsr__mosaic_trace_of(const tsr_snapshot *snapshot, uint32_t device) {
  tsr__mosaic_trace trace = {.snapshot = snapshot, .device = device};
  trace.events = tsr_snapshot_events(snapshot, device);
  for (size_t i = 0; i < snapshot->device_traces.count; i++)
    if (snapshot->device_traces.items[i].device == device)
      trace.first_row = snapshot->device_traces.items[i].first;
  return trace;
}

tsr__mosaic_trace tsr__mosaic_trace_first(const tsr_snapshot *snapshot) {
  size_t count;
  const uint32_t *devices = tsr_snapshot_gpus(snapshot, &count);
  for (size_t i = 0; i < count; i++)
    if (tsr_snapshot_events(snapshot, devices[i]).count)
      return tsr__mosaic_trace_of(snapshot, devices[i]);
  return (tsr__mosaic_trace){.snapshot = snapshot, .device = TSR_NONE};
}

bool tsr__mosaic_counts(const tsr__mosaic_trace *trace, uint64_t event) {
  const tsr__id_vector *shapes = &trace->snapshot->events.shape;
  assert(event < trace->events.count);
  uint32_t shape = shapes->values ? shapes->values[trace->first_row + event] : shapes->uniform;
  return shape & TSR__KEY(ADDR);
}

/* Sizes are unsigned in files; sums stay in range. */
static int64_t add(int64_t bytes, uint64_t size, bool is_negative) {
  int64_t step = size > INT64_MAX ? INT64_MAX : (int64_t)size;
  if (is_negative) return bytes < INT64_MIN + step ? INT64_MIN : bytes - step;
  return bytes > INT64_MAX - step ? INT64_MAX : bytes + step;
}

bool tsr__mosaic_count_event(tsr__mosaic_count *count, const tsr__mosaic_trace *trace,
                             uint64_t event, uint64_t value) {
  const tsr_events *events = &trace->events;
  assert(tsr__mosaic_counts(trace, event)); /* it has an address */
  uint64_t address = events->addr[event];
  if (events->action[event] == TSR_ACTION_ALLOC) {
    count->bytes = add(count->bytes, events->size[event], false);
    return tsr__map_put(&count->live, address, value, NULL);
  }
  if (events->action[event] == TSR_ACTION_FREE_COMPLETED && tsr__map_find(&count->live, address)) {
    count->bytes = add(count->bytes, events->size[event], true);
    tsr__map_remove(&count->live, address);
  }
  return true;
}

bool tsr__mosaic_is_moment(const tsr__mosaic_trace *trace, uint64_t event,
                           const tsr_mosaic_moment *moment, uint64_t version) {
  return trace->events.addr[event] == moment->address && version == moment->version &&
         trace->events.action[event] == moment->action;
}
