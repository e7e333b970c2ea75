/* forms.c - checks as JUnit's XML and as Markdown.
 *
 * JUnit's format has no standard; what Jenkins, GitLab and GitHub's actions read has test suites with
 * counts, and test cases; a failed one contains a `failure` with a message and details. Markdown
 * is GitHub's, with tables. Texts from a file are escaped for the output format, because names of
 * functions commonly contain '<', '|' and '*'. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/format.h"
#include "emit/heading.h"
#include "emit/text.h"
#include "questions/check/words.h"
#include "questions/shared/escape.h"

#define SIZE(bytes) tsr__format_size((bytes), (char[TSR__FORMAT_BYTES]){0})

static void say_warning(tsr__buffer *words, const tsr_warning *warning) {
  char count[TSR__FORMAT_BYTES];
  tsr__buffer_printf(words, "warning: %s (%s): ", warning->code,
                     tsr__format_count(warning->count, count));
  (void)tsr__text_clean(words, tsr__text_of(warning->message));
}

/* ---- JUnit ---- */

static void put_causes(const tsr__check_page *page, const tsr_check_result *r, tsr__buffer *words) {
  const tsr_check_device *device = tsr__check_device_of(page->check, r);
  for (size_t i = 0; device && i < r->cause_count; i++) {
    tsr__check_cause_words(page->printer, words, device, r, &device->causes[r->causes[i]]);
    tsr__put_xml(page->out, words);
    tsr__buffer_text(page->out, "\n");
  }
  tsr__check_omitted(words, r);
  if (words->size) {
    tsr__put_xml(page->out, words);
    tsr__buffer_text(page->out, "\n");
  }
}

static void put_case(const tsr__check_page *page, const tsr_check_result *r) {
  char name[TSR__FORMAT_BYTES];
  tsr__buffer *out = page->out, words = {0};
  /* Named by what is checked, not by the limit: a case keeps its history when a budget changes. */
  tsr__buffer_printf(out, "    <testcase classname=\"tessera.check\" name=\"%s: %s %s\" time=\"0\"",
                     tsr__device_name(r->device, name), tsr__check_subject(r),
                     r->rule >= TSR_CHECK_LOCK_DEVICE ? "as locked" : "within budget");
  tsr__check_sentence(&words, r);
  if (r->is_passed) {
    tsr__buffer_text(out, ">\n      <system-out>");
    tsr__put_xml(out, &words);
    tsr__buffer_text(out, "</system-out>\n    </testcase>\n");
  } else {
    tsr__buffer_printf(out, ">\n      <failure type=\"%s\" message=\"",
                       tsr_check_rule_name(r->rule));
    tsr__put_xml(out, &words);
    tsr__buffer_text(out, "\">");
    put_causes(page, r, &words);
    tsr__buffer_text(out, "</failure>\n    </testcase>\n");
  }
  out->failed |= words.failed;
  tsr__buffer_release(&words);
}

void tsr__check_junit(const tsr__check_page *page) {
  tsr__buffer *out = page->out, words = {0};
  const tsr_check *check = page->check;
  char counts[128];
  /* If there was nothing to check, the check failed without a case, so one is added. */
  bool is_empty = !check->device_count;
  bool is_doubtful = check->doubt;
  (void)snprintf(counts, sizeof counts, "tests=\"%zu\" failures=\"%" PRIu64 "\" errors=\"%d\"",
                 check->result_count + is_empty + is_doubtful, check->failed_count + is_empty,
                 is_doubtful);
  tsr__buffer_printf(out,
                     "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites %s>\n"
                     "  <testsuite name=\"GPU memory of ",
                     counts);
  (void)tsr__text_clean(&words, tsr__text_of(page->input->path));
  tsr__put_xml(out, &words);
  tsr__buffer_printf(out, "\" %s skipped=\"0\" time=\"0\">\n", counts);
  for (size_t i = 0; i < check->result_count; i++) put_case(page, &check->results[i]);
  if (is_empty)
    tsr__buffer_text(out,
                     "    <testcase classname=\"tessera.check\" name=\"memory\" time=\"0\">\n"
                     "      <failure type=\"empty\" message=\"no device has memory to check\"/>\n"
                     "    </testcase>\n");
  if (is_doubtful)
    tsr__buffer_printf(out,
                       "    <testcase classname=\"tessera.check\" name=\"snapshot\" time=\"0\">\n"
                       "      <error type=\"%s\" message=\"%s\"/>\n"
                       "    </testcase>\n",
                       check->doubt == TSR_CHECK_TRUNCATED ? "cut"
                                                           : tsr_check_doubt_name(check->doubt),
                       tsr_check_doubt_reason(check->doubt));
  if (page->warnings->count) tsr__buffer_text(out, "    <system-err>");
  for (size_t i = 0; i < page->warnings->count; i++) {
    say_warning(&words, &page->warnings->items[i]);
    tsr__put_xml(out, &words);
    tsr__buffer_text(out, "\n");
  }
  if (page->warnings->count) tsr__buffer_text(out, "</system-err>\n");
  tsr__buffer_text(out, "  </testsuite>\n</testsuites>\n");
  out->failed |= words.failed;
  tsr__buffer_release(&words);
}

/* ---- Markdown ---- */

static void put_row(const tsr__check_page *page, const tsr_check_result *r) {
  tsr__buffer *out = page->out, words = {0};
  tsr__buffer_printf(out, "| %s | %" PRIu32 " | ", r->is_passed ? "ok" : "**failed**", r->device);
  tsr__buffer_text(&words, tsr__check_subject(r));
  tsr__put_markdown(out, &words);
  tsr__buffer_printf(out, " | %s | ", SIZE(r->bytes));
  tsr__check_allowed(out, r);
  tsr__buffer_text(out, " | ");
  tsr__check_difference(out, r);
  tsr__buffer_text(out, " |\n");
  out->failed |= words.failed;
  tsr__buffer_release(&words);
}

static void put_cause_row(const tsr__check_page *page, const tsr_check_device *device,
                          const tsr_check_result *r, const tsr_check_cause *cause) {
  tsr__buffer *out = page->out, words = {0}, *scratch = &page->printer->emitter->scratch;
  bool is_kind = r->rule == TSR_CHECK_MAX_CATEGORY || r->rule == TSR_CHECK_LOCK_CATEGORY;
  uint64_t now = r->is_change || is_kind ? cause->cause.bytes : cause->bytes_at_peak;
  uint64_t was = cause->locked_bytes;
  if (r->is_change)
    tsr__buffer_printf(out, "| %s%s | %s%s ", now >= was ? "+" : "-",
                       SIZE(now >= was ? now - was : was - now),
                       cause->is_locked || !was ? "" : "at most ", SIZE(was));
  tsr__buffer_printf(out, "| %s | ", SIZE(now));
  tsr__buffer_text(&words, tsr_category_name(cause->cause.category));
  tsr__put_markdown(out, &words);
  tsr__buffer_text(out, " | ");
  tsr__check_append_place(page->printer, device, cause);
  (void)tsr__text_clean(&words, (tsr_text){scratch->data, scratch->size});
  scratch->size = 0;
  tsr__put_markdown(out, &words);
  tsr__buffer_text(out, " |\n");
  out->failed |= words.failed;
  tsr__buffer_release(&words);
}

static void put_failure(const tsr__check_page *page, const tsr_check_result *r) {
  const tsr_check_device *device = tsr__check_device_of(page->check, r);
  tsr__buffer *out = page->out, words = {0};
  tsr__buffer_text(out, "\n**");
  tsr__check_sentence(&words, r);
  tsr__put_markdown(out, &words);
  tsr__buffer_text(out, "**\n");
  if (device && r->cause_count)
    tsr__buffer_text(out, r->is_change ? "\n| change | was | is | category | function |\n"
                                         "|---:|---:|---:|---|---|\n"
                                       : "\n| is | category | function |\n|---:|---|---|\n");
  for (size_t i = 0; device && i < r->cause_count; i++)
    put_cause_row(page, device, r, &device->causes[r->causes[i]]);
  tsr__check_omitted(&words, r);
  if (words.size) {
    tsr__buffer_text(out, "\n");
    tsr__put_markdown(out, &words);
    tsr__buffer_text(out, "\n");
  }
  out->failed |= words.failed;
  tsr__buffer_release(&words);
}

void tsr__check_markdown(const tsr__check_page *page) {
  tsr__buffer *out = page->out;
  const tsr_check *check = page->check;
  tsr__buffer_text(out, "### GPU memory check ");
  tsr__check_verdict(out, check);
  tsr__buffer_text(out, "\n");
  if (check->result_count)
    tsr__buffer_text(out, "\n| result | device | check | is | allowed | difference |\n"
                          "|---|---:|---|---:|---|---:|\n");
  for (size_t i = 0; i < check->result_count; i++) put_row(page, &check->results[i]);
  for (size_t i = 0; i < check->result_count; i++)
    if (!check->results[i].is_passed) put_failure(page, &check->results[i]);
  for (size_t i = 0; i < check->device_count; i++) {
    char name[TSR__FORMAT_BYTES];
    const tsr_check_device *d = &check->devices[i];
    if (!d->peak_reserved_bytes && d->device == TSR_DEVICE_CPU) continue; /* it reserves nothing */
    tsr__buffer_printf(out, "\n%s reserved at most %s for %s allocated.\n",
                       tsr__device_title(d->device, name), SIZE(d->peak_reserved_bytes),
                       SIZE(d->peak.totals.allocated_bytes));
  }
  for (size_t i = 0; i < page->warnings->count; i++) {
    tsr__buffer words = {0};
    say_warning(&words, &page->warnings->items[i]);
    tsr__buffer_text(out, "\n");
    tsr__put_markdown(out, &words);
    tsr__buffer_text(out, "\n");
    out->failed |= words.failed;
    tsr__buffer_release(&words);
  }
}
