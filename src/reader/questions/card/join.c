/* join.c - processes that share a card, on one clock.
 *
 *   engine    ████████████▁▁▁▁▁▁▁▁▁▁████████████      what it holds at a time: reserved - unmapped, its context, libraries and groups
 *   trainer   ▁▁▁▁▁▁▁▁▁▁▁▁██████████▁▁▁▁▁▁▁▁▁▁▁▁
 *             rollout     training  rollout
 *
 * Reserved memory is that of the trace where the trace has times, at every event; otherwise that of the ledger's last sample. The rest is
 * of the ledger. All times at which anything changes are visited once, in order, with a cursor into each process's data, and with what
 * each phase needs: it is a range of the program's own, and a process is in at most one at a time.
 *
 * For a phase to fit, the others may hold what its own process does not need, of the card without what is nobody's among them (the driver,
 * other processes, the rest). What they held before, beyond that, is what they must have released when it begins. */
#include <assert.h>
#include <string.h>

#include "base/checked.h"
#include "base/sort.h"
#include "questions/card/card.h"
#include "questions/shared/ledger.h"

enum { MOST_PHASES = 256 };
#define GRACE_US 2000000

typedef TSR__VECTOR(int64_t) time_list;

/* A process while the times are visited. */
typedef struct cursor {
  const tsr__card_member *member;
  size_t steps;           /* of its trace, that are past */
  size_t samples;         /* of its ledger, likewise */
  size_t ranges;          /* that have begun */
  uint32_t phase;         /* that is open, or TSR_NONE */
  int64_t from_us, to_us; /* when it began, and ends */
  size_t ooms;
  uint64_t bytes; /* what it holds */
} cursor;

/* A phase while it is looked for. */
typedef struct row {
  tsr_card_phase phase;
  uint64_t gap_bytes; /* the most that others held since it ended */
  uint32_t gap_holder;
} row;

typedef struct joiner {
  cursor *cursors;
  size_t count;
  TSR__VECTOR(row) rows;
  uint64_t sum;
  tsr_card_use *out;
} joiner;

/* ---- Times ---- */

static bool list_times(const tsr__card_member *m, time_list *out) {
  size_t samples = m->ledger ? m->ledger->sample_count : 0;
  bool ok = true;
  for (size_t i = 0; ok && i < samples; i++) ok = TSR__VECTOR_PUSH(out, m->ledger->time_us[i]);
  for (size_t i = 0; ok && i < m->reserved.count; i++)
    ok = TSR__VECTOR_PUSH(out, m->reserved.items[i].time_us);
  for (size_t i = 0; ok && i < m->ranges.count; i++)
    ok = TSR__VECTOR_PUSH(out, m->ranges.items[i].from_us) &&
         TSR__VECTOR_PUSH(out, m->ranges.items[i].to_us);
  for (size_t i = 0; ok && i < m->ooms.count; i++)
    ok = TSR__VECTOR_PUSH(out, m->ooms.items[i].time_us);
  return ok;
}

static int compare_times(const void *a, const void *b) {
  const int64_t *x = a, *y = b;
  return (*x > *y) - (*x < *y);
}

/* ---- What a process holds ---- */

/* After its last sample a process counts for a while, and as long as its trace goes on. Without a ledger nobody knows when it ended. */
static bool is_over(const cursor *c, int64_t time_us) {
  const tsr__card_member *m = c->member;
  const tsr_ledger *l = m->ledger;
  if (!l || c->samples < l->sample_count || c->steps < m->reserved.count) return false;
  int64_t last_us = l->time_us[l->sample_count - 1];
  if (m->reserved.count && m->reserved.items[m->reserved.count - 1].time_us > last_us)
    last_us = m->reserved.items[m->reserved.count - 1].time_us;
  return time_us > last_us && time_us - last_us > GRACE_US;
}

static void advance(cursor *c, int64_t time_us) {
  const tsr__card_member *m = c->member;
  const tsr_ledger *l = m->ledger;
  tsr__ledger_own own = {0};
  while (c->steps < m->reserved.count && m->reserved.items[c->steps].time_us <= time_us) c->steps++;
  while (l && c->samples < l->sample_count && l->time_us[c->samples] <= time_us) c->samples++;
  c->bytes = 0;
  if (is_over(c, time_us)) return;
  if (c->samples) tsr__ledger_own_at(l, c->samples - 1, &own);
  if (c->steps) {
    uint64_t mapped = tsr__drop_u64(m->reserved.items[c->steps - 1].bytes, own.asleep_bytes);
    own.allocated_bytes = mapped < (UINT64_C(1) << 50) ? mapped : UINT64_C(1) << 50;
    own.cached_bytes = 0;
  }
  c->bytes = tsr__ledger_sum(&own);
}

/* ---- Phases ---- */

/* The row of a phase of a holder, added if it is new; TSR_NONE if there are too many, or out of memory, which is `*ok`. */
static uint32_t row_of(joiner *j, uint32_t holder, const char *name, bool *ok) {
  for (size_t i = 0; i < j->rows.count; i++)
    if (j->rows.items[i].phase.holder == holder && !strcmp(j->rows.items[i].phase.name, name))
      return (uint32_t)i;
  if (j->rows.count >= MOST_PHASES) return TSR_NONE;
  row made = {.phase = {.name = name, .holder = holder, .releaser = TSR_NONE},
              .gap_holder = TSR_NONE};
  *ok = TSR__VECTOR_PUSH(&j->rows, made);
  return *ok ? (uint32_t)(j->rows.count - 1) : TSR_NONE;
}

/* Who of the others holds most; TSR_NONE if nobody holds anything. */
static uint32_t largest_other(const joiner *j, size_t holder) {
  uint32_t most = TSR_NONE;
  for (size_t i = 0; i < j->count; i++)
    if (i != holder && j->cursors[i].bytes &&
        (most == TSR_NONE || j->cursors[i].bytes > j->cursors[most].bytes))
      most = (uint32_t)i;
  return most;
}

static void begin(joiner *j, size_t holder, int64_t from_us, row *r) {
  uint64_t others = j->sum - j->cursors[holder].bytes;
  bool is_most = !r->phase.times || r->gap_bytes > r->phase.before_bytes;
  r->phase.times++;
  if (!is_most) return;
  r->phase.first_us = from_us;
  r->phase.before_bytes = r->gap_bytes;
  r->phase.start_bytes = others;
  r->phase.releaser = r->gap_holder;
}

/* The open phase of a process, at a time that is in it. */
static void take_part(joiner *j, size_t holder, int64_t time_us, row *r) {
  cursor *c = &j->cursors[holder];
  const tsr__card_member *m = c->member;
  tsr_card_phase *phase = &r->phase;
  if (c->bytes > phase->needs_bytes) phase->needs_bytes = c->bytes;
  if (j->sum > phase->sum_bytes) {
    phase->sum_bytes = j->sum;
    phase->others_bytes = j->sum - c->bytes;
  }
  for (; c->ooms < m->ooms.count && m->ooms.items[c->ooms].time_us <= time_us; c->ooms++) {
    uint64_t missing = m->ooms.items[c->ooms].missing_bytes;
    uint64_t needed = tsr__sum_u64(c->bytes, missing);
    if (missing > phase->missing_bytes) phase->missing_bytes = missing;
    if (needed > phase->needs_bytes) phase->needs_bytes = needed;
  }
}

/* What the others hold outside a phase of this holder. */
static void leave_part(joiner *j, size_t holder) {
  uint64_t others = j->sum - j->cursors[holder].bytes;
  for (size_t i = 0; i < j->rows.count; i++) {
    row *r = &j->rows.items[i];
    bool is_open = j->cursors[holder].phase == i;
    if (r->phase.holder != holder || is_open || others <= r->gap_bytes) continue;
    r->gap_bytes = others;
    r->gap_holder = largest_other(j, holder);
  }
}

/* All phases that a holder has get a row before the times are visited, so that what was held before the first one counts. */
static bool list_rows(joiner *j) {
  bool ok = true;
  for (size_t h = 0; ok && h < j->count; h++)
    for (size_t i = 0; ok && i < j->cursors[h].member->ranges.count; i++)
      (void)row_of(j, (uint32_t)h, j->cursors[h].member->ranges.items[i].name, &ok);
  return ok;
}

static void visit(joiner *j, size_t holder, int64_t time_us) {
  cursor *c = &j->cursors[holder];
  const tsr__card_member *m = c->member;
  bool ok = true;
  if (c->phase != TSR_NONE && time_us >= c->to_us && time_us > c->from_us) {
    j->rows.items[c->phase].gap_bytes = 0;
    j->rows.items[c->phase].gap_holder = TSR_NONE;
    c->phase = TSR_NONE;
  }
  while (c->phase == TSR_NONE && c->ranges < m->ranges.count &&
         m->ranges.items[c->ranges].from_us <= time_us) {
    const tsr__card_range *range = &m->ranges.items[c->ranges++];
    uint32_t index = row_of(j, (uint32_t)holder, range->name, &ok);
    if (index == TSR_NONE) continue;
    begin(j, holder, range->from_us, &j->rows.items[index]);
    c->phase = index;
    c->from_us = time_us;
    c->to_us = range->to_us;
  }
  if (c->phase != TSR_NONE) take_part(j, holder, time_us, &j->rows.items[c->phase]);
  while (c->ooms < m->ooms.count && m->ooms.items[c->ooms].time_us <= time_us) c->ooms++;
  leave_part(j, holder);
}

/* ---- The whole ---- */

static void take_time(joiner *j, int64_t time_us) {
  j->sum = 0;
  for (size_t h = 0; h < j->count; h++) {
    cursor *c = &j->cursors[h];
    advance(c, time_us);
    j->sum = tsr__sum_u64(j->sum, c->bytes);
    if (c->bytes > j->out->holders[h].peak_bytes) j->out->holders[h].peak_bytes = c->bytes;
  }
  if (j->out->together_us == TSR_TIME_NONE || j->sum > j->out->together_bytes) {
    j->out->together_us = time_us;
    j->out->together_bytes = j->sum;
    for (size_t h = 0; h < j->count; h++) j->out->holders[h].together_bytes = j->cursors[h].bytes;
  }
  for (size_t h = 0; h < j->count; h++) visit(j, h, time_us);
}

/* What of the card is nobody's among the members, at the peak. */
static uint64_t rest_of(const tsr_card_use *use) {
  int64_t rest = 0;
  for (size_t i = 0; i < use->part_count; i++)
    if (use->parts[i].kind >= TSR_CARD_DRIVER) rest += use->parts[i].bytes[TSR_CARD_PEAK];
  return rest > 0 ? (uint64_t)rest : 0;
}

static bool take_phases(joiner *j, tsr__arena *texts) {
  tsr_card_use *out = j->out;
  bool knows_room = out->total_bytes != TSR_LEDGER_UNKNOWN;
  uint64_t room = knows_room ? tsr__drop_u64(out->total_bytes, rest_of(out)) : 0;
  out->phases =
      tsr__arena_alloc(texts, j->rows.count * sizeof *out->phases, _Alignof(tsr_card_phase));
  if (!out->phases) return false;
  for (size_t i = 0; i < j->rows.count; i++) {
    tsr_card_phase phase = j->rows.items[i].phase;
    if (!phase.times) continue;
    phase.room_bytes = knows_room ? tsr__drop_u64(room, phase.needs_bytes) : TSR_LEDGER_UNKNOWN;
    phase.release_bytes = knows_room ? tsr__drop_u64(phase.before_bytes, phase.room_bytes) : 0;
    out->phases[out->phase_count++] = phase;
  }
  return true;
}

static int compare_phases(const void *a, const void *b) {
  const tsr_card_phase *x = a, *y = b;
  return (x->first_us > y->first_us) - (x->first_us < y->first_us);
}

int tsr__card_join(const tsr__card_member *const *members, size_t count, tsr__arena *texts,
                   tsr_card_use *out, tsr_error *error) {
  joiner j = {.count = count, .out = out};
  time_list times = {0};
  bool ok = true;
  assert(count > 1);
  j.cursors = tsr__arena_alloc(texts, count * sizeof *j.cursors, _Alignof(cursor));
  if (!j.cursors) return tsr__fail_memory(error);
  for (size_t h = 0; h < count; h++)
    j.cursors[h] = (cursor){.member = members[h], .phase = TSR_NONE};
  for (size_t h = 0; ok && h < count; h++) ok = list_times(members[h], &times);
  ok = ok && list_rows(&j);
  if (ok) tsr__sort(times.items, times.count, sizeof *times.items, compare_times);
  for (size_t i = 0; ok && i < times.count; i++)
    if (!i || times.items[i] != times.items[i - 1]) take_time(&j, times.items[i]);
  for (size_t h = 0; h < count; h++)
    out->sum_of_peaks_bytes = tsr__sum_u64(out->sum_of_peaks_bytes, out->holders[h].peak_bytes);
  ok = ok && take_phases(&j, texts);
  if (ok) tsr__sort(out->phases, out->phase_count, sizeof *out->phases, compare_phases);
  TSR__VECTOR_FREE(&times);
  TSR__VECTOR_FREE(&j.rows);
  return ok ? 0 : tsr__fail_memory(error);
}
