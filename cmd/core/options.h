/* options.h - the parsed command line. */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include <stdint.h>

#include "message.h"

/* In the order of --color's words. */
typedef enum cli_color { CLI_COLOR_AUTO, CLI_COLOR_ALWAYS, CLI_COLOR_NEVER } cli_color;

/* The shared options as fields, which every command needs; a command's own are in `own`. */
typedef struct cli_options {
  const cli_command *command; /* `row`; NULL when the line names none: then `help` or `version` is
                                 set */
  cli_command row;
  char **operands; /* what follows the command, in order; lives in argv */
  size_t operand_count;
  char *typed;        /* the line as it can be typed again, without the program  */
  tsr_params *own;    /* the command's parameters; NULL without a command */
  tsr_params *shared; /* what the fields below are read from, and point into */
  const uint32_t *devices;
  size_t device_count; /* 0: all */
  const char *sidecar; /* NULL: the one next to the snapshot */
  const char *output;  /* NULL: standard output */
  uint64_t top;
  uint64_t payload; /* 0: not given */
  cli_color color;
  bool json, full_stacks, quiet, verbose, strict, version;
  bool help, help_all; /* `help` is set with `help_all` */
  bool is_fleet_check; /* the line is of check, but about the files of ranks: `command` is ranks */
  bool may_confine;    /* set by the program: the process is the command's alone */
} cli_options;

/* Parse the command line. Options may stand anywhere, also before the command, up to "--". The
 * words of `argv` are rearranged. Returns 0, or the status to exit with after explaining on
 * standard error what is wrong. `*options` is to be released in either case, and must stay where it
 * is. */
int cli_parse(int argc, char **argv, cli_options *options);
void cli_options_release(cli_options *options);

/* cli_usage_error for a command that does not exist. */
int cli_unknown_command(const char *name);

#endif
