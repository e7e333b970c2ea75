/* budget.c - budgets and tolerances from text. See budget.h. */
#include "budget.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parse.h"

/* How far a figure may be off the lock's, where nobody says: 1 % of the locked peak. */
enum { DEFAULT_MILLIONTHS = 10000 };

static bool fail_kind(const char *text, size_t length, char why[CLI_BUDGET_WHY_BYTES]) {
  char list[256] = "";
  for (int i = 0; i < TSR_KIND_COUNT; i++) {
    size_t used = strlen(list);
    (void)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "",
                   tsr_kind_name((tsr_kind)i));
  }
  (void)snprintf(why, CLI_BUDGET_WHY_BYTES, ": there is no kind '%.*s'; there are %s",
                 length < 60 ? (int)length : 60, text, list);
  return false;
}

bool cli_budget_parse(const char *text, tsr_check_limit *limit, char why[CLI_BUDGET_WHY_BYTES]) {
  const char *equals = strchr(text, '=');
  *limit = (tsr_check_limit){.rule = TSR_CHECK_MAX_PEAK};
  if (equals) {
    size_t length = (size_t)(equals - text);
    int kind = 0;
    while (kind < TSR_KIND_COUNT && (strlen(tsr_kind_name((tsr_kind)kind)) != length ||
                                     memcmp(tsr_kind_name((tsr_kind)kind), text, length) != 0))
      kind++;
    if (kind == TSR_KIND_COUNT) return fail_kind(text, length, why);
    *limit = (tsr_check_limit){.rule = TSR_CHECK_MAX_KIND, .kind = (tsr_kind)kind};
  }
  if (cli_parse_size(equals ? equals + 1 : text, &limit->bytes)) return true;
  (void)snprintf(why, CLI_BUDGET_WHY_BYTES,
                 " takes a size such as 18GiB, or KIND=SIZE, not '%.200s'", text);
  return false;
}

bool cli_budget_parse_reserved(const char *text, tsr_check_limit *limit,
                               char why[CLI_BUDGET_WHY_BYTES]) {
  *limit = (tsr_check_limit){.rule = TSR_CHECK_MAX_RESERVED};
  if (cli_parse_size(text, &limit->bytes)) return true;
  (void)snprintf(why, CLI_BUDGET_WHY_BYTES, " takes a size such as 20GiB, not '%.200s'", text);
  return false;
}

bool cli_budget_parse_tolerance(const char *text, tsr_check_options *how,
                                char why[CLI_BUDGET_WHY_BYTES]) {
  char *end = NULL;
  how->tolerance_millionths = text ? 0 : DEFAULT_MILLIONTHS;
  if (!text || strcmp(text, "0") == 0) return true;
  double number = strtod(text, &end);
  while (*end == ' ') end++;
  if (end != text && end[0] == '%' && !end[1] && number >= 0 && number <= 100) {
    how->tolerance_millionths = (uint32_t)(number * 10000 + 0.5);
    return true;
  }
  if (cli_parse_size(text, &how->tolerance_bytes)) return true;
  (void)snprintf(why, CLI_BUDGET_WHY_BYTES,
                 " takes a share such as 1%%, or a size such as 16MiB, not '%.200s'", text);
  return false;
}
