/* The folder of a saved run: any headers, notes and states, resumed for a step, which is saved there. Nothing else is written.
 * What would make the run longer is on the command line, which overrides the notes. */
#define _GNU_SOURCE /* memfd_create */
#include "folder.h"
#include "program.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const names[] = {"model.safetensors", "training-2.safetensors"};

static const char config[] =
    "{\"model_type\":\"gpt2\",\"vocab_size\":64,\"n_positions\":8,\"n_embd\":4,\"n_layer\":1,"
    "\"n_head\":1}";

/* The number of files of the current folder. */
static size_t file_count(void) {
  size_t count = 0;
  DIR *list = opendir(fuzz_root);
  require(list != NULL, "the folder");
  while (readdir(list)) count++;
  (void)closedir(list);
  return count;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const char *const words[] = {
      "tessera", "train",   "--resume",  "files",   "--data",
      "data",    "--steps", "3",         "--batch", "1",
      "--seq",   "4",       "--ranks",   "1",       "--micro-batch",
      "1",       "--quiet", "--threads", "1",       "--accumulate",
      "1",
  };
  fuzz_folder_fill(data, size, names, sizeof names / sizeof *names);
  fuzz_put_aside("files/config.json", config, sizeof config - 1);
  fuzz_put_aside("data", "0123456789 0123456789", 21);
  size_t before = file_count();
  (void)fuzz_run(sizeof words / sizeof *words, words, "", 0);
  require(file_count() == before, "no other file is written");
  return 0;
}
