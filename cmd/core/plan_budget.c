/* plan_budget.c - `tessera plan MODEL --budget SIZE`: what to change so that it fits, and what that costs. */
#include "plan_budget.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <tessera/category.h>
#include <tessera/unstable/simulation.h>

enum { SIZE_BYTES = 32, LINE_BYTES = 512, ROWS = 8, COLUMNS = 80 };

const char *cli_time_text(double seconds, char *text, size_t room) {
  if (seconds >= 1)
    (void)snprintf(text, room, "%.2f s", seconds);
  else
    (void)snprintf(text, room, seconds >= 0.1 ? "%.0f ms" : "%.2f ms", seconds * 1000);
  return text;
}

int cli_put_words(cli_session *session, const char *label, size_t indent, const char *text) {
  size_t column = strlen(label);
  int status = cli_put(session, label);
  for (const char *word = text; status == 0 && *word;) {
    size_t length = strcspn(word, " ");
    char out[LINE_BYTES];
    bool is_first = word == text, is_new = !is_first && column + 1 + length > COLUMNS;
    (void)snprintf(out, sizeof out, "%s%*s%.*s",
                   is_new     ? "\n"
                   : is_first ? ""
                              : " ",
                   is_new ? (int)indent : 0, "", (int)length, word);
    status = cli_put(session, out);
    column = (is_new ? indent : column + !is_first) + length;
    word += length + (word[length] == ' ');
  }
  return status ? status : cli_put(session, "\n");
}

/* ---- the verdict ---- */

int cli_plan_put_ranks(cli_session *session, const tsr_run_plan *plan) {
  tsr_simulate_options options = TSR_OPTIONS_INIT(tsr_simulate_options);
  char line[LINE_BYTES];
  tsr_run_plan_options(plan, &options);
  (void)snprintf(line, sizeof line, "  on each of %llu ranks, with a batch of its own\n",
                 (unsigned long long)options.ranks);
  return options.ranks > 1 ? cli_put(session, line) : 0;
}

/* What they cost each other. */
static int put_sent(cli_session *session, const tsr_planned *planned) {
  char line[LINE_BYTES], sent[SIZE_BYTES], time[SIZE_BYTES];
  if (!planned->with.sent_bytes) return 0;
  (void)snprintf(line, sizeof line, "%sEach rank sends %s in a step, for which kernels wait %s.\n",
                 planned->is_proved ? "\n" : "",
                 tsr_size_text(planned->with.sent_bytes, sent, sizeof sent),
                 cli_time_text(planned->with.stall_seconds, time, sizeof time));
  return cli_put(session, line);
}

static int put_as_is(cli_session *session, const tsr_planned *planned) {
  char line[LINE_BYTES], reserved[SIZE_BYTES], peak[SIZE_BYTES], time[SIZE_BYTES];
  (void)snprintf(line, sizeof line, "  as it is   %11s reserved  %11s allocated  %9s a step\n",
                 tsr_size_text(planned->as_is.reserved_bytes, reserved, sizeof reserved),
                 tsr_size_text(planned->as_is.peak_bytes, peak, sizeof peak),
                 cli_time_text(planned->as_is.step_seconds, time, sizeof time));
  bool is_refused = !planned->as_is.is_possible;
  int status = is_refused ? cli_put_words(session, "  as it is   ", 13, planned->refusal)
                          : cli_put(session, line);
  if (status || (planned->verdict == TSR_PLANNING_FITS && !planned->change_count)) return status;
  (void)snprintf(line, sizeof line, "  this plan  %11s reserved  %11s allocated  %9s a step\n",
                 tsr_size_text(planned->with.reserved_bytes, reserved, sizeof reserved),
                 tsr_size_text(planned->with.peak_bytes, peak, sizeof peak),
                 cli_time_text(planned->with.step_seconds, time, sizeof time));
  return cli_put(session, line);
}

static int put_verdict(cli_session *session, const char *model, const tsr_planned *p,
                       uint64_t budget_bytes) {
  char line[LINE_BYTES], budget[SIZE_BYTES], least[SIZE_BYTES], floor[SIZE_BYTES];
  tsr_size_text(budget_bytes, budget, sizeof budget);
  tsr_size_text(p->bound_bytes, floor, sizeof floor);
  tsr_size_text(p->with.reserved_bytes, least, sizeof least);
  bool is_refused = p->verdict == TSR_PLANNING_DOES_NOT_FIT;
  if (is_refused && strcmp(budget, p->is_proved ? floor : least) == 0) { /* too close for units */
    (void)snprintf(budget, sizeof budget, "%" PRIu64 " B", budget_bytes);
    (void)snprintf(floor, sizeof floor, "%" PRIu64 " B", p->bound_bytes);
    (void)snprintf(least, sizeof least, "%" PRIu64 " B", p->with.reserved_bytes);
  }
  double more = p->as_is.step_seconds > 0 ? p->with.step_seconds / p->as_is.step_seconds - 1 : 0;
  if (p->verdict == TSR_PLANNING_FITS && p->change_count)
    (void)snprintf(line, sizeof line,
                   "%.200s: fits in %s as it is; with these changes a step takes %.1f %% %s.\n",
                   model, budget, 100 * fabs(more), more < 0 ? "less" : "more");
  else if (p->verdict == TSR_PLANNING_FITS)
    (void)snprintf(line, sizeof line,
                   "%.200s: fits in %s as it is; nothing that may be changed is faster.\n", model,
                   budget);
  else if (p->verdict == TSR_PLANNING_FITS_WITH_CHANGES && !p->as_is.is_possible)
    (void)snprintf(line, sizeof line, "%.200s: fits in %s with these changes.\n", model, budget);
  else if (p->verdict == TSR_PLANNING_FITS_WITH_CHANGES)
    (void)snprintf(line, sizeof line,
                   "%.200s: fits in %s with these changes, and a step takes %.1f %% %s.\n", model,
                   budget, 100 * fabs(more), more < 0 ? "less" : "more");
  else if (p->is_proved)
    (void)snprintf(line, sizeof line,
                   "%.200s: cannot fit in %s: every way needs %s or more at once.\n", model, budget,
                   floor);
  else
    (void)snprintf(line, sizeof line,
                   "%.200s: does not fit in %s: the least that a plan reserves is %s.\n", model,
                   budget, least);
  int status = cli_put(session, line);
  if (status == 0) status = cli_plan_put_ranks(session, p->plan);
  return status ? status : put_as_is(session, p);
}

/* ---- the changes ---- */

static int put_change(cli_session *session, const tsr_planned_change *change,
                      const tsr_run_plan_cost *last) {
  char line[LINE_BYTES], peak[SIZE_BYTES] = "-", saved[SIZE_BYTES] = "-", time[SIZE_BYTES] = "-";
  const tsr_run_plan_cost *so_far = &change->so_far;
  if (so_far->is_possible) {
    bool is_more = so_far->peak_bytes > last->peak_bytes;
    uint64_t bytes =
        is_more ? so_far->peak_bytes - last->peak_bytes : last->peak_bytes - so_far->peak_bytes;
    tsr_size_text(so_far->peak_bytes, peak, sizeof peak);
    if (last->is_possible) tsr_size_text(bytes, saved + is_more, sizeof saved - is_more);
    cli_time_text(so_far->step_seconds, time, sizeof time);
  }
  bool is_long = strlen(change->name) > 36;
  (void)snprintf(line, sizeof line, "  %-*.*s%s %12s %12s %10s\n", is_long ? 33 : 36,
                 is_long ? 33 : 36, change->name, is_long ? "..." : "", peak, saved, time);
  return cli_put(session, line);
}

/* What the changes do, one after another. */
static int put_changes(cli_session *session, const tsr_planned *planned) {
  char line[LINE_BYTES];
  const tsr_run_plan_cost *last = &planned->as_is;
  if (!planned->change_count) return 0;
  (void)snprintf(line, sizeof line, "\n  %-36s %12s %12s %10s\n", "change", "peak so far", "saved",
                 "a step");
  int status = cli_put(session, line);
  for (size_t i = 0; status == 0 && i < planned->change_count; i++) {
    status = put_change(session, &planned->changes[i], last);
    if (planned->changes[i].so_far.is_possible) last = &planned->changes[i].so_far;
  }
  return status;
}

/* ---- the moment of the peak ---- */

static int put_row(cli_session *session, const char *name, uint64_t bytes, uint64_t of) {
  char line[LINE_BYTES], size[SIZE_BYTES];
  (void)snprintf(line, sizeof line, "  %-56.56s %12s %5.1f %%\n", name,
                 tsr_size_text(bytes, size, sizeof size), 100 * (double)bytes / (double)of);
  return cli_put(session, line);
}

static bool is_same_kind(const tsr_memory_row *a, const tsr_memory_row *b) {
  return a->category == b->category && strcmp(a->op, b->op) == 0 &&
         strcmp(a->kernel, b->kernel) == 0;
}

/* The rows of all blocks together; `rows` are the caller's to change. Returns how many are left, the largest first. */
static size_t join_rows(tsr_memory_row *rows, size_t count) {
  size_t kinds = 0;
  for (size_t i = 0; i < count; i++) {
    size_t k = 0;
    while (k < kinds && !is_same_kind(&rows[k], &rows[i])) k++;
    if (k < kinds)
      rows[k].bytes += rows[i].bytes;
    else
      rows[kinds++] = rows[i];
    tsr_memory_row row = rows[k];
    for (; k > 0 && rows[k - 1].bytes < row.bytes; k--) rows[k] = rows[k - 1];
    rows[k] = row;
  }
  return kinds;
}

static int put_moment(cli_session *session, tsr_memory_profile *profile) {
  char line[LINE_BYTES], peak[SIZE_BYTES];
  uint64_t all = profile->peak.totals.allocated_bytes, shown = 0;
  (void)snprintf(line, sizeof line, "\nAt the peak, %s, in the %s of step %llu%s%s%s:\n",
                 tsr_size_text(all, peak, sizeof peak), profile->peak.phase,
                 (unsigned long long)profile->peak.step, *profile->peak.op ? " (" : "",
                 profile->peak.op, *profile->peak.op ? ")" : "");
  int status = cli_put(session, line);
  size_t count = join_rows(profile->rows, profile->row_count);
  for (size_t i = 0; status == 0 && i < count && i < ROWS; i++) {
    const tsr_memory_row *row = &profile->rows[i];
    char name[128];
    bool has_maker = *row->op || *row->kernel;
    (void)snprintf(name, sizeof name, "%s%s%s%s%s", tsr_category_name(row->category),
                   has_maker ? ": " : "", row->op, *row->op && *row->kernel ? ", " : "",
                   row->kernel);
    status = put_row(session, name, row->bytes, all);
    shown += row->bytes;
  }
  return status || shown == all ? status : put_row(session, "all other", all - shown, all);
}

static int put_binding(cli_session *session, const tsr_model *model,
                       const tsr_simulate_options *how, const tsr_planned *planned) {
  tsr_simulate_options options = *how;
  tsr_simulation *simulation = NULL;
  tsr_run_plan_options(planned->plan, &options);
  options.profile = true;
  int status = tsr_simulate(model, &options, &simulation, &session->error);
  if (status == 0) status = put_moment(session, simulation->profile);
  tsr_simulation_free(simulation);
  return status;
}

/* ---- the bound ---- */

static int put_bound(cli_session *session, const tsr_planned *p) {
  char line[LINE_BYTES], time[SIZE_BYTES], bytes[SIZE_BYTES];
  if (p->is_proved) return 0;
  double gap = p->bound_seconds > 0 ? p->with.step_seconds / p->bound_seconds - 1 : 0;
  tsr_size_text(p->bound_bytes, bytes, sizeof bytes);
  if (p->verdict == TSR_PLANNING_DOES_NOT_FIT)
    (void)snprintf(line, sizeof line,
                   "\nIt is not proved that nothing fits: only %s are certainly needed at once.\n",
                   bytes);
  else
    (void)snprintf(line, sizeof line,
                   "\nNo schedule of these kernels within the budget takes less than %s: this one\n"
                   "takes %.1f %% more. Times are estimates for the card, or of --rates.\n",
                   cli_time_text(p->bound_seconds, time, sizeof time), 100 * fmax(gap, 0));
  return cli_put(session, line);
}

int cli_plan_put_found(cli_session *session, const char *name, const tsr_planned *planned) {
  bool fits = planned->verdict != TSR_PLANNING_DOES_NOT_FIT;
  int status = put_verdict(session, name, planned, planned->budget_bytes);
  if (status == 0) status = put_changes(session, planned);
  if (status == 0 && !fits) status = put_bound(session, planned);
  return status || !fits ? status : cli_put(session, "\n");
}

/* Where a step graph was cut. */
static int put_units(cli_session *session, const tsr_planned *planned) {
  char line[LINE_BYTES];
  if (!planned->unit_count) return 0;
  (void)snprintf(line, sizeof line, "Choices were made for %zu blocks of modules",
                 planned->unit_count);
  int status = cli_put(session, line);
  if (planned->far_count)
    (void)snprintf(line, sizeof line,
                   ".\n%zu of them read results of other blocks than the one before. The solver "
                   "assumes\na chain, so it "
                   "may have missed a better plan.\n",
                   planned->far_count);
  else
    (void)snprintf(line, sizeof line, ", a chain.\n");
  return status ? status : cli_put(session, line);
}

static int put_plan(cli_session *session, const tsr_planned *planned) {
  char line[LINE_BYTES];
  (void)snprintf(line, sizeof line, "\nplan %s\n", tsr_run_plan_hash(planned->plan));
  int status = cli_put(session, line);
  return status ? status : cli_put(session, tsr_run_plan_text(planned->plan));
}

static int put_text(cli_session *session, const char *name, const tsr_model *model,
                    const tsr_simulate_options *how, const tsr_planned *planned) {
  uint64_t bytes = tsr_params_count(session->options->own, "budget");
  int status = put_verdict(session, name, planned, bytes);
  if (status == 0) status = put_changes(session, planned);
  if (status == 0) status = put_binding(session, model, how, planned);
  if (status == 0) status = put_bound(session, planned);
  if (status == 0) status = put_sent(session, planned);
  if (status == 0) status = put_units(session, planned);
  if (status == 0 && planned->calibration)
    status = cli_plan_put_calibration(session, planned->calibration);
  return status ? status : put_plan(session, planned);
}

/* ---- the command ---- */

static int save_plan(cli_session *session, const tsr_planned *planned) {
  cli_output output = {.path = tsr_params_text(session->options->own, "write_plan")};
  if (!output.path || planned->verdict == TSR_PLANNING_DOES_NOT_FIT) return 0;
  const char *text = tsr_run_plan_text(planned->plan);
  int status = cli_output_write(&output, text, strlen(text)) ? TSR_ERROR_WRITE : 0;
  return cli_finish_aside(session, &output, status);
}

static const char *target_of(const tsr_params *own) {
  const char *const *targets = TSR_TARGET_CHOICES;
  return targets[tsr_params_choice(own, "for")];
}

static int allow_of(cli_session *session, unsigned *allow) {
  const tsr_params *own = session->options->own;
  const char *words = tsr_params_text(own, "allow");
  bool is_model = tsr_params_choice(own, "largest") == TSR_LARGEST_MODEL;
  *allow = TSR_ALLOW_DEFAULT;
  if (tsr_params_has(own, "for"))
    *allow = tsr_target_allows(target_of(own), tsr_params_object(own, "model", &tsr_model_type));
  if (is_model) *allow &= ~TSR_ALLOW_OFFLOAD; /* on a host without end, any model would fit */
  int status = words ? tsr_allow_parse(words, allow, &session->error) : 0;
  if (status) return cli_usage_error(session->options->command, "%s", session->error.message);
  /* --zero 0 is a choice as well, though plans do not write it. */
  if (tsr_params_has(session->options->own, "zero")) *allow &= ~TSR_ALLOW_ZERO;
  return 0;
}

/* A target that cannot say all of the plan may not keep the budget, which is 0 if none was given. */
static int paste(cli_session *session, const tsr_run_plan *plan, const tsr_model *model,
                 const tsr_simulate_options *how, uint64_t budget_bytes) {
  const char *target = target_of(session->options->own);
  char reserved[SIZE_BYTES];
  uint64_t bytes = 0;
  int status = tsr_plan_paste(plan, model, how, target, cli_output_write, &session->output, &bytes,
                              &session->error);
  if (status || !budget_bytes || bytes <= budget_bytes) return status;
  cli_say(
      session->options->command->about.name,
      "what %s can say of the plan reserves %s, more than the budget; its comments name the rest",
      target, tsr_size_text(bytes, reserved, sizeof reserved));
  return CLI_CHECK_FAILED;
}

/* The answer for what was found, in the form that was asked for. */
static int put_answer(cli_session *session, const char *name, const tsr_model *model,
                      const tsr_simulate_options *how, tsr_planning *planning,
                      const tsr_planned *planned) {
  bool fits = planned->verdict != TSR_PLANNING_DOES_NOT_FIT;
  int status;
  if (session->report.format == TSR_REPORT_JSON)
    status = tsr_planning_write_json(planning, planned, cli_output_write, &session->output,
                                     &session->error);
  else if (fits && tsr_params_has(session->options->own, "for"))
    status = paste(session, planned->plan, model, how, planned->budget_bytes);
  else
    status = put_text(session, name, model, how, planned);
  if (status == 0) status = save_plan(session, planned);
  return status ? status : fits ? CLI_ANSWERED : CLI_CHECK_FAILED;
}

static const char *const largest_things[] = {"batch of %llu sequences", "sequence of %llu tokens",
                                             "model of %llu parameters"};

/* What it would be without changes; of a model, after its shape, on a line of its own. */
static int put_as_it_is(cli_session *session, const tsr_largest *found) {
  char line[LINE_BYTES], as_is[64] = "none";
  tsr_model_sizes sizes;
  if (found->as_is) (void)snprintf(as_is, sizeof as_is, "%llu", (unsigned long long)found->as_is);
  if (found->model && tsr_model_sizes_of(found->model, &sizes))
    (void)snprintf(line, sizeof line,
                   ".\n  %llu layers of width %llu, %llu heads; %s parameters as it is\n",
                   (unsigned long long)sizes.layers, (unsigned long long)sizes.width,
                   (unsigned long long)sizes.heads, as_is);
  else
    (void)snprintf(line, sizeof line, " (%s as it is).\n", as_is);
  return cli_put(session, line);
}

/* A config.json on one line: its lines begin with blanks, and no text in it has an end of line. */
static int put_config(cli_session *session, const char *config) {
  char line[LINE_BYTES];
  int status = 0;
  while (status == 0 && *config) {
    config += strspn(config, " \n");
    int length = (int)strcspn(config, "\n");
    if (length >= LINE_BYTES) length = LINE_BYTES - 1;
    (void)snprintf(line, sizeof line, "%.*s", length, config);
    status = cli_put(session, line);
    config += length;
  }
  return status;
}

static int put_largest_json(cli_session *session, const tsr_largest *found) {
  static const char *const names[] = {"batch", "seq", "model"};
  char line[LINE_BYTES];
  (void)snprintf(line, sizeof line,
                 "{\"schema\":\"tessera/1\",\"command\":\"plan\",\"largest\":\"%s\",\"size\":%llu,"
                 "\"size_as_is\":%llu,",
                 names[found->what], (unsigned long long)found->size,
                 (unsigned long long)found->as_is);
  int status = cli_put(session, line);
  if (status == 0 && found->model) status = cli_put(session, "\"model\":");
  if (status == 0 && found->model) status = put_config(session, tsr_model_config(found->model));
  if (status == 0 && found->model) status = cli_put(session, ",");
  return status ? status : cli_put(session, found->size ? "\"answer\":" : "\"answer\":null}\n");
}

static int put_largest(cli_session *session, const char *name, const tsr_largest *found) {
  char line[LINE_BYTES], size[64];
  if (session->report.format == TSR_REPORT_JSON) return put_largest_json(session, found);
  (void)snprintf(size, sizeof size, largest_things[found->what], (unsigned long long)found->size);
  if (!found->size)
    (void)snprintf(line, sizeof line, "%.200s: not even the smallest fits.\n", name);
  else
    (void)snprintf(line, sizeof line, "%.200s: a %s %s", name, size,
                   found->is_models_limit ? "fits, the model's limit" : "is the largest that fits");
  int status = cli_put(session, line);
  return status || !found->size ? status : put_as_it_is(session, found);
}

/* The config.json of a model that was found: after the answer, and in the file of --write-model. */
static int save_model(cli_session *session, const tsr_largest *found) {
  cli_output output = {.path = tsr_params_text(session->options->own, "write_model")};
  if (!found->model) return 0;
  const char *text = tsr_model_config(found->model);
  bool is_text = session->report.format != TSR_REPORT_JSON;
  if (is_text && !tsr_params_has(session->options->own, "for")) {
    int status = cli_put(session, "\nmodel\n");
    if (status == 0) status = cli_put(session, text);
    if (status) return status;
  }
  if (!output.path) return 0;
  int status = cli_output_write(&output, text, strlen(text)) ? TSR_ERROR_WRITE : 0;
  return cli_finish_aside(session, &output, status);
}

static int largest(cli_session *session, const char *name, const tsr_model *model,
                   const tsr_planning_options *options) {
  const tsr_params *own = session->options->own;
  tsr_largest found = {.size = 0};
  tsr_largest_what what = (tsr_largest_what)tsr_params_choice(own, "largest");
  uint64_t bytes = cli_plan_budget_of(session, options->calibration);
  if (what != TSR_LARGEST_MODEL && tsr_params_has(own, "write_model"))
    return cli_usage_error(session->options->command,
                           "option '--write-model' needs --largest model");
  int status = tsr_planning_largest(model, options, what, bytes, &found, &session->error);
  if (status) return status;
  status = put_largest(session, name, &found);
  if (status == 0 && found.size) {
    const tsr_model *of = found.model ? found.model : model;
    status = put_answer(session, name, of, &found.how, found.planning, &found.planned);
    if (status >= 0 && session->report.format == TSR_REPORT_JSON && cli_put(session, "}\n"))
      status = TSR_ERROR_WRITE;
    int saved = status == CLI_ANSWERED ? save_model(session, &found) : 0;
    if (saved) status = saved;
  } else if (status == 0) {
    status = CLI_CHECK_FAILED;
  }
  tsr_largest_release(&found);
  return status;
}

static int budget(cli_session *session, const char *name, const tsr_model *model,
                  const tsr_planning_options *options) {
  const tsr_params *own = session->options->own;
  tsr_planning *planning = NULL;
  tsr_planned planned = {.verdict = TSR_PLANNING_DOES_NOT_FIT};
  int status = tsr_planning_new(model, options, &planning, &session->error);
  if (status == 0 && tsr_params_flag(own, "front"))
    status = cli_plan_front(session, name, planning);
  else if (status == 0) {
    status = tsr_planning_solve(planning, cli_plan_budget_of(session, options->calibration),
                                &planned, &session->error);
    if (status == 0) status = put_answer(session, name, model, options->how, planning, &planned);
  }
  tsr_planned_release(&planned);
  tsr_planning_free(planning);
  return status;
}

/* The question that was asked. */
static int answer(cli_session *session, const char *name, const tsr_planning_options *options) {
  const tsr_params *own = session->options->own;
  const tsr_model *model = tsr_params_object(own, "model", &tsr_model_type);
  if (tsr_params_has(own, "largest")) return largest(session, name, model, options);
  if (tsr_params_has(own, "budget") || tsr_params_flag(own, "front"))
    return budget(session, name, model, options);
  return paste(session, options->plan, model, options->how, 0);
}

int cli_plan_search(cli_session *session, const char *name, const tsr_run_plan *plan,
                    const tsr_simulate_options *how) {
  tsr_planning_options options = TSR_OPTIONS_INIT(tsr_planning_options);
  tsr_calibration calibration = {.steps = 0};
  tsr_simulate_options own = *how;
  options.plan = plan;
  options.how = &own;
  int status = allow_of(session, &options.allow);
  if (status == 0) status = cli_plan_calibrate(session, plan, how, &calibration);
  if (status) return status;
  if (tsr_params_has(session->options->own, "from")) options.calibration = &calibration;
  if (calibration.rates) own.rates = calibration.rates;
  status = answer(session, name, &options);
  tsr_calibration_release(&calibration);
  if (status == TSR_ERROR_ARGUMENT || status == TSR_ERROR_UNSUPPORTED || status == TSR_ERROR_LIMIT)
    return cli_usage_error(session->options->command, "%s", session->error.message);
  return status;
}
