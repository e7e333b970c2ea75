/* options.c - the parser of the command line, driven by the rows of commands.h.
 *
 * A line is read twice, unless the program's own name is the command, as that of a drop-in's link is.
 * The first pass only looks for the command: the first word that is neither an option nor an option's
 * argument. The second pass knows the command, so it can distinguish an option that does not exist
 * from one that belongs elsewhere, and sets each value by its name (tsr_params), which checks it.
 * Operands are gathered at the front of argv, whose words there have been read already.
 *
 * The forms are those of GNU: --name value, --name=value, -o value, -ovalue, letters together
 * (-qv), and "--" before operands that start with a dash; "-" alone is an operand. '-' and '_'
 * inside a name are the same. Abbreviated names are errors with a suggestion, so that an option
 * added later never changes what a script means.
 *
 * The first thing wrong ends the parse, in two lines on standard error.
 */
#include "options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tessera/unstable/suggest.h>
#include <unistd.h>

#include "commands.h"
#include "textfile.h"

/* Letters that no shell reads as more than themselves. */
static const char plain_letters[] =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:,=+@%";

/* Where the second pass is. */
typedef struct parser {
  char **argv;
  int argc;
  int at; /* word being read */
  cli_options *options;
} parser;

/* Words that users type for a command that has another name. */
static const tsr_synonym command_synonyms[] = {
    {"oom", "why"},           {"explain", "why"},      {"memory", "peak"},   {"compare", "diff"},
    {"estimate", "simulate"}, {"predict", "simulate"}, {"timeline", "view"}, {"query", "sql"},
    {"convert", "export"},    {"optimize", "plan"},    {NULL, NULL}};

/* NULL for what looks like a file's name. */
static const char *nearest_command(const char *name) {
  tsr_suggestion nearest = tsr_suggestion_start(name, strlen(name));
  for (const tsr_synonym *one = command_synonyms; one->typed; one++)
    if (tsr_word_is(name, strlen(name), one->typed)) return one->meant;
  if (strpbrk(name, "./")) return NULL;
  for (size_t i = 0; i < cli_command_count(); i++)
    tsr_suggestion_offer(&nearest, cli_command_at(i).about.name);
  return nearest.best;
}

int cli_unknown_command(const char *name) {
  const char *meant = nearest_command(name);
  if (meant) return cli_usage_error(NULL, "unknown command '%s'; did you mean '%s'?", name, meant);
  if (access(name, F_OK) == 0)
    return cli_usage_error(NULL, "'%s' is a file, not a command; did you mean 'tessera peak %s'?",
                           name, name);
  return cli_usage_error(NULL, "unknown command '%s'", name);
}

/* ---- Options ---- */

static bool is_option(const char *word) {
  return word[0] == '-' && word[1] != '\0';
}

/* An option of that name, or letter if `name` is NULL, of any of tessera's own commands; NULL if none has it. */
static const tsr_parameter *find_anywhere(const char *name, size_t length, char letter) {
  for (size_t i = 0; i < cli_command_count(); i++) {
    cli_command command = cli_command_at(i);
    const tsr_parameter *row =
        name ? cli_option_named(&command, name, length) : cli_option_lettered(&command, letter);
    if (row) return row;
  }
  return NULL;
}

/* The same of a command, or of any if it is not known. */
static const tsr_parameter *find_named(const cli_command *command, const char *name,
                                       size_t length) {
  return command ? cli_option_named(command, name, length) : find_anywhere(name, length, 0);
}

static const tsr_parameter *find_lettered(const cli_command *command, char letter) {
  return command ? cli_option_lettered(command, letter) : find_anywhere(NULL, 0, letter);
}

/* Options that users type for a command that has another one for it. */
static const struct {
  const char *command, *typed, *meant;
} option_synonyms[] = {{"plan", "capacity", "budget"}, {"simulate", "budget", "capacity"}};

static const char *meant_option(const cli_command *command, const char *name, size_t length) {
  for (size_t i = 0; command && i < sizeof option_synonyms / sizeof *option_synonyms; i++)
    if (strcmp(option_synonyms[i].command, command->about.name) == 0 &&
        tsr_word_is(name, length, option_synonyms[i].typed))
      return option_synonyms[i].meant;
  return NULL;
}

static int unknown_option(const cli_command *command, const char *name, size_t length) {
  const tsr_parameter *row;
  const char *meant = meant_option(command, name, length);
  if (find_named(NULL, name, length))
    return cli_usage_error(command, "option '--%.*s' does not apply to this command%s%s%s",
                           (int)length, name, meant ? "; did you mean '--" : "", meant ? meant : "",
                           meant ? "'?" : "");
  tsr_suggestion nearest = tsr_suggestion_start(name, length);
  for (size_t i = 0; (row = cli_option_at(command, i)) != NULL; i++)
    tsr_suggestion_offer(&nearest, cli_option_name(row));
  if (!nearest.best) return cli_usage_error(command, "unknown option '--%.*s'", (int)length, name);
  return cli_usage_error(command, "unknown option '--%.*s'; did you mean '--%s'?", (int)length,
                         name, nearest.best);
}

/* A list that an option gives in parts, joined by commas; NULL if memory ran out. The caller's. */
static char *join_list(const char *before, const char *more) {
  size_t room = strlen(before) + strlen(more) + 2;
  char *list = malloc(room);
  if (list) (void)snprintf(list, room, "%s,%s", before, more);
  return list;
}

/* Set a text. Words of a list that are in several options of the same name count together. */
static int set_text(tsr_params *params, const tsr_parameter *row, const char *value,
                    tsr_error *error) {
  const char *name = cli_option_name(row);
  bool is_list = row->kind == TSR_PARAMETER_TEXT && row->argument && !strcmp(row->argument, "LIST");
  if (!is_list || !tsr_params_has(params, row->name))
    return tsr_params_set_text(params, name, value, strlen(value), error);
  char *list = join_list(tsr_params_text(params, row->name), value);
  int status =
      list ? tsr_params_set_text(params, name, list, strlen(list), error) : TSR_ERROR_MEMORY;
  free(list);
  return status;
}

/* `value` is NULL for an option without an argument. Before the command is known to be missing, its
 * options have no place to go and are skipped. */
static int set_value(parser *parse, const tsr_parameter *row, const char *value) {
  const char *name = cli_option_name(row);
  tsr_params *params = cli_option_is_shared(row) ? parse->options->shared : parse->options->own;
  tsr_error error = {.status = TSR_OK};
  int status;
  if (!params) return 0;
  if (!value)
    status = tsr_params_set_integer(params, name, 1, &error);
  else if (cli_option_names_file(row))
    status = tsr_params_set_path(params, name, value, &error);
  else
    status = set_text(params, row, value, &error);
  return status ? cli_params_error(parse->options->command, status, &error) : 0;
}

/* ---- Words ---- */

/* Store the option's value: what is attached to it, else the next word. */
static int take_value(parser *parse, const tsr_parameter *row, const char *attached) {
  const cli_command *command = parse->options->command;
  if (!cli_option_has_argument(row)) {
    if (attached)
      return cli_usage_error(command, "option '--%s' takes no argument", cli_option_name(row));
    return set_value(parse, row, NULL);
  }
  if (!attached && parse->at + 1 >= parse->argc)
    return cli_usage_error(command, "option '--%s' needs an argument: %s", cli_option_name(row),
                           row->argument);
  return set_value(parse, row, attached ? attached : parse->argv[++parse->at]);
}

static int take_long(parser *parse, const char *name) {
  size_t length = strcspn(name, "=");
  const tsr_parameter *row = find_named(parse->options->command, name, length);
  if (!row) return unknown_option(parse->options->command, name, length);
  return take_value(parse, row, name[length] ? name + length + 1 : NULL);
}

static int take_letters(parser *parse, const char *letters) {
  const cli_command *command = parse->options->command;
  for (const char *at = letters; *at; at++) {
    const tsr_parameter *row = find_lettered(command, *at);
    if (!row && command && find_lettered(NULL, *at))
      return cli_usage_error(command, "option '-%c' does not apply to this command", *at);
    if (!row) return cli_usage_error(command, "unknown option '-%c'", *at);
    bool takes_rest = cli_option_has_argument(row);
    int status = take_value(parse, row, takes_rest && at[1] ? at + 1 : NULL);
    if (status || takes_rest) return status;
  }
  return 0;
}

/* How many words the option in `word` takes, itself included; 0 when no command knows it. */
static int option_words(const char *word) {
  if (word[1] != '-') {
    const tsr_parameter *row = find_lettered(NULL, *++word);
    while (row && !cli_option_has_argument(row) && word[1]) row = find_lettered(NULL, *++word);
    if (!row) return 0;
    return cli_option_has_argument(row) && !word[1] ? 2 : 1;
  }
  size_t length = strcspn(word + 2, "=");
  const tsr_parameter *row = find_named(NULL, word + 2, length);
  if (!row) return 0;
  return cli_option_has_argument(row) && !word[2 + length] ? 2 : 1;
}

/* Whether the program was started by the name of a drop-in, which is `*out` then. */
static bool find_program(const char *path, cli_command *out) {
  const char *slash = strrchr(path, '/');
  cli_command command;
  if (!cli_command_find(slash ? slash + 1 : path, &command) || !command.is_drop_in) return false;
  *out = command;
  return true;
}

/* The command's place in argv; 0 if absent, or after an unknown option, because what follows
 * may be its argument. */
static int find_command(int argc, char **argv) {
  int words = 1;
  for (int i = 1; i < argc && words > 0; i += words) {
    if (!is_option(argv[i])) return i;
    if (strcmp(argv[i], "--") == 0) return i + 1 < argc ? i + 1 : 0;
    words = option_words(argv[i]);
  }
  return 0;
}

/* Whether check is about more than a snapshot: a folder, a list, a pattern or sketches. */
static bool is_of_fleet(const char *operand) {
  size_t length = strlen(operand);
  static const char ending[] = ".sketch";
  enum { ENDING_LENGTH = sizeof ending - 1 };
  if (cli_is_folder(operand) || *operand == '@') return true;
  if (strpbrk(operand, "*?[") && access(operand, F_OK) != 0) return true;
  return length > ENDING_LENGTH && strcmp(operand + length - ENDING_LENGTH, ending) == 0;
}

/* Whether a command line of check is a question about ranks: of a fleet, or of several files, with options that ranks has. */
static bool is_fleet_check(int argc, char **argv, int command_at, const cli_command *ranks) {
  size_t operands = 0;
  bool is_fleet = false;
  for (int i = 1, words; i < argc; i += words) {
    words = 1;
    if (i == command_at) continue;
    if (strcmp(argv[i], "--") == 0) return false;
    if (is_option(argv[i])) {
      bool is_long = argv[i][1] == '-';
      words = option_words(argv[i]);
      if (!words) return false;
      if (is_long && !find_named(ranks, argv[i] + 2, strcspn(argv[i] + 2, "="))) return false;
    } else {
      operands++;
      is_fleet = is_fleet || is_of_fleet(argv[i]);
    }
  }
  return is_fleet || operands > 1;
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
    return cli_usage_error(command, "unexpected operand '%s'; the command takes %s",
                           options->operands[command->operand_max], cli_command_operands(command));
  if (count >= command->operand_min) return 0;
  const char *missing = cli_command_operands(command);
  for (; count > 0; count--) missing += strcspn(missing, " ") + 1;
  return cli_usage_error(command, "missing %.*s", (int)strcspn(missing, " "), missing);
}

/* The file of -o, an option that a command may have itself under another name. */
static const char *read_output(const cli_options *options) {
  const tsr_parameter *row = options->command ? cli_option_lettered(options->command, 'o') : NULL;
  bool is_own = row && !cli_option_is_shared(row);
  return tsr_params_text(is_own ? options->own : options->shared, is_own ? row->name : "output");
}

/* The shared options, for all to read. */
static void read_shared(cli_options *options) {
  const tsr_params *shared = options->shared;
  int color = tsr_params_choice(shared, "color");
  options->devices = tsr_params_devices(shared, "device", &options->device_count);
  options->sidecar = tsr_params_text(shared, "sidecar");
  options->output = read_output(options);
  options->top = tsr_params_count(shared, "top");
  options->payload = tsr_params_count(shared, "payload");
  options->color = color < 0 ? CLI_COLOR_AUTO : (cli_color)color;
  options->json = tsr_params_flag(shared, "json");
  options->full_stacks = tsr_params_flag(shared, "full_stacks");
  options->quiet = tsr_params_flag(shared, "quiet");
  options->verbose = tsr_params_flag(shared, "verbose");
  options->strict = tsr_params_flag(shared, "strict");
  options->help_all = tsr_params_flag(shared, "help_all");
  options->help = options->help_all || tsr_params_flag(shared, "help");
  options->version = tsr_params_flag(shared, "version");
}

/* Values at their defaults, for the shared options and those of the command, if there is one. */
static int make_params(cli_options *options) {
  const cli_command *command = options->command;
  size_t count;
  tsr_error error;
  const tsr_parameter *rows = cli_shared_options(&count);
  int status = tsr_params_new(rows, count, TSR_INTERFACE_COMMAND, &options->shared, &error);
  if (status == 0 && command)
    status = tsr_params_new(command->about.parameters, command->about.parameter_count,
                            TSR_INTERFACE_COMMAND, &options->own, &error);
  return status ? cli_params_error(command, status, &error) : 0;
}

/* The words with blanks between, quoted where a shell would read more into them; NULL if memory ran out. The caller's. */
static char *typed_line(int argc, char **argv) {
  size_t room = 1;
  for (int i = 1; i < argc; i++) room += 4 * strlen(argv[i]) + 3;
  char *line = malloc(room), *to = line;
  for (int i = 1; line && i < argc; i++) {
    bool is_plain = *argv[i] && !argv[i][strspn(argv[i], plain_letters)];
    if (to != line) *to++ = ' ';
    if (!is_plain) *to++ = '\'';
    for (const char *at = argv[i]; *at; at++) {
      bool is_quote = *at == '\'';
      memcpy(to, is_quote ? "'\\''" : at, is_quote ? 4 : 1);
      to += is_quote ? 4 : 1;
    }
    if (!is_plain) *to++ = '\'';
  }
  if (line) *to = '\0';
  return line;
}

int cli_parse(int argc, char **argv, cli_options *options) {
  *options = (cli_options){.operands = argv, .typed = typed_line(argc, argv)};
  if (!options->typed) return cli_params_error(NULL, TSR_ERROR_MEMORY, NULL);
  int command_at = 0;
  if (argc > 0 && find_program(argv[0], &options->row))
    options->command = &options->row;
  else
    command_at = find_command(argc, argv);
  if (command_at) {
    if (!cli_command_find(argv[command_at], &options->row))
      return cli_unknown_command(argv[command_at]);
    options->command = &options->row;
  }
  cli_command ranks;
  if (command_at && !strcmp(options->row.about.name, "check") &&
      cli_command_find("ranks", &ranks) && is_fleet_check(argc, argv, command_at, &ranks)) {
    options->row = ranks;
    options->is_fleet_check = true;
  }
  parser parse = {.argv = argv, .argc = argc, .options = options};
  int status = make_params(options);
  if (status == 0) status = read_words(&parse, command_at);
  if (status) return status;
  read_shared(options);
  if (options->help || options->version) return 0;
  if (options->command) return check_operands(options);
  fputs("usage: tessera COMMAND [options] FILE\n", stderr);
  return cli_usage_error(NULL, "no command given");
}

void cli_options_release(cli_options *options) {
  tsr_params_free(options->own);
  tsr_params_free(options->shared);
  free(options->typed);
}
