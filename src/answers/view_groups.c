/* view_groups.c - which group is each allocation in? One function a grouping, one row in a table.
 *
 * A grouping gives every allocation a key; keys become groups in the order in which they appear.
 * Names are the snapshot's strings or are spelled here. Past TSR_VIEW_GROUPS_MAX the keys share the
 * last group. A grouping that puts everything into one group is left out, but for the category. */
#include "answers/view_groups.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

enum { NAME_BYTES = 64 };

/* The span an address was in, found by address. */
typedef struct place {
  uint64_t address, size_bytes;
  uint32_t birth, span;
} place;

typedef struct maker {
  const tsr__view_source *source;
  tsr_view_grouping *out;
  uint64_t keys[TSR_VIEW_GROUPS_MAX];
  uint8_t last; /* group of the last key asked for */
  place *places;
  size_t place_count;
} maker;

/* The group of a key; a new one gets the name `text`, or an empty one to be spelled. */
static uint8_t group_of(maker *m, uint64_t key, tsr_text text) {
  tsr_view_grouping *out = m->out;
  if (out->count && m->keys[m->last] == key) return m->last;
  for (size_t i = 0; i < out->count; i++)
    if (m->keys[i] == key) return m->last = (uint8_t)i;
  if (out->count == TSR_VIEW_GROUPS_MAX) return TSR_VIEW_GROUPS_MAX - 1;
  if (out->count == TSR_VIEW_GROUPS_MAX - 1) text = (tsr_text){"(others)", 8};
  m->keys[out->count] = key;
  out->names[out->count] = text;
  m->last = (uint8_t)out->count++;
  return m->last;
}

static tsr_text text_of(const char *string) {
  return (tsr_text){string, strlen(string)};
}

/* Give a group that has no name yet the text in `spelled`. */
static char *spell(tsr_view_grouping *out, size_t group) {
  return out->spelled + group * NAME_BYTES;
}

static void spell_done(tsr_view_grouping *out, size_t group) {
  if (!out->names[group].data) out->names[group] = text_of(spell(out, group));
}

/* ---- category ---- */

static bool by_category(maker *m) {
  const tsr__timeline *t = m->source->timeline;
  for (int i = 0; i < TSR_KIND_COUNT; i++)
    (void)group_of(m, (uint64_t)i, text_of(tsr_kind_name((tsr_kind)i)));
  for (size_t a = 0; a < t->birth.count; a++) m->out->group[a] = m->source->kinds->kind[a];
  return true;
}

/* ---- where the memory is ---- */

static int compare_places(const void *a, const void *b) {
  const place *x = a, *y = b;
  if (x->address != y->address) return x->address < y->address ? -1 : 1;
  return (x->birth + 1 > y->birth + 1) - (x->birth + 1 < y->birth + 1); /* TSR_NONE is first */
}

static bool find_places(maker *m) {
  const tsr__timeline *t = m->source->timeline;
  m->places = TSR__NEW_ARRAY(place, t->spans.count);
  if (!m->places) return false;
  for (size_t i = 0; i < t->spans.count; i++) {
    const tsr__span *span = &t->spans.items[i];
    m->places[i] = (place){span->address, span->size_bytes, span->birth, (uint32_t)i};
  }
  m->place_count = t->spans.count;
  if (m->place_count) qsort(m->places, m->place_count, sizeof *m->places, compare_places);
  return true;
}

/* The span around an address that was the last to begin there by `birth`, or NULL. */
static const tsr__span *span_around(const maker *m, uint64_t address, uint32_t birth) {
  size_t low = 0, high = m->place_count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    const place *p = &m->places[middle];
    bool is_before = p->address < address || (p->address == address && p->birth + 1 <= birth + 1);
    if (is_before)
      low = middle + 1;
    else
      high = middle;
  }
  for (size_t tries = 0; low && tries < 8; low--, tries++) {
    const place *p = &m->places[low - 1];
    if (address - p->address < p->size_bytes && p->birth + 1 <= birth + 1)
      return &m->source->timeline->spans.items[p->span];
  }
  return NULL;
}

static bool by_stream(maker *m) {
  const tsr__timeline *t = m->source->timeline;
  for (size_t a = 0; a < t->birth.count; a++) {
    uint32_t birth = t->birth.items[a], stream = TSR_NONE;
    if (birth != TSR_NONE) {
      stream = tsr_id_at(t->events.stream, birth);
    } else {
      const tsr__span *span = span_around(m, tsr__timeline_address(t, (uint32_t)a), birth);
      if (span) stream = span->stream;
    }
    m->out->group[a] = group_of(m, stream, (tsr_text){0});
  }
  for (size_t i = 0; i < m->out->count; i++) {
    uint64_t handle = tsr_snapshot_stream(t->snapshot, (uint32_t)m->keys[i]);
    if (m->keys[i] == TSR_NONE)
      snprintf(spell(m->out, i), NAME_BYTES, "stream unknown");
    else if (!handle)
      snprintf(spell(m->out, i), NAME_BYTES, "default stream");
    else
      snprintf(spell(m->out, i), NAME_BYTES, "stream 0x%" PRIx64, handle);
    spell_done(m->out, i);
  }
  return true;
}

/* The pool's id, times two, and whether it is the part for large blocks. */
static uint64_t pool_key(const maker *m, uint32_t a) {
  const tsr__timeline *t = m->source->timeline;
  uint32_t birth = t->birth.items[a], pool = TSR_NONE;
  bool is_large = t->block_bytes.items[a] > (UINT64_C(1) << 20);
  if (birth != TSR_NONE) pool = tsr_id_at(t->events.pool, birth);
  if (pool == TSR_NONE) {
    const tsr__span *span = span_around(m, tsr__timeline_address(t, a), birth);
    if (span) pool = span->pool, is_large = span->is_large;
  }
  return (uint64_t)pool << 1 | is_large;
}

static bool by_pool(maker *m) {
  const tsr__timeline *t = m->source->timeline;
  for (size_t a = 0; a < t->birth.count; a++)
    m->out->group[a] = group_of(m, pool_key(m, (uint32_t)a), (tsr_text){0});
  for (size_t i = 0; i < m->out->count; i++) {
    uint32_t id = (uint32_t)(m->keys[i] >> 1);
    const char *size = m->keys[i] & 1 ? "large" : "small";
    tsr_pool pool = tsr_snapshot_pool(t->snapshot, id);
    if (id == TSR_NONE)
      snprintf(spell(m->out, i), NAME_BYTES, "%s blocks", size);
    else if (!pool.first && !pool.second)
      snprintf(spell(m->out, i), NAME_BYTES, "default pool, %s", size);
    else
      snprintf(spell(m->out, i), NAME_BYTES, "pool (%" PRIu64 ", %" PRIu64 "), %s", pool.first,
               pool.second, size);
    spell_done(m->out, i);
  }
  return true;
}

/* ---- what the program said it was doing ---- */

/* Texts by which PyTorch says that there is nothing to say. */
static bool is_empty(const tsr_snapshot *snapshot, uint32_t string) {
  tsr_text text = tsr_snapshot_string(snapshot, string);
  return !text.size_bytes || (text.size_bytes == 3 && memcmp(text.data, "N/A", 3) == 0);
}

/* The innermost range around each birth: ranges open and close as births go by. */
static bool by_annotation(maker *m) {
  const tsr__timeline *t = m->source->timeline;
  const tsr_view_range *ranges = m->source->ranges;
  size_t count = m->source->range_count, next = 0, open_count = 0;
  uint32_t *open = TSR__NEW_ARRAY(uint32_t, count);
  if (!open) return false;
  for (size_t a = 0; a < t->birth.count; a++) {
    uint32_t birth = t->birth.items[a];
    if (birth == TSR_NONE) {
      m->out->group[a] = group_of(m, UINT64_MAX, text_of("(before the recording)"));
      continue;
    }
    for (; next < count && ranges[next].born <= birth + 1; next++)
      if (!ranges[next].is_metadata) open[open_count++] = (uint32_t)next;
    while (open_count && ranges[open[open_count - 1]].died <= birth + 1) open_count--;
    m->out->group[a] =
        open_count ? group_of(m, ranges[open[open_count - 1]].name,
                              tsr_snapshot_string(t->snapshot, ranges[open[open_count - 1]].name))
                   : group_of(m, TSR_NONE, text_of("(outside annotations)"));
  }
  tsr__free(open);
  return true;
}

static bool by_id(maker *m, tsr_id_column column, const char *none) {
  const tsr__timeline *t = m->source->timeline;
  uint32_t before = TSR_NONE;
  bool is_none = true;
  for (size_t a = 0; a < t->birth.count; a++) {
    uint32_t birth = t->birth.items[a];
    uint32_t name = birth == TSR_NONE ? TSR_NONE : tsr_id_at(column, birth);
    if (name != before) is_none = is_empty(t->snapshot, name);
    before = name;
    if (is_none) name = TSR_NONE;
    m->out->group[a] = group_of(
        m, name, name == TSR_NONE ? text_of(none) : tsr_snapshot_string(t->snapshot, name));
  }
  return true;
}

static bool by_context(maker *m) {
  return by_id(m, m->source->timeline->events.context, "(no compiled region)");
}

static bool by_metadata(maker *m) {
  return by_id(m, m->source->timeline->events.metadata, "(no metadata)");
}

/* ---- all of them ---- */

/* A grouping more is a row more. */
static const struct {
  const char *key, *title;
  bool (*make)(maker *);
} makers[] = {
    {"category", "category", by_category},
    {"annotation", "annotation", by_annotation},
    {"compile_context", "compiled region", by_context},
    {"metadata", "user metadata", by_metadata},
    {"stream", "stream", by_stream},
    {"pool", "pool", by_pool},
};

void tsr__view_grouping_release(tsr_view_grouping *grouping) {
  tsr__free(grouping->names);
  tsr__free(grouping->group);
  tsr__free(grouping->spelled);
  tsr__free(grouping->rest_high);
  tsr__free(grouping->rest_low);
  *grouping = (tsr_view_grouping){0};
}

static bool make(maker *m, size_t row, tsr_view_grouping *out) {
  size_t allocations = m->source->timeline->birth.count;
  *out = (tsr_view_grouping){.key = makers[row].key, .title = makers[row].title};
  m->out = out;
  m->last = 0;
  out->names = TSR__NEW_ARRAY(tsr_text, TSR_VIEW_GROUPS_MAX);
  out->spelled = TSR__NEW_ARRAY(char, (size_t)TSR_VIEW_GROUPS_MAX *NAME_BYTES);
  out->group = tsr__realloc(NULL, allocations, 1);
  return out->names && out->spelled && out->group && makers[row].make(m);
}

int tsr__view_groupings(const tsr__view_source *source, tsr_view_grouping *groupings) {
  maker m = {.source = source};
  int count = 0;
  bool ok = find_places(&m);
  for (size_t row = 0; ok && row < sizeof makers / sizeof *makers; row++) {
    ok = make(&m, row, &groupings[count]);
    if (!ok || (row && groupings[count].count < 2))
      tsr__view_grouping_release(&groupings[count]);
    else
      count++;
  }
  tsr__free(m.places);
  if (ok) return count;
  while (count) tsr__view_grouping_release(&groupings[--count]);
  return -1;
}
