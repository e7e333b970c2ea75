/* textfile.h - reading a text file that is no snapshot, whole. */
#ifndef CLI_TEXTFILE_H
#define CLI_TEXTFILE_H

#include "session.h"

/* Read the file `path`, of at most CLI_TEXTFILE_MAX bytes, into memory for the caller to free. A
 * failure says so in the session's error, about that path: TSR_ERROR_IO, _LIMIT or _MEMORY. */
int cli_read_text(cli_session *session, const char *path, char **text, size_t *size_bytes);

#define CLI_TEXTFILE_MAX ((size_t)64 << 20)

#endif
