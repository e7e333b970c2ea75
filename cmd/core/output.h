/* output.h - where the answer goes: standard output, or a file that is replaced only when complete. */
#ifndef CLI_OUTPUT_H
#define CLI_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "progress.h"

/* A zeroed struct writes to standard output; set `path` for a file. */
typedef struct cli_output {
  const char *path; /* as the user named it; NULL or "-": standard output */
  FILE *stream;     /* NULL until something is written */
  char *target;     /* the file to put in place in the end, links followed; NULL: none is */
  char *temporary; /* room for the name of the unfinished file, so that finishing needs no memory */
  bool is_named;   /* the unfinished file has that name */
  uint64_t held;   /* signals that wait, a bit each */
  uint64_t size_bytes;     /* written so far */
  int error_number;        /* errno of the first failure, or 0 */
  cli_progress *progress;  /* called for each write; NULL: none */
  uint64_t expected_bytes; /* for it: about how many will be written */
  bool
      replaces_link; /* set by the caller: replace whatever has the name, a link too. For names in a
                              folder that may be somebody else's, whose links lead anywhere */
  bool
      is_synced; /* set by the caller: the content is on the disk before the file takes its place */
  bool is_in_place; /* finished, and `path` is a regular file with this output */
} cli_output;

/* The stream to print to, opened at the first call; NULL when that fails. */
FILE *cli_output_stream(cli_output *output);
/* A tsr_write_fn; `context` is the cli_output. */
int cli_output_write(void *context, const char *data, size_t size_bytes);
/* Hand what was written to the system. Returns 0, or -1 with error_number set. */
int cli_output_flush(cli_output *output);
/* Whether the file `path` could be written now: its folder is there and takes a file. Leaves nothing behind.
 * Returns 0, or -1 with errno set. For commands that compute for hours before they write. */
int cli_output_try(const char *path);
/* Flush, close and put the file in its place. Returns 0, or -1 with error_number set; the file
 * named by the user is then as it was. */
int cli_output_finish(cli_output *output);
/* Give up what was written; does nothing after cli_output_finish. */
void cli_output_abandon(cli_output *output);
/* On standard error, what was written and its size; nothing unless a file was put in its place. */
void cli_output_say(const cli_output *output, const char *command);

/* A text that is printed into memory. Zeroed is empty; `data` is the caller's to free. */
typedef struct cli_text {
  char *data; /* ends with a zero byte; NULL if empty */
  size_t size, capacity;
  bool is_lost; /* out of memory; the text is then not to be used */
} cli_text;

/* A tsr_write_fn; `context` is the cli_text. Fails when out of memory. */
int cli_text_append(void *context, const char *data, size_t size_bytes);
/* A stream that appends to a text, for fprintf. NULL when out of memory. Unlike open_memstream, it notices what a failed
 * allocation lost in the middle. */
FILE *cli_text_open(cli_text *text);
/* Close it. False if memory has run out since it was opened. */
bool cli_text_close(FILE *stream, cli_text *text);

/* The path of the file that writing to `path` creates or replaces, without links: those of folders
 * resolved, and a link at its end followed, also one whose file does not exist yet. The caller frees
 * it. NULL with errno set: no such file can be written. */
char *cli_output_target(const char *path);

/* Where the file system changes when `path` is written: the folder of the file that is created or replaced, or what is at
 * `path` if that is not a regular file. The caller frees it. NULL with errno set: nothing can be written there. */
char *cli_output_place(const char *path);

#endif
