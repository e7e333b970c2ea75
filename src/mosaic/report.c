/* report.c - Mosaic's answers as Mosaic prints and logs them.
 *
 * This does not use the emitter: there is only one format, and Mosaic defines it.
 * Text is collected in a buffer and written in pieces. */
#include <assert.h>
#include <inttypes.h>

#include "base/buffer.h"
#include "base/python_text.h"
#include "emit/text.h"
#include "tessera/export.h"
#include "tessera/unstable/mosaic.h"

enum { PIECE = 64 << 10 };

typedef struct printer {
  const tsr_snapshot *snapshot;
  tsr__buffer text;
  bool is_shown;
  tsr_write_fn *write;
  void *context;
  bool has_failed; /* to write */
} printer;

static void hand_over(printer *p) {
  if (!p->has_failed && !p->text.failed && p->text.size)
    p->has_failed = p->write(p->context, p->text.data, p->text.size) != 0;
  p->text.size = 0;
}

static int finish(printer *p, tsr_error *error) {
  hand_over(p);
  bool is_out_of_memory = p->text.failed;
  tsr__buffer_release(&p->text);
  if (is_out_of_memory) return tsr__fail_memory(error);
  if (!p->has_failed) return 0;
  return tsr__fail(error, TSR_ERROR_WRITE, TSR_OFFSET_NONE, "the answer could not be written");
}

static void print_string(printer *p, uint32_t string) {
  tsr_text text = tsr_snapshot_string(p->snapshot, string);
  if (string == TSR_NONE)
    tsr__buffer_text(&p->text, "None");
  else
    tsr__python_print(&p->text, text.data, text.size_bytes, p->is_shown);
}

/* Divided three times, as Mosaic does; dividing by powers of two is exact. */
static void print_gib(printer *p, double bytes) {
  char text[TSR__PYTHON_FLOAT_BYTES];
  tsr__buffer_text(&p->text, tsr__python_float(bytes / 1024 / 1024 / 1024, text));
  tsr__buffer_text(&p->text, " GiB");
}

/* ---- groups ---- */

/* Outermost first, each frame indented two columns more. */
static void print_stack(printer *p, uint32_t stack) {
  tsr_stack frames = tsr_snapshot_stack(p->snapshot, stack);
  tsr__buffer_text(&p->text, "\n");
  for (uint32_t i = frames.depth; i-- > 0;) {
    tsr_frame frame = tsr_snapshot_frame(p->snapshot, frames.frames[i]);
    tsr__buffer_fill(&p->text, ' ', 2 * (size_t)(frames.depth - 1 - i));
    print_string(p, frame.name);
    tsr__buffer_text(&p->text, ", ");
    print_string(p, frame.file);
    if (tsr_snapshot_has_negative_line(p->snapshot, frames.frames[i]))
      tsr__buffer_printf(&p->text, ":%" PRId64 "\n", (int64_t)frame.line);
    else
      tsr__buffer_printf(&p->text, ":%" PRIu64 "\n", frame.line);
    if (p->text.size > PIECE) hand_over(p);
  }
  if (!frames.depth) tsr__buffer_text(&p->text, "\n");
}

int tsr_mosaic_print_groups(const tsr_snapshot *snapshot, const tsr_mosaic_groups *groups,
                            bool is_shown, tsr_write_fn *write, void *context, tsr_error *error) {
  printer p = {.snapshot = snapshot, .is_shown = is_shown, .write = write, .context = context};
  for (size_t i = 0; i < groups->count; i++) {
    const tsr_mosaic_group *group = &groups->items[i];
    tsr__buffer_printf(&p.text, "\nNum of Calls: %" PRIu64 ", Memory Usage: ", group->allocations);
    print_gib(&p, (double)group->bytes);
    print_stack(&p, group->stack);
  }
  /* The empty line before the first group is printed even if there are no groups. */
  tsr__buffer_text(&p.text, groups->count ? "\n" : "\n\n");
  return finish(&p, error);
}

/* ---- stages ---- */

static int append(void *context, const char *data, size_t size_bytes) {
  tsr__buffer_append(context, data, size_bytes);
  return 0;
}

int tsr_mosaic_print_stages(const tsr_snapshot *snapshot, const tsr_mosaic_stages *stages,
                            bool is_shown, tsr_write_fn *write, void *context, tsr_error *error) {
  size_t count;
  const tsr_annotation *annotations = tsr_snapshot_annotations(snapshot, &count);
  printer p = {.snapshot = snapshot, .is_shown = is_shown, .write = write, .context = context};
  int status = 0;
  for (size_t i = 0; i < stages->count && !status; i++) {
    const tsr_mosaic_stage *stage = &stages->items[i];
    assert(stage->annotation < count);
    print_string(&p, annotations[stage->annotation].name);
    tsr__buffer_text(&p.text, "_");
    print_string(&p, annotations[stage->annotation].stage);
    if (stage->repeat) tsr__buffer_printf(&p.text, "(%" PRIu64 ")", stage->repeat);
    tsr__buffer_text(&p.text, ": ");
    print_gib(&p, (double)stage->bytes);
    tsr__buffer_text(&p.text, ". Annotation: ");
    status = tsr_annotation_repr(snapshot, stage->annotation, append, &p.text, error);
    tsr__buffer_text(&p.text, "\n");
    if (p.text.size > PIECE) hand_over(&p);
  }
  int finished = finish(&p, error);
  return status ? status : finished;
}

/* ---- the log ---- */

static void log_total(printer *p, const char *what, double bytes) {
  tsr__buffer_printf(&p->text, "INFO:root:Total %s: ", what);
  print_gib(p, bytes);
}

/* " at cd1000000_1 (alloc) - size 268435456 bytes at 1783874422365713 us" */
static void log_event(printer *p, const tsr_mosaic_peak *peak) {
  if (peak->event < 0) return;
  tsr_events events = tsr_snapshot_events(p->snapshot, peak->device);
  size_t event = (size_t)peak->event;
  assert(event < events.count);
  tsr_text action = tsr_snapshot_action_name(p->snapshot, events.action[event]);
  tsr__buffer_printf(&p->text, " at %" PRIx64 "_%" PRIu64 " (", events.addr[event], peak->version);
  (void)tsr__text_clean(&p->text, action);
  tsr__buffer_printf(&p->text, ") - size %" PRIu64 " bytes", events.size[event]);
  if (events.time_us[event] != TSR_TIME_NONE)
    tsr__buffer_printf(&p->text, " at %" PRId64 " us", events.time_us[event]);
}

/* Other devices, which Mosaic does not mention. */
static void warn_of_others(printer *p, const tsr_mosaic_peak *peak) {
  if (!peak->other_count) return;
  tsr__buffer_printf(&p->text,
                     "WARNING:root:this is device %u only; not counted:", (unsigned)peak->device);
  for (size_t i = 0; i < peak->other_count; i++) {
    tsr__buffer_printf(&p->text, "%s device %u, whose peak is ", i ? "," : "",
                       (unsigned)peak->others[i].device);
    print_gib(p, (double)peak->others[i].bytes);
  }
  tsr__buffer_text(&p->text, "\n");
}

int tsr_mosaic_log_peak(const tsr_snapshot *snapshot, const tsr_mosaic_peak *peak,
                        tsr_write_fn *write, void *context, tsr_error *error) {
  printer p = {.snapshot = snapshot, .is_shown = true, .write = write, .context = context};
  log_total(&p, "Peak Dynamic Memory Usage (Relative to Start)", (double)peak->bytes);
  log_event(&p, peak);
  tsr__buffer_text(&p.text, "\n");
  log_total(&p, "Static Memory Usage (estimated by Pytorch visualizer)",
            (double)peak->static_bytes);
  tsr__buffer_text(&p.text, "\n");
  log_total(&p, "Overall Peak Memory Usage (Dynamic + Static)",
            (double)peak->bytes + (double)peak->static_bytes);
  tsr__buffer_text(&p.text, "\n");
  if (peak->device == TSR_NONE)
    tsr__buffer_text(&p.text, "WARNING:root:no device of the snapshot has a trace\n");
  else if (peak->event < 0)
    tsr__buffer_text(&p.text, "WARNING:root:no event of the trace lies in the window\n");
  if (peak->nameless_count)
    tsr__buffer_printf(&p.text,
                       "WARNING:root:not counted: %" PRIu64 " event%s without an address\n",
                       peak->nameless_count, peak->nameless_count == 1 ? "" : "s");
  warn_of_others(&p, peak);
  return finish(&p, error);
}

int tsr_mosaic_log_diff(const tsr_mosaic_diff *diff, tsr_write_fn *write, void *context,
                        tsr_error *error) {
  printer p = {.is_shown = true, .write = write, .context = context};
  if (diff->grown_count) {
    tsr__buffer_printf(&p.text, "WARNING:root:not shown: %" PRIu64 " stack%s of both, larger by ",
                       diff->grown_count, diff->grown_count == 1 ? "" : "s");
    print_gib(&p, (double)diff->grown_bytes);
    tsr__buffer_text(&p.text, "\n");
  }
  return finish(&p, error);
}

int tsr_mosaic_log_usage(const tsr_snapshot *snapshot, const tsr_mosaic_usage *usage,
                         tsr_write_fn *write, void *context, tsr_error *error) {
  printer p = {.snapshot = snapshot, .is_shown = true, .write = write, .context = context};
  tsr_text action = tsr_snapshot_action_name(snapshot, usage->moment.action);
  tsr__buffer_text(&p.text, "INFO:root:");
  if (usage->event >= 0)
    tsr__buffer_text(&p.text, "Memory Usage (Relative to Start) at '");
  else
    tsr__buffer_printf(&p.text, "%s\nERROR:root:",
                       usage->first_device == TSR_NONE ? "No device traces found"
                                                       : "Allocation not found!");
  (void)tsr__text_clean(&p.text, action);
  tsr__buffer_printf(&p.text, ": %" PRIx64 "_%" PRIu64, usage->moment.address,
                     usage->moment.version);
  if (usage->event >= 0) {
    tsr__buffer_text(&p.text, "' - ");
    print_gib(&p, (double)usage->bytes);
  } else {
    tsr__buffer_text(&p.text, " not found in memory snapshot");
  }
  tsr__buffer_text(&p.text, "\n");
  if (usage->device != usage->first_device)
    tsr__buffer_printf(&p.text, "WARNING:root:that is on device %u, not on device %u\n",
                       (unsigned)usage->device, (unsigned)usage->first_device);
  return finish(&p, error);
}

int tsr_mosaic_log_stages(const tsr_mosaic_stages *stages, tsr_write_fn *write, void *context,
                          tsr_error *error) {
  printer p = {.is_shown = true, .write = write, .context = context};
  if (stages->device == TSR_NONE)
    tsr__buffer_text(&p.text, "WARNING:root:no device of the snapshot has a trace\n");
  else if (stages->other_count)
    tsr__buffer_printf(&p.text,
                       "WARNING:root:this is device %u only; %u more have a trace, not counted\n",
                       (unsigned)stages->device, (unsigned)stages->other_count);
  return finish(&p, error);
}
