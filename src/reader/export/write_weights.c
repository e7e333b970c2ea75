/* write_weights.c - weights of stacks in the formats of flame graph programs: folded lines and speedscope here,
 * pprof in pprof.c. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

#include "base/checked.h"
#include "base/format.h"
#include "emit/emitter.h"
#include "emit/text.h"
#include "export/flame.h"

uint64_t tsr__flame_weight(const tsr__flame *flame, const tsr_stack_weight *weight) {
  return flame->weights->what == TSR_WEIGH_WINDOW ? weight->byte_time : weight->bytes;
}

/* "device 0, live at event 3,737": the title of a graph. */
static void write_title(const tsr_weights *weights, const tsr_weights_device *device, char *title,
                        size_t size) {
  char name[TSR__FORMAT_BYTES], first[TSR__FORMAT_BYTES], last[TSR__FORMAT_BYTES];
  tsr__device_name(device->device, name);
  if (weights->what == TSR_WEIGH_WINDOW)
    (void)snprintf(title, size, "%s, events %s to %s", name,
                   tsr__format_count((uint64_t)device->first, first),
                   tsr__format_count((uint64_t)device->last, last));
  else if (device->first < 0)
    (void)snprintf(title, size, "%s, live before the first event", name);
  else
    (void)snprintf(title, size, "%s, live %s event %s", name,
                   weights->what == TSR_WEIGH_PEAK ? "at its peak," : "at",
                   tsr__format_count((uint64_t)device->first, first));
}

/* ---- folded ---- */

static void write_folded(const tsr__flame *flame, tsr__buffer *out) {
  const tsr_weights *weights = flame->weights;
  for (size_t d = 0; d < weights->device_count; d++) {
    const tsr_weights_device *device = &weights->devices[d];
    for (size_t i = 0; i < device->stack_count; i++) {
      const tsr_stack_weight *weight = &device->stacks[i];
      char name[TSR__FORMAT_BYTES];
      out->failed |= !tsr__shown_take_named(flame->shown, weight->stack, weight->name);
      if (out->failed) return;
      if (weights->device_count > 1 || device->device >= TSR_DEVICE_CPU)
        tsr__buffer_printf(out, "%s;", tsr__device_name(device->device, name));
      tsr__shown_append(flame->shown, out);
      tsr__buffer_printf(out, " %" PRIu64 "\n", tsr__flame_weight(flame, weight));
    }
  }
}

/* ---- speedscope ---- */

/* Frames are identified by their index, so all stacks are looked at before the first is written. */
static bool find_entries(const tsr__flame *flame) {
  bool ok = true;
  for (size_t d = 0; d < flame->weights->device_count; d++)
    for (size_t i = 0; ok && i < flame->weights->devices[d].stack_count; i++) {
      const tsr_stack_weight *weight = &flame->weights->devices[d].stacks[i];
      ok = tsr__shown_take_named(flame->shown, weight->stack, weight->name);
    }
  return ok;
}

static void emit_frames(tsr__emitter *emitter, const tsr__shown *shown) {
  tsr__emit_object(emitter, "shared");
  tsr__emit_array(emitter, "frames");
  for (uint32_t i = 0; i < shown->entries.count; i++) {
    tsr__shown_name name = tsr__shown_name_of(shown, i);
    tsr__emit_inline_object(emitter, NULL);
    tsr__emit_field(emitter, "name", NULL, tsr__text(name.name));
    if (name.file.size_bytes) tsr__emit_field(emitter, "file", NULL, tsr__text(name.file));
    if (name.line) tsr__emit_field(emitter, "line", NULL, tsr__count(name.line));
    tsr__emit_end(emitter);
  }
  tsr__emit_end(emitter);
  tsr__emit_end(emitter);
}

/* False when out of memory. */
static bool emit_samples(tsr__emitter *emitter, const tsr__flame *flame,
                         const tsr_weights_device *device) {
  bool ok = true;
  tsr__emit_array(emitter, "samples");
  for (size_t i = 0; ok && i < device->stack_count; i++) {
    ok = tsr__shown_take_named(flame->shown, device->stacks[i].stack, device->stacks[i].name);
    tsr__emit_inline_array(emitter, NULL);
    for (size_t f = flame->shown->frames.count; ok && f--;)
      tsr__emit_item(emitter, tsr__count(flame->shown->frames.items[f]));
    tsr__emit_end(emitter);
  }
  tsr__emit_end(emitter);
  tsr__emit_inline_array(emitter, "weights");
  for (size_t i = 0; i < device->stack_count; i++)
    tsr__emit_item(emitter, tsr__count(tsr__flame_weight(flame, &device->stacks[i])));
  tsr__emit_end(emitter);
  return ok;
}

/* False when out of memory. */
static bool emit_profile(tsr__emitter *emitter, const tsr__flame *flame,
                         const tsr_weights_device *device) {
  bool is_window = flame->weights->what == TSR_WEIGH_WINDOW;
  char title[128];
  uint64_t sum = 0;
  for (size_t i = 0; i < device->stack_count; i++)
    sum = tsr__sum_u64(sum, tsr__flame_weight(flame, &device->stacks[i]));
  write_title(flame->weights, device, title, sizeof title);
  tsr__emit_object(emitter, NULL);
  tsr__emit_field(emitter, "type", NULL, tsr__string("sampled"));
  tsr__emit_field(emitter, "name", NULL, tsr__string(title));
  tsr__emit_field(emitter, "unit", NULL, tsr__string(is_window ? "none" : "bytes"));
  tsr__emit_field(emitter, "startValue", NULL, tsr__count(0));
  tsr__emit_field(emitter, "endValue", NULL, tsr__count(sum));
  bool ok = emit_samples(emitter, flame, device);
  tsr__emit_end(emitter);
  return ok;
}

static int write_speedscope(const tsr__flame *flame, tsr_write_fn *write, void *context,
                            tsr_error *error) {
  const tsr_report_options options = {.format = TSR_REPORT_JSON};
  tsr__emitter emitter;
  bool ok = true;
  if (!find_entries(flame)) return tsr__fail_memory(error);
  size_t entries = flame->shown->entries.count;
  tsr__emitter_init(&emitter, &options, write, context);
  tsr__emit_object(&emitter, NULL);
  tsr__emit_field(&emitter, "$schema", NULL,
                  tsr__string("https://www.speedscope.app/file-format-schema.json"));
  tsr__emit_field(&emitter, "exporter", NULL, tsr__string("tessera"));
  tsr__emit_field(&emitter, "name", NULL, tsr__string(flame->input->path));
  emit_frames(&emitter, flame->shown);
  tsr__emit_array(&emitter, "profiles");
  for (size_t i = 0; ok && i < flame->weights->device_count; i++)
    ok = emit_profile(&emitter, flame, &flame->weights->devices[i]);
  tsr__emit_end(&emitter);
  tsr__emit_end(&emitter);
  assert(flame->shown->entries.count == entries); /* the frames that were listed first are all */
  (void)entries;
  int status = tsr__emitter_finish(&emitter, error);
  return status || ok ? status : tsr__fail_memory(error);
}

/* ---- all of them ---- */

static int write_buffer(const tsr__buffer *out, tsr_write_fn *write, void *context,
                        tsr_error *error) {
  if (out->failed) return tsr__fail_memory(error);
  if (!out->size || !write(context, out->data, out->size)) return 0;
  return tsr__fail(error, TSR_ERROR_WRITE, TSR_OFFSET_NONE, "cannot write");
}

int tsr_report_weights(const tsr_report_input *input, const tsr_weights *weights,
                       tsr_stacks_format format, const tsr_report_options *options,
                       tsr_write_fn *write, void *context, tsr_error *error) {
  tsr__shown shown;
  tsr__flame flame = {.input = input, .weights = weights, .shown = &shown};
  tsr__buffer out = {0};
  int status = tsr__shown_init(&shown, input->snapshot, options && options->full_stacks, error);
  if (status == 0 && format == TSR_STACKS_SPEEDSCOPE) {
    status = write_speedscope(&flame, write, context, error);
  } else if (status == 0) {
    if (format == TSR_STACKS_FOLDED)
      write_folded(&flame, &out);
    else
      tsr__flame_pprof(&flame, &out);
    status = write_buffer(&out, write, context, error);
  }
  tsr__buffer_release(&out);
  tsr__shown_release(&shown);
  return status;
}
