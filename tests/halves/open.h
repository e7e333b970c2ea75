/* open.h - how a half of the library opens a snapshot. */
#ifndef TSR_TESTS_HALVES_OPEN_H
#define TSR_TESTS_HALVES_OPEN_H

#include "tessera/study.h"

/* A study of the snapshot in a file, for half_close. Fails with a message, always in a half that reads no files. */
int half_open(const char *path, tsr_study **out, tsr_error *error);
/* NULL is fine. */
void half_close(tsr_study *study);

#endif
