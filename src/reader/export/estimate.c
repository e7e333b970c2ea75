/* estimate.c - how large an export will be, before it is written.
 *
 * Two formats write the whole stack wherever it occurs: JSON with each event and block, and CSV with all
 * frames with each allocation. A snapshot shares equal stacks, so these can be thousands of times
 * larger than the file they come from. The estimate adds up the lengths of the texts. Escapes other
 * than those of bytes beyond ASCII, and values that no column holds, are not counted. */
#include <assert.h>

#include "base/checked.h"
#include "base/memory.h"
#include "tessera/unstable/formats.h"

/* What is written around the texts of a frame, and around the fields of a row. */
typedef struct costs {
  uint64_t frame, row;
  bool has_escapes; /* "\u00e9" for a byte beyond ASCII */
} costs;

static uint64_t text_bytes(const tsr_snapshot *snapshot, uint32_t string, bool has_escapes) {
  tsr_text text = tsr_snapshot_string(snapshot, string);
  uint64_t bytes = text.size_bytes;
  for (size_t i = 0; has_escapes && i < text.size_bytes; i++)
    if ((unsigned char)text.data[i] >= 0x80) bytes += 2; /* six of two or three bytes */
  return bytes;
}

/* By stack id; NULL when out of memory. */
static uint64_t *measure_stacks(const tsr_snapshot *snapshot, const costs *each) {
  uint32_t frame_count = tsr_snapshot_frame_count(snapshot);
  uint32_t stack_count = tsr_snapshot_stack_count(snapshot);
  uint64_t *frames = TSR__NEW_ARRAY(uint64_t, frame_count);
  uint64_t *stacks = TSR__NEW_ARRAY(uint64_t, stack_count);
  for (uint32_t i = 0; frames && i < frame_count; i++) {
    tsr_frame frame = tsr_snapshot_frame(snapshot, i);
    frames[i] = each->frame + text_bytes(snapshot, frame.name, each->has_escapes) +
                text_bytes(snapshot, frame.file, each->has_escapes);
  }
  for (uint32_t i = 0; frames && stacks && i < stack_count; i++) {
    tsr_stack stack = tsr_snapshot_stack(snapshot, i);
    for (uint32_t f = 0; f < stack.depth; f++) {
      assert(stack.frames[f] < frame_count);
      stacks[i] = tsr__sum_u64(stacks[i], frames[stack.frames[f]]);
    }
  }
  if (!frames) {
    tsr__free(stacks);
    stacks = NULL;
  }
  tsr__free(frames);
  return stacks;
}

static uint64_t add_row(uint64_t sum, const uint64_t *stacks, uint32_t stack, const costs *each) {
  sum = tsr__sum_u64(sum, each->row);
  return stack == TSR_NONE ? sum : tsr__sum_u64(sum, stacks[stack]);
}

uint64_t tsr_format_estimate(const tsr_format *format, const tsr_snapshot *snapshot,
                             bool full_stacks) {
  static const costs json = {.frame = 36, .row = 160, .has_escapes = true};
  static const costs python_json = {.frame = 140, .row = 400, .has_escapes = true};
  static const costs csv = {.frame = 9, .row = 130};
  bool is_csv = format->content == TSR_FORMAT_LIVES && format->form == TSR_LIVES_CSV;
  bool is_json = format->content == TSR_FORMAT_SNAPSHOT && format->form != TSR_EXPORT_PICKLE;
  if (!is_json && !(is_csv && full_stacks)) return 0;
  const costs *each = is_csv ? &csv : format->form == TSR_EXPORT_JSON ? &json : &python_json;
  uint64_t *stacks = measure_stacks(snapshot, each), sum = 0;
  if (!stacks) return 0;
  size_t count;
  const uint32_t *devices = tsr_snapshot_devices(snapshot, &count);
  for (size_t d = 0; d < count; d++) {
    tsr_events events = tsr_snapshot_events(snapshot, devices[d]);
    for (uint64_t i = 0; i < events.count; i++)
      if (is_json || events.action[i] == TSR_ACTION_ALLOC)
        sum = add_row(sum, stacks, events.stack[i], each);
  }
  const tsr_block *blocks = tsr_snapshot_blocks(snapshot, &count);
  for (size_t i = 0; is_json && i < count; i++) sum = add_row(sum, stacks, blocks[i].stack, each);
  tsr__free(stacks);
  return sum;
}
