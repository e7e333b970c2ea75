/* train_sample.c - see train_sample.h. The weights are read from the saved files, so a text shows what was saved, and needs
 * memory of its own while it is made: the weights in fp32, and keys and values. */
#define _POSIX_C_SOURCE 200809L

#include "train_sample.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tessera/unstable/params.h>
#include <tessera/unstable/training.h>

#include "message.h"
#include "train_signals.h"

enum { ENDS_MOST = 16, MOST_TOKENS = 1000000 };

/* ---- the prompt ---- */

/* A tsr_tokens_fn. */
static int add_ids(void *context, const uint32_t *ids, size_t count) {
  cli_train_sample *s = context;
  int64_t *larger = realloc(s->ids, (s->id_count + count + 1) * sizeof *larger);
  if (!larger) return -1;
  s->ids = larger;
  for (size_t i = 0; i < count; i++) s->ids[s->id_count++] = ids[i];
  return 0;
}

static int encode(cli_train_sample *s, tsr_error *error) {
  size_t size = strlen(s->prompt);
  if (!s->tokenizer) {
    for (size_t i = 0; i < size; i++)
      if (add_ids(s, &(uint32_t){(unsigned char)s->prompt[i]}, 1)) return TSR_ERROR_MEMORY;
    return 0;
  }
  tsr_encode_options how = {.struct_bytes = sizeof how, .adds_special = true, .threads = 1};
  int status = tsr_tokenizer_encode(s->tokenizer, s->prompt, size, &how, add_ids, s, error);
  return status == TSR_ERROR_WRITE ? TSR_ERROR_MEMORY : status;
}

/* Find out before the first step whether the model can read the prompt. */
static int check_ids(const cli_train_sample *s) {
  const tsr_params *own = s->session->options->own;
  tsr_model_sizes sizes;
  (void)tsr_model_sizes_of(tsr_params_object(own, "model", &tsr_model_type), &sizes);
  for (size_t i = 0; i < s->id_count; i++)
    if ((uint64_t)s->ids[i] >= sizes.vocabulary)
      return cli_usage_error(s->session->options->command,
                             "--sample: token %" PRId64
                             " of the text is not in the model's vocabulary of %" PRIu64 " tokens",
                             s->ids[i], sizes.vocabulary);
  return 0;
}

int cli_train_sample_open(cli_train_sample *s, cli_session *session, const char *tokenizer) {
  const tsr_params *own = session->options->own;
  const cli_command *command = session->options->command;
  const char *prompt = tsr_params_text(own, "sample");
  if (!prompt && tsr_params_has(own, "sample_tokens") && !tsr_params_has(own, "resume"))
    return cli_usage_error(command, "--sample-tokens needs --sample");
  if (!prompt || !*prompt) return 0; /* '' turns off what a saved run had */
  *s = (cli_train_sample){.session = session,
                          .prompt = prompt,
                          .tokens = tsr_params_count(own, "sample_tokens"),
                          .context = tsr_params_count(own, "seq")};
  if (tsr_params_has(own, "lora") && tsr_params_count(own, "lora"))
    return cli_usage_error(command,
                           "--sample needs whole weights, and --lora saves adapters alone");
  if (!s->tokens || s->tokens > MOST_TOKENS)
    return cli_usage_error(command, "--sample-tokens must be from 1 to 1,000,000");
  int status = 0;
  if (tokenizer) {
    session->path = tokenizer;
    status = tsr_tokenizer_open(tokenizer, &s->tokenizer, &session->error);
  }
  if (status == 0) status = encode(s, &session->error);
  if (status == TSR_ERROR_FORMAT && s->tokenizer)
    return cli_usage_error(command, "--sample: %s", session->error.message);
  return status ? status : check_ids(s);
}

void cli_train_sample_close(cli_train_sample *s) {
  tsr_tokenizer_free(s->tokenizer);
  free(s->ids);
  *s = (cli_train_sample){.tokens = 0};
}

/* ---- the text ---- */

typedef struct taking {
  const cli_train_sample *sample;
  tsr_token_decoder *decoder; /* NULL: bytes */
  uint32_t ends[ENDS_MOST];   /* tokens that end the text */
  size_t end_count;
  cli_text *out;
  int signals;  /* when it began */
  bool is_lost; /* out of memory */
} taking;

static bool add(taking *t, const char *text, size_t size) {
  t->is_lost |= cli_text_append(t->out, text, size) != 0;
  return !t->is_lost;
}

/* Without a tokenizer, tokens that are no bytes are shown as numbers. */
static bool add_number(taking *t, int64_t token) {
  char text[32], byte = (char)token;
  if (token < 256) return add(t, &byte, 1);
  int length = snprintf(text, sizeof text, "[%" PRId64 "]", token);
  return add(t, text, (size_t)length);
}

static bool see_token(void *context, int64_t token) {
  taking *t = context;
  tsr_text text;
  if (cli_signals_count() != t->signals) return false;
  for (size_t i = 0; i < t->end_count; i++)
    if (token == (int64_t)t->ends[i]) return false;
  if (!t->decoder) return add_number(t, token);
  t->is_lost |= tsr_token_decoder_put(t->decoder, (uint32_t)token, &text, NULL) != 0;
  return !t->is_lost && add(t, text.data, text.size_bytes);
}

static int take(taking *t, const char *folder, uint64_t step, tsr_error *error) {
  const cli_train_sample *s = t->sample;
  const tsr_params *own = s->session->options->own;
  uint64_t threads = tsr_params_count(own, "threads");
  tsr_sample_options how = {.struct_bytes = sizeof how,
                            .weights = folder,
                            .prompt = s->ids,
                            .prompt_count = s->id_count,
                            .count = s->tokens,
                            .context = s->context,
                            .temperature = 0.8,
                            .seed = step,
                            .threads = threads > 1024 ? 1024 : (unsigned)threads,
                            .token = see_token,
                            .token_context = t};
  tsr_text text;
  int status = tsr_tokenizer_ends(s->tokenizer, folder, t->ends, ENDS_MOST, &t->end_count, error);
  if (status == 0)
    status = tsr_sample(tsr_params_object(own, "model", &tsr_model_type), &how, error);
  if (status == 0 && t->decoder && !t->is_lost) {
    status = tsr_token_decoder_finish(t->decoder, &text, error);
    if (status == 0) (void)add(t, text.data, text.size_bytes);
  }
  return status == 0 && t->is_lost ? TSR_ERROR_MEMORY : status;
}

bool cli_train_sample_take(const cli_train_sample *s, const char *folder, uint64_t step,
                           cli_text *out) {
  tsr_error error = {.status = 0};
  taking t = {.sample = s, .out = out, .signals = cli_signals_count()};
  if (!s->prompt) return false;
  if (s->tokenizer) t.decoder = tsr_token_decoder_new(s->tokenizer, true);
  int status = s->tokenizer && !t.decoder ? TSR_ERROR_MEMORY : take(&t, folder, step, &error);
  tsr_token_decoder_free(t.decoder);
  if (status == 0) return true;
  cli_say(s->session->options->command->about.name, "no sample after step %" PRIu64 ": %s", step,
          status == TSR_ERROR_MEMORY ? "out of memory" : error.message);
  free(out->data);
  *out = (cli_text){0};
  return false;
}
