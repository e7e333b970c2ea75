/* tessera/unstable/suggest.h - "did you mean": the name that a user may have meant. */
#ifndef TESSERA_UNSTABLE_SUGGEST_H
#define TESSERA_UNSTABLE_SUGGEST_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What was typed, and the best name offered so far. */
typedef struct tsr_suggestion {
  const char *typed;
  size_t typed_length;
  const char *best; /* NULL while nothing offered is near enough */
  int likeness;     /* how `best` resembles what was typed; smaller is better */
  size_t distance;  /* of `best`, in edits */
} tsr_suggestion;

/* Start with no name. `typed` and the names that are offered must outlive the suggestion. */
tsr_suggestion tsr_suggestion_start(const char *typed, size_t typed_length);
/* Consider `name`; of equally good ones the first stays. */
void tsr_suggestion_offer(tsr_suggestion *suggestion, const char *name);

#ifdef __cplusplus
}
#endif

#endif
