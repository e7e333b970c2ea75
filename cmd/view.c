/* view.c - `tessera view FILE... -o page.html`: a picture of the trace, in one HTML file.
 */
#define _POSIX_C_SOURCE 200809L

#include <stdlib.h>
#include <unistd.h>

#include "page.h"
#include "parse.h"
#include "rules.h"
#include "view.h"

/* --by's words, in their order. */
static const char *const groupings[] = {
    "category", "annotation", "compile_context", "rules",    "op",  "module", "line", "metadata",
    "stream",   "pool",       "stack",           "function", "size"};

/* Of a page that can ask, what it holds itself is for a first look. */
enum { BY_RULES = 3, SERVED_ALLOCATIONS = 250000 };

static int read_options(cli_session *session, tsr_page_options *how, tsr_rules **rules) {
  const cli_options *options = session->options;
  if (options->capacity && !cli_parse_size(options->capacity, &how->capacity_bytes))
    return cli_usage_error(options->command,
                           "option '--capacity' takes a size such as 40GiB, not '%s'",
                           options->capacity);
  if (options->view_by == BY_RULES && !options->rules)
    return cli_usage_error(options->command, "--by rules needs --rules FILE-OR-TEXT");
  if (options->json) return cli_usage_error(options->command, "a page is HTML, not JSON");
  how->by = groupings[options->view_by >= 0 ? options->view_by : options->rules ? BY_RULES : 0];
  how->is_ordered = options->is_ordered;
  if (!options->rules) return 0;
  return cli_rules_load(session, "rules", options->rules, TSR_RULES_STRICT, rules);
}

int cli_with_page(cli_session *session, bool is_served, cli_page_fn *show) {
  size_t count = session->options->operand_count, opened = 0;
  cli_page_from from = {.query = &session->query,
                        .most_allocations = session->options->blocks,
                        .options = {.is_served = is_served}};
  if (is_served && !from.most_allocations) from.most_allocations = SERVED_ALLOCATIONS;
  tsr_rules *rules = NULL;
  cli_page page = {0};
  int status = read_options(session, &from.options, &rules);
  if (status) return status;
  cli_input *inputs = calloc(count, sizeof *inputs);
  if (!inputs) status = TSR_ERROR_MEMORY;
  while (status == 0 && opened < count) {
    status = cli_open(session, opened, &inputs[opened]);
    opened += status == 0;
  }
  from.inputs = inputs;
  from.count = opened;
  from.rules = rules;
  if (status == 0) status = cli_page_make(session, &from, &page);
  if (status == 0) status = show(session, &page);
  cli_page_release(&page);
  while (opened) cli_close(&inputs[--opened]);
  free(inputs);
  tsr_rules_free(rules);
  return status;
}

static int save(cli_session *session, const cli_page *page) {
  return tsr_page_write(page->page, cli_output_write, &session->output, &session->error);
}

int cli_view(cli_session *session) {
  if (!session->options->output && isatty(STDOUT_FILENO))
    return cli_usage_error(session->options->command,
                           "a page is nothing for a terminal; use -o page.html");
  return cli_with_page(session, false, save);
}
