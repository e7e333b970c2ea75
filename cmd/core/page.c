/* page.c - see page.h. A view of a file is made once; only its cuts are made again when the page would
 * be too large. */
#include "page.h"

#include <stdio.h>
#include <stdlib.h>

#include "endings.h"
#include "progress.h"

enum { MOST_ALLOCATIONS = 1500000, FEWEST_ALLOCATIONS = 1000 };

const char *cli_page_grouping(tsr_profile_by by) {
  /* The page has true categories alone. */
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

/* An empty page would only puzzle its reader. */
static int refuse_empty(cli_session *session) {
  tsr_error *error = &session->error;
  *error = (tsr_error){.status = TSR_ERROR_FORMAT, .offset = TSR_OFFSET_NONE};
  (void)snprintf(error->message, sizeof error->message,
                 "the snapshot is empty: no device has events or segments. Take it after the "
                 "program has used the GPU.");
  return error->status;
}

/* Views of all files; how many devices they have. */
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
    if (!page->views[i]->device_count) return refuse_empty(session);
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
    most /= 2;
  } while (status == TSR_ERROR_LIMIT && most >= FEWEST_ALLOCATIONS);
  page->page = made;
  return status;
}

int cli_page_save(cli_session *session, const cli_page_from *from, const char *path) {
  cli_page page = {0};
  cli_output output = {.path = path};
  cli_clock clock;
  cli_clock_start(&clock, "making the page of", from->inputs[0].heading.path,
                  session->options->quiet);
  int status = cli_page_make(session, from, &page);
  if (status == 0) status = tsr_page_write(page.page, cli_output_write, &output, &session->error);
  cli_clock_stop(&clock);
  status = cli_finish_aside(session, &output, status);
  cli_page_release(&page);
  return status;
}
