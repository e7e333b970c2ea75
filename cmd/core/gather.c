/* gather.c - see gather.h.
 *
 *   tessera-ranks-JOB.STEP-PART.sketch    a part, put in place whole
 *   tessera-ranks-JOB.STEP.merge          of an array: which of its tasks puts the parts together
 *
 * All tasks of a step run at the same time, so its first one can wait. Those of an array may run one after the other, so the last
 * one to finish does it. */
#define _POSIX_C_SOURCE 200809L

#include "gather.h"
#include "guard.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <tessera/unstable/fleet.h>
#include <tessera/unstable/params.h>
#include <time.h>
#include <unistd.h>

#include "deliver.h"
#include "message.h"
#include "monotonic.h"
#include "progress.h"

enum { NAME_BYTES = 160, POLL_MS = 100, DEFAULT_WAIT_S = 60 };

typedef struct gathering {
  cli_session *session;
  bool is_array;
  int64_t part, parts;
  char common[96]; /* of all names */
} gathering;

int64_t cli_launcher_number(const char *name) {
  const char *text = name ? getenv(name) : NULL;
  char *end = NULL;
  long long number = text && *text >= '0' && *text <= '9' ? strtoll(text, &end, 10) : -1;
  return end && !*end && number < INT32_MAX ? number : -1;
}

bool cli_gathers(const cli_launcher *launcher) {
  return cli_launcher_number(launcher->job) >= 0 &&
         (!launcher->step || cli_launcher_number(launcher->step) >= 0);
}

static void name_part(const gathering *g, int64_t part, char name[NAME_BYTES]) {
  (void)snprintf(name, NAME_BYTES, "%s-%" PRId64 ".sketch", g->common, part);
}

static bool is_there(const gathering *g, int64_t part) {
  char name[NAME_BYTES];
  struct stat found;
  name_part(g, part, name);
  return stat(name, &found) == 0;
}

static int64_t count_parts(const gathering *g) {
  int64_t count = 0;
  for (int64_t i = 1; i <= g->parts; i++) count += is_there(g, i);
  return count;
}

/* ---- Parts ---- */

static int set_part(const gathering *g, int64_t part, const char *name) {
  tsr_params *own = g->session->options->own;
  tsr_error *error = &g->session->error;
  char text[48];
  int length = snprintf(text, sizeof text, "%" PRId64 "/%" PRId64, part, g->parts);
  int status = tsr_params_set_text(own, "part", text, (size_t)length, error);
  return status ? status : tsr_params_set_path(own, "sketches", name, error);
}

static int write_part(cli_session *session, const tsr_ranks *ranks, const char *name) {
  cli_output output;
  void *bytes = NULL;
  size_t size_bytes = 0;
  int status = cli_start_aside(session, name, &output);
  if (status == 0) status = tsr_ranks_sketches(ranks, &bytes, &size_bytes, &session->error);
  if (status == 0 && (cli_output_write(&output, bytes, size_bytes) || cli_output_finish(&output))) {
    cli_say("ranks", "%s: %s; with --sketches FOLDER/%%p.sketch the parts are written elsewhere",
            name, cli_reason(output.error_number));
    status = CLI_FAULT;
  }
  tsr_ranks_sketches_free(bytes);
  cli_output_abandon(&output);
  return status;
}

/* Ask without reading the command line again. */
static int ask_again(cli_session *session, cli_asking *asking) {
  const tsr_subject subject = {.name = asking->name};
  return tsr_ask(tsr_question_find("ranks"), &subject, 1, session->options->own, &session->query,
                 &asking->answer, &session->error);
}

/* Read a part: its own first, which is on the command line. */
static int make_part(const gathering *g, int64_t part) {
  cli_session *session = g->session;
  cli_asking asking = {.name = session->options->operands[0]};
  char name[NAME_BYTES];
  name_part(g, part, name);
  int status = set_part(g, part, name);
  if (status == 0)
    status = part == g->part ? cli_asking_run(session, &asking) : ask_again(session, &asking);
  if (status == 0) status = write_part(session, tsr_answer_value(asking.answer), name);
  cli_asking_release(&asking);
  return status;
}

/* ---- Waiting ---- */

/* Until all parts are there, or none has come for a while, which is at least ten times what this process needed for its own. */
static void wait_for_parts(const gathering *g, double own_s) {
  const tsr_params *own = g->session->options->own;
  const struct timespec pause = {.tv_nsec = POLL_MS * 1000000L};
  double patience = tsr_params_has(own, "wait") ? (double)tsr_params_count(own, "wait")
                                                : DEFAULT_WAIT_S + 10 * own_s;
  double since = cli_now_s();
  int64_t seen = count_parts(g), before = seen;
  cli_clock clock;
  cli_clock_start(&clock, "waiting for", "the other parts", g->session->options->quiet);
  while (seen < g->parts && cli_now_s() - since < patience) {
    (void)nanosleep(&pause, NULL);
    seen = count_parts(g);
    if (seen > before) since = cli_now_s();
    before = seen;
  }
  cli_clock_stop(&clock);
}

/* Whether this task of an array is the one that puts the parts together: the first that finds them all. */
static bool claim(const gathering *g) {
  char name[NAME_BYTES];
  if (count_parts(g) < g->parts) return false;
  (void)snprintf(name, sizeof name, "%s.merge", g->common);
  int handle = open(name, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
  if (handle >= 0) (void)close(handle);
  return handle >= 0;
}

/* ---- The answer ---- */

static int answer(const gathering *g) {
  cli_session *session = g->session;
  tsr_params *own = session->options->own;
  cli_asking asking = {.name = session->options->operands[0]};
  char pattern[NAME_BYTES];
  int length = snprintf(pattern, sizeof pattern, "%s-*.sketch", g->common);
  tsr_params_clear(own, "part");
  tsr_params_clear(own, "sketches");
  tsr_params_clear(own, "paths");
  int status = tsr_params_set_text(own, "paths", pattern, (size_t)length, &session->error);
  if (status == 0) status = ask_again(session, &asking);
  if (status == 0) status = cli_keep_ranks(session->options, tsr_answer_value(asking.answer));
  if (status == 0) status = cli_ranks_deliver(session, &asking);
  if (status == 0) status = cli_ranks_judge(session, tsr_answer_value(asking.answer));
  cli_asking_release(&asking);
  return status;
}

/* Parts are not needed any more, whatever has become of the answer: reading them again is quick. */
static void remove_parts(const gathering *g) {
  char name[NAME_BYTES];
  for (int64_t i = 1; i <= g->parts; i++) {
    name_part(g, i, name);
    (void)unlink(name);
  }
  (void)snprintf(name, sizeof name, "%s.merge", g->common);
  (void)unlink(name);
}

int cli_gather(cli_session *session, const cli_launcher *launcher, int64_t part, int64_t parts) {
  gathering g = {.session = session, .is_array = !launcher->step, .part = part, .parts = parts};
  (void)snprintf(g.common, sizeof g.common, "tessera-ranks-%s%s%s", getenv(launcher->job),
                 launcher->step ? "." : "", launcher->step ? getenv(launcher->step) : "");
  double begun = cli_now_s();
  int status = make_part(&g, part);
  if (status) return status;
  if (g.is_array ? !claim(&g) : part != 1) return 0;
  if (!g.is_array) wait_for_parts(&g, cli_now_s() - begun);
  for (int64_t i = 1; status == 0 && i <= parts; i++) {
    if (is_there(&g, i)) continue;
    cli_say("ranks", "part %" PRId64 " of %" PRId64 " did not come, and is read here", i, parts);
    status = make_part(&g, i);
  }
  if (status == 0) status = answer(&g);
  remove_parts(&g);
  return status;
}
