/* names.h - what the program called the memory of the entries of a list: gathered, and reported. */
#ifndef TSR_QUESTIONS_SHARED_NAMES_H
#define TSR_QUESTIONS_SHARED_NAMES_H

#include "attribution/named.h"
#include "base/intern.h"
#include "base/vector.h"
#include "emit/emitter.h"
#include "tessera/unstable/names.h"

/* ---- gathering ---- */

/* Names by entry. Equal names of an entry are one, with the sum of their bytes. */
typedef struct tsr__name_sums {
  tsr__intern texts, keys; /* keys: entry, text, type, source and category; ids are rows */
  TSR__VECTOR(uint64_t) bytes, allocations;
} tsr__name_sums;

void tsr__name_sums_init(tsr__name_sums *sums);
/* Add a name to an entry; the text is copied. False when out of memory. */
bool tsr__name_sums_put(tsr__name_sums *sums, uint32_t entry, const tsr_named *name);
/* Add all names of an allocation to an entry. `names` may be NULL: it has none. */
bool tsr__name_sums_add(tsr__name_sums *sums, uint32_t entry, const tsr__names *names,
                        uint32_t allocation);
/* Turn them into the rows of an answer, in one piece of memory for tsr__free: `*out` is NULL if there
 * are none. `ranges`, by entry, are set to each entry's rows, `top` at most (0: all); entries
 * without names get no rows. Fails with TSR_ERROR_MEMORY. */
int tsr__name_sums_take(const tsr__name_sums *sums, size_t top, size_t entry_count,
                        tsr_name_range *ranges, tsr_named **out, tsr_error *error);
void tsr__name_sums_release(tsr__name_sums *sums);

/* ---- reporting ---- */

/* JSON: the members "names" and "omitted_names". Text: nothing. */
void tsr__emit_names(tsr__emitter *emitter, const tsr_named *names, const tsr_name_range *range);
/* Append the largest to what the scratch contains of a line: `: "layer 3"`, `: "layer 3" and 2 more`. */
void tsr__append_names(tsr__emitter *emitter, const tsr_named *names, const tsr_name_range *range);
/* The same after a label that is not in the scratch, which holds the result until it is emptied; JSON, and an
 * entry without names: the label. */
tsr_text tsr__with_names(tsr__emitter *emitter, tsr_text label, const tsr_named *names,
                         const tsr_name_range *range);
/* Text: each on a line of its own. */
void tsr__print_names(tsr__emitter *emitter, const tsr_named *names, const tsr_name_range *range);

#endif
