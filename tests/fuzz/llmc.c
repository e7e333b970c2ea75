/* The header of a checkpoint of llm.c: any bytes after its magic number. A file as long as it says is found whole. */
#include "models/llmc.h"

#include <string.h>

#include "require.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t end_of(const tsr__safetensors *file) {
  uint64_t end = 0;
  for (size_t i = 0; i < file->count; i++) {
    const tsr__array *array = &file->arrays[i];
    require(tsr__safetensors_find(file, array->name) == array, "found by its name");
    if (array->offset_bytes + array->size_bytes > end)
      end = array->offset_bytes + array->size_bytes;
  }
  return end;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  unsigned char bytes[TSR__LLMC_HEADER_BYTES] = {0xc6, 0xd7, 0x34, 0x01};
  size_t room = sizeof bytes - 4, given = size < room ? size : room;
  uint64_t each = 4, elements, file_bytes;
  tsr__llmc_header header;
  tsr__safetensors file;
  tsr_error error = {0};
  memcpy(bytes + 4, data, given);
  int status = tsr__llmc_read(bytes, sizeof bytes, &header, &error);
  check_error(status, &error);
  if (status || header.width > 4096 || header.layers > 64) return 0;
  if (header.type == TSR__ARRAY_BF16) each = 2;
  elements = header.padded + header.positions + 2 + header.layers * (12 * header.width + 13);
  file_bytes = TSR__LLMC_HEADER_BYTES + each * header.width * elements;
  status = tsr__llmc_parse(bytes, sizeof bytes, file_bytes, &file, &error);
  require(status == 0, "a file of the right length");
  require(end_of(&file) == file_bytes - TSR__LLMC_HEADER_BYTES, "every byte belongs to an array");
  tsr__safetensors_release(&file);
  require(tsr__llmc_parse(bytes, sizeof bytes, file_bytes + 1, &file, &error) == TSR_ERROR_FORMAT,
          "a longer file");
  return 0;
}
