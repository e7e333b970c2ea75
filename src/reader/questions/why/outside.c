/* outside.c - what held the card besides PyTorch when memory ran out, by the ledger; and whether that is why.
 *
 * A part is the cause if it holds as much as was missing, and more than such a thing takes in a run that is as it should be:
 *
 *   other processes     256 MiB and a 128th of the card, together
 *   groups of NCCL      a 32nd of the card, together
 *   the CUDA context    1.5 GiB
 *   nobody's            a 32nd of the card
 *   growth              64 MiB, of any of these, since the second step. A library that was loaded late does not grow, and a
 *                       process or group that was not there before does if it goes on to
 *
 * If several are, the one that holds most beyond that is first. Of what grew, growth is the cause if it is at least half of the part. */
#include <string.h>

#include "base/checked.h"
#include "base/memory.h"
#include "base/sort.h"
#include "questions/why/outlook.h"

#define MIB ((uint64_t)1 << 20)

/* ---- The parts ---- */

static int compare_outside(const void *a, const void *b) {
  const tsr_why_outside *x = a, *y = b;
  return (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

static bool is_outside(tsr_card_kind kind) {
  return kind > TSR_CARD_CACHED && kind < TSR_CARD_TWICE;
}

static uint64_t positive(int64_t bytes) {
  return bytes > 0 ? (uint64_t)bytes : 0;
}

/* Growth is known up to the end, where failures mostly are; of one before, only what had grown by then counts. */
static uint64_t growth_of(const tsr_card_use *use, const tsr_card_part *part,
                          tsr_card_moment_kind moment) {
  const tsr_card_moment *early = &use->moments[TSR_CARD_EARLY];
  bool is_known = early->is_there && use->moments[moment].time_us >= early->time_us &&
                  part->is_known[TSR_CARD_EARLY] && part->is_known[moment];
  return is_known ? positive(part->bytes[moment] - part->bytes[TSR_CARD_EARLY]) : 0;
}

static bool take_parts(const tsr_card_use *use, tsr_card_moment_kind moment,
                       tsr_why_device *device) {
  device->outside = TSR__NEW_ARRAY(tsr_why_outside, use->part_count);
  if (!device->outside) return false;
  for (size_t i = 0; i < use->part_count; i++) {
    const tsr_card_part *part = &use->parts[i];
    if (!is_outside(part->kind) || part->bytes[moment] <= 0) continue;
    uint64_t grew = growth_of(use, part, moment);
    device->outside[device->outside_count++] =
        (tsr_why_outside){.kind = part->kind,
                          .name = part->name,
                          .pid = part->pid,
                          .ranks = part->ranks,
                          .bytes = (uint64_t)part->bytes[moment],
                          .grew_bytes = grew,
                          .is_steady = grew && part->is_steady};
  }
  tsr__sort(device->outside, device->outside_count, sizeof *device->outside, compare_outside);
  device->outside_us = use->moments[moment].time_us;
  return true;
}

/* ---- The causes ---- */

static tsr_why_outside_cause sum_of(const tsr_why_device *d, tsr_card_kind kind,
                                    tsr_card_kind or_kind, tsr_why_outside_sort sort,
                                    uint64_t usual_bytes) {
  tsr_why_outside_cause c = {.part = TSR_NONE, .usual_bytes = usual_bytes, .sort = sort};
  for (uint32_t i = 0; i < d->outside_count; i++) {
    if (d->outside[i].kind != kind && d->outside[i].kind != or_kind) continue;
    if (c.part == TSR_NONE) c.part = i;
    c.bytes = tsr__sum_u64(c.bytes, d->outside[i].bytes);
  }
  return c;
}

static tsr_why_outside_cause most_grown(const tsr_why_device *d) {
  tsr_why_outside_cause c = {
      .part = TSR_NONE, .usual_bytes = 64 * MIB, .sort = TSR_WHY_OUTSIDE_GROWTH};
  for (uint32_t i = 0; i < d->outside_count; i++) {
    const tsr_why_outside *o = &d->outside[i];
    bool is_new = (o->kind == TSR_CARD_PROCESS || o->kind == TSR_CARD_COMMUNICATOR) &&
                  o->grew_bytes == o->bytes && !o->is_steady;
    if (o->kind == TSR_CARD_LIBRARY || is_new) continue;
    if (o->grew_bytes < o->bytes / 2 || o->grew_bytes <= c.bytes) continue;
    c.part = i;
    c.bytes = o->grew_bytes;
  }
  return c;
}

static int compare_causes(const void *a, const void *b) {
  const tsr_why_outside_cause *x = a, *y = b;
  uint64_t p = x->bytes - x->usual_bytes, q = y->bytes - y->usual_bytes;
  return (p < q) - (p > q);
}

/* Of a part that grew, growth is the cause, and its size is no other one. */
void tsr__why_find_outside(tsr_why_device *d) {
  uint64_t card = d->capacity_bytes;
  const tsr_why_outside_cause candidates[] = {
      most_grown(d),
      sum_of(d, TSR_CARD_PROCESS, TSR_CARD_PROCESS, TSR_WHY_OUTSIDE_PROCESS,
             256 * MIB > card / 128 ? 256 * MIB : card / 128),
      sum_of(d, TSR_CARD_COMMUNICATOR, TSR_CARD_COMMUNICATOR, TSR_WHY_OUTSIDE_GROUPS, card / 32),
      sum_of(d, TSR_CARD_CONTEXT, TSR_CARD_CONTEXT, TSR_WHY_OUTSIDE_CONTEXT, 1536 * MIB),
      sum_of(d, TSR_CARD_UNACCOUNTED, TSR_CARD_HERE, TSR_WHY_OUTSIDE_REST, card / 32)};
  uint32_t grown = TSR_NONE;
  for (size_t i = 0; i < sizeof candidates / sizeof *candidates; i++) {
    const tsr_why_outside_cause *c = &candidates[i];
    if (c->part == TSR_NONE || c->bytes < d->missing_bytes || c->bytes <= c->usual_bytes) continue;
    uint64_t others = i && c->part == grown ? c->bytes - d->outside[grown].bytes : c->bytes;
    if (others <= c->usual_bytes) continue;
    if (!i) grown = c->part;
    d->outside_causes[d->outside_cause_count++] = *c;
  }
  tsr__sort(d->outside_causes, d->outside_cause_count, sizeof *d->outside_causes, compare_causes);
}

/* The time of the sample that is about a failure: the last one before, or the one that the recorder takes right after it. */
static int64_t time_of_sample(const tsr_ledger *ledger, int64_t time_us) {
  enum { SOON_US = 1000000 };
  uint32_t before = tsr_ledger_sample_at(ledger, time_us);
  size_t after = before == TSR_NONE ? 0 : before + 1;
  if (after >= ledger->sample_count) return time_us;
  int64_t late_us = ledger->time_us[after] - time_us;
  bool is_nearer = before == TSR_NONE || late_us < time_us - ledger->time_us[before];
  bool is_known = tsr_ledger_value(ledger->used_bytes, after) != TSR_LEDGER_UNKNOWN;
  return is_nearer && is_known && late_us < SOON_US ? ledger->time_us[after] : time_us;
}

int tsr__why_look_outside(tsr_study *study, tsr_why_device *device, tsr_error *error) {
  const tsr_snapshot *snapshot = tsr_study_snapshot(study);
  device->outside_us = TSR_TIME_NONE;
  const tsr_ledger *ledger = tsr_snapshot_ledger(snapshot, device->device);
  if (device->device == TSR_DEVICE_HOST || !ledger) return 0;
  int64_t time_us = device->moment.time_us;
  if (device->oom_count && time_us > 0) time_us = time_of_sample(ledger, time_us);
  const tsr_card_options how = {.has_time = time_us != TSR_TIME_NONE,
                                .time_us = time_us,
                                .has_device = true,
                                .device = device->device};
  int status = tsr_cards_compute(study, &how, &device->ledger, error);
  if (status || device->ledger->card_count != 1) return status;
  const tsr_card_use *use = &device->ledger->cards[0];
  if (use->source != TSR_CARD_FROM_LEDGER) return 0;
  tsr_card_moment_kind moment =
      how.has_time && use->moments[TSR_CARD_AT].is_there ? TSR_CARD_AT : TSR_CARD_END;
  if (!take_parts(use, moment, device)) return tsr__fail_memory(error);
  device->asleep_bytes = use->holders[0].asleep_bytes[moment];
  return 0;
}
