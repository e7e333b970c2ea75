/* rotary.c - see rotary.h. */
#include "models/rotary.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "models/config.h"

#define PI 3.14159265358979323846

/* ---- reading ---- */

static const struct {
  const char *name;
  tsr__rotary_type type;
} types[] = {{"default", TSR__ROTARY_DEFAULT},
             {"linear", TSR__ROTARY_LINEAR},
             {"dynamic", TSR__ROTARY_DYNAMIC},
             {"yarn", TSR__ROTARY_YARN},
             {"llama3", TSR__ROTARY_LLAMA3}};

static void read_type(const json_t *parameters, tsr__rotary *r) {
  const char *name = json_string_value(json_object_get(parameters, "rope_type"));
  if (!name) name = json_string_value(json_object_get(parameters, "type"));
  if (!name) name = "default";
  r->type = TSR__ROTARY_UNKNOWN;
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    if (strcmp(types[i].name, name) == 0) r->type = types[i].type;
  (void)snprintf(r->name, sizeof r->name, "%s", name);
}

/* Read a number that the type requires. */
static double required(tsr__config *parameters, const char *key) {
  if (!tsr__config_find(parameters, key))
    tsr__config_refuse(parameters, TSR_ERROR_FORMAT, key,
                       "is missing, which this type of rotary positions needs");
  return tsr__config_number(parameters, key, 1);
}

static double yarn_magnitude(double factor, double scale) {
  return factor <= 1 ? 1 : 0.1 * scale * log(factor) + 1;
}

static void read_yarn(tsr__config *parameters, tsr__rotary *r) {
  double ratio = (double)r->positions / (double)r->original_positions;
  bool has_scales =
      tsr__config_find(parameters, "mscale") && tsr__config_find(parameters, "mscale_all_dim");
  double scale = tsr__config_number(parameters, "mscale", 1),
         all = tsr__config_number(parameters, "mscale_all_dim", 1);
  r->factor = tsr__config_number(parameters, "factor", ratio);
  double magnitude = has_scales ? yarn_magnitude(r->factor, scale) / yarn_magnitude(r->factor, all)
                                : yarn_magnitude(r->factor, 1);
  r->magnitude = tsr__config_number(parameters, "attention_factor", magnitude);
  r->beta_fast = tsr__config_number(parameters, "beta_fast", 32);
  r->beta_slow = tsr__config_number(parameters, "beta_slow", 1);
  r->keeps_fractions = !tsr__config_bool(parameters, "truncate", true);
}

static void read_llama3(tsr__config *parameters, tsr__rotary *r) {
  r->factor = required(parameters, "factor");
  r->low_factor = required(parameters, "low_freq_factor");
  r->high_factor = required(parameters, "high_freq_factor");
  if (!parameters->status && !(r->high_factor > r->low_factor))
    tsr__config_refuse(parameters, TSR_ERROR_FORMAT, "high_freq_factor",
                       "is not above \"low_freq_factor\"");
}

static void read_stretch(tsr__config *parameters, tsr__rotary *r) {
  switch (r->type) {
  case TSR__ROTARY_DEFAULT:
  case TSR__ROTARY_UNKNOWN: return;
  case TSR__ROTARY_LINEAR:
  case TSR__ROTARY_DYNAMIC: r->factor = required(parameters, "factor"); break;
  case TSR__ROTARY_YARN: read_yarn(parameters, r); break;
  case TSR__ROTARY_LLAMA3: read_llama3(parameters, r); break;
  }
  if (!parameters->status && !(r->base > 1))
    tsr__config_refuse(parameters, TSR_ERROR_FORMAT, "rope_theta", "is not above 1");
  if (!parameters->status && r->type == TSR__ROTARY_DYNAMIC && r->head_width <= 2)
    tsr__config_refuse(parameters, TSR_ERROR_FORMAT, "head_dim",
                       "is too small for dynamic rotary positions");
}

void tsr__rotary_read(tsr__config *config, uint64_t head_width, uint64_t positions,
                      tsr__rotary *out) {
  const json_t *scaling = tsr__config_find(config, "rope_scaling");
  if (!scaling || (json_is_object(scaling) && !json_object_size(scaling)))
    scaling = tsr__config_find(config, "rope_parameters");
  tsr__rotary r = {.factor = 1, .magnitude = 1, .head_width = head_width, .positions = positions};
  if (scaling && !json_is_object(scaling))
    tsr__config_refuse(config, TSR_ERROR_FORMAT, "rope_scaling", "is not an object");
  r.base = tsr__config_number(config, "rope_theta", 10000);
  tsr__config parameters = {scaling, config->error, config->status};
  read_type(scaling, &r);
  if (json_is_object(scaling)) {
    r.base = tsr__config_number(&parameters, "rope_theta", r.base);
    r.original_positions =
        tsr__config_size(&parameters, "original_max_position_embeddings", positions);
  }
  config->status = parameters.status;
  /* Some classes have this key next to the parameters, where it takes precedence. */
  r.original_positions = tsr__config_size(config, "original_max_position_embeddings",
                                          r.original_positions ? r.original_positions : positions);
  parameters.status = config->status;
  read_stretch(&parameters, &r);
  config->status = parameters.status;
  *out = r;
}

/* ---- frequencies ---- */

static double plain(const tsr__rotary *r, double base, uint64_t i) {
  return pow(base, -2 * (double)i / (double)r->head_width);
}

/* The base with which the slowest pair turns as often in this longer sequence as it otherwise does within the
 * model's positions. */
static double dynamic_base(const tsr__rotary *r, uint64_t sequence) {
  double width = (double)r->head_width;
  double length = (double)(sequence > r->positions ? sequence : r->positions);
  double stretch = r->factor * length / (double)r->positions - (r->factor - 1);
  return r->base * pow(stretch, width / (width - 2));
}

/* The index of the pair, as a fraction, that makes `turns` turns within the original positions. */
static double yarn_pair(const tsr__rotary *r, double turns) {
  double positions = (double)r->original_positions;
  return (double)r->head_width * log(positions / (turns * 2 * PI)) / (2 * log(r->base));
}

static double yarn(const tsr__rotary *r, uint64_t i) {
  double fast = plain(r, r->base, i), low = yarn_pair(r, r->beta_fast),
         high = yarn_pair(r, r->beta_slow), last = (double)r->head_width - 1;
  if (!r->keeps_fractions) {
    low = floor(low);
    high = ceil(high);
  }
  low = low > 0 ? low : 0;
  high = high < last ? high : last;
  if (low == high) high += 0.001;
  double slow_part = fmin(fmax(((double)i - low) / (high - low), 0), 1);
  return fast / r->factor * slow_part + fast * (1 - slow_part);
}

static double llama3(const tsr__rotary *r, uint64_t i) {
  double frequency = plain(r, r->base, i), positions = (double)r->original_positions;
  double turns = positions * frequency / (2 * PI); /* within the original positions */
  if (turns < r->low_factor) return frequency / r->factor;
  if (turns > r->high_factor) return frequency;
  double smooth = (turns - r->low_factor) / (r->high_factor - r->low_factor);
  return (1 - smooth) * frequency / r->factor + smooth * frequency;
}

double tsr__rotary_frequency(const tsr__rotary *r, uint64_t sequence, uint64_t i) {
  assert(i < r->head_width / 2);
  switch (r->type) {
  case TSR__ROTARY_DEFAULT: break;
  case TSR__ROTARY_LINEAR: return plain(r, r->base, i) / r->factor;
  case TSR__ROTARY_DYNAMIC: return plain(r, dynamic_base(r, sequence), i);
  case TSR__ROTARY_YARN: return yarn(r, i);
  case TSR__ROTARY_LLAMA3: return llama3(r, i);
  case TSR__ROTARY_UNKNOWN: assert(false);
  }
  return plain(r, r->base, i);
}
