/* rules.c - see rules.h. */
#include "allocator/rules.h"

static uint64_t round_up(uint64_t value, uint64_t unit) {
  uint64_t rest = value % unit;
  if (!rest) return value;
  return value > UINT64_MAX - (unit - rest) ? UINT64_MAX - UINT64_MAX % unit : value + unit - rest;
}

/* In six steps whatever the value: a replay asks it of every allocation. */
static unsigned log2_floor(uint64_t value) {
  unsigned log = 0;
  for (unsigned half = 32; half; half /= 2) {
    bool is_above = value >> half;
    log += is_above ? half : 0;
    value >>= is_above ? half : 0;
  }
  return log;
}

static uint32_t divisions_for(const tsr_allocator_settings *settings, uint64_t request_bytes) {
  unsigned log = log2_floor(request_bytes);
  unsigned slot = log < 20 ? 0 : log - 20;
  return settings->roundup_divisions[slot < TSR_ROUNDUP_SLOTS ? slot : TSR_ROUNDUP_SLOTS - 1];
}

uint64_t tsr__round_request(const tsr_allocator_settings *settings, uint64_t request_bytes) {
  uint64_t extra = settings->rounding_extra_bytes;
  request_bytes = request_bytes > UINT64_MAX - extra ? UINT64_MAX : request_bytes + extra;
  if (request_bytes < TSR__MIN_BLOCK) return TSR__MIN_BLOCK;
  uint64_t divisions = divisions_for(settings, request_bytes);
  if (divisions <= 1 || request_bytes <= TSR__MIN_BLOCK * divisions)
    return round_up(request_bytes, TSR__MIN_BLOCK);
  uint64_t power = UINT64_C(1) << log2_floor(request_bytes);
  if (power == request_bytes) return request_bytes;
  return round_up(request_bytes, power / divisions ? power / divisions : 1);
}

uint64_t tsr__round_host_request(uint64_t round_max_bytes, uint64_t request_bytes) {
  if (request_bytes <= 1 || request_bytes > round_max_bytes) return request_bytes;
  unsigned log = log2_floor(request_bytes - 1) + 1;
  return log < 64 ? UINT64_C(1) << log : request_bytes;
}

uint64_t tsr__segment_size(const tsr_allocator_settings *settings, uint64_t rounded_bytes) {
  if (!tsr__is_large(rounded_bytes)) return TSR__SMALL_SEGMENT;
  uint64_t large =
      settings->large_segment_bytes ? settings->large_segment_bytes : TSR__LARGE_SEGMENT;
  if (rounded_bytes < TSR__LARGE_MIN && rounded_bytes <= large) return large;
  return round_up(rounded_bytes, TSR__LARGE_ROUND);
}
