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

#include "confine.h"
#include "deliver.h"
#include "gather.h"
#include "guard.h"
#include "page.h"
#include "session.h"

/* The first that is set counts: an array of jobs, tasks of a step, MPI, an indexed job of Kubernetes (whose count the job's own
 * description must pass on). */
static const cli_launcher launchers[] = {
    {"SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_MIN", "SLURM_ARRAY_TASK_COUNT",
     "SLURM_ARRAY_TASK_MAX", "SLURM_ARRAY_JOB_ID", NULL},
    {"SLURM_PROCID", NULL, "SLURM_NTASKS", NULL, "SLURM_JOB_ID", "SLURM_STEP_ID"},
    {"OMPI_COMM_WORLD_RANK", NULL, "OMPI_COMM_WORLD_SIZE", NULL, NULL, NULL},
    {"PMI_RANK", NULL, "PMI_SIZE", NULL, NULL, NULL},
    {"JOB_COMPLETION_INDEX", NULL, "JOB_COMPLETIONS", NULL, NULL, NULL}};

/* Which part this process takes; `parts` is 0 if nothing says that it takes one. */
typedef struct share {
  const cli_launcher *launcher; /* NULL: the user said which */
  int64_t part, parts;
} share;

/* Whether srun has started several processes with this command line: then each takes a part, without being told. */
static bool is_one_of_several(const tsr_params *own) {
  return cli_launcher_number("SLURM_STEP_ID") >= 0 && cli_launcher_number("SLURM_PROCID") >= 0 &&
         cli_launcher_number("SLURM_STEP_NUM_TASKS") > 1 && !tsr_params_text(own, "sketches");
}

/* Make "auto" the part of this process, "3/8". */
static int find_part(cli_session *session, share *out) {
  const cli_options *options = session->options;
  const char *part = tsr_params_text(options->own, "part");
  if (part ? strcmp(part, "auto") != 0 : !is_one_of_several(options->own)) return 0;
  for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
    const cli_launcher *l = &launchers[i];
    int64_t number = cli_launcher_number(l->number), first = cli_launcher_number(l->first);
    int64_t count = cli_launcher_number(l->count), last = cli_launcher_number(l->last);
    char text[48];
    if (number < 0 || (!part && !l->step)) continue;
    if (first < 0) first = 0;
    bool is_whole = count > 0 && number >= first && number - first < count;
    if (!is_whole || (last >= 0 && last - first + 1 != count))
      return cli_usage_error(
          options->command,
          "--part auto: %s and %s do not say which part of how many this is; use "
          "--part I/N",
          l->number, l->count);
    *out = (share){l, number - first + 1, count};
    int length = snprintf(text, sizeof text, "%" PRId64 "/%" PRId64, out->part, out->parts);
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

/* One process of several prints nothing: its ranks are compared when all sketches are there. */
static int finish(cli_session *session, const cli_asking *asking) {
  const tsr_params *own = session->options->own;
  const tsr_ranks *ranks = tsr_answer_value(asking->answer);
  bool is_part = tsr_params_text(own, "part") && tsr_params_text(own, "sketches");
  int status = is_part ? 0 : cli_ranks_deliver(session, asking);
  if (status == 0) status = write_sketches(session, ranks);
  return status || is_part ? status : cli_ranks_judge(session, ranks);
}

/* What the options must be before anything is read. */
static int check_budgets(cli_session *session) {
  const cli_options *options = session->options;
  const tsr_params *own = options->own;
  const char *form;
  bool has_budget = tsr_params_has(own, "max") || tsr_params_has(own, "max_reserved") ||
                    tsr_params_has(own, "max_spread");
  if (options->is_fleet_check && !has_budget)
    return cli_usage_error(options->command,
                           "nothing to check: pass --max, --max-reserved or --max-spread; a lock "
                           "is of one snapshot");
  if (has_budget && tsr_params_text(own, "part") && tsr_params_text(own, "sketches"))
    return cli_usage_error(options->command,
                           "--part reads some of the ranks: pass budgets to the command that puts "
                           "the sketches of all parts together");
  return cli_choose_form(session, &form);
}

/* The ranks of a page are compared, as those of an answer. */
static int check_page(const cli_session *session) {
  const cli_options *options = session->options;
  const char *path = tsr_params_text(options->own, "html");
  if (!path) return 0;
  if (tsr_params_text(options->own, "part") && tsr_params_text(options->own, "sketches"))
    return cli_usage_error(
        options->command,
        "--html needs the sketches of all parts: use it where they are put together");
  return cli_page_check_name(options, path);
}

/* Read what there is to read, and answer. */
static int ask_here(cli_session *session) {
  cli_asking asking = {.name = session->options->operands[0], .has_format = true};
  int status = cli_asking_run(session, &asking);
  if (status == 0) status = cli_keep_ranks(session->options, tsr_answer_value(asking.answer));
  if (status == 0) status = finish(session, &asking);
  cli_asking_release(&asking);
  return status;
}

int cli_ask_ranks(cli_session *session) {
  share mine = {.parts = 0};
  int status = check_budgets(session);
  if (status == 0) status = check_page(session);
  if (status == 0) status = find_part(session, &mine);
  if (status == 0) status = settle_name(session);
  bool gathers = status == 0 && mine.launcher && cli_gathers(mine.launcher) && mine.parts > 1 &&
                 !tsr_params_text(session->options->own, "sketches");
  const char *const here = ".";
  cli_confine(session->options, &(cli_needs){.folders = &here, .folder_count = gathers});
  if (gathers)
    status = cli_gather(session, mine.launcher, mine.part, mine.parts);
  else if (status == 0)
    status = ask_here(session);
  if (status == TSR_ERROR_IO || status == TSR_ERROR_LIMIT || status == TSR_ERROR_UNSUPPORTED) {
    cli_say(NULL, "%s", session->error.message); /* which names the place, one of several */
    status = CLI_INPUT;
  }
  return status;
}
