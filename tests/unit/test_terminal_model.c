/* Tests of cmd/terminal without a terminal: what the index of a trace says is compared with a sum over all of it, and keys are
 * pressed on a model whose picture is read as cells. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../cmd/terminal/draw.h"
#include "model_trace.h"
#include "study_support.h"
#include "tessera/tessera.h"
#include "tessera/unstable/unstable.h"

enum { ROWS = 24, COLUMNS = 80 };

/* A trace, and all that is made of it. */
typedef struct fixture {
  model_trace trace;
  tsr_snapshot *snapshot;
  tsr_view *view;
  tsr_stack_naming *naming;
  terminal_model model;
  terminal_grid grid;
} fixture;

static const terminal_traits plain = {.is_utf8 = false},
                             colored = {.is_utf8 = true, .has_color = true};

static void make(fixture *f, uint32_t seed, uint32_t operations) {
  *f = (fixture){.grid.traits = &plain};
  model_random(
      &f->trace,
      &(model_program){.operations = operations, .seed = seed, .streams = 2, .wait_one_in = 5});
  f->snapshot = model_snapshot(&f->trace, 1, NULL);
  assert_int_equal(tsr_view_compute(test_study(f->snapshot), NULL, NULL, &f->view, NULL), 0);
  assert_int_equal(tsr_stack_naming_new(f->snapshot, &f->naming, NULL), 0);
  terminal_file file = {"a.pickle", f->snapshot, f->view, f->naming};
  assert_int_equal(terminal_model_open(&f->model, &file, 1, "category", 0), 0);
}

static void release(fixture *f) {
  terminal_grid_release(&f->grid);
  terminal_model_release(&f->model);
  tsr_stack_naming_free(f->naming);
  tsr_view_free(f->view);
  tsr_snapshot_free(f->snapshot);
  model_release(&f->trace);
}

static bool is_live(const tsr_view_device *d, size_t row, uint32_t moment) {
  return d->born[row] <= moment && moment < d->died[row];
}

/* ---- history ---- */

static void check_moment(const terminal_history *h, const terminal_sums *sums,
                         const tsr_totals *truth, uint32_t moment) {
  const tsr_view_device *d = h->device;
  uint64_t bytes[TSR_VIEW_GROUPS_MAX], expected[TSR_VIEW_GROUPS_MAX] = {0};
  terminal_rows rows = {0};
  size_t live = 0;
  terminal_sums_at(sums, h, moment, bytes);
  assert_true(terminal_history_live(h, moment, &rows));
  for (size_t row = 0; row < d->allocation_count; row++) {
    if (!is_live(d, row, moment)) continue;
    assert_true(live < rows.count && rows.items[live] == row);
    live++;
    if (!sums->is_found || sums->is_found[row])
      expected[sums->grouping->group[row]] += d->requested_bytes[row];
  }
  assert_int_equal(live, rows.count);
  assert_memory_equal(bytes, expected, sizeof bytes);
  free(rows.items);
  if (!truth) return;
  assert_int_equal(h->allocated[moment], truth->allocated_bytes);
  assert_int_equal(terminal_history_reserved(h, moment), truth->reserved_bytes);
}

static void every_moment_is_that_of_the_model(void **state) {
  (void)state;
  for (uint32_t seed = 1; seed <= 4; seed++) {
    fixture f;
    make(&f, seed, 400 * seed);
    const terminal_track *t = &f.model.tracks[0];
    uint8_t *found = calloc(t->device->allocation_count + 1, 1);
    terminal_sums some;
    assert_non_null(found);
    for (size_t row = 0; row < t->device->allocation_count; row += 3) found[row] = 1;
    assert_true(terminal_sums_make(&some, &t->history, t->sums.grouping, found));
    for (uint32_t m = 0; m < t->history.moment_count; m++) {
      check_moment(&t->history, &t->sums, m ? &f.trace.events.items[m - 1].after : &(tsr_totals){0},
                   m);
      check_moment(&t->history, &some, NULL, m);
    }
    terminal_sums_release(&some);
    free(found);
    release(&f);
  }
}

static void ranges_have_their_first_highest_moment(void **state) {
  (void)state;
  fixture f;
  make(&f, 9, 1500);
  const terminal_history *h = &f.model.tracks[0].history;
  uint64_t random = 1;
  for (int i = 0; i < 500; i++) {
    random = random * UINT64_C(6364136223846793005) + 1;
    uint32_t from = (uint32_t)(random >> 33) % h->moment_count;
    random = random * UINT64_C(6364136223846793005) + 1;
    uint32_t to = from + 1 + (uint32_t)(random >> 33) % (h->moment_count - from), best = from;
    for (uint32_t m = from; m < to; m++)
      if (h->allocated[m] > h->allocated[best]) best = m;
    assert_int_equal(terminal_history_high(h, from, to), best);
  }
  assert_int_equal(terminal_history_high(h, 0, h->moment_count), h->device->peak);
  release(&f);
}

static void shares_add_up(void **state) {
  (void)state;
  fixture f;
  make(&f, 5, 800);
  terminal_track *t = &f.model.tracks[0];
  for (uint32_t m = 0; m < t->history.moment_count; m += 7) {
    terminal_shares shares;
    uint64_t bytes = 0, count = 0, groups[TSR_VIEW_GROUPS_MAX], all = 0;
    assert_int_equal(terminal_shares_make(f.snapshot, &t->history, &t->sums, m, &shares), 0);
    terminal_sums_at(&t->sums, &t->history, m, groups);
    for (size_t g = 0; g < TSR_VIEW_GROUPS_MAX; g++) all += groups[g];
    for (size_t i = 0; i < shares.count; i++) {
      bytes += shares.items[i].bytes;
      count += shares.items[i].count;
      if (i) assert_true(shares.items[i - 1].bytes >= shares.items[i].bytes);
    }
    assert_int_equal(bytes, shares.bytes);
    assert_int_equal(bytes, all);
    assert_int_equal(count, shares.allocations);
    terminal_changes none;
    assert_int_equal(terminal_changes_make((terminal_side){f.snapshot, &shares},
                                           (terminal_side){f.snapshot, &shares}, &none),
                     0);
    assert_int_equal(none.count, 0);
    terminal_changes_release(&none);
    terminal_shares_release(&shares);
  }
  release(&f);
}

/* ---- search ---- */

static size_t count_found(const fixture *f, const char *text) {
  const tsr_view_device *d = &f->view->devices[0];
  uint8_t *found = NULL;
  size_t count = 0;
  assert_int_equal(terminal_search(f->snapshot, d, text, &found), 0);
  for (size_t row = 0; found && row < d->allocation_count; row++) count += found[row];
  bool asks = found != NULL;
  free(found);
  return asks ? count : SIZE_MAX;
}

static size_t count_sizes(const fixture *f, uint64_t from, uint64_t to) {
  const tsr_view_device *d = &f->view->devices[0];
  size_t count = 0;
  for (size_t row = 0; row < d->allocation_count; row++)
    count += d->requested_bytes[row] >= from && d->requested_bytes[row] < to;
  return count;
}

static void sizes_words_and_alternatives_are_found(void **state) {
  (void)state;
  fixture f;
  make(&f, 3, 600);
  size_t all = f.view->devices[0].allocation_count;
  char address[40];
  assert_int_equal(count_found(&f, ""), SIZE_MAX);
  assert_int_equal(count_found(&f, " \t | | "), SIZE_MAX);
  assert_int_equal(count_found(&f, ">=0"), all);
  assert_int_equal(count_found(&f, ">1MiB"), count_sizes(&f, (1 << 20) + 1, UINT64_MAX));
  assert_int_equal(count_found(&f, ">=1mib <2M"), count_sizes(&f, 1 << 20, 2 << 20));
  assert_int_equal(count_found(&f, "<=1MB"), count_sizes(&f, 0, 1000001));
  assert_int_equal(count_found(&f, "<1k | >=1k"), all);
  assert_int_equal(count_found(&f, "<1k >=1k"), 0);
  assert_int_equal(count_found(&f, "unknown"), count_found(&f, "UNKNOWN"));
  assert_int_equal(count_found(&f, "no such name"), 0);
  for (const char **odd = (const char *[]){">", "<=", ">1q", ">1kk", ">.", "1", "0x", "0xg", ":",
                                           "a:", ":1", "%s", NULL};
       *odd; odd++)
    (void)count_found(&f, *odd);
  (void)snprintf(address, sizeof address, "0x%" PRIx64, f.view->devices[0].address[0]);
  assert_true(count_found(&f, address) > 0);
  char longest[3 * SEARCH_BYTES];
  memset(longest, 'a', sizeof longest);
  for (size_t i = 1; i < sizeof longest; i += 2) longest[i] = ' ';
  longest[sizeof longest - 1] = '\0';
  (void)count_found(&f, longest); /* cut, and as many words as there can be */
  release(&f);
}

/* ---- keys ---- */

static int press(fixture *f, uint32_t key) {
  int next = terminal_model_key(&f->model, key);
  const terminal_model *m = &f->model;
  assert_true(next == TERMINAL_GO_ON || next == TERMINAL_QUIT);
  assert_true(m->from < m->to);
  for (size_t i = 0; i < m->file_count; i++) {
    const terminal_track *t = &m->tracks[m->shown[i]];
    assert_true(t->is_ready && t->has_shares && t->shares_moment == t->moment &&
                t->moment < t->history.moment_count);
  }
  return next;
}

static void type_text(fixture *f, const char *text) {
  for (; *text; text++) (void)press(f, (unsigned char)*text);
}

static void draw(fixture *f, uint32_t rows, uint32_t columns) {
  assert_true(terminal_grid_resize(&f->grid, rows, columns));
  assert_int_equal(terminal_draw(&f->model, &f->grid), 0);
  for (size_t i = 0; i < (size_t)f->grid.rows * f->grid.columns; i++) {
    const terminal_cell *cell = &f->grid.cells[i];
    assert_true(cell->style.color < TERMINAL_COLORS);
    if (!f->grid.traits->is_utf8) assert_true(cell->character >= 0x20 && cell->character < 0x7f);
  }
}

/* Whether an ASCII picture has a text. */
static bool shows(fixture *f, const char *text) {
  draw(f, ROWS, COLUMNS);
  for (uint32_t row = 0; row < ROWS; row++) {
    char line[COLUMNS + 1];
    for (uint32_t column = 0; column < COLUMNS; column++)
      line[column] = (char)terminal_cell_at(&f->grid, row, column)->character;
    line[COLUMNS] = '\0';
    if (strstr(line, text)) return true;
  }
  return false;
}

static void keys_go_where_they_say(void **state) {
  (void)state;
  fixture f;
  make(&f, 2, 900);
  terminal_model *m = &f.model;
  terminal_track *t = &m->tracks[0];
  uint32_t count = t->history.moment_count;
  assert_int_equal(t->moment, t->device->peak);
  assert_true(shows(&f, "peak ") && shows(&f, "allocated of"));
  (void)press(&f, TERMINAL_KEY_HOME);
  assert_int_equal(t->moment, 0);
  (void)press(&f, ',');
  assert_int_equal(t->moment, 0);
  (void)press(&f, '.');
  assert_int_equal(t->moment, 1);
  assert_true(shows(&f, "event 0 of "));
  (void)press(&f, TERMINAL_KEY_END);
  assert_int_equal(t->moment, count - 1);
  (void)press(&f, 'P');
  assert_int_equal(t->moment, t->device->peak);
  uint32_t width = m->to - m->from;
  assert_int_equal(width, count);
  for (int i = 0; i < 60; i++) {
    (void)press(&f, 'w');
    assert_true(m->from <= t->moment && t->moment < m->to);
  }
  assert_int_equal(m->to - m->from, 8);
  (void)press(&f, 'a');
  (void)press(&f, 'd');
  (void)press(&f, TERMINAL_KEY_ESCAPE);
  assert_int_equal(m->to - m->from, count);
  assert_int_equal(press(&f, 'q'), TERMINAL_QUIT);
  release(&f);
}

static void what_is_typed_is_searched(void **state) {
  (void)state;
  fixture f;
  make(&f, 2, 900);
  terminal_track *t = &f.model.tracks[0];
  (void)press(&f, '/');
  type_text(&f, ">1MiBq");
  assert_true(shows(&f, "search: >1MiBq"));
  (void)press(&f, TERMINAL_KEY_BACKSPACE);
  (void)press(&f, TERMINAL_KEY_ENTER);
  assert_int_equal(t->found_count, count_sizes(&f, (1 << 20) + 1, UINT64_MAX));
  (void)press(&f, TERMINAL_KEY_HOME);
  for (int i = 0; i < 20; i++) {
    uint32_t before = t->moment;
    (void)press(&f, '>');
    if (t->moment == before) break;
    for (size_t row = 0; row < t->device->allocation_count; row++)
      if (t->device->born[row] > before && t->device->born[row] < t->moment)
        assert_false(t->is_found[row]);
  }
  assert_true(shows(&f, "found "));
  (void)press(&f, TERMINAL_KEY_ESCAPE);
  assert_null(t->is_found);
  (void)press(&f, '/');
  for (uint32_t i = 0; i < 4 * SEARCH_BYTES; i++)
    (void)press(&f, i % 3 ? 0x4e2d : 'x'); /* more than there is room for */
  (void)press(&f, TERMINAL_KEY_ENTER);
  assert_int_equal(t->found_count, 0);
  release(&f);
}

/* Whatever is pressed, and however large the screen is: what is drawn stays inside of it, and no character is unsafe. */
static void any_keys_and_sizes(void **state) {
  (void)state;
  static const char letters[] = "wsad,.[]pfyYmgGn1245jk?<>/x|>M+-= ";
  for (uint32_t seed = 1; seed <= 6; seed++) {
    fixture f;
    uint64_t random = seed;
    make(&f, seed, seed == 1 ? 1 : 300);
    for (int i = 0; i < 400; i++) {
      random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
      uint32_t choice = (uint32_t)(random >> 33);
      uint32_t key = choice % 3 ? (uint32_t)letters[choice / 3 % (sizeof letters - 1)]
                                : TERMINAL_KEY_LEFT +
                                      choice / 3 % (TERMINAL_KEY_ESCAPE - TERMINAL_KEY_LEFT + 1);
      (void)press(&f, key);
      f.grid.traits = choice % 2 ? &plain : &colored;
      draw(&f, choice / 7 % 60, choice / 420 % 150);
    }
    release(&f);
  }
}

static void text_is_cut_and_made_safe(void **state) {
  (void)state;
  terminal_grid grid = {.traits = &plain};
  assert_true(terminal_grid_resize(&grid, 2, 10));
  terminal_span span = terminal_part(terminal_row(&grid, 0), 2, 5);
  assert_int_equal(terminal_words(span, "a\x1b[2J\xc3\xa9", (terminal_style){0}), 5);
  char line[11] = "";
  for (uint32_t i = 0; i < 10; i++) line[i] = (char)terminal_cell_at(&grid, 0, i)->character;
  assert_string_equal(line, "  a?[2~   ");
  assert_int_equal(terminal_words(terminal_part(span, 0, 0), "x", (terminal_style){0}), 0);
  terminal_words_right(span, "too long", (terminal_style){0}); /* is left out */
  assert_int_equal(terminal_cell_at(&grid, 0, 2)->character, 'a');
  assert_null(terminal_cell_at(&grid, 2, 0));
  assert_null(terminal_cell_at(&grid, 0, 10));
  assert_true(terminal_grid_resize(&grid, 100000, 100000));
  assert_int_equal(grid.rows, TERMINAL_ROWS_MAX);
  terminal_grid_release(&grid);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_moment_is_that_of_the_model),
      cmocka_unit_test(ranges_have_their_first_highest_moment),
      cmocka_unit_test(shares_add_up),
      cmocka_unit_test(sizes_words_and_alternatives_are_found),
      cmocka_unit_test(keys_go_where_they_say),
      cmocka_unit_test(what_is_typed_is_searched),
      cmocka_unit_test(any_keys_and_sizes),
      cmocka_unit_test(text_is_cut_and_made_safe),
  };
  return cmocka_run_group_tests_name("terminal_model", tests, NULL, NULL);
}
