/* tessera/unstable/stack_names.h - what lists call stacks, for programs that draw lists of their own.
 *
 * Names are those of the tables that `tessera peak` prints: the program's line, and the operation. */
#ifndef TESSERA_UNSTABLE_STACK_NAMES_H
#define TESSERA_UNSTABLE_STACK_NAMES_H

#include "tessera/snapshot.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Names the stacks of one snapshot. Not thread safe. */
typedef struct tsr_stack_naming tsr_stack_naming;

/* Make one for `snapshot`, which must outlive it. Linear in the text of the snapshot's frames. The caller owns
 * `*out` and passes it to tsr_stack_naming_free. Fails with TSR_ERROR_MEMORY. */
int tsr_stack_naming_new(const tsr_snapshot *snapshot, tsr_stack_naming **out, tsr_error *error);
/* NULL is fine. */
void tsr_stack_naming_free(tsr_stack_naming *naming);

/* A row of a list. Rows may be of several snapshots. */
typedef struct tsr_named_stack {
  tsr_stack_naming *naming;
  uint32_t stack; /* stack id, or TSR_NONE */
} tsr_named_stack;

/* Receives the name of a row, which is valid during the call. */
typedef void tsr_stack_name_fn(void *context, size_t row, tsr_text name);

/* Name the rows of a list, so that no two of different stacks read alike, and pass each name to `put`, in the order
 * of the rows: safe for a terminal, shortened to `columns` characters, 0: not shortened. What readers miss least is
 * left out first; the first line of the program stays. Time is linear in the depth of the stacks, and count log count.
 * Fails with TSR_ERROR_MEMORY, before or after some rows. */
int tsr_stacks_name(const tsr_named_stack *rows, size_t count, size_t columns,
                    tsr_stack_name_fn *put, void *context, tsr_error *error);

#ifdef __cplusplus
}
#endif
#endif
