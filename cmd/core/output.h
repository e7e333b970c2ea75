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
  const char *path;        /* as the user named it; NULL or "-": standard output */
  FILE *stream;            /* NULL until something is written */
  char *target;            /* the file to put in place in the end, links followed; NULL: none is */
  char *temporary;         /* the name of the unfinished file; NULL while it has none */
  void *held;              /* while signals wait: the mask of signals that were blocked before */
  uint64_t size_bytes;     /* written so far */
  int error_number;        /* errno of the first failure, or 0 */
  cli_progress *progress;  /* called for each write; NULL: none */
  uint64_t expected_bytes; /* for it: about how many will be written */
  bool
      replaces_link; /* set by the caller: replace whatever has the name, a link too. For names in a
                              folder that may be somebody else's, whose links lead anywhere */
  bool is_in_place;  /* finished, and `path` is a regular file with this output */
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

/* The path of the file that writing to `path` creates or replaces, without links: those of folders
 * resolved, and a link at its end followed, also one whose file does not exist yet. The caller frees
 * it. NULL with errno set: no such file can be written. */
char *cli_output_target(const char *path);

/* Where the file system changes when `path` is written: the folder of the file that is created or replaced, or what is at
 * `path` if that is not a regular file. The caller frees it. NULL with errno set: nothing can be written there. */
char *cli_output_place(const char *path);

#endif
