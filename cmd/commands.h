/* commands.h - the command line as data: one row per command, one row per option.
 *
 * The parser, the help texts, the manual pages and the shell completions all read these rows, so a
 * new command or option is one new row (and the function that does the work).
 */
#ifndef CLI_COMMANDS_H
#define CLI_COMMANDS_H

#include <stdbool.h>
#include <stddef.h>

/* Documented in cli_exits, which the manual pages print. */
typedef enum cli_exit {
  CLI_ANSWERED = 0,
  CLI_CHECK_FAILED = 1,
  CLI_USAGE = 2,
  CLI_INPUT = 3,
  CLI_FAULT = 4
} cli_exit;

struct cli_session;

/* Answers the question: 0, or a negative tsr_status described by the session's error, or the
 * cli_exit status of a failure that it has explained already. */
typedef int cli_command_fn(struct cli_session *session);

/* A name and a sentence about it. */
typedef struct cli_note {
  const char *name;
  const char *text;
} cli_note;

#define CLI_EXAMPLES_MAX 4

typedef struct cli_command {
  const char *name;
  const char *summary;     /* a few words for the list of commands, no full stop */
  const char *description; /* paragraphs, an empty line between them */
  const char *operands;    /* as in the usage line, one word each; [WORD] is optional */
  size_t operand_min, operand_max;
  bool reads_files;  /* operands are snapshots; takes the shared options */
  bool answers;      /* reads none, but takes the options that are about answers */
  bool writes_aside; /* -o is for something besides the answer, which stays on standard output */
  bool is_drop_in;   /* a program of its own name, with its own options: see mosaic.h */
  cli_note examples[CLI_EXAMPLES_MAX]; /* command line and what it does; ends at a NULL name */
  cli_command_fn *run;
} cli_command;

/* Whether its operands may be files. */
bool cli_command_takes_files(const cli_command *command);

/* What an option's argument is, and the type of its field in cli_options. */
typedef enum cli_kind {
  CLI_FLAG,    /* no argument; bool */
  CLI_NUMBER,  /* uint64_t */
  CLI_CHOICE,  /* one of `choices`; int, the index of the word */
  CLI_TEXT,    /* const char * */
  CLI_FILE,    /* a file's name; const char * */
  CLI_DEVICES, /* device numbers with commas, or "all"; cli_devices. May be repeated */
  CLI_INTEGER, /* perhaps negative; cli_integer */
  CLI_TRUTH,   /* true or false, yes or no, ...; bool */
  CLI_TEXTS,   /* cli_texts; may be repeated */
} cli_kind;

#define CLI_CHOICES_MAX 14

/* `takers` of an option that every command takes, whether it reads files or not. */
#define CLI_EVERY_COMMAND "*"
/* ... and one that every command takes that answers a question. */
#define CLI_EVERY_ANSWER "+"

typedef struct cli_option {
  const char *name; /* without the dashes; '_' may be typed for its '-' */
  char letter;      /* short form, or 0 */
  cli_kind kind;
  const char *argument;                 /* how help names the argument; NULL for a flag */
  const char *help;                     /* one or two sentences */
  const char *takers;                   /* commands that take it, blanks between; NULL: all that
                                           read files */
  const char *not_for;                  /* of those, the ones that do not */
  const char *choices[CLI_CHOICES_MAX]; /* of a CLI_CHOICE; ends at NULL */
  size_t field;                         /* its offset in cli_options */
} cli_option;

/* The tables end at a row whose name is NULL. */
extern const cli_command cli_commands[];
extern const cli_option cli_option_rows[];
/* The same for the commands that stand in for another program's (mosaic.c). */
extern const cli_command cli_drop_ins[];
extern const cli_option cli_drop_in_rows[];
extern const cli_note cli_exits[];
extern const cli_note cli_environment[];

/* What tessera is: one line, and paragraphs for its own manual page. */
extern const char cli_tagline[];
extern const char cli_description[];

/* The row with that name, drop-ins included, or NULL. */
const cli_command *cli_command_find(const char *name);
/* The table of a command's options: cli_option_rows, or a drop-in's. NULL is any command of
 * tessera's own. */
const cli_option *cli_options_of(const cli_command *command);
/* Whether `command` takes the option; with NULL, whether any command does. */
bool cli_option_applies(const cli_option *option, const cli_command *command);
/* Whether it is one of the options that all commands about files share. */
bool cli_option_is_shared(const cli_option *option);

#endif
