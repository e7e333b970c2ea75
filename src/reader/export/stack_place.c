/* stack_place.c - the place of one stack, as lists of lines name it: for tables of stacks. */
#include "study/study.h"
#include "tessera/unstable/allocations.h"

int tsr_stack_place_find(tsr_study *study, uint32_t stack, tsr_stack_place *out, tsr_error *error) {
  const tsr__places *places;
  const tsr__labels *lines;
  int status = tsr__study_places(study, &places, error);
  if (!status) status = tsr__study_labels(study, TSR__LABEL_LINE, &lines, error);
  if (status) return status;
  uint32_t label = tsr__label_of(lines, stack);
  *out = (tsr_stack_place){.frame = places->items.items[tsr__place_of(places, stack)].frame,
                           .number = label,
                           .text = tsr__label_name(lines, label)};
  return 0;
}
