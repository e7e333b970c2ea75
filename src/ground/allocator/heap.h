/* heap.h - the state of one device's allocator: segments, tiled by blocks, and the free ones in
 * order.
 *
 *   segment  [ allocated | free | allocated | pending | free ]       blocks, linked by address
 *   expandable reservation  [ free | allocated | (unmapped) | free ]
 *
 * The heap knows how blocks are cut and joined, not when: the allocator model (allocator.c) decides
 * by PyTorch's rules, the timeline by what a trace says happened. All expandable memory of one
 * stream, pool and size class is one segment here, whose unmapped ranges are blocks too.
 *
 * Everything is named by 32-bit indices, which are reused after a segment or block is gone.
 * Operations that add fail only for lack of memory (TSR_NONE or false); nothing changes then. */
#ifndef TSR_ALLOCATOR_HEAP_H
#define TSR_ALLOCATOR_HEAP_H

#include "allocator/rules.h"
#include "base/map.h"
#include "base/ranges.h"
#include "base/vector.h"

typedef enum tsr__block_use {
  TSR__BLOCK_FREE,
  TSR__BLOCK_TAKEN,   /* allocated */
  TSR__BLOCK_WAITING, /* freed, but another stream may still use it */
  TSR__BLOCK_UNMAPPED /* a range of a reservation that has no memory */
} tsr__block_use;

/* Invariants: blocks of a segment tile it: next->address == address + size_bytes; no two neighbours
 * are both free, or both unmapped; by_address holds exactly the blocks in use, by their start. */
typedef struct tsr__heap_block {
  uint64_t address, size_bytes, requested_bytes;
  uint32_t previous, next; /* in the segment, or TSR_NONE */
  uint32_t segment;
  uint32_t stream;              /* of the segment */
  uint32_t left, right, parent; /* in the tree of its set; TSR_NONE: no such block */
  uint32_t owner;               /* the caller's */
  uint32_t cached_at;           /* searches of its set when it became free, modulo 2^32 */
  uint32_t inside;              /* among the heap's insides, where it has them */
  uint8_t use;                  /* tsr__block_use */
} tsr__heap_block;

typedef struct tsr__heap_segment {
  uint64_t address, size_bytes; /* of a reservation: from the first to the last byte ever mapped */
  uint64_t order;               /* of creation */
  uint32_t first, last;         /* blocks, or TSR_NONE */
  uint32_t stream, pool;        /* the caller's ids */
  uint32_t owner;               /* the caller's */
  uint32_t set;                 /* its free set; the set of its unmapped blocks follows it */
  uint32_t place;               /* among the heap's places; none while it covers nothing */
  bool is_large, is_expandable, is_gone;
} tsr__heap_segment;

/* The free blocks of one pool and size class, ordered by stream, size, tie-break, address; or its
 * unmapped ones, ordered by stream, address. A treap, whose priorities are hashes of the block's
 * index, so that its shape depends on nothing a file can choose. */
typedef struct tsr__free_set {
  uint32_t pool, root;
  uint32_t searches; /* the caller's count of searches, modulo 2^32: the clock of cached_at */
  bool is_large;
  uint8_t use; /* TSR__BLOCK_FREE or TSR__BLOCK_UNMAPPED */
} tsr__free_set;

typedef struct tsr__heap {
  tsr_allocator_settings settings;
  TSR__VECTOR(tsr__heap_block) blocks;
  TSR__VECTOR(tsr__heap_segment) segments;
  uint32_t free_block_index, free_segment_index; /* reusable indices, linked by next / first */
  tsr__map by_address;                           /* start of a block -> its index */
  tsr__map segment_at;                           /* start of a plain segment -> its index */
  tsr__ranges places;                            /* what each segment covers */
  tsr__ranges insides;                           /* blocks, by segment and start; see places.c */
  uint64_t steps;                                /* gone along blocks in search of an address */
  uint64_t candidates;                           /* that searches for a best fit looked at */
  bool has_insides;
  bool has_doubles; /* two blocks have started at one address, as in a broken file's overlapping
                     * segments: by_address has one of them, and some are not found by their start */
  TSR__VECTOR(tsr__free_set) free_sets; /* in pairs: free, unmapped */
  tsr__map set_of;                      /* pool and size class -> its pair */
  uint32_t sets_of_default[2];          /* of pool 0: the same */
  uint64_t seed;                        /* of the shape of the free sets */
  bool has_free_sets; /* kept only where placement is requested: they cost O(log n) an operation */
  bool has_open_ends; /* reservations reach further than what was mapped, nobody knows how far */
  uint64_t next_order;
  uint64_t changes, next_check; /* debug builds: see tsr__heap_check */
} tsr__heap;

/* `has_free_sets`: keep free blocks in order, for tsr__heap_best_fit. */
void tsr__heap_init(tsr__heap *heap, const tsr_allocator_settings *settings, bool has_free_sets);
void tsr__heap_release(tsr__heap *heap);

/* A new segment, entirely free. Returns its index. */
uint32_t tsr__heap_add_segment(tsr__heap *heap, uint64_t address, uint64_t size_bytes,
                               const tsr__heap_segment *like);
/* Forget a segment and its blocks, whatever their use. */
void tsr__heap_remove_segment(tsr__heap *heap, uint32_t segment);

/* The block that starts at an address, or TSR_NONE; O(1). */
static inline uint32_t tsr__heap_find(tsr__heap *heap, uint64_t address) {
  const uint64_t *index = tsr__map_find(&heap->by_address, address);
  return index ? (uint32_t)*index : TSR_NONE;
}

/* The block of a segment that holds an address, or TSR_NONE. O(1) in the last block and at the
 * start of one; else, over many calls, O(log blocks) each. */
uint32_t tsr__heap_find_inside(tsr__heap *heap, uint32_t segment, uint64_t address);
/* The segment that holds an address, or TSR_NONE; of several, as broken files have them, the one
 * that begins last. O(log segments). */
uint32_t tsr__heap_segment_around(const tsr__heap *heap, uint64_t address);

/* Cut a block in two at `size_bytes` (more than 0, less than its size): the block keeps the front,
 * the answer is the rest, of the same use. */
uint32_t tsr__heap_cut(tsr__heap *heap, uint32_t block, uint64_t size_bytes);
/* Allocate the front `size_bytes` of a free block; what is left stays free. Returns the allocated block, which may have another index, or
 * TSR_NONE when out of memory. */
uint32_t tsr__heap_take(tsr__heap *heap, uint32_t block, uint64_t size_bytes,
                        uint64_t requested_bytes);
/* Give a block in use the front `size_bytes` of the free block after it, which is larger. Returns
 * what is left of that, or TSR_NONE when out of memory. */
uint32_t tsr__heap_widen(tsr__heap *heap, uint32_t block, uint64_t size_bytes);
/* Make a block free (or unmapped) and join it with neighbours of the same use. Returns the index of
 * the joined block. */
uint32_t tsr__heap_give_back(tsr__heap *heap, uint32_t block, tsr__block_use use);

/* The free block PyTorch's best fit finds for a rounded size: the first in order that is large
 * enough, of the same stream. In expandable mode a later one is preferred while it could grow to
 * less; in the other mode blocks of expandable segments are skipped. TSR_NONE if absent, or
 * it may not serve. O(log n) a candidate, needs free sets. */
uint32_t tsr__heap_best_fit(tsr__heap *heap, uint32_t pool, bool is_large, uint32_t stream,
                            uint64_t rounded_bytes);
/* The first free block in order at or after (stream, size), and the one after a block: to walk a
 * set. */
uint32_t tsr__heap_lower_bound(const tsr__heap *heap, const tsr__free_set *set, uint32_t stream,
                               uint64_t size_bytes);
uint32_t tsr__heap_successor(const tsr__heap *heap, const tsr__free_set *set, uint32_t block);
/* The last block in order before (stream, size), and the one before a block. */
uint32_t tsr__heap_last_before(const tsr__heap *heap, const tsr__free_set *set, uint32_t stream,
                               uint64_t size_bytes);
uint32_t tsr__heap_predecessor(const tsr__heap *heap, const tsr__free_set *set, uint32_t block);
/* The set of a pool and class, or NULL when no block was ever free in it; the same of its unmapped
 * blocks, whose order knows no sizes: give size 0. Valid until a segment is added. */
const tsr__free_set *tsr__heap_free_set(const tsr__heap *heap, uint32_t pool, bool is_large);
const tsr__free_set *tsr__heap_unmapped_set(const tsr__heap *heap, uint32_t pool, bool is_large);
/* Count a search of a set: free blocks age by it (see cached_at). */
void tsr__heap_count_search(tsr__heap *heap, uint32_t pool, bool is_large);

/* The reservation that memory mapped at an address belongs to: the one around it, or else the
 * nearer of those before and after it with nothing else between, if it is of the same stream, pool
 * and class; else a new one, which covers the range. TSR_NONE when out of memory. O(log
 * segments). */
uint32_t tsr__heap_reservation(tsr__heap *heap, const tsr__heap_segment *like, uint64_t address,
                               uint64_t size_bytes);
/* A further reservation of `size_bytes` at `address`, entirely unmapped; TSR_NONE when out of
 * memory. */
uint32_t tsr__heap_add_reservation(tsr__heap *heap, uint64_t address, uint64_t size_bytes,
                                   const tsr__heap_segment *like);
/* Make a reservation cover a range too, unmapped where nothing was. False when out of memory. */
bool tsr__heap_reserve(tsr__heap *heap, uint32_t reservation, uint64_t address,
                       uint64_t size_bytes);
/* Map the front of an unmapped block: it becomes free and joins its neighbours. Returns the joined
 * block. */
uint32_t tsr__heap_map_front(tsr__heap *heap, uint32_t block, uint64_t size_bytes);
/* Unmap [address, end) of the free block that holds it. Returns the joined unmapped block. */
uint32_t tsr__heap_unmap_inside(tsr__heap *heap, uint32_t block, uint64_t address, uint64_t end);
/* Map `size_bytes` at `address` into a reservation, which grows to cover it: what was unmapped
 * there becomes free and joins its neighbours. That is one block, unless a file contradicts itself;
 * of more only the first few are looked at. False when out of memory. */
bool tsr__heap_map(tsr__heap *heap, uint32_t reservation, uint64_t address, uint64_t size_bytes);
/* Unmap a range: its free blocks become unmapped; as above. Returns the bytes that were free there,
 * or UINT64_MAX when out of memory. */
uint64_t tsr__heap_unmap(tsr__heap *heap, uint32_t reservation, uint64_t address,
                         uint64_t size_bytes);

/* Every invariant above: NULL, or what is wrong, in words. O(blocks log blocks).
 *
 * Builds with assertions run it after every operation that could break the heap, within a budget:
 * one run costs about as much as the heap is large, so the next is due after a quarter as many
 * changes as the heap has blocks. A heap of a few blocks, where tests look, is checked after every
 * change; a large one costs a constant factor, not a square. */
const char *tsr__heap_check(const tsr__heap *heap);

/* ---- between heap.c and places.c ---- */

/* Blocks that are made room for at once, at most. */
enum { TSR__HEAP_PREPARED = 4 };

/* A segment covers [address, address + size_bytes) from now on; cannot fail after
 * tsr__ranges_reserve(&heap->places, 1). False when out of memory. */
bool tsr__heap_note_place(tsr__heap *heap, uint32_t segment);
void tsr__heap_forget_place(tsr__heap *heap, uint32_t segment);

#endif
