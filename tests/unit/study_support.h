/* study_support.h - a study for one question, for tests that do not care what studies keep. */
#ifndef TSR_TEST_STUDY_SUPPORT_H
#define TSR_TEST_STUDY_SUPPORT_H

#include <stdlib.h>

#include "tessera/study.h"

/* A new study of `snapshot`. It lives until the next call but one, so that a question of two
 * snapshots can be asked; the last two are released with the process. */
static inline tsr_study *test_study(const tsr_snapshot *snapshot) {
  static tsr_study *studies[2];
  tsr_study_free(studies[0]);
  studies[0] = studies[1];
  studies[1] = NULL;
  if (tsr_study_new(snapshot, &studies[1], NULL)) abort();
  return studies[1];
}

#endif
