/* annotations.c - a stack of names that changes over time. See annotations.h.
 *
 *   stack  outermost <- ... <- innermost     entries linked both ways, since an END may remove one
 *                                            from the middle
 *   last_of  name -> its last entry, and from each entry to the previous one of that name
 *
 * so that an END costs the same however deep the stack is. Entries are numbered by the annotation
 * that pushed them. */
#include "attribution/annotations.h"

#include <assert.h>

#include "base/map.h"

typedef struct entry {
  uint32_t below, above; /* in the stack, or TSR_NONE */
  uint32_t same_below;   /* the entry of the same name pushed before it, or TSR_NONE */
} entry;

typedef struct walk {
  const tsr_annotation *annotations;
  entry *entries;   /* by annotation */
  tsr__map last_of; /* name -> entry, or TSR_NONE */
  uint32_t top;     /* entry, or TSR_NONE */
  uint64_t open_count;
  tsr__annotations *out;
} walk;

static bool push(walk *w, uint32_t index) {
  uint64_t *last = tsr__map_put(&w->last_of, w->annotations[index].name, TSR_NONE, NULL);
  if (!last) return false;
  w->entries[index] = (entry){w->top, TSR_NONE, (uint32_t)*last};
  if (w->top != TSR_NONE) w->entries[w->top].above = index;
  assert(w->entries[index].same_below == TSR_NONE || w->entries[index].same_below < index);
  w->top = index;
  *last = index;
  w->open_count++;
  return true;
}

static void pop(walk *w, uint32_t index) {
  uint64_t *last = tsr__map_find(&w->last_of, w->annotations[index].name);
  if (!last || *last == TSR_NONE) {
    w->out->odd[TSR__ANNOTATION_NO_START]++;
    return;
  }
  uint32_t at = (uint32_t)*last;
  entry *gone = &w->entries[at];
  assert(w->open_count && w->annotations[at].name == w->annotations[index].name);
  assert((at == w->top) == (gone->above == TSR_NONE));
  if (at == w->top)
    w->top = gone->below;
  else
    w->out->odd[TSR__ANNOTATION_CROSSED]++;
  if (gone->below != TSR_NONE) w->entries[gone->below].above = gone->above;
  if (gone->above != TSR_NONE) w->entries[gone->above].below = gone->below;
  *last = gone->same_below;
  w->open_count--;
}

static bool apply(walk *w, uint32_t index) {
  const tsr_annotation *annotation = &w->annotations[index];
  if (annotation->is_start) return push(w, index);
  if (annotation->is_end)
    pop(w, index);
  else
    w->out->odd[TSR__ANNOTATION_UNUSABLE]++;
  return true;
}

/* From this event on, the name now on top. Spans that begin at one event are combined, and so are
 * neighbours with one name. */
static bool note_span(walk *w, uint64_t event) {
  uint32_t name = w->top == TSR_NONE ? TSR_NONE : w->annotations[w->top].name;
  size_t count = w->out->spans.count;
  tsr__annotation_span *spans = w->out->spans.items;
  if (count && spans[count - 1].first_event == event) w->out->spans.count = --count;
  if (count && spans[count - 1].name == name) return true;
  assert(!count || spans[count - 1].first_event < event);
  return TSR__VECTOR_PUSH(&w->out->spans, (tsr__annotation_span){event, name});
}

/* Entries without a time have no position, and must not delay the rest. */
static uint32_t skip_unusable(walk *w, uint32_t next, size_t count) {
  for (; next < count && w->annotations[next].time_us == TSR_TIME_NONE; next++)
    w->out->odd[TSR__ANNOTATION_UNUSABLE]++;
  return next;
}

static bool follow(walk *w, const tsr_events *events, size_t count) {
  uint32_t next = skip_unusable(w, 0, count);
  int64_t before_us = INT64_MIN;
  bool ok = note_span(w, 0);
  for (uint64_t event = 0; ok && event <= events->count; event++) {
    bool is_last = event == events->count; /* also takes the entries after all events */
    if (!is_last && events->time_us[event] == TSR_TIME_NONE) continue;
    uint32_t first = next;
    while (ok && next < count &&
           (is_last || w->annotations[next].time_us <= events->time_us[event])) {
      w->out->odd[TSR__ANNOTATION_LATE] += w->annotations[next].time_us < before_us;
      before_us = w->annotations[next].time_us;
      ok = apply(w, next);
      next = skip_unusable(w, next + 1, count);
    }
    if (ok && next != first && !is_last) ok = note_span(w, event);
  }
  w->out->odd[TSR__ANNOTATION_NO_END] = w->open_count;
  return ok;
}

int tsr__annotations_compute(const tsr_snapshot *snapshot, const tsr_events *events,
                             tsr__annotations *out, tsr_error *error) {
  size_t count;
  tsr__annotations result = {0};
  walk w = {.top = TSR_NONE, .out = &result};
  w.annotations = tsr_snapshot_annotations(snapshot, &count);
  if (count >= TSR_NONE) count = TSR_NONE - 1;
  w.entries = TSR__NEW_ARRAY(entry, count);
  bool ok = w.entries && follow(&w, events, count);
  tsr__free(w.entries);
  tsr__map_release(&w.last_of);
  if (ok) {
    *out = result;
    return 0;
  }
  tsr__annotations_release(&result);
  return tsr__fail_memory(error);
}

void tsr__annotations_release(tsr__annotations *annotations) {
  TSR__VECTOR_FREE(&annotations->spans);
}

size_t tsr__annotations_span(const tsr__annotations *annotations, uint64_t event) {
  size_t low = 0, high = annotations->spans.count;
  assert(high && annotations->spans.items[0].first_event == 0);
  while (high - low > 1) {
    size_t middle = low + (high - low) / 2;
    if (annotations->spans.items[middle].first_event <= event)
      low = middle;
    else
      high = middle;
  }
  return low;
}

size_t tsr__annotations_warnings(const tsr__annotations *annotations, tsr_warning *out) {
  static const tsr_warning texts[TSR__ANNOTATION_ODD_COUNT] = {
      {"annotation-without-start", 0, "annotations have an END without a START; these are ignored"},
      {"annotation-without-end", 0, "annotations have a START without an END"},
      {"annotations-overlap", 0,
       "annotations end while a later one is still open; the later ones stay open"},
      {"annotations-out-of-order", 0,
       "annotations are out of order in time; they count as simultaneous with the previous one"},
      {"annotation-unusable", 0, "annotations are neither START nor END, or have no time"},
  };
  size_t count = 0;
  for (size_t i = 0; i < TSR__ANNOTATION_ODD_COUNT; i++) {
    if (!annotations->odd[i]) continue;
    out[count] = texts[i];
    out[count++].count = annotations->odd[i];
  }
  return count;
}
