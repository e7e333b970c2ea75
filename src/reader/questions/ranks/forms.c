/* forms.c - checks of ranks as JUnit's XML and as Markdown, and the ranks' memory as Prometheus reads it.
 *
 * Prometheus' text is format 0.0.4: for each metric its help, its type and its samples, together. Numbers of bytes are whole: a scraper reads them as
 * doubles, which hold them exactly up to 8 PiB. Samples are in the order of ranks, so the same snapshots give the same bytes. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/format.h"
#include "emit/heading.h"
#include "emit/text.h"
#include "questions/ranks/ranks.h"
#include "questions/shared/escape.h"

#define SIZE(bytes) tsr__format_size((bytes), (char[TSR__FORMAT_BYTES]){0})

/* ---- JUnit ---- */

static void put_case(tsr__buffer *out, const tsr_ranks *ranks, const tsr_rank_check *check) {
  tsr__buffer words = {0};
  /* Named by what is checked, not by the limit: a case keeps its history when a budget changes. */
  tsr__buffer_printf(out,
                     "    <testcase classname=\"tessera.ranks\" name=\"%s within budget\" "
                     "time=\"0\">\n      ",
                     tsr__ranks_check_subject(check));
  tsr__ranks_check_sentence(&words, ranks, check);
  if (check->is_passed) {
    tsr__buffer_text(out, "<system-out>");
    tsr__put_xml(out, &words);
    tsr__buffer_text(out, "</system-out>\n    </testcase>\n");
  } else {
    tsr__buffer_printf(out, "<failure type=\"%s\" message=\"",
                       tsr_rank_rule_name(check->limit.rule));
    tsr__put_xml(out, &words);
    tsr__buffer_text(out, "\">");
    if (check->limit.rule != TSR_RANK_MAX_SPREAD)
      tsr__buffer_text(&words, "above the budget: rank");
    for (size_t i = 0; check->limit.rule != TSR_RANK_MAX_SPREAD && i < check->failed_count; i++)
      tsr__buffer_printf(&words, "%s %" PRId64, i ? "," : "", check->failed[i]);
    tsr__put_xml(out, &words);
    tsr__buffer_text(out, "</failure>\n    </testcase>\n");
  }
  out->failed |= words.failed;
  tsr__buffer_release(&words);
}

static void put_junit(tsr__buffer *out, const char *path, const tsr_ranks *ranks) {
  tsr__buffer words = {0};
  char counts[128];
  bool is_doubtful = ranks->doubt || !ranks->rank_count;
  (void)snprintf(counts, sizeof counts, "tests=\"%zu\" failures=\"%zu\" errors=\"%d\"",
                 ranks->check_count + is_doubtful, ranks->failed_count, is_doubtful);
  tsr__buffer_printf(out,
                     "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites %s>\n"
                     "  <testsuite name=\"GPU memory of the ranks in ",
                     counts);
  (void)tsr__text_clean(&words, tsr__text_of(path));
  tsr__put_xml(out, &words);
  tsr__buffer_printf(out, "\" %s skipped=\"0\" time=\"0\">\n", counts);
  for (size_t i = 0; i < ranks->check_count; i++) put_case(out, ranks, &ranks->checks[i]);
  if (is_doubtful) {
    tsr__buffer_printf(out,
                       "    <testcase classname=\"tessera.ranks\" name=\"snapshots\" time=\"0\">\n"
                       "      <error type=\"%s\" message=\"",
                       ranks->rank_count ? tsr_rank_doubt_name(ranks->doubt) : "empty");
    if (ranks->rank_count)
      tsr__ranks_doubt_words(&words, ranks);
    else
      tsr__buffer_text(&words, "no file could be read");
    tsr__put_xml(out, &words);
    tsr__buffer_text(out, "\"/>\n    </testcase>\n");
  }
  tsr__buffer_text(out, "  </testsuite>\n</testsuites>\n");
  out->failed |= words.failed;
  tsr__buffer_release(&words);
}

/* ---- Markdown ---- */

static void put_markdown(tsr__buffer *out, const tsr_ranks *ranks) {
  tsr__buffer words = {0};
  tsr__buffer_text(out, "### GPU memory check of the ranks ");
  if (ranks->check_count)
    tsr__ranks_check_verdict(out, ranks);
  else
    tsr__buffer_text(out, ranks->rank_count ? "without a budget: nothing was checked"
                                            : "failed: no file could be read");
  tsr__buffer_text(out, "\n");
  if (ranks->check_count)
    tsr__buffer_text(
        out, "\n| result | check | is | allowed | rank | above |\n|---|---|---:|---:|---:|---:|\n");
  for (size_t i = 0; i < ranks->check_count; i++) {
    const tsr_rank_check *c = &ranks->checks[i];
    tsr__buffer_text(&words, tsr__ranks_check_subject(c));
    tsr__buffer_printf(out, "| %s | ", c->is_passed ? "ok" : "**failed**");
    tsr__put_markdown(out, &words);
    tsr__buffer_printf(out, " | %s | at most %s | %" PRId64 " | %zu |\n", SIZE(c->bytes),
                       SIZE(c->limit.bytes), ranks->rows[c->row].rank, c->failed_count);
  }
  for (size_t i = 0; i < ranks->check_count; i++) {
    if (ranks->checks[i].is_passed) continue;
    tsr__ranks_check_sentence(&words, ranks, &ranks->checks[i]);
    tsr__buffer_text(out, "\n**");
    tsr__put_markdown(out, &words);
    tsr__buffer_text(out, "**\n");
  }
  out->failed |= words.failed;
  tsr__buffer_release(&words);
}

/* ---- Prometheus ---- */

/* A label's value: valid UTF-8 on one line, its backslashes, quotes and line ends escaped. */
static void put_label(tsr__buffer *out, const char *name, const char *text) {
  tsr__buffer words = {0};
  (void)tsr__text_clean(&words, tsr__text_of(text));
  tsr__buffer_printf(out, ",%s=\"", name);
  for (size_t i = 0; i < words.size; i++) {
    if (words.data[i] == '\\' || words.data[i] == '"') tsr__buffer_append(out, "\\", 1);
    tsr__buffer_append(out, &words.data[i], 1);
  }
  tsr__buffer_text(out, "\"");
  out->failed |= words.failed;
  tsr__buffer_release(&words);
}

static void put_head(tsr__buffer *out, const char *name, const char *help) {
  tsr__buffer_printf(out, "# HELP %s %s\n# TYPE %s gauge\n", name, help, name);
}

/* "tessera_rank_out_of_memory{rank="17",device="1"". The caller ends it. */
static void put_name(tsr__buffer *out, const char *name, int64_t rank, uint32_t device) {
  tsr__buffer_printf(out, "%s{rank=\"%" PRId64 "\",device=\"%" PRIu32 "\"", name, rank, device);
}

static uint64_t peak_of(const tsr_rank_row *row) {
  return row->peak_allocated_bytes;
}
static uint64_t peak_reserved_of(const tsr_rank_row *row) {
  return row->peak_reserved_bytes;
}
static uint64_t end_of(const tsr_rank_row *row) {
  return row->end_allocated_bytes;
}
static uint64_t end_reserved_of(const tsr_rank_row *row) {
  return row->end_reserved_bytes;
}
static uint64_t is_dead(const tsr_rank_row *row) {
  return row->is_out_of_memory;
}

static void put_rows(tsr__buffer *out, const tsr_ranks *ranks) {
  static const struct {
    const char *name, *help;
    uint64_t (*value)(const tsr_rank_row *row);
  } metrics[] = {
      {"tessera_rank_peak_allocated_bytes", "The most memory that was allocated.", peak_of},
      {"tessera_rank_peak_reserved_bytes", "The most memory that was reserved.", peak_reserved_of},
      {"tessera_rank_allocated_bytes", "Memory allocated when the snapshot was taken.", end_of},
      {"tessera_rank_reserved_bytes", "Memory reserved when the snapshot was taken.",
       end_reserved_of},
      {"tessera_rank_out_of_memory", "1 if the rank ran out of memory, else 0.", is_dead}};
  for (size_t k = 0; k < sizeof metrics / sizeof *metrics && ranks->row_count; k++) {
    put_head(out, metrics[k].name, metrics[k].help);
    for (size_t i = 0; i < ranks->row_count; i++) {
      const tsr_rank_row *row = &ranks->rows[i];
      put_name(out, metrics[k].name, row->rank, row->device);
      tsr__buffer_printf(out, "} %" PRIu64 "\n", metrics[k].value(row));
    }
  }
}

/* Which snapshot a rank's numbers are from, and when it was taken. */
static void put_sources(tsr__buffer *out, const tsr_ranks *ranks) {
  static const char info[] = "tessera_rank_info", taken[] = "tessera_rank_snapshot_time_seconds";
  bool has_time = false;
  if (ranks->row_count) put_head(out, info, "The snapshot of the rank, and its group of equals.");
  for (size_t i = 0; i < ranks->row_count; i++) {
    const tsr_rank_row *row = &ranks->rows[i];
    put_name(out, info, row->rank, row->device);
    put_label(out, "group", ranks->groups[row->group].name);
    put_label(out, "snapshot", row->path);
    tsr__buffer_text(out, "} 1\n");
    has_time = has_time || row->taken_us != TSR_TIME_NONE;
  }
  if (has_time) put_head(out, taken, "When the snapshot was taken, in seconds since 1970.");
  for (size_t i = 0; i < ranks->row_count; i++) {
    const tsr_rank_row *row = &ranks->rows[i];
    if (row->taken_us == TSR_TIME_NONE) continue;
    put_name(out, taken, row->rank, row->device);
    tsr__buffer_printf(out, "} %" PRId64 "\n", row->taken_us / 1000000);
  }
}

static void put_growths(tsr__buffer *out, const tsr_ranks *ranks) {
  static const char rate[] = "tessera_rank_growth_bytes_per_hour",
                    full[] = "tessera_rank_full_time_seconds";
  size_t rates = 0, fulls = 0;
  for (size_t i = 0; i < ranks->growth_count; i++) {
    rates += ranks->growths[i].bytes_per_hour > 0;
    fulls += ranks->growths[i].full_us != TSR_TIME_NONE;
  }
  if (rates) put_head(out, rate, "How fast a rank grows over its snapshots.");
  for (size_t i = 0; i < ranks->growth_count; i++) {
    const tsr_rank_growth *g = &ranks->growths[i];
    if (!(g->bytes_per_hour > 0)) continue;
    put_name(out, rate, g->rank, g->device);
    tsr__buffer_printf(out, "} %.0f\n", g->bytes_per_hour);
  }
  if (fulls) put_head(out, full, "When the card will be full at this rate, in seconds since 1970.");
  for (size_t i = 0; i < ranks->growth_count; i++) {
    const tsr_rank_growth *g = &ranks->growths[i];
    if (g->full_us == TSR_TIME_NONE) continue;
    put_name(out, full, g->rank, g->device);
    tsr__buffer_printf(out, "} %" PRId64 "\n", g->full_us / 1000000);
  }
}

/* How a rank differs from its equals. */
static void put_outliers(tsr__buffer *out, const tsr_ranks *ranks) {
  static const char name[] = "tessera_rank_excess_bytes";
  if (ranks->outlier_count) put_head(out, name, "Memory that sets a rank apart from its equals.");
  for (size_t i = 0; i < ranks->outlier_count; i++) {
    const tsr_rank_outlier *o = &ranks->outliers[i];
    put_name(out, name, ranks->rows[o->row].rank, ranks->rows[o->row].device);
    put_label(out, "cause", tsr_rank_cause_name(o->cause));
    tsr__buffer_printf(out, "} %" PRIu64 "\n", o->excess_bytes);
  }
}

/* Whether the same budget was given before. */
static bool is_repeated(const tsr_ranks *ranks, size_t index) {
  const tsr_rank_limit *limit = &ranks->checks[index].limit;
  for (size_t i = 0; i < index; i++) {
    const tsr_rank_limit *other = &ranks->checks[i].limit;
    if (other->rule == limit->rule && other->category == limit->category &&
        other->bytes == limit->bytes)
      return true;
  }
  return false;
}

static void put_fleet(tsr__buffer *out, const tsr_ranks *ranks) {
  static const char check[] = "tessera_check_passed";
  const struct {
    const char *name, *help;
    size_t value;
  } counts[] = {{"tessera_ranks", "Ranks with a snapshot.", ranks->rank_count},
                {"tessera_ranks_missing", "Ranks without a snapshot.", ranks->missing_count},
                {"tessera_files_broken", "Files that could not be read.", ranks->broken_count}};
  for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
    put_head(out, counts[i].name, counts[i].help);
    tsr__buffer_printf(out, "%s %zu\n", counts[i].name, counts[i].value);
  }
  if (ranks->check_count) put_head(out, check, "1 if all ranks are within the budget, else 0.");
  for (size_t i = 0; i < ranks->check_count; i++) {
    const tsr_rank_check *c = &ranks->checks[i];
    if (is_repeated(ranks, i)) continue; /* a sample may be there once only */
    tsr__buffer_printf(out, "%s{check=\"%s\",budget=\"%" PRIu64 "\"} %d\n", check,
                       tsr__ranks_check_subject(c), c->limit.bytes, c->is_passed);
  }
}

static void put_prometheus(tsr__buffer *out, const tsr_ranks *ranks) {
  put_rows(out, ranks);
  put_sources(out, ranks);
  put_growths(out, ranks);
  put_outliers(out, ranks);
  put_fleet(out, ranks);
}

/* ---- All formats ---- */

const char *const tsr__ranks_forms[] = {"junit", "markdown", "prometheus", NULL};

int tsr__ranks_write_form(size_t number, const char *path, const tsr_ranks *ranks,
                          tsr_write_fn *write, void *context, tsr_error *error) {
  tsr__buffer out = {0};
  if (number == 0)
    put_junit(&out, path ? path : "", ranks);
  else if (number == 1)
    put_markdown(&out, ranks);
  else
    put_prometheus(&out, ranks);
  int status = out.failed ? tsr__fail_memory(error) : 0;
  if (!status && write(context, out.data, out.size))
    status = tsr__fail(error, TSR_ERROR_WRITE, TSR_OFFSET_NONE, "the report cannot be written");
  tsr__buffer_release(&out);
  return status;
}
