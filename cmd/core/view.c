/* view.c - `tessera view FILE... -o page.html`: a picture of the trace, in one HTML file. */
#define _POSIX_C_SOURCE 200809L

#include <unistd.h>

#include "page.h"
#include "terminal/terminal.h"

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
     .choices = tsr_page_groupings,
     .synonyms = TSR_GROUPING_SYNONYMS},
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
    .about =
        {.name = "view",
         .summary = "show memory over time, as one HTML file or in the terminal",
         .description =
             "Writes a page that draws the memory of a trace over time, by category or "
             "another grouping, down to single blocks. For any moment or range it shows which "
             "stacks held what, as a table and as a flame graph, and where the blocks were in "
             "their segments. Two moments, or two files, can be compared.\n\nThe page opens "
             "in any recent browser, from a disk or an attachment: it contains its data, "
             "needs no network, and is at most 20 MB. For a trace too long for that it "
             "contains the largest allocations individually and aggregates the rest, exactly "
             "at the highest and lowest moment of each of 8192 parts of the trace.\n\nOn a "
             "terminal and without -o, the timeline is drawn there: of one file, or of two, one "
             "above the other. Its keys are those of the page; ? lists them, and Q quits. Colours "
             "and braille dots are used where the terminal has them.",
         .parameters = parameters,
         .parameter_count = VIEW_PARAMETERS,
         .examples = {{"tessera view snapshot.pickle",
                       "in the terminal; with -o page.html, a page of the snapshot"},
                      {"tessera view --by stream --capacity 80GiB -o page.html snapshot.pickle",
                       "by stream, with the card's memory as a line"},
                      {"tessera view --rules rules.yaml -o page.html snapshot.pickle",
                       "by your own groups"},
                      {"tessera view -o both.html before.pickle after.pickle",
                       "two, side by side"}}},
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
                  "stops it. With tessera.html after the address, it is "
                  "the page of 'tessera page', where that is installed.\n\nBy default it listens "
                  "on an address that other machines cannot "
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
    .confines = true,
    .lacks = "json output",
    .run = cli_serve,
};

static int save(cli_session *session, const cli_page *page, void *context) {
  (void)context;
  return tsr_page_write(page->page, cli_output_write, &session->output, &session->error);
}

int cli_view(cli_session *session) {
  if (!session->options->output && isatty(STDOUT_FILENO)) {
    if (isatty(STDIN_FILENO) && !session->options->json) return cli_terminal_view(session);
    if (session->options->json)
      return cli_usage_error(session->options->command,
                             "a terminal cannot show a page; use -o page.html");
    return cli_usage_error(session->options->command,
                           "standard input is no terminal, so the timeline cannot be moved with "
                           "keys; use -o page.html for a page");
  }
  int status = session->options->output
                   ? cli_page_check_name(session->options, session->options->output)
                   : 0;
  if (status) return status;
  return cli_with_page(session, false, save, NULL);
}
