/* page.c - one HTML file that shows snapshots: the template, with the data put into its middle.
 *
 *   <template's head>
 *   <script type="application/json" id="tessera-head"> what the columns are, names of groups </script>
 *   <script type="text/plain" id="tessera-data"> the columns: base64 of a zlib stream </script>
 *   <template's tail, with the program>
 *
 * Base64 has no '<', and in the JSON every '<' is escaped, so nothing in the data can end its
 * element. The head lists each column's name and length before compression, in order; how each is
 * coded is said where it is packed below, and read by viewer/src/decode.ts. Columns change slowly
 * or repeat themselves step by step, which is what deflate is good at.
 *
 * A page that would be too large is packed again with fewer, shorter names; if that does not help,
 * the caller must bring smaller views. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "report/page_names.h"
#include "report/template.h"
#include "report/text.h"
#include "tessera/tessera.h"

enum { MOST_BYTES = 20000000, HEAD_ROOM = 65536, QUICK_ALLOCATIONS = 200000 };

typedef struct page {
  const tsr_page_input *inputs;
  size_t input_count;
  const tsr_page_options *options;
  tsr__page_names names;
  tsr__page_ids *ids; /* by input */
  tsr__pack pack;
  tsr__buffer head, directory;
  uint64_t column_start;
  bool ok;
} page;

/* ---- columns ---- */

static void column(page *p, const char *format, size_t device) {
  p->column_start = tsr__pack_size(&p->pack);
  tsr__buffer_printf(&p->directory, "%s[\"", p->directory.size ? "," : "");
  tsr__buffer_printf(&p->directory, "d%zu.", device);
  tsr__buffer_text(&p->directory, format);
}

static void column_end(page *p) {
  tsr__buffer_printf(&p->directory, "\",%" PRIu64 "]", tsr__pack_size(&p->pack) - p->column_start);
}

/* Unsigned numbers, each as its difference from the one before. */
static void pack_moments(page *p, const uint32_t *moments, size_t count) {
  uint32_t before = 0;
  for (size_t i = 0; i < count; i++) {
    tsr__pack_signed(&p->pack, (int64_t)moments[i] - (int64_t)before);
    before = moments[i];
  }
}

/* What allocations have in common: a stack and sizes. No padding. */
typedef struct kind {
  uint64_t node; /* plus 1; 0 where there is none */
  uint64_t requested_bytes, block_bytes;
} kind;

static void pack_kinds(page *p, const tsr_view_device *d, size_t number, size_t input) {
  tsr__intern kinds;
  tsr__intern_init(&kinds);
  column(p, "kind", number);
  for (size_t i = 0; p->ok && i < d->allocation_count; i++) {
    uint32_t node = tsr__page_stack(&p->names, &p->ids[input], p->inputs[input].input.snapshot,
                                    d->stack[i], &p->ok);
    kind key = {node == TSR_NONE ? 0 : (uint64_t)node + 1, d->requested_bytes[i],
                d->block_bytes[i]};
    uint32_t id = p->ok ? tsr__intern_put(&kinds, &key, sizeof key, NULL) : TSR__INTERN_FULL;
    if (id == TSR__INTERN_FULL) p->ok = false;
    tsr__pack_number(&p->pack, id);
  }
  column_end(p);
  column(p, "kinds", number);
  for (uint32_t i = 0; p->ok && i < kinds.count; i++) {
    kind key;
    memcpy(&key, kinds.items[i].data, sizeof key);
    tsr__pack_number(&p->pack, key.node);
    tsr__pack_number(&p->pack, key.requested_bytes);
    tsr__pack_number(&p->pack, key.block_bytes);
  }
  column_end(p);
  tsr__intern_release(&kinds);
}

static int compare_u64(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

/* Distinct addresses in order, eight bytes each; then each allocation's place among them, as the
 * difference from the one before. */
static void pack_addresses(page *p, const tsr_view_device *d, size_t number) {
  tsr__map places = {0};
  TSR__VECTOR(uint64_t) distinct = {0};
  for (size_t i = 0; p->ok && i < d->allocation_count; i++) {
    bool is_new;
    p->ok = tsr__map_put(&places, d->address[i], 0, &is_new) &&
            (!is_new || TSR__VECTOR_PUSH(&distinct, d->address[i]));
  }
  if (p->ok && distinct.count)
    qsort(distinct.items, distinct.count, sizeof *distinct.items, compare_u64);
  column(p, "addresses", number);
  for (size_t i = 0; p->ok && i < distinct.count; i++) {
    *tsr__map_find(&places, distinct.items[i]) = i;
    tsr__pack_bytes(&p->pack, &distinct.items[i], sizeof *distinct.items);
  }
  column_end(p);
  column(p, "address", number);
  uint64_t before = 0;
  for (size_t i = 0; p->ok && i < d->allocation_count; i++) {
    uint64_t place = *tsr__map_find(&places, d->address[i]);
    tsr__pack_signed(&p->pack, (int64_t)(place - before));
    before = place;
  }
  column_end(p);
  tsr__map_release(&places);
  TSR__VECTOR_FREE(&distinct);
}

/* born: differences. life: how long, 0 for those that live at the end. wait: how long before its
 * end it was given back. */
static void pack_lives(page *p, const tsr_view_device *d, size_t number) {
  uint64_t end = d->event_count + 1;
  column(p, "born", number);
  pack_moments(p, d->born, d->allocation_count);
  column_end(p);
  column(p, "life", number);
  for (size_t i = 0; i < d->allocation_count; i++)
    tsr__pack_number(&p->pack, d->died[i] < end ? d->died[i] - d->born[i] : 0);
  column_end(p);
  column(p, "wait", number);
  for (size_t i = 0; i < d->allocation_count; i++)
    tsr__pack_number(&p->pack, d->died[i] - d->released[i]);
  column_end(p);
}

static void pack_sums(page *p, const uint64_t *sums, size_t buckets, size_t groups) {
  for (size_t g = 0; g < groups; g++) {
    uint64_t before = 0;
    for (size_t b = 0; b < buckets; b++) {
      tsr__pack_signed(&p->pack, (int64_t)(sums[b * groups + g] - before));
      before = sums[b * groups + g];
    }
  }
}

static void pack_groupings(page *p, const tsr_view_device *d, size_t number) {
  char name[32];
  for (size_t g = 0; g < d->grouping_count; g++) {
    const tsr_view_grouping *grouping = &d->groupings[g];
    snprintf(name, sizeof name, "group%zu", g);
    column(p, name, number);
    tsr__pack_bytes(&p->pack, grouping->group, d->allocation_count);
    column_end(p);
    if (!grouping->rest_high) continue;
    snprintf(name, sizeof name, "rest%zu.high", g);
    column(p, name, number);
    pack_sums(p, grouping->rest_high, d->bucket_count, grouping->count);
    column_end(p);
    snprintf(name, sizeof name, "rest%zu.low", g);
    column(p, name, number);
    pack_sums(p, grouping->rest_low, d->bucket_count, grouping->count);
    column_end(p);
  }
}

static void pack_buckets(page *p, const tsr_view_device *d, size_t number) {
  column(p, "high", number);
  pack_moments(p, d->high, d->bucket_count);
  column_end(p);
  column(p, "low", number);
  pack_moments(p, d->low, d->bucket_count);
  column_end(p);
  column(p, "allocated.high", number);
  pack_sums(p, d->allocated_high, d->bucket_count, 1);
  column_end(p);
  column(p, "allocated.low", number);
  pack_sums(p, d->allocated_low, d->bucket_count, 1);
  column_end(p);
  if (!d->rest_blocks_high) return;
  column(p, "active.high", number);
  pack_sums(p, d->active_high, d->bucket_count, 1);
  column_end(p);
  column(p, "active.low", number);
  pack_sums(p, d->active_low, d->bucket_count, 1);
  column_end(p);
  column(p, "rest.blocks.high", number);
  pack_moments(p, d->rest_blocks_high, d->bucket_count);
  column_end(p);
  column(p, "rest.blocks.low", number);
  pack_moments(p, d->rest_blocks_low, d->bucket_count);
  column_end(p);
}

static void pack_lanes(page *p, const tsr_view_device *d, size_t number, size_t input) {
  const tsr_snapshot *snapshot = p->inputs[input].input.snapshot;
  column(p, "times", number);
  int64_t before = d->time_count ? d->times_us[0] : 0;
  for (size_t i = 0; i < d->time_count; i++) {
    tsr__pack_signed(&p->pack, d->times_us[i] - before);
    before = d->times_us[i];
  }
  column_end(p);
  column(p, "spans", number);
  for (size_t i = 0; i < d->span_count; i++) {
    const tsr_view_span *s = &d->spans[i];
    tsr_pool pool = tsr_snapshot_pool(snapshot, s->pool);
    tsr__pack_bytes(&p->pack, &s->address, sizeof s->address);
    tsr__pack_number(&p->pack, s->size_bytes);
    tsr__pack_number(&p->pack, s->born);
    tsr__pack_number(&p->pack, s->died);
    tsr__pack_number(&p->pack, tsr_snapshot_stream(snapshot, s->stream));
    tsr__pack_number(&p->pack, pool.first);
    tsr__pack_number(&p->pack, pool.second);
    tsr__pack_number(&p->pack, (unsigned)s->is_large | (unsigned)s->is_expandable << 1);
  }
  column_end(p);
  column(p, "ranges", number);
  for (size_t i = 0; i < d->range_count; i++) {
    const tsr_view_range *r = &d->ranges[i];
    tsr__pack_number(&p->pack,
                     tsr__page_string(&p->names, &p->ids[input], snapshot, r->name, &p->ok));
    tsr__pack_number(&p->pack, r->born);
    tsr__pack_number(&p->pack, r->died);
    tsr__pack_number(&p->pack, r->is_metadata);
  }
  column_end(p);
  column(p, "marks", number);
  for (size_t i = 0; i < d->mark_count; i++) {
    tsr__pack_number(&p->pack, d->marks[i].moment);
    tsr__pack_number(&p->pack, d->marks[i].action == TSR_ACTION_OOM);
    tsr__pack_number(&p->pack, d->marks[i].size_bytes);
    tsr__pack_number(&p->pack, d->marks[i].free_bytes);
  }
  column_end(p);
}

/* Names come last: only now is it known which are needed. */
static void pack_names(page *p) {
  const tsr__page_names *names = &p->names;
  tsr__buffer text = {0};
  p->column_start = tsr__pack_size(&p->pack);
  tsr__buffer_text(&p->directory, ",[\"nodes");
  for (uint32_t i = 0; i < names->nodes.count; i++) {
    tsr__page_node node;
    memcpy(&node, names->nodes.items[i].data, sizeof node);
    tsr__pack_number(&p->pack, node.parent == TSR_NONE ? 0 : i - node.parent);
    tsr__pack_number(&p->pack, node.frame);
  }
  column_end(p);
  p->column_start = tsr__pack_size(&p->pack);
  tsr__buffer_text(&p->directory, ",[\"frames");
  for (uint32_t i = 0; i < names->frames.count; i++) {
    tsr__page_frame frame;
    memcpy(&frame, names->frames.items[i].data, sizeof frame);
    tsr__pack_number(&p->pack, frame.name);
    tsr__pack_number(&p->pack, frame.file);
    tsr__pack_number(&p->pack, frame.line == TSR_LINE_UNKNOWN ? 0 : tsr__sum_u64(frame.line, 1));
    tsr__pack_number(&p->pack, frame.origin);
  }
  column_end(p);
  p->column_start = tsr__pack_size(&p->pack);
  tsr__buffer_text(&p->directory, ",[\"strings");
  tsr__buffer_text(&text, "[");
  for (uint32_t i = 0; i < names->strings.count; i++) {
    const tsr__interned *item = &names->strings.items[i];
    if (i) tsr__buffer_text(&text, ",");
    tsr__page_quote(&text, (tsr_text){(const char *)item->data, item->size_bytes});
    if (text.size > HEAD_ROOM) {
      tsr__pack_bytes(&p->pack, text.data, text.size);
      text.size = 0;
    }
  }
  tsr__buffer_text(&text, "]");
  if (text.failed) p->ok = false;
  tsr__pack_bytes(&p->pack, text.data, text.size);
  tsr__buffer_release(&text);
  column_end(p);
}

/* ---- the head ---- */

static void head_number(page *p, const char *key, uint64_t number) {
  tsr__buffer_printf(&p->head, ",\"%s\":%" PRIu64, key, number);
}

static void head_warnings(page *p, const tsr_warning *warnings, size_t count) {
  tsr__buffer_text(&p->head, ",\"warnings\":[");
  for (size_t i = 0; i < count; i++) {
    tsr__buffer_printf(&p->head, "%s{\"code\":", i ? "," : "");
    tsr__page_quote(&p->head, tsr__text_of(warnings[i].code));
    tsr__buffer_printf(&p->head, ",\"count\":%" PRIu64 ",\"message\":", warnings[i].count);
    tsr__page_quote(&p->head, tsr__text_of(warnings[i].message));
    tsr__buffer_text(&p->head, "}");
  }
  tsr__buffer_text(&p->head, "]");
}

static void head_groupings(page *p, const tsr_view_device *d) {
  tsr__buffer_text(&p->head, ",\"groupings\":[");
  for (size_t g = 0; g < d->grouping_count; g++) {
    const tsr_view_grouping *grouping = &d->groupings[g];
    tsr__buffer_printf(&p->head, "%s{\"key\":\"%s\",\"title\":\"%s\",\"names\":[", g ? "," : "",
                       grouping->key, grouping->title);
    for (size_t i = 0; i < grouping->count; i++) {
      if (i) tsr__buffer_text(&p->head, ",");
      tsr__page_quote(&p->head, tsr__page_cut(grouping->names[i], p->names.most_text));
    }
    tsr__buffer_text(&p->head, "]}");
  }
  tsr__buffer_text(&p->head, "]");
}

static void head_device(page *p, const tsr_view_device *d, size_t input) {
  tsr__buffer_printf(&p->head, "{\"input\":%zu", input);
  head_number(p, "device", d->device);
  head_number(p, "events", d->event_count);
  head_number(p, "peak", d->peak);
  head_number(p, "peakAllocated", d->peak_totals.allocated_bytes);
  head_number(p, "maxReserved", d->maxima.reserved_bytes);
  head_number(p, "allocations", d->allocation_count);
  head_number(p, "restCount", d->rest_count);
  head_number(p, "restLargest", d->rest_largest_bytes);
  head_number(p, "bucketMoments", d->bucket_moments);
  head_number(p, "buckets", d->bucket_count);
  head_number(p, "timeStep", d->time_step);
  head_number(p, "timeCount", d->time_count);
  tsr__buffer_printf(&p->head, ",\"firstTime\":%" PRId64, d->time_count ? d->times_us[0] : 0);
  head_groupings(p, d);
  head_warnings(p, d->warnings, d->warning_count);
  tsr__buffer_text(&p->head, "}");
}

static void write_head(page *p) {
  size_t count, written = 0;
  const char *by = p->options && p->options->by ? p->options->by : "category";
  tsr__buffer_printf(&p->head,
                     "{\"schema\":\"tessera-page/1\",\"version\":\"%s\",\"by\":", tsr_version());
  tsr__page_quote(&p->head, tsr__text_of(by));
  head_number(p, "capacity", p->options ? p->options->capacity_bytes : 0);
  tsr__buffer_text(&p->head, ",\"inputs\":[");
  for (size_t i = 0; i < p->input_count; i++) {
    const tsr_report_input *input = &p->inputs[i].input;
    tsr__buffer_printf(&p->head, "%s{\"path\":", i ? "," : "");
    tsr__page_quote(&p->head, tsr__page_cut(tsr__text_of(input->path), p->names.most_text));
    head_number(p, "bytes", tsr_snapshot_input_bytes(input->snapshot));
    tsr__buffer_text(&p->head, ",\"format\":");
    tsr__page_quote(&p->head, tsr__text_of(tsr_snapshot_format(input->snapshot)));
    const tsr_warning *warnings = tsr_snapshot_warnings(input->snapshot, &count);
    head_warnings(p, warnings, count);
    tsr__buffer_text(&p->head, "}");
  }
  tsr__buffer_text(&p->head, "],\"devices\":[");
  for (size_t i = 0; i < p->input_count; i++)
    for (size_t d = 0; d < p->inputs[i].view->device_count; d++) {
      if (written++) tsr__buffer_text(&p->head, ",");
      head_device(p, &p->inputs[i].view->devices[d], i);
    }
  tsr__buffer_text(&p->head, "],\"columns\":[");
  tsr__buffer_append(&p->head, p->directory.data, p->directory.size);
  tsr__buffer_text(&p->head, "]}");
  if (p->head.failed || p->directory.failed) p->ok = false;
}

/* ---- the whole ---- */

static void release(page *p) {
  tsr__page_names_release(&p->names);
  for (size_t i = 0; p->ids && i < p->input_count; i++) tsr__page_ids_release(&p->ids[i]);
  tsr__free(p->ids);
  tsr__pack_release(&p->pack);
  tsr__buffer_release(&p->head);
  tsr__buffer_release(&p->directory);
}

static void pack_all(page *p) {
  size_t number = 0;
  for (size_t i = 0; p->ok && i < p->input_count; i++)
    for (size_t d = 0; p->ok && d < p->inputs[i].view->device_count; d++, number++) {
      const tsr_view_device *device = &p->inputs[i].view->devices[d];
      pack_lives(p, device, number);
      pack_kinds(p, device, number, i);
      pack_addresses(p, device, number);
      pack_groupings(p, device, number);
      pack_buckets(p, device, number);
      pack_lanes(p, device, number, i);
    }
  if (p->ok) pack_names(p);
  if (p->ok) write_head(p);
}

static size_t allocations_of(const tsr_page_input *inputs, size_t count) {
  size_t allocations = 0;
  for (size_t i = 0; i < count; i++)
    for (size_t d = 0; d < inputs[i].view->device_count; d++)
      allocations += inputs[i].view->devices[d].allocation_count;
  return allocations;
}

static int build(page *p, size_t most_text, tsr_error *error) {
  uint64_t most = p->options && p->options->most_bytes ? p->options->most_bytes : MOST_BYTES;
  uint64_t fixed = (uint64_t)tsr__template_head_size + tsr__template_tail_size + HEAD_ROOM;
  bool is_quick = allocations_of(p->inputs, p->input_count) > QUICK_ALLOCATIONS;
  tsr__page_names_init(&p->names, most_text);
  int status = tsr__pack_open(&p->pack, is_quick ? 1 : 6,
                              (size_t)(tsr__drop_u64(most, fixed) / 4 * 3), error);
  if (status) return status;
  p->ids = TSR__NEW_ARRAY(tsr__page_ids, p->input_count);
  p->ok = p->ids != NULL;
  for (size_t i = 0; p->ok && i < p->input_count; i++)
    p->ok = tsr__page_ids_init(&p->ids[i], p->inputs[i].input.snapshot);
  if (p->ok) pack_all(p);
  if (!p->ok) return tsr__fail_memory(error);
  status = tsr__pack_finish(&p->pack, error);
  if (!status && fixed + p->head.size + p->pack.out.size / 3 * 4 > most + HEAD_ROOM)
    status = tsr__fail(error, TSR_ERROR_LIMIT, TSR_OFFSET_NONE, "the page would be too large");
  return status;
}

typedef struct writer {
  tsr_write_fn *write;
  void *context;
  bool failed;
} writer;

static void put(writer *w, const void *data, size_t size_bytes) {
  if (!w->failed && size_bytes) w->failed = w->write(w->context, data, size_bytes) != 0;
}

static void put_base64(writer *w, const unsigned char *data, size_t size) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  char line[1 << 14];
  size_t used = 0;
  for (size_t at = 0; at < size; at += 3) {
    size_t left = size - at;
    uint32_t bits = (uint32_t)data[at] << 16 | (left > 1 ? (uint32_t)data[at + 1] << 8 : 0) |
                    (left > 2 ? data[at + 2] : 0);
    line[used++] = digits[bits >> 18];
    line[used++] = digits[bits >> 12 & 63];
    line[used++] = left > 1 ? digits[bits >> 6 & 63] : '=';
    line[used++] = left > 2 ? digits[bits & 63] : '=';
    if (used > sizeof line - 4) {
      put(w, line, used);
      used = 0;
    }
  }
  put(w, line, used);
}

static int write_page(const page *p, writer *w, tsr_error *error) {
  static const char head[] = "<script type=\"application/json\" id=\"tessera-head\">";
  static const char data[] = "</script>\n<script type=\"text/plain\" id=\"tessera-data\">";
  static const char end[] = "</script>\n";
  put(w, tsr__template_head, tsr__template_head_size);
  put(w, head, sizeof head - 1);
  put(w, p->head.data, p->head.size);
  put(w, data, sizeof data - 1);
  put_base64(w, (const unsigned char *)p->pack.out.data, p->pack.out.size);
  put(w, end, sizeof end - 1);
  put(w, tsr__template_tail, tsr__template_tail_size);
  if (!w->failed) return 0;
  return tsr__fail(error, TSR_ERROR_WRITE, TSR_OFFSET_NONE, "the output could not be written");
}

int tsr_report_page(const tsr_page_input *inputs, size_t input_count,
                    const tsr_page_options *options, tsr_write_fn *write, void *context,
                    tsr_error *error) {
  static const size_t texts[] = {4096, 256, 48};
  writer w = {write, context, false};
  tsr_error why = {0};
  int status = TSR_ERROR_LIMIT;
  for (size_t i = 0; status == TSR_ERROR_LIMIT && i < sizeof texts / sizeof *texts; i++) {
    page *p = TSR__NEW(page);
    if (!p) return tsr__fail_memory(error);
    *p = (page){.inputs = inputs, .input_count = input_count, .options = options};
    status = build(p, texts[i], &why);
    if (!status) status = write_page(p, &w, &why);
    release(p);
    tsr__free(p);
  }
  if (status && error) *error = why;
  return status;
}
