/* tessera/study.h - one loaded snapshot and everything that is derived from it.
 *
 * Every question takes a study. A study keeps what questions have in common (replayed
 * timelines, categories, steps), so that a program that asks several questions of one snapshot
 * computes each of these once.
 *
 *   tsr_study *study;
 *   int status = tsr_study_new(snapshot, &study, &error);
 *   tsr_subject subject = {study, "snapshot.pickle"};
 *   status = tsr_ask(tsr_question_find("peak"), &subject, 1, NULL, NULL, &peak, &error);
 *   status = tsr_ask(tsr_question_find("why"), &subject, 1, NULL, NULL, &why, &error);   no replay
 *   ...; release the study, then the snapshot
 *
 * A study may be used by any number of threads at once: a derivation that two of them need is computed
 * by one while the other waits.
 */
#ifndef TESSERA_STUDY_H
#define TESSERA_STUDY_H

#include "tessera/snapshot.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tsr_study tsr_study;

/* Make a study of `snapshot`, which must outlive it. O(1): the work is done when a question is asked.
 * Several studies of one snapshot are independent of each other. The caller owns `*out` and passes it
 * to tsr_study_free. Fails with TSR_ERROR_MEMORY. */
int tsr_study_new(const tsr_snapshot *snapshot, tsr_study **out, tsr_error *error);
/* Release a study and all that it keeps; no thread may be using it. Answers stay valid. Accepts NULL. */
void tsr_study_free(tsr_study *study);
/* The study's snapshot. */
const tsr_snapshot *tsr_study_snapshot(const tsr_study *study);

#ifdef __cplusplus
}
#endif

#endif
