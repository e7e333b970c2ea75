/* sample.c - `tessera sample DIR --prompt TEXT`: a trained model continues a text.
 *
 *   token ─► decoder, or the byte that it is ─► what may be the beginning of a stop text is held ─► output
 *
 * The folder's tokenizer.json encodes the prompt and decodes the output. Without one, tokens are bytes, as `train` makes them of a text. Both are
 * printed as they come; a terminal gets no control characters. With --ids the prompt and the output are the numbers of tokens. */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tessera/unstable/params.h>
#include <tessera/unstable/terminal.h>
#include <tessera/unstable/tokenizer.h>
#include <tessera/unstable/training.h>
#include <unistd.h>

#include "encode.h"
#include "folder.h"
#include "message.h"
#include "session.h"
#include "textfile.h"

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
    {.name = "chat",
     .kind = TSR_PARAMETER_FLAG,
     .help = "TEXT is the message of a user: the model's chat template makes the prompt of it."},
    {.name = "system",
     .kind = TSR_PARAMETER_TEXT,
     .argument = "TEXT",
     .help = "With --chat, what the model is asked to be, before the message."},
    {.name = "ids",
     .kind = TSR_PARAMETER_FLAG,
     .help = "TEXT and the output are token numbers, separated by blanks, instead of text."},
    {.name = "tokenizer",
     .kind = TSR_PARAMETER_PATH,
     .argument = "PATH",
     .help = "The tokenizer.json, or a folder that has one (default: that of DIR)."},
    {.name = "stop",
     .kind = TSR_PARAMETER_TEXTS,
     .argument = "TEXT",
     .help = "End before this text, which is not printed. May be given more than once."},
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
    {.name = "top_p",
     .option = "top-p",
     .kind = TSR_PARAMETER_TEXT,
     .argument = "P",
     .help = "Draw only from the fewest tokens that have the probability P together, after --top-k "
             "(default: 1, all)."},
    {.name = "seed",
     .kind = TSR_PARAMETER_COUNT,
     .argument = "N",
     .help = "The random seed (default: 0). The same seed gives the same text."},
    {.name = "context",
     .kind = TSR_PARAMETER_COUNT,
     .argument = "N",
     .help = "How many tokens the model looks back at (default: the length of its training "
             "sequences; if that is unknown, the number of its positions, at most 1024). In a "
             "longer text each token takes much more time, since all of them move."},
    {.name = "threads",
     .kind = TSR_PARAMETER_COUNT,
     .argument = "N",
     .help = "The number of threads (default: one per processor). The output does not depend on "
             "it."},
    {.name = "stats",
     .kind = TSR_PARAMETER_FLAG,
     .help = "Afterwards, print tokens per second and memory, predicted and used, on standard "
             "error."},
};

const cli_command cli_sample_row = {
    .about =
        {.name = "sample",
         .summary = "continue a text with a model that train has saved",
         .situation = TSR_SITUATION_TRAINING,
         .description =
             "Continues a text with a model, in C and without a GPU. DIR is a folder that train "
             "--save or transformers has written.\n\n"
             "The folder's tokenizer.json turns the prompt into tokens and tokens into text; "
             "without "
             "one, tokens are bytes, as in train. The text ends at the end-of-text token that the "
             "files in the folder name (eos_token), which is not printed. With --ids, token "
             "numbers are taken and printed instead of text.",
         .parameters = sample_parameters,
         .parameter_count = sizeof sample_parameters / sizeof *sample_parameters,
         .examples = {{"tessera sample run --prompt 'Once upon a time' --tokens 500",
                       "continue a text"},
                      {"tessera sample gpt2 --prompt 'The answer is' --top-p 0.9 --stop '.'",
                       "the rest of a sentence"},
                      {"tessera sample gpt2 --ids --prompt '464 3290' --temperature 0",
                       "the most likely tokens"}}},
    .operands = "DIR",
    .operand_min = 1,
    .operand_max = 1,
    .answers = true,
    .lacks = "output color json verbose quiet",
    .run = cli_sample,
};

enum { ENDS_MOST = 16 };

typedef struct sampler {
  cli_session *session;
  tsr_tokenizer *tokenizer; /* NULL: tokens are bytes, or numbers */
  const char *place;        /* where it is from */
  tsr_token_decoder *decoder;
  uint32_t ends[ENDS_MOST]; /* tokens that end the text */
  size_t end_count;
  cli_text waiting;                                     /* may be the beginning of a stop text */
  bool has_ids, has_failed, is_lost, is_begun, is_over; /* is_lost: out of memory */
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

static bool put_bytes(sampler *s, const char *text, size_t size) {
  for (size_t i = 0; i < size; i++)
    if (!put_byte(s, text[i])) return false;
  return true;
}

/* ---- stop texts ---- */

static const char *stop_at(const sampler *s, size_t index) {
  size_t count;
  const char *const *texts = tsr_params_texts(s->session->options->own, "stop", &count);
  return index < count ? texts[index] : NULL;
}

/* Whether a stop text is at a place of what waits (1), may be once more has come (0), or is not (-1). */
static int match_stop(const sampler *s, size_t at) {
  int found = -1;
  const char *stop;
  size_t left = s->waiting.size - at;
  for (size_t i = 0; (stop = stop_at(s, i)); i++) {
    size_t length = strlen(stop), common = length < left ? length : left;
    if (memcmp(s->waiting.data + at, stop, common) != 0) continue;
    if (common == length) return 1;
    found = 0;
  }
  return found;
}

/* Print what waits, up to a stop text; with `is_last`, also what could have become one. */
static bool put_waiting(sampler *s, bool is_last) {
  size_t at = 0;
  for (; at < s->waiting.size; at++) {
    int found = match_stop(s, at);
    if (found > 0) s->is_over = true;
    if (found > 0 || (found == 0 && !is_last)) break;
  }
  bool ok = put_bytes(s, s->waiting.data, at);
  if (at) memmove(s->waiting.data, s->waiting.data + at, s->waiting.size - at);
  s->waiting.size -= at;
  return ok;
}

static bool put_text(sampler *s, const char *text, size_t size) {
  if (!stop_at(s, 0)) return put_bytes(s, text, size);
  s->is_lost = cli_text_append(&s->waiting, text, size) != 0;
  return !s->is_lost && put_waiting(s, false);
}

/* ---- tokens ---- */

static bool put_id(sampler *s, int64_t token) {
  char text[32];
  int length = snprintf(text, sizeof text, "%s%" PRId64, s->is_begun ? " " : "", token);
  return cli_output_write(&s->session->output, text, (size_t)length) == 0;
}

static bool put_token(sampler *s, int64_t token) {
  tsr_text text;
  char byte = (char)token;
  if (s->has_ids) return put_id(s, token);
  if (!s->decoder) return put_text(s, &byte, 1);
  s->is_lost = tsr_token_decoder_put(s->decoder, (uint32_t)token, &text, NULL) != 0;
  return !s->is_lost && put_text(s, text.data, text.size_bytes);
}

static bool see_token(void *context, int64_t token) {
  sampler *s = context;
  for (size_t i = 0; i < s->end_count; i++)
    if (token == (int64_t)s->ends[i]) return false;
  if (!s->has_ids && !s->decoder && token > 255) {
    s->refused = token;
    return false;
  }
  bool is_written = put_token(s, token);
  s->is_begun = true;
  if (!is_written || cli_output_flush(&s->session->output)) s->has_failed = true;
  return !s->has_failed && !s->is_over;
}

/* Print what has been held back. */
static bool put_rest(sampler *s) {
  tsr_text text;
  if (s->decoder && !s->is_over && !s->is_lost) {
    s->is_lost = tsr_token_decoder_finish(s->decoder, &text, NULL) != 0;
    if (s->is_lost || !put_text(s, text.data, text.size_bytes)) return false;
  }
  return (s->is_over || put_waiting(s, true)) && flush_held(s);
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

typedef struct prompt {
  int64_t *ids; /* owned */
  size_t count, room;
} prompt;

/* A tsr_tokens_fn. */
static int add_ids(void *context, const uint32_t *ids, size_t count) {
  prompt *p = context;
  if (count > p->room - p->count) {
    size_t room = p->count + count + p->count / 2;
    int64_t *larger = realloc(p->ids, room * sizeof *larger);
    if (!larger) return -1;
    p->ids = larger;
    p->room = room;
  }
  for (size_t i = 0; i < count; i++) p->ids[p->count++] = ids[i];
  return 0;
}

/* Make a text of the conversation. The caller frees `*out`. */
static int render_chat(sampler *s, const char *message, cli_text *out) {
  cli_session *session = s->session;
  const char *system = tsr_params_text(session->options->own, "system");
  const tsr_chat_message messages[] = {{"system", system}, {"user", message}};
  tsr_chat *chat = NULL;
  session->path = s->place;
  int status = tsr_chat_open(s->place, &chat, &session->error);
  if (status == 0)
    status = tsr_chat_render(chat, messages + !system, system ? 2 : 1, true, cli_text_append, out,
                             &session->error);
  tsr_chat_free(chat);
  if (status == TSR_ERROR_ABSENT) session->error.status = status = TSR_ERROR_FORMAT;
  return status == TSR_ERROR_WRITE ? TSR_ERROR_MEMORY : status;
}

static int encode_prompt(sampler *s, const char *text, prompt *p) {
  bool is_chat = tsr_params_flag(s->session->options->own, "chat");
  tsr_encode_options how = {.struct_bytes = sizeof how, .adds_special = !is_chat, .threads = 1};
  cli_text rendered = {0};
  cli_session *session = s->session;
  int status = is_chat ? render_chat(s, text, &rendered) : 0;
  if (status) {
    free(rendered.data);
    return status;
  }
  if (is_chat) text = rendered.data ? rendered.data : "";
  status =
      tsr_tokenizer_encode(s->tokenizer, text, strlen(text), &how, add_ids, p, &session->error);
  free(rendered.data);
  if (status == TSR_ERROR_FORMAT)
    return cli_usage_error(session->options->command, "--prompt: %s", session->error.message);
  return status == TSR_ERROR_WRITE ? TSR_ERROR_MEMORY : status;
}

/* A text has at most as many bytes and numbers as bytes. */
static int read_prompt(sampler *s, prompt *p) {
  const cli_options *options = s->session->options;
  const char *text = tsr_params_text(options->own, "prompt");
  if (!text) text = s->has_ids ? "0" : "\n";
  if (s->tokenizer) return encode_prompt(s, text, p);
  p->ids = malloc((strlen(text) + 1) * sizeof *p->ids);
  if (!p->ids) return TSR_ERROR_MEMORY;
  if (s->has_ids) return read_ids(options, text, p->ids, &p->count);
  p->count = strlen(text);
  for (size_t i = 0; i < p->count; i++) p->ids[i] = (unsigned char)text[i];
  return 0;
}

/* Open the folder's tokenizer, unless numbers are wanted, and find out which tokens end a text. */
static int open_tokenizer(sampler *s, const char *folder) {
  cli_session *session = s->session;
  if (s->has_ids && stop_at(s, 0))
    return cli_usage_error(session->options->command, "--stop is about text, --ids about numbers");
  for (size_t i = 0; stop_at(s, i); i++)
    if (!*stop_at(s, i))
      return cli_usage_error(session->options->command, "--stop needs a text that is not empty");
  const char *given = tsr_params_text(session->options->own, "tokenizer");
  bool has_one = given || cli_has_tokenizer(folder);
  if (given) folder = given;
  s->place = folder;
  bool is_chat = tsr_params_flag(session->options->own, "chat");
  if (is_chat && (!has_one || s->has_ids))
    return cli_usage_error(session->options->command,
                           "--chat needs a model with a tokenizer, and is about text");
  if (tsr_params_text(session->options->own, "system") && !is_chat)
    return cli_usage_error(session->options->command, "--system needs --chat");
  if (!has_one && (!s->has_ids || session->is_checkpoint)) return 0;
  session->path = folder;
  int status =
      has_one && !s->has_ids ? tsr_tokenizer_open(folder, &s->tokenizer, &session->error) : 0;
  if (status == TSR_ERROR_UNSUPPORTED) {
    cli_say(NULL, "%s%s: %s; --ids takes and prints numbers", folder,
            cli_is_folder(folder) ? "/tokenizer.json" : "", session->error.message);
    return CLI_INPUT;
  }
  if (status == 0 && s->tokenizer) {
    s->decoder = tsr_token_decoder_new(s->tokenizer, true);
    if (!s->decoder) status = TSR_ERROR_MEMORY;
  }
  if (status == 0)
    status = tsr_tokenizer_ends(s->tokenizer, folder, s->ends, ENDS_MOST, &s->end_count,
                                &session->error);
  return status;
}

/* ---- the command ---- */

static int read_top_p(const cli_options *options, tsr_sample_options *how) {
  const char *text = tsr_params_text(options->own, "top_p");
  char *end = NULL;
  if (!text) return 0;
  how->top_p = strtod(text, &end);
  if (!*end && end != text && how->top_p > 0 && how->top_p <= 1) return 0;
  return cli_usage_error(options->command, "--top-p needs a number above 0, at most 1, not '%s'",
                         text);
}

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
  return read_top_p(options, how);
}

/* Print what the text took. */
static void say_stats(const cli_session *session, const tsr_sample_account *a) {
  char count[32], tokens[32], cache[64], predicted[64], used[64], kept[96] = "", rate[64] = "";
  if (a->cache_bytes)
    (void)snprintf(kept, sizeof kept, ", of which %s are keys and values",
                   tsr_size_text(a->cache_bytes, cache, sizeof cache));
  if (a->tokens > 1 && a->tokens_s > 0)
    (void)snprintf(rate, sizeof rate, ", %.1f per second after the first",
                   (double)(a->tokens - 1) / a->tokens_s);
  cli_say(session->options->command->about.name,
          "prompt of %s token%s: %.2f s; %s token%s: %.2f s%s; memory: %s, predicted %s%s",
          cli_number_text(a->prompt_tokens, count), a->prompt_tokens == 1 ? "" : "s", a->prompt_s,
          cli_number_text(a->tokens, tokens), a->tokens == 1 ? "" : "s", a->prompt_s + a->tokens_s,
          rate, tsr_size_text(a->peak_bytes, used, sizeof used),
          tsr_size_text(a->predicted_peak_bytes, predicted, sizeof predicted), kept);
}

/* Point out that the model did not see all of the prompt. */
static void say_cut(const cli_session *session, const tsr_sample_account *a,
                    uint64_t prompt_tokens) {
  char seen[32], all[32];
  if (!a->tokens || a->prompt_tokens == prompt_tokens) return;
  cli_say(session->options->command->about.name,
          "the model saw the last %s of the prompt's %s tokens (--context)",
          cli_number_text(a->prompt_tokens, seen), cli_number_text(prompt_tokens, all));
}

static int sample(cli_session *session, tsr_sample_options *how, sampler *s) {
  const cli_options *options = session->options;
  const char *subject = NULL;
  tsr_sample_account account = {0};
  how->account = &account;
  how->token = see_token;
  how->token_context = s;
  how->subject = &subject;
  int status =
      tsr_sample(tsr_params_object(options->own, "model", &tsr_model_type), how, &session->error);
  if (subject) session->path = subject;
  if ((status == TSR_ERROR_ARGUMENT || status == TSR_ERROR_UNSUPPORTED) && !subject)
    return cli_usage_error(options->command, "%s", session->error.message);
  if (!put_rest(s)) s->has_failed = true;
  if (s->is_lost) return TSR_ERROR_MEMORY;
  if (status || s->has_failed) return status ? status : TSR_ERROR_WRITE;
  if (s->is_begun && cli_output_write(&session->output, "\n", 1)) return TSR_ERROR_WRITE;
  (void)cli_output_flush(&session->output);
  say_cut(session, &account, how->prompt_count);
  if (tsr_params_flag(options->own, "stats")) say_stats(session, &account);
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
  prompt p = {0};
  int status = read_options(options, &how);
  if (status == 0) status = cli_read_parameters(session);
  if (status == 0 && !session->model_path && !session->is_checkpoint)
    status = cli_usage_error(
        options->command,
        "'%s' is neither a folder with config.json and weights nor a checkpoint of llm.c", folder);
  if (status == 0 && cli_folder_has_adapters(folder) && !cli_folder_has_weights(folder))
    status = cli_usage_error(options->command,
                             "'%s' contains adapters without their model; merge them with peft "
                             "(merge_and_unload) and sample what that saves",
                             folder);
  if (status == 0) status = open_tokenizer(&s, folder);
  if (status == 0) status = read_prompt(&s, &p);
  if (status == 0) {
    session->path = session->model_path ? session->model_path : folder;
    how.weights = folder;
    how.prompt = p.ids;
    how.prompt_count = p.count;
    if (!how.context) how.context = cli_folder_sequence(folder);
    status = sample(session, &how, &s);
  }
  free(p.ids);
  free(s.waiting.data);
  tsr_token_decoder_free(s.decoder);
  tsr_tokenizer_free(s.tokenizer);
  return status;
}
