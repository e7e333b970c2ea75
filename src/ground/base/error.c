/* error.c - the only place that writes error messages.
 *
 * Messages may quote names from a hostile file, so every byte that a terminal could interpret is
 * replaced before the caller sees it (tsr_terminal_clean). */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tessera/unstable/terminal.h"

const char *tsr_status_text(tsr_status status) {
  switch (status) {
  case TSR_OK: return "ok";
  case TSR_ERROR_MEMORY: return "out of memory";
  case TSR_ERROR_IO: return "input or output failed";
  case TSR_ERROR_FORMAT: return "not a readable snapshot";
  case TSR_ERROR_LIMIT: return "a safety limit was exceeded";
  case TSR_ERROR_UNSUPPORTED: return "unsupported snapshot format";
  case TSR_ERROR_ARGUMENT: return "unknown argument";
  case TSR_ERROR_WRITE: return "the report could not be written";
  case TSR_ERROR_ABSENT: return "the answer lacks this value";
  case TSR_ERROR_NULL: return "the value is null";
  case TSR_ERROR_TYPE: return "the value is of another type";
  }
  return "unknown status";
}

#undef tsr__fail
int tsr__fail(tsr_error *error, tsr_status status, uint64_t offset, const char *format, ...) {
  if (!error) return status;
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(error->message, sizeof error->message, format, arguments);
  va_end(arguments);
  error->message[tsr_terminal_clean(error->message, strlen(error->message), false)] = '\0';
  error->status = status;
  error->offset = offset;
  return status;
}
