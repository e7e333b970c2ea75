/* lives.c - every allocation with its lifetime: a public interface to the columns of the timelines.
 * Nothing is copied; an answer is a list of devices whose timelines and categories exist.
 * See tessera/unstable/allocations.h; the writers of tables and time lines read it. */
#include <assert.h>

#include "attribution/named.h"
#include "base/memory.h"
#include "export/lives.h"
#include "questions/shared/query.h"
#include "study/study.h"
#include "tessera/unstable/allocations.h"
#include "timeline/sweep.h"

/* What the study keeps of a device. */
typedef struct part {
  const tsr__timeline *timeline;
  const tsr__categories *categories;
  const tsr__names *names;
} part;

struct tsr_lives {
  part *parts;
  size_t count;
};

static int fill(tsr_study *study, const uint32_t *devices, size_t count, tsr_lives *lives,
                tsr_error *error) {
  int status = tsr__study_prepare(study, devices, count, TSR__NEED_CATEGORIES, error);
  while (!status && lives->count < count) {
    part *p = &lives->parts[lives->count];
    uint32_t device = devices[lives->count++];
    status = tsr__study_timeline(study, device, &p->timeline, error);
    if (!status) status = tsr__study_categories(study, device, &p->categories, error);
    if (!status) status = tsr__study_names(study, device, &p->names, error);
  }
  return status;
}

int tsr_lives_compute(tsr_study *study, const tsr_query *query, tsr_lives **out, tsr_error *error) {
  const uint32_t *devices;
  size_t count;
  int status = tsr__query_devices(tsr_study_snapshot(study), query, &devices, &count, error);
  if (status) return status;
  tsr_lives *lives = TSR__NEW(tsr_lives);
  if (!lives) return tsr__fail_memory(error);
  lives->parts = TSR__NEW_ARRAY(part, count);
  status = lives->parts ? fill(study, devices, count, lives, error) : tsr__fail_memory(error);
  if (status)
    tsr_lives_free(lives);
  else
    *out = lives;
  return status;
}

void tsr_lives_free(tsr_lives *lives) {
  if (!lives) return;
  tsr__free(lives->parts);
  tsr__free(lives);
}

size_t tsr_lives_device_count(const tsr_lives *lives) {
  return lives->count;
}

static const part *part_at(const tsr_lives *lives, size_t place) {
  assert(place < lives->count);
  return &lives->parts[place];
}

uint32_t tsr_lives_device(const tsr_lives *lives, size_t place) {
  return part_at(lives, place)->timeline->device;
}

size_t tsr_lives_count(const tsr_lives *lives, size_t place) {
  return part_at(lives, place)->timeline->birth.count;
}

tsr_life tsr_lives_at(const tsr_lives *lives, size_t place, size_t index) {
  const part *p = part_at(lives, place);
  const tsr__timeline *t = p->timeline;
  assert(index < t->birth.count && t->birth.count == p->categories->count);
  uint32_t allocation = (uint32_t)index;
  uint32_t birth = t->birth.items[index], death = t->death.items[index];
  bool is_initial = index < t->initial.count;
  uint32_t stack = tsr__timeline_stack(t, allocation);
  assert(death == TSR_NONE || death < t->events.count);
  return (tsr_life){
      .birth = is_initial ? -1 : (int64_t)birth,
      .death = death == TSR_NONE ? (int64_t)t->events.count : (int64_t)death,
      .address = tsr__timeline_address(t, allocation),
      .requested_bytes = tsr__timeline_requested(t, allocation),
      .block_bytes = t->block_bytes.items[index],
      .stack = stack,
      .stream = is_initial ? TSR_NONE : tsr_id_at(t->events.stream, birth),
      .category = (tsr_category)p->categories->category[index],
      .phase = (tsr_phase)p->categories->phase[index],
      .evidence = (tsr_evidence)p->categories->evidence[index],
  };
}

int tsr_lives_walk(const tsr_lives *lives, size_t place, tsr_turn_fn *turn, void *context,
                   tsr_error *error) {
  tsr__sweep sweep;
  int status = tsr__sweep_begin(part_at(lives, place)->timeline, &sweep, error);
  if (status) return status;
  do {
    tsr_turn now = {sweep.event, sweep.totals, sweep.born, sweep.died};
    status = turn(context, &now);
  } while (!status && tsr__sweep_next(&sweep));
  tsr__sweep_release(&sweep);
  return status;
}

void tsr__lives_append_names(const tsr_lives *lives, size_t place, size_t index, tsr__buffer *out) {
  const part *p = part_at(lives, place);
  assert(index < p->timeline->birth.count);
  tsr__names_append(p->names, (uint32_t)index, out);
}
