/* shown.h - which frames of a stack an export shows, and what they are called.
 *
 * By default those that the page shows: the program's own frames, the library's that they called, and the
 * operation that asked for the memory. A stack without frames of the program shows its libraries' and
 * torch's Python, and one of C++ alone what it is labelled with everywhere (attribution/labels.h). The
 * allocator, the interpreter and generated code are left out. With all frames, every frame is shown.
 *
 * Each distinct frame or operation that was shown is an entry, numbered from 0 as they occur. */
#ifndef TSR_EXPORT_SHOWN_H
#define TSR_EXPORT_SHOWN_H

#include "attribution/labels.h"
#include "base/buffer.h"
#include "base/intern.h"
#include "base/vector.h"
#include "tessera/unstable/columns.h"

/* A frame of the snapshot, or a text for an operation. */
typedef struct tsr__shown_entry {
  uint32_t frame; /* TSR_NONE: the text */
  uint32_t text;
} tsr__shown_entry;

typedef struct tsr__shown {
  const tsr_snapshot *snapshot;
  bool is_full;
  tsr__namer namer;              /* unless is_full */
  uint32_t *of_frame;            /* by frame id: its entry plus 1, or 0 */
  TSR__VECTOR(uint32_t) of_text; /* by text id: its entry */
  tsr__intern texts;
  TSR__VECTOR(tsr__shown_entry) entries;
  TSR__VECTOR(uint32_t) frames; /* of the last stack: entries, innermost first; at least one */
  tsr__buffer scratch;
} tsr__shown;

/* Linear in the frames' text. Fails with TSR_ERROR_MEMORY. `out` is released in any case. */
int tsr__shown_init(tsr__shown *out, const tsr_snapshot *snapshot, bool is_full, tsr_error *error);
/* A zeroed one is fine. */
void tsr__shown_release(tsr__shown *shown);

/* Fill `frames` with the entries of a stack; of TSR_NONE with "(no stack recorded)". Linear in its depth. False
 * when out of memory. */
bool tsr__shown_take(tsr__shown *shown, uint32_t stack);

/* The same, and if `name` is not empty an innermost entry that is it in quotes. */
bool tsr__shown_take_named(tsr__shown *shown, uint32_t stack, tsr_text name);

/* What an entry is called; `file` is empty and `line` 0 if unknown. The texts live as long as `shown`. */
typedef struct tsr__shown_name {
  tsr_text name, file;
  uint64_t line;
} tsr__shown_name;
tsr__shown_name tsr__shown_name_of(const tsr__shown *shown, uint32_t id);

/* Append the last stack, outermost first: `main (train.py:40);step (train.py:31);aten::mul`. */
void tsr__shown_append(const tsr__shown *shown, tsr__buffer *out);

#endif
