/* encode.h - texts that a command encodes with the tokenizer of a model. */
#ifndef CLI_ENCODE_H
#define CLI_ENCODE_H

#include <tessera/unstable/tokenizer.h>
#include <tessera/unstable/training.h>

#include "session.h"

/* Whether a folder has a tokenizer.json. */
bool cli_has_tokenizer(const char *folder);

/* Tokens in memory, as tsr_train takes them in `text`. */
typedef struct cli_encoded {
  char *data; /* the caller frees it */
  size_t size_bytes;
  uint64_t token_count;
  tsr_train_tokens type;
} cli_encoded;

/* Encode a text, with a progress bar that names `path`. Returns 0 or a negative tsr_status. */
int cli_encode(cli_session *session, const tsr_tokenizer *tokenizer, const char *path,
               const char *text, size_t size_bytes, cli_encoded *out);
/* With commas. */
const char *cli_number_text(uint64_t number, char text[32]);

#endif
