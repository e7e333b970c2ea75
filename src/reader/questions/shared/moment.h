/* moment.h - shared by reports of a moment: totals, fragmentation, and which stacks held the
 * memory. */
#ifndef TSR_QUESTIONS_SHARED_MOMENT_H
#define TSR_QUESTIONS_SHARED_MOMENT_H

#include "stacks/stacks.h"
#include "tessera/unstable/answers.h"
#include "tessera/unstable/timeline.h"

/* The object `key` of the four totals; in JSON only. */
void tsr__emit_totals(tsr__emitter *emitter, const char *key, const tsr_totals *totals);

/* "3.00 GiB allocated of 4.00 GiB reserved". If a file lacks segments, because it
 * is truncated or contradicts itself, reserved can seem less than allocated; then the text states it. */
void tsr__say_held(tsr__buffer *out, const tsr_totals *totals);

/* What a trace without a history (tsr__has_history) has: "no events were recorded", or "no history was recorded, only
 * 1 event". */
void tsr__say_no_history(tsr__buffer *out, uint64_t event_count);

/* In text, that the file lacks a part, if it does. */
void tsr__emit_loss(tsr__emitter *emitter, bool is_partial);

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
  bool has_history; /* false: one moment was recorded, so nothing is older than the recording */
} tsr__share_list;

/* What shares at a moment are percentages of: allocated bytes, which its headline has; requested ones, if blocks
 * that wait for a stream make these more. */
uint64_t tsr__whole_of(const tsr_totals *totals);

/* The name of a row in text, of the names of its list; of memory without a stack, whether it is older than the
 * recording. */
tsr_text tsr__share_name(const tsr__share_list *shares, const tsr__row_names *names, size_t i);

/* JSON: the members "stacks", "omitted_stacks", "omitted_bytes". Text: the table of them. */
void tsr__emit_shares(tsr__stack_printer *printer, const tsr__share_list *shares);
/* Text: the stacks as one tree (stack_tree.h) and what rows of several categories hold, in at most
 * `most_lines` lines, 0 for no limit. With options.verbose or full_stacks, each stack in full instead, numbered
 * like its row. */
void tsr__print_shares(tsr__stack_printer *printer, const tsr__share_list *shares,
                       size_t most_lines);

/* ---- One screen ---- */

/* What a report of one or more moments should fit in: one screen of a terminal, which also is what people can
 * read. */
enum { TSR__SCREEN_LINES = 45, TSR__SCREEN_COLUMNS = 100 };

/* `options`, which may be NULL, with a width of at most TSR__SCREEN_COLUMNS, also where it is unlimited. With verbose
 * or full_stacks, which show whole names, the width is unchanged. */
tsr_report_options tsr__screen_options(const tsr_report_options *options);

/* Which lines of a screen are taken by something else than stacks: by warnings, and by the devices that are not yet
 * printed. */
typedef struct tsr__screen {
  size_t devices, fixed_lines, warning_lines;
  bool is_long; /* a list has more rows than are listed by default, so somebody asked for more */
} tsr__screen;
/* About how many lines a device takes without its stacks: its lists, its private pools, and the parts of its
 * fragmentation that are not 0. */
size_t tsr__screen_lines(const tsr__share_list *shares, size_t pool_count,
                         const tsr_fragmentation *fragmentation);
void tsr__screen_add_warnings(tsr__screen *screen, size_t count);
void tsr__screen_add(tsr__screen *screen, const tsr__share_list *shares, size_t lines);
/* The lines that are left for the stacks of a device that was added with as many `lines`, and of which everything
 * else is printed, after `printed` lines in all. 0: no limit. Takes the device off the screen. */
size_t tsr__screen_take(tsr__screen *screen, size_t lines, size_t printed);

#endif
