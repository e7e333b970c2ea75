/* resize.c - makes a description with other sizes in the same proportions. */
#include "base/error.h"
#include "base/json.h"
#include "models/family.h"

#include <assert.h>
#include <string.h>

/* The largest power of two, up to 64, that divides a size. New sizes are multiples of it, too, because kernels are
 * faster then. */
static uint64_t grain_of(uint64_t size) {
  uint64_t grain = 1;
  while (grain < 64 && size % (2 * grain) == 0) grain *= 2;
  return grain;
}

/* `size` times `to` / `from`, to the nearest multiple of the grain. */
static uint64_t in_proportion(uint64_t size, uint64_t to, uint64_t from) {
  uint64_t grain = grain_of(size);
  assert(from && size && to);
  uint64_t grains = (2 * size * to + from * grain) / (2 * from * grain);
  return grains ? grains * grain : grain;
}

/* The new width. The width of a head stays the same if the heads divide the width. */
static uint64_t width_of(const tsr_model *m, uint64_t heads) {
  bool divides = m->width % m->heads == 0;
  return divides ? m->width / m->heads * heads : in_proportion(m->width, heads, m->heads);
}

static uint64_t inner_of(const tsr_model *m, uint64_t width) {
  bool divides = m->inner % m->width == 0;
  return divides ? m->inner / m->width * width : in_proportion(m->inner, width, m->width);
}

static bool set(json_t *root, const char *key, uint64_t value) {
  return !key || json_object_set_new(root, key, json_integer((json_int_t)value)) == 0;
}

static int read_again(const json_t *root, tsr_model **out, tsr_error *error) {
  tsr__buffer text = {0};
  int status = tsr__json_append(&text, root, 0) ? tsr_model_read(text.data, text.size, out, error)
                                                : tsr__fail_memory(error);
  tsr__buffer_release(&text);
  return status;
}

int tsr__model_resized(const tsr_model *m, uint64_t layers, uint64_t heads, tsr_model **out,
                       tsr_error *error) {
  const tsr__model_keys *keys = tsr__model_class_row_of(m->class)->family->keys;
  uint64_t group = m->heads / m->kv_heads, width = width_of(m, heads);
  assert(!m->graph && layers && heads && heads % group == 0);
  json_t *root = NULL;
  int status = tsr_json_load(m->config, strlen(m->config), 0, NULL, &root, error);
  if (status) return status;
  bool ok = set(root, keys->layers, layers) && set(root, keys->heads, heads) &&
            set(root, keys->kv_heads, heads / group) && set(root, keys->width, width) &&
            set(root, keys->inner, inner_of(m, width));
  status = ok ? read_again(root, out, error) : tsr__fail_memory(error);
  json_decref(root);
  return status;
}
