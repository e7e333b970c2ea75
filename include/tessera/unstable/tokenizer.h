/* tessera/unstable/tokenizer.h - the tokenizer of a model, as tokenizer.json describes it: from text to tokens and back.
 *
 * Results are those of Hugging Face's package tokenizers, token by token. BPE models are supported, of bytes (GPT-2, Llama 3,
 * Qwen) and in the manner of SentencePiece (Llama 2, Mistral, Gemma). A file with anything else is refused with a message that
 * names it. The "truncation" and "padding" of a file are ignored, as transformers does unless they are asked for.
 * docs/decisions/075-tokenizers.md has the reasons. Unstable: see unstable.h. */
#ifndef TESSERA_UNSTABLE_TOKENIZER_H
#define TESSERA_UNSTABLE_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tessera/snapshot.h"
#include "tessera/status.h"
#include "tessera/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Constant once opened: any number of threads may use it. */
typedef struct tsr_tokenizer tsr_tokenizer;

/* Open a tokenizer.json, or that of a folder. The caller frees `*out`. Takes some 0.7 s for a vocabulary of 128,000 tokens.
 * Fails with TSR_ERROR_IO; TSR_ERROR_FORMAT; TSR_ERROR_LIMIT (a file of more than 256 MiB); TSR_ERROR_UNSUPPORTED, whose message
 * names what is not implemented; TSR_ERROR_MEMORY. */
int tsr_tokenizer_open(const char *path, tsr_tokenizer **out, tsr_error *error);
/* The same for the content of such a file. */
int tsr_tokenizer_read(const char *json, size_t size_bytes, tsr_tokenizer **out, tsr_error *error);
/* NULL is fine. */
void tsr_tokenizer_free(tsr_tokenizer *tokenizer);

/* One more than the largest id of a token, added ones included. O(1). */
uint32_t tsr_tokenizer_vocabulary(const tsr_tokenizer *tokenizer);
/* The id of the token with this text, as the file spells it; -1 if absent. O(1). */
int64_t tsr_tokenizer_id(const tsr_tokenizer *tokenizer, const char *text);
/* Whether an id is that of a special token, such as <|endoftext|>. O(1). */
bool tsr_tokenizer_is_special(const tsr_tokenizer *tokenizer, uint32_t id);

/* The tokens that end a text, at most `room` of them: "eos_token" of tokenizer_config.json, and "eos_token_id" of
 * generation_config.json and config.json, in the folder of `path`, which is a folder or a file in it. If they state nothing, the
 * first of <|endoftext|>, <|end_of_text|>, </s> and <eos> that is a token. `tokenizer` may be NULL: then only ids count. Fails with
 * TSR_ERROR_MEMORY alone; files that are absent or damaged state nothing. */
int tsr_tokenizer_ends(const tsr_tokenizer *tokenizer, const char *path, uint32_t *ids, size_t room,
                       size_t *count, tsr_error *error);

/* Receives tokens in order. Another value than 0 ends the work with TSR_ERROR_WRITE. */
typedef int tsr_tokens_fn(void *context, const uint32_t *ids, size_t count);

typedef struct tsr_encode_options {
  size_t struct_bytes;       /* sizeof(tsr_encode_options) */
  bool adds_special;         /* also what the post-processor adds, such as the <s> of Llama 2 */
  unsigned threads;          /* 0: one per processor. The tokens do not depend on it */
  tsr_progress_fn *progress; /* called with bytes of the text; false stops. NULL: none */
  void *progress_context;
} tsr_encode_options;

/* Encode a text. `write` is called from the calling thread. `options` may be NULL. Fails with TSR_ERROR_FORMAT and the offset if
 * the text is not valid UTF-8, or has a character that the tokenizer has no token for; TSR_ERROR_WRITE; TSR_ERROR_LIMIT if a
 * pattern takes too long, or work was stopped; TSR_ERROR_MEMORY. Then some tokens may have been written. O(n log n), on all
 * threads from a megabyte on. */
int tsr_tokenizer_encode(const tsr_tokenizer *tokenizer, const char *text, size_t size_bytes,
                         const tsr_encode_options *options, tsr_tokens_fn *write, void *context,
                         tsr_error *error);

/* From tokens to text, one at a time. A token may end within a character, so what is not complete yet is held back. */
typedef struct tsr_token_decoder tsr_token_decoder;

/* A decoder, which the tokenizer must outlive; NULL when out of memory. `skips_special` leaves special tokens out. */
tsr_token_decoder *tsr_token_decoder_new(const tsr_tokenizer *tokenizer, bool skips_special);
/* Add a token; ids that the tokenizer does not have add nothing. `*out` is the text that is complete now, valid UTF-8, until the next
 * call; all of them together are what tokenizers decodes. Fails with TSR_ERROR_MEMORY. */
int tsr_token_decoder_put(tsr_token_decoder *decoder, uint32_t id, tsr_text *out, tsr_error *error);
/* The rest: incomplete characters become U+FFFD. The decoder can then begin another text. */
int tsr_token_decoder_finish(tsr_token_decoder *decoder, tsr_text *out, tsr_error *error);
/* NULL is fine. */
void tsr_token_decoder_free(tsr_token_decoder *decoder);

/* ---- chat templates ---- */

/* A model's template, which makes one text of a conversation: the part of Jinja that the templates of Llama, Qwen, Mistral, Gemma and
 * others need. Constant once opened. */
typedef struct tsr_chat tsr_chat;

typedef struct tsr_chat_message {
  const char *role, *content; /* "system", "user" or "assistant"; text */
} tsr_chat_message;

/* Open the template in a folder, or in that of a file: chat_template.jinja, or "chat_template" of tokenizer_config.json. The caller frees
 * `*out`. Fails with TSR_ERROR_ABSENT if there is no template; TSR_ERROR_FORMAT or _UNSUPPORTED, which names what is not
 * implemented; TSR_ERROR_MEMORY. */
int tsr_chat_open(const char *path, tsr_chat **out, tsr_error *error);
/* NULL is fine. */
void tsr_chat_free(tsr_chat *chat);
/* Write the text of a conversation, as transformers renders it with the same settings and without tools. `adds_prompt` ends it with what
 * comes before an answer. Fails with TSR_ERROR_ARGUMENT if the template refuses the conversation, TSR_ERROR_UNSUPPORTED for what is
 * not implemented, and with TSR_ERROR_LIMIT, _WRITE or _MEMORY. */
int tsr_chat_render(const tsr_chat *chat, const tsr_chat_message *messages, size_t count,
                    bool adds_prompt, tsr_write_fn *write, void *context, tsr_error *error);

#ifdef __cplusplus
}
#endif
#endif
