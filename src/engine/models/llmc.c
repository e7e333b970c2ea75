/* llmc.c - see llmc.h. */
#include "models/llmc.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/sort.h"

#define MAGIC 20240326u
enum { NAME_BYTES = 64, LARGEST_SIZE = 1 << 24, MOST_LAYERS = 4096, KNOWN_TOKENS = 50257 };

static uint32_t number_at(const unsigned char *bytes, size_t index) {
  bytes += 4 * index;
  return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
         (uint32_t)bytes[3] << 24;
}

bool tsr__llmc_is(const unsigned char *bytes, size_t size_bytes) {
  return size_bytes >= 4 && number_at(bytes, 0) == MAGIC;
}

/* ---- the header ---- */

static int read_sizes(const unsigned char *bytes, tsr__llmc_header *h, tsr_error *error) {
  const struct {
    const char *name;
    uint64_t *to;
    uint32_t most;
  } sizes[] = {
      {"positions", &h->positions, LARGEST_SIZE}, {"vocabulary", &h->vocabulary, LARGEST_SIZE},
      {"layers", &h->layers, MOST_LAYERS},        {"heads", &h->heads, LARGEST_SIZE},
      {"width", &h->width, LARGEST_SIZE},         {"padded vocabulary", &h->padded, LARGEST_SIZE}};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    uint32_t number = number_at(bytes, 2 + i);
    if (!number || number > sizes[i].most)
      return tsr__fail(error, TSR_ERROR_FORMAT, 4 * (2 + i),
                       "the header has %ld for the model's %s, which is not a valid size",
                       (long)(int32_t)number, sizes[i].name);
    *sizes[i].to = number;
  }
  return 0;
}

int tsr__llmc_read(const unsigned char *bytes, size_t size_bytes, tsr__llmc_header *out,
                   tsr_error *error) {
  tsr__llmc_header h = {.type = TSR__ARRAY_F32};
  assert(tsr__llmc_is(bytes, size_bytes));
  if (size_bytes < TSR__LLMC_HEADER_BYTES)
    return tsr__fail(error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE,
                     "a checkpoint of llm.c that is cut off within its header");
  uint32_t version = number_at(bytes, 1);
  if (version != 3 && version != 5)
    return tsr__fail(error, TSR_ERROR_UNSUPPORTED, 4,
                     "a checkpoint of llm.c in version %lu; tessera reads versions 3 (fp32) and 5 "
                     "(bf16)",
                     (unsigned long)version);
  if (version == 5) h.type = TSR__ARRAY_BF16;
  int status = read_sizes(bytes, &h, error);
  if (status) return status;
  if (h.width % h.heads)
    return tsr__fail(error, TSR_ERROR_FORMAT, 20,
                     "the header has %llu heads, which do not divide the width %llu",
                     (unsigned long long)h.heads, (unsigned long long)h.width);
  if (h.padded < h.vocabulary)
    return tsr__fail(error, TSR_ERROR_FORMAT, 28,
                     "the header has a padded vocabulary of %llu tokens, fewer than the %llu of "
                     "the vocabulary",
                     (unsigned long long)h.padded, (unsigned long long)h.vocabulary);
  *out = h;
  return 0;
}

/* llm.c has no dropout, and GPT-2's GELU. */
void tsr__llmc_config(const tsr__llmc_header *h, tsr__buffer *out) {
  tsr__buffer_printf(out,
                     "{\"model_type\":\"gpt2\",\"vocab_size\":%llu,\"n_positions\":%llu,"
                     "\"n_embd\":%llu,\"n_layer\":%llu,\"n_head\":%llu,\"resid_pdrop\":0,"
                     "\"embd_pdrop\":0,\"attn_pdrop\":0",
                     (unsigned long long)h->vocabulary, (unsigned long long)h->positions,
                     (unsigned long long)h->width, (unsigned long long)h->layers,
                     (unsigned long long)h->heads);
  /* GPT-2's end of text is its last token, which other vocabularies lack. */
  if (h->vocabulary < KNOWN_TOKENS)
    tsr__buffer_text(out, ",\"bos_token_id\":null,\"eos_token_id\":null");
  tsr__buffer_text(out, "}");
}

/* ---- the tensors ---- */

/* The arrays in the order of the file. Sizes are multiples of the width; a vector has no inputs. */
static const struct {
  const char *name;
  bool is_of_layer;
  uint8_t outputs, inputs;
} parts[] = {
    {"ln_1.weight", true, 1, 0},        {"ln_1.bias", true, 1, 0},
    {"attn.c_attn.weight", true, 3, 1}, {"attn.c_attn.bias", true, 3, 0},
    {"attn.c_proj.weight", true, 1, 1}, {"attn.c_proj.bias", true, 1, 0},
    {"ln_2.weight", true, 1, 0},        {"ln_2.bias", true, 1, 0},
    {"mlp.c_fc.weight", true, 4, 1},    {"mlp.c_fc.bias", true, 4, 0},
    {"mlp.c_proj.weight", true, 1, 4},  {"mlp.c_proj.bias", true, 1, 0},
    {"ln_f.weight", false, 1, 0},       {"ln_f.bias", false, 1, 0},
};
enum { PARTS = sizeof parts / sizeof *parts };

/* Set `size_bytes`, and advance the offset in the file by `rows` rows of the array's width. */
static void add(tsr__safetensors *file, tsr__array array, const char *base, uint64_t layer,
                const char *name, uint64_t bytes_in_file, uint64_t *at) {
  char *text = file->names + file->count * NAME_BYTES;
  int length = layer == UINT64_MAX
                   ? snprintf(text, NAME_BYTES, "%s%s", base, name)
                   : snprintf(text, NAME_BYTES, "%sh.%u.%s", base, (unsigned)layer, name);
  assert(length > 0 && length < NAME_BYTES);
  (void)length;
  array.name = text;
  array.offset_bytes = *at;
  array.size_bytes = tsr__array_type_bytes(array.type);
  for (uint32_t i = 0; i < array.rank; i++) array.size_bytes *= array.dim[i];
  assert(array.size_bytes <= bytes_in_file);
  file->arrays[file->count++] = array;
  *at += bytes_in_file;
}

static void add_part(tsr__safetensors *file, const tsr__llmc_header *h, size_t part, uint64_t *at) {
  uint64_t outputs = parts[part].outputs * h->width, inputs = parts[part].inputs * h->width;
  tsr__array array = {.type = h->type, .rank = 1, .dim = {outputs}};
  uint64_t bytes = outputs * (inputs ? inputs : 1) * tsr__array_type_bytes(h->type);
  if (inputs) {
    array.rank = 2;
    array.dim[0] = inputs;
    array.dim[1] = outputs;
    array.is_transposed = true;
  }
  for (uint64_t i = 0; parts[part].is_of_layer && i < h->layers; i++)
    add(file, array, "transformer.", i, parts[part].name, bytes, at);
  if (!parts[part].is_of_layer)
    add(file, array, "transformer.", UINT64_MAX, parts[part].name, bytes, at);
}

/* The total bytes of all arrays, at most 2^24 * (2^25 + 2^12 * 13 * 2^24) * 4 < 2^70, so it may saturate. */
static uint64_t bytes_of(const tsr__llmc_header *h) {
  double elements = (double)h->width * ((double)h->padded + (double)h->positions + 2 +
                                        (double)h->layers * (12 * (double)h->width + 13));
  uint64_t each = tsr__array_type_bytes(h->type);
  if (elements * (double)each > 0x1p62) return UINT64_MAX;
  return each * h->width * (h->padded + h->positions + 2 + h->layers * (12 * h->width + 13));
}

static int compare_names(const void *a, const void *b) {
  return strcmp(((const tsr__array *)a)->name, ((const tsr__array *)b)->name);
}

static int list(const tsr__llmc_header *h, tsr__safetensors *file, tsr_error *error) {
  size_t most = 2 + (size_t)h->layers * PARTS + PARTS;
  uint64_t at = 0, row = h->width * tsr__array_type_bytes(h->type);
  file->arrays = TSR__NEW_ARRAY(tsr__array, most);
  file->names = TSR__NEW_ARRAY(char, most *NAME_BYTES);
  if (!file->arrays || !file->names) return tsr__fail_memory(error);
  tsr__array table = {.type = h->type, .rank = 2, .dim = {h->vocabulary, h->width}};
  add(file, table, "transformer.", UINT64_MAX, "wte.weight", h->padded * row, &at);
  table.dim[0] = h->positions;
  add(file, table, "transformer.", UINT64_MAX, "wpe.weight", h->positions * row, &at);
  for (size_t i = 0; i < PARTS; i++) add_part(file, h, i, &at);
  assert(at == bytes_of(h) && file->count <= most);
  tsr__sort(file->arrays, file->count, sizeof *file->arrays, compare_names);
  return 0;
}

int tsr__llmc_parse(const unsigned char *bytes, size_t size_bytes, uint64_t file_bytes,
                    tsr__safetensors *out, tsr_error *error) {
  tsr__llmc_header h;
  tsr__safetensors file = {.handle = -1, .data_start = TSR__LLMC_HEADER_BYTES};
  int status = tsr__llmc_read(bytes, size_bytes, &h, error);
  if (status) return status;
  assert(file_bytes >= TSR__LLMC_HEADER_BYTES);
  unsigned long long wanted = bytes_of(&h), has = file_bytes - TSR__LLMC_HEADER_BYTES;
  if (wanted != has)
    return tsr__fail(
        error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE,
        "a checkpoint of llm.c that is %s: its header needs %llu bytes of weights, and "
        "the file has %llu",
        has < wanted ? "cut off" : "too long", wanted, has);
  status = list(&h, &file, error);
  if (status)
    tsr__safetensors_release(&file);
  else
    *out = file;
  return status;
}
