/* table.h - how the rows of the op table are spelled: short names for registers, actions and types.
 *
 * For op_*.c and the files that run ops; no other file should include names this short. */
#ifndef TSR_GRAPH_TABLE_H
#define TSR_GRAPH_TABLE_H

#include <assert.h>

#include "graph/op.h"

#define IN(i)       (TSR__REG_IN + (i))
#define OUT(i)      (TSR__REG_OUT + (i))
#define SAVED(i)    (TSR__REG_SAVED + (i))
#define GRAD_OUT(i) (TSR__REG_GRAD_OUT + (i))
#define GRAD_IN(i)  (TSR__REG_GRAD_IN + (i))
#define SO_FAR(i)   (TSR__REG_SO_FAR + (i))
#define T(i)        (TSR__REG_T + (i))

/* A step is {RUN(MUL), .to = T(0), .reads = {IN(0), SAVED(1)}}. */
#define RUN(name)  .action = TSR__DO_RUN, .kernel = TSR__KERNEL_##name
#define MAKE(name) .action = TSR__DO_MAKE, .kernel = TSR__KERNEL_##name
#define ONCE(name) .action = TSR__DO_ONCE, .kernel = TSR__KERNEL_##name
#define INTO(name) .action = TSR__DO_INTO, .kernel = TSR__KERNEL_##name
#define JOIN(name, reg, model) \
  .action = TSR__DO_JOIN, .kernel = TSR__KERNEL_##name, .to = (reg), .like = (model)
#define REUSE(name, reg, of) \
  .action = TSR__DO_REUSE, .kernel = TSR__KERNEL_##name, .to = (reg), .reads = {of}
#define CAST(reg, of) \
  .action = TSR__DO_TO, .kernel = TSR__KERNEL_TO_COPY, .to = (reg), .reads = {of}
#define DENSE(reg, of) \
  .action = TSR__DO_DENSE, .kernel = TSR__KERNEL_CLONE, .to = (reg), .reads = {of}
#define VIEW(reg, of, as) .action = TSR__DO_VIEW, .to = (reg), .reads = {of}, .view = (as)
#define MOVE(reg, of)     .action = TSR__DO_MOVE, .to = (reg), .reads = {of}
#define SAVE(i, reg)      .action = TSR__DO_SAVE, .to = SAVED(i), .reads = {reg}
#define PASS(reg, of)     .action = TSR__DO_PASS, .to = (reg), .reads = {of}
#define GIVE(reg, of)     .action = TSR__DO_GIVE, .to = (reg), .reads = {of}
#define HAND(reg)         .action = TSR__DO_HAND, .to = (reg)
#define CLOSE             .action = TSR__DO_CLOSE
#define FREE(...)         .action = TSR__DO_FREE, .done = {__VA_ARGS__}
#define LOOP(how_many)    .action = TSR__DO_LOOP, .count = (how_many)
#define AGAIN             .action = TSR__DO_AGAIN

/* Numbers: .scalars = {NUMBER(0.5), RULE(epsilon), POSITION(first), LATE(BETA_1)}. */
#define NUMBER(x) \
  { .kind = TSR__SCALAR_NUMBER, .number = (x) }
#define RULE(name) \
  { .kind = TSR__SCALAR_NUMBER, .rule = (name) }
#define POSITION(name) \
  { .kind = TSR__SCALAR_POSITION, .rule = (name) }
#define LATE(name) \
  { .kind = TSR__SCALAR_##name }

/* Operands of a product. */
#define FIRST_TRANSPOSED  .transposed = 1
#define SECOND_TRANSPOSED .transposed = 2

#define F32      .type = TSR__TYPE_F32
#define I64      .type = TSR__TYPE_I64
#define F64      .type = TSR__TYPE_F64
#define BOOL     .type = TSR__TYPE_BOOL
#define ASKED    .type = TSR__TYPE_ASKED
#define WIDE     .type = TSR__TYPE_WIDE
#define LOW      .type = TSR__TYPE_LOW
#define PROMOTED .type = TSR__TYPE_PROMOTED

/* Of a gradient: the kernel's result in another shape, or transposed. */
#define VIEWED .is_viewed = true

#define LIKE       .lies = TSR__LIES_LIKE
#define ROWS_LAST  .lies = TSR__LIES_ROWS_LAST
#define IN_ORDER   .lies = TSR__LIES_IN_ORDER
#define ROWS_FIRST .lies = TSR__LIES_ROWS_FIRST

#endif
