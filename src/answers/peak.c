/* peak.c - what holds the memory at its highest? The live set there, summed by stack. */
#include <stdlib.h>

#include "answers/query.h"
#include "attribution/category.h"
#include "base/checked.h"
#include "base/memory.h"
#include "timeline/recorded.h"

/* Largest first; equal ones by allocations, then in the order of first appearance in the file. */
static int compare_shares(const void *a, const void *b) {
  const tsr_stack_share *x = a, *y = b;
  if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
  if (x->allocations != y->allocations) return x->allocations < y->allocations ? 1 : -1;
  return (x->stack > y->stack) - (x->stack < y->stack);
}

/* Sum live allocations into one share a stack; what has none, or an empty one, is one share too. */
static tsr_stack_share *sum_by_stack(const tsr_snapshot *snapshot, const tsr__recorded *recorded,
                                     size_t *share_count) {
  uint32_t stack_count = tsr_snapshot_stack_count(snapshot);
  tsr_stack_share *shares = TSR__NEW_ARRAY(tsr_stack_share, (size_t)stack_count + 1);
  if (!shares) return NULL;
  for (size_t i = 0; i < recorded->live.count; i++) {
    const tsr__live *live = &recorded->live.items[i];
    bool has_frames = tsr_snapshot_stack(snapshot, live->stack).depth > 0;
    tsr_stack_share *share = &shares[has_frames ? live->stack : stack_count];
    share->stack = has_frames ? live->stack : TSR_NONE;
    share->bytes = tsr__sum_u64(share->bytes, live->size_bytes);
    share->allocations++;
  }
  *share_count = 0;
  for (size_t i = 0; i <= stack_count; i++)
    if (shares[i].allocations) shares[(*share_count)++] = shares[i];
  qsort(shares, *share_count, sizeof *shares, compare_shares);
  return shares;
}

static void cut_to_top(tsr_peak_device *out, size_t top) {
  if (!top || out->stack_count <= top) return;
  for (size_t i = top; i < out->stack_count; i++)
    out->omitted_bytes = tsr__sum_u64(out->omitted_bytes, out->stacks[i].bytes);
  out->omitted_stacks = out->stack_count - top;
  out->stack_count = top;
}

static int describe(const tsr_snapshot *snapshot, const tsr__categories *categories, size_t top,
                    tsr_peak_device *out, tsr_error *error) {
  tsr__recorded recorded = {0};
  int status = tsr__recorded_compute(snapshot, out->device, &recorded, error);
  if (status) return status;
  out->event_count = tsr_snapshot_events(snapshot, out->device).count;
  out->recorded = recorded.totals;
  out->stacks = sum_by_stack(snapshot, &recorded, &out->stack_count);
  tsr__recorded_release(&recorded);
  if (!out->stacks) return tsr__fail_memory(error);
  cut_to_top(out, top);
  for (size_t i = 0; i < out->stack_count; i++)
    out->stacks[i].category = tsr__category_of(categories, out->stacks[i].stack);
  return 0;
}

int tsr_peak_compute(const tsr_snapshot *snapshot, const tsr_query *query, tsr_peak **out,
                     tsr_error *error) {
  const uint32_t *devices;
  size_t count;
  tsr__categories categories = {0};
  int status = tsr__query_devices(snapshot, query, &devices, &count, error);
  if (status) return status;
  tsr_peak *peak = TSR__NEW(tsr_peak);
  if (!peak) return tsr__fail_memory(error);
  peak->devices = TSR__NEW_ARRAY(tsr_peak_device, count);
  status = peak->devices ? tsr__categories_compute(snapshot, &categories, error)
                         : tsr__fail_memory(error);
  for (; !status && peak->device_count < count; peak->device_count++) {
    tsr_peak_device *device = &peak->devices[peak->device_count];
    device->device = devices[peak->device_count];
    status = describe(snapshot, &categories, query ? query->top : 0, device, error);
  }
  tsr__categories_release(&categories);
  if (status)
    tsr_peak_free(peak);
  else
    *out = peak;
  return status;
}

void tsr_peak_free(tsr_peak *peak) {
  if (!peak) return;
  for (size_t i = 0; i < peak->device_count; i++) tsr__free(peak->devices[i].stacks);
  tsr__free(peak->devices);
  tsr__free(peak);
}
