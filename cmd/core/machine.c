/* machine.c - see machine.h.
 *
 * The library reads no environment: what was measured is a file like any other, which the command names by default. */
#define _POSIX_C_SOURCE 200809L

#include "machine.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <tessera/unstable/outside.h>
#include <tessera/unstable/params.h>
#include <unistd.h>

#include "message.h"
#include "textfile.h"

#define NAME "machine"

/* The path for the caller to free; NULL if the environment names no place, or memory has run out, which `*status` says. */
static char *default_path(int *status) {
  static const char below_config[] = "/tessera/machine.json",
                    below_home[] = "/.config/tessera/machine.json";
  const char *own = getenv("TESSERA_MACHINE"), *config = getenv("XDG_CONFIG_HOME");
  const char *home = getenv("HOME"), *base = own, *below = "";
  if (own && !*own) return NULL;
  if (!own && config && *config == '/') {
    base = config;
    below = below_config;
  } else if (!own && home && *home == '/') {
    base = home;
    below = below_home;
  }
  if (!base) return NULL;
  char *path = malloc(strlen(base) + strlen(below) + 1);
  if (!path)
    *status = TSR_ERROR_MEMORY;
  else
    strcat(strcpy(path, base), below);
  return path;
}

static int take(tsr_params *params, const char *path, tsr_error *error) {
  tsr_error cause = {.offset = TSR_OFFSET_NONE};
  char *text = NULL;
  size_t size_bytes = 0;
  if (access(path, F_OK) != 0 && (errno == ENOENT || errno == ENOTDIR) &&
      !getenv("TESSERA_MACHINE"))
    return 0;
  int status = cli_read_text(path, CLI_TEXTFILE_REGULAR, &text, &size_bytes, &cause);
  if (status == 0) status = tsr_machine_file_check(text, size_bytes, &cause);
  if (status == 0) {
    status = tsr_params_set_file(params, NAME, path, text, size_bytes, error);
  } else if (status != TSR_ERROR_MEMORY) {
    cli_say(NULL, "warning: %s is left out: %s", path,
            cause.message[0] ? cause.message : cli_open_reason());
    status = 0;
  }
  free(text);
  return status;
}

int cli_take_machine(tsr_params *params, tsr_error *error) {
  int status = 0;
  if (!tsr_params_find(params, NAME, strlen(NAME)) || tsr_params_has(params, NAME)) return 0;
  char *path = default_path(&status);
  if (path) status = take(params, path, error);
  free(path);
  return status;
}
