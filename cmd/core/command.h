/* command.h - one command as data: a row, with the options that it takes.
 *
 * A question's row is the registry's (tessera/registry.h), and the command line adds nothing to it but
 * the options that all commands share. Commands that are no questions (export, view, serve, ...) have
 * rows of the same type, each in its own file. The parser, the help texts, the manual pages and the
 * shell completions read these rows and nothing else; commands.h has the list of all.
 */
#ifndef CLI_COMMAND_H
#define CLI_COMMAND_H

#include <stdbool.h>
#include <stddef.h>
#include <tessera/tessera.h>
#include <tessera/unstable/params.h>

/* Documented in cli_exits, which the manual pages print. */
typedef enum cli_exit {
  CLI_ANSWERED = 0,
  CLI_CHECK_FAILED = 1,
  CLI_USAGE = 2,
  CLI_INPUT = 3,
  CLI_FAULT = 4
} cli_exit;

struct cli_session;

/* Run the command: 0, or a negative tsr_status described by the session's error, or the cli_exit
 * status of a failure that it has already explained. */
typedef int cli_command_fn(struct cli_session *session);

/* A name and a sentence about it. */
typedef struct cli_note {
  const char *name;
  const char *text;
} cli_note;

typedef struct cli_command {
  tsr_question about;   /* of a question, a copy of its row */
  const char *operands; /* as in the usage line, one word each; [WORD] is optional, WORD... repeats;
                           NULL: `operand_words` */
  size_t operand_min, operand_max;
  bool reads_files;  /* operands are snapshots; takes the options about them */
  bool answers;      /* reads none, but takes the options that are about answers */
  bool writes_aside; /* -o is for something besides the answer, which stays on standard output */
  bool is_drop_in;   /* its own program name, with its own options: see mosaic.h */
  bool confines; /* its function confines the process, when it knows what it needs (confine.h) */
  const char *default_output; /* what its option for an output has by default; NULL: no file */
  const char *lacks;          /* shared options that it does not take, blanks between; NULL: none */
  cli_command_fn *run;
  char operand_words[64]; /* of a question: its subjects and operands */
} cli_command;

/* The list of parameters of a cli_command's row. */
#define CLI_PARAMETERS(rows) .parameters = (rows), .parameter_count = sizeof(rows) / sizeof *(rows)

/* Its operands as in the usage line. */
const char *cli_command_operands(const cli_command *command);
/* Whether its operands may be files. */
bool cli_command_takes_files(const cli_command *command);

/* ---- Options ---- */

/* The options that commands share: an array of `*count` rows. */
const tsr_parameter *cli_shared_options(size_t *count);
/* The options of a command, its own first; of NULL, those that commands share. NULL at the end. */
const tsr_parameter *cli_option_at(const cli_command *command, size_t index);
/* An option by its name (of `length` bytes, '-' and '_' being the same) or by its letter. NULL if absent. */
const tsr_parameter *cli_option_named(const cli_command *command, const char *name, size_t length);
const tsr_parameter *cli_option_lettered(const cli_command *command, char letter);
/* How the option is typed, without its dashes. */
const char *cli_option_name(const tsr_parameter *option);
/* Whether it takes an argument. */
bool cli_option_has_argument(const tsr_parameter *option);
/* Whether it is one of the shared rows. */
bool cli_option_is_shared(const tsr_parameter *option);
/* Whether the option's value is the name of a file or folder. */
bool cli_option_names_file(const tsr_parameter *option);

#endif
