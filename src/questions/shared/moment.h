/* moment.h - shared by reports of a moment: totals, fragmentation, and which stacks held the
 * memory. */
#ifndef TSR_QUESTIONS_SHARED_MOMENT_H
#define TSR_QUESTIONS_SHARED_MOMENT_H

#include "emit/stacks.h"
#include "tessera/unstable/answers.h"
#include "tessera/unstable/timeline.h"

/* The object `key` of the four totals; in JSON only. */
void tsr__emit_totals(tsr__emitter *emitter, const char *key, const tsr_totals *totals);

/* "3.00 GiB allocated of 4.00 GiB reserved". If a file lacks segments, because it
 * is truncated or contradicts itself, reserved can seem less than allocated; then the text states it. */
void tsr__say_held(tsr__buffer *out, const tsr_totals *totals);

/* The object "fragmentation", and in text the fields that are not 0. */
void tsr__emit_fragmentation(tsr__emitter *emitter, const tsr_fragmentation *fragmentation);

/* The array "private_pools"; in text a line for each of the largest, and nothing if none. */
void tsr__emit_private_pools(tsr__emitter *emitter, const tsr_private_pool *pools, size_t count);

/* A ranked list of stacks. */
typedef struct tsr__share_list {
  const tsr_stack_share *items;
  size_t count;
  uint64_t omitted_stacks, omitted_bytes;
  uint64_t whole_bytes;   /* what shares are percentages of */
  const tsr_named *names; /* of the shares, or NULL: none is named */
} tsr__share_list;

/* JSON: the members "stacks", "omitted_stacks", "omitted_bytes". Text: the table of them. */
void tsr__emit_shares(tsr__stack_printer *printer, const tsr__share_list *shares);
/* Text: the stacks as one tree (stack_tree.h) and what rows of several categories hold, in at most
 * `most_lines` lines, 0 for no limit. With options.verbose or full_stacks, each stack in full instead, numbered
 * like its row. */
void tsr__print_shares(tsr__stack_printer *printer, const tsr__share_list *shares,
                       size_t most_lines);

/* The lines of text that a report of one or more moments should fit in: one screen of a terminal. */
enum { TSR__SCREEN_LINES = 45 };

/* What of a screen is left for each device's stacks, where `fixed` says how many lines of the rest there are
 * for all devices, and `devices` share what is left. 0 (no limit) if a list has more rows than are listed
 * by default: then somebody asked for more. */
typedef struct tsr__screen {
  size_t devices, fixed_lines;
  bool is_long;
} tsr__screen;
/* Count one device: its lists, its private pools, and the parts of its fragmentation that are not 0. */
void tsr__screen_add(tsr__screen *screen, const tsr__share_list *shares, size_t pool_count,
                     const tsr_fragmentation *fragmentation);
size_t tsr__screen_left(const tsr__screen *screen, size_t warning_count);

#endif
