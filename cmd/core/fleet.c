/* fleet.c - `tessera ranks`: the question, and what the command line adds to it: the sketches that it writes, and which part of the
 * files a process of several takes.
 *
 *   srun tessera ranks FOLDER --part auto --sketches parts/%p.sketch      each process: its part, its file
 *   tessera ranks parts/                                                  one: all of them */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tessera/unstable/fleet.h>

#include "session.h"

/* How launchers tell a process its number, and how many there are. The first that is set counts: an array of jobs, tasks of one
 * job, MPI, an indexed job of Kubernetes (whose count the job's own description must pass on). */
static const struct {
  const char *number, *first, *count, *last;
} launchers[] = {{"SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_MIN", "SLURM_ARRAY_TASK_COUNT",
                  "SLURM_ARRAY_TASK_MAX"},
                 {"SLURM_PROCID", NULL, "SLURM_NTASKS", NULL},
                 {"OMPI_COMM_WORLD_RANK", NULL, "OMPI_COMM_WORLD_SIZE", NULL},
                 {"PMI_RANK", NULL, "PMI_SIZE", NULL},
                 {"JOB_COMPLETION_INDEX", NULL, "JOB_COMPLETIONS", NULL}};

/* A number from the environment; -1 if the variable is not set, or has no number. */
static int64_t number_of(const char *name) {
  const char *text = name ? getenv(name) : NULL;
  char *end = NULL;
  long long number = text && *text >= '0' && *text <= '9' ? strtoll(text, &end, 10) : -1;
  return end && !*end && number < INT32_MAX ? number : -1;
}

/* Make "auto" the part of this process, "3/8". */
static int find_part(cli_session *session) {
  const cli_options *options = session->options;
  const char *part = tsr_params_text(options->own, "part");
  if (!part || strcmp(part, "auto") != 0) return 0;
  for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
    int64_t number = number_of(launchers[i].number), first = number_of(launchers[i].first);
    int64_t count = number_of(launchers[i].count), last = number_of(launchers[i].last);
    char text[48];
    if (number < 0) continue;
    if (first < 0) first = 0;
    bool is_whole = count > 0 && number >= first && number - first < count;
    if (!is_whole || (last >= 0 && last - first + 1 != count))
      return cli_usage_error(
          options->command,
          "--part auto: %s and %s do not say which part of how many this is; use "
          "--part I/N",
          launchers[i].number, launchers[i].count);
    int length = snprintf(text, sizeof text, "%" PRId64 "/%" PRId64, number - first + 1, count);
    return tsr_params_set_text(options->own, "part", text, (size_t)length, &session->error);
  }
  return cli_usage_error(options->command,
                         "--part auto: no variable of Slurm, MPI or Kubernetes says which part of "
                         "how many this is; use --part I/N");
}

/* The name of the file of sketches, with the number of the part for %p. The caller frees it; NULL when out of memory. */
static char *name_sketches(const char *path, const char *part) {
  const char *mark = strstr(path, "%p");
  size_t digits = part ? strcspn(part, "/") : 0, size = strlen(path);
  char *name = malloc(size + digits + 1);
  if (!name) return NULL;
  if (!mark || !part) return memcpy(name, path, size + 1);
  size_t before = (size_t)(mark - path);
  memcpy(name, path, before);
  memcpy(name + before, part, digits);
  memcpy(name + before + digits, mark + 2, size - before - 1);
  return name;
}

/* Make the name of the file of sketches that of this part. */
static int settle_name(cli_session *session) {
  tsr_params *own = session->options->own;
  const char *path = tsr_params_text(own, "sketches");
  if (!path || !strstr(path, "%p")) return 0;
  char *name = name_sketches(path, tsr_params_text(own, "part"));
  int status =
      name ? tsr_params_set_path(own, "sketches", name, &session->error) : TSR_ERROR_MEMORY;
  free(name);
  return status;
}

static int write_sketches(cli_session *session, const tsr_ranks *ranks) {
  const char *path = tsr_params_text(session->options->own, "sketches");
  cli_output output;
  void *bytes = NULL;
  size_t size_bytes = 0;
  int status = cli_start_aside(session, path, &output);
  if (!path) return 0;
  if (status == 0) status = tsr_ranks_sketches(ranks, &bytes, &size_bytes, &session->error);
  if (status == 0 && cli_output_write(&output, bytes, size_bytes)) status = TSR_ERROR_WRITE;
  tsr_ranks_sketches_free(bytes);
  return cli_finish_aside(session, &output, status);
}

/* The exit status of budgets: failed, or passed with a doubt, which is explained. */
static int judge(const tsr_ranks *ranks) {
  static const char *const reasons[TSR_RANK_DOUBT_COUNT] = {
      [TSR_RANK_BROKEN] = "files that cannot be read could hold more; --allow-missing lets it pass",
      [TSR_RANK_MISSING] = "ranks are missing, and could hold more; --allow-missing lets it pass",
      [TSR_RANK_PARTIAL] = "truncated or damaged snapshots could hold more",
      [TSR_RANK_OUT_OF_MEMORY] = "ranks ran out of memory: they needed more than they got",
      [TSR_RANK_UNKNOWN] =
          "most memory of a rank has no category, and could belong to one that has "
          "a budget"};
  if (ranks->failed_count) return CLI_CHECK_FAILED;
  if (!ranks->doubt) return 0;
  cli_say(NULL, "the check is inconclusive: %s", reasons[ranks->doubt]);
  return CLI_INPUT;
}

static int print(cli_session *session, const cli_asking *asking, const char *form) {
  if (!form) return cli_asking_print(session, asking);
  return tsr_answer_write_form(asking->answer, form, NULL, &session->report, cli_output_write,
                               &session->output, &session->error);
}

/* One process of several prints nothing: its ranks are compared when all sketches are there. */
static int finish(cli_session *session, const cli_asking *asking, const char *form) {
  const tsr_params *own = session->options->own;
  const tsr_ranks *ranks = tsr_answer_value(asking->answer);
  bool is_part = tsr_params_text(own, "part") && tsr_params_text(own, "sketches");
  if (!is_part) {
    int status = print(session, asking, form);
    if (status) return status;
  }
  int status = write_sketches(session, ranks);
  if (status || is_part) return status;
  session->is_complete = true;
  return ranks->rank_count ? judge(ranks) : CLI_INPUT;
}

static bool has_budget(const tsr_params *own) {
  return tsr_params_has(own, "max") || tsr_params_has(own, "max_reserved") ||
         tsr_params_has(own, "max_spread");
}

int cli_ask_ranks(cli_session *session) {
  const cli_options *options = session->options;
  cli_asking asking = {.name = options->operands[0], .has_format = true};
  const char *form;
  if (options->is_fleet_check && !has_budget(options->own))
    return cli_usage_error(options->command,
                           "nothing to check: pass --max, --max-reserved or --max-spread; a lock "
                           "is of one snapshot");
  if (has_budget(options->own) && tsr_params_text(options->own, "part"))
    return cli_usage_error(options->command,
                           "--part reads some of the ranks: pass budgets to the command that puts "
                           "the sketches of all parts together");
  int status = cli_choose_form(session, &form);
  if (status == 0) status = find_part(session);
  if (status == 0) status = settle_name(session);
  if (status == 0) status = cli_asking_run(session, &asking);
  if (status == TSR_ERROR_IO || status == TSR_ERROR_LIMIT || status == TSR_ERROR_UNSUPPORTED) {
    cli_say(NULL, "%s", session->error.message); /* which names the place, one of several */
    status = CLI_INPUT;
  }
  if (status == 0) status = finish(session, &asking, form);
  cli_asking_release(&asking);
  return status;
}
