/* config.c - reading the keys of a config.json. See config.h. */
#include "models/config.h"

#include <assert.h>
#include <string.h>

#include "base/error.h"

/* No model that can be trained has a larger size, and products of larger sizes could overflow. */
enum { LARGEST_SIZE = 1 << 24 };

const json_t *tsr__config_find(const tsr__config *config, const char *key) {
  const json_t *value = json_object_get(config->root, key);
  return value && !json_is_null(value) ? value : NULL;
}

void tsr__config_refuse(tsr__config *config, tsr_status status, const char *key, const char *why) {
  if (!config->status)
    config->status = tsr__fail(config->error, status, TSR_OFFSET_NONE, "\"%s\" %s", key, why);
}

uint64_t tsr__config_size(tsr__config *config, const char *key, uint64_t fallback) {
  const json_t *value = tsr__config_find(config, key);
  if (!value) return fallback;
  json_int_t number = json_integer_value(value);
  if (!json_is_integer(value) || number < 1 || number > LARGEST_SIZE) {
    tsr__config_refuse(config, TSR_ERROR_FORMAT, key, "is not a size");
    return fallback;
  }
  return (uint64_t)number;
}

bool tsr__config_bool(tsr__config *config, const char *key, bool fallback) {
  const json_t *value = tsr__config_find(config, key);
  if (!value) return fallback;
  if (!json_is_boolean(value))
    tsr__config_refuse(config, TSR_ERROR_FORMAT, key, "is neither true nor false");
  return json_is_true(value);
}

double tsr__config_dropout(tsr__config *config, const char *key, double fallback) {
  const json_t *value = tsr__config_find(config, key);
  if (!value) return fallback;
  double p = json_number_value(value);
  if (!json_is_number(value) || !(p >= 0 && p < 1)) {
    tsr__config_refuse(config, TSR_ERROR_FORMAT, key, "is not a probability");
    return fallback;
  }
  return p;
}

double tsr__config_epsilon(tsr__config *config, const char *key, double fallback) {
  const json_t *value = tsr__config_find(config, key);
  if (!value) return fallback;
  double epsilon = json_number_value(value);
  if (!json_is_number(value) || !(epsilon > 0 && epsilon <= 1)) {
    tsr__config_refuse(config, TSR_ERROR_FORMAT, key, "is not a number above 0 and up to 1");
    return fallback;
  }
  return epsilon;
}

double tsr__config_number(tsr__config *config, const char *key, double fallback) {
  const json_t *value = tsr__config_find(config, key);
  if (!value) return fallback;
  double number = json_number_value(value);
  if (!json_is_number(value) || !(number > 0)) {
    tsr__config_refuse(config, TSR_ERROR_FORMAT, key, "is not a number above 0");
    return fallback;
  }
  return number;
}

void tsr__config_must_be_off(tsr__config *config, const char *key) {
  if (tsr__config_bool(config, key, false))
    tsr__config_refuse(config, TSR_ERROR_UNSUPPORTED, key, "is not modelled");
}

tsr__model_activation tsr__config_activation(tsr__config *config, const char *key,
                                             const char *fallback) {
  static const struct {
    const char *name;
    tsr__model_activation activation;
  } known[] = {{"gelu_new", TSR__MODEL_GELU_EAGER},
               {"gelu", TSR__MODEL_GELU},
               {"gelu_pytorch_tanh", TSR__MODEL_GELU_TANH},
               {"silu", TSR__MODEL_SILU},
               {"swish", TSR__MODEL_SILU}};
  const json_t *value = tsr__config_find(config, key);
  const char *name = value ? json_string_value(value) : fallback;
  for (size_t i = 0; name && i < sizeof known / sizeof *known; i++)
    if (strcmp(known[i].name, name) == 0) return known[i].activation;
  tsr__config_refuse(config, TSR_ERROR_UNSUPPORTED, key,
                     "names an activation function that is not modelled");
  return TSR__MODEL_GELU;
}
