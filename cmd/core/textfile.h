/* textfile.h - reading a text file that is no snapshot, whole; and which operands are files. */
#ifndef CLI_TEXTFILE_H
#define CLI_TEXTFILE_H

#include <stddef.h>
#include <stdio.h>
#include <tessera/tessera.h>

#define CLI_TEXTFILE_MAX ((size_t)64 << 20)

/* What may be read: anything, where "-" is standard input; or only what is a regular file. */
typedef enum cli_textfile_kind { CLI_TEXTFILE_ANY, CLI_TEXTFILE_REGULAR } cli_textfile_kind;

/* Read the file `path`, of at most CLI_TEXTFILE_MAX bytes, into memory for the caller to free.
 * `*text` is NULL after a failure: TSR_ERROR_IO, _LIMIT or _MEMORY. */
int cli_read_text(const char *path, cli_textfile_kind kind, char **text, size_t *size_bytes,
                  tsr_error *error);

/* The same for CLI_TEXTFILE_ANY of any size. */
int cli_read_large_text(const char *path, char **text, size_t *size_bytes, tsr_error *error);

bool cli_is_folder(const char *path);
/* Whether an operand that names a model names a file, such as a config.json, or a folder, and not a model by name. A folder with
 * a config.json counts even if it is called like a model. */
bool cli_is_model_file(const char *operand);

/* Print that there is no such file: `reason`, or how to get the description of a model of Hugging Face, if the operand is the name of
 * one. */
void cli_say_no_model(const char *operand, const char *reason);

/* Open such a file to read, without waiting for the writer of a named pipe: what is no regular file is refused, unless it is a
 * descriptor of the process and `kind` allows it. NULL with errno set, 0 if it is refused. */
FILE *cli_open_text(const char *path, cli_textfile_kind kind);
/* Why it could not be opened, from errno. */
const char *cli_open_reason(void);
/* The exit status for that. */
int cli_open_status(void);

#endif
