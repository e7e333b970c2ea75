/* question.c - the row of "whatif": what would other settings, or another card, have done? */
#include <string.h>

#include "questions/reports.h"
#include "questions/shared/row.h"

static const tsr_parameter parameters[] = {
    TSR__SETTINGS_TO_TRY(
        "Configurations to try, each in the syntax of PYTORCH_CUDA_ALLOC_CONF, such as "
        "\"expandable_segments:True,max_split_size_mb:128\". Default: the usual ones."),
    {.name = "capacity",
     .kind = TSR_PARAMETER_BYTES,
     .argument = "SIZE",
     .help = "Memory of the card that PyTorch may use, such as 40GiB (default: what it had if it "
             "ran out of memory, otherwise unlimited).",
     .advice = "Memory of another card, such as 24GiB, to learn whether the job fits. Default: "
               "what PyTorch had if it ran out of memory, otherwise unlimited."},
    {.name = "outside",
     .kind = TSR_PARAMETER_TEXT,
     .argument = "SIZE",
     .example = "1GiB",
     .help =
         "Of --capacity, what the process holds outside of PyTorch's allocator: CUDA's context, "
         "libraries, NCCL. A size; auto, what the snapshot's sidecar shows; or none (default)."},
};

static int read_outside(const tsr_params *params, tsr_whatif_options *how, tsr_error *error) {
  const char *text = tsr_params_text(params, "outside");
  if (!text || strcmp(text, "none") == 0) return 0;
  if (!how->capacity_bytes) return tsr_params_fail(params, error, "{=outside} needs {capacity}");
  how->is_outside_recorded = strcmp(text, "auto") == 0;
  if (how->is_outside_recorded || tsr_size_parse(text, &how->outside_bytes)) return 0;
  return tsr_params_fail(params, error,
                         "{=outside} takes a size such as 1.5GiB, auto or none, not '%.40s'", text);
}

static int ask(const tsr__asked *asked, void **out, tsr_error *error) {
  tsr_whatif_options how = {.capacity_bytes = tsr_params_count(asked->params, "capacity")};
  tsr_whatif *whatif = NULL;
  how.settings = tsr_params_settings(asked->params, "settings", &how.setting_count);
  int status = read_outside(asked->params, &how, error);
  if (status == 0)
    status = tsr_whatif_compute(asked->studies[0], &how, asked->query, &whatif, error);
  if (status == 0) *out = whatif;
  return status;
}

TSR__QUESTION_REPORTS(whatif)

const tsr__question_row tsr__question_whatif = {
    .about =
        {.name = "whatif",
         .summary = "what would other settings, or another card, have done?",
         .situation = TSR_SITUATION_FAILURE,
         .description =
             "Replays the recorded requests on a model of PyTorch's caching allocator, under other "
             "settings of PYTORCH_CUDA_ALLOC_CONF or with the memory of another card, and shows "
             "how much each configuration reserves at its peak, how much of that is not allocated, "
             "and the first request that would run out of memory.\n\n"
             "Without --set it tries these: defaults; expandable_segments:True; max_split_size_mb "
             "of 128, 256 and 512; roundup_power2_divisions of 4 and 8; "
             "garbage_collection_threshold:0.8, alone and with max_split_size_mb:128; and "
             "expandable_segments:True with roundup_power2_divisions:8. The recorded settings are "
             "always replayed, too; how well they reproduce the recorded segments shows how far "
             "the other results can be trusted. Memory from before the recording keeps its "
             "place.\n\n"
             "If the recorded run ran out of memory, the failed request is replayed, too. Without "
             "--capacity, PyTorch then has as much of the card as it had in that run: what it had "
             "reserved plus what the driver had free.",
         TSR__ONE_SUBJECT,
         TSR__PARAMETERS(parameters),
         .examples = {{"tessera whatif snapshot.pickle", "the usual configurations, best first"},
                      {"tessera whatif --capacity 24GiB snapshot.pickle",
                       "does it fit on that card?"},
                      {"tessera whatif --set expandable_segments:True snapshot.pickle",
                       "one configuration"}},
         .title = "What would other allocator settings or another card do?",
         .advice =
             "Replay the recorded allocations under other settings of PYTORCH_CUDA_ALLOC_CONF, or "
             "with the memory of another card: how much each would reserve, what it would save, "
             "and where it would run out of memory. The tool for fragmentation.",
         .ranks = "stacks, where it does not fit,",
         .has_stacks = true},
    .fields = &tsr__fields_whatif,
    .ask = ask,
    .report = report,
    .free = release,
};
