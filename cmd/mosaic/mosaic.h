/* mosaic.h - drop-ins: commands that replace those of Mosaic, Meta's tool for the same files.
 *
 * A drop-in is tessera under another name. The program is installed once, with a link to it for
 * each of Mosaic's commands; started under such a name it takes that command's options and
 * prints what that command prints. `tessera mosaic_...` is the same without the link.
 *
 *   standard output   Mosaic's, byte for byte, on every input that Mosaic handles
 *   standard error    Mosaic's log: "INFO:root:...", and "WARNING:root:..." where Mosaic's answer
 *                     omits or hides something
 *   exit status       tessera's (commands.h), not Mosaic's
 *
 * To add a drop-in:
 *   1. write its file with an `int cli_mosaic_NAME(cli_session *)` and declare that below;
 *   2. add a row to drop_ins (drop_ins.c), with exactly Mosaic's name;
 *   3. give the row its list of options, in drop_ins.c as well; those that several drop-ins have are macros
 *      there. The function reads them by name (session->options->own). Users may type '-' or '_';
 *   4. add its file and its name to cmd/meson.build, which creates the links and the pages from it.
 * Parser, help and manual page follow from the rows; operands (such as `analyze` and `compare`) work as
 * for tessera's own commands. The function prints with cli_output_write, logs with the functions
 * below and opens files with cli_mosaic_open; it returns what any cli_command_fn does.
 */
#ifndef CLI_MOSAIC_H
#define CLI_MOSAIC_H

#include <tessera/unstable/mosaic.h>
#include <tessera/unstable/mosaic_file.h>

#include "core/session.h"

/* One line of Mosaic's log on standard error: "INFO:root:...", "WARNING:root:...", "ERROR:root:...".
 * Control characters become '?', as in cli_say. */
void cli_mosaic_info(const char *format, ...) CLI_PRINTF(1, 2);
void cli_mosaic_warn(const char *format, ...) CLI_PRINTF(1, 2);
void cli_mosaic_error(const char *format, ...) CLI_PRINTF(1, 2);
/* A tsr_write_fn that writes whole log lines to standard error. */
int cli_mosaic_log(void *context, const char *data, size_t size_bytes);

/* Whether a terminal shows standard output. What a file calls its functions must not drive that; in a
 * pipe, the bytes are Mosaic's. */
bool cli_mosaic_is_shown(void);
/* A tsr_write_fn for whole lines on standard output, made safe if a terminal shows them;
 * `context` is the cli_output. */
int cli_mosaic_write(void *context, const char *data, size_t size_bytes);

/* Open the file given with the option `option` (in Mosaic's spelling). Logs the three lines that
 * Mosaic logs about it, and the reader's warnings. Returns what cli_open does, a usage error if `path` is
 * NULL, or CLI_INPUT, having said so, if the file is truncated and --allow_truncated is not given. */
int cli_mosaic_open(cli_session *session, const char *option, const char *path, cli_input *input);

/* Mosaic fails if no device has a trace: nothing is known about the peak then, and scripts would take
 * it for 0. Returns 0, or CLI_INPUT, having said so, unless --allow_truncated is given. */
int cli_mosaic_require_trace(const cli_session *session, const char *path,
                             const tsr_snapshot *snapshot);

/* The words of --action; ends at NULL. */
extern const char *const cli_mosaic_action_words[];

/* The moment given by --allocation (required) and --action: 0, or a usage error. Logs, as Mosaic
 * does, that "free" means free_completed. */
int cli_mosaic_moment(const cli_session *session, tsr_mosaic_moment *moment);
/* Log that --paste and --upload_result have no effect, because only Meta has these services. */
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
