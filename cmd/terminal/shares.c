/* shares.c - see shares.h. */
#include "shares.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { GROUPED_MOST = 256 }; /* shares of which the largest group is found; lists are shorter */

/* ---- By stack ---- */

static int by_bytes(const void *a, const void *b) {
  const terminal_share *x = a, *y = b;
  if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
  return (x->stack > y->stack) - (x->stack < y->stack);
}

/* Add up the rows by stack. `slot` is by stack id, and last of absent stacks: 1 + the share. */
static void add_rows(const terminal_history *h, const terminal_sums *sums,
                     const terminal_rows *rows, uint32_t moment, uint32_t *slot, uint32_t stacks,
                     terminal_shares *out) {
  const tsr_view_device *d = h->device;
  for (size_t i = 0; i < rows->count; i++) {
    uint32_t row = rows->items[i], stack = d->stack[row];
    if (sums->is_found && !sums->is_found[row]) continue;
    uint32_t *at = &slot[stack < stacks ? stack : stacks];
    if (!*at) {
      out->items[out->count++] = (terminal_share){.stack = stack, .row = row};
      *at = (uint32_t)out->count;
    }
    terminal_share *share = &out->items[*at - 1];
    share->bytes += d->requested_bytes[row];
    share->count++;
    out->bytes += d->requested_bytes[row];
    out->allocations++;
    if (!d->born[row] && d->released[row] > moment) out->older_bytes += d->block_bytes[row];
  }
}

static void find_groups(const terminal_history *h, const terminal_sums *sums,
                        const terminal_rows *rows, uint32_t *slot, uint32_t stacks,
                        uint64_t (*bytes)[TSR_VIEW_GROUPS_MAX], terminal_shares *out) {
  const tsr_view_device *d = h->device;
  for (size_t i = 0; i < out->count; i++)
    slot[out->items[i].stack < stacks ? out->items[i].stack : stacks] = (uint32_t)i;
  for (size_t i = 0; i < rows->count; i++) {
    uint32_t row = rows->items[i], stack = d->stack[row];
    if (sums->is_found && !sums->is_found[row]) continue;
    uint32_t share = slot[stack < stacks ? stack : stacks];
    if (share < GROUPED_MOST) bytes[share][sums->grouping->group[row]] += d->requested_bytes[row];
  }
  for (size_t i = 0; i < out->count; i++) {
    terminal_share *share = &out->items[i];
    share->group = sums->grouping->group[share->row];
    for (size_t g = 0; i < GROUPED_MOST && g < sums->grouping->count; g++)
      if (bytes[i][g] > bytes[i][share->group]) share->group = (uint8_t)g;
  }
}

int terminal_shares_make(const tsr_snapshot *snapshot, const terminal_history *h,
                         const terminal_sums *sums, uint32_t moment, terminal_shares *out) {
  terminal_rows rows = {0};
  uint32_t stacks = tsr_snapshot_stack_count(snapshot);
  uint32_t *slot = calloc((size_t)stacks + 1, sizeof *slot);
  uint64_t(*bytes)[TSR_VIEW_GROUPS_MAX] = calloc(GROUPED_MOST, sizeof *bytes);
  *out = (terminal_shares){0};
  bool ok = slot && bytes && terminal_history_live(h, moment, &rows);
  size_t most = rows.count < (size_t)stacks + 1 ? rows.count : (size_t)stacks + 1;
  if (ok) out->items = calloc(most + 1, sizeof *out->items);
  ok = ok && out->items;
  if (ok) {
    add_rows(h, sums, &rows, moment, slot, stacks, out);
    assert(out->count <= most);
    qsort(out->items, out->count, sizeof *out->items, by_bytes);
    find_groups(h, sums, &rows, slot, stacks, bytes, out);
  }
  free(rows.items);
  free(bytes);
  free(slot);
  return ok ? 0 : TSR_ERROR_MEMORY;
}

void terminal_shares_release(terminal_shares *shares) {
  free(shares->items);
  *shares = (terminal_shares){0};
}

/* ---- Differences ---- */

/* A share by what its stack says, so that stacks of two snapshots meet. */
typedef struct keyed {
  uint64_t key;
  const terminal_share *share;
} keyed;

static uint64_t mix(uint64_t hash, const void *data, size_t size_bytes) {
  const unsigned char *bytes = data;
  for (size_t i = 0; i < size_bytes; i++) hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
  return hash ^ hash >> 29;
}

static uint64_t mix_text(uint64_t hash, tsr_text text) {
  return mix(mix(hash, &text.size_bytes, sizeof text.size_bytes), text.data, text.size_bytes);
}

static uint64_t key_of(const tsr_snapshot *snapshot, uint32_t id) {
  tsr_stack stack = tsr_snapshot_stack(snapshot, id); /* of TSR_NONE an empty one */
  uint64_t hash = UINT64_C(0xcbf29ce484222325);
  for (uint32_t i = 0; i < stack.depth; i++) {
    tsr_frame frame = tsr_snapshot_frame(snapshot, stack.frames[i]);
    hash = mix_text(hash, tsr_snapshot_string(snapshot, frame.name));
    hash = mix_text(hash, tsr_snapshot_string(snapshot, frame.file));
    hash = mix(hash, &frame.line, sizeof frame.line);
  }
  return hash;
}

static int by_key(const void *a, const void *b) {
  const keyed *x = a, *y = b;
  return (x->key > y->key) - (x->key < y->key);
}

static keyed *sorted(terminal_side side) {
  keyed *list = calloc(side.shares->count + 1, sizeof *list);
  for (size_t i = 0; list && i < side.shares->count; i++)
    list[i] = (keyed){key_of(side.snapshot, side.shares->items[i].stack), &side.shares->items[i]};
  if (list) qsort(list, side.shares->count, sizeof *list, by_key);
  return list;
}

static uint64_t distance(const terminal_change *change) {
  uint64_t old = terminal_old_bytes(change), new = terminal_new_bytes(change);
  return old < new ? new - old : old - new;
}

static int by_distance(const void *a, const void *b) {
  const terminal_change *x = a, *y = b;
  uint64_t of_x = distance(x), of_y = distance(y);
  if (of_x != of_y) return of_x < of_y ? 1 : -1;
  uint64_t size_x = terminal_new_bytes(x), size_y = terminal_new_bytes(y);
  if (size_x != size_y) return size_x < size_y ? 1 : -1;
  const terminal_share *s = x->new ? x->new : x->old, *t = y->new ? y->new : y->old;
  return (s->stack > t->stack) - (s->stack < t->stack);
}

int terminal_changes_make(terminal_side old, terminal_side new, terminal_changes *out) {
  keyed *olds = sorted(old), *news = sorted(new);
  size_t i = 0, k = 0, old_count = old.shares->count, new_count = new.shares->count;
  *out = (terminal_changes){.items = calloc(old_count + new_count + 1, sizeof *out->items)};
  bool ok = olds && news && out->items;
  while (ok && (i < old_count || k < new_count)) {
    bool takes_old = i < old_count && (k == new_count || olds[i].key <= news[k].key);
    bool takes_new = k < new_count && (i == old_count || news[k].key <= olds[i].key);
    terminal_change change = {takes_old ? olds[i].share : NULL, takes_new ? news[k].share : NULL};
    i += takes_old;
    k += takes_new;
    if (distance(&change)) out->items[out->count++] = change;
  }
  if (ok) qsort(out->items, out->count, sizeof *out->items, by_distance);
  free(olds);
  free(news);
  return ok ? 0 : TSR_ERROR_MEMORY;
}

void terminal_changes_release(terminal_changes *changes) {
  free(changes->items);
  *changes = (terminal_changes){0};
}
