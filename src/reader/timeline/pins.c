/* pins.c - see pins.h.
 *
 * The gaps come by address. Each is cut into what lies in units that also have blocks, at most one at either end,
 * and the whole pages between. Then the live blocks, sorted by address, are looked up for each unit. A block can
 * reach into the unit that begins inside it, so the search goes back by one; blocks of a broken file that overlap
 * more than that are missed. */
#include "timeline/pins.h"

#include <assert.h>

#include "base/checked.h"
#include "base/memory.h"
#include "base/sort.h"

/* A live block. */
typedef struct block {
  uint64_t address, size_bytes;
  uint32_t allocation;
} block;

typedef struct builder {
  const tsr__timeline *t;
  tsr__pins *out;
  bool failed; /* out of memory */
} builder;

static uint64_t page_of(const tsr__timeline *t, const tsr__span *span) {
  if (!span->is_large) return TSR__SMALL_SEGMENT;
  uint64_t large = t->settings.large_segment_bytes;
  return large ? large : TSR__LARGE_SEGMENT;
}

static tsr__span_room *room_of(builder *b, uint32_t span) {
  tsr__pins *out = b->out;
  size_t count = out->rooms.count;
  if (count && out->rooms.items[count - 1].span == span) return &out->rooms.items[count - 1];
  if (!TSR__VECTOR_PUSH(&out->rooms, (tsr__span_room){.span = span})) return NULL;
  return &out->rooms.items[count];
}

/* A free part of the unit at an address: the one before, or a new one. */
static void add_part(builder *b, const tsr__span *span, uint64_t address, uint64_t size_bytes,
                     uint64_t free_bytes) {
  tsr__pins *out = b->out;
  size_t count = out->pins.count;
  uint32_t index = (uint32_t)(span - b->t->spans.items);
  if (!free_bytes || b->failed) return;
  if (count && out->pins.items[count - 1].address == address &&
      out->pins.items[count - 1].span == index) {
    uint64_t *sum = &out->pins.items[count - 1].free_bytes;
    *sum = tsr__sum_u64(*sum, free_bytes);
    return;
  }
  tsr__pinned_unit pin = {
      .address = address, .size_bytes = size_bytes, .free_bytes = free_bytes, .span = index};
  b->failed = !TSR__VECTOR_PUSH(&out->pins, pin);
}

/* The page that begins at an offset of its span, of which a part is free; the last may be cut. */
static void add_page(builder *b, const tsr__span *span, uint64_t offset, uint64_t free_bytes) {
  uint64_t page = page_of(b->t, span), rest = span->size_bytes - offset;
  add_part(b, span, span->address + offset, rest < page ? rest : page, free_bytes);
}

/* A gap of expandable memory. Offsets are from the beginning of the span, which is that of a page. */
static void cut_pages(builder *b, const tsr__gap *gap, tsr__span_room *room) {
  const tsr__span *span = gap->span;
  uint64_t page = page_of(b->t, span), begin = gap->address - span->address;
  uint64_t end = begin + gap->size_bytes, low = begin / page * page, last = end / page * page;
  assert(end <= span->size_bytes);
  if (last <= low) { /* inside one page */
    add_page(b, span, low, gap->size_bytes);
    return;
  }
  uint64_t first = low < begin ? low + page : low;
  if (first > begin) add_page(b, span, low, first - begin);
  room->whole_bytes = tsr__sum_u64(room->whole_bytes, last - first);
  if (end > last) add_page(b, span, last, end - last);
}

static void note_gap(void *context, const tsr__gap *gap) {
  builder *b = context;
  if (b->failed) return;
  tsr__span_room *room = room_of(b, (uint32_t)(gap->span - b->t->spans.items));
  if (!room)
    b->failed = true;
  else if (gap->is_whole)
    room->whole_bytes = tsr__sum_u64(room->whole_bytes, gap->size_bytes);
  else if (gap->span->is_expandable)
    cut_pages(b, gap, room);
  else
    add_part(b, gap->span, gap->span->address, gap->span->size_bytes, gap->size_bytes);
}

static int compare_blocks(const void *left, const void *right) {
  const block *a = left, *b = right;
  if (a->address != b->address) return a->address < b->address ? -1 : 1;
  return (a->allocation > b->allocation) - (a->allocation < b->allocation);
}

static block *sort_blocks(const tsr__timeline *t, const tsr__live_set *live) {
  block *blocks = TSR__NEW_ARRAY(block, live->count);
  for (size_t i = 0; blocks && i < live->count; i++)
    blocks[i] = (block){tsr__timeline_address(t, live->items[i]),
                        t->block_bytes.items[live->items[i]], live->items[i]};
  if (blocks) tsr__sort(blocks, live->count, sizeof *blocks, compare_blocks);
  return blocks;
}

/* The first block that reaches into memory from an address on. */
static size_t first_block(const block *blocks, size_t count, uint64_t address) {
  size_t low = 0, high = count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (blocks[middle].address < address)
      low = middle + 1;
    else
      high = middle;
  }
  bool reaches = low && tsr__sum_u64(blocks[low - 1].address, blocks[low - 1].size_bytes) > address;
  return reaches ? low - 1 : low;
}

/* Give each unit its blocks. One without any is entirely free after all: the cut page at the end of a range. */
static bool find_blocks(builder *b, const block *blocks, size_t count) {
  tsr__pins *out = b->out;
  size_t kept = 0, room = 0;
  for (size_t i = 0; i < out->pins.count; i++) {
    tsr__pinned_unit pin = out->pins.items[i];
    uint64_t end = tsr__sum_u64(pin.address, pin.size_bytes);
    pin.first = (uint32_t)out->blocks.count;
    for (size_t k = first_block(blocks, count, pin.address); k < count && blocks[k].address < end;
         k++) {
      if (!TSR__VECTOR_PUSH(&out->blocks, blocks[k].allocation)) return false;
      pin.block_count++;
    }
    while (out->rooms.items[room].span != pin.span) room++;
    assert(room < out->rooms.count);
    uint64_t *sum = pin.block_count ? &out->rooms.items[room].pinned_bytes
                                    : &out->rooms.items[room].whole_bytes;
    *sum = tsr__sum_u64(*sum, pin.free_bytes);
    if (pin.block_count) out->pins.items[kept++] = pin;
  }
  out->pins.count = kept;
  return true;
}

int tsr__timeline_pins(const tsr__timeline *t, int64_t event, const tsr__live_set *live,
                       tsr__pins *out, tsr_error *error) {
  builder b = {.t = t, .out = out};
  tsr_fragmentation ignored;
  *out = (tsr__pins){0};
  int status = tsr__timeline_gaps(t, event, live, note_gap, &b, &ignored, error);
  block *blocks = status || b.failed ? NULL : sort_blocks(t, live);
  bool ok = blocks && find_blocks(&b, blocks, live->count);
  tsr__free(blocks);
  if (ok) return 0;
  tsr__pins_release(out);
  return status ? status : tsr__fail_memory(error);
}

void tsr__pins_release(tsr__pins *pins) {
  TSR__VECTOR_FREE(&pins->pins);
  TSR__VECTOR_FREE(&pins->blocks);
  TSR__VECTOR_FREE(&pins->rooms);
  *pins = (tsr__pins){0};
}
