/* members.c - the devices of a file: what its sidecar says of their cards, and what its trace adds if several processes share one.
 *
 * The trace has PyTorch's reserved memory at every event, where the ledger has a sample now and then; annotations have the
 * program's own words for what it does; an oom event tells how much was missing. */
#include <assert.h>
#include <string.h>

#include "base/checked.h"
#include "formats/card.h"
#include "questions/card/card.h"
#include "questions/shared/rerun.h"
#include "study/study.h"
#include "timeline/sweep.h"

/* More are not told apart. */
enum { MOST_RANGES = 1 << 16 };

void tsr__card_members_release(tsr__card_members *members) {
  for (size_t i = 0; i < members->count; i++) {
    TSR__VECTOR_FREE(&members->items[i].reserved);
    TSR__VECTOR_FREE(&members->items[i].ranges);
    TSR__VECTOR_FREE(&members->items[i].ooms);
  }
  TSR__VECTOR_FREE(members);
}

static const char *copy_text(tsr__arena *texts, const char *text) {
  return tsr__arena_copy(texts, text, strlen(text) + 1, 1);
}

/* ---- What PyTorch has at the end ---- */

static void add_up_blocks(const tsr_snapshot *snapshot, tsr__card_member *member) {
  size_t count, block_count;
  const tsr_segment *segments = tsr_snapshot_segments(snapshot, &count);
  const tsr_block *blocks = tsr_snapshot_blocks(snapshot, &block_count);
  for (size_t i = 0; i < snapshot->segment_count; i++) {
    const tsr_segment *segment = &segments[i];
    if (segment->device != member->holder.device) continue;
    member->end_reserved_bytes = tsr__sum_u64(member->end_reserved_bytes, segment->total_bytes);
    for (uint64_t k = 0; k < segment->block_count; k++) {
      const tsr_block *block = &blocks[segment->first_block + k];
      if (block->state == TSR_BLOCK_ALLOCATED || block->state == TSR_BLOCK_PENDING_FREE)
        member->end_allocated_bytes = tsr__sum_u64(member->end_allocated_bytes, block->size_bytes);
    }
  }
  if (member->end_allocated_bytes > member->end_reserved_bytes)
    member->end_allocated_bytes = member->end_reserved_bytes;
}

/* ---- The trace ---- */

static int read_reserved(const tsr__timeline *t, tsr__card_member *member, tsr_error *error) {
  tsr__sweep sweep;
  uint64_t last = UINT64_MAX;
  bool ok = true;
  int status = tsr__sweep_begin(t, &sweep, error);
  if (status) return status;
  while (ok && tsr__sweep_next(&sweep)) {
    int64_t time_us = t->events.time_us[sweep.event];
    uint64_t bytes = sweep.totals.reserved_bytes;
    if (time_us == TSR_TIME_NONE || bytes == last) continue;
    size_t count = member->reserved.count;
    if (count && member->reserved.items[count - 1].time_us > time_us) continue;
    ok = TSR__VECTOR_PUSH(&member->reserved, (tsr__card_step){time_us, bytes});
    last = bytes;
  }
  tsr__sweep_release(&sweep);
  return ok ? 0 : tsr__fail_memory(error);
}

static bool read_ooms(const tsr__timeline *t, tsr__card_member *member) {
  const tsr_events *events = &t->events;
  uint64_t i = tsr__next_action(events, TSR_ACTION_OOM, 0);
  for (; i < events->count; i = tsr__next_action(events, TSR_ACTION_OOM, i + 1)) {
    uint64_t needed = tsr__driver_request(&t->settings, events->size[i]);
    tsr__card_oom oom = {events->time_us[i], tsr__drop_u64(needed, events->addr[i])};
    if (oom.time_us == TSR_TIME_NONE) continue;
    if (!TSR__VECTOR_PUSH(&member->ooms, oom)) return false;
  }
  return true;
}

/* ---- What the program did ---- */

/* Names of PyTorch and the recorder, which are parts of a phase. */
static bool is_detail(tsr_text name) {
  static const char *const begins[] = {"ProfilerStep#", "Optimizer.", "forward", "backward", "## "};
  for (size_t i = 0; i < sizeof begins / sizeof *begins; i++) {
    size_t length = strlen(begins[i]);
    if (name.size_bytes >= length && !memcmp(name.data, begins[i], length)) return true;
  }
  return false;
}

typedef struct open_range {
  uint32_t name;
  int64_t from_us;
} open_range;

/* Ranges that are in no other one. An end closes the range of its name; one that never ends lasts until the snapshot. */
static bool read_ranges(const tsr_snapshot *snapshot, tsr__arena *texts, tsr__card_member *member) {
  size_t count;
  const tsr_annotation *rows = tsr_snapshot_annotations(snapshot, &count);
  open_range open = {.name = TSR_NONE};
  int64_t last_us = 0;
  bool ok = true;
  for (size_t i = 0; ok && i < snapshot->annotation_count; i++) {
    const tsr_annotation *row = &rows[i];
    if (row->name == TSR_NONE || row->time_us == TSR_TIME_NONE) continue;
    tsr_text name = tsr_snapshot_string(snapshot, row->name);
    if (row->time_us > last_us) last_us = row->time_us;
    if (open.name == TSR_NONE && row->is_start && !is_detail(name))
      open = (open_range){row->name, row->time_us};
    if (open.name != row->name || !row->is_end) continue;
    if (member->ranges.count >= MOST_RANGES) break;
    char *copy = tsr__arena_alloc(texts, name.size_bytes + 1, 1);
    if (copy) memcpy(copy, name.data, name.size_bytes);
    if (copy) copy[name.size_bytes] = '\0';
    int64_t to_us = row->time_us > open.from_us ? row->time_us : open.from_us;
    ok = copy && TSR__VECTOR_PUSH(&member->ranges, (tsr__card_range){copy, open.from_us, to_us});
    open.name = TSR_NONE;
  }
  if (!ok || open.name == TSR_NONE || member->ranges.count >= MOST_RANGES) return ok;
  tsr_text name = tsr_snapshot_string(snapshot, open.name);
  char *copy = tsr__arena_alloc(texts, name.size_bytes + 1, 1);
  if (!copy) return false;
  memcpy(copy, name.data, name.size_bytes);
  copy[name.size_bytes] = '\0';
  for (size_t i = 0; i < member->ooms.count; i++)
    if (member->ooms.items[i].time_us > last_us) last_us = member->ooms.items[i].time_us;
  if (last_us < open.from_us) last_us = open.from_us;
  if (last_us < INT64_MAX) last_us++; /* what happens then is in it */
  return TSR__VECTOR_PUSH(&member->ranges, (tsr__card_range){copy, open.from_us, last_us});
}

/* ---- A file ---- */

static int read_trace(tsr_study *study, tsr__arena *texts, tsr__card_member *member,
                      tsr_error *error) {
  const tsr__timeline *t;
  int status = tsr__study_timeline(study, member->holder.device, &t, error);
  if (!status && tsr__has_history(&t->events)) status = read_reserved(t, member, error);
  if (status) return status;
  bool ok = read_ooms(t, member) && read_ranges(tsr_study_snapshot(study), texts, member);
  return ok ? 0 : tsr__fail_memory(error);
}

static const tsr_ledger *ledger_of(const tsr__card_ledger *ledgers, uint32_t device) {
  for (size_t i = 0; i < ledgers->device_count; i++)
    if (ledgers->devices[i].device == device) return &ledgers->devices[i];
  return NULL;
}

static int read_member(tsr_study *study, const tsr__card_member *like, uint32_t device,
                       const tsr__card_ledger *ledgers, bool reads_trace, tsr__arena *texts,
                       tsr__card_members *out, tsr_error *error) {
  const tsr_snapshot *snapshot = tsr_study_snapshot(study);
  bool is_in_snapshot = false;
  if (!TSR__VECTOR_PUSH(out, *like)) return tsr__fail_memory(error);
  tsr__card_member *member = &out->items[out->count - 1];
  const tsr_ledger *ledger = ledger_of(ledgers, device);
  member->holder.device = device;
  member->ledger = ledger && ledger->sample_count ? ledger : NULL;
  member->recording = ledgers->recording;
  member->host = ledgers->host;
  member->old = tsr_snapshot_card(snapshot, device);
  add_up_blocks(snapshot, member);
  for (size_t i = 0; i < snapshot->devices.count; i++)
    is_in_snapshot = is_in_snapshot || snapshot->devices.items[i] == device;
  return reads_trace && is_in_snapshot ? read_trace(study, texts, member, error) : 0;
}

typedef TSR__VECTOR(uint32_t) device_list;

static bool add_device(device_list *list, uint32_t device) {
  for (size_t i = 0; i < list->count; i++)
    if (list->items[i] == device) return true;
  return device == TSR_DEVICE_HOST || TSR__VECTOR_PUSH(list, device);
}

/* GPUs that the snapshot or the ledger has. */
static bool list_devices(const tsr_snapshot *snapshot, const tsr__card_ledger *ledgers,
                         device_list *out) {
  bool ok = true;
  for (size_t i = 0; ok && i < ledgers->device_count; i++)
    ok = add_device(out, ledgers->devices[i].device);
  for (size_t i = 0; ok && i < snapshot->devices.count; i++)
    ok = add_device(out, snapshot->devices.items[i]);
  return ok;
}

int tsr__card_read_members(tsr_study *study, const tsr__card_member *like, bool reads_trace,
                           tsr__arena *texts, tsr__card_members *out, tsr_error *error) {
  const tsr_snapshot *snapshot = tsr_study_snapshot(study);
  device_list devices = {0};
  tsr__card_ledger ledgers;
  tsr__card_member base = *like;
  const char *host;
  tsr_rank_place place = tsr_snapshot_rank(snapshot);
  base.holder.pid = tsr_snapshot_process(snapshot, &host);
  base.holder.rank = place.rank;
  base.holder.world_size = place.world_size;
  base.holder.host = copy_text(texts, host);
  bool ok = base.holder.host && tsr__card_copy(&snapshot->sidecar.ledger, texts, &ledgers) &&
            list_devices(snapshot, &ledgers, &devices);
  int status = ok ? 0 : tsr__fail_memory(error);
  for (size_t i = 0; !status && i < devices.count; i++)
    status = read_member(study, &base, devices.items[i], &ledgers, reads_trace, texts, out, error);
  TSR__VECTOR_FREE(&devices);
  return status;
}
