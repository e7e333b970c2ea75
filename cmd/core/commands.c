/* commands.c - the commands: the registry's questions, then those of the command line alone.
 *
 *   question   src/reader/questions/NAME/question.c     asked by cli_ask, or by the function of `own_ways`
 *   other      cmd/core/NAME.c                   does what it likes
 *
 * To add a question, see src/ground/ask/question.h: nothing here names it. To add another command,
 * write its row and function in its own file and add the row to `others`. No command calls anything of this file, so
 * that one can be read without the others: what it needs of its own row is in command.h.
 *
 * Texts are plain: no markup, no line breaks inside a paragraph. They reach terminals, troff and three
 * shells, and the code that prints them there quotes what needs quoting.
 */
#include "commands.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "session.h"

const char cli_tagline[] = "where the memory of a GPU job went";

const char cli_description[] =
    "tessera reads the memory snapshots that PyTorch writes with "
    "torch.cuda.memory._dump_snapshot() and answers questions about them: what is in the file, "
    "what held the memory at the peak, and what that memory was for.\n\nAnswers go to standard "
    "output, everything else to standard error. A snapshot is data: nothing in it is ever "
    "executed. FILE may be '-' for standard input.";

/* ---- Commands ---- */

/* Questions with which the command line does more than print the answer. */
static const struct {
  const char *name;
  cli_command_fn *run;
  bool writes_aside;    /* -o is for the snapshot that the question makes */
  const char *operands; /* more than its parameters; at most `operand_max` of them */
  size_t operand_max;
  const char *lacks;
  bool confines;
} own_ways[] = {{"profile", cli_profile, false, NULL, 0, NULL, false},
                {"check", cli_check, false, NULL, 0, NULL, false},
                {"ranks", cli_ask_ranks, false, NULL, 0, NULL, true},
                {"card", cli_ask_card, false, NULL, 0, NULL, false},
                {"simulate", cli_simulate, true, NULL, 0, NULL, false},
                {"plan", cli_plan, false, "MODEL | show FILE [MODEL]", 3, "color verbose", false}};

/* Without a function: program.c runs it, because help needs this list. */
static const cli_command help_row = {
    .about = {.name = "help",
              .summary = "explain tessera, or one of its commands",
              .description = "Without COMMAND, lists the commands. With one, explains it and its "
                             "options, as 'tessera COMMAND --help' does.",
              .examples = {{"tessera help peak", "how to use tessera peak"}}},
    .operands = "[COMMAND]",
    .operand_max = 1,
};

/* Commands that are no questions, each in the file of its name (serve: view.c; page: browser.c; sql: cmd/sql/sql.c). */
extern const cli_command cli_report_row, cli_train_row, cli_sample_row, cli_export_row,
    cli_trace_row, cli_trim_row, cli_sql_row, cli_mcp_row, cli_view_row, cli_serve_row,
    cli_browser_row, cli_tokens_row, cli_doctor_row;

static const cli_command *const others[] = {
    &cli_train_row,  &cli_sample_row, &cli_tokens_row,  &cli_trace_row, &cli_doctor_row,
    &cli_report_row, &cli_export_row, &cli_trim_row,    &cli_sql_row,   &cli_mcp_row,
    &cli_view_row,   &cli_serve_row,  &cli_browser_row, &help_row};

static void add_word(char *words, size_t room, const char *word) {
  size_t used = strlen(words);
  assert(used + strlen(word) + 2 <= room);
  (void)snprintf(words + used, room - used, "%s%s", used ? " " : "", word);
}

/* The command that asks the question: FILE for its snapshot, and so on. */
static cli_command command_of(const tsr_question *question) {
  cli_command command = {.about = *question,
                         .reads_files = question->subject_count > 0,
                         .answers = true,
                         .run = cli_ask};
  bool takes_many = false;
  for (size_t i = 0; i < question->subject_count; i++, command.operand_max++)
    add_word(command.operand_words, sizeof command.operand_words, question->subjects[i].argument);
  const tsr_parameter *row;
  for (size_t i = 0; (row = tsr_question_parameter(question, i)); i++) {
    if (!row->is_operand || row->kind == TSR_PARAMETER_FLAG) continue;
    add_word(command.operand_words, sizeof command.operand_words, row->argument);
    command.operand_max++;
    takes_many = takes_many || row->kind == TSR_PARAMETER_TEXTS;
  }
  command.operand_min = command.operand_max;
  if (takes_many) command.operand_max = SIZE_MAX;
  for (size_t i = 0; i < sizeof own_ways / sizeof *own_ways; i++) {
    if (strcmp(own_ways[i].name, question->name) != 0) continue;
    command.run = own_ways[i].run;
    command.writes_aside = own_ways[i].writes_aside;
    command.lacks = own_ways[i].lacks;
    command.confines = own_ways[i].confines;
    if (!own_ways[i].operands) continue;
    command.operands = own_ways[i].operands;
    command.operand_min = 0;
    command.operand_max = own_ways[i].operand_max;
  }
  return command;
}

size_t cli_command_count(void) {
  return tsr_question_count() + sizeof others / sizeof others[0];
}

cli_command cli_command_at(size_t index) {
  size_t questions = tsr_question_count();
  assert(index < cli_command_count());
  return index < questions ? command_of(tsr_question_at(index)) : *others[index - questions];
}

bool cli_command_find(const char *name, cli_command *out) {
  for (size_t i = 0; i < cli_command_count() + cli_drop_in_count(); i++) {
    cli_command command =
        i < cli_command_count() ? cli_command_at(i) : cli_drop_in_at(i - cli_command_count());
    if (strcmp(command.about.name, name) != 0) continue;
    *out = command;
    return true;
  }
  return false;
}

const cli_note cli_exits[] = {
    {"0", "The question was answered."},
    {"1", "A check failed."},
    {"2", "The command line is wrong, or asks for a device that the file does not have."},
    {"3", "The input cannot be read, or is not a snapshot."},
    {"4", "The answer cannot be written, memory ran out, or an internal error occurred."},
    {NULL, NULL},
};

const cli_note cli_environment[] = {
    {"NO_COLOR", "When set and not empty, --color=auto means never."},
    {"TERM", "When it is dumb, --color=auto means never."},
    {"COLUMNS",
     "The width to which long names are shortened; the default is the width of the terminal. "
     "Without it, output to a file or a pipe is never shortened."},
    {"VIRTUAL_ENV, CONDA_PREFIX",
     "The active Python environment, whose Python traces a model that is not built in."},
    {"TESSERA_PYTHON", "The Python that does so if no environment is active (default: python3)."},
    {"TESSERA_MACHINE",
     "The file of what tessera doctor measured on this machine (default: tessera/machine.json in "
     "XDG_CONFIG_HOME or ~/.config); empty: none."},
    {"XDG_CACHE_HOME",
     "Where traced models are kept, in tessera/graphs (default: ~/.cache); 256 MiB at most."},
    {NULL, NULL},
};
