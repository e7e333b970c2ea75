/* write_lives.c - allocations for other programs: a table (CSV), and a time line (trace events in JSON).
 *
 * Perfetto draws everything it gets, so the counters are thinned out. Events are divided into
 * runs of equal length; for each run two states are written in their order, the one with the least and
 * the one with the most allocated. So no peak is lost, whatever the length of the trace.
 *
 * The largest allocations become slices. Slices of one track must not overlap, so they are assigned
 * to lanes: each goes to the first lane that is free when it is allocated. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/vector.h"
#include "emit/emitter.h"
#include "emit/stacks.h"
#include "emit/text.h"
#include "export/flame.h"

enum { MOST_RUNS = 25000, MOST_SLICES = 1000, LINE_ROOM = 64 << 10 };

/* ---- CSV ---- */

typedef struct table {
  tsr__stack_printer *printer;
  tsr__buffer out; /* what is not yet written */
  const tsr_report_options *options;
  tsr_write_fn *write;
  void *context;
} table;

/* A cell of text. Spreadsheet programs execute text that looks like a formula; a quote before it
 * prevents that. */
static void put_cell(tsr__buffer *out, size_t from) {
  size_t quotes = 0, size = out->size - from;
  if (out->failed) return;
  for (size_t i = from; i < out->size; i++) quotes += out->data[i] == '"';
  bool is_formula = size && strchr("=+-@", out->data[from]);
  size_t added = quotes + 2 + is_formula;
  tsr__buffer_fill(out, '"', added);
  if (out->failed) return;
  char *to = out->data + out->size - 1; /* backwards; tsr__buffer_fill wrote the closing quote */
  for (size_t i = from + size; i-- > from;) {
    char byte = out->data[i];
    *--to = byte;
    if (byte == '"') *--to = '"';
  }
  if (is_formula) *--to = '\'';
  *--to = '"';
}

static void put_stack(table *t, uint32_t id) {
  const tsr_snapshot *snapshot = t->printer->snapshot;
  tsr__buffer *out = &t->out;
  tsr_stack stack = tsr_snapshot_stack(snapshot, id);
  tsr__buffer_text(out, ",");
  size_t from = out->size;
  for (uint32_t f = stack.depth; f--;) {
    tsr__append_frame(out, snapshot, stack.frames[f]);
    if (f) tsr__buffer_text(out, ";");
  }
  put_cell(out, from);
}

static void put_time(tsr__buffer *out, const tsr_events *events, int64_t event) {
  bool has_time =
      event >= 0 && event < (int64_t)events->count && events->time_us[event] != TSR_TIME_NONE;
  if (has_time) tsr__buffer_printf(out, ",%" PRId64, events->time_us[event]);
  if (!has_time) tsr__buffer_text(out, ",");
}

static void put_life(table *t, uint32_t device, const tsr_events *events, const tsr_life *life) {
  tsr__buffer *out = &t->out;
  if (device == TSR_DEVICE_HOST)
    tsr__buffer_printf(out, "host,%" PRId64, life->birth);
  else
    tsr__buffer_printf(out, "%" PRIu32 ",%" PRId64, device, life->birth);
  put_time(out, events, life->birth);
  tsr__buffer_text(out, ",");
  if (life->death < (int64_t)events->count) tsr__buffer_printf(out, "%" PRId64, life->death);
  put_time(out, events, life->death);
  tsr__buffer_printf(out, ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",", life->address,
                     life->requested_bytes, life->block_bytes);
  if (life->stream != TSR_NONE)
    tsr__buffer_printf(out, "%" PRIu64, tsr_snapshot_stream(t->printer->snapshot, life->stream));
  tsr__buffer_printf(out, ",%s,", tsr_category_name(life->kind));
  if (life->stack != TSR_NONE) tsr__buffer_printf(out, "%" PRIu32, life->stack);
  tsr__buffer_text(out, ",");
  size_t from = out->size;
  tsr__buffer *scratch = &t->printer->emitter->scratch;
  tsr__stack_append_name(t->printer, TSR__LABEL_STACK, life->stack);
  (void)tsr__text_clean(out, (tsr_text){scratch->data, scratch->size});
  out->failed |= scratch->failed;
  scratch->size = 0;
  put_cell(out, from);
  if (t->options && t->options->full_stacks) put_stack(t, life->stack);
  tsr__buffer_text(out, "\r\n");
}

/* Write the buffer if it holds more than `room` bytes. */
static int pass_on(table *t, size_t room, tsr_error *error) {
  tsr__buffer *out = &t->out;
  if (out->failed) return tsr__fail_memory(error);
  if (out->size <= room) return 0;
  int stopped = t->write(t->context, out->data, out->size);
  out->size = 0;
  return stopped ? tsr__fail(error, TSR_ERROR_WRITE, TSR_OFFSET_NONE, "cannot write") : 0;
}

static int put_rows(table *t, const tsr_lives *lives, size_t place, tsr_error *error) {
  uint32_t device = tsr_lives_device(lives, place);
  tsr_events events = tsr_snapshot_events(t->printer->snapshot, device);
  int status = 0;
  for (size_t i = 0; !status && i < tsr_lives_count(lives, place); i++) {
    tsr_life life = tsr_lives_at(lives, place, i);
    put_life(t, device, &events, &life);
    status = pass_on(t, LINE_ROOM, error);
  }
  return status;
}

static void put_header(table *t) {
  tsr__buffer *out = &t->out;
  tsr__buffer_text(out, "device,birth_event,birth_time_us,death_event,death_time_us,address,"
                        "requested_bytes,block_bytes,stream,category,stack_id,allocated_at");
  if (t->options && t->options->full_stacks) tsr__buffer_text(out, ",stack");
  tsr__buffer_text(out, "\r\n");
}

/* ---- trace events ---- */

typedef struct state {
  int64_t event;
  tsr_totals totals;
  uint64_t categories[TSR_CATEGORY_COUNT];
} state;

typedef struct timeline_writer {
  tsr__emitter *emitter;
  tsr__stack_printer *printer;
  const tsr_lives *lives;
  size_t place; /* of the device in `lives` */
  tsr_events events;
  uint32_t device;
  uint32_t
      process; /* number of the process that stands for it: pinned host memory's is after the GPUs' */
  uint64_t run_length;
  bool has_category[TSR_CATEGORY_COUNT]; /* it holds memory at some time */
  state now, least, most;                /* of the run */
  bool has_run;
} timeline_writer;

/* Time of an event in microseconds. The state before the first event has the first event's time; events
 * without a time are a microsecond apart. */
static int64_t clock_of(const timeline_writer *w, int64_t event) {
  if (!w->events.count) return 0;
  if (event < 0) event = 0;
  if (event >= (int64_t)w->events.count) event = (int64_t)w->events.count - 1;
  int64_t time = w->events.time_us[event];
  return time == TSR_TIME_NONE ? event : time;
}

static void begin_event(timeline_writer *w, const char *phase, tsr__cell name, int64_t event) {
  tsr__emit_inline_object(w->emitter, NULL);
  tsr__emit_field(w->emitter, "ph", NULL, tsr__string(phase));
  tsr__emit_field(w->emitter, "name", NULL, name);
  tsr__emit_field(w->emitter, "pid", NULL, tsr__count(w->process));
  tsr__emit_field(w->emitter, "ts", NULL, tsr__index(clock_of(w, event)));
}

static void emit_state(timeline_writer *w, const state *s) {
  begin_event(w, "C", tsr__string("memory"), s->event);
  tsr__emit_inline_object(w->emitter, "args");
  tsr__emit_field(w->emitter, "allocated_bytes", NULL, tsr__bytes(s->totals.allocated_bytes));
  tsr__emit_field(w->emitter, "reserved_bytes", NULL, tsr__bytes(s->totals.reserved_bytes));
  tsr__emit_end(w->emitter);
  tsr__emit_end(w->emitter);
  begin_event(w, "C", tsr__string("requested by category"), s->event);
  tsr__emit_inline_object(w->emitter, "args");
  for (int i = 0; i < TSR_CATEGORY_COUNT; i++)
    if (w->has_category[i])
      tsr__emit_field(w->emitter, tsr_category_name((tsr_category)i), NULL,
                      tsr__bytes(s->categories[i]));
  tsr__emit_end(w->emitter);
  tsr__emit_end(w->emitter);
}

static void end_run(timeline_writer *w) {
  if (!w->has_run) return;
  bool is_least_first = w->least.event < w->most.event;
  emit_state(w, is_least_first ? &w->least : &w->most);
  if (w->least.event != w->most.event) emit_state(w, is_least_first ? &w->most : &w->least);
  w->has_run = false;
}

static int take_turn(void *context, const tsr_turn *turn) {
  timeline_writer *w = context;
  if (turn->event >= 0 && (uint64_t)turn->event % w->run_length == 0) end_run(w);
  w->now.event = turn->event;
  w->now.totals = turn->totals;
  if (turn->born != TSR_NONE) {
    tsr_life life = tsr_lives_at(w->lives, w->place, turn->born);
    w->now.categories[life.kind] += life.requested_bytes;
  }
  for (size_t i = 0; i < turn->died_count; i++) {
    tsr_life life = tsr_lives_at(w->lives, w->place, turn->died[i]);
    w->now.categories[life.kind] -= life.requested_bytes;
  }
  uint64_t allocated = turn->totals.allocated_bytes;
  if (!w->has_run || allocated < w->least.totals.allocated_bytes) w->least = w->now;
  if (!w->has_run || allocated > w->most.totals.allocated_bytes) w->most = w->now;
  w->has_run = true;
  return 0;
}

static int emit_counters(timeline_writer *w, tsr_error *error) {
  w->run_length = w->events.count / MOST_RUNS + 1;
  for (size_t i = 0; i < tsr_lives_count(w->lives, w->place); i++) {
    tsr_life life = tsr_lives_at(w->lives, w->place, i);
    w->has_category[life.kind] = true;
    if (life.birth < 0) w->now.categories[life.kind] += life.requested_bytes;
  }
  int status = tsr_lives_walk(w->lives, w->place, take_turn, w, error);
  end_run(w);
  return status;
}

/* ---- slices ---- */

typedef struct slice {
  uint64_t bytes;
  size_t index;
  int64_t birth;
} slice;

/* Restore the heap order from `at` down; the smallest slice is on top. */
static void sink(slice *heap, size_t count, size_t at) {
  for (size_t child; (child = 2 * at + 1) < count; at = child) {
    if (child + 1 < count && heap[child + 1].bytes < heap[child].bytes) child++;
    if (heap[at].bytes <= heap[child].bytes) return;
    slice kept = heap[at];
    heap[at] = heap[child];
    heap[child] = kept;
  }
}

static int compare_births(const void *a, const void *b) {
  const slice *x = a, *y = b;
  if (x->birth != y->birth) return x->birth < y->birth ? -1 : 1;
  return (x->index > y->index) - (x->index < y->index);
}

/* The largest allocations, in order of birth; returns their number. */
static size_t find_largest(const tsr_lives *lives, size_t place, slice slices[MOST_SLICES]) {
  size_t total = tsr_lives_count(lives, place), count = total < MOST_SLICES ? total : MOST_SLICES;
  for (size_t i = 0; i < total; i++) {
    tsr_life life = tsr_lives_at(lives, place, i);
    slice found = {life.requested_bytes, i, life.birth};
    if (i < count) slices[i] = found;
    if (i + 1 == count)
      for (size_t at = count; at--;) sink(slices, count, at);
    if (i < count || found.bytes <= slices[0].bytes) continue;
    slices[0] = found;
    sink(slices, count, 0);
  }
  qsort(slices, count, sizeof *slices, compare_births);
  return count;
}

static void emit_slice(timeline_writer *w, const tsr_life *life, size_t lane) {
  tsr__buffer *scratch = &w->emitter->scratch;
  tsr__stack_append_name(w->printer, TSR__LABEL_STACK, life->stack);
  begin_event(w, "X", tsr__text((tsr_text){scratch->data, scratch->size}), life->birth);
  scratch->size = 0;
  tsr__emit_field(w->emitter, "dur", NULL,
                  tsr__index(clock_of(w, life->death) - clock_of(w, life->birth)));
  tsr__emit_field(w->emitter, "tid", NULL, tsr__count(lane + 1));
  tsr__emit_inline_object(w->emitter, "args");
  tsr__emit_field(w->emitter, "requested_bytes", NULL, tsr__bytes(life->requested_bytes));
  tsr__emit_field(w->emitter, "category", NULL, tsr__string(tsr_category_name(life->kind)));
  tsr__emit_field(w->emitter, "address", NULL, tsr__address(life->address));
  tsr__emit_field(w->emitter, "birth_event", NULL, tsr__index(life->birth));
  tsr__emit_field(w->emitter, "death_event", NULL, tsr__index(life->death));
  tsr_stack stack = tsr_snapshot_stack(w->printer->snapshot, life->stack);
  for (uint32_t f = stack.depth; f--;) {
    tsr__append_frame(scratch, w->printer->snapshot, stack.frames[f]);
    if (f) tsr__buffer_text(scratch, ";");
  }
  tsr__emit_field(w->emitter, "stack", NULL, tsr__text((tsr_text){scratch->data, scratch->size}));
  scratch->size = 0;
  tsr__emit_end(w->emitter);
  tsr__emit_end(w->emitter);
}

static int emit_slices(timeline_writer *w, tsr_error *error) {
  TSR__VECTOR(int64_t) free_from = {0}; /* by lane: the time from which on it is free */
  slice *slices = TSR__NEW_ARRAY(slice, MOST_SLICES);
  bool ok = slices != NULL;
  size_t count = ok ? find_largest(w->lives, w->place, slices) : 0;
  for (size_t i = 0; ok && i < count; i++) {
    tsr_life life = tsr_lives_at(w->lives, w->place, slices[i].index);
    size_t lane = 0;
    while (lane < free_from.count && free_from.items[lane] > clock_of(w, life.birth)) lane++;
    if (lane == free_from.count) ok = TSR__VECTOR_PUSH(&free_from, 0);
    if (ok) free_from.items[lane] = clock_of(w, life.death) + 1;
    if (ok) emit_slice(w, &life, lane);
  }
  TSR__VECTOR_FREE(&free_from);
  tsr__free(slices);
  return ok ? 0 : tsr__fail_memory(error);
}

static int emit_timeline(timeline_writer *w, tsr_error *error) {
  tsr__emit_inline_object(w->emitter, NULL);
  tsr__emit_field(w->emitter, "ph", NULL, tsr__string("M"));
  tsr__emit_field(w->emitter, "name", NULL, tsr__string("process_name"));
  tsr__emit_field(w->emitter, "pid", NULL, tsr__count(w->process));
  tsr__emit_inline_object(w->emitter, "args");
  if (w->device == TSR_DEVICE_HOST)
    tsr__buffer_text(&w->emitter->scratch, "Pinned host memory");
  else
    tsr__buffer_printf(&w->emitter->scratch, "GPU memory, device %" PRIu32, w->device);
  tsr__emit_field(w->emitter, "name", NULL,
                  tsr__text((tsr_text){w->emitter->scratch.data, w->emitter->scratch.size}));
  w->emitter->scratch.size = 0;
  tsr__emit_end(w->emitter);
  tsr__emit_end(w->emitter);
  int status = emit_counters(w, error);
  return status ? status : emit_slices(w, error);
}

/* ---- both ---- */

static int report_device(const tsr_report_input *input, const tsr_lives *lives, size_t place,
                         tsr_lives_format format, table *t, tsr_error *error) {
  uint32_t device = tsr_lives_device(lives, place);
  if (format == TSR_LIVES_CSV) return put_rows(t, lives, place, error);
  size_t gpu_count;
  const uint32_t *gpus = tsr_snapshot_gpus(input->snapshot, &gpu_count);
  uint32_t after = gpu_count ? gpus[gpu_count - 1] + 1 : 0;
  timeline_writer writer = {.process = device == TSR_DEVICE_HOST ? after : device,
                            .emitter = t->printer->emitter,
                            .printer = t->printer,
                            .lives = lives,
                            .place = place,
                            .events = tsr_snapshot_events(input->snapshot, device),
                            .device = device};
  return emit_timeline(&writer, error);
}

int tsr_report_lives(const tsr_report_input *input, const tsr_lives *lives, tsr_lives_format format,
                     const tsr_report_options *options, tsr_write_fn *write, void *context,
                     tsr_error *error) {
  const tsr_report_options json = {.format = TSR_REPORT_JSON};
  tsr__emitter emitter;
  tsr__stack_printer printer;
  bool is_json = format == TSR_LIVES_PERFETTO;
  tsr__emitter_init(&emitter, is_json ? &json : NULL, write, context);
  tsr__stack_printer_init(&printer, &emitter, input->snapshot);
  table t = {.printer = &printer, .options = options, .write = write, .context = context};
  if (is_json) {
    tsr__emit_object(&emitter, NULL);
    tsr__emit_field(&emitter, "displayTimeUnit", NULL, tsr__string("ms"));
    tsr__emit_array(&emitter, "traceEvents");
  } else {
    put_header(&t);
  }
  int status = 0;
  for (size_t i = 0; !status && i < tsr_lives_device_count(lives); i++)
    status = report_device(input, lives, i, format, &t, error);
  if (is_json) {
    tsr__emit_end(&emitter);
    tsr__emit_end(&emitter);
  } else if (!status) {
    status = pass_on(&t, 0, error);
  }
  tsr__buffer_release(&t.out);
  tsr__stack_printer_release(&printer);
  int finished = tsr__emitter_finish(&emitter, status ? NULL : error);
  return status ? status : finished;
}
