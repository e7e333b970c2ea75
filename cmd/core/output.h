/* output.h - where the answer goes: standard output, or a file that is replaced only when complete. */
#ifndef CLI_OUTPUT_H
#define CLI_OUTPUT_H

#include <stddef.h>
#include <stdio.h>

/* A zeroed struct writes to standard output; set `path` for a file. */
typedef struct cli_output {
  const char *path; /* as the user named it; NULL or "-": standard output */
  FILE *stream;     /* NULL until something is written */
  char *target;     /* the file to replace in the end */
  char *temporary;  /* the temporary file; NULL if writing goes directly to the file */
  int error_number; /* errno of the first failure, or 0 */
} cli_output;

/* The stream to print to, opened at the first call; NULL when that fails. */
FILE *cli_output_stream(cli_output *output);
/* A tsr_write_fn; `context` is the cli_output. */
int cli_output_write(void *context, const char *data, size_t size_bytes);
/* Flush, close and put the file in its place. Returns 0, or -1 with error_number set; the file
 * named by the user is then as it was. */
int cli_output_finish(cli_output *output);
/* Give up what was written; does nothing after cli_output_finish. */
void cli_output_abandon(cli_output *output);

#endif
