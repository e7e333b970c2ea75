/* pickle_run.c - events in the form CPython writes them, read many at a time.
 *
 * Nearly all of a large snapshot looks like this (protocol 4; B = BINGET or LONG_BINGET):
 *
 *   } MEMOIZE (  B<action> B<alloc>  B<addr> LONG1 ..  B<size> BININT ..  ...  B<frames> B<list>  u
 *   } MEMOIZE (  B<action> B<alloc>  ...  B<frames> ] MEMOIZE (  B B B B B ... e  u
 *
 * Once its frames are in the memo, a list of frames is nothing but references, so equal stacks are
 * equal bytes: `(`, the references, `e`. A list whose bytes were seen before is the same stack. And
 * programs repeat themselves: after one stack comes, mostly, one that followed it before. So each
 * seen stack remembers its last two successors, and one comparison of memory reads a whole stack.
 * The rest of an event is decoded key by key, without the machine's stack.
 *
 * Nothing is guessed: what does not match is looked up, and anything in another form is left to the
 * loop in pickle.c, which starts again at the event's first byte. An event is committed only as a
 * whole. The functions here are inlined into one another; they read the window only while MARGIN
 * bytes are left in it. */
#include "formats/pickle.h"

#include <assert.h>
#include <string.h>

#include "base/hash.h"
#include "columns/key_order.h"

/* A stack by its bytes, from the mark to APPENDS, both included. */
struct tsr__seen_stack {
  const unsigned char *bytes;
  uint32_t size;
  uint32_t stack;   /* id */
  uint32_t next[2]; /* indices of the stacks that followed it last */
  uint32_t hash;
};

enum {
  MARGIN = 512,   /* bytes any key and value but a stack may take */
  MEMO_ROOM = 64, /* memo slots one event may fill, stack included */
  LONGEST_LIST = 16 << 10,
  NO_SEEN = -1
};

/* The event being read. Nothing of it is visible before it is complete. */
typedef struct cursor {
  const unsigned char *p, *end;
  uint32_t *memo;
  size_t memo_count;
  tsr__event event;
} cursor;

static inline uint64_t load_u64(const unsigned char *p) {
  uint64_t value;
  memcpy(&value, p, sizeof value);
  return value;
}

static inline uint32_t load_u32(const unsigned char *p) {
  uint32_t value;
  memcpy(&value, p, sizeof value);
  return value;
}

/* ---- memo ---- */

/* The slot a BINGET or LONG_BINGET at the cursor names; 0 (unset) if absent. */
static inline uint32_t get_slot(cursor *c) {
  size_t index;
  if (c->p[0] == 'h') {
    index = c->p[1];
    c->p += 2;
  } else if (c->p[0] == 'j') {
    index = load_u32(c->p + 1);
    c->p += 5;
  } else {
    return 0;
  }
  return index < c->memo_count ? c->memo[index] : 0;
}

/* Store `slot` at the index of the put at the cursor. A missing put is fine too: PyTorch's C++
 * writer only puts what it will need again. False if the index is not the next one. */
static inline bool put_slot(cursor *c, uint32_t slot) {
  if (c->p[0] == 0x94) {
    c->p += 1;
  } else if (c->p[0] == 'q') {
    if (c->p[1] != c->memo_count) return false;
    c->p += 2;
  } else if (c->p[0] == 'r') {
    if (load_u32(c->p + 1) != c->memo_count) return false;
    c->p += 5;
  } else {
    return true;
  }
  c->memo[c->memo_count++] = slot; /* MEMO_ROOM was made */
  return true;
}

/* ---- values ---- */

/* A branch for each form: a wrong guess now and then costs less than if the place of the next key had
 * to wait for this number's size every time. */
static inline bool read_integer(cursor *c, uint64_t *out, bool *negative) {
  const unsigned char *p = c->p;
  *negative = false;
  switch (p[0]) {
  case 'K':
    *out = p[1];
    c->p += 2;
    return true;
  case 'M':
    *out = (uint64_t)p[1] | (uint64_t)p[2] << 8;
    c->p += 3;
    return true;
  case 'J':
    *out = (uint64_t)(int64_t)(int32_t)load_u32(p + 1);
    *negative = p[4] & 0x80;
    c->p += 5;
    return true;
  case 0x8a: {
    unsigned size = p[1], shift;
    if (size < 1 || size > 8) return false;
    shift = 64 - 8 * size;
    *out = (uint64_t)((int64_t)(load_u64(p + 2) << shift) >> shift);
    *negative = p[1 + size] & 0x80;
    c->p += 2 + size;
    return true;
  }
  default: return false;
  }
}

static inline bool read_unsigned(cursor *c, uint64_t *out) {
  bool negative;
  return read_integer(c, out, &negative) && !negative;
}

/* A text by reference, or spelled out and stored. */
static inline bool read_string(tsr__pickle *m, cursor *c, uint32_t *out) {
  size_t size, header;
  if (c->p[0] == 'h' || c->p[0] == 'j') {
    uint32_t slot = get_slot(c);
    *out = slot >> TSR__MEMO_TAG_BITS;
    return (slot & 15) == TSR__MEMO_STRING;
  }
  if (c->p[0] == 0x8c)
    size = c->p[1], header = 2;
  else if (c->p[0] == 'X' && load_u32(c->p + 1) < 256)
    size = load_u32(c->p + 1), header = 5;
  else
    return false;
  tsr_text last = tsr_snapshot_string(m->assembler->snapshot, m->last_text);
  if (last.size_bytes != size || memcmp(last.data, c->p + header, size) != 0)
    m->last_text = tsr__builder_string(m->assembler->builder, c->p + header, size);
  if (m->last_text >= TSR__MEMO_ID_LIMIT) return false;
  c->p += header + size;
  *out = m->last_text;
  return put_slot(c, TSR__MEMO_SLOT(TSR__MEMO_STRING, *out));
}

static inline bool read_pool(tsr__pickle *m, cursor *c) {
  uint64_t first, second;
  if (c->p[0] == 'h' || c->p[0] == 'j') {
    uint32_t slot = get_slot(c);
    c->event.pool = slot >> TSR__MEMO_TAG_BITS;
    return (slot & 15) == TSR__MEMO_PAIR;
  }
  if (!read_unsigned(c, &first) || !read_unsigned(c, &second) || *c->p != 0x86) return false;
  c->p++;
  c->event.pool = tsr__builder_pool(m->assembler->builder, first, second);
  return c->event.pool < TSR__MEMO_ID_LIMIT &&
         put_slot(c, TSR__MEMO_SLOT(TSR__MEMO_PAIR, c->event.pool));
}

/* ---- stacks ---- */

static bool grow_seen(tsr__pickle *m) {
  size_t size = m->seen_slots ? ((size_t)m->seen_mask + 1) * 2 : 1024;
  uint32_t *slots = TSR__NEW_ARRAY(uint32_t, size);
  if (!slots) return false;
  for (size_t k = 0; k < m->seen.count; k++) {
    size_t i = m->seen.items[k].hash & (size - 1);
    while (slots[i]) i = (i + 1) & (size - 1);
    slots[i] = (uint32_t)k + 1;
  }
  tsr__free(m->seen_slots);
  m->seen_slots = slots;
  m->seen_mask = (uint32_t)(size - 1);
  return true;
}

/* Bytes from the mark at `list` to APPENDS, both included, of a list of references; 0 where it is
 * none or is not in the window. */
static size_t list_size(const cursor *c, const unsigned char *list) {
  const unsigned char *p = list + 1;
  const unsigned char *limit = c->end - MARGIN < list ? list : c->end - MARGIN;
  if (limit - list > LONGEST_LIST) limit = list + LONGEST_LIST;
  while (p < limit) {
    if (*p == 'j')
      p += 5;
    else if (*p == 'h')
      p += 2;
    else
      return *p == 'e' && p > list + 1 ? (size_t)(p + 1 - list) : 0;
  }
  return 0;
}

/* Remember a list as a stack. Its references must all be frames. */
static bool add_seen(tsr__pickle *m, const cursor *c, const unsigned char *list, size_t size,
                     uint32_t hash) {
  tsr__assembler *assembler = m->assembler;
  cursor items = *c;
  items.p = list + 1;
  assembler->frame_ids.count = 0;
  if (!TSR__VECTOR_RESERVE(&assembler->frame_ids, size)) return false;
  while (items.p < list + size - 1) {
    uint32_t slot = get_slot(&items);
    if ((slot & 15) != TSR__MEMO_FRAME) return false;
    assembler->frame_ids.items[assembler->frame_ids.count++] = slot >> TSR__MEMO_TAG_BITS;
  }
  if (assembler->frame_ids.count > assembler->limits.stack_depth) return false;
  tsr__seen_stack seen = {.size = (uint32_t)size, .next = {TSR_NONE, TSR_NONE}, .hash = hash};
  seen.stack = tsr__builder_stack(assembler->builder, assembler->frame_ids.items,
                                  (uint32_t)assembler->frame_ids.count);
  seen.bytes = tsr__arena_copy(&m->seen_arena, list, size, 1);
  if (seen.stack >= TSR__MEMO_ID_LIMIT || !seen.bytes || m->seen.count >= TSR_NONE - 2)
    return false;
  if ((!m->seen_slots || m->seen.count > m->seen_mask / 2) && !grow_seen(m)) return false;
  size_t i = hash & m->seen_mask;
  assert(m->seen.count <= m->seen_mask); /* so that there is an empty slot */
  while (m->seen_slots[i]) i = (i + 1) & m->seen_mask;
  if (!TSR__VECTOR_PUSH(&m->seen, seen)) return false;
  m->seen_slots[i] = (uint32_t)m->seen.count;
  return true;
}

/* The seen stack with these bytes, added if new; NO_SEEN if it is not a list. */
static int64_t look_up_seen(tsr__pickle *m, const cursor *c, const unsigned char *list) {
  size_t size = list_size(c, list);
  if (!size) return NO_SEEN;
  uint32_t hash = (uint32_t)tsr__hash_bytes(list, size, m->seen_seed);
  for (size_t i = hash & m->seen_mask; m->seen_slots && m->seen_slots[i];
       i = (i + 1) & m->seen_mask) {
    const tsr__seen_stack *seen = &m->seen.items[m->seen_slots[i] - 1];
    if (seen->hash == hash && seen->size == size && memcmp(seen->bytes, list, size) == 0)
      return m->seen_slots[i] - 1;
  }
  return add_seen(m, c, list, size, hash) ? (int64_t)m->seen.count - 1 : NO_SEEN;
}

static inline bool is_seen(const tsr__pickle *m, const cursor *c, uint32_t index) {
  if (index == TSR_NONE) return false;
  const tsr__seen_stack *seen = &m->seen.items[index];
  return (size_t)(c->end - c->p) >= seen->size + MARGIN &&
         memcmp(c->p, seen->bytes, seen->size) == 0;
}

/* The list of references at the cursor as a seen stack. */
static inline int64_t recognise(tsr__pickle *m, const cursor *c) {
  uint32_t last = m->last_seen;
  if (last != TSR_NONE) {
    tsr__seen_stack *before = &m->seen.items[last];
    if (is_seen(m, c, before->next[0])) return before->next[0];
    if (is_seen(m, c, before->next[1])) {
      uint32_t found = before->next[1];
      before->next[1] = before->next[0];
      before->next[0] = found;
      return found;
    }
  }
  int64_t found = look_up_seen(m, c, c->p);
  if (found != NO_SEEN && last != TSR_NONE) {
    m->seen.items[last].next[1] = m->seen.items[last].next[0];
    m->seen.items[last].next[0] = (uint32_t)found;
  }
  return found;
}

static inline bool read_stack(tsr__pickle *m, cursor *c) {
  uint32_t slot;
  if (c->p[0] == 'h' || c->p[0] == 'j') {
    slot = get_slot(c);
    c->event.stack = slot >> TSR__MEMO_TAG_BITS;
    return (slot & 15) == TSR__MEMO_STACK;
  }
  if (*c->p++ != ']') return false;
  size_t own = c->memo_count;
  if (!put_slot(c, TSR__MEMO_UNSET) || *c->p != '(') return false;
  int64_t found = recognise(m, c);
  if (found == NO_SEEN) return false;
  assert((size_t)found < m->seen.count);
  m->last_seen = (uint32_t)found;
  const tsr__seen_stack *seen = &m->seen.items[found];
  c->event.stack = seen->stack;
  c->p += seen->size;
  slot = TSR__MEMO_SLOT(TSR__MEMO_STACK, seen->stack);
  if (c->memo_count > own)
    c->memo[own] = slot;
  else if (*c->p == 'q' || *c->p == 'r')
    return put_slot(c, slot);          /* as C++ does, after it */
  return *c->p != '(' && *c->p != 'a'; /* a list in several batches */
}

/* ---- events ---- */

/* The key at the cursor; TSR__KEY_COUNT if it is not a known key. */
static inline tsr__name read_key(cursor *c) {
  uint32_t slot = get_slot(c), id = slot >> TSR__MEMO_TAG_BITS;
  return (slot & 15) == TSR__MEMO_STRING && id < TSR__KEY_COUNT ? (tsr__name)id : TSR__KEY_COUNT;
}

static inline bool read_stream(tsr__pickle *m, cursor *c) {
  uint64_t handle;
  if (!read_unsigned(c, &handle)) return false;
  c->event.stream = handle ? tsr__builder_stream(m->assembler->builder, handle) : 0;
  return c->event.stream != TSR_NONE;
}

static inline bool read_action(tsr__pickle *m, cursor *c) {
  uint32_t string;
  if (!read_string(m, c, &string)) return false;
  c->event.action = tsr__builder_action(m->assembler->builder, string);
  return c->event.action != TSR_ACTION_MISSING;
}

static inline bool read_time(cursor *c) {
  bool negative;
  uint64_t integer;
  if (!read_integer(c, &integer, &negative)) return false;
  c->event.time_us = (int64_t)integer;
  return true;
}

/* The keys of an event in the order in which they were read. */
typedef struct key_list {
  uint32_t keys[TSR__KEY_COUNT];
  size_t count;
  bool is_ascending; /* each comes after the ones before it in schema.h */
} key_list;

enum { NO_MORE_KEYS = TSR__KEY_COUNT + 1 };

/* The key at the cursor, TSR__KEY_COUNT if it is not a known key or the window may end within it and
 * its value, NO_MORE_KEYS at SETITEMS. */
static inline int next_key(cursor *c) {
  if (*c->p == 'u') return NO_MORE_KEYS;
  return c->end - c->p < MARGIN ? TSR__KEY_COUNT : (int)read_key(c);
}

/* Note a key that has been read with its value. False if the event has it twice. */
static inline bool note_key(cursor *c, key_list *list, tsr__name key) {
  if (c->event.shape >> key) {
    if (c->event.shape >> key & 1) return false;
    list->is_ascending = false;
  }
  list->keys[list->count++] = (uint32_t)key;
  c->event.shape |= UINT32_C(1) << key;
  return true;
}

/* Read the keys and values up to SETITEMS. Each turn reads the keys that come in PyTorch's order, as
 * a straight line of code: no jump through a table follows each key, which processors often predict
 * wrongly. Keys in another order take more turns. */
static inline bool read_keys(tsr__pickle *m, cursor *c, key_list *list) {
  int key = next_key(c);
  while (key != NO_MORE_KEYS) {
    size_t before = list->count;
#define READ_IF_NEXT(symbol, reading)                                       \
  if (key == (int)TSR__NAME_##symbol) {                                     \
    if (!(reading) || !note_key(c, list, TSR__NAME_##symbol)) return false; \
    key = next_key(c);                                                      \
  }
    READ_IF_NEXT(ACTION, read_action(m, c))
    READ_IF_NEXT(ADDR, read_unsigned(c, &c->event.addr))
    READ_IF_NEXT(SIZE, read_unsigned(c, &c->event.size))
    READ_IF_NEXT(STREAM, read_stream(m, c))
    READ_IF_NEXT(TIME_US, read_time(c))
    READ_IF_NEXT(COMPILE_CONTEXT, read_string(m, c, &c->event.context))
    READ_IF_NEXT(USER_METADATA, read_string(m, c, &c->event.metadata))
    READ_IF_NEXT(POOL_ID, read_pool(m, c))
    READ_IF_NEXT(FRAMES, read_stack(m, c))
    READ_IF_NEXT(CATEGORY, read_string(m, c, &c->event.category))
#undef READ_IF_NEXT
    if (list->count == before) return false; /* an unknown key, or one of other rows */
  }
  return true;
}

static inline bool read_event(tsr__pickle *m, cursor *c, uint64_t row) {
  uint32_t dict_slot =
      row < TSR__MEMO_ID_LIMIT ? TSR__MEMO_SLOT(TSR__MEMO_EVENT, row) : TSR__MEMO_UNSET;
  if (*c->p++ != '}' || !put_slot(c, dict_slot) || *c->p++ != '(') return false;
  c->event = TSR__EVENT_EMPTY;
  key_list list; /* its array is not worth clearing */
  list.count = 0;
  list.is_ascending = true;
  if (!read_keys(m, c, &list)) return false;
  c->p++;
  if (!list.is_ascending) {
    uint32_t order = tsr__builder_key_order_of_ids(m->assembler->builder, list.keys, list.count);
    if (order == TSR_NONE) return false;
    c->event.shape |= order << TSR__EVENT_ORDER_SHIFT;
  }
  /* The next event or the end of the batch must follow: anything else is done to this event (a put,
   * by the C++ writer, of one that it will name again) and needs it on the stack. */
  return (c->event.shape & TSR__KEY(ACTION)) && (*c->p == '}' || *c->p == 'e');
}

/* The trace that the list's events go to; TSR_NONE when out of memory. */
static uint32_t trace_of(tsr__pickle *m, tsr__value list) {
  tsr__container *container = tsr__container_of(m->assembler, list);
  if (container->trace == TSR_NONE)
    container->trace = tsr__builder_add_trace(m->assembler->builder);
  return container->trace;
}

/* References mean what they meant only as long as no slot of a frame is stored again. PyTorch never
 * does that; a pickle may. */
static void forget_seen(tsr__pickle *m) {
  m->assembler->has_redefined_frames = false;
  m->seen.count = 0;
  m->last_seen = TSR_NONE;
  for (size_t i = 0; m->seen_slots && i <= m->seen_mask; i++) m->seen_slots[i] = 0;
}

int tsr__pickle_run_events(tsr__pickle *m, tsr__value list) {
  tsr__assembler *assembler = m->assembler;
  tsr__builder *builder = assembler->builder;
  uint32_t trace = TSR_NONE;
  if (assembler->has_redefined_frames) forget_seen(m);
  cursor c = {.p = m->next, .end = m->end};
  while (c.p[0] == '}' && c.end - c.p >= 2 * MARGIN && m->memo_next == assembler->memo_count) {
    if (assembler->memo_capacity - assembler->memo_count < MEMO_ROOM) {
      size_t count = assembler->memo_count;
      int status = tsr__memo_reserve(assembler, count + MEMO_ROOM, m->error);
      if (status) return status;
      assembler->memo_count = count;
    }
    c.memo = assembler->memo;
    c.memo_count = assembler->memo_count;
    if (!read_event(m, &c, tsr__builder_event_count(builder))) break;
    if (trace == TSR_NONE) trace = trace_of(m, list);
    tsr__builder_judge_event(builder, &c.event);
    if (trace == TSR_NONE || !tsr__builder_add_event(builder, &c.event) ||
        !tsr__builder_extend_trace(builder, trace, tsr__builder_event_count(builder) - 1))
      return tsr__fail_memory(m->error);
    assert(c.memo_count <= assembler->memo_capacity && c.p > m->next && c.p <= c.end);
    assembler->memo_count = m->memo_next = c.memo_count;
    m->next = c.p;
  }
  return 0;
}

void tsr__pickle_run_release(tsr__pickle *m) {
  tsr__arena_release(&m->seen_arena);
  TSR__VECTOR_FREE(&m->seen);
  tsr__free(m->seen_slots);
}

uint64_t tsr__pickle_run_bytes(const tsr__pickle *m) {
  uint64_t slots = m->seen_slots ? (uint64_t)m->seen_mask + 1 : 0;
  return m->seen_arena.total_bytes + m->seen.capacity * sizeof *m->seen.items +
         slots * sizeof *m->seen_slots;
}
