/* options.c - the parser of the command line, driven by the rows of commands.c.
 *
 * A line is read twice, unless the program's own name says the command, as that of a drop-in's link
 * does. The first pass only looks for the command: the first word that is neither
 * an option nor an option's argument. The second pass knows the command, so it can tell an option
 * that does not exist from one that belongs elsewhere, and stores each value through the offset in
 * its row. Operands are gathered at the front of argv, whose words there have been read already.
 *
 * The forms are those of GNU: --name value, --name=value, -o value, -ovalue, letters together
 * (-qv), and "--" before operands that start with a dash; "-" alone is an operand. '-' and '_'
 * inside a name are the same. Abbreviated names are errors with a suggestion, so that an option
 * added later never changes what a script means.
 *
 * The first thing wrong ends the parse, in two lines on standard error.
 */
#include "options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "suggest.h"

/* Where the second pass is. */
typedef struct parser {
  char **argv;
  int argc;
  int at; /* word being read */
  cli_options *options;
} parser;

int cli_usage_error(const cli_command *command, const char *format, ...) {
  const char *name = command ? command->name : NULL;
  va_list args;
  va_start(args, format);
  cli_vsay(name, format, args);
  va_end(args);
  if (command && command->is_drop_in)
    fprintf(stderr, "Try '%s --help'.\n", name);
  else
    fprintf(stderr, "Try 'tessera help%s%s'.\n", name ? " " : "", name ? name : "");
  return CLI_USAGE;
}

int cli_unknown_command(const char *name) {
  cli_suggestion nearest = cli_suggestion_start(name, strlen(name));
  for (const cli_command *row = cli_commands; row->name; row++)
    cli_suggestion_offer(&nearest, row->name);
  if (nearest.best)
    return cli_usage_error(NULL, "unknown command '%s'; did you mean '%s'?", name, nearest.best);
  if (access(name, F_OK) == 0)
    return cli_usage_error(NULL, "'%s' is a file, not a command; did you mean 'tessera peak %s'?",
                           name, name);
  return cli_usage_error(NULL, "unknown command '%s'", name);
}

/* ---- Finding rows ---- */

/* Whether the typed `length` characters are this option's name. */
static bool same_name(const char *typed, size_t length, const char *name) {
  if (strlen(name) != length) return false;
  for (size_t i = 0; i < length; i++)
    if ((typed[i] == '_' ? '-' : typed[i]) != name[i]) return false;
  return true;
}

static const cli_option *find_name(const cli_command *command, const char *name, size_t length) {
  for (const cli_option *row = cli_options_of(command); row->name; row++)
    if (cli_option_applies(row, command) && same_name(name, length, row->name)) return row;
  return NULL;
}

static const cli_option *find_letter(const cli_command *command, char letter) {
  for (const cli_option *row = cli_options_of(command); row->name; row++)
    if (row->letter == letter && cli_option_applies(row, command)) return row;
  return NULL;
}

static bool is_option(const char *word) {
  return word[0] == '-' && word[1] != '\0';
}

static int unknown_option(const cli_command *command, const char *name, size_t length) {
  if (find_name(NULL, name, length))
    return cli_usage_error(command, "option '--%.*s' does not apply to this command", (int)length,
                           name);
  cli_suggestion nearest = cli_suggestion_start(name, length);
  for (const cli_option *row = cli_options_of(command); row->name; row++)
    if (cli_option_applies(row, command)) cli_suggestion_offer(&nearest, row->name);
  if (!nearest.best) return cli_usage_error(command, "unknown option '--%.*s'", (int)length, name);
  return cli_usage_error(command, "unknown option '--%.*s'; did you mean '--%s'?", (int)length,
                         name, nearest.best);
}

/* ---- Values ---- */

static int set_number(parser *parse, const cli_option *row, const char *value, uint64_t *out) {
  uint64_t number = 0;
  const char *at = value;
  for (; *at >= '0' && *at <= '9'; at++) {
    unsigned digit = (unsigned)(*at - '0');
    if (number > (UINT64_MAX - digit) / 10) break;
    number = number * 10 + digit;
  }
  if (*at || at == value)
    return cli_usage_error(parse->options->command, "option '--%s' needs a number, not '%s'",
                           row->name, value);
  *out = number;
  return 0;
}

static int set_choice(parser *parse, const cli_option *row, const char *value, int *out) {
  char list[256] = "";
  for (int i = 0; row->choices[i]; i++) {
    if (strcmp(row->choices[i], value) == 0) {
      *out = i;
      return 0;
    }
    const char *between = i == 0 ? "" : row->choices[i + 1] ? ", " : " or ";
    size_t used = strlen(list);
    snprintf(list + used, sizeof list - used, "%s%s", between, row->choices[i]);
  }
  return cli_usage_error(parse->options->command, "option '--%s' takes %s, not '%s'", row->name,
                         list, value);
}

static int add_device(cli_devices *devices, uint32_t number) {
  for (size_t i = 0; i < devices->count; i++)
    if (devices->numbers[i] == number) return 0;
  uint32_t *grown = NULL;
  if (devices->count < SIZE_MAX / sizeof *grown - 1)
    grown = realloc(devices->numbers, (devices->count + 1) * sizeof *grown);
  if (!grown) {
    cli_say(NULL, "out of memory");
    return CLI_FAULT;
  }
  grown[devices->count++] = number;
  devices->numbers = grown;
  return 0;
}

/* A list such as "0,2" or "all". */
static int set_devices(parser *parse, const cli_option *row, const char *value,
                       cli_devices *devices) {
  for (const char *at = value;; at++) {
    size_t length = strcspn(at, ",");
    char *end = NULL;
    unsigned long number = *at >= '0' && *at <= '9' && length < 11 ? strtoul(at, &end, 10) : 0;
    if (length == 3 && memcmp(at, "all", 3) == 0) {
      devices->all = true;
    } else if (end == at + length && number < UINT32_MAX) {
      int status = add_device(devices, (uint32_t)number);
      if (status) return status;
    } else {
      return cli_usage_error(parse->options->command,
                             "option '--%s' needs device numbers or 'all', not '%s'", row->name,
                             value);
    }
    at += length;
    if (!*at) return 0;
  }
}

static int set_integer(parser *parse, const cli_option *row, const char *value, cli_integer *out) {
  char *end = NULL;
  errno = 0;
  long long number = strtoll(value, &end, 10);
  if (end == value || *end || errno)
    return cli_usage_error(parse->options->command, "option '--%s' needs a whole number, not '%s'",
                           row->name, value);
  *out = (cli_integer){.value = number, .is_given = true};
  return 0;
}

static int set_truth(parser *parse, const cli_option *row, const char *value, bool *out) {
  static const char *const words[] = {"true", "false", "yes", "no", "on", "off",
                                      "1",    "0",     "y",   "n",  "t",  "f"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (strcasecmp(words[i], value) == 0) {
      *out = i % 2 == 0;
      return 0;
    }
  return cli_usage_error(parse->options->command, "option '--%s' needs true or false, not '%s'",
                         row->name, value);
}

static int add_text(const char *value, cli_texts *texts) {
  const char **grown = NULL;
  if (texts->count < SIZE_MAX / sizeof *grown - 1)
    grown = realloc(texts->items, (texts->count + 1) * sizeof *grown);
  if (!grown) {
    cli_say(NULL, "out of memory");
    return CLI_FAULT;
  }
  grown[texts->count++] = value;
  texts->items = grown;
  return 0;
}

static int set_value(parser *parse, const cli_option *row, const char *value) {
  void *field = (char *)parse->options + row->field;
  switch (row->kind) {
  case CLI_FLAG: *(bool *)field = true; return 0;
  case CLI_NUMBER: return set_number(parse, row, value, field);
  case CLI_CHOICE: return set_choice(parse, row, value, field);
  case CLI_DEVICES: return set_devices(parse, row, value, field);
  case CLI_INTEGER: return set_integer(parse, row, value, field);
  case CLI_TRUTH: return set_truth(parse, row, value, field);
  case CLI_TEXTS: return add_text(value, field);
  case CLI_TEXT:
  case CLI_FILE: *(const char **)field = value; return 0;
  }
  return CLI_FAULT;
}

/* ---- Words ---- */

/* Store the option's value: what is attached to it, else the next word. */
static int take_value(parser *parse, const cli_option *row, const char *attached) {
  const cli_command *command = parse->options->command;
  if (row->kind == CLI_FLAG) {
    if (attached) return cli_usage_error(command, "option '--%s' takes no argument", row->name);
    return set_value(parse, row, NULL);
  }
  if (!attached && parse->at + 1 >= parse->argc)
    return cli_usage_error(command, "option '--%s' needs an argument: %s", row->name,
                           row->argument);
  return set_value(parse, row, attached ? attached : parse->argv[++parse->at]);
}

static int take_long(parser *parse, const char *name) {
  size_t length = strcspn(name, "=");
  const cli_option *row = find_name(parse->options->command, name, length);
  if (!row) return unknown_option(parse->options->command, name, length);
  return take_value(parse, row, name[length] ? name + length + 1 : NULL);
}

static int take_letters(parser *parse, const char *letters) {
  const cli_command *command = parse->options->command;
  for (const char *at = letters; *at; at++) {
    const cli_option *row = find_letter(command, *at);
    if (!row && find_letter(NULL, *at))
      return cli_usage_error(command, "option '-%c' does not apply to this command", *at);
    if (!row) return cli_usage_error(command, "unknown option '-%c'", *at);
    bool takes_rest = row->kind != CLI_FLAG;
    int status = take_value(parse, row, takes_rest && at[1] ? at + 1 : NULL);
    if (status || takes_rest) return status;
  }
  return 0;
}

/* How many words the option in `word` takes, itself included; 0 when no command knows it. */
static int option_words(const char *word) {
  if (word[1] != '-') {
    const cli_option *row = find_letter(NULL, *++word);
    while (row && row->kind == CLI_FLAG && word[1]) row = find_letter(NULL, *++word);
    if (!row) return 0;
    return row->kind != CLI_FLAG && !word[1] ? 2 : 1;
  }
  size_t length = strcspn(word + 2, "=");
  const cli_option *row = find_name(NULL, word + 2, length);
  if (!row) return 0;
  return row->kind != CLI_FLAG && !word[2 + length] ? 2 : 1;
}

/* The command whose name the program was started by; NULL for tessera itself. */
static const cli_command *find_program(const char *path) {
  const char *slash = strrchr(path, '/');
  const cli_command *command = cli_command_find(slash ? slash + 1 : path);
  return command && command->is_drop_in ? command : NULL;
}

/* The command's place in argv; 0 when there is none, or an unknown option stands before it: what
 * comes after may be its argument. */
static int find_command(int argc, char **argv) {
  int words = 1;
  for (int i = 1; i < argc && words > 0; i += words) {
    if (!is_option(argv[i])) return i;
    if (strcmp(argv[i], "--") == 0) return i + 1 < argc ? i + 1 : 0;
    words = option_words(argv[i]);
  }
  return 0;
}

static int read_words(parser *parse, int command_at) {
  cli_options *options = parse->options;
  bool ended = false;
  int status = 0;
  for (parse->at = 1; status == 0 && parse->at < parse->argc; parse->at++) {
    char *word = parse->argv[parse->at];
    if (parse->at == command_at) continue;
    if (ended || !is_option(word))
      options->operands[options->operand_count++] = word;
    else if (strcmp(word, "--") == 0)
      ended = true;
    else if (word[1] == '-')
      status = take_long(parse, word + 2);
    else
      status = take_letters(parse, word + 1);
  }
  return status;
}

static int check_operands(const cli_options *options) {
  const cli_command *command = options->command;
  size_t count = options->operand_count;
  if (count > command->operand_max && command->operand_max == 0)
    return cli_usage_error(command, "unexpected operand '%s'", options->operands[0]);
  if (count > command->operand_max)
    return cli_usage_error(command, "unexpected operand '%s'; it takes %s",
                           options->operands[command->operand_max], command->operands);
  if (count >= command->operand_min) return 0;
  const char *missing = command->operands;
  for (; count > 0; count--) missing += strcspn(missing, " ") + 1;
  return cli_usage_error(command, "missing %.*s", (int)strcspn(missing, " "), missing);
}

int cli_parse(int argc, char **argv, cli_options *options) {
  *options = (cli_options){
      .operands = argv,
      .top = 10,
      .by = -1,
      .view_by = -1,
      .action = -1,
      .batch = 1,
      .sequence = 512,
      .steps = 3,
      .accumulate = 1,
      .mosaic.print_stack = true,
      .mosaic.action = -1,
  };
  options->command = argc > 0 ? find_program(argv[0]) : NULL;
  int command_at = options->command ? 0 : find_command(argc, argv);
  if (command_at) {
    options->command = cli_command_find(argv[command_at]);
    if (!options->command) return cli_unknown_command(argv[command_at]);
  }
  parser parse = {.argv = argv, .argc = argc, .options = options};
  int status = read_words(&parse, command_at);
  if (status || options->help || options->version) return status;
  if (options->command) return check_operands(options);
  fputs("usage: tessera COMMAND [options] FILE\n", stderr);
  return cli_usage_error(NULL, "no command given");
}

void cli_options_release(cli_options *options) {
  free(options->devices.numbers);
  free(options->mosaic.annotations.items);
  free(options->matches.items);
  free(options->budgets.items);
}
