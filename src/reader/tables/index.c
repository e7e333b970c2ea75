/* index.c - the rows of a part by the value of a column that has few: what makes `WHERE stack = 3` fast, and GROUP BY category
 * possible without sorting.
 *
 * A counting sort: key 0 is NULL, key k the code or id k - 1. Of a domain of texts, a scan that is ordered goes through the keys
 * in the order of their texts (tsr__domain_order), so that the index itself needs no texts. */
#include <assert.h>

#include "base/memory.h"
#include "tables/relations.h"

/* Relations that have columns with an index. */
static size_t slot_of(size_t relation) {
  assert(relation == TSR__EVENTS || relation == TSR__ALLOCATIONS);
  return relation == TSR__ALLOCATIONS;
}

uint32_t tsr__relation_key_count(const tsr_relations *all, size_t relation, size_t column) {
  tsr__domain domain = tsr__relation_extras(relation)[column].domain;
  /* A column of integers with an index is one of stacks. */
  uint32_t values =
      domain ? tsr__domain_size(all, domain) : tsr_snapshot_stack_count(all->snapshot);
  return values + 1;
}

static uint32_t key_at(const tsr_relations *all, size_t relation, size_t part, size_t row,
                       size_t column) {
  tsr__relation_cell cell = tsr__relation_cell_at(all, relation, part, row, column, NULL);
  return cell.form == TSR__FORM_NULL ? 0 : (uint32_t)cell.integer + 1;
}

static bool fill(const tsr_relations *all, size_t relation, size_t part, size_t column,
                 tsr__row_index *out) {
  size_t count = tsr__relation_rows(all, relation, part);
  out->key_count = tsr__relation_key_count(all, relation, column);
  out->starts = TSR__NEW_ARRAY(uint32_t, (size_t)out->key_count + 2);
  out->rows = TSR__NEW_ARRAY(uint32_t, count);
  if (!out->starts || !out->rows) return false;
  uint32_t *next = out->starts + 1; /* becomes the starts while rows are placed */
  for (size_t row = 0; row < count; row++) {
    uint32_t key = key_at(all, relation, part, row, column);
    assert(key < out->key_count);
    next[key + 1]++;
  }
  for (uint32_t key = 0; key < out->key_count; key++) next[key + 1] += next[key];
  for (size_t row = 0; row < count; row++)
    out->rows[next[key_at(all, relation, part, row, column)]++] = (uint32_t)row;
  return true;
}

const tsr__row_index *tsr__relation_index(tsr_relations *all, size_t relation, size_t part,
                                          size_t column) {
  tsr__row_index *index = &all->devices[part].indexes[slot_of(relation)][column];
  if (index->rows) return index;
  tsr__row_index made = {.key_count = 0};
  if (!fill(all, relation, part, column, &made)) {
    tsr__free(made.starts);
    tsr__free(made.rows);
    return NULL;
  }
  *index = made;
  return index;
}

void tsr__relation_indexes_release(tsr__relation_device *device) {
  for (size_t slot = 0; slot < 2; slot++)
    for (size_t column = 0; column < TSR_RELATION_COLUMNS; column++) {
      tsr__free(device->indexes[slot][column].starts);
      tsr__free(device->indexes[slot][column].rows);
    }
}
