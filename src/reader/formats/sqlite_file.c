/* sqlite_file.c - the pages of an SQLite database.
 *
 *   page 1: [ header, 100 bytes | root of the table of tables ]
 *   interior page: 05 .. n, right child, then n cells {left child, largest row number in it}
 *   leaf page:     0d .. n, then n cells {payload size, row number, payload .. [first overflow page]}
 *   payload:       {size of the header, a type for each column .. | a value for each column ..}
 *
 * Cells are found by an array of offsets after the page's header. A payload that is too long for its page
 * continues on a chain of overflow pages. Integers are big-endian; a varint has seven bits in each byte.
 *
 * A page is fetched again for each cell, because reading a payload's overflow pages may replace it in the cache. */
#include "formats/sqlite_file.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

enum {
  HEADER_BYTES = 100,
  INTERIOR = 0x05,
  LEAF = 0x0d,
  DEPTH_MAX = 24, /* of a tree: 2^32 pages need fewer */
};

/* ---- bytes ---- */

static uint32_t read_u16(const unsigned char *p) {
  return (uint32_t)p[0] << 8 | p[1];
}

static uint32_t read_u32(const unsigned char *p) {
  return read_u16(p) << 16 | read_u16(p + 2);
}

/* A varint at `*p`, which moves past it. False if it does not end before `end`. */
static bool read_varint(const unsigned char **p, const unsigned char *end, uint64_t *out) {
  uint64_t value = 0;
  for (int i = 0; i < 9; i++) {
    if (*p == end) return false;
    unsigned char byte = *(*p)++;
    if (i == 8) {
      *out = value << 8 | byte;
      return true;
    }
    value = value << 7 | (byte & 0x7f);
    if (!(byte & 0x80)) break;
  }
  *out = value;
  return true;
}

/* A signed integer of `size` bytes. */
static int64_t read_integer(const unsigned char *p, size_t size) {
  uint64_t value = size && (p[0] & 0x80) ? UINT64_MAX : 0;
  for (size_t i = 0; i < size; i++) value = value << 8 | p[i];
  return (int64_t)value;
}

/* ---- the header ---- */

static const char MAGIC[16] = "SQLite format 3";

bool tsr__sqlite_looks_like(const unsigned char *data, size_t size) {
  return size >= sizeof MAGIC && memcmp(data, MAGIC, sizeof MAGIC) == 0;
}

static int fail_damaged(uint64_t page, const tsr__sqlite *db, const char *what, tsr_error *error) {
  uint64_t offset = page ? (page - 1) * db->page_bytes : 0;
  return tsr__fail(error, TSR_ERROR_FORMAT, offset,
                   "the SQLite file is damaged: %s (page %" PRIu64 ")", what, page);
}

int tsr__sqlite_open(tsr__sqlite *db, tsr__access *access, tsr_error *error) {
  const unsigned char *header;
  *db = (tsr__sqlite){.access = access};
  int status = tsr__access_bytes(access, 0, HEADER_BYTES, &header, error);
  if (status) return status;
  uint32_t size = read_u16(header + 16), encoding = read_u32(header + 56);
  db->page_bytes = size == 1 ? 65536 : size;
  db->usable_bytes = db->page_bytes - header[20];
  if (db->page_bytes < 512 || db->page_bytes > 65536 || db->page_bytes & (db->page_bytes - 1) ||
      db->usable_bytes < 480 || db->usable_bytes > db->page_bytes)
    return fail_damaged(1, db, "the size of its pages", error);
  if (encoding > 1)
    return tsr__fail(error, TSR_ERROR_UNSUPPORTED, 56,
                     "an SQLite file with texts in UTF-16 is not supported");
  db->has_log = header[19] == 2;
  db->page_count = access->size_bytes / db->page_bytes;
  return db->page_count ? 0 : fail_damaged(1, db, "it is shorter than a page", error);
}

void tsr__sqlite_release(tsr__sqlite *db) {
  tsr__buffer_release(&db->row);
  *db = (tsr__sqlite){0};
}

/* ---- trees ---- */

/* A walk over one tree: where it is on each level, and how many pages it may still visit. */
typedef struct walk {
  tsr__sqlite *db;
  uint64_t pages_left;
  struct {
    uint32_t page, cell;
  } levels[DEPTH_MAX];
  int depth;
  const int *columns;
  int count, last; /* wanted columns, and the largest of them */
  tsr__sqlite_visit *visit;
  void *context;
} walk;

/* A page, and what its own header states. */
typedef struct page {
  const unsigned char *data, *end; /* the end of what may be used */
  const unsigned char *cells;      /* the offsets */
  uint32_t count, number;
  bool is_leaf;
  uint32_t right; /* child of an interior page */
} page;

static int get_page(walk *w, uint32_t number, page *out, tsr_error *error) {
  tsr__sqlite *db = w->db;
  const unsigned char *data;
  if (!number || number > db->page_count)
    return fail_damaged(number, db, "it refers to a page that does not exist", error);
  int status = tsr__access_bytes(db->access, (uint64_t)(number - 1) * db->page_bytes,
                                 db->page_bytes, &data, error);
  if (status) return status;
  const unsigned char *head = data + (number == 1 ? HEADER_BYTES : 0);
  *out = (page){.data = data,
                .end = data + db->usable_bytes,
                .is_leaf = head[0] == LEAF,
                .count = read_u16(head + 3),
                .number = number,
                .cells = head + (head[0] == LEAF ? 8 : 12)};
  if (head[0] != LEAF && head[0] != INTERIOR)
    return fail_damaged(number, db, "a page of a table has another type", error);
  if (!out->is_leaf) out->right = read_u32(head + 8);
  if (out->count > (size_t)(out->end - out->cells) / 2)
    return fail_damaged(number, db, "a page with more cells than fit", error);
  return 0;
}

/* The same for a page that was not visited before. */
static int enter_page(walk *w, uint32_t number, page *out, tsr_error *error) {
  if (!w->pages_left)
    return fail_damaged(number, w->db, "its pages refer to each other in circles", error);
  w->pages_left--;
  return get_page(w, number, out, error);
}

/* Where cell number `index` begins; NULL if that is outside the page. */
static const unsigned char *cell_at(const page *p, uint32_t index) {
  uint32_t offset = read_u16(p->cells + 2 * (size_t)index);
  return offset < (size_t)(p->end - p->data) ? p->data + offset : NULL;
}

/* The left child and the key of an interior page's cell. */
static bool read_interior(const page *p, uint32_t index, uint32_t *child, int64_t *key) {
  const unsigned char *at = cell_at(p, index);
  uint64_t row;
  if (!at || p->end - at < 5) return false;
  *child = read_u32(at);
  at += 4;
  if (!read_varint(&at, p->end, &row)) return false;
  *key = (int64_t)row;
  return true;
}

/* ---- rows ---- */

/* Copy a payload, of which `local` bytes are at `at` and the rest on pages from `next` on. */
static int gather(walk *w, uint32_t from, const unsigned char *at, size_t local, uint64_t total,
                  uint32_t next, tsr_error *error) {
  tsr__sqlite *db = w->db;
  db->row.size = 0;
  tsr__buffer_append(&db->row, at, local);
  while (!db->row.failed && db->row.size < total && db->row.size < TSR__SQLITE_ROW_BYTES) {
    const unsigned char *data;
    if (!next || next > db->page_count || !w->pages_left)
      return fail_damaged(from, db, "a row's overflow pages end early", error);
    w->pages_left--;
    int status = tsr__access_bytes(db->access, (uint64_t)(next - 1) * db->page_bytes,
                                   db->page_bytes, &data, error);
    if (status) return status;
    uint64_t rest = total - db->row.size, size = db->usable_bytes - 4;
    next = read_u32(data);
    tsr__buffer_append(&db->row, data + 4, (size_t)(rest < size ? rest : size));
  }
  return db->row.failed ? tsr__fail_memory(error) : 0;
}

/* Bytes of a value of this type; `*type` is what it is. */
static uint64_t value_bytes(uint64_t serial, tsr__sqlite_type *type) {
  static const uint8_t integers[] = {0, 1, 2, 3, 4, 6, 8, 8, 0, 0};
  *type = serial == 0                    ? TSR__SQLITE_NULL
          : serial == 7                  ? TSR__SQLITE_REAL
          : serial < 10                  ? TSR__SQLITE_INTEGER
          : serial == 10 || serial == 11 ? TSR__SQLITE_NULL
                                         : TSR__SQLITE_TEXT;
  if (serial < 10) return integers[serial];
  return serial < 12 ? 0 : (serial - 12) / 2;
}

/* The value of `size` bytes at `data`, of which `held` are there. */
static tsr__sqlite_value read_value(uint64_t serial, tsr__sqlite_type type,
                                    const unsigned char *data, uint64_t size, uint64_t held) {
  tsr__sqlite_value value = {.type = type};
  if (type == TSR__SQLITE_TEXT) {
    value.text = (const char *)data;
    value.size_bytes = (size_t)(size < held ? size : held);
  } else if (size > held) {
    value.type = TSR__SQLITE_NULL;
  } else if (type == TSR__SQLITE_INTEGER) {
    value.integer = serial == 9 ? 1 : read_integer(data, (size_t)size);
  } else if (type == TSR__SQLITE_REAL) {
    int64_t bits = read_integer(data, 8);
    memcpy(&value.real, &bits, sizeof value.real);
  }
  return value;
}

/* Decode the wanted columns of the payload at `data`, of which `held` bytes are there, and visit the row. */
static int visit_payload(walk *w, uint32_t number, int64_t row, const unsigned char *data,
                         size_t held, tsr_error *error) {
  tsr__sqlite_value values[TSR__SQLITE_WANTED] = {{0}};
  const unsigned char *p = data, *end = data + held;
  uint64_t header;
  if (!read_varint(&p, end, &header) || header > held || header < (size_t)(p - data))
    return fail_damaged(number, w->db, "the header of a row", error);
  const unsigned char *types_end = data + header;
  uint64_t offset = header, serial;
  for (int column = 0; p < types_end && column <= w->last; column++) {
    tsr__sqlite_type type;
    if (!read_varint(&p, types_end, &serial))
      return fail_damaged(number, w->db, "the header of a row", error);
    uint64_t size = value_bytes(serial, &type), there = offset < held ? held - offset : 0;
    for (int i = 0; i < w->count; i++)
      if (w->columns[i] == column)
        values[i] = read_value(serial, type, data + (there ? offset : 0), size, there);
    offset = size > UINT64_MAX - offset ? UINT64_MAX : offset + size;
  }
  return w->visit(w->context, row, values, error);
}

/* How many bytes of a payload are on the leaf's page; if that is not all, the number of a page follows. */
static size_t local_bytes(const tsr__sqlite *db, uint64_t size) {
  size_t usable = db->usable_bytes, most = usable - 35;
  if (size <= most) return (size_t)size;
  size_t least = (usable - 12) * 32 / 255 - 23;
  size_t local = least + (size_t)((size - least) % (usable - 4));
  return local > most ? least : local;
}

/* Visit the row in a leaf's cell, which is at `at`, its number `row` has been read. */
static int visit_row(walk *w, const page *p, uint64_t size, int64_t row, const unsigned char *at,
                     tsr_error *error) {
  size_t there = (size_t)(p->end - at), local = local_bytes(w->db, size);
  if (local > there || (local < size && there - local < 4))
    return fail_damaged(p->number, w->db, "a row beyond its page", error);
  if (local == size) return visit_payload(w, p->number, row, at, local, error);
  int status = gather(w, p->number, at, local, size, read_u32(at + local), error);
  if (status) return status;
  return visit_payload(w, p->number, row, (const unsigned char *)w->db->row.data, w->db->row.size,
                       error);
}

/* The size and the number of the row in a leaf's cell; `*at` is where its payload begins. */
static int read_leaf(walk *w, const page *p, uint32_t index, uint64_t *size, int64_t *row,
                     const unsigned char **at, tsr_error *error) {
  uint64_t number;
  *at = cell_at(p, index);
  if (!*at || !read_varint(at, p->end, size) || !read_varint(at, p->end, &number))
    return fail_damaged(p->number, w->db, "a cell outside its page", error);
  *row = (int64_t)number;
  return 0;
}

/* Rows of a page do not overlap, so their sizes add up to no more than its own. In a damaged file they may, and each
 * could then be as large as the page. */
static int visit_leaf(walk *w, uint32_t number, uint32_t count, tsr_error *error) {
  size_t left = w->db->page_bytes;
  int status = 0;
  for (uint32_t i = 0; i < count && !status; i++) {
    page p;
    uint64_t size = 0;
    int64_t row = 0;
    const unsigned char *at = NULL;
    status = get_page(w, number, &p, error);
    if (!status) status = read_leaf(w, &p, i, &size, &row, &at, error);
    if (status) break;
    size_t held = local_bytes(w->db, size);
    if (held > left) return fail_damaged(number, w->db, "rows that overlap", error);
    left -= held;
    status = visit_row(w, &p, size, row, at, error);
  }
  return status;
}

static int fail_deep(const walk *w, uint32_t number, tsr_error *error) {
  return fail_damaged(number, w->db, "a tree that is too deep", error);
}

/* Enter a child, which is visited at once if it is a leaf, and else becomes the deepest level. */
static int descend(walk *w, uint32_t number, tsr_error *error) {
  page p;
  int status = enter_page(w, number, &p, error);
  if (status) return status;
  if (p.is_leaf) return visit_leaf(w, number, p.count, error);
  if (w->depth == DEPTH_MAX) return fail_deep(w, number, error);
  w->levels[w->depth].page = number;
  w->levels[w->depth++].cell = 0;
  return 0;
}

static walk start(tsr__sqlite *db, const int *columns, int count, tsr__sqlite_visit *visit,
                  void *context) {
  assert(count <= TSR__SQLITE_WANTED);
  walk w = {.db = db,
            .pages_left = db->page_count,
            .columns = columns,
            .count = count,
            .last = -1,
            .visit = visit,
            .context = context};
  for (int i = 0; i < count; i++)
    if (columns[i] > w.last) w.last = columns[i];
  return w;
}

static int scan_root(tsr__sqlite *db, uint32_t root, const int *columns, int count,
                     tsr__sqlite_visit *visit, void *context, tsr_error *error) {
  walk w = start(db, columns, count, visit, context);
  int status = descend(&w, root, error);
  while (!status && w.depth) {
    uint32_t number = w.levels[w.depth - 1].page, cell = w.levels[w.depth - 1].cell++;
    page p;
    uint32_t child;
    int64_t key;
    status = get_page(&w, number, &p, error);
    if (status) break;
    child = p.right;
    if (cell < p.count && !read_interior(&p, cell, &child, &key))
      return fail_damaged(number, db, "a cell outside its page", error);
    if (cell >= p.count) w.depth--; /* the right child is the last */
    status = descend(&w, child, error);
  }
  return status;
}

/* The wanted columns with the row's number put in: a column that is declared as it is stored as NULL. */
typedef struct keyed {
  const tsr__sqlite_table *table;
  const int *columns;
  int count;
  tsr__sqlite_visit *visit;
  void *context;
} keyed;

static int visit_keyed(void *context, int64_t row, const tsr__sqlite_value *values,
                       tsr_error *error) {
  const keyed *k = context;
  tsr__sqlite_value own[TSR__SQLITE_WANTED];
  if (k->count) memcpy(own, values, (size_t)k->count * sizeof *own);
  for (int i = 0; i < k->count; i++)
    if (k->columns[i] >= 0 && k->columns[i] == k->table->key)
      own[i] = (tsr__sqlite_value){.type = TSR__SQLITE_INTEGER, .integer = row};
  return k->visit(k->context, row, own, error);
}

int tsr__sqlite_scan(tsr__sqlite *db, const tsr__sqlite_table *table, const int *columns, int count,
                     tsr__sqlite_visit *visit, void *context, tsr_error *error) {
  keyed k = {table, columns, count, visit, context};
  return scan_root(db, table->root, columns, count, visit_keyed, &k, error);
}

/* The first cell whose row number is at least `row`; `count` if all are smaller. */
static int find_cell(walk *w, const page *p, int64_t row, uint32_t *index, uint32_t *child,
                     tsr_error *error) {
  uint32_t low = 0, high = p->count;
  *child = p->right;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2, left = 0;
    int64_t key = 0;
    uint64_t size;
    const unsigned char *at;
    int status = 0;
    if (p->is_leaf)
      status = read_leaf(w, p, middle, &size, &key, &at, error);
    else if (!read_interior(p, middle, &left, &key))
      status = fail_damaged(p->number, w->db, "a cell outside its page", error);
    if (status) return status;
    if (key < row) {
      low = middle + 1;
    } else {
      high = middle;
      *child = left;
    }
  }
  *index = low;
  return 0;
}

int tsr__sqlite_seek(tsr__sqlite *db, const tsr__sqlite_table *table, int64_t row,
                     const int *columns, int count, tsr__sqlite_visit *visit, void *context,
                     tsr_error *error) {
  keyed k = {table, columns, count, visit, context};
  walk w = start(db, columns, count, visit_keyed, &k);
  uint32_t number = table->root;
  for (int depth = 0; depth < DEPTH_MAX; depth++) {
    page p;
    uint32_t index = 0, child = 0;
    int status = enter_page(&w, number, &p, error);
    if (!status) status = find_cell(&w, &p, row, &index, &child, error);
    if (status) return status;
    if (p.is_leaf) {
      uint64_t size = 0;
      int64_t found = 0;
      const unsigned char *at = NULL;
      if (index == p.count) return 0;
      status = read_leaf(&w, &p, index, &size, &found, &at, error);
      if (status || found != row) return status;
      return visit_row(&w, &p, size, found, at, error);
    }
    number = child;
  }
  return fail_deep(&w, number, error);
}

/* ---- the schema ---- */

/* A word of a CREATE TABLE statement: a name, a quoted name, or one other character. */
typedef struct word {
  const char *text;
  size_t size;
  bool is_quoted;
} word;

static bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '$' || (unsigned char)c >= 0x80;
}

/* Past blanks and comments. */
static const char *skip_blanks(const char *p, const char *end) {
  for (;;) {
    while (p < end && (*p == ' ' || (*p >= '\t' && *p <= '\r'))) p++;
    if (end - p >= 2 && p[0] == '-' && p[1] == '-') {
      while (p < end && *p != '\n') p++;
    } else if (end - p >= 2 && p[0] == '/' && p[1] == '*') {
      p += 2;
      while (p < end && !(end - p >= 2 && p[0] == '*' && p[1] == '/')) p++;
      p = end - p >= 2 ? p + 2 : end;
    } else {
      return p;
    }
  }
}

/* The next word, or an empty one at the end. */
static word next_word(const char **at, const char *end) {
  const char *p = skip_blanks(*at, end);
  word w = {.text = p};
  if (p < end && (*p == '"' || *p == '`' || *p == '\'' || *p == '[')) {
    char close = *p == '[' ? ']' : *p;
    w = (word){.text = ++p, .is_quoted = true};
    while (p < end && *p != close) p++;
    w.size = (size_t)(p - w.text);
    if (p < end) p++;
  } else if (p < end && is_name(*p)) {
    while (p < end && is_name(*p)) p++;
    w.size = (size_t)(p - w.text);
  } else if (p < end) {
    p++;
    w.size = 1;
  }
  *at = p;
  return w;
}

static bool is_same(const char *a, size_t size, const char *b) {
  if (strlen(b) != size) return false;
  for (size_t i = 0; i < size; i++) {
    char x = a[i], y = b[i];
    if (x >= 'A' && x <= 'Z') x = (char)(x + 32);
    if (y >= 'A' && y <= 'Z') y = (char)(y + 32);
    if (x != y) return false;
  }
  return true;
}

static bool is_word(word w, const char *text) {
  return !w.is_quoted && is_same(w.text, w.size, text);
}

/* Does this word begin a constraint of the table instead of a column? */
static bool is_constraint(word w) {
  return is_word(w, "constraint") || is_word(w, "primary") || is_word(w, "unique") ||
         is_word(w, "check") || is_word(w, "foreign");
}

/* One column, or constraint, up to the comma or parenthesis that ends it: `*ended` is whether the list ends. */
static void read_column(const char **p, const char *end, tsr__sqlite_table *table, bool *ended) {
  word name = next_word(p, end), type = {0};
  bool is_first = true, is_primary = false;
  int depth = 0;
  *ended = false;
  for (;;) {
    word w = next_word(p, end);
    if (!w.size && !w.is_quoted) *ended = true;
    if (*ended) break;
    if (is_word(w, "(")) depth++;
    if (is_word(w, ")") && depth-- == 0) *ended = true;
    if (*ended || (depth == 0 && is_word(w, ","))) break;
    if (is_first) type = w;
    is_first = false;
    is_primary = is_primary || (depth == 0 && is_word(w, "primary"));
  }
  if (is_constraint(name) || table->count == TSR__SQLITE_COLUMNS) return;
  char *own = table->columns[table->count];
  if (name.size < sizeof *table->columns) memcpy(own, name.text, name.size);
  if (is_primary && is_same(type.text, type.size, "integer")) table->key = table->count;
  table->count++;
}

/* The columns of a statement `CREATE TABLE name (column type ..., ...) ...`. False for any other statement. */
static bool read_statement(const char *p, const char *end, tsr__sqlite_table *table) {
  word w;
  do {
    w = next_word(&p, end);
  } while (w.size && !is_word(w, "("));
  if (!w.size) return false;
  for (bool ended = false; !ended;) {
    read_column(&p, end, table, &ended);
    if (p == end && !ended) return false;
  }
  for (w = next_word(&p, end); w.size; w = next_word(&p, end))
    if (is_word(w, "without")) return false; /* another kind of tree */
  return table->count > 0;
}

typedef struct search {
  tsr__sqlite_table *table;
  bool found;
} search;

static int match_table(void *context, int64_t row, const tsr__sqlite_value *values,
                       tsr_error *error) {
  search *s = context;
  (void)row, (void)error;
  const tsr__sqlite_value *type = &values[0], *name = &values[1], *root = &values[2],
                          *statement = &values[3];
  if (s->found || type->type != TSR__SQLITE_TEXT ||
      !is_same(type->text, type->size_bytes, "table") || name->type != TSR__SQLITE_TEXT ||
      !is_same(name->text, name->size_bytes, s->table->name) ||
      statement->type != TSR__SQLITE_TEXT || root->type != TSR__SQLITE_INTEGER ||
      root->integer <= 0 || root->integer > UINT32_MAX)
    return 0;
  s->table->root = (uint32_t)root->integer;
  s->found = read_statement(statement->text, statement->text + statement->size_bytes, s->table);
  return 0;
}

int tsr__sqlite_find(tsr__sqlite *db, const char *name, tsr__sqlite_table *table, bool *found,
                     tsr_error *error) {
  static const int columns[] = {0, 1, 3, 4}; /* of sqlite_schema: type, name, rootpage, sql */
  *table = (tsr__sqlite_table){.name = name, .key = -1};
  search s = {.table = table};
  int status = scan_root(db, 1, columns, 4, match_table, &s, error);
  *found = !status && s.found;
  return status;
}

int tsr__sqlite_column(const tsr__sqlite_table *table, const char *name) {
  for (int i = 0; i < table->count; i++)
    if (is_same(table->columns[i], strlen(table->columns[i]), name)) return i;
  return -1;
}
