/* names.h - the names of a page: strings, frames and stacks of several files in one table.
 *
 * Stacks form a tree, from the outermost frame inwards: each node is a frame below its parent, and a
 * stack is a node. Equal stacks of different files are the same node, so that files can be compared. */
#ifndef TSR_PAGE_NAMES_H
#define TSR_PAGE_NAMES_H

#include "base/intern.h"
#include "base/map.h"
#include "base/vector.h"
#include "page/pack.h"
#include "tessera/unstable/view.h"

/* A frame of the page; no padding. */
typedef struct tsr__page_frame {
  uint32_t name, file; /* strings of the page */
  uint64_t line, origin;
} tsr__page_frame;

/* A node: a frame below its parent, which is TSR_NONE at the root. */
typedef struct tsr__page_node {
  uint32_t parent, frame;
} tsr__page_node;

typedef struct tsr__page_names {
  size_t most_text; /* bytes of one string; longer ones are cut */
  tsr__intern strings, frames, nodes;
} tsr__page_names;

/* Maps a file's ids to the page's. */
typedef struct tsr__page_ids {
  uint32_t *nodes;   /* by stack id: its node plus 1, or 0 if not looked up yet */
  uint32_t *frames;  /* by frame id, likewise */
  uint32_t *strings; /* by string id, likewise */
} tsr__page_ids;

void tsr__page_names_init(tsr__page_names *names, size_t most_text);
void tsr__page_names_release(tsr__page_names *names);
bool tsr__page_ids_init(tsr__page_ids *ids, const tsr_snapshot *snapshot);
void tsr__page_ids_release(tsr__page_ids *ids);

/* The page's string for a file's, and its node for a stack (TSR_NONE for none); `*ok` becomes false
 * when out of memory. */
uint32_t tsr__page_string(tsr__page_names *names, tsr__page_ids *ids, const tsr_snapshot *snapshot,
                          uint32_t string, bool *ok);
uint32_t tsr__page_stack(tsr__page_names *names, tsr__page_ids *ids, const tsr_snapshot *snapshot,
                         uint32_t stack, bool *ok);

/* The page's string of a text. */
uint32_t tsr__page_text(tsr__page_names *names, tsr_text text, bool *ok);

/* The text, truncated between characters to at most `most_bytes`. */
tsr_text tsr__page_cut(tsr_text text, size_t most_bytes);

/* Append a text as a JSON string that is safe inside a script element. */
void tsr__page_quote(tsr__buffer *out, tsr_text text);

#endif
