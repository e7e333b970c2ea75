/* The JSON reader: any text, in one piece and in small ones. The first byte of the input says how
 * small; the rest is the text. */
#include "snapshot/json.h"

#include "questions.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int read_json(tsr__source *source, tsr_snapshot **out, tsr_error *error) {
  tsr_snapshot *snapshot = tsr__snapshot_new();
  if (!snapshot) abort();
  tsr_limits limits = tsr__limits_or_default(&fuzz_limits);
  tsr__assembler assembler;
  tsr__assembler_init(&assembler, snapshot, &limits);
  int status = tsr__json_read(source, &assembler, NULL, 0, error);
  tsr__assembler_release(&assembler);
  if (status) {
    tsr_snapshot_free(snapshot);
    return status;
  }
  memcpy(snapshot->format, "json", sizeof "json");
  *out = snapshot;
  return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size) fuzz_both_ways(read_json, data + 1, size - 1, 1 + data[0] % 64);
  return 0;
}
