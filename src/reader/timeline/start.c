/* start.c - what was there before the first event. See timeline.h.
 *
 * An address's first event in the window decides: a free says that it was live before, an alloc
 * that it was not; an address without events was live if it is among the final blocks. Segments
 * likewise. Expandable memory is undone step by step from the end, because its ranges grow and
 * shrink.
 *
 * The size of a block that is freed inside the window is not written anywhere. It is the rounded
 * request, plus what PyTorch did not split off: in the large pool, outside expandable segments, no
 * free block is ever as small as 1 MiB, so a gap up to that after a block belongs to it. After
 * others the replay sees what was not split off when the free memory there is first used.
 *
 * Finding each address's first event takes as long as a sixth of the replay, and it needs nothing but
 * the columns. So a long trace is scanned in parts, by several threads, and what the parts found is
 * put together in the order of the trace: a later part knows of no event before its own, so what it
 * took for the first one of an address counts only where no earlier part has met that address. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/sort.h"
#include "columns/tables.h"
#include "timeline/timeline.h"

/* Each address that two parts mention is looked up again when they are put together, so more parts
 * are not always faster. Whether a trace is worth any threads is for the owner of the pool to say. */
enum { SHORTEST_PART = 64, MOST_PARTS = 4 };

/* What a stretch of the trace says about the time before it. Invariant: one of known_bytes for each of
 * the found. */
typedef struct scan {
  uint64_t first, end;          /* events first .. end - 1 */
  tsr__map mentioned;           /* address of alloc or free events -> 0, or where all that happens
                                   is that a free is requested: 1 + index of the found */
  tsr__map first_segment_event; /* segment address -> event + 1 */
  TSR__VECTOR(tsr__initial) found;   /* what the first event of its address frees, in their order */
  TSR__VECTOR(uint64_t) known_bytes; /* of the found: size of the final block, 0 where unknown */
  bool has_requests;                 /* the trace records free_requested at all */
} scan;

typedef struct starter {
  tsr__timeline *t;
  tsr__heap *heap;
  tsr__map *loose;
  scan seen; /* of the whole trace; after what it freed, the found are those of final blocks */
  size_t freed_count;
  TSR__VECTOR(tsr__span) ranges; /* expandable memory before the window */
  tsr__ranges places;            /* where they lie, by index; without empty ones */
  tsr__map recorded;             /* address -> row of a block that a trimmed file lists */
  scan parts[MOST_PARTS];        /* while they are scanned; the first becomes `seen` */
} starter;

/* ---- settings ---- */

static uint64_t bytes_setting(const tsr_snapshot *snapshot, const char *key) {
  double value;
  return tsr_snapshot_setting(snapshot, key, NULL, &value) && value > 0 ? (uint64_t)value : 0;
}

/* ---- Ascend: 32 bytes are added to a request before it is rounded ----
 *
 * torch_npu reserves them after each block, and knows no roundup_power2_divisions. No key of a file
 * states it, and neither do names: what shows it is where blocks end. Only requests count for which
 * the two ways of rounding differ, those that end less than 32 bytes below a multiple of 512; for
 * tensors these are the exact multiples. Blocks at the end of the trace have sizes; if none of them
 * decides, addresses do, since the next block usually starts where one ends. */

enum {
  ASCEND_EXTRA_BYTES = 32,
  ADDRESS_SAMPLE = 4096, /* addresses looked at: the first of the trace */
  MIN_ADDRESS_VOTES = 4, /* two blocks may be 512 bytes apart for other reasons */
  ADDRESS_MAJORITY = 4
};

typedef struct rounding_votes {
  tsr_allocator_settings plain, extra; /* without and with the 32 bytes */
  uint64_t plain_count, extra_count;
} rounding_votes;

static bool is_decisive(const rounding_votes *votes, uint64_t request_bytes, uint64_t *plain_bytes,
                        uint64_t *extra_bytes) {
  *plain_bytes = tsr__round_request(&votes->plain, request_bytes);
  *extra_bytes = tsr__round_request(&votes->extra, request_bytes);
  return *plain_bytes != *extra_bytes;
}

/* A block is never smaller than its rounded request, and may be larger by a tail that was not split
 * off. One segment may contradict the others: the allocator of workspaces, whose blocks torch_npu
 * lists after the normal ones, adds nothing. Hence votes. */
static void count_blocks(const tsr_snapshot *snapshot, uint32_t device, rounding_votes *votes) {
  size_t segment_count;
  const uint32_t *rows = tsr__snapshot_segments_of(snapshot, device, &segment_count);
  for (size_t s = 0; s < segment_count; s++) {
    const tsr_segment *segment = &snapshot->segments.items[rows[s]];
    for (uint64_t b = 0; b < segment->block_count; b++) {
      const tsr_block *block = &snapshot->blocks.items[segment->first_block + b];
      uint64_t plain, extra;
      if (block->state != TSR_BLOCK_ALLOCATED ||
          !is_decisive(votes, block->requested_bytes, &plain, &extra))
        continue;
      votes->plain_count += block->size_bytes == plain;
      votes->extra_count += block->size_bytes == extra;
    }
  }
}

static int compare_u64(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

/* In a trace, a block's size is not recorded, but the start of the next block is its end. */
static void count_addresses(const tsr_snapshot *snapshot, uint32_t device, rounding_votes *votes) {
  tsr_events events = tsr_snapshot_events(snapshot, device);
  uint64_t starts[ADDRESS_SAMPLE];
  size_t count = 0;
  uint64_t seen = 0;
  for (; seen < events.count && count < ADDRESS_SAMPLE; seen++)
    if (events.action[seen] == TSR_ACTION_ALLOC) starts[count++] = events.addr[seen];
  tsr__sort(starts, count, sizeof *starts, compare_u64);
  for (uint64_t i = 0; i < seen; i++) {
    uint64_t plain, extra;
    if (events.action[i] != TSR_ACTION_ALLOC || !is_decisive(votes, events.size[i], &plain, &extra))
      continue;
    uint64_t plain_end = events.addr[i] + plain, extra_end = events.addr[i] + extra;
    bool at_plain = bsearch(&plain_end, starts, count, sizeof *starts, compare_u64) != NULL;
    bool at_extra = bsearch(&extra_end, starts, count, sizeof *starts, compare_u64) != NULL;
    votes->plain_count += at_plain && !at_extra;
    votes->extra_count += at_extra && !at_plain;
  }
}

static uint64_t rounding_extra(const tsr_snapshot *snapshot, uint32_t device,
                               const tsr_allocator_settings *settings) {
  rounding_votes votes = {.plain = *settings, .extra = *settings};
  votes.extra.rounding_extra_bytes = ASCEND_EXTRA_BYTES;
  for (int i = 0; i < TSR_ROUNDUP_SLOTS; i++)
    if (settings->roundup_divisions[i] > 1) return 0;
  count_blocks(snapshot, device, &votes);
  if (votes.plain_count || votes.extra_count)
    return votes.extra_count > votes.plain_count ? ASCEND_EXTRA_BYTES : 0;
  count_addresses(snapshot, device, &votes);
  return votes.extra_count >= MIN_ADDRESS_VOTES &&
                 votes.extra_count > ADDRESS_MAJORITY * votes.plain_count
             ? ASCEND_EXTRA_BYTES
             : 0;
}

/* In files without settings, the mode shows in what it leaves. */
static bool has_expandable(const tsr_snapshot *snapshot, uint32_t device) {
  tsr_events events = tsr_snapshot_events(snapshot, device);
  size_t count;
  const uint32_t *rows = tsr__snapshot_segments_of(snapshot, device, &count);
  for (size_t i = 0; i < count; i++)
    if (snapshot->segments.items[rows[i]].is_expandable) return true;
  return tsr__next_action(&events, TSR_ACTION_SEGMENT_MAP, 0) < events.count;
}

/* What PyTorch writes among its settings only as the text that they were given as. */
static void read_conf(const tsr_snapshot *snapshot, tsr_allocator_settings *settings) {
  char conf[TSR_ALLOCATOR_SETTINGS_TEXT_BYTES];
  tsr_allocator_settings recorded;
  tsr_error ignored;
  tsr_text text = tsr__snapshot_setting_text(snapshot, "PYTORCH_CUDA_ALLOC_CONF");
  if (!text.size_bytes || text.size_bytes >= sizeof conf) return;
  memcpy(conf, text.data, text.size_bytes);
  conf[text.size_bytes] = '\0';
  if (tsr_allocator_settings_parse(conf, &recorded, &ignored)) return;
  settings->large_segment_bytes = recorded.large_segment_bytes;
  if (!settings->max_non_split_rounding_bytes)
    settings->max_non_split_rounding_bytes = recorded.max_non_split_rounding_bytes;
}

/* Requests that pinned host memory rounds: PyTorch before 2.14 has no limits, and -1 is none. */
static uint64_t host_round_max(const tsr_snapshot *snapshot) {
  uint64_t max = UINT64_MAX;
  static const char *const keys[] = {"max_round_threshold", "max_cached_size",
                                     "pinned_max_round_threshold", "pinned_max_cached_size"};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    double value;
    if (!tsr_snapshot_setting(snapshot, keys[i], NULL, &value) || !(value >= 1)) continue;
    if (value < (double)(UINT64_C(1) << 62) && (uint64_t)value < max) max = (uint64_t)value;
  }
  return max;
}

void tsr__timeline_settings(const tsr_snapshot *snapshot, uint32_t device,
                            tsr_allocator_settings *settings) {
  static const char *const slots[TSR_ROUNDUP_SLOTS] = {
      "1",   "2",   "4",    "8",    "16",   "32",   "64",    "128",
      "256", "512", "1024", "2048", "4096", "8192", "16384", "32768"};
  double value;
  *settings = (tsr_allocator_settings){0};
  /* None of them apply, or none can be told. */
  if (device >= TSR_DEVICE_CPU || tsr__snapshot_flat(snapshot, device)) return;
  settings->max_split_bytes = bytes_setting(snapshot, "max_split_size");
  settings->max_non_split_rounding_bytes = bytes_setting(snapshot, "max_non_split_rounding_size");
  if (tsr_snapshot_setting(snapshot, "garbage_collection_threshold", NULL, &value))
    settings->garbage_collection_threshold = value;
  if (tsr_snapshot_setting(snapshot, "expandable_segments", NULL, &value))
    settings->expandable_segments = value != 0;
  else
    settings->expandable_segments = has_expandable(snapshot, device);
  for (int i = 0; i < TSR_ROUNDUP_SLOTS; i++)
    if (tsr_snapshot_setting(snapshot, "roundup_power2_divisions", slots[i], &value) && value > 0 &&
        value < 1e6)
      settings->roundup_divisions[i] = (uint32_t)value;
  read_conf(snapshot, settings);
  settings->rounding_extra_bytes = rounding_extra(snapshot, device, settings);
}

uint64_t tsr__timeline_round(const tsr__timeline *t, uint64_t request_bytes) {
  if (t->flat) return request_bytes;
  return t->host_round_max_bytes ? tsr__round_host_request(t->host_round_max_bytes, request_bytes)
                                 : tsr__round_request(&t->settings, request_bytes);
}

/* ---- who was there ---- */

/* Is a free requested that the next event does not complete? */
static bool is_waiting_request(const tsr_events *events, uint64_t i) {
  bool is_complete = i + 1 < events->count && events->action[i + 1] == TSR_ACTION_FREE_COMPLETED &&
                     events->addr[i + 1] == events->addr[i];
  return events->action[i] == TSR_ACTION_FREE_REQUESTED && !is_complete;
}

/* `recorded` is only read: several threads look at it. */
static bool note_event(scan *s, const tsr__timeline *t, tsr__map *recorded, uint64_t i) {
  const tsr_events *events = &t->events;
  bool added, is_request = is_waiting_request(events, i);
  switch (events->action[i]) {
  case TSR_ACTION_FREE_REQUESTED: s->has_requests = true; break;
  case TSR_ACTION_FREE_COMPLETED:
    /* Mostly right after its request, which was noted: here, or at the end of the part before. */
    if (i && events->action[i - 1] == TSR_ACTION_FREE_REQUESTED &&
        events->addr[i - 1] == events->addr[i])
      return true;
    break;
  case TSR_ACTION_ALLOC:
  case TSR_ACTION_FREE: break;
  case TSR_ACTION_SEGMENT_ALLOC:
  case TSR_ACTION_SEGMENT_FREE:
    return tsr__map_put(&s->first_segment_event, events->addr[i], i + 1, NULL) != NULL;
  default: return true;
  }
  uint64_t *mention = tsr__map_put(&s->mentioned, events->addr[i], 0, &added);
  if (!mention) return false;
  if (!is_request) *mention = 0;
  if (!added || events->action[i] == TSR_ACTION_ALLOC) return true;
  if (is_request) *mention = s->found.count + 1;
  tsr__initial initial = {.address = events->addr[i],
                          .requested_bytes = events->size[i],
                          .stack = TSR_NONE,
                          .is_waiting = events->action[i] == TSR_ACTION_FREE_COMPLETED};
  const uint64_t *row = recorded->count ? tsr__map_find(recorded, initial.address) : NULL;
  const tsr_block *block = row ? &t->snapshot->blocks.items[*row] : NULL;
  if (block) {
    initial.stack = block->stack;
    initial.is_waiting = block->state == TSR_BLOCK_PENDING_FREE;
  }
  return TSR__VECTOR_PUSH(&s->found, initial) &&
         TSR__VECTOR_PUSH(&s->known_bytes, block ? block->size_bytes : 0);
}

static int scan_part(void *context, size_t index, tsr_error *error) {
  starter *s = context;
  scan *part = &s->parts[index];
  for (uint64_t i = part->first; i < part->end; i++)
    if (!note_event(part, s->t, &s->recorded, i)) return tsr__fail_memory(error);
  assert(part->found.count == part->known_bytes.count);
  return 0;
}

static void release_scan(scan *s) {
  tsr__map_release(&s->mentioned);
  tsr__map_release(&s->first_segment_event);
  TSR__VECTOR_FREE(&s->found);
  TSR__VECTOR_FREE(&s->known_bytes);
}

/* One address that a later part mentions. */
static bool add_mention(scan *s, uint64_t address, uint64_t mention) {
  uint64_t *known = tsr__map_put(&s->mentioned, address, 0, NULL);
  if (known && !mention) *known = 0; /* more happens to it than that a free is requested */
  return known != NULL;
}

/* Add what a later part saw. Of its found those count whose address no earlier part mentions; they
 * go first, in their order, because then every address of the part is mentioned. */
static bool add_part(scan *s, scan *part) {
  bool ok = true;
  assert(s->end == part->first);
  for (size_t i = 0; ok && i < part->found.count; i++) {
    bool is_first;
    uint64_t address = part->found.items[i].address;
    uint64_t *mention = tsr__map_put(&s->mentioned, address, 0, &is_first);
    if (mention && !is_first) continue;
    ok = mention && TSR__VECTOR_PUSH(&s->found, part->found.items[i]) &&
         TSR__VECTOR_PUSH(&s->known_bytes, part->known_bytes.items[i]);
    if (ok && *tsr__map_find(&part->mentioned, address)) *mention = s->found.count;
  }
  size_t slots = part->mentioned.slots ? part->mentioned.mask + 1 : 0;
  for (size_t i = 0; ok && i < slots; i++) {
    const tsr__map_slot *slot = &part->mentioned.slots[i];
    if (slot->key != TSR__MAP_EMPTY) ok = add_mention(s, slot->key, slot->value);
  }
  if (ok && part->mentioned.has_reserved)
    ok = add_mention(s, TSR__MAP_EMPTY, part->mentioned.reserved_value);
  slots = part->first_segment_event.slots ? part->first_segment_event.mask + 1 : 0;
  for (size_t i = 0; ok && i < slots; i++) {
    const tsr__map_slot *slot = &part->first_segment_event.slots[i];
    if (slot->key != TSR__MAP_EMPTY)
      ok = tsr__map_put(&s->first_segment_event, slot->key, slot->value, NULL);
  }
  if (ok && part->first_segment_event.has_reserved)
    ok = tsr__map_put(&s->first_segment_event, TSR__MAP_EMPTY,
                      part->first_segment_event.reserved_value, NULL);
  s->has_requests = s->has_requests || part->has_requests;
  s->end = part->end;
  return ok;
}

/* Every event, in as many parts as threads may work at once. */
static bool scan_all(starter *s, tsr__thread_pool *pool) {
  uint64_t count = s->t->events.count;
  size_t parts = tsr__thread_pool_width(pool);
  tsr_error ignored;
  if (parts > MOST_PARTS) parts = MOST_PARTS;
  if (parts > count / SHORTEST_PART) parts = count < SHORTEST_PART ? 1 : count / SHORTEST_PART;
  for (size_t i = 0; i < parts; i++) {
    s->parts[i].first = count / parts * i;
    s->parts[i].end = i + 1 < parts ? count / parts * (i + 1) : count;
  }
  bool ok = !tsr__thread_pool_each(pool, NULL, parts, scan_part, s, &ignored);
  s->seen = s->parts[0];
  for (size_t i = 1; i < parts; i++) {
    ok = ok && add_part(&s->seen, &s->parts[i]);
    release_scan(&s->parts[i]);
  }
  assert(!ok || (s->seen.first == 0 && s->seen.end == count));
  return ok;
}

static bool note_recorded(starter *s) {
  size_t count;
  const tsr__value *recorded = tsr__snapshot_initial_blocks(s->t->snapshot, s->t->device, &count);
  for (size_t i = 0; i < count; i++) {
    if (recorded[i].tag != TSR__BLOCK) continue;
    uint64_t address = s->t->snapshot->blocks.items[recorded[i].id].address;
    if (!tsr__map_put(&s->recorded, address, recorded[i].id, NULL)) return false;
  }
  return true;
}

/* Final blocks that no event mentions were there all along; so were those that wait for a stream
 * since a free was requested. */
static bool note_blocks(starter *s) {
  size_t count;
  const tsr_snapshot *snapshot = s->t->snapshot;
  const uint32_t *rows = tsr__snapshot_segments_of(snapshot, s->t->device, &count);
  for (size_t k = 0; k < count; k++) {
    const tsr_segment *segment = &snapshot->segments.items[rows[k]];
    for (uint64_t b = 0; b < segment->block_count; b++) {
      const tsr_block *block = &snapshot->blocks.items[segment->first_block + b];
      if (block->state != TSR_BLOCK_ALLOCATED && block->state != TSR_BLOCK_PENDING_FREE) continue;
      const uint64_t *mention = tsr__map_find(&s->seen.mentioned, block->address);
      if (mention && *mention) {
        s->seen.known_bytes.items[*mention - 1] = block->size_bytes;
        s->seen.found.items[*mention - 1].stack = block->stack;
      }
      if (mention) continue;
      if (block->state == TSR_BLOCK_ALLOCATED)
        s->t->recorded.static_bytes = tsr__sum_u64(s->t->recorded.static_bytes, block->size_bytes);
      tsr__initial initial = {.address = block->address,
                              .requested_bytes = block->requested_bytes,
                              .stack = block->stack,
                              .is_waiting = block->state == TSR_BLOCK_PENDING_FREE};
      /* PyTorch does not record what of a pinned block was requested. */
      if (s->t->host_round_max_bytes && !initial.requested_bytes)
        initial.requested_bytes = block->size_bytes;
      if (!TSR__VECTOR_PUSH(&s->seen.found, initial) ||
          !TSR__VECTOR_PUSH(&s->seen.known_bytes, block->size_bytes))
        return false;
    }
  }
  return true;
}

/* What a flat list had before it began, unless an event frees it. */
static bool note_before(starter *s) {
  const tsr__flat_device *flat = s->t->flat;
  if (!flat || !flat->before_bytes || tsr__map_find(&s->seen.mentioned, flat->before_address))
    return true;
  s->t->recorded.static_bytes = flat->before_bytes;
  tsr__initial initial = {
      .address = flat->before_address, .requested_bytes = flat->before_bytes, .stack = TSR_NONE};
  return TSR__VECTOR_PUSH(&s->seen.found, initial) &&
         TSR__VECTOR_PUSH(&s->seen.known_bytes, flat->before_bytes);
}

/* ---- segments before the window ---- */

/* The range as an index of s->ranges, or SIZE_MAX. */
static size_t index_of(const starter *s, uint32_t place) {
  return place == TSR__RANGE_NONE ? SIZE_MAX : tsr__ranges_get(&s->places, place)->value;
}

static bool push_range(starter *s, const tsr__span *range) {
  return s->ranges.count < TSR__RANGE_NONE &&
         tsr__ranges_add(&s->places, 0, range->address, range->address + range->size_bytes,
                         (uint32_t)s->ranges.count) != TSR__RANGE_NONE &&
         TSR__VECTOR_PUSH(&s->ranges, *range);
}

static bool add_span(starter *s, const tsr__span *span) {
  tsr__heap_segment like = {.stream = span->stream, .pool = span->pool, .is_large = span->is_large};
  if (tsr__map_find(&s->heap->segment_at, span->address)) {
    s->t->misfits[TSR__MISFIT_SEGMENT]++;
    return true;
  }
  return tsr__heap_add_segment(s->heap, span->address, span->size_bytes, &like) != TSR_NONE &&
         TSR__VECTOR_PUSH(&s->t->spans, *span);
}

/* Expandable memory of the end; what another segment of it holds already is not counted twice. */
static bool add_final_range(starter *s, const tsr__span *range) {
  uint64_t end;
  if (!tsr__add_u64(range->address, range->size_bytes, &end) ||
      tsr__ranges_overlap(&s->places, range->address, end) != TSR__RANGE_NONE) {
    s->t->misfits[TSR__MISFIT_SEGMENT]++;
    return true;
  }
  return push_range(s, range);
}

static bool add_final_segments(starter *s) {
  size_t count;
  const uint32_t *rows = tsr__snapshot_segments_of(s->t->snapshot, s->t->device, &count);
  for (size_t i = 0; i < count; i++) {
    const tsr_segment *segment = &s->t->snapshot->segments.items[rows[i]];
    if (!segment->total_bytes) continue;
    tsr__span span = {.address = segment->address,
                      .size_bytes = segment->total_bytes,
                      .birth = TSR_NONE,
                      .death = TSR_NONE,
                      .stream = tsr_snapshot_find_stream(s->t->snapshot, segment->stream),
                      .pool = segment->pool,
                      .is_large = segment->is_large,
                      .is_expandable = segment->is_expandable};
    if (segment->is_expandable) {
      if (!add_final_range(s, &span)) return false;
    } else if (!tsr__map_find(&s->seen.first_segment_event, segment->address)) {
      if (!add_span(s, &span)) return false;
    }
  }
  return true;
}

/* A segment whose first event is its end was there before; for a segment that was returned to the
 * driver, only its size indicates the pool: the small pool's are 2 MiB, and no others. */
static bool add_freed_segments(starter *s) {
  const tsr_events *events = &s->t->events;
  uint32_t pool = s->t->default_pool;
  for (uint64_t i = 0; (i = tsr__next_action(events, TSR_ACTION_SEGMENT_FREE, i)) < events->count;
       i++) {
    if (!events->size[i]) continue;
    if (*tsr__map_find(&s->seen.first_segment_event, events->addr[i]) != i + 1) continue;
    uint32_t its_pool = tsr_id_at(events->pool, i);
    tsr__span span = {.address = events->addr[i],
                      .size_bytes = events->size[i],
                      .birth = TSR_NONE,
                      .death = TSR_NONE,
                      .stream = tsr_id_at(events->stream, i),
                      .pool = its_pool == TSR_NONE ? pool : its_pool,
                      .is_large =
                          s->t->host_round_max_bytes || events->size[i] != TSR__SMALL_SEGMENT};
    if (!add_span(s, &span)) return false;
  }
  return true;
}

/* ---- expandable memory, undone from the end ---- */

/* Give the range at a place another begin and end. Empty it is no more. */
static void set_range(starter *s, uint32_t place, uint64_t address, uint64_t end) {
  tsr__span *range = &s->ranges.items[index_of(s, place)];
  range->address = address;
  range->size_bytes = end - address;
  if (address < end)
    tsr__ranges_move(&s->places, place, address, end);
  else
    tsr__ranges_remove(&s->places, place);
}

/* May memory of this class be part of the range at a place? */
static bool is_alike(const starter *s, uint32_t place, const tsr__span *stretch, bool is_large) {
  if (place == TSR__RANGE_NONE) return false;
  const tsr__span *range = &s->ranges.items[index_of(s, place)];
  return range->stream == stretch->stream && range->is_large == is_large &&
         (stretch->pool == TSR_NONE || range->pool == stretch->pool);
}

/* Join a range to those directly before and after it, or TSR__RANGE_NONE, if they are of this
 * class. */
static bool join_neighbours(starter *s, const tsr__span *stretch, uint32_t before, uint32_t after,
                            bool is_large) {
  uint64_t begin = stretch->address, end = begin + stretch->size_bytes;
  bool has_before =
      is_alike(s, before, stretch, is_large) && tsr__ranges_get(&s->places, before)->end == begin;
  bool has_after =
      is_alike(s, after, stretch, is_large) && tsr__ranges_get(&s->places, after)->begin == end;
  if (has_before && has_after) {
    uint64_t whole_end = tsr__ranges_get(&s->places, after)->end;
    set_range(s, after, whole_end, whole_end);
    set_range(s, before, tsr__ranges_get(&s->places, before)->begin, whole_end);
  } else if (has_before) {
    set_range(s, before, tsr__ranges_get(&s->places, before)->begin, end);
  } else if (has_after) {
    set_range(s, after, begin, tsr__ranges_get(&s->places, after)->end);
  }
  return has_before || has_after;
}

/* What was unmapped continues what is next to it. Its class is only guessed and its pool may be
 * unknown (TSR_NONE): where nothing of that class is there, that of the neighbours is right. */
static bool range_add(starter *s, tsr__span range) {
  uint64_t end = range.address + range.size_bytes;
  uint32_t after = tsr__ranges_ending_after(&s->places, range.address);
  if (after != TSR__RANGE_NONE && tsr__ranges_get(&s->places, after)->begin < end) {
    s->t->misfits[TSR__MISFIT_SEGMENT]++; /* it was there: then it was not unmapped */
    return true;
  }
  uint32_t before =
      range.address ? tsr__ranges_ending_after(&s->places, range.address - 1) : TSR__RANGE_NONE;
  if (before == after) before = TSR__RANGE_NONE;
  if (join_neighbours(s, &range, before, after, range.is_large) ||
      join_neighbours(s, &range, before, after, !range.is_large))
    return true;
  if (range.pool == TSR_NONE) range.pool = s->t->default_pool;
  return push_range(s, &range);
}

/* What was mapped may have become several ranges since, where classes were guessed. */
static bool range_remove(starter *s, uint64_t address, uint64_t size_bytes) {
  uint64_t end = address + size_bytes;
  while (address < end) {
    uint32_t place = tsr__ranges_around(&s->places, address);
    if (place == TSR__RANGE_NONE) {
      s->t->misfits[TSR__MISFIT_SEGMENT]++;
      return true;
    }
    tsr__span after = s->ranges.items[index_of(s, place)];
    uint64_t begin = after.address, range_end = begin + after.size_bytes;
    uint64_t stop = end < range_end ? end : range_end;
    assert(begin <= address && address < range_end);
    after.address = stop;
    after.size_bytes = range_end - stop;
    set_range(s, place, begin, address);
    if (after.size_bytes && !push_range(s, &after)) return false;
    address = stop;
  }
  return true;
}

static bool undo_ranges(starter *s) {
  const tsr_events *events = &s->t->events;
  bool has_any = tsr__next_action(events, TSR_ACTION_SEGMENT_MAP, 0) < events->count ||
                 tsr__next_action(events, TSR_ACTION_SEGMENT_UNMAP, 0) < events->count;
  for (uint64_t i = has_any ? events->count : 0; i--;) {
    bool ok = true;
    if (events->action[i] != TSR_ACTION_SEGMENT_MAP &&
        events->action[i] != TSR_ACTION_SEGMENT_UNMAP)
      continue;
    if (!events->size[i] || events->addr[i] > UINT64_MAX - events->size[i]) continue;
    if (events->action[i] == TSR_ACTION_SEGMENT_MAP)
      ok = range_remove(s, events->addr[i], events->size[i]);
    if (events->action[i] == TSR_ACTION_SEGMENT_UNMAP)
      ok = range_add(s, (tsr__span){.address = events->addr[i],
                                    .size_bytes = events->size[i],
                                    .birth = TSR_NONE,
                                    .death = TSR_NONE,
                                    .stream = tsr_id_at(events->stream, i),
                                    .pool = tsr_id_at(events->pool, i),
                                    .is_large = events->size[i] % TSR__LARGE_SEGMENT == 0,
                                    .is_expandable = true});
    if (!ok) return false;
  }
  return true;
}

static int compare_spans(const void *a, const void *b) {
  const tsr__span *x = a, *y = b;
  return (x->address > y->address) - (x->address < y->address);
}

/* Sort the ranges, drop empty ones, and join those that touch and are of one reservation: a file may
 * list them as several segments. */
static void join_ranges(starter *s) {
  size_t kept = 0;
  tsr__sort(s->ranges.items, s->ranges.count, sizeof *s->ranges.items, compare_spans);
  for (size_t i = 0; i < s->ranges.count; i++) {
    const tsr__span *range = &s->ranges.items[i];
    tsr__span *last = kept ? &s->ranges.items[kept - 1] : NULL;
    if (!range->size_bytes) continue;
    assert(!last || last->address + last->size_bytes <= range->address);
    if (last && last->address + last->size_bytes == range->address &&
        last->stream == range->stream && last->pool == range->pool &&
        last->is_large == range->is_large)
      last->size_bytes += range->size_bytes;
    else
      s->ranges.items[kept++] = *range;
  }
  s->ranges.count = kept;
}

/* From the lowest address, so that what is between two ranges is known with the second. */
static bool add_ranges(starter *s) {
  join_ranges(s);
  for (size_t i = 0; i < s->ranges.count; i++) {
    const tsr__span *range = &s->ranges.items[i];
    tsr__heap_segment like = {
        .stream = range->stream, .pool = range->pool, .is_large = range->is_large};
    uint32_t reservation = tsr__heap_reservation(s->heap, &like, range->address, range->size_bytes);
    if (reservation == TSR_NONE ||
        !tsr__heap_map(s->heap, reservation, range->address, range->size_bytes) ||
        !TSR__VECTOR_PUSH(&s->t->spans, *range))
      return false;
  }
  return true;
}

/* ---- placing what was live ---- */

static int compare_addresses(const void *a, const void *b) {
  const tsr__initial *x = *(const tsr__initial *const *)a, *y = *(const tsr__initial *const *)b;
  return (x->address > y->address) - (x->address < y->address);
}

/* The bytes an initial block counts with: those of the final block, or the rounded request. */
static uint64_t counted_bytes(const starter *s, size_t index) {
  uint64_t known = s->seen.known_bytes.items[index];
  return known ? known : tsr__timeline_round(s->t, s->seen.found.items[index].requested_bytes);
}

/* What is after a block of unknown size and must belong to it; `room` bytes are before the next.
 */
static uint64_t unsplit_bytes(const starter *s, const tsr__span *span, size_t index, uint64_t size,
                              uint64_t room) {
  bool may_have = !s->seen.known_bytes.items[index] && span->is_large && !span->is_expandable &&
                  !s->t->host_round_max_bytes;
  may_have = may_have && size < room && room - size <= tsr__largest_rest(&s->t->settings, size);
  return may_have ? room - size : 0;
}

static bool has_room(const tsr__heap_block *block, uint64_t address, uint64_t size) {
  return block->use == TSR__BLOCK_FREE && block->address <= address &&
         address - block->address < block->size_bytes &&
         size <= block->size_bytes - (address - block->address);
}

/* Turn [address, + size) of free memory into a block owned by `allocation`. Where segments of a
 * broken file overlap there may be no such memory: the allocation counts as loose then. */
static bool place(starter *s, uint64_t address, uint64_t size, uint32_t allocation,
                  uint32_t *inside) {
  tsr__heap *heap = s->heap;
  uint32_t block = *inside;
  while (block != TSR_NONE &&
         heap->blocks.items[block].address + heap->blocks.items[block].size_bytes <= address)
    block = heap->blocks.items[block].next;
  if (block == TSR_NONE || !has_room(&heap->blocks.items[block], address, size)) {
    s->t->misfits[TSR__MISFIT_ALLOC_OUTSIDE]++;
    return tsr__map_put(s->loose, address, allocation, NULL);
  }
  const tsr__initial *initial = &s->t->initial.items[allocation];
  if (heap->blocks.items[block].address < address)
    block = tsr__heap_cut(heap, block, address - heap->blocks.items[block].address);
  if (block != TSR_NONE) block = tsr__heap_take(heap, block, size, initial->requested_bytes);
  if (block == TSR_NONE) return false;
  heap->blocks.items[block].owner = allocation;
  if (initial->is_waiting) heap->blocks.items[block].use = TSR__BLOCK_WAITING;
  *inside = block;
  return true;
}

/* The block that holds the first byte of a span. */
static uint32_t first_block(tsr__heap *heap, const tsr__span *span) {
  uint32_t segment = tsr__heap_segment_around(heap, span->address);
  return segment == TSR_NONE ? TSR_NONE : tsr__heap_find_inside(heap, segment, span->address);
}

/* Add the found allocations of one span, ordered by address from `*next`, to the timeline and the
 * heap. */
static bool fill_span(starter *s, const tsr__span *span, const tsr__initial **order, size_t count,
                      size_t *next) {
  uint64_t end = span->address + span->size_bytes;
  uint32_t inside = TSR_NONE;
  for (; *next < count && order[*next]->address < end; ++*next) {
    const tsr__initial *initial = order[*next];
    size_t index = (size_t)(initial - s->seen.found.items);
    uint64_t limit =
        *next + 1 < count && order[*next + 1]->address < end ? order[*next + 1]->address : end;
    uint64_t room = limit - initial->address;
    uint64_t size = counted_bytes(s, index);
    if (s->t->host_round_max_bytes && !s->seen.known_bytes.items[index]) size = room;
    if (!room) { /* two at one address: a broken file */
      s->t->misfits[TSR__MISFIT_ALLOC_LIVE]++;
      continue;
    }
    if (size > room) {
      s->t->misfits[TSR__MISFIT_ALLOC_TOO_LONG]++;
      size = room;
    }
    if (inside == TSR_NONE) inside = first_block(s->heap, span);
    uint32_t allocation = (uint32_t)s->t->initial.count;
    tsr__initial placed = *initial;
    placed.unsplit_bytes = unsplit_bytes(s, span, index, size, room);
    if (!TSR__VECTOR_PUSH(&s->t->initial, placed) || !TSR__VECTOR_PUSH(&s->t->block_bytes, size) ||
        !place(s, initial->address, size + placed.unsplit_bytes, allocation, &inside))
      return false;
  }
  return true;
}

/* What is in no segment still counts, with its rounded size. */
static bool add_loose(starter *s, const tsr__initial *initial) {
  size_t index = (size_t)(initial - s->seen.found.items);
  uint64_t size = counted_bytes(s, index);
  uint32_t allocation = (uint32_t)s->t->initial.count;
  return TSR__VECTOR_PUSH(&s->t->initial, *initial) && TSR__VECTOR_PUSH(&s->t->block_bytes, size) &&
         tsr__map_put(s->loose, initial->address, allocation, NULL);
}

static bool place_all(starter *s) {
  size_t count = s->seen.found.count, next = 0;
  const tsr__initial **order = TSR__NEW_ARRAY(const tsr__initial *, count);
  if (!order) return false;
  for (size_t i = 0; i < count; i++) order[i] = &s->seen.found.items[i];
  tsr__sort(order, count, sizeof(void *), compare_addresses);
  tsr__sort(s->t->spans.items, s->t->spans.count, sizeof *s->t->spans.items, compare_spans);
  bool ok = true;
  for (size_t i = 0; ok && i < s->t->spans.count; i++) {
    const tsr__span *span = &s->t->spans.items[i];
    bool overlaps = i && span->address - span[-1].address < span[-1].size_bytes;
    s->t->misfits[TSR__MISFIT_SEGMENT] += overlaps;
    while (ok && next < count && order[next]->address < span->address)
      ok = add_loose(s, order[next++]);
    if (ok) ok = fill_span(s, span, order, count, &next);
  }
  while (ok && next < count) ok = add_loose(s, order[next++]);
  tsr__free(order);
  return ok;
}

int tsr__timeline_start(tsr__timeline *timeline, tsr__heap *heap, tsr__map *loose,
                        tsr__thread_pool *pool) {
  starter s = {.t = timeline, .heap = heap, .loose = loose};
  timeline->flat = tsr__snapshot_flat(timeline->snapshot, timeline->device);
  if (timeline->device == TSR_DEVICE_HOST && !timeline->flat)
    timeline->host_round_max_bytes = host_round_max(timeline->snapshot);
  tsr__ranges_init(&s.places);
  bool ok = note_recorded(&s) && scan_all(&s, pool);
  s.freed_count = s.seen.found.count;
  ok = ok && note_blocks(&s) && note_before(&s) && add_final_segments(&s) &&
       add_freed_segments(&s) && undo_ranges(&s) && add_ranges(&s);
  /* Without free_requested in the trace, waiting and live blocks cannot be distinguished. */
  for (size_t i = 0; i < s.freed_count; i++)
    if (!s.seen.has_requests && !s.seen.known_bytes.items[i])
      s.seen.found.items[i].is_waiting = false;
  ok = ok && place_all(&s);
  release_scan(&s.seen);
  tsr__map_release(&s.recorded);
  TSR__VECTOR_FREE(&s.ranges);
  tsr__ranges_release(&s.places);
  return ok ? 0 : TSR_ERROR_MEMORY;
}
