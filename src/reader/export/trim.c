/* trim.c - makes a window of a trace into a separate snapshot.
 *
 * The events of the window are copied; segments and blocks are built from the timeline's state
 * after the last of them. A reader that undoes the copied events from there arrives at the state
 * before the window, exactly as if PyTorch had written a snapshot at that moment.
 *
 * Names, frames, stacks and settings are taken over whole, so that ids mean the same in both;
 * writing the snapshot leaves out what no row names. What the program said is kept: in the events,
 * and as a sidecar of the part what else it said of
 * the blocks that are live at the end of the window. */
#include <assert.h>
#include <string.h>

#include "attribution/named.h"
#include "base/sort.h"
#include "columns/builder.h"
#include "emit/text.h"
#include "formats/card.h"
#include "formats/sidecar.h"
#include "questions/shared/query.h"
#include "study/study.h"
#include "tessera/unstable/formats.h"

typedef struct trimmer {
  tsr_study *study;
  const tsr_snapshot *from; /* the study's */
  tsr__builder to;
  const tsr_window *window;
  /* Times of the first and last event that is kept; first above last if none has a time. */
  int64_t first_us, last_us;
  int64_t first, last;  /* events that are kept, of the device that is being copied */
  tsr__map waiting;     /* see note_waiting */
  tsr__sidecar sidecar; /* names of what is live at the end of the window, and the cards */
} trimmer;

/* ---- events ---- */

static uint64_t first_row_of(const tsr_snapshot *snapshot, uint32_t device) {
  for (size_t i = 0; i < snapshot->device_traces.count; i++)
    if (snapshot->device_traces.items[i].device == device)
      return snapshot->device_traces.items[i].first;
  return 0;
}

static bool copy_events(trimmer *t, uint32_t device, int64_t first, int64_t last) {
  uint64_t base = first_row_of(t->from, device);
  assert(first >= 0 && first <= last);
  for (int64_t i = first; i <= last; i++) {
    int64_t time_us = t->from->events.time_us[base + (uint64_t)i];
    if (!tsr__builder_copy_event(&t->to, device, t->from, base + (uint64_t)i)) return false;
    if (time_us == TSR_TIME_NONE) continue;
    if (time_us < t->first_us) t->first_us = time_us;
    if (time_us > t->last_us) t->last_us = time_us;
  }
  return true;
}

/* ---- blocks ---- */

/* The allocations that wait for another stream at an event, as keys of `t->waiting`. */
static bool note_waiting(trimmer *t, const tsr__timeline *timeline, int64_t event) {
  tsr__map_release(&t->waiting);
  for (size_t i = 0; i < timeline->waits.count; i++) {
    const tsr__wait *wait = &timeline->waits.items[i];
    bool is_waiting = (wait->from == TSR_NONE || wait->from <= event) &&
                      (wait->until == TSR_NONE || wait->until > event);
    if (is_waiting && !tsr__map_put(&t->waiting, wait->allocation, 0, NULL)) return false;
  }
  if (event < 0 || timeline->events.action[event] != TSR_ACTION_FREE_REQUESTED) return true;
  return tsr__map_put(&t->waiting, timeline->allocation_of[event], 0, NULL) != NULL;
}

static tsr_block block_of(trimmer *t, const tsr__timeline *timeline, uint32_t allocation) {
  bool is_waiting = t->waiting.count && tsr__map_find(&t->waiting, allocation);
  return (tsr_block){.address = tsr__timeline_address(timeline, allocation),
                     .size_bytes = timeline->block_bytes.items[allocation],
                     .requested_bytes = tsr__timeline_requested(timeline, allocation),
                     .stack = tsr__timeline_stack(timeline, allocation),
                     .state = is_waiting ? TSR_BLOCK_PENDING_FREE : TSR_BLOCK_ALLOCATED};
}

/* ---- blocks that the events describe incompletely ---- */

/* Keep each block that was live before the window and is freed in it, as it was before. */
static bool note_initial(trimmer *t, const tsr__timeline *timeline, int64_t first, int64_t last) {
  TSR__VECTOR(tsr_block) blocks = {0};
  bool ok = note_waiting(t, timeline, first - 1);
  for (uint32_t a = 0; ok && a < timeline->birth.count; a++) {
    uint32_t birth = timeline->birth.items[a], death = timeline->death.items[a];
    bool is_older = birth == TSR_NONE || (int64_t)birth < first;
    if (!is_older || death == TSR_NONE || (int64_t)death < first || (int64_t)death > last) continue;
    ok = TSR__VECTOR_PUSH(&blocks, block_of(t, timeline, a));
  }
  ok = ok && tsr__builder_initial_blocks(&t->to, timeline->device, blocks.items, blocks.count);
  TSR__VECTOR_FREE(&blocks);
  return ok;
}

/* ---- names ---- */

static bool push_tensor(trimmer *t, tsr_tensor tensor, tsr_text name, const char *type) {
  char *text = tsr__arena_alloc(&t->sidecar.texts, name.size_bytes + 1, 1);
  tensor.name = text;
  tensor.type = tsr__arena_copy(&t->sidecar.texts, type, strlen(type) + 1, 1);
  if (!text || !tensor.type) return false;
  memcpy(text, name.data, name.size_bytes);
  text[name.size_bytes] = '\0';
  return TSR__VECTOR_PUSH(&t->sidecar.tensors, tensor);
}

/* The text that groups an allocation by metadata: its own, or else its last annotation; TSR_NONE if the
 * window has it. */
static uint32_t governing(const trimmer *t, const tsr__names *names, uint32_t allocation) {
  size_t count;
  uint32_t own = tsr__names_metadata(names, allocation);
  uint32_t birth = names->timeline->birth.items[allocation];
  bool is_inside = (int64_t)birth >= t->first && (int64_t)birth <= t->last;
  if (own != TSR_NONE) return is_inside ? TSR_NONE : own;
  const tsr__note_remark *notes = tsr__names_notes(names, allocation, &count);
  if (!count) return TSR_NONE;
  int64_t event = (int64_t)notes[count - 1].event;
  return event >= t->first && event <= t->last ? TSR_NONE : notes[count - 1].remark;
}

/* What the program said of a block outside the window. */
static bool copy_remarks(trimmer *t, const tsr__names *names, uint32_t allocation,
                         const tsr_block *block) {
  uint32_t first = governing(t, names, allocation);
  for (size_t i = 0; i < tsr__names_count(names, allocation); i++) {
    tsr__given_name name = tsr__names_at(names, allocation, i);
    bool is_inside = (int64_t)name.event >= t->first && (int64_t)name.event <= t->last;
    if (name.source == TSR_NAME_SIDECAR || is_inside ||
        memchr(name.text.data, 0, name.text.size_bytes))
      continue;
    tsr_tensor tensor = {.address = block->address,
                         .size_bytes = block->requested_bytes < block->size_bytes
                                           ? block->requested_bytes
                                           : block->size_bytes,
                         .block_address = block->address,
                         .device = names->timeline->device,
                         .category = name.category};
    bool is_first = name.identity == (uint64_t)first + 1;
    tsr_text text = is_first ? names->remarks.items[first].text : name.text;
    if (memchr(text.data, 0, text.size_bytes)) text = name.text;
    if (!push_tensor(t, tensor, text, is_first ? TSR__SIDECAR_SAID : "")) return false;
  }
  return true;
}

/* The tensors of a block, if the sidecar, which is of the moment of the snapshot, names any: the block must
 * have lived until then. */
static bool copy_tensors(trimmer *t, const tsr__timeline *timeline, uint32_t allocation) {
  size_t count = 0;
  const tsr_tensor *tensors = NULL;
  if (timeline->death.items[allocation] == TSR_NONE)
    tensors = tsr_snapshot_tensors_in(t->from, timeline->device,
                                      tsr__timeline_address(timeline, allocation), &count);
  for (size_t i = 0; i < count; i++)
    if (strcmp(tensors[i].type, TSR__SIDECAR_SAID) != 0 &&
        !push_tensor(t, tensors[i], tsr__text_of(tensors[i].name), tensors[i].type))
      return false;
  return true;
}

static bool copy_cards(trimmer *t) {
  t->sidecar.place = t->from->sidecar.place;
  t->sidecar.has_place = t->from->sidecar.has_place;
  t->sidecar.pid = t->from->sidecar.pid;
  if (t->from->sidecar.host) {
    const char *host = t->from->sidecar.host;
    t->sidecar.host = tsr__arena_copy(&t->sidecar.texts, host, strlen(host) + 1, 1);
    if (!t->sidecar.host) return false;
  }
  if (!tsr__card_copy(&t->from->sidecar.ledger, &t->sidecar.texts, &t->sidecar.ledger))
    return false;
  for (size_t i = 0; i < t->from->sidecar.cards.count; i++)
    if (!TSR__VECTOR_PUSH(&t->sidecar.cards, t->from->sidecar.cards.items[i])) return false;
  return true;
}

/* ---- segments ---- */

/* The free block from `address` to `end`, if that is not empty. */
static bool add_free(trimmer *t, uint64_t address, uint64_t end) {
  tsr_block block = {.address = address,
                     .size_bytes = end - address,
                     .stack = TSR_NONE,
                     .state = TSR_BLOCK_INACTIVE};
  return end <= address || tsr__builder_block(&t->to, &block);
}

/* A live allocation and its address, for sorting. */
typedef struct placed {
  uint64_t address;
  uint32_t allocation;
} placed;

static int compare_placed(const void *a, const void *b) {
  const placed *x = a, *y = b;
  return (x->address > y->address) - (x->address < y->address);
}

static int compare_spans(const void *a, const void *b) {
  const tsr__span *x = a, *y = b;
  return (x->address > y->address) - (x->address < y->address);
}

typedef struct state {
  const tsr__timeline *timeline;
  const tsr__names *names;
  int64_t event;
  TSR__VECTOR(placed) live;     /* by address */
  TSR__VECTOR(tsr__span) spans; /* by address */
} state;

static bool gather_state(state *s, tsr_error *error) {
  tsr__live_set live = {0};
  if (tsr__timeline_live(s->timeline, s->event, &live, error)) return false;
  bool ok = true;
  for (size_t i = 0; ok && i < live.count; i++)
    ok = TSR__VECTOR_PUSH(
        &s->live, (placed){tsr__timeline_address(s->timeline, live.items[i]), live.items[i]});
  TSR__VECTOR_FREE(&live);
  for (size_t i = 0; ok && i < s->timeline->spans.count; i++)
    if (tsr__span_is_there(&s->timeline->spans.items[i], s->event))
      ok = TSR__VECTOR_PUSH(&s->spans, s->timeline->spans.items[i]);
  if (!ok) return false;
  tsr__sort(s->live.items, s->live.count, sizeof *s->live.items, compare_placed);
  tsr__sort(s->spans.items, s->spans.count, sizeof *s->spans.items, compare_spans);
  return true;
}

/* One span as a segment; `*next` is the first live allocation not before it. */
static bool add_segment(trimmer *t, const state *s, const tsr__span *span, size_t *next) {
  uint64_t at = span->address, end = span->address + span->size_bytes;
  tsr_segment segment = {.address = span->address,
                         .total_bytes = span->size_bytes,
                         .stream = tsr_snapshot_stream(t->from, span->stream),
                         .device = s->timeline->device,
                         .stack = TSR_NONE,
                         .pool = span->pool,
                         .is_large = span->is_large,
                         .is_expandable = span->is_expandable};
  if (!tsr__builder_segment(&t->to, &segment)) return false;
  while (*next < s->live.count && s->live.items[*next].address < at) ++*next;
  for (; *next < s->live.count && s->live.items[*next].address < end; ++*next) {
    tsr_block block = block_of(t, s->timeline, s->live.items[*next].allocation);
    assert(at <= end && block.address < end);
    if (block.address < at || block.size_bytes > end - block.address) continue;
    if (!add_free(t, at, block.address) || !tsr__builder_block(&t->to, &block)) return false;
    if (block.state == TSR_BLOCK_ALLOCATED &&
        !(copy_remarks(t, s->names, s->live.items[*next].allocation, &block) &&
          copy_tensors(t, s->timeline, s->live.items[*next].allocation)))
      return false;
    at = block.address + block.size_bytes;
  }
  return add_free(t, at, end);
}

static int trim_device(trimmer *t, uint32_t device, tsr_error *error) {
  const tsr__timeline *timeline;
  int64_t first, last;
  state s = {.timeline = NULL};
  int status = tsr__study_timeline(t->study, device, &timeline, error);
  if (!status) status = tsr__study_names(t->study, device, &s.names, error);
  if (status) return status;
  s.timeline = timeline;
  bool has_events = tsr__window_find(&timeline->events, t->window, &first, &last);
  assert(!has_events || (first <= last && last < (int64_t)timeline->events.count));
  t->first = has_events ? first : 0;
  t->last = has_events ? last : -1;
  /* A device without events in the window keeps its state at that time. */
  s.event = has_events || !timeline->events.count ? last : (int64_t)timeline->events.count - 1;
  bool ok = (!has_events ||
             (copy_events(t, device, first, last) && note_initial(t, timeline, first, last))) &&
            note_waiting(t, timeline, s.event) && gather_state(&s, error);
  size_t next = 0;
  for (size_t i = 0; ok && i < s.spans.count; i++)
    ok = add_segment(t, &s, &s.spans.items[i], &next);
  TSR__VECTOR_FREE(&s.live);
  TSR__VECTOR_FREE(&s.spans);
  return ok ? 0 : tsr__fail_memory(error);
}

/* ---- the rest ---- */

static bool copy_annotations(trimmer *t) {
  for (size_t i = 0; i < t->from->annotation_count; i++) {
    int64_t time_us = t->from->annotations.items[i].time_us;
    if (time_us < t->first_us || time_us > t->last_us) continue;
    if (!tsr__builder_copy_annotation(&t->to, t->from, i)) return false;
  }
  return true;
}

static int finish(trimmer *t, tsr_snapshot **out, tsr_error *error) {
  if (!tsr__builder_event_count(&t->to))
    return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE, "the window contains no event");
  if (!copy_annotations(t) || !copy_cards(t)) return tsr__fail_memory(error);
  int status = tsr__builder_lay_out(&t->to, error);
  if (!status) status = tsr__sidecar_embed(&t->to, &t->sidecar, error);
  if (status) return status;
  if (tsr__snapshot_is_incomplete(t->from))
    tsr__builder_set_warning(&t->to, TSR__WARN_INCOMPLETE, 1);
  tsr__builder_take_sidecar(&t->to, &t->sidecar);
  return tsr__builder_finish(&t->to, out, error);
}

int tsr_snapshot_trim(tsr_study *study, const tsr_window *window, const tsr_query *query,
                      tsr_snapshot **out, tsr_error *error) {
  const tsr_snapshot *snapshot = tsr_study_snapshot(study);
  const uint32_t *devices;
  size_t count;
  int status = tsr__query_devices(snapshot, query, &devices, &count, error);
  if (status) return status;
  if (snapshot->flat.count)
    return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                     "only a snapshot can be cut: this file has no segments "
                     "or blocks to write");
  trimmer t = {.study = study,
               .from = snapshot,
               .window = window,
               .first_us = INT64_MAX,
               .last_us = INT64_MIN};
  if (!tsr__builder_init(&t.to, NULL) || !tsr__builder_copy_names(&t.to, snapshot) ||
      !tsr__builder_devices(&t.to, snapshot->trace_count))
    status = tsr__fail_memory(error);
  if (!status) status = tsr__study_prepare(study, devices, count, TSR__NEED_TIMELINE, error);
  for (size_t i = 0; !status && i < count; i++) status = trim_device(&t, devices[i], error);
  if (!status) status = finish(&t, out, error);
  tsr__map_release(&t.waiting);
  tsr__sidecar_release(&t.sidecar);
  tsr__builder_release(&t.to);
  return status;
}
