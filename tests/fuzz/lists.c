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
  while (!status && !source->at_end && source->size < 4096)
    status = tsr__input_fill(source, 0, error);
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

/* Every question but what writes a snapshot: a list is not one, and CPU memory is not in its format. */
static void ask_list(const tsr_snapshot *snapshot) {
  tsr_at_where event = {.kind = TSR_AT_EVENT, .event = 2}, time = {.kind = TSR_AT_TIME};
  const char *broken = tsr__snapshot_check(snapshot);
  if (broken) fprintf(stderr, "%s\n", broken);
  require(!broken, "the columns are whole");
  FUZZ_ASK(snapshot, info, NULL);
  FUZZ_ASK(snapshot, peak, NULL);
  fuzz_profiles(snapshot);
  FUZZ_ASK(snapshot, at, &event, NULL);
  FUZZ_ASK(snapshot, at, &time, NULL);
  FUZZ_ASK(snapshot, why, NULL, NULL);
  fuzz_check(snapshot);
  fuzz_diff(snapshot, TSR_DIFF_BY_LINE);
  fuzz_diff(snapshot, TSR_DIFF_BY_ALLOCATION);
  fuzz_view(snapshot);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  tsr_snapshot *whole = NULL, *narrow = NULL;
  tsr_error error = {0}, narrow_error = {0};
  tsr__input source;
  if (!size) return 0;
  tsr__input_memory(&source, data + 1, size - 1);
  int status = read_list(&source, &whole, &error);
  tsr__input_close(&source);
  check_error(status, &error);
  if (tsr__input_open_sized(&source, fuzz_pieces(data + 1, size - 1, 1 + data[0] % 64), 2, NULL))
    abort();
  int narrow_status = read_list(&source, &narrow, &narrow_error);
  tsr__input_close(&source);
  require(status == narrow_status, "a narrow window reads the same");
  require(strcmp(error.message, narrow_error.message) == 0, "with the same message");
  if (!status) {
    require(fuzz_event_count(whole) == fuzz_event_count(narrow), "the same events");
    ask_list(whole);
  }
  tsr_snapshot_free(whole);
  tsr_snapshot_free(narrow);
  return 0;
}
