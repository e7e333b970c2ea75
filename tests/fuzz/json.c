/* The JSON reader: any text, in one piece and in small ones. The first byte of the input is their
 * size; the rest is the text. */
#include "formats/json.h"

#include "questions.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int read_json(tsr__input *source, tsr_snapshot **out, tsr_error *error) {
  tsr__builder builder;
  if (!tsr__builder_init(&builder, &fuzz_limits)) abort();
  tsr__assembler assembler;
  tsr__assembler_init(&assembler, &builder);
  int status = tsr__json_read(source, &assembler, NULL, 0, error);
  tsr__assembler_release(&assembler);
  if (!status) tsr__builder_describe(&builder, "", "json", 0);
  if (!status) status = tsr__builder_finish(&builder, out, error);
  tsr__builder_release(&builder);
  return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size) fuzz_both_ways(read_json, data + 1, size - 1, 1 + data[0] % 64);
  return 0;
}
