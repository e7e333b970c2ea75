/* decode.c - from tokens to text. Rule: tokenizers, decoders/.
 *
 * Text goes out as soon as no later token can change it. With ByteLevel that is up to the last complete character. With
 * ByteFallback a run of tokens for bytes is text only if all of it is valid, so it is held back until it ends. */
#include <assert.h>
#include <string.h>

#include "base/memory.h"
#include "base/utf8.h"
#include "tokens/tokenizer.h"

#define REFUSE(status, ...) tsr__fail(error, (status), TSR_OFFSET_NONE, __VA_ARGS__)

static const char replacement[] = "\xEF\xBF\xBD"; /* U+FFFD */

/* ---- reading ---- */

static bool read_mark(const json_t *value, char mark[5]) {
  size_t size = json_string_length(value);
  if (!size || size > 4) return false;
  memcpy(mark, json_string_value(value), size);
  mark[size] = 0;
  return true;
}

static int read_strip(tsr__decode_rules *rules, const json_t *step, tsr_error *error) {
  json_int_t start = json_integer_value(json_object_get(step, "start"));
  json_int_t stop = json_integer_value(json_object_get(step, "stop"));
  if (!rules->is_fused || stop || start < 0 || rules->stripped[0])
    return REFUSE(TSR_ERROR_UNSUPPORTED,
                  "the decoder 'Strip' is supported once, after 'Fuse', at the beginning");
  if (!read_mark(json_object_get(step, "content"), rules->stripped))
    return REFUSE(TSR_ERROR_FORMAT, "the decoder 'Strip' has no \"content\" of one character");
  rules->stripped_most = (uint64_t)start;
  return 0;
}

static int read_metaspace(tsr__decode_rules *rules, const json_t *step, tsr_error *error) {
  const json_t *scheme = json_object_get(step, "prepend_scheme");
  const char *word = json_string_value(scheme);
  bool is_never = (word && strcmp(word, "never") == 0) ||
                  json_is_false(json_object_get(step, "add_prefix_space"));
  if (rules->mark[0] || !read_mark(json_object_get(step, "replacement"), rules->mark))
    return REFUSE(TSR_ERROR_FORMAT, "the decoder 'Metaspace' has no \"replacement\"");
  rules->drops_first_marks = !is_never;
  return 0;
}

static int read_replace(tsr__decode_rules *rules, const json_t *description, tsr_error *error) {
  tsr__normal_step step = {.kind = TSR__NORMAL_REPLACE};
  int status = tsr__replace_read(&step, description, error);
  if (status == 0 && !TSR__VECTOR_PUSH(&rules->replacements, step))
    status = tsr__fail_memory(error);
  if (status) tsr__replace_release(&step);
  return status;
}

/* Steps come in the order of their enumerators, or the result would be another. */
typedef enum place { PLACE_TOKENS, PLACE_BYTES, PLACE_FUSE, PLACE_STRIP } place;

static int read_step(tsr__decode_rules *rules, const json_t *step, place *at, tsr_error *error) {
  const char *type = json_string_value(json_object_get(step, "type"));
  place wanted = PLACE_TOKENS;
  int status = 0;
  if (!type) return REFUSE(TSR_ERROR_FORMAT, "a decoder has no type");
  if (strcmp(type, "Replace") == 0 && !rules->mark[0]) {
    status = read_replace(rules, step, error);
  } else if (strcmp(type, "Metaspace") == 0) {
    status = read_metaspace(rules, step, error);
  } else if (strcmp(type, "ByteFallback") == 0) {
    wanted = PLACE_BYTES;
    rules->joins_bytes = true;
  } else if (strcmp(type, "Fuse") == 0) {
    wanted = PLACE_FUSE;
    rules->is_fused = true;
  } else if (strcmp(type, "Strip") == 0) {
    wanted = PLACE_STRIP;
    status = read_strip(rules, step, error);
  } else {
    return REFUSE(TSR_ERROR_UNSUPPORTED, "the decoder '%.60s' is not supported here", type);
  }
  if (status == 0 && wanted < *at)
    status =
        REFUSE(TSR_ERROR_UNSUPPORTED, "the decoder '%.60s' is not supported after another", type);
  *at = wanted;
  return status;
}

int tsr__decode_read(tsr__decode_rules *rules, const json_t *description, tsr_error *error) {
  if (!description || json_is_null(description)) return 0;
  const char *type = json_string_value(json_object_get(description, "type"));
  const json_t *list = json_object_get(description, "decoders");
  place at = PLACE_TOKENS;
  bool is_list = type && strcmp(type, "Sequence") == 0;
  if (is_list && !json_is_array(list))
    return REFUSE(TSR_ERROR_FORMAT, "the decoder 'Sequence' has no list");
  if (is_list && json_array_size(list) == 1) {
    description = json_array_get(list, 0);
    type = json_string_value(json_object_get(description, "type"));
    is_list = false;
  }
  if (type && strcmp(type, "ByteLevel") == 0) {
    rules->kind = TSR__DECODE_BYTE_LEVEL;
    return 0;
  }
  rules->kind = TSR__DECODE_STEPS;
  if (!is_list) return read_step(rules, description, &at, error);
  int status = 0;
  for (size_t i = 0; status == 0 && i < json_array_size(list); i++)
    status = read_step(rules, json_array_get(list, i), &at, error);
  return status;
}

void tsr__decode_release(tsr__decode_rules *rules) {
  for (size_t i = 0; i < rules->replacements.count; i++)
    tsr__replace_release(&rules->replacements.items[i]);
  TSR__VECTOR_FREE(&rules->replacements);
}

/* ---- decoding ---- */

struct tsr_token_decoder {
  const tsr_tokenizer *t;
  bool skips_special, has_begun;
  uint64_t stripped;     /* what may still be dropped at the beginning */
  tsr__buffer held, out; /* bytes that are not text yet; what the last call returned */
  tsr__buffer rooms[2];  /* for replacements */
};

static void begin(tsr_token_decoder *d) {
  d->has_begun = false;
  d->stripped = d->t->decode.stripped_most;
  d->held.size = 0;
}

tsr_token_decoder *tsr_token_decoder_new(const tsr_tokenizer *tokenizer, bool skips_special) {
  tsr_token_decoder *d = TSR__NEW(tsr_token_decoder);
  if (!d) return NULL;
  d->t = tokenizer;
  d->skips_special = skips_special;
  begin(d);
  return d;
}

void tsr_token_decoder_free(tsr_token_decoder *d) {
  if (!d) return;
  tsr__buffer_release(&d->held);
  tsr__buffer_release(&d->out);
  tsr__buffer_release(&d->rooms[0]);
  tsr__buffer_release(&d->rooms[1]);
  tsr__free(d);
}

/* Move the text at the beginning of `held` to the output; with `is_last` all of it. Bytes that are no text become U+FFFD as
 * in Rust's from_utf8_lossy: one for each longest beginning of a character. */
static void release_text(tsr_token_decoder *d, bool is_last) {
  size_t at = 0;
  uint32_t code;
  while (at < d->held.size) {
    size_t left = d->held.size - at, length = tsr__utf8_decode(d->held.data + at, left, &code);
    if (code == TSR__CODE_INVALID && length == left && !is_last) break;
    const unsigned char *bytes = (const unsigned char *)d->held.data + at;
    /* Half of a pair of UTF-16, or the beginning of one: no character begins with these two bytes. */
    bool is_half = length > 1 && bytes[0] == 0xED && bytes[1] >= 0xA0;
    size_t broken = is_half ? length : code == TSR__CODE_INVALID;
    if (!broken) tsr__buffer_append(&d->out, bytes, length);
    for (size_t i = 0; i < broken; i++) tsr__buffer_text(&d->out, replacement);
    at += length;
  }
  if (at) memmove(d->held.data, d->held.data + at, d->held.size - at);
  d->held.size -= at;
}

/* The bytes of a token, or its text if that is not made of characters for bytes. */
static void put_bytes(tsr_token_decoder *d, const char *text, size_t size_bytes) {
  size_t before = d->held.size;
  uint32_t code;
  for (size_t at = 0; at < size_bytes;) {
    at += tsr__utf8_decode(text + at, size_bytes - at, &code);
    int byte = tsr__character_byte(code);
    if (byte < 0) {
      d->held.size = before;
      tsr__buffer_append(&d->held, text, size_bytes);
      break;
    }
    tsr__buffer_fill(&d->held, (char)byte, 1);
  }
  release_text(d, false);
}

/* Text that is final but for what is dropped at the beginning. */
static void put_text(tsr_token_decoder *d, const char *text, size_t size_bytes) {
  size_t length = strlen(d->t->decode.stripped);
  while (d->stripped && size_bytes) {
    bool is_dropped = size_bytes >= length && memcmp(text, d->t->decode.stripped, length) == 0;
    d->stripped = is_dropped ? d->stripped - 1 : 0;
    if (!is_dropped) break;
    text += length;
    size_bytes -= length;
  }
  tsr__buffer_append(&d->out, text, size_bytes);
}

/* The end of a run of bytes: text if all of it is, else U+FFFD for each. */
static void end_run(tsr_token_decoder *d) {
  if (tsr__utf8_is_text(d->held.data, d->held.size))
    put_text(d, d->held.data, d->held.size);
  else
    for (size_t i = 0; i < d->held.size; i++) put_text(d, replacement, sizeof replacement - 1);
  d->held.size = 0;
}

static int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  c = (char)(c | 32);
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The byte that a token such as <0x0A> is, or -1. */
static int byte_of(const char *text, size_t size_bytes) {
  if (size_bytes != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>') return -1;
  int high = text[3] == '+' ? 0 : hex_digit(text[3]), low = hex_digit(text[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

/* Metaspace: marks are blanks, or nothing in the first token. */
static void put_marked(tsr_token_decoder *d, const char *text, size_t size_bytes) {
  const tsr__decode_rules *rules = &d->t->decode;
  size_t length = strlen(rules->mark);
  for (size_t at = 0; at < size_bytes;) {
    uint32_t code;
    size_t here = tsr__utf8_decode(text + at, size_bytes - at, &code);
    bool is_mark = here == length && memcmp(text + at, rules->mark, length) == 0;
    if (!is_mark)
      put_text(d, text + at, here);
    else if (d->has_begun || !rules->drops_first_marks)
      put_text(d, " ", 1);
    at += here;
  }
}

static void put_steps(tsr_token_decoder *d, const char *text, size_t size_bytes) {
  const tsr__decode_rules *rules = &d->t->decode;
  for (size_t i = 0; i < rules->replacements.count; i++) {
    tsr__buffer *room = &d->rooms[i % 2];
    room->size = 0;
    tsr__replace(&rules->replacements.items[i], text, size_bytes, room);
    text = room->data ? room->data : "";
    size_bytes = room->size;
  }
  int byte = rules->joins_bytes ? byte_of(text, size_bytes) : -1;
  if (byte >= 0) {
    tsr__buffer_fill(&d->held, (char)byte, 1);
    return;
  }
  if (d->held.size) end_run(d);
  if (rules->mark[0])
    put_marked(d, text, size_bytes);
  else
    put_text(d, text, size_bytes);
}

static bool text_of(const tsr_tokenizer *t, uint32_t id, const char **text, size_t *size_bytes) {
  const uint64_t *index = tsr__map_find(t->added_by_id, id);
  if (!index) return tsr__bpe_text(&t->bpe, id, text, size_bytes);
  *text = t->added.items[*index].text;
  *size_bytes = t->added.items[*index].size_bytes;
  return true;
}

static int give(tsr_token_decoder *d, tsr_text *out, tsr_error *error) {
  if (d->out.failed || d->held.failed || d->rooms[0].failed || d->rooms[1].failed)
    return tsr__fail_memory(error);
  *out = (tsr_text){d->out.data ? d->out.data : "", d->out.size};
  return 0;
}

int tsr_token_decoder_put(tsr_token_decoder *d, uint32_t id, tsr_text *out, tsr_error *error) {
  const char *text;
  size_t size;
  d->out.size = 0;
  if (!text_of(d->t, id, &text, &size) || (d->skips_special && tsr_tokenizer_is_special(d->t, id)))
    return give(d, out, error);
  switch (d->t->decode.kind) {
  case TSR__DECODE_WORDS:
    if (d->has_begun) tsr__buffer_text(&d->out, " ");
    tsr__buffer_append(&d->out, text, size);
    break;
  case TSR__DECODE_BYTE_LEVEL: put_bytes(d, text, size); break;
  case TSR__DECODE_STEPS: put_steps(d, text, size); break;
  }
  d->has_begun = true;
  return give(d, out, error);
}

int tsr_token_decoder_finish(tsr_token_decoder *d, tsr_text *out, tsr_error *error) {
  d->out.size = 0;
  if (d->t->decode.kind == TSR__DECODE_BYTE_LEVEL)
    release_text(d, true);
  else if (d->held.size)
    end_run(d);
  begin(d);
  return give(d, out, error);
}
