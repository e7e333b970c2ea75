/* bpe.c - see bpe.h. */
#include "tokens/bpe.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/utf8.h"

#define REFUSE(status, ...) tsr__fail(error, (status), TSR_OFFSET_NONE, __VA_ARGS__)

/* ---- reading ---- */

static int read_flag(const json_t *model, const char *key, bool *out, tsr_error *error) {
  const json_t *value = json_object_get(model, key);
  if (value && !json_is_boolean(value) && !json_is_null(value))
    return REFUSE(TSR_ERROR_FORMAT, "the model's \"%s\" is not true or false", key);
  *out = json_is_true(value);
  return 0;
}

/* Options that change the result and are not implemented. */
static int check_options(const json_t *model, tsr_error *error) {
  static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
  const json_t *type = json_object_get(model, "type");
  const char *name = json_string_value(type);
  if (type && (!name || strcmp(name, "BPE") != 0))
    return REFUSE(TSR_ERROR_UNSUPPORTED, "the model is %.60s; tessera encodes with BPE models only",
                  name ? name : "of no type");
  const json_t *dropout = json_object_get(model, "dropout");
  if (dropout && !json_is_null(dropout) && json_number_value(dropout) != 0)
    return REFUSE(TSR_ERROR_UNSUPPORTED,
                  "the model drops merges at random (\"dropout\"), which tessera does not support");
  for (size_t i = 0; i < 2; i++) {
    const json_t *affix = json_object_get(model, affixes[i]);
    if (affix && !json_is_null(affix) && json_string_length(affix) != 0)
      return REFUSE(TSR_ERROR_UNSUPPORTED, "the model has a \"%s\", which tessera does not support",
                    affixes[i]);
  }
  return 0;
}

static int read_vocabulary(tsr__bpe *bpe, json_t *vocabulary, tsr_error *error) {
  const char *text;
  json_t *value;
  size_t count = json_object_size(vocabulary);
  if (!json_is_object(vocabulary))
    return REFUSE(TSR_ERROR_FORMAT, "the model has no \"vocab\" that is an object");
  if (count > TSR__TOKEN_ID_MOST)
    return REFUSE(TSR_ERROR_LIMIT, "the vocabulary has more than %" PRIu32 " tokens",
                  TSR__TOKEN_ID_MOST);
  bpe->ids = TSR__NEW_ARRAY(uint32_t, count);
  if (!bpe->ids) return tsr__fail_memory(error);
  json_object_foreach(vocabulary, text, value) {
    json_int_t id = json_integer_value(value);
    if (!json_is_integer(value) || id < 0 || id >= (json_int_t)TSR__TOKEN_ID_MOST)
      return REFUSE(TSR_ERROR_FORMAT, "token '%.60s' has an id that is not below %" PRIu32, text,
                    TSR__TOKEN_ID_MOST);
    uint32_t index = tsr__intern_put(&bpe->texts, text, strlen(text), NULL);
    if (index == TSR__INTERN_FULL) return tsr__fail_memory(error);
    bpe->ids[index] = (uint32_t)id;
    if ((uint32_t)id >= bpe->id_count) bpe->id_count = (uint32_t)id + 1;
  }
  bpe->indices = TSR__NEW_ARRAY(uint32_t, bpe->id_count);
  if (!bpe->indices) return tsr__fail_memory(error);
  memset(bpe->indices, 0xFF, bpe->id_count * sizeof *bpe->indices);
  for (uint32_t i = 0; i < bpe->texts.count; i++) {
    uint32_t *index = &bpe->indices[bpe->ids[i]];
    if (*index != TSR__TOKEN_NONE)
      return REFUSE(TSR_ERROR_FORMAT, "two tokens of the vocabulary have the id %" PRIu32,
                    bpe->ids[i]);
    *index = i;
  }
  return 0;
}

typedef struct side {
  const char *text;
  size_t size;
} side;

/* A merge as "a b" or ["a", "b"]. */
static bool read_merge(const json_t *merge, side sides[2]) {
  if (json_is_array(merge)) {
    for (size_t i = 0; i < 2; i++) {
      const json_t *value = json_array_get(merge, i);
      sides[i] = (side){json_string_value(value), json_string_length(value)};
    }
    return json_array_size(merge) == 2 && sides[0].text && sides[1].text;
  }
  const char *text = json_string_value(merge);
  size_t size = json_string_length(merge);
  const char *blank = text ? memchr(text, ' ', size) : NULL;
  if (!blank) return false;
  sides[0] = (side){text, (size_t)(blank - text)};
  sides[1] = (side){blank + 1, size - sides[0].size - 1};
  return !memchr(sides[1].text, ' ', sides[1].size);
}

static int add_merge(tsr__bpe *bpe, uint32_t rank, const side sides[2], tsr__buffer *both,
                     tsr_error *error) {
  uint32_t ids[3];
  both->size = 0;
  for (size_t i = 0; i < 2; i++) {
    tsr__buffer_append(both, sides[i].text, sides[i].size);
    ids[i] = tsr__bpe_id(bpe, sides[i].text, sides[i].size);
  }
  if (both->failed) return tsr__fail_memory(error);
  ids[2] = both->size ? tsr__bpe_id(bpe, both->data, both->size) : TSR__TOKEN_NONE;
  for (size_t i = 0; i < 3; i++) {
    side missing = i < 2 ? sides[i] : (side){both->data, both->size};
    int shown = missing.size < 60 ? (int)missing.size : 60;
    if (ids[i] == TSR__TOKEN_NONE)
      return REFUSE(TSR_ERROR_FORMAT, "merge %" PRIu32 " needs '%.*s', which is not a token", rank,
                    shown, missing.text ? missing.text : "");
  }
  uint64_t result = (uint64_t)rank << 32 | ids[2];
  uint64_t *place = tsr__map_put(bpe->merges, (uint64_t)ids[0] << 32 | ids[1], result, NULL);
  if (!place) return tsr__fail_memory(error);
  *place = result; /* of merges that are listed twice, the last counts */
  return 0;
}

static int read_merges(tsr__bpe *bpe, const json_t *merges, tsr_error *error) {
  static const char version[] = "#version";
  tsr__buffer both = {0};
  uint32_t rank = 0;
  int status = 0;
  if (!json_is_array(merges) || json_array_size(merges) >= UINT32_MAX)
    return REFUSE(TSR_ERROR_FORMAT, "the model has no \"merges\" that are a list");
  bpe->merges = TSR__NEW(tsr__map);
  if (!bpe->merges) return tsr__fail_memory(error);
  for (size_t i = 0; status == 0 && i < json_array_size(merges); i++) {
    const json_t *merge = json_array_get(merges, i);
    const char *text = json_string_value(merge);
    side sides[2];
    if (text && strncmp(text, version, sizeof version - 1) == 0) continue;
    if (json_typeof(merge) != json_typeof(json_array_get(merges, 0)) || !read_merge(merge, sides))
      status = REFUSE(TSR_ERROR_FORMAT, "merge %zu is not two tokens", i);
    else
      status = add_merge(bpe, rank++, sides, &both, error);
  }
  tsr__buffer_release(&both);
  return status;
}

static int read_unknown(tsr__bpe *bpe, const json_t *token, tsr_error *error) {
  if (!token || json_is_null(token)) return 0;
  if (!json_is_string(token))
    return REFUSE(TSR_ERROR_FORMAT, "the model's \"unk_token\" is not a text");
  bpe->unk_id = tsr__bpe_id(bpe, json_string_value(token), json_string_length(token));
  bpe->unknown = bpe->unk_id == TSR__TOKEN_NONE ? TSR__UNKNOWN_REFUSED : TSR__UNKNOWN_TOKEN;
  return 0;
}

static void find_characters(tsr__bpe *bpe) {
  for (unsigned i = 0; i < 256; i++) {
    char name[8];
    int length = snprintf(name, sizeof name, "<0x%02X>", i);
    bpe->of_byte[i] = tsr__bpe_id(bpe, name, (size_t)length);
  }
  for (uint32_t code = 0; code < sizeof bpe->of_low / sizeof *bpe->of_low; code++) {
    unsigned char bytes[TSR__UTF8_BYTES];
    size_t length = tsr__utf8_encode(code, bytes);
    bpe->of_low[code] = tsr__bpe_id(bpe, (const char *)bytes, length);
  }
}

int tsr__bpe_read(tsr__bpe *bpe, const json_t *model, tsr_error *error) {
  tsr__intern_init(&bpe->texts);
  if (!json_is_object(model)) return REFUSE(TSR_ERROR_FORMAT, "there is no \"model\"");
  int status = check_options(model, error);
  if (!status) status = read_flag(model, "fuse_unk", &bpe->fuses_unk, error);
  if (!status) status = read_flag(model, "byte_fallback", &bpe->has_byte_fallback, error);
  if (!status) status = read_flag(model, "ignore_merges", &bpe->ignores_merges, error);
  if (!status) status = read_vocabulary(bpe, json_object_get(model, "vocab"), error);
  if (!status) status = read_merges(bpe, json_object_get(model, "merges"), error);
  if (!status) status = read_unknown(bpe, json_object_get(model, "unk_token"), error);
  if (!status) find_characters(bpe);
  return status;
}

static bool add_pairs(tsr__map *pairs, const tsr__interned *token) {
  const char *text = (const char *)token->data;
  uint32_t before = 0, code;
  for (size_t at = 0; at < token->size_bytes;) {
    size_t length = tsr__utf8_decode(text + at, token->size_bytes - at, &code);
    if (at && !tsr__map_put(pairs, (uint64_t)before << 32 | code, 1, NULL)) return false;
    before = code;
    at += length;
  }
  return true;
}

int tsr__bpe_find_pairs(tsr__bpe *bpe, tsr_error *error) {
  assert(!bpe->pairs && bpe->merges);
  bpe->pairs = TSR__NEW(tsr__map);
  if (!bpe->pairs) return tsr__fail_memory(error);
  for (size_t i = 0; bpe->merges->slots && i <= bpe->merges->mask; i++) {
    const tsr__map_slot *slot = &bpe->merges->slots[i];
    if (slot->key == TSR__MAP_EMPTY) continue;
    uint32_t index = bpe->indices[(uint32_t)slot->value];
    if (!add_pairs(bpe->pairs, &bpe->texts.items[index])) return tsr__fail_memory(error);
  }
  return 0;
}

void tsr__bpe_release(tsr__bpe *bpe) {
  tsr__intern_release(&bpe->texts);
  if (bpe->merges) tsr__map_release(bpe->merges);
  if (bpe->pairs) tsr__map_release(bpe->pairs);
  tsr__free(bpe->merges);
  tsr__free(bpe->pairs);
  tsr__free(bpe->ids);
  tsr__free(bpe->indices);
}

uint32_t tsr__bpe_id(const tsr__bpe *bpe, const char *text, size_t size_bytes) {
  uint32_t index = tsr__intern_find(&bpe->texts, text, size_bytes);
  return index == TSR__INTERN_FULL ? TSR__TOKEN_NONE : bpe->ids[index];
}

bool tsr__bpe_text(const tsr__bpe *bpe, uint32_t id, const char **text, size_t *size_bytes) {
  if (id >= bpe->id_count || bpe->indices[id] == TSR__TOKEN_NONE) return false;
  const tsr__interned *token = &bpe->texts.items[bpe->indices[id]];
  *text = (const char *)token->data;
  *size_bytes = token->size_bytes;
  return true;
}

/* ---- the heap ---- */

static bool push(tsr__bpe_room *room, tsr__bpe_merge merge) {
  if (!TSR__VECTOR_PUSH(&room->heap, merge)) return false;
  tsr__bpe_merge *heap = room->heap.items;
  size_t at = room->heap.count - 1;
  for (; at && heap[(at - 1) / 2].key > merge.key; at = (at - 1) / 2) heap[at] = heap[(at - 1) / 2];
  heap[at] = merge;
  return true;
}

static tsr__bpe_merge pop(tsr__bpe_room *room) {
  tsr__bpe_merge *heap = room->heap.items, top = heap[0], last = heap[--room->heap.count];
  size_t count = room->heap.count, at = 0;
  for (;;) {
    size_t child = 2 * at + 1;
    if (child >= count) break;
    if (child + 1 < count && heap[child + 1].key < heap[child].key) child++;
    if (heap[child].key >= last.key) break;
    heap[at] = heap[child];
    at = child;
  }
  if (count) heap[at] = last;
  return top;
}

static const uint64_t *merge_of(const tsr__bpe *bpe, uint32_t left, uint32_t right) {
  return tsr__map_find(bpe->merges, (uint64_t)left << 32 | right);
}

/* Queue the merge of the symbol at `position` with the next one, if there is one. */
static bool consider(const tsr__bpe *bpe, tsr__bpe_room *room, uint32_t position) {
  const tsr__bpe_symbol *symbols = room->symbols.items;
  uint32_t after = symbols[position].next;
  if (after == TSR__TOKEN_NONE) return true;
  const uint64_t *merge = merge_of(bpe, symbols[position].id, symbols[after].id);
  if (!merge) return true;
  return push(room, (tsr__bpe_merge){(*merge >> 32) << 32 | position, (uint32_t)*merge});
}

/* A queued merge may be out of date. Like tokenizers, go by what it would make, not by its rank. */
static bool merge_all(const tsr__bpe *bpe, tsr__bpe_room *room) {
  tsr__bpe_symbol *symbols = room->symbols.items;
  while (room->heap.count) {
    tsr__bpe_merge top = pop(room);
    uint32_t position = (uint32_t)top.key;
    tsr__bpe_symbol *left = &symbols[position];
    if (left->is_removed || left->next == TSR__TOKEN_NONE) continue;
    tsr__bpe_symbol *right = &symbols[left->next];
    const uint64_t *now = merge_of(bpe, left->id, right->id);
    if (!now || (uint32_t)*now != top.id) continue;
    left->id = top.id;
    left->next = right->next;
    right->is_removed = true;
    if (right->next != TSR__TOKEN_NONE) symbols[right->next].previous = position;
    if (left->previous != TSR__TOKEN_NONE && !consider(bpe, room, left->previous)) return false;
    if (!consider(bpe, room, position)) return false;
  }
  return true;
}

/* ---- encoding ---- */

static uint32_t character_id(const tsr__bpe *bpe, const char *text, size_t length, uint32_t code) {
  if (code < sizeof bpe->of_low / sizeof *bpe->of_low) return bpe->of_low[code];
  return tsr__bpe_id(bpe, text, length);
}

static bool add_symbol(tsr__bpe_room *room, uint32_t id) {
  size_t count = room->symbols.count;
  tsr__bpe_symbol symbol = {
      .id = id,
      .previous = count ? (uint32_t)count - 1 : TSR__TOKEN_NONE,
      .next = TSR__TOKEN_NONE,
  };
  if (count) room->symbols.items[count - 1].next = (uint32_t)count;
  return TSR__VECTOR_PUSH(&room->symbols, symbol);
}

static bool has_bytes(const tsr__bpe *bpe, const char *text, size_t length) {
  for (size_t i = 0; i < length; i++)
    if (bpe->of_byte[(unsigned char)text[i]] == TSR__TOKEN_NONE) return false;
  return true;
}

/* A character that is not in the vocabulary. An unknown one waits (`*waits`) until the next known character, as in
 * tokenizers, where bytes overtake it. */
static int add_unknown(const tsr__bpe *bpe, tsr__bpe_room *room, const char *text, size_t length,
                       bool *waits, tsr_error *error) {
  if (bpe->has_byte_fallback && has_bytes(bpe, text, length)) {
    for (size_t i = 0; i < length; i++)
      if (!add_symbol(room, bpe->of_byte[(unsigned char)text[i]])) return tsr__fail_memory(error);
    return 0;
  }
  if (bpe->unknown == TSR__UNKNOWN_REFUSED)
    return REFUSE(TSR_ERROR_FORMAT,
                  "the tokenizer has no token for the character '%.*s', and its unk_token is not "
                  "in the vocabulary",
                  (int)length, text);
  if (bpe->unknown == TSR__UNKNOWN_DROPPED) return 0;
  if (*waits && !bpe->fuses_unk && !add_symbol(room, bpe->unk_id)) return tsr__fail_memory(error);
  *waits = true;
  return 0;
}

static int add_symbols(const tsr__bpe *bpe, tsr__bpe_room *room, const char *text,
                       size_t size_bytes, tsr_error *error) {
  bool waits = false;
  uint32_t code;
  if (size_bytes >= UINT32_MAX)
    return REFUSE(TSR_ERROR_LIMIT, "a piece of the text has more than 4 GiB");
  for (size_t at = 0; at < size_bytes;) {
    size_t length = tsr__utf8_decode(text + at, size_bytes - at, &code);
    uint32_t id = character_id(bpe, text + at, length, code);
    if (id == TSR__TOKEN_NONE) {
      int status = add_unknown(bpe, room, text + at, length, &waits, error);
      if (status) return status;
    } else {
      if ((waits && !add_symbol(room, bpe->unk_id)) || !add_symbol(room, id))
        return tsr__fail_memory(error);
      waits = false;
    }
    at += length;
  }
  return waits && !add_symbol(room, bpe->unk_id) ? tsr__fail_memory(error) : 0;
}

int tsr__bpe_encode(const tsr__bpe *bpe, tsr__bpe_room *room, const char *text, size_t size_bytes,
                    tsr__token_ids *out, tsr_error *error) {
  uint32_t whole = bpe->ignores_merges ? tsr__bpe_id(bpe, text, size_bytes) : TSR__TOKEN_NONE;
  if (whole != TSR__TOKEN_NONE) return TSR__VECTOR_PUSH(out, whole) ? 0 : tsr__fail_memory(error);
  room->symbols.count = room->heap.count = 0;
  int status = add_symbols(bpe, room, text, size_bytes, error);
  if (status) return status;
  for (size_t i = 0; i + 1 < room->symbols.count; i++)
    if (!consider(bpe, room, (uint32_t)i)) return tsr__fail_memory(error);
  if (!merge_all(bpe, room)) return tsr__fail_memory(error);
  for (size_t i = 0; i < room->symbols.count; i++)
    if (!room->symbols.items[i].is_removed && !TSR__VECTOR_PUSH(out, room->symbols.items[i].id))
      return tsr__fail_memory(error);
  return 0;
}

size_t tsr__bpe_cut(const tsr__bpe *bpe, const char *text, size_t size_bytes, size_t from) {
  uint32_t before = 0, code;
  bool is_known = false;
  assert(bpe->pairs);
  for (size_t at = from; at < size_bytes;) {
    size_t length = tsr__utf8_decode(text + at, size_bytes - at, &code);
    bool was_known = is_known;
    is_known = character_id(bpe, text + at, length, code) != TSR__TOKEN_NONE;
    if (at > from && is_known && was_known &&
        !tsr__map_find(bpe->pairs, (uint64_t)before << 32 | code))
      return at;
    before = code;
    at += length;
  }
  return size_bytes;
}

void tsr__bpe_room_release(tsr__bpe_room *room) {
  TSR__VECTOR_FREE(&room->symbols);
  TSR__VECTOR_FREE(&room->heap);
}
