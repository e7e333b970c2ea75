/* value_text.c - a kept dict as JSON. See value_text.h.
 *
 * PyTorch writes a dict of user_metadata as compact JSON, other programs as a dict. To the analysis they
 * are the same. jansson spells it. */
#include "formats/value_text.h"

#include <assert.h>
#include <jansson.h>

#include "base/buffer.h"

enum { MOST_DEPTH = 16, MOST_VALUES = 1000 };

typedef struct spelling {
  const tsr_snapshot *snapshot;
  uint32_t value_count;
} spelling;

static json_t *json_of(spelling *s, tsr__value value, uint32_t depth);

static json_t *dict_of(spelling *s, const tsr__loose *loose, uint32_t depth) {
  json_t *dict = json_object();
  bool ok = dict != NULL;
  for (uint64_t i = 0; ok && i + 1 < loose->count; i += 2) {
    tsr__value key = s->snapshot->loose_values.items[loose->first + i];
    ok = key.tag == TSR__STRING;
    if (!ok) break;
    tsr_text text = tsr_snapshot_string(s->snapshot, key.id);
    json_t *value = json_of(s, s->snapshot->loose_values.items[loose->first + i + 1], depth);
    ok = value && !json_object_setn_new(dict, text.data, text.size_bytes, value);
  }
  if (ok) return dict;
  json_decref(dict);
  return NULL;
}

static json_t *list_of(spelling *s, const tsr__loose *loose, uint32_t depth) {
  json_t *list = json_array();
  bool ok = list != NULL;
  for (uint64_t i = 0; ok && i < loose->count; i++) {
    json_t *value = json_of(s, s->snapshot->loose_values.items[loose->first + i], depth);
    ok = value && !json_array_append_new(list, value);
  }
  if (ok) return list;
  json_decref(list);
  return NULL;
}

/* NULL for what cannot be spelled. */
static json_t *json_of(spelling *s, tsr__value value, uint32_t depth) {
  if (depth > MOST_DEPTH || ++s->value_count > MOST_VALUES) return NULL;
  switch ((tsr__tag)value.tag) {
  case TSR__NULL: return json_null();
  case TSR__BOOL: return json_boolean(value.u != 0);
  case TSR__INT: return json_integer(value.i);
  case TSR__FLOAT: return json_real(value.f);
  case TSR__STRING: {
    tsr_text text = tsr_snapshot_string(s->snapshot, value.id);
    return json_stringn(text.data, text.size_bytes);
  }
  case TSR__LOOSE: {
    assert(value.id < s->snapshot->loose.count);
    const tsr__loose *loose = &s->snapshot->loose.items[value.id];
    return loose->kind == TSR__LOOSE_DICT ? dict_of(s, loose, depth + 1)
                                          : list_of(s, loose, depth + 1);
  }
  default: return NULL;
  }
}

static int append(const char *data, size_t size, void *out) {
  tsr__buffer_append(out, data, size);
  return ((const tsr__buffer *)out)->failed ? -1 : 0;
}

bool tsr__value_text(tsr__builder *builder, tsr__value value, uint32_t *string) {
  spelling s = {.snapshot = builder->snapshot};
  *string = TSR_NONE;
  if (value.tag != TSR__LOOSE || s.snapshot->loose.items[value.id].kind != TSR__LOOSE_DICT)
    return true;
  json_t *root = json_of(&s, value, 0);
  if (!root) return true;
  tsr__buffer text = {0};
  bool ok = !json_dump_callback(root, append, &text, JSON_COMPACT);
  tsr__buffer_append(&text, "", 1);
  json_decref(root);
  ok = ok && !text.failed;
  if (ok) *string = tsr__builder_text(builder, text.data);
  tsr__buffer_release(&text);
  return ok && *string != TSR_NONE;
}
