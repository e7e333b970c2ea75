/* mosaic.h - drop-ins: commands that stand in for those of Mosaic, Meta's tool for the same files.
 *
 * A drop-in is tessera under another name. The program is installed once, with a link to it by the
 * name of each of Mosaic's commands; started by such a name it takes that command's options and
 * prints what that command prints. `tessera mosaic_...` is the same without the link.
 *
 *   standard output   Mosaic's, byte for byte, on every input that Mosaic handles
 *   standard error    Mosaic's log: "INFO:root:...", and "WARNING:root:..." where Mosaic's answer
 *                     leaves out or hides something
 *   exit status       tessera's (commands.h), not Mosaic's
 *
 * To add a drop-in:
 *   1. write its file with an `int cli_mosaic_NAME(cli_session *)` and declare that below;
 *   2. give it a row in cli_drop_ins (mosaic.c), which names it exactly as Mosaic does;
 *   3. give each option it has and no drop-in had before a field in cli_mosaic_options (options.h)
 *      and a row in cli_drop_in_rows; name the drop-in among the takers of the others. Rows spell
 *      names with '-', users either way. Two rows may have one name if their takers differ;
 *   4. add its file and its name to cmd/meson.build, which makes the links and the pages from it.
 * Parser, help and manual page follow from the rows; operands (as `analyze` and `compare`) work as
 * for tessera's own commands. The function prints with cli_output_write, logs with the functions
 * below and opens files with cli_mosaic_open; it answers as any cli_command_fn does.
 */
#ifndef CLI_MOSAIC_H
#define CLI_MOSAIC_H

#include "session.h"

/* One line of Mosaic's log on standard error: "INFO:root:...", "WARNING:root:...", "ERROR:root:...".
 * Control characters become '?', as in cli_say. */
void cli_mosaic_info(const char *format, ...) CLI_PRINTF(1, 2);
void cli_mosaic_warn(const char *format, ...) CLI_PRINTF(1, 2);
void cli_mosaic_error(const char *format, ...) CLI_PRINTF(1, 2);
/* A tsr_write_fn that writes whole log lines to standard error. */
int cli_mosaic_log(void *context, const char *data, size_t size_bytes);

/* Open the file that the option `option` (spelled as Mosaic does) names, with the three lines that
 * Mosaic logs about it, and what the reader warns of. Answers as cli_open does, or a usage error where `path` is NULL. */
int cli_mosaic_open(cli_session *session, const char *option, const char *path, cli_input *input);

/* What --allocation (which must be given) and --action name: 0, or a usage error. Logs, as Mosaic
 * does, that "free" means free_completed. */
int cli_mosaic_moment(const cli_session *session, tsr_mosaic_moment *moment);
/* Say what becomes of --paste and --upload_result, whose services only Meta has. */
void cli_mosaic_services(const cli_session *session);

/* The drop-ins. */
int cli_mosaic_diff(cli_session *session);
int cli_mosaic_file(cli_session *session);
int cli_mosaic_json(cli_session *session);
int cli_mosaic_peak(cli_session *session);
int cli_mosaic_profile(cli_session *session);
int cli_mosaic_stages(cli_session *session);
int cli_mosaic_usage(cli_session *session);

#endif
