/* config.h - reads the keys of a config.json.
 *
 * Each function takes the class's default, for a key that is absent or null. The first failure is kept (its code,
 * and a text that names the key) and later ones are ignored, so a reader reads all its keys and checks `status`
 * once. */
#ifndef TSR_MODELS_CONFIG_H
#define TSR_MODELS_CONFIG_H

#include <jansson.h>
#include <stdbool.h>

#include "models/model.h"

typedef struct tsr__config {
  const json_t *root; /* an object; NULL if every key is absent; not owned */
  tsr_error *error;
  int status; /* of the first failure */
} tsr__config;

/* The value of a key, or NULL if it is absent or null. */
const json_t *tsr__config_find(const tsr__config *config, const char *key);
/* Record a failure with the text `"key" why`. */
void tsr__config_refuse(tsr__config *config, tsr_status status, const char *key, const char *why);
/* Read a whole number from 1 to 2^24. */
uint64_t tsr__config_size(tsr__config *config, const char *key, uint64_t fallback);
bool tsr__config_bool(tsr__config *config, const char *key, bool fallback);
/* Read the probability of a dropout: at least 0, less than 1. */
double tsr__config_dropout(tsr__config *config, const char *key, double fallback);
/* Read a small number that prevents a division by 0: more than 0, at most 1. */
double tsr__config_epsilon(tsr__config *config, const char *key, double fallback);
/* Read a number above 0. */
double tsr__config_number(tsr__config *config, const char *key, double fallback);
/* Fail with TSR_ERROR_UNSUPPORTED if the key is true. */
void tsr__config_must_be_off(tsr__config *config, const char *key);
tsr__model_activation tsr__config_activation(tsr__config *config, const char *key,
                                             const char *fallback);

#endif
