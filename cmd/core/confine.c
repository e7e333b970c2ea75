/* confine.c - see confine.h. docs/decisions/066-confinement.md
 *
 * The outputs are known from the rows of the command's options (guard.h), so a new one needs nothing here. Outputs whose names
 * are derived from an option's, as those of ranks are, go to the same folder. */
#define _POSIX_C_SOURCE 200809L

#include "confine.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "guard.h"
#include "output.h"
#include "sandbox.h"

enum { PLACES_MOST = 32 };

typedef struct places {
  cli_place list[PLACES_MOST];
  char *paths[PLACES_MOST]; /* owned */
  size_t count;
  bool is_incomplete; /* memory ran out */
} places;

/* Takes the path; NULL is skipped: writing there fails with a reason of its own. */
static void add(places *p, char *path, bool makes_folders) {
  if (!path) {
    p->is_incomplete |= errno == ENOMEM;
    return;
  }
  assert(p->count < PLACES_MOST);
  p->paths[p->count] = path;
  p->list[p->count++] = (cli_place){.path = path, .makes_folders = makes_folders};
}

static void add_outputs(places *p, const cli_options *options) {
  const tsr_parameter *row;
  for (size_t i = 0; (row = cli_option_at(options->command, i)) != NULL; i++) {
    const char *path = cli_output_path(options, row);
    if (path && strcmp(path, "-") != 0) add(p, cli_output_place(path), false);
  }
}

/* Of one that is absent, the folder that it will be made in. */
static void add_folder(places *p, const char *path) {
  struct stat found;
  if (!path) return;
  bool is_there = stat(path, &found) == 0;
  char *name = strdup(path);
  for (size_t i = name ? strlen(name) : 0; i > 1 && name[i - 1] == '/'; i--) name[i - 1] = '\0';
  if (!name) p->is_incomplete = true;
  if (name) add(p, cli_output_place(name), !is_there);
  free(name);
}

void cli_confine(const cli_options *options, const cli_needs *more) {
  const cli_needs none = {.folder_count = 0};
  places p = {.count = 0};
  if (!options->may_confine) return;
  if (!more) more = &none;
  add_outputs(&p, options);
  for (size_t i = 0; i < more->folder_count; i++) add_folder(&p, more->folders[i]);
  /* A command that is short of memory must not be told that it may not write. */
  if (!p.is_incomplete) (void)cli_sandbox_files(p.list, p.count, true);
  (void)cli_sandbox_calls(
      &(cli_sandbox_use){.accepts = more->accepts, .writes = p.count > 0 || p.is_incomplete});
  while (p.count) free(p.paths[--p.count]);
}

void cli_confine_no_files(const cli_options *options) {
  if (options->may_confine && !CLI_CHECKS_LEAKS) (void)cli_sandbox_files(NULL, 0, false);
}
