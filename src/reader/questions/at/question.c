/* question.c - the row of "at": what held the memory at another moment?
 *
 * The moment is an event's number, a time, or, as in Mosaic and PyTorch's viewer, an address,
 * the number of earlier frees there, and an action.
 */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>

#include "questions/reports.h"
#include "questions/shared/row.h"

/* Numbers that no event has, for the words of --event. */
#define AT_PEAK      INT64_MIN
#define AT_PEAK_TEXT "-9223372036854775808"
#define AT_END       INT64_MAX
#define AT_END_TEXT  "9223372036854775807"

static const tsr_parameter parameters[] = {
    {.name = "event",
     .kind = TSR_PARAMETER_INTEGER,
     .argument = "N",
     .help = "The moment after event N of the device's trace, -1 for before the first; or start, "
             "peak or end.",
     .advice = "The moment after this event of the device's trace, counted from 0; -1 is before "
               "the first.",
     .least = -1,
     .synonyms =
         (const tsr_synonym[]){
             {"start", "-1"}, {"peak", AT_PEAK_TEXT}, {"end", AT_END_TEXT}, {NULL, NULL}}},
    {.name = "time_us",
     .option = "time",
     .kind = TSR_PARAMETER_TIME,
     .argument = "TIME",
     .help = "A time in microseconds since 1970, or as reports print it ('2026-07-12 16:40:22'), "
             "meaning the moment after the last event up to it.",
     .advice = "Instead of event: a time in microseconds since 1970, as time_us in other answers."},
    {.name = "allocation",
     .option = "alloc",
     .kind = TSR_PARAMETER_TEXT,
     .argument = "ADDRESS_VERSION",
     .help = "The moment at which that block was allocated or freed, see --action.",
     .advice = "Instead of event: a block, as ADDRESS_VERSION, the address in hexadecimal and the "
               "number of earlier frees there, such as 7f36b8000000_1."},
    {.name = "action",
     .kind = TSR_PARAMETER_CHOICE,
     .argument = "ACTION",
     .help = "With --alloc: alloc (default), free_requested, free_completed or free.",
     .advice = "With allocation: which of its events. Default: alloc.",
     .choices = (const char *const[]){"alloc", "free_requested", "free_completed", "free", NULL}},
};

/* In the order of the words of `action`. */
static const tsr_action actions[] = {TSR_ACTION_ALLOC, TSR_ACTION_FREE_REQUESTED,
                                     TSR_ACTION_FREE_COMPLETED, TSR_ACTION_FREE_COMPLETED};

/* "cd1000000_1" into address and version. */
static bool parse_allocation(const char *text, tsr_at_where *where) {
  char *end = NULL;
  errno = 0;
  if (!isxdigit((unsigned char)*text)) return false;
  where->address = strtoull(text, &end, 16);
  if (*end != '_' || !isdigit((unsigned char)end[1])) return false;
  where->version = strtoull(end + 1, &end, 10);
  return *end == '\0' && errno == 0;
}

/* PyTorch's viewer writes a 'b' before some addresses, so there may be too many digits. */
static bool read_allocation(const char *text, tsr_at_where *where) {
  return parse_allocation(text, where) || (*text == 'b' && parse_allocation(text + 1, where));
}

static int check(const tsr_params *params, tsr_error *error) {
  tsr_at_where where;
  bool has_allocation = tsr_params_has(params, "allocation");
  if (tsr_params_has(params, "event") + tsr_params_has(params, "time_us") + has_allocation != 1)
    return tsr_params_fail(params, error,
                           "choose the moment with one of {event}, {time_us} and {allocation}");
  if (tsr_params_has(params, "action") && !has_allocation)
    return tsr_params_fail(params, error, "{action} needs {allocation}");
  if (!has_allocation || read_allocation(tsr_params_text(params, "allocation"), &where)) return 0;
  return tsr_params_fail(params, error,
                         "{=allocation} takes ADDRESS_VERSION, such as cd1000000_1, not '%s'",
                         tsr_params_text(params, "allocation"));
}

static tsr_at_where where_of(const tsr_params *params) {
  int action = tsr_params_choice(params, "action");
  tsr_at_where where = {.kind = TSR_AT_EVENT};
  if (tsr_params_has(params, "event")) {
    where.event = tsr_params_integer(params, "event");
    if (where.event == AT_PEAK) where.kind = TSR_AT_PEAK;
    if (where.event == AT_END) where.kind = TSR_AT_END;
  } else if (tsr_params_has(params, "time_us")) {
    where.kind = TSR_AT_TIME;
    where.time_us = tsr_params_integer(params, "time_us");
  } else {
    (void)read_allocation(tsr_params_text(params, "allocation"), &where);
    where.kind = TSR_AT_ALLOCATION;
    where.action = actions[action < 0 ? 0 : action];
  }
  return where;
}

/* A leading 'b' is also a hexadecimal digit: if an address has no events, it is tried again
 * without it. */
static int ask(const tsr__asked *asked, void **out, tsr_error *error) {
  tsr_study *study = asked->studies[0];
  const char *text = tsr_params_text(asked->params, "allocation");
  tsr_at_where where = where_of(asked->params), stripped = where;
  tsr_at *at = NULL;
  int status = tsr_at_compute(study, &where, asked->query, &at, error);
  if (status == TSR_ERROR_ARGUMENT && text && *text == 'b' &&
      parse_allocation(text + 1, &stripped)) {
    tsr_error ignored;
    int again = tsr_at_compute(study, &stripped, asked->query, &at, &ignored);
    if (again != TSR_ERROR_ARGUMENT) status = again;
  }
  if (status == 0) *out = at;
  return status;
}

TSR__QUESTION_REPORTS(at)

const tsr__question_row tsr__question_at = {
    .about =
        {.name = "at",
         .summary = "what held the memory at another moment?",
         .description =
             "Shows the exact state after one event of the trace: how much was requested, "
             "allocated and reserved, what the reserved memory lost to fragmentation, and the "
             "stacks that held it, largest first.\n\nEvents are numbered from 0 on each device; -1 "
             "is the state before the first. A time is in microseconds since 1970 and means the "
             "last event up to it. An allocation is identified as in PyTorch's viewer: its address "
             "in hexadecimal, an underscore, and the number of earlier frees there.",
         TSR__ONE_SUBJECT,
         TSR__PARAMETERS(parameters),
         .examples = {{"tessera at --event 3737 snapshot.pickle", "after event 3737"},
                      {"tessera at --event end snapshot.pickle", "what was left at the end"},
                      {"tessera at --time 1783874422365713 snapshot.pickle", "at that time"},
                      {"tessera at --alloc cd1000000_1 --action alloc snapshot.pickle",
                       "when that block was allocated for the second time"}},
         .title = "What held the GPU memory at a chosen moment?",
         .advice = "Like tessera_peak, for another moment than the peak: after an event "
                   "number, at a time, or when a given block was allocated or freed.",
         .ranks = "stacks",
         .has_stacks = true},
    .check = check,
    .fields = &tsr__fields_at,
    .ask = ask,
    .report = report,
    .free = release,
};
