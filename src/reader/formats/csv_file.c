/* csv_file.c - lines of allocations and frees.
 *
 * The fields of a record are copied out of the window one after the other, without their quotes. A record that the
 * window does not hold to its end is read again once the window has grown; records are bounded, so each byte is looked
 * at a bounded number of times. */
#include "formats/csv_file.h"

#include <string.h>

#include "base/buffer.h"
#include "base/checked.h"
#include "formats/flat.h"

typedef enum column {
  ACTION,
  BYTES,
  ADDRESS,
  DEVICE,
  TIME,
  STREAM,
  STACK,
  CATEGORY,
  ALLOCATED,
  RESERVED,
  COLUMN_COUNT
} column;

/* Names of columns; that of a time has its unit. */
static const struct {
  const char *name;
  column column;
  int64_t unit_ns;
} NAMES[] = {
    {"action", ACTION, 0},
    {"bytes", BYTES, 0},
    {"size", BYTES, 0},
    {"size_bytes", BYTES, 0},
    {"address", ADDRESS, 0},
    {"addr", ADDRESS, 0},
    {"device", DEVICE, 0},
    {"time_us", TIME, 1000},
    {"time_ns", TIME, 1},
    {"time_ms", TIME, 1000000},
    {"time_s", TIME, 1000000000},
    {"stream", STREAM, 0},
    {"stack", STACK, 0},
    {"category", CATEGORY, 0},
    {"allocated_bytes", ALLOCATED, 0},
    {"reserved_bytes", RESERVED, 0},
};

static const struct {
  const char *name;
  tsr__flat_kind kind;
} ACTIONS[] = {
    {"alloc", TSR__FLAT_ALLOC},         {"allocate", TSR__FLAT_ALLOC},
    {"malloc", TSR__FLAT_ALLOC},        {"free", TSR__FLAT_FREE},
    {"free_completed", TSR__FLAT_FREE}, {"deallocate", TSR__FLAT_FREE},
    {"dealloc", TSR__FLAT_FREE},        {"oom", TSR__FLAT_OOM},
};

enum { FIELDS_MAX = 1024 }; /* of a line; more are ignored */

typedef struct slice {
  const char *text;
  size_t size;
} slice;

typedef struct csv {
  tsr__input *source;
  tsr__assembler *assembler;
  tsr__builder *builder;
  tsr_error *error;
  tsr__flat flat;
  uint8_t
      column_of[FIELDS_MAX]; /* by field: a column, or COLUMN_COUNT. The last with a name counts */
  bool has[COLUMN_COUNT];
  int64_t unit_ns;
  tsr__buffer text;              /* of a record's fields, one after the other */
  size_t starts[FIELDS_MAX + 1]; /* of each in it */
  size_t field_count;
  TSR__VECTOR(uint32_t) frames; /* scratch */
  size_t consumed;              /* of the window */
  uint64_t rows;
} csv;

/* ---- texts ---- */

static char lower(char c) {
  return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
}

static bool is_same(slice s, const char *text) {
  if (s.size != strlen(text)) return false;
  for (size_t i = 0; i < s.size; i++)
    if (lower(s.text[i]) != text[i]) return false;
  return true;
}

static slice trim(slice s) {
  while (s.size && (*s.text == ' ' || *s.text == '\t')) s.text++, s.size--;
  while (s.size && (s.text[s.size - 1] == ' ' || s.text[s.size - 1] == '\t')) s.size--;
  return s;
}

/* ---- numbers ---- */

static int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  c = lower(c);
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : 16;
}

/* A number without a sign: decimal, perhaps with ".0" as programs write what they keep as a fraction, or hexadecimal. */
static bool read_number(slice s, uint64_t *out) {
  uint64_t value = 0;
  unsigned base = 10;
  size_t i = 0;
  if (s.size > 2 && s.text[0] == '0' && lower(s.text[1]) == 'x') base = 16, i = 2;
  if (i == s.size) return false;
  for (; i < s.size && s.text[i] != '.'; i++) {
    unsigned digit = (unsigned)digit_of(s.text[i]);
    if (digit >= base || value > (UINT64_MAX - digit) / base) return false;
    value = value * base + digit;
  }
  if (i == 0 || (i < s.size && base == 16)) return false;
  for (i++; i < s.size; i++)
    if (s.text[i] != '0') return false;
  *out = value;
  return true;
}

/* A time in units of `unit_ns`, perhaps with a sign and a fraction. */
static bool read_time(slice s, int64_t unit_ns, int64_t *out) {
  bool is_negative = s.size && *s.text == '-';
  size_t i = is_negative;
  uint64_t value = 0, unit = (uint64_t)unit_ns;
  if (i == s.size) return false;
  for (; i < s.size && s.text[i] != '.'; i++) {
    unsigned digit = (unsigned)digit_of(s.text[i]);
    if (digit > 9 || value > (INT64_MAX / unit - digit) / 10) return false;
    value = value * 10 + digit;
  }
  value *= unit;
  for (i++; i < s.size; i++) {
    unsigned digit = (unsigned)digit_of(s.text[i]);
    if (digit > 9) return false;
    unit /= 10;
    value = tsr__sum_u64(value, unit * digit);
  }
  if (value > INT64_MAX) return false;
  *out = is_negative ? -(int64_t)value : (int64_t)value;
  return true;
}

static bool read_device(slice s, uint32_t *out) {
  uint64_t number;
  if (!s.size) return true;
  if (is_same(s, "cpu")) return *out = TSR_DEVICE_CPU, true;
  if (is_same(s, "host")) return *out = TSR_DEVICE_HOST, true;
  const char *colon = memchr(s.text, ':', s.size);
  if (colon) s = (slice){colon + 1, s.size - (size_t)(colon + 1 - s.text)};
  if (!read_number(s, &number) || number >= TSR_DEVICE_CPU) return false;
  *out = (uint32_t)number;
  return true;
}

/* ---- records ---- */

enum { RECORD_BYTES_MAX = 1 << 20 };

/* Where a record is read: between two places of the window. `at_end`: nothing follows `end`. */
typedef struct cursor {
  const char *at, *end;
  bool at_end;
} cursor;

/* The rest of a field whose quote is at the cursor. False if it does not end here. */
static bool read_quoted(csv *c, cursor *p) {
  for (p->at++;;) {
    const char *quote = memchr(p->at, '"', (size_t)(p->end - p->at));
    const char *to = quote ? quote : p->end;
    tsr__buffer_append(&c->text, p->at, (size_t)(to - p->at));
    p->at = to;
    if (!quote) return false;
    p->at++;
    if (p->at == p->end) return p->at_end;
    if (*p->at != '"') return true;
    tsr__buffer_append(&c->text, p->at++, 1);
  }
}

static const char *field_end(const cursor *p) {
  const char *at = p->at;
  while (at < p->end && *at != ',' && *at != '\n' && *at != '\r') at++;
  return at;
}

/* One record: where its fields begin in c->text, into c->starts; the last one is where they end. False if it does not
 * end here; at the end of the input that is a quote that is never closed. */
static bool read_record(csv *c, cursor *p) {
  bool is_whole = true;
  c->text.size = 0;
  c->field_count = 0;
  for (;;) {
    bool is_quoted = p->at < p->end && *p->at == '"';
    if (c->field_count < FIELDS_MAX) c->starts[c->field_count++] = c->text.size;
    if (is_quoted) is_whole = read_quoted(c, p);
    const char *to = is_whole ? field_end(p) : p->end;
    if (!is_quoted) tsr__buffer_append(&c->text, p->at, (size_t)(to - p->at));
    p->at = to; /* what follows a closing quote belongs to nothing */
    if (p->at == p->end && !p->at_end) return false;
    if (p->at == p->end || *p->at != ',') break;
    p->at++;
  }
  c->starts[c->field_count] = c->text.size;
  if (p->at < p->end && *p->at == '\r') {
    if (++p->at == p->end && !p->at_end) return false;
  }
  if (p->at < p->end && *p->at == '\n') p->at++;
  return is_whole;
}

static slice field_at(const csv *c, size_t index) {
  const char *text = c->text.data ? c->text.data : "";
  return trim((slice){text + c->starts[index], c->starts[index + 1] - c->starts[index]});
}

static int fail_long(csv *c) {
  return tsr__fail(c->error, TSR_ERROR_LIMIT, c->source->offset + c->consumed,
                   "a line of the CSV is longer than 1 MiB");
}

/* The next record, from a window that grows until it holds it. `*found` is false at the end of the input. */
static int next_record(csv *c, bool *found) {
  for (;;) {
    const char *window = (const char *)c->source->data;
    cursor p = {window + c->consumed, window + c->source->size, c->source->at_end};
    *found = p.at < p.end;
    bool is_whole = *found && read_record(c, &p);
    if (c->text.failed) return tsr__fail_memory(c->error);
    size_t read_bytes = (size_t)(p.at - window) - c->consumed;
    if (*found && (is_whole || p.at_end)) {
      if (read_bytes > RECORD_BYTES_MAX) return fail_long(c);
      if (!is_whole) tsr__builder_cut(c->builder);
      c->consumed += read_bytes;
      return 0;
    }
    if (p.at_end) return 0;
    if (c->source->size - c->consumed > RECORD_BYTES_MAX) return fail_long(c);
    int status = tsr__input_fill(c->source, c->consumed, c->error);
    c->consumed = 0;
    if (status) return status;
  }
}

/* ---- the header ---- */

static int name_of(slice field) {
  for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
    if (is_same(field, NAMES[i].name)) return (int)i;
  return -1;
}

static const char BYTE_ORDER_MARK[] = "\xef\xbb\xbf";

static size_t mark_bytes(const unsigned char *data, size_t size) {
  return size >= 3 && memcmp(data, BYTE_ORDER_MARK, 3) == 0 ? 3 : 0;
}

bool tsr__csv_looks_like(const unsigned char *data, size_t size) {
  enum { HEADER_BYTES_MAX = 16 << 10 };
  size_t i = mark_bytes(data, size), named = 0;
  if (size > HEADER_BYTES_MAX) size = HEADER_BYTES_MAX;
  while (i < size && data[i] != '\n' && data[i] != '\r') {
    size_t from = i;
    while (i < size && data[i] != ',' && data[i] != '\n' && data[i] != '\r') {
      if (data[i] < ' ' && data[i] != '\t') return false;
      i++;
    }
    slice field = trim((slice){(const char *)data + from, i - from});
    if (field.size >= 2 && field.text[0] == '"') field.text++, field.size -= 2;
    named += name_of(trim(field)) >= 0;
    if (i < size && data[i] == ',') i++;
  }
  return named >= 2;
}

static int read_header(csv *c) {
  bool found;
  c->consumed = mark_bytes(c->source->data, c->source->size);
  int status = next_record(c, &found);
  if (status) return status;
  for (size_t i = 0; i < c->field_count; i++) {
    slice field = field_at(c, i);
    int name = name_of(field);
    c->column_of[i] = COLUMN_COUNT;
    if (name < 0) {
      if (field.size) tsr__builder_ignore_column(c->builder, field.text, field.size);
      continue;
    }
    c->column_of[i] = (uint8_t)NAMES[name].column;
    c->has[NAMES[name].column] = true;
    if (NAMES[name].unit_ns) c->unit_ns = NAMES[name].unit_ns;
  }
  for (size_t i = c->field_count; i < FIELDS_MAX; i++) c->column_of[i] = COLUMN_COUNT;
  if (c->has[ACTION] && c->has[BYTES]) return 0;
  return tsr__fail(c->error, TSR_ERROR_FORMAT, 0,
                   "the CSV has no column '%s' (its first line names the columns)",
                   c->has[ACTION] ? "bytes" : "action");
}

/* ---- rows ---- */

/* A frame: `function (file:line)`, or anything else as the function's name. */
static int add_frame(csv *c, slice s) {
  tsr_frame frame = {.line = 0};
  slice file = {"", 0};
  const char *open = NULL;
  if (s.size && s.text[s.size - 1] == ')')
    for (size_t i = s.size; i-- && !open;)
      if (s.text[i] == '(') open = s.text + i;
  if (open && open > s.text && open[-1] == ' ') {
    file = (slice){open + 1, (size_t)(s.text + s.size - 1 - (open + 1))};
    s = trim((slice){s.text, (size_t)(open - s.text)});
    for (size_t i = file.size; i--;) {
      uint64_t line;
      if (file.text[i] != ':') continue;
      if (!read_number((slice){file.text + i + 1, file.size - i - 1}, &line)) break;
      frame.line = line;
      file.size = i;
      break;
    }
  }
  frame.name = tsr__builder_string(c->builder, s.text, s.size);
  frame.file = tsr__builder_string(c->builder, file.text, file.size);
  uint32_t id = tsr__builder_frame(c->builder, frame);
  if (id == TSR_NONE || !TSR__VECTOR_PUSH(&c->frames, id)) return tsr__fail_memory(c->error);
  return 0;
}

/* The last frame is the innermost, which is the first of a stack. */
static int read_stack(csv *c, slice s, uint32_t *out) {
  int status = 0;
  c->frames.count = 0;
  for (size_t end = s.size; end && !status;) {
    size_t from = end;
    while (from && s.text[from - 1] != ';') from--;
    slice frame = trim((slice){s.text + from, end - from});
    if (c->frames.count == c->assembler->limits.stack_depth)
      return tsr__fail(c->error, TSR_ERROR_LIMIT, c->source->offset + c->consumed,
                       "a stack deeper than tsr_limits.stack_depth");
    if (frame.size) status = add_frame(c, frame);
    end = from ? from - 1 : 0;
  }
  if (status || !c->frames.count) return status;
  *out = tsr__builder_stack(c->builder, c->frames.items, (uint32_t)c->frames.count);
  return *out == TSR_NONE ? tsr__fail_memory(c->error) : 0;
}

static bool read_action(slice s, uint8_t *kind) {
  for (size_t i = 0; i < sizeof ACTIONS / sizeof *ACTIONS; i++)
    if (is_same(s, ACTIONS[i].name)) return *kind = (uint8_t)ACTIONS[i].kind, true;
  return false;
}

/* The fields of a line that are numbers or words. False if one cannot be read. */
static bool read_field(csv *c, column of, slice s, tsr__flat_row *row, bool *has_action) {
  switch (of) {
  case ACTION: return *has_action = read_action(s, &row->kind);
  case DEVICE: return read_device(s, &row->device);
  case TIME: return read_time(s, c->unit_ns, &row->time_ns);
  case BYTES: return read_number(s, &row->bytes);
  case ADDRESS: return read_number(s, &row->address) && row->address != TSR__FLAT_UNKNOWN;
  case STREAM: return read_number(s, &row->stream);
  case ALLOCATED: return read_number(s, &row->allocated_bytes);
  case RESERVED: return read_number(s, &row->reserved_bytes);
  default: return true;
  }
}

static bool is_number_missing(const tsr__flat_row *row) {
  bool can_lack_bytes = row->kind == TSR__FLAT_FREE && row->address != TSR__FLAT_UNKNOWN;
  return row->bytes == TSR__FLAT_UNKNOWN && !can_lack_bytes;
}

static int add_row(csv *c) {
  tsr__flat_row row = {.address = TSR__FLAT_UNKNOWN,
                       .bytes = TSR__FLAT_UNKNOWN,
                       .allocated_bytes = TSR__FLAT_UNKNOWN,
                       .reserved_bytes = TSR__FLAT_UNKNOWN,
                       .stack = TSR_NONE,
                       .says = TSR_NONE};
  slice stack = {"", 0}, category = {"", 0};
  bool has_action = false, ok = true;
  for (size_t i = 0; i < c->field_count && ok; i++) {
    slice field = field_at(c, i);
    if (!field.size) continue;
    if (c->column_of[i] == STACK) stack = field;
    if (c->column_of[i] == CATEGORY) category = field;
    ok = read_field(c, (column)c->column_of[i], field, &row, &has_action);
  }
  if (!ok || !has_action || is_number_missing(&row)) {
    bool is_blank = c->field_count == 1 && !field_at(c, 0).size;
    if (!is_blank) tsr__builder_warn(c->builder, TSR__WARN_ROWS_MALFORMED);
    return 0;
  }
  int status = read_stack(c, stack, &row.stack);
  if (status) return status;
  if (category.size) {
    row.says = tsr__builder_string(c->builder, category.text, category.size);
    if (row.says == TSR_NONE) return tsr__fail_memory(c->error);
  }
  return tsr__flat_add(&c->flat, &row) ? 0 : tsr__fail_memory(c->error);
}

static int check_memory(csv *c) {
  enum { ROWS_BETWEEN = 1 << 14 };
  if (++c->rows % ROWS_BETWEEN) return 0;
  return tsr__check_memory(c->assembler, tsr__flat_bytes(&c->flat) + c->text.capacity, c->source,
                           c->source->offset + c->consumed, c->error);
}

static bool tell_progress(const csv *c, const tsr_open_options *options, uint64_t total_bytes) {
  enum { ROWS_BETWEEN = 1 << 14 };
  if (!options || !options->progress || c->rows % ROWS_BETWEEN) return true;
  return options->progress(options->progress_context, c->source->offset + c->consumed, total_bytes);
}

static int read_rows(csv *c, const tsr_open_options *options, uint64_t total_bytes) {
  int status = read_header(c);
  for (bool found = true; !status && found;) {
    status = next_record(c, &found);
    if (!status && found) status = add_row(c);
    if (!status) status = check_memory(c);
    if (!status && !tell_progress(c, options, total_bytes))
      status = tsr__fail(c->error, TSR_ERROR_IO, TSR_OFFSET_NONE, "stopped by the caller");
  }
  return status;
}

int tsr__csv_read(tsr__input *source, tsr__assembler *assembler, const tsr_open_options *options,
                  uint64_t total_bytes, tsr_error *error) {
  csv *c = TSR__NEW(csv);
  if (!c) return tsr__fail_memory(error);
  *c = (csv){
      .source = source, .assembler = assembler, .builder = assembler->builder, .error = error};
  tsr__flat_init(&c->flat, c->builder);
  tsr__builder_record(c->builder, "csv");
  int status = read_rows(c, options, total_bytes);
  if (!status) status = tsr__flat_finish(&c->flat, error);
  if (!status) status = tsr__builder_lay_out(c->builder, error);
  tsr__flat_release(&c->flat);
  tsr__buffer_release(&c->text);
  TSR__VECTOR_FREE(&c->frames);
  tsr__free(c);
  return status;
}
