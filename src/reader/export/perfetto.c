/* perfetto.c - allocations as trace events in JSON, for Perfetto.
 *
 * What a device did is one process with few tracks, which have names and an order:
 *
 *   GPU 0 memory
 *     memory allocated_bytes, reserved_bytes        counters
 *     requested by category activation, ...         counters
 *     annotations    [ step 1              ] [ step 2       ]   what the program marked
 *     phases         [ forward ][ backward ][ optimizer ]
 *     activation     [ model.py:382 forward            ]        the largest allocations by category
 *                      [ model.py:390 softmax    ]
 *     activation 2         [ model.py:401 forward                     ]
 *     parameter      ...
 *
 * Perfetto draws everything it gets, so the counters are thinned out. Events are divided into
 * runs of equal length; for each run two states are written in their order, the one with the least and
 * the one with the most allocated. So no peak is lost, whatever the length of the trace.
 *
 * Slices of a track must nest: of two that overlap, one has to contain the other. Memory of a forward
 * pass nests by itself, because the backward pass frees it in reverse. So a category has few tracks, and
 * each allocation, the largest first, goes to the first of them where it crosses nothing and is not
 * nested too deep to read; one that is live at the end, to the first track alone. What fits in none is in
 * the counters. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

#include "base/memory.h"
#include "base/sort.h"
#include "base/vector.h"
#include "emit/emitter.h"
#include "export/lives.h"

/* TRIED bounds the search for slices, which is quadratic in it. */
enum { MOST_RUNS = 25000, MOST_TRIED = 2000, DEEPEST = 8, MOST_PHASES = 20000, LINE_BYTES = 64 };

/* The tracks of a device, in the order in which they are shown. Threads are numbered from 1, and
 * differ between devices, because Perfetto merges threads of one number. */
enum { TRACK_ANNOTATIONS, TRACK_PHASES, TRACK_CATEGORY };
enum { LANES = 3, TRACKS = TRACK_CATEGORY + LANES * TSR_CATEGORY_COUNT };

typedef struct state {
  int64_t event;
  tsr_totals totals;
  uint64_t categories[TSR_CATEGORY_COUNT];
} state;

typedef struct timeline_writer {
  tsr__emitter *emitter;
  tsr__stack_printer *printer;
  const tsr_lives *lives;
  size_t place; /* of the device in `lives` */
  tsr_events events;
  uint32_t device;
  uint32_t process; /* that stands for it: pinned host memory's is after the GPUs' */
  tsr__shown *shown;
  uint64_t run_length;
  bool has_category[TSR_CATEGORY_COUNT]; /* it holds memory at some time */
  state now, least, most;                /* of the run */
  bool has_run;
} timeline_writer;

/* Times of a broken file may go backwards, and further apart than a number holds. */
static int64_t duration(int64_t begin, int64_t end) {
  if (end <= begin) return 0;
  uint64_t length = (uint64_t)end - (uint64_t)begin;
  return length > INT64_MAX ? INT64_MAX : (int64_t)length;
}

/* Time of an event in microseconds. The state before the first event has the first event's time; events
 * without a time are a microsecond apart. */
static int64_t clock_of(const timeline_writer *w, int64_t event) {
  if (!w->events.count) return 0;
  if (event < 0) event = 0;
  if (event >= (int64_t)w->events.count) event = (int64_t)w->events.count - 1;
  int64_t time = w->events.time_us[event];
  return time == TSR_TIME_NONE ? event : time;
}

static uint64_t thread_of(const timeline_writer *w, unsigned track) {
  assert(track < TRACKS);
  return (uint64_t)w->process * TRACKS + track + 1;
}

/* The text in the emitter's scratch, which is emptied by its use. */
static void emit_scratch(tsr__emitter *emitter, const char *key) {
  tsr__buffer *scratch = &emitter->scratch;
  tsr__emit_field(emitter, key, NULL, tsr__text((tsr_text){scratch->data, scratch->size}));
  scratch->size = 0;
}

static void begin_event(timeline_writer *w, const char *phase, tsr__cell name, int64_t time_us) {
  tsr__emit_inline_object(w->emitter, NULL);
  tsr__emit_field(w->emitter, "ph", NULL, tsr__string(phase));
  tsr__emit_field(w->emitter, "name", NULL, name);
  tsr__emit_field(w->emitter, "pid", NULL, tsr__count(w->process));
  tsr__emit_field(w->emitter, "ts", NULL, tsr__index(time_us));
}

/* ---- names and order of tracks ---- */

/* Metadata of the process, or of the thread `track`. */
static void begin_metadata(timeline_writer *w, const char *name, int track) {
  tsr__emit_inline_object(w->emitter, NULL);
  tsr__emit_field(w->emitter, "ph", NULL, tsr__string("M"));
  tsr__emit_field(w->emitter, "name", NULL, tsr__string(name));
  tsr__emit_field(w->emitter, "pid", NULL, tsr__count(w->process));
  if (track >= 0)
    tsr__emit_field(w->emitter, "tid", NULL, tsr__count(thread_of(w, (unsigned)track)));
  tsr__emit_inline_object(w->emitter, "args");
}

static void end_metadata(timeline_writer *w) {
  tsr__emit_end(w->emitter);
  tsr__emit_end(w->emitter);
}

static void name_process(timeline_writer *w) {
  begin_metadata(w, "process_name", -1);
  if (w->device == TSR_DEVICE_HOST)
    tsr__buffer_text(&w->emitter->scratch, "Pinned host memory");
  else if (w->device == TSR_DEVICE_CPU)
    tsr__buffer_text(&w->emitter->scratch, "CPU memory");
  else
    tsr__buffer_printf(&w->emitter->scratch, "GPU %" PRIu32 " memory", w->device);
  emit_scratch(w->emitter, "name");
  end_metadata(w);
  begin_metadata(w, "process_sort_index", -1);
  tsr__emit_field(w->emitter, "sort_index", NULL, tsr__count(w->process));
  end_metadata(w);
}

static void name_track(timeline_writer *w, unsigned track, const char *name) {
  begin_metadata(w, "thread_name", (int)track);
  tsr__emit_field(w->emitter, "name", NULL, tsr__string(name));
  end_metadata(w);
  begin_metadata(w, "thread_sort_index", (int)track);
  tsr__emit_field(w->emitter, "sort_index", NULL, tsr__count(track));
  end_metadata(w);
}

/* ---- counters ---- */

static void emit_state(timeline_writer *w, const state *s) {
  begin_event(w, "C", tsr__string("memory"), clock_of(w, s->event));
  tsr__emit_inline_object(w->emitter, "args");
  tsr__emit_field(w->emitter, "allocated_bytes", NULL, tsr__bytes(s->totals.allocated_bytes));
  tsr__emit_field(w->emitter, "reserved_bytes", NULL, tsr__bytes(s->totals.reserved_bytes));
  tsr__emit_end(w->emitter);
  tsr__emit_end(w->emitter);
  begin_event(w, "C", tsr__string("requested by category"), clock_of(w, s->event));
  tsr__emit_inline_object(w->emitter, "args");
  for (int i = 0; i < TSR_CATEGORY_COUNT; i++)
    if (w->has_category[i])
      tsr__emit_field(w->emitter, tsr_category_name((tsr_category)i), NULL,
                      tsr__bytes(s->categories[i]));
  tsr__emit_end(w->emitter);
  tsr__emit_end(w->emitter);
}

static void end_run(timeline_writer *w) {
  if (!w->has_run) return;
  assert(w->least.totals.allocated_bytes <= w->most.totals.allocated_bytes);
  bool is_least_first = w->least.event < w->most.event;
  emit_state(w, is_least_first ? &w->least : &w->most);
  if (w->least.event != w->most.event) emit_state(w, is_least_first ? &w->most : &w->least);
  w->has_run = false;
}

static int take_turn(void *context, const tsr_turn *turn) {
  timeline_writer *w = context;
  if (turn->event >= 0 && (uint64_t)turn->event % w->run_length == 0) end_run(w);
  w->now.event = turn->event;
  w->now.totals = turn->totals;
  if (turn->born != TSR_NONE) {
    tsr_life life = tsr_lives_at(w->lives, w->place, turn->born);
    w->now.categories[life.category] += life.requested_bytes;
  }
  if (turn->died != TSR_NONE) {
    tsr_life life = tsr_lives_at(w->lives, w->place, turn->died);
    w->now.categories[life.category] -= life.requested_bytes;
  }
  uint64_t allocated = turn->totals.allocated_bytes;
  if (!w->has_run || allocated < w->least.totals.allocated_bytes) w->least = w->now;
  if (!w->has_run || allocated > w->most.totals.allocated_bytes) w->most = w->now;
  w->has_run = true;
  return 0;
}

static int emit_counters(timeline_writer *w, tsr_error *error) {
  w->run_length = w->events.count / MOST_RUNS + 1;
  for (size_t i = 0; i < tsr_lives_count(w->lives, w->place); i++) {
    tsr_life life = tsr_lives_at(w->lives, w->place, i);
    w->has_category[life.category] = true;
    if (life.birth < 0) w->now.categories[life.category] += life.requested_bytes;
  }
  int status = tsr_lives_walk(w->lives, w->place, take_turn, w, error);
  end_run(w);
  return status;
}

/* ---- what the program did ---- */

static void emit_range(timeline_writer *w, unsigned track, const char *name, int64_t from,
                       int64_t until) {
  begin_event(w, "X", tsr__string(name), from);
  tsr__emit_field(w->emitter, "dur", NULL, tsr__index(duration(from, until)));
  tsr__emit_field(w->emitter, "tid", NULL, tsr__count(thread_of(w, track)));
  tsr__emit_end(w->emitter);
}

/* Consecutive allocations of one phase; memory from before the trace has none. */
static void emit_phases(timeline_writer *w) {
  tsr_phase phase = TSR_PHASE_UNKNOWN;
  int64_t since = 0, last = clock_of(w, (int64_t)w->events.count);
  size_t emitted = 0;
  for (size_t i = 0; i < tsr_lives_count(w->lives, w->place) && emitted < MOST_PHASES; i++) {
    tsr_life life = tsr_lives_at(w->lives, w->place, i);
    if (life.birth < 0 || life.phase == phase) continue;
    int64_t now = clock_of(w, life.birth);
    if (phase != TSR_PHASE_UNKNOWN) {
      if (!emitted++) name_track(w, TRACK_PHASES, "phases");
      emit_range(w, TRACK_PHASES, tsr_phase_name(phase), since, now);
    }
    phase = life.phase;
    since = now;
  }
  if (phase == TSR_PHASE_UNKNOWN || emitted == MOST_PHASES) return;
  if (!emitted) name_track(w, TRACK_PHASES, "phases");
  emit_range(w, TRACK_PHASES, tsr_phase_name(phase), since, last);
}

/* Both ends of each range that the program marked; Perfetto matches them, as the calls nested. */
static void emit_annotations(timeline_writer *w) {
  size_t count, devices;
  const tsr_snapshot *snapshot = w->printer->snapshot;
  const tsr_annotation *annotations = tsr_snapshot_annotations(snapshot, &count);
  (void)tsr_snapshot_devices(snapshot, &devices);
  bool is_named = false;
  for (size_t i = 0; i < count; i++) {
    const tsr_annotation *a = &annotations[i];
    bool is_ours = devices == 1 || a->device == w->device;
    if (!is_ours || a->time_us == TSR_TIME_NONE || a->is_start == a->is_end) continue;
    if (!is_named) name_track(w, TRACK_ANNOTATIONS, "annotations");
    is_named = true;
    begin_event(w, a->is_start ? "B" : "E", tsr__text(tsr_snapshot_string(snapshot, a->name)),
                a->time_us);
    tsr__emit_field(w->emitter, "tid", NULL, tsr__count(thread_of(w, TRACK_ANNOTATIONS)));
    tsr__emit_end(w->emitter);
  }
}

/* Requests that failed, across all tracks of the device. */
static void emit_failures(timeline_writer *w) {
  for (uint64_t i = 0; i < w->events.count; i++) {
    if (w->events.action[i] != TSR_ACTION_OOM) continue;
    begin_event(w, "i", tsr__string("out of memory"), clock_of(w, (int64_t)i));
    tsr__emit_field(w->emitter, "s", NULL, tsr__string("p"));
    tsr__emit_inline_object(w->emitter, "args");
    tsr__emit_field(w->emitter, "requested_bytes", NULL, tsr__bytes(w->events.size[i]));
    tsr__emit_end(w->emitter);
    tsr__emit_end(w->emitter);
  }
}

/* ---- allocations ---- */

typedef struct slice {
  uint64_t bytes;
  size_t index;        /* of the allocation */
  int64_t from, until; /* until >= from */
  unsigned depth;      /* slices of the track that contain it */
} slice;

typedef TSR__VECTOR(slice) slices;

/* Largest first; of equal ones the one allocated first. */
static int compare_sizes(const void *a, const void *b) {
  const slice *x = a, *y = b;
  if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
  return (x->index > y->index) - (x->index < y->index);
}

/* In the order in which slices of a track are opened: an outer one before those it contains. */
static int compare_openings(const void *a, const void *b) {
  const slice *x = a, *y = b;
  if (x->from != y->from) return x->from < y->from ? -1 : 1;
  if (x->until != y->until) return x->until > y->until ? -1 : 1;
  return (x->index > y->index) - (x->index < y->index);
}

static bool contains(const slice *outer, const slice *inner) {
  return outer->from <= inner->from && inner->until <= outer->until;
}

typedef enum fit { FITS, FITS_NOT, NO_MEMORY } fit;

/* Add a slice to the track unless it would cross another or be too deep. */
static fit add_slice(slices *track, slice added) {
  unsigned deepest = 0; /* of the slices in it, with it around them */
  assert(added.from < added.until && added.depth == 0);
  for (size_t i = 0; i < track->count; i++) {
    const slice *other = &track->items[i];
    bool is_apart = added.until <= other->from || other->until <= added.from;
    if (contains(other, &added)) {
      if (++added.depth == DEEPEST) return FITS_NOT;
    } else if (contains(&added, other)) {
      if (other->depth + 1 > deepest) deepest = other->depth + 1;
    } else if (!is_apart) {
      return FITS_NOT;
    }
  }
  if (deepest >= DEEPEST) return FITS_NOT;
  for (size_t i = 0; i < track->count; i++)
    if (contains(&added, &track->items[i]) && !contains(&track->items[i], &added))
      track->items[i].depth++;
  return TSR__VECTOR_PUSH(track, added) ? FITS : NO_MEMORY;
}

/* All allocations of a category that live for some time, largest first. */
static bool find_slices(const timeline_writer *w, tsr_category category, slices *found) {
  bool ok = true;
  for (size_t i = 0; ok && i < tsr_lives_count(w->lives, w->place); i++) {
    tsr_life life = tsr_lives_at(w->lives, w->place, i);
    if (life.category != category) continue;
    slice one = {.bytes = life.requested_bytes,
                 .index = i,
                 .from = clock_of(w, life.birth),
                 .until = clock_of(w, life.death)};
    if (one.until > one.from) ok = TSR__VECTOR_PUSH(found, one);
  }
  assert(found->count <= tsr_lives_count(w->lives, w->place));
  tsr__sort(found->items, found->count, sizeof *found->items, compare_sizes);
  return ok;
}

static void emit_slice(timeline_writer *w, unsigned track, const slice *shown) {
  tsr_life life = tsr_lives_at(w->lives, w->place, shown->index);
  tsr__buffer *scratch = &w->emitter->scratch;
  tsr__stack_append_name(w->printer, TSR__LABEL_STACK, life.stack);
  begin_event(w, "X", tsr__text((tsr_text){scratch->data, scratch->size}), shown->from);
  scratch->size = 0;
  tsr__emit_field(w->emitter, "dur", NULL, tsr__index(duration(shown->from, shown->until)));
  tsr__emit_field(w->emitter, "tid", NULL, tsr__count(thread_of(w, track)));
  tsr__emit_inline_object(w->emitter, "args");
  tsr__emit_field(w->emitter, "requested_bytes", NULL, tsr__bytes(life.requested_bytes));
  tsr__emit_field(w->emitter, "category", NULL, tsr__string(tsr_category_name(life.category)));
  tsr__lives_append_names(w->lives, w->place, shown->index, scratch);
  if (scratch->size) emit_scratch(w->emitter, "names");
  tsr__emit_field(w->emitter, "address", NULL, tsr__address(life.address));
  tsr__emit_field(w->emitter, "birth_event", NULL, tsr__index(life.birth));
  tsr__emit_field(w->emitter, "death_event", NULL, tsr__index(life.death));
  scratch->failed |= !tsr__shown_take(w->shown, life.stack);
  if (!scratch->failed) tsr__shown_append(w->shown, scratch);
  emit_scratch(w->emitter, "stack");
  tsr__emit_end(w->emitter);
  tsr__emit_end(w->emitter);
}

static void emit_lane(timeline_writer *w, tsr_category category, unsigned lane, slices *track) {
  char name[LINE_BYTES];
  unsigned number = TRACK_CATEGORY + (unsigned)category * LANES + lane;
  if (!track->count) return;
  (void)snprintf(name, sizeof name, lane ? "%s %u" : "%s", tsr_category_name(category), lane + 1);
  name_track(w, number, name);
  tsr__sort(track->items, track->count, sizeof *track->items, compare_openings);
  for (size_t i = 0; i < track->count; i++) {
    const slice *one = &track->items[i];
    assert(one->depth < DEEPEST && (!i || one[-1].until <= one->from || contains(&one[-1], one) ||
                                    one->depth <= one[-1].depth));
    emit_slice(w, number, one);
  }
}

/* What is live at the end would fill every track from side to side. */
static bool is_freed(const timeline_writer *w, const slice *of) {
  return tsr_lives_at(w->lives, w->place, of->index).death < (int64_t)w->events.count;
}

/* The tracks of a category. */
static bool emit_category(timeline_writer *w, tsr_category category) {
  slices found = {0}, lanes[LANES] = {0};
  bool ok = find_slices(w, category, &found);
  size_t tried = found.count < MOST_TRIED ? found.count : MOST_TRIED;
  for (size_t i = 0; ok && i < tried; i++) {
    fit fitted = FITS_NOT;
    unsigned most = is_freed(w, &found.items[i]) ? LANES : 1;
    for (unsigned k = 0; k < most && fitted == FITS_NOT; k++)
      fitted = add_slice(&lanes[k], found.items[i]);
    ok = fitted != NO_MEMORY;
  }
  for (unsigned k = 0; k < LANES; k++) {
    if (ok) emit_lane(w, category, k, &lanes[k]);
    TSR__VECTOR_FREE(&lanes[k]);
  }
  TSR__VECTOR_FREE(&found);
  return ok;
}

int tsr__perfetto_emit(tsr__stack_printer *printer, tsr__shown *shown, const tsr_lives *lives,
                       size_t place, tsr_error *error) {
  uint32_t device = tsr_lives_device(lives, place);
  size_t gpu_count;
  const uint32_t *gpus = tsr_snapshot_gpus(printer->snapshot, &gpu_count);
  uint32_t after = gpu_count ? gpus[gpu_count - 1] + 1 : 0;
  timeline_writer w = {.process = device == TSR_DEVICE_HOST  ? after
                                  : device == TSR_DEVICE_CPU ? after + 1
                                                             : device,
                       .emitter = printer->emitter,
                       .printer = printer,
                       .lives = lives,
                       .place = place,
                       .events = tsr_snapshot_events(printer->snapshot, device),
                       .device = device,
                       .shown = shown};
  bool ok = true;
  name_process(&w);
  int status = emit_counters(&w, error);
  emit_failures(&w);
  emit_annotations(&w);
  emit_phases(&w);
  for (int i = 0; ok && i < TSR_CATEGORY_COUNT; i++)
    if (w.has_category[i]) ok = emit_category(&w, (tsr_category)i);
  return status ? status : ok ? 0 : tsr__fail_memory(error);
}
