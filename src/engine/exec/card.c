/* card.c - see card.h. */
#include "exec/card.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>

#include "base/checked.h"
#include "base/format.h"

#define GiB 1073741824.0

enum { BF16_CAPABILITY = 80 };

bool tsr__card_has_bf16(const tsr__data_sheet *gpu) {
  return gpu->capability >= BF16_CAPABILITY;
}

uint64_t tsr__card_safe_bytes(const tsr__data_sheet *gpu, const tsr_outside *outside) {
  assert(outside->source != TSR_OUTSIDE_NOT_COUNTED);
  assert(gpu->visible_bytes < (double)gpu->memory_bytes);
  return tsr__drop_u64((uint64_t)gpu->visible_bytes, outside->whole.high_bytes);
}

/* Add a note, which the next call of snprintf fills. */
static char *next(tsr__card_notes *out) {
  assert(out->count < TSR__CARD_NOTES);
  return out->text[out->count++];
}

void tsr__card_note_types(const tsr__data_sheet *gpu, const tsr_simulate_options *how,
                          tsr__card_notes *out) {
  bool is_autocast = how->dtype == TSR_SIMULATE_AUTOCAST_BF16;
  bool is_bf16 = is_autocast || how->dtype == TSR_SIMULATE_BF16;
  if (!is_bf16 || tsr__card_has_bf16(gpu)) return;
  bool has_kernel =
      how->attention == TSR_ATTENTION_SDPA || how->attention == TSR_ATTENTION_EFFICIENT;
  (void)snprintf(next(out), TSR__CARD_NOTE_BYTES,
                 "the %s (compute capability %u.%u) has no hardware for bf16, which PyTorch "
                 "emulates: products are no faster than in fp32%s; its tensor cores are for %s",
                 gpu->title, gpu->capability / 10u, gpu->capability % 10u,
                 has_kernel ? ", and its attention kernel does not take bf16, so that attention "
                              "needs more memory than predicted"
                            : "",
                 is_autocast ? "autocast-fp16" : "fp16");
}

/* Rounded down to a tenth of a GiB, as people type budgets. */
static uint64_t round_down(uint64_t bytes) {
  uint64_t tenths =
      (bytes * 10 + 10) / (uint64_t)GiB; /* the last byte was lost when data sheets were rounded */
  return tenths * (uint64_t)GiB / 10;
}

const char *tsr__card_lacks_room(const tsr__data_sheet *gpu, uint64_t reserved_bytes,
                                 const tsr_outside *outside) {
  if (reserved_bytes <= tsr__card_safe_bytes(gpu, outside)) return NULL;
  bool is_over = (double)reserved_bytes + (double)outside->whole.low_bytes > gpu->visible_bytes;
  return is_over ? "does not fit" : "may run out of memory";
}

void tsr__card_note_room(const tsr__data_sheet *gpu, const tsr__card_room *room,
                         tsr__card_notes *out) {
  uint64_t safe_bytes = tsr__card_safe_bytes(gpu, room->outside);
  char all[TSR__FORMAT_BYTES], visible[TSR__FORMAT_BYTES], most[TSR__FORMAT_BYTES],
      limit[TSR__FORMAT_BYTES], safe[TSR__FORMAT_BYTES], reserved[TSR__FORMAT_BYTES];
  if ((room->limit_bytes ? room->limit_bytes : room->reserved_bytes) <= safe_bytes) return;
  char *text = next(out);
  int used = snprintf(text, TSR__CARD_NOTE_BYTES,
                      "of the %s of an %s, programs get %s, and %s take "
                      "up to %s of that",
                      tsr__format_size(gpu->memory_bytes, all), gpu->title,
                      tsr__format_size((uint64_t)gpu->visible_bytes, visible),
                      room->outside->parts[TSR_OUTSIDE_NCCL].high_bytes
                          ? "the CUDA context, libraries and NCCL"
                          : "the CUDA context and libraries",
                      tsr__format_size(room->outside->whole.high_bytes, most));
  if (room->limit_bytes)
    used += snprintf(text + used, (size_t)(TSR__CARD_NOTE_BYTES - used),
                     ": a %s of %s leaves no room for them, and one of %s does", room->limit,
                     tsr__format_size(room->limit_bytes, limit),
                     tsr__format_size(round_down(safe_bytes), safe));
  assert(used < TSR__CARD_NOTE_BYTES);
  const char *lacks = tsr__card_lacks_room(gpu, room->reserved_bytes, room->outside);
  if (room->reserved_bytes)
    (void)snprintf(text + used, (size_t)(TSR__CARD_NOTE_BYTES - used), "; %s reserves %s and %s",
                   room->run, tsr__format_size(room->reserved_bytes, reserved),
                   lacks ? lacks : "fits");
}
