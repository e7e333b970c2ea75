/* sample.c - `tessera sample DIR --prompt TEXT`: a trained model continues a text.
 *
 * Tokens are bytes, as `train` makes them of a text, and are printed as they come; a terminal gets no control characters. With --ids the prompt
 * and the output are the numbers of tokens, for models that were trained on files of tokens. */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tessera/unstable/params.h>
#include <tessera/unstable/terminal.h>
#include <tessera/unstable/training.h>
#include <unistd.h>

#include "folder.h"
#include "message.h"
#include "session.h"

static const tsr_parameter sample_parameters[] = {
    {.name = "model",
     .is_operand = true,
     .kind = TSR_PARAMETER_OBJECT,
     .type = &tsr_model_type,
     .argument = "DIR",
     .help = "The folder of a model: config.json and weights in safetensors files."},
    {.name = "prompt",
     .kind = TSR_PARAMETER_TEXT,
     .argument = "TEXT",
     .help = "The text to continue, which is not printed again (default: a line break)."},
    {.name = "ids",
     .kind = TSR_PARAMETER_FLAG,
     .help = "TEXT and the output are token numbers, separated by blanks, instead of bytes."},
    {.name = "tokens",
     .kind = TSR_PARAMETER_COUNT,
     .argument = "N",
     .help = "Tokens to add (default: 200).",
     .fallback = 200,
     .least = 1},
    {.name = "temperature",
     .kind = TSR_PARAMETER_TEXT,
     .argument = "T",
     .help =
         "The sampling temperature: 0 takes the most likely token each time, 1 draws as the model "
         "predicts (default: 0.8)."},
    {.name = "top_k",
     .option = "top-k",
     .kind = TSR_PARAMETER_COUNT,
     .argument = "K",
     .help = "Draw only from the K most likely tokens (default: all)."},
    {.name = "seed",
     .kind = TSR_PARAMETER_COUNT,
     .argument = "N",
     .help = "The random seed (default: 0). The same seed gives the same text."},
    {.name = "context",
     .kind = TSR_PARAMETER_COUNT,
     .argument = "N",
     .help = "How many tokens the model looks back at (default: the length of its training "
             "sequences; if that is unknown, the number of its positions, at most 1024)."},
    {.name = "threads",
     .kind = TSR_PARAMETER_COUNT,
     .argument = "N",
     .help = "The number of threads (default: one per processor). The output does not depend on "
             "it."},
};

const cli_command cli_sample_row = {
    .about =
        {.name = "sample",
         .summary = "continue a text with a model that train has saved",
         .situation = TSR_SITUATION_TRAINING,
         .description =
             "Continues a text with a model, in C and without a GPU. DIR is a folder that train "
             "--save or transformers has written.\n\n"
             "Tokens are bytes, as in train. Tokenizers are not read: for a model that has one, "
             "use --ids, which takes and prints token numbers.",
         .parameters = sample_parameters,
         .parameter_count = sizeof sample_parameters / sizeof *sample_parameters,
         .examples = {{"tessera sample run --prompt 'Once upon a time' --tokens 500",
                       "continue a text"},
                      {"tessera sample gpt2 --ids --prompt '464 3290' --temperature 0",
                       "the most likely tokens"}}},
    .operands = "DIR",
    .operand_min = 1,
    .operand_max = 1,
    .answers = true,
    .lacks = "output color json verbose quiet",
    .run = cli_sample,
};

typedef struct sampler {
  cli_session *session;
  bool has_ids, has_failed, is_begun;
  char held[4]; /* a character of a terminal, until all its bytes have come */
  size_t held_count;
  int64_t refused; /* a token that is not a byte, which ended the output; or -1 */
} sampler;

/* Write what has been held back, without what drives a terminal. */
static bool flush_held(sampler *s) {
  size_t size = tsr_terminal_clean(s->held, s->held_count, true);
  s->held_count = 0;
  return !size || cli_output_write(&s->session->output, s->held, size) == 0;
}

/* A terminal gets whole characters, because only those show whether they are safe; files and pipes get the model's bytes. */
static bool put_byte(sampler *s, char byte) {
  FILE *stream = cli_output_stream(&s->session->output);
  if (!stream) return false;
  if (!isatty(fileno(stream))) return cli_output_write(&s->session->output, &byte, 1) == 0;
  if (((unsigned char)byte & 0xC0) != 0x80 && !flush_held(s)) return false;
  s->held[s->held_count++] = byte;
  unsigned char lead = (unsigned char)s->held[0];
  size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1;
  return s->held_count < length || flush_held(s);
}

static bool see_token(void *context, int64_t token) {
  sampler *s = context;
  cli_output *output = &s->session->output;
  char text[32];
  if (!s->has_ids && token > 255) {
    s->refused = token;
    return false;
  }
  int length = snprintf(text, sizeof text, "%s%" PRId64, s->is_begun ? " " : "", token);
  s->is_begun = true;
  bool is_written =
      s->has_ids ? cli_output_write(output, text, (size_t)length) == 0 : put_byte(s, (char)token);
  if (!is_written || cli_output_flush(output)) s->has_failed = true;
  return !s->has_failed;
}

/* ---- the prompt ---- */

static int read_ids(const cli_options *options, const char *text, int64_t *out, size_t *count) {
  *count = 0;
  for (const char *at = text + strspn(text, " ,"); *at; at += strspn(at, " ,")) {
    char *end = NULL;
    errno = 0;
    out[*count] = strtoll(at, &end, 10);
    if (end == at || errno || out[(*count)++] < 0)
      return cli_usage_error(options->command,
                             "--prompt needs numbers of tokens with --ids, not '%s'", at);
    at = end;
  }
  return 0;
}

/* A text has at most as many tokens as bytes. */
static int read_prompt(const cli_options *options, bool has_ids, int64_t **out, size_t *count) {
  const char *text = tsr_params_text(options->own, "prompt");
  if (!text) text = has_ids ? "0" : "\n";
  *out = malloc((strlen(text) + 1) * sizeof **out);
  if (!*out) return TSR_ERROR_MEMORY;
  if (has_ids) return read_ids(options, text, *out, count);
  *count = strlen(text);
  for (size_t i = 0; i < *count; i++) (*out)[i] = (unsigned char)text[i];
  return 0;
}

/* ---- the command ---- */

static int read_options(const cli_options *options, tsr_sample_options *how) {
  const tsr_params *own = options->own;
  const char *temperature = tsr_params_text(own, "temperature");
  char *end = NULL;
  how->temperature = temperature ? strtod(temperature, &end) : 0.8;
  if (temperature &&
      (*end || end == temperature || !(how->temperature >= 0) || !isfinite(how->temperature)))
    return cli_usage_error(options->command, "--temperature needs a number of at least 0, not '%s'",
                           temperature);
  uint64_t threads = tsr_params_count(own, "threads");
  how->threads = threads > 1024 ? 1024 : (unsigned)threads;
  how->count = tsr_params_count(own, "tokens");
  how->top_k = tsr_params_count(own, "top_k");
  how->seed = tsr_params_count(own, "seed");
  how->context = tsr_params_count(own, "context");
  if (!how->count || how->count > 1000000)
    return cli_usage_error(options->command, "--tokens must be from 1 to 1,000,000");
  return 0;
}

static int sample(cli_session *session, tsr_sample_options *how, sampler *s) {
  const cli_options *options = session->options;
  const char *subject = NULL;
  how->token = see_token;
  how->token_context = s;
  how->subject = &subject;
  int status =
      tsr_sample(tsr_params_object(options->own, "model", &tsr_model_type), how, &session->error);
  if (subject) session->path = subject;
  if ((status == TSR_ERROR_ARGUMENT || status == TSR_ERROR_UNSUPPORTED) && !subject)
    return cli_usage_error(options->command, "%s", session->error.message);
  if (!flush_held(s)) s->has_failed = true;
  if (status || s->has_failed) return status ? status : TSR_ERROR_WRITE;
  if (s->is_begun && cli_output_write(&session->output, "\n", 1)) return TSR_ERROR_WRITE;
  if (s->refused < 0) return 0;
  cli_say(options->command->about.name,
          "token %" PRId64
          " is not a byte: the model was trained with a tokenizer; --ids prints numbers",
          s->refused);
  return CLI_INPUT;
}

int cli_sample(cli_session *session) {
  const cli_options *options = session->options;
  const char *folder = options->operands[0];
  sampler s = {.session = session, .has_ids = tsr_params_flag(options->own, "ids"), .refused = -1};
  tsr_sample_options how = {.struct_bytes = sizeof how};
  int64_t *prompt = NULL;
  int status = read_options(options, &how);
  if (status == 0) status = read_prompt(options, s.has_ids, &prompt, &how.prompt_count);
  if (status == 0) status = cli_read_parameters(session);
  if (status == 0 && !session->model_path && !session->is_checkpoint)
    status = cli_usage_error(
        options->command,
        "'%s' is neither a folder with config.json and weights nor a checkpoint of llm.c", folder);
  if (status == 0) {
    how.weights = folder;
    how.prompt = prompt;
    if (!how.context) how.context = cli_folder_sequence(folder);
    status = sample(session, &how, &s);
  }
  free(prompt);
  return status;
}
