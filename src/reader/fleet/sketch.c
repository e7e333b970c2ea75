/* sketch.c - a sketch of a study: see sketch.h. */
#include "fleet/sketch.h"

#include <assert.h>
#include <string.h>

#include "attribution/frames.h"
#include "attribution/places.h"
#include "base/checked.h"
#include "base/intern.h"
#include "base/map.h"
#include "base/sort.h"
#include "columns/warnings.h"
#include "timeline/sweep.h"

enum { MOST_TEXT_BYTES = 400 };

typedef struct maker {
  tsr_study *study;
  const tsr_snapshot *snapshot;
  uint8_t *ranks; /* of frames */
  tsr__sketch *out;
  tsr__intern texts, frames, stacks;
  uint32_t *stack_of; /* by stack of the snapshot: 1 + its number here; 0: not asked yet */
  bool is_failed;
} maker;

void tsr__sketch_release(tsr__sketch *sketch) {
  for (size_t i = 0; i < sketch->devices.count; i++) {
    TSR__VECTOR_FREE(&sketch->devices.items[i].shares);
    TSR__VECTOR_FREE(&sketch->devices.items[i].highs);
    TSR__VECTOR_FREE(&sketch->devices.items[i].kept);
    TSR__VECTOR_FREE(&sketch->devices.items[i].ends);
    TSR__VECTOR_FREE(&sketch->devices.items[i].steps);
  }
  TSR__VECTOR_FREE(&sketch->devices);
  TSR__VECTOR_FREE(&sketch->frames);
  TSR__VECTOR_FREE(&sketch->stacks);
  tsr__buffer_release(&sketch->texts);
}

/* ---- Stacks ---- */

/* The offset of a text, which is cut if it is very long. */
static uint32_t text_of(maker *m, tsr_text text) {
  size_t size = text.size_bytes < MOST_TEXT_BYTES ? text.size_bytes : MOST_TEXT_BYTES;
  bool is_new;
  uint32_t id = tsr__intern_put(&m->texts, text.data, size, &is_new);
  if (id == TSR__INTERN_FULL) m->is_failed = true;
  return id;
}

static uint32_t frame_of(maker *m, uint32_t frame) {
  tsr_frame from = tsr_snapshot_frame(m->snapshot, frame);
  tsr__sketch_frame to = {text_of(m, tsr_snapshot_string(m->snapshot, from.name)),
                          text_of(m, tsr_snapshot_string(m->snapshot, from.file)), from.line};
  bool is_new;
  uint32_t id = tsr__intern_put(&m->frames, &to, sizeof to, &is_new);
  if (id == TSR__INTERN_FULL || (is_new && !TSR__VECTOR_PUSH(&m->out->frames, to)))
    m->is_failed = true;
  return id;
}

/* The frames that matter, at most TSR__SKETCH_FRAMES, innermost first. */
static uint32_t choose_frames(const maker *m, tsr_stack stack, uint32_t *chosen) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < stack.depth && count < TSR__SKETCH_FRAMES; i++)
    if (m->ranks[stack.frames[i]] <= TSR__RANK_TORCH) chosen[count++] = stack.frames[i];
  if (count) return count;
  tsr__place place = tsr__place_in(stack, m->ranks); /* C++ alone */
  if (place.frame != TSR_NONE) chosen[count++] = place.frame;
  return count;
}

/* The number here of a stack of the snapshot, TSR_NONE for one without frames. */
static uint32_t stack_of(maker *m, uint32_t stack) {
  uint32_t chosen[TSR__SKETCH_FRAMES];
  if (stack == TSR_NONE || stack >= tsr_snapshot_stack_count(m->snapshot)) return TSR_NONE;
  if (m->stack_of[stack]) return m->stack_of[stack] - 1;
  uint32_t depth = choose_frames(m, tsr_snapshot_stack(m->snapshot, stack), chosen);
  uint32_t id = TSR_NONE;
  for (uint32_t i = 0; i < depth; i++) chosen[i] = frame_of(m, chosen[i]);
  bool is_new = false;
  if (depth && !m->is_failed) {
    id = tsr__intern_put(&m->stacks, chosen, depth * sizeof *chosen, &is_new);
    if (id == TSR__INTERN_FULL) m->is_failed = true;
  }
  m->stack_of[stack] = id == TSR_NONE ? 0 : id + 1;
  return id;
}

/* Write down what was interned: stacks as runs of frames. */
static bool lay_stacks(maker *m) {
  TSR__VECTOR(tsr__sketch_frame)
  known = {m->out->frames.items, m->out->frames.count, m->out->frames.capacity};
  uint32_t *offsets = TSR__NEW_ARRAY(uint32_t, m->texts.count + 1);
  bool ok = offsets != NULL;
  m->out->frames.items = NULL;
  m->out->frames.count = m->out->frames.capacity = 0;
  for (uint32_t i = 0; ok && i < m->texts.count; i++) {
    offsets[i] = (uint32_t)m->out->texts.size;
    tsr__buffer_append(&m->out->texts, m->texts.items[i].data, m->texts.items[i].size_bytes);
    tsr__buffer_append(&m->out->texts, "", 1);
  }
  for (uint32_t i = 0; ok && i < m->stacks.count; i++) {
    uint32_t depth = m->stacks.items[i].size_bytes / (uint32_t)sizeof(uint32_t), frame;
    tsr__sketch_stack stack = {(uint32_t)m->out->frames.count, depth};
    for (uint32_t k = 0; ok && k < depth; k++) {
      memcpy(&frame, m->stacks.items[i].data + k * sizeof frame, sizeof frame);
      assert(frame < known.count);
      tsr__sketch_frame f = known.items[frame];
      f.name = offsets[f.name];
      f.file = offsets[f.file];
      ok = TSR__VECTOR_PUSH(&m->out->frames, f);
    }
    ok = ok && TSR__VECTOR_PUSH(&m->out->stacks, stack);
  }
  TSR__VECTOR_FREE(&known);
  tsr__free(offsets);
  return ok && !m->out->texts.failed;
}

/* ---- Shares ---- */

/* The row of a list with this key, added if it is not there; NULL when out of memory. Valid until the next. */
static tsr__sketch_share *row_of(tsr__map *index_of, tsr__sketch_shares *rows, uint64_t key,
                                 uint32_t stack, uint8_t category) {
  bool is_new;
  uint64_t *index = tsr__map_put(index_of, key, rows->count, &is_new);
  tsr__sketch_share row = {.stack = stack, .category = category};
  if (!index || (is_new && !TSR__VECTOR_PUSH(rows, row))) return NULL;
  return &rows->items[*index];
}

static uint64_t kind_key(uint32_t stack, uint8_t category) {
  return (uint64_t)stack << 8 | category;
}

static bool add_share(maker *m, tsr__map *index_of, tsr__sketch_shares *shares, uint32_t allocation,
                      const tsr__timeline *t, const tsr__categories *categories) {
  uint32_t stack = stack_of(m, tsr__timeline_stack(t, allocation));
  uint8_t category = categories->category[allocation];
  tsr__sketch_share *share = row_of(index_of, shares, kind_key(stack, category), stack, category);
  if (!share || m->is_failed) return false;
  share->bytes = tsr__sum_u64(share->bytes, t->block_bytes.items[allocation]);
  share->count++;
  return true;
}

/* Largest first; equal ones by what they are, which the order of a file does not change. */
static int compare_shares(const void *a, const void *b) {
  const tsr__sketch_share *x = a, *y = b;
  if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
  if (x->category != y->category) return x->category < y->category ? -1 : 1;
  return (x->stack > y->stack) - (x->stack < y->stack);
}

static void sort_shares(tsr__sketch_share *shares, size_t count) {
  tsr__sort(shares, count, sizeof *shares, compare_shares);
}

/* Whether it had been freed by then, and waited for another stream: active, but no longer allocated. */
static bool list_waiting(const tsr__timeline *t, int64_t event, tsr__map *out) {
  bool ok = true;
  for (size_t i = 0; ok && i < t->waits.count; i++) {
    const tsr__wait *w = &t->waits.items[i];
    bool has_begun = w->from == TSR_NONE || (int64_t)w->from <= event;
    bool has_ended = w->until != TSR_NONE && (int64_t)w->until <= event;
    if (has_begun && !has_ended) ok = tsr__map_put(out, w->allocation, 1, NULL) != NULL;
  }
  return ok;
}

/* What a stack holds while its trace is followed. */
typedef struct level {
  uint64_t bytes, count;
  uint64_t of_category[TSR_CATEGORY_COUNT]; /* allocated, in all */
} level;

typedef struct following {
  maker *m;
  const tsr__timeline *t;
  const tsr__categories *categories;
  tsr__map index_of;
  tsr__sketch_shares highs;
  TSR__VECTOR(level) levels; /* by row of highs */
  uint64_t category_bytes[TSR_CATEGORY_COUNT], category_highs[TSR_CATEGORY_COUNT];
} following;

static bool change_level(following *f, uint32_t allocation, bool is_born) {
  uint32_t stack = stack_of(f->m, tsr__timeline_stack(f->t, allocation));
  uint8_t category = f->categories->category[allocation];
  uint8_t known = stack == TSR_NONE ? category : TSR_CATEGORY_COUNT;
  tsr__sketch_share *high =
      row_of(&f->index_of, &f->highs, kind_key(stack, known), stack, category);
  if (!high || f->m->is_failed) return false;
  while (f->levels.count < f->highs.count)
    if (!TSR__VECTOR_PUSH(&f->levels, (level){0})) return false;
  uint64_t bytes = tsr__timeline_requested(f->t, allocation);
  uint64_t *of_category = &f->category_bytes[category];
  *of_category = is_born ? tsr__sum_u64(*of_category, bytes) : tsr__drop_u64(*of_category, bytes);
  if (*of_category > f->category_highs[category]) f->category_highs[category] = *of_category;
  level *at = &f->levels.items[high - f->highs.items];
  at->bytes = is_born ? tsr__sum_u64(at->bytes, bytes) : tsr__drop_u64(at->bytes, bytes);
  at->count = is_born ? at->count + 1 : tsr__drop_u64(at->count, 1);
  if (!is_born) return true;
  at->of_category[category] = tsr__sum_u64(at->of_category[category], bytes);
  if (at->bytes > high->bytes) high->bytes = at->bytes;
  if (at->count > high->count) high->count = at->count;
  return true;
}

/* The highest of each stack: one pass over the trace. */
static bool hold_highest(maker *m, const tsr__timeline *t, const tsr__categories *categories,
                         tsr__sketch_device *out) {
  following f = {.m = m, .t = t, .categories = categories};
  bool ok = true;
  for (uint32_t i = 0; ok && i < t->initial.count; i++) ok = change_level(&f, i, true);
  for (uint64_t event = 0; ok && event < t->events.count; event++) {
    uint32_t allocation = t->allocation_of[event];
    if (allocation == TSR_NONE) continue;
    if (t->birth.items[allocation] == event) ok = change_level(&f, allocation, true);
    if (ok && t->death.items[allocation] == event) ok = change_level(&f, allocation, false);
  }
  for (size_t i = 0; ok && i < f.highs.count; i++)
    for (int c = 0; c < TSR_CATEGORY_COUNT; c++)
      if (f.levels.items[i].of_category[c] >
          f.levels.items[i].of_category[f.highs.items[i].category])
        f.highs.items[i].category = (uint8_t)c;
  sort_shares(f.highs.items, f.highs.count);
  out->highs = f.highs;
  memcpy(out->category_highs, f.category_highs, sizeof out->category_highs);
  tsr__map_release(&f.index_of);
  TSR__VECTOR_FREE(&f.levels);
  return ok;
}

/* What is live at an event, and the bytes of it. */
static int hold_live(maker *m, const tsr__timeline *t, const tsr__categories *categories,
                     int64_t event, tsr__sketch_shares *out, uint64_t *sum, tsr_error *error) {
  tsr__live_set live = {0};
  tsr__map index_of = {0}, waiting = {0};
  int status = tsr__timeline_live(t, event, &live, error);
  bool ok = !status && list_waiting(t, event, &waiting);
  *sum = 0;
  for (size_t i = 0; ok && i < live.count; i++) {
    if (waiting.count && tsr__map_find(&waiting, live.items[i])) continue;
    ok = add_share(m, &index_of, out, live.items[i], t, categories);
    *sum = tsr__sum_u64(*sum, t->block_bytes.items[live.items[i]]);
  }
  sort_shares(out->items, out->count);
  tsr__map_release(&index_of);
  tsr__map_release(&waiting);
  TSR__VECTOR_FREE(&live);
  return status || ok ? status : tsr__fail_memory(error);
}

static int hold_peak(maker *m, const tsr__timeline *t, const tsr__categories *categories,
                     tsr__sketch_device *out, tsr_error *error) {
  uint64_t sum, end_sum;
  int64_t last = (int64_t)t->events.count - 1;
  int status = hold_live(m, t, categories, t->allocated_event, &out->shares, &sum, error);
  if (!status) out->rest_bytes = (int64_t)(t->at_peak.allocated_bytes - sum);
  if (!status && !hold_highest(m, t, categories, out)) status = tsr__fail_memory(error);
  if (!status && t->allocated_event != last)
    status = hold_live(m, t, categories, last, &out->ends, &end_sum, error);
  return status;
}

/* ---- Steps ---- */

/* What was allocated in whole steps but the first two and the last two, and never freed: a leak, if there is much of it. Parameters and
 * the optimizer's state are made before, the last step's gradients after. */
static bool hold_kept(maker *m, const tsr__timeline *t, const tsr__categories *categories,
                      const tsr__cycle *cycle, tsr__sketch_device *out) {
  enum { EARLY = 2, LATE = 2, LEAST = 6 };
  size_t first = 0, end = cycle->steps.count;
  while (first < end && !cycle->steps.items[first].is_whole) first++;
  while (end > first && !cycle->steps.items[end - 1].is_whole) end--;
  if (end - first < LEAST) return true;
  uint32_t from = cycle->steps.items[first + EARLY].first;
  uint32_t until = cycle->steps.items[end - LATE - 1].last;
  tsr__map index_of = {0};
  tsr__sketch_shares shares = {0};
  bool ok = true;
  for (size_t i = t->initial.count; ok && i < t->birth.count && t->birth.items[i] <= until; i++) {
    if (t->birth.items[i] < from || t->death.items[i] != TSR_NONE) continue;
    ok = add_share(m, &index_of, &shares, (uint32_t)i, t, categories);
  }
  tsr__map_release(&index_of);
  sort_shares(shares.items, shares.count);
  out->kept = shares;
  out->kept_steps = end - first - EARLY - LATE;
  return ok;
}

static bool list_steps(const tsr__timeline *t, const tsr__cycle *cycle, tsr__sketch_device *out) {
  size_t whole = 0, skipped = 0;
  for (size_t i = 0; i < cycle->steps.count; i++) whole += cycle->steps.items[i].is_whole;
  out->step_count = cycle->steps.count;
  out->whole_steps = whole;
  for (size_t i = 0; i < cycle->steps.count; i++) {
    const tsr__cycle_step *step = &cycle->steps.items[i];
    if (!step->is_whole || whole - skipped++ > TSR__SKETCH_STEPS) continue;
    tsr__sketch_step kept = {.peak_bytes = 0};
    for (uint64_t k = 0; k < TSR__SKETCH_MOMENTS; k++) {
      uint64_t event = step->first + (step->last - step->first) * k / (TSR__SKETCH_MOMENTS - 1);
      kept.at_us[k] = t->events.time_us[event];
    }
    if (!TSR__VECTOR_PUSH(&out->steps, kept)) return false;
  }
  return true;
}

/* The part of the time that an event is in; by number where events have no times. */
static size_t part_of(const tsr__timeline *t, const tsr__sketch_device *out, uint64_t event) {
  uint64_t at = event, whole = t->events.count;
  if (out->first_us != TSR_TIME_NONE && out->last_us > out->first_us) {
    int64_t time = t->events.time_us[event];
    if (time == TSR_TIME_NONE || time < out->first_us) time = out->first_us;
    if (time > out->last_us) time = out->last_us;
    at = (uint64_t)time - (uint64_t)out->first_us;
    whole = (uint64_t)out->last_us - (uint64_t)out->first_us + 1;
  }
  size_t part = (size_t)((double)at / (double)whole * TSR__SKETCH_PARTS);
  return part < TSR__SKETCH_PARTS ? part : TSR__SKETCH_PARTS - 1;
}

/* One sweep: the course of the whole trace, and the peaks of the steps that are kept. */
static int follow(const tsr__timeline *t, const tsr__cycle *cycle, tsr__sketch_device *out,
                  tsr_error *error) {
  tsr__sweep sweep;
  int status = tsr__sweep_begin(t, &sweep, error);
  if (status) return status;
  uint64_t before = sweep.totals.allocated_bytes;
  size_t step = 0, whole = 0, skipped = out->whole_steps - out->steps.count, part = 0;
  out->parts[0] = before;
  while (tsr__sweep_next(&sweep)) {
    uint64_t bytes = sweep.totals.allocated_bytes, event = (uint64_t)sweep.event;
    size_t here = part_of(t, out, event);
    while (part < here) out->parts[++part] = before; /* a part begins with what there is */
    if (bytes > out->parts[here]) out->parts[here] = bytes;
    before = bytes;
    if (step == cycle->steps.count || event < cycle->steps.items[step].first) continue;
    const tsr__cycle_step *at = &cycle->steps.items[step];
    if (at->is_whole && whole >= skipped) {
      tsr__sketch_step *kept = &out->steps.items[whole - skipped];
      if (bytes > kept->peak_bytes) kept->peak_bytes = bytes;
      kept->end_bytes = bytes;
    }
    if (event != at->last) continue;
    whole += at->is_whole;
    step++;
  }
  while (++part < TSR__SKETCH_PARTS) out->parts[part] = before;
  tsr__sweep_release(&sweep);
  return 0;
}

/* ---- A device ---- */

static void note_stop(maker *m, const tsr__timeline *t, const tsr__cycle *cycle,
                      tsr__sketch_device *out) {
  const tsr__failure *stop = tsr__cycle_stop(cycle);
  out->stop = (tsr__sketch_stop){.event = -1, .time_us = TSR_TIME_NONE, .stack = TSR_NONE};
  if (!stop) return;
  assert(stop->event < t->events.count);
  out->stop = (tsr__sketch_stop){.event = stop->event,
                                 .time_us = t->events.time_us[stop->event],
                                 .request_bytes = t->events.size[stop->event],
                                 .free_bytes = t->events.addr[stop->event],
                                 .stack = stack_of(m, t->events.stack[stop->event])};
}

static int make_device(maker *m, uint32_t device, tsr__sketch_device *out, tsr_error *error) {
  const tsr__timeline *t;
  const tsr__categories *categories;
  const tsr__cycle *cycle;
  int status = tsr__study_timeline(m->study, device, &t, error);
  if (!status) status = tsr__study_categories(m->study, device, &categories, error);
  if (!status) status = tsr__study_cycle(m->study, device, &cycle, error);
  if (status) return status;
  uint64_t count = t->events.count;
  out->device = device;
  out->event_count = count;
  out->first_us = count ? t->events.time_us[0] : TSR_TIME_NONE;
  out->last_us = count ? t->events.time_us[count - 1] : TSR_TIME_NONE;
  if (out->first_us == TSR_TIME_NONE || out->last_us == TSR_TIME_NONE)
    out->first_us = out->last_us = TSR_TIME_NONE;
  out->peak_event = t->allocated_event;
  out->peak_us = t->allocated_event >= 0 ? t->events.time_us[t->allocated_event] : TSR_TIME_NONE;
  out->peak_bytes = t->maxima.allocated_bytes;
  out->peak_reserved_bytes = t->maxima.reserved_bytes;
  out->end_bytes = t->end.allocated_bytes;
  out->end_reserved_bytes = t->end.reserved_bytes;
  tsr_card card = tsr_snapshot_card(m->snapshot, device);
  out->limit_bytes = tsr__drop_u64(card.total_bytes, card.outside_bytes);
  out->known_peak_bytes = card.peak_bytes;
  note_stop(m, t, cycle, out);
  status = hold_peak(m, t, categories, out, error);
  if (!status && (!list_steps(t, cycle, out) || !hold_kept(m, t, categories, cycle, out)))
    status = tsr__fail_memory(error);
  return status ? status : follow(t, cycle, out, error);
}

static int make_devices(maker *m, tsr_error *error) {
  size_t count;
  const uint32_t *devices = tsr_snapshot_gpus(m->snapshot, &count);
  int status = 0;
  if (!count) { /* a trace of a program that ran on the CPU */
    devices = tsr_snapshot_devices(m->snapshot, &count);
    count = count && devices[0] == TSR_DEVICE_CPU;
  }
  if (count > TSR__SKETCH_DEVICES) count = TSR__SKETCH_DEVICES;
  for (size_t i = 0; !status && i < count; i++) {
    if (!TSR__VECTOR_PUSH(&m->out->devices, (tsr__sketch_device){0}))
      return tsr__fail_memory(error);
    status = make_device(m, devices[i], &m->out->devices.items[i], error);
  }
  return status;
}

int tsr__sketch_make(tsr_study *study, tsr__sketch *out, tsr_error *error) {
  const tsr_snapshot *snapshot = tsr_study_snapshot(study);
  *out = (tsr__sketch){.input_bytes = tsr_snapshot_input_bytes(snapshot),
                       .place = tsr_snapshot_rank(snapshot),
                       .taken_us = tsr_snapshot_taken_us(snapshot),
                       .started_us = tsr_snapshot_started_us(snapshot),
                       .is_partial = tsr__snapshot_loss(snapshot) != TSR__LOSS_NONE};
  maker m = {.study = study,
             .snapshot = snapshot,
             .out = out,
             .ranks = tsr__frame_ranks(snapshot),
             .stack_of = TSR__NEW_ARRAY(uint32_t, tsr_snapshot_stack_count(snapshot) + 1)};
  tsr__intern_init(&m.texts);
  tsr__intern_init(&m.frames);
  tsr__intern_init(&m.stacks);
  int status = m.ranks && m.stack_of ? make_devices(&m, error) : tsr__fail_memory(error);
  if (!status && (m.is_failed || !lay_stacks(&m))) status = tsr__fail_memory(error);
  tsr__intern_release(&m.texts);
  tsr__intern_release(&m.frames);
  tsr__intern_release(&m.stacks);
  tsr__free(m.ranks);
  tsr__free(m.stack_of);
  return status;
}
