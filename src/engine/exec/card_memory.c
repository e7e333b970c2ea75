/* card_memory.c - see card_memory.h. docs/simulate.md shows the table. */
#include "exec/card_memory.h"

#include <assert.h>
#include <stddef.h>

#define KiB  ((uint64_t)1 << 10)
#define POOL "aten/src/ATen/cuda/CublasHandlePool.cpp"
#define SDP  "aten/src/ATen/native/transformers/cuda/sdp_utils.cpp"

enum { ALL = 255 };

static const tsr__card_memory rows[] = {
    /* :4096:2:16:8, PyTorch's default of CUBLAS_WORKSPACE_CONFIG: 2 of 4096 KiB, 8 of 16 KiB */
    {TSR__CARD_CUBLAS, 0, 90, 2 * 4096 * KiB + 8 * 16 * KiB, POOL, "PyTorch 2.9.1"},
    {TSR__CARD_CUBLAS, 90, 91, 8 * 4096 * KiB, POOL, "PyTorch 2.9.1"},
    {TSR__CARD_CUBLAS, 91, 94, 2 * 4096 * KiB + 8 * 16 * KiB, POOL, "PyTorch 2.9.1"},
    /* AMD's gfx94x */
    {TSR__CARD_CUBLAS, 94, 95, 128 * 1024 * KiB, POOL, "PyTorch 2.9.1 for ROCm"},
    {TSR__CARD_CUBLAS, 95, 100, 2 * 4096 * KiB + 8 * 16 * KiB, POOL, "PyTorch 2.9.1"},
    {TSR__CARD_CUBLAS, 100, ALL, 8 * 4096 * KiB, POOL, "PyTorch's main branch, 2026"},
    /* The handle's workspace, unless TORCH_CUBLASLT_UNIFIED_WORKSPACE=0 */
    {TSR__CARD_CUBLASLT, 0, ALL, 0, POOL, "PyTorch 2.9.1"},
    {TSR__CARD_FLASH, 0, 80, 0, SDP, "PyTorch 2.9.1"},
    {TSR__CARD_FLASH, 80, ALL, 1, SDP, "PyTorch 2.9.1"},
};

const tsr__card_memory *tsr__card_memory_at(uint32_t i) {
  return i < sizeof rows / sizeof *rows ? &rows[i] : NULL;
}

const tsr__card_memory *tsr__card_memory_of(tsr__card_memory_kind kind, uint8_t capability) {
  uint32_t i = 0;
  while (rows[i].kind != kind || capability < rows[i].capability ||
         capability >= rows[i].capability_end) {
    i++;
    assert(tsr__card_memory_at(i));
  }
  return &rows[i];
}
