/* question.c - the row of "check": is it within its budget, and no worse than before?
 *
 * The check for continuous integration: budgets, and a lock, a small text file kept with the code that
 * contains what an earlier run held. The caller writes the lock
 * (tsr_answer_write_form, "lock").
 */
#include <stdio.h>
#include <string.h>

#include "base/number.h"
#include "questions/reports.h"
#include "questions/shared/limits.h"
#include "questions/shared/row.h"
#include "tessera/unstable/check.h"

static const tsr_parameter parameters[] = {
    {.name = "max",
     .kind = TSR_PARAMETER_TEXTS,
     .argument = "[CATEGORY=]SIZE",
     .help = "Fail if more than SIZE is ever allocated, such as 18GiB, or if a category holds more "
             "(activation=3GiB). May be repeated.",
     .advice = "Budgets: a size such as 18GiB for all allocated memory, or CATEGORY=SIZE such "
               "as activation=3GiB for one category."},
    {.name = "max_reserved",
     .option = "max-reserved",
     .kind = TSR_PARAMETER_BYTES,
     .argument = "SIZE",
     .help = "Fail if more than SIZE is ever reserved.",
     .advice = "Budget of reserved memory, such as 20GiB; that depends on what the allocator had "
               "cached before.",
     .example = "20GiB"},
    {.name = "lock",
     .kind = TSR_PARAMETER_FILE,
     .type = &tsr_lock_type,
     .argument = "LOCK",
     .written_with = "update",
     .help = "Fail if the peak, or that of a category, does not match LOCK.",
     .advice = "Path of a lock that `tessera check --update` wrote: the figures of an earlier run, "
               "which this one must match."},
    {.name = "update",
     .kind = TSR_PARAMETER_FLAG,
     .hidden_from = TSR_INTERFACE_MCP | TSR_INTERFACE_PYTHON,
     .help = "Write LOCK instead of comparing with it, unless a budget is exceeded."},
    {.name = "tolerance",
     .kind = TSR_PARAMETER_TEXT,
     .argument = "SHARE|SIZE",
     .help = "Allowed difference from LOCK: a share of the locked peak such as 0.5%, or a size "
             "such as 16MiB (default: 1%).",
     .advice = "Allowed difference from the lock: a share of its peak such as 1% (the default), or "
               "a size such as 16MiB."},
    {.name = "root",
     .kind = TSR_PARAMETER_PATH,
     .hidden_from = TSR_INTERFACE_MCP | TSR_INTERFACE_PYTHON,
     .argument = "FOLDER",
     .help = "For SARIF: the folder of the sources as it appears in the snapshot; files below it "
             "are named relative to it (default: the current folder)."},
    {.name = "format",
     .kind = TSR_PARAMETER_CHOICE,
     .hidden_from = TSR_INTERFACE_MCP | TSR_INTERFACE_PYTHON,
     .argument = "FORMAT",
     .help = "The output format: text (default), json, junit, sarif or markdown.",
     .choices = (const char *const[]){"text", "json", "junit", "sarif", "markdown", NULL}},
    {.name = "causes",
     .kind = TSR_PARAMETER_FLAG,
     .hidden_from = TSR_INTERFACE_COMMAND | TSR_INTERFACE_MCP,
     .help = "Also report what held the memory if nothing is checked, to write a lock."},
};

enum { DEFAULT_MILLIONTHS = 10000 };

/* "1%", "16MiB" or "0": the allowed difference from the lock; default 1 % of the locked peak. */
static int read_tolerance(const tsr_params *params, tsr_check_options *how, tsr_error *error) {
  const char *text = tsr_params_text(params, "tolerance");
  char number[32];
  double share = 0;
  how->tolerance_millionths = text ? 0 : DEFAULT_MILLIONTHS;
  if (!text || strcmp(text, "0") == 0) return 0;
  size_t length = strspn(text, "0123456789.+-eE");
  const char *end = text + length + strspn(text + length, " ");
  if (length && length < sizeof number && strcmp(end, "%") == 0) {
    memcpy(number, text, length);
    number[length] = '\0';
    if (tsr__read_real(number, &share) && share >= 0 && share <= 100) {
      how->tolerance_millionths = (uint32_t)(share * 10000 + 0.5);
      return 0;
    }
  }
  if (tsr_size_parse(text, &how->tolerance_bytes)) return 0;
  return tsr_params_fail(
      params, error, "{=tolerance} takes a share such as 1%%, or a size such as 16MiB, not '%s'",
      text);
}

static int check(const tsr_params *params, tsr_error *error) {
  tsr_check_limit limits[TSR__LIMITS_MOST];
  tsr_check_options how = {.limits = limits};
  bool has_lock = tsr_params_has(params, "lock");
  int status = tsr__read_limits(params, limits, &how.limit_count, error);
  if (status == 0) status = read_tolerance(params, &how, error);
  if (status) return status;
  if (tsr_params_flag(params, "update") && !has_lock)
    return tsr_params_fail(params, error, "{update} needs {lock} FILE, the file to write");
  if (tsr_params_has(params, "tolerance") && !has_lock)
    return tsr_params_fail(params, error, "{tolerance} needs {lock}");
  if (!how.limit_count && !has_lock && !tsr_params_flag(params, "causes"))
    return tsr_params_fail(params, error, "nothing to check: pass {max}, {max_reserved} or {lock}");
  return 0;
}

static int ask(const tsr__asked *asked, void **out, tsr_error *error) {
  const tsr_params *params = asked->params;
  tsr_check_limit limits[TSR__LIMITS_MOST];
  tsr_check_options how = {.limits = limits};
  tsr_check *value = NULL;
  /* A lock that is about to be written cannot be violated. */
  bool is_update = tsr_params_flag(params, "update");
  how.wants_causes = is_update || tsr_params_flag(params, "causes");
  int status = tsr__read_limits(params, limits, &how.limit_count, error);
  if (status == 0) status = read_tolerance(params, &how, error);
  how.lock = is_update ? NULL : tsr_params_object(params, "lock", &tsr_lock_type);
  if (status == 0) status = tsr_check_compute(asked->studies[0], &how, asked->query, &value, error);
  if (status == 0) *out = value;
  return status;
}

/* ---- The report, and the formats for other programs ---- */

static int report(const tsr__report_call *call, tsr_error *error) {
  bool is_json = call->options && call->options->format == TSR_REPORT_JSON;
  tsr_check_face face = {.format = is_json ? TSR_CHECK_JSON : TSR_CHECK_TEXT};
  return tsr__report_check(call->inputs, call->value, &face, call->options, call->write,
                           call->context, error);
}

/* Those of `format`, and the lock. */
static const char *const forms[] = {"junit", "sarif", "markdown", "lock", NULL};

static int form(const tsr__report_call *call, size_t number, const char *root, tsr_error *error) {
  static const tsr_check_format formats[] = {TSR_CHECK_JUNIT, TSR_CHECK_SARIF, TSR_CHECK_MARKDOWN};
  if (number == 3) return tsr_lock_write(call->value, call->write, call->context, error);
  tsr_check_face face = {.format = formats[number], .root = root};
  return tsr__report_check(call->inputs, call->value, &face, call->options, call->write,
                           call->context, error);
}

static bool passed(const void *value) {
  return ((const tsr_check *)value)->is_passed;
}

static void release(void *value) {
  tsr_check_free(value);
}

const tsr__question_row tsr__question_check = {
    .about =
        {.name = "check",
         .summary = "is it within its budget, and no worse than before?",
         .situation = TSR_SITUATION_CHANGE,
         .description =
             "Compares a run with budgets and with a lock, and exits with status 1 if a check "
             "fails. It reports what is too much, what grew, and the lines of the program that "
             "hold it.\n\nChecks are made on allocated memory; reserved memory, which depends on "
             "what the allocator did before, is checked with --max-reserved only. Categories are "
             "parameter, gradient, optimizer_state, activation, recomputed, temporary, input, "
             "communication, workspace and unknown; each is checked at its own peak.\n\nA lock is "
             "a small text file, to be kept and reviewed with the code: the peak of each device "
             "and category, and the functions that held most. The peak and all categories except "
             "unknown must match, within --tolerance and in both directions; functions only "
             "explain. It contains no addresses, lines or folders. A folder, a pattern or several "
             "files are the ranks of a job, which `tessera ranks` checks with its options. A "
             "truncated snapshot may hold "
             "less than the run did, so it does not pass: the exit status is then 3.",
         TSR__ONE_SUBJECT,
         TSR__PARAMETERS(parameters),
         .examples =
             {{"tessera check --max 18GiB --max activation=3GiB snapshot.pickle", "budgets"},
              {"tessera check --lock memory.lock --update snapshot.pickle",
               "write down what it holds"},
              {"tessera check --lock memory.lock --format markdown snapshot.pickle",
               "did a change cost memory? For a comment on it"},
              {"tessera check --lock memory.lock --format sarif -o lock.sarif snapshot.pickle",
               "for a code host, at the line"}},
         .title = "Is it within its memory budget?",
         .advice =
             "Compare a run with budgets, for all memory or one category, and with the lock of an "
             "earlier run; reports what failed, by how much, and the responsible lines of code.",
         .ranks = "causes of each failure",
         .has_stacks = true},
    .check = check,
    .fields = &tsr__fields_check,
    .ask = ask,
    .report = report,
    .free = release,
    .passed = passed,
    .forms = forms,
    .form = form,
};
