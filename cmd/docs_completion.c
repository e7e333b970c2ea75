/* docs_completion.c - completion scripts for bash, zsh and fish.
 *
 * Each script completes, in this order: the command; the options that the command takes; the words
 * that an option's argument can be; files, or for `help` the commands. What differs between the
 * shells is syntax and quoting: zsh and fish show the help texts, bash has no place for them.
 */
#include <string.h>

#include "docs.h"

static bool takes_file(const cli_option *row) {
  return row->kind == CLI_FILE;
}

/* The words an argument can be, with blanks between; nothing when it is free. */
static void print_choices(FILE *stream, const cli_option *row) {
  for (int i = 0; row->choices[i]; i++) fprintf(stream, "%s%s", i ? " " : "", row->choices[i]);
  if (row->kind == CLI_DEVICES) fputs("all", stream);
}

static bool has_choices(const cli_option *row) {
  return row->choices[0] || row->kind == CLI_DEVICES;
}

static void print_command_names(FILE *stream) {
  for (const cli_command *row = cli_commands; row->name; row++)
    fprintf(stream, "%s%s", row == cli_commands ? "" : " ", row->name);
}

/* A word inside single quotes, where `specials` are escaped by a backslash and a quote by
 * `quote`. */
static void print_quoted(FILE *stream, const char *text, const char *specials, const char *quote) {
  for (; *text; text++) {
    if (*text == '\'') {
      fputs(quote, stream);
    } else {
      if (strchr(specials, *text)) fputc('\\', stream);
      fputc(*text, stream);
    }
  }
}

/* The first sentence of an option's help, as a short description. */
static void print_short_help(FILE *stream, const cli_option *row, const char *specials,
                             const char *quote) {
  char text[256];
  const char *end = strstr(row->help, ". ");
  size_t length = end ? (size_t)(end - row->help) : strlen(row->help);
  if (length > 0 && row->help[length - 1] == '.') length--;
  snprintf(text, sizeof text, "%.*s", (int)length, row->help);
  print_quoted(stream, text, specials, quote);
}

/* ---- bash ---- */

/* `case` branches on the word before: what completes an option's argument. */
static void bash_arguments(FILE *stream) {
  for (const cli_option *row = cli_option_rows; row->name; row++) {
    if (row->kind == CLI_FLAG) continue;
    fputs("    ", stream);
    if (row->letter) fprintf(stream, "-%c|", row->letter);
    fprintf(stream, "--%s) ", row->name);
    if (takes_file(row)) {
      fputs("COMPREPLY=($(compgen -f -- \"$word\")); ", stream);
    } else if (has_choices(row)) {
      fputs("COMPREPLY=($(compgen -W '", stream);
      print_choices(stream, row);
      fputs("' -- \"$word\")); ", stream);
    }
    fputs("return ;;\n", stream);
  }
}

/* `case` branches on the command: its options. */
static void bash_options(FILE *stream) {
  for (const cli_command *command = cli_commands; command->name; command++) {
    fprintf(stream, "    %s) options='", command->name);
    for (const cli_option *row = cli_option_rows; row->name; row++)
      if (cli_option_applies(row, command)) fprintf(stream, "--%s ", row->name);
    fprintf(stream, "'%s ;;\n", cli_command_takes_files(command) ? "" : "; files=''");
  }
  fputs("    *) options='--help --version'; files='' ;;\n", stream);
}

void cli_complete_bash(FILE *stream) {
  fputs("# bash completion for tessera; written by gendocs from cmd/commands.c.\n"
        "_tessera() {\n"
        "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}\n"
        "  local command='' options='' files=yes at\n"
        "  local commands='",
        stream);
  print_command_names(stream);
  fputs("'\n"
        "  COMPREPLY=()\n"
        "  for ((at = 1; at < COMP_CWORD; at++)); do\n"
        "    if [[ \" $commands \" == *\" ${COMP_WORDS[at]} \"* ]]; then\n"
        "      command=${COMP_WORDS[at]}\n"
        "      break\n"
        "    fi\n"
        "  done\n"
        "  case $before in\n",
        stream);
  bash_arguments(stream);
  fputs("  esac\n  case $command in\n", stream);
  bash_options(stream);
  fputs("  esac\n"
        "  if [[ $word == -* ]]; then\n"
        "    COMPREPLY=($(compgen -W \"$options\" -- \"$word\"))\n"
        "  elif [[ $files ]]; then\n"
        "    COMPREPLY=($(compgen -f -- \"$word\"))\n"
        "  else\n"
        "    COMPREPLY=($(compgen -W \"$commands\" -- \"$word\"))\n"
        "  fi\n"
        "}\n"
        "complete -o filenames -F _tessera tessera\n",
        stream);
}

/* ---- zsh ---- */

/* ":NAME:ACTION" of an option's argument. */
static void zsh_argument(FILE *stream, const cli_option *row) {
  if (row->kind == CLI_FLAG) return;
  fputc(':', stream);
  print_quoted(stream, row->argument, ":", "'\\''");
  fputc(':', stream);
  if (takes_file(row)) {
    fputs("_files", stream);
  } else if (has_choices(row)) {
    fputc('(', stream);
    print_choices(stream, row);
    fputc(')', stream);
  }
}

static void zsh_option(FILE *stream, const cli_option *row) {
  const char *equals = row->kind == CLI_FLAG ? "" : "=";
  const char *again = row->kind == CLI_DEVICES ? "*" : "";
  fputs("        ", stream);
  if (row->letter) {
    fprintf(stream, "'(-%c --%s)'{-%c%s,--%s%s}'[", row->letter, row->name, row->letter,
            row->kind == CLI_FLAG ? "" : "+", row->name, equals);
  } else {
    fprintf(stream, "'%s--%s%s[", again, row->name, equals);
  }
  print_short_help(stream, row, "[]:\\", "'\\''");
  fputc(']', stream);
  zsh_argument(stream, row);
  fputs("' \\\n", stream);
}

void cli_complete_zsh(FILE *stream) {
  fputs("#compdef tessera\n"
        "# zsh completion for tessera; written by gendocs from cmd/commands.c.\n"
        "_tessera() {\n"
        "  local curcontext=$curcontext state line\n"
        "  local -a commands=(\n",
        stream);
  for (const cli_command *row = cli_commands; row->name; row++) {
    fprintf(stream, "    '%s:", row->name);
    print_quoted(stream, row->summary, "\\", "'\\''");
    fputs("'\n", stream);
  }
  fputs("  )\n"
        "  _arguments -C '(-h --help)'{-h,--help}'[Explain tessera]' '--version[Print the "
        "version]' '1:command:->command' '*::operand:->operand'\n"
        "  case $state in\n"
        "  command) _describe command commands ;;\n"
        "  operand)\n"
        "    case $line[1] in\n",
        stream);
  for (const cli_command *command = cli_commands; command->name; command++) {
    fprintf(stream, "    %s)\n      _arguments \\\n", command->name);
    for (const cli_option *row = cli_option_rows; row->name; row++)
      if (cli_option_applies(row, command)) zsh_option(stream, row);
    fprintf(stream, "        %s ;;\n",
            cli_command_takes_files(command) ? "'*:file:_files'"
                                             : "'1:command:{_describe command commands}'");
  }
  fputs("    esac ;;\n  esac\n}\n_tessera \"$@\"\n", stream);
}

/* ---- fish ---- */

static void fish_option(FILE *stream, const cli_command *command, const cli_option *row) {
  fprintf(stream, "complete -c tessera -n '__fish_seen_subcommand_from %s' -l %s", command->name,
          row->name);
  if (row->letter) fprintf(stream, " -s %c", row->letter);
  if (takes_file(row)) fputs(" -rF", stream);
  if (!takes_file(row) && row->kind != CLI_FLAG) fputs(" -x", stream);
  if (has_choices(row)) {
    fputs(" -a '", stream);
    print_choices(stream, row);
    fputc('\'', stream);
  }
  fputs(" -d '", stream);
  print_short_help(stream, row, "\\", "\\'");
  fputs("'\n", stream);
}

void cli_complete_fish(FILE *stream) {
  fputs("# fish completion for tessera; written by gendocs from cmd/commands.c.\n"
        "set -l commands ",
        stream);
  print_command_names(stream);
  fputs("\ncomplete -c tessera -n \"not __fish_seen_subcommand_from $commands\" -f\n", stream);
  for (const cli_command *row = cli_commands; row->name; row++) {
    fprintf(stream,
            "complete -c tessera -n \"not __fish_seen_subcommand_from $commands\" -a %s -d '",
            row->name);
    print_quoted(stream, row->summary, "\\", "\\'");
    fputs("'\n", stream);
  }
  for (const cli_command *command = cli_commands; command->name; command++) {
    for (const cli_option *row = cli_option_rows; row->name; row++)
      if (cli_option_applies(row, command)) fish_option(stream, command, row);
    if (!cli_command_takes_files(command))
      fprintf(stream,
              "complete -c tessera -n '__fish_seen_subcommand_from %s' -f -a \"$commands\"\n",
              command->name);
  }
}
