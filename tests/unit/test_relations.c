/* Tests of src/reader/tables/: what relations are declared as, and scans with conditions and orders. What values they have,
 * tests/golden/test_sql.py compares with a computation from the file. */
#include "tessera/unstable/relations.h"

#include <string.h>

#include "tessera/tessera.h"
#include "training_trace.h"

typedef struct open_study {
  tsr_snapshot *snapshot;
  tsr_study *study;
  tsr_relations *all;
} open_study;

static open_study open_run(void) {
  open_study o = {.snapshot = training_snapshot(&(training){.layers = 3, .steps = 4})};
  assert_int_equal(tsr_study_new(o.snapshot, &o.study, NULL), 0);
  assert_int_equal(tsr_relations_new(o.study, NULL, &o.all, NULL), 0);
  return o;
}

static void close_run(open_study *o) {
  tsr_relations_free(o->all);
  tsr_study_free(o->study);
  tsr_snapshot_free(o->snapshot);
}

static size_t column_of(size_t relation, const char *name) {
  const tsr_relation *about = tsr_relation_at(relation);
  size_t i = 0;
  while (i < about->column_count && strcmp(about->columns[i].name, name) != 0) i++;
  assert_true(i < about->column_count);
  return i;
}

static tsr_relation_cursor *scan(const open_study *o, size_t relation,
                                 const tsr_relation_scan *how) {
  tsr_relation_cursor *cursor = NULL;
  assert_int_equal(tsr_relation_cursor_new(o->all, relation, &cursor, NULL), 0);
  assert_int_equal(tsr_relation_start(cursor, how, NULL), 0);
  return cursor;
}

static tsr_relation_value value_of(tsr_relation_cursor *cursor, size_t column) {
  tsr_relation_value value;
  assert_int_equal(tsr_relation_value_at(cursor, column, &value), 0);
  return value;
}

static size_t count_rows(const open_study *o, size_t relation, const tsr_relation_scan *how) {
  size_t count = 0;
  tsr_relation_cursor *cursor = scan(o, relation, how);
  for (; !tsr_relation_at_end(cursor); tsr_relation_next(cursor)) count++;
  tsr_relation_cursor_free(cursor);
  return count;
}

/* ---- Declarations ---- */

static void names_are_found(void **state) {
  (void)state;
  for (size_t i = 0; i < tsr_relation_count(); i++) {
    const tsr_relation *about = tsr_relation_at(i);
    assert_int_equal(tsr_relation_find(about->name), i);
    assert_in_range(about->column_count, 1, TSR_RELATION_COLUMNS);
    for (size_t c = 0; c < about->column_count; c++)
      assert_int_equal(column_of(i, about->columns[c].name), c); /* each once */
  }
  assert_int_equal(tsr_relation_find("nowhere"), tsr_relation_count());
}

static void a_snapshot_has_no_ranks(void **state) {
  (void)state;
  open_study o = open_run();
  assert_false(tsr_relations_have(o.all, tsr_relation_find("ranks")));
  assert_true(tsr_relations_have(o.all, tsr_relation_find("events")));
  close_run(&o);
}

/* ---- Scans ---- */

static void all_values_can_be_read(void **state) {
  (void)state;
  open_study o = open_run();
  for (size_t i = 0; i < tsr_relation_count(); i++) {
    if (!tsr_relations_have(o.all, i)) continue;
    tsr_relation_cursor *cursor = scan(&o, i, &(tsr_relation_scan){.wanted = UINT64_MAX});
    for (; !tsr_relation_at_end(cursor); tsr_relation_next(cursor))
      for (size_t c = 0; c < tsr_relation_at(i)->column_count; c++) (void)value_of(cursor, c);
    tsr_relation_cursor_free(cursor);
  }
  close_run(&o);
}

/* With a condition a scan has exactly the rows that meet it, for columns that it compares itself. */
static void conditions_select(void **state) {
  (void)state;
  open_study o = open_run();
  size_t events = tsr_relation_find("events"),
         all = count_rows(&o, events, &(tsr_relation_scan){.wanted = 0});
  const char *names[] = {"event", "size_bytes", "stack", "time_us", "allocated_bytes", "step"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    size_t column = column_of(events, names[i]);
    tsr_relation_cursor *cursor = scan(&o, events, &(tsr_relation_scan){.wanted = UINT64_MAX});
    for (size_t skip = 0; skip < all / 2; skip++) tsr_relation_next(cursor);
    tsr_relation_value middle = value_of(cursor, column);
    tsr_relation_cursor_free(cursor);
    const tsr_relation_condition same = {column, false, middle.integer, middle.integer, {NULL, 0}},
                                 below = {column, false, INT64_MIN, middle.integer - 1, {NULL, 0}},
                                 above = {column, false, middle.integer + 1, INT64_MAX, {NULL, 0}},
                                 any = {column, false, INT64_MIN, INT64_MAX, {NULL, 0}};
    size_t parts = 0;
    for (size_t c = 0; c < 3; c++) {
      const tsr_relation_condition *one[] = {&same, &below, &above};
      parts +=
          count_rows(&o, events, &(tsr_relation_scan){.conditions = one[c], .condition_count = 1});
    }
    assert_int_equal(
        parts,
        count_rows(&o, events, &(tsr_relation_scan){.conditions = &any, .condition_count = 1}));
  }
  close_run(&o);
}

static void texts_select(void **state) {
  (void)state;
  open_study o = open_run();
  size_t events = tsr_relation_find("events"), action = column_of(events, "action"), sum = 0;
  const char *words[] = {"alloc", "free_requested", "free_completed", "segment_alloc", "nothing"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    const tsr_relation_condition is = {action, true, 0, 0, {words[i], strlen(words[i])}};
    sum += count_rows(&o, events, &(tsr_relation_scan){.conditions = &is, .condition_count = 1});
  }
  assert_int_equal(sum, count_rows(&o, events, &(tsr_relation_scan){.wanted = 0}));
  close_run(&o);
}

static int compare(tsr_text a, tsr_text b) {
  size_t common = a.size_bytes < b.size_bytes ? a.size_bytes : b.size_bytes;
  int difference = memcmp(a.data, b.data, common);
  return difference ? difference : (a.size_bytes > b.size_bytes) - (a.size_bytes < b.size_bytes);
}

/* Texts ascend by their bytes, and every row is there. */
static void orders_ascend(void **state) {
  (void)state;
  open_study o = open_run();
  size_t lives = tsr_relation_find("allocations"), count = 0;
  const char *names[] = {"category", "place", "module", "phase"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    size_t column = column_of(lives, names[i]);
    tsr_relation_cursor *cursor = scan(
        &o, lives,
        &(tsr_relation_scan){.wanted = UINT64_C(1) << column, .is_ordered = true, .order = column});
    tsr_text before = {"", 0};
    for (count = 0; !tsr_relation_at_end(cursor); tsr_relation_next(cursor), count++) {
      tsr_relation_value value = value_of(cursor, column);
      assert_true(value.is_lasting && compare(before, value.text) <= 0);
      before = value.text;
    }
    tsr_relation_cursor_free(cursor);
    assert_int_equal(count, count_rows(&o, lives, &(tsr_relation_scan){.wanted = 0}));
  }
  close_run(&o);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(names_are_found),        cmocka_unit_test(a_snapshot_has_no_ranks),
      cmocka_unit_test(all_values_can_be_read), cmocka_unit_test(conditions_select),
      cmocka_unit_test(texts_select),           cmocka_unit_test(orders_ascend),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
