/* callers.c - the Python frames of every stack. See callers.h. */
#include "attribution/callers.h"

#include <string.h>

#include "base/hash.h"
#include "base/memory.h"
#include "tessera/unstable/frames.h"

static bool is_text(tsr_text text, const char *what) {
  return text.size_bytes == strlen(what) && !memcmp(text.data, what, text.size_bytes);
}

static bool ends_with(tsr_text text, const char *end) {
  size_t size = strlen(end);
  return text.size_bytes >= size && !memcmp(text.data + text.size_bytes - size, end, size);
}

static uint8_t kind_of(const tsr_snapshot *snapshot, uint32_t id) {
  tsr_frame frame = tsr_snapshot_frame(snapshot, id);
  tsr_text name = tsr_snapshot_string(snapshot, frame.name);
  tsr_text file = tsr_snapshot_string(snapshot, frame.file);
  bool is_python = ends_with(file, ".py") || (file.size_bytes && file.data[0] == '<');
  if (!is_python) return 0;
  uint8_t kind = TSR__CALLER_PYTHON;
  bool is_torch = tsr_frame_origin(name, file) == TSR_ORIGIN_TORCH, is_forward;
  is_forward = is_text(name, "forward");
  if (is_torch) kind |= TSR__CALLER_TORCH;
  if (is_forward) kind |= TSR__CALLER_FORWARD;
  if (is_forward || tsr__mark_of(name, file) == TSR__MARK_CALL) kind |= TSR__CALLER_MODULE;
  if (is_torch && ends_with(file, "container.py")) kind |= TSR__CALLER_CONTAINER;
  if (is_torch && ends_with(file, "_dynamo/eval_frame.py")) kind |= TSR__CALLER_DYNAMO;
  return kind;
}

static uint64_t count_frames(const tsr_snapshot *snapshot, uint32_t stacks) {
  uint64_t count = 0;
  for (uint32_t i = 0; i < stacks; i++) count += tsr_snapshot_stack(snapshot, i).depth;
  return count;
}

static void read_stack(const tsr_snapshot *snapshot, tsr__callers *c, uint32_t i) {
  tsr_stack stack = tsr_snapshot_stack(snapshot, i);
  uint32_t at = c->at[i];
  uint64_t hash = 0;
  bool is_inside = false;
  for (uint32_t k = stack.depth; k-- > 0;) {
    uint32_t frame = stack.frames[k];
    if (!(c->kind[frame] & TSR__CALLER_PYTHON)) continue;
    c->frames[at++] = frame;
    is_inside |= (c->kind[frame] & TSR__CALLER_FORWARD) != 0;
    if (is_inside) hash = tsr__mix(hash, frame + 1);
  }
  c->at[i + 1] = at;
  c->inner[i] = hash;
}

bool tsr__callers_read(const tsr_snapshot *snapshot, tsr__callers *out) {
  uint32_t stacks = tsr_snapshot_stack_count(snapshot),
           frame_count = tsr_snapshot_frame_count(snapshot);
  uint64_t total = count_frames(snapshot, stacks);
  *out = (tsr__callers){0};
  out->kind = TSR__NEW_ARRAY(uint8_t, frame_count);
  out->frames = total < UINT32_MAX ? TSR__NEW_ARRAY(uint32_t, (size_t)total) : NULL;
  out->at = TSR__NEW_ARRAY(uint32_t, (size_t)stacks + 1);
  out->inner = TSR__NEW_ARRAY(uint64_t, stacks);
  if (!out->kind || !out->frames || !out->at || !out->inner) return false;
  for (uint32_t i = 0; i < frame_count; i++) out->kind[i] = kind_of(snapshot, i);
  for (uint32_t i = 0; i < stacks; i++) read_stack(snapshot, out, i);
  return true;
}

void tsr__callers_release(tsr__callers *callers) {
  tsr__free(callers->kind);
  tsr__free(callers->frames);
  tsr__free(callers->at);
  tsr__free(callers->inner);
  *callers = (tsr__callers){0};
}

uint32_t tsr__callers_depth(const tsr__callers *callers, uint32_t stack) {
  uint32_t first = callers->at[stack], past = callers->at[stack + 1], depth = 0;
  while (first + depth < past &&
         !(callers->kind[callers->frames[first + depth]] & TSR__CALLER_MODULE))
    depth++;
  return depth;
}
