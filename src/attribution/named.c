/* named.c - names of allocations from three sources. See named.h.
 *
 * The sidecar's addresses are from the moment of the snapshot, which is the end of the trace: an
 * allocation that is live then is a block of the snapshot, at the same address. An earlier allocation
 * at that address is unrelated. Annotations were matched with allocations by the replay
 * (timeline/timeline.h).
 *
 * Texts repeat: each distinct string of the file is read once. */
#include "attribution/named.h"

#include <assert.h>
#include <stdlib.h>

#include "base/checked.h"
#include "base/memory.h"

static const tsr_tensor *tensors_in(const tsr__timeline *timeline, uint32_t allocation,
                                    size_t *count) {
  *count = 0;
  if (timeline->death.items[allocation] != TSR_NONE) return NULL;
  return tsr_snapshot_tensors_in(timeline->snapshot, timeline->device,
                                 tsr__timeline_address(timeline, allocation), count);
}

/* ---- Reading ---- */

typedef struct reading {
  tsr__names *out;
  tsr__map of_string; /* string id -> index in remarks plus 1; 0 for an empty text */
} reading;

/* Sets `*remark` to the index plus 1 of what a string says, 0 if nothing. False when out of memory. */
static bool remark_of(reading *r, uint32_t string, uint32_t *remark) {
  bool is_new = false;
  *remark = 0;
  if (string == TSR_NONE) return true;
  uint64_t *place = tsr__map_put(&r->of_string, string, 0, &is_new);
  if (!place) return false;
  if (is_new) {
    tsr__remark read;
    tsr_text text = tsr_snapshot_string(r->out->timeline->snapshot, string);
    if (!tsr__remark_read(text, &r->out->texts, &read)) return false;
    if (read.name.size_bytes && !TSR__VECTOR_PUSH(&r->out->remarks, read)) return false;
    *place = read.name.size_bytes ? r->out->remarks.count : 0;
  }
  *remark = (uint32_t)*place;
  assert(*remark <= r->out->remarks.count);
  return true;
}

/* The metadata of the events that made something. */
static bool read_own(reading *r) {
  const tsr__timeline *t = r->out->timeline;
  const tsr_id_column *metadata = &t->events.metadata;
  uint32_t last = TSR_NONE, remark = 0;
  if (!metadata->values && metadata->uniform == TSR_NONE) return true;
  for (size_t i = t->initial.count; i < t->birth.count; i++) {
    uint32_t string = tsr_id_at(*metadata, t->birth.items[i]);
    if (string != last && !remark_of(r, string, &remark)) return false;
    last = string;
    if (!remark) continue;
    if (!r->out->own) r->out->own = TSR__NEW_ARRAY(uint32_t, t->birth.count);
    if (!r->out->own) return false;
    r->out->own[i] = remark;
  }
  return true;
}

typedef struct placed {
  tsr__note note;
  uint32_t remark;
} placed;

static int compare_placed(const void *a, const void *b) {
  const placed *x = a, *y = b;
  if (x->note.allocation != y->note.allocation)
    return x->note.allocation < y->note.allocation ? -1 : 1;
  return (x->note.event > y->note.event) - (x->note.event < y->note.event);
}

static int compare_repeats(const void *a, const void *b) {
  const placed *x = a, *y = b;
  if (x->note.allocation != y->note.allocation)
    return x->note.allocation < y->note.allocation ? -1 : 1;
  if (x->remark != y->remark) return x->remark < y->remark ? -1 : 1;
  return (x->note.event < y->note.event) - (x->note.event > y->note.event);
}

/* Of an allocation's equal annotations only the last counts. Returns how many are left. */
static size_t drop_repeats(placed *list, size_t count) {
  size_t kept = 0;
  if (count) qsort(list, count, sizeof *list, compare_repeats);
  for (size_t i = 0; i < count; i++) {
    assert(kept <= i);
    bool is_repeat = kept && list[kept - 1].note.allocation == list[i].note.allocation &&
                     list[kept - 1].remark == list[i].remark;
    if (!is_repeat) list[kept++] = list[i];
  }
  if (kept) qsort(list, kept, sizeof *list, compare_placed);
  return kept;
}

static bool read_notes(reading *r) {
  const tsr__timeline *t = r->out->timeline;
  size_t count = 0;
  if (!t->notes.count) return true;
  placed *list = TSR__NEW_ARRAY(placed, t->notes.count);
  bool ok = list != NULL;
  for (size_t i = 0; ok && i < t->notes.count; i++) {
    uint32_t remark;
    tsr__note note = t->notes.items[i];
    ok = remark_of(r, tsr_id_at(t->events.metadata, note.event), &remark);
    if (ok && remark) list[count++] = (placed){note, remark - 1};
  }
  if (ok) count = drop_repeats(list, count);
  for (size_t i = 0; ok && i < count; i++)
    ok = TSR__VECTOR_PUSH(&r->out->notes, (tsr__note_remark){list[i].note.allocation,
                                                             list[i].remark, list[i].note.event});
  tsr__free(list);
  return ok;
}

int tsr__names_compute(const tsr__timeline *timeline, tsr__names *out, tsr_error *error) {
  size_t tensors;
  assert(timeline->birth.count >= timeline->initial.count);
  tsr__names names = {.timeline = timeline};
  reading r = {.out = &names};
  tsr__arena_init(&names.texts);
  names.has_tensors = tsr_snapshot_tensors(timeline->snapshot, &tensors) != NULL;
  bool ok = read_own(&r) && read_notes(&r);
  tsr__map_release(&r.of_string);
  if (ok)
    *out = names;
  else
    tsr__names_release(&names);
  return ok ? 0 : tsr__fail_memory(error);
}

void tsr__names_release(tsr__names *names) {
  tsr__arena_release(&names->texts);
  TSR__VECTOR_FREE(&names->remarks);
  TSR__VECTOR_FREE(&names->notes);
  tsr__free(names->own);
  *names = (tsr__names){0};
}

bool tsr__names_any(const tsr__names *names) {
  return names->has_tensors || names->own || names->notes.count;
}

/* ---- Names ---- */

uint32_t tsr__names_metadata(const tsr__names *names, uint32_t allocation) {
  assert(allocation < names->timeline->birth.count);
  return names->own && names->own[allocation] ? names->own[allocation] - 1 : TSR_NONE;
}

const tsr__note_remark *tsr__names_notes(const tsr__names *names, uint32_t allocation,
                                         size_t *count) {
  size_t low = 0, high = names->notes.count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (names->notes.items[middle].allocation < allocation)
      low = middle + 1;
    else
      high = middle;
  }
  const tsr__note_remark *first = names->notes.count ? names->notes.items + low : NULL;
  for (*count = 0; low + *count < names->notes.count; ++*count)
    if (first[*count].allocation != allocation) break;
  return first;
}

/* The metadata, unless an annotation repeats it. */
static uint32_t own_of(const tsr__names *names, uint32_t allocation) {
  size_t count;
  uint32_t own = tsr__names_metadata(names, allocation);
  if (own == TSR_NONE) return own;
  const tsr__note_remark *notes = tsr__names_notes(names, allocation, &count);
  for (size_t i = 0; i < count; i++)
    if (notes[i].remark == own) return TSR_NONE;
  return own;
}

size_t tsr__names_count(const tsr__names *names, uint32_t allocation) {
  size_t tensors = 0, notes = 0;
  assert(allocation < names->timeline->birth.count);
  if (!tsr__names_any(names)) return 0;
  if (names->has_tensors) (void)tensors_in(names->timeline, allocation, &tensors);
  (void)tsr__names_notes(names, allocation, &notes);
  return tensors + notes + (own_of(names, allocation) != TSR_NONE);
}

static tsr_text text_of(const char *string) {
  size_t size = 0;
  while (string[size]) size++;
  return (tsr_text){string, size};
}

tsr__given_name tsr__names_at(const tsr__names *names, uint32_t allocation, size_t index) {
  size_t tensor_count = 0, note_count;
  const tsr_tensor *tensors =
      names->has_tensors ? tensors_in(names->timeline, allocation, &tensor_count) : NULL;
  if (index < tensor_count)
    return (tsr__given_name){.text = text_of(tensors[index].name),
                             .type = tensors[index].type,
                             .size_bytes = tensors[index].size_bytes,
                             .category = tensors[index].category,
                             .event = TSR_NONE,
                             .source = TSR_NAME_SIDECAR};
  index -= tensor_count;
  const tsr__note_remark *notes = tsr__names_notes(names, allocation, &note_count);
  bool is_note = index < note_count;
  uint32_t remark = is_note ? notes[index].remark : own_of(names, allocation);
  assert(remark < names->remarks.count && (is_note || index == note_count));
  const tsr__remark *said = &names->remarks.items[remark];
  return (tsr__given_name){.text = said->name,
                           .type = "",
                           .identity = (uint64_t)remark + 1,
                           .size_bytes = tsr__timeline_requested(names->timeline, allocation),
                           .category = said->category,
                           .event = is_note ? notes[index].event
                                            : names->timeline->birth.items[allocation],
                           .source = is_note ? TSR_NAME_ANNOTATION : TSR_NAME_METADATA};
}

void tsr__names_append(const tsr__names *names, uint32_t allocation, tsr__buffer *out) {
  enum { MOST = 8 };
  size_t count = tsr__names_count(names, allocation);
  for (size_t i = 0; i < count && i < MOST; i++) {
    tsr_text text = tsr__names_at(names, allocation, i).text;
    if (i) tsr__buffer_text(out, ", ");
    tsr__buffer_append(out, text.data, text.size_bytes);
  }
  if (count > MOST) tsr__buffer_printf(out, " and %zu more", count - MOST);
}

/* ---- Categories ---- */

static bool category_of_tensors(const tsr__names *names, uint32_t allocation,
                                tsr_category *category) {
  uint64_t bytes[TSR_CATEGORY_COUNT] = {0}, most = 0;
  size_t count;
  const tsr_tensor *tensors = tensors_in(names->timeline, allocation, &count);
  for (size_t i = 0; i < count; i++) {
    assert(tensors[i].category < TSR_CATEGORY_COUNT);
    uint64_t *of_kind = &bytes[tensors[i].category];
    *of_kind = tsr__sum_u64(*of_kind, tensors[i].size_bytes);
    if (tensors[i].category == TSR_CATEGORY_UNKNOWN || *of_kind <= most) continue;
    most = *of_kind;
    *category = tensors[i].category;
  }
  return most;
}

bool tsr__names_category(const tsr__names *names, uint32_t allocation, tsr_category *category) {
  size_t count;
  assert(allocation < names->timeline->birth.count);
  if (names->has_tensors && category_of_tensors(names, allocation, category)) return true;
  const tsr__note_remark *notes = tsr__names_notes(names, allocation, &count);
  for (size_t i = count; i--;) {
    tsr_category said = names->remarks.items[notes[i].remark].category;
    if (said == TSR_CATEGORY_UNKNOWN) continue;
    *category = said;
    return true;
  }
  uint32_t own = tsr__names_metadata(names, allocation);
  if (own == TSR_NONE || names->remarks.items[own].category == TSR_CATEGORY_UNKNOWN) return false;
  *category = names->remarks.items[own].category;
  return true;
}
