/* columns.c - how each column of a page is encoded. See page.h.
 *
 * Columns change slowly or repeat themselves step by step, which deflate compresses well. So most
 * are stored as differences, and what allocations have in common is in a separate table. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/sort.h"
#include "emit/text.h"
#include "page/page.h"

enum { TEXT_ROOM = 65536 };

int tsr__bundle_open(tsr__bundle *bundle, tsr__page_names *names, int level, size_t most_bytes,
                     tsr_error *error) {
  bundle->names = names;
  bundle->head = bundle->directory = (tsr__buffer){0};
  bundle->ok = true;
  return tsr__pack_open(&bundle->pack, level, most_bytes, error);
}

void tsr__bundle_release(tsr__bundle *bundle) {
  tsr__pack_release(&bundle->pack);
  tsr__buffer_release(&bundle->head);
  tsr__buffer_release(&bundle->directory);
}

void tsr__bundle_column(tsr__bundle *p, const char *name) {
  p->column_start = tsr__pack_size(&p->pack);
  tsr__buffer_printf(&p->directory, "%s[\"%s", p->directory.size ? "," : "", name);
}

static void column(tsr__bundle *p, const char *name, size_t device) {
  char text[48];
  snprintf(text, sizeof text, "d%zu.%s", device, name);
  tsr__bundle_column(p, text);
}

void tsr__bundle_column_end(tsr__bundle *p) {
  assert(tsr__pack_size(&p->pack) >= p->column_start);
  tsr__buffer_printf(&p->directory, "\",%" PRIu64 "]", tsr__pack_size(&p->pack) - p->column_start);
}

int tsr__bundle_finish(tsr__bundle *bundle, tsr__buffer *head, tsr__buffer *data,
                       tsr_error *error) {
  if (!bundle->ok) return tsr__fail_memory(error);
  int status = tsr__pack_finish(&bundle->pack, error);
  if (status) return status;
  *head = bundle->head;
  *data = bundle->pack.out;
  bundle->head = bundle->pack.out = (tsr__buffer){0};
  return 0;
}

/* Unsigned numbers, each as its difference from the previous one. */
static void pack_moments(tsr__bundle *p, const uint32_t *moments, size_t count) {
  uint32_t before = 0;
  for (size_t i = 0; i < count; i++) {
    tsr__pack_signed(&p->pack, (int64_t)moments[i] - (int64_t)before);
    before = moments[i];
  }
}

/* What allocations have in common: a stack, sizes, and what the program called them. No padding. */
typedef struct kind {
  uint64_t node; /* plus 1; 0 if absent */
  uint64_t requested_bytes, block_bytes;
  uint64_t said; /* index of the text plus 1; 0 if absent */
} kind;
static_assert(sizeof(kind) == 4 * sizeof(uint64_t), "kinds are compared byte by byte");

/* A kind's number. Most stacks request one size, so the last kind of the same stack (its number plus 1
 * is in `last`) is tried first. */
static uint32_t kind_id(tsr__bundle *p, tsr__intern *kinds, const kind *key, uint32_t *last) {
  if (*last && memcmp(kinds->items[*last - 1].data, key, sizeof *key) == 0) return *last - 1;
  uint32_t id = p->ok ? tsr__intern_put(kinds, key, sizeof *key, NULL) : TSR__INTERN_FULL;
  if (id == TSR__INTERN_FULL)
    p->ok = false;
  else
    *last = id + 1;
  return id;
}

static uint64_t said_of(const tsr_view_device *d, uint32_t row) {
  return d->said && d->said[row] != TSR_NONE ? (uint64_t)d->said[row] + 1 : 0;
}

/* By kind: the string of the page plus 1, or 0. Absent if the program named nothing. */
static void pack_said(tsr__bundle *p, const tsr_view_device *d, const tsr__intern *kinds,
                      size_t number) {
  if (!d->said) return;
  column(p, "said", number);
  for (uint32_t i = 0; p->ok && i < kinds->count; i++) {
    kind key;
    memcpy(&key, kinds->items[i].data, sizeof key);
    assert(key.said <= d->text_count);
    uint64_t string =
        key.said ? (uint64_t)tsr__page_text(p->names, d->texts[key.said - 1], &p->ok) + 1 : 0;
    tsr__pack_number(&p->pack, string);
  }
  tsr__bundle_column_end(p);
}

static void pack_kinds(tsr__bundle *p, const tsr__page_track *t, size_t number) {
  const tsr_view_device *d = t->device;
  uint32_t *last = TSR__NEW_ARRAY(uint32_t, tsr_snapshot_stack_count(t->snapshot)), lone = 0;
  tsr__intern kinds;
  tsr__intern_init(&kinds);
  if (!last) p->ok = false;
  column(p, "kind", number);
  for (size_t i = 0; p->ok && !p->pack.is_full && i < t->cut->listed_count; i++) {
    uint32_t row = t->cut->listed[i], stack = d->stack[row];
    assert(row < d->allocation_count);
    assert(stack == TSR_NONE || stack < tsr_snapshot_stack_count(t->snapshot));
    uint32_t node = tsr__page_stack(p->names, t->ids, t->snapshot, stack, &p->ok);
    kind key = {node == TSR_NONE ? 0 : (uint64_t)node + 1, d->requested_bytes[row],
                d->block_bytes[row], said_of(d, row)};
    tsr__pack_number(&p->pack, kind_id(p, &kinds, &key, stack == TSR_NONE ? &lone : &last[stack]));
  }
  tsr__free(last);
  tsr__bundle_column_end(p);
  column(p, "kinds", number);
  for (uint32_t i = 0; p->ok && i < kinds.count; i++) {
    kind key;
    memcpy(&key, kinds.items[i].data, sizeof key);
    tsr__pack_number(&p->pack, key.node);
    tsr__pack_number(&p->pack, key.requested_bytes);
    tsr__pack_number(&p->pack, key.block_bytes);
  }
  tsr__bundle_column_end(p);
  pack_said(p, d, &kinds, number);
  tsr__intern_release(&kinds);
}

static int compare_u64(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

/* Distinct addresses in order, eight bytes each; then each allocation's index among them, as the
 * difference from the previous one. */
static void pack_addresses(tsr__bundle *p, const tsr__page_track *t, size_t number) {
  tsr__map places = {0};
  TSR__VECTOR(uint64_t) distinct = {0};
  for (size_t i = 0; p->ok && i < t->cut->listed_count; i++) {
    uint64_t address = t->device->address[t->cut->listed[i]];
    bool is_new;
    p->ok = tsr__map_put(&places, address, 0, &is_new) &&
            (!is_new || TSR__VECTOR_PUSH(&distinct, address));
  }
  if (p->ok && distinct.count)
    tsr__sort(distinct.items, distinct.count, sizeof *distinct.items, compare_u64);
  column(p, "addresses", number);
  for (size_t i = 0; p->ok && i < distinct.count; i++) {
    assert(!i || distinct.items[i - 1] < distinct.items[i]);
    *tsr__map_find(&places, distinct.items[i]) = i;
    tsr__pack_bytes(&p->pack, &distinct.items[i], sizeof *distinct.items);
  }
  tsr__bundle_column_end(p);
  column(p, "address", number);
  uint64_t before = 0;
  for (size_t i = 0; p->ok && i < t->cut->listed_count; i++) {
    uint64_t place = *tsr__map_find(&places, t->device->address[t->cut->listed[i]]);
    tsr__pack_signed(&p->pack, (int64_t)(place - before));
    before = place;
  }
  tsr__bundle_column_end(p);
  tsr__map_release(&places);
  TSR__VECTOR_FREE(&distinct);
}

/* row: indexes of these allocations in the device; absent if these are all. born: differences.
 * life: duration, 0 for those live at the end. wait: time from the program's free to the end. */
static void pack_lives(tsr__bundle *p, const tsr__page_track *t, size_t number) {
  const tsr_view_device *d = t->device;
  const tsr_view_cut *cut = t->cut;
  uint64_t end = d->event_count + 1;
  uint32_t before = 0;
  column(p, "born", number);
  for (size_t i = 0; i < cut->listed_count; i++) {
    tsr__pack_signed(&p->pack, (int64_t)d->born[cut->listed[i]] - (int64_t)before);
    before = d->born[cut->listed[i]];
  }
  tsr__bundle_column_end(p);
  column(p, "life", number);
  for (size_t i = 0; i < cut->listed_count; i++) {
    uint32_t row = cut->listed[i];
    tsr__pack_number(&p->pack, d->died[row] < end ? d->died[row] - d->born[row] : 0);
  }
  tsr__bundle_column_end(p);
  column(p, "wait", number);
  for (size_t i = 0; i < cut->listed_count; i++)
    tsr__pack_number(&p->pack, d->died[cut->listed[i]] - d->released[cut->listed[i]]);
  tsr__bundle_column_end(p);
  if (cut->listed_count == d->allocation_count) return;
  column(p, "row", number);
  pack_moments(p, cut->listed, cut->listed_count);
  tsr__bundle_column_end(p);
}

static void pack_sums(tsr__bundle *p, const uint64_t *sums, size_t buckets, size_t groups) {
  for (size_t g = 0; g < groups; g++) {
    uint64_t before = 0;
    for (size_t b = 0; b < buckets; b++) {
      tsr__pack_signed(&p->pack, (int64_t)(sums[b * groups + g] - before));
      before = sums[b * groups + g];
    }
  }
}

static void pack_groupings(tsr__bundle *p, const tsr__page_track *t, size_t number) {
  const tsr_view_cut *cut = t->cut;
  char name[32];
  for (size_t g = 0; g < t->device->grouping_count; g++) {
    const tsr_view_grouping *grouping = &t->device->groupings[g];
    snprintf(name, sizeof name, "group%zu", g);
    column(p, name, number);
    for (size_t i = 0; i < cut->listed_count; i++) {
      assert(grouping->group[cut->listed[i]] < grouping->count);
      tsr__pack_bytes(&p->pack, &grouping->group[cut->listed[i]], 1);
    }
    tsr__bundle_column_end(p);
    if (!cut->rest[g].high) continue;
    snprintf(name, sizeof name, "rest%zu.high", g);
    column(p, name, number);
    pack_sums(p, cut->rest[g].high, cut->bucket_count, grouping->count);
    tsr__bundle_column_end(p);
    snprintf(name, sizeof name, "rest%zu.low", g);
    column(p, name, number);
    pack_sums(p, cut->rest[g].low, cut->bucket_count, grouping->count);
    tsr__bundle_column_end(p);
  }
}

static void pack_buckets(tsr__bundle *p, const tsr__page_track *t, size_t number) {
  const tsr_view_cut *d = t->cut;
  column(p, "high", number);
  pack_moments(p, d->high, d->bucket_count);
  tsr__bundle_column_end(p);
  column(p, "low", number);
  pack_moments(p, d->low, d->bucket_count);
  tsr__bundle_column_end(p);
  column(p, "allocated.high", number);
  pack_sums(p, d->allocated_high, d->bucket_count, 1);
  tsr__bundle_column_end(p);
  column(p, "allocated.low", number);
  pack_sums(p, d->allocated_low, d->bucket_count, 1);
  tsr__bundle_column_end(p);
  if (!d->rest_blocks_high) return;
  column(p, "active.high", number);
  pack_sums(p, d->active_high, d->bucket_count, 1);
  tsr__bundle_column_end(p);
  column(p, "active.low", number);
  pack_sums(p, d->active_low, d->bucket_count, 1);
  tsr__bundle_column_end(p);
  column(p, "rest.blocks.high", number);
  pack_moments(p, d->rest_blocks_high, d->bucket_count);
  tsr__bundle_column_end(p);
  column(p, "rest.blocks.low", number);
  pack_moments(p, d->rest_blocks_low, d->bucket_count);
  tsr__bundle_column_end(p);
}

static void pack_times(tsr__bundle *p, const tsr_view_device *d, size_t number) {
  int64_t before = d->time_count ? d->times_us[0] : 0;
  column(p, "times", number);
  for (size_t i = 0; i < d->time_count; i++) {
    /* Of a file that lies, times may be any: the difference wraps. */
    tsr__pack_signed(&p->pack, (int64_t)((uint64_t)d->times_us[i] - (uint64_t)before));
    before = d->times_us[i];
  }
  tsr__bundle_column_end(p);
}

static void pack_spans(tsr__bundle *p, const tsr__page_track *t, size_t number) {
  column(p, "spans", number);
  for (size_t i = 0; i < t->device->span_count; i++) {
    const tsr_view_span *s = &t->device->spans[i];
    tsr_pool pool = tsr_snapshot_pool(t->snapshot, s->pool);
    tsr__pack_bytes(&p->pack, &s->address, sizeof s->address);
    tsr__pack_number(&p->pack, s->size_bytes);
    tsr__pack_number(&p->pack, s->born);
    tsr__pack_number(&p->pack, s->died);
    tsr__pack_number(&p->pack, tsr_snapshot_stream(t->snapshot, s->stream));
    tsr__pack_number(&p->pack, pool.first);
    tsr__pack_number(&p->pack, pool.second);
    tsr__pack_number(&p->pack, (unsigned)s->is_large | (unsigned)s->is_expandable << 1);
  }
  tsr__bundle_column_end(p);
}

static void pack_pools(tsr__bundle *p, const tsr_view_device *d, size_t number) {
  uint32_t before = 0;
  column(p, "pools", number);
  for (size_t i = 0; i < d->pool_mark_count; i++) {
    const tsr_view_pool_mark *mark = &d->pool_marks[i];
    assert(mark->moment >= before && mark->group < TSR_VIEW_GROUPS_MAX);
    tsr__pack_number(&p->pack, mark->moment - before);
    tsr__pack_number(&p->pack, mark->group);
    tsr__pack_number(&p->pack, mark->bytes);
    before = mark->moment;
  }
  tsr__bundle_column_end(p);
}

/* The allocations that each finding is about, by their rows. */
static void pack_findings(tsr__bundle *p, const tsr_view_device *d, size_t number) {
  for (size_t i = 0; i < d->finding_count; i++) {
    char name[32];
    snprintf(name, sizeof name, "finding.%s", tsr_finding_rule_name(d->findings[i].rule));
    column(p, name, number);
    pack_moments(p, d->findings[i].rows, d->findings[i].row_count);
    tsr__bundle_column_end(p);
  }
}

/* kind and certainty in one; the name is a string of the page, or a step's number. */
static void pack_range(tsr__bundle *p, const tsr__page_track *t, const tsr_view_range *range) {
  uint32_t name = range->name;
  if (range->kind == TSR_VIEW_PHASE)
    name = tsr__page_text(p->names, tsr__text_of(tsr_phase_name((tsr_phase)name)), &p->ok);
  else if (range->kind != TSR_VIEW_STEP)
    name = tsr__page_string(p->names, t->ids, t->snapshot, name, &p->ok);
  tsr__pack_number(&p->pack, (unsigned)range->kind << 1 | (unsigned)range->is_certain);
  tsr__pack_number(&p->pack, name);
  tsr__pack_number(&p->pack, range->born);
  tsr__pack_number(&p->pack, range->died - range->born);
}

void tsr__page_pack_lanes(tsr__bundle *p, const tsr__page_track *t, size_t number) {
  const tsr_view_device *d = t->device;
  pack_times(p, d, number);
  pack_spans(p, t, number);
  pack_pools(p, d, number);
  pack_findings(p, d, number);
  tsr__page_pack_card(p, t, number);
  column(p, "ranges", number);
  for (size_t i = 0; i < d->range_count; i++) pack_range(p, t, &d->ranges[i]);
  tsr__bundle_column_end(p);
  column(p, "marks", number);
  for (size_t i = 0; i < d->mark_count; i++) {
    tsr__pack_number(&p->pack, d->marks[i].moment);
    tsr__pack_number(&p->pack, d->marks[i].action == TSR_ACTION_OOM);
    tsr__pack_number(&p->pack, d->marks[i].size_bytes);
    tsr__pack_number(&p->pack, d->marks[i].free_bytes);
  }
  tsr__bundle_column_end(p);
}

/* Stops once the page is too large. */
void tsr__page_pack_cut(tsr__bundle *p, const tsr__page_track *t, size_t number) {
  static void (*const packers[])(tsr__bundle *, const tsr__page_track *, size_t) = {
      pack_lives, pack_kinds, pack_addresses, pack_groupings, pack_buckets};
  for (size_t i = 0; i < sizeof packers / sizeof *packers && !p->pack.is_full; i++)
    packers[i](p, t, number);
}

void tsr__page_pack_names(tsr__bundle *p) {
  const tsr__page_names *names = p->names;
  tsr__buffer text = {0};
  tsr__bundle_column(p, "nodes");
  for (uint32_t i = 0; i < names->nodes.count; i++) {
    tsr__page_node node;
    memcpy(&node, names->nodes.items[i].data, sizeof node);
    assert((node.parent == TSR_NONE || node.parent < i) && node.frame < names->frames.count);
    tsr__pack_number(&p->pack, node.parent == TSR_NONE ? 0 : i - node.parent);
    tsr__pack_number(&p->pack, node.frame);
  }
  tsr__bundle_column_end(p);
  tsr__bundle_column(p, "frames");
  for (uint32_t i = 0; i < names->frames.count; i++) {
    tsr__page_frame frame;
    memcpy(&frame, names->frames.items[i].data, sizeof frame);
    assert(frame.name < names->strings.count && frame.file < names->strings.count);
    tsr__pack_number(&p->pack, frame.name);
    tsr__pack_number(&p->pack, frame.file);
    tsr__pack_number(&p->pack, frame.line == TSR_LINE_UNKNOWN ? 0 : tsr__sum_u64(frame.line, 1));
    tsr__pack_number(&p->pack, frame.origin);
  }
  tsr__bundle_column_end(p);
  tsr__bundle_column(p, "strings");
  tsr__buffer_text(&text, "[");
  for (uint32_t i = 0; i < names->strings.count; i++) {
    const tsr__interned *item = &names->strings.items[i];
    if (i) tsr__buffer_text(&text, ",");
    tsr__page_quote(&text, (tsr_text){(const char *)item->data, item->size_bytes});
    if (text.size > TEXT_ROOM) {
      tsr__pack_bytes(&p->pack, text.data, text.size);
      text.size = 0;
    }
  }
  tsr__buffer_text(&text, "]");
  if (text.failed) p->ok = false;
  tsr__pack_bytes(&p->pack, text.data, text.size);
  tsr__buffer_release(&text);
  tsr__bundle_column_end(p);
}
