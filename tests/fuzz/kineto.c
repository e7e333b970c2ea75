/* Traces of a profiler and PyTorch's memory timeline: any text, in one piece and in small ones. The first byte of
 * the input is their size; the rest is the text, whose beginning decides which of the two it is. */
#include "formats/kineto.h"

#include "questions.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool is_timeline;

static int read_trace(tsr__input *source, tsr_snapshot **out, tsr_error *error) {
  tsr__builder builder;
  if (!tsr__builder_init(&builder, &fuzz_limits)) abort();
  tsr__assembler assembler;
  tsr__assembler_init(&assembler, &builder);
  int status = is_timeline ? tsr__memory_timeline_read(source, &assembler, NULL, 0, error)
                           : tsr__kineto_read(source, &assembler, NULL, 0, error);
  tsr__assembler_release(&assembler);
  if (!status) tsr__builder_describe(&builder, "", is_timeline ? "memory timeline" : "kineto", 0);
  if (!status) status = tsr__builder_finish(&builder, out, error);
  tsr__builder_release(&builder);
  return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (!size) return 0;
  is_timeline = tsr__memory_timeline_looks_like(data + 1, size - 1);
  fuzz_both_ways(read_trace, data + 1, size - 1, 1 + data[0] % 64);
  return 0;
}
