/* safetensors.h - the safetensors format: named arrays in one file, read and written.
 *
 *   8 bytes     length of the header, little endian
 *   header      JSON: {"wte.weight": {"dtype": "F32", "shape": [50257, 768], "data_offsets": [0, 154389504]},
 *               ..., "__metadata__": {"format": "pt"}}
 *   the rest    the arrays' bytes, little endian, each in the order of its shape without gaps
 *
 * A file that was opened here is complete: every array has exactly the bytes of its shape and type, arrays follow
 * each other without overlaps or gaps, and together they are everything after the header. The format requires this,
 * so that a file has no hidden contents. Sizes that a header claims are checked against the file before memory is
 * allocated for them.
 *
 * Rule: github.com/huggingface/safetensors, README, "Format". Names are UTF-8 without zero bytes. */
#ifndef TSR_MODELS_SAFETENSORS_H
#define TSR_MODELS_SAFETENSORS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "tessera/types.h"

/* The format has no limit on dimensions; models have at most five. */
enum { TSR__ARRAY_RANK = 8 };
/* Longer headers are refused, as the reference implementation does. */
#define TSR__SAFETENSORS_HEADER_MAX UINT64_C(100000000)

typedef enum tsr__array_type {
  TSR__ARRAY_BOOL,
  TSR__ARRAY_U8,
  TSR__ARRAY_I8,
  TSR__ARRAY_F8_E5M2,
  TSR__ARRAY_F8_E4M3,
  TSR__ARRAY_I16,
  TSR__ARRAY_U16,
  TSR__ARRAY_F16,
  TSR__ARRAY_BF16,
  TSR__ARRAY_I32,
  TSR__ARRAY_U32,
  TSR__ARRAY_F32,
  TSR__ARRAY_I64,
  TSR__ARRAY_U64,
  TSR__ARRAY_F64,
  TSR__ARRAY_TYPES
} tsr__array_type;

/* The format's name for a type ("BF16"; static text), and the size of an element. */
const char *tsr__array_type_name(tsr__array_type type);
uint64_t tsr__array_type_bytes(tsr__array_type type);

typedef struct tsr__array {
  const char *name; /* owned by the file that was read, or by the caller that writes */
  tsr__array_type type;
  uint32_t rank; /* 0 for a scalar */
  uint64_t dim[TSR__ARRAY_RANK];
  uint64_t offset_bytes; /* from the end of the header; set by the functions below */
  uint64_t size_bytes;   /* elements times the type's bytes; set by the functions below */
  bool is_transposed;    /* the bytes are in the order of the two dimensions swapped (llmc.h) */
} tsr__array;

/* ---- reading ---- */

typedef struct tsr__safetensors {
  tsr__array *arrays; /* sorted by name; owned */
  size_t count;
  json_t *header;      /* owns the names, or NULL */
  char *names;         /* owns the names otherwise */
  uint64_t data_start; /* bytes before the arrays */
  int handle;          /* of the file, or -1 */
} tsr__safetensors;

/* Read a header. `bytes` are the first `size_bytes` of a file of `file_bytes` bytes, at least as many as
 * tsr__safetensors_header_end returns. On success the caller releases `*out`, which has no file to read arrays
 * from. Fails with TSR_ERROR_FORMAT, TSR_ERROR_LIMIT (a header too long, too many dimensions),
 * TSR_ERROR_UNSUPPORTED (an unknown type) or TSR_ERROR_MEMORY; the message names the array. O(n log n) in the
 * length of the header. */
int tsr__safetensors_parse(const unsigned char *bytes, size_t size_bytes, uint64_t file_bytes,
                           tsr__safetensors *out, tsr_error *error);
/* Find the end of the header from a file's first 8 bytes: 8 plus its length, at most `file_bytes`. Fails with
 * TSR_ERROR_FORMAT or TSR_ERROR_LIMIT. */
int tsr__safetensors_header_end(const unsigned char *bytes, uint64_t file_bytes, uint64_t *out,
                                tsr_error *error);
/* Open a file and read its header; the arrays stay on disk. Fails as above, or with TSR_ERROR_IO. */
int tsr__safetensors_open(const char *path, tsr__safetensors *out, tsr_error *error);
/* Find an array by name, or return NULL. O(log n). */
const tsr__array *tsr__safetensors_find(const tsr__safetensors *file, const char *name);
/* Read `size_bytes` of an array from its byte `first` on, all within the array. Thread-safe. Fails with
 * TSR_ERROR_IO, or TSR_ERROR_FORMAT if the file has become shorter. */
int tsr__safetensors_read(const tsr__safetensors *file, const tsr__array *array, uint64_t first,
                          void *buffer, size_t size_bytes, tsr_error *error);
/* Accepts a zeroed file, and leaves a zeroed file. */
void tsr__safetensors_release(tsr__safetensors *file);

/* ---- the weights of a model: one file, or a folder ---- */

enum { TSR__WEIGHT_FILES = 1024 };

/* The arrays of a model, which may be in several files. */
typedef struct tsr__weight_files {
  tsr__safetensors *files; /* owned */
  size_t file_count;
} tsr__weight_files;

/* Open a safetensors file, a checkpoint of llm.c (llmc.h), or a folder as transformers writes it: with a
 * model.safetensors, or with the files that its model.safetensors.index.json names. A name may be in one file only.
 * Fails as tsr__safetensors_open does; the message names the file within the folder. */
int tsr__weight_files_open(const char *path, tsr__weight_files *out, tsr_error *error);
/* Find an array by name, and set `*file` to its file; or return NULL. */
const tsr__array *tsr__weight_files_find(const tsr__weight_files *weights, const char *name,
                                         const tsr__safetensors **file);
void tsr__weight_files_release(tsr__weight_files *weights);

/* ---- writing ---- */

/* Lay out arrays for writing: puts them into the order of their bytes, with the largest elements first so that each array is
 * aligned, and sets offsets and sizes. */
void tsr__safetensors_place(tsr__array *arrays, size_t count);
/* Lay out arrays, and write the header with `metadata`, pairs of texts (key, value, key, ..., NULL), or NULL. Checks the
 * caller's promises (names differ, ranks fit). The caller then writes the arrays' bytes in the order of `arrays`. Fails with
 * TSR_ERROR_WRITE or TSR_ERROR_MEMORY. */
int tsr__safetensors_write_header(tsr__array *arrays, size_t count, const char *const *metadata,
                                  tsr_write_fn *write, void *context, tsr_error *error);

#endif
