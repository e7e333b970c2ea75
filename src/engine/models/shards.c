/* shards.c - training on several ranks: gradients are summed over ranks, and updated parameters are shared.
 *
 * Every rank has its own micro-batch and the same weights. When backward has completed the gradients of a unit
 * (tape.h), they are copied next to each other into a bucket, and the ranks sum the buckets; each rank computes one
 * part of the sum.
 *
 *   stage   the sum ...                                    then the optimizer updates
 *   0       is gathered, and copied back to the gradients  all parameters
 *   1       is kept in part; the gradients stay            a part; parts are gathered
 *   2       is kept in part; the gradients are freed       a part; parts are gathered
 *   3       as in 2                                        a part, which is all that is kept of the parameters
 *
 * A sum starts when its unit is complete, and is awaited when the next unit is complete or backward ends. So ranks
 * send data while the preceding block runs backward. Stages 0 and 1 sum once in a step, after the last micro-batch;
 * stages 2 and 3 sum after each. */
#include <assert.h>

#include "models/program.h"

/* ---- units ---- */

/* A linear layer may have no bias. */
static void put_unit(const tsr__program *p, tsr__tensor_id tensor, uint32_t unit, uint32_t *units) {
  if (tensor) units[p->numbers[tensor]] = unit;
}

static void put_linear(const tsr__program *p, const tsr__model_linear *linear, uint32_t unit,
                       uint32_t *units) {
  put_unit(p, linear->weight, unit, units);
  put_unit(p, linear->bias, unit, units);
}

static void put_norm(const tsr__program *p, const tsr__model_norm *norm, uint32_t unit,
                     uint32_t *units) {
  put_unit(p, norm->weight, unit, units);
  put_unit(p, norm->bias, unit, units);
}

static void put_block(const tsr__program *p, uint32_t block, uint32_t *units) {
  const tsr__model_layer *l = &p->layers[block];
  const tsr__model_linear *linears[] = {&l->qkv, &l->q,  &l->k,    &l->v,
                                        &l->out, &l->up, &l->gate, &l->down};
  for (size_t k = 0; k < sizeof linears / sizeof *linears; k++)
    put_linear(p, linears[k], 1 + block, units);
  put_norm(p, &l->norm_1, 1 + block, units);
  put_norm(p, &l->norm_2, 1 + block, units);
}

/* Unit 0 has the embeddings; the blocks follow, then the rest. */
int tsr__program_shard(tsr__program *p, tsr_error *error) {
  tsr__tape *t = p->tape;
  const tsr_simulate_options *o = p->options;
  uint32_t layers = (uint32_t)p->model->layers;
  if (!o->ranks) return 0;
  uint32_t *units = TSR__NEW_ARRAY(uint32_t, t->schedule.parameters.count);
  p->numbers = TSR__NEW_ARRAY(uint32_t, t->tensors.count);
  if (!units || !p->numbers) {
    tsr__free(units);
    return tsr__fail_memory(error);
  }
  t->schedule.sharding.replicas = (uint32_t)(o->replicas ? o->replicas : 1);
  t->schedule.sharding.ranks = (uint32_t)o->ranks / t->schedule.sharding.replicas;
  t->schedule.sharding.rank = (uint32_t)o->rank % t->schedule.sharding.ranks;
  t->schedule.sharding.stage = (uint32_t)o->zero;
  t->gradient_complete = tsr__program_sum_gradient;
  for (size_t i = 0; i < t->schedule.parameters.count; i++) {
    p->numbers[t->schedule.parameters.items[i]] = (uint32_t)i;
    units[i] = 1 + layers;
  }
  put_unit(p, p->embedding, 0, units);
  put_unit(p, p->position_embedding, 0, units);
  for (uint32_t i = 0; i < layers; i++) put_block(p, i, units);
  for (size_t i = 0; i < t->schedule.parameters.count && !t->status; i++)
    tsr__unit_add(t, i, units[i], units[i] > 0 && units[i] <= layers);
  tsr__units_finish(t);
  tsr__free(units);
  p->stored = TSR__NEW_ARRAY(uint32_t, t->schedule.sharding.units.count + 1);
  if (!p->stored) return tsr__fail_memory(error);
  return t->status ? tsr__fail_memory(error) : 0;
}

/* ---- buckets ---- */

/* View a piece of a flat tensor in a parameter's shape. */
static tsr__tensor_id view_of_piece(tsr__tape *t, tsr__tensor_id flat, size_t parameter) {
  tsr__layout layout =
      tsr__layout_dense(tsr__tensor_shape(t, t->schedule.parameters.items[parameter]));
  layout.offset = t->schedule.sharding.pieces.items[parameter].first;
  return tsr__tensor_view(t, flat, layout);
}

static void copy(tsr__tape *t, tsr__tensor_id from, tsr__tensor_id to) {
  tsr__tape_run(
      t, &(tsr__kernel_use){
             .kernel = TSR__KERNEL_TO_COPY, .op = TSR_NONE, .reads = {from}, .writes = {to}});
}

static void clear(tsr__tape *t, tsr__tensor_id flat, uint64_t first, uint64_t end) {
  if (first == end || t->status) return;
  tsr__layout layout = tsr__layout_dense(TSR__SHAPE(end - first));
  layout.offset = first;
  tsr__tensor_id gap = tsr__tensor_view(t, flat, layout);
  tsr__tape_run(t,
                &(tsr__kernel_use){.kernel = TSR__KERNEL_ZEROS, .op = TSR_NONE, .writes = {gap}});
  tsr__tensor_release(t, gap);
}

static tsr__tensor_id gradient_at(const tsr__tape *t, size_t parameter) {
  return tsr__tensor_at(t, t->schedule.parameters.items[parameter])->grad;
}

/* Copy the unit's gradients into a new bucket, with zeros between them. From stage 2 on, the gradients are
 * freed. */
static tsr__tensor_id fill_bucket(tsr__tape *t, uint32_t unit, tsr__dtype dtype) {
  const tsr__sharding *s = &t->schedule.sharding;
  tsr__tensor_id bucket =
      tsr__tensor_new(t, TSR__KERNEL_EMPTY_LIKE, dtype, TSR__SHAPE(s->units.items[unit].elements));
  uint64_t end = 0;
  const tsr__unit *u = &s->units.items[unit];
  for (size_t i = u->first; i < u->end && !t->status; i++) {
    const tsr__unit_piece *piece = &s->pieces.items[i];
    if (piece->unit != unit) continue;
    tsr__tensor_id view = view_of_piece(t, bucket, i), gradient = gradient_at(t, i);
    clear(t, bucket, end, piece->first);
    copy(t, gradient, view);
    tsr__tensor_release(t, view);
    end = piece->first + piece->count;
    if (s->stage < 2) continue;
    tsr__tensor_at(t, t->schedule.parameters.items[i])->grad = 0;
    tsr__tensor_release(t, gradient);
  }
  clear(t, bucket, end, u->elements);
  tsr__tensor_set_category(t, bucket, TSR_CATEGORY_COMMUNICATION);
  return bucket;
}

/* The number of elements of a part to sum at once, so that the staging buffer stays within the option's limit. */
static uint64_t staged_elements(const tsr__program *p, uint32_t unit) {
  uint64_t part = tsr__unit_part(&p->tape->schedule, unit), most = p->options->bucket_elements;
  if (!most) return part;
  most /= p->tape->schedule.sharding.ranks;
  if (!most) return 1; /* each rank needs at least one element */
  return most < part ? most : part;
}

static void begin_sum(tsr__program *p, uint32_t unit) {
  tsr__tape *t = p->tape;
  size_t first = t->schedule.sharding.units.items[unit].first;
  tsr__dtype dtype = tsr__tensor_dtype(t, gradient_at(t, first));
  uint64_t part = tsr__unit_part(&t->schedule, unit), ranks = t->schedule.sharding.ranks;
  tsr__unit_sum *s = &p->sum;
  *s = (tsr__unit_sum){.unit = unit, .is_open = true, .bucket = fill_bucket(t, unit, dtype)};
  s->part = s->bucket;
  if (t->schedule.sharding.stage) {
    s->part = tsr__tensor_new(t, TSR__KERNEL_EMPTY_LIKE, dtype, TSR__SHAPE(part));
    tsr__tensor_set_category(t, s->part, TSR_CATEGORY_GRADIENT);
  }
  s->staging = tsr__tensor_new(t, TSR__KERNEL_EMPTY_LIKE, dtype,
                               TSR__SHAPE(staged_elements(p, unit) * ranks));
  tsr__tensor_set_category(t, s->staging, TSR_CATEGORY_COMMUNICATION);
  if (t->status) return;
  s->move = tsr__tape_start(t, &(tsr__move){.kind = TSR__MOVE_REDUCE,
                                            .dtype = (uint8_t)dtype,
                                            .from = tsr__tensor_at(t, s->bucket)->slot,
                                            .to = tsr__tensor_at(t, s->part)->slot,
                                            .staging = tsr__tensor_at(t, s->staging)->slot});
}

/* Stage 0: copy the complete sum back to the gradients. */
static void return_sum(tsr__tape *t, const tsr__unit_sum *s) {
  uint32_t slot = tsr__tensor_at(t, s->bucket)->slot;
  tsr__tape_wait(
      t, tsr__tape_start(t, &(tsr__move){.kind = TSR__MOVE_GATHER, .from = slot, .to = slot}));
  const tsr__unit *u = &t->schedule.sharding.units.items[s->unit];
  for (size_t i = u->first; i < u->end && !t->status; i++) {
    if (t->schedule.sharding.pieces.items[i].unit != s->unit) continue;
    tsr__tensor_id view = view_of_piece(t, s->bucket, i);
    copy(t, view, gradient_at(t, i));
    tsr__tensor_release(t, view);
  }
}

/* The summed part becomes the gradient of the part that this rank updates, or is added to it. */
static void keep_sum(tsr__tape *t, const tsr__unit_sum *s) {
  tsr__tensor_id owned = tsr__schedule_updated(&t->schedule, s->unit);
  tsr__tensor_id before = tsr__tensor_at(t, owned)->grad;
  uint8_t home = tsr__home_of_parameter(t, t->homes.gradients, owned);
  if (!before) {
    tsr__tensor_at(t, owned)->grad = s->part;
    tsr__tensor_set_home(t, s->part, (tsr__memory_space)home);
    return;
  }
  t->space = home;
  tsr__tape_run_add(t, before, s->part);
  t->space = TSR__SPACE_DEVICE;
  tsr__tensor_release(t, s->part);
}

static void finish_sum(tsr__program *p) {
  tsr__tape *t = p->tape;
  tsr__unit_sum s = p->sum;
  if (!s.is_open || t->status) return;
  p->sum = (tsr__unit_sum){0};
  tsr__tape_wait(t, s.move);
  tsr__tensor_release(t, s.staging);
  if (t->schedule.sharding.stage)
    keep_sum(t, &s);
  else
    return_sum(t, &s);
  tsr__tensor_release(t, s.bucket);
}

void tsr__program_sum_gradient(void *program, tsr__tensor_id parameter) {
  tsr__program *p = program;
  tsr__tape *t = p->tape;
  uint32_t unit = t->schedule.sharding.pieces.items[p->numbers[parameter]].unit;
  if (++p->stored[unit] < t->schedule.sharding.units.items[unit].parameter_count) return;
  p->stored[unit] = 0;
  if (t->schedule.sharding.stage < 2 && !p->is_last_backward) return;
  finish_sum(p);
  if (!t->status) begin_sum(p, unit);
  if (p->options->no_overlap) finish_sum(p);
}

void tsr__program_end_sums(tsr__program *p) {
  finish_sum(p);
}

/* ---- after the update ---- */

void tsr__program_share_parameters(tsr__program *p) {
  tsr__tape *t = p->tape;
  if (t->schedule.sharding.stage != 1 && t->schedule.sharding.stage != 2) return;
  for (size_t u = 0; u < t->schedule.sharding.units.count && !t->status; u++) {
    uint32_t slot = t->schedule.sharding.units.items[u].slot;
    tsr__tape_wait(t, tsr__tape_start(t, &(tsr__move){.kind = TSR__MOVE_GATHER,
                                                      .from = slot,
                                                      .to = slot,
                                                      .is_update = true}));
  }
}

/* ---- numbers of all gradients ---- */

void tsr__program_share_overflow(tsr__program *p, tsr__tensor_id overflow) {
  tsr__tape *t = p->tape;
  if (!t->schedule.sharding.stage || t->status) return;
  tsr__tensor_id all = tsr__tensor_new(t, TSR__KERNEL_EMPTY_LIKE, tsr__tensor_dtype(t, overflow),
                                       TSR__SHAPE(t->schedule.sharding.ranks));
  if (!all) return;
  tsr__tape_wait(t, tsr__tape_start(t, &(tsr__move){.kind = TSR__MOVE_GATHER,
                                                    .from = tsr__tensor_at(t, overflow)->slot,
                                                    .to = tsr__tensor_at(t, all)->slot}));
  tsr__tape_run(
      t, &(tsr__kernel_use){
             .kernel = TSR__KERNEL_SUM, .op = TSR_NONE, .reads = {all}, .writes = {overflow}});
  tsr__tensor_release(t, all);
}

/* Add the squares of this rank's part of a parameter's gradient to the sum of the ranks before. */
static void add_squares(tsr__tape *t, size_t parameter, tsr__tensor_id gradient,
                        tsr__tensor_id sums) {
  const tsr__unit_piece *piece = &t->schedule.sharding.pieces.items[parameter];
  uint64_t part = tsr__unit_part(&t->schedule, piece->unit),
           begin = part * t->schedule.sharding.rank;
  uint64_t first = piece->first > begin ? piece->first : begin;
  uint64_t end = piece->first + piece->count, part_end = begin + part;
  if (end > part_end) end = part_end;
  if (first >= end || t->status) return;
  tsr__layout layout = tsr__layout_dense(TSR__SHAPE(end - first));
  tsr__layout row = tsr__layout_dense(TSR__SHAPE(TSR__NORM_SUMS));
  layout.offset = first - begin;
  row.offset = parameter * TSR__NORM_SUMS;
  tsr__tensor_id some = tsr__tensor_view(t, gradient, layout);
  tsr__tensor_id sum = tsr__tensor_view(t, sums, row);
  tsr__tape_run(
      t, &(tsr__kernel_use){.kernel = TSR__KERNEL_NORM_PART,
                            .op = TSR_NONE,
                            .reads = {some, sum},
                            .writes = {sum},
                            .scalars = {{TSR__SCALAR_NUMBER, (double)(first - piece->first)}}});
  tsr__tensor_release(t, sum);
  tsr__tensor_release(t, some);
}

tsr__tensor_id tsr__program_shared_squares(tsr__program *p) {
  tsr__tape *t = p->tape;
  const tsr__sharding *s = &t->schedule.sharding;
  uint64_t count = s->pieces.count * TSR__NORM_SUMS;
  uint8_t space = t->space;
  tsr__tensor_id sums = tsr__tensor_new(t, TSR__KERNEL_ZEROS, TSR__DTYPE_F64, TSR__SHAPE(count));
  tsr__tape_run(t,
                &(tsr__kernel_use){.kernel = TSR__KERNEL_ZEROS, .op = TSR_NONE, .writes = {sums}});
  for (uint32_t rank = 0; rank < s->ranks && !t->status; rank++) {
    uint32_t slot = tsr__tensor_at(t, sums)->slot;
    for (size_t i = 0; rank == s->rank && i < s->pieces.count; i++) {
      uint32_t unit = s->pieces.items[i].unit;
      tsr__tensor_id wide = t->schedule.states.items[unit].gradient;
      t->space = tsr__program_space_of_gradient(p, unit);
      add_squares(t, i,
                  wide ? wide : tsr__tensor_at(t, tsr__schedule_updated(&t->schedule, unit))->grad,
                  sums);
    }
    t->space = space;
    tsr__tape_wait(
        t,
        tsr__tape_start(
            t, &(tsr__move){.kind = TSR__MOVE_BROADCAST, .root = rank, .from = slot, .to = slot}));
  }
  return tsr__scope_bind(t, sums);
}
