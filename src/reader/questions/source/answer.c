/* answer.c - what the lines, functions and classes of a source file hold at the peak.
 *
 * The live set is summed by stack first, so each distinct stack is walked once. A walk goes from the
 * innermost frame outwards; the first frame in the file gets the stack's bytes as self, and each line
 * and definition gets them as inclusive on its first occurrence in this stack: `last_met`
 * stores the stack in which that was, so recursion counts once and nothing needs to be cleared. */
#include "questions/source/source.h"

#include <assert.h>
#include <string.h>

#include "base/buffer.h"
#include "base/checked.h"
#include "base/map.h"
#include "base/memory.h"
#include "base/sort.h"
#include "questions/shared/query.h"
#include "questions/shared/shares.h"
#include "questions/source/file.h"
#include "study/study.h"

/* Bytes of the names around a definition's that its own is given in full after. */
#define AROUND_MAX 512

typedef struct tally {
  tsr_source_use use;
  uint32_t line;
  uint32_t last_met; /* 1 + number of the stack */
} tally;

/* What the devices share. */
typedef struct inquiry {
  tsr_study *study;
  const tsr_snapshot *snapshot; /* the study's */
  tsr__source_frames frames;
  tsr__outline outline;
  size_t top;
} inquiry;

/* The sums of one device. */
typedef struct summing {
  const inquiry *q;
  tsr__map place; /* line -> index of its tally */
  TSR__VECTOR(tally) lines;
  tally *definitions;
  tsr_source_device *out;
} summing;

/* ---- summing ---- */

static void add_inclusive(tally *to, const tsr_stack_share *share, uint32_t stack) {
  if (to->last_met == stack) return;
  to->last_met = stack;
  to->use.inclusive_bytes = tsr__sum_u64(to->use.inclusive_bytes, share->bytes);
  to->use.inclusive_allocations += share->allocations;
}

static void add_self(tsr_source_use *to, const tsr_stack_share *share) {
  to->self_bytes = tsr__sum_u64(to->self_bytes, share->bytes);
  to->self_allocations += share->allocations;
}

/* The tally of a line; NULL when out of memory. */
static tally *tally_of(summing *s, uint32_t line) {
  bool added;
  uint64_t *index = tsr__map_put(&s->place, line, s->lines.count, &added);
  tally made = {.line = line};
  if (!index || (added && !TSR__VECTOR_PUSH(&s->lines, made))) return NULL;
  assert(*index < s->lines.count && s->lines.items[*index].line == line);
  return &s->lines.items[*index];
}

/* What is around a line takes the bytes too. */
static void add_around(summing *s, uint32_t line, bool is_innermost, const tsr_stack_share *share,
                       uint32_t stack) {
  const tsr__definition *definitions = s->q->outline.definitions.items;
  uint32_t owner = tsr__outline_at(&s->q->outline, line);
  for (uint32_t d = owner; d != TSR_NONE; d = definitions[d].parent) {
    if (!is_innermost && s->definitions[d].last_met == stack) break; /* so have those around it */
    add_inclusive(&s->definitions[d], share, stack);
    if (is_innermost && (d == owner || definitions[d].is_class))
      add_self(&s->definitions[d].use, share);
  }
}

static bool add_stack(summing *s, const tsr_stack_share *share, uint32_t number) {
  tsr_stack stack = tsr_snapshot_stack(s->q->snapshot, share->stack);
  bool is_innermost = true;
  for (uint32_t i = 0; i < stack.depth; i++) {
    uint32_t id = stack.frames[i];
    uint32_t line = id < s->q->frames.count ? s->q->frames.lines[id] : 0;
    if (!line) continue;
    if (is_innermost) {
      add_self(&s->out->whole, share);
      s->out->whole.inclusive_bytes = s->out->whole.self_bytes;
      s->out->whole.inclusive_allocations = s->out->whole.self_allocations;
    }
    if (line != TSR__LINE_SOMEWHERE) {
      tally *at = tally_of(s, line);
      if (!at) return false;
      if (is_innermost) add_self(&at->use, share);
      add_inclusive(at, share, number);
      add_around(s, line, is_innermost, share, number);
    }
    is_innermost = false;
  }
  return true;
}

/* ---- lists ---- */

static int compare_lines(const void *a, const void *b) {
  const tally *x = a, *y = b;
  return (x->line > y->line) - (x->line < y->line);
}

typedef struct rank {
  uint64_t self_bytes, inclusive_bytes;
  uint32_t index;
} rank;

static int compare_ranks(const void *a, const void *b) {
  const rank *x = a, *y = b;
  if (x->self_bytes != y->self_bytes) return x->self_bytes < y->self_bytes ? 1 : -1;
  if (x->inclusive_bytes != y->inclusive_bytes)
    return x->inclusive_bytes < y->inclusive_bytes ? 1 : -1;
  return (x->index > y->index) - (x->index < y->index);
}

/* The indexes of the ranks, best first, at most `top`; NULL when out of memory. */
static uint32_t *order(rank *ranks, size_t count, size_t top, size_t *kept, uint64_t *omitted) {
  uint32_t *indexes = TSR__NEW_ARRAY(uint32_t, count);
  if (!indexes) return NULL;
  tsr__sort(ranks, count, sizeof *ranks, compare_ranks);
  *kept = top && top < count ? top : count;
  assert(*kept <= count);
  *omitted = count - *kept;
  for (size_t i = 0; i < *kept; i++) indexes[i] = ranks[i].index;
  return indexes;
}

static bool list_lines(summing *s) {
  tsr_source_device *out = s->out;
  size_t count = s->lines.count;
  tsr__sort(s->lines.items, count, sizeof *s->lines.items, compare_lines);
  rank *ranks = TSR__NEW_ARRAY(rank, count);
  out->lines = TSR__NEW_ARRAY(tsr_source_line, count);
  bool ok = ranks && out->lines;
  for (uint32_t i = 0; ok && i < count; i++) {
    const tally *from = &s->lines.items[i];
    assert(from->use.self_bytes <= from->use.inclusive_bytes);
    assert(!i || from[-1].line < from->line);
    out->lines[out->line_count++] =
        (tsr_source_line){from->line, tsr__outline_at(&s->q->outline, from->line), from->use};
    ranks[i] = (rank){from->use.self_bytes, from->use.inclusive_bytes, i};
  }
  if (ok)
    out->top_lines = order(ranks, count, s->q->top, &out->top_line_count, &out->omitted_lines);
  tsr__free(ranks);
  return ok && out->top_lines;
}

/* The functions, or the classes, that hold something. */
static uint32_t *list_definitions(const summing *s, bool classes, size_t *kept, uint64_t *omitted) {
  size_t count = 0;
  rank *ranks = TSR__NEW_ARRAY(rank, s->q->outline.definitions.count);
  if (!ranks) return NULL;
  for (uint32_t i = 0; i < s->q->outline.definitions.count; i++) {
    const tsr_source_use *use = &s->definitions[i].use;
    assert(use->self_bytes <= use->inclusive_bytes &&
           use->self_allocations <= use->inclusive_allocations);
    if (use->inclusive_allocations && s->q->outline.definitions.items[i].is_class == classes)
      ranks[count++] = (rank){use->self_bytes, use->inclusive_bytes, i};
  }
  uint32_t *indexes = order(ranks, count, s->q->top, kept, omitted);
  tsr__free(ranks);
  return indexes;
}

static bool list_all(summing *s) {
  tsr_source_device *out = s->out;
  size_t count = s->q->outline.definitions.count;
  out->uses = TSR__NEW_ARRAY(tsr_source_use, count);
  if (!out->uses || !list_lines(s)) return false;
  for (size_t i = 0; i < count; i++) out->uses[i] = s->definitions[i].use;
  out->top_functions =
      list_definitions(s, false, &out->top_function_count, &out->omitted_functions);
  out->top_classes = list_definitions(s, true, &out->top_class_count, &out->omitted_classes);
  return out->top_functions && out->top_classes;
}

static bool sum(const inquiry *q, const tsr__shares *shares, tsr_source_device *out) {
  summing s = {.q = q, .out = out};
  s.definitions = TSR__NEW_ARRAY(tally, q->outline.definitions.count);
  bool ok = s.definitions != NULL;
  for (size_t i = 0; ok && i < shares->count; i++)
    ok = add_stack(&s, &shares->items[i], (uint32_t)i + 1);
  ok = ok && list_all(&s);
  tsr__map_release(&s.place);
  TSR__VECTOR_FREE(&s.lines);
  tsr__free(s.definitions);
  return ok;
}

/* ---- devices ---- */

static int describe(const inquiry *q, tsr_source_device *out, tsr_error *error) {
  const tsr__timeline *timeline;
  tsr__live_set live = {0};
  tsr__shares shares = {0};
  int status = tsr__study_timeline(q->study, out->device, &timeline, error);
  if (status) return status;
  int64_t event = timeline->allocated_event;
  out->event_count = timeline->events.count;
  out->peak = (tsr_moment){event, event < 0 ? TSR_TIME_NONE : timeline->events.time_us[event],
                           timeline->at_peak};
  status = tsr__timeline_live(timeline, event, &live, error);
  if (!status) status = tsr__shares_of(timeline, &live, NULL, NULL, 0, &shares, error);
  if (!status && !(sum(q, &shares, out) &&
                   (out->warnings = tsr__copy_warnings(timeline, &out->warning_count))))
    status = tsr__fail_memory(error);
  tsr__free(shares.items);
  TSR__VECTOR_FREE(&live);
  return status;
}

/* ---- what the answer keeps of the source ---- */

static const char *copy_name(const tsr_source *source, const tsr__outline *outline,
                             uint32_t index) {
  const tsr__definition *own = &outline->definitions.items[index];
  assert(own->parent == TSR_NONE || own->parent < index);
  const char *around = own->parent == TSR_NONE ? "" : source->definitions[own->parent].name;
  if (strlen(around) > AROUND_MAX) around = "..";
  size_t before = strlen(around) + (own->parent != TSR_NONE), size;
  size = before + own->name.size_bytes + 1;
  char *name = TSR__NEW_ARRAY(char, size);
  if (!name) return NULL;
  if (before) {
    memcpy(name, around, before - 1);
    name[before - 1] = '.';
  }
  memcpy(name + before, own->name.data, own->name.size_bytes);
  return name;
}

static bool copy_definitions(const tsr__outline *outline, tsr_source *out) {
  size_t count = outline->definitions.count;
  out->definitions = TSR__NEW_ARRAY(tsr_source_definition, count);
  if (!out->definitions) return false;
  for (uint32_t i = 0; i < count; i++) {
    const tsr__definition *from = &outline->definitions.items[i];
    const char *name = copy_name(out, outline, i);
    if (!name) return false;
    out->definitions[out->definition_count++] = (tsr_source_definition){
        name, from->is_class, from->parent, from->first_line, from->last_line};
  }
  return true;
}

/* One piece of memory: the lines' places, and after them their bytes. */
static bool copy_text(const tsr__outline *outline, const tsr_source_file *file, tsr_source *out) {
  size_t places = outline->lines.count * sizeof *out->text;
  char *memory = TSR__NEW_ARRAY(char, places + file->size_bytes);
  if (!memory) return false;
  char *bytes = memory + places;
  if (file->size_bytes) memcpy(bytes, file->text, file->size_bytes);
  out->text = (tsr_text *)(void *)memory;
  out->text_count = outline->lines.count;
  for (size_t i = 0; i < out->text_count; i++) {
    tsr_text line = outline->lines.items[i];
    assert(!line.size_bytes ||
           (size_t)(line.data - file->text) <= file->size_bytes - line.size_bytes);
    out->text[i] = (tsr_text){bytes + (line.data - file->text), line.size_bytes};
  }
  return true;
}

static int keep_source(inquiry *q, const tsr_source_file *file, tsr_source *out, tsr_error *error) {
  out->file = q->frames.file;
  out->other_files = TSR__NEW_ARRAY(uint32_t, q->frames.other_count);
  if (!out->other_files) return tsr__fail_memory(error);
  for (size_t i = 0; i < q->frames.other_count; i++)
    out->other_files[out->other_count++] = q->frames.other[i];
  if (!copy_definitions(&q->outline, out) || !copy_text(&q->outline, file, out))
    return tsr__fail_memory(error);
  return tsr__source_check(q->snapshot, &q->frames, &q->outline, out, error);
}

/* ---- the whole ---- */

static int fill(inquiry *q, const tsr_source_file *file, const uint32_t *devices, size_t count,
                tsr_source *out, tsr_error *error) {
  int status = tsr__outline_read((tsr_text){file->text, file->size_bytes}, &q->outline, error);
  if (!status) status = tsr__source_frames_find(q->snapshot, file->path, &q->frames, error);
  if (!status && !file->size_bytes && q->frames.file == TSR_NONE)
    status = tsr__fail(error, TSR_ERROR_IO, TSR_OFFSET_NONE,
                       "'%.200s' has no text here, and no file of the snapshot has its name",
                       file->path);
  if (!status) status = keep_source(q, file, out, error);
  if (!status && !(out->devices = TSR__NEW_ARRAY(tsr_source_device, count)))
    status = tsr__fail_memory(error);
  while (!status && out->device_count < count) {
    tsr_source_device *device = &out->devices[out->device_count];
    device->device = devices[out->device_count++];
    status = describe(q, device, error);
  }
  return status;
}

int tsr__source_of(tsr_study *study, const tsr_source_file *file, const uint32_t *devices,
                   size_t device_count, size_t top, tsr_source **out, tsr_error *error) {
  inquiry q = {.study = study, .snapshot = tsr_study_snapshot(study), .top = top};
  tsr_source *source = TSR__NEW(tsr_source);
  if (!source) return tsr__fail_memory(error);
  int status = fill(&q, file, devices, device_count, source, error);
  tsr__outline_release(&q.outline);
  tsr__source_frames_release(&q.frames);
  if (status)
    tsr_source_free(source);
  else
    *out = source;
  return status;
}

int tsr_source_compute(tsr_study *study, const tsr_source_file *file, const tsr_query *query,
                       tsr_source **out, tsr_error *error) {
  const tsr_snapshot *snapshot = tsr_study_snapshot(study);
  const uint32_t *devices;
  size_t count;
  int status = tsr__query_devices(snapshot, query, &devices, &count, error);
  if (status) return status;
  return tsr__source_of(study, file, devices, count, query ? query->top : 0, out, error);
}

void tsr_source_free(tsr_source *source) {
  if (!source) return;
  for (size_t i = 0; i < source->device_count; i++) {
    tsr_source_device *device = &source->devices[i];
    tsr__free(device->lines);
    tsr__free(device->uses);
    tsr__free(device->top_lines);
    tsr__free(device->top_functions);
    tsr__free(device->top_classes);
    tsr__free(device->warnings);
  }
  for (size_t i = 0; i < source->definition_count; i++)
    tsr__free((void *)(uintptr_t)source->definitions[i].name);
  tsr__free(source->devices);
  tsr__free(source->other_files);
  tsr__free(source->definitions);
  tsr__free(source->text);
  tsr__free(source);
}
