/* version.h - what `tessera --version` prints: a line, or with --json the facts of this build and of the machine. */
#ifndef CLI_VERSION_H
#define CLI_VERSION_H

#include <stdbool.h>
#include <stdio.h>
#include <tessera/unstable/fields.h>

/* The fields of the JSON. */
extern const tsr_record cli_version_fields;

/* A failed write shows in the stream. */
void cli_put_version(FILE *stream, bool json);

#endif
