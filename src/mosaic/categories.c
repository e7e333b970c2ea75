/* categories.c - Mosaic's category of each stack, for callers outside the library. */
#include <assert.h>
#include <string.h>

#include "study/study.h"
#include "tessera/unstable/mosaic.h"

int tsr_mosaic_category_of_stacks(tsr_study *study, uint8_t *categories, tsr_error *error) {
  const tsr__mosaic_categories *found;
  int status = tsr__study_mosaic_categories(study, &found, error);
  assert(status || found->count == tsr_snapshot_stack_count(tsr_study_snapshot(study)));
  if (!status && found->count) memcpy(categories, found->stacks, found->count);
  return status;
}
