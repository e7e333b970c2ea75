/* question.c - the row of "card": what else is on the card? The value is a tsr_cards. */
#include "ask/question.h"
#include "base/error.h"
#include "questions/card/card.h"
#include "tessera/unstable/params.h"

static const tsr_parameter parameters[] = {
    {.name = "paths",
     .kind = TSR_PARAMETER_TEXTS,
     .is_operand = true,
     .argument = "FILE|DIR...",
     .help = "Snapshots: one file, the files of several processes that share a card, or folders, "
             "patterns and @FILE for the ranks of a job.",
     .advice =
         "Where the snapshots are on the machine of this server: one file, the files of "
         "several processes that share a card, or a folder with those of the ranks of a job."},
    {.name = "time_us",
     .option = "time",
     .kind = TSR_PARAMETER_TIME,
     .argument = "TIME",
     .help = "Also show what was on the card then: a time in microseconds since 1970, or as "
             "reports print it, meaning the last sample up to it.",
     .advice = "Also divide the card at this time, in microseconds since 1970: at the last sample "
               "up to it."},
    {.name = "device",
     .option = "device",
     .kind = TSR_PARAMETER_COUNT,
     .argument = "N",
     .help = "Only this device of the files.",
     .advice = "Only this device of the files. Default: every device that they are about."},
    {.name = "top",
     .kind = TSR_PARAMETER_COUNT,
     .argument = "N",
     .help = "Parts of a card, or ranks, that are listed (default: 10; 0: all). The others are one "
             "line.",
     .advice = "Parts of a card that are listed in the text. The JSON has all of them.",
     .hidden_from = TSR_INTERFACE_MCP | TSR_INTERFACE_PYTHON,
     .fallback = 10},
};

static int check(const tsr_params *params, tsr_error *error) {
  if (tsr_params_has(params, "device") && tsr_params_count(params, "device") >= TSR_DEVICE_HOST)
    return tsr_params_fail(params, error, "{=device} takes the number of a GPU");
  return 0;
}

static int ask(const tsr__asked *asked, void **out, tsr_error *error) {
  tsr_card_options how = {.has_time = tsr_params_has(asked->params, "time_us"),
                          .has_device = tsr_params_has(asked->params, "device")};
  tsr_cards *cards = NULL;
  if (how.has_time) how.time_us = tsr_params_integer(asked->params, "time_us");
  if (how.has_device) how.device = (uint32_t)tsr_params_count(asked->params, "device");
  how.places = tsr_params_texts(asked->params, "paths", &how.place_count);
  int status = tsr_cards_compute(NULL, &how, &cards, error);
  if (!status) cards->top = (size_t)tsr_params_count(asked->params, "top");
  if (!status) *out = cards;
  return status;
}

static int report(const tsr__report_call *call, tsr_error *error) {
  return tsr__report_card(call->inputs, call->value, call->options, call->write, call->context,
                          error);
}

static const tsr_snapshot *first(const void *value) {
  return ((const tsr_cards *)value)->first;
}

static void release(void *value) {
  tsr_cards_free(value);
}

const tsr__question_row tsr__question_card = {
    .about =
        {.name = "card",
         .summary = "what else is on the card: NCCL, contexts, other processes?",
         .situation = TSR_SITUATION_FAILURE,
         .main_options = "time device",
         .description =
             "Divides what nvidia-smi shows as used among those who hold it: what PyTorch has "
             "allocated and what it has cached, CUDA's context, NCCL by group, cuBLAS and other "
             "libraries, the driver, other processes, and what nobody accounts for. The parts add "
             "up to the byte, at the moment when most of the card was used and at the end, and "
             "what grew in between is shown.\n\n"
             "The figures are in the sidecar that tessera.record writes next to a snapshot. An "
             "older sidecar only says how much is not PyTorch's; without one, the report says "
             "what is not known, and how to record it.\n\n"
             "The files of several processes that share a card, such as the trainer and the "
             "engine of reinforcement learning, are put on one clock: the most that they held at "
             "one time, in which phase, and what must be released, by whom and by when, for "
             "the next phase to fit. The ranks of a job are compared, and the one that stands "
             "apart is named.",
         TSR__PARAMETERS(parameters),
         .examples = {{"tessera card rank0.pickle", "what is the difference to nvidia-smi?"},
                      {"tessera card out/", "the ranks of a job"},
                      {"tessera card trainer.pickle engine.pickle", "two processes on one card"},
                      {"tessera card --time '2026-07-12 16:40:22' rank0.pickle", "at that time"}},
         .title = "What else is on the card: NCCL, CUDA contexts, libraries, other processes?",
         .advice = "Divide the memory that nvidia-smi shows among PyTorch (allocated, cached), "
                   "CUDA's context, NCCL communicators, libraries, the driver, other processes and "
                   "the rest, at its peak and at the end, in bytes. For 'nvidia-smi shows more "
                   "than PyTorch', growth outside PyTorch, and several processes on one card.",
         .verbose_lists_all = true},
    .check = check,
    .fields = &tsr__fields_card,
    .ask = ask,
    .report = report,
    .free = release,
    .snapshot = first,
};
