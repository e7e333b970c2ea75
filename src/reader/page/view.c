/* view.c - the columns from which a trace is drawn. See tessera/unstable/view.h.
 *
 * Allocations become rows in the order of the timeline; frees that wait for a stream are filled in
 * afterwards. Steps and phases use the same timeline, so the trace is replayed once. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "attribution/cycle.h"
#include "base/intern.h"
#include "page/view_findings.h"
#include "page/view_groups.h"
#include "page/view_lanes.h"
#include "questions/diff/phases.h"
#include "questions/shared/query.h"
#include "questions/shared/shares.h"

/* Shared by all devices of a snapshot. */
typedef struct viewer {
  tsr_study *study;
  tsr__view_shared shared;
} viewer;

/* Whether the event before a death requests that free. */
static bool is_requested_before(const tsr__timeline *t, uint32_t allocation, uint32_t death) {
  return death != TSR_NONE && death && t->events.action[death - 1] == TSR_ACTION_FREE_REQUESTED &&
         t->allocation_of[death - 1] == allocation;
}

static bool allocate_columns(tsr_view_device *out, size_t count) {
  out->born = tsr__realloc(NULL, count, sizeof *out->born);
  out->died = tsr__realloc(NULL, count, sizeof *out->died);
  out->released = tsr__realloc(NULL, count, sizeof *out->released);
  out->address = tsr__realloc(NULL, count, sizeof *out->address);
  out->requested_bytes = tsr__realloc(NULL, count, sizeof *out->requested_bytes);
  out->block_bytes = tsr__realloc(NULL, count, sizeof *out->block_bytes);
  out->stack = tsr__realloc(NULL, count, sizeof *out->stack);
  return out->born && out->died && out->released && out->address && out->requested_bytes &&
         out->block_bytes && out->stack;
}

static bool fill_columns(const tsr__timeline *t, tsr_view_device *out) {
  out->allocation_count = t->birth.count;
  if (!allocate_columns(out, t->birth.count)) return false;
  for (uint32_t a = 0; a < t->birth.count; a++) {
    uint32_t stack = tsr__timeline_stack(t, a);
    uint32_t birth = t->birth.items[a], death = t->death.items[a];
    out->born[a] = birth == TSR_NONE ? 0 : birth + 1;
    out->died[a] = death == TSR_NONE ? (uint32_t)t->events.count + 1 : death + 1;
    out->released[a] = out->died[a] - is_requested_before(t, a, death);
    out->address[a] = tsr__timeline_address(t, a);
    out->requested_bytes[a] = tsr__timeline_requested(t, a);
    out->block_bytes[a] = t->block_bytes.items[a];
    out->stack[a] = tsr_snapshot_stack(t->snapshot, stack).depth ? stack : TSR_NONE;
    assert(out->born[a] < out->died[a] && (!a || out->born[a - 1] <= out->born[a]));
  }
  for (size_t i = 0; i < t->waits.count; i++) {
    const tsr__wait *wait = &t->waits.items[i];
    out->released[wait->allocation] = wait->from == TSR_NONE ? 0 : wait->from + 1;
    assert(out->released[wait->allocation] <= out->died[wait->allocation]);
  }
  return true;
}

/* ---- what the program called it ---- */

/* Of an allocation with more names the first are shown. */
enum { NAMES_SHOWN = 4 };

static void join_names(const tsr__names *names, uint32_t a, size_t count, tsr__buffer *out) {
  out->size = 0;
  for (size_t i = 0; i < count && i < NAMES_SHOWN; i++) {
    tsr__given_name name = tsr__names_at(names, a, i);
    if (i) tsr__buffer_text(out, "; ");
    tsr__buffer_append(out, name.text.data, name.text.size_bytes);
  }
  if (count > NAMES_SHOWN) tsr__buffer_printf(out, "; and %zu more", count - NAMES_SHOWN);
}

/* The texts outlive the study, as the view does: the table that makes them distinct owns them. */
static bool list_texts(tsr__intern *table, tsr_view_device *out) {
  out->texts = TSR__NEW_ARRAY(tsr_text, table->count);
  for (uint32_t i = 0; out->texts && i < table->count; i++)
    out->texts[i] = (tsr_text){(const char *)table->items[i].data, table->items[i].size_bytes};
  out->text_count = out->texts ? table->count : 0;
  return out->texts != NULL;
}

static bool fill_names(const tsr__names *names, tsr_view_device *out) {
  tsr__buffer text = {0};
  if (!tsr__names_any(names)) return true;
  tsr__intern *table = out->said_memory = TSR__NEW(tsr__intern);
  if (!table) return false;
  tsr__intern_init(table);
  out->said = tsr__realloc(NULL, out->allocation_count, sizeof *out->said);
  bool ok = out->said != NULL;
  for (uint32_t a = 0; ok && a < out->allocation_count; a++) {
    size_t count = tsr__names_count(names, a);
    out->said[a] = TSR_NONE;
    if (!count) continue;
    join_names(names, a, count, &text);
    out->said[a] =
        text.failed ? TSR__INTERN_FULL : tsr__intern_put(table, text.data, text.size, NULL);
    ok = !text.failed && out->said[a] != TSR__INTERN_FULL;
  }
  tsr__buffer_release(&text);
  return ok && list_texts(table, out);
}

/* ---- a device ---- */

/* Steps, phases and what each allocation is for. */
static int find_meaning(const viewer *v, const tsr__timeline *t, tsr_view_device *out,
                        tsr_error *error) {
  const tsr__phases *phases;
  const tsr__cycle *cycle;
  const tsr__categories *categories;
  const tsr__names *names;
  int status = tsr__study_phases(v->study, out->device, &phases, error);
  if (!status) status = tsr__study_cycle(v->study, out->device, &cycle, error);
  if (!status && !tsr__view_ranges(t, phases, cycle, out)) status = tsr__fail_memory(error);
  if (!status) status = tsr__study_categories(v->study, out->device, &categories, error);
  if (!status) status = tsr__study_names(v->study, out->device, &names, error);
  if (!status && !fill_names(names, out)) status = tsr__fail_memory(error);
  return status ? status : tsr__view_groupings(t, &v->shared, categories, out, error);
}

/* What a difference of pages compares; see compared.c. */
static int find_phases(const viewer *v, const tsr__timeline *t, tsr_view_device *out,
                       tsr_error *error) {
  tsr_diff_side side = {.device = out->device, .peak = {.event = t->allocated_event}};
  int status = tsr__diff_phases(v->study, &side, error);
  if (status) return status;
  out->phase = side.phase;
  memcpy(out->in_phase, side.in_phase, sizeof out->in_phase);
  return 0;
}

static int fill(const viewer *v, const tsr__timeline *t, tsr_view_device *out, tsr_error *error) {
  out->event_count = t->events.count;
  out->has_history = tsr__has_history(&t->events);
  out->peak = (uint32_t)(t->allocated_event + 1);
  out->peak_totals = t->at_peak;
  out->maxima = t->maxima;
  if (!tsr__view_times(t, out) || !tsr__view_spans(t, out) || !tsr__view_marks(t, out) ||
      !fill_columns(t, out))
    return tsr__fail_memory(error);
  int status = find_meaning(v, t, out, error);
  if (!status) status = find_phases(v, t, out, error);
  if (!status) status = tsr__view_findings(v->study, out, error);
  if (!status && !(out->warnings = tsr__copy_warnings(t, &out->warning_count)))
    status = tsr__fail_memory(error);
  return status;
}

static int describe(const viewer *v, tsr_view_device *out, tsr_error *error) {
  const tsr__timeline *timeline;
  int status = tsr__study_timeline(v->study, out->device, &timeline, error);
  return status ? status : fill(v, timeline, out, error);
}

int tsr_view_compute(tsr_study *study, const tsr_view_options *options, const tsr_query *query,
                     tsr_view **out, tsr_error *error) {
  const tsr_snapshot *snapshot = tsr_study_snapshot(study);
  const uint32_t *devices;
  size_t count;
  viewer v = {.study = study};
  int status = tsr__query_devices(snapshot, query, &devices, &count, error);
  if (status) return status;
  tsr_view *view = TSR__NEW(tsr_view);
  if (!view) return tsr__fail_memory(error);
  view->devices = TSR__NEW_ARRAY(tsr_view_device, count);
  unsigned needs = TSR__NEED_CATEGORIES | TSR__NEED_CYCLE;
  if (!view->devices) status = tsr__fail_memory(error);
  if (!status) status = tsr__study_prepare(study, devices, count, needs, error);
  if (!status) status = tsr__view_shared_init(&v.shared, study, options, error);
  while (!status && view->device_count < count) {
    tsr_view_device *device = &view->devices[view->device_count];
    device->device = devices[view->device_count++];
    status = describe(&v, device, error);
  }
  tsr__view_shared_release(&v.shared);
  if (status)
    tsr_view_free(view);
  else
    *out = view;
  return status;
}

static void release_device(tsr_view_device *device) {
  for (size_t g = 0; g < device->grouping_count; g++)
    tsr__view_grouping_release(&device->groupings[g]);
  tsr__view_findings_release(device);
  if (device->said_memory) tsr__intern_release(device->said_memory);
  void *columns[] = {device->born,
                     device->died,
                     device->released,
                     device->address,
                     device->requested_bytes,
                     device->block_bytes,
                     device->stack,
                     device->said,
                     device->texts,
                     device->said_memory,
                     device->times_us,
                     device->spans,
                     device->pool_marks,
                     device->ranges,
                     device->marks,
                     device->warnings};
  for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) tsr__free(columns[i]);
}

void tsr_view_free(tsr_view *view) {
  if (!view) return;
  for (size_t i = 0; i < view->device_count; i++) release_device(&view->devices[i]);
  tsr__free(view->devices);
  tsr__free(view);
}
