/* view_cut.c - a cut of a range of a trace: its largest allocations, and sums of the rest.
 *
 * Which allocations are included: those that findings are about, in the order of the findings, as far as they fit into half
 * of what may be included, so that a page can show them however small they are. Of the others, a histogram of sizes with 16 classes
 * per power of two gives the lowest class such that all from there on fit; from the class below, the longest-lived are taken.
 *
 * The bytes allocated at each moment of the range come from one array of changes, one entry per moment.
 * From then on only *samples* matter, the two moments of each bucket:
 *
 *   moments   |. . . . . . . .|. . . . . . . .|      samples 2b and 2b + 1 of bucket b, ascending
 *   samples        0       1    2         3
 *
 * An allocation counts at the samples from the first that is not before its birth up to the first
 * that is not before its end; most live between two samples and count at none. So sums are arrays
 * of changes too, one entry per sample. With the absurd sizes of a hostile file, sums wrap around,
 * and return to correct values later. */
#include <assert.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "tessera/unstable/view.h"

enum { MOST_ALLOCATIONS = 1500000, MOST_BUCKETS = 8192, SIZE_CLASSES = 64 * 16 };

typedef struct cutter {
  const tsr_view_device *d;
  tsr_view_cut *out;
  size_t row_count;   /* rows born by the end of the range */
  uint8_t *is_listed; /* by row; NULL if all in the range are included */
} cutter;

static bool is_within(const cutter *c, size_t row) {
  return c->d->died[row] > c->out->from; /* it was born by the end: see row_count */
}

/* ---- which allocations are included ---- */

static unsigned size_class(uint64_t value) {
  unsigned bits = 0;
  if (value < 16) return (unsigned)value;
  for (unsigned step = 32; step; step /= 2)
    if (value >> (bits + step) > 15) bits += step;
  return bits * 16 + (unsigned)(value >> bits);
}

/* The smallest value of a class; 0 past the last, which no value reaches. */
static uint64_t class_start(unsigned class) {
  if (class < 32) return class;
  if (class >= 61 * 16) return 0;
  return (uint64_t)(class % 16 + 16) << (class / 16 - 1);
}

static unsigned class_of(const cutter *c, size_t row, bool by_life) {
  return size_class(by_life ? c->d->died[row] - c->d->born[row] : c->d->requested_bytes[row]);
}

/* The lowest class such that it and those above hold at most `room`; `*left` is the remaining room. */
static unsigned lowest_class(const uint64_t *histogram, uint64_t room, uint64_t *left) {
  unsigned lowest = SIZE_CLASSES;
  while (lowest && histogram[lowest - 1] <= room) room -= histogram[--lowest];
  *left = room;
  return lowest;
}

static bool list_rows(cutter *c, size_t count) {
  c->out->listed = tsr__realloc(NULL, count, sizeof *c->out->listed);
  if (!c->out->listed) return false;
  for (size_t row = 0; row < c->row_count; row++)
    if (c->is_listed ? c->is_listed[row] : is_within(c, row))
      c->out->listed[c->out->listed_count++] = (uint32_t)row;
  assert(c->out->listed_count == count);
  return true;
}

/* Include the allocations that a finding is about, if no more than `room` are new. Returns how many are. */
static uint64_t list_finding(cutter *c, const tsr_view_finding *finding, uint64_t room) {
  uint64_t count = 0;
  for (size_t i = 0; i < finding->row_count; i++) {
    uint32_t row = finding->rows[i];
    count += row < c->row_count && is_within(c, row) && !c->is_listed[row];
  }
  if (count > room) return 0;
  for (size_t i = 0; i < finding->row_count; i++)
    if (finding->rows[i] < c->row_count && is_within(c, finding->rows[i]))
      c->is_listed[finding->rows[i]] = true;
  return count;
}

static uint64_t list_findings(cutter *c, uint64_t room) {
  uint64_t listed = 0;
  for (size_t i = 0; i < c->d->finding_count; i++)
    listed += list_finding(c, &c->d->findings[i], room - listed);
  return listed;
}

static bool choose(cutter *c, uint64_t most) {
  uint64_t sizes[SIZE_CLASSES] = {0}, lives[SIZE_CLASSES] = {0}, room, more, count = 0, listed = 0;
  for (size_t row = 0; row < c->row_count; row++) {
    if (!is_within(c, row)) continue;
    count++;
    sizes[class_of(c, row, false)]++;
  }
  if (count <= most) return list_rows(c, (size_t)count);
  c->is_listed = TSR__NEW_ARRAY(uint8_t, c->row_count);
  if (!c->is_listed) return false;
  uint64_t kept = list_findings(c, most / 2);
  for (size_t row = 0; row < c->row_count; row++)
    sizes[class_of(c, row, false)] -= c->is_listed[row];
  unsigned all_from = lowest_class(sizes, most - kept, &room);
  uint64_t start = class_start(all_from); /* all of this size or more are included; 0: none */
  for (size_t row = 0; row < c->row_count; row++)
    if ((!start || c->d->requested_bytes[row] < start) && is_within(c, row) && !c->is_listed[row] &&
        class_of(c, row, false) + 1 == all_from)
      lives[class_of(c, row, true)]++;
  unsigned long_from = lowest_class(lives, room, &more);
  for (size_t row = 0; row < c->row_count; row++) {
    if (!is_within(c, row)) continue;
    bool is_listed = c->is_listed[row] || (start && c->d->requested_bytes[row] >= start);
    if (!is_listed && class_of(c, row, false) + 1 == all_from) {
      unsigned life = class_of(c, row, true);
      is_listed = life >= long_from || (life + 1 == long_from && more && more--);
    }
    c->is_listed[row] = is_listed;
    listed += is_listed;
    uint64_t bytes = c->d->requested_bytes[row];
    if (!is_listed && bytes > c->out->rest_largest_bytes) c->out->rest_largest_bytes = bytes;
  }
  assert(listed <= most && most < count);
  c->out->rest_count = count - listed;
  return list_rows(c, (size_t)listed);
}

/* ---- the highest and the lowest moments ---- */

static bool allocate_buckets(tsr_view_cut *out) {
  size_t count = out->bucket_count;
  out->high = TSR__NEW_ARRAY(uint32_t, count);
  out->low = TSR__NEW_ARRAY(uint32_t, count);
  out->allocated_high = TSR__NEW_ARRAY(uint64_t, count);
  out->allocated_low = TSR__NEW_ARRAY(uint64_t, count);
  out->active_high = TSR__NEW_ARRAY(uint64_t, count);
  out->active_low = TSR__NEW_ARRAY(uint64_t, count);
  return out->high && out->low && out->allocated_high && out->allocated_low && out->active_high &&
         out->active_low;
}

static bool find_buckets(cutter *c, uint32_t most) {
  tsr_view_cut *out = c->out;
  const tsr_view_device *d = c->d;
  size_t moments = (size_t)out->to - out->from + 1;
  out->bucket_moments = (uint32_t)((moments + most - 1) / most);
  out->bucket_count = (moments + out->bucket_moments - 1) / out->bucket_moments;
  assert(out->bucket_count && out->bucket_count <= most);
  uint64_t *change = TSR__NEW_ARRAY(uint64_t, moments), bytes = 0;
  if (!change || !allocate_buckets(out)) {
    tsr__free(change);
    return false;
  }
  for (size_t row = 0; row < c->row_count; row++) {
    uint32_t end = d->released[row];
    if (end <= out->from || end <= d->born[row]) continue;
    change[d->born[row] > out->from ? d->born[row] - out->from : 0] += d->block_bytes[row];
    if (end <= out->to) change[end - out->from] -= d->block_bytes[row];
  }
  for (size_t i = 0, bucket = 0; i < moments; i++) {
    bool is_first = i % out->bucket_moments == 0;
    if (is_first) bucket = i / out->bucket_moments;
    bytes += change[i];
    if (is_first || bytes > out->allocated_high[bucket]) {
      out->allocated_high[bucket] = bytes;
      out->high[bucket] = out->from + (uint32_t)i;
    }
    if (is_first || bytes < out->allocated_low[bucket]) {
      out->allocated_low[bucket] = bytes;
      out->low[bucket] = out->from + (uint32_t)i;
    }
  }
  tsr__free(change);
  return true;
}

/* ---- samples ---- */

static uint32_t least_of(const tsr_view_cut *cut, size_t bucket) {
  return cut->high[bucket] < cut->low[bucket] ? cut->high[bucket] : cut->low[bucket];
}

static uint32_t most_of(const tsr_view_cut *cut, size_t bucket) {
  return cut->high[bucket] > cut->low[bucket] ? cut->high[bucket] : cut->low[bucket];
}

/* The first sample that is not before a moment. */
static size_t sample_from(const tsr_view_cut *cut, uint32_t moment) {
  if (moment <= cut->from) return 0;
  if (moment > cut->to) return 2 * cut->bucket_count;
  size_t bucket = (moment - cut->from) / cut->bucket_moments;
  return 2 * bucket + (moment > least_of(cut, bucket)) + (moment > most_of(cut, bucket));
}

/* The samples of a bucket's two moments. */
static size_t sample_of(const tsr_view_cut *cut, size_t bucket, bool is_high) {
  return 2 * bucket + (is_high == (cut->high[bucket] > cut->low[bucket]));
}

/* Sums at all samples: active bytes, the rest's blocks, and the rest by group and grouping. */
typedef struct sums {
  uint64_t *active, *blocks;
  uint64_t *groups[TSR_VIEW_GROUPINGS_MAX]; /* sample * groups + group */
} sums;

static void sums_release(sums *s) {
  tsr__free(s->active);
  tsr__free(s->blocks);
  for (size_t g = 0; g < TSR_VIEW_GROUPINGS_MAX; g++) tsr__free(s->groups[g]);
}

static bool sums_init(sums *s, const cutter *c) {
  size_t samples = 2 * c->out->bucket_count + 1;
  s->active = TSR__NEW_ARRAY(uint64_t, samples);
  s->blocks = TSR__NEW_ARRAY(uint64_t, samples);
  bool ok = s->active && s->blocks;
  for (size_t g = 0; ok && c->is_listed && g < c->d->grouping_count; g++)
    ok = (s->groups[g] = TSR__NEW_ARRAY(uint64_t, samples * c->d->groupings[g].count)) != NULL;
  return ok;
}

static void add_changes(sums *s, const cutter *c) {
  const tsr_view_device *d = c->d;
  for (size_t row = 0; row < c->row_count; row++) {
    if (!is_within(c, row)) continue;
    size_t from = sample_from(c->out, d->born[row]), to = sample_from(c->out, d->died[row]);
    assert(from <= to && to <= 2 * c->out->bucket_count);
    if (from == to) continue;
    s->active[from] += d->block_bytes[row];
    s->active[to] -= d->block_bytes[row];
    if (!c->is_listed || c->is_listed[row]) continue;
    s->blocks[from]++;
    s->blocks[to]--;
    for (size_t g = 0; g < d->grouping_count; g++) {
      uint64_t *group = s->groups[g] + d->groupings[g].group[row];
      group[from * d->groupings[g].count] += d->requested_bytes[row];
      group[to * d->groupings[g].count] -= d->requested_bytes[row];
    }
  }
}

static void add_up(uint64_t *values, size_t samples, size_t width) {
  for (size_t i = width; i < samples * width; i++) values[i] += values[i - width];
}

static void take_grouping(const sums *s, tsr_view_cut *out, size_t g, size_t groups) {
  for (size_t b = 0; b < out->bucket_count; b++)
    for (int is_high = 0; is_high < 2; is_high++) {
      uint64_t *to = is_high ? out->rest[g].high : out->rest[g].low;
      memcpy(to + b * groups, s->groups[g] + sample_of(out, b, is_high) * groups,
             groups * sizeof *to);
    }
}

static bool take_rest(sums *s, const cutter *c) {
  tsr_view_cut *out = c->out;
  out->rest_blocks_high = TSR__NEW_ARRAY(uint32_t, out->bucket_count);
  out->rest_blocks_low = TSR__NEW_ARRAY(uint32_t, out->bucket_count);
  if (!out->rest_blocks_high || !out->rest_blocks_low) return false;
  add_up(s->blocks, 2 * out->bucket_count, 1);
  for (size_t b = 0; b < out->bucket_count; b++) {
    out->rest_blocks_high[b] = (uint32_t)s->blocks[sample_of(out, b, true)];
    out->rest_blocks_low[b] = (uint32_t)s->blocks[sample_of(out, b, false)];
  }
  for (size_t g = 0; g < c->d->grouping_count; g++) {
    size_t groups = c->d->groupings[g].count;
    out->rest[g].high = TSR__NEW_ARRAY(uint64_t, out->bucket_count * groups);
    out->rest[g].low = TSR__NEW_ARRAY(uint64_t, out->bucket_count * groups);
    if (!out->rest[g].high || !out->rest[g].low) return false;
    add_up(s->groups[g], 2 * out->bucket_count, groups);
    take_grouping(s, out, g, groups);
  }
  return true;
}

static bool sum(const cutter *c) {
  tsr_view_cut *out = c->out;
  sums s = {0};
  bool ok = sums_init(&s, c);
  if (ok) {
    add_changes(&s, c);
    add_up(s.active, 2 * out->bucket_count, 1);
    for (size_t b = 0; b < out->bucket_count; b++) {
      out->active_high[b] = s.active[sample_of(out, b, true)];
      out->active_low[b] = s.active[sample_of(out, b, false)];
    }
    ok = !c->is_listed || take_rest(&s, c);
  }
  sums_release(&s);
  return ok;
}

/* ---- the cut ---- */

/* The number of rows born by a moment; rows are in order of birth. */
static size_t rows_by(const tsr_view_device *d, uint32_t moment) {
  size_t low = 0, high = d->allocation_count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (d->born[middle] <= moment)
      low = middle + 1;
    else
      high = middle;
  }
  assert((!low || d->born[low - 1] <= moment) &&
         (low == d->allocation_count || d->born[low] > moment));
  return low;
}

int tsr_view_cut_compute(const tsr_view_device *device, const tsr_view_stretch *stretch,
                         tsr_view_cut *out, tsr_error *error) {
  tsr_view_stretch how = stretch ? *stretch : (tsr_view_stretch){0};
  tsr_view_cut cut = {.from = how.from, .to = (uint32_t)device->event_count};
  if (how.to && how.to < cut.to) cut.to = how.to;
  if (cut.from > cut.to)
    return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE, "the range begins after the end");
  cutter c = {.d = device, .out = &cut, .row_count = rows_by(device, cut.to)};
  bool ok = choose(&c, how.most_allocations ? how.most_allocations : MOST_ALLOCATIONS) &&
            find_buckets(&c, how.most_buckets ? how.most_buckets : MOST_BUCKETS) && sum(&c);
  tsr__free(c.is_listed);
  if (ok) {
    *out = cut;
    return 0;
  }
  tsr_view_cut_release(&cut);
  return tsr__fail_memory(error);
}

void tsr_view_cut_release(tsr_view_cut *cut) {
  void *columns[] = {cut->listed,         cut->high,        cut->low,        cut->allocated_high,
                     cut->allocated_low,  cut->active_high, cut->active_low, cut->rest_blocks_high,
                     cut->rest_blocks_low};
  for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) tsr__free(columns[i]);
  for (size_t g = 0; g < TSR_VIEW_GROUPINGS_MAX; g++) {
    tsr__free(cut->rest[g].high);
    tsr__free(cut->rest[g].low);
  }
  *cut = (tsr_view_cut){0};
}
