/* category.c - the names of what memory is for. They are spelled here and nowhere else: text, JSON,
 * files and the page all use these. */
#include "tessera/category.h"

const char *tsr_category_name(tsr_category category) {
  static const char *const names[TSR_CATEGORY_COUNT] = {
      [TSR_CATEGORY_UNKNOWN] = "unknown",
      [TSR_CATEGORY_PARAMETER] = "parameter",
      [TSR_CATEGORY_GRADIENT] = "gradient",
      [TSR_CATEGORY_OPTIMIZER_STATE] = "optimizer_state",
      [TSR_CATEGORY_ACTIVATION] = "activation",
      [TSR_CATEGORY_RECOMPUTED] = "recomputed",
      [TSR_CATEGORY_TEMPORARY] = "temporary",
      [TSR_CATEGORY_INPUT] = "input",
      [TSR_CATEGORY_COMMUNICATION] = "communication",
      [TSR_CATEGORY_WORKSPACE] = "workspace",
      [TSR_CATEGORY_BUFFER] = "buffer",
      [TSR_CATEGORY_KV_CACHE] = "kv_cache",
      [TSR_CATEGORY_CAST] = "cast",
  };
  return (unsigned)category < TSR_CATEGORY_COUNT ? names[category] : "unknown";
}
