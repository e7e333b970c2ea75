/* docs_completion.c - completion scripts for bash, zsh and fish.
 *
 * Each script completes, in this order: the command; the options that the command takes; the words
 * allowed as an option's argument; files, or for `help` the commands. The differences between the
 * shells are syntax and quoting; zsh and fish show the help texts, bash cannot.
 */
#include <string.h>

#include "docs.h"

static bool takes_file(const tsr_parameter *row) {
  switch (row->kind) {
  case TSR_PARAMETER_FILE:
  case TSR_PARAMETER_PATH:
  case TSR_PARAMETER_SNAPSHOT: return true;
  default: return false;
  }
}

/* Of a choice with a number ("chunked:N") what stands before the number. */
static int choice_length(const char *choice) {
  size_t length = strcspn(choice, ":");
  return (int)(choice[length] ? length + 1 : length);
}

/* The words allowed as an argument, separated by blanks; nothing if any text is allowed. */
static void print_choices(FILE *stream, const tsr_parameter *row) {
  for (int i = 0; row->choices && row->choices[i]; i++)
    fprintf(stream, "%s%.*s", i ? " " : "", choice_length(row->choices[i]), row->choices[i]);
  if (row->kind == TSR_PARAMETER_DEVICES) fputs("all", stream);
}

static bool has_choices(const tsr_parameter *row) {
  return row->choices || row->kind == TSR_PARAMETER_DEVICES;
}

static void print_command_names(FILE *stream) {
  for (size_t i = 0; i < cli_command_count(); i++)
    fprintf(stream, "%s%s", i ? " " : "", cli_command_at(i).about.name);
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
static void print_short_help(FILE *stream, const tsr_parameter *row, const char *specials,
                             const char *quote) {
  char text[256], whole[TSR_PARAMETER_HELP_BYTES];
  const char *help = tsr_parameter_help(row, whole, sizeof whole), *end = strstr(help, ". ");
  size_t length = end ? (size_t)(end - help) : strlen(help);
  if (length > 0 && help[length - 1] == '.') length--;
  snprintf(text, sizeof text, "%.*s", (int)length, help);
  print_quoted(stream, text, specials, quote);
}

/* ---- bash ---- */

/* One `case` branch on "COMMAND OPTION", the words before: what completes the option's argument. */
static void bash_argument(FILE *stream, const char *command, const tsr_parameter *row) {
  if (!cli_option_has_argument(row)) return;
  fputs("    ", stream);
  if (row->letter) fprintf(stream, "'%s -%c'|", command, row->letter);
  fprintf(stream, "'%s --%s') ", command, cli_option_name(row));
  if (takes_file(row)) {
    fputs("COMPREPLY=($(compgen -f -- \"$word\")); ", stream);
  } else if (has_choices(row)) {
    fputs("COMPREPLY=($(compgen -W '", stream);
    print_choices(stream, row);
    fputs("' -- \"$word\")); ", stream);
  }
  fputs("return ;;\n", stream);
}

/* Options of one name differ between commands. */
static void bash_arguments(FILE *stream) {
  for (size_t c = 0; c < cli_command_count(); c++) {
    cli_command command = cli_command_at(c);
    const tsr_parameter *row;
    for (size_t i = 0; (row = cli_option_at(&command, i)) != NULL; i++)
      bash_argument(stream, command.about.name, row);
  }
}

/* `case` branches on the command: its options. */
static void bash_options(FILE *stream) {
  for (size_t c = 0; c < cli_command_count(); c++) {
    cli_command command = cli_command_at(c);
    const tsr_parameter *row;
    fprintf(stream, "    %s) options='", command.about.name);
    for (size_t i = 0; (row = cli_option_at(&command, i)) != NULL; i++)
      fprintf(stream, "--%s ", cli_option_name(row));
    fprintf(stream, "'%s ;;\n", cli_command_takes_files(&command) ? "" : "; files=''");
  }
  fputs("    *) options='--help --version'; files='' ;;\n", stream);
}

void cli_complete_bash(FILE *stream) {
  fputs("# bash completion for tessera; written by gendocs.\n"
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
        "  case \"$command $before\" in\n",
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
static void zsh_argument(FILE *stream, const tsr_parameter *row) {
  if (!cli_option_has_argument(row)) return;
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

static void zsh_option(FILE *stream, const tsr_parameter *row) {
  const char *equals = !cli_option_has_argument(row) ? "" : "=";
  const char *again = row->kind == TSR_PARAMETER_DEVICES ? "*" : "";
  fputs("        ", stream);
  if (row->letter) {
    fprintf(stream, "'(-%c --%s)'{-%c%s,--%s%s}'[", row->letter, cli_option_name(row), row->letter,
            !cli_option_has_argument(row) ? "" : "+", cli_option_name(row), equals);
  } else {
    fprintf(stream, "'%s--%s%s[", again, cli_option_name(row), equals);
  }
  print_short_help(stream, row, "[]:\\", "'\\''");
  fputc(']', stream);
  zsh_argument(stream, row);
  fputs("' \\\n", stream);
}

void cli_complete_zsh(FILE *stream) {
  fputs("#compdef tessera\n"
        "# zsh completion for tessera; written by gendocs.\n"
        "_tessera() {\n"
        "  local curcontext=$curcontext state line\n"
        "  local -a commands=(\n",
        stream);
  for (size_t i = 0; i < cli_command_count(); i++) {
    cli_command row = cli_command_at(i);
    fprintf(stream, "    '%s:", row.about.name);
    print_quoted(stream, row.about.summary, "\\", "'\\''");
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
  for (size_t c = 0; c < cli_command_count(); c++) {
    cli_command command = cli_command_at(c);
    const tsr_parameter *row;
    fprintf(stream, "    %s)\n      _arguments \\\n", command.about.name);
    for (size_t i = 0; (row = cli_option_at(&command, i)) != NULL; i++) zsh_option(stream, row);
    fprintf(stream, "        %s ;;\n",
            cli_command_takes_files(&command) ? "'*:file:_files'"
                                              : "'1:command:{_describe command commands}'");
  }
  fputs("    esac ;;\n  esac\n}\n_tessera \"$@\"\n", stream);
}

/* ---- fish ---- */

static void fish_option(FILE *stream, const cli_command *command, const tsr_parameter *row) {
  fprintf(stream, "complete -c tessera -n '__fish_seen_subcommand_from %s' -l %s",
          command->about.name, cli_option_name(row));
  if (row->letter) fprintf(stream, " -s %c", row->letter);
  if (takes_file(row)) fputs(" -rF", stream);
  if (!takes_file(row) && cli_option_has_argument(row)) fputs(" -x", stream);
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
  fputs("# fish completion for tessera; written by gendocs.\n"
        "set -l commands ",
        stream);
  print_command_names(stream);
  fputs("\ncomplete -c tessera -n \"not __fish_seen_subcommand_from $commands\" -f\n", stream);
  for (size_t i = 0; i < cli_command_count(); i++) {
    cli_command row = cli_command_at(i);
    fprintf(stream,
            "complete -c tessera -n \"not __fish_seen_subcommand_from $commands\" -a %s -d '",
            row.about.name);
    print_quoted(stream, row.about.summary, "\\", "\\'");
    fputs("'\n", stream);
  }
  for (size_t c = 0; c < cli_command_count(); c++) {
    cli_command command = cli_command_at(c);
    const tsr_parameter *row;
    for (size_t i = 0; (row = cli_option_at(&command, i)) != NULL; i++)
      fish_option(stream, &command, row);
    if (!cli_command_takes_files(&command))
      fprintf(stream,
              "complete -c tessera -n '__fish_seen_subcommand_from %s' -f -a \"$commands\"\n",
              command.about.name);
  }
}
