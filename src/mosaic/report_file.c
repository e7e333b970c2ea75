/* report_file.c - Mosaic's analysis of one source file, as Mosaic prints it.
 *
 * Mosaic keeps its rows in pandas data frames; the tables look as those print. Bytes are divided by
 * 1024^3 in one step, as in Mosaic. A table ends after a hundred rows. */
#include "tessera/unstable/mosaic_file.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/intern.h"
#include "base/memory.h"
#include "base/python_text.h"
#include "base/sort.h"
#include "mosaic/psql.h"

enum { ROWS_SHOWN = 100 };

typedef struct printer {
  const tsr_snapshot *snapshot;
  const tsr_mosaic_file *analysis;
  tsr__buffer text, line;
} printer;

static double gib(uint64_t bytes) {
  return (double)bytes / (1024.0 * 1024.0 * 1024.0);
}

static int finish(printer *p, tsr_write_fn *write, void *context, tsr_error *error) {
  bool failed = p->text.failed || p->line.failed;
  bool is_written = !failed && (!p->text.size || !write(context, p->text.data, p->text.size));
  tsr__buffer_release(&p->text);
  tsr__buffer_release(&p->line);
  if (failed) return tsr__fail_memory(error);
  if (is_written) return 0;
  return tsr__fail(error, TSR_ERROR_WRITE, TSR_OFFSET_NONE, "the answer could not be written");
}

static void print_title(printer *p, const char *title) {
  tsr__buffer_printf(&p->text, "\n%s\n", title);
  tsr__buffer_fill(&p->text, '=', strlen(title));
  tsr__buffer_text(&p->text, "\n");
}

static void print_table(printer *p, tsr__psql *table) {
  tsr__psql_print(table, &p->text);
  tsr__buffer_text(&p->text, "\n\n");
  tsr__psql_release(table);
}

/* ---- texts ---- */

/* Before the first comma. */
static tsr_text first_of(tsr_text list) {
  const char *comma = list.size_bytes ? memchr(list.data, ',', list.size_bytes) : NULL;
  return comma ? (tsr_text){list.data, (size_t)(comma - list.data)} : list;
}

static void append_string(printer *p, uint32_t string) {
  tsr_text text = tsr_snapshot_string(p->snapshot, string);
  if (string == TSR_NONE)
    tsr__buffer_text(&p->line, "None");
  else
    tsr__python_print(&p->line, text.data, text.size_bytes, false);
}

/* All frames, innermost first, one per line; valid until the next call. */
static tsr_text stack_text(printer *p, uint32_t stack) {
  tsr_stack frames = tsr_snapshot_stack(p->snapshot, stack);
  p->line.size = 0;
  for (uint32_t i = 0; i < frames.depth; i++) {
    tsr_frame frame = tsr_snapshot_frame(p->snapshot, frames.frames[i]);
    if (i) tsr__buffer_text(&p->line, "\n");
    append_string(p, frame.name);
    tsr__buffer_text(&p->line, ", ");
    append_string(p, frame.file);
    if (tsr_snapshot_has_negative_line(p->snapshot, frames.frames[i]))
      tsr__buffer_printf(&p->line, ":%" PRId64, (int64_t)frame.line);
    else
      tsr__buffer_printf(&p->line, ":%" PRIu64, frame.line);
  }
  return (tsr_text){p->line.data, p->line.size};
}

/* ---- tables of one snapshot ---- */

static void print_simple(printer *p) {
  static const char *const headers[] = {
      "line_content", "occurrences", "total_memory_utilization_gb",
      "line_numbers", "class_names", "function_names"};
  tsr__psql table = {.column_count = 6, .headers = headers};
  print_title(p, "Aggregated Stack Traces by Model References");
  for (size_t i = 0; i < p->analysis->row_count && i < ROWS_SHOWN; i++) {
    const tsr_mosaic_file_row *row = &p->analysis->rows[i];
    tsr__psql_text(&table, row->content);
    tsr__psql_integer(&table, (int64_t)row->occurrences);
    tsr__psql_float(&table, gib(row->bytes));
    tsr__psql_text(&table, first_of(row->lines));
    tsr__psql_text(&table, first_of(row->classes));
    tsr__psql_text(&table, first_of(row->functions));
  }
  print_table(p, &table);
}

static void print_others(printer *p, const char *title) {
  static const char *const headers[] = {"stack_trace", "total_memory_utilization", "occurrences"};
  tsr__psql table = {.column_count = 3, .headers = headers};
  print_title(p, title);
  for (size_t i = 0; i < p->analysis->other_count && i < ROWS_SHOWN; i++) {
    const tsr_mosaic_file_other *other = &p->analysis->others[i];
    tsr__psql_text(&table, stack_text(p, other->stack));
    tsr__psql_integer(&table, (int64_t)other->bytes);
    tsr__psql_integer(&table, 1);
  }
  print_table(p, &table);
}

static void print_lines(printer *p) {
  static const char *const headers[] = {"line_content", "line_numbers",
                                        "class_names",  "function_names",
                                        "occurrences",  "total_memory_utilization_gb"};
  tsr__psql table = {.column_count = 6, .headers = headers};
  print_title(p, "with_occurence_memory_event_aggregation_per_line_content");
  for (size_t i = 0; i < p->analysis->row_count && i < ROWS_SHOWN; i++) {
    const tsr_mosaic_file_row *row = &p->analysis->rows[i];
    tsr__psql_text(&table, row->content);
    tsr__psql_text(&table, row->lines);
    tsr__psql_text(&table, row->classes);
    tsr__psql_text(&table, row->functions);
    tsr__psql_integer(&table, (int64_t)row->occurrences);
    tsr__psql_float(&table, gib(row->bytes));
  }
  print_table(p, &table);
}

/* Rows summed by some of their columns. */
typedef struct sum {
  const tsr_mosaic_file_row *row;
  uint64_t bytes, occurrences;
} sum;

static int compare_sums(const void *a, const void *b) {
  const sum *x = a, *y = b;
  if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
  return (x->row > y->row) - (x->row < y->row);
}

/* Sum the rows by classes, or by classes and functions; false when out of memory. */
static bool sum_rows(printer *p, bool by_function, sum *sums, size_t *count) {
  tsr__intern keys;
  bool ok = true, added;
  tsr__intern_init(&keys);
  *count = 0;
  for (size_t i = 0; ok && i < p->analysis->row_count; i++) {
    const tsr_mosaic_file_row *row = &p->analysis->rows[i];
    p->line.size = 0;
    tsr__buffer_append(&p->line, row->classes.data, row->classes.size_bytes);
    if (by_function) tsr__buffer_text(&p->line, "\n");
    if (by_function) tsr__buffer_append(&p->line, row->functions.data, row->functions.size_bytes);
    uint32_t key = tsr__intern_put(&keys, p->line.data, p->line.size, &added);
    ok = !p->line.failed && key != TSR__INTERN_FULL;
    if (!ok) break;
    if (added) sums[(*count)++] = (sum){.row = row};
    sums[key].bytes = tsr__sum_u64(sums[key].bytes, row->bytes);
    sums[key].occurrences += row->occurrences;
  }
  tsr__intern_release(&keys);
  if (ok && *count) tsr__sort(sums, *count, sizeof *sums, compare_sums);
  return ok;
}

static void print_sums(printer *p, const char *title, bool by_function) {
  static const char *const headers[] = {"class_names", "function_names", "occurrences",
                                        "total_memory_utilization_gb"};
  static const char *const class_headers[] = {"class_names", "occurrences",
                                              "total_memory_utilization_gb"};
  tsr__psql table = {.column_count = by_function ? 4 : 3,
                     .headers = by_function ? headers : class_headers};
  sum *sums = TSR__NEW_ARRAY(sum, p->analysis->row_count);
  size_t count = 0;
  if (!sums || !sum_rows(p, by_function, sums, &count)) p->text.failed = true;
  print_title(p, title);
  for (size_t i = 0; !p->text.failed && i < count && i < ROWS_SHOWN; i++) {
    tsr__psql_text(&table, sums[i].row->classes);
    if (by_function) tsr__psql_text(&table, sums[i].row->functions);
    tsr__psql_integer(&table, (int64_t)sums[i].occurrences);
    tsr__psql_float(&table, gib(sums[i].bytes));
  }
  print_table(p, &table);
  tsr__free(sums);
}

/* Mosaic sorts these by occurrences, which are always 1. */
static void print_stacks(printer *p) {
  static const char *const headers[] = {"stack_trace", "line_numbers",
                                        "class_names", "function_names",
                                        "occurrences", "total_memory_utilization_gb"};
  tsr__psql table = {.column_count = 6, .headers = headers};
  print_title(p, "with_occurence_memory_event_aggregation_per_stack_trace");
  for (size_t i = 0; i < p->analysis->stack_count && i < ROWS_SHOWN; i++) {
    const tsr_mosaic_file_stack *stack = &p->analysis->stacks[i];
    const tsr_mosaic_file_row *row = &p->analysis->rows[stack->row];
    tsr__psql_text(&table, stack_text(p, stack->stack));
    tsr__psql_text(&table, row->lines);
    tsr__psql_text(&table, row->classes);
    tsr__psql_text(&table, row->functions);
    tsr__psql_integer(&table, 1);
    tsr__psql_float(&table, gib(stack->bytes));
  }
  print_table(p, &table);
}

/* "TITLE: 17.8 GiB", divided three times, as Mosaic does. */
static void print_total(printer *p, const char *title, uint64_t bytes) {
  char text[TSR__PYTHON_FLOAT_BYTES];
  tsr__buffer_printf(&p->text, "%s: %s GiB\n", title,
                     tsr__python_float((double)bytes / 1024 / 1024 / 1024, text));
}

int tsr_mosaic_print_file(const tsr_snapshot *snapshot, const tsr_mosaic_peak *peak,
                          const tsr_mosaic_file *analysis, bool is_verbose, tsr_write_fn *write,
                          void *context, tsr_error *error) {
  printer p = {.snapshot = snapshot, .analysis = analysis};
  print_total(&p, "Total Peak Memory Usage (Relative to Start)", peak->bytes);
  print_total(&p, "Total Static Memory Usage (estimated by Pytorch visualizer)",
              peak->static_bytes);
  print_total(&p, "Total Overall Peak Memory Usage (Dynamic + Static)",
              tsr__sum_u64(peak->bytes, peak->static_bytes));
  if (is_verbose) {
    print_lines(&p);
    print_sums(&p, "with_occurence_memory_event_aggregation_by_class_and_function", true);
    print_sums(&p, "with_occurence_memory_event_aggregation_by_class", false);
    print_stacks(&p);
    print_others(&p, "without_occurence_memory_event_aggregation");
  } else {
    print_simple(&p);
    print_others(&p, "Aggregated Stack Traces that do not Have Model References");
  }
  tsr__buffer_text(&p.text, "\n");
  return finish(&p, write, context, error);
}

/* ---- two snapshots ---- */

static void add_side(tsr__psql *table, const tsr_mosaic_file_row *row) {
  if (row) {
    tsr__psql_text(table, row->classes);
    tsr__psql_text(table, row->functions);
  } else {
    tsr__psql_float(table, NAN);
    tsr__psql_float(table, NAN);
  }
  tsr__psql_float(table, row ? (double)row->occurrences : 0);
  tsr__psql_float(table, row ? gib(row->bytes) : 0);
}

static void add_pair(tsr__psql *table, const tsr_mosaic_file_row *first,
                     const tsr_mosaic_file_row *second) {
  const tsr_mosaic_file_row *either = first ? first : second;
  double occurrences =
      (first ? (double)first->occurrences : 0) - (second ? (double)second->occurrences : 0);
  double bytes = (first ? gib(first->bytes) : 0) - (second ? gib(second->bytes) : 0);
  tsr__psql_text(table, either->content);
  tsr__psql_text(table, either->lines);
  add_side(table, first);
  add_side(table, second);
  tsr__psql_float(table, occurrences);
  tsr__psql_float(table, bytes);
}

/* Rows of the first side in its order, each with its partner, then the rows that only the second has.
 * `has_partner` must have room for the rows of the second. */
static bool join(const tsr_mosaic_file *first, const tsr_mosaic_file *second, tsr__psql *table,
                 bool *has_partner) {
  tsr__intern keys; /* lines -> row of the second */
  bool ok = true;
  tsr__intern_init(&keys);
  for (size_t i = 0; ok && i < second->row_count; i++) {
    tsr_text lines = second->rows[i].lines;
    ok = tsr__intern_put(&keys, lines.data, lines.size_bytes, NULL) != TSR__INTERN_FULL;
  }
  for (size_t i = 0; ok && i < first->row_count; i++) {
    const tsr_mosaic_file_row *row = &first->rows[i];
    uint32_t at = tsr__intern_find(&keys, row->lines.data, row->lines.size_bytes);
    add_pair(table, row, at == TSR__INTERN_FULL ? NULL : &second->rows[at]);
    if (at != TSR__INTERN_FULL) has_partner[at] = true;
  }
  for (size_t i = 0; ok && i < second->row_count; i++)
    if (!has_partner[i]) add_pair(table, NULL, &second->rows[i]);
  tsr__intern_release(&keys);
  return ok;
}

int tsr_mosaic_print_file_comparison(const tsr_mosaic_file *first, const tsr_mosaic_file *second,
                                     tsr_write_fn *write, void *context, tsr_error *error) {
  static const char *const headers[] = {"line_content",     "line_numbers",
                                        "class_names_df1",  "function_names_df1",
                                        "occurrences_df1",  "total_memory_utilization_gb_df1",
                                        "class_names_df2",  "function_names_df2",
                                        "occurrences_df2",  "total_memory_utilization_gb_df2",
                                        "occurrences_diff", "total_memory_utilization_gb_diff"};
  tsr__psql table = {.column_count = 12, .headers = headers};
  printer p = {.analysis = first};
  bool *has_partner = TSR__NEW_ARRAY(bool, second->row_count);
  if (!has_partner || !join(first, second, &table, has_partner)) p.text.failed = true;
  tsr__buffer_text(&p.text,
                   "Comparison of with_occurence_memory_event_aggregation_by_lines dataframes\n"
                   "=====================================================================\n");
  print_table(&p, &table);
  tsr__free(has_partner);
  return finish(&p, write, context, error);
}

/* ---- the source ---- */

int tsr_mosaic_print_file_view(const tsr_mosaic_file *analysis, tsr_write_fn *write, void *context,
                               tsr_error *error) {
  printer p = {.analysis = analysis};
  for (size_t i = 0; i < analysis->source_count; i++) {
    char size[64] = "";
    uint64_t thousandths = (uint64_t)(gib(analysis->bytes[i]) * 1000 + 0.5);
    if (analysis->bytes[i])
      (void)snprintf(size, sizeof size, "%" PRIu64 ".%03" PRIu64 " GiB", thousandths / 1000,
                     thousandths % 1000);
    tsr__buffer_printf(&p.text, "%5zu %-15s | ", i + 1, size);
    tsr__buffer_append(&p.text, analysis->source[i].data, analysis->source[i].size_bytes);
    tsr__buffer_text(&p.text, "\n");
  }
  return finish(&p, write, context, error);
}
