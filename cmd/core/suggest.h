/* suggest.h - the name that the user may have meant. */
#ifndef CLI_SUGGEST_H
#define CLI_SUGGEST_H

#include <stdbool.h>
#include <stddef.h>

/* What was typed, and the best name offered so far. */
typedef struct cli_suggestion {
  const char *typed;
  size_t typed_length;
  const char *best; /* NULL while nothing offered is near enough */
  size_t distance;  /* of `best` */
} cli_suggestion;

cli_suggestion cli_suggestion_start(const char *typed, size_t typed_length);
/* Consider `name`; of equally near ones the first stays. */
void cli_suggestion_offer(cli_suggestion *suggestion, const char *name);

#endif
