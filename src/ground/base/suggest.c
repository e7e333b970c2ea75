/* suggest.c - "did you mean": the nearest of some names.
 *
 * Best is a name that the word begins: "prof" means "profile", "leak" means "leaks" and not "peak". Then a name that
 * begins the word, with little after it: "a100-sxm" means "a100". Then few edits (insert, delete or change a
 * character, Levenshtein's distance), fewer for a short word than for a long one. Last, a name with much after it:
 * "batch-size" means "batch". Case and separators are no edits: "kv-cache" is "kv_cache".
 */
#include "tessera/unstable/suggest.h"

#include <ctype.h>
#include <string.h>

/* Longer words than any name are not worth comparing, and bound the table of distances. */
#define WORD_MAX 40

/* The word's letters, lower-case, without separators. Returns how many. */
static size_t plain(const char *word, size_t length, char out[WORD_MAX]) {
  size_t count = 0;
  for (size_t i = 0; i < length; i++)
    if (!strchr("-_. ", word[i])) out[count++] = (char)tolower((unsigned char)word[i]);
  return count;
}

/* Edits between two words, both at most WORD_MAX long, by the usual table kept as one row. */
static size_t edit_distance(const char *a, size_t a_length, const char *b, size_t b_length) {
  size_t row[WORD_MAX + 1];
  for (size_t j = 0; j <= b_length; j++) row[j] = j;
  for (size_t i = 1; i <= a_length; i++) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b_length; j++) {
      size_t change = diagonal + (a[i - 1] != b[j - 1]);
      size_t shift = 1 + (row[j] < row[j - 1] ? row[j] : row[j - 1]);
      diagonal = row[j];
      row[j] = change < shift ? change : shift;
    }
  }
  return row[b_length];
}

tsr_suggestion tsr_suggestion_start(const char *typed, size_t typed_length) {
  return (tsr_suggestion){.typed = typed, .typed_length = typed_length};
}

/* How a name resembles the word, the best first. */
typedef enum likeness {
  LIKE_CUT_SHORT,
  LIKE_LENGTHENED,
  LIKE_EDITED,
  LIKE_START,
  LIKE_NOTHING
} likeness;

static likeness compare(const char *typed, size_t typed_length, const char *name,
                        size_t name_length, size_t distance) {
  enum { SHORTEST_TYPED = 2, SHORTEST_NAME = 3 };
  size_t common = typed_length < name_length ? typed_length : name_length;
  bool is_prefix = memcmp(typed, name, common) == 0;
  bool is_near = distance <= 1 + typed_length / 4 && distance < typed_length;
  if (is_prefix && typed_length >= SHORTEST_TYPED && typed_length <= name_length)
    return LIKE_CUT_SHORT;
  bool is_lengthened = is_prefix && common == name_length;
  if (is_near) return is_lengthened ? LIKE_LENGTHENED : LIKE_EDITED;
  return is_lengthened && name_length >= SHORTEST_NAME ? LIKE_START : LIKE_NOTHING;
}

void tsr_suggestion_offer(tsr_suggestion *suggestion, const char *name) {
  char typed[WORD_MAX], offered[WORD_MAX];
  size_t name_length = strlen(name);
  if (suggestion->typed_length > WORD_MAX || name_length > WORD_MAX) return;
  size_t typed_length = plain(suggestion->typed, suggestion->typed_length, typed);
  name_length = plain(name, name_length, offered);
  size_t distance = edit_distance(typed, typed_length, offered, name_length);
  likeness like = compare(typed, typed_length, offered, name_length, distance);
  if (like == LIKE_NOTHING) return;
  if (suggestion->best &&
      (like > (likeness)suggestion->likeness ||
       (like == (likeness)suggestion->likeness && distance >= suggestion->distance)))
    return;
  suggestion->best = name;
  suggestion->likeness = (int)like;
  suggestion->distance = distance;
}
