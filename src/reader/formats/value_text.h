/* value_text.h - a value of the file that is a dict, as compact JSON. */
#ifndef TSR_FORMATS_VALUE_TEXT_H
#define TSR_FORMATS_VALUE_TEXT_H

#include "columns/builder.h"

/* The string that contains it, or TSR_NONE for any other value, and for what JSON cannot represent, is
 * nested more than 16 deep or has more than 1000 values. `value` is resolved, and its parts are in the snapshot
 * that `builder` makes. False when out of memory. */
bool tsr__value_text(tsr__builder *builder, tsr__value value, uint32_t *string);

#endif
