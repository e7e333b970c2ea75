/* card.c - the ledger of the card on a page: what each sort of holder has, by sample.
 *
 * A sample has a time, for the axis of time, and a moment of the trace, for that of events. Only samples with the card's used
 * memory are on the page. */
#include <inttypes.h>
#include <stdio.h>

#include "emit/text.h"
#include "page/page.h"
#include "page/view_lanes.h"
#include "questions/shared/ledger.h"
#include "tessera/unstable/ledger.h"

/* The ledger of a track that has an axis to draw it on; NULL without one. */
static const tsr_ledger *ledger_of(const tsr__page_track *t) {
  const tsr_view_device *d = t->device;
  bool has_axis = d->has_history && d->time_count && d->device != TSR_DEVICE_HOST;
  const tsr_ledger *ledger = has_axis ? tsr_snapshot_ledger(t->snapshot, d->device) : NULL;
  return ledger && ledger->used_bytes ? ledger : NULL;
}

void tsr__page_head_card(tsr__bundle *p, const tsr__page_track *t) {
  const tsr_ledger *ledger = ledger_of(t);
  uint64_t parts[TSR__LEDGER_SORTS], most = 0;
  size_t samples = 0;
  for (size_t i = 0; ledger && i < ledger->sample_count; i++) {
    if (!tsr__ledger_divide(ledger, i, parts)) continue;
    if (ledger->used_bytes[i] > most) most = ledger->used_bytes[i];
    samples++;
  }
  tsr__buffer_text(&p->head, ",\"card\":");
  if (!samples) {
    tsr__buffer_text(&p->head, "null");
    return;
  }
  tsr__buffer_printf(&p->head,
                     "{\"samples\":%zu,\"most\":%" PRIu64 ",\"total\":%" PRIu64 ",\"sorts\":[",
                     samples, most, tsr__ledger_known(ledger->total_bytes));
  for (int i = 0; i < TSR__LEDGER_SORTS; i++) {
    if (i) tsr__buffer_text(&p->head, ",");
    tsr__page_quote(&p->head, tsr__text_of(tsr__ledger_sort_name((tsr__ledger_sort)i)));
  }
  tsr__buffer_text(&p->head, "]}");
}

static void begin(tsr__bundle *p, const char *name, size_t number) {
  char text[48];
  (void)snprintf(text, sizeof text, "d%zu.card.%s", number, name);
  tsr__bundle_column(p, text);
}

/* times: since the first time of the track, each as its difference from the one before; moment and used likewise; bytes: a sort after
 * the other. Absent without a ledger. */
void tsr__page_pack_card(tsr__bundle *p, const tsr__page_track *t, size_t number) {
  const tsr_ledger *ledger = ledger_of(t);
  if (!ledger) return;
  tsr_events events = tsr_snapshot_events(t->snapshot, t->device->device);
  uint64_t parts[TSR__LEDGER_SORTS], used = 0;
  int64_t time_us = t->device->times_us[0], moment = 0;
  begin(p, "times", number);
  for (size_t i = 0; i < ledger->sample_count; i++) {
    if (!tsr__ledger_divide(ledger, i, parts)) continue;
    /* Events may have any time: the difference wraps, as that of a reader does. */
    tsr__pack_signed(&p->pack, (int64_t)((uint64_t)ledger->time_us[i] - (uint64_t)time_us));
    time_us = ledger->time_us[i];
  }
  tsr__bundle_column_end(p);
  begin(p, "moment", number);
  for (size_t i = 0; i < ledger->sample_count; i++) {
    if (!tsr__ledger_divide(ledger, i, parts)) continue;
    int64_t at = tsr__view_moment(&events, ledger->time_us[i]);
    tsr__pack_signed(&p->pack, at - moment);
    moment = at;
  }
  tsr__bundle_column_end(p);
  begin(p, "used", number);
  for (size_t i = 0; i < ledger->sample_count; i++) {
    if (!tsr__ledger_divide(ledger, i, parts)) continue;
    tsr__pack_signed(&p->pack, (int64_t)(ledger->used_bytes[i] - used));
    used = ledger->used_bytes[i];
  }
  tsr__bundle_column_end(p);
  begin(p, "bytes", number);
  for (int k = 0; k < TSR__LEDGER_SORTS; k++) {
    uint64_t before = 0;
    for (size_t i = 0; i < ledger->sample_count; i++) {
      if (!tsr__ledger_divide(ledger, i, parts)) continue;
      tsr__pack_signed(&p->pack, (int64_t)(parts[k] - before));
      before = parts[k];
    }
  }
  tsr__bundle_column_end(p);
}
