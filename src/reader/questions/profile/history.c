/* history.c - see history.h.
 *
 * A moment's cells are rows of one table. Thousands of bands may lie upon each other, and most are
 * thinner than any eye or screen distinguishes: neighbours that are thinner than `thin_bytes` are
 * put together until they are not, so that a moment has at most some 2 * peak / thin_bytes cells.
 * When the table outgrows CELLS_MOST all the same, thin_bytes doubles and the table is gone through
 * once more; so what a history takes does not depend on the trace.
 *
 * A band gets its own row when a cell first names it (`mark`), and loses it when no cell does any
 * more. */
#include "questions/profile/history.h"

#include <assert.h>
#include <stdlib.h>

#include "base/checked.h"

enum { CELLS_MOST = 120000, THIN_SHARE = 2048 };

/* ---- which moments ---- */

bool tsr__picker_init(tsr__picker *picker, uint64_t first_event, uint64_t event_count,
                      size_t moment_count) {
  *picker = (tsr__picker){.first_event = first_event, .event_count = event_count};
  size_t room = moment_count > 4 ? (moment_count - 2) / 2 : 1;
  if (event_count <= moment_count) room = (size_t)event_count;
  picker->stretch_count = room;
  picker->stretches = TSR__NEW_ARRAY(tsr__stretch, room);
  picker->events = TSR__NEW_ARRAY(int64_t, 2 * room + 2);
  if (!picker->stretches || !picker->events) return false;
  for (size_t i = 0; i < room; i++)
    picker->stretches[i] = (tsr__stretch){.least_event = -1, .most_event = -1};
  return true;
}

/* a * b / c for b < c, without overflow: numbers of events and of moments are far below 2^32. */
static size_t stretch_of(const tsr__picker *picker, uint64_t offset) {
  assert(offset < picker->event_count);
  return (size_t)(offset * picker->stretch_count / picker->event_count);
}

void tsr__picker_note(tsr__picker *picker, uint64_t event, uint64_t total_bytes) {
  uint64_t offset = event - picker->first_event;
  if (event < picker->first_event || offset >= picker->event_count) return;
  tsr__stretch *s = &picker->stretches[stretch_of(picker, offset)];
  if (s->most_event < 0 || total_bytes > s->most_bytes) {
    s->most_event = (int64_t)event;
    s->most_bytes = total_bytes;
  }
  if (s->least_event < 0 || total_bytes < s->least_bytes) {
    s->least_event = (int64_t)event;
    s->least_bytes = total_bytes;
  }
}

static void pick(tsr__picker *picker, int64_t event) {
  if (event >= 0 && (!picker->count || picker->events[picker->count - 1] < event))
    picker->events[picker->count++] = event;
}

void tsr__picker_finish(tsr__picker *picker) {
  if (!picker->event_count) return;
  pick(picker, (int64_t)picker->first_event);
  for (size_t i = 0; i < picker->stretch_count; i++) {
    const tsr__stretch *s = &picker->stretches[i];
    bool rises = s->least_event < s->most_event;
    pick(picker, rises ? s->least_event : s->most_event);
    pick(picker, rises ? s->most_event : s->least_event);
  }
  pick(picker, (int64_t)(picker->first_event + picker->event_count - 1));
  assert(picker->count <= 2 * picker->stretch_count + 2);
}

void tsr__picker_release(tsr__picker *picker) {
  tsr__free(picker->stretches);
  tsr__free(picker->events);
  *picker = (tsr__picker){0};
}

/* ---- what was there ---- */

typedef struct history {
  const tsr__history_plan *plan;
  tsr__bands bands;
  uint32_t *tickets;         /* by allocation, where ordered */
  uint64_t *bytes_of_series; /* now */
  uint64_t total_bytes, older_bytes;
  uint64_t thin_bytes;
  TSR__VECTOR(tsr_profile_share) shares;
  TSR__VECTOR(tsr_profile_cell) cells;
  TSR__VECTOR(tsr_profile_moment) moments;
  TSR__VECTOR(tsr_profile_band) rows; /* of bands that cells name */
} history;

/* Where an allocation's series is not to be distinguished, it is the last one. */
static uint32_t series_of(const history *h, uint32_t group) {
  assert(group < h->plan->members->count && h->plan->series_of[group] < h->plan->series_count);
  return h->plan->series_of[group];
}

static void band_ended(void *context, const tsr__band *band, int64_t event) {
  history *h = context;
  if (band->mark == TSR_NONE) return;
  assert(band->mark < h->rows.count);
  h->rows.items[band->mark].death_event = event;
  h->rows.items[band->mark].peak_bytes = band->peak_bytes;
}

static bool take(history *h, uint32_t allocation, int64_t event) {
  uint64_t bytes = tsr__timeline_requested(h->plan->members->timeline, allocation);
  uint32_t group = h->plan->members->of[allocation];
  h->total_bytes = tsr__sum_u64(h->total_bytes, bytes);
  uint64_t *now = &h->bytes_of_series[series_of(h, group)];
  *now = tsr__sum_u64(*now, bytes);
  if (!h->plan->is_ordered) return true;
  h->tickets[allocation] = tsr__bands_take(&h->bands, group, bytes, event);
  return h->tickets[allocation] != TSR_NONE;
}

static void give_back(history *h, uint32_t allocation, int64_t event) {
  uint64_t bytes = tsr__timeline_requested(h->plan->members->timeline, allocation);
  uint32_t group = h->plan->members->of[allocation];
  if (group == TSR_NONE) {
    h->older_bytes = tsr__drop_u64(h->older_bytes, bytes);
    return;
  }
  h->total_bytes = tsr__drop_u64(h->total_bytes, bytes);
  uint64_t *now = &h->bytes_of_series[series_of(h, group)];
  *now = tsr__drop_u64(*now, bytes);
  if (h->plan->is_ordered) tsr__bands_free(&h->bands, h->tickets[allocation], bytes, event);
}

/* ---- moments ---- */

/* Add a cell, or make it part of the one below where both are thin. `first` is the moment's first
 * row. */
static bool add_cell(history *h, size_t first, tsr_profile_cell cell) {
  size_t count = h->cells.count;
  tsr_profile_cell *below = count > first ? &h->cells.items[count - 1] : NULL;
  bool are_thin = below && below->bytes < h->thin_bytes && cell.bytes < h->thin_bytes;
  if (!are_thin) return TSR__VECTOR_PUSH(&h->cells, cell);
  if (below->series != cell.series) below->series = TSR_PROFILE_MIXED;
  below->band = TSR_PROFILE_MIXED;
  below->bytes = tsr__sum_u64(below->bytes, cell.bytes);
  return true;
}

static bool note_band(history *h, tsr__band *band) {
  if (band->mark != TSR_NONE) return true;
  band->mark = (uint32_t)h->rows.count;
  return TSR__VECTOR_PUSH(&h->rows, (tsr_profile_band){series_of(h, band->group), band->birth_event,
                                                       -1, band->peak_bytes});
}

/* Rows that cells still name stay, in their order; their bands get the new numbers. */
static bool drop_unnamed_bands(history *h) {
  uint32_t *place = TSR__NEW_ARRAY(uint32_t, h->rows.count);
  if (!place) return false;
  for (size_t i = 0; i < h->cells.count; i++)
    if (h->cells.items[i].band != TSR_PROFILE_MIXED) place[h->cells.items[i].band] = 1;
  uint32_t kept = 0;
  for (size_t i = 0; i < h->rows.count; i++) {
    bool is_named = place[i] != 0;
    place[i] = is_named ? kept : TSR_NONE;
    if (is_named) h->rows.items[kept++] = h->rows.items[i];
  }
  h->rows.count = kept;
  for (size_t i = 0; i < h->cells.count; i++)
    if (h->cells.items[i].band != TSR_PROFILE_MIXED)
      h->cells.items[i].band = place[h->cells.items[i].band];
  for (uint32_t b = h->bands.bottom; b != TSR_NONE; b = h->bands.items.items[b].above) {
    tsr__band *band = &h->bands.items.items[b];
    if (band->mark != TSR_NONE) band->mark = place[band->mark];
  }
  tsr__free(place);
  return true;
}

/* Twice as coarse: cells only ever move down the table. */
static bool coarsen(history *h) {
  h->thin_bytes = h->thin_bytes > UINT64_MAX / 2 ? UINT64_MAX : 2 * h->thin_bytes;
  size_t from = 0, had = h->cells.count;
  h->cells.count = 0;
  for (size_t i = 0; i < h->moments.count; i++) {
    tsr_profile_moment *moment = &h->moments.items[i];
    size_t first = h->cells.count, end = from + moment->cell_count;
    for (; from < end; from++)
      if (!add_cell(h, first, h->cells.items[from])) return false;
    moment->first_cell = first;
    moment->cell_count = h->cells.count - first;
  }
  assert(from == had && h->cells.count <= had);
  (void)had;
  return drop_unnamed_bands(h);
}

static bool add_bands(history *h, size_t first) {
  for (uint32_t b = h->bands.bottom; b != TSR_NONE; b = h->bands.items.items[b].above) {
    tsr__band *band = &h->bands.items.items[b];
    if (!band->bytes) continue;
    bool is_thin = band->bytes < h->thin_bytes;
    if (!is_thin && !note_band(h, band)) return false;
    tsr_profile_cell cell = {is_thin ? TSR_PROFILE_MIXED : band->mark, series_of(h, band->group),
                             band->bytes};
    if (!add_cell(h, first, cell)) return false;
  }
  return true;
}

static bool add_shares(history *h) {
  for (uint32_t i = 0; i < h->plan->series_count; i++)
    if (h->bytes_of_series[i] &&
        !TSR__VECTOR_PUSH(&h->shares, (tsr_profile_share){i, h->bytes_of_series[i]}))
      return false;
  return true;
}

static bool add_moment(history *h, int64_t event, uint64_t allocated_bytes) {
  tsr_profile_moment moment = {.event = event,
                               .time_us = h->plan->members->timeline->events.time_us[event],
                               .bytes = h->total_bytes,
                               .older_bytes = h->older_bytes,
                               .allocated_bytes = allocated_bytes,
                               .first_share = h->shares.count,
                               .first_cell = h->cells.count};
  assert(!h->moments.count || h->moments.items[h->moments.count - 1].event < event);
  if (!add_shares(h) || !add_bands(h, moment.first_cell)) return false;
  moment.share_count = h->shares.count - moment.first_share;
  moment.cell_count = h->cells.count - moment.first_cell;
  if (!TSR__VECTOR_PUSH(&h->moments, moment)) return false;
  while (h->cells.count > CELLS_MOST && h->thin_bytes < UINT64_MAX)
    if (!coarsen(h)) return false;
  return true;
}

/* ---- the bands at the peak ---- */

static bool note_layers(history *h, const char *const *names, tsr_profile_device *out) {
  size_t count = 0;
  for (uint32_t b = h->bands.bottom; b != TSR_NONE; b = h->bands.items.items[b].above) count++;
  out->layers = TSR__NEW_ARRAY(tsr_profile_layer, count);
  if (!out->layers) return false;
  for (uint32_t b = h->bands.bottom; b != TSR_NONE; b = h->bands.items.items[b].above) {
    const tsr__band *band = &h->bands.items.items[b];
    out->layers[out->layer_count++] =
        (tsr_profile_layer){names[band->group], band->bytes, band->allocations, band->birth_event};
  }
  assert(out->layer_count == count);
  return true;
}

/* ---- the whole ---- */

static bool begin(history *h) {
  const tsr__timeline *t = h->plan->members->timeline;
  h->bands = TSR__BANDS_EMPTY;
  h->bands.on_end = band_ended;
  h->bands.context = h;
  h->thin_bytes = h->plan->peak_bytes / THIN_SHARE + 1;
  h->bytes_of_series = TSR__NEW_ARRAY(uint64_t, h->plan->series_count);
  h->tickets = TSR__NEW_ARRAY(uint32_t, h->plan->is_ordered ? t->birth.count : 0);
  return h->tickets && h->bytes_of_series;
}

/* What was there before the first event: in a group, or next to them. */
static bool take_initial(history *h) {
  const tsr__timeline *t = h->plan->members->timeline;
  for (uint32_t i = 0; i < t->initial.count; i++)
    if (h->plan->members->of[i] == TSR_NONE)
      h->older_bytes = tsr__sum_u64(h->older_bytes, t->initial.items[i].requested_bytes);
    else if (!take(h, i, -1))
      return false;
  return true;
}

static bool play(history *h, tsr__sweep *sweep, const char *const *names, tsr_profile_device *out) {
  size_t next = 0;
  bool is_at_start = h->plan->is_ordered && h->plan->peak_event < 0;
  if (!take_initial(h) || (is_at_start && !note_layers(h, names, out))) return false;
  while (tsr__sweep_next(sweep)) {
    /* An address that is taken again frees the older allocation there first. */
    if (sweep->died != TSR_NONE) give_back(h, sweep->died, sweep->event);
    if (sweep->born != TSR_NONE && !take(h, sweep->born, sweep->event)) return false;
    if (next < h->plan->event_count && h->plan->events[next] == sweep->event) {
      if (!add_moment(h, sweep->event, sweep->totals.allocated_bytes)) return false;
      next++;
    }
    if (h->plan->is_ordered && sweep->event == h->plan->peak_event && !note_layers(h, names, out))
      return false;
  }
  assert(next == h->plan->event_count);
  for (uint32_t b = h->bands.bottom; b != TSR_NONE; b = h->bands.items.items[b].above) {
    const tsr__band *band = &h->bands.items.items[b];
    if (band->mark != TSR_NONE) h->rows.items[band->mark].peak_bytes = band->peak_bytes;
  }
  return true;
}

int tsr__history_compute(const tsr__history_plan *plan, const char *const *group_names,
                         tsr_profile_device *out, tsr_error *error) {
  history h = {.plan = plan};
  tsr__sweep sweep = {0};
  bool ok = begin(&h);
  int status = ok ? tsr__sweep_begin(plan->members->timeline, &sweep, error) : 0;
  if (ok && !status) {
    ok = play(&h, &sweep, group_names, out);
    tsr__sweep_release(&sweep);
  }
  out->moments = h.moments.items;
  out->moment_count = h.moments.count;
  out->shares = h.shares.items;
  out->share_count = h.shares.count;
  out->cells = h.cells.items;
  out->cell_count = h.cells.count;
  out->bands = h.rows.items;
  out->band_count = h.rows.count;
  tsr__bands_release(&h.bands);
  tsr__free(h.tickets);
  tsr__free(h.bytes_of_series);
  return ok ? status : tsr__fail_memory(error);
}
