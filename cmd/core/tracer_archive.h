/* tracer_archive.h - the archive of python/tracer: modules that run in the user's Python. */
#ifndef CLI_TRACER_ARCHIVE_H
#define CLI_TRACER_ARCHIVE_H

#include <stddef.h>

extern const unsigned char cli_tracer_archive[];
extern const size_t cli_tracer_archive_size;

#endif
