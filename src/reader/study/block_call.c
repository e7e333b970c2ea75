/* block_call.c - see block_call.h. */
#include "study/block_call.h"

#include <string.h>

#define COUNT_OF(list) (sizeof(list) / sizeof *(list))

static bool matches(const char *data, const char *part, size_t size) {
  for (size_t i = 0; i < size; i++)
    if ((data[i] == '\\' ? '/' : data[i]) != part[i]) return false;
  return true;
}

bool tsr__path_has(tsr_text path, const char *part) {
  size_t size = strlen(part);
  for (size_t at = 0; at + size <= path.size_bytes; at++)
    if (matches(path.data + at, part, size)) return true;
  return false;
}

static bool ends_with(tsr_text text, const char *part) {
  size_t size = strlen(part);
  return text.size_bytes >= size && matches(text.data + text.size_bytes - size, part, size);
}

static tsr_text file_of(const tsr_snapshot *snapshot, uint32_t frame) {
  return tsr_snapshot_string(snapshot, tsr_snapshot_frame(snapshot, frame).file);
}

bool tsr__frame_passes_on(const tsr_snapshot *snapshot, uint32_t frame) {
  static const char *const files[] = {"accelerate/hooks.py",
                                      "accelerate/utils/operations.py",
                                      "transformers/utils/generic.py",
                                      "transformers/modeling_layers.py",
                                      "deepspeed/utils/nvtx.py",
                                      "peft/tuners/tuners_utils.py",
                                      "/contextlib.py",
                                      "fairscale/nn/checkpoint/checkpoint_activations.py"};
  static const char *const names[] = {"new_forward", "wrapped_forward", "wrapped_fn",
                                      "decorate_autocast", "decorate_context"};
  tsr_text name = tsr_snapshot_string(snapshot, tsr_snapshot_frame(snapshot, frame).name);
  for (size_t i = 0; i < COUNT_OF(files); i++)
    if (ends_with(file_of(snapshot, frame), files[i])) return true;
  for (size_t i = 0; i < COUNT_OF(names); i++)
    if (ends_with(name, names[i])) return true;
  return false;
}

/* Whether a frame of a stack is in a file whose path has this part. */
static bool stack_has(const tsr_snapshot *snapshot, tsr_stack stack, const char *part) {
  for (uint32_t i = 0; i < stack.depth; i++)
    if (tsr__path_has(file_of(snapshot, stack.frames[i]), part)) return true;
  return false;
}

tsr_finding_call tsr__checkpoint_call(const tsr_snapshot *snapshot, uint32_t stack,
                                      uint32_t caller) {
  /* Models of these libraries checkpoint themselves. */
  static const struct {
    const char *part;
    tsr_finding_call call;
  } models[] = {{"transformers/models/", TSR_FINDING_CALL_TRANSFORMERS},
                {"diffusers/models/", TSR_FINDING_CALL_DIFFUSERS},
                {"timm/models/", TSR_FINDING_CALL_TIMM}};
  /* These wrap a program's blocks, as a part of FSDP. */
  static const struct {
    const char *part;
    tsr_finding_call call;
  } around[] = {{"pytorch_lightning/", TSR_FINDING_CALL_LIGHTNING},
                {"lightning/pytorch/", TSR_FINDING_CALL_LIGHTNING},
                {"lightning/fabric/", TSR_FINDING_CALL_LIGHTNING},
                {"accelerate/", TSR_FINDING_CALL_ACCELERATE}};
  tsr_stack frames = {0};
  if (stack != TSR_NONE) frames = tsr_snapshot_stack(snapshot, stack);
  for (size_t i = 0; i < COUNT_OF(models); i++) {
    if (!tsr__path_has(file_of(snapshot, caller), models[i].part)) continue;
    bool is_trainers = models[i].call == TSR_FINDING_CALL_TRANSFORMERS &&
                       stack_has(snapshot, frames, "transformers/trainer.py");
    return is_trainers ? TSR_FINDING_CALL_TRAINER : models[i].call;
  }
  bool is_sharded = stack_has(snapshot, frames, "/fsdp/") || stack_has(snapshot, frames, "/_fsdp/");
  for (size_t i = 0; is_sharded && i < COUNT_OF(around); i++)
    if (stack_has(snapshot, frames, around[i].part)) return around[i].call;
  return TSR_FINDING_CALL_TORCH;
}
