/* heap.c - cutting, joining and finding blocks. See heap.h.
 *
 * Blocks of a segment are a doubly linked list in address order, so that freeing finds its
 * neighbours at once; a hash map finds a block by its start. Free blocks are, where placement
 * matters, in one treap a pool and size class. */
#include "allocator/heap.h"

#include <assert.h>

#include "base/hash.h"

#define BLOCK(index)   (heap->blocks.items[index])
#define SEGMENT(index) (heap->segments.items[index])

void tsr__heap_init(tsr__heap *heap, const tsr_allocator_settings *settings, bool has_free_sets) {
  *heap = (tsr__heap){.settings = *settings,
                      .free_block_index = TSR_NONE,
                      .free_segment_index = TSR_NONE,
                      .has_free_sets = has_free_sets};
}

void tsr__heap_release(tsr__heap *heap) {
  TSR__VECTOR_FREE(&heap->blocks);
  TSR__VECTOR_FREE(&heap->segments);
  TSR__VECTOR_FREE(&heap->free_sets);
  tsr__map_release(&heap->by_address);
  tsr__map_release(&heap->segment_at);
}

/* ---- free sets ---- */

static bool comes_before(const tsr__heap *heap, uint32_t a, uint32_t b) {
  const tsr__heap_block *x = &BLOCK(a), *y = &BLOCK(b);
  const tsr__heap_segment *s = &SEGMENT(x->segment), *t = &SEGMENT(y->segment);
  if (s->stream != t->stream) return s->stream < t->stream;
  if (x->size_bytes != y->size_bytes) return x->size_bytes < y->size_bytes;
  if (heap->settings.tie_break == TSR_TIE_SEGMENT && s->order != t->order)
    return s->order < t->order;
  return x->address < y->address;
}

static bool has_priority(uint32_t a, uint32_t b) {
  return tsr__hash_u64(a + UINT64_C(0x51ed)) > tsr__hash_u64(b + UINT64_C(0x51ed));
}

/* Split the tree at `root` into what comes before `block` and what comes after. */
static void split_tree(tsr__heap *heap, uint32_t root, uint32_t block, uint32_t *before,
                       uint32_t *after) {
  while (root != TSR_NONE) {
    if (comes_before(heap, root, block)) {
      *before = root;
      before = &BLOCK(root).right;
      root = *before;
    } else {
      *after = root;
      after = &BLOCK(root).left;
      root = *after;
    }
  }
  *before = *after = TSR_NONE;
}

static uint32_t join_trees(tsr__heap *heap, uint32_t before, uint32_t after) {
  uint32_t root = TSR_NONE, *place = &root;
  while (before != TSR_NONE && after != TSR_NONE) {
    if (has_priority(before, after)) {
      *place = before;
      place = &BLOCK(before).right;
      before = *place;
    } else {
      *place = after;
      place = &BLOCK(after).left;
      after = *place;
    }
  }
  *place = before == TSR_NONE ? after : before;
  return root;
}

static tsr__free_set *set_of(tsr__heap *heap, uint32_t block) {
  const tsr__heap_segment *segment = &SEGMENT(BLOCK(block).segment);
  for (size_t i = 0; i < heap->free_sets.count; i++)
    if (heap->free_sets.items[i].pool == segment->pool &&
        heap->free_sets.items[i].is_large == segment->is_large)
      return &heap->free_sets.items[i];
  return NULL; /* tsr__heap_add_segment made it, so this is not reached */
}

static void insert_free(tsr__heap *heap, uint32_t block) {
  if (!heap->has_free_sets) return;
  uint32_t *place = &set_of(heap, block)->root;
  while (*place != TSR_NONE && has_priority(*place, block))
    place = comes_before(heap, block, *place) ? &BLOCK(*place).left : &BLOCK(*place).right;
  uint32_t below = *place;
  *place = block;
  split_tree(heap, below, block, &BLOCK(block).left, &BLOCK(block).right);
}

static void remove_free(tsr__heap *heap, uint32_t block) {
  if (!heap->has_free_sets) return;
  uint32_t *place = &set_of(heap, block)->root;
  while (*place != block) {
    assert(*place != TSR_NONE);
    place = comes_before(heap, block, *place) ? &BLOCK(*place).left : &BLOCK(*place).right;
  }
  *place = join_trees(heap, BLOCK(block).left, BLOCK(block).right);
}

const tsr__free_set *tsr__heap_free_set(const tsr__heap *heap, uint32_t pool, bool is_large) {
  for (size_t i = 0; i < heap->free_sets.count; i++)
    if (heap->free_sets.items[i].pool == pool && heap->free_sets.items[i].is_large == is_large)
      return &heap->free_sets.items[i];
  return NULL;
}

uint32_t tsr__heap_lower_bound(const tsr__heap *heap, const tsr__free_set *set, uint32_t stream,
                               uint64_t size_bytes) {
  uint32_t found = TSR_NONE, at = set ? set->root : TSR_NONE;
  while (at != TSR_NONE) {
    uint32_t its_stream = SEGMENT(BLOCK(at).segment).stream;
    bool is_before = its_stream != stream ? its_stream < stream : BLOCK(at).size_bytes < size_bytes;
    if (!is_before) found = at;
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

uint32_t tsr__heap_best_fit(const tsr__heap *heap, uint32_t pool, bool is_large, uint32_t stream,
                            uint64_t rounded_bytes) {
  const tsr__free_set *set = tsr__heap_free_set(heap, pool, is_large);
  uint32_t block = tsr__heap_lower_bound(heap, set, stream, rounded_bytes);
  if (block == TSR_NONE || SEGMENT(BLOCK(block).segment).stream != stream) return TSR_NONE;
  return tsr__may_serve(&heap->settings, BLOCK(block).size_bytes, rounded_bytes) ? block : TSR_NONE;
}

/* ---- blocks ---- */

static uint32_t new_block(tsr__heap *heap, const tsr__heap_block *block) {
  uint32_t index = heap->free_block_index;
  if (index == TSR_NONE) {
    if (heap->blocks.count >= TSR_NONE || !TSR__VECTOR_RESERVE(&heap->blocks, 1)) return TSR_NONE;
    index = (uint32_t)heap->blocks.count;
  }
  if (!tsr__map_put(&heap->by_address, block->address, index, NULL)) return TSR_NONE;
  if (index == heap->blocks.count)
    heap->blocks.count++;
  else
    heap->free_block_index = BLOCK(index).next;
  *tsr__map_find(&heap->by_address, block->address) = index;
  BLOCK(index) = *block;
  return index;
}

/* Take a block out of the map and make its index reusable; links are the caller's. */
static void drop_block(tsr__heap *heap, uint32_t block) {
  tsr__map_remove(&heap->by_address, BLOCK(block).address);
  BLOCK(block).next = heap->free_block_index;
  heap->free_block_index = block;
}

uint32_t tsr__heap_cut(tsr__heap *heap, uint32_t block, uint64_t size_bytes) {
  assert(size_bytes && size_bytes < BLOCK(block).size_bytes);
  tsr__heap_block rest = BLOCK(block);
  rest.address += size_bytes;
  rest.size_bytes -= size_bytes;
  rest.previous = block;
  uint32_t index = new_block(heap, &rest);
  if (index == TSR_NONE) return TSR_NONE;
  if (BLOCK(block).use == TSR__BLOCK_FREE) remove_free(heap, block);
  BLOCK(block).size_bytes = size_bytes;
  BLOCK(block).next = index;
  if (rest.next != TSR_NONE) BLOCK(rest.next).previous = index;
  if (rest.use == TSR__BLOCK_FREE) {
    insert_free(heap, block);
    insert_free(heap, index);
  }
  return index;
}

bool tsr__heap_take(tsr__heap *heap, uint32_t block, uint64_t size_bytes,
                    uint64_t requested_bytes) {
  assert(BLOCK(block).use == TSR__BLOCK_FREE && size_bytes <= BLOCK(block).size_bytes);
  if (size_bytes < BLOCK(block).size_bytes && tsr__heap_cut(heap, block, size_bytes) == TSR_NONE)
    return false;
  remove_free(heap, block);
  BLOCK(block).use = TSR__BLOCK_TAKEN;
  BLOCK(block).requested_bytes = requested_bytes;
  return true;
}

/* Join `block` with its next neighbour, which goes away. */
static void join_next(tsr__heap *heap, uint32_t block) {
  uint32_t gone = BLOCK(block).next;
  BLOCK(block).size_bytes += BLOCK(gone).size_bytes;
  BLOCK(block).next = BLOCK(gone).next;
  if (BLOCK(gone).next != TSR_NONE) BLOCK(BLOCK(gone).next).previous = block;
  drop_block(heap, gone);
}

uint32_t tsr__heap_give_back(tsr__heap *heap, uint32_t block, tsr__block_use use) {
  assert(use == TSR__BLOCK_FREE || use == TSR__BLOCK_UNMAPPED);
  if (BLOCK(block).use == TSR__BLOCK_FREE) remove_free(heap, block);
  BLOCK(block).use = (uint8_t)use;
  BLOCK(block).requested_bytes = 0;
  BLOCK(block).owner = TSR_NONE;
  uint32_t next = BLOCK(block).next, previous = BLOCK(block).previous;
  if (next != TSR_NONE && BLOCK(next).use == use) {
    if (use == TSR__BLOCK_FREE) remove_free(heap, next);
    join_next(heap, block);
  }
  if (previous != TSR_NONE && BLOCK(previous).use == use) {
    if (use == TSR__BLOCK_FREE) remove_free(heap, previous);
    join_next(heap, previous);
    block = previous;
  }
  if (use == TSR__BLOCK_FREE) insert_free(heap, block);
  return block;
}

uint32_t tsr__heap_find_inside(const tsr__heap *heap, uint32_t segment, uint64_t address) {
  for (uint32_t block = SEGMENT(segment).first; block != TSR_NONE; block = BLOCK(block).next)
    if (address >= BLOCK(block).address && address - BLOCK(block).address < BLOCK(block).size_bytes)
      return block;
  return TSR_NONE;
}

/* ---- segments ---- */

static uint32_t new_segment(tsr__heap *heap, const tsr__heap_segment *segment) {
  uint32_t index = heap->free_segment_index;
  if (heap->has_free_sets && !tsr__heap_free_set(heap, segment->pool, segment->is_large) &&
      !TSR__VECTOR_PUSH(&heap->free_sets,
                        (tsr__free_set){segment->pool, TSR_NONE, segment->is_large}))
    return TSR_NONE;
  if (index == TSR_NONE) {
    if (!TSR__VECTOR_PUSH(&heap->segments, *segment)) return TSR_NONE;
    index = (uint32_t)heap->segments.count - 1;
  } else {
    heap->free_segment_index = SEGMENT(index).first;
  }
  SEGMENT(index) = *segment;
  SEGMENT(index).order = heap->next_order++;
  SEGMENT(index).first = TSR_NONE;
  SEGMENT(index).is_gone = false;
  return index;
}

static void drop_segment(tsr__heap *heap, uint32_t segment) {
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
  uint64_t *place = tsr__map_put(&heap->segment_at, address, index, NULL);
  uint32_t first = place ? new_block(heap, &block) : TSR_NONE;
  if (first == TSR_NONE) {
    if (place) tsr__map_remove(&heap->segment_at, address);
    drop_segment(heap, index);
    return TSR_NONE;
  }
  *place = index;
  SEGMENT(index).first = first;
  insert_free(heap, first);
  return index;
}

void tsr__heap_remove_segment(tsr__heap *heap, uint32_t segment) {
  if (!SEGMENT(segment).is_expandable) tsr__map_remove(&heap->segment_at, SEGMENT(segment).address);
  for (uint32_t block = SEGMENT(segment).first; block != TSR_NONE;) {
    uint32_t next = BLOCK(block).next;
    if (BLOCK(block).use == TSR__BLOCK_FREE) remove_free(heap, block);
    drop_block(heap, block);
    block = next;
  }
  drop_segment(heap, segment);
}

/* ---- expandable reservations ---- */

uint32_t tsr__heap_reservation(tsr__heap *heap, const tsr__heap_segment *like) {
  for (uint32_t i = 0; i < heap->segments.count; i++)
    if (SEGMENT(i).is_expandable && !SEGMENT(i).is_gone && SEGMENT(i).stream == like->stream &&
        SEGMENT(i).pool == like->pool && SEGMENT(i).is_large == like->is_large)
      return i;
  uint32_t index = new_segment(heap, like);
  if (index == TSR_NONE) return TSR_NONE;
  SEGMENT(index).is_expandable = true;
  SEGMENT(index).address = SEGMENT(index).size_bytes = 0;
  return index;
}

/* Make the reservation's blocks cover [address, address + size_bytes), with unmapped ones where
 * nothing was. */
static bool cover(tsr__heap *heap, uint32_t reservation, uint64_t address, uint64_t size_bytes) {
  tsr__heap_segment *s = &SEGMENT(reservation);
  uint64_t end = address + size_bytes;
  tsr__heap_block block = {.previous = TSR_NONE,
                           .next = TSR_NONE,
                           .segment = reservation,
                           .owner = TSR_NONE,
                           .use = TSR__BLOCK_UNMAPPED};
  if (s->first == TSR_NONE || address < s->address) {
    block.address = address;
    block.size_bytes = s->first == TSR_NONE ? size_bytes : s->address - address;
    block.next = s->first;
    uint32_t front = new_block(heap, &block);
    if (front == TSR_NONE) return false;
    if (s->first == TSR_NONE)
      s->size_bytes = size_bytes;
    else {
      s->size_bytes += s->address - address;
      BLOCK(s->first).previous = front;
    }
    s->first = front;
    s->address = address;
    (void)tsr__heap_give_back(heap, front, TSR__BLOCK_UNMAPPED);
  }
  uint64_t old_end = s->address + s->size_bytes;
  if (end <= old_end) return true;
  uint32_t last = s->first;
  while (BLOCK(last).next != TSR_NONE) last = BLOCK(last).next;
  block.address = old_end;
  block.size_bytes = end - old_end;
  block.previous = last;
  block.next = TSR_NONE;
  uint32_t back = new_block(heap, &block);
  if (back == TSR_NONE) return false;
  BLOCK(last).next = back;
  s->size_bytes = end - s->address;
  (void)tsr__heap_give_back(heap, back, TSR__BLOCK_UNMAPPED);
  return true;
}

/* Cut out [address, end) of the block that holds `address`; answers the piece. */
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

/* A run of addresses. */
typedef struct stretch {
  uint64_t address, size_bytes;
} stretch;

/* Turn the blocks of one use in a stretch into another. Answers the bytes turned, or UINT64_MAX
 * when out of memory. */
static uint64_t turn(tsr__heap *heap, uint32_t reservation, stretch where, tsr__block_use from,
                     tsr__block_use to) {
  uint64_t turned = 0, at = where.address, end = where.address + where.size_bytes;
  uint32_t block = tsr__heap_find_inside(heap, reservation, at);
  while (block != TSR_NONE && BLOCK(block).address < end) {
    if (BLOCK(block).use == from) {
      uint64_t begin = BLOCK(block).address > at ? BLOCK(block).address : at;
      block = cut_out(heap, block, begin, end);
      if (block == TSR_NONE) return UINT64_MAX;
      turned += BLOCK(block).size_bytes;
      block = tsr__heap_give_back(heap, block, to);
    }
    block = BLOCK(block).next;
  }
  return turned;
}

bool tsr__heap_map(tsr__heap *heap, uint32_t reservation, uint64_t address, uint64_t size_bytes) {
  if (!size_bytes || address > UINT64_MAX - size_bytes) return true;
  if (!cover(heap, reservation, address, size_bytes)) return false;
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

const char *tsr__heap_check(const tsr__heap *heap) {
  for (uint32_t s = 0; s < heap->segments.count; s++) {
    if (SEGMENT(s).is_gone) continue;
    uint64_t address = SEGMENT(s).address, total = 0;
    uint32_t before = TSR_NONE;
    for (uint32_t b = SEGMENT(s).first; b != TSR_NONE; before = b, b = BLOCK(b).next) {
      const tsr__heap_block *block = &BLOCK(b);
      if (block->address != address) return "blocks do not tile their segment";
      if (block->segment != s || block->previous != before) return "a block's links are wrong";
      if (before != TSR_NONE && BLOCK(before).use == block->use &&
          (block->use == TSR__BLOCK_FREE || block->use == TSR__BLOCK_UNMAPPED))
        return "two free neighbours were not joined";
      if (tsr__heap_find((tsr__heap *)(uintptr_t)heap, block->address) != b)
        return "a block is not found by its address";
      address += block->size_bytes;
      total += block->size_bytes;
    }
    if (total != SEGMENT(s).size_bytes) return "blocks do not add up to their segment";
  }
  for (size_t i = 0; i < heap->free_sets.count; i++) {
    const tsr__free_set *set = &heap->free_sets.items[i];
    uint32_t b = tsr__heap_lower_bound(heap, set, 0, 0);
    for (uint32_t next; b != TSR_NONE; b = next) {
      if (BLOCK(b).use != TSR__BLOCK_FREE) return "a block in a free set is not free";
      next = tsr__heap_successor(heap, set, b);
      if (next != TSR_NONE && !comes_before(heap, b, next)) return "a free set is out of order";
    }
  }
  return NULL;
}
