/* view.c - `tessera view FILE... -o page.html`: a picture of the trace, in one HTML file.
 *
 * The page has a bound on its size, however long the trace: where what is told of each allocation
 * does not fit, fewer are told one by one, until it does.
 */
#define _POSIX_C_SOURCE 200809L

#include <stdlib.h>
#include <unistd.h>

#include "parse.h"
#include "session.h"

static const char *const groupings[] = {
    "category", "annotation", "compile_context", "metadata", "stream", "pool", "stack"};

enum { MOST_ALLOCATIONS = 1500000, FEWEST_ALLOCATIONS = 1000 };

typedef struct pages {
  cli_input *inputs;
  tsr_view **views;
  tsr_page_input *page;
  size_t count;
} pages;

static int check(const cli_options *options, tsr_page_options *how) {
  bool to_stdout = !options->output;
  if (options->capacity && !cli_parse_size(options->capacity, &how->capacity_bytes))
    return cli_usage_error(options->command,
                           "option '--capacity' takes a size such as 40GiB, not '%s'",
                           options->capacity);
  if (options->json) return cli_usage_error(options->command, "a page is HTML, not JSON");
  if (to_stdout && isatty(STDOUT_FILENO))
    return cli_usage_error(options->command, "a page is nothing for a terminal; use -o page.html");
  how->by = groupings[options->view_by];
  return 0;
}

/* Views of all files, with at most so many allocations of each device told one by one. */
static int compute(cli_session *session, pages *p, uint64_t most) {
  tsr_view_options how = {.most_allocations = most};
  int status = 0;
  for (size_t i = 0; status == 0 && i < p->count; i++) {
    tsr_view_free(p->views[i]);
    p->views[i] = NULL;
    session->path = p->inputs[i].heading.path;
    status = tsr_view_compute(p->inputs[i].snapshot, &how, &session->query, &p->views[i],
                              &session->error);
    p->page[i] = (tsr_page_input){p->inputs[i].heading, p->views[i]};
  }
  return status;
}

static int write_page(cli_session *session, pages *p, const tsr_page_options *how) {
  size_t devices = 0;
  for (size_t i = 0; i < p->count; i++) {
    size_t count;
    (void)tsr_snapshot_devices(p->inputs[i].snapshot, &count);
    devices += count;
  }
  uint64_t most = session->options->blocks ? session->options->blocks : MOST_ALLOCATIONS;
  if (devices) most = (most + devices - 1) / devices;
  int status;
  do {
    status = compute(session, p, most);
    if (status == 0)
      status = tsr_report_page(p->page, p->count, how, cli_output_write, &session->output,
                               &session->error);
    most /= 2;
  } while (status == TSR_ERROR_LIMIT && most >= FEWEST_ALLOCATIONS);
  return status;
}

int cli_view(cli_session *session) {
  tsr_page_options how = {0};
  size_t count = session->options->operand_count;
  int status = check(session->options, &how);
  if (status) return status;
  pages p = {.inputs = calloc(count, sizeof(cli_input)),
             .views = calloc(count, sizeof(tsr_view *)),
             .page = calloc(count, sizeof(tsr_page_input))};
  if (!p.inputs || !p.views || !p.page) status = TSR_ERROR_MEMORY;
  while (status == 0 && p.count < count) {
    status = cli_open(session, p.count, &p.inputs[p.count]);
    p.count += status == 0;
  }
  if (status == 0) status = write_page(session, &p, &how);
  for (size_t i = 0; i < p.count; i++) {
    tsr_view_free(p.views[i]);
    cli_close(&p.inputs[i]);
  }
  free(p.inputs);
  free(p.views);
  free(p.page);
  return status;
}
