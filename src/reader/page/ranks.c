/* ranks.c - one HTML file that shows the ranks of a job: the template viewer/ranks.html with these columns (write.c).
 *
 *   answer      what `tessera ranks --json` prints: rows, groups, outliers, what is missing and broken
 *   verdict     its first line
 *   rows        of each row of `answer`: 1 + the first time of its trace, its length, the time of its peak and of its end of memory after the
 *               first, each 1 + that or 0; group; whether it is another device, has a trace; steps, whole steps; whether its steps show how
 *               far its clock is ahead of the median one, and if so by how much
 *   categories  of each row: bytes at the peak of each category
 *   parts       of each row: the most that was allocated in equal parts of its time, each less the one before
 *   steps       of each row: how many are listed, and of each: start less that of the one before, duration, peak, end
 *   shares      of each row: how many stacks are listed of its peak, and of each: 1 + node or 0, category, bytes, allocations
 *   changes     of each row: 1 + the row that it is compared with or 0, how many changes, and of each as `shares`, with the difference and
 *               the other's bytes; how many the last one stands for
 *   labels, nodes, frames, strings   as in the page of snapshots
 *
 * The page is drawn from sketches, so it is made without reading a snapshot again. */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "emit/text.h"
#include "fleet/fleet.h"
#include "page/page.h"
#include "questions/ranks/ranks.h"
#include "tessera/version.h"

/* How much is listed of each rank. */
typedef struct detail {
  size_t shares, changes, steps;
} detail;

/* The most that a page has first; less if it would be too large, and at last whatever its size. */
static const detail details[] = {{16, 12, TSR__SKETCH_STEPS}, {8, 6, 16}, {3, 2, 4}, {0, 0, 0}};
enum { DETAILS = sizeof details / sizeof *details, MOST_TEXT = 512 };

typedef struct packing {
  const tsr_ranks *ranks;
  const tsr__fleet *fleet;
  const tsr_rank_outlier **outliers; /* by row, or NULL */
  tsr__page_ids ids;                 /* of the fleet's stacks */
  tsr__page_names names;
  detail how;
} packing;

/* ---- Columns ---- */

static int append(void *context, const char *data, size_t size_bytes) {
  tsr__buffer_append(context, data, size_bytes);
  return ((tsr__buffer *)context)->failed;
}

static int pack_report(tsr__bundle *b, const packing *p, const char *path, const char *name,
                       tsr_report_format format, tsr_error *error) {
  tsr_report_input input = {path, p->ranks->stacks};
  tsr_report_options options = {.format = format, .quiet = format != TSR_REPORT_JSON};
  tsr__buffer text = {0};
  int status = tsr__report_ranks(&input, p->ranks, &options, append, &text, error);
  if (text.failed) status = tsr__fail_memory(error);
  tsr__bundle_column(b, name);
  if (!status) tsr__pack_bytes(&b->pack, text.data, text.size);
  tsr__bundle_column_end(b);
  tsr__buffer_release(&text);
  return status;
}

/* 1 + a time after another, or 0 if one of them is not known. */
static void pack_after(tsr__bundle *b, int64_t first_us, int64_t time_us) {
  bool is_known = first_us != TSR_TIME_NONE && time_us != TSR_TIME_NONE && time_us >= first_us;
  tsr__pack_number(&b->pack, is_known ? (uint64_t)time_us - (uint64_t)first_us + 1 : 0);
}

static void pack_row(tsr__bundle *b, const tsr_rank_row *row, const tsr__member *m) {
  pack_after(b, 0, row->first_us);
  pack_after(b, row->first_us, row->last_us);
  pack_after(b, row->first_us, row->peak_us);
  pack_after(b, row->first_us, row->is_out_of_memory ? row->stop_us : TSR_TIME_NONE);
  tsr__pack_number(&b->pack, row->group);
  tsr__pack_number(&b->pack, row->is_other);
  tsr__pack_number(&b->pack, row->has_history);
  tsr__pack_number(&b->pack, m->sketch.step_count);
  tsr__pack_number(&b->pack, m->sketch.whole_steps);
  bool is_aligned = m->ahead_us != TSR_TIME_NONE;
  tsr__pack_number(&b->pack, is_aligned);
  if (is_aligned) tsr__pack_signed(&b->pack, m->ahead_us);
}

static void pack_parts(tsr__bundle *b, const tsr_rank_row *row) {
  uint64_t before = 0;
  for (size_t i = 0; i < TSR_RANK_PARTS; i++) {
    tsr__pack_signed(&b->pack, (int64_t)(row->parts[i] - before));
    before = row->parts[i];
  }
}

static void pack_steps(tsr__bundle *b, const tsr__sketch_device *d, size_t most) {
  size_t count = d->steps.count < most ? d->steps.count : most, first = d->steps.count - count;
  int64_t before = d->first_us == TSR_TIME_NONE ? 0 : d->first_us;
  tsr__pack_number(&b->pack, count);
  for (size_t i = first; i < d->steps.count; i++) {
    const tsr__sketch_step *step = &d->steps.items[i];
    tsr__pack_signed(&b->pack, (int64_t)((uint64_t)step->at_us[0] - (uint64_t)before));
    uint64_t first_us = (uint64_t)step->at_us[0];
    tsr__pack_signed(&b->pack,
                     (int64_t)((uint64_t)step->at_us[TSR__SKETCH_MOMENTS - 1] - first_us));
    tsr__pack_number(&b->pack, step->peak_bytes);
    tsr__pack_number(&b->pack, step->end_bytes);
    before = step->at_us[0];
  }
}

static void pack_kind(tsr__bundle *b, packing *p, uint32_t stack, unsigned category) {
  uint32_t node = tsr__page_stack(&p->names, &p->ids, p->ranks->stacks, stack, &b->ok);
  tsr__pack_number(&b->pack, node == TSR_NONE ? 0 : (uint64_t)node + 1);
  tsr__pack_number(&b->pack, category);
}

static void pack_shares(tsr__bundle *b, packing *p, const tsr__sketch_shares *shares) {
  size_t count = shares->count < p->how.shares ? shares->count : p->how.shares;
  tsr__pack_number(&b->pack, count);
  for (size_t i = 0; i < count; i++) {
    pack_kind(b, p, shares->items[i].stack, shares->items[i].category);
    tsr__pack_number(&b->pack, shares->items[i].bytes);
    tsr__pack_number(&b->pack, shares->items[i].count);
  }
}

/* 1 + the row of a rank's own device, or 0. */
static uint64_t row_of(const tsr_ranks *ranks, int64_t rank) {
  size_t low = 0, high = ranks->row_count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (ranks->rows[middle].rank < rank)
      low = middle + 1;
    else
      high = middle;
  }
  while (low < ranks->row_count && ranks->rows[low].rank == rank && ranks->rows[low].is_other)
    low++;
  return low < ranks->row_count && ranks->rows[low].rank == rank ? (uint64_t)low + 1 : 0;
}

/* An outlier's changes are those of the answer. */
static int pack_changes(tsr__bundle *b, packing *p, size_t row, tsr_error *error) {
  const tsr_rank_outlier *known = p->outliers[row];
  tsr_rank_outlier found = {.changes = NULL};
  if (!known) {
    int status = tsr__fleet_difference(p->fleet, p->ranks, row, p->how.changes, &found, error);
    if (status) return status;
    known = &found;
  }
  tsr__pack_number(&b->pack, known->compared_with < 0 ? 0 : row_of(p->ranks, known->compared_with));
  tsr__pack_number(&b->pack, known->change_count);
  for (size_t i = 0; i < known->change_count; i++) {
    const tsr_rank_change *change = &known->changes[i];
    pack_kind(b, p, change->stack, (unsigned)change->category);
    tsr__pack_signed(&b->pack, change->delta_bytes);
    tsr__pack_number(&b->pack, change->median_bytes);
  }
  tsr__pack_number(&b->pack, known->others);
  tsr__free(found.changes);
  return 0;
}

static int pack_all(tsr__bundle *b, packing *p, const char *path, tsr_error *error) {
  const tsr_ranks *ranks = p->ranks;
  const tsr__member *members = p->fleet->members.items;
  int status = pack_report(b, p, path, "answer", TSR_REPORT_JSON, error);
  if (!status) status = pack_report(b, p, path, "verdict", TSR_REPORT_VERDICT, error);
  tsr__bundle_column(b, "rows");
  for (size_t i = 0; i < ranks->row_count; i++) pack_row(b, &ranks->rows[i], &members[i]);
  tsr__bundle_column_end(b);
  tsr__bundle_column(b, "categories");
  for (size_t i = 0; i < ranks->row_count; i++)
    for (size_t c = 0; c < TSR_CATEGORY_COUNT; c++)
      tsr__pack_number(&b->pack, ranks->rows[i].category_bytes[c]);
  tsr__bundle_column_end(b);
  tsr__bundle_column(b, "parts");
  for (size_t i = 0; i < ranks->row_count; i++) pack_parts(b, &ranks->rows[i]);
  tsr__bundle_column_end(b);
  tsr__bundle_column(b, "steps");
  for (size_t i = 0; i < ranks->row_count; i++) pack_steps(b, &members[i].sketch, p->how.steps);
  tsr__bundle_column_end(b);
  tsr__bundle_column(b, "shares");
  for (size_t i = 0; i < ranks->row_count; i++) pack_shares(b, p, &members[i].sketch.shares);
  tsr__bundle_column_end(b);
  tsr__bundle_column(b, "changes");
  for (size_t i = 0; !status && i < ranks->row_count; i++) status = pack_changes(b, p, i, error);
  tsr__bundle_column_end(b);
  tsr_page_input input = {.input = {.snapshot = ranks->stacks}};
  if (!status && b->ok) tsr__page_pack_labels(b, &input, &p->ids, 1);
  if (!status && b->ok) tsr__page_pack_names(b);
  return status;
}

static void put_head(tsr__bundle *b, const packing *p, const char *path) {
  tsr__buffer_printf(
      &b->head, "{\"schema\":\"tessera-ranks-page/1\",\"version\":\"%s\",\"path\":", tsr_version());
  tsr__page_quote(&b->head, tsr__page_cut(tsr__text_of(path), MOST_TEXT));
  tsr__buffer_printf(&b->head, ",\"parts\":%d,\"others\":%s,\"categories\":[", TSR_RANK_PARTS,
                     p->how.shares == details[0].shares ? "false" : "true");
  for (int c = 0; c < TSR_CATEGORY_COUNT; c++)
    tsr__buffer_printf(&b->head, "%s\"%s\"", c ? "," : "", tsr_category_name((tsr_category)c));
  tsr__buffer_text(&b->head, "]");
  tsr__head_columns(b);
}

/* ---- The page ---- */

static int prepare(packing *p, tsr_error *error) {
  tsr__page_names_init(&p->names, MOST_TEXT);
  p->outliers = TSR__NEW_ARRAY(const tsr_rank_outlier *, p->ranks->row_count);
  if (!p->outliers || !tsr__page_ids_init(&p->ids, p->ranks->stacks))
    return tsr__fail_memory(error);
  for (size_t i = 0; i < p->ranks->outlier_count; i++)
    p->outliers[p->ranks->outliers[i].row] = &p->ranks->outliers[i];
  return 0;
}

static void release(packing *p) {
  tsr__page_names_release(&p->names);
  tsr__page_ids_release(&p->ids);
  tsr__free(p->outliers);
}

/* With the detail `level`. TSR_ERROR_LIMIT if it is too large, and could be smaller. */
static int build(const tsr_ranks *ranks, const char *path, size_t level, tsr__buffer *head,
                 tsr__buffer *data, tsr_error *error) {
  packing p = {.ranks = ranks, .fleet = ranks->fleet, .how = details[level]};
  size_t room = level + 1 < DETAILS ? TSR__PAGE_MOST_BYTES / 4 * 3 : SIZE_MAX;
  tsr__bundle *bundle = TSR__NEW(tsr__bundle);
  if (!bundle) return tsr__fail_memory(error);
  int status = prepare(&p, error);
  if (!status) status = tsr__bundle_open(bundle, &p.names, 6, room, error);
  if (!status) {
    status = pack_all(bundle, &p, path, error);
    put_head(bundle, &p, path);
    if (!status) status = tsr__bundle_finish(bundle, head, data, error);
    tsr__bundle_release(bundle);
  }
  tsr__free(bundle);
  release(&p);
  return status;
}

int tsr_ranks_page(const tsr_ranks *ranks, const char *path, tsr_write_fn *write, void *context,
                   tsr_error *error) {
  tsr__buffer head = {0}, data = {0};
  tsr__page_writer w = {write, context, false};
  int status = TSR_ERROR_LIMIT;
  for (size_t level = 0; status == TSR_ERROR_LIMIT && level < DETAILS; level++)
    status = build(ranks, path, level, &head, &data, error);
  if (!status) status = tsr__page_put(&w, &tsr__template_ranks, "'none'", &head, &data, error);
  tsr__buffer_release(&head);
  tsr__buffer_release(&data);
  return status;
}
