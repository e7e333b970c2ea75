/* techniques.h - what can be changed about a training so that it takes less memory or less time: one table.
 *
 * A technique is a row: the word of --allow that permits it, the options that it sets, its name, and when the planner
 * tries it. Help, `--allow`, the list that `tessera plan MODEL` prints, the search and the text for other systems read
 * the table, so adding a technique means adding a row, and kernels if it needs new ones.
 *
 * A change is what leads from one plan to another: the options, ranges of blocks and modules in which they differ, taken
 * together or one by one. One walk measures changes alone and one after another. */
#ifndef TSR_PLAN_TECHNIQUES_H
#define TSR_PLAN_TECHNIQUES_H

#include "plan/value.h"
#include "tessera/unstable/planning.h"

/* When the planner tries a technique. */
typedef enum tsr__technique_use {
  TSR__USE_NAMED,    /* not by itself: the row names what plans choose */
  TSR__USE_IF_FREE,  /* once, at first: applied if a step takes no longer */
  TSR__USE_COMBINED, /* with all others, as one of the choices of its dimension */
  TSR__USE_DIVIDED, /* combined, with every part of the batch that halving leads to in place of its value */
  TSR__USE_OF_BLOCKS, /* block by block: blocks.c and modules.c choose */
} tsr__technique_use;

/* Rows have dimensions up to this one, and each dimension at most TSR__TECHNIQUE_CHOICES - 1 rows or parts of the batch. A test checks the table. */
enum { TSR__TECHNIQUE_DIMENSIONS = 16, TSR__TECHNIQUE_CHOICES = 24 };

typedef struct tsr__technique_row {
  const char *allow; /* the word of --allow; rows with the same word are permitted together */
  const char *about; /* in the first row of each word: what it permits, in Markdown */
  const char *name;  /* what answers call it; %s is the value of its first option */
  const char *option, *value;   /* what it sets; NULL: no option of its own */
  const char *option2, *value2; /* and this, or NULL */
  uint8_t use;                  /* tsr__technique_use */
  uint8_t dimension; /* of a combined one: rows of one dimension exclude each other; from 1 */
  uint8_t listed;    /* its place in the list of techniques, from 1; 0: it is not listed */
  bool is_fine;      /* of a combined one: tried after all others, and not for the largest size */
  bool is_free;      /* it takes no more operations and no copies */
  bool changes_results; /* only if it is asked for */
  bool
      is_named; /* only by its own word, not by "all": it changes what is trained, or how products round */
  bool needs_ranks; /* two at least */
  bool
      is_of_old_cards; /* only for cards without bf16 (T4, V100), which skip the other rows of the dimension */
  uint64_t
      most_tokens; /* skipped for batches of at most this many tokens, for which the next row has the same effect */
} tsr__technique_row;

/* Every technique; ends at a NULL `allow`. Defined by technique_rows.c from technique_rows.def; tests/toy has a table with a row more. */
extern const tsr__technique_row tsr__techniques[];

/* ---- --allow ---- */

/* The flag of the i-th word of --allow (tsr_allow_word); 0 past the last. */
unsigned tsr__allow_flag(size_t index);
/* The flag of a technique's word. */
unsigned tsr__technique_flag(const tsr__technique_row *technique);

/* ---- applying ---- */

/* The first technique that sets the option, or NULL. */
const tsr__technique_row *tsr__technique_of(const char *option);
/* Set the technique's options in a plan. */
void tsr__technique_apply(const tsr__technique_row *technique, tsr_run_plan *plan);
/* Whether the plan says nothing yet about the option that the technique sets, or something that it may replace. */
bool tsr__technique_may_apply(const tsr__technique_row *technique, const tsr_run_plan *plan);

enum { TSR__TECHNIQUE_KEYS = 96 };
/* What it sets as keys of a plan file: {"gelu":"fused"}. It sets one option. */
void tsr__technique_keys(const tsr__technique_row *technique, char keys[TSR__TECHNIQUE_KEYS]);

/* ---- changes ---- */

enum { TSR__CHANGE_NAME = 128 };

/* A difference between two plans. Borrows both. */
typedef struct tsr__plan_change {
  char name[TSR__CHANGE_NAME];
  const tsr_run_plan *to; /* the plan that the values are taken from */
  uint64_t options;       /* bits of option rows: copied */
  size_t first_range, range_count;
  unsigned modules; /* bits of tsr_module_how: replaced */
} tsr__plan_change;

typedef TSR__VECTOR(tsr__plan_change) tsr__plan_changes;

/* The change that a technique makes, whose values are put into `to`. The technique sets an option. */
void tsr__technique_change(const tsr__technique_row *technique, tsr_run_plan *to,
                           tsr__plan_change *out);
/* List what leads from a plan (NULL: one that chooses nothing) to another: options in the order of their rows, or, `by_effect`, those that
 * affect most of the others first, then modules, then ranges of blocks; of these at most `most_ranges` singly, else all as one change.
 * Ranges of `from` are to be removed before. False when out of memory. */
bool tsr__list_changes(const tsr_run_plan *from, const tsr_run_plan *to, bool by_effect,
                       size_t most_ranges, tsr__plan_changes *out);
/* Make a change in a plan. False when out of memory. */
bool tsr__change_apply(const tsr__plan_change *change, tsr_run_plan *plan);

/* How plans are measured: *out is not possible, and 0 returned, for a plan that does not suit the model. */
typedef int tsr__measure_plan_fn(void *context, const tsr_run_plan *plan, tsr_run_plan_cost *out,
                                 tsr_error *error);

/* Measure changes of a plan: each alone (unless `alone` is NULL), and after those before it. `skips_impossible`: later changes are measured
 * without those that the model, or an earlier one, excludes. Fails as `measure` does, or with TSR_ERROR_MEMORY. */
int tsr__walk_changes(const tsr_run_plan *base, const tsr__plan_change *changes, size_t count,
                      bool skips_impossible, tsr__measure_plan_fn *measure, void *context,
                      tsr_run_plan_cost *alone, tsr_run_plan_cost *so_far, tsr_error *error);

#endif
