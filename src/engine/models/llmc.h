/* llmc.h - checkpoints of llm.c, read as weights with transformers' names.
 *
 *   256 32-bit numbers   20240326, version, positions, vocabulary, layers, heads, width, padded vocabulary, 0 ...
 *   the tensors          in the order of `parts` in llmc.c; each contains all layers side by side
 *
 * Version 3 is fp32, version 5 bf16; numbers are little endian. llm.c multiplies by weights of (outputs, inputs),
 * where GPT-2's Conv1D has (inputs, outputs): these arrays are marked as transposed. The token embedding has rows
 * up to the padded vocabulary, which nothing reads.
 *
 * Rule: github.com/karpathy/llm.c, train_gpt2.c (gpt2_build_from_checkpoint) and train_gpt2.py (write_model). */
#ifndef TSR_MODELS_LLMC_H
#define TSR_MODELS_LLMC_H

#include "base/buffer.h"
#include "models/safetensors.h"

enum { TSR__LLMC_HEADER_BYTES = 1024 };

/* The contents of a header. Invariants: sizes are at least 1 and at most 2^24, layers at most 4096, heads divides
 * width, padded is at least vocabulary. */
typedef struct tsr__llmc_header {
  tsr__array_type type;
  uint64_t positions, vocabulary, layers, heads, width, padded;
} tsr__llmc_header;

/* Whether a file that starts with these bytes is a checkpoint. */
bool tsr__llmc_is(const unsigned char *bytes, size_t size_bytes);
/* Read the header of a checkpoint. Fails with TSR_ERROR_FORMAT, or TSR_ERROR_UNSUPPORTED for an unknown version;
 * the offset is that of the number. */
int tsr__llmc_read(const unsigned char *bytes, size_t size_bytes, tsr__llmc_header *out,
                   tsr_error *error);
/* Append the config.json of the model. */
void tsr__llmc_config(const tsr__llmc_header *header, tsr__buffer *out);
/* List the arrays of a file of `file_bytes` bytes, given its first TSR__LLMC_HEADER_BYTES, or all of them if it is
 * shorter. On success the caller releases `*out`, which has no file to read from. Fails as above, with
 * TSR_ERROR_FORMAT if the file's length differs from what the header implies, and with TSR_ERROR_MEMORY. O(arrays
 * log arrays). */
int tsr__llmc_parse(const unsigned char *bytes, size_t size_bytes, uint64_t file_bytes,
                    tsr__safetensors *out, tsr_error *error);

#endif
