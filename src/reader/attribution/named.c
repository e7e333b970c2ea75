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
#include <string.h>

#include "base/checked.h"
#include "base/memory.h"
#include "base/sort.h"
#include "formats/sidecar.h"

static const tsr_tensor *tensors_in(const tsr__timeline *timeline, uint32_t allocation,
                                    size_t *count) {
  *count = 0;
  if (timeline->death.items[allocation] != TSR_NONE) return NULL;
  return tsr_snapshot_tensors_in(timeline->snapshot, timeline->device,
                                 tsr__timeline_address(timeline, allocation), count);
}

static bool is_said(const tsr_tensor *tensor) {
  return !strcmp(tensor->type, TSR__SIDECAR_SAID);
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

static bool set_own(reading *r, size_t allocation, uint32_t remark) {
  if (!r->out->own) r->out->own = TSR__NEW_ARRAY(uint32_t, r->out->timeline->birth.count);
  if (!r->out->own) return false;
  r->out->own[allocation] = remark;
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
    if (remark && !set_own(r, i, remark)) return false;
  }
  return true;
}

/* What a sidecar has of the program's words on an allocation. Mostly, neighbours have the same. */
static bool read_said(reading *r) {
  const tsr__timeline *t = r->out->timeline;
  const tsr_tensor *last = NULL;
  uint32_t remark = 0;
  for (uint32_t i = 0; r->out->has_tensors && i < (uint32_t)t->birth.count; i++) {
    size_t count;
    const tsr_tensor *tensors = tensors_in(t, i, &count);
    for (size_t k = 0; k < count; k++) {
      if (!is_said(&tensors[k])) continue;
      r->out->has_said = true;
      if (r->out->own && r->out->own[i]) continue;
      if (!last || strcmp(last->name, tensors[k].name) != 0) {
        tsr__remark read;
        tsr_text text = {tensors[k].name, strlen(tensors[k].name)};
        if (!tsr__remark_read(text, &r->out->texts, &read)) return false;
        if (read.name.size_bytes && !TSR__VECTOR_PUSH(&r->out->remarks, read)) return false;
        remark = read.name.size_bytes ? (uint32_t)r->out->remarks.count : 0;
        last = &tensors[k];
      }
      if (remark && !set_own(r, i, remark)) return false;
    }
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
  tsr__sort(list, count, sizeof *list, compare_repeats);
  for (size_t i = 0; i < count; i++) {
    assert(kept <= i);
    bool is_repeat = kept && list[kept - 1].note.allocation == list[i].note.allocation &&
                     list[kept - 1].remark == list[i].remark;
    if (!is_repeat) list[kept++] = list[i];
  }
  tsr__sort(list, kept, sizeof *list, compare_placed);
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
  bool ok = read_own(&r) && read_said(&r) && read_notes(&r);
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

static tsr_text text_of(const char *string) {
  return (tsr_text){string, strlen(string)};
}

static bool is_same(tsr_text a, tsr_text b) {
  return a.size_bytes == b.size_bytes && !memcmp(a.data, b.data, a.size_bytes);
}

/* The tensors of an allocation: `*count` rows, of which `*shown` are tensors. */
static const tsr_tensor *tensors_of(const tsr__names *names, uint32_t allocation, size_t *count,
                                    size_t *shown) {
  *count = *shown = 0;
  const tsr_tensor *tensors =
      names->has_tensors ? tensors_in(names->timeline, allocation, count) : NULL;
  for (size_t i = 0; names->has_said && i < *count; i++) *shown += !is_said(&tensors[i]);
  if (!names->has_said) *shown = *count;
  return tensors;
}

/* Whether a tensor has the name already. */
static bool is_repeated(const tsr__names *names, const tsr_tensor *tensors, size_t count,
                        uint32_t remark) {
  for (size_t i = 0; i < count; i++)
    if (!is_said(&tensors[i]) &&
        is_same(text_of(tensors[i].name), names->remarks.items[remark].name))
      return true;
  return false;
}

/* The metadata, unless an annotation or a tensor repeats it. */
static uint32_t own_of(const tsr__names *names, uint32_t allocation, const tsr_tensor *tensors,
                       size_t tensor_count) {
  size_t count;
  uint32_t own = tsr__names_metadata(names, allocation);
  if (own == TSR_NONE || is_repeated(names, tensors, tensor_count, own)) return TSR_NONE;
  const tsr__note_remark *notes = tsr__names_notes(names, allocation, &count);
  for (size_t i = 0; i < count; i++)
    if (notes[i].remark == own) return TSR_NONE;
  return own;
}

size_t tsr__names_count(const tsr__names *names, uint32_t allocation) {
  size_t tensor_count, shown, note_count;
  assert(allocation < names->timeline->birth.count);
  if (!tsr__names_any(names)) return 0;
  const tsr_tensor *tensors = tensors_of(names, allocation, &tensor_count, &shown);
  const tsr__note_remark *notes = tsr__names_notes(names, allocation, &note_count);
  size_t count = shown + (own_of(names, allocation, tensors, tensor_count) != TSR_NONE);
  for (size_t i = 0; i < note_count; i++)
    count += !is_repeated(names, tensors, tensor_count, notes[i].remark);
  return count;
}

static tsr__given_name name_of_tensor(const tsr_tensor *tensor) {
  return (tsr__given_name){.text = text_of(tensor->name),
                           .type = tensor->type,
                           .size_bytes = tensor->size_bytes,
                           .category = tensor->category,
                           .event = TSR_NONE,
                           .source = TSR_NAME_SIDECAR};
}

tsr__given_name tsr__names_at(const tsr__names *names, uint32_t allocation, size_t index) {
  size_t tensor_count, shown, note_count, at = 0;
  const tsr_tensor *tensors = tensors_of(names, allocation, &tensor_count, &shown);
  if (index < shown && shown == tensor_count) return name_of_tensor(&tensors[index]);
  for (size_t i = 0; index < shown && i < tensor_count; i++)
    if (!is_said(&tensors[i]) && at++ == index) return name_of_tensor(&tensors[i]);
  const tsr__note_remark *notes = tsr__names_notes(names, allocation, &note_count), *note = NULL;
  at = shown;
  for (size_t i = 0; !note && i < note_count; i++)
    if (!is_repeated(names, tensors, tensor_count, notes[i].remark) && at++ == index)
      note = &notes[i];
  uint32_t remark = note ? note->remark : own_of(names, allocation, tensors, tensor_count);
  assert(remark < names->remarks.count);
  const tsr__remark *said = &names->remarks.items[remark];
  return (tsr__given_name){.text = said->name,
                           .type = "",
                           .identity = (uint64_t)remark + 1,
                           .size_bytes = tsr__timeline_requested(names->timeline, allocation),
                           .category = said->category,
                           .event = note ? note->event : names->timeline->birth.items[allocation],
                           .source = note ? TSR_NAME_ANNOTATION : TSR_NAME_METADATA};
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
    if (is_said(&tensors[i])) continue;
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
