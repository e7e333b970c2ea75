/* value.h - a value on its way from the file into a row: 16 bytes, no pointers.
 *
 * A parser makes values; the assembler turns them into rows. What is small stands in the value
 * itself; strings, frames, stacks and rows are named by id; containers that are still being filled
 * are named by their index in the assembler. */
#ifndef TSR_COLUMNS_VALUE_H
#define TSR_COLUMNS_VALUE_H

#include <stdint.h>

typedef enum tsr__tag {
  TSR__NOTHING,    /* no value at all: an empty memo slot */
  TSR__NULL,       /* None, null */
  TSR__BOOL,       /* u = 0 or 1 */
  TSR__INT,        /* i */
  TSR__UINT,       /* u, above INT64_MAX */
  TSR__BIG,        /* an integer beyond 64 bits; id of the string of its digits, or TSR_NONE */
  TSR__FLOAT,      /* f */
  TSR__STRING,     /* id of a string */
  TSR__PAIR,       /* tuple of two unsigned integers; id in snapshot->pools */
  TSR__CONTAINER,  /* id of an open list, tuple or dict of the assembler */
  TSR__FRAME,      /* id of a frame */
  TSR__STACK,      /* id of a stack */
  TSR__EVENT,      /* row of an event */
  TSR__SEGMENT,    /* row */
  TSR__BLOCK,      /* row */
  TSR__ANNOTATION, /* row */
  TSR__HISTORY,    /* row */
  TSR__LOOSE,      /* id of a kept list, tuple or dict that no rule names */
  TSR__TRACE,      /* index of a list of events in snapshot->traces */
  TSR__BYTES,      /* id of a string that holds the bytes */
  TSR__DTYPE,      /* id of the string that names a numpy type, e.g. "i8" */
  TSR__GLOBAL,     /* id of the string "module name" that a pickle requested */
  TSR__OPAQUE      /* something that has no plain value: a refused call */
} tsr__tag;

typedef struct tsr__value {
  uint32_t tag; /* tsr__tag */
  uint32_t id;
  union {
    int64_t i;
    uint64_t u;
    double f;
  };
} tsr__value;

static inline tsr__value tsr__value_id(tsr__tag tag, uint32_t id) {
  return (tsr__value){.tag = tag, .id = id};
}

static inline tsr__value tsr__value_int(int64_t i) {
  return (tsr__value){.tag = TSR__INT, .i = i};
}

static inline tsr__value tsr__value_u64(uint64_t u) {
  return (tsr__value){.tag = u > INT64_MAX ? TSR__UINT : TSR__INT, .u = u};
}

static inline tsr__value tsr__value_plain(tsr__tag tag) {
  return (tsr__value){.tag = tag};
}

#endif
