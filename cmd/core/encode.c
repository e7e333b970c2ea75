/* encode.c - see encode.h. */
#include "encode.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "progress.h"

bool cli_has_tokenizer(const char *folder) {
  char path[4096];
  struct stat found;
  int length = snprintf(path, sizeof path, "%s/tokenizer.json", folder);
  return length > 0 && (size_t)length < sizeof path && stat(path, &found) == 0 &&
         S_ISREG(found.st_mode);
}

typedef struct gathering {
  cli_encoded *out;
  size_t room;
} gathering;

/* A tsr_tokens_fn: little-endian numbers. */
static int gather(void *context, const uint32_t *ids, size_t count) {
  gathering *g = context;
  cli_encoded *out = g->out;
  size_t each = out->type == TSR_TRAIN_TOKENS_U32 ? 4 : 2;
  if (count > (SIZE_MAX / 2 - out->size_bytes) / each) return -1;
  size_t wanted = out->size_bytes + count * each;
  if (wanted > g->room) {
    size_t room = wanted + wanted / 2;
    char *larger = realloc(out->data, room);
    if (!larger) return -1;
    out->data = larger;
    g->room = room;
  }
  for (size_t i = 0; i < count * each; i++)
    out->data[out->size_bytes + i] = (char)(ids[i / each] >> 8 * (i % each));
  out->size_bytes = wanted;
  out->token_count += count;
  return 0;
}

int cli_encode(cli_session *session, const tsr_tokenizer *tokenizer, const char *path,
               const char *text, size_t size_bytes, cli_encoded *out) {
  cli_progress progress = cli_progress_start("encoding", path, session->options->quiet);
  tsr_encode_options how = {
      .struct_bytes = sizeof how, .progress = cli_progress_update, .progress_context = &progress};
  uint64_t threads = tsr_params_count(session->options->own, "threads");
  gathering g = {out, 0};
  how.threads = threads > 1024 ? 1024 : (unsigned)threads;
  *out = (cli_encoded){.type = tsr_tokenizer_vocabulary(tokenizer) > 65536 ? TSR_TRAIN_TOKENS_U32
                                                                           : TSR_TRAIN_TOKENS_U16};
  out->data = malloc(1); /* also a text without tokens is there */
  if (!out->data) return TSR_ERROR_MEMORY;
  g.room = 1;
  int status = tsr_tokenizer_encode(tokenizer, text, size_bytes, &how, gather, &g, &session->error);
  cli_progress_end(&progress);
  if (!status) return 0;
  free(out->data);
  out->data = NULL;
  return status == TSR_ERROR_WRITE ? TSR_ERROR_MEMORY : status;
}

/* With commas. */
const char *cli_number_text(uint64_t number, char text[32]) {
  char digits[24];
  int length = snprintf(digits, sizeof digits, "%" PRIu64, number), at = 0;
  for (int i = 0; i < length; i++) {
    if (i && (length - i) % 3 == 0) text[at++] = ',';
    text[at++] = digits[i];
  }
  text[at] = 0;
  return text;
}
