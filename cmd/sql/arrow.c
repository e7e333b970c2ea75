/* arrow.c - rows as an Arrow IPC file: https://arrow.apache.org/docs/format/Columnar.html, version 1.5 of the format.
 *
 *   "ARROW1\0\0"   schema message   record batches, ROWS_PER_BATCH rows each   end of stream   footer   its size   "ARROW1"
 *
 *   message        0xffffffff, size of metadata, metadata (a flatbuffer), body: validity bits, offsets and values of each column
 *
 * A flatbuffer is written forwards: a table with room for its offsets, then what they refer to, and the offsets are filled in. Sizes are
 * multiples of 8 everywhere.
 *
 * SQL's values have types, not its columns. So the values of a batch are kept as they are, and the types of columns are chosen when the
 * first batch is written: by what was declared, else by what occurred. A later value that does not fit is an error. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "write.h"

enum { ROWS_PER_BATCH = 1 << 16, TEXT_PER_BATCH = 64 << 20 };

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

typedef enum arrow_type {
  ARROW_NONE = 0, /* not chosen yet */
  ARROW_INT = 2,  /* the numbers of the format's union */
  ARROW_DOUBLE = 3,
  ARROW_BINARY = 4,
  ARROW_TEXT = 5
} arrow_type;

/* The values of a batch. */
typedef struct column {
  const char *name;
  arrow_type type;
  unsigned seen;    /* a bit for each SQLite type */
  uint8_t *kinds;   /* SQLite's types */
  uint64_t *values; /* integers, and the bits of reals; of texts, where they end in `text` */
  cli_text text;
} column;

typedef struct arrow {
  column *columns;
  size_t column_count, row_count;
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

static bool has_word(const char *text, const char *word) {
  return text && strstr(text, word);
}

static arrow_type choose_type(const sql_rows *rows, int index, unsigned seen) {
  const char *declared = rows->lib->column_decltype(rows->statement, index);
  if (seen & 1U << SQLITE_BLOB) return ARROW_BINARY;
  if (seen & 1U << SQLITE_TEXT || has_word(declared, "TEXT")) return ARROW_TEXT;
  if (seen & 1U << SQLITE_FLOAT) return ARROW_DOUBLE;
  return seen & 1U << SQLITE_INTEGER || has_word(declared, "INT") ? ARROW_INT : ARROW_TEXT;
}

static bool fits(arrow_type type, unsigned seen) {
  const unsigned integer = 1U << SQLITE_INTEGER, real = 1U << SQLITE_FLOAT,
                 null = 1U << SQLITE_NULL, text = 1U << SQLITE_TEXT;
  switch (type) {
  case ARROW_INT: return !(seen & ~(integer | null));
  case ARROW_DOUBLE: return !(seen & ~(integer | real | null));
  case ARROW_TEXT: return !(seen & ~(integer | real | text | null));
  default: return true;
  }
}

/* ---- Messages ---- */

static void put_field(flat *f, size_t at, const column *c) {
  const field fields[] = {{OFFSET, 0}, {1, 1}, {1, c->type}, {OFFSET, 0}, {0, 0}, {OFFSET, 0}};
  const field number[] = {{c->type == ARROW_INT ? 4 : 2, c->type == ARROW_INT ? 64 : 2}, {1, 1}};
  size_t of_field[FIELDS_MOST] = {0}, of_type[FIELDS_MOST];
  refer(f, at, put_table(f, fields, 6, of_field));
  refer(f, of_field[0], put_string(f, c->name));
  size_t number_fields = c->type == ARROW_INT ? 2 : c->type == ARROW_DOUBLE ? 1 : 0;
  refer(f, of_field[3], put_table(f, number, number_fields, of_type));
  refer(f, of_field[5], put_vector(f, 0, 4)); /* no children, which must be there */
}

static void put_schema(flat *f, size_t at, const arrow *a) {
  const field fields[] = {{2, 0}, {OFFSET, 0}};
  size_t of_schema[FIELDS_MOST] = {0};
  refer(f, at, put_table(f, fields, 2, of_schema));
  size_t list = put_vector(f, a->column_count, 4);
  refer(f, of_schema[1], list);
  for (size_t i = 0; i < a->column_count; i++) put_u32(f, 0);
  for (size_t i = 0; i < a->column_count; i++) put_field(f, list + 4 + 4 * i, &a->columns[i]);
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

static bool is_number(const column *c, size_t row) {
  return c->kinds[row] == SQLITE_INTEGER || c->kinds[row] == SQLITE_FLOAT;
}

static double real_of(const column *c, size_t row) {
  double value;
  memcpy(&value, &c->values[row], sizeof value);
  return c->kinds[row] == SQLITE_INTEGER ? (double)(int64_t)c->values[row] : value;
}

static int print_number(const column *c, size_t row, char text[32]) {
  if (c->kinds[row] == SQLITE_INTEGER)
    return snprintf(text, 32, "%" PRId64, (int64_t)c->values[row]);
  return snprintf(text, 32, "%.17g", real_of(c, row));
}

/* The text of a row, of which a number is printed to `number`. */
static tsr_text text_of(const column *c, size_t row, size_t *from, char number[32]) {
  if (is_number(c, row)) return (tsr_text){number, (size_t)print_number(c, row, number)};
  if (c->kinds[row] == SQLITE_NULL) return (tsr_text){"", 0};
  size_t start = *from;
  *from = (size_t)c->values[row];
  return (tsr_text){c->text.data + start, *from - start};
}

static bool is_textual(const column *c) {
  return c->type == ARROW_TEXT || c->type == ARROW_BINARY;
}

static size_t text_bytes(const column *c, size_t row_count) {
  char number[32];
  size_t sum = 0, from = 0;
  for (size_t i = 0; i < row_count; i++) sum += text_of(c, i, &from, number).size_bytes;
  return sum;
}

typedef struct part {
  size_t sizes[3]; /* validity, then values, or offsets and bytes */
  size_t count, null_count;
} part;

static part measure(const column *c, size_t rows) {
  part p = {.sizes = {(rows + 7) / 8}, .count = 2};
  for (size_t i = 0; i < rows; i++) p.null_count += c->kinds[i] == SQLITE_NULL;
  p.sizes[1] = is_textual(c) ? 4 * (rows + 1) : 8 * rows;
  if (!is_textual(c)) return p;
  p.sizes[2] = text_bytes(c, rows);
  p.count = 3;
  return p;
}

static void write_validity(arrow *a, sql_out *out, const column *c) {
  for (size_t i = 0; i < a->row_count; i += 8) {
    unsigned char bits = 0;
    for (size_t b = 0; b < 8 && i + b < a->row_count; b++)
      bits = (unsigned char)(bits | (c->kinds[i + b] != SQLITE_NULL) << b);
    write_bytes(a, out, &bits, 1);
  }
  write_padding(a, out, (a->row_count + 7) / 8);
}

static void write_numbers(arrow *a, sql_out *out, const column *c) {
  for (size_t i = 0; i < a->row_count; i++) {
    double real = c->type == ARROW_DOUBLE && is_number(c, i) ? real_of(c, i) : 0;
    uint64_t integer = is_number(c, i) ? c->values[i] : 0;
    write_bytes(a, out, c->type == ARROW_DOUBLE ? (const void *)&real : &integer, 8);
  }
}

static void write_texts(arrow *a, sql_out *out, const column *c) {
  char number[32];
  uint32_t end = 0;
  size_t from = 0, total = 0;
  write_bytes(a, out, &end, sizeof end);
  for (size_t i = 0; i < a->row_count; i++) {
    end += (uint32_t)text_of(c, i, &from, number).size_bytes;
    write_bytes(a, out, &end, sizeof end);
  }
  write_padding(a, out, 4 * (a->row_count + 1));
  from = 0;
  for (size_t i = 0; i < a->row_count; i++) {
    tsr_text text = text_of(c, i, &from, number);
    write_bytes(a, out, text.data, text.size_bytes);
    total += text.size_bytes;
  }
  write_padding(a, out, total);
}

/* The header of a record batch. Returns the size of its body. */
static size_t put_batch(flat *f, const arrow *a, const part *parts) {
  size_t body = 0, buffers = 0, of_batch[FIELDS_MOST] = {0};
  for (size_t i = 0; i < a->column_count; i++)
    for (size_t b = 0; b < parts[i].count; b++, buffers++) body += padded(parts[i].sizes[b]);
  const field fields[] = {{8, (int64_t)a->row_count}, {OFFSET, 0}, {OFFSET, 0}};
  size_t at = start_message(f, HEADER_BATCH, body), from = 0;
  refer(f, at, put_table(f, fields, 3, of_batch));
  refer(f, of_batch[1], put_vector(f, a->column_count, 8));
  for (size_t i = 0; i < a->column_count; i++) {
    put_i64(f, (int64_t)a->row_count);
    put_i64(f, (int64_t)parts[i].null_count);
  }
  refer(f, of_batch[2], put_vector(f, buffers, 8));
  for (size_t i = 0; i < a->column_count; i++)
    for (size_t b = 0; b < parts[i].count; b++) {
      put_i64(f, (int64_t)from);
      put_i64(f, (int64_t)parts[i].sizes[b]);
      from += padded(parts[i].sizes[b]);
    }
  return body;
}

static int write_batch(arrow *a, sql_out *out) {
  part *parts = calloc(a->column_count, sizeof *parts);
  flat f = {.bytes.size = 0};
  if (!parts) return TSR_ERROR_MEMORY;
  for (size_t i = 0; i < a->column_count; i++) parts[i] = measure(&a->columns[i], a->row_count);
  size_t body = put_batch(&f, a, parts);
  uint64_t start = a->position;
  size_t head = write_message(a, out, &f);
  for (size_t i = 0; i < a->column_count; i++) {
    const column *c = &a->columns[i];
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
  a->row_count = 0;
  for (size_t i = 0; i < a->column_count; i++) a->columns[i].text.size = a->columns[i].seen = 0;
  return a->blocks.bytes.is_lost ? TSR_ERROR_MEMORY : 0;
}

/* Write the rows that are kept; the first time, choose the columns' types before. */
static int flush(arrow *a, const sql_rows *rows, sql_out *out) {
  bool is_first = a->position == 0;
  for (size_t i = 0; i < a->column_count; i++) {
    column *c = &a->columns[i];
    if (is_first) c->type = choose_type(rows, (int)i, c->seen);
    if (fits(c->type, c->seen)) continue;
    cli_say("sql",
            "column '%s' has values of several types, which an Arrow file cannot contain; CAST it",
            c->name);
    return CLI_USAGE;
  }
  if (is_first) write_schema(a, out);
  return a->row_count ? write_batch(a, out) : 0;
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
  a->columns = calloc((size_t)rows->column_count, sizeof *a->columns);
  if (!a->columns) return TSR_ERROR_MEMORY;
  for (; a->column_count < (size_t)rows->column_count; a->column_count++) {
    column *c = &a->columns[a->column_count];
    c->name = rows->lib->column_name(rows->statement, (int)a->column_count);
    c->kinds = malloc(ROWS_PER_BATCH);
    c->values = malloc(ROWS_PER_BATCH * sizeof *c->values);
    if (c->name && c->kinds && c->values) continue;
    a->column_count++;
    return TSR_ERROR_MEMORY;
  }
  return 0;
}

/* Texts of a snapshot may be any bytes; those of an Arrow file are UTF-8. */
static void make_valid(char *text, size_t size_bytes) {
  for (size_t i = 0; i < size_bytes;) {
    unsigned char first = (unsigned char)text[i];
    size_t length = first < 0x80                    ? 1
                    : first >= 0xc2 && first < 0xe0 ? 2
                    : (first & 0xf0) == 0xe0        ? 3
                    : first >= 0xf0 && first < 0xf5 ? 4
                                                    : 0;
    bool ok = length && length <= size_bytes - i;
    for (size_t b = 1; ok && b < length; b++) ok = ((unsigned char)text[i + b] & 0xc0) == 0x80;
    unsigned char second = ok && length > 2 ? (unsigned char)text[i + 1] : 0x90;
    ok = ok && !(first == 0xe0 && second < 0xa0) && !(first == 0xed && second > 0x9f) &&
         !(first == 0xf0 && second < 0x90) && !(first == 0xf4 && second > 0x8f);
    if (!ok) text[i] = '?';
    i += ok ? length : 1;
  }
}

static int keep_text(const sql_rows *rows, int index, column *c, size_t row, int kind) {
  const void *data = kind == SQLITE_BLOB
                         ? rows->lib->column_blob(rows->statement, index)
                         : (const void *)rows->lib->column_text(rows->statement, index);
  size_t size = (size_t)rows->lib->column_bytes(rows->statement, index);
  if (!data && (size || kind == SQLITE_TEXT)) return TSR_ERROR_MEMORY;
  if (cli_text_append(&c->text, data ? data : "", size)) return TSR_ERROR_MEMORY;
  if (kind == SQLITE_TEXT) make_valid(c->text.data + c->text.size - size, size);
  c->values[row] = c->text.size;
  return 0;
}

static int row(void *state, const sql_rows *rows, sql_out *out) {
  arrow *a = state;
  size_t at = a->row_count, text = 0;
  int status = 0;
  for (size_t i = 0; !status && i < a->column_count; i++) {
    column *c = &a->columns[i];
    int kind = rows->lib->column_type(rows->statement, (int)i);
    double real = 0;
    c->kinds[at] = (uint8_t)kind;
    c->seen |= 1U << kind;
    if (kind == SQLITE_INTEGER)
      c->values[at] = (uint64_t)rows->lib->column_int64(rows->statement, (int)i);
    if (kind == SQLITE_FLOAT) real = rows->lib->column_double(rows->statement, (int)i);
    if (kind == SQLITE_FLOAT) memcpy(&c->values[at], &real, sizeof real);
    if (kind == SQLITE_TEXT || kind == SQLITE_BLOB) status = keep_text(rows, (int)i, c, at, kind);
    if (c->text.size > text) text = c->text.size;
  }
  a->row_count++;
  bool is_full = a->row_count == ROWS_PER_BATCH || text > TEXT_PER_BATCH;
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
  for (size_t i = 0; i < a->column_count; i++) {
    free(a->columns[i].kinds);
    free(a->columns[i].values);
    free(a->columns[i].text.data);
  }
  free(a->columns);
  free(a->blocks.bytes.data);
}

const sql_writer sql_arrow_writer = {sizeof(arrow), begin, row, end, release};
