/* split.c - see split.h. Rule: tokenizers, pre_tokenizers/ and tokenizer/normalizer.rs (split). */
#include "tokens/split.h"

#include <assert.h>
#include <string.h>

#define REFUSE(status, ...) tsr__fail(error, (status), TSR_OFFSET_NONE, __VA_ARGS__)

enum { MOST_DEPTH = 8 };

/* GPT-2's, which ByteLevel implies. */
static const char gpt2_pattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

/* ---- reading ---- */

static int add_step(tsr__split *split, tsr__split_step step, tsr_error *error) {
  if (TSR__VECTOR_PUSH(&split->steps, step)) return 0;
  tsr__regex_free(step.regex);
  return tsr__fail_memory(error);
}

static int add_pattern(tsr__split *split, const char *pattern, tsr_error *error) {
  tsr__split_step step = {.kind = TSR__SPLIT_PATTERN};
  int status = tsr__regex_new(pattern, strlen(pattern), &step.regex, error);
  return status ? status : add_step(split, step, error);
}

static int find_word(const char *const *words, size_t count, const json_t *value) {
  const char *word = json_string_value(value);
  for (size_t i = 0; word && i < count; i++)
    if (strcmp(words[i], word) == 0) return (int)i;
  return -1;
}

static int read_pattern(tsr__split *split, const json_t *description, tsr_error *error) {
  static const char *const behaviors[] = {"Isolated", "Removed", "Contiguous", "MergedWithPrevious",
                                          "MergedWithNext"};
  const json_t *pattern = json_object_get(description, "pattern");
  const json_t *regex = json_object_get(pattern, "Regex");
  const json_t *text = json_object_get(pattern, "String");
  tsr__split_step step = {.kind = TSR__SPLIT_PATTERN};
  int behavior = find_word(behaviors, 5, json_object_get(description, "behavior"));
  if (behavior < 0) return REFUSE(TSR_ERROR_UNSUPPORTED, "'Split' has no known \"behavior\"");
  step.behavior = (tsr__split_behavior)behavior;
  step.is_inverted = json_is_true(json_object_get(description, "invert"));
  int status;
  if (json_is_string(regex))
    status =
        tsr__regex_new(json_string_value(regex), json_string_length(regex), &step.regex, error);
  else if (json_string_length(text))
    status =
        tsr__regex_literal(json_string_value(text), json_string_length(text), &step.regex, error);
  else
    status = REFUSE(TSR_ERROR_FORMAT, "'Split' has no pattern");
  return status ? status : add_step(split, step, error);
}

static int read_byte_level(tsr__split *split, const json_t *description, tsr_error *error) {
  const json_t *prefix = json_object_get(description, "add_prefix_space");
  int status = 0;
  if (!json_is_boolean(prefix))
    return REFUSE(TSR_ERROR_FORMAT, "'ByteLevel' has no \"add_prefix_space\"");
  if (json_is_true(prefix))
    status = add_step(split, (tsr__split_step){.kind = TSR__SPLIT_PREFIX, .mark = " "}, error);
  if (status == 0 && !json_is_false(json_object_get(description, "use_regex")))
    status = add_pattern(split, gpt2_pattern, error);
  split->is_byte_level = true;
  return status;
}

static int read_metaspace(tsr__split *split, const json_t *description, tsr_error *error) {
  static const char *const schemes[] = {"never", "always", "first"};
  const json_t *mark = json_object_get(description, "replacement");
  const json_t *scheme = json_object_get(description, "prepend_scheme");
  tsr__split_step step = {.kind = TSR__SPLIT_SPACES, .prefixes = TSR__PREFIX_ALWAYS};
  size_t length = json_string_length(mark);
  if (!length || length >= sizeof step.mark)
    return REFUSE(TSR_ERROR_FORMAT, "'Metaspace' has no \"replacement\" of one character");
  memcpy(step.mark, json_string_value(mark), length);
  int found = scheme ? find_word(schemes, 3, scheme) : TSR__PREFIX_ALWAYS;
  bool has_no_prefix = json_is_false(json_object_get(description, "add_prefix_space"));
  if (found < 0 || (scheme && has_no_prefix && found != TSR__PREFIX_NEVER))
    return REFUSE(TSR_ERROR_UNSUPPORTED, "'Metaspace' has no known \"prepend_scheme\"");
  step.prefixes = has_no_prefix ? TSR__PREFIX_NEVER : (tsr__split_prefixes)found;
  int status = add_step(split, step, error);
  if (status || json_is_false(json_object_get(description, "split"))) return status;
  tsr__split_step parts = {.kind = TSR__SPLIT_PATTERN, .behavior = TSR__SPLIT_WITH_NEXT};
  status = tsr__regex_literal(step.mark, length, &parts.regex, error);
  return status ? status : add_step(split, parts, error);
}

static int read_step(tsr__split *split, const json_t *description, unsigned depth,
                     tsr_error *error) {
  const char *type = json_string_value(json_object_get(description, "type"));
  if (!type) return REFUSE(TSR_ERROR_FORMAT, "a pre-tokenizer has no type");
  if (strcmp(type, "Sequence") == 0) {
    const json_t *list = json_object_get(description, "pretokenizers");
    int status = 0;
    if (!json_is_array(list) || depth == MOST_DEPTH)
      return REFUSE(TSR_ERROR_FORMAT, "the pre-tokenizer is nested too deep, or no list");
    for (size_t i = 0; status == 0 && i < json_array_size(list); i++)
      status = read_step(split, json_array_get(list, i), depth + 1, error);
    return status;
  }
  if (split->is_byte_level)
    return REFUSE(TSR_ERROR_UNSUPPORTED,
                  "the pre-tokenizer '%.60s' after 'ByteLevel' is not supported", type);
  if (strcmp(type, "Split") == 0) return read_pattern(split, description, error);
  if (strcmp(type, "ByteLevel") == 0) return read_byte_level(split, description, error);
  if (strcmp(type, "Metaspace") == 0) return read_metaspace(split, description, error);
  if (strcmp(type, "Digits") == 0)
    return add_pattern(split,
                       json_is_true(json_object_get(description, "individual_digits")) ? "\\p{N}"
                                                                                       : "\\p{N}+",
                       error);
  return REFUSE(TSR_ERROR_UNSUPPORTED, "the pre-tokenizer '%.60s' is not supported", type);
}

int tsr__split_read(tsr__split *split, const json_t *description, tsr_error *error) {
  if (!description || json_is_null(description)) return 0;
  return read_step(split, description, 0, error);
}

void tsr__split_release(tsr__split *split) {
  for (size_t i = 0; i < split->steps.count; i++) tsr__regex_free(split->steps.items[i].regex);
  TSR__VECTOR_FREE(&split->steps);
}

/* ---- dividing ---- */

bool tsr__split_is_local(const tsr__split_step *step) {
  return step->kind == TSR__SPLIT_PATTERN && step->behavior <= TSR__SPLIT_REMOVED;
}

bool tsr__split_keeps(const tsr__split_step *step, bool is_match) {
  return step->behavior != TSR__SPLIT_REMOVED || is_match == step->is_inverted;
}

/* All parts, matches and what is between them. */
static int find_parts(const tsr__split_step *step, tsr__matcher *matcher, const char *text,
                      size_t size_bytes, tsr__split_ranges *out, tsr_error *error) {
  size_t done = 0, start, end;
  int found = 1;
  while (done < size_bytes && found > 0) {
    found = tsr__regex_find(step->regex, matcher, text, size_bytes, done, &start, &end, error);
    if (found < 0) return found;
    if (!found) start = end = size_bytes;
    bool ok =
        start == done || TSR__VECTOR_PUSH(out, (tsr__split_range){done, start, step->is_inverted});
    if (ok && end > start)
      ok = TSR__VECTOR_PUSH(out, (tsr__split_range){start, end, !step->is_inverted});
    if (!ok) return tsr__fail_memory(error);
    done = end;
  }
  return 0;
}

/* Join a part to its neighbour in the list, in the order in which parts are looked at. */
static bool joins(tsr__split_behavior behavior, bool is_match, bool was_match) {
  if (behavior == TSR__SPLIT_CONTIGUOUS) return is_match == was_match;
  return is_match && !was_match;
}

static void join(tsr__split_behavior behavior, tsr__split_ranges *out) {
  size_t count = out->count, kept = 0;
  bool is_backward = behavior == TSR__SPLIT_WITH_NEXT, was_match = false;
  for (size_t i = 0; i < count; i++) {
    tsr__split_range *items = out->items, part = items[is_backward ? count - 1 - i : i];
    tsr__split_range *last = kept ? &items[is_backward ? count - kept : kept - 1] : NULL;
    if (last && joins(behavior, part.is_match, was_match)) {
      if (is_backward)
        last->start = part.start;
      else
        last->end = part.end;
    } else {
      items[is_backward ? count - 1 - kept : kept] = part;
      kept++;
    }
    was_match = part.is_match;
  }
  if (is_backward && kept)
    memmove(out->items, out->items + (count - kept), kept * sizeof *out->items);
  out->count = kept;
}

int tsr__split_pattern(const tsr__split_step *step, tsr__matcher *matcher, const char *text,
                       size_t size_bytes, tsr__split_ranges *out, tsr_error *error) {
  assert(step->kind == TSR__SPLIT_PATTERN);
  out->count = 0;
  int status = find_parts(step, matcher, text, size_bytes, out, error);
  if (status) return status;
  if (step->behavior > TSR__SPLIT_REMOVED) join(step->behavior, out);
  if (step->behavior != TSR__SPLIT_REMOVED) return 0;
  size_t kept = 0;
  for (size_t i = 0; i < out->count; i++)
    if (!out->items[i].is_match) out->items[kept++] = out->items[i];
  out->count = kept;
  return 0;
}

void tsr__split_change(const tsr__split_step *step, const char *text, size_t size_bytes,
                       bool is_first, tsr__buffer *out) {
  size_t mark_bytes = strlen(step->mark);
  bool replaces = step->kind == TSR__SPLIT_SPACES;
  bool may_prefix = !replaces || step->prefixes == TSR__PREFIX_ALWAYS ||
                    (step->prefixes == TSR__PREFIX_FIRST && is_first);
  bool has_mark = size_bytes >= mark_bytes && memcmp(text, step->mark, mark_bytes) == 0;
  if (replaces && size_bytes && text[0] == ' ') has_mark = true;
  if (may_prefix && !has_mark) tsr__buffer_append(out, step->mark, mark_bytes);
  for (size_t at = 0; at < size_bytes;) {
    const char *blank = replaces ? memchr(text + at, ' ', size_bytes - at) : NULL;
    size_t length = blank ? (size_t)(blank - text) - at : size_bytes - at;
    tsr__buffer_append(out, text + at, length);
    if (blank) tsr__buffer_append(out, step->mark, mark_bytes);
    at += length + (blank != NULL);
  }
}
