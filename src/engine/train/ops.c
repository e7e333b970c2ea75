/* ops.c - see ops.h. */
#include "train/ops.h"

#include <assert.h>
#include <string.h>

#include "base/sort.h"
#include "exec/simulate.h"
#include "graph/op.h"

/* Rows of the table: ops, then kernels that belong to no op; each once per phase. */
enum { OPS = TSR__OP_KIND_COUNT, NAMES = OPS + TSR__KERNEL_COUNT, PHASES = TSR__PHASE_COUNT };
static_assert(2 * NAMES <= TSR_TRAIN_OPS, "hardly any op runs in more than two phases");

static const char *name_of(const tsr__schedule *schedule, const tsr__kernel_run *run) {
  if (run->op != TSR_NONE) return schedule->ops.items[run->op].name;
  return tsr__kernel_row_of((tsr__kernel)run->kernel)->name;
}

static size_t row_of(const tsr__schedule *schedule, const tsr__kernel_run *run) {
  if (run->op == TSR_NONE) return (size_t)OPS + run->kernel;
  return schedule->ops.items[run->op].kind;
}

/* Sort by time, then by name, so that the order is unique. */
static int compare(const void *a, const void *b) {
  const tsr_train_op *x = a, *y = b;
  if (x->seconds != y->seconds) return x->seconds > y->seconds ? -1 : 1;
  return strcmp(x->name, y->name);
}

size_t tsr__list_ops(const tsr__schedule *schedule, const uint64_t *run_ns, tsr_train_op *out) {
  tsr_train_op all[NAMES][PHASES] = {{{0}}};
  tsr__phase_kind phase = TSR__PHASE_STEP;
  size_t count = 0;
  for (size_t i = 0; i < schedule->instrs.count; i++) {
    const tsr__instr *instr = &schedule->instrs.items[i];
    if (instr->kind == TSR__INSTR_BEGIN) phase = (tsr__phase_kind)instr->subject;
    if (instr->kind == TSR__INSTR_END) phase = TSR__PHASE_STEP;
    if (instr->kind != TSR__INSTR_RUN || phase == TSR__PHASE_EVALUATION) continue;
    const tsr__kernel_run *run = &schedule->runs.items[instr->subject];
    tsr_train_op *op = &all[row_of(schedule, run)][phase];
    op->name = name_of(schedule, run);
    op->run_count++;
    op->seconds += (double)run_ns[instr->subject] * 1e-9;
    op->bytes += run->bytes_moved;
    op->flops += run->flops;
  }
  for (size_t row = 0; row < NAMES; row++)
    for (int k = 0; k < PHASES; k++) {
      if (!all[row][k].run_count || count == TSR_TRAIN_OPS) continue;
      out[count] = all[row][k];
      out[count++].phase = tsr__phase_word((uint8_t)k);
    }
  tsr__sort(out, count, sizeof *out, compare);
  return count;
}
