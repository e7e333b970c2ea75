/* A model's folder with weights in several files and their index: any headers and any index. Each array is found in the one file
 * that has it, and read to its end. */
#define _DEFAULT_SOURCE
#include "folder.h"
#include "models/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const names[] = {"model.safetensors.index.json", "a.safetensors",
                                    "b.safetensors", "model.safetensors", "c.bin"};

static void read_all(const tsr__weight_files *weights) {
  static unsigned char bytes[FUZZ_MOST_DATA];
  for (size_t f = 0; f < weights->file_count; f++) {
    const tsr__safetensors *file = &weights->files[f], *found = NULL;
    for (size_t i = 0; i < file->count; i++) {
      const tsr__array *array = &file->arrays[i];
      require(tsr__weight_files_find(weights, array->name, &found) == array && found == file,
              "found in its file");
      require(array->size_bytes <= sizeof bytes, "an array within its file");
      require(!tsr__safetensors_read(file, array, 0, bytes, (size_t)array->size_bytes, NULL),
              "an array that can be read");
    }
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  tsr__weight_files weights;
  tsr_error error = {0};
  fuzz_folder_fill(data, size, names, sizeof names / sizeof *names);
  int status = tsr__weight_files_open(fuzz_folder(), &weights, &error);
  check_error(status, &error);
  if (status) return 0;
  require(weights.file_count > 0, "a file at least");
  read_all(&weights);
  tsr__weight_files_release(&weights);
  return 0;
}
