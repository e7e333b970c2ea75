/* tokens.c - see tokens.h. */
#include "train/tokens.h"

#include <assert.h>
#include <string.h>

#include "base/hash.h"
#include "base/os.h"
#include "tessera/unstable/training.h"

/* See tsr__tokens_hash. Saved runs contain hashes, so these numbers must not change. */
enum { HASHED_TOKENS = 1 << 22, HASHED_RUNS = 256 };

enum { HEADER_NUMBERS = 256, HEADER_BYTES = 4 * HEADER_NUMBERS, PIECE_BYTES = 1 << 14 };

/* llm.c's headers. */
static const struct {
  uint32_t magic, version;
  tsr__token_format format;
} headers[] = {{20240520, 1, TSR__TOKENS_U16}, {20240801, 7, TSR__TOKENS_U32}};

static uint32_t number_at(const unsigned char *bytes) {
  return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
         (uint32_t)bytes[3] << 24;
}

static uint64_t token_bytes(tsr__token_format format) {
  assert(format != TSR__TOKENS_AUTO);
  return format == TSR__TOKENS_BYTES ? 1 : format == TSR__TOKENS_U16 ? 2 : 4;
}

static int read_header(tsr__tokens *tokens, size_t index, const unsigned char *header,
                       uint64_t file_bytes, tsr_error *error) {
  uint64_t count = number_at(header + 8);
  if (number_at(header + 4) != headers[index].version)
    return tsr__fail(error, TSR_ERROR_UNSUPPORTED, 4,
                     "a token file of llm.c in version %u; tessera reads version %u",
                     (unsigned)number_at(header + 4), (unsigned)headers[index].version);
  tokens->format = headers[index].format;
  tokens->start_bytes = HEADER_BYTES;
  if (file_bytes < HEADER_BYTES || count * token_bytes(tokens->format) != file_bytes - HEADER_BYTES)
    return tsr__fail(error, TSR_ERROR_FORMAT, 8,
                     "the header announces %llu tokens, but the file has another length",
                     (unsigned long long)count);
  tokens->count = count;
  return 0;
}

static int measure(tsr__tokens *tokens, uint64_t file_bytes, tsr_error *error) {
  uint64_t each = token_bytes(tokens->format);
  if (file_bytes % each)
    return tsr__fail(error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE,
                     "%llu bytes are not a whole number of %llu-byte tokens",
                     (unsigned long long)file_bytes, (unsigned long long)each);
  tokens->count = file_bytes / each;
  return 0;
}

static bool ends_with(const char *text, const char *end) {
  size_t length = strlen(text), wanted = strlen(end);
  return length >= wanted && strcmp(text + length - wanted, end) == 0;
}

/* Find out where the tokens begin and how many there are. */
static int examine(tsr__tokens *tokens, const char *path, uint64_t file_bytes, tsr_error *error) {
  unsigned char header[12] = {0};
  size_t known = sizeof headers / sizeof *headers, index = known;
  if (tokens->format != TSR__TOKENS_BYTES && file_bytes >= sizeof header) {
    int status = tsr__os_read_exactly(tokens->handle, 0, header, sizeof header, error);
    if (status) return status;
    for (index = 0; index < known && headers[index].magic != number_at(header);) index++;
  }
  bool has_header = index < known &&
                    (tokens->format == TSR__TOKENS_AUTO || tokens->format == headers[index].format);
  if (has_header) return read_header(tokens, index, header, file_bytes, error);
  if (tokens->format == TSR__TOKENS_AUTO)
    tokens->format = ends_with(path, ".bin") ? TSR__TOKENS_U16 : TSR__TOKENS_BYTES;
  return measure(tokens, file_bytes, error);
}

static int check_count(const tsr__tokens *tokens, tsr_error *error) {
  if (tokens->count >= 2) return 0;
  return tsr__fail(error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE,
                   "at least 2 tokens are needed to train on");
}

int tsr__tokens_in_memory(const void *data, size_t size_bytes, tsr__token_format format,
                          uint64_t vocabulary, tsr__tokens *out, tsr_error *error) {
  tsr__tokens tokens = {.handle = -1, .text = data, .format = format, .vocabulary = vocabulary};
  int status = measure(&tokens, size_bytes, error);
  if (status == 0) status = check_count(&tokens, error);
  if (!status) *out = tokens;
  return status;
}

int tsr__tokens_of_text(const char *text, size_t size_bytes, uint64_t vocabulary, tsr__tokens *out,
                        tsr_error *error) {
  return tsr__tokens_in_memory(text, size_bytes, TSR__TOKENS_BYTES, vocabulary, out, error);
}

bool tsr_train_is_text(const char *path) {
  tsr__tokens tokens;
  if (tsr__tokens_open(path, TSR__TOKENS_AUTO, UINT64_MAX, &tokens, NULL)) return false;
  bool is_text = tokens.format == TSR__TOKENS_BYTES;
  tsr__tokens_release(&tokens);
  return is_text;
}

int tsr__tokens_open(const char *path, tsr__token_format format, uint64_t vocabulary,
                     tsr__tokens *out, tsr_error *error) {
  tsr__tokens tokens = {.handle = -1, .format = format, .vocabulary = vocabulary};
  uint64_t file_bytes;
  int status = tsr__os_open_sized(path, &tokens.handle, &file_bytes, error);
  if (status) return status;
  status = examine(&tokens, path, file_bytes, error);
  if (!status) status = check_count(&tokens, error);
  if (status)
    tsr__tokens_release(&tokens);
  else
    *out = tokens;
  return status;
}

static int64_t token_at(tsr__token_format format, const unsigned char *bytes) {
  if (format == TSR__TOKENS_BYTES) return bytes[0];
  if (format == TSR__TOKENS_U16) return bytes[0] | bytes[1] << 8;
  return number_at(bytes);
}

/* Read `size_bytes` of the file or text, from byte `first` on. */
static int read_bytes(const tsr__tokens *tokens, uint64_t first, unsigned char *out,
                      size_t size_bytes, tsr_error *error) {
  if (!tokens->text) return tsr__os_read_exactly(tokens->handle, first, out, size_bytes, error);
  memcpy(out, tokens->text + first, size_bytes);
  return 0;
}

/* Read a range that does not wrap around the end of the file. */
static int read_run(const tsr__tokens *tokens, uint64_t first, size_t count, int64_t *out,
                    tsr_error *error) {
  unsigned char piece[PIECE_BYTES];
  uint64_t each = token_bytes(tokens->format);
  assert(first <= tokens->count && count <= tokens->count - first);
  while (count) {
    size_t here = count < PIECE_BYTES / each ? count : (size_t)(PIECE_BYTES / each);
    int status =
        read_bytes(tokens, tokens->start_bytes + first * each, piece, (size_t)(here * each), error);
    if (status) return status;
    for (size_t i = 0; i < here; i++) {
      unsigned long long number = first + i;
      out[i] = token_at(tokens->format, piece + i * each);
      if ((uint64_t)out[i] >= tokens->vocabulary)
        return tsr__fail(
            error, TSR_ERROR_FORMAT, tokens->start_bytes + (first + i) * each,
            "token %lld at position %llu is not in the model's vocabulary of %llu tokens",
            (long long)out[i], number, (unsigned long long)tokens->vocabulary);
    }
    out += here;
    first += here;
    count -= here;
  }
  return 0;
}

int tsr__tokens_read(const tsr__tokens *tokens, uint64_t first, size_t count, int64_t *out,
                     tsr_error *error) {
  assert((tokens->handle >= 0 || tokens->text) && tokens->count);
  first %= tokens->count;
  while (count) {
    uint64_t left = tokens->count - first;
    size_t here = count < left ? count : (size_t)left;
    int status = read_run(tokens, first, here, out, error);
    if (status) return status;
    out += here;
    count -= here;
    first = 0;
  }
  return 0;
}

int tsr__tokens_check(const tsr__tokens *tokens, uint64_t most, tsr_error *error) {
  uint64_t each = token_bytes(tokens->format), left = tokens->count < most ? tokens->count : most;
  int64_t numbers[1024];
  if (each < sizeof tokens->vocabulary && tokens->vocabulary >> (8 * each))
    return 0; /* every number of the format is in the vocabulary */
  for (uint64_t first = 0; first < left;) {
    size_t count = left - first < 1024 ? (size_t)(left - first) : 1024;
    int status = read_run(tokens, first, count, numbers, error);
    if (status) return status;
    first += count;
  }
  return 0;
}

/* Hash `count` tokens, continuing from the hash of the tokens before them. */
static int hash_run(const tsr__tokens *tokens, uint64_t first, uint64_t count, uint64_t *hash,
                    tsr_error *error) {
  int64_t numbers[1024];
  while (count) {
    size_t here = count < 1024 ? (size_t)count : 1024;
    int status = read_run(tokens, first, here, numbers, error);
    if (status) return status;
    for (size_t i = 0; i < here; i++) *hash = tsr__mix(*hash, (uint64_t)numbers[i]);
    first += here;
    count -= here;
  }
  return 0;
}

int tsr__tokens_hash(const tsr__tokens *tokens, uint64_t *out, tsr_error *error) {
  uint64_t count = tokens->count, hash = tsr__hash_u64(count);
  uint64_t runs = count > HASHED_TOKENS ? HASHED_RUNS : 1;
  uint64_t each = runs > 1 ? HASHED_TOKENS / HASHED_RUNS : count;
  uint64_t step = runs > 1 ? (count - each) / (runs - 1) : 0;
  int status = 0;
  for (uint64_t i = 0; status == 0 && i < runs; i++)
    status = hash_run(tokens, i + 1 < runs ? i * step : count - each, each, &hash, error);
  if (status == 0) *out = tsr__hash_u64(hash);
  return status;
}

void tsr__tokens_release(tsr__tokens *tokens) {
  if (tokens->handle >= 0) tsr__os_close(tokens->handle);
  *tokens = (tsr__tokens){.handle = -1};
}
