/* textfile.c - reads a text file that is no snapshot: a source, a list of rules. */
#include "textfile.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Describe a failure; answers its status. */
static int fail(cli_session *session, tsr_status status, const char *message) {
  session->error = (tsr_error){.status = status, .offset = TSR_OFFSET_NONE};
  (void)snprintf(session->error.message, sizeof session->error.message, "%s", message);
  return status;
}

static int read_stream(cli_session *session, FILE *stream, char **text, size_t *size_bytes) {
  size_t room = 0;
  for (;;) {
    if (*size_bytes > CLI_TEXTFILE_MAX)
      return fail(session, TSR_ERROR_LIMIT, "a text of more than 64 MiB is not read");
    if (*size_bytes == room) {
      room = room ? 2 * room : 65536;
      char *larger = realloc(*text, room);
      if (!larger) return fail(session, TSR_ERROR_MEMORY, "out of memory");
      *text = larger;
    }
    errno = 0;
    size_t count = fread(*text + *size_bytes, 1, room - *size_bytes, stream);
    *size_bytes += count;
    if (!count) return ferror(stream) ? fail(session, TSR_ERROR_IO, strerror(errno)) : 0;
  }
}

int cli_read_text(cli_session *session, const char *path, char **text, size_t *size_bytes) {
  bool is_input = strcmp(path, "-") == 0;
  session->path = path;
  *text = NULL;
  *size_bytes = 0;
  FILE *stream = is_input ? stdin : fopen(path, "rb");
  if (!stream) return fail(session, TSR_ERROR_IO, strerror(errno));
  int status = read_stream(session, stream, text, size_bytes);
  if (!is_input) fclose(stream);
  if (!status) return 0;
  free(*text);
  *text = NULL;
  return status;
}
