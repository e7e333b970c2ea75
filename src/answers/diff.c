/* diff.c - what changed between two runs?
 *
 * Each run's peak is asked for with all its stacks, and the two lists become one: a row for each
 * class of stacks (answers/match.h), filled from either side. Memory without a stack is a class of
 * its own, the last. What differs is a change; those are sorted by how much.
 *
 *   old peak: stack ──► class ─┐
 *                              ├──► rows[class] = {old bytes, new bytes} ──► changes
 *   new peak: stack ──► class ─┘
 */
#include <stdlib.h>

#include "answers/match.h"
#include "answers/query.h"
#include "answers/shares.h"
#include "base/checked.h"
#include "base/memory.h"

/* Both runs; `peaks` have no limit on their lists. */
typedef struct pair {
  const tsr_snapshot *snapshots[2]; /* old, new */
  tsr_peak *peaks[2];
  tsr__match match;
  tsr_change *rows; /* by class, and one for memory without a stack */
  bool *are_used;
} pair;

const char *tsr_change_status_name(tsr_change_status status) {
  switch (status) {
  case TSR_CHANGE_ADDED: return "added";
  case TSR_CHANGE_REMOVED: return "removed";
  case TSR_CHANGE_GROWN: return "grown";
  case TSR_CHANGE_SHRUNK: return "shrunk";
  }
  return "unknown";
}

static int64_t signed_delta(uint64_t old_bytes, uint64_t new_bytes) {
  uint64_t size = old_bytes > new_bytes ? old_bytes - new_bytes : new_bytes - old_bytes;
  if (size > INT64_MAX) size = INT64_MAX;
  return old_bytes > new_bytes ? -(int64_t)size : (int64_t)size;
}

static uint64_t size_of(int64_t delta) {
  return delta < 0 ? (uint64_t)-delta : (uint64_t)delta;
}

/* Largest first; equal ones in the order of the classes, which is that of the files: `old_stack`
 * and `new_stack` are ids, and grow with it. */
static int compare_changes(const void *a, const void *b) {
  const tsr_change *x = a, *y = b;
  uint64_t left = size_of(x->delta_bytes), right = size_of(y->delta_bytes);
  if (left != right) return left < right ? 1 : -1;
  if (x->new_stack != y->new_stack) return x->new_stack < y->new_stack ? -1 : 1;
  return (x->old_stack > y->old_stack) - (x->old_stack < y->old_stack);
}

/* ---- Devices ---- */

static bool has_device(const tsr_snapshot *snapshot, uint32_t device) {
  size_t count;
  const uint32_t *devices = tsr_snapshot_devices(snapshot, &count);
  for (size_t i = 0; i < count; i++)
    if (devices[i] == device) return true;
  return false;
}

static int add_device(const pair *p, uint32_t old_device, uint32_t new_device, tsr_diff *diff,
                      tsr_error *error) {
  tsr_diff_device *device = &diff->devices[diff->device_count];
  device->old_side.device = old_device;
  device->old_side.is_there = has_device(p->snapshots[0], old_device);
  device->new_side.device = new_device;
  device->new_side.is_there = has_device(p->snapshots[1], new_device);
  device->device = device->new_side.is_there ? new_device : old_device;
  if (!device->old_side.is_there && !device->new_side.is_there)
    return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                     "neither snapshot has events or segments of device %u", (unsigned)new_device);
  diff->device_count++;
  return 0;
}

/* The devices of either, ascending, as merging the two lists gives them. */
static int add_all(const pair *p, tsr_diff *diff, tsr_error *error) {
  size_t counts[2], at[2] = {0, 0};
  const uint32_t *lists[2];
  for (int k = 0; k < 2; k++) lists[k] = tsr_snapshot_devices(p->snapshots[k], &counts[k]);
  if (counts[0] == 1 && counts[1] == 1) return add_device(p, lists[0][0], lists[1][0], diff, error);
  int status = 0;
  while (!status && (at[0] < counts[0] || at[1] < counts[1])) {
    uint32_t left = at[0] < counts[0] ? lists[0][at[0]] : UINT32_MAX;
    uint32_t right = at[1] < counts[1] ? lists[1][at[1]] : UINT32_MAX;
    uint32_t device = left < right ? left : right;
    status = add_device(p, device, device, diff, error);
    at[0] += at[0] < counts[0] && left == device;
    at[1] += at[1] < counts[1] && right == device;
  }
  return status;
}

static int choose_devices(const pair *p, const tsr_query *query, tsr_diff *diff, tsr_error *error) {
  size_t old_count, new_count;
  tsr_snapshot_devices(p->snapshots[0], &old_count);
  tsr_snapshot_devices(p->snapshots[1], &new_count);
  bool names = query && query->device_count;
  diff->devices =
      TSR__NEW_ARRAY(tsr_diff_device, names ? query->device_count : old_count + new_count);
  if (!diff->devices) return tsr__fail_memory(error);
  if (!names) return add_all(p, diff, error);
  int status = 0;
  for (size_t i = 0; !status && i < query->device_count; i++)
    status = add_device(p, query->devices[i], query->devices[i], diff, error);
  return status;
}

/* ---- One device ---- */

static const tsr_peak_device *peak_of(const tsr_peak *peak, const tsr_diff_side *side) {
  for (size_t i = 0; side->is_there && i < peak->device_count; i++)
    if (peak->devices[i].device == side->device) return &peak->devices[i];
  return NULL;
}

/* Put one side's shares into the rows of their classes. */
static void fill_rows(pair *p, int which, const tsr_peak_device *peak) {
  const uint32_t *classes = which ? p->match.new_class : p->match.old_class;
  for (size_t i = 0; i < peak->stack_count; i++) {
    const tsr_stack_share *share = &peak->stacks[i];
    uint32_t class = share->stack == TSR_NONE ? p->match.class_count : classes[share->stack];
    tsr_change *row = &p->rows[class];
    if (!p->are_used[class]) *row = (tsr_change){.old_stack = TSR_NONE, .new_stack = TSR_NONE};
    p->are_used[class] = true;
    row->kind = share->kind;
    *(which ? &row->new_stack : &row->old_stack) = share->stack;
    *(which ? &row->new_bytes : &row->old_bytes) = share->bytes;
    *(which ? &row->new_allocations : &row->old_allocations) = share->allocations;
  }
}

static void judge(tsr_change *change) {
  change->delta_bytes = signed_delta(change->old_bytes, change->new_bytes);
  if (!change->old_allocations)
    change->status = TSR_CHANGE_ADDED;
  else if (!change->new_allocations)
    change->status = TSR_CHANGE_REMOVED;
  else
    change->status = change->delta_bytes < 0 ? TSR_CHANGE_SHRUNK : TSR_CHANGE_GROWN;
}

static void tally(tsr_diff_device *out, const tsr_change *change) {
  uint64_t *sums[] = {
      [TSR_CHANGE_ADDED] = &out->added_bytes,
      [TSR_CHANGE_REMOVED] = &out->removed_bytes,
      [TSR_CHANGE_GROWN] = &out->grown_bytes,
      [TSR_CHANGE_SHRUNK] = &out->shrunk_bytes,
  };
  uint64_t *sum = sums[change->status];
  *sum = tsr__sum_u64(*sum, size_of(change->delta_bytes));
}

/* Move what differs out of the rows, and leave them unused again. */
static int collect(pair *p, size_t top, tsr_diff_device *out, tsr_error *error) {
  size_t used = 0;
  for (uint32_t i = 0; i <= p->match.class_count; i++) used += p->are_used[i];
  out->changes = TSR__NEW_ARRAY(tsr_change, used);
  if (!out->changes) return tsr__fail_memory(error);
  for (uint32_t i = 0; i <= p->match.class_count; i++) {
    if (!p->are_used[i]) continue;
    p->are_used[i] = false;
    tsr_change *change = &out->changes[out->change_count];
    *change = p->rows[i];
    judge(change);
    out->unchanged_stacks += change->delta_bytes == 0;
    out->change_count += change->delta_bytes != 0;
    if (change->delta_bytes) tally(out, change);
  }
  if (out->change_count)
    qsort(out->changes, out->change_count, sizeof *out->changes, compare_changes);
  if (!top || out->change_count <= top) return 0;
  uint64_t up = 0, down = 0;
  for (size_t i = top; i < out->change_count; i++) {
    uint64_t *sum = out->changes[i].delta_bytes < 0 ? &down : &up;
    *sum = tsr__sum_u64(*sum, size_of(out->changes[i].delta_bytes));
  }
  out->omitted_delta_bytes = signed_delta(down, up);
  out->omitted_changes = out->change_count - top;
  out->change_count = top;
  return 0;
}

static int copy_warnings(const tsr_peak_device *peaks[2], tsr_diff_device *out, tsr_error *error) {
  size_t count = 0;
  for (int k = 0; k < 2; k++) count += peaks[k] ? peaks[k]->warning_count : 0;
  out->warnings = TSR__NEW_ARRAY(tsr_warning, count);
  if (!out->warnings) return tsr__fail_memory(error);
  for (int k = 0; k < 2; k++)
    for (size_t i = 0; peaks[k] && i < peaks[k]->warning_count; i++)
      out->warnings[out->warning_count++] = peaks[k]->warnings[i];
  return 0;
}

/* Take over what one side's peak says; answers that peak, or NULL. */
static const tsr_peak_device *describe_side(pair *p, int which, tsr_diff_side *side) {
  const tsr_peak_device *peak = peak_of(p->peaks[which], side);
  if (!peak) return NULL;
  side->event_count = peak->event_count;
  side->peak = peak->peak;
  fill_rows(p, which, peak);
  return peak;
}

static int describe(pair *p, size_t top, tsr_diff_device *out, tsr_error *error) {
  const tsr_peak_device *peaks[] = {describe_side(p, 0, &out->old_side),
                                    describe_side(p, 1, &out->new_side)};
  int status = collect(p, top, out, error);
  return status ? status : copy_warnings(peaks, out, error);
}

/* ---- Both ---- */

static int prepare(pair *p, tsr_error *error) {
  int status = tsr__match_compute(p->snapshots[0], p->snapshots[1], &p->match, error);
  for (int k = 0; !status && k < 2; k++)
    status = tsr_peak_compute(p->snapshots[k], NULL, &p->peaks[k], error);
  if (status) return status;
  size_t rows = (size_t)p->match.class_count + 1;
  p->rows = TSR__NEW_ARRAY(tsr_change, rows);
  p->are_used = TSR__NEW_ARRAY(bool, rows);
  return p->rows && p->are_used ? 0 : tsr__fail_memory(error);
}

static void pair_release(pair *p) {
  tsr__match_release(&p->match);
  tsr_peak_free(p->peaks[0]);
  tsr_peak_free(p->peaks[1]);
  tsr__free(p->rows);
  tsr__free(p->are_used);
}

int tsr_diff_compute(const tsr_snapshot *old_snapshot, const tsr_snapshot *new_snapshot,
                     const tsr_query *query, tsr_diff **out, tsr_error *error) {
  pair p = {.snapshots = {old_snapshot, new_snapshot}};
  tsr_diff *diff = TSR__NEW(tsr_diff);
  if (!diff) return tsr__fail_memory(error);
  int status = choose_devices(&p, query, diff, error);
  if (!status) status = prepare(&p, error);
  for (size_t i = 0; !status && i < diff->device_count; i++)
    status = describe(&p, query ? query->top : 0, &diff->devices[i], error);
  pair_release(&p);
  if (status)
    tsr_diff_free(diff);
  else
    *out = diff;
  return status;
}

void tsr_diff_free(tsr_diff *diff) {
  if (!diff) return;
  for (size_t i = 0; i < diff->device_count; i++) {
    tsr__free(diff->devices[i].changes);
    tsr__free(diff->devices[i].warnings);
  }
  tsr__free(diff->devices);
  tsr__free(diff);
}
