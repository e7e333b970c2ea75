/* The header of a safetensors file: any bytes. What is read describes bytes that are there. */
#include "models/safetensors.h"

#include "require.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  tsr__safetensors file = {.handle = -1};
  tsr_error error = {0};
  uint64_t end = 0, sum = 0;
  int status = tsr__safetensors_header_end(data, size, &end, &error);
  check_error(status, &error);
  if (!status) {
    require(end <= size, "a header within the file");
    status = tsr__safetensors_parse(data, size, size, &file, &error);
    check_error(status, &error);
  }
  for (size_t i = 0; i < file.count; i++) {
    const tsr__array *array = &file.arrays[i];
    require(tsr__safetensors_find(&file, array->name) == array, "found by its name");
    require(array->offset_bytes <= size - end, "an array within the file");
    require(array->size_bytes <= size - end - array->offset_bytes, "all of it");
    sum += array->size_bytes;
  }
  if (!status) require(sum == size - end, "every byte belongs to an array");
  tsr__safetensors_release(&file);
  return 0;
}
