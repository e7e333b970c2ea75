/* ledger.c - see ledger.h.
 *
 * A sleeping pool has unmapped its memory: PyTorch still counts it as reserved, and mostly as allocated, but it is not on the
 * card. So allocated is at most what is mapped. */
#include "questions/shared/ledger.h"

#include "base/checked.h"

uint64_t tsr__ledger_library_at(const tsr_ledger *ledger, size_t library, size_t sample) {
  const tsr_ledger_library *l = &ledger->libraries[library];
  return ledger->time_us[sample] < l->since_us ? 0 : tsr__ledger_known(l->bytes);
}

void tsr__ledger_own_at(const tsr_ledger *ledger, size_t sample, tsr__ledger_own *out) {
  uint64_t allocated = tsr_ledger_value(ledger->allocated_bytes, sample);
  uint64_t reserved = tsr_ledger_value(ledger->reserved_bytes, sample);
  uint64_t unmapped = tsr__ledger_known(tsr_ledger_value(ledger->unmapped_bytes, sample));
  *out = (tsr__ledger_own){.knows_context = ledger->context_bytes != TSR_LEDGER_UNKNOWN,
                           .context_bytes = tsr__ledger_known(ledger->context_bytes)};
  if (reserved == TSR_LEDGER_UNKNOWN && allocated != TSR_LEDGER_UNKNOWN) reserved = allocated;
  if (reserved != TSR_LEDGER_UNKNOWN) {
    uint64_t mapped = tsr__drop_u64(reserved, unmapped);
    allocated = tsr__ledger_known(allocated);
    out->knows_pytorch = true;
    out->asleep_bytes = reserved - mapped;
    out->allocated_bytes = allocated < mapped ? allocated : mapped;
    out->cached_bytes = mapped - out->allocated_bytes;
  }
  for (size_t i = 0; i < ledger->library_count; i++)
    out->library_bytes += tsr__ledger_library_at(ledger, i, sample);
  for (size_t i = 0; i < ledger->communicator_count; i++)
    out->communicator_bytes +=
        tsr__ledger_known(tsr_ledger_value(ledger->communicators[i].bytes, sample));
}

const char *tsr__ledger_sort_name(tsr__ledger_sort sort) {
  static const char *const names[TSR__LEDGER_SORTS] = {
      "allocated by PyTorch", "cached by PyTorch", "NCCL",       "CUDA context and libraries",
      "the driver",           "other processes",   "unaccounted"};
  return names[sort];
}

bool tsr__ledger_divide(const tsr_ledger *ledger, size_t sample, uint64_t out[TSR__LEDGER_SORTS]) {
  uint64_t used = tsr_ledger_value(ledger->used_bytes, sample), sum = 0;
  tsr__ledger_own own;
  if (used == TSR_LEDGER_UNKNOWN) return false;
  tsr__ledger_own_at(ledger, sample, &own);
  out[TSR__LEDGER_ALLOCATED] = own.allocated_bytes;
  out[TSR__LEDGER_CACHED] = own.cached_bytes;
  out[TSR__LEDGER_NCCL] = own.communicator_bytes;
  out[TSR__LEDGER_CONTEXT] = own.context_bytes + own.library_bytes;
  out[TSR__LEDGER_DRIVER] = tsr__ledger_known(ledger->driver_bytes);
  out[TSR__LEDGER_PROCESSES] = 0;
  for (size_t i = 0; i < ledger->process_count; i++)
    out[TSR__LEDGER_PROCESSES] +=
        tsr__ledger_known(tsr_ledger_value(ledger->processes[i].bytes, sample));
  for (int i = 0; i < TSR__LEDGER_REST; i++) sum += out[i];
  out[TSR__LEDGER_REST] = tsr__drop_u64(used, sum);
  return true;
}
