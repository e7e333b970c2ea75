/* mosaic_category.c - Mosaic's substring rules, applied once per frame; stacks look their frames up.
 *
 * A stack that contains FSDP's file is FSDP's. Otherwise its frames are checked innermost
 * first against the rules below, in order; the first frame that matches any rule
 * decides. Which rule a frame matches does not depend on the stack, so each
 * distinct frame is checked once. Case matters: the names are those of Python functions. */
#include "attribution/mosaic_category.h"

#include <string.h>

#include "base/memory.h"

/* Substring or whole text, for the function's and the file's name; NULL matches everything. */
typedef struct rule {
  const char *name_contains, *file_contains, *name_is;
  tsr_mosaic_category category;
} rule;

static const rule rules[] = {
    {"forward", NULL, NULL, TSR_MOSAIC_CATEGORY_ACTIVATION},
    {"param", NULL, NULL, TSR_MOSAIC_CATEGORY_PARAMETER},
    {NULL, "flatten_params_wrapper", NULL, TSR_MOSAIC_CATEGORY_PARAMETER},
    {"build_norm_fn", NULL, NULL, TSR_MOSAIC_CATEGORY_PARAMETER},
    {"__init__", "parallel/layers.py", NULL, TSR_MOSAIC_CATEGORY_PARAMETER},
    {"backward", NULL, NULL, TSR_MOSAIC_CATEGORY_BACKWARD},
    {NULL, NULL, "clip_grad_norm_", TSR_MOSAIC_CATEGORY_BACKWARD},
    {NULL, NULL, "calc_grad_norm", TSR_MOSAIC_CATEGORY_BACKWARD},
    {NULL, NULL, "custom_adamw", TSR_MOSAIC_CATEGORY_OPTIMIZER},
    {NULL, NULL, "_init_group", TSR_MOSAIC_CATEGORY_OPTIMIZER},
    {NULL, NULL, "dist_max", TSR_MOSAIC_CATEGORY_NET},
    {NULL, NULL, "dist_mean", TSR_MOSAIC_CATEGORY_NET},
    {NULL, NULL, "dist_sum", TSR_MOSAIC_CATEGORY_NET},
    {NULL, NULL, "_aggregate", TSR_MOSAIC_CATEGORY_NET},
    {"validate_process_group", NULL, NULL, TSR_MOSAIC_CATEGORY_NET_SETUP},
    {NULL, NULL, "compute_grad_stats", TSR_MOSAIC_CATEGORY_STATS},
};

const char *tsr_mosaic_category_name(tsr_mosaic_category category) {
  static const char *const names[TSR_MOSAIC_CATEGORY_COUNT] = {
      "parameter", "activation", "backward", "optimizer", "net",
      "unknown",   "net_setup",  "stats",    "fsdp"};
  return (unsigned)category < TSR_MOSAIC_CATEGORY_COUNT ? names[category] : "unknown";
}

static bool contains(tsr_text text, const char *part) {
  size_t size = strlen(part);
  if (size > text.size_bytes) return false;
  const char *p = text.data, *last = text.data + text.size_bytes - size;
  while (p <= last && (p = memchr(p, part[0], (size_t)(last - p) + 1))) {
    if (memcmp(p, part, size) == 0) return true;
    p++;
  }
  return false;
}

static bool is(tsr_text text, const char *whole) {
  return text.size_bytes == strlen(whole) && memcmp(text.data, whole, text.size_bytes) == 0;
}

/* TSR_MOSAIC_CATEGORY_COUNT if no rule matches the frame. */
static tsr_mosaic_category category_of_frame(const tsr_snapshot *snapshot, uint32_t id) {
  tsr_frame frame = tsr_snapshot_frame(snapshot, id);
  tsr_text name = tsr_snapshot_string(snapshot, frame.name);
  tsr_text file = tsr_snapshot_string(snapshot, frame.file);
  if (contains(file, "fully_sharded_data_parallel.py")) return TSR_MOSAIC_CATEGORY_FSDP;
  for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
    const rule *r = &rules[i];
    if ((!r->name_contains || contains(name, r->name_contains)) &&
        (!r->file_contains || contains(file, r->file_contains)) &&
        (!r->name_is || is(name, r->name_is)))
      return r->category;
  }
  return TSR_MOSAIC_CATEGORY_COUNT;
}

static tsr_mosaic_category category_of_stack(tsr_stack stack, const uint8_t *frames) {
  tsr_mosaic_category found = TSR_MOSAIC_CATEGORY_COUNT;
  for (uint32_t i = 0; i < stack.depth; i++) {
    tsr_mosaic_category category = (tsr_mosaic_category)frames[stack.frames[i]];
    if (category == TSR_MOSAIC_CATEGORY_FSDP) return category;
    if (found == TSR_MOSAIC_CATEGORY_COUNT) found = category;
  }
  return found == TSR_MOSAIC_CATEGORY_COUNT ? TSR_MOSAIC_CATEGORY_UNKNOWN : found;
}

int tsr__mosaic_categories_compute(const tsr_snapshot *snapshot, tsr__mosaic_categories *out,
                                   tsr_error *error) {
  uint32_t frame_count = tsr_snapshot_frame_count(snapshot);
  uint32_t stack_count = tsr_snapshot_stack_count(snapshot);
  uint8_t *frames = TSR__NEW_ARRAY(uint8_t, frame_count);
  uint8_t *stacks = TSR__NEW_ARRAY(uint8_t, stack_count);
  if (!frames || !stacks) {
    tsr__free(frames);
    tsr__free(stacks);
    return tsr__fail_memory(error);
  }
  for (uint32_t i = 0; i < frame_count; i++) frames[i] = (uint8_t)category_of_frame(snapshot, i);
  for (uint32_t i = 0; i < stack_count; i++)
    stacks[i] = (uint8_t)category_of_stack(tsr_snapshot_stack(snapshot, i), frames);
  tsr__free(frames);
  *out = (tsr__mosaic_categories){stacks, stack_count};
  return 0;
}

void tsr__mosaic_categories_release(tsr__mosaic_categories *categories) {
  tsr__free(categories->stacks);
  *categories = (tsr__mosaic_categories){0};
}
