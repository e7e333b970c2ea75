/* lives.h - shared by the writers of allocations. */
#ifndef TSR_EXPORT_LIVES_H
#define TSR_EXPORT_LIVES_H

#include "export/shown.h"
#include "stacks/stacks.h"
#include "tessera/unstable/formats.h"

/* Emit the trace events of the device at `place` of `lives` into the array that is open; their stacks
 * are those of `shown`. Fails with TSR_ERROR_MEMORY. */
int tsr__perfetto_emit(tsr__stack_printer *printer, tsr__shown *shown, const tsr_lives *lives,
                       size_t place, tsr_error *error);

/* Append what the program called allocation `index`, as tsr__names_append does. */
void tsr__lives_append_names(const tsr_lives *lives, size_t place, size_t index, tsr__buffer *out);

#endif
