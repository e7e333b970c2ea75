/* check.c - `tessera check FILE`: is it within its budget, and is it what it was?
 *
 * The gate for continuous integration: budgets (--max, --max-reserved) and a lock (--lock), a small
 * text beside the code that says what the run held when somebody last looked. --update writes it.
 * A file that is no lock is never written over: it may be a mistyped name. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "budget.h"
#include "session.h"
#include "textfile.h"

_Static_assert(TSR_CHECK_TEXT == 0 && TSR_CHECK_JSON == 1 && TSR_CHECK_JUNIT == 2 &&
                   TSR_CHECK_SARIF == 3 && TSR_CHECK_MARKDOWN == 4,
               "--format's words are in the order of tsr_check_format");

enum { LIMITS_MAX = 64 };

/* ---- Options ---- */

static int read_limits(const cli_options *options, tsr_check_limit limits[LIMITS_MAX],
                       size_t *count) {
  char why[CLI_BUDGET_WHY_BYTES];
  for (size_t i = 0; i < options->budgets.count; i++) {
    if (*count + 1 == LIMITS_MAX)
      return cli_usage_error(options->command, "option '--max' is given too often");
    if (!cli_budget_parse(options->budgets.items[i], &limits[(*count)++], why))
      return cli_usage_error(options->command, "option '--max'%s", why);
  }
  if (!options->max_reserved) return 0;
  if (cli_budget_parse_reserved(options->max_reserved, &limits[(*count)++], why)) return 0;
  return cli_usage_error(options->command, "option '--max-reserved'%s", why);
}

static int read_options(const cli_options *options, tsr_check_options *how,
                        tsr_check_limit limits[LIMITS_MAX], tsr_check_format *format) {
  char why[CLI_BUDGET_WHY_BYTES];
  int status = read_limits(options, limits, &how->limit_count);
  if (status) return status;
  if (!cli_budget_parse_tolerance(options->tolerance, how, why))
    return cli_usage_error(options->command, "option '--tolerance'%s", why);
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

/* A file that was cut neither passes nor becomes a lock: the run may have held more than it says. */
static int refuse_cut(const cli_input *input) {
  cli_say(NULL, "%s: the file was cut, and what is missing could hold more", input->heading.path);
  return CLI_INPUT;
}

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
  bool is_refused = status == 0 && check->is_cut && !check->failed_count;
  if (is_refused && options->update) status = refuse_cut(&input);
  if (status == 0 && options->update) status = write_lock(session, check);
  if (status == 0) status = report(session, &input, check, format);
  if (status == 0 && is_refused)
    status = refuse_cut(&input);
  else if (status == 0 && !check->is_passed)
    status = CLI_CHECK_FAILED;
  tsr_check_free(check);
  tsr_lock_free(lock);
  cli_close(&input);
  return status;
}
