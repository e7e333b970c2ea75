/* head.c - the head of a page: describes its columns, and contains everything else. See page.h. */
#include <inttypes.h>
#include <stdio.h>

#include "emit/text.h"
#include "page/page.h"
#include "questions/shared/findings.h"
#include "questions/shared/stepping.h"
#include "tessera/version.h"

static void head_number(tsr__bundle *p, const char *key, uint64_t number) {
  tsr__buffer_printf(&p->head, ",\"%s\":%" PRIu64, key, number);
}

static void head_warnings(tsr__bundle *p, const tsr_warning *warnings, size_t count) {
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

/* The page's own spelling of a grouping: "compile_context". */
static void head_key(tsr__bundle *p, const char *word) {
  char key[32];
  (void)snprintf(key, sizeof key, "%s", word);
  for (char *at = key; *at; at++)
    if (*at == '-') *at = '_';
  tsr__page_quote(&p->head, tsr__text_of(key));
}

static void head_groupings(tsr__bundle *p, const tsr_view_device *d) {
  tsr__buffer_text(&p->head, ",\"groupings\":[");
  for (size_t g = 0; g < d->grouping_count; g++) {
    const tsr_view_grouping *grouping = &d->groupings[g];
    tsr__buffer_text(&p->head, g ? ",{\"key\":" : "{\"key\":");
    head_key(p, grouping->key);
    tsr__buffer_printf(&p->head, ",\"title\":\"%s\",\"names\":[", grouping->title);
    for (size_t i = 0; i < grouping->count; i++) {
      if (i) tsr__buffer_text(&p->head, ",");
      tsr__page_quote(&p->head, tsr__page_cut(grouping->names[i], p->names->most_text));
    }
    tsr__buffer_text(&p->head, "]}");
  }
  tsr__buffer_text(&p->head, "]");
}

/* Describes a cut; the same in a page and in its parts. */
static void head_cut(tsr__bundle *p, const tsr_view_cut *cut) {
  tsr__buffer_printf(&p->head, "\"from\":%" PRIu32, cut->from);
  head_number(p, "to", cut->to);
  head_number(p, "allocations", cut->listed_count);
  head_number(p, "restCount", cut->rest_count);
  head_number(p, "restLargest", cut->rest_largest_bytes);
  head_number(p, "bucketMoments", cut->bucket_moments);
  head_number(p, "buckets", cut->bucket_count);
}

static void head_findings(tsr__bundle *p, const tsr_view_device *d) {
  tsr__buffer_text(&p->head, ",\"findings\":[");
  for (size_t i = 0; i < d->finding_count; i++) {
    const tsr_view_finding *finding = &d->findings[i];
    const char *const evidence[] = {finding->evidence, finding->place};
    tsr__buffer_printf(&p->head, "%s{\"rule\":\"%s\",\"change\":", i ? "," : "",
                       tsr_finding_rule_name(finding->rule));
    tsr__page_quote(&p->head, tsr__text_of(finding->change));
    tsr__buffer_text(&p->head, ",\"evidence\":[");
    for (size_t k = 0; k < sizeof evidence / sizeof *evidence && *evidence[k]; k++) {
      if (k) tsr__buffer_text(&p->head, ",");
      tsr__page_quote(&p->head, tsr__text_of(evidence[k]));
    }
    tsr__buffer_text(&p->head, "]");
    head_number(p, "moment", finding->moment);
    head_number(p, "blocks", finding->row_count);
    tsr__buffer_text(&p->head, "}");
  }
  tsr__buffer_text(&p->head, "]");
}

/* For files that show one moment each: what to do to get a trace. */
static void head_how_to_record(tsr__bundle *p, const tsr_snapshot *snapshot,
                               const tsr__page_track *tracks, size_t track_count) {
  bool has_history = false;
  for (size_t i = 0; i < track_count; i++) has_history |= tracks[i].device->has_history;
  tsr__buffer_text(&p->head, ",\"howToRecord\":");
  tsr__page_quote(&p->head, tsr__text_of(has_history ? "" : tsr__how_to_record(snapshot)));
}

/* When most is allocated in each phase that occurs. */
static void head_phases(tsr__bundle *p, const tsr_view_device *d) {
  const char *between = "";
  tsr__buffer_text(&p->head, ",\"phases\":[");
  for (int i = TSR_PHASE_UNKNOWN + 1; i < TSR_PHASE_COUNT; i++) {
    const tsr_moment *most = &d->in_phase[i];
    if (most->event < 0) continue;
    tsr__buffer_printf(&p->head, "%s{\"phase\":\"%s\",\"words\":\"%s\",\"moment\":%" PRId64,
                       between, tsr_phase_name((tsr_phase)i), tsr__phase_words((tsr_phase)i),
                       most->event + 1);
    head_number(p, "bytes", most->totals.allocated_bytes);
    tsr__buffer_printf(&p->head, ",\"hasPeak\":%d}", (int)d->phase == i);
    between = ",";
  }
  tsr__buffer_text(&p->head, "]");
}

static void head_device(tsr__bundle *p, const tsr__page_track *t) {
  const tsr_view_device *d = t->device;
  tsr__buffer_text(&p->head, "{");
  head_cut(p, t->cut);
  head_number(p, "input", t->input);
  if (d->device == TSR_DEVICE_HOST)
    tsr__buffer_text(&p->head, ",\"device\":\"host\"");
  else if (d->device == TSR_DEVICE_CPU)
    tsr__buffer_text(&p->head, ",\"device\":\"cpu\"");
  else
    head_number(p, "device", d->device);
  head_number(p, "events", d->event_count);
  head_number(p, "hasHistory", d->has_history);
  head_number(p, "peak", d->peak);
  head_number(p, "peakAllocated", d->peak_totals.allocated_bytes);
  head_number(p, "maxReserved", d->maxima.reserved_bytes);
  head_number(p, "timeStep", d->time_step);
  head_number(p, "timeCount", d->time_count);
  tsr__buffer_printf(&p->head, ",\"firstTime\":%" PRId64, d->time_count ? d->times_us[0] : 0);
  head_phases(p, d);
  head_groupings(p, d);
  head_warnings(p, d->warnings, d->warning_count);
  head_findings(p, d);
  tsr__page_head_card(p, t);
  tsr__buffer_text(&p->head, "}");
}

static void head_inputs(tsr__bundle *p, const tsr_page_input *inputs, size_t input_count) {
  tsr__buffer_text(&p->head, ",\"inputs\":[");
  for (size_t i = 0; i < input_count; i++) {
    const tsr_report_input *input = &inputs[i].input;
    size_t count;
    tsr__buffer_printf(&p->head, "%s{\"path\":", i ? "," : "");
    tsr__page_quote(&p->head, tsr__page_cut(tsr__text_of(input->path), p->names->most_text));
    head_number(p, "bytes", tsr_snapshot_input_bytes(input->snapshot));
    tsr__buffer_text(&p->head, ",\"format\":");
    tsr__page_quote(&p->head, tsr__text_of(tsr_snapshot_format(input->snapshot)));
    const tsr_warning *warnings = tsr_snapshot_warnings(input->snapshot, &count);
    head_warnings(p, warnings, count);
    tsr__buffer_text(&p->head, "}");
  }
  tsr__buffer_text(&p->head, "]");
}

void tsr__head_columns(tsr__bundle *p) {
  tsr__buffer_text(&p->head, ",\"columns\":[");
  tsr__buffer_append(&p->head, p->directory.data, p->directory.size);
  tsr__buffer_text(&p->head, "]}");
  if (p->head.failed || p->directory.failed) p->ok = false;
}

void tsr__page_head(tsr__bundle *p, const tsr_page_input *inputs, size_t input_count,
                    const tsr__page_track *tracks, size_t track_count,
                    const tsr_page_options *options) {
  tsr__buffer_printf(&p->head,
                     "{\"schema\":\"tessera-page/1\",\"version\":\"%s\",\"by\":", tsr_version());
  head_key(p, options->by ? options->by : TSR_BY_CATEGORY);
  head_number(p, "isOrdered", options->is_ordered);
  head_number(p, "firstEvent", options->first_event);
  head_number(p, "eventCount", options->event_count);
  head_number(p, "capacity", options->capacity_bytes);
  head_number(p, "isServed", options->is_served);
  head_how_to_record(p, inputs[0].input.snapshot, tracks, track_count);
  head_inputs(p, inputs, input_count);
  tsr__buffer_text(&p->head, ",\"devices\":[");
  for (size_t i = 0; i < track_count; i++) {
    if (i) tsr__buffer_text(&p->head, ",");
    head_device(p, &tracks[i]);
  }
  tsr__buffer_text(&p->head, "]");
  tsr__page_head_compared(p, tracks, track_count);
  tsr__head_columns(p);
}

void tsr__part_head(tsr__bundle *p, const tsr__page_track *track) {
  tsr__buffer_text(&p->head, "{");
  head_cut(p, track->cut);
  tsr__head_columns(p);
}
