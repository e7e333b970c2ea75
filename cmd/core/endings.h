/* endings.h - what the name of an output may end in. An unknown ending is an error: text in a file named .svg
 * helps nobody. */
#ifndef CLI_ENDINGS_H
#define CLI_ENDINGS_H

#include <stddef.h>

#include "options.h"

/* A known ending, and what it stands for. */
typedef struct cli_ending {
  const char *ending; /* ".html" */
  int format;
} cli_ending;

/* The ending of the last part of a path, ".gz" of "a/b.tar.gz"; "" if it has none, or only digits. */
const char *cli_ending_of(const char *path);

/* The row for a path's name, the longest ending if several fit; NULL if no row does. Upper and lower case are
 * the same. */
const cli_ending *cli_ending_find(const cli_ending *rows, size_t count, const char *path);

/* Explain that an ending is unknown: "WHAT; use a name that ends in .a, .b or .c, not 'PATH'". Returns
 * CLI_USAGE. */
int cli_ending_refuse(const cli_options *options, const char *what, const cli_ending *rows,
                      size_t count, const char *path);

#endif
