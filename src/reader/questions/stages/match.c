/* match.c - which START belongs to which END, and which stage is inside which.
 *
 * One pass over the annotations keeps the ranges that are open: in a list, so that the innermost is
 * known, and for each name chained from the latest back, so that an END finds its START at once:
 *
 *   open    step#1 <-> forward <-> step#1         latest["step#1"] --> third --> first
 *
 * Then the ranges are sorted by where they begin, longer ones first, and one sweep gives each the
 * innermost around it: a stack holds the ranges that may still enclose something. A range that ends
 * before the next one does never will again: all that is yet to come and is in it is in the later
 * one too, or ends after it. So each range is pushed and popped once.
 *
 * Places are positions among the annotations taken, not times: those of one thread often have the
 * same microsecond. */
#include "questions/stages/match.h"

#include <assert.h>
#include <string.h>

#include "base/map.h"
#include "base/memory.h"
#include "base/sort.h"

/* As a range is recorded once, at most this long after it was recorded first, see stages.h. */
#define TWICE_US 1000

#define NO_RANGE UINT32_MAX

typedef struct range {
  int64_t first, last; /* places of START and END; -1 and INT64_MAX: not recorded */
  int64_t start_us, end_us;
  uint32_t name, device;
  uint32_t around, inside; /* neighbours in the list of open ranges */
  uint32_t began_in;       /* the innermost one open when it began */
  uint32_t same_name;      /* the one of this name opened before, while open */
  bool has_start, has_end, is_copy;
} range;

typedef struct matcher {
  const tsr_snapshot *snapshot;
  const tsr_stages_options *options;
  TSR__VECTOR(range) ranges;
  tsr__map latest;    /* name -> open range */
  uint32_t innermost; /* open range or NO_RANGE */
  int64_t place;
  tsr__stage_list *list;
} matcher;

static bool contains(tsr_text text, const char *part) {
  size_t size = strlen(part);
  for (size_t at = 0; at + size <= text.size_bytes; at++)
    if (!size || memcmp(text.data + at, part, size) == 0) return true;
  return false;
}

static bool is_meant(const matcher *m, const tsr_annotation *annotation) {
  if (!m->options || !m->options->match_count) return true;
  tsr_text name = tsr_snapshot_string(m->snapshot, annotation->name);
  for (size_t i = 0; i < m->options->match_count; i++)
    if (contains(name, m->options->matches[i])) return true;
  return false;
}

/* ---- pairing ---- */

static bool open_range(matcher *m, const tsr_annotation *annotation) {
  uint32_t index = (uint32_t)m->ranges.count;
  assert(index < NO_RANGE && (m->innermost == NO_RANGE || m->innermost < index));
  uint64_t *latest = tsr__map_put(&m->latest, annotation->name, NO_RANGE, NULL);
  if (!latest) return false;
  range made = {.first = m->place,
                .last = INT64_MAX,
                .start_us = annotation->time_us,
                .end_us = TSR_TIME_NONE,
                .name = annotation->name,
                .device = annotation->device,
                .around = m->innermost,
                .began_in = m->innermost,
                .inside = NO_RANGE,
                .same_name = (uint32_t)*latest,
                .has_start = true};
  if (!TSR__VECTOR_PUSH(&m->ranges, made)) return false;
  *latest = index;
  if (m->innermost != NO_RANGE) m->ranges.items[m->innermost].inside = index;
  m->innermost = index;
  return true;
}

/* Remove a range from the list; what was inside it is now inside the range around it. */
static void unlink_range(matcher *m, uint32_t index) {
  const range *closed = &m->ranges.items[index];
  assert(closed->inside != NO_RANGE || m->innermost == index);
  if (closed->inside == NO_RANGE)
    m->innermost = closed->around;
  else
    m->ranges.items[closed->inside].around = closed->around;
  if (closed->around != NO_RANGE) m->ranges.items[closed->around].inside = closed->inside;
}

static bool close_range(matcher *m, const tsr_annotation *annotation) {
  uint64_t *latest = tsr__map_find(&m->latest, annotation->name);
  if (!latest || *latest == NO_RANGE) {
    range made = {.first = -1,
                  .last = m->place,
                  .start_us = TSR_TIME_NONE,
                  .end_us = annotation->time_us,
                  .name = annotation->name,
                  .device = annotation->device,
                  .around = NO_RANGE,
                  .began_in = NO_RANGE,
                  .has_end = true};
    m->list->oddities[TSR__STAGE_NO_START]++;
    return TSR__VECTOR_PUSH(&m->ranges, made);
  }
  uint32_t index = (uint32_t)*latest;
  range *closed = &m->ranges.items[index];
  assert(!closed->has_end && closed->name == annotation->name && closed->first < m->place);
  *latest = closed->same_name;
  closed->last = m->place;
  closed->end_us = annotation->time_us;
  closed->has_end = true;
  unlink_range(m, index);
  return true;
}

static bool pair(matcher *m) {
  size_t count;
  const tsr_annotation *annotations = tsr_snapshot_annotations(m->snapshot, &count);
  for (size_t i = 0; i < count && m->ranges.count < NO_RANGE; i++) {
    const tsr_annotation *annotation = &annotations[i];
    if (!is_meant(m, annotation)) continue;
    m->list->matched_count++;
    if (annotation->time_us == TSR_TIME_NONE || annotation->is_start == annotation->is_end) {
      m->list->oddities[TSR__STAGE_ODD]++;
      continue;
    }
    if (!(annotation->is_start ? open_range(m, annotation) : close_range(m, annotation)))
      return false;
    m->place++;
  }
  return true;
}

/* What is still open ends with what was around it: a range does not outlast the one it began in.
 * Those lie earlier in the array, so they have been settled; one that turned out to have ended
 * before is skipped. */
static void settle_open(matcher *m) {
  for (size_t i = 0; i < m->ranges.count; i++) {
    range *open = &m->ranges.items[i];
    if (open->has_end) continue;
    m->list->oddities[TSR__STAGE_NO_END]++;
    uint32_t around = open->began_in;
    while (around != NO_RANGE && m->ranges.items[around].last < open->first)
      around = m->ranges.items[around].began_in;
    open->began_in = around;
    if (around == NO_RANGE) continue;
    open->last = m->ranges.items[around].last;
    open->end_us = m->ranges.items[around].end_us;
  }
}

static bool is_close(int64_t a, int64_t b) {
  return a <= b && b - a <= TWICE_US;
}

static void mark_copies(matcher *m) {
  for (size_t i = 0; i < m->ranges.count; i++) {
    range *inner = &m->ranges.items[i];
    if (!inner->has_start || !inner->has_end || inner->began_in == NO_RANGE) continue;
    const range *outer = &m->ranges.items[inner->began_in];
    assert(inner->began_in < i);
    inner->is_copy = outer->name == inner->name && outer->has_end &&
                     outer->first + 1 == inner->first && inner->last + 1 == outer->last &&
                     is_close(outer->start_us, inner->start_us) &&
                     is_close(inner->end_us, outer->end_us);
    m->list->oddities[TSR__STAGE_TWICE] += inner->is_copy;
  }
}

/* ---- order ---- */

/* As they begin; of those that begin together, before the recording, the longer one first. */
static int compare_ranges(const void *a, const void *b) {
  const range *x = a, *y = b;
  if (x->first != y->first) return x->first < y->first ? -1 : 1;
  return (x->last < y->last) - (x->last > y->last);
}

/* Copies leave, the rest is put in order. */
static void sort_ranges(matcher *m) {
  size_t kept = 0;
  for (size_t i = 0; i < m->ranges.count; i++)
    if (!m->ranges.items[i].is_copy) m->ranges.items[kept++] = m->ranges.items[i];
  m->ranges.count = kept;
  tsr__sort(m->ranges.items, kept, sizeof *m->ranges.items, compare_ranges);
}

/* Number the repetitions of each name. */
static bool count_repetitions(matcher *m) {
  tsr__map seen = {0};
  bool ok = true;
  for (size_t i = 0; ok && i < m->list->count; i++) {
    uint64_t *count = tsr__map_put(&seen, m->list->stages[i].name, 0, NULL);
    ok = count != NULL;
    if (ok) m->list->stages[i].repetition = (uint32_t)++ * count;
  }
  for (size_t i = 0; ok && i < m->list->count; i++)
    m->list->stages[i].repetitions = (uint32_t)*tsr__map_find(&seen, m->list->stages[i].name);
  tsr__map_release(&seen);
  return ok;
}

/* Who is around whom; see the top. `around` becomes the stack: each range's next one out. */
static void nest(matcher *m) {
  range *ranges = m->ranges.items;
  uint32_t top = NO_RANGE;
  for (uint32_t i = 0; i < m->ranges.count; i++) {
    while (top != NO_RANGE && ranges[top].last < ranges[i].last) {
      m->list->oddities[TSR__STAGE_OVERLAP] += ranges[top].last > ranges[i].first;
      top = ranges[top].around;
    }
    assert(top == NO_RANGE ||
           (ranges[top].first <= ranges[i].first && ranges[i].last <= ranges[top].last));
    ranges[i].around = top;
    tsr_stage *stage = &m->list->stages[i];
    stage->parent = top == NO_RANGE ? TSR_STAGE_NONE : top;
    stage->depth = top == NO_RANGE ? 0 : m->list->stages[top].depth + 1;
    top = i;
  }
}

static bool make_list(matcher *m) {
  tsr__stage_list *list = m->list;
  list->stages = TSR__NEW_ARRAY(tsr_stage, m->ranges.count);
  list->ends_us = TSR__NEW_ARRAY(int64_t, m->ranges.count);
  if (!list->stages || !list->ends_us) return false;
  list->count = m->ranges.count;
  for (size_t i = 0; i < list->count; i++) {
    const range *from = &m->ranges.items[i];
    tsr_stage *stage = &list->stages[i];
    stage->id = (uint32_t)i;
    stage->name = from->name;
    stage->annotation_device = from->device;
    stage->has_start = from->has_start;
    stage->has_end = from->has_end;
    stage->start.time_us = from->start_us;
    stage->end.time_us = from->has_end ? from->end_us : TSR_TIME_NONE;
    list->ends_us[i] = from->end_us;
  }
  nest(m);
  return count_repetitions(m);
}

int tsr__stages_match(const tsr_snapshot *snapshot, const tsr_stages_options *options,
                      tsr__stage_list *out, tsr_error *error) {
  matcher m = {.snapshot = snapshot, .options = options, .innermost = NO_RANGE, .list = out};
  *out = (tsr__stage_list){0};
  bool ok = pair(&m);
  if (ok) {
    settle_open(&m);
    mark_copies(&m);
    sort_ranges(&m);
    ok = make_list(&m);
  }
  TSR__VECTOR_FREE(&m.ranges);
  tsr__map_release(&m.latest);
  return ok ? 0 : tsr__fail_memory(error);
}

void tsr__stage_list_release(tsr__stage_list *list) {
  tsr__free(list->stages);
  tsr__free(list->ends_us);
  *list = (tsr__stage_list){0};
}

void tsr__stage_pattern(tsr__buffer *out, tsr_text name) {
  bool was_digit = false;
  for (size_t i = 0; i < name.size_bytes; i++) {
    bool is_digit = name.data[i] >= '0' && name.data[i] <= '9';
    if (!is_digit)
      tsr__buffer_append(out, name.data + i, 1);
    else if (!was_digit)
      tsr__buffer_append(out, "*", 1);
    was_digit = is_digit;
  }
}
