/* write_weights.c - weights of stacks in the formats of flame graph programs: folded lines and speedscope here,
 * pprof in pprof.c. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/format.h"
#include "base/memory.h"
#include "emit/emitter.h"
#include "emit/text.h"
#include "export/flame.h"
#include "tessera/unstable/frames.h"

uint64_t tsr__flame_weight(const tsr__flame *flame, const tsr_stack_weight *weight) {
  return flame->weights->what == TSR_WEIGH_WINDOW ? weight->byte_time : weight->bytes;
}

uint32_t tsr__flame_frames(const tsr__flame *flame, tsr_stack stack, uint32_t *shown) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < stack.depth; i++)
    if (!flame->is_noise || !flame->is_noise[stack.frames[i]]) shown[count++] = stack.frames[i];
  if (count) return count;
  for (uint32_t i = 0; i < stack.depth; i++) shown[i] = stack.frames[i];
  return stack.depth;
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

/* A frame's text, without the characters that separate frames and lines. */
static void append_part(tsr__buffer *out, tsr_text text) {
  size_t from = out->size;
  (void)tsr__text_clean(out, text);
  for (size_t i = from; i < out->size; i++)
    if (out->data[i] == ';') out->data[i] = ':';
}

void tsr__append_frame(tsr__buffer *out, const tsr_snapshot *snapshot, uint32_t id) {
  tsr_frame frame = tsr_snapshot_frame(snapshot, id);
  append_part(out, tsr_snapshot_string(snapshot, frame.name));
  tsr_text file = tsr_snapshot_string(snapshot, frame.file);
  if (!file.size_bytes || (file.size_bytes == 2 && !memcmp(file.data, "??", 2))) return;
  tsr__buffer_text(out, " (");
  append_part(out, file);
  if (frame.line != TSR_LINE_UNKNOWN && frame.line)
    tsr__buffer_printf(out, ":%" PRIu64, frame.line);
  tsr__buffer_text(out, ")");
}

static void write_folded(const tsr__flame *flame, uint32_t *shown, tsr__buffer *out) {
  const tsr_weights *weights = flame->weights;
  for (size_t d = 0; d < weights->device_count; d++) {
    const tsr_weights_device *device = &weights->devices[d];
    for (size_t i = 0; i < device->stack_count; i++) {
      const tsr_stack_weight *weight = &device->stacks[i];
      tsr_stack stack = tsr_snapshot_stack(flame->snapshot, weight->stack);
      char name[TSR__FORMAT_BYTES];
      if (weights->device_count > 1 || device->device == TSR_DEVICE_HOST)
        tsr__buffer_printf(out, "%s;", tsr__device_name(device->device, name));
      if (!stack.depth) tsr__buffer_text(out, TSR__NO_STACK);
      for (uint32_t f = tsr__flame_frames(flame, stack, shown); f--;) {
        tsr__append_frame(out, flame->snapshot, shown[f]);
        if (f) tsr__buffer_text(out, ";");
      }
      tsr__buffer_printf(out, " %" PRIu64 "\n", tsr__flame_weight(flame, weight));
    }
  }
}

/* ---- speedscope ---- */

/* Frames are identified by their index: those of the snapshot, and one for memory without a stack. */
static void emit_frames(tsr__emitter *emitter, const tsr_snapshot *snapshot) {
  uint32_t count = tsr_snapshot_frame_count(snapshot);
  tsr__emit_object(emitter, "shared");
  tsr__emit_array(emitter, "frames");
  for (uint32_t i = 0; i <= count; i++) {
    tsr_frame frame = tsr_snapshot_frame(snapshot, i);
    tsr__emit_inline_object(emitter, NULL);
    tsr__emit_field(emitter, "name", NULL,
                    i < count ? tsr__text(tsr_snapshot_string(snapshot, frame.name))
                              : tsr__string(TSR__NO_STACK));
    if (i < count) {
      tsr__emit_field(emitter, "file", NULL, tsr__text(tsr_snapshot_string(snapshot, frame.file)));
      if (frame.line != TSR_LINE_UNKNOWN)
        tsr__emit_field(emitter, "line", NULL, tsr__count(frame.line));
    }
    tsr__emit_end(emitter);
  }
  tsr__emit_end(emitter);
  tsr__emit_end(emitter);
}

static void emit_samples(tsr__emitter *emitter, const tsr__flame *flame,
                         const tsr_weights_device *device, uint32_t *shown) {
  tsr__emit_array(emitter, "samples");
  for (size_t i = 0; i < device->stack_count; i++) {
    tsr_stack stack = tsr_snapshot_stack(flame->snapshot, device->stacks[i].stack);
    tsr__emit_inline_array(emitter, NULL);
    if (!stack.depth)
      tsr__emit_item(emitter, tsr__count(tsr_snapshot_frame_count(flame->snapshot)));
    for (uint32_t f = tsr__flame_frames(flame, stack, shown); f--;)
      tsr__emit_item(emitter, tsr__count(shown[f]));
    tsr__emit_end(emitter);
  }
  tsr__emit_end(emitter);
  tsr__emit_inline_array(emitter, "weights");
  for (size_t i = 0; i < device->stack_count; i++)
    tsr__emit_item(emitter, tsr__count(tsr__flame_weight(flame, &device->stacks[i])));
  tsr__emit_end(emitter);
}

static void emit_profile(tsr__emitter *emitter, const tsr__flame *flame,
                         const tsr_weights_device *device, uint32_t *shown) {
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
  emit_samples(emitter, flame, device, shown);
  tsr__emit_end(emitter);
}

static int write_speedscope(const tsr__flame *flame, uint32_t *shown, tsr_write_fn *write,
                            void *context, tsr_error *error) {
  const tsr_report_options options = {.format = TSR_REPORT_JSON};
  tsr__emitter emitter;
  tsr__emitter_init(&emitter, &options, write, context);
  tsr__emit_object(&emitter, NULL);
  tsr__emit_field(&emitter, "$schema", NULL,
                  tsr__string("https://www.speedscope.app/file-format-schema.json"));
  tsr__emit_field(&emitter, "exporter", NULL, tsr__string("tessera"));
  tsr__emit_field(&emitter, "name", NULL, tsr__string(flame->input->path));
  emit_frames(&emitter, flame->snapshot);
  tsr__emit_array(&emitter, "profiles");
  for (size_t i = 0; i < flame->weights->device_count; i++)
    emit_profile(&emitter, flame, &flame->weights->devices[i], shown);
  tsr__emit_end(&emitter);
  tsr__emit_end(&emitter);
  return tsr__emitter_finish(&emitter, error);
}

/* ---- all of them ---- */

static bool find_noise(tsr__flame *flame) {
  uint32_t count = tsr_snapshot_frame_count(flame->snapshot);
  flame->is_noise = TSR__NEW_ARRAY(bool, count);
  for (uint32_t i = 0; flame->is_noise && i < count; i++) {
    tsr_frame frame = tsr_snapshot_frame(flame->snapshot, i);
    flame->is_noise[i] =
        tsr_frame_origin(tsr_snapshot_string(flame->snapshot, frame.name),
                         tsr_snapshot_string(flame->snapshot, frame.file)) == TSR_ORIGIN_NOISE;
  }
  return flame->is_noise != NULL;
}

static uint32_t deepest(const tsr__flame *flame) {
  uint32_t depth = 0;
  for (size_t d = 0; d < flame->weights->device_count; d++)
    for (size_t i = 0; i < flame->weights->devices[d].stack_count; i++) {
      uint32_t id = flame->weights->devices[d].stacks[i].stack;
      tsr_stack stack = tsr_snapshot_stack(flame->snapshot, id);
      if (stack.depth > depth) depth = stack.depth;
    }
  return depth;
}

static int write_buffer(const tsr__buffer *out, tsr_write_fn *write, void *context,
                        tsr_error *error) {
  if (out->failed) return tsr__fail_memory(error);
  if (!out->size || !write(context, out->data, out->size)) return 0;
  return tsr__fail(error, TSR_ERROR_WRITE, TSR_OFFSET_NONE, "cannot write");
}

int tsr_report_weights(const tsr_report_input *input, const tsr_weights *weights,
                       tsr_stacks_format format, const tsr_report_options *options,
                       tsr_write_fn *write, void *context, tsr_error *error) {
  tsr__flame flame = {.input = input, .snapshot = input->snapshot, .weights = weights};
  tsr__buffer out = {0};
  int status = 0;
  uint32_t *shown = TSR__NEW_ARRAY(uint32_t, deepest(&flame));
  if (!shown) return tsr__fail_memory(error);
  bool is_full = options && options->full_stacks;
  if (!is_full && !find_noise(&flame)) {
    status = tsr__fail_memory(error);
  } else if (format == TSR_STACKS_SPEEDSCOPE) {
    status = write_speedscope(&flame, shown, write, context, error);
  } else {
    if (format == TSR_STACKS_FOLDED)
      write_folded(&flame, shown, &out);
    else
      tsr__flame_pprof(&flame, shown, &out);
    status = write_buffer(&out, write, context, error);
  }
  tsr__buffer_release(&out);
  tsr__free(flame.is_noise);
  tsr__free(shown);
  return status;
}
