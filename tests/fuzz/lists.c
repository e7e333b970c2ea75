/* Lists of allocations in other programs' forms: an export of Nsight Systems, CSV, and a profile in pprof's format, as
 * their beginning says. The first byte of the input is the size of the pieces; the rest is the file. */
#include "formats/csv_file.h"
#include "formats/nsight.h"
#include "formats/pprof_file.h"
#include "formats/sqlite_file.h"
#include "questions.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int read_list(tsr__input *source, tsr_snapshot **out, tsr_error *error) {
  tsr__builder builder;
  tsr__assembler assembler;
  int status = tsr__input_fill(source, 0, error);
  while (!status && !source->at_end && source->size < 4096) status = tsr__input_fill(source, 0, error);
  if (status) return status;
  if (!tsr__builder_init(&builder, &fuzz_limits)) abort();
  tsr__assembler_init(&assembler, &builder);
  if (tsr__sqlite_looks_like(source->data, source->size))
    status = tsr__nsight_read(source, &assembler, NULL, 0, error);
  else if (tsr__pprof_looks_like(source->data, source->size))
    status = tsr__pprof_read(source, &assembler, NULL, 0, error);
  else
    status = tsr__csv_read(source, &assembler, NULL, 0, error);
  tsr__assembler_release(&assembler);
  if (!status) tsr__builder_describe(&builder, "", "list", 0);
  if (!status) status = tsr__builder_finish(&builder, out, error);
  tsr__builder_release(&builder);
  return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size) fuzz_both_ways(read_list, data + 1, size - 1, 1 + data[0] % 64);
  return 0;
}
