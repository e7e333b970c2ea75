/* view.c - `tessera view FILE... -o page.html`: a picture of the trace, in one HTML file.
 */
#define _POSIX_C_SOURCE 200809L

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "page.h"
#include "progress.h"
#include "rules.h"
#include "view.h"

/* Those of `view`, then those that `serve` has besides. */
enum { VIEW_PARAMETERS = 5 };
static const tsr_parameter parameters[] = {
    {.name = "rules",
     .kind = TSR_PARAMETER_OBJECT,
     .type = &tsr_rules_type,
     .argument = "FILE-OR-TEXT",
     .help =
         "Group by your own rules: names and patterns in JSON or YAML, as a file or as text. The "
         "first rule whose pattern is found in a function or file name of the stack counts."},
    {.name = "ordered",
     .kind = TSR_PARAMETER_FLAG,
     .help = "Show memory in allocation order, as stacked bands."},
    {.name = "by",
     .kind = TSR_PARAMETER_CHOICE,
     .argument = "GROUPING",
     .help = "The initial grouping of the page (default: category, or rules if given). "
             "metadata:KEY groups by a key of the program's metadata.",
     .choices = tsr_page_groupings},
    {.name = "blocks",
     .kind = TSR_PARAMETER_COUNT,
     .argument = "N",
     .help = "Include the N largest allocations individually and aggregate the rest (default: "
             "1500000, fewer if the page would be too large; for serve 250000, because its page "
             "can request more)."},
    {.name = "capacity",
     .kind = TSR_PARAMETER_BYTES,
     .argument = "SIZE",
     .help = "Memory of the card that PyTorch may use, such as 40GiB, drawn as a line."},
    {.name = "host",
     .kind = TSR_PARAMETER_TEXT,
     .argument = "ADDRESS",
     .help = "The address to listen on (default: 127.0.0.1, which other machines cannot reach)."},
    {.name = "port",
     .kind = TSR_PARAMETER_COUNT,
     .argument = "N",
     .help = "The port to listen on (default: 0, any free port)."},
};

const cli_command cli_view_row = {
    .about = {.name = "view",
              .summary = "show memory over time, as one HTML file",
              .description =
                  "Writes a page that draws the memory of a trace over time, by category or "
                  "another grouping, down to single blocks. For any moment or range it shows which "
                  "stacks held what, as a table and as a flame graph, and where the blocks were in "
                  "their segments. Two moments, or two files, can be compared.\n\nThe page opens "
                  "in any recent browser, from a disk or an attachment: it contains its data, "
                  "needs no network, and is at most 20 MB. For a trace too long for that it "
                  "contains the largest allocations individually and aggregates the rest, exactly "
                  "at the highest and lowest moment of each of 8192 parts of the trace.",
              .parameters = parameters,
              .parameter_count = VIEW_PARAMETERS,
              .examples =
                  {{"tessera view -o page.html snapshot.pickle", "a page of the snapshot"},
                   {"tessera view --by stream --capacity 80GiB -o page.html snapshot.pickle",
                    "by stream, with the card's memory as a line"},
                   {"tessera view --rules rules.yaml -o page.html snapshot.pickle",
                    "by your own groups"},
                   {"tessera view -o both.html before.pickle after.pickle", "two, side by side"}}},
    .operands = "FILE...",
    .operand_min = 1,
    .operand_max = 64,
    .reads_files = true,
    .run = cli_view,
};

const cli_command cli_serve_row = {
    .about = {.name = "serve",
              .summary = "show it in a browser, however large it is",
              .description =
                  "Serves the page of 'tessera view', and prints its address. The page requests "
                  "what it shows, so every single block is visible, however long the trace. Ctrl-C "
                  "stops it.\n\nBy default it listens on an address that other machines cannot "
                  "reach (--host changes that). The printed address contains a secret, new each "
                  "time; requests without it, and from pages of other sites, are refused.",
              .parameters = parameters,
              .parameter_count = sizeof parameters / sizeof *parameters,
              .examples = {{"tessera serve snapshot.pickle", "prints the address to open"},
                           {"tessera serve --port 8321 old.pickle new.pickle",
                            "two files, on a chosen port"}}},
    .operands = "FILE...",
    .operand_min = 1,
    .operand_max = 64,
    .reads_files = true,
    .lacks = "json output",
    .run = cli_serve,
};

/* Of a page that can ask, what it holds itself is for a first look. */
enum { SERVED_ALLOCATIONS = 250000 };

/* The grouping that the options ask for; rules alone mean "by rules". */
static const char *grouping_of(const tsr_params *own) {
  int by = tsr_params_choice(own, "by");
  if (tsr_params_choice_key(own, "by")) return TSR_BY_METADATA;
  if (by >= 0) return tsr_page_groupings[by];
  return tsr_params_has(own, "rules") ? TSR_BY_RULES : TSR_BY_CATEGORY;
}

static int read_options(cli_session *session, tsr_page_options *how, tsr_rules **rules) {
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

int cli_with_page(cli_session *session, bool is_served, cli_page_fn *show) {
  size_t count = session->options->operand_count, opened = 0;
  cli_page_from from = {.query = &session->query,
                        .most_allocations = tsr_params_count(session->options->own, "blocks"),
                        .key = tsr_params_choice_key(session->options->own, "by"),
                        .options = {.is_served = is_served}};
  if (is_served && !from.most_allocations) from.most_allocations = SERVED_ALLOCATIONS;
  tsr_rules *rules = NULL;
  cli_page page = {0};
  int status = read_options(session, &from.options, &rules);
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
  for (size_t i = 0; i < opened;
       i++) { /* the page is all that is requested, however long it is served */
    tsr_study_free(inputs[i].study);
    inputs[i].study = NULL;
  }
  if (is_served) cli_clock_stop(&clock);
  if (is_served && status == 0) warn_of_files(session, inputs, opened);
  if (status == 0) status = show(session, &page);
  if (!is_served) cli_clock_stop(&clock);
  if (!is_served && status == 0) warn_of_files(session, inputs, opened);
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
                           "a terminal cannot show a page; use -o page.html");
  int status = session->options->output
                   ? cli_page_check_name(session->options, session->options->output)
                   : 0;
  if (status) return status;
  return cli_with_page(session, false, save);
}
