/* question.c - the row of "pools": which pools is reserved memory in, and what keeps it there? */
#include "questions/reports.h"
#include "questions/shared/row.h"

/* A number that no event has, for the word of --event. */
#define AT_END      INT64_MAX
#define AT_END_TEXT "9223372036854775807"

static const tsr_parameter parameters[] = {
    {.name = "event",
     .kind = TSR_PARAMETER_INTEGER,
     .argument = "N",
     .help = "The moment after event N of the device's trace, -1 for before the first; or start or "
             "end. Default: where memory ran out for good, or else where most is reserved.",
     .advice = "The moment after this event of the device's trace, counted from 0; -1 is before "
               "the first. Default: where memory ran out, or else where most is reserved.",
     .least = -1,
     .synonyms = (const tsr_synonym[]){{"start", "-1"}, {"end", AT_END_TEXT}, {NULL, NULL}}},
};

static int ask(const tsr__asked *asked, void **out, tsr_error *error) {
  tsr_pools_options how = {.has_event = tsr_params_has(asked->params, "event")};
  tsr_pools *pools = NULL;
  if (how.has_event) how.event = tsr_params_integer(asked->params, "event");
  int status = tsr_pools_compute(asked->studies[0], &how, asked->query, &pools, error);
  if (status == 0) *out = pools;
  return status;
}

TSR__QUESTION_REPORTS(pools)

const tsr__question_row tsr__question_pools = {
    .about =
        {.name = "pools",
         .summary = "which pools is reserved memory in, and what keeps it there?",
         .situation = TSR_SITUATION_FAILURE,
         .description =
             "Shows what each pool of PyTorch's allocator reserves and how much of that is in use: "
             "the default pools of small and of large requests, and the private pools of CUDA "
             "graphs and of torch.cuda.MemPool. What is free is of three kinds: pinned, because a "
             "block is live in the same segment (of expandable memory: the same page); releasable "
             "by empty_cache(); and kept by private pools, which release nothing as long as they "
             "have users.\n\n"
             "For pinned memory it lists the stacks whose blocks alone keep segments: without "
             "these "
             "blocks the segments would be entirely free. It also measures the end of each step, "
             "and the moment of each phase at which most of the reserved memory was not in "
             "use.\n\n"
             "If there are private pools, it repeats the trace on a model of the allocator with "
             "one "
             "pool for all of them, without any, and without each. CUDA graphs can share a pool if "
             "they are replayed one at a time, in the order in which they were captured. Without "
             "its pool, a graph's replays would allocate as well, which a trace does not show: "
             "such a figure is a lower bound.",
         TSR__ONE_SUBJECT,
         TSR__PARAMETERS(parameters),
         .examples = {{"tessera pools snapshot.pickle", "where memory ran out, or at the peak"},
                      {"tessera pools --event end snapshot.pickle", "what is left at the end"},
                      {"tessera pools -v snapshot.pickle", "every step's end, and whole stacks"}},
         .title = "Which pools is reserved memory in, and which blocks keep it there?",
         .advice = "Where reserved memory that nothing uses is: by pool (default, CUDA graph, "
                   "MemPool), which few live blocks pin which segments, and the stacks that "
                   "allocated these; also at the end of each step and per phase, and what sharing "
                   "or dropping private pools would save. The tool for 'reserved is far more than "
                   "allocated'.",
         .ranks = "stacks and segments",
         .has_stacks = true},
    .fields = &tsr__fields_pools,
    .ask = ask,
    .report = report,
    .free = release,
};
