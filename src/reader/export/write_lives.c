/* write_lives.c - allocations for other programs: a table (CSV) here, a time line (trace events in JSON) in
 * perfetto.c. */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "emit/emitter.h"
#include "emit/text.h"
#include "export/lives.h"
#include "stacks/stacks.h"

enum { LINE_ROOM = 64 << 10 };

/* ---- CSV ---- */

typedef struct table {
  tsr__stack_printer *printer;
  tsr__shown *shown;
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
  assert(to == out->data + from);
}

static void put_stack(table *t, uint32_t id) {
  tsr__buffer *out = &t->out;
  tsr__buffer_text(out, ",");
  size_t from = out->size;
  if (id == TSR_NONE || !tsr_snapshot_stack(t->shown->snapshot, id).depth) return;
  out->failed |= !tsr__shown_take(t->shown, id);
  if (!out->failed) tsr__shown_append(t->shown, out);
  put_cell(out, from);
}

static void put_time(tsr__buffer *out, const tsr_events *events, int64_t event) {
  bool has_time =
      event >= 0 && event < (int64_t)events->count && events->time_us[event] != TSR_TIME_NONE;
  if (has_time) tsr__buffer_printf(out, ",%" PRId64, events->time_us[event]);
  if (!has_time) tsr__buffer_text(out, ",");
}

/* What the program called it. */
static void put_names(table *t, const tsr_lives *lives, size_t place, size_t index) {
  tsr__buffer *out = &t->out, *scratch = &t->printer->emitter->scratch;
  tsr__buffer_text(out, ",");
  size_t from = out->size;
  tsr__lives_append_names(lives, place, index, scratch);
  if (scratch->size) (void)tsr__text_clean(out, (tsr_text){scratch->data, scratch->size});
  if (scratch->size) put_cell(out, from);
  out->failed |= scratch->failed;
  scratch->size = 0;
}

static void put_life(table *t, const tsr_lives *lives, size_t place, size_t index,
                     const tsr_events *events) {
  uint32_t device = tsr_lives_device(lives, place);
  const tsr_life one = tsr_lives_at(lives, place, index), *life = &one;
  tsr__buffer *out = &t->out;
  if (device == TSR_DEVICE_HOST)
    tsr__buffer_printf(out, "host,%" PRId64, life->birth);
  else if (device == TSR_DEVICE_CPU)
    tsr__buffer_printf(out, "cpu,%" PRId64, life->birth);
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
  tsr__buffer_printf(out, ",%s,", tsr_category_name(life->category));
  if (life->stack != TSR_NONE) tsr__buffer_printf(out, "%" PRIu32, life->stack);
  tsr__buffer_text(out, ",");
  size_t from = out->size;
  tsr__buffer *scratch = &t->printer->emitter->scratch;
  tsr__stack_append_name(t->printer, TSR__LABEL_STACK, life->stack);
  (void)tsr__text_clean(out, (tsr_text){scratch->data, scratch->size});
  out->failed |= scratch->failed;
  scratch->size = 0;
  put_cell(out, from);
  put_names(t, lives, place, index);
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
    put_life(t, lives, place, i, &events);
    status = pass_on(t, LINE_ROOM, error);
  }
  return status;
}

static void put_header(table *t) {
  tsr__buffer *out = &t->out;
  tsr__buffer_text(out, "device,birth_event,birth_time_us,death_event,death_time_us,address,"
                        "requested_bytes,size_bytes,stream,category,stack_id,allocated_at,names");
  if (t->options && t->options->full_stacks) tsr__buffer_text(out, ",stack");
  tsr__buffer_text(out, "\r\n");
}

/* ---- both ---- */

static int report_device(const tsr_lives *lives, size_t place, tsr_lives_format format, table *t,
                         tsr_error *error) {
  if (format == TSR_LIVES_CSV) return put_rows(t, lives, place, error);
  return tsr__perfetto_emit(t->printer, t->shown, lives, place, error);
}

int tsr_report_lives(const tsr_report_input *input, const tsr_lives *lives, tsr_lives_format format,
                     const tsr_report_options *options, tsr_write_fn *write, void *context,
                     tsr_error *error) {
  const tsr_report_options json = {.format = TSR_REPORT_JSON};
  tsr__emitter emitter;
  tsr__stack_printer printer;
  tsr__shown shown;
  bool is_json = format == TSR_LIVES_PERFETTO;
  int status = tsr__shown_init(&shown, input->snapshot, options && options->full_stacks, error);
  if (status) {
    tsr__shown_release(&shown);
    return status;
  }
  tsr__emitter_init(&emitter, is_json ? &json : NULL, write, context);
  tsr__stack_printer_init(&printer, &emitter, input->snapshot);
  table t = {
      .printer = &printer, .shown = &shown, .options = options, .write = write, .context = context};
  if (is_json) {
    tsr__emit_object(&emitter, NULL);
    tsr__emit_field(&emitter, "displayTimeUnit", NULL, tsr__string("ms"));
    tsr__emit_array(&emitter, "traceEvents");
  } else {
    put_header(&t);
  }
  for (size_t i = 0; !status && i < tsr_lives_device_count(lives); i++)
    status = report_device(lives, i, format, &t, error);
  if (is_json) {
    tsr__emit_end(&emitter);
    tsr__emit_end(&emitter);
  } else if (!status) {
    status = pass_on(&t, 0, error);
  }
  tsr__buffer_release(&t.out);
  tsr__stack_printer_release(&printer);
  tsr__shown_release(&shown);
  int finished = tsr__emitter_finish(&emitter, status ? NULL : error);
  return status ? status : finished;
}
