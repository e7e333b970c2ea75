/* divide.c - one card's used memory, divided among those who hold it.
 *
 *   used = allocated + cached + context + libraries + communicators      of each process that wrote a file
 *        + driver + other processes + unaccounted + counted twice
 *
 * A moment is a sample of one ledger, which has the card's used memory. The parts of another process that shares the card are
 * those of its last sample up to then. A process is not on the card before its first sample; after its last one it is what NVML
 * says of it, like any process that wrote no file.
 *
 * Where NVML counts a process, what it has beyond its parts is a part (HERE). Whatever is then left is UNACCOUNTED if positive,
 * and TWICE if negative. */
#include <assert.h>
#include <string.h>

#include "base/checked.h"
#include "questions/card/card.h"
#include "questions/shared/ledger.h"

/* Parts of a member before its libraries: allocated, cached, context. */
enum { OWN_PARTS = 3, MOST_PARTS = 1 << 16, QUARTERS = 4 };
/* How long after its last sample a process counts as it was then. */
#define GRACE_US 2000000

typedef struct divider {
  const tsr__card_member *const *members;
  size_t count;
  tsr__arena *texts;
  TSR__VECTOR(tsr_card_part) parts;
  TSR__VECTOR(int64_t) bytes; /* by part: the moment at hand */
  TSR__VECTOR(int64_t) last;  /* by part: an earlier one */
  TSR__VECTOR(bool) known;
  size_t here, unaccounted, twice; /* rows of parts: HERE is that of the first member */
  uint64_t stale_us;
  bool has_first; /* a part that was measured around a first use is not 0 */
} divider;

/* A sample of a member's ledger. */
typedef struct sample {
  size_t member, index;
} sample;

/* ---- Which parts there are ---- */

static bool add_part(divider *d, tsr_card_part part) {
  return TSR__VECTOR_PUSH(&d->parts, part);
}

static const char *measured(const char *from) {
  return from ? from : "";
}

static bool add_own_parts(divider *d, uint32_t holder) {
  const tsr_ledger *l = d->members[holder]->ledger;
  bool ok =
      add_part(d, (tsr_card_part){TSR_CARD_ALLOCATED, .name = "", .from = "", .holder = holder}) &&
      add_part(d, (tsr_card_part){TSR_CARD_CACHED, .name = "", .from = "", .holder = holder}) &&
      add_part(d, (tsr_card_part){TSR_CARD_CONTEXT, .name = "",
                                  .from = l ? measured(l->context_from) : "", .holder = holder});
  for (size_t i = 0; ok && l && i < l->library_count; i++)
    ok = add_part(d, (tsr_card_part){TSR_CARD_LIBRARY, .name = l->libraries[i].name,
                                     .from = l->libraries[i].from, .holder = holder});
  for (size_t i = 0; ok && l && i < l->communicator_count; i++) {
    const tsr_ledger_communicator *c = &l->communicators[i];
    ok = add_part(d, (tsr_card_part){TSR_CARD_COMMUNICATOR, .name = c->name, .from = c->from,
                                     .holder = holder, .ranks = c->ranks,
                                     .is_suspended = c->is_suspended});
  }
  return ok;
}

/* The row of another process, added if it is new; false when out of memory. */
static bool add_process(divider *d, const tsr_ledger_process *process) {
  for (size_t i = 0; i < d->parts.count; i++) {
    tsr_card_part *part = &d->parts.items[i];
    if (part->kind != TSR_CARD_PROCESS || part->pid != process->pid) continue;
    if (!*part->name) part->name = process->name;
    return true;
  }
  return add_part(d, (tsr_card_part){TSR_CARD_PROCESS, .name = process->name, .from = "nvml",
                                     .holder = TSR_NONE, .pid = process->pid});
}

static bool list_parts(divider *d) {
  bool ok = true;
  for (uint32_t h = 0; ok && h < d->count; h++) ok = add_own_parts(d, h);
  ok = ok && add_part(d, (tsr_card_part){TSR_CARD_DRIVER, .name = "", .from = "nvml",
                                         .holder = TSR_NONE});
  for (size_t h = 0; ok && h < d->count; h++) {
    const tsr_ledger *l = d->members[h]->ledger;
    for (size_t i = 0; ok && l && i < l->process_count && d->parts.count < MOST_PARTS; i++)
      ok = add_process(d, &l->processes[i]);
  }
  d->here = d->parts.count;
  for (uint32_t h = 0; ok && h < d->count; h++)
    ok = add_part(d, (tsr_card_part){TSR_CARD_HERE, .name = "", .from = "nvml", .holder = h});
  d->unaccounted = d->parts.count;
  ok = ok && add_part(d, (tsr_card_part){TSR_CARD_UNACCOUNTED, .name = "", .from = "",
                                         .holder = TSR_NONE});
  d->twice = d->parts.count;
  ok = ok &&
       add_part(d, (tsr_card_part){TSR_CARD_TWICE, .name = "", .from = "", .holder = TSR_NONE});
  for (size_t i = 0; ok && i < d->parts.count; i++)
    ok = TSR__VECTOR_PUSH(&d->bytes, 0) && TSR__VECTOR_PUSH(&d->last, 0) &&
         TSR__VECTOR_PUSH(&d->known, false);
  return ok;
}

/* ---- A moment ---- */

/* The sample of a member that counts at a time, or TSR_NONE: it is not there then. */
static uint32_t sample_of(const divider *d, size_t member, int64_t time_us) {
  const tsr_ledger *l = d->members[member]->ledger;
  if (!l) return TSR_NONE;
  uint64_t period = d->members[member]->recording.period_ms;
  int64_t grace = GRACE_US;
  if (period != TSR_LEDGER_UNKNOWN && period < 3600000 && (int64_t)period * 2000 > grace)
    grace = (int64_t)period * 2000;
  uint32_t index = tsr_ledger_sample_at(l, time_us);
  bool is_last = index != TSR_NONE && index + 1 == l->sample_count;
  bool is_over = is_last && time_us - l->time_us[index] > grace;
  return is_over ? TSR_NONE : index;
}

static void set(divider *d, size_t row, int64_t bytes) {
  d->bytes.items[row] = bytes;
  d->known.items[row] = true;
  const char *from = d->parts.items[row].from;
  if (bytes && (!strcmp(from, "first_use") || !strcmp(from, "first_collective")))
    d->has_first = true;
}

/* Fill a member's own parts, from `row` on, and return the row after them and their sum. */
static size_t fill_own(divider *d, size_t row, size_t member, uint32_t index, int64_t *sum) {
  const tsr_ledger *l = d->members[member]->ledger;
  tsr__ledger_own own = {0};
  if (index != TSR_NONE) tsr__ledger_own_at(l, index, &own);
  if (own.knows_pytorch) set(d, row, (int64_t)own.allocated_bytes);
  if (own.knows_pytorch) set(d, row + 1, (int64_t)own.cached_bytes);
  if (own.knows_context) set(d, row + 2, (int64_t)own.context_bytes);
  row += OWN_PARTS;
  for (size_t i = 0; l && i < l->library_count; i++, row++)
    if (index != TSR_NONE && l->libraries[i].bytes != TSR_LEDGER_UNKNOWN)
      set(d, row, (int64_t)tsr__ledger_library_at(l, i, index));
  for (size_t i = 0; l && i < l->communicator_count; i++, row++) {
    uint64_t bytes =
        index == TSR_NONE ? TSR_LEDGER_UNKNOWN : tsr_ledger_value(l->communicators[i].bytes, index);
    if (bytes != TSR_LEDGER_UNKNOWN) set(d, row, (int64_t)bytes);
  }
  *sum = (int64_t)tsr__ledger_sum(&own);
  return row;
}

static bool is_member_there(const divider *d, uint64_t pid, int64_t time_us) {
  for (size_t h = 0; h < d->count; h++)
    if (pid && d->members[h]->holder.pid == pid && sample_of(d, h, time_us) != TSR_NONE)
      return true;
  return false;
}

/* The driver's part and other processes, as the ledger that was sampled has them; their sum. */
static int64_t fill_others(divider *d, const sample *at, int64_t time_us) {
  const tsr_ledger *l = d->members[at->member]->ledger;
  int64_t sum = 0;
  for (size_t row = 0; row < d->here; row++) {
    const tsr_card_part *part = &d->parts.items[row];
    uint64_t bytes = TSR_LEDGER_UNKNOWN;
    if (part->kind == TSR_CARD_DRIVER) bytes = l->driver_bytes;
    if (part->kind == TSR_CARD_PROCESS && !is_member_there(d, part->pid, time_us)) {
      for (size_t i = 0; i < l->process_count; i++) {
        uint64_t more = tsr_ledger_value(l->processes[i].bytes, at->index);
        if (l->processes[i].pid != part->pid || more == TSR_LEDGER_UNKNOWN) continue;
        bytes = tsr__ledger_known(bytes) + more;
      }
    }
    if (bytes == TSR_LEDGER_UNKNOWN) continue;
    set(d, row, (int64_t)bytes);
    sum += (int64_t)bytes;
  }
  return sum;
}

/* Fill `bytes` and `known` of all parts at a sample that has the card's used memory, which is returned. */
static uint64_t fill(divider *d, const sample *at) {
  const tsr_ledger *l = d->members[at->member]->ledger;
  int64_t time_us = l->time_us[at->index], twice = 0;
  uint64_t used = l->used_bytes[at->index];
  assert(used != TSR_LEDGER_UNKNOWN);
  memset(d->bytes.items, 0, d->bytes.count * sizeof *d->bytes.items);
  memset(d->known.items, 0, d->known.count * sizeof *d->known.items);
  d->stale_us = 0;
  d->has_first = false;
  int64_t rest = (int64_t)used - fill_others(d, at, time_us);
  size_t row = 0;
  for (size_t h = 0; h < d->count; h++) {
    int64_t sum;
    uint32_t index = h == at->member ? (uint32_t)at->index : sample_of(d, h, time_us);
    row = fill_own(d, row, h, index, &sum);
    if (index != TSR_NONE && time_us - d->members[h]->ledger->time_us[index] > (int64_t)d->stale_us)
      d->stale_us = (uint64_t)(time_us - d->members[h]->ledger->time_us[index]);
    uint64_t whole = index == TSR_NONE
                         ? TSR_LEDGER_UNKNOWN
                         : tsr_ledger_value(d->members[h]->ledger->process_bytes, index);
    rest -= sum;
    if (whole == TSR_LEDGER_UNKNOWN) continue;
    int64_t here = (int64_t)whole - sum;
    set(d, d->here + h, here > 0 ? here : 0);
    if (here < 0) twice += here;
    rest -= here;
  }
  set(d, d->unaccounted, rest > 0 ? rest : 0);
  if (rest < 0) twice += rest;
  if (twice) set(d, d->twice, twice);
  return used;
}

/* ---- Which moments ---- */

static bool is_used_known(const divider *d, size_t member, size_t index) {
  const tsr_ledger *l = d->members[member]->ledger;
  return tsr_ledger_value(l->used_bytes, index) != TSR_LEDGER_UNKNOWN;
}

/* The first sample of all with the most used memory, and the last of all. */
static void find_bounds(const divider *d, sample *peak, sample *end, int64_t *first_us) {
  uint64_t most = 0;
  bool has_any = false;
  for (size_t h = 0; h < d->count; h++) {
    const tsr_ledger *l = d->members[h]->ledger;
    for (size_t i = 0; l && i < l->sample_count; i++) {
      if (!is_used_known(d, h, i)) continue;
      uint64_t used = l->used_bytes[i];
      const tsr_ledger *p = has_any ? d->members[peak->member]->ledger : NULL;
      const tsr_ledger *e = has_any ? d->members[end->member]->ledger : NULL;
      if (!p || used > most || (used == most && l->time_us[i] < p->time_us[peak->index]))
        *peak = (sample){h, i}, most = used;
      if (!e || l->time_us[i] >= e->time_us[end->index]) *end = (sample){h, i};
      if (!e || l->time_us[i] < *first_us) *first_us = l->time_us[i];
      has_any = true;
    }
  }
  assert(has_any);
}

/* The last sample up to a time whose used memory is known; false before the first. */
static bool find_at(const divider *d, int64_t time_us, sample *out) {
  bool is_found = false;
  for (size_t h = 0; h < d->count; h++) {
    const tsr_ledger *l = d->members[h]->ledger;
    uint32_t index = l ? tsr_ledger_sample_at(l, time_us) : TSR_NONE;
    while (index != TSR_NONE && !is_used_known(d, h, index)) index = index ? index - 1 : TSR_NONE;
    if (index == TSR_NONE) continue;
    bool is_later =
        !is_found || l->time_us[index] > d->members[out->member]->ledger->time_us[out->index];
    if (is_later) *out = (sample){h, index};
    is_found = true;
  }
  return is_found;
}

/* The beginning of the second step, by the marks of the ledger at hand: what is made in the first one is there. */
static bool find_second_step(const divider *d, size_t member, sample *out) {
  const tsr_ledger *l = d->members[member]->ledger;
  size_t steps = 0;
  for (size_t i = 0; l->mark && i < l->sample_count; i++) {
    if (l->mark[i] == TSR_NONE || strncmp(l->marks[l->mark[i]], "step ", 5) != 0) continue;
    steps++;
    *out = (sample){member, i};
    if (steps > 1 && is_used_known(d, member, i)) return true;
  }
  return false;
}

static int64_t time_of(const divider *d, const sample *at) {
  return d->members[at->member]->ledger->time_us[at->index];
}

static void keep(divider *d, const sample *at, tsr_card_moment_kind kind, tsr_card_use *out) {
  const tsr_ledger *l = d->members[at->member]->ledger;
  uint32_t mark = l->mark ? l->mark[at->index] : TSR_NONE;
  out->moments[kind] = (tsr_card_moment){.is_there = true,
                                         .time_us = l->time_us[at->index],
                                         .mark = mark == TSR_NONE ? "" : l->marks[mark],
                                         .used_bytes = fill(d, at)};
  for (size_t i = 0; i < d->parts.count; i++) {
    d->parts.items[i].bytes[kind] = d->bytes.items[i];
    d->parts.items[i].is_known[kind] = d->known.items[i];
  }
  for (size_t h = 0; h < d->count; h++) {
    uint32_t index = h == at->member ? (uint32_t)at->index : sample_of(d, h, l->time_us[at->index]);
    tsr__ledger_own own = {0};
    if (index != TSR_NONE) tsr__ledger_own_at(d->members[h]->ledger, index, &own);
    out->holders[h].asleep_bytes[kind] = own.asleep_bytes;
    out->holders[h].private_bytes[kind] =
        index == TSR_NONE ? TSR_LEDGER_UNKNOWN
                          : tsr_ledger_value(d->members[h]->ledger->private_pool_bytes, index);
  }
  if (kind != TSR_CARD_PEAK) return;
  out->stale_us = d->stale_us;
  if (!d->bytes.items[d->twice])
    out->overlap = TSR_CARD_OVERLAP_NONE;
  else if (d->stale_us)
    out->overlap = TSR_CARD_OVERLAP_MOMENTS;
  else
    out->overlap = d->has_first ? TSR_CARD_OVERLAP_FIRST : TSR_CARD_OVERLAP_COUNTERS;
}

/* Whether each part grew in each quarter of the time between two samples. */
static void judge_growth(divider *d, const tsr_card_use *out) {
  int64_t from_us = out->moments[TSR_CARD_EARLY].time_us;
  int64_t to_us = out->moments[TSR_CARD_END].time_us;
  for (size_t i = 0; i < d->parts.count; i++) {
    d->last.items[i] = d->parts.items[i].bytes[TSR_CARD_EARLY];
    d->parts.items[i].is_steady = true;
  }
  for (int k = 1; k <= QUARTERS; k++) {
    sample at = {0};
    int64_t time_us = k == QUARTERS ? to_us : from_us + (to_us - from_us) / QUARTERS * k;
    if (!find_at(d, time_us, &at)) continue;
    (void)fill(d, &at);
    for (size_t i = 0; i < d->parts.count; i++) {
      if (d->bytes.items[i] <= d->last.items[i]) d->parts.items[i].is_steady = false;
      d->last.items[i] = d->bytes.items[i];
    }
  }
}

static void take_moments(divider *d, const tsr_card_options *options, tsr_card_use *out) {
  sample peak = {0}, end = {0}, early = {0}, at = {0};
  int64_t first_us = 0;
  find_bounds(d, &peak, &end, &first_us);
  keep(d, &peak, TSR_CARD_PEAK, out);
  keep(d, &end, TSR_CARD_END, out);
  int64_t end_us = time_of(d, &end);
  bool has_early = find_second_step(d, end.member, &early) ||
                   find_at(d, first_us + (end_us - first_us) / 4, &early);
  if (has_early && time_of(d, &early) < end_us) {
    keep(d, &early, TSR_CARD_EARLY, out);
    judge_growth(d, out);
  }
  if (options->has_time && find_at(d, options->time_us, &at)) keep(d, &at, TSR_CARD_AT, out);
}

/* ---- Without samples of the card ---- */

/* The rows of a member's allocated and cached memory. */
static tsr_card_part *own_parts(const divider *d, size_t member) {
  size_t row = 0;
  while (d->parts.items[row].kind != TSR_CARD_ALLOCATED || d->parts.items[row].holder != member)
    row++;
  assert(row + 1 < d->parts.count && d->parts.items[row + 1].kind == TSR_CARD_CACHED);
  return &d->parts.items[row];
}

/* What an older sidecar says, which is about the end: used memory, and how much of it is PyTorch's. */
static void take_old(divider *d, tsr_card_use *out) {
  const tsr__card_member *m = d->members[0];
  uint64_t total = m->old.total_bytes, used = tsr__drop_u64(total, m->old.free_bytes);
  uint64_t reserved = tsr__drop_u64(used, m->old.outside_bytes);
  uint64_t allocated = m->end_allocated_bytes < reserved ? m->end_allocated_bytes : reserved;
  for (int k = 0; k <= TSR_CARD_END; k++) {
    out->moments[k] = (tsr_card_moment){
        .is_there = true, .time_us = TSR_TIME_NONE, .mark = "", .used_bytes = used};
    tsr_card_part *parts = own_parts(d, 0);
    parts[0].bytes[k] = (int64_t)allocated;
    parts[1].bytes[k] = (int64_t)(reserved - allocated);
    d->parts.items[d->unaccounted].bytes[k] = (int64_t)(used - reserved);
    parts[0].is_known[k] = parts[1].is_known[k] = true;
    d->parts.items[d->unaccounted].is_known[k] = true;
  }
  out->total_bytes = total;
}

static void take_nothing(divider *d) {
  for (size_t h = 0; h < d->count; h++) {
    const tsr__card_member *m = d->members[h];
    uint64_t most = (uint64_t)INT64_MAX / 4;
    uint64_t reserved = m->end_reserved_bytes < most ? m->end_reserved_bytes : most;
    uint64_t allocated = m->end_allocated_bytes < reserved ? m->end_allocated_bytes : reserved;
    tsr_card_part *parts = own_parts(d, h);
    for (int k = 0; k <= TSR_CARD_END; k++) {
      parts[0].bytes[k] = (int64_t)allocated;
      parts[1].bytes[k] = (int64_t)(reserved - allocated);
      parts[0].is_known[k] = parts[1].is_known[k] = true;
    }
  }
}

/* ---- The whole ---- */

static tsr_card_source source_of(const divider *d) {
  for (size_t h = 0; h < d->count; h++) {
    const tsr_ledger *l = d->members[h]->ledger;
    for (size_t i = 0; l && i < l->sample_count; i++)
      if (is_used_known(d, h, i)) return TSR_CARD_FROM_LEDGER;
  }
  const tsr_card *old = &d->members[0]->old;
  bool is_old = d->count == 1 && old->total_bytes && old->total_bytes < (UINT64_C(1) << 50);
  return is_old ? TSR_CARD_FROM_SIDECAR : TSR_CARD_FROM_NOTHING;
}

/* What the files say of the card itself. */
static void describe(const divider *d, tsr_card_use *out) {
  out->name = out->uuid = "";
  out->total_bytes = TSR_LEDGER_UNKNOWN;
  for (size_t h = 0; h < d->count; h++) {
    const tsr_ledger *l = d->members[h]->ledger;
    if (!l) continue;
    if (!*out->name) out->name = l->name;
    if (!*out->uuid) out->uuid = l->uuid;
    if (out->total_bytes == TSR_LEDGER_UNKNOWN) out->total_bytes = l->total_bytes;
    out->sample_count += l->sample_count;
  }
  if (out->total_bytes == TSR_LEDGER_UNKNOWN && d->members[0]->old.total_bytes)
    out->total_bytes = d->members[0]->old.total_bytes;
}

/* The notes of all members, and of their devices. */
static bool list_notes(const divider *d, tsr_card_use *out) {
  size_t most = 0;
  for (size_t h = 0; h < d->count; h++)
    most += d->members[h]->recording.note_count +
            (d->members[h]->ledger ? d->members[h]->ledger->note_count : 0);
  const char **notes = tsr__arena_alloc(d->texts, most * sizeof *notes, _Alignof(const char *));
  if (!notes) return false;
  for (size_t h = 0; h < d->count; h++) {
    const tsr__card_member *m = d->members[h];
    for (size_t i = 0; i < m->recording.note_count; i++)
      notes[out->note_count++] = m->recording.notes[i];
    for (size_t i = 0; m->ledger && i < m->ledger->note_count; i++)
      notes[out->note_count++] = m->ledger->notes[i];
  }
  assert(out->note_count <= most);
  out->notes = notes;
  return true;
}

static void describe_host(const tsr__card_member *m, tsr_card_use *out) {
  out->recording = m->recording;
  if (!out->recording.nvml) out->recording.nvml = "";
  if (!out->recording.nvml_error) out->recording.nvml_error = "";
  out->host = m->host;
  if (!out->host.limit_from) out->host.limit_from = "";
  out->host_peak_bytes = out->host_end_bytes = TSR_LEDGER_UNKNOWN;
  for (size_t i = 0; i < m->host.sample_count; i++) {
    uint64_t bytes = tsr_ledger_value(m->host.rss_bytes, i);
    if (bytes == TSR_LEDGER_UNKNOWN) continue;
    out->host_end_bytes = bytes;
    if (out->host_peak_bytes == TSR_LEDGER_UNKNOWN || bytes > out->host_peak_bytes)
      out->host_peak_bytes = bytes;
  }
}

/* The parts that are something at some moment, and what is always told. */
static bool keep_parts(divider *d, tsr_card_use *out) {
  out->parts =
      tsr__arena_alloc(d->texts, d->parts.count * sizeof *out->parts, _Alignof(tsr_card_part));
  if (!out->parts) return false;
  for (size_t i = 0; i < d->parts.count; i++) {
    const tsr_card_part *part = &d->parts.items[i];
    bool is_kept = part->kind == TSR_CARD_ALLOCATED || part->kind == TSR_CARD_CACHED;
    is_kept = (is_kept && part->is_known[TSR_CARD_PEAK]) ||
              (part->kind == TSR_CARD_UNACCOUNTED && out->source != TSR_CARD_FROM_NOTHING);
    for (int k = 0; k < TSR_CARD_MOMENTS; k++) is_kept = is_kept || part->bytes[k];
    if (is_kept) out->parts[out->part_count++] = *part;
  }
  return true;
}

int tsr__card_divide(const tsr__card_member *const *members, size_t count,
                     const tsr_card_options *options, tsr__arena *texts, tsr_card_use *out,
                     tsr_error *error) {
  divider d = {.members = members, .count = count, .texts = texts};
  assert(count && count < TSR_NONE);
  *out = (tsr_card_use){.together_us = TSR_TIME_NONE, .holder_count = count};
  out->holders = tsr__arena_alloc(texts, count * sizeof *out->holders, _Alignof(tsr_card_holder));
  bool ok = out->holders && list_parts(&d);
  for (size_t h = 0; ok && h < count; h++) {
    out->holders[h] = members[h]->holder;
    for (int k = 0; k < TSR_CARD_MOMENTS; k++)
      out->holders[h].private_bytes[k] = TSR_LEDGER_UNKNOWN;
  }
  if (ok) {
    describe(&d, out);
    describe_host(members[0], out);
    out->source = source_of(&d);
    if (out->source == TSR_CARD_FROM_LEDGER) take_moments(&d, options, out);
    if (out->source == TSR_CARD_FROM_SIDECAR) take_old(&d, out);
    if (out->source == TSR_CARD_FROM_NOTHING) take_nothing(&d);
    ok = keep_parts(&d, out) && list_notes(&d, out);
  }
  TSR__VECTOR_FREE(&d.parts);
  TSR__VECTOR_FREE(&d.bytes);
  TSR__VECTOR_FREE(&d.last);
  TSR__VECTOR_FREE(&d.known);
  return ok ? 0 : tsr__fail_memory(error);
}
