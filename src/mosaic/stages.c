/* stages.c - usage where annotated ranges start and end.
 *
 * Annotations are visited in file order; for each, events are processed up to the first that is later
 * than the annotation. As in Mosaic, this never goes back for an annotation that is out of order. An
 * event without a time is processed with the previous one. */
#include <assert.h>
#include <string.h>

#include "base/memory.h"
#include "mosaic/trace.h"

static bool contains(tsr_text text, const char *part) {
  size_t length = strlen(part);
  for (size_t i = 0; i + length <= text.size_bytes; i++)
    if (memcmp(text.data + i, part, length) == 0) return true;
  return false;
}

static bool is_wanted(const tsr_snapshot *snapshot, const tsr_annotation *annotation,
                      const tsr_mosaic_stages_options *options) {
  bool is_any = options->text_count == 0;
  for (size_t i = 0; i < options->text_count && !is_any; i++)
    is_any = contains(tsr_snapshot_string(snapshot, annotation->name), options->texts[i]);
  return is_any;
}

/* The number of earlier annotations with this name and stage; false if out of memory. */
static bool count_repeat(tsr__map *seen, const tsr_annotation *annotation, uint64_t *repeat) {
  uint64_t *times =
      tsr__map_put(seen, (uint64_t)annotation->name << 32 | annotation->stage, 0, NULL);
  if (times) *repeat = (*times)++;
  return times;
}

static bool fill(const tsr__mosaic_trace *trace, const tsr_mosaic_stages_options *options,
                 tsr_mosaic_stages *out) {
  size_t annotation_count;
  const tsr_annotation *annotations = tsr_snapshot_annotations(trace->snapshot, &annotation_count);
  tsr__mosaic_count count = {.bytes = 0};
  tsr__map seen = {0};
  uint64_t next = 0;
  bool is_good = true;
  for (size_t i = 0; i < annotation_count && is_good; i++) {
    if (!is_wanted(trace->snapshot, &annotations[i], options)) continue;
    for (; next < trace->events.count && is_good &&
           trace->events.time_us[next] <= annotations[i].time_us;
         next++)
      if (tsr__mosaic_counts(trace, next))
        is_good = tsr__mosaic_count_event(&count, trace, next, 0);
    tsr_mosaic_stage *stage = &out->items[out->count++];
    *stage = (tsr_mosaic_stage){.annotation = i, .bytes = count.bytes};
    is_good = is_good && count_repeat(&seen, &annotations[i], &stage->repeat);
  }
  assert(out->count <= annotation_count);
  tsr__map_release(&count.live);
  tsr__map_release(&seen);
  return is_good;
}

int tsr_mosaic_stages_of(tsr_study *study, const tsr_mosaic_stages_options *options,
                         tsr_mosaic_stages **out, tsr_error *error) {
  const tsr_snapshot *snapshot = tsr_study_snapshot(study);
  tsr__mosaic_trace trace = options->has_device ? tsr__mosaic_trace_of(snapshot, options->device)
                                                : tsr__mosaic_trace_first(snapshot);
  size_t count, devices;
  (void)tsr_snapshot_annotations(snapshot, &count);
  tsr_mosaic_stages *stages = TSR__NEW(tsr_mosaic_stages);
  if (!stages) return tsr__fail_memory(error);
  const uint32_t *device = tsr_snapshot_gpus(snapshot, &devices);
  for (size_t i = 0; i < devices; i++)
    stages->other_count +=
        device[i] != trace.device && tsr_snapshot_events(snapshot, device[i]).count > 0;
  stages->device = trace.device;
  stages->items = TSR__NEW_ARRAY(tsr_mosaic_stage, count);
  bool is_good = stages->items;
  if (is_good && trace.device != TSR_NONE) is_good = fill(&trace, options, stages);
  if (is_good) {
    *out = stages;
    return 0;
  }
  tsr_mosaic_stages_free(stages);
  return tsr__fail_memory(error);
}

int tsr_mosaic_stages_compute(tsr_study *study, const char *const *texts, size_t text_count,
                              tsr_mosaic_stages **out, tsr_error *error) {
  tsr_mosaic_stages_options options = {.texts = texts, .text_count = text_count};
  return tsr_mosaic_stages_of(study, &options, out, error);
}

void tsr_mosaic_stages_free(tsr_mosaic_stages *stages) {
  if (!stages) return;
  tsr__free(stages->items);
  tsr__free(stages);
}
