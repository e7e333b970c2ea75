/* train.c - `tessera train MODEL --data FILE`: the training that `simulate` predicts, run on the CPU.
 *
 * This file reads the options, watches for signals, saves, and writes what is left at the end; the library trains
 * (tessera/unstable/training.h) and prints (tessera/unstable/train_report.h). Ctrl-C ends the run after the current step (train_signals.h),
 * and saves it.
 */
#define _XOPEN_SOURCE 700

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <tessera/unstable/params.h>
#include <tessera/unstable/planning.h>
#include <tessera/unstable/runs.h>
#include <tessera/unstable/train_report.h>
#include <time.h>

#include "confine.h"
#include "encode.h"
#include "export.h"
#include "folder.h"
#include "message.h"
#include "monotonic.h"
#include "ranks.h"
#include "session.h"
#include "textfile.h"
#include "train_budget.h"
#include "train_log.h"
#include "train_sample.h"
#include "train_signals.h"

/* ---- Progress ---- */

typedef struct run {
  cli_session *session;
  const char *model;
  cli_folder folder;
  cli_folder best; /* in `folder`, if there is validation data */
  char *best_path; /* owned */
  cli_train_log log;
  cli_train_sample sample;
  uint64_t save_every, save_wait_s;
  double save_every_s; /* the same in seconds; 0: by steps, or never */
  double saved_s;      /* when the last save was due */
  double tried_s;      /* when the last save failed; 0 if it did not */
  double started_s,
      last_s; /* seconds of the monotonic clock: the run's start, the last step's end */
  bool has_failed, is_begun, has_weights, is_over, was_interrupted, has_caution;
  int save_status;
  char plan_hash[TSR_RUN_PLAN_HASH_BYTES];
  char computed_by[128], saved_by[128]; /* tsr_train_step; of the run that is resumed, or "" */
  char *validation_text;                /* encoded; owned, or NULL */
  char *base;                           /* the model whose adapters are saved; owned, or NULL */
  tsr_train_rank *ranks;                /* what each rank took; owned */
  tsr_snapshot **snapshots; /* of the threads, by rank; owned; NULL if there is one rank */
  size_t rank_room;
  bool is_member;           /* a rank other than 0, which prints nothing */
  cli_ranks *processes;     /* started by a launcher; NULL without one */
  tsr_train_report *report; /* NULL for a member */
} run;

/* A tsr_write_fn that flushes: a run may take hours, and its reader waits for each line. */
static int write_through(void *context, const char *data, size_t size_bytes) {
  return cli_output_write(context, data, size_bytes) || cli_output_flush(context) ? -1 : 0;
}

static const char *isa_word(tsr_train_isa isa) {
  assert(isa > TSR_TRAIN_ISA_BEST);
  return tsr_train_isa_words[isa - TSR_TRAIN_ISA_PLAIN];
}

/* A resumed run that can't be equal, to the bit, to one without a break says it; one that could be faster, too. */
static void say_kernels(const run *r, const tsr_train_step *step) {
  const char *name = r->session->options->command->about.name;
  if (!*r->saved_by || r->session->options->quiet) return;
  if (strcmp(r->saved_by, step->computed_by) != 0)
    cli_say(name,
            "the run was saved with %s and goes on with %s: the last digits of its numbers can "
            "differ from those of a run without a break",
            r->saved_by, step->computed_by);
  else if (step->isa < step->best_isa)
    cli_say(
        name,
        "the run goes on with %s, as it was saved; with --isa %s it may be faster, and the last "
        "digits of its numbers differ",
        step->computed_by, isa_word(step->best_isa));
}

/* What was chosen is saved with the run, so that it is resumed with the same. */
static int keep_choices(run *r, const tsr_train_step *step) {
  tsr_params *own = r->session->options->own;
  const char *products = tsr_train_products_words[step->products], *isa = isa_word(step->isa);
  (void)snprintf(r->computed_by, sizeof r->computed_by, "%s", step->computed_by);
  r->folder.computed_by = r->best.computed_by = r->computed_by;
  int status = tsr_params_set_text(own, "products", products, strlen(products), &r->session->error);
  if (status == 0) status = tsr_params_set_text(own, "isa", isa, strlen(isa), &r->session->error);
  return status;
}

/* Print a step. */
static void report_step(run *r, const tsr_train_step *step) {
  double now = cli_now_s();
  tsr_train_times times = {.step = now - r->last_s - step->validation_seconds,
                           .since = now - r->started_s};
  if (!r->is_begun) {
    say_kernels(r, step);
    r->save_status = cli_finish_asides(r->session, keep_choices(r, step));
    r->has_failed |= !tsr_train_report_begin(r->report, r->model, r->has_weights, step);
  }
  r->is_begun = true;
  if (!step->is_given_up) {
    r->has_failed |= !tsr_train_report_step(r->report, step, &times);
    cli_train_log_step(&r->log, step, times.step);
    if (step->warning && !r->session->options->quiet)
      cli_say(r->session->options->command->about.name, "%s", step->warning);
  }
}

/* ---- Saving ---- */

enum { TRIED_AGAIN_S = 30, SAVE_WAIT_S = 600 };

static void say_save(const run *r, const char *what) {
  cli_say(r->session->options->command->about.name, "%s is not saved: %s", r->folder.path, what);
}

/* A disk that is full, or a folder that is gone, is no reason to end a healthy run: the next steps try again. */
static int save_meanwhile(run *r, const tsr_train_state *state) {
  int status = cli_folder_save(&r->folder, state);
  r->tried_s = status ? cli_now_s() : 0;
  if (!status || !r->folder.may_be_repeated) return status;
  say_save(r, "the run goes on, and tries again after later steps");
  return 0;
}

/* Nothing comes after the last step, so a save that fails is repeated, at growing intervals, until time or the user's
 * patience ends. */
static int save_last(run *r, const tsr_train_state *state) {
  double until_s = cli_now_s() + (double)r->save_wait_s;
  int signals = cli_signals_count();
  for (unsigned wait_s = 1;; wait_s = wait_s < TRIED_AGAIN_S ? 2 * wait_s : TRIED_AGAIN_S) {
    int status = cli_folder_save(&r->folder, state);
    if (!status || !r->folder.may_be_repeated || cli_now_s() + wait_s > until_s) return status;
    char text[96];
    (void)snprintf(text, sizeof text, "trying again in %u s; Ctrl-C gives up", wait_s);
    say_save(r, text);
    (void)nanosleep(&(struct timespec){.tv_sec = wait_s}, NULL);
    if (cli_signals_count() != signals) return status;
  }
}

/* A tsr_train_options.ready: find out before the first step what would otherwise be found out after the last. */
static int try_folder(void *context, uint64_t state_bytes) {
  run *r = context;
  uint64_t of_best = !r->best.path ? 0 : r->best.is_resumed ? 1 : 2;
  r->save_status = cli_folder_try(&r->folder, state_bytes, of_best);
  if (!r->save_status) r->save_status = cli_folder_try(&r->best, state_bytes, 0);
  cli_signals_begin(!r->processes && !r->rank_room);
  return r->save_status ? TSR_ERROR_WRITE : 0;
}

/* Save the weights with the smallest validation loss. A save that fails leaves those of an earlier step, and a later evaluation is
 * compared with them. */
static int save_best(run *r, const tsr_train_step *step) {
  cli_best before = r->best.best;
  bool is_better = !before.step || step->validation_loss < before.loss;
  if (!r->best.path || !step->state || !isfinite(step->validation_loss) || !is_better) return 0;
  r->best.best = (cli_best){step->step, step->validation_loss};
  int status = cli_folder_save(&r->best, step->state);
  if (status) r->best.best = before;
  r->folder.best = r->best.best;
  if (!status || !r->best.may_be_repeated) return status;
  cli_say(r->session->options->command->about.name,
          "%s is not saved: the run goes on, and tries again when an evaluation is better",
          r->best.path);
  return 0;
}

/* Whether the run is to be saved after this step, which is not its last. */
static bool is_due(run *r, const tsr_train_step *step) {
  double now_s = cli_now_s();
  if (r->tried_s > 0) return now_s - r->tried_s > TRIED_AGAIN_S;
  if (r->save_every) return step->step % r->save_every == 0;
  if (!(r->save_every_s > 0) || now_s - r->saved_s < r->save_every_s) return false;
  r->saved_s = now_s;
  return true;
}

/* Continue a text with the weights that were just saved. */
static void show_sample(run *r, const tsr_train_step *step) {
  cli_text text = {0};
  if (!cli_train_sample_take(&r->sample, r->folder.path, step->step, &text)) return;
  r->has_failed |= !tsr_train_report_sample(r->report, step->step, r->sample.prompt,
                                            text.data ? text.data : "", text.size);
  free(text.data);
}

static bool see_step(void *context, const tsr_train_step *step) {
  run *r = context;
  report_step(r, step);
  r->was_interrupted |= cli_signals_first() || step->is_interrupted;
  if (r->save_status) return false;
  bool is_end = step->is_last || cli_signals_first() || r->has_failed;
  r->save_status = save_best(r, step);
  if (r->save_status) return false;
  bool saves = step->state && (is_end || is_due(r, step));
  if (saves) r->save_status = (is_end ? save_last : save_meanwhile)(r, step->state);
  if (saves && !r->save_status && !(r->tried_s > 0) && !cli_signals_first()) show_sample(r, step);
  r->is_over = step->step == step->steps && !step->is_diverged && !step->is_given_up;
  r->last_s = cli_now_s(); /* saving is no part of the next step */
  return !is_end && !r->save_status;
}

/* ---- The end ---- */

/* Print everything that follows the last step. */
static void report_end(run *r, const tsr_training *t, const tsr_train_op *ops,
                       uint64_t budget_bytes) {
  const tsr_params *own = r->session->options->own;
  tsr_train_ending ending = {.training = t,
                             .ranks = r->ranks,
                             .plan_hash = r->plan_hash,
                             .seconds = cli_now_s() - r->started_s,
                             .was_interrupted = r->was_interrupted,
                             .is_saved = r->folder.is_saved};
  if (ops) (void)tsr_train_report_ops(r->report, t, ops);
  if (t->profile)
    (void)tsr_train_report_profile(r->report, t->profile, tsr_params_count(own, "top"));
  if (t->is_out_of_memory) (void)tsr_train_report_out_of_memory(r->report, t, budget_bytes);
  r->has_failed |= !tsr_train_report_end(r->report, &ending);
}

static int explain_end(const tsr_training *t, bool has_caution, const cli_command *command) {
  uint64_t done = t->steps_before + t->steps_done;
  if (t->is_diverged)
    cli_say(command->about.name,
            "the loss or a gradient of step %" PRIu64 " is not a finite number; %s may help",
            done + 1,
            has_caution ? "--dtype bf16 or autocast-fp16, or --master-weights," : "a smaller --lr");
  else if (t->is_out_of_memory)
    cli_say(command->about.name, "out of memory after %" PRIu64 " steps: --budget is too small",
            done);
  return t->is_diverged || t->is_out_of_memory ? CLI_CHECK_FAILED : 0;
}

/* ---- The command ---- */

/* Read a number that is followed by `end`, a comma or the end of the text. */
static bool take_number(const char **text, char end, double *out) {
  char *rest = NULL;
  *out = strtod(*text, &rest);
  if (rest == *text || !isfinite(*out) || *rest != end) return false;
  *text = rest + (end != '\0');
  return true;
}

/* Read the numbers of the optimizer. A 0 is passed to the library as -1, because its own 0 selects the default. */
static int read_optimizer(const cli_options *options, tsr_train_options *how) {
  const tsr_params *own = options->own;
  const struct {
    const char *name, *option;
    bool may_be_zero;
    double *to;
  } numbers[] = {{"lr", "--lr", false, &how->learning_rate},
                 {"min_lr", "--min-lr", true, &how->least_rate},
                 {"momentum", "--momentum", true, &how->momentum},
                 {"weight_decay", "--weight-decay", true, &how->weight_decay},
                 {"eps", "--eps", true, &how->epsilon}};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    const char *text = tsr_params_text(own, numbers[i].name), *rest = text;
    double number = 0;
    if (!text) continue;
    if (!take_number(&rest, '\0', &number) || number < 0 ||
        (!numbers[i].may_be_zero && !(number > 0)))
      return cli_usage_error(options->command, "%s needs a number %s 0, not '%s'",
                             numbers[i].option, numbers[i].may_be_zero ? "of at least" : "above",
                             text);
    *numbers[i].to = number > 0 ? number : -1;
  }
  const char *betas = tsr_params_text(own, "betas"), *rest = betas;
  double first = 0, second = 0;
  if (!betas) return 0;
  if (!take_number(&rest, ',', &first) || !take_number(&rest, '\0', &second) || first < 0 ||
      second < 0 || first >= 1 || second >= 1)
    return cli_usage_error(options->command,
                           "--betas needs two numbers from 0 to below 1, as in 0.9,0.95, not '%s'",
                           betas);
  how->beta_1 = first > 0 ? first : -1;
  how->beta_2 = second > 0 ? second : -1;
  return 0;
}

static bool read_no_decay(const char *text, unsigned *flags) {
  static const struct {
    const char *word;
    unsigned flag;
  } words[] = {{"norms", TSR_NO_DECAY_NORMS}, {"biases", TSR_NO_DECAY_BIASES}};
  *flags = 0;
  if (!text || strcmp(text, "none") == 0) return true;
  for (const char *at = text;; at++) {
    size_t length = strcspn(at, ","), i = 0;
    while (i < 2 && (strlen(words[i].word) != length || strncmp(words[i].word, at, length) != 0))
      i++;
    if (i == 2) return false;
    *flags |= words[i].flag;
    at += length;
    if (!*at) return true;
  }
}

/* SGD with momentum is an optimizer of its own, since its state takes memory. */
static int choose_momentum(cli_session *session, const tsr_train_options *how) {
  tsr_params *own = session->options->own;
  bool is_sgd =
      tsr_params_has(own, "optimizer") && tsr_params_choice(own, "optimizer") == TSR_OPTIMIZER_SGD;
  if (!(how->momentum > 0) || !is_sgd) return 0;
  return tsr_params_set_text(own, "optimizer", "sgd-momentum", strlen("sgd-momentum"),
                             &session->error);
}

/* Options that only some optimizers and schedules have. */
static int check_recipe(const cli_options *options, const tsr_simulate_options *steps,
                        const tsr_train_options *how) {
  const cli_command *command = options->command;
  double rate = how->learning_rate > 0 ? how->learning_rate : 1e-3;
  if (how->momentum > 0 && steps->optimizer != TSR_OPTIMIZER_SGD_MOMENTUM)
    return cli_usage_error(command, "--momentum needs --optimizer sgd");
  if (steps->nesterov && steps->optimizer != TSR_OPTIMIZER_SGD_MOMENTUM)
    return cli_usage_error(command, "--nesterov needs --optimizer sgd and --momentum");
  if (how->least_rate > 0 && how->schedule == TSR_TRAIN_CONSTANT)
    return cli_usage_error(command, "--min-lr needs --schedule cosine or linear");
  if (how->least_rate > rate)
    return cli_usage_error(command, "--min-lr is above --lr: %g and %g", how->least_rate, rate);
  return 0;
}

static int check(const cli_options *options, const tsr_format **format) {
  const tsr_params *own = options->own;
  const char *ending = "", *path = tsr_params_text(own, "snapshot");
  if (!tsr_params_has(own, "model"))
    return cli_usage_error(options->command,
                           "MODEL is missing; it can be left out only with --resume");
  if (!tsr_params_has(own, "data"))
    return cli_usage_error(options->command, "--data is missing: the text or tokens to train on");
  static const char *const of_validation[][2] = {{"eval_every", "--eval-every"},
                                                 {"eval_steps", "--eval-steps"},
                                                 {"eval_batch", "--eval-batch"}};
  for (size_t i = 0; i < sizeof of_validation / sizeof *of_validation; i++)
    if (tsr_params_has(own, of_validation[i][0]) && !tsr_params_has(own, "val"))
      return cli_usage_error(options->command, "%s needs --val: data to evaluate on",
                             of_validation[i][1]);
  if (!tsr_params_count(own, "steps") || !tsr_params_count(own, "batch") ||
      !tsr_params_count(own, "accumulate") || tsr_params_count(own, "seq") < 2)
    return cli_usage_error(options->command,
                           "--steps, --batch and --accumulate must be at least 1, and --seq 2");
  *format = tsr_format_for(path ? path : "", &ending);
  tsr_offload ignored;
  unsigned flags;
  tsr_error error;
  if (tsr_offload_parse(tsr_params_text(own, "offload"), &ignored, &error) ||
      tsr_in_place_parse(tsr_params_text(own, "in_place"), &flags, &error))
    return cli_usage_error(options->command, "%s", error.message);
  if (path && (!*format || (*format)->content != TSR_FORMAT_SNAPSHOT))
    return cli_usage_error(options->command, "--snapshot writes .pickle or .json, not '%s'",
                           *format ? (*format)->endings[0] : ending);
  return 0;
}

/* Try now whether the files of the end can be written: a run takes too long to find out afterwards. */
static int try_outputs(const cli_options *options) {
  const char *const paths[] = {tsr_params_text(options->own, "snapshot"),
                               tsr_params_text(options->own, "write_rates")};
  for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
    if (!paths[i] || cli_output_try(paths[i]) == 0) continue;
    cli_say(options->command->about.name, "%s: %s", paths[i], cli_reason(errno));
    return CLI_FAULT;
  }
  return 0;
}

static int write_one(cli_session *session, const tsr_snapshot *snapshot, const tsr_format *format,
                     const char *path) {
  cli_output output;
  int status = cli_start_aside(session, path, &output);
  if (status) return status;
  status = cli_export_snapshot(session, snapshot, format, &output);
  return cli_finish_aside(session, &output, output.error_number ? TSR_ERROR_WRITE : status);
}

/* Write the snapshot of one of several ranks, under the name that `simulate` uses. */
static int write_rank(cli_session *session, const tsr_snapshot *snapshot, const tsr_format *format,
                      uint32_t rank, uint32_t ranks) {
  const char *path = tsr_params_text(session->options->own, "snapshot");
  char *name = cli_rank_path(path, rank);
  int status = name ? write_one(session, snapshot, format, name) : TSR_ERROR_MEMORY;
  free(name);
  return status ? status : cli_rank_sidecar(session, path, rank, ranks, "trained");
}

/* Write the snapshots of this process and of the threads that trained with it. */
static int write_snapshots(cli_session *session, const run *r, const tsr_training *out,
                           const tsr_format *format) {
  if (!out->snapshot) return 0;
  if (out->rank_count < 2)
    return write_one(session, out->snapshot, format,
                     tsr_params_text(session->options->own, "snapshot"));
  int status = write_rank(session, out->snapshot, format, out->rank, out->rank_count);
  for (uint32_t i = 1; status == 0 && r->snapshots && i < out->rank_count; i++)
    if (r->snapshots[i]) status = write_rank(session, r->snapshots[i], format, i, out->rank_count);
  return status;
}

/* ---- Ranks ---- */

/* Report a failure now: MPI may end the process next. */
static void say_failure(void *context, uint32_t rank, const char *reason) {
  const run *r = context;
  cli_say(r->session->options->command->about.name, "rank %" PRIu32 " failed: %s", rank, reason);
}

/* Signals wait while an output is unfinished (output.c), which the plan is until the first step. */
static bool wants_end(void *context) {
  (void)context;
  return cli_signals_are_due();
}

static bool gives_up(void *context) {
  (void)context;
  return cli_signals_count() > 1;
}

/* The launcher determines the number of ranks. Options may only repeat it; that of a saved run is replaced. */
static int take_launched(cli_session *session, tsr_train_options *how, run *r) {
  tsr_params *own = session->options->own;
  bool is_typed = tsr_params_has(own, "ranks");
  uint32_t count = cli_ranks_count(r->processes);
  r->is_member = cli_ranks_rank(r->processes) > 0;
  if (!r->processes) {
    /* With one rank there is no ZeRO stage, even if the saved run had one. */
    bool is_alone = is_typed && !tsr_params_count(own, "ranks") && !tsr_params_has(own, "zero");
    return is_alone ? tsr_params_set_integer(own, "zero", 0, &session->error) : 0;
  }
  if (is_typed && tsr_params_count(own, "ranks") != count)
    return cli_usage_error(session->options->command,
                           "--ranks is %" PRIu64 ", but the launcher has started %" PRIu32,
                           tsr_params_count(own, "ranks"), count);
  how->launch = TSR_TRAIN_PROCESSES;
  how->processes = cli_ranks_processes(r->processes);
  how->failed = say_failure;
  how->rank_room = count;
  if (r->is_member) how->step = NULL;
  return is_typed ? 0 : tsr_params_set_integer(own, "ranks", count, &session->error);
}

static uint64_t ranks_of_plan(const tsr_params *own) {
  const tsr_run_plan *plan = tsr_params_object(own, "plan", &tsr_run_plan_type);
  tsr_simulate_options options = {.struct_bytes = sizeof options};
  if (plan) tsr_run_plan_options(plan, &options);
  return options.ranks;
}

/* A given plan is for its own number of ranks. A saved run may continue with another number, which changes what a step is. */
static int compare_ranks(cli_session *session, const run *r, bool is_plan_given) {
  const tsr_params *own = session->options->own;
  uint64_t planned = ranks_of_plan(own), before = planned ? planned : 1, now = before;
  if (tsr_params_has(own, "ranks")) now = tsr_params_count(own, "ranks");
  if (!now) now = 1;
  if (now == before) return 0;
  if (is_plan_given && r->processes && planned)
    return cli_usage_error(
        session->options->command,
        "the plan is for %" PRIu64 " ranks, but the launcher has started %" PRIu64, planned, now);
  if (tsr_params_has(own, "resume") && !is_plan_given && !session->options->quiet)
    cli_say(session->options->command->about.name,
            "the run was saved with %" PRIu64 " rank%s and continues with %" PRIu64
            ": a step now has the batches of %" PRIu64,
            before, before == 1 ? "" : "s", now, now);
  return 0;
}

/* Find out now whether the snapshot of a rank would replace an input. A run has at most 1,024 ranks. */
static int keep_inputs(const cli_session *session) {
  const tsr_params *own = session->options->own;
  const char *path = tsr_params_text(own, "snapshot");
  uint64_t ranks =
      tsr_params_has(own, "ranks") ? tsr_params_count(own, "ranks") : ranks_of_plan(own);
  return path ? cli_rank_keep_inputs(session, path, ranks < 1024 ? ranks : 1024) : 0;
}

/* Choose threads if the options name ranks and no launcher has started them; allocate room for what each rank takes. */
static int find_ranks(const tsr_simulate_options *options, tsr_train_options *how, run *r) {
  if (how->launch == TSR_TRAIN_ALONE && options->ranks) {
    how->launch = TSR_TRAIN_THREADS;
    how->rank_room = options->ranks < 1024 ? (size_t)options->ranks : 1024;
  }
  if (how->launch == TSR_TRAIN_ALONE) return 0;
  r->rank_room = how->rank_room;
  how->ranks = r->ranks = calloc(how->rank_room, sizeof *r->ranks);
  how->snapshots = r->snapshots = calloc(how->rank_room, sizeof(tsr_snapshot *));
  return r->ranks && r->snapshots ? 0 : TSR_ERROR_MEMORY;
}

/* Train, and print the results. */
static int train(cli_session *session, const tsr_train_options *how, run *r, tsr_training *out) {
  const tsr_params *own = session->options->own;
  tsr_simulate_options options;
  tsr_run_plan *plan = NULL;
  int status = tsr_simulate_options_of(own, &plan, &options, &session->error);
  if (status) return cli_params_error(session->options->command, status, &session->error);
  if (!tsr_params_has(own, "book")) options.book = TSR_BOOK_OWN;
  options.memory = cli_train_memory(own);
  const char *caution = tsr_simulate_caution(&options);
  r->has_caution = caution != NULL;
  if (caution && !r->is_member && !session->options->quiet)
    cli_say(session->options->command->about.name, "%s", caution);
  options.eval_steps = tsr_params_count(own, "eval_every");
  options.eval_batch = tsr_params_count(own, "eval_batch");
  options.nesterov = tsr_params_flag(own, "nesterov");
  if (!read_no_decay(tsr_params_text(own, "no_decay"), &options.no_decay))
    status = cli_usage_error(session->options->command,
                             "--no-decay takes norms, biases, both with a comma, or none, not '%s'",
                             tsr_params_text(own, "no_decay"));
  if (status == 0) status = check_recipe(session->options, &options, how);
  if (status) {
    tsr_run_plan_free(plan);
    return status;
  }
  bool is_said = false, has_begun = false;
  memcpy(r->plan_hash, tsr_run_plan_hash(plan), sizeof r->plan_hash);
  cli_signals_watch(session->options->command->about.name, r->folder.path,
                    r->is_member || session->options->quiet);
  r->started_s = r->last_s = cli_now_s();
  tsr_train_options all = *how;
  all.is_said = &is_said;
  all.has_begun = &has_begun;
  status = find_ranks(&options, &all, r);
  if (status == 0)
    status = tsr_train(tsr_params_object(own, "model", &tsr_model_type), &options, &all, out,
                       &session->error);
  cli_signals_unwatch();
  if (status == TSR_ERROR_IO && !r->is_begun && !r->processes)
    session->ended_by = cli_signals_first();
  tsr_run_plan_free(plan);
  session->is_about_no_input = !*how->subject; /* otherwise the library named it */
  if (*how->subject) session->path = *how->subject;
  if (r->save_status && !r->is_begun) return r->save_status; /* of try_folder, which said why */
  if (cli_is_about_options(status) && !is_said && !*how->subject)
    status = cli_usage_error(session->options->command, "%s", session->error.message);
  if (status && r->processes && !has_begun)
    return cli_ranks_agree(r->processes, session, is_said ? 0 : status);
  if (status && is_said) return CLI_FAULT;
  if (status > 0 || (status == 0 && r->is_member)) return status;
  cli_folder_say(&r->best, true);
  cli_folder_say(&r->folder, r->is_over);
  if (status || r->save_status) return status ? status : r->save_status;
  report_end(r, out, how->ops, options.capacity_bytes);
  return 0; /* a failed report returns its status when it is finished */
}

static bool is_plain_text(const char *path, tsr_train_tokens tokens) {
  return tokens == TSR_TRAIN_TOKENS_AUTO && (!path || tsr_train_is_text(path));
}

/* Point out that a model which seems to be one of words gets bytes. */
static void say_bytes(const cli_session *session, const run *r, const char *name) {
  enum { BYTES_MOST = 512 };
  tsr_model_sizes sizes;
  char number[32];
  (void)tsr_model_sizes_of(tsr_params_object(session->options->own, "model", &tsr_model_type),
                           &sizes);
  if (sizes.vocabulary <= BYTES_MOST || r->is_member || session->options->quiet) return;
  cli_say(session->options->command->about.name,
          "%s: each byte is a token, as no tokenizer is there for the model's vocabulary of %s; "
          "--tokenizer names one",
          cli_path_words(name), cli_number_text(sizes.vocabulary, number));
}

/* Where the tokenizer is, if data is a text that one is to encode; or NULL. `path`: NULL for a text that was read. */
static const char *find_tokenizer(const cli_session *session, const char *path,
                                  tsr_train_tokens tokens) {
  const tsr_params *own = session->options->own;
  const char *given = tsr_params_text(own, "tokenizer"), *resume = tsr_params_text(own, "resume");
  const char *model = session->model_folder;
  if (!is_plain_text(path, tokens)) return NULL;
  if (given) return given;
  if (resume && cli_has_tokenizer(resume)) return resume;
  return model && cli_has_tokenizer(model) ? model : NULL;
}

/* Data that a run reads: a file that the library reads while it trains, unless there is a text, which may be encoded. */
typedef struct data {
  const char *path; /* NULL for a stream */
  char **text;      /* owned by the caller */
  size_t *text_bytes;
  tsr_train_tokens *tokens;
} data;

/* The folder that MODEL names, or whose config.json it names. */
static int find_model_folder(cli_session *session) {
  static const char last[] = "config.json";
  const cli_options *options = session->options;
  const char *model = options->operand_count ? options->operands[0] : NULL;
  const char *slash = model ? strrchr(model, '/') : NULL;
  bool is_folder = model && cli_is_folder(model);
  if (!model || (!is_folder && strcmp(slash ? slash + 1 : model, last) != 0)) return 0;
  session->model_folder = strdup(is_folder || slash ? model : ".");
  if (!session->model_folder) return TSR_ERROR_MEMORY;
  if (!is_folder && slash) session->model_folder[slash == model ? 1 : slash - model] = '\0';
  return 0;
}

/* Replace a text by its tokens. session->path names it. */
static int encode_data(cli_session *session, const run *r, const data *d) {
  const char *name = session->path, *path = find_tokenizer(session, d->path, *d->tokens);
  tsr_tokenizer *tokenizer = NULL;
  cli_encoded encoded = {0};
  char tokens[32];
  if (!path && is_plain_text(d->path, *d->tokens)) say_bytes(session, r, name);
  if (!path) return 0;
  int status = *d->text ? 0 : cli_read_large_text(name, d->text, d->text_bytes, &session->error);
  session->path = path;
  if (status == 0) status = tsr_tokenizer_open(path, &tokenizer, &session->error);
  if (status == 0) {
    session->path = name;
    status = cli_encode(session, tokenizer, name, *d->text, *d->text_bytes, &encoded);
  }
  tsr_tokenizer_free(tokenizer);
  if (status) return status;
  free(*d->text);
  *d->text = encoded.data;
  *d->text_bytes = encoded.size_bytes;
  *d->tokens = encoded.type;
  if (!r->is_member && !session->options->quiet)
    cli_say(session->options->command->about.name, "%s: %s tokens, by %s%s", cli_path_words(name),
            cli_number_text(encoded.token_count, tokens), path,
            cli_is_folder(path) ? "/tokenizer.json" : "");
  return 0;
}

/* Validation data, which is encoded as the data is. */
static int find_validation(cli_session *session, run *r, tsr_train_options *how) {
  const data d = {.path = how->validation,
                  .text = &r->validation_text,
                  .text_bytes = &how->validation_text_bytes,
                  .tokens = &how->validation_tokens};
  if (!how->validation) return 0;
  session->path = how->validation;
  int status = encode_data(session, r, &d);
  how->validation_text = r->validation_text;
  return status;
}

/* Read standard input and pipes. The library reads files while it trains. */
static int find_data(cli_session *session, const run *r, tsr_train_options *how, char **text) {
  const tsr_params *own = session->options->own;
  const char *path = tsr_params_text(own, "data");
  int tokens = tsr_params_choice(own, "tokens");
  struct stat found;
  how->data = path;
  how->tokens = tokens < 0 ? TSR_TRAIN_TOKENS_AUTO : (tsr_train_tokens)tokens;
  bool is_stream = strcmp(path, "-") == 0 || (stat(path, &found) == 0 && S_ISFIFO(found.st_mode));
  session->path = path;
  const data d = {.path = is_stream ? NULL : path,
                  .text = text,
                  .text_bytes = &how->text_bytes,
                  .tokens = &how->tokens};
  int status = 0;
  if (is_stream && how->tokens > TSR_TRAIN_TOKENS_BYTES)
    return cli_usage_error(session->options->command,
                           "--tokens needs a file: standard input is read as bytes");
  if (is_stream) {
    status = cli_read_text(path, CLI_TEXTFILE_ANY, text, &how->text_bytes, &session->error);
    how->data = NULL;
  }
  if (status == 0) status = encode_data(session, r, &d);
  how->text = *text;
  return status;
}

/* The folder that the run is saved to; NULL if it is not. */
static const char *save_folder(const cli_options *options) {
  const char *save = tsr_params_text(options->own, "save");
  return save ? save : tsr_params_text(options->own, "resume");
}

/* Whether adapters are trained, by an option or by a plan. */
static bool trains_adapters(const tsr_params *own) {
  const tsr_run_plan *plan = tsr_params_object(own, "plan", &tsr_run_plan_type);
  tsr_simulate_options options = {.struct_bytes = sizeof options};
  if (plan) tsr_run_plan_options(plan, &options);
  return tsr_params_has(own, "lora") ? tsr_params_count(own, "lora") : options.lora_rank;
}

/* The model as the user or a saved run named it: a file, or the folder of a config.json. NULL when out of memory. */
static char *source_of_model(const cli_session *session) {
  const char *model = tsr_params_text(session->options->own, "model");
  if (session->options->operand_count) return strdup(session->options->operands[0]);
  char *source = strdup(session->model_path ? session->model_path : model);
  char *slash = source && session->model_path ? strrchr(source, '/') : NULL;
  if (slash) *slash = '\0'; /* before "config.json" */
  return source;
}

static char *best_folder(const char *save) {
  char *path = save ? malloc(strlen(save) + sizeof "/" CLI_BEST_FOLDER) : NULL;
  if (path) (void)sprintf(path, "%s/" CLI_BEST_FOLDER, save);
  return path;
}

/* Prepare to save the best weights; those of the run that is resumed stay until there are better ones. */
static int find_best(cli_session *session, run *r, const char *save) {
  r->best_path = best_folder(save);
  if (!r->best_path) return TSR_ERROR_MEMORY;
  struct stat found;
  if (lstat(r->best_path, &found) == 0 && S_ISLNK(found.st_mode)) {
    cli_say(session->options->command->about.name,
            "%s: a link, which leads elsewhere; the best weights need a folder", r->best_path);
    return CLI_FAULT;
  }
  int status =
      cli_folder_open(&r->best, session, r->best_path, r->folder.is_resumed ? r->best_path : NULL);
  if (status == 0 && r->folder.is_resumed) r->best.best = cli_folder_best(r->best_path);
  r->folder.best = r->best.best;
  return status;
}

/* A number of steps, or of seconds, minutes or hours with a unit. */
static bool read_interval(const char *text, run *r) {
  static const struct {
    const char *word;
    double seconds;
  } units[] = {{"s", 1}, {"sec", 1}, {"m", 60}, {"min", 60}, {"h", 3600}};
  char *rest = NULL;
  if (!text) return true;
  if (*text < '0' || *text > '9') return false;
  errno = 0;
  uint64_t number = strtoull(text, &rest, 10);
  if (errno || !number) return false;
  if (!*rest) r->save_every = number;
  while (*rest == ' ') rest++;
  for (size_t i = 0; i < sizeof units / sizeof *units; i++)
    if (strcmp(rest, units[i].word) == 0) r->save_every_s = (double)number * units[i].seconds;
  r->saved_s = cli_now_s();
  return r->save_every || r->save_every_s > 0;
}

/* Where the files of the tokenizer are that a saved folder is to have; NULL if it has none. */
static const char *find_source(const cli_session *session, const tsr_train_options *how) {
  const cli_options *options = session->options;
  const char *given = tsr_params_text(options->own, "tokenizer");
  if (how->tokens == TSR_TRAIN_TOKENS_BYTES) return NULL;
  return given ? given : session->model_folder ? session->model_folder : how->resume;
}

/* Find out where the weights come from, and where they are saved. */
static int find_folders(cli_session *session, tsr_train_options *how, run *r) {
  const tsr_params *own = session->options->own;
  const char *save = save_folder(session->options);
  session->model_source = source_of_model(session);
  if (!session->model_source) return TSR_ERROR_MEMORY;
  const char *model = session->model_source;
  r->model = model;
  how->resume = tsr_params_text(own, "resume");
  if (!session->options->operand_count) r->model = how->resume;
  if (!read_interval(tsr_params_text(own, "save_every"), r))
    return cli_usage_error(session->options->command,
                           "--save-every needs a number of steps, or a time such as 90s, 10min or "
                           "2h, not '%s'",
                           tsr_params_text(own, "save_every"));
  r->save_wait_s =
      tsr_params_has(own, "save_wait") ? tsr_params_count(own, "save_wait") : SAVE_WAIT_S;
  bool has_weights =
      session->is_checkpoint || (session->model_path && cli_folder_has_weights(model));
  bool has_adapters = trains_adapters(own);
  if (has_weights && (!how->resume || has_adapters)) how->weights = model;
  if (session->model_path && !has_weights && !how->resume && cli_folder_has_adapters(model))
    return cli_usage_error(session->options->command,
                           "'%s' contains adapters without their model: continue their training "
                           "with --resume %s, or name the model",
                           model, model);
  r->has_weights = how->resume || how->weights;
  if (r->is_member) save = NULL;
  if (tsr_params_has(own, "save_every") && !save && !r->is_member)
    return cli_usage_error(session->options->command, "--save-every needs --save");
  if (tsr_params_has(own, "sample") && !save && !r->is_member)
    return cli_usage_error(session->options->command,
                           "--sample needs --save: it continues a text with the saved weights");
  int status = save ? cli_folder_open(&r->folder, session, save, how->resume) : 0;
  if (status || !save) return status;
  if (how->validation) status = find_best(session, r, save);
  r->folder.tokenizer = r->best.tokenizer = find_source(session, how);
  if (status == 0)
    status = cli_train_sample_open(
        &r->sample, session,
        r->folder.tokenizer && cli_has_tokenizer(r->folder.tokenizer) ? r->folder.tokenizer : NULL);
  if (status || !has_adapters || strcmp(model, "-") == 0) return status;
  r->base = realpath(model, NULL);
  r->folder.base = r->best.base = r->base;
  return r->base ? 0 : TSR_ERROR_MEMORY;
}

/* Read the saved options first: the command line may have no others. */
static int read_options(cli_session *session, run *r) {
  const char *resume = tsr_params_text(session->options->own, "resume");
  if (!resume) return 0;
  int status = cli_folder_resume(session, resume, r->saved_by, sizeof r->saved_by);
  bool is_named = session->options->operand_count || tsr_params_has(session->options->own, "model");
  if (status || is_named) return status;
  return tsr_params_set_path(session->options->own, "model", resume, &session->error);
}

static void read_numbers(const cli_options *options, tsr_train_options *how) {
  const tsr_params *own = options->own;
  uint64_t threads = tsr_params_count(own, "threads");
  int schedule = tsr_params_choice(own, "schedule"), isa = tsr_params_choice(own, "isa");
  how->seed = tsr_params_count(own, "seed");
  how->threads = threads > 1024 ? 1024 : (unsigned)threads;
  how->isa = isa < 0 ? TSR_TRAIN_ISA_BEST : (tsr_train_isa)(isa + 1);
  int products = tsr_params_choice(own, "products");
  how->products = products < 0 ? TSR_TRAIN_PRODUCTS_AUTO : (tsr_train_products)products;
  how->is_recorded = tsr_params_has(own, "snapshot");
  how->is_profiled = tsr_params_flag(own, "profile");
  how->offload_folder = tsr_params_text(own, "offload_dir");
  if (!how->offload_folder && tsr_params_has(own, "resume"))
    how->offload_folder = save_folder(options); /* cli_folder_resume */
  how->warmup_steps = tsr_params_count(own, "warmup");
  if (tsr_params_choice(own, "order") == 1) how->order = TSR_TRAIN_SEQUENTIAL;
  how->schedule = schedule < 0 ? TSR_TRAIN_CONSTANT : (tsr_train_schedule)schedule;
  how->validation = tsr_params_text(own, "val");
  int tokens = tsr_params_choice(own, "tokens");
  how->validation_tokens = tokens < 0 ? TSR_TRAIN_TOKENS_AUTO : (tsr_train_tokens)tokens;
  how->validation_batches = tsr_params_count(own, "eval_steps");
}

static int write_rates(cli_session *session, const tsr_training *out) {
  const char *path = tsr_params_text(session->options->own, "write_rates");
  if (!path || !out->rates) return 0;
  const char *text = tsr_rates_text(out->rates);
  cli_output output;
  int status = cli_start_aside(session, path, &output);
  if (status) return status;
  status = cli_output_write(&output, text, strlen(text)) ? TSR_ERROR_WRITE : 0;
  return cli_finish_aside(session, &output, status);
}

static int finish(cli_session *session, const run *r, const tsr_training *out,
                  const tsr_format *format) {
  int status = write_snapshots(session, r, out, format);
  if (r->is_member) return status;
  if (status == 0) status = write_rates(session, out);
  return status ? status : explain_end(out, r->has_caution, session->options->command);
}

/* Prepare options, data and folders. */
static int get_ready(cli_session *session, tsr_train_options *how, run *r,
                     const tsr_format **format, char **text) {
  const cli_options *options = session->options;
  const tsr_ds_config_how ds = {
      .ranks = how->rank_room, .trains = true, .note = r->is_member ? NULL : cli_say_ds_note};
  bool is_plan_given = tsr_params_has(options->own, "plan");
  int status = cli_read_ds_config(session, ds);
  if (status == 0) status = read_options(session, r);
  if (status == 0 && options->operand_count)
    status = tsr_params_set_path(options->own, "model", options->operands[0], &session->error);
  if (status == 0) status = check(options, format);
  if (status == 0 && !r->is_member) status = try_outputs(options);
  if (status == 0 && !r->is_member)
    status = cli_train_log_open(&r->log, session, tsr_params_text(options->own, "log"),
                                tsr_params_has(options->own, "resume"));
  if (status == 0) status = read_optimizer(options, how);
  if (status == 0) status = choose_momentum(session, how);
  if (status == 0) status = cli_read_parameters(session);
  if (status == 0) status = compare_ranks(session, r, is_plan_given);
  if (status == 0) read_numbers(options, how);
  how->measures = tsr_params_has(options->own, "write_rates");
  if (status == 0)
    status = cli_train_plan(session, options->operand_count ? options->operands[0] : "", r->report);
  if (status == 0) status = keep_inputs(session);
  if (status == 0 && !r->is_member)
    status = cli_write_plan(session); /* in place before the first step */
  if (status == 0) status = find_model_folder(session);
  if (status == 0) status = find_data(session, r, how, text);
  if (status == 0) status = find_validation(session, r, how);
  return status ? status : find_folders(session, how, r);
}

/* Not in a process that a launcher has started: MPI writes and connects as it likes. */
static void confine(const cli_options *options) {
  char *best = best_folder(save_folder(options));
  const char *const folders[] = {save_folder(options), tsr_params_text(options->own, "offload_dir"),
                                 best};
  cli_confine(options, &(cli_needs){.folders = folders, .folder_count = 3});
  free(best);
}

int cli_train(cli_session *session) {
  const cli_options *options = session->options;
  tsr_training out = {0};
  run r = {.session = session};
  const char *subject = NULL;
  tsr_train_options how = {.struct_bytes = sizeof how,
                           .step = see_step,
                           .ready = try_folder,
                           .context = &r,
                           .subject = &subject,
                           .wants_end = wants_end,
                           .gives_up = gives_up};
  const tsr_format *format = NULL;
  char *text = NULL;
  tsr_train_op *ops = NULL;
  how.accepts_other_data = tsr_params_has(options->own, "data"); /* named on the command line */
  int status = cli_ranks_join(session, &r.processes);
  if (status) return status;
  if (!r.processes) confine(options);
  if (tsr_params_has(options->own, "by")) {
    how.ops = ops = calloc(TSR_TRAIN_OPS, sizeof *ops);
    if (!ops) status = TSR_ERROR_MEMORY;
  }
  if (status == 0) status = take_launched(session, &how, &r);
  if (status == 0 && !r.is_member)
    status = tsr_train_report_new(&session->report, write_through, &session->output, &r.report,
                                  &session->error);
  if (status == 0) status = get_ready(session, &how, &r, &format, &text);
  status = cli_ranks_agree(r.processes, session, status);
  if (status == 0) status = train(session, &how, &r, &out);
  int printed = tsr_train_report_finish(r.report, &session->error);
  if (status == 0) status = printed;
  if (status == 0) status = finish(session, &r, &out, format);
  free(r.ranks);
  for (size_t i = 0; r.snapshots && i < r.rank_room; i++) tsr_snapshot_free(r.snapshots[i]);
  free(r.snapshots);
  free(text);
  free(ops);
  cli_train_log_close(&r.log);
  cli_train_sample_close(&r.sample);
  cli_folder_release(&r.best);
  cli_folder_release(&r.folder);
  free(r.base);
  free(r.validation_text);
  free(r.best_path);
  tsr_snapshot_free(out.snapshot);
  tsr_memory_profile_free(out.profile);
  tsr_rates_free(out.rates);
  cli_ranks_leave(r.processes);
  return status;
}
