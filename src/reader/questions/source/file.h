/* file.h - which frames of a snapshot are in a source file, and at which line. */
#ifndef TSR_QUESTIONS_SOURCE_FILE_H
#define TSR_QUESTIONS_SOURCE_FILE_H

#include "attribution/outline.h"
#include "tessera/unstable/source.h"

/* A frame that is in the file, but at no known line. */
#define TSR__LINE_SOMEWHERE (TSR_NONE - 1)

/* The file as the snapshot has it. */
typedef struct tsr__source_frames {
  uint32_t file;   /* string id, or TSR_NONE */
  uint32_t *other; /* string ids of files of that base name that are left out */
  size_t other_count;
  uint32_t *lines; /* by frame id: its line, TSR__LINE_SOMEWHERE, or 0: not in the file */
  uint32_t count;
  uint32_t last_line; /* largest of the lines */
} tsr__source_frames;

/* Find the file by its path. Linear in frames and files of its base name. Fails with
 * TSR_ERROR_MEMORY; `out` is released with the function below in any case. */
int tsr__source_frames_find(const tsr_snapshot *snapshot, const char *path, tsr__source_frames *out,
                            tsr_error *error);
void tsr__source_frames_release(tsr__source_frames *frames);

/* Does the text fit the snapshot? Fills the members of `out` for that. Fails with
 * TSR_ERROR_MEMORY. */
int tsr__source_check(const tsr_snapshot *snapshot, const tsr__source_frames *frames,
                      const tsr__outline *outline, tsr_source *out, tsr_error *error);

#endif
