/* page.c - one HTML file that shows snapshots: see write.c for its parts. A part of a served page is the same without the HTML:
 *
 *   bytes of the head, 4, little-endian | the head | the zlib stream
 *
 * and refers to names by the numbers that the page assigned to them, so a served page contains all
 * names. A page that is too large because of its names is packed again with shorter ones; if that does
 * not help, the caller must provide smaller cuts. */
#include "page/page.h"

#include <assert.h>

#include "base/options.h"

enum { HEAD_ROOM = 65536, QUICK_ALLOCATIONS = 200000 };

struct tsr_page {
  const tsr_page_input *inputs;
  size_t input_count;
  tsr_page_options options;
  tsr__page_names names;
  tsr__page_ids *ids; /* by input */
  tsr__page_track *tracks;
  size_t track_count;
  tsr__buffer head, data;
};

/* ---- packing ---- */

static int find_tracks(tsr_page *p, tsr_error *error) {
  size_t count = 0;
  for (size_t i = 0; i < p->input_count; i++) count += p->inputs[i].view->device_count;
  p->ids = TSR__NEW_ARRAY(tsr__page_ids, p->input_count);
  p->tracks = TSR__NEW_ARRAY(tsr__page_track, count);
  if (!p->ids || !p->tracks) return tsr__fail_memory(error);
  for (size_t i = 0; i < p->input_count; i++) {
    const tsr_page_input *input = &p->inputs[i];
    if (!tsr__page_ids_init(&p->ids[i], input->input.snapshot)) return tsr__fail_memory(error);
    for (size_t d = 0; d < input->view->device_count; d++)
      p->tracks[p->track_count++] = (tsr__page_track){input->input.snapshot, &p->ids[i], i,
                                                      &input->view->devices[d], &input->cuts[d]};
  }
  assert(p->track_count == count);
  return 0;
}

/* Every stack and every name of the program's that a part may refer to. */
static bool name_all(tsr_page *p) {
  bool ok = true;
  for (size_t i = 0; i < p->track_count; i++) {
    const tsr__page_track *t = &p->tracks[i];
    for (size_t a = 0; ok && a < t->device->allocation_count; a++)
      (void)tsr__page_stack(&p->names, t->ids, t->snapshot, t->device->stack[a], &ok);
    for (size_t s = 0; ok && s < t->device->text_count; s++)
      (void)tsr__page_text(&p->names, t->device->texts[s], &ok);
  }
  return ok;
}

/* Returns whether everything except the names fits; if not, shorter names would not help. */
static bool pack_all(tsr_page *p, tsr__bundle *bundle) {
  if (p->options.is_served) bundle->ok = name_all(p);
  for (size_t i = 0; bundle->ok && i < p->track_count; i++) {
    tsr__page_pack_cut(bundle, &p->tracks[i], i);
    if (bundle->pack.is_full) return false;
    tsr__page_pack_lanes(bundle, &p->tracks[i], i);
  }
  if (bundle->pack.is_full) return false;
  if (bundle->ok) tsr__page_pack_pairs(bundle, p->inputs, p->ids, p->input_count);
  if (bundle->ok) tsr__page_pack_lines(bundle, p->tracks, p->track_count);
  if (bundle->pack.is_full) return false;
  if (bundle->ok) tsr__page_pack_labels(bundle, p->inputs, p->ids, p->input_count);
  if (bundle->ok) tsr__page_pack_places(bundle, p->inputs, p->ids, p->input_count);
  if (bundle->ok) tsr__page_pack_names(bundle);
  if (bundle->ok)
    tsr__page_head(bundle, p->inputs, p->input_count, p->tracks, p->track_count, &p->options);
  return true;
}

static bool is_long(const tsr_page *p) {
  size_t allocations = 0;
  for (size_t i = 0; i < p->track_count; i++) allocations += p->tracks[i].cut->listed_count;
  return allocations > QUICK_ALLOCATIONS;
}

/* `*can_shorten`: whether a page that is too large may fit with shorter names. */
static int build(tsr_page *p, size_t most_text, bool *can_shorten, tsr_error *error) {
  uint64_t most = p->options.most_bytes ? p->options.most_bytes : TSR__PAGE_MOST_BYTES;
  uint64_t fixed = tsr__template_bytes(&tsr__template_page) + HEAD_ROOM;
  tsr__bundle *bundle = TSR__NEW(tsr__bundle);
  if (!bundle) return tsr__fail_memory(error);
  tsr__page_names_init(&p->names, most_text);
  int status = find_tracks(p, error);
  if (!status)
    status = tsr__bundle_open(bundle, &p->names, is_long(p) ? 1 : 6,
                              (size_t)(most > fixed ? (most - fixed) / 4 * 3 : 0), error);
  if (!status) {
    *can_shorten = pack_all(p, bundle);
    status = tsr__bundle_finish(bundle, &p->head, &p->data, error);
  }
  tsr__bundle_release(bundle);
  tsr__free(bundle);
  if (!status && fixed + p->head.size + p->data.size / 3 * 4 > most + HEAD_ROOM)
    status = tsr__fail(error, TSR_ERROR_LIMIT, TSR_OFFSET_NONE, "the page would be too large");
  return status;
}

int tsr_page_open(const tsr_page_input *inputs, size_t input_count, const tsr_page_options *options,
                  tsr_page **out, tsr_error *error) {
  static const size_t texts[] = {4096, 256, 48};
  tsr_error why = {0};
  tsr_page_options how;
  int status = tsr__options_read(options, &how, sizeof how, error);
  if (status) return status;
  status = TSR_ERROR_LIMIT;
  bool can_shorten = true;
  for (size_t i = 0; status == TSR_ERROR_LIMIT && can_shorten && i < sizeof texts / sizeof *texts;
       i++) {
    tsr_page *p = TSR__NEW(tsr_page);
    if (!p) return tsr__fail_memory(error);
    *p = (tsr_page){.inputs = inputs, .input_count = input_count};
    p->options = how;
    status = build(p, texts[i], &can_shorten, &why);
    if (status)
      tsr_page_free(p);
    else
      *out = p;
  }
  if (status && error) *error = why;
  return status;
}

void tsr_page_free(tsr_page *page) {
  if (!page) return;
  tsr__page_names_release(&page->names);
  for (size_t i = 0; page->ids && i < page->input_count; i++) tsr__page_ids_release(&page->ids[i]);
  tsr__free(page->ids);
  tsr__free(page->tracks);
  tsr__buffer_release(&page->head);
  tsr__buffer_release(&page->data);
  tsr__free(page);
}

/* ---- writing ---- */

int tsr_page_write(const tsr_page *page, tsr_write_fn *write, void *context, tsr_error *error) {
  tsr__page_writer w = {write, context, false};
  return tsr__page_put(&w, &tsr__template_page, page->options.is_served ? "'self'" : "'none'",
                       &page->head, &page->data, error);
}

int tsr_page_write_part(const tsr_page *page, size_t track, const tsr_view_cut *cut,
                        tsr_write_fn *write, void *context, tsr_error *error) {
  if (track >= page->track_count)
    return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE, "no such track");
  tsr__page_track part = page->tracks[track];
  part.cut = cut;
  tsr__page_names names = page->names; /* not modified: every stack has a number already */
  tsr__buffer head = {0}, data = {0};
  tsr__bundle *bundle = TSR__NEW(tsr__bundle);
  if (!bundle) return tsr__fail_memory(error);
  int status = tsr__bundle_open(bundle, &names, 1, SIZE_MAX, error);
  if (!status) {
    tsr__page_pack_cut(bundle, &part, 0);
    tsr__part_head(bundle, &part);
    status = tsr__bundle_finish(bundle, &head, &data, error);
  }
  assert(names.nodes.count == page->names.nodes.count);
  assert(names.strings.count == page->names.strings.count);
  tsr__bundle_release(bundle);
  tsr__free(bundle);
  if (!status) {
    tsr__page_writer w = {write, context, false};
    uint32_t size = (uint32_t)head.size;
    unsigned char length[4];
    for (int i = 0; i < 4; i++) length[i] = (unsigned char)(size >> 8 * i);
    tsr__page_bytes(&w, length, sizeof length);
    tsr__page_bytes(&w, head.data, head.size);
    tsr__page_bytes(&w, data.data, data.size);
    status = tsr__page_written(&w, error);
  }
  tsr__buffer_release(&head);
  tsr__buffer_release(&data);
  return status;
}
