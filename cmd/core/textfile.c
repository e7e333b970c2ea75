/* textfile.c - reads a text file that is no snapshot: a source, a list of rules; and distinguishes files from names of models. */
#define _POSIX_C_SOURCE 200809L

#include "textfile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <tessera/unstable/runs.h>
#include <unistd.h>

#include "message.h"

/* Describe a failure; returns its status. */
static int fail(tsr_error *error, tsr_status status, const char *message) {
  *error = (tsr_error){.status = status, .offset = TSR_OFFSET_NONE};
  (void)snprintf(error->message, sizeof error->message, "%s", message);
  return status;
}

static int read_stream(FILE *stream, size_t most, char **text, size_t *size_bytes,
                       tsr_error *error) {
  size_t room = 0;
  for (;;) {
    if (*size_bytes > most)
      return fail(error, TSR_ERROR_LIMIT, "a text file may have at most 64 MiB");
    if (*size_bytes == room) {
      room = room ? 2 * room : 65536;
      char *larger = realloc(*text, room);
      if (!larger) return fail(error, TSR_ERROR_MEMORY, "out of memory");
      *text = larger;
    }
    errno = 0;
    size_t count = fread(*text + *size_bytes, 1, room - *size_bytes, stream);
    *size_bytes += count;
    if (!count) return ferror(stream) ? fail(error, TSR_ERROR_IO, strerror(errno)) : 0;
  }
}

/* A name of what the process has opened already, as a shell writes it for <(...). */
static bool is_descriptor(const char *path) {
  return strncmp(path, "/dev/fd/", 8) == 0 || strncmp(path, "/proc/self/fd/", 14) == 0 ||
         strcmp(path, "/dev/stdin") == 0;
}

FILE *cli_open_text(const char *path, cli_textfile_kind kind) {
  struct stat status;
  bool is_stream = kind == CLI_TEXTFILE_ANY && is_descriptor(path);
  int handle = open(path, O_RDONLY | O_CLOEXEC | (is_stream ? 0 : O_NONBLOCK));
  if (handle < 0) return NULL;
  bool is_known = fstat(handle, &status) == 0;
  bool is_fit = is_known && (is_stream || S_ISREG(status.st_mode));
  FILE *stream = is_fit ? fdopen(handle, "rb") : NULL;
  int reason = !is_known || is_fit ? errno : S_ISDIR(status.st_mode) ? EISDIR : 0;
  if (!stream) close(handle);
  errno = reason;
  return stream;
}

const char *cli_open_reason(void) {
  return errno ? cli_reason(errno) : "not a regular file; '-' reads standard input";
}

int cli_open_status(void) {
  return errno == ENOMEM ? CLI_FAULT : CLI_INPUT;
}

static int read_text(const char *path, cli_textfile_kind kind, size_t most, char **text,
                     size_t *size_bytes, tsr_error *error) {
  bool is_input = kind == CLI_TEXTFILE_ANY && strcmp(path, "-") == 0;
  *text = NULL;
  *size_bytes = 0;
  FILE *stream = is_input ? stdin : cli_open_text(path, kind);
  if (!stream)
    return fail(error, errno == ENOMEM ? TSR_ERROR_MEMORY : TSR_ERROR_IO,
                kind == CLI_TEXTFILE_ANY || errno ? cli_open_reason() : "not a regular file");
  int status = read_stream(stream, most, text, size_bytes, error);
  if (!is_input) fclose(stream);
  if (!status) return 0;
  free(*text);
  *text = NULL;
  return status;
}

int cli_read_text(const char *path, cli_textfile_kind kind, char **text, size_t *size_bytes,
                  tsr_error *error) {
  return read_text(path, kind, CLI_TEXTFILE_MAX, text, size_bytes, error);
}

int cli_read_large_text(const char *path, char **text, size_t *size_bytes, tsr_error *error) {
  return read_text(path, CLI_TEXTFILE_ANY, SIZE_MAX, text, size_bytes, error);
}

bool cli_is_folder(const char *path) {
  struct stat found;
  return stat(path, &found) == 0 && S_ISDIR(found.st_mode);
}

void cli_say_no_model(const char *operand, const char *reason) {
  tsr_model *model = NULL;
  tsr_error error;
  if (!tsr_model_is_hub_id(operand) ||
      tsr_model_named(operand, &model, &error) != TSR_ERROR_ARGUMENT) {
    tsr_model_free(model);
    cli_say(NULL, "%s: %s", operand, reason);
    return;
  }
  cli_say(NULL, "%s: %s", operand, error.message);
}

static bool has_config(const char *folder) {
  char path[128];
  int length = snprintf(path, sizeof path, "%s/config.json", folder);
  return length > 0 && (size_t)length < sizeof path && access(path, F_OK) == 0;
}

bool cli_is_model_file(const char *operand) {
  static const char *const endings[] = {".json", ".bin", ".graph"};
  size_t length = strlen(operand);
  if (strchr(operand, '/')) return true;
  for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
    size_t ending = strlen(endings[i]);
    if (length > ending && strcasecmp(operand + length - ending, endings[i]) == 0) return true;
  }
  for (const char *const *name = tsr_model_names(); *name; name++)
    if (strcmp(*name, operand) == 0) return has_config(operand);
  struct stat found;
  return stat(operand, &found) == 0;
}
