/* compare.c - what a source file holds in two snapshots. Both sides are computed separately, with the
 * same text, so lines and definitions have the same numbers on both; lists are joined on those. */
#include <assert.h>

#include "base/memory.h"
#include "base/sort.h"
#include "emit/text.h"
#include "questions/shared/query.h"
#include "questions/source/source.h"

static uint64_t distance(uint64_t a, uint64_t b) {
  return a > b ? a - b : b - a;
}

static int compare_changes(const void *a, const void *b) {
  const tsr_source_change *x = a, *y = b;
  uint64_t left = distance(x->first.self_bytes, x->second.self_bytes);
  uint64_t right = distance(y->first.self_bytes, y->second.self_bytes);
  if (left == right) {
    left = distance(x->first.inclusive_bytes, x->second.inclusive_bytes);
    right = distance(y->first.inclusive_bytes, y->second.inclusive_bytes);
  }
  if (left != right) return left < right ? 1 : -1;
  return (x->index > y->index) - (x->index < y->index);
}

static void rank(tsr_source_change *changes, size_t *count, size_t top, uint64_t *omitted) {
  tsr__sort(changes, *count, sizeof *changes, compare_changes);
  *omitted = top && *count > top ? *count - top : 0;
  *count -= (size_t)*omitted;
}

/* Lines of both sides, which are ascending on each. */
static bool join_lines(tsr_source_pair *pair, size_t top) {
  size_t left = pair->first ? pair->first->line_count : 0;
  size_t right = pair->second ? pair->second->line_count : 0;
  pair->lines = TSR__NEW_ARRAY(tsr_source_change, left + right);
  if (!pair->lines) return false;
  for (size_t i = 0, k = 0; i < left || k < right;) {
    const tsr_source_line *a = i < left ? &pair->first->lines[i] : NULL;
    const tsr_source_line *b = k < right ? &pair->second->lines[k] : NULL;
    const tsr_source_line *earlier = !b || (a && a->line <= b->line) ? a : b;
    if (!earlier) break; /* never: one side has lines left */
    uint32_t line = earlier->line;
    tsr_source_change *change = &pair->lines[pair->line_count++];
    change->index = line;
    change->definition = earlier->definition;
    if (a && a->line == line) change->first = pair->first->lines[i++].use;
    if (b && b->line == line) change->second = pair->second->lines[k++].use;
  }
  rank(pair->lines, &pair->line_count, top, &pair->omitted_lines);
  return true;
}

static tsr_source_change *join_definitions(const tsr_source *source, const tsr_source_pair *pair,
                                           bool classes, size_t *count) {
  tsr_source_change *changes = TSR__NEW_ARRAY(tsr_source_change, source->definition_count);
  *count = 0;
  if (!changes) return NULL;
  for (uint32_t i = 0; i < source->definition_count; i++) {
    tsr_source_change change = {.index = i, .definition = i};
    if (pair->first) change.first = pair->first->uses[i];
    if (pair->second) change.second = pair->second->uses[i];
    bool holds = change.first.inclusive_allocations || change.second.inclusive_allocations;
    if (holds && source->definitions[i].is_class == classes) changes[(*count)++] = change;
  }
  return changes;
}

static bool join(const tsr_source *source, tsr_source_pair *pair, size_t top) {
  if (!join_lines(pair, top)) return false;
  pair->functions = join_definitions(source, pair, false, &pair->function_count);
  pair->classes = join_definitions(source, pair, true, &pair->class_count);
  if (!pair->functions || !pair->classes) return false;
  rank(pair->functions, &pair->function_count, top, &pair->omitted_functions);
  rank(pair->classes, &pair->class_count, top, &pair->omitted_classes);
  return true;
}

static const tsr_source_device *device_of(const tsr_source *source, uint32_t device) {
  for (size_t i = 0; i < source->device_count; i++)
    if (source->devices[i].device == device) return &source->devices[i];
  return NULL;
}

static int compare_numbers(const void *a, const void *b) {
  uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return (x > y) - (x < y);
}

/* The devices of a snapshot that the query means and that it has; NULL when out of memory. */
static uint32_t *devices_there(const tsr_snapshot *snapshot, const tsr_query *query,
                               size_t *count) {
  size_t all_count;
  const uint32_t *all = tsr_snapshot_devices(snapshot, &all_count);
  uint32_t *there = TSR__NEW_ARRAY(uint32_t, all_count);
  *count = 0;
  for (size_t i = 0; there && i < all_count; i++) {
    bool is_meant = !query || !query->device_count;
    for (size_t k = 0; query && k < query->device_count; k++)
      is_meant = is_meant || query->devices[k] == all[i];
    if (is_meant) there[(*count)++] = all[i];
  }
  return there;
}

/* One side, uncut, of the devices it has. */
static int ask(tsr_study *study, const tsr_source_file *file, const tsr_query *query,
               tsr_source **out, tsr_error *error) {
  size_t count;
  uint32_t *there = devices_there(tsr_study_snapshot(study), query, &count);
  if (!there) return tsr__fail_memory(error);
  int status = tsr__source_of(study, file, there, count, 0, out, error);
  tsr__free(there);
  return status;
}

static int check_devices(const tsr_source_comparison *made, const tsr_query *query,
                         tsr_error *error) {
  char name[TSR__FORMAT_BYTES];
  for (size_t i = 0; query && i < query->device_count; i++)
    if (!device_of(made->first, query->devices[i]) && !device_of(made->second, query->devices[i]))
      return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                       "neither snapshot has events or segments for %s",
                       tsr__device_name(query->devices[i], name));
  return 0;
}

static bool pair_up(tsr_source_comparison *made, size_t top) {
  size_t left = made->first->device_count, right = made->second->device_count, count = 0;
  uint32_t *numbers = TSR__NEW_ARRAY(uint32_t, left + right);
  made->devices = TSR__NEW_ARRAY(tsr_source_pair, left + right);
  bool ok = numbers && made->devices;
  for (size_t i = 0; ok && i < left; i++) numbers[count++] = made->first->devices[i].device;
  for (size_t i = 0; ok && i < right; i++) numbers[count++] = made->second->devices[i].device;
  tsr__sort(numbers, count, sizeof *numbers, compare_numbers);
  for (size_t i = 0; ok && i < count; i++) {
    assert(!i || numbers[i - 1] <= numbers[i]);
    if (i && numbers[i] == numbers[i - 1]) continue;
    tsr_source_pair *pair = &made->devices[made->device_count++];
    pair->device = numbers[i];
    pair->first = device_of(made->first, numbers[i]);
    pair->second = device_of(made->second, numbers[i]);
    assert(pair->first || pair->second);
    ok = join(made->first, pair, top);
  }
  tsr__free(numbers);
  return ok;
}

int tsr_source_compare(tsr_study *first, tsr_study *second, const tsr_source_file *file,
                       const tsr_query *query, tsr_source_comparison **out, tsr_error *error) {
  tsr_source_comparison *made = TSR__NEW(tsr_source_comparison);
  if (!made) return tsr__fail_memory(error);
  int status = ask(first, file, query, &made->first, error);
  if (!status) status = ask(second, file, query, &made->second, error);
  if (!status) status = check_devices(made, query, error);
  if (!status && !pair_up(made, query ? query->top : 0)) status = tsr__fail_memory(error);
  if (status)
    tsr_source_comparison_free(made);
  else
    *out = made;
  return status;
}

void tsr_source_comparison_free(tsr_source_comparison *comparison) {
  if (!comparison) return;
  for (size_t i = 0; i < comparison->device_count; i++) {
    tsr__free(comparison->devices[i].lines);
    tsr__free(comparison->devices[i].functions);
    tsr__free(comparison->devices[i].classes);
  }
  tsr__free(comparison->devices);
  tsr_source_free(comparison->first);
  tsr_source_free(comparison->second);
  tsr__free(comparison);
}
