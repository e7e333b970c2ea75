/* train_sample.h - a text that a run continues with the weights that it has just saved. */
#ifndef CLI_TRAIN_SAMPLE_H
#define CLI_TRAIN_SAMPLE_H

#include <stdbool.h>
#include <stdint.h>
#include <tessera/unstable/tokenizer.h>

#include "session.h"
#include "textfile.h"

/* Zeroed: no text. */
typedef struct cli_train_sample {
  const cli_session *session;
  const char *prompt;              /* as given; NULL: no text */
  struct tsr_tokenizer *tokenizer; /* owned; NULL: each token is a byte */
  int64_t *ids;                    /* the prompt's; owned */
  size_t id_count;
  uint64_t tokens, context; /* to add; that the model looks back at */
} cli_train_sample;

/* Encode the prompt with the tokenizer of a folder or file; NULL: its bytes. 0, an exit status or a negative tsr_status, which is about
 * session->path. */
int cli_train_sample_open(cli_train_sample *sample, cli_session *session, const char *tokenizer);
void cli_train_sample_close(cli_train_sample *sample);
/* Continue it with the weights in a folder: true, and the text, which the caller frees. A failure is no reason to end a run: it is
 * printed, and the result is false. */
bool cli_train_sample_take(const cli_train_sample *sample, const char *folder, uint64_t step,
                           cli_text *out);

#endif
