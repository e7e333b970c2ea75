/* pairing.h - which allocations of two runs of one program are the same?
 *
 * Both lists are in the order in which they were made, after static ones, which are older than the recording and in order of
 * address. Addresses and times are no evidence: they differ from run to run. */
#ifndef TSR_QUESTIONS_DIFF_PAIRING_H
#define TSR_QUESTIONS_DIFF_PAIRING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How two allocations came to be a pair. */
typedef enum tsr__pairing_how {
  TSR__PAIRING_NONE,    /* only this side has it */
  TSR__PAIRING_SAME,    /* same size, same place in the sequence */
  TSR__PAIRING_MOVED,   /* same size, elsewhere in the sequence */
  TSR__PAIRING_RESIZED, /* same stack, another size */
} tsr__pairing_how;

typedef struct tsr__pairing_item {
  uint64_t size;    /* requested bytes */
  uint32_t place;   /* class of its stack: equal on both sides if the stacks match */
  bool has_place;   /* a stack was recorded */
  bool is_older;    /* made before the range that is compared */
  bool is_static;   /* made before the recording, so also older: its order is not known */
  uint8_t category; /* tsr_category */
  uint64_t owner;   /* static ones: hash of the names that the program gave it; 0 without one */
  uint8_t how;      /* out: tsr__pairing_how */
  uint32_t mate;    /* out: index of its pair in the other list; unset without one */
} tsr__pairing_item;

/* Pair the items of two lists, in which older ones come first, and static ones before those. Stronger evidence is used first. Static
 * ones are paired by size and owner (without owners: category and stack), then by size and category; the first with the first. The
 * others: a longest common subsequence of stack and size; between its members, of stack alone (resized) and of category and size.
 * What is left, static or not, out of order: by stack and size, by category and size, first among what is as old; static ones by size
 * alone, and what has no stack, because categories are inferred; and by stack, or by category without one (resized). Every pair is mutual. Time is
 * O(n + m) plus the square of the number of differences; if there are too many, order is given up and items are paired
 * as moved. False if out of memory. */
bool tsr__pairing_find(tsr__pairing_item *old_items, uint32_t old_count,
                       tsr__pairing_item *new_items, uint32_t new_count);

#endif
