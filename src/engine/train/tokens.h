/* tokens.h - the data that a model trains on: a file of tokens, read on demand.
 *
 * Three kinds of file:
 *   bytes   any file; each byte is a token, so a vocabulary of 256 is enough
 *   u16     little-endian 16-bit numbers, as nanoGPT's prepare.py writes them
 *   u32     the same with 32 bits
 * llm.c's files are the last two after a header of 256 32-bit numbers: a magic number, a version, and the number of
 * tokens. Rule: llm.c, dev/data/data_common.py, write_datafile (GPT-2: 20240520, version 1, 16 bits; Llama 3:
 * 20240801, version 7, 32 bits).
 *
 * Files are read piece by piece, not mapped: if somebody shortens a mapped file, the process is killed. */
#ifndef TSR_TRAIN_TOKENS_H
#define TSR_TRAIN_TOKENS_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

typedef enum tsr__token_format {
  TSR__TOKENS_AUTO, /* by llm.c's header, if present; else .bin is u16; else bytes */
  TSR__TOKENS_BYTES,
  TSR__TOKENS_U16,
  TSR__TOKENS_U32
} tsr__token_format;

typedef struct tsr__tokens {
  int handle;                /* owned; -1 if absent */
  const unsigned char *text; /* instead of a file; not owned */
  tsr__token_format format;  /* never AUTO */
  uint64_t start_bytes;      /* where the tokens start in the file */
  uint64_t count;
  uint64_t vocabulary; /* every token that is read is smaller */
} tsr__tokens;

/* Open a file of tokens for a model with this vocabulary. It must have at least 2 tokens, because each is predicted
 * from those before it. The caller releases `*out`. Fails with TSR_ERROR_IO; TSR_ERROR_FORMAT (a damaged header, an
 * incomplete last token, too few tokens); TSR_ERROR_UNSUPPORTED (an unknown version of llm.c's header). Reads at
 * most the header. */
int tsr__tokens_open(const char *path, tsr__token_format format, uint64_t vocabulary,
                     tsr__tokens *out, tsr_error *error);
/* Use the bytes of a text in memory, which must outlive `*out`. Fails with TSR_ERROR_FORMAT for fewer than 2. */
int tsr__tokens_of_text(const char *text, size_t size_bytes, uint64_t vocabulary, tsr__tokens *out,
                        tsr_error *error);
/* The same for numbers of 16 or 32 bits, little-endian. `format` is not AUTO. */
int tsr__tokens_in_memory(const void *data, size_t size_bytes, tsr__token_format format,
                          uint64_t vocabulary, tsr__tokens *out, tsr_error *error);
/* Look for a token outside the vocabulary among the first `most`. Fails as tsr__tokens_read does. O(1) if the format
 * cannot contain such a token, else O(most). */
int tsr__tokens_check(const tsr__tokens *tokens, uint64_t most, tsr_error *error);
/* Read tokens `first` to `first + count - 1`, counted modulo the file's length: the first token follows the last.
 * Fails with TSR_ERROR_IO, or TSR_ERROR_FORMAT for a token outside the vocabulary, whose position the message
 * contains; `out` is undefined then. Thread-safe. O(count). */
int tsr__tokens_read(const tsr__tokens *tokens, uint64_t first, size_t count, int64_t *out,
                     tsr_error *error);
/* Hash the tokens, with the same result for every kind of file: all of them up to 2^22, else 2^22 of them in 256
 * runs that are spread evenly over the file. Fails as tsr__tokens_read does. Takes at most some 20 ms, and the time
 * to read. */
int tsr__tokens_hash(const tsr__tokens *tokens, uint64_t *out, tsr_error *error);
/* Release what an open set; not needed if it failed. Leaves a zeroed struct. */
void tsr__tokens_release(tsr__tokens *tokens);

#endif
