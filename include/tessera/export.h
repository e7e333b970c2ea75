/* tessera/export.h - write a snapshot again: everything it contains, in another format.
 *
 * The output equals the file, key for key and value for value: a program that loads it
 * gets an object equal to the original. These are not preserved: the order of keys in a dict
 * (except in TSR_EXPORT_PYTHON_JSON), values that the reader skipped with a warning
 * (tsr_snapshot_warnings), and keys that are not strings in dicts of events
 * and segments. Tuples other than pool ids, sets and similar types become
 * lists, bytes become text, and integers of more than 613 digits become None.
 */
#ifndef TESSERA_EXPORT_H
#define TESSERA_EXPORT_H

#include "tessera/snapshot.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tsr_export_format {
  /* Protocol 4, using only opcodes that PyTorch's own viewer accepts, in batches of 1000. Strings,
   * frames, stacks and pools are written once and then referred to, however often they occur. */
  TSR_EXPORT_PICKLE,
  /* One object (or list, as in the file), in ASCII, with an event, a segment or an annotation
   * on each line. Tuples are arrays, and a stack is written in full wherever it occurs, so this is
   * many times larger. Non-finite floats are written as Python does: NaN, Infinity. */
  TSR_EXPORT_JSON,
  /* What Python's json.dump(..., indent=4) writes for the result of pickle.load, byte for byte: keys
   * in the order of the file, one element of a container per line, no newline after the last line. */
  TSR_EXPORT_PYTHON_JSON
} tsr_export_format;

/* Write the whole snapshot, in pieces of some 64 KiB. Takes time linear in the output, and
 * memory in distinct strings, frames and stacks. Fails with TSR_ERROR_MEMORY, _WRITE, _LIMIT
 * (values that the format does not define are nested too deeply, or refer to one another so often
 * that the output would never end) or _UNSUPPORTED (a dict key that JSON cannot represent). Part of
 * the output may have been written then. Thread safe for a shared snapshot. */
int tsr_snapshot_export(const tsr_snapshot *snapshot, tsr_export_format format, tsr_write_fn *write,
                        void *context, tsr_error *error);

#ifdef __cplusplus
}
#endif
#endif
