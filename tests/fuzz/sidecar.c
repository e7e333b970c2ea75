/* A sidecar: any text, next to a snapshot whose live blocks it may name. */
#include "formats/sidecar.h"
#include "formats/open.h"
#include "questions.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char memory[] =
    "{\"segments\": [{\"device\": 0, \"address\": 4096, \"total_size\": 8192, \"stream\": 0, "
    "\"segment_type\": \"small\", \"blocks\": ["
    "{\"size\": 512, \"requested_size\": 500, \"state\": \"active_allocated\"}, "
    "{\"size\": 3584, \"state\": \"inactive\"}, "
    "{\"size\": 1024, \"requested_size\": 1024, \"state\": \"active_allocated\"}, "
    "{\"size\": 3072, \"state\": \"inactive\"}]}], \"device_traces\": [[{\"action\": \"alloc\", "
    "\"addr\": 8192, \"size\": 1024, \"frames\": [{\"name\": \"load\", \"filename\": \"data.py\", "
    "\"line\": 1}]}]]}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  tsr_snapshot *snapshot = NULL;
  tsr_error error = {0};
  tsr_at_where start = {.kind = TSR_AT_EVENT, .event = -1};
  tsr_query one = {.top = 1};
  tsr__builder builder = {0};
  tsr__input source;
  tsr__input_memory(&source, memory, sizeof memory - 1);
  require(!tsr__snapshot_from_source(&source, 0, "", NULL, &builder, NULL), "a snapshot");
  int status = tsr__sidecar_read(&builder, (const char *)data, size, &error);
  check_error(status, &error);
  require(!tsr__builder_finish(&builder, &snapshot, NULL), "finished, with a sidecar or without");
  tsr__builder_release(&builder);
  size_t count;
  const tsr_tensor *tensors = tsr_snapshot_tensors(snapshot, &count);
  require(!status || !count, "no names of what cannot be read");
  for (size_t i = 0; i < count; i++)
    require(tensors[i].address - tensors[i].block_address + tensors[i].size_bytes <= 1024,
            "a tensor within its block");
  FUZZ_ASK(snapshot, peak, NULL);
  FUZZ_ASK(snapshot, at, &start, &one);
  FUZZ_ASK(snapshot, why, NULL, NULL);
  tsr_snapshot_free(snapshot);
  return 0;
}
