/* snapshot.c - the public accessors: each hands out what tables.h holds. */
#include "tessera/unstable/columns.h"

#include <stdio.h>
#include <string.h>

#include "columns/tables.h"

const char *tsr_snapshot_format(const tsr_snapshot *snapshot) {
  return snapshot->format;
}

uint64_t tsr_snapshot_input_bytes(const tsr_snapshot *snapshot) {
  return snapshot->input_bytes;
}

const tsr_warning *tsr_snapshot_warnings(const tsr_snapshot *snapshot, size_t *count) {
  *count = snapshot->warning_count;
  return snapshot->warnings;
}

const uint32_t *tsr_snapshot_devices(const tsr_snapshot *snapshot, size_t *count) {
  *count = snapshot->devices.count;
  return snapshot->devices.items;
}

const tsr__flat_device *tsr__snapshot_flat(const tsr_snapshot *snapshot, uint32_t device) {
  for (size_t i = 0; i < snapshot->flat.count; i++)
    if (snapshot->flat.items[i].device == device) return &snapshot->flat.items[i];
  return NULL;
}

bool tsr__snapshot_is_flat(const tsr_snapshot *snapshot) {
  return snapshot->flat.count > 0;
}

const uint32_t *tsr_snapshot_gpus(const tsr_snapshot *snapshot, size_t *count) {
  const uint32_t *devices = tsr_snapshot_devices(snapshot, count);
  while (*count && devices[*count - 1] >= TSR_DEVICE_CPU) --*count;
  return *count ? devices : NULL;
}

static tsr_id_column column_from(const tsr__id_vector *column, uint64_t first) {
  return (tsr_id_column){column->values ? column->values + first : NULL, column->uniform};
}

tsr_events tsr_snapshot_events(const tsr_snapshot *snapshot, uint32_t device) {
  const tsr__event_table *t = &snapshot->events;
  for (size_t i = 0; i < snapshot->device_traces.count; i++) {
    tsr__device_trace trace = snapshot->device_traces.items[i];
    if (trace.device != device) continue;
    return (tsr_events){.count = trace.count,
                        .action = t->action + trace.first,
                        .addr = t->addr + trace.first,
                        .size = t->size + trace.first,
                        .time_us = t->time_us + trace.first,
                        .stack = t->stack + trace.first,
                        .stream = column_from(&t->stream, trace.first),
                        .pool = column_from(&t->pool, trace.first),
                        .context = column_from(&t->context, trace.first),
                        .metadata = column_from(&t->metadata, trace.first),
                        .category = column_from(&t->category, trace.first)};
  }
  return (tsr_events){0};
}

const tsr_segment *tsr_snapshot_segments(const tsr_snapshot *snapshot, size_t *count) {
  *count = snapshot->segment_count;
  return snapshot->segments.items;
}

const tsr_block *tsr_snapshot_blocks(const tsr_snapshot *snapshot, size_t *count) {
  *count = snapshot->blocks.count;
  return snapshot->blocks.items;
}

const tsr_annotation *tsr_snapshot_annotations(const tsr_snapshot *snapshot, size_t *count) {
  *count = snapshot->annotation_count;
  return snapshot->annotations.items;
}

tsr_text tsr_snapshot_string(const tsr_snapshot *snapshot, uint32_t string) {
  if (string >= snapshot->strings.count) return (tsr_text){"", 0};
  const tsr__interned *item = &snapshot->strings.items[string];
  return (tsr_text){(const char *)item->data, item->size_bytes};
}

bool tsr_snapshot_has_negative_line(const tsr_snapshot *snapshot, uint32_t frame) {
  if (frame >= snapshot->frames.count) return false;
  const tsr__frame_key *key = (const void *)snapshot->frames.items[frame].data;
  return key->shape & TSR__SHAPE_LINE_NEGATIVE;
}

tsr_frame tsr_snapshot_frame(const tsr_snapshot *snapshot, uint32_t frame) {
  if (frame >= snapshot->frames.count) return (tsr_frame){TSR_NONE, TSR_NONE, TSR_LINE_UNKNOWN};
  return ((const tsr__frame_key *)snapshot->frames.items[frame].data)->frame;
}

tsr_stack tsr_snapshot_stack(const tsr_snapshot *snapshot, uint32_t stack) {
  if (stack >= snapshot->stacks.count) return (tsr_stack){NULL, 0};
  const tsr__interned *item = &snapshot->stacks.items[stack];
  return (tsr_stack){(const uint32_t *)item->data, item->size_bytes / (uint32_t)sizeof(uint32_t)};
}

tsr_pool tsr_snapshot_pool(const tsr_snapshot *snapshot, uint32_t pool) {
  if (pool >= snapshot->pools.count) return (tsr_pool){0, 0};
  return *(const tsr_pool *)snapshot->pools.items[pool].data;
}

uint64_t tsr_snapshot_stream(const tsr_snapshot *snapshot, uint32_t stream) {
  if (stream >= snapshot->streams.count) return 0;
  return *(const uint64_t *)snapshot->streams.items[stream].data;
}

uint32_t tsr_snapshot_find_stream(const tsr_snapshot *snapshot, uint64_t handle) {
  return tsr__intern_find(&snapshot->streams, &handle, sizeof handle);
}

uint32_t tsr_snapshot_string_count(const tsr_snapshot *snapshot) {
  return snapshot->strings.count;
}

uint32_t tsr_snapshot_frame_count(const tsr_snapshot *snapshot) {
  return snapshot->frames.count;
}

uint32_t tsr_snapshot_stack_count(const tsr_snapshot *snapshot) {
  return snapshot->stacks.count;
}

uint32_t tsr_snapshot_action_count(const tsr_snapshot *snapshot) {
  return TSR_ACTION_KNOWN_COUNT + (uint32_t)snapshot->actions.count;
}

tsr_text tsr_snapshot_action_name(const tsr_snapshot *snapshot, uint32_t action) {
  if (action <= TSR_ACTION_WORKSPACE_SNAPSHOT)
    return tsr_snapshot_string(snapshot, TSR__FIRST_ACTION + action);
  if (action == TSR_ACTION_MISSING) return (tsr_text){"(missing)", 9};
  if (action == TSR_ACTION_INTERNAL) return (tsr_text){"(internal)", 10};
  if (action >= tsr_snapshot_action_count(snapshot)) return (tsr_text){"", 0};
  return tsr_snapshot_string(snapshot, snapshot->actions.items[action - TSR_ACTION_KNOWN_COUNT]);
}

/* The value under a key of a loose dict, or NULL. */
static const tsr__value *look_up(const tsr_snapshot *snapshot, tsr__value dict, const char *key) {
  if (dict.tag != TSR__LOOSE) return NULL;
  const tsr__loose *loose = &snapshot->loose.items[dict.id];
  uint32_t id = tsr__intern_find(&snapshot->strings, key, strlen(key));
  const tsr__value *pairs = snapshot->loose_values.items + loose->first;
  for (uint32_t i = 0; loose->kind == TSR__LOOSE_DICT && i + 1 < loose->count; i += 2)
    if (pairs[i].tag == TSR__STRING && pairs[i].id == id) return &pairs[i + 1];
  return NULL;
}

tsr_text tsr__snapshot_setting_text(const tsr_snapshot *snapshot, const char *key) {
  for (size_t i = 0; i < snapshot->extras.count; i++) {
    const tsr__extra *extra = &snapshot->extras.items[i];
    if (extra->table != TSR__NULL || extra->key != TSR__NAME_ALLOCATOR_SETTINGS) continue;
    const tsr__value *value = look_up(snapshot, extra->value, key);
    if (value && value->tag == TSR__STRING) return tsr_snapshot_string(snapshot, value->id);
    break;
  }
  return (tsr_text){"", 0};
}

bool tsr_snapshot_setting(const tsr_snapshot *snapshot, const char *key, const char *subkey,
                          double *out) {
  for (size_t i = 0; i < snapshot->extras.count; i++) {
    const tsr__extra *extra = &snapshot->extras.items[i];
    if (extra->table != TSR__NULL || extra->key != TSR__NAME_ALLOCATOR_SETTINGS) continue;
    const tsr__value *value = look_up(snapshot, extra->value, key);
    if (value && subkey) value = look_up(snapshot, *value, subkey);
    if (!value) return false;
    if (value->tag == TSR__FLOAT)
      *out = value->f;
    else if (value->tag == TSR__INT)
      *out = (double)value->i;
    else if (value->tag == TSR__BOOL || value->tag == TSR__UINT)
      *out = (double)value->u;
    else
      return false;
    return true;
  }
  return false;
}

void tsr__device_key(uint32_t device, char out[TSR__DEVICE_KEY_BYTES]) {
  if (device == TSR_DEVICE_HOST)
    (void)snprintf(out, TSR__DEVICE_KEY_BYTES, "host");
  else if (device == TSR_DEVICE_CPU)
    (void)snprintf(out, TSR__DEVICE_KEY_BYTES, "cpu");
  else
    (void)snprintf(out, TSR__DEVICE_KEY_BYTES, "%u", (unsigned)device);
}

const tsr__value *tsr__snapshot_initial_blocks(const tsr_snapshot *snapshot, uint32_t device,
                                               size_t *count) {
  char number[TSR__DEVICE_KEY_BYTES];
  *count = 0;
  tsr__device_key(device, number);
  for (size_t i = 0; i < snapshot->extras.count; i++) {
    const tsr__extra *extra = &snapshot->extras.items[i];
    if (extra->table != TSR__NULL || extra->key != TSR__NAME_INITIAL_BLOCKS) continue;
    const tsr__value *list = look_up(snapshot, extra->value, number);
    if (!list || list->tag != TSR__LOOSE) return NULL;
    const tsr__loose *loose = &snapshot->loose.items[list->id];
    *count = loose->count;
    return snapshot->loose_values.items + loose->first;
  }
  return NULL;
}

/* ---- the sidecar ---- */

const char *tsr_snapshot_sidecar(const tsr_snapshot *snapshot) {
  return snapshot->sidecar.path;
}

const tsr_tensor *tsr_snapshot_tensors(const tsr_snapshot *snapshot, size_t *count) {
  *count = snapshot->sidecar.tensors.count;
  return snapshot->sidecar.tensors.items;
}

const tsr_tensor *tsr_snapshot_tensors_in(const tsr_snapshot *snapshot, uint32_t device,
                                          uint64_t block_address, size_t *count) {
  const tsr_tensor *items = snapshot->sidecar.tensors.items;
  size_t first = 0, past = snapshot->sidecar.tensors.count;
  size_t end = past;
  while (first < past) {
    size_t middle = first + (past - first) / 2;
    const tsr_tensor *tensor = &items[middle];
    bool is_before =
        tensor->device != device ? tensor->device < device : tensor->block_address < block_address;
    if (is_before)
      first = middle + 1;
    else
      past = middle;
  }
  size_t last = first;
  while (last < end && items[last].device == device && items[last].block_address == block_address)
    last++;
  *count = last - first;
  return *count ? &items[first] : NULL;
}

tsr_rank_place tsr_snapshot_rank(const tsr_snapshot *snapshot) {
  const tsr__sidecar *sidecar = &snapshot->sidecar;
  return sidecar->has_place ? sidecar->place : (tsr_rank_place){.rank = -1, .world_size = -1};
}

int64_t tsr_snapshot_taken_us(const tsr_snapshot *snapshot) {
  return snapshot->sidecar.taken_us ? snapshot->sidecar.taken_us : TSR_TIME_NONE;
}

int64_t tsr_snapshot_started_us(const tsr_snapshot *snapshot) {
  return snapshot->sidecar.started_us ? snapshot->sidecar.started_us : TSR_TIME_NONE;
}

tsr_card tsr_snapshot_card(const tsr_snapshot *snapshot, uint32_t device) {
  for (size_t i = 0; i < snapshot->sidecar.cards.count; i++)
    if (snapshot->sidecar.cards.items[i].device == device)
      return snapshot->sidecar.cards.items[i].card;
  return (tsr_card){0};
}

tsr_ledger_recording tsr_snapshot_ledger_recording(const tsr_snapshot *snapshot) {
  const tsr_ledger_recording none = {.nvml = "", .nvml_error = ""};
  return snapshot->sidecar.ledger.recording.is_there ? snapshot->sidecar.ledger.recording : none;
}

const tsr_ledger *tsr_snapshot_ledgers(const tsr_snapshot *snapshot, size_t *count) {
  *count = snapshot->sidecar.ledger.device_count;
  return snapshot->sidecar.ledger.devices;
}

const tsr_ledger *tsr_snapshot_ledger(const tsr_snapshot *snapshot, uint32_t device) {
  size_t count;
  const tsr_ledger *ledgers = tsr_snapshot_ledgers(snapshot, &count);
  for (size_t i = 0; i < count; i++)
    if (ledgers[i].device == device) return &ledgers[i];
  return NULL;
}

tsr_host_ledger tsr_snapshot_host_ledger(const tsr_snapshot *snapshot) {
  const tsr_host_ledger none = {
      .pinned_bytes = TSR_LEDGER_UNKNOWN, .limit_bytes = TSR_LEDGER_UNKNOWN, .limit_from = ""};
  return snapshot->sidecar.ledger.recording.is_there ? snapshot->sidecar.ledger.host : none;
}

uint64_t tsr_snapshot_process(const tsr_snapshot *snapshot, const char **host) {
  *host = snapshot->sidecar.host ? snapshot->sidecar.host : "";
  return snapshot->sidecar.pid;
}

uint32_t tsr_ledger_sample_at(const tsr_ledger *ledger, int64_t time_us) {
  size_t first = 0, past = ledger->sample_count;
  while (first < past) {
    size_t middle = first + (past - first) / 2;
    if (ledger->time_us[middle] <= time_us)
      first = middle + 1;
    else
      past = middle;
  }
  return first ? (uint32_t)(first - 1) : TSR_NONE;
}
