/* derive.c - the relations of a study: what their columns need, derived on first use, and the texts that codes stand for.
 *
 * What the study keeps is referred to. Owned are running totals, an array of each that was asked for; the steps of each device; and the
 * rows of segments, blocks and annotations by device, which the snapshot keeps in the order of the file. */
#include <assert.h>
#include <string.h>

#include "base/checked.h"
#include "base/memory.h"
#include "base/sort.h"
#include "questions/shared/query.h"
#include "tables/columns.h"
#include "tables/relations.h"
#include "timeline/sweep.h"

/* ---- The object ---- */

static bool is_sorted(const tsr_events *events) {
  for (uint64_t i = 0; i < events->count; i++)
    if (events->time_us[i] == TSR_TIME_NONE || (i && events->time_us[i] < events->time_us[i - 1]))
      return false;
  return true;
}

static tsr__relation_device *find_device(tsr_relations *all, uint32_t device) {
  for (size_t i = 0; i < all->device_count; i++)
    if (all->devices[i].device == device) return &all->devices[i];
  return NULL;
}

/* Blocks follow their segment. */
static bool add_segment(tsr__relation_device *d, const tsr_segment *segment, size_t index) {
  bool ok = TSR__VECTOR_PUSH(&d->segments, (uint32_t)index);
  for (uint64_t b = 0; ok && b < segment->block_count; b++)
    ok = TSR__VECTOR_PUSH(&d->blocks, (uint32_t)(segment->first_block + b)) &&
         TSR__VECTOR_PUSH(&d->block_segments, (uint32_t)(d->segments.count - 1));
  return ok;
}

static bool add_rows(tsr_relations *all) {
  size_t count;
  bool ok = true;
  const tsr_segment *segments = tsr_snapshot_segments(all->snapshot, &count);
  for (size_t i = 0; ok && i < count; i++) {
    tsr__relation_device *d = find_device(all, segments[i].device);
    if (d) ok = add_segment(d, &segments[i], i);
  }
  const tsr_annotation *annotations = tsr_snapshot_annotations(all->snapshot, &count);
  for (size_t i = 0; ok && i < count; i++) {
    tsr__relation_device *d = find_device(all, annotations[i].device);
    if (d) ok = TSR__VECTOR_PUSH(&d->notes, (uint32_t)i);
  }
  return ok;
}

int tsr_relations_new(tsr_study *study, const tsr_query *query, tsr_relations **out,
                      tsr_error *error) {
  const uint32_t *devices;
  size_t count;
  const tsr_snapshot *snapshot = tsr_study_snapshot(study);
  int status = tsr__query_devices(snapshot, query, &devices, &count, error);
  if (status) return status;
  tsr_relations *all = TSR__NEW(tsr_relations);
  if (!all) return tsr__fail_memory(error);
  *all = (tsr_relations){.study = study, .snapshot = snapshot, .is_ascending = true};
  all->devices = TSR__NEW_ARRAY(tsr__relation_device, count);
  for (size_t i = 0; all->devices && i < count; i++) {
    tsr__relation_device *d = &all->devices[all->device_count++];
    d->device = devices[i];
    d->events = tsr_snapshot_events(snapshot, devices[i]);
    d->is_time_sorted = is_sorted(&d->events);
    all->is_ascending &= !i || devices[i - 1] < devices[i];
  }
  if (!all->devices || !add_rows(all)) {
    tsr_relations_free(all);
    return tsr__fail_memory(error);
  }
  *out = all;
  return 0;
}

int tsr_relations_of_ranks(const tsr_ranks *ranks, tsr_relations **out, tsr_error *error) {
  tsr_relations *all = TSR__NEW(tsr_relations);
  if (!all) return tsr__fail_memory(error);
  *all = (tsr_relations){.snapshot = ranks->stacks, .ranks = ranks, .is_ascending = true};
  int status = tsr_study_new(ranks->stacks, &all->study, error);
  if (status)
    tsr__free(all);
  else
    *out = all;
  return status;
}

bool tsr_relations_have(const tsr_relations *all, size_t relation) {
  bool is_of_stacks = relation == TSR__STACKS || relation == TSR__FRAMES;
  return is_of_stacks || (all->ranks != NULL) == (relation >= TSR__RANKS);
}

void tsr_relations_free(tsr_relations *all) {
  if (!all) return;
  if (all->ranks) tsr_study_free(all->study);
  for (size_t i = 0; i < all->device_count; i++) {
    tsr__relation_device *d = &all->devices[i];
    tsr_steps_free(d->steps);
    for (size_t t = 0; t < TSR__TOTAL_COUNT; t++) tsr__free(d->totals[t]);
    TSR__VECTOR_FREE(&d->segments);
    TSR__VECTOR_FREE(&d->blocks);
    TSR__VECTOR_FREE(&d->block_segments);
    TSR__VECTOR_FREE(&d->notes);
    tsr__relation_indexes_release(d);
  }
  for (size_t i = 0; i < TSR__DOMAIN_COUNT; i++) tsr__free(all->orders[i]);
  tsr__free(all->devices);
  tsr__free(all);
}

tsr_relation_shape tsr_relation_shape_of(const tsr_relations *all, size_t relation) {
  tsr_relation_shape shape = {.parts = tsr__relation_parts(all, relation),
                              .is_ascending = all->is_ascending};
  if (!tsr__relation_has_devices(relation)) {
    bool has_many = relation == TSR__FRAMES || relation == TSR__CHANGES; /* parts, maybe none */
    shape.rows =
        has_many ? tsr__product_u64(shape.parts, 20) : tsr__relation_rows(all, relation, 0);
    return shape;
  }
  for (size_t i = 0; i < all->device_count; i++) {
    const tsr__relation_device *d = &all->devices[i];
    shape.has_host |= d->device >= TSR_DEVICE_CPU;
    switch (relation) {
    case TSR__EVENTS: shape.rows += d->events.count; break;
    /* An alloc and two events of its free, for most. */
    case TSR__ALLOCATIONS: shape.rows += d->events.count / 3 + d->blocks.count; break;
    case TSR__SEGMENTS:
    case TSR__SPANS: shape.rows += d->segments.count; break;
    case TSR__BLOCKS: shape.rows += d->blocks.count; break;
    case TSR__ANNOTATIONS: shape.rows += d->notes.count; break;
    default: shape.rows++; break;
    }
  }
  return shape;
}

/* ---- Running totals ---- */

static uint64_t total_of(const tsr_totals *totals, tsr__total total, uint64_t peak) {
  switch (total) {
  case TSR__TOTAL_REQUESTED: return totals->requested_bytes;
  case TSR__TOTAL_ALLOCATED: return totals->allocated_bytes;
  case TSR__TOTAL_ACTIVE: return totals->active_bytes;
  case TSR__TOTAL_RESERVED: return totals->reserved_bytes;
  default: return peak;
  }
}

/* One sweep for all that are new. */
static int derive_totals(tsr__relation_device *d, unsigned needs, tsr_error *error) {
  uint64_t *fresh[TSR__TOTAL_COUNT] = {NULL};
  tsr__sweep sweep;
  bool ok = true;
  for (size_t t = 0; ok && t < TSR__TOTAL_COUNT; t++) {
    if (!(needs & (unsigned)TSR__FOR_REQUESTED << t) || d->totals[t]) continue;
    fresh[t] = TSR__NEW_ARRAY(uint64_t, d->events.count);
    ok = fresh[t] != NULL;
  }
  int status = ok ? tsr__sweep_begin(d->timeline, &sweep, error) : tsr__fail_memory(error);
  if (!status) {
    uint64_t peak = sweep.totals.allocated_bytes;
    while (tsr__sweep_next(&sweep)) {
      if (sweep.totals.allocated_bytes > peak) peak = sweep.totals.allocated_bytes;
      for (size_t t = 0; t < TSR__TOTAL_COUNT; t++)
        if (fresh[t]) fresh[t][sweep.event] = total_of(&sweep.totals, (tsr__total)t, peak);
    }
    tsr__sweep_release(&sweep);
  }
  for (size_t t = 0; t < TSR__TOTAL_COUNT; t++) {
    if (!fresh[t]) continue;
    if (status)
      tsr__free(fresh[t]);
    else
      d->totals[t] = fresh[t];
  }
  return status;
}

/* ---- What the study derives ---- */

enum {
  FOR_TOTALS =
      TSR__FOR_REQUESTED | TSR__FOR_ALLOCATED | TSR__FOR_ACTIVE | TSR__FOR_RESERVED | TSR__FOR_PEAK
};

static int derive_device(tsr_relations *all, tsr__relation_device *d, unsigned needs,
                         tsr_error *error) {
  const tsr_query query = {.devices = &d->device, .device_count = 1};
  int status = 0;
  if (needs & (TSR__FOR_TIMELINE | FOR_TOTALS))
    status = tsr__study_timeline(all->study, d->device, &d->timeline, error);
  if (!status && needs & TSR__FOR_CATEGORIES)
    status = tsr__study_categories(all->study, d->device, &d->categories, error);
  if (!status && needs & TSR__FOR_NAMES)
    status = tsr__study_names(all->study, d->device, &d->names, error);
  if (!status && needs & TSR__FOR_CYCLE)
    status = tsr__study_cycle(all->study, d->device, &d->cycle, error);
  if (!status && needs & TSR__FOR_ANNOTATIONS)
    status = tsr__study_annotations(all->study, d->device, &d->annotations, error);
  if (!status && needs & TSR__FOR_STEPS && !d->steps)
    status = tsr_steps_compute(all->study, &query, &d->steps, error);
  if (!status && needs & FOR_TOTALS) status = derive_totals(d, needs, error);
  return status;
}

static int prepare(tsr_relations *all, unsigned needs, tsr_error *error) {
  uint32_t stack_devices[16];
  unsigned parts = 0;
  if (needs & (TSR__FOR_TIMELINE | FOR_TOTALS)) parts |= TSR__NEED_TIMELINE;
  if (needs & TSR__FOR_CATEGORIES) parts |= TSR__NEED_CATEGORIES;
  if (needs & (TSR__FOR_CYCLE | TSR__FOR_STEPS)) parts |= TSR__NEED_CYCLE;
  size_t count = all->device_count;
  if (!parts || count > sizeof stack_devices / sizeof *stack_devices) return 0;
  for (size_t i = 0; i < count; i++) stack_devices[i] = all->devices[i].device;
  return tsr__study_prepare(all->study, stack_devices, count, parts, error);
}

int tsr__relations_derive(tsr_relations *all, unsigned needs, tsr_error *error) {
  unsigned missing = needs & ~all->derived;
  if (!missing) return 0;
  int status = prepare(all, missing, error);
  for (size_t i = 0; !status && i < all->device_count; i++)
    status = derive_device(all, &all->devices[i], missing, error);
  if (!status && missing & TSR__FOR_OPERATION)
    status = tsr__study_labels(all->study, TSR__LABEL_OP, &all->operations, error);
  if (!status && missing & TSR__FOR_MODULE)
    status = tsr__study_labels(all->study, TSR__LABEL_MODULE, &all->modules, error);
  if (!status && missing & TSR__FOR_LINE)
    status = tsr__study_labels(all->study, TSR__LABEL_LINE, &all->lines, error);
  if (!status) all->derived |= missing;
  return status;
}

/* ---- Domains ---- */

static const tsr__labels *labels_of(const tsr_relations *all, tsr__domain domain) {
  return domain == TSR__DOMAIN_OPERATION ? all->operations
         : domain == TSR__DOMAIN_MODULE  ? all->modules
                                         : all->lines;
}

uint32_t tsr__domain_size(const tsr_relations *all, tsr__domain domain) {
  switch (domain) {
  case TSR__DOMAIN_ACTION: return tsr_snapshot_action_count(all->snapshot);
  case TSR__DOMAIN_CATEGORY: return TSR_CATEGORY_COUNT;
  case TSR__DOMAIN_PHASE: return TSR_PHASE_COUNT;
  case TSR__DOMAIN_CONFIDENCE: return TSR_CONFIDENCE_SURE + 1;
  case TSR__DOMAIN_STATE: return TSR_BLOCK_UNKNOWN + 1;
  case TSR__DOMAIN_CAUSE: return TSR_CAUSE_COUNT;
  default: return (uint32_t)labels_of(all, domain)->names.count;
  }
}

static tsr_text text_of(const char *text) {
  return (tsr_text){text, strlen(text)};
}

tsr_text tsr__domain_text(const tsr_relations *all, tsr__domain domain, uint32_t code) {
  static const char *const states[] = {"inactive", "active_allocated", "active_pending_free",
                                       "unknown"};
  switch (domain) {
  case TSR__DOMAIN_ACTION: return tsr_snapshot_action_name(all->snapshot, code);
  case TSR__DOMAIN_CATEGORY: return text_of(tsr_category_name((tsr_category)code));
  case TSR__DOMAIN_PHASE: return text_of(tsr_phase_name((tsr_phase)code));
  case TSR__DOMAIN_CONFIDENCE: return text_of(tsr_confidence_name((tsr_confidence)code));
  case TSR__DOMAIN_STATE: return text_of(states[code]);
  case TSR__DOMAIN_CAUSE: return text_of(tsr_rank_cause_name((tsr_rank_cause)code));
  default: return tsr__label_name(labels_of(all, domain), code);
  }
}

/* As SQLite compares: by bytes, then by length. */
static int compare_texts(tsr_text a, tsr_text b) {
  size_t common = a.size_bytes < b.size_bytes ? a.size_bytes : b.size_bytes;
  int difference = common ? memcmp(a.data, b.data, common) : 0;
  return difference ? difference : (a.size_bytes > b.size_bytes) - (a.size_bytes < b.size_bytes);
}

typedef struct ranked {
  tsr_text text;
  uint32_t code;
} ranked;

static int compare_ranked(const void *a, const void *b) {
  const ranked *x = a, *y = b;
  int difference = compare_texts(x->text, y->text);
  return difference ? difference : (x->code > y->code) - (x->code < y->code);
}

const uint32_t *tsr__domain_order(tsr_relations *all, tsr__domain domain) {
  if (all->orders[domain]) return all->orders[domain];
  uint32_t count = tsr__domain_size(all, domain);
  ranked *sorted = TSR__NEW_ARRAY(ranked, count);
  uint32_t *order = TSR__NEW_ARRAY(uint32_t, count);
  for (uint32_t i = 0; sorted && i < count; i++)
    sorted[i] = (ranked){tsr__domain_text(all, domain, i), i};
  if (sorted && order) {
    tsr__sort(sorted, count, sizeof *sorted, compare_ranked);
    for (uint32_t i = 0; i < count; i++) order[i] = sorted[i].code;
    all->orders[domain] = order;
  } else {
    tsr__free(order);
  }
  tsr__free(sorted);
  return all->orders[domain];
}

int tsr__domain_find(tsr_relations *all, tsr__domain domain, tsr_text text, uint32_t *out) {
  const uint32_t *order = tsr__domain_order(all, domain);
  if (!order) return TSR_ERROR_MEMORY;
  uint32_t low = 0, high = tsr__domain_size(all, domain), count = high;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    if (compare_texts(tsr__domain_text(all, domain, order[middle]), text) < 0)
      low = middle + 1;
    else
      high = middle;
  }
  bool is_found =
      low < count && compare_texts(tsr__domain_text(all, domain, order[low]), text) == 0;
  *out = is_found ? order[low] : TSR_NONE;
  return 0;
}

static bool has_times_in_order(const tsr_relations *all) {
  for (size_t i = 0; i < all->device_count; i++)
    if (!all->devices[i].is_time_sorted) return false;
  return true;
}

tsr_relation_access tsr_relation_access_of(const tsr_relations *all, size_t relation,
                                           size_t column) {
  assert(column < tsr_relation_at(relation)->column_count);
  bool is_time =
      relation == TSR__EVENTS && (column == TSR__EVENTS_TIME || column == TSR__EVENTS_TIME_MS);
  if (is_time && !has_times_in_order(all)) return TSR_ACCESS_FILTER;
  return tsr_relation_at(relation)->columns[column].access;
}
