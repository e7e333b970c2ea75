/* check.c - `tessera check FILE`: is it within its budget, and is it what it was?
 *
 * The gate for continuous integration: budgets (--max, --max-reserved) and a lock (--lock), a small
 * text beside the code that says what the run held when somebody last looked. --update writes it.
 * A file that is no lock is never written over: it may be a mistyped name. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "parse.h"
#include "session.h"
#include "textfile.h"

_Static_assert(TSR_CHECK_TEXT == 0 && TSR_CHECK_JSON == 1 && TSR_CHECK_JUNIT == 2 &&
                   TSR_CHECK_SARIF == 3 && TSR_CHECK_MARKDOWN == 4,
               "--format's words are in the order of tsr_check_format");

enum { LIMITS_MAX = 64 };

/* How far a figure may be off the lock's, where nobody says: 1 % of the locked peak. */
enum { DEFAULT_MILLIONTHS = 10000 };

/* ---- Options ---- */

static int unknown_kind(const cli_options *options, const char *text, size_t length) {
  char list[256] = "";
  for (int i = 0; i < TSR_KIND_COUNT; i++) {
    size_t used = strlen(list);
    snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", tsr_kind_name((tsr_kind)i));
  }
  return cli_usage_error(options->command, "option '--max': there is no kind '%.*s'; there are %s",
                         (int)length, text, list);
}

/* "18GiB" or "activation=3GiB". */
static int read_limit(const cli_options *options, const char *text, tsr_check_limit *limit) {
  const char *equals = strchr(text, '=');
  *limit = (tsr_check_limit){.rule = TSR_CHECK_MAX_PEAK};
  if (equals) {
    size_t length = (size_t)(equals - text);
    int kind = 0;
    while (kind < TSR_KIND_COUNT && (strlen(tsr_kind_name((tsr_kind)kind)) != length ||
                                     memcmp(tsr_kind_name((tsr_kind)kind), text, length) != 0))
      kind++;
    if (kind == TSR_KIND_COUNT) return unknown_kind(options, text, length);
    *limit = (tsr_check_limit){.rule = TSR_CHECK_MAX_KIND, .kind = (tsr_kind)kind};
  }
  if (cli_parse_size(equals ? equals + 1 : text, &limit->bytes)) return 0;
  return cli_usage_error(options->command,
                         "option '--max' takes a size such as 18GiB, or KIND=SIZE, not '%s'", text);
}

static int read_limits(const cli_options *options, tsr_check_limit limits[LIMITS_MAX],
                       size_t *count) {
  for (size_t i = 0; i < options->budgets.count; i++) {
    if (*count + 1 == LIMITS_MAX)
      return cli_usage_error(options->command, "option '--max' is given too often");
    int status = read_limit(options, options->budgets.items[i], &limits[(*count)++]);
    if (status) return status;
  }
  if (!options->max_reserved) return 0;
  tsr_check_limit *limit = &limits[(*count)++];
  *limit = (tsr_check_limit){.rule = TSR_CHECK_MAX_RESERVED};
  if (cli_parse_size(options->max_reserved, &limit->bytes)) return 0;
  return cli_usage_error(options->command,
                         "option '--max-reserved' takes a size such as 20GiB, not '%s'",
                         options->max_reserved);
}

/* "1%", "16MiB" or "0". */
static int read_tolerance(const cli_options *options, tsr_check_options *how) {
  const char *text = options->tolerance;
  char *end = NULL;
  how->tolerance_millionths = text ? 0 : DEFAULT_MILLIONTHS;
  if (!text || strcmp(text, "0") == 0) return 0;
  double number = strtod(text, &end);
  while (*end == ' ') end++;
  if (end != text && end[0] == '%' && !end[1] && number >= 0 && number <= 100) {
    how->tolerance_millionths = (uint32_t)(number * 10000 + 0.5);
    return 0;
  }
  if (cli_parse_size(text, &how->tolerance_bytes)) return 0;
  return cli_usage_error(options->command,
                         "option '--tolerance' takes a share such as 1%%, or a size such as 16MiB, "
                         "not '%s'",
                         text);
}

static int read_options(const cli_options *options, tsr_check_options *how,
                        tsr_check_limit limits[LIMITS_MAX], tsr_check_format *format) {
  int status = read_limits(options, limits, &how->limit_count);
  if (!status) status = read_tolerance(options, how);
  if (status) return status;
  how->limits = limits;
  how->wants_causes = options->update;
  *format = options->json ? TSR_CHECK_JSON : (tsr_check_format)options->check_format;
  if (options->json && options->check_format)
    return cli_usage_error(options->command, "--json and --format exclude each other");
  if (options->update && !options->lock)
    return cli_usage_error(options->command, "--update needs --lock FILE, to be written");
  if (options->tolerance && !options->lock)
    return cli_usage_error(options->command, "--tolerance goes with --lock only");
  if (!how->limit_count && !options->lock)
    return cli_usage_error(options->command,
                           "nothing to check: say --max, --max-reserved or --lock");
  return 0;
}

/* ---- The lock ---- */

/* Read the lock; NULL where there is none and --update is to write it. */
static int load_lock(cli_session *session, tsr_lock **lock) {
  const cli_options *options = session->options;
  char *text = NULL;
  size_t size_bytes = 0;
  if (access(options->lock, F_OK) != 0 && errno == ENOENT) {
    if (options->update) return 0;
    cli_say(NULL, "%s: there is no such lock; --update writes it", options->lock);
    return CLI_INPUT;
  }
  session->path = options->lock; /* for what may be wrong with it */
  int status = cli_read_text(options->lock, CLI_TEXTFILE_ANY, &text, &size_bytes, &session->error);
  if (status == 0) status = tsr_lock_parse(text, size_bytes, lock, &session->error);
  free(text);
  return status;
}

static int write_lock(cli_session *session, const tsr_check *check) {
  const char *path = session->options->lock;
  cli_output output = {.path = path};
  int status = tsr_lock_write(check, cli_output_write, &output, &session->error);
  if (status == 0 && cli_output_finish(&output) != 0) status = TSR_ERROR_WRITE;
  if (status == TSR_ERROR_WRITE) {
    cli_say(NULL, "%s: %s", path, strerror(output.error_number));
    status = CLI_FAULT;
  }
  cli_output_abandon(&output);
  return status;
}

/* ---- The command ---- */

static int report(cli_session *session, const cli_input *input, const tsr_check *check,
                  tsr_check_format format) {
  char here[4096];
  const char *root = session->options->root;
  tsr_check_face face = {.format = format, .root = root ? root : getcwd(here, sizeof here)};
  bool is_update_alone = session->options->update && !check->result_count;
  if (!is_update_alone || format != TSR_CHECK_TEXT)
    return tsr_report_check(&input->heading, check, &face, &session->report, cli_output_write,
                            &session->output, &session->error);
  FILE *stream = cli_output_stream(&session->output);
  if (stream) fprintf(stream, "%s is written.\n", session->options->lock);
  return stream ? 0 : TSR_ERROR_WRITE;
}

int cli_check(cli_session *session) {
  const cli_options *options = session->options;
  tsr_check_limit limits[LIMITS_MAX];
  tsr_check_options how = {0};
  tsr_check_format format = TSR_CHECK_TEXT;
  tsr_lock *lock = NULL;
  tsr_check *check = NULL;
  cli_input input = {0};
  int status = read_options(options, &how, limits, &format);
  if (status == 0 && options->lock) status = load_lock(session, &lock);
  /* What is about to be written cannot be violated. */
  how.lock = options->update ? NULL : lock;
  if (status == 0) status = cli_open(session, 0, &input);
  if (status == 0)
    status = tsr_check_compute(input.snapshot, &how, &session->query, &check, &session->error);
  if (status == 0 && options->update) status = write_lock(session, check);
  if (status == 0) status = report(session, &input, check, format);
  if (status == 0 && !check->is_passed) status = CLI_CHECK_FAILED;
  tsr_check_free(check);
  tsr_lock_free(lock);
  cli_close(&input);
  return status;
}
