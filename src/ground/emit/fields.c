/* fields.c - what all answers have in common, and looking up declared fields. */
#include "emit/fields.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "emit/emitter.h"

/* ---- Around every answer ---- */

static const tsr_record input = {
    .name = "Input",
    .about = "A file that was read.",
    TSR__FIELDS(
        TSR__FIELD(TEXT, "path", "as given on the command line; `-` is standard input"),
        TSR__FIELD(BYTES, "bytes", "its stored size, before any decompression"),
        TSR__FIELD(TEXT, "format",
                   "the format it was read from, outermost first: `pickle`, `gzip pickle`, ..."),
        TSR__FIELD(TEXT, "sidecar",
                   "the sidecar that was read with it, which names the program's tensors "
                   "([capture.md](capture.md#the-sidecar)); null if there was none",
                   .is_nullable = true)),
};

static const tsr_record warning = {
    .name = "Warning",
    .about = "What a file lacks or contradicts. Test for `code`; `message` is for people.",
    TSR__FIELDS(TSR__FIELD(TEXT, "code", "stable, in kebab-case; programs should test this"),
                TSR__FIELD(COUNT, "count", "how often it was seen"),
                TSR__FIELD(TEXT, "message", "one sentence for a person; may change")),
};

const tsr_record tsr__fields_answer = {
    .name = "Answer",
    .about = "What every answer has.",
    .is_apart = true,
    TSR__FIELDS(TSR__FIELD(TEXT, "schema", "`tessera/1`"),
                TSR__FIELD(TEXT, "command", "the command that answered"),
                TSR__LIST(input, "inputs", "the files read, in the order given"),
                TSR__LIST(warning, "warnings",
                          "what the files lack or contradict; empty if nothing. They are also "
                          "printed on standard error, unless `-q` is given")),
};

const tsr_record tsr__fields_device = {
    .name = "Device",
    .about = "An answer about one device; pinned host memory is 'host', that of the CPU 'cpu'.",
    TSR__FIELDS(
        TSR__FIELD(DEVICE, "device",
                   "its number; `\"host\"` is [pinned host memory](#pinned-host-memory), "
                   "`\"cpu\"` [that of the CPU](inputs.md#traces-of-torchprofiler)"),
        TSR__FIELD(COUNT, "events", "events in its trace"),
        TSR__FIELD(FLAG, "has_history",
                   "false: at most one event changes what is allocated, so the file shows one "
                   "moment, and its largest figure is no peak",
                   .is_optional = true)),
};

const tsr_record tsr__fields_totals = {
    .name = "Totals",
    .about = "Four byte counts, in PyTorch's terms.",
    .is_apart = true,
    TSR__FIELDS(
        TSR__FIELD(BYTES, "requested_bytes", "bytes the program asked for, of active blocks"),
        TSR__FIELD(BYTES, "allocated_bytes",
                   "bytes of the blocks that serve them, rounding included "
                   "(`torch.cuda.memory_allocated()`)"),
        TSR__FIELD(BYTES, "active_bytes",
                   "allocated, plus blocks freed but waiting for another stream"),
        TSR__FIELD(BYTES, "reserved_bytes", "bytes of segments (`torch.cuda.memory_reserved()`)")),
};

const tsr_record tsr__fields_moment = {
    .name = "Moment",
    .about = "The totals after an event.",
    .base = &tsr__fields_totals,
    .is_apart = true,
    TSR__FIELDS(TSR__FIELD(EVENT, "event", "the event; -1 is before the first"),
                TSR__FIELD(TIME, "time_us", "its time", .is_nullable = true)),
};

/* ---- Looking them up ---- */

const tsr_field *tsr_record_field(const tsr_record *record, const char *key, size_t size_bytes) {
  for (; record; record = record->base)
    for (const tsr_field *field = record->fields; field && field->key; field++)
      if (strncmp(field->key, key, size_bytes) == 0 && !field->key[size_bytes]) return field;
  return NULL;
}

bool tsr__field_allows(const tsr_field *field, const tsr__cell *value) {
  static const unsigned cells[] = {
      [TSR_FIELD_BYTES] = 1U << TSR__CELL_BYTES,
      [TSR_FIELD_COUNT] = 1U << TSR__CELL_COUNT,
      [TSR_FIELD_EVENT] = 1U << TSR__CELL_INDEX | 1U << TSR__CELL_COUNT,
      [TSR_FIELD_DELTA] = 1U << TSR__CELL_INDEX,
      [TSR_FIELD_TIME] = 1U << TSR__CELL_TIME,
      [TSR_FIELD_DURATION] = 1U << TSR__CELL_COUNT | 1U << TSR__CELL_INDEX,
      [TSR_FIELD_REAL] = 1U << TSR__CELL_REAL,
      [TSR_FIELD_FLAG] = 1U << TSR__CELL_BOOL,
      [TSR_FIELD_TEXT] = 1U << TSR__CELL_TEXT,
      [TSR_FIELD_DEVICE] = 1U << TSR__CELL_COUNT | 1U << TSR__CELL_TEXT,
      [TSR_FIELD_PAIR] = 1U << TSR__CELL_COUNT | 1U << TSR__CELL_INDEX | 1U << TSR__CELL_BYTES,
      [TSR_FIELD_MAP] = 1U << TSR__CELL_COUNT | 1U << TSR__CELL_BYTES,
      [TSR_FIELD_RECORD] = 0,
      [TSR_FIELD_JSON] = 0,
  };
  assert((size_t)field->kind < sizeof cells / sizeof *cells);
  bool is_null =
      value->kind == TSR__CELL_NOTHING || (value->kind == TSR__CELL_REAL && !isfinite(value->real));
  if (is_null) return field->is_nullable;
  return cells[field->kind] >> value->kind & 1;
}
