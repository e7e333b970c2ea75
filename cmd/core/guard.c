/* guard.c - no command writes over a file that it reads. See guard.h.
 *
 * Which files a command reads and writes is in the rows of its options: a path that is written says
 * so (is_written), a lock is written with --update, and every other path is read, as operands are. A
 * folder, which is that of a model or of a saved run, stands for the files that are opened in it.
 * Two outputs must differ as well. What cannot be found out for lack of memory is no permission: the
 * functions here that return an int return TSR_ERROR_MEMORY then. Only regular files count: /dev/null or a pipe is not replaced, and
 * a text that an option takes in place of a file is no path. */
#define _POSIX_C_SOURCE 200809L

#include "guard.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "output.h"
#include "textfile.h"

static bool is_standard(const char *path) {
  return strcmp(path, "-") == 0;
}

static bool find_regular(const char *path, struct stat *out) {
  int status = is_standard(path) ? fstat(STDIN_FILENO, out) : stat(path, out);
  return status == 0 && S_ISREG(out->st_mode);
}

/* Whether writing to `output` would replace `other`. */
static bool is_same(const char *output, const char *other) {
  struct stat a, b;
  return find_regular(output, &a) && find_regular(other, &b) && a.st_dev == b.st_dev &&
         a.st_ino == b.st_ino;
}

const char *const cli_tokenizer_files[] = {
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "chat_template.jinja",
    "generation_config.json",
    NULL,
};

/* Whether a model or a run has a file of that name in its folder: config.json, weights, their index, and those of a tokenizer. */
static bool is_name_of_model(const char *name) {
  for (size_t i = 0; cli_tokenizer_files[i]; i++)
    if (strcmp(name, cli_tokenizer_files[i]) == 0) return true;
  return strcmp(name, "config.json") == 0 || strstr(name, ".safetensors") != NULL;
}

/* Whether a file of a folder is this one. A path that is too long for a name in it cannot be opened either. */
static bool is_file_of(const char *folder, const char *name, const struct stat *file) {
  char path[4096];
  struct stat found;
  int length = snprintf(path, sizeof path, "%s/%s", folder, name);
  return length > 0 && (size_t)length < sizeof path && stat(path, &found) == 0 &&
         found.st_dev == file->st_dev && found.st_ino == file->st_ino;
}

/* 1 if writing to `output` would replace `other`, or a file in this folder; else 0. */
static int is_replaced(const char *output, const char *other) {
  struct stat a;
  if (is_same(output, other)) return 1;
  if (!find_regular(output, &a)) return 0;
  DIR *folder = opendir(other);
  if (!folder && errno == ENOMEM) return TSR_ERROR_MEMORY;
  const struct dirent *entry;
  bool is_found = false;
  while (folder && !is_found && (entry = readdir(folder)) != NULL)
    is_found = is_name_of_model(entry->d_name) && is_file_of(other, entry->d_name, &a);
  if (folder) closedir(folder);
  return is_found;
}

bool cli_is_same_folder(const char *a, const char *b) {
  struct stat x, y;
  return a && b && stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev &&
         x.st_ino == y.st_ino;
}

/* cli_output_target, which leaves NULL for what cannot be written. Returns 0 or TSR_ERROR_MEMORY. */
static int find_target(const char *path, char **out) {
  *out = cli_output_target(path);
  return !*out && errno == ENOMEM ? TSR_ERROR_MEMORY : 0;
}

/* 1 if two outputs would be the same file, which need not exist yet; else 0. */
static int is_same_target(const char *output, const char *other) {
  struct stat existing;
  if (stat(output, &existing) == 0 || is_standard(other)) return is_same(output, other);
  char *a = NULL, *b = NULL;
  int status = find_target(output, &a);
  if (status == 0) status = find_target(other, &b);
  if (status == 0 && a && b) status = strcmp(a, b) == 0;
  free(a);
  free(b);
  return status;
}

static bool is_output(const cli_options *options, const tsr_parameter *row) {
  if (row->written_with) return tsr_params_flag(options->own, row->written_with);
  return row->is_written;
}

/* The file that an option of the command line names, or NULL. */
static const char *path_of(const cli_options *options, const tsr_parameter *row) {
  if (!cli_option_names_file(row)) return NULL;
  const tsr_params *params = cli_option_is_shared(row) ? options->shared : options->own;
  const char *path = tsr_params_text(params, row->name);
  return path && *path ? path : NULL;
}

const char *cli_output_path(const cli_options *options, const tsr_parameter *row) {
  bool has_default = !cli_option_is_shared(row) && options->command->default_output;
  if (!is_output(options, row)) return NULL;
  if (has_default && !tsr_params_text(options->own, row->name))
    return options->command->default_output;
  return path_of(options, row);
}

static int refuse(const cli_options *options, const char *output, const char *other) {
  if (strcmp(output, other) == 0)
    return cli_usage_error(options->command,
                           "the output '%s' is also an input; write to another file", output);
  if (!is_same(output, other))
    return cli_usage_error(options->command,
                           "the output '%s' is a file of '%s', an input; write to another file",
                           output, other);
  return cli_usage_error(options->command,
                         "the output '%s' is the same file as '%s'; write to another file", output,
                         is_standard(other) ? "standard input" : other);
}

/* Compare `output` with operands and with what options name. */
typedef struct guard {
  const cli_options *options;
  const char *output;
  const tsr_parameter *
      own; /* the option that names the output, not compared with itself; NULL: only inputs are compared */
  const char
      *spared; /* a folder in which files may be replaced, although it is an input; NULL: none */
} guard;

static int guard_one(const guard *g) {
  const cli_options *options = g->options;
  const tsr_parameter *row;
  if (is_standard(g->output)) return 0;
  for (size_t i = 0; i < options->operand_count; i++) {
    const char *operand = options->operands[i];
    bool is_file = options->command->reads_files || cli_is_model_file(operand);
    bool counts = is_file && !cli_is_same_folder(operand, g->spared);
    int found = counts ? is_replaced(g->output, operand) : 0;
    if (found) return found < 0 ? found : refuse(options, g->output, operand);
  }
  for (size_t i = 0; (row = cli_option_at(options->command, i)) != NULL; i++) {
    const char *other = row == g->own ? NULL : path_of(options, row);
    if (!other || cli_is_same_folder(other, g->spared)) continue;
    bool is_input = !is_output(options, row);
    int found = is_input ? is_replaced(g->output, other)
                : g->own ? is_same_target(g->output, other)
                         : 0;
    if (found < 0) return found;
    if (found && is_input) return refuse(options, g->output, other);
    if (found)
      return cli_usage_error(options->command, "two outputs go to the same file, '%s'", g->output);
  }
  return 0;
}

int cli_keep_inputs_from(const cli_options *options, const char *path) {
  return guard_one(&(guard){.options = options, .output = path});
}

int cli_keep_inputs(const cli_options *options) {
  const tsr_parameter *row;
  int status = 0;
  for (size_t i = 0; !status && (row = cli_option_at(options->command, i)) != NULL; i++) {
    const char *path = cli_output_path(options, row);
    if (path) status = guard_one(&(guard){.options = options, .own = row, .output = path});
  }
  return status;
}

/* The snapshot that writing to `output` would replace; NULL if it would replace none. */
static const char *rank_file(const tsr_ranks *ranks, const char *output) {
  struct stat a, b;
  const char *path;
  if (is_standard(output) || !find_regular(output, &a)) return NULL;
  for (size_t i = 0; (path = tsr_ranks_file(ranks, i)) != NULL; i++)
    if (stat(path, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino) return path;
  return NULL;
}

int cli_keep_ranks(const cli_options *options, const tsr_ranks *ranks) {
  const tsr_parameter *row;
  for (size_t i = 0; (row = cli_option_at(options->command, i)) != NULL; i++) {
    const char *output = cli_output_path(options, row);
    const char *file = output ? rank_file(ranks, output) : NULL;
    if (file)
      return cli_usage_error(options->command,
                             "the output '%s' is a snapshot that was read; write to another file",
                             output);
  }
  return 0;
}

/* 1 if an output goes to a file that a run has in its folder; else 0. */
static int is_in_run(const char *output, const char *folder) {
  char *target = NULL;
  int status = is_standard(output) ? 0 : find_target(output, &target);
  char *slash = target ? strrchr(target, '/') : NULL;
  if (slash && is_name_of_model(slash + 1)) {
    slash[slash == target] = '\0';
    status = cli_is_same_folder(target, folder);
  }
  free(target);
  return status;
}

int cli_keep_inputs_in(const cli_options *options, const char *path, bool is_resumed) {
  const tsr_parameter *row;
  const struct dirent *entry;
  char name[4096];
  int status = 0;
  for (size_t i = 0; (row = cli_option_at(options->command, i)) != NULL; i++) {
    const char *output = cli_output_path(options, row);
    int found = output ? is_in_run(output, path) : 0;
    if (found < 0) return found;
    if (found)
      return cli_usage_error(options->command,
                             "the output '%s' is a file of the run that is saved to '%s'; write to "
                             "another file",
                             output, path);
  }
  DIR *folder = opendir(path);
  if (!folder && errno == ENOMEM) return TSR_ERROR_MEMORY;
  while (folder && !status && (entry = readdir(folder)) != NULL) {
    int length = snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
    if (is_name_of_model(entry->d_name) && length > 0 && (size_t)length < sizeof name)
      status = guard_one(
          &(guard){.options = options, .output = name, .spared = is_resumed ? path : NULL});
  }
  if (folder) closedir(folder);
  return status;
}

int cli_keep_sidecar(const cli_options *options, const char *path, const char *owner) {
  const tsr_parameter *row;
  for (size_t i = 0; path && (row = cli_option_at(options->command, i)) != NULL; i++) {
    const char *output = cli_output_path(options, row);
    if (!output || is_standard(output) || !is_same(output, path)) continue;
    return cli_usage_error(options->command,
                           "the output '%s' is the sidecar of '%s'; write to another file", output,
                           owner);
  }
  return 0;
}
