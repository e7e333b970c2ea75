/* added.c - see added.h. */
#include "tokens/added.h"

#include <assert.h>

#include "base/utf8.h"

/* ---- texts ---- */

bool tsr__trie_add(tsr__trie *trie, const char *text, size_t size_bytes, uint32_t index) {
  uint32_t at = 0;
  assert(size_bytes);
  if (!trie->nodes.count && !TSR__VECTOR_PUSH(&trie->nodes, (tsr__trie_node){0})) return false;
  for (size_t i = 0; i < size_bytes; i++) {
    unsigned char byte = (unsigned char)text[i];
    uint32_t child = trie->nodes.items[at].child;
    while (child && trie->nodes.items[child].byte != byte) child = trie->nodes.items[child].sibling;
    if (!child) {
      child = (uint32_t)trie->nodes.count;
      tsr__trie_node node = {.byte = byte, .sibling = trie->nodes.items[at].child};
      if (child == UINT32_MAX || !TSR__VECTOR_PUSH(&trie->nodes, node)) return false;
      trie->nodes.items[at].child = child;
    }
    at = child;
  }
  if (!trie->nodes.items[at].token) trie->nodes.items[at].token = index + 1;
  trie->begins[(unsigned char)text[0]] = true;
  return true;
}

void tsr__trie_release(tsr__trie *trie) {
  TSR__VECTOR_FREE(&trie->nodes);
}

/* The longest text that is at `from`; 0 if absent, else the token's index + 1. */
static uint32_t longest(const tsr__trie *trie, const char *text, size_t size_bytes, size_t from,
                        size_t *end) {
  uint32_t at = 0, found = 0;
  for (size_t i = from; i < size_bytes; i++) {
    at = trie->nodes.items[at].child;
    while (at && trie->nodes.items[at].byte != (unsigned char)text[i])
      at = trie->nodes.items[at].sibling;
    if (!at) break;
    if (!trie->nodes.items[at].token) continue;
    found = trie->nodes.items[at].token;
    *end = i + 1;
  }
  return found;
}

static bool find(const tsr__trie *trie, const char *text, size_t size_bytes, size_t from,
                 tsr__section *out, uint32_t *index) {
  for (; from < size_bytes; from++) {
    uint32_t found = trie->begins[(unsigned char)text[from]]
                         ? longest(trie, text, size_bytes, from, &out->end)
                         : 0;
    if (!found) continue;
    out->start = from;
    *index = found - 1;
    return true;
  }
  return false;
}

/* ---- neighbours ---- */

bool tsr__is_white_space(uint32_t code) {
  return (code >= 9 && code <= 13) || code == 32 || code == 0x85 || code == 0xA0 ||
         code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 ||
         code == 0x202F || code == 0x205F || code == 0x3000;
}

/* Where the character before `at` begins; `at` is not 0. */
static size_t before(const char *text, size_t at) {
  do at--;
  while (at && ((unsigned char)text[at] & 0xC0) == 0x80);
  return at;
}

static size_t take_left(const char *text, size_t start, size_t least) {
  uint32_t code;
  while (start > least) {
    size_t at = before(text, start);
    (void)tsr__utf8_decode(text + at, start - at, &code);
    if (!tsr__is_white_space(code)) break;
    start = at;
  }
  return start > least ? start : least;
}

static size_t take_right(const char *text, size_t size_bytes, size_t end) {
  uint32_t code;
  while (end < size_bytes) {
    size_t length = tsr__utf8_decode(text + end, size_bytes - end, &code);
    if (!tsr__is_white_space(code)) break;
    end += length;
  }
  return end;
}

/* 1 if a character of a word is next to the section, 0 if not, or a negative status. */
static int touches_word(const tsr__regex *word, tsr__matcher *matcher, const char *text,
                        size_t size_bytes, const tsr__section *section, tsr_error *error) {
  size_t start, end;
  uint32_t code;
  int found = 0;
  if (section->start) {
    size_t at = before(text, section->start);
    found = tsr__regex_find(word, matcher, text + at, section->start - at, 0, &start, &end, error);
  }
  if (found == 0 && section->end < size_bytes) {
    const char *next = text + section->end;
    size_t length = tsr__utf8_decode(next, size_bytes - section->end, &code);
    found = tsr__regex_find(word, matcher, next, length, 0, &start, &end, error);
  }
  return found;
}

/* ---- dividing ---- */

static bool add(tsr__sections *out, tsr__section section) {
  return section.start >= section.end || TSR__VECTOR_PUSH(out, section);
}

int tsr__added_split(const tsr__trie *trie, const tsr__added_token *list, const tsr__regex *word,
                     tsr__matcher *matcher, const char *text, size_t size_bytes, tsr__sections *out,
                     tsr_error *error) {
  tsr__section match = {0};
  size_t done = 0, from = 0;
  uint32_t index;
  while (trie->nodes.count && find(trie, text, size_bytes, from, &match, &index)) {
    from = match.end;
    match.token = &list[index];
    if (match.token->is_word) {
      int found = touches_word(word, matcher, text, size_bytes, &match, error);
      if (found < 0) return found;
      if (found) continue;
    }
    /* Spaces that the token before has taken are its own; a token that begins among them is still one. */
    if (match.token->takes_left)
      match.start = done < match.start ? take_left(text, match.start, done) : done;
    if (match.token->takes_right) match.end = take_right(text, size_bytes, match.end);
    if (!add(out, (tsr__section){done, match.start, NULL})) return tsr__fail_memory(error);
    if (!add(out, match)) return tsr__fail_memory(error);
    done = match.end;
  }
  if (!add(out, (tsr__section){done, size_bytes, NULL})) return tsr__fail_memory(error);
  return 0;
}
