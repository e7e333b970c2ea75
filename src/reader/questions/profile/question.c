/* question.c - the row of "profile": what is the memory at the peak for? */
#include <assert.h>

#include "questions/reports.h"
#include "questions/shared/row.h"

static const tsr_parameter parameters[] = {
    {.name = "by",
     .kind = TSR_PARAMETER_CHOICE,
     .argument = "GROUPING",
     .help = "What to group the memory by: category (default), annotation, compile-context, rules, "
             "op, module, line, stack, pool, or metadata: the text that the program attached to "
             "it, or metadata:KEY, the value of a key in that text.",
     .advice = "What to group by: category (default), the open record_function range, the compiled "
               "region, your own rules, the operation or kernel, the nn.Module, the line of the "
               "program, the stack, the allocator's pool, or metadata: the "
               "text that the program attached (_set_memory_metadata, _annotate_tensor), or "
               "metadata:KEY, the value of a key if that text is JSON.",
     .choices =
         (const char *const[]){TSR_BY_CATEGORY, TSR_BY_ANNOTATION, TSR_BY_COMPILE_CONTEXT,
                               TSR_BY_RULES, TSR_BY_OP, TSR_BY_MODULE, TSR_BY_LINE, TSR_BY_STACK,
                               TSR_BY_POOL, TSR_BY_METADATA, TSR_BY_METADATA_KEY, NULL},
     .synonyms = TSR_GROUPING_SYNONYMS},
    {.name = "categories",
     .kind = TSR_PARAMETER_CHOICE,
     .hidden_from = TSR_INTERFACE_MCP,
     .argument = "RULES",
     .help = "Which categories: true (default), as tessera infers them; or mosaic, as Mosaic does, "
             "from the names in a stack alone.",
     .choices = (const char *const[]){"true", "mosaic", NULL}},
    {.name = "rules",
     .kind = TSR_PARAMETER_OBJECT,
     .type = &tsr_rules_type,
     .argument = "FILE-OR-TEXT",
     .help =
         "Group by your own rules: names and patterns in JSON or YAML, as a file or as text. The "
         "first rule whose pattern is found in a function or file name of the stack counts.",
     .advice = "For by: rules, names and regular expressions, as JSON such as {\"attention\": "
               "\"attention|softmax\", \"optimizer\": \"optim|adam\"} or as YAML. The first whose "
               "pattern is found in a function or file name of the stack gives its name."},
    {.name = "ordered",
     .kind = TSR_PARAMETER_FLAG,
     .hidden_from = TSR_INTERFACE_MCP,
     .help = "Show memory in allocation order, as stacked bands."},
    {.name = "over_time",
     .option = "over-time",
     .kind = TSR_PARAMETER_FLAG,
     .hidden_from = TSR_INTERFACE_MCP,
     .help = "Also show how much each group held over time, and when it held most."},
    {.name = "samples",
     .kind = TSR_PARAMETER_COUNT,
     .hidden_from = TSR_INTERFACE_MCP,
     .argument = "N",
     .help = "With --over-time: at most N moments (default: 200), always including the peak."},
    {.name = "html",
     .kind = TSR_PARAMETER_PATH,
     .is_written = true,
     .hidden_from = TSR_INTERFACE_MCP | TSR_INTERFACE_PYTHON,
     .argument = "FILE",
     .help = "Also write the page of 'tessera view' to FILE, with this grouping."},
};

static_assert(TSR_PROFILE_BY_CATEGORY == 0 && TSR_PROFILE_BY_ANNOTATION == 1 &&
                  TSR_PROFILE_BY_COMPILE_CONTEXT == 2 && TSR_PROFILE_BY_RULES == 3 &&
                  TSR_PROFILE_BY_OP == 4 && TSR_PROFILE_BY_MODULE == 5 &&
                  TSR_PROFILE_BY_LINE == 6 && TSR_PROFILE_BY_STACK == 7 &&
                  TSR_PROFILE_BY_POOL == 8 && TSR_PROFILE_BY_METADATA == 9,
              "the words of `by` are in the order of tsr_profile_by");

enum { DEFAULT_SAMPLES = 200, MOSAIC_CATEGORIES = 1 };

/* Rules alone mean "by rules". */
static tsr_profile_by by_of(const tsr_params *params) {
  int by = tsr_params_choice(params, "by");
  if (by < 0 && tsr_params_has(params, "rules")) return TSR_PROFILE_BY_RULES;
  if (tsr_params_choice_key(params, "by")) return TSR_PROFILE_BY_METADATA;
  return by < 0 ? TSR_PROFILE_BY_CATEGORY : (tsr_profile_by)by;
}

static int check(const tsr_params *params, tsr_error *error) {
  tsr_profile_by by = by_of(params);
  bool has_rules = tsr_params_has(params, "rules");
  if (tsr_params_choice(params, "categories") == MOSAIC_CATEGORIES && by != TSR_PROFILE_BY_CATEGORY)
    return tsr_params_fail(params, error, "{categories} needs {by} category");
  if (by == TSR_PROFILE_BY_RULES && !has_rules)
    return tsr_params_fail(params, error, "{by} rules needs {rules} FILE-OR-TEXT");
  if (by != TSR_PROFILE_BY_RULES && has_rules)
    return tsr_params_fail(params, error, "{rules} needs {by} rules");
  if (tsr_params_count(params, "samples") && !tsr_params_flag(params, "over_time"))
    return tsr_params_fail(params, error, "{samples} needs {over_time}");
  return 0;
}

static int ask(const tsr__asked *asked, void **out, tsr_error *error) {
  uint64_t samples = tsr_params_count(asked->params, "samples");
  tsr_profile_options how = {.by = by_of(asked->params),
                             .rules = tsr_params_object(asked->params, "rules", &tsr_rules_type),
                             .key = tsr_params_choice_key(asked->params, "by"),
                             .is_ordered = tsr_params_flag(asked->params, "ordered")};
  tsr_profile *profile = NULL;
  if (tsr_params_choice(asked->params, "categories") == MOSAIC_CATEGORIES)
    how.by = TSR_PROFILE_BY_MOSAIC_CATEGORY;
  if (!samples) samples = DEFAULT_SAMPLES;
  if (tsr_params_flag(asked->params, "over_time"))
    how.moment_count = samples > SIZE_MAX ? SIZE_MAX : (size_t)samples;
  int status = tsr_profile_compute(asked->studies[0], &how, asked->query, &profile, error);
  if (status == 0) *out = profile;
  return status;
}

TSR__QUESTION_REPORTS(profile)

const tsr__question_row tsr__question_profile = {
    .about =
        {.name = "profile",
         .summary = "what is the memory at the peak for?",
         .main_options = "by rules over-time ordered html",
         .description =
             "Divides the memory that is live at the peak into groups and prints their sizes, "
             "largest first, and how much they allocated over the whole trace.\n\nBy category, "
             "each allocation is a parameter (or buffer), gradient, optimizer_state, activation, "
             "recomputed activation, temporary, input, communication, workspace, kv_cache or cast "
             "(a weight's copy in another type), inferred from its phase, lifetime and stack, or "
             "named by the program; -v shows why, and how certain that is. The rest is unknown. By "
             "op, it belongs to the operation or kernel that allocated it, by module to the "
             "nn.Module that was called, by line to the program's innermost line. All of these "
             "include memory from before the recording. So does metadata, the text that the "
             "program set "
             "for what a thread allocates or attached to one tensor (PyTorch 2.10 and later); "
             "metadata:KEY is the value of a key, if that text is JSON.\n\nBy annotation, memory "
             "belongs to the "
             "innermost record_function range that was open; by compile-context, to the region "
             "that torch.compile made. These, rules, and --categories mosaic count from zero at "
             "the first event, and have their own peak.\n\nRules are names and patterns: "
             "{\"attention\": \"attention|softmax\"}, or a list of rules with name, pattern, "
             "description and priority, in JSON or YAML. They are tried by priority, the smallest "
             "number first, then in their order. Patterns are those of PCRE2, searched for "
             "anywhere as Python's re.search does.",
         TSR__ONE_SUBJECT,
         TSR__PARAMETERS(parameters),
         .examples =
             {{"tessera profile snapshot.pickle", "parameters, activations, gradients, ..."},
              {"tessera profile --by op --over-time snapshot.pickle",
               "by aten operation, over time"},
              {"tessera profile --rules '{\"attention\": \"attention|softmax\"}' snapshot.pickle",
               "by your own rule"},
              {"tessera profile --ordered --html page.html snapshot.pickle",
               "a chart in allocation order"}},
         .title = "What is the memory at the peak for?",
         .advice = "Divide the memory that is live at the peak into parameters, gradients, "
                   "optimizer_state, activations, recomputed activations, temporaries, inputs, "
                   "communication, workspaces, KV caches and casts of weights, each with the "
                   "evidence for it; what nothing "
                   "explains is unknown. Tells which technique would help: activation "
                   "checkpointing, sharding, another optimizer."},
    .check = check,
    .fields = &tsr__fields_profile,
    .ask = ask,
    .report = report,
    .free = release,
};
