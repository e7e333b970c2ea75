/* value_text.c - a kept dict as JSON. See value_text.h.
 *
 * PyTorch writes a dict of user_metadata as compact JSON, other programs as a dict. To the analysis they
 * are the same. jansson spells it. */
#include "formats/value_text.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/json.h"
#include "base/utf8.h"

enum { MOST_DEPTH = 16, MOST_VALUES = 1000 };

typedef struct spelling {
  const tsr_snapshot *snapshot;
  uint32_t value_count;
  bool is_lost; /* out of memory */
} spelling;

/* A value of jansson's, which is NULL only if memory has run out. */
static json_t *made(spelling *s, json_t *value) {
  s->is_lost = s->is_lost || !value;
  return value;
}

static json_t *json_of(spelling *s, tsr__value value, uint32_t depth);

static json_t *dict_of(spelling *s, const tsr__loose *loose, uint32_t depth) {
  json_t *dict = made(s, json_object());
  bool ok = dict != NULL;
  for (uint64_t i = 0; ok && i + 1 < loose->count; i += 2) {
    const tsr__value *pair = &s->snapshot->loose_values.items[loose->first + i];
    tsr_text text = {"", 0};
    ok = pair[0].tag == TSR__STRING;
    if (ok) text = tsr_snapshot_string(s->snapshot, pair[0].id);
    ok = ok && tsr__utf8_is_text(text.data, text.size_bytes) &&
         !memchr(text.data, '\0', text.size_bytes);
    json_t *value = ok ? json_of(s, pair[1], depth) : NULL;
    ok = value && !json_object_setn_new_nocheck(dict, text.data, text.size_bytes, value);
    s->is_lost |= value && !ok;
  }
  if (ok) return dict;
  json_decref(dict);
  return NULL;
}

static json_t *list_of(spelling *s, const tsr__loose *loose, uint32_t depth) {
  json_t *list = made(s, json_array());
  bool ok = list != NULL;
  for (uint64_t i = 0; ok && i < loose->count; i++) {
    json_t *value = json_of(s, s->snapshot->loose_values.items[loose->first + i], depth);
    ok = value && !json_array_append_new(list, value);
    s->is_lost |= value && !ok;
  }
  if (ok) return list;
  json_decref(list);
  return NULL;
}

static json_t *text_of(spelling *s, uint32_t id) {
  tsr_text text = tsr_snapshot_string(s->snapshot, id);
  if (!tsr__utf8_is_text(text.data, text.size_bytes)) return NULL;
  return made(s, json_stringn_nocheck(text.data, text.size_bytes));
}

/* Reals that are not finite have no spelling. */
static json_t *real_of(spelling *s, double number) {
  return isfinite(number) ? made(s, json_real(number)) : NULL;
}

/* NULL for what cannot be spelled, or when out of memory. */
static json_t *json_of(spelling *s, tsr__value value, uint32_t depth) {
  if (depth > MOST_DEPTH || ++s->value_count > MOST_VALUES) return NULL;
  switch ((tsr__tag)value.tag) {
  case TSR__NULL: return json_null();
  case TSR__BOOL: return json_boolean(value.u != 0);
  case TSR__INT: return made(s, json_integer(value.i));
  case TSR__FLOAT: return real_of(s, value.f);
  case TSR__STRING: return text_of(s, value.id);
  case TSR__LOOSE: {
    assert(value.id < s->snapshot->loose.count);
    const tsr__loose *loose = &s->snapshot->loose.items[value.id];
    return loose->kind == TSR__LOOSE_DICT ? dict_of(s, loose, depth + 1)
                                          : list_of(s, loose, depth + 1);
  }
  default: return NULL;
  }
}

bool tsr__value_text(tsr__builder *builder, tsr__value value, uint32_t *string) {
  spelling s = {.snapshot = builder->snapshot};
  *string = TSR_NONE;
  if (value.tag != TSR__LOOSE || s.snapshot->loose.items[value.id].kind != TSR__LOOSE_DICT)
    return true;
  json_t *root = json_of(&s, value, 0);
  if (!root) return !s.is_lost;
  tsr__buffer text = {0};
  (void)tsr__json_append(&text, root, JSON_COMPACT);
  tsr__buffer_append(&text, "", 1);
  json_decref(root);
  if (!text.failed) *string = tsr__builder_text(builder, text.data);
  tsr__buffer_release(&text);
  return *string != TSR_NONE;
}
