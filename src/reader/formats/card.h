/* card.h - the ledger of the card in a sidecar: the value of its key "card" (docs/capture.md, "The sidecar"). */
#ifndef TSR_FORMATS_CARD_H
#define TSR_FORMATS_CARD_H

#include "base/json.h"
#include "columns/tables.h"

/* Read it; `card` may be NULL or anything else. Texts and columns are allocated from `texts`. Adds the number of values that
 * cannot be right, and of what is beyond the limits, to `*lost`. False when out of memory. Linear in the text. */
bool tsr__card_read(const json_t *card, tsr__arena *texts, tsr__card_ledger *out, uint64_t *lost);

/* The same as a value again; NULL when out of memory. */
json_t *tsr__card_write(const tsr__card_ledger *card);

/* Copy all of it to another arena. False when out of memory. */
bool tsr__card_copy(const tsr__card_ledger *from, tsr__arena *texts, tsr__card_ledger *out);

#endif
