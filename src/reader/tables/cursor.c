/* cursor.c - a scan: the rows of a relation that may meet its conditions, in a known order.
 *
 * A scan goes through *groups*. Without an index a group is a part, and its rows are a range of positions. With one, a group is a
 * part and a key, and its rows are those of the index, clipped to that range:
 *
 *   conditions   part = 0, position >= 10      column with an index = 'activation'     ordered by that column
 *   groups       part 0                        (part 0, key), (part 1, key), ...       every key, in the order of values
 *   rows         10, 11, 12, ...               ascending, in each                      ascending, in each
 *
 * A condition that no group takes care of is compared with each row. The caller of SQL checks all again: a scan only has to leave
 * out no row that meets them. */
#include <assert.h>

#include "base/memory.h"
#include "tables/columns.h"
#include "tables/relations.h"

typedef struct check {
  size_t column;
  int64_t low, high;
} check;

typedef struct range {
  size_t first, end;
} range;

struct tsr_relation_cursor {
  tsr_relations *all;
  size_t relation;
  tsr__buffer scratch;

  TSR__VECTOR(check) checks;     /* of each row */
  TSR__VECTOR(check) narrowings; /* of the range of positions: columns with access ROW and SORTED */
  check part_check;              /* of the number of a device */
  range parts, keys;             /* keys: places in the order of values */
  bool has_keys, is_by_part;
  bool has_one_key; /* keys.first is the key itself */
  size_t key_column;
  const uint32_t *key_order; /* of a domain; NULL: keys are in the order of their numbers */

  size_t part, key; /* the group */
  const uint32_t *rows;
  size_t at, end; /* of `rows`, or positions if that is NULL */
  size_t row;
  bool is_at_end;
};

int tsr_relation_cursor_new(tsr_relations *relations, size_t relation, tsr_relation_cursor **out,
                            tsr_error *error) {
  assert(relation < TSR__RELATION_COUNT);
  tsr_relation_cursor *cursor = TSR__NEW(tsr_relation_cursor);
  if (!cursor) return tsr__fail_memory(error);
  cursor->all = relations;
  cursor->relation = relation;
  cursor->is_at_end = true;
  *out = cursor;
  return 0;
}

void tsr_relation_cursor_free(tsr_relation_cursor *cursor) {
  if (!cursor) return;
  tsr__buffer_release(&cursor->scratch);
  TSR__VECTOR_FREE(&cursor->checks);
  TSR__VECTOR_FREE(&cursor->narrowings);
  tsr__free(cursor);
}

/* ---- Conditions ---- */

/* Whether the relation's parts are what a column with access PART counts. */
static bool is_part_its_number(const tsr_relation_cursor *c) {
  return c->relation == TSR__FRAMES || c->relation == TSR__CHANGES;
}

static void narrow_parts(tsr_relation_cursor *c, const check *condition) {
  if (!is_part_its_number(c)) {
    if (condition->low > c->part_check.low) c->part_check.low = condition->low;
    if (condition->high < c->part_check.high) c->part_check.high = condition->high;
    return;
  }
  int64_t last = (int64_t)c->parts.end - 1;
  if (condition->low > (int64_t)c->parts.first)
    c->parts.first = condition->low > last ? c->parts.end : (size_t)condition->low;
  if (condition->high < last) c->parts.end = condition->high < 0 ? 0 : (size_t)condition->high + 1;
  if (c->parts.first > c->parts.end) c->parts.first = c->parts.end;
}

static uint32_t key_of(const tsr_relation_cursor *c, const check *condition) {
  uint32_t count = tsr__relation_key_count(c->all, c->relation, condition->column);
  bool is_one = condition->low == condition->high && condition->low >= 0 &&
                condition->low < (int64_t)count - 1;
  return is_one ? (uint32_t)condition->low + 1 : TSR_NONE;
}

static bool add_condition(tsr_relation_cursor *c, const check *condition) {
  uint32_t key;
  if (condition->low > condition->high) {
    c->parts.end = c->parts.first;
    return true;
  }
  switch (tsr_relation_access_of(c->all, c->relation, condition->column)) {
  case TSR_ACCESS_NONE: return true;
  case TSR_ACCESS_PART: narrow_parts(c, condition); return true;
  case TSR_ACCESS_ROW:
  case TSR_ACCESS_SORTED: return TSR__VECTOR_PUSH(&c->narrowings, *condition);
  case TSR_ACCESS_INDEX:
    key = c->has_keys ? TSR_NONE : key_of(c, condition);
    if (key == TSR_NONE) break;
    c->has_keys = c->has_one_key = true;
    c->key_column = condition->column;
    c->keys = (range){key, (size_t)key + 1};
    return true;
  default: break;
  }
  return TSR__VECTOR_PUSH(&c->checks, *condition);
}

/* A text becomes the code that stands for it; `*is_usable` is false if the column has no codes. */
static int read_condition(tsr_relation_cursor *c, const tsr_relation_condition *given, check *out,
                          bool *is_usable) {
  tsr__domain domain = tsr__relation_extras(c->relation)[given->column].domain;
  uint32_t code;
  *out = (check){given->column, given->low, given->high};
  *is_usable = given->is_text == (domain != TSR__DOMAIN_NONE);
  if (!*is_usable || !given->is_text) return 0;
  int status = tsr__domain_find(c->all, domain, given->text, &code);
  if (status) return status;
  /* No row has a text that does not occur: a range that is empty. */
  out->low = code == TSR_NONE ? 1 : code;
  out->high = code == TSR_NONE ? 0 : code;
  return 0;
}

static int add_conditions(tsr_relation_cursor *c, const tsr_relation_scan *scan) {
  for (size_t i = 0; i < scan->condition_count; i++) {
    check condition;
    bool is_usable;
    int status = read_condition(c, &scan->conditions[i], &condition, &is_usable);
    if (status) return status;
    if (is_usable && !add_condition(c, &condition)) return TSR_ERROR_MEMORY;
  }
  return 0;
}

/* ---- Groups ---- */

static tsr__relation_cell cell_of(const tsr_relation_cursor *c, size_t part, size_t row,
                                  size_t column) {
  return tsr__relation_cell_at(c->all, c->relation, part, row, column, NULL);
}

/* The first position of the part at which the column is not below `value`. */
static size_t bisect(const tsr_relation_cursor *c, size_t part, size_t column, int64_t value,
                     range within) {
  while (within.first < within.end) {
    size_t middle = within.first + (within.end - within.first) / 2;
    if (cell_of(c, part, middle, column).integer < value)
      within.first = middle + 1;
    else
      within.end = middle;
  }
  return within.first;
}

/* The positions of a part that the narrowings leave. */
static range positions_of(const tsr_relation_cursor *c, size_t part) {
  range all = {0, tsr__relation_rows(c->all, c->relation, part)};
  for (size_t i = 0; i < c->narrowings.count; i++) {
    const check *n = &c->narrowings.items[i];
    all.first = bisect(c, part, n->column, n->low, all);
    if (n->high < INT64_MAX) all.end = bisect(c, part, n->column, n->high + 1, all);
  }
  return all;
}

/* A device that is not a number is above all numbers, as SQL compares. */
static bool is_part_wanted(const tsr_relation_cursor *c) {
  if (!tsr__relation_has_devices(c->relation)) return true;
  uint32_t device = c->all->devices[c->part].device;
  if (device >= TSR_DEVICE_CPU) return c->part_check.high == INT64_MAX;
  return c->part_check.low <= device && device <= c->part_check.high;
}

static uint32_t key_at(const tsr_relation_cursor *c) {
  if (c->has_one_key || !c->key_order || !c->key) return (uint32_t)c->key;
  return c->key_order[c->key - 1] + 1;
}

/* The first of the group's rows that is not before a position. */
static size_t place_of(const tsr_relation_cursor *c, size_t position) {
  size_t low = c->at, high = c->end;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (c->rows[middle] < position)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

static void enter_group(tsr_relation_cursor *c) {
  c->at = c->end = 0;
  c->rows = NULL;
  if (!is_part_wanted(c)) return;
  range positions = positions_of(c, c->part);
  c->at = positions.first;
  c->end = positions.end;
  if (!c->has_keys) return;
  const tsr__row_index *index =
      tsr__relation_index(c->all, c->relation, c->part, c->key_column); /* exists */
  uint32_t key = key_at(c);
  c->rows = index->rows;
  c->at = index->starts[key];
  c->end = index->starts[key + 1];
  if (!c->narrowings.count) return;
  c->at = place_of(c, positions.first);
  c->end = place_of(c, positions.end);
}

/* False after the last. */
static bool next_group(tsr_relation_cursor *c) {
  if (!c->has_keys) return ++c->part < c->parts.end;
  if (c->is_by_part) {
    if (++c->key < c->keys.end) return true;
    c->key = c->keys.first;
    return ++c->part < c->parts.end;
  }
  if (++c->part < c->parts.end) return true;
  c->part = c->parts.first;
  return ++c->key < c->keys.end;
}

static bool meets(const tsr_relation_cursor *c) {
  for (size_t i = 0; i < c->checks.count; i++) {
    const check *wanted = &c->checks.items[i];
    tsr__relation_cell cell = cell_of(c, c->part, c->row, wanted->column);
    if (cell.form == TSR__FORM_NULL || cell.integer < wanted->low || cell.integer > wanted->high)
      return false;
  }
  return true;
}

void tsr_relation_next(tsr_relation_cursor *c) {
  assert(!c->is_at_end);
  for (;;) {
    while (c->at < c->end) {
      c->row = c->rows ? c->rows[c->at] : c->at;
      c->at++;
      if (meets(c)) return;
    }
    c->is_at_end = !next_group(c);
    if (c->is_at_end) return;
    enter_group(c);
  }
}

/* ---- Start ---- */

static int order_by(tsr_relation_cursor *c, const tsr_relation_scan *scan) {
  tsr__domain domain = tsr__relation_extras(c->relation)[scan->order].domain;
  assert(tsr_relation_access_of(c->all, c->relation, scan->order) == TSR_ACCESS_INDEX);
  c->is_by_part = scan->is_by_part;
  /* Rows with one value of it are in order already; with one value of another column they are few, but not. */
  if (c->has_keys && c->key_column == scan->order) return 0;
  if (c->has_keys) {
    int64_t code = (int64_t)c->keys.first - 1;
    if (!TSR__VECTOR_PUSH(&c->checks, (check){c->key_column, code, code})) return TSR_ERROR_MEMORY;
  }
  c->has_keys = true;
  c->has_one_key = false;
  c->key_column = scan->order;
  c->keys = (range){0, tsr__relation_key_count(c->all, c->relation, scan->order)};
  c->key_order = domain ? tsr__domain_order(c->all, domain) : NULL;
  return domain && !c->key_order ? TSR_ERROR_MEMORY : 0;
}

static unsigned needs_of(const tsr_relation_cursor *c, const tsr_relation_scan *scan) {
  const tsr_relation *relation = tsr_relation_at(c->relation);
  const tsr__relation_extra *extras = tsr__relation_extras(c->relation);
  unsigned needs = scan->is_ordered ? extras[scan->order].needs : 0;
  for (size_t i = 0; i < relation->column_count; i++) {
    bool is_wanted = scan->wanted >> i & 1 || relation->columns[i].access == TSR_ACCESS_ROW;
    if (is_wanted) needs |= extras[i].needs;
  }
  for (size_t i = 0; i < scan->condition_count; i++)
    needs |= extras[scan->conditions[i].column].needs;
  return needs;
}

static int make_indexes(const tsr_relation_cursor *c) {
  for (size_t part = c->parts.first; c->has_keys && part < c->parts.end; part++)
    if (!tsr__relation_index(c->all, c->relation, part, c->key_column)) return TSR_ERROR_MEMORY;
  return 0;
}

int tsr_relation_start(tsr_relation_cursor *c, const tsr_relation_scan *scan, tsr_error *error) {
  c->checks.count = c->narrowings.count = 0;
  c->has_keys = c->has_one_key = c->is_by_part = false;
  c->key_order = NULL;
  c->part_check = (check){.low = INT64_MIN, .high = INT64_MAX};
  c->is_at_end = true;
  int status = tsr__relations_derive(c->all, needs_of(c, scan), error);
  if (status) return status;
  c->parts = (range){0, tsr__relation_parts(c->all, c->relation)};
  status = add_conditions(c, scan);
  if (!status && scan->is_ordered) status = order_by(c, scan);
  if (!status) status = make_indexes(c);
  if (status) return tsr__fail_memory(error);
  if (c->parts.first == c->parts.end || (c->has_keys && c->keys.first == c->keys.end)) return 0;
  c->is_at_end = false;
  c->part = c->parts.first;
  c->key = c->keys.first;
  enter_group(c);
  tsr_relation_next(c);
  return 0;
}

/* ---- Values ---- */

bool tsr_relation_at_end(const tsr_relation_cursor *cursor) {
  return cursor->is_at_end;
}

int64_t tsr_relation_row_id(const tsr_relation_cursor *cursor) {
  return (int64_t)((uint64_t)cursor->part << 32 | cursor->row);
}

int tsr_relation_value_at(tsr_relation_cursor *c, size_t column, tsr_relation_value *out) {
  assert(!c->is_at_end);
  c->scratch.size = 0;
  c->scratch.failed = false;
  tsr__relation_cell cell =
      tsr__relation_cell_at(c->all, c->relation, c->part, c->row, column, &c->scratch);
  if (c->scratch.failed) return TSR_ERROR_MEMORY;
  *out = (tsr_relation_value){.kind = TSR_VALUE_TEXT, .is_lasting = true, .text = cell.text};
  switch (cell.form) {
  case TSR__FORM_NULL: out->kind = TSR_VALUE_NULL; break;
  case TSR__FORM_INTEGER:
    out->kind = TSR_VALUE_INTEGER;
    out->integer = cell.integer;
    break;
  case TSR__FORM_CODE:
    out->text = tsr__domain_text(c->all, tsr__relation_extras(c->relation)[column].domain,
                                 (uint32_t)cell.integer);
    break;
  case TSR__FORM_TEXT: break;
  case TSR__FORM_SCRATCH:
    out->text = (tsr_text){c->scratch.data, c->scratch.size};
    out->is_lasting = false;
    break;
  }
  return 0;
}
