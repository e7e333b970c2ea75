/* limits.c - see limits.h. */
#include "questions/shared/limits.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "tessera/unstable/suggest.h"

static int fail_category(const tsr_params *params, const char *text, size_t length,
                         tsr_error *error) {
  char list[160] = "";
  tsr_suggestion nearest = tsr_suggestion_start(text, length);
  for (int i = 0; i < TSR_CATEGORY_COUNT; i++) {
    size_t used = strlen(list);
    const char *name = tsr_category_name((tsr_category)i);
    (void)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", name);
    tsr_suggestion_offer(&nearest, name);
  }
  if (nearest.best)
    return tsr_params_fail(params, error, "{=max}: no category '%.*s'; did you mean '%s'?",
                           length < 60 ? (int)length : 60, text, nearest.best);
  return tsr_params_fail(params, error, "{=max}: no category '%.*s'; the categories are %s",
                         length < 60 ? (int)length : 60, text, list);
}

/* "18GiB", or "activation=3GiB". */
static int read_limit(const tsr_params *params, const char *text, tsr_check_limit *limit,
                      tsr_error *error) {
  const char *equals = strchr(text, '=');
  size_t length = equals ? (size_t)(equals - text) : 0;
  int kind = 0;
  *limit = (tsr_check_limit){.rule = TSR_CHECK_MAX_PEAK};
  while (equals && kind < TSR_CATEGORY_COUNT &&
         !tsr_word_is(text, length, tsr_category_name((tsr_category)kind)))
    kind++;
  if (kind == TSR_CATEGORY_COUNT) return fail_category(params, text, length, error);
  if (equals)
    *limit = (tsr_check_limit){.rule = TSR_CHECK_MAX_CATEGORY, .category = (tsr_category)kind};
  const char *size = equals ? equals + 1 : text;
  if (tsr_size_parse(size, &limit->bytes)) return 0;
  if (strspn(size, "0123456789.") == strlen(size) && strspn(size, "0.") != strlen(size))
    return tsr_params_fail(params, error, "{=max} needs a unit: %sGiB, or %sB for bytes", size,
                           size);
  return tsr_params_fail(params, error,
                         "{=max} takes a size such as 18GiB, or CATEGORY=SIZE, not '%s'", text);
}

int tsr__read_limits(const tsr_params *params, tsr_check_limit *limits, size_t *count,
                     tsr_error *error) {
  size_t texts;
  const char *const *text = tsr_params_texts(params, "max", &texts);
  *count = 0;
  if (texts + 1 >= TSR__LIMITS_MOST) return tsr_params_fail(params, error, "too many {=max}");
  while (*count < texts) {
    int status = read_limit(params, text[*count], &limits[*count], error);
    if (status) return status;
    ++*count;
  }
  assert(*count < TSR__LIMITS_MOST);
  if (tsr_params_has(params, "max_reserved"))
    limits[(*count)++] = (tsr_check_limit){.rule = TSR_CHECK_MAX_RESERVED,
                                           .bytes = tsr_params_count(params, "max_reserved")};
  return 0;
}
