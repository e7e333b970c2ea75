/* report.c - `tessera report FILE`: what a bug report needs, on one page of Markdown or HTML.
 *
 * The page is made of the texts that the questions print, in the order in which a reader asks them: the
 * verdict, a chart, why it ran out of memory if it did, what held the memory at the peak, the steps, and what the file is. The verdict
 * is there once, and so is the advice: with the reasons of a failure, if there was one. Nothing on the page refers to anything outside of it.
 */
#define _POSIX_C_SOURCE 200809L

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tessera/unstable/terminal.h>
#include <tessera/unstable/why.h>
#include <unistd.h>

#include "chart.h"
#include "endings.h"
#include "progress.h"
#include "session.h"

enum { PAGE_AUTO, PAGE_MARKDOWN, PAGE_HTML };

static const tsr_parameter report_parameters[] = {
    {.name = "format",
     .kind = TSR_PARAMETER_CHOICE,
     .argument = "FORMAT",
     .help = "auto (default): HTML if the output's name ends in .html or .htm, else Markdown.",
     .choices = (const char *const[]){"auto", "markdown", "html", NULL}},
};

const cli_command cli_report_row = {
    .about = {.name = "report",
              .summary = "one page to attach to a bug report",
              .situation = TSR_SITUATION_FAILURE,
              .description = "Writes one page of Markdown or HTML with the verdict, a chart of "
                             "memory over time, why the run "
                             "ran out of memory if it did, what held the memory at the peak and "
                             "what to do about it, the steps, and what the file is. It contains "
                             "what the commands why, peak, steps and info print to a pipe.",
              .parameters = report_parameters,
              .parameter_count = sizeof report_parameters / sizeof *report_parameters,
              .examples = {{"tessera report snapshot.pickle", "Markdown, to paste into an issue"},
                           {"tessera report -o report.html snapshot.pickle", "a page to attach"}}},
    .operands = "FILE",
    .operand_min = 1,
    .operand_max = 1,
    .reads_files = true,
    .lacks = "json color",
    .run = cli_report,
};

/* ---- A page ---- */

typedef struct page {
  cli_session *session;
  bool is_html;
  bool omits_verdict; /* it is on the page already */
  bool has_advice;    /* so is the advice */
  size_t device_count;
} page;

/* A text in memory; a tsr_write_fn appends to it. */
static int put_bytes(const page *p, const char *data, size_t size_bytes) {
  return cli_output_write(&p->session->output, data, size_bytes) ? TSR_ERROR_WRITE : 0;
}

static int put(const page *p, const char *data) {
  return put_bytes(p, data, strlen(data));
}

/* Text that HTML would read as markup. */
static int put_escaped(const page *p, const char *data, size_t size_bytes) {
  int status = 0;
  for (size_t i = 0; status == 0 && i < size_bytes; i++) {
    const char *entity = data[i] == '&'   ? "&amp;"
                         : data[i] == '<' ? "&lt;"
                         : data[i] == '>' ? "&gt;"
                                          : NULL;
    status = entity ? put(p, entity) : put_bytes(p, &data[i], 1);
  }
  return status;
}

/* The longest run of backticks: a fence has to be longer. */
static size_t longest_fence(const cli_text *body) {
  size_t longest = 2, run = 0;
  for (size_t i = 0; i < body->size; i++) {
    run = body->data[i] == '`' ? run + 1 : 0;
    if (run > longest) longest = run;
  }
  return longest;
}

static int put_heading(const page *p, const char *title) {
  int status = put(p, p->is_html ? "<h2>" : "\n## ");
  if (status == 0) status = put(p, title);
  return status ? status : put(p, p->is_html ? "</h2>\n" : "\n\n");
}

static int put_fence(const page *p, size_t length) {
  int status = 0;
  for (size_t i = 0; status == 0 && i <= length; i++) status = put(p, "`");
  return status ? status : put(p, "\n");
}

static int put_body(const page *p, const cli_text *body) {
  if (p->is_html) {
    int status = put(p, "<pre>");
    if (status == 0) status = put_escaped(p, body->data, body->size);
    return status ? status : put(p, "</pre>\n");
  }
  size_t fence = longest_fence(body);
  int status = put_fence(p, fence);
  if (status == 0) status = put_bytes(p, body->data, body->size);
  return status ? status : put_fence(p, fence);
}

/* Text that is not our own: a path, or a message that quotes the file. */
static int put_cleaned(const page *p, const char *foreign) {
  char *clean = strdup(foreign);
  if (!clean) return TSR_ERROR_MEMORY;
  int status = put_escaped(p, clean, tsr_terminal_clean(clean, strlen(clean), false));
  free(clean);
  return status;
}

static int put_head(const page *p, const char *name) {
  static const char before[] =
      "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'\">\n<title>tessera report</title>\n<style>\n"
      ":root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif }\n"
      "body { max-width: 62rem; margin: 2rem auto; padding: 0 1rem }\n"
      "h1 { font-size: 1.3rem } h2 { font-size: 1.05rem; margin-top: 2rem }\n"
      "pre { overflow-x: auto; padding: .8rem 1rem; border: 1px solid color-mix(in srgb, "
      "CanvasText 20%, Canvas); border-radius: 6px; font: 12.5px/1.45 ui-monospace, monospace }\n"
      "h2:first-of-type + pre { white-space: pre-wrap }\n"
      "figure { margin: 0 } figcaption span { margin-right: 1em; white-space: nowrap }\n"
      "figcaption i { display: inline-block; width: .8em; height: .8em; margin-right: .4em }\n"
      "</style>\n<h1>";
  int status = put(p, p->is_html ? before : "# ");
  if (status == 0) status = put_cleaned(p, name);
  return status ? status : put(p, p->is_html ? "</h1>\n" : "\n");
}

/* ---- The answers ---- */

/* `params` NULL: all defaults. */
static int ask_with(const page *p, const cli_input *input, const char *question,
                    const tsr_params *params, tsr_answer **answer) {
  const tsr_subject subject = {input->study, input->heading.path};
  return tsr_ask(tsr_question_find(question), &subject, 1, params, &p->session->query, answer,
                 &p->session->error);
}

static int ask(const page *p, const cli_input *input, const char *question, tsr_answer **answer) {
  return ask_with(p, input, question, NULL, answer);
}

/* The text of an answer without its verdict, or that alone. The caller frees body->data. */
static int text_of(const page *p, const tsr_answer *answer, bool is_verdict, cli_text *body) {
  tsr_report_options how = p->session->report;
  how.format = TSR_REPORT_TEXT;
  how.color = false;
  how.quiet = true; /* warnings have a section of their own */
  how.width = 0;    /* nothing is shortened */
  how.omits_verdict = p->omits_verdict;
  how.keeps_device_names = p->device_count > 1;
  how.is_on_page = true;
  *body = (cli_text){0};
  int status = is_verdict
                   ? tsr_answer_verdict(answer, cli_text_append, body, &p->session->error)
                   : tsr_answer_write(answer, &how, cli_text_append, body, &p->session->error);
  return body->is_lost ? TSR_ERROR_MEMORY : status;
}

/* Remove the paragraphs that begin with `heading`. */
static void drop_paragraphs(cli_text *body, const char *heading) {
  char *at = body->data;
  while (at && (at = strstr(at, heading)) != NULL) {
    const char *after = strstr(at, "\n\n");
    after = after ? after + 2 : body->data + body->size;
    size_t rest = (size_t)(body->data + body->size - after);
    memmove(at, after, rest);
    body->size = (size_t)(at - body->data) + rest;
    body->data[body->size] = '\0';
  }
}

/* Blank lines at the start, where the verdict was. */
static void drop_first_blanks(cli_text *body) {
  size_t blank = body->data ? strspn(body->data, "\n") : 0;
  if (!blank) return;
  memmove(body->data, body->data + blank, body->size - blank + 1);
  body->size -= blank;
}

static int put_answer(const page *p, const tsr_answer *answer, const char *title, bool is_verdict) {
  cli_text body;
  int status = text_of(p, answer, is_verdict, &body);
  if (status == 0 && p->has_advice && body.data) {
    drop_paragraphs(&body, "What to do:\n");
    drop_paragraphs(&body, "What to do (estimates, each by itself):\n");
  }
  if (status == 0) drop_first_blanks(&body);
  if (status == 0) status = put_heading(p, title);
  if (status == 0) status = put_body(p, &body);
  free(body.data);
  return status;
}

static bool ran_out(const tsr_answer *answer) {
  const tsr_why *why = tsr_answer_value(answer);
  for (size_t i = 0; i < why->device_count; i++)
    if (why->devices[i].oom_count) return true;
  return false;
}

static int put_device_chart(const page *p, const tsr_profile_device *device) {
  cli_text text = {0};
  FILE *stream = cli_text_open(&text);
  if (!stream) return TSR_ERROR_MEMORY;
  if (p->device_count > 1)
    fprintf(stream, p->is_html ? "<p>Device %" PRIu32 "</p>\n" : "Device %" PRIu32 "\n",
            device->device);
  bool is_drawn = true;
  if (p->is_html)
    is_drawn = cli_chart_svg(stream, device);
  else
    cli_chart_text(stream, device);
  int status = cli_text_close(stream, &text) && is_drawn ? 0 : TSR_ERROR_MEMORY;
  if (status == 0) status = p->is_html ? put_bytes(p, text.data, text.size) : put_body(p, &text);
  free(text.data);
  return status;
}

/* What the program requested over time, by category, for each device whose trace is long enough. */
static int put_chart(const page *p, const cli_input *input) {
  enum { MOMENTS = 400 };
  tsr_params *params = NULL;
  tsr_answer *answer = NULL;
  tsr_error *error = &p->session->error;
  bool has_title = false;
  int status =
      tsr_question_params(tsr_question_find("profile"), TSR_INTERFACE_COMMAND, &params, error);
  if (status == 0) status = tsr_params_set_integer(params, "over-time", 1, error);
  if (status == 0) status = tsr_params_set_integer(params, "samples", MOMENTS, error);
  if (status == 0) status = ask_with(p, input, "profile", params, &answer);
  const tsr_profile *profile = status ? NULL : tsr_answer_value(answer);
  for (size_t i = 0; status == 0 && i < profile->device_count; i++) {
    if (!cli_chart_has(&profile->devices[i])) continue;
    if (!has_title) status = put_heading(p, "Memory over time");
    has_title = true;
    if (status == 0) status = put_device_chart(p, &profile->devices[i]);
  }
  tsr_answer_free(answer);
  tsr_params_free(params);
  return status;
}

/* The verdict is that of the failure if there was one, else that of the peak. */
static int put_verdict(page *p, const cli_input *input) {
  tsr_answer *why = NULL, *peak = NULL;
  int status = ask(p, input, "why", &why);
  if (status == 0) status = ask(p, input, "peak", &peak);
  if (status == 0) p->device_count = ((const tsr_peak *)tsr_answer_value(peak))->device_count;
  if (status == 0) status = put_answer(p, ran_out(why) ? why : peak, "Verdict", true);
  if (status == 0) status = put_chart(p, input);
  p->omits_verdict = true;
  if (status == 0 && ran_out(why)) status = put_answer(p, why, "Why it ran out of memory", false);
  p->has_advice = status == 0 && ran_out(why);
  p->omits_verdict = !p->has_advice; /* after a failure, the verdict of the peak is new */
  if (status == 0)
    status = put_answer(p, peak,
                        p->has_advice ? "What held the memory at the peak"
                                      : "What held the memory, and what to do",
                        false);
  p->omits_verdict = p->has_advice = false;
  tsr_answer_free(why);
  tsr_answer_free(peak);
  return status;
}

static int put_warnings(const page *p, const cli_input *input) {
  size_t count;
  const tsr_warning *warnings = tsr_snapshot_warnings(input->snapshot, &count);
  int status = count ? put_heading(p, "Warnings") : 0;
  for (size_t i = 0; status == 0 && i < count; i++) {
    char times[32];
    (void)snprintf(times, sizeof times, " (%llu)\n", (unsigned long long)warnings[i].count);
    status = put(p, p->is_html ? "<p>" : "- ");
    if (status == 0) status = put_cleaned(p, warnings[i].message);
    if (status == 0) status = put(p, times);
  }
  return status;
}

/* info is asked first, because the one replay that then serves all can also check itself. */
static int put_page(page *p, const cli_input *input) {
  tsr_answer *info = NULL, *steps = NULL;
  int status = ask(p, input, "info", &info);
  if (status == 0) status = put_head(p, input->heading.path);
  if (status == 0) status = put_verdict(p, input);
  if (status == 0) status = ask(p, input, "steps", &steps);
  if (status == 0) status = put_answer(p, steps, "Steps", false);
  if (status == 0) status = put_answer(p, info, "The file", false);
  if (status == 0) status = put_warnings(p, input);
  if (status == 0) status = put(p, p->is_html ? "<p>tessera " : "\ntessera ");
  if (status == 0) status = put(p, tsr_version());
  if (status == 0) status = put(p, p->is_html ? "</p>\n" : "\n");
  tsr_answer_free(info);
  tsr_answer_free(steps);
  return status;
}

/* The format of --format or else of the output's name, PAGE_AUTO if its ending is unknown. */
static int choose_format(const cli_options *options) {
  static const cli_ending endings[] = {{".md", PAGE_MARKDOWN},
                                       {".markdown", PAGE_MARKDOWN},
                                       {".txt", PAGE_MARKDOWN},
                                       {".html", PAGE_HTML},
                                       {".htm", PAGE_HTML}};
  const size_t count = sizeof endings / sizeof *endings;
  int format = tsr_params_choice(options->own, "format");
  if (format > PAGE_AUTO) return format;
  if (!options->output || !*cli_ending_of(options->output)) return PAGE_MARKDOWN;
  const cli_ending *found = cli_ending_find(endings, count, options->output);
  if (found) return found->format;
  (void)cli_ending_refuse(options, "a report is Markdown or HTML", endings, count, options->output);
  return PAGE_AUTO;
}

int cli_report(cli_session *session) {
  int format = choose_format(session->options);
  if (format == PAGE_AUTO) return CLI_USAGE;
  page p = {.session = session, .is_html = format == PAGE_HTML};
  cli_input input = {0};
  int status = cli_open(session, 0, &input);
  /* On a terminal that gets the report, nothing else may be on the line. */
  bool is_quiet = session->options->quiet || (!session->options->output && isatty(STDOUT_FILENO));
  cli_clock clock;
  cli_clock_start(&clock, "reporting on", session->options->operands[0], is_quiet);
  if (status == 0) status = put_page(&p, &input);
  cli_clock_stop(&clock);
  cli_close(&input);
  return status;
}
