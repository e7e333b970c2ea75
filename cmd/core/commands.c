/* commands.c - the commands: the registry's questions, then those of the command line alone.
 *
 *   question   src/reader/questions/NAME/question.c     asked by cli_ask, or by the function of `own_ways`
 *   other      cmd/core/NAME.c                   does what it likes
 *
 * To add a question, see src/ground/ask/question.h: nothing here names it. To add another command,
 * write its row and function in its own file and add the row to `others`.
 *
 * Texts are plain: no markup, no line breaks inside a paragraph. They reach terminals, troff and three
 * shells, and the code that prints them there quotes what needs quoting.
 */
#include "commands.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "mosaic/mosaic.h"
#include "session.h"

const char cli_tagline[] = "where the memory of a GPU job went";

const char cli_description[] =
    "tessera reads the memory snapshots that PyTorch writes with "
    "torch.cuda.memory._dump_snapshot() and answers questions about them: what is in the file, "
    "what held the memory at the peak, and what that memory was for.\n\nAnswers go to standard "
    "output, everything else to standard error. A snapshot is data: nothing in it is ever "
    "executed. FILE may be '-' for standard input.";

/* ---- Options that commands share ---- */

/* Which commands take a shared option: those that read snapshots, those that answer, or all. */
typedef enum takers { FILES, ANSWERS, ALL } takers;

static const tsr_parameter shared[] = {
    {.name = "device",
     .kind = TSR_PARAMETER_DEVICES,
     .argument = "N|all",
     .help = "Only device N, or 'host' for pinned CPU memory. For several, separate them by commas "
             "or repeat the option (default: all that have events or segments)."},
    {.name = "top",
     .kind = TSR_PARAMETER_COUNT,
     .argument = "N",
     .help = "List at most N entries, 0 for all (default: 10). Omitted entries are counted.",
     .fallback = 10},
    {.name = "full_stacks",
     .option = "full-stacks",
     .kind = TSR_PARAMETER_FLAG,
     .help = "Also show the frames of the framework and the interpreter."},
    {.name = "json", .kind = TSR_PARAMETER_FLAG, .help = "Print one JSON object instead of text."},
    {.name = "output",
     .letter = 'o',
     .kind = TSR_PARAMETER_PATH,
     .is_written = true,
     .argument = "FILE",
     .help =
         "Write the answer to FILE instead of standard output; for simulate, the snapshot. "
         "FILE is replaced only when the output is complete, and must not be an input. A name that "
         "ends in .json selects JSON; names of other formats are refused."},
    {.name = "color",
     .kind = TSR_PARAMETER_CHOICE,
     .argument = "WHEN",
     .help = "Use colours: auto (default; on a terminal), always or never.",
     .choices = (const char *const[]){"auto", "always", "never", NULL}},
    {.name = "quiet",
     .letter = 'q',
     .kind = TSR_PARAMETER_FLAG,
     .help = "Do not print warnings about the file, progress bars, or the names of written files."},
    {.name = "verbose", .letter = 'v', .kind = TSR_PARAMETER_FLAG, .help = "Print more columns."},
    {.name = "strict",
     .kind = TSR_PARAMETER_FLAG,
     .help = "Treat warnings about the file as errors: print them and fail."},
    {.name = "sidecar",
     .kind = TSR_PARAMETER_PATH,
     .argument = "FILE",
     .help = "Read the names of tensors and the card's memory from FILE, the sidecar that "
             "tessera.record wrote next to the first snapshot (default: found by its name); none "
             "ignores it."},
    {.name = "payload",
     .kind = TSR_PARAMETER_COUNT,
     .argument = "N",
     .help = "Read the N-th snapshot of an HTML page that contains several (default: 1)."},
    {.name = "help", .letter = 'h', .kind = TSR_PARAMETER_FLAG, .help = "Show this help."},
    {.name = "version", .kind = TSR_PARAMETER_FLAG, .help = "Print tessera's version."},
};

enum { SHARED = sizeof shared / sizeof *shared };

/* By row of `shared`. */
static const takers shared_takers[] = {FILES, FILES, FILES, ANSWERS, ANSWERS, ANSWERS, ANSWERS,
                                       FILES, FILES, FILES, FILES,   ALL,     ALL};
static_assert(sizeof shared_takers / sizeof *shared_takers == SHARED, "a taker for each option");

/* Whether `word` is one of the words of `list`. */
static bool has_word(const char *list, const char *word) {
  size_t length = strlen(word);
  for (const char *at = list; at && (at = strstr(at, word)) != NULL; at += length) {
    bool starts = at == list || at[-1] == ' ';
    bool ends = at[length] == ' ' || at[length] == '\0';
    if (starts && ends) return true;
  }
  return false;
}

static bool takes_shared(const cli_command *command, size_t index) {
  if (has_word(command->lacks, shared[index].name)) return false;
  switch (shared_takers[index]) {
  case FILES: return command->reads_files;
  case ANSWERS: return cli_command_takes_files(command);
  case ALL: break;
  }
  return true;
}

const tsr_parameter *cli_shared_options(size_t *count) {
  *count = SHARED;
  return shared;
}

bool cli_option_is_shared(const tsr_parameter *option) {
  return option >= shared && option < shared + SHARED;
}

const char *cli_option_name(const tsr_parameter *option) {
  return tsr_parameter_spelling(option, TSR_INTERFACE_COMMAND);
}

bool cli_option_has_argument(const tsr_parameter *option) {
  return option->kind != TSR_PARAMETER_FLAG;
}

const tsr_parameter *cli_option_at(const cli_command *command, size_t index) {
  const tsr_parameter *row;
  for (size_t i = 0; command && (row = tsr_question_parameter(&command->about, i)); i++) {
    if (row->is_operand || row->hidden_from & TSR_INTERFACE_COMMAND) continue;
    if (index-- == 0) return row;
  }
  for (size_t i = 0; i < SHARED; i++)
    if (!command || takes_shared(command, i))
      if (index-- == 0) return &shared[i];
  return NULL;
}

/* The first option of any command that is called or lettered so. */
static const tsr_parameter *find_anywhere(const char *name, size_t length, char letter) {
  for (size_t i = 0; i < cli_command_count(); i++) {
    cli_command command = cli_command_at(i);
    const tsr_parameter *row =
        name ? cli_option_named(&command, name, length) : cli_option_lettered(&command, letter);
    if (row) return row;
  }
  return NULL;
}

const tsr_parameter *cli_option_named(const cli_command *command, const char *name, size_t length) {
  if (!command) return find_anywhere(name, length, 0);
  const tsr_parameter *row;
  for (size_t i = 0; (row = cli_option_at(command, i)) != NULL; i++)
    if (tsr_word_is(name, length, cli_option_name(row))) return row;
  return NULL;
}

const tsr_parameter *cli_option_lettered(const cli_command *command, char letter) {
  if (!command) return find_anywhere(NULL, 0, letter);
  const tsr_parameter *row;
  for (size_t i = 0; (row = cli_option_at(command, i)) != NULL; i++)
    if (row->letter == letter) return row;
  return NULL;
}

/* ---- Commands ---- */

/* Questions with which the command line does more than print the answer. */
static const struct {
  const char *name;
  cli_command_fn *run;
  bool writes_aside;    /* -o is for the snapshot that the question makes */
  const char *operands; /* more than its parameters; at most `operand_max` of them */
  size_t operand_max;
  const char *lacks;
} own_ways[] = {{"profile", cli_profile, false, NULL, 0, NULL},
                {"check", cli_check, false, NULL, 0, NULL},
                {"simulate", cli_simulate, true, NULL, 0, NULL},
                {"plan", cli_plan, false, "MODEL | show FILE [MODEL]", 3, "color verbose quiet"}};

static const cli_command *const others[] = {&cli_train_row,  &cli_sample_row, &cli_report_row,
                                            &cli_export_row, &cli_trim_row,   &cli_mcp_row,
                                            &cli_view_row,   &cli_serve_row,  &cli_help_row};

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
  for (size_t i = 0; i < question->subject_count; i++, command.operand_max++)
    add_word(command.operand_words, sizeof command.operand_words, question->subjects[i].argument);
  const tsr_parameter *row;
  for (size_t i = 0; (row = tsr_question_parameter(question, i)); i++) {
    if (!row->is_operand || row->kind == TSR_PARAMETER_FLAG) continue;
    add_word(command.operand_words, sizeof command.operand_words, row->argument);
    command.operand_max++;
  }
  command.operand_min = command.operand_max;
  for (size_t i = 0; i < sizeof own_ways / sizeof *own_ways; i++) {
    if (strcmp(own_ways[i].name, question->name) != 0) continue;
    command.run = own_ways[i].run;
    command.writes_aside = own_ways[i].writes_aside;
    command.lacks = own_ways[i].lacks;
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

const char *cli_command_operands(const cli_command *command) {
  return command->operands ? command->operands : command->operand_words;
}

bool cli_command_takes_files(const cli_command *command) {
  return command->reads_files || command->answers;
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
    {NULL, NULL},
};
