/* moment.h - the parts that reports of a moment share: totals, fragmentation, and who held the
 * memory. */
#ifndef TSR_REPORT_MOMENT_H
#define TSR_REPORT_MOMENT_H

#include "report/stacks.h"

/* The object `key` of the four totals; in JSON only. */
void tsr__emit_totals(tsr__emitter *emitter, const char *key, const tsr_totals *totals);

/* "3.00 GiB allocated of 4.00 GiB reserved"; where a file does not tell of all segments, because it
 * is cut or contradicts itself, less can seem to be reserved than is allocated in it: said so. */
void tsr__say_held(tsr__buffer *out, const tsr_totals *totals);

/* The object "fragmentation", and in text the fields that are not 0. */
void tsr__emit_fragmentation(tsr__emitter *emitter, const tsr_fragmentation *fragmentation);

/* A ranked list of stacks. */
typedef struct tsr__share_list {
  const tsr_stack_share *items;
  size_t count;
  uint64_t omitted_stacks, omitted_bytes;
  uint64_t whole_bytes;    /* what shares are percentages of */
  const uint32_t *tensors; /* the rows that shares name, or NULL: none is named */
} tsr__share_list;

/* JSON: the members "stacks", "omitted_stacks", "omitted_bytes". Text: the table of them. */
void tsr__emit_shares(tsr__stack_printer *printer, const tsr__share_list *shares);
/* Text: each stack in full, numbered like its row. */
void tsr__print_shares(tsr__stack_printer *printer, const tsr__share_list *shares);

#endif
