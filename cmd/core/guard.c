/* guard.c - no command writes over a file that it reads. See guard.h.
 *
 * Which files a command reads and writes is in the rows of its options: a path that is written says
 * so (is_written), a lock is written with --update, and every other path is read, as operands are.
 * Two outputs must differ as well. Only regular files count: /dev/null or a pipe is not replaced, and
 * a text that an option takes in place of a file is no path. */
#define _POSIX_C_SOURCE 200809L

#include "guard.h"

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

/* Whether two outputs would be the same file, which need not exist yet. */
static bool is_same_target(const char *output, const char *other) {
  struct stat existing;
  if (stat(output, &existing) == 0 || is_standard(other)) return is_same(output, other);
  char *a = cli_output_target(output), *b = cli_output_target(other);
  bool is_equal = a && b && strcmp(a, b) == 0;
  free(a);
  free(b);
  return is_equal;
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

static int refuse(const cli_options *options, const char *output, const char *other) {
  if (strcmp(output, other) == 0)
    return cli_usage_error(options->command,
                           "the output '%s' is also an input; write to another file", output);
  return cli_usage_error(options->command,
                         "the output '%s' is the same file as '%s'; write to another file", output,
                         is_standard(other) ? "standard input" : other);
}

/* `own` is the row of the option that names the output, which is not compared with itself; NULL if
 * none does: then only inputs are compared. */
static int guard_one(const cli_options *options, const tsr_parameter *own, const char *output) {
  const tsr_parameter *row;
  if (is_standard(output)) return 0;
  for (size_t i = 0; i < options->operand_count; i++) {
    const char *operand = options->operands[i];
    bool is_file = options->command->reads_files || cli_is_model_file(operand);
    if (is_file && is_same(output, operand)) return refuse(options, output, operand);
  }
  for (size_t i = 0; (row = cli_option_at(options->command, i)) != NULL; i++) {
    const char *other = row == own ? NULL : path_of(options, row);
    if (!other) continue;
    if (!is_output(options, row)) {
      if (is_same(output, other)) return refuse(options, output, other);
    } else if (own && is_same_target(output, other)) {
      return cli_usage_error(options->command, "two outputs go to the same file, '%s'", output);
    }
  }
  return 0;
}

int cli_keep_inputs_from(const cli_options *options, const char *path) {
  return guard_one(options, NULL, path);
}

int cli_keep_inputs(const cli_options *options) {
  const tsr_parameter *row;
  int status = 0;
  for (size_t i = 0; !status && (row = cli_option_at(options->command, i)) != NULL; i++) {
    const char *path = path_of(options, row);
    if (path && is_output(options, row)) status = guard_one(options, row, path);
  }
  return status;
}

int cli_keep_sidecar(const cli_options *options, const char *path, const char *owner) {
  const tsr_parameter *row;
  for (size_t i = 0; path && (row = cli_option_at(options->command, i)) != NULL; i++) {
    const char *output = path_of(options, row);
    if (!output || !is_output(options, row) || is_standard(output) || !is_same(output, path))
      continue;
    return cli_usage_error(options->command,
                           "the output '%s' is the sidecar of '%s'; write to another file", output,
                           owner);
  }
  return 0;
}
