/* suggest.c - "did you mean": the nearest of some names.
 *
 * Near is few edits (insert, delete or change a character, Levenshtein's distance), fewer for a
 * short word than for a long one; or being cut short: "prof" means "profile". '_' is as good as
 * '-', as everywhere on the command line.
 */
#include "suggest.h"

#include <string.h>

/* Longer words than any name are not worth comparing, and bound the table of distances. */
#define WORD_MAX 40

static char plain(char letter) {
  return letter == '_' ? '-' : letter;
}

/* Edits between two words, both at most WORD_MAX long, by the usual table kept as one row. */
static size_t edit_distance(const char *a, size_t a_length, const char *b, size_t b_length) {
  size_t row[WORD_MAX + 1];
  for (size_t j = 0; j <= b_length; j++) row[j] = j;
  for (size_t i = 1; i <= a_length; i++) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b_length; j++) {
      size_t change = diagonal + (plain(a[i - 1]) != plain(b[j - 1]));
      size_t shift = 1 + (row[j] < row[j - 1] ? row[j] : row[j - 1]);
      diagonal = row[j];
      row[j] = change < shift ? change : shift;
    }
  }
  return row[b_length];
}

cli_suggestion cli_suggestion_start(const char *typed, size_t typed_length) {
  return (cli_suggestion){.typed = typed, .typed_length = typed_length};
}

void cli_suggestion_offer(cli_suggestion *suggestion, const char *name) {
  size_t typed_length = suggestion->typed_length;
  size_t name_length = strlen(name);
  if (typed_length > WORD_MAX || name_length > WORD_MAX) return;
  size_t distance = edit_distance(suggestion->typed, typed_length, name, name_length);
  bool cut_short = typed_length >= 2 && distance == name_length - typed_length &&
                   strncmp(suggestion->typed, name, typed_length) == 0;
  size_t enough = 1 + typed_length / 4;
  bool near_enough = cut_short || (distance <= enough && distance < typed_length);
  if (!near_enough || (suggestion->best && distance >= suggestion->distance)) return;
  suggestion->best = name;
  suggestion->distance = distance;
}
