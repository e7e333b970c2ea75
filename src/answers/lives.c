/* lives.c - every allocation from birth to death: the timeline's own columns behind a public face. */
#include "answers/query.h"
#include "attribution/kind.h"
#include "base/memory.h"
#include "tessera/allocations.h"
#include "timeline/sweep.h"

struct tsr_lives {
  tsr__timeline timeline;
  tsr__kinds kinds;
};

int tsr_lives_compute(const tsr_snapshot *snapshot, uint32_t device, tsr_lives **out,
                      tsr_error *error) {
  const tsr_query query = {.devices = &device, .device_count = 1};
  const uint32_t *devices;
  size_t count;
  tsr__roles roles = {0};
  int status = tsr__query_devices(snapshot, &query, &devices, &count, error);
  if (status) return status;
  tsr_lives *lives = TSR__NEW(tsr_lives);
  if (!lives) return tsr__fail_memory(error);
  status = tsr__timeline_compute(snapshot, device, false, &lives->timeline, error);
  if (!status) status = tsr__roles_compute(snapshot, &roles, error);
  if (!status) status = tsr__kinds_of_timeline(&lives->timeline, &roles, &lives->kinds, error);
  tsr__roles_release(&roles);
  if (status)
    tsr_lives_free(lives);
  else
    *out = lives;
  return status;
}

void tsr_lives_free(tsr_lives *lives) {
  if (!lives) return;
  tsr__kinds_release(&lives->kinds);
  tsr__timeline_release(&lives->timeline);
  tsr__free(lives);
}

size_t tsr_lives_count(const tsr_lives *lives) {
  return lives->timeline.birth.count;
}

tsr_life tsr_lives_at(const tsr_lives *lives, size_t index) {
  const tsr__timeline *t = &lives->timeline;
  uint32_t allocation = (uint32_t)index;
  uint32_t birth = t->birth.items[index], death = t->death.items[index];
  bool is_initial = index < t->initial.count;
  uint32_t stack = tsr__timeline_stack(t, allocation);
  return (tsr_life){
      .birth = is_initial ? -1 : (int64_t)birth,
      .death = death == TSR_NONE ? (int64_t)t->events.count : (int64_t)death,
      .address = tsr__timeline_address(t, allocation),
      .requested_bytes = tsr__timeline_requested(t, allocation),
      .block_bytes = t->block_bytes.items[index],
      .stack = stack,
      .stream = is_initial ? TSR_NONE : tsr_id_at(t->events.stream, birth),
      .kind = (tsr_kind)lives->kinds.kind[index],
      .phase = (tsr_phase)lives->kinds.phase[index],
      .evidence = (tsr_evidence)lives->kinds.evidence[index],
  };
}

int tsr_lives_walk(const tsr_lives *lives, tsr_turn_fn *turn, void *context, tsr_error *error) {
  tsr__sweep sweep;
  int status = tsr__sweep_begin(&lives->timeline, &sweep, error);
  if (status) return status;
  do {
    tsr_turn now = {sweep.event, sweep.totals, sweep.born, sweep.died, sweep.died_count};
    status = turn(context, &now);
  } while (!status && tsr__sweep_next(&sweep));
  tsr__sweep_release(&sweep);
  return status;
}
