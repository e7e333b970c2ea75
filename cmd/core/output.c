/* output.c - output files that are either complete or absent.
 *
 * With -o the answer is written to a temporary file next to the target and renamed over it at the
 * end, so a reader of the target never sees half an answer, and a full disk leaves the old one. A
 * link is followed first: it stays a link. What is not a regular file (a terminal, /dev/null, a
 * named pipe) is written to directly: it must not be replaced.
 *
 * Nothing is opened before the first byte, so a command that fails leaves nothing behind. Every
 * failure is noticed at the latest by cli_output_finish: buffered bytes meet a full disk only
 * there.
 */
#define _XOPEN_SOURCE 700 /* realpath */

#include "output.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int fail(cli_output *output) {
  if (!output->error_number) output->error_number = errno ? errno : EIO;
  return -1;
}

/* What the user's umask leaves of rw-rw-rw-, as for any file that a program creates. */
static mode_t new_file_mode(void) {
  mode_t mask = umask(0);
  umask(mask);
  return 0666 & ~mask;
}

/* Open a temporary file next to the target, with the permissions that the target has or would have
 * got. */
static FILE *open_beside(cli_output *output, mode_t mode) {
  static const char suffix[] = ".XXXXXX";
  char *target = realpath(output->path, NULL);
  if (!target) target = strdup(output->path);
  size_t length = target ? strlen(target) : 0;
  char *temporary = target ? malloc(length + sizeof suffix) : NULL;
  if (!temporary) {
    free(target);
    return NULL;
  }
  snprintf(temporary, length + sizeof suffix, "%s%s", target, suffix);
  int handle = mkstemp(temporary);
  FILE *stream = handle < 0 ? NULL : fdopen(handle, "w");
  if (!stream || fchmod(handle, mode) != 0) {
    int reason = errno;
    if (handle >= 0) unlink(temporary);
    if (stream)
      fclose(stream);
    else if (handle >= 0)
      close(handle);
    free(temporary);
    free(target);
    errno = reason;
    return NULL;
  }
  output->target = target;
  output->temporary = temporary;
  return stream;
}

FILE *cli_output_stream(cli_output *output) {
  if (output->stream || output->error_number) return output->stream;
  struct stat existing;
  if (!output->path || strcmp(output->path, "-") == 0)
    output->stream = stdout;
  else if (stat(output->path, &existing) != 0)
    output->stream = open_beside(output, new_file_mode());
  else if (S_ISREG(existing.st_mode))
    output->stream = open_beside(output, existing.st_mode & 0777);
  else
    output->stream = fopen(output->path, "w");
  if (!output->stream) fail(output);
  return output->stream;
}

int cli_output_write(void *context, const char *data, size_t size_bytes) {
  cli_output *output = context;
  FILE *stream = cli_output_stream(output);
  if (!stream) return -1;
  errno = 0;
  return fwrite(data, 1, size_bytes, stream) == size_bytes ? 0 : fail(output);
}

int cli_output_finish(cli_output *output) {
  FILE *stream = output->stream;
  if (output->error_number) return -1;
  if (!stream) return 0;
  errno = 0;
  bool written = fflush(stream) == 0 && !ferror(stream);
  if (!written) fail(output);
  output->stream = NULL;
  if (fclose(stream) != 0 || !written) fail(output);
  if (output->temporary && !output->error_number && rename(output->temporary, output->target) != 0)
    fail(output);
  if (output->temporary && output->error_number) unlink(output->temporary);
  free(output->temporary);
  free(output->target);
  output->temporary = output->target = NULL;
  return output->error_number ? -1 : 0;
}

void cli_output_abandon(cli_output *output) {
  if (output->stream && output->stream != stdout) fclose(output->stream);
  if (output->temporary) unlink(output->temporary);
  free(output->temporary);
  free(output->target);
  *output = (cli_output){.path = output->path, .error_number = output->error_number};
}
