/* tessera/export.h - write a snapshot out again: everything it holds, in another form.
 *
 * What is written says what the file said, key for key and value for value: a program that loads it
 * has an object equal to the one that the original holds. Not kept are the order of keys in a dict
 * (but in TSR_EXPORT_PYTHON_JSON), what the reader has warned about and left out (tsr_snapshot_warnings), and, in a dict of events
 * and segments, keys that are no text; tuples other than pool ids, sets and the like have become
 * lists, bytes text, and integers of more than 613 digits None.
 */
#ifndef TESSERA_EXPORT_H
#define TESSERA_EXPORT_H

#include "tessera/snapshot.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tsr_export_format {
  /* Protocol 4, of the opcodes alone that PyTorch's own viewer accepts, in batches of 1000. Texts,
   * frames, stacks and pools are written once and then referred to, however often they occur. */
  TSR_EXPORT_PICKLE,
  /* One object (or list, as the file had it), in ASCII, with an event, a segment or an annotation
   * on each line. Tuples are arrays, and a stack is spelled out wherever it occurs, so that this is
   * many times larger. Floats that are no numbers are written as Python does: NaN, Infinity. */
  TSR_EXPORT_JSON,
  /* What Python's json.dump(..., indent=4) writes of what pickle.load gives, byte for byte: keys stand
   * in the order of the file, containers are spelled out over lines, nothing ends the last. */
  TSR_EXPORT_PYTHON_JSON
} tsr_export_format;

/* Write the whole snapshot, in pieces of some 64 KiB. Takes time linear in what is written, and
 * memory in distinct strings, frames and stacks. Fails with TSR_ERROR_MEMORY, _WRITE, _LIMIT
 * (values without a place in the format are nested too deeply, or refer to one another so often
 * that the output would never end) or _UNSUPPORTED (a dict key that JSON has no form for). Some of
 * the output may then have been written. Thread safe for a shared snapshot. */
int tsr_snapshot_export(const tsr_snapshot *snapshot, tsr_export_format format, tsr_write_fn *write,
                        void *context, tsr_error *error);

/* Write an annotation (an index of tsr_snapshot_annotations) as Python's repr() has it, with all its
 * keys, in the order of the file. Fails as above. */
int tsr_annotation_repr(const tsr_snapshot *snapshot, size_t annotation, tsr_write_fn *write,
                        void *context, tsr_error *error);

#ifdef __cplusplus
}
#endif
#endif
