/* validate.c - see validate.h.
 *
 *   schedule:  NEW 5    RUN mul: reads 3, writes 5    RUN add: reads 5, writes 8    DROP 5
 *   slot 5:    there, nothing written, ─► written, by run 0 ─► run 0 is used ─► gone: all was written
 *
 * For each slot: whether it is there, which elements are written, and which runs wrote it since it was
 * last read. For each run: whether anybody read what it wrote. Runs that wrote to a slot are a list,
 * linked by run, since a run writes to four slots at most. */
#include "graph/validate.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "graph/coverage.h"
#include "graph/op.h"

typedef enum presence { GONE, THERE, LASTS } presence; /* LASTS: static, or made once for good */

typedef struct slot_state {
  uint8_t presence;
  bool is_gradient; /* backward wrote to it: forward's contents are overwritten */
  bool is_scratch;  /* scratch memory of a kernel: its contents have no meaning */
  bool is_once;     /* made in the first step only */
  uint32_t writer;  /* the last write since the last read, as a link, or TSR_NONE */
  uint32_t covered; /* 1 + its set in `sets`; 0: all is written, or nothing is */
  bool is_written;  /* all of it */
  bool is_arriving; /* a move writes it, from START to WAIT; */
  uint8_t leaving;  /* copies under way that read it */
} slot_state;

typedef struct validator {
  const tsr__schedule *schedule;
  tsr__violation *out;
  slot_state *slots;
  uint32_t *links; /* of run r's write i: the write to the same slot before it, r * WRITES + i */
  bool *is_used;   /* of each run */
  TSR__VECTOR(tsr__coverage) sets;
  size_t instr;
  const tsr__kernel_run *run;
  const tsr__kernel_row *row;
  bool is_backward;
  int status;
} validator;

/* ---- messages ---- */

__attribute__((format(printf, 3, 4))) static void reject(validator *v, tsr__violation_rule rule,
                                                         const char *format, ...) {
  va_list arguments;
  int size = 0;
  if (v->status) return;
  v->status = TSR_ERROR_ARGUMENT;
  v->out->rule = rule;
  v->out->instr = v->instr;
  if (v->run) {
    const char *op = "no op";
    if (v->run->op != TSR_NONE) op = v->schedule->ops.items[v->run->op].name;
    size = snprintf(v->out->text, sizeof v->out->text, "%s of %s%s: ", v->row->name, op,
                    v->is_backward ? ", backward" : "");
  }
  assert(size >= 0 && (size_t)size < sizeof v->out->text);
  va_start(arguments, format);
  (void)vsnprintf(v->out->text + size, sizeof v->out->text - (size_t)size, format, arguments);
  va_end(arguments);
}

static uint64_t elements_of(const validator *v, tsr__tensor_id tensor) {
  const tsr__step_tensor *t = tsr__schedule_tensor(v->schedule, tensor);
  return v->schedule->slots.items[t->slot].bytes / tsr__dtype_bytes((tsr__dtype)t->dtype);
}

static const tsr__layout *layout_of(const validator *v, tsr__tensor_id tensor) {
  return &tsr__schedule_tensor(v->schedule, tensor)->layout;
}

static tsr__shape shape_of(const validator *v, tsr__tensor_id tensor) {
  return layout_of(v, tensor)->shape;
}

static slot_state *state_of(const validator *v, tsr__tensor_id tensor) {
  return &v->slots[tsr__schedule_tensor(v->schedule, tensor)->slot];
}

/* ---- memory ---- */

static void check_operand(validator *v, tsr__tensor_id tensor, const char *what, uint32_t i) {
  if (v->schedule->slots.items[tsr__schedule_tensor(v->schedule, tensor)->slot].space !=
      v->run->space)
    reject(v, TSR__VIOLATION_SPACE, "its %s %" PRIu32 " is in another memory space", what, i);
  if (state_of(v, tensor)->is_arriving)
    reject(v, TSR__VIOLATION_FLIGHT, "its %s %" PRIu32 " is still being copied", what, i);
  if (state_of(v, tensor)->presence == GONE)
    reject(v, TSR__VIOLATION_ABSENT, "the memory of its %s %" PRIu32 " is not there%s", what, i,
           v->is_backward ? ": forward did not save it" : "");
  if (tsr__layout_end(*layout_of(v, tensor)) > elements_of(v, tensor))
    reject(v, TSR__VIOLATION_BOUNDS,
           "its %s %" PRIu32 " reaches element %" PRIu64 " of a storage of %" PRIu64, what, i,
           tsr__layout_end(*layout_of(v, tensor)) - 1, elements_of(v, tensor));
}

/* Whether two tensors share an element; `is_same`: all of them, in the same order. */
static bool overlap(validator *v, tsr__tensor_id a, tsr__tensor_id b, bool *is_same) {
  const tsr__layout *x = layout_of(v, a), *y = layout_of(v, b);
  *is_same = false;
  if (tsr__schedule_tensor(v->schedule, a)->slot != tsr__schedule_tensor(v->schedule, b)->slot)
    return false;
  *is_same = tsr__layout_is_same(*x, *y);
  bool overlaps = *is_same;
  if (!*is_same && !tsr__coverage_overlap(elements_of(v, a), x, y, &overlaps))
    v->status = TSR_ERROR_MEMORY;
  return overlaps;
}

static void check_aliases(validator *v) {
  const tsr__tensor_id *reads = tsr__run_reads(v->schedule, v->run);
  const tsr__tensor_id *writes = tsr__run_writes(v->schedule, v->run);
  const tsr__tensor_id *scratch = tsr__run_scratch(v->schedule, v->run);
  bool is_same;
  for (uint32_t w = 0; w < v->run->write_count; w++) {
    if (!writes[w]) continue;
    for (uint32_t r = 0; r < v->run->read_count && !v->status; r++) {
      if (!reads[r] || !overlap(v, writes[w], reads[r], &is_same)) continue;
      if (!is_same || v->row->in_place[w] != r + 1)
        reject(v, TSR__VIOLATION_ALIAS, "its result %" PRIu32 " lies on its operand %" PRIu32 "%s",
               w, r,
               v->row->in_place[w] == r + 1 ? ", but elsewhere" : ", which it may not change");
    }
    for (uint32_t i = w + 1; i < v->run->write_count && !v->status; i++)
      if (writes[i] && overlap(v, writes[w], writes[i], &is_same))
        reject(v, TSR__VIOLATION_ALIAS, "its results %" PRIu32 " and %" PRIu32 " overlap", w, i);
  }
  /* Scratch memory is shared with nothing, so having its own slot is enough. */
  for (uint32_t s = 0; s < v->run->scratch_count; s++)
    for (int i = 0; scratch[s] && i < v->run->read_count + v->run->write_count && !v->status; i++)
      if (reads[i] && overlap(v, scratch[s], reads[i], &is_same))
        reject(v, TSR__VIOLATION_ALIAS, "its scratch memory %" PRIu32 " is used otherwise", s);
}

/* ---- the kernel's row ---- */

/* `count` of which `given` tensors, where the first `least` must be there. */
static void check_count(validator *v, tsr__violation_rule rule, const char *what,
                        const tsr__tensor_id *given, uint32_t count, uint32_t least,
                        uint32_t most) {
  if (count > most)
    reject(v, rule, "it has %" PRIu32 " %s, and takes %" PRIu32 " at most", count, what, most);
  for (uint32_t i = 0; i < least; i++)
    if (i >= count || !given[i])
      reject(v, rule, "number %" PRIu32 " of its %s is missing: it needs %" PRIu32, i, what, least);
}

static void check_scalars(validator *v) {
  const tsr__kernel_row *row = v->row;
  uint32_t least = row->scalars;
  if (row->fills) least += (uint32_t)row->most_reads - v->run->read_count;
  uint32_t most = least + row->more_scalars;
  if (v->run->scalar_count < least || v->run->scalar_count > most)
    reject(v, TSR__VIOLATION_SCALARS,
           "it has %u numbers, and needs %" PRIu32 " to %" PRIu32 " with %u operands",
           v->run->scalar_count, least, most, v->run->read_count);
  if (row->draws != (v->run->draw != 0))
    reject(v, TSR__VIOLATION_RANDOM,
           row->draws ? "it draws random numbers, and has no key"
                      : "it has a key, and draws no random numbers");
}

static void check_row(validator *v) {
  const tsr__kernel_row *row = v->row;
  const tsr__tensor_id *writes = tsr__run_writes(v->schedule, v->run);
  uint32_t wanted = 0;
  check_count(v, TSR__VIOLATION_READS, "operands", tsr__run_reads(v->schedule, v->run),
              v->run->read_count, row->least_reads, row->most_reads);
  check_count(v, TSR__VIOLATION_WRITES, "results", writes, v->run->write_count, row->least_writes,
              row->most_writes);
  check_count(v, TSR__VIOLATION_SCRATCH, "tensors of scratch memory",
              tsr__run_scratch(v->schedule, v->run), v->run->scratch_count, 0, row->most_scratch);
  for (uint32_t i = 0; i < v->run->write_count; i++) wanted += writes[i] != 0;
  if (!wanted) reject(v, TSR__VIOLATION_WRITES, "it writes nothing");
  if (!v->status) check_scalars(v);
}

/* ---- shapes ---- */

static bool repeats_to(tsr__shape small, tsr__shape large) {
  if (small.rank > large.rank && tsr__shape_elements(small) != 1) return false;
  for (uint32_t i = 0; i < small.rank; i++) {
    uint64_t own = tsr__shape_from_end(small, i);
    if (own != 1 && own != tsr__shape_from_end(large, i)) return false;
  }
  return true;
}

/* Rows and columns of an operand of a product: its last two dimensions, or all leading dimensions together as rows. */
static void matrix_of(tsr__shape shape, bool is_batch, bool is_transposed, uint64_t size[2]) {
  uint64_t columns = tsr__shape_from_end(shape, 0), rows = tsr__shape_from_end(shape, 1);
  if (!is_batch && columns) rows = tsr__shape_elements(shape) / columns;
  size[is_transposed] = rows;
  size[!is_transposed] = columns;
}

static bool is_product(const validator *v, bool is_batch) {
  const tsr__tensor_id *reads = tsr__run_reads(v->schedule, v->run);
  const tsr__tensor_id *writes = tsr__run_writes(v->schedule, v->run);
  tsr__shape result = shape_of(v, writes[0]);
  uint64_t a[2], b[2], c[2];
  matrix_of(shape_of(v, reads[0]), is_batch, v->run->transposed & 1, a);
  matrix_of(shape_of(v, reads[1]), is_batch, v->run->transposed >> 1, b);
  matrix_of(result, is_batch, false, c);
  if (a[1] != b[0] || a[0] != c[0] || b[1] != c[1]) return false;
  for (uint32_t i = 2; is_batch && i < 4; i++) { /* heads may be shared: one divides the other */
    uint64_t x = tsr__shape_from_end(shape_of(v, reads[0]), i);
    uint64_t y = tsr__shape_from_end(shape_of(v, reads[1]), i);
    uint64_t z = tsr__shape_from_end(result, i);
    if (i == 2 ? x % z || x % y : x != y || x != z) return false;
  }
  if (v->run->read_count < 3 || !reads[2]) return true;
  return repeats_to(shape_of(v, reads[2]), result);
}

static bool shapes_fit(const validator *v) {
  const tsr__tensor_id *reads = tsr__run_reads(v->schedule, v->run);
  const tsr__tensor_id *writes = tsr__run_writes(v->schedule, v->run);
  tsr__shape first = shape_of(v, writes[0]);
  bool ok = true;
  switch ((tsr__kernel_shapes)v->row->shapes) {
  case TSR__SHAPES_OWN: break;
  case TSR__SHAPES_EACH:
    for (uint32_t i = 0; i < v->run->write_count; i++)
      ok = ok && tsr__shape_is_same(first, shape_of(v, writes[i]));
    for (uint32_t i = 0; i < v->run->read_count; i++)
      ok = ok && (!reads[i] || repeats_to(shape_of(v, reads[i]), first));
    break;
  case TSR__SHAPES_COPY:
    ok = tsr__shape_elements(first) == tsr__shape_elements(shape_of(v, reads[0]));
    break;
  case TSR__SHAPES_REDUCE: ok = repeats_to(first, shape_of(v, reads[0])); break;
  case TSR__SHAPES_PRODUCT: ok = is_product(v, false); break;
  case TSR__SHAPES_BATCHES: ok = is_product(v, true); break;
  }
  return ok;
}

static void check_shapes(validator *v) {
  const tsr__tensor_id *reads = tsr__run_reads(v->schedule, v->run);
  char text[160] = "";
  size_t size = 0;
  if (v->status || shapes_fit(v)) return;
  for (int i = 0; i < v->run->read_count + v->run->write_count; i++) {
    tsr__shape shape = shape_of(v, reads[i]);
    size += (size_t)snprintf(text + size, sizeof text - size, "%s(",
                             i == v->run->read_count ? " to "
                             : i                     ? " "
                                                     : "");
    for (uint32_t d = 0; d < shape.rank && size < sizeof text; d++)
      size += (size_t)snprintf(text + size, sizeof text - size, d ? ", %" PRIu64 : "%" PRIu64,
                               shape.dim[d]);
    if (size < sizeof text) size += (size_t)snprintf(text + size, sizeof text - size, ")");
    if (size >= sizeof text) break;
  }
  reject(v, TSR__VIOLATION_SHAPE, "shapes do not fit: %s", text);
}

/* ---- data flow ---- */

static bool is_among(const validator *v, const tsr__tensor_id *list, uint32_t count,
                     uint32_t slot) {
  for (uint32_t i = 0; i < count; i++)
    if (list[i] && tsr__schedule_tensor(v->schedule, list[i])->slot == slot) return true;
  return false;
}

/* Backward may only read inputs and outputs that forward saved; gradients may have overwritten others. */
static void check_saved(validator *v, tsr__tensor_id tensor, uint32_t i) {
  if (!v->is_backward || v->run->op == TSR_NONE) return;
  const tsr__op *op = &v->schedule->ops.items[v->run->op];
  uint32_t slot = tsr__schedule_tensor(v->schedule, tensor)->slot;
  if (v->slots[slot].is_gradient) return;
  if ((is_among(v, op->in, op->input_count, slot) ||
       is_among(v, op->out, op->output_count, slot)) &&
      !is_among(v, op->saved, op->saved_count, slot))
    reject(v, TSR__VIOLATION_UNSAVED,
           "its operand %" PRIu32 " is of forward, which did not save it", i);
}

static bool is_written(validator *v, tsr__tensor_id tensor) {
  const slot_state *state = state_of(v, tensor);
  bool has = state->is_written;
  if (!has && state->covered &&
      !tsr__coverage_has(&v->sets.items[state->covered - 1], layout_of(v, tensor), &has))
    v->status = TSR_ERROR_MEMORY;
  return has;
}

static void use_writers(validator *v, slot_state *state) {
  while (state->writer != TSR_NONE) {
    v->is_used[state->writer / TSR__KERNEL_WRITES] = true;
    state->writer = v->links[state->writer];
  }
}

static void read(validator *v, tsr__tensor_id tensor, uint32_t i) {
  check_saved(v, tensor, i);
  if (!v->status && !is_written(v, tensor)) {
    const slot_state *state = state_of(v, tensor);
    uint64_t gap = state->covered ? tsr__coverage_first_gap(&v->sets.items[state->covered - 1]) : 0;
    reject(v, TSR__VIOLATION_UNWRITTEN,
           "it reads its operand %" PRIu32 " before it is written: the storage's first unwritten "
           "element is %" PRIu64,
           i, gap);
  }
  use_writers(v, state_of(v, tensor));
}

static void write(validator *v, tsr__tensor_id tensor, uint32_t i) {
  slot_state *state = state_of(v, tensor);
  if (state->leaving)
    reject(v, TSR__VIOLATION_FLIGHT, "it writes its result %" PRIu32 ", which is being copied", i);
  const tsr__layout *layout = layout_of(v, tensor);
  uint32_t link = (uint32_t)(v->run - v->schedule->runs.items) * TSR__KERNEL_WRITES + i;
  v->links[link] = state->writer;
  state->writer = link;
  state->is_gradient |= v->is_backward;
  if (state->is_once != v->run->is_once && !state->is_written)
    reject(v, TSR__VIOLATION_ONCE, "what it makes %s the first step, and it %s every step",
           state->is_once ? "stays from" : "goes with",
           v->run->is_once ? "does not run in" : "runs in");
  if (state->is_written) return;
  if (!state->covered && tsr__layout_is_dense(*layout) &&
      tsr__shape_elements(layout->shape) == elements_of(v, tensor)) {
    state->is_written = true;
    return;
  }
  if (!state->covered) {
    tsr__coverage empty = {.elements = elements_of(v, tensor)};
    if (!TSR__VECTOR_PUSH(&v->sets, empty)) {
      v->status = TSR_ERROR_MEMORY;
      return;
    }
    state->covered = (uint32_t)v->sets.count;
  }
  tsr__coverage *set = &v->sets.items[state->covered - 1];
  if (!tsr__coverage_add(set, layout)) v->status = TSR_ERROR_MEMORY;
  state->is_written = tsr__coverage_is_full(set);
}

static void check_run(validator *v, const tsr__instr *instr) {
  const tsr__schedule *schedule = v->schedule;
  v->run = &schedule->runs.items[instr->subject];
  v->row = tsr__kernel_row_of((tsr__kernel)v->run->kernel);
  v->is_backward = instr->is_backward;
  const tsr__tensor_id *reads = tsr__run_reads(schedule, v->run);
  const tsr__tensor_id *writes = tsr__run_writes(schedule, v->run);
  const tsr__tensor_id *scratch = tsr__run_scratch(schedule, v->run);
  for (uint32_t i = 0; i < v->run->read_count; i++)
    if (reads[i]) check_operand(v, reads[i], "operand", i);
  for (uint32_t i = 0; i < v->run->write_count; i++)
    if (writes[i]) check_operand(v, writes[i], "result", i);
  for (uint32_t i = 0; i < v->run->scratch_count; i++)
    if (scratch[i]) check_operand(v, scratch[i], "scratch memory", i);
  if (!v->status) check_row(v);
  if (!v->status) check_aliases(v);
  if (!v->status) check_shapes(v);
  for (uint32_t i = 0; i < v->run->read_count && !v->status; i++)
    if (reads[i]) read(v, reads[i], i);
  for (uint32_t i = 0; i < v->run->write_count && !v->status; i++)
    if (writes[i]) write(v, writes[i], i);
  for (uint32_t i = 0; i < v->run->scratch_count; i++)
    if (scratch[i]) state_of(v, scratch[i])->is_scratch = true;
  v->run = NULL;
}

/* ---- the schedule ---- */

/* A slot is released, or the step ends. */
static void finish_slot(validator *v, uint32_t number) {
  slot_state *state = &v->slots[number];
  if (state->is_arriving || state->leaving)
    reject(v, TSR__VIOLATION_FLIGHT, "slot %" PRIu32 " goes while it is being copied", number);
  const tsr__slot *slot = &v->schedule->slots.items[number];
  bool is_room = state->is_scratch || slot->is_room || slot->category == TSR_CATEGORY_WORKSPACE;
  if (!state->is_written && !is_room) {
    uint64_t gap = state->covered ? tsr__coverage_first_gap(&v->sets.items[state->covered - 1]) : 0;
    reject(v, TSR__VIOLATION_PARTIAL,
           "slot %" PRIu32 " of %" PRIu64 " bytes goes before all of it is written: the first "
           "unwritten element is %" PRIu64,
           number, slot->bytes, gap);
  }
  if (state->presence == LASTS || slot->is_carried || slot->is_leaked || slot->is_root ||
      state->is_once)
    use_writers(v, state);
  state->writer = TSR_NONE;
  if (state->covered) tsr__coverage_release(&v->sets.items[state->covered - 1]);
  state->presence = GONE;
}

static void begin_slot(validator *v, const tsr__instr *instr) {
  assert(instr->subject < v->schedule->slots.count);
  slot_state *state = &v->slots[instr->subject];
  state->presence = THERE;
  state->is_once = instr->kind == TSR__INSTR_NEW_ONCE;
}

/* Whether the slots have the sizes that the move needs, and are where they should. */
static bool move_fits(const validator *v, const tsr__move *move) {
  const tsr__slot *from = &v->schedule->slots.items[move->from];
  const tsr__slot *to = &v->schedule->slots.items[move->to];
  uint64_t ranks = v->schedule->sharding.ranks;
  bool is_same = move->from == move->to;
  switch ((tsr__move_kind)move->kind) {
  case TSR__MOVE_COPY: return from->bytes == to->bytes && from->space != to->space;
  case TSR__MOVE_GATHER: return is_same || from->bytes * ranks == to->bytes;
  case TSR__MOVE_REDUCE: return is_same || from->bytes == to->bytes * ranks;
  case TSR__MOVE_BROADCAST: return is_same && move->root < ranks;
  case TSR__MOVE_KIND_COUNT: break;
  }
  return false;
}

/* A move is a write of all of one slot, and a read of all of another. */
static void start_move(validator *v, const tsr__move *move) {
  slot_state *from = &v->slots[move->from], *to = &v->slots[move->to];
  if (from->presence == GONE || to->presence == GONE)
    reject(v, TSR__VIOLATION_ABSENT, "the memory of a move is not there");
  if (from->is_arriving || to->is_arriving || to->leaving || from->leaving == UINT8_MAX)
    reject(v, TSR__VIOLATION_FLIGHT, "slots of a move are being copied");
  if (!move_fits(v, move))
    reject(v, TSR__VIOLATION_SPACE, "a move is between slots of one size in two spaces");
  if (!from->is_written)
    reject(v, TSR__VIOLATION_UNWRITTEN, "a move copies slot %" PRIu32 " before it is written",
           move->from);
  use_writers(v, from);
  if (move->staging) v->slots[move->staging].is_scratch = true;
  from->leaving++;
  to->is_arriving = true;
}

static void end_move(validator *v, const tsr__move *move) {
  slot_state *from = &v->slots[move->from], *to = &v->slots[move->to];
  if (!from->leaving || !to->is_arriving) {
    reject(v, TSR__VIOLATION_FLIGHT, "a move ends that did not begin");
    return;
  }
  from->leaving--;
  to->is_arriving = false;
  to->is_written = true;
}

static void walk(validator *v, const tsr__instr *instr) {
  switch ((tsr__instr_kind)instr->kind) {
  case TSR__INSTR_NEW:
  case TSR__INSTR_NEW_ONCE: begin_slot(v, instr); break;
  case TSR__INSTR_DROP: finish_slot(v, instr->subject); break;
  case TSR__INSTR_RUN: check_run(v, instr); break;
  case TSR__INSTR_START: start_move(v, &v->schedule->moves.items[instr->subject]); break;
  case TSR__INSTR_WAIT: end_move(v, &v->schedule->moves.items[instr->subject]); break;
  case TSR__INSTR_DROP_PREV: /* data of the previous step */
  case TSR__INSTR_OP:
  case TSR__INSTR_BEGIN:
  case TSR__INSTR_END: break;
  }
}

static void check_used(validator *v) {
  const tsr__schedule *schedule = v->schedule;
  for (v->instr = 0; v->instr < schedule->instrs.count && !v->status; v->instr++) {
    const tsr__instr *instr = &schedule->instrs.items[v->instr];
    if (instr->kind != TSR__INSTR_RUN || v->is_used[instr->subject]) continue;
    v->run = &schedule->runs.items[instr->subject];
    /* A batch may have tensors that are not needed, and an op that runs again may make some. */
    if (v->run->kernel == TSR__KERNEL_BATCH || v->run->is_again) continue;
    v->row = tsr__kernel_row_of((tsr__kernel)v->run->kernel);
    v->is_backward = instr->is_backward;
    reject(v, TSR__VIOLATION_UNUSED, "nobody reads what it writes");
  }
}

int tsr__schedule_validate(const tsr__schedule *schedule, tsr__violation *out) {
  size_t slots = schedule->slots.count, runs = schedule->runs.count;
  validator v = {.schedule = schedule,
                 .out = out,
                 .slots = TSR__NEW_ARRAY(slot_state, slots),
                 .links = TSR__NEW_ARRAY(uint32_t, runs * TSR__KERNEL_WRITES + 1),
                 .is_used = TSR__NEW_ARRAY(bool, runs + 1)};
  *out = (tsr__violation){.rule = TSR__VIOLATION_NONE};
  if (!v.slots || !v.links || !v.is_used || runs > TSR_NONE / TSR__KERNEL_WRITES)
    v.status = TSR_ERROR_MEMORY;
  for (size_t i = 0; !v.status && i < slots; i++) {
    bool is_static = schedule->slots.items[i].is_static;
    v.slots[i] = (slot_state){
        .presence = is_static ? LASTS : GONE, .is_written = is_static, .writer = TSR_NONE};
  }
  for (; !v.status && v.instr < schedule->instrs.count; v.instr++)
    walk(&v, &schedule->instrs.items[v.instr]);
  for (size_t i = 1; !v.status && i < slots; i++)
    if (v.slots[i].presence != GONE) finish_slot(&v, (uint32_t)i);
  if (!v.status) check_used(&v);
  for (size_t i = 0; i < v.sets.count; i++) tsr__coverage_release(&v.sets.items[i]);
  TSR__VECTOR_FREE(&v.sets);
  tsr__free(v.slots);
  tsr__free(v.links);
  tsr__free(v.is_used);
  assert(v.status == 0 || v.status == TSR_ERROR_MEMORY || out->rule != TSR__VIOLATION_NONE);
  return v.status;
}
