/* compared.c - at which moments a page compares two tracks at first, as `tessera diff` chooses them (phases.h): their
 * peaks, or if these are of different phases, the highest moments of one of these phases. See page.h.
 *
 *   head compared: [{"tracks":[first, second],"phase":"" or a phase,"moments":[of the first, of the second]}, ...] */
#include <inttypes.h>

#include "page/page.h"
#include "questions/diff/phases.h"

static tsr_diff_side side_of(const tsr_view_device *d) {
  tsr_diff_side side = {.is_there = true,
                        .device = d->device,
                        .event_count = d->event_count,
                        .has_history = d->has_history,
                        .peak = {.event = (int64_t)d->peak - 1, .totals = d->peak_totals},
                        .phase = d->phase};
  for (int i = 0; i < TSR_PHASE_COUNT; i++) side.in_phase[i] = d->in_phase[i];
  return side;
}

static void head_pair(tsr__bundle *p, const tsr__page_track *tracks, size_t first, size_t second) {
  tsr_diff_device pair = {.old_side = side_of(tracks[first].device),
                          .new_side = side_of(tracks[second].device)};
  tsr__diff_choose_moments(&pair);
  tsr__buffer_printf(
      &p->head, "{\"tracks\":[%zu,%zu],\"phase\":\"%s\",\"moments\":[%" PRId64 ",%" PRId64 "]}",
      first, second, pair.compared_phase ? tsr_phase_name(pair.compared_phase) : "",
      pair.old_side.compared.event + 1, pair.new_side.compared.event + 1);
}

static bool are_compared(const tsr__page_track *a, const tsr__page_track *b) {
  bool is_host = a->device->device >= TSR_DEVICE_CPU;
  return a->input != b->input &&
         (is_host ? a->device->device == b->device->device : b->device->device < TSR_DEVICE_CPU);
}

void tsr__page_head_compared(tsr__bundle *p, const tsr__page_track *tracks, size_t track_count) {
  const char *between = "";
  tsr__buffer_text(&p->head, ",\"compared\":[");
  if (track_count <= TSR__MOST_PAIRED)
    for (size_t i = 0; i < track_count; i++)
      for (size_t k = i + 1; k < track_count; k++) {
        if (!are_compared(&tracks[i], &tracks[k])) continue;
        tsr__buffer_text(&p->head, between);
        head_pair(p, tracks, i, k);
        between = ",";
      }
  tsr__buffer_text(&p->head, "]");
}
