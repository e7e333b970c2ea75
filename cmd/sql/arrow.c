/* arrow.c - rows as an Arrow IPC file: https://arrow.apache.org/docs/format/Columnar.html, version 1.5 of the format.
 *
 *   "ARROW1\0\0"   schema message   record batches, a batch (batch.h) each   end of stream   footer   its size   "ARROW1"
 *
 *   message        0xffffffff, size of metadata, metadata (a flatbuffer), body: validity bits, offsets and values of each column
 *
 * A flatbuffer is written forwards: a table with room for its offsets, then what they refer to, and the offsets are filled in. Sizes are
 * multiples of 8 everywhere. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "batch.h"

/* ---- Flatbuffers ---- */

typedef struct flat {
  cli_text bytes;
} flat;

static void put(flat *f, const void *data, size_t size_bytes) {
  if (size_bytes) (void)cli_text_append(&f->bytes, data, size_bytes);
}

static size_t align(flat *f, size_t unit) {
  static const char zeros[8];
  put(f, zeros, (unit - f->bytes.size % unit) % unit);
  return f->bytes.size;
}

static void put_u32(flat *f, uint32_t value) {
  put(f, &value, sizeof value);
}

static void put_i64(flat *f, int64_t value) {
  put(f, &value, sizeof value);
}

/* A field of a table: a number of `size` bytes, or if `size` is 4 and `is_offset`, what is written later. */
typedef struct field {
  unsigned size; /* 0: absent */
  int64_t value;
} field;

enum { FIELDS_MOST = 6, OFFSET = 4 };

/* Write a table, and where its fields are. Returns its position. */
static size_t put_table(flat *f, const field *fields, size_t count, size_t at[FIELDS_MOST]) {
  uint16_t layout[2 + FIELDS_MOST] = {(uint16_t)(4 + 2 * count), 4};
  for (size_t i = 0; i < count; i++) {
    unsigned size = fields[i].size, from = layout[1];
    if (!size) continue;
    from = (from + size - 1) / size * size;
    layout[2 + i] = (uint16_t)from;
    layout[1] = (uint16_t)(from + size);
  }
  size_t start = align(f, 8);
  put(f, layout, layout[0]);
  size_t table = align(f, 8);
  put_u32(f, (uint32_t)(table - start));
  for (size_t i = 0; i < count; i++) {
    if (!fields[i].size) continue;
    (void)align(f, fields[i].size);
    at[i] = f->bytes.size;
    put(f, &fields[i].value, fields[i].size); /* the low bytes are first: see is_little */
  }
  return table;
}

/* Let the offset at `at` refer to `position`. */
static void refer(flat *f, size_t at, size_t position) {
  uint32_t distance = (uint32_t)(position - at);
  if (!f->bytes.is_lost) memcpy(f->bytes.data + at, &distance, sizeof distance);
}

/* Start a vector of elements of which each is aligned to `unit`; the caller puts them. Returns its position. */
static size_t put_vector(flat *f, size_t count, size_t unit) {
  (void)align(f, 4);
  while ((f->bytes.size + 4) % unit && !f->bytes.is_lost) put_u32(f, 0);
  size_t at = f->bytes.size;
  put_u32(f, (uint32_t)count);
  return at;
}

static size_t put_string(flat *f, const char *text) {
  size_t at = put_vector(f, strlen(text), 4);
  put(f, text, strlen(text) + 1);
  return at;
}

static size_t start_root(flat *f) {
  size_t at = f->bytes.size;
  put_u32(f, 0);
  return at;
}

/* ---- Columns ---- */

/* The number of a column's type in the format's union. */
static int number_of(const sql_column *c) {
  switch (c->type) {
  case SQL_COLUMN_INTEGER: return 2;
  case SQL_COLUMN_REAL: return 3;
  case SQL_COLUMN_BLOB: return 4;
  default: return 5;
  }
}

typedef struct arrow {
  sql_batch batch;
  uint64_t position; /* in the file */
  flat blocks;       /* of the footer, as it has them */
  size_t block_count;
} arrow;

static void write_bytes(arrow *a, sql_out *out, const void *data, size_t size_bytes) {
  sql_out_put(out, data, size_bytes);
  a->position += size_bytes;
}

static size_t padded(size_t size_bytes) {
  return (size_bytes + 7) / 8 * 8;
}

static void write_padding(arrow *a, sql_out *out, size_t size_bytes) {
  static const char zeros[8];
  write_bytes(a, out, zeros, padded(size_bytes) - size_bytes);
}

/* ---- Messages ---- */

static void put_field(flat *f, size_t at, const sql_column *c) {
  const field fields[] = {{OFFSET, 0}, {1, 1}, {1, number_of(c)}, {OFFSET, 0}, {0, 0}, {OFFSET, 0}};
  const field number[] = {
      {c->type == SQL_COLUMN_INTEGER ? 4 : 2, c->type == SQL_COLUMN_INTEGER ? 64 : 2}, {1, 1}};
  size_t of_field[FIELDS_MOST] = {0}, of_type[FIELDS_MOST];
  refer(f, at, put_table(f, fields, 6, of_field));
  refer(f, of_field[0], put_string(f, c->name));
  size_t number_fields = c->type == SQL_COLUMN_INTEGER ? 2 : c->type == SQL_COLUMN_REAL ? 1 : 0;
  refer(f, of_field[3], put_table(f, number, number_fields, of_type));
  refer(f, of_field[5], put_vector(f, 0, 4)); /* no children, which must be there */
}

static void put_schema(flat *f, size_t at, const arrow *a) {
  const field fields[] = {{2, 0}, {OFFSET, 0}};
  size_t of_schema[FIELDS_MOST] = {0};
  refer(f, at, put_table(f, fields, 2, of_schema));
  size_t list = put_vector(f, a->batch.column_count, 4);
  refer(f, of_schema[1], list);
  for (size_t i = 0; i < a->batch.column_count; i++) put_u32(f, 0);
  for (size_t i = 0; i < a->batch.column_count; i++)
    put_field(f, list + 4 + 4 * i, &a->batch.columns[i]);
}

enum { VERSION_5 = 4, HEADER_SCHEMA = 1, HEADER_BATCH = 3 };

/* Start a message; returns where its header is referred to. */
static size_t start_message(flat *f, int header, size_t body_bytes) {
  const field fields[] = {{2, VERSION_5}, {1, header}, {OFFSET, 0}, {8, (int64_t)body_bytes}};
  size_t of_message[FIELDS_MOST] = {0}, root = start_root(f);
  refer(f, root, put_table(f, fields, 4, of_message));
  return of_message[2];
}

/* Write a message without its body, and release it. Returns how many bytes it took. */
static size_t write_message(arrow *a, sql_out *out, flat *f) {
  (void)align(f, 8);
  if (f->bytes.is_lost) out->status = TSR_ERROR_MEMORY;
  const uint32_t head[] = {UINT32_MAX, (uint32_t)f->bytes.size};
  size_t size = sizeof head + f->bytes.size;
  write_bytes(a, out, head, sizeof head);
  write_bytes(a, out, f->bytes.data, f->bytes.size);
  free(f->bytes.data);
  return size;
}

static void write_schema(arrow *a, sql_out *out) {
  flat f = {.bytes.size = 0};
  write_bytes(a, out, "ARROW1\0", 8);
  put_schema(&f, start_message(&f, HEADER_SCHEMA, 0), a);
  (void)write_message(a, out, &f);
}

/* ---- A batch ---- */

static bool is_textual(const sql_column *c) {
  return c->type == SQL_COLUMN_TEXT || c->type == SQL_COLUMN_BLOB;
}

static size_t text_bytes(const sql_column *c, size_t row_count) {
  char number[32];
  size_t sum = 0, from = 0;
  for (size_t i = 0; i < row_count; i++) sum += sql_batch_text(c, i, &from, number).size_bytes;
  return sum;
}

typedef struct part {
  size_t sizes[3]; /* validity, then values, or offsets and bytes */
  size_t count, null_count;
} part;

static part measure(const sql_column *c, size_t rows) {
  part p = {.sizes = {(rows + 7) / 8}, .count = 2};
  for (size_t i = 0; i < rows; i++) p.null_count += c->kinds[i] == SQLITE_NULL;
  p.sizes[1] = is_textual(c) ? 4 * (rows + 1) : 8 * rows;
  if (!is_textual(c)) return p;
  p.sizes[2] = text_bytes(c, rows);
  p.count = 3;
  return p;
}

static void write_validity(arrow *a, sql_out *out, const sql_column *c) {
  for (size_t i = 0; i < a->batch.row_count; i += 8) {
    unsigned char bits = 0;
    for (size_t b = 0; b < 8 && i + b < a->batch.row_count; b++)
      bits = (unsigned char)(bits | (c->kinds[i + b] != SQLITE_NULL) << b);
    write_bytes(a, out, &bits, 1);
  }
  write_padding(a, out, (a->batch.row_count + 7) / 8);
}

static void write_numbers(arrow *a, sql_out *out, const sql_column *c) {
  for (size_t i = 0; i < a->batch.row_count; i++) {
    double real =
        c->type == SQL_COLUMN_REAL && sql_batch_is_number(c, i) ? sql_batch_real(c, i) : 0;
    uint64_t integer = sql_batch_is_number(c, i) ? c->values[i] : 0;
    write_bytes(a, out, c->type == SQL_COLUMN_REAL ? (const void *)&real : &integer, 8);
  }
}

static void write_texts(arrow *a, sql_out *out, const sql_column *c) {
  char number[32];
  uint32_t end = 0;
  size_t from = 0, total = 0;
  write_bytes(a, out, &end, sizeof end);
  for (size_t i = 0; i < a->batch.row_count; i++) {
    end += (uint32_t)sql_batch_text(c, i, &from, number).size_bytes;
    write_bytes(a, out, &end, sizeof end);
  }
  write_padding(a, out, 4 * (a->batch.row_count + 1));
  from = 0;
  for (size_t i = 0; i < a->batch.row_count; i++) {
    tsr_text text = sql_batch_text(c, i, &from, number);
    write_bytes(a, out, text.data, text.size_bytes);
    total += text.size_bytes;
  }
  write_padding(a, out, total);
}

/* The header of a record batch. Returns the size of its body. */
static size_t put_batch(flat *f, const arrow *a, const part *parts) {
  size_t body = 0, buffers = 0, of_batch[FIELDS_MOST] = {0};
  for (size_t i = 0; i < a->batch.column_count; i++)
    for (size_t b = 0; b < parts[i].count; b++, buffers++) body += padded(parts[i].sizes[b]);
  const field fields[] = {{8, (int64_t)a->batch.row_count}, {OFFSET, 0}, {OFFSET, 0}};
  size_t at = start_message(f, HEADER_BATCH, body), from = 0;
  refer(f, at, put_table(f, fields, 3, of_batch));
  refer(f, of_batch[1], put_vector(f, a->batch.column_count, 8));
  for (size_t i = 0; i < a->batch.column_count; i++) {
    put_i64(f, (int64_t)a->batch.row_count);
    put_i64(f, (int64_t)parts[i].null_count);
  }
  refer(f, of_batch[2], put_vector(f, buffers, 8));
  for (size_t i = 0; i < a->batch.column_count; i++)
    for (size_t b = 0; b < parts[i].count; b++) {
      put_i64(f, (int64_t)from);
      put_i64(f, (int64_t)parts[i].sizes[b]);
      from += padded(parts[i].sizes[b]);
    }
  return body;
}

static int write_batch(arrow *a, sql_out *out) {
  part *parts = calloc(a->batch.column_count, sizeof *parts);
  flat f = {.bytes.size = 0};
  if (!parts) return TSR_ERROR_MEMORY;
  for (size_t i = 0; i < a->batch.column_count; i++)
    parts[i] = measure(&a->batch.columns[i], a->batch.row_count);
  size_t body = put_batch(&f, a, parts);
  uint64_t start = a->position;
  size_t head = write_message(a, out, &f);
  for (size_t i = 0; i < a->batch.column_count; i++) {
    const sql_column *c = &a->batch.columns[i];
    write_validity(a, out, c);
    if (is_textual(c))
      write_texts(a, out, c);
    else
      write_numbers(a, out, c);
  }
  free(parts);
  put_i64(&a->blocks, (int64_t)start);
  put_i64(&a->blocks, (int64_t)head); /* 32 bits, and as many of padding */
  put_i64(&a->blocks, (int64_t)body);
  a->block_count++;
  sql_batch_clear(&a->batch);
  return a->blocks.bytes.is_lost ? TSR_ERROR_MEMORY : 0;
}

/* Write the rows that are kept, and the schema before the first. */
static int flush(arrow *a, const sql_rows *rows, sql_out *out) {
  int status = sql_batch_settle(&a->batch, rows);
  if (status) return status;
  if (a->position == 0) write_schema(a, out);
  return a->batch.row_count ? write_batch(a, out) : 0;
}

/* ---- The writer ---- */

static bool is_little(void) {
  const uint16_t one = 1;
  return *(const unsigned char *)&one == 1;
}

static int begin(void *state, const sql_rows *rows, sql_out *out, cli_session *session) {
  arrow *a = state;
  (void)out, (void)session;
  if (!is_little()) {
    cli_say("sql", "Arrow files are written on little-endian machines only; use --output csv");
    return CLI_FAULT;
  }
  return sql_batch_begin(&a->batch, rows);
}

static int row(void *state, const sql_rows *rows, sql_out *out) {
  arrow *a = state;
  bool is_full;
  int status = sql_batch_add(&a->batch, rows, &is_full);
  return !status && is_full ? flush(a, rows, out) : status;
}

static int end(void *state, const sql_rows *rows, sql_out *out) {
  static const uint32_t end_of_stream[] = {UINT32_MAX, 0};
  const field fields[] = {{2, VERSION_5}, {OFFSET, 0}, {OFFSET, 0}, {OFFSET, 0}};
  arrow *a = state;
  flat f = {.bytes.size = 0};
  size_t of_footer[FIELDS_MOST] = {0};
  int status = flush(a, rows, out);
  if (status) return status;
  write_bytes(a, out, end_of_stream, sizeof end_of_stream);
  size_t root = start_root(&f);
  refer(&f, root, put_table(&f, fields, 4, of_footer));
  put_schema(&f, of_footer[1], a);
  refer(&f, of_footer[2], put_vector(&f, 0, 8));
  refer(&f, of_footer[3], put_vector(&f, a->block_count, 8));
  put(&f, a->blocks.bytes.data, a->blocks.bytes.size);
  (void)align(&f, 8);
  uint32_t size = (uint32_t)f.bytes.size;
  if (f.bytes.is_lost) status = TSR_ERROR_MEMORY;
  write_bytes(a, out, f.bytes.data, f.bytes.size);
  write_bytes(a, out, &size, sizeof size);
  write_bytes(a, out, "ARROW1", 6);
  free(f.bytes.data);
  return status;
}

static void release(void *state) {
  arrow *a = state;
  sql_batch_release(&a->batch);
  free(a->blocks.bytes.data);
}

const sql_writer sql_arrow_writer = {sizeof(arrow), begin, row, end, release};
