/* page.c - see page.h. A view of a file is made once; only its cuts are made again when the page would
 * be too large. */
#include "page.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tessera/unstable/fleet.h>

#include "endings.h"
#include "progress.h"
#include "rules.h"

enum { MOST_ALLOCATIONS = 1500000, FEWEST_ALLOCATIONS = 1000 };

const char *cli_page_grouping(tsr_profile_by by) {
  /* The page has only true categories, not Mosaic's. */
  return tsr_profile_by_name(by == TSR_PROFILE_BY_MOSAIC_CATEGORY ? TSR_PROFILE_BY_CATEGORY : by);
}

int cli_page_check_name(const cli_options *options, const char *path) {
  static const cli_ending html[] = {{".html", 0}, {".htm", 0}};
  const size_t count = sizeof html / sizeof *html;
  if (!*cli_ending_of(path) || cli_ending_find(html, count, path)) return 0;
  return cli_ending_refuse(options, "a page is HTML", html, count, path);
}

static void release_cuts(cli_page *page, size_t input) {
  if (!page->cuts[input]) return;
  for (size_t d = 0; d < page->views[input]->device_count; d++)
    tsr_view_cut_release(&page->cuts[input][d]);
}

void cli_page_release(cli_page *page) {
  tsr_page_free(page->page);
  for (size_t i = 0; i < page->count; i++) {
    if (page->views[i]) release_cuts(page, i);
    free(page->cuts[i]);
    tsr_view_free(page->views[i]);
  }
  free(page->views);
  free(page->cuts);
  free(page->inputs);
  *page = (cli_page){0};
}

int cli_page_refuse_empty(cli_session *session) {
  tsr_error *error = &session->error;
  *error = (tsr_error){.status = TSR_ERROR_FORMAT, .offset = TSR_OFFSET_NONE};
  (void)snprintf(error->message, sizeof error->message,
                 "the snapshot is empty: no device has events or segments. Take it after the "
                 "program has used the GPU.");
  return error->status;
}

/* Make the views of all files, and count their devices. */
static int view_all(cli_session *session, const cli_page_from *from, cli_page *page,
                    size_t *devices) {
  tsr_view_options how = {.rules = from->rules, .by = from->options.by, .key = from->key};
  page->views = calloc(from->count, sizeof(tsr_view *));
  page->cuts = calloc(from->count, sizeof(tsr_view_cut *));
  page->inputs = calloc(from->count, sizeof(tsr_page_input));
  if (!page->views || !page->cuts || !page->inputs) return TSR_ERROR_MEMORY;
  page->count = from->count;
  for (size_t i = 0; i < page->count; i++) {
    session->path = from->inputs[i].heading.path;
    int status = tsr_view_compute(from->inputs[i].study, &how, from->query, &page->views[i],
                                  &session->error);
    if (status) return status;
    if (!page->views[i]->device_count) return cli_page_refuse_empty(session);
    *devices += page->views[i]->device_count;
    page->cuts[i] = calloc(page->views[i]->device_count + 1, sizeof **page->cuts);
    if (!page->cuts[i]) return TSR_ERROR_MEMORY;
    page->inputs[i] = (tsr_page_input){from->inputs[i].heading, page->views[i], page->cuts[i]};
  }
  return 0;
}

static int cut_all(cli_session *session, cli_page *page, uint64_t most) {
  tsr_view_stretch stretch = {.most_allocations = most};
  for (size_t i = 0; i < page->count; i++) {
    release_cuts(page, i);
    for (size_t d = 0; d < page->views[i]->device_count; d++) {
      int status = tsr_view_cut_compute(&page->views[i]->devices[d], &stretch, &page->cuts[i][d],
                                        &session->error);
      if (status) return status;
    }
  }
  return 0;
}

/* Half as many allocations until a cut lists fewer of them than before. */
static uint64_t fewer(const cli_page *page, uint64_t most) {
  uint64_t listed = 0;
  assert(page->cuts);
  for (size_t i = 0; i < page->count; i++)
    for (size_t d = 0; page->cuts[i] && d < page->views[i]->device_count; d++)
      if (page->cuts[i][d].listed_count > listed) listed = page->cuts[i][d].listed_count;
  do most /= 2;
  while (most && most >= listed);
  return most;
}

int cli_page_make(cli_session *session, const cli_page_from *from, cli_page *page) {
  size_t devices = 0;
  tsr_page *made = NULL;
  uint64_t most = from->most_allocations ? from->most_allocations : MOST_ALLOCATIONS;
  int status = view_all(session, from, page, &devices);
  if (status) return status;
  if (devices) most = (most + devices - 1) / devices;
  do {
    status = cut_all(session, page, most);
    if (status == 0)
      status = tsr_page_open(page->inputs, page->count, &from->options, &made, &session->error);
    if (status == TSR_ERROR_LIMIT) most = fewer(page, most);
  } while (status == TSR_ERROR_LIMIT && most >= FEWEST_ALLOCATIONS);
  page->page = made;
  return status;
}

int cli_page_save(cli_session *session, const cli_page_from *from, const char *path) {
  cli_page page = {0};
  cli_output output;
  cli_clock clock;
  int status = cli_start_aside(session, path, &output);
  if (status) return status;
  cli_clock_start(&clock, "making the page of", from->inputs[0].heading.path,
                  session->options->quiet);
  status = cli_page_make(session, from, &page);
  if (status == 0) status = tsr_page_write(page.page, cli_output_write, &output, &session->error);
  cli_clock_stop(&clock);
  status = cli_finish_aside(session, &output, status);
  cli_page_release(&page);
  return status;
}

int cli_page_save_ranks(cli_session *session, const tsr_answer *answer) {
  const char *path = tsr_params_text(session->options->own, "html");
  cli_output output;
  int status = path ? cli_start_aside(session, path, &output) : 0;
  if (!path || status) return status;
  status = tsr_ranks_page(tsr_answer_value(answer), session->options->operands[0], cli_output_write,
                          &output, &session->error);
  return cli_finish_aside(session, &output, status);
}

/* ---- what view and serve share ---- */

/* A served page contains less: it can request the rest. */
enum { SERVED_ALLOCATIONS = 250000 };

/* The grouping that the options ask for; rules alone mean "by rules". */
static const char *grouping_of(const tsr_params *own) {
  int by = tsr_params_choice(own, "by");
  if (tsr_params_choice_key(own, "by")) return TSR_BY_METADATA;
  if (by >= 0) return tsr_page_groupings[by];
  return tsr_params_has(own, "rules") ? TSR_BY_RULES : TSR_BY_CATEGORY;
}

int cli_page_read_options(cli_session *session, tsr_page_options *how, tsr_rules **rules) {
  const cli_options *options = session->options;
  const char *text = tsr_params_text(options->own, "rules");
  how->by = grouping_of(options->own);
  how->capacity_bytes = tsr_params_count(options->own, "capacity");
  if (strcmp(how->by, TSR_BY_RULES) == 0 && !text)
    return cli_usage_error(options->command, "--by rules needs --rules FILE-OR-TEXT");
  if (options->json) return cli_usage_error(options->command, "a page is HTML, not JSON");
  how->is_ordered = tsr_params_flag(options->own, "ordered");
  return text ? cli_rules_load(session, "rules", text, TSR_RULES_STRICT, rules) : 0;
}

static void warn_of_files(const cli_session *session, const cli_input *inputs, size_t count) {
  for (size_t i = 0; i < count; i++) cli_warn_of_file(session, &inputs[i]);
}

int cli_with_page(cli_session *session, bool is_served, cli_page_fn *show, void *context) {
  size_t count = session->options->operand_count, opened = 0;
  cli_page_from from = {.query = &session->query,
                        .most_allocations = tsr_params_count(session->options->own, "blocks"),
                        .key = tsr_params_choice_key(session->options->own, "by"),
                        .options = {.is_served = is_served}};
  if (is_served && !from.most_allocations) from.most_allocations = SERVED_ALLOCATIONS;
  tsr_rules *rules = NULL;
  cli_page page = {0};
  int status = cli_page_read_options(session, &from.options, &rules);
  if (status) return status;
  cli_input *inputs = calloc(count, sizeof *inputs);
  if (!inputs) status = TSR_ERROR_MEMORY;
  if (status == 0)
    status = cli_open_all(session, (const char *const *)session->options->operands, count, inputs,
                          &opened);
  from.inputs = inputs;
  from.count = opened;
  from.rules = rules;
  cli_clock clock;
  cli_clock_start(&clock, "making the page of", session->options->operands[0],
                  session->options->quiet);
  if (status == 0) status = cli_page_make(session, &from, &page);
  for (size_t i = 0; i < opened; i++) { /* a server may run for days, and needs only the page */
    tsr_study_free(inputs[i].study);
    inputs[i].study = NULL;
  }
  if (is_served) cli_clock_stop(&clock);
  if (is_served && status == 0) warn_of_files(session, inputs, opened);
  if (status == 0) status = show(session, &page, context);
  if (!is_served) cli_clock_stop(&clock);
  if (!is_served && status == 0) warn_of_files(session, inputs, opened);
  cli_page_release(&page);
  while (opened) cli_close(&inputs[--opened]);
  free(inputs);
  tsr_rules_free(rules);
  return status;
}
