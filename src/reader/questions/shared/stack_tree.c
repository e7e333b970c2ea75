/* stack_tree.c - see stack_tree.h.
 *
 *   #      bytes  count  stacks, below /home/me/project
 *       8.20 GiB     12  train.py:40 <module> > :31 main > net/model.py:253 forward
 *   1   6.00 GiB      4    net/model.py:382 forward > net/attention.py:12 softmax
 *   2   2.20 GiB      8    model.py:390 forward
 *
 * Only the frames that a folded stack shows are nodes (stacks/stacks.h), and frames that read alike are the
 * same node. Node 0 is the root. A line is a *chain*: a node and what follows it while there is only one way
 * to go and no row ends. All nodes of a chain have its level.
 *
 * The walk over the tree keeps no stack of its own, as files may have deep ones: from the end of a chain it
 * goes to the first child, or climbs until there is a sibling. */
#include "questions/shared/stack_tree.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "base/checked.h"
#include "base/format.h"
#include "base/intern.h"
#include "base/memory.h"
#include "base/vector.h"
#include "emit/heading.h"
#include "emit/text.h"
#include "tessera/unstable/frames.h"

/* An empty line, and the header. */
enum { AROUND = 2 };

typedef struct node {
  uint32_t text;                      /* id in texts */
  uint32_t path_bytes;                /* of the text, how much is the file; 0 if it is no frame's */
  uint32_t parent, first, last, next; /* nodes; TSR_NONE */
  uint32_t level;
  uint64_t bytes, allocations; /* of all rows that pass here */
  uint64_t own_bytes, own_allocations;
  uint32_t rows; /* that end here; to these alone belong the two above */
} node;

typedef struct tree {
  tsr__stack_printer *printer;
  const tsr__share_list *shares;
  tsr__row_names names;
  tsr__intern texts;
  tsr__buffer folder; /* that all of the program's files are in, with its last slash; or empty */
  tsr__buffer scratch, path;
  TSR__VECTOR(node) nodes;
  TSR__VECTOR(uint32_t) shown; /* frames of the stack being added */
  uint32_t *end_of;            /* by row: the node where it ends */
  bool failed, has_folder;
} tree;

/* ---- Paths ---- */

static bool is_slash(char byte) {
  return byte == '/' || byte == '\\';
}

static tsr_text text_of(const tsr__buffer *buffer) {
  return buffer->size ? (tsr_text){buffer->data, buffer->size} : (tsr_text){"", 0};
}

/* "scripts/../train.py" is "train.py". */
static void append_resolved(tsr__buffer *out, tsr_text path) {
  for (size_t at = 0, end; at < path.size_bytes; at = end) {
    for (end = at; end < path.size_bytes && !is_slash(path.data[end]);) end++;
    bool is_up = end - at == 2 && path.data[at] == '.' && path.data[at + 1] == '.';
    size_t parent = out->size;
    if (parent && is_slash(out->data[parent - 1])) parent--;
    while (parent && !is_slash(out->data[parent - 1])) parent--;
    if (end < path.size_bytes) end++;
    if (is_up && parent && !out->failed)
      out->size = parent;
    else
      tsr__buffer_append(out, path.data + at, end - at);
  }
}

static tsr_frame frame_of(const tree *t, uint32_t id) {
  return tsr_snapshot_frame(t->printer->snapshot, id);
}

static tsr_text string_of(const tree *t, uint32_t id) {
  return tsr_snapshot_string(t->printer->snapshot, id);
}

static tsr_origin origin_of(const tree *t, uint32_t id) {
  tsr_frame frame = frame_of(t, id);
  return tsr_frame_origin(string_of(t, frame.name), string_of(t, frame.file));
}

/* The folder that `path` and those before it have in common. */
static void narrow_folder(tree *t) {
  tsr_text path = text_of(&t->path);
  size_t same = 0, slash = 0;
  if (!t->has_folder) {
    tsr__buffer_append(&t->folder, path.data, path.size_bytes);
    t->has_folder = true;
  }
  while (same < t->folder.size && same < path.size_bytes && t->folder.data[same] == path.data[same])
    if (is_slash(path.data[same++])) slash = same;
  t->folder.size = slash;
}

/* The file as the tree shows it: below the common folder, or as the package installs it. */
static tsr_text short_path(tree *t, tsr_origin origin, tsr_text file) {
  static const char site[] = "-packages/";
  t->path.size = 0;
  append_resolved(&t->path, file);
  tsr_text path = text_of(&t->path);
  if (origin == TSR_ORIGIN_USER) {
    size_t folder = t->folder.size;
    if (folder < path.size_bytes && folder && memcmp(path.data, t->folder.data, folder) == 0)
      return (tsr_text){path.data + folder, path.size_bytes - folder};
    return path;
  }
  for (size_t at = path.size_bytes; at >= sizeof site; at--) {
    const char *from = path.data + at - (sizeof site - 1);
    if (memcmp(from, site, sizeof site - 2) == 0 && is_slash(from[sizeof site - 2]))
      return (tsr_text){path.data + at, path.size_bytes - at};
  }
  return tsr_base_name(path);
}

/* ---- Building ---- */

static uint32_t put_text(tree *t) {
  uint32_t id = tsr__intern_put(&t->texts, t->scratch.data, t->scratch.size, NULL);
  if (id == TSR__INTERN_FULL || t->scratch.failed || t->path.failed || t->folder.failed)
    t->failed = true;
  return id;
}

/* `net/model.py:382 forward`. */
static uint32_t text_of_frame(tree *t, uint32_t id, size_t *path_bytes) {
  tsr_frame frame = frame_of(t, id);
  t->scratch.size = 0;
  tsr_text file = short_path(t, origin_of(t, id), string_of(t, frame.file));
  tsr_text name = string_of(t, frame.name);
  tsr__buffer_append(&t->scratch, file.data, file.size_bytes);
  *path_bytes = t->scratch.size;
  if (frame.line && frame.line != TSR_LINE_UNKNOWN)
    tsr__buffer_printf(&t->scratch, ":%" PRIu64, frame.line);
  tsr__buffer_text(&t->scratch, " ");
  tsr__buffer_append(&t->scratch, name.data, name.size_bytes);
  return put_text(t);
}

/* The child of `parent` with the text of `like`, added if new. */
static uint32_t child_of(tree *t, uint32_t parent, node like) {
  assert(parent < t->nodes.count);
  uint32_t at = t->nodes.items[parent].first, fresh = (uint32_t)t->nodes.count;
  while (at != TSR_NONE && t->nodes.items[at].text != like.text) at = t->nodes.items[at].next;
  if (at != TSR_NONE) return at;
  like.parent = parent;
  like.first = like.last = like.next = TSR_NONE;
  if (!TSR__VECTOR_PUSH(&t->nodes, like)) {
    t->failed = true;
    return parent;
  }
  node *of = &t->nodes.items[parent];
  if (of->last == TSR_NONE)
    of->first = fresh;
  else
    t->nodes.items[of->last].next = fresh;
  of->last = fresh;
  return fresh;
}

static void gather_shown(tree *t, uint32_t stack) {
  t->shown.count = 0;
  tsr_stack frames = {0};
  if (stack != TSR_NONE) frames = tsr_snapshot_stack(t->printer->snapshot, stack);
  if (!TSR__VECTOR_RESERVE(&t->shown, frames.depth))
    t->failed = true;
  else if (frames.depth)
    t->shown.count = tsr__stack_shown(t->printer, stack, t->shown.items);
  assert(t->shown.count <= frames.depth);
}

static void add_row(tree *t, size_t row) {
  const tsr_stack_share *share = &t->shares->items[row];
  uint32_t at = 0;
  gather_shown(t, share->stack);
  if (!t->shown.count) {
    tsr_text name = tsr__share_name(t->shares, &t->names, row);
    t->scratch.size = 0;
    tsr__buffer_append(&t->scratch, name.data, name.size_bytes);
    at = child_of(t, 0, (node){.text = put_text(t)});
  }
  for (size_t i = 0; !t->failed && i < t->shown.count; i++) {
    size_t path_bytes;
    node like = {.text = text_of_frame(t, t->shown.items[i], &path_bytes)};
    like.path_bytes = (uint32_t)path_bytes;
    at = child_of(t, at, like);
  }
  t->end_of[row] = at;
  node *end = &t->nodes.items[at];
  end->rows++;
  end->own_bytes = tsr__sum_u64(end->own_bytes, share->bytes);
  end->own_allocations = tsr__sum_u64(end->own_allocations, share->allocations);
  for (; at != TSR_NONE; at = t->nodes.items[at].parent) {
    node *n = &t->nodes.items[at];
    n->bytes = tsr__sum_u64(n->bytes, share->bytes);
    n->allocations = tsr__sum_u64(n->allocations, share->allocations);
  }
}

/* The tree of the first `rows` rows. */
static void build(tree *t, size_t rows) {
  node root = {
      .text = TSR_NONE, .parent = TSR_NONE, .first = TSR_NONE, .last = TSR_NONE, .next = TSR_NONE};
  t->nodes.count = 0;
  if (!TSR__VECTOR_PUSH(&t->nodes, root)) {
    t->failed = true;
    return;
  }
  for (size_t i = 0; !t->failed && i < rows; i++) add_row(t, i);
}

/* Returns whether some row has frames to show. */
static bool find_folder(tree *t) {
  bool has_any = false;
  for (size_t i = 0; !t->failed && i < t->shares->count; i++) {
    gather_shown(t, t->shares->items[i].stack);
    has_any |= t->shown.count != 0;
    for (size_t k = 0; k < t->shown.count; k++) {
      tsr_text file = string_of(t, frame_of(t, t->shown.items[k]).file);
      if (origin_of(t, t->shown.items[k]) != TSR_ORIGIN_USER) continue;
      if (!file.size_bytes || file.data[0] == '<') continue;
      t->path.size = 0;
      append_resolved(&t->path, file);
      narrow_folder(t);
    }
  }
  if (t->folder.size == 1) t->folder.size = 0; /* the root is no folder that files share */
  return has_any;
}

/* ---- Walking ---- */

/* The last node of the chain that begins at `at`. Sets the level of its nodes. */
static uint32_t end_of_chain(tree *t, uint32_t at) {
  node *n = &t->nodes.items[at];
  uint32_t level = n->parent ? t->nodes.items[n->parent].level + 1 : 0;
  n->level = level;
  while (!n->rows && n->first != TSR_NONE && n->first == n->last) {
    at = n->first;
    n = &t->nodes.items[at];
    assert(at < t->nodes.count && n->parent < at);
    n->level = level;
  }
  return at;
}

/* Where the next chain begins after one that ends at `at`; TSR_NONE after the last. */
static uint32_t next_chain(const tree *t, uint32_t at) {
  if (t->nodes.items[at].first != TSR_NONE) return t->nodes.items[at].first;
  while (at != TSR_NONE && t->nodes.items[at].next == TSR_NONE) at = t->nodes.items[at].parent;
  return at == TSR_NONE ? TSR_NONE : t->nodes.items[at].next;
}

/* Rows that end where others go on have a line of their own, after the branch's. */
static bool is_fork(const node *n) {
  return n->rows && n->first != TSR_NONE;
}

static size_t count_lines(tree *t) {
  size_t lines = 0;
  for (uint32_t at = t->nodes.items[0].first; at != TSR_NONE;) {
    uint32_t end = end_of_chain(t, at);
    lines += is_fork(&t->nodes.items[end]) ? 2 : 1;
    at = next_chain(t, end);
  }
  return lines;
}

/* ---- Printing ---- */

/* "4", or "4-6, 9": the rows that end at a node. */
static void append_rows(const tree *t, uint32_t at, size_t rows, tsr__buffer *out) {
  bool is_first = true;
  for (size_t i = 0; i < rows; i++) {
    if (t->end_of[i] != at) continue;
    size_t last = i;
    while (last + 1 < rows && t->end_of[last + 1] == at) last++;
    tsr__buffer_printf(out, "%s%zu", is_first ? "" : ", ", i + 1);
    if (last > i) tsr__buffer_printf(out, "-%zu", last + 1);
    is_first = false;
    i = last;
  }
  assert(!is_first); /* called for nodes with rows */
}

/* A node after another of its chain; in the same file, the line and the function are enough. */
static void append_next(const tree *t, uint32_t before, uint32_t at, tsr__buffer *out) {
  const node *a = &t->nodes.items[before], *b = &t->nodes.items[at];
  const tsr__interned *text = &t->texts.items[b->text];
  bool is_same = a->path_bytes && a->path_bytes == b->path_bytes &&
                 !memcmp(t->texts.items[a->text].data, text->data, a->path_bytes);
  size_t from = is_same ? b->path_bytes : 0;
  assert(from <= text->size_bytes);
  tsr__buffer_text(out, " > ");
  tsr__buffer_append(out, text->data + from, text->size_bytes - from);
}

static void print_chain(tree *t, uint32_t begin, uint32_t end, size_t rows) {
  tsr__buffer *out = &t->printer->emitter->scratch;
  const node *first = &t->nodes.items[begin], *last = &t->nodes.items[end];
  assert(first->bytes == last->bytes && first->allocations == last->allocations);
  if (last->rows && !is_fork(last)) append_rows(t, end, rows, out);
  size_t name = out->size;
  tsr__buffer_fill(out, ' ', (size_t)2 * first->level);
  const tsr__interned *text = &t->texts.items[first->text];
  tsr__buffer_append(out, text->data, text->size_bytes);
  for (uint32_t at = begin; at != end; at = t->nodes.items[at].first)
    append_next(t, at, t->nodes.items[at].first, out);
  if (out->failed) return;
  tsr__emit_row(t->printer->emitter,
                (tsr__cell[]){tsr__text((tsr_text){name ? out->data : "", name}),
                              tsr__bytes(last->bytes), tsr__count(last->allocations),
                              tsr__text((tsr_text){out->data + name, out->size - name})});
  tsr__emit_row_end(t->printer->emitter);
  out->size = 0;
}

/* The rows that end at a fork. */
static void print_own(tree *t, uint32_t at, size_t rows) {
  tsr__buffer *out = &t->printer->emitter->scratch;
  const node *n = &t->nodes.items[at];
  append_rows(t, at, rows, out);
  size_t name = out->size;
  tsr__buffer_fill(out, ' ', (size_t)2 * n->level + 2);
  tsr__buffer_text(out, "(at this line itself)");
  if (out->failed) return;
  tsr__emit_row(t->printer->emitter,
                (tsr__cell[]){tsr__text((tsr_text){out->data, name}), tsr__bytes(n->own_bytes),
                              tsr__count(n->own_allocations),
                              tsr__text((tsr_text){out->data + name, out->size - name})});
  tsr__emit_row_end(t->printer->emitter);
  out->size = 0;
}

static void print_tree(tree *t, size_t rows) {
  tsr__emitter *emitter = t->printer->emitter;
  t->scratch.size = 0;
  tsr__buffer_text(&t->scratch, "stacks of these rows");
  if (t->folder.size) {
    tsr__buffer_text(&t->scratch, ", below ");
    (void)tsr__text_clean(&t->scratch, (tsr_text){t->folder.data, t->folder.size - 1});
  }
  tsr__buffer_append(&t->scratch, "", 1);
  if (t->scratch.failed) {
    t->failed = true;
    return;
  }
  const tsr__column columns[] = {{NULL, "#", TSR__RIGHT},
                                 {NULL, "bytes", TSR__RIGHT},
                                 {NULL, "count", TSR__RIGHT},
                                 {NULL, t->scratch.data, TSR__CHAIN}};
  tsr__emit_space(emitter);
  tsr__emit_table(emitter, NULL, columns, sizeof columns / sizeof *columns);
  for (uint32_t at = t->nodes.items[0].first, end; at != TSR_NONE; at = next_chain(t, end)) {
    end = end_of_chain(t, at);
    print_chain(t, at, end, rows);
    if (is_fork(&t->nodes.items[end])) print_own(t, end, rows);
  }
  tsr__emit_table_end(emitter);
  if (rows < t->shares->count)
    tsr__emit_printf(emitter, TSR__DIM, "  ... and the stack%s of %zu more row%s (-v shows all)",
                     tsr__plural(t->shares->count - rows), t->shares->count - rows,
                     tsr__plural(t->shares->count - rows));
}

static void release(tree *t) {
  tsr__row_names_release(&t->names);
  tsr__intern_release(&t->texts);
  tsr__buffer_release(&t->folder);
  tsr__buffer_release(&t->scratch);
  tsr__buffer_release(&t->path);
  TSR__VECTOR_FREE(&t->nodes);
  TSR__VECTOR_FREE(&t->shown);
  tsr__free(t->end_of);
}

/* The largest number of rows whose tree fits; 0 if none does. Builds that tree. */
static size_t fit(tree *t, size_t most_lines) {
  size_t rows = t->shares->count;
  build(t, rows);
  while (rows && !t->failed && most_lines &&
         AROUND + count_lines(t) + (rows < t->shares->count) > most_lines)
    build(t, --rows);
  return t->failed ? 0 : rows;
}

size_t tsr__print_stack_tree(tsr__stack_printer *printer, const tsr__share_list *shares,
                             size_t most_lines) {
  tree t = {.printer = printer, .shares = shares};
  size_t lines = 0;
  if (!tsr__emitter_is_text(printer->emitter) || !shares->count) return 0;
  tsr__intern_init(&t.texts);
  TSR__STACK_NAMES(printer, tsr_stack_share, shares->items, shares->count, &t.names);
  t.end_of = TSR__NEW_ARRAY(uint32_t, shares->count);
  t.failed = !t.end_of;
  size_t rows = find_folder(&t) ? fit(&t, most_lines) : 0;
  if (rows) {
    lines = AROUND + count_lines(&t) + (rows < shares->count);
    print_tree(&t, rows);
  }
  if (t.failed) printer->emitter->scratch.failed = true;
  release(&t);
  assert(!most_lines || lines <= most_lines);
  return lines;
}
