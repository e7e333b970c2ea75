/* heap.c - cutting, joining and finding blocks. See heap.h.
 *
 * Blocks of a segment are a doubly linked list in address order, so that freeing finds its
 * neighbours at once; a hash map finds a block by its start. Free blocks, and unmapped ones, are in
 * one treap a pool and size class where placement matters.
 *
 * Whatever changes the size or the use of a listed block takes it out of its set first (delist) and
 * puts it back after (enlist): the order of a set is made of what blocks are. What needs several
 * new blocks makes room for all of them first (prepare), so that it happens whole or not at all. */
#include "allocator/heap.h"

#include <assert.h>

#include "base/hash.h"

enum { MOST_TURNED = 64 }; /* blocks that one mapping or unmapping looks at */

#define BLOCK(index)   (heap->blocks.items[index])
#define SEGMENT(index) (heap->segments.items[index])

void tsr__heap_init(tsr__heap *heap, const tsr_allocator_settings *settings, bool has_free_sets) {
  *heap = (tsr__heap){.settings = *settings,
                      .free_block_index = TSR_NONE,
                      .free_segment_index = TSR_NONE,
                      .sets_of_default = {TSR_NONE, TSR_NONE},
                      .seed = tsr__hash_seed(heap),
                      .has_free_sets = has_free_sets};
  tsr__ranges_init(&heap->places);
  tsr__ranges_init(&heap->insides);
}

void tsr__heap_release(tsr__heap *heap) {
  TSR__VECTOR_FREE(&heap->blocks);
  TSR__VECTOR_FREE(&heap->segments);
  TSR__VECTOR_FREE(&heap->free_sets);
  tsr__map_release(&heap->set_of);
  tsr__map_release(&heap->by_address);
  tsr__map_release(&heap->segment_at);
  tsr__ranges_release(&heap->places);
  tsr__ranges_release(&heap->insides);
}

#ifndef NDEBUG
/* Whether some segments cover the same addresses, as a broken file's may. Blocks are named by their
 * start then, so some are not found by it: the invariants cannot all hold. O(segments log). */
static bool has_overlaps(const tsr__heap *heap) {
  for (uint32_t i = 0; i < heap->segments.count; i++) {
    const tsr__heap_segment *s = &SEGMENT(i);
    if (s->is_gone || s->place == TSR__RANGE_NONE) continue;
    const tsr__ranges_item *place = tsr__ranges_get(&heap->places, s->place);
    if (tsr__ranges_overlap(&heap->places, place->begin, place->end) != s->place) return true;
    uint32_t later = tsr__ranges_first(&heap->places, 0, place->begin + 1);
    if (later != TSR__RANGE_NONE && tsr__ranges_get(&heap->places, later)->begin < place->end)
      return true;
  }
  return false;
}
#endif

/* Assert the invariants of the whole heap after a change, if a check is due. See tsr__heap_check. */
static void assert_heap(tsr__heap *heap) {
#ifndef NDEBUG
  if (++heap->changes < heap->next_check) return;
  heap->next_check = heap->changes + heap->blocks.count / 4;
  const char *wrong = tsr__heap_check(heap);
  assert(!wrong || heap->has_doubles || has_overlaps(heap));
#else
  (void)heap;
#endif
}

/* ---- free sets ---- */

static bool comes_before(const tsr__heap *heap, uint32_t a, uint32_t b) {
  const tsr__heap_block *x = &BLOCK(a), *y = &BLOCK(b);
  if (x->stream != y->stream) return x->stream < y->stream;
  if (x->use == TSR__BLOCK_UNMAPPED) return x->address < y->address;
  if (x->size_bytes != y->size_bytes) return x->size_bytes < y->size_bytes;
  if (heap->settings.tie_break != TSR_TIE_SEGMENT || x->segment == y->segment)
    return x->address < y->address;
  const tsr__heap_segment *s = &SEGMENT(x->segment), *t = &SEGMENT(y->segment);
  return s->order != t->order ? s->order < t->order : x->address < y->address;
}

/* Random, from a seed that a file cannot predict: otherwise a file could make every tree a list. */
static uint64_t priority_of(const tsr__heap *heap, uint32_t block) {
  return tsr__hash_u64(block ^ heap->seed);
}

/* Put a block, or none, into a place of the tree below `parent`. */
static void hang(tsr__heap *heap, uint32_t *place, uint32_t block, uint32_t parent) {
  *place = block;
  if (block != TSR_NONE) BLOCK(block).parent = parent;
}

/* Split the tree at `root` into what comes before `block`, its left part then, and what comes after, its right part. */
static void split_tree(tsr__heap *heap, uint32_t root, uint32_t block) {
  uint32_t *before = &BLOCK(block).left, *after = &BLOCK(block).right;
  uint32_t above_before = block, above_after = block;
  while (root != TSR_NONE) {
    if (comes_before(heap, root, block)) {
      hang(heap, before, root, above_before);
      above_before = root;
      before = &BLOCK(root).right;
      root = *before;
    } else {
      hang(heap, after, root, above_after);
      above_after = root;
      after = &BLOCK(root).left;
      root = *after;
    }
  }
  *before = *after = TSR_NONE;
}

/* Join two trees, of which all of one comes before all of the other, in a place below `parent`. */
static void join_trees(tsr__heap *heap, uint32_t before, uint32_t after, uint32_t *place,
                       uint32_t parent) {
  uint64_t first = priority_of(heap, before), second = priority_of(heap, after);
  while (before != TSR_NONE && after != TSR_NONE) {
    if (first > second) {
      hang(heap, place, before, parent);
      parent = before;
      place = &BLOCK(before).right;
      before = *place;
      first = priority_of(heap, before);
    } else {
      hang(heap, place, after, parent);
      parent = after;
      place = &BLOCK(after).left;
      after = *place;
      second = priority_of(heap, after);
    }
  }
  hang(heap, place, before == TSR_NONE ? after : before, parent);
}

/* Is the block in a set? */
static bool is_listed(const tsr__heap *heap, uint32_t block) {
  return heap->has_free_sets &&
         (BLOCK(block).use == TSR__BLOCK_FREE || BLOCK(block).use == TSR__BLOCK_UNMAPPED);
}

static tsr__free_set *set_of(tsr__heap *heap, uint32_t block) {
  bool is_unmapped = BLOCK(block).use == TSR__BLOCK_UNMAPPED;
  return &heap->free_sets.items[SEGMENT(BLOCK(block).segment).set + is_unmapped];
}

/* Put a block into the set for its use, if there is one. */
static void enlist(tsr__heap *heap, uint32_t block) {
  if (!is_listed(heap, block)) return;
  tsr__free_set *set = set_of(heap, block);
  assert(set->use == BLOCK(block).use && set->pool == SEGMENT(BLOCK(block).segment).pool);
  uint32_t *place = &set->root, parent = TSR_NONE;
  BLOCK(block).cached_at = set->searches;
  uint64_t priority = priority_of(heap, block);
  while (*place != TSR_NONE && priority_of(heap, *place) > priority) {
    parent = *place;
    place = comes_before(heap, block, parent) ? &BLOCK(parent).left : &BLOCK(parent).right;
  }
  uint32_t below = *place;
  hang(heap, place, block, parent);
  split_tree(heap, below, block);
}

/* Take a block out of its set, if it is in one. O(1) on average: its place is known. */
static void delist(tsr__heap *heap, uint32_t block) {
  if (!is_listed(heap, block)) return;
  uint32_t parent = BLOCK(block).parent, *place = &set_of(heap, block)->root;
  if (parent != TSR_NONE)
    place = BLOCK(parent).left == block ? &BLOCK(parent).left : &BLOCK(parent).right;
  assert(*place == block);
  join_trees(heap, BLOCK(block).left, BLOCK(block).right, place, parent);
}

/* The block before or after a block in the order of its set, or TSR_NONE. O(1) on average. */
static uint32_t neighbour_of(const tsr__heap *heap, uint32_t block, bool is_after) {
  uint32_t at = is_after ? BLOCK(block).right : BLOCK(block).left;
  if (at != TSR_NONE) {
    for (uint32_t below = at; below != TSR_NONE;
         below = is_after ? BLOCK(at).left : BLOCK(at).right)
      at = below;
    return at;
  }
  for (at = BLOCK(block).parent; at != TSR_NONE; at = BLOCK(block).parent) {
    if ((is_after ? BLOCK(at).left : BLOCK(at).right) == block) return at;
    block = at;
  }
  return TSR_NONE;
}

/* Give a block of a set, or of none, another address and size. Most often its place stays: the order changes only if it passes a
 * neighbour. */
static void resize(tsr__heap *heap, uint32_t block, uint64_t address, uint64_t size_bytes) {
  bool grows = size_bytes > BLOCK(block).size_bytes;
  BLOCK(block).address = address;
  BLOCK(block).size_bytes = size_bytes;
  if (!is_listed(heap, block)) return;
  BLOCK(block).cached_at = set_of(heap, block)->searches;
  uint32_t next = neighbour_of(heap, block, grows);
  if (next == TSR_NONE ||
      (grows ? comes_before(heap, block, next) : comes_before(heap, next, block)))
    return;
  delist(heap, block);
  enlist(heap, block);
}

static uint64_t set_key(uint32_t pool, bool is_large) {
  return (uint64_t)pool << 1 | is_large;
}

/* The index of a pool's pair of sets, or TSR_NONE. */
static uint32_t find_sets(const tsr__heap *heap, uint32_t pool, bool is_large) {
  if (pool == 0) return heap->sets_of_default[is_large];
  tsr__map set_of_pool = heap->set_of; /* a copy that is only looked into */
  const uint64_t *index = tsr__map_find(&set_of_pool, set_key(pool, is_large));
  return index ? (uint32_t)*index : TSR_NONE;
}

/* Add a pool's pair of sets unless it is there. Returns its index, or TSR_NONE when out of memory.
 */
static uint32_t make_sets(tsr__heap *heap, uint32_t pool, bool is_large) {
  uint32_t index = find_sets(heap, pool, is_large);
  if (index != TSR_NONE) return index;
  index = (uint32_t)heap->free_sets.count;
  if (!TSR__VECTOR_RESERVE(&heap->free_sets, 2) ||
      !tsr__map_put(&heap->set_of, set_key(pool, is_large), index, NULL))
    return TSR_NONE;
  tsr__free_set set = {
      .pool = pool, .root = TSR_NONE, .is_large = is_large, .use = TSR__BLOCK_FREE};
  heap->free_sets.items[heap->free_sets.count++] = set;
  set.use = TSR__BLOCK_UNMAPPED;
  heap->free_sets.items[heap->free_sets.count++] = set;
  assert(heap->free_sets.count % 2 == 0 && index % 2 == 0); /* pairs */
  if (pool == 0) heap->sets_of_default[is_large] = index;
  return index;
}

const tsr__free_set *tsr__heap_free_set(const tsr__heap *heap, uint32_t pool, bool is_large) {
  uint32_t index = find_sets(heap, pool, is_large);
  return index == TSR_NONE ? NULL : &heap->free_sets.items[index];
}

const tsr__free_set *tsr__heap_unmapped_set(const tsr__heap *heap, uint32_t pool, bool is_large) {
  uint32_t index = find_sets(heap, pool, is_large);
  return index == TSR_NONE ? NULL : &heap->free_sets.items[index + 1];
}

void tsr__heap_count_search(tsr__heap *heap, uint32_t pool, bool is_large) {
  uint32_t index = find_sets(heap, pool, is_large);
  if (index != TSR_NONE) heap->free_sets.items[index].searches++;
}

/* Does a block come before (stream, size)? */
static bool is_below(const tsr__heap *heap, uint32_t block, uint32_t stream, uint64_t size_bytes) {
  uint32_t its_stream = BLOCK(block).stream;
  return its_stream != stream ? its_stream < stream : BLOCK(block).size_bytes < size_bytes;
}

uint32_t tsr__heap_lower_bound(const tsr__heap *heap, const tsr__free_set *set, uint32_t stream,
                               uint64_t size_bytes) {
  uint32_t found = TSR_NONE, at = set ? set->root : TSR_NONE;
  while (at != TSR_NONE) {
    bool is_before = is_below(heap, at, stream, size_bytes);
    if (!is_before) found = at;
    at = is_before ? BLOCK(at).right : BLOCK(at).left;
  }
  return found;
}

uint32_t tsr__heap_last_before(const tsr__heap *heap, const tsr__free_set *set, uint32_t stream,
                               uint64_t size_bytes) {
  uint32_t found = TSR_NONE, at = set ? set->root : TSR_NONE;
  while (at != TSR_NONE) {
    bool is_before = is_below(heap, at, stream, size_bytes);
    if (is_before) found = at;
    at = is_before ? BLOCK(at).right : BLOCK(at).left;
  }
  return found;
}

uint32_t tsr__heap_successor(const tsr__heap *heap, const tsr__free_set *set, uint32_t block) {
  uint32_t found = TSR_NONE, at = set->root;
  while (at != TSR_NONE) {
    bool is_after = comes_before(heap, block, at);
    if (is_after) found = at;
    at = is_after ? BLOCK(at).left : BLOCK(at).right;
  }
  return found;
}

uint32_t tsr__heap_predecessor(const tsr__heap *heap, const tsr__free_set *set, uint32_t block) {
  uint32_t found = TSR_NONE, at = set->root;
  while (at != TSR_NONE) {
    bool is_before = comes_before(heap, at, block);
    if (is_before) found = at;
    at = is_before ? BLOCK(at).right : BLOCK(at).left;
  }
  return found;
}

static bool is_of(const tsr__heap *heap, uint32_t block, uint32_t stream) {
  return block != TSR_NONE && BLOCK(block).stream == stream;
}

/* What a block could grow to: its size and that of the unmapped range after it. If its end is
 * unknown, it is taken to be very far away, which is fair because all reservations of a device are
 * equally long. */
static uint64_t expandable_size(const tsr__heap *heap, uint32_t block) {
  uint32_t next = BLOCK(block).next;
  const tsr__heap_segment *segment = &SEGMENT(BLOCK(block).segment);
  bool can_grow = next != TSR_NONE && BLOCK(next).use == TSR__BLOCK_UNMAPPED;
  bool is_end = next == TSR_NONE || (can_grow && BLOCK(next).next == TSR_NONE);
  if (is_end && heap->has_open_ends && segment->is_expandable)
    return UINT64_MAX - (BLOCK(block).address - segment->address);
  return BLOCK(block).size_bytes + (can_grow ? BLOCK(next).size_bytes : 0);
}

/* From the first fit, a block of an expandable segment, to the one that is chosen. */
static uint32_t choose_among_expandable(tsr__heap *heap, const tsr__free_set *set, uint32_t block,
                                        uint32_t stream) {
  uint32_t next = tsr__heap_successor(heap, set, block);
  if (heap->settings.expandable_segments) {
    while (SEGMENT(BLOCK(block).segment).is_expandable && is_of(heap, next, stream) &&
           expandable_size(heap, next) < expandable_size(heap, block)) {
      block = next;
      next = tsr__heap_successor(heap, set, block);
      heap->candidates++;
    }
    return block;
  }
  for (; is_of(heap, next, stream) && SEGMENT(BLOCK(next).segment).is_expandable;
       heap->candidates++)
    next = tsr__heap_successor(heap, set, next);
  return is_of(heap, next, stream) ? next : TSR_NONE;
}

uint32_t tsr__heap_best_fit(tsr__heap *heap, uint32_t pool, bool is_large, uint32_t stream,
                            uint64_t rounded_bytes) {
  const tsr__free_set *set = tsr__heap_free_set(heap, pool, is_large);
  uint32_t block = tsr__heap_lower_bound(heap, set, stream, rounded_bytes);
  if (!is_of(heap, block, stream)) return TSR_NONE;
  if (SEGMENT(BLOCK(block).segment).is_expandable)
    block = choose_among_expandable(heap, set, block, stream);
  if (block == TSR_NONE) return TSR_NONE;
  assert(BLOCK(block).use == TSR__BLOCK_FREE && BLOCK(block).size_bytes >= rounded_bytes);
  return tsr__may_serve(&heap->settings, BLOCK(block).size_bytes, rounded_bytes) ? block : TSR_NONE;
}

/* ---- blocks ---- */

/* The index of the next new block, or TSR_NONE when out of memory; and to use it. */
static uint32_t next_index(tsr__heap *heap) {
  if (heap->free_block_index != TSR_NONE) return heap->free_block_index;
  if (heap->blocks.count >= TSR_NONE || !TSR__VECTOR_RESERVE(&heap->blocks, 1)) return TSR_NONE;
  return (uint32_t)heap->blocks.count;
}

static void claim_index(tsr__heap *heap, uint32_t index) {
  if (index == heap->blocks.count)
    heap->blocks.count++;
  else
    heap->free_block_index = BLOCK(index).next;
}

static uint32_t new_block(tsr__heap *heap, const tsr__heap_block *block) {
  assert(block->segment < heap->segments.count && !SEGMENT(block->segment).is_gone);
  uint32_t index = next_index(heap);
  bool is_alone;
  if (index == TSR_NONE) return TSR_NONE;
  uint64_t *place = NULL;
  if (!heap->has_insides || tsr__ranges_reserve(&heap->insides, 1))
    place = tsr__map_put(&heap->by_address, block->address, index, &is_alone);
  if (!place) return TSR_NONE;
  if (!is_alone) heap->has_doubles = true;
  claim_index(heap, index);
  *place = index;
  BLOCK(index) = *block;
  BLOCK(index).stream = SEGMENT(block->segment).stream;
  if (heap->has_insides)
    BLOCK(index).inside = tsr__ranges_add(&heap->insides, block->segment, block->address, 0, index);
  return index;
}

/* Take a block out of the map and make its index reusable; links are the caller's. */
static void drop_block(tsr__heap *heap, uint32_t block) {
  assert(block < heap->blocks.count && block != heap->free_block_index);
  if (!heap->has_doubles || tsr__heap_find(heap, BLOCK(block).address) == block)
    tsr__map_remove(&heap->by_address, BLOCK(block).address);
  if (heap->has_insides) tsr__ranges_remove(&heap->insides, BLOCK(block).inside);
  BLOCK(block).next = heap->free_block_index;
  heap->free_block_index = block;
}

/* Make room for `count` more blocks, so that as many calls of new_block cannot fail. */
static bool prepare(tsr__heap *heap, size_t count) {
  assert(count <= TSR__HEAP_PREPARED);
  if (heap->blocks.count > TSR_NONE - count || !TSR__VECTOR_RESERVE(&heap->blocks, count) ||
      !tsr__ranges_reserve(&heap->places, 1) ||
      (heap->has_insides && !tsr__ranges_reserve(&heap->insides, count)))
    return false;
  while (!heap->by_address.slots ||
         heap->by_address.count + count > (heap->by_address.mask + 1) / 8 * 5)
    if (!tsr__map_grow(&heap->by_address)) return false;
  return true;
}

/* Cut a block in two as tsr__heap_cut does, but leave both parts out of the sets. */
static uint32_t split_block(tsr__heap *heap, uint32_t block, uint64_t size_bytes) {
  assert(size_bytes && size_bytes < BLOCK(block).size_bytes);
  tsr__heap_block rest = BLOCK(block);
  rest.address += size_bytes;
  rest.size_bytes -= size_bytes;
  rest.previous = block;
  uint32_t index = new_block(heap, &rest);
  if (index == TSR_NONE) return TSR_NONE;
  delist(heap, block);
  BLOCK(block).size_bytes = size_bytes;
  BLOCK(block).next = index;
  if (rest.next != TSR_NONE)
    BLOCK(rest.next).previous = index;
  else
    SEGMENT(rest.segment).last = index;
  return index;
}

uint32_t tsr__heap_cut(tsr__heap *heap, uint32_t block, uint64_t size_bytes) {
  uint32_t rest = split_block(heap, block, size_bytes);
  if (rest == TSR_NONE) return TSR_NONE;
  enlist(heap, block);
  enlist(heap, rest);
  return rest; /* not checked: of two free parts one is about to change its use */
}

/* Cut off the front of a listed block, which keeps its place in its set. Returns the front, in no set, or TSR_NONE when out of memory. */
static uint32_t cut_front(tsr__heap *heap, uint32_t block, uint64_t size_bytes) {
  tsr__heap_block front = BLOCK(block);
  uint64_t rest_address = front.address + size_bytes;
  assert(size_bytes && size_bytes < front.size_bytes && is_listed(heap, block));
  uint32_t index = next_index(heap);
  if (index == TSR_NONE || !tsr__map_put(&heap->by_address, rest_address, block, NULL))
    return TSR_NONE;
  *tsr__map_find(&heap->by_address, front.address) = index;
  claim_index(heap, index);
  front.size_bytes = size_bytes;
  front.next = block;
  BLOCK(index) = front;
  BLOCK(block).previous = index;
  if (front.previous != TSR_NONE)
    BLOCK(front.previous).next = index;
  else
    SEGMENT(front.segment).first = index;
  resize(heap, block, rest_address, BLOCK(block).size_bytes - size_bytes);
  return index;
}

/* Whether a block may be named by another index without more ado. */
static bool may_rename(const tsr__heap *heap) {
  return heap->has_free_sets && !heap->has_insides && !heap->has_doubles;
}

/* The same for any heap. */
static uint32_t take_front(tsr__heap *heap, uint32_t block, uint64_t size_bytes) {
  bool is_alone = tsr__heap_find(heap, BLOCK(block).address + size_bytes) == TSR_NONE;
  if (may_rename(heap) && is_alone) return cut_front(heap, block, size_bytes);
  uint32_t rest = split_block(heap, block, size_bytes);
  if (rest == TSR_NONE) return TSR_NONE;
  enlist(heap, rest);
  return block;
}

uint32_t tsr__heap_take(tsr__heap *heap, uint32_t block, uint64_t size_bytes,
                        uint64_t requested_bytes) {
  assert(BLOCK(block).use == TSR__BLOCK_FREE && size_bytes <= BLOCK(block).size_bytes);
  if (size_bytes < BLOCK(block).size_bytes)
    block = take_front(heap, block, size_bytes);
  else
    delist(heap, block);
  if (block == TSR_NONE) return TSR_NONE;
  BLOCK(block).use = TSR__BLOCK_TAKEN;
  BLOCK(block).requested_bytes = requested_bytes;
  assert(BLOCK(block).size_bytes == size_bytes);
  return block;
}

/* Unlink the block after `block`, which takes its place and may be in a set; the other may not. Returns the bytes by which it is to grow. */
static uint64_t join_next(tsr__heap *heap, uint32_t block) {
  uint32_t gone = BLOCK(block).next;
  uint64_t size_bytes = BLOCK(gone).size_bytes;
  assert(gone != TSR_NONE && BLOCK(gone).previous == block);
  assert(BLOCK(gone).address == BLOCK(block).address + BLOCK(block).size_bytes);
  BLOCK(block).next = BLOCK(gone).next;
  if (BLOCK(gone).next != TSR_NONE)
    BLOCK(BLOCK(gone).next).previous = block;
  else
    SEGMENT(BLOCK(block).segment).last = block;
  drop_block(heap, gone);
  return size_bytes;
}

uint32_t tsr__heap_widen(tsr__heap *heap, uint32_t block, uint64_t size_bytes) {
  uint32_t next = BLOCK(block).next;
  assert(next != TSR_NONE && BLOCK(next).use == TSR__BLOCK_FREE &&
         BLOCK(block).use != TSR__BLOCK_FREE);
  uint32_t rest = split_block(heap, next, size_bytes);
  if (rest == TSR_NONE) return TSR_NONE;
  BLOCK(block).size_bytes += join_next(heap, block);
  enlist(heap, rest);
  return rest;
}

/* Join a free block, which is in no set, with the next one, which keeps its place in its set. Returns that. */
static uint32_t give_to_next(tsr__heap *heap, uint32_t block) {
  tsr__heap_block gone = BLOCK(block);
  uint32_t next = gone.next;
  assert(BLOCK(next).previous == block && BLOCK(next).use == TSR__BLOCK_FREE);
  tsr__map_remove(&heap->by_address, BLOCK(next).address);
  *tsr__map_find(&heap->by_address, gone.address) = next;
  BLOCK(next).previous = gone.previous;
  if (gone.previous != TSR_NONE)
    BLOCK(gone.previous).next = next;
  else
    SEGMENT(gone.segment).first = next;
  BLOCK(block).next = heap->free_block_index;
  heap->free_block_index = block;
  resize(heap, next, gone.address, BLOCK(next).size_bytes + gone.size_bytes);
  return next;
}

/* Join a free or unmapped block, which is in no set, with neighbours of the same use, and put the
 * joined block into its set. */
static uint32_t settle(tsr__heap *heap, uint32_t block) {
  uint32_t next = BLOCK(block).next, previous = BLOCK(block).previous;
  uint8_t use = BLOCK(block).use;
  assert(use == TSR__BLOCK_FREE || use == TSR__BLOCK_UNMAPPED);
  bool has_next = next != TSR_NONE && BLOCK(next).use == use;
  bool has_previous = previous != TSR_NONE && BLOCK(previous).use == use;
  if (has_next && !has_previous && use == TSR__BLOCK_FREE && may_rename(heap))
    return give_to_next(heap, block);
  if (has_next) {
    delist(heap, next);
    BLOCK(block).size_bytes += join_next(heap, block);
  }
  if (!has_previous) {
    enlist(heap, block);
    return block;
  }
  uint64_t more_bytes = join_next(heap, previous);
  resize(heap, previous, BLOCK(previous).address, BLOCK(previous).size_bytes + more_bytes);
  return previous;
}

uint32_t tsr__heap_give_back(tsr__heap *heap, uint32_t block, tsr__block_use use) {
  assert(use == TSR__BLOCK_FREE || use == TSR__BLOCK_UNMAPPED);
  delist(heap, block);
  BLOCK(block).use = (uint8_t)use;
  BLOCK(block).requested_bytes = 0;
  BLOCK(block).owner = TSR_NONE;
  uint32_t joined = settle(heap, block);
  assert_heap(heap);
  return joined;
}

/* ---- segments ---- */

static uint32_t new_segment(tsr__heap *heap, const tsr__heap_segment *segment) {
  uint32_t index = heap->free_segment_index;
  uint32_t set = heap->has_free_sets ? make_sets(heap, segment->pool, segment->is_large) : TSR_NONE;
  if (heap->has_free_sets && set == TSR_NONE) return TSR_NONE;
  if (index == TSR_NONE) {
    if (!TSR__VECTOR_PUSH(&heap->segments, *segment)) return TSR_NONE;
    index = (uint32_t)heap->segments.count - 1;
  } else {
    heap->free_segment_index = SEGMENT(index).first;
  }
  SEGMENT(index) = *segment;
  SEGMENT(index).order = heap->next_order++;
  SEGMENT(index).first = SEGMENT(index).last = TSR_NONE;
  SEGMENT(index).set = set;
  SEGMENT(index).place = TSR__RANGE_NONE;
  SEGMENT(index).is_gone = false;
  return index;
}

static void drop_segment(tsr__heap *heap, uint32_t segment) {
  assert(segment < heap->segments.count && !SEGMENT(segment).is_gone);
  SEGMENT(segment).is_gone = true;
  SEGMENT(segment).first = heap->free_segment_index;
  heap->free_segment_index = segment;
}

uint32_t tsr__heap_add_segment(tsr__heap *heap, uint64_t address, uint64_t size_bytes,
                               const tsr__heap_segment *like) {
  uint32_t index = new_segment(heap, like);
  if (index == TSR_NONE) return TSR_NONE;
  SEGMENT(index).address = address;
  SEGMENT(index).size_bytes = size_bytes;
  SEGMENT(index).is_expandable = false;
  tsr__heap_block block = {.address = address,
                           .size_bytes = size_bytes,
                           .previous = TSR_NONE,
                           .next = TSR_NONE,
                           .segment = index,
                           .owner = TSR_NONE,
                           .use = TSR__BLOCK_FREE};
  bool has_room = tsr__ranges_reserve(&heap->places, 1);
  uint64_t *place = has_room ? tsr__map_put(&heap->segment_at, address, index, NULL) : NULL;
  uint32_t first = place ? new_block(heap, &block) : TSR_NONE;
  if (first == TSR_NONE) {
    if (place) tsr__map_remove(&heap->segment_at, address);
    drop_segment(heap, index);
    return TSR_NONE;
  }
  *place = index;
  SEGMENT(index).first = SEGMENT(index).last = first;
  (void)tsr__heap_note_place(heap, index);
  enlist(heap, first);
  assert_heap(heap);
  return index;
}

void tsr__heap_remove_segment(tsr__heap *heap, uint32_t segment) {
  assert(segment < heap->segments.count && !SEGMENT(segment).is_gone);
  tsr__heap_forget_place(heap, segment);
  if (!SEGMENT(segment).is_expandable) tsr__map_remove(&heap->segment_at, SEGMENT(segment).address);
  for (uint32_t block = SEGMENT(segment).first; block != TSR_NONE;) {
    uint32_t next = BLOCK(block).next;
    delist(heap, block);
    drop_block(heap, block);
    block = next;
  }
  drop_segment(heap, segment);
  assert_heap(heap);
}

/* ---- expandable reservations ---- */

static uint32_t new_reservation(tsr__heap *heap, const tsr__heap_segment *like) {
  uint32_t index = new_segment(heap, like);
  if (index == TSR_NONE) return TSR_NONE;
  SEGMENT(index).is_expandable = true;
  SEGMENT(index).address = SEGMENT(index).size_bytes = 0;
  return index;
}

/* Put an unmapped block at one end of a reservation; the caller made room for it. */
static void extend(tsr__heap *heap, uint32_t reservation, tsr__heap_block block) {
  tsr__heap_segment *s = &SEGMENT(reservation);
  block.segment = reservation;
  block.owner = TSR_NONE;
  block.use = TSR__BLOCK_UNMAPPED;
  uint32_t index = new_block(heap, &block);
  assert(index != TSR_NONE);
  if (block.previous == TSR_NONE) {
    s->first = index;
    s->address = block.address;
  } else {
    BLOCK(block.previous).next = index;
  }
  if (block.next == TSR_NONE)
    s->last = index;
  else
    BLOCK(block.next).previous = index;
  s->size_bytes += block.size_bytes;
  (void)tsr__heap_note_place(heap, reservation);
  (void)settle(heap, index);
}

bool tsr__heap_reserve(tsr__heap *heap, uint32_t reservation, uint64_t address,
                       uint64_t size_bytes) {
  tsr__heap_segment *s = &SEGMENT(reservation);
  assert(s->is_expandable && !s->is_gone && size_bytes);
  if (!prepare(heap, 2)) return false;
  if (s->first == TSR_NONE) {
    extend(
        heap, reservation,
        (tsr__heap_block){
            .address = address, .size_bytes = size_bytes, .previous = TSR_NONE, .next = TSR_NONE});
    return true;
  }
  uint64_t end = address + size_bytes, old_end = s->address + s->size_bytes;
  if (address < s->address)
    extend(heap, reservation,
           (tsr__heap_block){.address = address,
                             .size_bytes = s->address - address,
                             .previous = TSR_NONE,
                             .next = s->first});
  if (end > old_end)
    extend(heap, reservation,
           (tsr__heap_block){.address = old_end,
                             .size_bytes = end - old_end,
                             .previous = s->last,
                             .next = TSR_NONE});
  return true;
}

uint32_t tsr__heap_add_reservation(tsr__heap *heap, uint64_t address, uint64_t size_bytes,
                                   const tsr__heap_segment *like) {
  if (!prepare(heap, 2)) return TSR_NONE;
  uint32_t index = new_reservation(heap, like);
  if (index == TSR_NONE) return TSR_NONE;
  (void)tsr__heap_reserve(heap, index, address, size_bytes);
  return index;
}

uint32_t tsr__heap_map_front(tsr__heap *heap, uint32_t block, uint64_t size_bytes) {
  assert(BLOCK(block).use == TSR__BLOCK_UNMAPPED);
  if (size_bytes < BLOCK(block).size_bytes && tsr__heap_cut(heap, block, size_bytes) == TSR_NONE)
    return TSR_NONE;
  return tsr__heap_give_back(heap, block, TSR__BLOCK_FREE);
}

/* Cut out [address, end) of the block that holds `address`; returns the piece. Cannot fail after
 * prepare(heap, 2). */
static uint32_t cut_out(tsr__heap *heap, uint32_t block, uint64_t address, uint64_t end) {
  if (BLOCK(block).address < address) {
    block = tsr__heap_cut(heap, block, address - BLOCK(block).address);
    if (block == TSR_NONE) return TSR_NONE;
  }
  if (BLOCK(block).address + BLOCK(block).size_bytes > end &&
      tsr__heap_cut(heap, block, end - BLOCK(block).address) == TSR_NONE)
    return TSR_NONE;
  return block;
}

uint32_t tsr__heap_unmap_inside(tsr__heap *heap, uint32_t block, uint64_t address, uint64_t end) {
  assert(BLOCK(block).use == TSR__BLOCK_FREE && address >= BLOCK(block).address && end > address &&
         end <= BLOCK(block).address + BLOCK(block).size_bytes);
  if (!prepare(heap, 2)) return TSR_NONE;
  block = cut_out(heap, block, address, end);
  return tsr__heap_give_back(heap, block, TSR__BLOCK_UNMAPPED);
}

/* A run of addresses. */
typedef struct stretch {
  uint64_t address, size_bytes;
} stretch;

/* Turn the blocks of one use in a range into another. Returns the bytes turned, or UINT64_MAX when
 * out of memory. PyTorch maps and unmaps within one block; a hostile trace that does otherwise
 * again and again must not cause a walk over all blocks each time. */
static uint64_t turn(tsr__heap *heap, uint32_t reservation, stretch where, tsr__block_use from,
                     tsr__block_use to) {
  uint64_t turned = 0, at = where.address, end = where.address + where.size_bytes;
  if (!prepare(heap, 2)) return UINT64_MAX;
  uint32_t block = tsr__heap_find_inside(heap, reservation, at);
  for (int i = 0; i < MOST_TURNED && block != TSR_NONE && BLOCK(block).address < end; i++) {
    if (BLOCK(block).use == from) {
      uint64_t begin = BLOCK(block).address > at ? BLOCK(block).address : at;
      block = cut_out(heap, block, begin, end);
      assert(block != TSR_NONE);
      turned += BLOCK(block).size_bytes;
      block = tsr__heap_give_back(heap, block, to);
    }
    block = BLOCK(block).next;
  }
  return turned;
}

bool tsr__heap_map(tsr__heap *heap, uint32_t reservation, uint64_t address, uint64_t size_bytes) {
  if (!size_bytes || address > UINT64_MAX - size_bytes) return true;
  if (!prepare(heap, 4)) return false; /* for both steps */
  if (!tsr__heap_reserve(heap, reservation, address, size_bytes)) return false;
  return turn(heap, reservation, (stretch){address, size_bytes}, TSR__BLOCK_UNMAPPED,
              TSR__BLOCK_FREE) != UINT64_MAX;
}

uint64_t tsr__heap_unmap(tsr__heap *heap, uint32_t reservation, uint64_t address,
                         uint64_t size_bytes) {
  if (!size_bytes || address > UINT64_MAX - size_bytes) return 0;
  return turn(heap, reservation, (stretch){address, size_bytes}, TSR__BLOCK_FREE,
              TSR__BLOCK_UNMAPPED);
}

/* ---- checks ---- */

/* How many blocks of a segment belong in a set, by use; `*wrong` is what is wrong with it. */
static void check_segment(const tsr__heap *heap, uint32_t s, uint64_t listed[2],
                          const char **wrong) {
  uint64_t address = SEGMENT(s).address;
  uint32_t before = TSR_NONE;
  for (uint32_t b = SEGMENT(s).first; b != TSR_NONE; before = b, b = BLOCK(b).next) {
    const tsr__heap_block *block = &BLOCK(b);
    if (block->address != address || !block->size_bytes)
      *wrong = "blocks do not tile their segment";
    if (block->segment != s || block->previous != before) *wrong = "a block's links are wrong";
    if (before != TSR_NONE && BLOCK(before).use == block->use &&
        (block->use == TSR__BLOCK_FREE || block->use == TSR__BLOCK_UNMAPPED))
      *wrong = "two free neighbours were not joined";
    tsr__map by_address = heap->by_address; /* a copy that is only looked into */
    const uint64_t *found = tsr__map_find(&by_address, block->address);
    if (!found || *found != b) *wrong = "a block is not found by its address";
    if (is_listed(heap, b)) listed[block->use == TSR__BLOCK_UNMAPPED]++;
    address += block->size_bytes;
  }
  if (before != SEGMENT(s).last) *wrong = "a segment's last block is not its last";
  if (address - SEGMENT(s).address != SEGMENT(s).size_bytes)
    *wrong = "blocks do not add up to their segment";
}

static void check_set(const tsr__heap *heap, const tsr__free_set *set, uint64_t listed[2],
                      const char **wrong) {
  uint32_t next;
  for (uint32_t b = tsr__heap_lower_bound(heap, set, 0, 0); b != TSR_NONE; b = next) {
    const tsr__heap_segment *segment = &SEGMENT(BLOCK(b).segment);
    if (BLOCK(b).use != set->use) *wrong = "a block in a free set is not free";
    if (segment->pool != set->pool || segment->is_large != set->is_large)
      *wrong = "a block is in the set of another pool";
    uint32_t parent = BLOCK(b).parent;
    if (parent == TSR_NONE ? set->root != b : BLOCK(parent).left != b && BLOCK(parent).right != b)
      *wrong = "a block of a free set does not know its place";
    next = tsr__heap_successor(heap, set, b);
    if (next != TSR_NONE && !comes_before(heap, b, next)) *wrong = "a free set is out of order";
    listed[set->use == TSR__BLOCK_UNMAPPED]--;
  }
}

const char *tsr__heap_check(const tsr__heap *heap) {
  const char *wrong = NULL;
  uint64_t listed[2] = {0, 0};
  for (uint32_t s = 0; s < heap->segments.count; s++)
    if (!SEGMENT(s).is_gone) check_segment(heap, s, listed, &wrong);
  for (size_t i = 0; i < heap->free_sets.count; i++)
    check_set(heap, &heap->free_sets.items[i], listed, &wrong);
  if (!wrong && (listed[0] || listed[1])) wrong = "a free block is in no set, or in two";
  return wrong;
}
