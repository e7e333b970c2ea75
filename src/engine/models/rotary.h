/* rotary.h - the frequencies of rotary positions, and how a description scales them ("rope_scaling").
 *
 * Pair i of a head's elements turns by position * frequency(i). Unscaled, that is base ^ (-2i / head_width). Rules:
 * transformers 5, modeling_rope_utils.py; the types of scaling are "linear", "dynamic", "yarn" and "llama3" of its
 * ROPE_INIT_FUNCTIONS. */
#ifndef TSR_MODELS_ROTARY_H
#define TSR_MODELS_ROTARY_H

#include <stdbool.h>
#include <stdint.h>

struct tsr__config;

typedef enum tsr__rotary_type {
  TSR__ROTARY_DEFAULT,
  TSR__ROTARY_LINEAR,  /* positions are divided by `factor` */
  TSR__ROTARY_DYNAMIC, /* the base grows for sequences longer than `positions` */
  TSR__ROTARY_YARN, /* slow pairs as in LINEAR, fast ones unscaled, linear interpolation between them */
  TSR__ROTARY_LLAMA3, /* the same by wavelength */
  TSR__ROTARY_UNKNOWN /* memory can be predicted; numbers cannot be computed */
} tsr__rotary_type;

/* Invariants after tsr__rotary_read: every number is finite, base above 1 unless DEFAULT, factor above 0,
 * original_positions at least 1. */
typedef struct tsr__rotary {
  tsr__rotary_type type;
  char name[32];                  /* of the type, in the description */
  double base, factor, magnitude; /* magnitude: a factor of cosines and sines */
  double low_factor,
      high_factor;             /* LLAMA3: limits of wavelengths, as original_positions / factor */
  double beta_fast, beta_slow; /* YARN: turns within original_positions */
  bool keeps_fractions;        /* YARN: bounds are not rounded to whole pairs */
  uint64_t head_width, positions, original_positions;
} tsr__rotary;

/* Read the keys of a description: "rope_theta", "rope_scaling" or "rope_parameters". `head_width` and `positions`
 * are the model's. Records failures in the config: TSR_ERROR_FORMAT for missing or meaningless keys. */
void tsr__rotary_read(struct tsr__config *config, uint64_t head_width, uint64_t positions,
                      tsr__rotary *out);
/* The frequency of pair i of head_width / 2, in radians per position, for sequences of `sequence` tokens. The type
 * must not be UNKNOWN. O(1). */
double tsr__rotary_frequency(const tsr__rotary *rotary, uint64_t sequence, uint64_t i);

#endif
