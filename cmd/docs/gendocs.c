/* gendocs.c - a build tool that writes tessera's manual pages and shell completions, and what else is generated.
 *
 *   gendocs man FOLDER                   tessera.1, a tessera-COMMAND.1 each, and a page for each
 *                                        drop-in, into FOLDER
 *   gendocs completion bash|zsh|fish     a script, to standard output
 *   gendocs page                         a page of docs, from standard input, with its generated tables brought up to date
 *   gendocs python                       python/tessera/_answers.py
 *   gendocs calls                        python/tessera/_calls.py
 *   gendocs fields                       every field of every answer, one a line
 *   gendocs contract                     what scripts rely on, one fact a line (docs/stability.md)
 *
 * It is linked with the table from which tessera parses its command line, so pages and scripts
 * cannot be out of date.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "docs.h"

/* Write one page: the command's, or if NULL tessera's own. */
static int write_page(const char *folder, const cli_command *command) {
  char path[4096];
  const char *prefix = !command ? "tessera" : command->is_drop_in ? "" : "tessera-";
  int length =
      snprintf(path, sizeof path, "%s/%s%s.1", folder, prefix, command ? command->about.name : "");
  if (length < 0 || (size_t)length >= sizeof path) {
    fprintf(stderr, "gendocs: %s: name too long\n", folder);
    return 1;
  }
  FILE *stream = fopen(path, "w");
  if (stream && command) cli_man_command(stream, command);
  if (stream && !command) cli_man_overview(stream);
  int failed = !stream || ferror(stream);
  if (stream && fclose(stream) != 0) failed = 1;
  if (failed) fprintf(stderr, "gendocs: %s: %s\n", path, strerror(errno));
  return failed;
}

static int write_pages(const char *folder) {
  int failed = write_page(folder, NULL);
  for (size_t i = 0; i < cli_command_count() + cli_drop_in_count(); i++) {
    size_t own = cli_command_count();
    cli_command command = i < own ? cli_command_at(i) : cli_drop_in_at(i - own);
    failed |= write_page(folder, &command);
  }
  return failed;
}

static int write_completion(const char *shell) {
  if (strcmp(shell, "bash") == 0)
    cli_complete_bash(stdout);
  else if (strcmp(shell, "zsh") == 0)
    cli_complete_zsh(stdout);
  else if (strcmp(shell, "fish") == 0)
    cli_complete_fish(stdout);
  else
    return 2;
  return fflush(stdout) != 0 || ferror(stdout);
}

static int write_fields(const char *what) {
  bool ok = true;
  if (strcmp(what, "page") == 0)
    ok = cli_docs_page(stdout, stdin);
  else if (strcmp(what, "python") == 0)
    cli_python_answers(stdout);
  else if (strcmp(what, "calls") == 0)
    cli_python_calls(stdout);
  else if (strcmp(what, "fields") == 0)
    cli_field_list(stdout);
  else if (strcmp(what, "contract") == 0)
    cli_contract(stdout);
  else
    return 2;
  return !ok || fflush(stdout) != 0 || ferror(stdout);
}

int main(int argc, char **argv) {
  int status = 2;
  if (argc == 3 && strcmp(argv[1], "man") == 0) status = write_pages(argv[2]);
  if (argc == 3 && strcmp(argv[1], "completion") == 0) status = write_completion(argv[2]);
  if (argc == 2) status = write_fields(argv[1]);
  if (status == 2)
    fputs("usage: gendocs man FOLDER | completion bash|zsh|fish | page | python | calls | fields | "
          "contract\n",
          stderr);
  return status;
}
