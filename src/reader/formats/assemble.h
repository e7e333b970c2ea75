/* assemble.h - from values to rows: what a pickle and a JSON text have in common.
 *
 * A parser opens containers, appends to lists and sets keys of dicts. The assembler decides what a
 * dict is by the keys it has (an `action` makes an event, a `filename` a frame, ...) and, as soon
 * as it is known, turns it into a row and forgets it: no object tree of the file is ever built.
 * What no rule covers (allocator settings, unknown keys) is kept as "loose" values, within
 * tsr_limits.loose_values.
 *
 *   dict of an event ----set----> row of events ----append----> end of the list's trace
 *   list of frames   --(when its event is set)--> stack id, and every later mention of the list too
 *
 * The memo of a pickle lives here as well, because turning a container into a row must reach the
 * memo slots that name it. A slot is 32 bits: 4 of tag, 28 of id; larger values go into a side
 * table. */
#ifndef TSR_FORMATS_ASSEMBLE_H
#define TSR_FORMATS_ASSEMBLE_H

#include "base/map.h"
#include "columns/builder.h"
#include "io/source.h"

typedef enum tsr__container_kind { TSR__LIST, TSR__TUPLE, TSR__DICT } tsr__container_kind;

/* A container that is still open, or whose users must still find what became of it. */
typedef struct tsr__container {
  TSR__VECTOR(tsr__value) items; /* a dict's keys and values alternate */
  tsr__value resolved;           /* what it became, once it did; TSR__NOTHING before */
  uint32_t trace;                /* a list of events: index into snapshot->traces; else TSR_NONE */
  uint32_t memo;                 /* the memo slot that names it, or TSR_NONE */
  uint32_t next_free;            /* in the list of free containers */
  uint8_t kind;                  /* tsr__container_kind */
  bool is_pinned;                /* named from more places than `memo`: never reused */
  bool is_visiting;              /* being turned into something: a second visit is a cycle */
} tsr__container;

typedef struct tsr__assembler {
  tsr__builder *builder;        /* not owned: where rows go */
  const tsr_snapshot *snapshot; /* what it has built so far */
  tsr_limits limits;
  TSR__VECTOR(tsr__container) containers;
  uint32_t first_free; /* or TSR_NONE */
  uint32_t live_containers;
  uint64_t item_bytes; /* held by the items of all containers */

  uint32_t *memo;
  size_t memo_count, memo_capacity; /* slots at memo_count and above are unset */
  bool has_redefined_frames;        /* a slot that named a frame names something else now */
  TSR__VECTOR(tsr__value) boxed;    /* memo values that do not fit a slot */

  /* Rows of events and slots of the memo at the last tsr__assembler_prepare, and up to which their
   * memory has been asked for. */
  uint64_t rows_then, rows_ready;
  size_t slots_then, slots_ready;

  TSR__VECTOR(uint32_t) frame_ids; /* scratch: the stack being made */
  uint32_t key_order;              /* of the dict that is becoming a row */
  tsr__map texts; /* id of a kept dict that is metadata -> string that spells it, or TSR_NONE */
  uint32_t first_global; /* string id of the first program name that a pickle requested */
  uint64_t first_global_offset;
} tsr__assembler;

/* `builder` is initialised, and has the limits. */
void tsr__assembler_init(tsr__assembler *assembler, tsr__builder *builder);
void tsr__assembler_release(tsr__assembler *assembler);

/* Before a parser asks for the next window: announce to the input's thread the memory that the next
 * events will fill, going by how many the last window held. */
void tsr__assembler_prepare(tsr__assembler *assembler, tsr__input *input);

/* Whether what is held keeps to tsr_limits.memory_...: `reader_bytes` of a parser's own, and all
 * that the assembler and the snapshot hold, against what `source` has read. `offset` is where the
 * parser is. To be asked every megabyte or so. TSR_ERROR_LIMIT. */
int tsr__check_memory(const tsr__assembler *assembler, uint64_t reader_bytes,
                      const tsr__input *source, uint64_t offset, tsr_error *error);

/* A new, empty container. Like all below: TSR_ERROR_MEMORY, or TSR_ERROR_LIMIT. */
int tsr__open_container(tsr__assembler *assembler, tsr__container_kind kind, tsr__value *out,
                        tsr_error *error);
/* Append `count` values to the list `target`. Returns 0 and counts a warning if `target` is no
 * list. Values may be changed: open dicts become rows. */
int tsr__append(tsr__assembler *assembler, tsr__value target, tsr__value *values, size_t count,
                tsr_error *error);
/* Set `count / 2` pairs of `*target`; it becomes a row at once if its keys are those of a row. */
int tsr__set(tsr__assembler *assembler, tsr__value *target, tsr__value *pairs, size_t count,
             tsr_error *error);
/* A tuple of `count` values. */
int tsr__make_tuple(tsr__assembler *assembler, const tsr__value *values, size_t count,
                    tsr__value *out, tsr_error *error);
/* The container that a value names, or NULL. Valid until the next container is opened. */
tsr__container *tsr__container_of(const tsr__assembler *assembler, tsr__value value);
/* What a value stands for now: an open container may have become a row. */
tsr__value tsr__current(const tsr__assembler *assembler, tsr__value value);
/* The values of a list or tuple, open, or kept as a loose value because something else named it
 * first: `*count` at `*items`. False where `value` is neither, or is being visited. Valid until a
 * container is opened. */
bool tsr__items_of(const tsr__assembler *assembler, tsr__value value, const tsr__value **items,
                   size_t *count);
/* Turn an open list of frames into a stack: its id, or TSR_NONE where `value` is no list. */
int tsr__resolve_stack(tsr__assembler *assembler, tsr__value value, uint32_t *stack,
                       tsr_error *error);
/* Turn any value into one that needs no assembler: containers become TSR__LOOSE. */
int tsr__resolve_loose(tsr__assembler *assembler, tsr__value value, tsr__value *out,
                       tsr_error *error);
/* A value in a place that does not accept it: release it if it is an open container. If a memo
 * still names it, it is kept as a loose value. */
int tsr__let_go(tsr__assembler *assembler, tsr__value value, tsr_error *error);
/* Release the container with this index, which has become `resolved`. */
void tsr__resolve(tsr__assembler *assembler, uint32_t index, tsr__value resolved);
/* While a container's items are read it must stay what it is: an item may hold it. */
void tsr__visit(tsr__assembler *assembler, tsr__value value, bool is_visiting);
/* Announce that one more place will name a value. */
void tsr__pin(tsr__assembler *assembler, tsr__value value);

/* Try to make a row of the dict with these pairs; `*out` is untouched where the keys name no row.
 */
int tsr__make_row(tsr__assembler *assembler, const tsr__value *pairs, size_t count, tsr__value *out,
                  tsr_error *error);
/* Row numbers of a table. */
typedef TSR__VECTOR(uint32_t) tsr__order;

/* Make pinned host memory a device (host.c): `segments` and `traces` are the loose values under
 * host_segments and host_traces, TSR__NOTHING if absent. Its segments are appended to `rows`. */
int tsr__read_host(tsr__assembler *assembler, tsr__value segments, tsr__value traces,
                   tsr__order *rows, tsr_error *error);

/* The whole snapshot is `top`: fill in the rest and lay out the builder's tables. Fails with
 * TSR_ERROR_FORMAT if that is not a snapshot, and as tsr__builder_lay_out does. */
int tsr__assemble_finish(tsr__assembler *assembler, tsr__value top, tsr_error *error);

/* ---- memo ---- */

#define TSR__MEMO_TAG_BITS      4
#define TSR__MEMO_ID_LIMIT      (UINT32_C(1) << (32 - TSR__MEMO_TAG_BITS))
#define TSR__MEMO_SLOT(tag, id) ((uint32_t)(id) << TSR__MEMO_TAG_BITS | (uint32_t)(tag))

/* Tags of slots; those of ids stand for the tsr__tag of like name. */
typedef enum tsr__memo_tag {
  TSR__MEMO_UNSET,
  TSR__MEMO_STRING,
  TSR__MEMO_FRAME,
  TSR__MEMO_STACK,
  TSR__MEMO_EVENT,
  TSR__MEMO_BLOCK,
  TSR__MEMO_PAIR,
  TSR__MEMO_CONTAINER,
  TSR__MEMO_BOXED
} tsr__memo_tag;

/* Make room for slots up to and including `index`; new ones are unset. */
int tsr__memo_reserve(tsr__assembler *assembler, uint64_t index, tsr_error *error);
int tsr__memo_put(tsr__assembler *assembler, uint64_t index, tsr__value value, tsr_error *error);
/* The value in a slot, pinned if it is an open container; TSR__NOTHING when it was never set. */
tsr__value tsr__memo_get(const tsr__assembler *assembler, uint64_t index);

#endif
