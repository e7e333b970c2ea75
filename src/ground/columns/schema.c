/* schema.c - the texts of schema.h. */
#include "columns/schema.h"

const char *tsr__name_text(tsr__name name) {
  static const char *const texts[] = {
#define TSR__NAME_TEXT(symbol, text) text,
      TSR__NAMES(TSR__NAME_TEXT)
#undef TSR__NAME_TEXT
  };
  return texts[name];
}
