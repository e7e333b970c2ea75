/* history.c - see history.h. With the absurd sizes of a hostile file, sums wrap around, and return to correct values later. */
#include "history.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { FAN_OUT = 16 };

static void *new_array(size_t count, size_t item_bytes) {
  return calloc(count ? count : 1, item_bytes);
}

static size_t block_of(uint32_t moment) {
  return moment / HISTORY_BLOCK;
}

/* The first block whose first moment is at or after this one. */
static size_t block_from(uint32_t moment) {
  return moment / HISTORY_BLOCK + (moment % HISTORY_BLOCK != 0);
}

static uint32_t first_of(size_t block) {
  return (uint32_t)(block * HISTORY_BLOCK);
}

/* ---- Making ---- */

static bool fill_allocated(terminal_history *h) {
  const tsr_view_device *d = h->device;
  h->allocated = new_array(h->moment_count, sizeof *h->allocated);
  h->high = new_array(h->block_count, sizeof *h->high);
  if (!h->allocated || !h->high) return false;
  for (size_t row = 0; row < d->allocation_count; row++) {
    if (d->released[row] <= d->born[row]) continue; /* it waits for a stream all its life */
    h->allocated[d->born[row]] += d->block_bytes[row];
    if (d->released[row] < h->moment_count) h->allocated[d->released[row]] -= d->block_bytes[row];
  }
  for (uint32_t m = 1; m < h->moment_count; m++) h->allocated[m] += h->allocated[m - 1];
  for (uint32_t m = 0; m < h->moment_count; m++) {
    uint32_t *high = &h->high[block_of(m)];
    if (m % HISTORY_BLOCK == 0 || h->allocated[m] > h->allocated[*high]) *high = m;
  }
  return true;
}

/* Rows by when they die: a counting sort, first by block of moments, then within each. */
static bool sort_deaths(terminal_history *h) {
  const tsr_view_device *d = h->device;
  uint32_t *next = new_array((size_t)h->moment_count + 1, sizeof *next);
  if (!next) return false;
  for (size_t row = 0; row < d->allocation_count; row++)
    if (d->died[row] < h->moment_count) next[d->died[row] + 1]++;
  for (uint32_t m = 0; m < h->moment_count; m++) next[m + 1] += next[m];
  h->death_count = next[h->moment_count];
  for (size_t b = 0; b < h->block_count; b++) /* those that die at its first moment are before */
    h->died[b] = next[first_of(b) + 1];
  h->by_death = new_array(h->death_count, sizeof *h->by_death);
  for (size_t row = 0; h->by_death && row < d->allocation_count; row++)
    if (d->died[row] < h->moment_count) h->by_death[next[d->died[row]]++] = (uint32_t)row;
  free(next);
  return h->by_death != NULL;
}

static bool index_blocks(terminal_history *h) {
  const tsr_view_device *d = h->device;
  size_t row = 0;
  h->born = new_array(h->block_count, sizeof *h->born);
  h->died = new_array(h->block_count, sizeof *h->died);
  if (!h->born || !h->died) return false;
  for (size_t b = 0; b < h->block_count; b++) {
    while (row < d->allocation_count && d->born[row] <= first_of(b)) row++;
    h->born[b] = (uint32_t)row;
  }
  return sort_deaths(h);
}

/* Level 0 has a node for FAN_OUT rows, each other level one for as many nodes below. */
static bool plant_tree(terminal_history *h) {
  const uint32_t *below = h->device->died;
  size_t count = h->device->allocation_count;
  for (int level = 0; level < HISTORY_LEVELS && count; level++) {
    size_t nodes = (count + FAN_OUT - 1) / FAN_OUT;
    uint32_t *last = new_array(nodes, sizeof *last);
    h->last[level] = last;
    h->last_count[level] = nodes;
    if (!last) return false;
    for (size_t i = 0; i < count; i++)
      if (below[i] > last[i / FAN_OUT]) last[i / FAN_OUT] = below[i];
    if (nodes == 1) break;
    below = last;
    count = nodes;
  }
  return true;
}

typedef struct change {
  uint32_t moment;
  uint64_t bytes; /* added, wrapping around */
} change;

static int by_moment(const void *a, const void *b) {
  const change *x = a, *y = b;
  return (x->moment > y->moment) - (x->moment < y->moment);
}

static bool sum_reserved(terminal_history *h) {
  const tsr_view_device *d = h->device;
  size_t count = 0;
  change *changes = new_array(2 * d->span_count + 1, sizeof *changes);
  h->reserved_from = new_array(2 * d->span_count + 1, sizeof *h->reserved_from);
  h->reserved = new_array(2 * d->span_count + 1, sizeof *h->reserved);
  bool ok = changes && h->reserved_from && h->reserved;
  for (size_t i = 0; ok && i < d->span_count; i++) {
    const tsr_view_span *span = &d->spans[i];
    changes[count++] = (change){span->born, span->size_bytes};
    changes[count++] = (change){span->died, 0 - span->size_bytes};
  }
  if (ok && count) qsort(changes, count, sizeof *changes, by_moment);
  h->reserved_count = ok; /* nothing at moment 0 */
  for (size_t i = 0; ok && i < count; i++) {
    size_t now = h->reserved_count - 1;
    if (changes[i].moment != h->reserved_from[now]) {
      h->reserved_from[++now] = changes[i].moment;
      h->reserved[now] = h->reserved[now - 1];
      h->reserved_count++;
    }
    h->reserved[now] += changes[i].bytes;
  }
  free(changes);
  return ok;
}

bool terminal_history_make(terminal_history *out, const tsr_view_device *device) {
  assert(device->event_count < UINT32_MAX - 1);
  *out = (terminal_history){.device = device, .moment_count = (uint32_t)device->event_count + 1};
  out->block_count = block_of(out->moment_count - 1) + 1;
  return fill_allocated(out) && index_blocks(out) && plant_tree(out) && sum_reserved(out);
}

void terminal_history_release(terminal_history *h) {
  void *columns[] = {h->allocated, h->high,          h->born,    h->died,
                     h->by_death,  h->reserved_from, h->reserved};
  for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) free(columns[i]);
  for (int level = 0; level < HISTORY_LEVELS; level++) free(h->last[level]);
  *h = (terminal_history){0};
}

/* ---- Moments ---- */

static uint32_t higher(const terminal_history *h, uint32_t best, uint32_t moment) {
  return h->allocated[moment] > h->allocated[best] ? moment : best;
}

uint32_t terminal_history_high(const terminal_history *h, uint32_t from, uint32_t to) {
  assert(from < to && to <= h->moment_count);
  uint32_t best = from, m = from;
  for (; m < to && m % HISTORY_BLOCK; m++) best = higher(h, best, m);
  for (; to - m >= HISTORY_BLOCK; m += HISTORY_BLOCK) best = higher(h, best, h->high[block_of(m)]);
  for (; m < to; m++) best = higher(h, best, m);
  return best;
}

uint64_t terminal_history_reserved(const terminal_history *h, uint32_t moment) {
  size_t low = 0, high = h->reserved_count;
  assert(high && h->reserved_from[0] == 0);
  while (high - low > 1) {
    size_t middle = low + (high - low) / 2;
    if (h->reserved_from[middle] <= moment)
      low = middle;
    else
      high = middle;
  }
  return h->reserved[low];
}

static bool push(terminal_rows *out, uint32_t row) {
  if (out->count == out->room) {
    size_t room = out->room ? 2 * out->room : 1024;
    uint32_t *items = realloc(out->items, room * sizeof *items);
    if (!items) return false;
    out->items = items;
    out->room = room;
  }
  out->items[out->count++] = row;
  return true;
}

/* The rows below a node, up to row `end`, that die after the moment. */
static bool add_live(const terminal_history *h, int level, size_t node, uint32_t moment, size_t end,
                     terminal_rows *out) {
  const tsr_view_device *d = h->device;
  size_t count = level ? h->last_count[level - 1] : d->allocation_count;
  size_t first = node * FAN_OUT, after = first + FAN_OUT < count ? first + FAN_OUT : count;
  bool ok = true;
  if (h->last[level][node] <= moment) return true;
  for (size_t i = first; ok && i < after; i++) {
    if (level)
      ok = add_live(h, level - 1, i, moment, end, out);
    else if (i < end && d->died[i] > moment)
      ok = push(out, (uint32_t)i);
  }
  return ok;
}

bool terminal_history_live(const terminal_history *h, uint32_t moment, terminal_rows *out) {
  const tsr_view_device *d = h->device;
  assert(moment < h->moment_count);
  size_t end = h->born[block_of(moment)];
  while (end < d->allocation_count && d->born[end] <= moment) end++;
  size_t nodes = (end + FAN_OUT - 1) / FAN_OUT;
  int level = 0;
  while (level + 1 < HISTORY_LEVELS && h->last_count[level + 1] && nodes > FAN_OUT) {
    level++;
    nodes = (nodes + FAN_OUT - 1) / FAN_OUT;
  }
  for (size_t node = 0; node < nodes; node++)
    if (!add_live(h, level, node, moment, end, out)) return false;
  return true;
}

/* ---- Sums ---- */

static size_t count_of(const terminal_sums *sums) {
  return sums->grouping->count;
}

bool terminal_sums_make(terminal_sums *out, const terminal_history *h,
                        const tsr_view_grouping *grouping, const uint8_t *is_found) {
  const tsr_view_device *d = h->device;
  size_t groups = grouping->count;
  *out = (terminal_sums){.grouping = grouping, .is_found = is_found};
  assert(groups <= TSR_VIEW_GROUPS_MAX);
  if (groups && h->block_count > SIZE_MAX / groups / sizeof *out->at_block) return false;
  uint64_t *sums = out->at_block = new_array(h->block_count * groups, sizeof *sums);
  if (!sums) return false;
  for (size_t row = 0; row < d->allocation_count; row++) {
    if (is_found && !is_found[row]) continue;
    size_t from = block_from(d->born[row]), to = block_from(d->died[row]);
    if (from == to) continue;
    if (from < h->block_count)
      sums[from * groups + grouping->group[row]] += d->requested_bytes[row];
    if (to < h->block_count) sums[to * groups + grouping->group[row]] -= d->requested_bytes[row];
  }
  for (size_t i = groups; i < h->block_count * groups; i++) sums[i] += sums[i - groups];
  return true;
}

void terminal_sums_release(terminal_sums *sums) {
  free(sums->at_block);
  *sums = (terminal_sums){0};
}

void terminal_sums_at(const terminal_sums *sums, const terminal_history *h, uint32_t moment,
                      uint64_t bytes[TSR_VIEW_GROUPS_MAX]) {
  const tsr_view_device *d = h->device;
  const uint8_t *group = sums->grouping->group, *found = sums->is_found;
  size_t block = block_of(moment);
  assert(moment < h->moment_count);
  memset(bytes, 0, TSR_VIEW_GROUPS_MAX * sizeof *bytes);
  memcpy(bytes, sums->at_block + block * count_of(sums), count_of(sums) * sizeof *bytes);
  for (size_t row = h->born[block]; row < d->allocation_count && d->born[row] <= moment; row++)
    if (!found || found[row]) bytes[group[row]] += d->requested_bytes[row];
  for (size_t i = h->died[block]; i < h->death_count && d->died[h->by_death[i]] <= moment; i++)
    if (!found || found[h->by_death[i]])
      bytes[group[h->by_death[i]]] -= d->requested_bytes[h->by_death[i]];
}

/* ---- Order ---- */

typedef struct unrest {
  double moved, held;
} unrest;

/* Whether a group belongs above another one. */
static bool is_above(const unrest *a, const unrest *b) {
  if (a->held <= 0 || b->held <= 0) return a->held <= 0 && b->held > 0;
  return a->moved * b->held > b->moved * a->held;
}

void terminal_sums_order(const terminal_sums *sums, const terminal_history *h,
                         uint8_t order[TSR_VIEW_GROUPS_MAX]) {
  const tsr_view_device *d = h->device;
  unrest of[TSR_VIEW_GROUPS_MAX] = {{0}};
  for (size_t row = 0; row < d->allocation_count; row++) {
    unrest *u = &of[sums->grouping->group[row]];
    double bytes = (double)d->requested_bytes[row];
    u->held += bytes * ((double)d->died[row] - d->born[row]);
    u->moved += bytes * ((d->born[row] > 0) + (d->died[row] < h->moment_count));
  }
  for (size_t i = 0; i < count_of(sums); i++) {
    size_t at = i;
    for (; at && is_above(&of[order[at - 1]], &of[i]); at--) order[at] = order[at - 1];
    order[at] = (uint8_t)i;
  }
}
