/* mosaic.c - what the drop-ins for Mosaic's commands have in common: log, output, opening files. */
#define _POSIX_C_SOURCE 200809L

#include "mosaic.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <tessera/unstable/terminal.h>
#include <unistd.h>

/* ---- the log ---- */

static void log_line(const char *level, const char *format, va_list args) {
  char text[CLI_MESSAGE_BYTES];
  cli_format_line(text, format, args);
  fprintf(stderr, "%s:root:%s\n", level, text);
}

#define LOG_FUNCTION(name, level)      \
  void name(const char *format, ...) { \
    va_list args;                      \
    va_start(args, format);            \
    log_line(level, format, args);     \
    va_end(args);                      \
  }

LOG_FUNCTION(cli_mosaic_info, "INFO")
LOG_FUNCTION(cli_mosaic_warn, "WARNING")
LOG_FUNCTION(cli_mosaic_error, "ERROR")

int cli_mosaic_log(void *context, const char *data, size_t size_bytes) {
  (void)context;
  return fwrite(data, 1, size_bytes, stderr) == size_bytes ? 0 : -1;
}

/* ---- the answer ---- */

bool cli_mosaic_is_shown(void) {
  return isatty(STDOUT_FILENO) == 1;
}

int cli_mosaic_write(void *context, const char *data, size_t size_bytes) {
  if (!cli_mosaic_is_shown()) return cli_output_write(context, data, size_bytes);
  char *copy = malloc(size_bytes + 1);
  if (!copy) return -1;
  memcpy(copy, data, size_bytes);
  int status = cli_output_write(context, copy, tsr_terminal_clean(copy, size_bytes, true));
  free(copy);
  return status;
}

/* ---- shared by several drop-ins ---- */

/* The reader's warnings about the file, for example that it is truncated. */
static void say_warnings(const tsr_snapshot *snapshot) {
  size_t count;
  const tsr_warning *warnings = tsr_snapshot_warnings(snapshot, &count);
  for (size_t i = 0; i < count; i++)
    cli_mosaic_warn("%s (%" PRIu64 ")", warnings[i].message, warnings[i].count);
}

/* Whether a flag is set that not every drop-in has. */
static bool is_set(const cli_session *session, const char *name) {
  const tsr_params *own = session->options->own;
  return tsr_params_find(own, name, strlen(name)) && tsr_params_flag(own, name);
}

/* Whether a warning means that memory may be missing, and Mosaic fails then: a file that is truncated or
 * damaged, or was made from one that is, or events that are none or have no size. */
static bool lacks_memory(const char *code) {
  static const char *const codes[] = {"truncated", "incomplete", "damaged", "events-malformed",
                                      "sizes-missing"};
  for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
    if (strcmp(code, codes[i]) == 0) return true;
  return false;
}

/* Mosaic fails on a truncated file, and scripts compare its numbers with a limit: the missing part could
 * hold the peak. */
static int refuse_truncated(const cli_session *session, const char *path,
                            const tsr_snapshot *snapshot) {
  size_t count;
  const tsr_warning *warnings = tsr_snapshot_warnings(snapshot, &count);
  for (size_t i = 0; i < count && !is_set(session, "allow_truncated"); i++) {
    if (!lacks_memory(warnings[i].code)) continue;
    cli_say(session->options->command->about.name,
            "%s: %s; --allow_truncated answers from what is left", path, warnings[i].message);
    return CLI_INPUT;
  }
  return 0;
}

int cli_mosaic_require_trace(const cli_session *session, const char *path,
                             const tsr_snapshot *snapshot) {
  size_t count;
  const uint32_t *devices = tsr_snapshot_gpus(snapshot, &count);
  for (size_t i = 0; i < count; i++)
    if (tsr_snapshot_events(snapshot, devices[i]).count) return 0;
  if (is_set(session, "allow_truncated")) return 0;
  cli_say(session->options->command->about.name,
          "%s: no device has a trace, so the peak is unknown; --allow_truncated answers "
          "nevertheless",
          path);
  return CLI_INPUT;
}

int cli_mosaic_open(cli_session *session, const char *option, const char *path, cli_input *input) {
  struct stat file;
  if (!path) return cli_usage_error(session->options->command, "missing --%s FILE", option);
  cli_mosaic_info("Loading snapshot %s using io read", path);
  if (stat(path, &file) == 0)
    cli_mosaic_info("Loading snapshot %s, size %.2fMB ...", path, (double)file.st_size / (1 << 20));
  int status = cli_open_path(session, path, input);
  if (status == 0) status = refuse_truncated(session, path, input->snapshot);
  if (status) return status;
  cli_mosaic_info("Snapshot loaded successfully.");
  say_warnings(input->snapshot);
  return 0;
}

/* The choices of --action, and what they mean. */
const char *const cli_mosaic_action_words[] = {
    "alloc",        "segment_alloc", "segment_map", "free_completed",
    "segment_free", "segment_unmap", "free",        NULL};
static const tsr_action actions[] = {TSR_ACTION_ALLOC,         TSR_ACTION_SEGMENT_ALLOC,
                                     TSR_ACTION_SEGMENT_MAP,   TSR_ACTION_FREE_COMPLETED,
                                     TSR_ACTION_SEGMENT_FREE,  TSR_ACTION_SEGMENT_UNMAP,
                                     TSR_ACTION_FREE_COMPLETED};

int cli_mosaic_moment(const cli_session *session, tsr_mosaic_moment *moment) {
  const char *text = tsr_params_text(session->options->own, "allocation");
  size_t digits = strspn(text, "0123456789abcdefABCDEF");
  const char *version = text + digits + 1;
  bool is_named = digits > 0 && digits <= 16 && text[digits] == '_' && *version &&
                  version[strspn(version, "0123456789")] == '\0';
  if (!is_named)
    return cli_usage_error(
        session->options->command,
        "option '--allocation' takes ADDRESS_VERSION, such as cd1000000_1, not '%s'", text);
  int choice = tsr_params_choice(session->options->own, "action");
  size_t action = choice < 0 ? 0 : (size_t)choice;
  if (action + 1 == sizeof actions / sizeof *actions)
    cli_mosaic_info("Overloading action 'free' to 'free_completed' for memory analysis");
  moment->address = strtoull(text, NULL, 16);
  moment->version = strtoull(version, NULL, 10);
  moment->action = actions[action];
  return 0;
}

void cli_mosaic_services(const cli_session *session) {
  if (is_set(session, "paste"))
    cli_mosaic_warn("--paste: there is no paste service here; the answer is printed instead");
  if (is_set(session, "upload_result"))
    cli_mosaic_warn("--upload_result: there is nowhere to upload to; the answer stays here");
}
