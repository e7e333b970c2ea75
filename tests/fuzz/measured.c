/* What was measured on a machine: any text, and what a card of it leaves to PyTorch. */
#include "exec/outside.h"

#include "require.h"
#include "tessera/unstable/outside.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  tsr__machine *machine = NULL;
  tsr_error error = {0};
  int status = tsr__machine_parse((const char *)data, size, &machine, &error);
  check_error(status, &error);
  require((status == 0) == (machine != NULL), "a machine, or an error");
  require(tsr_machine_file_check((const char *)data, size, NULL) == status, "the same again");
  for (size_t i = 0; status == 0 && tsr__data_sheet_at(i); i++) {
    const tsr__data_sheet *gpu = tsr__data_sheet_at(i);
    tsr_simulate_options how = {.ranks = i % 3 * 4, .replicas = i % 2 + 1};
    tsr__outside_question question = {
        .gpu = gpu, .how = &how, .limit_bytes = gpu->memory_bytes, .machine = machine};
    tsr_outside out;
    require(tsr__outside_of(&question, &out, &error) == 0, "a card has an answer");
    require(out.whole.low_bytes <= out.whole.high_bytes, "a range is in order");
    require(out.share_bytes > 0 && out.share_bytes < (double)gpu->visible_bytes, "something is left");
    require(out.share_bytes + out.whole.high_bytes == out.visible_bytes, "and it adds up");
    question.gpu = NULL;
    require(tsr__outside_of(&question, &out, &error) == 0 && out.share_bytes, "or a size");
  }
  tsr__machine_free(machine);
  return 0;
}
