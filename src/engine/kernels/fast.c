/* fast.c - chooses the instruction set, and finds its fast kernels. The tables are in fast_table.c, which like the
 * kernels is compiled once for each set. */
#include "kernels/fast.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__) && defined(TSR__HAS_UNITS)
#define HAS_X86 1
#else
#define HAS_X86 0
#endif

typedef tsr__kernel_fn *table_fn(tsr__kernel kernel, bool has_bf16);
table_fn tsr__fast_table_plain;
#if HAS_X86
table_fn tsr__fast_table_avx2, tsr__fast_table_avx512;
#endif

static const char *const names[TSR__ISA_COUNT] = {"plain", "avx2", "avx512", "avx512-bf16"};

tsr__isa tsr__isa_best(void) {
#if HAS_X86
  __builtin_cpu_init();
  bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    return __builtin_cpu_supports("avx512bf16") ? TSR__ISA_AVX512_BF16 : TSR__ISA_AVX512;
  if (has_avx2) return TSR__ISA_AVX2;
#endif
  return TSR__ISA_PLAIN;
}

const char *tsr__isa_name(tsr__isa isa) {
  assert((unsigned)isa < TSR__ISA_COUNT);
  return names[isa];
}

bool tsr__isa_of_name(const char *name, tsr__isa *isa) {
  for (int i = 0; i < TSR__ISA_COUNT; i++) {
    if (strcmp(name, names[i]) != 0) continue;
    *isa = (tsr__isa)i;
    return true;
  }
  return false;
}

tsr__kernel_fn *tsr__kernel_fast(tsr__kernel kernel, tsr__isa isa) {
  assert((unsigned)kernel < TSR__KERNEL_COUNT && isa <= tsr__isa_best());
#if HAS_X86
  if (isa >= TSR__ISA_AVX512) return tsr__fast_table_avx512(kernel, isa == TSR__ISA_AVX512_BF16);
  if (isa == TSR__ISA_AVX2) return tsr__fast_table_avx2(kernel, false);
#endif
  (void)isa;
  return tsr__fast_table_plain(kernel, false);
}
