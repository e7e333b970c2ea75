/* export.h - writing snapshots, for the commands whose answer is one. */
#ifndef CLI_EXPORT_H
#define CLI_EXPORT_H

#include <tessera/unstable/formats.h>

#include "session.h"

/* The option --format, of `words`, the formats that a command has. */
#define CLI_FORMAT_PARAMETER(words)                                              \
  {                                                                              \
    .name = "format", .kind = TSR_PARAMETER_CHOICE, .argument = "FORMAT",        \
    .help = "The output format; auto (default) follows the name of the output.", \
    .choices = (words)                                                           \
  }

/* The format for the output's name, of those that the command writes; a pickle for a name without an ending. NULL
 * after explaining which endings there are. */
const tsr_format *cli_format_for_name(const cli_options *options);
/* Whether the requested format and destination fit together: 0, or a usage error. */
int cli_export_check(const cli_options *options);
/* Write a snapshot as the options ask. Returns 0 or a negative tsr_status. */
int cli_export_write(cli_session *session, const tsr_snapshot *snapshot);
/* Warn of an output that is very large compared with the input, unless quiet; returns about its size. */
uint64_t cli_export_warn_of_size(const cli_session *session, const tsr_snapshot *snapshot,
                                 const tsr_format *format);
/* cli_export_write in a given format, of a snapshot itself, to `output`. */
int cli_export_snapshot(cli_session *session, const tsr_snapshot *snapshot,
                        const tsr_format *format, cli_output *output);

/* "out/run.pickle" of rank 3 is "out/rank3_run.pickle", as tessera.record names it; the caller's, or NULL when out of memory. */
char *cli_rank_path(const char *path, uint64_t rank);
/* cli_keep_inputs for the files of all ranks, before one is written: 0, a usage error, or a negative tsr_status. */
int cli_rank_keep_inputs(const cli_session *session, const char *path, uint64_t ranks);
/* Write its sidecar, "out/rank3_run.json", if it is a pickle: which of `ranks` it is of, and where that is among the others. `reason`
 * says how it was made: "simulated". Returns 0 or a negative tsr_status. */
int cli_rank_sidecar(cli_session *session, const char *path, uint64_t rank, uint64_t ranks,
                     const char *reason);

#endif
