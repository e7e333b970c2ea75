/* A file of tokens: any bytes, in each format. */
#define _GNU_SOURCE /* memfd_create */
#include "train/tokens.h"

#include <sys/mman.h>
#include <unistd.h>

#include "require.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { VOCABULARY = 50257, MOST_READ = 600 };

static void ask(const char *path, tsr__token_format format, size_t size) {
  static int64_t out[MOST_READ];
  tsr__tokens tokens;
  tsr_error error = {0};
  int status = tsr__tokens_open(path, format, VOCABULARY, &tokens, &error);
  check_error(status, &error);
  if (status) return;
  require(tokens.count >= 2 && tokens.count <= size, "as many as fit into the file");
  status = tsr__tokens_read(&tokens, tokens.count - 1, MOST_READ, out, &error);
  check_error(status, &error);
  for (size_t i = 0; !status && i < MOST_READ; i++)
    require(out[i] >= 0 && out[i] < VOCABULARY, "tokens that the model knows");
  tsr__tokens_release(&tokens);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char path[64];
  int file = memfd_create("tokens", MFD_CLOEXEC);
  if (file < 0 || (size && write(file, data, size) != (ssize_t)size)) return 0;
  (void)snprintf(path, sizeof path, "/proc/self/fd/%d", file);
  for (int format = TSR__TOKENS_AUTO; format <= TSR__TOKENS_U32; format++)
    ask(path, (tsr__token_format)format, size);
  (void)close(file);
  return 0;
}
