/* command.c - see command.h: the options that commands share, and those that a command takes. */
#include "command.h"

#include <assert.h>
#include <string.h>

/* ---- Options that commands share ---- */

/* Which commands take a shared option: FILES: those that read snapshots; STACKS: also those whose answer has stacks.
 * OURS: all but drop-ins. */
typedef enum takers { FILES, STACKS, ANSWERS, OURS, ALL } takers;

static const tsr_parameter shared[] = {
    {.name = "device",
     .kind = TSR_PARAMETER_DEVICES,
     .argument = "N|all",
     .help = "Only device N, 'host' for pinned CPU memory, or 'cpu' for the CPU memory of a "
             "profiler's trace. For several, separate them by commas "
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
     .help = "Do not print warnings about the file, notes, progress bars, or the names of written "
             "files."},
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
    {.name = "help_all",
     .option = "help-all",
     .kind = TSR_PARAMETER_FLAG,
     .help = "Show all of it: every option and paragraph."},
    {.name = "version", .kind = TSR_PARAMETER_FLAG, .help = "Print tessera's version."},
};

enum { SHARED = sizeof shared / sizeof *shared };

/* By row of `shared`. */
static const takers shared_takers[] = {FILES,  FILES, STACKS, ANSWERS, ANSWERS, ANSWERS, ANSWERS,
                                       STACKS, FILES, FILES,  FILES,   ALL,     OURS,    ALL};
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
  case STACKS: return command->reads_files || command->about.has_stacks;
  case ANSWERS: return cli_command_takes_files(command);
  case OURS: return !command->is_drop_in;
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

const tsr_parameter *cli_option_named(const cli_command *command, const char *name, size_t length) {
  const tsr_parameter *row;
  for (size_t i = 0; (row = cli_option_at(command, i)) != NULL; i++)
    if (tsr_word_is(name, length, cli_option_name(row))) return row;
  return NULL;
}

const tsr_parameter *cli_option_lettered(const cli_command *command, char letter) {
  const tsr_parameter *row;
  for (size_t i = 0; (row = cli_option_at(command, i)) != NULL; i++)
    if (row->letter == letter) return row;
  return NULL;
}

bool cli_option_names_file(const tsr_parameter *row) {
  switch (row->kind) {
  case TSR_PARAMETER_OBJECT:
  case TSR_PARAMETER_FILE:
  case TSR_PARAMETER_PATH:
  case TSR_PARAMETER_SNAPSHOT: return true;
  default: return false;
  }
}

/* ---- Operands ---- */

const char *cli_command_operands(const cli_command *command) {
  return command->operands ? command->operands : command->operand_words;
}

bool cli_command_takes_files(const cli_command *command) {
  return command->reads_files || command->answers;
}
